/* fold.h: one value into its place, put there or folded with what is there. */
#ifndef REF_FOLD_H
#define REF_FOLD_H

#include "driver/ref/walk.h"

typedef enum {
    PUT,
    ADD,
    PROD,
    MEAN, /* adds; divided in the end */
    AMAX,
    AMIN
} scatter_how;

static inline double
fold_float(scatter_how how, double a, double b)
{
    switch (how) {
    case PROD: return a * b;
    case AMAX: return b > a || isnan(b) ? b : a;
    case AMIN: return b < a || isnan(b) ? b : a;
    default: return a + b;
    }
}

static inline int64_t
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

static inline void
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

/* One value into its place; as `fold`, of one dtype. */
typedef void fold_fn(char *dst, const char *src);

#define KEEP(x)          (x)
#define REAL(op, a, b)   ((a)op(b))
#define WHOLE(op, a, b)  (int64_t)((uint64_t)(a)op(uint64_t)(b)) /* wraps */
#define BETTER(op, a, b) ((b)op(a) || (b) != (b) ? (b) : (a))
#define FOLD(name, S, T, of, to, value)                 \
    static inline void name(char *dst, const char *src) \
    {                                                   \
        S x, y;                                         \
        memcpy(&x, dst, sizeof x);                      \
        memcpy(&y, src, sizeof y);                      \
        const T a = of(x), b = of(y);                   \
        x = (S)to(value);                               \
        memcpy(dst, &x, sizeof x);                      \
    }
#define FOLDS(name, S, T, of, to, kind)                 \
    FOLD(add_##name, S, T, of, to, kind(+, a, b))       \
    FOLD(multiply_##name, S, T, of, to, kind(*, a, b))  \
    FOLD(greater_##name, S, T, of, to, BETTER(>, a, b)) \
    FOLD(smaller_##name, S, T, of, to, BETTER(<, a, b))
#define FOLD_DTYPES(X)                                       \
    X(F32, float, float, KEEP, KEEP, REAL)                   \
    X(F64, double, double, KEEP, KEEP, REAL)                 \
    X(BF16, uint16_t, float, ref_of_bf16, ref_to_bf16, REAL) \
    X(F16, uint16_t, float, ref_of_f16, ref_to_f16, REAL)    \
    X(U8, uint8_t, int64_t, KEEP, KEEP, WHOLE)               \
    X(I32, int32_t, int64_t, KEEP, KEEP, WHOLE)              \
    X(I64, int64_t, int64_t, KEEP, KEEP, WHOLE)
FOLD_DTYPES(FOLDS)

#define PUT_DTYPES(X) X(1) X(2) X(4) X(8)
#define PUTS(n)                                            \
    static inline void put_##n(char *dst, const char *src) \
    {                                                      \
        memcpy(dst, src, n);                               \
    }
PUT_DTYPES(PUTS)

#endif
