/* conv_winograd.h: convolutions of f32 with windows of 3 x 3, in fewer
 * multiplications. */
#ifndef CPU_CONV_WINOGRAD_H
#define CPU_CONV_WINOGRAD_H

#include "driver/cpu/conv/conv_columns.h"

/* Does it pay, and do a row's tiles fit in a cache? */
bool cpu_conv_is_winograd(const air_call *call, const conv_geometry *g);
/* Bytes, without what a joined region needs. */
size_t cpu_conv_winograd_workspace(const air_call *call, const conv_geometry *g,
                                   int threads);
/* The call of cpu_convolution: every thread of a region calls it. */
void cpu_conv_winograd(const air_call *call, const conv_geometry *g,
                       const gemm_ops *ops, const air_task *task);

#endif
