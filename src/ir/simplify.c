/* simplify.c: operations of a region whose result is already known. Only what
 * holds for every bit pattern, NaN and -0.0 included. */
#include <math.h>

#include "ir/record.h"

static bool
both_const(const ir_record *r, int a, int b)
{
    return r->nodes[a].op == AIR_RG_CONST && r->nodes[b].op == AIR_RG_CONST;
}

static bool
is_float(air_lane lane)
{
    return lane == AIR_LANE_F32 || lane == AIR_LANE_F64;
}

/* 1 / c where dividing by c and multiplying by it round alike: powers of two
 * with a normal reciprocal. */
static bool
exact_reciprocal(const ir_record *r, air_lane lane, int b, double *out)
{
    const air_rg_node *n = &r->nodes[b];
    int e;

    if (n->op != AIR_RG_CONST || fabs(frexp(n->k, &e)) != 0.5)
        return false;
    *out = 1.0 / n->k;
    return lane == AIR_LANE_F64 ? isnormal(*out) : isnormal((float)*out) != 0;
}

static int
fold_float(ir_record *r, air_rg_op op, air_lane lane, int a, int b)
{
    double x = r->nodes[a].k, y = r->nodes[b].k;
    bool truth = false;

    switch (op) {
    /* Rounding a double sum, product or quotient of floats to float is the
     * float operation. */
    case AIR_RG_ADD: return ir_record_const(r, lane, x + y);
    case AIR_RG_SUB: return ir_record_const(r, lane, x - y);
    case AIR_RG_MUL: return ir_record_const(r, lane, x * y);
    case AIR_RG_DIV: return ir_record_const(r, lane, x / y);
    case AIR_RG_LT: truth = x < y; break;
    case AIR_RG_LE: truth = x <= y; break;
    case AIR_RG_EQ: truth = x == y; break;
    case AIR_RG_NE: truth = x != y; break;
    default: return -1;
    }
    return ir_record_const(r, AIR_LANE_B, truth ? 1.0 : 0.0);
}

static int
put_int(ir_record *r, uint64_t v)
{
    return ir_record_put(r, (air_rg_node){.op = AIR_RG_CONST,
                                          .buf = -1,
                                          .lane = AIR_LANE_I64,
                                          .a = -1,
                                          .b = -1,
                                          .c = -1,
                                          .i = (int64_t)v});
}

static int
fold_int(ir_record *r, air_rg_op op, int a, int b)
{
    int64_t x = r->nodes[a].i, y = r->nodes[b].i;
    bool truth = false;

    switch (op) {
    case AIR_RG_ADD: return put_int(r, (uint64_t)x + (uint64_t)y);
    case AIR_RG_SUB: return put_int(r, (uint64_t)x - (uint64_t)y);
    case AIR_RG_MUL: return put_int(r, (uint64_t)x * (uint64_t)y);
    case AIR_RG_IAND: return put_int(r, (uint64_t)x & (uint64_t)y);
    case AIR_RG_LT: truth = x < y; break;
    case AIR_RG_LE: truth = x <= y; break;
    case AIR_RG_EQ: truth = x == y; break;
    case AIR_RG_NE: truth = x != y; break;
    default: return -1;
    }
    return ir_record_const(r, AIR_LANE_B, truth ? 1.0 : 0.0);
}

/* x + 0 is no identity for floats: -0.0 + 0.0 is 0.0. */
static int
simplify_sum(ir_record *r, air_rg_op op, air_lane lane, int a, int b)
{
    bool integer = lane == AIR_LANE_I64;

    if (op == AIR_RG_ADD && integer && record_is_const(r, b, 0.0))
        return a;
    if (op == AIR_RG_ADD && integer && record_is_const(r, a, 0.0))
        return b;
    if (op == AIR_RG_SUB && record_is_const(r, b, 0.0) &&
        (integer || !signbit(r->nodes[b].k)))
        return a;
    return -1;
}

static int
simplify_product(ir_record *r, air_rg_op op, air_lane lane, int a, int b, int c)
{
    double inverse;

    if (op == AIR_RG_DIV) {
        if (record_is_const(r, b, 1.0))
            return a;
        if (is_float(lane) && exact_reciprocal(r, lane, b, &inverse))
            return record_prim(r, AIR_RG_MUL, a,
                               ir_record_const(r, lane, inverse), -1);
        return -1;
    }
    if (record_is_const(r, a, 1.0))
        return op == AIR_RG_MUL ? b : record_prim(r, AIR_RG_ADD, b, c, -1);
    if (record_is_const(r, b, 1.0))
        return op == AIR_RG_MUL ? a : record_prim(r, AIR_RG_ADD, a, c, -1);
    return -1;
}

static int
simplify_truth(ir_record *r, air_rg_op op, int a, int b)
{
    bool absorbing = op == AIR_RG_OR;

    if (op == AIR_RG_NOT) {
        const air_rg_node *n = &r->nodes[a];
        if (n->op == AIR_RG_CONST)
            return ir_record_const(r, AIR_LANE_B, n->i ? 0.0 : 1.0);
        return n->op == AIR_RG_NOT ? n->a : -1;
    }
    if (op == AIR_RG_XOR) {
        if (r->nodes[b].op == AIR_RG_CONST)
            return r->nodes[b].i ? record_prim(r, AIR_RG_NOT, a, -1, -1) : a;
        if (r->nodes[a].op == AIR_RG_CONST)
            return r->nodes[a].i ? record_prim(r, AIR_RG_NOT, b, -1, -1) : b;
        return -1;
    }
    if (a == b)
        return a;
    if (r->nodes[a].op == AIR_RG_CONST)
        return (r->nodes[a].i != 0) == absorbing ? a : b;
    if (r->nodes[b].op == AIR_RG_CONST)
        return (r->nodes[b].i != 0) == absorbing ? b : a;
    return -1;
}

int
simplify_prim(ir_record *r, air_rg_op op, air_lane lane, int a, int b, int c)
{
    switch (op) {
    case AIR_RG_SEL:
        if (r->nodes[a].op == AIR_RG_CONST)
            return r->nodes[a].i ? b : c;
        return b == c ? b : -1;
    case AIR_RG_NOT:
    case AIR_RG_AND:
    case AIR_RG_OR:
    case AIR_RG_XOR: return simplify_truth(r, op, a, b);
    case AIR_RG_NEG:
        if (r->nodes[a].op == AIR_RG_CONST && is_float(lane))
            return ir_record_const(r, lane, -r->nodes[a].k);
        return r->nodes[a].op == AIR_RG_NEG ? r->nodes[a].a : -1;
    case AIR_RG_ABS:
        if (r->nodes[a].op == AIR_RG_CONST && is_float(lane))
            return ir_record_const(r, lane, fabs(r->nodes[a].k));
        return -1;
    default: break;
    }
    if (b >= 0 && both_const(r, a, b)) {
        int known = is_float(lane) ? fold_float(r, op, lane, a, b)
                                   : fold_int(r, op, a, b);
        if (known >= 0)
            return known;
    }
    if (op == AIR_RG_ADD || op == AIR_RG_SUB)
        return simplify_sum(r, op, lane, a, b);
    if (op == AIR_RG_MUL || op == AIR_RG_DIV || op == AIR_RG_FMA)
        return simplify_product(r, op, lane, a, b, c);
    if ((op == AIR_RG_NE || op == AIR_RG_EQ) && a == b && lane == AIR_LANE_I64)
        return ir_record_const(r, AIR_LANE_B, op == AIR_RG_EQ ? 1.0 : 0.0);
    return -1;
}
