/* conv_pairs.c: convolution of bf16 with VDPBF16PS: the product of conv.c, of
 * half the depth. Pairs along k, which counts [channel][tap], are two taps of a
 * channel, or of an odd number of taps the last of one channel and the first of
 * the next: what repeats is a channel or two. */
#include "driver/cpu/conv/conv.h"
#include "driver/cpu/conv/conv_direct.h"
#include "driver/cpu/conv/conv_windows.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/region/region_join.h"

#define PLACES   8  /* pairs of what repeats whose segments are found at once */
#define CHANNELS 32 /* whose pixels stay in the nearest cache */

/* One of the pairs that repeat. */
typedef struct {
    conv_segment first[GEMM_LANES_MAX], second[GEMM_LANES_MAX];
    int counts[2];
    int64_t place, channels[2]; /* of what repeats */
} repeated;

static void
find_segments(const conv_geometry *g, const conv_run *runs, int n,
              int64_t place, repeated *r)
{
    int64_t a = 2 * place, b = a + 1;
    r->place = place;
    r->channels[0] = a / g->taps;
    r->channels[1] = b / g->taps;
    r->counts[0] = cpu_conv_meet(g, runs, n, a % g->taps, r->first);
    r->counts[1] = cpu_conv_meet(g, runs, n, b % g->taps, r->second);
}

/* Rows of pairs [k0, k1) that are `r` of repetitions [c0, c1). */
static void
pack_repeated(const conv_image *im, float *panel, int64_t k0, int64_t k1,
              int64_t c0, int64_t c1, const repeated *r)
{
    const conv_geometry *g = im->g;
    const int64_t each = g->taps % 2 == 0 ? 1 : 2, rows = each * g->taps / 2;
    const int64_t lanes = im->ops->lanes;
    const uint16_t *x = im->x;
    c0 += c0 * rows + r->place < k0;
    c1 -= (c1 - 1) * rows + r->place >= k1;
    if (c0 >= c1)
        return;
    x += c0 * each * g->in_pixels;
    conv_pairs from = {
        .p = {x + r->channels[0] * g->in_pixels,
              x + r->channels[1] * g->in_pixels},
        .segments = {r->first, r->second},
        .counts = {r->counts[0], r->counts[1]},
        .step = each * g->in_pixels,
        .stride = g->stride[2],
    };
    cpu_pairs_columns(panel + (c0 * rows + r->place - k0) * lanes, rows * lanes,
                      &from, c1 - c0);
}

void
cpu_conv_pack_pairs(const void *arg, float *panel, int64_t l0, int64_t nl,
                    int64_t k0, int64_t k1)
{
    const conv_image *im = arg;
    const conv_geometry *g = im->g;
    const int64_t rows = g->taps % 2 == 0 ? g->taps / 2 : g->taps;
    conv_run runs[GEMM_LANES_MAX];
    repeated found[PLACES];
    int n = cpu_conv_runs(g, l0, nl, runs);
    int64_t end = (k1 - 1) / rows + 1;
    for (int64_t place = 0; place < rows; place += PLACES) {
        int64_t count = min64(PLACES, rows - place);
        for (int64_t i = 0; i < count; i++)
            find_segments(g, runs, n, place + i, &found[i]);
        for (int64_t c = k0 / rows; c < end; c += CHANNELS)
            for (int64_t i = 0; i < count; i++)
                pack_repeated(im, panel, k0, k1, c, min64(end, c + CHANNELS),
                              &found[i]);
    }
}

/* Few rows or places go to dot products, which the other kernel has; so do
 * windows of one channel. */
bool
cpu_convolution_on_pairs(const air_call *call, const char *isa)
{
    conv_geometry g = cpu_conv_forward(call);
    if (!cpu_conv_takes(call) || call->args[0].t->dtype != AIR_BF16 ||
        call->outs[0].dtype != AIR_BF16)
        return false;
    if (!cpu_isa_has_fast_pairs(isa))
        return false;
    if (cpu_conv_is_direct(&g))
        return g.c_in > 1;
    if (g.c_out <= GEMV_MAX || g.out_pixels <= GEMV_MAX)
        return false;
    return cpu_conv_is_windows(call, &g, true) ||
           (g.c_in * g.taps > 0 && g.c_in * g.taps % 2 == 0);
}

size_t
cpu_convolution_pairs_workspace(const air_call *call, int threads)
{
    const conv_geometry g = cpu_conv_forward(call);
    const size_t bytes =
        cpu_conv_is_direct(&g) ? 0
        : cpu_conv_is_windows(call, &g, true)
            ? cpu_conv_windows_workspace(call, &g, true, threads)
            : cpu_conv_workspace(call, &g, threads, true);
    return cpu_join_workspace(call->extra, bytes, threads);
}

void
cpu_convolution_pairs(const air_call *call, const air_task *task)
{
    const conv_geometry g = cpu_conv_forward(call);
    gemm_ops ops = cpu_pairs_ops();
    if (cpu_conv_is_direct(&g))
        cpu_conv_direct(call, &g, &ops, task);
    else if (cpu_conv_is_windows(call, &g, true))
        cpu_conv_windows(call, &g, true, &ops, task);
    else
        cpu_conv_run(call, &g, task, &ops, true);
}
