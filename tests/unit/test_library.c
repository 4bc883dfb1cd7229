/* Matrix products by a library of the application. */
#include "kernel_case.h"

#include "driver/cpu/cpu.h"
#include "driver/cpu/product/library.h"

#include <math.h>

typedef struct {
    int calls, refuse_from;
} blas;

static double
at(const double *p, int64_t ld, bool turned, int64_t i, int64_t j)
{
    return turned ? p[j * ld + i] : p[i * ld + j];
}

/* f64 only, in the plainest way. */
static int
blas_gemm(void *user, air_dtype dtype, bool trans_a, bool trans_b, int64_t m,
          int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
          const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    blas *state = user;
    double *y = c;
    if (++state->calls >= state->refuse_from || dtype != AIR_F64)
        return 1;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t x = 0; x < k; x++)
                sum += at(a, lda, trans_a, i, x) * at(b, ldb, trans_b, x, j);
            y[i * ldc + j] =
                alpha * sum + (beta == 0 ? 0 : beta * y[i * ldc + j]);
        }
    return 0;
}

enum { M = 20, N = 30, K = 25 };

static void
check_addmm(bool a_turned, bool b_turned)
{
    blas state = {0, 1000};
    air_library lib = {&state, blas_gemm};
    kernel_case c;
    kcase_begin(&c, 5);
    int s = kcase_tensor(&c, AIR_F64, 1, (int64_t[]){N}, NULL, 0, 0);
    int a = kcase_tensor(&c, AIR_F64, 2, (int64_t[]){M, K},
                         a_turned ? (int[]){1, 0} : NULL, 2, 0);
    int b = kcase_tensor(&c, AIR_F64, 2, (int64_t[]){K, N},
                         b_turned ? (int[]){1, 0} : NULL, 0, 0);
    int y = kcase_tensor(&c, AIR_F64, 2, (int64_t[]){M, N}, NULL, 3, 0);
    air_arg args[] = {kcase_arg(&c, s), kcase_arg(&c, a), kcase_arg(&c, b),
                      kcase_float(0.5), kcase_int(2)};
    air_call call = {5, 1, args, &c.t[y], NULL};
    CHECK(cpu_library_wants(&call, "avx2"));
    for (int id = 0; id < 3; id++)
        cpu_library_begin(&call,
                          &(air_task){.id = id, .count = 3, .slots = c.slots});
    CHECK(cpu_library_call(&lib, &call, c.slots, NULL));
    CHECK_INT(state.calls, 1);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0.5 * kcase_get(&c, s, j);
            for (int64_t k = 0; k < K; k++)
                sum += 2 *
                       kcase_get(&c, a, kcase_at(&c, a, (int64_t[]){i, k})) *
                       kcase_get(&c, b, kcase_at(&c, b, (int64_t[]){k, j}));
            CHECK_NEAR(kcase_get(&c, y, kcase_at(&c, y, (int64_t[]){i, j})),
                       sum, 1e-12);
        }
    kcase_end(&c);
}

TEST(library_addmm)
{
    for (int i = 0; i < 4; i++)
        check_addmm(i & 1, i & 2);
}

/* A refusal in the middle of a batch is a refusal. */
TEST(library_refuses)
{
    blas state = {0, 2};
    air_library lib = {&state, blas_gemm};
    kernel_case c;
    kcase_begin(&c, 5);
    int a = kcase_tensor(&c, AIR_F64, 3, (int64_t[]){3, M, K}, NULL, 0, 0);
    int b = kcase_tensor(&c, AIR_F64, 3, (int64_t[]){3, K, N}, NULL, 0, 0);
    int y = kcase_tensor(&c, AIR_F64, 3, (int64_t[]){3, M, N}, NULL, 0, 0);
    air_arg args[] = {kcase_arg(&c, a), kcase_arg(&c, b)};
    air_call call = {2, 1, args, &c.t[y], NULL};
    CHECK(cpu_library_wants(&call, "scalar"));
    CHECK(!cpu_library_call(&lib, &call, c.slots, NULL));
    CHECK_INT(state.calls, 2);
    kcase_end(&c);
}

static bool
wants_of(int dtype, int64_t m, int64_t stride, bool columns, const char *isa)
{
    air_tensor a = {.dtype = (uint8_t)dtype,
                    .rank = 2,
                    .dims = {m, 512},
                    .strides = {512 * stride, stride}};
    air_tensor b = {.dtype = (uint8_t)dtype,
                    .rank = 2,
                    .dims = {512, 512},
                    .strides = {columns ? 512 : 1, columns ? 1 : 512}};
    air_tensor y = {.dtype = (uint8_t)dtype,
                    .rank = 2,
                    .dims = {m, 512},
                    .strides = {512, 1}};
    air_arg args[] = {{.kind = AIR_ARG_TENSOR, .t = &a},
                      {.kind = AIR_ARG_TENSOR, .t = &b}};
    air_call call = {2, 1, args, &y, NULL};
    return cpu_library_wants(&call, isa);
}

static bool
wants(int dtype, int64_t m, int64_t stride, const char *isa)
{
    return wants_of(dtype, m, stride, false, isa);
}

TEST(library_is_wanted_where_it_pays)
{
    CHECK(wants(AIR_F64, 512, 1, "avx2"));
    CHECK(!wants(AIR_F64, 512, 2, "avx2")); /* BLAS has no such stride */
    CHECK(!wants(AIR_F64, 0, 1, "avx2"));
    CHECK(!wants(AIR_F32, 512, 1, "avx2"));
    CHECK(!wants(AIR_F32, 512, 1, "avx512"));
    CHECK(wants_of(AIR_F32, 512, 1, true, "avx512") == cpu_isa_is_intel());
    CHECK(!wants_of(AIR_F32, 512, 1, true, "avx2"));
    CHECK(!wants(AIR_F32, 4, 1, "avx512"));
    CHECK(wants(AIR_BF16, 512, 1, "avx512"));
    CHECK(!wants(AIR_BF16, 512, 1, "avx2"));
    CHECK(!wants(AIR_BF16, 4, 1, "avx512"));
}
