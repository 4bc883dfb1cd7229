/* ge_view.h: between ge_view.c and ge_node.c. */
#ifndef IR_GE_VIEW_H
#define IR_GE_VIEW_H

#include "ir/ge.h"

/* Names that are not terminated come with their length; item >= 0 is added to
 * the name. */
air_status ge_add_node(ge_view *v, const char *name /* NULL: the type */,
                       const char *type, int32_t *out);
air_status ge_push_in(ge_view *v, ge_ports *in, const char *name, int len,
                      int item, ge_port from);
air_status ge_add_out(ge_view *v, int32_t node, const char *name, int len,
                      int item, air_type type, ge_port *out);
air_status ge_add_attr(ge_view *v, int32_t node, const char *name, int len,
                       ge_attr a);
air_status ge_add_str(ge_view *v, int32_t node, const char *name,
                      const char *value);
air_status ge_add_const(ge_view *v, air_dtype dtype, bool list, ge_attr value,
                        ge_port *out);
air_status ge_add_dim(ge_view *v, air_dim d, ge_port *out);
air_status ge_add_dims(ge_view *v, size_t count, const air_dim *dims,
                       ge_port *out);

/* ge_print.c: a line "input: ..." of each input, and of what it comes after. */
void ge_print_inputs(const ge_view *v, const ge_node *n, const char *indent,
                     base_text *out);
/* ge_onnx.c: the nodes as the text of an ONNX model. */
void ge_print_onnx(const ge_view *v, base_text *out);

/* ge_node.c: one node of the graph, with what its arguments need. */
air_status ge_add_graph_node(ge_view *v, const ir_node *n);

#endif
