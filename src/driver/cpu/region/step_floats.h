/* step_floats.h: a step of sums of products, one f32 a lane. */
#ifndef CPU_STEP_FLOATS_H
#define CPU_STEP_FLOATS_H

#include "driver/cpu/product/gemm_vec.h"

INLINE vf
broadcast(const float *w)
{
    return set(*w);
}

INLINE vf
product(vf c, vf x, vf w)
{
    return fma_(x, w, c);
}

#endif
