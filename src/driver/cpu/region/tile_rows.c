/* tile_rows.c: folds of whole rows, and of a few columns, in the order of the
 * kernel ABI: partial results stay in registers. Compiled once per ISA. */
#include <math.h>
#include <string.h>

#include "driver/cpu/region/tile_ops.h"

/* Vectors of a lane, and of the places of their elements. */
#define VECTORS_OF(lane, T, I)                                         \
    enum { LANES_##lane = TILE_VECTOR / sizeof(T) };                   \
    typedef T vector_##lane __attribute__((vector_size(TILE_VECTOR))); \
    typedef I places_##lane __attribute__((vector_size(TILE_VECTOR))); \
    static inline places_##lane count_##lane(void)                     \
    {                                                                  \
        static const I numbers[16] = {0, 1, 2,  3,  4,  5,  6,  7,     \
                                      8, 9, 10, 11, 12, 13, 14, 15};   \
        places_##lane count;                                           \
        memcpy(&count, numbers, sizeof count);                         \
        return count;                                                  \
    }
VECTORS_OF(F32, float, int32_t)
VECTORS_OF(F64, double, int64_t)
VECTORS_OF(I64, int64_t, int64_t)

/* x where it is larger (smaller) or NaN. */
#define BEST(lane, which, sign)                                 \
    static inline vector_##lane which##_##lane(vector_##lane a, \
                                               vector_##lane x) \
    {                                                           \
        const places_##lane m = (x sign a) | (x != x);          \
        return (vector_##lane)(((places_##lane)x & m) |         \
                               ((places_##lane)a & ~m));        \
    }
BEST(F64, larger, >)
BEST(I64, larger, >)
BEST(F64, smaller, <)
BEST(I64, smaller, <)

#define OP_SUM(lane, a, x)  ((a) + (x))
#define OP_PROD(lane, a, x) ((a) * (x))
#define OP_MAX(lane, a, x)  larger_##lane(a, x)
#define OP_MIN(lane, a, x)  smaller_##lane(a, x)

/* The last `left` elements of a row of n, fewer than a vector has, then the
 * identity, which is what `to` has so far. What a longer row has before them
 * comes along in the load. */
#define LAST(lane, T)                                                  \
    static inline void last_##lane(const T *x, int64_t n, int left,    \
                                   vector_##lane *to)                  \
    {                                                                  \
        enum { LANES = LANES_##lane };                                 \
        const places_##lane kept = count_##lane() < left;              \
        vector_##lane v = {0};                                         \
        if (n >= LANES) {                                              \
            memcpy(&v, x + n - LANES, sizeof v);                       \
            v = __builtin_shuffle(v, count_##lane() + (LANES - left)); \
        } else {                                                       \
            T few[LANES] = {0};                                        \
            for (int e = 0; e < left; e++)                             \
                few[e] = x[e];                                         \
            memcpy(&v, few, sizeof v);                                 \
        }                                                              \
        *to = (vector_##lane)(((places_##lane)v & kept) |              \
                              ((places_##lane) * to & ~kept));         \
    }
LAST(F32, float)
LAST(F64, double)
LAST(I64, int64_t)

#define EACH(k, n) _Pragma("GCC unroll 16") for (int k = 0; k < (n); k++)
#define HALVES(w, n) \
    _Pragma("GCC unroll 4") for (int w = (n) / 2; w > 0; w /= 2)

#define ROWS(red, lane, T, START)                                         \
    static void rows_##red##_##lane(const void *from, int64_t stride,     \
                                    int64_t rows, int64_t n, void *to)    \
    {                                                                     \
        enum { LANES = LANES_##lane, VECTORS = TILE_PARTS / LANES };      \
        const T *x = from;                                                \
        T *folded = to;                                                   \
        const int left = (int)(n % LANES);                                \
        const int whole = (int)(n % TILE_PARTS) / LANES;                  \
        const vector_##lane identity = (vector_##lane){0} + (T)(START);   \
        for (int64_t r = 0; r < rows; r++, x += stride) {                 \
            vector_##lane a[VECTORS], v, last = identity;                 \
            int64_t i = 0;                                                \
            EACH(k, VECTORS) a[k] = identity;                             \
            for (; n - i >= TILE_PARTS; i += TILE_PARTS) {                \
                EACH(k, VECTORS)                                          \
                {                                                         \
                    memcpy(&v, x + i + LANES * k, sizeof v);              \
                    a[k] = OP_##red(lane, a[k], v);                       \
                }                                                         \
            }                                                             \
            if (left > 0)                                                 \
                last_##lane(x, n, left, &last);                           \
            EACH(k, VECTORS)                                              \
            {                                                             \
                if (k < whole) {                                          \
                    memcpy(&v, x + i + LANES * k, sizeof v);              \
                    a[k] = OP_##red(lane, a[k], v);                       \
                } else if (k == whole) {                                  \
                    a[k] = OP_##red(lane, a[k], last);                    \
                }                                                         \
            }                                                             \
            HALVES(w, VECTORS)                                            \
            EACH(k, w) a[k] = OP_##red(lane, a[k], a[k + w]);             \
            HALVES(w, LANES)                                              \
            a[0] = OP_##red(lane, a[0],                                   \
                            __builtin_shuffle(a[0], count_##lane() ^ w)); \
            folded[r] = a[0][0];                                          \
        }                                                                 \
    }
ROWS(SUM, F32, float, 0)
ROWS(SUM, F64, double, 0)
ROWS(SUM, I64, int64_t, 0)
ROWS(PROD, F32, float, 1)
ROWS(PROD, F64, double, 1)
/* AVX-512 has instructions for these, with which machine code is faster. */
#ifndef __AVX512F__
ROWS(MAX, F64, double, -INFINITY)
ROWS(MAX, I64, int64_t, INT64_MIN)
ROWS(MIN, F64, double, INFINITY)
ROWS(MIN, I64, int64_t, INT64_MAX)
#endif

/* How many values of the tree chunk `chunk` is folded with. */
static inline int
merged(int64_t chunk)
{
    return __builtin_ctzll(~(unsigned long long)chunk);
}

/* `vectors` of columns; the last one may begin within the one before it. */
#define COLUMNS(red, lane, T, START, FEW)                                      \
    static inline __attribute__((always_inline)) void chunk_##red##_##lane(    \
        const T *x, int64_t stride, int64_t rows, const int64_t *at,           \
        vector_##lane *a, const int vectors)                                   \
    {                                                                          \
        const vector_##lane identity = (vector_##lane){0} + (T)(START);        \
        vector_##lane few[TILE_FEW_VECTORS], v;                                \
        EACH(k, vectors) a[k] = identity;                                      \
        for (int64_t left = rows; left > 0; left -= FEW) {                     \
            EACH(k, vectors) few[k] = identity;                                \
            EACH(e, FEW)                                                       \
            {                                                                  \
                if (e < left) {                                                \
                    EACH(k, vectors)                                           \
                    {                                                          \
                        memcpy(&v, x + at[k], sizeof v);                       \
                        few[k] = OP_##red(lane, few[k], v);                    \
                    }                                                          \
                    x += stride;                                               \
                }                                                              \
            }                                                                  \
            EACH(k, vectors) a[k] = OP_##red(lane, a[k], few[k]);              \
        }                                                                      \
    }                                                                          \
    static inline __attribute__((always_inline)) void strip_##red##_##lane(    \
        const T *x, int64_t stride, int64_t rows, int64_t n, T *folded,        \
        const int vectors)                                                     \
    {                                                                          \
        enum { LANES = LANES_##lane };                                         \
        vector_##lane level[TILE_LEVELS][TILE_FEW_VECTORS];                    \
        int64_t at[TILE_FEW_VECTORS], depth = 0;                               \
        EACH(k, vectors) at[k] = k + 1 < vectors ? LANES * k : n - LANES;      \
        for (int64_t i = 0; i * TILE_SUM_ROWS < rows; i++) {                   \
            const int64_t left = rows - i * TILE_SUM_ROWS;                     \
            vector_##lane a[TILE_FEW_VECTORS];                                 \
            chunk_##red##_##lane(x + i * TILE_SUM_ROWS * stride, stride,       \
                                 left < TILE_SUM_ROWS ? left : TILE_SUM_ROWS,  \
                                 at, a, vectors);                              \
            for (int m = merged(i); m > 0; m--) {                              \
                depth--;                                                       \
                EACH(k, vectors) a[k] = OP_##red(lane, level[depth][k], a[k]); \
            }                                                                  \
            EACH(k, vectors) level[depth][k] = a[k];                           \
            depth++;                                                           \
        }                                                                      \
        for (; depth > 1; depth--)                                             \
            EACH(k, vectors)                                                   \
        level[depth - 2][k] =                                                  \
            OP_##red(lane, level[depth - 2][k], level[depth - 1][k]);          \
        EACH(k, vectors)                                                       \
        memcpy(folded + at[k], &level[0][k], sizeof(vector_##lane));           \
    }                                                                          \
    static void columns_##red##_##lane(const void *from, int64_t stride,       \
                                       int64_t rows, int64_t n, void *to)      \
    {                                                                          \
        switch ((n + LANES_##lane - 1) / LANES_##lane) {                       \
        case 1: strip_##red##_##lane(from, stride, rows, n, to, 1); break;     \
        case 2: strip_##red##_##lane(from, stride, rows, n, to, 2); break;     \
        case 3: strip_##red##_##lane(from, stride, rows, n, to, 3); break;     \
        default: strip_##red##_##lane(from, stride, rows, n, to, 4); break;    \
        }                                                                      \
    }
COLUMNS(SUM, F32, float, 0, AIR_RG_FEW_ROWS)
COLUMNS(SUM, F64, double, 0, 1)
COLUMNS(SUM, I64, int64_t, 0, 1)
COLUMNS(PROD, F32, float, 1, AIR_RG_FEW_ROWS)
COLUMNS(PROD, F64, double, 1, 1)

const tile_rows_table TILE_NAME(tile_rows) = {
    [AIR_REDUCE_SUM] = {rows_SUM_F32, rows_SUM_F64, rows_SUM_I64},
#ifndef __AVX512F__
    [AIR_REDUCE_MAX] = {NULL, rows_MAX_F64, rows_MAX_I64},
    [AIR_REDUCE_MIN] = {NULL, rows_MIN_F64, rows_MIN_I64},
#endif
    [AIR_REDUCE_PROD] = {rows_PROD_F32, rows_PROD_F64}};
const tile_rows_table TILE_NAME(tile_columns) = {
    [AIR_REDUCE_SUM] = {columns_SUM_F32, columns_SUM_F64, columns_SUM_I64},
    [AIR_REDUCE_PROD] = {columns_PROD_F32, columns_PROD_F64}};
