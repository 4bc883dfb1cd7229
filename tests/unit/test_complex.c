/* test_complex.c: programs on complex numbers: the numbers, and that pairs are
 * taken apart and put together where they lie, without copies. */
#include <stdlib.h>
#include <sys/mman.h>

#include "air.h"
#include "program_case.h"
#include "test.h"

typedef struct {
    float re, im;
} pair;

static pair
number(int64_t i, int64_t seed)
{
    return (pair){(float)((i * 7 + seed) % 23) - 11,
                  (float)((i * 5 + seed) % 19) / 4};
}

static pair
product(pair a, pair b)
{
    return (pair){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static bool
is_near(pair a, pair b)
{
    return a.re == b.re && a.im == b.im;
}

static bool
walks_pairs(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

static void
check_steps(const program_case *f, const char *with, const char *without)
{
    char *steps = NULL;

    if (!CHECK_OK(air_program_print(f->program, AIR_TEXT_STEPS, &steps)))
        return;
    if ((with && !strstr(steps, with)) || strstr(steps, without))
        test_fail(__FILE__, __LINE__, "the steps are\n%s", steps);
    air_program_text_free(f->program, steps);
}

/* x y + x of [rows, cols] and [cols] */
static void
check_rows(int64_t rows, int64_t cols, const char *steps)
{
    const char *text = "graph f(%x: i64[s0, s1], %y: i64[s1]) {\n"
                       "  %1 = air::complex_mul(%x, %y)\n"
                       "  %2 = air::complex_add(%1, %x)\n"
                       "  return %2\n}\n";
    const size_t count = (size_t)(rows * cols);
    pair *x = malloc(count * sizeof *x), *y = malloc((size_t)cols * sizeof *y);
    const air_value in[] = {
        air_value_tensor(x, AIR_I64, 2, (int64_t[]){rows, cols}),
        air_value_tensor(y, AIR_I64, 1, &cols)};
    air_value out;
    program_case f;

    REQUIRE(x && y);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = number(i, 3);
    for (int64_t i = 0; i < cols; i++)
        y[i] = number(i, 8);
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        const pair *z = out.data;
        for (int64_t i = 0; i < rows * cols; i++) {
            pair want = product(x[i], y[i % cols]);
            want = (pair){want.re + x[i].re, want.im + x[i].im};
            if (!CHECK(is_near(z[i], want)))
                break;
        }
        check_steps(&f, steps, "copy");
        air_value_release(&out);
    }
    pcase_end(&f);
    free(x);
    free(y);
}

/* AVX-512 walks pairs as they lie, others take blocks of rows apart. */
TEST(complex_rows)
{
    for (int64_t cols = 1; cols < 140; cols++)
        check_rows(1, cols, NULL);
    check_rows(1, 5000, NULL);
    check_rows(3, 5, NULL);
    check_rows(15, 200, "map [15, 200]");
    check_rows(40, 200, "map [40, 200]");
    check_rows(40, 3, "map spread [40, 3]");
    check_rows(100, 32, walks_pairs() ? "map [100, 32]" : "spread [100, 32]");
    check_rows(100, 4, walks_pairs() ? "map [100, 4]" : "spread [100, 4]");
    check_rows(300, 77, NULL);
    check_rows(300, 128, NULL);
}

enum { PAGE = 4096 };

/* A page behind which nothing may be read. */
static char *
fenced_page(void)
{
    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mprotect(page + PAGE, PAGE, PROT_NONE) != 0)
        exit(2);
    return page;
}

/* One part of pairs, or both: nothing behind the last one is read. */
TEST(complex_ends_where_memory_does)
{
    static const char *const texts[] = {
        "graph f(%x: i64[s0]) {\n  %1 = view_as_real(%x)\n"
        "  %2 = select.int(%1, -1, 0)\n  %3 = mul.Tensor(%2, 2.0)\n"
        "  return %3\n}\n",
        "graph f(%x: i64[s0]) {\n  %1 = view_as_real(%x)\n"
        "  %2 = select.int(%1, -1, 1)\n  %3 = mul.Tensor(%2, 2.0)\n"
        "  return %3\n}\n",
        "graph f(%x: i64[s0]) {\n  %1 = air::complex_mul(%x, %x)\n"
        "  %2 = air::complex_real(%1)\n  return %2\n}\n"};
    char *page = fenced_page();
    for (int k = 0; k < 3; k++) {
        program_case f;
        bool ready = pcase_begin(&f, texts[k], NULL);
        for (int64_t n = 1; ready && n < 100; n++) {
            pair *x = (pair *)(void *)(page + PAGE) - n;
            const air_value in = air_value_tensor(x, AIR_I64, 1, &n);
            air_value out;
            for (int64_t i = 0; i < n; i++)
                x[i] = number(i, k);
            if (CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
                for (int64_t i = 0; i < n; i++) {
                    const float want[] = {2 * x[i].re, 2 * x[i].im,
                                          product(x[i], x[i]).re};
                    CHECK(((float *)out.data)[i] == want[k]);
                }
                air_value_release(&out);
            }
        }
        pcase_end(&f);
    }
    munmap(page, 2 * PAGE);
}

/* [n] of turned pairs of bf16, (a, b) to (b - a, b + a): two parts are a word.
 * The page ends behind x. */
static void
check_halves(const program_case *f, const char *end, int64_t n)
{
    uint16_t *x = (uint16_t *)(void *)(uintptr_t)end - 2 * n;
    const air_value in = air_value_tensor(x, AIR_BF16, 2, (int64_t[]){n, 2});
    air_value out;

    for (int64_t i = 0; i < 2 * n; i++) {
        const float v = (float)(i * 7 % 23) - 11;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        x[i] = (uint16_t)(bits >> 16);
    }
    if (!CHECK_OK(air_program_run(f->program, NULL, 1, &in, 1, &out)))
        return;
    for (int64_t i = 0; i < n; i++) {
        const float a = (float)(2 * i * 7 % 23) - 11;
        const float b = (float)((2 * i + 1) * 7 % 23) - 11;
        for (int k = 0; k < 2; k++) {
            const float want = k == 0 ? b - a : b + a;
            const uint32_t bits = (uint32_t)((uint16_t *)out.data)[2 * i + k]
                                  << 16;
            float got;
            memcpy(&got, &bits, sizeof got);
            CHECK(got == want);
        }
    }
    air_value_release(&out);
}

TEST(complex_halves_are_words)
{
    const char *text = "graph f(%x: bf16[s0, 2]) {\n"
                       "  %1 = select.int(%x, 1, 0)\n"
                       "  %2 = select.int(%x, 1, 1)\n"
                       "  %3 = sub.Tensor(%2, %1)\n"
                       "  %4 = add.Tensor(%2, %1)\n"
                       "  %5 = unsqueeze(%3, 1)\n"
                       "  %6 = unsqueeze(%4, 1)\n"
                       "  %7 = cat([%5, %6], 1)\n"
                       "  return %7\n}\n";
    char *page = fenced_page();
    program_case f;

    if (pcase_begin(&f, text, NULL)) {
        for (int64_t n = 1; n < 100; n++)
            check_halves(&f, page + PAGE, n);
        check_steps(&f, "0: region", "copy");
    }
    pcase_end(&f);
    munmap(page, 2 * PAGE);
}

/* Both parts of a sum are of one region, though they have no operand in
 * common. */
TEST(complex_sum_is_one_region)
{
    const char *text = "graph f(%x: i64[9], %y: i64[9]) {\n"
                       "  %1 = air::complex_add(%x, %y)\n"
                       "  return %1\n}\n";
    pair x[9], y[9];
    const int64_t n = 9;
    const air_value in[] = {air_value_tensor(x, AIR_I64, 1, &n),
                            air_value_tensor(y, AIR_I64, 1, &n)};
    air_value out;
    program_case f;

    for (int i = 0; i < 9; i++) {
        x[i] = number(i, 1);
        y[i] = number(i, 2);
    }
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        for (int i = 0; i < 9; i++)
            CHECK(is_near(((pair *)out.data)[i],
                          (pair){x[i].re + y[i].re, x[i].im + y[i].im}));
        check_steps(&f, "0: region add+add", "1: region");
        air_value_release(&out);
    }
    pcase_end(&f);
}

/* Pairs that do not lie as an i64 would are copied first. */
TEST(complex_of_pairs_with_gaps)
{
    const char *text = "graph f(%x: f32[3, 3]) {\n"
                       "  %1 = slice.Tensor(%x, 1, 1, 3)\n"
                       "  %2 = view_as_complex(%1)\n"
                       "  return %2\n}\n";
    float x[9];
    const air_value in = air_value_tensor(x, AIR_F32, 2, (int64_t[]){3, 3});
    air_value out;
    program_case f;

    for (int i = 0; i < 9; i++)
        x[i] = (float)i;
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        for (int i = 0; i < 3; i++)
            CHECK(is_near(((pair *)out.data)[i],
                          (pair){x[3 * i + 1], x[3 * i + 2]}));
        air_value_release(&out);
    }
    pcase_end(&f);
}

/* A part that is read again lies in the pairs, and is not copied there. */
TEST(complex_part_that_is_read_again)
{
    const char *text = "graph f(%x: f32[70]) {\n"
                       "  %1 = mul.Tensor(%x, 2.0)\n"
                       "  %2 = add.Tensor(%1, %x)\n"
                       "  %3 = complex(%1, %2)\n"
                       "  return %3\n}\n";
    float x[70];
    const int64_t n = 70;
    const air_value in = air_value_tensor(x, AIR_F32, 1, &n);
    air_value out;
    program_case f;

    for (int i = 0; i < 70; i++)
        x[i] = (float)i;
    if (pcase_begin(&f, text, NULL) &&
        CHECK_OK(air_program_run(f.program, NULL, 1, &in, 1, &out))) {
        for (int i = 0; i < 70; i++)
            CHECK(is_near(((pair *)out.data)[i], (pair){2 * x[i], 3 * x[i]}));
        check_steps(&f, "region", "copy");
        air_value_release(&out);
    }
    pcase_end(&f);
}
