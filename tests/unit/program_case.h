/* program_case.h: a program of a text graph, in a context of its own. */
#ifndef PROGRAM_CASE_H
#define PROGRAM_CASE_H

#include "air.h"

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
} program_case;

/* options: of the context, may be NULL. False: a check has failed. */
bool pcase_begin(program_case *c, const char *text, const air_options *options);
/* Also of one that could not begin. */
void pcase_end(program_case *c);

#endif
