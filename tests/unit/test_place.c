/* test_place.c: where values of a program lie: parts of a cat, results
 * with strides, copies that stand for what a step cannot read. Both devices
 * share this code, so what is right stands here as numbers. */
#include <math.h>

#include "air.h"
#include "program_case.h"
#include "test.h"

/* Inputs are f32; none for rank -1. */
typedef struct {
    int rank;
    int64_t dims[4], strides[4];
} layout;

typedef struct {
    const char *name, *text;
    layout in[2];
    /* what the steps say, and do not, and the memory plan says; or NULL */
    const char *steps, *no_steps, *plan;
    int results; /* 0: one */
    int count;   /* numbers of the first result, as they lie in memory */
    float want[24];
    float after[2][24]; /* the inputs after the run; 0 first: not checked */
} example;

static float memory[2][256];

static int
make_inputs(const example *e, air_value *in)
{
    int count = 0;

    for (; count < 2 && e->in[count].rank >= 0; count++) {
        const layout *l = &e->in[count];
        in[count] = air_value_tensor(memory[count], AIR_F32, l->rank, l->dims);
        if (l->strides[0])
            in[count].strides = l->strides;
        for (int i = 0; i < 256; i++)
            memory[count][i] = (float)(i + 1 + 100 * count);
    }
    return count;
}

static void
check_text(const program_case *f, const example *e, air_text_kind kind,
           const char *with, const char *without)
{
    char *text = NULL;

    if (!CHECK_OK(air_program_print(f->program, kind, &text)))
        return;
    if ((with && !strstr(text, with)) || (without && strstr(text, without)))
        test_fail(__FILE__, __LINE__, "%s: the text is\n%s", e->name, text);
    air_program_text_free(f->program, text);
}

static void
check_numbers(const char *name, const float *got, const float *want, int count)
{
    for (int i = 0; i < count; i++)
        if (fabsf(got[i] - want[i]) > 1e-6f * fabsf(want[i]))
            test_fail(__FILE__, __LINE__, "%s: number %d is %g, not %g", name,
                      i, (double)got[i], (double)want[i]);
}

static void
run_example(const program_case *f, const example *e)
{
    const size_t nout = e->results ? (size_t)e->results : 1;
    air_value in[2], out[2];
    const int nin = make_inputs(e, in);

    if (!CHECK_OK(
            air_program_run(f->program, NULL, (size_t)nin, in, nout, out)))
        return;
    check_numbers(e->name, out[0].data, e->want, e->count);
    for (int i = 0; i < nin; i++)
        if (e->after[i][0] != 0)
            check_numbers(e->name, memory[i], e->after[i], 24);
    for (size_t i = 0; i < nout; i++)
        air_value_release(&out[i]);
    check_text(f, e, AIR_TEXT_STEPS, e->steps, e->no_steps);
    check_text(f, e, AIR_TEXT_MEMORY, e->plan, NULL);
}

static void
check_example(const example *e)
{
    program_case f;

    if (pcase_begin(&f, e->text, NULL))
        run_example(&f, e);
    pcase_end(&f);
}

#define NONE     \
    {            \
        -1, {0}, \
        {        \
            0    \
        }        \
    }

static const example examples[] = {
    {.name = "rows are written when all that reads what was there is done",
     .text = "graph f(%x: f32[2, 5], %s: f32[2, 1]) {\n"
             "  %1: f32[2, 1] = sum.dim_IntList(%x, [1], true)\n"
             "  %2: f32[2, 5] = sub.Tensor(%x, %1)\n"
             "  %3: f32[2, 5] = mul.Tensor(%2, %2)\n"
             "  %4: f32[2, 1] = sum.dim_IntList(%3, [1], true)\n"
             "  %5: f32[2, 1] = mul.Tensor(%4, %s)\n"
             "  %6: f32[2, 1] = copy_(%s, %1)\n"
             "  return %5\n"
             "}\n",
     .in = {{2, {2, 5}, {0}}, {2, {2, 1}, {0}}},
     .steps = "0: region",
     .no_steps = "1: region",
     .count = 2,
     .want = {730 * 101, 5130 * 102},
     .after = {{0},
               {15,  40,  103, 104, 105, 106, 107, 108, 109, 110, 111, 112,
                113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124}}},
    {.name = "one region exchanges two inputs",
     .text = "graph f(%x: f32[4], %y: f32[4]) {\n"
             "  %1: f32[4] = neg(%x)\n"
             "  %2: f32[4] = neg(%y)\n"
             "  %3: f32[4] = copy_(%x, %2)\n"
             "  %4: f32[4] = copy_(%y, %1)\n"
             "  return %4\n"
             "}\n",
     .in = {{1, {4}, {0}}, {1, {4}, {0}}},
     .steps = "0: region",
     .no_steps = "1: region",
     .count = 4,
     .want = {-1, -2, -3, -4}},
    {.name = "who reads an input right after it was written sees that",
     .text = "graph f(%x: f32[4]) {\n"
             "  %1: f32[4] = neg(%x)\n"
             "  %2: f32[4] = copy_(%x, %1)\n"
             "  %3: f32[4] = mul.Tensor(%x, 2.0)\n"
             "  return %3\n"
             "}\n",
     .in = {{1, {4}, {0}}, NONE},
     .count = 4,
     .want = {-2, -4, -6, -8}},
    {.name = "who reads it before, behind a fold, sees what was there",
     .text = "graph f(%x: f32[1, 4]) {\n"
             "  %1: f32[1, 4] = neg(%x)\n"
             "  %2: f32[1, 1] = sum.dim_IntList(%1, [1], true)\n"
             "  %3: f32[1, 4] = mul.Tensor(%x, %2)\n"
             "  %4: f32[1, 4] = copy_(%x, %1)\n"
             "  return %3\n"
             "}\n",
     .in = {{2, {1, 4}, {0}}, NONE},
     .count = 4,
     .want = {-10, -20, -30, -40}},
    {.name = "a region that goes on with a half reads what it was before",
     .text = "graph f(%x: f32[1, 4]) {\n"
             "  %1: bf16[1, 4] = _to_copy(%x, dtype=bf16)\n"
             "  %2: bf16[1, 4] = exp(%1)\n"
             "  %3: bf16[1, 1] = sum.dim_IntList(%2, [1], true)\n"
             "  %4: bf16[1, 4] = div.Tensor(%2, %3)\n"
             "  %5: f32[1, 4] = _to_copy(%4, dtype=f32)\n"
             "  return %5, %2\n"
             "}\n",
     .in = {{2, {1, 4}, {0}}, NONE},
     .results = 2,
     .count = 4,
     .want = {0.0320586033f, 0.0871443187f, 0.236882818f, 0.64391426f}},
    {.name = "an integer wraps where it is stored, nowhere else",
     .text = "graph f(%x: f32[4]) {\n"
             "  %1: i8[4] = _to_copy(%x, dtype=i8)\n"
             "  %2: i8[4] = add.Tensor(%1, %1)\n"
             "  return %2\n"
             "}\n",
     .in = {{1, {4}, {0}}, NONE},
     .no_steps = "WRAP"},
    {.name = "rows of nothing lie side by side, whatever their strides",
     .text = "graph f(%x: f32[2, 3, 0]) {\n"
             "  %1: f32[2] = sum.dim_IntList(%x, [1, 2])\n"
             "  return %1\n"
             "}\n",
     .in = {{3, {2, 3, 0}, {0}}, NONE},
     .count = 2,
     .want = {0, 0}},
    {.name = "a producer writes its part of a cat along the last axis",
     .text = "graph f(%x: f32[2, 2]) {\n"
             "  %1: f32[2, 2] = neg(%x)\n"
             "  %2: f32[2, 4] = cat([%x, %1], -1)\n"
             "  return %2\n"
             "}\n",
     .in = {{2, {2, 2}, {0}}, NONE},
     .count = 8,
     .want = {1, 2, -1, -2, 3, 4, -3, -4}},
    {.name = "parts of a cat that is a part of another",
     .text = "graph f(%x: f32[2, 2], %y: f32[2, 1]) {\n"
             "  %1: f32[2, 2] = neg(%x)\n"
             "  %2: f32[2, 2] = mul.Tensor(%1, %1)\n"
             "  %3: f32[2, 2, 1] = unsqueeze(%1, -1)\n"
             "  %4: f32[2, 2, 1] = unsqueeze(%2, -1)\n"
             "  %5: f32[2, 2, 2] = cat([%3, %4], -1)\n"
             "  %6: f32[2, 4] = view(%5, size=[2, 4])\n"
             "  %7: f32[2, 1] = neg(%y)\n"
             "  %8: f32[2, 5] = cat([%7, %6], -1)\n"
             "  return %8\n"
             "}\n",
     .in = {{2, {2, 2}, {0}}, {2, {2, 1}, {0}}},
     .no_steps = "copy",
     .count = 10,
     .want = {-101, -1, 1, -2, 4, -102, -3, 9, -4, 16}},
    {.name = "the same along the axis in front of those that are merged",
     .text = "graph f(%x: f32[2, 2], %y: f32[1, 4]) {\n"
             "  %1: f32[2, 2] = neg(%x)\n"
             "  %2: f32[2, 2] = mul.Tensor(%1, %1)\n"
             "  %3: f32[2, 4] = cat([%1, %2], -1)\n"
             "  %4: f32[2, 2, 2] = view(%3, size=[2, 2, 2])\n"
             "  %5: f32[2, 4, 2] = cat([%4, %4], 1)\n"
             "  %6: f32[1, 4] = neg(%y)\n"
             "  %7: f32[3, 4] = cat([%6, %3], 0)\n"
             "  return %7, %5\n"
             "}\n",
     .in = {{2, {2, 2}, {0}}, {2, {1, 4}, {0}}},
     .results = 2,
     .count = 12,
     .want = {-101, -102, -103, -104, -1, -2, 1, 4, -3, -4, 9, 16}},
    {.name = "an empty operand of one axis is no part of a cat",
     .text = "graph f(%x: f32[2, 2], %e: f32[0]) {\n"
             "  %1: f32[2, 2] = neg(%x)\n"
             "  %2: f32[2, 4] = cat([%x, %e, %1], 1)\n"
             "  return %2\n"
             "}\n",
     .in = {{2, {2, 2}, {0}}, {1, {0}, {0}}},
     .count = 8,
     .want = {1, 2, -1, -2, 3, 4, -3, -4}},
    {.name = "axes of two elements out of order are not dense",
     .text = "graph f(%x: f32[1, 1, 2, 2]) {\n"
             "  %1: f32[1, 1, 2, 2] = permute(%x, [0, 1, 3, 2])\n"
             "  %2: f32[1, 1, 2, 1] = avg_pool2d(%1, [1, 2])\n"
             "  return %2\n"
             "}\n",
     .in = {{4, {1, 1, 2, 2}, {0}}, NONE},
     .steps = "copy",
     .count = 2,
     .want = {2, 3}},
    {.name = "a result with gaps is a copy, whatever axes of one element say",
     .text = "graph f(%x: f32[1, 2, 3]) {\n"
             "  %1: f32[1, 2, 3] = neg(%x)\n"
             "  return %1 strides [3, 4, 1]\n"
             "}\n",
     .in = {{3, {1, 2, 3}, {0}}, NONE},
     .steps = "copy",
     .plan = "result 0 28 ",
     .count = 3,
     .want = {-1, -2, -3}},
    {.name = "what is reshaped behind a permute is made in its order",
     .text = "graph f(%x: f32[2, 2, 2]) {\n"
             "  %1: f32[2, 2, 2] = neg(%x)\n"
             "  %2: f32[2, 2, 2] = permute(%1, [1, 0, 2])\n"
             "  %3: f32[2, 4] = view(%2, [2, 4])\n"
             "  return %3\n"
             "}\n",
     .in = {{3, {2, 2, 2}, {0}}, NONE},
     .no_steps = "copy",
     .count = 8,
     .want = {-1, -2, -5, -6, -3, -4, -7, -8}},
    {.name = "so are the parts of a cat",
     .text = "graph f(%x: f32[2, 2, 1]) {\n"
             "  %1: f32[2, 2, 1] = neg(%x)\n"
             "  %2: f32[2, 2, 1] = mul.Tensor(%x, 2)\n"
             "  %3: f32[2, 2, 2] = cat([%1, %2], -1)\n"
             "  %4: f32[2, 2, 2] = permute(%3, [1, 0, 2])\n"
             "  %5: f32[2, 4] = view(%4, [2, 4])\n"
             "  return %5\n"
             "}\n",
     .in = {{3, {2, 2, 1}, {0}}, NONE},
     .no_steps = "copy",
     .count = 8,
     .want = {-1, 2, -3, 6, -2, 4, -4, 8}},
    {.name = "not where a permute moves the last axis, or a result is read",
     .text = "graph f(%x: f32[2, 2]) {\n"
             "  %1: f32[2, 2] = neg(%x)\n"
             "  %2: f32[2, 2] = permute(%1, [1, 0])\n"
             "  %3: f32[4] = view(%2, [4])\n"
             "  return %3, %1\n"
             "}\n",
     .in = {{2, {2, 2}, {0}}, NONE},
     .steps = "copy",
     .results = 2,
     .count = 4,
     .want = {-1, -3, -2, -4}},
    {.name = "a result in another order of axes is made so",
     .text = "graph f(%x: f32[2, 1, 3]) {\n"
             "  %1: f32[2, 1, 3] = neg(%x)\n"
             "  return %1 strides [1, 9, 2]\n"
             "}\n",
     .in = {{3, {2, 1, 3}, {0}}, NONE},
     .no_steps = "copy",
     .count = 6,
     .want = {-1, -4, -2, -5, -3, -6}},
    {.name = "a region is run by the fewest threads that its nodes ask for",
     .text = "graph f(%x: f32[4]) {\n"
             "  %1: f32[4] = neg(%x) threads 3 untimed\n"
             "  %2: f32[4] = exp(%1) threads 2 joined\n"
             "  %3: f32[4] = mul.Tensor(%2, 0.0) threads 5 untimed\n"
             "  return %3\n"
             "}\n",
     .in = {{1, {4}, {0}}, NONE},
     .steps = "  threads: at most 2\n  scope: joined\n",
     .count = 4,
     .want = {0, 0, 0, 0}},
    {.name = "long rows that lie dense are walked along",
     .text = "graph f(%x: f32[65, 3]) {\n"
             "  %1: f32[3] = sum.dim_IntList(%x, [0])\n"
             "  return %1\n"
             "}\n",
     .in = {{2, {65, 3}, {1, 65}}, NONE},
     .steps = "inner [",
     .count = 3,
     .want = {65 * 33, 65 * 98, 65 * 163}},
    {.name = "short ones across, side by side",
     .text = "graph f(%x: f32[64, 3]) {\n"
             "  %1: f32[3] = sum.dim_IntList(%x, [0])\n"
             "  return %1\n"
             "}\n",
     .in = {{2, {64, 3}, {1, 64}}, NONE},
     .steps = "outer [",
     .count = 3,
     .want = {2080, 6176, 10272}},
    {.name = "an axis of one element does not say how to walk",
     .text = "graph f(%x: f32[24, 1]) {\n"
             "  %1: f32[1, 1] = sum.dim_IntList(%x, [0], true)\n"
             "  return %1\n"
             "}\n",
     .in = {{2, {24, 1}, {0}}, NONE},
     .steps = "inner [",
     .count = 1,
     .want = {300}},
    {.name = "inputs that a region reads as copies are written themselves",
     .text = "graph f(%x: f32[2, 3, 2], %y: f32[2, 3, 2]) {\n"
             "  %1: f32[2] = sum.dim_IntList(%x, [1, 2])\n"
             "  %2: f32[2] = sum.dim_IntList(%y, [1, 2])\n"
             "  %3: f32[2] = sub.Tensor(%2, %1)\n"
             "  %4: f32[2, 3, 2] = neg(%x)\n"
             "  %5: f32[2, 3, 2] = neg(%y)\n"
             "  %6: f32[2, 3, 2] = copy_(%x, %4)\n"
             "  %7: f32[2, 3, 2] = copy_(%y, %5)\n"
             "  return %3\n"
             "}\n",
     .in = {{3, {2, 3, 2}, {2, 4, 1}}, {3, {2, 3, 2}, {2, 4, 1}}},
     .count = 2,
     .want = {600, 600},
     .after = {{-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12,
                13, 14, 15, 16, 17, 18, 19, 20, 21, 22,  23,  24},
               {-101, -102, -103, -104, -105, -106, -107, -108,
                -109, -110, -111, -112, 113,  114,  115,  116,
                117,  118,  119,  120,  121,  122,  123,  124}}},
};

/* Each result is memory of its own, also where one is a part of the other. */
TEST(place_of_parts_that_are_results)
{
    const char *text = "graph f(%x: f32[2, 2]) {\n"
                       "  %1: f32[2, 2] = neg(%x)\n"
                       "  %2: f32[4, 2] = cat([%1, %x])\n"
                       "  return %1, %2\n"
                       "}\n";
    float x[4] = {1, 2, 3, 4};
    const int64_t dims[2] = {2, 2};
    const air_value in = air_value_tensor(x, AIR_F32, 2, dims);
    air_value out[2];
    program_case f;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 2, out))) {
        CHECK(out[0].data != out[1].data);
        CHECK_NEAR(((float *)out[0].data)[3], -4, 0);
        CHECK_NEAR(((float *)out[1].data)[3], -4, 0);
        for (int i = 0; i < 2; i++)
            air_value_release(&out[i]);
    }
    pcase_end(&f);
}

/* Whatever strides it has, and whatever were asked for. */
TEST(place_of_inputs_that_are_results)
{
    const char *text = "graph f(%x: f32[2, 3]) {\n"
                       "  %1: f32[3, 2] = permute(%x, [1, 0])\n"
                       "  return %1 strides [1, 3], %1\n"
                       "}\n";
    float x[6] = {0};
    const int64_t dims[2] = {2, 3};
    const air_value in = air_value_tensor(x, AIR_F32, 2, dims);
    air_value out[2];
    program_case f;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 2, out)))
        for (int i = 0; i < 2; i++) {
            CHECK_INT(out[i].alias, 0);
            CHECK(out[i].data == x);
            CHECK_INT(out[i].strides[0], 1);
            air_value_release(&out[i]);
        }
    pcase_end(&f);
}

/* Sizes and strides that no memory has: refused before anything is planned. */
TEST(place_of_values_that_cannot_be)
{
    static const struct {
        const char *line, *message;
    } bad[] = {
        {"%1: f32[4] = air::restride(%x, [-3])",
         "a result would have stride -3 in dim 0"},
        {"%1: f32[4] = air::restride(%x, [4611686018427387904])",
         "a result would have too many elements"},
        {"%1: f32[4] = air::restride(%x, [70368744177664])",
         "a result would have too many elements"},
        {"%1: f32[70368744177664, 4] = expand(%x, [70368744177664, 4])",
         "a result would have too many elements"},
    };
    const int64_t dims[1] = {4};
    const air_value in = air_value_tensor(memory[0], AIR_F32, 1, dims);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        program_case f;
        air_value out;
        (void)snprintf(text, sizeof text,
                       "graph f(%%x: f32[4]) {\n  %s\n"
                       "  %%2: f32[%s4] = exp(%%1)\n  return %%2\n}\n",
                       bad[i].line, i == 3 ? "70368744177664, " : "");
        if (pcase_begin(&f, text, NULL)) {
            CHECK_INT(air_program_run(f.program, NULL, 1, &in, 1, &out),
                      AIR_ERROR_SHAPE);
            CHECK(strstr(air_last_error()->message, bad[i].message));
        }
        pcase_end(&f);
    }
}

TEST(place_of_values)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        check_example(&examples[i]);
}

/* Rows of a few elements that a broadcast operand keeps apart; those of whole
 * vectors are read where they lie. */
TEST(place_short_rows_are_spread)
{
    const char *text = "graph f(%x: f32[s0, 1], %y: f32[s1]) {\n"
                       "  %1: f32[s0, s1] = mul.Tensor(%x, %y)\n"
                       "  return %1\n}\n";
    static const int64_t sizes[][3] = {
        {100, 3, 1}, {16, 15, 1}, {16, 16, 0}, {15, 3, 0}, {100, 17, 0}};
    for (int k = 0; k < 5; k++) {
        const int64_t rows = sizes[k][0], cols = sizes[k][1];
        float x[100] = {[15] = 2}, y[17] = {[2] = 4};
        const air_value in[] = {
            air_value_tensor(x, AIR_F32, 2, (int64_t[]){rows, 1}),
            air_value_tensor(y, AIR_F32, 1, &cols)};
        char *steps = NULL;
        air_value out;
        program_case f;
        if (pcase_begin(&f, text, NULL) &&
            CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
            if (rows > 15)
                CHECK_NEAR(((float *)out.data)[15 * cols + 2], 8, 0);
            air_value_release(&out);
            CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
            CHECK((strstr(steps, "map spread [") != NULL) == sizes[k][2]);
            air_program_text_free(f.program, steps);
        }
        pcase_end(&f);
    }
}

/* Numbers of 1, 2, 4, 8 bytes, each for a row of so many: what is written
 * beyond a row is written again, and nothing beyond the last one. */
TEST(place_numbers_for_short_rows)
{
    static const char *const names[] = {"bool", "f16", "f32", "f64"};
    for (size_t d = 0; d < sizeof names / sizeof *names; d++) {
        char text[256];
        program_case f;
        snprintf(text, sizeof text,
                 "graph f(%%x: f32[s0, 2], %%y: f32[s1]) {\n"
                 "  %%1 = select.int(%%x, 1, 1)\n"
                 "  %%2 = unsqueeze(%%1, 1)\n"
                 "  %%3 = _to_copy(%%2, dtype=%s)\n"
                 "  %%4 = mul.Tensor(%%3, %%y)\n"
                 "  %%5 = add.Tensor(%%4, %%2)\n"
                 "  return %%5\n}\n",
                 names[d]);
        if (!pcase_begin(&f, text, NULL))
            continue;
        for (int64_t cols = 2; cols < 18; cols++)
            for (int64_t rows = 16; rows < 24; rows++) {
                float x[48] = {0}, y[18];
                air_value out;
                for (int i = 0; i < 48; i++)
                    x[i] = (float)((i * 5 + 3) % 7 < 3);
                for (int i = 0; i < 18; i++)
                    y[i] = (float)(i + 1);
                const air_value in[] = {
                    air_value_tensor(x, AIR_F32, 2, (int64_t[]){rows, 2}),
                    air_value_tensor(y, AIR_F32, 1, &cols)};
                if (!CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out)))
                    continue;
                for (int64_t i = 0; i < rows * cols; i++) {
                    const float want = x[i / cols * 2 + 1] * (y[i % cols] + 1);
                    const float got = out.dtype == AIR_F64
                                          ? (float)((double *)out.data)[i]
                                          : ((float *)out.data)[i];
                    CHECK_NEAR(got, want, 0);
                }
                air_value_release(&out);
            }
        pcase_end(&f);
    }
}

enum { LINES = 300 };

static void
check_lines(const program_case *f, int64_t rows, int64_t cols)
{
    static float x[LINES * 5], y[LINES * 9];
    const air_value in[] = {
        air_value_tensor(x, AIR_F32, 3, (int64_t[]){LINES, 1, cols}),
        air_value_tensor(y, AIR_F32, 3, (int64_t[]){LINES, rows, 1})};
    air_value out;
    int wrong = 0;

    for (int64_t i = 0; i < LINES * cols; i++)
        x[i] = (float)(i % 251);
    for (int64_t i = 0; i < LINES * rows; i++)
        y[i] = (float)(i % 127);
    if (!CHECK_OK(air_program_run(f->program, NULL, 2, in, 1, &out)))
        return;
    for (int64_t i = 0; i < LINES * rows * cols; i++) {
        const int64_t row = i / cols, line = row / rows;
        const float want = x[line * cols + i % cols] * y[row] + y[row];
        wrong += ((const float *)out.data)[i] != want;
    }
    CHECK_INT(wrong, 0);
    air_value_release(&out);
}

/* Rows that a line shares beside numbers of each row: blocks of them end within
 * lines, and where those begin. */
TEST(place_lines_of_short_rows)
{
    program_case f;

    if (pcase_begin(&f,
                    "graph f(%x: f32[s0, 1, s2], %y: f32[s0, s1, 1]) {\n"
                    "  %1: f32[s0, s1, s2] = mul.Tensor(%x, %y)\n"
                    "  %2: f32[s0, s1, s2] = add.Tensor(%1, %y)\n"
                    "  return %2\n}\n",
                    NULL))
        for (int64_t rows = 2; rows < 10; rows++)
            for (int64_t cols = 2; cols < 6; cols++)
                check_lines(&f, rows, cols);
    pcase_end(&f);
}

/* Coordinates lie with gaps: they are copied, however wide the rows are. */
TEST(place_gaps_in_rows_are_spread)
{
    const char *text = "graph f(%x: i64[8, 3], %y: i64[40, 1]) {\n"
                       "  %1: i64[8] = select.int(%x, 1, 1)\n"
                       "  %2: i64[40, 8] = add.Tensor(%1, %y)\n"
                       "  return %2\n}\n";
    int64_t x[24] = {[4] = 7}, y[40] = {[39] = 2};
    const air_value in[] = {
        air_value_tensor(x, AIR_I64, 2, (int64_t[]){8, 3}),
        air_value_tensor(y, AIR_I64, 2, (int64_t[]){40, 1})};
    program_case f;
    air_value out;
    char *steps = NULL;

    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        CHECK_INT(((const int64_t *)out.data)[39 * 8 + 1], 9);
        air_value_release(&out);
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
        CHECK(strstr(steps, "map spread [") != NULL);
        air_program_text_free(f.program, steps);
    }
    pcase_end(&f);
}

/* Rows of all pairs of two small sets are folded as columns, of a copy of the
 * one whose elements vectors would gather. */
TEST(place_rows_of_pairs_are_columns)
{
    const char *text = "graph f(%x: f32[s0, 1, s2], %y: f32[s1, s2]) {\n"
                       "  %1: f32[s0, s1, s2] = sub.Tensor(%x, %y)\n"
                       "  %2: f32[s0, s1, s2] = mul.Tensor(%1, %1)\n"
                       "  %3: f32[s0, s1] = sum.dim_IntList(%2, [2])\n"
                       "  return %3\n}\n";
    static const int64_t sizes[][4] = {{40, 20, 8, 1},   {40, 15, 8, 0},
                                       {3, 20, 8, 0},    {40, 20, 257, 0},
                                       {257, 16, 40, 1}, {3, 260, 20, 0}};
    static float x[257 * 257], y[260 * 257];

    for (int i = 0; i < 257 * 257; i++)
        x[i] = (float)(i % 13), y[i] = (float)(i % 7);
    for (int k = 0; k < 6; k++) {
        const int64_t rows = sizes[k][0], cols = sizes[k][1], n = sizes[k][2];
        const air_value in[] = {
            air_value_tensor(x, AIR_F32, 3, (int64_t[]){rows, 1, n}),
            air_value_tensor(y, AIR_F32, 2, (int64_t[]){cols, n})};
        float want = 0;
        char *steps = NULL;
        air_value out;
        program_case f;
        for (int64_t i = 0; i < n; i++) {
            const float d = x[2 * n + i] - y[9 * n + i];
            want += d * d;
        }
        if (pcase_begin(&f, text, NULL) &&
            CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
            CHECK_NEAR(((float *)out.data)[2 * cols + 9], want, 0);
            air_value_release(&out);
            CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps));
            CHECK((strstr(steps, "outer [") != NULL) == sizes[k][3]);
            CHECK((strstr(steps, "copy") != NULL) == sizes[k][3]);
            air_program_text_free(f.program, steps);
        }
        pcase_end(&f);
    }
}
