/* expand_image.c: pixels and channels that change places, windows as columns,
 * diagonals. */
#include <string.h>

#include "pass/expand.h"

static air_ref
view_of_out(pass_build *b, uint32_t node, air_ref x)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const ir_value *out = ir_val(b->g, node_out(b->g, node, 0));
    return b_view(b, x, out->rank, out->dims);
}

/* x with an axis cut in parts: axis `at` of it becomes n axes. */
static air_status
permuted_view(pass_build *b, uint32_t node, int rank, const air_dim *dims,
              const int *order)
{
    air_ref x = b_view(b, node_in(b->g, node, 0), rank, dims);

    x = b_1(b, "clone", b_permute(b, x, rank, order));
    return build_forward(b, node, 0, view_of_out(b, node, x));
}

/* The last three axes in rank - 3 + n, those before as they are; order: of the
 * n, counted from the first of them. */
static air_status
rearrange(pass_build *b, uint32_t node, int n, const air_dim *last,
          const int *last_order)
{
    const ir_value x = *ir_val(b->g, node_in(b->g, node, 0));
    air_dim dims[AIR_MAX_RANK + 6];
    int order[AIR_MAX_RANK + 6], lead = x.rank - 3, rank = lead + n;

    AIR_REQUIRE(rank <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s of rank %d needs %d axes inside; %d is the limit",
                ir_info(ir_node_at(b->g, node))->name, x.rank, rank,
                AIR_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        dims[i] = i < lead ? x.dims[i] : last[i - lead];
        order[i] = i < lead ? i : lead + last_order[i - lead];
    }
    AIR_TRY(b->status);
    return permuted_view(b, node, rank, dims, order);
}

/* [C r r, H, W] to [C, H, r, W, r] */
air_status
expand_pixel_shuffle(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const ir_value x = *ir_val(ctx->g, node_in(ctx->g, node, 0));
    const ir_value y = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    const air_dim r = node_attr(ctx->g, node, 1)->dim;
    const air_dim last[5] = {y.dims[y.rank - 3], r, r, x.dims[x.rank - 2],
                             x.dims[x.rank - 1]};

    return rearrange(&b, node, 5, last, (int[]){0, 3, 1, 4, 2});
}

/* [C, H r, W r] to [C, r, r, H, W] */
air_status
expand_pixel_unshuffle(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const ir_value x = *ir_val(ctx->g, node_in(ctx->g, node, 0));
    const ir_value y = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    const air_dim r = node_attr(ctx->g, node, 1)->dim;
    const air_dim last[5] = {x.dims[x.rank - 3], y.dims[y.rank - 2], r,
                             y.dims[y.rank - 1], r};

    return rearrange(&b, node, 5, last, (int[]){0, 2, 4, 1, 3});
}

/* [N, groups, C, ..] to [N, C, groups, ..] */
air_status
expand_channel_shuffle(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const ir_value x = *ir_val(ctx->g, node_in(ctx->g, node, 0));
    const air_dim groups = node_attr(ctx->g, node, 1)->dim;
    air_dim dims[AIR_MAX_RANK + 1];
    int order[AIR_MAX_RANK + 1];

    AIR_REQUIRE(x.rank >= 2 && x.rank < AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "channel_shuffle: needs 2 to %d dims", AIR_MAX_RANK - 1);
    for (int i = 0; i <= x.rank; i++) {
        dims[i] = x.dims[i > 2 ? i - 1 : 0];
        order[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    }
    dims[1] = groups;
    dims[2] = b_dim2(&b, IR_DIM_DIV, x.dims[1], groups);
    return permuted_view(&b, node, x.rank + 1, dims, order);
}

/* (a, k, dims): quarter turns */
air_status
expand_rot90(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    const air_attr dims = *node_attr(ctx->g, node, 2);
    int64_t k;

    AIR_TRY(node_int(ctx->g, node, 1, &k));
    k = (k % 4 + 4) % 4;
    if (k == 0)
        x = b_1(&b, "clone", x);
    else if (k == 2)
        x = B_OP(&b, "flip", at_value(x), dims);
    else
        x = B_OP(&b, "flip", at_value(x), at_dims(1, &dims.dims[k == 1]));
    if (k % 2 != 0)
        x = B_OP(&b, "transpose.int", at_value(x), at_dim(dims.dims[0]),
                 at_dim(dims.dims[1]));
    return build_forward(&b, node, 0, x);
}

/* ---- windows ------------------------------------------------------------- */

/* Entry i of a list of one or two. */
static air_dim
pair(const air_attr *list, int i)
{
    return list->dims[list->count == 1 ? 0 : i];
}

/* (a, kernel_size, dilation, padding, stride): the padded image seen as
 * [N, C, taps.., windows..], copied. */
air_status
expand_im2col(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0);
    const int rank = ir_val(g, x)->rank, lead = rank - 2;
    const air_attr kernel = *node_attr(g, node, 1);
    const air_attr dilation = *node_attr(g, node, 2);
    const air_attr pad = *node_attr(g, node, 3), step = *node_attr(g, node, 4);
    const air_dim around[4] = {pair(&pad, 1), pair(&pad, 1), pair(&pad, 0),
                               pair(&pad, 0)};
    air_dim size[6], stride[6], one = b_dim(&b, 1);

    x = B_OP(&b, "constant_pad_nd", at_value(x), at_dims(4, around),
             at_float(0.0));
    AIR_TRY(b.status);
    const ir_value v = *ir_val(g, x);
    air_dim run = one;
    for (int i = rank - 1; i >= 0; i--) {
        int k = i - lead;
        if (k < 0) {
            size[i] = v.dims[i];
            stride[i] = run;
        } else {
            air_dim reach = b_dim2(&b, IR_DIM_SUB, pair(&kernel, k), one);
            reach = b_dim2(&b, IR_DIM_MUL, reach, pair(&dilation, k));
            air_dim n = b_dim2(&b, IR_DIM_SUB, v.dims[i], reach);
            n = b_dim2(&b, IR_DIM_SUB, n, one);
            n = b_dim2(&b, IR_DIM_DIV, n, pair(&step, k));
            size[i] = pair(&kernel, k);
            size[i + 2] = b_dim2(&b, IR_DIM_ADD, n, one);
            stride[i] = b_dim2(&b, IR_DIM_MUL, run, pair(&dilation, k));
            stride[i + 2] = b_dim2(&b, IR_DIM_MUL, run, pair(&step, k));
        }
        run = b_dim2(&b, IR_DIM_MUL, run, v.dims[i]);
    }
    x = B_OP(&b, "as_strided", at_value(x), at_dims((size_t)rank + 2, size),
             at_dims((size_t)rank + 2, stride));
    return build_forward(&b, node, 0,
                         view_of_out(&b, node, b_1(&b, "clone", x)));
}

/* ---- diagonals ----------------------------------------------------------- */

static air_ref
zeros_of_out(pass_build *b, uint32_t node)
{
    const ir_value out = *ir_val(b->g, node_out(b->g, node, 0));
    return b_fullf(b, out.rank, out.dims, 0.0, (air_dtype)out.dtype);
}

/* (a, offset, dim1, dim2), from: the attribute of the offset */
static air_status
embed(pass_context *ctx, uint32_t node, int from)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);

    return build_forward(&b, node, 0,
                         B_OP(&b, "diagonal_scatter",
                              at_value(zeros_of_out(&b, node)), at_value(x),
                              *node_attr(ctx->g, node, from),
                              *node_attr(ctx->g, node, from + 1),
                              *node_attr(ctx->g, node, from + 2)));
}

air_status
expand_diag_embed(pass_context *ctx, uint32_t node)
{
    return embed(ctx, node, 1);
}

/* (grad, sizes, offset, dim1, dim2) */
air_status
expand_diagonal_backward(pass_context *ctx, uint32_t node)
{
    return embed(ctx, node, 2);
}

air_status
expand_trace(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const int first = 0;
    air_ref x = b_1(&b, "diagonal", node_in(ctx->g, node, 0));
    const air_dtype dtype =
        (air_dtype)ir_val(ctx->g, node_out(ctx->g, node, 0))->dtype;

    if (!ir_is_float(dtype))
        x = b_cast(&b, x, dtype);
    return build_forward(&b, node, 0,
                         b_sum(&b, b_wide(&b, x), 1, &first, false));
}

/* Places that nobody reads need not be found. */
air_status
expand_max_pool(pass_context *ctx, uint32_t node)
{
    static const char *const names[][2] = {
        {"max_pool2d_with_indices", "air::max_pool2d"},
        {"max_pool3d_with_indices", "air::max_pool3d"},
        {"adaptive_max_pool2d", "air::adaptive_max_pool2d"},
        {"adaptive_max_pool3d", "air::adaptive_max_pool3d"}};
    const ir_node n = *ir_node_at(ctx->g, node);
    pass_build b = build_at(ctx, node);

    if (ctx->uses[n.outs[1].id] > 0 || (ctx->target && ctx->target->apart))
        return AIR_OK; /* GPUs have torch's kernel, of that name */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(ir_info(&n)->name, names[i][0]) == 0)
            return build_forward(
                &b, node, 0, b_op(&b, names[i][1], (size_t)n.nattrs, n.attrs));
    return AIR_OK;
}
