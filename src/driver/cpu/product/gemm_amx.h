/* gemm_amx.h: one product of bf16 matrices on AMX, for kernels that make their
 * own panels. */
#ifndef CPU_GEMM_AMX_H
#define CPU_GEMM_AMX_H

#include "driver/cpu/product/amx_isa.h"

typedef struct {
    const gemm_job *job; /* k at least 1; a stride of x is 1 */
    /* NULL: panels come from w; else this makes them, as amx_pack */
    void (*pack)(const void *arg, uint16_t *panel, int64_t r0, int64_t n);
    const void *pack_arg;
    uint16_t *memory; /* of this thread, cpu_amx_size(job) elements */
    float *acc;       /* of this thread, AIR_SCRATCH bytes */
} amx_product;

/* Elements; depends on sizes only. */
int64_t cpu_amx_size(const gemm_job *job);
/* Part `id` of `count`, between amx_begin and amx_end; parts need no barrier.
 */
void cpu_amx_run(const amx_product *p, int id, int count);
/* limits_amx_isa.c */
float cpu_amx_limits(int64_t rounds, float x, double *flops);

#endif
