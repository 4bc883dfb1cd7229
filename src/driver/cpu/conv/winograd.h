/* winograd.h: the loops of Winograd's F(2 x 2, 3 x 3), once per instruction
 * set. A tile is 4 x 4 pixels, which begin every second pixel, and makes 2 x 2
 * results: of pixels d and a window g
 *     A' [(G g G') * (B' d B)] A,
 * 16 products where the window has 36. Lanes are tiles. */
#ifndef CPU_WINOGRAD_H
#define CPU_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

#define WINOGRAD_PLACES 16 /* of a tile */

/* Adjacent tiles of one row, in the lanes of a panel. */
typedef struct {
    int64_t lane, count;
    int64_t from;    /* of the planes: where the first tile begins */
    int64_t to;      /* of the results: where its own begin */
    int64_t columns; /* of results: 2 * count, or one less */
    bool both;       /* rows of results: two, or one */
} winograd_run;

/* Where results go: row r, and what lies below. */
typedef struct {
    float *y;
    int64_t row, below;
    const float *bias; /* of row r; NULL: none */
} winograd_results;

struct winograd_ops {
    /* even[i] = p[2 * i], odd[i] = p[2 * i + 1] of n numbers */
    void (*split)(float *even, float *odd, const float *p, int64_t n);
    /* v[place * step + c * lanes] of a panel: B' d B of channels c < count.
     * Rows of a plane are the even pixels and, `half` floats behind them, the
     * odd ones. */
    void (*input)(float *v, int64_t step, const float *planes, int64_t plane,
                  int64_t half, const winograd_run *runs, int n, int64_t count);
    /* u[place * step + k]: G g G' of n windows one behind the other */
    void (*weights)(float *u, int64_t step, const float *w, int64_t n);
    /* A' m A of a panel's sums acc[place * step + r * lanes], r < rows. False:
     * some number is none, or infinite. */
    bool (*results)(const winograd_results *to, const float *acc, int64_t step,
                    int64_t rows, const winograd_run *runs, int n);
};

#endif
