/* view.c: layouts of views once sizes are known. */
#include <assert.h>
#include <string.h>

#include "ir/ir.h"

typedef struct {
    const ir_graph *g;
    const ir_op_info *info;
    const ir_node *node;
    const int64_t *dims; /* by size expression */
    const ir_layout *in;
    ir_layout *out;
} view_env;

static const air_attr *
arg(const view_env *e, const char *name)
{
    int i = ir_param_find(e->info, name);
    assert(i >= 0);
    return &e->node->attrs[i];
}

static int64_t
arg_int(const view_env *e, const char *name, int64_t otherwise)
{
    const air_attr *a = arg(e, name);
    return a->kind == AIR_ATTR_INT ? e->dims[a->dim.id] : otherwise;
}

/* Inference has checked the range. */
static int
arg_axis(const view_env *e, const char *name, int rank)
{
    int64_t v = arg_int(e, name, 0);
    return (int)(v < 0 ? v + (rank > 0 ? rank : 1) : v);
}

static void
copy_axis(ir_layout *out, int i, const ir_layout *in, int k)
{
    out->dims[i] = in->dims[k];
    out->strides[i] = in->strides[k];
}

static int64_t
element_count(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return n;
}

/* Strides of the result's sizes on `in`: each run of input axes that lie
 * densely one inside the other may be cut anew. False: they do not line up. */
static bool
view_strides(const ir_layout *in, ir_layout *out)
{
    int k = out->rank - 1;
    int64_t run = 1, cut = 1, base;

    if (element_count(out->rank, out->dims) == 0) {
        int64_t s = 1;
        for (; k >= 0; k--) {
            out->strides[k] = s;
            s *= out->dims[k] > 0 ? out->dims[k] : 1;
        }
        return true;
    }
    base = in->rank > 0 ? in->strides[in->rank - 1] : 1;
    for (int i = in->rank - 1; i >= 0; i--) {
        run *= in->dims[i];
        if (i > 0 && (in->dims[i - 1] == 1 || in->strides[i - 1] == run * base))
            continue;
        while (k >= 0 && (cut < run || out->dims[k] == 1)) {
            out->strides[k] = cut * base;
            cut *= out->dims[k--];
        }
        if (cut != run)
            return false;
        if (i > 0) {
            base = in->strides[i - 1];
            run = cut = 1;
        }
    }
    for (; k >= 0; k--)
        out->strides[k] = 1; /* ones in front */
    return true;
}

static void
layout_permute(const view_env *e)
{
    const air_attr *order = arg(e, "dims");
    for (int i = 0; i < e->in->rank; i++) {
        int64_t v = e->dims[order->dims[i].id];
        copy_axis(e->out, i, e->in, (int)(v < 0 ? v + e->in->rank : v));
    }
}

static void
layout_swap(const view_env *e, int i, int k)
{
    if (e->in->rank == 0)
        return;
    copy_axis(e->out, i, e->in, k);
    copy_axis(e->out, k, e->in, i);
}

static void
layout_unsqueeze(const view_env *e)
{
    int at = arg_axis(e, "dim", e->in->rank + 1);

    for (int i = e->in->rank; i > at; i--)
        copy_axis(e->out, i, e->in, i - 1);
    e->out->dims[at] = 1;
    e->out->strides[at] =
        at < e->in->rank ? e->in->dims[at] * e->in->strides[at] : 1;
}

/* An axis of the input went when its size is 1 and dropping it still leaves
 * enough axes; which of several ones went does not matter for addresses, but
 * for symbolic sizes it matters that only named ones go. */
static void
layout_squeeze(const view_env *e)
{
    int p = ir_param_find(e->info, "dim"), to = 0;
    const air_attr *a = p >= 0 ? &e->node->attrs[p] : NULL;
    const ir_value *v = ir_val(e->g, e->node->attrs[0].value);

    for (int i = 0; i < e->in->rank; i++) {
        bool named = a == NULL;
        int64_t one;
        for (size_t k = 0; a && k < (a->kind == AIR_ATTR_INTS ? a->count : 1);
             k++) {
            air_dim d = a->kind == AIR_ATTR_INTS ? a->dims[k] : a->dim;
            int64_t axis = e->dims[d.id];
            named |= i == axis || i == axis + e->in->rank;
        }
        if (!named || !ir_dim_is_const(e->g, v->dims[i], &one) || one != 1)
            copy_axis(e->out, to++, e->in, i);
    }
}

static void
layout_expand(const view_env *e)
{
    int lead = e->out->rank - e->in->rank;

    for (int i = 0; i < e->out->rank; i++) {
        bool kept = i >= lead && e->in->dims[i - lead] == e->out->dims[i];
        e->out->strides[i] = kept ? e->in->strides[i - lead] : 0;
    }
}

static void
layout_slice(const view_env *e)
{
    int axis = arg_axis(e, "dim", e->in->rank);
    int64_t size = e->in->dims[axis], start = arg_int(e, "start", 0);

    start = start < 0 ? start + size : start;
    start = start < 0 ? 0 : start > size ? size : start;
    e->out->offset += start * e->in->strides[axis];
    e->out->strides[axis] *= arg_int(e, "step", 1);
}

static void
layout_select(const view_env *e)
{
    int axis = arg_axis(e, "dim", e->in->rank);
    int64_t index = arg_int(e, "index", 0);

    index = index < 0 ? index + e->in->dims[axis] : index;
    e->out->offset += index * e->in->strides[axis];
    for (int i = axis; i < e->out->rank; i++)
        copy_axis(e->out, i, e->in, i + 1);
}

static void
layout_as_strided(const view_env *e)
{
    const air_attr *strides = arg(e, "stride");

    for (int i = 0; i < e->out->rank; i++)
        e->out->strides[i] = e->dims[strides->dims[i].id];
    e->out->offset = arg_int(e, "storage_offset", e->in->offset);
}

static void
layout_unfold(const view_env *e)
{
    int axis = arg_axis(e, "dim", e->in->rank), last = e->in->rank;

    e->out->strides[axis] *= arg_int(e, "step", 1);
    e->out->strides[last] = e->in->strides[axis];
}

static void
layout_diagonal(const view_env *e)
{
    int i = arg_axis(e, "dim1", e->in->rank);
    int k = arg_axis(e, "dim2", e->in->rank), to = 0;
    int64_t offset = arg_int(e, "offset", 0);

    for (int d = 0; d < e->in->rank; d++)
        if (d != i && d != k)
            copy_axis(e->out, to++, e->in, d);
    e->out->strides[to] = e->in->strides[i] + e->in->strides[k];
    if (e->out->dims[to] > 0)
        e->out->offset += offset >= 0 ? offset * e->in->strides[k]
                                      : -offset * e->in->strides[i];
}

/* Each element becomes two of half its size, side by side. */
static void
layout_pairs(const view_env *e)
{
    const int last = e->in->rank;

    for (int i = 0; i < last; i++)
        e->out->strides[i] *= 2;
    e->out->strides[last] = 1;
    e->out->offset *= 2;
}

/* And back. False: some pair does not lie so. */
static bool
layout_paired(const view_env *e)
{
    const int last = e->in->rank - 1;
    bool fits = e->in->strides[last] == 1 && e->in->offset % 2 == 0;

    for (int i = 0; i < last; i++) {
        fits &= e->in->dims[i] <= 1 || e->in->strides[i] % 2 == 0;
        e->out->strides[i] = e->in->strides[i] / 2;
    }
    e->out->offset /= 2;
    return fits;
}

/* An index or offset that only its value shows to be wrong. */
static air_status
check_bounds(const view_env *e)
{
    if (e->info->view == IR_VIEW_select) {
        int64_t size = e->in->dims[arg_axis(e, "dim", e->in->rank)];
        int64_t index = arg_int(e, "index", 0);
        AIR_REQUIRE(index >= -size && index < size, AIR_ERROR_ARGUMENT,
                    "select: index %lld is out of range for size %lld",
                    (long long)index, (long long)size);
    }
    if (e->info->view == IR_VIEW_as_strided)
        AIR_REQUIRE(e->out->offset >= 0, AIR_ERROR_ARGUMENT,
                    "as_strided: negative offset");
    return AIR_OK;
}

air_status
ir_view_layout(const ir_graph *g, const ir_node *n, const int64_t *dims,
               const ir_layout *in, ir_layout *out, bool *out_copy)
{
    const ir_value *v = ir_val(g, n->outs[0]);
    view_env e = {g, ir_info(n), n, dims, in, out};

    *out = *in;
    *out_copy = false;
    out->rank = v->rank;
    for (int i = 0; i < v->rank; i++)
        out->dims[i] = dims[v->dims[i].id];
    switch ((ir_view)e.info->view) {
    case IR_VIEW_view: *out_copy = !view_strides(in, out); break;
    case IR_VIEW_permute: layout_permute(&e); break;
    case IR_VIEW_t: layout_swap(&e, 0, in->rank == 2 ? 1 : 0); break;
    case IR_VIEW_transpose:
        layout_swap(&e, arg_axis(&e, "dim0", in->rank),
                    arg_axis(&e, "dim1", in->rank));
        break;
    case IR_VIEW_unsqueeze: layout_unsqueeze(&e); break;
    case IR_VIEW_squeeze: layout_squeeze(&e); break;
    case IR_VIEW_expand: layout_expand(&e); break;
    case IR_VIEW_slice: layout_slice(&e); break;
    case IR_VIEW_select: layout_select(&e); break;
    case IR_VIEW_as_strided: layout_as_strided(&e); break;
    case IR_VIEW_unfold: layout_unfold(&e); break;
    case IR_VIEW_diagonal: layout_diagonal(&e); break;
    case IR_VIEW_pairs: layout_pairs(&e); break;
    case IR_VIEW_paired: *out_copy = !layout_paired(&e); break;
    case IR_VIEW_alias:
    case IR_VIEW_retype: break;
    }
    return check_bounds(&e);
}
