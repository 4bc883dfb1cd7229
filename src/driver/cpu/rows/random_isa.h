/* random_isa.h: kernels of random_isa.c by instruction set. */
#ifndef CPU_RANDOM_ISA_H
#define CPU_RANDOM_ISA_H

#include "air_kernel.h"

typedef void random_kernel(const air_call *call, const air_task *task);

#define RANDOM_KERNELS(isa)                                              \
    random_kernel cpu_rand_##isa, cpu_uniform_##isa, cpu_randn_##isa,    \
        cpu_normal_of_##isa, cpu_normal_##isa, cpu_bernoulli_##isa,      \
        cpu_bernoulli_p_##isa, cpu_randint_##isa, cpu_randint_low_##isa, \
        cpu_random_integers_##isa, cpu_randperm_##isa
RANDOM_KERNELS(scalar);
#if defined(__x86_64__)
RANDOM_KERNELS(avx2);
RANDOM_KERNELS(avx512);
#endif
#undef RANDOM_KERNELS

#endif
