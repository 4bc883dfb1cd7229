/* test_thread.c: the pool and the barrier. */
#include "base/thread.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { ROUNDS = 2000, MAX = 8 };

typedef struct {
    base_barrier barrier;
    int seen[MAX];
    int counts[MAX];
    long sum;
    bool wrong;
} shared;

static void
mark(void *arg, int id, int count)
{
    shared *s = arg;
    s->seen[id]++;
    s->counts[id] = count;
    __atomic_add_fetch(&s->sum, id + 1, __ATOMIC_RELAXED);
}

TEST(thread_every_id_runs_once)
{
    test_alloc t;
    test_alloc_init(&t);
    base_pool *pool;
    REQUIRE_OK(base_pool_create(&t.alloc, 4, &pool));
    CHECK_INT(base_pool_threads(pool), 4);
    for (int threads = 1; threads <= 6; threads++) {
        int want = threads < 4 ? threads : 4;
        shared s = {0};
        base_pool_run(pool, threads, mark, &s);
        CHECK_INT(s.sum, want * (want + 1) / 2);
        for (int i = 0; i < want; i++) {
            CHECK_INT(s.seen[i], 1);
            CHECK_INT(s.counts[i], want);
        }
    }
    base_pool_destroy(pool);
    CHECK_CLEAN(&t);
}

static bool
marks_all(base_pool *pool, int threads)
{
    shared s = {0};
    base_pool_run(pool, threads, mark, &s);
    return s.sum == threads * (threads + 1) / 2;
}

/* In a child of fork(): a pool that was used before, and its end. */
static int
child_of(base_pool *pool)
{
    base_pool *own = NULL;
    bool good = marks_all(pool, 3) && marks_all(pool, 3);
    good = good && base_pool_create(&base_libc_alloc, 2, &own) == AIR_OK &&
           marks_all(own, 2);
    base_pool_destroy(own);
    base_pool_destroy(pool);
    return good ? 0 : 1;
}

TEST(thread_pools_work_in_a_child_of_fork)
{
#ifdef __SANITIZE_THREAD__
    test_skip("TSan ends a child of fork that starts threads");
    return;
#endif
    if (getenv("AIR_EMULATED") != NULL) {
        test_skip("qemu ends a child of fork that starts threads");
        return;
    }
    base_pool *pool, *unused, *first;
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 2, &first));
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 3, &pool));
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 2, &unused));
    base_pool_destroy(first);
    CHECK(marks_all(pool, 3));
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20); /* a child that hangs ends */
        base_pool_destroy(unused);
        _exit(child_of(pool));
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(marks_all(pool, 3));
    base_pool_destroy(unused);
    base_pool_destroy(pool);
}

TEST(thread_workers_wake_up_from_sleep)
{
    base_pool *pool;
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 3, &pool));
    for (int i = 0; i < 5; i++) {
        shared s = {0};
        usleep(3000); /* far longer than a worker spins */
        base_pool_run(pool, 3, mark, &s);
        CHECK_INT(s.sum, 6);
    }
    base_pool_destroy(pool);
}

/* Each round, every thread writes its cell, waits, and reads all cells. */
/* Three times of each wait. */
static bool
idle(void *arg)
{
    return ++*(int *)arg % 3 != 0;
}

static void
rounds(void *arg, int id, int count)
{
    shared *s = arg;
    int calls = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        s->seen[id] = round;
        base_barrier_wait(&s->barrier);
        for (int i = 0; i < count; i++)
            if (s->seen[i] != round)
                __atomic_store_n(&s->wrong, true, __ATOMIC_RELAXED);
        base_barrier_wait_busy(&s->barrier, idle, &calls);
        if (calls > 3)
            __atomic_store_n(&s->wrong, true, __ATOMIC_RELAXED);
        calls = 0;
    }
}

TEST(thread_barrier)
{
    for (int threads = 1; threads <= 3; threads++) {
        base_pool *pool;
        shared s = {0};
        REQUIRE_OK(base_pool_create(&base_libc_alloc, threads, &pool));
        base_barrier_init(&s.barrier, base_pool_threads(pool));
        base_pool_run(pool, threads, rounds, &s);
        CHECK(!s.wrong);
        CHECK_INT(s.seen[threads - 1], ROUNDS);
        base_pool_destroy(pool);
    }
}

static void *
caller(void *arg)
{
    for (int i = 0; i < 200; i++) {
        shared s = {0};
        base_pool_run(arg, 2, mark, &s);
        CHECK_INT(s.sum, 3);
    }
    return NULL;
}

TEST(thread_callers_take_turns)
{
    base_pool *pool;
    pthread_t other;
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 2, &pool));
    REQUIRE(pthread_create(&other, NULL, caller, pool) == 0);
    caller(pool);
    pthread_join(other, NULL);
    base_pool_destroy(pool);
}

static air_status
make_pool(const air_alloc *alloc, void *user)
{
    (void)user;
    base_pool *pool;
    air_status status = base_pool_create(alloc, 2, &pool);
    CHECK((status == AIR_OK) == (pool != NULL));
    base_pool_destroy(pool);
    return status;
}

TEST(thread_pool_oom)
{
    TEST_OOM(make_pool, NULL);
}

TEST(thread_pool_arguments)
{
    base_pool *pool;
    CHECK_FAILS(base_pool_create(&base_libc_alloc, -1, &pool), ARGUMENT);
    CHECK(pool == NULL);
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 0, &pool));
    CHECK(base_pool_threads(pool) >= 1);
    base_pool_destroy(pool);
}

TEST(thread_clock_goes_on)
{
    double a = base_now();
    usleep(1000);
    CHECK(base_now() - a >= 0.001);
}
