/* gemm_plan.h: which side of a matrix product lies in the lanes, and what of
 * both is read where it lies. */
#ifndef CPU_GEMM_PLAN_H
#define CPU_GEMM_PLAN_H

#include "driver/cpu/product/gemm_core.h"

/* Floats of a thread's scratch: sums, a block of w, the last lanes of x. */
#define ACC_FLOATS  (GEMM_MB * GEMM_NB)
#define W_FLOATS    (GEMM_MB * GEMM_WB)
#define ALL_FLOATS  ((int64_t)(AIR_SCRATCH / sizeof(float)))
#define REST_FLOATS (ALL_FLOATS - ACC_FLOATS - W_FLOATS)

#define REST_MAX 2 /* lanes */

/* Rows or columns of w need no copy. */
bool gemm_w_in_place(const gemm_view *w);
/* Nor do full panels, if that is faster: their lanes are adjacent. */
bool gemm_x_in_place(const gemm_job *job);
/* The last lanes that dot products with the rows of w take: too few for a
 * vector, REST_MAX at most. */
int64_t gemm_rest_lanes(const gemm_job *job);
/* The job, or the same with its sides exchanged: what takes less. */
gemm_job gemm_plan(const gemm_job *job);

#endif
