/* bench_capture.c: what a replay costs beside its kernels: the driver's lists
 * do nothing here.
 *
 *     ninja tests/unit/bench_capture && build/tests/unit/bench_capture
 *
 * Nanoseconds a call, median and best of 15 rounds of 20,000 calls:
 *   plain      air_program_run
 *   looked at  air_capture_run, static inputs compared at every call
 *   bound      air_capture_run with a binding */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "driver/driver.h"
#include "exec/exec.h"

enum { ROUNDS = 15, CALLS = 20000, MOST = 256 };

static air_status
run_nothing(air_device *dev, air_list *list, void *const *slots)
{
    (void)dev, (void)list, (void)slots;
    return AIR_OK;
}

typedef struct {
    air_program *program;
    air_capture *capture;
    air_capture_call call;
    air_value in[MOST];
    size_t nin;
} subject;

typedef void (*one_call)(subject *s);

static void
check(air_status status)
{
    if (status == AIR_OK)
        return;
    fprintf(stderr, "%s\n", air_last_error()->message);
    exit(1);
}

static void
plain(subject *s)
{
    air_value out;

    check(air_program_run(s->program, NULL, s->nin, s->in, 1, &out));
    air_value_release(&out);
}

static void
captured(subject *s)
{
    air_value out;

    check(air_capture_run(s->capture, &s->call, NULL, s->nin, s->in, 1, &out));
    air_value_release(&out);
}

static int
compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void
measure(const char *name, subject *s, one_call call)
{
    double ns[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        const double start = base_now();
        for (int i = 0; i < CALLS; i++)
            call(s);
        ns[r] = (base_now() - start) * 1e9 / CALLS;
    }
    qsort(ns, ROUNDS, sizeof *ns, compare);
    printf("  %-10s %7.0f %7.0f\n", name, ns[ROUNDS / 2], ns[0]);
}

/* x + p0 + p1 ... */
static char *
make_text(int params)
{
    char *text = malloc(256 + (size_t)params * 96), *at = text;

    at += sprintf(at, "graph f(%%x: f32[64]");
    for (int i = 0; i < params; i++)
        at += sprintf(at, ", %%p%d: f32[64] param", i);
    at += sprintf(at, ") {\n  %%1: f32[64] = relu(%%x)\n");
    for (int i = 0; i < params; i++)
        at += sprintf(at, "  %%%d: f32[64] = add.Tensor(%%%d, %%p%d)\n", i + 2,
                      i + 1, i);
    sprintf(at, "  return %%%d\n}\n", params + 1);
    return text;
}

static void
bench(const char *name, int params)
{
    static float data[64];
    static const int64_t dims[1] = {64};
    const air_options options = {.threads = 1};
    char *text = make_text(params);
    air_driver idle;
    air_context *ctx;
    air_graph *graph;
    subject s = {.nin = (size_t)params + 1};

    check(air_context_create(&options, &ctx));
    idle = *ctx->driver;
    idle.list_run = run_nothing;
    ctx->driver = &idle;
    check(air_graph_parse(ctx, text, strlen(text), &graph));
    check(air_program_create(ctx, graph, NULL, &s.program));
    check(air_capture_create(s.program, NULL, &s.capture));
    for (size_t i = 0; i < s.nin; i++)
        s.in[i] = air_value_tensor(data, AIR_F32, 1, dims);
    printf("%s\n", name);
    measure("plain", &s, plain);
    measure("looked at", &s, captured);
    check(air_capture_bind(s.capture, s.nin, s.in, &s.call.binding));
    measure("bound", &s, captured);
    air_capture_destroy(s.capture);
    air_program_destroy(s.program);
    air_graph_destroy(graph);
    air_context_destroy(ctx);
    free(text);
}

int
main(void)
{
    printf("ns a call     median    best\n");
    bench("tiny", 0);
    bench("144 parameters", 144);
    return 0;
}
