#include "driver/ref/eval.h"

#include "driver/ref/element.h"

/* ---- what the expressions of air_prims.def call -------------------------- */

#define fma_(a, b, c) fma(a, b, c)
#define abs_(a)       fabs(a)
#define sqrt_(a)      sqrt(a)
#define rint_(a)      rint(a)
#define floor_(a)     floor(a)
#define ceil_(a)      ceil(a)
#define trunc_(a)     trunc(a)
#define scalef_(a, b) ldexp(a, (int)(b))
#define scalen_       scalef_
#define logb_(a)      logb(a)
#define mant_(a)      scalbn(a, -ilogb(a))
#define sign_(a, b)   copysign(a, b)

static int64_t
idiv_(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a == INT64_MIN && b == -1 ? INT64_MIN : a / b;
}

static int64_t
imod_(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static int64_t
shl_(int64_t a, int64_t b)
{
    return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b);
}

static int64_t
shr_(int64_t a, int64_t b)
{
    return a >> (b < 0 || b > 63 ? 63 : b);
}

static int64_t
wrap_(int64_t a, int64_t dtype)
{
    int64_t bits = 0;
    ref_put_int((int)dtype, &bits, a);
    return ref_get_int((int)dtype, &bits);
}

/* Rows of the table by lanes: `LANES_lane(code)` is the code where the
 * operation has that lane. */
#define F_F(...)  __VA_ARGS__
#define F_FI(...) __VA_ARGS__
#define F_I(...)
#define F_C(...)
#define F_B(...)
#define F_S(...)
#define F_V(...)
#define I_F(...)
#define I_FI(...) __VA_ARGS__
#define I_I(...)  __VA_ARGS__
#define I_C(...)
#define I_B(...) __VA_ARGS__
#define I_S(...)
#define I_V(...)

static double
eval_float(unsigned op, double a, double b, double c)
{
    (void)c;
    switch (op) {
        /* clang-format off */
#define PRIM(id, arity, lanes, ...)                                            \
    F_##lanes(case AIR_RG_##id: return __VA_ARGS__;)
#define COMP(id, arity, exact, ...) case AIR_RG_##id: return exact;
#define FUNC(id, arity, exact) case AIR_RG_##id: return exact;
        /* clang-format on */
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
    default: return (double)NAN;
    }
}

/* Those that may overflow wrap. */
static int64_t
eval_int(unsigned op, int64_t a, int64_t b)
{
    int64_t r = 0;
    switch (op) {
    case AIR_RG_ADD: (void)__builtin_add_overflow(a, b, &r); return r;
    case AIR_RG_SUB: (void)__builtin_sub_overflow(a, b, &r); return r;
    case AIR_RG_MUL: (void)__builtin_mul_overflow(a, b, &r); return r;
    case AIR_RG_NEG: (void)__builtin_sub_overflow(0, a, &r); return r;
    case AIR_RG_ABS:
        if (a < 0)
            (void)__builtin_sub_overflow(0, a, &a);
        return a;
    default: break;
    }
    switch (op) {
#define PRIM(id, arity, lanes, ...) \
    I_##lanes(case AIR_RG_##id : return __VA_ARGS__;)
#undef abs_
#define abs_(x) (x)
#define COMP(...)
#define FUNC(...)
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
    default: return 0;
    }
}

#define COMPARE(T, name)                    \
    static bool name(unsigned op, T a, T b) \
    {                                       \
        return op == AIR_RG_LT   ? a < b    \
               : op == AIR_RG_LE ? a <= b   \
               : op == AIR_RG_EQ ? a == b   \
                                 : a != b;  \
    }
COMPARE(double, compare_float)
COMPARE(int64_t, compare_int)

static bool
is_float(air_lane lane)
{
    return lane == AIR_LANE_F32 || lane == AIR_LANE_F64;
}

/* A conversion to F32 rounds, since a program asked for it. */
static ref_value
convert(air_lane to, air_lane from, ref_value a)
{
    if (to == AIR_LANE_F32)
        a.f = (double)(is_float(from) ? (float)a.f : (float)a.i);
    else if (to == AIR_LANE_F64)
        a.f = is_float(from) ? a.f : (double)a.i;
    else if (to == AIR_LANE_I64)
        a.i = is_float(from) ? ref_to_int(a.f) : a.i;
    else
        a.i = is_float(from) ? a.f != 0.0 : a.i != 0;
    return a;
}

ref_value
ref_eval(unsigned op, air_lane lane, air_lane from, ref_value a, ref_value b,
         ref_value c)
{
    switch (op) {
    case AIR_RG_CVT: return convert(lane, from, a);
    case AIR_RG_SEL: return a.i != 0 ? b : c;
    case AIR_RG_BF16:
        return (ref_value){.f = (double)ref_of_bf16(ref_to_bf16((float)a.f))};
    case AIR_RG_F16:
        return (ref_value){.f = (double)ref_of_f16(ref_to_f16((float)a.f))};
    case AIR_RG_LT:
    case AIR_RG_LE:
    case AIR_RG_EQ:
    case AIR_RG_NE:
        return (ref_value){.i = is_float(from) ? compare_float(op, a.f, b.f)
                                               : compare_int(op, a.i, b.i)};
    default: break;
    }
    if (is_float(lane))
        return (ref_value){.f = eval_float(op, a.f, b.f, c.f)};
    return (ref_value){.i = eval_int(op, a.i, b.i)};
}
