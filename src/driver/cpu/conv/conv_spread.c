/* conv_spread.c: transposed convolution, the gradient of a plain one's input,
 *     big[ci, i] = sum over co and taps of small[co, p] * w[co, ci, tap]
 *     where i = p * stride - pad + tap * dilation
 *
 * Pixels i = j * stride + phase of results take the taps for which p is whole,
 * p = j + a shift: with small in planes that have zeros around it, lanes are j,
 * read where they lie, and rows are channels of big. Phases along a row are
 * then interlaced. Zeros before a row are those behind the last one. */
#include "driver/cpu/conv/conv_spread.h"

#include <string.h>

#define AXES        CONV_AXES
#define ROWS        32
#define CHAIN       128 /* channels in a row; then sums of sums */
#define TAPS        256 /* of a phase along a row */
#define GROUP_BYTES ((int64_t)8 << 20) /* of images that are packed at once */

typedef struct {
    conv_geometry g;
    int64_t places[AXES], lead[AXES]; /* pixels of a phase; zeros before */
    int64_t size[AXES];               /* of a plane */
    int64_t plane, depth, lanes, chunks, blocks, images;
    int64_t row; /* of weights: depth, to a multiple of lanes and more */
} plan;

/* Bytes: planes, weights, of a thread. */
enum { PLANES, WEIGHTS, THREAD, PARTS };

typedef struct {
    plan p;
    const air_tensor *small, *weight, *bias, *big; /* bias may be NULL */
    const gemm_ops *ops;
    const spread_unit *unit;
    const air_task *task;
    char *planes, *weights; /* weights: [group][tap][row][depth] */
    float *acc, *line;      /* of this thread: [phase][ROWS][lanes] */
    int64_t image, images;  /* the ones that are packed */
} spread;

/* An image's group, rows from `row` on, the phases of the first axes, places
 * from `at` on. */
typedef struct {
    int64_t image, group, row, n, z, y, at;
} item;

static int64_t
bytes_of(const air_tensor *t)
{
    return t->dtype == AIR_F32 ? 4 : 2;
}

/* ---- the plan ------------------------------------------------------------ */

static int64_t
places_of(const plan *p)
{
    return ((p->places[0] - 1) * p->size[1] + p->places[1] - 1) * p->size[2] +
           p->places[2];
}

/* How far behind place j of the last phase a tap may read. */
static int64_t
tail(const conv_geometry *g, int axis)
{
    return (g->stride[axis] - 1 + g->pad[axis]) / g->stride[axis];
}

static plan
plan_planes(const conv_geometry *g)
{
    plan p = {.g = *g};
    for (int i = 0; i < AXES; i++) {
        int64_t s = g->stride[i], reach = (g->kernel[i] - 1) * g->dilation[i];
        p.places[i] = (g->in[i] + s - 1) / s;
        p.lead[i] = max64(0, reach / s - g->pad[i] / s);
        int64_t read = p.places[i] + tail(g, i);
        p.size[i] = max64(p.lead[i] + min64(g->out[i], read), read);
        p.plane = p.plane * p.size[i] + p.lead[i] + read;
    }
    return p;
}

static plan
make_plan(const conv_geometry *g, const spread_unit *unit, int64_t lanes)
{
    plan p = plan_planes(g);
    p.lanes = lanes;
    p.chunks = (places_of(&p) + lanes - 1) / lanes;
    p.plane = round_up(p.plane + 2 * lanes, 16);
    if (p.plane % 128 == 0) /* channels that share sets of a cache */
        p.plane += 16;
    p.depth = round_up(g->c_out, unit->unit);
    p.row = round_up(g->c_out, lanes);
    if (p.row % 128 == 0) /* rows that share sets of a cache */
        p.row += 16;
    p.blocks = (g->c_in + ROWS - 1) / ROWS;
    int64_t bytes = g->groups * p.depth * p.plane * unit->size;
    p.images = max64(1, min64(g->batch, GROUP_BYTES / bytes));
    return p;
}

static void
parts_of(const plan *p, const spread_unit *unit, int64_t bytes[PARTS])
{
    const conv_geometry *g = &p->g;
    int64_t planes = p->images * g->groups * p->depth * p->plane;
    bytes[PLANES] = round_up(planes * unit->size, 64);
    bytes[WEIGHTS] = round_up(
        g->groups * g->taps * p->blocks * ROWS * p->row * unit->size, 64);
    bytes[THREAD] =
        max64(g->stride[2] * (ROWS + 1) + ROWS, unit->run) * p->lanes * 4;
}

/* Lanes for each place of small: of more, whose others are zeros, the products
 * alone and adding up take less. Those of pairs take half. */
enum { MOST = 2, MOST_PAIRS = 3 };

bool
cpu_spread_takes(const conv_geometry *g, int dtype)
{
    const int64_t most = dtype == AIR_BF16 ? MOST_PAIRS : MOST;
    if (g->out_pixels <= 0 || g->batch <= 0 || g->c_in <= 0 || g->taps <= 0)
        return false;
    plan p = plan_planes(g);
    return g->c_in >= 8 && g->c_out >= 16 &&
           g->kernel[2] <= TAPS / max64(1, g->taps / g->kernel[2]) &&
           g->stride[2] <= 16 && places_of(&p) <= most * g->out_pixels;
}

/* ---- planes and weights -------------------------------------------------- */

/* Some channels of an image: from their first pixel on. */
static void
fill_plane(const spread *w, char *at, const char *from, int64_t have)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t step = w->unit->pairs * w->unit->size;
    int64_t n = min64(g->out[2], p->places[2] + tail(g, 2));
    memset(at, 0, (size_t)(p->plane * step));
    if (have <= 0)
        return;
    for (int64_t r = 0; r < g->out[0] * g->out[1]; r++) {
        int64_t z = r / g->out[1], y = r % g->out[1];
        int64_t row = (z + p->lead[0]) * p->size[1] + y + p->lead[1];
        if (z >= p->places[0] + tail(g, 0) || y >= p->places[1] + tail(g, 1))
            continue; /* no pixel meets it */
        w->unit->plane(w->ops, at + (row * p->size[2] + p->lead[2]) * step,
                       from + r * g->out[2] * bytes_of(w->small), g->out_pixels,
                       have, w->small->dtype, n);
    }
}

static void
fill_planes(const spread *w)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const int64_t pairs = w->unit->pairs, each = p->depth / pairs;
    int64_t b, e;
    air_split(w->images * g->groups * each, w->task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t group = w->image * g->groups + i / each, c = i % each * pairs;
        fill_plane(w, w->planes + i * pairs * p->plane * w->unit->size,
                   (const char *)air_data(w->small, w->task) +
                       (group * g->c_out + c) * g->out_pixels *
                           bytes_of(w->small),
                   min64(pairs, g->c_out - c));
    }
}

static char *
weights_at(const spread *w, int64_t group, int64_t tap, int64_t row)
{
    const plan *p = &w->p;
    return w->weights + ((group * p->g.taps + tap) * p->blocks * ROWS + row) *
                            p->row * w->unit->size;
}

/* Windows [first, first + n) as one long row, of p->lanes channels from c on.
 */
static void
turn_weights(const spread *w, int64_t group, int64_t c, int64_t first,
             int64_t n)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const int64_t step = g->c_in * g->taps, size = p->lanes * w->unit->size;
    char *turned = (char *)w->acc;
    w->unit->turn(w->ops, turned,
                  (const char *)air_data(w->weight, w->task) +
                      ((group * g->c_out + c) * step + first) *
                          bytes_of(w->weight),
                  step, w->weight->dtype, min64(p->lanes, g->c_out - c), n);
    for (int64_t i = 0; i < n; i++)
        memcpy(
            weights_at(w, group, (first + i) % g->taps, (first + i) / g->taps) +
                c * w->unit->size,
            turned + i * size, (size_t)size);
}

static void
fill_weights(const spread *w)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t columns = (g->c_out + p->lanes - 1) / p->lanes, b, e;
    int64_t all = g->c_in * g->taps, run = w->unit->run;
    int64_t parts = (all + run - 1) / run;
    air_split(g->groups * parts * columns, w->task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t first = i / columns % parts * run;
        turn_weights(w, i / columns / parts, i % columns * p->lanes, first,
                     min64(run, all - first));
    }
}

/* ---- products ------------------------------------------------------------ */

static bool
meets(const conv_geometry *g, int axis, int64_t tap, int64_t phase)
{
    return (phase + g->pad[axis] - tap * g->dilation[axis]) % g->stride[axis] ==
           0;
}

/* Taps of the phases (z, y, x) of an item, and where they are read. */
static int64_t
find_taps(const spread *w, const item *it, int64_t x, const void **planes,
          const void **weights)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t image = it->image * g->groups + it->group, count = 0;
    const char *at = w->planes + image * p->depth * p->plane * w->unit->size;
    for (int64_t tap = 0; tap < g->taps; tap++) {
        const int64_t t[AXES] = {tap / g->kernel[2] / g->kernel[1],
                                 tap / g->kernel[2] % g->kernel[1],
                                 tap % g->kernel[2]};
        const int64_t phase[AXES] = {it->z, it->y, x};
        int64_t place = 0;
        bool met = true;
        for (int i = 0; i < AXES; i++) {
            met = met && meets(g, i, t[i], phase[i]);
            place =
                place * p->size[i] + p->lead[i] +
                (phase[i] + g->pad[i] - t[i] * g->dilation[i]) / g->stride[i];
        }
        if (!met)
            continue;
        planes[count] = at + (place + it->at) * w->unit->pairs * w->unit->size;
        weights[count++] = weights_at(w, it->group, tap, it->row);
    }
    return count;
}

static void
run_phase(const spread *w, const item *it, int64_t x)
{
    const void *planes[TAPS], *weights[TAPS];
    float *acc = w->acc + x * ROWS * w->p.lanes;
    spread_taps taps = {.n = it->n,
                        .lanes = min64(w->p.lanes, places_of(&w->p) - it->at),
                        .depth = w->p.depth,
                        .row = w->p.row,
                        .plane = w->p.plane,
                        .planes = planes,
                        .weights = weights};
    taps.count = find_taps(w, it, x, planes, weights);
    if (taps.count > 0)
        w->unit->multiply(w->ops, acc, &taps);
    else
        memset(acc, 0, (size_t)(ROWS * w->p.lanes) * sizeof *acc);
}

/* ---- results ------------------------------------------------------------- */

typedef float four __attribute__((vector_size(16)));
typedef int32_t picks __attribute__((vector_size(16)));

static four
load_four(const float *p)
{
    four v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* to[i * s + f] = from[f * step + i] + bias of two phases, i < n; n % 4 == 0 */
static void
put_two(float *to, int64_t s, const float *from, int64_t step, float bias,
        int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        four a = load_four(from + i) + bias;
        four b = load_four(from + step + i) + bias;
        four low = __builtin_shuffle(a, b, (picks){0, 4, 1, 5});
        four high = __builtin_shuffle(a, b, (picks){2, 6, 3, 7});
        float *at = to + i * s;
        memcpy(at, &low, 8);
        memcpy(at + s, (const char *)&low + 8, 8);
        memcpy(at + 2 * s, &high, 8);
        memcpy(at + 3 * s, (const char *)&high + 8, 8);
    }
}

/* The phases of n places side by side. */
static void
interlace(float *to, int64_t s, const float *from, int64_t step, float bias,
          int64_t n)
{
    int64_t whole = n / 4 * 4, f = 0;
    for (; f + 2 <= s; f += 2)
        put_two(to + f, s, from + f * step, step, bias, whole);
    for (int64_t k = 0; k < s; k++)
        for (int64_t i = k < f ? whole : 0; i < n; i++)
            to[i * s + k] = from[k * step + i] + bias;
}

/* n places of row r from lane l on, the first of which is x: to `to`, the row
 * of pixels. */
static void
put_run(const spread *w, int64_t r, int64_t l, int64_t x, int64_t n, float bias,
        char *to)
{
    const int64_t s = w->p.g.stride[2], size = bytes_of(w->big);
    const float *from = w->acc + r * w->p.lanes + l;
    int64_t pixels = min64(n * s, w->p.g.in[2] - x * s);
    to += x * s * size;
    if (w->unit->put2 != NULL && s == 2) {
        w->unit->put2(to, from, from + ROWS * w->p.lanes, bias, pixels);
        return;
    }
    const bool whole = pixels == n * s && w->big->dtype == AIR_F32;
    interlace(whole ? (float *)(void *)to : w->line, s, from, ROWS * w->p.lanes,
              bias, n);
    if (whole)
        return;
    w->ops->narrow(to, 1, w->big->dtype, w->line, 1, pixels);
}

static void
put_row(const spread *w, const item *it, int64_t r)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t channel = it->group * g->c_in + it->row + r,
            bytes = bytes_of(w->big);
    float bias = 0;
    char *to = (char *)air_data(w->big, w->task) +
               ((w->image + it->image) * g->groups * g->c_in + channel) *
                   g->in_pixels * bytes;
    if (w->bias != NULL)
        w->ops->widen(&bias,
                      (const char *)air_data(w->bias, w->task) +
                          channel * bytes_of(w->bias),
                      1, w->bias->dtype, 1);
    for (int64_t l = 0, n; l < p->lanes; l += n) {
        int64_t x = (it->at + l) % p->size[2], row = (it->at + l) / p->size[2];
        n = min64(p->lanes - l, p->size[2] - x);
        int64_t z = row / p->size[1] * g->stride[0] + it->z;
        int64_t y = row % p->size[1] * g->stride[1] + it->y;
        if (z < g->in[0] && y < g->in[1] && x < p->places[2])
            put_run(w, r, l, x, min64(n, p->places[2] - x), bias,
                    to + (z * g->in[1] + y) * g->in[2] * bytes);
    }
}

static item
find_item(const spread *w, int64_t i)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    item it = {.at = i % p->chunks * p->lanes};
    i /= p->chunks;
    it.row = i % p->blocks * ROWS;
    i /= p->blocks;
    it.y = i % g->stride[1];
    i /= g->stride[1];
    it.z = i % g->stride[0];
    i /= g->stride[0];
    it.group = i % g->groups;
    it.image = i / g->groups;
    it.n = min64(ROWS, g->c_in - it.row);
    return it;
}

static void
run_products(const spread *w)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t b, e;
    air_split(w->images * g->groups * g->stride[0] * g->stride[1] * p->blocks *
                  p->chunks,
              w->task, &b, &e);
    if (w->unit->begin != NULL)
        w->unit->begin();
    for (int64_t i = b; i < e; i++) {
        item it = find_item(w, i);
        for (int64_t x = 0; x < g->stride[2]; x++)
            run_phase(w, &it, x);
        for (int64_t r = 0; r < it.n; r++)
            put_row(w, &it, r);
    }
    if (w->unit->end != NULL)
        w->unit->end();
}

/* ---- the kernel ---------------------------------------------------------- */

size_t
cpu_spread_workspace(const conv_geometry *g, int threads,
                     const spread_unit *unit)
{
    int64_t most = 0;
    for (int64_t lanes = 1; lanes <= GEMM_LANES_MAX; lanes *= 2) {
        int64_t bytes[PARTS];
        plan p = make_plan(g, unit, lanes);
        parts_of(&p, unit, bytes);
        most = max64(most,
                     bytes[PLANES] + bytes[WEIGHTS] + bytes[THREAD] * threads);
    }
    return (size_t)most;
}

void
cpu_spread_run(const air_call *call, const conv_geometry *g,
               const air_task *task, const gemm_ops *ops,
               const spread_unit *unit)
{
    const air_arg *bias = &call->args[2];
    spread w = {.p = make_plan(g, unit, ops->lanes),
                .small = call->args[0].t,
                .weight = call->args[1].t,
                .big = &call->outs[0],
                .ops = ops,
                .unit = unit,
                .task = task};
    int64_t bytes[PARTS];
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        w.bias = bias->t;
    parts_of(&w.p, unit, bytes);
    w.planes = task->workspace;
    w.weights = w.planes + bytes[PLANES];
    w.acc = (float *)(void *)(w.weights + bytes[WEIGHTS] +
                              bytes[THREAD] * task->id);
    w.line = w.acc + g->stride[2] * ROWS * w.p.lanes;
    fill_weights(&w);
    for (; w.image < g->batch; w.image += w.images) {
        w.images = min64(w.p.images, g->batch - w.image);
        fill_planes(&w);
        task->barrier(task);
        run_products(&w);
        if (w.image + w.images < g->batch)
            task->barrier(task); /* the planes are free again */
    }
}

/* ---- floats -------------------------------------------------------------- */

static void
plane(const gemm_ops *ops, void *dst, const void *p, int64_t step, int64_t have,
      int dtype, int64_t n)
{
    (void)step, (void)have;
    ops->widen(dst, p, 1, dtype, n);
}

static void
turn(const gemm_ops *ops, void *dst, const void *p, int64_t step, int dtype,
     int64_t channels, int64_t n)
{
    gemm_view view = {p, step, 1, dtype};
    ops->pack_x(dst, &view, 0, channels, 0, n);
}

/* Channels [k, k + n) of a tap. Those are on pages of their own: each tile asks
 * for a line of what comes next. */
static void
multiply_tap(const gemm_ops *ops, float *acc, const spread_taps *t, int64_t i,
             int64_t k, int64_t n)
{
    const float *x = (const float *)t->planes[i] + k * t->plane;
    const float *w = (const float *)t->weights[i] + k;
    bool first = k == 0 && i == 0;
    int64_t tiles = (t->n + ops->rows - 1) / ops->rows;
    for (int64_t j = 0; j < tiles; j++) { /* even sizes: no thin last one */
        int64_t r = t->n * j / tiles, e = t->n * (j + 1) / tiles;
        const gemm_ahead next =
            gemm_ahead_of(x + t->lanes + j * 16, t->plane * 4);
        ops->tile(acc + r * ops->lanes, e - r, x, t->plane, t->lanes,
                  w + r * t->row, t->row, 1, n, first, &next);
    }
}

static void
multiply(const gemm_ops *ops, float *acc, const spread_taps *t)
{
    for (int64_t k = 0; k < t->depth; k += CHAIN)
        for (int64_t i = 0; i < t->count; i++)
            multiply_tap(ops, acc, t, i, k, min64(CHAIN, t->depth - k));
}

const spread_unit cpu_spread_floats = {.size = 4,
                                       .unit = 1,
                                       .pairs = 1,
                                       .run = 128,
                                       .plane = plane,
                                       .turn = turn,
                                       .multiply = multiply};
