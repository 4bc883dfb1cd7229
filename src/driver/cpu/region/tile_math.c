/* tile_math.c: one loop per primitive, composite and function, and lane.
 * Compiled once per ISA, always with -ffp-contract=off and -fwrapv: all
 * compilations give the same bits. */
#include "driver/cpu/region/tile_ops.h"

#include <math.h>
#include <string.h>

#include "driver/cpu/region/tile_float.h"
#include "driver/cpu/region/tile_special.h"

#define ARGS_1(T) T a
#define ARGS_2(T) T a, T b
#define ARGS_3(T) T a, T b, T c
#define USE_1(x)  x(pa[i])
#define USE_2(x)  x(pa[i], pb[i])
#define USE_3(x)  x(pa[i], pb[i], pc[i])

/* d[i] = fn(a[i], ...): R, A, B are the C types of result and operands. */
#define LOOP(name, n, R, A, B, fn)                                     \
    static void name(void *restrict vd, const void *restrict va,       \
                     const void *restrict vb, const void *restrict vc, \
                     int64_t count)                                    \
    {                                                                  \
        R *restrict d = vd;                                            \
        const A *restrict pa = va;                                     \
        const B *restrict pb = vb, *restrict pc = vc;                  \
        (void)pb;                                                      \
        (void)pc;                                                      \
        for (int64_t i = 0; i < count; i++)                            \
            d[i] = (R)USE_##n(fn);                                     \
    }

#define NONE(...)
#define PRIM(id, n, lanes, ...) PRIM_##lanes(id, n, __VA_ARGS__)

/* ---- F32: primitives and composites as functions on float ---- */

#define abs_        fabsf
#define fma_        fmaf
#define sqrt_       sqrtf
#define rint_       rintf
#define floor_      floorf
#define ceil_       ceilf
#define trunc_      truncf
#define sign_       copysignf
#define scalef_     tile_scalef
#define scalen_     tile_scalen
#define logb_       tile_logb
#define mant_       tile_mant
#define round_bf16_ tile_round_bf16
#define round_f16_  tile_round_f16
typedef float T;
static inline float
K(float value)
{
    return value;
}
static inline float
SEL(int a, float b, float c)
{
    return a ? b : c;
}
#define BODY_F32(id, n, R, ...)         \
    static inline R id(ARGS_##n(float)) \
    {                                   \
        return (R)(__VA_ARGS__);        \
    }
#define PRIM_F(id, n, ...)  BODY_F32(id, n, float, __VA_ARGS__)
#define PRIM_FI(id, n, ...) BODY_F32(id, n, float, __VA_ARGS__)
#define PRIM_C(id, n, ...)  BODY_F32(id, n, int, __VA_ARGS__)
#define PRIM_V(id, n, ...)  BODY_F32(id, n, float, __VA_ARGS__)
#define PRIM_I              NONE
#define PRIM_S              NONE
#define PRIM_B              NONE
#define COMP(id, n, exact, ...)             \
    static inline float id(ARGS_##n(float)) \
    {                                       \
        __VA_ARGS__                         \
    }
#define FUNC NONE
#include "air_prims.def"
#undef COMP
#undef FUNC
#undef PRIM_F
#undef PRIM_FI
#undef PRIM_C
#undef PRIM_V
#undef PRIM_I

#define PRIM_F(id, n, ...) LOOP(f32_##id, n, float, float, float, id)
#define PRIM_FI            PRIM_F
#define PRIM_V             PRIM_F
#define PRIM_C(id, n, ...) LOOP(f32_##id, n, uint8_t, float, float, id)
#define PRIM_I             NONE
#define COMP(id, n, ...)   LOOP(f32_##id, n, float, float, float, id)
#define FUNC(id, n, ...)                              \
    static inline float fun_f32_##id(ARGS_##n(float)) \
    {                                                 \
        return (float)(__VA_ARGS__);                  \
    }                                                 \
    LOOP(f32_##id, n, float, float, float, fun_f32_##id)
#define f32_SIN  libm_f32_SIN
#define f32_COS  libm_f32_COS
#define f32_TAN  libm_f32_TAN
#define f32_FMOD libm_f32_FMOD
#include "driver/cpu/region/tile_libm_float.h"

#include "air_prims.def"

#include "driver/cpu/region/tile_libm_undef.h"
#undef f32_SIN
#undef f32_COS
#undef f32_TAN
#undef f32_FMOD

/* Of ordinary arguments here, of those that are hard by libm. Not a COMP: no
 * body without tables is right for all arguments. */
#define GUARDED(lane, id, n, T, fn, hard)                                     \
    static void lane##_##id(void *restrict vd, const void *restrict va,       \
                            const void *restrict vb, const void *restrict vc, \
                            int64_t count)                                    \
    {                                                                         \
        T *restrict d = vd;                                                   \
        const T *restrict pa = va, *restrict pb = vb;                         \
        int others = 0;                                                       \
        (void)pb;                                                             \
        for (int64_t i = 0; i < count; i++) {                                 \
            d[i] = (T)USE_##n(fn);                                            \
            others |= USE_##n(hard);                                          \
        }                                                                     \
        for (int64_t i = 0; others && i < count; i++)                         \
            if (USE_##n(hard))                                                \
                libm_##lane##_##id(&d[i], &pa[i], &pb[i], vc, 1);             \
    }
#define F32_SIN(a)       tile_wave(a, 0)
#define F32_COS(a)       tile_wave(a, 1)
#define WAVE_IS_HARD(a)  (!(fabsf(a) <= TILE_WAVE_MAX))
#define ANGLE_IS_HARD(a) (!(fabs((double)(a)) <= TILE_ANGLE_MAX))
GUARDED(f32, SIN, 1, float, F32_SIN, WAVE_IS_HARD)
GUARDED(f32, COS, 1, float, F32_COS, WAVE_IS_HARD)
GUARDED(f32, TAN, 1, float, tile_tan_f32, ANGLE_IS_HARD)
GUARDED(f32, FMOD, 2, float, tile_fmod, tile_fmod_is_far)
LOOP(f32_SEL, 3, float, uint8_t, float, SEL)
#undef abs_
#undef fma_
#undef sqrt_
#undef rint_
#undef floor_
#undef ceil_
#undef trunc_
#undef sign_
#undef scalef_
#undef scalen_
#undef logb_
#undef mant_
#undef round_bf16_
#undef round_f16_
#undef COMP
#undef FUNC
#undef PRIM_F
#undef PRIM_FI
#undef PRIM_C
#undef PRIM_V
#undef PRIM_I

/* ---- F64: composites and functions have no body, but their own names (see
 * tile_libm_double.h) ---- */

#define abs_    fabs
#define fma_    fma
#define sqrt_   sqrt
#define rint_   rint
#define floor_  floor
#define ceil_   ceil
#define trunc_  trunc
#define sign_   copysign
#define scalef_ scalbn_f64
#define scalen_ scalbn_f64
#define logb_   logb
#define mant_   mant_f64
static inline double
scalbn_f64(double a, double b)
{
    return ldexp(a, b > 4000 ? 4000 : b < -4000 ? -4000 : (int)b);
}
static inline double
mant_f64(double a)
{
    return a > 0 && a <= 0x1.fffffffffffffp1023 ? ldexp(a, -(int)logb(a)) : a;
}
#define f64_SIN  libm_f64_SIN
#define f64_COS  libm_f64_COS
#define f64_TAN  libm_f64_TAN
#define f64_FMOD libm_f64_FMOD
#define LOOP_F64(id, n, R, ...)                    \
    static inline R fun_f64_##id(ARGS_##n(double)) \
    {                                              \
        return (R)(__VA_ARGS__);                   \
    }                                              \
    LOOP(f64_##id, n, R, double, double, fun_f64_##id)
#define PRIM_F(id, n, ...)      LOOP_F64(id, n, double, __VA_ARGS__)
#define PRIM_FI                 PRIM_F
#define PRIM_C(id, n, ...)      LOOP_F64(id, n, uint8_t, __VA_ARGS__)
#define PRIM_V                  NONE
#define PRIM_I                  NONE
#define COMP(id, n, exact, ...) LOOP_F64(id, n, double, exact)
#define FUNC(id, n, ...)        LOOP_F64(id, n, double, __VA_ARGS__)
#include "driver/cpu/region/tile_libm_double.h"

#include "air_prims.def"

#include "driver/cpu/region/tile_libm_undef.h"
#undef f64_SIN
#undef f64_COS
#undef f64_TAN
#undef f64_FMOD
GUARDED(f64, SIN, 1, double, tile_sin, ANGLE_IS_HARD)
GUARDED(f64, COS, 1, double, tile_cos, ANGLE_IS_HARD)
GUARDED(f64, TAN, 1, double, tile_tan, ANGLE_IS_HARD)
GUARDED(f64, FMOD, 2, double, tile_fmod, tile_fmod_is_far)
#undef COMP
#undef FUNC
#undef PRIM_F
#undef PRIM_FI
#undef PRIM_C
#undef PRIM_I
#undef abs_

static inline double
sel_f64(int a, double b, double c)
{
    return a ? b : c;
}
LOOP(f64_SEL, 3, double, uint8_t, double, sel_f64)

/* ---- I64 and B ---- */

static inline int64_t
abs_(int64_t a)
{
    return a < 0 ? -a : a;
}
static inline int64_t
idiv_(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? -a : a / b;
}
static inline int64_t
imod_(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}
static inline int64_t
shl_(int64_t a, int64_t b)
{
    return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b);
}
static inline int64_t
shr_(int64_t a, int64_t b)
{
    return a >> (b < 0 || b > 63 ? 63 : b);
}
static inline int64_t
wrap_(int64_t a, int64_t b)
{
    switch (b) {
    case AIR_I8: return (int8_t)a;
    case AIR_U8: return (uint8_t)a;
    case AIR_I16: return (int16_t)a;
    case AIR_I32: return (int32_t)a;
    case AIR_BOOL: return a != 0;
    default: return a;
    }
}
static inline int64_t
sel_i64(int a, int64_t b, int64_t c)
{
    return a ? b : c;
}
#define LOOP_I64(id, n, R, ...)                     \
    static inline R fun_i64_##id(ARGS_##n(int64_t)) \
    {                                               \
        return (R)(__VA_ARGS__);                    \
    }                                               \
    LOOP(i64_##id, n, R, int64_t, int64_t, fun_i64_##id)
#define PRIM_F              NONE
#define PRIM_FI(id, n, ...) LOOP_I64(id, n, int64_t, __VA_ARGS__)
#define PRIM_I              PRIM_FI
#define PRIM_C(id, n, ...)  LOOP_I64(id, n, uint8_t, __VA_ARGS__)
#undef PRIM_B
#define PRIM_B(id, n, ...)                              \
    static inline uint8_t fun_b_##id(ARGS_##n(uint8_t)) \
    {                                                   \
        return (uint8_t)(__VA_ARGS__);                  \
    }                                                   \
    LOOP(b_##id, n, uint8_t, uint8_t, uint8_t, fun_b_##id)
#define COMP NONE
#define FUNC NONE
#include "air_prims.def"
#undef COMP
#undef FUNC
#undef PRIM_F
#undef PRIM_FI
#undef PRIM_I
#undef PRIM_C
#undef PRIM_V
#undef PRIM_B
#undef PRIM_S
LOOP(i64_SEL, 3, int64_t, uint8_t, int64_t, sel_i64)

static inline uint8_t
sel_b(uint8_t a, uint8_t b, uint8_t c)
{
    return a ? b : c;
}
static inline uint8_t
eq_b(uint8_t a, uint8_t b)
{
    return a == b;
}
static inline uint8_t
ne_b(uint8_t a, uint8_t b)
{
    return a != b;
}
static inline uint8_t
lt_b(uint8_t a, uint8_t b)
{
    return a < b;
}
static inline uint8_t
le_b(uint8_t a, uint8_t b)
{
    return a <= b;
}
LOOP(b_SEL, 3, uint8_t, uint8_t, uint8_t, sel_b)
LOOP(b_EQ, 2, uint8_t, uint8_t, uint8_t, eq_b)
LOOP(b_NE, 2, uint8_t, uint8_t, uint8_t, ne_b)
LOOP(b_LT, 2, uint8_t, uint8_t, uint8_t, lt_b)
LOOP(b_LE, 2, uint8_t, uint8_t, uint8_t, le_b)

/* ---- the table ---- */

#define ROW(id, ...) [AIR_RG_##id] = {__VA_ARGS__},
#define PRIM_F(id)   ROW(id, f32_##id, f64_##id)
#define PRIM_FI(id)  ROW(id, f32_##id, f64_##id, i64_##id)
#define PRIM_C(id)   ROW(id, f32_##id, f64_##id, i64_##id, b_##id)
#define PRIM_S(id)   PRIM_C(id)
#define PRIM_I(id)   ROW(id, NULL, NULL, i64_##id)
#define PRIM_B(id)   ROW(id, NULL, NULL, NULL, b_##id)
#define PRIM_V(id)   ROW(id, f32_##id)
#undef PRIM
#define PRIM(id, n, lanes, ...) PRIM_##lanes(id)
#define COMP(id, ...)           PRIM_F(id)
#define FUNC(id, ...)           PRIM_F(id)
const tile_op_table TILE_NAME(tile_ops) = {
#include "air_prims.def"
};
