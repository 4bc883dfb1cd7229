/* group_domain.c: iteration spaces of fusable nodes. */
#include <string.h>

#include "pass/group.h"

air_status
group_reduced_axes(const ir_graph *g, const ir_node *n, bool *reduced)
{
    const ir_op_info *info = ir_info(n);
    const int rank = ir_val(g, n->attrs[0].value)->rank;
    const int at = ir_param_find(info, "dim");
    const air_attr *dim = at < 0 ? NULL : &n->attrs[at];
    air_attr one = {.kind = AIR_ATTR_INT};
    int axis;

    for (int i = 0; i < AIR_MAX_RANK; i++)
        reduced[i] = false;
    if (!dim || dim->kind == AIR_ATTR_NONE ||
        (dim->kind == AIR_ATTR_INTS && dim->count == 0)) {
        for (int i = 0; i < rank; i++)
            reduced[i] = true;
        return AIR_OK;
    }
    if (rank == 0)
        return AIR_OK;
    if (dim->kind == AIR_ATTR_INT) {
        AIR_TRY(ir_axis(g, dim, rank, "dim", &axis));
        reduced[axis] = true;
        return AIR_OK;
    }
    for (size_t i = 0; i < dim->count; i++) {
        one.dim = dim->dims[i];
        AIR_TRY(ir_axis(g, &one, rank, "dim", &axis));
        reduced[axis] = true;
    }
    return AIR_OK;
}

bool
group_is_unit(const ir_graph *g, air_dim d)
{
    int64_t size;
    return ir_dim_is_const(g, d, &size) && size == 1;
}

bool
group_has_some_axes(const ir_graph *g, int rank, const air_dim *dims,
                    const bool *reduced, air_ref v)
{
    const ir_value *o = ir_val(g, v);
    int with = 0, without = 0;

    for (int i = 0; i < rank; i++) {
        int k = i - (rank - o->rank);
        if (!reduced[i] || group_is_unit(g, dims[i]))
            continue;
        if (k < 0 || group_is_unit(g, o->dims[k]))
            without++;
        else
            with++;
    }
    return with > 0 && without > 0;
}

bool
group_domain_of(const ir_graph *g, const ir_node *n, group_domain *out)
{
    const ir_class cls = (ir_class)ir_info(n)->cls;
    const ir_value *v;

    memset(out, 0, sizeof *out);
    if (cls != IR_CLASS_POINTWISE && cls != IR_CLASS_CREATE &&
        cls != IR_CLASS_REDUCE)
        return false;
    v = ir_val(g, cls == IR_CLASS_REDUCE ? n->attrs[0].value : n->outs[0]);
    out->rank = v->rank;
    if (v->rank > 0)
        memcpy(out->dims, v->dims, v->rank * sizeof *v->dims);
    if (cls != IR_CLASS_REDUCE)
        return true;
    if (group_reduced_axes(g, n, out->reduced) != AIR_OK)
        return false;
    for (int i = 0; i < out->rank; i++)
        out->nreduced += out->reduced[i];
    return true;
}

static bool
is_full(const group_domain *d, int rank, const air_dim *dims)
{
    if (rank != d->rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (!ir_dim_eq(dims[i], d->dims[i]))
            return false;
    return true;
}

static bool
is_row(const ir_graph *g, const group_domain *d, int rank, const air_dim *dims)
{
    int64_t size;

    if (rank != d->rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (d->reduced[i] ? !ir_dim_is_const(g, dims[i], &size) || size != 1
                          : !ir_dim_eq(dims[i], d->dims[i]))
            return false;
    return true;
}

static bool
is_squeezed(const group_domain *d, int rank, const air_dim *dims)
{
    int at = 0;

    if (rank != d->rank - d->nreduced)
        return false;
    for (int i = 0; i < d->rank; i++)
        if (!d->reduced[i] && !ir_dim_eq(dims[at++], d->dims[i]))
            return false;
    return true;
}

static group_kind
kind_of(const ir_graph *g, const group_domain *d, int rank, const air_dim *dims)
{
    if (is_full(d, rank, dims))
        return GROUP_FULL;
    if (d->nreduced > 0 && is_row(g, d, rank, dims))
        return GROUP_ROW;
    if (d->nreduced > 0 && is_squeezed(d, rank, dims))
        return GROUP_SQUEEZED;
    return GROUP_OTHER;
}

group_kind
group_kind_of(const ir_graph *g, const group_domain *d, air_ref v)
{
    const ir_value *value = ir_val(g, v);
    const group_kind kind = kind_of(g, d, value->rank, value->dims);
    group_domain own;

    if (d->nreduced == 0 || value->node == IR_NO_NODE ||
        !group_domain_of(g, ir_node_at(g, value->node), &own) ||
        own.nreduced == 0)
        return kind;
    /* Sizes do not tell which axes it folds: they may be 1, or equal. */
    if (memcmp(own.reduced, d->reduced, sizeof own.reduced) != 0)
        return GROUP_OTHER;
    return kind == GROUP_FULL ? GROUP_ROW : kind; /* reduced axes of size 1 */
}

static bool
folds_innermost(const group_domain *d)
{
    return d->nreduced > 0 && d->reduced[d->rank - 1];
}

/* Does b fold just what a keeps? */
static bool
is_complement(const group_domain *a, const group_domain *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->reduced[i] == b->reduced[i])
            return false;
    return true;
}

bool
group_is_column(const ir_graph *g, const group_domain *d, const ir_node *n)
{
    group_domain own;
    air_lane lane;

    if (ir_info(n)->cls != IR_CLASS_REDUCE ||
        ir_info(n)->reduce != AIR_REDUCE_SUM || !folds_innermost(d) ||
        !group_domain_of(g, n, &own) || own.nreduced == 0 ||
        !is_full(d, own.rank, own.dims) || !is_complement(d, &own))
        return false;
    lane = ir_lane_of((air_dtype)ir_val(g, n->outs[0])->dtype);
    return lane == AIR_LANE_F32 || lane == AIR_LANE_F64;
}

bool
group_domain_join(const ir_graph *g, const group_domain *a,
                  const group_domain *b, group_domain *out)
{
    const group_domain *wide = a->nreduced > 0 ? a : b;
    const group_domain *other = wide == a ? b : a;

    *out = *wide;
    if (other->nreduced > 0) {
        if (folds_innermost(other))
            *out = *other;
        return is_full(wide, other->rank, other->dims) &&
               (memcmp(wide->reduced, other->reduced, sizeof wide->reduced) ==
                    0 ||
                is_complement(wide, other));
    }
    return kind_of(g, wide, other->rank, other->dims) != GROUP_OTHER;
}

bool
group_is_constant(const ir_graph *g, const ir_node *n)
{
    air_rg_node nodes[AIR_RG_MAX_NODES];
    ir_record rec = {.nodes = nodes, .lane = AIR_LANE_F32};
    int operands[32] = {0};

    (void)g;
    if (ir_info(n)->cls != IR_CLASS_CREATE || n->nattrs > 32)
        return false;
    for (int i = 0; i < n->nattrs; i++)
        operands[i] = ir_record_const(&rec, AIR_LANE_F32, i);
    ir_record_body(&rec, (ir_op)n->op, AIR_LANE_F32, n->attrs, operands);
    for (int i = 0; i < rec.count; i++)
        if (nodes[i].op == AIR_RG_INDEX)
            return false;
    return !rec.full;
}
