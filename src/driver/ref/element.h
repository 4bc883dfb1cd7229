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

/* Normal halves: the exponent moves by 112 and 13 bits are rounded off; the
 * last place of subnormal ones is that of a sum with 0.5. Without branches, for
 * loops of vectors. */
static inline uint16_t
ref_to_f16(float f)
{
    const uint32_t u = ref_to_bits(f), x = u & 0x7fffffff;
    const uint32_t normal = ((x + 0xfff + (x >> 13 & 1)) >> 13) - (112u << 10);
    const uint32_t small =
        ref_to_bits(ref_from_bits(x) + 0.5f) - ref_to_bits(0.5f);
    uint32_t h = x < ref_to_bits(0x1p-14f) ? small : normal;
    h = x >= ref_to_bits(65520.0f) ? 0x7c00 : h;
    h = x > 0x7f800000 ? 0x7e00 : h; /* NaN */
    return (uint16_t)((u >> 16 & 0x8000) | h);
}

/* The bits of a half in the place of a float's are 2^112 too small. */
static inline float
ref_of_f16(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float x = (h & 0x7c00) == 0x7c00 ? ref_from_bits(bits | 0x7f800000u)
                                     : ref_from_bits(bits) * 0x1p112f;
    return (h & 0x8000) != 0 ? -x : x;
}

/* n side by side, without asking each for its dtype. */
#define REF_HALVES(name, of, to)                                               \
    static inline void ref_widen_##name(                                       \
        float *restrict dst, const uint16_t *restrict src, int64_t n)          \
    {                                                                          \
        for (int64_t i = 0; i < n; i++)                                        \
            dst[i] = of(src[i]);                                               \
    }                                                                          \
    static inline void ref_narrow_##name(uint16_t *restrict dst,               \
                                         const float *restrict src, int64_t n) \
    {                                                                          \
        for (int64_t i = 0; i < n; i++)                                        \
            dst[i] = to(src[i]);                                               \
    }
REF_HALVES(bf16, ref_of_bf16, ref_to_bf16)
REF_HALVES(f16, ref_of_f16, ref_to_f16)

/* false: dtype is no half, nothing is done. */
static inline bool
ref_widen(int dtype, float *restrict dst, const void *src, int64_t n)
{
    if (dtype == AIR_BF16)
        ref_widen_bf16(dst, src, n);
    else if (dtype == AIR_F16)
        ref_widen_f16(dst, src, n);
    else
        return false;
    return true;
}

static inline bool
ref_narrow(int dtype, void *dst, const float *restrict src, int64_t n)
{
    if (dtype == AIR_BF16)
        ref_narrow_bf16(dst, src, n);
    else if (dtype == AIR_F16)
        ref_narrow_f16(dst, src, n);
    else
        return false;
    return true;
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
