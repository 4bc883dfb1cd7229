/* record.c: region nodes, recorded one by one with common ones shared. */
#include <assert.h>
#include <string.h>

#include "ir/record.h"

air_lane
ir_lane_of(air_dtype dtype)
{
    if (dtype == AIR_F64)
        return AIR_LANE_F64;
    if (dtype == AIR_BOOL)
        return AIR_LANE_B;
    return ir_is_float(dtype) ? AIR_LANE_F32 : AIR_LANE_I64;
}

/* Of air_prims.def: "F", "I", "FI", "B", "C", "S", "V". */
static const char *const lanes[AIR_RG_OP_COUNT] = {
#define PRIM(id, arity, lanes_, ...) [AIR_RG_##id] = #lanes_,
#define COMP(id, ...)                [AIR_RG_##id] = "F",
#define FUNC(id, ...)                [AIR_RG_##id] = "F",
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
};

/* ---- nodes --------------------------------------------------------------- */

/* Nodes without effect that are the same wherever they stand. */
static bool
is_shared(const air_rg_node *n)
{
    return n->op != AIR_RG_STORE && n->op != AIR_RG_REDUCE &&
           n->op != AIR_RG_SET;
}

static bool
same_node(const air_rg_node *x, const air_rg_node *y)
{
    /* i and k share storage: comparing bits tells 0.0 from -0.0. */
    return x->op == y->op && x->lane == y->lane && x->buf == y->buf &&
           x->a == y->a && x->b == y->b && x->c == y->c && x->i == y->i &&
           x->reduce == y->reduce;
}

int
ir_record_put(ir_record *r, air_rg_node node)
{
    if (is_shared(&node))
        for (int i = r->count - 1; i >= r->begin; i--)
            if (same_node(&r->nodes[i], &node))
                return i;
    if (r->count == AIR_RG_MAX_NODES) {
        r->full = true;
        return -1;
    }
    r->nodes[r->count] = node;
    return r->count++;
}

int
ir_record_const(ir_record *r, air_lane lane, double value)
{
    air_rg_node n = {.op = AIR_RG_CONST,
                     .lane = (uint8_t)lane,
                     .buf = -1,
                     .a = -1,
                     .b = -1,
                     .c = -1};

    if (lane == AIR_LANE_F64)
        n.k = value;
    else if (lane == AIR_LANE_F32)
        n.k = (double)(float)value;
    else if (lane == AIR_LANE_B)
        n.i = value != 0.0;
    else if (value != value)
        n.i = 0;
    else
        n.i = value >= 0x1p63    ? INT64_MAX
              : value <= -0x1p63 ? INT64_MIN
                                 : (int64_t)value;
    return ir_record_put(r, n);
}

static bool
is_float_lane(unsigned lane)
{
    return lane == AIR_LANE_F32 || lane == AIR_LANE_F64;
}

static double
const_value(const air_rg_node *n)
{
    return is_float_lane(n->lane) ? n->k : (double)n->i;
}

bool
record_is_const(const ir_record *r, int a, double v)
{
    return a >= 0 && r->nodes[a].op == AIR_RG_CONST &&
           const_value(&r->nodes[a]) == v;
}

int
ir_record_cvt(ir_record *r, int a, air_lane lane)
{
    air_rg_node n = {.op = AIR_RG_CVT,
                     .lane = (uint8_t)lane,
                     .buf = -1,
                     .a = (int16_t)a,
                     .b = -1,
                     .c = -1};

    if (a < 0 || r->nodes[a].lane == lane)
        return a;
    if (r->nodes[a].op == AIR_RG_CONST)
        return ir_record_const(r, lane, const_value(&r->nodes[a]));
    /* A truth value that took a detour through numbers. */
    if (r->nodes[a].op == AIR_RG_CVT && lane == AIR_LANE_B &&
        r->nodes[r->nodes[a].a].lane == AIR_LANE_B)
        return r->nodes[a].a;
    return ir_record_put(r, n);
}

/* ---- operations ---------------------------------------------------------- */

static int
put_op(ir_record *r, air_rg_op op, air_lane lane, int a, int b, int c)
{
    air_rg_node n = {.op = (uint16_t)op,
                     .lane = (uint8_t)lane,
                     .buf = -1,
                     .a = (int16_t)a,
                     .b = (int16_t)b,
                     .c = (int16_t)c};
    return ir_record_put(r, n);
}

static bool
commutes(air_rg_op op)
{
    return op == AIR_RG_ADD || op == AIR_RG_MUL || op == AIR_RG_IAND ||
           op == AIR_RG_IOR || op == AIR_RG_IXOR || op == AIR_RG_EQ ||
           op == AIR_RG_NE || op == AIR_RG_AND || op == AIR_RG_OR ||
           op == AIR_RG_XOR || op == AIR_RG_FMA;
}

/* Arithmetic on truth values is what ATen does with bool tensors: + is or,
 * * is and, false < true. */
static int
put_truth(ir_record *r, air_rg_op op, int a, int b, int c)
{
    switch (op) {
    case AIR_RG_MUL:
    case AIR_RG_MIN:
    case AIR_RG_IAND: return record_prim(r, AIR_RG_AND, a, b, -1);
    case AIR_RG_ADD:
    case AIR_RG_MAX:
    case AIR_RG_IOR: return record_prim(r, AIR_RG_OR, a, b, -1);
    case AIR_RG_NE:
    case AIR_RG_IXOR: return record_prim(r, AIR_RG_XOR, a, b, -1);
    case AIR_RG_EQ:
        return record_prim(r, AIR_RG_NOT, record_prim(r, AIR_RG_XOR, a, b, -1),
                           -1, -1);
    case AIR_RG_LT:
        return record_prim(r, AIR_RG_AND, record_prim(r, AIR_RG_NOT, a, -1, -1),
                           b, -1);
    case AIR_RG_LE:
        return record_prim(r, AIR_RG_OR, record_prim(r, AIR_RG_NOT, a, -1, -1),
                           b, -1);
    case AIR_RG_FMA:
        return record_prim(r, AIR_RG_OR, record_prim(r, AIR_RG_AND, a, b, -1),
                           c, -1);
    case AIR_RG_ABS: return a;
    default: break;
    }
    a = ir_record_cvt(r, a, AIR_LANE_I64);
    b = ir_record_cvt(r, b, AIR_LANE_I64);
    return ir_record_cvt(r, record_prim(r, op, a, b, -1), AIR_LANE_B);
}

/* Operations that integers do not have. */
static int
put_integer(ir_record *r, air_rg_op op, int a, int b, int c)
{
    if (op == AIR_RG_FMA)
        return record_prim(r, AIR_RG_ADD, record_prim(r, AIR_RG_MUL, a, b, -1),
                           c, -1);
    if (op == AIR_RG_RINT || op == AIR_RG_FLOOR || op == AIR_RG_CEIL ||
        op == AIR_RG_TRUNC)
        return a;
    a = ir_record_cvt(r, a, AIR_LANE_F64);
    b = ir_record_cvt(r, b, AIR_LANE_F64);
    c = ir_record_cvt(r, c, AIR_LANE_F64);
    return ir_record_cvt(r, record_prim(r, op, a, b, c), AIR_LANE_I64);
}

/* Operations of integers only, asked for floats. */
static int
put_via_integer(ir_record *r, air_rg_op op, air_lane lane, int a, int b)
{
    a = ir_record_cvt(r, a, AIR_LANE_I64);
    b = ir_record_cvt(r, b, AIR_LANE_I64);
    return ir_record_cvt(r, record_prim(r, op, a, b, -1), lane);
}

/* The lane both operands fit in. */
static air_lane
join_lanes(const ir_record *r, int a, int b)
{
    unsigned x = r->nodes[a].lane, y = b >= 0 ? r->nodes[b].lane : x;

    if (x == y || y == AIR_LANE_B)
        return (air_lane)x;
    if (x == AIR_LANE_B)
        return (air_lane)y;
    return x == AIR_LANE_F64 || y == AIR_LANE_F64 ? AIR_LANE_F64 : AIR_LANE_F32;
}

static int
put_in_lane(ir_record *r, air_rg_op op, air_lane lane, int a, int b, int c)
{
    const char *can = lanes[op];
    bool compare = can[0] == 'C', truth = can[0] == 'B';
    int known;

    if (lane == AIR_LANE_B && !truth)
        return put_truth(r, op, a, b, c);
    if (lane == AIR_LANE_I64 && !compare && !strchr(can, 'I'))
        return put_integer(r, op, a, b, c);
    if (is_float_lane(lane) && !compare && !strchr(can, 'F'))
        return put_via_integer(r, op, lane, a, b);
    known = simplify_prim(r, op, lane, a, b, c);
    if (known >= 0)
        return known;
    if (commutes(op) && a > b) {
        int t = a;
        a = b;
        b = t;
    }
    return put_op(r, op, compare ? AIR_LANE_B : lane, a, b, c);
}

static int
put_select(ir_record *r, int a, int b, int c)
{
    air_lane lane = join_lanes(r, b, c);
    int known;

    a = ir_record_cvt(r, a, AIR_LANE_B);
    b = ir_record_cvt(r, b, lane);
    c = ir_record_cvt(r, c, lane);
    if (a < 0 || b < 0 || c < 0)
        return -1;
    known = simplify_prim(r, AIR_RG_SEL, lane, a, b, c);
    return known >= 0 ? known : put_op(r, AIR_RG_SEL, lane, a, b, c);
}

int
record_prim(ir_record *r, air_rg_op op, int a, int b, int c)
{
    air_lane lane;
    bool truth = lanes[op][0] == 'B';

    if (r->full || a < 0)
        return -1;
    if (op == AIR_RG_SEL)
        return put_select(r, a, b, c);
    lane = truth ? AIR_LANE_B : join_lanes(r, a, b);
    if (c >= 0 && !truth && r->nodes[c].lane != AIR_LANE_B)
        lane = join_lanes(r, a, c) > lane ? join_lanes(r, a, c) : lane;
    a = ir_record_cvt(r, a, lane);
    b = ir_record_cvt(r, b, lane);
    c = ir_record_cvt(r, c, lane);
    return r->full ? -1 : put_in_lane(r, op, lane, a, b, c);
}
