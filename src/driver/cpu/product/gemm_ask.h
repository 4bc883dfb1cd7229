/* gemm_ask.h: lines of the cache that a product asks for before it needs them:
 * they are on the way while sums are made. */
#ifndef CPU_GEMM_ASK_H
#define CPU_GEMM_ASK_H

#include "driver/cpu/product/gemm_core.h"

/* Those of the result that a panel from lane l on and rows [r, r + nr) fill,
 * which lie on as many pages, and of what lies beside it. */
void cpu_gemm_ask_lines(const gemm_job *job, int64_t l, int64_t r, int64_t nr);
/* Along rows, on a page each as well: those that the last of rows [r, r + nr)
 * lie in, of lanes [l, l + nl). */
void cpu_gemm_ask_ends(const gemm_job *job, int64_t l, int64_t nl, int64_t r,
                       int64_t nr);

#endif
