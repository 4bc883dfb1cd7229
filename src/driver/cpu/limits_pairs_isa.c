/* limits_pairs_isa.c: products of pairs of bf16 that limits.c times. */
#include "driver/cpu/product/gemm_pairs.h"

#include <immintrin.h>

#define CHAINS 12 /* sums that do not wait for each other */

/* Multiplications and additions of `rounds` rounds: *flops. */
float
cpu_pairs_limits(int64_t rounds, float x, double *flops)
{
    const __m512bh a =
        _mm512_cvtne2ps_pbh(_mm512_set1_ps(x), _mm512_set1_ps(x));
    __m512 c[CHAINS];

#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        c[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            c[i] = _mm512_dpbf16_ps(c[i], a, a);
    }
#pragma GCC unroll 12
    for (int i = 1; i < CHAINS; i++)
        c[0] = _mm512_add_ps(c[0], c[i]);
    *flops = 2.0 * 32 * CHAINS * (double)rounds;
    return _mm512_reduce_add_ps(c[0]);
}
