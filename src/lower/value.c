/* value.c: the nodes of a region that compute one value. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "lower/build.h"

air_status
lower_put(lower_build *b, air_rg_node node, int *out_node)
{
    *out_node = ir_record_put(&b->rec, node);
    AIR_REQUIRE(*out_node >= 0 && !b->rec.full, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d nodes", AIR_RG_MAX_NODES);
    return AIR_OK;
}

/* An element of a buffer as it is: it has the dtype's range. */
static bool
is_loaded(const lower_build *b, air_dtype dtype, int node)
{
    const air_rg_node *n = &b->rec.nodes[node];

    return n->op == AIR_RG_LOAD && b->bufs[n->buf].dtype == dtype;
}

static bool
is_half(air_dtype dtype)
{
    return dtype == AIR_BF16 || dtype == AIR_F16;
}

static bool
is_narrow(air_dtype dtype)
{
    return ir_lane_of(dtype) == AIR_LANE_I64 && dtype != AIR_I64;
}

/* To the values of a half or of a narrow integer. */
static air_status
put_round(lower_build *b, air_dtype dtype, int *node)
{
    air_rg_node round = {
        .lane = AIR_LANE_F32, .a = (int16_t)*node, .b = -1, .c = -1};

    round.op = dtype == AIR_BF16 ? AIR_RG_BF16 : AIR_RG_F16;
    if (!is_half(dtype)) {
        round.op = AIR_RG_WRAP;
        round.lane = AIR_LANE_I64;
        round.b = (int16_t)ir_record_const(&b->rec, AIR_LANE_I64, dtype);
    }
    return lower_put(b, round, node);
}

air_status
lower_round(lower_build *b, air_dtype dtype, int *node)
{
    if (is_half(dtype) ? !b->env->exact
                       : !is_narrow(dtype) || is_loaded(b, dtype, *node))
        return AIR_OK;
    return put_round(b, dtype, node);
}

void
lower_spread(const lower_build *b, air_ref ref, group_kind kind,
             int64_t *strides)
{
    const ir_layout *in = &b->env->places[ref.id].layout;
    int axis = in->rank - 1;

    for (int i = b->domain.rank - 1; i >= 0; i--) {
        strides[i] = 0;
        if ((kind == GROUP_SQUEEZED && b->domain.reduced[i]) ||
            (kind == GROUP_COLUMN && in->rank < b->domain.rank &&
             !b->domain.reduced[i]))
            continue;
        if (axis < 0)
            continue;
        if (in->dims[axis] != 1)
            strides[i] = in->strides[axis];
        axis--;
    }
}

static air_status
put_buf(lower_build *b, const air_rg_buf *buf, air_ref ref, int *out_buf)
{
    for (int i = 0; i < b->nbufs; i++) {
        if (memcmp(&b->bufs[i], buf, sizeof *buf) == 0) {
            *out_buf = i;
            return AIR_OK;
        }
    }
    AIR_REQUIRE(b->nbufs < AIR_RG_MAX_BUFS, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d buffers", AIR_RG_MAX_BUFS);
    b->bufs[b->nbufs] = *buf;
    b->buf_value[b->nbufs] = ref;
    b->buf_node[b->nbufs] = -1;
    *out_buf = b->nbufs++;
    return AIR_OK;
}

static air_status
add_buf(lower_build *b, air_ref ref, group_kind kind, int *out_buf)
{
    const lower_place *place = &b->env->places[ref.id];
    const ir_value *v = ir_val(b->env->g, ref);
    air_rg_buf buf = {.slot = place->slot, .dtype = v->dtype};

    buf.offset = place->offset +
                 place->layout.offset * (int64_t)air_dtype_bytes(v->dtype);
    lower_spread(b, ref, kind, buf.strides);
    return put_buf(b, &buf, ref, out_buf);
}

air_status
lower_load(lower_build *b, int buf, air_lane lane, int *out_node)
{
    air_rg_node load = {.op = AIR_RG_LOAD,
                        .lane = (uint8_t)lane,
                        .buf = (int16_t)buf,
                        .a = -1,
                        .b = -1,
                        .c = -1};

    if (b->buf_node[buf] < 0) {
        int node;
        AIR_TRY(lower_put(b, load, &node));
        b->buf_node[buf] = (int16_t)node;
    }
    *out_node = b->buf_node[buf];
    return AIR_OK;
}

/* A value that some other step computed. Operands of row values align with
 * the row space when the value has the rank of squeezed rows. */
static air_status
load_external(lower_build *b, air_ref ref, bool squeezed, int *out_node)
{
    const ir_value *v = ir_val(b->env->g, ref);
    int buf;

    AIR_TRY(add_buf(b, ref, squeezed ? GROUP_SQUEEZED : GROUP_FULL, &buf));
    return lower_load(b, buf, ir_lane_of((air_dtype)v->dtype), out_node);
}

/* One that differs from run to run is read. */
static air_status
load_number(lower_build *b, int32_t slot, air_lane lane, int *out_node)
{
    static const struct {
        uint8_t dtype, at;
    } parts[] = {
        [AIR_LANE_F32] = {AIR_F32, offsetof(lower_number, f)},
        [AIR_LANE_F64] = {AIR_F64, offsetof(lower_number, d)},
        [AIR_LANE_I64] = {AIR_I64, offsetof(lower_number, i)},
        [AIR_LANE_B] = {AIR_BOOL, offsetof(lower_number, b)},
    };
    const air_rg_buf buf = {.slot = slot,
                            .dtype = parts[lane].dtype,
                            .number = true,
                            .offset = parts[lane].at};
    int at = 0;

    AIR_TRY(put_buf(b, &buf, AIR_NO_REF, &at));
    return lower_load(b, at, lane, out_node);
}

static air_status
number_node(lower_build *b, const air_attr *attr, air_lane lane, int *out_node)
{
    double value = 0;

    if (attr->kind == AIR_ATTR_INT && b->env->numbers &&
        b->env->numbers[attr->dim.id] > 0)
        return load_number(b, b->env->numbers[attr->dim.id] - 1, lane,
                           out_node);

    if (attr->kind == AIR_ATTR_INT)
        value = (double)b->env->dims[attr->dim.id];
    else if (attr->kind == AIR_ATTR_FLOAT)
        value = attr->f;
    else if (attr->kind == AIR_ATTR_BOOL)
        value = attr->b ? 1 : 0;
    else if (attr->kind == AIR_ATTR_DTYPE)
        value = attr->dtype;
    if (attr->kind == AIR_ATTR_INT && lane == AIR_LANE_I64) {
        air_rg_node k = {.op = AIR_RG_CONST,
                         .lane = AIR_LANE_I64,
                         .buf = 0,
                         .a = -1,
                         .b = -1,
                         .c = -1};
        k.i = b->env->dims[attr->dim.id];
        return lower_put(b, k, out_node);
    }
    *out_node = ir_record_const(&b->rec, lane, value);
    return AIR_OK;
}

bool
lower_is_squeezed(const lower_build *b, const ir_node *n)
{
    return b->domain.nreduced > 0 && n->nouts > 0 &&
           b->member_of[n->outs[0].id] >= 0 &&
           b->members[b->member_of[n->outs[0].id]].kind == GROUP_SQUEEZED;
}

bool
lower_is_constant(const lower_build *b, air_ref ref)
{
    const ir_value *v = ir_val(b->env->g, ref);

    return v->node != IR_NO_NODE &&
           group_is_constant(b->env->g, ir_node_at(b->env->g, v->node));
}

static int64_t
wrapped(air_dtype dtype, int64_t i)
{
    switch (dtype) {
    case AIR_I8: return (int8_t)i;
    case AIR_U8: return (uint8_t)i;
    case AIR_I16: return (int16_t)i;
    case AIR_I32: return (int32_t)i;
    default: return i;
    }
}

/* A float that is wider than the half of the common dtype, where what the node
 * gives jumps: x > 0.9 is told of what 0.9 is in that dtype. */
static air_status
round_operand(lower_build *b, air_dtype to, int *node)
{
    air_rg_node k = b->rec.nodes[*node];

    if (k.op != AIR_RG_CONST)
        return put_round(b, to, node);
    k.k = ir_half(to, k.k);
    return lower_put(b, k, node);
}

/* ATen converts an operand to the common dtype before it computes. A lane is
 * wider than that: an integer may have to wrap, or become infinite in f16. */
static air_status
to_common(lower_build *b, const ir_node *n, int i, air_dtype to, int *node)
{
    const air_attr *attr = &n->attrs[i];
    const bool is_number = attr->kind == AIR_ATTR_INT;
    air_dtype from = AIR_I64;

    if (attr->kind == AIR_ATTR_VALUE)
        from = (air_dtype)ir_val(b->env->g, attr->value)->dtype;
    else if (attr->kind == AIR_ATTR_FLOAT)
        from = AIR_F64;
    else if (!is_number)
        return AIR_OK;
    if (ir_info(n)->flags & IR_JUMPS && is_half(to) && ir_is_float(from) &&
        from != to)
        return round_operand(b, to, node);
    if (!ir_promotes(ir_info(n), i) || ir_lane_of(from) != AIR_LANE_I64)
        return AIR_OK;
    if (is_narrow(to) && is_number && b->rec.nodes[*node].op != AIR_RG_CONST)
        return put_round(b, to, node);
    if (is_narrow(to) && is_number) {
        air_rg_node k = b->rec.nodes[*node];
        k.i = wrapped(to, k.i);
        return lower_put(b, k, node);
    }
    if (is_narrow(to) && ir_promote(from, to) != to)
        return put_round(b, to, node);
    if (is_half(to) && !is_number && air_dtype_bytes(from) > 1)
        return to == AIR_F16 ? put_round(b, to, node)
                             : lower_round(b, to, node);
    return AIR_OK;
}

/* Operand nodes of a pointwise op, in the lanes its body computes in. */
static air_status
body_operands(lower_build *b, const ir_node *n, air_lane lane, bool scalar,
              int *operands)
{
    const ir_op_info *info = ir_info(n);
    const air_dtype to = ir_compute_dtype(b->env->g, n);

    for (int i = 0; i < n->nattrs; i++) {
        const air_attr *attr = &n->attrs[i];
        air_lane want = lane;
        operands[i] = -1;
        if (info->dtype == IR_DT_TRUTH ||
            (info->dtype == IR_DT_SELECT && i == 0))
            want = AIR_LANE_B;
        if (attr->kind == AIR_ATTR_NONE || attr->kind == AIR_ATTR_STR)
            continue;
        if (attr->kind != AIR_ATTR_VALUE) {
            if (info->params[i].kind == IR_PARAM_INTS)
                continue;
            AIR_TRY(number_node(b, attr, want, &operands[i]));
            AIR_TRY(to_common(b, n, i, to, &operands[i]));
            continue;
        }
        if (b->member_of[attr->value.id] < 0 && lower_is_squeezed(b, n) &&
            !lower_is_constant(b, attr->value)) {
            AIR_TRY(load_external(b, attr->value, true, &operands[i]));
            operands[i] = ir_record_cvt(&b->rec, operands[i], want);
        } else {
            AIR_TRY(lower_operand(b, attr->value, want, scalar, &operands[i]));
        }
        AIR_TRY(to_common(b, n, i, to, &operands[i]));
    }
    return AIR_OK;
}

/* The node that a value already has in the current phase, -1: none. */
static int
known_node(const lower_build *b, air_ref ref)
{
    int32_t member = b->member_of[ref.id];

    if (member >= 0)
        return b->members[member].node;
    for (int i = 0; i < b->nbufs; i++)
        if (b->buf_value[i].id == ref.id && b->buf_node[i] >= 0)
            return b->buf_node[i];
    return -1;
}

/* Is it max(x) of the row, for this x? */
static bool
is_max_of(const lower_build *b, const air_rg_node *max, int x)
{
    if (max->op != AIR_RG_SCALAR)
        return false;
    for (size_t i = 0; i < b->nmembers; i++) {
        const lower_member *m = &b->members[i];
        const ir_node *n =
            ir_node_at(b->env->g, ir_val(b->env->g, m->ref)->node);
        if (m->slot == max->buf)
            return n->op == AIR_OP_AMAX &&
                   known_node(b, n->attrs[0].value) == x;
    }
    return false;
}

/* exp(x - max(x)), of softmax and its kin, never sees more than 0. */
static void
bound_exp(lower_build *b, int node)
{
    air_rg_node *e = &b->rec.nodes[node];

    if (e->op != AIR_RG_EXP || e->lane != AIR_LANE_F32)
        return;
    const air_rg_node *d = &b->rec.nodes[e->a];
    if (d->op == AIR_RG_SUB && is_max_of(b, &b->rec.nodes[d->b], d->a))
        e->op = AIR_RG_EXPNEG;
}

/* The body of a pointwise or creation node, rounded to the result's dtype. */
static air_status
record_body(lower_build *b, const ir_node *n, bool scalar, int *out_node)
{
    const ir_graph *g = b->env->g;
    const ir_op_info *info = ir_info(n);
    air_dtype result = (air_dtype)ir_val(g, n->outs[0])->dtype;
    air_lane lane = info->dtype == IR_DT_TRUTH
                        ? AIR_LANE_B
                        : ir_lane_of(ir_compute_dtype(g, n));
    int operands[32];

    assert(n->nattrs <= 32);
    AIR_TRY(body_operands(b, n, lane, scalar, operands));
    *out_node = ir_record_body(&b->rec, (ir_op)n->op, lane, n->attrs, operands);
    AIR_REQUIRE(*out_node >= 0 && !b->rec.full, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d nodes", AIR_RG_MAX_NODES);
    bound_exp(b, *out_node);
    *out_node = ir_record_cvt(&b->rec, *out_node, ir_lane_of(result));
    return lower_round(b, result, out_node);
}

/* A reduction's scalar has the lane it was folded in: any and all of u8 fold
 * truth values into an integer result. */
static air_status
read_scalar(lower_build *b, lower_member *m, int *out_node)
{
    const ir_value *v = ir_val(b->env->g, m->ref);
    const ir_op_info *info = ir_info(ir_node_at(b->env->g, v->node));
    air_lane lane = ir_lane_of((air_dtype)v->dtype);
    air_rg_node read = {.op = AIR_RG_SCALAR,
                        .buf = (int16_t)m->slot,
                        .a = -1,
                        .b = -1,
                        .c = -1,
                        .lane = (uint8_t)lane};

    assert(m->slot >= 0);
    if (info->cls != IR_CLASS_REDUCE)
        return lower_put(b, read, out_node);
    if (info->reduce == AIR_REDUCE_ANY || info->reduce == AIR_REDUCE_ALL)
        read.lane = AIR_LANE_B;
    AIR_TRY(lower_put(b, read, out_node));
    *out_node = ir_record_cvt(&b->rec, *out_node, lane);
    return lower_round(b, (air_dtype)v->dtype, out_node);
}

air_status
lower_member_node(lower_build *b, lower_member *m, bool scalar, int *out_node)
{
    const ir_value *v = ir_val(b->env->g, m->ref);

    if (m->node >= 0) {
        *out_node = m->node;
        return AIR_OK;
    }
    if (m->kind != GROUP_FULL && m->slot >= 0)
        AIR_TRY(read_scalar(b, m, &m->node));
    else if (m->scratch >= 0)
        AIR_TRY(lower_load(b, m->scratch, ir_lane_of((air_dtype)v->dtype),
                           &m->node));
    else
        AIR_TRY(
            record_body(b, ir_node_at(b->env->g, v->node), scalar, &m->node));
    *out_node = m->node;
    return AIR_OK;
}

air_status
lower_operand(lower_build *b, air_ref ref, air_lane lane, bool scalar,
              int *out_node)
{
    const ir_value *v = ir_val(b->env->g, ref);
    int32_t member = b->member_of[ref.id];

    if (member >= 0) {
        AIR_TRY(lower_member_node(b, &b->members[member], scalar, out_node));
    } else if (lower_is_constant(b, ref)) {
        AIR_TRY(
            record_body(b, ir_node_at(b->env->g, v->node), false, out_node));
    } else {
        AIR_TRY(load_external(b, ref, false, out_node));
    }
    *out_node = ir_record_cvt(&b->rec, *out_node, lane);
    return AIR_OK;
}

air_status
lower_store(lower_build *b, lower_member *m, int node)
{
    const ir_value *v = ir_val(b->env->g, m->ref);
    air_rg_node store = {
        .op = AIR_RG_STORE, .a = (int16_t)node, .b = -1, .c = -1};
    int buf, unused;

    store.lane = (uint8_t)ir_lane_of((air_dtype)v->dtype);
    if (b->rec.nodes[node].op == AIR_RG_WRAP) /* the store does it */
        store.a = b->rec.nodes[node].a;
    AIR_TRY(add_buf(b, m->ref, m->kind, &buf));
    store.buf = (int16_t)buf;
    m->stored = buf;
    b->buf_value[buf] = m->ref; /* not what is replaced */
    return lower_put(b, store, &unused);
}

/* What a reduction of truth values is. */
static const uint8_t truth_of[] = {
    [AIR_REDUCE_SUM] = AIR_REDUCE_ANY, [AIR_REDUCE_MAX] = AIR_REDUCE_ANY,
    [AIR_REDUCE_ANY] = AIR_REDUCE_ANY, [AIR_REDUCE_PROD] = AIR_REDUCE_ALL,
    [AIR_REDUCE_MIN] = AIR_REDUCE_ALL, [AIR_REDUCE_ALL] = AIR_REDUCE_ALL,
};

air_status
lower_reduce(lower_build *b, const ir_node *n, lower_member *m)
{
    const ir_op_info *info = ir_info(n);
    air_dtype dtype = (air_dtype)ir_val(b->env->g, m->ref)->dtype;
    air_lane lane = ir_lane_of(dtype);
    air_rg_node fold = {
        .op = AIR_RG_REDUCE, .reduce = info->reduce, .b = -1, .c = -1};
    int operand, unused;

    if (info->reduce == AIR_REDUCE_ANY || info->reduce == AIR_REDUCE_ALL)
        lane = AIR_LANE_B;
    if (lane == AIR_LANE_B)
        fold.reduce = truth_of[info->reduce];
    AIR_TRY(lower_operand(b, n->attrs[0].value, lane, false, &operand));
    AIR_REQUIRE(b->nscalars < AIR_RG_MAX_SCALARS, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d row scalars",
                AIR_RG_MAX_SCALARS);
    m->slot = b->nscalars++;
    fold.lane = (uint8_t)lane;
    fold.buf = (int16_t)m->slot;
    fold.a = (int16_t)operand;
    return lower_put(b, fold, &unused);
}
