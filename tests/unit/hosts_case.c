/* hosts_case.c: see hosts_case.h. */
#include "hosts_case.h"

#include <stdlib.h>
#include <string.h>

#include "capture_case.h"
#include "driver/wrap/wrap.h"

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
const char hosts_started[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = mul.Tensor(%x, 2.0)\n"
    "  %2: f32[16] = start \"my::begin\" 1 \"sum\" (%1)\n"
    "  %3: f32[16] = wait \"my::wait\" 2 \"for it\" (%2)\n"
    "  %4: f32[16] = host \"my::triple\" 3 \"no row\" (%3)\n"
    "  %5: f32[16] = add.Tensor(%4, %y)\n"
    "  return %5\n"
    "}\n";
/* y + 9x: eager code has begun it. */
const char hosts_awaited[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = wait \"my::wait\" 2 \"for it\" (%x)\n"
    "  %2: f32[16] = host \"my::triple\" 3 \"no row\" (%1)\n"
    "  %3: f32[16] = add.Tensor(%2, %y)\n"
    "  return %3\n"
    "}\n";

/* 3x + y and (9x + 3y) y of 1 MB: one node reads an input, the other one a
 * result of the program. */
const char hosts_large[] =
    "graph f(%x: f32[262144], %y: f32[262144]) {\n"
    "  %1: f32[262144] = host \"my::triple\" 1 \"no row\" (%x)\n"
    "  %2: f32[262144] = add.Tensor(%1, %y)\n"
    "  %3: f32[262144] = host \"my::triple\" 2 \"no row\" (%2)\n"
    "  %4: f32[262144] = mul.Tensor(%3, %y)\n"
    "  return %2, %4\n"
    "}\n";

/* 18x + y, and what both nodes leave: 6x and 18x. */
const char hosts_given[] =
    "graph f(%x: f32[16], %y: f32[16]) {\n"
    "  %1: f32[16] = mul.Tensor(%x, 2.0)\n"
    "  %2: f32[16] = host \"my::triple\" 3 \"no row\" (%1)\n"
    "  %3: f32[16] = host \"my::triple\" 4 \"no row\" (%2)\n"
    "  %4: f32[16] = add.Tensor(%3, %y)\n"
    "  return %4, %2, %3\n"
    "}\n";

/* The same as `large`, and what the first node leaves. */
const char hosts_large_given[] =
    "graph f(%x: f32[262144], %y: f32[262144]) {\n"
    "  %1: f32[262144] = host \"my::triple\" 1 \"no row\" (%x)\n"
    "  %2: f32[262144] = add.Tensor(%1, %y)\n"
    "  %3: f32[262144] = host \"my::triple\" 2 \"no row\" (%2)\n"
    "  %4: f32[262144] = mul.Tensor(%3, %y)\n"
    "  return %2, %4, %1\n"
    "}\n";

double
hosts_right_started(double x, double y)
{
    return 18 * x + y;
}

double
hosts_right_awaited(double x, double y)
{
    return 9 * x + y;
}

/* ---- the application ---- */

application hosts_app;

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
    return ++hosts_app.at == hosts_app.fail_at;
}

token *
hosts_token_new(memory *of)
{
    token *t = calloc(1, sizeof *t);
    t->of = of;
    if (of)
        of->users++;
    hosts_app.live++;
    return t;
}

/* The numbers come when they are waited for, to where they were begun. */
static air_status
start_now(const air_value *in, air_value *out)
{
    token *t = hosts_token_new(NULL);
    if (!hosts_app.on_device)
        memcpy(t->operand, in->data, sizeof t->operand);
    for (int i = 0; i < N; i++)
        t->own[i] = -1;
    hosts_app.begun = t;
    out->data = t->own;
    out->block = t;
    return AIR_OK;
}

static air_status
wait_now(const air_value *in)
{
    if (hosts_app.begun)
        CHECK(in->data == hosts_app.begun->own);
    if (!hosts_app.on_device)
        triple(hosts_app.begun ? hosts_app.begun->operand : in->data, in->data,
               N);
    return AIR_OK;
}

static air_status
host_call(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
          air_value *outs)
{
    (void)user;
    const bool begins = hosts_app.right && id == START;
    const bool waits = hosts_app.right && id == WAIT;
    CHECK(nin == 1 && nout == !waits);
    AIR_REQUIRE(!fails_now(), AIR_ERROR_HOST, "no call today");
    hosts_app.calls++;
    if (begins || waits)
        return begins ? start_now(&in[0], &outs[0]) : wait_now(&in[0]);
    if (hosts_app.own & 1u << id) {
        token *t = hosts_token_new(NULL);
        outs[0].data = t->own;
        outs[0].block = t;
    }
    const capture_double_work work = work_of(&in[0], &outs[0]);
    if (!hosts_app.on_device)
        work.run(work.in, work.out, work.n);
    return AIR_OK;
}

void
hosts_done(void *user, void *ptr)
{
    token *t = ptr;
    (void)user;
    if (t->of && t->room >= 0)
        t->of->taken[t->room] = false;
    if (t->of && --t->of->users == 0)
        free(t->of);
    hosts_app.live--;
    free(t);
}

static const char *
host_unrecorded(void *user, uint32_t id)
{
    (void)user;
    return hosts_app.unrecorded & 1u << id ? "it draws" : NULL;
}

static air_status
host_record(void *user, uint32_t id, void *stream, void **mem, size_t nin,
            const air_value *in, size_t nout, air_value *outs, char *why)
{
    (void)user, (void)nin, (void)nout;
    if (hosts_app.refused & 1u << id) {
        (void)snprintf(why, AIR_HOST_WHY, "not this one");
        return AIR_ERROR_HOST;
    }
    AIR_REQUIRE(!fails_now(), AIR_ERROR_HOST, "no record today");
    if (!*mem) {
        token *all = hosts_token_new(calloc(1, sizeof(memory)));
        all->room = -1;
        *mem = all;
    }
    memory *of = ((token *)*mem)->of;
    token *t = hosts_token_new(of);
    while (of->taken[t->room])
        t->room++;
    of->taken[t->room] = true;
    outs[0].data = of->rooms[t->room];
    outs[0].block = t;
    hosts_app.records++;
    if (hosts_app.records == hosts_app.unable)
        capture_double.unsupported = true;
    if (!hosts_app.on_device)
        capture_double_give(stream, work_of(&in[0], &outs[0]));
    return AIR_OK;
}

const air_host hosts_host = {.call = host_call,
                             .done = hosts_done,
                             .unrecorded = host_unrecorded,
                             .record = host_record};

/* ---- a life of the program ---- */

air_status
hosts_begin(life *l, const air_options *options)
{
    *l = (life){0};
    AIR_TRY(air_context_create(options, &l->ctx));
    const char *graph = hosts_app.text ? hosts_app.text : text;
    AIR_TRY(air_graph_parse(l->ctx, graph, strlen(graph), &l->graph));
    AIR_TRY(air_program_create(l->ctx, l->graph, NULL, &l->program));
    return air_capture_create(l->program, NULL, &l->capture);
}

void
hosts_give_back(life *l)
{
    for (int i = 0; i < 3; i++) {
        air_value_release(&l->outs[i]);
        l->outs[i] = (air_value){.alias = -1};
    }
}

void
hosts_end(life *l)
{
    air_capture_destroy(l->capture);
    air_program_destroy(l->program);
    air_graph_destroy(l->graph);
    air_context_destroy(l->ctx);
    CHECK_INT(hosts_app.live, 0);
}

/* A call with other numbers, elsewhere; right where the device computes. */
air_status
hosts_call(life *l)
{
    float *x = l->x[++l->turn % 2], *y = l->y[l->turn % 2];
    const int64_t step = hosts_app.strided ? 2 : 1;
    float first[2 * N];
    const size_t nout = hosts_app.text == hosts_given ? 3 : 1;
    air_value outs[3] = {{.alias = -1}, {.alias = -1}, {.alias = -1}};
    for (int i = 0; i < N; i++) {
        x[i * step] = (float)(i % 4 + l->turn % 5);
        y[i] = (float)(i % 3 - l->turn % 2);
    }
    memcpy(first, x, sizeof first);
    air_value in[] = {TENSOR(x, N), TENSOR(y, N)};
    in[0].strides = &step;
    AIR_TRY(
        air_capture_run(l->capture, &l->call, &hosts_host, 2, in, nout, outs));
    double (*want)(double, double) = hosts_app.right ? hosts_app.right : right;
    for (int i = 0; !hosts_app.on_device && i < N; i++) {
        CHECK_NEAR(((float *)outs[0].data)[i], want(first[i * step], y[i]), 0);
        for (size_t k = 1; k < nout; k++)
            CHECK_NEAR(((float *)outs[k].data)[i],
                       (k > 1 ? 18 : 6) * first[i * step], 0);
    }
    hosts_give_back(l);
    memcpy(l->outs, outs, sizeof outs);
    if (!hosts_app.holds)
        hosts_give_back(l);
    return AIR_OK;
}

/* Calls and records of the application by the next call. */
void
hosts_check_call(life *l, long calls, long records)
{
    hosts_app.calls = hosts_app.records = 0;
    CHECK_OK(hosts_call(l));
    CHECK_INT(hosts_app.calls, calls);
    CHECK_INT(hosts_app.records, records);
}

static const air_options around = {.driver = "fault:check:ref", .threads = 1};

void
hosts_check_text(life *l, const char *want)
{
    char *got = NULL;
    if (CHECK_OK(air_capture_print_hosts(l->capture, &got)))
        CHECK_STR(got, want);
    air_program_text_free(l->program, got);
}

bool
hosts_open(life *l, application how)
{
    hosts_app = how;
    wrap_fault_set(0);
    wrap_around(capture_double_driver());
    return CHECK_OK(hosts_begin(l, &around));
}

void
hosts_close(life *l)
{
    hosts_give_back(l);
    hosts_end(l);
    CHECK_INT(capture_double.alive, 0);
    wrap_around(NULL);
}
