/* ge_view.c: a graph as nodes of the Ascend IR. Arguments that are tensors
 * there and numbers here become Const nodes; symbolic sizes are read by Shape
 * and Gather; operands get the dtype the node computes in. */
#include "ir/ge.h"

#include <stdio.h>
#include <string.h>

#include "ir/ge_view.h"
#include "ir/print.h"

/* ---- nodes --------------------------------------------------------------- */

/* A name nobody has: the type, type_1, type_2 ... */
static air_status
unique_name(ge_view *v, const char *want, const char **out)
{
    char text[96];
    uint32_t n;

    snprintf(text, sizeof text, "%s", want);
    if (base_map_find(&v->names, want, strlen(want), &n)) {
        uint32_t other;
        do
            snprintf(text, sizeof text, "%.80s_%u", want, ++n);
        while (base_map_find(&v->names, text, strlen(text), &other));
    } else {
        n = 0;
    }
    AIR_TRY(base_map_put(&v->names, want, strlen(want), n));
    AIR_TRY(base_map_put(&v->names, text, strlen(text), 0));
    return base_arena_str(&v->arena, text, strlen(text), out);
}

air_status
ge_add_node(ge_view *v, const char *name, const char *type, int32_t *out)
{
    ge_node n = {.type = type, .after = -1};

    *out = (int32_t)v->nodes.count;
    AIR_TRY(unique_name(v, name ? name : type, &n.name));
    return BASE_PUSH(v->alloc, &v->nodes, n);
}

static air_status
port_name(ge_view *v, const char *name, int len, int item, const char **out)
{
    char text[96];

    if (item >= 0)
        snprintf(text, sizeof text, "%.*s%d", len, name, item);
    else
        snprintf(text, sizeof text, "%.*s", len, name);
    return base_arena_str(&v->arena, text, strlen(text), out);
}

air_status
ge_push_in(ge_view *v, ge_ports *in, const char *name, int len, int item,
           ge_port from)
{
    AIR_TRY(port_name(v, name, len, item, &from.name));
    return BASE_PUSH(v->alloc, in, from);
}

static air_status
add_in(ge_view *v, int32_t node, const char *name, int item, ge_port from)
{
    return ge_push_in(v, &v->nodes.data[node].in, name, (int)strlen(name), item,
                      from);
}

static air_status
describe(ge_view *v, air_dtype dtype, int rank, const air_dim *dims,
         const char **out)
{
    base_text text;
    air_status status;

    base_text_init(&text, v->alloc);
    print_type(v->g, dtype, rank, dims, &text);
    status = text.status;
    if (status == AIR_OK)
        status = base_arena_str(&v->arena, text.data, text.len, out);
    base_text_deinit(&text);
    return status;
}

/* One more result of a node: dims are expressions of the graph. */
air_status
ge_add_out(ge_view *v, int32_t node, const char *name, int len, int item,
           air_type type, ge_port *out)
{
    int64_t *sizes;
    ge_port p = {.node = node,
                 .out = (int32_t)v->nodes.data[node].out.count,
                 .dtype = type.dtype,
                 .rank = type.rank};

    AIR_TRY(port_name(v, name, len, item, &p.name));
    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, type.rank, &sizes));
    for (int i = 0; i < type.rank; i++)
        if (!ir_dim_is_const(v->g, type.dims[i], &sizes[i]))
            sizes[i] = -1;
    p.dims = sizes;
    AIR_TRY(describe(v, type.dtype, type.rank, type.dims, &p.type));
    *out = p;
    return BASE_PUSH(v->alloc, &v->nodes.data[node].out, p);
}

air_status
ge_add_attr(ge_view *v, int32_t node, const char *name, int len, ge_attr a)
{
    AIR_TRY(port_name(v, name, len, -1, &a.name));
    return BASE_PUSH(v->alloc, &v->nodes.data[node].attrs, a);
}

air_status
ge_add_str(ge_view *v, int32_t node, const char *name, const char *value)
{
    ge_attr a = {.kind = GE_STR};

    AIR_TRY(base_arena_str(&v->arena, value, strlen(value), &a.s));
    return ge_add_attr(v, node, name, (int)strlen(name), a);
}

/* ---- constants and sizes ------------------------------------------------- */

/* The result y of a node of numbers: a list of `count`, or one. */
static air_status
add_number_out(ge_view *v, int32_t node, air_dtype dtype, bool list,
               size_t count, ge_port *out)
{
    int64_t *size;
    char text[40];

    *out = (ge_port){.name = "y", .node = node, .dtype = dtype, .rank = list};
    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, 1, &size));
    *size = (int64_t)count;
    out->dims = size;
    if (list)
        snprintf(text, sizeof text, "%s[%zu]", air_dtype_text(dtype), count);
    else
        snprintf(text, sizeof text, "%s[]", air_dtype_text(dtype));
    AIR_TRY(base_arena_str(&v->arena, text, strlen(text), &out->type));
    return BASE_PUSH(v->alloc, &v->nodes.data[node].out, *out);
}

/* A Const node; `value` is its attribute. A list has one dim. */
air_status
ge_add_const(ge_view *v, air_dtype dtype, bool list, ge_attr value,
             ge_port *out)
{
    int32_t node;

    AIR_TRY(ge_add_node(v, NULL, "Const", &node));
    AIR_TRY(ge_add_attr(v, node, "value", 5, value));
    return add_number_out(v, node, dtype, list, value.count, out);
}

static air_status
add_int(ge_view *v, int64_t value, ge_port *out)
{
    ge_attr a = {.kind = GE_TENSOR, .item = GE_INT, .i = value};

    return ge_add_const(v, AIR_I64, false, a, out);
}

/* A node of numbers with the inputs x1, x2 ... and one result y. */
static air_status
add_scalar_node(ge_view *v, const char *type, const char *const *names,
                const ge_port *in, int n, ge_port *out)
{
    int32_t node;

    AIR_TRY(ge_add_node(v, NULL, type, &node));
    for (int i = 0; i < n; i++)
        AIR_TRY(add_in(v, node, names[i], -1, in[i]));
    return add_number_out(v, node, AIR_I64, false, 0, out);
}

/* The size of axis `axis` of a value: Shape, then Gather. */
static air_status
add_size_of(ge_view *v, ge_port value, int axis, ge_port *out)
{
    static const char *const names[] = {"x", "indices"};
    ge_port in[2];
    int32_t node;

    AIR_TRY(ge_add_node(v, NULL, "Shape", &node));
    AIR_TRY(add_in(v, node, "x", -1, value));
    AIR_TRY(add_number_out(v, node, AIR_I64, true, (size_t)value.rank, &in[0]));
    AIR_TRY(add_int(v, axis, &in[1]));
    return add_scalar_node(v, "Gather", names, in, 2, out);
}

static air_status
add_symbol(ge_view *v, air_dim d, ge_port *out)
{
    const ir_graph *g = v->g;
    int32_t node;

    for (size_t i = 0; i < g->inputs.count; i++) {
        if (g->inputs.data[i].is_int)
            continue;
        const ir_value *value = ir_val(g, g->inputs.data[i].value);
        for (int k = 0; k < value->rank; k++)
            if (ir_dim_eq(value->dims[k], d))
                return add_size_of(v, v->values[g->inputs.data[i].value.id], k,
                                   out);
    }
    const char *name = g->symbols.data[g->dims.data[d.id].a].name;
    AIR_TRY(ge_add_node(v, name, "Data", &node));
    AIR_TRY(ge_add_str(v, node, "_symbol", name));
    return add_number_out(v, node, AIR_I64, false, 0, out);
}

static const char *const dim_types[] = {
    [IR_DIM_ADD] = "Add",      [IR_DIM_SUB] = "Sub",
    [IR_DIM_MUL] = "Mul",      [IR_DIM_DIV] = "FloorDiv",
    [IR_DIM_MOD] = "FloorMod", [IR_DIM_MIN] = "Minimum",
    [IR_DIM_MAX] = "Maximum"};

air_status
ge_add_dim(ge_view *v, air_dim d, ge_port *out)
{
    static const char *const names[] = {"x1", "x2"};
    const ir_dim_node *n = &v->g->dims.data[d.id];
    ge_port in[2];

    if (v->dims[d.id]) {
        *out = v->nodes.data[v->dims[d.id] - 1].out.data[0];
        return AIR_OK;
    }
    if (n->op == IR_DIM_CONST) {
        AIR_TRY(add_int(v, n->value, out));
    } else if (n->op == IR_DIM_SYMBOL) {
        AIR_TRY(add_symbol(v, d, out));
    } else {
        AIR_TRY(ge_add_dim(v, (air_dim){n->a}, &in[0]));
        AIR_TRY(ge_add_dim(v, (air_dim){n->b}, &in[1]));
        AIR_TRY(add_scalar_node(v, dim_types[n->op], names, in, 2, out));
    }
    v->dims[d.id] = out->node + 1;
    return AIR_OK;
}

/* Sizes as one tensor: a Const where all are known, else a Pack. */
air_status
ge_add_dims(ge_view *v, size_t count, const air_dim *dims, ge_port *out)
{
    ge_attr a = {.kind = GE_TENSOR, .item = GE_INT, .count = count};
    int64_t *sizes;
    bool known = true;
    int32_t node;

    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, count, &sizes));
    for (size_t i = 0; i < count; i++)
        known = ir_dim_is_const(v->g, dims[i], &sizes[i]) && known;
    a.ints = sizes;
    if (known)
        return ge_add_const(v, AIR_I64, true, a, out);
    ge_port items[AIR_MAX_RANK * 2];
    AIR_REQUIRE(count <= sizeof items / sizeof *items, AIR_ERROR_UNSUPPORTED,
                "a list of %zu symbolic sizes", count);
    for (size_t i = 0; i < count; i++)
        AIR_TRY(ge_add_dim(v, dims[i], &items[i]));
    AIR_TRY(ge_add_node(v, NULL, "Pack", &node));
    for (size_t i = 0; i < count; i++)
        AIR_TRY(add_in(v, node, "x", (int)i, items[i]));
    AIR_TRY(ge_add_attr(v, node, "N", 1,
                        (ge_attr){.kind = GE_INT, .i = (int64_t)count}));
    return add_number_out(v, node, AIR_I64, true, count, out);
}

/* ---- the graph ----------------------------------------------------------- */

/* Whose memory the value lies in: that of what is viewed or written over. */
static air_ref
owner_of(const ir_graph *g, air_ref value)
{
    uint32_t id;

    while ((id = ir_val(g, value)->node) != IR_NO_NODE) {
        const ir_node *n = ir_node_at(g, id);
        if (n->op == AIR_OP_HOST ||
            (!n->inplace && ir_info(n)->cls != IR_CLASS_VIEW))
            break;
        value = n->attrs[0].value;
    }
    return value;
}

static bool
is_written(const ir_graph *g, air_ref value)
{
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        if (n->op != AIR_OP_HOST && (n->op == AIR_OP_COPY_ || n->inplace) &&
            owner_of(g, n->attrs[0].value).id == value.id)
            return true;
    }
    return false;
}

static air_status
add_input(ge_view *v, size_t i)
{
    const ir_input *input = &v->g->inputs.data[i];
    air_type type = {.dtype = AIR_I64};
    bool written = !input->is_int && is_written(v->g, input->value);
    int32_t node;
    ge_port p;

    AIR_TRY(ge_add_node(v, input->name, written ? "RefData" : "Data", &node));
    AIR_TRY(ge_add_attr(v, node, "index", 5,
                        (ge_attr){.kind = GE_INT, .i = (int64_t)i}));
    if (!input->is_int) {
        const ir_value *value = ir_val(v->g, input->value);
        type = (air_type){(air_dtype)value->dtype, value->rank, {{0}}};
        if (value->rank)
            memcpy(type.dims, value->dims, value->rank * sizeof *value->dims);
    }
    AIR_TRY(ge_add_out(v, node, "y", 1, -1, type, &p));
    ge_port x = p;
    x.node = -1;
    AIR_TRY(add_in(v, node, "x", -1, x));
    if (input->is_int)
        v->dims[input->dim.id] = node + 1;
    else
        v->values[input->value.id] = p;
    return AIR_OK;
}

static air_status
add_results(ge_view *v)
{
    int32_t node;

    AIR_TRY(ge_add_node(v, NULL, "NetOutput", &node));
    for (size_t i = 0; i < v->g->results.count; i++)
        AIR_TRY(add_in(v, node, "input", (int)i,
                       v->values[v->g->results.data[i].value.id]));
    return AIR_OK;
}

/* The first tag of a value counts. */
static air_status
find_origins(ge_view *v)
{
    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, v->g->values.count, &v->origins));
    for (size_t i = v->g->tags.count; i-- > 0;)
        if (v->g->tags.data[i].origin)
            v->origins[v->g->tags.data[i].value.id] = v->g->tags.data[i].origin;
    return AIR_OK;
}

static air_status
build(ge_view *v)
{
    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, v->g->values.count, &v->values));
    AIR_TRY(find_origins(v));
    AIR_TRY(BASE_ARENA_ARRAY(&v->arena, v->g->dims.count, &v->dims));
    for (size_t i = 0; i < v->g->inputs.count; i++)
        AIR_TRY(add_input(v, i));
    IR_FOR_EACH(v->g, id)
    AIR_TRY(ge_add_graph_node(v, ir_node_at(v->g, id)));
    return add_results(v);
}

air_status
ge_view_init(ge_view *v, const ir_graph *g)
{
    air_status status;

    *v = (ge_view){.g = g, .alloc = g->alloc, .last_ordered = -1};
    base_arena_init(&v->arena, v->alloc);
    base_map_init(&v->names, &v->arena, v->alloc);
    status = build(v);
    if (status != AIR_OK)
        ge_view_deinit(v);
    return status;
}

void
ge_view_deinit(ge_view *v)
{
    for (size_t i = 0; i < v->nodes.count; i++) {
        BASE_VEC_FREE(v->alloc, &v->nodes.data[i].in);
        BASE_VEC_FREE(v->alloc, &v->nodes.data[i].out);
        BASE_VEC_FREE(v->alloc, &v->nodes.data[i].attrs);
    }
    BASE_VEC_FREE(v->alloc, &v->nodes);
    base_map_deinit(&v->names);
    base_arena_deinit(&v->arena);
}
