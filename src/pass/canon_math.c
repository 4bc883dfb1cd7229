/* canon_math.c: arithmetic that has a simpler equal. Only what is equal bit
 * for bit, unless the mode is max-autotune. */
#include "pass/canon.h"

#include <math.h>

/* Is attribute i the number v? */
static bool
is_number(pass_context *ctx, uint32_t node, int i, double v)
{
    double x;

    return pass_number(ctx->g, node_attr(ctx->g, node, i), &x) && x == v &&
           !(x == 0.0 && signbit(x));
}

static air_status
drop_first(pass_context *ctx, uint32_t node)
{
    air_ref x = node_in(ctx->g, node, 0);
    return x.id == AIR_NO_REF.id ? AIR_OK : canon_drop(ctx, node, x);
}

air_status
canon_mul(pass_context *ctx, uint32_t node)
{
    return is_number(ctx, node, 1, 1.0) ? drop_first(ctx, node) : AIR_OK;
}

air_status
canon_div(pass_context *ctx, uint32_t node)
{
    return is_number(ctx, node, 1, 1.0) ? drop_first(ctx, node) : AIR_OK;
}

/* -0.0 + 0.0 is 0.0: for floats only x - 0 keeps every bit. */
air_status
canon_add(pass_context *ctx, uint32_t node)
{
    air_dtype dtype =
        (air_dtype)ir_val(ctx->g, node_out(ctx->g, node, 0))->dtype;
    bool done;

    AIR_TRY(canon_sum_of_parts(ctx, node, &done));
    if (done || (pass_exact(ctx) && ir_is_float(dtype)))
        return AIR_OK;
    return is_number(ctx, node, 1, 0.0) ? drop_first(ctx, node) : AIR_OK;
}

air_status
canon_sub(pass_context *ctx, uint32_t node)
{
    return is_number(ctx, node, 1, 0.0) ? drop_first(ctx, node) : AIR_OK;
}

/* rsub(a, b, alpha) = b - alpha * a */
air_status
canon_rsub(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);

    if (!pass_allow(ctx))
        return AIR_OK;
    return build_forward(&b, node, 0,
                         B_OP(&b, "sub.Tensor", *node_attr(ctx->g, node, 1),
                              *node_attr(ctx->g, node, 0),
                              *node_attr(ctx->g, node, 2)));
}

/* What ATen's kernel computes for these exponents; it rounds each product. */
static air_ref
power(pass_build *b, air_ref x, double p, bool is_float)
{
    if (p == 2.0)
        return b_mul(b, x, x);
    if (p == 3.0)
        return b_mul(b, b_mul(b, x, x), x);
    if (!is_float)
        return AIR_NO_REF;
    if (p == 0.5)
        return b_sqrt(b, x);
    if (p == -0.5)
        return b_1(b, "rsqrt", x);
    if (p == -1.0)
        return b_1(b, "reciprocal", x);
    if (p == -2.0)
        return b_1(b, "reciprocal", b_mul(b, x, x));
    return AIR_NO_REF;
}

air_status
canon_pow(pass_context *ctx, uint32_t node)
{
    air_ref x = node_in(ctx->g, node, 0), out = node_out(ctx->g, node, 0);
    pass_build b = build_at(ctx, node);
    double p;

    if (x.id == AIR_NO_REF.id ||
        !pass_number(ctx->g, node_attr(ctx->g, node, 1), &p) ||
        ir_val(ctx->g, x)->dtype != ir_val(ctx->g, out)->dtype)
        return AIR_OK;
    if (p == 1.0)
        return canon_drop(ctx, node, x);
    bool is_float = ir_is_float((air_dtype)ir_val(ctx->g, x)->dtype);
    bool known =
        p == 2.0 || p == 3.0 ||
        (is_float && (p == 0.5 || p == -0.5 || p == -1.0 || p == -2.0));
    if (!known || !pass_allow(ctx))
        return AIR_OK;
    return build_forward(&b, node, 0, power(&b, x, p, is_float));
}

/* (a, dim, index, source, alpha): where ATen keeps sums of halves in f32, which
 * are those of rows and of columns that nothing multiplies. */
air_status
canon_index_add(pass_context *ctx, uint32_t node)
{
    const ir_value v = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    int64_t axis;

    if ((v.dtype != AIR_BF16 && v.dtype != AIR_F16) || v.rank < 2 ||
        !pass_int(ctx->g, node_attr(ctx->g, node, 1), &axis) ||
        (axis % v.rank != 0 && (axis + 1) % v.rank != 0) ||
        !is_number(ctx, node, 4, 1.0) || (ctx->target && ctx->target->apart))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    const air_ref a = b_wide(&b, node_in(ctx->g, node, 0));
    const air_ref source = b_wide(&b, node_in(ctx->g, node, 3));
    const air_ref sum =
        B_OP(&b, "index_add", at_value(a), *node_attr(ctx->g, node, 1),
             *node_attr(ctx->g, node, 2), at_value(source),
             *node_attr(ctx->g, node, 4));
    return build_forward(&b, node, 0, b_cast(&b, sum, (air_dtype)v.dtype));
}
