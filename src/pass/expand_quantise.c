/* expand_quantise.c: numbers as if they were quantised (in training that knows
 * of it), and which of them the integers can stand for. */
#include "pass/expand.h"

typedef struct {
    air_attr scale, inverse, zero; /* inverse: 1 / scale, rounded to f32 */
    air_attr least, most;
    bool last, wraps; /* of ATen's kernel of channels: zero is a float and added
                         before rounding; integers wrap */
} levels;

static levels
levels_of(const ir_graph *g, uint32_t node, int at)
{
    return (levels){.least = *node_attr(g, node, at),
                    .most = *node_attr(g, node, at + 1)};
}

/* zero: an integer or float of any dtype, as numbers of the lane */
static void
set_tensors(pass_build *b, levels *l, air_ref scale, air_ref zero)
{
    scale = b_cast(b, scale, AIR_F32);
    l->scale = at_value(scale);
    l->inverse = at_value(b_1(b, "reciprocal", scale));
    l->zero = at_value(b_cast(b, zero, AIR_F32));
}

/* ATen's kernel of whole tensors has them in f32. */
static air_ref
values(pass_build *b, air_ref x, const levels *l)
{
    air_ref y =
        B_OP(b, "air::fake_quantize", at_value(x), l->inverse, l->scale,
             l->zero, l->least, l->most, at_bool(l->last), at_bool(l->wraps));

    if (b->status != AIR_OK || l->wraps || ir_val(b->g, x)->dtype != AIR_F64)
        return y;
    return b_cast(b, b_cast(b, y, AIR_F32), AIR_F64);
}

static air_ref
mask(pass_build *b, air_ref x, const levels *l)
{
    return B_OP(b, "air::fake_quantize_mask", at_value(x), l->inverse, l->zero,
                l->least, l->most, at_bool(l->last), at_bool(l->wraps));
}

static air_status
finish(pass_build *b, uint32_t node, air_ref x, const levels *l)
{
    AIR_TRY(build_forward(b, node, 0, values(b, x, l)));
    return build_forward(b, node, 1, mask(b, x, l));
}

/* (a, scale, zero_point, quant_min, quant_max) */
air_status
expand_fake_quantize(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    levels l = levels_of(ctx->g, node, 3);
    double scale;

    AIR_TRY(node_number(ctx->g, node, 1, &scale));
    l.scale = at_float((float)scale);
    l.inverse = at_float(1 / (float)scale);
    l.zero = *node_attr(ctx->g, node, 2);
    return finish(&b, node, node_in(ctx->g, node, 0), &l);
}

/* (a, scale, zero_point, enabled, quant_min, quant_max), tensors of one number
 */
air_status
expand_fake_quantize_by(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    levels l = levels_of(ctx->g, node, 4);
    air_ref x = node_in(ctx->g, node, 0), one[3];

    for (int i = 0; i < 3; i++)
        one[i] = b_view(&b, node_in(ctx->g, node, i + 1), 0, NULL);
    set_tensors(&b, &l, one[0], one[1]);
    air_ref on = b_2f(&b, "ne.Tensor", one[2], 0);
    air_ref off = b_1(&b, "logical_not", on);
    AIR_TRY(build_forward(&b, node, 0, b_where(&b, on, values(&b, x, &l), x)));
    return build_forward(&b, node, 1,
                         b_2(&b, "logical_or", mask(&b, x, &l), off));
}

/* (a, scale, zero_point, axis, quant_min, quant_max) */
air_status
expand_fake_quantize_channels(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    levels l = levels_of(ctx->g, node, 4);
    air_ref x = node_in(ctx->g, node, 0);
    const int rank = ir_val(ctx->g, x)->rank;
    int axis;

    AIR_TRY(ir_axis(ctx->g, node_attr(ctx->g, node, 3), rank, "axis", &axis));
    if (ctx->target && ctx->target->apart)
        return AIR_OK; /* a GPU has torch's kernel, which rounds otherwise */
    l.wraps = true;
    l.last =
        ir_is_float((air_dtype)ir_val(ctx->g, node_in(ctx->g, node, 2))->dtype);
    air_ref zero = b_along(&b, node_in(ctx->g, node, 2), rank, axis);
    set_tensors(&b, &l, b_along(&b, node_in(ctx->g, node, 1), rank, axis),
                zero);
    return finish(&b, node, x, &l);
}
