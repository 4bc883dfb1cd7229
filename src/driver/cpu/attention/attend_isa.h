/* attend_isa.h: the loops of attention that are not a matrix product, one table
 * per instruction set: gemm_ops.attend. */
#ifndef CPU_ATTEND_ISA_H
#define CPU_ATTEND_ISA_H

#include "driver/cpu/product/gemm_core.h"

struct attend_ops {
    int vector; /* floats of one */
    /* p[i] *= by */
    void (*scale)(float *p, float by, int64_t n);
    /* dst[i] = what hides a key: -inf where p[i] is 0, else 0 */
    void (*hidden)(float *dst, const uint8_t *p, int64_t n);
    /* dst[i] = -inf where p[i] is not 0 */
    void (*hide)(float *dst, const uint8_t *p, int64_t n);
    /* One block of keys of a softmax that sees its keys in several. s holds
     * scores, and afterwards weights e^(s - top); rows of `out` so far are
     * scaled to the new top.
     * panel: lanes are queries; s[key][lane], top, sum [lane],
     * out[width][lane]; mask the same as s, or [key] where it is `even` for
     * all lanes, or NULL. Lane l sees keys up to `last` + l; what no lane of
     * a vector sees is neither read nor written. */
    void (*softmax_panel)(float *s, const float *mask, bool even, int64_t keys,
                          int64_t last, float *top, float *sum, float *out,
                          int64_t width);
    /* row: one query; out[panel][ld][lane], row 0 of each panel */
    void (*softmax_row)(float *s, const float *mask, int64_t keys, float *top,
                        float *sum, float *out, int64_t ld, int64_t width);
    /* y[l * yl + d] = panel[d][lane l] * scale[l], l < n */
    void (*put_panel)(void *y, int64_t yl, int dtype, const float *panel,
                      const float *scale, int64_t n, int64_t width);
    /* Few rows, adjacent elements, depth and width multiples of a vector:
     * s[m * ld + i] = q[m * depth ..] . k[i * ks ..], i < n */
    void (*scores)(float *s, int64_t ld, int64_t rows, const float *q,
                   int64_t depth, const void *k, int64_t ks, int dtype,
                   int64_t n);
    /* out[panel][rows][lane] += s[m * ld + i] * v[i * vs ..], i < n */
    void (*weigh)(float *out, int64_t rows, const float *s, int64_t ld,
                  const void *v, int64_t vs, int dtype, int64_t n,
                  int64_t width);
};

#endif
