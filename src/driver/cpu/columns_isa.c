/* columns_isa.c: rows of an image as a convolution's columns, compiled once
 * per instruction set. A vector of places meets a few runs of pixels, and
 * padding: each run is a load of some lanes. */
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

/* What a segment gives to one vector: pixel of lane i at element
 * first + i * stride, where the lane is one of it. */
typedef struct {
    int64_t first;
#if VL == 16
    __mmask16 lanes, low, high; /* low, high: of pairs of pixels */
#elif VL == 8
    __m256i lanes;
#endif
    int64_t b, e; /* lanes [b, e) */
} part;

typedef struct {
    float *dst;
    int64_t ld;
    const char *p;
    int64_t step, stride, count;
    part parts[VL];
    int n;
} strip;

#if VL == 16
/* Bit i becomes bit 2 i. */
static __mmask16
spread(uint32_t bits)
{
    uint32_t m = (bits | bits << 4) & 0x0f0f;
    m = (m | m << 2) & 0x3333;
    return (__mmask16)((m | m << 1) & 0x5555);
}

static void
set_lanes(part *t)
{
    uint32_t m = (UINT32_C(1) << t->e) - (UINT32_C(1) << t->b);
    t->lanes = (__mmask16)m;
    t->low = spread(m & 0xff);
    t->high = spread(m >> 8);
}

INLINE vf
halves(__m256i h, const int D)
{
    return D == AIR_BF16 ? (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)
                         : (vf)_mm512_cvtph_ps(h);
}

/* The lanes of a part, 0 in others. */
INLINE vf
take(const char *p, const part *t, const int64_t stride, const int D)
{
    p += t->first * (D == AIR_F32 ? 4 : 2);
    if (D == AIR_F32 && stride == 1)
        return (vf)_mm512_maskz_loadu_ps(t->lanes, p);
    if (stride == 1)
        return halves(_mm256_maskz_loadu_epi16(t->lanes, p), D);
    if (D == AIR_F32) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16,
                                               18, 20, 22, 24, 26, 28, 30);
        __m512 low = _mm512_maskz_loadu_ps(t->low, p);
        __m512 high = _mm512_maskz_loadu_ps(t->high, p + 64);
        return (vf)_mm512_permutex2var_ps(low, even, high);
    }
    __mmask32 both = (__mmask32)t->low | (__mmask32)t->high << 16;
    return halves(_mm512_cvtepi32_epi16(_mm512_maskz_loadu_epi16(both, p)), D);
}
#define HAS_TAKE(stride, D) ((stride) <= 2)
#elif VL == 8
static void
set_lanes(part *t)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i b = _mm256_set1_epi32((int)t->b - 1);
    const __m256i e = _mm256_set1_epi32((int)t->e);
    t->lanes =
        _mm256_and_si256(_mm256_cmpgt_epi32(at, b), _mm256_cmpgt_epi32(e, at));
}

INLINE vf
take(const char *p, const part *t, const int64_t stride, const int D)
{
    (void)stride, (void)D;
    return (vf)_mm256_maskload_ps((const float *)(const void *)p + t->first,
                                  t->lanes);
}
#define HAS_TAKE(stride, D) ((stride) == 1 && (D) == AIR_F32)
#else
static void
set_lanes(part *t)
{
    (void)t;
}

INLINE vf
take(const char *p, const part *t, const int64_t stride, const int D)
{
    vf v = {0};
    for (int64_t i = t->b; i < t->e; i++)
        v[i] = get(p, t->first + i * stride, D);
    return v;
}
#define HAS_TAKE(stride, D) true
#endif

/* Parts have no lane in common: their bits are put together. */
INLINE void
rows_of(const strip *s, const int n, const int64_t stride, const int D)
{
    const int64_t step = s->step * (D == AIR_F32 ? 4 : 2), ld = s->ld;
    const part first = s->parts[0], second = s->parts[n > 1 ? 1 : 0];
    const char *p = s->p;
    float *dst = s->dst;
    for (int64_t c = 0; c < s->count; c++) {
        vf v = take(p, &first, stride, D);
        if (n > 1)
            v = (vf)((vu)v | (vu)take(p, &second, stride, D));
        for (int i = 2; n > 1 && i < s->n; i++)
            v = (vf)((vu)v | (vu)take(p, &s->parts[i], stride, D));
        store(dst, v);
        dst += ld;
        p += step;
    }
}

INLINE void
by_count(const strip *s, const int64_t stride, const int D)
{
    if (s->n == 1)
        rows_of(s, 1, stride, D);
    else
        rows_of(s, 2, stride, D);
}

/* Pixel by pixel. */
static void
rows_any(const strip *s, int D)
{
    for (int64_t c = 0; c < s->count; c++) {
        float v[VL] = {0};
        for (const part *t = s->parts; t < s->parts + s->n; t++)
            for (int64_t i = t->b; i < t->e; i++)
                v[i] = get(s->p, c * s->step + t->first + i * s->stride, D);
        memcpy(s->dst + c * s->ld, v, sizeof v);
    }
}

static void
rows(const strip *s, int dtype)
{
    const vf zero = {0};
    if (s->n == 0)
        for (int64_t c = 0; c < s->count; c++)
            store(s->dst + c * s->ld, zero);
    else if (!HAS_TAKE(s->stride, dtype))
        rows_any(s, dtype);
    else if (dtype == AIR_F32 && s->stride == 1)
        by_count(s, 1, AIR_F32);
    else if (dtype == AIR_F32)
        by_count(s, s->stride, AIR_F32);
    else if (dtype == AIR_BF16)
        by_count(s, s->stride, AIR_BF16);
    else
        by_count(s, s->stride, AIR_F16);
}

void
ISA_NAME(columns)(float *dst, int64_t ld, const void *p, int64_t step,
                  int64_t stride, int dtype, const conv_segment *segments,
                  int n, int64_t count)
{
    for (int64_t l = 0; l < LANES; l += VL) {
        strip s; /* parts are many, and few are used: none is cleared */
        s.dst = dst + l, s.ld = ld, s.p = p, s.step = step;
        s.stride = stride, s.count = count, s.n = 0;
        for (const conv_segment *g = segments; g < segments + n; g++) {
            int64_t b = g->lane - l, e = b + g->count;
            if (b >= VL || e <= 0)
                continue;
            part *t = &s.parts[s.n++];
            t->first = g->at - b * stride;
            t->b = b < 0 ? 0 : b;
            t->e = e > VL ? VL : e;
            set_lanes(t);
        }
        rows(&s, dtype);
    }
}
