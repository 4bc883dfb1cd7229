/* expand_norm.c: layer norm, rms norm and group norm, with gradients. */
#include "pass/expand.h"

#include <float.h>

/* A tensor whose axes `axes` are normalised together. */
typedef struct {
    pass_build b;
    uint32_t node;
    air_ref x;                       /* wide */
    int rank, n, axes[AIR_MAX_RANK]; /* normalised */
    int rest, others[AIR_MAX_RANK];  /* not normalised */
} normal;

/* The last `count` axes of operand `x`. */
static air_status
normal_make(pass_context *ctx, uint32_t node, int x, size_t count, normal *r)
{
    air_ref in = node_in(ctx->g, node, x);

    *r = (normal){.b = build_at(ctx, node),
                  .node = node,
                  .rank = ir_val(ctx->g, in)->rank};
    for (int i = 0; i < r->rank; i++)
        if (i < r->rank - (int)count)
            r->others[r->rest++] = i;
        else
            r->axes[r->n++] = i;
    r->x = b_wide(&r->b, in);
    return r->b.status;
}

static air_ref
wide_in(normal *r, int i)
{
    air_ref in = node_in(r->b.g, r->node, i);
    return in.id == AIR_NO_REF.id ? in : b_wide(&r->b, in);
}

static air_ref
mul_some(pass_build *b, air_ref x, air_ref w)
{
    return w.id == AIR_NO_REF.id ? x : b_mul(b, x, w);
}

static air_ref
add_some(pass_build *b, air_ref x, air_ref w)
{
    return w.id == AIR_NO_REF.id ? x : b_add(b, x, w);
}

/* (x - mean) * rstd, both with the normalised axes kept. */
static air_ref
normalise(normal *r, double eps, air_ref *out_mean, air_ref *out_rstd)
{
    pass_build *b = &r->b;

    *out_mean = expand_mean_over(b, r->x, r->n, r->axes, true);
    air_ref d = b_sub(b, r->x, *out_mean);
    air_ref var = expand_mean_over(b, b_mul(b, d, d), r->n, r->axes, true);
    *out_rstd = b_1(b, "rsqrt", b_addf(b, var, eps));
    return b_mul(b, d, *out_rstd);
}

/* rstd * (gy - mean(gy) - xhat * mean(gy * xhat)) */
static air_ref
normal_gradient(normal *r, air_ref gy, air_ref xhat, air_ref rstd, bool centre)
{
    pass_build *b = &r->b;
    air_ref dot = expand_mean_over(b, b_mul(b, gy, xhat), r->n, r->axes, true);
    air_ref dx = b_sub(b, gy, b_mul(b, xhat, dot));

    if (centre)
        dx = b_sub(b, dx, expand_mean_over(b, gy, r->n, r->axes, true));
    return b_mul(b, dx, rstd);
}

static bool
masked_in(const normal *r, int attr, size_t i)
{
    const air_attr *mask = node_attr(r->b.g, r->node, attr);
    return mask->kind == AIR_ATTR_BOOLS && i < mask->count && mask->bools[i];
}

/* ---- layer norm ---------------------------------------------------------- */

/* (input, normalized_shape, weight?, bias?, eps) -> (y, mean, rstd) */
air_status
expand_layer_norm(pass_context *ctx, uint32_t node)
{
    normal r;
    double eps;
    air_ref mean, rstd;

    AIR_TRY(node_number(ctx->g, node, 4, &eps));
    AIR_TRY(normal_make(ctx, node, 0, node_attr(ctx->g, node, 1)->count, &r));
    air_ref y = normalise(&r, eps, &mean, &rstd);
    y = mul_some(&r.b, y, wide_in(&r, 2));
    y = add_some(&r.b, y, wide_in(&r, 3));
    AIR_TRY(build_forward(&r.b, node, 0, y));
    AIR_TRY(build_forward(&r.b, node, 1, mean));
    return build_forward(&r.b, node, 2, rstd);
}

/* (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask[3]) */
air_status
expand_layer_norm_backward(pass_context *ctx, uint32_t node)
{
    normal r;

    AIR_TRY(normal_make(ctx, node, 1, node_attr(ctx->g, node, 2)->count, &r));
    pass_build *b = &r.b;
    air_ref grad = wide_in(&r, 0), rstd = wide_in(&r, 4);
    air_ref xhat = b_mul(b, b_sub(b, r.x, wide_in(&r, 3)), rstd);

    if (masked_in(&r, 7, 0)) {
        air_ref gy = mul_some(b, grad, wide_in(&r, 5));
        AIR_TRY(build_forward(b, node, 0,
                              normal_gradient(&r, gy, xhat, rstd, true)));
    }
    if (masked_in(&r, 7, 1)) {
        air_ref dw = b_sum(b, b_mul(b, grad, xhat), r.rest, r.others, false);
        AIR_TRY(build_forward(b, node, 1, dw));
    }
    if (masked_in(&r, 7, 2)) {
        air_ref db = b_sum(b, grad, r.rest, r.others, false);
        AIR_TRY(build_forward(b, node, 2, db));
    }
    return b->status;
}

/* ---- rms norm ------------------------------------------------------------ */

/* (input, normalized_shape, weight?, eps?) -> (y, rstd), or y alone */
air_status
expand_rms_norm(pass_context *ctx, uint32_t node)
{
    normal r;
    air_ref in = node_in(ctx->g, node, 0);
    /* ATen's default is that of the dtype it computes in */
    double eps = ir_val(ctx->g, in)->dtype == AIR_F64 ? DBL_EPSILON
                                                      : (double)FLT_EPSILON;

    if (node_attr(ctx->g, node, 3)->kind != AIR_ATTR_NONE)
        AIR_TRY(node_number(ctx->g, node, 3, &eps));
    AIR_TRY(normal_make(ctx, node, 0, node_attr(ctx->g, node, 1)->count, &r));
    pass_build *b = &r.b;
    air_ref square = b_mul(b, r.x, r.x);
    air_ref var = expand_mean_over(b, square, r.n, r.axes, true);
    air_ref rstd = b_1(b, "rsqrt", b_addf(b, var, eps));
    air_ref weight = wide_in(&r, 2);
    air_ref y = mul_some(b, b_mul(b, r.x, rstd), weight);
    AIR_TRY(build_forward(b, node, 0, y));
    if (ir_node_at(ctx->g, node)->nouts == 1)
        return AIR_OK;
    return build_forward(b, node, 1, rstd);
}

/* (grad, input, normalized_shape, rstd, weight?, mask[2]) */
air_status
expand_rms_norm_backward(pass_context *ctx, uint32_t node)
{
    normal r;

    AIR_TRY(normal_make(ctx, node, 1, node_attr(ctx->g, node, 2)->count, &r));
    pass_build *b = &r.b;
    air_ref grad = wide_in(&r, 0), rstd = wide_in(&r, 3);
    air_ref xhat = b_mul(b, r.x, rstd);

    if (masked_in(&r, 5, 0)) {
        air_ref gy = mul_some(b, grad, wide_in(&r, 4));
        AIR_TRY(build_forward(b, node, 0,
                              normal_gradient(&r, gy, xhat, rstd, false)));
    }
    if (masked_in(&r, 5, 1)) {
        air_ref dw = b_sum(b, b_mul(b, grad, xhat), r.rest, r.others, false);
        AIR_TRY(build_forward(b, node, 1, dw));
    }
    return b->status;
}

/* ---- group norm ---------------------------------------------------------- */

/* Statistics are of [N, group, C / group * HxW]; the rest is done on the axes
 * of the input (gradients: on [N, C, HxW]), the mean taken off first: a shift
 * by scale * mean would lose as many bits as the mean is larger than what is
 * left. */
typedef struct {
    pass_build b;
    uint32_t node;
    air_dim n, group, each, one;               /* each: channels of a group */
    air_dim image[3], grouped[3], channels[3]; /* sizes of views */
    air_dim per_group;                         /* elements */
} groups;

/* n: the attribute that is N; C, HxW and group follow it. */
static air_status
groups_make(pass_context *ctx, uint32_t node, int n, groups *r)
{
    *r = (groups){.b = build_at(ctx, node), .node = node};
    pass_build *b = &r->b;
    air_dim c = node_attr(ctx->g, node, n + 1)->dim;
    air_dim hw = node_attr(ctx->g, node, n + 2)->dim;

    r->n = node_attr(ctx->g, node, n)->dim;
    r->group = node_attr(ctx->g, node, n + 3)->dim;
    r->each = b_dim2(b, IR_DIM_DIV, c, r->group);
    r->one = b_dim(b, 1);
    r->per_group = b_dim2(b, IR_DIM_MUL, r->each, hw);
    const air_dim image[3] = {r->n, c, hw};
    const air_dim grouped[3] = {r->n, r->group, r->per_group};
    const air_dim channels[3] = {r->n, r->group, r->each};
    for (int i = 0; i < 3; i++) {
        r->image[i] = image[i];
        r->grouped[i] = grouped[i];
        r->channels[i] = channels[i];
    }
    return b->status;
}

static air_ref
group_in(groups *r, int i)
{
    air_ref in = node_in(r->b.g, r->node, i);
    return in.id == AIR_NO_REF.id ? in : b_wide(&r->b, in);
}

/* An input as a view of three axes; widened behind that, since what uses the
 * one view takes its conversion along. */
static air_ref
viewed_in(groups *r, int i, const air_dim *dims)
{
    return b_wide(&r->b, b_view(&r->b, node_in(r->b.g, r->node, i), 3, dims));
}

/* [C] or [N, group] as [1 or N, group, C / group or 1]. */
static air_ref
of_channels(groups *r, air_ref x, bool weight)
{
    const air_dim dims[3] = {weight ? r->one : r->n, r->group,
                             weight ? r->each : r->one};
    return x.id == AIR_NO_REF.id ? x : b_view(&r->b, x, 3, dims);
}

/* One number a channel for every pixel of it. */
static air_ref
of_pixels(groups *r, air_ref x)
{
    const air_dim dims[3] = {r->n, r->image[1], r->one};
    return b_view(&r->b, b_expand(&r->b, x, 3, r->channels), 3, dims);
}

static air_status
forward_viewed(groups *r, int index, air_ref y)
{
    air_ref out = node_out(r->b.g, r->node, index);

    y = b_cast(&r->b, y, ir_val(r->b.g, out)->dtype);
    if (r->b.status == AIR_OK && !pass_same_dims(r->b.g, y, out))
        y = b_view(&r->b, y, ir_val(r->b.g, out)->rank,
                   ir_val(r->b.g, out)->dims);
    return build_forward(&r->b, r->node, index, y);
}

/* One number a channel with the axes of x, for every pixel of it: what is done
 * on x as it is fuses with what reads it, and lies as it does. */
static air_ref
along(groups *r, air_ref number, air_ref x)
{
    const int rank = ir_val(r->b.g, x)->rank;
    air_dim dims[AIR_MAX_RANK];

    for (int i = 0; i < rank; i++)
        dims[i] = i == 0 ? r->n : i == 1 ? r->image[1] : r->one;
    return b_view(&r->b, b_expand(&r->b, number, 3, r->channels), rank, dims);
}

/* (input, weight?, bias?, N, C, HxW, group, eps) -> (y, mean, rstd) */
air_status
expand_group_norm(pass_context *ctx, uint32_t node)
{
    const air_ref in = node_in(ctx->g, node, 0);
    const int last = 2;
    groups r;
    double eps;

    AIR_TRY(node_number(ctx->g, node, 7, &eps));
    AIR_TRY(groups_make(ctx, node, 3, &r));
    pass_build *b = &r.b;
    air_ref x = viewed_in(&r, 0, r.grouped);
    air_ref mean = expand_mean_over(b, x, 1, &last, true);
    air_ref d = b_sub(b, x, mean);
    air_ref var = expand_mean_over(b, b_mul(b, d, d), 1, &last, true);
    air_ref rstd = b_1(b, "rsqrt", b_addf(b, var, eps));
    air_ref w = of_channels(&r, group_in(&r, 1), true);
    air_ref bias = of_channels(&r, group_in(&r, 2), true);
    air_ref scale = along(&r, mul_some(b, rstd, w), in);
    air_ref middle = along(&r, mean, in);
    air_ref y = b_sub(b, b_wide(b, in), middle);
    y = bias.id == AIR_NO_REF.id ? b_mul(b, y, scale)
                                 : b_fma(b, y, scale, along(&r, bias, in));
    AIR_TRY(forward_viewed(&r, 0, y));
    AIR_TRY(forward_viewed(&r, 1, mean));
    return forward_viewed(&r, 2, rstd);
}

/* Per channel: *out_sum = sum(grad), *out_dot = sum(grad * xhat). */
static air_ref
group_sums(groups *r, air_ref grad, air_ref *out_sum, air_ref *out_dot)
{
    const int last = 2;
    pass_build *b = &r->b;
    air_ref mean = of_channels(r, group_in(r, 2), false);
    air_ref rstd = of_channels(r, group_in(r, 3), false);
    air_ref x = viewed_in(r, 1, r->image);
    air_ref d = b_sub(b, x, of_pixels(r, mean));
    air_ref xhat = b_mul(b, d, of_pixels(r, rstd));

    *out_sum = b_view(b, b_sum(b, grad, 1, &last, true), 3, r->channels);
    *out_dot = b_view(b, b_sum(b, b_mul(b, grad, xhat), 1, &last, true), 3,
                      r->channels);
    return xhat;
}

/* (grad, input, mean, rstd, weight?, N, C, HxW, group, mask[3]):
 * rstd * (grad * w - mean(grad * w) - xhat * mean(grad * w * xhat)) */
air_status
expand_group_norm_backward(pass_context *ctx, uint32_t node)
{
    const int first = 0, last = 2;
    groups r;
    air_ref sum, dot;

    AIR_TRY(groups_make(ctx, node, 5, &r));
    pass_build *b = &r.b;
    const air_attr mask = *node_attr(ctx->g, node, 9);
    air_ref grad = viewed_in(&r, 0, r.image);
    air_ref xhat = group_sums(&r, grad, &sum, &dot);
    if (mask.bools[0]) {
        air_ref w = of_channels(&r, group_in(&r, 4), true);
        air_ref rstd = of_channels(&r, group_in(&r, 3), false);
        air_ref part = b_sum(b, mul_some(b, sum, w), 1, &last, true);
        air_ref slope = b_sum(b, mul_some(b, dot, w), 1, &last, true);
        part = b_mul(b, b_divd(b, part, r.per_group), rstd);
        slope = b_mul(b, b_divd(b, slope, r.per_group), rstd);
        air_ref dx = b_mul(b, grad, of_pixels(&r, mul_some(b, rstd, w)));
        dx = b_sub(b, dx, b_mul(b, xhat, of_pixels(&r, slope)));
        dx = b_sub(b, dx, of_pixels(&r, part));
        AIR_TRY(forward_viewed(&r, 0, dx));
    }
    if (mask.bools[1])
        AIR_TRY(forward_viewed(&r, 1, b_sum(b, dot, 1, &first, false)));
    if (mask.bools[2])
        AIR_TRY(forward_viewed(&r, 2, b_sum(b, sum, 1, &first, false)));
    return b->status;
}
