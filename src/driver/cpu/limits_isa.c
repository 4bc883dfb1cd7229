/* limits_isa.c: what limits.c times, compiled once per instruction set. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#define CHAINS 12 /* sums that do not wait for each other */

float
ISA_NAME(limits_read)(const float *p, int64_t n)
{
    vf c[8];
    UNROLL for (int i = 0; i < 8; i++) c[i] = (vf){0};
    for (; n >= 8 * VL; n -= 8 * VL, p += 8 * VL) {
        __builtin_prefetch(p + 256);
        UNROLL for (int i = 0; i < 8; i++) c[i] += load(p + i * VL);
    }
    UNROLL for (int i = 1; i < 8; i++) c[0] += c[i];
    return sum(c[0]);
}

/* Multiplications and additions of `rounds` rounds: *flops. */
float
ISA_NAME(limits_compute)(int64_t rounds, float x, double *flops)
{
    vf c[CHAINS], a = set(x), b = set(1 - x);
    UNROLL for (int i = 0; i < CHAINS; i++) c[i] = set((float)i);
    for (int64_t r = 0; r < rounds; r++)
        UNROLL for (int i = 0; i < CHAINS; i++) c[i] = fma_(c[i], a, b);
    UNROLL for (int i = 1; i < CHAINS; i++) c[0] += c[i];
    *flops = 2.0 * VL * CHAINS * (double)rounds;
    return sum(c[0]);
}
