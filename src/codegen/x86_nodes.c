/* x86_nodes.c: phases of a region become instruction nodes. */
#include "codegen/x86_nodes.h"

#include <string.h>

#include "ir/ir.h"

/* ---- the list ---- */

static uint32_t
hash_node(x86_node n)
{
    uint32_t k = (uint32_t)(n.k ^ n.k >> 32);
    uint32_t h = n.op * 0x9e3779b1u ^ n.imm * 0x85ebca6bu ^ k * 0xc2b2ae35u;
    h ^= (uint32_t)n.a * 0x27d4eb2fu ^ (uint32_t)n.b * 0x165667b1u ^
         (uint32_t)n.c * 0x9e3779b9u;
    return h ^ h >> 15;
}

static int
put(x86_list *l, x86_node n)
{
    uint32_t mask = X86_MAX_NODES * 2 - 1, at = hash_node(n) & mask;
    bool effect = x86_is_effect(&n);
    while (l->bucket[at] != 0 && !effect) {
        const x86_node *o = &l->nodes[l->bucket[at] - 1];
        if (o->op == n.op && o->imm == n.imm && o->k == n.k && o->a == n.a &&
            o->b == n.b && o->c == n.c)
            return l->bucket[at] - 1;
        at = (at + 1) & mask;
    }
    if (l->count == X86_MAX_NODES) {
        l->reason = "too many instructions";
        return 0;
    }
    if (!effect)
        l->bucket[at] = (uint16_t)(l->count + 1);
    l->nodes[l->count] = n;
    return l->count++;
}

int
x86_op3(x86_list *l, x86_op op, int imm, int a, int b, int c)
{
    x86_sequence made =
        l->width == 8 && !l->evex ? x86_long_sequence((int)op) : NULL;
    if (made != NULL)
        return made(l, imm, a, b);
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, (int16_t)a, (int16_t)b,
                             (int16_t)c, 0});
}

int
x86_op2(x86_list *l, x86_op op, int a, int b)
{
    return x86_op3(l, op, 0, a, b, -1);
}

int
x86_op1(x86_list *l, x86_op op, int imm, int a)
{
    return x86_op3(l, op, imm, a, -1, -1);
}

static int
leaf(x86_list *l, x86_op op, int imm, uint64_t k)
{
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, -1, -1, -1, k});
}

static int
effect(x86_list *l, x86_op op, int imm, uint32_t k, int a)
{
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, (int16_t)a, -1, -1, k});
}

void
x86_raise(x86_list *l, int divisor)
{
    for (int i = 0; i < l->count; i++)
        if (l->nodes[i].op == X86_RAISE && l->nodes[i].a == divisor)
            return;
    effect(l, X86_RAISE, 0, 0, divisor);
}

int
x86_long(x86_list *l, uint64_t k)
{
    return leaf(l, X86_CONST, 0, k);
}

int
x86_bits(x86_list *l, uint32_t k)
{
    return x86_long(l, l->width == 8 ? (uint64_t)(int64_t)(int32_t)k : k);
}

static int
number_f64(x86_list *l, double d)
{
    uint64_t k;
    memcpy(&k, &d, 8);
    return x86_long(l, k);
}

static int
number(x86_list *l, float f)
{
    uint32_t k;
    memcpy(&k, &f, 4);
    return l->width == 8 ? number_f64(l, f) : x86_bits(l, k);
}

int
x86_refuse(x86_list *l, const char *reason)
{
    if (l->reason == NULL)
        l->reason = reason;
    return 0;
}

/* ---- primitives of several instructions ---- */

static int
scalef(x86_list *l, int a, int b)
{
    if (l->evex)
        return x86_op2(l, X86_SCALEF, a, b);
    int n = x86_op1(l, X86_TOINT, 0, b);
    int half = x86_op1(l, X86_SAR, 1, n);
    int rest = x86_op2(l, X86_SUBI, n, half);
    int bias = x86_bits(l, 127);
    int one = x86_op1(l, X86_SHL, 23, x86_op2(l, X86_ADDI, half, bias));
    int two = x86_op1(l, X86_SHL, 23, x86_op2(l, X86_ADDI, rest, bias));
    return x86_op2(l, X86_MUL, x86_op2(l, X86_MUL, a, one), two);
}

static int
scalen(x86_list *l, int a, int b)
{
    if (l->evex)
        return x86_op2(l, X86_SCALEF, a, b);
    return x86_op2(l, X86_ADDI, a,
                   x86_op1(l, X86_SHL, 23, x86_op1(l, X86_TOINT, 0, b)));
}

/* a, or a * 2^24 where it is subnormal (or not above zero) */
static int
normal(x86_list *l, int a, int *small)
{
    *small = x86_op3(l, X86_CMP, X86_LT_OQ, a, number(l, 0x1p-126f), -1);
    int scaled = x86_op2(l, X86_MUL, a, number(l, 0x1p24f));
    return x86_op3(l, X86_SEL, 0, *small, scaled, a);
}

static int
logb_of(x86_list *l, int a)
{
    int small, t = normal(l, a, &small);
    int e = x86_op2(l, X86_AND, x86_op1(l, X86_SHR, 23, t), x86_bits(l, 255));
    int bias = x86_op3(l, X86_SEL, 0, small, number(l, 151), number(l, 127));
    return x86_op2(l, X86_SUB, x86_op1(l, X86_TOFLOAT, 0, e), bias);
}

static int
mant_of(x86_list *l, int a)
{
    int small, t = normal(l, a, &small);
    return x86_op2(l, X86_OR, x86_op2(l, X86_AND, t, x86_bits(l, 0x7fffff)),
                   x86_bits(l, 0x3f800000));
}

/* Rounded to bf16 in the upper half, the lower half being garbage. */
static int
round_bf16(x86_list *l, int a)
{
    int odd = x86_op2(l, X86_AND, x86_op1(l, X86_SHR, 16, a), x86_bits(l, 1));
    int up = x86_op2(l, X86_ADDI, odd, x86_bits(l, 0x7fff));
    int sum = x86_op2(l, X86_ADDI, up, a);
    int nan = x86_op3(l, X86_CMP, X86_UNORD, a, a, -1);
    return x86_op3(l, X86_SEL, 0, nan, x86_bits(l, 0x7fc00000), sum);
}

static int not(x86_list * l, int a)
{
    return x86_op2(l, X86_XOR, a, x86_bits(l, UINT32_MAX));
}

/* All bits of a float but its sign. */
static int
magnitude(x86_list *l)
{
    return l->width == 8 ? x86_long(l, (uint64_t)INT64_MAX)
                         : x86_bits(l, 0x7fffffff);
}

static int
sign_bit(x86_list *l)
{
    return l->width == 8 ? x86_long(l, UINT64_C(1) << 63)
                         : x86_bits(l, 0x80000000);
}

static int
sign_of(x86_list *l, int a, int b)
{
    if (l->evex)
        return x86_op3(l, X86_SEL, 0, magnitude(l), a, b);
    return x86_op2(l, X86_OR, x86_op2(l, X86_AND, a, magnitude(l)),
                   x86_op2(l, X86_AND, b, sign_bit(l)));
}

/* ---- loads, stores, conversions ---- */

static bool
is_small_int(int dtype)
{
    return dtype == AIR_I8 || dtype == AIR_U8 || dtype == AIR_I16 ||
           dtype == AIR_I32;
}

static int
truth_of_bool(x86_list *l, int v)
{
    if (l->width == 4 || (l->width == 8 && !l->evex))
        return x86_op2(l, X86_CMPI_GT, v, x86_bits(l, 0));
    if (l->evex)
        return x86_is_set(l, v);
    return x86_op2(l, X86_SUBI, x86_bits(l, 0),
                   x86_op2(l, X86_MINU, v,
                           x86_bits(l, l->width == 1 ? 0x1010101 : 0x10001)));
}

/* Half of a word. */
static int
load_half(x86_list *l, int buf)
{
    const int first = x86_word_of(l->rg, l->words, buf);
    const int word = leaf(l, X86_LOAD, AIR_I32, (uint64_t)first);
    return first == buf ? x86_op1(l, X86_SHL, 16, word)
                        : x86_op2(l, X86_AND, word, x86_bits(l, 0xffff0000));
}

static int
load(x86_list *l, const air_rg_node *n)
{
    int dtype = l->rg->bufs[n->buf].dtype;
    if (l->words >> n->buf & 1)
        return load_half(l, n->buf);
    bool once =
        !x86_is_single(l->rg, l->phase) && x86_is_broadcast(l->rg, n->buf);
    int v = leaf(l, once ? X86_BCAST : X86_LOAD, dtype, (uint64_t)n->buf);
    if (n->lane == AIR_LANE_F32 &&
        (dtype == AIR_F32 || (dtype == AIR_F16 && l->width == 4)))
        return v;
    if ((n->lane == AIR_LANE_F64 && dtype == AIR_F64) ||
        (n->lane == AIR_LANE_I64 && dtype == AIR_I64))
        return v;
    if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16 && l->width == 4)
        return once ? v : x86_op1(l, X86_SHL, 16, v);
    if (n->lane == AIR_LANE_B && dtype == AIR_BOOL)
        return truth_of_bool(l, v);
    if (n->lane == AIR_LANE_I64 && is_small_int(dtype))
        return v;
    return x86_refuse(l, "a load of this dtype");
}

static int
convert(x86_list *l, const air_rg_node *n)
{
    const air_rg_node *from = &l->source[n->a];
    int a = l->value[n->a];
    if (from->lane == n->lane)
        return a;
    bool single = n->lane == AIR_LANE_F32 && l->width == 8;
    if (n->lane == AIR_LANE_B)
        return from->lane == AIR_LANE_I64
                   ? x86_is_set(l, a)
                   : x86_op3(l, X86_CMP, X86_NE_UQ, a, x86_bits(l, 0), -1);
    switch (from->lane) {
    case AIR_LANE_B: return x86_op2(l, X86_AND, a, number(l, 1));
    case AIR_LANE_I64:
        return x86_op1(l, single ? X86_INTTOSINGLE : X86_TOFLOAT,
                       x86_range_is_small(l->range[n->a]), a);
    default: return single ? x86_op1(l, X86_TOSINGLE, 0, a) : a;
    }
}

static bool
stores_as_is(const x86_list *l, unsigned lane, int dtype)
{
    return (lane == AIR_LANE_F32 &&
            (dtype == AIR_F32 || (dtype == AIR_F16 && l->width == 4))) ||
           (lane == AIR_LANE_F64 && dtype == AIR_F64) ||
           (lane == AIR_LANE_I64 && dtype == AIR_I64) ||
           (lane == AIR_LANE_B && dtype == AIR_BOOL);
}

/* Lanes of 64 bits: a store of f32 or f16 rounds to f32 itself. */
static int
unrounded(const x86_list *l, int a)
{
    return l->nodes[a].op == X86_TOSINGLE ? l->nodes[a].a : a;
}

/* a, b: bf16 in the upper half, the lower half being garbage. */
static void
store_word(x86_list *l, int buf, int a, int b)
{
    const int word = x86_op2(l, X86_OR, x86_op1(l, X86_SHR, 16, a),
                             x86_op2(l, X86_AND, b, x86_bits(l, 0xffff0000)));
    effect(l, X86_STORE, AIR_I32, (uint32_t)buf, word);
}

/* Parts of pairs are stored when both are there. */
static void
store_part(x86_list *l, int buf, int a)
{
    l->half[buf] = (int16_t)a;
    for (int b = 0; b < l->rg->nbufs; b++) {
        const int mate = l->half[b] < 0 ? -1 : x86_pair_mate(l->rg, b);
        if (mate < 0 || l->half[mate] < 0)
            continue;
        if (l->words >> b & 1)
            store_word(l, b, l->half[b], l->half[mate]);
        else
            put(l, (x86_node){X86_STORE, AIR_F32, l->half[b], l->half[mate], -1,
                              (uint64_t)b});
        l->half[b] = l->half[mate] = -1;
    }
}

static void
store(x86_list *l, const air_rg_node *n)
{
    int dtype = l->rg->bufs[n->buf].dtype, a = l->value[n->a];
    if (n->lane == AIR_LANE_B && (dtype == AIR_F32 || dtype == AIR_F64))
        a = x86_op2(l, X86_AND, a, number(l, 1));
    else if (l->words >> n->buf & 1)
        a = l->bf16[n->a] ? a : round_bf16(l, a);
    else if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16 && l->width == 4)
        a = x86_op1(l, X86_SHR, 16, l->bf16[n->a] ? a : round_bf16(l, a));
    else if (n->lane == AIR_LANE_I64 && is_small_int(dtype))
        a = x86_narrow_integer(l, x86_low_bits(l, n->a, dtype), dtype);
    else if (n->lane == AIR_LANE_F32 && l->width == 8 &&
             (dtype == AIR_F32 || dtype == AIR_F16))
        a = unrounded(l, a);
    else if (!stores_as_is(l, n->lane, dtype))
        x86_refuse(l, "a store of this dtype");
    if ((l->pairs | l->words) >> n->buf & 1) {
        store_part(l, n->buf, a);
        return;
    }
    effect(l, X86_STORE, dtype, (uint32_t)n->buf, a);
}

static int
constant(x86_list *l, const air_rg_node *n)
{
    if (n->lane == AIR_LANE_F32)
        return number(l, (float)n->k);
    if (n->lane == AIR_LANE_B)
        return x86_bits(l, n->i ? UINT32_MAX : 0);
    return number_f64(l, n->k);
}

/* ---- one node ---- */

static int
compare(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b], lane = l->source[n->a].lane;
    if (lane == AIR_LANE_F32 || lane == AIR_LANE_F64)
        return x86_op3(l, X86_CMP,
                       n->op == AIR_RG_LT   ? X86_LT_OQ
                       : n->op == AIR_RG_LE ? X86_LE_OQ
                       : n->op == AIR_RG_EQ ? X86_EQ_OQ
                                            : X86_NE_UQ,
                       a, b, -1);
    if (lane == AIR_LANE_I64)
        return x86_compare_integers(l, n);
    switch (n->op) {
    case AIR_RG_LT: return x86_op2(l, X86_ANDN, a, b);
    case AIR_RG_LE: return x86_op2(l, X86_OR, not(l, a), b);
    case AIR_RG_EQ: return not(l, x86_op2(l, X86_XOR, a, b));
    default: return x86_op2(l, X86_XOR, a, b);
    }
}

/* Scalars and partial results are as wide as their lane. */
static bool
may_hold(const x86_list *l, unsigned lane)
{
    return l->width == 8 ? lane == AIR_LANE_F64 || lane == AIR_LANE_I64
                         : lane == AIR_LANE_F32;
}

static int
scalar(x86_list *l, const air_rg_node *n)
{
    if (!may_hold(l, n->lane))
        return x86_refuse(l, "a scalar of this lane");
    bool column = x86_has_columns(l->rg);
    return leaf(l, column ? X86_ACC : X86_SCALAR, 0, (uint64_t)n->buf);
}

/* Truth values are folded as bytes, 0 and 1. */
static void
reduce(x86_list *l, const air_rg_node *n)
{
    int how = n->reduce, a = l->value[n->a];
    if (n->lane == AIR_LANE_B && l->width == 1)
        a = x86_op2(l, X86_AND, a, x86_bits(l, 0x1010101));
    else if (!may_hold(l, n->lane))
        x86_refuse(l, "a reduction of this lane");
    if (n->lane == AIR_LANE_I64)
        how |= X86_OF_INTEGERS;
    effect(l, X86_REDUCE, how, (uint32_t)n->buf, a);
}

static void
set(x86_list *l, const air_rg_node *n)
{
    if (!may_hold(l, n->lane))
        x86_refuse(l, "a scalar of this lane");
    effect(l, X86_SET, 0, (uint32_t)n->buf, l->value[n->a]);
}

/* a ? b : c; of what is not true the operands change places. */
static int
choose(x86_list *l, int a, int b, int c)
{
    const x86_node *m = &l->nodes[a];
    if (m->op == X86_XOR && l->nodes[m->b].op == X86_CONST &&
        l->nodes[m->b].k == (l->width == 8 ? UINT64_MAX : UINT32_MAX))
        return x86_op3(l, X86_SEL, 0, m->a, c, b);
    return x86_op3(l, X86_SEL, 0, a, b, c);
}

static int
float_of(x86_list *l, const air_rg_node *n)
{
    int a = n->a < 0 ? 0 : l->value[n->a], b = n->b < 0 ? 0 : l->value[n->b];
    int c = n->c < 0 ? 0 : l->value[n->c];
    switch (n->op) {
    case AIR_RG_ADD: return x86_op2(l, X86_ADD, a, b);
    case AIR_RG_SUB: return x86_op2(l, X86_SUB, a, b);
    case AIR_RG_MUL: return x86_op2(l, X86_MUL, a, b);
    case AIR_RG_DIV: return x86_op2(l, X86_DIV, a, b);
    case AIR_RG_FMA: return x86_op3(l, X86_FMA, 0, a, b, c);
    case AIR_RG_NEG: return x86_op2(l, X86_XOR, a, sign_bit(l));
    case AIR_RG_ABS: return x86_op2(l, X86_AND, a, magnitude(l));
    case AIR_RG_MAX: return x86_op2(l, X86_MAX, a, b);
    case AIR_RG_MIN: return x86_op2(l, X86_MIN, a, b);
    case AIR_RG_SQRT: return x86_op1(l, X86_SQRT, 0, a);
    case AIR_RG_RINT: return x86_op1(l, X86_ROUND, 8, a);
    case AIR_RG_FLOOR: return x86_op1(l, X86_ROUND, 9, a);
    case AIR_RG_CEIL: return x86_op1(l, X86_ROUND, 10, a);
    case AIR_RG_TRUNC: return x86_op1(l, X86_ROUND, 11, a);
    case AIR_RG_SCALEF: return scalef(l, a, b);
    case AIR_RG_SCALEN: return scalen(l, a, b);
    case AIR_RG_LOGB: return logb_of(l, a);
    case AIR_RG_MANT: return mant_of(l, a);
    case AIR_RG_SIGN: return sign_of(l, a, b);
    case AIR_RG_BF16:
        return l->bf16[n->a] ? a
                             : x86_op2(l, X86_AND, round_bf16(l, a),
                                       x86_bits(l, 0xffff0000));
    case AIR_RG_F16:
        return x86_op1(l, X86_OFF16, 0, x86_op1(l, X86_TOF16, 0, a));
    case AIR_RG_INDEX: return x86_refuse(l, "an index");
    default: return x86_refuse(l, "a function without an expansion");
    }
}

/* Lanes of 64 bits. A value of the F32 lane is the f64 of the same value:
 * what two roundings give, to 53 and to 24 bits, one would have given. */
static int
wide_float(x86_list *l, const air_rg_node *n)
{
    switch (n->op) {
    case AIR_RG_NEG:
    case AIR_RG_ABS:
    case AIR_RG_MAX:
    case AIR_RG_MIN:
    case AIR_RG_RINT:
    case AIR_RG_FLOOR:
    case AIR_RG_CEIL:
    case AIR_RG_TRUNC:
    case AIR_RG_SIGN: return float_of(l, n);
    case AIR_RG_ADD:
    case AIR_RG_SUB:
    case AIR_RG_MUL:
    case AIR_RG_DIV:
    case AIR_RG_SQRT:
        return n->lane == AIR_LANE_F64
                   ? float_of(l, n)
                   : x86_op1(l, X86_TOSINGLE, 0, float_of(l, n));
    case AIR_RG_FMA:
        if (n->lane == AIR_LANE_F64)
            return float_of(l, n);
        break;
    default: break;
    }
    return x86_refuse(l, "a function in lanes of 64 bits");
}

static int
compute(x86_list *l, const air_rg_node *n)
{
    int a = n->a < 0 ? 0 : l->value[n->a], b = n->b < 0 ? 0 : l->value[n->b];
    int c = n->c < 0 ? 0 : l->value[n->c];
    switch (n->op) {
    case AIR_RG_AND: return x86_op2(l, X86_AND, a, b);
    case AIR_RG_OR: return x86_op2(l, X86_OR, a, b);
    case AIR_RG_XOR: return x86_op2(l, X86_XOR, a, b);
    case AIR_RG_NOT: return not(l, a);
    case AIR_RG_LT:
    case AIR_RG_LE:
    case AIR_RG_EQ:
    case AIR_RG_NE: return compare(l, n);
    case AIR_RG_SEL: return choose(l, a, b, c);
    case AIR_RG_CVT:
        if (n->lane != AIR_LANE_I64)
            return convert(l, n);
        break;
    default: break;
    }
    if (n->lane == AIR_LANE_I64)
        return x86_integer(l, n);
    return l->width == 8 ? wide_float(l, n) : float_of(l, n);
}

/* Operands first, so that values are made where they are first needed. */
static void
visit(x86_list *l, int i)
{
    const air_rg_node *n = &l->source[i];
    if (l->value[i] >= 0 || l->reason != NULL)
        return;
    const int16_t operands[3] = {n->a, n->b, n->c};
    for (int k = 0; k < 3; k++)
        if (operands[k] >= 0)
            visit(l, operands[k]);
    if (l->reason != NULL)
        return;
    int v = 0;
    switch (n->op) {
    case AIR_RG_CONST:
        v = n->lane == AIR_LANE_I64 ? x86_integer(l, n) : constant(l, n);
        break;
    case AIR_RG_LOAD: v = load(l, n); break;
    case AIR_RG_STORE: store(l, n); break;
    case AIR_RG_REDUCE: reduce(l, n); break;
    case AIR_RG_SCALAR: v = scalar(l, n); break;
    case AIR_RG_SET: set(l, n); break;
    default: v = compute(l, n);
    }
    l->value[i] = (int16_t)v;
}

/* A store may overwrite what a later root reads: loads of the same place that
 * stand before it go first. */
static void
visit_loads(x86_list *l, int before, const air_rg_buf *to)
{
    for (int i = 0; i < before; i++) {
        if (l->source[i].op != AIR_RG_LOAD)
            continue;
        const air_rg_buf *from = &l->rg->bufs[l->source[i].buf];
        if (from->slot == to->slot && from->offset == to->offset)
            visit(l, i);
    }
}

static bool
expand(x86_list *l)
{
    air_rg_node own[AIR_RG_MAX_NODES];
    int16_t map[AIR_RG_MAX_NODES];
    const air_rg_phase *p = &l->rg->phases[l->phase];
    int count = p->end - p->begin;
    for (int i = 0; i < count; i++) {
        own[i] = l->rg->nodes[p->begin + i];
        int16_t *operands[3] = {&own[i].a, &own[i].b, &own[i].c};
        for (int k = 0; k < 3; k++)
            if (*operands[k] >= 0)
                *operands[k] = (int16_t)(*operands[k] - p->begin);
        if (own[i].a < -1 || own[i].b < -1 || own[i].c < -1)
            return x86_refuse(l, "a value of another phase");
    }
    ir_record rec = {.nodes = l->source, .lane = AIR_LANE_F32};
    ir_record_expand(own, count, &rec, map);
    l->nsource = rec.count;
    return rec.full ? x86_refuse(l, "too many nodes") : true;
}

/* ---- values that need no rounding to bf16 ---- */

/* Up to 256 every whole number is one of bf16's. */
static bool
converts_to_bf16(const x86_list *l, const air_rg_node *n)
{
    x86_range a = l->range[n->a];
    unsigned from = l->source[n->a].lane;
    return from == AIR_LANE_B ||
           (from == AIR_LANE_I64 && a.low >= -256 && a.high <= 256);
}

static bool
is_bf16(const x86_list *l, const air_rg_node *n)
{
    bool a = n->a >= 0 && l->bf16[n->a], b = n->b >= 0 && l->bf16[n->b];
    float k = (float)n->k;
    uint32_t bits;
    switch (n->op) {
    case AIR_RG_CONST: memcpy(&bits, &k, 4); return (bits & 0xffff) == 0;
    case AIR_RG_LOAD: return l->rg->bufs[n->buf].dtype == AIR_BF16;
    case AIR_RG_BF16: return true;
    case AIR_RG_CVT: return converts_to_bf16(l, n);
    case AIR_RG_NEG:
    case AIR_RG_ABS:
    case AIR_RG_SIGN:
    case AIR_RG_RINT:
    case AIR_RG_FLOOR:
    case AIR_RG_CEIL:
    case AIR_RG_TRUNC: return a;
    case AIR_RG_MAX:
    case AIR_RG_MIN: return a && b;
    case AIR_RG_SEL: return b && l->bf16[n->c];
    default: return false;
    }
}

static void
find_bf16(x86_list *l)
{
    for (int i = 0; i < l->nsource; i++)
        l->bf16[i] =
            l->source[i].lane == AIR_LANE_F32 && is_bf16(l, &l->source[i]);
}

bool
x86_list_make(x86_list *l, const air_region *rg, int phase, bool evex)
{
    l->rg = rg;
    l->phase = phase;
    l->evex = evex;
    l->reason = NULL;
    l->count = 0;
    memset(l->bucket, 0, sizeof l->bucket);
    if (!expand(l))
        return false;
    l->width = x86_lanes_find(l);
    if (l->width == 0)
        return x86_refuse(l, "integers that need 64 bits");
    l->pairs = evex && l->width == 4 ? x86_pairs(rg) : 0;
    l->words = evex && l->width == 4 ? x86_words(rg) : 0;
    memset(l->half, -1, sizeof l->half);
    find_bf16(l);
    for (int i = 0; i < l->nsource; i++)
        l->value[i] = -1;
    for (int i = 0; i < l->nsource; i++) {
        const air_rg_node *n = &l->source[i];
        if (n->op == AIR_RG_STORE)
            visit_loads(l, i, &rg->bufs[n->buf]);
        if (n->op == AIR_RG_STORE || n->op == AIR_RG_REDUCE ||
            n->op == AIR_RG_SET)
            visit(l, i);
    }
    for (int i = 0; i < l->nsource; i++) /* for what they may raise */
        if (l->source[i].op == AIR_RG_IDIV || l->source[i].op == AIR_RG_IMOD)
            visit(l, i);
    return l->reason == NULL;
}
