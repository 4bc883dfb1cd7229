/* bench_gemm.c: matrix products of the cpu device beside those of a BLAS, on
 * one thread, in CPU time (so that a shared machine disturbs less). Built by
 * `ninja tests/unit/bench_gemm`, not by default.
 *
 *     bench_gemm ISA [LIBRARY|- [nt|nn|tn|tt [M K N [MB]]]]
 *
 * LIBRARY is a shared object with sgemm_, e.g. torch/lib/libtorch_cpu.so; run
 * it with OMP_NUM_THREADS=1. nt: A is [m, k] in memory and B [n, k], as x and
 * the weight of a layer; nn: B is [k, n], the gradient of x; tn: A is [k, m],
 * too, that of the weight. M K N: this size only. MB: of so many weights in
 * turn, 0: of one. Shares are of what multiply-adds in registers do meanwhile.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_kernel.h"
#include "driver/cpu/product/gemm.h"

#define TURNS     150
#define COPIES_MB 128 /* weights from memory */
#define ROUNDS    40000

/* Fortran: column-major, every argument by reference. */
typedef void sgemm_fn(const char *trans_a, const char *trans_b, const int *m,
                      const int *n, const int *k, const float *alpha,
                      const float *a, const int *lda, const float *b,
                      const int *ldb, const float *beta, float *c,
                      const int *ldc);

/* How an instruction set computes products. */
typedef struct {
    const char *isa;
    air_kernel_fn kernel, bf16; /* of f32, of bf16 */
    size_fn *bf16_size;         /* of the workspace */
    float (*compute)(int64_t rounds, float x, double *flops);
} provider;

#define COMPUTE(isa) \
    float limits_compute_##isa(int64_t rounds, float x, double *flops)
COMPUTE(scalar);
#if defined(__x86_64__)
COMPUTE(avx2);
COMPUTE(avx512);
#endif

typedef struct {
    provider own;
    sgemm_fn *sgemm;           /* NULL: none */
    bool a_turned, b_straight; /* A is [k, m], B [k, n] */
    int64_t megabytes;         /* of copies of B */
    void *scratch;
} bench;

/* Operations a second in registers, now. */
static double
register_turn(const bench *b)
{
    double flops, start = base_work_now();
    volatile float kept = b->own.compute(ROUNDS, 0.5f, &flops);
    (void)kept;
    return flops / (base_work_now() - start);
}

/* As the device picks it: pairs are not for every layout. */
static bool
is_plain(const bench *b, const air_call *call)
{
    const bool pairs = b->own.bf16 == cpu_gemm_pairs;
    return call->args[0].t->dtype == AIR_F32 ||
           (pairs && !cpu_gemm_on_pairs(call, b->own.isa));
}

static double
own_turn(const bench *b, kernel_case *c, const air_call *call)
{
    air_fault fault = {.raised = false};
    air_task task = task_of(c, b->scratch, &fault);
    double start = base_work_now();
    (is_plain(b, call) ? b->own.kernel : b->own.bf16)(call, &task);
    return base_work_now() - start;
}

/* Row-major C = A B is column-major C' = B' A'. */
static double
library_turn(const bench *b, int m, int k, int n, const float *x,
             const float *w, float *y)
{
    float one = 1, zero = 0;
    double start = base_work_now();
    b->sgemm(b->b_straight ? "N" : "T", b->a_turned ? "T" : "N", &n, &m, &k,
             &one, w, b->b_straight ? &n : &k, x, b->a_turned ? &m : &k, &zero,
             y, &n);
    return base_work_now() - start;
}

static float *
data_of(const kernel_case *c, int tensor)
{
    return (float *)(void *)((char *)c->slots[tensor] + c->t[tensor].offset);
}

static void
measure(const bench *b, uint8_t dtype, int m, int k, int n)
{
    kernel_case c;
    double own = 1e9, library = 1e9, most = 0, flop = 2.0 * m * n * k;
    int64_t bytes = (int64_t)n * k * (dtype == AIR_F32 ? 4 : 2);
    int64_t copies = 1 + (b->megabytes << 20) / bytes;
    kcase_begin(&c, 1);
    int x = kcase_tensor(&c, dtype, 2, (int64_t[]){m, k},
                         b->a_turned ? (int[]){1, 0} : NULL, 0, ALIGN);
    int w = kcase_tensor(&c, dtype, 3, (int64_t[]){copies, k, n},
                         b->b_straight ? NULL : (int[]){0, 2, 1}, 0, ALIGN);
    int y = kcase_tensor(&c, dtype, 2, (int64_t[]){m, n}, NULL, 0, ALIGN);
    align(&c, x);
    align(&c, w);
    align(&c, y);
    air_tensor one = {.slot = w,
                      .dtype = dtype,
                      .rank = 2,
                      .dims = {k, n},
                      .strides = {c.t[w].strides[1], c.t[w].strides[2]}};
    air_arg args[] = {kcase_arg(&c, x),
                      {.kind = AIR_ARG_TENSOR, .count = 1, .t = &one}};
    air_call call = {2, 1, args, &c.t[y], NULL, false, false};
    give_workspace(&c, is_plain(b, &call) ? cpu_mm_workspace : b->own.bf16_size,
                   &call);
    for (int i = 0; i < TURNS; i++) {
        one.offset = c.t[w].offset + i % copies * bytes;
        double t = own_turn(b, &c, &call);
        own = t < own ? t : own;
        t = register_turn(b);
        most = t > most ? t : most;
        if (b->sgemm == NULL || dtype != AIR_F32)
            continue;
        t = library_turn(b, m, k, n, data_of(&c, x),
                         data_of(&c, w) + i % copies * n * k, data_of(&c, y));
        library = t < library ? t : library;
    }
    printf("%4s %4d %5d %5d  own %9.1f us %6.1f GFLOP/s %3.0f %% %6.1f GB/s",
           dtype == AIR_F32 ? "f32" : "bf16", m, k, n, own * 1e6,
           flop / own * 1e-9, 100 * flop / own / most,
           (double)bytes / own * 1e-9);
    if (b->sgemm != NULL && dtype == AIR_F32)
        printf("   library %9.1f us %6.1f GFLOP/s %3.0f %%", library * 1e6,
               flop / library * 1e-9, 100 * flop / library / most);
    printf("\n");
    kcase_end(&c);
}

static sgemm_fn *
find_sgemm(const char *path)
{
    sgemm_fn *fn = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *symbol = handle != NULL ? dlsym(handle, "sgemm_") : NULL;
    if (symbol == NULL)
        printf("no sgemm_: %s\n", dlerror());
    memcpy(&fn, &symbol, sizeof fn);
    return fn;
}

static const uint8_t dtypes[] = {AIR_F32, AIR_BF16};
static const int sizes[][3] = {
    {128, 768, 768}, {128, 768, 3072}, {128, 3072, 768}, {512, 384, 1536},
    {64, 784, 512},  {512, 512, 512},  {1, 2048, 8192},  {2, 2048, 8192},
    {4, 2048, 8192}, {8, 2048, 8192},  {12, 2048, 8192}, {16, 2048, 8192},
};

static void
measure_all(const bench *b, uint8_t dtype)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        measure(b, dtype, sizes[i][0], sizes[i][1], sizes[i][2]);
}

static provider
find_provider(const char *isa)
{
    static const provider all[] = {
        {"scalar", cpu_mm_scalar, cpu_mm_scalar, cpu_mm_workspace,
         limits_compute_scalar},
#if defined(__x86_64__)
        {"avx2", cpu_mm_avx2, cpu_mm_avx2, cpu_mm_workspace,
         limits_compute_avx2},
        {"avx512", cpu_mm_avx512, cpu_mm_avx512, cpu_mm_workspace,
         limits_compute_avx512},
        {"avx512_bf16", cpu_mm_avx512, cpu_gemm_pairs, cpu_gemm_pairs_workspace,
         limits_compute_avx512},
        {"amx", cpu_mm_avx512, cpu_gemm_amx, cpu_gemm_amx_workspace,
         limits_compute_avx512},
#endif
    };
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        if (strcmp(isa, all[i].isa) == 0)
            return all[i];
    return all[0];
}

int
main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : "scalar";
    const char *layout = argc > 3 ? argv[3] : "nt";
    bench b = {.own = find_provider(isa),
               .a_turned = layout[0] == 't',
               .b_straight = layout[0] != '\0' && layout[1] == 'n',
               .megabytes = argc > 7 ? atoi(argv[7]) : COPIES_MB,
               .scratch = kcase_new(AIR_SCRATCH + ALIGN)};
    if (!kcase_has_isa(isa)) {
        printf("this CPU has no %s\n", isa);
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "-") != 0)
        b.sgemm = find_sgemm(argv[2]);
    for (int i = 0; i < 2; i++)
        if (argc > 6)
            measure(&b, dtypes[i], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
        else
            measure_all(&b, dtypes[i]);
    kcase_free(b.scratch, AIR_SCRATCH + ALIGN);
    return 0;
}
