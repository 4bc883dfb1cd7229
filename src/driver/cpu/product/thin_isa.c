/* thin_isa.c: products of few columns: of many rows (coordinates into a small
 * network, and its last layer), and of few rows that are deep (gradients of
 * these factors), compiled once per instruction set.
 *
 * Columns lie in the lanes, so that a row of the result is one or two vectors:
 * kernels whose lanes lie along k or along the rows would sum lanes of mostly
 * nothing, or turn the result around. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

enum { VECTORS = GEMM_THIN / VL };

typedef struct {
    vf w[GEMM_THIN_DEPTH][VECTORS]; /* zeros behind the last column */
    vf start[VECTORS];              /* beta s */
} factor;

static void
take_factor(const gemm_job *job, factor *f)
{
    const float *w = job->w.p, *s = job->s;
    float row[GEMM_THIN] = {0};

    for (int64_t k = 0; k < job->k; k++) {
        for (int64_t c = 0; c < job->nw; c++)
            row[c] = w[c * job->w.rs + k * job->w.ks];
        memcpy(f->w[k], row, sizeof row);
    }
    for (int64_t c = 0; c < job->nw; c++)
        row[c] = s == NULL ? 0 : job->beta * s[c * job->sr];
    memcpy(f->start, row, sizeof row);
}

/* R rows from `at` on, V vectors of each. */
INLINE void
sum_rows(const gemm_job *job, const factor *f, const int R, const int V,
         int64_t at, float (*out)[GEMM_THIN])
{
    const int64_t rs = job->x.rs, ks = job->x.ks;
    const float *x = (const float *)job->x.p + at * rs;
    const vf alpha = set(job->alpha);
    vf sum[8][VECTORS];

    UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
        sum[i][j] = (vf){0};
    for (int64_t k = 0; k < job->k; k++, x += ks)
        UNROLL for (int i = 0; i < R; i++)
        {
            const vf one = set(x[i * rs]);
            UNROLL for (int j = 0; j < V; j++) sum[i][j] =
                fma_(one, f->w[k][j], sum[i][j]);
        }
    UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
        store(out[i] + j * VL, fma_(alpha, sum[i][j], f->start[j]));
}

/* ---- few rows, too, and deep: gradients of such factors -------------------
 */

/* A row of w, of which memory may end with the last number. */
INLINE void
load_row(const gemm_job *job, const int V, int64_t k, vf *out)
{
    const float *w = (const float *)job->w.p + k * job->w.ks;
    float row[GEMM_THIN] = {0};

    if ((job->k - 1 - k) * job->w.ks + job->nw < V * VL) {
        for (int64_t c = 0; c < job->nw; c++)
            row[c] = w[c];
        w = row;
    }
    UNROLL for (int j = 0; j < V; j++) out[j] = load(w + j * VL);
}

/* R rows of y from `at` on; no sum is longer than GEMM_KB. */
INLINE void
sum_deep(const gemm_job *job, const int R, const int V, int64_t at,
         float (*out)[GEMM_THIN])
{
    const int64_t rs = job->x.rs, ks = job->x.ks;
    const float *x = (const float *)job->x.p + at * rs;
    vf total[4][VECTORS], sum[4][VECTORS], w[VECTORS];

    UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
        total[i][j] = (vf){0};
    for (int64_t k = 0; k < job->k;) {
        const int64_t end = min64(k + GEMM_KB, job->k);
        UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
            sum[i][j] = (vf){0};
        for (; k < end; k++) {
            load_row(job, V, k, w);
            UNROLL for (int i = 0; i < R; i++)
                UNROLL for (int j = 0; j < V; j++) sum[i][j] =
                    fma_(set(x[i * rs + k * ks]), w[j], sum[i][j]);
        }
        UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
            total[i][j] += sum[i][j];
    }
    UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < V; j++)
        store(out[i] + j * VL, total[i][j]);
}

INLINE void
walk_deep(const gemm_job *job, const int R, const int V, int64_t b, int64_t e)
{
    const float *s = job->s;
    float out[4][GEMM_THIN];

    for (int64_t n; b < e; b += n) {
        n = min64(e - b, R);
        switch (n) {
        case 4: sum_deep(job, 4, V, b, out); break;
        case 3: sum_deep(job, 3, V, b, out); break;
        case 2: sum_deep(job, 2, V, b, out); break;
        default: sum_deep(job, 1, V, b, out);
        }
        for (int64_t i = 0; i < n * job->nw; i++) {
            const int64_t l = i / job->nw, c = i % job->nw;
            float *y = (float *)job->y + (b + l) * job->yl + c * job->yr;
            *y = job->alpha * out[l][c] +
                 (s == NULL ? 0
                            : job->beta * s[(b + l) * job->sl + c * job->sr]);
        }
    }
}

static void
take_deep(const gemm_job *job, int64_t b, int64_t e)
{
    if (job->nw <= VL)
        walk_deep(job, 4, 1, b, e);
    else
        walk_deep(job, 2, VECTORS, b, e);
}

/* ---- many rows ------------------------------------------------------------
 */

/* A row as whole vectors where what lies behind it, up to `end`, is written
 * later. */
INLINE void
put_row(float *y, const float *row, const int V, int64_t n, const float *end)
{
    if (end - y >= V * VL)
        UNROLL for (int j = 0; j < V; j++)
            store(y + j * VL, load(row + j * VL));
    else
        for (int64_t c = 0; c < n; c++)
            y[c] = row[c];
}

INLINE void
walk_rows(const gemm_job *job, const factor *f, const int R, const int V,
          int64_t b, int64_t e)
{
    float out[8][GEMM_THIN];
    float *y = job->y;
    const float *end = job->yl == job->nw ? y + e * job->yl : y;

    for (; e - b >= R; b += R) {
        sum_rows(job, f, R, V, b, out);
        for (int i = 0; i < R; i++)
            put_row(y + (b + i) * job->yl, out[i], V, job->nw, end);
    }
    for (; b < e; b++) {
        sum_rows(job, f, 1, V, b, out);
        put_row(y + b * job->yl, out[0], V, job->nw, end);
    }
}

static void
take_tall(const gemm_job *job, int64_t b, int64_t e)
{
    factor f;

    take_factor(job, &f);
    if (job->nw <= VL)
        walk_rows(job, &f, 8, 1, b, e);
#if VL < GEMM_THIN
    else if (job->nw <= 2 * VL)
        walk_rows(job, &f, 4, 2, b, e);
#endif
    else
        walk_rows(job, &f, 2, VECTORS, b, e);
}

/* ---- results that somebody takes line by line -----------------------------
 */

/* y: results of lanes [l, l + n), along rows or along lanes as job->y is. */
static void
give_results(const gemm_job *job, const float *y, int64_t l, int64_t n)
{
    const gemm_lines *lines = job->lines;
    const bool by_rows = job->yr == 1, whole = by_rows && job->yl == job->nw;
    const int64_t size = whole ? n * job->nw : by_rows ? job->nw : n;
    const int64_t step = by_rows ? job->yl : job->yr;
    int64_t at = l * job->yl;

    for (int64_t i = 0; i < n * job->nw; i += size, at += step) {
        if (lines->keep)
            memcpy((float *)job->y + at, y + i, (size_t)size * sizeof *y);
        lines->run(lines->arg, y + i, job->at + at, size);
    }
}

INLINE void
run(const gemm_job *job, int64_t b, int64_t e,
    void (*take)(const gemm_job *job, int64_t b, int64_t e))
{
    enum { SOME = 64 };
    float y[SOME * GEMM_THIN];
    gemm_job one = *job;

    if (job->lines == NULL) {
        take(job, b, e);
        return;
    }
    for (int64_t n; b < e; b += n) {
        n = min64(e - b, SOME);
        one.yl = job->yr == 1 ? job->nw : 1;
        one.yr = job->yr == 1 ? 1 : n;
        one.y = y - b * one.yl;
        take(&one, b, b + n);
        give_results(job, y, b, n);
    }
}

void
ISA_NAME(thin_deep)(const gemm_job *job, int64_t b, int64_t e)
{
    run(job, b, e, take_deep);
}

void
ISA_NAME(thin)(const gemm_job *job, int64_t b, int64_t e)
{
    run(job, b, e, take_tall);
}
