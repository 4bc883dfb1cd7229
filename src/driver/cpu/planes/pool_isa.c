/* pool_isa.c: pooling of volumes of floats over two or three axes, compiled
 * once per instruction set and lane (real.h).
 *
 * Sums of a row of results are made tap by tap: one tap of all windows of the
 * row is a run through one input row, which the compiler makes vectors of. For
 * each result taps come in row-major order, as ATen takes them, so sums round
 * the same. The largest are found for a block of results at once, where their
 * windows lie in the rows. Threads share the rows of results; of gradients, the
 * volumes. Volumes of 16-bit floats are widened one by one. Where channels are
 * last, they are the last axis of a volume, of windows of one element. */
#include "driver/cpu/planes/pool_isa.h"

#include "driver/cpu/planes/real.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/region/tile_ops.h"
#include "driver/dense.h"
#include "driver/ref/args.h"

enum {
    COLUMNS = 512, /* results of a row that are made together */
    AXES = 3       /* depth, height, width; of two, the depth is 1 */
};

typedef struct {
    const air_task *task;
    const char *in;
    char *out;
    int64_t *index; /* of the largest; NULL: nobody asks */
    int dtype, axes;
    int64_t volumes, size[AXES], results[AXES];
    int64_t kernel[AXES], stride[AXES], pad[AXES], dilation[AXES];
    int64_t share[AXES];      /* adaptive: places of each; 0: they differ */
    bool last;                /* channels are */
    bool adaptive, count_pad; /* means: the padding counts */
    int64_t divisor;          /* means: not 0: instead of the count */
    real *wide;               /* 16-bit: a volume of this thread */
    int64_t held;             /* which one */
} pool;

/* One row of results: its columns begin .. begin + count - 1. */
typedef struct {
    const real *volume;
    int64_t left; /* elements that may be read from there on */
    int64_t row[AXES - 1], begin, count;
} strip;

/* ---- calls --------------------------------------------------------------- */

/* Planes whose channels are last, both of operand and result? */
static bool
is_last(const air_call *call, int axes)
{
    const air_tensor *a = call->args[0].t, *out = &call->outs[0];
    return axes == AXES - 1 && a->rank == AXES + 1 && call->nouts == 1 &&
           driver_is_last(a) && driver_is_last(out) &&
           !(driver_is_dense(a) && driver_is_dense(out));
}

static int64_t
volume_of(const air_call *call, const air_tensor *t, int axes)
{
    int64_t n = 1;
    for (int i = t->rank - axes - is_last(call, axes); i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

/* Dense floats in and out, dense places, volumes that 32 bits count. */
static bool
takes(const air_call *call, const char *isa, int axes, int places)
{
    const air_tensor *a = call->args[0].t, *out = &call->outs[0];
    if (!REAL_ISA(on)(call, isa)) /* first: the rest may not run here */
        return false;
    if (places >= 0 && (call->args[places].kind != AIR_ARG_TENSOR ||
                        !cpu_is_dense(call->args[places].t)))
        return false;
    const bool last = is_last(call, axes);
    return reals_take(a->dtype) && out->dtype == a->dtype &&
           (last ? places < 0 : cpu_is_dense(a) && cpu_is_dense(out)) &&
           volume_of(call, a, axes) < INT32_MAX &&
           volume_of(call, out, axes) < INT32_MAX &&
           (call->nouts < 2 || cpu_is_dense(&call->outs[1]));
}

/* 16-bit: the larger of a volume of argument 0 and of the result, as f32. */
static size_t
workspace(const air_call *call, int threads, int axes)
{
    const air_tensor *a = call->args[0].t;
    int64_t in = volume_of(call, a, axes);
    int64_t out = volume_of(call, &call->outs[0], axes);
    return a->dtype == REAL_DTYPE
               ? 0
               : (size_t)(in > out ? in : out) * sizeof(real) * (size_t)threads;
}

/* Which of the pooled axes axis k is, -1: none. */
static int
entry_of(const pool *p, int k)
{
    const int entry = k - (p->last ? 0 : AXES - p->axes);
    return entry < p->axes ? entry : -1;
}

/* Windows of `small` in `large`; their parameters from argument `at` on. */
static pool
open_pool(const air_call *call, const air_task *task, int axes,
          const air_tensor *large, const air_tensor *small, int at)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    pool p = {.task = task,
              .in = in.data,
              .out = out.data,
              .dtype = in.dtype,
              .axes = axes,
              .volumes = 1,
              .last = is_last(call, axes),
              .adaptive = at < 0,
              .held = -1};
    p.wide = (real *)task->workspace + (int64_t)workspace(call, 1, axes) /
                                           (int64_t)sizeof(real) * task->id;
    for (int i = 0; i < in.rank - axes - p.last; i++)
        p.volumes *= in.dims[i];
    for (int k = 0; k < AXES; k++) {
        const int entry = entry_of(&p, k);
        const bool given = entry >= 0 || p.last;
        const bool windows = entry >= 0 && at >= 0;
        const int axis = entry >= 0 ? in.rank - axes + entry : in.rank - AXES;
        p.size[k] = given ? large->dims[axis] : 1;
        p.results[k] = given ? small->dims[axis] : 1;
        p.kernel[k] = windows ? ref_ints(call, at, entry, 1) : 1;
        p.stride[k] = windows ? ref_ints(call, at + 1, entry, p.kernel[k]) : 1;
        p.pad[k] = windows ? ref_ints(call, at + 2, entry, 0) : 0;
        p.dilation[k] = 1;
        if (p.results[k] > 0 && p.size[k] % p.results[k] == 0)
            p.share[k] = p.size[k] / p.results[k];
    }
    return p;
}

static int64_t
size_of(const pool *p)
{
    return p->size[0] * p->size[1] * p->size[2];
}

static int64_t
results_of(const pool *p)
{
    return p->results[0] * p->results[1] * p->results[2];
}

/* Volume k of n elements at `src`, as floats. */
static const real *
widened(pool *p, const char *src, int64_t n, int64_t k)
{
    const char *from = src + k * n * reals_bytes(p->dtype);
    if (p->dtype == REAL_DTYPE)
        return (const real *)(const void *)from;
    if (p->held != k)
        reals_widen(p->wide, from, p->dtype, n);
    p->held = k;
    return p->wide;
}

static void
emit(const pool *p, int64_t at, const real *row, int64_t n)
{
    reals_narrow(p->out + at * reals_bytes(p->dtype), row, p->dtype, n);
}

/* ---- windows ------------------------------------------------------------- */

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a + b - 1) / b;
}

/* The results of a strip whose tap at `shift` from the window's start lies in
 * the input: *from .. *to - 1, counted from the strip's begin. */
static void
inside(const pool *p, const strip *s, int64_t shift, int64_t *from, int64_t *to)
{
    int64_t first = ceil_div(-shift, p->stride[2]);
    int64_t end = p->size[2] - 1 - shift;
    end = end < 0 ? 0 : end / p->stride[2] + 1;
    *from = first > s->begin ? first - s->begin : 0;
    *to = min64(end, s->begin + s->count) - s->begin;
}

/* Places begin, begin + step .. < end of a window along one axis. */
typedef struct {
    int64_t begin, end, step;
} reach;

static reach
reach_of(const pool *p, int axis, int64_t result)
{
    int64_t step = p->dilation[axis], size = p->size[axis];
    if (p->adaptive) {
        int64_t n = p->results[axis], share = p->share[axis];
        if (share != 0) /* divisions are slow */
            return (reach){result * share, (result + 1) * share, 1};
        return (reach){result * size / n, ((result + 1) * size + n - 1) / n, 1};
    }
    int64_t at = result * p->stride[axis] - p->pad[axis];
    int64_t end = at + (p->kernel[axis] - 1) * step + 1;
    return (reach){at + ceil_div(-at, step) * step, min64(end, size), step};
}

/* How many places of a window count, on one axis; 0: none is in the input. */
static inline int64_t
places(const pool *p, int axis, int64_t result)
{
    if (p->adaptive) {
        reach r = reach_of(p, axis, result);
        return r.end - r.begin;
    }
    int64_t begin = result * p->stride[axis] - p->pad[axis];
    int64_t end = min64(begin + p->kernel[axis], p->size[axis] + p->pad[axis]);
    int64_t from = begin < 0 ? 0 : begin, to = min64(end, p->size[axis]);
    return to <= from ? 0 : p->count_pad ? end - begin : to - from;
}

/* Results *from .. *to - 1 of a strip, whose windows lie in the rows. */
static void
whole_windows(const pool *p, const strip *s, int64_t *from, int64_t *to)
{
    int64_t last = (p->kernel[2] - 1) * p->dilation[2] - p->pad[2], none;
    inside(p, s, -p->pad[2], from, &none);
    inside(p, s, last, &none, to);
}

/* Sums or gradients of a strip over what they are divided by; of
 * windows that lie in the rows, and of even shares, it is one number. */
static void
divide(const pool *p, const strip *s, real *row)
{
    int64_t rows = places(p, 0, s->row[0]) * places(p, 1, s->row[1]);
    int64_t from = 0, to = p->share[2] != 0 ? s->count : 0, i = 0;
    if (!p->adaptive)
        whole_windows(p, s, &from, &to);
    while (i < s->count) {
        const int64_t n = rows * places(p, 2, s->begin + i);
        const int64_t end = i >= from && i < to ? to : i + 1;
        const real by = (real)(p->divisor != 0 ? p->divisor : n);
        for (; i < end; i++)
            row[i] = n != 0 ? row[i] / by : 0;
    }
}

/* Calls `make` for the strips of rows [begin, end), counted over all volumes;
 * at: of the strip's first result. */
static void
each_strip(pool *p, int64_t begin, int64_t end,
           void (*make)(const pool *p, const strip *s, int64_t at))
{
    int64_t rows = p->results[0] * p->results[1];
    if (results_of(p) == 0)
        return;
    int64_t k = begin / rows, z = begin % rows / p->results[1];
    int64_t y = begin % p->results[1];
    for (int64_t r = begin; r < end; r++) {
        strip s = {.row = {z, y}};
        s.volume = widened(p, p->in, size_of(p), k);
        s.left = size_of(p) * (p->dtype == REAL_DTYPE ? p->volumes - k : 1);
        for (int64_t x = 0; x < p->results[2]; x += COLUMNS) {
            s.begin = x;
            s.count = min64(COLUMNS, p->results[2] - x);
            make(p, &s, r * p->results[2] + x);
        }
        if (++y < p->results[1]) /* divisions are slow */
            continue;
        y = 0;
        z = z + 1 < p->results[0] ? z + 1 : 0;
        k += z == 0;
    }
}

static void
forward(pool *p, void (*make)(const pool *p, const strip *s, int64_t at))
{
    int64_t begin, end;
    air_split(p->volumes * p->results[0] * p->results[1], p->task, &begin,
              &end);
    each_strip(p, begin, end, make);
}

/* ---- the largest --------------------------------------------------------- */

enum {
    BLOCK = TILE_VECTOR / (int)sizeof(real), /* results taken in one go */
    BLOCKS = 4,                              /* side by side */
    FEW = 4                                  /* one by one */
};

typedef struct {
    real best[COLUMNS + BLOCK];
    real_place at[COLUMNS + BLOCK];
} largest;

static int64_t
line_of(const pool *p, int64_t z, int64_t y)
{
    return (z * p->size[1] + y) * p->size[2];
}

typedef real block __attribute__((vector_size(TILE_VECTOR)));
typedef real_place block_places __attribute__((vector_size(TILE_VECTOR)));

static inline __attribute__((always_inline)) block_places
block_lanes(void)
{
    static const real_place numbers[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                           8, 9, 10, 11, 12, 13, 14, 15};
    block_places lane;
    memcpy(&lane, numbers, sizeof lane);
    return lane;
}

/* p[i * step] of steps 1 and 2, and nothing behind the last of them. */
static inline __attribute__((always_inline)) void
load_block(block *out, const real *p, const int64_t step)
{
    block a, b;
    memcpy(&a, p, sizeof a);
    if (step == 2) {
        /* every second element of two blocks that overlap by one */
        const block_places twice = block_lanes() + block_lanes();
        const block_places even = twice - (block_places)(twice >= BLOCK);
        memcpy(&b, p + BLOCK - 1, sizeof b);
        a = __builtin_shuffle(a, b, even);
    }
    *out = a;
}

/* All taps of `blocks` blocks of results from i on, whose windows lie in the
 * rows: none waits for another. places: theirs, too; constants of each call, as
 * is step. */
static inline __attribute__((always_inline)) void
take_block(const pool *p, const strip *s, const reach *zs, const reach *ys,
           int64_t i, const int blocks, const int64_t step, const bool places,
           largest *l)
{
    const block_places lane = block_lanes() * (real_place)step;
    const int64_t from = (s->begin + i) * step - p->pad[2];
    const int64_t first = line_of(p, zs->begin, ys->begin) + from;
    block best[BLOCKS], v;
    block_places at[BLOCKS];
#pragma GCC unroll 4
    for (int b = 0; b < blocks; b++) {
        best[b] = (block){0} - INFINITY;
        at[b] = lane + (real_place)(first + b * BLOCK * step);
    }
    for (int64_t z = zs->begin; z < zs->end; z += zs->step)
        for (int64_t y = ys->begin; y < ys->end; y += ys->step) {
            int64_t start = line_of(p, z, y) + from;
            for (int64_t k = 0; k < p->kernel[2]; k++) {
#pragma GCC unroll 4
                for (int b = 0; b < blocks; b++) {
                    const int64_t place = start + b * BLOCK * step;
                    load_block(&v, s->volume + place, step);
                    block_places take = (v > best[b]) | (v != v);
                    block_places here = lane + (real_place)place;
                    best[b] = (block)(((block_places)v & take) |
                                      ((block_places)best[b] & ~take));
                    at[b] = (here & take) | (at[b] & ~take);
                }
                start += p->dilation[2];
            }
        }
#pragma GCC unroll 4
    for (int b = 0; b < blocks; b++) {
        memcpy(l->best + i + b * BLOCK, &best[b], sizeof best[b]);
        if (places)
            memcpy(l->at + i + b * BLOCK, &at[b], sizeof at[b]);
    }
}

/* Steps and places of a call as constants. */
static inline __attribute__((always_inline)) void
take_some(const pool *p, const strip *s, const reach *z, const reach *y,
          int64_t i, const int blocks, largest *l)
{
    if (p->index == NULL && p->stride[2] == 1)
        take_block(p, s, z, y, i, blocks, 1, false, l);
    else if (p->index == NULL)
        take_block(p, s, z, y, i, blocks, 2, false, l);
    else if (p->stride[2] == 1)
        take_block(p, s, z, y, i, blocks, 1, true, l);
    else
        take_block(p, s, z, y, i, blocks, 2, true, l);
}

/* May a block from result i on read what lies behind the windows of its strip?
 */
static bool
may_read_on(const pool *p, const strip *s, const reach *z, const reach *y,
            int64_t i)
{
    int64_t first = (s->begin + i) * p->stride[2] - p->pad[2];
    return first + line_of(p, z->end - 1, y->end - 1) +
               (p->kernel[2] - 1) * p->dilation[2] + 2 * BLOCK <=
           s->left;
}

/* The results of a strip whose windows lie in the rows, in blocks, the last of
 * which may take some again, or some that take_windows then corrects: *from ..
 * *to - 1, none where they are few.
 */
static void
take_blocks(const pool *p, const strip *s, const reach *z, const reach *y,
            largest *l, int64_t *from, int64_t *to)
{
    whole_windows(p, s, from, to);
    bool filled = *to - *from >= BLOCK;
    if (p->adaptive || p->stride[2] > 2 || *to - *from < FEW ||
        z->begin >= z->end || y->begin >= y->end ||
        (!filled && !may_read_on(p, s, z, y, *from))) {
        *from = *to = 0;
        return;
    }
    int64_t last_block = filled ? *to - BLOCK : *from, i = *from;
    for (; i + BLOCKS * BLOCK <= *to; i += BLOCKS * BLOCK)
        take_some(p, s, z, y, i, BLOCKS, l);
    for (; i < *to; i += BLOCK)
        take_some(p, s, z, y, min64(i, last_block), 1, l);
}

/* Results [begin, end), one by one. Dilated windows may have no place in the
 * input: they are -inf, found where ATen says it. */
static void
take_windows(const pool *p, const strip *s, const reach *z, const reach *y,
             int64_t begin, int64_t end, largest *l)
{
    for (int64_t c = begin; c < end; c++) {
        reach x = reach_of(p, 2, s->begin + c);
        bool some = z->begin < z->end && y->begin < y->end && x.begin < x.end;
        int64_t at = line_of(p, z->begin, y->begin) + x.begin;
        real best = some ? s->volume[at] : -(real)INFINITY;
        for (int64_t i = z->begin; i < z->end; i += z->step)
            for (int64_t j = y->begin; j < y->end; j += y->step)
                for (int64_t k = x.begin; k < x.end; k += x.step) {
                    int64_t place = line_of(p, i, j) + k;
                    real v = s->volume[place];
                    if (v > best || v != v)
                        best = v, at = place;
                }
        l->best[c] = best;
        l->at[c] = (real_place)at;
    }
}

static void
max_strip(const pool *p, const strip *s, int64_t at)
{
    largest l;
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    int64_t from, to;
    take_blocks(p, s, &z, &y, &l, &from, &to);
    take_windows(p, s, &z, &y, 0, from, &l);
    take_windows(p, s, &z, &y, to, s->count, &l);
    int64_t *restrict index = p->index == NULL ? NULL : p->index + at;
    for (int64_t i = 0, n = index == NULL ? 0 : s->count; i < n; i++)
        index[i] = l.at[i];
    emit(p, at, l.best, s->count);
}

/* (self, kernel_size, stride, padding, dilation, ceil_mode), or (self,
 * output_size) */
static void
max_pool(const air_call *call, const air_task *task, int axes, bool adaptive)
{
    pool p = open_pool(call, task, axes, call->args[0].t, &call->outs[0],
                       adaptive ? -1 : 1);
    for (int k = 0; k < AXES && !adaptive; k++)
        if (entry_of(&p, k) >= 0)
            p.dilation[k] = ref_ints(call, 4, entry_of(&p, k), 1);
    if (call->nouts > 1)
        p.index = (int64_t *)(void *)ref_out(call, 1, task).data;
    if (size_of(&p) > 0)
        forward(&p, max_strip);
}

/* Elements of argument 0 are added at the places that argument `at` names.
 * Threads share the volumes: windows overlap. */
static void
max_pool_backward(const air_call *call, const air_task *task, int axes, int at)
{
    pool p = open_pool(call, task, axes, &call->outs[0], call->args[0].t, -1);
    const int64_t *index =
        (const int64_t *)(void *)ref_arg(call, at, task).data;
    int64_t n = results_of(&p), size = size_of(&p), begin, end;
    air_split(p.volumes, task, &begin, &end);
    for (int64_t k = begin; k < end; k++) {
        const char *src = p.in + k * n * reals_bytes(p.dtype);
        char *out = p.out + k * size * reals_bytes(p.dtype);
        real *dst = p.dtype == REAL_DTYPE ? (real *)(void *)out : p.wide, g;
        memset(dst, 0, (size_t)size * sizeof *dst);
        for (int64_t i = 0; i < n; i++) {
            int64_t place = index[k * n + i];
            reals_widen(&g, src + i * reals_bytes(p.dtype), p.dtype, 1);
            if (ref_wrap(&place, size, task))
                dst[place] += g;
        }
        if (p.dtype != REAL_DTYPE)
            reals_narrow(out, dst, p.dtype, size);
    }
}

/* ---- means --------------------------------------------------------------- */

static void
add_tap(const pool *p, const strip *s, int64_t line, int64_t shift, real *sum)
{
    int64_t from, to, step = p->stride[2];
    inside(p, s, shift, &from, &to);
    const real *src = s->volume + line + s->begin * step + shift;
    for (int64_t i = from; i < to; i++)
        sum[i] += src[i * step];
}

static void
mean_strip(const pool *p, const strip *s, int64_t at)
{
    real sum[COLUMNS];
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    memset(sum, 0, (size_t)s->count * sizeof *sum);
    for (int64_t i = z.begin; i < z.end; i++)
        for (int64_t j = y.begin; j < y.end; j++)
            for (int64_t k = 0; k < p->kernel[2]; k++)
                add_tap(p, s, line_of(p, i, j), k - p->pad[2], sum);
    divide(p, s, sum);
    emit(p, at, sum, s->count);
}

/* Sums of channels that are last: `blocks` blocks of them from `src` on, a
 * constant of each call; 0: `count` channels. */
static inline __attribute__((always_inline)) void
sum_channels(const pool *p, const reach *z, const reach *y, const real *src,
             const int blocks, int64_t count, real *sums)
{
    block sum[BLOCKS], v;
#pragma GCC unroll 4
    for (int b = 0; b < blocks; b++)
        sum[b] = (block){0};
    memset(sums, 0, (size_t)count * sizeof *sums);
    for (int64_t i = z->begin; i < z->end; i++)
        for (int64_t j = y->begin; j < y->end; j++) {
            const real *from = src + line_of(p, i, j);
#pragma GCC unroll 4
            for (int b = 0; b < blocks; b++) {
                memcpy(&v, from + b * BLOCK, sizeof v);
                sum[b] += v;
            }
            for (int64_t c = 0; c < count; c++)
                sums[c] += from[c];
        }
    memcpy(sums + count, sum, (size_t)blocks * sizeof *sum);
}

/* Means of channels, which all have one window. */
static void
mean_channels(const pool *p, const strip *s, int64_t at)
{
    real sum[COLUMNS];
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    const int64_t n = places(p, 0, s->row[0]) * places(p, 1, s->row[1]);
    const real by = (real)(p->divisor != 0 ? p->divisor : n);
    const real *src = s->volume + s->begin;
    int64_t c = 0;
    for (; c + BLOCKS * BLOCK <= s->count; c += BLOCKS * BLOCK)
        sum_channels(p, &z, &y, src + c, BLOCKS, 0, sum + c);
    for (; c + BLOCK <= s->count; c += BLOCK)
        sum_channels(p, &z, &y, src + c, 1, 0, sum + c);
    if (c < s->count)
        sum_channels(p, &z, &y, src + c, 0, s->count - c, sum + c);
    for (c = 0; c < s->count; c++)
        sum[c] = n != 0 ? sum[c] / by : 0;
    emit(p, at, sum, s->count);
}

enum { SHARES = 4 };

/* Sums of neighbouring shares side by side: none waits for another. `count` is
 * a constant of each call. */
static inline __attribute__((always_inline)) void
add_shares(const pool *p, const real *volume, const reach *z, const reach *y,
           const reach *x, const int count, real *sums)
{
    const int64_t width = x->end - x->begin;
    real sum[SHARES] = {0};
    for (int64_t i = z->begin; i < z->end; i++)
        for (int64_t j = y->begin; j < y->end; j++) {
            const real *src = volume + line_of(p, i, j);
            for (int64_t k = 0; k < width; k++)
#pragma GCC unroll 4
                for (int c = 0; c < count; c++)
                    sum[c] += src[x[c].begin + k];
        }
    memcpy(sums, sum, (size_t)count * sizeof *sum);
}

/* How many shares from the first on are as wide as it is. */
static int
same_width(const reach *x, int64_t count)
{
    int n = 1;
    while (n < count && n < SHARES &&
           x[n].end - x[n].begin == x->end - x->begin)
        n++;
    return n;
}

static void
mean_share_strip(const pool *p, const strip *s, int64_t at)
{
    real sums[COLUMNS];
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    for (int64_t c = 0; c < s->count;) {
        reach x[SHARES] = {reach_of(p, 2, s->begin + c)};
        const int64_t left = s->count - c;
        for (int k = 1; k < SHARES && k < left; k++)
            x[k] = reach_of(p, 2, s->begin + c + k);
        const int n = same_width(x, left);
        if (n == SHARES)
            add_shares(p, s->volume, &z, &y, x, SHARES, sums + c);
        else if (n >= 2)
            add_shares(p, s->volume, &z, &y, x, 2, sums + c);
        else
            add_shares(p, s->volume, &z, &y, x, 1, sums + c);
        c += n == SHARES ? n : n >= 2 ? 2 : 1;
    }
    divide(p, s, sums);
    emit(p, at, sums, s->count);
}

/* (self, kernel_size, stride, padding, ceil_mode, count_include_pad,
 * divisor_override), or (self, output_size) */
static void
mean_pool(const air_call *call, const air_task *task, int axes, bool adaptive)
{
    pool p = open_pool(call, task, axes, call->args[0].t, &call->outs[0],
                       adaptive ? -1 : 1);
    p.count_pad = ref_int(call, 5, 1) != 0;
    p.divisor = adaptive ? 0 : ref_int(call, 6, 0);
    forward(&p, p.last     ? mean_channels
                : adaptive ? mean_share_strip
                           : mean_strip);
}

/* One row of gradients spread over the volume `dst`: what each result gave to
 * each place of its window. */
static void
spread_windows(const pool *p, const strip *s, const real *share, real *dst)
{
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    int64_t from, to, step = p->stride[2];
    for (int64_t i = z.begin; i < z.end; i++)
        for (int64_t j = y.begin; j < y.end; j++)
            for (int64_t k = p->kernel[2] - 1; k >= 0; k--) {
                int64_t shift = k - p->pad[2];
                inside(p, s, shift, &from, &to);
                real *to_row = dst + line_of(p, i, j) + s->begin * step + shift;
                for (int64_t x = from; x < to; x++)
                    to_row[x * step] += share[x];
            }
}

static void
spread_shares(const pool *p, const strip *s, const real *share, real *dst)
{
    reach z = reach_of(p, 0, s->row[0]), y = reach_of(p, 1, s->row[1]);
    for (int64_t c = 0; c < s->count; c++) {
        reach x = reach_of(p, 2, s->begin + c);
        for (int64_t i = z.begin; i < z.end; i++)
            for (int64_t j = y.begin; j < y.end; j++) {
                real *to = dst + line_of(p, i, j);
                for (int64_t k = x.begin; k < x.end; k++)
                    to[k] += share[c];
            }
    }
}

static void
spread_row(const pool *p, strip *s, const char *src, real *dst)
{
    real share[COLUMNS];
    for (s->begin = 0; s->begin < p->results[2]; s->begin += COLUMNS) {
        s->count = min64(COLUMNS, p->results[2] - s->begin);
        reals_widen(share, src + s->begin * reals_bytes(p->dtype), p->dtype,
                    s->count);
        divide(p, s, share);
        (p->adaptive ? spread_shares : spread_windows)(p, s, share, dst);
    }
}

/* (grad, self, kernel_size, ...), or (grad, self) */
static void
mean_pool_backward(const air_call *call, const air_task *task, int axes,
                   bool adaptive)
{
    pool p = open_pool(call, task, axes, &call->outs[0], call->args[0].t,
                       adaptive ? -1 : 2);
    int64_t n = results_of(&p), size = size_of(&p), begin, end;
    p.count_pad = ref_int(call, 6, 1) != 0;
    p.divisor = adaptive ? 0 : ref_int(call, 7, 0);
    air_split(p.volumes, task, &begin, &end);
    for (int64_t k = begin; k < end; k++) {
        char *out = p.out + k * size * reals_bytes(p.dtype);
        real *dst = p.dtype == REAL_DTYPE ? (real *)(void *)out : p.wide;
        memset(dst, 0, (size_t)size * sizeof *dst);
        for (int64_t r = 0; n > 0 && r < p.results[0] * p.results[1]; r++) {
            strip s = {.row = {r / p.results[1], r % p.results[1]}};
            spread_row(&p, &s,
                       p.in + (k * n + r * p.results[2]) * reals_bytes(p.dtype),
                       dst);
        }
        if (p.dtype != REAL_DTYPE)
            reals_narrow(out, dst, p.dtype, size);
    }
}

/* ---- kernels ------------------------------------------------------------- */

#define POOL(name, run, axes, places, ...)                             \
    bool REAL_KERNEL(name##_on)(const air_call *call, const char *isa) \
    {                                                                  \
        return takes(call, isa, axes, places);                         \
    }                                                                  \
    size_t REAL_KERNEL(name##_size)(const air_call *call, int threads) \
    {                                                                  \
        return workspace(call, threads, axes);                         \
    }                                                                  \
    void REAL_KERNEL(name)(const air_call *call, const air_task *task) \
    {                                                                  \
        run(call, task, axes, __VA_ARGS__);                            \
    }
#include "driver/cpu/planes/pool.def"
#undef POOL
