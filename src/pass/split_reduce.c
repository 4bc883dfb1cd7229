/* split_reduce.c: a reduction over axes that do not lie side by side (batch
 * norm's 0, 2, 3) becomes two, so that the axes of each are one run. */
#include "pass/build.h"
#include "pass/group.h"

typedef struct {
    int ninner, nouter;
    int inner[AIR_MAX_RANK], outer[AIR_MAX_RANK];
} reduce_split;

/* The innermost run of reduced axes; false: there is only one run. */
static bool
find_split(const ir_graph *g, air_ref x, const bool *reduced,
           reduce_split *out)
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

static air_ref
reduce_axes(pass_build *b, const char *op, air_ref x, int n, const int *axes)
{
    return B_OP(b, op, at_value(x), at_ints(b, (size_t)n, axes), at_bool(true));
}

static air_status
split(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);
    const ir_op_info *info = ir_info(n);
    const ir_value *result;
    const char *op = info->name;
    bool reduced[AIR_MAX_RANK];
    reduce_split s;

    (void)arg;
    if (info->cls != IR_CLASS_REDUCE)
        return AIR_OK;
    AIR_TRY(group_reduced_axes(ctx->g, n, reduced));
    if (!find_split(ctx->g, n->attrs[0].value, reduced, &s) ||
        !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    air_ref x = n->attrs[0].value, out = n->outs[0];
    if (info->reduce == AIR_REDUCE_SUM)
        x = b_wide(&b, b_cast(&b, x, (air_dtype)ir_val(ctx->g, out)->dtype));
    x = reduce_axes(&b, op, x, s.ninner, s.inner);
    x = reduce_axes(&b, op, x, s.nouter, s.outer);
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
