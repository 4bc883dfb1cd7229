/* body_float8.c: numbers of eight bits, as torch stores them. The engine has
 * no such dtype: they are bytes, and these bodies turn bytes into numbers and
 * back. All steps are exact but the one rounding, which is that of c10's
 * conversions (to nearest, ties to even), special values included. */
#include "ir/body_math.h"

#include <math.h>

typedef struct {
    int mantissa;  /* bits */
    int bias;      /* of exponents */
    int most;      /* code of the largest number; sign aside */
    int over;      /* what is beyond becomes this code */
    int nan;       /* code of a NaN */
    bool finite;   /* the codes beyond `most` are NaN all */
    bool one_zero; /* zero and NaN have no sign; NaN has the code of -0 */
} format;

static const format formats[] = {
    [BODY_E4M3FN] = {3, 7, 126, 126, 127, true, false},
    [BODY_E4M3FN_NAN] = {3, 7, 126, 127, 127, true, false},
    [BODY_E5M2] = {2, 15, 123, 124, 127, false, false},
    [BODY_E4M3FNUZ] = {3, 8, 127, 128, 128, true, true},
    [BODY_E5M2FNUZ] = {2, 16, 127, 128, 128, true, true},
};

T
body_float8_value(ir_record *rec, T a, body_float8 as)
{
    const format *f = &formats[as];
    const double one = 1 << f->mantissa;
    a = MIN(MAX(a, K(0)), K(255)); /* SCALEN is for normal numbers */
    T minus = LE(K(128), a);
    T code = SEL(minus, SUB(a, K(128)), a);
    T exponent = FLOOR(MUL(code, K(1 / one)));
    T fraction = FMA(exponent, K(-one), code);
    T low = MUL(fraction, K(ldexp(1, 1 - f->bias - f->mantissa)));
    T high =
        SCALEN(ADD(fraction, K(one)), SUB(exponent, K(f->bias + f->mantissa)));
    T size = SEL(EQ(exponent, K(0)), low, high);
    if (!f->finite)
        size = SEL(EQ(code, K(f->over)), K(__builtin_inff()), size);
    if (f->one_zero)
        return SEL(EQ(a, K(f->nan)), K(__builtin_nanf("")),
                   SEL(minus, NEG(size), size));
    T last = K(f->finite ? f->most : f->over);
    size = SEL(LT(last, code), K(__builtin_nanf("")), size);
    return SEL(minus, NEG(size), size);
}

T
body_float8_code(ir_record *rec, T a, body_float8 as)
{
    const format *f = &formats[as];
    const double one = 1 << f->mantissa;
    const int least = 1 - f->bias;
    T size = ABS(a);
    /* NaN takes the first bound, infinity the second. */
    T near = MIN(MAX(size, K(ldexp(1, least))), K(0x1p20f));
    T exponent = LOGB(near);
    T steps = RINT(SCALEF(size, SUB(K(f->mantissa), exponent)));
    T code = FMA(SUB(exponent, K(least)), K(one), steps);
    code = SEL(LE(code, K(f->most)), code, K(f->over));
    code = SEL(NAN_OF(a), K(f->nan), code);
    T minus = LT(SIGN(K(1), a), K(0));
    if (f->one_zero)
        minus = AND(minus, AND(NE(code, K(0)), NE(code, K(f->nan))));
    return SEL(minus, ADD(code, K(128)), code);
}
