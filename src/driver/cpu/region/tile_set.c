/* tile_set.c: choosing among the compilations of the tile loops. */
#include "driver/cpu/region/tile_ops.h"

#include <string.h>

#define TILE_SET(isa, bytes)                                               \
    {                                                                      \
#isa, bytes, &tile_ops_##isa, &tile_cvts_##isa, &tile_loads_##isa, \
            &tile_stores_##isa, &tile_fills_##isa, &tile_folds_##isa,      \
            &tile_eachs_##isa, &tile_narrow_##isa, &tile_trees_##isa,      \
            &tile_rows_##isa, &tile_columns_##isa, &tile_moves_##isa,      \
            &tile_pairs_##isa                                              \
    }

static const tile_set sets[] = {
    TILE_SET(scalar, 16),
#if defined(__x86_64__)
    TILE_SET(avx2, 32),
    TILE_SET(avx512, 64),
#endif
};

static int
usable_sets(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        return 2;
#endif
    return 1;
}

const tile_set *
tile_set_find(const char *isa)
{
    int best = usable_sets() - 1;
    for (int i = 0; i < best; i++)
        if (strcmp(sets[i].isa, isa) == 0)
            return &sets[i];
    return &sets[best];
}

bool
tile_is_compare(unsigned op)
{
    switch (op) {
    case AIR_RG_LT:
    case AIR_RG_LE:
    case AIR_RG_EQ:
    case AIR_RG_NE: return true;
    default: return false;
    }
}

size_t
tile_lane_size(unsigned lane)
{
    static const uint8_t size[TILE_LANES] = {4, 8, 8, 1};
    return size[lane];
}
