/* gemm_plan.c: which side of a matrix product lies in the lanes, and what of
 * both is read where it lies. */
#include "driver/cpu/product/gemm_plan.h"

#include <math.h>

/* Columns are read a piece of a line for each step of k, wherever the next one
 * is: the CPU looks so far ahead that a copy costs more. Rows of a multiple of
 * 4 KB share a set of the cache, and are. */
bool
gemm_w_in_place(const gemm_view *w)
{
    return w->dtype == AIR_F32 && (w->ks == 1 ? w->rs % 1024 != 0 : w->rs == 1);
}

bool
gemm_x_in_place(const gemm_job *job)
{
    return job->pack == NULL && job->x.dtype == AIR_F32 && job->x.rs == 1;
}

int64_t
gemm_rest_lanes(const gemm_job *job)
{
    int64_t rest = job->nx % PLAN_LANES;
    bool fits = rest <= REST_MAX && rest * job->k <= REST_FLOATS;
    return job->w.ks == 1 && fits && !job->pairs ? rest : 0;
}

/* Multiply-adds of a vector core cycle and element moves, roughly in cycles. */
static double
plan_cost(const gemm_job *job)
{
    int64_t rest = gemm_rest_lanes(job);
    double nx = (double)(round_up(job->nx - rest, PLAN_LANES) + rest),
           nw = (double)job->nw;
    double k = (double)job->k;
    double px = gemm_x_in_place(job) ? 0
                : job->x.rs == 1     ? 0.3
                : job->x.ks == 1     ? 0.4
                                     : 3;
    double pw = gemm_w_in_place(&job->w)           ? 0
                : job->w.rs == 1 || job->w.ks == 1 ? 0.3
                                                   : 3;
    double py = job->yl == 1 ? 0.2 : job->yr == 1 ? 0.5 : 4;
    return nx * nw * k / 16 + nx * k * px + nw * k * pw * ceil(nx / GEMM_NB) +
           nx * nw * py;
}

gemm_job
cpu_gemm_turned(const gemm_job *job)
{
    gemm_job t = *job;
    t.nx = job->nw, t.nw = job->nx;
    t.x = job->w, t.w = job->x;
    t.yl = job->yr, t.yr = job->yl;
    t.sl = job->sr, t.sr = job->sl;
    return t;
}

gemm_job
gemm_plan(const gemm_job *job)
{
    gemm_job t = cpu_gemm_turned(job);
    bool fixed = job->pack != NULL;
    return !fixed && plan_cost(&t) < plan_cost(job) ? t : *job;
}
