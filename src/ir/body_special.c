/* body_special.c: special functions of ops.def, in double whatever the tensor's
 * dtype: series that are as exact as that, so that f32 results are rounded
 * once. Tables are Chebyshev series (of 2 x in [-2, 2]) and polynomials,
 * highest order first, fitted to 30 digits. */
#include <math.h>

#include "ir/body_math.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))
#define SQRT_PI      1.7724538509055160273
#define HALF_SQRT    0.70710678118654752440 /* sqrt(1 / 2) */

typedef T (*wide_fn)(ir_record *rec, T a);

/* fn(a), computed in double. */
static T
wide(ir_record *rec, T a, wide_fn fn)
{
    const air_lane lane = rec->lane;
    T y;

    rec->lane = AIR_LANE_F64;
    y = fn(rec, LANE(a));
    rec->lane = lane;
    return LANE(y);
}

static T
polynomial(ir_record *rec, T x, const double *c, int count)
{
    T y = K(c[0]);

    for (int i = 1; i < count; i++)
        y = FMA(y, x, K(c[i]));
    return y;
}

/* Clenshaw's sum; x is twice the polynomials' argument. */
static T
chebyshev(ir_record *rec, T x, const double *c, int count)
{
    T b0 = K(c[0]), b1 = K(0), b2 = K(0);

    for (int i = 1; i < count; i++) {
        b2 = b1;
        b1 = b0;
        b0 = ADD(FMA(x, b1, NEG(b2)), K(c[i]));
    }
    return MUL(K(0.5), SUB(b0, b2));
}

/* ---- Bessel functions ---------------------------------------------------- */

/* clang-format off */
static const double I0_NEAR[] = {
    3.3307945188222381e-17, -2.4312798465479547e-16, 1.715391285555133e-15,
    -1.1685332877993452e-14, 7.6761854986049356e-14, -4.8564467831119295e-13,
    2.9550526631296398e-12, -1.7268262914415557e-11, 9.6758090353732369e-11,
    -5.1897956016352629e-10, 2.6598237246823867e-9, -1.300025009986248e-8,
    6.0469950225419189e-8, -2.6707938539406117e-7, 1.1173875391201037e-6,
    -4.4167383584587506e-6, 1.6448448070728897e-5, -5.7541950100821037e-5,
    1.8850288509584166e-4, -5.7637557453858237e-4, 1.6394756169413358e-3,
    -4.3243099950505759e-3, 1.0546460394594998e-2, -2.3737414805899469e-2,
    4.9305284239670708e-2, -9.4901097048047644e-2, 1.7162090152220878e-1,
    -3.046826723431984e-1, 6.7679527440947608e-1,
};
static const double I0_FAR[] = {
    4.46562142029676e-17, 3.4612228676974611e-17, -2.8276239805165835e-16,
    -3.4254856196772191e-16, 1.7725601330565264e-15, 3.8116806693526224e-15,
    -9.5548466988283076e-15, -4.1505693472872221e-14, 1.5400862175214098e-14,
    3.8527783827421427e-13, 7.1801244513836662e-13, -1.7941785315068061e-12,
    -1.3215811840447713e-11, -3.1499165279632414e-11, 1.1889147107846438e-11,
    4.9406023882249696e-10, 3.3962320257083863e-9, 2.2666689904981781e-8,
    2.0489185894690637e-7, 2.8913705208347565e-6, 6.889758346916824e-5,
    3.3691164782556941e-3, 8.0449041101410883e-1,
};
/* clang-format on */

/* e^-|a| I0(a): one series up to 8, one above. */
static T
i0e(ir_record *rec, T a)
{
    T size = ABS(a);
    T near =
        chebyshev(rec, SUB(MUL(size, K(0.5)), K(2)), I0_NEAR, COUNT(I0_NEAR));
    T far = chebyshev(rec, SUB(DIV(K(32), size), K(2)), I0_FAR, COUNT(I0_FAR));
    return SEL(LE(size, K(8)), near, DIV(far, SQRT(size)));
}

static T
i0(ir_record *rec, T a)
{
    return MUL(EXP(ABS(a)), i0e(rec, a));
}

T
body_i0(ir_record *rec, T a, bool scaled)
{
    return wide(rec, a, scaled ? i0e : i0);
}

/* ---- digamma ------------------------------------------------------------- */

/* Bernoulli numbers over 2 k, signs turned. */
static const double BERNOULLI[] = {
    1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
    1.0 / 252, -1.0 / 120,     1.0 / 12,
};

/* Above 0: psi(x) = psi(x + 1) - 1 / x up to where the series holds. */
static T
digamma_above(ir_record *rec, T x, int from)
{
    T sum = K(0), z;

    for (int i = 0; i < from; i++) {
        T small = LT(x, K(from));
        sum = SEL(small, SUB(sum, DIV(K(1), x)), sum);
        x = SEL(small, ADD(x, K(1)), x);
    }
    z = DIV(K(1), MUL(x, x));
    z = MUL(z, polynomial(rec, z, BERNOULLI, COUNT(BERNOULLI)));
    return SUB(SUB(ADD(sum, LOG(x)), DIV(K(0.5), x)), z);
}

/* (1 / r - pi / tan(pi r)) / r, of r^2 up to 1 / 4 */
/* clang-format off */
static const double COTANGENT[] = {
    1.60104415553501e+1, -1.4009136351899511e+1, 1.1319882534156066e+1,
    -1.3837148002891512, 2.8304597027964616, 1.8569869062340111,
    2.0175482780709191, 1.9984989923885619, 2.0002163970615632,
    2.0004882445092559, 2.0019892571205642, 2.0081547106508867,
    2.0346861239837794, 2.1646464674222264, 3.2898681336964529,
};
/* clang-format on */

/* Below: psi(1 - a) - pi / tan(pi a), NaN where that has a pole. */
static T
digamma(ir_record *rec, T a, int from)
{
    T below = LT(a, K(0)), r = SUB(a, RINT(a));
    T y = digamma_above(rec, SEL(below, SUB(K(1), a), a), from);
    T series = polynomial(rec, MUL(r, r), COTANGENT, COUNT(COTANGENT));
    T turned = SUB(y, SUB(DIV(K(1), r), MUL(series, r)));

    y = SEL(below, SEL(EQ(r, K(0)), K(NAN), turned), y);
    return SEL(EQ(a, K(0)), SIGN(K(INFINITY), NEG(a)), y);
}

/* The series has 17 digits from 10 on, 12 from 6. */
static T
digamma_full(ir_record *rec, T a)
{
    return digamma(rec, a, 10);
}

static T
digamma_short(ir_record *rec, T a)
{
    return digamma(rec, a, 6);
}

T
body_digamma(ir_record *rec, T a)
{
    return wide(rec, a,
                rec->lane == AIR_LANE_F64 ? digamma_full : digamma_short);
}

/* ---- the normal distribution ------------------------------------- */

enum { TAIL_FROM = 20 };

/* With t = |a| / sqrt(2), log(erfc(t) / 2) below 0 and log(1 - erfc(t) / 2)
 * above; by the tail's asymptotic series where erfc nears its least numbers. */
static T
log_ndtr(ir_record *rec, T a)
{
    static const double TAIL[] = {-945.0 / 32, 105.0 / 16, -15.0 / 8,
                                  3.0 / 4,     -1.0 / 2,   1};
    T t = MUL(ABS(a), K(HALF_SQRT)), square = MUL(t, t);
    T half = MUL(K(0.5), ERFC(t)), in_tail = LT(K(TAIL_FROM), t);
    T series = polynomial(rec, DIV(K(1), square), TAIL, COUNT(TAIL));
    T tail = DIV(series, MUL(t, K(2 * SQRT_PI)));
    T low = SUB(LOG(SEL(in_tail, tail, half)), SEL(in_tail, square, K(0)));

    low = SEL(EQ(a, K(-INFINITY)), a, low);
    return SEL(LT(a, K(0)), low, LOG1P(NEG(half)));
}

T
body_log_ndtr(ir_record *rec, T a)
{
    return wide(rec, a, log_ndtr);
}

/* -a log a; NaN stays. */
T
body_entr(ir_record *rec, T a)
{
    T below = SEL(EQ(a, K(0)), K(0), K(-INFINITY));
    T y = SEL(LT(K(0), a), MUL(NEG(a), LOG(a)), below);
    return SEL(NAN_OF(a), a, y);
}
