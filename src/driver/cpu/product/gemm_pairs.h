/* gemm_pairs.h: products of bf16 on CPUs that multiply pairs (VDPBF16PS). */
#ifndef CPU_GEMM_PAIRS_H
#define CPU_GEMM_PAIRS_H

#include "driver/cpu/product/gemm_core.h"

/* gemm_pairs_isa.c: gemm_ops.tile, block, panels and rows being pairs. */
void cpu_pairs_tile(float *acc, int64_t nr, const float *panel, int64_t xs,
                    int64_t count, const float *w, int64_t rs, int64_t ks,
                    int64_t kc, bool first, const gemm_ahead *ahead);
void cpu_pairs_block(float *acc, int64_t nr, const float *panel, int64_t xs,
                     const float *w, int64_t rs, int64_t ks, int64_t kc,
                     bool first);
/* gemm_ops.finish, finish_rows: the rounding to bf16 is an instruction. */
void cpu_pairs_finish(const gemm_job *job, const float *acc, int64_t acc_rows,
                      int64_t l0, int64_t nl, int64_t r0, int64_t nr);
void cpu_pairs_finish_rows(const gemm_job *job, const float *t, int64_t ts,
                           int64_t r0, int64_t nr);
/* dst[(k - k0) * ld + i] = pair k of row r + i of a matrix of bf16, 0 for i >=
 * n. */
void cpu_pairs_pack(float *dst, int64_t ld, const gemm_view *v, int64_t r,
                    int64_t n, int64_t k0, int64_t k1);

/* The operations of avx512, with those of pairs. */
gemm_ops cpu_pairs_ops(void);

/* Two rows of an image of bf16 that are pairs of a panel: place i of segment s
 * of row r is p[r][c * step + s.at + i * stride]. */
typedef struct {
    const uint16_t *p[2];
    const conv_segment *segments[2];
    int counts[2];
    int64_t step, stride;
} conv_pairs;

/* columns_isa.c: dst[c * ld + lane], c < count, 0 where no segment is. */
void cpu_pairs_columns(float *dst, int64_t ld, const conv_pairs *from,
                       int64_t count);
/* conv_pairs.c: as cpu_conv_pack_columns, k counts pairs */
void cpu_conv_pack_pairs(const void *arg, float *panel, int64_t l0, int64_t nl,
                         int64_t k0, int64_t k1);

/* correlate_pairs_isa.c: gemm_ops.correlate, planes and weights being pairs */
void cpu_pairs_correlate(const gemm_windows *s, const float *p, const float *w,
                         const float *start, int64_t outs, void *y);
/* gemm_ops.copy_pairs */
void cpu_pairs_copies(float *dst, int64_t ld, const uint16_t *a,
                      const uint16_t *b, int64_t step, int64_t stride,
                      int64_t n, int64_t count);

/* dots_pairs_isa.c: gemm_ops.dots, x and w being rows of pairs; nn < GEMV_NB */
void cpu_pairs_dots(float *t, int64_t nm, const float *x, int64_t xs,
                    int64_t nn, const void *w, int64_t rs, int dtype,
                    int64_t k);
/* Rows of 8 or 4 bits with such groups? */
bool cpu_pairs_take(int bits, int64_t group, int64_t groups);
/* n numbers of bf16 in the order in which cpu_pairs_dots_words wants them, with
 * zeros behind them up to a multiple of 512 / bits. */
void cpu_pairs_order(uint16_t *dst, const uint16_t *x, int bits, int64_t n);
/* As gemm_ops.dots_words, of 8 or 4 bits; xs: numbers from row to row of x. */
void cpu_pairs_dots_words(float *t, int64_t nm, const uint16_t *x, int64_t xs,
                          int64_t nn, int bits, const gemm_words *from);

/* words_pairs_isa.c: gemm_ops.words_pairs: panel[k - k0][row] = pair k, rounded
 * to bf16; n rows. */
void cpu_pairs_words(float *panel, const pairs_words *from, int64_t n,
                     int64_t k0, int64_t k1);

/* limits_pairs_isa.c */
float cpu_pairs_limits(int64_t rounds, float x, double *flops);

#endif
