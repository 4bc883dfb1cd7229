/* gemm_plain.c: f64 sums in f64, integers (bool too) in 64 bits that wrap.
 * alpha and beta of integers are integers. */
#include "driver/cpu/product/gemm_plain.h"

#define BLOCK 256 /* columns whose sums stay in the cache */

#define INT_TYPES(X)    \
    X(AIR_I8, int8_t)   \
    X(AIR_U8, uint8_t)  \
    X(AIR_I16, int16_t) \
    X(AIR_I32, int32_t) \
    X(AIR_I64, int64_t) \
    X(AIR_BOOL, uint8_t)

static uint64_t
int_get(const void *p, int64_t i, int dtype)
{
    switch (dtype) {
#define CASE(id, type) \
    case id: return (uint64_t)((const type *)p)[i];
        INT_TYPES(CASE)
#undef CASE
    default: return 0;
    }
}

static void
int_put(void *p, int64_t i, int dtype, uint64_t v)
{
    switch (dtype) {
#define CASE(id, type) \
    case id: ((type *)p)[i] = id == AIR_BOOL ? (type)(v != 0) : (type)v; break;
        INT_TYPES(CASE)
#undef CASE
    default: break;
    }
}

/* Row l, columns [r, r + n): the inner loop runs over columns, each of which
 * has a sum of its own in t. */
static void
f64_block(const gemm_job *job, int64_t l, int64_t r, int64_t n)
{
    double t[BLOCK] = {0};
    const double *x = (const double *)job->x.p + l * job->x.rs;
    const double *w = (const double *)job->w.p + r * job->w.rs;
    const double *s = job->s;
    double *y = (double *)job->y + l * job->yl + r * job->yr;
    for (int64_t k = 0; k < job->k; k++)
        for (int64_t i = 0; i < n; i++)
            t[i] += x[k * job->x.ks] * w[i * job->w.rs + k * job->w.ks];
    for (int64_t i = 0; i < n; i++) {
        double v = job->alpha64 * t[i];
        if (s != NULL)
            v += job->beta64 * s[l * job->sl + (r + i) * job->sr];
        y[i * job->yr] = v;
    }
}

static void
int_block(const gemm_job *job, int64_t l, int64_t r, int64_t n)
{
    uint64_t t[BLOCK] = {0};
    const gemm_view *x = &job->x, *w = &job->w;
    for (int64_t k = 0; k < job->k; k++) {
        uint64_t a = int_get(x->p, l * x->rs + k * x->ks, x->dtype);
        for (int64_t i = 0; i < n; i++)
            t[i] += a * int_get(w->p, (r + i) * w->rs + k * w->ks, w->dtype);
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = (uint64_t)(int64_t)job->alpha64 * t[i];
        if (job->s != NULL)
            v += (uint64_t)(int64_t)job->beta64 *
                 int_get(job->s, l * job->sl + (r + i) * job->sr, job->s_dtype);
        int_put(job->y, l * job->yl + (r + i) * job->yr, job->y_dtype, v);
    }
}

void
cpu_gemm_plain(const gemm_job *job, const air_task *task)
{
    int64_t b, e, blocks = (job->nw + BLOCK - 1) / BLOCK;
    air_split(job->nx * blocks, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t r = i % blocks * BLOCK;
        int64_t n = job->nw - r < BLOCK ? job->nw - r : BLOCK;
        if (job->x.dtype == AIR_F64)
            f64_block(job, i / blocks, r, n);
        else
            int_block(job, i / blocks, r, n);
    }
}
