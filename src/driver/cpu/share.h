/* share.h: rows that the threads of a step take as they get to them.
 *
 * Equal parts do not end together: memory serves one core before another, a
 * core is lent to somebody else, and who did the small steps before begins
 * later. So half of an equal part is a thread's own, where that part begins; of
 * the other halves, in order, each takes a piece whenever it is done, and the
 * pieces become smaller. Where rows are few the parts are equal. */
#ifndef CPU_SHARE_H
#define CPU_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t n;    /* rows */
    int64_t own;  /* of each thread; 0: equal parts */
    int64_t unit; /* rows of a piece: a multiple */
    int64_t *taken;
    int id, count;
    bool began;
} cpu_share;

/* n rows of so many bytes; taken: 0 when the step begins, for all its threads.
 * NULL: equal parts. */
cpu_share cpu_share_make(int64_t n, int64_t row_bytes, int id, int count,
                         int64_t *taken);
/* The next rows [*begin, *end) of this thread; false: there are no more. */
bool cpu_share_next(cpu_share *s, int64_t *begin, int64_t *end);

#endif
