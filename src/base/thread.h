/* thread.h: mutex, once, and the engine's own thread pool (used where no
 * framework brings one: see air_parallel in air.h). */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

#include "base/memory.h"

typedef struct base_pool base_pool;
/* `threads` including the caller; 0: one per online CPU. A child of fork() has
 * the pool too, if no other thread was in a region at that moment: it starts
 * workers of its own. */
air_status base_pool_create(const air_alloc *a, int threads, base_pool **out);
void base_pool_destroy(base_pool *pool);
/* The air_parallel of the pool (user = the pool): fn(arg, id, count) on every
 * thread, the caller being id 0. Calls from several threads take turns. */
void base_pool_run(void *user, int threads,
                   void (*fn)(void *arg, int id, int count), void *arg);
int base_pool_threads(const base_pool *pool);

/* Sense-reversing spin barrier: ~0.1 us between running threads; after a
 * bounded spin it yields, so a lost core costs time, never progress. */
typedef struct {
    _Alignas(64) int arrived;
    _Alignas(64) int sense;
    int count;
} base_barrier;
void base_barrier_init(base_barrier *b, int count);
void base_barrier_wait(base_barrier *b);
/* The same; calls idle(arg) over and over meanwhile, until it says false. */
void base_barrier_wait_busy(base_barrier *b, bool (*idle)(void *arg),
                            void *arg);

/* Waits, as a barrier does, until *count is at least `want`; then what was
 * written before the atomic additions that made it so is seen. */
void base_wait_count(const int *count, int want);

double base_now(void);      /* seconds, monotonic */
double base_work_now(void); /* seconds that this thread has run */

#endif
