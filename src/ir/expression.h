/* expression.h: element-wise formulas of users (`a * sigmoid(b) + 1`), parsed
 * into operators of the op table. */
#ifndef IR_EXPRESSION_H
#define IR_EXPRESSION_H

#include "ir/ir.h"

struct air_expression {
    const air_alloc *alloc;
    BASE_VEC(air_operation) steps;
    BASE_VEC(air_term) results;
};

/* SYNTAX, "line:column: what": a formula that does not parse. */
air_status ir_expression_parse(const air_alloc *alloc, const char *text,
                               size_t len, size_t nparams,
                               const air_formal *params, size_t nresults,
                               air_expression **out);
void ir_expression_free(air_expression *e);

#endif
