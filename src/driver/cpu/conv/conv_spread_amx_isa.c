/* conv_spread_amx_isa.c: transposed convolution of bf16 in tiles of AMX: a
 * plane of pairs of channels is loaded at any place. */
#include "driver/cpu/conv/conv_spread.h"
#include "driver/cpu/product/amx_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#include <string.h>

static void
plane(const gemm_ops *ops, void *dst, const void *p, int64_t step, int64_t have,
      int dtype, int64_t n)
{
    (void)ops, (void)dtype;
    uint32_t *to = dst;
    const uint16_t *low = p, *high = low + step;
    for (int64_t i = 0; i < n && have < 2; i++)
        to[i] = low[i];
    for (int64_t i = 0; i < n && have >= 2; i++)
        to[i] = low[i] | (uint32_t)high[i] << 16;
}

static void
turn(const gemm_ops *ops, void *dst, const void *p, int64_t step, int dtype,
     int64_t channels, int64_t n)
{
    (void)ops;
    gemm_view view = {p, 1, step, dtype};
    amx_copy(dst, &view, 0, n, channels);
}

static void
put2(void *dst, const float *even, const float *odd, float bias, int64_t n)
{
    const __m512 add = _mm512_set1_ps(bias);
    for (int64_t i = 0; i < n; i += 32, even += 16, odd += 16) {
        int64_t left = n - i;
        __mmask32 mask = left >= 32 ? UINT32_MAX : (UINT32_C(1) << left) - 1;
        __mmask16 low = first_lanes((left + 1) / 2);
        __m512 a = _mm512_add_ps(_mm512_maskz_loadu_ps(low, even), add);
        __m512 b = _mm512_add_ps(_mm512_maskz_loadu_ps(low, odd), add);
        __m512i x = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a));
        __m512i y = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(b));
        _mm512_mask_storeu_epi16((uint16_t *)dst + i, mask,
                                 _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
    }
}

static void
multiply(const gemm_ops *ops, float *acc, const spread_taps *t)
{
    (void)ops;
    const int64_t row = t->row * 2, pair = t->plane * 4;
    const bool both = t->n > 16;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < t->count; i++) {
        const char *x = t->planes[i], *w = t->weights[i];
        for (int64_t k = 0; k < t->depth; k += AMX_DEPTH) {
            _tile_loadd(4, w, row);
            _tile_loadd(6, x, pair);
            _tile_loadd(7, x + 64, pair);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (both) {
                _tile_loadd(5, w + 16 * row, row);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            w += 2 * AMX_DEPTH, x += AMX_DEPTH / 2 * pair;
        }
    }
    _tile_stored(0, acc, 4 * AMX_COLS);
    _tile_stored(1, acc + 16, 4 * AMX_COLS);
    _tile_stored(2, acc + 16 * AMX_COLS, 4 * AMX_COLS);
    _tile_stored(3, acc + 16 * AMX_COLS + 16, 4 * AMX_COLS);
}

const spread_unit cpu_spread_amx = {.size = 2,
                                    .unit = AMX_DEPTH,
                                    .pairs = 2,
                                    .run = 32,
                                    .begin = amx_begin,
                                    .end = amx_end,
                                    .plane = plane,
                                    .turn = turn,
                                    .put2 = put2,
                                    .multiply = multiply};
