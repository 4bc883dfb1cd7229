/* attention_amx.h: what is compiled for AMX of attention_amx.c. Scores are in
 * units of ln 2, so that weights are powers of two. */
#ifndef CPU_ATTENTION_AMX_H
#define CPU_ATTENTION_AMX_H

#include "driver/cpu/product/amx_isa.h"

#define AMX_LOG2_E 1.44269504088896340736f

/* dst as one row of amx_copy: 32 of k elements each 32 * 32 elements; p NULL:
 * zeros. */
void amx_copy_row(uint16_t *dst, const uint16_t *p, int64_t k);
/* dst[i] = what is added to a score, i < n: a mask of bools, bf16, f16 or f32
 */
void amx_mask(float *dst, const void *p, int64_t stride, int dtype, int64_t n);
/* One row of one block of keys of a softmax that sees its keys in several.
 * Score i < n lies at s[i / 32 * 32 * 32 + i % 32] and is multiplied by scale;
 * mask may be NULL. p[i] = 2^(score - top) in bf16, 0 up to round_up(room, 32).
 * Returns what results so far have to be multiplied by. */
float amx_softmax_row(uint16_t *p, const float *s, const float *mask,
                      float scale, int64_t n, int64_t room, float *top,
                      float *sum);
/* out[r * ld + i] = acc[r * 32 + i] + factor[r] * itself, i < 32; 0: replaced
 */
void amx_add_rows(float *out, int64_t ld, const float *acc, const float *factor,
                  int64_t rows);

#endif
