/* test_recorded.c: runs that the application records (air_host.recorded): only
 * of what has run, with memory of their own. */
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
setup(fixture *f)
{
    const char *text = TEXT;
    air_status status;

    *f = (fixture){.x = {1, 2, 3, 4}, .w = {1, 0, 0, 1}};
    status = air_context_create(NULL, &f->ctx);
    if (status == AIR_OK)
        status = air_graph_parse(f->ctx, text, strlen(text), &f->graph);
    if (status == AIR_OK)
        status = air_program_create(f->ctx, f->graph, NULL, &f->program);
    return status;
}

static air_status
run(fixture *f, const air_host *host, air_value *out)
{
    static const int64_t dims[2] = {2, 2};
    const air_value in[] = {air_value_tensor(f->x, AIR_F32, 2, dims),
                            air_value_tensor(f->w, AIR_F32, 2, dims)};
    return air_program_run(f->program, host, 2, in, 1, out);
}

TEST(recorded_runs_are_of_what_has_run)
{
    air_host plain = {.frozen = 1}, host = {.frozen = 1, .recorded = true};
    air_value out, kept;
    fixture f;

    if (CHECK_OK(setup(&f))) {
        CHECK_FAILS(run(&f, &host, &out), STATE); /* these sizes are new */
        REQUIRE_OK(run(&f, &plain, &kept));
        const void *was = kept.data;
        air_value_release(&kept); /* the pool's, for the next run */
        REQUIRE_OK(run(&f, &host, &out));
        CHECK(out.data != was);
        CHECK_NEAR(((float *)out.data)[0], 3, 0);
        host.frozen = 2; /* what is kept would be computed again */
        CHECK_FAILS(run(&f, &host, &kept), STATE);
        air_value_release(&out);
    }
    air_program_destroy(f.program);
    air_graph_destroy(f.graph);
    air_context_destroy(f.ctx);
}
