/* test_exec_plain.c: calls that but a plain kernel would take as they lie. */
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
