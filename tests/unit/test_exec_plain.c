/* test_exec_plain.c: operands that are copied since they are read badly as they
 * lie: by a plain kernel, or again and again. */
#include "air.h"
#include "program_case.h"
#include "test.h"

enum { N = 12 };

/* Runs the graph on a view of [3, 4] with these strides. */
static bool
run(const char *text, const char *driver, const int64_t *strides, float *got,
    uint32_t *copies)
{
    const int64_t dims[2] = {3, 4};
    const air_options options = {.driver = driver};
    float x[2 * N];
    air_value in = air_value_tensor(x, AIR_F32, 2, dims), out;
    air_program_stats stats;
    program_case f;
    bool done = false;

    for (int i = 0; i < 2 * N; i++)
        x[i] = (float)(i * 5 % 7);
    in.strides = strides;
    if (pcase_begin(&f, text, &options) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        memcpy(got, out.data, N * sizeof *got);
        air_value_release(&out);
        air_program_get_stats(f.program, &stats);
        *copies = stats.copies;
        done = true;
    }
    pcase_end(&f);
    return done;
}

/* The cpu device makes so many copies more than one of plain kernels. */
static void
check_copies(const char *text, const int64_t *strides, uint32_t more)
{
    float got[N], plain[N];
    uint32_t copies, least;

    if (!CHECK(run(text, "ref", strides, plain, &least)) ||
        !CHECK(run(text, "check:cpu", strides, got, &copies)))
        return;
    CHECK_INT(copies, least + more);
    if (!CHECK(run(text, "cpu", strides, got, &copies)))
        return;
    CHECK_INT(copies, least + more);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(got[i], plain[i], 0);
}

/* Running sums have a kernel for dense memory, and one for any. */
TEST(exec_plain_operand)
{
    const char *text = "graph f(%x: f32[3, 4]) {\n"
                       "  %1: f32[3, 4] = cumsum(%x, 1)\n"
                       "  return %1\n"
                       "}\n";

    check_copies(text, (const int64_t[]){4, 1}, 0);
    check_copies(text, (const int64_t[]){1, 3}, 1);
    check_copies(text, (const int64_t[]){5, 1}, 1);
}

/* Two rows of many: the table stays where it lies. */
TEST(exec_plain_table)
{
    const char *text = "graph f(%x: f32[3, 4]) {\n"
                       "  %1: i64[1, 4] = full([1, 4], 2, dtype=i64)\n"
                       "  %2: f32[1, 4] = gather(%x, 0, %1)\n"
                       "  %3: f32[3, 4] = expand(%2, [3, 4])\n"
                       "  %4: f32[3, 4] = mul.Tensor(%3, 1.5)\n"
                       "  return %4\n"
                       "}\n";

    check_copies(text, (const int64_t[]){1, 3}, 0);
}

static uint32_t
copies_of_product(const char *text)
{
    static float x[16 * 20 * 16];
    air_value in = air_value_tensor(x, AIR_F32, 3, (int64_t[]){16, 20, 16});
    air_value out;
    air_program_stats stats = {0};
    program_case f;

    for (int i = 0; i < 16 * 20 * 16; i++)
        x[i] = (float)(i % 37);
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        const float *got = out.data; /* [b, d, i, j]: x[b, i, d] x[b, j, d] */
        for (int k = 0; k < 20 * 20; k++)
            CHECK_NEAR(got[(5 * 16 + 3) * 400 + k],
                       x[(5 * 20 + k / 20) * 16 + 3] *
                           x[(5 * 20 + k % 20) * 16 + 3],
                       0);
        air_value_release(&out);
        air_program_get_stats(f.program, &stats);
    }
    pcase_end(&f);
    return stats.copies;
}

/* Each element is read 20 times, 16 apart: as a row of the other one it need
 * not be dense. */
TEST(exec_outer_product_of_turned_rows)
{
    CHECK_INT(
        copies_of_product("graph f(%x: f32[16, 20, 16]) {\n"
                          "  %1: f32[16, 16, 20] = permute(%x, [0, 2, 1])\n"
                          "  %2: f32[16, 16, 20, 1] = unsqueeze(%1, 3)\n"
                          "  %3: f32[16, 16, 1, 20] = unsqueeze(%1, 2)\n"
                          "  %4: f32[16, 16, 20, 20] = mul.Tensor(%2, %3)\n"
                          "  return %4\n"
                          "}\n"),
        1);
}

/* Elements that lie in turns are written at once, whatever their size. */
static void
check_turns(const char *dtype, air_dtype id)
{
    enum { COUNT = 5003 };
    static uint8_t x[COUNT * 8], y[COUNT * 8];
    const size_t bytes = air_dtype_bytes(id);
    const air_value in[] = {
        air_value_tensor(x, id, 1, (const int64_t[]){COUNT}),
        air_value_tensor(y, id, 1, (const int64_t[]){COUNT})};
    char text[256], *steps = NULL;
    air_value out;
    program_case f;

    snprintf(text, sizeof text,
             "graph f(%%x: %s[5003], %%y: %s[5003]) {\n"
             "  %%1 = stack([%%x, %%y], dim=1)\n"
             "  return %%1\n"
             "}\n",
             dtype, dtype);
    for (size_t i = 0; i < COUNT * bytes; i++) {
        x[i] = (uint8_t)(i * 7 % 251);
        y[i] = (uint8_t)(i * 5 % 241);
    }
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        const uint8_t *z = out.data;
        for (size_t i = 0; i < COUNT; i++)
            if (!CHECK(memcmp(z + 2 * i * bytes, x + i * bytes, bytes) == 0) ||
                !CHECK(memcmp(z + (2 * i + 1) * bytes, y + i * bytes, bytes) ==
                       0))
                break;
        air_value_release(&out);
    }
    if (f.program &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &steps)))
        CHECK(strstr(steps, "1: region") == NULL);
    air_program_text_free(f.program, steps);
    pcase_end(&f);
}

TEST(exec_elements_in_turns_are_one_copy)
{
    check_turns("u8", AIR_U8);
    check_turns("i16", AIR_I16);
    check_turns("f32", AIR_F32);
    check_turns("i64", AIR_I64);
}

/* Columns of x behind those of y, whose lines are no pairs. */
static void
check_columns(int64_t left, int64_t right)
{
    enum { ROWS = 5, MOST = 4 };
    float x[ROWS * MOST], y[ROWS * MOST];
    const air_value in[] = {
        air_value_tensor(x, AIR_F32, 2, (const int64_t[]){ROWS, left}),
        air_value_tensor(y, AIR_F32, 2, (const int64_t[]){ROWS, right})};
    char text[256];
    air_value out;
    program_case f;

    snprintf(text, sizeof text,
             "graph f(%%x: f32[5, %d], %%y: f32[5, %d]) {\n"
             "  %%1 = cat([%%x, %%y], dim=1)\n"
             "  return %%1\n"
             "}\n",
             (int)left, (int)right);
    for (int i = 0; i < ROWS * MOST; i++) {
        x[i] = (float)i;
        y[i] = (float)-i;
    }
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        const float *z = out.data;
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t k = 0; k < left; k++)
                CHECK(*z++ == x[i * left + k]);
            for (int64_t k = 0; k < right; k++)
                CHECK(*z++ == y[i * right + k]);
        }
        air_value_release(&out);
    }
    pcase_end(&f);
}

TEST(exec_columns_behind_each_other)
{
    for (int64_t left = 0; left <= 4; left++)
        for (int64_t right = left == 0; right <= 4; right++)
            check_columns(left, right);
}
