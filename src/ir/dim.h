/* dim.h: between dim.c and poly.c. */
#ifndef IR_DIM_H
#define IR_DIM_H

#include "ir/ir.h"

int64_t dim_floor_div(int64_t a, int64_t b); /* b != 0 */
/* A total order of expressions that does not depend on their ids. */
int dim_compare(const ir_graph *g, air_dim x, air_dim y);
/* A node as it is: nothing is simplified but ranges and equality. */
air_status dim_node(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, bool atom,
                    air_dim *out);
/* ADD, SUB, MUL in normal form. */
air_status dim_poly_make(ir_graph *g, ir_dim_op op, air_dim a, air_dim b,
                         air_dim *out);
/* DIV, MOD: what divides exactly is taken out. */
air_status dim_poly_divide(ir_graph *g, ir_dim_op op, air_dim a, air_dim b,
                           air_dim *out);

#endif
