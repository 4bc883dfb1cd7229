/* test_frozen.c: what is made of frozen inputs alone is computed at the first
 * run, and again where air_host.frozen is another. */
#include "air.h"
#include "test.h"

#define TEXT                                                 \
    "graph f(%x: f32[2, 2], %w: f32[2, 2] param frozen) {\n" \
    "  %a: f32[2, 2] = mul.Tensor(%w, 2.0)\n"                \
    "  %b: f32[2, 2] = mm(%a, %w)\n"                         \
    "  %c: f32[2, 2] = add.Tensor(%x, %b)\n"                 \
    "  return %c\n"                                          \
    "}\n"

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    float x[4], w[4];
} fixture;

static air_status
setup(fixture *f, const air_options *options, const char *text)
{
    air_status status;

    *f = (fixture){.x = {1, 2, 3, 4}, .w = {1, 0, 0, 1}};
    status = air_context_create(options, &f->ctx);
    if (status == AIR_OK)
        status = air_graph_parse(f->ctx, text, strlen(text), &f->graph);
    if (status == AIR_OK)
        status = air_program_create(f->ctx, f->graph, NULL, &f->program);
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
run_into(fixture *f, const air_host *host, air_value *out)
{
    static const int64_t dims[2] = {2, 2};
    const air_value in[] = {air_value_tensor(f->x, AIR_F32, 2, dims),
                            air_value_tensor(f->w, AIR_F32, 2, dims)};
    return air_program_run(f->program, host, 2, in, 1, out);
}

/* The first element of the result; -1: the run failed. */
static float
run(fixture *f, const air_host *host)
{
    air_value out;
    float first;

    if (run_into(f, host, &out) != AIR_OK)
        return -1;
    first = ((float *)out.data)[0];
    air_value_release(&out);
    return first;
}

TEST(frozen_is_computed_once)
{
    air_host host = {.frozen = 1};
    air_program_stats stats;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, TEXT))) {
        CHECK_NEAR(run(&f, &host), 3, 0);
        f.w[0] = 2;
        CHECK_NEAR(run(&f, &host), 3, 0); /* as was promised */
        host.frozen = 2;
        CHECK_NEAR(run(&f, &host), 9, 0);
        f.x[0] = 2;
        CHECK_NEAR(run(&f, &host), 10, 0);
        CHECK_NEAR(run(&f, NULL), 10, 0); /* stamp 0 */
        air_program_get_stats(f.program, &stats);
        CHECK_INT(stats.kept_bytes, 64);
    }
    teardown(&f);
}

/* Not where a list of the device begins behind a HOST node, nor mixed. */
TEST(frozen_before_a_list_of_others)
{
    const char *text = "graph f(%x: f32[2, 2], %w: f32[2, 2] frozen) {\n"
                       "  %d: f32[2, 2] = mm(%x, %x)\n"
                       "  %a: f32[2, 2] = mm(%w, %w)\n"
                       "  %c: f32[2, 2] = mm(%d, %a)\n"
                       "  %e: f32[2, 2] = mm(%w, %a)\n"
                       "  %g: f32[4, 2] = cat([%e, %c])\n"
                       "  %h: f32[2] = sum.dim_IntList(%g, dim=[0])\n"
                       "  return %c\n"
                       "}\n";
    fixture f;

    if (CHECK_OK(setup(&f, NULL, text)))
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(run(&f, NULL), 7, 0);
    teardown(&f);
}

/* What is computed once is no part of a region that runs each time. */
TEST(frozen_beside_others_in_a_sum)
{
    const char *text = "graph f(%x: f32[2, 2], %w: f32[2, 2] frozen) {\n"
                       "  %a: f32[2, 2] = add.Tensor(%w, 4.0)\n"
                       "  %b: f32[2, 2] = add.Tensor(%x, %a)\n"
                       "  return %b\n"
                       "}\n";
    fixture f;

    if (CHECK_OK(setup(&f, NULL, text))) {
        CHECK_NEAR(run(&f, NULL), 6, 0);
        f.x[0] = 3;
        CHECK_NEAR(run(&f, NULL), 8, 0);
        f.w[0] = 9;
        CHECK_NEAR(run(&f, NULL), 8, 0);
    }
    teardown(&f);
}

/* A part of a result that is made at each run is made at each run. */
TEST(frozen_beside_others_in_a_cat)
{
    const char *text = "graph f(%x: f32[2, 2], %w: f32[2, 2] frozen) {\n"
                       "  %a: f32[2, 2] = add.Tensor(%w, 4.0)\n"
                       "  %b: f32[2, 2] = neg(%x)\n"
                       "  %c: f32[4, 2] = cat([%a, %b])\n"
                       "  return %c\n"
                       "}\n";
    fixture f;

    if (CHECK_OK(setup(&f, NULL, text)))
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(run(&f, NULL), 5, 0);
    teardown(&f);
}

/* A watched run shows the steps of the first run too, and which they are. */
static air_status
count_steps(void *user, const air_seen *seen)
{
    ((int *)user)[seen->once] += seen->done;
    return AIR_OK;
}

TEST(frozen_is_watched)
{
    int steps[2] = {0}; /* of each run, of the first one */
    air_host host = {.user = steps, .see = count_steps};
    fixture f;

    if (CHECK_OK(setup(&f, NULL, TEXT))) {
        CHECK_NEAR(run(&f, NULL), 3, 0);
        f.w[0] = 2;
        CHECK_NEAR(run(&f, &host), 9, 0);
        CHECK_INT(steps[0], 1);
        CHECK_INT(steps[1], 2);
        CHECK_NEAR(run(&f, NULL), 3, 0);
    }
    teardown(&f);
}

static air_status
run_twice(const air_alloc *alloc, void *user)
{
    const air_options options = {.driver = "ref", .alloc = alloc, .threads = 1};
    const int64_t dims[2] = {2, 2};
    air_status status;
    air_value out;
    fixture f;

    (void)user;
    status = setup(&f, &options, TEXT);
    for (uint64_t i = 0; status == AIR_OK && i < 2; i++) {
        const air_value in[] = {air_value_tensor(f.x, AIR_F32, 2, dims),
                                air_value_tensor(f.w, AIR_F32, 2, dims)};
        const air_host host = {.frozen = i};
        status = air_program_run(f.program, &host, 2, in, 1, &out);
        if (status == AIR_OK)
            air_value_release(&out);
    }
    teardown(&f);
    return status;
}

TEST(frozen_out_of_memory)
{
    TEST_OOM(run_twice, NULL);
}

/* What the application records is of sizes and contents that have run, with
 * memory of its own (air_host.recorded). */
TEST(frozen_runs_are_recorded_once_they_have_run)
{
    air_host plain = {.frozen = 1}, host = {.frozen = 1, .recorded = true};
    air_value out, kept;
    fixture f;

    if (CHECK_OK(setup(&f, NULL, TEXT))) {
        CHECK_FAILS(run_into(&f, &host, &out), STATE); /* sizes are new */
        REQUIRE_OK(run_into(&f, &plain, &kept));
        const void *was = kept.data;
        air_value_release(&kept); /* the pool's, for the next run */
        REQUIRE_OK(run_into(&f, &host, &out));
        CHECK(out.data != was);
        CHECK_NEAR(((float *)out.data)[0], 3, 0);
        host.frozen = 2; /* what is kept would be computed again */
        CHECK_FAILS(run_into(&f, &host, &kept), STATE);
        air_value_release(&out);
    }
    teardown(&f);
}
