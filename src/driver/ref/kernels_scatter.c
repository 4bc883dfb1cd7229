/* kernels_scatter.c: ops with an index tensor of the full rank. */
#include "driver/ref/fold.h"
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

/* A row: n elements along one axis of the index. Steps are in bytes. */
typedef struct {
    int64_t n, size, stride; /* of the indexed axis */
    int64_t index_step, dst_step, src_step;
    int index_dtype, dtype;
} row_plan;

#define OUT_OF_RANGE INT64_MIN

/* The axis that rows run along: the innermost of more than one index. */
static int
row_axis(const ref_tensor *index)
{
    int axis = index->rank - 1;
    while (axis > 0 && index->dims[axis] == 1)
        axis--;
    return axis;
}

static int64_t
row_index(const row_plan *p, const char *index)
{
    int64_t at;
    if (p->index_dtype != AIR_I64)
        return ref_get_int(p->index_dtype, index);
    memcpy(&at, index, sizeof at);
    return at;
}

/* The offset that an index of 64 bits stands for, or OUT_OF_RANGE. */
static inline int64_t
row_offset(const char *index, int64_t size, int64_t stride)
{
    int64_t at;
    memcpy(&at, index, sizeof at);
    return (uint64_t)at < (uint64_t)size ? at * stride : OUT_OF_RANGE;
}

/* Are steps those of dense rows along the indexed axis? `still` moves not. */
static bool
row_is_dense(const row_plan *p, int64_t moving, int64_t still)
{
    const int64_t bytes = (int64_t)ref_bytes(p->dtype);
    return p->index_step == (int64_t)sizeof(int64_t) && moving == bytes &&
           still == 0 && p->stride == bytes;
}

/* Parts of rows: `all` are tensors without the row's axis, `steps` how far
 * each moves along it. Calls `row` for elements [begin, end) of all rows. */
typedef void (*row_fn)(void *arg, char *const *at, int64_t n);

static void
each_row(const ref_tensor *const *all, const int64_t *steps, int count,
         int64_t cols, const air_task *task, row_fn row, void *arg)
{
    int64_t begin, end;
    air_split(ref_numel(all[0]) * cols, task, &begin, &end);
    if (begin >= end)
        return;
    ref_walk w = ref_walk_begin(count, all, begin / cols);
    for (int64_t col = begin % cols; begin < end; col = 0) {
        int64_t n = end - begin < cols - col ? end - begin : cols - col;
        char *at[REF_WALK_MAX];
        for (int k = 0; k < count; k++)
            at[k] = w.p[k] + col * steps[k];
        row(arg, at, n);
        begin += n;
        ref_walk_next(&w);
    }
}

/* ---- gather -------------------------------------------------------------- */

enum { BLOCK = 32, WIDE = 256 };

static inline bool
all_inside(const int64_t *index, int64_t size)
{
    uint64_t most = 0;
    for (int i = 0; i < BLOCK; i++)
        most = (uint64_t)index[i] > most ? (uint64_t)index[i] : most;
    return most < (uint64_t)size;
}

/* Of a dense row: block by block, as long as all indices are inside. */
#define GATHER_BLOCKS(bytes, T)                                              \
    static int64_t gather_blocks_##bytes(const row_plan *p, char *const *at) \
    {                                                                        \
        const int64_t *restrict index = (const void *)at[0];                 \
        const T *restrict src = (const void *)at[2];                         \
        T *restrict dst = (void *)at[1];                                     \
        int64_t i = 0;                                                       \
        for (; i + BLOCK <= p->n && all_inside(index + i, p->size);          \
             i += BLOCK)                                                     \
            _Pragma("GCC unroll 32") for (int k = 0; k < BLOCK; k++)         \
                dst[i + k] = src[index[i + k]];                              \
        return i;                                                            \
    }
GATHER_BLOCKS(1, uint8_t)
GATHER_BLOCKS(2, uint16_t)
GATHER_BLOCKS(4, uint32_t)
GATHER_BLOCKS(8, uint64_t)

/* From element `begin` up to the first index that is out of range; gives how
 * many were done. bytes and dense are constants of each call. */
static inline int64_t
gather_each(const row_plan *plan, char *const *at, int64_t begin, size_t bytes,
            bool dense)
{
    const row_plan p = *plan; /* what is written is not the plan */
    const int64_t size = (int64_t)bytes, index_step = dense ? 8 : p.index_step;
    const int64_t dst_step = dense ? size : p.dst_step;
    const int64_t src_step = dense ? 0 : p.src_step;
    const char *index = at[0] + begin * index_step;
    const char *src = at[2] + begin * src_step;
    char *dst = at[1] + begin * dst_step;
    for (int64_t i = begin; i < p.n; i++) {
        int64_t offset = row_offset(index, p.size, dense ? size : p.stride);
        if (offset == OUT_OF_RANGE)
            return i;
        memcpy(dst, src + offset, bytes);
        index += index_step;
        dst += dst_step;
        src += src_step;
    }
    return p.n;
}

static int64_t
gather_fast(const row_plan *p, char *const *at)
{
    const bool dense = row_is_dense(p, p->dst_step, p->src_step);
    if (p->index_dtype != AIR_I64)
        return 0;
    switch (ref_bytes(p->dtype)) {
#define EACH(n)                                                   \
    dense ? gather_each(p, at, gather_blocks_##n(p, at), n, true) \
          : gather_each(p, at, 0, n, false)
    case 1: return EACH(1);
    case 2: return EACH(2);
    case 4: return EACH(4);
    default: return EACH(8);
#undef EACH
    }
}

static void
gather_checked(const row_plan *p, char *const *at, int64_t begin,
               const air_task *task)
{
    static const int64_t zero = 0;
    for (int64_t i = begin; i < p->n; i++) {
        int64_t from = row_index(p, at[0] + i * p->index_step);
        bool inside = ref_inside(from, p->size, task);
        ref_copy(at[1] + i * p->dst_step,
                 inside ? at[2] + i * p->src_step + from * p->stride
                        : (const char *)&zero,
                 ref_bytes(p->dtype));
    }
}

/* Of an index that is broadcast along the row: the row lies together. */
static int64_t
gather_whole(const row_plan *p, char *const *at)
{
    const int64_t bytes = (int64_t)ref_bytes(p->dtype);
    if (p->index_step != 0 || p->dst_step != bytes || p->src_step != bytes)
        return 0;
    int64_t from = row_index(p, at[0]);
    if ((uint64_t)from >= (uint64_t)p->size)
        return 0;
    ref_run_move(at[1], at[2] + from * p->stride, (size_t)(p->n * bytes));
    return p->n;
}

typedef struct {
    row_plan plan;
    const air_task *task;
} gather_args;

static void
gather_row(void *arg, char *const *at, int64_t n)
{
    gather_args *g = arg;
    g->plan.n = n;
    int64_t done = gather_whole(&g->plan, at);
    if (done == 0)
        done = gather_fast(&g->plan, at);
    gather_checked(&g->plan, at, done, g->task);
}

void
ref_gather_along(const ref_tensor *out, const ref_tensor *self,
                 const ref_tensor *index, int axis, const air_task *task)
{
    int across = row_axis(index);
    ref_tensor from = along(self, index, axis);
    ref_tensor rows = ref_drop(*index, across), to = ref_drop(*out, across);
    ref_tensor src = ref_drop(from, across);
    gather_args g = {.plan = {.size = ref_dim(self, axis),
                              .stride = ref_stride(self, axis),
                              .index_step = ref_stride(index, across),
                              .dst_step = ref_stride(out, across),
                              .src_step = ref_stride(&from, across),
                              .index_dtype = index->dtype,
                              .dtype = out->dtype},
                     .task = task};
    const int64_t steps[] = {g.plan.index_step, g.plan.dst_step,
                             g.plan.src_step};
    each_row((const ref_tensor *[]){&rows, &to, &src}, steps, 3,
             ref_dim(index, across), task, gather_row, &g);
}

/* gather(self, dim, index, sparse_grad) */
void
ref_gather(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task);
    ref_gather_along(&out, &self, &index,
                     ref_axis(ref_int(call, 1, 0), self.rank), task);
}

/* ---- scatter ------------------------------------------------------------- */

/* count: how many values went into the place so far, NULL: do not count. */
typedef struct {
    scatter_how how;
    int32_t *count; /* per element of out, row-major */
} scatter_rule;

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

typedef struct {
    row_plan plan;
    scatter_rule rule;
    const air_task *task;
    int from;                         /* dtype of the values: plan's, or a half
                                         that is widened to its f32 */
    int64_t bytes;                    /* of an element */
    int64_t length, steps[4];         /* of the indexed axis */
    int64_t count_stride, count_step; /* there, and along a row */
} scatter_args;

/* As gather_each, and gather_blocks; fn, size and dense are constants of each
 * call. */
static inline int64_t
scatter_each(const row_plan *plan, char *const *at, fold_fn *fn, int64_t size,
             bool dense)
{
    const row_plan p = *plan;
    const int64_t index_step = dense ? 8 : p.index_step;
    const int64_t dst_step = dense ? 0 : p.dst_step;
    const int64_t src_step = dense ? size : p.src_step;
    const char *index = at[0], *src = at[2];
    char *dst = at[1];
    int64_t i = 0;
    for (; dense && i + BLOCK <= p.n; i += BLOCK) {
        const int64_t *to = (const void *)index;
        if (!all_inside(to, p.size))
            break;
        for (int k = 0; k < BLOCK; k++)
            fn(dst + to[k] * size, src + k * size);
        index += BLOCK * 8;
        src += BLOCK * size;
    }
    for (; i < p.n; i++) {
        int64_t offset = row_offset(index, p.size, dense ? size : p.stride);
        if (offset == OUT_OF_RANGE)
            return i;
        fn(dst + offset, src);
        index += index_step;
        dst += dst_step;
        src += src_step;
    }
    return p.n;
}

typedef int64_t scatter_row_fn(const row_plan *p, char *const *at, bool dense);

#define ROW(name, size)                                                       \
    static int64_t row_##name(const row_plan *p, char *const *at, bool dense) \
    {                                                                         \
        return dense ? scatter_each(p, at, name, size, true)                  \
                     : scatter_each(p, at, name, size, false);                \
    }
#define ROWS(name, S, ...)          \
    ROW(add_##name, sizeof(S))      \
    ROW(multiply_##name, sizeof(S)) \
    ROW(greater_##name, sizeof(S))  \
    ROW(smaller_##name, sizeof(S))
#define PUT_ROWS(n) ROW(put_##n, n)
FOLD_DTYPES(ROWS)
PUT_DTYPES(PUT_ROWS)

/* NULL: there is none for the dtype */
static scatter_row_fn *
scatter_row_of(scatter_how how, int dtype)
{
#define FOLD_ROW(name, ...)                       \
    [AIR_##name] = {[ADD] = row_add_##name,       \
                    [MEAN] = row_add_##name,      \
                    [PROD] = row_multiply_##name, \
                    [AMAX] = row_greater_##name,  \
                    [AMIN] = row_smaller_##name},
    static scatter_row_fn *const folds[AIR_DTYPE_COUNT][AMIN + 1] = {
        FOLD_DTYPES(FOLD_ROW)};
#define PUT_ROW(n) [n] = row_put_##n,
    static scatter_row_fn *const puts[] = {PUT_DTYPES(PUT_ROW)};
    return how == PUT ? puts[ref_bytes(dtype)] : folds[dtype][how];
}

/* Dense rows, one onto the other. */
typedef void onto_fn(char *dst, const char *src, int64_t n);

#define ONTO(name, S)                                              \
    static void onto_##name(char *dst, const char *src, int64_t n) \
    {                                                              \
        S *restrict d = (void *)dst;                               \
        const S *restrict x = (const void *)src;                   \
        for (int64_t i = 0; i < n; i++)                            \
            name((char *)(d + i), (const char *)(x + i));          \
    }
#define ONTOS(name, S, ...)  \
    ONTO(multiply_##name, S) \
    ONTO(greater_##name, S)  \
    ONTO(smaller_##name, S)
FOLD_DTYPES(ONTOS)

static onto_fn *
onto_of(scatter_how how, int dtype)
{
#define FOLD_ONTO(name, ...)                       \
    [AIR_##name] = {[PROD] = onto_multiply_##name, \
                    [AMAX] = onto_greater_##name,  \
                    [AMIN] = onto_smaller_##name},
    static onto_fn *const folds[AIR_DTYPE_COUNT][AMIN + 1] = {
        FOLD_DTYPES(FOLD_ONTO)};
    return folds[dtype][how];
}

/* How many of the row are done. */
static int64_t
scatter_fast(const scatter_args *s, char *const *at)
{
    const row_plan *p = &s->plan;
    scatter_row_fn *row = scatter_row_of(s->rule.how, p->dtype);
    if (p->index_dtype != AIR_I64 || row == NULL)
        return 0;
    return row(p, at, row_is_dense(p, p->src_step, p->dst_step));
}

/* The values that go into each place. */
static void
count_row(const scatter_args *s, const char *index, char *count)
{
    const row_plan *p = &s->plan;
    const bool same = p->index_step == 0;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t to = row_index(p, index + i * p->index_step);
        if (!ref_inside(to, p->size, s->task))
            continue;
        int32_t *n = (void *)(count + to * s->count_stride + i * s->count_step);
        if (same && s->count_step == (int64_t)sizeof *n) {
            for (int64_t k = 0; k < p->n; k++)
                n[k]++;
            return;
        }
        ++*n;
    }
}

#define FILL(bytes, T)                                             \
    static void fill_##bytes(char *dst, const char *src, size_t n) \
    {                                                              \
        T *restrict to = (void *)dst;                              \
        T value;                                                   \
        memcpy(&value, src, bytes);                                \
        for (size_t i = 0; i < n; i++)                             \
            to[i] = value;                                         \
    }
FILL(1, uint8_t)
FILL(2, uint16_t)
FILL(4, uint32_t)
FILL(8, uint64_t)

/* A row of values, or of one, is put there: true, done. */
static bool
put_together(const row_plan *p, char *dst, const char *src)
{
    const size_t bytes = ref_bytes(p->dtype), n = (size_t)p->n;
    if (p->dst_step != (int64_t)bytes)
        return false;
    if (p->src_step == (int64_t)bytes) {
        memmove(dst, src, n * bytes);
        return true;
    }
    if (p->src_step != 0)
        return false;
    switch (bytes) {
    case 1: fill_1(dst, src, n); break;
    case 2: fill_2(dst, src, n); break;
    case 4: fill_4(dst, src, n); break;
    default: fill_8(dst, src, n);
    }
    return true;
}

/* All elements of the row have one index: true, done. */
static bool
scatter_together(const scatter_args *s, char *const *at)
{
    const row_plan *p = &s->plan;
    const int64_t bytes = (int64_t)ref_bytes(p->dtype);
    const scatter_how how = s->rule.how;
    onto_fn *onto = onto_of(how, p->dtype);
    if (p->n < 2 || p->index_step != 0)
        return false;
    int64_t to = row_index(p, at[0]);
    if (!ref_inside(to, p->size, s->task))
        return true;
    char *dst = at[1] + to * p->stride;
    if (how == PUT)
        return put_together(p, dst, at[2]);
    if (how == ADD || how == MEAN) {
        if (p->dst_step != bytes || p->src_step != bytes ||
            !ref_few_add(p->dtype, dst, at[2], p->n))
            ref_add_row(p->dtype, dst, p->dst_step, at[2], p->src_step, p->n);
    } else if (onto != NULL && p->dst_step == bytes && p->src_step == bytes)
        onto(dst, at[2], p->n);
    else
        return false;
    return true;
}

static void scatter_part(const scatter_args *s, char *const *at);

/* Halves onto f32, some at a time. */
static void
scatter_widened(const scatter_args *s, char *const *at)
{
    float wide[WIDE];
    scatter_args part = *s;
    row_plan *p = &part.plan;
    part.from = p->dtype;
    p->src_step = (int64_t)sizeof *wide;
    for (int64_t i = 0; i < s->plan.n; i += WIDE) {
        char *from = at[2] + i * s->plan.src_step;
        char *here[] = {at[0] + i * p->index_step, at[1] + i * p->dst_step,
                        (char *)wide, at[3] + i * s->count_step};
        p->n = s->plan.n - i < WIDE ? s->plan.n - i : WIDE;
        const bool dense = s->plan.src_step == 2;
        if (!dense || !ref_widen(s->from, wide, from, p->n))
            for (int64_t k = 0; k < p->n; k++)
                wide[k] = (float)ref_get(s->from, from + k * s->plan.src_step);
        scatter_part(&part, here);
    }
}

static void
scatter_part(const scatter_args *s, char *const *at)
{
    const row_plan *p = &s->plan;
    if (s->from != p->dtype) {
        scatter_widened(s, at);
        return;
    }
    if (s->rule.count != NULL)
        count_row(s, at[0], at[3]);
    if (scatter_together(s, at))
        return;
    for (int64_t i = scatter_fast(s, at); i < p->n; i++) {
        int64_t to = row_index(p, at[0] + i * p->index_step);
        if (ref_inside(to, p->size, s->task))
            fold(s->rule.how, p->dtype,
                 at[1] + i * p->dst_step + to * p->stride,
                 at[2] + i * p->src_step);
    }
}

/* n lines along the indexed axis, all at its first index; then the next. */
static void
scatter_lines(void *arg, char *const *at, int64_t n)
{
    scatter_args *s = arg;
    char *p[4] = {at[0], at[1], at[2], at[3]};
    s->plan.n = n;
    for (int64_t k = 0; k < s->length; k++) {
        scatter_part(s, p);
        p[0] += s->steps[0];
        p[2] += s->steps[2];
    }
}

/* One line: its elements are the row. */
static void
scatter_line(void *arg, char *const *at, int64_t n)
{
    scatter_args *s = arg;
    (void)n;
    s->plan.n = s->length;
    scatter_part(s, at);
}

static void
scatter_rows(scatter_args *s, const ref_tensor *t, const int64_t *steps,
             int axis, int across)
{
    static const int64_t none[4] = {0};
    const int64_t cols = ref_dim(&t[0], across);
    ref_tensor lines[4];
    const ref_tensor *all[] = {&lines[0], &lines[1], &lines[2], &lines[3]};
    for (int k = 0; k < 4; k++) {
        lines[k] = ref_drop(t[k], axis > across ? axis : across);
        if (axis != across)
            lines[k] = ref_drop(lines[k], axis > across ? across : axis);
    }
    if (axis == across)
        each_row(all, none, 4, 1, s->task, scatter_line, s);
    else
        each_row(all, steps, 4, cols, s->task, scatter_lines, s);
}

/* Threads share the lines along `axis`, so that every place has one writer,
 * the same in each call, which goes along the axis in order. Lines that lie
 * side by side are done together. src NULL: the number. */
static void
scatter_onto(const air_call *call, const air_task *task, ref_tensor out,
             const ref_tensor *src, double number, scatter_rule rule)
{
    ref_tensor index = ref_arg(call, 2, task), value = out;
    int axis = ref_axis(ref_int(call, 1, 0), out.rank);
    int across = row_axis(&index);
    int64_t bits = 0;
    if (src != NULL)
        value = *src;
    else {
        ref_put(out.dtype, &bits, number);
        value.data = (char *)&bits;
        memset(value.strides, 0, sizeof value.strides);
    }
    if (ref_numel(&index) == 0)
        return;
    ref_tensor counts = count_tensor(&out, rule.count);
    ref_tensor all[4] = {index, along(&out, &index, axis),
                         along(&value, &index, -1),
                         along(&counts, &index, axis)};
    scatter_args s = {.plan = {.size = ref_dim(&out, axis),
                               .stride = ref_stride(&out, axis),
                               .index_dtype = index.dtype,
                               .dtype = out.dtype},
                      .rule = rule,
                      .task = task,
                      .from = value.dtype,
                      .bytes = (int64_t)ref_bytes(out.dtype),
                      .length = ref_dim(&index, axis),
                      .count_stride = ref_stride(&counts, axis)};
    int64_t steps[4];
    for (int k = 0; k < 4; k++) {
        steps[k] = ref_stride(&all[k], across);
        s.steps[k] = across == axis ? 0 : ref_stride(&all[k], axis);
    }
    s.plan.index_step = steps[0];
    s.plan.dst_step = steps[1];
    s.plan.src_step = steps[2];
    s.count_step = steps[3];
    scatter_rows(&s, all, steps, axis, across);
}

/* scatter.src(self, dim, index, src) */
void
ref_scatter_src(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 3, task);
    ref_start(&out, &self, task);
    scatter_onto(call, task, out, &src, 0, (scatter_rule){PUT, NULL});
}

/* scatter.value(self, dim, index, value) */
void
ref_scatter_value(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_start(&out, &self, task);
    scatter_onto(call, task, out, NULL, ref_float(call, 3, 0),
                 (scatter_rule){PUT, NULL});
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

/* Sums and products of halves are kept in f32, as ATen keeps them: rounded at
 * each step, a sum of ones would end at 256. */
static bool
is_wide(scatter_how how, int dtype)
{
    return (dtype == AIR_BF16 || dtype == AIR_F16) &&
           (how == ADD || how == MEAN || how == PROD);
}

/* For each element of the result: its f32, and for a mean its count. */
static size_t
fold_size(const air_call *call, scatter_how how)
{
    const air_tensor *out = &call->outs[0];
    size_t bytes = is_wide(how, out->dtype) ? sizeof(float) : 0;
    bytes += how == MEAN ? sizeof(int32_t) : 0;
    for (int i = 0; i < out->rank; i++)
        bytes *= (size_t)out->dims[i];
    return bytes;
}

size_t
ref_scatter_add_size(const air_call *call, int threads)
{
    (void)threads;
    return fold_size(call, ADD);
}

size_t
ref_scatter_reduce_size(const air_call *call, int threads)
{
    (void)threads;
    return fold_size(call, find_how(ref_str(call, 4, "sum")));
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

static bool
is_dense(const ref_tensor *t)
{
    int64_t stride = (int64_t)ref_bytes(t->dtype);
    for (int i = t->rank - 1; i >= 0; stride *= t->dims[i--])
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
    return true;
}

/* `more`: what was there counts. Places that nothing went into stay. */
static void
divide_all(const ref_tensor *out, const int32_t *count, int more, int64_t begin,
           int64_t end)
{
    if (begin >= end)
        return;
    if (out->dtype == AIR_F32 && is_dense(out)) {
        float *restrict x = (void *)out->data;
        for (int64_t i = begin; i < end; i++)
            x[i] = (float)((double)x[i] / (count[i] > 0 ? count[i] + more : 1));
        return;
    }
    ref_walk w = ref_walk_begin(1, &out, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w))
        if (count[i] > 0)
            divide(out->dtype, w.p[0], count[i] + more);
}

/* What was in the places of the index does not count: they start at what
 * changes nothing, which of a largest and a smallest value is any of them. */
static void
scatter_forget(const air_call *call, const air_task *task,
               const ref_tensor *src, scatter_how how)
{
    const bool any = how == AMAX || how == AMIN;
    scatter_onto(call, task, ref_out(call, 0, task), any ? src : NULL,
                 how == PROD, (scatter_rule){PUT, NULL});
}

static void
scatter_mean(const air_call *call, const air_task *task, ref_tensor out,
             const ref_tensor *src, int32_t *count, bool include_self)
{
    int64_t begin, end;
    air_split(ref_numel(&out), task, &begin, &end);
    memset(count + begin, 0, (size_t)(end - begin) * sizeof *count);
    task->barrier(task);
    scatter_onto(call, task, out, src, 0, (scatter_rule){MEAN, count});
    task->barrier(task);
    divide_all(&out, count, include_self, begin, end);
}

/* src: into what the result starts as. */
static void
scatter_fold(const air_call *call, const air_task *task, const ref_tensor *src,
             scatter_how how, bool include_self)
{
    ref_tensor out = ref_out(call, 0, task), sums = out;
    const bool wide = is_wide(how, out.dtype);
    char *rest = task->workspace;
    if (wide) {
        sums = count_tensor(&out, (int32_t *)(void *)rest);
        sums.dtype = AIR_F32;
        rest += ref_numel(&out) * (int64_t)sizeof(float);
        task->barrier(task);
        ref_move(&sums, &out, task);
        task->barrier(task);
    }
    if (how == MEAN)
        scatter_mean(call, task, sums, src, (int32_t *)(void *)rest,
                     include_self);
    else
        scatter_onto(call, task, sums, src, 0, (scatter_rule){how, NULL});
    if (wide) {
        task->barrier(task);
        ref_move(&out, &sums, task);
    }
}

/* scatter_add(self, dim, index, src) */
void
ref_scatter_add(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 3, task);
    ref_start(&out, &self, task);
    scatter_fold(call, task, &src, ADD, true);
}

/* scatter_reduce.two(self, dim, index, src, reduce, include_self) */
void
ref_scatter_reduce(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 3, task);
    const scatter_how how = find_how(ref_str(call, 4, "sum"));
    const bool include_self = ref_int(call, 5, 1) != 0;
    ref_start(&out, &self, task);
    if (!include_self)
        scatter_forget(call, task, &src, how);
    scatter_fold(call, task, &src, how, include_self);
}
