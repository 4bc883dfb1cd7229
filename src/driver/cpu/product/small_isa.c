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
    static void put_##T(const gemm_product *b, const T *sum, int64_t at,       \
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
    static void products_##T(const gemm_product *b, int64_t begin,             \
                             int64_t end)                                      \
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

/* ---- a vector and a matrix ------------------------------------------------
 */

/* Sums lie along rows of the matrix: each product by itself, since to turn the
 * matrix would take longer. */
typedef struct {
    int64_t n, k, ks; /* m[i + j * ks] */
    int64_t ys, ss;
} small_vector;

enum { COLS = 32 };

#define VECTORS(T, ALPHA, BETA)                                                \
    /* n is a constant of each call where it is one of few numbers; two sums   \
     * are under way at a time. */                                             \
    static inline __attribute__((always_inline)) void sums_##T(                \
        T *out, const T *v, const T *m, const small_vector *p,                 \
        const int64_t n)                                                       \
    {                                                                          \
        T sum[COLS] = {0}, odd[COLS] = {0};                                    \
        int64_t j = 0;                                                         \
        for (; j + 1 < p->k; j += 2) {                                         \
            const T *const row = m + j * p->ks;                                \
            _Pragma("GCC unroll 1") for (int64_t l = 0; l < n; l++) sum[l] =   \
                FMA_##T(v[j], row[l], sum[l]);                                 \
            _Pragma("GCC unroll 1") for (int64_t l = 0; l < n; l++) odd[l] =   \
                FMA_##T(v[j + 1], row[p->ks + l], odd[l]);                     \
        }                                                                      \
        for (int64_t l = 0; l < n && j < p->k; l++)                            \
            sum[l] = FMA_##T(v[j], m[j * p->ks + l], sum[l]);                  \
        _Pragma("GCC unroll 1") for (int64_t l = 0; l < n; l++) out[l] =       \
            sum[l] + odd[l];                                                   \
    }                                                                          \
    static void columns_##T(T *out, const T *v, const T *m,                    \
                            const small_vector *p, int64_t n)                  \
    {                                                                          \
        switch (n) {                                                           \
        case COLS: sums_##T(out, v, m, p, COLS); break;                        \
        case COLS / 2: sums_##T(out, v, m, p, COLS / 2); break;                \
        case COLS / 4: sums_##T(out, v, m, p, COLS / 4); break;                \
        default: sums_##T(out, v, m, p, n);                                    \
        }                                                                      \
    }                                                                          \
    static void vectors_##T(const gemm_product *b, const small_vector *p,      \
                            int64_t begin, int64_t end)                        \
    {                                                                          \
        const gemm_job *job = &b->job;                                         \
        const bool row = job->nx == 1;                                         \
        const T *vs = row ? job->x.p : job->w.p;                               \
        const T *ms = row ? job->w.p : job->x.p;                               \
        const int64_t v_step = row ? b->x_step : b->w_step;                    \
        const int64_t m_step = row ? b->w_step : b->x_step;                    \
        T sum[COLS];                                                           \
        for (int64_t at = begin; at < end; at++)                               \
            for (int64_t c = 0, n; c < p->n; c += n) {                         \
                const T *v = vs + at * v_step;                                 \
                const T *m = ms + at * m_step + c;                             \
                const T *s = job->s;                                           \
                T *y = (T *)job->y + at * b->y_step + c * p->ys;               \
                n = p->n - c < COLS ? p->n - c : COLS;                         \
                columns_##T(sum, v, m, p, n);                                  \
                s = s == NULL ? NULL : s + at * b->s_step + c * p->ss;         \
                for (int64_t i = 0; i < n && s == NULL && p->ys == 1; i++)     \
                    y[i] = job->ALPHA * sum[i];                                \
                for (int64_t i = 0; i < n && (s != NULL || p->ys != 1); i++)   \
                    y[i * p->ys] = job->ALPHA * sum[i] +                       \
                                   (s == NULL ? 0 : job->BETA * s[i * p->ss]); \
            }                                                                  \
    }
VECTORS(float, alpha, beta)
VECTORS(double, alpha64, beta64)

static bool
is_vector(const gemm_job *job, small_vector *out)
{
    const bool row = job->nx == 1;
    const gemm_view *v = row ? &job->x : &job->w, *m = row ? &job->w : &job->x;

    *out = (small_vector){.n = row ? job->nw : job->nx,
                          .k = job->k,
                          .ks = m->ks,
                          .ys = row ? job->yr : job->yl,
                          .ss = row ? job->sr : job->sl};
    return (row || job->nw == 1) && job->k >= LANES && v->ks == 1 &&
           m->rs == 1 && m->ks != 1;
}

void
ISA_NAME(small_products)(const gemm_product *b, int64_t begin, int64_t end)
{
    const bool wide = b->job.y_dtype == AIR_F64;
    small_vector p;

    if (is_vector(&b->job, &p))
        (wide ? vectors_double : vectors_float)(b, &p, begin, end);
    else
        (wide ? products_double : products_float)(b, begin, end);
}
