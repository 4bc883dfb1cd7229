/* expand_matmul.c: scaled sums of matrix products, and products of vectors. */
#include <math.h>

#include "pass/expand.h"
#include "pass/group.h"

/* x * scale; a product of integers stays one. */
static air_ref
scaled(pass_build *b, air_ref x, double scale, bool whole)
{
    if (scale == 1.0)
        return x;
    if (whole)
        return B_OP(b, "mul.Scalar", at_value(x), at_int(b, (int64_t)scale));
    return b_mulf(b, x, scale);
}

/* beta * x + alpha * y; x is not read where beta is 0. */
static air_ref
combine(pass_build *b, air_ref x, double beta, air_ref y, double alpha,
        bool whole)
{
    y = scaled(b, y, alpha, whole);
    if (beta == 0.0)
        return y;
    return b_add(b, scaled(b, x, beta, whole), y);
}

/* ATen takes both in the dtype of an integer result: 0.6 is 0. */
static air_status
scales(const ir_graph *g, uint32_t node, double *out_beta, double *out_alpha,
       bool *out_whole)
{
    air_ref out = node_out(g, node, 0);

    *out_whole = !ir_is_float((air_dtype)ir_val(g, out)->dtype);
    AIR_TRY(node_number(g, node, 3, out_beta));
    AIR_TRY(node_number(g, node, 4, out_alpha));
    if (*out_whole) {
        *out_beta = trunc(*out_beta);
        *out_alpha = trunc(*out_alpha);
        AIR_REQUIRE(fabs(*out_beta) < 0x1p63 && fabs(*out_alpha) < 0x1p63,
                    AIR_ERROR_UNSUPPORTED,
                    "beta or alpha is no integer of 64 bits");
    }
    return AIR_OK;
}

static air_ref
cast_as_out(pass_build *b, uint32_t node, air_ref x)
{
    if (b->status != AIR_OK)
        return x;
    return b_cast(b, x,
                  (air_dtype)ir_val(b->g, node_out(b->g, node, 0))->dtype);
}

/* A sum that broadcasts to fewer axes than the result has. */
static air_status
forward_scaled(pass_build *b, uint32_t node, air_ref product)
{
    double beta, alpha;
    bool whole;
    air_ref x = node_in(b->g, node, 0), out = node_out(b->g, node, 0);

    AIR_TRY(scales(b->g, node, &beta, &alpha, &whole));
    AIR_TRY(b->status);
    product = b_wide(b, product);
    air_ref y = combine(b, b_wide(b, x), beta, product, alpha, whole);
    y = cast_as_out(b, node, y);
    AIR_TRY(b->status);
    if (!pass_same_dims(b->g, y, out))
        y = b_expand(b, y, ir_val(b->g, out)->rank, ir_val(b->g, out)->dims);
    return build_forward(b, node, 0, y);
}

/* (bias, a, b, beta, alpha): with 1 and 1 it is one kernel and stays. */
static air_status
plain_or_scaled(pass_context *ctx, uint32_t node, const char *product)
{
    pass_build b = build_at(ctx, node);
    double beta, alpha;
    bool whole;

    AIR_TRY(scales(ctx->g, node, &beta, &alpha, &whole));
    if (beta == 1.0 && alpha == 1.0)
        return AIR_OK;
    return forward_scaled(
        &b, node,
        b_2(&b, product, node_in(ctx->g, node, 1), node_in(ctx->g, node, 2)));
}

air_status
expand_addmm(pass_context *ctx, uint32_t node)
{
    return plain_or_scaled(ctx, node, "mm");
}

air_status
expand_baddbmm(pass_context *ctx, uint32_t node)
{
    return plain_or_scaled(ctx, node, "bmm");
}

static bool
is_one(const ir_graph *g, air_ref r, int from_right)
{
    const ir_value *v = ir_val(g, r);

    return group_is_unit(g, v->dims[v->rank - from_right]);
}

/* Are depths and batches the same, not only where the sizes are what they are
 * taken for? */
static bool
is_surely_product(const ir_graph *g, air_ref x, air_ref y)
{
    const ir_value *a = ir_val(g, x), *b = ir_val(g, y);

    return ir_dim_eq(a->dims[a->rank - 1], b->dims[b->rank - 2]) &&
           (a->rank == 2 || ir_dim_eq(a->dims[0], b->dims[0]));
}

/* (a, b) of depth 1: every number of one times every number of the other,
 * which fuses. */
air_status
expand_mm(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), y = node_in(ctx->g, node, 1);

    if (!is_one(ctx->g, x, 1) || !is_surely_product(ctx->g, x, y))
        return AIR_OK;
    return build_forward(&b, node, 0, b_mul(&b, x, y));
}

/* Rows times columns are sums of products. */
air_status
expand_bmm(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0), y = node_in(ctx->g, node, 1);
    const int last = 2;

    if (is_one(ctx->g, x, 1) || !is_one(ctx->g, x, 2) ||
        !is_one(ctx->g, y, 1) || is_one(ctx->g, x, 3) ||
        !is_surely_product(ctx->g, x, y) ||
        !ir_is_float((air_dtype)ir_val(ctx->g, x)->dtype))
        return expand_mm(ctx, node);
    const air_attr one = at_int(&b, 1), two = at_int(&b, 2);
    x = b_wide(&b, x);
    y = b_wide(&b, B_OP(&b, "transpose.int", at_value(y), one, two));
    return build_forward(&b, node, 0,
                         b_sum(&b, b_mul(&b, x, y), 1, &last, true));
}

air_status
expand_int8pack_mm(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref scale = b_unsqueeze(&b, node_in(ctx->g, node, 2), 1);
    air_ref y =
        B_OP(&b, "air::quantised_mm", at_value(node_in(ctx->g, node, 0)),
             at_value(node_in(ctx->g, node, 1)), at_value(scale),
             at_value(AIR_NO_REF), at_value(AIR_NO_REF), at_int(&b, 8),
             at_bool(false));
    return build_forward(&b, node, 0, y);
}

/* [m, k] times [k] */
static air_ref
matrix_vector(pass_build *b, air_ref m, air_ref v)
{
    air_ref y = b_2(b, "mm", m, b_unsqueeze(b, v, 1));
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    return b_view(b, y, 1, ir_val(b->g, m)->dims);
}

air_status
expand_mv(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    return build_forward(
        &b, node, 0,
        matrix_vector(&b, node_in(ctx->g, node, 0), node_in(ctx->g, node, 1)));
}

air_status
expand_addmv(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    return forward_scaled(
        &b, node,
        matrix_vector(&b, node_in(ctx->g, node, 1), node_in(ctx->g, node, 2)));
}

air_status
expand_addr(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref p = b_wide(&b, node_in(ctx->g, node, 1));
    air_ref q = b_wide(&b, node_in(ctx->g, node, 2));
    q = b_unsqueeze(&b, q, 0);
    return forward_scaled(&b, node, b_mul(&b, b_unsqueeze(&b, p, 1), q));
}
