/* x86_nodes.c: phases of a region become instruction nodes. */
#include "codegen/x86_nodes.h"

#include <string.h>

#include "ir/ir.h"

/* ---- the list ---- */

static uint32_t
hash_node(x86_node n)
{
    uint32_t h = n.op * 0x9e3779b1u ^ n.imm * 0x85ebca6bu ^ n.k * 0xc2b2ae35u;
    h ^= (uint32_t)n.a * 0x27d4eb2fu ^ (uint32_t)n.b * 0x165667b1u ^
         (uint32_t)n.c * 0x9e3779b9u;
    return h ^ h >> 15;
}

static int
put(x86_list *l, x86_node n)
{
    uint32_t mask = X86_MAX_NODES * 2 - 1, at = hash_node(n) & mask;
    bool effect = n.op == X86_STORE || n.op == X86_REDUCE || n.op == X86_SET;
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
leaf(x86_list *l, x86_op op, int imm, uint32_t k)
{
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, -1, -1, -1, k});
}

static int
effect(x86_list *l, x86_op op, int imm, uint32_t k, int a)
{
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, (int16_t)a, -1, -1, k});
}

int
x86_bits(x86_list *l, uint32_t k)
{
    return leaf(l, X86_CONST, 0, k);
}

static int
number(x86_list *l, float f)
{
    uint32_t k;
    memcpy(&k, &f, 4);
    return x86_bits(l, k);
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

static int
sign_of(x86_list *l, int a, int b)
{
    if (l->evex)
        return x86_op3(l, X86_SEL, 0, x86_bits(l, 0x7fffffff), a, b);
    return x86_op2(l, X86_OR, x86_op2(l, X86_AND, a, x86_bits(l, 0x7fffffff)),
                   x86_op2(l, X86_AND, b, x86_bits(l, 0x80000000)));
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
    if (l->width == 4)
        return x86_op2(l, X86_CMPI_GT, v, x86_bits(l, 0));
    if (l->evex)
        return x86_is_set(l, v);
    return x86_op2(l, X86_SUBI, x86_bits(l, 0),
                   x86_op2(l, X86_MINU, v,
                           x86_bits(l, l->width == 1 ? 0x1010101 : 0x10001)));
}

static int
load(x86_list *l, const air_rg_node *n)
{
    int dtype = l->rg->bufs[n->buf].dtype;
    bool once =
        !x86_is_single(l->rg, l->phase) && x86_is_broadcast(l->rg, n->buf);
    int v = leaf(l, once ? X86_BCAST : X86_LOAD, dtype, (uint32_t)n->buf);
    if (n->lane == AIR_LANE_F32 && (dtype == AIR_F32 || dtype == AIR_F16))
        return v;
    if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16)
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
    if (from->lane == AIR_LANE_B && n->lane == AIR_LANE_F32)
        return x86_op2(l, X86_AND, a, number(l, 1));
    if (from->lane == AIR_LANE_F32 && n->lane == AIR_LANE_B)
        return x86_op3(l, X86_CMP, X86_NE_UQ, a, x86_bits(l, 0), -1);
    if (from->lane == AIR_LANE_I64 && n->lane == AIR_LANE_F32)
        return x86_op1(l, X86_TOFLOAT, 0, a);
    if (from->lane == AIR_LANE_I64 && n->lane == AIR_LANE_B)
        return x86_is_set(l, a);
    return x86_refuse(l, "a conversion to f64");
}

static bool
is_bf16_already(const x86_list *l, int a)
{
    const air_rg_node *n = &l->source[a];
    return n->op == AIR_RG_BF16 ||
           (n->op == AIR_RG_LOAD && l->rg->bufs[n->buf].dtype == AIR_BF16);
}

static void
store(x86_list *l, const air_rg_node *n)
{
    int dtype = l->rg->bufs[n->buf].dtype, a = l->value[n->a];
    if (n->lane == AIR_LANE_B && dtype == AIR_F32)
        a = x86_op2(l, X86_AND, a, number(l, 1));
    else if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16)
        a = x86_op1(l, X86_SHR, 16,
                    is_bf16_already(l, n->a) ? a : round_bf16(l, a));
    else if (n->lane == AIR_LANE_I64 && is_small_int(dtype))
        a = x86_narrow_integer(l, a, dtype);
    else if (!(n->lane == AIR_LANE_F32 &&
               (dtype == AIR_F32 || dtype == AIR_F16)) &&
             !(n->lane == AIR_LANE_B && dtype == AIR_BOOL))
        x86_refuse(l, "a store of this dtype");
    effect(l, X86_STORE, dtype, (uint32_t)n->buf, a);
}

static int
constant(x86_list *l, const air_rg_node *n)
{
    if (n->lane == AIR_LANE_F32)
        return number(l, (float)n->k);
    if (n->lane == AIR_LANE_B)
        return x86_bits(l, n->i ? UINT32_MAX : 0);
    return x86_refuse(l, "an f64 constant");
}

/* ---- one node ---- */

static int
compare(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b], lane = l->source[n->a].lane;
    if (lane == AIR_LANE_F32)
        return x86_op3(l, X86_CMP,
                       n->op == AIR_RG_LT   ? X86_LT_OQ
                       : n->op == AIR_RG_LE ? X86_LE_OQ
                       : n->op == AIR_RG_EQ ? X86_EQ_OQ
                                            : X86_NE_UQ,
                       a, b, -1);
    if (lane == AIR_LANE_I64)
        return x86_compare_integers(l, n);
    if (lane != AIR_LANE_B)
        return x86_refuse(l, "a comparison of f64");
    switch (n->op) {
    case AIR_RG_LT: return x86_op2(l, X86_ANDN, a, b);
    case AIR_RG_LE: return x86_op2(l, X86_OR, not(l, a), b);
    case AIR_RG_EQ: return not(l, x86_op2(l, X86_XOR, a, b));
    default: return x86_op2(l, X86_XOR, a, b);
    }
}

static int
scalar(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        return x86_refuse(l, "a scalar that is not f32");
    bool column = x86_has_columns(l->rg);
    return leaf(l, column ? X86_ACC : X86_SCALAR, 0, (uint32_t)n->buf);
}

static void
reduce(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        x86_refuse(l, "a reduction that is not f32");
    effect(l, X86_REDUCE, n->reduce, (uint32_t)n->buf, l->value[n->a]);
}

static void
set(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        x86_refuse(l, "a scalar that is not f32");
    effect(l, X86_SET, 0, (uint32_t)n->buf, l->value[n->a]);
}

/* a ? b : c; of what is not true the operands change places. */
static int
choose(x86_list *l, int a, int b, int c)
{
    const x86_node *m = &l->nodes[a];
    if (m->op == X86_XOR && l->nodes[m->b].op == X86_CONST &&
        l->nodes[m->b].k == UINT32_MAX)
        return x86_op3(l, X86_SEL, 0, m->a, c, b);
    return x86_op3(l, X86_SEL, 0, a, b, c);
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
    case AIR_RG_SEL:
        return n->lane == AIR_LANE_F64 ? x86_refuse(l, "a selection of f64")
                                       : choose(l, a, b, c);
    case AIR_RG_CVT:
        if (n->lane != AIR_LANE_I64)
            return convert(l, n);
        break;
    default: break;
    }
    if (n->lane == AIR_LANE_I64)
        return x86_integer(l, n);
    if (n->lane != AIR_LANE_F32)
        return x86_refuse(l, "f64 arithmetic");
    switch (n->op) {
    case AIR_RG_ADD: return x86_op2(l, X86_ADD, a, b);
    case AIR_RG_SUB: return x86_op2(l, X86_SUB, a, b);
    case AIR_RG_MUL: return x86_op2(l, X86_MUL, a, b);
    case AIR_RG_DIV: return x86_op2(l, X86_DIV, a, b);
    case AIR_RG_FMA: return x86_op3(l, X86_FMA, 0, a, b, c);
    case AIR_RG_NEG: return x86_op2(l, X86_XOR, a, x86_bits(l, 0x80000000));
    case AIR_RG_ABS: return x86_op2(l, X86_AND, a, x86_bits(l, 0x7fffffff));
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
        return x86_op2(l, X86_AND, round_bf16(l, a), x86_bits(l, 0xffff0000));
    case AIR_RG_F16:
        return x86_op1(l, X86_OFF16, 0, x86_op1(l, X86_TOF16, 0, a));
    case AIR_RG_INDEX: return x86_refuse(l, "an index");
    default: return x86_refuse(l, "a function without an expansion");
    }
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
    return l->reason == NULL;
}
