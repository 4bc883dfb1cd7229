/* tile_float.h: the primitives on float that C has no operator for, and the
 * 16-bit formats. Written so that gcc turns each into vector code. */
#ifndef CPU_TILE_FLOAT_H
#define CPU_TILE_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t
tile_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float
tile_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* As cvttps2dq and cvtps2dq on an integral value: INT32_MIN out of range. */
static inline int32_t
tile_int(float a)
{
    return a >= -0x1p31f && a < 0x1p31f ? (int32_t)a : INT32_MIN;
}

/* a * 2^b in two steps, of which only the last can round: right for
 * 0.5 <= |a| <= 2 and integral -252 <= b <= 254, and NaN for a NaN a. */
static inline float
tile_scalef(float a, float b)
{
    int32_t n = tile_int(b);
    int32_t half = n >> 1;
    uint32_t one = ((uint32_t)half + 127) << 23;
    uint32_t two = ((uint32_t)n - (uint32_t)half + 127) << 23;
    return a * tile_from_bits(one) * tile_from_bits(two);
}

static inline float
tile_scalen(float a, float b)
{
    return tile_from_bits(tile_bits(a) + ((uint32_t)tile_int(b) << 23));
}

static inline float
tile_logb(float a)
{
    float t = a < 0x1p-126f ? a * 0x1p24f : a;
    float e = (float)(int32_t)(tile_bits(t) >> 23 & 255);
    return e - (a < 0x1p-126f ? 151.0f : 127.0f);
}

static inline float
tile_mant(float a)
{
    float t = a < 0x1p-126f ? a * 0x1p24f : a;
    return tile_from_bits((tile_bits(t) & 0x7fffff) | 0x3f800000);
}

static inline uint16_t
tile_to_bf16(float a)
{
    uint32_t u = tile_bits(a);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)(a != a ? 0x7fc0 : r);
}

static inline float
tile_of_bf16(uint16_t h)
{
    return tile_from_bits((uint32_t)h << 16);
}

static inline float
tile_round_bf16(float a)
{
    uint32_t u = tile_bits(a);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
    return tile_from_bits(a != a ? 0x7fc00000 : r);
}

/* Ties to even; 65520 and more is infinity, NaN stays NaN. */
static inline uint16_t
tile_to_f16(float a)
{
    uint32_t u = tile_bits(a), x = u & 0x7fffffff;
    /* adding 0.5 lets the adder round to multiples of 2^-24 */
    uint32_t small = tile_bits(tile_from_bits(x) + 0.5f) - 0x3f000000;
    uint32_t normal = (x - 0x38000000 + 0xfff + (x >> 13 & 1)) >> 13;
    uint32_t r = x < 0x38800000 ? small : normal;
    r = x >= 0x477ff000 ? 0x7c00 : r;
    r = x > 0x7f800000 ? 0x7e00 : r;
    return (uint16_t)(r | (u >> 16 & 0x8000));
}

static inline float
tile_of_f16(uint16_t h)
{
    uint32_t x = (uint32_t)(h & 0x7fff) << 13;
    uint32_t r = tile_bits(tile_from_bits(x) * 0x1p112f);
    r = x >= 0x0f800000 ? r | 0x7f800000 : r;
    return tile_from_bits(r | (uint32_t)(h & 0x8000) << 16);
}

static inline float
tile_round_f16(float a)
{
    return tile_of_f16(tile_to_f16(a));
}

/* Where tile_wave is right. */
#define TILE_WAVE_MAX 0x1p17f

/* sin(a + quarter * pi/2) to 0.9 ulp: pi/2 in three parts, the first product
 * exact where it cancels; what r could not hold of the argument is l. Degree 9
 * and 8 on [-pi/4, pi/4], of which the last sum rounds. -0 stays. */
static inline float
tile_wave(float a, uint32_t quarter)
{
    float q = rintf(a * 0.63661975f);
    float h = fmaf(q, -1.57079637f, a), m = q * 4.371138829e-08f;
    float r = h + m, k = r - h;
    float l = fmaf(q, 4.371138829e-08f, -m) + ((h - (r - k)) + (m - k));
    l = fmaf(q, 1.71512451e-15f, l);
    float z = r * r;
    float p = fmaf(2.83301733e-06f, z, -0.000198530892f);
    p = fmaf(fmaf(p, z, 0.0083333794f), z, -0.166666672f);
    float s = r + fmaf(p * z, r, l);
    float t = fmaf(fmaf(2.44325602e-05f, z, -0.00138873106f), z, 0.0416666456f);
    float y = fmaf(z, -0.5f, 1.0f);
    float c = y + fmaf(t * z, z, fmaf(-r, l, fmaf(z, -0.5f, 1.0f - y)));
    uint32_t n = (uint32_t)tile_int(q) + quarter;
    uint32_t v = tile_bits(n & 1 ? c : s);
    float wave = tile_from_bits(v ^ (n & 2) << 30);
    return quarter == 0 && a == 0 ? a : wave;
}

/* lgamma without its write to the global sign. */
static inline double
tile_lgamma(double a)
{
    int sign;
    return lgamma_r(a, &sign);
}

#endif
