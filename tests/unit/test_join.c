/* test_join.c: products that take the region behind them along, against the
 * same program run step by step, bit for bit. */
#include <stdlib.h>

#include "air.h"
#include "kernel_case.h"
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

typedef air_status runner(const fixture *f, int *steps, size_t nouts,
                          air_value *outs);

/* How many steps went along with others; -1: a result is another one. */
static int
count_joined(const fixture *f, runner *go, size_t n)
{
    air_value one[MOST] = {0}, all[MOST] = {0};
    char *text = NULL;
    int found = 0, steps = 0;

    if (CHECK_OK(go(f, NULL, n, all)) && CHECK_OK(go(f, &steps, n, one)) &&
        CHECK(steps > 0) &&
        CHECK_OK(air_program_print(f->program, AIR_TEXT_STEPS, &text))) {
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
        air_program_text_free(f->program, text);
    return found;
}

static size_t
count_results(const char *returns)
{
    size_t n = 1;

    for (const char *at = returns; *at != '\0'; at++)
        n += *at == ',';
    return n;
}

static int
joined(const air_options *options, const char *lines, const char *returns)
{
    int found = 0;
    fixture f;

    if (CHECK_OK(setup(&f, options, lines, returns)))
        found = count_joined(&f, run, count_results(returns));
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

/* ---- convolutions ---- */

/* Of square windows; images are one pixel wider than high. */
typedef struct {
    int images, in, out, kernel, stride, pad, high, groups;
    const char *dtype, *lines, *returns;
    int joined;
} conv_case;

static conv_case conv;

static int
conv_size(int n)
{
    return (n + 2 * conv.pad - conv.kernel) / conv.stride + 1;
}

static air_status
setup_conv(fixture *f, const air_options *options)
{
    const conv_case *c = &conv;
    char text[2048];

    *f = (fixture){NULL, NULL, NULL};
    snprintf(text, sizeof text,
             "graph f(%%x: f32[%d, %d, %d, %d], %%w: f32[%d, %d, %d, %d], "
             "%%r: f32[%d, %d, %d, %d], %%b: f32[%d]) {\n"
             "  %%i = prims::convert_element_type(%%x, %s)\n"
             "  %%u = prims::convert_element_type(%%w, %s)\n"
             "  %%c = convolution(%%i, %%u, none, stride=[%d, %d], "
             "padding=[%d, %d], dilation=[1, 1], transposed=false, "
             "output_padding=[0, 0], groups=%d)\n"
             "  %%s = add.Tensor(%%b, 1.0)\n"
             "  %%v = view(%%s, [1, %d, 1, 1])\n%s  return %s\n}\n",
             c->images, c->in, c->high, c->high + 1, c->out, c->in / c->groups,
             c->kernel, c->kernel, c->images, c->out, conv_size(c->high),
             conv_size(c->high + 1), c->out, c->dtype, c->dtype, c->stride,
             c->stride, c->pad, c->pad, c->groups, c->out, c->lines,
             c->returns);
    AIR_TRY(air_context_create(options, &f->ctx));
    AIR_TRY(air_graph_parse(f->ctx, text, strlen(text), &f->graph));
    return air_program_create(f->ctx, f->graph, NULL, &f->program);
}

static air_status
run_conv(const fixture *f, int *steps, size_t nouts, air_value *outs)
{
    const air_host host = {.user = steps, .see = steps ? see : NULL};
    const conv_case *c = &conv;
    const air_value in[] = {
        air_value_tensor(r, AIR_F32, 4,
                         (int64_t[]){c->images, c->in, c->high, c->high + 1}),
        air_value_tensor(
            r + 1000, AIR_F32, 4,
            (int64_t[]){c->out, c->in / c->groups, c->kernel, c->kernel}),
        air_value_tensor(r + 2000, AIR_F32, 4,
                         (int64_t[]){c->images, c->out, conv_size(c->high),
                                     conv_size(c->high + 1)}),
        air_value_tensor(b, AIR_F32, 1, (int64_t[]){c->out})};

    return air_program_run(f->program, &host, 4, in, nouts, outs);
}

/* Scales of channels are computed before the convolution: so nothing stands
 * between it and its region. */
TEST(join_region_behind_a_convolution)
{
    static const char scale[] = "  %m = mul.Tensor(%c, %v)\n"
                                "  %a = add.Tensor(%m, %r)\n"
                                "  %y = relu(%a)\n";
    static const char few[] = "  %y = relu(%c)\n";
    static const char turned[] = "  %t = permute(%c, [0, 1, 3, 2])\n"
                                 "  %y = relu(%t)\n  %a = neg(%y)\n";
    static const conv_case cases[] = {
        {1, 24, 40, 1, 1, 0, 37, 1, "f32", scale, "%y", 1}, /* few rows */
        {2, 24, 40, 1, 1, 0, 37, 1, "f32", scale, "%y, %c", 1},
        {1, 64, 200, 1, 1, 0, 21, 1, "f32", scale, "%y", 1}, /* many rows */
        {2, 200, 150, 1, 1, 0, 15, 1, "f32", scale, "%c, %y", 1},
        {1, 128, 300, 1, 1, 0, 7, 1, "f32", scale, "%y", 1}, /* few pixels */
        {1, 20, 33, 1, 2, 0, 41, 1, "f32", scale, "%y", 1},
        {1, 16, 72, 3, 2, 1, 29, 1, "f32", few, "%y", 1},
        {1, 40, 48, 3, 1, 1, 27, 1, "f32", scale, "%y, %c", 1},
        {1, 24, 40, 5, 1, 2, 19, 1, "f32", scale, "%y", 1},
        {1, 24, 40, 1, 1, 0, 37, 1, "bf16", few, "%y, %c", 1},
        {1, 24, 40, 3, 1, 1, 37, 1, "bf16", few, "%y", 1},
        /* few channels in; a window a channel, by rows and by channels */
        {1, 3, 40, 7, 2, 3, 61, 1, "f32", scale, "%y", 1},
        {2, 3, 40, 3, 1, 1, 29, 1, "f32", scale, "%c, %y", 1},
        {1, 48, 48, 3, 1, 1, 31, 48, "f32", scale, "%y", 1},
        {2, 72, 72, 5, 2, 2, 27, 72, "f32", scale, "%y, %c", 1},
        {1, 200, 200, 3, 1, 1, 7, 200, "f32", scale, "%y", 1},
        {1, 4, 40, 3, 1, 1, 37, 1, "bf16", few, "%y", 1},
        {1, 48, 48, 3, 1, 1, 37, 48, "bf16", few, "%y", 1},
        /* small; in another order */
        {1, 24, 40, 1, 1, 0, 11, 1, "f32", scale, "%y", 0},
        {1, 24, 40, 1, 1, 0, 37, 1, "f32", turned, "%a", 0},
    };
    static const char *const isas[] = {"avx512", "avx2", "scalar"};

    fill(b, COLS);
    fill(r, ROWS * COLS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 6; k++) {
            const air_options options = {.threads = 1 + k % 2,
                                         .isa = isas[k / 2]};
            int found = 0;
            fixture f;
            if (!kcase_has_isa(options.isa))
                continue;
            conv = cases[i];
            if (CHECK_OK(setup_conv(&f, &options)))
                found = count_joined(&f, run_conv, count_results(conv.returns));
            if (!CHECK_INT(found, conv.joined))
                printf("  case %zu, %s, %d threads\n", i, options.isa,
                       options.threads);
            teardown(&f);
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
