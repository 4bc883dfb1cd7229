/* x86_lanes.c: how wide the integer lanes of a phase are. Lanes of w bytes hold
 * values modulo 2^8w, which is all that sums, products and bits need. What has
 * to know the value itself (compares, extremes, shifts to the right,
 * conversions) needs lanes in which each value that it can have fits. */
#include "air.h"
#include "codegen/x86_nodes.h"

static const x86_range anything = {INT64_MIN, INT64_MAX};

static int64_t
smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool
within(x86_range a, x86_range b)
{
    return a.low >= b.low && a.high <= b.high;
}

static x86_range
signed_range(int bytes)
{
    int64_t most = INT64_MAX >> (64 - 8 * bytes);
    return (x86_range){-most - 1, most};
}

static x86_range
range_of_dtype(int dtype)
{
    int bytes = (int)air_dtype_bytes((air_dtype)dtype);
    if (dtype == AIR_BOOL)
        return (x86_range){0, 1};
    return dtype == AIR_U8 ? (x86_range){0, 255} : signed_range(bytes);
}

bool
x86_range_is_signed(x86_range a, x86_range b, int width)
{
    return within(a, signed_range(width)) && within(b, signed_range(width));
}

static bool
is_unsigned(x86_range a, x86_range b, int width)
{
    x86_range all = {0, width == 8 ? INT64_MAX : INT64_MAX >> (63 - 8 * width)};
    return within(a, all) && within(b, all);
}

/* Do lanes hold both values, as signed or as unsigned numbers? */
static bool
is_exact(x86_range a, x86_range b, int width)
{
    return x86_range_is_signed(a, b, width) || is_unsigned(a, b, width);
}

bool
x86_range_fits(x86_range a, int dtype)
{
    return within(a, range_of_dtype(dtype));
}

int
x86_range_is_small(x86_range a)
{
    const int64_t most = INT64_C(1) << 51;
    return within(a, (x86_range){-most, most}) ? X86_SMALL : 0;
}

/* ---- what values a node can have ---- */

static x86_range
range_of_sum(x86_range a, x86_range b)
{
    x86_range r;
    if (__builtin_add_overflow(a.low, b.low, &r.low) ||
        __builtin_add_overflow(a.high, b.high, &r.high))
        return anything;
    return r;
}

static x86_range
range_of_negative(x86_range a)
{
    return a.low == INT64_MIN ? anything : (x86_range){-a.high, -a.low};
}

static x86_range
range_of_size(x86_range a)
{
    return a.low == INT64_MIN ? anything
                              : (x86_range){0, larger(-a.low, a.high)};
}

static x86_range
range_of_product(x86_range a, x86_range b)
{
    int64_t p[4];
    if (__builtin_mul_overflow(a.low, b.low, &p[0]) ||
        __builtin_mul_overflow(a.low, b.high, &p[1]) ||
        __builtin_mul_overflow(a.high, b.low, &p[2]) ||
        __builtin_mul_overflow(a.high, b.high, &p[3]))
        return anything;
    return (x86_range){smaller(smaller(p[0], p[1]), smaller(p[2], p[3])),
                       larger(larger(p[0], p[1]), larger(p[2], p[3]))};
}

/* Towards zero: a quotient is not larger than a, nor a remainder than a and
 * b. */
static x86_range
range_of_division(unsigned op, x86_range a, x86_range b)
{
    int64_t most = range_of_size(a).high, divisor = range_of_size(b).high;
    if (op == AIR_RG_IMOD)
        return (x86_range){a.low < 0 ? -smaller(most, divisor) : 0,
                           smaller(most, divisor)};
    return (x86_range){a.low < 0 || b.low < 0 ? -most : 0, most};
}

/* Of bits that come from either operand. */
static x86_range
range_of_bits(x86_range a, x86_range b)
{
    int64_t most = 0;
    while (most < INT64_MAX && !(within(a, (x86_range){-most - 1, most}) &&
                                 within(b, (x86_range){-most - 1, most})))
        most = 2 * most + 1;
    bool negative = a.low < 0 || b.low < 0;
    return (x86_range){negative ? -most - 1 : 0, most};
}

static x86_range
range_of_and(x86_range a, x86_range b)
{
    if (a.low >= 0 && b.low >= 0)
        return (x86_range){0, smaller(a.high, b.high)};
    if (a.low >= 0 || b.low >= 0)
        return (x86_range){0, a.low >= 0 ? a.high : b.high};
    return range_of_bits(a, b);
}

/* The constant operand of a shift, -1: there is none. */
static int64_t
shift_count(const x86_list *l, const air_rg_node *n)
{
    const air_rg_node *b = &l->source[n->b];
    return b->op == AIR_RG_CONST && b->lane == AIR_LANE_I64 && b->i >= 0 ? b->i
                                                                         : -1;
}

static x86_range
range_of_shift(const x86_list *l, const air_rg_node *n, x86_range a)
{
    int64_t count = shift_count(l, n);
    if (n->op == AIR_RG_ISHL)
        return count < 0 || count > 62
                   ? anything
                   : range_of_product(a, (x86_range){INT64_C(1) << count,
                                                     INT64_C(1) << count});
    if (count < 0) /* towards 0 or -1, no further */
        return (x86_range){smaller(a.low, 0), larger(a.high, -1)};
    count = count > 63 ? 63 : count;
    return (x86_range){a.low >> count, a.high >> count};
}

static x86_range
range_of_conversion(const x86_list *l, const air_rg_node *n, x86_range a)
{
    unsigned from = l->source[n->a].lane;
    if (from == AIR_LANE_B)
        return (x86_range){0, 1};
    return from == AIR_LANE_I64 ? a : anything;
}

static x86_range
range_of(const x86_list *l, const air_rg_node *n)
{
    x86_range a = n->a < 0 ? anything : l->range[n->a];
    x86_range b = n->b < 0 ? a : l->range[n->b];
    x86_range c = n->c < 0 ? a : l->range[n->c];
    switch (n->op) {
    case AIR_RG_CONST: return (x86_range){n->i, n->i};
    case AIR_RG_LOAD: return range_of_dtype(l->rg->bufs[n->buf].dtype);
    case AIR_RG_CVT: return range_of_conversion(l, n, a);
    case AIR_RG_ADD: return range_of_sum(a, b);
    case AIR_RG_SUB: return range_of_sum(a, range_of_negative(b));
    case AIR_RG_MUL: return range_of_product(a, b);
    case AIR_RG_NEG: return range_of_negative(a);
    case AIR_RG_ABS: return range_of_size(a);
    case AIR_RG_MAX:
        return (x86_range){larger(a.low, b.low), larger(a.high, b.high)};
    case AIR_RG_MIN:
        return (x86_range){smaller(a.low, b.low), smaller(a.high, b.high)};
    case AIR_RG_IDIV:
    case AIR_RG_IMOD: return range_of_division(n->op, a, b);
    case AIR_RG_IAND: return range_of_and(a, b);
    case AIR_RG_IOR:
    case AIR_RG_IXOR: return range_of_bits(a, b);
    case AIR_RG_ISHL:
    case AIR_RG_ISHR: return range_of_shift(l, n, a);
    case AIR_RG_SEL:
        return (x86_range){smaller(b.low, c.low), larger(b.high, c.high)};
    case AIR_RG_WRAP:
        b = range_of_dtype((int)l->source[n->b].i);
        return within(a, b) ? a : b;
    default: return anything;
    }
}

/* ---- which lanes are wide enough ---- */

static bool
conversion_fits(const x86_list *l, const air_rg_node *n, int width)
{
    x86_range a = l->range[n->a];
    if (l->source[n->a].lane != AIR_LANE_I64)
        return true;
    if (n->lane == AIR_LANE_F32)
        return width == 8 || x86_range_is_signed(a, a, 4);
    return n->lane == AIR_LANE_I64 || is_exact(a, a, width);
}

bool
x86_range_is_float(x86_range a, x86_range b, int width)
{
    int64_t most = INT64_C(1) << (width == 8 ? 53 : 24);
    x86_range exact = {-most, most};
    return within(a, exact) && within(b, exact);
}

static bool
memory_fits(const x86_list *l, const air_rg_node *n, int width)
{
    return (int)air_dtype_bytes((air_dtype)l->rg->bufs[n->buf].dtype) <= width;
}

static bool
integer_fits(const x86_list *l, const air_rg_node *n, int width)
{
    x86_range a = n->a < 0 ? anything : l->range[n->a];
    x86_range b = n->b < 0 ? a : l->range[n->b];
    switch (n->op) {
    case AIR_RG_LOAD:
    case AIR_RG_STORE: return memory_fits(l, n, width);
    case AIR_RG_ABS: return x86_range_is_signed(a, a, width);
    case AIR_RG_IDIV:
    case AIR_RG_IMOD:
        return width == 8 || (width == 4 && x86_range_is_float(a, b, width));
    case AIR_RG_MAX:
    case AIR_RG_MIN: return is_exact(a, b, width);
    case AIR_RG_ISHL:
        return width == 8 || shift_count(l, n) >= 0 ||
               (width == 4 && is_exact(b, b, width));
    case AIR_RG_ISHR:
        return width == 8 ||
               (shift_count(l, n) >= 0 && is_exact(a, a, width)) ||
               (width == 4 && is_exact(b, b, width) &&
                x86_range_is_signed(a, a, width));
    case AIR_RG_WRAP:
        return l->source[n->b].i != AIR_BOOL || is_exact(a, a, width);
    case AIR_RG_CVT: return conversion_fits(l, n, width);
    case AIR_RG_CONST:
    case AIR_RG_ADD:
    case AIR_RG_SUB:
    case AIR_RG_MUL:
    case AIR_RG_NEG:
    case AIR_RG_IAND:
    case AIR_RG_IOR:
    case AIR_RG_IXOR:
    case AIR_RG_SEL: return true;
    case AIR_RG_REDUCE:
    case AIR_RG_SCALAR:
    case AIR_RG_SET: return width == 8;
    default: return false;
    }
}

static bool
is_f64(const x86_list *l, const air_rg_node *n)
{
    return n->lane == AIR_LANE_F64 ||
           (n->a >= 0 && l->source[n->a].lane == AIR_LANE_F64);
}

static bool
node_fits(const x86_list *l, const air_rg_node *n, int width)
{
    if (is_f64(l, n))
        return width == 8;
    if (n->lane == AIR_LANE_I64)
        return integer_fits(l, n, width);
    if (n->op == AIR_RG_CVT)
        return (width >= 4 || n->lane == AIR_LANE_B) &&
               conversion_fits(l, n, width);
    if (n->lane == AIR_LANE_B && n->a >= 0 &&
        l->source[n->a].lane == AIR_LANE_I64)
        return n->op == AIR_RG_STORE ||
               is_exact(l->range[n->a], l->range[n->b], width);
    if (width >= 4)
        return true;
    if (n->op == AIR_RG_LOAD || n->op == AIR_RG_STORE)
        return n->lane == AIR_LANE_B && memory_fits(l, n, width);
    if (n->op == AIR_RG_REDUCE)
        return n->lane == AIR_LANE_B && width == 1;
    return n->lane == AIR_LANE_B && n->op != AIR_RG_SCALAR &&
           n->op != AIR_RG_SET;
}

int
x86_lanes_find(x86_list *l)
{
    for (int i = 0; i < l->nsource; i++)
        l->range[i] = l->source[i].lane == AIR_LANE_I64
                          ? range_of(l, &l->source[i])
                          : anything;
    for (int width = 1; width <= 8; width *= 2) {
        int i = 0;
        while (i < l->nsource && node_fits(l, &l->source[i], width))
            i++;
        if (i == l->nsource)
            return width;
    }
    return 0;
}
