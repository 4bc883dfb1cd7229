/* gemm_amx.c: products of bf16 matrices with AMX.
 *
 * Rows of x are read in place (copied where x is transposed, as in gradients of
 * weights), w is packed into panels. Every thread packs
 * what it needs, so there is no barrier; what a thread packs at once stays in
 * its second-level cache while x passes by. Few rows of x: the sides change
 * places, x is packed and the weight read in place, once. */
#include "driver/cpu/product/gemm_amx.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_call.h"

#include <string.h>

#define GROUP_BYTES ((int64_t)512 << 10) /* of panels, in 2 MB of cache */
/* A block of rows meets several panels before the next depth: so both stay in
 * the nearest cache, which holds 32 rows of WHOLE_DEPTH twice. */
#define WHOLE_DEPTH 384
#define PART_DEPTH  256
#define STRIP       8 /* panels */

/* ---- the plan ------------------------------------------------------------ */

/* An element of w packed costs as much as one of y turned around, roughly. */
static gemm_job
plan(const gemm_job *job)
{
    bool turn = job->w.ks == 1 && 2 * job->nx < job->k;
    return turn ? cpu_gemm_turned(job) : *job;
}

static int64_t
group_panels(const gemm_job *job)
{
    int64_t bytes = 2 * amx_panel_size(job->k);
    int64_t panels = (job->nw + AMX_COLS - 1) / AMX_COLS;
    return min64(panels, GROUP_BYTES > bytes ? GROUP_BYTES / bytes : 1);
}

/* Panels, and rows of x that cannot be read in place. */
int64_t
cpu_amx_size(const gemm_job *job)
{
    return (group_panels(job) + 1) * amx_panel_size(job->k);
}

/* ---- one product --------------------------------------------------------- */

/* Rows [l, l + nl) of x, padded where there are fewer or the depth is odd. */
static amx_rows
rows_at(const amx_product *p, int64_t l, int64_t nl)
{
    const gemm_view *x = &p->job->x;
    int64_t k = p->job->k;
    uint16_t *rows = p->memory + group_panels(p->job) * amx_panel_size(k);
    if (x->ks == 1 && k % AMX_DEPTH == 0 && nl % 16 == 0)
        return (amx_rows){(const uint16_t *)x->p + l * x->rs, x->rs, AMX_DEPTH};
    amx_copy(rows, x, l, nl, k);
    return (amx_rows){rows, AMX_DEPTH, AMX_ROWS * AMX_DEPTH};
}

/* A block is rounded and stored while the tiles of the next one are busy. */
typedef struct {
    float *acc;
    int64_t l, nl, r, nr; /* nl 0: none */
} block;

typedef struct {
    const amx_product *p;
    int64_t r0; /* of the first panel in memory */
    block done;
} group;

static void
block_end(group *g, const block *next)
{
    const block *b = &g->done;
    if (b->nl > 0)
        amx_finish(g->p->job, b->acc, b->l, b->nl, b->r, b->nr);
    g->done = *next;
}

static void
pack(const amx_product *p, uint16_t *panel, int64_t r0, int64_t n)
{
    if (p->pack != NULL)
        p->pack(p->pack_arg, panel, r0, n);
    else
        amx_pack(panel, &p->job->w, r0, n, p->job->k);
}

static int64_t
depth_parts(const gemm_job *job)
{
    bool whole = job->k <= WHOLE_DEPTH || job->nw <= AMX_COLS;
    return whole ? 1 : (job->k + PART_DEPTH - 1) / PART_DEPTH;
}

/* Blocks of one line of x from `at` to row r1 of w, depth [k0, k1). */
static void
blocks_run(group *g, const amx_rows *rows, block at, int64_t r1, int64_t k0,
           int64_t k1)
{
    const int64_t k = g->p->job->k, size = amx_panel_size(k);
    const uint16_t *panel = g->p->memory + (at.r - g->r0) / AMX_COLS * size;
    amx_rows from = *rows;
    from.p += k0 / AMX_DEPTH * rows->step;
    for (; at.r < r1; at.r += AMX_COLS, panel += size) {
        at.nr = min64(AMX_COLS, r1 - at.r);
        amx_block(at.acc, k0 > 0, at.nl > 16 ? 32 : 16, &from,
                  panel + k0 * AMX_COLS, k1 - k0);
        if (k1 == k)
            block_end(g, &at);
        at.acc += AMX_ROWS * AMX_COLS;
    }
}

/* The same of all of the depth. */
static void
strip_run(group *g, const amx_rows *rows, block at, int64_t r1)
{
    const int64_t k = g->p->job->k, parts = depth_parts(g->p->job);
    const int64_t tiles = (k + AMX_DEPTH - 1) / AMX_DEPTH;
    for (int64_t i = 0; i < parts; i++)
        blocks_run(g, rows, at, r1, tiles * i / parts * AMX_DEPTH,
                   min64(k, tiles * (i + 1) / parts * AMX_DEPTH));
}

static void
group_run(const amx_product *p, int64_t l0, int64_t l1, int64_t r0, int64_t r1)
{
    const int64_t k = p->job->k, size = amx_panel_size(k);
    const int64_t step = (depth_parts(p->job) > 1 ? STRIP : 1) * AMX_COLS;
    float *acc = p->acc, *spare = acc + AMX_ROWS * step;
    group g = {.p = p, .r0 = r0};
    for (int64_t r = r0; r < r1; r += AMX_COLS)
        pack(p, p->memory + (r - r0) / AMX_COLS * size, r,
             min64(AMX_COLS, r1 - r));
    for (int64_t l = l0; l < l1; l += AMX_ROWS) {
        int64_t nl = min64(AMX_ROWS, l1 - l);
        amx_rows rows = rows_at(p, l, nl);
        for (int64_t r = r0; r < r1; r += step) {
            float *mine = acc;
            strip_run(&g, &rows, (block){mine, l, nl, r, 0},
                      min64(r1, r + step));
            acc = spare;
            spare = mine;
        }
    }
    block_end(&g, &(block){0});
}

/* Threads split the rows of w, or those of x where that is more even. */
void
cpu_amx_run(const amx_product *p, int id, int count)
{
    const gemm_job *job = p->job;
    int64_t units = (job->nw + AMX_COLS - 1) / AMX_COLS;
    bool even = units % count == 0 || units >= 4 * count;
    int64_t of = even ? job->nw : job->nx, parts = (of + 31) / 32;
    int64_t b = parts * id / count * 32;
    int64_t e = min64(of, parts * (id + 1) / count * 32);
    int64_t l0 = even ? 0 : b, l1 = even ? job->nx : e;
    int64_t r0 = even ? b : 0, r1 = even ? e : job->nw;
    int64_t step = group_panels(job) * AMX_COLS;
    for (int64_t r = r0; r < r1 && l0 < l1; r += step)
        group_run(p, l0, l1, r, min64(r1, r + step));
}

/* ---- kernels ------------------------------------------------------------- */

/* Whole products to each thread where that comes out even. */
static void
run(const air_call *call, const air_task *task)
{
    gemm_product p = cpu_gemm_product(call, task);
    bool alone = p.batch % task->count == 0 || p.batch >= 4 * task->count;
    gemm_job job = plan(&p.job);
    int64_t b = 0, e = p.batch;
    amx_product product = {.job = &job, .acc = task->scratch};
    product.memory =
        (uint16_t *)task->workspace + cpu_amx_size(&job) * task->id;
    if (alone)
        air_split(p.batch, task, &b, &e);
    amx_begin();
    for (int64_t i = b; i < e; i++) {
        gemm_job at = cpu_gemm_job_at(&p, i);
        job = plan(&at);
        cpu_amx_run(&product, alone ? 0 : task->id, alone ? 1 : task->count);
    }
    amx_end();
}

/* More rows of x than stay in the cache beside the panels: a library that
 * blocks for memory is the faster one. */
#define MANY_ROWS 512

bool
cpu_gemm_best_on_amx(const air_call *call, const char *isa)
{
    gemm_product p = cpu_gemm_product(call, NULL);
    return p.job.nx <= MANY_ROWS && cpu_gemm_on_amx(call, isa);
}

static bool
is_dense(const gemm_view *v)
{
    return v->ks == 1 || v->rs == 1;
}

bool
cpu_gemm_on_amx(const air_call *call, const char *isa)
{
    gemm_product p = cpu_gemm_product(call, NULL);
    const gemm_job *job = &p.job;
    if (strcmp(isa, "amx") != 0 || job->x.dtype != AIR_BF16 ||
        job->w.dtype != AIR_BF16 || job->y_dtype != AIR_BF16)
        return false;
    if (job->s != NULL && (job->s_dtype != AIR_BF16 || job->sr > 1))
        return false;
    return job->nx > GEMV_MAX && job->nw > GEMV_MAX && job->k >= AMX_DEPTH &&
           is_dense(&job->x) && is_dense(&job->w) && job->yr == 1;
}

size_t
cpu_gemm_amx_workspace(const air_call *call, int threads)
{
    gemm_product p = cpu_gemm_product(call, NULL);
    gemm_job job = plan(&p.job);
    return (size_t)(2 * cpu_amx_size(&job)) * (size_t)threads;
}

void
cpu_gemm_amx(const air_call *call, const air_task *task)
{
    run(call, task);
}
