/* pick.c: of a pointwise value of which only elements at indices of a short
 * axis are read (the coordinates of points), or every other one of the last
 * axis, each reader computes its own.
 *
 * select(op(x, y)) becomes op(select(x), select(y)), which fuses with what
 * reads it; the whole value would be written, and read with strides. An axis of
 * one element, the last token's of one, only kept them apart. */
#include <string.h>

#include "pass/build.h"

enum { LONGEST = 4 };

/* By value: the axis that all readers pick of, counted from the end, from 1;
 * EVERY_OTHER of the last one. */
enum { UNREAD = 0, EVERY_OTHER = AIR_MAX_RANK + 1, OTHERWISE = 255 };

typedef struct {
    uint8_t *axis;
    size_t count; /* values known */
} picks;

static void
note(picks *p, air_ref r, int axis)
{
    uint8_t *known = &p->axis[r.id];

    *known = (uint8_t)(*known == UNREAD || *known == axis ? axis : OTHERWISE);
}

/* The axis, as above, and the index of a select; false: it is none. */
static bool
read_select(const ir_graph *g, const ir_node *n, int *axis, int64_t *index)
{
    const ir_value *v;

    if (n->op == AIR_OP_NONE || n->op == AIR_OP_HOST ||
        strcmp(ir_info(n)->name, "select.int") != 0)
        return false;
    v = ir_val(g, n->attrs[0].value);
    if (!pass_int(g, &n->attrs[2], index) ||
        ir_axis(g, &n->attrs[1], v->rank, "dim", axis) != AIR_OK)
        return false;
    *axis = v->rank - *axis;
    return true;
}

/* Of a slice that takes every other element of a last axis of even size, from
 * the index on. */
static bool
read_every_other(const ir_graph *g, const ir_node *n, int64_t *index)
{
    int axis;
    int64_t step;

    if (n->op == AIR_OP_NONE || n->op == AIR_OP_HOST ||
        strcmp(ir_info(n)->name, "slice.Tensor") != 0 ||
        !pass_int(g, &n->attrs[4], &step) || step != 2)
        return false;
    const int rank = ir_val(g, n->attrs[0].value)->rank;
    const int64_t size = pass_size_at(g, n->attrs[0].value, 1);
    if (n->attrs[2].kind == AIR_ATTR_NONE)
        *index = 0;
    else if (!pass_int(g, &n->attrs[2], index))
        return false;
    return ir_axis(g, &n->attrs[1], rank, "dim", &axis) == AIR_OK &&
           axis == rank - 1 && (*index == 0 || *index == 1) && size % 2 == 0 &&
           2 * pass_size_at(g, n->outs[0], 1) == size && size > 0;
}

static bool
read_pick(const ir_graph *g, const ir_node *n, int *axis, int64_t *index)
{
    if (read_select(g, n, axis, index))
        return true;
    *axis = EVERY_OTHER;
    return read_every_other(g, n, index);
}

/* Have both values the same size where it is picked? */
static bool
agree(const ir_graph *g, air_ref x, air_ref y, int axis)
{
    axis = axis == EVERY_OTHER ? 1 : axis;
    return pass_size_at(g, x, axis) == pass_size_at(g, y, axis);
}

/* What node n does with its operand r. */
static int
reads(const picks *p, const ir_graph *g, const ir_node *n, air_ref r)
{
    int axis;
    int64_t index;

    if (read_pick(g, n, &axis, &index))
        return axis;
    if (!pass_is_pointwise(n))
        return OTHERWISE;
    axis = p->axis[n->outs[0].id];
    if (axis == UNREAD || axis == OTHERWISE)
        return OTHERWISE;
    return agree(g, r, n->outs[0], axis) ? axis : OTHERWISE;
}

typedef struct {
    picks *p;
    const ir_graph *g;
    const ir_node *n;
} reader;

static void
note_operand(void *arg, air_ref *r)
{
    const reader *at = arg;

    if (r->id != AIR_NO_REF.id)
        note(at->p, *r, reads(at->p, at->g, at->n, *r));
}

/* Readers stand behind what they read. */
static air_status
find_picks(pass_context *ctx, picks *p)
{
    ir_graph *g = ctx->g;
    uint32_t *order;
    size_t count = 0;

    p->count = g->values.count;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, p->count + 1, &p->axis));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, g->nodes.count + 1, &order));
    for (size_t i = 0; i < g->results.count; i++)
        note(p, g->results.data[i].value, OTHERWISE);
    IR_FOR_EACH(g, id)
    order[count++] = id;
    while (count-- > 0) {
        reader at = {p, g, ir_node_at(g, order[count])};
        ir_each_operand(g, ir_node_at(g, order[count]), note_operand, &at);
    }
    return AIR_OK;
}

/* ---- writing ------------------------------------------------------------- */

/* May elements along the axis of what node n makes be picked of what it
 * reads? */
static bool
can_pick(const pass_context *ctx, const ir_node *n, int axis)
{
    const ir_graph *g = ctx->g;
    bool pairs = pass_walks_pairs(ctx, n->outs[0]);

    if (axis != EVERY_OTHER)
        return pass_size_at(g, n->outs[0], axis) >= 1 &&
               pass_size_at(g, n->outs[0], axis) <= LONGEST;
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            pass_size_at(g, n->attrs[i].value, 1) != 1)
            pairs = pairs && pass_walks_pairs(ctx, n->attrs[i].value);
    return pairs;
}

/* Of tensors one by one, and of more axes than that. They are read later: none
 * may have been written by then. */
static bool
is_plain(const pass_context *ctx, const ir_node *n)
{
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUES ||
            (n->attrs[i].kind == AIR_ATTR_VALUE &&
             pass_is_mutated(ctx, n->attrs[i].value)))
            return false;
    return ir_val(ctx->g, n->outs[0])->rank > 1;
}

/* The operand at the index, or all of it where it has no such axis. A vector
 * stays one: without axes it would count otherwise in promotions. */
static air_ref
picked(pass_build *b, air_ref x, int axis, int64_t index)
{
    const ir_value v = *ir_val(b->g, x);

    if (axis == EVERY_OTHER)
        return b_every_other(b, x, index);
    if (v.rank < axis)
        return x;
    if (pass_size_at(b->g, x, axis) == 1)
        index = 0;
    if (v.rank == 1)
        return b_slice(b, x, 0, b_dim(b, index), b_dim(b, index + 1));
    return B_OP(b, "select.int", at_value(x), at_int(b, v.rank - axis),
                at_int(b, index));
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const picks *p = arg;
    ir_graph *g = ctx->g;
    const ir_node *of;
    air_attr *attrs;
    int axis;
    int64_t index;

    if (!read_pick(g, ir_node_at(g, node), &axis, &index))
        return AIR_OK;
    const air_ref x = ir_node_at(g, node)->attrs[0].value;
    of = pass_producer(g, x);
    if (x.id >= p->count || p->axis[x.id] != axis || !pass_is_pointwise(of) ||
        !can_pick(ctx, of, axis) || !is_plain(ctx, of) || !pass_allow(ctx))
        return AIR_OK;
    const ir_node n = *of;
    pass_build b = build_at(ctx, node);
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)n.nattrs + 1, &attrs));
    for (int i = 0; i < n.nattrs; i++) {
        attrs[i] = n.attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUE)
            attrs[i].value = picked(&b, attrs[i].value, axis, index);
    }
    return build_forward(&b, node, 0,
                         b_op(&b, ir_info(&n)->name, (size_t)n.nattrs, attrs));
}

air_status
pass_pick(pass_context *ctx)
{
    picks p;

    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(find_picks(ctx, &p));
    AIR_TRY(pass_walk(ctx, visit, &p));
    return pass_sweep(ctx);
}
