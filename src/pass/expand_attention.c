/* expand_attention.c: attention with statistics for its gradient. */
#include "pass/expand.h"

/* The attribute, absent or not. */
static air_attr
attr_of(const pass_build *b, uint32_t node, int i)
{
    return *node_attr(b->g, node, i);
}

/* (query, key, value, dropout_p, is_causal, *, attn_mask, scale)
 * -> (out, logsumexp [B, H, rows]), which inference does not use: logarithms
 * and stores that are a tenth of a small attention */
air_status
expand_flash_attention(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref q = node_in(b.g, node, 0), k = node_in(b.g, node, 1), outs[2];
    bool grouped = !ir_dim_eq(ir_val(b.g, q)->dims[1], ir_val(b.g, k)->dims[1]);
    const bool sums = ctx->uses[node_out(b.g, node, 1).id] > 0;
    const air_attr attrs[] = {at_value(q),          at_value(k),
                              attr_of(&b, node, 2), attr_of(&b, node, 5),
                              attr_of(&b, node, 3), attr_of(&b, node, 4),
                              attr_of(&b, node, 6), at_bool(grouped)};

    b_node(&b, sums ? "air::attention" : "scaled_dot_product_attention",
           sizeof attrs / sizeof *attrs, attrs, sums ? 2 : 1, outs);
    AIR_TRY(build_forward(&b, node, 0, outs[0]));
    if (!sums)
        return AIR_OK;
    const air_dim *dims = ir_val(b.g, node_out(b.g, node, 1))->dims;
    return build_forward(&b, node, 1, b_view(&b, outs[1], 3, dims));
}
