/* expand_loss.c: losses with gradients, glu. */
#include "pass/expand.h"

/* ATen's Reduction. */
enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

static air_ref
reduce_loss(pass_build *b, air_ref loss, int64_t reduction)
{
    int axes[AIR_MAX_RANK], n = 0;

    if (reduction == REDUCTION_NONE || b->status != AIR_OK)
        return loss;
    for (; n < ir_val(b->g, loss)->rank; n++)
        axes[n] = n;
    return reduction == REDUCTION_MEAN
               ? expand_mean_over(b, loss, n, axes, false)
               : b_sum(b, loss, n, axes, false);
}

/* A loss of operands x and t, wide. Gradients have the incoming one first. */
typedef struct {
    pass_build b;
    uint32_t node;
    air_ref x, t, grad;
    int64_t reduction;
} loss;

static air_ref
loss_in(loss *l, int i)
{
    air_ref in = node_in(l->b.g, l->node, i);
    return in.id == AIR_NO_REF.id ? in : b_wide(&l->b, in);
}

static air_status
loss_make(pass_context *ctx, uint32_t node, int first, int reduction, loss *l)
{
    *l = (loss){.b = build_at(ctx, node), .node = node};
    AIR_TRY(node_int(ctx->g, node, reduction, &l->reduction));
    l->x = loss_in(l, first);
    l->t = loss_in(l, first + 1);
    l->grad = first ? loss_in(l, 0) : AIR_NO_REF;
    return l->b.status;
}

static air_status
loss_forward(loss *l, air_ref y)
{
    return build_forward(&l->b, l->node, 0,
                         reduce_loss(&l->b, y, l->reduction));
}

/* The gradient y of one element, divided by their number for a mean. */
static air_status
loss_gradient(loss *l, air_ref y)
{
    int axes[AIR_MAX_RANK], n = 0;

    AIR_TRY(l->b.status);
    for (; n < ir_val(l->b.g, l->x)->rank; n++)
        axes[n] = n;
    if (l->reduction == REDUCTION_MEAN)
        y = b_divd(&l->b, y, b_count(&l->b, l->x, n, axes));
    return build_forward(&l->b, l->node, 0, y);
}

/* ---- differences --------------------------------------------------------- */

air_status
expand_mse_loss(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 0, 2, &l));
    air_ref d = b_sub(&l.b, l.x, l.t);
    return loss_forward(&l, b_mul(&l.b, d, d));
}

air_status
expand_mse_loss_backward(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 1, 3, &l));
    air_ref d = b_mulf(&l.b, b_sub(&l.b, l.x, l.t), 2.0);
    return loss_gradient(&l, b_mul(&l.b, d, l.grad));
}

/* |d| < limit ? 0.5 * d * d * inner : outer * (|d| - 0.5 * limit) */
static air_status
smooth(pass_context *ctx, uint32_t node, bool huber)
{
    loss l;
    double limit;

    AIR_TRY(loss_make(ctx, node, 0, 2, &l));
    AIR_TRY(node_number(ctx->g, node, 3, &limit));
    pass_build *b = &l.b;
    air_ref z = b_1(b, "abs", b_sub(b, l.x, l.t));
    if (limit == 0.0 && !huber)
        return loss_forward(&l, z);
    air_ref near = b_2f(b, huber ? "le.Tensor" : "lt.Tensor", z, limit);
    air_ref square = b_mul(b, b_mulf(b, z, 0.5), z);
    air_ref line = b_addf(b, z, -0.5 * limit);
    if (huber)
        line = b_mulf(b, line, limit);
    else
        square = b_2f(b, "div.Tensor", square, limit);
    return loss_forward(&l, b_where(b, near, square, line));
}

air_status
expand_smooth_l1_loss(pass_context *ctx, uint32_t node)
{
    return smooth(ctx, node, false);
}

air_status
expand_huber_loss(pass_context *ctx, uint32_t node)
{
    return smooth(ctx, node, true);
}

/* clamp(d, -limit, limit), divided by the limit for smooth_l1 */
static air_status
smooth_backward(pass_context *ctx, uint32_t node, bool huber)
{
    loss l;
    double limit;

    AIR_TRY(loss_make(ctx, node, 1, 3, &l));
    AIR_TRY(node_number(ctx->g, node, 4, &limit));
    pass_build *b = &l.b;
    air_ref d = b_sub(b, l.x, l.t);
    air_ref sign = b_1(b, "sign", d);
    air_ref far = b_2f(b, "ge.Tensor", b_1(b, "abs", d), limit);
    if (huber)
        sign = b_mulf(b, sign, limit);
    else if (limit != 0.0)
        d = b_2f(b, "div.Tensor", d, limit);
    air_ref slope = b_where(b, far, sign, d);
    return loss_gradient(&l, b_mul(b, slope, l.grad));
}

air_status
expand_smooth_l1_loss_backward(pass_context *ctx, uint32_t node)
{
    return smooth_backward(ctx, node, false);
}

air_status
expand_huber_loss_backward(pass_context *ctx, uint32_t node)
{
    return smooth_backward(ctx, node, true);
}

/* log1p(exp(-t * x)) */
air_status
expand_soft_margin_loss(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 0, 2, &l));
    air_ref z = b_1(&l.b, "neg", b_mul(&l.b, l.t, l.x));
    return loss_forward(&l, b_1(&l.b, "log1p", b_exp(&l.b, z)));
}

/* ---- binary cross entropy ------------------------------------------------ */

static air_ref
weighted(loss *l, air_ref y, int weight)
{
    air_ref w = loss_in(l, weight);
    return w.id == AIR_NO_REF.id ? y : b_mul(&l->b, y, w);
}

/* max(x, floor): NaN stays */
static air_ref
at_least(pass_build *b, air_ref x, double bound)
{
    return B_OP(b, "where.self", at_value(b_2f(b, "lt.Tensor", x, bound)),
                at_float(bound), at_value(x));
}

/* (x, t, weight?, reduction):
 * (t - 1) * max(log1p(-x), -100) - t * max(log(x), -100) */
air_status
expand_bce(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 0, 3, &l));
    pass_build *b = &l.b;
    air_ref no = at_least(b, b_1(b, "log1p", b_1(b, "neg", l.x)), -100.0);
    air_ref yes = at_least(b, b_1(b, "log", l.x), -100.0);
    yes = b_mul(b, l.t, yes);
    no = b_mul(b, b_addf(b, l.t, -1.0), no);
    return loss_forward(&l, weighted(&l, b_sub(b, no, yes), 2));
}

/* (grad, x, t, weight?, reduction): grad * (x - t) / max((1 - x) * x, 1e-12) */
air_status
expand_bce_backward(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 1, 4, &l));
    pass_build *b = &l.b;
    air_ref under = at_least(b, b_mul(b, b_rsubf(b, 1.0, l.x), l.x), 1e-12);
    air_ref y = b_mul(b, l.grad, b_sub(b, l.x, l.t));
    return loss_gradient(&l, weighted(&l, b_div(b, y, under), 3));
}

/* (x, t, weight?, pos_weight?, reduction):
 * (1 - t) * x - (1 + (pos_weight - 1) * t) * log_sigmoid(x) */
air_status
expand_bce_with_logits(pass_context *ctx, uint32_t node)
{
    loss l;

    AIR_TRY(loss_make(ctx, node, 0, 4, &l));
    pass_build *b = &l.b;
    air_ref e = b_exp(b, b_1(b, "neg", b_1(b, "abs", l.x)));
    air_ref low = b_wheref(b, b_2f(b, "lt.Tensor", l.x, 0.0), l.x, 0.0);
    air_ref sig = b_sub(b, low, b_1(b, "log1p", e));
    air_ref pos = loss_in(&l, 3);
    if (pos.id != AIR_NO_REF.id) {
        air_ref part = b_mul(b, b_addf(b, pos, -1.0), l.t);
        sig = b_mul(b, b_addf(b, part, 1.0), sig);
    }
    air_ref y = b_sub(b, b_mul(b, b_rsubf(b, 1.0, l.t), l.x), sig);
    return loss_forward(&l, weighted(&l, y, 2));
}

/* ---- negative log likelihood: classes on axis 1, or 0 of a vector -------- */

typedef struct {
    pass_build b;
    uint32_t node;
    air_ref x, target, kept; /* target: 0 where ignored; kept: bool */
    air_ref weight;          /* per target, f32 or wider; AIR_NO_REF: 1 */
    int axis;
    int64_t reduction;
} nll;

/* x: the attribute of the log-probabilities; target and weight follow it. */
static air_status
nll_make(pass_context *ctx, uint32_t node, int x, nll *l)
{
    ir_graph *g = ctx->g;

    *l = (nll){.b = build_at(ctx, node), .node = node};
    pass_build *b = &l->b;
    air_ref target = node_in(g, node, x + 1), in = node_in(g, node, x);
    AIR_TRY(node_int(g, node, x + 3, &l->reduction));
    l->axis = ir_val(g, in)->rank > 1 ? 1 : 0;
    l->x = in;
    l->kept =
        B_OP(b, "ne.Tensor", at_value(target), *node_attr(g, node, x + 4));
    l->target = B_OP(b, "where.self", at_value(l->kept), at_value(target),
                     at_int(b, 0));
    l->weight = node_in(g, node, x + 2);
    AIR_TRY(b->status);
    if (l->weight.id != AIR_NO_REF.id) {
        const air_ref index[1] = {l->target};
        l->weight = B_OP(b, "index.Tensor", at_value(b_wide(b, l->weight)),
                         at_values(b, 1, index));
    }
    return b->status;
}

enum { CHAIN = 6 }; /* nodes behind each other */

static air_ref pick_class(const nll *l, pass_build *b, air_ref v, air_ref at,
                          int left);

/* Operand v of a pointwise node whose result has the sizes of `like`. */
static air_ref
pick_operand(const nll *l, pass_build *b, air_ref v, air_ref like, air_ref at,
             int left)
{
    const ir_value *x = ir_val(b->g, v);
    const int behind = ir_val(b->g, like)->rank - x->rank;
    int64_t one;

    if (pass_same_dims(b->g, v, like))
        return pick_class(l, b, v, at, left);
    if (behind > l->axis ||
        (ir_dim_is_const(b->g, x->dims[l->axis - behind], &one) && one == 1))
        return v; /* the same for all classes */
    return AIR_NO_REF;
}

/* op(picked operands); AIR_NO_REF: it cannot be so. */
static air_ref
pick_pointwise(const nll *l, pass_build *b, const ir_node *made, air_ref at,
               int left)
{
    const ir_node n = *made;
    air_attr *attrs;

    if (b->status == AIR_OK)
        b->status =
            BASE_ARENA_ARRAY(b->ctx->scratch, (size_t)n.nattrs + 1, &attrs);
    for (int i = 0; b->status == AIR_OK && i < n.nattrs; i++) {
        attrs[i] = n.attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUES)
            return AIR_NO_REF;
        if (attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        attrs[i].value =
            pick_operand(l, b, attrs[i].value, n.outs[0], at, left);
        if (attrs[i].value.id == AIR_NO_REF.id)
            return AIR_NO_REF;
    }
    return b->status == AIR_OK ? b_op(b, ir_info(&n)->name, n.nattrs, attrs)
                               : AIR_NO_REF;
}

/* The elements of v at the classes `at`. Of what is computed (a log-softmax)
 * those alone are: else it would be written as a whole, to be read once. */
static air_ref
pick_class(const nll *l, pass_build *b, air_ref v, air_ref at, int left)
{
    const ir_node *made = pass_producer(b->g, v);
    air_ref y = AIR_NO_REF;

    if (left > 0 && pass_is_pointwise(made))
        y = pick_pointwise(l, b, made, at, left - 1);
    return y.id != AIR_NO_REF.id ? y
                                 : B_OP(b, "gather", at_value(v),
                                        at_int(b, l->axis), at_value(at));
}

/* (x, target, weight?, reduction, ignore_index) -> (loss, total_weight) */
air_status
expand_nll_loss(pass_context *ctx, uint32_t node)
{
    nll l;

    AIR_TRY(nll_make(ctx, node, 0, &l));
    pass_build *b = &l.b;
    air_ref at = b_unsqueeze(b, l.target, l.axis);
    air_ref y = pick_class(&l, b, l.x, at, CHAIN);
    AIR_TRY(b->status);
    y = b_view(b, y, ir_val(b->g, l.target)->rank,
               ir_val(b->g, l.target)->dims);
    y = b_1(b, "neg", b_wide(b, y));
    AIR_TRY(b->status);
    uint8_t dtype = ir_val(b->g, y)->dtype;
    air_ref count = b_cast(b, l.kept, (air_dtype)dtype);
    if (l.weight.id != AIR_NO_REF.id) {
        y = b_mul(b, y, l.weight);
        count = b_wheref(b, l.kept, l.weight, 0.0);
    }
    y = b_wheref(b, l.kept, y, 0.0);
    air_ref total = reduce_loss(b, count, REDUCTION_SUM);
    if (l.reduction == REDUCTION_NONE)
        total = b_mulf(b, total, 0.0);
    else
        y = reduce_loss(b, y, REDUCTION_SUM);
    if (l.reduction == REDUCTION_MEAN)
        y = b_div(b, y, total);
    AIR_TRY(build_forward(b, node, 0, y));
    return build_forward(b, node, 1, total);
}

/* Class numbers along the axis of x, sizes 1 elsewhere. */
static air_ref
classes(nll *l, air_dtype dtype)
{
    pass_build *b = &l->b;
    int rank = ir_val(b->g, l->x)->rank;
    air_dim count = ir_val(b->g, l->x)->dims[l->axis];

    return b_along(b,
                   B_OP(b, "arange.start_step", at_int(b, 0), at_dim(count),
                        at_int(b, 1), at_dtype(dtype)),
                   rank, l->axis);
}

/* (grad, x, target, weight?, reduction, ignore_index, total_weight):
 * -grad * weight [/ total] where the class is the target's, else 0 */
air_status
expand_nll_loss_backward(pass_context *ctx, uint32_t node)
{
    nll l;

    AIR_TRY(nll_make(ctx, node, 1, &l));
    pass_build *b = &l.b;
    air_ref y = b_1(b, "neg", b_wide(b, node_in(ctx->g, node, 0)));
    if (l.reduction == REDUCTION_MEAN)
        y = b_div(b, y, b_wide(b, node_in(ctx->g, node, 6)));
    if (l.weight.id != AIR_NO_REF.id)
        y = b_mul(b, y, l.weight);
    y = b_wheref(b, l.kept, y, 0.0);
    y = b_unsqueeze(b, y, l.axis);
    /* A GPU reads them for each row, in the region that writes the gradient. */
    const air_dtype dtype =
        ctx->target && ctx->target->source ? AIR_I32 : AIR_I64;
    const air_ref target = b_cast(b, l.target, dtype);
    const air_ref each = classes(&l, dtype);
    const air_ref hit =
        b_2(b, "eq.Tensor", b_unsqueeze(b, target, l.axis), each);
    return build_forward(b, node, 0, b_wheref(b, hit, y, 0.0));
}

/* ---- glu ---- */

/* The two halves of x along attribute `dim`. */
static air_status
halves(pass_build *b, uint32_t node, int dim, air_ref x, int *out_axis,
       air_ref *out_a, air_ref *out_b)
{
    AIR_TRY(b->status);
    AIR_TRY(ir_axis(b->g, node_attr(b->g, node, dim), ir_val(b->g, x)->rank,
                    "dim", out_axis));
    air_dim size = ir_val(b->g, x)->dims[*out_axis];
    air_dim half = b_dim2(b, IR_DIM_DIV, size, b_dim(b, 2));
    *out_a = b_slice(b, x, *out_axis, b_dim(b, 0), half);
    *out_b = b_slice(b, x, *out_axis, half, size);
    return b->status;
}

air_status
expand_glu(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref p, q;
    int axis;

    AIR_TRY(halves(&b, node, 1, node_in(ctx->g, node, 0), &axis, &p, &q));
    p = b_wide(&b, p);
    q = b_wide(&b, q);
    return build_forward(&b, node, 0, b_mul(&b, p, b_1(&b, "sigmoid", q)));
}

/* (grad, x, dim): [s * g, s * (1 - s) * a * g] */
air_status
expand_glu_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = b_wide(&b, node_in(ctx->g, node, 0)), part[2];
    air_ref p, q;
    int axis;

    AIR_TRY(halves(&b, node, 2, node_in(ctx->g, node, 1), &axis, &p, &q));
    air_ref s = b_1(&b, "sigmoid", b_wide(&b, q));
    p = b_wide(&b, p);
    air_ref slope = b_mul(&b, b_mul(&b, b_rsubf(&b, 1.0, s), s), p);
    part[0] = b_mul(&b, s, grad);
    part[1] = b_mul(&b, slope, grad);
    return build_forward(
        &b, node, 0, B_OP(&b, "cat", at_values(&b, 2, part), at_int(&b, axis)));
}
