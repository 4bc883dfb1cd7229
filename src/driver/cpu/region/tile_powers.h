/* tile_powers.h: exponentials and logarithms on double without a branch, so
 * that gcc makes vector code of a loop over them; f32 lanes round their results
 * once. The parts are Cody and Waite's ("Software Manual for the Elementary
 * Functions", 1980): an exact reduction, a polynomial on what is left. Each
 * polynomial is our own fit, at the Chebyshev nodes of the interval, with 40
 * digits; highest order first. */
#ifndef CPU_TILE_POWERS_H
#define CPU_TILE_POWERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TILE_COUNT(c)    ((int)(sizeof(c) / sizeof *(c)))
#define TILE_POLY(c, x)  tile_poly(c, TILE_COUNT(c), x)
#define TILE_LN2         0x1.62e42fefa39efp-1
#define TILE_LN2_LOW     0x1.abc9e3b39803fp-56 /* ln2 less that */
#define TILE_LN2_SHORT   0x1.62e42feep-1 /* 33 bits: n times it is exact */
#define TILE_LN2_REST    0x1.a39ef35793c76p-33
#define TILE_LOG2E       0x1.71547652b82fep+0
#define TILE_LOG2E_LOW   0x1.777d0ffda0d24p-56
#define TILE_LOG10E      0x1.bcb7b1526e50ep-2
#define TILE_LOG10E_LOW  0x1.95355baaafad3p-57
#define TILE_LOG10_2     0x1.34413509f79ffp-2
#define TILE_LOG10_2_LOW (-0x1.9dc1da994fd21p-59)

static inline uint64_t
tile_bits64(double a)
{
    uint64_t u;
    memcpy(&u, &a, 8);
    return u;
}

static inline double
tile_from_bits64(uint64_t u)
{
    double a;
    memcpy(&a, &u, 8);
    return a;
}

static inline double
tile_poly(const double *c, int count, double x)
{
    double y = c[0];

#pragma GCC unroll 24
    for (int i = 1; i < count; i++)
        y = fma(y, x, c[i]);
    return y;
}

/* The low bits of an integral |a| < 2^51: added to 1.5 2^52, whose last bit
 * counts 1. Not all CPUs convert vectors of double to 64-bit integers. */
#define TILE_WHOLE 0x1.8p52
static inline uint64_t
tile_whole(double a)
{
    return tile_bits64(a + TILE_WHOLE);
}

/* 2^n of an integral -1023 <= n <= 1024, the ends being 0 and infinity. */
static inline double
tile_two_to(double n)
{
    return tile_from_bits64(tile_whole(n + 1023) << 52);
}

static inline double
tile_clip(double x, double low, double high)
{
    x = x < low ? low : x; /* NaN stays */
    return x > high ? high : x;
}

/* A number in two parts, the second below the last place of the first. */
typedef struct {
    double high, low;
} tile_pair;

/* a + b where |a| is not less, or a is 0 */
static inline tile_pair
tile_sum(double a, double b)
{
    double high = a + b;
    return (tile_pair){high, (a - high) + b};
}

/* ---- exponentials -------------------------------------------------------- */

/* e^x = 2^n (1 + r + low), |x| below 2^9 or so; n also as TILE_WHOLE + n. */
typedef struct {
    double n, r, low, whole;
} tile_power;

/* (e^r - 1 - r) / r^2, |r| <= ln2 / 2 */
static inline double
tile_exp_rest(double r)
{
    static const double Q[] = {2.09147553258932e-09,
                               2.5105312729622103e-08,
                               2.755727347871858e-07,
                               2.755725517000089e-06,
                               2.480158732567746e-05,
                               0.0001984126987500228,
                               0.0013888888888883711,
                               0.008333333333326084,
                               0.04166666666666667,
                               0.1666666666666667,
                               0.5};
    return TILE_POLY(Q, r);
}

/* Of x - less, |less| below 2^-40. The sum with TILE_WHOLE rounds. */
static inline tile_power
tile_power_of_pair(double x, double less)
{
    double whole = fma(x, TILE_LOG2E, TILE_WHOLE), n = whole - TILE_WHOLE;
    double near = fma(n, -TILE_LN2, x), low = fma(n, TILE_LN2_LOW, less);
    double r = near - low, lost = (near - r) - low;
    return (tile_power){n, r, fma(r * r, tile_exp_rest(r), lost), whole};
}

static inline tile_power
tile_power_of(double x)
{
    return tile_power_of_pair(x, 0);
}

/* 2^x, the fraction f exact */
static inline tile_power
tile_power_of_two(double x)
{
    double whole = x + TILE_WHOLE, n = whole - TILE_WHOLE, f = x - n;
    double r = f * TILE_LN2;
    double lost = fma(f, TILE_LN2, -r) + f * TILE_LN2_LOW;
    return (tile_power){n, r, fma(r * r, tile_exp_rest(r), lost), whole};
}

/* y 2^n in two steps, as 2^n may be no double: the first is exact. */
static inline double
tile_scaled(double y, double whole)
{
    uint64_t n = tile_bits64(whole), one = UINT64_C(1023) << 52;
    uint64_t half = n >> 1 << 52;
    return y * tile_from_bits64(half + one) *
           tile_from_bits64((n << 52) - half + one);
}

/* 0 is so before the last step: underflow is slow, and masks are full of it. */
static inline double
tile_power_value(tile_power e, int is_zero)
{
    tile_pair y = tile_sum(1, e.r);
    double value = y.high + (y.low + e.low);
    return tile_scaled(is_zero ? 0 : value, e.whole);
}

static inline double
tile_exp(double x)
{
    return tile_power_value(tile_power_of(tile_clip(x, -746, 711)), x < -746);
}

static inline double
tile_exp2(double x)
{
    tile_power e = tile_power_of_two(tile_clip(x, -1076, 1025));
    return tile_power_value(e, x < -1076);
}

/* (e^x - minus) / 4, x below 710.8; minus is 0 or 1 */
static inline tile_pair
tile_quarter(tile_power e, double minus)
{
    double s = tile_two_to(e.n - 2), up = s - 0.25 * minus, down = s * e.r;
    double high = up + down, back = high - up;
    double lost = (up - (high - back)) + (down - back);
    return tile_sum(high, fma(s, e.low, lost));
}

static inline double
tile_expm1(double x)
{
    tile_pair y = tile_quarter(tile_power_of(tile_clip(x, -40, 710.8)), 1);
    return fabs(x) < 0x1p-54 ? x : 4 * y.high;
}

/* a / b, to nearly one rounding */
static inline double
tile_quotient(tile_pair a, tile_pair b)
{
    double inverse = 1 / b.high, q = a.high * inverse;
    double rest = fma(-q, b.low, fma(-q, b.high, a.high) + a.low);
    return fma(rest, inverse, q);
}

/* (u + u / (u + 1)) / 2 with u = e^|x| - 1 */
static inline double
tile_sinh(double x)
{
    tile_pair u = tile_quarter(tile_power_of(tile_clip(fabs(x), 0, 710.8)), 1);
    tile_pair more = tile_sum(1, 4 * u.high);
    double turned =
        tile_quotient(u, (tile_pair){more.high, 4 * u.low + more.low});
    double y = 2 * (u.high + (u.low + turned));
    y = fabs(x) > 40 ? 2 * u.high : y;
    return fabs(x) < 0x1p-28 ? x : copysign(y, x);
}

static inline double
tile_cosh(double x)
{
    tile_pair e = tile_quarter(tile_power_of(tile_clip(fabs(x), 0, 710.8)), 0);
    return 2 * (e.high + (e.low + 0.0625 / e.high));
}

/* u / (u + 2) with u = e^2|x| - 1; 1 from 20 on. */
static inline double
tile_tanh(double x)
{
    tile_power e = tile_power_of(2 * tile_clip(fabs(x), 0, 20));
    tile_pair u = tile_quarter(e, 1), more = tile_sum(0.5, u.high);
    more = u.high > 0.5 ? tile_sum(u.high, 0.5) : more;
    more.low += u.low;
    return fabs(x) < 0x1p-28 ? x : copysign(tile_quotient(u, more), x);
}

/* The same with 11 digits, which is enough for f32. */
static inline double
tile_exp_rest_f32(double r)
{
    static const double Q[] = {2.485969439475207e-05,
                               0.00019899390183679232,
                               0.001388885390994504,
                               0.008333298344023092,
                               0.041666666719295684,
                               0.1666666671931248,
                               0.5};
    return TILE_POLY(Q, r);
}

static inline tile_power
tile_power_f32(double x)
{
    double n = rint(x * TILE_LOG2E), r = fma(n, -TILE_LN2, x);
    return (tile_power){n, r, r * r * tile_exp_rest_f32(r), 0};
}

static inline double
tile_sinh_f32(double x)
{
    tile_power e = tile_power_f32(tile_clip(fabs(x), 0, 100));
    double s = tile_two_to(e.n), u = fma(s, e.r + e.low, s - 1);
    return copysign(0.5 * (u + u / (u + 1)), x);
}

static inline double
tile_cosh_f32(double x)
{
    tile_power e = tile_power_f32(tile_clip(fabs(x), 0, 100));
    double s = tile_two_to(e.n), u = fma(s, e.r + e.low, s);
    return 0.5 * (u + 1 / u);
}

/* ---- logarithms ---------------------------------------------------------- */

/* x = 2^n m with m in [sqrt(1/2), sqrt(2)]. */
typedef struct {
    double n, m;
} tile_split;

/* Of a positive normal number; every one of f32 is. */
static inline tile_split
tile_split_normal(double x)
{
    uint64_t u = tile_bits64(x);
    double m = tile_from_bits64((u & 0xfffffffffffff) | UINT64_C(1023) << 52);
    double n = tile_from_bits64(u >> 52 | UINT64_C(1075) << 52);
    int high = m > 1.4142135623730951;
    n -= high ? 0x1p52 + 1022 : 0x1p52 + 1023;
    return (tile_split){n, high ? m * 0.5 : m};
}

static inline tile_split
tile_split_of(double x)
{
    int small = x < 0x1p-1022;
    tile_split t = tile_split_normal(small ? x * 0x1p54 : x);
    t.n -= small ? 54 : 0;
    return t;
}

/* log(1 + f), |f| below 0.415: f - f^2 / 2 in two parts, the rest with
 * s = f / (2 + f) as 2 atanh(s) = 2 s + s z R(z), z = s^2. */
static inline tile_pair
tile_log_near(double f)
{
    static const double R[] = {0.13088034850927555, 0.13268638369266825,
                               0.15386244737621665, 0.18181795547521137,
                               0.22222222392581045, 0.28571428570799784,
                               0.40000000000000885, 0.6666666666666666};
    double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double high = f - half, rest = fma(0.5 * f, f, -half);
    double low = s * fma(z, TILE_POLY(R, z), half) - rest;
    return (tile_pair){high, ((f - high) - half) + low};
}

/* n ln2 + the pair */
static inline double
tile_log_sum(double n, tile_pair p)
{
    double whole = n * TILE_LN2_SHORT, y = whole + p.high;
    double lost = (whole - y) + p.high; /* nothing where n is 0 */
    return y + (lost + fma(n, TILE_LN2_REST, p.low));
}

/* What a logarithm is where x is not positive and finite. */
static inline double
tile_log_ends(double x, double y)
{
    double low = x == 0 ? -HUGE_VAL : (double)NAN;
    return x < HUGE_VAL ? (x > 0 ? y : low) : x;
}

static inline double
tile_log(double x)
{
    tile_split t = tile_split_of(x);
    return tile_log_ends(x, tile_log_sum(t.n, tile_log_near(t.m - 1)));
}

/* n unit + the pair times c, both constants in two parts */
static inline double
tile_log_scaled(double n, tile_pair unit, tile_pair p, tile_pair c)
{
    double whole = n * unit.high, part = p.high * c.high;
    tile_pair y = tile_sum(whole, part);
    double lost = fma(n, unit.high, -whole) + fma(p.high, c.high, -part);
    lost += fma(n, unit.low, fma(p.high, c.low, p.low * c.high));
    return y.high + (y.low + lost);
}

static inline double
tile_log2(double x)
{
    const tile_pair unit = {1, 0}, c = {TILE_LOG2E, TILE_LOG2E_LOW};
    tile_split t = tile_split_of(x);
    tile_pair p = tile_log_near(t.m - 1);
    return tile_log_ends(x, tile_log_scaled(t.n, unit, p, c));
}

static inline double
tile_log10(double x)
{
    const tile_pair unit = {TILE_LOG10_2, TILE_LOG10_2_LOW};
    const tile_pair c = {TILE_LOG10E, TILE_LOG10E_LOW};
    tile_split t = tile_split_of(x);
    tile_pair p = tile_log_near(t.m - 1);
    return tile_log_ends(x, tile_log_scaled(t.n, unit, p, c));
}

/* 1 + x = 2^n (1 + f), with what x loses in the sum; from 2^53 on nothing. */
static inline double
tile_log1p(double x)
{
    tile_split t = tile_split_of(1 + x);
    double s = tile_two_to(-t.n);
    double f = x < 0x1p53 ? fma(s, x, s - 1) : t.m - 1;
    double y = tile_log_sum(t.n, tile_log_near(f));
    return fabs(x) < 0x1p-54 ? x : tile_log_ends(1 + x, y);
}

static inline double
tile_asinh(double x)
{
    double t = fabs(x), far = t > 0x1p60 ? 1 : 0;
    double near = far > 0 ? t : t + t * t / (1 + sqrt(fma(t, t, 1)));
    double y = tile_log1p(near) + far * TILE_LN2;
    return copysign(y, x);
}

static inline double
tile_acosh(double x)
{
    double t = x - 1, far = x > 0x1p60 ? 1 : 0;
    double near = far > 0 ? x : t + sqrt(fma(t, t, 2 * t));
    double y = tile_log1p(near) + far * TILE_LN2;
    return x < 1 ? (double)NAN : y;
}

static inline double
tile_atanh(double x)
{
    double t = fabs(x);
    return copysign(0.5 * tile_log1p(2 * t / (1 - t)), x);
}

/* (log((1 + s) / (1 - s)) - 2 s) / s with 11 digits, |s| below 0.172 */
static inline double
tile_log_rest(double s)
{
    static const double R[] = {0.19363884986633198, 0.22191337428065783,
                               0.28571755535032944, 0.3999999879244169,
                               0.6666666666737868};
    double z = s * s;
    return z * TILE_POLY(R, z);
}

/* The logarithm of a positive normal number with 11 digits. */
static inline double
tile_log_f32(double x)
{
    tile_split t = tile_split_normal(x);
    double s = (t.m - 1) / (t.m + 1);
    return fma(t.n, TILE_LN2, fma(s, tile_log_rest(s), s + s));
}

static inline double
tile_log2_f32(double x)
{
    tile_split t = tile_split_normal(x);
    double s = (t.m - 1) / (t.m + 1), y = fma(s, tile_log_rest(s), s + s);
    return tile_log_ends(x, fma(y, TILE_LOG2E, t.n));
}

/* Half the logarithm of (1 + t) / (1 - t) = 2^n m; s, of m, in one quotient. */
static inline double
tile_atanh_f32(double x)
{
    double t = fabs(x), up = 1 + t;
    tile_split d = tile_split_normal(1 - t);
    int high = up > 1.4142135623730951 * d.m;
    double n = (high ? 1 : 0) - d.n, down = high ? d.m + d.m : d.m;
    double s = (n == 0 ? t + t : up - down) / (up + down);
    double y = fma(n, 0.5 * TILE_LN2, fma(0.5 * s, tile_log_rest(s), s));
    y = t < 1 ? y : t == 1 ? HUGE_VAL : (double)NAN;
    return copysign(y, x);
}

#endif
