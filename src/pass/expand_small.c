/* expand_small.c: operators of a few pointwise and reduce nodes that belong to
 * no family. */
#include "pass/expand.h"

#include <math.h>

/* -> (log(sigmoid(a)), exp(-|a|)) */
air_status
expand_log_sigmoid(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), wide = b_wide(&b, x);
    air_ref size = b_1(&b, "neg", b_1(&b, "abs", wide));

    AIR_TRY(build_forward(&b, node, 0, b_1(&b, "log_sigmoid", x)));
    return build_forward(&b, node, 1, b_exp(&b, size));
}

/* (grad, a, weight) -> of a, of each weight's use */
air_status
expand_prelu_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref x = b_wide(&b, node_in(ctx->g, node, 1));
    air_ref weight = b_wide(&b, node_in(ctx->g, node, 2));
    air_ref positive = b_2f(&b, "gt.Tensor", x, 0.0);
    air_ref to_weight = B_OP(&b, "where.self", at_value(positive),
                             at_float(0.0), at_value(b_mul(&b, x, grad)));

    AIR_TRY(build_forward(
        &b, node, 0, b_where(&b, positive, grad, b_mul(&b, weight, grad))));
    return build_forward(&b, node, 1, to_weight);
}

/* a[mask] = value, of one number: the mask has the first axes of a. */
air_status
expand_index_put(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), value = node_in(ctx->g, node, 2);
    const air_attr indices = *node_attr(ctx->g, node, 1);
    air_ref mask = indices.values[0];

    if (indices.count != 1 || mask.id == AIR_NO_REF.id ||
        ir_val(ctx->g, mask)->dtype != AIR_BOOL)
        return AIR_OK;
    int missing = ir_val(ctx->g, x)->rank - ir_val(ctx->g, mask)->rank;
    for (int i = 0; i < missing; i++)
        mask = b_unsqueeze(&b, mask, -1);
    return build_forward(&b, node, 0, b_where(&b, mask, value, x));
}

/* ---- weight norm --------------------------------------------------------- */

/* All axes but that of attribute `attr` (-1 for none: all). */
static air_status
other_axes(const ir_graph *g, uint32_t node, int attr, int rank, int *out_n,
           int *out_axes)
{
    int64_t axis;

    *out_n = 0;
    AIR_TRY(node_int(g, node, attr, &axis));
    AIR_REQUIRE(axis == 0 || axis == rank - 1, AIR_ERROR_UNSUPPORTED,
                "weight norm over an axis inside");
    for (int i = 0; i < rank; i++)
        if (i != axis)
            out_axes[(*out_n)++] = i;
    return AIR_OK;
}

/* (v, g, dim) -> v g / |v|, |v| */
air_status
expand_weight_norm(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref v = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref g = b_wide(&b, node_in(ctx->g, node, 1));
    int n, axes[AIR_MAX_RANK];

    AIR_TRY(b.status);
    AIR_TRY(other_axes(ctx->g, node, 2, ir_val(ctx->g, v)->rank, &n, axes));
    air_ref norm = b_sqrt(&b, b_sum(&b, b_mul(&b, v, v), n, axes, true));
    AIR_TRY(build_forward(&b, node, 0, b_mul(&b, v, b_div(&b, g, norm))));
    return build_forward(&b, node, 1, norm);
}

/* (grad, v, g, norms, dim), with s the sum of grad v:
 * of v: g / |v| (grad - v s / |v|^2), of g: s / |v| */
air_status
expand_weight_norm_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref v = b_wide(&b, node_in(ctx->g, node, 1));
    air_ref g = b_wide(&b, node_in(ctx->g, node, 2));
    air_ref norm = b_wide(&b, node_in(ctx->g, node, 3));
    int n, axes[AIR_MAX_RANK];

    AIR_TRY(b.status);
    AIR_TRY(other_axes(ctx->g, node, 4, ir_val(ctx->g, v)->rank, &n, axes));
    air_ref sum = b_sum(&b, b_mul(&b, grad, v), n, axes, true);
    air_ref part = b_div(&b, sum, b_mul(&b, norm, norm));
    air_ref slope = b_sub(&b, grad, b_mul(&b, v, part));
    AIR_TRY(build_forward(&b, node, 0, b_mul(&b, b_div(&b, g, norm), slope)));
    return build_forward(&b, node, 1, b_div(&b, sum, norm));
}

/* ---- distances ----------------------------------------------------------- */

/* x - y of every pair of rows: [.., P, R, M] */
static air_ref
differences(pass_build *b, air_ref x, air_ref y)
{
    y = b_unsqueeze(b, y, -3);
    return b_sub(b, b_unsqueeze(b, x, -2), y);
}

/* (sum of |d|^p)^(1/p) over the last axis */
static air_ref
length(pass_build *b, air_ref d, double p, int last)
{
    if (p == 2.0)
        return b_sqrt(b, b_sum(b, b_mul(b, d, d), 1, &last, false));
    d = b_1(b, "abs", d);
    if (p == 1.0)
        return b_sum(b, d, 1, &last, false);
    if (isinf(p))
        return b_amax(b, d, 1, &last, false);
    if (p == 0.0) {
        air_ref one = b_2f(b, "ne.Tensor", d, 0.0);
        return b_sum(b, b_cast(b, one, AIR_F32), 1, &last, false);
    }
    d = b_sum(b, b_2f(b, "pow.Tensor_Scalar", d, p), 1, &last, false);
    return b_2f(b, "pow.Tensor_Scalar", d, 1.0 / p);
}

/* (x, y): p = 2 of many rows, as ATen does: sqrt(x x - 2 x y + y y), not below
 * 0 */
air_status
expand_euclidean_dist(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref y = b_wide(&b, node_in(ctx->g, node, 1));
    const int rank = ir_val(ctx->g, node_in(ctx->g, node, 0))->rank;
    const int last = rank - 1;
    const air_attr back = at_int(&b, -2), front = at_int(&b, -1);

    AIR_REQUIRE((rank == 2 || rank == 3) &&
                    ir_val(ctx->g, node_in(ctx->g, node, 1))->rank == rank,
                AIR_ERROR_UNSUPPORTED, "distances of more than 3 dims");
    air_ref xx = b_sum(&b, b_mul(&b, x, x), 1, &last, true);
    air_ref yy = b_sum(&b, b_mul(&b, y, y), 1, &last, true);
    y = B_OP(&b, "transpose.int", at_value(y), back, front);
    yy = B_OP(&b, "transpose.int", at_value(yy), back, front);
    air_ref xy = b_2(&b, rank == 2 ? "mm" : "bmm", x, y);
    air_ref sum = b_add(&b, b_sub(&b, xx, b_mulf(&b, xy, 2.0)), yy);
    sum = B_OP(&b, "clamp_min", at_value(sum), at_float(0.0));
    return build_forward(&b, node, 0, b_sqrt(&b, sum));
}

/* (x, y, p, compute_mode) */
air_status
expand_cdist(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), y = node_in(ctx->g, node, 1);
    const int rank = ir_val(ctx->g, node_out(ctx->g, node, 0))->rank;
    double p;

    AIR_TRY(node_number(ctx->g, node, 2, &p));
    AIR_REQUIRE(rank < AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "cdist of more than %d dims", AIR_MAX_RANK - 1);
    air_ref d = length(&b, differences(&b, x, y), p, rank);
    return build_forward(&b, node, 0, d);
}
