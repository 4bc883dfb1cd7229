/* small_isa.c: batches of products of a few numbers each (rotations,
 * covariances, states of filters), compiled once per instruction set.
 *
 * A lane is a product: those of LANES products are turned around, computed
 * side by side and turned back. Parts of rows and columns, where there are
 * many, are as large as fits. */
#include "driver/cpu/product/gemm_isa.h"

enum { LANES = 16, PART = 256 };

#if defined __FMA__
#define FMA_float(a, b, c)  __builtin_fmaf(a, b, c)
#define FMA_double(a, b, c) __builtin_fma(a, b, c)
#else
#define FMA_float(a, b, c)  ((a) * (b) + (c))
#define FMA_double(a, b, c) ((a) * (b) + (c))
#endif

#define SMALL(T, ALPHA, BETA)                                                  \
    /* Numbers [first, first + count) of a factor, all of its depth. */        \
    static void turn_##T(T(*to)[LANES], const gemm_view *v, int64_t first,     \
                         int64_t count, int64_t k, int64_t step, int64_t n)    \
    {                                                                          \
        const T *from = (const T *)v->p + first * v->rs;                       \
        for (int64_t l = 0; l < n; l++, from += step)                          \
            for (int64_t i = 0; i < count; i++)                                \
                for (int64_t j = 0; j < k; j++)                                \
                    to[i * k + j][l] = from[i * v->rs + j * v->ks];            \
    }                                                                          \
    static void sum_##T(T *restrict sum, const T(*x)[LANES],                   \
                        const T(*w)[LANES], int64_t k)                         \
    {                                                                          \
        for (int l = 0; l < LANES; l++)                                        \
            sum[l] = 0;                                                        \
        for (int64_t j = 0; j < k; j++)                                        \
            for (int l = 0; l < LANES; l++)                                    \
                sum[l] = FMA_##T(x[j][l], w[j][l], sum[l]);                    \
    }                                                                          \
    static void put_##T(const gemm_batch *b, const T *sum, int64_t at,         \
                        int64_t row, int64_t col, int64_t n)                   \
    {                                                                          \
        const gemm_job *job = &b->job;                                         \
        T *y = (T *)job->y + row * job->yl + col * job->yr + at * b->y_step;   \
        const T *s = job->s;                                                   \
        if (s != NULL)                                                         \
            s += row * job->sl + col * job->sr + at * b->s_step;               \
        for (int64_t l = 0; l < n; l++)                                        \
            y[l * b->y_step] = job->ALPHA * sum[l] +                           \
                               (s == NULL ? 0 : job->BETA * s[l * b->s_step]); \
    }                                                                          \
    static void products_##T(const gemm_batch *b, int64_t begin, int64_t end)  \
    {                                                                          \
        const gemm_job *job = &b->job;                                         \
        const int64_t k = job->k, part = k > 0 ? PART / k : PART;              \
        T x[PART][LANES] = {{0}}, w[PART][LANES] = {{0}}, sum[LANES];          \
        for (int64_t at = begin, n; at < end; at += n) {                       \
            n = end - at < LANES ? end - at : LANES;                           \
            gemm_view xv = job->x, wv = job->w;                                \
            xv.p = (const T *)xv.p + at * b->x_step;                           \
            wv.p = (const T *)wv.p + at * b->w_step;                           \
            for (int64_t c = 0, nc; c < job->nw; c += nc) {                    \
                nc = job->nw - c < part ? job->nw - c : part;                  \
                turn_##T(w, &wv, c, nc, k, b->w_step, n);                      \
                for (int64_t r = 0, nr; r < job->nx; r += nr) {                \
                    nr = job->nx - r < part ? job->nx - r : part;              \
                    turn_##T(x, &xv, r, nr, k, b->x_step, n);                  \
                    for (int64_t i = 0; i < nr * nc; i++) {                    \
                        sum_##T(sum, (const T(*)[LANES])x + i / nc * k,        \
                                (const T(*)[LANES])w + i % nc * k, k);         \
                        put_##T(b, sum, at, r + i / nc, c + i % nc, n);        \
                    }                                                          \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }
SMALL(float, alpha, beta)
SMALL(double, alpha64, beta64)

void
ISA_NAME(small_products)(const gemm_batch *b, int64_t begin, int64_t end)
{
    if (b->job.y_dtype == AIR_F64)
        products_double(b, begin, end);
    else
        products_float(b, begin, end);
}
