/* attention_backward_isa.c: weights and their gradients, compiled once per
 * instruction set. */
#include "driver/cpu/attention_backward.h"
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

#include <math.h>

/* Lanes [at, at + VL) of a panel. */
INLINE void
half_panel(float *s, float *dp, const float *mask, int64_t keys, vf sums,
           vf dots)
{
    for (int64_t j = 0; j < keys * LANES; j += LANES) {
        vf x = load(s + j);
        if (mask != NULL)
            x += load(mask + j);
        vf p = exp_(x - sums);
        /* where sums are -inf, too; and inf * 0 is NaN */
        vi zero = x == set(-INFINITY);
        vf ds = p * (load(dp + j) - dots);
        store(s + j, (vf)((vi)p & ~zero));
        store(dp + j, (vf)((vi)ds & ~zero));
    }
}

void
ISA_NAME(cpu_weights_backward)(float *s, float *dp, const float *mask,
                               int64_t keys, const float *sums,
                               const float *dots)
{
    for (int64_t h = 0; h < LANES; h += VL)
        half_panel(s + h, dp + h, mask == NULL ? NULL : mask + h, keys,
                   load(sums + h), load(dots + h));
}
