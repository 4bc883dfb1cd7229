/* tile_memory.c: loads and stores of every dtype, conversions between lanes,
 * constants. Compiled once per ISA. */
#include "driver/cpu/region/tile_float.h"
#include "driver/cpu/region/tile_ops.h"

typedef float lane_F32;
typedef double lane_F64;
typedef int64_t lane_I64;
typedef uint8_t lane_B;

/* C types that dtypes are stored as. */
typedef float type_F32;
typedef double type_F64;
typedef uint16_t type_BF16;
typedef uint16_t type_F16;
typedef int8_t type_I8;
typedef uint8_t type_U8;
typedef int16_t type_I16;
typedef int32_t type_I32;
typedef int64_t type_I64;
typedef uint8_t type_BOOL;

/* ---- conversions of one element ---- */

/* Towards zero; INT64_MIN where int64_t cannot hold it. */
static inline int64_t
to_int(double a)
{
    return a >= -0x1p63 && a < 0x1p63 ? (int64_t)a : INT64_MIN;
}

#define CVT_F32_F32(a) (a)
#define CVT_F32_F64(a) ((float)(a))
#define CVT_F32_I64(a) ((float)(a))
#define CVT_F32_B(a)   ((float)(a))
#define CVT_F64_F32(a) ((double)(a))
#define CVT_F64_F64(a) (a)
#define CVT_F64_I64(a) ((double)(a))
#define CVT_F64_B(a)   ((double)(a))
#define CVT_I64_F32(a) to_int((double)(a))
#define CVT_I64_F64(a) to_int(a)
#define CVT_I64_I64(a) (a)
#define CVT_I64_B(a)   ((int64_t)(a))
#define CVT_B_F32(a)   ((uint8_t)((a) != 0))
#define CVT_B_F64(a)   ((uint8_t)((a) != 0))
#define CVT_B_I64(a)   ((uint8_t)((a) != 0))
#define CVT_B_B(a)     (a)

/* The lane that holds a dtype exactly, and the way there and back. */
#define OF_F32(x)     F32, (x)
#define OF_F64(x)     F64, (x)
#define OF_BF16(x)    F32, tile_of_bf16(x)
#define OF_F16(x)     F32, tile_of_f16(x)
#define OF_I8(x)      I64, ((int64_t)(x))
#define OF_U8(x)      I64, ((int64_t)(x))
#define OF_I16(x)     I64, ((int64_t)(x))
#define OF_I32(x)     I64, ((int64_t)(x))
#define OF_I64(x)     I64, (x)
#define OF_BOOL(x)    B, ((uint8_t)((x) != 0))
#define TO_F32(l, x)  CVT_F32_##l(x)
#define TO_F64(l, x)  CVT_F64_##l(x)
#define TO_BF16(l, x) tile_to_bf16(CVT_F32_##l(x))
#define TO_F16(l, x)  tile_to_f16(CVT_F32_##l(x))
#define TO_I8(l, x)   ((int8_t)CVT_I64_##l(x))
#define TO_U8(l, x)   ((uint8_t)CVT_I64_##l(x))
#define TO_I16(l, x)  ((int16_t)CVT_I64_##l(x))
#define TO_I32(l, x)  ((int32_t)CVT_I64_##l(x))
#define TO_I64(l, x)  CVT_I64_##l(x)
#define TO_BOOL(l, x) CVT_B_##l(x)

#define CVT_(lane, from, x) CVT_##lane##_##from(x)
#define CVT(lane, ...)      CVT_(lane, __VA_ARGS__)

/* ---- loops ---- */

#define LOAD(lane, dtype)                                                \
    static void load_##lane##_##dtype(void *restrict vd, const void *vs, \
                                      int64_t stride, int64_t n)         \
    {                                                                    \
        lane_##lane *restrict d = vd;                                    \
        const type_##dtype *s = vs;                                      \
        if (stride == 1) {                                               \
            for (int64_t i = 0; i < n; i++)                              \
                d[i] = CVT(lane, OF_##dtype(s[i]));                      \
        } else if (stride == 0 && n > 0) {                               \
            lane_##lane value = CVT(lane, OF_##dtype(s[0]));             \
            for (int64_t i = 0; i < n; i++)                              \
                d[i] = value;                                            \
        } else {                                                         \
            for (int64_t i = 0; i < n; i++)                              \
                d[i] = CVT(lane, OF_##dtype(s[i * stride]));             \
        }                                                                \
    }
#define STORE(lane, dtype)                                                 \
    static void store_##lane##_##dtype(void *vd, int64_t stride,           \
                                       const void *restrict va, int64_t n) \
    {                                                                      \
        type_##dtype *d = vd;                                              \
        const lane_##lane *restrict a = va;                                \
        if (stride == 1) {                                                 \
            for (int64_t i = 0; i < n; i++)                                \
                d[i] = TO_##dtype(lane, a[i]);                             \
        } else {                                                           \
            for (int64_t i = 0; i < n; i++)                                \
                d[i * stride] = TO_##dtype(lane, a[i]);                    \
        }                                                                  \
    }
#define CONVERT(to, from)                                                     \
    static void cvt_##to##_##from(void *restrict vd, const void *restrict va, \
                                  int64_t n)                                  \
    {                                                                         \
        lane_##to *restrict d = vd;                                           \
        const lane_##from *restrict a = va;                                   \
        for (int64_t i = 0; i < n; i++)                                       \
            d[i] = CVT_##to##_##from(a[i]);                                   \
    }
#define FILL(lane, member)                                                \
    static void fill_##lane(void *vd, const air_scalar *value, int64_t n) \
    {                                                                     \
        lane_##lane *d = vd, v = value->member;                           \
        for (int64_t i = 0; i < n; i++)                                   \
            d[i] = v;                                                     \
    }
FILL(F32, f)
FILL(F64, d)
FILL(I64, i)
FILL(B, b)

#define DTYPE(id, ...) \
    LOAD(F32, id)      \
    LOAD(F64, id)      \
    LOAD(I64, id)      \
    LOAD(B, id)        \
    STORE(F32, id)     \
    STORE(F64, id)     \
    STORE(I64, id)     \
    STORE(B, id)
#include "air_dtypes.def"
#undef DTYPE

#define CONVERTS(from) \
    CONVERT(F32, from) \
    CONVERT(F64, from) \
    CONVERT(I64, from) \
    CONVERT(B, from)
CONVERTS(F32)
CONVERTS(F64)
CONVERTS(I64)
CONVERTS(B)

#define CVT_ROW(to) \
    [AIR_LANE_##    \
        to] = {cvt_##to##_F32, cvt_##to##_F64, cvt_##to##_I64, cvt_##to##_B}
const tile_cvt_table TILE_NAME(tile_cvts) = {CVT_ROW(F32), CVT_ROW(F64),
                                             CVT_ROW(I64), CVT_ROW(B)};
const tile_fill_table TILE_NAME(tile_fills) = {fill_F32, fill_F64, fill_I64,
                                               fill_B};

const tile_load_table TILE_NAME(tile_loads) = {
#define DTYPE(id, ...)                        \
    [AIR_LANE_F32][AIR_##id] = load_F32_##id, \
    [AIR_LANE_F64][AIR_##id] = load_F64_##id, \
    [AIR_LANE_I64][AIR_##id] = load_I64_##id, \
    [AIR_LANE_B][AIR_##id] = load_B_##id,
#include "air_dtypes.def"
#undef DTYPE
};
const tile_store_table TILE_NAME(tile_stores) = {
#define DTYPE(id, ...)                         \
    [AIR_LANE_F32][AIR_##id] = store_F32_##id, \
    [AIR_LANE_F64][AIR_##id] = store_F64_##id, \
    [AIR_LANE_I64][AIR_##id] = store_I64_##id, \
    [AIR_LANE_B][AIR_##id] = store_B_##id,
#include "air_dtypes.def"
#undef DTYPE
};
