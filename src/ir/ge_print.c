/* ge_print.c: a graph as Ascend IR text: `txt`, the text form of the protobuf
 * messages GraphDef and OpDef; `pbtxt`, the node list that TensorBoard and
 * Netron read; `py`, calls that build it. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/ge_view.h"
#include "ir/print.h"

/* ---- values -------------------------------------------------------------- */

static const char *
truth(bool value, bool python)
{
    if (python)
        return value ? "True" : "False";
    return value ? "true" : "false";
}

static void
print_item(const ge_attr *a, ge_attr_kind kind, size_t i, bool python,
           base_text *out)
{
    if (kind == GE_FLOAT || kind == GE_FLOAT_LIST)
        print_float(a->floats ? a->floats[i] : a->f, out);
    else if (kind == GE_BOOL_LIST)
        base_text_add(out, "%s", truth(a->bools[i], python));
    else if (kind == GE_BOOL)
        base_text_add(out, "%s", truth(a->i != 0, python));
    else
        base_text_add(out, "%" PRId64, a->ints ? a->ints[i] : a->i);
}

/* 2, [2, 3], "tanh". */
static void
print_value(const ge_attr *a, bool python, base_text *out)
{
    ge_attr_kind kind = a->kind == GE_TENSOR ? a->item : a->kind;
    bool list = a->kind >= GE_INT_LIST && (a->kind != GE_TENSOR || a->ints);

    if (kind == GE_STR) {
        print_str(a->s, out);
        return;
    }
    if (!list) {
        print_item(a, kind, 0, python, out);
        return;
    }
    base_text_add(out, "[");
    for (size_t i = 0; i < a->count; i++) {
        base_text_add(out, "%s", i ? ", " : "");
        print_item(a, kind, i, python, out);
    }
    base_text_add(out, "]");
}

static const char *
source_name(const ge_view *v, const ge_port *p)
{
    return v->nodes.data[p->node].name;
}

void
ge_print_inputs(const ge_view *v, const ge_node *n, const char *indent,
                base_text *out)
{
    for (size_t i = 0; i < n->in.count; i++) {
        const ge_port *p = &n->in.data[i];
        if (p->node >= 0)
            base_text_add(out, "%sinput: \"%s:%d\"\n", indent,
                          source_name(v, p), p->out);
        else if (!p->type)
            base_text_add(out, "%sinput: \"\"\n", indent);
    }
    if (n->after >= 0)
        base_text_add(out, "%sinput: \"%s:-1\"\n", indent,
                      v->nodes.data[n->after].name);
}

/* ---- txt ----------------------------------------------------------------- */

static const struct {
    const char *field, *list; /* of AttrDef; the value type of a list */
} attr_fields[] = {
    [GE_INT] = {"i", NULL},
    [GE_FLOAT] = {"f", NULL},
    [GE_BOOL] = {"b", NULL},
    [GE_STR] = {"s", NULL},
    [GE_TYPE_ATTR] = {"dt", NULL},
    [GE_INT_LIST] = {"i", "VT_LIST_INT"},
    [GE_FLOAT_LIST] = {"f", "VT_LIST_FLOAT"},
    [GE_BOOL_LIST] = {"b", "VT_LIST_BOOL"},
};

static const char *
file_dtype(air_dtype dtype)
{
    return air_ge_dtype_of(dtype)->name;
}

static void
print_shape(const ge_port *p, const char *indent, base_text *out)
{
    base_text_add(out, "%sshape {", indent);
    for (int i = 0; i < p->rank; i++)
        base_text_add(out, " dim: %" PRId64, p->dims[i]);
    base_text_add(out, " }\n");
}

static void
print_attr_open(const char *key, const char *indent, base_text *out)
{
    base_text_add(out, "%sattr {\n%s  key: ", indent, indent);
    print_str(key, out);
    base_text_add(out, "\n%s  value {", indent);
}

/* Ends what print_attr_open began. */
static void
print_attr_close(const char *indent, base_text *out)
{
    base_text_add(out, " }\n%s}\n", indent);
}

static void
print_tensor(const ge_port *type, const ge_attr *a, base_text *out)
{
    base_text_add(out, " t { desc { dtype: %s", file_dtype(type->dtype));
    base_text_add(out, " shape {");
    if (type->rank)
        base_text_add(out, " dim: %" PRId64, type->dims[0]);
    base_text_add(out, " } layout: \"ND\" } }");
    print_attr_close("  ", out);
    print_attr_open("_readable_value", "  ", out);
    base_text text;
    base_text_init(&text, out->alloc);
    print_value(a, true, &text);
    base_text_add(out, " s: ");
    print_str(text.data ? text.data : "", out);
    if (text.status != AIR_OK)
        out->status = text.status;
    base_text_deinit(&text);
}

static void
print_txt_attr(const ge_node *n, const ge_attr *a, base_text *out)
{
    print_attr_open(a->name, "  ", out);
    if (a->kind == GE_TENSOR) {
        print_tensor(&n->out.data[0], a, out);
    } else if (attr_fields[a->kind].list) {
        base_text_add(out, " list {");
        for (size_t i = 0; i < a->count; i++) {
            base_text_add(out, " %s: ", attr_fields[a->kind].field);
            print_item(a, a->kind, i, false, out);
        }
        base_text_add(out, " val_type: %s }", attr_fields[a->kind].list);
    } else {
        base_text_add(out, " %s: ", attr_fields[a->kind].field);
        print_value(a, false, out);
    }
    print_attr_close("  ", out);
}

/* name -> position, as two lists. */
static void
print_names(const ge_ports *ports, const char *key, base_text *out)
{
    char text[32];

    snprintf(text, sizeof text, "_%s_name_key", key);
    print_attr_open(text, "  ", out);
    base_text_add(out, " list {");
    for (size_t i = 0; i < ports->count; i++) {
        base_text_add(out, " s: ");
        print_str(ports->data[i].name, out);
    }
    base_text_add(out, " val_type: VT_LIST_STRING }");
    print_attr_close("  ", out);
    snprintf(text, sizeof text, "_%s_name_value", key);
    print_attr_open(text, "  ", out);
    base_text_add(out, " list {");
    for (size_t i = 0; i < ports->count; i++)
        base_text_add(out, " i: %zu", i);
    base_text_add(out, " val_type: VT_LIST_INT }");
    print_attr_close("  ", out);
}

static void
print_desc(const char *kind, const ge_port *p, base_text *out)
{
    const bool absent = !p->type;

    base_text_add(out, "  %s {\n    name: ", kind);
    print_str(p->name, out);
    base_text_add(out, "\n    dtype: %s\n",
                  absent ? "DT_UNDEFINED" : file_dtype(p->dtype));
    print_shape(p, "    ", out);
    base_text_add(out, "    layout: \"ND\"\n    device_type: \"CPU\"\n");
    print_attr_open(absent ? "_is_unfed_optional" : "_meta", "    ", out);
    if (absent) {
        base_text_add(out, " i: 1");
    } else {
        base_text_add(out, " s: ");
        print_str(p->type, out);
    }
    print_attr_close("    ", out);
    if (p->origin) {
        print_attr_open("_fx_tensor_name", "    ", out);
        base_text_add(out, " s: ");
        print_str(p->origin, out);
        print_attr_close("    ", out);
    }
    base_text_add(out, "  }\n");
}

static void
print_txt_node(const ge_view *v, size_t id, base_text *out)
{
    const ge_node *n = &v->nodes.data[id];

    base_text_add(out, "op {\n  name: \"%s\"\n  type: \"%s\"\n", n->name,
                  n->type);
    ge_print_inputs(v, n, "  ", out);
    for (size_t i = 0; i < n->attrs.count; i++)
        print_txt_attr(n, &n->attrs.data[i], out);
    print_names(&n->in, "input", out);
    print_names(&n->out, "output", out);
    if (n->loc) {
        print_attr_open("_location", "  ", out);
        base_text_add(out, " s: ");
        print_str(n->loc, out);
        print_attr_close("  ", out);
    }
    base_text_add(out, "  id: %zu\n", id);
    for (size_t i = 0; i < n->in.count; i++)
        print_desc("input_desc", &n->in.data[i], out);
    for (size_t i = 0; i < n->out.count; i++)
        print_desc("output_desc", &n->out.data[i], out);
    base_text_add(out, "}\n");
}

static void
print_txt(const ge_view *v, base_text *out)
{
    base_text_add(out, "name: \"%s\"\n", v->g->name);
    for (size_t i = 0; i < v->nodes.count; i++)
        print_txt_node(v, i, out);
    base_text_add(out, "attr {\n  key: \"_executor_type\"\n"
                       "  value { i: 0 }\n}\n");
}

/* ---- pbtxt --------------------------------------------------------------- */

static void
print_pbtxt_attr(const char *key, const char *mark, const char *value,
                 base_text *out)
{
    base_text_add(out, "  attr {\n    key: \"%s%s\"\n    value { s: ", mark,
                  key);
    print_str(value, out);
    base_text_add(out, " }\n  }\n");
}

/* A string without quotes: pbtxt puts its own around every value. */
static void
print_plain(const ge_attr *a, base_text *out)
{
    if (a->kind == GE_STR)
        base_text_add(out, "%s", a->s);
    else
        print_value(a, true, out);
}

static void
print_pbtxt_out(const ge_port *p, base_text *out)
{
    print_pbtxt_attr(p->name, "[o]", p->type, out);
    if (p->origin) {
        base_text_add(out,
                      "  attr {\n    key: \"[o]%s._fx_tensor_name\"\n"
                      "    value { s: ",
                      p->name);
        print_str(p->origin, out);
        base_text_add(out, " }\n  }\n");
    }
}

static void
print_pbtxt_node(const ge_view *v, const ge_node *n, base_text *out)
{
    base_text text;

    base_text_add(out, "node {\n  name: \"%s\"\n  op: \"%s\"\n", n->name,
                  n->type);
    for (size_t i = 0; i < n->in.count; i++)
        if (n->in.data[i].node >= 0)
            base_text_add(out, "  input: \"%s:%d\"\n",
                          source_name(v, &n->in.data[i]), n->in.data[i].out);
    if (n->after >= 0)
        base_text_add(out, "  input: \"^%s\"\n", v->nodes.data[n->after].name);
    for (size_t i = 0; i < n->attrs.count; i++) {
        base_text_init(&text, out->alloc);
        print_plain(&n->attrs.data[i], &text);
        if (text.status != AIR_OK)
            out->status = text.status;
        print_pbtxt_attr(n->attrs.data[i].name, "", text.data ? text.data : "",
                         out);
        base_text_deinit(&text);
    }
    for (size_t i = 0; i < n->in.count; i++)
        if (n->in.data[i].type)
            print_pbtxt_attr(n->in.data[i].name, "[i]", n->in.data[i].type,
                             out);
    for (size_t i = 0; i < n->out.count; i++)
        print_pbtxt_out(&n->out.data[i], out);
    if (n->loc)
        print_pbtxt_attr("_location", "", n->loc, out);
    base_text_add(out, "}\n");
}

/* ---- py ------------------------------------------------------------------ */

/* Result i of the node of that name, as an identifier. */
static void
print_py_name(const char *name, int i, base_text *out)
{
    for (; *name; name++)
        base_text_add(out, "%c", isalnum((unsigned char)*name) ? *name : '_');
    base_text_add(out, "_%d", i);
}

static void
print_py_args(const ge_view *v, const ge_node *n, base_text *out)
{
    for (size_t i = 0; i < n->in.count; i++) {
        const ge_port *p = &n->in.data[i];
        base_text_add(out, "%s", i ? ", " : "");
        if (p->node >= 0)
            print_py_name(source_name(v, p), p->out, out);
        else
            base_text_add(out, "None");
    }
}

/* The last words of a call, and as a comment what its first result is. */
static void
print_py_end(const ge_view *v, const ge_node *n, base_text *out)
{
    if (n->after >= 0) {
        base_text_add(out, ", dependencies=[");
        print_py_name(v->nodes.data[n->after].name, 0, out);
        base_text_add(out, "]");
    }
    base_text_add(out, ", node_name=\"%s\")", n->name);
    if (n->out.count)
        base_text_add(out, "  # %s", n->out.data[0].type);
    for (size_t i = 0; i < n->out.count; i++)
        if (n->out.data[i].origin) {
            base_text_add(out, " %s", n->out.data[i].origin);
            break;
        }
    base_text_add(out, "\n");
}

static void
print_py_node(const ge_view *v, const ge_node *n, base_text *out)
{
    const bool data = strstr(n->type, "Data") != NULL;
    const bool last = strcmp(n->type, "NetOutput") == 0;

    if (n->loc)
        base_text_add(out, "# %s\n", n->loc);
    /* one without results has a name as well: others may wait for it */
    for (size_t i = 0; i < n->out.count || (i == 0 && !last); i++) {
        base_text_add(out, "%s", i ? ", " : "");
        print_py_name(n->name, (int)i, out);
    }
    base_text_add(out, "%s = ge.%s(%s", last ? "_" : "", n->type,
                  last ? "[" : "");
    if (!data)
        print_py_args(v, n, out);
    if (last)
        base_text_add(out, "], dependencies=[]");
    for (size_t i = 0; i < n->attrs.count; i++) {
        const ge_attr *a = &n->attrs.data[i];
        base_text_add(out, "%s", i || (n->in.count && !data) ? ", " : "");
        if (a->kind != GE_TENSOR)
            base_text_add(out, "%s=", a->name);
        print_value(a, true, out);
        if (a->kind == GE_TENSOR)
            base_text_add(out, ", dtype=%d",
                          air_ge_dtype_of(n->out.data[0].dtype)->number);
    }
    print_py_end(v, n, out);
}

static const char py_head[] =
    "# -*- coding: utf-8 -*-\n"
    "from torch import tensor\n"
    "from torchair._ge_concrete_graph import ge_apis as ge\n"
    "from torchair.ge._ge_graph import get_default_ge_graph\n\n";

air_status
ge_print(const ir_graph *g, air_ge_form form, base_text *out)
{
    ge_view v;

    AIR_TRY(ge_view_init(&v, g));
    switch (form) {
    case AIR_GE_TXT: print_txt(&v, out); break;
    case AIR_GE_PBTXT:
        for (size_t i = 0; i < v.nodes.count; i++)
            print_pbtxt_node(&v, &v.nodes.data[i], out);
        break;
    case AIR_GE_PY:
        base_text_add(out, "%s", py_head);
        for (size_t i = 0; i < v.nodes.count; i++)
            print_py_node(&v, &v.nodes.data[i], out);
        break;
    case AIR_GE_ONNX: ge_print_onnx(&v, out); break;
    }
    ge_view_deinit(&v);
    return out->status;
}
