/* test_capture_modes.c: clone_input, clone_output, memory of captures. */
#include <stdlib.h>

#include "capture_case.h"

static const char twice[] = "graph f(%x: f32[s0, s1], %y: f32[s1]) {\n"
                            "  %1: f32[s0, s1] = add.Tensor(%x, %y)\n"
                            "  %2: f32[s0, s1] = mul.Tensor(%1, 2.0)\n"
                            "  return %2\n"
                            "}\n";
/* The first result lies in %x. */
static const char aliased[] = "graph f(%x: f32[2, 3], %y: f32[3]) {\n"
                              "  %1: f32[3, 2] = permute(%x, [1, 0])\n"
                              "  %2: f32[2, 3] = add.Tensor(%x, %y)\n"
                              "  return %1 strides [1, 3], %2\n"
                              "}\n";

static float zero[1024];

static uint64_t
copied(const capture_case *t)
{
    air_capture_stats stats;

    air_capture_get_stats(t->capture, &stats);
    return stats.copied_bytes;
}

static bool
is_twice(air_value *out, const float *x)
{
    bool good = true;

    for (int64_t i = 0; good && i < out->dims[0] * out->dims[1]; i++)
        good = CHECK_NEAR(((float *)out->data)[i], 2 * x[i], 0);
    air_value_release(out);
    return good;
}

/* ---- clone_input ---- */

TEST(capture_clone_input_copies_every_call)
{
    const air_capture_options options = {.clone_input = AIR_CHOICE_ON};
    static const char *const drivers[] = {"cpu", "ref", "double"};
    const int64_t turned[2] = {1, 2};
    float x[6] = {1, 2, 3, 4, 5, 6};
    air_value in[2] = {TENSOR(x, 2, 3), TENSOR(zero, 3)}, out;
    capture_case t;

    for (int d = 0; d < 3; d++) {
        in[0] = TENSOR(x, 2, 3);
        if (capture_case_open(&t, drivers[d], twice, &options)) {
            if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED))
                is_twice(&out, x);
            CHECK_INT(copied(&t), 9 * sizeof *x);
            x[0]++;
            if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_REPLAYED))
                is_twice(&out, x);
            CHECK_INT(copied(&t), 18 * sizeof *x);
            in[0].strides = turned; /* copied into the dense buffer */
            if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED)) {
                CHECK_NEAR(((float *)out.data)[1], 2 * x[2], 0);
                CHECK_NEAR(((float *)out.data)[3], 2 * x[1], 0);
                air_value_release(&out);
            }
        }
        capture_case_close(&t);
    }
}

/* Trap: an offset view of the first tensor's storage is another address. */
TEST(capture_first_tensor_is_compared_by_its_own_address)
{
    const air_capture_options options = {.clone_input = AIR_CHOICE_OFF};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, was[6], *first = x + 2;
    air_value in[2] = {TENSOR(first, 2, 3), TENSOR(zero, 3)}, out;
    capture_case t;

    if (!capture_case_open(&t, "cpu", twice, &options))
        goto done;
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED))
        is_twice(&out, first);
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_REPLAYED))
        is_twice(&out, first);
    CHECK_INT(copied(&t), 0); /* the same tensor */
    memcpy(was, x, sizeof was);
    in[0].data = x; /* overlaps the first one */
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_REPLAYED))
        is_twice(&out, was);
    CHECK_INT(copied(&t), sizeof was);
    for (int i = 0; i < 6; i++) /* the caller's old tensor is written */
        CHECK_NEAR(first[i], was[i], 0);
done:
    capture_case_close(&t);
}

TEST(capture_clone_input_off_keeps_the_first_tensors)
{
    const air_capture_options options = {.clone_input = AIR_CHOICE_OFF};
    float a[6] = {1, 2, 3, 4, 5, 6}, c[6] = {9, 8, 7, 6, 5, 4};
    air_value in[2] = {TENSOR(a, 2, 3), TENSOR(zero, 3)}, out;
    capture_case t;

    if (!capture_case_open(&t, "double", twice, &options))
        goto done;
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_CAPTURED))
        air_value_release(&out);
    in[0].data = c;
    if (capture_case_run(&t, 2, in, 1, &out, AIR_CALL_REPLAYED))
        is_twice(&out, c);
    CHECK_NEAR(a[0], 9, 0);
    CHECK_INT(capture_double.patches, 0); /* addresses never change */
done:
    capture_case_close(&t);
}

/* By default a result that lies in an input lies in the caller's tensor; with
 * an explicit choice in the first one's, per key (trap: per capture object). */
TEST(capture_results_in_inputs)
{
    air_capture_options options = {0};
    capture_case t;

    for (int mode = AIR_CHOICE_DEFAULT; mode <= AIR_CHOICE_OFF; mode++) {
        float a[6] = {1, 2, 3, 4, 5, 6}, c[6] = {9, 8, 7, 6, 5, 4};
        air_value in[2] = {TENSOR(a, 2, 3), TENSOR(zero, 3)}, out[2];
        options.clone_input = (air_choice)mode;
        if (capture_case_open(&t, "cpu", aliased, &options)) {
            if (capture_case_run(&t, 2, in, 2, out, AIR_CALL_CAPTURED)) {
                CHECK(out[0].data == a && out[0].alias == 0);
                air_value_release(&out[1]);
            }
            in[0].data = c;
            if (capture_case_run(&t, 2, in, 2, out, AIR_CALL_REPLAYED)) {
                CHECK(out[0].data == (mode == AIR_CHOICE_DEFAULT ? c : a));
                CHECK_NEAR(((float *)out[0].data)[0], 9, 0);
                CHECK_NEAR(((float *)out[1].data)[0], 9, 0);
                CHECK_NEAR(a[0], mode == AIR_CHOICE_DEFAULT ? 1 : 9, 0);
                air_value_release(&out[1]);
            }
        }
        capture_case_close(&t);
    }
}

/* ---- clone_output ---- */

TEST(capture_static_results_are_overwritten)
{
    const air_capture_options options = {.clone_output = AIR_CHOICE_OFF};
    float x[6] = {1, 2, 3, 4, 5, 6};
    air_value in[2] = {TENSOR(x, 2, 3), TENSOR(zero, 3)}, one, two;
    capture_case t;

    if (!capture_case_open(&t, "cpu", twice, &options))
        goto done;
    if (!capture_case_run(&t, 2, in, 1, &one, AIR_CALL_CAPTURED))
        goto done;
    x[0] = 7;
    if (capture_case_run(&t, 2, in, 1, &two, AIR_CALL_REPLAYED)) {
        CHECK(one.data == two.data);
        CHECK_NEAR(((float *)one.data)[0], 14, 0);
        air_value_release(&two);
    }
    air_value_release(&one);
done:
    capture_case_close(&t);
}

/* Captures of one program lie on each other; results that somebody holds stay
 * where they are until he lets them go. */
TEST(capture_static_results_of_several_keys)
{
    const air_capture_options options = {.clone_output = AIR_CHOICE_OFF};
    static float x[1024];
    air_value in[2] = {TENSOR(x, 2, 256), TENSOR(zero, 256)};
    air_value small, again, large;
    capture_case t;

    if (!capture_case_open(&t, "cpu", twice, &options))
        goto done;
    if (!capture_case_run(&t, 2, in, 1, &small, AIR_CALL_CAPTURED))
        goto done;
    in[0] = TENSOR(x, 4, 256);
    if (!capture_case_run(&t, 2, in, 1, &large, AIR_CALL_CAPTURED))
        goto done;
    in[0] = TENSOR(x, 2, 256);
    if (capture_case_run(&t, 2, in, 1, &again, AIR_CALL_REPLAYED)) {
        CHECK(again.data == small.data); /* held: it stays */
        CHECK(again.data != large.data);
        air_value_release(&again);
    }
    air_value_release(&small);
    if (capture_case_run(&t, 2, in, 1, &again, AIR_CALL_REPLAYED)) {
        CHECK(again.data == large.data); /* nobody held it */
        air_value_release(&again);
    }
    air_value_release(&large);
done:
    capture_case_close(&t);
}

TEST(capture_static_results_apart)
{
    const air_capture_options options = {.clone_output = AIR_CHOICE_OFF,
                                         .keep_apart = true};
    static float x[1024];
    air_value in[2] = {TENSOR(x, 4, 256), TENSOR(zero, 256)}, out;
    void *large, *small;
    capture_case t;

    if (!capture_case_open(&t, "cpu", twice, &options))
        goto done;
    REQUIRE_OK(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out));
    large = out.data;
    air_value_release(&out);
    in[0] = TENSOR(x, 2, 256);
    REQUIRE_OK(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out));
    small = out.data;
    CHECK(small != large);
    air_value_release(&out);
    in[0] = TENSOR(x, 4, 256);
    REQUIRE_OK(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out));
    CHECK(out.data == large);
    air_value_release(&out);
done:
    capture_case_close(&t);
}

/* ---- memory ---- */

static const char chain[] =
    "graph f(%x: f32[s0, 64], %w: f32[64, 64] param) {\n"
    "  %1: f32[s0, 64] = mm(%x, %w)\n"
    "  %2: f32[s0, 64] = _softmax(%1, -1, false)\n"
    "  %3: f32[s0, 64] = mm(%2, %w)\n"
    "  %4: f32[s0, 64] = _softmax(%3, -1, false)\n"
    "  return %4\n"
    "}\n";

enum { ROWS = 12 * 64 };

/* Runs lengths 64, 128 ... (or the last only), holding the result before;
 * returns the bytes that the pool has mapped. */
static uint64_t
mapped_after(const char *driver, bool all, bool down)
{
    static float x[ROWS * 64], w[64 * 64];
    air_graph_pool *pool = NULL;
    air_capture_options options = {0};
    air_graph_pool_stats stats = {0};
    air_value in[2] = {TENSOR(x, 64, 64), TENSOR(w, 64, 64)}, held, out;
    capture_case t;

    held = (air_value){.alias = -1};
    if (capture_case_open(&t, driver, chain, NULL) &&
        CHECK_OK(air_graph_pool_create(t.ctx, &pool))) {
        options.pool = pool;
        if (!capture_case_again(&t, &options))
            goto done;
        for (int i = all ? 1 : 12; i <= 24; i++) {
            const int step = i > 12 ? (all ? i - 12 : 12) : i;
            in[0] = TENSOR(x, 64 * (down ? 13 - step : step), 64);
            if (!CHECK_OK(
                    air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out)))
                break;
            air_value_release(&held);
            held = out;
        }
        air_graph_pool_get_stats(pool, &stats);
        CHECK_INT(stats.captures, all ? 12 : 1);
    }
done:
    air_value_release(&held);
    air_graph_pool_release(pool);
    capture_case_close(&t);
    return stats.mapped_bytes;
}

TEST(capture_memory_of_twelve_lengths)
{
    const uint64_t one = mapped_after("cpu", false, false);

    CHECK(one > 0);
    CHECK(mapped_after("cpu", true, false) * 10 <= one * 12);
    CHECK(mapped_after("cpu", true, true) * 10 <= one * 12);
}

TEST(capture_memory_is_shared_by_programs)
{
    static float x[ROWS * 64], w[64 * 64];
    air_value in[2] = {TENSOR(x, ROWS, 64), TENSOR(w, 64, 64)}, out;
    air_graph_pool *pool = NULL, *same = NULL;
    air_graph_pool_stats stats;
    air_capture_options options = {0};
    air_program *second = NULL;
    air_capture *other = NULL;
    air_capture_call call = {0};
    uint64_t mapped;
    capture_case t;

    if (!capture_case_open(&t, "cpu", chain, NULL) ||
        !CHECK_OK(air_graph_pool_create(t.ctx, &pool)))
        goto done;
    air_graph_pool_get_stats(pool, &stats);
    REQUIRE_OK(air_graph_pool_find(t.ctx, stats.id, &same));
    CHECK(same == pool);
    options.pool = pool;
    if (!capture_case_again(&t, &options))
        goto done;
    REQUIRE_OK(air_program_create(t.ctx, t.graph, NULL, &second));
    REQUIRE_OK(air_capture_create(second, &options, &other));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(air_capture_run(t.capture, &t.call, NULL, 2, in, 1, &out));
        air_value_release(&out);
        air_graph_pool_get_stats(pool, &stats);
        if (i == 0)
            mapped = stats.mapped_bytes;
        REQUIRE_OK(air_capture_run(other, &call, NULL, 2, in, 1, &out));
        air_value_release(&out);
    }
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.mapped_bytes, mapped);
    CHECK_INT(stats.captures, 2);
    air_graph_pool_mark_step(pool);
    REQUIRE_OK(air_capture_run(other, &call, NULL, 2, in, 1, &out));
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.generation, 1);
    CHECK_INT(stats.stale_blocks, 0);
    air_graph_pool_mark_step(pool);
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.stale_blocks, 1); /* held, and not overwritten */
    air_value_release(&out);
    air_graph_pool_trim(pool);
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.mapped_bytes, 0);
    REQUIRE_OK(air_capture_run(other, &call, NULL, 2, in, 1, &out));
    air_value_release(&out);
    air_capture_reset(other);
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.captures, 1);
    CHECK(stats.mapped_bytes > 0);
    air_capture_reset(t.capture); /* the last one: nothing is kept */
    air_graph_pool_get_stats(pool, &stats);
    CHECK_INT(stats.captures, 0);
    CHECK_INT(stats.largest_bytes, 0);
    CHECK_INT(stats.mapped_bytes, 0);
done:
    air_capture_destroy(other);
    air_program_destroy(second);
    air_graph_pool_release(pool);
    air_graph_pool_release(same);
    capture_case_close(&t);
}
