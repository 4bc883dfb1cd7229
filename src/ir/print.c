/* print.c: a graph as text. */
#include "ir/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- literals ------------------------------------------------------------ */

/* The shortest decimal that reads back as v, recognisably a float. */
void
print_float(double v, base_text *out)
{
    char text[40];

    if (isnan(v) || isinf(v)) {
        base_text_add(out, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    base_text_add(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

void
print_str(const char *s, base_text *out)
{
    base_text_add(out, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            base_text_add(out, "\\%c", c);
        else if (c == '\n')
            base_text_add(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            base_text_add(out, "\\x%02x", c);
        else
            base_text_put(out, s, 1);
    }
    base_text_add(out, "\"");
}

static void
print_ref(const ir_graph *g, air_ref r, base_text *out)
{
    if (r.id == AIR_NO_REF.id)
        base_text_add(out, "none");
    else
        base_text_add(out, "%%%s", ir_val(g, r)->name);
}

static void
print_dims(const ir_graph *g, size_t count, const air_dim *dims, base_text *out)
{
    base_text_add(out, "[");
    for (size_t i = 0; i < count; i++) {
        base_text_add(out, "%s", i ? ", " : "");
        ir_dim_print(g, dims[i], out);
    }
    base_text_add(out, "]");
}

void
print_type(const ir_graph *g, air_dtype dtype, int rank, const air_dim *dims,
           base_text *out)
{
    base_text_add(out, "%s", air_dtype_text(dtype));
    print_dims(g, (size_t)rank, dims, out);
}

static void
print_list(const ir_graph *g, const air_attr *a, base_text *out)
{
    base_text_add(out, "[");
    for (size_t i = 0; i < a->count; i++) {
        base_text_add(out, "%s", i ? ", " : "");
        if (a->kind == AIR_ATTR_VALUES)
            print_ref(g, a->values[i], out);
        else if (a->kind == AIR_ATTR_FLOATS)
            print_float(a->floats[i], out);
        else
            base_text_add(out, "%s", a->bools[i] ? "true" : "false");
    }
    base_text_add(out, "]");
}

static void
print_attr(const ir_graph *g, const air_attr *a, base_text *out)
{
    switch (a->kind) {
    case AIR_ATTR_NONE: base_text_add(out, "none"); break;
    case AIR_ATTR_VALUE: print_ref(g, a->value, out); break;
    case AIR_ATTR_INT: ir_dim_print(g, a->dim, out); break;
    case AIR_ATTR_INTS: print_dims(g, a->count, a->dims, out); break;
    case AIR_ATTR_FLOAT: print_float(a->f, out); break;
    case AIR_ATTR_BOOL:
        base_text_add(out, "%s", a->b ? "true" : "false");
        break;
    case AIR_ATTR_DTYPE:
        base_text_add(out, "%s", air_dtype_text(a->dtype));
        break;
    case AIR_ATTR_STR: print_str(a->str, out); break;
    case AIR_ATTR_VALUES:
    case AIR_ATTR_FLOATS:
    case AIR_ATTR_BOOLS: print_list(g, a, out); break;
    }
}

/* ---- arguments ----------------------------------------------------------- */

static bool
same_float(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Defaults have the same dim ids in every graph, so ids compare. */
bool
print_is_default(const ir_param *p, const air_attr *a)
{
    const air_attr *d = &p->def;

    if (a->kind == AIR_ATTR_NONE)
        return true;
    if (!p->has_default || a->kind != d->kind)
        return false;
    switch (a->kind) {
    case AIR_ATTR_INT: return ir_dim_eq(a->dim, d->dim);
    case AIR_ATTR_INTS:
        return a->count == d->count &&
               (a->count == 0 ||
                memcmp(a->dims, d->dims, a->count * sizeof *a->dims) == 0);
    case AIR_ATTR_FLOAT: return same_float(a->f, d->f);
    case AIR_ATTR_BOOL: return a->b == d->b;
    case AIR_ATTR_DTYPE: return a->dtype == d->dtype;
    case AIR_ATTR_STR: return strcmp(a->str, d->str) == 0;
    default: return false;
    }
}

/* Leading tensors by position, everything else by name. */
static void
print_args(const ir_graph *g, const ir_node *n, base_text *out)
{
    const ir_op_info *info = ir_info(n);
    bool positional = true, first = true;

    for (int i = 0; i < info->nparams; i++) {
        const ir_param *p = &info->params[i];
        positional = positional && (p->kind == IR_PARAM_TENSOR ||
                                    p->kind == IR_PARAM_TENSORS);
        if (print_is_default(p, &n->attrs[i])) {
            positional = false;
            continue;
        }
        base_text_add(out, "%s", first ? "" : ", ");
        if (!positional)
            base_text_add(out, "%s=", p->name);
        print_attr(g, &n->attrs[i], out);
        first = false;
    }
}

/* ---- lines --------------------------------------------------------------- */

static void
print_scope(const ir_scope *scope, base_text *out)
{
    if (scope->threads)
        base_text_add(out, " threads %d", scope->threads);
    if (scope->lane)
        base_text_add(out, " lane %d", scope->lane);
    base_text_add(out, "%s%s", scope->joined ? " joined" : "",
                  scope->untimed ? " untimed" : "");
}

static void
print_loc(const char *loc, base_text *out)
{
    if (!loc || !*loc)
        return;
    base_text_add(out, "  # ");
    for (; *loc; loc++)
        base_text_put(out, *loc == '\n' || *loc == '\r' ? " " : loc, 1);
}

void
print_node(const ir_graph *g, const ir_node *n, base_text *out)
{
    for (size_t i = 0; i < n->nouts; i++) {
        const ir_value *v = ir_val(g, n->outs[i]);
        base_text_add(out, "%s%%%s: ", i ? ", " : "", v->name);
        print_type(g, (air_dtype)v->dtype, v->rank, v->dims, out);
    }
    base_text_add(out, "%s", n->nouts ? " = " : "");
    if (n->op == AIR_OP_HOST) {
        base_text_add(out, "%s ", ir_host_word((air_host_kind)n->host));
        print_str(n->host_op, out);
        base_text_add(out, " %" PRIu32 " ", n->host_id);
        print_str(n->reason, out);
        base_text_add(out, " (");
        for (size_t i = 0; i < n->attrs[0].count; i++) {
            base_text_add(out, "%s", i ? ", " : "");
            print_ref(g, n->attrs[0].values[i], out);
        }
        base_text_add(out, ")%s", n->attrs[1].count ? " reads " : "");
        if (n->attrs[1].count)
            print_dims(g, n->attrs[1].count, n->attrs[1].dims, out);
    } else {
        base_text_add(out, "%s(", ir_info(n)->name);
        print_args(g, n, out);
        base_text_add(out, ")");
    }
    base_text_add(out, "%s%s", n->inplace ? " inplace" : "",
                  n->once ? " once" : "");
    if (n->group >= 0)
        base_text_add(out, " @%" PRId32, n->group);
    print_scope(&n->scope, out);
    print_loc(n->loc, out);
}

static void
print_symbols(const ir_graph *g, base_text *out)
{
    for (size_t i = 0; i < g->symbols.count; i++) {
        const ir_symbol *s = &g->symbols.data[i];
        if (s->min == TEXT_SYMBOL_MIN && s->max == TEXT_SYMBOL_MAX &&
            s->hint == 0)
            continue;
        base_text_add(out, "sym %s = [%" PRId64 ", ", s->name, s->min);
        if (s->max == INT64_MAX)
            base_text_add(out, "inf]");
        else
            base_text_add(out, "%" PRId64 "]", s->max);
        if (s->hint)
            base_text_add(out, " hint %" PRId64, s->hint);
        base_text_add(out, "\n");
    }
}

static void
print_input(const ir_graph *g, const ir_input *in, base_text *out)
{
    if (in->is_int) {
        uint32_t symbol = g->dims.data[in->dim.id].a;
        const char *name = g->symbols.data[symbol].name;
        base_text_add(out, "%s: int", in->name);
        if (strcmp(name, in->name) != 0)
            base_text_add(out, " = %s", name);
        return;
    }
    const ir_value *v = ir_val(g, in->value);
    base_text_add(out, "%%%s: ", v->name);
    print_type(g, (air_dtype)v->dtype, v->rank, v->dims, out);
    base_text_add(out, "%s%s", v->flags & AIR_INPUT_PARAM ? " param" : "",
                  v->flags & AIR_INPUT_FROZEN ? " frozen" : "");
}

static void
print_results(const ir_graph *g, base_text *out)
{
    base_text_add(out, "  return");
    for (size_t i = 0; i < g->results.count; i++) {
        const ir_result *r = &g->results.data[i];
        base_text_add(out, "%s ", i ? "," : "");
        print_ref(g, r->value, out);
        if (r->strides) {
            base_text_add(out, " strides ");
            print_dims(g, ir_val(g, r->value)->rank, r->strides, out);
        }
    }
    base_text_add(out, "\n}\n");
}

air_status
ir_print(const ir_graph *g, base_text *out)
{
    print_symbols(g, out);
    base_text_add(out, "graph %s(", g->name);
    for (size_t i = 0; i < g->inputs.count; i++) {
        base_text_add(out, "%s", i ? ", " : "");
        print_input(g, &g->inputs.data[i], out);
    }
    base_text_add(out, ") {\n");
    IR_FOR_EACH(g, id)
    {
        base_text_add(out, "  ");
        print_node(g, ir_node_at(g, id), out);
        base_text_add(out, "\n");
    }
    print_results(g, out);
    return out->status;
}
