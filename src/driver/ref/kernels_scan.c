/* kernels_scan.c: running folds along one axis. */
#include "driver/ref/kernels.h"
#include "driver/ref/walk.h"

/* ATen keeps f32 sums in double and 16-bit ones in float. */
static double
round_state(int dtype, double x)
{
    return dtype == AIR_BF16 || dtype == AIR_F16 ? (double)(float)x : x;
}

/* The common case: one dtype, dense rows. */
#define SCAN_DENSE(name, T, ACC, of, to)                                  \
    static void name(char *dst, const char *src, int64_t n, bool product) \
    {                                                                     \
        ACC acc = product;                                                \
        for (int64_t i = 0; i < n; i++) {                                 \
            T x;                                                          \
            memcpy(&x, src + i * (int64_t)sizeof x, sizeof x);            \
            acc = product ? acc * (ACC)of(x) : acc + (ACC)of(x);          \
            x = to(acc);                                                  \
            memcpy(dst + i * (int64_t)sizeof x, &x, sizeof x);            \
        }                                                                 \
    }
SCAN_DENSE(scan_dense_f32, float, double, , (float))
SCAN_DENSE(scan_dense_i64, uint64_t, uint64_t, , )
SCAN_DENSE(scan_dense_bf16, uint16_t, float, ref_of_bf16, ref_to_bf16)
SCAN_DENSE(scan_dense_f16, uint16_t, float, ref_of_f16, ref_to_f16)

/* False: not that case. */
static bool
scan_dense(const ref_tensor *out, const ref_tensor *self, int axis, char *dst,
           const char *src, bool product)
{
    int64_t bytes = (int64_t)ref_bytes(out->dtype);
    int64_t n = ref_dim(out, axis);
    if (out->dtype != self->dtype || ref_stride(out, axis) != bytes ||
        ref_stride(self, axis) != bytes)
        return false;
    switch (out->dtype) {
    case AIR_F32: scan_dense_f32(dst, src, n, product); return true;
    case AIR_I64: scan_dense_i64(dst, src, n, product); return true;
    case AIR_BF16: scan_dense_bf16(dst, src, n, product); return true;
    case AIR_F16: scan_dense_f16(dst, src, n, product); return true;
    default: return false;
    }
}

static void
scan_float(const ref_tensor *out, const ref_tensor *self, int axis, char *dst,
           const char *src, bool product)
{
    double acc = product;
    for (int64_t i = 0; i < ref_dim(out, axis); i++) {
        double x;
        ref_convert(out->dtype, dst, self->dtype, src);
        x = ref_get(out->dtype, dst);
        acc = round_state(out->dtype, product ? acc * x : acc + x);
        ref_put(out->dtype, dst, acc);
        dst += ref_stride(out, axis);
        src += ref_stride(self, axis);
    }
}

static void
scan_int(const ref_tensor *out, const ref_tensor *self, int axis, char *dst,
         const char *src, bool product)
{
    int64_t acc = product;
    for (int64_t i = 0; i < ref_dim(out, axis); i++) {
        int64_t x;
        ref_convert(out->dtype, dst, self->dtype, src);
        x = ref_get_int(out->dtype, dst);
        if (product)
            (void)__builtin_mul_overflow(acc, x, &acc);
        else
            (void)__builtin_add_overflow(acc, x, &acc);
        ref_put_int(out->dtype, dst, acc);
        dst += ref_stride(out, axis);
        src += ref_stride(self, axis);
    }
}

static void
scan(const air_call *call, const air_task *task, bool product)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    ref_tensor to = ref_drop(out, axis), from = ref_drop(self, axis);
    const ref_tensor *both[] = {&to, &from};
    int64_t begin, end;
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(2, both, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w))
        if (!scan_dense(&out, &self, axis, w.p[0], w.p[1], product))
            (ref_is_float(out.dtype) ? scan_float : scan_int)(
                &out, &self, axis, w.p[0], w.p[1], product);
}

/* cumsum(self, dim, *, dtype) */
void
ref_cumsum(const air_call *call, const air_task *task)
{
    scan(call, task, false);
}

/* cumprod(self, dim, *, dtype) */
void
ref_cumprod(const air_call *call, const air_task *task)
{
    scan(call, task, true);
}

/* Does x take the place of the best so far? Later equal values do, and NaN. */
static bool
takes_over(int dtype, const char *x, const char *best, bool max)
{
    if (ref_is_float(dtype)) {
        double a = ref_get(dtype, x), b = ref_get(dtype, best);
        return isnan(a) || (!isnan(b) && (max ? a >= b : a <= b));
    }
    int64_t a = ref_get_int(dtype, x), b = ref_get_int(dtype, best);
    return max ? a >= b : a <= b;
}

/* Dense rows of the common dtypes. */
#define BEST_DENSE(name, T, get)                                          \
    static void name(char *dst, char *at, const char *src, int64_t n,     \
                     bool max)                                            \
    {                                                                     \
        T best, x;                                                        \
        int64_t where = 0;                                                \
        memcpy(&best, src, sizeof best);                                  \
        for (int64_t k = 0; k < n; k++) {                                 \
            memcpy(&x, src + k * (int64_t)sizeof x, sizeof x);            \
            if ((max ? get(x) >= get(best) : get(x) <= get(best)) ||      \
                get(x) != get(x)) {                                       \
                best = x;                                                 \
                where = k;                                                \
            }                                                             \
            memcpy(dst + k * (int64_t)sizeof x, &best, sizeof x);         \
            memcpy(at + k * (int64_t)sizeof where, &where, sizeof where); \
        }                                                                 \
    }
BEST_DENSE(best_dense_f32, float, )
BEST_DENSE(best_dense_i64, int64_t, )
BEST_DENSE(best_dense_bf16, uint16_t, ref_of_bf16)
BEST_DENSE(best_dense_f16, uint16_t, ref_of_f16)

/* False: not such a row. */
static bool
best_dense(const ref_tensor *values, const ref_tensor *at,
           const ref_tensor *self, int axis, char *const *p, bool max)
{
    int64_t bytes = (int64_t)ref_bytes(self->dtype), n = ref_dim(self, axis);
    if (ref_stride(values, axis) != bytes || ref_stride(self, axis) != bytes ||
        ref_stride(at, axis) != (int64_t)sizeof(int64_t) || n == 0)
        return false;
    switch (self->dtype) {
    case AIR_F32: best_dense_f32(p[0], p[2], p[1], n, max); return true;
    case AIR_I64: best_dense_i64(p[0], p[2], p[1], n, max); return true;
    case AIR_BF16: best_dense_bf16(p[0], p[2], p[1], n, max); return true;
    case AIR_F16: best_dense_f16(p[0], p[2], p[1], n, max); return true;
    default: return false;
    }
}

static void
scan_best(const air_call *call, const air_task *task, bool max)
{
    ref_tensor values = ref_out(call, 0, task), at = ref_out(call, 1, task);
    ref_tensor self = ref_arg(call, 0, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    size_t bytes = ref_bytes(self.dtype);
    ref_tensor to = ref_drop(values, axis), from = ref_drop(self, axis);
    ref_tensor index = ref_drop(at, axis);
    const ref_tensor *all[] = {&to, &from, &index};
    int64_t begin, end;
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
        const char *best = w.p[1];
        int64_t where = 0;
        if (best_dense(&values, &at, &self, axis, w.p, max))
            continue;
        for (int64_t k = 0; k < ref_dim(&self, axis); k++) {
            const char *x = w.p[1] + k * ref_stride(&self, axis);
            if (takes_over(self.dtype, x, best, max)) {
                best = x;
                where = k;
            }
            ref_copy(w.p[0] + k * ref_stride(&values, axis), best, bytes);
            ref_put_int(at.dtype, w.p[2] + k * ref_stride(&at, axis), where);
        }
    }
}

/* cummax(self, dim) */
void
ref_cummax(const air_call *call, const air_task *task)
{
    scan_best(call, task, true);
}

/* cummin(self, dim) */
void
ref_cummin(const air_call *call, const air_task *task)
{
    scan_best(call, task, false);
}

/* logcumsumexp(self, dim) */
void
ref_logcumsumexp(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    ref_tensor to = ref_drop(out, axis), from = ref_drop(self, axis);
    const ref_tensor *both[] = {&to, &from};
    int64_t begin, end;
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(2, both, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
        double acc = -(double)INFINITY;
        for (int64_t k = 0; k < ref_dim(&self, axis); k++) {
            double x =
                ref_get(self.dtype, w.p[1] + k * ref_stride(&self, axis));
            double high = x > acc ? x : acc, low = x > acc ? acc : x;
            acc = isnan(x) || isnan(acc) ? (double)NAN
                  : !isfinite(high) && low == high
                      ? high
                      : high + log1p(exp(low - high));
            ref_put(out.dtype, w.p[0] + k * ref_stride(&out, axis), acc);
        }
    }
}
