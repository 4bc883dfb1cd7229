/* correlate_pairs_isa.c: windows over planes of pairs of bf16, which are the
 * same pixel of two channels, with VDPBF16PS. */
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/gemm_vec.h"
#include "driver/cpu/region/step_pairs.h"

#include "driver/cpu/conv/correlate_run.h"

void
cpu_pairs_correlate(const gemm_windows *s, const float *p, const float *w,
                    const float *start, int64_t outs, void *y)
{
    slide_all(s, p, w, start, outs, y);
}

/* n <= VL numbers, one in two of them where stride is 2; no others are read. */
INLINE vu
numbers(const uint16_t *p, int64_t n, const int64_t stride)
{
    const uint32_t even = (uint32_t)((UINT64_C(1) << 2 * n) - 1) & 0x55555555;
    if (stride == 2)
        return (vu)_mm512_maskz_loadu_epi16(even, p);
    return (vu)_mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(first_lanes(n), p));
}

INLINE void
pair_row(uint32_t *dst, const uint16_t *a, const uint16_t *b, int64_t n,
         const int64_t stride)
{
    for (int64_t i = 0; stride <= 2 && i < n; i += VL) {
        const int64_t m = min64(n - i, VL);
        vu v = numbers(a + i * stride, m, stride);
        if (b != NULL)
            v |= numbers(b + i * stride, m, stride) << 16;
        _mm512_mask_storeu_epi32(dst + i, first_lanes(m), (__m512i)v);
    }
    for (int64_t i = 0; stride > 2 && i < n; i++)
        dst[i] = a[i * stride] |
                 (b != NULL ? (uint32_t)b[i * stride] << 16 : UINT32_C(0));
}

void
cpu_pairs_copies(float *dst, int64_t ld, const uint16_t *a, const uint16_t *b,
                 int64_t step, int64_t stride, int64_t n, int64_t count)
{
    uint32_t *to = (uint32_t *)(void *)dst;
    for (int64_t c = 0; c < count; c++, to += ld, a += step) {
        if (stride == 1)
            pair_row(to, a, b, n, 1);
        else if (stride == 2)
            pair_row(to, a, b, n, 2);
        else
            pair_row(to, a, b, n, stride);
        if (b != NULL)
            b += step;
    }
}
