/* fuzz_expression.c: bodies of users' operators. What parses refers to earlier
 * steps and known parameters only; what does not says where. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ir/expression.h"

const char *const fuzz_words[] = {
    "a",          "b",         "s",         "x",         "= ",
    "; ",         "+",         "-",         "*",         "/",
    "(",          ")",         ",",         "?",         ":",
    "<",          "<=",        "==",        "!=",        "&&",
    "||",         "!",         "1",         "2.5",       "1e-3",
    "\n",         "sigmoid(",  "min(a, b)", "max(a, 0)", "where(a < b, a, 1)",
    "sum(a, -1)", "pow(2, a)", NULL,
};

static const air_formal formals[] = {{"a", false}, {"b", false}, {"s", true}};

static void
check_term(const air_term *t, size_t nsteps)
{
    bool step = t->kind == AIR_TERM_STEP || t->kind == AIR_TERM_NUMBER_STEP;
    bool param = t->kind == AIR_TERM_TENSOR || t->kind == AIR_TERM_NUMBER;

    FUZZ_REQUIRE(!step || t->index < nsteps);
    FUZZ_REQUIRE(!param || t->index < 3);
}

int
fuzz_one(const uint8_t *data, size_t size)
{
    air_expression *e;
    const size_t nresults = 1 + size % 2;
    air_status status = ir_expression_parse(
        &base_libc_alloc, (const char *)data, size, 3, formals, nresults, &e);

    if (status != AIR_OK) {
        FUZZ_REQUIRE(status == AIR_ERROR_SYNTAX);
        FUZZ_REQUIRE(strtol(air_last_error()->message, NULL, 10) > 0);
        return 0;
    }
    FUZZ_REQUIRE(e->results.count == nresults);
    for (size_t i = 0; i < e->steps.count; i++) {
        const air_operation *s = &e->steps.data[i];
        for (size_t k = 0; k < s->nargs; k++)
            check_term(&s->args[k], i);
        FUZZ_REQUIRE(s->number || ir_op_find(s->op, strlen(s->op)));
    }
    for (size_t i = 0; i < nresults; i++)
        check_term(&e->results.data[i], e->steps.count);
    ir_expression_free(e);
    return 0;
}
