/* x86_long.c: what AVX2 has no instruction for in lanes of 64 bits, made of
 * those that it has. AVX-512 has all of them. */
#include <string.h>

#include "codegen/x86_nodes.h"

enum { HALF = 32, SIGN = 63 }; /* bits */
enum { DOWN = 9, CUT = 11 };   /* modes of X86_ROUND */

static const double units = 0x1p52;    /* has whole numbers as its low bits */
static const double centre = 0x1.8p52; /* the same, of either sign */

static uint64_t
bits_of(double d)
{
    uint64_t k;
    memcpy(&k, &d, 8);
    return k;
}

static int
number(x86_list *l, double d)
{
    return x86_long(l, bits_of(d));
}

/* All ones where a is below zero. */
static int
negative(x86_list *l, int a)
{
    return x86_op2(l, X86_CMPI_GT, x86_long(l, 0), a);
}

static int
choose(x86_list *l, int a, int b, int c)
{
    return x86_op3(l, X86_SEL, 0, a, b, c);
}

/* ---- integers ---- */

static bool
has_upper_half(const x86_list *l, int a)
{
    return l->nodes[a].op != X86_CONST || l->nodes[a].k >> HALF != 0;
}

static int
upper_half(x86_list *l, int a)
{
    return l->nodes[a].op == X86_CONST ? x86_long(l, l->nodes[a].k >> HALF)
                                       : x86_op1(l, X86_SHR, HALF, a);
}

/* By halves; what is above 64 bits is not needed. */
static int
multiply(x86_list *l, int imm, int a, int b)
{
    if (imm & X86_SMALL)
        return x86_op2(l, X86_MULS32, a, b);
    int low = x86_op2(l, X86_MULU32, a, b), across = -1;
    const int sides[2][2] = {{a, b}, {b, a}};
    for (int i = 0; i < 2; i++) {
        if (!has_upper_half(l, sides[i][0]))
            continue;
        int high = upper_half(l, sides[i][0]);
        int part = x86_op2(l, X86_MULU32, high, sides[i][1]);
        across = across < 0 ? part : x86_op2(l, X86_ADDI, across, part);
    }
    return across < 0
               ? low
               : x86_op2(l, X86_ADDI, low, x86_op1(l, X86_SHL, HALF, across));
}

static int
smaller(x86_list *l, int imm, int a, int b)
{
    (void)imm;
    return choose(l, x86_op2(l, X86_CMPI_GT, b, a), a, b);
}

static int
larger(x86_list *l, int imm, int a, int b)
{
    (void)imm;
    return choose(l, x86_op2(l, X86_CMPI_GT, a, b), a, b);
}

static int
size_of(x86_list *l, int imm, int a, int b)
{
    (void)imm, (void)b;
    int sign = negative(l, a);
    return x86_op2(l, X86_SUBI, x86_op2(l, X86_XOR, a, sign), sign);
}

/* Zeros come in from above: of what is negative, turned round. */
static int
shift_right(x86_list *l, int imm, int a, int b)
{
    int sign = negative(l, a);
    if (b < 0 && imm >= SIGN)
        return sign;
    int v = x86_op2(l, X86_XOR, a, sign);
    v = b < 0 ? x86_op1(l, X86_SHR, imm, v) : x86_op2(l, X86_SHRV, v, b);
    return x86_op2(l, X86_XOR, v, sign);
}

/* ---- conversions ---- */

/* Both halves as the low bits of floats, whose sum is rounded once. */
static int
to_float(x86_list *l, int imm, int a, int b)
{
    (void)b;
    if (imm & X86_SMALL)
        return x86_op2(l, X86_SUB,
                       x86_op2(l, X86_ADDI, a, x86_long(l, bits_of(centre))),
                       number(l, centre));
    int low =
        x86_op2(l, X86_OR, x86_op2(l, X86_AND, a, x86_long(l, UINT32_MAX)),
                number(l, units));
    /* the sign's bit turned: 2^31 more; then as multiples of 2^32 */
    int high = x86_op2(l, X86_XOR, x86_op1(l, X86_SHR, HALF, a),
                       x86_long(l, bits_of(0x1p84) | UINT64_C(1) << 31));
    high = x86_op2(l, X86_SUB, high, number(l, 0x1p84 + 0x1p63 + units));
    return x86_op2(l, X86_ADD, high, low);
}

/* Rounded to f32 once: of what an f64 does not hold exactly, 11 bits give way
 * to one that says whether any of them was set. */
static int
to_single(x86_list *l, int imm, int a, int b)
{
    const uint64_t half = UINT64_C(1) << 53, least = UINT64_C(1) << SIGN;
    if (!(imm & X86_SMALL)) {
        int moved = x86_op2(l, X86_ADDI, a, x86_long(l, half - least));
        int beyond =
            x86_op2(l, X86_CMPI_GT, moved, x86_long(l, 2 * half - 1 - least));
        int rest = x86_op2(l, X86_AND, beyond, x86_long(l, (1 << 11) - 1));
        int any = x86_op2(l, X86_ADDI, x86_op2(l, X86_AND, a, rest), rest);
        a = x86_op2(l, X86_ANDN, rest, x86_op2(l, X86_OR, any, a));
    }
    return x86_op1(l, X86_TOSINGLE, 0, to_float(l, imm, a, b));
}

/* Halves that a float holds exactly become the low bits of one. */
static int
to_integer(x86_list *l, int imm, int a, int b)
{
    (void)b;
    int t = x86_op1(l, X86_ROUND, CUT, a);
    if (imm & X86_SMALL)
        return x86_op2(l, X86_SUBI, x86_op2(l, X86_ADD, t, number(l, centre)),
                       x86_long(l, bits_of(centre)));
    int high =
        x86_op1(l, X86_ROUND, DOWN, x86_op2(l, X86_MUL, t, number(l, 0x1p-32)));
    int low = x86_op3(l, X86_FMA, 0, high, number(l, -0x1p32), t);
    int size = x86_op2(l, X86_AND, t, x86_long(l, (uint64_t)INT64_MAX));
    int fits = x86_op3(l, X86_CMP, X86_LT_OQ, size, number(l, 0x1p63), -1);
    if (imm & X86_LOW)
        return x86_op2(l, X86_AND, fits,
                       x86_op2(l, X86_ADD, low, number(l, centre)));
    high =
        x86_op1(l, X86_SHL, HALF, x86_op2(l, X86_ADD, high, number(l, centre)));
    low = x86_op2(l, X86_XOR, x86_op2(l, X86_ADD, low, number(l, units)),
                  number(l, units));
    return choose(l, fits, x86_op2(l, X86_OR, high, low),
                  x86_long(l, UINT64_C(1) << SIGN));
}

x86_sequence
x86_long_sequence(int op)
{
    static const x86_sequence made[X86_OP_COUNT] = {
        [X86_MULI] = multiply,        [X86_MINS] = smaller,
        [X86_MAXS] = larger,          [X86_ABSI] = size_of,
        [X86_SAR] = shift_right,      [X86_SARV] = shift_right,
        [X86_TOINT] = to_integer,     [X86_TOFLOAT] = to_float,
        [X86_INTTOSINGLE] = to_single};
    return made[op];
}
