/* conv_spread_pairs_isa.c: transposed convolution of bf16 with VDPBF16PS: the
 * products of floats, of half the depth. Planes, weights and results are those
 * of AMX, too. */
#include "driver/cpu/conv/conv_spread.h"
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/gemm_vec.h"

void
cpu_spread_plane_pairs(const gemm_ops *ops, void *dst, const void *p,
                       int64_t step, int64_t have, int dtype, int64_t n)
{
    (void)ops, (void)dtype;
    const uint16_t *low = p;
    cpu_pairs_copies(dst, 0, low, have > 1 ? low + step : NULL, 0, 1, n, 1);
}

/* Numbers of two channels, the second of which may not be there. */
INLINE __m512i
pair(const uint16_t *p, int64_t step, int64_t have, __mmask16 lanes)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    if (have > 0)
        a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p));
    if (have > 1)
        b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p + step));
    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

void
cpu_spread_turn_pairs(const gemm_ops *ops, void *dst, const void *p,
                      int64_t step, int dtype, int64_t channels, int64_t n)
{
    (void)ops, (void)dtype;
    for (int64_t t = 0; t < n; t += VL) {
        const uint16_t *from = (const uint16_t *)p + t;
        float *to = (float *)dst + t * VL;
        vf r[VL];
        UNROLL for (int i = 0; i < VL; i++) r[i] = (vf)pair(
            from + 2 * i * step, step, channels - 2 * i, first_lanes(n - t));
        transpose(r);
        for (int64_t i = 0; i < min64(VL, n - t); i++)
            store(to + i * VL, r[i]);
    }
}

void
cpu_spread_put2_pairs(void *dst, const float *even, const float *odd,
                      float bias, int64_t n)
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
    spread_taps pairs = *t;
    pairs.depth /= 2, pairs.row /= 2;
    cpu_spread_floats.multiply(ops, acc, &pairs);
}

const spread_unit cpu_spread_pairs = {.size = 2,
                                      .unit = 2,
                                      .pairs = 2,
                                      .run = 128,
                                      .plane = cpu_spread_plane_pairs,
                                      .turn = cpu_spread_turn_pairs,
                                      .put2 = cpu_spread_put2_pairs,
                                      .multiply = multiply};
