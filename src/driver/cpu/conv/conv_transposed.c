/* conv_transposed.c: transposed convolution, which is also the gradient of a
 * plain one's input. Those of stride 1 are plain convolutions with turned
 * weights (pass/expand_conv.c); of the others most are conv_spread.c's, here
 * are those of few channels.
 *
 * For some channels of the result at a time, weights^T times the image give
 * what each place sends to each pixel, [channel][tap][place]; that is then
 * added up, channel by channel. */
#include "driver/cpu/conv/conv_backward.h"
#include "driver/cpu/conv/conv_columns.h"
#include "driver/cpu/conv/conv_spread.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_pairs.h"

#include <string.h>

#define COLUMN_BYTES ((int64_t)1 << 20) /* of some channels, if one fits */

typedef struct {
    conv_geometry g;
    const air_tensor *small, *weight, *bias, *big; /* bias may be NULL */
    const gemm_ops *ops;
    const air_task *task;
    int64_t channels; /* at a time */
} transposed;

/* Group `group` of image `image` done by a team. */
typedef struct {
    const transposed *t;
    gemm_team team;
    float *columns;
    int64_t image, group;
} part;

/* (a, weight, bias, size, stride, padding, dilation, groups) */
static transposed
read_call(const air_call *call)
{
    transposed t = {.small = call->args[0].t,
                    .weight = call->args[1].t,
                    .big = &call->outs[0]};
    const air_arg *bias = &call->args[2];
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        t.bias = bias->t;
    t.g = cpu_conv_geometry(t.big, t.small, t.weight, &call->args[4],
                            call->args[7].i);
    int64_t bytes = t.g.taps * t.g.out_pixels * (int64_t)sizeof(float);
    int64_t fit = bytes > 0 ? COLUMN_BYTES / bytes : 1;
    t.channels = min64(t.g.c_in, fit > 0 ? fit : 1);
    return t;
}

/* Columns of channels [c, c + n); columns NULL: sizes only. */
static gemm_job
make_job(const part *p, int64_t c, int64_t n)
{
    const transposed *t = p->t;
    const conv_geometry *g = &t->g;
    int64_t k = g->c_in * g->taps, at = p->group * g->c_out;
    gemm_job job = {.nx = g->out_pixels,
                    .nw = n * g->taps,
                    .k = g->c_out,
                    .x = {NULL, 1, g->out_pixels, t->small->dtype},
                    .w = {NULL, 1, k, t->weight->dtype},
                    .y = p->columns,
                    .yl = 1,
                    .yr = g->out_pixels,
                    .y_dtype = AIR_F32,
                    .alpha = 1};
    if (p->columns == NULL)
        return job;
    job.x.p = (const char *)air_data(t->small, t->task) +
              (p->image * g->groups * g->c_out + at) * g->out_pixels *
                  cpu_gemm_size_of(t->small->dtype);
    job.w.p = (const char *)air_data(t->weight, t->task) +
              (at * k + c * g->taps) * cpu_gemm_size_of(t->weight->dtype);
    return job;
}

static size_t
column_floats(const transposed *t)
{
    return (size_t)((t->channels * t->g.taps * t->g.out_pixels + 15) / 16 * 16);
}

/* Bytes of panels for the largest job, and of columns. */
static size_t
team_bytes(const transposed *t, int threads)
{
    part p = {.t = t};
    gemm_job job = make_job(&p, 0, t->channels);
    gemm_job rest = make_job(&p, 0, t->g.c_in % t->channels);
    size_t a = cpu_gemm_workspace(&job, threads);
    size_t b = cpu_gemm_workspace(&rest, threads);
    return (a > b ? a : b) + column_floats(t) * sizeof(float);
}

/* ---- adding up ----------------------------------------------------------- */

/* acc[at + i * stride] += from[i] */
static void
add_strided(float *acc, int64_t stride, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        acc[i * stride] += from[i];
}

/* Plane z, row y of a channel's result += every tap that reaches it. */
static void
add_row(const conv_geometry *g, float *acc, const float *columns, int64_t z,
        int64_t y)
{
    for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
        int64_t oz = z + g->pad[0] - k / g->kernel[1] * g->dilation[0];
        int64_t oy = y + g->pad[1] - k % g->kernel[1] * g->dilation[1];
        if (oz < 0 || oy < 0 || oz % g->stride[0] != 0 ||
            oy % g->stride[1] != 0 || oz / g->stride[0] >= g->out[0] ||
            oy / g->stride[1] >= g->out[1])
            continue;
        const float *row =
            columns +
            (oz / g->stride[0] * g->out[1] + oy / g->stride[1]) * g->out[2];
        for (int64_t x = 0; x < g->kernel[2]; x++) {
            int64_t b, e, at, tap = k * g->kernel[2] + x;
            cpu_conv_inside(g, 2, 0, g->out[2], x, &b, &e, &at);
            add_strided(acc + at, g->stride[2], row + tap * g->out_pixels + b,
                        e - b);
        }
    }
}

/* Channel c of the group's result from its columns. */
static void
put_channel(const part *p, int64_t c, const float *columns)
{
    const transposed *t = p->t;
    const conv_geometry *g = &t->g;
    int64_t channel = p->group * g->c_in + c, width = g->in[2];
    int64_t size = cpu_gemm_size_of(t->big->dtype);
    float *acc = p->team.scratch, start = 0;
    char *y = (char *)air_data(t->big, t->task) +
              (p->image * g->groups * g->c_in + channel) * g->in_pixels * size;
    if (t->bias != NULL)
        t->ops->widen(&start,
                      (const char *)air_data(t->bias, t->task) +
                          channel * cpu_gemm_size_of(t->bias->dtype),
                      1, t->bias->dtype, 1);
    for (int64_t r = 0; r < g->in[0] * g->in[1]; r++) {
        for (int64_t i = 0; i < width; i++)
            acc[i] = start;
        add_row(g, acc, columns, r / g->in[1], r % g->in[1]);
        t->ops->narrow(y + r * width * size, 1, t->big->dtype, acc, 1, width);
    }
}

/* ---- the kernel ---------------------------------------------------------- */

static void
barrier(const part *p)
{
    if (p->team.count > 1)
        p->team.task->barrier(p->team.task);
}

static void
run_part(const part *p)
{
    const conv_geometry *g = &p->t->g;
    int64_t step = p->t->channels;
    for (int64_t c = 0; c < g->c_in; c += step) {
        int64_t n = min64(step, g->c_in - c);
        gemm_job job = make_job(p, c, n);
        cpu_gemm_run(&job, p->t->ops, &p->team);
        barrier(p);
        for (int64_t i = n * p->team.id / p->team.count;
             i < n * (p->team.id + 1) / p->team.count; i++)
            put_channel(p, c + i, p->columns + i * g->taps * g->out_pixels);
        barrier(p); /* the columns are free again */
    }
}

#define ALONE_BYTES ((size_t)8 << 20) /* of a thread that works alone */

/* Images and groups are shared out, or one by one done together. */
static bool
works_alone(const transposed *t, size_t bytes, int threads)
{
    int64_t items = t->g.batch * t->g.groups;
    return bytes <= ALONE_BYTES &&
           (items >= 2 * threads || items % threads == 0);
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    transposed t = read_call(call);
    if (cpu_spread_takes(&t.g, t.small->dtype)) {
        cpu_spread_run(call, &t.g, task, ops, &cpu_spread_floats);
        return;
    }
    size_t bytes = team_bytes(&t, 1);
    bool alone = works_alone(&t, bytes, task->count);
    char *mem = (char *)task->workspace +
                (alone ? bytes * (size_t)task->id : (size_t)0);
    float *columns = (float *)(void *)mem;
    part p = {.t = &t,
              .columns = columns,
              .team = {task->id, task->count, task, columns + column_floats(&t),
                       task->scratch, NULL}};
    int64_t b = 0, e = t.g.batch * t.g.groups;
    t.ops = ops;
    t.task = task;
    if (alone) {
        p.team.id = 0, p.team.count = 1, p.team.task = NULL;
        air_split(e, task, &b, &e);
    }
    for (int64_t i = b; i < e; i++) {
        p.image = i / t.g.groups;
        p.group = i % t.g.groups;
        run_part(&p);
    }
}

size_t
cpu_convolution_transposed_workspace(const air_call *call, int threads)
{
    transposed t = read_call(call);
    if (cpu_spread_takes(&t.g, t.small->dtype))
        return cpu_spread_workspace(&t.g, threads, &cpu_spread_floats);
    size_t bytes = team_bytes(&t, 1);
    return bytes <= ALONE_BYTES ? bytes * (size_t)threads
                                : team_bytes(&t, threads);
}

static bool
accept(const air_call *call)
{
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    const air_arg *bias = &call->args[2];
    bool dense =
        cpu_is_dense(x) && cpu_is_dense(w) && cpu_is_dense(&call->outs[0]);
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        dense = dense && cpu_is_dense(bias->t) && gemm_is_float(bias->t->dtype);
    return dense && gemm_is_float(x->dtype) && w->dtype == x->dtype &&
           x->rank >= 3 && x->rank <= 2 + CONV_AXES && w->dims[1] > 0 &&
           call->outs[0].dims[x->rank - 1] * (int64_t)sizeof(float) <=
               (int64_t)AIR_SCRATCH;
}

GEMM_KERNELS(convolution_transposed)

#if defined(__x86_64__)
/* ---- bf16 by pairs and by AMX -------------------------------------------- */

static bool
takes_bf16(const air_call *call)
{
    if (call->args[0].t->dtype != AIR_BF16 || !accept(call))
        return false;
    transposed t = read_call(call);
    return cpu_spread_takes(&t.g, t.small->dtype);
}

bool
cpu_convolution_transposed_on_pairs(const air_call *call, const char *isa)
{
    return cpu_isa_has_fast_pairs(isa) && takes_bf16(call);
}

void
cpu_convolution_transposed_pairs(const air_call *call, const air_task *task)
{
    transposed t = read_call(call);
    gemm_ops ops = cpu_pairs_ops();
    cpu_spread_run(call, &t.g, task, &ops, &cpu_spread_pairs);
}

size_t
cpu_convolution_transposed_pairs_workspace(const air_call *call, int threads)
{
    transposed t = read_call(call);
    return cpu_spread_workspace(&t.g, threads, &cpu_spread_pairs);
}

bool
cpu_convolution_transposed_on_amx(const air_call *call, const char *isa)
{
    return strcmp(isa, "amx") == 0 && takes_bf16(call);
}

void
cpu_convolution_transposed_amx(const air_call *call, const air_task *task)
{
    transposed t = read_call(call);
    cpu_spread_run(call, &t.g, task, &cpu_gemm_avx512, &cpu_spread_amx);
}

size_t
cpu_convolution_transposed_amx_workspace(const air_call *call, int threads)
{
    transposed t = read_call(call);
    return cpu_spread_workspace(&t.g, threads, &cpu_spread_amx);
}
#endif
