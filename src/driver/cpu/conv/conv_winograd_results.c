/* conv_winograd_results.c: sums of products become results; what is none, or
 * infinite, is computed again, from columns. */
#include "driver/cpu/conv/conv_winograd_parts.h"

#include <string.h>

#define COLUMNS 128 /* of a piece that is computed again */

/* Results [l, l + n) of an image, n <= lanes, of the winograd_block again, at
 * y[r * row]: from columns. */
static void
run_columns(const winograd_work *w, const winograd_block *b, int64_t image,
            int64_t l, int64_t n, float *y, int64_t row)
{
    const conv_geometry *g = w->l->g;
    const int64_t depth = g->c_in * g->taps, lanes = w->ops->lanes;
    const conv_image im = {g, w->ops, w->x + image * g->c_in * g->in_pixels,
                           AIR_F32};
    for (int64_t k = 0; k < depth; k += COLUMNS) {
        int64_t e = min64(depth, k + COLUMNS);
        cpu_conv_pack_columns(&im, w->planes, l, n, k, e);
        w->ops->block(w->sums, b->n, w->planes, lanes, w->w + b->r * depth + k,
                      depth, 1, e - k, k == 0);
    }
    for (int64_t r = 0; r < b->n; r++)
        for (int64_t i = 0; i < n; i++)
            y[r * row + i] = w->sums[r * lanes + i] +
                             (w->bias != NULL ? w->bias[b->r + r] : 0);
}

/* The results of n tiles from tile t on. */
static void
run_again(const winograd_work *w, const winograd_chunk *c,
          const winograd_block *b, int64_t t, int64_t n,
          const winograd_results *to)
{
    const winograd_layout *l = w->l;
    const int64_t width = l->g->out[2];
    winograd_run runs[GEMM_LANES_MAX];
    int count = cpu_winograd_runs(w, c, t, n, runs);
    for (const winograd_run *r = runs; r < runs + count; r++) {
        int64_t tile = t + r->lane, row = c->b + tile / l->wide;
        int64_t at = 2 * (row % l->high) * width + 2 * (tile % l->wide);
        for (int64_t i = 0; i < (r->both ? 2 : 1); i++)
            for (int64_t x = 0; x < r->columns; x += w->ops->lanes)
                run_columns(w, b, row / l->high, at + i * width + x,
                            min64(w->ops->lanes, r->columns - x),
                            to->y + r->to + i * to->below + x, to->row);
    }
}

/* Lines of the block's results, image by image. */
static void
give_lines(const winograd_work *w, const winograd_chunk *c,
           const winograd_block *b, int64_t step)
{
    const winograd_layout *l = w->l;
    const conv_geometry *g = l->g;
    for (int64_t row = c->b, next; row < c->e; row = next) {
        int64_t image = row / l->high, first = cpu_winograd_before(l, row);
        next = min64(c->e, (image + 1) * l->high);
        int64_t n = (cpu_winograd_before(l, next) - first) * g->out[2];
        int64_t at = (first - image * g->out[1]) * g->out[2];
        const float *from = w->lines + cpu_winograd_at(w, c, row);
        for (int64_t r = 0; r < b->n; r++) {
            int64_t line = (image * g->c_out + b->r + r) * g->out_pixels + at;
            if (w->taker->keep)
                memcpy(w->y + line, from + r * step, (size_t)n * sizeof *from);
            w->taker->run(w->taker->arg, from + r * step, line, n);
        }
    }
}

void
cpu_winograd_block(const winograd_work *w, const winograd_chunk *c,
                   const winograd_block *b)
{
    const conv_geometry *g = w->l->g;
    const int64_t lanes = w->ops->lanes;
    winograd_run runs[GEMM_LANES_MAX];
    winograd_results to = {w->y + b->r * g->out_pixels, g->out_pixels,
                           g->out[2], NULL};
    gemm_ahead ahead = b->ahead;
    if (w->bias != NULL)
        to.bias = w->bias + b->r;
    if (w->taker != NULL)
        to.y = w->lines, to.row = 4 * c->tiles;
    for (int64_t t = 0; t < c->tiles; t += lanes) {
        int64_t n = min64(lanes, c->tiles - t);
        cpu_winograd_multiply(
            w, b, w->pixels + t / lanes * PLACES * cpu_winograd_step(w), n,
            t + n == c->tiles ? cpu_winograd_rest(w, c) : 0, &ahead);
        int count = cpu_winograd_runs(w, c, t, n, runs);
        if (!w->ops->winograd->results(&to, w->sums, b->n * lanes, b->n, runs,
                                       count))
            run_again(w, c, b, t, n, &to);
    }
    if (w->taker != NULL)
        give_lines(w, c, b, to.row);
}
