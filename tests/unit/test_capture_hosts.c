/* test_capture_hosts.c: HOST nodes in graphs of the device: what is recorded,
 * what runs by itself, whose memory it is, and what becomes of it all when a
 * call, an allocation, the application or the device fails. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../fake/fake_cuda.h"
#include "capture_case.h"
#include "cuda_case.h"
#include "driver/driver.h"
#include "driver/wrap/wrap.h"

enum { N = 16, LARGE = 1 << 18, ROOMS = 8, IDS = 5, START = 1, WAIT = 2 };

/* y = 9 (2x) + 3 (3 (2x) + y), then times 3x: of four HOST nodes one reads an
 * input, and one the result of another that a list reads, too. */
static const char text[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = mul.Tensor(%x, 2.0)\n"
    "  %2: f32[16] = host \"my::triple\" 1 \"no row\" (%1)\n"
    "  %3: f32[16] = add.Tensor(%2, %y)\n"
    "  %4: f32[16] = host \"my::triple\" 2 \"no row\" (%3)\n"
    "  %5: f32[16] = host \"my::triple\" 3 \"no row\" (%2)\n"
    "  %6: f32[16] = add.Tensor(%4, %5)\n"
    "  %7: f32[16] = host \"my::triple\" 4 \"no row\" (%x)\n"
    "  %8: f32[16] = mul.Tensor(%6, %7)\n"
    "  return %8\n"
    "}\n";

static double
right(double x, double y)
{
    return (3 * (6 * x + y) + 18 * x) * 3 * x;
}

/* y + 9 (2x): a collective, and a HOST node in the graph that reads it. */
static const char started[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = mul.Tensor(%x, 2.0)\n"
    "  %2: f32[16] = start \"my::begin\" 1 \"sum\" (%1)\n"
    "  %3: f32[16] = wait \"my::wait\" 2 \"for it\" (%2)\n"
    "  %4: f32[16] = host \"my::triple\" 3 \"no row\" (%3)\n"
    "  %5: f32[16] = add.Tensor(%4, %y)\n"
    "  return %5\n"
    "}\n";
/* y + 9x: eager code has begun it. */
static const char awaited[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = wait \"my::wait\" 2 \"for it\" (%x)\n"
    "  %2: f32[16] = host \"my::triple\" 3 \"no row\" (%1)\n"
    "  %3: f32[16] = add.Tensor(%2, %y)\n"
    "  return %3\n"
    "}\n";

/* 3x + y and (9x + 3y) y of 1 MB: one node reads an input, the other one a
 * result of the program. */
static const char large[] =
    "graph f(%x: f32[262144], %y: f32[262144]) {\n"
    "  %1: f32[262144] = host \"my::triple\" 1 \"no row\" (%x)\n"
    "  %2: f32[262144] = add.Tensor(%1, %y)\n"
    "  %3: f32[262144] = host \"my::triple\" 2 \"no row\" (%2)\n"
    "  %4: f32[262144] = mul.Tensor(%3, %y)\n"
    "  return %2, %4\n"
    "}\n";

static double
right_started(double x, double y)
{
    return 18 * x + y;
}

static double
right_awaited(double x, double y)
{
    return 9 * x + y;
}

/* ---- the application ---- */

/* Memory of recorded results: a room is the next one's when it is done. */
typedef struct {
    float rooms[ROOMS][LARGE];
    bool taken[ROOMS];
} memory;

typedef struct {
    memory *of; /* NULL: the room itself is the token's */
    int room;
    float own[N], operand[N];
} token;

typedef struct {
    unsigned unrecorded, refused; /* by bit of id */
    unsigned own; /* leave memory of their own, never the same */
    bool strided; /* x is every other number of a block */
    long unable;  /* after so many records the device captures no more */
    long calls, records, at, fail_at; /* at: of both; fail_at: that one fails */
    bool on_device;                   /* memory is the fake GPU's */
    const char *text;                 /* NULL: the first one */
    double (*right)(double x, double y);
    token *begun; /* what START has left, without its numbers */
    long live;    /* tokens */
} application;

static application app;

static void
triple(const float *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 3 * in[i];
}

static void
triple_strided(const float *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 3 * in[2 * i];
}

static capture_double_work
work_of(const air_value *in, const air_value *out)
{
    const bool strided = in->strides && in->strides[0] == 2;
    return (capture_double_work){strided ? triple_strided : triple, in->data,
                                 out->data, in->dims[0]};
}

static bool
fails_now(void)
{
    return ++app.at == app.fail_at;
}

static token *
token_new(memory *of)
{
    token *t = calloc(1, sizeof *t);
    t->of = of;
    app.live++;
    return t;
}

/* The numbers come when they are waited for, to where they were begun. */
static air_status
start_now(const air_value *in, air_value *out)
{
    token *t = token_new(NULL);
    if (!app.on_device)
        memcpy(t->operand, in->data, sizeof t->operand);
    for (int i = 0; i < N; i++)
        t->own[i] = -1;
    app.begun = t;
    out->data = t->own;
    out->block = t;
    return AIR_OK;
}

static air_status
wait_now(const air_value *in)
{
    if (app.begun)
        CHECK(in->data == app.begun->own);
    if (!app.on_device)
        triple(app.begun ? app.begun->operand : in->data, in->data, N);
    return AIR_OK;
}

static air_status
host_call(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
          air_value *outs)
{
    (void)user;
    const bool begins = app.right && id == START;
    const bool waits = app.right && id == WAIT;
    CHECK(nin == 1 && nout == !waits);
    AIR_REQUIRE(!fails_now(), AIR_ERROR_HOST, "no call today");
    app.calls++;
    if (begins || waits)
        return begins ? start_now(&in[0], &outs[0]) : wait_now(&in[0]);
    if (app.own & 1u << id) {
        token *t = token_new(NULL);
        outs[0].data = t->own;
        outs[0].block = t;
    }
    const capture_double_work work = work_of(&in[0], &outs[0]);
    if (!app.on_device)
        work.run(work.in, work.out, work.n);
    return AIR_OK;
}

static void
host_done(void *user, void *ptr)
{
    token *t = ptr;
    (void)user;
    if (t->of && t->room >= 0)
        t->of->taken[t->room] = false;
    if (t->of && t->room < 0)
        free(t->of);
    app.live--;
    free(t);
}

static const char *
host_unrecorded(void *user, uint32_t id)
{
    (void)user;
    return app.unrecorded & 1u << id ? "it draws" : NULL;
}

static air_status
host_record(void *user, uint32_t id, void *stream, void **mem, size_t nin,
            const air_value *in, size_t nout, air_value *outs, char *why)
{
    (void)user, (void)nin, (void)nout;
    if (app.refused & 1u << id) {
        (void)snprintf(why, AIR_HOST_WHY, "not this one");
        return AIR_ERROR_HOST;
    }
    AIR_REQUIRE(!fails_now(), AIR_ERROR_HOST, "no record today");
    if (!*mem) {
        token *all = token_new(calloc(1, sizeof(memory)));
        all->room = -1;
        *mem = all;
    }
    memory *of = ((token *)*mem)->of;
    token *t = token_new(of);
    while (of->taken[t->room])
        t->room++;
    of->taken[t->room] = true;
    outs[0].data = of->rooms[t->room];
    outs[0].block = t;
    app.records++;
    if (app.records == app.unable)
        capture_double.unsupported = true;
    if (!app.on_device)
        capture_double_give(stream, work_of(&in[0], &outs[0]));
    return AIR_OK;
}

static const air_host host = {.call = host_call,
                              .done = host_done,
                              .unrecorded = host_unrecorded,
                              .record = host_record};

/* ---- a life of the program ---- */

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_capture *capture;
    air_capture_call call;
    float x[2][2 * N], y[2][N]; /* a call takes the other ones */
    int turn;
} life;

static air_status
begin(life *l, const air_options *options)
{
    *l = (life){0};
    AIR_TRY(air_context_create(options, &l->ctx));
    const char *graph = app.text ? app.text : text;
    AIR_TRY(air_graph_parse(l->ctx, graph, strlen(graph), &l->graph));
    AIR_TRY(air_program_create(l->ctx, l->graph, NULL, &l->program));
    return air_capture_create(l->program, NULL, &l->capture);
}

static void
end(life *l)
{
    air_capture_destroy(l->capture);
    air_program_destroy(l->program);
    air_graph_destroy(l->graph);
    air_context_destroy(l->ctx);
    CHECK_INT(app.live, 0);
}

/* A call with other numbers, elsewhere; right where the device computes. */
static air_status
call(life *l)
{
    float *x = l->x[++l->turn % 2], *y = l->y[l->turn % 2];
    const int64_t step = app.strided ? 2 : 1;
    float first[2 * N];
    air_value out;
    for (int i = 0; i < N; i++) {
        x[i * step] = (float)(i % 4 + l->turn % 5);
        y[i] = (float)(i % 3 - l->turn % 2);
    }
    memcpy(first, x, sizeof first);
    air_value in[] = {TENSOR(x, N), TENSOR(y, N)};
    in[0].strides = &step;
    AIR_TRY(air_capture_run(l->capture, &l->call, &host, 2, in, 1, &out));
    double (*want)(double, double) = app.right ? app.right : right;
    for (int i = 0; !app.on_device && i < N; i++)
        CHECK_NEAR(((float *)out.data)[i], want(first[i * step], y[i]), 0);
    air_value_release(&out);
    return AIR_OK;
}

/* Calls and records of the application by the next call. */
static void
check_call(life *l, long calls, long records)
{
    app.calls = app.records = 0;
    CHECK_OK(call(l));
    CHECK_INT(app.calls, calls);
    CHECK_INT(app.records, records);
}

static const air_options around = {.driver = "fault:check:ref", .threads = 1};

static void
check_hosts(life *l, const char *want)
{
    char *got = NULL;
    if (CHECK_OK(air_capture_print_hosts(l->capture, &got)))
        CHECK_STR(got, want);
    air_program_text_free(l->program, got);
}

static bool
open_life(life *l, application how)
{
    app = how;
    wrap_fault_set(0);
    wrap_around(capture_double_driver());
    return CHECK_OK(begin(l, &around));
}

static void
close_life(life *l)
{
    end(l);
    CHECK_INT(capture_double.alive, 0);
    wrap_around(NULL);
}

TEST(capture_hosts_are_in_one_graph)
{
    life l;
    if (open_life(&l, (application){0})) {
        check_call(&l, 4, 0); /* by themselves, once */
        check_call(&l, 0, 4);
        CHECK_INT(capture_double.foreign, 4);
        for (int i = 0; i < 5; i++)
            check_call(&l, 0, 0);
        CHECK_INT(capture_double.ends, 1);
        CHECK_INT(capture_double.launches, 6);
        CHECK_INT(app.live, 1); /* the graph's memory; results are let go */
        check_hosts(&l, "my::triple: in the graph\n"
                        "my::triple: in the graph\n"
                        "my::triple: in the graph\n"
                        "my::triple: in the graph\n");
    }
    close_life(&l);
}

TEST(capture_hosts_that_are_not_recorded_cut_the_graph)
{
    life l;
    if (open_life(&l, (application){.unrecorded = 1u << 2})) {
        check_call(&l, 4, 0);
        check_call(&l, 1, 3);
        check_call(&l, 1, 0);
        CHECK_INT(capture_double.ends, 2);
        check_hosts(&l, "my::triple: in the graph\n"
                        "my::triple: it draws\n"
                        "my::triple: in the graph\n"
                        "my::triple: in the graph\n");
    }
    close_life(&l);
    if (open_life(&l, (application){.refused = 1u << 1 | 1u << 4})) {
        check_call(&l, 4, 0);
        check_call(&l, 2, 2);
        check_call(&l, 2, 0);
        check_hosts(&l, "my::triple: not this one\n"
                        "my::triple: in the graph\n"
                        "my::triple: in the graph\n"
                        "my::triple: not this one\n");
    }
    close_life(&l);
}

/* Node 3 is recorded, and reads what node 1 leaves, elsewhere at each call. */
TEST(capture_hosts_read_what_others_left)
{
    life l;
    if (open_life(&l, (application){.unrecorded = 1u << 1, .own = 1u << 1})) {
        token *held[4];
        check_call(&l, 4, 0);
        check_call(&l, 1, 3);
        for (int i = 0; i < 4; i++) {
            held[i] = token_new(NULL); /* its address comes no more */
            check_call(&l, 1, 0);
        }
        for (int i = 0; i < 4; i++)
            host_done(NULL, held[i]);
    }
    close_life(&l);
}

/* Node 4 reads an input that is not dense, so that none has a copy of it. */
TEST(capture_hosts_whose_operands_move_are_recorded_again_thrice)
{
    life l;
    if (open_life(&l, (application){.strided = true})) {
        check_call(&l, 4, 0);
        for (int i = 0; i < 3; i++)
            check_call(&l, 0, 4);
        check_call(&l, 1, 3); /* without it */
        for (int i = 0; i < 3; i++)
            check_call(&l, 1, 0);
        check_hosts(&l, "my::triple: in the graph\n"
                        "my::triple: in the graph\n"
                        "my::triple: in the graph\n"
                        "my::triple: an operand lies elsewhere at each call\n");
    }
    close_life(&l);
}

/* One call of `large`: x is the first or the second one, all of it `number`. */
static void
call_large(life *l, float *xs, int which, float number, air_value outs[2])
{
    float *x = xs + (size_t)which * LARGE, *y = xs + (size_t)2 * LARGE;
    for (int i = 0; i < LARGE; i++) {
        x[i] = number;
        y[i] = (float)(i % 3);
    }
    const air_value in[] = {TENSOR(x, LARGE), TENSOR(y, LARGE)};
    app.calls = app.records = 0;
    if (!CHECK_OK(air_capture_run(l->capture, &l->call, &host, 2, in, 2, outs)))
        return;
    for (int i = LARGE - 3; i < LARGE; i++) {
        const double first = 3 * (double)number + i % 3;
        CHECK_NEAR(((float *)outs[0].data)[i], first, 0);
        CHECK_NEAR(((float *)outs[1].data)[i], 3 * first * (i % 3), 0);
    }
}

static void
check_large(life *l, float *xs, int which, long calls, long records)
{
    air_value outs[2];
    call_large(l, xs, which, (float)(++l->turn % 5), outs);
    CHECK_INT(app.calls, calls);
    CHECK_INT(app.records, records);
    air_value_release(&outs[0]);
    air_value_release(&outs[1]);
}

/* By themselves, then recorded, then out of the graph. */
static void
check_first_large(life *l, float *xs)
{
    check_large(l, xs, 0, 2, 0);
    check_large(l, xs, 0, 0, 2);
    for (int i = 0; i < 3; i++)
        check_large(l, xs, 0, 0, 0);
}

static uint64_t
bytes_copied(const life *l)
{
    air_capture_stats stats;
    air_capture_get_stats(l->capture, &stats);
    return stats.copied_bytes;
}

/* Until it is seen to move; then it is copied, and nothing is recorded. */
TEST(capture_hosts_read_a_large_input_where_it_is)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    life l;
    if (open_life(&l, (application){.text = large})) {
        check_first_large(&l, xs);
        CHECK_INT(bytes_copied(&l), 0);
        check_large(&l, xs, 1, 0, 2);
        for (int i = 0; i < 6; i++)
            check_large(&l, xs, i % 2, 0, 0);
        CHECK_INT(bytes_copied(&l), 7 * LARGE * sizeof *xs);
    }
    close_life(&l);
    free(xs);
}

/* A step that repeats finds results where they were. */
TEST(capture_hosts_read_results_of_the_program)
{
    float *xs = calloc((size_t)3 * LARGE, sizeof *xs);
    air_value held[3][2];
    life l;
    if (open_life(&l, (application){.text = large})) {
        check_first_large(&l, xs);
        for (int i = 0; i < 3; i++) /* the first one is where it was */
            call_large(&l, xs, 0, 1, held[i]);
        CHECK_INT(app.records, 2);
        for (int i = 0; i < 3; i++) {
            air_value_release(&held[i][0]);
            air_value_release(&held[i][1]);
        }
        check_large(&l, xs, 0, 1, 1); /* moved for the third time */
        check_large(&l, xs, 0, 1, 0);
        check_hosts(&l, "my::triple: in the graph\n"
                        "my::triple: an operand lies elsewhere at each call\n");
    }
    close_life(&l);
    free(xs);
}

/* What is on its way is read where it arrives, and not before. */
TEST(capture_hosts_read_what_was_waited_for)
{
    const application kind[] = {{.text = started, .right = right_started},
                                {.text = awaited, .right = right_awaited}};
    for (int k = 0; k < 2; k++) {
        life l;
        if (open_life(&l, kind[k]))
            for (int i = 0; i < 6; i++)
                CHECK_OK(call(&l));
        close_life(&l);
    }
}

typedef struct {
    life *of;
    atomic_bool *over;
} reader;

static void *
read_hosts(void *user)
{
    const reader *r = user;
    char *got = NULL;
    while (!atomic_load(r->over)) {
        if (CHECK_OK(air_capture_print_hosts(r->of->capture, &got)))
            air_program_text_free(r->of->program, got);
    }
    return NULL;
}

/* For TSan: people read while runs write. */
TEST(capture_hosts_are_shown_while_they_run)
{
    life l;
    if (open_life(&l, (application){.strided = true})) {
        atomic_bool over = false;
        pthread_t thread;
        reader r = {&l, &over};
        REQUIRE(pthread_create(&thread, NULL, read_hosts, &r) == 0);
        for (int i = 0; i < 50; i++)
            CHECK_OK(call(&l));
        atomic_store(&over, true);
        pthread_join(thread, NULL);
    }
    close_life(&l);
}

/* A device that captures no second graph: results of what was recorded in the
 * first one are read where they are then. */
TEST(capture_hosts_run_by_themselves_where_a_later_graph_fails)
{
    life l;
    if (open_life(&l, (application){.unrecorded = 1u << 2, .unable = 1})) {
        check_call(&l, 4, 0);
        check_call(&l, 4, 1);
        check_call(&l, 4, 0);
        CHECK_INT(app.live, 0);
    }
    close_life(&l);
}

/* ---- failures ---- */

/* What is in the graph and what is not, and an operand that moves. */
static const application kinds[] = {{0},
                                    {.unrecorded = 1u << 2},
                                    {.refused = 1u << 3},
                                    {.unrecorded = 1u << 1, .own = 1u << 1},
                                    {.strided = true},
                                    {.text = started, .right = right_started}};
enum { KINDS = sizeof kinds / sizeof *kinds, CALLS = 4 };

/* Calls; one that fails is made again at once, and does. */
static air_status
live(life *l)
{
    air_status first = AIR_OK;
    for (int i = 0; i < CALLS; i++) {
        const air_status status = call(l);
        if (status == AIR_OK)
            continue;
        first = status;
        CHECK_OK(call(l));
    }
    return first;
}

/* Each call of the device fails once, at any time from the first run on. */
TEST(capture_hosts_when_a_call_of_the_device_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1, failed = 0;
        for (bool more = true; more && at < 200; at++) {
            life l;
            if (!open_life(&l, kinds[k]))
                break;
            wrap_fault_set(at);
            const air_status status = live(&l);
            more = wrap_fault_calls() >= at;
            CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
                  status == AIR_ERROR_MEMORY);
            failed += status != AIR_OK;
            wrap_fault_set(0);
            CHECK_OK(call(&l));
            close_life(&l);
        }
        CHECK(at < 200);
        CHECK(failed >= 5);
    }
}

/* The application fails once, in a call or while it is recorded. */
TEST(capture_hosts_when_the_application_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1;
        for (bool more = true; more && at < 100; at++) {
            life l;
            if (!open_life(&l, kinds[k]))
                break;
            app.fail_at = at;
            const air_status status = live(&l);
            more = app.at >= at;
            CHECK(status == AIR_OK || status == AIR_ERROR_HOST);
            close_life(&l);
        }
        CHECK(at > 4 && at < 100);
    }
}

static air_status
live_with(const air_alloc *alloc, void *user)
{
    air_options options = {.threads = 1, .alloc = alloc};
    life l;
    app = *(application *)user;
    wrap_around(app.on_device ? NULL : capture_double_driver());
    options.driver = app.on_device ? "cuda" : "check:ref";
    const air_gpu gpu = {.libraries = FAKE_CUDA};
    options.gpu = app.on_device ? &gpu : NULL;
    air_status status = begin(&l, &options);
    if (status == AIR_OK)
        status = live(&l);
    close_life(&l);
    return status;
}

TEST(capture_hosts_out_of_memory)
{
    for (int k = 0; k < KINDS; k++) {
        application how = kinds[k];
        TEST_OOM(live_with, &how);
    }
}

/* ---- a GPU that is none: nothing is computed, everything is asked for ---- */

static bool
prepare(cuda_case *f, life *l, application how)
{
    how.on_device = true;
    app = how;
    if (!cuda_case_prepare(f))
        return false;
    f->options.driver = "cuda";
    f->options.gpu = &f->gpu;
    return CHECK_OK(begin(l, &f->options));
}

static void
nothing_is_left(life *l, const cuda_case *f)
{
    end(l);
    CHECK_INT(f->cuda->live, 0);
    CHECK_INT(f->nvrtc->live, 0);
}

TEST(capture_hosts_on_a_gpu_are_recorded)
{
    cuda_case f;
    life l;
    if (!prepare(&f, &l, kinds[1]))
        return;
    check_call(&l, 4, 0);
    check_call(&l, 1, 3);
    const long launches = f.cuda->launches;
    check_call(&l, 1, 0);
    CHECK(f.cuda->launches > launches);
    CHECK_INT(f.cuda->instantiated, 2);
    nothing_is_left(&l, &f);
}

/* Each call of CUDA fails once: the call says so, or all went well without; the
 * next one does. */
TEST(capture_hosts_when_a_call_of_cuda_fails)
{
    for (int k = 0; k < KINDS; k++) {
        long at = 1, failed = 0;
        for (bool more = true; more && at < 2000; at++) {
            cuda_case f;
            life l;
            if (!prepare(&f, &l, kinds[k]))
                return;
            f.cuda->fail_at = f.cuda->calls + at;
            const air_status status = live(&l);
            more = f.cuda->calls >= f.cuda->fail_at;
            CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
                  status == AIR_ERROR_MEMORY);
            failed += status != AIR_OK;
            nothing_is_left(&l, &f);
        }
        CHECK(at < 2000);
        CHECK(failed >= 20);
    }
}

TEST(capture_hosts_out_of_memory_on_a_gpu)
{
    for (int k = 0; k < KINDS; k++) {
        application how = kinds[k];
        cuda_case f;
        REQUIRE(cuda_case_prepare(&f));
        how.on_device = true;
        TEST_OOM(live_with, &how);
        CHECK_INT(f.cuda->live, 0);
        CHECK_INT(f.nvrtc->live, 0);
    }
}

/* The GPU is gone, from any call on: every run fails and says what CUDA does,
 * the process lives, and all memory of the host is given back. */
TEST(capture_hosts_when_the_gpu_is_taken_away)
{
    long at = 1;
    for (bool more = true; more && at < 2000; at++) {
        cuda_case f;
        life l;
        test_alloc alloc;
        test_alloc_init(&alloc);
        if (!cuda_case_prepare(&f))
            return;
        app = (application){.on_device = true, .unrecorded = 1u << 2};
        f.options = (air_options){.driver = "cuda",
                                  .threads = 1,
                                  .alloc = &alloc.alloc,
                                  .gpu = &f.gpu};
        CHECK_OK(begin(&l, &f.options));
        f.cuda->gone_at = f.cuda->calls + at;
        for (int i = 0; i < CALLS; i++) {
            const air_status status = call(&l);
            if (f.cuda->calls < f.cuda->gone_at)
                continue;
            if (status != AIR_OK)
                CHECK(strstr(air_last_error()->message, "CUDA_ERROR_FAKE"));
            CHECK_FAILS(call(&l), DRIVER);
        }
        more = f.cuda->calls >= f.cuda->gone_at;
        nothing_is_left(&l, &f);
        CHECK_CLEAN(&alloc);
    }
    CHECK(at < 2000);
}
