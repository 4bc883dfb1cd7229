/* Random numbers of driver cuda on a GPU that computes on the host: each
 * element against what torch's kernels give it, written here once more from
 * its index: which thread of the launch it belongs to, and which of the
 * thread's numbers it is. One program draws all of them, run by run and as a
 * capture; other draws come between. `draws FOLDER`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulate.h"
#include "exec/exec.h"

/* Threads of a full launch: tests/fake has 2048 a processor. */
enum { THREADS = EMULATE_PROCESSORS * 2048, RUNS = 3, MOST = 16, BETWEEN = 12 };

static long passed, failed;

static bool
fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    failed++;
    return false;
}

/* ---- the generator ---- */

/* One round after another, by the paper; words in and out. */
static void
philox(uint32_t w[4], uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < 10; i++) {
        const uint64_t p = (uint64_t)0xD2511F53 * w[0];
        const uint64_t q = (uint64_t)0xCD9E8D57 * w[2];
        w[0] = (uint32_t)(q >> 32) ^ w[1] ^ k0;
        w[1] = (uint32_t)q;
        w[2] = (uint32_t)(p >> 32) ^ w[3] ^ k1;
        w[3] = (uint32_t)p;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
}

/* Vectors that the authors publish (Random123, kat_vectors). */
static void
check_philox(void)
{
    static const uint32_t given[3][6] = {{0},
                                         {~0u, ~0u, ~0u, ~0u, ~0u, ~0u},
                                         {0x243f6a88, 0x85a308d3, 0x13198a2e,
                                          0x03707344, 0xa4093822, 0x299f31d0}};
    static const uint32_t wanted[3][4] = {
        {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t w[4];
        memcpy(w, given[i], sizeof w);
        philox(w, given[i][4], given[i][5]);
        if (memcmp(w, wanted[i], sizeof w) != 0)
            fail("philox", "not the published vectors");
    }
}

static struct {
    uint64_t seed, offset;
    bool refuses;
} application;

static bool
draw(void *user, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    (void)user;
    *seed = application.seed;
    *offset = application.offset;
    application.offset += count;
    return !application.refuses;
}

/* ---- what an element is ---- */

/* The words of an element: `per` of them each, of a lot of four. */
typedef struct {
    uint64_t offset;
    int64_t n, threads;
} place;

static void
words_of(const place *p, int64_t thread, int64_t lot, uint32_t w[4])
{
    const uint64_t low = p->offset / 4 + (uint64_t)lot;
    w[0] = (uint32_t)low;
    w[1] = (uint32_t)(low >> 32);
    w[2] = (uint32_t)thread;
    w[3] = 0;
    philox(w, (uint32_t)application.seed, (uint32_t)(application.seed >> 32));
}

/* Element i, where a lot has `lot` numbers: which of them, and the words. */
static int
plain(const place *p, int64_t i, int lot, uint32_t w[4])
{
    const int64_t round = i / p->threads;
    words_of(p, i % p->threads, round / lot, w);
    return (int)(round % lot);
}

static int
wide(const place *p, int64_t i, int width, uint32_t w[4])
{
    const int64_t group = i / width, lots = (width + 3) / 4;
    words_of(p, group % p->threads, group / p->threads * lots + i % width / 4,
             w);
    return (int)(i % width % 4);
}

static float
unit(uint32_t w)
{
    return (float)w * 0x1p-32f + 0x1p-33f;
}

static double
unit64(const uint32_t *w)
{
    const uint64_t z = w[0] ^ ((uint64_t)w[1] << 21);
    return (double)z * 0x1p-53 + 0x1p-54;
}

static double
uniform(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 4, w);
    const float x = fmaf(unit(w[k]), 7.3f - -2.0f, -2.0f);
    return (double)(x == 7.3f ? -2.0f : x);
}

/* Rounding reaches the upper bound, which is the lower one then. */
static double
edge(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 4, w);
    const float x = fmaf(unit(w[k]), 1.f, 0x1p22f);
    return (double)(x == 0x1p22f + 1 ? 0x1p22f : x);
}

static double
uniform64(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 2, w);
    return fma(unit64(w + 2 * k), 7.25, -2.0);
}

static double
normal(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 4, w), first = k & 2;
    const float turn = 0x1p-32f * 6.2831855f;
    const float angle = fmaf((float)w[first + 1], turn, turn / 2);
    const float size = sqrtf(-2 * logf(unit(w[first])));
    const float x = (k & 1 ? cosf(angle) : sinf(angle)) * size;
    return (double)fmaf(x, 3.5f, 1.5f);
}

static double
normal64(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 2, w);
    const uint64_t z = w[2] ^ ((uint64_t)w[3] << 21);
    const double angle = ((double)z * 0x1p-52 + 0x1p-53) * M_PI;
    const double size = sqrt(-2 * log(unit64(w)));
    return (k ? cos(angle) : sin(angle)) * size;
}

static double
bernoulli(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 4, w);
    return unit(w[k]) < 0.3f;
}

static double
bernoulli64(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 2, w);
    return unit64(w + 2 * k) < 0.3;
}

static double
drop1(const place *p, int64_t i)
{
    return bernoulli(p, i);
}

static double
drop2(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = wide(p, i, 2, w);
    return unit(w[k]) < 0.3f;
}

static double
drop4(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = wide(p, i, 4, w);
    return unit(w[k]) < 0.3f;
}

static double
drop8(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = wide(p, i, 8, w);
    return unit(w[k]) < 0.3f;
}

static double
narrow(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 4, w);
    return (double)(w[k] % 268435455u) - 5;
}

static double
wide_range(const place *p, int64_t i)
{
    uint32_t w[4];
    const int k = plain(p, i, 2, w);
    const uint64_t x = ((uint64_t)w[2 * k] << 32) | w[2 * k + 1];
    return (double)(x % 268435456u);
}

/* ---- all of them, in one program ---- */

typedef struct {
    const char *name, *rest; /* op([n], rest) */
    air_dtype dtype;
    int64_t n;
    int lot; /* numbers of a lot that the offset counts */
    double (*want)(const place *p, int64_t i);
} row;

static const row rows[] = {
    {"air::uniform", "-2.0, 7.3, f32", AIR_F32, 5, 4, uniform},
    {"air::uniform", "-2.0, 7.3, f32", AIR_F32, 5 * THREADS + 3, 4, uniform},
    {"air::uniform", "4194304.0, 4194305.0, f32", AIR_F32, 999, 4, edge},
    {"air::uniform", "-2.0, 5.25, f64", AIR_F64, 3 * THREADS, 2, uniform64},
    {"air::normal", "1.5, 3.5, f32", AIR_F32, 2 * THREADS + 7, 4, normal},
    {"air::normal", "0.0, 1.0, f64", AIR_F64, 2 * THREADS + 7, 2, normal64},
    {"air::bernoulli", "0.3, bool", AIR_BOOL, 1000, 4, bernoulli},
    {"air::bernoulli", "0.3, f64", AIR_F64, 1000, 2, bernoulli64},
    {"air::bernoulli", "0.3, bool, none, 8", AIR_BOOL, 999, 4, drop1},
    {"air::bernoulli", "0.3, bool, none, 8", AIR_BOOL, 9 * THREADS + 2, 4,
     drop2},
    {"air::bernoulli", "0.3, bool, none, 4", AIR_BOOL, 9 * THREADS, 4, drop4},
    {"air::bernoulli", "0.3, bool, none, 8", AIR_BOOL, 9 * THREADS, 4, drop8},
    {"air::randint", "-5, 268435450, i64", AIR_I64, 4 * THREADS + 1, 4, narrow},
    {"air::randint", "0, 268435456, i64", AIR_I64, 4 * THREADS + 1, 2,
     wide_range},
    {"air::uniform", "-2.0, 7.3, f32", AIR_F32, 0, 4, uniform},
};
enum { ROWS = sizeof rows / sizeof *rows };

static double
element(const air_value *v, int64_t i)
{
    switch (v->dtype) {
    case AIR_F32: return (double)((const float *)v->data)[i];
    case AIR_F64: return ((const double *)v->data)[i];
    case AIR_I64: return (double)((const int64_t *)v->data)[i];
    default: return ((const uint8_t *)v->data)[i];
    }
}

static bool
check_row(const row *r, const air_value *v, place *p)
{
    const int64_t blocks = (r->n + 255) / 256 * 256;
    char why[120];
    p->n = r->n;
    p->threads = blocks < THREADS ? blocks : THREADS;
    for (int64_t i = 0; i < r->n; i++) {
        const double want = r->want(p, i), got = element(v, i);
        if (got == want)
            continue;
        (void)snprintf(why, sizeof why, "[%lld] of %lld is %.17g, not %.17g",
                       (long long)i, (long long)r->n, got, want);
        return fail(r->name, why);
    }
    if (r->n > 0)
        p->offset += (uint64_t)((r->n - 1) / (p->threads * r->lot) + 1) * 4;
    return true;
}

static void
print_graph(char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "graph g() {\n");
    for (int i = 0; i < ROWS; i++)
        at += (size_t)snprintf(text + at, size - at,
                               "  %%%d = %s([%lld], %s)\n", i + 1, rows[i].name,
                               (long long)rows[i].n, rows[i].rest);
    at += (size_t)snprintf(text + at, size - at, "  return %%1");
    for (int i = 1; i < ROWS; i++)
        at += (size_t)snprintf(text + at, size - at, ", %%%d", i + 1);
    (void)snprintf(text + at, size - at, "\n}\n");
}

/* capture: it runs the program; NULL: it runs by itself. */
static bool
check_run(air_program *p, air_capture *capture, place *at)
{
    air_value outs[MOST] = {0};
    air_capture_call call = {0};
    bool good = true;
    const air_status status =
        capture ? air_capture_run(capture, &call, NULL, 0, NULL, ROWS, outs)
                : air_program_run(p, NULL, 0, NULL, ROWS, outs);
    if (status != AIR_OK)
        return fail("a run", air_last_error()->message);
    for (int i = 0; i < ROWS; i++) {
        good = check_row(&rows[i], &outs[i], at) && good;
        air_value_release(&outs[i]);
    }
    if (good && application.offset != at->offset)
        good = fail("a run", "the generator is elsewhere than torch's");
    return good;
}

static bool
check_runs(air_program *p, air_capture *capture, place *at)
{
    bool good = true;
    for (int i = 0; good && i < RUNS; i++) {
        good = check_run(p, capture, at);
        passed += good;
        application.offset += BETWEEN;
        at->offset += BETWEEN;
    }
    return good;
}

static void
check_refusal(air_program *p)
{
    air_value outs[MOST] = {0};
    application.refuses = true;
    if (air_program_run(p, NULL, 0, NULL, ROWS, outs) == AIR_OK)
        fail("a generator that is not there", "no error");
    application.refuses = false;
}

static bool
make(air_context *ctx, air_graph **g, air_program **p)
{
    static char text[4096];
    print_graph(text, sizeof text);
    return air_graph_parse(ctx, text, strlen(text), g) == AIR_OK &&
           air_program_create(ctx, *g, NULL, p) == AIR_OK;
}

static void
check_all(void)
{
    const air_gpu lent = {.libraries = emulate_libraries(false), .draw = draw};
    const air_options options = {.driver = "cuda", .gpu = &lent, .threads = 1};
    air_context *ctx = NULL;
    air_graph *g = NULL;
    air_program *p = NULL;
    air_capture *capture = NULL;
    place at = {.offset = 0xfffffffff0};
    application.seed = 0x123456789abcdef;
    application.offset = at.offset;
    bool good = air_context_create(&options, &ctx) == AIR_OK &&
                make(ctx, &g, &p) &&
                air_capture_create(p, NULL, &capture) == AIR_OK;
    if (!good)
        fail("opening", air_last_error()->message);
    good = good && check_runs(p, NULL, &at) && check_runs(p, capture, &at);
    if (good)
        check_refusal(p);
    air_capture_destroy(capture);
    air_program_destroy(p);
    air_graph_destroy(g);
    air_context_destroy(ctx);
}

int
main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    check_philox();
    if (!emulate_possible())
        printf("kernels do not run: there is no g++\n");
    else if (emulate_start(argv[1]))
        check_all();
    else
        fail("opening", "no GPU that is none");
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0;
}
