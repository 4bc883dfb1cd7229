/* air::quantised_mm on each instruction set, against sums in double. */
#include "kernel_case.h"

#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/library.h"

#include <math.h>

static const kcase_kernel isas[] = {
#if defined(__x86_64__)
    {"amx", cpu_quantised_mm_digits, cpu_quantised_mm_digits_workspace,
     cpu_quantised_mm_on_digits},
    {"avx512_bf16", cpu_quantised_mm_pairs, cpu_quantised_mm_pairs_workspace,
     cpu_quantised_mm_on_pairs},
    {"avx512", cpu_quantised_mm_digits, cpu_quantised_mm_digits_workspace,
     cpu_quantised_mm_on_digits},
    {"avx512", cpu_quantised_mm_avx512, cpu_quantised_mm_workspace, NULL},
    {"avx2", cpu_quantised_mm_avx2, cpu_quantised_mm_workspace, NULL},
#endif
    {"scalar", cpu_quantised_mm_scalar, cpu_quantised_mm_workspace, NULL},
};
#define EACH_ISA(s) KCASE_EACH(kcase_kernel, s, isas)

typedef struct {
    int64_t m, n, k, groups;
    int bits, dtype;
    bool scale, zero, bias, rounded;
    int threads, scale_dtype; /* 0: f32 */
} shape;

typedef struct {
    kernel_case c;
    shape p;
    int a, w, scale, zero, bias, y;
    air_arg args[7];
} setup;

static air_arg
some(const kernel_case *c, int tensor)
{
    return tensor < 0 ? (air_arg){.kind = AIR_ARG_NONE} : kcase_arg(c, tensor);
}

static int
matrix(kernel_case *c, int dtype, int64_t rows, int64_t columns)
{
    return kcase_tensor(c, dtype, 2, (int64_t[]){rows, columns}, NULL, 0, 0);
}

/* All bytes, where kcase_tensor gives small numbers only. */
static void
fill(setup *s)
{
    int64_t n = s->p.n * s->p.k * s->p.bits / 8;
    int64_t low = s->p.bits == 8 ? -128 : 0;
    for (int64_t i = 0; i < n; i++)
        kcase_put(&s->c, s->w, i, (double)(i * 167 % 256 + low));
}

static void
begin(setup *s, shape p)
{
    kernel_case *c = &s->c;
    s->p = p;
    kcase_begin(c, (uint64_t)(p.m + 3 * p.n + 5 * p.k));
    s->a = matrix(c, p.dtype, p.m, p.k);
    s->w = matrix(c, p.bits == 8 ? AIR_I8 : AIR_U8, p.n, p.k * p.bits / 8);
    const int of_scale = p.scale_dtype == 0 ? AIR_F32 : p.scale_dtype;
    s->scale = p.scale ? matrix(c, of_scale, p.n, p.groups) : -1;
    s->zero = p.zero ? matrix(c, p.dtype, p.n, p.groups) : -1;
    s->bias = p.bias ? kcase_tensor(c, AIR_F32, 1, &p.n, NULL, 0, 0) : -1;
    s->y = matrix(c, p.dtype, p.m, p.n);
    fill(s);
    const air_arg args[] = {kcase_arg(c, s->a),  kcase_arg(c, s->w),
                            some(c, s->scale),   some(c, s->zero),
                            some(c, s->bias),    kcase_int(p.bits),
                            kcase_int(p.rounded)};
    memcpy(s->args, args, sizeof args);
}

static air_call
call_of(const setup *s)
{
    return (air_call){
        .nargs = 7, .nouts = 1, .args = s->args, .outs = &s->c.t[s->y]};
}

static double
weight(const setup *s, int64_t n, int64_t k)
{
    const shape *p = &s->p;
    int64_t at = n * p->k + k, group = n * p->groups + k * p->groups / p->k;
    double q = kcase_get(&s->c, s->w, p->bits == 8 ? at : at / 2);
    if (p->bits == 4)
        q = (double)(((int)q >> at % 2 * 4 & 15) - 8);
    return q * (p->scale ? kcase_get(&s->c, s->scale, group) : 1) +
           (p->zero ? kcase_get(&s->c, s->zero, group) : 0);
}

/* Of row m, as a share of the sum of sizes. */
static double
worst_of_row(const setup *s, int64_t m)
{
    double worst = 0;
    for (int64_t n = 0; n < s->p.n; n++) {
        double sum = s->p.bias ? kcase_get(&s->c, s->bias, n) : 0, size = 1e-3;
        for (int64_t k = 0; k < s->p.k; k++) {
            double t = kcase_get(&s->c, s->a, m * s->p.k + k) * weight(s, n, k);
            sum += t, size += fabs(t);
        }
        double error =
            fabs(kcase_get(&s->c, s->y, m * s->p.n + n) - sum) / size;
        worst = kcase_worse(worst, error);
    }
    return worst;
}

static void
check_rows(const setup *s, const char *isa)
{
    double allowed = s->p.dtype == AIR_F32    ? 1e-6
                     : s->p.dtype == AIR_BF16 ? 4e-3
                                              : 5e-4;
    for (int64_t m = 0; m < s->p.m; m++) {
        double worst = worst_of_row(s, m);
        if (!CHECK(worst <= allowed))
            printf("  %s m %d n %d k %d groups %d bits %d threads %d: %g\n",
                   isa, (int)s->p.m, (int)s->p.n, (int)s->p.k, (int)s->p.groups,
                   s->p.bits, s->p.threads, worst);
    }
}

static void
check(const kcase_kernel *isa, shape p)
{
    setup s;
    begin(&s, p);
    air_call call = call_of(&s);
    if (KCASE_TAKES(isa, &call)) {
        kcase_run(&s.c, isa->run, isa->workspace, &call, p.threads);
        check_rows(&s, isa->isa);
    }
    kcase_end(&s.c);
}

TEST(quantised_each_number_of_rows)
{
    EACH_ISA(s)
    for (int64_t m = 1; m <= 18; m++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int d = 0; d < 2; d++)
                check(s, (shape){.m = m,
                                 .n = 131,
                                 .k = 256,
                                 .groups = bits == 4 ? 8 : 1,
                                 .bits = bits,
                                 .dtype = d == 0 ? AIR_F32 : AIR_BF16,
                                 .scale = true,
                                 .threads = (int)(m % 3) + 1});
}

/* Deeper than what is done at once. */
TEST(quantised_deep)
{
    EACH_ISA(s)
    for (int64_t m = 1; m <= 13; m += 4)
        for (int bits = 4; bits <= 8; bits += 4)
            check(s, (shape){.m = m,
                             .n = 27,
                             .k = 8192 + 96,
                             .groups = m == 5 ? 1 : 259,
                             .bits = bits,
                             .dtype = AIR_BF16,
                             .scale = true,
                             .threads = 2});
}

/* Panels of numbers rounded to the dtype of a: groups that end within a word
 * of memory and within what is made at once, rows that fill no vector. */
/* Numbers beside one that is 2^10 times as large, which counts for nothing. */
static void
put_large(setup *s)
{
    const shape *p = &s->p;
    const int64_t each = 32 / p->bits;
    for (int64_t i = 0; i < p->m * p->k; i += each)
        kcase_put(&s->c, s->a, i, 1024);
    for (int64_t i = 0; i < p->n * p->k; i += each)
        kcase_put(&s->c, s->w, i * p->bits / 8, p->bits == 8 ? 0 : 8 + 16 * 5);
}

TEST(quantised_small_beside_large)
{
    EACH_ISA(isa)
    for (int bits = 4; bits <= 8; bits += 4)
        for (int64_t m = 1; m < 4; m++) {
            setup s;
            begin(&s, (shape){.m = m,
                              .n = 19,
                              .k = 384,
                              .groups = 3,
                              .bits = bits,
                              .dtype = AIR_BF16,
                              .scale = true,
                              .threads = 2});
            put_large(&s);
            air_call call = call_of(&s);
            if (KCASE_TAKES(isa, &call)) {
                kcase_run(&s.c, isa->run, isa->workspace, &call, 2);
                check_rows(&s, isa->isa);
            }
            kcase_end(&s.c);
        }
}

/* A row ends within a lane. */
TEST(quantised_odd_ends)
{
    EACH_ISA(isa)
    for (int bits = 4; bits <= 8; bits += 4)
        for (int64_t k = 64; k < 80; k += 2)
            check(isa, (shape){.m = 3,
                               .n = 9,
                               .k = k,
                               .groups = 1,
                               .bits = bits,
                               .dtype = AIR_BF16,
                               .scale = true,
                               .threads = 1});
}

TEST(quantised_rounded_panels)
{
    static const int64_t depths[][2] = {{64, 1},    {96, 3},    {1090, 1},
                                        {2112, 33}, {1980, 55}, {2108, 62}};
    EACH_ISA(s)
    for (int i = 0; i < 6; i++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int64_t m = 17; m <= 150; m += 133)
                check(s, (shape){.m = m,
                                 .n = 50 + i,
                                 .k = depths[i][0],
                                 .groups = depths[i][1],
                                 .bits = bits,
                                 .dtype = AIR_BF16,
                                 .scale = i % 3 != 1,
                                 .zero = i % 3 != 0,
                                 .bias = i % 2 == 0,
                                 .rounded = true,
                                 .threads = i % 3 + 1});
}

/* Few rows: scales of each dtype, a last group that fills no vector, more rows
 * than one block, pieces that end within a group. */
TEST(quantised_scales_of_few_rows)
{
    static const int64_t depths[][2] = {{256, 8},    {96, 6},   {96, 3},
                                        {1568, 49},  {2304, 9}, {2080, 130},
                                        {4 * 80, 80}};
    static const int dtypes[] = {AIR_F32, AIR_BF16, AIR_F16};
    EACH_ISA(s)
    for (int i = 0; i < 7; i++)
        for (int64_t m = 1; m <= 16; m += m == 1 ? 7 : 2)
            for (int bits = 4; bits <= 8; bits += 4)
                check(s, (shape){.m = m,
                                 .n = 61,
                                 .k = depths[i][0],
                                 .groups = m == 12 ? 1 : depths[i][1],
                                 .bits = bits,
                                 .dtype = AIR_BF16,
                                 .scale = m != 14,
                                 .zero = i == 1,
                                 .rounded = true,
                                 .scale_dtype = dtypes[(i + m) % 3],
                                 .threads = 2});
}

TEST(quantised_each_group)
{
    static const int64_t depths[] = {8, 24, 96, 120, 128, 384, 640};
    EACH_ISA(s)
    for (int i = 0; i < 7; i++)
        for (int64_t groups = 1; groups <= depths[i]; groups++)
            for (int bits = 4; depths[i] % groups == 0 && bits <= 8; bits += 4)
                for (int few = 0; few < 2; few++)
                    check(s, (shape){.m = few ? 2 : 20,
                                     .n = 9,
                                     .k = depths[i],
                                     .groups = groups,
                                     .bits = bits,
                                     .dtype = few && groups % 4 < 2 ? AIR_BF16
                                                                    : AIR_F32,
                                     .scale = groups % 5 != 0,
                                     .zero = groups % 3 == 0,
                                     .threads = 2});
}

TEST(quantised_dtypes_and_bias)
{
    static const int dtypes[] = {AIR_F32, AIR_BF16, AIR_F16};
    EACH_ISA(s)
    for (int d = 0; d < 3; d++)
        for (int64_t m = 1; m <= 33; m += 32)
            for (int bits = 4; bits <= 8; bits += 4)
                check(s, (shape){.m = m,
                                 .n = 70,
                                 .k = 288,
                                 .groups = 9,
                                 .bits = bits,
                                 .dtype = dtypes[d],
                                 .scale = true,
                                 .zero = true,
                                 .bias = true,
                                 .threads = 3});
}

TEST(quantised_no_depth_and_nothing)
{
    EACH_ISA(s)
    {
        check(s, (shape){.m = 2,
                         .n = 5,
                         .groups = 1,
                         .bits = 4,
                         .bias = true,
                         .dtype = AIR_F32,
                         .threads = 1});
        check(s, (shape){.m = 0,
                         .n = 5,
                         .k = 8,
                         .groups = 1,
                         .bits = 8,
                         .dtype = AIR_F32,
                         .threads = 2});
    }
}

#if defined(__x86_64__)
/* A library that does products one element at a time. */
static int
plain_gemm(void *user, air_dtype dtype, bool trans_a, bool trans_b, int64_t m,
           int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
           const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    const float *x = a, *w = b;
    float *y = c;
    ++*(int *)user;
    if (dtype != AIR_F32 || trans_a || !trans_b)
        return 1;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t d = 0; d < k; d++)
                sum += (double)x[i * lda + d] * (double)w[j * ldb + d];
            float *to = &y[i * ldc + j];
            *to = (float)(alpha * sum + (beta != 0 ? beta * (double)*to : 0));
        }
    return 0;
}

TEST(quantised_by_a_library)
{
    for (int bits = 4; bits <= 8 && kcase_has_isa("avx512"); bits += 4) {
        setup s;
        int calls = 0;
        const air_library library = {.user = &calls, .gemm = plain_gemm};
        begin(&s, (shape){.m = 20,
                          .n = 40,
                          .k = 96,
                          .groups = 3,
                          .bits = bits,
                          .dtype = AIR_F32,
                          .scale = true,
                          .zero = true,
                          .bias = true});
        air_call call = call_of(&s);
        CHECK(cpu_quantised_mm_library(&call, "avx512"));
        CHECK(!cpu_quantised_mm_library(&call, "avx2"));
        s.c.t[s.a].dtype = s.c.t[s.y].dtype = AIR_BF16;
        call.args = (air_arg[7]){s.args[0], s.args[1], s.args[2],   s.args[3],
                                 s.args[4], s.args[5], kcase_int(0)};
        CHECK(!cpu_quantised_mm_library(&call, "avx512"));
        s.c.t[s.a].dtype = s.c.t[s.y].dtype = AIR_F32;
        call.args = s.args;
        size_t bytes = cpu_quantised_mm_workspace(&call, 2);
        void *workspace = kcase_new(bytes), *scratch = kcase_new(AIR_SCRATCH);
        for (int id = 0; id < 2; id++)
            cpu_quantised_mm_begin(&call, &(air_task){.id = id,
                                                      .count = 2,
                                                      .slots = s.c.slots,
                                                      .workspace = workspace,
                                                      .scratch = scratch});
        CHECK(cpu_quantised_mm_call(&library, &call, s.c.slots, workspace));
        CHECK_INT(calls, 1);
        check_rows(&s, "library");
        kcase_free(workspace, bytes);
        kcase_free(scratch, AIR_SCRATCH);
        kcase_end(&s.c);
    }
}
#endif
