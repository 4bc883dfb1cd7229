/* canon_expand.c: pointwise nodes compute before a value is broadcast.
 *
 * Gradients of means and norms read expand(sum over a row). The nodes broadcast
 * themselves: written with the sum, what follows is one region with it. */
#include "pass/canon.h"

/* What `expand` broadcasts to r, without axes more: those count in promotions.
 * AIR_NO_REF: r is none. */
static air_ref
narrow_of(const ir_graph *g, air_ref r)
{
    const ir_node *n = pass_made_by(g, r, "expand");

    if (!n || ir_val(g, n->attrs[0].value)->rank != ir_val(g, r)->rank)
        return AIR_NO_REF;
    return n->attrs[0].value;
}

/* Is an operand as large as the result, and no broadcast value? */
static bool
has_whole(const ir_graph *g, const ir_node *n)
{
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            pass_same_dims(g, n->attrs[i].value, n->outs[0]) &&
            narrow_of(g, n->attrs[i].value).id == AIR_NO_REF.id)
            return true;
    return false;
}

static void
read_narrow(pass_context *ctx, uint32_t node)
{
    ir_node *n = ir_node_at(ctx->g, node);

    for (int i = 0; i < n->nattrs; i++) {
        const air_attr *a = &n->attrs[i];
        if (a->kind != AIR_ATTR_VALUE)
            continue;
        const air_ref x = narrow_of(ctx->g, a->value);
        if (x.id != AIR_NO_REF.id && pass_allow(ctx))
            n->attrs[i].value = x;
    }
}

/* The index of the only operand; -1: there are several, or none. */
static int
only_operand(const ir_node *n)
{
    int at = -1, count = 0;

    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE)
            at = i, count++;
    return count == 1 ? at : -1;
}

/* op(expand(x)) as expand(op(x)), where nobody writes or gets the result. */
static air_status
compute_narrow(pass_context *ctx, uint32_t node, bool *done)
{
    ir_graph *g = ctx->g;
    const ir_node n = *ir_node_at(g, node);
    const int at = only_operand(&n);
    air_attr *attrs;

    if (at < 0 || (ir_info(&n)->flags & IR_RANDOM))
        return AIR_OK;
    const air_ref wide = n.attrs[at].value, x = narrow_of(g, wide);
    if (x.id == AIR_NO_REF.id || pass_is_mutated(ctx, n.outs[0]) ||
        !pass_may_share(ctx, n.outs[0], wide) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, n.nattrs, &attrs));
    for (int i = 0; i < n.nattrs; i++)
        attrs[i] = i == at ? at_value(x) : n.attrs[i];
    const air_ref y = b_op(&b, ir_info(&n)->name, n.nattrs, attrs);
    const ir_value *v = ir_val(g, n.outs[0]);
    *done = true;
    return build_forward(&b, node, 0, b_expand(&b, y, v->rank, v->dims));
}

air_status
canon_expanded(pass_context *ctx, uint32_t node, bool *done)
{
    const ir_node *n = ir_node_at(ctx->g, node);

    *done = false;
    if (!pass_is_pointwise(n) || pass_without(ctx, AIR_WITHOUT_VIEW))
        return AIR_OK;
    if (!has_whole(ctx->g, n))
        return compute_narrow(ctx, node, done);
    read_narrow(ctx, node);
    return AIR_OK;
}
