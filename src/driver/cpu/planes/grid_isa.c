/* grid_isa.c: grid_sampler of f32 or f64 and its gradients, compiled once
 * per instruction set and lane (real.h). What makes an element (ref/grid.h) is
 * found for a block of places at once, then used for all channels. */
#include "driver/cpu/planes/grid_isa.h"

#include "driver/cpu/planes/real.h"
#include "driver/cpu/product/gemm.h"
#include "driver/ref/grid.h"

#define SHARP ((real)-0.75) /* cubic */

enum { AXES = REF_GRID_AXES, EACH = REF_GRID_TAPS, TAPS = EACH * EACH };
enum { BLOCK = sizeof(real) == 4 ? 240 : 160 }; /* places */

/* Of a block of places, along one axis. Offsets are in elements and always
 * those of an element; inside: 0 or all bits, whether the tap is one. */
typedef struct {
    int32_t offset[EACH][BLOCK], inside[EACH][BLOCK];
    real weight[EACH][BLOCK], slope[EACH][BLOCK];
} axis_taps;

/* Of all axes. pairs: taps 2 i and 2 i + 1 are neighbours in memory. */
typedef struct {
    axis_taps axis[AXES];
    int count;
    bool pairs, all_inside;
    int32_t offset[TAPS][BLOCK], inside[TAPS][BLOCK];
    real weight[TAPS][BLOCK];
} block_taps;

typedef struct {
    ref_grid g;
    int each; /* taps along an axis */
    ref_tensor a, grid;
    int64_t channels, places, step; /* step: between places of the grid */
} sampling;

/* Bytes between neighbouring places of axes [first, end); false: not the same
 * everywhere. */
static bool
place_step(const air_tensor *t, int first, int end, int64_t *out)
{
    *out = t->strides[end - 1] * (int64_t)sizeof(real);
    for (int i = first; i + 1 < end; i++)
        if (t->strides[i] != t->strides[i + 1] * t->dims[i + 1])
            return false;
    return true;
}

static sampling
begin_sampling(const air_call *call, const air_task *task, bool backward)
{
    const air_tensor *grid = call->args[backward + 1].t;
    sampling s = {.g = ref_grid_open(call, backward),
                  .a = ref_arg(call, backward, task),
                  .grid = ref_arg(call, backward + 1, task),
                  .places = 1};

    s.each = ref_grid_count(&s.g);
    s.channels = s.a.dims[1];
    for (int i = 1; i <= s.g.axes; i++)
        s.places *= s.grid.dims[i];
    (void)place_step(grid, 1, grid->rank - 1, &s.step);
    return s;
}

/* ---- along an axis ------------------------------------------------------- */

/* What is no number becomes 0; in a volume, the last element. */
static inline real
clip(real x, real last, bool volume, real *turn)
{
    real low = x > 0 ? x : 0;

    *turn = x > 0 && x < last ? *turn : 0;
    if (volume)
        low = x <= 0 ? 0 : x;
    return low < last ? low : last;
}

static inline real
reflect(real x, real low, real round, real *turn)
{
    real way = x - low, rest, back;
    bool below = way < 0;

    way = below ? -way : way;
    rest = way - real_floor(way / round) * round;
    back = round - rest;
    *turn = below != (back < rest) ? -*turn : *turn;
    return (back < rest ? back : rest) + low;
}

/* x[i] inside the image, as padding says; turn[i]: the sign of its slope. */
static void
pad_block(const ref_grid *g, int64_t size, int n, real *restrict x,
          real *restrict turn)
{
    const real last = (real)(size - 1), low = g->align ? 0 : (real)-0.5;
    const real round = 2 * (real)(g->align ? size - 1 : size);

    if (g->padding == REF_GRID_ZEROS)
        return;
    if (g->padding == REF_GRID_REFLECT && round == 0)
        memset(x, 0, (size_t)n * sizeof *x);
    else if (g->padding == REF_GRID_REFLECT)
        for (int i = 0; i < n; i++)
            x[i] = reflect(x[i], low, round, &turn[i]);
    for (int i = 0; i < n; i++)
        x[i] = clip(x[i], last, g->axes == AXES, &turn[i]);
}

/* Tap k lies at at[i]; `stride` in elements. Outside a volume nothing counts,
 * not even a weight that is NaN. */
static void
put_taps(const ref_grid *g, int64_t size, int32_t stride, int n,
         const real *restrict at, int k, axis_taps *restrict t)
{
    const real end = (real)size;

    for (int i = 0; i < n; i++) {
        int32_t inside = -(at[i] > -1 && at[i] < end);
        real safe = inside ? at[i] : 0;
        t->offset[k][i] = (int32_t)safe * stride;
        t->inside[k][i] = inside;
    }
    for (int i = 0; g->axes == AXES && i < n; i++) {
        t->weight[k][i] = t->inside[k][i] ? t->weight[k][i] : 0;
        t->slope[k][i] = t->inside[k][i] ? t->slope[k][i] : 0;
    }
}

/* Both taps of each place become those of two neighbours: where one of them is
 * outside, the one inside may be the other of the two. */
static void
join_taps(int64_t size, int n, axis_taps *restrict t)
{
    const int32_t last = (int32_t)size - 2;

    for (int i = 0; i < n; i++) {
        const int32_t low = t->inside[0][i], high = t->inside[1][i];
        const int32_t at0 = t->offset[0][i], at1 = t->offset[1][i];
        const real w0 = t->weight[0][i], w1 = t->weight[1][i];
        const real s0 = t->slope[0][i], s1 = t->slope[1][i];
        int32_t at = (at0 & low) | (at1 & high & ~low);
        /* One inside: it is the first element, or the last. */
        const bool move = low != high && (low ? at > last : at == 0);
        at = at > last ? last : at;
        t->offset[0][i] = at;
        t->offset[1][i] = at + 1;
        t->inside[0][i] = move ? high : low;
        t->inside[1][i] = move ? low : high;
        t->weight[0][i] = move ? w1 : w0;
        t->weight[1][i] = move ? w0 : w1;
        t->slope[0][i] = move ? s1 : s0;
        t->slope[1][i] = move ? s0 : s1;
    }
}

static inline real
cubic_near(real x)
{
    return ((SHARP + 2) * x - (SHARP + 3)) * x * x + 1;
}

static inline real
cubic_far(real x)
{
    return ((SHARP * x - 5 * SHARP) * x + 8 * SHARP) * x - 4 * SHARP;
}

static inline real
slope_near(real x)
{
    return (3 * (SHARP + 2) * x - 2 * (SHARP + 3)) * x;
}

static inline real
slope_far(real x)
{
    return (3 * SHARP * x - 10 * SHARP) * x + 8 * SHARP;
}

static void
cubic_block(const ref_grid *g, int64_t size, int32_t stride, int n,
            const real *restrict x, real scale, axis_taps *restrict t)
{
    real at[BLOCK], turn[BLOCK];

    for (int i = 0; i < n; i++) {
        const real f = x[i] - real_floor(x[i]);
        t->weight[0][i] = cubic_far(f + 1);
        t->weight[1][i] = cubic_near(f);
        t->weight[2][i] = cubic_near(1 - f);
        t->weight[3][i] = cubic_far(2 - f);
        t->slope[0][i] = slope_far(f + 1) * scale;
        t->slope[1][i] = slope_near(f) * scale;
        t->slope[2][i] = -slope_near(1 - f) * scale;
        t->slope[3][i] = -slope_far(2 - f) * scale;
    }
    for (int k = 0; k < EACH; k++) {
        for (int i = 0; i < n; i++)
            at[i] = real_floor(x[i]) - 1 + (real)k;
        pad_block(g, size, n, at, turn);
        put_taps(g, size, stride, n, at, k, t);
    }
}

static void
linear_block(const ref_grid *g, int64_t size, int32_t stride, int n,
             const real *restrict x, const real *restrict slope,
             axis_taps *restrict t)
{
    real low[BLOCK], high[BLOCK];

    for (int i = 0; i < n; i++) {
        low[i] = real_floor(x[i]);
        high[i] = low[i] + 1;
        t->weight[0][i] = high[i] - x[i];
        t->weight[1][i] = x[i] - low[i];
        t->slope[0][i] = -slope[i];
        t->slope[1][i] = slope[i];
    }
    put_taps(g, size, stride, n, low, 0, t);
    put_taps(g, size, stride, n, high, 1, t);
}

static inline void
read_each(const char *from, int64_t step, int n, real *restrict dst)
{
    for (int i = 0; i < n; i++)
        memcpy(&dst[i], from + i * step, sizeof dst[i]);
}

/* n floats, `step` bytes apart: most often neighbours, or grids of 2 or 3. */
static void
read_row(const char *from, int64_t step, int n, real *restrict dst)
{
    switch (step / (int64_t)sizeof(real)) {
    case 1: read_each(from, sizeof(real), n, dst); break;
    case 2: read_each(from, 2 * sizeof(real), n, dst); break;
    case 3: read_each(from, 3 * sizeof(real), n, dst); break;
    default: read_each(from, step, n, dst); break;
    }
}

/* Coordinates of n places, `step` bytes apart. */
static void
find_axis(const ref_grid *g, int64_t size, int32_t stride, const char *from,
          int64_t step, int n, axis_taps *t)
{
    const real scale = (real)(g->align ? size - 1 : size) / 2;
    const real half = g->align ? 0 : (real)0.5;
    real x[BLOCK], slope[BLOCK];

    read_row(from, step, n, x);
    for (int i = 0; i < n; i++) {
        x[i] = (x[i] + 1) * scale - half;
        slope[i] = scale;
    }
    if (g->mode == REF_GRID_CUBIC) {
        cubic_block(g, size, stride, n, x, scale, t);
        return;
    }
    pad_block(g, size, n, x, slope);
    if (g->mode == REF_GRID_LINEAR) {
        linear_block(g, size, stride, n, x, slope, t);
        return;
    }
    for (int i = 0; i < n; i++) {
        x[i] = real_rint(x[i]);
        t->weight[0][i] = 1;
        t->slope[0][i] = 0;
    }
    put_taps(g, size, stride, n, x, 0, t);
}

/* ---- all axes ------------------------------------------------------------ */

/* The tap along one axis that tap `tap` has. */
static int
part_of(int each, int axes, int axis, int tap)
{
    for (int a = axes - 1; a > axis; a--)
        tap /= each;
    return tap % each;
}

static void
cross_axis(int n, const axis_taps *axis, int part, bool first, int tap,
           block_taps *t)
{
    const int32_t *offset = axis->offset[part], *inside = axis->inside[part];
    const real *weight = axis->weight[part];

    for (int i = 0; first && i < n; i++) {
        t->offset[tap][i] = offset[i];
        t->inside[tap][i] = inside[i];
        t->weight[tap][i] = weight[i];
    }
    for (int i = 0; !first && i < n; i++) {
        t->offset[tap][i] += offset[i];
        t->inside[tap][i] &= inside[i];
        t->weight[tap][i] *= weight[i];
    }
}

static void
cross_taps(const sampling *s, int n, block_taps *t)
{
    const int axes = s->g.axes;
    int32_t all = -1;

    for (int k = 0; k < t->count; k++) {
        for (int a = 0; a < axes; a++)
            cross_axis(n, &t->axis[a], part_of(s->each, axes, a, k), a == 0, k,
                       t);
        for (int i = 0; i < n; i++)
            all &= t->inside[k][i];
    }
    t->all_inside = all != 0;
}

/* Places [first, first + n) of image `image`; strides in bytes, of the tensor
 * whose planes are sampled. */
static void
find_block(const sampling *s, int64_t image, int64_t first, int n,
           const int64_t *strides, block_taps *t)
{
    const ref_tensor *grid = &s->grid;
    const int axes = s->g.axes, last = grid->rank - 1;
    const char *from = grid->data + image * grid->strides[0] + first * s->step;

    t->count = 1;
    for (int a = 0; a < axes; a++) {
        int32_t stride = (int32_t)(strides[a + 2] / (int64_t)sizeof(real));
        t->count *= s->each;
        find_axis(&s->g, s->a.dims[a + 2], stride,
                  from + (axes - 1 - a) * grid->strides[last], s->step, n,
                  &t->axis[a]);
        t->pairs = a == axes - 1 && s->g.mode == REF_GRID_LINEAR &&
                   stride == 1 && s->a.dims[a + 2] > 1;
        if (t->pairs)
            join_taps(s->a.dims[a + 2], n, &t->axis[a]);
    }
    cross_taps(s, n, t);
}

static const real *
plane_of(const ref_tensor *t, int64_t n, int64_t c)
{
    return (const real *)(const void *)(t->data + n * t->strides[0] +
                                        c * t->strides[1]);
}

/* What taps read, unmasked. Indices are read as volatile: compilers else take
 * vectors of them apart, which costs more than all the rest. */
static void
read_taps(const real *src, const int32_t *offset, int n, real *restrict dst)
{
    const volatile int32_t *at = offset;

    for (int i = 0; i < n; i++)
        dst[i] = src[at[i]];
}

static void
read_pairs(const real *src, const int32_t *offset, int n, real *restrict low,
           real *restrict high)
{
    const volatile int32_t *at = offset;
    real both[BLOCK][2];

    for (int i = 0; i < n; i++)
        memcpy(both[i], src + at[i], sizeof both[i]);
    for (int i = 0; i < n; i++) {
        low[i] = both[i][0];
        high[i] = both[i][1];
    }
}

/* values[0 ..]: of tap k, and of the next one where they are pairs. */
static void
read_some(const block_taps *t, int k, int n, const real *src,
          real (*restrict values)[BLOCK])
{
    if (t->pairs)
        read_pairs(src, t->offset[k], n, values[0], values[1]);
    else
        read_taps(src, t->offset[k], n, values[0]);
    for (int p = 0; !t->all_inside && p <= t->pairs; p++)
        for (int i = 0; i < n; i++)
            values[p][i] = t->inside[k + p][i] ? values[p][i] : 0;
}

static void
gather_block(const block_taps *t, int n, const real *src, real *restrict dst)
{
    real values[2][BLOCK];

    for (int k = 0; k < t->count; k += 1 + t->pairs) {
        read_some(t, k, n, src, values);
        for (int p = 0; p <= t->pairs; p++) {
            const real *restrict w = t->weight[k + p];
            if (k + p == 0)
                for (int i = 0; i < n; i++)
                    dst[i] = w[i] * values[p][i];
            else
                for (int i = 0; i < n; i++)
                    dst[i] += w[i] * values[p][i];
        }
    }
}

/* All places of all images in blocks, shared by threads. */
typedef void (*block_fn)(const sampling *s, const block_taps *t, int64_t image,
                         int64_t first, int n, void *arg);

static void
each_block(const sampling *s, const air_task *task, block_fn fn, void *arg)
{
    block_taps *t = task->scratch;
    int64_t begin, end;

    air_split(s->grid.dims[0] * s->places, task, &begin, &end);
    while (begin < end) {
        const int64_t image = begin / s->places, first = begin % s->places;
        int64_t n = end - begin < BLOCK ? end - begin : BLOCK;
        n = s->places - first < n ? s->places - first : n;
        find_block(s, image, first, (int)n, s->a.strides, t);
        fn(s, t, image, first, (int)n, arg);
        begin += n;
    }
}

static void
sample_block(const sampling *s, const block_taps *t, int64_t image,
             int64_t first, int n, void *arg)
{
    real *dst = (real *)arg + image * s->channels * s->places + first;

    for (int64_t c = 0; c < s->channels; c++)
        gather_block(t, n, plane_of(&s->a, image, c), dst + c * s->places);
}

void
REAL_KERNEL(grid_sampler)(const air_call *call, const air_task *task)
{
    const sampling s = begin_sampling(call, task, false);

    each_block(&s, task, sample_block, air_data(&call->outs[0], task));
}

/* ---- gradients ----------------------------------------------------------- */

/* Place by place: neighbours often go to the same element, where one sum waits
 * for the other; the taps of one place go to different ones, but for borders.
 */
static void
spread_block(const block_taps *t, int n, const real *restrict grad, real *dst)
{
    real part[TAPS][BLOCK];

    for (int k = 0; k < t->count; k++)
        for (int i = 0; i < n; i++)
            part[k][i] = t->weight[k][i] * grad[i];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < t->count; k++)
            if (t->all_inside || t->inside[k][i])
                dst[t->offset[k][i]] += part[k][i];
}

static const real *
read_gradient(const ref_tensor *grad, int64_t step, int64_t image, int64_t c,
              int64_t first, int n, real *restrict dst)
{
    const char *from = (const char *)plane_of(grad, image, c) + first * step;

    if (step == sizeof *dst)
        return (const real *)(const void *)from;
    read_row(from, step, n, dst);
    return dst;
}

/* Planes [from, to) of the gradient, all of one image, by one thread, which
 * goes over the grid in order. */
static void
spread_planes(const sampling *s, const ref_tensor *grad, int64_t step,
              const ref_tensor *out, int64_t from, int64_t to, block_taps *t)
{
    const int64_t image = from / s->channels, base = image * s->channels;
    const int64_t bytes =
        ref_numel(out) / out->dims[0] / s->channels * (int64_t)sizeof(real);
    real copy[BLOCK];

    memset(out->data + from * bytes, 0, (size_t)((to - from) * bytes));
    for (int64_t first = 0; first < s->places; first += BLOCK) {
        int64_t left = s->places - first;
        const int n = (int)(left < BLOCK ? left : BLOCK);
        find_block(s, image, first, n, out->strides, t);
        for (int64_t c = from; c < to; c++)
            spread_block(
                t, n,
                read_gradient(grad, step, image, c - base, first, n, copy),
                (real *)(void *)(out->data + c * bytes));
    }
}

typedef struct {
    const ref_tensor *grad;
    int64_t step; /* bytes between places of it */
    real *out;
} grid_gradient;

/* sums[k][i]: over channels, of gradients times what tap k reads. */
static void
sum_taps(const sampling *s, const block_taps *t, const grid_gradient *g,
         int64_t image, int64_t first, int n, real (*restrict sums)[BLOCK])
{
    real values[2][BLOCK], copy[BLOCK];

    memset(sums, 0, (size_t)t->count * sizeof *sums);
    for (int64_t c = 0; c < s->channels; c++) {
        const real *src = plane_of(&s->a, image, c);
        const real *grad =
            read_gradient(g->grad, g->step, image, c, first, n, copy);
        for (int k = 0; k < t->count; k += 1 + t->pairs) {
            read_some(t, k, n, src, values);
            for (int p = 0; p <= t->pairs; p++)
                for (int i = 0; i < n; i++)
                    sums[k + p][i] += grad[i] * values[p][i];
        }
    }
}

/* total[i] += what tap k gives of the derivative by the coordinate of axis a */
static void
add_slopes(const sampling *s, const block_taps *t, int a, int k, int n,
           const real *restrict sums, real *restrict total)
{
    real slope[BLOCK];

    memcpy(slope, sums, (size_t)n * sizeof *sums);
    for (int b = 0; b < s->g.axes; b++) {
        const axis_taps *of = &t->axis[b];
        const int part = part_of(s->each, s->g.axes, b, k);
        const real *by = a == b ? of->slope[part] : of->weight[part];
        for (int i = 0; i < n; i++)
            slope[i] *= by[i];
    }
    for (int i = 0; i < n; i++)
        total[i] += slope[i];
}

static void
slope_block(const sampling *s, const block_taps *t, int64_t image,
            int64_t first, int n, void *arg)
{
    const grid_gradient *g = arg;
    const int axes = s->g.axes;
    real *out = g->out + (image * s->places + first) * axes;
    real sums[TAPS][BLOCK], total[BLOCK];

    sum_taps(s, t, g, image, first, n, sums);
    for (int a = 0; a < axes; a++) {
        memset(total, 0, sizeof total);
        for (int k = 0; k < t->count; k++)
            add_slopes(s, t, a, k, n, sums[k], total);
        for (int i = 0; i < n; i++)
            out[i * axes + axes - 1 - a] = total[i];
    }
}

void
REAL_KERNEL(grid_sampler_backward)(const air_call *call, const air_task *task)
{
    const sampling s = begin_sampling(call, task, true);
    const ref_tensor grad = ref_arg(call, 0, task);
    const ref_tensor out = ref_out(call, 0, task);
    grid_gradient g = {.grad = &grad, .out = air_data(&call->outs[1], task)};
    int64_t begin, end;

    (void)place_step(call->args[0].t, 2, grad.rank, &g.step);
    air_split(out.dims[0] * s.channels, task, &begin, &end);
    while (begin < end && ref_ints(call, 6, 0, 1) != 0) {
        int64_t to = (begin / s.channels + 1) * s.channels;
        to = to < end ? to : end;
        spread_planes(&s, &grad, g.step, &out, begin, to, task->scratch);
        begin = to;
    }
    each_block(&s, task, slope_block, &g);
}

/* ---- what they take ------------------------------------------------------ */

/* Planes with an element, whose offsets 32 bits count: what a tap outside
 * reads is the first one. */
static bool
is_small(const air_tensor *t)
{
    int64_t span = 1;
    for (int i = 2; i < t->rank; i++) {
        if (t->dims[i] == 0)
            return false;
        span += (t->dims[i] - 1) * t->strides[i];
    }
    return span < INT32_MAX;
}

static bool
takes(const air_call *call, bool backward, const char *isa)
{
    const air_tensor *a = call->args[backward].t;
    const air_tensor *grid = call->args[backward + 1].t;
    int64_t step;

    if (!REAL_ISA(on)(call, isa)) /* first: the rest may not run here */
        return false;
    for (int i = 0; i < call->nouts; i++)
        if (!cpu_is_dense(&call->outs[i]) || !is_small(&call->outs[i]))
            return false;
    return a->dtype == REAL_DTYPE && is_small(a) &&
           place_step(grid, 1, grid->rank - 1, &step);
}

bool
REAL_KERNEL(grid_sampler_on)(const air_call *call, const char *isa)
{
    return takes(call, false, isa);
}

bool
REAL_KERNEL(grid_sampler_backward_on)(const air_call *call, const char *isa)
{
    const air_tensor *grad = call->args[0].t;
    int64_t step;

    return takes(call, true, isa) && place_step(grad, 2, grad->rank, &step);
}
