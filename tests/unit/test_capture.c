/* test_capture.c: which call captures, replays, captures again, makes room. */
#include <pthread.h>
#include <stdlib.h>

#include "capture_case.h"
#include "exec/capture.h"

static const char affine[] =
    "graph f(%x: f32[s0, 4], %w: f32[4] param, %b: f32[4] param) {\n"
    "  %1: f32[s0, 4] = mul.Tensor(%x, %w)\n"
    "  %2: f32[s0, 4] = add.Tensor(%1, %b)\n"
    "  return %2\n"
    "}\n";

static const char cache[] =
    "graph f(%c: f32[5, 2], %i: i64[1], %x: f32[1, 2]) {\n"
    "  %1: f32[5, 2] = index_copy(%c, 0, %i, %x)\n"
    "  %2: f32[5, 2] = copy_(%c, %1)\n"
    "  %3: f32[5, 2] = mul.Tensor(%1, 2.0)\n"
    "  return %3\n"
    "}\n";

static float x[64], w[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[4] = {10, 20, 30, 40};

static void
fill(void)
{
    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
}

/* out[r][k] == x[r][k] * w[k] + b[k]; releases it. */
static bool
is_affine(air_value *out, const float *in, const float *weight)
{
    bool good = CHECK_INT(out->rank, 2);

    for (int64_t i = 0; good && i < out->dims[0] * 4; i++)
        good = CHECK_NEAR(((float *)out->data)[i],
                          in[i] * weight[i % 4] + b[i % 4], 0);
    air_value_release(out);
    return good;
}

static bool
run_affine(capture_case *t, int64_t rows, const float *weight,
           air_call_class how)
{
    float *memory;
    air_value in[3], out;

    memcpy(&memory, &weight, sizeof memory);
    in[0] = TENSOR(x, rows, 4);
    in[1] = TENSOR(memory, 4);
    in[2] = TENSOR(b, 4);
    return capture_case_run(t, 3, in, 1, &out, how) &&
           is_affine(&out, x, weight);
}

static uint64_t
count(const capture_case *t, air_call_class how)
{
    air_capture_stats stats;

    air_capture_get_stats(t->capture, &stats);
    return stats.calls[how];
}

static void
keys_of(const char *driver)
{
    capture_case t;

    fill();
    if (capture_case_open(&t, driver, affine, NULL)) {
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
        run_affine(&t, 3, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
        run_affine(&t, 3, w, AIR_CALL_REPLAYED);
        run_affine(&t, 2, w + 4, AIR_CALL_CAPTURED); /* moved parameter */
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);     /* the old one stays */
        CHECK_INT(count(&t, AIR_CALL_CAPTURED), 3);
        CHECK_INT(count(&t, AIR_CALL_REPLAYED), 4);
    }
    capture_case_close(&t);
}

TEST(capture_keys)
{
    keys_of("ref");
    keys_of("cpu");
    keys_of("double");
}

/* Inputs that are neither static nor written may move: pointers are patched. */
TEST(capture_inputs_are_patched)
{
    float other[8];
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    air_capture_stats stats;
    capture_case t;

    fill();
    for (int i = 0; i < 8; i++)
        other[i] = (float)(100 + i);
    if (capture_case_open(&t, "double", affine, NULL)) {
        if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_CAPTURED))
            is_affine(&out, x, w);
        in[0].data = other;
        if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_REPLAYED))
            is_affine(&out, other, w);
        air_capture_get_stats(t.capture, &stats);
        CHECK_INT(stats.copied_bytes, 0);
        CHECK_INT(capture_double.ends, 1);
        CHECK_INT(capture_double.launches, 2);
        CHECK_INT(capture_double.lists, 0);
        CHECK_INT(capture_double.patches, 1);
    }
    capture_case_close(&t);
    CHECK_INT(capture_double.alive, 0);
}

TEST(capture_with_a_binding)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    const air_binding *first, *second;
    capture_case t;

    fill();
    if (!capture_case_open(&t, "cpu", affine, NULL))
        goto done;
    CHECK_OK(air_capture_bind(t.capture, 3, in, &first));
    CHECK_OK(air_capture_bind(t.capture, 3, in, &second));
    CHECK(first == second);
    air_capture_unbind(t.capture, second);
    t.call.binding = first;
    in[1] = in[2] = (air_value){0}; /* not looked at */
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_CAPTURED))
        is_affine(&out, x, w);
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_REPLAYED))
        is_affine(&out, x, w);
    in[1] = TENSOR(w + 4, 4);
    in[2] = TENSOR(b, 4);
    CHECK_OK(air_capture_bind(t.capture, 3, in, &second));
    CHECK(first != second);
    in[1].rank = 2;
    in[1].dims = (const int64_t[]){2, 2};
    CHECK_FAILS(air_capture_bind(t.capture, 3, in, &second), SHAPE);
    CHECK(second == NULL);
done:
    capture_case_close(&t);
}

static size_t
bindings(const capture_case *t)
{
    size_t n = 0;

    for (const air_binding *a = t->capture->bindings; a; a = a->next)
        n++;
    return n;
}

TEST(capture_keeps_bindings_of_its_keys_only)
{
    static float moved[40 * 4];
    const air_capture_options options = {.limit = 4};
    const air_binding *held;
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)};
    capture_case t;

    fill();
    for (int i = 0; i < 160; i++)
        moved[i] = (float)i;
    if (capture_case_open(&t, "cpu", affine, &options)) {
        CHECK_OK(air_capture_bind(t.capture, 3, in, &held));
        for (int i = 0; i < 40; i++)
            run_affine(&t, 2, moved + 4 * i,
                       i < 4 ? AIR_CALL_CAPTURED : AIR_CALL_BEYOND);
        CHECK_INT(bindings(&t), 5); /* and the one that is held */
        air_capture_unbind(t.capture, held);
        CHECK_INT(bindings(&t), 4);
        air_capture_unbind(t.capture, NULL);
        air_capture_reset(t.capture);
        CHECK_INT(bindings(&t), 0);
    }
    capture_case_close(&t);
}

TEST(capture_keeps_what_is_frozen)
{
    const air_capture_options options = {.frozen_parameter = true};
    capture_case t;

    fill();
    if (capture_case_open(&t, "cpu", affine, &options)) {
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        air_capture_reset(t.capture);
        CHECK_INT(bindings(&t), 1);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
    }
    capture_case_close(&t);
}

/* The same memory in another shape is another binding: the tuple counts. */
TEST(capture_binding_knows_layouts)
{
    const char *text = "graph f(%x: f32[s0], %w: f32[s0, s1] param) {\n"
                       "  %1: f32[s0] = sum.dim_IntList(%w, [1])\n"
                       "  %2: f32[s0] = add.Tensor(%x, %1)\n"
                       "  return %2\n"
                       "}\n";
    const int64_t turned[2] = {1, 2};
    air_value in[2] = {TENSOR(x, 2), TENSOR(w, 2, 2)}, out;
    capture_case t;

    fill();
    if (!capture_case_open(&t, "cpu", text, NULL))
        goto done;
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED)) {
        CHECK_NEAR(((float *)out.data)[0], 0 + 1 + 2, 0);
        air_value_release(&out);
    }
    in[1].strides = turned;
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED)) {
        CHECK_NEAR(((float *)out.data)[0], 0 + 1 + 3, 0);
        air_value_release(&out);
    }
    in[1] = TENSOR(w, 2, 1); /* dense strides of another width */
    in[1].strides = (const int64_t[]){2, 1};
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED)) {
        CHECK_NEAR(((float *)out.data)[0], 0 + 1, 0);
        air_value_release(&out);
    }
    in[1].dtype = AIR_I32; /* no binding of before serves */
    CHECK(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out) != AIR_OK);
done:
    capture_case_close(&t);
}

TEST(capture_frozen_parameters_stay)
{
    const air_capture_options options = {.frozen_parameter = true};
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    capture_case t;

    fill();
    if (capture_case_open(&t, "cpu", affine, &options)) {
        if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_CAPTURED))
            is_affine(&out, x, w);
        in[1].data = w + 4;
        if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_REPLAYED))
            is_affine(&out, x, w); /* what was there first */
    }
    capture_case_close(&t);
}

/* ---- again ---- */

TEST(capture_again_when_forced)
{
    const air_capture_options options = {.force_recapture = true, .limit = 1};
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, &options)) {
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        for (int i = 0; i < 3; i++) /* the limit counts new keys only */
            run_affine(&t, 2, w, AIR_CALL_FORCED);
        CHECK_INT(capture_double.ends, 4);
        CHECK_INT(capture_double.alive, 1);
    }
    capture_case_close(&t);
}

TEST(capture_again_when_a_written_input_moved)
{
    const air_capture_options options = {.limit = 1};
    float one[10] = {0}, two[10] = {0}, row[2] = {3, 4};
    int64_t index = 1;
    air_value in[3] = {TENSOR(one, 5, 2), TENSOR(&index, 1), TENSOR(row, 1, 2)};
    air_value out;
    capture_case t;

    in[1].dtype = AIR_I64;
    if (!capture_case_open(&t, "cpu", cache, &options))
        goto done;
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_CAPTURED))
        air_value_release(&out);
    CHECK_NEAR(one[2], 3, 0); /* written, once */
    index = 2;
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_REPLAYED))
        air_value_release(&out);
    CHECK_NEAR(one[5], 4, 0);
    in[0].data = two;
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_MUTATED))
        air_value_release(&out);
    CHECK_NEAR(two[4], 3, 0);
    CHECK_NEAR(two[2], 0, 0);
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_REPLAYED))
        air_value_release(&out);
    in[0].data = one;
    if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_MUTATED))
        air_value_release(&out);
done:
    capture_case_close(&t);
}

/* In-place arithmetic shows whether a capture runs what it records. */
TEST(capture_writes_exactly_once)
{
    const char *text = "graph f(%c: f32[4]) {\n"
                       "  %1: f32[4] = add.Tensor(%c, 1.0)\n"
                       "  %2: f32[4] = copy_(%c, %1)\n"
                       "  return %1\n"
                       "}\n";
    static const char *const drivers[] = {"cpu", "ref", "double"};
    air_value out;
    capture_case t;

    for (int d = 0; d < 3; d++) {
        float c[4] = {0};
        const air_value in = TENSOR(c, 4);
        if (capture_case_open(&t, drivers[d], text, NULL))
            for (int i = 1; i <= 3; i++) {
                if (!capture_case_run(&t, 1, &in, 1, &out,
                                      i == 1 ? AIR_CALL_CAPTURED
                                             : AIR_CALL_REPLAYED))
                    break;
                CHECK_NEAR(c[3], i, 0);
                air_value_release(&out);
            }
        capture_case_close(&t);
    }
}

TEST(capture_again_when_core_limits_change)
{
    capture_case t;

    fill();
    if (capture_case_open(&t, "cpu", affine, NULL)) {
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        t.call.cube_cores = 4;
        run_affine(&t, 2, w, AIR_CALL_CORES);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
        t.call.vector_cores = 8;
        run_affine(&t, 2, w, AIR_CALL_CORES);
        t.call.cube_cores = t.call.vector_cores = 0;
        run_affine(&t, 2, w, AIR_CALL_CORES);
    }
    capture_case_close(&t);
}

/* ---- warm-up, limit, reset ---- */

TEST(capture_warms_up_each_key)
{
    const air_capture_options options = {.warmups = 2};
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, &options)) {
        run_affine(&t, 2, w, AIR_CALL_WARMUP);
        run_affine(&t, 2, w, AIR_CALL_WARMUP);
        CHECK_INT(capture_double.begins, 0);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        run_affine(&t, 3, w, AIR_CALL_WARMUP);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
    }
    capture_case_close(&t);
}

TEST(capture_beyond_the_limit_the_oldest_makes_room)
{
    const air_capture_options options = {.limit = 2};
    air_capture_stats stats;
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, &options)) {
        run_affine(&t, 1, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        run_affine(&t, 1, w, AIR_CALL_REPLAYED);
        run_affine(&t, 3, w, AIR_CALL_BEYOND); /* in the place of 2 */
        CHECK_INT(capture_double.alive, 1);
        run_affine(&t, 1, w, AIR_CALL_REPLAYED);
        run_affine(&t, 3, w, AIR_CALL_CAPTURED);
        run_affine(&t, 3, w, AIR_CALL_REPLAYED);
        run_affine(&t, 2, w, AIR_CALL_BEYOND);
        CHECK_INT(capture_double.alive, 1);
        air_capture_get_stats(t.capture, &stats);
        CHECK_INT(stats.graphs, 1);
        CHECK_INT(stats.dropped, 2);
    }
    capture_case_close(&t);
}

TEST(capture_again_counts_no_key)
{
    const air_capture_options options = {.limit = 2, .force_recapture = true};
    capture_case t;

    fill();
    if (capture_case_open(&t, "cpu", affine, &options)) {
        run_affine(&t, 1, w, AIR_CALL_CAPTURED);
        for (int i = 0; i < 3; i++)
            run_affine(&t, 1, w, AIR_CALL_FORCED);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_FORCED);
        run_affine(&t, 3, w, AIR_CALL_BEYOND);
    }
    capture_case_close(&t);
}

static uint64_t dropped[8];
static int ndropped;

static void
note_dropped(void *user, uint64_t graph)
{
    (void)user;
    dropped[ndropped++ % 8] = graph;
}

TEST(capture_says_what_it_drops)
{
    const air_capture_options options = {.dropped = note_dropped};
    capture_case t;

    fill();
    ndropped = 0;
    if (capture_case_open(&t, "cpu", affine, &options)) {
        run_affine(&t, 1, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        t.call.cube_cores = 1;
        run_affine(&t, 1, w, AIR_CALL_CORES);
        CHECK_INT(ndropped, 1);
        CHECK_INT(dropped[0], 1);
        air_capture_reset(t.capture);
        CHECK_INT(ndropped, 3);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
    }
    capture_case_close(&t);
    CHECK_INT(ndropped, 4);
}

/* ---- the device cannot, or fails ---- */

TEST(capture_the_device_refuses_is_skipped)
{
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, NULL)) {
        capture_double.unsupported = true;
        run_affine(&t, 2, w, AIR_CALL_SKIPPED);
        run_affine(&t, 2, w, AIR_CALL_SKIPPED);
        CHECK_INT(capture_double.begins, 1);
        CHECK_INT(capture_double.lists, 2);
    }
    capture_case_close(&t);
}

TEST(capture_that_fails_leaves_no_key)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    air_capture_stats stats;
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, NULL)) {
        capture_double.fail_end = 1;
        CHECK_FAILS(air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out),
                    DRIVER);
        air_capture_get_stats(t.capture, &stats);
        CHECK_INT(stats.graphs, 0);
        CHECK_INT(stats.calls[AIR_CALL_CAPTURED], 0);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
    }
    capture_case_close(&t);
}

TEST(capture_is_kept_when_a_replay_fails)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    capture_case t;

    fill();
    if (capture_case_open(&t, "double", affine, NULL)) {
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
        capture_double.fail_at = 1;
        CHECK_FAILS(air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out),
                    DRIVER);
        run_affine(&t, 2, w, AIR_CALL_REPLAYED);
    }
    capture_case_close(&t);
}

/* Each call of the device fails once; the next try works. */
TEST(capture_device_calls_fail_one_by_one)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    int failures = 0;
    capture_case t;

    fill();
    for (int at = 1; at < 100; at++) {
        if (!capture_case_open(&t, "double", affine, NULL))
            break;
        capture_double.fail_at = at;
        for (int i = 0; i < 4; i++) {
            in[0].data = x + i % 2; /* patched */
            air_status status =
                air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out);
            if (status != AIR_OK) {
                failures++;
                CHECK_INT(status, AIR_ERROR_DRIVER);
                status =
                    air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out);
            }
            if (CHECK_OK(status))
                is_affine(&out, in[0].data, w);
        }
        const bool done = capture_double.fail_at > 0;
        capture_case_close(&t);
        CHECK_INT(capture_double.alive, 0);
        if (done)
            break;
    }
    CHECK(failures > 6);
}

TEST(capture_names_bad_inputs)
{
    air_value in[3] = {TENSOR(x, 2, 3), TENSOR(w, 4), TENSOR(b, 4)}, out;
    capture_case t;

    fill();
    if (capture_case_open(&t, "cpu", affine, NULL)) {
        CHECK_FAILS(air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out),
                    SHAPE);
        CHECK(strstr(air_last_error()->message, "%x (input 0") != NULL);
        in[0] = TENSOR(x, 2, 4);
        in[0].dtype = AIR_F64;
        CHECK_FAILS(air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out),
                    DTYPE);
        CHECK_FAILS(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out),
                    ARGUMENT);
        run_affine(&t, 2, w, AIR_CALL_CAPTURED);
    }
    capture_case_close(&t);
}

/* ---- memory ---- */

TEST(capture_results_are_not_overwritten)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out[20];
    float data[20][8];
    capture_case t;

    if (capture_case_open(&t, "cpu", affine, NULL)) {
        for (int i = 0; i < 20; i++) {
            for (int k = 0; k < 8; k++)
                data[i][k] = (float)(i * 100 + k);
            in[0].data = data[i];
            REQUIRE_OK(
                air_capture_run(t.capture, &t.call, NULL, 3, in, 1, &out[i]));
        }
        for (int i = 19; i >= 0; i--)
            is_affine(&out[i], data[i], w);
    }
    capture_case_close(&t);
}

TEST(capture_replays_without_allocating)
{
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    test_alloc a;
    air_options o = {.driver = "cpu", .threads = 1, .alloc = &a.alloc};
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_capture *capture;
    air_capture_call call = {0};

    fill();
    test_alloc_init(&a);
    REQUIRE_OK(air_context_create(&o, &ctx));
    REQUIRE_OK(air_graph_parse(ctx, affine, strlen(affine), &graph));
    REQUIRE_OK(air_program_create(ctx, graph, NULL, &program));
    REQUIRE_OK(air_capture_create(program, NULL, &capture));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(air_capture_run(capture, &call, NULL, 3, in, 1, &out));
        air_value_release(&out);
        a.trap = true;
    }
    a.trap = false;
    CHECK(!a.failed);
    air_capture_destroy(capture);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    CHECK_CLEAN(&a);
}

static air_status
oom_body(const air_alloc *alloc, void *user)
{
    const air_options o = {.driver = "ref", .threads = 1, .alloc = alloc};
    const air_capture_options *options = user;
    air_value in[3] = {TENSOR(x, 2, 4), TENSOR(w, 4), TENSOR(b, 4)}, out;
    air_context *ctx = NULL;
    air_graph *graph = NULL;
    air_program *program = NULL;
    air_capture *capture = NULL;
    air_capture_call call = {0};
    air_status status = air_context_create(&o, &ctx);

    if (status == AIR_OK)
        status = air_graph_parse(ctx, affine, strlen(affine), &graph);
    if (status == AIR_OK)
        status = air_program_create(ctx, graph, NULL, &program);
    if (status == AIR_OK)
        status = air_capture_create(program, options, &capture);
    for (int i = 0; status == AIR_OK && i < 4; i++) {
        in[0] = TENSOR(x, i % 2 + 1, 4);
        status = air_capture_run(capture, &call, NULL, 3, in, 1, &out);
        if (status == AIR_OK)
            air_value_release(&out);
    }
    air_capture_destroy(capture);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    return status;
}

TEST(capture_out_of_memory)
{
    air_capture_options options = {0};

    fill();
    TEST_OOM(oom_body, &options);
    options.warmups = 1;
    TEST_OOM(oom_body, &options);
    options =
        (air_capture_options){.force_recapture = true, .keep_apart = true};
    TEST_OOM(oom_body, &options);
    options = (air_capture_options){.clone_input = AIR_CHOICE_ON,
                                    .clone_output = AIR_CHOICE_OFF};
    TEST_OOM(oom_body, &options);
}

/* ---- threads ---- */

enum { THREADS = 4, CALLS = 300 };

typedef struct {
    capture_case *t;
    int id;
    bool good;
} worker;

static void *
work(void *arg)
{
    worker *k = arg;
    float data[16], *weight = w;

    k->good = true;
    for (int i = 0; k->good && i < CALLS; i++) {
        const int64_t rows = (i + k->id) % 4 + 1;
        air_value in[3], out;
        air_capture_call call = {.cube_cores = i % 50 == 0};
        for (int d = 0; d < 16; d++)
            data[d] = (float)(k->id * 1000 + i + d);
        in[0] = TENSOR(data, rows, 4);
        in[1] = TENSOR(weight, 4);
        in[2] = TENSOR(b, 4);
        if (air_capture_run(k->t->capture, &call, NULL, 3, in, 1, &out) !=
            AIR_OK) {
            k->good = false;
            break;
        }
        for (int64_t d = 0; d < rows * 4; d++)
            k->good &= ((float *)out.data)[d] == data[d] * w[d % 4] + b[d % 4];
        air_value_release(&out);
    }
    return NULL;
}

/* The hash of a key only sorts: (hash ^ word) * odd for each word, so that two
 * first integers have two second ones that make it equal. */
TEST(capture_keys_of_one_hash_are_told_apart)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    const int64_t n[2] = {3, 6};
    const int64_t m[2] = {5, (int64_t)(5 ^ 3 * odd ^ 6 * odd)};
    capture_case t;

    fill();
    if (capture_case_open(&t, "ref",
                          "graph f(n: int, m: int, %x: f32[4]) {\n"
                          "  %1: f32[2, 2] = view(%x, [2, 2])\n"
                          "  %2: f32[2, 2] = roll(%1, [n, m], [0, 1])\n"
                          "  return %2\n"
                          "}\n",
                          NULL))
        for (int i = 0; i < 2; i++) {
            const air_value in[3] = {{.is_int = true, .i = n[i], .alias = -1},
                                     {.is_int = true, .i = m[i], .alias = -1},
                                     TENSOR(x, 4)};
            air_value out;
            if (capture_case_run(&t, 3, in, 1, &out, AIR_CALL_CAPTURED))
                air_value_release(&out);
        }
    capture_case_close(&t);
}

/* What is only computed with is no part of a key: one capture, one
 * specialisation, another number at each call. */
TEST(capture_of_integers_that_no_size_depends_on)
{
    capture_case t;
    air_program_stats stats;
    fill();
    if (!capture_case_open(&t, "cpu",
                           "sym n = [0, 100]\n"
                           "sym k = [1, 9]\n"
                           "graph f(n: int, k: int, %x: f32[4]) {\n"
                           "  %1: f32[4] = mul.Tensor(%x, n)\n"
                           "  %2: f32[4] = add.Tensor(%1, (n + 1))\n"
                           "  %3: f32[4, k] = full([4, k], n, dtype=f32)\n"
                           "  %4: f32[4, 1] = unsqueeze(%2, 1)\n"
                           "  %5: f32[4, k] = add.Tensor(%3, %4)\n"
                           "  return %5\n"
                           "}\n",
                           NULL))
        return;
    for (int i = 0; i < 6; i++) {
        const float n = (float)(7 * i % 5);
        const int k = i < 3 ? 2 : 3;
        const air_value in[3] = {{.is_int = true, .i = 7 * i % 5, .alias = -1},
                                 {.is_int = true, .i = k, .alias = -1},
                                 TENSOR(x, 4)};
        air_value out;
        const air_call_class how =
            i % 3 ? AIR_CALL_REPLAYED : AIR_CALL_CAPTURED;
        if (!capture_case_run(&t, 3, in, 1, &out, how))
            break;
        for (int j = 0; j < 4 * k; j++)
            CHECK(((float *)out.data)[j] == x[j / k] * n + (n + 1) + n);
        air_value_release(&out);
    }
    air_program_get_stats(t.program, &stats);
    CHECK_INT(stats.specialisations, 2);
    const air_value far[3] = {{.is_int = true, .i = 101, .alias = -1},
                              {.is_int = true, .i = 2, .alias = -1},
                              TENSOR(x, 4)};
    air_value out;
    CHECK_INT(air_program_run(t.program, NULL, 3, far, 1, &out),
              AIR_ERROR_SHAPE);
    CHECK(strstr(air_last_error()->message, "has n = 101, outside [0, 100]"));
    capture_case_close(&t);
}

static void
many_threads(const char *driver, const air_capture_options *options)
{
    pthread_t threads[THREADS];
    worker workers[THREADS];
    capture_case t;

    fill();
    if (capture_case_open(&t, driver, affine, options)) {
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){&t, i, false};
            pthread_create(&threads[i], NULL, work, &workers[i]);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK(workers[i].good);
        }
    }
    capture_case_close(&t);
}

TEST(capture_by_many_threads)
{
    const air_capture_options copied = {.clone_input = AIR_CHOICE_ON};

    many_threads("cpu", NULL);
    many_threads("ref", &copied);
}
