/* gemm_call.h: what a call of mm, bmm, addmm or baddbmm asks for. */
#ifndef CPU_GEMM_CALL_H
#define CPU_GEMM_CALL_H

#include "driver/cpu/product/gemm_core.h"

/* task NULL: sizes and strides only, no pointers. */
gemm_product cpu_gemm_product(const air_call *call, const air_task *task);
gemm_job cpu_gemm_job_at(const gemm_product *p, int64_t i);
/* All of it, by every thread of the task; bytes of its workspace. */
void cpu_gemm_product_run(const gemm_product *p, const gemm_ops *ops,
                          const air_task *task);
size_t cpu_gemm_product_workspace(const gemm_product *p, int threads);

#endif
