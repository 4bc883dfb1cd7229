/* step_pairs.h: a step of sums of products, a pair of bf16 a lane, with
 * VDPBF16PS. */
#ifndef CPU_STEP_PAIRS_H
#define CPU_STEP_PAIRS_H

#include "driver/cpu/product/gemm_vec.h"

INLINE vf
broadcast(const float *w)
{
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    return (vf)_mm512_set1_epi32(pair);
}

INLINE vf
product(vf c, vf x, vf w)
{
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)x, (__m512bh)w);
}

#endif
