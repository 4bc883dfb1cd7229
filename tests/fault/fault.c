/* fault.c: each driver call fails once and each allocation fails once, over
 * parsing, compiling and running graphs: the status is right, nothing is lost,
 * and what is still there works afterwards. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "air.h"
#include "driver/wrap/wrap.h"
#include "test.h"

/* Inputs are numbered tensors: element i is ((i * 7 + input) % 11 - 5) / 4;
 * integer ones hold (i * 2 + 1) % 3. */
typedef struct {
    const char *name, *text;
    int ninputs, nouts;
    struct {
        air_dtype dtype;
        int rank;
        int64_t dims[3];
    } inputs[4];
} fault_graph;

static const fault_graph graphs[] = {
    {"fused",
     "graph f(%x: f32[s0, 40], %b: f32[40]) {\n"
     "  %1: f32[s0, 40] = add.Tensor(%x, %b)\n"
     "  %2: f32[s0, 40] = relu(%1)\n"
     "  %3: f32[s0, 40] = _softmax(%2, -1, false)\n"
     "  return %3\n"
     "}\n",
     2,
     1,
     {{AIR_F32, 2, {6, 40}}, {AIR_F32, 1, {40}}}},
    {"contract",
     "graph f(%x: f32[6, 32], %w: f32[32, 48] param, %i: i64[4]) {\n"
     "  %1: f32[6, 48] = mm(%x, %w)\n"
     "  %2: f32[4, 48] = index_select(%1, 0, %i)\n"
     "  %3: f32[4, 48], %4: i64[4, 48] = sort(%2, 0)\n"
     "  %5: f32[4] = sum.dim_IntList(%3, [1])\n"
     "  return %3, %5\n"
     "}\n",
     3,
     2,
     {{AIR_F32, 2, {6, 32}}, {AIR_F32, 2, {32, 48}}, {AIR_I64, 1, {4}}}},
    {"mutate",
     "graph f(%c: f32[5, 8], %i: i64[1], %x: f32[1, 8]) {\n"
     "  %1: f32[5, 8] = index_copy(%c, 0, %i, %x)\n"
     "  %2: f32[5, 8] = copy_(%c, %1)\n"
     "  %3: f32[5, 8] = mul.Tensor(%1, 2.0)\n"
     "  return %3\n"
     "}\n",
     3,
     1,
     {{AIR_F32, 2, {5, 8}}, {AIR_I64, 1, {1}}, {AIR_F32, 2, {1, 8}}}},
    {"frozen",
     "graph f(%x: f32[6, 8], %w: f32[8, 8] param frozen) {\n"
     "  %1: f32[8, 8] = mul.Tensor(%w, 2.0)\n"
     "  %2: f32[6, 8] = mm(%x, %1)\n"
     "  return %2\n"
     "}\n",
     2,
     1,
     {{AIR_F32, 2, {6, 8}}, {AIR_F32, 2, {8, 8}}}},
};
enum { GRAPHS = sizeof graphs / sizeof graphs[0], ROOM = 2048 };

typedef union {
    float f[ROOM];
    int64_t i[ROOM];
} storage;

typedef struct {
    const fault_graph *g;
    const char *driver;
    storage data[4];
    air_value in[4];
    double sum;                          /* of all results of the last run */
    const air_capture_options *captured; /* NULL: plain runs */
    bool records; /* a run that the application records, once one was done */
    bool ran;
    air_program *program;
    air_capture *capture;
} fault_case;

static void
fill_inputs(fault_case *c)
{
    for (int k = 0; k < c->g->ninputs; k++) {
        bool ints = c->g->inputs[k].dtype == AIR_I64;
        for (int i = 0; i < ROOM; i++)
            if (ints)
                c->data[k].i[i] = (i * 2 + 1) % 3;
            else
                c->data[k].f[i] = (float)((i * 7 + k) % 11 - 5) / 4;
        c->in[k] = air_value_tensor(&c->data[k], c->g->inputs[k].dtype,
                                    c->g->inputs[k].rank, c->g->inputs[k].dims);
    }
}

static air_status
run_any(fault_case *c, air_value *outs)
{
    const size_t nin = (size_t)c->g->ninputs, nouts = (size_t)c->g->nouts;
    const air_host host = {.frozen = 1, .recorded = c->records && c->ran};
    air_capture_call call = {0};
    if (c->captured)
        return air_capture_run(c->capture, &call, NULL, nin, c->in, nouts,
                               outs);
    return air_program_run(c->program, &host, nin, c->in, nouts, outs);
}

static air_status
run_once(fault_case *c)
{
    air_value outs[2];
    size_t nouts = (size_t)c->g->nouts;
    AIR_TRY(run_any(c, outs));
    c->ran = true;
    c->sum = 0;
    for (size_t k = 0; k < nouts; k++) {
        int64_t n = 1;
        for (int i = 0; i < outs[k].rank; i++)
            n *= outs[k].dims[i];
        for (int64_t i = 0; i < n; i++)
            c->sum += (double)((float *)outs[k].data)[i] * (double)(i % 5 + 1);
        air_value_release(&outs[k]);
    }
    return AIR_OK;
}

/* All of a program's life; a run that fails is tried again, and must do. */
static air_status
live(fault_case *c, const air_alloc *alloc)
{
    air_options options = {.driver = c->driver, .threads = 2, .alloc = alloc};
    air_context *ctx = NULL;
    air_graph *graph = NULL;
    bool ready;
    air_status status, again = AIR_OK;
    fill_inputs(c);
    c->program = NULL;
    c->capture = NULL;
    c->ran = false;
    status = air_context_create(&options, &ctx);
    if (status == AIR_OK)
        status = air_graph_parse(ctx, c->g->text, strlen(c->g->text), &graph);
    if (status == AIR_OK)
        status = air_program_create(ctx, graph, NULL, &c->program);
    if (status == AIR_OK && c->captured)
        status = air_capture_create(c->program, c->captured, &c->capture);
    ready = c->captured ? c->capture != NULL : c->program != NULL;
    for (int i = 0; i < 2 && ready && again == AIR_OK; i++) {
        again = run_once(c);
        if (again != AIR_OK && status == AIR_OK) {
            status = again;
            again = run_once(c);
        }
    }
    CHECK_INT(again, AIR_OK); /* one failure, not two */
    air_capture_destroy(c->capture);
    air_program_destroy(c->program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    return status;
}

static double
right_sum(const fault_graph *g)
{
    fault_case c = {.g = g, .driver = "ref"};
    wrap_fault_set(0);
    CHECK_OK(live(&c, NULL));
    return c.sum;
}

/* Driver call 1, 2, 3 ... fails until there are no more. */
static void
sweep_calls(const fault_graph *g, const air_capture_options *captured,
            bool records)
{
    double want = right_sum(g);
    int failures = 0;
    for (long at = 1; at < 1000; at++) {
        fault_case c = {.g = g,
                        .driver = "fault:check:cpu",
                        .captured = captured,
                        .records = records};
        test_alloc alloc;
        test_alloc_init(&alloc);
        wrap_fault_set(at);
        air_status status = live(&c, &alloc.alloc);
        CHECK_CLEAN(&alloc);
        if (wrap_fault_calls() < at) {
            CHECK_INT(status, AIR_OK);
            CHECK_NEAR(c.sum, want, 1e-3);
            CHECK(failures > 3); /* it did fail */
            return;
        }
        /* OK: the engine can do without, as with a block it tries again for */
        CHECK(status == AIR_OK || status == AIR_ERROR_DRIVER ||
              status == AIR_ERROR_MEMORY);
        failures += status != AIR_OK;
        if (status == AIR_OK || c.sum != 0.0) /* it ran in the end */
            CHECK_NEAR(c.sum, want, 1e-3);
    }
    test_fail(__FILE__, __LINE__, "the sweep does not end");
}

static const air_capture_options captures[] = {
    {0},
    {.warmups = 1},
    {.clone_input = AIR_CHOICE_ON, .clone_output = AIR_CHOICE_OFF},
    {.force_recapture = true, .keep_apart = true}};
enum { CAPTURES = sizeof captures / sizeof captures[0] };

TEST(fault_driver_calls)
{
    for (int i = 0; i < GRAPHS; i++) {
        sweep_calls(&graphs[i], NULL, false);
        sweep_calls(&graphs[i], NULL, true);
        for (int k = 0; k < CAPTURES; k++)
            sweep_calls(&graphs[i], &captures[k], false);
    }
    wrap_fault_set(0);
}

static air_status
live_without_memory(const air_alloc *alloc, void *user)
{
    fault_case *c = user;
    c->sum = 0;
    return live(c, alloc);
}

TEST(fault_allocations)
{
    wrap_fault_set(0);
    for (int i = 0; i < GRAPHS; i++) {
        fault_case c = {.g = &graphs[i], .driver = "cpu"};
        TEST_OOM(live_without_memory, &c);
        CHECK_NEAR(c.sum, right_sum(&graphs[i]), 1e-3);
        c.records = true;
        TEST_OOM(live_without_memory, &c);
        CHECK_NEAR(c.sum, right_sum(&graphs[i]), 1e-3);
        c.captured = &captures[i % CAPTURES];
        TEST_OOM(live_without_memory, &c);
        CHECK_NEAR(c.sum, right_sum(&graphs[i]), 1e-3);
    }
}

/* No allocation in steady state, on any driver call. */
TEST(fault_no_allocation_when_warm)
{
    fault_case c = {.g = &graphs[0], .driver = "cpu"};
    test_alloc alloc;
    air_context *ctx = NULL;
    air_graph *graph = NULL;
    test_alloc_init(&alloc);
    air_options options = {
        .driver = "cpu", .threads = 2, .alloc = &alloc.alloc};
    fill_inputs(&c);
    CHECK_OK(air_context_create(&options, &ctx));
    CHECK_OK(air_graph_parse(ctx, c.g->text, strlen(c.g->text), &graph));
    CHECK_OK(air_program_create(ctx, graph, NULL, &c.program));
    CHECK_OK(air_capture_create(c.program, NULL, &c.capture));
    for (int i = 0; i < 2000; i++) {
        c.captured = i < 1000 ? NULL : &captures[0];
        alloc.trap = i % 1000 >= 10;
        CHECK_OK(run_once(&c));
    }
    alloc.trap = false;
    air_capture_destroy(c.capture);
    air_program_destroy(c.program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    CHECK_CLEAN(&alloc);
}
