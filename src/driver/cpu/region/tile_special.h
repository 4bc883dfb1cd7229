/* tile_special.h: functions on double without a branch, as tile_powers.h.
 * Those for the f32 lane only have some 12 digits. */
#ifndef CPU_TILE_SPECIAL_H
#define CPU_TILE_SPECIAL_H

#include "driver/cpu/region/tile_angles.h"

/* ---- for f32 and f64 ----------------------------------------------------- */

/* Where the quotient is a whole number that double holds; or what is left of
 * it is 0 or NaN, for libm to say. */
static inline int
tile_fmod_is_far(double a, double b)
{
    double q = fabs(a / b);
    return !(q < 0x1p52 && fabs(b) < HUGE_VAL);
}

/* The remainder is exact, of the next quotient too where that was rounded up.
 */
static inline double
tile_fmod(double a, double b)
{
    double x = fabs(a), y = fabs(b);
    double r = fma(-trunc(x / y), y, x);
    return copysign(r < 0 ? r + y : r, a);
}

/* C. F. Borges: "An Improved Algorithm for hypot(a, b)", ACM TOMS 47 (2021):
 * the root corrected by its residual. Scaled, so that squares neither overflow
 * nor vanish. */
static inline double
tile_hypot(double a, double b)
{
    double x = fabs(a), y = fabs(b);
    double big = x > y ? x : y, small = x > y ? y : x;
    int far = x == HUGE_VAL || y == HUGE_VAL; /* whatever the other is */
    double unit = big > 0x1p500 ? 0x1p-600 : big < 0x1p-400 ? 0x1p600 : 1;
    double back = big > 0x1p500 ? 0x1p600 : big < 0x1p-400 ? 0x1p-600 : 1;
    big *= unit;
    small *= unit;
    double h = sqrt(fma(big, big, small * small)), hh = h * h, bb = big * big;
    double more =
        fma(-small, small, hh - bb) + fma(h, h, -hh) - fma(big, big, -bb);
    double z = h - more / (h + h);
    z = (h > 0 ? z : h) * back;
    return far ? HUGE_VAL : a != a || b != b ? (double)NAN : z;
}

static inline int
tile_is_whole(double a)
{
    return rint(a) == a;
}

/* ---- for f64 ------------------------------------------------------------- */

/* Below 1 a polynomial in x^2. */
static inline double
tile_erf_near(double x)
{
    static const double P[] = {
        -7.795898827002142e-10, 1.3720064546777686e-08, -1.6208483801871705e-07,
        1.6447424703317362e-06, -1.492473690741966e-05, 0.00012055294904839707,
        -0.0008548325975389692, 0.0052239776071164225,  -0.02686617064323777,
        0.11283791670945006,    -0.37612638903183543,   0.12837916709551256};
    return fma(x, TILE_POLY(P, x * x), x);
}

/* From 1 on one less e^(-x^2) / (1 + 2 x) times the series of tile_erfc_f32, of
 * 16 terms. 1 from 6 on. */
static inline double
tile_erf(double a)
{
    static const double E[] = {
        -4.5904500727330906e-06, -1.4561883504238394e-05, 2.124757922498866e-05,
        5.171676232576705e-05,   -0.0002899669460493346,  0.0002937546787549174,
        0.0017556186793693791,   -0.009746583059977002,   0.028362277374262605,
        -0.05869339847725245,    0.09230432116741229,     -0.10880393014331381,
        0.08227673849003762,     0.0035854154854724073,   -0.1402405985855466,
        1.2375126308378275};
    double x = tile_clip(fabs(a), 0, 6), near = tile_erf_near(x);
    tile_power e = tile_power_of(-x * x);
    double y = TILE_POLY(E, (x - 3.75) / (x + 3.75)) / fma(2, x, 1);
    double far = 1 - fma(y, e.r + e.low, y) * tile_two_to(e.n);
    return copysign(x < 1 ? near : far, a);
}

/* e^(-x^2) / (1 + 2 x) times the series of tile_erfc_f32, of 23 terms about
 * 3.5; what x^2 loses counts. From 27.3 on no double is that small. */
static inline double
tile_erfc(double a)
{
    static const double E[] = {2.905786582486166e-09,   1.1631559731051983e-08,
                               -8.661609308414476e-09,  -9.699961697068286e-08,
                               4.67133791861664e-09,    6.056787643689665e-07,
                               -5.3882616483237653e-08, -3.818685378780347e-06,
                               2.3328481631751463e-06,  2.4262992859747633e-05,
                               -4.2783586890576956e-05, -0.00012151304643955156,
                               0.0005643846740695942,   -0.00030226775840242436,
                               -0.0042150199375304,     0.01909933092877757,
                               -0.048823325825927806,   0.08798315382572389,
                               -0.11508959816025748,    0.09751909515323375,
                               -0.01055559633221747,    -0.1400091801376192,
                               1.2423492448711544};
    double x = tile_clip(fabs(a), 0, 27.3), z = x * x;
    tile_power e = tile_power_of_pair(-z, fma(x, x, -z));
    double y = TILE_POLY(E, (x - 3.5) / (x + 3.5)) / fma(2, x, 1);
    y = tile_scaled(fma(y, e.r + e.low, y), e.whole);
    y = a < 0 ? 2 - y : y;
    return x < 0.5 ? 1 - tile_erf_near(a) : y;
}

/* log(x) of a positive number: 2 atanh(s) = 2 s + s z (2/3 + z R(z)), z = s^2,
 * all but z R(z) in pairs, for 64 bits or so. */
static inline tile_pair
tile_log_pair(double x)
{
    static const double R[] = {0.11723178623876518, 0.11706236339491206,
                               0.1333480469384731,  0.1538459496251843,
                               0.18181818335392802, 0.22222222221655885,
                               0.28571428571429364, 0.4};
    tile_split t = tile_split_of(x);
    tile_pair f = {t.m - 1, 0}, down = tile_sum(2, f.high), s, z, c, p;
    double inverse = 1 / down.high;
    s.high = f.high * inverse;
    s.low = fma(-s.high, down.low, fma(-s.high, down.high, f.high)) * inverse;
    z.high = s.high * s.high;
    z.low = fma(s.high, s.high, -z.high) + 2 * s.high * s.low;
    c = tile_sum(0x1.5555555555555p-1, z.high * TILE_POLY(R, z.high));
    c.low += 0x1.5555555555555p-55;
    p.high = z.high * c.high; /* log(m) / s - 2 */
    p.low = fma(z.high, c.high, -p.high) + z.high * c.low + z.low * c.high;
    c = tile_sum(2, p.high);
    c.low += p.low;
    p.high = s.high * c.high;
    p.low = fma(s.high, c.high, -p.high) + s.high * c.low + s.low * c.high;
    tile_pair whole = tile_sum(t.n * TILE_LN2_SHORT, p.high);
    whole.low += fma(t.n, TILE_LN2_REST, p.low);
    return tile_sum(whole.high, whole.low);
}

/* e^(b log |a|), with IEEE 754's special cases; 2^64 is as good as an infinite
 * exponent, but gives 1 of 1. */
static inline double
tile_pow(double a, double b)
{
    double size = fabs(a), c = tile_clip(b, -0x1p64, 0x1p64);
    tile_pair l = tile_log_pair(size);
    double high = c * tile_log_ends(size, l.high);
    double low = fma(c, l.high, -c * l.high) + c * l.low;
    double x = tile_clip(high, -746, 711);
    tile_power e = tile_power_of_pair(x, x == high ? -low : 0);
    double y = tile_power_value(e, high < -746);
    int whole = tile_is_whole(c), odd = whole && !tile_is_whole(0.5 * c);
    int none = a < 0 && size < HUGE_VAL && !whole;
    y = none ? (double)NAN : odd ? copysign(y, a) : y;
    return a == 1 || b == 0 ? 1 : y;
}

/* ---- for f32 ------------------------------------------------------------- */

static inline double
tile_hypot_f32(double a, double b)
{
    double y = sqrt(fma(a, a, b * b));
    int far = fabs(a) == HUGE_VAL || fabs(b) == HUGE_VAL;
    return far ? HUGE_VAL : y; /* whatever the other is */
}

/* A power of two beyond what f32 holds stays so. */
static inline double
tile_exp2_f32(double x)
{
    double c = tile_clip(x, -200, 200), n = rint(c), r = (c - n) * TILE_LN2;
    double s = tile_two_to(n);
    return fma(s, fma(r * r, tile_exp_rest_f32(r), r), s);
}

/* 2^(b log2 |a|), with IEEE 754's special cases; 2^99 is as good as an
 * infinite exponent, but gives 1 of 1. */
static inline double
tile_pow_f32(double a, double b)
{
    double size = fabs(a), c = tile_clip(b, -0x1p99, 0x1p99);
    double y = tile_exp2_f32(c * tile_log2_f32(size));
    int whole = tile_is_whole(c), odd = whole && !tile_is_whole(0.5 * c);
    int none = a < 0 && size < HUGE_VAL && !whole;
    y = none ? (double)NAN : odd ? copysign(y, a) : y;
    return a == 1 || b == 0 ? 1 : y;
}

/* e^(-x^2) / (1 + 2 x) times a series in (x - 3.75) / (x + 3.75), as M. M.
 * Shepherd and J. G. Laframboise: "Chebyshev Approximation of (1 + 2x)
 * exp(x^2) erfc x in 0 <= x < inf", Math. Comp. 36 (1981); our fit. From 10.1
 * on f32 has no number for it. */
static inline double
tile_erfc_f32(double a)
{
    static const double E[] = {
        3.262371125124104e-05, 4.3861516889734376e-05, -0.00030300579998335795,
        0.0002935863108331731, 0.0017609623582866597,  -0.009745558454524577,
        0.028361242140180463,  -0.05869364592690641,   0.09230442279723826,
        -0.10880390867626658,  0.08227673380627086,    0.003585414876121739,
        -0.14024059851684043,  1.2375126308402873};
    double x = tile_clip(fabs(a), 0, 10.1), down = fma(2, x, 1);
    double inverse = 1 / (down * (x + 3.75));
    double u = (x - 3.75) * inverse * down;
    tile_power e = tile_power_f32(-x * x);
    double s = tile_two_to(e.n) * ((x + 3.75) * inverse);
    double y = fma(s, e.r + e.low, s) * TILE_POLY(E, u);
    return a < 0 ? 2 - y : y;
}

/* Stirling's series from 9 on; below, with t in [1, 2] and a product of shifts,
 * log(product) + (t - 1) (t - 2) R(t), which is exact where it vanishes. */
static inline double
tile_lgamma_above(double x)
{
    static const double R[] = {
        0.00037721545217415394, -0.0006071248442035397, 0.0006762047810454489,
        -0.0011080558310978198, 0.0019283782552744898,  -0.0032207885312005016,
        0.005446052910578167,   -0.009424976475869581,  0.016797111398391927,
        -0.031308507866704825,  0.06291140096016636,    -0.14595989573182686,
        0.4831289505409809};
    static const double B[] = {-1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12};
    double t = x < 1 ? x + 1 : x, product = x < 1 ? x : 1, size, log_of, z;
    int far = x >= 9;

    for (int i = 0; i < 7; i++) {
        t = t > 2 ? t - 1 : t;
        product *= x - 1 - i >= 1 ? x - 1 - i : 1;
    }
    size = far ? x : product;
    log_of = tile_log_f32(size);
    z = 1 / x;
    double series = fma(x - 0.5, log_of, 0.91893853320467274178 - x) +
                    TILE_POLY(B, z * z) * z;
    double near = (t - 1) * (t - 2) * TILE_POLY(R, t - 1.5);
    near += x < 1 ? -log_of : log_of;
    near = x > 0 ? near : x == 0 ? HUGE_VAL : x; /* NaN */
    return far ? (x < HUGE_VAL ? series : x) : near;
}

/* Below zero by reflection: log(pi / |a sin(pi a)|) - lgamma(-a). */
static inline double
tile_lgamma_f32(double a)
{
    static const double S[] = {-6.726944683047245e-06, 0.00014832819444668023,
                               -0.002346059804670426,  0.02614784533254185,
                               -0.190751823964026,     0.8117424252784151,
                               -1.6449340668481676,    0.9999999999999999};
    double size = fabs(a), left = fabs(size - rint(size));
    double sine = left * TILE_POLY(S, left * left); /* over pi */
    double above = tile_lgamma_above(size);
    double below = -tile_log_f32(size * sine) - above;
    below = left == 0 || size == HUGE_VAL ? HUGE_VAL : below;
    return a < 0 ? below : above;
}

#endif
