/* interleave.c: pointwise nodes behind values whose elements are two others' in
 * turns (stack and flatten, as rotary embeddings have them; complex numbers)
 * compute each of the two, and leave their results interleaved.
 *
 * f(flatten(stack(a, b)), y) becomes flatten(stack(f(a, y[..., ::2]),
 * f(b, y[..., 1::2]))): a, b and what is made of them are one group, and only
 * the last result is written to memory, both parts at once. A part that is no
 * more than a view of what the other is made of is copied there, too. */
#include <string.h>

#include "pass/build.h"

enum {
    MOST_SUNK = 8,  /* nodes behind each other: a part is a group of its own */
    MOST_READ = 4,  /* nodes from a part to what it is made of */
    LEAST_FLAT = 8, /* elements of a row, for both parts to be rows */
};

/* What lies in v in turns: along a last axis of two, or along one that this was
 * merged with the axis before it (flat). */
typedef struct {
    air_ref part[2];
    bool flat;
} turns;

typedef struct {
    /* By value: how many nodes behind each other may be computed for its parts;
     * 0 unless all that read it are pointwise, of its sizes. */
    uint8_t *sinks;
    size_t cap;
} interleave;

/* ---- reading ------------------------------------------------------------- */

static bool
is_view(const ir_node *n, ir_view kind)
{
    return n != NULL && n->op != AIR_OP_NONE && n->op != AIR_OP_HOST &&
           ir_info(n)->cls == IR_CLASS_VIEW && ir_info(n)->view == (int)kind;
}

/* Does v have the first `count` sizes of x? */
static bool
begins_as(const ir_graph *g, air_ref v, air_ref x, int count)
{
    const ir_value *a = ir_val(g, v), *b = ir_val(g, x);
    bool same = a->rank >= count && b->rank >= count;

    for (int i = 0; same && i < count; i++)
        same = ir_dim_eq(a->dims[i], b->dims[i]);
    return same;
}

/* The operand to which x adds a last axis of one; AIR_NO_REF: none. */
static air_ref
read_column(const ir_graph *g, air_ref x)
{
    const ir_node *n = pass_producer(g, x);
    const int rank = ir_val(g, x)->rank;

    if (!is_view(n, IR_VIEW_view) && !is_view(n, IR_VIEW_unsqueeze))
        return AIR_NO_REF;
    const air_ref from = n->attrs[0].value;
    return ir_val(g, from)->rank == rank - 1 && pass_size_at(g, x, 1) == 1 &&
                   begins_as(g, x, from, rank - 1)
               ? from
               : AIR_NO_REF;
}

/* The cat of two columns that x is. */
static bool
read_cat(const ir_graph *g, air_ref x, turns *out)
{
    const ir_node *cat = pass_made_by(g, x, "cat");
    const int rank = ir_val(g, x)->rank;
    int axis;

    if (!cat || cat->attrs[0].count != 2 || rank < 2 ||
        ir_axis(g, &cat->attrs[1], rank, "dim", &axis) != AIR_OK ||
        axis != rank - 1)
        return false;
    for (int k = 0; k < 2; k++) {
        out->part[k] = read_column(g, cat->attrs[0].values[k]);
        if (out->part[k].id == AIR_NO_REF.id ||
            ir_val(g, out->part[k])->dtype != ir_val(g, x)->dtype)
            return false;
    }
    return true;
}

static bool
read_turns(const ir_graph *g, air_ref v, turns *out)
{
    const ir_node *n = pass_producer(g, v);
    const int rank = ir_val(g, v)->rank;

    out->flat = false;
    if (read_cat(g, v, out))
        return true;
    if (!is_view(n, IR_VIEW_view))
        return false;
    const air_ref x = n->attrs[0].value;
    out->flat = ir_val(g, x)->rank == rank + 1 &&
                pass_size_at(g, v, 1) >= LEAST_FLAT &&
                begins_as(g, v, x, rank - 1);
    return out->flat && read_cat(g, x, out);
}

/* ---- which values -------------------------------------------------------- */

typedef struct {
    interleave *s;
    const ir_graph *g;
    const ir_node *n;
} reader;

static void
note_operand(void *arg, air_ref *r)
{
    const reader *at = arg;

    if (r->id != AIR_NO_REF.id && (!pass_is_pointwise(at->n) ||
                                   !pass_same_dims(at->g, *r, at->n->outs[0])))
        at->s->sinks[r->id] = 0;
}

static air_status
find_sinks(pass_context *ctx, interleave *s)
{
    ir_graph *g = ctx->g;

    s->cap = g->values.count;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, s->cap + 1, &s->sinks));
    memset(s->sinks, MOST_SUNK, s->cap);
    for (size_t i = 0; i < g->results.count; i++)
        s->sinks[g->results.data[i].value.id] = 0;
    IR_FOR_EACH(g, id)
    {
        reader at = {s, g, ir_node_at(g, id)};
        ir_each_operand(g, ir_node_at(g, id), note_operand, &at);
    }
    return AIR_OK;
}

/* A value that stands for another, behind `left` - 1 more nodes. */
static air_status
note_same(pass_context *ctx, interleave *s, air_ref r, air_ref as, int left)
{
    if (r.id >= s->cap) {
        const size_t cap = 2 * ((size_t)r.id + 1);
        uint8_t *grown;
        AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cap, &grown));
        memcpy(grown, s->sinks, s->cap * sizeof *grown);
        *s = (interleave){grown, cap};
    }
    s->sinks[r.id] = s->sinks[as.id] ? (uint8_t)(left - 1) : 0;
    return AIR_OK;
}

/* The parts are read later than they were: nothing may be written there. */
static bool
can_sink(const pass_context *ctx, const interleave *s, air_ref v, turns *out)
{
    return v.id < s->cap && s->sinks[v.id] > 0 && read_turns(ctx->g, v, out) &&
           !pass_is_mutated(ctx, out->part[0]) &&
           !pass_is_mutated(ctx, out->part[1]) &&
           ir_val(ctx->g, v)->rank + out->flat <= AIR_MAX_RANK;
}

/* ---- writing ------------------------------------------------------------- */

/* Every other element of x, as the parts of `like` are of it. A vector stays
 * one: without axes it would count otherwise in promotions. */
static air_ref
part_of(pass_build *b, air_ref x, const turns *like, int k)
{
    const int64_t size = b->status == AIR_OK ? pass_size_at(b->g, x, 1) : 0;
    turns own;

    if (b->status != AIR_OK || ir_val(b->g, x)->rank == 0 ||
        (like->flat && size == 1))
        return x;
    if (read_turns(b->g, x, &own) && own.flat == like->flat)
        return own.part[k];
    const int index = size == 1 ? 0 : k;
    if (like->flat)
        return b_every_other(b, x, index);
    if (ir_val(b->g, x)->rank == 1)
        return b_slice(b, x, 0, b_dim(b, index), b_dim(b, index + 1));
    return B_OP(b, "select.int", at_value(x), at_int(b, -1), at_int(b, index));
}

/* Node n on the parts with index k of its operands. */
static air_ref
compute(pass_build *b, const ir_node *n, const turns *like, int k)
{
    air_attr *attrs;

    if (b->status == AIR_OK)
        b->status =
            BASE_ARENA_ARRAY(b->ctx->scratch, (size_t)n->nattrs + 1, &attrs);
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    for (int i = 0; i < n->nattrs; i++) {
        attrs[i] = n->attrs[i];
        if (attrs[i].kind == AIR_ATTR_VALUE)
            attrs[i].value = part_of(b, attrs[i].value, like, k);
    }
    return b_op(b, ir_info(n)->name, (size_t)n->nattrs, attrs);
}

static air_ref
join(pass_build *b, const air_ref *parts, bool flat, air_ref like)
{
    const air_ref first = b_unsqueeze(b, parts[0], -1);
    const air_ref columns[2] = {first, b_unsqueeze(b, parts[1], -1)};
    const air_ref x = B_OP(b, "cat", at_values(b, 2, columns), at_int(b, -1));
    const ir_value out = *ir_val(b->g, like);

    return flat ? b_view(b, x, out.rank, out.dims) : x;
}

/* Of tensors one by one, whose pairs are walked as they lie. */
static bool
is_plain(const pass_context *ctx, const ir_node *n)
{
    for (int i = 0; i < n->nattrs; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUES ||
            (n->attrs[i].kind == AIR_ATTR_VALUE &&
             pass_size_at(ctx->g, n->attrs[i].value, 1) > 1 &&
             !pass_walks_pairs(ctx, n->attrs[i].value)))
            return false;
    return pass_walks_pairs(ctx, n->outs[0]);
}

/* The operand that is interleaved behind as many nodes as any; AIR_NO_REF: none
 * is. */
static air_ref
find_turns(const pass_context *ctx, const interleave *s, const ir_node *n,
           turns *out)
{
    air_ref found = AIR_NO_REF;
    turns of;

    for (int i = 0; i < n->nattrs; i++) {
        const air_ref v = n->attrs[i].value;
        if (n->attrs[i].kind != AIR_ATTR_VALUE ||
            !pass_same_dims(ctx->g, v, n->outs[0]) ||
            !can_sink(ctx, s, v, &of) ||
            (found.id != AIR_NO_REF.id && s->sinks[v.id] >= s->sinks[found.id]))
            continue;
        found = v;
        *out = of;
    }
    return found;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    interleave *s = arg;
    const ir_node n = *ir_node_at(ctx->g, node);
    turns of;
    air_ref parts[2];

    if (!pass_is_pointwise(&n) || n.outs[0].id >= s->cap || !is_plain(ctx, &n))
        return AIR_OK;
    const air_ref v = find_turns(ctx, s, &n, &of);
    if (v.id == AIR_NO_REF.id || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int k = 0; k < 2; k++)
        parts[k] = compute(&b, &n, &of, k);
    const air_ref all = join(&b, parts, of.flat, n.outs[0]);
    AIR_TRY(b.status);
    AIR_TRY(note_same(ctx, s, all, n.outs[0], s->sinks[v.id]));
    return build_forward(&b, node, 0, all);
}

/* ---- parts that are not computed ----------------------------------------- */

/* Is v made of the memory `root`, a few pointwise nodes away? */
static bool
is_made_of(const ir_graph *g, air_ref v, air_ref root, int nodes)
{
    const ir_node *n = pass_producer(g, v);

    if (!pass_is_pointwise(n))
        return pass_root(g, v).id == root.id;
    for (int i = 0; i < n->nattrs && nodes > 0; i++)
        if (n->attrs[i].kind == AIR_ATTR_VALUE &&
            is_made_of(g, n->attrs[i].value, root, nodes - 1))
            return true;
    return false;
}

/* Is part k a view of what the other part is made of? */
static bool
is_left(const ir_graph *g, const turns *t, int k)
{
    return !pass_is_pointwise(pass_producer(g, t->part[k])) &&
           is_made_of(g, t->part[1 - k], pass_root(g, t->part[k]), MOST_READ);
}

/* Where one part is computed and the other only moved, both are one group. */
static air_status
visit_cat(pass_context *ctx, uint32_t node, void *arg)
{
    ir_graph *g = ctx->g;
    const ir_node *n = ir_node_at(g, node);
    turns t = {.flat = false};

    (void)arg;
    if (n->op != AIR_OP_CAT || !read_cat(g, n->outs[0], &t) ||
        !pass_walks_pairs(ctx, n->outs[0]))
        return AIR_OK;
    const bool left[2] = {is_left(g, &t, 0), is_left(g, &t, 1)};
    if ((!left[0] && !left[1]) || !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int k = 0; k < 2; k++)
        if (left[k])
            t.part[k] = b_1(&b, "clone", t.part[k]);
    AIR_TRY(b.status);
    const air_ref out = node_out(g, node, 0);
    return build_forward(&b, node, 0, join(&b, t.part, false, out));
}

/* ---- parts that are read ------------------------------------------------- */

/* One of two elements of a last axis that was made of all of x, which a
 * pointwise node makes, is every other one of x: pass pick goes on from it. */
static air_status
visit_select(pass_context *ctx, uint32_t node, void *arg)
{
    ir_graph *g = ctx->g;
    const ir_node *n = ir_node_at(g, node);
    int64_t index;
    int axis;

    (void)arg;
    if (n->op != AIR_OP_SELECT || !pass_int(g, &n->attrs[2], &index) ||
        !is_view(pass_producer(g, n->attrs[0].value), IR_VIEW_view))
        return AIR_OK;
    const air_ref pairs = n->attrs[0].value;
    const air_ref x = pass_producer(g, pairs)->attrs[0].value;
    const int rank = ir_val(g, pairs)->rank;
    if (ir_axis(g, &n->attrs[1], rank, "dim", &axis) != AIR_OK ||
        axis != rank - 1 || pass_size_at(g, pairs, 1) != 2 ||
        ir_val(g, x)->rank != rank - 1 || !begins_as(g, pairs, x, rank - 2) ||
        pass_size_at(g, x, 1) < LEAST_FLAT ||
        !pass_is_pointwise(pass_producer(g, x)) || !pass_walks_pairs(ctx, x) ||
        !pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    return build_forward(&b, node, 0, b_every_other(&b, x, index & 1));
}

air_status
pass_interleave(pass_context *ctx)
{
    interleave s;

    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, visit_select, NULL));
    AIR_TRY(pass_sweep(ctx));
    AIR_TRY(find_sinks(ctx, &s));
    AIR_TRY(pass_walk(ctx, visit, &s));
    AIR_TRY(pass_sweep(ctx));
    AIR_TRY(pass_walk(ctx, visit_cat, NULL));
    return pass_sweep(ctx);
}
