/* pool_isa.c: pooling of f32 planes, compiled once per instruction set.
 *
 * A row of results is made tap by tap: one tap of all windows of the row is a
 * run through one input row, which the compiler makes vectors of. For each
 * result taps come in row-major order, as ATen takes them, so sums round the
 * same. Threads share the rows of results. */
#include "driver/cpu/pool_isa.h"

#include <math.h>

#include "driver/cpu/gemm.h"
#include "driver/cpu/gemm_core.h"
#include "driver/ref/args.h"

#define JOIN_(a, b)       cpu_##a##_##b
#define JOIN(a, b)        JOIN_(a, b)
#define POOL_KERNEL(name) JOIN(name, TILE_ISA)

enum { COLUMNS = 512 }; /* results of a row that are made together */

/* Two axes, height and width. */
typedef struct {
    const float *in;
    float *out;
    int64_t *index;
    int64_t planes, size[2], results[2];
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    bool count_pad;  /* means: the padding counts */
    int64_t divisor; /* means: not 0: instead of the count */
} pool;

/* One row of one plane: its columns begin .. begin + count - 1. */
typedef struct {
    const float *plane;
    int64_t row, begin, count;
} strip;

/* ---- calls --------------------------------------------------------------- */

/* Dense f32 in and out, planes that 32 bits count. */
static bool
takes(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t, *out = &call->outs[0];
    int64_t plane = a->dims[a->rank - 1] * a->dims[a->rank - 2];
    return a->dtype == AIR_F32 && cpu_is_dense(a) && cpu_is_dense(out) &&
           plane < INT32_MAX && JOIN(on, TILE_ISA)(call, isa);
}

bool
POOL_KERNEL(pool_on)(const air_call *call, const char *isa)
{
    return takes(call, isa) &&
           (call->nouts < 2 || cpu_is_dense(&call->outs[1]));
}

bool
POOL_KERNEL(pool_backward_on)(const air_call *call, const char *isa)
{
    return takes(call, isa) && call->args[7].kind == AIR_ARG_TENSOR &&
           cpu_is_dense(call->args[7].t);
}

static pool
open_pool(const air_call *call, const air_task *task)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    pool p = {
        .in = (const float *)in.data, .out = (float *)out.data, .planes = 1};
    for (int i = 0; i < in.rank - 2; i++)
        p.planes *= in.dims[i];
    for (int k = 0; k < 2; k++) {
        p.size[k] = in.dims[in.rank - 2 + k];
        p.results[k] = out.dims[out.rank - 2 + k];
        p.kernel[k] = ref_ints(call, 1, k, 1);
        p.stride[k] = ref_ints(call, 2, k, p.kernel[k]);
        p.pad[k] = ref_ints(call, 3, k, 0);
        p.dilation[k] = 1;
    }
    return p;
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
    int64_t first = ceil_div(-shift, p->stride[1]);
    int64_t end = p->size[1] - 1 - shift;
    end = end < 0 ? 0 : end / p->stride[1] + 1;
    *from = first > s->begin ? first - s->begin : 0;
    *to = min64(end, s->begin + s->count) - s->begin;
}

/* The first place of a window, on one axis, that is in the input. */
static int64_t
first_inside(const pool *p, int axis, int64_t result)
{
    int64_t at = result * p->stride[axis] - p->pad[axis];
    return at + ceil_div(-at, p->dilation[axis]) * p->dilation[axis];
}

/* Calls `make` for the strips of this thread's rows. */
static void
each_strip(const pool *p, const air_task *task,
           void (*make)(const pool *p, const strip *s, int64_t at))
{
    int64_t begin, end;
    air_split(p->planes * p->results[0], task, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        for (int64_t x = 0; x < p->results[1]; x += COLUMNS) {
            strip s = {p->in + r / p->results[0] * p->size[0] * p->size[1],
                       r % p->results[0], x, min64(COLUMNS, p->results[1] - x)};
            make(p, &s, r * p->results[1] + x);
        }
}

/* ---- the largest --------------------------------------------------------- */

typedef struct {
    float best[COLUMNS];
    int32_t at[COLUMNS];
} largest;

static void
take_tap(const pool *p, const strip *s, int64_t y, int64_t shift, largest *l)
{
    int64_t from, to, step = p->stride[1];
    inside(p, s, shift, &from, &to);
    int64_t start = y * p->size[1] + s->begin * step + shift;
    const float *src = s->plane + start;
    for (int64_t i = from; i < to; i++) {
        float v = src[i * step];
        bool take = (v > l->best[i]) | (v != v);
        l->best[i] = take ? v : l->best[i];
        l->at[i] = take ? (int32_t)(start + i * step) : l->at[i];
    }
}

static void
max_strip(const pool *p, const strip *s, int64_t at)
{
    largest l;
    int64_t top = first_inside(p, 0, s->row);
    int64_t end = s->row * p->stride[0] - p->pad[0] +
                  (p->kernel[0] - 1) * p->dilation[0] + 1;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t x = first_inside(p, 1, s->begin + i);
        bool some = top < p->size[0] && x < p->size[1];
        l.best[i] = -INFINITY;
        l.at[i] = some ? (int32_t)(top * p->size[1] + x) : 0;
    }
    for (int64_t y = top; y < min64(end, p->size[0]); y += p->dilation[0])
        for (int64_t k = 0; k < p->kernel[1]; k++)
            take_tap(p, s, y, k * p->dilation[1] - p->pad[1], &l);
    for (int64_t i = 0; i < s->count; i++) {
        p->out[at + i] = s->plane[l.at[i]];
        p->index[at + i] = l.at[i];
    }
}

/* (self, kernel_size, stride, padding, dilation, ceil_mode) */
void
POOL_KERNEL(max_pool2d)(const air_call *call, const air_task *task)
{
    pool p = open_pool(call, task);
    for (int k = 0; k < 2; k++)
        p.dilation[k] = ref_ints(call, 4, k, 1);
    p.index = (int64_t *)(void *)ref_out(call, 1, task).data;
    each_strip(&p, task, max_strip);
}

/* (grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices).
 * Threads share the planes: windows overlap. */
void
POOL_KERNEL(max_pool2d_backward)(const air_call *call, const air_task *task)
{
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    const int64_t *index = (const int64_t *)(void *)ref_arg(call, 7, task).data;
    int64_t n = grad.dims[grad.rank - 1] * grad.dims[grad.rank - 2];
    int64_t size = out.dims[out.rank - 1] * out.dims[out.rank - 2];
    int64_t planes = 1, begin, end;
    for (int i = 0; i < grad.rank - 2; i++)
        planes *= grad.dims[i];
    air_split(planes, task, &begin, &end);
    for (int64_t k = begin; k < end; k++) {
        const float *src = (const float *)grad.data + k * n;
        float *dst = (float *)out.data + k * size;
        for (int64_t i = 0; i < size; i++)
            dst[i] = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = index[k * n + i];
            if (ref_wrap(&at, size, task))
                dst[at] += src[i];
        }
    }
}

/* ---- means --------------------------------------------------------------- */

static void
add_tap(const pool *p, const strip *s, int64_t y, int64_t shift, float *sum)
{
    int64_t from, to, step = p->stride[1];
    inside(p, s, shift, &from, &to);
    const float *src = s->plane + y * p->size[1] + s->begin * step + shift;
    for (int64_t i = from; i < to; i++)
        sum[i] += src[i * step];
}

/* How many places of a window count, on one axis. *some: in the input. */
static int64_t
places(const pool *p, int axis, int64_t result, bool *some)
{
    int64_t begin = result * p->stride[axis] - p->pad[axis];
    int64_t end = min64(begin + p->kernel[axis], p->size[axis] + p->pad[axis]);
    int64_t from = begin < 0 ? 0 : begin, to = min64(end, p->size[axis]);
    *some = to > from;
    return p->count_pad ? end - begin : to - from;
}

static void
mean_strip(const pool *p, const strip *s, int64_t at)
{
    float sum[COLUMNS] = {0};
    bool rows_in, columns_in;
    int64_t rows = places(p, 0, s->row, &rows_in);
    int64_t top = s->row * p->stride[0] - p->pad[0];
    int64_t bottom = min64(top + p->kernel[0], p->size[0]);
    for (int64_t y = top < 0 ? 0 : top; y < bottom; y++)
        for (int64_t k = 0; k < p->kernel[1]; k++)
            add_tap(p, s, y, k - p->pad[1], sum);
    for (int64_t i = 0; i < s->count; i++) {
        int64_t n = rows * places(p, 1, s->begin + i, &columns_in);
        n = p->divisor ? p->divisor : n;
        p->out[at + i] = rows_in && columns_in ? sum[i] / (float)n : 0;
    }
}

/* (self, kernel_size, stride, padding, ceil_mode, count_include_pad,
 * divisor_override) */
void
POOL_KERNEL(avg_pool2d)(const air_call *call, const air_task *task)
{
    pool p = open_pool(call, task);
    p.count_pad = ref_int(call, 5, 1) != 0;
    p.divisor = ref_int(call, 6, 0);
    each_strip(&p, task, mean_strip);
}

/* (self, output_size): windows are even shares, from floor to ceil. */
void
POOL_KERNEL(adaptive_avg_pool2d)(const air_call *call, const air_task *task)
{
    pool p = open_pool(call, task);
    int64_t begin, end, h = p.results[0], w = p.results[1];
    air_split(p.planes * h, task, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *plane = p.in + r / h * p.size[0] * p.size[1];
        int64_t top = r % h * p.size[0] / h;
        int64_t bottom = ((r % h + 1) * p.size[0] + h - 1) / h;
        for (int64_t x = 0; x < w; x++) {
            int64_t left = x * p.size[1] / w;
            int64_t right = ((x + 1) * p.size[1] + w - 1) / w;
            float sum = 0;
            for (int64_t i = top; i < bottom; i++)
                for (int64_t j = left; j < right; j++)
                    sum += plane[i * p.size[1] + j];
            p.out[r * w + x] =
                sum / (float)(bottom - top) / (float)(right - left);
        }
    }
}
