/* bench_conv.c: convolutions of models on the cpu device, on one thread, in CPU
 * time (so that a shared machine disturbs less), beside the multiply-adds that
 * registers do in the same run. Built by `ninja tests/unit/bench_conv`, not by
 * default.
 *
 *     bench_conv ISA [f32|bf16 [PART [ROUNDS]]]
 *
 * PART: only layers with this in their line, as "64-64 3x3". Weights are a new
 * copy each time, as in a model: they come from memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_kernel.h"
#include "driver/cpu/product/gemm.h"

#define ROUNDS       5 /* by default; the fastest counts */
#define ROUND_S      0.03
#define COPIES_BYTES ((int64_t)48 << 20)

typedef float peak_fn(int64_t rounds, float x, double *flops);

/* limits_isa.c */
peak_fn limits_compute_scalar;
#if defined(__x86_64__)
peak_fn limits_compute_avx2, limits_compute_avx512;
#endif

/* How an instruction set computes convolutions. */
typedef struct {
    const char *isa;
    air_kernel_fn kernel, bf16; /* of f32, of bf16 */
    size_fn *bf16_size;         /* of the workspace */
    peak_fn *peak;
} provider;

/* Of square windows and maps; times: how often models have it. */
typedef struct {
    const char *name;
    int64_t c_in, c_out, kernel, stride, pad, pixels, groups;
    int axes, times;
} layer;

static const layer layers[] = {
    {"resnet50", 3, 64, 7, 2, 3, 224, 1, 2, 1},
    {"resnet50", 64, 64, 1, 1, 0, 56, 1, 2, 1},
    {"resnet50", 64, 64, 3, 1, 1, 56, 1, 2, 3},
    {"resnet50", 64, 256, 1, 1, 0, 56, 1, 2, 4},
    {"resnet50", 256, 64, 1, 1, 0, 56, 1, 2, 2},
    {"resnet50", 256, 128, 1, 1, 0, 56, 1, 2, 1},
    {"resnet50", 128, 128, 3, 2, 1, 56, 1, 2, 1},
    {"resnet50", 256, 512, 1, 2, 0, 56, 1, 2, 1},
    {"resnet50", 128, 512, 1, 1, 0, 28, 1, 2, 4},
    {"resnet50", 512, 128, 1, 1, 0, 28, 1, 2, 3},
    {"resnet50", 128, 128, 3, 1, 1, 28, 1, 2, 3},
    {"resnet50", 512, 256, 1, 1, 0, 28, 1, 2, 1},
    {"resnet50", 256, 256, 3, 2, 1, 28, 1, 2, 1},
    {"resnet50", 512, 1024, 1, 2, 0, 28, 1, 2, 1},
    {"resnet50", 256, 1024, 1, 1, 0, 14, 1, 2, 6},
    {"resnet50", 1024, 256, 1, 1, 0, 14, 1, 2, 5},
    {"resnet50", 256, 256, 3, 1, 1, 14, 1, 2, 5},
    {"resnet50", 1024, 512, 1, 1, 0, 14, 1, 2, 1},
    {"resnet50", 512, 512, 3, 2, 1, 14, 1, 2, 1},
    {"resnet50", 1024, 2048, 1, 2, 0, 14, 1, 2, 1},
    {"resnet50", 512, 2048, 1, 1, 0, 7, 1, 2, 3},
    {"resnet50", 2048, 512, 1, 1, 0, 7, 1, 2, 2},
    {"resnet50", 512, 512, 3, 1, 1, 7, 1, 2, 2},
    {"resnet18", 64, 128, 3, 2, 1, 56, 1, 2, 1},
    {"resnet18", 128, 256, 3, 2, 1, 28, 1, 2, 1},
    {"resnet18", 256, 512, 3, 2, 1, 14, 1, 2, 1},
    {"unet", 64, 32, 3, 1, 1, 128, 1, 2, 1},
    {"unet", 32, 32, 3, 1, 1, 128, 1, 2, 1},
    {"unet", 128, 64, 3, 1, 1, 64, 1, 2, 1},
    {"unet", 256, 128, 3, 1, 1, 32, 1, 2, 1},
    {"mobile", 3, 32, 3, 2, 1, 224, 1, 2, 1},
    {"mobile", 32, 32, 3, 1, 1, 112, 32, 2, 1},
    {"mobile", 32, 16, 1, 1, 0, 112, 1, 2, 1},
    {"mobile", 16, 96, 1, 1, 0, 112, 1, 2, 1},
    {"mobile", 24, 144, 1, 1, 0, 56, 1, 2, 2},
    {"mobile", 144, 24, 1, 1, 0, 56, 1, 2, 2},
    {"mobile", 192, 32, 1, 1, 0, 28, 1, 2, 2},
    {"mobile", 32, 192, 1, 1, 0, 28, 1, 2, 3},
    {"mobile", 384, 64, 1, 1, 0, 14, 1, 2, 3},
    {"mobile", 64, 384, 1, 1, 0, 14, 1, 2, 4},
    {"mobile", 576, 96, 1, 1, 0, 14, 1, 2, 2},
    {"mobile", 960, 160, 1, 1, 0, 7, 1, 2, 2},
    {"mobile", 160, 960, 1, 1, 0, 7, 1, 2, 3},
    {"mobile", 320, 1280, 1, 1, 0, 7, 1, 2, 1},
    {"mobile", 144, 144, 3, 1, 1, 56, 144, 2, 1},
    {"mobile", 192, 192, 3, 2, 1, 28, 192, 2, 1},
    {"mobile", 384, 384, 3, 1, 1, 14, 384, 2, 4},
    {"mobile", 96, 96, 3, 2, 1, 112, 96, 2, 1},
    {"mobile", 672, 672, 3, 1, 1, 14, 672, 2, 1},
    {"mobile", 72, 72, 5, 2, 2, 56, 72, 2, 1},
    {"mobile", 120, 120, 5, 1, 2, 28, 120, 2, 2},
    {"mobile", 672, 672, 5, 1, 2, 14, 672, 2, 2},
    {"convnext", 192, 192, 7, 1, 3, 28, 192, 2, 3},
    {"convnext", 384, 384, 7, 1, 3, 14, 384, 2, 9},
    {"convnext", 96, 96, 7, 1, 3, 56, 96, 2, 3},
    {"resnext", 512, 512, 3, 1, 1, 14, 32, 2, 1},
    {"encodec", 64, 128, 8, 4, 0, 12004, 1, 1, 1},
    {"encodec", 256, 512, 16, 8, 0, 608, 1, 1, 1},
    {"convnext", 3, 96, 4, 4, 0, 224, 1, 2, 1},
    {"regnet", 440, 440, 3, 2, 1, 14, 55, 2, 1},
    {"regnet", 440, 440, 3, 1, 1, 7, 55, 2, 5},
    {"volume", 32, 64, 3, 1, 1, 28, 1, 3, 1},
    {"volume", 16, 32, 3, 1, 1, 16, 1, 3, 1},
};

typedef struct {
    provider own;
    uint8_t dtype;
    int rounds;
    void *scratch;
    double peak, seconds, flops; /* of all layers with a name, times them */
} bench;

static int
tensor(kernel_case *c, uint8_t dtype, int rank, const int64_t *dims)
{
    int i = kcase_tensor(c, dtype, rank, dims, NULL, 0, ALIGN);
    align(c, i);
    return i;
}

/* Seconds of one call: the least of a few rounds. */
static double
fastest(const bench *b, kernel_case *c, const air_call *call, air_tensor *w,
        int64_t copies, int64_t bytes)
{
    air_fault fault = {.raised = false};
    air_task task = task_of(c, b->scratch, &fault);
    const air_kernel_fn run = b->dtype == AIR_F32 ? b->own.kernel : b->own.bf16;
    const int64_t first = w->offset;
    double least = 1e9;
    for (int i = 0, at = 0; i < b->rounds; i++) {
        double start = base_work_now(), now = start;
        int n = 0;
        for (; now - start < ROUND_S; n++, now = base_work_now()) {
            w->offset = first + at++ % copies * bytes;
            run(call, &task);
        }
        least = (now - start) / n < least ? (now - start) / n : least;
    }
    return least;
}

static void
measure(bench *b, const layer *l, const char *label)
{
    const int64_t out = (l->pixels + 2 * l->pad - l->kernel) / l->stride + 1;
    int64_t xd[5] = {1, l->c_in}, yd[5] = {1, l->c_out};
    int64_t wd[6] = {0, l->c_out, l->c_in / l->groups}, zeros[3] = {0};
    int64_t lists[3][3], weights = wd[1] * wd[2];
    double flops = 2.0 * (double)(l->c_out * (l->c_in / l->groups));
    for (int i = 0; i < l->axes; i++) {
        xd[i + 2] = l->pixels, yd[i + 2] = out, wd[i + 3] = l->kernel;
        lists[0][i] = l->stride, lists[1][i] = l->pad, lists[2][i] = 1;
        weights *= l->kernel;
        flops *= (double)(l->kernel * out);
    }
    const int64_t bytes = weights * (b->dtype == AIR_F32 ? 4 : 2);
    wd[0] = 1 + COPIES_BYTES / bytes;
    wd[0] = wd[0] > 40 ? 40 : wd[0];
    kernel_case c;
    kcase_begin(&c, 1);
    int x = tensor(&c, b->dtype, l->axes + 2, xd);
    int w = tensor(&c, b->dtype, l->axes + 3, wd);
    int y = tensor(&c, b->dtype, l->axes + 2, yd);
    int s = tensor(&c, b->dtype, 1, &l->c_out);
    air_tensor one = c.t[w];
    one.rank = (uint8_t)(l->axes + 2);
    for (int i = 0; i < one.rank; i++)
        one.dims[i] = one.dims[i + 1], one.strides[i] = one.strides[i + 1];
    air_arg args[9] = {kcase_arg(&c, x), kcase_arg(&c, w), kcase_arg(&c, s)};
    args[1].t = &one;
    for (int i = 0; i < 3; i++)
        args[3 + i] =
            (air_arg){.kind = AIR_ARG_INTS, .count = l->axes, .ints = lists[i]};
    args[6] = kcase_int(0);
    args[7] = (air_arg){.kind = AIR_ARG_INTS, .count = l->axes, .ints = zeros};
    args[8] = kcase_int(l->groups);
    air_call call = {9, 1, args, &c.t[y], NULL, false, false};
    give_workspace(
        &c, b->dtype == AIR_F32 ? cpu_convolution_workspace : b->own.bf16_size,
        &call);
    double t = fastest(b, &c, &call, &one, wd[0], bytes);
    printf("%9.1f us x %d %6.1f GFLOP/s %3.0f %%  %s\n", t * 1e6, l->times,
           flops / t * 1e-9, flops / t / b->peak * 100, label);
    b->seconds += t * l->times, b->flops += flops * l->times;
    kcase_end(&c);
}

static void
measure_named(bench *b, const layer *l, const char *part)
{
    char label[80];
    snprintf(label, sizeof label,
             "%s %" PRId64 "-%" PRId64 " %" PRId64 "x%" PRId64 "%s by %" PRId64
             " on %" PRId64 ", %" PRId64 " groups",
             l->name, l->c_in, l->c_out, l->kernel, l->kernel,
             l->axes > 2 ? "x" : "", l->stride, l->pixels, l->groups);
    if (strstr(label, part) != NULL)
        measure(b, l, label);
}

static provider
find_provider(const char *isa)
{
    static const provider all[] = {
        {"scalar", cpu_convolution_scalar, cpu_convolution_scalar,
         cpu_convolution_workspace, limits_compute_scalar},
#if defined(__x86_64__)
        {"avx2", cpu_convolution_avx2, cpu_convolution_avx2,
         cpu_convolution_workspace, limits_compute_avx2},
        {"avx512", cpu_convolution_avx512, cpu_convolution_avx512,
         cpu_convolution_workspace, limits_compute_avx512},
        {"avx512_bf16", cpu_convolution_avx512, cpu_convolution_pairs,
         cpu_convolution_pairs_workspace, limits_compute_avx512},
#endif
    };
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        if (strcmp(isa, all[i].isa) == 0)
            return all[i];
    return all[0];
}

static double
measure_peak(peak_fn *peak)
{
    double best = 0, flops;
    for (int i = 0; i < 20; i++) {
        double start = base_work_now();
        peak(1000000, 1, &flops);
        double rate = flops / (base_work_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

int
main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : "scalar";
    bench b = {.own = find_provider(isa),
               .dtype = argc > 2 && strcmp(argv[2], "bf16") == 0 ? AIR_BF16
                                                                 : AIR_F32,
               .rounds = argc > 4 ? atoi(argv[4]) : ROUNDS,
               .scratch = kcase_new(AIR_SCRATCH + ALIGN)};
    if (!kcase_has_isa(isa)) {
        printf("this CPU has no %s\n", isa);
        return 1;
    }
    b.peak = measure_peak(b.own.peak);
    printf("multiply-adds in registers: %.1f GFLOP/s of f32\n", b.peak * 1e-9);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        measure_named(&b, &layers[i], argc > 3 ? argv[3] : "");
    printf("together %.0f us, %.1f GFLOP/s\n", b.seconds * 1e6,
           b.flops / b.seconds * 1e-9);
    kcase_free(b.scratch, AIR_SCRATCH + ALIGN);
    return 0;
}
