/* print.h: the text form (docs/text-form.md): what print.c, parse.c and
 * verify.c share. */
#ifndef IR_PRINT_H
#define IR_PRINT_H

#include "ir/graph.h"

/* Range of a symbol that has no `sym` line. */
#define TEXT_SYMBOL_MIN 1
#define TEXT_SYMBOL_MAX INT64_MAX

void print_float(double v, base_text *out);    /* shortest that reads back */
void print_str(const char *s, base_text *out); /* quoted */
bool print_is_default(const ir_param *p, const air_attr *a);
void print_type(const ir_graph *g, air_dtype dtype, int rank,
                const air_dim *dims, base_text *out);
void print_node(const ir_graph *g, const ir_node *n, base_text *out);

#endif
