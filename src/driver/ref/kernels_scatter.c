/* kernels_scatter.c: ops with an index tensor of the full rank. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* t over the sizes of `index`, standing still along `axis`. */
static ref_tensor
along(const ref_tensor *t, const ref_tensor *index, int axis)
{
    ref_tensor out = *t;
    out.rank = index->rank;
    for (int i = 0; i < index->rank; i++)
        out.dims[i] = index->dims[i];
    if (axis >= 0 && out.rank > 0)
        out.strides[axis] = 0;
    return out;
}

/* A row of gather: steps are in bytes, `bytes` is a constant of each call. */
typedef struct {
    int64_t cols, size, stride; /* of the indexed axis of self */
    int64_t index_step, dst_step, src_step;
    air_dtype index_dtype;
} gather_plan;

static inline void
gather_each(const gather_plan *g, char *dst, const char *src, const char *index,
            const air_task *task, size_t bytes)
{
    for (int64_t c = 0; c < g->cols; c++) {
        int64_t at;
        if (g->index_dtype == AIR_I64)
            memcpy(&at, index, sizeof at);
        else
            at = ref_get_int(g->index_dtype, index);
        if (ref_wrap(&at, g->size, task))
            memcpy(dst, src + at * g->stride, bytes);
        else
            memset(dst, 0, bytes);
        index += g->index_step;
        dst += g->dst_step;
        src += g->src_step;
    }
}

static void
gather_row(const gather_plan *g, char *dst, const char *src, const char *index,
           const air_task *task, size_t bytes)
{
    switch (bytes) {
    case 1: gather_each(g, dst, src, index, task, 1); break;
    case 2: gather_each(g, dst, src, index, task, 2); break;
    case 4: gather_each(g, dst, src, index, task, 4); break;
    default: gather_each(g, dst, src, index, task, 8); break;
    }
}

/* gather(self, dim, index, sparse_grad): row by row along the last axis */
void
ref_gather(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank), last = index.rank - 1;
    int64_t begin, end;
    ref_tensor from = along(&self, &index, axis);
    ref_tensor rows = ref_drop(index, last), to = ref_drop(out, last);
    ref_tensor src = ref_drop(from, last);
    const ref_tensor *all[] = {&rows, &to, &src};
    air_split(ref_numel(&rows), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    const gather_plan plan = {.cols = ref_dim(&index, last),
                              .size = ref_dim(&self, axis),
                              .stride = ref_stride(&self, axis),
                              .index_step = ref_stride(&index, last),
                              .dst_step = ref_stride(&out, last),
                              .src_step = ref_stride(&from, last),
                              .index_dtype = index.dtype};
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w))
        gather_row(&plan, w.p[1], w.p[2], w.p[0], task, ref_bytes(out.dtype));
}

/* ---- scatter ------------------------------------------------------------- */

typedef enum {
    PUT,
    ADD,
    PROD,
    MEAN, /* adds; divided in the end */
    AMAX,
    AMIN
} scatter_how;

/* count: how many values went into the place so far, NULL: do not count. A
 * first value replaces what is there when that does not count. */
typedef struct {
    scatter_how how;
    bool include_self;
    int32_t *count; /* per element of out, row-major */
} scatter_rule;

static double
fold_float(scatter_how how, double a, double b)
{
    switch (how) {
    case PROD: return a * b;
    case AMAX: return b > a || isnan(b) ? b : a;
    case AMIN: return b < a || isnan(b) ? b : a;
    default: return a + b;
    }
}

static int64_t
fold_int(scatter_how how, int64_t a, int64_t b)
{
    int64_t r = 0;
    switch (how) {
    case PROD: (void)__builtin_mul_overflow(a, b, &r); return r;
    case AMAX: return b > a ? b : a;
    case AMIN: return b < a ? b : a;
    default: (void)__builtin_add_overflow(a, b, &r); return r;
    }
}

static void
fold(scatter_how how, int dtype, char *dst, const char *src)
{
    if (how == PUT)
        ref_copy(dst, src, ref_bytes(dtype));
    else if (how == ADD || how == MEAN)
        ref_add(dtype, dst, src);
    else if (ref_is_float(dtype))
        ref_put(dtype, dst,
                fold_float(how, ref_get(dtype, dst), ref_get(dtype, src)));
    else
        ref_put_int(
            dtype, dst,
            fold_int(how, ref_get_int(dtype, dst), ref_get_int(dtype, src)));
}

/* Where an element of out lies in the row-major array of counts. */
static ref_tensor
count_tensor(const ref_tensor *out, int32_t *count)
{
    ref_tensor t = *out;
    int64_t stride = (int64_t)sizeof *count;
    t.data = (char *)count;
    for (int i = t.rank - 1; i >= 0; i--) {
        t.strides[i] = stride;
        stride *= t.dims[i];
    }
    return t;
}

static void
scatter_one(const scatter_rule *rule, int dtype, char *dst, const char *src,
            char *count)
{
    bool first = false;
    if (rule->count != NULL) {
        int32_t n;
        memcpy(&n, count, sizeof n);
        first = n == 0 && !rule->include_self;
        n++;
        memcpy(count, &n, sizeof n);
    }
    fold(first ? PUT : rule->how, dtype, dst, src);
}

/* Threads share what lies beside `axis`, so that every place has one writer,
 * which goes along the axis in order. src NULL: the number. */
static void
scatter(const air_call *call, const air_task *task, const ref_tensor *src,
        double number, scatter_rule rule)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task), value = out;
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    int64_t size = ref_dim(&out, axis), bits = 0, begin, end;
    ref_tensor counts = count_tensor(&out, rule.count);
    if (src != NULL)
        value = *src;
    else {
        ref_put(out.dtype, &bits, number);
        value.data = (char *)&bits;
        memset(value.strides, 0, sizeof value.strides);
    }
    ref_start(&out, &self, task);
    ref_tensor lines = ref_drop(index, axis);
    ref_tensor to = ref_drop(along(&out, &index, axis), axis);
    ref_tensor from = ref_drop(along(&value, &index, -1), axis);
    ref_tensor tally = ref_drop(along(&counts, &index, axis), axis);
    const ref_tensor *all[] = {&lines, &to, &from, &tally};
    air_split(ref_numel(&lines), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(4, all, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w))
        for (int64_t k = 0; k < ref_dim(&index, axis); k++) {
            int64_t at =
                ref_get_int(index.dtype, w.p[0] + k * ref_stride(&index, axis));
            if (ref_wrap(&at, size, task))
                scatter_one(&rule, out.dtype,
                            w.p[1] + at * ref_stride(&out, axis),
                            w.p[2] + k * ref_stride(&value, axis),
                            w.p[3] + at * ref_stride(&counts, axis));
        }
}

/* scatter.src(self, dim, index, src) */
void
ref_scatter_src(const air_call *call, const air_task *task)
{
    ref_tensor src = ref_arg(call, 3, task);
    scatter(call, task, &src, 0, (scatter_rule){PUT, true, NULL});
}

/* scatter.value(self, dim, index, value) */
void
ref_scatter_value(const air_call *call, const air_task *task)
{
    scatter(call, task, NULL, ref_float(call, 3, 0),
            (scatter_rule){PUT, true, NULL});
}

/* scatter_add(self, dim, index, src) */
void
ref_scatter_add(const air_call *call, const air_task *task)
{
    ref_tensor src = ref_arg(call, 3, task);
    scatter(call, task, &src, 0, (scatter_rule){ADD, true, NULL});
}

static scatter_how
find_how(const char *name)
{
    return strcmp(name, "sum") == 0        ? ADD
           : strcmp(name, "add") == 0      ? ADD
           : strcmp(name, "prod") == 0     ? PROD
           : strcmp(name, "multiply") == 0 ? PROD
           : strcmp(name, "mean") == 0     ? MEAN
           : strcmp(name, "amax") == 0     ? AMAX
                                           : AMIN;
}

size_t
ref_scatter_reduce_size(const air_call *call, int threads)
{
    size_t n = 1;
    (void)threads;
    for (int i = 0; i < call->outs[0].rank; i++)
        n *= (size_t)call->outs[0].dims[i];
    return n * sizeof(int32_t);
}

static void
divide(int dtype, char *p, int64_t n)
{
    if (ref_is_float(dtype)) {
        ref_put(dtype, p, ref_get(dtype, p) / (double)n);
        return;
    }
    int64_t a = ref_get_int(dtype, p);
    ref_put_int(dtype, p, a / n - (a % n < 0)); /* rounds down */
}

/* scatter_reduce.two(self, dim, index, src, reduce, include_self) */
void
ref_scatter_reduce(const air_call *call, const air_task *task)
{
    ref_tensor src = ref_arg(call, 3, task), out = ref_out(call, 0, task);
    int64_t begin, end, n = ref_numel(&out);
    scatter_rule rule = {find_how(ref_str(call, 4, "sum")),
                         ref_int(call, 5, 1) != 0, task->workspace};
    air_split(n, task, &begin, &end);
    memset(rule.count + begin, 0, (size_t)(end - begin) * sizeof *rule.count);
    task->barrier(task);
    scatter(call, task, &src, 0, rule);
    task->barrier(task);
    for (int64_t i = begin; rule.how == MEAN && i < end; i++)
        if (rule.count[i] > 0)
            divide(out.dtype, out.data + ref_offset(&out, i),
                   rule.count[i] + rule.include_self);
}
