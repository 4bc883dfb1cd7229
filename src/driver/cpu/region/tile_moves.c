/* tile_moves.c: elements from one stride to another. Strides that are known let
 * the compiler move several at once. Compiled once per ISA. */
#include "driver/cpu/region/tile_ops.h"

#define ALONG(to_step, from_step)   \
    for (int64_t i = 0; i < n; i++) \
    d[i * (to_step)] = s[i * (from_step)]
#define MOVE(T)                                                       \
    static void move_##T(void *to, int64_t to_step, const void *from, \
                         int64_t from_step, int64_t n)                \
    {                                                                 \
        T *restrict d = to;                                           \
        const T *restrict s = from;                                   \
        if (to_step == 1 && from_step == 0) {                         \
            const T value = n > 0 ? s[0] : 0;                         \
            for (int64_t i = 0; i < n; i++)                           \
                d[i] = value;                                         \
        } else if (to_step == 1 && from_step == 2) {                  \
            ALONG(1, 2);                                              \
        } else if (to_step == 1 && from_step == 3) {                  \
            ALONG(1, 3);                                              \
        } else if (to_step == 1 && from_step == 4) {                  \
            ALONG(1, 4);                                              \
        } else if (to_step == 1 && from_step == -1) {                 \
            ALONG(1, -1);                                             \
        } else {                                                      \
            ALONG(to_step, from_step);                                \
        }                                                             \
    }
MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

#define PAIRS(T)                                                            \
    static void part_##T(void *pairs, void *first, void *second, int64_t n) \
    {                                                                       \
        const T *restrict s = pairs;                                        \
        T *restrict a = first, *restrict b = second;                        \
        for (int64_t i = 0; i < n; i++) {                                   \
            a[i] = s[2 * i];                                                \
            b[i] = s[2 * i + 1];                                            \
        }                                                                   \
    }                                                                       \
    static void join_##T(void *pairs, void *first, void *second, int64_t n) \
    {                                                                       \
        T *restrict d = pairs;                                              \
        const T *restrict a = first, *restrict b = second;                  \
        for (int64_t i = 0; i < n; i++) {                                   \
            d[2 * i] = a[i];                                                \
            d[2 * i + 1] = b[i];                                            \
        }                                                                   \
    }
PAIRS(uint8_t)
PAIRS(uint16_t)
PAIRS(uint32_t)
PAIRS(uint64_t)

const tile_pairs_table TILE_NAME(tile_pairs) = {
    [1] = {part_uint8_t, join_uint8_t},
    [2] = {part_uint16_t, join_uint16_t},
    [4] = {part_uint32_t, join_uint32_t},
    [8] = {part_uint64_t, join_uint64_t}};

const tile_move_table TILE_NAME(tile_moves) = {[1] = move_uint8_t,
                                               [2] = move_uint16_t,
                                               [4] = move_uint32_t,
                                               [8] = move_uint64_t};
