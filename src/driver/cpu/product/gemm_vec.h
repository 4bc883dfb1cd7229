/* gemm_vec.h: vectors of floats of one instruction set, for the files that are
 * compiled once for each of them (gemm_isa.c, gemv_isa.c, attention_isa.c).
 *
 * Written with the compiler's vector extensions; intrinsics only where those
 * cannot say it (one rounding in fma_, conversions). Everything is static, so
 * that code for one CPU never ends up in a program part for another. */
#ifndef CPU_GEMM_VEC_H
#define CPU_GEMM_VEC_H

#include <stdint.h>
#include <string.h>

#include "air_kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define VL       16 /* floats of a vector */
#define ROWS_MAX 14 /* rows of a tile: 28 sums, 2 x, 2 w of 32 registers */
#elif defined(__AVX2__)
#define VL       8
#define ROWS_MAX 6 /* 12 sums, 2 x, 2 w of 16 registers */
#elif defined(__aarch64__)
#define VL       4
#define ROWS_MAX 8 /* 16 sums: with 10 rows gcc 12 spills */
#else
#define VL       4
#define ROWS_MAX 6
#endif
#define LANES (2 * VL) /* of a panel */
#if VL == 16
#define NARROW 8 /* lanes of which the CPU does twice as many vectors */
typedef float vn __attribute__((vector_size(4 * NARROW)));
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint16_t vh __attribute__((vector_size(2 * VL)));

INLINE vf
load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void
store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* x - 0 keeps -0 and NaN. */
INLINE vf
set(float x)
{
    return x - (vf){0};
}

#if defined(__AVX512F__)
/* Of 16 lanes the first n, which may be less than 0 or more than 16. */
INLINE __mmask16
first_lanes(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (UINT32_C(1) << n) - 1);
}
#endif

/* a * b + c; one rounding where the CPU can. */
INLINE vf
fma_(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* b where either is NaN, as in air_prims.def. */
INLINE vf
max_(vf a, vf b)
{
    vi gt = a > b;
    return (vf)(((vi)a & gt) | ((vi)b & ~gt));
}

INLINE float
sum(vf v)
{
    float t[VL];
    memcpy(t, &v, sizeof t);
    UNROLL for (int n = VL / 2; n > 0; n /= 2)
        UNROLL for (int i = 0; i < n; i++) t[i] += t[i + n];
    return t[0];
}

/* ---- halves ---- */

INLINE float
bf16_get(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE uint16_t
bf16_put(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : r);
}

static inline float
f16_get(uint16_t h)
{
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    /* Exponent re-biased by a multiplication, which is right for subnormals
     * as well; infinities and NaN by hand. */
    uint32_t u = (uint32_t)(h & 0x7fff) << 13;
    float f;
    memcpy(&f, &u, sizeof f);
    f *= 0x1p112f;
    memcpy(&u, &f, sizeof u);
    if ((h & 0x7c00) == 0x7c00)
        u = 0x7f800000 | (uint32_t)(h & 0x3ff) << 13;
    u |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&f, &u, sizeof f);
    return f;
#endif
}

static inline uint16_t
f16_put(float f)
{
#if defined(__F16C__)
    return (uint16_t)_cvtss_sh(f, 0);
#else
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000) /* 65520 rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* subnormal: adding 0.5 leaves units of 2^-24 */
        float t;
        memcpy(&t, &a, sizeof t);
        t += 0.5f;
        memcpy(&a, &t, sizeof a);
        return (uint16_t)(sign | (a - 0x3f000000));
    }
    a += 0xfff + (a >> 13 & 1) - ((uint32_t)112 << 23);
    return (uint16_t)(sign | a >> 13);
#endif
}

/* A pair of halves, which moves as a float, may lie on any second byte. */
INLINE float
get(const void *p, int64_t i, int dtype)
{
    if (dtype == AIR_F32) {
        float f;
        memcpy(&f, (const char *)p + i * 4, sizeof f);
        return f;
    }
    uint16_t h = ((const uint16_t *)p)[i];
    return dtype == AIR_BF16 ? bf16_get(h) : f16_get(h);
}

INLINE void
put(void *p, int64_t i, int dtype, float f)
{
    if (dtype == AIR_F32)
        ((float *)p)[i] = f;
    else
        ((uint16_t *)p)[i] = dtype == AIR_BF16 ? bf16_put(f) : f16_put(f);
}

/* __builtin_convertvector takes four instructions for this (gcc 12). */
INLINE vu
widen_halves(vh h)
{
#if defined(__AVX512F__)
    return (vu)_mm512_cvtepu16_epi32((__m256i)h);
#elif defined(__AVX2__)
    return (vu)_mm256_cvtepu16_epi32((__m128i)h);
#else
    return __builtin_convertvector(h, vu);
#endif
}

/* VL elements from p[i] on. */
INLINE vf
vget(const void *p, int64_t i, int dtype)
{
    if (dtype == AIR_F32)
        return load((const float *)p + i);
    vh h;
    memcpy(&h, (const uint16_t *)p + i, sizeof h);
    if (dtype == AIR_BF16)
        return (vf)(widen_halves(h) << 16);
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif defined(__AVX2__)
    return (vf)_mm256_cvtph_ps((__m128i)h);
#elif defined(__aarch64__)
    return (vf)vcvt_f32_f16((float16x4_t)h);
#else
    vf v;
    for (int j = 0; j < VL; j++)
        v[j] = f16_get(h[j]);
    return v;
#endif
}

#if defined(__AVX512F__)
/* The first n of them, zeros behind; no others are read. */
INLINE vf
vget_first(const void *p, int64_t i, int dtype, int64_t n)
{
    const __mmask16 lanes = first_lanes(n);
    if (dtype == AIR_F32)
        return (vf)_mm512_maskz_loadu_ps(lanes, (const float *)p + i);
    __m256i h = _mm256_maskz_loadu_epi16(lanes, (const uint16_t *)p + i);
    return dtype == AIR_BF16 ? (vf)(widen_halves((vh)h) << 16)
                             : (vf)_mm512_cvtph_ps(h);
}
#endif

/* VL integers of 8 bits. */
INLINE vf
vget8(const int8_t *p)
{
#if defined(__AVX512F__)
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
#elif defined(__AVX2__)
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
#else
    vf v;
    for (int j = 0; j < VL; j++)
        v[j] = p[j];
    return v;
#endif
}

INLINE void
vput(void *p, int64_t i, int dtype, vf v)
{
    if (dtype == AIR_F32) {
        store((float *)p + i, v);
        return;
    }
    uint16_t *q = (uint16_t *)p + i;
#if defined(__AVX512BF16__)
    if (dtype == AIR_BF16) { /* subnormals become 0 */
        __m256bh h = _mm512_cvtneps_pbh((__m512)v);
        memcpy(q, &h, sizeof h);
        return;
    }
#endif
    if (dtype == AIR_BF16) {
        vu u = (vu)v;
        vu nan = (vu)((u & 0x7fffffff) > 0x7f800000);
        vu r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
        vh h = __builtin_convertvector((r & ~nan) | (0x7fc0 & nan), vh);
        memcpy(q, &h, sizeof h);
        return;
    }
#if defined(__AVX512F__)
    __m256i h = _mm512_cvtps_ph((__m512)v, 0);
    memcpy(q, &h, sizeof h);
#elif defined(__AVX2__)
    __m128i h = _mm256_cvtps_ph((__m256)v, 0);
    memcpy(q, &h, sizeof h);
#elif defined(__aarch64__)
    float16x4_t h = vcvt_f16_f32((float32x4_t)v);
    memcpy(q, &h, sizeof h);
#else
    for (int j = 0; j < VL; j++)
        q[j] = f16_put(v[j]);
#endif
}

/* ---- e^x: EXP of air_prims.def; NaN stays, 0 below e^-87: subnormal results
 * cost some CPUs hundreds of cycles ---- */

INLINE vf
exp_(vf a)
{
    const vf magic = set(0x1.8p23f); /* adding it rounds to an integer */
    const vf least = set(-87.0f), most = set(88.0f);
    vi vanish = a<least, over = a> most;
    vf x = (vf)(((vi)a & ~over) | ((vi)most & over));
    x = (vf)(((vi)x & ~vanish) | ((vi)least & vanish));
    vf n = x * 1.44269504f + magic;
    vi i = (vi)n << 23; /* of which the lowest bits are the integer */
    n -= magic;
    vf r = fma_(n, set(-0.693145752f), x);
    r = fma_(n, set(-1.42860677e-06f), r);
    vf p = fma_(set(0.0013814465f), r, set(0.008368781f));
    p = fma_(p, r, set(0.041668393f));
    p = fma_(p, r, set(0.1666652f));
    p = fma_(p, r, set(0.49999994f));
    p = fma_(fma_(p, r, set(1.0f)), r, set(1.0f));
    vi nan = a != a;
    vi y = ((vi)p + (i & ~nan)) & ~vanish;
    return (vf)y;
}

/* e^x for x up to 0, or NaN: what a softmax needs. */
INLINE vf
exp_least(vf x)
{
#if defined(__AVX512F__)
    __m512 n = _mm512_roundscale_ps((__m512)(x * 1.44269504f), 8);
    vf r = fma_((vf)n, set(-0.693145752f), x);
    r = fma_((vf)n, set(-1.42860677e-06f), r);
    vf p = fma_(set(0.0013814465f), r, set(0.008368781f));
    p = fma_(p, r, set(0.041668393f));
    p = fma_(p, r, set(0.1666652f));
    p = fma_(p, r, set(0.49999994f));
    p = fma_(fma_(p, r, set(1.0f)), r, set(1.0f));
    __mmask16 some =
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87), _CMP_NLT_UQ);
    return (vf)_mm512_maskz_scalef_ps(some, (__m512)p, n);
#else
    return exp_(x);
#endif
}

#if defined(__AVX512F__)
/* 2^x, x <= 0: EXP2 of air_prims.def; NaN stays. 0 below the normal numbers:
 * subnormal results cost some CPUs hundreds of cycles. */
INLINE vf
exp2_(vf x)
{
    __mmask16 normal =
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-125), _CMP_NLT_UQ);
    vf n = (vf)_mm512_roundscale_ps((__m512)x, 8), r = x - n;
    vf p = fma_(set(0.00015353362f), r, set(0.0013398874f));
    p = fma_(p, r, set(0.009618437f));
    p = fma_(p, r, set(0.055503324f));
    p = fma_(p, r, set(0.24022648f));
    p = fma_(p, r, set(0.6931472f));
    p = fma_(p, r, set(1.0f));
    return (vf)_mm512_maskz_scalef_ps(normal, (__m512)p, (__m512)n);
}
#endif

/* ---- permutations: every other element, transposition of VL x VL ---- */

/* Elements 0, 2, 4 .. of p, reading none behind the last one. */
INLINE vf
load_even(const float *p)
{
#if VL == 16
    vi even = {0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31};
#elif VL == 8
    vi even = {0, 2, 4, 6, 9, 11, 13, 15};
#else
    vi even = {0, 2, 5, 7};
#endif
    return __builtin_shuffle(load(p), load(p + VL - 1), even);
}

#if VL == 16
/* The same of what the masks name of 32 floats; others are 0, and not read. */
INLINE vf
load_even_masked(const float *p, __mmask16 low, __mmask16 high)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                           20, 22, 24, 26, 28, 30);
    return (vf)_mm512_permutex2var_ps(_mm512_maskz_loadu_ps(low, p), even,
                                      _mm512_maskz_loadu_ps(high, p + VL));
}
#endif

#if VL == 16
#define LANE_NUMBERS                                         \
    (vi)                                                     \
    {                                                        \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 \
    }
#elif VL == 8
#define LANE_NUMBERS           \
    (vi)                       \
    {                          \
        0, 1, 2, 3, 4, 5, 6, 7 \
    }
#else
#define LANE_NUMBERS \
    (vi)             \
    {                \
        0, 1, 2, 3   \
    }
#endif

/* Rows i and i + n exchange their blocks of n lanes off the diagonal: the one
 * keeps its lower blocks and gets those of the other, which keeps its upper. */
#define TRANSPOSE_STEP(r, n)                                    \
    UNROLL for (int i = 0; i < VL; i++) if ((i & n) == 0)       \
    {                                                           \
        const vi at = LANE_NUMBERS, upper = (at & n) != 0;      \
        const vi low = at + (upper & (VL - n)), high = low + n; \
        vf lo = __builtin_shuffle(r[i], r[i + n], low);         \
        r[i + n] = __builtin_shuffle(r[i], r[i + n], high);     \
        r[i] = lo;                                              \
    }

INLINE void
transpose(vf r[VL])
{
#if VL == 16
    TRANSPOSE_STEP(r, 8)
#endif
#if VL >= 8
    TRANSPOSE_STEP(r, 4)
#endif
    TRANSPOSE_STEP(r, 2)
    TRANSPOSE_STEP(r, 1)
}

/* Lane i of the result is the sum of the lanes of r[i]. */
INLINE vf
fold(vf r[VL])
{
    UNROLL for (int n = VL / 2; n > 0; n /= 2)
    {
        const vi at = LANE_NUMBERS, upper = (at & n) != 0;
        const vi low = at + (upper & (VL - n)), high = low + n;
        UNROLL for (int i = 0; i < n; i++) r[i] =
            __builtin_shuffle(r[i], r[i + n], low) +
            __builtin_shuffle(r[i], r[i + n], high);
    }
    return r[0];
}

#endif
