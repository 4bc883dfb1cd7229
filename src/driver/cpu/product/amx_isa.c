/* amx_isa.c: tiles of AMX, compiled for AVX-512 with bf16 and AMX. */
#include "driver/cpu/product/amx_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#define PREFETCH 128 /* elements ahead of a row that is packed */

typedef struct {
    _Alignas(64) uint8_t palette;
    uint8_t start, reserved[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
} tile_config;

void
amx_begin(void)
{
    static const tile_config config = {
        .palette = 1,
        .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&config);
}

void
amx_end(void)
{
    _tile_release();
}

/* ---- packing ------------------------------------------------------------- */

/* n of 32 elements, zeros behind. */
INLINE vf
some(const uint16_t *p, int64_t n)
{
    if (n >= AMX_DEPTH)
        return (vf)_mm512_loadu_ps(p);
    __mmask32 mask = n <= 0 ? 0 : (__mmask32)((UINT32_C(1) << n) - 1);
    return (vf)_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p));
}

static void
pack_rows(uint16_t *panel, const uint16_t *p, int64_t rs, int64_t n, int64_t k)
{
    for (int64_t d = 0; d < k; d += AMX_DEPTH, panel += AMX_DEPTH * AMX_COLS)
        for (int64_t t = 0; t < AMX_COLS; t += 16) {
            vf r[VL];
            UNROLL for (int i = 0; i < VL; i++)
            {
                const uint16_t *q = p + (t + i) * rs + d;
                r[i] = t + i < n ? some(q, k - d) : (vf){0};
                __builtin_prefetch(q + PREFETCH);
            }
            transpose(r);
            UNROLL for (int i = 0; i < VL; i++)
                store((float *)(void *)panel + i * AMX_COLS + t, r[i]);
        }
}

INLINE __m512i
pair(const uint16_t *even, const uint16_t *odd, __mmask16 mask)
{
    __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    if (odd == NULL)
        return a;
    __m512i b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd));
    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

static void
pack_columns(uint16_t *panel, const uint16_t *p, int64_t ks, int64_t n,
             int64_t k)
{
    for (int64_t d = 0; d < round_up(k, AMX_DEPTH); d += 2)
        for (int64_t t = 0; t < AMX_COLS; t += 16) {
            int64_t left = d >= k || t >= n ? 0 : n - t;
            __mmask16 mask = first_lanes(left);
            const uint16_t *even = mask == 0 ? p : p + d * ks + t;
            _mm512_storeu_si512(panel + d * AMX_COLS + 2 * t,
                                pair(even, d + 1 < k ? even + ks : NULL, mask));
        }
}

void
amx_pack(uint16_t *panel, const gemm_view *v, int64_t r0, int64_t n, int64_t k)
{
    const uint16_t *p = v->p;
    if (v->ks == 1)
        pack_rows(panel, p + r0 * v->rs, v->rs, n, k);
    else
        pack_columns(panel, p + r0, v->ks, n, k);
}

/* Rows that lie across memory: pairs of their columns, turned around. */
static void
copy_columns(uint16_t *dst, const uint16_t *p, int64_t ks, int64_t n, int64_t k)
{
    for (int64_t d = 0; d < k; d += AMX_DEPTH)
        for (int64_t t = 0; t < AMX_ROWS; t += 16, dst += 16 * AMX_DEPTH) {
            __mmask16 mask = first_lanes(n > t ? n - t : 0);
            vf r[VL];
            UNROLL for (int i = 0; i < VL; i++)
            {
                const uint16_t *even = p + (d + 2 * i) * ks + t;
                int64_t left = k - d - 2 * i;
                __m512i v = _mm512_setzero_si512();
                if (left > 0 && mask != 0)
                    v = pair(even, left > 1 ? even + ks : NULL, mask);
                r[i] = (vf)_mm512_castsi512_ps(v);
            }
            transpose(r);
            UNROLL for (int i = 0; i < VL; i++)
                store((float *)(void *)(dst + i * AMX_DEPTH), r[i]);
        }
}

static void
copy_rows(uint16_t *dst, const gemm_view *v, int64_t r0, int64_t n, int64_t k)
{
    const uint16_t *p = (const uint16_t *)v->p + r0 * v->rs;
    for (int64_t d = 0; d < k; d += AMX_DEPTH)
        for (int64_t r = 0; r < AMX_ROWS; r++, dst += AMX_DEPTH) {
            const uint16_t *q = p + r * v->rs + d;
            store((float *)(void *)dst, r < n ? some(q, k - d) : (vf){0});
            __builtin_prefetch(q + PREFETCH);
        }
}

void
amx_copy(uint16_t *dst, const gemm_view *v, int64_t r0, int64_t n, int64_t k)
{
    if (v->ks == 1)
        copy_rows(dst, v, r0, n, k);
    else
        copy_columns(dst, (const uint16_t *)v->p + r0, v->ks, n, k);
}

/* The even ones of 2 n - 1 elements. */
INLINE __m512i
evens(const uint16_t *p, int64_t n)
{
    int64_t m = 2 * n - 1;
    __mmask32 low = m >= 32 ? UINT32_MAX : (UINT32_C(1) << m) - 1;
    __mmask32 high = m <= 32 ? 0 : UINT32_MAX >> (64 - m);
    __m512i a = _mm512_maskz_loadu_epi16(low, p);
    __m512i b = _mm512_maskz_loadu_epi16(high, high == 0 ? p : p + 32);
    __m256i x = _mm512_cvtepi32_epi16(a), y = _mm512_cvtepi32_epi16(b);
    return _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
}

void
amx_copies(uint16_t *dst, int64_t ld, const uint16_t *p, int64_t step,
           int64_t stride, int64_t n, int64_t count)
{
    __mmask32 mask = n >= 32 ? UINT32_MAX : (UINT32_C(1) << n) - 1;
    for (int64_t c = 0; c < count; c++, dst += ld, p += step)
        if (stride == 1)
            _mm512_mask_storeu_epi16(dst, mask,
                                     _mm512_maskz_loadu_epi16(mask, p));
        else if (stride == 2)
            _mm512_mask_storeu_epi16(dst, mask, evens(p, n));
        else
            for (int64_t i = 0; i < n; i++)
                dst[i] = p[i * stride];
}

/* ---- products ------------------------------------------------------------ */

INLINE void
sums_begin(const float *acc, bool add, int64_t n)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!add)
        return;
    _tile_loadd(0, acc, 4 * AMX_COLS);
    _tile_loadd(1, acc + 16, 4 * AMX_COLS);
    if (n > 16) {
        _tile_loadd(2, acc + 16 * AMX_COLS, 4 * AMX_COLS);
        _tile_loadd(3, acc + 16 * AMX_COLS + 16, 4 * AMX_COLS);
    }
}

void
amx_block(float *acc, bool add, int64_t n, const amx_rows *rows,
          const uint16_t *panel, int64_t k)
{
    enum { STEP = AMX_DEPTH * AMX_COLS, ROW = 4 * AMX_COLS };
    const uint16_t *a = rows->p, *low = a + 16 * rows->stride;
    int64_t bytes = rows->stride * 2, step = rows->step;
    sums_begin(acc, add, n);
    for (int64_t d = 0; d < k; d += AMX_DEPTH, panel += STEP) {
        _tile_loadd(4, a, bytes);
        _tile_loadd(6, panel, ROW);
        _tile_loadd(7, panel + AMX_COLS, ROW);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (n > 16) {
            _tile_loadd(5, low, bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        a += step, low += step;
    }
    _tile_stored(0, acc, 4 * AMX_COLS);
    _tile_stored(1, acc + 16, 4 * AMX_COLS);
    if (n > 16) {
        _tile_stored(2, acc + 16 * AMX_COLS, 4 * AMX_COLS);
        _tile_stored(3, acc + 16 * AMX_COLS + 16, 4 * AMX_COLS);
    }
}

/* ---- results ------------------------------------------------------------- */

/* 16 elements of a line along which y and s are adjacent. */
INLINE void
put_line(const gemm_job *job, vf t, int64_t y, const uint16_t *s, bool each,
         __mmask16 mask)
{
    vf v = set(job->alpha) * t;
    if (s != NULL) {
        vf add = each ? (vf)_mm512_castsi512_ps(
                            _mm512_slli_epi32(pair(s, NULL, mask), 16))
                      : set(bf16_get(*s));
        v = fma_(set(job->beta), add, v);
    }
    _mm256_mask_storeu_epi16((uint16_t *)job->y + y, mask,
                             (__m256i)_mm512_cvtneps_pbh((__m512)v));
}

static const uint16_t *
added(const gemm_job *job, int64_t l, int64_t r)
{
    if (job->s == NULL)
        return NULL;
    return (const uint16_t *)job->s + l * job->sl + r * job->sr;
}

static void
finish_straight(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
                int64_t r0, int64_t nr)
{
    bool each = job->sr == 1;
    for (int64_t r = 0; r < nr; r += 16) {
        __mmask16 mask = first_lanes(nr - r);
        for (int64_t l = 0; l < nl; l++)
            put_line(job, load(acc + l * AMX_COLS + r),
                     (l0 + l) * job->yl + r0 + r, added(job, l0 + l, r0 + r),
                     each, mask);
    }
}

/* Of whole panels: alpha 1, the same line added to all, or none. */
static void
finish_plain(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
             int64_t r0)
{
    const uint16_t *s = added(job, 0, r0);
    uint16_t *y = (uint16_t *)job->y + l0 * job->yl + r0;
    vf low = {0}, high = {0}, beta = set(job->beta);
    if (s != NULL) {
        low = beta * vget(s, 0, AIR_BF16);
        high = beta * vget(s, 16, AIR_BF16);
    }
    for (int64_t l = 0; l < nl; l++, acc += AMX_COLS, y += job->yl)
        _mm512_storeu_si512(
            y, (__m512i)_mm512_cvtne2ps_pbh((__m512)(load(acc + 16) + high),
                                            (__m512)(load(acc) + low)));
}

static bool
is_plain(const gemm_job *job, int64_t nr)
{
    return nr == AMX_COLS && job->alpha >= 1 && job->alpha <= 1 &&
           (job->s == NULL || (job->sl == 0 && job->sr == 1));
}

static void
finish_turned(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
              int64_t r0, int64_t nr)
{
    bool each = job->sl == 1;
    for (int64_t l = 0; l < nl; l += 16)
        for (int64_t r = 0; r < nr; r += 16) {
            __mmask16 mask = first_lanes(nl - l);
            vf v[VL];
            UNROLL for (int i = 0; i < VL; i++) v[i] =
                load(acc + (l + i) * AMX_COLS + r);
            transpose(v);
            UNROLL for (int i = 0; i < VL; i++) if (r + i < nr)
                put_line(job, v[i], l0 + l + (r0 + r + i) * job->yr,
                         added(job, l0 + l, r0 + r + i), each, mask);
        }
}

void
amx_finish(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
           int64_t r0, int64_t nr)
{
    if (job->yr == 1 && is_plain(job, nr))
        finish_plain(job, acc, l0, nl, r0);
    else if (job->yr == 1)
        finish_straight(job, acc, l0, nl, r0, nr);
    else
        finish_turned(job, acc, l0, nl, r0, nr);
}
