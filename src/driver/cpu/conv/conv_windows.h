/* conv_windows.h: convolutions of f32, or of pairs of bf16, with windows of
 * several taps, whose columns are made from padded planes. */
#ifndef CPU_CONV_WINDOWS_H
#define CPU_CONV_WINDOWS_H

#include "driver/cpu/conv/conv_columns.h"

/* Are there several taps, does what a row of results sees fit in a cache, and
 * are there so many places that pairs of weights pay? */
bool cpu_conv_is_windows(const air_call *call, const conv_geometry *g,
                         bool pairs);
/* Bytes, without what a joined region needs. */
size_t cpu_conv_windows_workspace(const air_call *call, const conv_geometry *g,
                                  bool pairs, int threads);
/* The call of cpu_convolution: every thread of a region calls it. */
void cpu_conv_windows(const air_call *call, const conv_geometry *g, bool pairs,
                      const gemm_ops *ops, const air_task *task);

#endif
