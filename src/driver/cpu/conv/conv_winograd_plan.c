/* conv_winograd_plan.c: when fewer products pay, which tiles are computed
 * together, and the memory that takes. */
#include "driver/cpu/conv/conv_winograd_parts.h"

#define CACHE_BYTES ((int64_t)1 << 20) /* of transformed pixels */
#define TILES_MAX   256                /* of a chunk, but for long rows */

/* ---- the plan ------------------------------------------------------------ */

/* In vectors of lanes. */
static double
cost_of(int64_t n)
{
    return (double)((n + PLAN_LANES - 1) / PLAN_LANES);
}

static double
cost_with_rest(int64_t n)
{
    int64_t rest = n % PLAN_LANES;
    return rest > REST_MAX ? cost_of(n)
                           : (double)(n / PLAN_LANES) + 0.1 * (double)rest;
}

static int64_t
cpu_winograd_fit(const conv_geometry *g)
{
    return min64(TILES_MAX, CACHE_BYTES / (4 * PLACES * g->c_in));
}

/* What it takes to run chunks of so many rows. */
static double
cost_of_rows(const winograd_layout *l, int64_t rows, int threads)
{
    int64_t chunks = (l->total + rows - 1) / rows, last = l->total % rows;
    double one = cost_of(rows * l->wide) + 0.5;
    double all = one * (double)((chunks + threads - 1) / threads);
    if (threads == 1 && last > 0)
        all -= one - 0.5 - cost_of(last * l->wide);
    return all;
}

static void
find_rows(winograd_layout *l, int threads)
{
    int64_t most = max64(1, cpu_winograd_fit(l->g) / l->wide);
    l->rows = l->total;
    if (most < l->total) {
        double least = cost_of_rows(l, most, threads);
        l->rows = most;
        for (int64_t rows = most - 1; rows > 0; rows--) {
            double cost = cost_of_rows(l, rows, threads);
            if (cost < least)
                least = cost, l->rows = rows;
        }
    }
    l->chunks = (l->total + l->rows - 1) / l->rows;
}

winograd_layout
cpu_winograd_layout(const conv_geometry *g, int threads)
{
    winograd_layout l = {.g = g,
                         .high = (g->out[1] + 1) / 2,
                         .wide = (g->out[2] + 1) / 2,
                         .step = g->c_in % 1024 == 0 ? g->c_in + 16 : g->c_in};
    l.total = g->batch * l.high;
    find_rows(&l, threads);
    l.half = l.wide + 1;
    int64_t images = min64(g->batch, l.rows / l.high + 2);
    l.plane = (2 * l.rows + 2 * images) * 2 * l.half;
    l.windows = PLACES * g->c_out * l.step;
    return l;
}

/* Cycles, roughly: measured with vectors of 16 lanes. */
static bool
pays(const conv_geometry *g, const winograd_layout *l)
{
    double in = (double)g->c_in, out = (double)g->c_out, pairs = in * out;
    double tiles = cost_with_rest(l->total * l->wide);
    double pixels = cost_with_rest(g->out_pixels) * (double)g->batch;
    double own = tiles * (12 * pairs + 200 * in + 100 * out) + 8 * pairs;
    double columns = pixels * (6.25 * pairs + 13 * in);
    return own < 0.9 * columns;
}

static bool
is_float_or_none(const air_arg *a)
{
    return a->kind != AIR_ARG_TENSOR || a->t->dtype == AIR_DTYPE_NONE ||
           a->t->dtype == AIR_F32;
}

bool
cpu_conv_is_winograd(const air_call *call, const conv_geometry *g)
{
    bool plain =
        g->groups == 1 && g->in[0] == 1 && g->out[0] == 1 && g->kernel[0] == 1;
    for (int i = 1; i < CONV_AXES; i++)
        plain = plain && g->kernel[i] == 3 && g->stride[i] == 1 &&
                g->dilation[i] == 1;
    if (!plain || g->c_in * g->c_out * g->out_pixels * g->batch <= 0 ||
        call->args[0].t->dtype != AIR_F32 || call->outs[0].dtype != AIR_F32 ||
        !is_float_or_none(&call->args[2]) || cpu_winograd_fit(g) < PLAN_LANES)
        return false;
    winograd_layout l = cpu_winograd_layout(g, 1);
    return l.wide <= 2 * cpu_winograd_fit(g) &&
           l.plane <= (int64_t)(AIR_SCRATCH / sizeof(float)) - 2 * SUMS &&
           pays(g, &l);
}

/* ---- memory -------------------------------------------------------------- */

/* Whatever the number of threads that run. */
winograd_shares
cpu_winograd_shares(const air_call *call, const winograd_layout *l)
{
    const conv_geometry *g = l->g;
    int64_t tiles = max64(cpu_winograd_fit(g), l->wide);
    tiles = round_up(min64(tiles, l->total * l->wide), GEMM_LANES_MAX);
    return (winograd_shares){PLACES * (g->c_in + 1) * tiles,
                             round_up(REST_MAX * PLACES * g->c_in, 16),
                             l->chunks > 1 ? 0 : 16 * PLACES * l->step,
                             call->extra != NULL ? 16 * 4 * tiles : 0};
}

int64_t
cpu_winograd_mine(const winograd_shares *s, bool one)
{
    return (one ? 0 : s->pixels) + s->rest + s->weights + s->lines;
}

size_t
cpu_winograd_bytes(const winograd_layout *l, const winograd_shares *s,
                   int threads)
{
    bool one = l->chunks == 1;
    int64_t common = one ? s->pixels : round_up(l->windows, 16);
    return (size_t)(common + cpu_winograd_mine(s, one) * threads) *
           sizeof(float);
}

size_t
cpu_conv_winograd_workspace(const air_call *call, const conv_geometry *g,
                            int threads)
{
    winograd_layout l = cpu_winograd_layout(g, threads);
    winograd_shares s = cpu_winograd_shares(call, &l);
    return cpu_winograd_bytes(&l, &s, threads);
}
