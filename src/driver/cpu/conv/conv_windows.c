/* conv_windows.c: convolutions whose windows have several taps, of f32 or,
 * where the CPU multiplies pairs, of bf16.
 *
 * The rows that a strip of results sees are copied, channel by channel, into
 * planes with padding that stay in the cache. There a tap is a shift: row k of
 * a panel of columns is what row 0 sees, steps[k] floats further, whatever the
 * places, and nobody asks for every tap where the image ends. A row of a plane
 * is as long as one of the image and the zeros between it and the next, which
 * serve both. With strides a channel has a plane for each remainder of rows and
 * of columns (of f32): there the places are adjacent, too.
 *
 * A plane of bf16 has two channels, and a number of it is a pixel of both. The
 * weights become pairs, too, in each call, slice by slice of the windows: those
 * outside of the image are then at the ends of a sum, which leaves them out. */
#include "driver/cpu/conv/conv_windows.h"
#include "driver/cpu/conv/conv.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/region_join.h"

#include <string.h>

#define BEHIND 64 /* floats that are read behind a plane */
/* Of a strip: they stay in a cache. */
#define PLANE_BYTES ((int64_t)384 << 10)

typedef struct {
    const conv_geometry *g;
    bool pairs;
    int64_t planes;        /* of channels or pairs of them */
    int64_t area, k, row;  /* taps of a slice, of all planes; of a channel out,
                              floats from one to the next */
    int64_t pitch;         /* floats from one row to the next */
    int64_t strip, strips; /* rows of results at most; of a plane of them */
    int64_t rows, channel; /* of a plane; floats of all slices */
    int64_t phases;        /* planes of a slice: remainders by the strides */
} layout;

static int64_t
reach(const conv_geometry *g, int axis)
{
    return (g->kernel[axis] - 1) * g->dilation[axis];
}

static void
set_strip(layout *l, int64_t strip)
{
    const conv_geometry *g = l->g;
    l->strip = strip;
    l->strips = (g->out[1] + strip - 1) / strip;
    l->rows = strip + reach(g, 1) / g->stride[1];
    l->channel = g->kernel[0] * l->phases * l->rows * l->pitch;
}

/* Floats that windows see of a row. */
static int64_t
seen(const conv_geometry *g)
{
    return g->out[2] + reach(g, 2) / g->stride[2];
}

static int64_t
plane_floats(const layout *l)
{
    return round_up(l->planes * l->channel + seen(l->g) + BEHIND, 16);
}

/* strip 0: one row of results sees too much. */
static layout
make_layout(const conv_geometry *g, bool pairs)
{
    layout l = {.g = g,
                .pairs = pairs,
                .planes = pairs ? (g->c_in + 1) / 2 : g->c_in,
                .area = g->kernel[1] * g->kernel[2],
                .phases = g->stride[1] * g->stride[2]};
    l.k = l.row = l.planes * g->taps;
    if (pairs && l.row % 128 == 0) /* rows that share sets of a cache */
        l.row += 16;
    l.pitch = max64(seen(g) - g->pad[2], g->out[2]);
    l.pitch = max64(l.pitch, min64(seen(g), g->pad[2] + g->in[2]));
    if (l.phases > 1)
        l.pitch = seen(g);
    set_strip(&l, 1);
    int64_t row = g->kernel[0] * l.phases * l.pitch * l.planes;
    int64_t one = plane_floats(&l);
    if (one > PLANE_BYTES / 4) {
        l.strip = 0;
        return l;
    }
    int64_t fit = 1 + (PLANE_BYTES / 4 - one) / row;
    int64_t strips = (g->out[1] + fit - 1) / fit;
    set_strip(&l, (g->out[1] + strips - 1) / strips);
    return l;
}

/* Places for each channel out from which on panels cost so much less that pairs
 * of weights pay. */
#define PLACES_EACH 3

enum { PHASES = 3, PHASE_TAPS = 16, STRIP_PLACES = 128 };

/* Windows by steps that overlap, of so many taps that a block of the depth has
 * few channels of each (else columns made tap by tap cost no more), and lanes
 * enough for a strip's panels. */
static bool
suits_phases(const conv_geometry *g)
{
    const layout l = make_layout(g, false);
    return l.area >= PHASE_TAPS && g->stride[1] <= PHASES &&
           g->stride[2] <= PHASES &&
           (g->kernel[1] > g->stride[1] || g->stride[1] == 1) &&
           g->kernel[2] > g->stride[2] &&
           (l.strips == 1 || l.strip * g->out[2] >= STRIP_PLACES);
}

bool
cpu_conv_is_windows(const air_call *call, const conv_geometry *g, bool pairs)
{
    const int dtype = pairs ? AIR_BF16 : AIR_F32;
    return call->args[0].t->dtype == dtype && call->outs[0].dtype == dtype &&
           g->taps > 1 &&
           ((g->stride[1] == 1 && g->stride[2] == 1) ||
            (!pairs && suits_phases(g))) &&
           g->c_in * g->c_out * g->out_pixels * g->batch > 0 &&
           (!pairs || g->out_pixels * g->batch >= PLACES_EACH * g->c_out) &&
           make_layout(g, pairs).strip > 0;
}

/* ---- planes -------------------------------------------------------------- */

/* From the first pixel of a window to that of a step of k, which counts
 * [plane][slice][tap] or, of pairs, [slice][plane][tap]. */
static void
find_steps(const layout *l, int32_t *steps)
{
    const conv_geometry *g = l->g;
    const int64_t each = l->pairs ? l->area : g->taps;
    const int64_t slice = l->pairs ? l->planes * l->area : l->area;
    for (int64_t i = 0; i < l->k; i++) {
        int64_t t = i % l->area, c = i / each % l->planes;
        int64_t z = i / slice % g->kernel[0];
        int64_t x = t % g->kernel[2] * g->dilation[2];
        int64_t y = t / g->kernel[2] * g->dilation[1];
        int64_t phase = y % g->stride[1] * g->stride[2] + x % g->stride[2];
        y = (z * l->phases + phase) * l->rows + y / g->stride[1];
        steps[i] = (int32_t)(c * l->channel + y * l->pitch + x / g->stride[2]);
    }
}

/* Where a strip is. */
typedef struct {
    int64_t z, y, rows;    /* the first row of results; how many */
    int64_t slice, slices; /* of its windows, that are summed */
} place;

/* `from` on: rows of a channel, or of two. */
static void
copy_rows(const layout *l, const gemm_ops *ops, float *to, const void *from,
          bool second, int64_t n, int64_t rows)
{
    const int64_t width = l->g->in[2];
    const uint16_t *p = from;
    if (!l->pairs)
        ops->copies(to, l->pitch, from, width, 1, AIR_F32, n, rows);
    else
        ops->copy_pairs(to, l->pitch, p, second ? p + l->g->in_pixels : NULL,
                        width, 1, n, rows);
}

/* Slice iz of plane c for a strip. */
static void
fill_slice(const layout *l, const gemm_ops *ops, float *to, const char *x,
           int64_t c, const place *at, int64_t iz)
{
    const conv_geometry *g = l->g;
    const int64_t each = l->pairs ? 2 : 1, size = l->pairs ? 2 : 4;
    int64_t top = at->y - g->pad[1], n = min64(g->in[2], seen(g) - g->pad[2]);
    int64_t b = max64(0, -top), e = min64(l->rows, g->in[1] - top);
    int64_t from =
        c * each * g->in_pixels + (iz * g->in[1] + top + b) * g->in[2];
    if (iz >= 0 && iz < g->in[0] && b < e && n > 0)
        copy_rows(l, ops, to + b * l->pitch + g->pad[2], x + from * size,
                  c * each + 1 < g->c_in, n, e - b);
}

/* The first of n places from `from` on, `step` apart, that is one of `size`,
 * and behind the last. */
static void
find_inside(int64_t from, int64_t step, int64_t n, int64_t size, int64_t *b,
            int64_t *e)
{
    *b = from < 0 ? min64(n, (step - 1 - from) / step) : 0;
    *e = from < size ? min64(n, (size - 1 - from) / step + 1) : 0;
}

/* The same with strides: a plane for each remainder. */
static void
fill_phases(const layout *l, const gemm_ops *ops, float *to, const char *x,
            int64_t c, const place *at, int64_t iz)
{
    const conv_geometry *g = l->g;
    const float *from = (const float *)(const void *)x + c * g->in_pixels +
                        iz * g->in[1] * g->in[2];
    if (iz < 0 || iz >= g->in[0])
        return;
    for (int64_t i = 0; i < l->phases; i++, to += l->rows * l->pitch) {
        const int64_t top = at->y * g->stride[1] - g->pad[1] + i / g->stride[2];
        const int64_t left = i % g->stride[2] - g->pad[2];
        int64_t b, e, first, end;
        find_inside(top, g->stride[1], l->rows, g->in[1], &b, &e);
        find_inside(left, g->stride[2], l->pitch, g->in[2], &first, &end);
        if (b < e && first < end)
            ops->copies(to + b * l->pitch + first, l->pitch,
                        from + (top + b * g->stride[1]) * g->in[2] + left +
                            first * g->stride[2],
                        g->in[2] * g->stride[1], g->stride[2], AIR_F32,
                        end - first, e - b);
    }
}

/* Planes [b, e) of x. */
static void
fill(const layout *l, const gemm_ops *ops, float *planes, const void *x,
     const place *at, int64_t b, int64_t e)
{
    const conv_geometry *g = l->g;
    for (int64_t c = b; c < e; c++) {
        float *to = planes + c * l->channel;
        memset(to, 0, (size_t)l->channel * sizeof *to);
        for (int64_t i = 0; i < g->kernel[0]; i++)
            (l->phases > 1 ? fill_phases : fill_slice)(
                l, ops, to + i * l->phases * l->rows * l->pitch, x, c, at,
                at->z * g->stride[0] - g->pad[0] + i * g->dilation[0]);
    }
    if (e == l->planes)
        memset(planes + e * l->channel, 0,
               (size_t)(seen(g) + BEHIND) * sizeof *planes);
}

/* A thread's share of pairs of weights: [channel out][slice][plane][tap]. */
static void
pair_weights(const air_call *call, const layout *l, const gemm_ops *ops,
             const air_task *task, float *weights)
{
    const conv_geometry *g = l->g;
    const uint16_t *w = air_data(call->args[1].t, task);
    int64_t b, e, whole = g->c_in / 2;
    air_split(g->groups * g->c_out, task, &b, &e);
    for (int64_t i = b * g->kernel[0]; i < e * g->kernel[0]; i++) {
        int64_t o = i / g->kernel[0], z = i % g->kernel[0];
        const uint16_t *from = w + o * g->c_in * g->taps + z * l->area;
        const uint16_t *last = from + 2 * whole * g->taps;
        float *to = weights + o * l->row + z * l->planes * l->area;
        ops->copy_pairs(to, l->area, from, from + g->taps, 2 * g->taps, 1,
                        l->area, whole);
        if (whole < l->planes)
            ops->copy_pairs(to + whole * l->area, 0, last, NULL, 0, 1, l->area,
                            1);
    }
}

/* ---- products ------------------------------------------------------------ */

/* What a thread, or a team of them, computes with. */
typedef struct {
    const layout *l;
    const gemm_ops *ops;
    float *weights; /* of pairs: of all threads */
    float *planes;
    int32_t *steps;
    place at;
} work;

/* gemm_job.pack: panels of a strip. */
static void
pack(const void *arg, float *panel, int64_t l0, int64_t nl, int64_t k0,
     int64_t k1)
{
    const work *w = arg;
    const int64_t width = w->l->g->out[2];
    conv_segment s[GEMM_LANES_MAX];
    int64_t y = l0 / width, x = l0 % width;
    int n = 0;
    for (int64_t l = 0; l < nl; n++, y++, x = 0) {
        int64_t count = min64(width - x, nl - l);
        s[n] = (conv_segment){l, count, y * w->l->pitch + x};
        l += count;
    }
    const int64_t first = w->at.slice * (w->l->k / w->l->g->kernel[0]);
    w->ops->shifted(panel, w->planes, w->steps + first + k0, k1 - k0, s, n);
}

/* ---- threads ------------------------------------------------------------- */

/* Items: [image][group][plane of results][strip]. */
static int64_t
count_items(const layout *l)
{
    const conv_geometry *g = l->g;
    return g->batch * g->groups * g->out[0] * l->strips;
}

/* Those of a window that are inside, or one. */
static void
find_slices(const conv_geometry *g, place *at)
{
    int64_t b = 0, e = g->kernel[0];
    const int64_t first = at->z * g->stride[0] - g->pad[0];
    while (b + 1 < e && first + b * g->dilation[0] < 0)
        b++;
    while (b + 1 < e && first + (e - 1) * g->dilation[0] >= g->in[0])
        e--;
    at->slice = b, at->slices = e - b;
}

static place
place_of(const layout *l, int64_t item)
{
    place at = {item / l->strips % l->g->out[0], item % l->strips * l->strip, 0,
                0, l->g->kernel[0]};
    at.rows = min64(l->strip, l->g->out[1] - at.y);
    if (l->pairs)
        find_slices(l->g, &at);
    return at;
}

/* The product of a strip; task NULL: sizes only. */
static gemm_job
make_job(const air_call *call, const work *w, int64_t item,
         const air_task *task)
{
    const layout *l = w->l;
    const conv_geometry *g = l->g;
    int64_t group = item / l->strips / g->out[0];
    int64_t first = (w->at.z * g->out[1] + w->at.y) * g->out[2];
    gemm_job job = cpu_conv_job(call, g, group, task);
    job.nx = w->at.rows * g->out[2];
    job.pack = pack, job.pack_arg = w;
    job.at = group * g->c_out * g->out_pixels + first;
    if (task != NULL)
        job.y = (char *)job.y + first * cpu_gemm_size_of(job.y_dtype);
    if (!l->pairs)
        return job;
    const int64_t slice = l->k / g->kernel[0];
    job.pairs = true;
    job.longest = 0; /* rounding to bf16 is far above the error of a sum */
    job.k = slice * w->at.slices;
    job.w = (gemm_view){NULL, l->row, 1, AIR_F32};
    if (task != NULL)
        job.w.p = w->weights + group % g->groups * g->c_out * l->row +
                  w->at.slice * slice;
    return job;
}

/* Threads share the planes of one item after the other where there are too few
 * items for each to take its own; they then split the product. */
static bool
is_shared(int64_t items, int threads)
{
    return threads > 1 && items < 2 * threads && items % threads != 0;
}

/* Bytes of a thread's share of the workspace. Those that share the first one's
 * planes have room for their panels behind it. Pairs of weights are before all.
 */
typedef struct {
    size_t weights, steps, planes, panels;
} shares;

static shares
find_shares(const air_call *call, const layout *l)
{
    const conv_geometry *g = l->g;
    work w = {.l = l, .at = place_of(l, 0)};
    w.at.slices = g->kernel[0];
    gemm_job job = make_job(call, &w, 0, NULL);
    return (shares){
        l->pairs ? (size_t)round_up(g->groups * g->c_out * l->row * 4, 64) : 0,
        (size_t)round_up(l->k * 4, 64), (size_t)plane_floats(l) * 4,
        cpu_gemm_workspace(&job, 1)};
}

static size_t
bytes_of(const shares *s, int threads)
{
    return s->weights + (s->steps + s->planes + s->panels) * (size_t)threads;
}

size_t
cpu_conv_windows_workspace(const air_call *call, const conv_geometry *g,
                           bool pairs, int threads)
{
    layout l = make_layout(g, pairs);
    shares s = find_shares(call, &l);
    return bytes_of(&s, threads);
}

/* A product of a team of threads, each of which is number `id` of it. */
static void
item_run(work *w, const air_call *call, const air_task *task, int64_t item,
         const gemm_team *team, const gemm_lines *lines)
{
    const conv_geometry *g = w->l->g;
    const air_task part = {.id = team->id, .count = team->count};
    const int64_t group = item / w->l->strips / g->out[0];
    const air_tensor *x = call->args[0].t;
    int64_t b, e;
    w->at = place_of(w->l, item);
    gemm_job job = make_job(call, w, item, task);
    job.lines = lines;
    air_split(w->l->planes, &part, &b, &e);
    fill(w->l, w->ops, w->planes,
         (const char *)air_data(x, task) +
             group * g->c_in * g->in_pixels * cpu_gemm_size_of(x->dtype),
         &w->at, b, e);
    if (team->count > 1)
        task->barrier(task);
    cpu_gemm_run(&job, w->ops, team);
}

void
cpu_conv_windows(const air_call *call, const conv_geometry *g, bool pairs,
                 const gemm_ops *ops, const air_task *task)
{
    const layout l = make_layout(g, pairs);
    const shares s = find_shares(call, &l);
    const int64_t items = count_items(&l);
    const bool shared = is_shared(items, task->count);
    cpu_join_run join;
    const gemm_lines *lines =
        cpu_join_begin(&join, call, task, bytes_of(&s, task->count));
    const size_t id = (size_t)task->id, count = (size_t)task->count;
    char *weights = task->workspace;
    char *steps = weights + s.weights + s.steps * id;
    char *first = weights + s.weights + s.steps * count;
    char *planes = shared ? first : first + (s.planes + s.panels) * id;
    work w = {.l = &l,
              .ops = ops,
              .weights = (float *)(void *)weights,
              .planes = (float *)(void *)planes,
              .steps = (int32_t *)(void *)steps};
    gemm_team team = {
        0, 1, NULL, (float *)(void *)(planes + s.planes), task->scratch, NULL};
    int64_t b = 0, e = items;
    if (shared)
        team.id = task->id, team.count = task->count, team.task = task;
    else
        air_split(items, task, &b, &e);
    find_steps(&l, w.steps);
    if (pairs) {
        pair_weights(call, &l, ops, task, w.weights);
        task->barrier(task);
    }
    for (int64_t i = b; i < e; i++) {
        if (shared && i > b)
            task->barrier(task); /* planes and panels are free again */
        item_run(&w, call, task, i, &team, lines);
    }
}
