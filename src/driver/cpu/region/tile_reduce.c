/* tile_reduce.c: folding tiles. The order is part of the kernel ABI
 * (docs/kernel-abi.md). Compiled once per ISA. */
#include <string.h>

#include "driver/cpu/region/tile_ops.h"

#define OP_SUM(a, x)  ((a) + (x))
#define OP_PROD(a, x) ((a) * (x))
/* x where it is larger or NaN: once NaN, always NaN. */
#define OP_MAX(a, x) ((x) > (a) || (x) != (x) ? (x) : (a))
#define OP_MIN(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define OP_ANY(a, x) ((uint8_t)((a) | (x)))
#define OP_ALL(a, x) ((uint8_t)((a) & (x)))

#define REDUCE(red, lane, T)                                                  \
    static void each_##red##_##lane(void *va, const void *vx, int64_t n)      \
    {                                                                         \
        T *restrict a = va;                                                   \
        const T *restrict x = vx;                                             \
        for (int64_t i = 0; i < n; i++)                                       \
            a[i] = OP_##red(a[i], x[i]);                                      \
    }                                                                         \
    static void fold_##red##_##lane(void *va, const void *vx, int64_t n)      \
    {                                                                         \
        T *restrict a = va;                                                   \
        const T *restrict x = vx;                                             \
        for (; n >= TILE_PARTS; n -= TILE_PARTS, x += TILE_PARTS)             \
            for (int i = 0; i < TILE_PARTS; i++)                              \
                a[i] = OP_##red(a[i], x[i]);                                  \
        for (int64_t i = 0; i < n; i++)                                       \
            a[i] = OP_##red(a[i], x[i]);                                      \
    }                                                                         \
    static void tree_##red##_##lane(void *va, const void *start, void *value) \
    {                                                                         \
        T *restrict a = va;                                                   \
        T p[32], q[16];                                                       \
        const T identity = *(const T *)start;                                 \
        for (int i = 0; i < 32; i++)                                          \
            p[i] = OP_##red(a[i], a[i + 32]);                                 \
        for (int i = 0; i < TILE_PARTS; i++)                                  \
            a[i] = identity;                                                  \
        for (int i = 0; i < 16; i++)                                          \
            q[i] = OP_##red(p[i], p[i + 16]);                                 \
        for (int i = 0; i < 8; i++)                                           \
            p[i] = OP_##red(q[i], q[i + 8]);                                  \
        for (int i = 0; i < 4; i++)                                           \
            q[i] = OP_##red(p[i], p[i + 4]);                                  \
        for (int i = 0; i < 2; i++)                                           \
            p[i] = OP_##red(q[i], q[i + 2]);                                  \
        *(T *)value = OP_##red(p[0], p[1]);                                   \
    }
#define REDUCE_NUMBERS(red)  \
    REDUCE(red, F32, float)  \
    REDUCE(red, F64, double) \
    REDUCE(red, I64, int64_t)
REDUCE_NUMBERS(SUM)
REDUCE_NUMBERS(PROD)
REDUCE_NUMBERS(MAX)
REDUCE_NUMBERS(MIN)
REDUCE(ANY, B, uint8_t)
REDUCE(ALL, B, uint8_t)

/* Integers that are narrower in memory, straight from there. Their order is
 * free, so that all of a row goes into the first part. ACC holds the sum of a
 * tile. */
#define FROM_SUM(T, ACC)                \
    ACC all = 0;                        \
    for (int64_t i = 0; i < n; i++)     \
        all = (ACC)(all + (ACC)(x[i])); \
    a[0] += all;
/* From the first element on again: n is often a multiple of a vector. */
#define FROM_BEST(red, T)            \
    T best = x[0];                   \
    for (int64_t i = 0; i < n; i++)  \
        best = OP_##red(best, x[i]); \
    a[0] = OP_##red(a[0], (int64_t)best);
#define FROM_MAX(T, ACC) FROM_BEST(MAX, T)
#define FROM_MIN(T, ACC) FROM_BEST(MIN, T)
#define NARROW(red, dtype, T, ACC)                                        \
    static void each_##red##_##dtype(void *va, const void *vx, int64_t n) \
    {                                                                     \
        int64_t *restrict a = va;                                         \
        const T *restrict x = vx;                                         \
        for (int64_t i = 0; i < n; i++)                                   \
            a[i] = OP_##red(a[i], (int64_t)x[i]);                         \
    }                                                                     \
    static void fold_##red##_##dtype(void *va, const void *vx, int64_t n) \
    {                                                                     \
        int64_t *restrict a = va;                                         \
        const T *restrict x = vx;                                         \
        if (n == 0)                                                       \
            return;                                                       \
        FROM_##red(T, ACC)                                                \
    }                                                                     \
    static void rows_##red##_##dtype(const void *vx, int64_t stride,      \
                                     int64_t rows, int64_t n, void *va)   \
    {                                                                     \
        const T *x = vx;                                                  \
        int64_t *a = va;                                                  \
        for (int64_t r = 0; r < rows; r++, a++, x += stride) {            \
            *a = START_##red;                                             \
            fold_##red##_##dtype(a, x, n);                                \
        }                                                                 \
    }
/* As narrow as memory until the end; `count` columns, which is a constant of
 * each call, so that they stay in registers. */
#define COLUMNS(red, dtype, T)                                                 \
    static inline __attribute__((always_inline)) void strip_##red##_##dtype(   \
        const T *restrict x, int64_t stride, int64_t rows,                     \
        int64_t *restrict a, const int count)                                  \
    {                                                                          \
        T best[TILE_FEW_VECTORS * TILE_VECTOR / sizeof(T)];                    \
        for (int i = 0; i < count; i++)                                        \
            best[i] = x[i];                                                    \
        for (int64_t r = 1; r < rows; r++) {                                   \
            x += stride;                                                       \
            for (int i = 0; i < count; i++)                                    \
                best[i] = OP_##red(best[i], x[i]);                             \
        }                                                                      \
        for (int i = 0; i < count; i++)                                        \
            a[i] = best[i];                                                    \
    }                                                                          \
    /* the last vector may begin within the one before it */                   \
    static void columns_##red##_##dtype(const void *vx, int64_t stride,        \
                                        int64_t rows, int64_t n, void *va)     \
    {                                                                          \
        enum { LANES = TILE_VECTOR / sizeof(T) };                              \
        enum { STRIP = TILE_FEW_VECTORS * LANES };                             \
        const T *x = vx;                                                       \
        int64_t *a = va, i = 0;                                                \
        for (; n - i >= STRIP; i += STRIP)                                     \
            strip_##red##_##dtype(x + i, stride, rows, a + i, STRIP);          \
        for (; n >= LANES && i < n; i += LANES) {                              \
            i = i + LANES <= n ? i : n - LANES;                                \
            strip_##red##_##dtype(x + i, stride, rows, a + i, LANES);          \
        }                                                                      \
        for (int64_t r = 0; r < rows && i < n; r++)                            \
            for (int64_t k = 0; k < n; k++)                                    \
                a[k] =                                                         \
                    r > 0 ? OP_##red(a[k], (int64_t)x[r * stride + k]) : x[k]; \
    }
#define columns_SUM(dtype) NULL
#define columns_MAX(dtype) columns_MAX_##dtype
#define columns_MIN(dtype) columns_MIN_##dtype
#define START_SUM          0
#define START_MAX          INT64_MIN
#define START_MIN          INT64_MAX
#define EACH_NARROW(_, red)       \
    _(red, I8, int8_t, int32_t)   \
    _(red, U8, uint8_t, int32_t)  \
    _(red, I16, int16_t, int32_t) \
    _(red, I32, int32_t, int64_t)
EACH_NARROW(NARROW, SUM)
EACH_NARROW(NARROW, MAX)
EACH_NARROW(NARROW, MIN)
#define EXTREME(red, dtype, T, ACC) COLUMNS(red, dtype, T)
EACH_NARROW(EXTREME, MAX)
EACH_NARROW(EXTREME, MIN)
#define NARROW_ROW(red, dtype, ...)                                      \
    [AIR_REDUCE_##                                                       \
        red][AIR_##dtype] = {fold_##red##_##dtype, each_##red##_##dtype, \
                             rows_##red##_##dtype, columns_##red(dtype)},
const tile_narrow_table TILE_NAME(tile_narrow) = {
    EACH_NARROW(NARROW_ROW, SUM) EACH_NARROW(NARROW_ROW, MAX)
        EACH_NARROW(NARROW_ROW, MIN)};

#define NUMBERS(kind, red) \
    [AIR_REDUCE_##         \
        red] = {kind##_##red##_F32, kind##_##red##_F64, kind##_##red##_I64}
#define TABLE(kind)                                                          \
    {                                                                        \
        NUMBERS(kind, SUM), NUMBERS(kind, PROD), NUMBERS(kind, MAX),         \
            NUMBERS(kind, MIN), [AIR_REDUCE_ANY][AIR_LANE_B] = kind##_ANY_B, \
                                [AIR_REDUCE_ALL][AIR_LANE_B] = kind##_ALL_B, \
    }
const tile_reduce_table TILE_NAME(tile_folds) = TABLE(fold);
const tile_reduce_table TILE_NAME(tile_eachs) = TABLE(each);
const tile_tree_table TILE_NAME(tile_trees) = TABLE(tree);
