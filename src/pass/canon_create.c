/* canon_create.c: everything that makes one value is a `full`. */
#include "pass/canon.h"

static air_status
make_full(pass_context *ctx, uint32_t node, air_attr value)
{
    ir_graph *g = ctx->g;
    air_ref out = node_out(g, node, 0);
    pass_build b = build_at(ctx, node);

    return build_forward(
        &b, node, 0,
        B_OP(&b, "full", at_dims(ir_val(g, out)->rank, ir_val(g, out)->dims),
             value, at_dtype((air_dtype)ir_val(g, out)->dtype)));
}

static air_status
forward_full(pass_context *ctx, uint32_t node, air_attr value)
{
    return pass_allow(ctx) ? make_full(ctx, node, value) : AIR_OK;
}

/* A copy or cast of a number, as functorch writes Python's in a tensor's
 * place. Made in any case: behind it copies are of tensors. */
air_status
canon_number(pass_context *ctx, uint32_t node)
{
    return make_full(ctx, node, *node_attr(ctx->g, node, 0));
}

static air_status
forward_number(pass_context *ctx, uint32_t node, int64_t v)
{
    pass_build b = build_at(ctx, node);
    air_attr value = at_int(&b, v);

    AIR_TRY(b.status);
    return forward_full(ctx, node, value);
}

/* Fresh memory has any contents: zeros are as good, and repeatable. */
air_status
canon_zeros(pass_context *ctx, uint32_t node)
{
    return forward_number(ctx, node, 0);
}

air_status
canon_ones(pass_context *ctx, uint32_t node)
{
    return forward_number(ctx, node, 1);
}

air_status
canon_full_like(pass_context *ctx, uint32_t node)
{
    return forward_full(ctx, node, *node_attr(ctx->g, node, 1));
}

air_status
canon_new_full(pass_context *ctx, uint32_t node)
{
    return forward_full(ctx, node, *node_attr(ctx->g, node, 2));
}

air_status
canon_scalar_tensor(pass_context *ctx, uint32_t node)
{
    return forward_full(ctx, node, *node_attr(ctx->g, node, 0));
}
