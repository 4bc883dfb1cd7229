/* test_exec_order.c: START and WAIT nodes: what runs between them, what keeps
 * its order, and whose memory is whose. */
#include <stdio.h>

#include "air.h"
#include "test.h"

#define MAX_EVENTS 64

/* A device that doubles: what START takes is there after the WAIT. */
typedef struct {
    char events[12 * MAX_EVENTS]; /* "s1 w1 ..." in order of the calls */
    float taken[MAX_EVENTS][4];
    const void *lies_at[MAX_EVENTS];
    int started, flying, most;
} link;

static void
note(link *l, char what, uint32_t id)
{
    char text[16];

    snprintf(text, sizeof text, "%c%u ", what, id);
    strcat(l->events, text);
}

/* ids below 100 start, 100 waits for any of them, 200 is a plain call */
static air_status
link_call(void *user, uint32_t id, size_t nin, const air_value *in, size_t nout,
          air_value *outs)
{
    link *l = user;

    if (id == 200) {
        note(l, 'c', id);
        return AIR_OK;
    }
    if (id < 100) {
        note(l, 's', id);
        CHECK(nin == 1 && nout == 1);
        memcpy(l->taken[l->started], in[0].data, sizeof l->taken[0]);
        memset(outs[0].data, 0x7f, sizeof l->taken[0]);
        l->lies_at[l->started++] = outs[0].data;
        if (++l->flying > l->most)
            l->most = l->flying;
        return AIR_OK;
    }
    CHECK(nin == 1 && nout == 0);
    int i = l->started - 1;
    while (i > 0 && l->lies_at[i] != in[0].data)
        i--;
    note(l, 'w', (uint32_t)i);
    for (int k = 0; k < 4; k++)
        ((float *)in[0].data)[k] = 2 * l->taken[i][k];
    l->flying--;
    return AIR_OK;
}

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    link link;
    air_value out[2];
    char *steps;
} fixture;

/* Runs the graph on x = 1 2 3 4; false (and a failure) where it fails. */
static bool
run(fixture *f, const char *text, size_t nout)
{
    static float x[4] = {1, 2, 3, 4};
    const air_value in = air_value_tensor(x, AIR_F32, 1, (int64_t[]){4});
    const air_host host = {.user = &f->link, .call = link_call};

    memset(f, 0, sizeof *f);
    return CHECK_OK(air_context_create(NULL, &f->ctx)) &&
           CHECK_OK(air_graph_parse(f->ctx, text, strlen(text), &f->graph)) &&
           CHECK_OK(air_program_create(f->ctx, f->graph, NULL, &f->program)) &&
           CHECK_OK(air_program_run(f->program, &host, 1, &in, nout, f->out)) &&
           CHECK_OK(air_program_print(f->program, AIR_TEXT_STEPS, &f->steps));
}

static void
end(fixture *f)
{
    for (int i = 0; i < 2; i++)
        air_value_release(&f->out[i]);
    air_program_text_free(f->program, f->steps);
    air_program_destroy(f->program);
    air_graph_destroy(f->graph);
    air_context_destroy(f->ctx);
}

static float
at(const fixture *f, int which, int i)
{
    return ((const float *)f->out[which].data)[i];
}

TEST(order_independent_work_runs_before_a_wait)
{
    fixture f;

    if (run(&f,
            "graph f(%x: f32[4]) {\n"
            "  %s: f32[4] = start \"l::go\" 1 \"sum\" (%x)\n"
            "  %w: f32[4] = wait \"l::wait\" 100 \"for s\" (%s)\n"
            "  %y: f32[4] = add.Tensor(%w, 1.0)\n"
            "  %m: f32[4] = cumsum(%x, dim=0)\n"
            "  %z: f32[4] = add.Tensor(%y, %m)\n"
            "  return %z, %y\n"
            "}\n",
            2)) {
        const char *mid = strstr(f.steps, "cumsum");
        CHECK(mid && strstr(f.steps, "start l::go: sum") < mid);
        CHECK(mid && mid < strstr(f.steps, "wait l::wait: for s"));
        CHECK_NEAR(at(&f, 0, 3), 2 * 4 + 1 + 10, 0);
        CHECK_NEAR(at(&f, 1, 0), 2 * 1 + 1, 0);
        CHECK_STR(f.link.events, "s1 w0 ");
    }
    end(&f);
}

TEST(order_starts_and_calls_keep_theirs)
{
    fixture f;

    if (run(&f,
            "graph f(%x: f32[4]) {\n"
            "  %s: f32[4] = start \"l::go\" 1 \"\" (%x)\n"
            "  %w: f32[4] = wait \"l::wait\" 100 \"\" (%s)\n"
            "  %a: f32[4] = relu(%w)\n"
            "  %t: f32[4] = start \"l::go\" 2 \"\" (%a)\n"
            "  host \"l::call\" 200 \"\" ()\n"
            "  %u: f32[4] = start \"l::go\" 3 \"\" (%x)\n"
            "  %v: f32[4] = wait \"l::wait\" 100 \"\" (%t)\n"
            "  %q: f32[4] = wait \"l::wait\" 100 \"\" (%u)\n"
            "  return %v, %q\n"
            "}\n",
            2)) {
        CHECK_STR(f.link.events, "s1 w0 s2 c200 s3 w1 w2 ");
        CHECK_NEAR(at(&f, 0, 1), 8, 0);
        CHECK_NEAR(at(&f, 1, 1), 4, 0);
    }
    end(&f);
}

/* A wait that nobody reads is still made. */
TEST(order_unused_wait_stays)
{
    fixture f;

    if (run(&f,
            "graph f(%x: f32[4]) {\n"
            "  %s: f32[4] = start \"l::go\" 1 \"\" (%x)\n"
            "  %w: f32[4] = wait \"l::wait\" 100 \"\" (%s)\n"
            "  %y: f32[4] = relu(%x)\n"
            "  return %y\n"
            "}\n",
            1))
        CHECK_STR(f.link.events, "s1 w0 ");
    end(&f);
}

/* What is started and not waited for has a bound. */
TEST(order_bounds_what_is_in_flight)
{
    char text[8192] = "graph f(%x: f32[4]) {\n", line[160];
    fixture f;

    for (int i = 0; i < 40; i++) {
        snprintf(line, sizeof line,
                 "  %%s%d: f32[4] = start \"l::go\" 1 \"\" (%%x)\n"
                 "  %%w%d: f32[4] = wait \"l::wait\" 100 \"\" (%%s%d)\n",
                 i, i, i);
        strcat(text, line);
    }
    strcat(text, "  return %w0, %w39\n}\n");
    if (run(&f, text, 2)) {
        CHECK_INT(f.link.started, 40);
        CHECK_INT(f.link.flying, 0);
        CHECK_INT(f.link.most, 16);
        CHECK_NEAR(at(&f, 1, 2), 6, 0);
    }
    end(&f);
}

TEST(order_refuses_what_is_not_there_yet)
{
    static const struct {
        const char *body, *message;
    } wrong[] = {
        {"  %s: f32[4] = start \"l::go\" 1 \"\" (%x)\n"
         "  %y: f32[4] = relu(%s)\n  return %y\n}\n",
         "read without a wait"},
        {"  %s: f32[4] = start \"l::go\" 1 \"\" (%x)\n  return %s\n}\n",
         "a start without a wait"},
        {"  %s: f32[4] = start \"l::go\" 1 \"\" (%x)\n"
         "  %w: f32[2] = wait \"l::wait\" 1 \"\" (%s)\n  return %w\n}\n",
         "a wait gives what it takes"},
        {"  %w: f32[4] = wait \"l::wait\" 1 \"\" (%x, %x)\n  return %w\n}\n",
         "a wait takes one value"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const air_options options = {.verify = true};
        char text[512] = "graph f(%x: f32[4]) {\n";
        fixture f = {0};

        strcat(text, wrong[i].body);
        air_status status = air_context_create(&options, &f.ctx);
        if (status == AIR_OK)
            status = air_graph_parse(f.ctx, text, strlen(text), &f.graph);
        if (status == AIR_OK)
            status = air_program_create(f.ctx, f.graph, NULL, &f.program);
        CHECK(status != AIR_OK);
        if (!strstr(air_last_error()->message, wrong[i].message))
            CHECK_STR(air_last_error()->message, wrong[i].message);
        end(&f);
    }
}
