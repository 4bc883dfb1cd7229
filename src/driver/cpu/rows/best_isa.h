/* best_isa.h: topk of few elements, best_isa.c by instruction set. */
#ifndef CPU_BEST_ISA_H
#define CPU_BEST_ISA_H

#include "air_kernel.h"

#define BEST_KERNELS(isa)                                                 \
    void cpu_best_topk_##isa(const air_call *call, const air_task *task); \
    bool cpu_best_topk_on_##isa(const air_call *call, const char *isa)
BEST_KERNELS(scalar);
#if defined(__x86_64__)
BEST_KERNELS(avx2);
BEST_KERNELS(avx512);
#endif
#undef BEST_KERNELS

#endif
