/* conv_depthwise.c: convolutions of one channel in, where columns would cost
 * more than the sums.
 *
 * The rows that a strip of results sees are copied, as floats and with their
 * padding, into a plane that stays in the cache; a window then slides over it
 * without asking where the image ends. With a stride along the rows, each row
 * is stored by phases (columns 0, s, 2 s ..., then 1, s + 1 ...), so that what
 * adjacent results see is adjacent. */
#include "driver/cpu/conv_depthwise.h"

#include <string.h>

#define BEHIND 32 /* floats that `correlate` may read behind a row */

typedef struct {
    const conv_geometry *g;
    int64_t columns; /* of a phase */
    int64_t row;     /* floats: all phases */
    int64_t strip;   /* rows of results at most */
    int64_t rows;    /* of the image, that a strip sees */
    int64_t at[CONV_TAPS_MAX];
} layout;

static int64_t
rows_seen(const conv_geometry *g, int64_t strip)
{
    return (strip - 1) * g->stride[1] + (g->kernel[1] - 1) * g->dilation[1] + 1;
}

static layout
make_layout(const conv_geometry *g)
{
    int64_t s = g->stride[2], span = (g->kernel[2] - 1) * g->dilation[2];
    int64_t room = (int64_t)(AIR_SCRATCH / sizeof(float)) - BEHIND;
    layout l = {.g = g, .columns = round_up(g->out[2], BEHIND / 2) + span / s};
    l.row = l.columns * s;
    int64_t fit = room / (l.row * g->kernel[0]);
    int64_t window = rows_seen(g, 1);
    l.strip =
        fit < window ? 0 : min64(g->out[1], (fit - window) / g->stride[1] + 1);
    l.rows = rows_seen(g, l.strip);
    return l;
}

static void
find_taps(layout *l)
{
    const conv_geometry *g = l->g;
    for (int64_t t = 0; t < g->taps; t++) {
        int64_t x = t % g->kernel[2] * g->dilation[2];
        int64_t y = t / g->kernel[2] % g->kernel[1] * g->dilation[1];
        int64_t z = t / g->kernel[2] / g->kernel[1];
        l->at[t] = (z * l->rows + y) * l->row + x % g->stride[2] * l->columns +
                   x / g->stride[2];
    }
}

bool
cpu_conv_is_depthwise(const conv_geometry *g)
{
    return g->c_in == 1 && g->c_out <= 4 && g->taps <= CONV_TAPS_MAX &&
           make_layout(g).strip > 0;
}

/* `count` rows of the image, from x on, into the plane. */
static void
copy_rows(const layout *l, const gemm_ops *ops, float *to, const char *x,
          int dtype, int64_t count)
{
    const conv_geometry *g = l->g;
    int64_t s = g->stride[2], pad = g->pad[2], width = g->in[2];
    for (int64_t f = 0; f < s; f++) {
        int64_t first = ((f - pad) % s + s) % s; /* pixel of this phase */
        int64_t i = (first + pad) / s;
        int64_t n = min64((width - first + s - 1) / s, l->columns - i);
        if (first < width && n > 0)
            ops->copies(to + f * l->columns + i, l->row,
                        x + first * cpu_gemm_size_of(dtype), width, s, dtype, n,
                        count);
    }
}

/* What results [y0, y0 + n) of plane z of one channel see. */
static void
fill(const layout *l, const gemm_ops *ops, float *plane, const char *x,
     int dtype, int64_t z, int64_t y0)
{
    const conv_geometry *g = l->g;
    int64_t top = y0 * g->stride[1] - g->pad[1];
    int64_t b = top < 0 ? -top : 0, e = min64(l->rows, g->in[1] - top);
    int64_t plane_rows = l->rows * g->kernel[0];
    memset(plane, 0, (size_t)(plane_rows * l->row + BEHIND) * sizeof *plane);
    for (int64_t k = 0; k < g->kernel[0] && b < e; k++) {
        int64_t iz = z * g->stride[0] - g->pad[0] + k * g->dilation[0];
        if (iz >= 0 && iz < g->in[0])
            copy_rows(l, ops, plane + (k * l->rows + b) * l->row,
                      x + (iz * g->in[1] + top + b) * g->in[2] *
                              cpu_gemm_size_of(dtype),
                      dtype, e - b);
    }
}

static float
bias_at(const air_call *call, const gemm_ops *ops, const air_task *task,
        int64_t c)
{
    const air_arg *bias = &call->args[2];
    float start = 0;
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        ops->widen(&start,
                   (const char *)air_data(bias->t, task) +
                       c * cpu_gemm_size_of(bias->t->dtype),
                   1, bias->t->dtype, 1);
    return start;
}

/* Channel i % channels out of image i / channels. */
static void
run_channel(const layout *l, const air_call *call, const gemm_ops *ops,
            const air_task *task, int64_t i)
{
    const conv_geometry *g = l->g;
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    int64_t c = i % (g->groups * g->c_out), width = g->out[2];
    int64_t size = cpu_gemm_size_of(x->dtype);
    const char *xp =
        (const char *)air_data(x, task) + i / g->c_out * g->in_pixels * size;
    char *yp =
        (char *)air_data(&call->outs[0], task) + i * g->out_pixels * size;
    float *plane = task->scratch, taps[CONV_TAPS_MAX];
    float start = bias_at(call, ops, task, c);
    ops->widen(taps, (const char *)air_data(w, task) + c * g->taps * size, 1,
               w->dtype, g->taps);
    for (int64_t z = 0; z < g->out[0]; z++)
        for (int64_t y = 0; y < g->out[1]; y += l->strip) {
            fill(l, ops, plane, xp, x->dtype, z, y);
            ops->correlate(yp + (z * g->out[1] + y) * width * size, x->dtype,
                           min64(l->strip, g->out[1] - y), width, plane,
                           g->stride[1] * l->row, l->at, taps, g->taps, start);
        }
}

void
cpu_conv_depthwise(const air_call *call, const conv_geometry *g,
                   const gemm_ops *ops, const air_task *task)
{
    layout l = make_layout(g);
    int64_t b, e;
    find_taps(&l);
    air_split(g->batch * g->groups * g->c_out, task, &b, &e);
    for (int64_t i = b; i < e; i++)
        run_channel(&l, call, ops, task, i);
}
