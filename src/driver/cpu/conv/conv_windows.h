/* conv_windows.h: convolutions of f32 with windows of several taps, whose
 * columns are made from padded planes. */
#ifndef CPU_CONV_WINDOWS_H
#define CPU_CONV_WINDOWS_H

#include "driver/cpu/conv/conv_columns.h"

/* Are there several taps, and does what a row of results sees fit in a cache?
 */
bool cpu_conv_is_windows(const air_call *call, const conv_geometry *g);
/* Bytes, without what a joined region needs. */
size_t cpu_conv_windows_workspace(const air_call *call, const conv_geometry *g,
                                  int threads);
/* The call of cpu_convolution: every thread of a region calls it. */
void cpu_conv_windows(const air_call *call, const conv_geometry *g,
                      const gemm_ops *ops, const air_task *task);

#endif
