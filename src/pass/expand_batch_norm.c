/* expand_batch_norm.c: batch norm over axis 1, all overloads, with gradient. */
#include "pass/expand.h"

typedef struct {
    pass_build b;
    uint32_t node;
    air_ref x, weight, bias, mean, var; /* wide; AIR_NO_REF: absent */
    int rank, n, axes[AIR_MAX_RANK];    /* all but axis 1 */
    bool training;
    double momentum, eps;
} batch;

static air_ref
wide_in(batch *r, int i)
{
    air_ref in = i < 0 ? AIR_NO_REF : node_in(r->b.g, r->node, i);
    return in.id == AIR_NO_REF.id ? in : b_wide(&r->b, in);
}

/* Operand i in what sums over a batch are computed in. Exactly: double for f32,
 * as ATen does. Else f32, in a third of the time, with up to twice the error.
 */
static air_ref
summed_in(batch *r, int i)
{
    return pass_exact(r->b.ctx)
               ? expand_in_double(&r->b, node_in(r->b.g, r->node, i))
               : wide_in(r, i);
}

static void
batch_init(batch *r, pass_context *ctx, uint32_t node, int x)
{
    *r = (batch){.b = build_at(ctx, node), .node = node};
    r->x = wide_in(r, x);
    r->rank = ir_val(ctx->g, node_in(ctx->g, node, x))->rank;
    for (int i = 0; i < r->rank; i++)
        if (i != 1)
            r->axes[r->n++] = i;
}

/* A channel's operand in the dtype of its statistics. */
static air_ref
like(batch *r, air_ref x, air_ref statistic)
{
    if (r->b.status != AIR_OK)
        return x;
    return b_cast(&r->b, x, (air_dtype)ir_val(r->b.g, statistic)->dtype);
}

/* One number a channel, for each element of x. */
static air_ref
of_elements(batch *r, air_ref x)
{
    return b_along(&r->b, like(r, x, r->x), r->rank, 1);
}

/* x * scale + shift with per-channel scale = w / sqrt(var + eps) and
 * shift = bias - mean * scale, of the scale as it was rounded: ATen's form, one
 * operation an element. */
static air_ref
batch_apply(batch *r, air_ref mean, air_ref invstd)
{
    pass_build *b = &r->b;
    air_ref scale = invstd;

    if (r->weight.id != AIR_NO_REF.id)
        scale = b_mul(b, invstd, like(r, r->weight, invstd));
    scale = like(r, scale, r->x);
    air_ref shift = b_mul(b, mean, like(r, scale, mean));
    shift = r->bias.id == AIR_NO_REF.id
                ? b_1(b, "neg", shift)
                : b_sub(b, like(r, r->bias, invstd), shift);
    shift = of_elements(r, shift);
    return b_fma(b, r->x, of_elements(r, scale), shift);
}

static air_ref
inverse_std(batch *r, air_ref var)
{
    return b_1(&r->b, "rsqrt", b_addf(&r->b, var, r->eps));
}

/* momentum * fresh + (1 - momentum) * old */
static air_ref
update(batch *r, air_ref fresh, air_ref old)
{
    pass_build *b = &r->b;
    air_ref part = b_mulf(b, fresh, r->momentum);

    old = b_mulf(b, like(r, old, fresh), 1.0 - r->momentum);
    return b_add(b, part, old);
}

/* x * n / (n - 1) */
static air_ref
unbias(batch *r, air_ref var)
{
    pass_build *b = &r->b;
    air_dim n = b_count(b, r->x, r->n, r->axes);
    air_dim less = b_dim2(b, IR_DIM_SUB, n, b_dim(b, 1));
    return b_divd(b, b_muld(b, var, n), less);
}

/* Results 3 and 4 of the functional overload; where there are none, the
 * running statistics are written. */
static air_status
batch_running(batch *r, air_ref mean, air_ref var)
{
    pass_build *b = &r->b;
    const ir_node *n = ir_node_at(b->g, r->node);

    if (n->nouts == 5) {
        AIR_TRY(build_forward(b, r->node, 3, mean));
        return build_forward(b, r->node, 4, var);
    }
    if (r->training) {
        air_ref old_mean = node_in(b->g, r->node, 3);
        air_ref old_var = node_in(b->g, r->node, 4);
        mean = b_cast(b, mean, (air_dtype)ir_val(b->g, old_mean)->dtype);
        var = b_cast(b, var, (air_dtype)ir_val(b->g, old_var)->dtype);
        b_2(b, "copy_", old_mean, mean);
        b_2(b, "copy_", old_var, var);
    }
    return b->status;
}

static air_status
batch_train(batch *r)
{
    pass_build *b = &r->b;
    air_ref x = summed_in(r, 0);
    air_ref mean = expand_mean_over(b, x, r->n, r->axes, false);
    air_ref d = b_sub(b, x, b_along(b, mean, r->rank, 1));
    air_ref var = expand_mean_over(b, b_mul(b, d, d), r->n, r->axes, false);
    /* What is made of a channel's sums is rounded once: its scale is in each
     * element's error. */
    air_ref invstd = inverse_std(r, expand_in_double(b, var));
    air_ref y = batch_apply(r, expand_in_double(b, mean), invstd);

    AIR_TRY(build_forward(b, r->node, 0, y));
    AIR_TRY(build_forward(b, r->node, 1, mean));
    AIR_TRY(build_forward(b, r->node, 2, invstd));
    if (r->mean.id == AIR_NO_REF.id)
        return AIR_OK;
    var = update(r, unbias(r, var), r->var);
    return batch_running(r, update(r, mean, r->mean), var);
}

static air_status
batch_infer(batch *r)
{
    pass_build *b = &r->b;
    air_dim zero = b_dim(b, 0);

    AIR_TRY(build_forward(b, r->node, 0,
                          batch_apply(r, r->mean, inverse_std(r, r->var))));
    for (int i = 1; i <= 2; i++) {
        uint8_t dtype = ir_val(b->g, node_out(b->g, r->node, i))->dtype;
        AIR_TRY(build_forward(b, r->node, i,
                              b_fullf(b, 1, &zero, 0.0, (air_dtype)dtype)));
    }
    return batch_running(r, r->mean, r->var);
}

/* stats: the attribute of running_mean, -1: none. flag: the one of
 * `training`, -1: false; momentum and eps are the last two. */
static air_status
batch_norm(pass_context *ctx, uint32_t node, int stats, int flag)
{
    batch r;
    int last = ir_node_at(ctx->g, node)->nattrs - 1;

    batch_init(&r, ctx, node, 0);
    AIR_TRY(node_number(ctx->g, node, last - 1, &r.momentum));
    AIR_TRY(node_number(ctx->g, node, last, &r.eps));
    r.weight = wide_in(&r, 1);
    r.bias = wide_in(&r, 2);
    r.mean = wide_in(&r, stats);
    r.var = wide_in(&r, stats < 0 ? -1 : stats + 1);
    r.training = flag >= 0 && node_flag(ctx->g, node, flag);
    return r.training ? batch_train(&r) : batch_infer(&r);
}

/* (input, weight?, bias?, mean?, var?, training, momentum, eps) */
air_status
expand_batch_norm(pass_context *ctx, uint32_t node)
{
    return batch_norm(ctx, node, 3, 5);
}

/* (input, weight?, bias?, training, momentum, eps): of the batch, always */
air_status
expand_batch_norm_no_stats(pass_context *ctx, uint32_t node)
{
    AIR_REQUIRE(node_flag(ctx->g, node, 3), AIR_ERROR_UNSUPPORTED,
                "batch norm without statistics needs training=True");
    return batch_norm(ctx, node, -1, 3);
}

/* (input, weight?, bias?, mean, var, momentum, eps) */
air_status
expand_batch_norm_no_training(pass_context *ctx, uint32_t node)
{
    return batch_norm(ctx, node, 3, -1);
}

/* ---- gradient ------------------------------------------------------------ */

/* (g - mean(g) - xhat * mean(g * xhat)) * invstd * w; dot = sum(g * xhat) */
static air_ref
batch_gradient(batch *r, air_ref grad, air_ref xhat, air_ref invstd,
               air_ref sum, air_ref dot)
{
    pass_build *b = &r->b;
    air_ref dx = grad;
    air_ref scale =
        r->weight.id == AIR_NO_REF.id ? invstd : b_mul(b, invstd, r->weight);

    if (r->training) {
        air_dim n = b_count(b, r->x, r->n, r->axes);
        air_ref part = of_elements(r, b_divd(b, dot, n));
        dx = b_sub(b, dx, of_elements(r, b_divd(b, sum, n)));
        dx = b_sub(b, dx, b_mul(b, xhat, part));
    }
    return b_mul(b, dx, b_along(b, scale, r->rank, 1));
}

/* (x - mean) * invstd, in the dtype of x */
static air_ref
centred(batch *r, air_ref x, air_ref mean, air_ref invstd)
{
    pass_build *b = &r->b;
    air_ref d = b_sub(b, x, b_along(b, like(r, mean, x), r->rank, 1));

    return b_mul(b, d, b_along(b, like(r, invstd, x), r->rank, 1));
}

/* (grad, input, weight?, running_mean?, running_var?, save_mean?,
 * save_invstd?, train, eps, mask[3]) */
air_status
expand_batch_norm_backward(pass_context *ctx, uint32_t node)
{
    batch r;

    batch_init(&r, ctx, node, 1);
    AIR_TRY(node_number(ctx->g, node, 8, &r.eps));
    r.weight = wide_in(&r, 2);
    r.training = node_flag(ctx->g, node, 7);
    pass_build *b = &r.b;
    air_ref grad = wide_in(&r, 0);
    air_ref mean = wide_in(&r, r.training ? 5 : 3);
    air_ref invstd =
        r.training ? wide_in(&r, 6) : inverse_std(&r, wide_in(&r, 4));
    air_ref xhat = centred(&r, r.x, mean, invstd);
    air_ref g = summed_in(&r, 0);
    air_ref sum = b_sum(b, g, r.n, r.axes, false);
    air_ref dot = b_mul(b, g, centred(&r, summed_in(&r, 1), mean, invstd));
    dot = b_sum(b, dot, r.n, r.axes, false);
    const air_attr *mask = node_attr(ctx->g, node, 9);

    AIR_TRY(build_forward(b, node, 0,
                          batch_gradient(&r, grad, xhat, invstd, sum, dot)));
    if (mask->count > 1 && mask->bools[1])
        AIR_TRY(build_forward(b, node, 1, dot));
    if (mask->count > 2 && mask->bools[2])
        AIR_TRY(build_forward(b, node, 2, sum));
    return AIR_OK;
}
