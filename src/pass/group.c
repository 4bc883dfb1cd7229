/* group.c: fusion. Nodes whose loops run over one iteration space become one
 * group, which the lowering turns into one region; the nodes stay what they
 * are. Greedy, in execution order: a node joins the groups of its operands, and
 * of other readers of them, as long as the union is one region and no value
 * would have to leave it and come back (legal). */
#include <assert.h>
#include <string.h>

#include "pass/group.h"
#include "pass/pass.h"

/* Bounds that keep a union within the limits of a region: what rows are made of
 * is a scalar where a later phase reads it, which none does behind folds of
 * outer axes. */
#define MAX_MEMBERS 32
#define MAX_BUFFERS 20
#define MAX_ROWS    10
#define MAX_WORK    160
#define MAX_SUMS    4

/* Sums are taken where rows are walked if a row is long enough to be code of
 * its own and short enough to stay in the cache, and there are many of them. */
#define MIN_SUMMED_ROW  33
#define MAX_SUMMED_ROW  16384
#define MIN_SUMMED_ROWS 32

typedef struct {
    group_domain domain;
    BASE_VEC(uint32_t) nodes; /* in execution order */
} group;

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    BASE_VEC(group) groups;
    uint32_t *position;
    uint32_t *place; /* by node: its number in the last candidate */
    uint32_t *begin; /* by position: where the first group begins that lies on
                        both sides of it */
    uint32_t *deps, *deps_start; /* by node: what must run before it */
    uint32_t *seen;              /* by node, then by group: stamp */
    uint32_t stamp;
    uint32_t *stack;
    uint32_t *reader; /* by value: the latest node that reads all of it */
    uint8_t *wide;    /* by node: integer or double lanes take part */
    uint8_t *work;    /* by node: region nodes of its body */
} grouper;

/* ---- dependencies ---- */

static air_status
sort_deps(grouper *p, const ir_edges *edges)
{
    const size_t nodes = p->g->nodes.count;
    uint32_t *start;

    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 2, &start));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, edges->count + 1, &p->deps));
    for (size_t i = 0; i < edges->count; i++)
        start[edges->data[i].to + 2]++;
    for (size_t i = 2; i < nodes + 2; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < edges->count; i++)
        p->deps[start[edges->data[i].to + 1]++] = edges->data[i].from;
    p->deps_start = start;
    return AIR_OK;
}

static air_status
find_deps(grouper *p)
{
    ir_edges edges;

    AIR_TRY(ir_dependencies(p->g, p->ctx->scratch, &edges));
    air_status status = sort_deps(p, &edges);
    BASE_VEC_FREE(p->g->alloc, &edges);
    return status;
}

/* ---- legality: no path leaves the union and comes back ---- */

/* Two groups that may become one. */
typedef struct {
    grouper *p;
    int32_t a, b;
    group_domain domain;
    uint32_t nodes[MAX_MEMBERS]; /* in execution order */
    size_t count;
    air_ref externals[MAX_BUFFERS + 1];
    size_t nexternals;
    size_t sums; /* members that are sums over the rows */
} candidate;

static bool
in_union(const candidate *c, uint32_t node)
{
    int32_t id = c->p->g->nodes.data[node].group;

    return id >= 0 && (id == c->a || id == c->b);
}

/* A position before which nothing depends on what stands at `at` or later: no
 * group lies on both sides of it. */
static uint32_t
horizon(const grouper *p, uint32_t at)
{
    while (p->begin[at] < at)
        at = p->begin[at];
    return at;
}

static void
push_node(grouper *p, uint32_t node, uint32_t begin, size_t *top)
{
    int32_t group_id = p->g->nodes.data[node].group;
    const group *grp;

    if (p->seen[node] == p->stamp || p->position[node] < begin)
        return;
    if (group_id < 0) {
        p->seen[node] = p->stamp;
        p->stack[(*top)++] = node;
        return;
    }
    grp = &p->groups.data[group_id];
    for (size_t i = 0; i < grp->nodes.count; i++) {
        p->seen[grp->nodes.data[i]] = p->stamp;
        p->stack[(*top)++] = grp->nodes.data[i];
    }
}

/* Does something outside that the union depends on depend on the union? */
static bool
legal(grouper *p, const candidate *c)
{
    const uint32_t begin = horizon(p, p->position[c->nodes[0]]);
    size_t top = 0;

    p->stamp++;
    for (size_t i = 0; i < c->count; i++)
        for (uint32_t d = p->deps_start[c->nodes[i]];
             d < p->deps_start[c->nodes[i] + 1]; d++)
            if (!in_union(c, p->deps[d]))
                push_node(p, p->deps[d], begin, &top);
    while (top > 0) {
        uint32_t node = p->stack[--top];
        for (uint32_t d = p->deps_start[node]; d < p->deps_start[node + 1];
             d++) {
            if (in_union(c, p->deps[d]))
                return false;
            push_node(p, p->deps[d], begin, &top);
        }
    }
    return true;
}

/* ---- fit: is the union one region? ---- */

static bool
add_nodes(candidate *c, const uint32_t *nodes, size_t count)
{
    const grouper *p = c->p;

    if (c->count + count > MAX_MEMBERS)
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t at = c->count++;
        while (at > 0 &&
               p->position[c->nodes[at - 1]] > p->position[nodes[i]]) {
            c->nodes[at] = c->nodes[at - 1];
            at--;
        }
        c->nodes[at] = nodes[i];
    }
    for (size_t i = 0; i < c->count; i++)
        p->place[c->nodes[i]] = (uint32_t)i;
    return true;
}

static int
member_index(const candidate *c, air_ref v)
{
    uint32_t node = ir_val(c->p->g, v)->node;

    return node != IR_NO_NODE && in_union(c, node) ? (int)c->p->place[node]
                                                   : -1;
}

static bool
add_external(candidate *c, air_ref v)
{
    for (size_t i = 0; i < c->nexternals; i++)
        if (c->externals[i].id == v.id)
            return true;
    if (c->nexternals >= MAX_BUFFERS)
        return false;
    c->externals[c->nexternals++] = v;
    return true;
}

/* May a node of this kind read a member of that kind? A squeezed row is no
 * operand of a full value: it would be broadcast along the wrong axis. */
static bool
may_read(bool reduce, group_kind reader, group_kind member)
{
    if (reduce)
        return member == GROUP_FULL;
    if (reader == GROUP_FULL)
        return member == GROUP_FULL || member == GROUP_ROW;
    return reader == member;
}

static bool
reduces_outer_axes(const candidate *c)
{
    int last = c->domain.rank - 1;
    int64_t size;

    while (last > 0 && !c->domain.reduced[last] &&
           ir_dim_is_const(c->p->g, c->domain.dims[last], &size) && size == 1)
        last--;
    return c->domain.nreduced > 0 && !c->domain.reduced[last];
}

/* Does a member read the memory that member `writer` writes in place, in a way
 * that the region could not keep apart? What other elements of it a member sees
 * would depend on the order of elements; where rows are folded, a later phase
 * may read again what a full value replaced; and what is read after the write
 * is the new value, which the region has not stored yet. */
static bool
reads_replaced(const candidate *c, const group_kind *kind, size_t writer)
{
    const ir_graph *g = c->p->g;
    const air_ref to = ir_node_at(g, c->nodes[writer])->attrs[0].value;
    const uint32_t root = pass_root(g, to).id;
    const bool folds = kind[writer] == GROUP_FULL && c->domain.nreduced > 0;

    for (size_t i = 0; i < c->count; i++) {
        const ir_node *n = ir_node_at(g, c->nodes[i]);
        for (int k = i == writer; k < n->nattrs; k++) {
            if (n->attrs[k].kind != AIR_ATTR_VALUE ||
                pass_root(g, n->attrs[k].value).id != root)
                continue;
            if (folds || kind[i] != kind[writer] ||
                !pass_same_dims(g, n->attrs[k].value, to) ||
                (n->attrs[k].value.id == to.id
                     ? i > writer
                     : member_index(c, n->attrs[k].value) < 0))
                return true;
        }
    }
    return false;
}

/* Of the axes that are reduced, or of the others; false: not known. */
static bool
count_points(const candidate *c, bool reduced, int64_t *out)
{
    int64_t size;

    *out = 1;
    for (int i = 0; i < c->domain.rank; i++)
        if (c->domain.reduced[i] == reduced &&
            (!ir_dim_is_const(c->p->g, c->domain.dims[i], &size) ||
             __builtin_mul_overflow(*out, size, out)))
            return false;
    return true;
}

/* May sums over the rows be taken where the rows are walked? */
static bool
may_sum(const candidate *c)
{
    int64_t row, rows;

    return !pass_without(c->p->ctx, AIR_WITHOUT_SUMS) &&
           count_points(c, true, &row) && row >= MIN_SUMMED_ROW &&
           row <= MAX_SUMMED_ROW &&
           (!count_points(c, false, &rows) || rows >= MIN_SUMMED_ROWS);
}

/* Reduced axes are walked as one: an operand has all of them or none. */
static bool
breaks_run(const candidate *c, air_ref v)
{
    const group_domain *d = &c->domain;
    return group_has_some_axes(c->p->g, d->rank, d->dims, d->reduced, v);
}

static group_kind
kind_in(const candidate *c, const ir_node *n)
{
    return group_is_column(c->p->g, &c->domain, n)
               ? GROUP_COLUMN
               : group_kind_of(c->p->g, &c->domain, n->outs[0]);
}

/* Members' kinds, levels and operands; counts what the region will need. */
static bool
fits(candidate *c)
{
    const ir_graph *g = c->p->g;
    const bool outer = reduces_outer_axes(c);
    group_kind kind[MAX_MEMBERS];
    int level[MAX_MEMBERS], rows = 0, work = 0;

    for (size_t i = 0; i < c->count; i++) {
        const ir_node *n = ir_node_at(g, c->nodes[i]);
        const bool reduce = ir_info(n)->cls == IR_CLASS_REDUCE;
        kind[i] = kind_in(c, n);
        level[i] = 0;
        if (kind[i] == GROUP_OTHER || (reduce && kind[i] == GROUP_FULL))
            return false;
        if (kind[i] != GROUP_FULL && kind[i] != GROUP_COLUMN)
            rows += reduce || !outer;
        c->sums += kind[i] == GROUP_COLUMN;
        work += c->p->work[c->nodes[i]];
        for (int k = 0; k < n->nattrs; k++) {
            if (n->attrs[k].kind != AIR_ATTR_VALUE)
                continue;
            int m = member_index(c, n->attrs[k].value);
            if (m < 0 &&
                (!add_external(c, n->attrs[k].value) ||
                 (kind[i] == GROUP_FULL && breaks_run(c, n->attrs[k].value))))
                return false;
            if (m < 0)
                continue;
            if (m >= (int)i || !may_read(reduce, kind[i], kind[m]))
                return false;
            if (level[m] > level[i])
                level[i] = level[m];
        }
        if (outer && level[i] > 0 && (reduce || kind[i] == GROUP_FULL))
            return false;
        level[i] += reduce && kind[i] != GROUP_COLUMN;
    }
    if (c->sums > MAX_SUMS || (c->sums > 0 && !may_sum(c)))
        return false;
    for (size_t i = 0; i < c->count; i++)
        if (ir_node_at(g, c->nodes[i])->inplace && reads_replaced(c, kind, i))
            return false;
    return rows <= MAX_ROWS && work <= MAX_WORK;
}

/* Values that other nodes read, or results: each is a buffer too. */
static size_t
count_stored(const candidate *c, const uint32_t *uses)
{
    uint32_t inside[MAX_MEMBERS] = {0};
    size_t stored = 0;

    if (pass_without(c->p->ctx, AIR_WITHOUT_REGISTERS))
        return c->count;
    for (size_t i = 0; i < c->count; i++) {
        const ir_node *n = ir_node_at(c->p->g, c->nodes[i]);
        for (int k = 0; k < n->nattrs; k++) {
            int m = n->attrs[k].kind == AIR_ATTR_VALUE
                        ? member_index(c, n->attrs[k].value)
                        : -1;
            if (m >= 0)
                inside[m]++;
        }
    }
    for (size_t i = 0; i < c->count; i++) {
        const ir_node *n = ir_node_at(c->p->g, c->nodes[i]);
        stored += n->inplace || uses[n->outs[0].id] > inside[i];
    }
    return stored;
}

/* ---- forming groups ---- */

/* The compiler of the text sees to lanes of any kind. */
static bool
is_text(const pass_context *ctx)
{
    return ctx->target && ctx->target->source;
}

/* Of one kind of vector lanes, of one lane of the program, and both run at each
 * run or both at the first. */
static bool
same_lanes(const grouper *p, uint32_t a, uint32_t b)
{
    const ir_node *x = ir_node_at(p->g, a), *y = ir_node_at(p->g, b);

    return (p->wide[a] == p->wide[b] || is_text(p->ctx)) &&
           x->once == y->once && x->scope.lane == y->scope.lane;
}

static air_status
new_group(grouper *p, uint32_t id, const group_domain *domain)
{
    group grp = {.domain = *domain};

    AIR_TRY(BASE_PUSH(p->ctx->alloc, &grp.nodes, id));
    p->g->nodes.data[id].group = (int32_t)p->groups.count;
    air_status status = BASE_PUSH(p->ctx->alloc, &p->groups, grp);
    if (status != AIR_OK)
        BASE_VEC_FREE(p->ctx->alloc, &grp.nodes);
    return status;
}

static void
mark_span(grouper *p, const candidate *c)
{
    const uint32_t begin = p->position[c->nodes[0]];
    const uint32_t end = p->position[c->nodes[c->count - 1]];

    for (uint32_t at = begin + 1; at <= end; at++)
        if (p->begin[at] > begin)
            p->begin[at] = begin;
}

/* Tries to put the group of node `from` and the group of `id` into one. */
static air_status
try_join(grouper *p, uint32_t id, uint32_t from, const uint32_t *uses)
{
    const int32_t a = p->g->nodes.data[id].group;
    const int32_t b = p->g->nodes.data[from].group;
    candidate c;
    group *keep, *drop;

    if (a == b || b < 0 || !same_lanes(p, id, from))
        return AIR_OK;
    c.p = p;
    c.a = a;
    c.b = b;
    c.count = c.nexternals = c.sums = 0;
    keep = &p->groups.data[b];
    drop = &p->groups.data[a];
    if (!group_domain_join(p->g, &keep->domain, &drop->domain, &c.domain) ||
        !add_nodes(&c, keep->nodes.data, keep->nodes.count) ||
        !add_nodes(&c, drop->nodes.data, drop->nodes.count) || !fits(&c) ||
        c.nexternals + c.sums + count_stored(&c, uses) > MAX_BUFFERS ||
        !legal(p, &c) || !pass_allow(p->ctx))
        return AIR_OK;
    AIR_TRY(BASE_RESERVE(p->ctx->alloc, &keep->nodes, c.count));
    memcpy(keep->nodes.data, c.nodes, c.count * sizeof *c.nodes);
    keep->nodes.count = c.count;
    keep->domain = c.domain;
    mark_span(p, &c);
    drop->nodes.count = 0;
    for (size_t i = 0; i < c.count; i++)
        p->g->nodes.data[c.nodes[i]].group = b;
    return AIR_OK;
}

/* Does n take every other element of a last axis, or one of two? */
static bool
takes_part(const ir_graph *g, const ir_node *n)
{
    const bool slice = strcmp(ir_info(n)->name, "slice.Tensor") == 0;
    int axis;
    int64_t count;

    if (!slice && strcmp(ir_info(n)->name, "select.int") != 0)
        return false;
    const ir_value *x = ir_val(g, n->attrs[0].value);
    if (ir_axis(g, &n->attrs[1], x->rank, "dim", &axis) != AIR_OK ||
        axis != x->rank - 1)
        return false;
    return (slice ? pass_int(g, &n->attrs[4], &count)
                  : ir_dim_is_const(g, x->dims[axis], &count)) &&
           count == 2;
}

/* What is read for v: both parts of pairs (complex numbers) lie in the same
 * lines. */
static air_ref
lines_of(const ir_graph *g, air_ref v)
{
    const ir_node *n = pass_producer(g, v);

    if (!n || n->op == AIR_OP_NONE || n->op == AIR_OP_HOST || !takes_part(g, n))
        return v;
    v = n->attrs[0].value;
    while ((n = pass_made_by(g, v, "view")) != NULL)
        v = n->attrs[0].value;
    return v;
}

/* Siblings: two nodes that read the same value share its loads. */
static air_status
join_reader(grouper *p, uint32_t id, air_ref v, const uint32_t *uses)
{
    const ir_node *n = ir_node_at(p->g, id);
    const air_ref key = lines_of(p->g, v);
    const uint32_t from = p->reader[key.id];
    group_kind kind = group_kind_of(p->g, &p->groups.data[n->group].domain, v);

    if (kind != GROUP_FULL)
        return AIR_OK;
    p->reader[key.id] = id;
    return from == IR_NO_NODE ? AIR_OK : try_join(p, id, from, uses);
}

static air_status
visit(grouper *p, uint32_t id, const uint32_t *uses)
{
    ir_node *n = ir_node_at(p->g, id);
    group_domain domain;

    n->group = -1;
    if (!group_domain_of(p->g, n, &domain) ||
        ir_info(n)->cls == IR_CLASS_CREATE)
        return AIR_OK;
    AIR_TRY(new_group(p, id, &domain));
    for (int i = 0; i < n->nattrs; i++) {
        if (n->attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        uint32_t from = ir_val(p->g, n->attrs[i].value)->node;
        if (from != IR_NO_NODE)
            AIR_TRY(try_join(p, id, from, uses));
    }
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE)
            AIR_TRY(join_reader(p, id, n->attrs[i].value, uses));
    return AIR_OK;
}

static bool
is_wide(air_lane lane)
{
    return lane == AIR_LANE_I64 || lane == AIR_LANE_F64;
}

static void
measure_body(grouper *p, uint32_t id)
{
    const ir_node *n = ir_node_at(p->g, id);
    air_rg_node nodes[AIR_RG_MAX_NODES];
    ir_record rec = {.nodes = nodes};
    air_lane lane = ir_info(n)->dtype == IR_DT_TRUTH
                        ? AIR_LANE_B
                        : ir_lane_of(ir_compute_dtype(p->g, n));

    ir_record_node(&rec, n, lane);
    p->work[id] = (uint8_t)(rec.count > 255 ? 255 : rec.count);
    p->wide[id] = is_wide(lane);
}

/* Nodes whose loops the emitter cannot turn into machine code (integer and
 * double lanes) do not drag others along. */
static void
measure_node(grouper *p, uint32_t id)
{
    const ir_node *n = ir_node_at(p->g, id);

    if (n->op == AIR_OP_NONE)
        return;
    if (ir_info(n)->cls == IR_CLASS_POINTWISE)
        measure_body(p, id);
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            is_wide(
                ir_lane_of((air_dtype)ir_val(p->g, n->attrs[i].value)->dtype)))
            p->wide[id] = 1;
    /* A cast to double goes with what reads it: what is stored stays narrow. */
    if (n->nouts > 0 && ir_val(p->g, n->outs[0])->dtype == AIR_F64)
        p->wide[id] = 1;
}

static air_status
number_groups(grouper *p)
{
    int32_t next = 0;

    for (size_t i = 0; i < p->groups.count; i++) {
        group *grp = &p->groups.data[i];
        for (size_t k = 0; k < grp->nodes.count; k++)
            p->g->nodes.data[grp->nodes.data[k]].group =
                grp->nodes.count > 1 ? next : -1;
        next += grp->nodes.count > 1;
    }
    p->g->ngroups = next;
    return AIR_OK;
}

static air_status
run(grouper *p)
{
    const size_t nodes = p->g->nodes.count;
    uint32_t *uses;

    AIR_TRY(pass_positions(p->ctx, &p->position));
    AIR_TRY(pass_count_uses(p->ctx, &uses));
    AIR_TRY(find_deps(p));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->seen));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->stack));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->place));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->begin));
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->wide));
    AIR_TRY(
        BASE_ARENA_ARRAY(p->ctx->scratch, p->g->values.count + 1, &p->reader));
    memset(p->reader, 0xff, p->g->values.count * sizeof *p->reader);
    AIR_TRY(BASE_ARENA_ARRAY(p->ctx->scratch, nodes + 1, &p->work));
    for (uint32_t id = 0; id < nodes; id++) {
        p->g->nodes.data[id].group = -1;
        p->begin[id] = id;
        measure_node(p, id);
    }
    IR_FOR_EACH(p->g, id)
    AIR_TRY(visit(p, id, uses));
    return number_groups(p);
}

air_status
pass_group(pass_context *ctx)
{
    grouper p = {.ctx = ctx, .g = ctx->g};
    air_status status = run(&p);

    for (size_t i = 0; i < p.groups.count; i++)
        BASE_VEC_FREE(ctx->alloc, &p.groups.data[i].nodes);
    BASE_VEC_FREE(ctx->alloc, &p.groups);
    return status;
}
