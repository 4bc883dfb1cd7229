/* stress.c: threads that share programs, captures and a pool, and keep results
 * for a while: every kept result still is what it was, and in the end nothing
 * is out. Run plainly, under ASan and under TSan.
 *
 * Inputs are small integers made from a seed, so every result is exact. */
#include <pthread.h>
#include <stdlib.h>

#include "air.h"
#include "test.h"

enum { THREADS = 4, CALLS = 2500, KEPT = 24, COLS = 64, WIDE = 8, SLOTS = 5 };
enum { MOST_ROWS = 300, SHAPES = 4 };
static const int64_t row_counts[SHAPES] = {1, 5, 16, MOST_ROWS};

/* ---- programs ---- */

static float weight[COLS * WIDE], shift[COLS];

static float
pattern(int64_t i, unsigned seed)
{
    return (float)((i * 7 + seed) % 13) - 6;
}

static void
fill(float *x, int64_t count, unsigned seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = pattern(i, seed);
}

/* What element i of the result must be, from the input of this seed. */
typedef float (*expected_fn)(int64_t i, unsigned seed);

static float
expect_affine(int64_t i, unsigned seed)
{
    return pattern(i, seed) * weight[i % COLS] + shift[i % COLS];
}

static float
expect_rows(int64_t i, unsigned seed)
{
    float sum = 0;

    for (int64_t k = 0; k < COLS; k++)
        sum += pattern(i * COLS + k, seed);
    return 2 * sum;
}

static float
expect_product(int64_t i, unsigned seed)
{
    float sum = 0;

    for (int64_t k = 0; k < COLS; k++)
        sum += pattern(i / WIDE * COLS + k, seed) * weight[k * WIDE + i % WIDE];
    return sum > 0 ? sum : 0;
}

typedef struct {
    const char *text;
    expected_fn expect;
    int64_t cols; /* of the result, for each row */
    size_t nin;
    float *static_in[2];
    int64_t static_dims[2][2];
    int static_rank[2];
} model;

static const model models[] = {
    {"graph affine(%x: f32[s0, 64], %w: f32[64] param, %b: f32[64] param) {\n"
     "  %1: f32[s0, 64] = mul.Tensor(%x, %w)\n"
     "  %2: f32[s0, 64] = add.Tensor(%1, %b)\n"
     "  return %2\n"
     "}\n",
     expect_affine,
     COLS,
     3,
     {weight, shift},
     {{COLS}, {COLS}},
     {1, 1}},
    {"graph rows(%x: f32[s0, 64]) {\n"
     "  %1: f32[s0] = sum.dim_IntList(%x, [-1])\n"
     "  %2: f32[s0] = mul.Tensor(%1, 2.0)\n"
     "  return %2\n"
     "}\n",
     expect_rows,
     1,
     1,
     {NULL},
     {{0}},
     {0}},
    {"graph product(%x: f32[s0, 64], %w: f32[64, 8] param) {\n"
     "  %1: f32[s0, 8] = mm(%x, %w)\n"
     "  %2: f32[s0, 8] = relu(%1)\n"
     "  return %2\n"
     "}\n",
     expect_product,
     WIDE,
     2,
     {weight},
     {{COLS, WIDE}},
     {2}},
};
enum { MODELS = sizeof models / sizeof *models };

static const char cache_text[] =
    "graph put(%c: f32[5, 64], %i: i64[1], %x: f32[1, 64]) {\n"
    "  %1: f32[5, 64] = index_copy(%c, 0, %i, %x)\n"
    "  %2: f32[5, 64] = copy_(%c, %1)\n"
    "  %3: f32[5, 64] = mul.Tensor(%1, 2.0)\n"
    "  return %3\n"
    "}\n";

/* ---- what the threads share ---- */

typedef enum { BY_CAPTURE, BY_COPY, BY_PROGRAM, WAYS } way;

typedef struct {
    air_program *program;
    air_capture *captures[2]; /* plain; inputs copied */
} subject;

typedef struct {
    air_context *ctx;
    air_graph_pool *pool;
    subject subjects[MODELS], cache;
} shared;

static bool
open_subject(shared *s, const char *text, subject *out)
{
    const air_capture_options plain = {.pool = s->pool};
    const air_capture_options copied = {.pool = s->pool,
                                        .clone_input = AIR_CHOICE_ON};
    air_graph *graph;
    bool good;

    *out = (subject){0};
    if (!CHECK_OK(air_graph_parse(s->ctx, text, strlen(text), &graph)))
        return false;
    good = CHECK_OK(air_program_create(s->ctx, graph, NULL, &out->program));
    air_graph_destroy(graph);
    return good &&
           CHECK_OK(
               air_capture_create(out->program, &plain, &out->captures[0])) &&
           CHECK_OK(
               air_capture_create(out->program, &copied, &out->captures[1]));
}

static void
close_subject(subject *s)
{
    for (int i = 0; i < 2; i++)
        if (s->captures[i])
            air_capture_destroy(s->captures[i]);
    if (s->program)
        air_program_destroy(s->program);
}

static bool
open_shared(shared *s, const char *driver)
{
    const air_options options = {.driver = driver, .threads = 2};
    bool good;

    *s = (shared){0};
    fill(weight, COLS * WIDE, 3);
    fill(shift, COLS, 5);
    good = CHECK_OK(air_context_create(&options, &s->ctx)) &&
           CHECK_OK(air_graph_pool_create(s->ctx, &s->pool));
    for (int m = 0; good && m < MODELS; m++)
        good = open_subject(s, models[m].text, &s->subjects[m]);
    return good && open_subject(s, cache_text, &s->cache);
}

/* Nothing is out once the threads are done. */
static void
close_shared(shared *s)
{
    air_graph_pool_stats pool;
    air_pool_stats all;

    for (int m = 0; m < MODELS; m++)
        close_subject(&s->subjects[m]);
    close_subject(&s->cache);
    if (s->pool) {
        air_graph_pool_get_stats(s->pool, &pool);
        CHECK_INT(pool.live_blocks, 0);
        CHECK_INT(pool.captures, 0);
    }
    air_graph_pool_release(s->pool);
    if (s->ctx) {
        air_context_get_pool_stats(s->ctx, &all);
        CHECK_INT(all.live_blocks, 0);
    }
    air_context_destroy(s->ctx);
}

/* ---- one thread ---- */

typedef struct {
    air_value out;
    const model *m; /* NULL: nothing is kept here */
    unsigned seed;
    int64_t count; /* elements: sizes are the program's, which may go */
} kept;

typedef struct {
    shared *s;
    unsigned random;
    int todo; /* calls */
    kept held[KEPT];
    float *x;
    int64_t dims[2]; /* of x */
    float cache[SLOTS * COLS], twin[SLOTS * COLS];
    long calls, wrong;
    const char *failed;
} worker;

static unsigned
draw(worker *w, unsigned below)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (w->random >> 8) % below;
}

static bool
count_call(worker *w, air_status status)
{
    w->calls++;
    if (status != AIR_OK && !w->failed)
        w->failed = air_status_text(status);
    return status == AIR_OK;
}

static void
let_go(worker *w, kept *k)
{
    const model *m = k->m;

    if (!m)
        return;
    for (int64_t i = 0; i < k->count; i++)
        w->wrong += ((float *)k->out.data)[i] != m->expect(i, k->seed);
    air_value_release(&k->out);
    k->m = NULL;
}

static size_t
make_inputs(worker *w, const model *m, int64_t rows, air_value *in)
{
    w->dims[0] = rows;
    w->dims[1] = COLS;
    in[0] = air_value_tensor(w->x, AIR_F32, 2, w->dims);
    for (size_t i = 1; i < m->nin; i++)
        in[i] = air_value_tensor(m->static_in[i - 1], AIR_F32,
                                 m->static_rank[i - 1], m->static_dims[i - 1]);
    return m->nin;
}

static void
call_model(worker *w)
{
    const unsigned at = draw(w, MODELS), seed = draw(w, 1000);
    const bool large = draw(w, 16) == 0;
    const int64_t rows = row_counts[large ? SHAPES - 1 : draw(w, SHAPES - 1)];
    const way how = (way)draw(w, WAYS);
    subject *s = &w->s->subjects[at];
    kept *k = &w->held[draw(w, KEPT)];
    air_capture_call call = {.cube_cores = draw(w, 100) == 0};
    air_value in[3];
    air_status status;
    size_t nin = make_inputs(w, &models[at], rows, in);

    let_go(w, k);
    fill(w->x, rows * COLS, seed);
    status = how == BY_PROGRAM
                 ? air_program_run(s->program, NULL, nin, in, 1, &k->out)
                 : air_capture_run(s->captures[how], &call, NULL, nin, in, 1,
                                   &k->out);
    if (!count_call(w, status))
        return;
    k->m = &models[at];
    k->seed = seed;
    k->count = rows * models[at].cols;
    if (draw(w, 2))
        let_go(w, k);
}

/* A cache of the thread's own through a capture of all: it is captured again
 * whenever another thread's was there before. */
static void
call_cache(worker *w)
{
    int64_t place = draw(w, SLOTS);
    const unsigned seed = draw(w, 1000);
    air_capture_call call = {0};
    air_value in[3], out;

    fill(w->x, COLS, seed);
    fill(w->twin + place * COLS, COLS, seed);
    in[0] = air_value_tensor(w->cache, AIR_F32, 2, (int64_t[]){SLOTS, COLS});
    in[1] = air_value_tensor(&place, AIR_I64, 1, (int64_t[]){1});
    in[2] = air_value_tensor(w->x, AIR_F32, 2, (int64_t[]){1, COLS});
    if (!count_call(w, air_capture_run(w->s->cache.captures[0], &call, NULL, 3,
                                       in, 1, &out)))
        return;
    for (int i = 0; i < SLOTS * COLS; i++) {
        w->wrong += w->cache[i] != w->twin[i];
        w->wrong += ((float *)out.data)[i] != 2 * w->twin[i];
    }
    air_value_release(&out);
}

/* What an application does to shared things now and then. */
static void
disturb(worker *w)
{
    subject *s = &w->s->subjects[draw(w, MODELS)];
    air_graph_pool_stats pool;
    air_capture_stats stats;

    switch (draw(w, 5)) {
    case 0: air_context_trim(w->s->ctx); break;
    case 1: air_graph_pool_mark_step(w->s->pool); break;
    case 2: air_graph_pool_trim(w->s->pool); break;
    case 3: air_capture_reset(s->captures[draw(w, 2)]); break;
    default: break;
    }
    air_capture_get_stats(s->captures[0], &stats);
    air_graph_pool_get_stats(w->s->pool, &pool);
    w->wrong += pool.live_bytes > pool.mapped_bytes;
}

static void *
work(void *arg)
{
    worker *w = arg;

    w->x = malloc(MOST_ROWS * COLS * sizeof *w->x);
    for (int i = 0; w->x && i < w->todo && !w->failed; i++) {
        if (draw(w, 8) == 0)
            call_cache(w);
        else
            call_model(w);
        if (draw(w, 100) == 0)
            disturb(w);
    }
    for (int i = 0; i < KEPT; i++)
        let_go(w, &w->held[i]);
    free(w->x);
    return NULL;
}

/* ---- tests ---- */

static void
run_threads(shared *s, void *(*run)(void *), int todo, worker *workers)
{
    pthread_t threads[THREADS];
    bool started[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.s = s, .random = 17 * i + 1, .todo = todo};
        started[i] =
            CHECK(pthread_create(&threads[i], NULL, run, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
}

static void
stress(const char *driver, int todo)
{
    static worker workers[THREADS];
    shared s;

    if (open_shared(&s, driver)) {
        run_threads(&s, work, todo, workers);
        for (int i = 0; i < THREADS; i++) {
            CHECK_STR(workers[i].failed ? workers[i].failed : "", "");
            CHECK_INT(workers[i].calls, todo);
            CHECK_INT(workers[i].wrong, 0);
        }
    }
    close_shared(&s);
}

TEST(stress_calls_of_cpu)
{
    stress("cpu", CALLS);
}

TEST(stress_calls_of_ref)
{
    stress("ref", CALLS / 10);
}

/* Programs are compiled, run and dropped while others run: their results
 * outlive them. */
static void *
come_and_go(void *arg)
{
    worker *w = arg;
    const int64_t rows = 40;
    air_capture_call call = {0};
    air_value in[3], out;

    w->x = malloc(MOST_ROWS * COLS * sizeof *w->x);
    for (int i = 0; w->x && i < w->todo; i++) {
        const model *m = &models[draw(w, MODELS)];
        const unsigned seed = draw(w, 1000);
        subject own;
        fill(w->x, rows * COLS, seed);
        if (open_subject(w->s, m->text, &own) &&
            count_call(w, air_capture_run(own.captures[0], &call, NULL,
                                          make_inputs(w, m, rows, in), in, 1,
                                          &out)))
            w->held[0] = (kept){out, m, seed, rows * m->cols};
        close_subject(&own);
        let_go(w, &w->held[0]);
    }
    free(w->x);
    return NULL;
}

TEST(stress_programs_come_and_go)
{
    static worker workers[THREADS];
    shared s;

    if (open_shared(&s, "cpu")) {
        run_threads(&s, come_and_go, 30, workers);
        for (int i = 0; i < THREADS; i++) {
            CHECK_INT(workers[i].calls, 30);
            CHECK_INT(workers[i].wrong, 0);
        }
    }
    close_shared(&s);
}

/* New sizes all the time, and figures of the program that they are of. */
static void *
specialise_and_look(void *arg)
{
    worker *w = arg;
    const model *m = &models[0];
    air_program *program = w->s->subjects[0].program;
    air_program_stats stats;
    uint64_t before = 0;
    air_value in[3];

    w->x = malloc(MOST_ROWS * COLS * sizeof *w->x);
    for (int i = 0; w->x && i < w->todo; i++) {
        const int64_t rows = 1 + draw(w, MOST_ROWS);
        kept *k = &w->held[0];
        const size_t nin = make_inputs(w, m, rows, in);
        fill(w->x, rows * COLS, 7);
        if (count_call(w,
                       air_program_run(program, NULL, nin, in, 1, &k->out))) {
            *k = (kept){k->out, m, 7, rows * m->cols};
            let_go(w, k);
        }
        air_program_get_stats(program, &stats);
        w->wrong += stats.specialisations < before || stats.specialise_s <= 0;
        before = stats.specialisations;
    }
    free(w->x);
    return NULL;
}

TEST(stress_figures_of_a_program_that_is_specialised)
{
    static worker workers[THREADS];
    shared s;

    if (open_shared(&s, "cpu")) {
        run_threads(&s, specialise_and_look, 40, workers);
        for (int i = 0; i < THREADS; i++) {
            CHECK_INT(workers[i].calls, 40);
            CHECK_INT(workers[i].wrong, 0);
        }
    }
    close_shared(&s);
}
