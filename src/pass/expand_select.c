/* expand_select.c: operators that pick, place or compare elements, written in
 * index, scatter and where; views that are copied. */
#include "pass/expand.h"

#include <string.h>

static air_ref
flat(pass_build *b, air_ref x)
{
    air_dim size;

    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const ir_value *v = ir_val(b->g, x);
    b->status = ir_dim_product(b->g, v->rank, v->dims, &size);
    return b_view(b, x, 1, &size);
}

static air_ref
shaped_as(pass_build *b, air_ref x, air_ref like)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const ir_value *v = ir_val(b->g, like);
    return b_view(b, x, v->rank, v->dims);
}

static air_ref
spread_as(pass_build *b, air_ref x, air_ref like)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const ir_value *v = ir_val(b->g, like);
    return b_expand(b, x, v->rank, v->dims);
}

static air_attr
at_text(const char *text)
{
    return (air_attr){.kind = AIR_ATTR_STR, .str = text};
}

/* ---- views that are copied ----------------------------------------------- */

/* NAME_copy: the view of that name, cloned */
air_status
expand_view_copy(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const ir_op_info *info = ir_info(ir_node_at(ctx->g, node));
    const char *at = strstr(info->name, "_copy");
    const int count = ir_node_at(ctx->g, node)->nouts;
    air_ref *views;
    char name[64];

    AIR_REQUIRE(at != NULL && strlen(info->name) < sizeof name,
                AIR_ERROR_UNSUPPORTED, "%s: no copy of a view", info->name);
    memcpy(name, info->name, (size_t)(at - info->name));
    strcpy(name + (at - info->name), at + strlen("_copy"));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)count, &views));
    b_node(&b, name, info->nparams, ir_node_at(ctx->g, node)->attrs,
           (size_t)count, views);
    AIR_TRY(b.status);
    for (int i = 0; i < count; i++)
        AIR_TRY(build_forward(&b, node, i, b_1(&b, "clone", views[i])));
    return AIR_OK;
}

/* ---- places -------------------------------------------------------------- */

/* (a, mask, source): the elements of source, in order, where the mask is set.
 * The n-th set place takes element n, and what is not set takes any. */
air_status
expand_masked_scatter(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref out = node_out(ctx->g, node, 0);
    air_ref mask = spread_as(&b, node_in(ctx->g, node, 1), out);
    air_ref x = spread_as(&b, node_in(ctx->g, node, 0), out);
    air_ref source = flat(&b, node_in(ctx->g, node, 2));
    int64_t size;

    AIR_TRY(b.status);
    if (ir_dim_is_const(ctx->g, ir_val(ctx->g, source)->dims[0], &size) &&
        size == 0)
        return build_forward(&b, node, 0, b_1(&b, "clone", x));
    mask = b_cast(&b, mask, AIR_BOOL);
    air_ref count = flat(&b, b_cast(&b, mask, AIR_I64));
    count = B_OP(&b, "cumsum", at_value(count), at_int(&b, 0));
    air_ref place = B_OP(&b, "sub.Scalar", at_value(count), at_int(&b, 1));
    place = B_OP(&b, "where.ScalarOther", at_value(flat(&b, mask)),
                 at_value(place), at_int(&b, 0));
    air_ref taken = B_OP(&b, "index_select", at_value(source), at_int(&b, 0),
                         at_value(place));
    taken = shaped_as(&b, taken, out);
    return build_forward(&b, node, 0, b_where(&b, mask, taken, x));
}

/* (a, index): of the flat tensor */
air_status
expand_take(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = flat(&b, node_in(ctx->g, node, 0));
    const air_ref index = node_in(ctx->g, node, 1);

    return build_forward(
        &b, node, 0,
        B_OP(&b, "index.Tensor", at_value(x), at_values(&b, 1, &index)));
}

/* (a, index, source, accumulate): into the flat tensor */
air_status
expand_put(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref a = node_in(ctx->g, node, 0);
    const air_ref index = flat(&b, node_in(ctx->g, node, 1));
    air_ref source = flat(&b, node_in(ctx->g, node, 2));
    air_ref x =
        B_OP(&b, "index_put", at_value(flat(&b, a)), at_values(&b, 1, &index),
             at_value(source), at_bool(node_flag(ctx->g, node, 3)));

    return build_forward(&b, node, 0, shaped_as(&b, x, a));
}

/* The indices where the mask is set, and 0 elsewhere: those may be out of
 * range. */
static air_attr
masked_indices(pass_build *b, uint32_t node, air_ref mask)
{
    const air_attr list = *node_attr(b->g, node, 2);
    air_ref *out;

    if (b->status == AIR_OK)
        b->status = BASE_ARENA_ARRAY(b->ctx->scratch, list.count, &out);
    for (size_t i = 0; i < list.count && b->status == AIR_OK; i++)
        out[i] = list.values[i].id == AIR_NO_REF.id
                     ? AIR_NO_REF
                     : B_OP(b, "where.ScalarOther", at_value(mask),
                            at_value(list.values[i]), at_int(b, 0));
    return b->status == AIR_OK ? at_values(b, list.count, out) : list;
}

/* (a, mask, indices, fill) */
air_status
expand_masked_index(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), mask = node_in(ctx->g, node, 1);

    x = B_OP(&b, "index.Tensor", at_value(x), masked_indices(&b, node, mask));
    return build_forward(&b, node, 0,
                         B_OP(&b, "where.ScalarOther", at_value(mask),
                              at_value(x), *node_attr(ctx->g, node, 3)));
}

/* (a, mask, indices, values) */
air_status
expand_masked_index_put(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref mask = node_in(ctx->g, node, 1), x = node_in(ctx->g, node, 3);

    x = B_OP(&b, "where.ScalarOther", at_value(mask), at_value(x),
             at_int(&b, 0));
    AIR_TRY(b.status);
    x = b_cast(&b, x,
               (air_dtype)ir_val(ctx->g, node_out(ctx->g, node, 0))->dtype);
    return build_forward(
        &b, node, 0,
        B_OP(&b, "index_put", at_value(node_in(ctx->g, node, 0)),
             masked_indices(&b, node, mask), at_value(x), at_bool(true)));
}

/* (a, dim, index, source, reduce, include_self): scatter_reduce with the index
 * of a slice for all of its elements */
air_status
expand_index_reduce(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const air_ref source = node_in(ctx->g, node, 3);
    const int rank = ir_val(ctx->g, source)->rank;
    int axis;

    AIR_TRY(ir_axis(ctx->g, node_attr(ctx->g, node, 1), rank, "dim", &axis));
    air_ref index = b_along(&b, node_in(ctx->g, node, 2), rank, axis);
    index = spread_as(&b, index, source);
    return build_forward(
        &b, node, 0,
        B_OP(&b, "scatter_reduce.two", at_value(node_in(ctx->g, node, 0)),
             *node_attr(ctx->g, node, 1), at_value(index), at_value(source),
             *node_attr(ctx->g, node, 4), *node_attr(ctx->g, node, 5)));
}

/* (a, dim, index, src or a number, reduce): "add" or "multiply" */
air_status
expand_scatter_fold(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const air_ref x = node_in(ctx->g, node, 0);
    const air_ref index = node_in(ctx->g, node, 2);
    const air_attr how = *node_attr(ctx->g, node, 4);
    air_ref source = node_in(ctx->g, node, 3);
    const bool add = strcmp(how.str, "add") == 0;
    double value;

    AIR_REQUIRE(add || strcmp(how.str, "multiply") == 0, AIR_ERROR_ARGUMENT,
                "scatter: reduce \"%s\" is neither add nor multiply", how.str);
    if (source.id == AIR_NO_REF.id) {
        const ir_value v = *ir_val(ctx->g, index);
        AIR_TRY(node_number(ctx->g, node, 3, &value));
        source = b_fullf(&b, v.rank, v.dims, value,
                         (air_dtype)ir_val(ctx->g, x)->dtype);
    }
    return build_forward(&b, node, 0,
                         B_OP(&b, "scatter_reduce.two", at_value(x),
                              *node_attr(ctx->g, node, 1), at_value(index),
                              at_value(source), at_text(add ? "sum" : "prod"),
                              at_bool(true)));
}

/* ---- membership ---------------------------------------------------------- */

/* (elements, test elements, assume_unique, invert): where an element would
 * stand among the sorted ones is one that equals it */
air_status
expand_isin(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    air_ref tests = flat(&b, node_in(ctx->g, node, 1)), sorted[2];
    int64_t size;

    AIR_TRY(b.status);
    const ir_value out = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    const air_dim count = ir_val(ctx->g, tests)->dims[0];
    const bool invert = node_flag(ctx->g, node, 3);
    if (ir_dim_is_const(ctx->g, count, &size) && size == 0)
        return build_forward(
            &b, node, 0,
            b_fullf(&b, out.rank, out.dims, invert ? 1.0 : 0.0, AIR_BOOL));
    const air_attr sort[1] = {at_value(tests)};
    b_node(&b, "sort", 1, sort, 2, sorted);
    air_ref place =
        B_OP(&b, "searchsorted.Tensor", at_value(sorted[0]), at_value(x));
    air_dim last = b_dim2(&b, IR_DIM_SUB, count, b_dim(&b, 1));
    place = B_OP(&b, "clamp_max", at_value(place), at_dim(last));
    air_ref found =
        B_OP(&b, "index.Tensor", at_value(sorted[0]), at_values(&b, 1, &place));
    return build_forward(&b, node, 0,
                         b_2(&b, invert ? "ne.Tensor" : "eq.Tensor", found, x));
}

/* ---- products ------------------------------------------------------------ */

/* (a, b, dim): a[1] b[2] - a[2] b[1] and so on round */
air_status
expand_cross(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref out = node_out(ctx->g, node, 0), turned[2][2];
    const air_attr axis = *node_attr(ctx->g, node, 2);

    for (int i = 0; i < 2; i++) {
        air_ref x = spread_as(&b, node_in(ctx->g, node, i), out);
        const air_dim dims[1] = {axis.dim};
        for (int k = 0; k < 2; k++) {
            const air_dim by[1] = {b_dim(&b, -1 - k)};
            turned[i][k] =
                B_OP(&b, "roll", at_value(x), at_dims(1, by), at_dims(1, dims));
        }
    }
    air_ref second = b_mul(&b, turned[0][1], turned[1][0]);
    air_ref first = b_mul(&b, turned[0][0], turned[1][1]);
    return build_forward(&b, node, 0, b_sub(&b, first, second));
}

/* (a, x, y, beta, alpha): the products of a batch, summed, are one product of
 * wider operands */
air_status
expand_addbmm(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const ir_value x = *ir_val(ctx->g, node_in(ctx->g, node, 1));
    const ir_value y = *ir_val(ctx->g, node_in(ctx->g, node, 2));
    const air_dim wide = b_dim2(&b, IR_DIM_MUL, x.dims[0], x.dims[2]);
    const air_dim rows[2] = {x.dims[1], wide}, cols[2] = {wide, y.dims[2]};
    air_ref left = b_permute(&b, node_in(ctx->g, node, 1), 3, (int[]){1, 0, 2});

    left = b_view(&b, b_1(&b, "clone", left), 2, rows);
    air_ref right = b_view(&b, node_in(ctx->g, node, 2), 2, cols);
    return build_forward(&b, node, 0,
                         B_OP(&b, "addmm", at_value(node_in(ctx->g, node, 0)),
                              at_value(left), at_value(right),
                              *node_attr(ctx->g, node, 3),
                              *node_attr(ctx->g, node, 4)));
}

/* (a, b, p): the norm of the difference */
air_status
expand_dist(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref d = b_sub(&b, node_in(ctx->g, node, 0), node_in(ctx->g, node, 1));

    return build_forward(
        &b, node, 0,
        B_OP(&b, "norm.Scalar", at_value(d), *node_attr(ctx->g, node, 2)));
}
