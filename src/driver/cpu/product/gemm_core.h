/* gemm_core.h: the matrix product that contractions are made of.
 *
 *     y(l, r) = alpha * sum over k of x(l, k) * w(r, k)  +  beta * s(l, r)
 *
 * The sides are named after their part in the micro-kernel: rows of x lie in
 * the lanes of vectors, rows of w are broadcast. x is copied into *panels*
 * [k][lanes] of floats; w is read where it lies when it is f32 with a unit
 * stride. Any product may be turned around (x <-> w, rows <-> columns of y).
 */
#ifndef CPU_GEMM_CORE_H
#define CPU_GEMM_CORE_H

#include "air_kernel.h"

/* Element (r, k) is p[r * rs + k * ks]. */
typedef struct {
    const void *p;
    int64_t rs, ks;
    int dtype;
} gemm_view;

/* Memory that has an element for each of the results. */
typedef struct {
    const char *p;
    int64_t size; /* of an element */
} gemm_beside;

#define GEMM_BESIDE_MAX 3

/* Who takes lines of the result (region_join.h). */
typedef struct {
    /* n elements of y from element `at` of all results on, in y's dtype */
    void (*run)(void *arg, const void *line, int64_t at, int64_t n);
    /* the same of `rows` lines, `step` bytes from one to the next, and `row`
     * results */
    void (*run_rows)(void *arg, const void *lines, int64_t step, int64_t at,
                     int64_t n, int64_t rows, int64_t row);
    void *arg;
    bool keep;                           /* y is stored as well */
    gemm_beside beside[GEMM_BESIDE_MAX]; /* what they read and write */
    int nbeside;
} gemm_lines;

typedef struct {
    int64_t nx, nw, k; /* lanes, broadcast rows, depth */
    gemm_view x, w;
    void *y; /* y[l * yl + r * yr] */
    int64_t yl, yr;
    const void *s; /* NULL: none. s[l * sl + r * sr] */
    int64_t sl, sr;
    int y_dtype, s_dtype;
    float alpha, beta;
    double alpha64, beta64; /* the same for f64 and integers */
    int64_t longest;        /* steps of k summed in one go; 0: GEMM_KB */
    bool pairs;             /* elements are two of bf16: gemm_pairs.c */
    /* NULL: panels come from x; else this makes them, as gemm_ops.pack_x */
    void (*pack)(const void *arg, float *panel, int64_t l0, int64_t nl,
                 int64_t k0, int64_t k1);
    const void *pack_arg;
    /* NULL: y is stored; else they take its lines, and yl or yr is 1 */
    const gemm_lines *lines;
    int64_t at; /* element of all results that y[0] is */
} gemm_job;

/* A product of matrices or a batch of them. */
typedef struct {
    gemm_job job; /* of batch 0 */
    int64_t batch;
    int64_t x_step, w_step, y_step, s_step; /* elements */
} gemm_product;

#define PLAN_LANES      16 /* plans must not depend on the instruction set */
#define GEMM_LANES_MAX  32
#define GEMM_MB         112 /* rows of w of a block at most */
#define GEMM_NB         256 /* lanes of a block */
#define GEMM_KB         192 /* depth of a block at most: also the longest sum */
#define GEMM_WB         (GEMM_KB + 16) /* row of a packed w block: no power of two */
#define GEMV_MAX        12             /* rows that the dot kernels take */
#define GEMM_THIN       16 /* columns, and depth, of thin_isa.c at most */
#define GEMM_THIN_DEPTH 128
#define GEMV_NB         128  /* columns of their result block */
#define GEMM_GROUPS_MAX 1024 /* of a row of gemm_words */

/* Rows of 4-bit numbers less 8, two in a byte, the lower one first. Dots of
 * pairs: or of 8 bits, and any group of cpu_pairs_take. */
typedef struct {
    const uint8_t *q;
    int64_t row;       /* bytes from one to the next: all of k */
    const void *scale; /* [rows, groups]; NULL: 1 */
    int scale_dtype;
    int64_t group, groups; /* numbers of a group: of a multiple of 8 that 128
                              is a multiple of, or a multiple of 128 */
    bool rounded;          /* scaled numbers may be rounded to bf16 */
} gemm_words;

/* Rows of numbers of 8 or 4 bits that become a panel of pairs of bf16. */
typedef struct {
    const uint8_t *q;
    int64_t row; /* bytes from one to the next */
    int bits;
    int64_t group, first; /* numbers of a group, even; the first one here */
    const float *scale, *zero; /* [group - first][row of the panel]; NULL */
} pairs_words;

/* Windows of one shape over rows of floats: gemm_ops.correlate. */
typedef struct {
    int64_t rows, n;   /* of the result: r < rows, i < n */
    int64_t step, ld;  /* floats from row to row; elements from one y to the
                          next */
    const int64_t *at; /* [taps] */
    int64_t taps;
    int dtype; /* of y */
} gemm_windows;

/* A window over the rows of a plane of floats: gemm_ops.correlate_rows. */
typedef struct {
    int64_t rows, n;       /* of the result: r < rows, i < n */
    int64_t step, down;    /* floats from one of its rows, and from one row of
                              the window, to the next */
    int64_t kernel[2];     /* rows and columns of the window */
    const int64_t *across; /* floats to each of its columns */
    int dtype;             /* of y */
} gemm_slide;

/* Planes under windows: gemm_ops.depthwise. Of height and width. */
typedef struct {
    int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
    int64_t rows, row; /* of a plane with its padding */
    int dtype;
} gemm_planes;

/* Adjacent results of a convolution, in one row, that meet big pixels at one
 * tap: conv_columns.h. */
typedef struct {
    int64_t lane, count, at; /* at: the first of those pixels */
} conv_segment;

typedef struct attend_ops attend_ops;
typedef struct winograd_ops winograd_ops;

/* Memory that will be needed soon, and bytes of it for each step of k; of step
 * 0 it is what is there already. Of each two steps the second asks for what
 * lies `second` bytes further. Handed on by pointer: as a value it lies on
 * the stack, is written in halves and read as a whole, and that waits until all
 * stores before it have left. */
typedef struct {
    const char *p;
    int64_t step, second;
} gemm_ahead;

static inline gemm_ahead
gemm_ahead_of(const void *p, int64_t step)
{
    return (gemm_ahead){p, step, step};
}

/* One table per instruction set. */
typedef struct {
    const char *isa;
    int lanes, rows; /* of a tile */
    /* panel[(k - k0) * lanes + l] = x(l0 + l, k), 0 for l >= nl */
    void (*pack_x)(float *panel, const gemm_view *x, int64_t l0, int64_t nl,
                   int64_t k0, int64_t k1);
    /* w rows [r0, r1) as floats: row r of the block at (r - r0) * *out_rs,
     * k at (k - k0) * *out_ks */
    void (*pack_w)(float *block, const gemm_view *w, int64_t r0, int64_t r1,
                   int64_t k0, int64_t k1, int64_t *out_rs, int64_t *out_ks);
    /* acc[r][lanes] (+)= sum over k < kc of panel[k * xs + l] * w(r, k) */
    void (*block)(float *acc, int64_t nr, const float *panel, int64_t xs,
                  const float *w, int64_t rs, int64_t ks, int64_t kc,
                  bool first);
    /* the same of the first half of the lanes */
    void (*half_block)(float *acc, int64_t nr, const float *panel, int64_t xs,
                       const float *w, int64_t rs, int64_t ks, int64_t kc,
                       bool first);
    /* the same of `rows` rows at most, and of the first lanes of a panel at
     * least: acc of the others may stay as it was */
    void (*tile)(float *acc, int64_t nr, const float *panel, int64_t xs,
                 int64_t count, const float *w, int64_t rs, int64_t ks,
                 int64_t kc, bool first, const gemm_ahead *ahead);
    /* lanes [l0, l0 + nl), rows [r0, r0 + nr) of y from acc, which holds
     * panels of acc_rows rows */
    void (*finish)(const gemm_job *job, const float *acc, int64_t acc_rows,
                   int64_t l0, int64_t nl, int64_t r0, int64_t nr);
    /* the same for rows [r0, r0 + nr) of all lanes, from t[l * ts + r] */
    void (*finish_rows)(const gemm_job *job, const float *t, int64_t ts,
                        int64_t r0, int64_t nr);
    /* dst[i] = p[i * stride] as floats */
    void (*widen)(float *dst, const void *p, int64_t stride, int dtype,
                  int64_t n);
    /* t[m * GEMV_NB + n] = x row m (f32, unit stride) . w row n (floats or i8),
     * for m < nm, n < nn <= GEMV_NB */
    void (*dots)(float *t, int64_t nm, const float *x, int64_t xs, int64_t nn,
                 const void *w, int64_t rs, int dtype, int64_t k);
    /* The same of few rows, f32, that lie in the nearest cache, and of so short
     * ones that floats have the sum across lanes. */
    void (*dots_near)(float *t, int64_t nm, const float *x, int64_t xs,
                      int64_t nn, const float *w, int64_t rs, int64_t k);
    /* acc[panel][nw][lanes] (+)= sum over k < kc of x[panel * lanes + l + k *
     * xs] * w[r * GEMM_WB + k]: few rows of w, and full panels side by side, so
     * that each k is a run of memory. Lines are asked for `ahead` bytes on. */
    void (*stream)(float *acc, int64_t nw, const void *x, int64_t xs, int dtype,
                   int64_t panels, const float *w, int64_t kc, bool first,
                   int64_t ahead);
    /* dst[c * ld + i] = p[c * step + i * stride], c < count, i < n */
    void (*copies)(float *dst, int64_t ld, const void *p, int64_t step,
                   int64_t stride, int dtype, int64_t n, int64_t count);
    /* the same of pairs, a[i] with b[i], b NULL: with zeros. NULL: without
     * VDPBF16PS */
    void (*copy_pairs)(float *dst, int64_t ld, const uint16_t *a,
                       const uint16_t *b, int64_t step, int64_t stride,
                       int64_t n, int64_t count);
    /* columns_isa.c: row c < count of a panel, dst[c * ld + lane], 0 where no
     * segment is; place i of segment s is p[c * step + s.at + i * stride] */
    void (*columns)(float *dst, int64_t ld, const void *p, int64_t step,
                    int64_t stride, int dtype, const conv_segment *s, int n,
                    int64_t count);
    /* dst[i] += src[i] */
    void (*add)(float *dst, const float *src, int64_t n);
    /* correlate_isa.c: y[o * ld + r * n + i] = start[o] + sum over t < taps of
     * w[o * taps + t] * p[at[t] + r * step + i], o < outs, in that order; p may
     * be read 32 elements further */
    void (*correlate)(const gemm_windows *s, const float *p, const float *w,
                      const float *start, int64_t outs, void *y);
    /* correlate_rows_isa.c: y[r * n + i] = start + sum over k < kernel[0], j <
     * kernel[1] of w[k * kernel[1] + j] * p[r * step + k * down + across[j] +
     * i], in one order for all; p may be read 32 elements further */
    void (*correlate_rows)(const gemm_slide *s, const float *p, const float *w,
                           float start, void *y);
    /* of correlate, its gradient: sums[t] += sum over r < rows, i < n of y[r *
     * ld + i] * p[at[t] + r * step + i]; p may be read so far behind its rows,
     * and y, where it is zero behind them */
    void (*correlate_weights)(const gemm_windows *s, const float *p,
                              const float *y, double *sums);
    /* row k < kc of a panel, dst[k * lanes + lane], 0 where no segment is;
     * place i of segment s is p[at[k] + s.at + i] */
    void (*shifted)(float *dst, const float *p, const int32_t *at, int64_t kc,
                    const conv_segment *s, int n);
    /* depthwise_isa.c: dense planes of x under windows of their own, of as many
     * channels as a vector has lanes at most; bias NULL: none. `scratch`: for
     * each lane, rows * row floats, zero around the image, then those of the
     * weights and of a plane of x or y */
    void (*depthwise)(const gemm_planes *s, const void *x, const void *w,
                      const void *bias, void *y, int64_t channels,
                      float *scratch);
    /* p[i * stride] = src[i] * scale */
    void (*narrow)(void *p, int64_t stride, int dtype, const float *src,
                   float scale, int64_t n);
    /* attention_isa.c: integers of 8 or 4 bits as numbers, dst[i] = (x[i] +
     * offset[i * step]) * scale[i * step]; of two in a byte the lower first */
    void (*unquant)(float *dst, const void *x, int bits, const float *scale,
                    const float *offset, int step, int64_t n);
    /* quantised_isa.c: dst[i] = number k + i of a row of i8 (bits 8) or of
     * nibbles less 8, times scale, plus zero */
    void (*integers)(float *dst, const void *q, int bits, int64_t k, int64_t n,
                     float scale, float zero);
    /* x in the order in which dots_words wants it; n: all of a row, or a
     * multiple of 128 */
    void (*order_words)(float *dst, const float *x, int64_t n);
    /* as dots, with scaled rows of 4-bit numbers */
    void (*dots_words)(float *t, int64_t nm, const float *x, int64_t xs,
                       int64_t nn, const gemm_words *w);
    /* gemm_pairs.h; NULL: without VDPBF16PS */
    void (*order_pairs)(uint16_t *dst, const uint16_t *x, int bits, int64_t n);
    void (*dots_pairs)(float *t, int64_t nm, const uint16_t *x, int64_t xs,
                       int64_t nn, int bits, const gemm_words *w);
    void (*words_pairs)(float *panel, const pairs_words *from, int64_t n,
                        int64_t k0, int64_t k1);
    /* gemm_digits.h; NULL: without VPDPBUSD */
    void (*digits)(void *dst, const float *x, int bits, int64_t n);
    void (*dots_digits)(float *t, int64_t nm, const void *x, int64_t xs,
                        int64_t nn, int bits, const gemm_words *w);
    /* thin_isa.c: rows [b, e) of x times all rows of w, cpu_gemm_is_thin;
     * thin_deep: w.rs is 1 */
    void (*thin)(const gemm_job *job, int64_t b, int64_t e);
    void (*thin_deep)(const gemm_job *job, int64_t b, int64_t e);
    /* small_isa.c: products [begin, end) of f32 or f64, of a few numbers each
     */
    void (*small)(const gemm_product *b, int64_t begin, int64_t end);
    const attend_ops *attend;     /* attend_isa.h */
    const winograd_ops *winograd; /* winograd.h */
} gemm_ops;

extern const gemm_ops cpu_gemm_scalar;
#if defined(__x86_64__)
extern const gemm_ops cpu_gemm_avx2, cpu_gemm_avx512;
#endif

/* Kernels cpu_NAME_ISA, which call run(call, task, ops) of the file, and
 * cpu_NAME_on_ISA, which ask its accept(call). */
#define GEMM_KERNEL_ON(name, isa)                                       \
    bool cpu_##name##_on_##isa(const air_call *call, const char *here)  \
    {                                                                   \
        return accept(call) && cpu_on_##isa(call, here);                \
    }                                                                   \
    void cpu_##name##_##isa(const air_call *call, const air_task *task) \
    {                                                                   \
        run(call, task, &cpu_gemm_##isa);                               \
    }
#if defined(__x86_64__)
#define GEMM_KERNELS(name)       \
    GEMM_KERNEL_ON(name, scalar) \
    GEMM_KERNEL_ON(name, avx2)   \
    GEMM_KERNEL_ON(name, avx512)
#else
#define GEMM_KERNELS(name) GEMM_KERNEL_ON(name, scalar)
#endif

/* Threads that do one product together, or one alone (count 1, task NULL). */
typedef struct {
    int id, count;
    const air_task *task; /* for its barrier */
    float *panels;        /* of the team: cpu_gemm_workspace bytes */
    float *scratch;       /* of this thread: AIR_SCRATCH bytes */
    int64_t *taken;       /* air_task.taken, for one product; NULL: none */
} gemm_team;

/* Every thread of the team calls it. Results are complete after the next
 * barrier of the region; the panels may be reused by the team only after a
 * barrier. */
void cpu_gemm_run(const gemm_job *job, const gemm_ops *ops,
                  const gemm_team *team);
/* Bytes of panels of a team, a multiple of 64. Depends on sizes, strides and
 * the number of threads only, and fewer threads need no more. */
size_t cpu_gemm_workspace(const gemm_job *job, int threads);

static inline int64_t
min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t
max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t
round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* The same product with its sides exchanged. */
gemm_job cpu_gemm_turned(const gemm_job *job);

/* Bytes of an element. */
int64_t cpu_gemm_size_of(int dtype);

/* Element types that the floating-point kernels take. */
static inline bool
gemm_is_float(int dtype)
{
    return dtype == AIR_F32 || dtype == AIR_BF16 || dtype == AIR_F16;
}

#endif
