/* tile_reduce.c: folding tiles. The order is part of the kernel ABI
 * (docs/kernel-abi.md). Compiled once per ISA. */
#include "tile_ops.h"

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
