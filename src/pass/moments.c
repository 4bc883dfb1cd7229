/* moments.c: the sum of squares of what an image's channels are off their mean
 * by, sum((x - sum(x) / n)^2), reads x twice. Where a device folds columns in
 * one walk (air_target.moments) it becomes air::moment(x), which finds means of
 * its own on the way (air_moment of codegen/cuda_prelude.c) and is taken beside
 * sum(x). */
#include "pass/build.h"
#include "pass/group.h"

/* Along one axis at most: moving axes leaves the order of its elements. */
static bool
is_vector(const ir_graph *g, const ir_value *v)
{
    int long_axes = 0;

    for (int i = 0; i < v->rank; i++)
        long_axes += !group_is_unit(g, v->dims[i]);
    return long_axes <= 1;
}

/* Behind views that keep the order of elements. */
static air_ref
behind_views(const ir_graph *g, air_ref r)
{
    for (;;) {
        const ir_node *n = pass_made_by(g, r, "view");
        if (!n && is_vector(g, ir_val(g, r)))
            n = pass_made_by(g, r, "permute");
        if (!n)
            return r;
        r = n->attrs[0].value;
    }
}

/* One run of axes is folded, and the last one is not. */
static bool
folds_columns(const ir_graph *g, const ir_value *x, const bool *reduced,
              int64_t *count)
{
    int runs = 0;
    bool inside = false;

    *count = 1;
    for (int i = 0; i < x->rank; i++) {
        int64_t size;
        if (!ir_dim_is_const(g, x->dims[i], &size))
            return false;
        if (size == 1)
            continue;
        runs += reduced[i] && !inside;
        inside = reduced[i];
        *count *= reduced[i] ? size : 1;
    }
    return runs == 1 && !inside;
}

/* Is it one number for all that is folded, where it is broadcast to x? */
static bool
stands_for_folded(const ir_graph *g, const ir_value *m, const ir_value *x,
                  const bool *reduced)
{
    const int lacks = x->rank - m->rank;

    for (int i = 0; i < x->rank; i++) {
        const air_dim *size = i < lacks ? NULL : &m->dims[i - lacks];
        if (reduced[i] ? size && !group_is_unit(g, *size)
                       : !size || !ir_dim_eq(*size, x->dims[i]))
            return false;
    }
    return lacks >= 0;
}

/* Is m the mean of x over these axes? */
static bool
is_mean(const ir_graph *g, air_ref m, air_ref x, const bool *reduced,
        int64_t count)
{
    const ir_value *from = ir_val(g, x);
    const ir_node *quotient = pass_made_by(g, behind_views(g, m), "div.Tensor");
    bool also[AIR_MAX_RANK];
    double by;

    if (!stands_for_folded(g, ir_val(g, m), from, reduced) || !quotient ||
        !pass_number(g, &quotient->attrs[1], &by) || by != (double)count)
        return false;
    const ir_node *sum =
        pass_made_by(g, quotient->attrs[0].value, "sum.dim_IntList");
    if (!sum || sum->attrs[0].value.id != x.id ||
        ir_val(g, sum->outs[0])->dtype != from->dtype ||
        group_reduced_axes(g, sum, also) != AIR_OK)
        return false;
    for (int i = 0; i < from->rank; i++)
        if (also[i] != reduced[i])
            return false;
    return true;
}

/* The x of sum((x - mean(x))^2), or AIR_NO_REF. */
static air_ref
find_moment(const ir_graph *g, const ir_node *sum)
{
    const ir_node *square = pass_made_by(g, sum->attrs[0].value, "mul.Tensor");
    const ir_node *off;
    bool reduced[AIR_MAX_RANK];
    int64_t count;
    double alpha;

    if (!square || square->attrs[1].kind != AIR_ATTR_VALUE ||
        square->attrs[0].value.id != square->attrs[1].value.id)
        return AIR_NO_REF;
    off = pass_made_by(g, square->attrs[0].value, "sub.Tensor");
    if (!off || off->attrs[1].kind != AIR_ATTR_VALUE ||
        !pass_number(g, &off->attrs[2], &alpha) || alpha != 1.0)
        return AIR_NO_REF;
    const air_ref x = off->attrs[0].value, m = off->attrs[1].value;
    const ir_value *v = ir_val(g, x);
    if (v->dtype != AIR_F32 || ir_val(g, sum->outs[0])->dtype != AIR_F32 ||
        group_reduced_axes(g, sum, reduced) != AIR_OK ||
        !folds_columns(g, v, reduced, &count) ||
        !pass_same_dims(g, x, square->outs[0]) ||
        !is_mean(g, m, x, reduced, count))
        return AIR_NO_REF;
    return x;
}

static air_status
rewrite(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);

    (void)arg;
    if (n->op != AIR_OP_SUM_DIM)
        return AIR_OK;
    const air_ref x = find_moment(ctx->g, n);
    if (x.id == AIR_NO_REF.id || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    return build_forward(
        &b, node, 0,
        B_OP(&b, "air::moment", at_value(x), n->attrs[1], n->attrs[2]));
}

air_status
pass_moments(pass_context *ctx)
{
    if (!ctx->target || !ctx->target->moments)
        return AIR_OK;
    AIR_TRY(pass_walk(ctx, rewrite, NULL));
    return pass_sweep(ctx);
}
