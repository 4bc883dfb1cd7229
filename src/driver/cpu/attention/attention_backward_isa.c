/* attention_backward_isa.c: weights and their gradients, compiled once per
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
        vf p = exp_(x - h->sums);
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

void
ISA_NAME(cpu_weights_backward)(float *s, float *dp, const float *mask,
                               int64_t keys, int64_t last, const float *sums,
                               const float *dots)
{
    for (int64_t l = 0; l < LANES; l += VL) {
        half h = {mask == NULL ? NULL : mask + l, load(sums + l),
                  load(dots + l)};
        half_panel(&h, s + l, dp + l, keys, last + l);
    }
}
