/* float_rows.h: rows of f32, bf16 and f16 as rows of float. */
#ifndef CPU_FLOAT_ROWS_H
#define CPU_FLOAT_ROWS_H

#include "air.h"
#include "driver/cpu/region/tile_float.h"

static inline bool
rows_take(int dtype)
{
    return dtype == AIR_F32 || dtype == AIR_BF16 || dtype == AIR_F16;
}

static inline int64_t
rows_bytes(int dtype)
{
    return dtype == AIR_F32 ? 4 : 2;
}

/* n elements of a dtype that rows_take() takes. */
static inline void
rows_widen(float *dst, const void *src, int dtype, int64_t n)
{
    const uint16_t *half = src;
    if (dtype == AIR_F32)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else if (dtype == AIR_BF16)
        for (int64_t i = 0; i < n; i++)
            dst[i] = tile_of_bf16(half[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = tile_of_f16(half[i]);
}

/* To nearest even. */
static inline void
rows_narrow(void *dst, const float *src, int dtype, int64_t n)
{
    uint16_t *half = dst;
    if (dtype == AIR_F32)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else if (dtype == AIR_BF16)
        for (int64_t i = 0; i < n; i++)
            half[i] = tile_to_bf16(src[i]);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = tile_to_f16(src[i]);
}

#endif
