/* lanes.h: which threads run the steps of a list side by side. */
#ifndef CPU_LANES_H
#define CPU_LANES_H

#include "air_driver.h"
#include "base/memory.h"

enum { CPU_LANES_MOST = 256 }; /* steps that are placed together */

/* Not worth waking others, in ns on one thread. */
#define CPU_SMALL 10000

/* The threads [first, first + count) of a step, and the steps that they wait
 * for: numbers of the list. */
typedef struct {
    int32_t first, count;
    uint32_t nwaits;
    const uint32_t *waits;
} cpu_place;

/* Of the steps that were placed, those that a parallel region is for: [begin,
 * end); those before and behind run on thread 0 alone. */
typedef struct {
    size_t begin, end;
} cpu_span;

/* Places steps [begin, end) of a list, at most CPU_LANES_MOST of them, on so
 * many threads. places, waits: room for all steps and all that they wait for,
 * which *nwaits counts. */
air_status cpu_lanes_place(const air_alloc *alloc, const air_step *steps,
                           size_t begin, size_t end, int threads,
                           cpu_place *places, uint32_t *waits, size_t *nwaits,
                           cpu_span *out);

#endif
