/* The cpu device: lists of steps over threads, faults, memory. */
#include <pthread.h>
#include <stdlib.h>

#include "driver/cpu/cpu.h"
#include "driver/driver.h"
#include "kernel_case.h"
#include "test.h"

enum { WORDS = 64, SMALL = 1, LARGE = 1000000 };

/* ---- kernels of the tests: slots[0] is an array of int64_t --------------- */

/* words[0]: calls so far; words[1]: threads of the last region. */
static void
count_up(const air_call *call, const air_task *task)
{
    int64_t *words = task->slots[0];
    (void)call;
    __atomic_add_fetch(&words[0], 1, __ATOMIC_RELAXED);
    if (task->id == 0)
        words[1] = task->count;
}

/* All threads of the steps before have been there; scratch is this thread's
 * own. words[3] counts what is wrong. */
static void
check_all(const air_call *call, const air_task *task)
{
    int64_t *words = task->slots[0];
    int64_t seen = __atomic_load_n(&words[0], __ATOMIC_RELAXED);
    (void)call;
    if (seen % words[1] != 0)
        __atomic_add_fetch(&words[3], 1, __ATOMIC_RELAXED);
    memset(task->scratch, task->id, AIR_SCRATCH);
    task->barrier(task);
    if (((char *)task->scratch)[AIR_SCRATCH - 1] != (char)task->id)
        __atomic_add_fetch(&words[3], 1, __ATOMIC_RELAXED);
}

static void
raise_one(const air_call *call, const air_task *task)
{
    (void)call;
    if (task->id == task->count - 1)
        air_raise(task, 12, 5);
}

static void
raise_value(const air_call *call, const air_task *task)
{
    (void)call;
    air_raise_value(task, "a probability outside [0, 1]", 1.5);
}

static const air_kernel counter = {.run = count_up},
                        checker = {.run = check_all},
                        raiser = {.run = raise_one},
                        refuser = {.run = raise_value};

typedef struct {
    air_device *dev;
    air_list *list;
    air_step steps[8];
    size_t count;
} fixture;

static bool
open_device(fixture *f, int threads)
{
    air_options options = {.threads = threads};
    return CHECK_OK(air_driver_cpu.open(&options, &base_libc_alloc, &f->dev));
}

static void
add(fixture *f, const air_kernel *kernel, int64_t cost)
{
    f->steps[f->count++] =
        (air_step){.kernel = kernel, .cost = cost, .label = "step"};
}

static bool
make(fixture *f)
{
    return CHECK_OK(
        air_driver_cpu.list_make(f->dev, f->steps, f->count, &f->list));
}

static void
close_device(fixture *f)
{
    air_driver_cpu.list_free(f->dev, f->list);
    air_driver_cpu.close(f->dev);
}

TEST(cpu_small_steps_run_on_one_thread)
{
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 3));
    add(&f, &counter, SMALL);
    add(&f, &counter, SMALL);
    REQUIRE(make(&f));
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_INT(words[0], 2);
    CHECK_INT(words[1], 1);
    close_device(&f);
}

TEST(cpu_large_steps_run_on_all_threads_in_order)
{
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 3));
    add(&f, &counter, LARGE);
    add(&f, &checker, LARGE);
    add(&f, &checker, SMALL);
    add(&f, &counter, LARGE);
    add(&f, &checker, LARGE);
    REQUIRE(make(&f));
    for (int i = 0; i < 200; i++)
        CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_INT(words[1], 3);
    CHECK_INT(words[0], 200 * 6);
    CHECK_INT(words[3], 0);
    close_device(&f);
}

/* Steps of 1 and 2 threads among those of 3: how many kernels were called, and
 * that those after a limited step see what it did. */
TEST(cpu_steps_keep_to_their_limit)
{
    static const int limits[] = {0, 2, 1, 2, 2, 5, 1};
    enum { CALLS = 3 + 2 + 1 + 2 + 2 + 3 + 1 };
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 3));
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        add(&f, &counter, LARGE);
        f.steps[f.count - 1].threads = limits[i];
    }
    REQUIRE(make(&f));
    for (int i = 1; i <= 200; i++) {
        CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
        CHECK_INT(words[0], (int64_t)i * CALLS);
        CHECK_INT(words[1], 1);
    }
    close_device(&f);
}

TEST(cpu_limited_steps_see_each_other)
{
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 3));
    add(&f, &counter, LARGE);
    add(&f, &checker, LARGE);
    for (size_t i = 0; i < f.count; i++)
        f.steps[i].threads = 2;
    add(&f, &raiser, LARGE);
    REQUIRE(make(&f));
    for (int i = 0; i < 200; i++)
        CHECK_FAILS(air_driver_cpu.list_run(f.dev, f.list, slots), INDEX);
    CHECK_INT(words[0], 200 * 2);
    CHECK_INT(words[1], 2);
    CHECK_INT(words[3], 0);
    close_device(&f);
}

TEST(cpu_fault_names_index_and_step)
{
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 2));
    add(&f, &raiser, LARGE);
    REQUIRE(make(&f));
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(air_driver_cpu.list_run(f.dev, f.list, slots), INDEX);
        CHECK_STR(air_last_error()->message, "index 12 is out of range for a "
                                             "dimension of size 5 in step");
    }
    close_device(&f);
}

TEST(cpu_fault_names_a_value_and_the_step)
{
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 1));
    add(&f, &refuser, SMALL);
    REQUIRE(make(&f));
    CHECK_FAILS(air_driver_cpu.list_run(f.dev, f.list, slots), ARGUMENT);
    CHECK_STR(air_last_error()->message,
              "a probability outside [0, 1], 1.5, in step");
    close_device(&f);
}

typedef struct {
    fixture *f;
    int64_t words[WORDS];
} client;

static void *
client_main(void *arg)
{
    client *c = arg;
    void *slots[] = {c->words};
    for (int i = 0; i < 300; i++)
        CHECK_OK(air_driver_cpu.list_run(c->f->dev, c->f->list, slots));
    return NULL;
}

TEST(cpu_one_list_runs_in_several_threads)
{
    fixture f = {0};
    client clients[3] = {{&f, {0}}, {&f, {0}}, {&f, {0}}};
    pthread_t threads[3];
    REQUIRE(open_device(&f, 2));
    add(&f, &counter, LARGE);
    add(&f, &checker, LARGE);
    REQUIRE(make(&f));
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, client_main, &clients[i]) ==
                0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(clients[i].words[0], 300 * clients[i].words[1]);
        CHECK_INT(clients[i].words[3], 0);
    }
    close_device(&f);
}

/* An application's parallel that gives fewer threads than asked for. */
static void
parallel_two(void *user, int threads, void (*fn)(void *, int, int), void *arg)
{
    base_pool_run(user, threads < 2 ? threads : 2, fn, arg);
}

TEST(cpu_takes_the_threads_it_gets)
{
    fixture f = {0};
    base_pool *pool;
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE_OK(base_pool_create(&base_libc_alloc, 2, &pool));
    air_options options = {
        .threads = 5, .parallel = parallel_two, .parallel_user = pool};
    REQUIRE_OK(air_driver_cpu.open(&options, &base_libc_alloc, &f.dev));
    add(&f, &counter, LARGE);
    add(&f, &checker, LARGE);
    REQUIRE(make(&f));
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_INT(words[1], 2);
    CHECK_INT(words[3], 0);
    air_driver_cpu.set_threads(f.dev, 1);
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_INT(words[1], 1);
    close_device(&f);
    base_pool_destroy(pool);
}

/* ---- limits ---- */

TEST(cpu_limits_are_measured_once)
{
    air_options options = {.driver = "cpu"};
    air_context *ctx;
    air_limits a = {0}, b = {0};
    REQUIRE_OK(air_context_create(&options, &ctx));
    CHECK_OK(air_context_get_limits(ctx, &a));
    CHECK(a.read > 1e8 && a.flops > 1e8 && a.threads > 0);
    CHECK_OK(air_context_get_limits(ctx, &b));
    CHECK(!(a.read < b.read) && !(a.read > b.read));
    CHECK_FAILS(air_context_get_limits(ctx, NULL), ARGUMENT);
    air_context_destroy(ctx);
    options.driver = "null";
    REQUIRE_OK(air_context_create(&options, &ctx));
    CHECK_FAILS(air_context_get_limits(ctx, &a), UNSUPPORTED);
    air_context_destroy(ctx);
}

TEST(cpu_limits_of_pairs_are_those_of_the_instruction_set)
{
    static const char *const isas[] = {"avx2", "avx512", "avx512_bf16", "amx"};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        const bool pairs = i >= 2;
        air_options options = {.driver = "cpu", .isa = isas[i]};
        air_context *ctx;
        air_limits limits = {0};
        if (!kcase_has_isa(isas[i]))
            continue;
        REQUIRE_OK(air_context_create(&options, &ctx));
        CHECK_OK(air_context_get_limits(ctx, &limits));
        CHECK((limits.pair_flops > 0) == pairs);
        air_context_destroy(ctx);
    }
}

/* ---- the application's library ------------------------------------------- */

static bool
library_takes_odd(const air_library *library, const air_call *call,
                  void *const *slots, void *workspace)
{
    int64_t *words = slots[0];
    (void)library, (void)call, (void)workspace;
    return ++words[4] % 2 == 1;
}

TEST(cpu_library_or_own_kernel)
{
    static const air_kernel mixed = {.run = count_up,
                                     .library = library_takes_odd};
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(open_device(&f, 2));
    add(&f, &counter, LARGE);
    add(&f, &mixed, LARGE);
    add(&f, &mixed, LARGE);
    REQUIRE(make(&f));
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_INT(words[4], 2); /* asked twice */
    CHECK_INT(words[0], 4); /* the own kernel ran once */
    close_device(&f);
}

/* ---- memory, options ----------------------------------------------------- */

TEST(cpu_blocks_are_aligned)
{
    static const size_t sizes[] = {1, 100, 4096, (size_t)5 << 20};
    test_alloc counted;
    test_alloc_init(&counted);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *ptr;
        REQUIRE_OK(driver_block_new(&counted.alloc, sizes[i], &ptr));
        CHECK_INT((uintptr_t)ptr % 64, 0);
        if (sizes[i] >= (size_t)4 << 20)
            CHECK_INT((uintptr_t)ptr % (2 << 20), 0);
        memset(ptr, 1, sizes[i]);
        driver_block_free(&counted.alloc, ptr, sizes[i]);
    }
    CHECK_CLEAN(&counted);
}

TEST(cpu_isa_can_be_lowered)
{
    const char *isa;
    CHECK_OK(cpu_isa_find("scalar", &isa));
    CHECK_STR(isa, "scalar");
    CHECK_FAILS(cpu_isa_find("mmx", &isa), ARGUMENT);
    CHECK(isa == NULL);
    CHECK_STR(cpu_isa_base("amx"), "avx512");
    CHECK_STR(cpu_isa_base("avx512_bf16"), "avx512");
    CHECK_STR(cpu_isa_base("avx2"), "avx2");
}

TEST(cpu_isa_of_slow_pairs_is_only_by_name)
{
    const char *isa;
    if (!kcase_has_isa("avx512_bf16") || kcase_has_isa("amx"))
        return;
    CHECK_OK(cpu_isa_find(NULL, &isa));
    CHECK_STR(isa, cpu_limits_pairs_pay() ? "avx512_bf16" : "avx512");
}

static air_status
open_and_close(const air_alloc *alloc, void *user)
{
    air_options options = {.threads = 2};
    air_device *dev;
    (void)user;
    AIR_TRY(air_driver_cpu.open(&options, alloc, &dev));
    air_limits limits;
    air_status status = air_driver_cpu.limits(dev, &limits);
    air_driver_cpu.close(dev);
    return status;
}

TEST(cpu_open_survives_out_of_memory)
{
    TEST_OOM(open_and_close, NULL);
}

TEST(driver_table)
{
    CHECK(driver_find("cpu") == &air_driver_cpu);
    CHECK(driver_find("gpu") == NULL);
#define DRIVER(name, doc) CHECK_INT(air_driver_##name.abi, AIR_DRIVER_ABI);
#include "driver/drivers.def"
#undef DRIVER
}

/* ---- time ---- */

static void
keep_line(void *user, air_log_level level, const char *line)
{
    (void)level;
    (void)snprintf(user, 256, "%s", line);
}

/* Every step takes longer than nothing; an untimed one is not looked at. */
TEST(cpu_slow_steps_are_reported)
{
    char said[256] = "";
    const air_options options = {.threads = 2,
                                 .step_seconds = 1e-12,
                                 .log = keep_line,
                                 .log_user = said};
    fixture f = {0};
    int64_t words[WORDS] = {0};
    void *slots[] = {words};
    REQUIRE(CHECK_OK(air_driver_cpu.open(&options, &base_libc_alloc, &f.dev)));
    add(&f, &counter, LARGE);
    f.steps[0].untimed = true;
    REQUIRE(make(&f));
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK_STR(said, "");
    f.steps[0].untimed = false;
    CHECK_OK(air_driver_cpu.list_run(f.dev, f.list, slots));
    CHECK(strstr(said, "step step took") != NULL);
    CHECK(strstr(said, "op_never_timeout") != NULL);
    close_device(&f);
}

TEST(cpu_device_caches_of_more_threads)
{
    const int64_t one = cpu_isa_cache(1), many = cpu_isa_cache(1024);
    CHECK(one >= (int64_t)1 << 20 && one < (int64_t)1 << 32);
    CHECK(many >= one && many % one == 0);
}
