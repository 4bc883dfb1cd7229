/* order_isa.h: sort and topk of short rows, kernels of order_isa.c by
 * instruction set. What they refuse is left to the plain kernels. */
#ifndef CPU_ORDER_ISA_H
#define CPU_ORDER_ISA_H

#include "air_kernel.h"

typedef void order_kernel(const air_call *call, const air_task *task);
typedef bool order_accept(const air_call *call, const char *isa);

#define ORDER_KERNELS(isa)                                              \
    order_kernel cpu_sort_##isa, cpu_sort_stable_##isa, cpu_topk_##isa; \
    order_accept cpu_sort_on_##isa, cpu_sort_stable_on_##isa, cpu_topk_on_##isa
ORDER_KERNELS(scalar);
#if defined(__x86_64__)
ORDER_KERNELS(avx2);
ORDER_KERNELS(avx512);
#endif
#undef ORDER_KERNELS

#endif
