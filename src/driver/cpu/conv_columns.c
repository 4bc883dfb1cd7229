/* conv_columns.c: which pixels meet which places, and columns made of them. */
#include "driver/cpu/conv_columns.h"

#include <string.h>

#define AXES CONV_AXES

static int64_t
max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

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

void
cpu_conv_inside(const conv_geometry *g, int axis, int64_t o, int64_t n,
                int64_t tap, int64_t *b, int64_t *e, int64_t *at)
{
    int64_t s = g->stride[axis];
    int64_t first = o * s - g->pad[axis] + tap * g->dilation[axis];
    int64_t room = g->in[axis] - first; /* first + i * s < in */
    *b = first < 0 ? min64(n, (s - 1 - first) / s) : 0;
    *e = n; /* divisions are slow, and most windows lie inside */
    if (room <= (n - 1) * s)
        *e = max64(*b, room <= 0 ? 0 : (room + s - 1) / s);
    *at = first + *b * s;
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
cpu_conv_segments(const conv_geometry *g, int64_t l0, int64_t nl, int64_t tap,
                  conv_segment *out)
{
    int count = 0;
    int64_t width = g->out[2], x_tap = tap % g->kernel[2];
    int64_t y_tap = tap / g->kernel[2] % g->kernel[1];
    int64_t z_tap = tap / g->kernel[2] / g->kernel[1];
    if (cpu_conv_is_pointwise(g)) {
        out[0] = (conv_segment){0, nl, l0};
        return 1;
    }
    for (int64_t l = 0; l < nl;) {
        int64_t row = (l0 + l) / width, o = (l0 + l) % width;
        int64_t n = min64(nl - l, width - o), b, e, x, y, z, yb, ye, zb, ze;
        cpu_conv_inside(g, 2, o, n, x_tap, &b, &e, &x);
        cpu_conv_inside(g, 1, row % g->out[1], 1, y_tap, &yb, &ye, &y);
        cpu_conv_inside(g, 0, row / g->out[1], 1, z_tap, &zb, &ze, &z);
        if (e > b && ye > yb && ze > zb)
            out[count++] =
                (conv_segment){l + b, e - b, (z * g->in[1] + y) * g->in[2] + x};
        l += n;
    }
    return count;
}

/* Rows k of a panel whose tap is `tap`: one per channel. */
static void
pack_tap(const conv_image *im, float *panel, int64_t l0, int64_t nl, int64_t k0,
         int64_t k1, int64_t tap)
{
    const conv_geometry *g = im->g;
    conv_segment segments[GEMM_LANES_MAX];
    int64_t size = im->dtype == AIR_F32 ? 4 : 2, lanes = im->ops->lanes;
    int count = cpu_conv_segments(g, l0, nl, tap, segments);
    int64_t c = k0 <= tap ? 0 : (k0 - tap + g->taps - 1) / g->taps;
    int64_t channels = (k1 - tap + g->taps - 1) / g->taps - c;
    float *row = panel + (c * g->taps + tap - k0) * lanes;
    for (int i = 0; i < count; i++) {
        const conv_segment *s = &segments[i];
        im->ops->copies(row + s->lane, g->taps * lanes,
                        (const char *)im->x + (c * g->in_pixels + s->at) * size,
                        g->in_pixels, g->stride[2], im->dtype, s->count,
                        channels);
    }
}

void
cpu_conv_pack_columns(const void *arg, float *panel, int64_t l0, int64_t nl,
                      int64_t k0, int64_t k1)
{
    const conv_image *im = arg;
    memset(panel, 0, (size_t)((k1 - k0) * im->ops->lanes) * sizeof *panel);
    for (int64_t tap = 0; tap < im->g->taps; tap++)
        pack_tap(im, panel, l0, nl, k0, k1, tap);
}
