/* conv.h: convolution as a product, for kernels with loops of their own. */
#ifndef CPU_CONV_H
#define CPU_CONV_H

#include "driver/cpu/conv/conv_columns.h"

/* Can `run` take it: dense operands of floats, not transposed? */
bool cpu_conv_takes(const air_call *call);
/* Group `i % groups` of image `i / groups` as a product of the image as it
 * lies; task NULL: sizes only. */
gemm_job cpu_conv_job(const air_call *call, const conv_geometry *g, int64_t i,
                      const air_task *task);
/* g: cpu_conv_forward(call). pairs: panels and weights are pairs of bf16
 * (conv_pairs.c). */
void cpu_conv_run(const air_call *call, const conv_geometry *g,
                  const air_task *task, const gemm_ops *ops, bool pairs);
/* Bytes, without what a joined region needs. */
size_t cpu_conv_workspace(const air_call *call, const conv_geometry *g,
                          int threads, bool pairs);

#endif
