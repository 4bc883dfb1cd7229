/* kernels_search.c: where values stand in sorted sequences, how many fall into
 * each bin, and gradients of overlapping windows. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* ---- sorted sequences ---------------------------------------------------- */

typedef struct {
    int dtype;
    int64_t n, stride, order_stride; /* of a sequence and what sorts it */
    bool right, floats;
} sequence;

typedef union {
    double f;
    int64_t i;
} number;

static number
number_at(const sequence *s, const char *row, const char *order, int64_t at)
{
    number x;
    if (order != NULL)
        memcpy(&at, order + at * s->order_stride, sizeof at);
    const char *p = row + at * s->stride;
    if (s->floats)
        x.f = ref_get(s->dtype, p);
    else
        x.i = ref_get_int(s->dtype, p);
    return x;
}

/* Does `x` stand left of what the value goes in front of? NaN is above all. */
static bool
stands_left(const sequence *s, number x, number value)
{
    if (s->floats)
        return s->right ? !(x.f > value.f) : !(x.f >= value.f);
    return s->right ? x.i <= value.i : x.i < value.i;
}

static int64_t
search(const sequence *s, const char *row, const char *order, number value)
{
    int64_t low = 0, high = s->n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (stands_left(s, number_at(s, row, order, mid), value))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

enum { BLOCK = 16 }; /* values looked for at once: they wait for no other */

/* Where values stand in numbers side by side. */
typedef void search_fn(const sequence *s, const char *row, const char *values,
                       int64_t step, int n, int64_t *at);

#define SEARCH(name, T, compare)                                              \
    static inline void search_##name(const sequence *s, const char *row,      \
                                     const char *values, int64_t step, int n, \
                                     int64_t *at)                             \
    {                                                                         \
        T value[BLOCK], x;                                                    \
        for (int k = 0; k < n; k++) {                                         \
            memcpy(&value[k], values + k * step, sizeof x);                   \
            at[k] = 0;                                                        \
        }                                                                     \
        for (int64_t left = s->n, half; left > 0; left -= half) {             \
            half = left > 1 ? left / 2 : 1;                                   \
            for (int k = 0; k < n; k++) {                                     \
                memcpy(&x, row + (at[k] + half - 1) * (int64_t)sizeof x,      \
                       sizeof x);                                             \
                at[k] += !(x compare value[k]) ? half : 0;                    \
            }                                                                 \
        }                                                                     \
    }
#define SEARCH_DTYPES(X) \
    X(F32, float) X(F64, double) X(I32, int32_t) X(I64, int64_t)
#define SEARCHES(name, T)      \
    SEARCH(left_##name, T, >=) \
    SEARCH(right_##name, T, >)
SEARCH_DTYPES(SEARCHES)

/* NULL: none for the sequence */
static search_fn *
search_of(const sequence *s, const char *order)
{
#define BOTH(name, T) [AIR_##name] = {search_left_##name, search_right_##name},
    static search_fn *const all[AIR_DTYPE_COUNT][2] = {SEARCH_DTYPES(BOTH)};
    const bool dense = s->stride == (int64_t)ref_bytes(s->dtype);
    return dense && order == NULL ? all[s->dtype][s->right] : NULL;
}

/* Up to BLOCK values of one row. */
static void
search_block(const sequence *s, const char *row, const char *order,
             const char *values, int64_t step, int n, int64_t *at)
{
    search_fn *fast = search_of(s, order);
    if (fast != NULL) {
        fast(s, row, values, step, n, at);
        return;
    }
    for (int k = 0; k < n; k++) {
        number x;
        if (s->floats)
            x.f = ref_get(s->dtype, values + k * step);
        else
            x.i = ref_get_int(s->dtype, values + k * step);
        at[k] = search(s, row, order, x);
    }
}

/* t without its last axis, over the sizes of `rows`; one row serves all. */
static ref_tensor
rows_of(const ref_tensor *t, const ref_tensor *rows)
{
    ref_tensor out = *rows;
    out.data = t->data;
    out.dtype = t->dtype;
    for (int i = 0; i < rows->rank; i++)
        out.strides[i] = t->rank > 1 ? t->strides[i] : 0;
    return out;
}

/* order: absent: the sequence is sorted as it is */
static sequence
make_sequence(const ref_tensor *seq, const ref_tensor *order, bool right)
{
    int last = seq->rank - 1;
    return (sequence){.dtype = seq->dtype,
                      .n = seq->dims[last],
                      .stride = seq->strides[last],
                      .order_stride = order->data ? order->strides[last] : 0,
                      .right = right,
                      .floats = ref_is_float(seq->dtype)};
}

static void
search_all(const ref_tensor *seq, const ref_tensor *order,
           const ref_tensor *values, const ref_tensor *out, bool right,
           const air_task *task)
{
    sequence s = make_sequence(seq, order, right);
    int axis = values->rank > 0 ? values->rank - 1 : 0;
    int64_t cols = ref_dim(values, axis), begin, end;
    ref_tensor to = ref_drop(*out, axis), from = ref_drop(*values, axis);
    ref_tensor rows = rows_of(seq, &to), by = rows_of(order, &to);
    const ref_tensor *all[] = {&to, &from, &rows, &by};
    air_split(ref_numel(values), task, &begin, &end);
    if (begin >= end)
        return;
    ref_walk w = ref_walk_begin(order->data ? 4 : 3, all, begin / cols);
    const int64_t step = ref_stride(values, axis), put = ref_stride(out, axis);
    for (int64_t i = begin, col = begin % cols; i < end;) {
        int64_t at[BLOCK], left = end - i < cols - col ? end - i : cols - col;
        const int n = left < BLOCK ? (int)left : BLOCK;
        search_block(&s, w.p[2], order->data ? w.p[3] : NULL,
                     w.p[1] + col * step, step, n, at);
        for (int k = 0; k < n; k++)
            ref_put_int(out->dtype, w.p[0] + (col + k) * put, at[k]);
        i += n;
        col += n;
        if (col == cols) {
            ref_walk_next(&w);
            col = 0;
        }
    }
}

/* searchsorted.Tensor(sequence, self, *, out_int32, right, side, sorter) */
void
ref_searchsorted(const air_call *call, const air_task *task)
{
    ref_tensor seq = ref_arg(call, 0, task), values = ref_arg(call, 1, task);
    ref_tensor order = ref_arg(call, 5, task), out = ref_out(call, 0, task);
    bool right = ref_int(call, 3, 0) != 0 ||
                 strcmp(ref_str(call, 4, "left"), "right") == 0;
    search_all(&seq, &order, &values, &out, right, task);
}

/* bucketize.Tensor(self, boundaries, *, out_int32, right) */
void
ref_bucketize(const air_call *call, const air_task *task)
{
    ref_tensor seq = ref_arg(call, 1, task), values = ref_arg(call, 0, task);
    ref_tensor none = {.data = NULL}, out = ref_out(call, 0, task);
    search_all(&seq, &none, &values, &out, ref_int(call, 3, 0) != 0, task);
}

/* A number among integers counts as f32 if it is a float, as ATen promotes. */
static void
search_number(const air_call *call, const air_task *task, int value,
              const ref_tensor *seq, const ref_tensor *order, bool right)
{
    ref_tensor out = ref_out(call, 0, task);
    bool real = call->args[value].kind == AIR_ARG_FLOAT;
    sequence s = make_sequence(seq, order, right);
    number x;
    char rounded[8];
    s.floats = s.floats || real;
    if (task->id != 0)
        return;
    if (s.floats) {
        int dtype = ref_is_float(seq->dtype) ? seq->dtype : AIR_F32;
        ref_put(dtype, rounded, ref_float(call, value, 0));
        x.f = ref_get(dtype, rounded);
    } else {
        x.i = ref_int(call, value, 0);
    }
    ref_put_int(out.dtype, out.data, search(&s, seq->data, order->data, x));
}

/* searchsorted.Scalar(sequence, self, *, out_int32, right, side, sorter) */
void
ref_searchsorted_number(const air_call *call, const air_task *task)
{
    ref_tensor seq = ref_arg(call, 0, task), order = ref_arg(call, 5, task);
    bool right = ref_int(call, 3, 0) != 0 ||
                 strcmp(ref_str(call, 4, "left"), "right") == 0;
    search_number(call, task, 1, &seq, &order, right);
}

/* bucketize.Scalar(self, boundaries, *, out_int32, right) */
void
ref_bucketize_number(const air_call *call, const air_task *task)
{
    ref_tensor seq = ref_arg(call, 1, task), none = {.data = NULL};
    search_number(call, task, 0, &seq, &none, ref_int(call, 3, 0) != 0);
}

/* ---- bins ---------------------------------------------------------------- */

/* Per thread: its least and largest element, then its counts. */
typedef struct {
    double low, high;
} range;

static size_t
bins_bytes(const air_call *call)
{
    return sizeof(range) + (size_t)ref_int(call, 1, 1) * sizeof(int64_t);
}

size_t
ref_histc_size(const air_call *call, int threads)
{
    return bins_bytes(call) * (size_t)threads;
}

static range *
bins_at(const air_call *call, const air_task *task, int thread)
{
    return (void *)((char *)task->workspace +
                    (size_t)thread * bins_bytes(call));
}

/* The range given, or where both ends are equal, that of the elements; and
 * where that is empty too, one around it. */
static range
range_of(const air_call *call, const air_task *task, const ref_tensor *self)
{
    range r = {ref_float(call, 2, 0), ref_float(call, 3, 0)}, *mine;
    const ref_tensor *one[] = {self};
    int64_t begin, end;
    if (r.low != r.high)
        return r;
    if (ref_numel(self) == 0)
        return (range){r.low - 1, r.high + 1};
    air_split(ref_numel(self), task, &begin, &end);
    mine = bins_at(call, task, task->id);
    *mine = (range){(double)INFINITY, -(double)INFINITY};
    ref_walk w = ref_walk_begin(1, one, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
        double x = ref_get(self->dtype, w.p[0]);
        mine->low = x < mine->low ? x : mine->low;
        mine->high = x > mine->high ? x : mine->high;
    }
    task->barrier(task);
    r = *bins_at(call, task, 0);
    for (int i = 1; i < task->count; i++) {
        const range *other = bins_at(call, task, i);
        r.low = other->low < r.low ? other->low : r.low;
        r.high = other->high > r.high ? other->high : r.high;
    }
    if (r.low == r.high) {
        r.low--;
        r.high++;
    }
    return r;
}

/* In the arithmetic of the dtype, as ATen's CPU kernel. */
static int64_t
bin_of(int dtype, double x, const range *r, int64_t bins)
{
    int64_t at =
        dtype == AIR_F64
            ? (int64_t)((x - r->low) * (double)bins / (r->high - r->low))
            : (int64_t)(((float)x - (float)r->low) * (float)bins /
                        ((float)r->high - (float)r->low));
    return at < 0 ? 0 : at >= bins ? bins - 1 : at;
}

/* histc(self, bins, min, max) */
void
ref_histc(const air_call *call, const air_task *task)
{
    ref_tensor self = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    const ref_tensor *one[] = {&self};
    int64_t bins = ref_int(call, 1, 1), begin, end;
    range r = range_of(call, task, &self);
    int64_t *count = (int64_t *)(void *)(bins_at(call, task, task->id) + 1);
    memset(count, 0, (size_t)bins * sizeof *count);
    air_split(ref_numel(&self), task, &begin, &end);
    if (begin < end) {
        ref_walk w = ref_walk_begin(1, one, begin);
        for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
            double x = ref_get(self.dtype, w.p[0]);
            if (x >= r.low && x <= r.high)
                count[bin_of(self.dtype, x, &r, bins)]++;
        }
    }
    task->barrier(task);
    for (int64_t k = 0; task->id == 0 && k < bins; k++) {
        int64_t sum = 0;
        for (int i = 0; i < task->count; i++)
            sum += ((int64_t *)(void *)(bins_at(call, task, i) + 1))[k];
        ref_put(out.dtype, out.data + k * out.strides[0], (double)sum);
    }
}

/* ---- windows of unfold --------------------------------------------------- */

/* unfold_backward(grad, sizes, dim, size, step): each element of the result is
 * the sum of the windows that it was in */
void
ref_unfold_backward(const air_call *call, const air_task *task)
{
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    int axis = ref_axis(ref_int(call, 2, 0), out.rank);
    int64_t size = ref_int(call, 3, 1), step = ref_int(call, 4, 1), begin, end;
    int64_t windows = grad.dims[axis], inside = grad.strides[grad.rank - 1];
    ref_tensor from = grad; /* at window 0, place 0, for each element of out */
    from.rank = out.rank;
    from.strides[axis] = 0;
    const ref_tensor *both[] = {&out, &from};
    air_split(ref_numel(&out), task, &begin, &end);
    if (begin >= end)
        return;
    ref_walk w = ref_walk_begin(2, both, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
        int64_t at = w.at[axis], last = at / step;
        int64_t first = at < size ? 0 : (at - size) / step + 1;
        double sum = 0;
        last = last < windows ? last : windows - 1;
        for (int64_t k = first; k <= last; k++)
            sum += ref_get(grad.dtype, w.p[1] + k * grad.strides[axis] +
                                           (at - k * step) * inside);
        ref_put(out.dtype, w.p[0], sum);
    }
}
