/* widen.c: a vector of half precision that is widened to be broadcast (weights
 * of a norm) is widened where it is read: the cast then belongs to the reader's
 * region. Where steps are launches (air_target.bundles) one costs more than the
 * conversions; a CPU takes 1.06 x as long for a layer norm with them. */
#include "pass/build.h"

static bool
is_half(air_dtype d)
{
    return d == AIR_BF16 || d == AIR_F16;
}

/* What the cast is of; AIR_NO_REF: r is no such cast. */
static air_ref
widened(const ir_graph *g, air_ref r)
{
    const ir_node *n = pass_made_by(g, r, "_to_copy");

    if (!n)
        n = pass_made_by(g, r, "prims::convert_element_type");
    if (!n || ir_val(g, r)->dtype != AIR_F32 ||
        !is_half((air_dtype)ir_val(g, n->attrs[0].value)->dtype))
        return AIR_NO_REF;
    return n->attrs[0].value;
}

/* The operand of half precision, with the operand's sizes. */
static air_ref
narrow(pass_build *b, air_ref r)
{
    const ir_node *view = pass_made_by(b->g, r, "view");
    const ir_value v = *ir_val(b->g, r);

    if (!view)
        return widened(b->g, r);
    const air_ref x = widened(b->g, view->attrs[0].value);
    return x.id == AIR_NO_REF.id ? x : b_view(b, x, v.rank, v.dims);
}

static bool
is_cast_of_vector(const ir_graph *g, air_ref r)
{
    const ir_node *view = pass_made_by(g, r, "view");

    return widened(g, view ? view->attrs[0].value : r).id != AIR_NO_REF.id;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    ir_graph *g = ctx->g;
    const ir_node n = *ir_node_at(g, node);

    (void)arg;
    if (n.op == AIR_OP_HOST || ir_info(&n)->cls != IR_CLASS_POINTWISE ||
        n.nouts != 1)
        return AIR_OK;
    for (int i = 0; i < n.nattrs; i++) {
        if (n.attrs[i].kind != AIR_ATTR_VALUE ||
            pass_same_dims(g, n.attrs[i].value, n.outs[0]) ||
            !is_cast_of_vector(g, n.attrs[i].value) || !pass_allow(ctx))
            continue;
        const ir_value out = *ir_val(g, n.outs[0]);
        pass_build b = build_at(ctx, node);
        const air_ref x = narrow(&b, n.attrs[i].value);
        const air_ref wide =
            b_cast(&b, b_expand(&b, x, out.rank, out.dims), AIR_F32);
        AIR_TRY(b.status);
        ir_node_at(g, node)->attrs[i].value = wide;
    }
    return AIR_OK;
}

air_status
pass_widen(pass_context *ctx)
{
    if (!ctx->target || !ctx->target->bundles)
        return AIR_OK;
    AIR_TRY(pass_walk(ctx, visit, NULL));
    return pass_sweep(ctx);
}
