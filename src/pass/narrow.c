/* narrow.c: casts move to those who make, or read, what they are of.
 *
 * A concatenation of which only a cast is read is one of casts, so that those
 * who make its operands write what is read (a rotary embedding in float32
 * before attention in half precision). Of a view of which only a narrower cast
 * is read that is a view; a view of a wider cast is cast behind it: sizes on
 * both sides of a view differ, so that a cast on its wrong side is in nobody's
 * region (logits of half precision, in float32 with their batch and sequence
 * as one axis). What is gathered of a wider cast is gathered before it. */
#include <string.h>

#include "pass/build.h"

static const ir_node *
find_cat(const pass_context *ctx, size_t known, air_ref x)
{
    const ir_node *cat = pass_made_once(ctx, known, x, "cat");

    if (!cat)
        return NULL;
    for (size_t i = 0; i < cat->attrs[0].count; i++)
        if (pass_is_mutated(ctx, cat->attrs[0].values[i]))
            return NULL;
    return cat;
}

static size_t
bytes_of(const ir_graph *g, air_ref r)
{
    return air_dtype_bytes((air_dtype)ir_val(g, r)->dtype);
}

static bool
is_cast(const ir_node *n)
{
    return pass_is_pointwise(n) && !n->inplace &&
           strcmp(ir_info(n)->name, "_to_copy") == 0 &&
           n->attrs[0].kind == AIR_ATTR_VALUE;
}

static air_status
cast_operands(pass_context *ctx, uint32_t node, const ir_node *found)
{
    const ir_node cat = *found;
    const air_ref out = node_out(ctx->g, node, 0);
    const air_dtype to = (air_dtype)ir_val(ctx->g, out)->dtype;
    pass_build b = build_at(ctx, node);
    air_ref *values;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cat.attrs[0].count, &values));
    for (size_t i = 0; i < cat.attrs[0].count; i++)
        values[i] = b_cast(&b, cat.attrs[0].values[i], to);
    const air_ref y = B_OP(&b, "cat", at_values(&b, cat.attrs[0].count, values),
                           cat.attrs[1]);
    return build_forward(&b, node, 0, y);
}

/* The node casts a view of x, or is a view of x's cast: the other way round. */
static air_status
swap(pass_context *ctx, uint32_t node, air_ref x, bool view_last)
{
    const ir_value out = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    const air_dtype to = (air_dtype)out.dtype;
    pass_build b = build_at(ctx, node);
    const air_ref first =
        view_last ? b_cast(&b, x, to) : b_view(&b, x, out.rank, out.dims);
    return build_forward(&b, node, 0,
                         view_last ? b_view(&b, first, out.rank, out.dims)
                                   : b_cast(&b, first, to));
}

static air_status
gather_first(pass_context *ctx, uint32_t node)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const ir_node *cast = pass_made_by(ctx->g, n.attrs[0].value, "_to_copy");
    const air_dtype to = (air_dtype)ir_val(ctx->g, n.outs[0])->dtype;
    if (!cast || !is_cast(cast))
        return AIR_OK;
    const air_ref x = cast->attrs[0].value;
    if (bytes_of(ctx->g, x) >= bytes_of(ctx->g, n.outs[0]) ||
        pass_is_mutated(ctx, x) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    const air_ref y =
        B_OP(&b, "gather", at_value(x), n.attrs[1], n.attrs[2], n.attrs[3]);
    return build_forward(&b, node, 0, b_cast(&b, y, to));
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const size_t known = *(const size_t *)arg;
    const ir_graph *g = ctx->g;
    const ir_node n = *ir_node_at(g, node);
    const bool casts = is_cast(&n);

    if (n.op == AIR_OP_HOST)
        return AIR_OK;
    if (strcmp(ir_info(&n)->name, "gather") == 0)
        return gather_first(ctx, node);
    if (!casts && strcmp(ir_info(&n)->name, "view") != 0)
        return AIR_OK;
    const air_ref x = n.attrs[0].value;
    const ir_node *cat = casts ? find_cat(ctx, known, x) : NULL;
    if (cat)
        return pass_allow(ctx) ? cast_operands(ctx, node, cat) : AIR_OK;
    const ir_node *other =
        pass_made_once(ctx, known, x, casts ? "view" : "_to_copy");
    if (!other || (!casts && !is_cast(other)))
        return AIR_OK;
    const air_ref under = other->attrs[0].value;
    const size_t before = bytes_of(g, under), after = bytes_of(g, n.outs[0]);
    if ((casts ? after >= before : after <= before) ||
        pass_is_mutated(ctx, under) || !pass_allow(ctx))
        return AIR_OK;
    return swap(ctx, node, under, casts);
}

air_status
pass_narrow(pass_context *ctx)
{
    size_t known = ctx->g->values.count;

    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_count_uses(ctx, &ctx->uses));
    AIR_TRY(pass_walk(ctx, visit, &known));
    return pass_sweep(ctx);
}
