/* kernels.h: plain kernels of CALL and EFFECT ops, one a row of kernels.def:
 * `ref` runs nothing else, other drivers fall back on them. Any strides; data
 * moves by element size, so those that only move take every dtype. */
#ifndef REF_KERNELS_H
#define REF_KERNELS_H

#include "air_kernel.h"

typedef void ref_kernel(const air_call *call, const air_task *task);
typedef size_t ref_workspace(const air_call *call, int threads);

#define PLAIN(name, run) ref_kernel run;
#define PLAIN_WS(name, run, workspace) \
    ref_kernel run;                    \
    ref_workspace workspace;
#include "driver/ref/kernels.def"
#undef PLAIN
#undef PLAIN_WS

#endif
