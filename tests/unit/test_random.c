/* Random kernels: known words, known properties. That they draw what torch
 * draws is tested with torch (tests/python/test_random.py). */
#include <math.h>

#include "driver/ref/kernels.h"
#include "driver/ref/random.h"
#include "test.h"

enum { COUNT = 200000 };

static double drawn[COUNT + 16];

/* One call with these numbers behind the size, into `drawn` as dtype. */
static void
draw(ref_kernel *kernel, int dtype, int64_t n, int nargs, const air_arg *args,
     const air_generator *generator, air_philox *philox)
{
    air_tensor out = {
        .dtype = (uint8_t)dtype, .rank = 1, .dims = {n}, .strides = {1}};
    air_call call = {.nargs = nargs, .nouts = 1, .args = args, .outs = &out};
    void *slots[] = {drawn};
    air_fault fault = {.raised = false};
    kernel(&call, &(air_task){.count = 1,
                              .slots = slots,
                              .fault = &fault,
                              .generator = generator,
                              .philox = philox});
    CHECK(!fault.raised);
}

static air_arg
number(double f)
{
    return (air_arg){.kind = AIR_ARG_FLOAT, .f = f};
}

static air_arg
integer(int64_t i)
{
    return (air_arg){.kind = AIR_ARG_INT, .i = i};
}

static const air_arg none = {.kind = AIR_ARG_NONE};

static void
moments(int64_t n, double *out_mean, double *out_std)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += drawn[i];
    for (int64_t i = 0; i < n; i++)
        squares += (drawn[i] - sum / (double)n) * (drawn[i] - sum / (double)n);
    *out_mean = sum / (double)n;
    *out_std = sqrt(squares / (double)n);
}

/* ---- words --------------------------------------------------------------- */

static void
mt_seed(air_mt19937 *mt, uint32_t seed)
{
    *mt = (air_mt19937){.words = {seed}, .next = MT_WORDS};
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t last = mt->words[i - 1];
        mt->words[i] = 1812433253u * (last ^ last >> 30) + i;
    }
}

/* The first and the 10,000th word of the seed that C++ names as the test. */
TEST(random_mt19937_has_its_known_words)
{
    static uint32_t w[10000];
    air_mt19937 mt;
    mt_seed(&mt, 5489);
    mt_words(&mt, w, 1);
    CHECK(w[0] == 3499211612u);
    mt_words(&mt, w + 1, 700); /* in pieces that do not end with the state */
    mt_words(&mt, w + 701, 10000 - 701);
    CHECK(w[9999] == 4123659995u);
}

/* The vectors of Random123 for counter and key 0, and for all bits set in the
 * key. */
TEST(random_philox_has_its_known_words)
{
    uint32_t w[4];
    philox_block(0, 0, w);
    CHECK(w[0] == 0x6627e8d5u && w[1] == 0xe169c58du);
    CHECK(w[2] == 0xbc57ac4cu && w[3] == 0x9b00dbd8u);
}

TEST(random_philox_words_do_not_depend_on_the_pieces)
{
    uint32_t whole[64], parts[64];
    random_source a = {.seed = 9}, b = {.seed = 9};
    random_words(&a, whole, 64);
    for (int at = 0, n = 1; at < 64; at += n, n = n % 7 + 1)
        random_words(&b, parts + at, at + n > 64 ? 64 - at : n);
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
}

/* ---- seeds and state ----------------------------------------------------- */

TEST(random_a_seed_repeats_and_the_device_goes_on)
{
    const air_arg seeded[] = {none, number(0), number(1), none, integer(3)};
    const air_arg plain[] = {none, number(0), number(1), none, none};
    air_philox philox = {.seed = 3};
    double first[50];
    draw(ref_uniform, AIR_F64, 50, 5, seeded, NULL, &philox);
    memcpy(first, drawn, sizeof first);
    CHECK(philox.drawn == 0);
    draw(ref_uniform, AIR_F64, 50, 5, plain, NULL, &philox);
    CHECK(memcmp(first, drawn, sizeof first) == 0);
    CHECK(philox.drawn == 100);
    draw(ref_uniform, AIR_F64, 50, 5, plain, NULL, &philox);
    CHECK(memcmp(first, drawn, sizeof first) != 0);
    draw(ref_uniform, AIR_F64, 50, 5, seeded, NULL, &philox);
    CHECK(memcmp(first, drawn, sizeof first) == 0);
}

static air_mt19937 *
take(void *user)
{
    return user;
}

/* Three normals are two pairs, of which one number is kept. */
TEST(random_the_applications_state_is_drawn_from)
{
    static air_mt19937 mt;
    const air_generator g = {.user = &mt, .take = take};
    mt_seed(&mt, 1);
    draw(ref_randn, AIR_F64, 3, 1, &none, &g, NULL);
    CHECK(mt.next == 8 && mt.has_normal);
    draw(ref_randn, AIR_F64, 1, 1, &none, &g, NULL);
    CHECK(mt.next == 8 && !mt.has_normal);
    draw(ref_rand, AIR_F32, 5, 1, &none, &g, NULL);
    CHECK(mt.next == 13);
}

static air_mt19937 *
take_nothing(void *user)
{
    (void)user;
    return NULL;
}

TEST(random_without_a_state_nothing_is_written)
{
    const air_generator g = {.take = take_nothing};
    drawn[0] = 7;
    draw(ref_rand, AIR_F64, 1, 1, &none, &g, NULL);
    draw(ref_randn, AIR_F64, 1, 1, &none, &g, NULL);
    draw(ref_randperm, AIR_I64, 1, 1, &none, &g, NULL);
    CHECK(drawn[0] >= 7 && drawn[0] <= 7);
}

/* ---- distributions (Philox) ---------------------------------------------- */

TEST(random_uniform_fills_its_range)
{
    const air_arg args[] = {none, number(-2), number(6), none, integer(5)};
    double mean, std, low = 6, high = -2;
    draw(ref_uniform, AIR_F64, COUNT, 5, args, NULL, NULL);
    moments(COUNT, &mean, &std);
    for (int i = 0; i < COUNT; i++) {
        low = fmin(low, drawn[i]);
        high = fmax(high, drawn[i]);
    }
    CHECK(low >= -2 && low < -1.999 && high < 6 && high > 5.999);
    CHECK(fabs(mean - 2) < 0.02 && fabs(std - 8 / sqrt(12)) < 0.02);
}

/* The shares of normals within 1, 2 and 3 standard deviations. */
TEST(random_normals_are_normal)
{
    static const double shares[] = {0.682689, 0.954500, 0.997300};
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        const air_arg args[] = {none, number(1),           number(2),
                                none, integer(one_by_one), integer(8)};
        double mean, std;
        draw(ref_normal, AIR_F64, COUNT, 6, args, NULL, NULL);
        moments(COUNT, &mean, &std);
        CHECK(fabs(mean - 1) < 0.02 && fabs(std - 2) < 0.02);
        for (int k = 1; k <= 3; k++) {
            int within = 0;
            for (int i = 0; i < COUNT; i++)
                within += fabs(drawn[i] - 1) < 2 * k;
            CHECK(fabs(within / (double)COUNT - shares[k - 1]) < 0.005);
        }
    }
}

TEST(random_bernoulli_hits_its_share)
{
    static const double ps[] = {0, 0.1, 0.75, 1};
    for (int k = 0; k < 4; k++) {
        const air_arg args[] = {none, number(ps[k]), none, integer(k)};
        double mean, std;
        draw(ref_bernoulli_p, AIR_F64, COUNT, 4, args, NULL, NULL);
        moments(COUNT, &mean, &std);
        CHECK(fabs(mean - ps[k]) < 0.005);
        CHECK(k % 3 != 0 || std <= 0); /* 0 and 1 are exact */
    }
}

/* Narrow and wide ranges: chi squared of 16 bins, 15 degrees of freedom: 37.7
 * is exceeded once in a thousand. */
TEST(random_integers_are_even)
{
    static const int64_t steps[] = {1, (int64_t)1 << 40};
    for (int k = 0; k < 2; k++) {
        const air_arg args[] = {none, integer(-3 * steps[k]),
                                integer(13 * steps[k]), none, integer(2)};
        int bins[16] = {0};
        double chi = 0, even = COUNT / 16.0;
        draw(ref_random_integers, AIR_F64, COUNT, 5, args, NULL, NULL);
        for (int i = 0; i < COUNT; i++) {
            double bin = floor(drawn[i] / (double)steps[k]) + 3;
            CHECK(bin >= 0 && bin < 16);
            bins[(int)bin]++;
        }
        for (int i = 0; i < 16; i++)
            chi += (bins[i] - even) * (bins[i] - even) / even;
        CHECK(chi < 37.7);
    }
}

TEST(random_permutations_have_every_number)
{
    static bool seen[5000];
    const int64_t *p = (const int64_t *)(const void *)drawn;
    int moved = 0;
    draw(ref_randperm, AIR_I64, 5000, 1, &none, NULL, NULL);
    for (int i = 0; i < 5000; i++) {
        CHECK(p[i] >= 0 && p[i] < 5000 && !seen[p[i]]);
        seen[p[i]] = true;
        moved += p[i] != i;
    }
    CHECK(moved > 4900);
}
