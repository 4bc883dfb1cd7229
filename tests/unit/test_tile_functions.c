/* Vector bodies of functions (tile_powers.h, tile_angles.h, tile_special.h):
 * the f64 lane against libm in long double, those of two operands against
 * libm's special cases, and all instruction sets against each other. */
#include <math.h>
#include <string.h>

#include "driver/cpu/region/tile_ops.h"
#include "test.h"

enum { POINTS = 512 };

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static void
run(const char *isa, air_rg_op op, air_lane lane, void *d, const void *a,
    const void *b, int64_t n)
{
    (*tile_set_find(isa)->ops)[op][lane](d, a, b, b, n);
}

/* Numbers of every size: even i spread over [-9, 9], odd over exponents. */
static double
sample(int i)
{
    double sign = i & 2 ? -1 : 1, at = (double)(i * 7919 % 30011) / 30011;
    return i & 1 ? sign * pow(2, 100 * at - 70) : 18 * at - 9;
}

static double
ulps64(double got, long double want)
{
    int e;
    if (isnan(want) || isinf((double)want))
        return isnan(want) ? (isnan(got) ? 0 : HUGE_VAL)
                           : (got == (double)want ? 0 : HUGE_VAL);
    frexpl(want, &e);
    e = e < -1021 ? -1021 : e;
    return (double)(fabsl((long double)got - want) / ldexpl(1, e - 53));
}

typedef long double (*long_fn)(long double);

TEST(tile_functions_f64)
{
    static const struct {
        air_rg_op op;
        long_fn exact;
        double limit;
    } rows[] = {
        {AIR_RG_EXP, expl, 0.7},     {AIR_RG_EXP2, exp2l, 0.7},
        {AIR_RG_EXPM1, expm1l, 1.0}, {AIR_RG_LOG, logl, 0.7},
        {AIR_RG_LOG2, log2l, 0.7},   {AIR_RG_LOG10, log10l, 0.7},
        {AIR_RG_LOG1P, log1pl, 1.1}, {AIR_RG_SIN, sinl, 0.8},
        {AIR_RG_COS, cosl, 0.9},     {AIR_RG_TAN, tanl, 0.9},
        {AIR_RG_ASIN, asinl, 0.7},   {AIR_RG_ACOS, acosl, 0.7},
        {AIR_RG_ATAN, atanl, 1.0},   {AIR_RG_SINH, sinhl, 1.1},
        {AIR_RG_COSH, coshl, 1.0},   {AIR_RG_TANH, tanhl, 0.8},
        {AIR_RG_ASINH, asinhl, 1.5}, {AIR_RG_ACOSH, acoshl, 1.7},
        {AIR_RG_ATANH, atanhl, 1.5}, {AIR_RG_ERF, erfl, 1.1},
        {AIR_RG_ERFC, erfcl, 3.0},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        double most = 0, at = 0;
        for (int i = 0; i < 30000; i++) {
            double x = sample(i), y, u;
            run("avx512", rows[k].op, AIR_LANE_F64, &y, &x, &x, 1);
            u = ulps64(y, rows[k].exact((long double)x));
            at = u > most ? x : at;
            most = u > most ? u : most;
        }
        if (!(most <= rows[k].limit))
            test_fail(__FILE__, __LINE__, "op %d: %.3f ulp at %.17g",
                      rows[k].op, most, at);
    }
}

/* Results of every size, of bases near 1 too. */
TEST(tile_functions_pow_f64)
{
    double most = 0;
    for (int i = 0; i < 30000; i++) {
        double a = i % 3 == 0   ? fabs(sample(i))
                   : i % 3 == 1 ? pow(2, sample(i) * 0x1p-10)
                                : 0x1p-1040 * (i + 1);
        double b = (i * 7919 % 30011 - 15000) / 15000.0 * 700 / fabs(log(a)), y;
        long double want = powl((long double)a, (long double)b);
        run("avx512", AIR_RG_POW, AIR_LANE_F64, &y, &a, &b, 1);
        double u = isfinite(b) ? ulps64(y, want) : 0;
        most = u > most ? u : most;
    }
    if (!(most <= 1.0))
        test_fail(__FILE__, __LINE__, "%.3f ulp", most);
}

static const double special[] = {
    0.0,          -0.0,     INFINITY, -INFINITY, NAN,      1,
    -1,           0.5,      -0.5,     2,         -2,       3,
    -3,           0x1p-149, 3e38,     -3e38,     2.5,      1e-38,
    1e10,         7,        -7,       16777216,  33554434, 0x1.fffffep-1,
    0x1.000002p0, 9,        -9.5,     88.8,      -104,     10.2,
};
enum { SPECIAL = sizeof special / sizeof *special };

/* Equal, signs of zeros included, to one unit of the lane. */
static bool
is_near(double got, double want, double unit)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    return signbit(got) == signbit(want) &&
           (got == want || fabs(got - want) <= unit * fabs(want));
}

typedef double (*two_fn)(double, double);
typedef double (*one_fn)(double);

TEST(tile_functions_special_pairs)
{
    static const struct {
        air_rg_op op;
        two_fn exact;
    } rows[] = {{AIR_RG_POW, pow},
                {AIR_RG_ATAN2, atan2},
                {AIR_RG_HYPOT, hypot},
                {AIR_RG_FMOD, fmod}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int i = 0; i < SPECIAL * SPECIAL; i++) {
            double x = special[i / SPECIAL], y = special[i % SPECIAL], z;
            float a = (float)x, b = (float)y, c;
            run("avx512", rows[k].op, AIR_LANE_F64, &z, &x, &y, 1);
            REQUIRE(is_near(z, rows[k].exact(x, y), 0x1p-52));
            run("avx512", rows[k].op, AIR_LANE_F32, &c, &a, &b, 1);
            z = rows[k].exact((double)a, (double)b);
            REQUIRE(is_near((double)c, (double)(float)z, 0x1p-23));
        }
}

TEST(tile_functions_special_values)
{
    static const struct {
        air_rg_op op;
        one_fn exact;
    } rows[] = {
        {AIR_RG_EXP, exp},     {AIR_RG_EXP2, exp2},   {AIR_RG_EXPM1, expm1},
        {AIR_RG_LOG, log},     {AIR_RG_LOG2, log2},   {AIR_RG_LOG10, log10},
        {AIR_RG_LOG1P, log1p}, {AIR_RG_SIN, sin},     {AIR_RG_COS, cos},
        {AIR_RG_TAN, tan},     {AIR_RG_ASIN, asin},   {AIR_RG_ACOS, acos},
        {AIR_RG_ATAN, atan},   {AIR_RG_SINH, sinh},   {AIR_RG_COSH, cosh},
        {AIR_RG_TANH, tanh},   {AIR_RG_ASINH, asinh}, {AIR_RG_ACOSH, acosh},
        {AIR_RG_ATANH, atanh}, {AIR_RG_ERFC, erfc},   {AIR_RG_LGAMMA, lgamma},
        {AIR_RG_ERF, erf},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int i = 0; i < SPECIAL; i++) {
            double x = special[i], y;
            float a = (float)x, b;
            run("avx512", rows[k].op, AIR_LANE_F64, &y, &x, &x, 1);
            REQUIRE(is_near(y, rows[k].exact(x), 0x1p-51));
            run("avx512", rows[k].op, AIR_LANE_F32, &b, &a, &a, 1);
            y = (double)(float)rows[k].exact((double)a);
            /* f32's bodies may take half of the least number for 0 */
            if (fabs((double)b - y) > 0x1p-149 &&
                !is_near((double)b, y, 0x1p-22))
                test_fail(__FILE__, __LINE__, "op %d of %g: %.9g, not %.9g",
                          rows[k].op, (double)a, (double)b, y);
        }
}

/* Also where vectors end. */
TEST(tile_functions_same_bits)
{
    static const uint16_t ops[] = {
        AIR_RG_EXP,   AIR_RG_EXPM1, AIR_RG_LOG,  AIR_RG_LOG2,   AIR_RG_LOG1P,
        AIR_RG_SIN,   AIR_RG_COS,   AIR_RG_TAN,  AIR_RG_ASIN,   AIR_RG_ACOS,
        AIR_RG_ATAN,  AIR_RG_SINH,  AIR_RG_COSH, AIR_RG_TANH,   AIR_RG_ASINH,
        AIR_RG_ACOSH, AIR_RG_ATANH, AIR_RG_ERFC, AIR_RG_LGAMMA, AIR_RG_POW,
        AIR_RG_ATAN2, AIR_RG_HYPOT, AIR_RG_FMOD, AIR_RG_ERF,
    };
    double a[POINTS], b[POINTS], want[POINTS], got[POINTS];
    float a32[POINTS], b32[POINTS], want32[POINTS], got32[POINTS];
    for (int i = 0; i < POINTS; i++) {
        a[i] = i < SPECIAL ? special[i] : sample(i);
        b[i] = sample(i * 5 + 3);
        a32[i] = (float)a[i];
        b32[i] = (float)b[i];
    }
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        run(isas[0], (air_rg_op)ops[k], AIR_LANE_F64, want, a, b, POINTS);
        run(isas[0], (air_rg_op)ops[k], AIR_LANE_F32, want32, a32, b32, POINTS);
        for (int s = 1; s < 3; s++) {
            run(isas[s], (air_rg_op)ops[k], AIR_LANE_F64, got, a, b, 509);
            run(isas[s], (air_rg_op)ops[k], AIR_LANE_F32, got32, a32, b32, 509);
            for (int i = 0; i < 509; i++) {
                REQUIRE(isnan(want[i]) ? isnan(got[i])
                                       : memcmp(&want[i], &got[i], 8) == 0);
                REQUIRE(isnan(want32[i])
                            ? isnan(got32[i])
                            : memcmp(&want32[i], &got32[i], 4) == 0);
            }
        }
    }
}

/* Folds straight from memory give what those of I64 tiles give. */
TEST(tile_functions_narrow_folds)
{
    static const uint8_t dtypes[] = {AIR_I8, AIR_U8, AIR_I16, AIR_I32};
    static const uint8_t reduces[] = {AIR_REDUCE_SUM, AIR_REDUCE_MAX,
                                      AIR_REDUCE_MIN};
    const tile_set *set = tile_set_find("avx512");
    uint32_t bits[POINTS];
    for (uint32_t i = 0; i < POINTS; i++)
        bits[i] = (i + 1) * 2654435761u;
    for (int k = 0; k < 12; k++) {
        const int dtype = dtypes[k / 3], reduce = reduces[k % 3];
        const tile_narrow fn = (*set->narrow)[reduce][dtype];
        int64_t x[POINTS], parts[TILE_PARTS], want, got[POINTS], start;
        (*set->loads)[AIR_LANE_I64][dtype](x, bits, 1, POINTS - 3);
        start = reduce == AIR_REDUCE_SUM   ? 0
                : reduce == AIR_REDUCE_MAX ? INT64_MIN
                                           : INT64_MAX;
        for (int i = 0; i < TILE_PARTS; i++)
            parts[i] = start;
        (*set->folds)[reduce][AIR_LANE_I64](parts, x, POINTS - 3);
        (*set->trees)[reduce][AIR_LANE_I64](parts, &start, &want);
        got[0] = start;
        fn.fold(got, bits, POINTS - 3);
        CHECK_INT(got[0], want);
        for (int i = 0; i < POINTS; i++)
            got[i] = 7;
        fn.each(got, bits, POINTS - 3);
        for (int i = 0; i < POINTS - 3; i++)
            x[i] = reduce == AIR_REDUCE_SUM   ? 7 + x[i]
                   : reduce == AIR_REDUCE_MAX ? (x[i] > 7 ? x[i] : 7)
                                              : (x[i] < 7 ? x[i] : 7);
        CHECK(memcmp(got, x, (POINTS - 3) * sizeof *x) == 0);
        CHECK_INT(got[POINTS - 1], 7);
    }
}
