/* expand_reduce.c: reductions made of sums: mean, var, std, norms, counts. */
#include "pass/expand.h"

#include <math.h>
#include <string.h>

air_ref
expand_mean_over(pass_build *b, air_ref x, int n, const int *axes, bool keep)
{
    air_ref sum = b_sum(b, x, n, axes, keep);
    return b_divd(b, sum, b_count(b, x, n, axes));
}

air_ref
expand_in_double(pass_build *b, air_ref x)
{
    if (b->status != AIR_OK)
        return x;
    return ir_val(b->g, x)->dtype == AIR_F32 ? b_cast(b, x, AIR_F64)
                                             : b_wide(b, x);
}

/* A reduction node: operand 0 in the dtype it is computed in, and its axes. */
typedef struct {
    pass_build b;
    air_ref x;
    bool keep;
    int n, axes[AIR_MAX_RANK];
} reduction;

/* dims, keep, dtype: attributes that hold them, -1: the op has none. */
static air_status
reduction_make(pass_context *ctx, uint32_t node, int dims, int keep, int dtype,
               reduction *r)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0);
    int rank = ir_val(g, x)->rank;

    *r = (reduction){.b = build_at(ctx, node)};
    if (dims >= 0)
        AIR_TRY(node_axes(g, node, dims, rank, &r->n, r->axes));
    for (; dims < 0 && r->n < rank; r->n++)
        r->axes[r->n] = r->n;
    r->keep = keep >= 0 && node_flag(g, node, keep);
    if (dtype >= 0 && node_attr(g, node, dtype)->kind == AIR_ATTR_DTYPE)
        x = b_cast(&r->b, x, node_attr(g, node, dtype)->dtype);
    r->x = b_wide(&r->b, x);
    return r->b.status;
}

static air_status
mean(pass_context *ctx, uint32_t node, int dims, int keep, int dtype)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, dims, keep, dtype, &r));
    air_ref y = expand_mean_over(&r.b, r.x, r.n, r.axes, r.keep);
    return build_forward(&r.b, node, 0, y);
}

air_status
expand_mean(pass_context *ctx, uint32_t node)
{
    return mean(ctx, node, -1, -1, 1);
}

air_status
expand_mean_dim(pass_context *ctx, uint32_t node)
{
    return mean(ctx, node, 1, 2, 3);
}

/* ---- variance, in two passes --------------------------------------------- */

/* x / max(0, count - correction) */
static air_ref
divide_corrected(reduction *r, air_ref x, double correction)
{
    pass_build *b = &r->b;
    air_dim count = b_count(b, r->x, r->n, r->axes), zero = b_dim(b, 0);
    int64_t n;

    if (b->status != AIR_OK)
        return AIR_NO_REF;
    if (ir_dim_is_const(b->g, count, &n))
        return b_2f(b, "div.Tensor", x, fmax(0.0, (double)n - correction));
    if (correction != floor(correction) || fabs(correction) > 1e9) {
        b->status = base_fail(AIR_ERROR_UNSUPPORTED, __func__, __LINE__,
                              "var: a fractional correction needs sizes that "
                              "are constants");
        return AIR_NO_REF;
    }
    count = b_dim2(b, IR_DIM_SUB, count, b_dim(b, (int64_t)correction));
    return b_divd(b, x, b_dim2(b, IR_DIM_MAX, count, zero));
}

/* The variance; *out_mean: the mean, axes kept. */
static air_ref
variance(reduction *r, double correction, air_ref *out_mean)
{
    pass_build *b = &r->b;
    air_ref m = expand_mean_over(b, r->x, r->n, r->axes, true);
    air_ref d = b_sub(b, r->x, m);
    air_ref sum = b_sum(b, b_mul(b, d, d), r->n, r->axes, r->keep);

    *out_mean = m;
    return divide_corrected(r, sum, correction);
}

static air_status
forward_like(reduction *r, uint32_t node, int index, air_ref y)
{
    air_ref out = node_out(r->b.g, node, index);

    if (r->b.status == AIR_OK && !pass_same_dims(r->b.g, y, out))
        y = b_view(&r->b, y, ir_val(r->b.g, out)->rank,
                   ir_val(r->b.g, out)->dims);
    return build_forward(&r->b, node, index, y);
}

static air_status
var(pass_context *ctx, uint32_t node, reduction *r, double correction,
    bool root, bool with_mean)
{
    r->x = expand_in_double(&r->b, node_in(ctx->g, node, 0));
    air_ref m, y = variance(r, correction, &m);

    if (root)
        y = b_sqrt(&r->b, y);
    AIR_TRY(build_forward(&r->b, node, 0, y));
    return with_mean ? forward_like(r, node, 1, m) : AIR_OK;
}

/* (a, dim, correction, keepdim) */
static air_status
var_correction(pass_context *ctx, uint32_t node, bool root, bool with_mean)
{
    reduction r;
    double correction = 1.0;

    AIR_TRY(reduction_make(ctx, node, 1, 3, -1, &r));
    if (node_attr(ctx->g, node, 2)->kind != AIR_ATTR_NONE)
        AIR_TRY(node_number(ctx->g, node, 2, &correction));
    return var(ctx, node, &r, correction, root, with_mean);
}

/* (a, dim, keepdim): what the variance is the mean of. */
air_status
expand_moment(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, 1, 2, -1, &r));
    pass_build *b = &r.b;
    air_ref d = b_sub(b, r.x, expand_mean_over(b, r.x, r.n, r.axes, true));
    return build_forward(b, node, 0,
                         b_sum(b, b_mul(b, d, d), r.n, r.axes, r.keep));
}

/* (a, dim, unbiased, keepdim), or (a, unbiased) */
static air_status
var_unbiased(pass_context *ctx, uint32_t node, bool dims, bool root)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, dims ? 1 : -1, dims ? 3 : -1, -1, &r));
    bool unbiased = node_flag(ctx->g, node, dims ? 2 : 1);
    return var(ctx, node, &r, unbiased ? 1.0 : 0.0, root, false);
}

air_status
expand_var_correction(pass_context *ctx, uint32_t node)
{
    return var_correction(ctx, node, false, false);
}

air_status
expand_std_correction(pass_context *ctx, uint32_t node)
{
    return var_correction(ctx, node, true, false);
}

air_status
expand_var_mean(pass_context *ctx, uint32_t node)
{
    return var_correction(ctx, node, false, true);
}

air_status
expand_std_mean(pass_context *ctx, uint32_t node)
{
    return var_correction(ctx, node, true, true);
}

air_status
expand_var(pass_context *ctx, uint32_t node)
{
    return var_unbiased(ctx, node, false, false);
}

air_status
expand_var_dim(pass_context *ctx, uint32_t node)
{
    return var_unbiased(ctx, node, true, false);
}

air_status
expand_std(pass_context *ctx, uint32_t node)
{
    return var_unbiased(ctx, node, false, true);
}

air_status
expand_std_dim(pass_context *ctx, uint32_t node)
{
    return var_unbiased(ctx, node, true, true);
}

/* ---- norms --------------------------------------------------------------- */

static air_ref
p_norm(reduction *r, double p)
{
    pass_build *b = &r->b;
    air_ref x = b_1(b, "abs", r->x);

    if (isinf(p))
        return p > 0 ? b_amax(b, x, r->n, r->axes, r->keep)
                     : b_amin(b, x, r->n, r->axes, r->keep);
    if (p == 0.0) {
        air_ref set = b_2f(b, "ne.Tensor", r->x, 0.0);
        return b_sum(b, b_cast(b, set, AIR_F32), r->n, r->axes, r->keep);
    }
    if (p == 1.0)
        return b_sum(b, x, r->n, r->axes, r->keep);
    if (p == 2.0)
        return b_sqrt(b,
                      b_sum(b, b_mul(b, r->x, r->x), r->n, r->axes, r->keep));
    /* the root of a small |p| multiplies the sum's error by 1 / |p|; of one
     * element it has to give the element back */
    x = b_2f(b, "pow.Tensor_Scalar", expand_in_double(b, x), p);
    x = b_sum(b, x, r->n, r->axes, r->keep);
    return b_2f(b, "pow.Tensor_Scalar", x, 1.0 / p);
}

static air_status
norm(pass_context *ctx, uint32_t node, reduction *r, int ord)
{
    double p = 2.0;

    if (node_attr(ctx->g, node, ord)->kind != AIR_ATTR_NONE)
        AIR_TRY(node_number(ctx->g, node, ord, &p));
    return build_forward(&r->b, node, 0, p_norm(r, p));
}

/* (a, ord, dim, keepdim, dtype) */
air_status
expand_vector_norm(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, 2, 3, 4, &r));
    return norm(ctx, node, &r, 1);
}

/* (a, p) */
air_status
expand_norm(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, -1, -1, -1, &r));
    return norm(ctx, node, &r, 1);
}

/* (a, p, dim, keepdim) */
air_status
expand_norm_dim(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, 2, 3, -1, &r));
    return norm(ctx, node, &r, 1);
}

/* ---- the rest ------------------------------------------------------------ */

static air_ref
sum_typed(pass_build *b, air_ref x, air_attr dims, bool keep, air_attr dtype)
{
    return B_OP(b, "sum.dim_IntList", at_value(x), dims, at_bool(keep), dtype);
}

/* (a, dim, keepdim, dtype) */
air_status
expand_nansum(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    air_attr dims = *node_attr(ctx->g, node, 1);
    air_attr dtype = *node_attr(ctx->g, node, 3);
    bool keep = node_flag(ctx->g, node, 2);

    if (ir_is_float((air_dtype)ir_val(ctx->g, x)->dtype))
        x = b_wheref(&b, b_2(&b, "eq.Tensor", x, x), x, 0.0);
    return build_forward(&b, node, 0, sum_typed(&b, x, dims, keep, dtype));
}

/* Of a number without axes it is a copy: a result of its own. */
static air_ref
extreme(reduction *r, air_ref x, bool largest)
{
    if (r->n == 0)
        return b_1(&r->b, "clone", x);
    return largest ? b_amax(&r->b, x, r->n, r->axes, r->keep)
                   : b_amin(&r->b, x, r->n, r->axes, r->keep);
}

/* (a, dim, keepdim) -> (min, max) */
air_status
expand_aminmax(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, 1, 2, -1, &r));
    air_ref x = node_in(ctx->g, node, 0);
    AIR_TRY(build_forward(&r.b, node, 0, extreme(&r, x, false)));
    return build_forward(&r.b, node, 1, extreme(&r, x, true));
}

static bool
may_be_nothing(const ir_graph *g, const reduction *r)
{
    for (int i = 0; i < r->n; i++)
        if (g->dims.data[ir_val(g, r->x)->dims[r->axes[i]].id].min < 1)
            return true;
    return false;
}

/* (a, dim, keepdim) -> (value, place): places that nobody reads need not be
 * found. The fold of nothing would not be refused. */
air_status
expand_max_dim(pass_context *ctx, uint32_t node)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const bool largest = strcmp(ir_info(&n)->name, "max.dim") == 0;
    const air_ref x = node_in(ctx->g, node, 0);
    reduction r;

    if (ctx->uses[n.outs[1].id] > 0)
        return AIR_OK;
    AIR_TRY(reduction_make(ctx, node, 1, 2, -1, &r));
    if (may_be_nothing(ctx->g, &r))
        return AIR_OK;
    return build_forward(&r.b, node, 0, extreme(&r, x, largest));
}

/* (a, dim) */
air_status
expand_count_nonzero(pass_context *ctx, uint32_t node)
{
    reduction r;

    AIR_TRY(reduction_make(ctx, node, 1, -1, -1, &r));
    air_ref set = B_OP(&r.b, "ne.Tensor", at_value(r.x), at_int(&r.b, 0));
    return build_forward(
        &r.b, node, 0,
        b_sum(&r.b, b_cast(&r.b, set, AIR_I64), r.n, r.axes, false));
}

air_status
expand_dot(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref y = b_wide(&b, node_in(ctx->g, node, 1));
    int axis = 0;
    return build_forward(&b, node, 0,
                         b_sum(&b, b_mul(&b, x, y), 1, &axis, false));
}
