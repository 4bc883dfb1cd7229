/* gemm_pairs.c: mm, bmm, addmm and baddbmm of bf16 with VDPBF16PS.
 *
 * A pair of elements along k is a number of 32 bits, and a product of half the
 * depth: gemm.c runs it as if pairs were floats (depths are even). Rows of
 * pairs are used where they lie and copied as floats are; columns are made
 * pairs when they are packed. Sums are floats; subnormal factors and results
 * count as zero, as in oneDNN. */
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_call.h"
#include "driver/cpu/region/region_join.h"

/* A view of pairs, which move as floats do, where its rows consist of them. */
static gemm_view
pair_view(const gemm_view *v)
{
    gemm_view out = *v;
    if (v->ks != 1 || v->rs % 2 != 0)
        return out;
    out.rs /= 2;
    out.dtype = AIR_F32;
    return out;
}

static void
pack_x(float *panel, const gemm_view *x, int64_t l0, int64_t nl, int64_t k0,
       int64_t k1)
{
    if (x->dtype == AIR_F32)
        cpu_gemm_avx512.pack_x(panel, x, l0, nl, k0, k1);
    else
        cpu_pairs_pack(panel, cpu_gemm_avx512.lanes, x, l0, nl, k0, k1);
}

static void
pack_w(float *block, const gemm_view *w, int64_t r0, int64_t r1, int64_t k0,
       int64_t k1, int64_t *out_rs, int64_t *out_ks)
{
    if (w->dtype == AIR_F32) {
        cpu_gemm_avx512.pack_w(block, w, r0, r1, k0, k1, out_rs, out_ks);
        return;
    }
    *out_rs = 1;
    *out_ks = GEMM_MB;
    cpu_pairs_pack(block, GEMM_MB, w, r0, r1 - r0, k0, k1);
}

static gemm_product
pair_product(const air_call *call, const air_task *task)
{
    gemm_product p = cpu_gemm_product(call, task);
    const bool even = p.batch == 1 || (p.x_step % 2 == 0 && p.w_step % 2 == 0);
    if (even) {
        p.job.x = pair_view(&p.job.x);
        p.job.w = pair_view(&p.job.w);
        p.x_step /= p.job.x.dtype == AIR_F32 ? 2 : 1;
        p.w_step /= p.job.w.dtype == AIR_F32 ? 2 : 1;
    }
    p.job.k /= 2;
    p.job.pairs = true;
    return p;
}

/* Then few rows need no copy of them (gemm.c: dots). */
static bool
rows_are_pairs(const gemm_product *p)
{
    const gemm_view *x = &p->job.x, *w = &p->job.w;
    bool even = x->rs % 2 == 0 && w->rs % 2 == 0;
    bool steps = p->batch == 1 || (p->x_step % 2 == 0 && p->w_step % 2 == 0);
    return x->ks == 1 && w->ks == 1 && even && steps;
}

/* Where they take two cycles the rate of memory hides it for so many rows. */
#define SLOW_MAX 4

bool
cpu_gemm_on_pairs(const air_call *call, const char *isa)
{
    const bool fast = cpu_isa_has_fast_pairs(isa);
    gemm_product p = cpu_gemm_product(call, NULL);
    const gemm_job *job = &p.job;
    if (job->x.dtype != AIR_BF16 || job->w.dtype != AIR_BF16 ||
        job->y_dtype != AIR_BF16 || job->k <= 0 || job->k % 2 != 0)
        return false;
    const int64_t few = job->nx < job->nw ? job->nx : job->nw;
    if (few > GEMV_MAX)
        return fast;
    return rows_are_pairs(&p) &&
           (fast || (cpu_isa_has_pairs(isa) && few <= SLOW_MAX));
}

size_t
cpu_gemm_pairs_workspace(const air_call *call, int threads)
{
    gemm_product p = pair_product(call, NULL);
    return cpu_join_workspace(call->extra,
                              cpu_gemm_product_workspace(&p, threads), threads);
}

gemm_ops
cpu_pairs_ops(void)
{
    gemm_ops ops = cpu_gemm_avx512;
    ops.pack_x = pack_x;
    ops.pack_w = pack_w;
    ops.tile = cpu_pairs_tile;
    ops.dots = cpu_pairs_dots;
    ops.correlate = cpu_pairs_correlate;
    ops.copy_pairs = cpu_pairs_copies;
    ops.finish = cpu_pairs_finish;
    ops.finish_rows = cpu_pairs_finish_rows;
    return ops;
}

void
cpu_gemm_pairs(const air_call *call, const air_task *task)
{
    gemm_ops ops = cpu_pairs_ops();
    cpu_join_run join;
    gemm_product p = pair_product(call, task);
    p.job.lines = cpu_join_begin(&join, call, task,
                                 cpu_gemm_product_workspace(&p, task->count));
    cpu_gemm_product_run(&p, &ops, task);
}
