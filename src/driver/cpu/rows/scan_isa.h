/* scan_isa.h: running sums, products and extremes of dense tensors, kernels of
 * scan_isa.c by instruction set. What they refuse is left to the plain kernels.
 */
#ifndef CPU_SCAN_ISA_H
#define CPU_SCAN_ISA_H

#include "air_kernel.h"

typedef void scan_kernel(const air_call *call, const air_task *task);
typedef bool scan_accept(const air_call *call, const char *isa);

#define SCAN_KERNELS(isa)                            \
    scan_kernel cpu_cumsum_##isa, cpu_cumprod_##isa; \
    scan_kernel cpu_cummax_##isa, cpu_cummin_##isa;  \
    scan_accept cpu_scan_on_##isa, cpu_scan_best_on_##isa
SCAN_KERNELS(scalar);
#if defined(__x86_64__)
SCAN_KERNELS(avx2);
SCAN_KERNELS(avx512);
#endif
#undef SCAN_KERNELS

#endif
