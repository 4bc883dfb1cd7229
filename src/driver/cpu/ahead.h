/* ahead.h: memory that a thread fetches while it waits for others.
 *
 * A step that streams a large operand, as a product of few rows does its
 * weight, waits for memory only; a thread that waits for another one uses
 * none. So it asks for the beginning of its part of the operand meanwhile. */
#ifndef CPU_AHEAD_H
#define CPU_AHEAD_H

#include "driver/cpu/cpu.h"

/* The largest operand of a step; bytes 0: none that is large and dense. */
typedef struct {
    int32_t slot;
    int64_t offset, bytes;
} cpu_ahead;

/* What one thread fetches next. */
typedef struct {
    const char *p, *end;
    size_t step; /* of the list, 1 + its number; 0: none yet */
} cpu_fetch;

cpu_ahead cpu_ahead_of(const air_step *step);
/* Of steps [i, end) the first that has an operand; the same as before goes on
 * where it was. */
void cpu_fetch_set(cpu_fetch *f, const cpu_ahead *steps, size_t i, size_t end,
                   void *const *slots, int id, int count);
/* Some of it; false: all of it is asked for. arg: a cpu_fetch */
bool cpu_fetch_some(void *arg);

#endif
