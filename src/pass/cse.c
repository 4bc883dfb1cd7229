/* cse.c: pass cse: of two nodes that compute the same, the later one goes. */
#include <string.h>

#include "pass/pass.h"

typedef struct {
    uint32_t *slots; /* node id + 1, 0: free; a power of two of them */
    size_t mask;
    uint32_t *epoch; /* by node: EFFECT nodes before it */
    uint32_t now;
} table;

static uint64_t
mix(const void *data, size_t size, uint64_t h)
{
    return size ? base_hash(data, size, h) : h;
}

/* The bytes of an attribute that tell its value. */
static const void *
payload(const air_attr *a, size_t *out_size)
{
    switch (a->kind) {
    case AIR_ATTR_VALUES:
        return *out_size = a->count * sizeof *a->values, a->values;
    case AIR_ATTR_INTS: return *out_size = a->count * sizeof *a->dims, a->dims;
    case AIR_ATTR_FLOATS:
        return *out_size = a->count * sizeof *a->floats, a->floats;
    case AIR_ATTR_BOOLS:
        return *out_size = a->count * sizeof *a->bools, a->bools;
    case AIR_ATTR_STR: return *out_size = strlen(a->str), a->str;
    case AIR_ATTR_VALUE: return *out_size = sizeof a->value, &a->value;
    case AIR_ATTR_INT: return *out_size = sizeof a->dim, &a->dim;
    case AIR_ATTR_FLOAT: return *out_size = sizeof a->f, &a->f;
    case AIR_ATTR_BOOL: return *out_size = sizeof a->b, &a->b;
    case AIR_ATTR_DTYPE: return *out_size = sizeof a->dtype, &a->dtype;
    case AIR_ATTR_NONE: break;
    }
    *out_size = 0;
    return NULL;
}

static uint64_t
hash_node(const ir_node *n)
{
    uint64_t h = n->op;

    for (int i = 0; i < n->nattrs; i++) {
        size_t size;
        const void *data = payload(&n->attrs[i], &size);
        h = mix(&n->attrs[i].kind, sizeof n->attrs[i].kind, h);
        h = mix(data, size, h);
    }
    return h;
}

static bool
same_attr(const air_attr *x, const air_attr *y)
{
    size_t nx, ny;
    const void *px = payload(x, &nx), *py = payload(y, &ny);

    return x->kind == y->kind && nx == ny &&
           (nx == 0 || memcmp(px, py, nx) == 0);
}

static bool
same_node(const ir_node *x, const ir_node *y)
{
    if (x->op != y->op || x->nattrs != y->nattrs || x->nouts != y->nouts)
        return false;
    for (int i = 0; i < x->nattrs; i++)
        if (!same_attr(&x->attrs[i], &y->attrs[i]))
            return false;
    return true;
}

static bool
is_pure(const ir_node *n)
{
    if (n->op == AIR_OP_HOST || n->inplace)
        return false;
    const ir_op_info *info = ir_info(n);
    return info->cls != IR_CLASS_EFFECT && !(info->flags & IR_RANDOM);
}

/* A result that the caller sees stays where the other is seen too, or is a
 * graph input's memory: results must not share memory that eager's do not. */
static bool
both_escape(const pass_context *ctx, const ir_node *x, const ir_node *y)
{
    const bool *escapes = ctx->facts->escapes;

    if (ir_info(x)->cls == IR_CLASS_VIEW)
        return false;
    for (int i = 0; i < x->nouts; i++)
        if (escapes[x->outs[i].id] && escapes[y->outs[i].id])
            return true;
    return false;
}

static air_status
replace(pass_context *ctx, const ir_node *n, const ir_node *first)
{
    bool *escapes = ctx->facts->escapes;

    if (both_escape(ctx, n, first) || !pass_allow(ctx))
        return AIR_OK;
    for (int i = 0; i < n->nouts; i++) {
        escapes[first->outs[i].id] |= escapes[n->outs[i].id];
        AIR_TRY(pass_forward(ctx, n->outs[i], first->outs[i]));
    }
    return AIR_OK;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    table *t = arg;
    const ir_node *n = ir_node_at(ctx->g, node);

    if (!is_pure(n)) {
        /* what was read before a write is not what is read after it */
        t->now += n->op != AIR_OP_HOST &&
                  (n->inplace || ir_info(n)->cls == IR_CLASS_EFFECT);
        return AIR_OK;
    }
    t->epoch[node] = t->now;
    size_t i = hash_node(n) & t->mask;
    for (; t->slots[i]; i = (i + 1) & t->mask) {
        uint32_t other = t->slots[i] - 1;
        if (same_node(n, ir_node_at(ctx->g, other)) &&
            t->epoch[other] == t->now)
            return replace(ctx, n, ir_node_at(ctx->g, other));
    }
    t->slots[i] = node + 1;
    return AIR_OK;
}

air_status
pass_cse(pass_context *ctx)
{
    table t = {0};
    size_t size = 16, nodes = ctx->g->nodes.count;

    while (size < 2 * nodes)
        size *= 2;
    t.mask = size - 1;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, size, &t.slots));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, nodes + 1, &t.epoch));
    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, visit, &t));
    return pass_sweep(ctx);
}
