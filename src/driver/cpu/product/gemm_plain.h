/* gemm_plain.h: matrix products of f64 and integers by a plain loop. */
#ifndef CPU_GEMM_PLAIN_H
#define CPU_GEMM_PLAIN_H

#include "driver/cpu/product/gemm_core.h"

/* All threads of the task, without a barrier inside. */
void cpu_gemm_plain(const gemm_job *job, const air_task *task);

#endif
