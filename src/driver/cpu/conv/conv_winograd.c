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
#include "driver/cpu/conv/conv_winograd.h"
#include "driver/cpu/conv/winograd.h"
#include "driver/cpu/region/region_join.h"

#include <string.h>

#define PLACES      WINOGRAD_PLACES
#define CACHE_BYTES ((int64_t)1 << 20) /* of transformed pixels */
#define TILES_MAX   256                /* of a chunk, but for long rows */
#define CHAIN       24                 /* products in a row; then sums */
#define SPAN        192                /* channels of a sum of such sums */
#define REST_MAX    2                  /* tiles that dot products take */
#define SUMS        (PLACES * 16 * GEMM_LANES_MAX) /* floats: 16 rows at most */
#define PLANES      8192 /* floats of planes in the nearest cache */
#define COLUMNS     128  /* of a piece that is computed again */

typedef struct {
    const conv_geometry *g;
    int64_t high, wide;  /* tiles of an image */
    int64_t rows, total; /* of tiles: of a chunk, of all images */
    int64_t chunks;
    int64_t half, plane;   /* floats of half a row of a plane; of a plane */
    int64_t step, windows; /* from one row of weights to the next; of all */
} layout;

/* ---- the plan ------------------------------------------------------------ */

/* In vectors of lanes. */
static double
cost_of(int64_t n)
{
    return (double)((n + PLAN_LANES - 1) / PLAN_LANES);
}

static double
cost_with_rest(int64_t n)
{
    int64_t rest = n % PLAN_LANES;
    return rest > REST_MAX ? cost_of(n)
                           : (double)(n / PLAN_LANES) + 0.1 * (double)rest;
}

static int64_t
tiles_that_fit(const conv_geometry *g)
{
    return min64(TILES_MAX, CACHE_BYTES / (4 * PLACES * g->c_in));
}

/* What it takes to run chunks of so many rows. */
static double
cost_of_rows(const layout *l, int64_t rows, int threads)
{
    int64_t chunks = (l->total + rows - 1) / rows, last = l->total % rows;
    double one = cost_of(rows * l->wide) + 0.5;
    double all = one * (double)((chunks + threads - 1) / threads);
    if (threads == 1 && last > 0)
        all -= one - 0.5 - cost_of(last * l->wide);
    return all;
}

static void
find_rows(layout *l, int threads)
{
    int64_t most = max64(1, tiles_that_fit(l->g) / l->wide);
    l->rows = l->total;
    if (most < l->total) {
        double least = cost_of_rows(l, most, threads);
        l->rows = most;
        for (int64_t rows = most - 1; rows > 0; rows--) {
            double cost = cost_of_rows(l, rows, threads);
            if (cost < least)
                least = cost, l->rows = rows;
        }
    }
    l->chunks = (l->total + l->rows - 1) / l->rows;
}

static layout
make_layout(const conv_geometry *g, int threads)
{
    layout l = {.g = g,
                .high = (g->out[1] + 1) / 2,
                .wide = (g->out[2] + 1) / 2,
                .step = g->c_in % 1024 == 0 ? g->c_in + 16 : g->c_in};
    l.total = g->batch * l.high;
    find_rows(&l, threads);
    l.half = l.wide + 1;
    int64_t images = min64(g->batch, l.rows / l.high + 2);
    l.plane = (2 * l.rows + 2 * images) * 2 * l.half;
    l.windows = PLACES * g->c_out * l.step;
    return l;
}

/* Cycles, roughly: measured with vectors of 16 lanes. */
static bool
pays(const conv_geometry *g, const layout *l)
{
    double in = (double)g->c_in, out = (double)g->c_out, pairs = in * out;
    double tiles = cost_with_rest(l->total * l->wide);
    double pixels = cost_with_rest(g->out_pixels) * (double)g->batch;
    double own = tiles * (12 * pairs + 200 * in + 100 * out) + 8 * pairs;
    double columns = pixels * (6.25 * pairs + 13 * in);
    return own < 0.9 * columns;
}

static bool
is_float_or_none(const air_arg *a)
{
    return a->kind != AIR_ARG_TENSOR || a->t->dtype == AIR_DTYPE_NONE ||
           a->t->dtype == AIR_F32;
}

bool
cpu_conv_is_winograd(const air_call *call, const conv_geometry *g)
{
    bool plain =
        g->groups == 1 && g->in[0] == 1 && g->out[0] == 1 && g->kernel[0] == 1;
    for (int i = 1; i < CONV_AXES; i++)
        plain = plain && g->kernel[i] == 3 && g->stride[i] == 1 &&
                g->dilation[i] == 1;
    if (!plain || g->c_in * g->c_out * g->out_pixels * g->batch <= 0 ||
        call->args[0].t->dtype != AIR_F32 || call->outs[0].dtype != AIR_F32 ||
        !is_float_or_none(&call->args[2]) || tiles_that_fit(g) < PLAN_LANES)
        return false;
    layout l = make_layout(g, 1);
    return l.wide <= 2 * tiles_that_fit(g) &&
           l.plane <= (int64_t)(AIR_SCRATCH / sizeof(float)) - 2 * SUMS &&
           pays(g, &l);
}

/* ---- memory -------------------------------------------------------------- */

/* Floats of a thread, but for `pixels` of one chunk those of all threads. */
typedef struct {
    int64_t pixels, rest, weights, lines;
} shares;

/* Whatever the number of threads that run. */
static shares
find_shares(const air_call *call, const layout *l)
{
    const conv_geometry *g = l->g;
    int64_t tiles = max64(tiles_that_fit(g), l->wide);
    tiles = round_up(min64(tiles, l->total * l->wide), GEMM_LANES_MAX);
    return (shares){PLACES * (g->c_in + 1) * tiles,
                    round_up(REST_MAX * PLACES * g->c_in, 16),
                    l->chunks > 1 ? 0 : 16 * PLACES * l->step,
                    call->extra != NULL ? 16 * 4 * tiles : 0};
}

static int64_t
mine_of(const shares *s, bool one)
{
    return (one ? 0 : s->pixels) + s->rest + s->weights + s->lines;
}

static size_t
bytes_of(const layout *l, const shares *s, int threads)
{
    bool one = l->chunks == 1;
    int64_t common = one ? s->pixels : round_up(l->windows, 16);
    return (size_t)(common + mine_of(s, one) * threads) * sizeof(float);
}

size_t
cpu_conv_winograd_workspace(const air_call *call, const conv_geometry *g,
                            int threads)
{
    layout l = make_layout(g, threads);
    shares s = find_shares(call, &l);
    return bytes_of(&l, &s, threads);
}

/* What a thread computes with. */
typedef struct {
    const layout *l;
    const gemm_ops *ops;
    const float *x, *w, *bias; /* bias NULL: none */
    float *y;
    float *pixels, *rest, *weights, *lines;
    float *sums, *more, *planes; /* of its scratch */
    const gemm_lines *taker;
} work;

/* Rows of tiles [b, e). */
typedef struct {
    int64_t b, e, tiles;
} chunk;

static chunk
find_chunk(const layout *l, int64_t i)
{
    chunk c = {i * l->rows, min64(l->total, (i + 1) * l->rows), 0};
    c.tiles = (c.e - c.b) * l->wide;
    return c;
}

/* Tiles behind the last whole vector that dot products take, which sum in
 * another order: of the only chunk, whatever the number of threads. */
static int64_t
rest_of(const work *w, const chunk *c)
{
    int64_t rest = c->tiles % PLAN_LANES;
    return rest <= REST_MAX && w->l->chunks == 1 ? rest : 0;
}

/* ---- where tiles lie ----------------------------------------------------- */

/* Rows of results before a row of tiles, of all images. */
static int64_t
results_before(const layout *l, int64_t row)
{
    int64_t y = min64(2 * (row % l->high), l->g->out[1]);
    return row / l->high * l->g->out[1] + y;
}

/* Where the results of a row of tiles begin: in y, or in lines of a chunk. */
static int64_t
results_at(const work *w, const chunk *c, int64_t row)
{
    const conv_geometry *g = w->l->g;
    if (w->taker != NULL)
        return (results_before(w->l, row) - results_before(w->l, c->b)) *
               g->out[2];
    return row / w->l->high * g->c_out * g->out_pixels +
           2 * (row % w->l->high) * g->out[2];
}

/* The row of the planes where a row of tiles begins. */
static int64_t
plane_row(const layout *l, const chunk *c, int64_t row)
{
    return 2 * (row - c->b) + 2 * (row / l->high - c->b / l->high);
}

/* Tiles [t, t + n) of a chunk as runs, n at most; returns how many. */
static int
find_runs(const work *w, const chunk *c, int64_t t, int64_t n,
          winograd_run *out)
{
    const layout *l = w->l;
    int64_t row = c->b + t / l->wide, x = t % l->wide;
    int count = 0;
    for (int64_t lane = 0; lane < n; row++, x = 0) {
        int64_t some = min64(l->wide - x, n - lane);
        out[count++] =
            (winograd_run){.lane = lane,
                           .count = some,
                           .from = plane_row(l, c, row) * 2 * l->half + x,
                           .to = results_at(w, c, row) + 2 * x,
                           .columns = min64(2 * some, l->g->out[2] - 2 * x),
                           .both = 2 * (row % l->high) + 1 < l->g->out[1]};
        lane += some;
    }
    return count;
}

/* ---- pixels -------------------------------------------------------------- */

/* A row of pixels into a row of a plane. */
static void
split_row(const layout *l, const gemm_ops *ops, float *to, const float *x)
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
fill(const work *w, const chunk *c, float *plane, int64_t channel)
{
    const layout *l = w->l;
    const conv_geometry *g = l->g;
    for (int64_t row = c->b, next; row < c->e; row = next) {
        int64_t image = row / l->high, top = 2 * (row % l->high) - g->pad[1];
        next = min64(c->e, (image + 1) * l->high);
        int64_t b = max64(0, -top);
        int64_t e = min64(2 * (next - row) + 2, g->in[1] - top);
        const float *x =
            w->x + (image * g->c_in + channel) * g->in_pixels + top * g->in[2];
        float *to = plane + plane_row(l, c, row) * 2 * l->half;
        for (int64_t i = b; i < e; i++)
            split_row(l, w->ops, to + i * 2 * l->half, x + i * g->in[2]);
    }
}

/* Floats from one place of a panel to the next, not of a power of two. */
static int64_t
place_step(const work *w)
{
    return (w->l->g->c_in + 1) * w->ops->lanes;
}

/* Transformed pixels of channels [b, e). */
static void
turn_pixels(const work *w, const chunk *c, int64_t b, int64_t e)
{
    const layout *l = w->l;
    const int64_t lanes = w->ops->lanes, step = place_step(w);
    const int64_t most = max64(1, PLANES / l->plane);
    winograd_run runs[GEMM_LANES_MAX];
    memset(w->planes, 0, (size_t)(min64(most, e - b) * l->plane) * 4);
    for (int64_t k = b; k < e; k += most) {
        int64_t n = min64(most, e - k);
        for (int64_t i = 0; i < n; i++)
            fill(w, c, w->planes + i * l->plane, k + i);
        for (int64_t t = 0; t < c->tiles; t += lanes) {
            int count = find_runs(w, c, t, min64(lanes, c->tiles - t), runs);
            w->ops->winograd->input(
                w->pixels + t / lanes * PLACES * step + k * lanes, step,
                w->planes, l->plane, l->half, runs, count, n);
        }
    }
}

/* The last tiles, [tile][place][channel]. */
static void
turn_rest(const work *w, const chunk *c)
{
    int64_t lanes = w->ops->lanes, step = place_step(w), n = rest_of(w, c);
    int64_t channels = w->l->g->c_in, first = c->tiles - n;
    const float *p = w->pixels + first / lanes * PLACES * step + first % lanes;
    for (int64_t i = 0; i < n * PLACES; i++)
        for (int64_t k = 0; k < channels; k++)
            w->rest[i * channels + k] =
                p[i % PLACES * step + k * lanes + i / PLACES];
}

/* ---- products ------------------------------------------------------------ */

/* Channels out [r, r + n) and their weights, [place][row][step]. */
typedef struct {
    int64_t r, n;
    float *u;
    gemm_ahead ahead;
} block;

static void
turn_weights(const work *w, const block *b, int64_t r0, int64_t r1)
{
    const layout *l = w->l;
    int64_t depth = l->g->c_in;
    for (int64_t r = r0; r < r1; r++)
        w->ops->winograd->weights(b->u + (r - b->r) * l->step, b->n * l->step,
                                  w->w + r * depth * 9, depth);
}

/* acc = the products of one place, in chains, and spans of those. */
static void
multiply(const work *w, const block *b, float *acc, const float *v,
         const float *u, int64_t count, gemm_ahead *ahead)
{
    const int64_t depth = w->l->g->c_in, lanes = w->ops->lanes;
    const int64_t spans = (depth + SPAN - 1) / SPAN;
    for (int64_t s = 0; s < spans; s++) {
        int64_t k0 = depth * s / spans, n = depth * (s + 1) / spans - k0;
        int64_t chains = (n + CHAIN - 1) / CHAIN;
        float *to = s > 0 ? w->more : acc;
        for (int64_t i = 0; i < chains; i++) {
            int64_t k = k0 + n * i / chains, e = k0 + n * (i + 1) / chains;
            w->ops->tile(to, b->n, v + k * lanes, lanes, count, u + k,
                         w->l->step, 1, e - k, i == 0, *ahead);
            ahead->p += ahead->step * (e - k);
        }
        if (s > 0)
            w->ops->add(acc, w->more, b->n * lanes);
    }
}

/* The last n tiles of a panel, from lane `lane` on. */
static void
add_rest(const work *w, const block *b, float *acc, const float *rest,
         const float *u, int64_t lane, int64_t n)
{
    float t[REST_MAX * GEMV_NB];
    w->ops->dots_near(t, n, rest, PLACES * w->l->g->c_in, b->n, u, w->l->step,
                      w->l->g->c_in);
    for (int64_t r = 0; r < b->n; r++)
        for (int64_t i = 0; i < n; i++)
            acc[r * w->ops->lanes + lane + i] = t[i * GEMV_NB + r];
}

/* All places of a panel of `count` tiles, of which the last `rest` are dot
 * products. */
static void
multiply_panel(const work *w, const block *b, const float *v, int64_t count,
               int64_t rest, gemm_ahead *ahead)
{
    for (int64_t i = 0; i < PLACES; i++) {
        const float *u = b->u + i * b->n * w->l->step;
        float *acc = w->sums + i * b->n * w->ops->lanes;
        if (count > rest)
            multiply(w, b, acc, v + i * place_step(w), u, count - rest, ahead);
        if (rest > 0)
            add_rest(w, b, acc, w->rest + i * w->l->g->c_in, u, count - rest,
                     rest);
    }
}

/* ---- results ------------------------------------------------------------- */

/* Results [l, l + n) of an image, n <= lanes, of the block again, at y[r *
 * row]: from columns. */
static void
run_columns(const work *w, const block *b, int64_t image, int64_t l, int64_t n,
            float *y, int64_t row)
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
run_again(const work *w, const chunk *c, const block *b, int64_t t, int64_t n,
          const winograd_results *to)
{
    const layout *l = w->l;
    const int64_t width = l->g->out[2];
    winograd_run runs[GEMM_LANES_MAX];
    int count = find_runs(w, c, t, n, runs);
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
give_lines(const work *w, const chunk *c, const block *b, int64_t step)
{
    const layout *l = w->l;
    const conv_geometry *g = l->g;
    for (int64_t row = c->b, next; row < c->e; row = next) {
        int64_t image = row / l->high, first = results_before(l, row);
        next = min64(c->e, (image + 1) * l->high);
        int64_t n = (results_before(l, next) - first) * g->out[2];
        int64_t at = (first - image * g->out[1]) * g->out[2];
        const float *from = w->lines + results_at(w, c, row);
        for (int64_t r = 0; r < b->n; r++) {
            int64_t line = (image * g->c_out + b->r + r) * g->out_pixels + at;
            if (w->taker->keep)
                memcpy(w->y + line, from + r * step, (size_t)n * sizeof *from);
            w->taker->run(w->taker->arg, from + r * step, line, n);
        }
    }
}

/* A chunk times a block of weights. */
static void
run_block(const work *w, const chunk *c, const block *b)
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
        multiply_panel(w, b, w->pixels + t / lanes * PLACES * place_step(w), n,
                       t + n == c->tiles ? rest_of(w, c) : 0, &ahead);
        int count = find_runs(w, c, t, n, runs);
        if (!w->ops->winograd->results(&to, w->sums, b->n * lanes, b->n, runs,
                                       count))
            run_again(w, c, b, t, n, &to);
    }
    if (w->taker != NULL)
        give_lines(w, c, b, to.row);
}

/* ---- threads ------------------------------------------------------------- */

/* Block i of n of rows [r0, r1): even sizes, no thin last one. */
static block
find_block(int64_t r0, int64_t r1, int64_t i, int64_t n)
{
    block b = {.r = r0 + (r1 - r0) * i / n};
    b.n = r0 + (r1 - r0) * (i + 1) / n - b.r;
    return b;
}

static int64_t
count_blocks(const work *w, int64_t rows)
{
    return (rows + w->ops->rows - 1) / w->ops->rows;
}

/* The weights that come next: a share of their lines at each step of k. */
static gemm_ahead
next_weights(const work *w, const chunk *c, const block *b)
{
    int64_t panels = (c->tiles + w->ops->lanes - 1) / w->ops->lanes;
    int64_t depth = w->l->g->c_in, bytes = b->n * depth * 36;
    return (gemm_ahead){(const char *)(w->w + (b->r + b->n) * depth * 9),
                        bytes / (panels * PLACES * depth) + 1};
}

static void
run_one_chunk(work *w, const air_task *task)
{
    const chunk c = find_chunk(w->l, 0);
    int64_t b, e;
    air_split(w->l->g->c_in, task, &b, &e);
    turn_pixels(w, &c, b, e);
    task->barrier(task);
    turn_rest(w, &c);
    air_split(w->l->g->c_out, task, &b, &e);
    int64_t blocks = count_blocks(w, e - b);
    for (int64_t i = 0; i < blocks; i++) {
        block one = find_block(b, e, i, blocks);
        one.u = w->weights;
        one.ahead = (gemm_ahead){(const char *)w->weights, 0};
        turn_weights(w, &one, one.r, one.r + one.n);
        if (one.r + one.n < e)
            one.ahead = next_weights(w, &c, &one);
        run_block(w, &c, &one);
    }
}

static void
run_chunks(work *w, const air_task *task)
{
    const int64_t rows = w->l->g->c_out, blocks = count_blocks(w, rows);
    int64_t b, e;
    air_split(rows, task, &b, &e);
    for (int64_t j = 0; j < blocks; j++) {
        block one = find_block(0, rows, j, blocks);
        one.u = w->weights + one.r * PLACES * w->l->step;
        turn_weights(w, &one, max64(b, one.r), min64(e, one.r + one.n));
    }
    task->barrier(task);
    air_split(w->l->chunks, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        const chunk c = find_chunk(w->l, i);
        turn_pixels(w, &c, 0, w->l->g->c_in);
        turn_rest(w, &c);
        for (int64_t j = 0; j < blocks; j++) {
            block one = find_block(0, rows, j, blocks);
            one.u = w->weights + one.r * PLACES * w->l->step;
            one.ahead = (gemm_ahead){(const char *)one.u, 0};
            run_block(w, &c, &one);
        }
    }
}

/* The workspace: what threads share, then what each has. */
static void
place_memory(work *w, const shares *s, const air_task *task)
{
    const bool one = w->l->chunks == 1;
    float *p = task->workspace;
    float *mine = p + (one ? s->pixels : round_up(w->l->windows, 16)) +
                  mine_of(s, one) * task->id;
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
    const layout l = make_layout(g, task->count);
    const shares s = find_shares(call, &l);
    const air_arg *bias = &call->args[2];
    cpu_join_run join;
    work w = {.l = &l,
              .ops = ops,
              .x = air_data(call->args[0].t, task),
              .w = air_data(call->args[1].t, task),
              .y = air_data(&call->outs[0], task)};
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        w.bias = air_data(bias->t, task);
    w.taker = cpu_join_begin(&join, call, task, bytes_of(&l, &s, task->count));
    place_memory(&w, &s, task);
    if (l.chunks == 1)
        run_one_chunk(&w, task);
    else
        run_chunks(&w, task);
}
