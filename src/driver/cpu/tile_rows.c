/* tile_rows.c: sums of whole rows, in the order of the kernel ABI: the partial
 * results and the tree stay in registers. Compiled once per ISA. */
#include <string.h>

#include "tile_ops.h"

#define LANES 16

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t places __attribute__((vector_size(4 * LANES)));

static const places count = {0, 1, 2,  3,  4,  5,  6,  7,
                             8, 9, 10, 11, 12, 13, 14, 15};

/* Elements x[n - left .. n) of a row of n, then zeros. What a longer row has
 * before them comes along in the load. */
#define LAST(to, x, n, left)                                          \
    do {                                                              \
        if ((n) >= LANES) {                                           \
            memcpy(&(to), (x) + (n)-LANES, sizeof(to));               \
            (to) = __builtin_shuffle((to), count + (LANES - (left))); \
            (to) = (lanes)((places)(to) & (count < (left)));          \
        } else {                                                      \
            float few[LANES] = {0};                                   \
            for (int e = 0; e < (left); e++)                          \
                few[e] = (x)[e];                                      \
            memcpy(&(to), few, sizeof(to));                           \
        }                                                             \
    } while (0)

static void
rows_sum(const float *x, int64_t stride, int64_t rows, int64_t n, float *sums)
{
    const int32_t left = (int32_t)(n % LANES);
    const int whole = (int)(n % TILE_PARTS) / LANES;
    for (int64_t r = 0; r < rows; r++, x += stride) {
        lanes a[4] = {{0}}, v;
        int64_t i = 0;
        for (; n - i >= TILE_PARTS; i += TILE_PARTS)
            for (int k = 0; k < 4; k++) {
                memcpy(&v, x + i + LANES * k, sizeof v);
                a[k] += v;
            }
        lanes last = {0};
        if (left > 0)
            LAST(last, x, n, left);
        for (int k = 0; k < 4; k++) {
            if (k < whole) {
                memcpy(&v, x + i + LANES * k, sizeof v);
                a[k] += v;
            } else if (k == whole) {
                a[k] += last;
            }
        }
        a[0] += a[2];
        a[1] += a[3];
        a[0] += a[1];
        a[0] += __builtin_shuffle(a[0], count ^ 8);
        a[0] += __builtin_shuffle(a[0], count ^ 4);
        a[0] += __builtin_shuffle(a[0], count ^ 2);
        a[0] += __builtin_shuffle(a[0], count ^ 1);
        sums[r] = a[0][0];
    }
}

const tile_rows_fn TILE_NAME(tile_row_sums) = rows_sum;
