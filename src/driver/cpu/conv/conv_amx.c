/* conv_amx.c: convolution of bf16 with AMX: weights [channels out, K] are read
 * in place, the image is packed as columns, 32 places at a time. */
#include "driver/cpu/conv/conv.h"
#include "driver/cpu/conv/conv_direct.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_amx.h"
#include "driver/cpu/product/gemm_pairs.h"

#include <string.h>

/* What a thread makes columns of. */
typedef struct {
    const conv_geometry *g;
    const uint16_t *x; /* one group of one image */
    gemm_ops ops;
    uint16_t *rows; /* [K][AMX_COLS] */
} columns;

/* The elements at tap `tap` of every channel: rows tap, taps + tap ... */
static void
pack_tap(const columns *c, int64_t p0, int64_t n, int64_t tap)
{
    const conv_geometry *g = c->g;
    conv_segment segments[AMX_COLS];
    int count = cpu_conv_segments(g, p0, n, tap, segments);
    for (int i = 0; i < count; i++)
        amx_copies(c->rows + tap * AMX_COLS + segments[i].lane,
                   g->taps * AMX_COLS, c->x + segments[i].at, g->in_pixels,
                   g->stride[2], segments[i].count, g->c_in);
}

static void
pack_columns(const void *arg, uint16_t *panel, int64_t p0, int64_t n)
{
    const columns *c = arg;
    int64_t k = c->g->c_in * c->g->taps;
    gemm_view rows = {c->rows, 1, AMX_COLS, AIR_BF16};
    memset(c->rows, 0, (size_t)(k * AMX_COLS) * sizeof *c->rows);
    for (int64_t tap = 0; tap < c->g->taps; tap++)
        pack_tap(c, p0, n, tap);
    amx_pack(panel, &rows, 0, AMX_COLS, k);
}

/* Pairs come from the image at once: which pixels meet which places is looked
 * up for two taps a pair, which many channels have to share. */
static bool
has_pairs(const conv_geometry *g)
{
    return g->c_in >= 32 && g->c_in * g->taps % 2 == 0 && g->stride[2] <= 2;
}

static void
pack_pairs(const void *arg, uint16_t *panel, int64_t p0, int64_t n)
{
    const columns *c = arg;
    int64_t k = c->g->c_in * c->g->taps, rest = round_up(k, AMX_DEPTH) - k;
    conv_image im = {.g = c->g, .ops = &c->ops, .x = c->x, .dtype = AIR_BF16};
    cpu_conv_pack_pairs(&im, (float *)(void *)panel, p0, n, 0, k / 2);
    memset(panel + k * AMX_COLS, 0, (size_t)(rest * AMX_COLS) * sizeof *panel);
}

static gemm_job
sizes(const conv_geometry *g)
{
    int64_t k = g->c_in * g->taps;
    return (gemm_job){.nx = g->c_out,
                      .nw = g->out_pixels,
                      .k = k,
                      .x = {NULL, k, 1, AIR_BF16},
                      .w = {NULL, 1, g->in_pixels, AIR_BF16},
                      .yl = g->out_pixels,
                      .yr = 1,
                      .sl = 1,
                      .y_dtype = AIR_BF16,
                      .s_dtype = AIR_BF16,
                      .alpha = 1,
                      .beta = 1};
}

/* Of a thread: the product's, and rows before they are packed. */
static int64_t
thread_size(const conv_geometry *g)
{
    gemm_job job = sizes(g);
    bool packs = cpu_conv_is_pointwise(g) || has_pairs(g);
    int64_t rows = packs ? 0 : job.k * AMX_COLS;
    return round_up(cpu_amx_size(&job) + rows, AMX_DEPTH);
}

/* Group i % groups of image i / groups. */
static void
set_pointers(gemm_job *job, const conv_geometry *g, const air_call *call,
             const air_task *task, int64_t i)
{
    const air_tensor *bias = call->args[2].t;
    int64_t channel = i % g->groups * g->c_out;
    job->x.p =
        (const uint16_t *)air_data(call->args[1].t, task) + channel * job->k;
    job->w.p = (const uint16_t *)air_data(call->args[0].t, task) +
               i * g->c_in * g->in_pixels;
    job->y = (uint16_t *)air_data(&call->outs[0], task) +
             i * g->c_out * g->out_pixels;
    if (call->args[2].kind == AIR_ARG_TENSOR && bias->dtype != AIR_DTYPE_NONE)
        job->s = (const uint16_t *)air_data(bias, task) + channel;
}

void
cpu_convolution_amx(const air_call *call, const air_task *task)
{
    conv_geometry g = cpu_conv_forward(call);
    gemm_job job = sizes(&g);
    int64_t items = g.batch * g.groups, b = 0, e = items;
    bool alone = items % task->count == 0 || items >= 4 * task->count;
    uint16_t *memory = (uint16_t *)task->workspace + thread_size(&g) * task->id;
    columns c = {
        .g = &g, .rows = memory + cpu_amx_size(&job), .ops = cpu_pairs_ops()};
    amx_product product = {.job = &job, .memory = memory, .acc = task->scratch};
    if (!cpu_conv_is_pointwise(&g)) {
        product.pack = has_pairs(&g) ? pack_pairs : pack_columns;
        product.pack_arg = &c;
    }
    if (alone)
        air_split(items, task, &b, &e);
    amx_begin();
    for (int64_t i = b; i < e; i++) {
        set_pointers(&job, &g, call, task, i);
        c.x = job.w.p;
        cpu_amx_run(&product, alone ? 0 : task->id, alone ? 1 : task->count);
    }
    amx_end();
}

bool
cpu_convolution_on_amx(const air_call *call, const char *isa)
{
    conv_geometry g = cpu_conv_forward(call);
    return strcmp(isa, "amx") == 0 && call->args[0].t->dtype == AIR_BF16 &&
           cpu_convolution_on_avx512(call, "avx512") &&
           !(g.c_out <= 8 && cpu_conv_is_direct(&g)) &&
           g.c_in * g.taps >= AMX_DEPTH / 2;
}

size_t
cpu_convolution_amx_workspace(const air_call *call, int threads)
{
    conv_geometry g = cpu_conv_forward(call);
    return (size_t)(2 * thread_size(&g)) * (size_t)threads;
}
