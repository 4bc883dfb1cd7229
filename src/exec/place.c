/* place.c: where the values of a specialisation lie: storages, places in them,
 * and which place a result gets: an operand's, a part of a cat, or its own,
 * with the strides that the caller asked for. */
#include "exec/exec.h"

/* ---- layouts ---- */

/* Sizes that are too large come here before they are refused: they wrap. */
void
exec_dense_strides(int rank, const int64_t *dims, int64_t *strides)
{
    uint64_t run = 1;

    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = (int64_t)run;
        run *= dims[i] > 0 ? (uint64_t)dims[i] : 1;
    }
}

bool
exec_is_dense(int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t dense[AIR_MAX_RANK];

    exec_dense_strides(rank, dims, dense);
    for (int i = 0; strides && i < rank; i++)
        if (dims[i] > 1 && strides[i] != dense[i])
            return false;
    return true;
}

/* Those of [N, C, ...] in the order of [N, ..., C]. */
static void
last_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t run = dims[1];

    strides[1] = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (i == 1)
            continue;
        strides[i] = run;
        run *= dims[i];
    }
}

static bool
lies_last(const ir_layout *l)
{
    int64_t last[AIR_MAX_RANK];

    if (l->rank < 3 || exec_is_dense(l->rank, l->dims, l->strides))
        return false;
    last_strides(l->rank, l->dims, last);
    for (int i = 0; i < l->rank; i++)
        if (l->dims[i] > 1 && l->strides[i] != last[i])
            return false;
    return true;
}

int64_t
exec_numel(int rank, const int64_t *dims)
{
    int64_t n = 1;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    return n;
}

/* ---- storages and places ---- */

/* No address space holds more bytes, and sums of sizes do not overflow. */
#define MOST_BYTES ((int64_t)1 << 48)

static air_status
check_bytes(const ir_graph *g, bool fits, int64_t bytes)
{
    AIR_REQUIRE(fits && bytes <= MOST_BYTES, AIR_ERROR_SHAPE,
                "graph %s: a result would have too many elements", g->name);
    return AIR_OK;
}

air_status
exec_add_storage(exec_maker *m, exec_where where, int64_t bytes, int32_t *out)
{
    exec_storage s = {
        .where = where, .bytes = bytes, .first = INT32_MAX, .last = -1};

    *out = (int32_t)m->s->storages.count;
    return BASE_PUSH(m->g->alloc, &m->s->storages, s);
}

static void
dense_layout(const exec_maker *m, const ir_value *v, ir_layout *out)
{
    *out = (ir_layout){.rank = v->rank};
    for (int i = 0; i < v->rank; i++)
        out->dims[i] = m->s->dims[v->dims[i].id];
    exec_dense_strides(v->rank, out->dims, out->strides);
}

air_status
exec_new_place(exec_maker *m, const ir_value *v, lower_place *out)
{
    int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)v->dtype);

    *out = (lower_place){0};
    dense_layout(m, v, &out->layout);
    for (int i = 0; i < v->rank; i++) {
        const int64_t size = out->layout.dims[i];
        AIR_REQUIRE(size >= 0, AIR_ERROR_SHAPE,
                    "graph %s: a result would have size %lld in dim %d; its "
                    "inputs are too small",
                    m->g->name, (long long)size, i);
        const bool fits = base_mul_i64(bytes, size, &bytes);
        AIR_TRY(check_bytes(m->g, fits, bytes));
    }
    return exec_add_storage(m, EXEC_ARENA, bytes, &out->slot);
}

air_status
exec_strided_place(exec_maker *m, const ir_value *v, const air_dim *strides,
                   lower_place *out)
{
    const int64_t size = (int64_t)air_dtype_bytes((air_dtype)v->dtype);
    ir_layout *l = &out->layout;
    int64_t bytes = size;
    bool fits = true;

    AIR_TRY(exec_new_place(m, v, out));
    for (int i = 0; i < v->rank; i++)
        l->strides[i] = m->s->dims[strides[i].id];
    if (exec_numel(v->rank, l->dims) == 0)
        return AIR_OK;
    for (int i = 0; i < v->rank; i++) {
        int64_t span = (l->dims[i] - 1) * size;
        AIR_REQUIRE(l->strides[i] >= 0, AIR_ERROR_SHAPE,
                    "graph %s: a result would have stride %lld in dim %d",
                    m->g->name, (long long)l->strides[i], i);
        fits = fits && base_mul_i64(span, l->strides[i], &span) &&
               base_add_i64(bytes, span, &bytes);
    }
    AIR_TRY(check_bytes(m->g, fits, bytes));
    m->s->storages.data[out->slot].bytes = bytes;
    return AIR_OK;
}

void
exec_set_place(exec_maker *m, air_ref ref, const lower_place *place)
{
    m->places[ref.id] = *place;
    m->placed[ref.id] = true;
}

/* ---- results of units ---- */

/* Does x with an axis of size 1 at `axis` have the sizes of v? */
static bool
adds_axis(const ir_graph *g, air_ref x, air_ref v, int axis)
{
    const ir_value *from = ir_val(g, x), *to = ir_val(g, v);
    int64_t one;
    bool same = to->rank == from->rank + 1 &&
                ir_dim_is_const(g, to->dims[axis], &one) && one == 1;

    for (int i = 0; same && i < from->rank; i++)
        same = ir_dim_eq(from->dims[i], to->dims[i < axis ? i : i + 1]);
    return same;
}

/* The axis of x that v, a view of it, has as one with the next; -1: none. */
static int
merged_axis(const ir_graph *g, air_ref x, air_ref v)
{
    const ir_value *from = ir_val(g, x), *to = ir_val(g, v);
    int at = 0;
    bool same = from->rank == to->rank + 1 && to->rank > 0;

    while (same && at < to->rank - 1 && ir_dim_eq(from->dims[at], to->dims[at]))
        at++;
    for (int i = at + 1; same && i < to->rank; i++)
        same = ir_dim_eq(from->dims[i + 1], to->dims[i]);
    return same ? at : -1;
}

air_ref
exec_cat_source(const ir_graph *g, const ir_node *cat, air_ref v)
{
    const uint32_t made = ir_val(g, v)->node;
    const int rank = ir_val(g, cat->outs[0])->rank;
    int axis;

    if (made == IR_NO_NODE || ir_node_at(g, made)->op == AIR_OP_HOST ||
        ir_val(g, v)->rank != rank ||
        ir_axis(g, &cat->attrs[1], rank, "dim", &axis) != AIR_OK)
        return v;
    const ir_op_info *info = ir_info(ir_node_at(g, made));
    if (info->cls != IR_CLASS_VIEW)
        return v;
    const air_ref x = ir_node_at(g, made)->attrs[0].value;
    const bool view = info->view == IR_VIEW_view;
    const bool adds = view || info->view == IR_VIEW_unsqueeze;
    return (adds && adds_axis(g, x, v, axis)) ||
                   (view && merged_axis(g, x, v) >= 0)
               ? x
               : v;
}

static void
drop_axis(ir_layout *l, int axis)
{
    l->rank--;
    for (int i = axis; i < l->rank; i++) {
        l->dims[i] = l->dims[i + 1];
        l->strides[i] = l->strides[i + 1];
    }
}

/* The axis becomes two, the second one of `size`. */
static void
split_axis(ir_layout *l, int axis, int64_t size)
{
    for (int i = l->rank++; i > axis; i--) {
        l->dims[i] = l->dims[i - 1];
        l->strides[i] = l->strides[i - 1];
    }
    l->dims[axis] = size > 0 ? l->dims[axis] / size : 0;
    l->strides[axis] *= size;
    l->dims[axis + 1] = size;
}

/* The place of a value that lies in the result of a cat, maybe without the axis
 * along which it is put there, or with an axis cut in two. */
static air_status
part_place(exec_maker *m, uint32_t cat, air_ref ref, lower_place *out)
{
    const ir_node *n = ir_node_at(m->g, cat);
    const air_ref *values = n->attrs[0].values;
    size_t which = 0;
    int axis;

    while (exec_cat_source(m->g, n, values[which]).id != ref.id)
        which++;
    AIR_TRY(exec_cat_place(m, cat, which, out));
    if (values[which].id == ref.id)
        return AIR_OK;
    const ir_value *v = ir_val(m->g, ref);
    AIR_TRY(ir_axis(m->g, &n->attrs[1], out->layout.rank, "dim", &axis));
    if (adds_axis(m->g, ref, values[which], axis)) {
        drop_axis(&out->layout, axis);
        return AIR_OK;
    }
    axis = merged_axis(m->g, ref, values[which]);
    split_axis(&out->layout, axis, m->s->dims[v->dims[axis + 1].id]);
    return AIR_OK;
}

/* Does the value lie in the result of this cat, which may be none? An empty
 * operand of one axis does not. */
static bool
is_part(const exec_maker *m, uint32_t cat, air_ref ref)
{
    if (cat == IR_NO_NODE)
        return false;
    const ir_node *n = ir_node_at(m->g, cat);
    const int rank = ir_val(m->g, n->outs[0])->rank;
    for (size_t i = 0; i < n->attrs[0].count; i++) {
        const air_ref v = n->attrs[0].values[i];
        if (exec_cat_source(m->g, n, v).id == ref.id)
            return ir_val(m->g, v)->rank == rank;
    }
    return false;
}

/* The strides with which a permutation of it is dense. */
static air_status
turn_strides(const exec_maker *m, uint32_t permute, ir_layout *layout)
{
    int order[AIR_MAX_RANK];
    int64_t run = 1;

    AIR_TRY(ir_permute_order(m->g, ir_node_at(m->g, permute), order));
    for (int i = layout->rank - 1; i >= 0; i--) {
        layout->strides[order[i]] = run;
        run *= layout->dims[order[i]] > 0 ? layout->dims[order[i]] : 1;
    }
    return AIR_OK;
}

/* Memory of its own, in the order that its readers ask for, if any. */
static air_status
turned_place(exec_maker *m, air_ref ref, lower_place *out)
{
    const uint32_t turned = m->p->order.turned[ref.id];

    AIR_TRY(exec_new_place(m, ir_val(m->g, ref), out));
    return turned == IR_NO_NODE ? AIR_OK
                                : turn_strides(m, turned, &out->layout);
}

air_status
exec_cat_place(exec_maker *m, uint32_t cat_node, size_t which, lower_place *out)
{
    const ir_node *cat = ir_node_at(m->g, cat_node);
    const air_ref result = cat->outs[0];
    const ir_value *v = ir_val(m->g, result);
    int64_t at = 0, axis = m->s->dims[cat->attrs[1].dim.id];

    if (!m->placed[result.id]) {
        lower_place place;
        if (is_part(m, m->p->order.cat[result.id], result))
            AIR_TRY(part_place(m, m->p->order.cat[result.id], result, &place));
        else
            AIR_TRY(turned_place(m, result, &place));
        m->s->storages.data[place.slot].parts = true;
        exec_set_place(m, result, &place);
    }
    if (axis < 0)
        axis += v->rank;
    for (size_t i = 0; i < which; i++) {
        const ir_value *o = ir_val(m->g, cat->attrs[0].values[i]);
        if (o->rank == v->rank) /* legacy: empty 1-d operands are skipped */
            at += m->s->dims[o->dims[axis].id];
    }
    *out = m->places[result.id];
    out->layout.offset += at * out->layout.strides[axis];
    const ir_value *operand = ir_val(m->g, cat->attrs[0].values[which]);
    out->layout.dims[axis] = m->s->dims[operand->dims[axis].id];
    return AIR_OK;
}

/* Do the strides walk all of a block, each element once, in some order of the
 * axes? */
static bool
is_packed(const ir_layout *l)
{
    int64_t run = 1;
    int left = l->rank;
    bool found = true;

    for (int i = 0; i < l->rank; i++)
        left -= l->dims[i] == 1;
    while (left > 0 && found) {
        found = false;
        for (int i = 0; i < l->rank && !found; i++) {
            if (l->dims[i] == 1 || l->strides[i] != run)
                continue;
            run *= l->dims[i];
            found = true;
        }
        left--;
    }
    return found;
}

bool
exec_is_image(const exec_maker *m, const ir_node *n, int operand)
{
    return operand == 0 && ir_info(n)->flags & IR_IMAGE &&
           lies_last(&m->places[n->attrs[0].value.id].layout);
}

/* What the caller gets with other strides is made with them where regions or
 * kernels that write any do. */
static void
take_strides(const exec_maker *m, air_ref ref, ir_layout *layout)
{
    for (size_t i = 0; i < m->g->results.count; i++) {
        const ir_result *r = &m->g->results.data[i];
        ir_layout wanted = *layout;
        if (r->value.id != ref.id || !r->strides)
            continue;
        for (int k = 0; k < layout->rank; k++)
            wanted.strides[k] = m->s->dims[r->strides[k].id];
        if (is_packed(&wanted))
            *layout = wanted;
        return;
    }
}

static air_status
own_place(exec_maker *m, const ir_node *n, air_ref ref, lower_place *out)
{
    if (!m->unit->fused && !(ir_info(n)->flags & IR_PUTS)) {
        ir_layout *l = &out->layout;
        AIR_TRY(exec_new_place(m, ir_val(m->g, ref), out));
        if (exec_is_image(m, n, 0))
            last_strides(l->rank, l->dims, l->strides);
        return AIR_OK;
    }
    AIR_TRY(turned_place(m, ref, out));
    if (m->p->order.turned[ref.id] == IR_NO_NODE)
        take_strides(m, ref, &out->layout);
    return AIR_OK;
}

air_status
exec_place_result(exec_maker *m, const ir_node *n, air_ref ref)
{
    const uint32_t cat = m->p->order.cat[ref.id];
    lower_place place;

    if (m->placed[ref.id])
        return AIR_OK;
    if (n->inplace)
        place = m->places[n->attrs[0].value.id];
    else if (is_part(m, cat, ref))
        AIR_TRY(part_place(m, cat, ref, &place));
    else
        AIR_TRY(own_place(m, n, ref, &place));
    exec_set_place(m, ref, &place);
    return AIR_OK;
}
