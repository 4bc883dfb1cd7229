/* accumulate.c: rows are added to what is there.
 *
 *   %e = embedding_dense_backward(%grad, %index, ...)
 *   %y = add(%x, %e)
 *
 * becomes %y = index_add(%x, 0, %index, %grad): a table that is looked up and
 * multiplied by as well (word vectors that are tied to the last layer) has its
 * gradient written once, not as two tables and their sum. Rows are added one by
 * one then, which rounds otherwise: not in types of two bytes. */
#include <string.h>

#include "pass/build.h"

enum { GRAD, INDEX, ROWS, PADDING, BY_COUNT }; /* its arguments */

/* The node that scatters, if x is its result and all that reads it is this
 * one; NULL: it is none. */
static const ir_node *
find_scatter(const pass_context *ctx, size_t known, air_ref x)
{
    const ir_node *n =
        pass_made_once(ctx, known, x, "embedding_dense_backward");
    const air_dtype dtype = (air_dtype)ir_val(ctx->g, x)->dtype;

    if (!n || (dtype != AIR_F32 && dtype != AIR_F64) ||
        n->attrs[BY_COUNT].kind != AIR_ATTR_BOOL || n->attrs[BY_COUNT].b)
        return NULL;
    return n;
}

/* grad, with rows of the padding's index 0. */
static air_ref
without_padding(pass_build *b, const ir_node *scatter)
{
    const air_ref grad = scatter->attrs[GRAD].value;
    const air_ref index = scatter->attrs[INDEX].value;
    int64_t padding;

    if (pass_int(b->g, &scatter->attrs[PADDING], &padding) && padding < 0)
        return grad;
    const air_ref padded =
        B_OP(b, "eq.Scalar", at_value(index), scatter->attrs[PADDING]);
    const air_ref column = b_unsqueeze(b, padded, ir_val(b->g, index)->rank);
    return b_wheref(b, B_OP(b, "logical_not", at_value(column)), grad, 0);
}

static air_status
add_rows(pass_context *ctx, uint32_t node, air_ref x, const ir_node *found)
{
    const ir_node scatter = *found;
    const ir_value index = *ir_val(ctx->g, scatter.attrs[INDEX].value);
    pass_build b = build_at(ctx, node);
    int axes[AIR_MAX_RANK];

    for (int i = 0; i < index.rank; i++)
        axes[i] = i;
    const air_dim count =
        b_count(&b, scatter.attrs[INDEX].value, index.rank, axes);
    const air_dim dims[] = {count, ir_val(ctx->g, x)->dims[1]};
    const air_ref rows = b_view(&b, without_padding(&b, &scatter), 2, dims);
    const air_ref flat = b_view(&b, scatter.attrs[INDEX].value, 1, dims);
    const air_ref y = B_OP(&b, "index_add", at_value(x), at_int(&b, 0),
                           at_value(flat), at_value(rows), at_int(&b, 1));
    return build_forward(&b, node, 0, y);
}

/* The other operand of the sum; AIR_NO_REF: it is none of two such values. */
static air_ref
summed_with(const pass_context *ctx, const ir_node *n, int i)
{
    const ir_graph *g = ctx->g;
    double alpha;

    if (n->op == AIR_OP_HOST || n->inplace ||
        strcmp(ir_info(n)->name, "add.Tensor") != 0 ||
        n->attrs[1].kind != AIR_ATTR_VALUE ||
        !pass_number(g, &n->attrs[2], &alpha) || alpha != 1)
        return AIR_NO_REF;
    const air_ref x = n->attrs[1 - i].value, e = n->attrs[i].value;
    return x.id != e.id && ir_val(g, x)->dtype == ir_val(g, e)->dtype &&
                   pass_same_dims(g, x, e)
               ? x
               : AIR_NO_REF;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const size_t known = *(const size_t *)arg;
    const ir_node *n = ir_node_at(ctx->g, node);

    for (int i = 0; i < 2; i++) {
        const air_ref x = summed_with(ctx, n, i);
        if (x.id == AIR_NO_REF.id)
            continue;
        const ir_node *scatter = find_scatter(ctx, known, n->attrs[i].value);
        if (scatter)
            return pass_allow(ctx) ? add_rows(ctx, node, x, scatter) : AIR_OK;
    }
    return AIR_OK;
}

air_status
pass_accumulate(pass_context *ctx)
{
    size_t known = ctx->g->values.count;

    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_count_uses(ctx, &ctx->uses));
    AIR_TRY(pass_walk(ctx, visit, &known));
    return pass_sweep(ctx);
}
