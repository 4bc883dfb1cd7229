/* permute.c: permutations are moved behind what does not depend on the order of
 * axes, so that no copy turns values there and back.
 *
 * Pointwise nodes, sums, concatenations and lookups of what HOST nodes left in
 * another order (images in channels-last order), or rows with IR_ORDER, compute
 * in that order; so do those of inputs in that order, where HOST nodes read it.
 * Products whose rows are permuted (of a sequence that comes first, or second)
 * take them as they lie; what is pointwise behind them follows. What as_strided
 * reads stays as it lies. */
#include <string.h>

#include "pass/canon.h"
#include "pass/group.h"

typedef struct {
    bool *is; /* by value: of a HOST node, or moved here */
    size_t cap;
    bool images; /* HOST nodes read [N, H, W, C] of [N, C, H, W] */
} apart;

/* Is it that permutation of `rank` axes? */
static bool
permutes(const ir_graph *g, const ir_node *n, int rank, const int *want)
{
    int order[AIR_MAX_RANK];

    return ir_val(g, n->outs[0])->rank == rank &&
           ir_permute_order(g, n, order) == AIR_OK &&
           memcmp(order, want, (size_t)rank * sizeof *want) == 0;
}

static bool
is_image(const ir_graph *g, const ir_node *n, const int *want)
{
    return permutes(g, n, 4, want);
}

static const int to_last[] = {0, 2, 3, 1}, from_last[] = {0, 3, 1, 2};

static air_status
look_for_images(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);
    apart *a = arg;

    for (size_t i = 0; n->op == AIR_OP_HOST && i < n->attrs[0].count; i++) {
        const ir_node *p =
            pass_made_by(ctx->g, n->attrs[0].values[i], "permute");
        a->images = a->images || (p && is_image(ctx->g, p, to_last));
    }
    return AIR_OK;
}

/* Is the operand of the permutation one whose order of axes counts? */
static bool
is_apart(const pass_context *ctx, const apart *a, const ir_node *permute)
{
    const air_ref r = permute->attrs[0].value;
    const ir_node *n = pass_producer(ctx->g, r);

    if (!n)
        return a->images && is_image(ctx->g, permute, from_last);
    return n->op == AIR_OP_HOST || ir_info(n)->flags & IR_ORDER ||
           (r.id < a->cap && a->is[r.id]);
}

static air_status
mark(pass_context *ctx, apart *a, air_ref r)
{
    if (r.id >= a->cap) {
        const size_t cap = 2 * ((size_t)r.id + 1);
        bool *grown;
        AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cap, &grown));
        if (a->cap)
            memcpy(grown, a->is, a->cap * sizeof *grown);
        a->is = grown;
        a->cap = cap;
    }
    a->is[r.id] = true;
    return AIR_OK;
}

/* The value in its own order, and the order that the permutation reads it in;
 * AIR_NO_REF where r is none of a value that is apart. */
static air_ref
unpermuted(const pass_context *ctx, const apart *a, air_ref r, int *order)
{
    const ir_node *n = pass_made_by(ctx->g, r, "permute");

    return n && is_apart(ctx, a, n) &&
                   ir_permute_order(ctx->g, n, order) == AIR_OK
               ? n->attrs[0].value
               : AIR_NO_REF;
}

/* The same with an order that is known already (rank entries), or is read:
 * *known false. */
static air_ref
in_order(const pass_context *ctx, const apart *a, air_ref r, int *order,
         bool *known)
{
    const int rank = ir_val(ctx->g, r)->rank;
    int own[AIR_MAX_RANK];
    const air_ref x = unpermuted(ctx, a, r, own);

    if (x.id == AIR_NO_REF.id)
        return x;
    if (*known && memcmp(own, order, (size_t)rank * sizeof *own) != 0)
        return AIR_NO_REF;
    memcpy(order, own, (size_t)rank * sizeof *own);
    *known = true;
    return x;
}

static bool
is_one(const ir_graph *g, air_ref r)
{
    int64_t count;

    return pass_count_of(g, r, &count) && count == 1;
}

/* What is broadcast, its axes where the order has them. */
static air_ref
turned(pass_build *b, air_ref x, int rank, const int *order)
{
    const ir_value v = *ir_val(b->g, x);
    air_dim dims[AIR_MAX_RANK];
    int back[AIR_MAX_RANK];

    if (is_one(b->g, x))
        return x;
    for (int i = 0; i < rank; i++) {
        back[order[i]] = i;
        const int k = i - (rank - v.rank);
        dims[i] = k < 0 ? b_dim(b, 1) : v.dims[k];
    }
    return b_permute(b, b_view(b, x, rank, dims), rank, back);
}

/* Replaces the node by op(attrs) permuted. */
static air_status
finish(pass_build *b, apart *a, uint32_t node, const air_attr *attrs,
       const int *order)
{
    const ir_node *n = ir_node_at(b->g, node);
    const int rank = ir_val(b->g, n->outs[0])->rank;
    const air_ref y = b_op(b, ir_info(n)->name, (size_t)n->nattrs, attrs);

    AIR_TRY(b->status);
    AIR_TRY(mark(b->ctx, a, y));
    return build_forward(b, node, 0, b_permute(b, y, rank, order));
}

/* Every operand of the result's sizes is permuted in one order. */
static air_status
move_pointwise(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.outs[0])->rank;
    air_attr *attrs;
    int order[AIR_MAX_RANK];
    bool known = false;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)n.nattrs + 1, &attrs));
    for (int i = 0; i < n.nattrs; i++) {
        attrs[i] = n.attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUES)
            return AIR_OK;
        if (attrs[i].kind != AIR_ATTR_VALUE ||
            !pass_same_dims(ctx->g, attrs[i].value, n.outs[0]))
            continue;
        attrs[i].value = in_order(ctx, a, attrs[i].value, order, &known);
        if (attrs[i].value.id == AIR_NO_REF.id)
            return AIR_OK;
    }
    if (!known || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int i = 0; i < n.nattrs; i++)
        if (n.attrs[i].kind == AIR_ATTR_VALUE &&
            !pass_same_dims(ctx->g, n.attrs[i].value, n.outs[0]))
            attrs[i].value = turned(&b, n.attrs[i].value, rank, order);
    return finish(&b, a, node, attrs, order);
}

/* The folded axes in that order; false: those that are left have another one.
 */
static bool
turn_folded(int rank, const int *order, const bool *folded, int *axes, int *n)
{
    int last = -1;

    *n = 0;
    for (int i = 0; i < rank; i++) {
        if (folded[i]) {
            axes[(*n)++] = order[i];
        } else {
            if (order[i] < last)
                return false;
            last = order[i];
        }
    }
    return *n > 0;
}

/* sum(x, dims, keepdim) of what is permuted */
static air_status
move_sum(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.attrs[0].value)->rank;
    int order[AIR_MAX_RANK], axes[AIR_MAX_RANK], count;
    bool folded[AIR_MAX_RANK];
    air_attr *attrs;
    const air_ref x = unpermuted(ctx, a, n.attrs[0].value, order);

    if (x.id == AIR_NO_REF.id || node_flag(ctx->g, node, 2))
        return AIR_OK;
    AIR_TRY(group_reduced_axes(ctx->g, &n, folded));
    if (!turn_folded(rank, order, folded, axes, &count) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)n.nattrs, &attrs));
    memcpy(attrs, n.attrs, (size_t)n.nattrs * sizeof *attrs);
    attrs[0] = at_value(x);
    attrs[1] = at_ints(&b, (size_t)count, axes);
    return build_forward(&b, node, 0,
                         b_op(&b, ir_info(&n)->name, (size_t)n.nattrs, attrs));
}

/* cat(tensors, dim) */
static air_status
move_cat(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.outs[0])->rank;
    air_ref *values;
    int order[AIR_MAX_RANK], axis;
    bool known = false;

    AIR_TRY(ir_axis(ctx->g, &n.attrs[1], rank, "dim", &axis));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, n.attrs[0].count + 1, &values));
    for (size_t i = 0; i < n.attrs[0].count; i++) {
        const air_ref x = n.attrs[0].values[i];
        if (ir_val(ctx->g, x)->rank != rank)
            return AIR_OK; /* an old form: empty tensors of one axis */
        values[i] = in_order(ctx, a, x, order, &known);
        if (values[i].id == AIR_NO_REF.id)
            return AIR_OK;
    }
    if (!known || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    const air_attr attrs[] = {at_values(&b, n.attrs[0].count, values),
                              at_int(&b, order[axis])};
    return finish(&b, a, node, attrs, order);
}

/* ---- products ------------------------------------------------------------ */

/* view(permute(x)) as the rows of a product: x, and how many axes of it make
 * rows. Those of a row are in order and last. */
typedef struct {
    air_ref x;
    int nrows;
    int order[AIR_MAX_RANK];
} moved_rows;

static int
count_row_axes(const ir_graph *g, const ir_value *p, air_dim depth)
{
    int64_t left, size;
    int axis = p->rank;

    if (!ir_dim_is_const(g, depth, &left) || left < 1)
        return 0;
    while (left > 1 && axis > 0) {
        axis--;
        if (!ir_dim_is_const(g, p->dims[axis], &size) || size < 1 ||
            left % size)
            return 0;
        left /= size;
    }
    return left == 1 ? axis : 0;
}

static bool
find_rows(const ir_graph *g, air_ref operand, moved_rows *out)
{
    const ir_node *view = pass_made_by(g, operand, "view");
    const ir_node *p =
        view ? pass_made_by(g, view->attrs[0].value, "permute") : NULL;
    bool moved = false;

    if (!p || ir_val(g, operand)->rank != 2)
        return false;
    const ir_value *v = ir_val(g, p->outs[0]);
    const ir_node *source = pass_producer(g, p->attrs[0].value);
    if (!source || ir_info(source)->cls == IR_CLASS_VIEW)
        return false;
    out->x = p->attrs[0].value;
    out->nrows = count_row_axes(g, v, ir_val(g, operand)->dims[1]);
    if (ir_permute_order(g, p, out->order) != AIR_OK)
        return false;
    for (int i = 0; i < v->rank; i++) {
        if (i >= out->nrows && out->order[i] != i)
            return false;
        moved = moved || out->order[i] != i;
    }
    return moved && out->nrows > 0;
}

/* mm(a, w), addmm(bias, a, w) with a bias of a row */
static air_status
move_product(pass_context *ctx, uint32_t node, int at, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    moved_rows r;
    air_attr *attrs;

    if (!find_rows(ctx->g, n.attrs[at].value, &r) ||
        (at == 1 && ir_val(ctx->g, n.attrs[0].value)->rank != 1) ||
        !pass_allow(ctx))
        return AIR_OK;
    const ir_value x = *ir_val(ctx->g, r.x);
    const ir_value rows = *ir_val(ctx->g, n.attrs[at].value);
    const ir_value out = *ir_val(ctx->g, n.outs[0]);
    pass_build b = build_at(ctx, node);
    air_dim dims[AIR_MAX_RANK];
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, (size_t)n.nattrs, &attrs));
    memcpy(attrs, n.attrs, n.nattrs * sizeof *attrs);
    attrs[at] = at_value(b_view(&b, r.x, 2, rows.dims));
    air_ref y = b_op(&b, ir_info(&n)->name, n.nattrs, attrs);
    memcpy(dims, x.dims, (size_t)r.nrows * sizeof *dims);
    dims[r.nrows] = out.dims[1];
    r.order[r.nrows] = r.nrows;
    y = b_view(&b, y, r.nrows + 1, dims);
    AIR_TRY(b.status);
    AIR_TRY(mark(ctx, a, y));
    y = b_permute(&b, y, r.nrows + 1, r.order);
    return build_forward(&b, node, 0, b_view(&b, y, 2, out.dims));
}

static air_status
move_mm(pass_context *ctx, uint32_t node, apart *a)
{
    return move_product(ctx, node, 0, a);
}

static air_status
move_addmm(pass_context *ctx, uint32_t node, apart *a)
{
    return move_product(ctx, node, 1, a);
}

/* ---- rows and columns of images ---- */

/* Tokens [N, S, C] as an image: view(permute(x, [0, 2, 1]), [N, C, H, W]) is a
 * permutation of x as [N, H, W, C]. */
static bool
makes_image(const ir_graph *g, const ir_node *n, const ir_node *permute)
{
    static const int turned_rows[] = {0, 2, 1};

    if (!permute || !permutes(g, permute, 3, turned_rows))
        return false;
    const ir_value *x = ir_val(g, permute->outs[0]);
    const ir_value *v = ir_val(g, n->outs[0]);
    return v->rank == 4 && ir_dim_eq(v->dims[0], x->dims[0]) &&
           ir_dim_eq(v->dims[1], x->dims[1]);
}

static air_status
move_view(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const ir_node *p = pass_made_by(ctx->g, n.attrs[0].value, "permute");

    if (!a->images || !makes_image(ctx->g, &n, p) || !pass_allow(ctx))
        return canon_view(ctx, node);
    const air_dim *d = ir_val(ctx->g, n.outs[0])->dims;
    const air_dim dims[] = {d[0], d[2], d[3], d[1]};
    pass_build b = build_at(ctx, node);
    const air_ref y = b_view(&b, p->attrs[0].value, 4, dims);
    AIR_TRY(b.status);
    AIR_TRY(mark(ctx, a, y));
    return build_forward(&b, node, 0, b_permute(&b, y, 4, from_last));
}

/* Axes that have an index tensor, [first, last], one after the other; the
 * result has `rank` axes of theirs there. */
typedef struct {
    int first, last, rank;
} indexed;

static bool
find_indexed(const ir_graph *g, const air_attr *list, indexed *out)
{
    *out = (indexed){.first = -1};
    for (int i = 0; i < (int)list->count; i++) {
        if (list->values[i].id == AIR_NO_REF.id)
            continue;
        const ir_value *v = ir_val(g, list->values[i]);
        if (v->dtype == AIR_BOOL || (out->first >= 0 && out->last != i - 1))
            return false;
        out->first = out->first < 0 ? i : out->first;
        out->last = i;
        out->rank = v->rank > out->rank ? v->rank : out->rank;
    }
    return out->first >= 0;
}

/* The axis of the result where an axis without an index is. */
static int
kept_axis(const indexed *x, int axis)
{
    return axis < x->first ? axis : axis - (x->last - x->first + 1) + x->rank;
}

/* index(x, indices) of what is permuted, the indexed axes in order there, too
 */
static air_status
move_index(pass_context *ctx, uint32_t node, apart *a)
{
    const ir_node n = *ir_node_at(ctx->g, node);
    const int rank = ir_val(ctx->g, n.attrs[0].value)->rank;
    int order[AIR_MAX_RANK], back[AIR_MAX_RANK];
    air_ref values[AIR_MAX_RANK];
    indexed of;
    const air_ref x = unpermuted(ctx, a, n.attrs[0].value, order);

    if (x.id == AIR_NO_REF.id || !find_indexed(ctx->g, &n.attrs[1], &of))
        return AIR_OK;
    for (int i = 0; i < rank; i++)
        values[i] = AIR_NO_REF;
    for (int i = of.first; i <= of.last; i++) {
        if (order[i] != order[of.first] + i - of.first)
            return AIR_OK;
        values[order[i]] = n.attrs[1].values[i];
    }
    if (!pass_allow(ctx))
        return AIR_OK;
    const int shift = order[of.first] - of.first;
    const indexed there = {of.first + shift, of.last + shift, of.rank};
    for (int i = 0; i < rank; i++)
        if (i < of.first || i > of.last)
            back[kept_axis(&of, i)] = kept_axis(&there, order[i]);
    for (int k = 0; k < of.rank; k++)
        back[of.first + k] = there.first + k;
    pass_build b = build_at(ctx, node);
    const air_attr attrs[] = {at_value(x),
                              at_values(&b, (size_t)there.last + 1, values)};
    return finish(&b, a, node, attrs, back);
}

/* ---- the walk ---- */

static const struct {
    const char *name;
    air_status (*move)(pass_context *ctx, uint32_t node, apart *a);
} moves[] = {{"cat", move_cat},
             {"sum.dim_IntList", move_sum},
             {"mm", move_mm},
             {"addmm", move_addmm},
             {"view", move_view},
             {"index.Tensor", move_index},
             {"_unsafe_index.Tensor", move_index}};

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);

    if (n->op == AIR_OP_HOST || n->inplace || n->nouts != 1 ||
        pass_is_shown(ctx, n->outs[0]))
        return AIR_OK;
    if (ir_info(n)->cls == IR_CLASS_POINTWISE)
        return move_pointwise(ctx, node, arg);
    const char *name = ir_info(n)->name;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (strcmp(name, moves[i].name) == 0)
            return moves[i].move(ctx, node, arg);
    return strcmp(name, "permute") == 0 ? canon_permute(ctx, node) : AIR_OK;
}

air_status
pass_permute(pass_context *ctx)
{
    apart a = {0};

    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, look_for_images, &a));
    AIR_TRY(pass_walk(ctx, visit, &a));
    return pass_sweep(ctx);
}
