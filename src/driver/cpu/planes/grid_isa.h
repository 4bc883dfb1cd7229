/* grid_isa.h: grid_sampler of f32 and f64 and its gradients, kernels of
 * grid_isa.c by instruction set; the rest is left to the plain kernels. */
#ifndef CPU_GRID_ISA_H
#define CPU_GRID_ISA_H

#include "air_kernel.h"

#define GRID_OF(isa, name)                                                  \
    bool cpu_##name##_on_##isa(const air_call *call, const char *isa_name); \
    void cpu_##name##_##isa(const air_call *call, const air_task *task);
#define GRID_ON(isa)                    \
    GRID_OF(isa, grid_sampler)          \
    GRID_OF(isa, f64_grid_sampler)      \
    GRID_OF(isa, grid_sampler_backward) \
    GRID_OF(isa, f64_grid_sampler_backward)
GRID_ON(scalar)
#if defined(__x86_64__)
GRID_ON(avx2)
GRID_ON(avx512)
#endif
#undef GRID_ON
#undef GRID_OF

#endif
