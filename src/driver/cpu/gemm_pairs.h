/* gemm_pairs.h: products of bf16 on CPUs that multiply pairs (VDPBF16PS). */
#ifndef CPU_GEMM_PAIRS_H
#define CPU_GEMM_PAIRS_H

#include "driver/cpu/gemm_core.h"

/* gemm_pairs_isa.c: gemm_ops.tile, panels and rows being pairs. */
void cpu_pairs_tile(float *acc, int64_t nr, const float *panel, int64_t xs,
                    const float *w, int64_t rs, int64_t ks, int64_t kc,
                    bool first, gemm_ahead ahead);
/* dst[(k - k0) * ld + i] = pair k of row r + i of a matrix of bf16, 0 for i >=
 * n. */
void cpu_pairs_pack(float *dst, int64_t ld, const gemm_view *v, int64_t r,
                    int64_t n, int64_t k0, int64_t k1);

#endif
