/* attention_backward_isa.c: weights and their gradients, dot products
 * of rows with rows, compiled once per
 * instruction set. */
#include "driver/cpu/attention/attention_backward.h"
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#include <math.h>

typedef struct {
    const float *mask;
    vf sums, dots;
} half;

/* Keys [b, e) of VL lanes. Lane l sees keys up to last + l, where `edge`. */
INLINE void
half_keys(const bool edge, const half *h, float *s, float *dp, int64_t b,
          int64_t e, int32_t last)
{
    const vi lanes = LANE_NUMBERS;
    for (int64_t k = b; k < e; k++) {
        int64_t j = k * LANES;
        vf x = load(s + j);
        if (h->mask != NULL)
            x += load(h->mask + j);
        vf p = exp_least(x - h->sums);
        /* where sums are -inf, too; and inf * 0 is NaN */
        vi zero = x == set(-INFINITY);
        if (edge)
            zero |= lanes + last < (vi){0} + (int32_t)k;
        vf ds = p * (load(dp + j) - h->dots);
        store(s + j, (vf)((vi)p & ~zero));
        store(dp + j, (vf)((vi)ds & ~zero));
    }
}

INLINE void
half_panel(const half *h, float *s, float *dp, int64_t keys, int64_t last)
{
    int64_t even = last >= keys ? keys : last < -1 ? 0 : last + 1;
    int32_t at = (int32_t)(last < -LANES ? -LANES : last >= keys ? 0 : last);
    half_keys(false, h, s, dp, 0, even, at);
    half_keys(true, h, s, dp, even, keys, at);
}

static void
weights(float *s, float *dp, const float *mask, int64_t keys, int64_t last,
        const float *sums, const float *dots)
{
    for (int64_t l = 0; l < LANES; l += VL) {
        half h = {mask == NULL ? NULL : mask + l, load(sums + l),
                  load(dots + l)};
        half_panel(&h, s + l, dp + l, min64(keys, last + l + VL), last + l);
    }
}

/* ---- dot products -------------------------------------------------------- */

/* a . b, of whole vectors: their lanes are still to be added. */
INLINE vf
row_dot(const float *a, const void *b, int64_t width, const int D)
{
    vf c = {0};
    for (int64_t d = 0; d + VL <= width; d += VL)
        c = fma_(load(a + d), vget(b, d, D), c);
    return c;
}

/* What is left of a row. */
INLINE float
row_rest(const float *a, const void *b, int64_t width, const int D)
{
    float c = 0;
    for (int64_t d = width / VL * VL; d < width; d++)
        c += a[d] * get(b, d, D);
    return c;
}

/* As many rows at once as a vector has lanes: one sum across lanes for all. */
INLINE void
rows_dots(float *dots, const float *a, int64_t as, const char *b, int64_t step,
          int64_t n, int64_t width, const int D)
{
    vf c[VL];
    float rest[VL] = {0};
    for (int i = 0; i < VL; i++) {
        c[i] = i < n ? row_dot(a, b, width, D) : (vf){0};
        rest[i] = i < n ? row_rest(a, b, width, D) : 0;
        a += as, b += step;
    }
    vf sums = fold(c) + load(rest);
    memcpy(dots, &sums, (size_t)(n < VL ? n : VL) * sizeof *dots);
}

static void
dots(float *to, const float *a, int64_t as, const void *b, int64_t bs,
     int dtype, int64_t n, int64_t width)
{
    const int64_t step = bs * (dtype == AIR_F32 ? 4 : 2);
    for (int64_t r = 0; r < n; r += VL) {
        const char *p = (const char *)b + r * step;
        if (dtype == AIR_F32)
            rows_dots(to + r, a + r * as, as, p, step, n - r, width, AIR_F32);
        else if (dtype == AIR_BF16)
            rows_dots(to + r, a + r * as, as, p, step, n - r, width, AIR_BF16);
        else
            rows_dots(to + r, a + r * as, as, p, step, n - r, width, AIR_F16);
    }
}

const backward_ops ISA_NAME(cpu_attention_backward) = {weights, dots};
