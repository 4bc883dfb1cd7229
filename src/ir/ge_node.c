/* ge_node.c: one node of a graph as a node of the Ascend IR: which argument is
 * which input or attribute there (ge.def), and what must be computed for it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ge_view.h"
#include "ir/print.h"

typedef struct {
    ge_view *v;
    const ir_node *n;
    const ir_op_info *info;
    const char *type, *prototype, *args; /* NULL: none */
    ge_ports in;
    air_dtype target; /* of operands that promote, and of numbers */
    uint64_t used;    /* parameters that have been written */
} writer;

/* ---- where an input or attribute comes from ------------------------------ */

/* Parameters that mean something, in order: what a type without arguments in
 * ge.def takes. */
static int
nth_param(const writer *w, size_t i)
{
    for (int k = 0; k < w->info->nparams; k++)
        if (w->info->params[k].kind != IR_PARAM_IGNORED && i-- == 0)
            return k;
    return -1;
}

/* What stands for field number i: a parameter's name, or one of the other
 * forms of ge.def; "" where nothing does. */
static void
find_source(const writer *w, const ge_field *f, size_t i, char out[64])
{
    const char *p = w->args;
    int k;

    *out = '\0';
    if (!p) {
        k = nth_param(w, i);
        if (k >= 0)
            snprintf(out, 64, "%s", w->info->params[k].name);
        return;
    }
    while (*p) {
        size_t len = strcspn(p, " "), name = strcspn(p, "=");
        if ((int)name == f->name_len && memcmp(p, f->name, name) == 0) {
            snprintf(out, 64, "%.*s", (int)(len - name - 1), p + name + 1);
            return;
        }
        p += len + (p[len] == ' ');
    }
}

static int
take_param(writer *w, const char *name)
{
    int k = ir_param_find(w->info, name);

    if (k >= 0)
        w->used |= UINT64_C(1) << k;
    return k;
}

/* ---- inputs -------------------------------------------------------------- */

static air_status
push(writer *w, const ge_field *f, int item, ge_port p)
{
    return ge_push_in(w->v, &w->in, f->name, f->name_len, item, p);
}

static air_status
cast(writer *w, ge_port from, ge_port *out)
{
    const ge_attr to = {.kind = GE_INT,
                        .i = air_ge_dtype_of(w->target)->number};
    ge_port made = from;
    int32_t node;
    char text[96];

    AIR_TRY(ge_add_node(w->v, NULL, "Cast", &node));
    AIR_TRY(ge_push_in(w->v, &w->v->nodes.data[node].in, "x", 1, -1, from));
    AIR_TRY(ge_add_attr(w->v, node, "dst_type", 8, to));
    made.name = "y";
    made.node = node;
    made.out = 0;
    made.dtype = w->target;
    snprintf(text, sizeof text, "%s%s", air_dtype_text(w->target),
             strchr(from.type, '['));
    AIR_TRY(base_arena_str(&w->v->arena, text, strlen(text), &made.type));
    *out = made;
    return BASE_PUSH(w->v->alloc, &w->v->nodes.data[node].out, made);
}

static air_status
tensor(writer *w, int param, air_ref ref, ge_port *out)
{
    *out = (ge_port){.node = -1};
    if (ref.id == AIR_NO_REF.id)
        return AIR_OK;
    *out = w->v->values[ref.id];
    if (ir_promotes(w->info, param) && out->dtype != w->target)
        return cast(w, *out, out);
    return AIR_OK;
}

static air_status
number(writer *w, int param, const air_attr *a, ge_port *out)
{
    const uint8_t kind = w->info->params[param].kind;
    ge_attr c = {.kind = GE_TENSOR, .item = GE_FLOAT, .f = a->f};
    air_dtype dtype = w->target;
    int64_t i;

    if (kind != IR_PARAM_TENSOR && kind != IR_PARAM_SCALAR)
        dtype = a->kind == AIR_ATTR_INT    ? AIR_I64
                : a->kind == AIR_ATTR_BOOL ? AIR_BOOL
                                           : AIR_F32;
    if (a->kind == AIR_ATTR_INT && !ir_dim_is_const(w->v->g, a->dim, &i))
        return ge_add_dim(w->v, a->dim, out);
    if (a->kind == AIR_ATTR_INT)
        c.item = GE_INT, c.i = i;
    else if (a->kind == AIR_ATTR_BOOL)
        c.item = GE_BOOL, c.i = a->b;
    return ge_add_const(w->v, dtype, false, c, out);
}

static air_status
param_input(writer *w, const ge_field *f, int param)
{
    const air_attr *a = &w->n->attrs[param];
    ge_port p = {.node = -1};

    switch (a->kind) {
    case AIR_ATTR_VALUES:
        for (size_t i = 0; i < a->count; i++) {
            AIR_TRY(tensor(w, param, a->values[i], &p));
            AIR_TRY(push(w, f, (int)i, p));
        }
        return AIR_OK;
    case AIR_ATTR_VALUE: AIR_TRY(tensor(w, param, a->value, &p)); break;
    case AIR_ATTR_INTS:
        AIR_TRY(ge_add_dims(w->v, a->count, a->dims, &p));
        break;
    case AIR_ATTR_INT:
    case AIR_ATTR_FLOAT:
    case AIR_ATTR_BOOL: AIR_TRY(number(w, param, a, &p)); break;
    default: break;
    }
    return push(w, f, -1, p);
}

static void literal(const char *text, ge_attr *out);
static air_status computed(writer *w, const char *what, ge_attr *out);

/* An input that is no parameter: a literal, @sizes or %something. */
static air_status
other_input(writer *w, const ge_field *f, const char *source)
{
    ge_attr a = {0};
    ge_port p = {.node = -1};
    air_dtype dtype = w->target;
    const ir_value *v;

    if (*source == '@') {
        v = ir_val(w->v->g,
                   w->n->attrs[ir_param_find(w->info, source + 1)].value);
        AIR_TRY(ge_add_dims(w->v, v->rank, v->dims, &p));
    } else if (*source) {
        if (*source == '%')
            AIR_TRY(computed(w, source + 1, &a));
        else
            literal(source, &a);
        a.item = a.kind == GE_FLOAT ? GE_FLOAT : GE_INT;
        bool list = a.kind == GE_INT_LIST;
        a.kind = GE_TENSOR;
        if (list || w->info->cls != IR_CLASS_CREATE)
            dtype = AIR_I64;
        AIR_TRY(ge_add_const(w->v, dtype, list, a, &p));
    }
    return push(w, f, -1, p);
}

static air_status
add_inputs(writer *w)
{
    char source[64];
    ge_field f;

    for (size_t i = 0; ge_field_at(w->prototype, GE_INPUTS, i, &f); i++) {
        find_source(w, &f, i, source);
        int param = take_param(w, source);
        if (param >= 0)
            AIR_TRY(param_input(w, &f, param));
        else
            AIR_TRY(other_input(w, &f, source));
    }
    return AIR_OK;
}

/* ---- attributes ---------------------------------------------------------- */

static void
literal(const char *text, ge_attr *out)
{
    if (*text == '[')
        out->kind = GE_INT_LIST;
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        out->kind = GE_BOOL, out->i = *text == 't';
    else if (strpbrk(text, "."))
        out->kind = GE_FLOAT, out->f = strtod(text, NULL);
    else
        out->kind = GE_INT, out->i = strtoll(text, NULL, 10);
}

static air_status
list_attr(writer *w, size_t count, ge_attr *out, int64_t **ints)
{
    out->kind = GE_INT_LIST;
    out->count = count;
    AIR_TRY(BASE_ARENA_ARRAY(&w->v->arena, count, ints));
    out->ints = *ints;
    return AIR_OK;
}

/* The order of axes that t and transpose give. */
static air_status
permutation(writer *w, ge_attr *out)
{
    const int rank = ir_val(w->v->g, w->n->outs[0])->rank;
    int axes[2] = {0, rank - 1};
    int64_t *perm;

    AIR_TRY(list_attr(w, (size_t)rank, out, &perm));
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    for (int i = 1; i < w->info->nparams; i++) {
        AIR_TRY(ir_axis(w->v->g, &w->n->attrs[i], rank, "dim", &axes[i - 1]));
        w->used |= UINT64_C(1) << i;
    }
    if (rank > 0) {
        perm[axes[0]] = axes[1];
        perm[axes[1]] = axes[0];
    }
    return AIR_OK;
}

static air_status
split_sizes(writer *w, ge_attr *out)
{
    const air_attr *dim = &w->n->attrs[ir_param_find(w->info, "dim")];
    int axis;
    int64_t *sizes;

    take_param(w, "split_size");
    AIR_TRY(ir_axis(w->v->g, dim, ir_val(w->v->g, w->n->outs[0])->rank, "dim",
                    &axis));
    AIR_TRY(list_attr(w, w->n->nouts, out, &sizes));
    for (int i = 0; i < w->n->nouts; i++)
        if (!ir_dim_is_const(
                w->v->g, ir_val(w->v->g, w->n->outs[i])->dims[axis], &sizes[i]))
            sizes[i] = -1;
    return AIR_OK;
}

/* Which indices of index.Tensor are given. */
static air_status
present(writer *w, ge_attr *out)
{
    const air_attr *a = &w->n->attrs[ir_param_find(w->info, "indices")];
    int64_t *mask;

    AIR_TRY(list_attr(w, a->count, out, &mask));
    for (size_t i = 0; i < a->count; i++)
        mask[i] = a->values[i].id != AIR_NO_REF.id;
    return AIR_OK;
}

static air_status
computed(writer *w, const char *what, ge_attr *out)
{
    static const char *const reductions[] = {"none", "mean", "sum"};
    int64_t which = 0;

    out->kind = GE_INT;
    if (strcmp(what, "perm") == 0)
        return permutation(w, out);
    if (strcmp(what, "sizes") == 0)
        return split_sizes(w, out);
    if (strcmp(what, "present") == 0)
        return present(w, out);
    if (strcmp(what, "results") == 0) {
        out->i = w->n->nouts;
    } else if (strcmp(what, "count") == 0) {
        out->i = (int64_t)w->n->attrs[0].count;
    } else { /* reduction */
        int k = take_param(w, "reduction");
        ir_dim_is_const(w->v->g, w->n->attrs[k].dim, &which);
        out->kind = GE_STR;
        out->s = reductions[which];
    }
    return AIR_OK;
}

/* Sizes in an attribute: a symbolic one is -1 there. */
static air_status
int_list(writer *w, size_t count, const air_dim *dims, ge_attr *out)
{
    int64_t *ints;

    AIR_TRY(list_attr(w, count, out, &ints));
    for (size_t i = 0; i < count; i++)
        if (!ir_dim_is_const(w->v->g, dims[i], &ints[i]))
            ints[i] = -1;
    return AIR_OK;
}

/* A parameter as an attribute; false: it has none (None). */
static air_status
param_attr(writer *w, int param, const ge_field *f, ge_attr *out, bool *has)
{
    const air_attr *a = &w->n->attrs[param];
    air_dtype dtype = a->kind == AIR_ATTR_DTYPE ? a->dtype : w->target;

    *has = true;
    if (w->info->params[param].kind == IR_PARAM_DTYPE) {
        bool type = f && strncmp(f->type, "Type", 4) == 0;
        out->kind = type ? GE_TYPE_ATTR : GE_INT;
        out->i = air_ge_dtype_of(dtype)->number;
        return AIR_OK;
    }
    switch (a->kind) {
    case AIR_ATTR_INTS: return int_list(w, a->count, a->dims, out);
    case AIR_ATTR_INT:
        if (f && f->list)
            return int_list(w, 1, &a->dim, out);
        out->kind = GE_INT;
        if (!ir_dim_is_const(w->v->g, a->dim, &out->i))
            out->i = -1;
        if (f && strncmp(f->type, "Float", 5) == 0)
            out->kind = GE_FLOAT, out->f = (double)out->i;
        return AIR_OK;
    case AIR_ATTR_BOOL: out->kind = GE_BOOL, out->i = a->b; return AIR_OK;
    case AIR_ATTR_FLOAT: out->kind = GE_FLOAT, out->f = a->f; return AIR_OK;
    case AIR_ATTR_STR: out->kind = GE_STR, out->s = a->str; return AIR_OK;
    case AIR_ATTR_FLOATS:
        out->kind = GE_FLOAT_LIST, out->count = a->count;
        out->floats = a->floats;
        return AIR_OK;
    case AIR_ATTR_BOOLS:
        out->kind = GE_BOOL_LIST, out->count = a->count;
        out->bools = a->bools;
        return AIR_OK;
    default: *has = false; return AIR_OK;
    }
}

static air_status
attr_of(writer *w, const char *source, const ge_field *f, ge_attr *out,
        bool *has)
{
    int param = take_param(w, source);

    *has = *source != '\0';
    if (param >= 0)
        return param_attr(w, param, f, out, has);
    if (*source == '%')
        return computed(w, source + 1, out);
    if (*source == '"') {
        out->kind = GE_STR;
        return base_arena_str(&w->v->arena, source + 1, strlen(source) - 2,
                              &out->s);
    }
    literal(source, out);
    return AIR_OK;
}

static air_status
add_attrs(writer *w, int32_t node, size_t ninputs)
{
    char source[64];
    ge_field f;
    bool has;

    for (size_t i = 0; ge_field_at(w->prototype, GE_ATTRS, i, &f); i++) {
        ge_attr a = {0};
        find_source(w, &f, ninputs + i, source);
        AIR_TRY(attr_of(w, source, &f, &a, &has));
        if (has)
            AIR_TRY(ge_add_attr(w->v, node, f.name, f.name_len, a));
    }
    return AIR_OK;
}

/* What the type has no name for is kept under ATen's, with _ in front. */
static air_status
add_rest(writer *w, int32_t node)
{
    char name[40];
    bool has;

    for (int i = 0; i < w->info->nparams; i++) {
        const ir_param *p = &w->info->params[i];
        ge_attr a = {0};
        if (w->used >> i & 1 || p->kind == IR_PARAM_IGNORED ||
            p->kind == IR_PARAM_TENSOR || p->kind == IR_PARAM_TENSORS ||
            print_is_default(p, &w->n->attrs[i]))
            continue;
        AIR_TRY(param_attr(w, i, NULL, &a, &has));
        snprintf(name, sizeof name, "_%s", p->name);
        if (has)
            AIR_TRY(ge_add_attr(w->v, node, name, (int)strlen(name), a));
    }
    return AIR_OK;
}

/* Tensors that the prototype has no input for. */
static air_status
add_more_inputs(writer *w)
{
    for (int i = 0; i < w->info->nparams; i++) {
        const ir_param *p = &w->info->params[i];
        const uint8_t kind = w->n->attrs[i].kind;
        ge_field f = {.name = p->name, .name_len = (int)strlen(p->name)};
        if (w->used >> i & 1 ||
            (kind != AIR_ATTR_VALUE && kind != AIR_ATTR_VALUES))
            continue;
        take_param(w, p->name);
        AIR_TRY(param_input(w, &f, i));
    }
    return AIR_OK;
}

/* ---- results ------------------------------------------------------------- */

/* Output k of the node: its name, and which result of ATen's it is: "%1" in
 * the arguments, else result k. */
static size_t
output_field(const writer *w, size_t k, ge_field *out)
{
    char source[64] = "";

    *out = (ge_field){.name = "y", .name_len = 1, .list = w->n->nouts > 1};
    if (!w->prototype)
        return k;
    if (ge_field_at(w->prototype, GE_OUTPUTS, 0, out) && out->list)
        return k;
    if (!ge_field_at(w->prototype, GE_OUTPUTS, k, out))
        *out = (ge_field){.name = "y", .name_len = 1, .list = true};
    else if (w->args)
        find_source(w, out, k, source);
    return *source == '%' ? (size_t)(source[1] - '0') : k;
}

static air_status
add_outputs(writer *w, int32_t node)
{
    for (size_t k = 0; k < w->n->nouts; k++) {
        ge_field f;
        const air_ref ref = w->n->outs[output_field(w, k, &f)];
        const ir_value *value = ir_val(w->v->g, ref);
        air_type type = {(air_dtype)value->dtype, value->rank, {{0}}};
        if (value->rank)
            memcpy(type.dims, value->dims, value->rank * sizeof *value->dims);
        AIR_TRY(ge_add_out(w->v, node, f.name, f.name_len, f.list ? (int)k : -1,
                           type, &w->v->values[ref.id]));
        w->v->nodes.data[node].out.data[k].origin = w->v->origins[ref.id];
    }
    return AIR_OK;
}

/* ---- nodes --------------------------------------------------------------- */

/* "_fused_rms_norm" -> "FusedRmsNorm", "npu::my_op.default" -> "MyOp" */
static void
camel_case(const char *op, char out[64])
{
    const char *colon = strstr(op, "::");
    size_t n = 0;
    bool up = true;

    for (op = colon ? colon + 2 : op; *op && *op != '.' && n < 63; op++) {
        if (*op == '_')
            up = true;
        else
            out[n++] = (char)(up ? toupper((unsigned char)*op) : *op),
            up = false;
    }
    out[n] = '\0';
}

static air_status
set_type(writer *w, const char *op)
{
    char text[64];

    w->type = "";
    if (w->n->op != AIR_OP_HOST)
        ge_row_of(w->v->g, w->n, &w->type, &w->args);
    if (!*w->type) {
        camel_case(op, text);
        AIR_TRY(base_arena_str(&w->v->arena, text, strlen(text), &w->type));
    }
    w->prototype = ge_prototype(w->type);
    return AIR_OK;
}

static air_status
add_main(writer *w, int32_t *out)
{
    size_t ninputs = 0;
    ge_field f;

    if (w->prototype) {
        AIR_TRY(add_inputs(w));
        while (ge_field_at(w->prototype, GE_INPUTS, ninputs, &f))
            ninputs++;
    }
    AIR_TRY(add_more_inputs(w));
    AIR_TRY(ge_add_node(w->v, NULL, w->type, out));
    w->v->nodes.data[*out].in = w->in;
    w->in = (ge_ports){0};
    if (w->prototype)
        AIR_TRY(add_attrs(w, *out, ninputs));
    AIR_TRY(add_rest(w, *out));
    AIR_TRY(ge_add_str(w->v, *out, "_aten", w->info->name));
    return add_outputs(w, *out);
}

static air_status
add_host(writer *w, int32_t *out)
{
    const air_attr *a = &w->n->attrs[0];
    ge_field f = {.name = "x", .name_len = 1};

    w->prototype = NULL;
    for (size_t i = 0; i < a->count; i++)
        AIR_TRY(push(w, &f, (int)i, w->v->values[a->values[i].id]));
    AIR_TRY(ge_add_node(w->v, NULL, w->type, out));
    w->v->nodes.data[*out].in = w->in;
    w->in = (ge_ports){0};
    AIR_TRY(ge_add_str(w->v, *out, "_host_op", w->n->host_op));
    AIR_TRY(ge_add_str(w->v, *out, "_reason", w->n->reason));
    return add_outputs(w, *out);
}

/* a, once `written` is there: a control edge says so. */
static air_status
add_after(writer *w, int32_t *out)
{
    const ge_field f = {.name = "x", .name_len = 1};
    const air_attr *a = w->n->attrs;

    AIR_TRY(push(w, &f, -1, w->v->values[a[0].value.id]));
    AIR_TRY(ge_add_node(w->v, NULL, "Identity", out));
    w->v->nodes.data[*out].in = w->in;
    w->in = (ge_ports){0};
    w->v->nodes.data[*out].after = w->v->values[a[1].value.id].node;
    return add_outputs(w, *out);
}

/* What the program says of the scopes around the node. */
static air_status
add_notes(ge_view *v, const ir_node *n, int32_t node)
{
    if (!n->scope.notes)
        return AIR_OK;
    const ir_notes *notes = &v->g->notes.data[n->scope.notes - 1];
    for (size_t i = 0; i < notes->count; i++) {
        const air_note *a = &notes->list[i];
        ge_attr attr = {
            .kind = a->text ? GE_STR : GE_BOOL, .s = a->text, .i = a->truth};
        AIR_TRY(ge_add_attr(v, node, a->key, (int)strlen(a->key), attr));
    }
    return AIR_OK;
}

static air_status
add_any(writer *w, int32_t *out)
{
    const bool host = w->n->op == AIR_OP_HOST;

    w->prototype = NULL;
    if (w->n->op == AIR_OP_AFTER)
        return add_after(w, out);
    AIR_TRY(set_type(w, host ? w->n->host_op : w->info->name));
    if (host)
        return add_host(w, out);
    if (w->info->dtype == IR_DT_COMPARE || w->n->nouts == 0)
        w->target = ir_compute_dtype(w->v->g, w->n);
    else
        w->target = (air_dtype)ir_val(w->v->g, w->n->outs[0])->dtype;
    return add_main(w, out);
}

air_status
ge_add_graph_node(ge_view *v, const ir_node *n)
{
    writer w = {.v = v, .n = n, .info = ir_info(n)};
    int32_t node = -1;
    air_status status = add_any(&w, &node);

    BASE_VEC_FREE(v->alloc, &w.in);
    if (status == AIR_OK)
        status = add_notes(v, n, node);
    if (status != AIR_OK)
        return base_trace(status, __func__, __LINE__);
    v->nodes.data[node].loc = n->loc;
    if (w.info->cls == IR_CLASS_HOST || w.info->cls == IR_CLASS_EFFECT) {
        v->nodes.data[node].after = v->last_ordered;
        v->last_ordered = node;
    }
    return AIR_OK;
}
