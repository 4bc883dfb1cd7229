/* ge.h: the Ascend IR ("GE") side of the op table and of a graph: ge.def,
 * looked up (ge.c), a graph as nodes of it (ge_view.c) and their text
 * (ge_print.c, ge_onnx.c). */
#ifndef IR_GE_H
#define IR_GE_H

#include "ir/ir.h"

/* ---- prototypes (ge.c) --------------------------------------------------- */

typedef enum { GE_INPUTS, GE_ATTRS, GE_OUTPUTS } ge_section;
typedef struct {
    const char *name, *type, *def; /* not terminated: see the lengths */
    int name_len, type_len, def_len;
    bool optional, list, required;
} ge_field;
/* The prototype of a type, NULL where none is known. */
const char *ge_prototype(const char *type);
/* Field i of a section; false at its end. */
bool ge_field_at(const char *prototype, ge_section section, size_t i,
                 ge_field *out);

/* How a node is written: type and arguments of its row in ge.def; *out_args is
 * NULL where parameters go in order. */
void ge_row_of(const ir_graph *g, const ir_node *n, const char **out_type,
               const char **out_args);

/* ---- a graph as nodes of these types (ge_view.c) ------------------------- */

/* Names are the prototype's, list items numbered (x0, x1). */
typedef struct {
    const char *name;
    int32_t node, out; /* where it comes from; node -1: absent */
    air_dtype dtype;
    int rank;
    const int64_t *dims; /* -1: symbolic */
    const char *type;    /* "f32[s0, 4]" */
    const char *origin;  /* _fx_tensor_name of a result, NULL: none */
} ge_port;
typedef BASE_VEC(ge_port) ge_ports;

typedef enum {
    GE_INT,
    GE_FLOAT,
    GE_BOOL,
    GE_STR,
    GE_TYPE_ATTR, /* i: the number of a dtype */
    GE_INT_LIST,
    GE_FLOAT_LIST,
    GE_BOOL_LIST,
    GE_TENSOR /* a constant: the list that has `count` items, or one number */
} ge_attr_kind;
typedef struct {
    const char *name;
    ge_attr_kind kind;
    ge_attr_kind item; /* of GE_TENSOR: GE_INT, GE_FLOAT or GE_BOOL */
    int64_t i;
    double f;
    const char *s;
    size_t count;
    const int64_t *ints;
    const double *floats;
    const bool *bools;
} ge_attr;

typedef struct {
    const char *name, *type, *loc;
    ge_ports in, out;
    BASE_VEC(ge_attr) attrs;
    int32_t after; /* node that must run before, -1: none */
} ge_node;

typedef struct {
    const ir_graph *g;
    const air_alloc *alloc;
    base_arena arena; /* texts and lists */
    base_map names;
    BASE_VEC(ge_node) nodes;
    ge_port *values;      /* per value of the graph: where it is */
    const char **origins; /* and its _fx_tensor_name, NULL: none */
    int32_t *dims;        /* per size expression: its node + 1, 0: not yet */
    int32_t last_ordered; /* the last node that must stay in order */
} ge_view;

/* Every node of the graph and what its arguments need: constants, casts,
 * sizes. */
air_status ge_view_init(ge_view *v, const ir_graph *g);
void ge_view_deinit(ge_view *v);

/* ---- text (ge_print.c) --------------------------------------------------- */

air_status ge_print(const ir_graph *g, air_ge_form form, base_text *out);

#endif
