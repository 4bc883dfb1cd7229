/* gemm.h: the contraction kernels, for the kernel table. Each exists once per
 * instruction set: cpu_mm_avx2. All share the workspace function. */
#ifndef CPU_GEMM_H
#define CPU_GEMM_H

#include "air_kernel.h"

/* Rows of the kernel table for one instruction set and those above it. */
bool cpu_on_avx512(const air_call *call, const char *isa);
bool cpu_on_avx2(const air_call *call, const char *isa);
bool cpu_on_scalar(const air_call *call, const char *isa); /* any */
/* Row-major, without gaps. */
bool cpu_is_dense(const air_tensor *t);
bool cpu_sdpa_on_avx512(const air_call *call, const char *isa);
bool cpu_sdpa_on_avx2(const air_call *call, const char *isa);
bool cpu_sdpa_on_scalar(const air_call *call, const char *isa);
bool cpu_quantised_mm_on_avx512(const air_call *call, const char *isa);
bool cpu_quantised_mm_on_avx2(const air_call *call, const char *isa);
bool cpu_quantised_mm_on_scalar(const air_call *call, const char *isa);
bool cpu_fused_attention_on_avx512(const air_call *call, const char *isa);
bool cpu_fused_attention_on_avx2(const air_call *call, const char *isa);
bool cpu_fused_attention_on_scalar(const air_call *call, const char *isa);
bool cpu_convolution_on_avx512(const air_call *call, const char *isa);
bool cpu_convolution_on_avx2(const air_call *call, const char *isa);
bool cpu_convolution_on_scalar(const air_call *call, const char *isa);

#define GEMM_KERNEL(name)                                                 \
    void cpu_##name##_avx512(const air_call *call, const air_task *task); \
    void cpu_##name##_avx2(const air_call *call, const air_task *task);   \
    void cpu_##name##_scalar(const air_call *call, const air_task *task); \
    size_t cpu_##name##_workspace(const air_call *call, int threads);
GEMM_KERNEL(mm)
GEMM_KERNEL(bmm)
GEMM_KERNEL(addmm)
GEMM_KERNEL(baddbmm)
GEMM_KERNEL(quantised_mm)
GEMM_KERNEL(sdpa)
GEMM_KERNEL(fused_attention)
GEMM_KERNEL(convolution)
#undef GEMM_KERNEL

/* Whose results regions may take (region_join.h)? */
bool cpu_gemm_joins(const air_call *call);
bool cpu_convolution_joins(const air_call *call);

/* gemm_pairs.c: mm, bmm, addmm, baddbmm of bf16 */
bool cpu_gemm_on_pairs(const air_call *call, const char *isa);
void cpu_gemm_pairs(const air_call *call, const air_task *task);
size_t cpu_gemm_pairs_workspace(const air_call *call, int threads);

/* grouped.c, for each instruction set one */
#define GROUPED(isa)                                                       \
    bool cpu_grouped_mm_on_##isa(const air_call *call, const char *of);    \
    void cpu_grouped_mm_##isa(const air_call *call, const air_task *task); \
    size_t cpu_grouped_mm_##isa##_workspace(const air_call *call, int count);
GROUPED(amx)
GROUPED(avx512_bf16)
GROUPED(avx512)
GROUPED(avx2)
GROUPED(scalar)
#undef GROUPED

/* quantised.c: few rows of bf16 */
bool cpu_quantised_mm_on_digits(const air_call *call, const char *isa);
void cpu_quantised_mm_digits(const air_call *call, const air_task *task);
size_t cpu_quantised_mm_digits_workspace(const air_call *call, int threads);
bool cpu_quantised_mm_on_pairs(const air_call *call, const char *isa);
void cpu_quantised_mm_pairs(const air_call *call, const air_task *task);
size_t cpu_quantised_mm_pairs_workspace(const air_call *call, int threads);

/* gemm_amx.c: mm, bmm, addmm, baddbmm of bf16 */
bool cpu_gemm_on_amx(const air_call *call, const char *isa);
/* Where it is faster than the library measured (oneDNN), too. */
bool cpu_gemm_best_on_amx(const air_call *call, const char *isa);
void cpu_gemm_amx(const air_call *call, const air_task *task);
size_t cpu_gemm_amx_workspace(const air_call *call, int threads);
/* conv_pairs.c: of bf16 */
bool cpu_convolution_on_pairs(const air_call *call, const char *isa);
void cpu_convolution_pairs(const air_call *call, const air_task *task);
size_t cpu_convolution_pairs_workspace(const air_call *call, int threads);
/* conv_amx.c */
bool cpu_convolution_on_amx(const air_call *call, const char *isa);
void cpu_convolution_amx(const air_call *call, const air_task *task);
size_t cpu_convolution_amx_workspace(const air_call *call, int threads);
/* attention_amx.c: of bf16, more rows than the dot kernels take */
bool cpu_sdpa_on_amx(const air_call *call, const char *isa);
void cpu_sdpa_amx(const air_call *call, const air_task *task);
size_t cpu_sdpa_amx_workspace(const air_call *call, int threads);
/* attention_pairs.c: the same without AMX, of an even depth */
bool cpu_sdpa_on_pairs(const air_call *call, const char *isa);
void cpu_sdpa_pairs(const air_call *call, const air_task *task);
/* fused_attention.c: the same of fused attention */
bool cpu_fused_attention_on_pairs(const air_call *call, const char *isa);
void cpu_fused_attention_pairs(const air_call *call, const air_task *task);

#endif
