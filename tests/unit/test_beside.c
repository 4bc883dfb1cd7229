/* Steps that need no barrier before them: who may run beside whom, that lists
 * keep to it, and that programs find it. */
#include <sched.h>
#include <stdlib.h>

#include "air.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/lanes.h"
#include "driver/driver.h"
#include "exec/exec.h"
#include "test.h"

enum { LARGE = 1000000, MOST = 40, LISTS = 40, RUNS = 8, THREADS = 3 };

/* ---- lists --------------------------------------------------------------- */

/* slots[0]: threads that have been through each step; wrong ones behind. */
static void
check_before(const air_call *call, const air_task *task)
{
    int64_t *words = task->slots[0];
    const int64_t *args = call->extra; /* own number, beside */

    for (int64_t i = 0; i < args[0] - args[1]; i++)
        if (__atomic_load_n(&words[i], __ATOMIC_ACQUIRE) != words[MOST + i])
            __atomic_add_fetch(&words[2 * MOST], 1, __ATOMIC_RELAXED);
    if (task->id == 0)
        sched_yield();
    __atomic_add_fetch(&words[args[0]], 1, __ATOMIC_RELEASE);
}

static const air_kernel checker = {.run = check_before};

typedef struct {
    air_step steps[MOST];
    int64_t args[MOST][2], words[2 * MOST + 1];
    size_t count;
} random_list;

static void
make_list(random_list *l, uint32_t seed)
{
    srand(seed);
    *l = (random_list){.count = 2 + (size_t)rand() % (MOST - 2)};
    for (size_t i = 0; i < l->count; i++) {
        const bool small = rand() % 2 == 0;
        const uint32_t beside = (uint32_t)rand() % 4;
        air_step *step = &l->steps[i];
        *step = (air_step){.kernel = &checker,
                           .cost = small ? CPU_SMALL / 2 : LARGE,
                           .beside = beside > i ? (uint32_t)i : beside,
                           .label = "step"};
        l->args[i][0] = (int64_t)i;
        l->args[i][1] = step->beside;
        l->words[MOST + i] = small ? 1 : THREADS;
        step->call.extra = l->args[i];
    }
}

TEST(beside_lists_wait_for_what_is_before)
{
    const air_options options = {.threads = THREADS};
    const air_driver *d = driver_find("cpu");
    air_device *dev;

    REQUIRE(CHECK_OK(d->open(&options, &base_libc_alloc, &dev)));
    for (uint32_t seed = 0; seed < LISTS; seed++) {
        static random_list l;
        void *slots[] = {l.words};
        air_list *list;
        make_list(&l, seed);
        if (!CHECK_OK(d->list_make(dev, l.steps, l.count, &list)))
            continue;
        for (int run = 0; run < RUNS; run++) {
            for (size_t i = 0; i < l.count; i++)
                l.words[i] = 0;
            CHECK_OK(d->list_run(dev, list, slots));
        }
        if (!CHECK_INT(l.words[2 * MOST], 0))
            printf("  seed %u\n", seed);
        d->list_free(dev, list);
    }
    d->close(dev);
}

/* Thread 0 stays in the first step until another one is in the second; gives
 * up in the end. */
static void
meet_next(const air_call *call, const air_task *task)
{
    int64_t *words = task->slots[0];
    const int64_t *args = call->extra;

    if (args[0] == 1 && task->id == 1)
        __atomic_store_n(&words[0], 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2000000 && args[0] == 0 && task->id == 0; i++) {
        if (__atomic_load_n(&words[0], __ATOMIC_SEQ_CST) != 0) {
            words[1] = 1;
            return;
        }
        sched_yield();
    }
}

static const air_kernel meeter = {.run = meet_next};

TEST(beside_steps_need_no_barrier)
{
    const air_options options = {.threads = 2};
    const air_driver *d = driver_find("cpu");
    static const int64_t args[2][2] = {{0, 0}, {1, 1}};
    air_step steps[2] = {
        {.kernel = &meeter, .cost = LARGE, .call = {.extra = args[0]}},
        {.kernel = &meeter,
         .cost = LARGE,
         .call = {.extra = args[1]},
         .beside = 1}};
    int64_t words[2] = {0};
    void *slots[] = {words};
    air_device *dev;
    air_list *list;

    REQUIRE(CHECK_OK(d->open(&options, &base_libc_alloc, &dev)));
    if (CHECK_OK(d->list_make(dev, steps, 2, &list))) {
        CHECK_OK(d->list_run(dev, list, slots));
        d->list_free(dev, list);
    }
    d->close(dev);
    CHECK_INT(words[1], 1);
}

/* ---- programs ------------------------------------------------------------ */

/* The lines `beside` of a graph over x, v, w: f32[32, 32], as one word each. */
static void
beside_of(const char *lines, const char *returns, char *out)
{
    static float m[3][32 * 32];
    const int64_t dims[] = {32, 32};
    char text[512], *steps = NULL;
    const air_value in[] = {air_value_tensor(m[0], AIR_F32, 2, dims),
                            air_value_tensor(m[1], AIR_F32, 2, dims),
                            air_value_tensor(m[2], AIR_F32, 2, dims)};
    air_value outs[3] = {0};
    air_context *ctx = NULL;
    air_graph *graph = NULL;
    air_program *program = NULL;
    size_t nouts = 1;

    for (const char *at = returns; *at != '\0'; at++)
        nouts += *at == ',';
    snprintf(text, sizeof text,
             "graph f(%%x: f32[32, 32], %%v: f32[32, 32], "
             "%%w: f32[32, 32] frozen) {\n%s  return %s\n}\n",
             lines, returns);
    out[0] = '\0';
    if (CHECK_OK(air_context_create(NULL, &ctx)) &&
        CHECK_OK(air_graph_parse(ctx, text, strlen(text), &graph)) &&
        CHECK_OK(air_program_create(ctx, graph, NULL, &program)) &&
        CHECK_OK(air_program_run(program, NULL, 3, in, nouts, outs)) &&
        CHECK_OK(air_program_print(program, AIR_TEXT_STEPS, &steps)))
        for (const char *at = steps; (at = strstr(at, "beside: ")) != NULL;
             at++)
            strncat(out, at + 8, 1);
    for (size_t i = 0; i < nouts; i++)
        air_value_release(&outs[i]);
    if (steps != NULL)
        air_program_text_free(program, steps);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
}

TEST(beside_is_found)
{
    char found[32];

    /* of one operand; the last one reads what the others wrote */
    beside_of("  %a = mm(%x, %v)\n  %b = mm(%x, %w)\n  %c = mm(%a, %b)\n", "%c",
              found);
    CHECK_STR(found, "1");
    beside_of("  %a = mm(%x, %v)\n  %b = mm(%a, %w)\n  %c = mm(%b, %w)\n", "%c",
              found);
    CHECK_STR(found, "");
    /* independent chains */
    beside_of("  %a = mm(%x, %v)\n  %b = mm(%x, %w)\n  %c = mm(%w, %v)\n",
              "%a, %b, %c", found);
    CHECK_STR(found, "12");
    /* what is written into an input may be what another one is */
    beside_of("  %a = mm(%x, %v)\n  %b = copy_(%w, %x)\n", "%a, %b", found);
    CHECK_STR(found, "");
    /* what the first run computes alone is in no list of the others */
    beside_of("  %a = mm(%w, %w)\n  %b = mm(%x, %v)\n  %c = mm(%a, %b)\n", "%c",
              found);
    CHECK_STR(found, "");
}

static void
check_workspaces(size_t count, const size_t *bytes, const uint32_t *beside,
                 const int64_t *offsets, const uint32_t *left)
{
    exec_step steps[4] = {{.node = NULL}};
    exec_spec spec = {.steps = {.data = steps, .count = count}};

    for (size_t i = 0; i < count; i++) {
        steps[i].step.workspace = bytes[i];
        steps[i].step.beside = beside[i];
    }
    exec_place_beside(&spec);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(steps[i].step.workspace_offset, offsets[i]);
        CHECK_INT(steps[i].step.beside, left[i]);
    }
}

/* Steps side by side work in memory of their own, a line of cache at least;
 * where that is more than 1 MB they run one after another. */
TEST(beside_workspaces_lie_apart)
{
    check_workspaces(
        4, (const size_t[]){100, 50, 0, 200}, (const uint32_t[]){0, 1, 2, 1},
        (const int64_t[]){0, 128, 0, 0}, (const uint32_t[]){0, 1, 2, 1});
    check_workspaces(2, (const size_t[]){1 << 19, 1 << 19},
                     (const uint32_t[]){0, 1}, (const int64_t[]){0, 1 << 19},
                     (const uint32_t[]){0, 1});
    check_workspaces(2, (const size_t[]){1 << 19, (1 << 19) + 1},
                     (const uint32_t[]){0, 1}, (const int64_t[]){0, 0},
                     (const uint32_t[]){0, 0});
}
