/* narrow.c: a concatenation of which only a cast is read is one of casts, so
 * that those who make its operands write what is read (a rotary embedding in
 * float32 before attention in half precision). */
#include <string.h>

#include "pass/build.h"

/* The cat that `x` is, if this reader is the only one; NULL: it is none. known:
 * values whose uses were counted. */
static const ir_node *
find_cat(const pass_context *ctx, size_t known, air_ref x)
{
    const ir_node *cat = pass_made_by(ctx->g, x, "cat");

    if (!cat || x.id >= known || ctx->uses[x.id] != 1 ||
        pass_is_shown(ctx, x) || pass_is_mutated(ctx, x))
        return NULL;
    for (size_t i = 0; i < cat->attrs[0].count; i++)
        if (pass_is_mutated(ctx, cat->attrs[0].values[i]))
            return NULL;
    return cat;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const size_t *known = arg;
    const ir_node n = *ir_node_at(ctx->g, node);

    if (!pass_is_pointwise(&n) || n.inplace ||
        strcmp(ir_info(&n)->name, "_to_copy") != 0 ||
        n.attrs[0].kind != AIR_ATTR_VALUE)
        return AIR_OK;
    const ir_node *found = find_cat(ctx, *known, n.attrs[0].value);
    if (!found || !pass_allow(ctx))
        return AIR_OK;
    const ir_node cat = *found;
    const air_dtype to = (air_dtype)ir_val(ctx->g, n.outs[0])->dtype;
    pass_build b = build_at(ctx, node);
    air_ref *values;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cat.attrs[0].count, &values));
    for (size_t i = 0; i < cat.attrs[0].count; i++)
        values[i] = b_cast(&b, cat.attrs[0].values[i], to);
    const air_ref y = B_OP(&b, "cat", at_values(&b, cat.attrs[0].count, values),
                           cat.attrs[1]);
    return build_forward(&b, node, 0, y);
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
