/* step.c: the steps of one unit. While steps are made, a slot is the index of a
 * storage; plan.c makes it the real one. */
#include <string.h>

#include "exec/exec.h"

/* The step being added reads or writes this storage. */
static void
touch(exec_maker *m, int32_t storage)
{
    exec_storage *s = &m->s->storages.data[storage];
    int32_t step = (int32_t)m->s->steps.count;

    if (step < s->first)
        s->first = step;
    if (step > s->last)
        s->last = step;
}

/* ---- regions ---- */

/* ns on one thread: elements x (memory + work of the nodes). */
static int64_t
region_cost(const air_region *r)
{
    double work = 0.1 * r->nbufs;

    for (int i = 0; i < r->nnodes; i++)
        work += r->nodes[i].op >= AIR_RG_EXP   ? 1.0
                : r->nodes[i].op >= AIR_RG_ADD ? 0.05
                                               : 0.02;
    return (int64_t)((double)exec_numel(r->rank, r->dims) * work);
}

/* What a region touches of a buffer: of a cache of keys and values, a row. */
static int64_t
bytes_touched(const air_region *r, const air_rg_buf *buf)
{
    int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)buf->dtype);

    for (int i = 0; i < r->rank; i++)
        if (buf->strides[i] != 0)
            bytes *= r->dims[i];
    return bytes;
}

/* Do stores write whole lines of a cache, but at the ends of long rows? Rows
 * of which every few lie so are worse than none. */
static bool
writes_lines(const air_region *r)
{
    enum { LINE = 64, LONG = 4096 };
    const int axis = air_region_axis(r);
    bool whole = true;

    for (int i = 0; i < r->nnodes && axis > 0 && !r->spread; i++) {
        const air_rg_buf *buf = &r->bufs[r->nodes[i].buf];
        if (r->nodes[i].op != AIR_RG_STORE)
            continue;
        const int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)buf->dtype);
        whole = whole && (r->dims[axis] * bytes >= LONG ||
                          buf->strides[axis - 1] * bytes % LINE == 0);
    }
    return whole;
}

static air_status
add_region(exec_maker *m, const lower_region *region, const ir_node *node,
           const char *label, const char *reason)
{
    exec_step step = {.kind = EXEC_STEP_REGION,
                      .node = node,
                      .unit = m->unit,
                      .label = label,
                      .reason = reason,
                      .region = *region};
    int64_t bytes = 0;

    if (exec_numel(region->region->rank, region->region->dims) == 0 &&
        region->region->walk == AIR_WALK_MAP)
        return AIR_OK;
    for (int b = 0; b < region->region->nbufs; b++) {
        if (region->bufs[b].slot < 0)
            continue;
        touch(m, region->bufs[b].slot);
        bytes += bytes_touched(region->region, &region->bufs[b]);
    }
    step.step.cost = region_cost(region->region);
    region->region->stream =
        bytes > m->p->ctx->target.cache_bytes && writes_lines(region->region);
    return BASE_PUSH(m->g->alloc, &m->s->steps, step);
}

static air_status
add_copies(exec_maker *m, const lower_move *moves, int count,
           const char *reason)
{
    lower_region region;

    AIR_TRY(lower_copy(&m->s->arena, moves, count, &region));
    m->s->ncopies++;
    return add_region(m, &region, NULL, "copy", reason);
}

air_status
exec_add_copy(exec_maker *m, const lower_place *src, air_dtype src_dtype,
              const lower_place *dst, air_dtype dst_dtype, const char *reason)
{
    return add_copies(m, &(lower_move){*src, *dst, src_dtype, dst_dtype}, 1,
                      reason);
}

/* Dense copies that stand for operands while one step is made. The values keep
 * their places: an input that is written later is not its copy. */
typedef struct {
    size_t count;
    air_ref ref[AIR_RG_MAX_BUFS];
    lower_place place[AIR_RG_MAX_BUFS];
} dense_copies;

static air_status
stand_dense(exec_maker *m, dense_copies *d, air_ref ref)
{
    lower_place dense;

    AIR_REQUIRE(d->count < AIR_RG_MAX_BUFS, AIR_ERROR_UNSUPPORTED,
                "more than %d operands of a step need dense copies",
                AIR_RG_MAX_BUFS);
    AIR_TRY(exec_new_place(m, ir_val(m->g, ref), &dense));
    d->ref[d->count] = ref;
    d->place[d->count++] = m->places[ref.id];
    m->places[ref.id] = dense;
    return AIR_OK;
}

/* Elements along `last` are side by side, all else is as it is written. */
static void
turn_dense(ir_layout *l, int last)
{
    int64_t run = l->dims[last];

    for (int i = l->rank - 1; i >= 0; i--) {
        if (i == last)
            continue;
        l->strides[i] = run;
        run *= l->dims[i];
    }
    l->strides[last] = 1;
}

/* last: of lower_wish. */
static air_status
use_turned(exec_maker *m, dense_copies *d, air_ref ref, int last,
           const char *reason)
{
    const air_dtype dtype = (air_dtype)ir_val(m->g, ref)->dtype;
    const lower_place from = m->places[ref.id];

    AIR_TRY(stand_dense(m, d, ref));
    if (last >= 0)
        turn_dense(&m->places[ref.id].layout, last);
    return exec_add_copy(m, &from, dtype, &m->places[ref.id], dtype, reason);
}

static air_status
use_dense(exec_maker *m, dense_copies *d, air_ref ref, const char *reason)
{
    return use_turned(m, d, ref, -1, reason);
}

static void
drop_dense(exec_maker *m, const dense_copies *d)
{
    for (size_t i = d->count; i-- > 0;)
        m->places[d->ref[i].id] = d->place[i];
}

static bool
is_dense_value(const exec_maker *m, air_ref ref)
{
    const ir_layout *l = &m->places[ref.id].layout;

    return exec_is_dense(l->rank, l->dims, l->strides);
}

static const char *
fused_label(exec_maker *m, const exec_unit *unit)
{
    base_text text;
    const char *label = "region";

    base_text_init(&text, m->g->alloc);
    for (size_t i = 0; i < unit->count && i < 8; i++) {
        const char *name = ir_info(ir_node_at(m->g, unit->nodes[i]))->name;
        const char *dot = strchr(name, '.');
        base_text_add(&text, "%s%.*s", i ? "+" : "",
                      dot ? (int)(dot - name) : (int)strlen(name), name);
    }
    if (unit->count > 8)
        base_text_add(&text, "+%zu more", unit->count - 8);
    if (text.status == AIR_OK && text.data &&
        base_arena_str(&m->s->arena, text.data, text.len, &label) != AIR_OK)
        label = "region";
    base_text_deinit(&text);
    return label;
}

static bool
is_result(const exec_unit *unit, const ir_graph *g, air_ref ref)
{
    for (size_t i = 0; i < unit->count; i++)
        if (ir_node_at(g, unit->nodes[i])->outs[0].id == ref.id)
            return true;
    return false;
}

static air_status
make_fused(exec_maker *m, const exec_unit *unit)
{
    const char *isa = m->p->ctx->target.isa;
    const lower_env env = {.g = m->g,
                           .dims = m->s->dims,
                           .numbers = m->numbers,
                           .places = m->places,
                           .stored = m->p->order.stored,
                           .exact = m->p->options.exact,
                           .columns = m->p->ctx->target.source,
                           .pairs = strcmp(isa, "avx512") == 0,
                           .arena = &m->s->arena,
                           .scratch = &m->lowering};
    bool any = false;
    lower_region region = {0};
    const char *gaps = "a region wants other strides";
    dense_copies copies = {0}, written = {0}; /* before it, after it */

    for (size_t i = 0; i < unit->count; i++) {
        const ir_node *n = ir_node_at(m->g, unit->nodes[i]);
        if (!m->p->order.stored[n->outs[0].id])
            continue;
        AIR_TRY(exec_place_result(m, n, n->outs[0]));
        any = true;
    }
    if (!any)
        return AIR_OK;
    while (!region.region) {
        lower_wish bad;
        base_arena_reset(&m->lowering);
        AIR_TRY(lower_group(&env, unit->nodes, unit->count, &region, &bad));
        if (!region.region && is_result(unit, m->g, bad.ref))
            AIR_TRY(stand_dense(m, &written, bad.ref));
        else if (!region.region)
            AIR_TRY(use_turned(m, &copies, bad.ref, bad.last, gaps));
    }
    AIR_TRY(add_region(m, &region, ir_node_at(m->g, unit->nodes[0]),
                       fused_label(m, unit), NULL));
    for (size_t i = 0; i < written.count; i++) {
        const air_ref ref = written.ref[i];
        const air_dtype dtype = (air_dtype)ir_val(m->g, ref)->dtype;
        AIR_TRY(exec_add_copy(m, &m->places[ref.id], dtype, &written.place[i],
                              dtype, gaps));
    }
    drop_dense(m, &written);
    drop_dense(m, &copies);
    return AIR_OK;
}

/* ---- single nodes ---- */

static air_status
make_view(exec_maker *m, const ir_node *n)
{
    const air_ref in = n->attrs[0].value;
    lower_place place = m->places[in.id];
    bool copy;

    AIR_TRY(ir_view_layout(m->g, n, m->s->dims, &m->places[in.id].layout,
                           &place.layout, &copy));
    if (copy) {
        dense_copies copies = {0};
        AIR_TRY(use_dense(m, &copies, in, "no strides express this reshape"));
        place = m->places[in.id];
        AIR_TRY(ir_view_layout(m->g, n, m->s->dims, &m->places[in.id].layout,
                               &place.layout, &copy));
        drop_dense(m, &copies);
        AIR_REQUIRE(!copy, AIR_ERROR_STATE, "%s of dense memory needs a copy",
                    ir_info(n)->name);
    }
    exec_set_place(m, n->outs[0], &place);
    return AIR_OK;
}

static void
touch_operand(void *arg, air_ref *ref)
{
    exec_maker *m = arg;

    touch(m, m->places[ref->id].slot);
}

static void
touch_node(exec_maker *m, ir_node *n)
{
    ir_each_operand(NULL, n, touch_operand, m);
    for (int i = 0; i < n->nouts; i++)
        touch(m, m->places[n->outs[i].id].slot);
}

/* Is this one of two operands whose elements come in turns? Of both there is
 * one along the axis. */
static bool
is_interleaved(const exec_maker *m, const ir_node *cat, const lower_move *part)
{
    const ir_layout *l = &part->dst.layout;
    const ir_layout *all = &m->places[cat->outs[0].id].layout;
    int axis;

    return cat->attrs[0].count == 2 && part->src_dtype == part->dst_dtype &&
           ir_axis(m->g, &cat->attrs[1], l->rank, "dim", &axis) == AIR_OK &&
           l->dims[axis] == 1 && all->dims[axis] == 2 && l->strides[axis] == 1;
}

/* Both of a pair are written together: one by one, each would write every
 * other element of all lines of the result. */
typedef struct {
    int count;
    lower_move moves[LOWER_MOVES];
} cat_parts;

static air_status
flush_parts(exec_maker *m, cat_parts *parts, const char *reason)
{
    const int count = parts->count;

    parts->count = 0;
    return count == 0 ? AIR_OK : add_copies(m, parts->moves, count, reason);
}

static air_status
make_cat(exec_maker *m, const ir_node *n)
{
    const air_ref result = n->outs[0];
    const air_dtype dtype = (air_dtype)ir_val(m->g, result)->dtype;
    const char *reason = "cat of a value that lies elsewhere";
    cat_parts parts = {0};

    AIR_TRY(exec_place_result(m, n, result));
    for (size_t i = 0; i < n->attrs[0].count; i++) {
        const air_ref v = n->attrs[0].values[i];
        lower_move *part = &parts.moves[parts.count];
        if (m->p->order.cat[v.id] != IR_NO_NODE &&
            m->places[v.id].slot == m->places[result.id].slot)
            continue;
        if (ir_val(m->g, v)->rank != ir_val(m->g, result)->rank)
            continue;
        uint32_t self = ir_val(m->g, result)->node;
        part->src = m->places[v.id];
        part->src_dtype = (air_dtype)ir_val(m->g, v)->dtype;
        part->dst_dtype = dtype;
        AIR_TRY(exec_cat_place(m, self, i, &part->dst));
        parts.count++;
        if (!is_interleaved(m, n, part) || parts.count == LOWER_MOVES)
            AIR_TRY(flush_parts(m, &parts, reason));
    }
    return flush_parts(m, &parts, reason);
}

/* ---- calls ---- */

/* Operands of a call that do not lie dense. */
typedef struct {
    size_t count;
    air_ref ref[AIR_RG_MAX_BUFS];
} strided_values;

static void
add_strided(const exec_maker *m, air_ref ref, strided_values *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->ref[i].id == ref.id)
            return;
    if (!is_dense_value(m, ref) && s->count < AIR_RG_MAX_BUFS)
        s->ref[s->count++] = ref;
}

/* What an INDEX op picks from is read in part: it stays where it is if that
 * may be a small one. */
static bool
is_picked_from(const exec_maker *m, const ir_node *n)
{
    const ir_layout *from = &m->places[n->attrs[0].value.id].layout;
    const ir_layout *to = &m->places[n->outs[0].id].layout;

    return ir_info(n)->flags & IR_INDEX &&
           exec_numel(from->rank, from->dims) >
               2 * exec_numel(to->rank, to->dims);
}

static strided_values
find_strided(const exec_maker *m, const ir_node *n)
{
    strided_values s = {0};

    for (int i = 0; i < n->nattrs && !n->inplace; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            (i > 0 || !is_picked_from(m, n)))
            add_strided(m, n->attrs[i].value, &s);
    return s;
}

/* Does but a plain kernel, or none, take the call, were values of the set
 * dense? */
static air_status
is_plain_with(exec_maker *m, const ir_node *n, const strided_values *s,
              uint32_t dense, bool *out)
{
    const air_driver *driver = m->p->ctx->driver;
    ir_layout kept[AIR_RG_MAX_BUFS];
    exec_step step = {0};

    for (size_t i = 0; i < s->count; i++) {
        ir_layout *l = &m->places[s->ref[i].id].layout;
        kept[i] = *l;
        if (dense >> i & 1)
            exec_dense_strides(l->rank, l->dims, l->strides);
    }
    const air_status status = exec_make_call(m, n, &step);
    for (size_t i = 0; i < s->count; i++)
        m->places[s->ref[i].id].layout = kept[i];
    AIR_TRY(status);
    *out = driver->is_plain(m->p->ctx->device, ir_info(n)->kernel,
                            &step.step.call);
    return AIR_OK;
}

/* The least values that have to be dense for another kernel than a plain one;
 * none if that takes the call anyway, or whatever they are. */
static air_status
find_needed(exec_maker *m, const ir_node *n, const strided_values *s,
            uint32_t *out)
{
    uint32_t all = (uint32_t)((1ull << s->count) - 1);
    bool plain;

    *out = 0;
    if (s->count == 0 || !m->p->ctx->driver->is_plain)
        return AIR_OK;
    AIR_TRY(is_plain_with(m, n, s, 0, &plain));
    if (!plain)
        return AIR_OK;
    AIR_TRY(is_plain_with(m, n, s, all, &plain));
    if (plain)
        return AIR_OK;
    for (size_t i = 0; i < s->count; i++) {
        AIR_TRY(is_plain_with(m, n, s, all & ~(1u << i), &plain));
        all &= plain ? all : ~(1u << i);
    }
    *out = all;
    return AIR_OK;
}

static air_status
avoid_plain(exec_maker *m, const ir_node *n, dense_copies *copies)
{
    const strided_values s = find_strided(m, n);
    uint32_t needed;

    AIR_TRY(find_needed(m, n, &s, &needed));
    for (size_t i = 0; i < s.count; i++)
        if (needed >> i & 1)
            AIR_TRY(use_dense(m, copies, s.ref[i],
                              "no fast kernel reads these strides"));
    return AIR_OK;
}

static air_status
make_call(exec_maker *m, uint32_t id)
{
    ir_node *n = ir_node_at(m->g, id);
    exec_step step = {.unit = m->unit};
    dense_copies copies = {0};

    for (int i = 0; i < n->nouts; i++)
        if (i == 0 || !n->inplace)
            AIR_TRY(exec_place_result(m, n, n->outs[i]));
    for (int i = 0; i < n->nattrs && !(ir_info(n)->flags & IR_STRIDED); i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE && !exec_is_image(m, n, i) &&
            !is_dense_value(m, n->attrs[i].value))
            AIR_TRY(use_dense(m, &copies, n->attrs[i].value,
                              "this op reads dense memory only"));
    AIR_TRY(avoid_plain(m, n, &copies));
    touch_node(m, n);
    AIR_TRY(exec_make_call(m, n, &step));
    drop_dense(m, &copies);
    m->s->ncalls++;
    return BASE_PUSH(m->g->alloc, &m->s->steps, step);
}

/* copy_ into an input */
static air_status
make_copy(exec_maker *m, const ir_node *n)
{
    const air_ref dst = n->attrs[0].value, src = n->attrs[1].value;

    if (m->places[src.id].slot != m->places[dst.id].slot ||
        memcmp(&m->places[src.id].layout, &m->places[dst.id].layout,
               sizeof(ir_layout)) != 0)
        AIR_TRY(exec_add_copy(
            m, &m->places[src.id], (air_dtype)ir_val(m->g, src)->dtype,
            &m->places[dst.id], (air_dtype)ir_val(m->g, dst)->dtype,
            "the graph writes into an input"));
    if (n->nouts > 0)
        exec_set_place(m, n->outs[0], &m->places[dst.id]);
    return AIR_OK;
}

/* A dense copy with the strides that the node names. */
static air_status
make_restride(exec_maker *m, const ir_node *n)
{
    const air_ref in = n->attrs[0].value;
    const ir_value *v = ir_val(m->g, n->outs[0]);
    lower_place place;

    AIR_TRY(exec_strided_place(m, v, n->attrs[1].dims, &place));
    exec_set_place(m, n->outs[0], &place);
    return exec_add_copy(m, &m->places[in.id],
                         (air_dtype)ir_val(m->g, in)->dtype, &place,
                         (air_dtype)v->dtype, "a result wants these strides");
}

static void
describe(const exec_maker *m, air_ref ref, air_value *out)
{
    const lower_place *p = &m->places[ref.id];

    *out = (air_value){.dtype = (air_dtype)ir_val(m->g, ref)->dtype,
                       .rank = p->layout.rank,
                       .dims = p->layout.dims,
                       .strides = p->layout.strides,
                       .alias = -1};
}

static air_status
make_host_result(exec_maker *m, const ir_node *n, size_t i, exec_step *step)
{
    lower_place place;

    AIR_TRY(exec_new_place(m, ir_val(m->g, n->outs[i]), &place));
    m->s->storages.data[place.slot].where = EXEC_HOST;
    m->s->storages.data[place.slot].begun = n->host == AIR_HOST_START;
    exec_set_place(m, n->outs[i], &place);
    step->out_storage[i] = place.slot;
    describe(m, n->outs[i], &step->out[i]);
    return AIR_OK;
}

/* What a WAIT gives lies where its operand does. */
static air_status
make_host(exec_maker *m, uint32_t id)
{
    ir_node *n = ir_node_at(m->g, id);
    exec_step step = {.kind = EXEC_STEP_HOST,
                      .node = n,
                      .unit = m->unit,
                      .label = n->host_op,
                      .reason = n->reason,
                      .nin = n->attrs[0].count,
                      .nout = n->host == AIR_HOST_WAIT ? 0 : n->nouts};
    base_arena *a = &m->s->arena;

    AIR_TRY(BASE_ARENA_ARRAY(a, step.nin, &step.in));
    AIR_TRY(BASE_ARENA_ARRAY(a, step.nin, &step.in_storage));
    AIR_TRY(BASE_ARENA_ARRAY(a, step.nin, &step.in_offset));
    AIR_TRY(BASE_ARENA_ARRAY(a, step.nout, &step.out));
    AIR_TRY(BASE_ARENA_ARRAY(a, step.nout, &step.out_storage));
    for (size_t i = 0; i < step.nout; i++)
        AIR_TRY(make_host_result(m, n, i, &step));
    if (n->host == AIR_HOST_WAIT)
        exec_set_place(m, n->outs[0], &m->places[n->attrs[0].values[0].id]);
    for (size_t i = 0; i < step.nin; i++) {
        const air_ref v = n->attrs[0].values[i];
        const lower_place *p = &m->places[v.id];
        step.in_storage[i] = p->slot;
        step.in_offset[i] =
            p->offset +
            p->layout.offset *
                (int64_t)air_dtype_bytes((air_dtype)ir_val(m->g, v)->dtype);
        describe(m, v, &step.in[i]);
    }
    touch_node(m, n);
    m->s->nhosts++;
    return BASE_PUSH(m->g->alloc, &m->s->steps, step);
}

static air_status
make_unit(exec_maker *m, const exec_unit *unit)
{
    const uint32_t id = unit->nodes[0];
    const ir_node *n = ir_node_at(m->g, id);
    const ir_op_info *info = ir_info(n);

    m->unit = unit;
    if (unit->fused)
        return make_fused(m, unit);
    if (n->op == AIR_OP_HOST)
        return make_host(m, id);
    if (info->cls == IR_CLASS_VIEW)
        return make_view(m, n);
    if (n->op == AIR_OP_COPY_)
        return make_copy(m, n);
    AIR_REQUIRE(info->cls == IR_CLASS_CALL, AIR_ERROR_UNSUPPORTED,
                "driver %s has no kernel for %s, nor has pass expand a rule",
                m->p->ctx->driver->name, info->name);
    if (n->op == AIR_OP_CAT)
        return make_cat(m, n);
    if (n->op == AIR_OP_RESTRIDE)
        return make_restride(m, n);
    return make_call(m, id);
}

/* What the unit's nodes say together: the least limit, the lane they share (a
 * value that is made where it is read has none of its own). */
static ir_scope
unit_scope(const ir_graph *g, const exec_unit *unit)
{
    ir_scope all = {.untimed = true};

    for (size_t i = 0; i < unit->count; i++) {
        const ir_scope one = ir_node_at(g, unit->nodes[i])->scope;
        if (one.threads && (!all.threads || one.threads < all.threads))
            all.threads = one.threads;
        all.lane = one.lane;
        all.joined |= one.joined;
        all.untimed &= one.untimed;
    }
    return all;
}

air_status
exec_blame(const ir_graph *g, const exec_unit *unit, air_status status)
{
    const ir_node *n = ir_node_at(g, unit->nodes[0]);
    const char *loc = n->loc ? n->loc : "no location";

    for (size_t i = 0; n->nouts > 0 && i < g->tags.count; i++)
        if (g->tags.data[i].value.id == n->outs[0].id)
            return base_explain(status, "node %s, %s", g->tags.data[i].text,
                                loc);
    return base_explain(status, "%s, %s",
                        n->op == AIR_OP_HOST ? n->host_op : ir_info(n)->name,
                        loc);
}

air_status
exec_make_unit(exec_maker *m, const exec_unit *unit)
{
    const ir_scope scope = unit_scope(m->g, unit);
    size_t first = m->s->steps.count;
    air_status status = make_unit(m, unit);

    if (status != AIR_OK)
        return base_trace(exec_blame(m->g, unit, status), __func__, __LINE__);
    for (size_t i = first; i < m->s->steps.count; i++) {
        air_step *step = &m->s->steps.data[i].step;
        step->threads = scope.threads;
        step->lane = scope.lane;
        step->joined = scope.joined;
        step->exact = m->p->options.exact;
        step->untimed = scope.untimed;
    }
    return AIR_OK;
}
