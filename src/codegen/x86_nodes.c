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

static int
op3(x86_list *l, x86_op op, int imm, int a, int b, int c)
{
    return put(l, (x86_node){(uint8_t)op, (uint8_t)imm, (int16_t)a, (int16_t)b,
                             (int16_t)c, 0});
}

static int
op2(x86_list *l, x86_op op, int a, int b)
{
    return op3(l, op, 0, a, b, -1);
}

static int
op1(x86_list *l, x86_op op, int imm, int a)
{
    return op3(l, op, imm, a, -1, -1);
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

static int
bits(x86_list *l, uint32_t k)
{
    return leaf(l, X86_CONST, 0, k);
}

static int
number(x86_list *l, float f)
{
    uint32_t k;
    memcpy(&k, &f, 4);
    return bits(l, k);
}

static int
refuse(x86_list *l, const char *reason)
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
        return op2(l, X86_SCALEF, a, b);
    int n = op1(l, X86_TOINT, 0, b);
    int half = op1(l, X86_SAR, 1, n);
    int rest = op2(l, X86_SUBI, n, half);
    int bias = bits(l, 127);
    int one = op1(l, X86_SHL, 23, op2(l, X86_ADDI, half, bias));
    int two = op1(l, X86_SHL, 23, op2(l, X86_ADDI, rest, bias));
    return op2(l, X86_MUL, op2(l, X86_MUL, a, one), two);
}

static int
scalen(x86_list *l, int a, int b)
{
    if (l->evex)
        return op2(l, X86_SCALEF, a, b);
    return op2(l, X86_ADDI, a, op1(l, X86_SHL, 23, op1(l, X86_TOINT, 0, b)));
}

/* a, or a * 2^24 where it is subnormal (or not above zero) */
static int
normal(x86_list *l, int a, int *small)
{
    *small = op3(l, X86_CMP, X86_LT_OQ, a, number(l, 0x1p-126f), -1);
    int scaled = op2(l, X86_MUL, a, number(l, 0x1p24f));
    return op3(l, X86_SEL, 0, *small, scaled, a);
}

static int
logb_of(x86_list *l, int a)
{
    int small, t = normal(l, a, &small);
    int e = op2(l, X86_AND, op1(l, X86_SHR, 23, t), bits(l, 255));
    int bias = op3(l, X86_SEL, 0, small, number(l, 151), number(l, 127));
    return op2(l, X86_SUB, op1(l, X86_TOFLOAT, 0, e), bias);
}

static int
mant_of(x86_list *l, int a)
{
    int small, t = normal(l, a, &small);
    return op2(l, X86_OR, op2(l, X86_AND, t, bits(l, 0x7fffff)),
               bits(l, 0x3f800000));
}

/* Rounded to bf16 in the upper half, the lower half being garbage. */
static int
round_bf16(x86_list *l, int a)
{
    int odd = op2(l, X86_AND, op1(l, X86_SHR, 16, a), bits(l, 1));
    int up = op2(l, X86_ADDI, odd, bits(l, 0x7fff));
    int sum = op2(l, X86_ADDI, up, a);
    int nan = op3(l, X86_CMP, X86_UNORD, a, a, -1);
    return op3(l, X86_SEL, 0, nan, bits(l, 0x7fc00000), sum);
}

static int not(x86_list * l, int a)
{
    return op2(l, X86_XOR, a, bits(l, UINT32_MAX));
}

static int
sign_of(x86_list *l, int a, int b)
{
    if (l->evex)
        return op3(l, X86_SEL, 0, bits(l, 0x7fffffff), a, b);
    return op2(l, X86_OR, op2(l, X86_AND, a, bits(l, 0x7fffffff)),
               op2(l, X86_AND, b, bits(l, 0x80000000)));
}

/* ---- loads, stores, conversions ---- */

static bool
is_small_int(int dtype)
{
    return dtype == AIR_I8 || dtype == AIR_U8 || dtype == AIR_I16 ||
           dtype == AIR_I32;
}

static int
load(x86_list *l, const air_rg_node *n)
{
    int dtype = l->rg->bufs[n->buf].dtype;
    bool row = !x86_is_single(l->rg, l->phase);
    bool once = row && x86_is_broadcast(l->rg, n->buf);
    if ((dtype == AIR_I8 || dtype == AIR_I16) && (once || !row))
        return refuse(l, "one signed integer of 8 or 16 bits");
    int v = leaf(l, once ? X86_BCAST : X86_LOAD, dtype, (uint32_t)n->buf);
    if (n->lane == AIR_LANE_F32 && (dtype == AIR_F32 || dtype == AIR_F16))
        return v;
    if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16)
        return once ? v : op1(l, X86_SHL, 16, v);
    if (n->lane == AIR_LANE_B && dtype == AIR_BOOL)
        return op2(l, X86_CMPI_GT, v, bits(l, 0));
    if (n->lane == AIR_LANE_I64 && is_small_int(dtype))
        return v; /* 32-bit integers: only CVT takes them */
    return refuse(l, "a load of this dtype");
}

static int
convert(x86_list *l, const air_rg_node *n)
{
    const air_rg_node *from = &l->source[n->a];
    int a = l->value[n->a];
    if (from->lane == n->lane)
        return a;
    if (from->lane == AIR_LANE_B && n->lane == AIR_LANE_F32)
        return op2(l, X86_AND, a, number(l, 1));
    if (from->lane == AIR_LANE_F32 && n->lane == AIR_LANE_B)
        return op3(l, X86_CMP, X86_NE_UQ, a, bits(l, 0), -1);
    if (from->lane == AIR_LANE_I64 && n->lane == AIR_LANE_F32)
        return op1(l, X86_TOFLOAT, 0, a);
    if (from->lane == AIR_LANE_I64 && n->lane == AIR_LANE_B)
        return not(l, op2(l, X86_CMPI_EQ, a, bits(l, 0)));
    return refuse(l, "a conversion to f64 or to an integer");
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
        a = op2(l, X86_AND, a, number(l, 1));
    else if (n->lane == AIR_LANE_F32 && dtype == AIR_BF16)
        a = op1(l, X86_SHR, 16,
                is_bf16_already(l, n->a) ? a : round_bf16(l, a));
    else if (!(n->lane == AIR_LANE_F32 &&
               (dtype == AIR_F32 || dtype == AIR_F16)) &&
             !(n->lane == AIR_LANE_B && dtype == AIR_BOOL))
        refuse(l, "a store of this dtype");
    effect(l, X86_STORE, dtype, (uint32_t)n->buf, a);
}

static int
constant(x86_list *l, const air_rg_node *n)
{
    if (n->lane == AIR_LANE_F32)
        return number(l, (float)n->k);
    if (n->lane == AIR_LANE_B)
        return bits(l, n->i ? UINT32_MAX : 0);
    return refuse(l, "an f64 or integer constant");
}

/* ---- one node ---- */

static int
compare(x86_list *l, const air_rg_node *n)
{
    int a = l->value[n->a], b = l->value[n->b], lane = l->source[n->a].lane;
    if (lane == AIR_LANE_F32)
        return op3(l, X86_CMP,
                   n->op == AIR_RG_LT   ? X86_LT_OQ
                   : n->op == AIR_RG_LE ? X86_LE_OQ
                   : n->op == AIR_RG_EQ ? X86_EQ_OQ
                                        : X86_NE_UQ,
                   a, b, -1);
    if (lane != AIR_LANE_B)
        return refuse(l, "a comparison of f64 or integers");
    switch (n->op) {
    case AIR_RG_LT: return op2(l, X86_ANDN, a, b);
    case AIR_RG_LE: return op2(l, X86_OR, not(l, a), b);
    case AIR_RG_EQ: return not(l, op2(l, X86_XOR, a, b));
    default: return op2(l, X86_XOR, a, b);
    }
}

static int
scalar(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        return refuse(l, "a scalar that is not f32");
    bool column = x86_has_columns(l->rg);
    return leaf(l, column ? X86_ACC : X86_SCALAR, 0, (uint32_t)n->buf);
}

static void
reduce(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        refuse(l, "a reduction that is not f32");
    effect(l, X86_REDUCE, n->reduce, (uint32_t)n->buf, l->value[n->a]);
}

static void
set(x86_list *l, const air_rg_node *n)
{
    if (n->lane != AIR_LANE_F32)
        refuse(l, "a scalar that is not f32");
    effect(l, X86_SET, 0, (uint32_t)n->buf, l->value[n->a]);
}

static int
compute(x86_list *l, const air_rg_node *n)
{
    int a = n->a < 0 ? 0 : l->value[n->a], b = n->b < 0 ? 0 : l->value[n->b];
    int c = n->c < 0 ? 0 : l->value[n->c];
    switch (n->op) {
    case AIR_RG_AND: return op2(l, X86_AND, a, b);
    case AIR_RG_OR: return op2(l, X86_OR, a, b);
    case AIR_RG_XOR: return op2(l, X86_XOR, a, b);
    case AIR_RG_NOT: return not(l, a);
    case AIR_RG_LT:
    case AIR_RG_LE:
    case AIR_RG_EQ:
    case AIR_RG_NE: return compare(l, n);
    case AIR_RG_SEL:
        return n->lane == AIR_LANE_F32 || n->lane == AIR_LANE_B
                   ? op3(l, X86_SEL, 0, a, b, c)
                   : refuse(l, "a selection of f64 or integers");
    case AIR_RG_CVT: return convert(l, n);
    default: break;
    }
    if (n->lane != AIR_LANE_F32)
        return refuse(l, "f64 or integer arithmetic");
    switch (n->op) {
    case AIR_RG_ADD: return op2(l, X86_ADD, a, b);
    case AIR_RG_SUB: return op2(l, X86_SUB, a, b);
    case AIR_RG_MUL: return op2(l, X86_MUL, a, b);
    case AIR_RG_DIV: return op2(l, X86_DIV, a, b);
    case AIR_RG_FMA: return op3(l, X86_FMA, 0, a, b, c);
    case AIR_RG_NEG: return op2(l, X86_XOR, a, bits(l, 0x80000000));
    case AIR_RG_ABS: return op2(l, X86_AND, a, bits(l, 0x7fffffff));
    case AIR_RG_MAX: return op2(l, X86_MAX, a, b);
    case AIR_RG_MIN: return op2(l, X86_MIN, a, b);
    case AIR_RG_SQRT: return op1(l, X86_SQRT, 0, a);
    case AIR_RG_RINT: return op1(l, X86_ROUND, 8, a);
    case AIR_RG_FLOOR: return op1(l, X86_ROUND, 9, a);
    case AIR_RG_CEIL: return op1(l, X86_ROUND, 10, a);
    case AIR_RG_TRUNC: return op1(l, X86_ROUND, 11, a);
    case AIR_RG_SCALEF: return scalef(l, a, b);
    case AIR_RG_SCALEN: return scalen(l, a, b);
    case AIR_RG_LOGB: return logb_of(l, a);
    case AIR_RG_MANT: return mant_of(l, a);
    case AIR_RG_SIGN: return sign_of(l, a, b);
    case AIR_RG_BF16:
        return op2(l, X86_AND, round_bf16(l, a), bits(l, 0xffff0000));
    case AIR_RG_F16: return op1(l, X86_OFF16, 0, op1(l, X86_TOF16, 0, a));
    case AIR_RG_INDEX: return refuse(l, "an index");
    default: return refuse(l, "a function without an expansion");
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
    case AIR_RG_CONST: v = constant(l, n); break;
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
            return refuse(l, "a value of another phase");
    }
    ir_record rec = {.nodes = l->source, .lane = AIR_LANE_F32};
    ir_record_expand(own, count, &rec, map);
    l->nsource = rec.count;
    return rec.full ? refuse(l, "too many nodes") : true;
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
