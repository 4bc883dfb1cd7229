/* permute.c: pointwise nodes and concatenations of what HOST nodes left in
 * another order of axes (images in channels-last order) compute in that order
 * and are permuted behind. So values lie in memory as the HOST nodes around
 * them want them, and no copy turns them there and back. */
#include <string.h>

#include "pass/build.h"

typedef struct {
    bool *is; /* by value: of a HOST node, or moved here */
    size_t cap;
} apart;

static bool
is_apart(const pass_context *ctx, const apart *a, air_ref r)
{
    const ir_node *n = pass_producer(ctx->g, r);

    return (n && n->op == AIR_OP_HOST) || (r.id < a->cap && a->is[r.id]);
}

static air_status
mark(pass_context *ctx, apart *a, air_ref r)
{
    if (r.id >= a->cap) {
        const size_t cap = 2 * ((size_t)r.id + 1);
        bool *grown;
        AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cap, &grown));
        if (a->cap)
            memcpy(grown, a->is, a->cap * sizeof *grown);
        *a = (apart){grown, cap};
    }
    a->is[r.id] = true;
    return AIR_OK;
}

/* The value in its own order, and the order that the permutation reads it in;
 * AIR_NO_REF where r is none of a value that is apart. */
static air_ref
unpermuted(const pass_context *ctx, const apart *a, air_ref r, int *order)
{
    const ir_node *n = pass_made_by(ctx->g, r, "permute");
    const int rank = ir_val(ctx->g, r)->rank;

    if (!n || !is_apart(ctx, a, n->attrs[0].value))
        return AIR_NO_REF;
    for (int i = 0; i < rank; i++) {
        const air_attr axis = at_dim(n->attrs[1].dims[i]);
        if (ir_axis(ctx->g, &axis, rank, "dims", &order[i]) != AIR_OK)
            return AIR_NO_REF;
    }
    return n->attrs[0].value;
}

/* The same with an order that is known already (rank entries), or is read:
 * *known false. */
static air_ref
in_order(const pass_context *ctx, const apart *a, air_ref r, int *order,
         bool *known)
{
    const int rank = ir_val(ctx->g, r)->rank;
    int own[AIR_MAX_RANK];
    const air_ref x = unpermuted(ctx, a, r, own);

    if (x.id == AIR_NO_REF.id)
        return x;
    if (*known && memcmp(own, order, (size_t)rank * sizeof *own) != 0)
        return AIR_NO_REF;
    memcpy(order, own, (size_t)rank * sizeof *own);
    *known = true;
    return x;
}

static bool
is_one(const ir_graph *g, air_ref r)
{
    int64_t count;

    return pass_count_of(g, r, &count) && count == 1;
}

/* What is broadcast, its axes where the order has them. */
static air_ref
turned(pass_build *b, air_ref x, int rank, const int *order)
{
    const ir_value v = *ir_val(b->g, x);
    air_dim dims[AIR_MAX_RANK];
    int back[AIR_MAX_RANK];

    if (is_one(b->g, x))
        return x;
    for (int i = 0; i < rank; i++) {
        back[order[i]] = i;
        const int k = i - (rank - v.rank);
        dims[i] = k < 0 ? b_dim(b, 1) : v.dims[k];
    }
    return b_permute(b, b_view(b, x, rank, dims), rank, back);
}

/* Replaces the node by op(attrs) permuted. */
static air_status
finish(pass_build *b, apart *a, uint32_t node, const air_attr *attrs,
       const int *order)
{
    const ir_node *n = ir_node_at(b->g, node);
    const int rank = ir_val(b->g, n->outs[0])->rank;
    const air_ref y = b_op(b, ir_info(n)->name, (size_t)n->nattrs, attrs);

    AIR_TRY(b->status);
    AIR_TRY(mark(b->ctx, a, y));
    return build_forward(b, node, 0, b_permute(b, y, rank, order));
}

/* Every operand of the result's sizes is permuted in one order. */
static air_status
move_pointwise(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.outs[0])->rank;
    air_attr *attrs;
    int order[AIR_MAX_RANK];
    bool known = false;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)n.nattrs + 1, &attrs));
    for (int i = 0; i < n.nattrs; i++) {
        attrs[i] = n.attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUES)
            return AIR_OK;
        if (attrs[i].kind != AIR_ATTR_VALUE ||
            !pass_same_dims(ctx->g, attrs[i].value, n.outs[0]))
            continue;
        attrs[i].value = in_order(ctx, a, attrs[i].value, order, &known);
        if (attrs[i].value.id == AIR_NO_REF.id)
            return AIR_OK;
    }
    if (!known || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int i = 0; i < n.nattrs; i++)
        if (n.attrs[i].kind == AIR_ATTR_VALUE &&
            !pass_same_dims(ctx->g, n.attrs[i].value, n.outs[0]))
            attrs[i].value = turned(&b, n.attrs[i].value, rank, order);
    return finish(&b, a, node, attrs, order);
}

/* cat(tensors, dim) */
static air_status
move_cat(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.outs[0])->rank;
    air_ref *values;
    int order[AIR_MAX_RANK], axis;
    bool known = false;

    AIR_TRY(ir_axis(ctx->g, &n.attrs[1], rank, "dim", &axis));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, n.attrs[0].count + 1, &values));
    for (size_t i = 0; i < n.attrs[0].count; i++) {
        const air_ref x = n.attrs[0].values[i];
        if (ir_val(ctx->g, x)->rank != rank)
            return AIR_OK; /* an old form: empty tensors of one axis */
        values[i] = in_order(ctx, a, x, order, &known);
        if (values[i].id == AIR_NO_REF.id)
            return AIR_OK;
    }
    if (!known || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    const air_attr attrs[] = {at_values(&b, n.attrs[0].count, values),
                              at_int(&b, order[axis])};
    return finish(&b, a, node, attrs, order);
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);

    if (n->op == AIR_OP_HOST || n->inplace || n->nouts != 1)
        return AIR_OK;
    if (ir_info(n)->cls == IR_CLASS_POINTWISE)
        return move_pointwise(ctx, node, arg);
    if (strcmp(ir_info(n)->name, "cat") == 0)
        return move_cat(ctx, node, arg);
    return AIR_OK;
}

air_status
pass_permute(pass_context *ctx)
{
    apart a = {0};

    AIR_TRY(pass_walk(ctx, visit, &a));
    return pass_sweep(ctx);
}
