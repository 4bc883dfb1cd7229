/* bag_isa.h: sums and averages of embedding_bag, kernels of bag_isa.c by
 * instruction set; the rest is left to the plain kernels. */
#ifndef CPU_BAG_ISA_H
#define CPU_BAG_ISA_H

#include "air_kernel.h"

#define BAG_ON(isa)                                                         \
    bool cpu_embedding_bag_on_##isa(const air_call *call, const char *isa); \
    void cpu_embedding_bag_##isa(const air_call *call, const air_task *task);
BAG_ON(scalar)
#if defined(__x86_64__)
BAG_ON(avx2)
BAG_ON(avx512)
#endif
#undef BAG_ON

#endif
