/* graph.c: building, reading and printing graphs: arguments are checked here,
 * the layers below assume them. */
#include <string.h>

#include "api/check.h"
#include "base/text.h"
#include "ir/expression.h"
#include "ir/ge.h"
#include "ir/ir.h"

air_status
air_graph_create(air_context *ctx, const char *name, air_graph **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    REQUIRE_PTR(name);
    return ir_graph_init(&ctx->alloc, name, out);
}

void
air_graph_destroy(air_graph *graph)
{
    if (graph)
        ir_graph_free(graph);
}

air_status
air_graph_parse(air_context *ctx, const char *text, size_t len, air_graph **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    REQUIRE_PTR(text);
    AIR_TRY(ir_parse(&ctx->alloc, text, len, out));
    return AIR_OK;
}

air_status
api_take_text(base_text *text, air_status status, char **out_text)
{
    void *copy = NULL;

    if (status == AIR_OK)
        status = text->status;
    if (status == AIR_OK)
        status = base_new(text->alloc, text->len + 1, &copy);
    if (status == AIR_OK && text->len > 0)
        memcpy(copy, text->data, text->len);
    base_text_deinit(text);
    *out_text = copy;
    return status;
}

air_status
air_graph_print(const air_graph *graph, char **out_text)
{
    base_text text;

    REQUIRE_PTR(out_text);
    *out_text = NULL;
    REQUIRE_PTR(graph);
    base_text_init(&text, graph->alloc);
    return api_take_text(&text, ir_print(graph, &text), out_text);
}

air_status
air_graph_print_ge(const air_graph *graph, air_ge_form form, char **out_text)
{
    base_text text;

    REQUIRE_PTR(out_text);
    *out_text = NULL;
    REQUIRE_PTR(graph);
    AIR_REQUIRE(form >= AIR_GE_TXT && form <= AIR_GE_ONNX, AIR_ERROR_ARGUMENT,
                "form is %d; give AIR_GE_TXT, _PBTXT, _PY or _ONNX", (int)form);
    base_text_init(&text, graph->alloc);
    return api_take_text(&text, ge_print(graph, form, &text), out_text);
}

void
air_text_free(const air_graph *graph, char *text)
{
    if (graph && text)
        base_free(graph->alloc, text, strlen(text) + 1);
}

air_status
air_program_print(const air_program *program, air_text_kind kind,
                  char **out_text)
{
    base_text text;

    REQUIRE_PTR(out_text);
    *out_text = NULL;
    REQUIRE_PTR(program);
    base_text_init(&text, &program->ctx->alloc);
    return api_take_text(&text, exec_print(program, kind, &text), out_text);
}

void
air_program_text_free(const air_program *program, char *text)
{
    if (program && text)
        base_free(&program->ctx->alloc, text, strlen(text) + 1);
}

/* ---- sizes ---- */

static air_status
check_dim(const air_graph *g, air_dim d, const char *name)
{
    AIR_REQUIRE(d.id < g->dims.count, AIR_ERROR_ARGUMENT,
                "%s is no size expression of graph %s", name, g->name);
    return AIR_OK;
}

air_status
air_dim_const(air_graph *g, int64_t value, air_dim *out)
{
    REQUIRE_PTR(g);
    REQUIRE_PTR(out);
    return ir_dim_const(g, value, out);
}

air_status
air_dim_symbol(air_graph *g, const char *name, int64_t min, int64_t max,
               int64_t hint, air_dim *out)
{
    REQUIRE_PTR(g);
    REQUIRE_PTR(name);
    REQUIRE_PTR(out);
    AIR_REQUIRE(min <= max, AIR_ERROR_ARGUMENT,
                "symbol %s: min %lld is larger than max %lld", name,
                (long long)min, (long long)max);
    return ir_dim_symbol(g, name, min, max, hint, out);
}

air_status
air_dim_make(air_graph *g, const char *op, air_dim a, air_dim b, air_dim *out)
{
    static const struct {
        const char *text;
        ir_dim_op op;
    } ops[] = {{"+", IR_DIM_ADD},  {"-", IR_DIM_SUB}, {"*", IR_DIM_MUL},
               {"//", IR_DIM_DIV}, {"%", IR_DIM_MOD}, {"min", IR_DIM_MIN},
               {"max", IR_DIM_MAX}};

    REQUIRE_PTR(g);
    REQUIRE_PTR(op);
    REQUIRE_PTR(out);
    AIR_TRY(check_dim(g, a, "a"));
    AIR_TRY(check_dim(g, b, "b"));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i].text) == 0)
            return ir_dim_make(g, ops[i].op, a, b, out);
    AIR_FAIL(AIR_ERROR_ARGUMENT, "op is \"%s\"; sizes know + - * // %% min max",
             op);
}

air_status
air_dim_hint(const air_graph *g, air_dim d, int64_t *out)
{
    const size_t n = g ? g->symbols.count : 0;
    void *hints = NULL;
    air_status status;

    REQUIRE_PTR(g);
    REQUIRE_PTR(out);
    AIR_TRY(check_dim(g, d, "d"));
    AIR_TRY(base_new(g->alloc, n * sizeof(int64_t), &hints));
    for (size_t i = 0; i < n; i++)
        ((int64_t *)hints)[i] = g->symbols.data[i].hint;
    status = ir_dim_eval(g, d, hints, out);
    base_free(g->alloc, hints, n * sizeof(int64_t));
    return status;
}

/* ---- values and nodes ---- */

static air_status
check_ref(const air_graph *g, air_ref v, const char *what)
{
    AIR_REQUIRE(v.id < g->values.count, AIR_ERROR_ARGUMENT,
                "%s is no value of graph %s", what, g->name);
    return AIR_OK;
}

static air_status
check_type(const air_graph *g, air_dtype dtype, int rank, const air_dim *dims,
           const char *what)
{
    AIR_REQUIRE(dtype > AIR_DTYPE_NONE && dtype < AIR_DTYPE_COUNT,
                AIR_ERROR_DTYPE, "%s: dtype %d is unknown", what, (int)dtype);
    AIR_REQUIRE(rank >= 0 && rank <= AIR_MAX_RANK, AIR_ERROR_SHAPE,
                "%s has %d dims, at most %d are supported", what, rank,
                AIR_MAX_RANK);
    AIR_REQUIRE(rank == 0 || dims, AIR_ERROR_ARGUMENT, "%s: dims is NULL",
                what);
    for (int i = 0; i < rank; i++)
        AIR_TRY(check_dim(g, dims[i], what));
    return AIR_OK;
}

air_status
air_graph_add_input(air_graph *g, const char *name, air_dtype dtype, int rank,
                    const air_dim *dims, unsigned flags, air_ref *out)
{
    REQUIRE_PTR(out);
    *out = AIR_NO_REF;
    REQUIRE_PTR(g);
    REQUIRE_PTR(name);
    AIR_TRY(check_type(g, dtype, rank, dims, name));
    return ir_add_input(g, name, dtype, rank, dims, flags, out);
}

air_status
air_graph_add_int_input(air_graph *g, const char *name, air_dim symbol)
{
    REQUIRE_PTR(g);
    REQUIRE_PTR(name);
    AIR_TRY(check_dim(g, symbol, "symbol"));
    AIR_REQUIRE(g->dims.data[symbol.id].op == IR_DIM_SYMBOL, AIR_ERROR_ARGUMENT,
                "integer input %s must stand for a symbol", name);
    return ir_add_int_input(g, name, symbol);
}

static air_status
check_attr(const air_graph *g, const air_attr *a, const char *op)
{
    switch (a->kind) {
    case AIR_ATTR_VALUE: return check_ref(g, a->value, op);
    case AIR_ATTR_VALUES:
        for (size_t i = 0; i < a->count; i++)
            if (a->values[i].id != AIR_NO_REF.id)
                AIR_TRY(check_ref(g, a->values[i], op));
        break;
    case AIR_ATTR_INT: return check_dim(g, a->dim, op);
    case AIR_ATTR_INTS:
        for (size_t i = 0; i < a->count; i++)
            AIR_TRY(check_dim(g, a->dims[i], op));
        break;
    case AIR_ATTR_STR:
        AIR_REQUIRE(a->str, AIR_ERROR_ARGUMENT, "%s: a string is NULL", op);
        break;
    default: break;
    }
    return AIR_OK;
}

air_status
air_graph_add_node(air_graph *g, const char *op, size_t nattrs,
                   const air_attr *attrs, const char *location, size_t nouts,
                   air_ref *out_refs)
{
    ir_op id;
    const ir_op_info *info;

    REQUIRE_PTR(g);
    REQUIRE_PTR(op);
    for (size_t i = 0; i < nouts; i++)
        out_refs[i] = AIR_NO_REF;
    id = ir_op_find(op, strlen(op));
    AIR_REQUIRE(id != AIR_OP_NONE, AIR_ERROR_UNSUPPORTED,
                "op %s has no row in the op table: add it as a HOST node", op);
    info = ir_op_get(id);
    AIR_REQUIRE(nattrs <= info->nparams, AIR_ERROR_ARGUMENT,
                "%s takes %d arguments, %zu were given", op, info->nparams,
                nattrs);
    AIR_REQUIRE(nouts == info->nrets, AIR_ERROR_ARGUMENT,
                "%s gives %d results, room for %zu was given", op, info->nrets,
                nouts);
    for (size_t i = 0; i < nattrs; i++)
        AIR_TRY(check_attr(g, &attrs[i], op));
    return ir_add_node(g, id, nattrs, attrs, IR_NO_NODE, location, out_refs);
}

static air_status
check_count(int count, const char *what)
{
    AIR_REQUIRE(count >= 0 && count <= UINT16_MAX, AIR_ERROR_ARGUMENT,
                "%s is %d, allowed are 0 .. %d", what, count, UINT16_MAX);
    return AIR_OK;
}

air_status
air_graph_set_scope(air_graph *g, const air_scope *scope)
{
    static const air_scope none;
    const air_scope *s = scope ? scope : &none;
    uint16_t notes;

    REQUIRE_PTR(g);
    AIR_TRY(check_count(s->contractions, "contractions"));
    AIR_TRY(check_count(s->others, "others"));
    AIR_TRY(check_count(s->lane, "lane"));
    for (size_t i = 0; i < s->nnotes; i++)
        REQUIRE_PTR(s->notes && s->notes[i].key);
    AIR_TRY(ir_find_notes(g, s->nnotes, s->notes, &notes));
    g->scope[0] = (ir_scope){.threads = (uint16_t)s->contractions,
                             .lane = (uint16_t)s->lane,
                             .notes = notes,
                             .joined = s->joined,
                             .untimed = s->untimed};
    g->scope[1] = g->scope[0];
    g->scope[1].threads = (uint16_t)s->others;
    return AIR_OK;
}

air_status
air_graph_add_tag(air_graph *g, air_ref value, const char *tag,
                  const char *origin)
{
    REQUIRE_PTR(g);
    REQUIRE_PTR(tag);
    AIR_TRY(check_ref(g, value, "tag"));
    return ir_add_tag(g, value, tag, origin);
}

air_status
air_graph_add_host(air_graph *g, air_host_kind kind, const char *op,
                   uint32_t id, const char *reason, size_t ninputs,
                   const air_ref *inputs, const char *location, size_t nouts,
                   const air_type *types, air_ref *out_refs)
{
    REQUIRE_PTR(g);
    AIR_REQUIRE(kind >= AIR_HOST_CALL && kind <= AIR_HOST_WAIT,
                AIR_ERROR_ARGUMENT, "kind is no air_host_kind");
    REQUIRE_PTR(op);
    REQUIRE_PTR(reason);
    for (size_t i = 0; i < nouts; i++)
        out_refs[i] = AIR_NO_REF;
    for (size_t i = 0; i < ninputs; i++)
        AIR_TRY(check_ref(g, inputs[i], op));
    for (size_t i = 0; i < nouts; i++)
        AIR_TRY(
            check_type(g, types[i].dtype, types[i].rank, types[i].dims, op));
    return ir_add_host(g, kind, op, id, reason, ninputs, inputs, location,
                       nouts, types, out_refs);
}

air_status
air_graph_host_reads(air_graph *g, size_t count, const air_dim *dims)
{
    REQUIRE_PTR(g);
    AIR_REQUIRE(count == 0 || dims, AIR_ERROR_ARGUMENT, "dims is NULL");
    for (size_t i = 0; i < count; i++)
        AIR_TRY(check_dim(g, dims[i], "an integer of a HOST node"));
    return ir_host_reads(g, count, dims);
}

air_status
air_graph_get_type(const air_graph *g, air_ref v, air_type *out)
{
    const ir_value *value;

    REQUIRE_PTR(g);
    REQUIRE_PTR(out);
    AIR_TRY(check_ref(g, v, "v"));
    value = ir_val(g, v);
    *out = (air_type){.dtype = (air_dtype)value->dtype, .rank = value->rank};
    if (value->rank > 0)
        memcpy(out->dims, value->dims, value->rank * sizeof *value->dims);
    return AIR_OK;
}

air_status
air_graph_set_results(air_graph *g, size_t count, const air_ref *results,
                      const air_dim *const *strides)
{
    REQUIRE_PTR(g);
    for (size_t i = 0; i < count; i++) {
        AIR_TRY(check_ref(g, results[i], "a result"));
        const ir_value *v = ir_val(g, results[i]);
        for (int k = 0; strides && strides[i] && k < v->rank; k++)
            AIR_TRY(check_dim(g, strides[i][k], "a stride"));
    }
    return ir_set_results(g, count, results, strides);
}

/* ---- formulas ---- */

air_status
air_expression_parse(air_context *ctx, const char *text, size_t len,
                     size_t nparams, const air_formal *params, size_t nresults,
                     air_expression **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    REQUIRE_PTR(text);
    for (size_t i = 0; i < nparams; i++)
        REQUIRE_PTR(params[i].name);
    return ir_expression_parse(&ctx->alloc, text, len, nparams, params,
                               nresults, out);
}

void
air_expression_destroy(air_expression *expression)
{
    if (expression)
        ir_expression_free(expression);
}

const air_operation *
air_expression_operation(const air_expression *expression, size_t i)
{
    return i < expression->steps.count ? &expression->steps.data[i] : NULL;
}

const air_term *
air_expression_result(const air_expression *expression, size_t i)
{
    return i < expression->results.count ? &expression->results.data[i] : NULL;
}

/* ---- the op table ---- */

bool
air_op_known(const char *op)
{
    return op && ir_ops_init() == AIR_OK &&
           ir_op_find(op, strlen(op)) != AIR_OP_NONE;
}

const char *
air_op_name(size_t i)
{
    if (ir_ops_init() != AIR_OK || i + AIR_OP_HOST + 1 >= AIR_OP_COUNT)
        return NULL;
    return ir_op_get((ir_op)(i + AIR_OP_HOST + 1))->name;
}

air_status
air_op_describe(const char *op, const char **out_schema, const char **out_class,
                const char **out_ge)
{
    static const char *const classes[] = {"none",      "host",   "pointwise",
                                          "create",    "reduce", "view",
                                          "composite", "call",   "effect"};
    const ir_op_info *info;

    REQUIRE_PTR(op);
    AIR_TRY(ir_ops_init());
    AIR_REQUIRE(air_op_known(op), AIR_ERROR_ARGUMENT,
                "op %s has no row in the op table", op);
    info = ir_op_get(ir_op_find(op, strlen(op)));
    if (out_schema)
        *out_schema = info->schema;
    if (out_class)
        *out_class = classes[info->cls];
    if (out_ge)
        *out_ge = info->ge;
    return AIR_OK;
}
