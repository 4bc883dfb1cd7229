/* conv_direct.h: convolutions of few channels, without columns. */
#ifndef CPU_CONV_DIRECT_H
#define CPU_CONV_DIRECT_H

#include "driver/cpu/conv/conv_columns.h"

/* Does it pay, and does what one row of results sees fit in AIR_SCRATCH? */
bool cpu_conv_is_direct(const conv_geometry *g);
/* The call of cpu_convolution: every thread of a region calls it. */
void cpu_conv_direct(const air_call *call, const conv_geometry *g,
                     const gemm_ops *ops, const air_task *task);

/* The call of cpu_convolution_weight, of one channel a group: sums[co][tap] of
 * its groups, which threads share. `rows`: AIR_SCRATCH bytes of this thread. */
bool cpu_conv_weight_is_direct(const conv_geometry *g);
void cpu_conv_direct_weight(const air_call *call, const conv_geometry *g,
                            const gemm_ops *ops, const air_task *task,
                            float *rows);

#endif
