/* Halves of the reference, all of them, against what their bits mean. */
#include "driver/ref/element.h"
#include "test.h"

enum { INFINITE = 0x7c00, NOT_A_NUMBER = 0x7e00 };

/* Of bits below INFINITE: 10 of the fraction, 5 of the exponent; IEEE 754. */
static float
value_of(unsigned bits)
{
    const int exponent = (int)(bits >> 10);
    const unsigned fraction = bits & 0x3ff;

    return exponent == 0 ? ldexpf((float)fraction, -24)
                         : ldexpf((float)(1024 + fraction), exponent - 25);
}

TEST(element_every_half_is_widened_and_narrowed)
{
    uint16_t half[INFINITE], narrow[INFINITE];
    float wide[INFINITE];

    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (unsigned i = 0; i < INFINITE; i++)
            half[i] = (uint16_t)(sign | i);
        CHECK(ref_widen(AIR_F16, wide, half, INFINITE));
        for (unsigned i = 0; i < INFINITE; i++)
            if (!CHECK(ref_to_bits(wide[i]) ==
                       ref_to_bits(sign ? -value_of(i) : value_of(i))))
                break;
        CHECK(ref_narrow(AIR_F16, narrow, wide, INFINITE));
        CHECK(memcmp(half, narrow, sizeof half) == 0);
    }
}

/* Halfway between two neighbours the even one is taken, else the nearer. */
TEST(element_floats_between_halves_are_rounded)
{
    for (unsigned i = 0; i + 1 < INFINITE; i++) {
        const float low = value_of(i), high = value_of(i + 1);
        const float middle = low + (high - low) / 2;
        if (!CHECK(ref_to_f16(middle) == i + (i & 1)) ||
            !CHECK(ref_to_f16(nextafterf(middle, low)) == i) ||
            !CHECK(ref_to_f16(nextafterf(middle, high)) == i + 1) ||
            !CHECK(ref_to_f16(-middle) == (0x8000 | (i + (i & 1)))))
            break;
    }
}

TEST(element_the_ends_of_halves)
{
    CHECK(ref_to_f16(nextafterf(65520.0f, 0)) == INFINITE - 1);
    CHECK(ref_to_f16(65520.0f) == INFINITE);
    CHECK(ref_to_f16(-INFINITY) == (0x8000 | INFINITE));
    CHECK(ref_to_f16(NAN) == NOT_A_NUMBER);
    CHECK(ref_to_f16(0x1p-149f) == 0);
    CHECK(isinf(ref_of_f16(INFINITE)) && isnan(ref_of_f16(NOT_A_NUMBER)));
    CHECK(!ref_widen(AIR_F64, NULL, NULL, 0));
    CHECK(!ref_narrow(AIR_I16, NULL, NULL, 0));
}
