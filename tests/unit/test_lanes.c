/* Lanes: steps that run side by side, what they wait for, and that programs
 * with lanes compute what they compute without. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "air.h"
#include "base/text.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/lanes.h"
#include "driver/driver.h"
#include "test.h"

enum { LARGE = 1000000, MOST = 40, LISTS = 20, RUNS = 8 };

static uint32_t
draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* ---- steps of a device ---- */

/* Two of them are over only when both have begun; gives up in the end. */
static void
meet_other(const air_call *call, const air_task *task)
{
    int64_t *words = task->slots[0];

    (void)call;
    __atomic_add_fetch(&words[0], 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2000000; i++) {
        if (__atomic_load_n(&words[0], __ATOMIC_SEQ_CST) == 2) {
            __atomic_add_fetch(&words[1], 1, __ATOMIC_SEQ_CST);
            return;
        }
        sched_yield();
    }
}

static const air_kernel meeter = {.run = meet_other};

static void
write_line(void *user, air_log_level level, const char *line)
{
    base_text_add(user, "%s\n", line);
    (void)level;
}

static bool
ran_together(const char *driver, int limit, base_text *log)
{
    static const uint32_t none[1];
    const air_options options = {
        .driver = driver, .threads = 2, .log = write_line, .log_user = log};
    air_step steps[2] = {
        {.kernel = &meeter, .cost = LARGE, .label = "left", .after = none},
        {.kernel = &meeter, .cost = LARGE, .label = "right", .after = none}};
    const air_driver *d = driver_find(driver);
    int64_t words[2] = {0};
    void *slots[] = {words};
    air_device *dev;
    air_list *list;

    steps[0].threads = steps[1].threads = limit;
    steps[1].lane = 1;
    if (!CHECK_OK(d->open(&options, &base_libc_alloc, &dev)))
        return false;
    if (CHECK_OK(d->list_make(dev, steps, 2, &list))) {
        CHECK_OK(d->list_run(dev, list, slots));
        d->list_free(dev, list);
    }
    d->close(dev);
    return words[1] == 2;
}

TEST(lanes_run_side_by_side)
{
    base_text log;

    base_text_init(&log, &base_libc_alloc);
    CHECK(ran_together("cpu", 1, &log));
    CHECK(ran_together("cpu", 0, &log)); /* their share is one each */
    base_text_deinit(&log);
}

/* Both have begun before one of them ends. */
TEST(lanes_are_seen_in_a_trace)
{
    base_text log;

    base_text_init(&log, &base_libc_alloc);
    CHECK(ran_together("trace:cpu", 1, &log));
    const char *left = strstr(log.data, "begin left");
    const char *right = strstr(log.data, "begin right, lane 1");
    const char *end = strstr(log.data, "end ");
    CHECK(left && right && end && left < end && right < end);
    CHECK(strstr(log.data, "  right by kernel 2, after nothing"));
    base_text_deinit(&log);
}

/* ---- random lists ---- */

typedef struct {
    int32_t threads; /* that have been through it in this run */
    int32_t expected;
    uint32_t nafter;
    const uint32_t *after;
} visit;

typedef struct {
    visit visits[MOST];
    int wrong;
} visits;

static void
check_order(const air_call *call, const air_task *task)
{
    visits *all = task->slots[0];
    visit *mine = &all->visits[(size_t)call->nargs];

    for (uint32_t i = 0; i < mine->nafter; i++) {
        const visit *other = &all->visits[mine->after[i]];
        if (__atomic_load_n(&other->threads, __ATOMIC_RELAXED) !=
            __atomic_load_n(&other->expected, __ATOMIC_RELAXED))
            __atomic_add_fetch(&all->wrong, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&mine->expected, task->count, __ATOMIC_RELAXED);
    task->barrier(task);
    memset(task->scratch, task->id, 64);
    task->barrier(task);
    if (((char *)task->scratch)[63] != (char)task->id)
        __atomic_add_fetch(&all->wrong, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&mine->threads, 1, __ATOMIC_RELAXED);
}

static const air_kernel orderly = {.run = check_order};

static size_t
random_list(uint64_t *seed, air_step *steps, uint32_t (*after)[MOST])
{
    const size_t count = 2 + draw(seed, MOST - 2);

    for (size_t i = 0; i < count; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < i; k++)
            if (draw(seed, 6) == 0)
                after[i][n++] = k;
        steps[i] = (air_step){.kernel = &orderly,
                              .call = {.nargs = (int32_t)i},
                              .cost = 1000 + draw(seed, 60000),
                              .threads = (int32_t)draw(seed, 3),
                              .after = after[i],
                              .nafter = n};
    }
    return count;
}

static int
run_random(air_device *dev, uint64_t *seed)
{
    static air_step steps[MOST];
    static uint32_t after[MOST][MOST];
    const size_t count = random_list(seed, steps, after);
    static visits all;
    void *slots[] = {&all};
    air_list *list;

    all.wrong = 0;
    if (!CHECK_OK(air_driver_cpu.list_make(dev, steps, count, &list)))
        return -1;
    for (int run = 0; run < RUNS; run++) {
        for (size_t i = 0; i < count; i++)
            all.visits[i] = (visit){.expected = -1,
                                    .nafter = steps[i].nafter,
                                    .after = steps[i].after};
        if (run == RUNS - 3) /* fewer threads than places */
            air_driver_cpu.set_threads(dev, 2);
        CHECK_OK(air_driver_cpu.list_run(dev, list, slots));
        for (size_t i = 0; i < count; i++)
            all.wrong += all.visits[i].threads != all.visits[i].expected;
    }
    air_driver_cpu.list_free(dev, list);
    air_driver_cpu.set_threads(dev, 4);
    return all.wrong;
}

TEST(lanes_wait_for_what_they_name)
{
    const air_options options = {.threads = 4};
    uint64_t seed = 1;
    air_device *dev;

    REQUIRE(CHECK_OK(air_driver_cpu.open(&options, &base_libc_alloc, &dev)));
    for (int i = 0; i < LISTS; i++) {
        const uint64_t at = seed;
        if (run_random(dev, &seed) != 0)
            test_fail(__FILE__, __LINE__, "list of seed %llu",
                      (unsigned long long)at);
    }
    air_driver_cpu.close(dev);
}

/* ---- where steps are placed ---- */

static cpu_span
place(const air_step *steps, size_t count, int threads, cpu_place *places)
{
    uint32_t waits[MOST];
    size_t nwaits = 0;
    cpu_span span = {0};

    CHECK_OK(cpu_lanes_place(&base_libc_alloc, steps, 0, count, threads, places,
                             waits, &nwaits, &span));
    return span;
}

#define STEP(ns, ...)                                                      \
    {                                                                      \
        .cost = (ns), .after = (const uint32_t[]){__VA_ARGS__},            \
        .nafter = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t) - 1 \
    }

/* One before, two beside each other, one after (the last 0 ends a list). */
TEST(lanes_share_threads_by_cost)
{
    const air_step steps[] = {STEP(LARGE, 0), STEP(3 * LARGE, 0, 0),
                              STEP(LARGE, 0, 0), STEP(LARGE, 1, 2, 0)};
    cpu_place p[4] = {0};
    const cpu_span span = place(steps, 4, 4, p);

    CHECK_INT(span.begin, 0);
    CHECK_INT(span.end, 4);
    CHECK_INT(p[0].count, 4);
    CHECK_INT(p[1].count, 3);
    CHECK_INT(p[2].count, 1);
    CHECK_INT(p[2].first, 3);
    CHECK_INT(p[3].count, 4);
    CHECK_INT(p[3].nwaits, 2);
}

/* On two threads the larger one would be alone for long: all take both. */
TEST(lanes_of_unequal_cost_run_one_after_another)
{
    const air_step steps[] = {STEP(5 * LARGE, 0), STEP(LARGE, 0)};
    cpu_place p[2] = {0};

    (void)place(steps, 2, 2, p);
    CHECK_INT(p[0].count, 2);
    CHECK_INT(p[1].count, 2);
}

/* Not worth a parallel region; or only its middle. */
TEST(lanes_of_small_steps)
{
    const air_step small[] = {STEP(1000, 0), STEP(1000, 0)};
    const air_step some[] = {STEP(1000, 0), STEP(9000, 0, 0), STEP(9000, 0, 0),
                             STEP(1000, 1, 2, 0)};
    cpu_place p[4] = {0};

    CHECK_INT(place(small, 2, 2, p).begin, 2);
    const cpu_span span = place(some, 4, 2, p);
    CHECK_INT(span.begin, 1);
    CHECK(p[1].first != p[2].first);
}

/* ---- programs ---- */

enum { SIZE = 96, ELEMENTS = SIZE * SIZE, NODES = 24, RESULTS = 5 };

/* Every value is at most 1, and no step makes an error larger. */
static void
random_node(uint64_t *seed, base_text *text, int i)
{
    static const char *const unary[] = {"sin", "cos", "tanh"};
    const int a = (int)draw(seed, (uint32_t)i), lane = (int)draw(seed, 4);
    const int b = (int)draw(seed, (uint32_t)i);
    char suffix[16] = "\n";

    if (lane > 0)
        (void)snprintf(suffix, sizeof suffix, " lane %d\n", lane);
    switch (draw(seed, 5)) {
    case 0:
        base_text_add(text, "  %%m%d = mm(%%v%d, %%v%d)%s", i, a, b, suffix);
        base_text_add(text, "  %%v%d = mul.Tensor(%%m%d, 0.01)%s", i, i,
                      suffix);
        break;
    case 1:
        base_text_add(text, "  %%c%d = cat([%%v%d, %%v%d], dim=1)%s", i, a, b,
                      suffix);
        base_text_add(text,
                      "  %%v%d = slice.Tensor(%%c%d, dim=1, start=48, "
                      "end=144)%s",
                      i, i, suffix);
        break;
    case 2:
        base_text_add(text, "  %%v%d = _softmax(%%v%d, 1, false)%s", i, a,
                      suffix);
        break;
    case 3:
        base_text_add(text, "  %%v%d = mul.Tensor(%%v%d, %%v%d)%s", i, a, b,
                      suffix);
        break;
    default:
        base_text_add(text, "  %%v%d = %s(%%v%d)%s", i, unary[draw(seed, 3)], a,
                      suffix);
        break;
    }
}

static void
random_graph(uint64_t seed, base_text *text)
{
    base_text_add(text, "graph g(%%v0: f32[96, 96], %%keep: f32[96, 96]) {\n");
    for (int i = 1; i < NODES; i++)
        random_node(&seed, text, i);
    base_text_add(text, "  %%w = copy_(%%keep, %%v%d) lane 2\n  return ",
                  NODES / 2);
    for (int i = 0; i < RESULTS; i++)
        base_text_add(text, "%s%%v%d", i ? ", " : "", NODES - 1 - i);
    base_text_add(text, "\n}\n");
}

static float
input_at(int i)
{
    return (float)(i * 37 % 101) / 101;
}

/* Runs the graph; the results and the input that it writes, one after the
 * other, into `out`. */
static bool
compute(const char *text, const char *driver, int threads, int runs, float *out)
{
    const air_options options = {.driver = driver, .threads = threads};
    static float x[ELEMENTS];
    const int64_t dims[2] = {SIZE, SIZE};
    float *keep = out + RESULTS * ELEMENTS;
    const air_value in[2] = {air_value_tensor(x, AIR_F32, 2, dims),
                             air_value_tensor(keep, AIR_F32, 2, dims)};
    air_value got[RESULTS];
    air_context *ctx;
    air_graph *graph = NULL;
    air_program *program = NULL;
    bool good;

    for (int i = 0; i < ELEMENTS; i++)
        x[i] = input_at(i);
    if (!CHECK_OK(air_context_create(&options, &ctx)))
        return false;
    good = CHECK_OK(air_graph_parse(ctx, text, strlen(text), &graph)) &&
           CHECK_OK(air_program_create(ctx, graph, NULL, &program));
    for (int run = 0; good && run < runs; run++) {
        good = CHECK_OK(air_program_run(program, NULL, 2, in, RESULTS, got));
        for (int i = 0; good && i < RESULTS; i++) {
            memcpy(out + i * ELEMENTS, got[i].data, sizeof x);
            air_value_release(&got[i]);
        }
    }
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    return good;
}

enum { ALL = (RESULTS + 1) * ELEMENTS };

/* On four threads the bits are those of one, at each of many runs, and near
 * those of the reference. */
static bool
same_everywhere(const char *text)
{
    static float one[ALL], ref[ALL], four[ALL];
    int wrong = 0;

    memset(four, 0, sizeof four);
    if (!compute(text, "cpu", 1, 1, one) || !compute(text, "ref", 1, 1, ref))
        return false;
    for (int i = 0; i < ALL; i++)
        wrong += !(one[i] - ref[i] < 1e-4F && ref[i] - one[i] < 1e-4F);
    for (int run = 0; run < 3; run++) {
        if (!compute(text, "cpu", 4, 5, four))
            return false;
        wrong += memcmp(one, four, sizeof one) != 0;
    }
    return wrong == 0;
}

TEST(lanes_of_random_programs)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        base_text text;

        base_text_init(&text, &base_libc_alloc);
        random_graph(seed, &text);
        if (!same_everywhere(text.data))
            test_fail(__FILE__, __LINE__, "graph of seed %llu:\n%s",
                      (unsigned long long)seed, text.data);
        base_text_deinit(&text);
    }
}

/* Where the last value of the arena ends. */
static int
planned_bytes(const char *plan)
{
    int offset, bytes, end = 0;

    for (const char *at = plan; (at = strstr(at, "arena ")) != NULL; at++)
        if (sscanf(at, "arena %d %d", &offset, &bytes) == 2 &&
            offset + bytes > end)
            end = offset + bytes;
    return end;
}

/* What two lanes use at once has memory of its own; one lane uses what is over
 * again. */
TEST(lanes_have_memory_of_their_own)
{
    const char *text = "graph g(%x: f32[64, 64], %y: f32[64, 64]) {\n"
                       "  %a = mm(%x, %y)\n  %b = mm(%a, %a)\n"
                       "  %c = mm(%b, %b)\n  %g = mm(%c, %c)\n"
                       "  %d = mm(%y, %x) lane 1\n  %e = mm(%d, %d) lane 1\n"
                       "  %f = mm(%e, %e) lane 1\n"
                       "  %h = mm(%f, %f) lane 1\n"
                       "  return %g, %h\n}\n";
    static float x[64 * 64];
    const int64_t dims[2] = {64, 64};
    const air_value in[2] = {air_value_tensor(x, AIR_F32, 2, dims),
                             air_value_tensor(x, AIR_F32, 2, dims)};
    const int block = sizeof x;
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_value out[2];
    char *said;

    REQUIRE(CHECK_OK(air_context_create(NULL, &ctx)));
    REQUIRE(CHECK_OK(air_graph_parse(ctx, text, strlen(text), &graph)));
    REQUIRE(CHECK_OK(air_program_create(ctx, graph, NULL, &program)));
    REQUIRE(CHECK_OK(air_program_run(program, NULL, 2, in, 2, out)));
    REQUIRE(CHECK_OK(air_program_print(program, AIR_TEXT_EXPLAIN, &said)));
    int bytes = atoi(strstr(said, "arena_bytes: ") + 13);
    CHECK(bytes >= 4 * block);
    CHECK(strstr(said, "lane: 1, after nothing"));
    CHECK(strstr(said, "lane: 0, after 1\n")); /* which waited for 0 */
    air_program_text_free(program, said);
    REQUIRE(CHECK_OK(air_program_print(program, AIR_TEXT_MEMORY, &said)));
    CHECK_INT(planned_bytes(said), 4 * block); /* two a lane hold all three */
    air_program_text_free(program, said);
    for (int i = 0; i < 2; i++)
        air_value_release(&out[i]);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
}
