/* inplace.c: pass inplace: a result may be written where its operand lies.
 *
 *   %v = index_put(%x, ...)        %v = index_put(%x, ...)   inplace
 *   copy_(%x, %v)             ->
 *
 * The memory of %x goes through versions: 0 is what the caller left there,
 * version i what the i-th write of a chain made of it. Writing in place is
 * right when nobody reads a version after the write that ends it, and no
 * version but 0 is a result of the graph. A KV cache is never copied this way.
 * The write itself may read another part of the version that it ends. Memory of
 * the graph's own is written alike, from the outermost of nested writes inward.
 */
#include <math.h>
#include <string.h>

#include "pass/build.h"

#define MAX_WRITES 64

/* Operand 0 of `node`, which was `before`, became a new part of the target. */
typedef struct {
    uint32_t node, part;
    air_ref before;
} swap;

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    uint32_t *position; /* by node */
    bool own;           /* the target is no input: results may be in it */
    air_ref target;     /* the memory that is written */
    uint32_t skip;      /* the copy_ that goes away */
    uint32_t writes[MAX_WRITES]; /* nodes, the first one to run first */
    int count;
    swap swaps[MAX_WRITES];
    int nswaps;
    size_t room;       /* parts are made up to so many nodes of the graph */
    air_status status; /* of making parts */
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

static bool
has_source(const ir_node *n)
{
    return n->nattrs > 1 && n->attrs[1].kind == AIR_ATTR_VALUE;
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

/* The number that memory of the graph's own, which v is or lies in, was filled
 * with, by a node before `node`. */
static bool
filled_with(const chain *c, air_ref v, uint32_t node, double *out)
{
    const ir_node *n = pass_producer(c->g, v);

    for (; n && n->op != AIR_OP_HOST && ir_info(n)->cls == IR_CLASS_VIEW;
         n = pass_producer(c->g, v))
        v = n->attrs[0].value;
    return n && is_named(n, "full") &&
           c->position[ir_val(c->g, v)->node] < c->position[node] &&
           pass_number(c->g, &n->attrs[1], out);
}

/* What `write` starts from is a full like the memory `target`, of which the
 * scatter fills a part: it may as well start from that part. Passes before this
 * one made a full of it. *s: the part. */
static bool
start_from_part(chain *c, const ir_node *scatter, air_ref target,
                uint32_t write, air_ref *s)
{
    ir_graph *g = c->g;
    const ir_node *n = pass_producer(g, *s);
    const int args = is_named(scatter, "slice_scatter")    ? 4
                     : is_named(scatter, "select_scatter") ? 2
                                                           : 0;
    air_attr attrs[5] = {at_value(target)};
    double x, y;

    if (!c->own || args == 0 || c->nswaps == MAX_WRITES ||
        g->nodes.count >= c->room || !n || n->op == AIR_OP_HOST ||
        !is_named(n, "full") || !filled_with(c, *s, write, &x) ||
        !filled_with(c, target, write, &y) || memcmp(&x, &y, sizeof x) != 0 ||
        (!ir_is_float((air_dtype)ir_val(g, *s)->dtype) && fabs(x) >= 0x1p53) ||
        ir_val(g, target)->dtype != ir_val(g, *s)->dtype)
        return false;
    for (int i = 0; i < args; i++)
        attrs[1 + i] = scatter->attrs[2 + i];
    pass_build b = build_at(c->ctx, write);
    air_ref part;
    b_node(&b, args == 4 ? "slice.Tensor" : "select.int", (size_t)args + 1,
           attrs, 1, &part);
    if (b.status != AIR_OK) {
        c->status = b.status;
        return false;
    }
    c->swaps[c->nswaps++] =
        (swap){.node = write, .part = ir_val(g, part)->node, .before = *s};
    ir_node_at(g, write)->attrs[0].value = part;
    *s = part;
    return true;
}

/* What was to be written is not: those starts are what they were. */
static void
undo_swaps(chain *c, int from)
{
    while (c->nswaps > from) {
        const swap *last = &c->swaps[--c->nswaps];
        ir_node_at(c->g, last->node)->attrs[0].value = last->before;
        ir_remove_node(c->g, last->part);
    }
}

static bool find_writes(chain *c, air_ref v, air_ref target);

/* The source of a scatter was itself made by writing into the part that the
 * scatter would fill: those writes are taken too. */
static void
find_inner_writes(chain *c, uint32_t node, air_ref target)
{
    const int count = c->count, nswaps = c->nswaps;

    for (air_ref s = node_in(c->g, node, 1);;) {
        const uint32_t write = ir_val(c->g, s)->node;
        if (!may_write(c->g, pass_producer(c->g, s)))
            return;
        s = node_in(c->g, write, 0);
        const ir_node *n = ir_node_at(c->g, node);
        const ir_node *view = pass_producer(c->g, s);
        if ((view && is_part_of(view, n) &&
             view->attrs[0].value.id == target.id) ||
            start_from_part(c, n, target, write, &s)) {
            if (!find_writes(c, node_in(c->g, node, 1), s)) {
                c->count = count;
                undo_swaps(c, nswaps);
            }
            return;
        }
    }
}

/* Can v be made by writing into target? Adds the writes in order. */
static bool
find_writes(chain *c, air_ref v, air_ref target)
{
    const uint32_t node = ir_val(c->g, v)->node;

    if (!may_write(c->g, pass_producer(c->g, v)))
        return false;
    air_ref under = node_in(c->g, node, 0);
    if (under.id != target.id && !find_writes(c, under, target))
        return false;
    if (has_source(ir_node_at(c->g, node)))
        find_inner_writes(c, node, under);
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

    return i > 0 && has_source(n) && n->attrs[1].value.id == r.id &&
           write_index(c, ir_val(c->g, r)->node) == i - 1;
}

/* Places [begin, end) of one axis. */
typedef struct {
    int64_t axis, begin, end;
} range;

/* From the front; behind the end stays there, where nothing else is. */
static int64_t
from_front(int64_t at, int64_t size)
{
    at += at < 0 ? size : 0;
    return at < 0 ? 0 : at;
}

/* *out: what an argument says, a number or nothing. */
static bool
bound(const ir_graph *g, const air_attr *attr, int64_t none, int64_t *out)
{
    *out = none;
    return attr->kind == AIR_ATTR_NONE || pass_int(g, attr, out);
}

/* What a view takes of `whole`, or a scatter writes there; false: not known. */
static bool
range_of(const ir_graph *g, const ir_node *n, air_ref whole, range *out)
{
    static const struct {
        const char *name;
        int first; /* argument: dim */
        bool one;
    } rows[] = {
        {"slice.Tensor", 1, false},
        {"slice_scatter", 2, false},
        {"select.int", 1, true},
        {"select_scatter", 2, true},
    };
    const ir_value *v = ir_val(g, whole);
    int64_t size;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const air_attr *args = n->attrs + rows[i].first;
        if (!is_named(n, rows[i].name))
            continue;
        if (!pass_int(g, &args[0], &out->axis) ||
            !bound(g, &args[1], 0, &out->begin))
            return false;
        out->axis += out->axis < 0 ? v->rank : 0;
        if (!ir_dim_is_const(g, v->dims[out->axis], &size))
            return false;
        out->begin = from_front(out->begin, size);
        out->end = out->begin + 1;
        if (!rows[i].one && !bound(g, &args[2], size, &out->end))
            return false;
        out->end = from_front(out->end, size);
        return true;
    }
    return false;
}

/* Does a scatter read, as its source, another part of the memory that it
 * writes: views of a part that ends before its own begins, or the reverse? */
static bool
is_apart(const ir_graph *g, uint32_t node, air_ref r)
{
    const ir_node *n = ir_node_at(g, node);
    range to, from;

    if (n->op == AIR_OP_HOST || !has_source(n) || n->attrs[1].value.id != r.id)
        return false;
    const air_ref whole = n->attrs[0].value;
    for (;;) {
        const ir_node *view = pass_producer(g, r);
        if (!view || view->op == AIR_OP_HOST ||
            ir_info(view)->cls != IR_CLASS_VIEW)
            return false;
        r = view->attrs[0].value;
        if (r.id == whole.id)
            return range_of(g, view, whole, &from) &&
                   range_of(g, n, whole, &to) && from.axis == to.axis &&
                   (from.end <= to.begin || to.end <= from.begin);
    }
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
        is_own_source(c, r->node, *ref) ||
        (write_index(c, r->node) == version && is_apart(c->g, r->node, *ref)))
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
        air_ref src = has_source(ir_node_at(c->g, c->writes[i]))
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

/* Is v memory of the graph's own that no view, input or effect made? */
static bool
is_own(const ir_graph *g, air_ref v)
{
    const ir_node *from = pass_producer(g, v);

    while (from && is_named(from, "air::after")) { /* all of it, written */
        v = from->attrs[0].value;
        from = pass_producer(g, v);
    }
    if (!from || from->op == AIR_OP_HOST ||
        ir_info(from)->cls == IR_CLASS_VIEW ||
        ir_info(from)->cls == IR_CLASS_EFFECT)
        return false;
    /* memory of an input, by way of earlier writes, stays what it is */
    return !from->inplace || ir_val(g, pass_root(g, v))->node != IR_NO_NODE;
}

/* Does the caller get what a later write of the chain makes of it? */
static bool
is_result(const chain *c)
{
    const ir_graph *g = c->g;

    for (size_t i = 0; i < g->results.count; i++) {
        int version = version_of(c, g->results.data[i].value);
        if (version >= 0 && version < c->count)
            return true;
    }
    return false;
}

/* Operand 0 is memory of the graph's own that dies here. nested: so are, in it,
 * the writes that made the source, of which there are some. */
static air_status
visit_scatter(const chain *blank, uint32_t node, bool nested)
{
    chain c = *blank;
    const ir_graph *g = c.g;

    if (!may_write(g, ir_node_at(g, node)) ||
        (nested && !has_source(ir_node_at(g, node))))
        return AIR_OK;
    c.target = node_in(g, node, 0);
    if (!is_own(g, c.target))
        return AIR_OK;
    if (nested)
        find_inner_writes(&c, node, c.target);
    const bool some = c.count > 0 || !nested;
    if (c.count < MAX_WRITES)
        c.writes[c.count++] = node;
    if (c.status != AIR_OK || !some || c.writes[c.count - 1] != node ||
        is_result(&c) || !is_safe(&c) || !pass_allow(c.ctx)) {
        undo_swaps(&c, 0);
        return c.status;
    }
    return mark(&c);
}

air_status
pass_inplace(pass_context *ctx)
{
    ir_graph *g = ctx->g;
    uint32_t *position, *nodes, count = 0;

    AIR_TRY(pass_sweep(ctx)); /* dead reads would count as reads */
    /* each copy_ and each scatter may become a new node; then there are parts
     */
    const size_t all = g->nodes.count;
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, 3 * all + 1, &position));
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
    if (pass_without(ctx, AIR_WITHOUT_INPLACE))
        return AIR_OK;
    const chain blank = {.ctx = ctx,
                         .g = g,
                         .position = position,
                         .own = true,
                         .skip = IR_NO_NODE,
                         .room = 2 * all};
    for (uint32_t i = count; i-- > 0;) /* outer ones first: they take most */
        if (ir_node_at(g, nodes[i])->op != AIR_OP_NONE)
            AIR_TRY(visit_scatter(&blank, nodes[i], true));
    for (uint32_t i = 0; i < count; i++)
        if (ir_node_at(g, nodes[i])->op != AIR_OP_NONE)
            AIR_TRY(visit_scatter(&blank, nodes[i], false));
    return AIR_OK;
}
