/* expand_view.c: several results of one view, and ops that are views and
 * concatenations of others. */
#include "pass/expand.h"

static air_status
axis_of(pass_context *ctx, uint32_t node, int attr, int rank, int *out)
{
    return ir_axis(ctx->g, node_attr(ctx->g, node, attr), rank, "dim", out);
}

/* split, split_with_sizes: the results tell how long the parts are. */
air_status
expand_split(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    air_dim start = b_dim(&b, 0);
    int axis, nouts = ir_node_at(ctx->g, node)->nouts;

    AIR_TRY(axis_of(ctx, node, 2, ir_val(ctx->g, x)->rank, &axis));
    for (int i = 0; i < nouts; i++) {
        air_ref out = node_out(ctx->g, node, i);
        air_dim size = ir_val(ctx->g, out)->dims[axis];
        air_dim end = b_dim2(&b, IR_DIM_ADD, start, size);
        AIR_TRY(build_forward(&b, node, i, b_slice(&b, x, axis, start, end)));
        start = end;
    }
    return AIR_OK;
}

air_status
expand_unbind(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    int axis, nouts = ir_node_at(ctx->g, node)->nouts;

    AIR_TRY(axis_of(ctx, node, 1, ir_val(ctx->g, x)->rank, &axis));
    for (int i = 0; i < nouts; i++)
        AIR_TRY(build_forward(&b, node, i,
                              B_OP(&b, "select.int", at_value(x),
                                   at_int(&b, axis), at_int(&b, i))));
    return AIR_OK;
}

/* (tensors, dim) */
air_status
expand_stack(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const air_attr in = *node_attr(ctx->g, node, 0);
    air_ref *parts;
    int axis, rank = ir_val(ctx->g, node_out(ctx->g, node, 0))->rank;

    AIR_TRY(axis_of(ctx, node, 1, rank, &axis));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, in.count, &parts));
    for (size_t i = 0; i < in.count; i++)
        parts[i] = b_unsqueeze(&b, in.values[i], axis);
    return build_forward(
        &b, node, 0,
        B_OP(&b, "cat", at_values(&b, in.count, parts), at_int(&b, axis)));
}

/* (a, repeats): x seen as [1, d0, 1, d1 ...], expanded, and copied. An axis
 * that is not repeated, or is of size 1, needs no axis of its own. */
air_status
expand_repeat(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), out = node_out(ctx->g, node, 0);
    const air_attr repeats = *node_attr(ctx->g, node, 1);
    air_dim one = b_dim(&b, 1), from[2 * AIR_MAX_RANK], to[2 * AIR_MAX_RANK];
    int rank = ir_val(ctx->g, out)->rank, n = 0;
    int lead = rank - ir_val(ctx->g, x)->rank;

    AIR_TRY(b.status);
    for (int i = 0; i < rank; i++) {
        air_dim size = i < lead ? one : ir_val(ctx->g, x)->dims[i - lead];
        if (!ir_dim_eq(repeats.dims[i], one)) {
            from[n] = one;
            to[n++] = repeats.dims[i];
        }
        if (!ir_dim_eq(size, one) || ir_dim_eq(repeats.dims[i], one)) {
            from[n] = size;
            to[n++] = size;
        }
    }
    AIR_REQUIRE(n <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "repeat of rank %d needs %d axes inside; %d is the limit", rank,
                n, AIR_MAX_RANK);
    x = b_expand(&b, b_view(&b, x, n, from), n, to);
    AIR_TRY(b.status);
    x = b_1(&b, "clone", x);
    return build_forward(&b, node, 0,
                         b_view(&b, x, rank, ir_val(ctx->g, out)->dims));
}

/* x shifted by `shift` along an axis: the tail, then the head. */
static air_ref
roll(pass_build *b, air_ref x, int axis, air_dim shift)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    air_dim size = ir_val(b->g, x)->dims[axis], zero = b_dim(b, 0);
    air_dim cut = b_dim2(b, IR_DIM_SUB, zero, shift);
    cut = b_dim2(b, IR_DIM_MOD, cut, b_dim2(b, IR_DIM_MAX, size, b_dim(b, 1)));
    const air_ref parts[2] = {b_slice(b, x, axis, cut, size),
                              b_slice(b, x, axis, zero, cut)};
    const air_ref y = B_OP(b, "cat", at_values(b, 2, parts), at_int(b, axis));
    if (b->status != AIR_OK || pass_same_dims(b->g, x, y))
        return y;
    /* what a symbol leaves of the two parts is not seen to be the whole */
    return b_view(b, y, ir_val(b->g, x)->rank, ir_val(b->g, x)->dims);
}

/* (a, shifts, dims); no dims: of the flat tensor */
air_status
expand_roll(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), out = node_out(ctx->g, node, 0);
    const air_attr shifts = *node_attr(ctx->g, node, 1);
    const air_attr dims = *node_attr(ctx->g, node, 2);
    int rank = ir_val(ctx->g, x)->rank, axis;

    if (dims.count == 0) {
        air_dim size;
        AIR_TRY(ir_dim_product(ctx->g, rank, ir_val(ctx->g, x)->dims, &size));
        x = roll(&b, b_view(&b, x, 1, &size), 0, shifts.dims[0]);
        return build_forward(&b, node, 0,
                             b_view(&b, x, rank, ir_val(ctx->g, out)->dims));
    }
    for (size_t i = 0; i < dims.count; i++) {
        air_attr dim = at_dim(dims.dims[i]);
        AIR_TRY(ir_axis(ctx->g, &dim, rank, "dims", &axis));
        x = roll(&b, x, axis, shifts.dims[i]);
    }
    return build_forward(&b, node, 0, x);
}

static air_ref
zeros(pass_build *b, uint32_t node)
{
    air_ref out = node_out(b->g, node, 0);
    return b_fullf(b, ir_val(b->g, out)->rank, ir_val(b->g, out)->dims, 0.0,
                   (air_dtype)ir_val(b->g, out)->dtype);
}

/* (grad, sizes, dim, index) */
air_status
expand_select_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = node_in(ctx->g, node, 0);

    return build_forward(&b, node, 0,
                         B_OP(&b, "select_scatter", at_value(zeros(&b, node)),
                              at_value(grad), *node_attr(ctx->g, node, 2),
                              *node_attr(ctx->g, node, 3)));
}

/* (grad, sizes, dim, start, end, step) */
air_status
expand_slice_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = node_in(ctx->g, node, 0);

    return build_forward(
        &b, node, 0,
        B_OP(&b, "slice_scatter", at_value(zeros(&b, node)), at_value(grad),
             *node_attr(ctx->g, node, 2), *node_attr(ctx->g, node, 3),
             *node_attr(ctx->g, node, 4), *node_attr(ctx->g, node, 5)));
}
