/* gemm_tile.h: the micro-kernel of the matrix product, for a file that says
 * what a step of k is:
 *     vf broadcast(const float *w)       one step of a row of w, in each lane
 *     vf product(vf c, vf x, vf w)       c with that step added
 * and with NARROW the same of vn: narrow_broadcast, narrow_product. tile_rows
 * takes n rows of w, 1 .. ROWS_MAX, and the lanes of a panel that count: the
 * last panel of a product is rarely full. */
#ifndef CPU_GEMM_TILE_H
#define CPU_GEMM_TILE_H

#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_vec.h"

/* Three rows share a pointer: an x86 address takes base + index * {0, 1, 2}. */
#define POINTERS ((ROWS_MAX + 2) / 3)

/* Step k + `step` of the rows at p. */
INLINE void
tile_step(const int rows, const int vectors, vf c[ROWS_MAX][2], const float *x,
          const float *const p[POINTERS], int64_t rs, const int step)
{
    vf x0 = load(x), x1 = vectors > 1 ? load(x + VL) : x0;
    UNROLL for (int r = 0; r < rows; r++)
    {
        vf b = broadcast(&p[r / 3][(r % 3) * rs + step]);
        c[r][0] = product(c[r][0], x0, b);
        if (vectors > 1)
            c[r][1] = product(c[r][1], x1, b);
    }
}

/* Each block of k is summed on its own and then added: sums of sums keep the
 * rounding error of a long k near that of one block. What comes after w is
 * asked for on the way, a line a step: so many streams side by side are more
 * than the hardware's prefetcher sees. Rows along k take two steps at a time:
 * the CPU then looks further ahead and finds what is not in the nearest cache
 * sooner; with four the loop is too long for its cache of decoded code. */
INLINE void
tile(const int rows, const int vectors, float *acc, const float *x, int64_t xs,
     const float *w, int64_t rs, int64_t ks, int64_t kc, bool first,
     const gemm_ahead *ahead)
{
    vf c[ROWS_MAX][2];
    const float *p[POINTERS];
    const char *next = ahead->p;
    const int64_t step = ahead->step, second = ahead->second;
    UNROLL for (int r = 0; r < rows; r++)
    {
        c[r][0] = c[r][1] = (vf){0};
    }
    UNROLL for (int j = 0; 3 * j < rows; j++) p[j] = w + 3 * j * rs;
    int64_t k = 0;
    for (; ks == 1 && k + 2 <= kc; k += 2, x += 2 * xs) {
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + second, 0, 2);
        next += 2 * step;
        tile_step(rows, vectors, c, x, p, rs, 0);
        tile_step(rows, vectors, c, x + xs, p, rs, 1);
        UNROLL for (int j = 0; 3 * j < rows; j++) p[j] += 2;
    }
    for (; k < kc; k++, x += xs) {
        __builtin_prefetch(next, 0, 2);
        next += step;
        tile_step(rows, vectors, c, x, p, rs, 0);
        UNROLL for (int j = 0; 3 * j < rows; j++) p[j] += ks;
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        float *a = acc + r * LANES;
        store(a, first ? c[r][0] : load(a) + c[r][0]);
        if (vectors > 1)
            store(a + VL, first ? c[r][1] : load(a + VL) + c[r][1]);
    }
}

#ifdef NARROW
/* The same of NARROW lanes. */
INLINE void
tile_narrow(const int rows, float *acc, const float *x, int64_t xs,
            const float *w, int64_t rs, int64_t ks, int64_t kc, bool first,
            const gemm_ahead *ahead)
{
    vn c[ROWS_MAX], was;
    const char *next = ahead->p;
    const int64_t step = ahead->step;
    const float *p[(ROWS_MAX + 2) / 3];
    UNROLL for (int r = 0; r < rows; r++) c[r] = (vn){0};
    UNROLL for (int j = 0; 3 * j < rows; j++) p[j] = w + 3 * j * rs;
    for (int64_t k = 0; k < kc; k++) {
        vn x0;
        memcpy(&x0, x, sizeof x0);
        __builtin_prefetch(next, 0, 2);
        next += step;
        UNROLL for (int r = 0; r < rows; r++) c[r] =
            narrow_product(c[r], x0, narrow_broadcast(&p[r / 3][(r % 3) * rs]));
        UNROLL for (int j = 0; 3 * j < rows; j++) p[j] += ks;
        x += xs;
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        memcpy(&was, acc + r * LANES, sizeof was);
        was = first ? c[r] : was + c[r];
        memcpy(acc + r * LANES, &was, sizeof was);
    }
}
#endif

typedef void tile_fn(float *acc, const float *x, int64_t xs, const float *w,
                     int64_t rs, int64_t ks, int64_t kc, bool first,
                     const gemm_ahead *ahead);

#define TILE(R)                                                              \
    static void tile_##R(float *acc, const float *x, int64_t xs,             \
                         const float *w, int64_t rs, int64_t ks, int64_t kc, \
                         bool first, const gemm_ahead *ahead)                \
    {                                                                        \
        tile(R, 2, acc, x, xs, w, rs, ks, kc, first, ahead);                 \
    }                                                                        \
    static void half_##R(float *acc, const float *x, int64_t xs,             \
                         const float *w, int64_t rs, int64_t ks, int64_t kc, \
                         bool first, const gemm_ahead *ahead)                \
    {                                                                        \
        tile(R, 1, acc, x, xs, w, rs, ks, kc, first, ahead);                 \
    }
#define TILE_ROW(R) tile_##R,
#define HALF_ROW(R) half_##R,
#define TILES_6(X)  X(1) X(2) X(3) X(4) X(5) X(6)
#define TILES_8(X)  TILES_6(X) X(7) X(8)
#define TILES_14(X) TILES_8(X) X(9) X(10) X(11) X(12) X(13) X(14)
#if ROWS_MAX == 14
#define TILES TILES_14
#elif ROWS_MAX == 8
#define TILES TILES_8
#else
#define TILES TILES_6
#endif
TILES(TILE)
static tile_fn *const tiles[ROWS_MAX + 1] = {NULL, TILES(TILE_ROW)};
static tile_fn *const halves[ROWS_MAX + 1] = {NULL, TILES(HALF_ROW)};
#ifdef NARROW
#define NARROW_TILE(R)                                                         \
    static void narrow_##R(float *acc, const float *x, int64_t xs,             \
                           const float *w, int64_t rs, int64_t ks, int64_t kc, \
                           bool first, const gemm_ahead *ahead)                \
    {                                                                          \
        tile_narrow(R, acc, x, xs, w, rs, ks, kc, first, ahead);               \
    }
#define NARROW_ROW(R) narrow_##R,
TILES(NARROW_TILE)
static tile_fn *const narrows[ROWS_MAX + 1] = {NULL, TILES(NARROW_ROW)};
#endif

INLINE void
block_by(tile_fn *const *table, float *acc, int64_t nr, const float *panel,
         int64_t xs, const float *w, int64_t rs, int64_t ks, int64_t kc,
         bool first)
{
    const gemm_ahead nothing = gemm_ahead_of(panel, 0);
    int64_t nb = (nr + ROWS_MAX - 1) / ROWS_MAX;
    for (int64_t i = 0; i < nb; i++) { /* even sizes: no thin last one */
        int64_t b = nr * i / nb, e = nr * (i + 1) / nb;
        table[e - b](acc + b * LANES, panel, xs, w + b * rs, rs, ks, kc, first,
                     &nothing);
    }
}

/* gemm_ops.block */
static void
block(float *acc, int64_t nr, const float *panel, int64_t xs, const float *w,
      int64_t rs, int64_t ks, int64_t kc, bool first)
{
    block_by(tiles, acc, nr, panel, xs, w, rs, ks, kc, first);
}

/* gemm_ops.tile */
static void
tile_rows(float *acc, int64_t nr, const float *panel, int64_t xs, int64_t count,
          const float *w, int64_t rs, int64_t ks, int64_t kc, bool first,
          const gemm_ahead *ahead)
{
    tile_fn *const *table = count > VL ? tiles : halves;
#ifdef NARROW
    const gemm_ahead nothing = gemm_ahead_of(panel, 0);
    if (count > VL && count <= VL + NARROW) {
        narrows[nr](acc + VL, panel + VL, xs, w, rs, ks, kc, first, ahead);
        ahead = &nothing;
        table = halves;
    } else if (count <= NARROW) {
        table = narrows;
    }
#endif
    table[nr](acc, panel, xs, w, rs, ks, kc, first, ahead);
}

#endif
