/* gemm_few.h: products of so few rows or columns that panels do not pay. */
#ifndef CPU_GEMM_FEW_H
#define CPU_GEMM_FEW_H

#include "driver/cpu/product/gemm_core.h"

/* Few columns: they lie in the lanes. */
bool cpu_gemm_is_thin(const gemm_job *job);
void cpu_gemm_thin(const gemm_job *job, const gemm_ops *ops,
                   const gemm_team *team);

/* Few lanes: dot products with rows of w. */
bool cpu_gemm_is_dots(const gemm_job *job);
void cpu_gemm_dots(const gemm_job *job, const gemm_ops *ops,
                   const gemm_team *team);
/* No: each lane becomes k floats of the team's panels. */
bool cpu_gemm_dots_in_place(const gemm_job *job);

/* Few rows of w, adjacent lanes: x streams through once. */
bool cpu_gemm_is_stream(const gemm_job *job);
void cpu_gemm_streams(const gemm_job *job, const gemm_ops *ops,
                      const gemm_team *team);

#endif
