/* again.c: a value that one group makes and another reads is made again by the
 * reader, where that is a few operations on what the reader reads anyway, or
 * reads in its place (x of a norm, less its mean): it need not be stored then.
 * What is only widened is so by each of several readers. */
#include "pass/group.h"
#include "pass/pass.h"

enum {
    MAX_CHAIN = 4, /* nodes that make a value again */
    MAX_WORK = 24, /* region nodes of theirs, loads and all */
    MAX_MEMBERS =
        24, /* of the reader's group: below the bounds of pass group */
    MAX_EXTERNALS = 10, /* values that it reads */
};

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    uint32_t *uses, *position;
    uint32_t *members, *start; /* nodes of group i: start[i] to start[i + 1] */
    uint32_t *added;           /* by group: values read by what was added */
    bool *written;             /* by value: memory of it is written in place */
    size_t values, nodes;      /* known before the pass */
} again;

/* The group of the reader, and what would be made in it. */
typedef struct {
    again *a;
    uint32_t reader;
    int32_t from, to; /* groups */
    air_lane lane;    /* F32 or F64: of the value and what makes and reads it */
    group_domain domain;
    uint32_t members[MAX_MEMBERS];
    size_t nmembers;
    air_ref externals[MAX_EXTERNALS];
    size_t nexternals;
    uint32_t chain[MAX_CHAIN];
    size_t nchain;
    int work;
    size_t bytes; /* of an element of what may still be read in its place */
} remake;

/* ---- the reader's group ---- */

static bool
add_external(remake *r, air_ref v)
{
    const uint32_t node = ir_val(r->a->g, v)->node;

    if (node != IR_NO_NODE && ir_node_at(r->a->g, node)->group == r->to)
        return true;
    for (size_t i = 0; i < r->nexternals; i++)
        if (r->externals[i].id == v.id)
            return true;
    if (r->nexternals == MAX_EXTERNALS)
        return false;
    r->externals[r->nexternals++] = v;
    return true;
}

static bool
add_member(remake *r, uint32_t id)
{
    const ir_graph *g = r->a->g;
    const ir_node *n = ir_node_at(g, id);
    group_domain one, both;

    if (r->nmembers == MAX_MEMBERS || !group_domain_of(g, n, &one))
        return false;
    both = one;
    if (r->nmembers > 0 && !group_domain_join(g, &r->domain, &one, &both))
        return false;
    r->domain = both;
    r->members[r->nmembers++] = id;
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            !add_external(r, n->attrs[i].value))
            return false;
    return true;
}

static bool
find_members(remake *r)
{
    const again *a = r->a;

    for (uint32_t i = a->start[r->to]; i < a->start[r->to + 1]; i++)
        if (!add_member(r, a->members[i]))
            return false;
    return true;
}

static bool
is_external(const remake *r, air_ref v)
{
    for (size_t i = 0; i < r->nexternals; i++)
        if (r->externals[i].id == v.id)
            return true;
    return false;
}

/* ---- what makes the value ---- */

static air_lane
lane_of(const ir_graph *g, air_ref v)
{
    return ir_lane_of((air_dtype)ir_val(g, v)->dtype);
}

/* Of no function: those take as long as memory does. */
static bool
is_light(const ir_node *n, air_lane lane, int *work)
{
    air_rg_node nodes[AIR_RG_MAX_NODES];
    ir_record rec = {.nodes = nodes};

    ir_record_node(&rec, n, lane);
    *work += rec.count;
    for (int i = 0; i < rec.count; i++)
        switch (nodes[i].op) {
#define PRIM(...)
#define COMP(id, ...) case AIR_RG_##id:
#define FUNC(id, ...) case AIR_RG_##id:
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
            return false;
        default: break;
        }
    return rec.count < AIR_RG_MAX_NODES;
}

static bool
in_chain(const remake *r, uint32_t node)
{
    for (size_t i = 0; i < r->nchain; i++)
        if (r->chain[i] == node)
            return true;
    return false;
}

static bool add_maker(remake *r, uint32_t node);

/* Of what lies in memory anyway: is it as small as what it stands for? */
static bool
add_in_place(remake *r, air_ref v)
{
    const size_t bytes = air_dtype_bytes((air_dtype)ir_val(r->a->g, v)->dtype);

    if (bytes > r->bytes || !add_external(r, v))
        return false;
    r->bytes -= bytes;
    return true;
}

/* Can the reader's group read it, and no more memory than it has read? */
static bool
add_operand(remake *r, air_ref v)
{
    const ir_graph *g = r->a->g;
    const uint32_t node = ir_val(g, v)->node;

    if (v.id >= r->a->values || r->a->written[pass_root(g, v).id] ||
        group_has_some_axes(g, r->domain.rank, r->domain.dims,
                            r->domain.reduced, v))
        return false;
    if (group_kind_of(g, &r->domain, v) != GROUP_FULL)
        return (node == IR_NO_NODE || ir_node_at(g, node)->group != r->from) &&
               add_external(r, v);
    if (is_external(r, v))
        return true;
    return node != IR_NO_NODE && ir_node_at(g, node)->group == r->from
               ? add_maker(r, node)
               : add_in_place(r, v);
}

/* Nodes of the other group, those that read the value stay there. */
static bool
add_maker(remake *r, uint32_t node)
{
    const ir_graph *g = r->a->g;
    const ir_node *n = ir_node_at(g, node);

    if (in_chain(r, node))
        return true;
    if (r->nchain == MAX_CHAIN || n->group != r->from || n->inplace ||
        n->nouts != 1 || n->once != ir_node_at(g, r->reader)->once ||
        n->scope.lane != ir_node_at(g, r->reader)->scope.lane ||
        ir_info(n)->cls != IR_CLASS_POINTWISE ||
        lane_of(g, n->outs[0]) != r->lane ||
        ir_lane_of(ir_compute_dtype(g, n)) != r->lane ||
        !is_light(n, r->lane, &r->work) || r->work > MAX_WORK)
        return false;
    r->chain[r->nchain++] = node;
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            !add_operand(r, n->attrs[i].value))
            return false;
    return true;
}

/* ---- the rewrite ---- */

static size_t
count_reads(const ir_node *n, air_ref v)
{
    size_t count = 0;

    for (int i = 0; i < n->nattrs; i++)
        count +=
            n->attrs[i].kind == AIR_ATTR_VALUE && n->attrs[i].value.id == v.id;
    return count;
}

static size_t
count_group(const again *a, int32_t group, air_ref v)
{
    size_t count = 0;

    for (uint32_t i = a->start[group]; i < a->start[group + 1]; i++)
        count += count_reads(ir_node_at(a->g, a->members[i]), v);
    return count;
}

/* Is v read in its own group, and elsewhere by the reader's alone? */
static bool
is_between(const remake *r, air_ref v)
{
    const size_t from = count_group(r->a, r->from, v);

    return from > 0 && from + count_group(r->a, r->to, v) == r->a->uses[v.id];
}

/* Of what lies in memory in fewer bytes: to widen it again costs nothing, in
 * however many groups. */
static bool
is_widened(const remake *r, air_ref v)
{
    const ir_graph *g = r->a->g;
    const ir_node *n = pass_made_by(g, v, "_to_copy");

    return n && count_group(r->a, r->from, v) > 0 &&
           air_dtype_bytes((air_dtype)ir_val(g, n->attrs[0].value)->dtype) <
               air_dtype_bytes((air_dtype)ir_val(g, v)->dtype);
}

static void
replace(remake *r, air_ref v, air_ref by)
{
    ir_graph *g = r->a->g;

    for (size_t m = 0; m < r->nmembers; m++) {
        ir_node *n = ir_node_at(g, r->members[m]);
        for (int i = 0; i < n->nattrs; i++)
            if (n->attrs[i].kind == AIR_ATTR_VALUE &&
                n->attrs[i].value.id == v.id)
                n->attrs[i].value = by;
    }
}

/* Copies of the chain in front of the reader, each reading the copies. */
static air_status
copy_chain(remake *r, air_ref v)
{
    ir_graph *g = r->a->g;
    air_ref made[MAX_CHAIN];

    for (size_t i = 0; i < r->nchain; i++) {
        const ir_node n = *ir_node_at(g, r->chain[i]);
        air_attr *attrs;
        AIR_TRY(BASE_ARENA_ARRAY(r->a->ctx->scratch, n.nattrs + 1, &attrs));
        for (int k = 0; k < n.nattrs; k++) {
            attrs[k] = n.attrs[k];
            for (size_t c = 0; c < i; c++)
                if (attrs[k].kind == AIR_ATTR_VALUE &&
                    attrs[k].value.id == ir_node_at(g, r->chain[c])->outs[0].id)
                    attrs[k].value = made[c];
        }
        AIR_TRY(ir_add_node(g, (ir_op)n.op, n.nattrs, attrs, r->reader, n.loc,
                            &made[i]));
        ir_node *copy = ir_node_at(g, ir_val(g, made[i])->node);
        copy->group = r->to;
        copy->once = n.once;
        copy->scope = ir_node_at(g, r->reader)->scope;
    }
    replace(r, v, made[r->nchain - 1]);
    return AIR_OK;
}

static void
sort_chain(remake *r)
{
    for (size_t i = 1; i < r->nchain; i++)
        for (size_t k = i; k > 0 && r->a->position[r->chain[k - 1]] >
                                        r->a->position[r->chain[k]];
             k--) {
            uint32_t node = r->chain[k];
            r->chain[k] = r->chain[k - 1];
            r->chain[k - 1] = node;
        }
}

static air_status
visit(again *a, uint32_t id, air_ref v)
{
    const uint32_t maker = ir_val(a->g, v)->node;
    remake r = {.a = a, .reader = id, .to = ir_node_at(a->g, id)->group};

    if (maker == IR_NO_NODE || v.id >= a->values || maker >= a->nodes ||
        r.to < 0)
        return AIR_OK;
    r.lane = lane_of(a->g, v);
    r.from = ir_node_at(a->g, maker)->group;
    if ((r.lane != AIR_LANE_F32 && r.lane != AIR_LANE_F64) ||
        lane_of(a->g, ir_node_at(a->g, id)->outs[0]) != r.lane || r.from < 0 ||
        r.from == r.to || !(is_between(&r, v) || is_widened(&r, v)) ||
        !find_members(&r) || group_kind_of(a->g, &r.domain, v) != GROUP_FULL)
        return AIR_OK;
    const size_t before = r.nexternals;
    r.bytes = air_dtype_bytes((air_dtype)ir_val(a->g, v)->dtype);
    if (!add_maker(&r, maker) ||
        r.nexternals + a->added[r.to] > MAX_EXTERNALS || !pass_allow(a->ctx))
        return AIR_OK;
    a->added[r.to] += (uint32_t)(r.nexternals - before);
    sort_chain(&r);
    return copy_chain(&r, v);
}

static air_status
sort_members(again *a)
{
    uint32_t *start;

    AIR_TRY(
        BASE_ARENA_ARRAY(a->ctx->scratch, (size_t)a->g->ngroups + 2, &start));
    AIR_TRY(BASE_ARENA_ARRAY(a->ctx->scratch, a->nodes + 1, &a->members));
    AIR_TRY(BASE_ARENA_ARRAY(a->ctx->scratch, (size_t)a->g->ngroups + 1,
                             &a->added));
    IR_FOR_EACH(a->g, id)
    start[ir_node_at(a->g, id)->group + 1]++; /* -1: in front of all */
    for (int32_t i = 0, sum = 0; i <= a->g->ngroups; i++) {
        const int32_t count = (int32_t)start[i];
        start[i] = (uint32_t)sum;
        sum += count;
    }
    IR_FOR_EACH(a->g, id)
    a->members[start[ir_node_at(a->g, id)->group + 1]++] = id;
    a->start = start; /* each begins where the one before it ends by now */
    return AIR_OK;
}

static air_status
find_written(again *a)
{
    AIR_TRY(pass_facts_make(a->ctx));
    AIR_TRY(BASE_ARENA_ARRAY(a->ctx->scratch, a->values + 1, &a->written));
    for (uint32_t v = 0; v < a->values; v++)
        a->written[v] |= pass_is_mutated(a->ctx, (air_ref){v});
    IR_FOR_EACH(a->g, id)
    if (ir_node_at(a->g, id)->inplace)
        a->written[pass_root(a->g, ir_node_at(a->g, id)->outs[0]).id] = true;
    return AIR_OK;
}

air_status
pass_again(pass_context *ctx)
{
    again a = {.ctx = ctx,
               .g = ctx->g,
               .values = ctx->g->values.count,
               .nodes = ctx->g->nodes.count};

    if (pass_without(ctx, AIR_WITHOUT_REGISTERS))
        return AIR_OK; /* every value is in memory then */
    AIR_TRY(pass_positions(ctx, &a.position));
    AIR_TRY(pass_count_uses(ctx, &a.uses));
    AIR_TRY(find_written(&a));
    AIR_TRY(sort_members(&a));
    IR_FOR_EACH(ctx->g, id)
    for (int i = 0; id < a.nodes && i < ir_node_at(ctx->g, id)->nattrs; i++)
        if (ir_node_at(ctx->g, id)->attrs[i].kind == AIR_ATTR_VALUE)
            AIR_TRY(visit(&a, id, ir_node_at(ctx->g, id)->attrs[i].value));
    return AIR_OK;
}
