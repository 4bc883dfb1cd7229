/* body_math.h: what several bodies of ops.def are written with; recorded into
 * `rec` like the bodies themselves. -1 as a bound or eps: not given. */
#ifndef IR_BODY_MATH_H
#define IR_BODY_MATH_H

#include "ir/record_macros.h"

#define COMP1(id, a) record_prim(rec, AIR_RG_##id, (a), -1, -1)
#define CVTB(a)      ir_record_cvt(rec, (a), AIR_LANE_B)
#define LANE(a)      ir_record_cvt(rec, (a), rec->lane)
#define INTEGER      (rec->lane == AIR_LANE_I64 || rec->lane == AIR_LANE_B)
#define HAS(x)       ((x) >= 0)
#define IS(x, v)     record_is_const(rec, (x), (v))
#define NAN_OF(x)    NE(x, x)
#define TRUE         ir_record_const(rec, AIR_LANE_B, 1.0)
#define FALSE        ir_record_const(rec, AIR_LANE_B, 0.0)
#define INDEX(axis)  body_index(rec, (axis))

#define SUB_SCALED(a, b, alpha)     body_sub_scaled(rec, a, b, alpha)
#define FLOOR_DIV(a, b)             body_floor_div(rec, a, b)
#define TRUNC_DIV(a, b)             (INTEGER ? IDIV(a, b) : TRUNC(DIV(a, b)))
#define FLOOR_MOD(a, b)             body_floor_mod(rec, a, b)
#define POWER(a, b)                 body_power(rec, a, b)
#define MAX_NAN(a, b)               body_extremum(rec, AIR_RG_MAX, a, b)
#define MIN_NAN(a, b)               body_extremum(rec, AIR_RG_MIN, a, b)
#define CLAMP(a, min, max)          body_clamp(rec, a, min, max)
#define LERP(a, b, weight)          body_lerp(rec, a, b, weight)
#define SIGN_OF(a)                  body_sign(rec, a)
#define LOGIT(a, eps)               body_logit(rec, a, eps)
#define LOGIT_GRAD(grad, a, eps)    body_logit_grad(rec, grad, a, eps)
#define XLOGY(a, b)                 body_xlogy(rec, a, b)
#define GELU_TANH(a)                body_gelu_tanh(rec, a)
#define GELU_TANH_GRAD(grad, a)     body_gelu_tanh_grad(rec, grad, a)
#define LINSPACE(start, end, steps) body_linspace(rec, start, end, steps)
#define ROUND_TO(a, decimals)       body_round_to(rec, a, decimals)
#define I0(a, scaled)               body_i0(rec, a, scaled)
#define DIGAMMA(a)                  body_digamma(rec, a)
#define LOG_NDTR(a)                 body_log_ndtr(rec, a)
#define ENTR(a)                     body_entr(rec, a)
#define QUANTUM(a, inverse, zero, last, wraps) \
    body_quantum(rec, a, inverse, zero, last, wraps)
#define FLOAT8_VALUE(a, as) body_float8_value(rec, a, BODY_##as)
#define FLOAT8_CODE(a, as)  body_float8_code(rec, a, BODY_##as)

T body_index(ir_record *rec, int axis);
T body_sub_scaled(ir_record *rec, T a, T b, T alpha);
T body_floor_div(ir_record *rec, T a, T b);
T body_floor_mod(ir_record *rec, T a, T b);
T body_power(ir_record *rec, T a, T b);
T body_extremum(ir_record *rec, air_rg_op op, T a, T b);
T body_clamp(ir_record *rec, T a, T min, T max);
T body_lerp(ir_record *rec, T a, T b, T weight);
T body_sign(ir_record *rec, T a);
T body_logit(ir_record *rec, T a, T eps);
T body_logit_grad(ir_record *rec, T grad, T a, T eps);
T body_xlogy(ir_record *rec, T a, T b);
T body_gelu_tanh(ir_record *rec, T a);
T body_gelu_tanh_grad(ir_record *rec, T grad, T a);
T body_linspace(ir_record *rec, T start, T end, T steps);
T body_round_to(ir_record *rec, T a, T decimals);
/* The modified Bessel function of order 0; scaled: times e^-|a|. */
T body_i0(ir_record *rec, T a, bool scaled);
T body_digamma(ir_record *rec, T a);
T body_log_ndtr(ir_record *rec, T a);
T body_entr(ir_record *rec, T a);
/* The integer that stands for `a` where `zero` stands for 0. last: rounded once
 * that is added; wraps: -inf where 64 bits do not hold it. */
T body_quantum(ir_record *rec, T a, T inverse, T zero, bool last, bool wraps);

/* Numbers of 8 bits: torch's dtypes float8_e4m3fn and so on. What is too large
 * for the first is its largest number, or (NAN) a NaN as torch before 2.13 had
 * it. */
typedef enum {
    BODY_E4M3FN,
    BODY_E4M3FN_NAN,
    BODY_E5M2,
    BODY_E4M3FNUZ,
    BODY_E5M2FNUZ
} body_float8;

/* What a byte, 0 to 255, stands for; the byte of a number. */
T body_float8_value(ir_record *rec, T a, body_float8 as);
T body_float8_code(ir_record *rec, T a, body_float8 as);

#endif
