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

/* Numbers i .. i + VL - 1 of a row, one in two of them where stride is 2. */
INLINE vu
numbers(const uint16_t *p, int64_t i, const int stride)
{
    vh h;
    vu v;
    if (stride == 1) {
        memcpy(&h, p + i, sizeof h);
        return widen_halves(h);
    }
    memcpy(&v, p + 2 * i, sizeof v);
    return v & 0xffff;
}

INLINE void
pair_row(uint32_t *dst, const uint16_t *a, const uint16_t *b, int64_t n,
         const int64_t stride)
{
    /* of every second number, the one behind the last is not there */
    const int64_t end = stride == 1 ? n : n - 1, last = end - VL;
    int64_t i = 0;
    for (; stride <= 2 && i < end && last >= 0; i += VL) {
        i = min64(i, last); /* the last vector: again a few */
        vu v = numbers(a, i, (int)stride);
        if (b != NULL)
            v |= numbers(b, i, (int)stride) << 16;
        memcpy(dst + i, &v, sizeof v);
    }
    for (; i < n; i++)
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
