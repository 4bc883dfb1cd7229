/* ends.h: units that only results need run as soon as nothing else reads a
 * large value that they do: for written.c. */
#ifndef EXEC_ENDS_H
#define EXEC_ENDS_H

#include "exec/exec.h"

#define EXEC_NO_END UINT32_MAX

typedef struct {
    const ir_graph *g;
    exec_units units;
    bool *is_end; /* by unit: loops and views that only such units wait for */
    uint32_t *ready; /* those that could run */
    size_t nready;
    uint32_t *left; /* by root: times that it has still to be read */
    bool *goes;     /* by root: large, and not needed when all have read it */
} exec_ends;

air_status exec_ends_make(const ir_graph *g, const exec_units *units,
                          const exec_chains *after, base_arena *scratch,
                          exec_ends *out);
/* A unit could run, and did. */
void exec_ends_ready(exec_ends *e, uint32_t unit);
void exec_ends_ran(exec_ends *e, uint32_t unit);
/* One that could run and is the last to read something large, or a view that
 * such a one may need; EXEC_NO_END: there is none. */
uint32_t exec_ends_next(exec_ends *e);

#endif
