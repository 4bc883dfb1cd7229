/* conv_winograd_pixels.c: tiles of a chunk: where they lie, and their
 * transformed pixels. */
#include "driver/cpu/conv/conv_winograd_parts.h"

#include <string.h>

#define PLANES 8192 /* floats of planes in the nearest cache */

/* ---- where tiles lie ----------------------------------------------------- */

winograd_chunk
cpu_winograd_chunk(const winograd_layout *l, int64_t i)
{
    winograd_chunk c = {i * l->rows, min64(l->total, (i + 1) * l->rows), 0};
    c.tiles = (c.e - c.b) * l->wide;
    return c;
}

int64_t
cpu_winograd_rest(const winograd_work *w, const winograd_chunk *c)
{
    int64_t rest = c->tiles % PLAN_LANES;
    return rest <= REST_MAX && w->l->chunks == 1 ? rest : 0;
}

int64_t
cpu_winograd_before(const winograd_layout *l, int64_t row)
{
    int64_t y = min64(2 * (row % l->high), l->g->out[1]);
    return row / l->high * l->g->out[1] + y;
}

int64_t
cpu_winograd_at(const winograd_work *w, const winograd_chunk *c, int64_t row)
{
    const conv_geometry *g = w->l->g;
    if (w->taker != NULL)
        return (cpu_winograd_before(w->l, row) -
                cpu_winograd_before(w->l, c->b)) *
               g->out[2];
    return row / w->l->high * g->c_out * g->out_pixels +
           2 * (row % w->l->high) * g->out[2];
}

/* The row of the planes where a row of tiles begins. */
static int64_t
cpu_winograd_row(const winograd_layout *l, const winograd_chunk *c, int64_t row)
{
    return 2 * (row - c->b) + 2 * (row / l->high - c->b / l->high);
}

int
cpu_winograd_runs(const winograd_work *w, const winograd_chunk *c, int64_t t,
                  int64_t n, winograd_run *out)
{
    const winograd_layout *l = w->l;
    int64_t row = c->b + t / l->wide, x = t % l->wide;
    int count = 0;
    for (int64_t lane = 0; lane < n; row++, x = 0) {
        int64_t some = min64(l->wide - x, n - lane);
        out[count++] = (winograd_run){
            .lane = lane,
            .count = some,
            .from = cpu_winograd_row(l, c, row) * 2 * l->half + x,
            .to = cpu_winograd_at(w, c, row) + 2 * x,
            .columns = min64(2 * some, l->g->out[2] - 2 * x),
            .both = 2 * (row % l->high) + 1 < l->g->out[1]};
        lane += some;
    }
    return count;
}

/* ---- pixels -------------------------------------------------------------- */

/* A row of pixels into a row of a plane. */
static void
split_row(const winograd_layout *l, const gemm_ops *ops, float *to,
          const float *x)
{
    const conv_geometry *g = l->g;
    int64_t pad = g->pad[2], n = min64(g->in[2], 2 * l->half - pad);
    float *even = to + pad / 2, *odd = even + l->half;
    if (n <= 0)
        return;
    if (pad % 2 == 0)
        ops->winograd->split(even, odd, x, n);
    else
        ops->winograd->split(odd, even + 1, x, n);
}

/* What rows of tiles of one channel see. */
static void
fill(const winograd_work *w, const winograd_chunk *c, float *plane,
     int64_t channel)
{
    const winograd_layout *l = w->l;
    const conv_geometry *g = l->g;
    for (int64_t row = c->b, next; row < c->e; row = next) {
        int64_t image = row / l->high, top = 2 * (row % l->high) - g->pad[1];
        next = min64(c->e, (image + 1) * l->high);
        int64_t b = max64(0, -top);
        int64_t e = min64(2 * (next - row) + 2, g->in[1] - top);
        const float *x =
            w->x + (image * g->c_in + channel) * g->in_pixels + top * g->in[2];
        float *to = plane + cpu_winograd_row(l, c, row) * 2 * l->half;
        for (int64_t i = b; i < e; i++)
            split_row(l, w->ops, to + i * 2 * l->half, x + i * g->in[2]);
    }
}

int64_t
cpu_winograd_step(const winograd_work *w)
{
    return (w->l->g->c_in + 1) * w->ops->lanes;
}

void
cpu_winograd_pixels(const winograd_work *w, const winograd_chunk *c, int64_t b,
                    int64_t e)
{
    const winograd_layout *l = w->l;
    const int64_t lanes = w->ops->lanes, step = cpu_winograd_step(w);
    const int64_t most = max64(1, PLANES / l->plane);
    winograd_run runs[GEMM_LANES_MAX];
    memset(w->planes, 0, (size_t)(min64(most, e - b) * l->plane) * 4);
    for (int64_t k = b; k < e; k += most) {
        int64_t n = min64(most, e - k);
        for (int64_t i = 0; i < n; i++)
            fill(w, c, w->planes + i * l->plane, k + i);
        for (int64_t t = 0; t < c->tiles; t += lanes) {
            int count =
                cpu_winograd_runs(w, c, t, min64(lanes, c->tiles - t), runs);
            w->ops->winograd->input(
                w->pixels + t / lanes * PLACES * step + k * lanes, step,
                w->planes, l->plane, l->half, runs, count, n);
        }
    }
}

void
cpu_winograd_turn_rest(const winograd_work *w, const winograd_chunk *c)
{
    int64_t lanes = w->ops->lanes, step = cpu_winograd_step(w),
            n = cpu_winograd_rest(w, c);
    int64_t channels = w->l->g->c_in, first = c->tiles - n;
    const float *p = w->pixels + first / lanes * PLACES * step + first % lanes;
    for (int64_t i = 0; i < n * PLACES; i++)
        for (int64_t k = 0; k < channels; k++)
            w->rest[i * channels + k] =
                p[i % PLACES * step + k * lanes + i / PLACES];
}
