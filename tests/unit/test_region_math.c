/* Composites of air_prims.def against libm in double: largest error in ulp
 * over every exponent, and the special values. */
#include <math.h>
#include <stdlib.h>

#include "driver/cpu/region/tile_float.h"
#include "driver/cpu/region/tile_ops.h"
#include "test.h"

enum { POINTS = 512 };

/* Units in the last place of the float nearest to `want`. */
static double
ulps(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if ((float)want == got)
        return 0.5;
    if (isinf(got) || isinf((float)want))
        return fabs(want) >= 0x1.fffffep127 &&
                       fabs((double)got) >= 0x1.fffffep127
                   ? 1
                   : HUGE_VAL;
    int e;
    frexp(want, &e);
    double unit = ldexp(1, e < -125 ? -149 : e - 24);
    return fabs((double)got - want) / unit;
}

typedef double (*exact_fn)(double);

static double
worst(const tile_set *set, air_rg_op op, exact_fn exact, uint32_t step)
{
    float in[POINTS], out[POINTS], at = 0;
    double most = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        for (int i = 0; i < POINTS; i++, bits += step)
            in[i] = tile_from_bits((uint32_t)bits);
        (*set->ops)[op][AIR_LANE_F32](out, in, in, in, POINTS);
        for (int i = 0; i < POINTS; i++) {
            double u = ulps(out[i], exact((double)in[i]));
            if (u > most) {
                most = u;
                at = in[i];
            }
        }
    }
    if (getenv("AIR_TEST_ULPS") != NULL)
        fprintf(stderr, "op %d isa %s: %.3f ulp at %.9g\n", op, set->isa, most,
                (double)at);
    return most;
}

static double
sigmoid(double a)
{
    return 1 / (1 + exp(-a));
}

static void
check(air_rg_op op, exact_fn exact, double limit)
{
    uint32_t step = getenv("AIR_TEST_ULPS") != NULL ? 101 : 2003;
    double most = worst(tile_set_find("avx512"), op, exact, step);
    if (!(most <= limit))
        test_fail(__FILE__, __LINE__, "op %d: %.3f ulp, allowed %.3f", op, most,
                  limit);
}

TEST(region_math_exp)
{
    check(AIR_RG_EXP, exp, 0.9);
    check(AIR_RG_EXP2, exp2, 1.0);
    check(AIR_RG_EXPM1, expm1, 1.5);
}

/* Where a <= 0 it gives the bits of EXP, which takes more steps. */
TEST(region_math_exp_below_zero)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    float in[POINTS], want[POINTS], got[POINTS];
    for (size_t k = 0; k < sizeof isas / sizeof *isas; k++) {
        const tile_set *set = tile_set_find(isas[k]);
        for (uint64_t bits = 0x80000000u; bits < UINT64_C(1) << 32;) {
            for (int i = 0; i < POINTS; i++, bits += 1009)
                in[i] = tile_from_bits((uint32_t)bits | 0x80000000u);
            (*set->ops)[AIR_RG_EXP][AIR_LANE_F32](want, in, in, in, POINTS);
            (*set->ops)[AIR_RG_EXPNEG][AIR_LANE_F32](got, in, in, in, POINTS);
            for (int i = 0; i < POINTS; i++)
                REQUIRE(ulps(got[i], (double)want[i]) <= 0.5);
        }
    }
}

/* Masks: all of e^-inf and far below is 0, from the first x whose power is. */
TEST(region_math_vanishing)
{
    static const struct {
        air_rg_op op;
        float last, zero;
    } rows[] = {{AIR_RG_EXP, -103.9f, -104.1f},
                {AIR_RG_EXPNEG, -103.9f, -104.1f},
                {AIR_RG_EXP2, -149, -151},
                {AIR_RG_NDTR, -7, -13.5f},
                {AIR_RG_NDTRH, -7, -13.5f}};
    const tile_set *set = tile_set_find("avx512");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float in[4] = {rows[i].last, rows[i].zero, -1e9f, -INFINITY}, out[4];
        (*set->ops)[rows[i].op][AIR_LANE_F32](out, in, in, in, 4);
        CHECK(out[0] > 0);
        CHECK(out[1] == 0 && out[2] == 0 && out[3] == 0);
    }
}

/* The largest error says little of the others: the mean of a correctly rounded
 * result is 0.25 ulp, eager's of these functions not much more. */
static double
mean(air_rg_op op, exact_fn exact, double low, double high)
{
    const tile_set *set = tile_set_find("avx512");
    float in[POINTS], out[POINTS];
    double sum = 0;
    const double step = (high - low) / (64.0 * POINTS);
    for (int k = 0; k < 64; k++) {
        for (int i = 0; i < POINTS; i++)
            in[i] = (float)(low + step * (k * POINTS + i + 0.37));
        (*set->ops)[op][AIR_LANE_F32](out, in, in, in, POINTS);
        for (int i = 0; i < POINTS; i++) {
            double want = exact((double)in[i]);
            /* where they are equal ulps() says 0.5 at most */
            sum += fmin(ulps(out[i], want), fabs((double)out[i] - want) /
                                                ldexp(1, ilogb(want) - 23));
        }
    }
    return sum / (64.0 * POINTS);
}

TEST(region_math_means)
{
    static const struct {
        air_rg_op op;
        exact_fn exact;
        double low, high, limit;
    } rows[] = {
        {AIR_RG_EXP, exp, -5, 5, 0.27},
        {AIR_RG_EXP2, exp2, -5, 5, 0.28},
        {AIR_RG_EXPM1, expm1, -2, 2, 0.28},
        {AIR_RG_LOG, log, 0.01, 10, 0.265},
        {AIR_RG_LOG10, log10, 0.01, 10, 0.265},
        {AIR_RG_LOG1P, log1p, -0.9, 2, 0.28},
        {AIR_RG_TANH, tanh, -3, 3, 0.265},
        {AIR_RG_ERF, erf, -2, 2, 0.28},
        {AIR_RG_SIN, sin, -6, 6, 0.26},
        {AIR_RG_COS, cos, -6, 6, 0.26},
        {AIR_RG_TAN, tan, -6, 6, 0.26},
        {AIR_RG_SINH, sinh, -3, 3, 0.26},
        {AIR_RG_COSH, cosh, -3, 3, 0.26},
        {AIR_RG_ATANH, atanh, -0.99, 0.99, 0.26},
        {AIR_RG_ASINH, asinh, -3, 3, 0.26},
        {AIR_RG_ACOSH, acosh, 1, 5, 0.26},
        {AIR_RG_ASIN, asin, -1, 1, 0.29},
        {AIR_RG_ACOS, acos, -1, 1, 0.29},
        {AIR_RG_ATAN, atan, -4, 4, 0.29},
        {AIR_RG_LGAMMA, lgamma, 0.1, 8, 0.27},
        {AIR_RG_ERFC, erfc, -3, 3, 0.26},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double m = mean(rows[i].op, rows[i].exact, rows[i].low, rows[i].high);
        if (getenv("AIR_TEST_ULPS") != NULL)
            fprintf(stderr, "op %d: mean %.4f ulp\n", rows[i].op, m);
        if (!(m <= rows[i].limit))
            test_fail(__FILE__, __LINE__, "op %d: mean %.4f ulp, allowed %.3f",
                      rows[i].op, m, rows[i].limit);
    }
}

TEST(region_math_log)
{
    check(AIR_RG_LOG, log, 1.0);
    check(AIR_RG_LOG10, log10, 1.1);
    check(AIR_RG_LOG1P, log1p, 1.55);
}

TEST(region_math_bounded)
{
    check(AIR_RG_TANH, tanh, 1.0);
    check(AIR_RG_ERF, erf, 1.1);
}

static double
ndtr(double a)
{
    return 0.5 * erfc(-0.70710678118654752440 * a);
}

/* A probability: what counts is the distance to 1; but below zero it is what
 * is left of that, and must not vanish. */
TEST(region_math_ndtr)
{
    const tile_set *set = tile_set_find("avx512");
    for (float x = -40; x < 40; x += 0.00037f) {
        float y, unused = 0;
        double want = ndtr((double)x);
        (*set->ops)[AIR_RG_NDTR][AIR_LANE_F32](&y, &x, &unused, &unused, 1);
        REQUIRE(fabs((double)y - want) < 1.5 * 0x1p-24);
        REQUIRE(x > 0 || x < -4 || fabs((double)y - want) < 2e-4 * want);
        REQUIRE(x > -20 || y == 0);
    }
    const float in[3] = {-INFINITY, INFINITY, NAN};
    float out[3];
    (*set->ops)[AIR_RG_NDTR][AIR_LANE_F32](out, in, in, in, 3);
    CHECK(out[0] == 0 && out[1] == 1 && isnan(out[2]));
}

/* Of which bf16 is kept: a third of its least half ulp. */
TEST(region_math_ndtr_of_bf16)
{
    const tile_set *set = tile_set_find("avx512");
    for (float x = -40; x < 40; x += 0.00037f) {
        float y, unused = 0;
        double want = ndtr((double)x);
        (*set->ops)[AIR_RG_NDTRH][AIR_LANE_F32](&y, &x, &unused, &unused, 1);
        REQUIRE(fabs((double)y - want) < 0x1.1p-12);
        REQUIRE(x < -4 || fabs((double)y - want) < 0x1.6p-11 * want);
        REQUIRE(x < -6 || fabs((double)y - want) < 6e-3 * want);
        REQUIRE(x > -20 || y == 0);
    }
    const float in[3] = {-INFINITY, INFINITY, NAN};
    float out[3];
    (*set->ops)[AIR_RG_NDTRH][AIR_LANE_F32](out, in, in, in, 3);
    CHECK(out[0] == 0 && out[1] == 1 && isnan(out[2]));
}

/* Computed in double and rounded once. */
TEST(region_math_functions)
{
    static const struct {
        air_rg_op op;
        exact_fn exact;
    } rows[] = {
        {AIR_RG_LOG2, log2},   {AIR_RG_TAN, tan},     {AIR_RG_ASIN, asin},
        {AIR_RG_ACOS, acos},   {AIR_RG_ATAN, atan},   {AIR_RG_SINH, sinh},
        {AIR_RG_COSH, cosh},   {AIR_RG_ASINH, asinh}, {AIR_RG_ACOSH, acosh},
        {AIR_RG_ATANH, atanh}, {AIR_RG_ERFC, erfc},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(rows[i].op, rows[i].exact, 0.51);
}

/* Every exponent: where libm takes over, too. */
TEST(region_math_waves)
{
    check(AIR_RG_SIN, sin, 0.9);
    check(AIR_RG_COS, cos, 0.9);
}

/* Near multiples of pi / 2 only what is left after them counts. */
TEST(region_math_wave_zeros)
{
    const tile_set *set = tile_set_find("avx512");
    for (int k = 1; k < 660000; k += 7) {
        float x = (float)(k * 1.5707963267948966), s, c;
        (*set->ops)[AIR_RG_SIN][AIR_LANE_F32](&s, &x, &x, &x, 1);
        (*set->ops)[AIR_RG_COS][AIR_LANE_F32](&c, &x, &x, &x, 1);
        REQUIRE(ulps(s, sin((double)x)) <= 0.9);
        REQUIRE(ulps(c, cos((double)x)) <= 0.9);
    }
}

/* Below -88 e^-x overflows: 0 where the value is subnormal, as in eager. */
TEST(region_math_sigmoid)
{
    const tile_set *set = tile_set_find("avx512");
    for (float x = -87; x < 90; x += 0.00037f) {
        float y, unused = 0;
        (*set->ops)[AIR_RG_SIGMOID][AIR_LANE_F32](&y, &x, &unused, &unused, 1);
        REQUIRE(ulps(y, sigmoid((double)x)) <= 2.5);
    }
}

TEST(region_math_signed_zero)
{
    static const uint16_t odd[] = {AIR_RG_EXPM1, AIR_RG_LOG1P, AIR_RG_TANH,
                                   AIR_RG_ERF, AIR_RG_SIN};
    const tile_set *set = tile_set_find("avx512");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        float in[2] = {0.0f, -0.0f}, out[2];
        (*set->ops)[odd[i]][AIR_LANE_F32](out, in, in, in, 2);
        CHECK(!signbit(out[0]) && out[0] == 0);
        CHECK(signbit(out[1]) && out[1] == 0);
    }
}
