/* Transposed convolution and gradients of weights: each instruction set
 * against the plain kernels, which tests/python/test_conv.py compares with
 * eager. */
#include "kernel_case.h"

#include "driver/cpu/conv/conv_backward.h"
#include "driver/ref/kernels.h"

#include <math.h>

typedef struct {
    const char *isa;
    air_kernel_fn transposed, weight;
    air_workspace_fn transposed_workspace, weight_workspace;
} kernel_set;

#define SET(isa)                                                              \
    {                                                                         \
#isa, cpu_convolution_transposed_##isa, cpu_convolution_weight_##isa, \
            cpu_convolution_transposed_workspace,                             \
            cpu_convolution_weight_workspace                                  \
    }
static const kernel_set sets[] = {
#if defined(__x86_64__)
    SET(avx512),
    SET(avx2),
#endif
    SET(scalar),
};
#if defined(__x86_64__)
static const kernel_set amx = {"amx", cpu_convolution_transposed_amx,
                               cpu_convolution_weight_amx,
                               cpu_convolution_transposed_amx_workspace,
                               cpu_convolution_weight_amx_workspace};
static const kernel_set pairs = {
    "avx512_bf16", cpu_convolution_transposed_pairs, NULL,
    cpu_convolution_transposed_pairs_workspace, NULL};
#endif
#define EACH_SET(s) KCASE_EACH(kernel_set, s, sets)

/* c_in, c_out: channels of a group of big, small. */
typedef struct {
    int axes;
    int64_t batch, groups, c_in, c_out;
    int64_t big[3], kernel[3], stride[3], pad[3], dilation[3];
} shape;

enum { BIG, SMALL, WEIGHT, BIAS, MINE, PLAIN };

static int64_t
small_size(const shape *p, int i)
{
    return (p->big[i] + 2 * p->pad[i] - p->dilation[i] * (p->kernel[i] - 1) -
            1) /
               p->stride[i] +
           1;
}

static air_arg
ints(const int64_t *v, int n)
{
    return (air_arg){.kind = AIR_ARG_INTS, .count = n, .ints = v};
}

/* The tensors, and two results of the sizes of BIG or WEIGHT. */
static void
make_case(kernel_case *c, const shape *p, int dtype, int like)
{
    int64_t dims[3][5] = {
        {p->batch, p->groups * p->c_in},
        {p->batch, p->groups * p->c_out},
        {p->groups * p->c_out, p->c_in},
    };
    for (int i = 0; i < p->axes; i++) {
        dims[BIG][2 + i] = p->big[i];
        dims[SMALL][2 + i] = small_size(p, i);
        dims[WEIGHT][2 + i] = p->kernel[i];
    }
    kcase_begin(c, (uint64_t)(p->big[0] + 17 * p->c_in));
    for (int i = BIG; i <= WEIGHT; i++)
        kcase_tensor(c, dtype, p->axes + 2, dims[i], NULL, 0, 0);
    kcase_tensor(c, dtype, 1, (int64_t[]){p->groups * p->c_in}, NULL, 0, 0);
    for (int i = 0; i < 2; i++)
        kcase_tensor(c, dtype, p->axes + 2, dims[like], NULL, 0, 0);
}

static void
check_results(const kernel_case *c, const kernel_set *set, const char *what)
{
    const air_tensor *t = &c->t[MINE];
    int64_t n = 1;
    double worst = 0, size = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    for (int64_t i = 0; i < n; i++) {
        double want = kcase_get(c, PLAIN, i);
        double err = fabs(kcase_get(c, MINE, i) - want);
        worst = kcase_worse(worst, err);
        size = fmax(size, fabs(want));
    }
    double limit = t->dtype == AIR_F32   ? 2e-6
                   : t->dtype == AIR_F16 ? 1e-3
                                         : 8e-3;
    if (!CHECK(worst / size <= limit))
        printf("  %s %s dtype %d: %g\n", set->isa, what, t->dtype,
               worst / size);
}

static void
check_transposed(const kernel_set *set, const shape *p, int dtype, int threads)
{
    kernel_case c;
    make_case(&c, p, dtype, BIG);
    air_arg none = {.kind = AIR_ARG_NONE};
    air_arg args[] = {kcase_arg(&c, SMALL),
                      kcase_arg(&c, WEIGHT),
                      threads % 2 == 0 ? kcase_arg(&c, BIAS) : none,
                      ints(c.t[MINE].dims, p->axes + 2),
                      ints(p->stride, p->axes),
                      ints(p->pad, p->axes),
                      ints(p->dilation, p->axes),
                      kcase_int(p->groups)};
    air_call mine = {8, 1, args, &c.t[MINE], NULL};
    air_call plain = {8, 1, args, &c.t[PLAIN], NULL};
    CHECK(cpu_convolution_transposed_on_scalar(&mine, "scalar"));
    kcase_run(&c, set->transposed, set->transposed_workspace, &mine, threads);
    kcase_run(&c, ref_convolution_transposed, NULL, &plain, threads);
    check_results(&c, set, "transposed");
    kcase_end(&c);
}

static void
check_weight(const kernel_set *set, const shape *p, int dtype, int threads)
{
    kernel_case c;
    make_case(&c, p, dtype, WEIGHT);
    air_arg args[] = {kcase_arg(&c, BIG),
                      kcase_arg(&c, SMALL),
                      ints(c.t[MINE].dims, p->axes + 2),
                      ints(p->stride, p->axes),
                      ints(p->pad, p->axes),
                      ints(p->dilation, p->axes),
                      kcase_int(p->groups)};
    air_call mine = {7, 1, args, &c.t[MINE], NULL};
    air_call plain = {7, 1, args, &c.t[PLAIN], NULL};
    CHECK(cpu_convolution_weight_on_scalar(&mine, "scalar"));
    kcase_run(&c, set->weight, set->weight_workspace, &mine, threads);
    kcase_run(&c, ref_convolution_weight, NULL, &plain, threads);
    check_results(&c, set, "weight");
    kcase_end(&c);
}

static void
check(const shape *p)
{
    EACH_SET(s)
    for (int dtype = AIR_F32; dtype <= AIR_F16; dtype++) {
        if (dtype == AIR_F64)
            continue;
        check_transposed(s, p, dtype, dtype);
        check_weight(s, p, dtype, dtype);
    }
}

#define ONES    \
    {           \
        1, 1, 1 \
    }

TEST(conv_backward_windows)
{
    check(&(shape){2, 2, 1, 9, 12, {7, 9}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(shape){2, 3, 1, 20, 7, {9, 8}, {3, 2}, {2, 3}, {1, 0}, ONES});
    check(&(shape){2, 1, 1, 8, 5, {9, 9}, {3, 3}, {2, 1}, {3, 2}, {1, 2}});
    check(&(shape){2, 1, 1, 33, 140, {6, 6}, {1, 1}, ONES, {0}, ONES});
}

/* Of enough channels for planes: conv_planes.c, conv_spread.c. */
static void
check_planes(const shape *p)
{
    check(p);
#if defined(__x86_64__)
    for (int threads = 1; threads <= 3 && kcase_has_isa("amx"); threads++) {
        check_weight(&amx, p, AIR_BF16, threads);
        check_transposed(&amx, p, AIR_BF16, threads);
    }
    for (int threads = 1; threads <= 3 && kcase_has_isa("avx512_bf16");
         threads++)
        check_transposed(&pairs, p, AIR_BF16, threads);
#endif
}

TEST(conv_backward_planes)
{
    check_planes(&(shape){2, 3, 1, 40, 70, {9, 9}, {3, 3}, ONES, {1, 1}, ONES});
    check_planes(
        &(shape){2, 4, 1, 17, 13, {15, 12}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check_planes(
        &(shape){2, 3, 2, 24, 33, {10, 13}, {1, 1}, {2, 2}, {0}, ONES});
    check_planes(
        &(shape){2, 1, 1, 8, 12, {40, 41}, {5, 4}, {1, 3}, {2, 1}, {2, 1}});
    check_planes(&(shape){2, 2, 1, 48, 40, {8, 8}, {1, 1}, ONES, {0}, ONES});
    check_planes(&(shape){2, 2, 2, 10, 12, {7, 9}, {1, 1}, ONES, {0}, ONES});
    check_planes(
        &(shape){3, 2, 1, 16, 16, {7, 8, 9}, {3, 2, 3}, {1, 1, 2}, {1}, ONES});
    check_planes(
        &(shape){2, 2, 1, 16, 40, {64, 64}, {3, 3}, ONES, {1, 1}, ONES});
}

/* Rows that are taps. */
TEST(conv_backward_few_planes)
{
    check_planes(
        &(shape){2, 2, 1, 3, 40, {30, 34}, {7, 7}, {2, 2}, {3, 3}, ONES});
    check_planes(
        &(shape){2, 1, 2, 2, 13, {21, 20}, {2, 3}, ONES, {1, 1}, {3, 1}});
    check_planes(
        &(shape){2, 1, 1, 1, 16, {12, 70}, {1, 40}, {1, 3}, {0, 9}, ONES});
}

TEST(conv_backward_spread)
{
    check_planes(&(shape){2, 2, 1, 9, 16, {11, 10}, {2, 1}, {3, 2}, {1}, ONES});
    check_planes(
        &(shape){2, 1, 2, 33, 50, {16, 14}, {4, 4}, {2, 2}, {1, 1}, ONES});
    check_planes(
        &(shape){2, 1, 1, 8, 17, {13, 40}, {5, 7}, {2, 3}, {4, 3}, {3, 2}});
    check_planes(&(shape){
        3, 2, 1, 8, 20, {6, 7, 9}, {3, 3, 2}, {2, 1, 2}, {1, 1}, ONES});
    /* phases two and two and one, rows that end between them, windows that are
     * turned in several runs, rows of weights with a gap */
    check_planes(&(shape){1, 1, 1, 9, 128, {84}, {8}, {4}, {0}, ONES});
    check_planes(&(shape){1, 2, 1, 40, 17, {88}, {10}, {5}, {2}, ONES});
    check_planes(&(shape){1, 1, 1, 11, 20, {141}, {16}, {8}, {3}, ONES});
}

TEST(conv_backward_few_channels)
{
    check(&(shape){2, 2, 1, 3, 8, {15, 14}, {5, 5}, {2, 2}, {2, 2}, ONES});
    check(&(shape){2, 1, 1, 1, 4, {9, 9}, {3, 3}, ONES, {0}, ONES});
}

TEST(conv_backward_groups_and_axes)
{
    check(&(shape){2, 2, 3, 4, 5, {7, 6}, {3, 3}, {2, 2}, {1, 1}, ONES});
    check(&(shape){2, 2, 6, 1, 1, {8, 8}, {3, 3}, ONES, {1, 1}, ONES});
    check(&(shape){1, 3, 1, 6, 10, {40}, {4}, {3}, {2}, ONES});
    check(&(shape){3, 1, 2, 8, 3, {4, 5, 6}, {2, 3, 2}, {2, 1, 2}, {1}, ONES});
}

/* Deep enough that places are cut into spans. */
TEST(conv_backward_spans)
{
    check(&(shape){2, 3, 1, 8, 6, {70, 61}, {3, 3}, ONES, {1, 1}, ONES});
}
