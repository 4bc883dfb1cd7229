/* verify.c: every invariant of a graph. A broken one is a bug of a pass (or a
 * caller of the graph functions); the message shows the node. */
#include <string.h>

#include "ir/print.h"

static air_status
fail_node(const ir_graph *g, const ir_node *n, const char *what)
{
    base_text text;
    air_status status;

    base_text_init(&text, g->alloc);
    print_node(g, n, &text);
    status = base_fail(AIR_ERROR_SYNTAX, __func__, __LINE__, "%s: %s", what,
                       text.data ? text.data : "?");
    base_text_deinit(&text);
    return status;
}

typedef struct {
    const ir_graph *g;
    bool *defined;         /* by value id */
    const ir_node *reader; /* the node at hand, NULL: results */
    const char *wrong;
} verify_env;

/* What a START gives is not there before a WAIT. */
static bool
is_unfinished(const verify_env *e, air_ref ref)
{
    const uint32_t from = ir_val(e->g, ref)->node;

    return from != IR_NO_NODE &&
           ir_is_host(ir_node_at(e->g, from), AIR_HOST_START) &&
           !(e->reader && ir_is_host(e->reader, AIR_HOST_WAIT));
}

static void
check_ref(void *arg, air_ref *ref)
{
    verify_env *e = arg;
    if (ref->id >= e->g->values.count)
        e->wrong = "an operand is no value of the graph";
    else if (!e->defined[ref->id])
        e->wrong = "an operand is not computed before it is used";
    else if (is_unfinished(e, *ref))
        e->wrong = "the result of a start is read without a wait";
}

static bool
dims_are_valid(const ir_graph *g, size_t count, const air_dim *dims)
{
    for (size_t i = 0; i < count; i++)
        if (dims[i].id >= g->dims.count)
            return false;
    return true;
}

static bool
attr_is_valid(const ir_graph *g, const air_attr *a)
{
    if (a->kind == AIR_ATTR_INT)
        return dims_are_valid(g, 1, &a->dim);
    if (a->kind == AIR_ATTR_INTS)
        return dims_are_valid(g, a->count, a->dims);
    return true;
}

/* Inference adds size expressions at most: the graph stays what it was. */
static air_status
check_types(const ir_graph *g, const ir_node *n)
{
    ir_graph *mutable = (ir_graph *)(uintptr_t)g;
    air_type types[UINT8_MAX];
    size_t count;

    if (ir_is_host(n, AIR_HOST_WAIT)) {
        const ir_value *in = ir_val(g, n->attrs[0].values[0]);
        const ir_value *out = ir_val(g, n->outs[0]);
        return ir_is_type(in, (air_dtype)out->dtype, out->rank, out->dims)
                   ? AIR_OK
                   : fail_node(g, n, "a wait gives what it takes");
    }
    if (n->op == AIR_OP_HOST)
        return AIR_OK;
    AIR_TRY(
        ir_result_count(mutable, (ir_op)n->op, n->nattrs, n->attrs, &count));
    if (count != n->nouts)
        return fail_node(g, n, "the number of results is wrong");
    AIR_TRY(ir_infer_types(mutable, ir_info(n), n->attrs, count, types));
    for (size_t i = 0; i < count; i++)
        if (!ir_is_type(ir_val(g, n->outs[i]), types[i].dtype, types[i].rank,
                        types[i].dims))
            return fail_node(g, n, "a type does not follow from the operands");
    return AIR_OK;
}

static air_status
check_outs(verify_env *e, uint32_t id)
{
    const ir_node *n = ir_node_at(e->g, id);

    for (size_t i = 0; i < n->nouts; i++) {
        const ir_value *v;
        if (n->outs[i].id >= e->g->values.count)
            return fail_node(e->g, n, "a result is no value of the graph");
        v = ir_val(e->g, n->outs[i]);
        if (v->node != id || v->result != i || v->input >= 0 ||
            e->defined[n->outs[i].id])
            return fail_node(e->g, n, "a result belongs to another node");
        e->defined[n->outs[i].id] = true;
    }
    return AIR_OK;
}

static air_status
check_node(verify_env *e, uint32_t id)
{
    ir_graph *g = (ir_graph *)(uintptr_t)e->g; /* check_ref changes nothing */
    ir_node *n = ir_node_at(g, id);

    AIR_REQUIRE(n->op > AIR_OP_NONE && n->op < AIR_OP_COUNT, AIR_ERROR_SYNTAX,
                "node %u of the order is removed or has no op", id);
    AIR_REQUIRE(n->nattrs == (n->op == AIR_OP_HOST ? 2 : ir_info(n)->nparams),
                AIR_ERROR_SYNTAX, "%s: wrong number of arguments",
                ir_info(n)->name);
    e->wrong = NULL;
    e->reader = n;
    ir_each_operand(g, n, check_ref, e);
    for (size_t i = 0; i < n->nattrs; i++)
        if (!attr_is_valid(g, &n->attrs[i]))
            e->wrong = "an argument is no size expression of the graph";
    if (n->inplace && n->attrs[0].kind != AIR_ATTR_VALUE)
        e->wrong = "inplace without an operand to write into";
    if (e->wrong)
        return fail_node(g, n, e->wrong);
    AIR_TRY(check_outs(e, id));
    return check_types(g, n);
}

static air_status
check_inputs(verify_env *e)
{
    for (size_t i = 0; i < e->g->inputs.count; i++) {
        const ir_input *in = &e->g->inputs.data[i];
        if (in->is_int)
            continue;
        AIR_REQUIRE(in->value.id < e->g->values.count &&
                        ir_val(e->g, in->value)->input == (int32_t)i,
                    AIR_ERROR_SYNTAX, "input %zu has no value", i);
        e->defined[in->value.id] = true;
    }
    return AIR_OK;
}

static air_status
check_order(verify_env *e)
{
    const ir_graph *g = e->g;
    uint32_t prev = IR_NO_NODE;
    size_t steps = 0;

    for (uint32_t id = g->first; id != IR_NO_NODE;
         id = g->nodes.data[id].next) {
        AIR_REQUIRE(id < g->nodes.count && ++steps <= g->nodes.count &&
                        g->nodes.data[id].prev == prev,
                    AIR_ERROR_SYNTAX, "the order of nodes is broken at %u", id);
        AIR_TRY(check_node(e, id));
        prev = id;
    }
    AIR_REQUIRE(g->last == prev, AIR_ERROR_SYNTAX,
                "the order of nodes has a wrong end");
    return AIR_OK;
}

static air_status
check_results(verify_env *e)
{
    e->reader = NULL;
    for (size_t i = 0; i < e->g->results.count; i++) {
        const ir_result *r = &e->g->results.data[i];
        AIR_REQUIRE(r->value.id < e->g->values.count && e->defined[r->value.id],
                    AIR_ERROR_SYNTAX, "result %zu is not computed", i);
        AIR_REQUIRE(!is_unfinished(e, r->value), AIR_ERROR_SYNTAX,
                    "result %zu comes from a start without a wait", i);
        AIR_REQUIRE(
            !r->strides ||
                dims_are_valid(e->g, ir_val(e->g, r->value)->rank, r->strides),
            AIR_ERROR_SYNTAX, "result %zu has wrong strides", i);
    }
    return AIR_OK;
}

static air_status
check_names(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->values.count; i++) {
        const char *name = g->values.data[i].name;
        air_ref found;
        AIR_REQUIRE(graph_find_value(g, name, strlen(name), &found) &&
                        found.id == i,
                    AIR_ERROR_SYNTAX, "two values are named %%%s", name);
    }
    return AIR_OK;
}

static air_status
check_all(verify_env *e)
{
    AIR_TRY(check_inputs(e));
    AIR_TRY(check_order(e));
    AIR_TRY(check_results(e));
    return check_names(e->g);
}

air_status
ir_verify(const ir_graph *g)
{
    verify_env e = {.g = g};
    size_t size = g->values.count + 1;
    air_status status;

    AIR_TRY(base_new(g->alloc, size, (void **)&e.defined));
    status = check_all(&e);
    base_free(g->alloc, e.defined, size);
    return status == AIR_OK ? status : base_trace(status, __func__, __LINE__);
}
