/* x86_integers.c: instruction nodes of integers, in lanes of 1, 2, 4 or 8 bytes
 * (x86_lanes.c). There are no shifts and products of bytes: those go by words,
 * whose other half is masked off. */
#include "air.h"
#include "codegen/x86_nodes.h"

enum { BELOW = 1, AT_MOST = 2, DIFFERENT = 4 }; /* predicates of AVX-512 */

/* The same number in each lane. */
static int
lanes(x86_list *l, int64_t value)
{
    uint32_t k = (uint32_t)value;
    if (l->width == 8)
        return x86_long(l, (uint64_t)value);
    if (l->width == 2)
        k = (k & 0xffff) * 0x10001;
    if (l->width == 1)
        k = (k & 0xff) * 0x1010101;
    return x86_bits(l, k);
}

static int
invert(x86_list *l, int a)
{
    return x86_op2(l, X86_XOR, a, x86_bits(l, UINT32_MAX));
}

/* ---- products and shifts ---- */

static int
multiply(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b];
    bool small = x86_range_is_signed(l->range[n->a], l->range[n->b], 4);
    if (l->width > 1)
        return x86_op3(l, X86_MULI, small ? X86_SMALL : 0, a, b, -1);
    int even = x86_op2(l, X86_MULI, a, b);
    int odd = x86_op2(l, X86_MULI, x86_op1(l, X86_SHR, 8, a),
                      x86_op2(l, X86_AND, b, x86_bits(l, 0xff00ff00)));
    even = x86_op2(l, X86_AND, even, x86_bits(l, 0x00ff00ff));
    return x86_op2(l, X86_OR, even, odd);
}

static int
shift_left(x86_list *l, int a, int64_t count)
{
    if (count >= 8 * l->width)
        return lanes(l, 0);
    int v = x86_op1(l, X86_SHL, (int)count, a);
    return l->width > 1
               ? v
               : x86_op2(l, X86_AND, v, lanes(l, INT64_C(0xff) << count));
}

static int
shift_right_unsigned(x86_list *l, int a, int64_t count)
{
    if (count >= 8 * l->width)
        return lanes(l, 0);
    int v = x86_op1(l, X86_SHR, (int)count, a);
    return l->width > 1 ? v : x86_op2(l, X86_AND, v, lanes(l, 0xff >> count));
}

static int
shift_right_signed(x86_list *l, int a, int64_t count)
{
    if (count > 8 * l->width - 1)
        count = 8 * l->width - 1;
    if (l->width > 1)
        return x86_op1(l, X86_SAR, (int)count, a);
    int sign = lanes(l, 0x80 >> count), v = shift_right_unsigned(l, a, count);
    return x86_op2(l, X86_SUBI, x86_op2(l, X86_XOR, v, sign), sign);
}

static bool
is_constant(const x86_list *l, int node)
{
    return l->source[node].op == AIR_RG_CONST && l->source[node].i >= 0;
}

static int
shift_right(x86_list *l, const air_rg_node *n, int64_t count)
{
    x86_range a = l->range[n->a];
    int v = l->value[n->a];
    return x86_range_is_signed(a, a, l->width)
               ? shift_right_signed(l, v, count)
               : shift_right_unsigned(l, v, count);
}

/* ---- truth ---- */

int
x86_is_set(x86_list *l, int a)
{
    int zero = x86_bits(l, 0);
    if (l->evex)
        return x86_op3(l, X86_CMPS, DIFFERENT, a, zero, -1);
    return invert(l, x86_op2(l, X86_CMPI_EQ, a, zero));
}

static int
is_negative(x86_list *l, int a)
{
    int zero = lanes(l, 0);
    return l->evex ? x86_op3(l, X86_CMPS, BELOW, a, zero, -1)
                   : x86_op2(l, X86_CMPI_GT, zero, a);
}

static int
compare_avx512(x86_list *l, unsigned op, bool is_signed, int a, int b)
{
    int predicate = op == AIR_RG_LT   ? BELOW
                    : op == AIR_RG_LE ? AT_MOST
                    : op == AIR_RG_EQ ? 0
                                      : DIFFERENT;
    return x86_op3(l, is_signed ? X86_CMPS : X86_CMPU, predicate, a, b, -1);
}

static int
at_most_unsigned(x86_list *l, int a, int b)
{
    return x86_op2(l, X86_CMPI_EQ, x86_op2(l, X86_MINU, a, b), a);
}

int
x86_compare_integers(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b];
    bool is_signed =
        x86_range_is_signed(l->range[n->a], l->range[n->b], l->width);
    if (l->evex)
        return compare_avx512(l, n->op, is_signed, a, b);
    switch (n->op) {
    case AIR_RG_LT:
        return is_signed ? x86_op2(l, X86_CMPI_GT, b, a)
                         : invert(l, at_most_unsigned(l, b, a));
    case AIR_RG_LE:
        return is_signed ? invert(l, x86_op2(l, X86_CMPI_GT, a, b))
                         : at_most_unsigned(l, a, b);
    case AIR_RG_EQ: return x86_op2(l, X86_CMPI_EQ, a, b);
    default: return invert(l, x86_op2(l, X86_CMPI_EQ, a, b));
    }
}

/* ---- division ---- */

/* By floats, cut off: what the integers give where a float holds both, as no
 * quotient is so near below a whole number that it is rounded to it. */
static int
divide_floats(x86_list *l, int a, int b, int small, int small_quotient)
{
    int q = x86_op2(l, X86_DIV, x86_op1(l, X86_TOFLOAT, small, a),
                    x86_op1(l, X86_TOFLOAT, small, b));
    return x86_op1(l, X86_TOINT, small_quotient, q);
}

typedef struct {
    int quotient, rest;
} division;

static void
take_times(x86_list *l, division *d, int times, int b)
{
    d->quotient = x86_op2(l, X86_ADDI, d->quotient, times);
    d->rest = x86_op2(l, X86_SUBI, d->rest, x86_op2(l, X86_MULI, times, b));
}

/* Of any 64 bits: floats find the first digits of the quotient, then those that
 * are missing; where that was rounded up, it is one too large. */
static division
divide_long(x86_list *l, int a, int b)
{
    division d = {lanes(l, 0), a};
    take_times(l, &d, divide_floats(l, a, b, 0, 0), b);
    take_times(l, &d, divide_floats(l, d.rest, b, 0, X86_SMALL), b);
    int sign = x86_op1(l, X86_SAR, 63, x86_op2(l, X86_XOR, a, b));
    int unit = x86_op2(l, X86_OR, sign, lanes(l, 1));
    int back = x86_op2(l, X86_SUBI, x86_op2(l, X86_XOR, b, sign), sign);
    int other = is_negative(l, x86_op2(l, X86_XOR, d.rest, a));
    int beyond = x86_op2(l, X86_AND, other, x86_is_set(l, d.rest));
    d.quotient =
        x86_op2(l, X86_SUBI, d.quotient, x86_op2(l, X86_AND, beyond, unit));
    d.rest = x86_op2(l, X86_ADDI, d.rest, x86_op2(l, X86_AND, beyond, back));
    return d;
}

/* The quotient or the rest; 0 where the divisor is, which is an error. */
static int
divide(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b];
    const x86_range of = l->range[n->b];
    bool rest = n->op == AIR_RG_IMOD;
    division d;
    if (of.low <= 0 && of.high >= 0)
        x86_raise(l, b);
    if (x86_range_is_float(l->range[n->a], l->range[n->b], l->width)) {
        int small = x86_range_is_small(l->range[n->a]) &
                    x86_range_is_small(l->range[n->b]);
        d.quotient = divide_floats(l, a, b, small, small);
        if (rest)
            d.rest =
                x86_op2(l, X86_SUBI, a, x86_op2(l, X86_MULI, d.quotient, b));
    } else {
        d = divide_long(l, a, b);
    }
    return x86_op2(l, X86_AND, rest ? d.rest : d.quotient, x86_is_set(l, b));
}

/* ---- conversions ---- */

static int
wrap(x86_list *l, const air_rg_node *n)
{
    int dtype = (int)l->source[n->b].i, a = l->value[n->a];
    int spare = 8 * (l->width - (int)air_dtype_bytes((air_dtype)dtype));
    if (x86_range_fits(l->range[n->a], dtype))
        return a;
    if (dtype == AIR_BOOL)
        return x86_op2(l, X86_AND, x86_is_set(l, a), lanes(l, 1));
    if (spare <= 0)
        return a;
    if (dtype == AIR_U8)
        return x86_op2(l, X86_AND, a, lanes(l, 0xff));
    return x86_op1(l, X86_SAR, spare, x86_op1(l, X86_SHL, spare, a));
}

/* The low 32 bits of a float that has become an integer of 64: of what is left
 * of it when multiples of 2^32 are taken away, which is exact, as is what
 * converting 2^31 gives. Where there is no such integer they are zero. */
static int
from_float(x86_list *l, int a)
{
    const uint32_t small = 0x2f800000, less = 0xcf800000; /* 2^-32, -2^32 */
    int times =
        x86_op1(l, X86_ROUND, 8, x86_op2(l, X86_MUL, a, x86_bits(l, small)));
    int rest = x86_op3(l, X86_FMA, 0, times, x86_bits(l, less), a);
    int known = x86_op3(l, X86_CMP, X86_EQ_OQ, rest, rest, -1);
    return x86_op3(l, X86_SEL, 0, known, x86_op1(l, X86_TOINT, 0, rest),
                   x86_bits(l, 0));
}

static int
convert(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a];
    switch (l->source[n->a].lane) {
    case AIR_LANE_B: return x86_op2(l, X86_AND, a, lanes(l, 1));
    case AIR_LANE_I64: return a;
    default:
        return l->width == 8 ? x86_op1(l, X86_TOINT, 0, a) : from_float(l, a);
    }
}

int
x86_low_bits(x86_list *l, int node, int dtype)
{
    const air_rg_node *n = &l->source[node];
    const size_t bytes = air_dtype_bytes((air_dtype)dtype);
    while (n->op == AIR_RG_WRAP && l->source[n->b].i != AIR_BOOL &&
           air_dtype_bytes((air_dtype)l->source[n->b].i) >= bytes) {
        node = n->a;
        n = &l->source[node];
    }
    const unsigned from = n->op == AIR_RG_CVT ? l->source[n->a].lane : n->lane;
    if (l->width < 8 || (from != AIR_LANE_F32 && from != AIR_LANE_F64))
        return l->value[node];
    return x86_op1(l, X86_TOINT, X86_LOW, l->value[n->a]);
}

/* What a store of fewer bytes than a lane has takes: AVX2 packs with
 * saturation. */
int
x86_narrow_integer(x86_list *l, int a, int dtype)
{
    int bytes = (int)air_dtype_bytes((air_dtype)dtype);
    if (l->evex || bytes >= l->width || bytes == 4 ||
        x86_is_single(l->rg, l->phase))
        return a;
    return x86_op2(l, X86_AND, a, lanes(l, bytes == 1 ? 0xff : 0xffff));
}

int
x86_integer(x86_list *l, const air_rg_node *n)
{
    int a = n->a < 0 ? 0 : l->value[n->a], b = n->b < 0 ? 0 : l->value[n->b];
    bool is_signed = n->b >= 0 && x86_range_is_signed(l->range[n->a],
                                                      l->range[n->b], l->width);
    switch (n->op) {
    case AIR_RG_CONST: return lanes(l, n->i);
    case AIR_RG_ADD: return x86_op2(l, X86_ADDI, a, b);
    case AIR_RG_SUB: return x86_op2(l, X86_SUBI, a, b);
    case AIR_RG_MUL: return multiply(l, n);
    case AIR_RG_IDIV:
    case AIR_RG_IMOD: return divide(l, n);
    case AIR_RG_NEG: return x86_op2(l, X86_SUBI, lanes(l, 0), a);
    case AIR_RG_ABS: return x86_op1(l, X86_ABSI, 0, a);
    case AIR_RG_MAX: return x86_op2(l, is_signed ? X86_MAXS : X86_MAXU, a, b);
    case AIR_RG_MIN: return x86_op2(l, is_signed ? X86_MINS : X86_MINU, a, b);
    case AIR_RG_IAND: return x86_op2(l, X86_AND, a, b);
    case AIR_RG_IOR: return x86_op2(l, X86_OR, a, b);
    case AIR_RG_IXOR: return x86_op2(l, X86_XOR, a, b);
    case AIR_RG_ISHL:
        return is_constant(l, n->b) ? shift_left(l, a, l->source[n->b].i)
                                    : x86_op2(l, X86_SHLV, a, b);
    case AIR_RG_ISHR:
        return is_constant(l, n->b) ? shift_right(l, n, l->source[n->b].i)
                                    : x86_op2(l, X86_SARV, a, b);
    case AIR_RG_WRAP: return wrap(l, n);
    case AIR_RG_CVT: return convert(l, n);
    default: return x86_refuse(l, "an index");
    }
}
