#include "capture_case.h"

#include <stdlib.h>

#include "driver/driver.h"
#include "exec/exec.h"

/* ---- a device that captures ---- */

capture_double_calls capture_double;

enum { MOST = 16 };

typedef struct {
    air_list *list;           /* NULL: of the application */
    capture_double_work work; /* what it did */
} item;

struct air_device_graph {
    item items[MOST];
    void **slots;
    size_t count, kept; /* items that the application's are behind */
};

static const air_driver *ref;
static _Thread_local air_device_graph *recording;

static air_status
next_call(void)
{
    AIR_REQUIRE(capture_double.fail_at == 0 || --capture_double.fail_at > 0,
                AIR_ERROR_DRIVER, "the double fails here");
    return AIR_OK;
}

static air_status
double_begin(air_device *dev, air_capture_error_mode mode)
{
    (void)dev, (void)mode;
    AIR_TRY(next_call());
    capture_double.begins++;
    AIR_REQUIRE(!capture_double.unsupported, AIR_ERROR_UNSUPPORTED,
                "the double captures nothing today");
    recording = calloc(1, sizeof *recording);
    AIR_REQUIRE(recording, AIR_ERROR_MEMORY, "out of memory");
    return AIR_OK;
}

static air_status
double_end(air_device *dev, air_device_graph **out)
{
    air_device_graph *graph = recording;

    (void)dev;
    recording = NULL;
    if (next_call() != AIR_OK ||
        (capture_double.fail_end > 0 && --capture_double.fail_end == 0)) {
        free(graph);
        AIR_FAIL(AIR_ERROR_DRIVER, "the double does not end");
    }
    capture_double.ends++;
    capture_double.alive++;
    *out = graph;
    return AIR_OK;
}

static air_status
double_list_run(air_device *dev, air_list *list, void *const *slots)
{
    if (!recording) {
        capture_double.lists++;
        return ref->list_run(dev, list, slots);
    }
    AIR_REQUIRE(recording->count < MOST, AIR_ERROR_UNSUPPORTED,
                "the double has room for %d lists", MOST);
    recording->items[recording->count++] = (item){.list = list};
    memcpy(&recording->slots, &slots, sizeof slots); /* until patched */
    return AIR_OK;
}

static air_status
double_launch(air_device *dev, air_device_graph *graph)
{
    AIR_TRY(next_call());
    capture_double.launches++;
    for (size_t i = 0; i < graph->count; i++) {
        const item *it = &graph->items[i];
        if (it->list)
            AIR_TRY(ref->list_run(dev, it->list, graph->slots));
        else
            it->work.run(it->work.in, it->work.out, it->work.n);
    }
    return AIR_OK;
}

static air_status
double_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    (void)dev;
    AIR_TRY(next_call());
    capture_double.patches++;
    memcpy(&graph->slots, &slots, sizeof slots);
    return AIR_OK;
}

static void
double_free(air_device *dev, air_device_graph *graph)
{
    (void)dev;
    capture_double.alive--;
    free(graph);
}

/* ---- what the application does meanwhile ---- */

void
capture_double_give(void *stream, capture_double_work work)
{
    air_device_graph *graph = stream;
    if (CHECK(graph->count < MOST))
        graph->items[graph->count++] = (item){.work = work};
}

static air_status
double_foreign_begin(air_device *dev, void **out_stream)
{
    (void)dev;
    *out_stream = NULL;
    AIR_TRY(next_call());
    AIR_REQUIRE(recording, AIR_ERROR_STATE, "the double does not capture");
    recording->kept = recording->count;
    *out_stream = recording;
    return AIR_OK;
}

static air_status
double_foreign_end(air_device *dev, bool keep)
{
    (void)dev;
    const air_status status = next_call();
    if (!keep || status != AIR_OK)
        recording->count = recording->kept;
    else
        capture_double.foreign++;
    return status;
}

const air_driver *
capture_double_driver(void)
{
    static air_driver table;

    ref = driver_find("ref");
    table = *ref;
    table.list_run = double_list_run;
    table.capture_begin = double_begin;
    table.capture_end = double_end;
    table.graph_launch = double_launch;
    table.graph_patch = double_patch;
    table.graph_free = double_free;
    table.foreign_begin = double_foreign_begin;
    table.foreign_end = double_foreign_end;
    capture_double = (capture_double_calls){0};
    return &table;
}

void
capture_double_install(air_context *ctx)
{
    ctx->driver = capture_double_driver();
}

/* ---- cases ---- */

bool
capture_case_open(capture_case *t, const char *driver, const char *text,
                  const air_capture_options *options)
{
    const bool is_double = driver && strcmp(driver, "double") == 0;
    const air_options o = {.driver = is_double ? "ref" : driver, .threads = 1};

    *t = (capture_case){0};
    if (!CHECK_OK(air_context_create(&o, &t->ctx)))
        return false;
    if (is_double)
        capture_double_install(t->ctx);
    return CHECK_OK(air_graph_parse(t->ctx, text, strlen(text), &t->graph)) &&
           CHECK_OK(air_program_create(t->ctx, t->graph, NULL, &t->program)) &&
           CHECK_OK(air_capture_create(t->program, options, &t->capture));
}

void
capture_case_close(capture_case *t)
{
    air_pool_stats pool;

    air_context_get_pool_stats(t->ctx, &pool);
    air_capture_destroy(t->capture);
    air_context_get_pool_stats(t->ctx, &pool);
    CHECK_INT(pool.live_blocks, 0);
    air_program_destroy(t->program);
    air_graph_destroy(t->graph);
    air_context_destroy(t->ctx);
}

bool
capture_case_again(capture_case *t, const air_capture_options *options)
{
    air_capture_destroy(t->capture);
    t->capture = NULL;
    t->call = (air_capture_call){0};
    return CHECK_OK(air_capture_create(t->program, options, &t->capture));
}

bool
capture_case_run(capture_case *t, size_t nin, const air_value *inputs,
                 size_t nout, air_value *outs, air_call_class how)
{
    if (!CHECK_OK(air_capture_run(t->capture, &t->call, NULL, nin, inputs, nout,
                                  outs)))
        return false;
    return CHECK_STR(air_call_text(t->call.how, NULL),
                     air_call_text(how, NULL));
}
