/* canon.c: pass canonicalise: one spelling for equal things. */
#include "pass/canon.h"

#include <string.h>

typedef struct {
    const char *from, *to;
} rename_row;

static const rename_row renames[] = {
#define RENAME(from, to) {from, to},
#define CANON(op, fn)
#include "pass/canon.def"
#undef RENAME
#undef CANON
};

static const pass_rule rules[] = {
#define RENAME(from, to)
#define CANON(op, fn) {op, fn},
#include "pass/canon.def"
#undef RENAME
#undef CANON
};

typedef struct {
    pass_rule_fn *fn; /* by op */
    uint16_t *rename; /* by op: the other name's op, AIR_OP_NONE: none */
} tables;

static ir_op
op_named(const char *name)
{
    return ir_op_find(name, strlen(name));
}

static air_status
tables_make(pass_context *ctx, tables *t)
{
    AIR_TRY(
        pass_rules_index(ctx, sizeof rules / sizeof rules[0], rules, &t->fn));
    AIR_TRY(BASE_ARENA_ARRAY(ctx->scratch, AIR_OP_COUNT, &t->rename));
    for (size_t i = 0; i < sizeof renames / sizeof renames[0]; i++) {
        ir_op from = op_named(renames[i].from), to = op_named(renames[i].to);
        if (from != AIR_OP_NONE)
            t->rename[from] = (uint16_t)to;
    }
    return AIR_OK;
}

air_status
canon_drop(pass_context *ctx, uint32_t node, air_ref src)
{
    ir_graph *g = ctx->g;
    air_ref out = node_out(g, node, 0);
    bool view = ir_info(ir_node_at(g, node))->cls == IR_CLASS_VIEW;

    if (pass_without(ctx, AIR_WITHOUT_NOOP) ||
        ir_val(g, out)->dtype != ir_val(g, src)->dtype ||
        !pass_same_dims(g, out, src) ||
        (!view && !pass_may_share(ctx, out, src)) || !pass_allow(ctx))
        return AIR_OK;
    return pass_forward(ctx, out, src);
}

static air_status
rename_node(pass_context *ctx, uint32_t node, ir_op to)
{
    const ir_node *n = ir_node_at(ctx->g, node);
    pass_build b = build_at(ctx, node);

    if (!pass_allow(ctx))
        return AIR_OK;
    return build_forward(&b, node, 0,
                         b_op(&b, ir_op_get(to)->name, n->nattrs, n->attrs));
}

/* A number as first of two operands that commute goes second. */
static void
number_right(pass_context *ctx, uint32_t node)
{
    ir_node *n = ir_node_at(ctx->g, node);
    double alpha;

    if (!(ir_info(n)->flags & IR_COMM) || n->nattrs < 2 ||
        n->attrs[0].kind == AIR_ATTR_VALUE ||
        n->attrs[1].kind != AIR_ATTR_VALUE)
        return;
    if (n->nattrs > 2 &&
        (!pass_number(ctx->g, &n->attrs[2], &alpha) || alpha != 1.0))
        return;
    if (!pass_allow(ctx))
        return;
    air_attr number = n->attrs[0];
    n->attrs[0] = n->attrs[1];
    n->attrs[1] = number;
}

static air_status
canon_node(pass_context *ctx, uint32_t node, void *arg)
{
    const tables *t = arg;
    uint16_t op = ir_node_at(ctx->g, node)->op;
    bool done;

    if (op == AIR_OP_HOST || ir_node_at(ctx->g, node)->inplace)
        return AIR_OK;
    if (t->rename[op] != AIR_OP_NONE)
        return rename_node(ctx, node, (ir_op)t->rename[op]);
    number_right(ctx, node);
    AIR_TRY(canon_expanded(ctx, node, &done));
    return t->fn[op] && !done ? t->fn[op](ctx, node) : AIR_OK;
}

air_status
pass_canonicalise(pass_context *ctx)
{
    tables t;

    AIR_TRY(tables_make(ctx, &t));
    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, canon_node, &t));
    return pass_sweep(ctx);
}
