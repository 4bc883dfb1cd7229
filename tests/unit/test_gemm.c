/* mm and its relatives against sums in double. */
#include "kernel_case.h"

#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_core.h"

#include <math.h>

typedef struct {
    const char *isa;
    air_kernel_fn mm, addmm, baddbmm;
    bool (*accept)(const air_call *call, const char *isa); /* NULL: all */
} kernel_set;

#define SET(isa)                                                     \
    {                                                                \
#isa, cpu_mm_##isa, cpu_addmm_##isa, cpu_baddbmm_##isa, NULL \
    }
static const kernel_set sets[] = {
#if defined(__x86_64__)
    {"amx", cpu_gemm_amx, cpu_gemm_amx, cpu_gemm_amx, cpu_gemm_on_amx},
    {"avx512_bf16", cpu_gemm_pairs, cpu_gemm_pairs, cpu_gemm_pairs,
     cpu_gemm_on_pairs},
    SET(avx512),
    SET(avx2),
#endif
    SET(scalar),
};
#define EACH_SET(s) KCASE_EACH(kernel_set, s, sets)

/* Few rows. */
static bool
has_dots(const kernel_set *set)
{
    return strcmp(set->isa, "amx") != 0 && strcmp(set->isa, "avx512_bf16") != 0;
}

static size_t
workspace(const air_call *call, int threads)
{
    size_t plain = cpu_mm_workspace(call, threads);
#if defined(__x86_64__)
    size_t amx = cpu_gemm_on_amx(call, "amx")
                     ? cpu_gemm_amx_workspace(call, threads)
                     : 0;
    if (amx > plain)
        plain = amx;
    size_t pairs = cpu_gemm_on_pairs(call, "avx512_bf16")
                       ? cpu_gemm_pairs_workspace(call, threads)
                       : 0;
    if (pairs > plain)
        plain = pairs;
#endif
    return plain;
}

/* Well above the rounding of such sums, far below a missing term. */
static double
tolerance(int dtype, int64_t k)
{
    double size = sqrt((double)k) + 1;
    return dtype == AIR_BF16  ? size / 128
           : dtype == AIR_F16 ? size / 1024
           : dtype == AIR_F32 ? (double)k * 2e-7 + 1e-6
           : dtype == AIR_F64 ? (double)k * 1e-15
                              : 0;
}

typedef struct {
    int64_t m, n, k;
    int dtype;
    bool a_turned, b_turned;
    int64_t pad, shift;
    int threads;
} mm_case;

/* A matrix as doubles, turned if `turn`: rows are what a dot product reads. */
static double *
rows_of(const kernel_case *c, int tensor, bool turn, int64_t rows, int64_t k)
{
    double *out = kcase_new((size_t)(rows * k + 1) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t x = 0; x < k; x++)
            out[i * k + x] = kcase_get(
                c, tensor,
                kcase_at(c, tensor, (int64_t[]){turn ? x : i, turn ? i : x}));
    return out;
}

static double
worst_error(const kernel_case *c, const mm_case *p, int a, int b, int y)
{
    double worst = 0;
    double *x = rows_of(c, a, false, p->m, p->k);
    double *w = rows_of(c, b, true, p->n, p->k);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += x[i * p->k + k] * w[j * p->k + k];
            double err = fabs(kcase_get(c, y, i * p->n + j) - sum);
            worst = kcase_worse(worst, err);
        }
    kcase_free(x, (size_t)(p->m * p->k + 1) * sizeof *x);
    kcase_free(w, (size_t)(p->n * p->k + 1) * sizeof *w);
    return worst;
}

static void
check_mm(const kernel_set *set, const mm_case *p)
{
    static const int turned[] = {1, 0};
    kernel_case c;
    kcase_begin(&c, (uint64_t)(p->m + 3 * p->n + 5 * p->k));
    int a = kcase_tensor(&c, p->dtype, 2, (int64_t[]){p->m, p->k},
                         p->a_turned ? turned : NULL, p->pad, p->shift);
    int b = kcase_tensor(&c, p->dtype, 2, (int64_t[]){p->k, p->n},
                         p->b_turned ? turned : NULL, p->pad, p->shift);
    int y = kcase_tensor(&c, p->dtype, 2, (int64_t[]){p->m, p->n}, NULL, 0, 0);
    air_arg args[] = {kcase_arg(&c, a), kcase_arg(&c, b)};
    air_call call = {.nargs = 2, .nouts = 1, .args = args, .outs = &c.t[y]};
#if defined(__x86_64__)
    bool large = p->m > GEMV_MAX && p->n > GEMV_MAX && p->k >= 32;
    CHECK(cpu_gemm_on_amx(&call, "amx") == (large && p->dtype == AIR_BF16));
#endif
    if (!KCASE_TAKES(set, &call)) {
        kcase_end(&c);
        return;
    }
    kcase_run(&c, set->mm, workspace, &call, p->threads);
    double worst = worst_error(&c, p, a, b, y);
    if (!CHECK(worst <= tolerance(p->dtype, p->k)))
        printf("  %s m %d n %d k %d %s%s%s pad %d threads %d: %g\n", set->isa,
               (int)p->m, (int)p->n, (int)p->k,
               air_dtype_text((air_dtype)p->dtype), p->a_turned ? " At" : "",
               p->b_turned ? " Bt" : "", (int)p->pad, p->threads, worst);
    kcase_end(&c);
}

/* All layouts of one size. */
static void
check_layouts(const kernel_set *set, mm_case p)
{
    for (int i = 0; i < 8; i++) {
        p.a_turned = i & 1;
        p.b_turned = i & 2;
        p.pad = i & 4 ? 3 : 0;
        p.shift = i & 4 ? 1 : 0;
        p.threads = i % 3 + 1;
        check_mm(set, &p);
    }
}

TEST(mm_small_sizes)
{
    static const int64_t sizes[] = {1, 2, 7, 13, 17, 33};
    EACH_SET(s)
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 6; k++)
                check_layouts(s, (mm_case){.m = sizes[i],
                                           .n = sizes[j],
                                           .k = sizes[k],
                                           .dtype = AIR_F32});
}

/* Many rows, few columns: vectors that end behind a row, the last rows of a
 * thread, depths and columns up to the most and one more. */
TEST(mm_thin)
{
    static const int64_t rows[] = {32, 41, 135};
    static const int64_t depths[] = {0, 1, 16, 17, 128, 129};
    EACH_SET(s)
    for (int64_t n = 1; n <= 17; n++)
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < 6; k++)
                check_layouts(s, (mm_case){.m = rows[i],
                                           .n = n,
                                           .k = depths[k],
                                           .dtype = AIR_F32});
}

/* Sums of more than one block; w that ends with its last number. */
TEST(mm_thin_deep)
{
    static const int64_t sizes[] = {2, 3, 5, 8, 9, 16};
    EACH_SET(s)
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            for (int64_t k = 257; k < 800; k += 300)
                check_layouts(s, (mm_case){.m = sizes[i],
                                           .n = sizes[j],
                                           .k = k,
                                           .dtype = AIR_F32});
}

TEST(mm_few_rows)
{
    EACH_SET(s)
    for (int64_t m = 1; m <= 14; m++)
        for (int64_t k = 60; k <= 67; k += 7)
            for (int d = AIR_F32; d <= AIR_F16; d++)
                check_layouts(s,
                              (mm_case){.m = m, .n = 150, .k = k, .dtype = d});
}

/* Pieces of k, a last one that is no whole vector, rows of x in two tiles. */
TEST(mm_few_rows_deep)
{
    EACH_SET(s)
    for (int64_t m = 1; m <= 12; m += 11)
        for (int d = AIR_BF16; d <= AIR_F16; d++)
            check_layouts(s, (mm_case){.m = m, .n = 35, .k = 4100, .dtype = d});
}

/* Lanes in several pieces, a last one that is no whole panel, and more of k
 * than rows of w are copied of. */
TEST(mm_few_rows_wide)
{
    EACH_SET(s)
    for (int64_t m = 1; m <= 12; m += 11)
        for (int d = AIR_F32; d <= AIR_F16; d++)
            check_layouts(
                s, (mm_case){.m = m, .n = 8300 / m, .k = 203, .dtype = d});
}

/* Rows of the result with one column for each row of w: how rows of w fall into
 * tiles and threads must not change a bit of a sum. */
TEST(mm_few_rows_any_threads)
{
    enum { N = 251, K = 2311 }; /* odd, and k longer than a sum in floats */
    EACH_SET(s)
    for (int64_t m = 1; m <= 8 && has_dots(s); m += 7) {
        float first[8 * N];
        for (int threads = 1; threads <= 3; threads++) {
            kernel_case c;
            kcase_begin(&c, 1);
            int a = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){m, K}, NULL, 0, 0);
            int b = kcase_tensor(&c, AIR_BF16, 2, (int64_t[]){K, N},
                                 (int[]){1, 0}, 0, 0);
            int y = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){m, N}, NULL, 0, 0);
            air_arg args[] = {kcase_arg(&c, a), kcase_arg(&c, b)};
            air_call call = {2, 1, args, &c.t[y], NULL};
            kcase_run(&c, s->mm, cpu_mm_workspace, &call, threads);
            mm_case p = {.m = m, .n = N, .k = K};
            CHECK(worst_error(&c, &p, a, b, y) <= 3e-5);
            for (int64_t i = 0; i < m * N; i++) {
                float v = (float)kcase_get(&c, y, i);
                first[i] = threads == 1 ? v : first[i];
                CHECK(v == first[i]);
            }
            kcase_end(&c);
        }
    }
}

TEST(mm_blocks)
{
    static const mm_case cases[] = {
        {.m = 100, .n = 301, .k = 270}, {.m = 301, .n = 100, .k = 513},
        {.m = 16, .n = 600, .k = 1024}, {.m = 600, .n = 20, .k = 77},
        {.m = 20, .n = 300, .k = 4100}, {.m = 3, .n = 30, .k = 9001},
    };
    EACH_SET(s)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_case p = cases[i];
        p.dtype = i % 3 == 0 ? AIR_BF16 : AIR_F32;
        check_layouts(s, p);
    }
}

/* Depths and columns that share sets of the cache; columns that end inside of a
 * line; more lanes than rows by far. */
TEST(mm_shared_sets)
{
    static const int64_t sizes[][3] = {{40, 83, 1024},
                                       {300, 97, 1024},
                                       {33, 1024, 200},
                                       {270, 29, 384},
                                       {192, 320, 270}};
    EACH_SET(s)
    {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_layouts(s, (mm_case){.m = sizes[i][0],
                                       .n = sizes[i][1],
                                       .k = sizes[i][2],
                                       .dtype = AIR_F32});
    }
}

/* Panels that are more than the cache's: parts of the depth meet all rows, of
 * which there are more than sums are kept of. Threads that split lanes or rows
 * must not change a bit. */
static void
check_deep(const kernel_set *set, mm_case p)
{
    static const int turned[] = {1, 0};
    float *first = kcase_new((size_t)(p.m * p.n) * sizeof *first);
    for (p.threads = 1; p.threads <= 3; p.threads++) {
        kernel_case c;
        kcase_begin(&c, 7);
        int a = kcase_tensor(&c, p.dtype, 2, (int64_t[]){p.m, p.k},
                             p.a_turned ? turned : NULL, p.pad, p.shift);
        int b = kcase_tensor(&c, p.dtype, 2, (int64_t[]){p.k, p.n},
                             p.b_turned ? turned : NULL, p.pad, p.shift);
        int y = kcase_tensor(&c, p.dtype, 2, (int64_t[]){p.m, p.n}, NULL, 0, 0);
        air_arg args[] = {kcase_arg(&c, a), kcase_arg(&c, b)};
        air_call call = {2, 1, args, &c.t[y], NULL};
        if (KCASE_TAKES(set, &call)) {
            kcase_run(&c, set->mm, workspace, &call, p.threads);
            if (p.threads == 1)
                CHECK(worst_error(&c, &p, a, b, y) <= tolerance(p.dtype, p.k));
            for (int64_t i = 0; i < p.m * p.n; i++) {
                float v = (float)kcase_get(&c, y, i);
                first[i] = p.threads == 1 ? v : first[i];
                CHECK(v == first[i]);
            }
        }
        kcase_end(&c);
    }
    kcase_free(first, (size_t)(p.m * p.n) * sizeof *first);
}

TEST(mm_deep)
{
    static const mm_case cases[] = {
        {.m = 257, .n = 470, .k = 801, .dtype = AIR_F32},
        {.m = 131, .n = 470, .k = 2048, .dtype = AIR_F32},
        {.m = 230, .n = 131, .k = 2050, .dtype = AIR_BF16},
    };
    EACH_SET(s)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_case p = cases[i];
        p.b_turned = true;
        check_deep(s, p);
    }
}

/* Gradients: sums that go where they belong at once. More rows and lanes than
 * a block has, last panels that are not full, rows that share sets of the
 * cache, parts of the depth; threads that split lanes, rows, or both. */
TEST(mm_gradients)
{
    static const int64_t sizes[][3] = {{801, 45, 200}, {45, 1093, 70},
                                       {60, 295, 391}, {1093, 40, 33},
                                       {30, 88, 1024}, {1024, 56, 65}};
    EACH_SET(s)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int layout = 0; layout < 8; layout++)
            check_deep(s, (mm_case){.m = sizes[i][0],
                                    .n = sizes[i][1],
                                    .k = sizes[i][2],
                                    .dtype = AIR_F32,
                                    .a_turned = layout & 1,
                                    .b_turned = layout & 2,
                                    .pad = layout & 4 ? 3 : 0,
                                    .shift = layout & 4 ? 1 : 0});
}

TEST(mm_dtypes)
{
    static const int dtypes[] = {AIR_F64, AIR_BF16, AIR_F16, AIR_I8,
                                 AIR_U8,  AIR_I16,  AIR_I32, AIR_I64};
    EACH_SET(s)
    for (int i = 0; i < 8; i++)
        check_layouts(s,
                      (mm_case){.m = 19, .n = 23, .k = 9, .dtype = dtypes[i]});
}

TEST(mm_empty)
{
    EACH_SET(s)
    {
        check_mm(
            s,
            &(mm_case){.m = 0, .n = 4, .k = 3, .dtype = AIR_F32, .threads = 2});
        check_mm(
            s,
            &(mm_case){.m = 4, .n = 0, .k = 3, .dtype = AIR_F32, .threads = 2});
        for (int d = AIR_F32; d <= AIR_BF16; d++) {
            check_mm(s, &(mm_case){
                            .m = 4, .n = 20, .k = 0, .dtype = d, .threads = 2});
            check_mm(
                s,
                &(mm_case){.m = 40, .n = 20, .k = 0, .dtype = d, .threads = 2});
        }
    }
}

/* One NaN or infinity in a row of a reaches that row of the result only. */
static void
check_special(const kernel_set *set, int64_t m, double value)
{
    enum { N = 40, K = 37 };
    kernel_case c;
    kcase_begin(&c, 7);
    int a = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){m, K}, NULL, 0, 0);
    int b =
        kcase_tensor(&c, AIR_F32, 2, (int64_t[]){K, N}, (int[]){1, 0}, 0, 0);
    int y = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){m, N}, NULL, 0, 0);
    air_arg args[] = {kcase_arg(&c, a), kcase_arg(&c, b)};
    air_call call = {.nargs = 2, .nouts = 1, .args = args, .outs = &c.t[y]};
    kcase_put(&c, a, (m - 1) * K + K - 1, value);
    if (!KCASE_TAKES(set, &call)) {
        kcase_end(&c);
        return;
    }
    kcase_run(&c, set->mm, workspace, &call, 2);
    for (int64_t i = 0; i < m * N; i++) {
        double got = kcase_get(&c, y, i);
        bool last = i / N == m - 1;
        bool same = isnan(value) ? isnan(got) : isinf(got);
        CHECK(last ? same : isfinite(got));
    }
    kcase_end(&c);
}

TEST(mm_nan_and_infinity)
{
    EACH_SET(s)
    for (int64_t m = 1; m <= 41; m += 8) {
        check_special(s, m, (double)NAN);
        check_special(s, m, (double)INFINITY);
    }
}

/* ---- batches, self, vectors ---------------------------------------------- */

typedef struct {
    int64_t batch, m, n, k;
    int dtype;
    bool b_shared; /* stride 0 over the batch */
    int self_kind; /* 0: [n]; 1: [batch, m, n]; 2: [m, 1]; 3: number */
    double beta, alpha;
    int threads;
} badd_case;

static int
self_tensor(kernel_case *c, const badd_case *p)
{
    switch (p->self_kind) {
    case 0: return kcase_tensor(c, p->dtype, 1, (int64_t[]){p->n}, NULL, 0, 0);
    case 1:
        return kcase_tensor(c, p->dtype, 3, (int64_t[]){p->batch, p->m, p->n},
                            (int[]){2, 0, 1}, 0, 0);
    case 2:
        return kcase_tensor(c, p->dtype, 2, (int64_t[]){p->m, 1}, NULL, 0, 0);
    default: return kcase_tensor(c, p->dtype, 0, NULL, NULL, 0, 0);
    }
}

static double
self_at(const kernel_case *c, int s, const int64_t *index)
{
    const air_tensor *t = &c->t[s];
    int64_t at = 0;
    for (int i = 0; i < t->rank; i++)
        at += t->dims[i] > 1 ? index[3 - t->rank + i] * t->strides[i] : 0;
    return kcase_get(c, s, at);
}

static void
check_baddbmm(const kernel_set *set, const badd_case *p)
{
    kernel_case c;
    double worst = 0;
    kcase_begin(&c, 11);
    int s = self_tensor(&c, p);
    int a = kcase_tensor(&c, p->dtype, 3, (int64_t[]){p->batch, p->m, p->k},
                         (int[]){1, 0, 2}, 0, 0);
    int b = kcase_tensor(&c, p->dtype, 3,
                         (int64_t[]){p->b_shared ? 1 : p->batch, p->k, p->n},
                         (int[]){0, 2, 1}, 0, 0);
    int y = kcase_tensor(&c, p->dtype, 3, (int64_t[]){p->batch, p->m, p->n},
                         NULL, 0, 0);
    if (p->b_shared)
        kcase_expand(&c, b, 0, p->batch);
    if (p->beta == 0)
        kcase_put(&c, s, 0, (double)NAN);
    air_arg args[] = {kcase_arg(&c, s), kcase_arg(&c, a), kcase_arg(&c, b),
                      kcase_float(p->beta), kcase_float(p->alpha)};
    air_call call = {.nargs = 5, .nouts = 1, .args = args, .outs = &c.t[y]};
    if (!KCASE_TAKES(set, &call)) {
        kcase_end(&c);
        return;
    }
    kcase_run(&c, set->baddbmm, workspace, &call, p->threads);
    for (int64_t i = 0; i < p->batch * p->m * p->n; i++) {
        int64_t at[] = {i / p->n / p->m, i / p->n % p->m, i % p->n};
        double sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum +=
                kcase_get(&c, a,
                          kcase_at(&c, a, (int64_t[]){at[0], at[1], k})) *
                kcase_get(&c, b, kcase_at(&c, b, (int64_t[]){at[0], k, at[2]}));
        sum *= p->alpha;
        if (p->beta != 0)
            sum += p->beta * self_at(&c, s, at);
        double err = fabs(kcase_get(&c, y, i) - sum);
        worst = kcase_worse(worst, err);
    }
    if (!CHECK(worst <= 4 * tolerance(p->dtype, p->k)))
        printf("  %s %d x %d,%d,%d self %d %g\n", set->isa, (int)p->batch,
               (int)p->m, (int)p->n, (int)p->k, p->self_kind, worst);
    kcase_end(&c);
}

TEST(baddbmm_against_double)
{
    /* batch, rows, columns, depth; from {4, 5, 5, 5} on of a few numbers */
    static const int64_t sizes[][4] = {
        {1, 20, 30, 40}, {3, 1, 65, 33}, {7, 40, 33, 20}, {4, 5, 5, 5},
        {35, 3, 3, 3},   {5, 300, 2, 2}, {18, 2, 300, 3}, {16, 6, 6, 1},
        {4, 1, 1, 256},  {9, 6, 40, 8},  {4, 3, 2, 0},    {6, 1, 50, 20},
        {4, 70, 1, 33},  {2, 1, 16, 17}, {1, 1, 8, 40},   {5, 1, 32, 33},
        {1, 1, 56, 16},  {2, 40, 9, 20}, {1, 70, 5, 100}, {3, 33, 16, 3},
        {1, 4, 8, 300},  {2, 9, 3, 500}};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    EACH_SET(s)
    for (int i = 0; i < COUNT; i++)
        for (int kind = 0; kind < 4; kind++)
            for (int d = AIR_F32; d <= AIR_F16; d++)
                check_baddbmm(
                    s, &(badd_case){sizes[i][0], sizes[i][1], sizes[i][2],
                                    sizes[i][3], d, kind % 2 == 0, kind,
                                    kind == 1 ? 0 : 0.5, -2, 1 + kind % 3});
}

TEST(baddbmm_integers)
{
    EACH_SET(s)
    check_baddbmm(s, &(badd_case){2, 5, 7, 9, AIR_I32, false, 1, 3, 2, 2});
}

/* addmm with a bias, into a block of a wider matrix. */
static void
check_strided_result(const int64_t N, const int64_t K)
{
    enum { M = 37 };
    EACH_SET(set)
    {
        kernel_case c;
        kcase_begin(&c, 3);
        int s = kcase_tensor(&c, AIR_F32, 1, (int64_t[]){N}, NULL, 0, 0);
        int a = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){M, K}, NULL, 0, 0);
        int b = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){K, N}, NULL, 0, 0);
        int y = kcase_tensor(&c, AIR_F32, 2, (int64_t[]){M, N}, NULL, 5, 0);
        air_arg args[] = {kcase_arg(&c, s), kcase_arg(&c, a), kcase_arg(&c, b),
                          kcase_int(1), kcase_int(2)};
        air_call call = {5, 1, args, &c.t[y], NULL};
        double before = kcase_get(&c, y, N);
        if (!KCASE_TAKES(set, &call)) {
            kcase_end(&c);
            continue;
        }
        kcase_run(&c, set->addmm, workspace, &call, 2);
        CHECK(kcase_get(&c, y, N) == before); /* between the rows */
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                double sum = kcase_get(&c, s, j);
                for (int64_t k = 0; k < K; k++)
                    sum += 2 * kcase_get(&c, a, i * K + k) *
                           kcase_get(&c, b, k * N + j);
                CHECK_NEAR(kcase_get(&c, y, i * (N + 5) + j), sum, 3e-5);
            }
        kcase_end(&c);
    }
}

TEST(addmm_strided_result)
{
    check_strided_result(50, 130);
    check_strided_result(7, 20);
    check_strided_result(16, 3);
}

/* bf16: blocks, groups of panels, padded rows and depths, either side packed.
 */
TEST(mm_bf16_sizes)
{
    static const int64_t m[] = {13, 16, 33, 70}, n[] = {14, 33, 96, 600};
    static const int64_t k[] = {32, 33, 95, 640};
    EACH_SET(s)
    for (int i = 0; i < 64; i++)
        check_layouts(s, (mm_case){.m = m[i % 4],
                                   .n = n[i / 4 % 4],
                                   .k = k[i / 16],
                                   .dtype = AIR_BF16});
}

/* Sums in parts of the depth, over more panels than meet one part, the last of
 * both no whole one; rows in place and packed. */
TEST(mm_bf16_parts)
{
    static const int64_t sizes[][3] = {
        {70, 300, 651}, {200, 330, 400}, {40, 1100, 803}, {330, 40, 512}};
    EACH_SET(s)
    for (int i = 0; i < 4; i++)
        check_layouts(s, (mm_case){.m = sizes[i][0],
                                   .n = sizes[i][1],
                                   .k = sizes[i][2],
                                   .dtype = AIR_BF16});
}

/* addmm: integers are exact; bias, matrix or single column added, into a block
 * of a wider matrix. */
static void
check_add(const kernel_set *set, uint8_t dtype, int64_t m, int64_t n, int64_t k,
          int kind, double alpha)
{
    const double room = dtype == AIR_F32 ? 1e6 : dtype == AIR_F16 ? 2e3 : 256;
    kernel_case c;
    kcase_begin(&c, (uint64_t)(m + n));
    c.integral = true;
    int s = kcase_tensor(&c, dtype, 2,
                         (int64_t[]){kind > 0 ? m : 1, kind < 2 ? n : 1}, NULL,
                         0, 0);
    int a = kcase_tensor(&c, dtype, 2, (int64_t[]){m, k}, NULL, 0, 0);
    int b = kcase_tensor(&c, dtype, 2, (int64_t[]){k, n}, (int[]){1, 0}, 0, 0);
    int y = kcase_tensor(&c, dtype, 2, (int64_t[]){m, n}, NULL, 5, 0);
    air_arg args[] = {kcase_arg(&c, s), kcase_arg(&c, a), kcase_arg(&c, b),
                      kcase_int(2), kcase_float(alpha)};
    air_call call = {5, 1, args, &c.t[y], NULL};
#if defined(__x86_64__)
    CHECK(cpu_gemm_on_amx(&call, "amx") == (dtype == AIR_BF16));
    CHECK(!cpu_gemm_on_amx(&call, "avx512"));
#endif
    if (!KCASE_TAKES(set, &call)) {
        kcase_end(&c);
        return;
    }
    kcase_run(&c, set->addmm, workspace, &call, 3);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 2 * kcase_get(&c, s,
                                       kind == 0   ? j
                                       : kind == 1 ? i * n + j
                                                   : i);
            for (int64_t x = 0; x < k; x++)
                sum += alpha * kcase_get(&c, a, i * k + x) *
                       kcase_get(&c, b, x + j * k);
            double got = kcase_get(&c, y, i * (n + 5) + j);
            CHECK(isnan(sum) ? isnan(got)
                             : fabs(got - sum) <= fabs(sum) / room);
        }
    kcase_end(&c);
}

/* Either side in the lanes, full panels and the rest of one. */
TEST(addmm_dtypes)
{
    EACH_SET(s)
    for (int kind = 0; kind < 3; kind++)
        for (uint8_t d = AIR_F32; d <= AIR_F16; d++) {
            check_add(s, d, 100, 70, 64, kind, 1);
            check_add(s, d, 70, 200, 64, kind, 1);
            check_add(s, d, 20, 130, 96, kind, 1); /* few rows */
            check_add(s, d, 40, 70, 64, kind, (double)NAN);
        }
}
