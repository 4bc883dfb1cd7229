/* test_watch.c: watched runs (air_host.see) and the memory plan as text. */
#include "air.h"
#include "capture_case.h"
#include "test.h"

static const char *const text =
    "graph f(%x: f32[4, 8], %b: f32[8]) {\n"
    "  %1: f32[4, 8] = add.Tensor(%x, %b)  # m.py:3\n"
    "  %2: f32[4, 8] = relu(%1)  # m.py:4\n"
    "  %3: f32[4, 8] = host \"my::add1\" 5 \"no row\" (%2)  # m.py:5\n"
    "  %4: f32[32] = view(%3, [32])\n"
    "  %5: f32[32] = mul.Tensor(%4, 2.0)  # m.py:6\n"
    "  return %5\n"
    "}\n";

/* What a run has shown, by tag. */
typedef struct {
    int shown, steps;      /* calls; those with a step's time */
    int stop;              /* fail at this call; 0: never */
    float add, relu, host; /* first element of the value, -1: not seen */
    bool relu_before;      /* seen as an operand too */
    char kinds[64], at[32];
} watched;

static void
look(watched *w, const air_seen *seen, const air_seen_value *v)
{
    for (size_t i = 0; i < v->ntags; i++) {
        const float first = *(const float *)v->value.data;
        if (strcmp(v->tags[i], "add") == 0)
            w->add = first;
        if (strcmp(v->tags[i], "host") == 0)
            w->host = first;
        if (strcmp(v->tags[i], "relu") != 0)
            continue;
        w->relu = first;
        w->relu_before |= !seen->done;
        snprintf(w->at, sizeof w->at, "%s %s", v->op, v->location);
    }
}

static air_status
see(void *user, const air_seen *seen)
{
    watched *w = user;

    if (++w->shown == w->stop)
        return AIR_ERROR_HOST;
    for (size_t i = 0; i < seen->count; i++)
        look(w, seen, &seen->values[i]);
    if (!seen->done)
        return AIR_OK;
    w->steps += seen->seconds > 0;
    snprintf(w->kinds + strlen(w->kinds), sizeof w->kinds - strlen(w->kinds),
             "%.1s", seen->kind);
    return AIR_OK;
}

static air_status
add1(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
     air_value *outs)
{
    (void)user, (void)id, (void)nin, (void)nout;
    for (int i = 0; i < 32; i++)
        ((float *)outs[0].data)[i] = ((const float *)in[0].data)[i] + 1;
    return AIR_OK;
}

static float x[32], b[8];

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
} fixture;

static air_status
tag(air_graph *g)
{
    /* values are numbered as they are defined: x, b, %1 ... */
    air_status status = air_graph_add_tag(g, (air_ref){2}, "add", NULL);

    if (status == AIR_OK)
        status = air_graph_add_tag(g, (air_ref){3}, "relu", NULL);
    if (status == AIR_OK)
        status = air_graph_add_tag(g, (air_ref){4}, "host", NULL);
    return status;
}

static air_status
setup(fixture *f, const air_options *options, unsigned without)
{
    const air_compile_options how = {.without = without};
    air_status status;

    memset(f, 0, sizeof *f);
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i - 7);
    for (int i = 0; i < 8; i++)
        b[i] = 10;
    status = air_context_create(options, &f->ctx);
    if (status == AIR_OK)
        status = air_graph_parse(f->ctx, text, strlen(text), &f->graph);
    if (status == AIR_OK)
        status = tag(f->graph);
    if (status == AIR_OK)
        status = air_program_create(f->ctx, f->graph, &how, &f->program);
    return status;
}

static void
teardown(fixture *f)
{
    air_program_destroy(f->program);
    air_graph_destroy(f->graph);
    air_context_destroy(f->ctx);
}

static air_status
run(const fixture *f, watched *w, air_value *out)
{
    const air_value in[] = {TENSOR(x, 4, 8), TENSOR(b, 8)};
    const air_host host = {.user = w, .call = add1, .see = w ? see : NULL};

    if (w)
        w->add = w->relu = w->host = -1;
    return air_program_run(f->program, &host, 2, in, 1, out);
}

static void
check_result(air_value *out)
{
    for (int i = 0; i < 32; i++)
        CHECK_NEAR(((float *)out->data)[i], 2.0 * (i + 4.0), 0);
    air_value_release(out);
}

TEST(watch_shows_steps_and_values)
{
    watched w = {0};
    air_value out;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, 0)) && CHECK_OK(run(&f, &w, &out))) {
        check_result(&out);
        CHECK_STR(w.kinds, "rhvr");
        CHECK_INT(w.shown, 8);
        CHECK(w.steps <= 3);      /* the view takes no time */
        CHECK_NEAR(w.add, -1, 0); /* in a register */
        CHECK_NEAR(w.relu, 3, 0);
        CHECK(w.relu_before);
        CHECK_STR(w.at, "relu m.py:4");
        CHECK_NEAR(w.host, 4, 0);
    }
    teardown(&f);
}

TEST(watch_without_registers_shows_all_tags)
{
    watched w = {0};
    air_value out;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, AIR_WITHOUT_REGISTERS)) &&
        CHECK_OK(run(&f, &w, &out))) {
        check_result(&out);
        CHECK_STR(w.kinds, "rhvr"); /* still fused */
        CHECK_NEAR(w.add, 3, 0);
        CHECK_NEAR(w.relu, 3, 0);
    }
    teardown(&f);
}

/* A result that a HOST node left is copied when all units have run. */
TEST(watch_gives_results_of_host_nodes)
{
    static const char *const of_host =
        "graph f(%x: f32[4, 8], %b: f32[8]) {\n"
        "  %1: f32[4, 8] = host \"my::add1\" 5 \"no row\" (%x)\n"
        "  return %1\n"
        "}\n";
    watched w = {0};
    air_value out;
    fixture f = {0};

    if (CHECK_OK(air_context_create(NULL, &f.ctx)) &&
        CHECK_OK(air_graph_parse(f.ctx, of_host, strlen(of_host), &f.graph)) &&
        CHECK_OK(air_program_create(f.ctx, f.graph, NULL, &f.program)))
        for (int i = 0; i < 32; i++)
            x[i] = (float)i;
    if (f.program && CHECK_OK(run(&f, &w, &out))) {
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(((float *)out.data)[i], i + 1, 0);
        CHECK_STR(w.kinds, "h");
        air_value_release(&out);
    }
    teardown(&f);
}

/* Runs that nobody watches before and after one. */
TEST(watch_is_of_one_run)
{
    watched w = {0};
    air_value out;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, 0)))
        for (int i = 0; i < 3; i++)
            if (CHECK_OK(run(&f, i == 1 ? &w : NULL, &out)))
                check_result(&out);
    CHECK_INT(w.shown, 8);
    teardown(&f);
}

TEST(watch_may_end_the_run)
{
    air_pool_stats stats;
    air_value out;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, 0)))
        for (int at = 1; at <= 8; at++) {
            watched w = {.stop = at};
            CHECK_FAILS(run(&f, &w, &out), HOST);
            CHECK_INT(w.shown, at);
            CHECK(out.data == NULL);
            air_context_get_pool_stats(f.ctx, &stats);
            CHECK_INT(stats.live_blocks, 0);
        }
    teardown(&f);
}

TEST(watch_memory_text)
{
    air_value out;
    char *plan;
    fixture f;

    if (!CHECK_OK(setup(&f, NULL, 0)))
        return;
    CHECK_FAILS(air_program_print(f.program, AIR_TEXT_MEMORY, &plan), STATE);
    if (CHECK_OK(run(&f, NULL, &out)) &&
        CHECK_OK(air_program_print(f.program, AIR_TEXT_MEMORY, &plan))) {
        CHECK(strstr(plan, "input 0 128 0 0 x\n"));
        CHECK(strstr(plan, "arena 0 128 0 1 2=relu\n"));
        CHECK(strstr(plan, " 3=host 4\n")); /* the view lies in it */
        air_program_text_free(f.program, plan);
        check_result(&out);
    }
    teardown(&f);
}

/* Replays are watched like runs. */
TEST(watch_captures)
{
    const air_value in[] = {TENSOR(x, 4, 8), TENSOR(b, 8)};
    air_capture *capture = NULL;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, 0)) &&
        CHECK_OK(air_capture_create(f.program, NULL, &capture)))
        for (int i = 0; i < 3; i++) {
            watched w = {.relu = -1};
            const air_host host = {.user = &w, .call = add1, .see = see};
            air_capture_call call = {0};
            air_value out;
            if (!CHECK_OK(
                    air_capture_run(capture, &call, &host, 2, in, 1, &out)))
                break;
            CHECK_INT(call.how, i ? AIR_CALL_REPLAYED : AIR_CALL_CAPTURED);
            CHECK_STR(w.kinds, "rhvr");
            CHECK_NEAR(w.relu, 3, 0);
            check_result(&out);
        }
    air_capture_destroy(capture);
    teardown(&f);
}

static air_status
oom_body(const air_alloc *alloc, void *user)
{
    const air_options options = {.alloc = alloc, .threads = 1};
    watched w = {0};
    air_value out;
    fixture f;
    air_status status = setup(&f, &options, AIR_WITHOUT_REGISTERS);

    (void)user;
    if (status == AIR_OK && (status = run(&f, &w, &out)) == AIR_OK)
        check_result(&out);
    teardown(&f);
    return status;
}

TEST(watch_out_of_memory)
{
    TEST_OOM(oom_body, NULL);
}

/* What cannot be made says for which node, by its tag and line. */
TEST(watch_tags_are_in_errors)
{
    const char *bad = "graph f(%x: f32[2, 3], %i: i64[2]) {\n"
                      "  %1: f32[2, 3] = host \"my::op\" 5 \"no row\" (%x)\n"
                      "  %2: f32[2, 3] = flip(%1, [0])  # m.py:9\n"
                      "  return %2\n"
                      "}\n";
    const air_options options = {.driver = "null"};
    fixture f = {0};

    if (CHECK_OK(air_context_create(&options, &f.ctx)) &&
        CHECK_OK(air_graph_parse(f.ctx, bad, strlen(bad), &f.graph)) &&
        CHECK_OK(air_graph_add_tag(f.graph, (air_ref){3}, "flip_7", NULL)) &&
        CHECK_OK(air_program_create(f.ctx, f.graph, NULL, &f.program))) {
        const air_host host = {.call = add1};
        const int64_t ids[2] = {0, 1};
        const air_value in[] = {
            TENSOR(x, 2, 3), air_value_tensor((void *)(uintptr_t)ids, AIR_I64,
                                              1, (const int64_t[]){2})};
        air_value out;
        CHECK_FAILS(air_program_run(f.program, &host, 2, in, 1, &out),
                    UNSUPPORTED);
        CHECK(strstr(air_last_error()->message, "(node flip_7, m.py:9)"));
    }
    teardown(&f);
}
