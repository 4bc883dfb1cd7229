/* air_steps.h: the time of each step of a program, and what share of the
 * machine's limits it reaches. */
#ifndef AIR_STEPS_H
#define AIR_STEPS_H

#include <stdio.h>

#include "air.h"

typedef struct {
    char label[96];
    double seconds; /* the best run's */
    double bytes, flops;
    bool pairs; /* a call of operands of bf16 */
} steps_row;

/* What runs showed. Zeroed before the first; freed by steps_free. */
typedef struct {
    steps_row *rows;
    size_t count, room;
    /* of the step at hand */
    double reads, inner[2], window, keys[2], numbers, places;
    bool pairs;
} steps_table;

/* air_host.see of the runs; user: the table. */
air_status steps_see(void *user, const air_seen *seen);
/* Sorted by time, the slowest `most`. limits NULL: not known. */
void steps_print(FILE *out, steps_table *table, size_t most,
                 const air_limits *limits);
void steps_free(steps_table *table);

#endif
