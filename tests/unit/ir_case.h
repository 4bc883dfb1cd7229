/* ir_case.h: what the tests of src/ir share. */
#ifndef IR_CASE_H
#define IR_CASE_H

#include "ir/ir.h"
#include "test.h"

/* A graph from text; NULL (and a failure counted) where it does not parse. */
ir_graph *ir_case_graph(const char *text);
/* Parses "graph f(HEADER) { BODY return }". */
ir_graph *ir_case_body(const char *header, const char *body);
/* The value of that name; fails the test where there is none. */
const ir_value *ir_case_value(const ir_graph *g, const char *name);
/* Its type as text, in a static buffer. */
const char *ir_case_type(const ir_graph *g, const char *name);
/* The type of the result of `%r = OP` with these inputs, or the message. */
const char *ir_case_infer(const char *header, const char *op);
/* The graph as text; free it with base_text_deinit. */
base_text ir_case_print(const ir_graph *g);

#endif
