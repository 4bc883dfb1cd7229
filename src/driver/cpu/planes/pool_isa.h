/* pool_isa.h: pooling of floats, kernels of pool_isa.c by instruction set: for
 * each row of pool.def the kernel, its workspace, and what it takes. The rest
 * is left to the plain kernels. */
#ifndef CPU_POOL_ISA_H
#define CPU_POOL_ISA_H

#include "air_kernel.h"

#define POOL_OF(isa, name)                                               \
    void cpu_##name##_##isa(const air_call *call, const air_task *task); \
    size_t cpu_##name##_size_##isa(const air_call *call, int threads);   \
    bool cpu_##name##_on_##isa(const air_call *call, const char *isa_name);
/* f64 has kernels of its own. */
#define POOL_ON(isa, name) POOL_OF(isa, name) POOL_OF(isa, f64_##name)
#if defined(__x86_64__)
#define POOL(name, ...)   \
    POOL_ON(scalar, name) \
    POOL_ON(avx2, name)   \
    POOL_ON(avx512, name)
#else
#define POOL(name, ...) POOL_ON(scalar, name)
#endif
#include "driver/cpu/planes/pool.def"
#undef POOL
#undef POOL_ON
#undef POOL_OF

#endif
