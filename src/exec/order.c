/* order.c: units of a graph (fused groups, single nodes) in an order that
 * keeps every dependency: values, writes into inputs after the reads of what
 * was there, and effects among each other. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "pass/group.h"

typedef struct {
    const ir_graph *g;
    const air_compile_options *options;
    base_arena *scratch;
    uint32_t *unit_of;  /* by node id */
    uint32_t *position; /* by node id: place in the graph's order */
    size_t nunits;
} order_maker;

/* ---- units ---- */

static air_status
assign_units(order_maker *m)
{
    uint32_t *group_unit, place = 0;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->g->nodes.count, &m->unit_of));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->g->nodes.count, &m->position));
    AIR_TRY(
        BASE_ARENA_ARRAY(m->scratch, (size_t)m->g->ngroups + 1, &group_unit));
    memset(group_unit, 0xff, ((size_t)m->g->ngroups + 1) * sizeof *group_unit);
    IR_FOR_EACH(m->g, id)
    {
        const ir_node *n = ir_node_at(m->g, id);
        m->position[id] = place++;
        if (n->group < 0) {
            m->unit_of[id] = (uint32_t)m->nunits++;
            continue;
        }
        if (group_unit[n->group] == UINT32_MAX)
            group_unit[n->group] = (uint32_t)m->nunits++;
        m->unit_of[id] = group_unit[n->group];
    }
    return AIR_OK;
}

static air_status
fill_units(const order_maker *m, base_arena *arena, exec_unit *units)
{
    size_t *fill;
    uint32_t **lists;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->nunits, &fill));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->nunits, &lists));
    IR_FOR_EACH(m->g, id)
    units[m->unit_of[id]].count++;
    for (size_t u = 0; u < m->nunits; u++) {
        AIR_TRY(BASE_ARENA_ARRAY(arena, units[u].count, &lists[u]));
        units[u].nodes = lists[u];
    }
    IR_FOR_EACH(m->g, id)
    {
        uint32_t u = m->unit_of[id];
        const ir_node *n = ir_node_at(m->g, id);
        lists[u][fill[u]++] = id;
        ir_class cls = (ir_class)ir_info(n)->cls;
        units[u].fused = cls == IR_CLASS_POINTWISE || cls == IR_CLASS_CREATE ||
                         cls == IR_CLASS_REDUCE;
    }
    return AIR_OK;
}

static air_status
unit_edges(const order_maker *m, exec_edges *out)
{
    ir_edges nodes;

    *out = (exec_edges){0};
    AIR_TRY(ir_dependencies(m->g, m->scratch, &nodes));
    air_status status =
        BASE_ARENA_ARRAY(m->scratch, 2 * nodes.count + 1, &out->edges);
    for (size_t i = 0; status == AIR_OK && i < nodes.count; i++) {
        uint32_t a = m->unit_of[nodes.data[i].from];
        uint32_t b = m->unit_of[nodes.data[i].to];
        if (a == b)
            continue;
        out->edges[2 * out->count] = a;
        out->edges[2 * out->count++ + 1] = b;
    }
    BASE_VEC_FREE(m->g->alloc, &nodes);
    return status;
}

/* ---- which values must be in memory ---- */

typedef struct {
    const order_maker *m;
    exec_order *order;
    const ir_node *user;
    uint32_t unit;
} use_mark;

static void
mark_use(void *arg, air_ref *ref)
{
    use_mark *u = arg;
    const ir_graph *g = u->m->g;
    uint32_t node = ir_val(g, *ref)->node;

    if (node == IR_NO_NODE || u->m->unit_of[node] == u->unit)
        return;
    if (u->order->units[u->unit].fused &&
        group_is_constant(g, ir_node_at(g, node)))
        return;
    u->order->stored[ref->id] = true;
}

static void
store_tagged(const ir_graph *g, exec_order *order)
{
    for (size_t i = 0; i < g->tags.count; i++) {
        const air_ref v = g->tags.data[i].value;
        const uint32_t node = ir_val(g, v)->node;
        if (node != IR_NO_NODE && !group_is_constant(g, ir_node_at(g, node)))
            order->stored[v.id] = true;
    }
}

static void
mark_stored(const order_maker *m, exec_order *order)
{
    const ir_graph *g = m->g;
    use_mark u = {.m = m, .order = order};

    IR_FOR_EACH(g, id)
    {
        u.user = ir_node_at(g, id);
        u.unit = m->unit_of[id];
        ir_each_operand(NULL, ir_node_at(g, id), mark_use, &u);
        if (u.user->inplace || ir_info(u.user)->cls == IR_CLASS_EFFECT)
            for (int i = 0; i < u.user->nouts; i++)
                order->stored[u.user->outs[i].id] = true;
    }
    for (size_t i = 0; i < g->results.count; i++)
        order->stored[g->results.data[i].value.id] = true;
    if (m->options->without & AIR_WITHOUT_REGISTERS)
        store_tagged(g, order);
}

/* ---- whose memory a value lies in, and which is written ---- */

static air_status
find_memory(const ir_graph *g, base_arena *arena, exec_order *order)
{
    AIR_TRY(BASE_ARENA_ARRAY(arena, g->values.count + 1, &order->root));
    AIR_TRY(BASE_ARENA_ARRAY(arena, g->values.count + 1, &order->written));
    for (uint32_t v = 0; v < g->values.count; v++)
        order->root[v] = v;
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        const ir_class cls = (ir_class)ir_info(n)->cls;
        const bool writes = n->inplace || cls == IR_CLASS_EFFECT;
        if (n->op == AIR_OP_HOST || n->nattrs == 0 ||
            n->attrs[0].kind != AIR_ATTR_VALUE ||
            (!writes && cls != IR_CLASS_VIEW))
            continue;
        const uint32_t root = order->root[n->attrs[0].value.id];
        order->written[root] |= writes;
        for (int i = 0; i < n->nouts; i++)
            order->root[n->outs[i].id] = root;
    }
    return AIR_OK;
}

/* ---- cat: producers write into the result ---- */

/* Of values, by nodes that are not in the unit of their producer: those read
 * memory. */
typedef struct {
    const order_maker *m;
    uint32_t unit;
    uint32_t *uses;
} use_counter;

static void
count_use(void *arg, air_ref *ref)
{
    const use_counter *c = arg;
    const uint32_t from = ir_val(c->m->g, *ref)->node;

    if (from == IR_NO_NODE || c->m->unit_of[from] != c->unit)
        c->uses[ref->id]++;
}

static air_status
count_uses(const order_maker *m, uint32_t **out)
{
    const ir_graph *g = m->g;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, g->values.count, out));
    IR_FOR_EACH(g, id)
    {
        use_counter c = {m, m->unit_of[id], *out};
        ir_each_operand(NULL, ir_node_at(g, id), count_use, &c);
    }
    for (size_t i = 0; i < g->results.count; i++)
        (*out)[g->results.data[i].value.id]++;
    return AIR_OK;
}

/* May the producer of operand v of cat node n write it into the result? */
static bool
goes_into(const order_maker *m, const exec_order *order, const uint32_t *uses,
          const ir_node *n, air_ref v)
{
    const ir_value *made = ir_val(m->g, v);

    return made->node != IR_NO_NODE && uses[v.id] == 1 &&
           (order->units[m->unit_of[made->node]].fused ||
            ir_node_at(m->g, made->node)->op == AIR_OP_CAT) &&
           ir_node_at(m->g, made->node)->once == n->once &&
           made->dtype == ir_val(m->g, n->outs[0])->dtype;
}

static air_status
find_cats(const order_maker *m, base_arena *arena, exec_order *order)
{
    const ir_graph *g = m->g;
    uint32_t *uses;

    AIR_TRY(BASE_ARENA_ARRAY(arena, g->values.count, &order->cat));
    memset(order->cat, 0xff, g->values.count * sizeof *order->cat);
    AIR_TRY(count_uses(m, &uses));
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        if (n->op != AIR_OP_CAT || (m->options->without & AIR_WITHOUT_CAT))
            continue;
        for (size_t i = 0; i < n->attrs[0].count; i++) {
            const air_ref v = n->attrs[0].values[i];
            const air_ref made = exec_cat_source(g, n, v);
            if (uses[v.id] == 1 && goes_into(m, order, uses, n, made))
                order->cat[v.id] = order->cat[made.id] = id;
        }
    }
    return AIR_OK;
}

/* ---- the order of axes that readers ask for ---- */

/* What a HOST node reads through a permute it wants to lie in that order:
 * torch's kernels copy images that do not have their channels last; so it is
 * with rows that have IR_ORDER. A region writes it so, where nobody but regions
 * reads it otherwise. Operators of the application get strides as they are in
 * eager. */
typedef struct {
    const order_maker *m;
    exec_order *order;
    uint32_t node;
} turn_finder;

static void
find_turn(void *arg, air_ref *ref)
{
    const turn_finder *f = arg;
    const uint32_t made = ir_val(f->m->g, *ref)->node;

    if (made != IR_NO_NODE && ir_node_at(f->m->g, made)->op == AIR_OP_PERMUTE)
        f->order->turned[ir_node_at(f->m->g, made)->attrs[0].value.id] = made;
}

/* Nor is what is reshaped behind a permute copied where it lies in that order
 * (gradients of heads). The last axis stays: who reads or writes it otherwise
 * has runs as long as before. */
static void
find_reshaped(const turn_finder *f, const ir_node *n)
{
    const ir_graph *g = f->m->g;
    const ir_op_info *info = ir_info(n);
    int order[AIR_MAX_RANK];

    if (info->cls != IR_CLASS_VIEW || info->view != IR_VIEW_view)
        return;
    const air_ref v = n->attrs[0].value;
    const int rank = ir_val(g, v)->rank;
    const uint32_t made = ir_val(g, v)->node;
    if (made == IR_NO_NODE || ir_node_at(g, made)->op != AIR_OP_PERMUTE ||
        ir_val(g, n->outs[0])->rank >= rank)
        return;
    const ir_node *permute = ir_node_at(g, made);
    uint32_t *turned = &f->order->turned[permute->attrs[0].value.id];
    if (*turned == IR_NO_NODE &&
        ir_permute_order(g, permute, order) == AIR_OK &&
        order[rank - 1] == rank - 1)
        *turned = made;
}

static bool
asks_for_order(const ir_node *n)
{
    if (n->op == AIR_OP_HOST)
        return strstr(n->host_op, "::") == NULL; /* ATen's */
    return ir_info(n)->flags & IR_ORDER;
}

static bool
turns_alike(const ir_graph *g, const ir_node *a, const ir_node *b)
{
    const int rank = ir_val(g, a->outs[0])->rank;

    for (int i = 0; i < rank; i++)
        if (!ir_dim_eq(a->attrs[1].dims[i], b->attrs[1].dims[i]))
            return false;
    return true;
}

static void
check_reader(void *arg, air_ref *ref)
{
    const turn_finder *f = arg;
    const ir_graph *g = f->m->g;
    uint32_t *turned = &f->order->turned[ref->id];
    const ir_node *n = ir_node_at(g, f->node);

    if (*turned == IR_NO_NODE || *turned == f->node)
        return;
    const bool alike =
        n->op == AIR_OP_PERMUTE && turns_alike(g, n, ir_node_at(g, *turned));
    if (!alike && !f->order->units[f->m->unit_of[f->node]].fused)
        *turned = IR_NO_NODE;
}

static air_status
find_turned(const order_maker *m, base_arena *arena, exec_order *order)
{
    const ir_graph *g = m->g;
    turn_finder f = {m, order, 0};

    AIR_TRY(BASE_ARENA_ARRAY(arena, g->values.count + 1, &order->turned));
    memset(order->turned, 0xff, g->values.count * sizeof *order->turned);
    IR_FOR_EACH(g, id)
    if (asks_for_order(ir_node_at(g, id)))
        ir_each_operand(NULL, ir_node_at(g, id), find_turn, &f);
    IR_FOR_EACH(g, id)
    find_reshaped(&f, ir_node_at(g, id));
    IR_FOR_EACH(g, id)
    {
        f.node = id;
        ir_each_operand(NULL, ir_node_at(g, id), check_reader, &f);
    }
    for (size_t i = 0; i < g->results.count; i++)
        order->turned[g->results.data[i].value.id] = IR_NO_NODE;
    return AIR_OK;
}

/* ---- lanes ---- */

static bool
has_lanes(const ir_graph *g)
{
    IR_FOR_EACH(g, id)
    if (ir_node_at(g, id)->scope.lane)
        return true;
    return false;
}

static int
compare_edges(const void *a, const void *b)
{
    const exec_edge *x = a, *y = b;

    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* The edges, between places of units; sorted by who waits. */
static air_status
keep_edges(const order_maker *m, const exec_edges *e, const uint32_t *sorted,
           base_arena *arena, exec_order *out)
{
    uint32_t *place;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->nunits, &place));
    AIR_TRY(BASE_ARENA_ARRAY(arena, e->count, &out->edges));
    for (size_t i = 0; i < m->nunits; i++)
        place[sorted[i]] = (uint32_t)i;
    for (size_t i = 0; i < e->count; i++)
        out->edges[i] =
            (exec_edge){place[e->edges[2 * i]], place[e->edges[2 * i + 1]]};
    qsort(out->edges, e->count, sizeof *out->edges, compare_edges);
    out->nedges = e->count;
    out->lanes = true;
    return AIR_OK;
}

/* What runs at the first run only waits for nothing else: it comes first. */
static air_status
once_first(const order_maker *m, const exec_unit *units, uint32_t *sorted,
           size_t *out_once)
{
    uint32_t *others;
    size_t once = 0, count = 0;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->nunits + 1, &others));
    for (size_t i = 0; i < m->nunits; i++)
        if (ir_node_at(m->g, units[sorted[i]].nodes[0])->once)
            sorted[once++] = sorted[i];
        else
            others[count++] = sorted[i];
    memcpy(sorted + once, others, count * sizeof *others);
    *out_once = once;
    return AIR_OK;
}

static air_status
make_order(order_maker *m, bool early, base_arena *arena, exec_order *out)
{
    exec_edges edges;
    exec_unit *units;
    uint32_t *sorted;

    AIR_TRY(assign_units(m));
    AIR_TRY(BASE_ARENA_ARRAY(arena, m->nunits, &units));
    AIR_TRY(BASE_ARENA_ARRAY(arena, m->nunits, &out->units));
    AIR_TRY(BASE_ARENA_ARRAY(arena, m->g->values.count, &out->stored));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, m->nunits, &sorted));
    AIR_TRY(fill_units(m, arena, units));
    AIR_TRY(unit_edges(m, &edges));
    AIR_TRY(find_memory(m->g, arena, out));
    const exec_units all = {units, m->nunits, m->unit_of, out->root};
    if (m->options->order == AIR_ORDER_WRITTEN)
        AIR_TRY(
            exec_sort_written(m->g, &all, &edges, early, m->scratch, sorted));
    else
        AIR_TRY(exec_sort(m->options->order, m->g->name, m->nunits, &edges,
                          m->scratch, sorted));
    memcpy(out->units, units, m->nunits * sizeof *units);
    mark_stored(m, out);
    AIR_TRY(find_cats(m, arena, out));
    AIR_TRY(find_turned(m, arena, out));
    AIR_TRY(once_first(m, units, sorted, &out->once));
    for (size_t i = 0; i < m->nunits; i++)
        out->units[i] = units[sorted[i]];
    out->count = m->nunits;
    if (has_lanes(m->g))
        AIR_TRY(keep_edges(m, &edges, sorted, arena, out));
    return AIR_OK;
}

air_status
exec_order_make(const ir_graph *g, const air_compile_options *options,
                bool early, base_arena *arena, base_arena *scratch,
                exec_order *out)
{
    order_maker m = {.g = g, .options = options, .scratch = scratch};

    return make_order(&m, early, arena, out);
}
