/* conv_columns.c: which pixels meet which places, and columns made of them. */
#include "driver/cpu/conv/conv_columns.h"

#define AXES CONV_AXES

static int64_t
entry(const air_arg *list, int i)
{
    return list->ints[list->count == 1 ? 0 : i];
}

conv_geometry
cpu_conv_geometry(const air_tensor *big, const air_tensor *small,
                  const air_tensor *weight, const air_arg *lists,
                  int64_t groups)
{
    int first = AXES - (big->rank - 2);
    conv_geometry g = {.batch = big->dims[0],
                       .groups = groups,
                       .c_in = weight->dims[1],
                       .c_out = weight->dims[0] / groups,
                       .in_pixels = 1,
                       .out_pixels = 1,
                       .taps = 1};
    for (int i = 0; i < AXES; i++) {
        bool real = i >= first;
        int d = i - first;
        g.in[i] = real ? big->dims[d + 2] : 1;
        g.out[i] = real ? small->dims[d + 2] : 1;
        g.kernel[i] = real ? weight->dims[d + 2] : 1;
        g.stride[i] = real ? entry(&lists[0], d) : 1;
        g.pad[i] = real ? entry(&lists[1], d) : 0;
        g.dilation[i] = real ? entry(&lists[2], d) : 1;
        g.in_pixels *= g.in[i];
        g.out_pixels *= g.out[i];
        g.taps *= g.kernel[i];
    }
    return g;
}

conv_geometry
cpu_conv_forward(const air_call *call)
{
    return cpu_conv_geometry(call->args[0].t, &call->outs[0], call->args[1].t,
                             &call->args[3], call->args[8].i);
}

/* n / s, rounded up */
static inline int64_t
steps(int64_t n, int64_t s)
{
    return s == 1 ? n : (n + s - 1) / s;
}

void
cpu_conv_inside(const conv_geometry *g, int axis, int64_t o, int64_t n,
                int64_t tap, int64_t *b, int64_t *e, int64_t *at)
{
    int64_t s = g->stride[axis];
    int64_t first = o * s - g->pad[axis] + tap * g->dilation[axis];
    int64_t room = g->in[axis] - first; /* first + i * s < in */
    *b = first < 0 ? min64(n, steps(-first, s)) : 0;
    *e = n; /* divisions are slow, and most windows lie inside */
    if (room <= (n - 1) * s)
        *e = max64(*b, room <= 0 ? 0 : steps(room, s));
    *at = first + *b * s;
}

/* The same of one place: is it inside? */
static inline bool
is_inside(const conv_geometry *g, int axis, int64_t o, int64_t tap, int64_t *at)
{
    *at = o * g->stride[axis] - g->pad[axis] + tap * g->dilation[axis];
    return *at >= 0 && *at < g->in[axis];
}

bool
cpu_conv_is_pointwise(const conv_geometry *g)
{
    bool same = g->taps == 1;
    for (int i = 0; i < AXES; i++)
        same = same && g->pad[i] == 0 && g->in[i] == g->out[i];
    return same;
}

int
cpu_conv_runs(const conv_geometry *g, int64_t l0, int64_t nl, conv_run *out)
{
    int64_t width = g->out[2], row = l0 / width, x = l0 % width;
    int64_t y = row % g->out[1], z = row / g->out[1];
    int count = 0;
    for (int64_t l = 0, n; l < nl; l += n) {
        n = min64(nl - l, width - x);
        out[count++] = (conv_run){l, n, {z, y, x}};
        x = 0;
        y = y + 1 < g->out[1] ? y + 1 : 0;
        z += y == 0;
    }
    return count;
}

int
cpu_conv_meet(const conv_geometry *g, const conv_run *runs, int n, int64_t tap,
              conv_segment *out)
{
    const int64_t x_tap = tap % g->kernel[2];
    const int64_t y_tap = tap / g->kernel[2] % g->kernel[1];
    const int64_t z_tap = tap / g->kernel[2] / g->kernel[1];
    int count = 0;
    for (const conv_run *r = runs; r < runs + n; r++) {
        int64_t b, e, x, y, z;
        if (!is_inside(g, 1, r->at[1], y_tap, &y) ||
            !is_inside(g, 0, r->at[0], z_tap, &z))
            continue;
        cpu_conv_inside(g, 2, r->at[2], r->count, x_tap, &b, &e, &x);
        if (e > b)
            out[count++] = (conv_segment){r->lane + b, e - b,
                                          (z * g->in[1] + y) * g->in[2] + x};
    }
    return count;
}

int
cpu_conv_segments(const conv_geometry *g, int64_t l0, int64_t nl, int64_t tap,
                  conv_segment *out)
{
    conv_run runs[CONV_PLACES_MAX];
    if (cpu_conv_is_pointwise(g)) {
        out[0] = (conv_segment){0, nl, l0};
        return 1;
    }
    return cpu_conv_meet(g, runs, cpu_conv_runs(g, l0, nl, runs), tap, out);
}

#define TAPS     16 /* whose segments are found at once */
#define CHANNELS 32 /* whose pixels stay in the nearest cache, tap by tap */

/* Rows k of a panel that belong to channels [c0, c1) and to a tap. */
static void
pack_tap(const conv_image *im, float *panel, int64_t k0, int64_t k1, int64_t c0,
         int64_t c1, int64_t tap, const conv_segment *segments, int count)
{
    const conv_geometry *g = im->g;
    int64_t size = im->dtype == AIR_F32 ? 4 : 2, lanes = im->ops->lanes;
    c0 += c0 * g->taps + tap < k0;
    c1 -= (c1 - 1) * g->taps + tap >= k1;
    if (c0 < c1)
        im->ops->columns(
            panel + (c0 * g->taps + tap - k0) * lanes, g->taps * lanes,
            (const char *)im->x + c0 * g->in_pixels * size, g->in_pixels,
            g->stride[2], im->dtype, segments, count, c1 - c0);
}

void
cpu_conv_pack_columns(const void *arg, float *panel, int64_t l0, int64_t nl,
                      int64_t k0, int64_t k1)
{
    const conv_image *im = arg;
    const conv_geometry *g = im->g;
    conv_run runs[GEMM_LANES_MAX];
    conv_segment segments[TAPS][GEMM_LANES_MAX];
    int n = cpu_conv_runs(g, l0, nl, runs), count[TAPS];
    int64_t end = (k1 - 1) / g->taps + 1;
    for (int64_t tap = 0; tap < g->taps; tap += TAPS) {
        int64_t taps = min64(TAPS, g->taps - tap);
        for (int64_t t = 0; t < taps; t++)
            count[t] = cpu_conv_meet(g, runs, n, tap + t, segments[t]);
        for (int64_t c = k0 / g->taps; c < end; c += CHANNELS)
            for (int64_t t = 0; t < taps; t++)
                pack_tap(im, panel, k0, k1, c, min64(end, c + CHANNELS),
                         tap + t, segments[t], count[t]);
    }
}
