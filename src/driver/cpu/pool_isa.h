/* pool_isa.h: pooling of f32 planes, kernels of pool_isa.c by instruction set.
 * What pool_takes_* refuses is left to the plain kernels. */
#ifndef CPU_POOL_ISA_H
#define CPU_POOL_ISA_H

#include "air_kernel.h"

typedef void pool_kernel(const air_call *call, const air_task *task);
typedef bool pool_accept(const air_call *call, const char *isa);

#define POOL_KERNELS(isa)                                            \
    pool_kernel cpu_max_pool2d_##isa, cpu_max_pool2d_backward_##isa, \
        cpu_avg_pool2d_##isa, cpu_adaptive_avg_pool2d_##isa;         \
    pool_accept cpu_pool_on_##isa, cpu_pool_backward_on_##isa
POOL_KERNELS(scalar);
#if defined(__x86_64__)
POOL_KERNELS(avx2);
POOL_KERNELS(avx512);
#endif
#undef POOL_KERNELS

#endif
