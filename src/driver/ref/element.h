/* element.h: one element of any dtype, read, written and converted. */
#ifndef REF_ELEMENT_H
#define REF_ELEMENT_H

#include <math.h>
#include <string.h>

#include "air_kernel.h"

static inline size_t
ref_bytes(int dtype)
{
    static const uint8_t bytes[] = {
        0,
#define DTYPE(id, text, size, ...) size,
#include "air_dtypes.def"
#undef DTYPE
    };
    return bytes[dtype];
}

static inline bool
ref_is_float(int dtype)
{
    return dtype >= AIR_F32 && dtype <= AIR_F16;
}

static inline float
ref_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t
ref_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline uint16_t
ref_to_bf16(float f)
{
    uint32_t u = ref_to_bits(f);
    if (isnan(f))
        return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float
ref_of_bf16(uint16_t h)
{
    return ref_from_bits((uint32_t)h << 16);
}

/* By way of scaled arithmetic: the unit in the last place of a half at |f| is
 * 2^(e - 10), and never below 2^-24. */
static inline uint16_t
ref_to_f16(float f)
{
    uint16_t sign = (uint16_t)(ref_to_bits(f) >> 16 & 0x8000);
    double x = fabs((double)f);
    int e;
    if (isnan(f))
        return (uint16_t)(sign | 0x7e00);
    if (x >= 65520.0)
        return (uint16_t)(sign | 0x7c00);
    if (x < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)rint(x * 0x1p24));
    (void)frexp(x, &e);                     /* x = m * 2^e, m in [0.5, 1) */
    int bits = (int)rint(ldexp(x, 11 - e)); /* 1024 .. 2048 */
    return (uint16_t)(sign | (bits - 1024 + ((e + 14) << 10)));
}

static inline float
ref_of_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float x = e == 0    ? ldexpf((float)m, -24)
              : e == 31 ? (m != 0 ? NAN : INFINITY)
                        : ldexpf((float)(m + 1024), e - 25);
    return (h & 0x8000) != 0 ? -x : x;
}

/* Towards zero; INT64_MIN where it does not fit, as the CPU does. */
static inline int64_t
ref_to_int(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

#define REF_INT_DTYPES(X) \
    X(AIR_I8, int8_t)     \
    X(AIR_U8, uint8_t)    \
    X(AIR_I16, int16_t) X(AIR_I32, int32_t) X(AIR_I64, int64_t)

static inline int64_t
ref_get_int(int dtype, const void *p)
{
    switch (dtype) {
#define X(id, T)                 \
    case id: {                   \
        T v;                     \
        memcpy(&v, p, sizeof v); \
        return v;                \
    }
        REF_INT_DTYPES(X)
#undef X
    default: return *(const uint8_t *)p != 0;
    }
}

static inline double
ref_get(int dtype, const void *p)
{
    uint16_t h;
    float f;
    double d;
    switch (dtype) {
    case AIR_F32: memcpy(&f, p, sizeof f); return (double)f;
    case AIR_F64: memcpy(&d, p, sizeof d); return d;
    case AIR_BF16: memcpy(&h, p, sizeof h); return (double)ref_of_bf16(h);
    case AIR_F16: memcpy(&h, p, sizeof h); return (double)ref_of_f16(h);
    default: return (double)ref_get_int(dtype, p);
    }
}

static inline void
ref_put_float(int dtype, void *p, double v)
{
    float f = (float)v;
    uint16_t h;
    switch (dtype) {
    case AIR_F32: memcpy(p, &f, sizeof f); break;
    case AIR_F64: memcpy(p, &v, sizeof v); break;
    case AIR_BF16:
        h = ref_to_bf16(f);
        memcpy(p, &h, sizeof h);
        break;
    default:
        h = ref_to_f16(f);
        memcpy(p, &h, sizeof h);
        break;
    }
}

/* Wraps, except bool: 0 or 1. */
static inline void
ref_put_int(int dtype, void *p, int64_t v)
{
    uint8_t b = v != 0;
    float f = (float)v;
    switch (dtype) {
#define X(id, T)                 \
    case id: {                   \
        T t = (T)v;              \
        memcpy(p, &t, sizeof t); \
        break;                   \
    }
        REF_INT_DTYPES(X)
#undef X
    case AIR_BOOL: memcpy(p, &b, 1); break;
    case AIR_F64: ref_put_float(AIR_F64, p, (double)v); break;
    default: ref_put_float(dtype, p, (double)f); break;
    }
}

static inline void
ref_put(int dtype, void *p, double v)
{
    if (ref_is_float(dtype))
        ref_put_float(dtype, p, v);
    else
        ref_put_int(dtype, p, dtype == AIR_BOOL ? v != 0.0 : ref_to_int(v));
}

/* *dst = *src, converted. */
static inline void
ref_convert(int dst_dtype, void *dst, int src_dtype, const void *src)
{
    if (ref_is_float(src_dtype))
        ref_put(dst_dtype, dst, ref_get(src_dtype, src));
    else
        ref_put_int(dst_dtype, dst, ref_get_int(src_dtype, src));
}

static inline void
ref_copy(void *dst, const void *src, size_t bytes)
{
    switch (bytes) {
    case 1: memcpy(dst, src, 1); break;
    case 2: memcpy(dst, src, 2); break;
    case 4: memcpy(dst, src, 4); break;
    default: memcpy(dst, src, 8); break;
    }
}

#endif
