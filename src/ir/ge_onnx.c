/* ge_onnx.c: a graph of Ascend IR as the text of an ONNX model, which Netron
 * shows with types along its edges. Operators are of the domain "ge". */
#include <inttypes.h>

#include "ir/ge_view.h"
#include "ir/print.h"

/* onnx.TensorProto.DataType */
static const int element_types[AIR_DTYPE_COUNT] = {
    [AIR_F32] = 1,  [AIR_U8] = 2,    [AIR_I8] = 3,   [AIR_I16] = 5,
    [AIR_I32] = 6,  [AIR_I64] = 7,   [AIR_BOOL] = 9, [AIR_F16] = 10,
    [AIR_F64] = 11, [AIR_BF16] = 16,
};

static const struct {
    const char *field, *type; /* of AttributeProto */
} fields[] = {
    [GE_INT] = {"i", "INT"},
    [GE_FLOAT] = {"f", "FLOAT"},
    [GE_BOOL] = {"i", "INT"},
    [GE_STR] = {"s", "STRING"},
    [GE_TYPE_ATTR] = {"i", "INT"},
    [GE_INT_LIST] = {"ints", "INTS"},
    [GE_FLOAT_LIST] = {"floats", "FLOATS"},
    [GE_BOOL_LIST] = {"ints", "INTS"},
};

/* The list or number that a constant is; otherwise the attribute's own. */
static ge_attr_kind
kind_of(const ge_attr *a)
{
    if (a->kind != GE_TENSOR)
        return a->kind;
    if (!a->ints)
        return a->item;
    return a->item == GE_FLOAT  ? GE_FLOAT_LIST
           : a->item == GE_BOOL ? GE_BOOL_LIST
                                : GE_INT_LIST;
}

static void
print_number(const ge_attr *a, ge_attr_kind kind, size_t i, base_text *out)
{
    switch (kind) {
    case GE_FLOAT: print_float(a->f, out); break;
    case GE_FLOAT_LIST: print_float(a->floats[i], out); break;
    case GE_BOOL_LIST: base_text_add(out, "%d", a->bools[i]); break;
    case GE_INT_LIST: base_text_add(out, "%" PRId64, a->ints[i]); break;
    default: base_text_add(out, "%" PRId64, a->i);
    }
}

/* On a line of its own: who wants less text drops lines. */
static void
print_attr(const ge_attr *a, base_text *out)
{
    const ge_attr_kind kind = kind_of(a);
    const bool list = kind >= GE_INT_LIST;

    base_text_add(out, "    attribute { name: ");
    print_str(a->name, out);
    for (size_t i = 0; i < (list ? a->count : 1); i++) {
        base_text_add(out, " %s: ", fields[kind].field);
        if (kind == GE_STR)
            print_str(a->s, out);
        else
            print_number(a, kind, i, out);
    }
    base_text_add(out, " type: %s }\n", fields[kind].type);
}

static void
print_edges(const ge_view *v, const ge_node *n, base_text *out)
{
    ge_print_inputs(v, n, "    ", out);
    for (size_t i = 0; i < n->out.count; i++)
        base_text_add(out, "    output: \"%s:%zu\"\n", n->name, i);
}

static void
print_node_of(const ge_view *v, const ge_node *n, base_text *out)
{
    base_text_add(out, "  node {\n");
    print_edges(v, n, out);
    base_text_add(out, "    name: \"%s\"\n    op_type: \"%s\"\n", n->name,
                  n->type);
    base_text_add(out, "    domain: \"ge\"\n");
    for (size_t i = 0; i < n->attrs.count; i++)
        print_attr(&n->attrs.data[i], out);
    if (n->loc) {
        base_text_add(out, "    doc_string: ");
        print_str(n->loc, out);
        base_text_add(out, "\n");
    }
    base_text_add(out, "  }\n");
}

static void
print_value_info(const ge_node *n, size_t i, base_text *out)
{
    const ge_port *p = &n->out.data[i];

    base_text_add(out,
                  "  value_info { name: \"%s:%zu\" type { tensor_type { "
                  "elem_type: %d shape {",
                  n->name, i,
                  p->dtype < AIR_DTYPE_COUNT ? element_types[p->dtype] : 0);
    for (int d = 0; d < p->rank; d++)
        base_text_add(out, " dim { dim_value: %" PRId64 " }", p->dims[d]);
    base_text_add(out, " } } } }\n");
}

void
ge_print_onnx(const ge_view *v, base_text *out)
{
    base_text_add(out, "ir_version: 8\nproducer_name: \"torchair\"\n"
                       "opset_import { domain: \"ge\" version: 1 }\n"
                       "graph {\n  name: ");
    print_str(v->g->name, out);
    base_text_add(out, "\n");
    for (size_t i = 0; i < v->nodes.count; i++)
        print_node_of(v, &v->nodes.data[i], out);
    for (size_t i = 0; i < v->nodes.count; i++)
        for (size_t k = 0; k < v->nodes.data[i].out.count; k++)
            print_value_info(&v->nodes.data[i], k, out);
    base_text_add(out, "}\n");
}
