/* conv_winograd.c: convolutions of f32 with windows of 3 x 3, by 1, as
 * Winograd's F(2 x 2, 3 x 3): each place of a tile is a matrix product
 * [channels out, channels in] x [channels in, tiles], 16 of them where columns
 * would be 36 (winograd.h).
 *
 * Rows of tiles of all images come in chunks, whose transformed pixels stay in
 * the cache. A chunk meets the weights of a few channels out after the other,
 * and their sums become results while they are in the nearest cache. One chunk:
 * threads share its pixels and split the channels out, and weights are
 * transformed as they are met. More: threads transform the weights together,
 * then each takes chunks of its own.
 *
 * Products of differences round more than those of the numbers themselves: sums
 * are short chains, added, which keeps the error near that of torch (oneDNN),
 * and a number that is none, or infinite, would spread to the results beside
 * those that see it: such pieces are computed again, from columns. */
#include "driver/cpu/conv/conv_winograd_parts.h"
#include "driver/cpu/region/region_join.h"

#include <string.h>

static void
turn_weights(const winograd_work *w, const winograd_block *b, int64_t r0,
             int64_t r1)
{
    const winograd_layout *l = w->l;
    int64_t depth = l->g->c_in;
    for (int64_t r = r0; r < r1; r++)
        w->ops->winograd->weights(b->u + (r - b->r) * l->step, b->n * l->step,
                                  w->w + r * depth * 9, depth);
}

/* Block i of n of rows [r0, r1): even sizes, no thin last one. */
static winograd_block
find_block(int64_t r0, int64_t r1, int64_t i, int64_t n)
{
    winograd_block b = {.r = r0 + (r1 - r0) * i / n};
    b.n = r0 + (r1 - r0) * (i + 1) / n - b.r;
    return b;
}

static int64_t
count_blocks(const winograd_work *w, int64_t rows)
{
    return (rows + w->ops->rows - 1) / w->ops->rows;
}

/* The weights that come next: a share of their lines at each step of k. */
static gemm_ahead
next_weights(const winograd_work *w, const winograd_chunk *c,
             const winograd_block *b)
{
    int64_t panels = (c->tiles + w->ops->lanes - 1) / w->ops->lanes;
    int64_t depth = w->l->g->c_in, bytes = b->n * depth * 36;
    return gemm_ahead_of(w->w + (b->r + b->n) * depth * 9,
                         bytes / (panels * PLACES * depth) + 1);
}

static void
run_one_chunk(winograd_work *w, const air_task *task)
{
    const winograd_chunk c = cpu_winograd_chunk(w->l, 0);
    int64_t b, e;
    air_split(w->l->g->c_in, task, &b, &e);
    cpu_winograd_pixels(w, &c, b, e);
    task->barrier(task);
    cpu_winograd_turn_rest(w, &c);
    air_split(w->l->g->c_out, task, &b, &e);
    int64_t blocks = count_blocks(w, e - b);
    for (int64_t i = 0; i < blocks; i++) {
        winograd_block one = find_block(b, e, i, blocks);
        one.u = w->weights;
        one.ahead = gemm_ahead_of(w->weights, 0);
        turn_weights(w, &one, one.r, one.r + one.n);
        if (one.r + one.n < e)
            one.ahead = next_weights(w, &c, &one);
        cpu_winograd_block(w, &c, &one);
    }
}

static void
run_chunks(winograd_work *w, const air_task *task)
{
    const int64_t rows = w->l->g->c_out, blocks = count_blocks(w, rows);
    int64_t b, e;
    air_split(rows, task, &b, &e);
    for (int64_t j = 0; j < blocks; j++) {
        winograd_block one = find_block(0, rows, j, blocks);
        one.u = w->weights + one.r * PLACES * w->l->step;
        turn_weights(w, &one, max64(b, one.r), min64(e, one.r + one.n));
    }
    task->barrier(task);
    air_split(w->l->chunks, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        const winograd_chunk c = cpu_winograd_chunk(w->l, i);
        cpu_winograd_pixels(w, &c, 0, w->l->g->c_in);
        cpu_winograd_turn_rest(w, &c);
        for (int64_t j = 0; j < blocks; j++) {
            winograd_block one = find_block(0, rows, j, blocks);
            one.u = w->weights + one.r * PLACES * w->l->step;
            one.ahead = gemm_ahead_of(one.u, 0);
            cpu_winograd_block(w, &c, &one);
        }
    }
}

/* The workspace: what threads share, then what each has. */
static void
place_memory(winograd_work *w, const winograd_shares *s, const air_task *task)
{
    const bool one = w->l->chunks == 1;
    float *p = task->workspace;
    float *mine = p + (one ? s->pixels : round_up(w->l->windows, 16)) +
                  cpu_winograd_mine(s, one) * task->id;
    w->pixels = one ? p : mine;
    mine += one ? 0 : s->pixels;
    w->rest = mine;
    w->weights = one ? mine + s->rest : p;
    w->lines = mine + s->rest + s->weights;
    w->sums = task->scratch;
    w->more = w->sums + SUMS;
    w->planes = w->more + 16 * GEMM_LANES_MAX;
    memset(w->sums, 0, (size_t)(w->planes - w->sums) * sizeof *w->sums);
}

void
cpu_conv_winograd(const air_call *call, const conv_geometry *g,
                  const gemm_ops *ops, const air_task *task)
{
    const winograd_layout l = cpu_winograd_layout(g, task->count);
    const winograd_shares s = cpu_winograd_shares(call, &l);
    const air_arg *bias = &call->args[2];
    cpu_join_run join;
    winograd_work w = {.l = &l,
                       .ops = ops,
                       .x = air_data(call->args[0].t, task),
                       .w = air_data(call->args[1].t, task),
                       .y = air_data(&call->outs[0], task)};
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        w.bias = air_data(bias->t, task);
    w.taker = cpu_join_begin(&join, call, task,
                             cpu_winograd_bytes(&l, &s, task->count));
    place_memory(&w, &s, task);
    if (l.chunks == 1)
        run_one_chunk(&w, task);
    else
        run_chunks(&w, task);
}
