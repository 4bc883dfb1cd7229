/* gemm_few.c: products of so few rows or columns that panels do not pay. */
#include "driver/cpu/product/gemm_few.h"
#include "driver/cpu/share.h"

#include <string.h>

/* ---- few columns --------------------------------------------------------- */

static bool
has_floats(const gemm_job *job)
{
    return job->pack == NULL && !job->pairs && job->x.dtype == AIR_F32 &&
           job->w.dtype == AIR_F32 && job->y_dtype == AIR_F32 &&
           (job->s == NULL || job->s_dtype == AIR_F32);
}

/* Many rows. A single column of some depth is a dot product for each. */
static bool
is_tall(const gemm_job *job)
{
    enum { ROWS = 32, SHORT = 16 };
    const bool wide = job->nw > 1 || (job->k <= SHORT && job->x.rs != 1);

    return has_floats(job) && job->k > 0 && job->nx >= ROWS && wide &&
           job->nw <= GEMM_THIN && job->k <= GEMM_THIN_DEPTH && job->yr == 1 &&
           (job->s == NULL || job->sl == 0);
}

/* Few rows, too: gradients of such factors. */
static bool
is_deep(const gemm_job *job)
{
    return has_floats(job) && job->nx > 1 && job->nx <= job->nw &&
           job->nw <= GEMM_THIN && job->k > 2 * GEMM_THIN_DEPTH &&
           job->w.rs == 1 && job->w.ks >= job->nw;
}

bool
cpu_gemm_is_thin(const gemm_job *job)
{
    const gemm_job t = cpu_gemm_turned(job);

    return is_tall(job) || is_tall(&t) || is_deep(job) || is_deep(&t);
}

void
cpu_gemm_thin(const gemm_job *job, const gemm_ops *ops, const gemm_team *team)
{
    const gemm_job t = cpu_gemm_turned(job);
    const bool tall = is_tall(job) || is_tall(&t);
    const gemm_job *j = (tall ? is_tall(job) : is_deep(job)) ? job : &t;

    (tall ? ops->thin : ops->thin_deep)(j, j->nx * team->id / team->count,
                                        j->nx * (team->id + 1) / team->count);
}

/* ---- few rows: dot kernels ----------------------------------------------- */

#define DOT_ROWS 120 /* of w at once: a multiple of every tile's streams */

bool
cpu_gemm_is_dots(const gemm_job *job)
{
    return job->pack == NULL && job->nx <= GEMV_MAX && job->w.ks == 1;
}

bool
cpu_gemm_dots_in_place(const gemm_job *job)
{
    return job->x.dtype == AIR_F32 && job->x.ks == 1;
}

/* x as floats, row l at l * k: every thread makes a piece of k. */
static void
dots_pack(const gemm_job *job, const gemm_ops *ops, const gemm_team *team)
{
    int64_t size = job->x.dtype == AIR_F32 ? 4 : 2;
    int64_t b = job->k * team->id / team->count;
    int64_t e = job->k * (team->id + 1) / team->count;
    for (int64_t l = 0; l < job->nx; l++)
        ops->widen(team->panels + l * job->k + b,
                   (const char *)job->x.p +
                       (l * job->x.rs + b * job->x.ks) * size,
                   job->x.ks, job->x.dtype, e - b);
    if (team->count > 1)
        team->task->barrier(team->task);
}

void
cpu_gemm_dots(const gemm_job *job, const gemm_ops *ops, const gemm_team *team)
{
    const float *x = job->x.p;
    int64_t xs = job->x.rs, size = job->w.dtype == AIR_F32 ? 4 : 2;
    int64_t b, e;
    cpu_share share = cpu_share_make(job->nw, job->k * size, team->id,
                                     team->count, team->taken);
    if (!cpu_gemm_dots_in_place(job)) {
        dots_pack(job, ops, team);
        x = team->panels, xs = job->k;
    }
    while (cpu_share_next(&share, &b, &e))
        for (int64_t r = b; r < e; r += DOT_ROWS) {
            int64_t n = min64(e - r, DOT_ROWS);
            ops->dots(team->scratch, job->nx, x, xs, n,
                      (const char *)job->w.p + r * job->w.rs * size, job->w.rs,
                      job->w.dtype, job->k);
            ops->finish_rows(job, team->scratch, GEMV_NB, r, n);
        }
}

/* ---- few rows of w, adjacent lanes: x streams through once --------------- */

#define STREAMS      8  /* rows of x read side by side, each as a run, */
#define STREAM_ROWS  8  /* up to so many rows of w; for more of them */
#define MANY_STREAMS 16 /* sums are read and written less often */
#define STREAM_ACC   ((int64_t)4096) /* floats of sums, in the nearest cache */
#define STREAM_FAR   16              /* rows ahead that lines are asked for */

bool
cpu_gemm_is_stream(const gemm_job *job)
{
    return job->pack == NULL && !job->pairs && job->nw <= GEMV_MAX &&
           job->x.rs == 1 && job->nx > 1;
}

/* What one thread has of its own. */
typedef struct {
    float *sums, *part, *w, *panel;
} stream_room;

/* How many of the lanes [l, l + nl) are done as runs: all whole panels. */
static int64_t
stream_runs(const gemm_job *job, const gemm_ops *ops, float *acc,
            const float *w, int64_t l, int64_t nl, int64_t k0, int64_t k1,
            bool first)
{
    const gemm_view *v = &job->x;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2, panels = nl / ops->lanes;
    if (panels > 0)
        ops->stream(acc, job->nw, (const char *)v->p + (l + k0 * v->ks) * size,
                    v->ks, v->dtype, panels, w, k1 - k0, first,
                    STREAM_FAR * v->ks * size);
    return panels * ops->lanes;
}

/* acc[panel][nw][lanes] (+)= over k in [k0, k1), lanes [l, l + nl). */
static void
stream(const gemm_job *job, const gemm_ops *ops, float *acc, float *panel,
       const float *w, int64_t l, int64_t nl, int64_t k0, int64_t k1,
       bool first)
{
    const int64_t i = stream_runs(job, ops, acc, w, l, nl, k0, k1, first);
    if (i < nl) {
        ops->pack_x(panel, &job->x, l + i, nl - i, k0, k1);
        ops->block(acc + i * job->nw, job->nw, panel, ops->lanes, w, GEMM_WB, 1,
                   k1 - k0, first);
    }
}

/* The same of all of k. Blocks of it are summed on their own and then added. */
static void
streams_run(const gemm_job *job, const gemm_ops *ops, const stream_room *room,
            int64_t l, int64_t nl)
{
    const gemm_view *v = &job->w;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2;
    const int64_t steps = job->nw > STREAM_ROWS ? MANY_STREAMS : STREAMS;
    for (int64_t b = 0; b < job->k; b += GEMM_KB) {
        const int64_t e = min64(b + GEMM_KB, job->k);
        float *acc = b == 0 ? room->sums : room->part;
        for (int64_t r = 0; r < job->nw; r++)
            ops->widen(room->w + r * GEMM_WB,
                       (const char *)v->p + (r * v->rs + b * v->ks) * size,
                       v->ks, v->dtype, e - b);
        for (int64_t k = b; k < e; k += steps)
            stream(job, ops, acc, room->panel, room->w + k - b, l, nl, k,
                   min64(k + steps, e), k == b);
        if (b > 0)
            ops->add(room->sums, acc, round_up(nl, ops->lanes) * job->nw);
    }
}

/* Threads split the lanes; the few rows of w are copied by each. */
void
cpu_gemm_streams(const gemm_job *job, const gemm_ops *ops,
                 const gemm_team *team)
{
    float *sums = team->scratch, *w = sums + 2 * STREAM_ACC;
    const stream_room room = {sums, sums + STREAM_ACC, w,
                              w + GEMV_MAX * GEMM_WB};
    int64_t unit = GEMM_LANES_MAX, units = (job->nx + unit - 1) / unit;
    int64_t b = units * team->id / team->count * unit;
    int64_t e = min64(job->nx, units * (team->id + 1) / team->count * unit);
    int64_t most = STREAM_ACC / job->nw / unit * unit;
    for (int64_t l = b; l < e; l += most) {
        int64_t nl = min64(most, e - l);
        if (job->k == 0)
            memset(sums, 0, (size_t)STREAM_ACC * sizeof *sums);
        streams_run(job, ops, &room, l, nl);
        ops->finish(job, sums, job->nw, l, nl, 0, job->nw);
    }
}
