/* program_case.c: see program_case.h. */
#include "program_case.h"

#include "test.h"

bool
pcase_begin(program_case *c, const char *text, const air_options *options)
{
    memset(c, 0, sizeof *c);
    return CHECK_OK(air_context_create(options, &c->ctx)) &&
           CHECK_OK(air_graph_parse(c->ctx, text, strlen(text), &c->graph)) &&
           CHECK_OK(air_program_create(c->ctx, c->graph, NULL, &c->program));
}

void
pcase_end(program_case *c)
{
    air_program_destroy(c->program);
    air_graph_destroy(c->graph);
    air_context_destroy(c->ctx);
}
