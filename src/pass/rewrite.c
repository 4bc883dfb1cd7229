/* rewrite.c: what all passes are made of: the forwarding walk, the sweep, and
 * questions about values. */
#include "pass/pass.h"

#include <assert.h>
#include <string.h>

bool
pass_allow(pass_context *ctx)
{
    size_t limit = (size_t)ctx->options->rewrite_limit;

    ctx->matches++;
    if (ctx->level == PASS_ALWAYS)
        return true;
    if (ctx->options->rewrite_limit > 0 && ctx->rewrites >= limit)
        return false;
    ctx->rewrites++;
    return true;
}

/* ---- forwarding ---------------------------------------------------------- */

static air_status
forward_grow(pass_context *ctx, size_t want)
{
    air_ref *grown;
    size_t cap = ctx->forward_cap ? ctx->forward_cap : 64;

    if (want > ctx->forward_cap) {
        while (cap < want)
            cap *= 2;
        AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, cap, &grown));
        if (ctx->nforward)
            memcpy(grown, ctx->forward, ctx->nforward * sizeof *grown);
        ctx->forward = grown;
        ctx->forward_cap = cap;
    }
    for (; ctx->nforward < want; ctx->nforward++)
        ctx->forward[ctx->nforward] = (air_ref){(uint32_t)ctx->nforward};
    return AIR_OK;
}

static air_ref
forward_find(const pass_context *ctx, air_ref r)
{
    while (r.id < ctx->nforward && ctx->forward[r.id].id != r.id)
        r = ctx->forward[r.id];
    return r;
}

static air_status follow_facts(pass_context *ctx, air_ref from, air_ref to);

air_status
pass_forward(pass_context *ctx, air_ref from, air_ref to)
{
    AIR_TRY(forward_grow(ctx, ctx->g->values.count));
    to = forward_find(ctx, to);
    assert(to.id != from.id);
    ctx->forward[from.id] = to;
    return ctx->facts ? follow_facts(ctx, from, to) : AIR_OK;
}

static void
forward_operand(void *arg, air_ref *ref)
{
    if (ref->id != AIR_NO_REF.id)
        *ref = forward_find(arg, *ref);
}

static bool
was_replaced(const pass_context *ctx, const ir_node *n)
{
    for (int i = 0; i < n->nouts; i++)
        if (forward_find(ctx, n->outs[i]).id != n->outs[i].id)
            return true;
    return false;
}

air_status
pass_walk(pass_context *ctx, pass_visit visit, void *arg)
{
    ir_graph *g = ctx->g;
    uint32_t id = g->first;

    while (id != IR_NO_NODE) {
        ir_node *n = ir_node_at(g, id);
        uint32_t prev = n->prev;
        ir_each_operand(g, n, forward_operand, ctx);
        if (!was_replaced(ctx, n))
            AIR_TRY(visit(ctx, id, arg));
        uint32_t fresh =
            prev == IR_NO_NODE ? g->first : ir_node_at(g, prev)->next;
        id = fresh == id ? ir_node_at(g, id)->next : fresh;
    }
    for (size_t i = 0; i < g->results.count; i++)
        forward_operand(ctx, &g->results.data[i].value);
    for (size_t i = 0; i < g->tags.count; i++)
        forward_operand(ctx, &g->tags.data[i].value);
    return AIR_OK;
}

/* ---- uses and the sweep -------------------------------------------------- */

static void
count_operand(void *arg, air_ref *ref)
{
    if (ref->id != AIR_NO_REF.id)
        ((uint32_t *)arg)[ref->id]++;
}

air_status
pass_count_uses(pass_context *ctx, uint32_t **out)
{
    ir_graph *g = ctx->g;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, g->values.count + 1, out));
    IR_FOR_EACH(g, id)
    ir_each_operand(g, ir_node_at(g, id), count_operand, *out);
    for (size_t i = 0; i < g->results.count; i++)
        count_operand(*out, &g->results.data[i].value);
    return AIR_OK;
}

air_status
pass_positions(pass_context *ctx, uint32_t **out)
{
    uint32_t position = 0;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, ctx->g->nodes.count + 1, out));
    IR_FOR_EACH(ctx->g, id)
    (*out)[id] = position++;
    return AIR_OK;
}

static bool
is_kept(const ir_node *n)
{
    if (n->op == AIR_OP_HOST)
        return true;
    const ir_op_info *info = ir_info(n);
    return info->cls == IR_CLASS_EFFECT || (info->flags & IR_RANDOM);
}

static bool
is_used(const ir_node *n, const uint32_t *uses)
{
    for (int i = 0; i < n->nouts; i++)
        if (uses[n->outs[i].id])
            return true;
    return false;
}

static void
uncount_operand(void *arg, air_ref *ref)
{
    if (ref->id != AIR_NO_REF.id)
        ((uint32_t *)arg)[ref->id]--;
}

air_status
pass_sweep(pass_context *ctx)
{
    ir_graph *g = ctx->g;
    uint32_t *uses;

    AIR_TRY(pass_count_uses(ctx, &uses));
    for (uint32_t id = g->last, prev; id != IR_NO_NODE; id = prev) {
        ir_node *n = ir_node_at(g, id);
        prev = n->prev;
        if (is_kept(n) || n->inplace || is_used(n, uses) || !pass_allow(ctx))
            continue;
        ir_each_operand(g, n, uncount_operand, uses);
        ir_remove_node(g, id);
    }
    return AIR_OK;
}

air_status
pass_dce(pass_context *ctx)
{
    return pass_sweep(ctx);
}

/* ---- questions ----------------------------------------------------------- */

ir_node *
pass_producer(const ir_graph *g, air_ref r)
{
    const uint32_t node =
        r.id == AIR_NO_REF.id ? IR_NO_NODE : ir_val(g, r)->node;
    return node == IR_NO_NODE ? NULL : ir_node_at(g, node);
}

ir_node *
pass_made_by(const ir_graph *g, air_ref r, const char *op)
{
    ir_node *n = pass_producer(g, r);

    if (!n || n->op == AIR_OP_HOST || strcmp(ir_info(n)->name, op) != 0)
        return NULL;
    return n;
}

air_ref
pass_root(const ir_graph *g, air_ref r)
{
    const ir_node *n;

    while ((n = pass_producer(g, r)) != NULL && n->op != AIR_OP_HOST &&
           (n->inplace || ir_info(n)->cls == IR_CLASS_VIEW))
        r = n->attrs[0].value;
    return r;
}

bool
pass_same_dims(const ir_graph *g, air_ref a, air_ref b)
{
    const ir_value *x = ir_val(g, a), *y = ir_val(g, b);

    if (x->rank != y->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (!ir_dim_eq(x->dims[i], y->dims[i]))
            return false;
    return true;
}

bool
pass_int(const ir_graph *g, const air_attr *attr, int64_t *out)
{
    return attr->kind == AIR_ATTR_INT && ir_dim_is_const(g, attr->dim, out);
}

bool
pass_number(const ir_graph *g, const air_attr *attr, double *out)
{
    int64_t i;

    if (attr->kind == AIR_ATTR_FLOAT)
        *out = attr->f;
    else if (attr->kind == AIR_ATTR_BOOL)
        *out = attr->b;
    else if (pass_int(g, attr, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

bool
pass_count_of(const ir_graph *g, air_ref r, int64_t *out)
{
    const ir_value *v = ir_val(g, r);
    int64_t n = 1, dim;

    for (int i = 0; i < v->rank; i++)
        if (!ir_dim_is_const(g, v->dims[i], &dim) || !base_mul_i64(n, dim, &n))
            return false;
    *out = n;
    return true;
}

int64_t
pass_size_at(const ir_graph *g, air_ref r, int axis)
{
    const ir_value *v = ir_val(g, r);
    int64_t size;

    return axis <= v->rank && ir_dim_is_const(g, v->dims[v->rank - axis], &size)
               ? size
               : 0;
}

bool
pass_is_pointwise(const ir_node *n)
{
    return n != NULL && n->op != AIR_OP_NONE && n->op != AIR_OP_HOST &&
           ir_info(n)->cls == IR_CLASS_POINTWISE && n->nouts == 1;
}

bool
pass_walks_pairs(const pass_context *ctx, air_ref r)
{
    const int dtype = ir_val(ctx->g, r)->dtype;

    return ctx->target && ctx->target->isa &&
           strcmp(ctx->target->isa, "avx512") == 0 &&
           (dtype == AIR_F32 || dtype == AIR_BF16);
}

/* ---- facts --------------------------------------------------------------- */

/* as_strided sees how its operand lies in memory, so that is not ours to
 * change. */
static bool
shows_memory(const ir_node *n)
{
    return strcmp(ir_info(n)->name, "as_strided") == 0;
}

static void
mark_views(const ir_graph *g, bool *escapes, bool *shown)
{
    for (uint32_t id = g->last; id != IR_NO_NODE;
         id = ir_node_at(g, id)->prev) {
        const ir_node *n = ir_node_at(g, id);
        if (n->op == AIR_OP_HOST ||
            (ir_info(n)->cls != IR_CLASS_VIEW && !n->inplace))
            continue;
        const uint32_t of = n->attrs[0].value.id;
        for (int i = 0; i < n->nouts; i++) {
            shown[of] = shown[of] || shown[n->outs[i].id] || shows_memory(n);
            escapes[of] = escapes[of] || escapes[n->outs[i].id] || shown[of];
        }
    }
}

static void
mark_mutated(const ir_graph *g, bool *mutated)
{
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        if (n->op == AIR_OP_HOST || ir_info(n)->cls != IR_CLASS_EFFECT)
            continue;
        for (int i = 0; i < n->nattrs; i++)
            if (ir_info(n)->params[i].mutated &&
                n->attrs[i].kind == AIR_ATTR_VALUE)
                mutated[pass_root(g, n->attrs[i].value).id] = true;
    }
}

air_status
pass_facts_make(pass_context *ctx)
{
    ir_graph *g = ctx->g;
    pass_facts *f;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, 1, &f));
    f->count = g->values.count;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, f->count + 1, &f->escapes));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, f->count + 1, &f->mutated));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, f->count + 1, &f->shown));
    for (size_t i = 0; i < g->results.count; i++)
        f->escapes[g->results.data[i].value.id] = true;
    mark_views(g, f->escapes, f->shown);
    mark_mutated(g, f->mutated);
    ctx->facts = f;
    return AIR_OK;
}

static bool
fact(const pass_facts *facts, const bool *flags, air_ref r)
{
    return r.id < facts->count && flags[r.id];
}

bool
pass_is_mutated(const pass_context *ctx, air_ref r)
{
    return fact(ctx->facts, ctx->facts->mutated, pass_root(ctx->g, r));
}

bool
pass_is_shown(const pass_context *ctx, air_ref r)
{
    return fact(ctx->facts, ctx->facts->shown, r);
}

ir_node *
pass_made_once(const pass_context *ctx, size_t known, air_ref r, const char *op)
{
    ir_node *found = pass_made_by(ctx->g, r, op);

    return found && r.id < known && ctx->uses[r.id] == 1 &&
                   !pass_is_shown(ctx, r) && !pass_is_mutated(ctx, r)
               ? found
               : NULL;
}

static air_status
grow_flags(pass_context *ctx, size_t count, bool **flags)
{
    bool *grown;

    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, count, &grown));
    memcpy(grown, *flags, ctx->facts->count * sizeof *grown);
    *flags = grown;
    return AIR_OK;
}

static air_status
grow_facts(pass_context *ctx)
{
    pass_facts *f = ctx->facts;
    const size_t count = 2 * ctx->g->values.count;

    if (f->count >= ctx->g->values.count)
        return AIR_OK;
    AIR_TRY(grow_flags(ctx, count, &f->escapes));
    AIR_TRY(grow_flags(ctx, count, &f->mutated));
    AIR_TRY(grow_flags(ctx, count, &f->shown));
    f->count = count;
    return AIR_OK;
}

/* What stands for a value that the caller gets, and what that is a view of, is
 * what the caller gets. */
static air_status
follow_facts(pass_context *ctx, air_ref from, air_ref to)
{
    const bool escapes = fact(ctx->facts, ctx->facts->escapes, from);
    const bool shown = pass_is_shown(ctx, from);
    const bool mutated = pass_is_mutated(ctx, from);

    if (!escapes && !shown && !mutated)
        return AIR_OK;
    AIR_TRY(grow_facts(ctx));
    pass_facts *f = ctx->facts;
    if (mutated)
        f->mutated[pass_root(ctx->g, to).id] = true;
    for (const ir_node *n = NULL;; to = n->attrs[0].value) {
        f->escapes[to.id] = f->escapes[to.id] || escapes;
        f->shown[to.id] = f->shown[to.id] || shown;
        n = pass_producer(ctx->g, to);
        if (!n || n->op == AIR_OP_HOST ||
            (ir_info(n)->cls != IR_CLASS_VIEW && !n->inplace))
            return AIR_OK;
    }
}

bool
pass_may_share(pass_context *ctx, air_ref copy, air_ref src)
{
    pass_facts *facts = ctx->facts;
    air_ref root = pass_root(ctx->g, src);

    if (pass_is_mutated(ctx, src))
        return false;
    if (!fact(facts, facts->escapes, copy))
        return true;
    /* The caller sees the copy: it may become `src` only where that is memory
     * of its own which the caller does not see yet. */
    if (root.id != src.id || ir_val(ctx->g, src)->node == IR_NO_NODE ||
        fact(facts, facts->escapes, src) || src.id >= facts->count)
        return false;
    facts->escapes[src.id] = true;
    return true;
}

/* ---- rules --------------------------------------------------------------- */

air_status
pass_rules_index(pass_context *ctx, size_t n, const pass_rule *rules,
                 pass_rule_fn **out)
{
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, AIR_OP_COUNT, out));
    for (size_t i = 0; i < n; i++) {
        ir_op op = ir_op_find(rules[i].op, strlen(rules[i].op));
        assert(op != AIR_OP_NONE);
        (*out)[op] = rules[i].fn;
    }
    return AIR_OK;
}
