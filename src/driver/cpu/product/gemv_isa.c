/* gemv_isa.c: products of few rows with many, compiled once per instruction
 * set. First dot products of few rows of x with many rows of w: lanes lie along
 * k, in torch's own layout.
 *
 * w comes from memory, once, and that is all the time there is. Rows next to
 * each other are a poor order to read it in: a row is a page or less, so every
 * page is found anew by the hardware's prefetcher, and what is fetched behind
 * the end of a row is the next row, already under way. So the rows of a block
 * are read as *streams*: tile s takes row s of every stream, each of which is
 * one long run of memory. */
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#define NEAR    256  /* bytes ahead of the loads of w: to the first cache */
#define FAR     1024 /* and to the second, which has more on the way */
#define DOT_MAX 6    /* rows of x at once */
#define DEPTH   1024 /* of k summed in floats; the rest in doubles */

typedef double vd __attribute__((vector_size(4 * VL)));
typedef float vf_half __attribute__((vector_size(2 * VL)));

INLINE int
size_of(const int D)
{
    return D == AIR_F32 ? 4 : D == AIR_I8 ? 1 : 2;
}

/* VL elements of w. */
INLINE vf
wide(const char *p, const int D)
{
    return D == AIR_I8 ? vget8((const int8_t *)p) : vget(p, 0, D);
}

INLINE double
one(const char *p, int64_t i, const int D)
{
    return D == AIR_I8 ? (double)((const int8_t *)p)[i] : (double)get(p, i, D);
}

/* v's lanes, added in pairs as doubles: a sum across lanes in floats would
 * cost as much accuracy as the whole way along k. */
INLINE vd
pairs(vf v)
{
    vf_half half[2];
    memcpy(half, &v, sizeof v);
    return __builtin_convertvector(half[0], vd) +
           __builtin_convertvector(half[1], vd);
}

/* The upper half to the lower one, and so on, in registers: of short rows such
 * sums are a fifth of the work. */
INLINE double
sum_pairs(vd v)
{
    UNROLL for (int n = VL / 2; n > 1; n /= 2)
    {
        const vi at = (LANE_NUMBERS & (n - 1)) + n;
        v += (vd)__builtin_shuffle((vf)v, at);
    }
    return v[0];
}

/* total[m][r] += over k in [k, e): M rows of x, R rows of w, U steps at a
 * time; e - k is a multiple of U * VL. */
INLINE void
dot_depth(const int M, const int R, const int U, const int D, vd total[][8],
          const float *x, int64_t xs, const char *const *w, int64_t k,
          int64_t e)
{
    const int size = size_of(D);
    vf c[2][DOT_MAX][8];
    UNROLL for (int u = 0; u < U; u++) UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int r = 0; r < R; r++) c[u][m][r] = (vf){0};
    for (; k < e; k += U * VL)
        UNROLL for (int u = 0; u < U; u++) UNROLL for (int r = 0; r < R; r++)
        {
            const char *p = w[r] + (k + u * VL) * size;
            vf b = wide(p, D);
            if (u * VL * size % 64 == 0) {
                __builtin_prefetch(p + NEAR);
                __builtin_prefetch(p + FAR, 0, 2);
            }
            UNROLL for (int m = 0; m < M; m++) c[u][m][r] =
                fma_(load(x + m * xs + k + u * VL), b, c[u][m][r]);
        }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
    {
        total[m][r] += pairs(U > 1 ? c[0][m][r] + c[1][m][r] : c[0][m][r]);
    }
}

/* t[m * GEMV_NB + at[r]] = x row m . w row at[r] */
INLINE void
dot_tile(const int M, const int R, const int U, const int D, float *t,
         const float *x, int64_t xs, const char *w, int64_t rs, int64_t k,
         const int64_t *at)
{
    const int size = size_of(D);
    vd total[DOT_MAX][8];
    const char *p[8];
    int64_t even = k / (U * VL) * (U * VL);
    UNROLL for (int r = 0; r < R; r++)
    {
        p[r] = w + at[r] * rs * size;
        UNROLL for (int m = 0; m < M; m++) total[m][r] = (vd){0};
    }
    for (int64_t b = 0; b < even; b += DEPTH)
        dot_depth(M, R, U, D, total, x, xs, p, b,
                  even - b < DEPTH ? even : b + DEPTH);
    for (int m = 0; m < M; m++)
        for (int r = 0; r < R; r++) {
            double s = sum_pairs(total[m][r]);
            for (int64_t i = even; i < k; i++)
                s += (double)x[m * xs + i] * one(p[r], i, D);
            t[m * GEMV_NB + at[r]] = (float)s;
        }
}

/* Rows of w of a tile for each number of rows of x: their sums, a row of w and
 * nothing else stay in registers. */
#if VL == 16
#define TILES(X, D) \
    X(1, 8, 2, D)   \
    X(2, 8, 1, D) X(3, 8, 1, D) X(4, 6, 1, D) X(5, 5, 1, D) X(6, 4, 1, D)
#else
#define TILES(X, D) \
    X(1, 6, 2, D)   \
    X(2, 6, 1, D) X(3, 4, 1, D) X(4, 3, 1, D) X(5, 2, 1, D) X(6, 2, 1, D)
#endif

typedef struct {
    int streams;
    void (*run)(float *t, const float *x, int64_t xs, const char *w, int64_t rs,
                int64_t k, const int64_t *at);
} dot_fn;

#define DOT(M, R, U, D)                                             \
    static void dot_##M##_##D(float *t, const float *x, int64_t xs, \
                              const char *w, int64_t rs, int64_t k, \
                              const int64_t *at)                    \
    {                                                               \
        dot_tile(M, R, U, AIR_##D, t, x, xs, w, rs, k, at);         \
    }
#define DOT_ROW(M, R, U, D) [M] = {R, dot_##M##_##D},
#define DOT_TYPE(D) \
    TILES(DOT, D)   \
    static const dot_fn dots_##D[DOT_MAX + 1] = {TILES(DOT_ROW, D)};
DOT_TYPE(F32)
DOT_TYPE(BF16)
DOT_TYPE(F16)
DOT_TYPE(I8)

/* Row i of every stream; those that are out of rows do the last one again. */
static void
rows_at(int64_t i, int64_t streams, int64_t each, int64_t nn, int64_t *at)
{
    for (int64_t s = 0; s < streams; s++)
        at[s] = i + s * each < nn ? i + s * each : nn - 1;
}

void
ISA_NAME(gemv_dots)(float *t, int64_t nm, const float *x, int64_t xs,
                    int64_t nn, const void *w, int64_t rs, int dtype, int64_t k)
{
    const dot_fn *set = dtype == AIR_F32    ? dots_F32
                        : dtype == AIR_BF16 ? dots_BF16
                        : dtype == AIR_I8   ? dots_I8
                                            : dots_F16;
    /* Parts of x of one size, the last one may overlap: what does not fit into
     * one tile finds w in the cache. */
    int64_t parts = (nm + DOT_MAX - 1) / DOT_MAX;
    int64_t rows = (nm + parts - 1) / parts, at[8];
    int64_t streams = set[rows].streams, each = (nn + streams - 1) / streams;
    for (int64_t i = 0; i < each; i++) {
        rows_at(i, streams, each, nn, at);
        for (int64_t m = 0; m < nm; m += rows) {
            int64_t b = m + rows <= nm ? m : nm - rows;
            set[rows].run(t + b * GEMV_NB, x + b * xs, xs, w, rs, k, at);
        }
    }
}

/* ---- few rows of w, adjacent lanes of x ---------------------------------- */

#define STREAM_ROWS 6 /* of w at once: 12 sums, 2 of x, one of w */
#define STREAM_LINE 8 /* panels: a piece of x stays in the nearest cache */

/* Panels [0, n) and rows of w: acc[panel][nw][LANES] (+)= sums over kc. */
INLINE void
stream_rows(const int rows, const int D, float *acc, int64_t nw, const char *x,
            int64_t step, int64_t n, const float *w, int64_t kc, bool first,
            int64_t ahead)
{
    const int64_t panel = LANES * size_of(D);
    for (int64_t i = 0; i < n; i++, x += panel, acc += nw * LANES) {
        vf c[STREAM_ROWS][2];
        const char *p = x;
        UNROLL for (int r = 0; r < rows; r++) c[r][0] = c[r][1] = (vf){0};
        for (int64_t k = 0; k < kc; k++, p += step) {
            const vf x0 = vget(p, 0, D), x1 = vget(p, VL, D);
            for (int64_t line = 0; line < panel; line += 64)
                __builtin_prefetch(p + ahead + line, 0, 2);
            UNROLL for (int r = 0; r < rows; r++)
            {
                const vf b = set(w[r * GEMM_WB + k]);
                c[r][0] = fma_(x0, b, c[r][0]);
                c[r][1] = fma_(x1, b, c[r][1]);
            }
        }
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < 2; v++)
        {
            float *a = acc + r * LANES + v * VL;
            store(a, first ? c[r][v] : load(a) + c[r][v]);
        }
    }
}

typedef void stream_fn(float *acc, int64_t nw, const char *x, int64_t step,
                       int64_t n, const float *w, int64_t kc, bool first,
                       int64_t ahead);

#define STREAM(R, D)                                                       \
    static void stream_##R##_##D(float *acc, int64_t nw, const char *x,    \
                                 int64_t step, int64_t n, const float *w,  \
                                 int64_t kc, bool first, int64_t ahead)    \
    {                                                                      \
        stream_rows(R, AIR_##D, acc, nw, x, step, n, w, kc, first, ahead); \
    }
#define STREAM_ROW(R, D)   [R] = stream_##R##_##D,
#define STREAM_SIZES(X, D) X(1, D) X(2, D) X(3, D) X(4, D) X(5, D) X(6, D)
#define STREAM_TYPE(D)      \
    STREAM_SIZES(STREAM, D) \
    static stream_fn *const streams_##D[] = {STREAM_SIZES(STREAM_ROW, D)};
STREAM_TYPE(F32)
STREAM_TYPE(BF16)
STREAM_TYPE(F16)

void
ISA_NAME(gemv_stream)(float *acc, int64_t nw, const void *x, int64_t xs,
                      int dtype, int64_t panels, const float *w, int64_t kc,
                      bool first, int64_t ahead)
{
    stream_fn *const *set = dtype == AIR_F32    ? streams_F32
                            : dtype == AIR_BF16 ? streams_BF16
                                                : streams_F16;
    const int64_t size = size_of(dtype);
    const int64_t parts = (nw + STREAM_ROWS - 1) / STREAM_ROWS;
    for (int64_t i = 0; i < panels; i += STREAM_LINE) {
        const int64_t n = min64(STREAM_LINE, panels - i);
        for (int64_t t = 0; t < parts; t++) {
            const int64_t b = nw * t / parts, e = nw * (t + 1) / parts;
            set[e - b](acc + (i * nw + b) * LANES, nw,
                       (const char *)x + i * LANES * size, xs * size, n,
                       w + b * GEMM_WB, kc, first, ahead);
        }
    }
}
