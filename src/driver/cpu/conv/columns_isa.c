/* columns_isa.c: rows of an image as a convolution's columns, compiled once
 * per instruction set. A vector of places meets a few runs of pixels, and
 * padding: each run is a load of some lanes. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/gemm_vec.h"

/* What a segment gives to one vector: pixel of lane i at element
 * first + i * stride, where the lane is one of it. */
typedef struct {
    int64_t first;
#if VL == 16
    __mmask16 lanes, low, high; /* low, high: of pairs of pixels */
#elif VL == 8
    __m256i lanes, low, high; /* low, high: of pairs of floats */
#endif
    int64_t b, e; /* lanes [b, e) */
} part;

#define STRIDE_MAX 65536 /* of lanes that are gathered */

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
    if (D == AIR_F32 && stride > 2)
        return (vf)_mm512_mask_i32gather_ps(
            _mm512_setzero_ps(), t->lanes,
            (__m512i)(LANE_NUMBERS * (int32_t)stride), p, 4);
    if (D == AIR_F32)
        return load_even_masked((const float *)(const void *)p, t->low,
                                t->high);
    __mmask32 both = (__mmask32)t->low | (__mmask32)t->high << 16;
    return halves(_mm512_cvtepi32_epi16(_mm512_maskz_loadu_epi16(both, p)), D);
}
#define HAS_TAKE(stride, D) \
    ((stride) <= 2 || ((D) == AIR_F32 && (stride) <= STRIDE_MAX))
#elif VL == 8
/* All bits where b <= at < e. */
static __m256i
between(__m256i at, const part *t)
{
    const __m256i b = _mm256_set1_epi32((int)t->b - 1);
    const __m256i e = _mm256_set1_epi32((int)t->e);
    return _mm256_and_si256(_mm256_cmpgt_epi32(at, b),
                            _mm256_cmpgt_epi32(e, at));
}

static void
set_lanes(part *t)
{
    const int none = VL;
    t->lanes = between((__m256i)LANE_NUMBERS, t);
    t->low = between(_mm256_setr_epi32(0, none, 1, none, 2, none, 3, none), t);
    t->high = between(_mm256_setr_epi32(4, none, 5, none, 6, none, 7, none), t);
}

/* Eight numbers of 16 bits; where not all are the part's, one by one: nothing
 * is read but those. */
INLINE __m128i
words(const char *p, const part *t, const int64_t stride)
{
    if (t->b == 0 && t->e == VL) {
        const __m128i *at = (const __m128i *)(const void *)p;
        __m128i a = _mm_loadu_si128(at);
        if (stride == 1)
            return a;
        at = (const __m128i *)(const void *)(p + 2 * (VL - 1));
        a = _mm_and_si128(a, _mm_set1_epi32(0xffff));
        return _mm_packus_epi32(a, _mm_srli_epi32(_mm_loadu_si128(at), 16));
    }
    uint16_t v[VL] = {0};
    for (int64_t i = t->b; i < t->e; i++)
        memcpy(&v[i], p + 2 * i * stride, sizeof *v);
    return _mm_loadu_si128((const __m128i *)(const void *)v);
}

/* The lanes of a part, 0 in others. */
INLINE vf
take(const char *p, const part *t, const int64_t stride, const int D)
{
    p += t->first * (D == AIR_F32 ? 4 : 2);
    const float *f = (const float *)(const void *)p;
    if (D == AIR_F32 && stride == 1)
        return (vf)_mm256_maskload_ps(f, t->lanes);
    if (D == AIR_F32 && stride > 2)
        return (vf)_mm256_mask_i32gather_ps(
            _mm256_setzero_ps(), f, (__m256i)(LANE_NUMBERS * (int32_t)stride),
            (__m256)t->lanes, 4);
    if (D == AIR_F32) {
        __m256 low = _mm256_maskload_ps(f, t->low);
        __m256 high = _mm256_maskload_ps(f + VL, t->high);
        __m256d even = (__m256d)_mm256_shuffle_ps(low, high, 0x88);
        return (vf)_mm256_permute4x64_pd(even, 0xd8);
    }
    __m128i h = words(p, t, stride);
    return D == AIR_F16 ? (vf)_mm256_cvtph_ps(h)
                        : (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
}
#define HAS_TAKE(stride, D) \
    ((stride) <= 2 || ((D) == AIR_F32 && (stride) <= STRIDE_MAX))
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
    else if (dtype == AIR_F32 && s->stride == 2)
        by_count(s, 2, AIR_F32);
    else if (dtype == AIR_F32)
        by_count(s, s->stride, AIR_F32);
    else if (dtype == AIR_BF16)
        by_count(s, s->stride, AIR_BF16);
    else
        by_count(s, s->stride, AIR_F16);
}

/* What segments give to lanes [l, l + VL). */
static int
find_parts(part *parts, const conv_segment *segments, int n, int64_t l,
           int64_t stride)
{
    int count = 0;
    for (const conv_segment *g = segments; g < segments + n; g++) {
        int64_t b = g->lane - l, e = b + g->count;
        if (b >= VL || e <= 0)
            continue;
        part *t = &parts[count++];
        t->first = g->at - b * stride;
        t->b = b < 0 ? 0 : b;
        t->e = e > VL ? VL : e;
        set_lanes(t);
    }
    return count;
}

void
ISA_NAME(columns)(float *dst, int64_t ld, const void *p, int64_t step,
                  int64_t stride, int dtype, const conv_segment *segments,
                  int n, int64_t count)
{
    for (int64_t l = 0; l < LANES; l += VL) {
        strip s; /* parts are many, and few are used: none is cleared */
        s.dst = dst + l, s.ld = ld, s.p = p, s.step = step;
        s.stride = stride, s.count = count;
        s.n = find_parts(s.parts, segments, n, l, stride);
        rows(&s, dtype);
    }
}

/* ---- planes with their padding: every row of a panel has the same parts ---
 */

typedef struct {
    part parts[VL];
    int n;
} row_parts;

/* One vector of lanes at x: of n parts, or of as many as there are (3). */
INLINE vf
take_parts(const char *x, const row_parts *r, const part *first,
           const part *second, const int n)
{
    vf v = take(x, first, 1, AIR_F32);
    if (n > 1)
        v = (vf)((vu)v | (vu)take(x, second, 1, AIR_F32));
    for (int i = 2; n > 2 && i < r->n; i++)
        v = (vf)((vu)v | (vu)take(x, &r->parts[i], 1, AIR_F32));
    return v;
}

INLINE void
shifted_rows(float *dst, const float *p, const int32_t *at, int64_t kc,
             const row_parts r[2], const int n)
{
    const part a = r[0].parts[0], b = r[0].parts[1];
    const part c = r[1].parts[0], d = r[1].parts[1];
    for (int64_t k = 0; k < kc; k++, dst += LANES) {
        const char *x = (const char *)(p + at[k]);
        store(dst, take_parts(x, &r[0], &a, &b, n));
        store(dst + VL, take_parts(x, &r[1], &c, &d, n));
    }
}

void
ISA_NAME(shifted)(float *dst, const float *p, const int32_t *at, int64_t kc,
                  const conv_segment *segments, int n)
{
    static const part none = {0};
    row_parts r[2];
    for (int i = 0; i < 2; i++) {
        r[i].n = find_parts(r[i].parts, segments, n, i * VL, 1);
        for (int k = r[i].n; k < 2; k++)
            r[i].parts[k] = none;
    }
    if (r[0].n > 2 || r[1].n > 2)
        shifted_rows(dst, p, at, kc, r, 3);
    else if (r[0].n == 2 || r[1].n == 2)
        shifted_rows(dst, p, at, kc, r, 2);
    else
        shifted_rows(dst, p, at, kc, r, 1);
}

#if VL == 16

/* Bits of lanes, of bf16 the upper half of a float's, from one or two parts,
 * and from those behind them. */
INLINE vu
take_all(const uint16_t *p, const part *a, const part *b, const row_parts *r,
         const int n, const int64_t stride)
{
    vu v = (vu)take((const char *)p, a, stride, AIR_BF16);
    if (n > 1)
        v |= (vu)take((const char *)p, b, stride, AIR_BF16);
    for (int i = 2; n > 1 && i < r->n; i++)
        v |= (vu)take((const char *)p, &r->parts[i], stride, AIR_BF16);
    return v;
}

INLINE void
pairs_of(float *dst, int64_t ld, const conv_pairs *from, int64_t count,
         const row_parts *r, const int n, const int64_t stride)
{
    const uint16_t *p = from->p[0], *q = from->p[1];
    const part a = r[0].parts[0], b = r[0].parts[1];
    const part c = r[1].parts[0], d = r[1].parts[1];
    for (int64_t i = 0; i < count; i++) {
        vu v = take_all(p, &a, &b, &r[0], n, stride) >> 16;
        store(dst, (vf)(v | take_all(q, &c, &d, &r[1], n, stride)));
        dst += ld;
        p += from->step;
        q += from->step;
    }
}

/* Are the lanes' pairs pixels that lie side by side? */
static bool
are_neighbours(const conv_pairs *from, const row_parts *r)
{
    bool same = from->p[0] == from->p[1] && r[0].n == r[1].n &&
                from->stride % 2 == 0 && from->stride <= STRIDE_MAX;
    for (int i = 0; same && i < r[0].n; i++) {
        const part *a = &r[0].parts[i], *b = &r[1].parts[i];
        same = a->lanes == b->lanes && a->first + 1 == b->first;
    }
    return same;
}

/* Such pairs as floats, of half the stride. */
static void
neighbours(float *dst, int64_t ld, const conv_pairs *from, int64_t count,
           const row_parts *r)
{
    for (int64_t c = 0; c < count; c++) {
        vu v = {0};
        for (const part *t = r->parts; t < r->parts + r->n; t++) {
            const uint16_t *p = from->p[0] + c * from->step + t->first;
            part floats = *t;
            floats.first = 0;
            v |= (vu)take((const char *)p, &floats, from->stride / 2, AIR_F32);
        }
        store(dst + c * ld, (vf)v);
    }
}

/* Pixel by pixel. */
static void
pairs_any(float *dst, int64_t ld, const conv_pairs *from, int64_t count,
          const row_parts *r)
{
    for (int64_t c = 0; c < count; c++) {
        uint16_t v[2 * VL] = {0};
        for (int k = 0; k < 2; k++)
            for (const part *t = r[k].parts; t < r[k].parts + r[k].n; t++)
                for (int64_t i = t->b; i < t->e; i++)
                    v[2 * i + k] = from->p[k][c * from->step + t->first +
                                              i * from->stride];
        memcpy(dst + c * ld, v, sizeof v);
    }
}

void
cpu_pairs_columns(float *dst, int64_t ld, const conv_pairs *from, int64_t count)
{
    static const part none = {0};
    for (int64_t l = 0; l < LANES; l += VL) {
        row_parts r[2];
        for (int i = 0; i < 2; i++) {
            r[i].n = find_parts(r[i].parts, from->segments[i], from->counts[i],
                                l, from->stride);
            for (int k = r[i].n; k < 2; k++)
                r[i].parts[k] = none;
        }
        if (from->stride > 2 && are_neighbours(from, r))
            neighbours(dst + l, ld, from, count, r);
        else if (from->stride > 2)
            pairs_any(dst + l, ld, from, count, r);
        else if (from->stride > 1)
            pairs_of(dst + l, ld, from, count, r, 2, 2);
        else if (r[0].n <= 1 && r[1].n <= 1)
            pairs_of(dst + l, ld, from, count, r, 1, 1);
        else
            pairs_of(dst + l, ld, from, count, r, 2, 1);
    }
}
#endif
