/* graph.h: between the files of src/ir. */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "ir/dim.h"
#include "ir/ir.h"

/* ops.c: integers that schema defaults use; default i is size expression i of
 * every graph. */
size_t ops_default_count(void);
int64_t ops_default_int(size_t i);

/* graph.c */
bool graph_find_value(const ir_graph *g, const char *name, size_t len,
                      air_ref *out);
air_status graph_rename(ir_graph *g, air_ref v, const char *name, size_t len);
air_status graph_copy_attr(ir_graph *to, const air_attr *a, air_attr *out);

/* infer.c: the attributes as a node keeps them: one per parameter, defaults
 * filled in, numbers and lists of the parameter's kind, in the graph's arena.
 */
air_status infer_normalise(ir_graph *g, const ir_op_info *info, size_t nattrs,
                           const air_attr *attrs, air_attr **out);

/* shape.c: results of a row that returns Tensor[]. */
air_status shape_list_count(ir_graph *g, const ir_op_info *info,
                            const air_attr *attrs, size_t *out);

#endif
