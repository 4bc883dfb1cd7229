/* correlate_run.h: windows that slide over planes, for a file that says what a
 * term is, as gemm_tile.h wants it: broadcast, product. */
#ifndef CPU_CORRELATE_RUN_H
#define CPU_CORRELATE_RUN_H

#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_vec.h"

/* Sums at once, which hide each other's latency: of one result, or of some that
 * read the same: eight where the registers hold them, or four. */
#define ALONE    8
#define GROUP    4
#define SHARED   (VL == 16 ? 6 : 2)
#define MANY     (VL == 16 ? 8 : GROUP)
#define FEW      (VL == 16 ? 3 : SHARED)
#define SUMS_MAX 24

/* Vectors of a result lie anywhere: of rows that are short, or of one. */
typedef struct {
    const float *p[ALONE];
    int64_t y[ALONE]; /* index of the first element */
    int64_t n[ALONE]; /* elements left of its row */
    int count;
} vectors;

static void
put_some(void *y, int64_t i, int dtype, const float *sums, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        put(y, i + k, dtype, sums[k]);
}

/* What a whole vector writes behind its row, the next row writes again. */
static bool
is_whole(const gemm_windows *s, const vectors *v, int i)
{
    return v->y[i] + VL <= s->rows * s->n;
}

static void
put_sums(const gemm_windows *s, const vectors *v, const float *sums, int outs,
         int vecs, void *y)
{
    for (int o = 0; o < outs; o++)
        for (int i = 0; i < v->count; i++) {
            const float *from = sums + (o * vecs + i) * VL;
            int64_t at = o * s->ld + v->y[i];
            if (is_whole(s, v, i))
                vput(y, at, s->dtype, load(from));
            else
                put_some(y, at, s->dtype, from, v->n[i]);
        }
}

/* The registers hold sums and nothing else: what is no vector of floats is put
 * from memory. */
INLINE void
sum_windows(const gemm_windows *s, const vectors *v, const float *w,
            const float *start, void *y, int outs, int vecs)
{
    vf acc[SUMS_MAX];
    float sums[SUMS_MAX * VL];
    UNROLL for (int o = 0; o < outs; o++) UNROLL for (int i = 0; i < vecs; i++)
        acc[o * vecs + i] = set(start[o]);
    for (int64_t t = 0; t < s->taps; t++) {
        int64_t from = s->at[t];
        vf x[ALONE];
        UNROLL for (int i = 0; i < vecs; i++) x[i] = load(v->p[i] + from);
        UNROLL for (int o = 0; o < outs; o++)
        {
            vf f = broadcast(&w[o * s->taps + t]);
            UNROLL for (int i = 0; i < vecs; i++) acc[o * vecs + i] =
                product(acc[o * vecs + i], x[i], f);
        }
    }
    if (s->dtype == AIR_F32 && v->count == vecs && is_whole(s, v, vecs - 1)) {
        UNROLL for (int o = 0; o < outs; o++)
            UNROLL for (int i = 0; i < vecs; i++)
                store((float *)y + o * s->ld + v->y[i], acc[o * vecs + i]);
        return;
    }
    UNROLL for (int i = 0; i < outs * vecs; i++) store(sums + i * VL, acc[i]);
    put_sums(s, v, sums, outs, vecs, y);
}

INLINE void
slide(const gemm_windows *s, const float *p, const float *w, const float *start,
      void *y, int outs, int vecs)
{
    const int64_t each = (s->n + VL - 1) / VL, all = s->rows * each;
    vectors v = {.count = 0};
    for (int64_t k = 0, r = 0, i = 0; k < all; k++) {
        v.p[v.count] = p + r * s->step + i;
        v.y[v.count] = r * s->n + i;
        v.n[v.count++] = min64(s->n - i, VL);
        i += VL;
        if (i >= s->n)
            i = 0, r++;
        if (v.count < vecs && k + 1 < all)
            continue;
        for (int j = v.count; j < vecs; j++)
            v.p[j] = v.p[0];
        sum_windows(s, &v, w, start, y, outs, vecs);
        v.count = 0;
    }
}

/* gemm_ops.correlate */
static void
slide_all(const gemm_windows *s, const float *p, const float *w,
          const float *start, int64_t outs, void *y)
{
    int64_t o = 0, line = s->ld * (s->dtype == AIR_F32 ? 4 : 2);
    for (; o + MANY <= outs; o += MANY)
        slide(s, p, w + o * s->taps, start + o, (char *)y + o * line, MANY,
              FEW);
    for (; o + GROUP <= outs; o += GROUP)
        slide(s, p, w + o * s->taps, start + o, (char *)y + o * line, GROUP,
              SHARED);
    for (; o < outs; o++)
        slide(s, p, w + o * s->taps, start + o, (char *)y + o * line, 1, ALONE);
}

#endif
