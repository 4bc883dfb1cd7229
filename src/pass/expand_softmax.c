/* expand_softmax.c: softmax, log_softmax, logsumexp and their gradients. */
#include "pass/expand.h"

#include <math.h>
#include <string.h>

typedef struct {
    pass_build b;
    air_ref x; /* wide */
    int n, axes[AIR_MAX_RANK];
} over;

/* The operand in the dtype it is computed in, and the axes of attribute 1. */
static air_status
over_make(pass_context *ctx, uint32_t node, over *o)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0);

    o->b = build_at(ctx, node);
    AIR_TRY(node_axes(g, node, 1, ir_val(g, x)->rank, &o->n, o->axes));
    /* softmax.int's dtype, _softmax's half_to_float: the operand is cast */
    uint8_t out = ir_val(g, node_out(g, node, 0))->dtype;
    if (!ir_is_float((air_dtype)ir_val(g, x)->dtype))
        x = b_cast(&o->b, x, (air_dtype)out);
    o->x = b_wide(&o->b, x);
    return o->b.status;
}

static air_ref
softmax(over *o, air_ref *out_max)
{
    pass_build *b = &o->b;
    air_ref max = b_amax(b, o->x, o->n, o->axes, true);
    air_ref e = b_exp(b, b_sub(b, o->x, max));

    air_ref sum = b_sum(b, e, o->n, o->axes, true);

    *out_max = max;
    if (pass_exact(b->ctx))
        return b_div(b, e, sum);
    return b_mul(b, e, b_1(b, "reciprocal", sum)); /* once a row; sum >= 1 */
}

air_status
expand_softmax(pass_context *ctx, uint32_t node)
{
    over o;
    air_ref max;

    AIR_TRY(over_make(ctx, node, &o));
    return build_forward(&o.b, node, 0, softmax(&o, &max));
}

/* Rows of nothing but -inf give 0, not NaN. */
air_status
expand_safe_softmax(pass_context *ctx, uint32_t node)
{
    over o;
    air_ref max;

    AIR_TRY(over_make(ctx, node, &o));
    air_ref y = softmax(&o, &max);
    air_ref some = b_2f(&o.b, "ne.Tensor", max, -(double)INFINITY);
    return build_forward(&o.b, node, 0, b_wheref(&o.b, some, y, 0.0));
}

air_status
expand_log_softmax(pass_context *ctx, uint32_t node)
{
    over o;

    AIR_TRY(over_make(ctx, node, &o));
    pass_build *b = &o.b;
    air_ref d = b_sub(b, o.x, b_amax(b, o.x, o.n, o.axes, true));
    air_ref sum = b_sum(b, b_exp(b, d), o.n, o.axes, true);
    return build_forward(b, node, 0, b_sub(b, d, b_1(b, "log", sum)));
}

/* (grad, output, dim): (grad - sum(grad * output)) * output */
air_status
expand_softmax_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref y = b_wide(&b, node_in(ctx->g, node, 1));
    int n, axes[AIR_MAX_RANK];

    AIR_TRY(b.status);
    AIR_TRY(node_axes(ctx->g, node, 2, ir_val(ctx->g, y)->rank, &n, axes));
    air_ref sum = b_sum(&b, b_mul(&b, grad, y), n, axes, true);
    return build_forward(&b, node, 0, b_mul(&b, b_sub(&b, grad, sum), y));
}

/* ---- the gradient of a loss that reads one class ------------------------- */

enum { MAX_CASTS = 4 };

/* The node that computes v, by name; NULL: something else does. */
static const ir_node *
computed_by(const ir_graph *g, air_ref v, const char *name)
{
    uint32_t node = ir_val(g, v)->node;
    const ir_node *n = node == IR_NO_NODE ? NULL : ir_node_at(g, node);

    return n && n->op != AIR_OP_HOST && strcmp(ir_info(n)->name, name) == 0
               ? n
               : NULL;
}

/* Has v the sizes of x, but 1 along `axis` (along all others)? */
static bool
is_one(const ir_graph *g, air_ref v, air_ref x, int axis, bool others)
{
    const ir_value *a = ir_val(g, v), *b = ir_val(g, x);
    int64_t size;

    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if ((i == axis) != others
                ? !ir_dim_is_const(g, a->dims[i], &size) || size != 1
                : !ir_dim_eq(a->dims[i], b->dims[i]))
            return false;
    return true;
}

/* 0, 1, 2 ... along the axis? */
static bool
is_count(const ir_graph *g, air_ref v, air_ref x, int axis)
{
    const ir_node *view = computed_by(g, v, "view");
    const ir_node *n =
        computed_by(g, view ? view->attrs[0].value : v, "arange.start_step");
    int64_t start, step;

    return n && is_one(g, v, x, axis, true) &&
           n->attrs[0].kind == AIR_ATTR_INT &&
           n->attrs[2].kind == AIR_ATTR_INT &&
           ir_dim_is_const(g, n->attrs[0].dim, &start) && start == 0 &&
           ir_dim_is_const(g, n->attrs[2].dim, &step) && step == 1;
}

/* Is `grad` where(index == 0, 1, 2 ..., value, 0), as expand_loss.c writes the
 * gradient of nll_loss? */
static bool
is_one_hot(const ir_graph *g, air_ref grad, int axis, air_ref *out_index,
           air_ref *out_value)
{
    const ir_node *where = computed_by(g, grad, "where.self");
    const ir_node *hit =
        where ? computed_by(g, where->attrs[0].value, "eq.Tensor") : NULL;

    if (!hit || where->attrs[1].kind != AIR_ATTR_VALUE ||
        where->attrs[2].kind != AIR_ATTR_FLOAT || where->attrs[2].f != 0.0 ||
        hit->attrs[1].kind != AIR_ATTR_VALUE)
        return false;
    *out_index = hit->attrs[0].value;
    *out_value = where->attrs[1].value;
    return is_one(g, *out_index, grad, axis, false) &&
           is_one(g, *out_value, grad, axis, false) &&
           is_count(g, hit->attrs[1].value, grad, axis);
}

/* The same of what is cast, as autocast does: the value is cast as well. */
static bool
find_one_hot(pass_build *b, air_ref grad, int axis, air_ref *out_index,
             air_ref *out_value)
{
    air_dtype dtypes[MAX_CASTS];
    const ir_node *cast;
    int n = 0;

    for (; n < MAX_CASTS && (cast = computed_by(b->g, grad, "_to_copy")); n++) {
        dtypes[n] = (air_dtype)ir_val(b->g, grad)->dtype;
        grad = cast->attrs[0].value;
    }
    if (!is_one_hot(b->g, grad, axis, out_index, out_value))
        return false;
    while (n-- > 0)
        *out_value = b_cast(b, *out_value, dtypes[n]);
    return true;
}

/* (grad, output, dim): grad - exp(output) * sum(grad). Where grad has one value
 * in a row, that is the sum, and one element of the row is written twice
 * instead of comparing all of them with its index: but for a device where the
 * second write is a launch of its own, or a HOST node. */
air_status
expand_log_softmax_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref grad = b_wide(&b, node_in(ctx->g, node, 0));
    air_ref y = b_wide(&b, node_in(ctx->g, node, 1));
    int n, axes[AIR_MAX_RANK];

    AIR_TRY(b.status);
    AIR_TRY(node_axes(ctx->g, node, 2, ir_val(ctx->g, y)->rank, &n, axes));
    air_ref index, value;
    bool twice = !ctx->target || !ctx->target->bundles;

    const bool one_hot =
        n == 1 && find_one_hot(&b, grad, axes[0], &index, &value);
    if (twice && one_hot) {
        air_ref rest = b_mul(&b, b_1(&b, "neg", b_exp(&b, y)), value);
        return build_forward(&b, node, 0,
                             B_OP(&b, "scatter_add", at_value(rest),
                                  at_int(&b, axes[0]), at_value(index),
                                  at_value(value)));
    }
    air_ref sum = one_hot ? value : b_sum(&b, grad, n, axes, true);
    air_ref part = b_mul(&b, b_exp(&b, y), sum);
    return build_forward(&b, node, 0, b_sub(&b, grad, part));
}

/* log(sum(exp(x - max))) + max, where an infinite max counts as 0. */
air_status
expand_logsumexp(pass_context *ctx, uint32_t node)
{
    over o;

    AIR_TRY(over_make(ctx, node, &o));
    pass_build *b = &o.b;
    bool keep = node_flag(ctx->g, node, 2);
    air_ref max = b_amax(b, o.x, o.n, o.axes, true);
    air_ref infinite =
        b_2f(b, "eq.Tensor", b_1(b, "abs", max), (double)INFINITY);
    max =
        B_OP(b, "where.self", at_value(infinite), at_float(0.0), at_value(max));
    air_ref e = b_exp(b, b_sub(b, o.x, max));
    air_ref sum = b_sum(b, e, o.n, o.axes, true);
    air_ref y = b_add(b, b_1(b, "log", sum), max);
    if (!keep && b->status == AIR_OK) {
        air_ref out = node_out(ctx->g, node, 0);
        y = b_view(b, y, ir_val(ctx->g, out)->rank, ir_val(ctx->g, out)->dims);
    }
    return build_forward(b, node, 0, y);
}
