/* canon_view.c: views. What only splits, joins, adds or drops axes is a `view`
 * with the result's sizes; what only reorders them is a `permute`. */
#include "pass/canon.h"

#include <string.h>

air_status
canon_same_view(pass_context *ctx, uint32_t node)
{
    return canon_drop(ctx, node, node_in(ctx->g, node, 0));
}

/* (a, dim, start, end, step): of a step of 1 and all of the size. */
air_status
canon_slice(pass_context *ctx, uint32_t node)
{
    int64_t step;

    if (!pass_int(ctx->g, node_attr(ctx->g, node, 4), &step) || step != 1)
        return AIR_OK;
    return canon_drop(ctx, node, node_in(ctx->g, node, 0));
}

air_status
canon_expand(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0), out = node_out(g, node, 0);
    const ir_node *inner = pass_made_by(g, x, "expand");

    if (pass_without(ctx, AIR_WITHOUT_VIEW))
        return AIR_OK;
    if (pass_same_dims(g, x, out))
        return canon_drop(ctx, node, x);
    if (!inner || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    return build_forward(&b, node, 0,
                         b_expand(&b, inner->attrs[0].value,
                                  ir_val(g, out)->rank, ir_val(g, out)->dims));
}

air_status
canon_view(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0), out = node_out(g, node, 0);
    const bool merge = !pass_without(ctx, AIR_WITHOUT_VIEW);
    const ir_node *inner = merge ? pass_made_by(g, x, "view") : NULL;
    bool done = false;

    if (merge && pass_same_dims(g, x, out))
        return canon_drop(ctx, node, x);
    if (inner && pass_same_dims(g, inner->attrs[0].value, out))
        return canon_drop(ctx, node, inner->attrs[0].value);
    if (merge)
        AIR_TRY(canon_split(ctx, node, &done));
    if (done)
        return AIR_OK;
    bool plain = strcmp(ir_info(ir_node_at(g, node))->name, "view") == 0;
    if ((plain && !inner) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    return build_forward(&b, node, 0,
                         b_view(&b, inner ? inner->attrs[0].value : x,
                                ir_val(g, out)->rank, ir_val(g, out)->dims));
}

/* One view of pairs behind the other. */
static air_status
undo(pass_context *ctx, uint32_t node, const char *other)
{
    const ir_node *n = pass_made_by(ctx->g, node_in(ctx->g, node, 0), other);

    return n ? canon_drop(ctx, node, n->attrs[0].value) : AIR_OK;
}

air_status
canon_view_as_real(pass_context *ctx, uint32_t node)
{
    return undo(ctx, node, "view_as_complex");
}

air_status
canon_view_as_complex(pass_context *ctx, uint32_t node)
{
    return undo(ctx, node, "view_as_real");
}

/* ---- permutations -------------------------------------------------------- */

static bool
is_identity(const int *order, int rank)
{
    for (int i = 0; i < rank; i++)
        if (order[i] != i)
            return false;
    return true;
}

static air_status
forward_permuted(pass_context *ctx, uint32_t node, air_ref x, int rank,
                 const int *order)
{
    pass_build b = build_at(ctx, node);

    if (is_identity(order, rank) && !pass_without(ctx, AIR_WITHOUT_VIEW))
        return canon_drop(ctx, node, x);
    if (!pass_allow(ctx))
        return AIR_OK;
    return build_forward(&b, node, 0, b_permute(&b, x, rank, order));
}

air_status
canon_permute(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0);
    int rank = ir_val(g, x)->rank;
    int outer[AIR_MAX_RANK], inner[AIR_MAX_RANK], both[AIR_MAX_RANK];
    const ir_node *first = pass_made_by(g, x, "permute");

    if (pass_without(ctx, AIR_WITHOUT_VIEW))
        return AIR_OK;
    AIR_TRY(ir_permute_order(g, ir_node_at(g, node), outer));
    if (is_identity(outer, rank))
        return canon_drop(ctx, node, x);
    if (!first)
        return AIR_OK;
    AIR_TRY(ir_permute_order(g, first, inner));
    for (int i = 0; i < rank; i++)
        both[i] = inner[outer[i]];
    return forward_permuted(ctx, node, first->attrs[0].value, rank, both);
}

static air_status
forward_swapped(pass_context *ctx, uint32_t node, int p, int q)
{
    air_ref x = node_in(ctx->g, node, 0);
    int rank = ir_val(ctx->g, x)->rank, order[AIR_MAX_RANK] = {0};

    for (int i = 0; i < rank; i++)
        order[i] = i == p ? q : i == q ? p : i;
    return forward_permuted(ctx, node, x, rank, order);
}

air_status
canon_transpose(pass_context *ctx, uint32_t node)
{
    int rank = ir_val(ctx->g, node_in(ctx->g, node, 0))->rank, p = 0, q = 0;

    if (rank > 0) {
        AIR_TRY(ir_axis(ctx->g, node_attr(ctx->g, node, 1), rank, "dim0", &p));
        AIR_TRY(ir_axis(ctx->g, node_attr(ctx->g, node, 2), rank, "dim1", &q));
    }
    return forward_swapped(ctx, node, p, q);
}

air_status
canon_t(pass_context *ctx, uint32_t node)
{
    air_ref x = node_in(ctx->g, node, 0);

    if (ir_val(ctx->g, x)->rank < 2)
        return canon_drop(ctx, node, x);
    return forward_swapped(ctx, node, 0, 1);
}
