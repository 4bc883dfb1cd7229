/* test_exec.c: programs from text graphs: places, steps, runs, errors. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "air.h"
#include "program_case.h"
#include "test.h"

#define TENSOR(data, ...)                                                \
    air_value_tensor((data), AIR_F32,                                    \
                     sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                     (const int64_t[]){__VA_ARGS__})

TEST(exec_pointwise)
{
    const char *text = "graph f(%x: f32[s0, 4], %b: f32[4]) {\n"
                       "  %1: f32[s0, 4] = add.Tensor(%x, %b)\n"
                       "  %2: f32[s0, 4] = relu(%1)\n"
                       "  return %2\n"
                       "}\n";
    float x[8] = {-3, 1, 2, 3, 4, -9, 6, 7}, b[4] = {1, 1, 1, 1};
    const air_value in[] = {TENSOR(x, 2, 4), TENSOR(b, 4)};
    const float want[8] = {0, 2, 3, 4, 5, 0, 7, 8};
    air_program_stats stats;
    air_value out;
    program_case f;

    if (!pcase_begin(&f, text, NULL))
        goto done;
    for (int i = 0; i < 3; i++) {
        if (!CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out)))
            goto done;
        CHECK_INT(out.rank, 2);
        CHECK_INT(out.dims[0], 2);
        for (int k = 0; k < 8; k++)
            CHECK_NEAR(((float *)out.data)[k], want[k], 0);
        air_value_release(&out);
    }
    air_program_get_stats(f.program, &stats);
    CHECK_INT(stats.runs, 3);
    CHECK_INT(stats.specialisations, 1);
    CHECK_INT(stats.regions, 1);
done:
    pcase_end(&f);
}

/* One program serves all sizes of a symbol; strides are read at run time. */
TEST(exec_sizes_and_strides)
{
    const char *text = "graph f(%x: f32[s0, s1]) {\n"
                       "  %1: f32[s0, s1] = mul.Tensor(%x, 2.0)\n"
                       "  return %1\n"
                       "}\n";
    float x[12];
    const int64_t dims[2] = {3, 4}, strides[2] = {1, 3};
    air_value in = TENSOR(x, 3, 4), out;
    program_case f;

    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    if (!pcase_begin(&f, text, NULL))
        goto done;
    in.dims = dims;
    in.strides = strides; /* x transposed */
    if (CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 4; c++)
                CHECK_NEAR(((float *)out.data)[r * 4 + c], 2.0 * (r + 3.0 * c),
                           0);
        air_value_release(&out);
    }
    in = TENSOR(x, 1, 5);
    if (CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        CHECK_INT(out.dims[1], 5);
        air_value_release(&out);
    }
    in = TENSOR(x, 0, 5); /* symbols are at least 1 unless a line says else */
    CHECK_FAILS(air_program_run(f.program, NULL, 1, &in, 1, &out), SHAPE);
done:
    pcase_end(&f);
}

/* Which exponential the region of a graph over [4, 64] computes. */
static bool
uses_expneg(const char *lines)
{
    char text[512], *steps = NULL;
    static float x[2][4 * 64];
    const air_value in[] = {TENSOR(x[0], 4, 64), TENSOR(x[1], 4, 64)};
    air_value out;
    bool found = false;
    program_case f;

    snprintf(text, sizeof text,
             "graph f(%%x: f32[4, 64], %%y: f32[4, 64]) {\n%s  return %%r\n}\n",
             lines);
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        air_value_release(&out);
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
        found = steps && strstr(steps, "EXPNEG");
        CHECK(steps && strstr(steps, "EXP"));
        air_program_text_free(f.program, steps);
    }
    pcase_end(&f);
    return found;
}

TEST(exec_exp_below_max)
{
    CHECK(uses_expneg("  %r = _softmax(%x, -1, false)\n"));
    CHECK(uses_expneg("  %r = _log_softmax(%x, -1, false)\n"));
    CHECK(uses_expneg("  %z = mul.Tensor(%x, %y)\n"
                      "  %r = _softmax(%z, -1, false)\n"));
    CHECK(!uses_expneg("  %r = exp(%x)\n"));
    CHECK(uses_expneg("  %m = amax(%x, [-1], true)\n"
                      "  %d = sub.Tensor(%x, %m)\n"
                      "  %r = exp(%d)\n"));
    CHECK(!uses_expneg("  %m = amax(%y, [-1], true)\n"
                       "  %d = sub.Tensor(%x, %m)\n"
                       "  %r = exp(%d)\n"));
    CHECK(!uses_expneg("  %m = amin(%x, [-1], true)\n"
                       "  %d = sub.Tensor(%x, %m)\n"
                       "  %r = exp(%d)\n"));
    CHECK(!uses_expneg("  %m = amax(%x, [-1], true)\n"
                       "  %d = sub.Tensor(%x, %m, alpha=0.5)\n"
                       "  %r = exp(%d)\n"));
    CHECK(!uses_expneg("  %m = amax(%x, [-1], true)\n"
                       "  %d = sub.Tensor(%m, %x)\n"
                       "  %r = exp(%d)\n"));
}

TEST(exec_softmax_of_rows)
{
    const char *text = "graph f(%x: f32[s0, s1]) {\n"
                       "  %1: f32[s0, s1] = _softmax(%x, -1, false)\n"
                       "  return %1\n"
                       "}\n";
    enum { ROWS = 5, COLS = 777 };
    static float x[ROWS * COLS];
    air_value in = TENSOR(x, ROWS, COLS), out;
    air_program_stats stats;
    program_case f;

    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)((i * 7919) % 1000) / 100.0f - 5.0f;
    if (!pcase_begin(&f, text, NULL))
        goto done;
    if (!CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out)))
        goto done;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < COLS; c++)
            sum += exp((double)x[r * COLS + c]);
        for (int c = 0; c < COLS; c++)
            CHECK_NEAR(((float *)out.data)[r * COLS + c],
                       exp((double)x[r * COLS + c]) / sum, 1e-8);
    }
    air_value_release(&out);
    air_program_get_stats(f.program, &stats);
    CHECK_INT(stats.regions, 1);
done:
    pcase_end(&f);
}

/* Results keep their memory while somebody holds them. */
TEST(exec_outputs_are_not_overwritten)
{
    const char *text = "graph f(%x: f32[4]) {\n"
                       "  %1: f32[4] = mul.Tensor(%x, 3.0)\n"
                       "  return %1\n"
                       "}\n";
    float x[4] = {1, 2, 3, 4};
    const air_value in = TENSOR(x, 4);
    air_value a, b;
    air_pool_stats pool;
    program_case f;

    if (!pcase_begin(&f, text, NULL))
        goto done;
    REQUIRE_OK(air_program_run(f.program, NULL, 1, &in, 1, &a));
    x[0] = 10;
    REQUIRE_OK(air_program_run(f.program, NULL, 1, &in, 1, &b));
    CHECK_NEAR(((float *)a.data)[0], 3, 0);
    CHECK_NEAR(((float *)b.data)[0], 30, 0);
    air_context_get_pool_stats(f.ctx, &pool);
    CHECK_INT(pool.live_blocks, 2);
    air_value_release(&a);
    air_value_release(&b);
    air_context_get_pool_stats(f.ctx, &pool);
    CHECK_INT(pool.live_blocks, 0);
done:
    pcase_end(&f);
}

/* One region along memory: no copy, and no blocks of transposed elements. */
TEST(exec_result_is_made_with_its_strides)
{
    const char *text = "graph f(%x: f32[2, 3]) {\n"
                       "  %1: f32[3, 2] = permute(%x, [1, 0])\n"
                       "  %2: f32[3, 2] = add.Tensor(%1, 1.0)\n"
                       "  return %2 strides [1, 3], %2\n"
                       "}\n";
    float x[6] = {0, 1, 2, 3, 4, 5};
    const air_value in = TENSOR(x, 2, 3);
    air_value out[2];
    char *steps = NULL;
    program_case f;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 2, out))) {
        CHECK_INT(out[0].strides[1], 3);
        CHECK_INT(out[1].strides[0], 2);
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(((float *)out[0].data)[i], i + 1, 0);
        CHECK_NEAR(((float *)out[1].data)[1], 4, 0);
        air_value_release(&out[0]);
        air_value_release(&out[1]);
    }
    if (f.program &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps)))
        CHECK(strstr(steps, "region add\n  map [6]\n") != NULL);
    air_program_text_free(f.program, steps);
    pcase_end(&f);
}

/* Kernels that only move elements write any strides, too. */
TEST(exec_move_is_made_with_its_strides)
{
    const char *text = "graph f(%x: f32[2, 3]) {\n"
                       "  %1: f32[3, 2] = permute(%x, [1, 0])\n"
                       "  %2: f32[3, 2] = flip(%1, [0])\n"
                       "  return %2 strides [1, 3]\n"
                       "}\n";
    float x[6] = {0, 1, 2, 3, 4, 5};
    const float want[6] = {2, 1, 0, 5, 4, 3};
    const air_value in = TENSOR(x, 2, 3);
    air_value out;
    char *steps = NULL;
    program_case f;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        CHECK_INT(out.strides[1], 3);
        for (int i = 0; i < 6; i++)
            CHECK_NEAR(((float *)out.data)[i], want[i], 0);
        air_value_release(&out);
    }
    if (f.program &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps)))
        CHECK(strstr(steps, "call flip") && !strstr(steps, "copy"));
    air_program_text_free(f.program, steps);
    pcase_end(&f);
}

static bool
runs_across(const char *text, const float *x, int64_t rows, int64_t cols)
{
    const air_value in = TENSOR((float *)(uintptr_t)x, rows, cols);
    air_value out;
    char *steps = NULL;
    program_case f;
    bool across = false;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        CHECK_NEAR(((float *)out.data)[0], cols, 0);
        air_value_release(&out);
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
        across = strstr(steps, "inner across [") != NULL;
        air_program_text_free(f.program, steps);
    }
    pcase_end(&f);
    return across;
}

/* Kept axes are one where memory goes on from one to the next. */
TEST(exec_folds_long_rows)
{
    const char *text = "graph f(%x: f32[5, 4, 8]) {\n"
                       "  %1 = sum.dim_IntList(%x, [0])\n  return %1\n}\n";
    const air_value in = TENSOR((float[160]){0}, 5, 4, 8);
    char *steps = NULL;
    air_value out;
    program_case f;
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        air_value_release(&out);
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
        CHECK(strstr(steps, "outer [5, 32]"));
        air_program_text_free(f.program, steps);
    }
    pcase_end(&f);
}

/* The shape decides, not the threads or the machine; rows that are only summed
 * may be longer. */
TEST(exec_short_rows_run_across)
{
    const char *plain = "graph f(%x: f32[s0, s1]) {\n"
                        "  %1: f32[s0] = sum.dim_IntList(%x, [1], false)\n"
                        "  return %1\n"
                        "}\n";
    const char *squares = "graph f(%x: f32[s0, s1]) {\n"
                          "  %1: f32[s0, s1] = mul.Tensor(%x, %x)\n"
                          "  %2: f32[s0] = sum.dim_IntList(%1, [1], false)\n"
                          "  return %2\n"
                          "}\n";
    const char *most = "graph f(%x: f32[s0, s1]) {\n"
                       "  %1: f32[s0, s1] = mul.Tensor(%x, s1)\n"
                       "  %2: f32[s0] = amax(%1, [1], false)\n"
                       "  return %2\n"
                       "}\n";
    static float x[16 * 1100];

    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = 1;
    CHECK(runs_across(squares, x, 40, 7));
    CHECK(runs_across(squares, x, 16, 11));
    CHECK(!runs_across(squares, x, 16, 12)); /* sums have an order */
    CHECK(runs_across(most, x, 16, 31));
    CHECK(!runs_across(most, x, 16, 32));
    CHECK(!runs_across(squares, x, 40, 100));
    CHECK(!runs_across(squares, x, 3, 7));
    CHECK(runs_across(plain, x, 40, 100));
    CHECK(runs_across(plain, x, 16, 1024));
    CHECK(!runs_across(plain, x, 15, 1024));
    CHECK(!runs_across(plain, x, 16, 1100));
    CHECK(!runs_across(plain, x, 3, 7));
}

/* Bytes that are only moved are not taken for numbers that might wrap. */
TEST(exec_copies_of_short_integers_are_copies)
{
    const char *text = "graph f(%x: u8[2, 3]) {\n"
                       "  %1: u8[3, 2] = permute(%x, [1, 0])\n"
                       "  %2: u8[3, 2] = clone(%1)\n"
                       "  return %2\n"
                       "}\n";
    uint8_t x[6] = {0, 1, 2, 253, 254, 255};
    const air_value in =
        air_value_tensor(x, AIR_U8, 2, (const int64_t[]){2, 3});
    air_value out;
    char *steps = NULL;
    program_case f;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        CHECK_INT(((uint8_t *)out.data)[1], 253);
        CHECK_INT(((uint8_t *)out.data)[5], 255);
        air_value_release(&out);
    }
    if (f.program &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps)))
        CHECK(strstr(steps, "WRAP") == NULL);
    air_program_text_free(f.program, steps);
    pcase_end(&f);
}

typedef struct {
    size_t at; /* the input that is wrong */
    air_value value;
    air_status code;
    const char *text;
} bad_input;

/* By a run, and by a capture; a good call works as before. */
static void
check_bad_input(const program_case *f, air_capture *capture,
                const air_value *good, const bad_input *bad)
{
    air_value in[3] = {good[0], good[1], good[2]}, out;
    air_capture_call call = {0};

    in[bad->at] = bad->value;
    if (CHECK_INT(air_program_run(f->program, NULL, 3, in, 1, &out), bad->code))
        CHECK_STR(air_last_error()->message, bad->text);
    CHECK_INT(out.alias, -1);
    if (CHECK_INT(air_capture_run(capture, &call, NULL, 3, in, 1, &out),
                  bad->code))
        CHECK_STR(air_last_error()->message, bad->text);
    if (CHECK_OK(air_program_run(f->program, NULL, 3, good, 1, &out)))
        air_value_release(&out);
}

TEST(exec_bad_inputs_name_the_input)
{
    const char *text =
        "sym s0 = [1, 9]\n"
        "graph f(%x: f32[s0, 4], n: int, %y.bias: f32[s0] param) {\n"
        "  %1: f32[s0, 4] = mul.Tensor(%x, 2.0)\n"
        "  return %1\n"
        "}\n";
    float x[8] = {0};
    const air_value good[3] = {
        TENSOR(x, 2, 4), {.is_int = true, .i = 5, .alias = -1}, TENSOR(x, 2)};
    const int64_t minus[2] = {2, -4}, huge[2] = {1ll << 62, 4};
    const int64_t wide[2] = {1ll << 60, 4}; /* its bytes are too many */
    const air_value seven = {.is_int = true, .i = 7, .alias = -1};
    const bad_input bad[] = {
        {0, air_value_tensor(x, AIR_F64, 2, good[0].dims), AIR_ERROR_DTYPE,
         "%x (input 0 of graph f) is f64, the graph wants f32"},
        {0, TENSOR(x, 8), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has 1 dims, the graph wants 2"},
        {0, TENSOR(x, 2, 3), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has size 3 in dim 1, the graph wants 4"},
        {0, air_value_tensor(x, AIR_F32, 9, minus), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has 9 dims, at most 8 are supported"},
        {0, air_value_tensor(x, AIR_F32, 2, minus), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f): dim 1 is negative"},
        {0, air_value_tensor(x, AIR_F32, 2, huge), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has too many elements"},
        {0, air_value_tensor(x, AIR_F32, 2, wide), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has too many elements"},
        {0, air_value_tensor(x, AIR_F32, 2, NULL), AIR_ERROR_ARGUMENT,
         "%x (input 0 of graph f): dims is NULL"},
        {0, TENSOR(x, 10, 4), AIR_ERROR_SHAPE,
         "%x (input 0 of graph f) has s0 = 10, outside [1, 9]"},
        {0, seven, AIR_ERROR_ARGUMENT,
         "%x (input 0 of graph f) must be a tensor"},
        {1, TENSOR(x, 2), AIR_ERROR_ARGUMENT,
         "n (input 1 of graph f) must be an integer"},
        {2, TENSOR(x, 3), AIR_ERROR_SHAPE,
         "%y.bias (input 2 of graph f) has size 3 in dim 0, the graph wants 2"},
        {2, TENSOR(NULL, 2), AIR_ERROR_ARGUMENT,
         "%y.bias (input 2 of graph f) has no memory"},
    };
    air_capture *capture = NULL;
    air_value out;
    program_case f;

    if (!pcase_begin(&f, text, NULL) ||
        !CHECK_OK(air_capture_create(f.program, NULL, &capture)))
        goto done;
    CHECK_FAILS(air_program_run(f.program, NULL, 2, good, 1, &out), ARGUMENT);
    CHECK_FAILS(air_program_run(f.program, NULL, 4, good, 1, &out), ARGUMENT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad_input(&f, capture, good, &bad[i]);
done:
    air_capture_destroy(capture);
    pcase_end(&f);
}

TEST(exec_nothing_has_no_greatest_element)
{
    const char *text = "sym s0 = [0, 9]\n"
                       "graph f(%x: f32[s0]) {\n"
                       "  %1: f32[] = max(%x)\n"
                       "  return %1\n}\n";
    const air_value none = TENSOR(NULL, 0);
    air_value out;
    program_case f;

    if (pcase_begin(&f, text, NULL)) {
        CHECK_FAILS(air_program_run(f.program, NULL, 1, &none, 1, &out),
                    UNSUPPORTED);
        CHECK_STR(air_last_error()->message, "graph f: max of nothing");
    }
    pcase_end(&f);
}

TEST(exec_sizes_below_zero_are_refused)
{
    const char *text =
        "sym s0 = [0, 9]\n"
        "graph f(%x: f32[1, 2, s0], %w: f32[1, 2, 2]) {\n"
        "  %1: f32[1, 1, s0 - 1] = convolution(%x, %w, none, [1], [0], [1],"
        " false, [0], 1)\n"
        "  return %1\n"
        "}\n";
    float x[4] = {1, 2, 3, 4}, w[4] = {1, 1, 1, 1};
    const air_value none[2] = {TENSOR(x, 1, 2, 0), TENSOR(w, 1, 2, 2)};
    const air_value one[2] = {TENSOR(x, 1, 2, 1), TENSOR(w, 1, 2, 2)};
    const air_value two[2] = {TENSOR(x, 1, 2, 2), TENSOR(w, 1, 2, 2)};
    air_value out;
    program_case f;

    if (!pcase_begin(&f, text, NULL))
        goto done;
    CHECK_FAILS(air_program_run(f.program, NULL, 2, none, 1, &out), SHAPE);
    CHECK_STR(air_last_error()->message,
              "graph f: a result would have size -1 in dim 2; its inputs are "
              "too small (convolution, no location)");
    if (CHECK_OK(air_program_run(f.program, NULL, 2, one, 1, &out))) {
        CHECK_INT(out.dims[2], 0);
        air_value_release(&out);
    }
    if (CHECK_OK(air_program_run(f.program, NULL, 2, two, 1, &out))) {
        CHECK_NEAR(*(const float *)out.data, 10, 0);
        air_value_release(&out);
    }
done:
    pcase_end(&f);
}

/* ---- HOST nodes ---- */

static int done_calls;

static air_status
host_triple(void *user, uint32_t id, size_t nin, const air_value *in,
            size_t nout, air_value *outs)
{
    const float *x = in[0].data;
    float *y = outs[0].data;

    CHECK(user == &done_calls && id == 7 && nin == 1 && nout == 1);
    for (int64_t i = 0; i < in[0].dims[0]; i++)
        y[i] = 3 * x[i];
    outs[0].block = &done_calls;
    return AIR_OK;
}

static void
host_done(void *user, void *token)
{
    CHECK(user == token);
    done_calls++;
}

TEST(exec_host_node_between_regions)
{
    const char *text = "graph f(%x: f32[s0]) {\n"
                       "  %1: f32[s0] = add.Tensor(%x, 1.0)\n"
                       "  %2: f32[s0] = host \"my::triple\" 7 \"no row\" (%1)\n"
                       "  %3: f32[s0] = add.Tensor(%2, 1.0)\n"
                       "  return %3\n"
                       "}\n";
    const air_host host = {
        .user = &done_calls, .call = host_triple, .done = host_done};
    float x[4] = {1, 2, 3, 4};
    const air_value in = TENSOR(x, 4);
    air_value out;
    program_case f;

    done_calls = 0;
    if (!pcase_begin(&f, text, NULL))
        goto done;
    CHECK_FAILS(air_program_run(f.program, NULL, 1, &in, 1, &out), ARGUMENT);
    if (CHECK_OK(air_program_run(f.program, &host, 1, &in, 1, &out))) {
        for (int i = 0; i < 4; i++)
            CHECK_NEAR(((float *)out.data)[i], 3 * (x[i] + 1) + 1, 0);
        air_value_release(&out);
    }
    CHECK_INT(done_calls, 1);
done:
    pcase_end(&f);
}

static air_status
host_view(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
          air_value *outs)
{
    (void)user;
    (void)id;
    CHECK(nin == 1 && nout == 1);
    outs[0].data = in[0].data; /* a view of the input */
    return AIR_OK;
}

/* The input's memory may serve another value while the view is alive. */
TEST(exec_host_result_that_views_its_input)
{
    const char *text = "graph f(%x: f32[64]) {\n"
                       "  %1: f32[64] = add.Tensor(%x, 1.0)\n"
                       "  %2: f32[64] = host \"my::view\" 1 \"no row\" (%1)\n"
                       "  %3: f32[64] = host \"my::view\" 1 \"no row\" (%x)\n"
                       "  %4: f32[64] = mul.Tensor(%3, 5.0)\n"
                       "  %5: f32[64] = host \"my::view\" 1 \"no row\" (%4)\n"
                       "  %6: f32[64] = add.Tensor(%5, %2)\n"
                       "  return %6\n"
                       "}\n";
    const air_host host = {.call = host_view};
    float x[64];
    const air_value in = TENSOR(x, 64);
    air_value out;
    program_case f;

    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, &host, 1, &in, 1, &out))) {
        for (int i = 0; i < 64; i++)
            CHECK_NEAR(((float *)out.data)[i], 6.0 * i + 1, 0);
        air_value_release(&out);
    }
    pcase_end(&f);
}

TEST(exec_steady_state_does_not_allocate)
{
    const char *text = "graph f(%x: f32[64, 64], %w: f32[64, 64]) {\n"
                       "  %1: f32[64, 64] = mm(%x, %w)\n"
                       "  %2: f32[64, 64] = relu(%1)\n"
                       "  return %2\n"
                       "}\n";
    static float x[64 * 64], w[64 * 64];
    const air_value in[2] = {TENSOR(x, 64, 64), TENSOR(w, 64, 64)};
    test_alloc counter;
    const air_options options = {.alloc = &counter.alloc, .threads = 2};
    air_value out;
    long before = 0;
    program_case f;

    test_alloc_init(&counter);
    if (!pcase_begin(&f, text, &options))
        goto done;
    for (int i = 0; i < 1000; i++) {
        if (!CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out)))
            break;
        air_value_release(&out);
        if (i == 2)
            before = counter.calls;
    }
    CHECK_INT(counter.calls, before);
done:
    pcase_end(&f);
    CHECK_CLEAN(&counter);
}

TEST(exec_reductions_of_rank_0)
{
    static const char *const ops[] = {"sum", "amax", "amin", "any"};
    float x = -2.5f;
    const air_value in = air_value_tensor(&x, AIR_F32, 0, NULL);
    air_value out;
    char text[256];
    program_case f;

    for (size_t i = 0; i < 4; i++) {
        snprintf(text, sizeof text,
                 "graph f(%%x: f32[]) {\n  %%1 = %s(%%x)\n  return %%1\n}\n",
                 ops[i]);
        if (pcase_begin(&f, text, NULL) &&
            CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
            if (out.dtype == AIR_BOOL)
                CHECK_INT(*(uint8_t *)out.data, 1);
            else
                CHECK_NEAR(*(float *)out.data, -2.5, 0);
            CHECK_INT(out.alias, -1);
            air_value_release(&out);
        }
        pcase_end(&f);
    }
}

/* A dense copy made for one reader is not the input that is written later. */
TEST(exec_dense_copies_serve_one_step)
{
    const char *text = "graph f(%x: f32[2, 1, 4, 4]) {\n"
                       "  %t: f32[2, 1, 4, 4] = permute(%x, [0, 1, 3, 2])\n"
                       "  %p: f32[2, 1, 2, 2] = avg_pool2d(%t, [2, 2])\n"
                       "  %s: f32[2, 1, 4, 4] = mul.Tensor(%x, 10.0)\n"
                       "  %c: f32[2, 1, 4, 4] = copy_(%x, %s)\n"
                       "  return %p\n"
                       "}\n";
    float x[32];
    const air_value in = TENSOR(x, 2, 1, 4, 4);
    air_value out;
    program_case f;

    for (int i = 0; i < 32; i++)
        x[i] = (float)i;
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        CHECK_NEAR(((float *)out.data)[1], (8 + 9 + 12 + 13) / 4.0, 0);
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(x[i], 10.0 * i, 0);
        air_value_release(&out);
    }
    pcase_end(&f);
}

/* ---- several threads ---- */

typedef struct {
    program_case *f;
    int64_t rows;
    bool ok;
} runner;

static void *
run_many(void *arg)
{
    runner *r = arg;
    enum { COLS = 300 };
    float *x = malloc((size_t)r->rows * COLS * sizeof *x);
    const int64_t dims[2] = {r->rows, COLS};
    air_value in = air_value_tensor(x, AIR_F32, 2, dims), out;

    r->ok = x != NULL;
    for (int i = 0; x && i < r->rows * COLS; i++)
        x[i] = (float)(i % 100);
    for (int i = 0; i < 200 && r->ok; i++) {
        r->ok = air_program_run(r->f->program, NULL, 1, &in, 1, &out) == AIR_OK;
        if (!r->ok)
            break;
        for (int64_t k = 0; k < r->rows; k++)
            r->ok &= ((float *)out.data)[k] == 2 * 14850.0f;
        air_value_release(&out);
    }
    free(x);
    return NULL;
}

TEST(exec_threads_share_a_program)
{
    const char *text = "graph f(%x: f32[s0, s1]) {\n"
                       "  %1: f32[s0] = sum.dim_IntList(%x, [-1])\n"
                       "  %2: f32[s0] = mul.Tensor(%1, 2.0)\n"
                       "  return %2\n"
                       "}\n";
    const air_options options = {.threads = 2};
    pthread_t threads[4];
    runner runners[4];
    program_case f;

    if (!pcase_begin(&f, text, &options))
        goto done;
    for (int i = 0; i < 4; i++) {
        runners[i] = (runner){&f, 1 + 40 * i, false};
        REQUIRE(pthread_create(&threads[i], NULL, run_many, &runners[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(runners[i].ok);
    }
done:
    pcase_end(&f);
}

/* ---- cpu against ref ---- */

static void
compare_with_ref(const char *text, const air_value *in, size_t nin)
{
    const air_options ref = {.driver = "ref"}, cpu = {.threads = 2};
    air_value a, b;
    program_case fa, fb;

    if (pcase_begin(&fa, text, &ref) & pcase_begin(&fb, text, &cpu) &&
        CHECK_OK(air_program_run(fa.program, NULL, nin, in, 1, &a)) &&
        CHECK_OK(air_program_run(fb.program, NULL, nin, in, 1, &b))) {
        int64_t n = 1;
        for (int i = 0; i < a.rank; i++)
            n *= a.dims[i];
        for (int64_t i = 0; i < n; i++)
            if (!CHECK_NEAR(((float *)b.data)[i], ((float *)a.data)[i],
                            1e-5 * (1 + fabs((double)((float *)a.data)[i]))))
                break;
        air_value_release(&a);
        air_value_release(&b);
    }
    pcase_end(&fa);
    pcase_end(&fb);
}

TEST(exec_reductions_over_any_axes)
{
    static const char *const axes[] = {"[0]",    "[1]",    "[2]",      "[1, 2]",
                                       "[0, 1]", "[0, 2]", "[0, 1, 2]"};
    static float x[9 * 37 * 20];
    const air_value in = TENSOR(x, 9, 37, 20);
    char text[512];

    for (int i = 0; i < 9 * 37 * 20; i++)
        x[i] = (float)((i * 7919) % 1000) / 500.0f - 1.0f;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        bool a0 = strchr(axes[i], '0'), a1 = strchr(axes[i], '1'),
             a2 = strchr(axes[i], '2');
        snprintf(text, sizeof text,
                 "graph f(%%x: f32[9, 37, 20]) {\n"
                 "  %%1: f32[9, 37, 20] = mul.Tensor(%%x, %%x)\n"
                 "  %%2: f32[%d, %d, %d] = sum.dim_IntList(%%1, %s, true)\n"
                 "  %%3: f32[%d, %d, %d] = sqrt(%%2)\n"
                 "  %%4: f32[9, 37, 20] = div.Tensor(%%1, %%3)\n"
                 "  return %%4\n"
                 "}\n",
                 a0 ? 1 : 9, a1 ? 1 : 37, a2 ? 1 : 20, axes[i], a0 ? 1 : 9,
                 a1 ? 1 : 37, a2 ? 1 : 20);
        compare_with_ref(text, &in, 1);
    }
}
