/* kern_call.h: the functions that rows of kernels.def name. */
#ifndef CUDA_KERN_CALL_H
#define CUDA_KERN_CALL_H

#include "driver/cuda/kern.h"

bool kern_any(const air_call *call, const cuda_props *props);

#define KERNEL(name, accept, print, workspace)                      \
    bool accept(const air_call *call, const cuda_props *props);     \
    air_status print(const air_call *call, const cuda_props *props, \
                     cuda_source *out);
#include "driver/cuda/kernels.def"
#undef KERNEL

/* The result begins as the first argument, unless they are one memory. */
void kern_print_start(cuda_source *out, const cuda_props *props,
                      const air_call *call);

#endif
