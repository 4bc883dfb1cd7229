/* depthwise_isa.c: each channel under a window of its own, as many channels at
 * once as a vector has lanes: for planes whose rows fill no vector. Compiled
 * once per instruction set. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

enum { RUN = 8 }; /* results of a row at once */

/* Vector c: elements [from, from + n) of channel c. */
INLINE void
get_rows(vf r[VL], const void *p, int64_t step, int dtype, int64_t channels,
         int64_t from, int64_t n)
{
    UNROLL for (int c = 0; c < VL; c++) r[c] = (vf){0};
    for (int64_t c = 0; c < channels; c++)
        if (n == VL)
            r[c] = vget(p, c * step + from, dtype);
        else
            for (int64_t i = 0; i < n; i++)
                r[c][i] = get(p, c * step + from + i, dtype);
}

/* The first of the next elements: the last chunk takes some again. */
INLINE int64_t
chunk(int64_t at, int64_t count, int64_t *n)
{
    *n = count < VL ? count : VL;
    return at + VL <= count ? at : count - *n;
}

/* dst[i][lane] = element i of channel `lane`. */
static void
turn_in(float *dst, const void *p, int64_t count, int dtype, int64_t channels)
{
    vf r[VL];
    for (int64_t i = 0, n; i < count; i += VL) {
        int64_t at = chunk(i, count, &n);
        get_rows(r, p, count, dtype, channels, at, n);
        transpose(r);
        for (int64_t k = 0; k < n; k++)
            store(dst + (at + k) * VL, r[k]);
    }
}

static void
turn_out(void *p, const float *src, int64_t count, int dtype, int64_t channels)
{
    vf r[VL];
    for (int64_t i = 0, n; i < count; i += VL) {
        int64_t at = chunk(i, count, &n);
        UNROLL for (int k = 0; k < VL; k++) r[k] = (vf){0};
        for (int64_t k = 0; k < n; k++)
            r[k] = load(src + (at + k) * VL);
        transpose(r);
        for (int64_t c = 0; c < channels; c++)
            if (n == VL)
                vput(p, c * count + at, dtype, r[c]);
            else
                for (int64_t k = 0; k < n; k++)
                    put(p, c * count + at + k, dtype, r[c][k]);
    }
}

/* Taps [b, e) of a row of taps are those whose row is in the image. */
typedef struct {
    const float *plane, *w; /* of the first of those taps */
    int64_t b, e;
    vf start;
} window;

INLINE void
sum_run(const gemm_planes *s, const window *t, int64_t step, float *y,
        const int n)
{
    vf acc[RUN];
    const float *w = t->w, *line = t->plane;
    UNROLL for (int i = 0; i < n; i++) acc[i] = t->start;
    for (int64_t k = t->b; k < t->e; k++, line += s->dilation[0] * s->row * VL)
        for (int64_t j = 0; j < s->kernel[1]; j++, w += VL) {
            const float *p = line + j * s->dilation[1] * VL;
            vf f = load(w);
            UNROLL for (int i = 0; i < n; i++) acc[i] =
                fma_(load(p + i * step), f, acc[i]);
        }
    UNROLL for (int i = 0; i < n; i++) store(y + i * VL, acc[i]);
}

#define RUN_OF(n)                                   \
    case n:                                         \
        if (s->stride[1] == 1)                      \
            sum_run(s, t, VL, y, n);                \
        else                                        \
            sum_run(s, t, s->stride[1] * VL, y, n); \
        break;

static void
take_run(const gemm_planes *s, const window *t, float *y, int64_t n)
{
    switch (n) {
        RUN_OF(1)
        RUN_OF(2)
        RUN_OF(3)
        RUN_OF(4)
        RUN_OF(5)
        RUN_OF(6)
        RUN_OF(7)
    default: sum_run(s, t, s->stride[1] * VL, y, RUN);
    }
}

static void
take_row(const gemm_planes *s, const float *plane, const float *w, vf start,
         int64_t row, float *y)
{
    int64_t top = row * s->stride[0] - s->pad[0], d = s->dilation[0];
    int64_t parts = (s->out[1] + RUN - 1) / RUN;
    window t = {.b = top < 0 ? (d - 1 - top) / d : 0, .start = start};
    int64_t left = s->in[0] - top;
    t.e = left <= 0 ? 0 : (left + d - 1) / d;
    t.e = t.e < s->kernel[0] ? t.e : s->kernel[0];
    t.w = w + t.b * s->kernel[1] * VL;
    plane += (row * s->stride[0] + t.b * d) * s->row * VL;
    for (int64_t k = 0; k < parts; k++) {
        int64_t from = s->out[1] * k / parts;
        t.plane = plane + from * s->stride[1] * VL;
        take_run(s, &t, y + from * VL, s->out[1] * (k + 1) / parts - from);
    }
}

/* What lies around the image stays zero. */
static void
pad_plane(const gemm_planes *s, float *plane, const float *x)
{
    for (int64_t r = 0; r < s->in[0]; r++)
        memcpy(plane + ((r + s->pad[0]) * s->row + s->pad[1]) * VL,
               x + r * s->in[1] * VL, (size_t)(s->in[1] * VL) * sizeof *x);
}

void
ISA_NAME(depthwise)(const gemm_planes *s, const void *x, const void *w,
                    const void *bias, void *y, int64_t channels, float *scratch)
{
    int64_t taps = s->kernel[0] * s->kernel[1], pixels = s->in[0] * s->in[1];
    float *plane = scratch, *weights = plane + s->rows * s->row * VL;
    float *flat = weights + taps * VL, start[VL] = {0};
    turn_in(flat, x, pixels, s->dtype, channels);
    pad_plane(s, plane, flat);
    turn_in(weights, w, taps, s->dtype, channels);
    for (int64_t c = 0; bias != NULL && c < channels; c++)
        start[c] = get(bias, c, s->dtype);
    for (int64_t r = 0; r < s->out[0]; r++)
        take_row(s, plane, weights, load(start), r, flat + r * s->out[1] * VL);
    turn_out(y, flat, s->out[0] * s->out[1], s->dtype, channels);
}
