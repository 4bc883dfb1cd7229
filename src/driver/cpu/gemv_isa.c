/* gemv_isa.c: dot products of few rows of x with many rows of w, compiled once
 * per instruction set. Lanes lie along k, so that w streams from memory once,
 * in torch's own layout; ROWS x R sums stay in registers. */
#include "driver/cpu/gemm_core.h"
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

#define PREFETCH 512  /* bytes ahead of the loads of w */
#define DOT_MAX  6    /* rows of x at once */
#define DEPTH    2048 /* of k summed in one go: keeps the error near MKL's */

/* t[m][r] += over k: M rows of x, R rows of w, U steps at a time. */
INLINE void
dot_tile(const int M, const int R, const int U, const int D, float *t,
         const float *x, int64_t xs, const char *w, int64_t rs, int64_t kc)
{
    const int size = D == AIR_F32 ? 4 : 2;
    vf c[4][DOT_MAX][4];
    UNROLL for (int u = 0; u < U; u++) UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int r = 0; r < R; r++) c[u][m][r] = (vf){0};
    int64_t k = 0;
    for (; k + U * VL <= kc; k += U * VL)
        UNROLL for (int u = 0; u < U; u++) UNROLL for (int r = 0; r < R; r++)
        {
            const char *p = w + (r * rs + k + u * VL) * size;
            vf b = vget(p, 0, D);
            __builtin_prefetch(p + PREFETCH);
            UNROLL for (int m = 0; m < M; m++) c[u][m][r] =
                fma_(load(x + m * xs + k + u * VL), b, c[u][m][r]);
        }
    for (int m = 0; m < M; m++)
        for (int r = 0; r < R; r++) {
            vf v = c[0][m][r];
            UNROLL for (int u = 1; u < U; u++) v += c[u][m][r];
            float s = sum(v);
            for (int64_t i = k; i < kc; i++)
                s += x[m * xs + i] * get(w, r * rs + i, D);
            t[m * GEMV_NB + r] += s;
        }
}

typedef void dot_fn(float *t, const float *x, int64_t xs, const char *w,
                    int64_t rs, int64_t kc);

#define DOT(M, R, U, D)                                                    \
    static void dot_##M##_##R##_##D(float *t, const float *x, int64_t xs,  \
                                    const char *w, int64_t rs, int64_t kc) \
    {                                                                      \
        dot_tile(M, R, U, AIR_##D, t, x, xs, w, rs, kc);                   \
    }
/* clang-format off */
#define DOTS(D)                                                     \
    DOT(1, 4, 2, D) DOT(2, 4, 1, D) DOT(3, 4, 1, D) DOT(4, 3, 1, D) \
    DOT(5, 2, 1, D) DOT(6, 2, 1, D)                                 \
    DOT(1, 1, 4, D) DOT(2, 1, 2, D) DOT(3, 1, 2, D) DOT(4, 1, 2, D) \
    DOT(5, 1, 1, D) DOT(6, 1, 1, D)
/* clang-format on */
DOTS(F32)
DOTS(BF16)
DOTS(F16)

static const int tile_rows[DOT_MAX + 1] = {0, 4, 4, 4, 3, 2, 2};

typedef struct {
    dot_fn *many[DOT_MAX + 1], *one[DOT_MAX + 1];
} dot_set;

#define DOT_SET(D)                                               \
    {                                                            \
        {NULL,        dot_1_4_##D, dot_2_4_##D, dot_3_4_##D,     \
         dot_4_3_##D, dot_5_2_##D, dot_6_2_##D},                 \
            {NULL,        dot_1_1_##D, dot_2_1_##D, dot_3_1_##D, \
             dot_4_1_##D, dot_5_1_##D, dot_6_1_##D},             \
    }
static const dot_set f32_set = DOT_SET(F32);
static const dot_set bf16_set = DOT_SET(BF16);
static const dot_set f16_set = DOT_SET(F16);

#define CHUNK 12 /* rows of w: a multiple of every tile's */

/* One piece of k of `nn` <= CHUNK rows of w against nm <= DOT_MAX rows. */
static void
dot_chunk(const dot_set *set, float *t, int64_t nm, const float *x, int64_t xs,
          int64_t nn, const char *w, int64_t rs, int64_t rbytes, int64_t kc)
{
    int64_t n = 0, step = tile_rows[nm];
    for (; n + step <= nn; n += step)
        set->many[nm](t + n, x, xs, w + n * rbytes, rs, kc);
    for (; n < nn; n++)
        set->one[nm](t + n, x, xs, w + n * rbytes, rs, kc);
}

void
ISA_NAME(gemv_dots)(float *t, int64_t nm, const float *x, int64_t xs,
                    int64_t nn, const void *w, int64_t rs, int dtype, int64_t k)
{
    const dot_set *set = dtype == AIR_F32    ? &f32_set
                         : dtype == AIR_BF16 ? &bf16_set
                                             : &f16_set;
    int64_t size = dtype == AIR_F32 ? 4 : 2;
    /* what does not fit into one tile finds w in the cache */
    int64_t parts = (nm + DOT_MAX - 1) / DOT_MAX;
    for (int64_t m = 0; m < nm; m++)
        memset(t + m * GEMV_NB, 0, (size_t)nn * sizeof *t);
    for (int64_t n = 0; n < nn; n += CHUNK)
        for (int64_t k0 = 0; k0 < k; k0 += DEPTH)
            for (int64_t i = 0; i < parts; i++) {
                int64_t b = nm * i / parts, e = nm * (i + 1) / parts;
                dot_chunk(set, t + b * GEMV_NB + n, e - b, x + b * xs + k0, xs,
                          nn - n < CHUNK ? nn - n : CHUNK,
                          (const char *)w + (n * rs + k0) * size, rs, rs * size,
                          k - k0 < DEPTH ? k - k0 : DEPTH);
            }
}
