/* thread.c: the engine's own thread pool, a spin barrier and the clock.
 *
 * A worker that has finished spins for some microseconds before it sleeps in
 * the kernel (futex), because the next parallel region usually comes at once
 * and a wake-up costs 5 us or more. */
#include "base/thread.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WORKER_SPINS = 4000, BARRIER_SPINS = 4000, MAX_THREADS = 1024 };

struct base_pool {
    const air_alloc *alloc;
    pthread_t *workers;
    size_t bytes; /* of workers */
    int threads;  /* including the caller */
    bool stop;
    bool lost;              /* in a child of fork(): workers stayed behind */
    base_pool *next, *prev; /* all pools of the process */
    pthread_mutex_t turn;   /* one region at a time */
    void (*fn)(void *arg, int id, int count);
    void *arg;
    int count;                /* threads that take part in this region */
    _Alignas(64) int ticket;  /* changes with each region: the futex word */
    _Alignas(64) int running; /* workers that have not finished yet */
    _Alignas(64) int asleep;  /* workers in futex_wait, or on the way there */
};

typedef struct {
    base_pool *pool;
    int id;
} worker_start;

static double
seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double
base_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double
base_work_now(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static void
pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- barrier ---- */

void
base_barrier_init(base_barrier *b, int count)
{
    assert(count > 0);
    *b = (base_barrier){.count = count};
}

void
base_barrier_wait(base_barrier *b)
{
    base_barrier_wait_busy(b, NULL, NULL);
}

void
base_barrier_wait_busy(base_barrier *b, bool (*idle)(void *arg), void *arg)
{
    if (b->count == 1)
        return;
    int sense = __atomic_load_n(&b->sense, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == b->count) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&b->sense, sense ^ 1, __ATOMIC_RELEASE);
        return;
    }
    for (int spins = 0; __atomic_load_n(&b->sense, __ATOMIC_ACQUIRE) == sense;
         spins++) {
        if (idle != NULL && spins < BARRIER_SPINS)
            idle = idle(arg) ? idle : NULL;
        else if (spins < BARRIER_SPINS)
            pause_cpu();
        else
            sched_yield();
    }
}

void
base_wait_count(const int *count, int want)
{
    for (int spins = 0; __atomic_load_n(count, __ATOMIC_ACQUIRE) < want;
         spins++) {
        if (spins < BARRIER_SPINS)
            pause_cpu();
        else
            sched_yield();
    }
}

/* ---- pool ---- */

static void
futex_wait(int *word, int value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void
futex_wake(int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the ticket is not `seen` any more and returns it. */
static int
next_ticket(base_pool *pool, int seen)
{
    for (int spins = 0; spins < WORKER_SPINS; spins++) {
        int ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);
        if (ticket != seen)
            return ticket;
        pause_cpu();
    }
    /* asleep goes up before the ticket is read again, and the caller changes
     * the ticket before it reads asleep: one of the two sees the other. */
    __atomic_add_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
    int ticket = __atomic_load_n(&pool->ticket, __ATOMIC_SEQ_CST);
    while (ticket == seen) {
        futex_wait(&pool->ticket, seen);
        ticket = __atomic_load_n(&pool->ticket, __ATOMIC_SEQ_CST);
    }
    __atomic_sub_fetch(&pool->asleep, 1, __ATOMIC_RELAXED);
    return ticket;
}

static void *
worker_main(void *arg)
{
    worker_start start = *(worker_start *)arg;
    base_pool *pool = start.pool;
    /* From here on create() may go on and forget `arg`. */
    __atomic_sub_fetch(&pool->running, 1, __ATOMIC_RELEASE);
    int seen = 0;
    for (;;) {
        seen = next_ticket(pool, seen);
        if (pool->stop)
            return NULL;
        if (start.id < pool->count)
            pool->fn(pool->arg, start.id, pool->count);
        __atomic_sub_fetch(&pool->running, 1, __ATOMIC_RELEASE);
    }
}

static void
wait_workers(base_pool *pool)
{
    for (int spins = 0; __atomic_load_n(&pool->running, __ATOMIC_ACQUIRE) > 0;
         spins++) {
        if (spins < BARRIER_SPINS)
            pause_cpu();
        else
            sched_yield();
    }
}

static void
post(base_pool *pool)
{
    __atomic_add_fetch(&pool->ticket, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0)
        futex_wake(&pool->ticket);
}

static bool
start_worker(base_pool *pool, int id)
{
    worker_start start = {pool, id};
    __atomic_store_n(&pool->running, 1, __ATOMIC_RELEASE);
    if (pthread_create(&pool->workers[id - 1], NULL, worker_main, &start) ==
        0) {
        wait_workers(pool);
        return true;
    }
    __atomic_store_n(&pool->running, 0, __ATOMIC_RELEASE);
    return false;
}

/* Starts workers up to pool->threads; what the system refuses is left out. */
static void
start_workers(base_pool *pool)
{
    int started = 1;
    while (started < pool->threads && start_worker(pool, started))
        started++;
    if (started < pool->threads)
        __atomic_store_n(&pool->threads, started, __ATOMIC_RELAXED);
}

/* ---- fork ---- */

/* A child has the thread that forked and no other. Its pools start workers of
 * their own with the first region. */
static struct {
    pthread_mutex_t mutex;
    base_pool *first;
} pools = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void
before_fork(void)
{
    pthread_mutex_lock(&pools.mutex);
}

static void
in_parent(void)
{
    pthread_mutex_unlock(&pools.mutex);
}

static void
in_child(void)
{
    pthread_mutex_init(&pools.mutex, NULL);
    for (base_pool *pool = pools.first; pool; pool = pool->next) {
        pthread_mutex_init(&pool->turn, NULL);
        pool->ticket = pool->running = pool->asleep = 0;
        pool->lost = true;
    }
}

static void
watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void
link_pool(base_pool *pool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pools.mutex);
    pool->next = pools.first;
    if (pools.first)
        pools.first->prev = pool;
    pools.first = pool;
    pthread_mutex_unlock(&pools.mutex);
}

static void
unlink_pool(base_pool *pool)
{
    pthread_mutex_lock(&pools.mutex);
    if (pool->prev)
        pool->prev->next = pool->next;
    else
        pools.first = pool->next;
    if (pool->next)
        pool->next->prev = pool->prev;
    pthread_mutex_unlock(&pools.mutex);
}

/* ---- life ---- */

static int
online_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

air_status
base_pool_create(const air_alloc *a, int threads, base_pool **out)
{
    *out = NULL;
    AIR_REQUIRE(threads >= 0, AIR_ERROR_ARGUMENT, "threads is %d", threads);
    if (threads == 0)
        threads = online_cpus();
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    void *ptr, *workers;
    size_t bytes = (size_t)(threads - 1) * sizeof(pthread_t);
    AIR_TRY(base_new(a, sizeof(base_pool), &ptr));
    air_status status = base_new(a, bytes, &workers);
    if (status != AIR_OK) {
        base_free(a, ptr, sizeof(base_pool));
        return base_trace(status, __func__, __LINE__);
    }
    base_pool *pool = ptr;
    pool->alloc = a;
    pool->workers = workers;
    pool->bytes = bytes;
    pool->threads = threads;
    pthread_mutex_init(&pool->turn, NULL);
    start_workers(pool);
    link_pool(pool);
    *out = pool;
    return AIR_OK;
}

void
base_pool_destroy(base_pool *pool)
{
    if (!pool)
        return;
    unlink_pool(pool);
    pool->stop = true;
    post(pool);
    for (int i = 0; !pool->lost && i < pool->threads - 1; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_mutex_destroy(&pool->turn);
    const air_alloc *a = pool->alloc;
    base_free(a, pool->workers, pool->bytes);
    base_free(a, pool, sizeof *pool);
}

int
base_pool_threads(const base_pool *pool)
{
    return __atomic_load_n(&pool->threads, __ATOMIC_RELAXED);
}

void
base_pool_run(void *user, int threads, void (*fn)(void *arg, int id, int count),
              void *arg)
{
    base_pool *pool = user;
    if (threads <= 1 || base_pool_threads(pool) == 1) {
        fn(arg, 0, 1);
        return;
    }
    pthread_mutex_lock(&pool->turn);
    if (pool->lost)
        start_workers(pool);
    pool->lost = false;
    if (threads > pool->threads)
        threads = pool->threads;
    pool->fn = fn;
    pool->arg = arg;
    pool->count = threads;
    __atomic_store_n(&pool->running, pool->threads - 1, __ATOMIC_RELAXED);
    post(pool);
    fn(arg, 0, threads);
    wait_workers(pool);
    pthread_mutex_unlock(&pool->turn);
}
