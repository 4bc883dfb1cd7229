/* test_join.c: products that take the region behind them along, against the
 * same program run step by step, bit for bit. */
#include <stdlib.h>

#include "air.h"
#include "test.h"

/* 8 MB of results */
enum { ROWS = 256, DEPTH = 8, COLS = 8192, MOST = 4 };

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
} fixture;

static float x[ROWS * DEPTH], w[DEPTH * COLS], r[ROWS * COLS], b[COLS];

static void
fill(float *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (float)(rand() % 2001) / 1000 - 1;
}

static air_status
setup(fixture *f, const air_options *options, const char *lines,
      const char *returns)
{
    char text[1024];

    *f = (fixture){NULL, NULL, NULL};
    snprintf(text, sizeof text,
             "graph f(%%x: f32[%d, %d], %%w: f32[%d, %d], %%r: f32[%d, %d], "
             "%%b: f32[%d]) {\n%s  return %s\n}\n",
             ROWS, DEPTH, DEPTH, COLS, ROWS, COLS, COLS, lines, returns);
    AIR_TRY(air_context_create(options, &f->ctx));
    AIR_TRY(air_graph_parse(f->ctx, text, strlen(text), &f->graph));
    return air_program_create(f->ctx, f->graph, NULL, &f->program);
}

static void
teardown(fixture *f)
{
    air_program_destroy(f->program);
    air_graph_destroy(f->graph);
    air_context_destroy(f->ctx);
}

static air_status
see(void *user, const air_seen *seen)
{
    *(int *)user += seen->done;
    return AIR_OK;
}

static air_status
run(const fixture *f, int *steps, size_t nouts, air_value *outs)
{
    const air_host host = {.user = steps, .see = steps ? see : NULL};
    const air_value in[] = {
        air_value_tensor(x, AIR_F32, 2, (int64_t[]){ROWS, DEPTH}),
        air_value_tensor(w, AIR_F32, 2, (int64_t[]){DEPTH, COLS}),
        air_value_tensor(r, AIR_F32, 2, (int64_t[]){ROWS, COLS}),
        air_value_tensor(b, AIR_F32, 1, (int64_t[]){COLS})};

    return air_program_run(f->program, &host, 4, in, nouts, outs);
}

static bool
same(const air_value *a, const air_value *c)
{
    size_t bytes = air_dtype_bytes(a->dtype);

    for (int i = 0; i < a->rank; i++)
        bytes *= (size_t)a->dims[i];
    return memcmp(a->data, c->data, bytes) == 0;
}

/* How many steps went along with others; -1: a result is another one. */
static int
joined(const air_options *options, const char *lines, const char *returns)
{
    air_value one[MOST] = {0}, all[MOST] = {0};
    char *text = NULL;
    size_t n = 1;
    int found = 0, steps = 0;
    fixture f;

    for (const char *at = returns; *at != '\0'; at++)
        n += *at == ',';
    if (CHECK_OK(setup(&f, options, lines, returns)) &&
        CHECK_OK(run(&f, NULL, n, all)) && CHECK_OK(run(&f, &steps, n, one)) &&
        CHECK(steps > 0) &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_STEPS, &text))) {
        for (const char *at = text; (at = strstr(at, "on pieces of")); at++)
            found++;
        for (size_t i = 0; i < n; i++)
            found = same(&one[i], &all[i]) ? found : -1;
    }
    for (size_t i = 0; i < n; i++) {
        air_value_release(&one[i]);
        air_value_release(&all[i]);
    }
    if (text)
        air_program_text_free(f.program, text);
    teardown(&f);
    return found;
}

TEST(join_region_behind_a_product)
{
    static const struct {
        const char *lines, *returns;
        int joined;
    } cases[] = {
        {"  %a = addmm(%b, %x, %w)\n  %g = gelu(%a)\n", "%g", 1},
        /* what others read is stored, too */
        {"  %a = mm(%x, %w)\n  %g = add.Tensor(%a, %r)\n", "%g, %a", 1},
        {"  %a = mm(%x, %w)\n  %g = relu(%a)\n  %t = permute(%w, [1, 0])\n"
         "  %c = mm(%a, %t)\n",
         "%g, %c", 1},
        /* another product is an operand of the region; views of the product */
        {"  %a = mm(%x, %w)\n  %c = addmm(%b, %x, %w)\n  %s = silu(%a)\n"
         "  %m = mul.Tensor(%s, %c)\n",
         "%m", 1},
        {"  %a = mm(%x, %w)\n  %v = view(%a, [1, 256, 8192])\n"
         "  %g = gelu(%v)\n",
         "%g", 1},
        /* a chain: what is read lives on while the region writes */
        {"  %t = permute(%w, [1, 0])\n  %a = mm(%x, %w)\n  %g = gelu(%a)\n"
         "  %c = mm(%g, %t)\n  %h = tanh(%c)\n  %d = mm(%h, %w)\n"
         "  %i = add.Tensor(%d, %r)\n",
         "%i", 2}, /* %c is small */
        /* what it reads ends with it, and is not where the region writes */
        {"  %v = mul.Tensor(%w, 2.0)\n  %a = mm(%x, %v)\n  %g = gelu(%a)\n"
         "  %t = permute(%w, [1, 0])\n  %c = mm(%g, %t)\n",
         "%c", 1},
        /* scopes of their own */
        {"  %a = mm(%x, %w) joined\n  %g = gelu(%a)\n", "%g", 0},
        {"  %a = mm(%x, %w)\n  %g = gelu(%a) untimed\n", "%g", 0},
        /* rows, and another order of elements */
        {"  %a = mm(%x, %w)\n  %g = _softmax(%a, -1, false)\n", "%g", 0},
        {"  %a = mm(%x, %w)\n  %t = permute(%a, [1, 0])\n  %g = gelu(%t)\n"
         "  %k = add.Tensor(%g, %g)\n",
         "%k", 0},
    };

    fill(x, ROWS * DEPTH);
    fill(w, DEPTH * COLS);
    fill(b, COLS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const air_options options = {.threads = threads};
            fill(r, ROWS * COLS);
            if (!CHECK_INT(joined(&options, cases[i].lines, cases[i].returns),
                           cases[i].joined))
                printf("  case %zu, %d threads\n", i, threads);
        }
}

/* Drivers that cannot join run the steps one after another. */
TEST(join_is_asked_of_the_driver)
{
    const air_options options = {.driver = "ref"};

    fill(r, ROWS * COLS);
    CHECK_INT(joined(&options, "  %a = mm(%x, %w)\n  %g = gelu(%a)\n", "%g"),
              0);
}

/* Who checks or traces a driver sees what runs without them. */
TEST(join_passes_wrappers)
{
    static const char *const drivers[] = {"check:cpu", "trace:cpu",
                                          "fault:check:cpu"};

    fill(r, ROWS * COLS);
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        const air_options options = {.driver = drivers[i], .threads = 2};
        if (!CHECK_INT(
                joined(&options, "  %a = mm(%x, %w)\n  %g = gelu(%a)\n", "%g"),
                1))
            printf("  %s\n", drivers[i]);
    }
}

static air_status
oom_body(const air_alloc *alloc, void *user)
{
    const air_options options = {.threads = 2, .alloc = alloc};
    air_value out = {0};
    fixture f;

    (void)user;
    air_status status =
        setup(&f, &options, "  %a = mm(%x, %w)\n  %g = gelu(%a)\n", "%g");
    if (status == AIR_OK)
        status = run(&f, NULL, 1, &out);
    air_value_release(&out);
    teardown(&f);
    return status;
}

TEST(join_survives_out_of_memory)
{
    TEST_OOM(oom_body, NULL);
}
