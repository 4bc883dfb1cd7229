/* conv_weight.c: the gradient of a convolution's weights,
 *     dw[co, ci, tap] = sum over images and places of small[co] * big[ci]
 * a matrix product whose depth is all places of all images.
 *
 * `small` is copied to [channel][image, place] as floats once. Columns of big
 * lie in the lanes: for each tap some channels, or, of few channels, channels
 * and taps as in memory. Depth comes in blocks that stay in the cache, and in
 * spans that threads may share; the sums of the spans are added at the end, so
 * that results depend on sizes alone. Of one channel a group: conv_direct.c; of
 * many channels and little padding, which is most: conv_planes.c. */
#include "driver/cpu/conv/conv_backward.h"
#include "driver/cpu/conv/conv_direct.h"
#include "driver/cpu/conv/conv_planes.h"
#include "driver/cpu/product/gemm.h"

#include <string.h>

#define DEPTH   GEMM_KB             /* of a block */
#define CHAIN   64                  /* products in a row; then sums of sums */
#define PANELS  8                   /* that share a block of small */
#define ROWS    128                 /* of small that share packed panels */
#define SPAN    4096                /* depth of a span at least */
#define ITEMS   32                  /* pieces of work aimed at */
#define SUM_MAX ((int64_t)16 << 20) /* floats of all spans' sums */

typedef struct {
    conv_geometry g;
    const air_tensor *big, *small, *out;
    const gemm_ops *ops;
    const air_task *task;
    bool by_tap;         /* lanes are channels of one tap */
    int64_t panels;      /* of a group */
    int64_t depth, step; /* images x places; floats of a row of small */
    int64_t spans, row_blocks, panel_blocks;
    float *rows, *sums; /* small as floats; [span][weights] */
} weight;

static int64_t
blocks_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static int64_t
weights_of(const weight *w)
{
    return w->g.groups * w->g.c_out * w->g.c_in * w->g.taps;
}

/* lanes: of a panel; the plan is the same for all of them but for panels. */
static void
make_plan(weight *w, int64_t lanes)
{
    const conv_geometry *g = &w->g;
    w->depth = g->batch * g->out_pixels;
    w->step = (w->depth + 15) / 16 * 16 + 16; /* no power of two */
    w->by_tap = 2 * g->c_in >= GEMM_LANES_MAX / 2;
    w->panels = w->by_tap ? g->taps * blocks_of(g->c_in, lanes)
                          : blocks_of(g->taps * g->c_in, lanes);
    w->row_blocks = blocks_of(g->c_out, ROWS);
    w->panel_blocks = blocks_of(w->panels, PANELS);
    int64_t columns = g->taps * g->c_in;
    int64_t items = g->groups * w->row_blocks *
                    blocks_of(columns, PANELS * GEMM_LANES_MAX / 2);
    int64_t most = min64(w->depth / SPAN, SUM_MAX / (weights_of(w) + 1));
    w->spans = min64(items > 0 ? ITEMS / items : 1, most);
    if (w->spans < 1)
        w->spans = 1;
}

/* (a, small, size, stride, padding, dilation, groups) */
static weight
read_call(const air_call *call)
{
    weight w = {.big = call->args[0].t,
                .small = call->args[1].t,
                .out = &call->outs[0]};
    w.g = cpu_conv_geometry(w.big, w.small, w.out, &call->args[3],
                            call->args[6].i);
    return w;
}

/* ---- small as rows of floats --------------------------------------------- */

static void
widen_rows(const weight *w)
{
    const conv_geometry *g = &w->g;
    int64_t channels = g->groups * g->c_out, b, e;
    int64_t size = cpu_gemm_size_of(w->small->dtype);
    const char *p = air_data(w->small, w->task);
    air_split(channels * g->batch, w->task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t n = i / channels, c = i % channels;
        w->ops->widen(w->rows + c * w->step + n * g->out_pixels,
                      p + i * g->out_pixels * size, 1, w->small->dtype,
                      g->out_pixels);
    }
}

/* ---- columns of big ------------------------------------------------------ */

/* Where a panel's lanes begin, and how many are in use. */
typedef struct {
    int64_t group, tap, first, lanes; /* by tap: first channel, else column */
} panel_place;

static panel_place
find_panel(const weight *w, int64_t group, int64_t panel)
{
    int64_t lanes = w->ops->lanes, per = blocks_of(w->g.c_in, lanes);
    panel_place p = {.group = group};
    if (!w->by_tap) {
        p.first = panel * lanes;
        p.lanes = min64(lanes, w->g.c_in * w->g.taps - p.first);
        return p;
    }
    p.tap = panel / per;
    p.first = panel % per * lanes;
    p.lanes = min64(lanes, w->g.c_in - p.first);
    return p;
}

static const char *
big_channel(const weight *w, int64_t image, int64_t group, int64_t c)
{
    int64_t channel = (image * w->g.groups + group) * w->g.c_in + c;
    return (const char *)air_data(w->big, w->task) +
           channel * w->g.in_pixels * cpu_gemm_size_of(w->big->dtype);
}

/* Lanes are channels: pixels are turned into them. Places [l, l + n) of an
 * image go to rows from `panel` on. */
static void
pack_channels(const weight *w, const panel_place *p, float *panel,
              int64_t image, int64_t l, int64_t n)
{
    conv_segment s[DEPTH];
    const char *x = big_channel(w, image, p->group, p->first);
    int count = cpu_conv_segments(&w->g, l, n, p->tap, s);
    for (int i = 0; i < count; i++) {
        gemm_view view = {x + s[i].at * cpu_gemm_size_of(w->big->dtype),
                          w->g.in_pixels, w->g.stride[2], w->big->dtype};
        w->ops->pack_x(panel + s[i].lane * w->ops->lanes, &view, 0, p->lanes, 0,
                       s[i].count);
    }
}

/* Lanes are columns [channel][tap]: line[lane][DEPTH] += places [l, l + n). */
static void
copy_columns(const weight *w, const panel_place *p, float *line, int64_t image,
             int64_t l, int64_t n)
{
    conv_segment s[DEPTH];
    int64_t size = cpu_gemm_size_of(w->big->dtype);
    for (int64_t lane = 0; lane < p->lanes; lane++) {
        int64_t column = p->first + lane;
        const char *x = big_channel(w, image, p->group, column / w->g.taps);
        int count = cpu_conv_segments(&w->g, l, n, column % w->g.taps, s);
        for (int i = 0; i < count; i++)
            w->ops->copies(line + lane * DEPTH + s[i].lane, DEPTH,
                           x + s[i].at * size, 0, w->g.stride[2], w->big->dtype,
                           s[i].count, 1);
    }
}

/* Panel for depth [k0, k0 + n). */
static void
pack(const weight *w, const panel_place *p, float *panel, float *line,
     int64_t k0, int64_t n)
{
    int64_t pixels = w->g.out_pixels, lanes = w->ops->lanes;
    if (w->by_tap)
        memset(panel, 0, (size_t)(n * lanes) * sizeof *panel);
    else
        memset(line, 0, (size_t)(lanes * DEPTH) * sizeof *line);
    for (int64_t k = 0; k < n;) {
        int64_t image = (k0 + k) / pixels, l = (k0 + k) % pixels;
        int64_t part = min64(n - k, pixels - l);
        if (w->by_tap)
            pack_channels(w, p, panel + k * lanes, image, l, part);
        else
            copy_columns(w, p, line + k, image, l, part);
        k += part;
    }
    if (!w->by_tap) {
        gemm_view view = {line, DEPTH, 1, AIR_F32};
        w->ops->pack_x(panel, &view, 0, lanes, 0, n);
    }
}

/* ---- a piece of work ----------------------------------------------------- */

/* Panels [q0, q1) of a group, rows [r0, r1) of it, depth [k0, k1). */
typedef struct {
    int64_t group, span, q0, q1, r0, r1, k0, k1;
} piece;

static piece
find_piece(const weight *w, int64_t i)
{
    piece p;
    int64_t rows = i % w->row_blocks, q = i / w->row_blocks % w->panel_blocks;
    i /= w->row_blocks * w->panel_blocks;
    p.span = i % w->spans;
    p.group = i / w->spans;
    p.q0 = q * PANELS;
    p.q1 = min64(w->panels, p.q0 + PANELS);
    p.r0 = w->g.c_out * rows / w->row_blocks;
    p.r1 = w->g.c_out * (rows + 1) / w->row_blocks;
    p.k0 = w->depth * p.span / w->spans;
    p.k1 = w->depth * (p.span + 1) / w->spans;
    return p;
}

/* sums[co][ci][tap] of the span from acc[row][lane]. */
static void
put_panel(const weight *w, const piece *p, int64_t q, const float *acc)
{
    panel_place place = find_panel(w, p->group, q);
    int64_t columns = w->g.c_in * w->g.taps, lanes = w->ops->lanes;
    int64_t step = w->by_tap ? w->g.taps : 1;
    int64_t at = w->by_tap ? place.first * step + place.tap : place.first;
    float *sums = w->sums + p->span * weights_of(w) +
                  p->group * w->g.c_out * columns + at;
    for (int64_t r = p->r0; r < p->r1; r++, acc += lanes)
        for (int64_t l = 0; l < place.lanes; l++)
            sums[r * columns + l * step] = acc[l];
}

/* acc += panel x rows of small, a chain at a time: places are many, and one
 * chain over all of them rounds more than eager's sums do. */
static void
multiply(const weight *w, float *acc, int64_t rows, const float *panel,
         const float *small, int64_t n)
{
    int64_t lanes = w->ops->lanes;
    for (int64_t k = 0; k < n; k += CHAIN)
        w->ops->block(acc, rows, panel + k * lanes, lanes, small + k, w->step,
                      1, min64(CHAIN, n - k), false);
}

/* mem: PANELS x ROWS and DEPTH panels' rows, and DEPTH of a panel turned. */
static void
run_piece(const weight *w, const piece *p, float *mem)
{
    int64_t lanes = w->ops->lanes, rows = p->r1 - p->r0;
    float *acc = mem, *panel = acc + PANELS * ROWS * lanes;
    float *line = panel + DEPTH * lanes;
    const float *small = w->rows + (p->group * w->g.c_out + p->r0) * w->step;
    memset(acc, 0, (size_t)(PANELS * ROWS * lanes) * sizeof *acc);
    for (int64_t k = p->k0; k < p->k1; k += DEPTH) {
        int64_t n = min64(DEPTH, p->k1 - k);
        for (int64_t q = p->q0; q < p->q1; q++) {
            panel_place place = find_panel(w, p->group, q);
            pack(w, &place, panel, line, k, n);
            multiply(w, acc + (q - p->q0) * ROWS * lanes, rows, panel,
                     small + k, n);
        }
    }
    for (int64_t q = p->q0; q < p->q1; q++)
        put_panel(w, p, q, acc + (q - p->q0) * ROWS * lanes);
}

/* ---- the kernel ---------------------------------------------------------- */

static int64_t
thread_floats(void)
{
    return (PANELS * ROWS + 2 * DEPTH) * GEMM_LANES_MAX;
}

static int64_t
shared_floats(const weight *w)
{
    int64_t sums = w->spans * weights_of(w);
    return w->g.groups * w->g.c_out * w->step + (sums + 15) / 16 * 16;
}

/* out = the sum of the spans, of which the first collects. */
static void
add_spans(const weight *w)
{
    int64_t total = weights_of(w), b, e;
    int dtype = w->out->dtype;
    air_split(total, w->task, &b, &e);
    for (int64_t s = 1; s < w->spans; s++)
        w->ops->add(w->sums + b, w->sums + s * total + b, e - b);
    w->ops->narrow((char *)air_data(w->out, w->task) +
                       b * cpu_gemm_size_of(dtype),
                   1, dtype, w->sums + b, 1, e - b);
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    weight w = read_call(call);
    int64_t b, e;
    if (cpu_conv_weight_is_direct(&w.g)) {
        char *rows = (char *)task->workspace + AIR_SCRATCH * (size_t)task->id;
        cpu_conv_direct_weight(call, &w.g, ops, task, (float *)rows);
        return;
    }
    if (cpu_planes_take(&w.g)) {
        cpu_planes_run(call, &w.g, task, ops, &cpu_planes_floats);
        return;
    }
    make_plan(&w, ops->lanes);
    w.ops = ops;
    w.task = task;
    w.rows = task->workspace;
    w.sums = w.rows + w.g.groups * w.g.c_out * w.step;
    float *mem = w.rows + shared_floats(&w) + thread_floats() * task->id;
    widen_rows(&w);
    task->barrier(task);
    air_split(w.g.groups * w.spans * w.panel_blocks * w.row_blocks, task, &b,
              &e);
    for (int64_t i = b; i < e; i++) {
        piece p = find_piece(&w, i);
        run_piece(&w, &p, mem);
    }
    task->barrier(task);
    add_spans(&w);
}

size_t
cpu_convolution_weight_workspace(const air_call *call, int threads)
{
    weight w = read_call(call);
    if (cpu_conv_weight_is_direct(&w.g))
        return AIR_SCRATCH * (size_t)threads;
    if (cpu_planes_take(&w.g))
        return cpu_planes_workspace(&w.g, w.big->dtype, threads,
                                    &cpu_planes_floats);
    make_plan(&w, GEMM_LANES_MAX);
    return (size_t)(shared_floats(&w) + thread_floats() * threads) *
           sizeof(float);
}

static bool
accept(const air_call *call)
{
    const air_tensor *x = call->args[0].t, *y = call->args[1].t;
    return gemm_is_float(x->dtype) && y->dtype == x->dtype && x->rank >= 3 &&
           x->rank <= 2 + CONV_AXES && cpu_is_dense(x) && cpu_is_dense(y) &&
           cpu_is_dense(&call->outs[0]);
}

GEMM_KERNELS(convolution_weight)
