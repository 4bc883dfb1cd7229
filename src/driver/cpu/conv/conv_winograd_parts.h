/* conv_winograd_parts.h: what the files of conv_winograd.h share. */
#ifndef CPU_CONV_WINOGRAD_PARTS_H
#define CPU_CONV_WINOGRAD_PARTS_H

#include "driver/cpu/conv/conv_winograd.h"
#include "driver/cpu/conv/winograd.h"

#define PLACES   WINOGRAD_PLACES
#define REST_MAX 2 /* tiles that dot products take */
#define SUMS     (PLACES * 16 * GEMM_LANES_MAX) /* floats: 16 rows at most */

/* ---- conv_winograd_plan.c ------------------------------------------------ */

typedef struct {
    const conv_geometry *g;
    int64_t high, wide;  /* tiles of an image */
    int64_t rows, total; /* of tiles: of a chunk, of all images */
    int64_t chunks;
    int64_t half, plane;   /* floats of half a row of a plane; of a plane */
    int64_t step, windows; /* from one row of weights to the next; of all */
} winograd_layout;

winograd_layout cpu_winograd_layout(const conv_geometry *g, int threads);

/* Floats of a thread, but for `pixels` of one chunk those of all threads. */
typedef struct {
    int64_t pixels, rest, weights, lines;
} winograd_shares;

winograd_shares cpu_winograd_shares(const air_call *call,
                                    const winograd_layout *l);
int64_t cpu_winograd_mine(const winograd_shares *s, bool one);
size_t cpu_winograd_bytes(const winograd_layout *l, const winograd_shares *s,
                          int threads);

/* ---- conv_winograd_pixels.c ---------------------------------------------- */

/* What a thread computes with. */
typedef struct {
    const winograd_layout *l;
    const gemm_ops *ops;
    const float *x, *w, *bias; /* bias NULL: none */
    float *y;
    float *pixels, *rest, *weights, *lines;
    float *sums, *more, *planes; /* of its scratch */
    const gemm_lines *taker;
} winograd_work;

/* Rows of tiles [b, e). */
typedef struct {
    int64_t b, e, tiles;
} winograd_chunk;

winograd_chunk cpu_winograd_chunk(const winograd_layout *l, int64_t i);
/* Tiles behind the last whole vector that dot products take, which sum in
 * another order: of the only chunk, whatever the number of threads. */
int64_t cpu_winograd_rest(const winograd_work *w, const winograd_chunk *c);
/* Rows of results before a row of tiles, of all images. */
int64_t cpu_winograd_before(const winograd_layout *l, int64_t row);
/* Where the results of a row of tiles begin: in y, or in lines of a chunk. */
int64_t cpu_winograd_at(const winograd_work *w, const winograd_chunk *c,
                        int64_t row);
/* Tiles [t, t + n) of a chunk as runs, n at most; returns how many. */
int cpu_winograd_runs(const winograd_work *w, const winograd_chunk *c,
                      int64_t t, int64_t n, winograd_run *out);
/* Floats from one place of a panel to the next, not of a power of two. */
int64_t cpu_winograd_step(const winograd_work *w);
/* Transformed pixels of channels [b, e). */
void cpu_winograd_pixels(const winograd_work *w, const winograd_chunk *c,
                         int64_t b, int64_t e);
/* The last tiles, [tile][place][channel]. */
void cpu_winograd_turn_rest(const winograd_work *w, const winograd_chunk *c);

/* ---- conv_winograd_products.c, conv_winograd_results.c ------------------- */

/* Channels out [r, r + n) and their weights, [place][row][step]. */
typedef struct {
    int64_t r, n;
    float *u;
    gemm_ahead ahead;
} winograd_block;

/* All places of a panel of `count` tiles, of which the last `rest` are dot
 * products. */
void cpu_winograd_multiply(const winograd_work *w, const winograd_block *b,
                           const float *v, int64_t count, int64_t rest,
                           gemm_ahead *ahead);
/* A chunk times a block of weights. */
void cpu_winograd_block(const winograd_work *w, const winograd_chunk *c,
                        const winograd_block *b);

#endif
