/* kern_call.h: the functions that rows of kernels.def name. */
#ifndef CUDA_KERN_CALL_H
#define CUDA_KERN_CALL_H

#include "driver/cuda/kern.h"

bool kern_any(const air_call *call, const cuda_props *props);

#define KERNEL(name, accept, print, workspace)                      \
    bool accept(const air_call *call, const cuda_props *props);     \
    air_status print(const air_call *call, const cuda_props *props, \
                     cuda_source *out);
#define PRODUCT(name)
#include "driver/cuda/kernels.def"
#undef KERNEL

/* Products of cuBLASLt: blas.c */
bool cuda_blas_on(const air_call *call, const cuda_props *props);
air_status cuda_blas_print(const air_call *call, const cuda_props *props,
                           cuda_source *out);
size_t cuda_blas_workspace(const air_call *call, const cuda_props *props);
size_t cuda_words_workspace(const air_call *call, const cuda_props *props);
size_t kern_unpacked_workspace(const air_call *call, const cuda_props *props);
size_t kern_best_workspace(const air_call *call, const cuda_props *props);

/* The result begins as the first argument, unless they are one memory. */
void kern_print_start(cuda_source *out, const cuda_props *props,
                      const air_call *call);

#endif
