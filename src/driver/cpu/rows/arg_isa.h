/* arg_isa.h: where the best element of a row is, kernels of arg_isa.c by
 * instruction set. What arg_on refuses is left to the plain kernels. */
#ifndef CPU_ARG_ISA_H
#define CPU_ARG_ISA_H

#include "air_kernel.h"

typedef void arg_kernel(const air_call *call, const air_task *task);
typedef bool arg_accept(const air_call *call, const char *isa);

#define ARG_KERNELS(isa)                                              \
    arg_kernel cpu_argmax_##isa, cpu_argmin_##isa, cpu_max_dim_##isa, \
        cpu_min_dim_##isa;                                            \
    arg_accept cpu_arg_on_##isa
ARG_KERNELS(scalar);
#if defined(__x86_64__)
ARG_KERNELS(avx2);
ARG_KERNELS(avx512);
#endif
#undef ARG_KERNELS

#endif
