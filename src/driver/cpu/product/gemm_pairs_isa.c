/* gemm_pairs_isa.c: the loops of gemm_pairs.c, with VDPBF16PS. A step of k is a
 * pair: both elements of it lie in the 32 bits of a lane. */
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/gemm_vec.h"
#include "driver/cpu/region/step_pairs.h"

INLINE vn
narrow_broadcast(const float *w)
{
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    return (vn)_mm256_set1_epi32(pair);
}

INLINE vn
narrow_product(vn c, vn x, vn w)
{
    return (vn)_mm256_dpbf16_ps((__m256)c, (__m256bh)x, (__m256bh)w);
}

#include "driver/cpu/product/gemm_finish.h"
#include "driver/cpu/product/gemm_tile.h"

void
cpu_pairs_tile(float *acc, int64_t nr, const float *panel, int64_t xs,
               int64_t count, const float *w, int64_t rs, int64_t ks,
               int64_t kc, bool first, const gemm_ahead *ahead)
{
    tile_rows(acc, nr, panel, xs, count, w, rs, ks, kc, first, ahead);
}

void
cpu_pairs_block(float *acc, int64_t nr, const float *panel, int64_t xs,
                const float *w, int64_t rs, int64_t ks, int64_t kc, bool first)
{
    block(acc, nr, panel, xs, w, rs, ks, kc, first);
}

void
cpu_pairs_finish(const gemm_job *job, const float *acc, int64_t acc_rows,
                 int64_t l0, int64_t nl, int64_t r0, int64_t nr)
{
    finish(job, acc, acc_rows, l0, nl, r0, nr);
}

void
cpu_pairs_finish_rows(const gemm_job *job, const float *t, int64_t ts,
                      int64_t r0, int64_t nr)
{
    finish_rows(job, t, ts, r0, nr);
}

/* One row of pairs: a[i * step] with b[i * step], i < n. */
static void
pair_row(uint32_t *dst, const uint16_t *a, const uint16_t *b, int64_t step,
         int64_t n)
{
    int64_t i = 0;
    for (; step == 1 && i + VL <= n; i += VL) {
        vh low, high;
        memcpy(&low, a + i, sizeof low);
        memcpy(&high, b + i, sizeof high);
        vu pairs = widen_halves(low) | widen_halves(high) << 16;
        memcpy(dst + i, &pairs, sizeof pairs);
    }
    for (; i < n; i++)
        dst[i] = a[i * step] | (uint32_t)b[i * step] << 16;
}

void
cpu_pairs_pack(float *dst, int64_t ld, const gemm_view *v, int64_t r, int64_t n,
               int64_t k0, int64_t k1)
{
    uint32_t *row = (uint32_t *)(void *)dst;
    for (int64_t k = k0; k < k1; k++, row += ld) {
        const uint16_t *a = (const uint16_t *)v->p + r * v->rs + 2 * k * v->ks;
        pair_row(row, a, a + v->ks, v->rs, n);
        if (n < ld)
            memset(row + n, 0, (size_t)(ld - n) * sizeof *row);
    }
}
