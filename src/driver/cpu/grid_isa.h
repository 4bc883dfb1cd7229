/* grid_isa.h: grid_sampler of f32 and its gradients, kernels of grid_isa.c by
 * instruction set; the rest is left to the plain kernels. */
#ifndef CPU_GRID_ISA_H
#define CPU_GRID_ISA_H

#include "air_kernel.h"

#define GRID_ON(isa)                                                         \
    bool cpu_grid_sampler_on_##isa(const air_call *call, const char *isa);   \
    bool cpu_grid_sampler_backward_on_##isa(const air_call *call,            \
                                            const char *isa);                \
    void cpu_grid_sampler_##isa(const air_call *call, const air_task *task); \
    void cpu_grid_sampler_backward_##isa(const air_call *call,               \
                                         const air_task *task);
GRID_ON(scalar)
#if defined(__x86_64__)
GRID_ON(avx2)
GRID_ON(avx512)
#endif
#undef GRID_ON

#endif
