/* amx_isa.h: products of bf16 matrices in the tiles of AMX.
 *
 * A tile is 16 rows of 64 bytes. c += a * b takes rows of a as they lie in
 * memory, 32 elements of depth at a time, and b as pairs of depth: row p of a
 * tile of b has elements 2 p and 2 p + 1 of 16 columns. So one side is read in
 * place and the other packed, into panels of 32 columns.
 * Numbers below 2^-126 are zeros, going in and coming out. */
#ifndef CPU_AMX_ISA_H
#define CPU_AMX_ISA_H

#include "driver/cpu/product/gemm_core.h"

#define AMX_COLS  32 /* of a panel, and of acc */
#define AMX_ROWS  32 /* of a block at most */
#define AMX_DEPTH 32 /* of a tile */

static inline int64_t
amx_panel_size(int64_t k) /* elements */
{
    return round_up(k, AMX_DEPTH) * AMX_COLS;
}

/* The tile registers are this thread's from begin to end. */
void amx_begin(void);
void amx_end(void);
/* panel[k / 2][32 columns][2] = rows [r0, r0 + n) of v, n <= 32, as columns;
 * zeros behind them, and behind k up to a multiple of 32. One of v's strides is
 * 1. */
void amx_pack(uint16_t *panel, const gemm_view *v, int64_t r0, int64_t n,
              int64_t k);
/* dst[k / 32][32 rows][32] = rows of v, with zeros behind: as large as a panel.
 * One of v's strides is 1. */
void amx_copy(uint16_t *dst, const gemm_view *v, int64_t r0, int64_t n,
              int64_t k);
/* dst[c * ld + i] = p[c * step + i * stride], c < count, i < n, n <= 32 */
void amx_copies(uint16_t *dst, int64_t ld, const uint16_t *p, int64_t step,
                int64_t stride, int64_t n, int64_t count);
/* Rows of a product's left side: row r of tile d at p + r * stride + d * step,
 * in elements. */
typedef struct {
    const uint16_t *p;
    int64_t stride, step;
} amx_rows;
/* acc[n][32] = rows times panel, or += where `add`; n 16 or 32 */
void amx_block(float *acc, bool add, int64_t n, const amx_rows *rows,
               const uint16_t *panel, int64_t k);
/* Lanes [l0, l0 + nl), rows [r0, r0 + nr) of y from acc[lane][row]: y and s are
 * bf16; yr is 1, or yl is, and the same of s, whose other stride may be any. */
void amx_finish(const gemm_job *job, const float *acc, int64_t l0, int64_t nl,
                int64_t r0, int64_t nr);

#endif
