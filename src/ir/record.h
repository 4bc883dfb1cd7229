/* record.h: between record.c, simplify.c, body.c and expand_body.c. */
#ifndef IR_RECORD_H
#define IR_RECORD_H

#include "ir/ir.h"

/* One operation on nodes a, b, c (-1: none) in the lane of its operands; lanes
 * that the operation does not have are worked around, and what is already
 * known is not recorded. */
int record_prim(ir_record *r, air_rg_op op, int a, int b, int c);
/* A node equal to op(a, b, c) that needs no operation, or -1. */
int simplify_prim(ir_record *r, air_rg_op op, air_lane lane, int a, int b,
                  int c);
bool record_is_const(const ir_record *r, int a, double v);

#endif
