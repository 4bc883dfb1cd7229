/* canon_split.c: axes that are joined, permuted and split again (heads of
 * attention beside the batch: [L, N, H * E] as [L, N * H, E], turned, as
 * [N, H, L, E]). No strides express the join, so that it would be a copy; what
 * the axes are split into in the end needs none. */
#include "pass/canon.h"

/* A factor of the sizes on both sides of a view, and the axes it is of. */
typedef struct {
    int64_t size;
    int from, to;
} factor;

typedef struct {
    int rank;
    int64_t dims[AIR_MAX_RANK];
} sizes;

/* Constant sizes without those of 1, `axis` says which are left. */
static bool
read_sizes(const ir_graph *g, air_ref r, sizes *out, int *axis)
{
    const ir_value *v = ir_val(g, r);

    out->rank = 0;
    for (int i = 0; i < v->rank; i++) {
        int64_t size;
        if (!ir_dim_is_const(g, v->dims[i], &size) || size == 0)
            return false;
        if (size == 1)
            continue;
        axis[out->rank] = i;
        out->dims[out->rank++] = size;
    }
    return true;
}

/* Factors of which the axes of both are products, from the last one on; 0:
 * there are none. */
static int
find_factors(const sizes *a, const sizes *b, factor *out)
{
    int i = a->rank - 1, k = b->rank - 1, n = 0;
    int64_t x = i >= 0 ? a->dims[i] : 1, y = k >= 0 ? b->dims[k] : 1;

    while (i >= 0 && k >= 0) {
        const int64_t small = x < y ? x : y;
        if (n == AIR_MAX_RANK || x % small || y % small)
            return 0;
        out[n++] = (factor){small, i, k};
        x /= small;
        y /= small;
        if (x == 1 && --i >= 0)
            x = a->dims[i];
        if (y == 1 && --k >= 0)
            y = b->dims[k];
    }
    return i < 0 && k < 0 ? n : 0;
}

/* Are axes of the first joined in the second? */
static bool
joins(const factor *f, int n)
{
    for (int i = 1; i < n; i++)
        if (f[i].to == f[i - 1].to && f[i].from != f[i - 1].from)
            return true;
    return false;
}

/* Is each of the factors, in this order, a product of sizes? */
static bool
only_splits(const sizes *made, const factor *f, const int *order, int n)
{
    int at = 0;

    for (int i = 0; i < n; i++)
        for (int64_t left = f[order[i]].size; left > 1; at++) {
            if (at == made->rank || left % made->dims[at])
                return false;
            left /= made->dims[at];
        }
    return at == made->rank;
}

/* The permutation of joined axes as one of factors; these are numbered from
 * the last one on, a view has them from the first one on. */
static int
order_of_factors(const ir_graph *g, const ir_node *permute, const sizes *b,
                 const int *axis_of, const factor *f, int n, int *order)
{
    const int rank = ir_val(g, permute->outs[0])->rank;
    int count = 0, axes[AIR_MAX_RANK];

    if (ir_permute_order(g, permute, axes) != AIR_OK)
        return 0;
    for (int i = 0; i < rank; i++)
        for (int k = n - 1; k >= 0; k--)
            if (f[k].to < b->rank && axis_of[f[k].to] == axes[i])
                order[count++] = k;
    return count;
}

/* view(permute(view(x))) */
air_status
canon_split(pass_context *ctx, uint32_t node, bool *done)
{
    ir_graph *g = ctx->g;
    const ir_node *permute = pass_made_by(g, node_in(g, node, 0), "permute");
    const ir_node *view =
        permute ? pass_made_by(g, permute->attrs[0].value, "view") : NULL;
    int axis_a[AIR_MAX_RANK], axis_b[AIR_MAX_RANK], axis_c[AIR_MAX_RANK];
    int order[AIR_MAX_RANK], places[AIR_MAX_RANK];
    factor f[AIR_MAX_RANK];
    sizes a, b, c;

    *done = false;
    if (!view)
        return AIR_OK;
    const air_ref x = view->attrs[0].value, out = node_out(g, node, 0);
    if (!read_sizes(g, x, &a, axis_a) ||
        !read_sizes(g, view->outs[0], &b, axis_b) ||
        !read_sizes(g, out, &c, axis_c))
        return AIR_OK;
    const int n = find_factors(&a, &b, f);
    if (n == 0 || !joins(f, n) ||
        order_of_factors(g, permute, &b, axis_b, f, n, order) != n ||
        !only_splits(&c, f, order, n) || !pass_allow(ctx))
        return AIR_OK;
    pass_build build = build_at(ctx, node);
    air_dim dims[AIR_MAX_RANK];
    for (int i = 0; i < n; i++) {
        dims[i] = b_dim(&build, f[n - 1 - i].size);
        places[i] = n - 1 - order[i];
    }
    air_ref y = b_permute(&build, b_view(&build, x, n, dims), n, places);
    y = b_view(&build, y, ir_val(g, out)->rank, ir_val(g, out)->dims);
    *done = true;
    return build_forward(&build, node, 0, y);
}
