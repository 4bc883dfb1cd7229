/* dependencies.c: which node must run before which: values, memory that is
 * written, and effects among each other. */
#include "ir/ir.h"

#define NO_TOUCH UINT32_MAX

/* A node that reads or writes some memory since its last write. */
typedef struct {
    uint32_t node, next;
} touch;

typedef struct {
    const ir_graph *g;
    ir_edges *edges;
    uint32_t *root;  /* by value: the value whose memory it lies in */
    uint32_t *head;  /* by root: its touches, the last one first */
    uint32_t *wrote; /* by root: the node that wrote last */
    BASE_VEC(touch) touches;
    uint32_t node; /* the one at hand */
    air_status status;
} finder;

static bool
shares_memory(const ir_node *n)
{
    return n->inplace || ir_info(n)->cls == IR_CLASS_VIEW ||
           ir_info(n)->cls == IR_CLASS_EFFECT;
}

static bool
writes_memory(const ir_node *n)
{
    return n->inplace || ir_info(n)->cls == IR_CLASS_EFFECT;
}

static bool
is_ordered(const ir_node *n)
{
    const ir_op_info *info = ir_info(n);

    if (n->op == AIR_OP_HOST)
        return n->host != AIR_HOST_WAIT;
    return info->cls == IR_CLASS_EFFECT || (info->flags & IR_RANDOM);
}

static void
add_edge(finder *f, uint32_t from)
{
    const ir_edge edge = {from, f->node};

    if (f->status == AIR_OK && from != f->node)
        f->status = BASE_PUSH(f->g->alloc, f->edges, edge);
}

static void
see_operand(void *arg, air_ref *ref)
{
    finder *f = arg;
    const uint32_t root = f->root[ref->id];
    const uint32_t from = ir_val(f->g, *ref)->node, head = f->head[root];
    const touch t = {f->node, head};

    if (from != IR_NO_NODE)
        add_edge(f, from);
    if (f->wrote[root] != IR_NO_NODE)
        add_edge(f, f->wrote[root]);
    if (head != NO_TOUCH && f->touches.data[head].node == f->node)
        return;
    if (f->status == AIR_OK)
        f->status = BASE_PUSH(f->g->alloc, &f->touches, t);
    if (f->status == AIR_OK)
        f->head[root] = (uint32_t)f->touches.count - 1;
}

/* After everything that touched this memory since the last write, which comes
 * after all that was before it. */
static void
see_write(finder *f, air_ref memory)
{
    uint32_t *head = &f->head[f->root[memory.id]];

    for (uint32_t t = *head; t != NO_TOUCH; t = f->touches.data[t].next)
        add_edge(f, f->touches.data[t].node);
    *head = NO_TOUCH;
    f->wrote[f->root[memory.id]] = f->node;
}

static air_status
find(finder *f)
{
    uint32_t last = IR_NO_NODE;

    for (uint32_t v = 0; v < f->g->values.count; v++) {
        f->root[v] = v;
        f->head[v] = NO_TOUCH;
        f->wrote[v] = IR_NO_NODE;
    }
    IR_FOR_EACH(f->g, id)
    {
        ir_node *n = ir_node_at(f->g, id);
        const bool has_memory = n->nattrs > 0 && n->op != AIR_OP_HOST &&
                                n->attrs[0].kind == AIR_ATTR_VALUE;
        f->node = id;
        if (writes_memory(n) && has_memory)
            see_write(f, n->attrs[0].value);
        ir_each_operand(NULL, n, see_operand, f);
        for (int i = 0; has_memory && shares_memory(n) && i < n->nouts; i++)
            f->root[n->outs[i].id] = f->root[n->attrs[0].value.id];
        if (!is_ordered(n))
            continue;
        if (last != IR_NO_NODE)
            add_edge(f, last);
        last = id;
    }
    return f->status;
}

air_status
ir_dependencies(const ir_graph *g, base_arena *scratch, ir_edges *out)
{
    finder f = {.g = g, .edges = out};

    *out = (ir_edges){0};
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count + 1, &f.root));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count + 1, &f.head));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count + 1, &f.wrote));
    const air_status status = find(&f);
    BASE_VEC_FREE(g->alloc, &f.touches);
    if (status != AIR_OK)
        BASE_VEC_FREE(g->alloc, out);
    return status;
}
