/* body_math.c: formulas that several rows of ops.def share. They follow ATen's
 * CPU kernels step by step, so that results round alike. */
#include "ir/body_math.h"

#include <math.h>

T
body_index(ir_record *rec, int axis)
{
    air_rg_node n = {.op = AIR_RG_INDEX,
                     .lane = AIR_LANE_I64,
                     .buf = (int16_t)axis,
                     .a = -1,
                     .b = -1,
                     .c = -1};
    const T index = ir_record_put(rec, n);
    return rec->lane == AIR_LANE_B ? index : LANE(index); /* B cannot count */
}

T
body_sub_scaled(ir_record *rec, T a, T b, T alpha)
{
    return IS(alpha, 1.0) ? SUB(a, b) : FMA(NEG(alpha), b, a);
}

/* ---- division ------------------------------------------------------------ */

static T
differ_in_sign(ir_record *rec, T a, T b)
{
    return XOR(LT(a, K(0)), LT(b, K(0)));
}

/* Is the integer 2 to a whole constant power, and to which? */
static bool
is_power_of_two(const ir_record *rec, T b, int *out)
{
    const air_rg_node *n = &rec->nodes[b < 0 ? 0 : b];

    if (b < 0 || rec->lane != AIR_LANE_I64 || n->op != AIR_RG_CONST ||
        n->i <= 0 || n->i > INT64_C(1) << 52 || (n->i & (n->i - 1)) != 0)
        return false;
    *out = __builtin_ctzll((unsigned long long)n->i);
    return true;
}

/* Python's // of floats: from the exact remainder, so that 1.0 // 0.1 is 9. */
T
body_floor_div(ir_record *rec, T a, T b)
{
    int power;

    if (is_power_of_two(rec, b, &power))
        return ISHR(a, K(power));
    if (INTEGER) {
        T odd = AND(NE(IMOD(a, b), K(0)), differ_in_sign(rec, a, b));
        return SUB(IDIV(a, b), SEL(odd, K(1), K(0)));
    }
    T mod = FMOD(a, b);
    T div = DIV(SUB(a, mod), b);
    T odd = AND(NE(mod, K(0)), differ_in_sign(rec, mod, b));
    div = SEL(odd, SUB(div, K(1)), div);
    T down = FLOOR(div);
    down = SEL(LT(K(0.5), SUB(div, down)), ADD(down, K(1)), down);
    T whole = SEL(NE(div, K(0)), down, SIGN(K(0), DIV(a, b)));
    return SEL(EQ(b, K(0)), DIV(a, b), whole);
}

/* Python's %: the sign of the divisor. */
T
body_floor_mod(ir_record *rec, T a, T b)
{
    int power;

    if (is_power_of_two(rec, b, &power))
        return IAND(a, K((double)(rec->nodes[b].i - 1)));
    T mod = INTEGER ? IMOD(a, b) : FMOD(a, b);
    T odd = AND(NE(mod, K(0)), differ_in_sign(rec, mod, b));
    return SEL(odd, ADD(mod, b), mod);
}

/* ---- powers -------------------------------------------------------------- */

/* base to a whole constant power, by repeated squaring. */
static T
constant_power(ir_record *rec, T base, int64_t n)
{
    T result = -1;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            result = HAS(result) ? MUL(result, base) : base;
        if (n > 1)
            base = MUL(base, base);
    }
    return HAS(result) ? result : K(1);
}

/* Products wrap; a negative exponent gives 0 but for bases of 1 and -1. An
 * exponent that is a tensor counts modulo 256: nothing larger fits i64 but for
 * bases 0, 1 and -1, whose powers repeat. */
static T
integer_power(ir_record *rec, T a, T b)
{
    T result = K(1), base = a, unit;

    if (rec->nodes[b].op == AIR_RG_CONST && rec->nodes[b].i >= 0)
        return constant_power(rec, a, rec->nodes[b].i);
    for (int bit = 0; bit < 8; bit++) {
        T is_set = NE(IAND(b, K(1 << bit)), K(0));
        result = SEL(is_set, MUL(result, base), result);
        base = MUL(base, base);
    }
    unit = EQ(ABS(a), K(1));
    return SEL(LT(b, K(0)), SEL(unit, result, K(0)), result);
}

T
body_power(ir_record *rec, T a, T b)
{
    if (rec->full || a < 0 || b < 0)
        return -1;
    if (INTEGER)
        return integer_power(rec, LANE(a), LANE(b));
    if (IS(b, 2.0))
        return MUL(a, a);
    if (IS(b, 3.0))
        return MUL(MUL(a, a), a);
    if (IS(b, 0.5))
        return SQRT(a);
    if (IS(b, -0.5))
        return DIV(K(1), SQRT(a));
    if (IS(b, -1.0))
        return DIV(K(1), a);
    if (IS(b, -2.0))
        return DIV(K(1), MUL(a, a));
    return IS(b, 1.0) ? a : POW(a, b);
}

/* ---- order --------------------------------------------------------------- */

/* MAX and MIN give b when either operand is NaN. */
T
body_extremum(ir_record *rec, air_rg_op op, T a, T b)
{
    return SEL(NAN_OF(a), a, record_prim(rec, op, a, b, -1));
}

/* NaN wins wherever it stands. */
T
body_clamp(ir_record *rec, T a, T min, T max)
{
    if (HAS(min))
        a = SEL(OR(LT(a, min), NAN_OF(min)), min, a);
    if (HAS(max))
        a = SEL(OR(LT(max, a), NAN_OF(max)), max, a);
    return a;
}

T
body_sign(ir_record *rec, T a)
{
    if (rec->lane == AIR_LANE_B)
        return a;
    return SUB(LANE(LT(K(0), a)), LANE(LT(a, K(0))));
}

/* ---- functions ----------------------------------------------------------- */

/* From the nearer end, so that weight 1 gives b exactly. */
T
body_lerp(ir_record *rec, T a, T b, T weight)
{
    T d = SUB(b, a);
    T low = FMA(weight, d, a);
    T high = SUB(b, MUL(d, SUB(K(1), weight)));
    return SEL(LT(ABS(weight), K(0.5)), low, high);
}

T
body_logit(ir_record *rec, T a, T eps)
{
    if (HAS(eps))
        a = CLAMP(a, eps, SUB(K(1), eps));
    return LOG(DIV(a, SUB(K(1), a)));
}

T
body_logit_grad(ir_record *rec, T grad, T a, T eps)
{
    T low = HAS(eps) ? eps : K(0), high = SUB(K(1), low);
    T outside = OR(LT(a, low), LT(high, a));
    T value = DIV(grad, ABS(MUL(a, SUB(K(1), a)))); /* -0 is 0 */
    return SEL(outside, HAS(eps) ? K(0) : K(NAN), value);
}

/* 0 where a is 0, but NaN where b is. */
T
body_xlogy(ir_record *rec, T a, T b)
{
    return SEL(NAN_OF(b), b, SEL(EQ(a, K(0)), K(0), MUL(a, LOG(b))));
}

#define GELU_BETA 0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715
#define LOG2_E    1.44269504088896340736

/* a/2 (1 + tanh(inner)) = a / (1 + e^(-2 inner)), where 1 + tanh would cancel.
 * With q = 1 / (1 + e^|2 inner|) it is max(a, 0) - |a| q: q is at most a half,
 * so above zero the last step's rounding is nearly all of the error. Above 64 q
 * is 0, which infinity must not meet. */
T
body_gelu_tanh(ir_record *rec, T a)
{
    const double unit = 2 * GELU_BETA * LOG2_E;
    T below = NEG(ABS(MIN(K(64), a)));
    T inner = MUL(below, FMA(MUL(a, a), K(unit * GELU_CUBE), K(unit)));
    T e = EXP2(inner);
    return FMA(below, DIV(e, ADD(e, K(1))), MAX(K(0), a));
}

T
body_gelu_tanh_grad(ir_record *rec, T grad, T a)
{
    T square = MUL(a, a);
    T inner = MUL(K(GELU_BETA), ADD(a, MUL(K(GELU_CUBE), MUL(square, a))));
    T t = TANH(inner);
    T slope = MUL(K(GELU_BETA), FMA(K(3.0 * GELU_CUBE), square, K(1)));
    T left = MUL(K(0.5), ADD(K(1), t));
    T right = MUL(MUL(K(0.5), a), MUL(SUB(K(1), MUL(t, t)), slope));
    return MUL(grad, ADD(left, right));
}

/* From the nearer end, as ATen: both ends are exact. */
T
body_linspace(ir_record *rec, T start, T end, T steps)
{
    T last = SUB(steps, K(1)), i = INDEX(0);
    T step = DIV(SUB(end, start), last);
    T low = ADD(start, MUL(step, i));
    T high = SUB(end, MUL(step, SUB(last, i)));

    return SEL(LE(steps, K(1)), start, SEL(LT(ADD(i, i), steps), low, high));
}

T
body_round_to(ir_record *rec, T a, T decimals)
{
    double n, scale;

    if (INTEGER || !HAS(decimals))
        return a;
    n = rec->nodes[decimals].k;
    scale = pow(10.0, fabs(n));
    if (n == 0.0)
        return RINT(a);
    if (n < 0.0)
        return MUL(RINT(DIV(a, K(scale))), K(scale));
    return DIV(RINT(MUL(a, K(scale))), K(scale));
}

T
body_quantum(ir_record *rec, T a, T inverse, T zero, bool last, bool wraps)
{
    if (INTEGER)
        return a;
    T q;
    if (last) { /* rounded once in ATen's loop, and to f32 of any dtype */
        q = ir_record_cvt(rec, FMA(a, inverse, zero), AIR_LANE_F32);
        q = RINT(ir_record_cvt(rec, q, rec->lane));
    } else {
        q = ADD(zero, RINT(MUL(a, inverse)));
    }
    return wraps ? SEL(LT(ABS(q), K(0x1p63)), q, K(-INFINITY)) : q;
}
