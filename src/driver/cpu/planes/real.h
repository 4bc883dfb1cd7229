/* real.h: the lane of kernels that are compiled twice: float, for tensors of
 * f32, bf16 and f16, and with TILE_DOUBLE double, for f64. */
#ifndef CPU_REAL_H
#define CPU_REAL_H

#include <math.h>

#include "driver/cpu/product/float_rows.h"

#define REAL_JOIN_(name, isa) cpu_##name##_##isa
#define REAL_JOIN(name, isa)  REAL_JOIN_(name, isa)
#define REAL_ISA(name)        REAL_JOIN(name, TILE_ISA)

#ifdef TILE_DOUBLE
typedef double real;
typedef int64_t real_place; /* as wide as a lane */
#define REAL_DTYPE        AIR_F64
#define REAL_KERNEL(name) REAL_ISA(f64_##name)
#define real_floor(x)     floor(x)
#define real_rint(x)      rint(x)

static inline bool
reals_take(int dtype)
{
    return dtype == AIR_F64;
}

static inline int64_t
reals_bytes(int dtype)
{
    (void)dtype;
    return sizeof(real);
}

static inline void
reals_widen(real *dst, const void *src, int dtype, int64_t n)
{
    (void)dtype;
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static inline void
reals_narrow(void *dst, const real *src, int dtype, int64_t n)
{
    (void)dtype;
    memcpy(dst, src, (size_t)n * sizeof *src);
}

#else
typedef float real;
typedef int32_t real_place;
#define REAL_DTYPE        AIR_F32
#define REAL_KERNEL(name) REAL_ISA(name)
#define real_floor(x)     floorf(x)
#define real_rint(x)      rintf(x)
#define reals_take        rows_take
#define reals_bytes       rows_bytes
#define reals_widen       rows_widen
#define reals_narrow      rows_narrow

#endif

#endif
