/* split_reduce.c: a reduction over axes that no loop can walk as one becomes
 * two: axes that do not lie side by side (batch norm's 0, 2, 3), and axes of
 * which an operand of the fused producers has only some ((x * w).sum()). */
#include "pass/build.h"
#include "pass/group.h"

typedef struct {
    int ninner, nouter;
    int inner[AIR_MAX_RANK], outer[AIR_MAX_RANK];
} reduce_split;

/* The innermost run of reduced axes; false: there is only one run. */
static bool
find_split(const ir_graph *g, air_ref x, const bool *reduced, reduce_split *out)
{
    const ir_value *v = ir_val(g, x);
    int runs = 0;
    bool inside = false;

    *out = (reduce_split){0};
    for (int i = v->rank - 1; i >= 0; i--) {
        int64_t size;
        bool unit = ir_dim_is_const(g, v->dims[i], &size) && size == 1;
        if (!reduced[i]) {
            inside = inside && unit;
            continue;
        }
        if (!inside && !unit)
            runs++;
        inside = inside || !unit;
        if (runs > 1)
            out->outer[out->nouter++] = i;
        else
            out->inner[out->ninner++] = i;
    }
    return runs > 1;
}

/* ---- operands that are broadcast along some of the reduced axes ---------- */

typedef struct {
    const ir_graph *g;
    air_ref x;
    const bool *reduced;
    int budget; /* nodes left to look at */
} search;

static bool
is_partly_broadcast(search *s, air_ref v)
{
    const ir_value *x = ir_val(s->g, s->x);
    uint32_t node = ir_val(s->g, v)->node;

    if (group_has_some_axes(s->g, x->rank, x->dims, s->reduced, v) ||
        s->budget-- == 0)
        return true;
    if (node == IR_NO_NODE)
        return false;
    const ir_node *n = ir_node_at(s->g, node);
    if (n->op == AIR_OP_HOST || ir_info(n)->cls != IR_CLASS_POINTWISE)
        return false;
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            is_partly_broadcast(s, n->attrs[i].value))
            return true;
    return false;
}

/* The innermost reduced axis alone, and the others. */
static bool
find_broadcast_split(const ir_graph *g, air_ref x, const bool *reduced,
                     reduce_split *out)
{
    search s = {.g = g, .x = x, .reduced = reduced, .budget = 64};
    const ir_value *v = ir_val(g, x);

    *out = (reduce_split){0};
    for (int i = v->rank - 1; i >= 0; i--) {
        if (!reduced[i])
            continue;
        if (group_is_unit(g, v->dims[i]) || out->ninner > 0)
            out->outer[out->nouter++] = i;
        else
            out->inner[out->ninner++] = i;
    }
    return out->ninner > 0 && out->nouter > 0 && is_partly_broadcast(&s, x);
}

/* ---- the rewrite --------------------------------------------------------- */

/* The overload that takes a list of axes; prod has none. */
static const char *
listed_op(uint8_t reduce)
{
    switch (reduce) {
    case AIR_REDUCE_SUM: return "sum.dim_IntList";
    case AIR_REDUCE_MAX: return "amax";
    case AIR_REDUCE_MIN: return "amin";
    case AIR_REDUCE_ANY: return "any.dims";
    case AIR_REDUCE_ALL: return "all.dims";
    default: return NULL;
    }
}

static air_ref
reduce_axes(pass_build *b, uint8_t reduce, air_ref x, int n, const int *axes)
{
    const char *op = listed_op(reduce);

    if (op)
        return B_OP(b, op, at_value(x), at_ints(b, (size_t)n, axes),
                    at_bool(true));
    for (int i = 0; i < n; i++)
        x = B_OP(b, "prod.dim_int", at_value(x), at_int(b, axes[i]),
                 at_bool(true));
    return x;
}

/* A tensor of rank 0 has no axis to fold: its value is the result, or whether
 * it is one but 0 (any and all of u8 are u8). */
static air_status
reduce_scalar(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    air_ref x = node_in(ctx->g, node, 0);
    uint8_t reduce = ir_info(ir_node_at(ctx->g, node))->reduce;

    if (reduce == AIR_REDUCE_ANY || reduce == AIR_REDUCE_ALL)
        x = b_cast(&b, x, AIR_BOOL);
    return build_forward(&b, node, 0, B_OP(&b, "clone", at_value(x)));
}

static air_status
split(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);
    const ir_op_info *info = ir_info(n);
    const ir_value *result;
    bool reduced[AIR_MAX_RANK];
    reduce_split s;

    (void)arg;
    if (info->cls != IR_CLASS_REDUCE)
        return AIR_OK;
    if (ir_val(ctx->g, n->attrs[0].value)->rank == 0)
        return reduce_scalar(ctx, node);
    AIR_TRY(group_reduced_axes(ctx->g, n, reduced));
    if (!find_split(ctx->g, n->attrs[0].value, reduced, &s) &&
        !find_broadcast_split(ctx->g, n->attrs[0].value, reduced, &s))
        return AIR_OK;
    if (!pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    air_ref x = n->attrs[0].value, out = n->outs[0];
    if (info->reduce == AIR_REDUCE_SUM || info->reduce == AIR_REDUCE_PROD)
        x = b_wide(&b, b_cast(&b, x, (air_dtype)ir_val(ctx->g, out)->dtype));
    x = reduce_axes(&b, info->reduce, x, s.ninner, s.inner);
    x = reduce_axes(&b, info->reduce, x, s.nouter, s.outer);
    result = ir_val(ctx->g, out);
    if (b.status == AIR_OK && ir_val(ctx->g, x)->rank != result->rank)
        x = b_view(&b, x, result->rank, result->dims);
    return build_forward(&b, node, 0, x);
}

air_status
pass_split_reduce(pass_context *ctx)
{
    AIR_TRY(pass_walk(ctx, split, NULL));
    return pass_sweep(ctx);
}
