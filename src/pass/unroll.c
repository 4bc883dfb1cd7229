/* unroll.c: sums and products along a last axis of a few elements (coordinates
 * of points, channels of colours) are written out: pass pick has each element
 * computed where it is added, for as many rows as there are, one behind the
 * other.
 *
 * In the order in which a region folds a row (docs/kernel-abi.md), so that
 * results stay as they are. */
#include <string.h>

#include "pass/build.h"
#include "pass/group.h"

enum { LEAST = 2, MOST = 4 };

/* Elements of the last axis, if that is what the node folds; else 0. */
static int64_t
folded(const ir_graph *g, const ir_node *n)
{
    const ir_value *x = ir_val(g, n->attrs[0].value);
    bool reduced[AIR_MAX_RANK];
    int64_t size;
    int axes = 0;

    if (x->rank < 2 || group_reduced_axes(g, n, reduced) != AIR_OK)
        return 0;
    for (int i = 0; i < x->rank; i++)
        axes += reduced[i];
    return axes == 1 && reduced[x->rank - 1] &&
                   ir_dim_is_const(g, x->dims[x->rank - 1], &size)
               ? size
               : 0;
}

/* As wide in memory as sums are: nothing is rounded in between. */
static bool
is_wide(const ir_graph *g, const ir_node *n)
{
    const int dtype = ir_val(g, n->outs[0])->dtype;

    return (dtype == AIR_F32 || dtype == AIR_F64) &&
           ir_val(g, n->attrs[0].value)->dtype == dtype;
}

/* Is it in memory anyway, or computed for nobody else? */
static bool
is_at_hand(const pass_context *ctx, air_ref x)
{
    return ctx->uses[x.id] == 1 || !pass_is_pointwise(pass_producer(ctx->g, x));
}

static bool
may_unroll(const pass_context *ctx, const ir_node *n)
{
    const ir_graph *g = ctx->g;

    if (n->op == AIR_OP_NONE || n->op == AIR_OP_HOST || n->nouts != 1 ||
        ir_info(n)->cls != IR_CLASS_REDUCE)
        return false;
    const int op = ir_info(n)->reduce;
    const int64_t size = folded(g, n);
    const air_ref x = n->attrs[0].value;
    return (op == AIR_REDUCE_SUM || op == AIR_REDUCE_PROD) && size >= LEAST &&
           size <= MOST && is_wide(g, n) && is_at_hand(ctx, x);
}

/* The tree of partial results, one an element. Sums begin with 0: -0 + -0 is
 * 0. */
static air_ref
fold(pass_build *b, const ir_node *n, int64_t size)
{
    const bool sum = ir_info(n)->reduce == AIR_REDUCE_SUM;
    const air_ref x = n->attrs[0].value;
    air_ref part[MOST];

    for (int i = 0; i < size; i++)
        part[i] =
            B_OP(b, "select.int", at_value(x), at_int(b, -1), at_int(b, i));
    for (int64_t w = MOST / 2; w > 0; w /= 2)
        for (int64_t i = 0; i < w && i + w < size; i++)
            part[i] = sum ? b_add(b, part[i], part[i + w])
                          : b_mul(b, part[i], part[i + w]);
    return sum && pass_exact(b->ctx) ? b_addf(b, part[0], 0.0) : part[0];
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node n = *ir_node_at(ctx->g, node);

    if (n.nouts != 1 || n.outs[0].id >= *(const size_t *)arg ||
        !may_unroll(ctx, &n) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    air_ref all = fold(&b, &n, folded(ctx->g, &n));
    AIR_TRY(b.status);
    if (!pass_same_dims(ctx->g, all, n.outs[0]))
        all = b_unsqueeze(&b, all, -1);
    return build_forward(&b, node, 0, all);
}

/* On CPUs: a GPU's threads share such rows as they are. */
air_status
pass_unroll(pass_context *ctx)
{
    size_t known = ctx->g->values.count;

    if (!ctx->target || !ctx->target->isa || ctx->target->source)
        return AIR_OK;
    AIR_TRY(pass_count_uses(ctx, &ctx->uses));
    AIR_TRY(pass_walk(ctx, visit, &known));
    return pass_sweep(ctx);
}
