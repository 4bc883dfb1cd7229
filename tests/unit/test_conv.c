/* convolution against sums in double. */
#include "kernel_case.h"

#include "driver/cpu/conv/conv_columns.h"
#include "driver/cpu/conv/conv_winograd.h"
#include "driver/cpu/product/gemm.h"

#include <math.h>

#include <string.h>

static const kcase_kernel sets[] = {
#if defined(__x86_64__)
    {"amx", cpu_convolution_amx, cpu_convolution_amx_workspace,
     cpu_convolution_on_amx},
    {"avx512_bf16", cpu_convolution_pairs, cpu_convolution_pairs_workspace,
     cpu_convolution_on_pairs},
    {"avx512", cpu_convolution_avx512, cpu_convolution_workspace, NULL},
    {"avx2", cpu_convolution_avx2, cpu_convolution_workspace, NULL},
#endif
    {"scalar", cpu_convolution_scalar, cpu_convolution_workspace, NULL},
};
#define EACH_SET(s) KCASE_EACH(kcase_kernel, s, sets)

typedef struct {
    int axes;
    int64_t batch, groups, c_in, c_out; /* channels in all */
    int64_t in[3], kernel[3], stride[3], pad[3], dilation[3];
} conv_case;

static int64_t
out_size(const conv_case *p, int i)
{
    return (p->in[i] + 2 * p->pad[i] - p->dilation[i] * (p->kernel[i] - 1) -
            1) /
               p->stride[i] +
           1;
}

/* A call on random tensors. */
typedef struct {
    kernel_case c;
    int x, w, y, bias; /* bias -1: none */
    int64_t n;         /* results */
    air_arg args[9];
    air_call call;
} conv_call;

static void
begin(conv_call *v, const conv_case *p, int dtype, bool has_bias)
{
    static const int64_t zeros[3];
    int64_t xd[5] = {p->batch, p->c_in}, yd[5] = {p->batch, p->c_out};
    int64_t wd[5] = {p->c_out, p->c_in / p->groups};
    kernel_case *c = &v->c;
    v->n = p->batch * p->c_out;
    for (int i = 0; i < p->axes; i++) {
        xd[i + 2] = p->in[i], wd[i + 2] = p->kernel[i];
        yd[i + 2] = out_size(p, i);
        v->n *= yd[i + 2];
    }
    kcase_begin(c, (uint64_t)v->n);
    v->x = kcase_tensor(c, dtype, p->axes + 2, xd, NULL, 0, 0);
    v->w = kcase_tensor(c, dtype, p->axes + 2, wd, NULL, 0, 1);
    v->y = kcase_tensor(c, dtype, p->axes + 2, yd, NULL, 0, 0);
    v->bias = has_bias ? kcase_tensor(c, dtype, 1, &p->c_out, NULL, 0, 0) : -1;
    memset(v->args, 0, sizeof v->args);
    v->args[0] = kcase_arg(c, v->x);
    v->args[1] = kcase_arg(c, v->w);
    if (has_bias)
        v->args[2] = kcase_arg(c, v->bias);
    const int64_t *lists[] = {p->stride, p->pad, p->dilation};
    for (int i = 0; i < 3; i++)
        v->args[3 + i] =
            (air_arg){.kind = AIR_ARG_INTS, .count = p->axes, .ints = lists[i]};
    v->args[6] = kcase_int(0);
    v->args[7] =
        (air_arg){.kind = AIR_ARG_INTS, .count = p->axes, .ints = zeros};
    v->args[8] = kcase_int(p->groups);
    v->call = (air_call){9, 1, v->args, &c->t[v->y], NULL};
}

/* The same with three axes, those in front of one element. */
static conv_case
with_three_axes(const conv_case *p)
{
    conv_case s = *p;
    for (int i = 0, from; i < 3; i++) {
        from = i - 3 + p->axes;
        s.in[i] = from < 0 ? 1 : p->in[from];
        s.kernel[i] = from < 0 ? 1 : p->kernel[from];
        s.stride[i] = from < 0 ? 1 : p->stride[from];
        s.pad[i] = from < 0 ? 0 : p->pad[from];
        s.dilation[i] = from < 0 ? 1 : p->dilation[from];
    }
    return s;
}

/* Where tap `tap` of axis i looks for result o; -1: beside the image. */
static int64_t
seen_by(const conv_case *s, int i, int64_t o, int64_t tap)
{
    const int64_t at = o * s->stride[i] - s->pad[i] + tap * s->dilation[i];
    return at < s->in[i] ? at : -1;
}

/* What one tap adds to a channel y of results: x is a channel of the image. */
static void
add_tap(const conv_case *s, const double *x, const int64_t *tap, double w,
        double *y)
{
    const int64_t out[] = {out_size(s, 0), out_size(s, 1), out_size(s, 2)};
    for (int64_t i = 0; i < out[0] * out[1]; i++) {
        const int64_t plane = seen_by(s, 0, i / out[1], tap[0]);
        const int64_t row = seen_by(s, 1, i % out[1], tap[1]);
        for (int64_t o = 0; plane >= 0 && row >= 0 && o < out[2]; o++) {
            const int64_t at = seen_by(s, 2, o, tap[2]);
            if (at >= 0)
                y[i * out[2] + o] +=
                    x[(plane * s->in[1] + row) * s->in[2] + at] * w;
        }
    }
}

/* One channel of results of one image x; w: its rows of weights. */
static void
add_channel(const conv_case *s, const double *x, const double *w, double *y)
{
    const int64_t *k = s->kernel, taps = k[0] * k[1] * k[2];
    const int64_t size = s->in[0] * s->in[1] * s->in[2];
    for (int64_t i = 0; i < s->c_in / s->groups * taps; i++) {
        const int64_t t = i % taps;
        const int64_t tap[] = {t / k[2] / k[1], t / k[2] % k[1], t % k[2]};
        add_tap(s, x + i / taps * size, tap, w[i], y);
    }
}

static double *
values_of(const kernel_case *c, int tensor, int64_t n)
{
    double *out = kcase_new((size_t)n * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        out[i] = kcase_get(c, tensor, i);
    return out;
}

/* All results, as sums in double: v->n of them, the caller's. */
static double *
make_want(const conv_call *v, const conv_case *p)
{
    const conv_case s = with_three_axes(p);
    const int64_t size = s.in[0] * s.in[1] * s.in[2];
    const int64_t depth = s.c_in / s.groups, per_group = s.c_out / s.groups;
    const int64_t row = depth * s.kernel[0] * s.kernel[1] * s.kernel[2];
    const int64_t nx = s.batch * s.c_in * size, nw = s.c_out * row;
    const int64_t outs = v->n / (s.batch * s.c_out);
    double *x = values_of(&v->c, v->x, nx), *w = values_of(&v->c, v->w, nw);
    double *y = kcase_new((size_t)v->n * sizeof *y);
    for (int64_t i = 0; i < s.batch * s.c_out; i++) {
        const int64_t o = i % s.c_out;
        const double bias = v->bias >= 0 ? kcase_get(&v->c, v->bias, o) : 0;
        for (int64_t j = 0; j < outs; j++)
            y[i * outs + j] = bias;
        const int64_t first = i / s.c_out * s.c_in + o / per_group * depth;
        add_channel(&s, x + first * size, w + o * row, y + i * outs);
    }
    kcase_free(x, (size_t)nx * sizeof *x);
    kcase_free(w, (size_t)nw * sizeof *w);
    return y;
}

static void
check_one(const kcase_kernel *set, const conv_case *p, int dtype, bool has_bias,
          int threads)
{
    conv_call v;
    double worst = 0;
    begin(&v, p, dtype, has_bias);
    if (!KCASE_TAKES(set, &v.call)) {
        kcase_end(&v.c);
        return;
    }
    kcase_run(&v.c, set->run, set->workspace, &v.call, threads);
    double *want = make_want(&v, p);
    for (int64_t i = 0; i < v.n; i++) {
        double err = fabs(kcase_get(&v.c, v.y, i) - want[i]);
        worst = kcase_worse(worst, err);
    }
    kcase_free(want, (size_t)v.n * sizeof *want);
    if (!CHECK(worst <= (dtype == AIR_F32 ? 2e-5 : 0.13)))
        printf("  %s axes %d dtype %s groups %d threads %d: %g\n", set->isa,
               p->axes, air_dtype_text((air_dtype)dtype), (int)p->groups,
               threads, worst);
    kcase_end(&v.c);
}

static void
check(const conv_case *p)
{
    EACH_SET(s)
    {
        check_one(s, p, AIR_F32, false, 1);
        check_one(s, p, AIR_F32, true, 3);
        check_one(s, p, AIR_BF16, true, 2);
        check_one(s, p, AIR_F16, false, 2);
    }
}

/* Results are the same bits with any number of threads. */
static void
check_threads(const conv_case *p)
{
    EACH_SET(s)
    {
        conv_call v;
        int64_t different = 0;
        begin(&v, p, AIR_F32, true);
        if (KCASE_TAKES(s, &v.call)) {
            double *alone = kcase_new((size_t)v.n * sizeof *alone);
            for (int threads = 1; threads <= 4; threads++) {
                kcase_run(&v.c, s->run, s->workspace, &v.call, threads);
                for (int64_t i = 0; i < v.n; i++) {
                    double y = kcase_get(&v.c, v.y, i);
                    alone[i] = threads == 1 ? y : alone[i];
                    different += y != alone[i];
                }
            }
            kcase_free(alone, (size_t)v.n * sizeof *alone);
        }
        CHECK_INT(different, 0);
        kcase_end(&v.c);
    }
}

static void
check_floats(const conv_case *p)
{
    EACH_SET(s)
    {
        check_one(s, p, AIR_F32, false, 1);
        check_one(s, p, AIR_F32, true, 3);
    }
    check_threads(p);
}

#define ONES    \
    {           \
        1, 1, 1 \
    }

TEST(conv_pointwise)
{
    check(&(conv_case){2, 2, 1, 17, 23, {7, 7}, ONES, ONES, {0}, ONES});
    check(&(conv_case){2, 1, 1, 8, 40, {28, 28}, ONES, ONES, {0}, ONES});
    check(&(conv_case){2, 1, 1, 8, 12, {9, 5}, ONES, {2, 2}, {0}, ONES});
}

/* With a bias they are not those products of few columns that need no panels:
 * the workspace says so. */
TEST(conv_pointwise_of_few_pixels)
{
    check(&(conv_case){2, 3, 1, 48, 40, {2, 2}, ONES, ONES, {0}, ONES});
    check(&(conv_case){2, 1, 1, 48, 40, {3, 2}, ONES, ONES, {0}, ONES});
    check(&(conv_case){1, 1, 2, 32, 64, {3}, ONES, ONES, {0}, ONES});
}

TEST(conv_windows)
{
    check(&(conv_case){2, 1, 1, 5, 9, {13, 11}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 2, 1, 3, 8, {20, 31}, {7, 5}, {2, 3}, {3, 2}, ONES});
    check(&(conv_case){2, 1, 1, 4, 6, {17, 16}, {3, 3}, ONES, {2, 4}, {2, 4}});
    check(&(conv_case){2, 1, 1, 2, 7, {40, 40}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 2, 3, {2, 1}, {3, 3}, ONES, {3, 3}, ONES});
}

/* By steps: planes of remainders, of one strip and of several, with gaps in
 * windows, places that nobody sees, steps along one axis and of volumes. */
TEST(conv_windows_by_steps)
{
    check(&(conv_case){2, 2, 1, 9, 17, {20, 20}, {9, 9}, {2, 2}, {0}, ONES});
    check(&(conv_case){2, 1, 2, 6, 34, {17, 12}, {5, 4}, {3, 2}, {4, 3}, ONES});
    check(
        &(conv_case){2, 1, 1, 8, 9, {30, 23}, {4, 4}, {2, 3}, {1, 5}, {2, 3}});
    check(&(conv_case){2, 1, 1, 3, 5, {9, 40}, {3, 6}, {1, 2}, {1, 0}, ONES});
    check(&(conv_case){2, 1, 1, 3, 5, {3, 2}, {4, 4}, {3, 3}, {4, 4}, ONES});
    check(&(conv_case){2, 1, 1, 70, 9, {90, 70}, {4, 4}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){1, 2, 1, 5, 9, {70}, {16}, {3}, {7}, ONES});
    check(&(conv_case){
        3, 1, 1, 4, 6, {5, 9, 9}, {2, 4, 4}, {2, 2, 2}, {1, 1, 2}, ONES});
}

/* Of more than one panel, block and depth of tiles. */
TEST(conv_tiles)
{
    check(&(conv_case){2, 1, 1, 16, 40, {12, 11}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 2, 1, 32, 33, {9, 9}, {2, 2}, {2, 2}, {0}, ONES});
    check(&(conv_case){2, 1, 1, 7, 17, {80, 3}, {3, 3}, {3, 1}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 3, 16, {40, 70}, {7, 7}, {2, 2}, {3, 3}, ONES});
}

/* Lanes that are left over, few rows of w, segments of several rows. */
TEST(conv_rest)
{
    check(&(conv_case){2, 1, 1, 70, 130, {7, 7}, ONES, ONES, {0}, ONES});
    check(&(conv_case){2, 1, 1, 24, 130, {7, 7}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 24, 20, {27, 19}, {3, 3}, ONES, {1, 1}, ONES});
    check(
        &(conv_case){2, 1, 1, 22, 18, {57, 37}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 24, 17, {33, 31}, {2, 3}, ONES, {1, 1}, ONES});
    check(
        &(conv_case){2, 1, 1, 20, 17, {20, 33}, {2, 3}, {3, 3}, {1, 4}, ONES});
}

/* Pairs within a channel and across two, of more depth than a block has,
 * of groups, strides and three axes. */
TEST(conv_pairs)
{
    check(&(conv_case){2, 1, 1, 86, 30, {7, 19}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 2, 1, 21, 17, {9, 8}, {2, 3}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 2, 36, 36, {12, 9}, {5, 5}, {1, 2}, {2, 2}, ONES});
    check(&(conv_case){2, 1, 1, 450, 15, {5, 3}, ONES, ONES, {0}, ONES});
    check(&(conv_case){1, 1, 1, 25, 70, {90}, {4}, {2}, {1}, {3}});
    check(
        &(conv_case){3, 1, 1, 18, 20, {4, 5, 6}, {2, 3, 3}, ONES, ONES, ONES});
}

/* 32 channels and more, whose pairs come from the image at once: rest of depth
 * 0, 2 and 16, strides, groups, one and three axes. */
TEST(conv_pairs_of_many_channels)
{
    check(&(conv_case){2, 2, 1, 32, 34, {9, 11}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 34, 18, {15, 9}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 2, 68, 36, {7, 7}, {1, 3}, ONES, {0, 1}, {1, 2}});
    check(&(conv_case){2, 1, 1, 40, 20, {14, 14}, ONES, {2, 2}, {0}, ONES});
    check(&(conv_case){1, 2, 1, 36, 17, {50}, {4}, {2}, {3}, ONES});
    check(&(conv_case){3, 1, 1, 32, 9, {3, 4, 5}, {2, 3, 3}, ONES, ONES, ONES});
}

/* By three and more: pairs of neighbours, of pixels beside the image, of two
 * rows, channels and parts of an image. */
TEST(conv_pairs_apart)
{
    check(&(conv_case){2, 1, 1, 5, 17, {48, 64}, {8, 8}, {8, 8}, {0}, ONES});
    check(&(conv_case){2, 2, 1, 6, 17, {21, 27}, {3, 4}, {2, 3}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 2, 16, 34, {9, 90}, {2, 3}, {1, 5}, {0, 2}, ONES});
    check(&(conv_case){1, 1, 1, 12, 20, {400}, {8}, {4}, {3}, {2}});
}

/* From planes of two channels: an odd number of them, strips, groups, gaps in
 * windows; slices of volumes that are outside, all of a window's, too. */
TEST(conv_pairs_of_planes)
{
    check(&(conv_case){2, 2, 1, 9, 17, {13, 21}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 1, 64, 17, {60, 60}, {2, 1}, ONES, {2, 0}, ONES});
    check(&(conv_case){2, 1, 2, 30, 34, {9, 18}, {2, 5}, ONES, {1, 4}, {2, 2}});
    check(&(conv_case){1, 3, 1, 17, 20, {70}, {4}, {1}, {3}, {3}});
    check(&(conv_case){
        3, 1, 1, 6, 20, {3, 9, 8}, {3, 3, 3}, ONES, {4, 1, 1}, {2, 1, 1}});
    check(&(conv_case){
        3, 2, 2, 14, 34, {6, 7, 9}, {3, 2, 3}, {2, 1, 1}, {1, 1, 1}, ONES});
}

/* One channel in: short rows, strips of long ones, phases, planes. */
TEST(conv_depthwise)
{
    check(&(conv_case){2, 2, 9, 9, 9, {7, 7}, {7, 7}, ONES, {3, 3}, ONES});
    check(&(conv_case){2, 1, 2, 2, 2, {26, 2600}, {3, 3}, ONES, {1, 1}, ONES});
    check(
        &(conv_case){2, 1, 3, 3, 6, {11, 37}, {3, 5}, {2, 3}, {2, 1}, {2, 2}});
    check(&(conv_case){2, 1, 2, 2, 2, {3, 4}, {3, 9}, {1, 4}, {2, 6}, ONES});
    check(&(conv_case){
        3, 1, 2, 2, 4, {5, 6, 9}, {3, 2, 3}, {2, 1, 2}, {1, 1, 1}, {1, 2, 1}});
    check(&(conv_case){1, 2, 1, 1, 2, {0}, {1}, {1}, {0}, {1}});
    check(&(conv_case){2, 2, 1, 1, 2, {0, 16}, ONES, ONES, {0}, ONES});
    check(&(conv_case){2, 1, 1, 0, 2, {3, 16}, {2, 2}, ONES, {0}, ONES});
}

/* Of one channel in, along rows: several rows of results at once, the last
 * ones again, or one; rows that fill vectors and that do not; windows of one to
 * seven rows, by one, two and three. */
TEST(conv_rows)
{
    check(&(conv_case){2, 1, 3, 3, 3, {14, 14}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 2, 2, 4, {9, 21}, {7, 7}, ONES, {3, 3}, ONES});
    check(&(conv_case){2, 1, 2, 2, 2, {17, 45}, {5, 5}, {2, 2}, {2, 2}, ONES});
    check(&(conv_case){2, 2, 2, 2, 2, {16, 28}, {4, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 2, 2, 2, {5, 16}, {1, 4}, ONES, {0, 3}, ONES});
    check(&(conv_case){2, 1, 2, 2, 2, {22, 13}, {2, 2}, {2, 1}, {0, 1}, ONES});
    check(&(conv_case){2, 1, 2, 2, 2, {31, 40}, {3, 3}, {3, 1}, {1, 1}, ONES});
    check(
        &(conv_case){2, 1, 2, 2, 2, {12, 18}, {3, 3}, {2, 1}, {2, 2}, {2, 2}});
    check(
        &(conv_case){2, 1, 2, 2, 2, {11, 30}, {3, 3}, {1, 2}, {2, 3}, {2, 3}});
    check(
        &(conv_case){2, 1, 2, 2, 2, {140, 130}, {3, 3}, {2, 2}, {1, 1}, ONES});
}

/* A vector of channels at once: more and fewer of them than lanes, rows in
 * pieces, windows that miss the image, pixels that fill no vector, strides of
 * rows that fill one. */
TEST(conv_by_channels)
{
    check(
        &(conv_case){2, 1, 21, 21, 21, {9, 31}, {3, 3}, {1, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 2, 37, 37, 37, {7, 7}, {7, 7}, ONES, {3, 3}, ONES});
    check(
        &(conv_case){2, 1, 19, 19, 19, {14, 13}, {5, 5}, {2, 2}, {2, 1}, ONES});
    check(&(conv_case){2, 2, 16, 16, 16, {3, 2}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 33, 33, 33, {9, 6}, {3, 2}, ONES, {4, 2}, {2, 3}});
    check(
        &(conv_case){2, 1, 18, 18, 18, {5, 30}, {5, 5}, {1, 3}, {4, 0}, ONES});
    check(&(conv_case){1, 1, 20, 20, 20, {11}, {4}, {2}, {3}, ONES});
}

/* Few channels: four results at once and one, strips for threads, phases. */
TEST(conv_narrow)
{
    check(&(conv_case){2, 1, 1, 3, 23, {17, 32}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 2, 2, 6, 10, {9, 29}, {3, 5}, {2, 2}, {1, 2}, ONES});
    check(&(conv_case){2, 1, 1, 4, 37, {5, 15}, {4, 4}, ONES, {2, 2}, {1, 2}});
    check(&(conv_case){
        3, 1, 1, 3, 6, {5, 6, 14}, {2, 3, 3}, {2, 1, 1}, {1, 1, 1}, ONES});
    /* half a vector, of a few groups */
    check(
        &(conv_case){2, 1, 5, 40, 40, {14, 13}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 2, 3, 18, 27, {7, 8}, {3, 3}, ONES, {1, 1}, ONES});
    /* every second pixel of long rows; channels in that are no pairs, and out
     * eight, four and one at once */
    check(&(conv_case){2, 1, 2, 10, 26, {6, 75}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check(&(conv_case){2, 1, 3, 3, 3, {5, 76}, {3, 3}, {2, 2}, {1, 1}, ONES});
}

TEST(conv_other_axes)
{
    check(&(conv_case){1, 3, 1, 6, 10, {50}, {4}, {2}, {3}, ONES});
    check(&(conv_case){1, 1, 1, 20, 19, {171}, {8}, {4}, {3}, ONES});
    check(&(conv_case){1, 2, 1, 18, 17, {99}, {10}, {5}, {0}, {2}});
    check(&(conv_case){
        3, 1, 1, 3, 5, {4, 6, 9}, {2, 3, 3}, {1, 2, 1}, {1, 0, 2}, {1, 1, 2}});
}

TEST(conv_groups)
{
    check(&(conv_case){2, 2, 3, 9, 12, {9, 9}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 1, 8, 8, 8, {12, 12}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(conv_case){2, 2, 5, 5, 10, {9, 30}, {3, 5}, {2, 1}, {1, 2}, ONES});
    check(&(conv_case){1, 1, 3, 3, 3, {33}, {4}, {2}, {3}, {2}});
}

/* Planes: zeros that two rows share, more of them than one, none; windows that
 * miss the image on either side; rows of three slices; strips. */
TEST(conv_planes)
{
    check_floats(
        &(conv_case){2, 2, 1, 6, 19, {9, 8}, {3, 5}, ONES, {1, 2}, ONES});
    check_floats(
        &(conv_case){2, 1, 2, 10, 36, {9, 11}, {3, 3}, ONES, {0}, {2, 3}});
    check_floats(
        &(conv_case){2, 1, 1, 5, 18, {3, 2}, {2, 3}, ONES, {4, 5}, {1, 2}});
    check_floats(
        &(conv_case){2, 1, 1, 5, 18, {5, 20}, {3, 5}, ONES, {0, 1}, ONES});
    check_floats(&(conv_case){
        3, 2, 1, 5, 17, {4, 5, 6}, {3, 2, 3}, {2, 1, 1}, ONES, {1, 1, 2}});
    check_floats(
        &(conv_case){2, 1, 1, 64, 17, {30, 60}, {2, 1}, ONES, {0}, ONES});
}

/* Depth in chunks, of planes and pixels: rows of w copied, one lane left over,
 * blocks that threads share and blocks of their own. */
TEST(conv_deep)
{
    check_floats(
        &(conv_case){2, 1, 1, 230, 96, {7, 7}, {3, 3}, ONES, {1, 1}, ONES});
    check_floats(
        &(conv_case){2, 1, 1, 1024, 97, {13, 10}, ONES, ONES, {0}, ONES});
    check_threads(
        &(conv_case){2, 3, 1, 100, 96, {15, 18}, {3, 3}, ONES, {1, 1}, ONES});
    check_threads(
        &(conv_case){2, 1, 1, 600, 200, {23, 24}, ONES, ONES, {0}, ONES});
    check_threads(
        &(conv_case){2, 1, 1, 64, 100, {33, 33}, {3, 3}, {2, 2}, {1, 1}, ONES});
}

/* Chosen for the case? */
static bool
is_winograd(const conv_case *p)
{
    conv_call v;
    begin(&v, p, AIR_F32, true);
    conv_geometry g = cpu_conv_forward(&v.call);
    bool yes = cpu_conv_is_winograd(&v.call, &g);
    kcase_end(&v.c);
    return yes;
}

static void
check_winograd(const conv_case *p)
{
    CHECK(is_winograd(p));
    check_floats(p);
}

/* Even and odd sizes and paddings; tiles of several images in a vector; sums
 * of chains that are left over; one chunk with one tile and two behind a whole
 * vector, several chunks, one that is shorter. */
TEST(conv_winograd)
{
    check_winograd(
        &(conv_case){2, 1, 1, 40, 45, {14, 14}, {3, 3}, ONES, {1, 1}, ONES});
    check_winograd(
        &(conv_case){2, 1, 1, 60, 70, {12, 17}, {3, 3}, ONES, {0, 1}, ONES});
    check_winograd(
        &(conv_case){2, 5, 1, 96, 96, {7, 7}, {3, 3}, ONES, {1, 1}, ONES});
    check_winograd(
        &(conv_case){2, 3, 1, 37, 53, {9, 30}, {3, 3}, ONES, {3, 4}, ONES});
    check_winograd(
        &(conv_case){2, 2, 1, 33, 41, {31, 41}, {3, 3}, ONES, {2, 0}, ONES});
    check_winograd(
        &(conv_case){2, 1, 1, 230, 96, {12, 12}, {3, 3}, ONES, {1, 1}, ONES});
    check_winograd(
        &(conv_case){2, 1, 1, 48, 40, {6, 150}, {3, 3}, ONES, {1, 1}, ONES});
    check_winograd(
        &(conv_case){2, 1, 1, 64, 32, {60, 60}, {3, 3}, ONES, {1, 1}, ONES});
}

/* Single pixels and windows, other strides, too few channels. */
TEST(conv_not_winograd)
{
    CHECK(!is_winograd(
        &(conv_case){2, 1, 1, 64, 64, {3, 3}, {3, 3}, ONES, {0}, ONES}));
    CHECK(!is_winograd(
        &(conv_case){2, 1, 1, 64, 64, {56, 56}, {3, 3}, {2, 1}, {0}, ONES}));
    CHECK(!is_winograd(
        &(conv_case){2, 1, 1, 64, 64, {56, 56}, {3, 3}, ONES, {0}, {1, 2}}));
    CHECK(!is_winograd(
        &(conv_case){2, 1, 2, 64, 64, {56, 56}, {3, 3}, ONES, {0}, ONES}));
    CHECK(!is_winograd(
        &(conv_case){2, 1, 1, 4, 64, {56, 56}, {3, 3}, ONES, {0}, ONES}));
    CHECK(!is_winograd(
        &(conv_case){2, 1, 1, 64, 64, {56, 56}, {1, 3}, ONES, {0}, ONES}));
}

/* Results that are no numbers, or infinite, are those of the windows that see
 * such a pixel, and no others. */
TEST(conv_winograd_infinite)
{
    static const conv_case p = {2,        2,      1,    40,     45,
                                {14, 15}, {3, 3}, ONES, {1, 1}, ONES};
    static const double odd[] = {HUGE_VAL, -HUGE_VAL, (double)NAN};
    CHECK(is_winograd(&p));
    EACH_SET(s)
    {
        conv_call v;
        int64_t wrong = 0;
        begin(&v, &p, AIR_F32, true);
        if (KCASE_TAKES(s, &v.call)) {
            for (int i = 0; i < 3; i++)
                kcase_put(&v.c, v.x, 14 * 15 * (20 * i + 3) + 50 * i, odd[i]);
            kcase_run(&v.c, s->run, s->workspace, &v.call, 2);
            double *want = make_want(&v, &p);
            for (int64_t i = 0; i < v.n; i++) {
                double y = kcase_get(&v.c, v.y, i);
                bool same = isfinite(want[i]) ? fabs(y - want[i]) <= 2e-5
                            : isnan(want[i])  ? isnan(y)
                                              : y == want[i];
                wrong += !same;
            }
            kcase_free(want, (size_t)v.n * sizeof *want);
        }
        CHECK_INT(wrong, 0);
        kcase_end(&v.c);
    }
}
