/* conv_planes.c: the gradient of a convolution's weights,
 *     dw[co, ci, tap] = sum over images and places of small[co] * big[ci]
 *
 * Each channel of big is copied into a plane with its padding (one for each
 * phase of a stride), each of small into rows as long as the plane's, with
 * zeros behind the last place of a row. A tap is then a shift: place q of small
 * meets element q + shift of the plane, rows of which are read where they lie,
 * and panels of small serve all taps. Sums depend on sizes alone.
 *
 * Rows of a product, a set, are channels of big at one tap; of few channels the
 * taps along a row that meet one phase of one channel. */
#include "driver/cpu/conv/conv_planes.h"

#include <string.h>

#define AXES        CONV_AXES
#define CHUNK       256 /* depth of a product: its panel stays in the L1 cache */
#define CHAIN       128 /* products in a row; then sums of sums */
#define ROWS        32  /* of a block: channels of big */
#define FINISH      96  /* rows that leave at once */
#define GROUP_BYTES ((int64_t)8 << 20)  /* of images that are packed at once */
#define ITEMS       32                  /* pieces of work aimed at */
#define SUM_MAX     ((int64_t)16 << 20) /* floats of all spans' sums */

typedef struct {
    conv_geometry g;
    int64_t size[AXES], phases[AXES]; /* of a plane; of a stride that are met */
    int64_t pieces, plane;            /* planes of a channel; elements of one */
    int64_t depth, room;   /* of an image's rows of small; of panels */
    int64_t images;        /* at a time */
    int64_t lanes, panels; /* channels of small, of a group */
    bool few;              /* channels of big */
    int64_t rows, blocks;  /* of a set; of channels of big, of a group */
    int64_t sets;          /* of a block */
    int64_t spans, chunks; /* of depth; of an image */
    bool plain, in_place;  /* small has such rows; big such planes */
} plan;

typedef struct {
    plan p;
    const air_tensor *big, *small, *out;
    bool turned; /* big and small have changed places */
    const gemm_ops *ops;
    const planes_unit *unit;
    const air_task *task;
    char *planes, *panels, *mine; /* mine: of this thread */
    float *sums;           /* [group][panel][block][span][set][row][lane] */
    int64_t image, images; /* the ones that are packed */
} weight;

static int64_t
blocks_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* ---- the plan ------------------------------------------------------------ */

static int64_t
reach(const conv_geometry *g, int axis)
{
    return (g->kernel[axis] - 1) * g->dilation[axis];
}

static void
plan_planes(plan *p)
{
    const conv_geometry *g = &p->g;
    int64_t all = 1;
    p->pieces = p->depth = 1;
    for (int i = 0; i < AXES; i++) {
        p->size[i] = g->out[i] + reach(g, i) / g->stride[i];
        p->phases[i] = min64(g->stride[i], reach(g, i) + 1);
        p->pieces *= p->phases[i];
        all *= p->size[i];
    }
    p->depth =
        ((g->out[0] - 1) * p->size[1] + g->out[1] - 1) * p->size[2] + g->out[2];
    p->plane = all;
}

static int64_t
sums_of(const plan *p) /* floats of a span of a block */
{
    return p->sets * p->rows * p->lanes;
}

static int64_t
items_of(const plan *p)
{
    return p->g.groups * p->panels * p->blocks;
}

static void
plan_spans(plan *p)
{
    int64_t most =
        min64(p->images * p->chunks, SUM_MAX / (sums_of(p) * items_of(p) + 1));
    p->spans = max64(1, min64(ITEMS / items_of(p), most));
}

static bool
has_few(const conv_geometry *g)
{
    return g->c_in < 8;
}

static void
plan_sets(plan *p, const planes_unit *unit)
{
    const conv_geometry *g = &p->g;
    p->few = has_few(g);
    p->sets = g->taps;
    p->rows = min64(ROWS, round_up(g->c_in, 16));
    p->blocks = blocks_of(g->c_in, ROWS);
    if (p->few) {
        p->sets = g->c_in * g->taps / g->kernel[2] * p->phases[2];
        p->rows = round_up(blocks_of(g->kernel[2], g->stride[2]), unit->rows);
    }
}

static int64_t
image_bytes(const plan *p, const planes_unit *unit)
{
    const conv_geometry *g = &p->g;
    return g->groups * unit->size *
           (g->c_in * p->pieces * p->plane + p->panels * p->lanes * p->room);
}

/* Big is read as it lies where products read nothing behind a channel. */
static bool
is_in_place(const plan *p, const planes_unit *unit, int dtype)
{
    return cpu_conv_is_pointwise(&p->g) && dtype == unit->dtype &&
           p->depth % unit->depth == 0 && p->g.c_in % unit->rows == 0;
}

/* dtype: of the operands. */
static plan
make_plan(const conv_geometry *g, int dtype, const planes_unit *unit,
          int64_t lanes)
{
    plan p = {.g = *g, .lanes = lanes};
    plan_planes(&p);
    p.plain = p.size[1] == g->out[1] && p.size[2] == g->out[2];
    p.in_place = is_in_place(&p, unit, dtype);
    p.room = round_up(p.depth, unit->unit);
    /* A product may read on to the end of its unit. Rows that share sets of a
     * cache are kept apart. */
    if (!p.in_place)
        p.plane = round_up(p.plane + p.room - p.depth, 16);
    if (!p.in_place && p.pieces * p.plane % 256 == 0)
        p.plane += 16;
    p.panels = blocks_of(g->c_out, lanes);
    plan_sets(&p, unit);
    p.chunks = blocks_of(p.room, CHUNK);
    p.images = max64(1, min64(g->batch, GROUP_BYTES / image_bytes(&p, unit)));
    plan_spans(&p);
    return p;
}

bool
cpu_planes_take(const conv_geometry *g)
{
    plan p = {.g = *g};
    if (g->out_pixels <= 0 || g->batch <= 0 || g->taps <= 0)
        return false;
    plan_planes(&p);
    int64_t along = blocks_of(g->kernel[2], g->stride[2]);
    if (has_few(g) && (g->dilation[2] != 1 || along < 3 || along > 16))
        return false;
    return g->c_out >= 12 && 3 * p.depth <= 5 * g->out_pixels;
}

/* ---- planes and panels --------------------------------------------------- */

static const char *
channel(const weight *w, const air_tensor *t, int64_t c, int64_t pixels)
{
    return (const char *)air_data(t, w->task) +
           c * pixels * (t->dtype == AIR_F32 ? 4 : 2);
}

/* Row `at` of a phase from row `from` of a channel of big (NULL: outside). */
static void
fill_row(const weight *w, char *at, const char *from, int64_t phase)
{
    const plan *p = &w->p;
    const air_tensor *big = w->big;
    int64_t size = w->unit->size, stride = p->g.stride[2], b = 0, e = 0;
    int64_t bytes = big->dtype == AIR_F32 ? 4 : 2, first = phase - p->g.pad[2];
    if (from != NULL) {
        b = first < 0 ? min64(p->size[2], (stride - 1 - first) / stride) : 0;
        first += b * stride;
        e = b + (p->g.in[2] - first + stride - 1) / stride;
        e = max64(b, min64(p->size[2], e));
    }
    memset(at, 0, (size_t)(b * size));
    if (e > b)
        w->unit->copy(w->ops, at + b * size, from + first * bytes, stride,
                      big->dtype, e - b);
    memset(at + e * size, 0, (size_t)((p->size[2] - e) * size));
}

/* Phase `f` of a channel of big. */
static void
fill_plane(const weight *w, char *at, const char *from, int64_t f)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const int64_t x = f % p->phases[2], y = f / p->phases[2] % p->phases[1];
    const int64_t z = f / p->phases[2] / p->phases[1];
    int64_t row = g->in[2] * (w->big->dtype == AIR_F32 ? 4 : 2);
    int64_t step = p->size[2] * w->unit->size, rows = p->size[0] * p->size[1];
    for (int64_t i = 0; i < rows; i++, at += step) {
        int64_t iz = i / p->size[1] * g->stride[0] + z - g->pad[0];
        int64_t iy = i % p->size[1] * g->stride[1] + y - g->pad[1];
        bool inside = iz >= 0 && iz < g->in[0] && iy >= 0 && iy < g->in[1];
        fill_row(w, at, inside ? from + (iz * g->in[1] + iy) * row : NULL, x);
    }
    memset(at, 0, (size_t)((p->plane - rows * p->size[2]) * w->unit->size));
}

static void
fill_planes(weight *w)
{
    const plan *p = &w->p;
    int64_t channels = p->g.groups * p->g.c_in, b, e;
    if (p->in_place) {
        const void *at =
            channel(w, w->big, w->image * channels, p->g.in_pixels);
        w->planes = (char *)(uintptr_t)at; /* only read */
        return;
    }
    air_split(w->images * channels * p->pieces, w->task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t c = w->image * channels + i / p->pieces;
        fill_plane(w, w->planes + i * p->plane * w->unit->size,
                   channel(w, w->big, c, p->g.in_pixels), i % p->pieces);
    }
}

/* Elements [q0, q0 + n) of the rows of a channel of small. */
static void
fill_line(const weight *w, char *at, const char *from, int64_t q0, int64_t n)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const int dtype = w->small->dtype;
    const int64_t bytes = dtype == AIR_F32 ? 4 : 2, size = w->unit->size;
    for (int64_t q = q0, part; q < q0 + n; q += part, at += part * size) {
        int64_t row = q / p->size[2], x = q % p->size[2];
        int64_t y = row % p->size[1], z = row / p->size[1];
        part = min64(q0 + n - q, p->size[2] - x);
        int64_t real = max64(0, min64(part, g->out[2] - x));
        if (y >= g->out[1] || z >= g->out[0])
            real = 0;
        if (real > 0)
            w->unit->copy(w->ops, at,
                          from + ((z * g->out[1] + y) * g->out[2] + x) * bytes,
                          1, dtype, real);
        memset(at + real * size, 0, (size_t)((part - real) * size));
    }
}

/* Of chunk `k` of one panel of channels from c on. */
static void
fill_panel(const weight *w, char *panel, int64_t c, int64_t n, int64_t k)
{
    const plan *p = &w->p;
    const int64_t size = w->unit->size;
    const air_tensor *small = w->small;
    int64_t q0 = k * CHUNK, depth = min64(CHUNK, p->room - q0);
    const char *from = channel(w, small, c, p->g.out_pixels);
    gemm_view rows = {w->mine, CHUNK, 1, w->unit->dtype};
    if (p->plain) {
        depth = min64(CHUNK, p->depth - q0);
        rows = (gemm_view){from + q0 * (small->dtype == AIR_F32 ? 4 : 2),
                           p->g.out_pixels, 1, small->dtype};
    }
    for (int64_t l = 0; l < n && !p->plain; l++)
        fill_line(w, w->mine + l * CHUNK * size,
                  channel(w, small, c + l, p->g.out_pixels), q0, depth);
    w->unit->pack(w->ops, panel + q0 * p->lanes * size, &rows, n, depth);
}

static void
fill_panels(const weight *w)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    int64_t b, e, each = p->room * p->lanes * w->unit->size;
    air_split(w->images * g->groups * p->panels * p->chunks, w->task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t at = i / p->chunks, first = at % p->panels * p->lanes;
        int64_t c = (w->image * g->groups + at / p->panels) * g->c_out + first;
        fill_panel(w, w->panels + at * each, c,
                   min64(p->lanes, g->c_out - first), i % p->chunks);
    }
}

/* ---- products ------------------------------------------------------------ */

/* Where tap `tap` begins in the planes of a channel. */
static int64_t
tap_at(const plan *p, int64_t tap)
{
    const conv_geometry *g = &p->g;
    int64_t at[AXES] = {tap / g->kernel[2] / g->kernel[1],
                        tap / g->kernel[2] % g->kernel[1], tap % g->kernel[2]};
    int64_t phase = 0, shift = 0;
    for (int i = 0; i < AXES; i++) {
        phase = phase * p->phases[i] + at[i] * g->dilation[i] % g->stride[i];
        shift = shift * p->size[i] + at[i] * g->dilation[i] / g->stride[i];
    }
    return phase * p->plane + shift;
}

/* The rows of set `i` of a group's planes. */
typedef struct {
    int64_t at, ld, n;
} row_set;

static row_set
set_at(const plan *p, int64_t block, int64_t i)
{
    const conv_geometry *g = &p->g;
    const int64_t ld = p->pieces * p->plane, first = block * ROWS;
    if (!p->few)
        return (row_set){first * ld + tap_at(p, i), ld,
                         min64(ROWS, g->c_in - first)};
    int64_t x = i % p->phases[2], line = i / p->phases[2];
    int64_t lines = g->taps / g->kernel[2];
    return (row_set){line / lines * ld +
                         tap_at(p, line % lines * g->kernel[2] + x),
                     1, blocks_of(g->kernel[2] - x, g->stride[2])};
}

/* Which row of a block's sums is tap `tap` of channel r. */
static int64_t
row_of(const plan *p, int64_t r, int64_t tap)
{
    const int64_t width = p->g.kernel[2], s = p->g.stride[2];
    if (!p->few)
        return tap * p->rows + r;
    int64_t line = (r * p->g.taps + tap) / width, x = tap % width;
    return (line * p->phases[2] + x % s) * p->rows + x / s;
}

/* Chunk `k` of all packed images: panel `panel` and block `b` of a group. */
static void
run_chunk(const weight *w, float *acc, int64_t item, int64_t k)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const int64_t size = w->unit->size, ld = p->pieces * p->plane;
    int64_t b = item % p->blocks, panel = item / p->blocks; /* and group */
    int64_t group = panel / p->panels, image = k / p->chunks;
    int64_t q0 = k % p->chunks * CHUNK;
    const char *x =
        w->panels + ((image * g->groups * p->panels + panel) * p->room + q0) *
                        p->lanes * size;
    const char *rows =
        w->planes + ((image * g->groups + group) * g->c_in * ld + q0) * size;
    for (int64_t i = 0; i < p->sets; i++, acc += p->rows * p->lanes) {
        row_set set = set_at(p, b, i);
        w->unit->multiply(w->ops, acc, set.n, rows + set.at * size, set.ld, x,
                          min64(CHUNK, p->depth - q0));
    }
}

static void
run_products(const weight *w)
{
    const plan *p = &w->p;
    int64_t b, e, count = w->images * p->chunks;
    air_split(items_of(p) * p->spans, w->task, &b, &e);
    if (w->unit->begin != NULL)
        w->unit->begin();
    for (int64_t i = b; i < e; i++) {
        float *acc = w->sums + i * sums_of(p);
        int64_t span = i % p->spans;
        if (w->image == 0)
            memset(acc, 0, (size_t)sums_of(p) * sizeof *acc);
        for (int64_t k = count * span / p->spans;
             k < count * (span + 1) / p->spans; k++)
            run_chunk(w, acc, i / p->spans, k);
    }
    if (w->unit->end != NULL)
        w->unit->end();
}

/* ---- results ------------------------------------------------------------- */

/* Rows and taps of `acc` as the weights have them. */
static float *
in_order(const weight *w, const float *acc, int64_t n)
{
    const plan *p = &w->p;
    float *to = (float *)(void *)w->mine;
    for (int64_t r = 0; r < n; r++)
        for (int64_t tap = 0; tap < p->g.taps; tap++)
            memcpy(to + (r * p->g.taps + tap) * p->lanes,
                   acc + row_of(p, r, tap) * p->lanes,
                   (size_t)p->lanes * sizeof *to);
    return to;
}

static void
put_item(const weight *w, int64_t item)
{
    const plan *p = &w->p;
    const conv_geometry *g = &p->g;
    const air_tensor *out = w->out;
    float *acc = w->sums + item * p->spans * sums_of(p);
    int64_t b = item % p->blocks, panel = item / p->blocks;
    int64_t first = panel % p->panels * p->lanes, k = g->c_in * g->taps;
    int64_t n = min64(ROWS, g->c_in - b * ROWS) * g->taps;
    gemm_job job = {.yl = k, .yr = 1, .y_dtype = out->dtype, .alpha = 1};
    for (int64_t s = 1; s < p->spans; s++)
        w->ops->add(acc, acc + s * sums_of(p), sums_of(p));
    int64_t at =
        (panel / p->panels * g->c_out + first) * k + b * ROWS * g->taps;
    if (w->turned) {
        at = (panel / p->panels * g->c_in + b * ROWS) * g->c_out + first;
        job.yl = 1, job.yr = g->c_out;
    }
    job.y =
        (char *)air_data(out, w->task) + at * (out->dtype == AIR_F32 ? 4 : 2);
    acc = in_order(w, acc, n / g->taps);
    for (int64_t r = 0; r < n; r += FINISH)
        w->ops->finish(&job, acc + r * p->lanes, FINISH, 0,
                       min64(p->lanes, g->c_out - first), r,
                       min64(FINISH, n - r));
}

/* ---- the kernel ---------------------------------------------------------- */

/* Bytes: planes, rows behind them that are read, panels, sums, of a thread. */
enum { PLANES, PANELS, SUMS, THREAD, PARTS };

static void
parts_of(const plan *p, const planes_unit *unit, int64_t bytes[PARTS])
{
    const conv_geometry *g = &p->g;
    int64_t line = CHUNK * p->lanes * unit->size;
    bytes[PLANES] = p->in_place
                        ? 0
                        : round_up((p->images * g->groups * g->c_in + 16) *
                                       p->pieces * p->plane * unit->size,
                                   64);
    bytes[PANELS] = round_up(p->images * g->groups * p->panels * p->lanes *
                                 p->room * unit->size,
                             64);
    bytes[SUMS] = items_of(p) * p->spans * sums_of(p) * 4;
    int64_t turned = min64(ROWS, g->c_in) * g->taps * p->lanes * 4;
    bytes[THREAD] = round_up(max64(line, turned), 64);
}

/* A window of one pixel: either side may be packed, best the smaller one. */
static bool
turns(const conv_geometry *g)
{
    return cpu_conv_is_pointwise(g) && g->c_in < g->c_out;
}

size_t
cpu_planes_workspace(const conv_geometry *g, int dtype, int threads,
                     const planes_unit *unit)
{
    conv_geometry turned = *g;
    int64_t most = 0;
    if (turns(g))
        turned.c_in = g->c_out, turned.c_out = g->c_in;
    for (int64_t lanes = 1; lanes <= GEMM_LANES_MAX; lanes *= 2) {
        int64_t bytes[PARTS];
        plan p = make_plan(&turned, dtype, unit, lanes);
        parts_of(&p, unit, bytes);
        most = max64(most, bytes[PLANES] + bytes[PANELS] + bytes[SUMS] +
                               bytes[THREAD] * threads);
    }
    return (size_t)most;
}

void
cpu_planes_run(const air_call *call, const conv_geometry *g,
               const air_task *task, const gemm_ops *ops,
               const planes_unit *unit)
{
    conv_geometry turned = *g;
    weight w = {.big = call->args[0].t,
                .small = call->args[1].t,
                .out = &call->outs[0],
                .ops = ops,
                .unit = unit,
                .task = task,
                .turned = turns(g)};
    if (w.turned) {
        turned.c_in = g->c_out, turned.c_out = g->c_in;
        w.big = call->args[1].t, w.small = call->args[0].t;
    }
    w.p = make_plan(&turned, w.big->dtype, unit, ops->lanes);
    int64_t bytes[PARTS], b, e;
    parts_of(&w.p, unit, bytes);
    w.planes = task->workspace;
    w.panels = w.planes + bytes[PLANES];
    w.sums = (float *)(void *)(w.panels + bytes[PANELS]);
    w.mine = (char *)w.sums + bytes[SUMS] + bytes[THREAD] * task->id;
    for (; w.image < g->batch; w.image += w.images) {
        w.images = min64(w.p.images, g->batch - w.image);
        fill_planes(&w);
        fill_panels(&w);
        task->barrier(task);
        run_products(&w);
        task->barrier(task);
    }
    air_split(items_of(&w.p), task, &b, &e);
    for (int64_t i = b; i < e; i++)
        put_item(&w, i);
}

/* ---- floats -------------------------------------------------------------- */

static void
copy(const gemm_ops *ops, void *dst, const void *p, int64_t stride, int dtype,
     int64_t n)
{
    ops->copies(dst, n, p, 0, stride, dtype, n, 1);
}

static void
pack(const gemm_ops *ops, void *panel, const gemm_view *rows, int64_t n,
     int64_t k)
{
    ops->pack_x(panel, rows, 0, n, 0, k);
}

static void
multiply(const gemm_ops *ops, float *acc, int64_t n, const void *rows,
         int64_t ld, const void *panel, int64_t k)
{
    const float *x = panel, *w = rows;
    for (int64_t i = 0; i < k; i += CHAIN)
        ops->block(acc, n, x + i * ops->lanes, ops->lanes, w + i, ld, 1,
                   min64(CHAIN, k - i), false);
}

const planes_unit cpu_planes_floats = {.size = 4,
                                       .unit = 16,
                                       .depth = 1,
                                       .rows = 1,
                                       .dtype = AIR_F32,
                                       .copy = copy,
                                       .pack = pack,
                                       .multiply = multiply};
