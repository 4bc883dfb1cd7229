/* tile_angles.h: trigonometric functions on double without a branch, as
 * tile_powers.h. */
#ifndef CPU_TILE_ANGLES_H
#define CPU_TILE_ANGLES_H

#include "driver/cpu/region/tile_powers.h"

#define TILE_HALF_PI         0x1.921fb54442d18p+0
#define TILE_HALF_PI_LOW     0x1.1a62633145c07p-54
#define TILE_HALF_PI_LAST    0x1.f1976b7ed8fbcp-110 /* of minus pi / 2 */
#define TILE_INVERSE_HALF_PI 0x1.45f306dc9c883p-1

/* ---- of an angle --------------------------------------------------------- */

/* Where these are right; of larger angles too little is left. */
#define TILE_ANGLE_MAX 0x1p30

/* Sine and cosine of what is left of an angle after n quarters of a turn: the
 * reduction in three steps of Cody and Waite, the first exact where it cancels,
 * what r cannot hold being l. */
typedef struct {
    tile_pair sine, cosine;
    uint64_t n;
} tile_angle;

static inline tile_angle
tile_angle_of(double a)
{
    static const double S[] = {-7.586636882825159e-13, 1.6058530596645953e-10,
                               -2.50521062259944e-08,  2.755731921932058e-06,
                               -0.0001984126984126504, 0.008333333333333331,
                               -0.16666666666666666};
    static const double C[] = {-1.138254464534925e-11, 2.087614504941318e-09,
                               -2.755731726587808e-07, 2.48015872987544e-05,
                               -0.0013888888888887389, 0.041666666666666664};
    double q = rint(a * TILE_INVERSE_HALF_PI);
    double h = fma(q, -TILE_HALF_PI, a), m = q * TILE_HALF_PI_LOW;
    double r = h - m, k = h - r, z = r * r;
    double l = ((h - (r + k)) + (k - m)) - fma(q, TILE_HALF_PI_LOW, -m);
    l = fma(q, TILE_HALF_PI_LAST, l);
    double ds = fma(TILE_POLY(S, z) * z, r, l);
    double dc = fma(-0.5, fma(r, r, -z), -r * l);
    tile_pair c = tile_sum(1, -0.5 * z);
    dc = fma(TILE_POLY(C, z) * z, z, c.low + dc);
    return (tile_angle){tile_sum(r, ds), tile_sum(c.high, dc), tile_whole(q)};
}

static inline double
tile_wave64(tile_angle t, uint64_t n)
{
    uint64_t v = tile_bits64(n & 1 ? t.cosine.high : t.sine.high);
    return tile_from_bits64(v ^ (n & 2) << 62);
}

static inline double
tile_sin(double a)
{
    tile_angle t = tile_angle_of(a);
    double y = tile_wave64(t, t.n);
    return a == 0 ? a : y;
}

static inline double
tile_cos(double a)
{
    tile_angle t = tile_angle_of(a);
    return tile_wave64(t, t.n + 1);
}

static inline double
tile_tan(double a)
{
    tile_angle t = tile_angle_of(a);
    int odd = t.n & 1;
    tile_pair up = t.sine, down = t.cosine;
    up.high = odd ? -t.cosine.high : up.high;
    up.low = odd ? -t.cosine.low : up.low;
    down.high = odd ? t.sine.high : down.high;
    down.low = odd ? t.sine.low : down.low;
    double y = tile_quotient(up, down);
    return a == 0 ? a : y;
}

static inline double
tile_tan_f32(double a)
{
    tile_angle t = tile_angle_of(a);
    int odd = t.n & 1;
    double up = odd ? -t.cosine.high : t.sine.high;
    double y = up / (odd ? t.sine.high : t.cosine.high);
    return a == 0 ? a : y;
}

/* ---- angles -------------------------------------------------------------- */

/* The angle of a point 0 <= y <= x, x > 0, y / x in one quotient: above an
 * eighth of a right angle as pi / 4 less the angle of (x - y, x + y). */
static inline tile_pair
tile_arc(double y, double x)
{
    static const double A[] = {
        0.01627194475162406,   -0.034558092551413795, 0.04551108126325172,
        -0.052303478730160745, 0.058789145444006215,  -0.06666423628069258,
        0.0769229630497447,    -0.09090908751076636,  0.11111111105106705,
        -0.14285714285659326,  0.199999999999998,     -0.3333333333333333};
    int high = y > 0.41421356237309503 * x;
    tile_pair up = tile_sum(-x, y), down = tile_sum(x, y);
    up.high = high ? up.high : y;
    up.low = high ? up.low : 0;
    down.high = high ? down.high : x;
    down.low = high ? down.low : 0;
    double t = tile_quotient(up, down), z = t * t;
    double rest = TILE_POLY(A, z) * z * t;
    tile_pair sum = tile_sum(high ? TILE_HALF_PI * 0.5 : 0, t);
    return tile_sum(sum.high,
                    sum.low + ((high ? TILE_HALF_PI_LOW * 0.5 : 0) + rest));
}

/* turn less the pair, where told to */
static inline tile_pair
tile_arc_turned(int is_turned, double quarters, tile_pair r)
{
    tile_pair y = tile_sum(quarters * TILE_HALF_PI, -r.high);
    y.low += quarters * TILE_HALF_PI_LOW - r.low;
    r.high = is_turned ? y.high : r.high;
    r.low = is_turned ? y.low : r.low;
    return r;
}

static inline double
tile_atan(double a)
{
    double t = fabs(a), big = t > 1 ? t : 1, small = t > 1 ? 1 : t;
    int far = big >= HUGE_VAL;
    tile_pair r = tile_arc(far ? 0 : small, far ? 1 : big);
    r = tile_arc_turned(t > 1, 1, r);
    return a != a ? a : copysign(r.high + r.low, a);
}

/* Of infinities and zeros a point at the same angle is taken. */
static inline double
tile_atan2(double a, double b)
{
    double y = fabs(a), x = fabs(b);
    double big = y > x ? y : x, small = y > x ? x : y;
    int far = big >= HUGE_VAL;
    double unit = big > 0x1p900 ? 0x1p-60 : 0x1p60; /* no sum overflows */
    small = far ? (small < HUGE_VAL ? 0 : 1) : small * unit;
    big = far || big == 0 ? 1 : big * unit;
    tile_pair r = tile_arc_turned(y > x, 1, tile_arc(small, big));
    r = tile_arc_turned(copysign(1, b) < 0, 2, r);
    return a != a || b != b ? a + b : copysign(r.high + r.low, a);
}

/* The same of numbers in f32, with 11 digits. */
static inline double
tile_arc_f32(double y, double x)
{
    static const double A[] = {0.03293875797470985, -0.06026298394701879,
                               0.07604579486852303, -0.09084078141663537,
                               0.11110818413358031, -0.14285708076608974,
                               0.1999999994953061,  -0.33333333333265697};
    int high = y > 0.41421356237309503 * x;
    double t = (high ? y - x : y) / (high ? y + x : x), z = t * t;
    double sum = t + (high ? TILE_HALF_PI * 0.5 : 0);
    return fma(TILE_POLY(A, z) * z, t, sum);
}

/* 2^400 stands for infinity: what is divided by it is 0 in f32. */
static inline double
tile_atan2_f32(double a, double b)
{
    double y = tile_clip(fabs(a), 0, 0x1p400);
    double x = tile_clip(fabs(b), 0, 0x1p400);
    double big = y > x ? y : x, small = y > x ? x : y;
    double r = tile_arc_f32(small, big == 0 ? 1 : big);
    r = y > x ? TILE_HALF_PI - r : r;
    return copysign(copysign(1, b) < 0 ? 2 * TILE_HALF_PI - r : r, a);
}

static inline double
tile_atan_f32(double a)
{
    return tile_atan2_f32(a, 1);
}

/* (asin(s) - s) / s of z = s^2 up to a quarter */
static inline double
tile_asin_rest(double z)
{
    static const double A[] = {
        0.02877844261259304,  -0.014881409392818066, 0.017419357964884856,
        0.00545087818772055,  0.010324318288744113,  0.011478952690257387,
        0.013971235301124539, 0.017352391265909227,  0.022372173002005596,
        0.030381944137085216, 0.04464285714637338,   0.07499999999998425,
        0.16666666666666669};
    return TILE_POLY(A, z) * z;
}

/* sqrt(z) in two parts */
static inline tile_pair
tile_root(double z)
{
    double s = sqrt(z), low = fma(-s, s, z) / (s + s);
    return (tile_pair){s, s > 0 ? low : 0};
}

/* Above a half pi / 2 - 2 asin(sqrt((1 - x) / 2)). */
static inline double
tile_asin(double x)
{
    double t = fabs(x), far = 0.5 - 0.5 * t;
    tile_pair root = tile_root(far);
    double rest = fma(root.high, tile_asin_rest(far), root.low);
    tile_pair y = tile_sum(TILE_HALF_PI, -2 * root.high);
    double high = y.high + (y.low - (2 * rest - TILE_HALF_PI_LOW));
    double near = fma(t, tile_asin_rest(t * t), t);
    return copysign(t > 0.5 ? high : near, x);
}

static inline double
tile_acos(double x)
{
    double t = fabs(x), far = 0.5 - 0.5 * t;
    tile_pair root = tile_root(far), y = tile_sum(TILE_HALF_PI, -x);
    double rest = fma(root.high, tile_asin_rest(far), root.low);
    double near =
        y.high + (y.low - (x * tile_asin_rest(t * t) - TILE_HALF_PI_LOW));
    double right = 2 * (root.high + rest);
    tile_pair z = tile_sum(2 * TILE_HALF_PI, -2 * root.high);
    double left = z.high + (z.low - (2 * rest - 2 * TILE_HALF_PI_LOW));
    return t > 0.5 ? (x < 0 ? left : right) : near;
}

static inline double
tile_asin_f32(double x)
{
    double t = fabs(x), far = 0.5 - 0.5 * t, z = t > 0.5 ? far : t * t;
    double s = t > 0.5 ? sqrt(far) : t, y = fma(s, tile_asin_rest(z), s);
    return copysign(t > 0.5 ? fma(-2, y, TILE_HALF_PI) : y, x);
}

static inline double
tile_acos_f32(double x)
{
    double t = fabs(x), far = 0.5 - 0.5 * t, z = t > 0.5 ? far : t * t;
    double s = t > 0.5 ? sqrt(far) : x, y = fma(s, tile_asin_rest(z), s);
    double end = x < 0 ? fma(-2, y, 2 * TILE_HALF_PI) : y + y;
    return t > 0.5 ? end : TILE_HALF_PI - y;
}

#endif
