/* attend_isa.c: attention for few queries, a token at a time, compiled once per
 * instruction set. Keys and values stream through once, as they lie in the
 * cache; what a tile of them gives stays in registers. */
#include "driver/cpu/attention/attend_isa.h"
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#define PREFETCH 1024 /* bytes ahead */
#define QUERIES  4    /* rows of a tile at most */

INLINE int
size_of(const int D)
{
    return D == AIR_F32 ? 4 : 2;
}

/* Keys of a tile: with the queries they fill one vector of results. */
#define KEYS_OF(M) (VL / ((M) == 3 ? 4 : (M)))

/* s[m * ld + i] = query m . key i, i < n <= KEYS_OF(M); rows behind the last
 * key are not read. */
INLINE void
score_tile(const int M, const int D, float *s, int64_t ld, const float *q,
           int64_t depth, const char *k, int64_t ks, int64_t n)
{
    const int K = KEYS_OF(M), size = size_of(D);
    vf c[VL];
    const char *p[VL];
    UNROLL for (int i = 0; i < K; i++) p[i] = k + (i < n ? i : n - 1) * ks;
    UNROLL for (int i = 0; i < VL; i++) c[i] = (vf){0};
    for (int64_t d = 0; d < depth; d += VL)
        UNROLL for (int i = 0; i < K; i++)
        {
            const char *at = p[i] + d * size;
            vf key = vget(at, 0, D);
            if (VL * size >= 32)
                __builtin_prefetch(at + PREFETCH);
            UNROLL for (int m = 0; m < M; m++) c[m * K + i] =
                fma_(load(q + m * depth + d), key, c[m * K + i]);
        }
    float t[VL];
    store(t, fold(c));
    for (int m = 0; m < M; m++)
        memcpy(s + m * ld, t + m * K, (size_t)n * sizeof *t);
}

INLINE void
score_rows(const int M, const int D, float *s, int64_t ld, const float *q,
           int64_t depth, const char *k, int64_t ks, int64_t n)
{
    const int K = KEYS_OF(M);
    for (int64_t i = 0; i < n; i += K)
        score_tile(M, D, s + i, ld, q, depth, k + i * ks, ks,
                   n - i < K ? n - i : K);
}

/* out += s[m * ld + j] * value j, j < n, for V vectors of the width; vector c
 * of row m is at m * LANES + c / 2 * step + c % 2 * VL. A block of keys is
 * summed on its own, as in gemm_isa.c. */
INLINE void
weigh_tile(const int M, const int V, const int D, float *out, int64_t step,
           const float *s, int64_t ld, const char *v, int64_t vs, int64_t n)
{
    const int size = size_of(D);
    vf c[QUERIES][4];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int i = 0; i < V; i++)
        c[m][i] = (vf){0};
    for (int64_t j = 0; j < n; j++, v += vs) {
        vf x[4];
        UNROLL for (int i = 0; i < V; i++)
        {
            x[i] = vget(v + i * VL * size, 0, D);
            if (VL * size >= 32)
                __builtin_prefetch(v + i * VL * size + PREFETCH);
        }
        UNROLL for (int m = 0; m < M; m++)
        {
            vf w = set(s[m * ld + j]);
            UNROLL for (int i = 0; i < V; i++) c[m][i] = fma_(w, x[i], c[m][i]);
        }
    }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int i = 0; i < V; i++)
    {
        float *at = out + m * LANES + i / 2 * step + i % 2 * VL;
        store(at, load(at) + c[m][i]);
    }
}

/* A panel is two vectors of the width. AVX2 has registers for two at once. */
#define WIDE (VL == 16 ? 4 : 2)

INLINE void
weigh_rows(const int M, const int D, float *out, int64_t step, const float *s,
           int64_t ld, const char *v, int64_t vs, int64_t n, int64_t width)
{
    const int64_t size = size_of(D), vectors = width / VL;
    int64_t c = 0;
    for (; c + WIDE <= vectors; c += WIDE)
        weigh_tile(M, WIDE, D, out + c / 2 * step, step, s, ld,
                   v + c * VL * size, vs, n);
    for (; c + 2 <= vectors; c += 2)
        weigh_tile(M, 2, D, out + c / 2 * step, step, s, ld, v + c * VL * size,
                   vs, n);
    for (; c < vectors; c++)
        weigh_tile(M, 1, D, out + c / 2 * step, step, s, ld, v + c * VL * size,
                   vs, n);
}

typedef void score_fn(float *s, int64_t ld, const float *q, int64_t depth,
                      const char *k, int64_t ks, int64_t n);
typedef void weigh_fn(float *out, int64_t step, const float *s, int64_t ld,
                      const char *v, int64_t vs, int64_t n, int64_t width);

#define OF_ROWS(M, D)                                                     \
    static void score_##M##_##D(float *s, int64_t ld, const float *q,     \
                                int64_t depth, const char *k, int64_t ks, \
                                int64_t n)                                \
    {                                                                     \
        score_rows(M, AIR_##D, s, ld, q, depth, k, ks, n);                \
    }                                                                     \
    static void weigh_##M##_##D(float *out, int64_t step, const float *s, \
                                int64_t ld, const char *v, int64_t vs,    \
                                int64_t n, int64_t width)                 \
    {                                                                     \
        weigh_rows(M, AIR_##D, out, step, s, ld, v, vs, n, width);        \
    }
#define OF_TYPE(D)                                                    \
    OF_ROWS(1, D)                                                     \
    OF_ROWS(2, D)                                                     \
    OF_ROWS(3, D)                                                     \
    OF_ROWS(4, D)                                                     \
    static score_fn *const scores_##D[] = {score_1_##D, score_2_##D,  \
                                           score_3_##D, score_4_##D}; \
    static weigh_fn *const weighs_##D[] = {weigh_1_##D, weigh_2_##D,  \
                                           weigh_3_##D, weigh_4_##D};
OF_TYPE(F32)
OF_TYPE(BF16)
OF_TYPE(F16)

static void
scores(float *s, int64_t ld, int64_t rows, const float *q, int64_t depth,
       const void *k, int64_t ks, int dtype, int64_t n)
{
    score_fn *const *fns = dtype == AIR_F32    ? scores_F32
                           : dtype == AIR_BF16 ? scores_BF16
                                               : scores_F16;
    for (int64_t m = 0; m < rows; m += QUERIES) {
        int64_t count = min64(rows - m, QUERIES);
        fns[count - 1](s + m * ld, ld, q + m * depth, depth, k,
                       ks * size_of(dtype), n);
    }
}

static void
weigh(float *out, int64_t rows, const float *s, int64_t ld, const void *v,
      int64_t vs, int dtype, int64_t n, int64_t width)
{
    weigh_fn *const *fns = dtype == AIR_F32    ? weighs_F32
                           : dtype == AIR_BF16 ? weighs_BF16
                                               : weighs_F16;
    for (int64_t m = 0; m < rows; m += QUERIES) {
        int64_t count = min64(rows - m, QUERIES);
        fns[count - 1](out + m * LANES, rows * LANES, s + m * ld, ld, v,
                       vs * size_of(dtype), n, width);
    }
}

const attend_ops ISA_NAME(cpu_attend) = {
    .vector = VL,
    .scale = ISA_NAME(attend_scale),
    .hidden = ISA_NAME(attend_hidden),
    .hide = ISA_NAME(attend_hide),
    .softmax_panel = ISA_NAME(softmax_panel),
    .softmax_row = ISA_NAME(softmax_row),
    .put_panel = ISA_NAME(attend_put_panel),
    .scores = scores,
    .weigh = weigh,
};
