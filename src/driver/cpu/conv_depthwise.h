/* conv_depthwise.h: convolutions of one channel in and up to four out a group.
 */
#ifndef CPU_CONV_DEPTHWISE_H
#define CPU_CONV_DEPTHWISE_H

#include "driver/cpu/conv_columns.h"

/* Does it pay, and does what one row of results sees fit in AIR_SCRATCH? */
bool cpu_conv_is_depthwise(const conv_geometry *g);
/* The call of cpu_convolution: every thread of a region calls it. */
void cpu_conv_depthwise(const air_call *call, const conv_geometry *g,
                        const gemm_ops *ops, const air_task *task);

#endif
