/* py_library.c: torch's thread pool and torch's BLAS, found in the libraries
 * that torch has loaded. A second pool beside torch's would make both several
 * times slower; MKL comes with torch, so a second one is not needed either.
 */
#include "py.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

typedef void (*blas_gemm)(const char *ta, const char *tb, const int *m,
                          const int *n, const int *k, const void *alpha,
                          const void *a, const int *lda, const void *b,
                          const int *ldb, const void *beta, void *c,
                          const int *ldc);
static struct {
    void (*parallel)(void (*fn)(void *), void *data, unsigned threads,
                     unsigned flags);
    int (*thread)(void);
    int (*count)(void);
    int (*max)(void);
    blas_gemm sgemm, dgemm;
    int32_t (*from_blob)(void *data, int64_t rank, const int64_t *dims,
                         const int64_t *strides, int64_t offset, int32_t dtype,
                         int32_t device, int32_t index, void **out,
                         int32_t layout, const uint8_t *meta,
                         int64_t meta_size);
    int32_t (*drop)(void *tensor);
    int32_t (*mm_out)(void *out, void *a, void *b);
    int32_t (*addmm_out)(void *out, void *self, void *a, void *b, double beta,
                         double alpha);
} lib;

/* A child of fork() has none of OpenMP's threads, and waits for them for ever:
 * there, regions run on the thread that asks. */
static bool is_child;

static void
in_child(void)
{
    is_child = true;
}

static void
find(void *handle, const char *name, void *slot)
{
    void *found = handle ? dlsym(handle, name) : NULL;
    memcpy(slot, &found, sizeof found);
}

void
py_library_init(const char *torch_lib, const char *gomp_lib)
{
    void *t = dlopen(torch_lib, RTLD_NOLOAD | RTLD_LAZY);
    void *g = *gomp_lib ? dlopen(gomp_lib, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    find(g, "GOMP_parallel", &lib.parallel);
    find(g, "omp_get_thread_num", &lib.thread);
    find(g, "omp_get_num_threads", &lib.count);
    find(g, "omp_get_max_threads", &lib.max);
    find(t, "sgemm_", &lib.sgemm);
    find(t, "dgemm_", &lib.dgemm);
    find(t, "aoti_torch_create_tensor_from_blob_v2", &lib.from_blob);
    find(t, "aoti_torch_delete_tensor_object", &lib.drop);
    find(t, "aoti_torch_cpu_mm_out", &lib.mm_out);
    find(t, "aoti_torch_cpu_addmm_out", &lib.addmm_out);
    static bool watched;
    if (!watched)
        pthread_atfork(NULL, NULL, in_child);
    watched = true;
}

/* ---- threads ---- */

typedef struct {
    void (*fn)(void *arg, int id, int count);
    void *arg;
} region;

static void
enter(void *data)
{
    const region *r = data;
    r->fn(r->arg, lib.thread(), lib.count());
}

static void
run_region(void *user, int threads, void (*fn)(void *arg, int id, int count),
           void *arg)
{
    (void)user;
    region r = {fn, arg};
    if (threads <= 1 || is_child)
        fn(arg, 0, 1);
    else
        lib.parallel(enter, &r, (unsigned)threads, 0);
}

air_parallel
py_library_parallel(void)
{
    bool complete = lib.parallel && lib.thread && lib.count && lib.max;
    return complete ? run_region : NULL;
}

int
py_library_threads(void)
{
    return is_child ? 1 : lib.max ? lib.max() : 0;
}

/* ---- matrix products ---- */

static bool
fits(int64_t v)
{
    return v >= 0 && v <= INT_MAX;
}

typedef struct {
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    const void *a, *b;
    void *c;
} product;

/* BLAS is column-major: C^T = op(B)^T op(A)^T. */
static void
call_blas(blas_gemm gemm, const product *p, const void *alpha, const void *beta)
{
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    const int lda = (int)p->lda, ldb = (int)p->ldb, ldc = (int)p->ldc;
    gemm(p->trans_b ? "T" : "N", p->trans_a ? "T" : "N", &n, &m, &k, alpha,
         p->b, &ldb, p->a, &lda, beta, p->c, &ldc);
}

/* A tensor handle over rows x cols in memory, read transposed if asked. */
static void *
matrix(const void *data, int64_t rows, int64_t cols, int64_t ld, bool trans)
{
    enum { TORCH_BF16 = 15, TORCH_CPU = 0, TORCH_STRIDED = 0 };
    const int64_t dims[2] = {rows, cols};
    const int64_t strides[2] = {trans ? 1 : ld, trans ? ld : 1};
    void *out = NULL, *memory;
    memcpy(&memory, &data, sizeof memory);
    if (lib.from_blob(memory, 2, dims, strides, 0, TORCH_BF16, TORCH_CPU, 0,
                      &out, TORCH_STRIDED, NULL, 0))
        return NULL;
    return out;
}

/* c = alpha a b + beta c, by ATen. */
static int
call_torch(const product *p, double alpha, double beta)
{
    bool plain = !(alpha < 1) && !(alpha > 1) && !(beta < 0) && !(beta > 0);
    if (!lib.from_blob || !lib.drop || (plain ? !lib.mm_out : !lib.addmm_out))
        return 1;
    void *a = matrix(p->a, p->m, p->k, p->lda, p->trans_a);
    void *b = matrix(p->b, p->k, p->n, p->ldb, p->trans_b);
    void *c = matrix(p->c, p->m, p->n, p->ldc, false);
    int failed = !a || !b || !c;
    if (!failed)
        failed = plain ? lib.mm_out(c, a, b)
                       : lib.addmm_out(c, c, a, b, beta, alpha);
    void *handles[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (handles[i] && lib.drop(handles[i]))
            failed = 1;
    return failed;
}

static int
gemm(void *user, air_dtype dtype, bool trans_a, bool trans_b, int64_t m,
     int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
     const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    (void)user;
    const product p = {trans_a, trans_b, m, n, k, lda, ldb, ldc, a, b, c};
    if (is_child && lib.max && lib.max() > 1)
        return 1; /* it would wait for OpenMP's threads */
    if (!fits(m) || !fits(n) || !fits(k) || !fits(lda) || !fits(ldb) ||
        !fits(ldc))
        return 1;
    if (dtype == AIR_F32 && lib.sgemm) {
        const float af = (float)alpha, bf = (float)beta;
        call_blas(lib.sgemm, &p, &af, &bf);
        return 0;
    }
    if (dtype == AIR_F64 && lib.dgemm) {
        call_blas(lib.dgemm, &p, &alpha, &beta);
        return 0;
    }
    return dtype == AIR_BF16 ? call_torch(&p, alpha, beta) : 1;
}

const air_library *
py_library_gemm(const char *name)
{
    static char copy[64];
    static const air_library library = {.gemm = gemm, .name = copy};
    strncpy(copy, name, sizeof copy - 1);
    return lib.sgemm || lib.dgemm || lib.mm_out ? &library : NULL;
}
