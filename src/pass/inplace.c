/* inplace.c: pass inplace: a result may be written where its operand lies.
 *
 *   %v = index_put(%x, ...)        %v = index_put(%x, ...)   inplace
 *   copy_(%x, %v)             ->
 *
 * The memory of %x goes through versions: 0 is what the caller left there,
 * version i what the i-th write of a chain made of it. Writing in place is
 * right when nobody reads a version after the write that ends it, and no
 * version but 0 is a result of the graph. A KV cache is never copied this way.
 */
#include <string.h>

#include "pass/build.h"

#define MAX_WRITES 64

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    uint32_t *position; /* by node */
    bool own;           /* the target is no input: results may be in it */
    air_ref target;     /* the memory that is written */
    uint32_t skip;      /* the copy_ that goes away */
    uint32_t writes[MAX_WRITES]; /* nodes, the first one to run first */
    int count;
} chain;

static bool
is_named(const ir_node *n, const char *name)
{
    return n->op != AIR_OP_HOST && strcmp(ir_info(n)->name, name) == 0;
}

static bool
may_write(const ir_graph *g, const ir_node *n)
{
    return n && n->op != AIR_OP_HOST && !n->inplace &&
           (ir_info(n)->flags & IR_INPLACE) &&
           n->attrs[0].kind == AIR_ATTR_VALUE &&
           ir_val(g, n->outs[0])->dtype ==
               ir_val(g, n->attrs[0].value)->dtype &&
           pass_same_dims(g, n->outs[0], n->attrs[0].value);
}

/* ---- finding the chain --------------------------------------------------- */

static bool
same_dim(const air_attr *x, const air_attr *y)
{
    return x->kind == y->kind &&
           (x->kind != AIR_ATTR_INT || ir_dim_eq(x->dim, y->dim));
}

/* Is `view` the part of its operand that the scatter node writes? */
static bool
is_part_of(const ir_node *view, const ir_node *scatter)
{
    int args;

    if (is_named(view, "slice.Tensor") && is_named(scatter, "slice_scatter"))
        args = 4;
    else if (is_named(view, "select.int") &&
             is_named(scatter, "select_scatter"))
        args = 2;
    else
        return false;
    for (int i = 0; i < args; i++)
        if (!same_dim(&view->attrs[1 + i], &scatter->attrs[2 + i]))
            return false;
    return true;
}

static bool find_writes(chain *c, air_ref v, air_ref target);

/* The source of a scatter was itself made by writing into the part that the
 * scatter would fill: those writes are taken too. */
static void
find_inner_writes(chain *c, const ir_node *n, air_ref target)
{
    const int count = c->count;

    for (air_ref s = n->attrs[1].value;;) {
        const ir_node *inner = pass_producer(c->g, s);
        if (!may_write(c->g, inner))
            return;
        s = inner->attrs[0].value;
        const ir_node *view = pass_producer(c->g, s);
        if (view && is_part_of(view, n) &&
            view->attrs[0].value.id == target.id) {
            if (!find_writes(c, n->attrs[1].value, s))
                c->count = count;
            return;
        }
    }
}

/* Can v be made by writing into target? Adds the writes in order. */
static bool
find_writes(chain *c, air_ref v, air_ref target)
{
    const ir_node *n = pass_producer(c->g, v);

    if (!may_write(c->g, n))
        return false;
    air_ref under = n->attrs[0].value;
    if (under.id != target.id && !find_writes(c, under, target))
        return false;
    if (n->nattrs > 1 && n->attrs[1].kind == AIR_ATTR_VALUE)
        find_inner_writes(c, n, under);
    if (c->count == MAX_WRITES)
        return false;
    c->writes[c->count++] = ir_val(c->g, v)->node;
    return true;
}

/* ---- checking it --------------------------------------------------------- */

static int
write_index(const chain *c, uint32_t node)
{
    for (int i = 0; i < c->count; i++)
        if (c->writes[i] == node)
            return i;
    return -1;
}

/* The version of the target's memory that v is, -1: other memory. */
static int
version_of(const chain *c, air_ref v)
{
    for (;;) {
        if (v.id == c->target.id)
            return 0;
        uint32_t node = ir_val(c->g, v)->node;
        if (node == IR_NO_NODE)
            return -1;
        int i = write_index(c, node);
        if (i >= 0)
            return i + 1;
        const ir_node *n = ir_node_at(c->g, node);
        if (n->op == AIR_OP_HOST ||
            (ir_info(n)->cls != IR_CLASS_VIEW && !n->inplace))
            return -1;
        v = n->attrs[0].value;
    }
}

typedef struct {
    const chain *c;
    uint32_t node;
    bool first; /* operand 0 has not come by yet */
    bool bad;
} reader;

/* The source of a scatter that was written in place, where it already is. */
static bool
is_own_source(const chain *c, uint32_t node, air_ref r)
{
    const ir_node *n = ir_node_at(c->g, node);
    int i = write_index(c, node);

    return i > 0 && n->nattrs > 1 && n->attrs[1].kind == AIR_ATTR_VALUE &&
           n->attrs[1].value.id == r.id &&
           write_index(c, ir_val(c->g, r)->node) == i - 1;
}

static void
check_operand(void *arg, air_ref *ref)
{
    reader *r = arg;
    const chain *c = r->c;
    bool first = r->first;

    r->first = false;
    if (ref->id == AIR_NO_REF.id)
        return;
    int version = version_of(c, *ref);
    if (version < 0 || version >= c->count)
        return;
    if ((first && write_index(c, r->node) >= 0) ||
        is_own_source(c, r->node, *ref))
        return;
    r->bad |= c->position[r->node] >= c->position[c->writes[version]];
}

static bool
is_safe(const chain *c)
{
    const ir_graph *g = c->g;

    for (int i = 1; i < c->count; i++)
        if (c->position[c->writes[i]] <= c->position[c->writes[i - 1]])
            return false;
    for (size_t i = 0; i < g->results.count; i++)
        if (!c->own && version_of(c, g->results.data[i].value) > 0)
            return false;
    IR_FOR_EACH(g, id)
    {
        ir_node *n = ir_node_at(g, id);
        reader r = {.c = c, .node = id, .first = true};
        if (id == c->skip || (n->op != AIR_OP_HOST && !n->inplace &&
                              ir_info(n)->cls == IR_CLASS_VIEW))
            continue;
        ir_each_operand(c->ctx->g, n, check_operand, &r);
        if (r.bad)
            return false;
    }
    return true;
}

/* A scatter whose source already lies where it goes has nothing to do: its
 * result is the operand, after the write of the source. */
static air_status
drop_scatter(chain *c, uint32_t node)
{
    pass_build b = build_at(c->ctx, node);
    air_ref out = node_out(c->g, node, 0);
    air_ref after =
        b_2(&b, "air::after", node_in(c->g, node, 0), node_in(c->g, node, 1));

    AIR_TRY(b.status);
    c->position[ir_val(c->g, after)->node] = c->position[node];
    ir_replace_uses(c->g, out, after);
    ir_remove_node(c->g, node);
    return AIR_OK;
}

static air_status
mark(chain *c)
{
    bool own[MAX_WRITES];

    for (int i = 0; i < c->count; i++) {
        air_ref src = ir_node_at(c->g, c->writes[i])->nattrs > 1
                          ? node_in(c->g, c->writes[i], 1)
                          : AIR_NO_REF;
        own[i] = src.id != AIR_NO_REF.id && is_own_source(c, c->writes[i], src);
    }
    for (int i = 0; i < c->count; i++)
        if (own[i])
            AIR_TRY(drop_scatter(c, c->writes[i]));
        else
            ir_node_at(c->g, c->writes[i])->inplace = true;
    return AIR_OK;
}

/* ---- copy_ into an input ------------------------------------------------- */

static void
drop_copy(ir_graph *g, uint32_t copy)
{
    const ir_node *n = ir_node_at(g, copy);

    if (n->nouts > 0)
        ir_replace_uses(g, n->outs[0], n->attrs[1].value);
    ir_remove_node(g, copy);
}

static bool
same_type(const ir_graph *g, air_ref x, air_ref y)
{
    return ir_val(g, x)->dtype == ir_val(g, y)->dtype &&
           pass_same_dims(g, x, y);
}

/* Every reader of x sees element i of it when it makes element i, or is a
 * kernel of its own: then a loop may read x and write it. */
static bool
reads_in_place(const ir_graph *g, air_ref x)
{
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        if (n->op == AIR_OP_HOST || ir_info(n)->cls == IR_CLASS_CALL ||
            ir_info(n)->cls == IR_CLASS_REDUCE ||
            ir_info(n)->cls == IR_CLASS_EFFECT)
            continue;
        for (int i = 0; i < n->nattrs; i++)
            if (n->attrs[i].kind == AIR_ATTR_VALUE &&
                n->attrs[i].value.id == x.id &&
                (ir_info(n)->cls != IR_CLASS_POINTWISE ||
                 !pass_same_dims(g, x, n->outs[0])))
                return false;
    }
    return true;
}

/* copy_(x, v) of a fused v becomes copy(x, v) in place, a pointwise node that
 * the region of v takes in: its store goes to x. */
static air_status
store_into(pass_context *ctx, uint32_t copy, uint32_t *position)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, copy, 0), v = node_in(g, copy, 1);
    const ir_node *n = pass_producer(g, v);
    pass_build b = build_at(ctx, copy);

    if (!n || n->op == AIR_OP_HOST || n->inplace ||
        (ir_info(n)->cls != IR_CLASS_POINTWISE &&
         ir_info(n)->cls != IR_CLASS_REDUCE) ||
        !same_type(g, x, v) || !reads_in_place(g, x) || !pass_allow(ctx))
        return AIR_OK;
    air_ref stored = b_2(&b, "copy", x, v);
    AIR_TRY(b.status);
    uint32_t node = ir_val(g, stored)->node;
    ir_node_at(g, node)->inplace = true;
    position[node] = position[copy];
    drop_copy(g, copy);
    return AIR_OK;
}

static air_status
visit_copy(pass_context *ctx, uint32_t copy, uint32_t *position)
{
    ir_graph *g = ctx->g;
    chain c = {.ctx = ctx, .g = g, .skip = copy, .position = position};
    air_ref v = node_in(g, copy, 1);

    c.target = node_in(g, copy, 0);
    if (v.id == AIR_NO_REF.id || ir_val(g, c.target)->node != IR_NO_NODE)
        return AIR_OK;
    if (!same_type(g, c.target, v) || !find_writes(&c, v, c.target) ||
        !is_safe(&c))
        return store_into(ctx, copy, position);
    if (!pass_allow(ctx))
        return AIR_OK;
    AIR_TRY(mark(&c));
    drop_copy(g, copy);
    return AIR_OK;
}

/* ---- intermediates ------------------------------------------------------- */

/* Operand 0 is memory of the graph's own that dies here. */
static air_status
visit_scatter(pass_context *ctx, uint32_t node, uint32_t *position)
{
    ir_graph *g = ctx->g;
    const ir_node *n = ir_node_at(g, node), *from;
    chain c = {.ctx = ctx,
               .g = g,
               .skip = IR_NO_NODE,
               .position = position,
               .own = true,
               .count = 1,
               .writes = {node}};

    if (!may_write(g, n))
        return AIR_OK;
    c.target = n->attrs[0].value;
    from = pass_producer(g, c.target);
    if (!from || from->op == AIR_OP_HOST ||
        ir_info(from)->cls == IR_CLASS_VIEW ||
        ir_info(from)->cls == IR_CLASS_EFFECT)
        return AIR_OK;
    /* memory of an input, by way of earlier writes, stays what it is */
    if (from->inplace && ir_val(g, pass_root(g, c.target))->node == IR_NO_NODE)
        return AIR_OK;
    for (size_t i = 0; i < g->results.count; i++)
        if (version_of(&c, g->results.data[i].value) == 0)
            return AIR_OK;
    if (!is_safe(&c) || !pass_allow(ctx))
        return AIR_OK;
    return mark(&c);
}

air_status
pass_inplace(pass_context *ctx)
{
    ir_graph *g = ctx->g;
    uint32_t *position, *nodes, count = 0;

    AIR_TRY(pass_sweep(ctx)); /* dead reads would count as reads */
    /* each copy_ and each scatter may become a new node */
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, 2 * g->nodes.count + 1, &position));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, g->nodes.count + 1, &nodes));
    IR_FOR_EACH(g, id)
    {
        position[id] = count;
        nodes[count++] = id;
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_named(ir_node_at(g, nodes[i]), "copy_") &&
            !pass_without(ctx, AIR_WITHOUT_INPUT_INPLACE))
            AIR_TRY(visit_copy(ctx, nodes[i], position));
    for (uint32_t i = 0; i < count; i++)
        if (ir_node_at(g, nodes[i])->op != AIR_OP_NONE &&
            !pass_without(ctx, AIR_WITHOUT_INPLACE))
            AIR_TRY(visit_scatter(ctx, nodes[i], position));
    return AIR_OK;
}
