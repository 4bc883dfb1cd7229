/* The wrappers: fault, trace, check. */
#include <string.h>

#include "capture_case.h"
#include "driver/driver.h"
#include "driver/wrap/wrap.h"
#include "test.h"

/* ---- a log that keeps its lines ------------------------------------------ */

typedef struct {
    char text[4096];
    size_t len;
    int errors;
} log_book;

static void
log_line(void *user, air_log_level level, const char *line)
{
    log_book *book = user;
    size_t len = strlen(line);
    book->errors += level == AIR_LOG_ERROR;
    if (book->len + len + 2 > sizeof book->text)
        return;
    memcpy(book->text + book->len, line, len);
    book->len += len;
    book->text[book->len++] = '\n';
}

static air_device *
open_wrapped(const char *name, log_book *book, const air_alloc *alloc)
{
    air_device *dev = NULL;
    const air_driver *driver = driver_find(name);
    air_options options = {.driver = name, .log = log_line, .log_user = book};
    *book = (log_book){.len = 0};
    if (CHECK(driver != NULL))
        CHECK_OK(driver->open(&options, alloc, &dev));
    return dev;
}

TEST(wrap_refuses_an_unknown_driver)
{
    air_options options = {.driver = "trace:warp"};
    air_device *dev;
    CHECK_FAILS(air_driver_trace.open(&options, &base_libc_alloc, &dev),
                ARGUMENT);
    CHECK(dev == NULL);
}

TEST(wrap_fault_fails_the_chosen_call)
{
    log_book book;
    void *ptr;
    air_device *dev = open_wrapped("fault:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    wrap_fault_set(2);
    CHECK_OK(air_driver_fault.alloc(dev, 100, &ptr));
    air_driver_fault.free(dev, ptr, 100);
    CHECK_FAILS(air_driver_fault.alloc(dev, 100, &ptr), MEMORY);
    CHECK(ptr == NULL);
    CHECK_OK(air_driver_fault.alloc(dev, 100, &ptr));
    air_driver_fault.free(dev, ptr, 100);
    CHECK_INT(wrap_fault_calls(), 3);
    wrap_fault_set(0);
    air_driver_fault.close(dev);
}

TEST(wrap_trace_writes_each_call)
{
    log_book book;
    test_alloc alloc;
    void *ptr;
    air_list *list;
    test_alloc_init(&alloc);
    air_device *dev = open_wrapped("trace:ref", &book, &alloc.alloc);
    REQUIRE(dev != NULL);
    CHECK_OK(air_driver_trace.alloc(dev, 64, &ptr));
    CHECK_OK(air_driver_trace.list_make(dev, NULL, 0, &list));
    CHECK_OK(air_driver_trace.list_run(dev, list, &ptr));
    air_driver_trace.list_free(dev, list);
    air_driver_trace.free(dev, ptr, 64);
    air_driver_trace.close(dev);
    book.text[book.len] = '\0';
    CHECK_STR(book.text, "open ref\n"
                         "alloc 64 -> block 1\n"
                         "list_make 0 steps -> list 2\n"
                         "list_run list 2 -> ok\n"
                         "list_free list 2\n"
                         "free block 1, 64\n"
                         "close\n");
    CHECK_CLEAN(&alloc);
}

TEST(wrap_check_finds_broken_lifetimes)
{
    log_book book;
    test_alloc alloc;
    void *ptr;
    air_list *list;
    test_alloc_init(&alloc);
    air_device *dev = open_wrapped("check:ref", &book, &alloc.alloc);
    REQUIRE(dev != NULL);
    CHECK_OK(air_driver_check.alloc(dev, 64, &ptr));
    air_driver_check.free(dev, &book, 64); /* not a block: not freed */
    CHECK_INT(book.errors, 1);
    air_driver_check.free(dev, ptr, 64);
    CHECK_OK(air_driver_check.list_make(dev, NULL, 0, &list));
    air_driver_check.list_free(dev, list);
    CHECK_FAILS(air_driver_check.list_run(dev, list, &ptr), STATE);
    CHECK_INT(book.errors, 2);
    air_driver_check.close(dev);
    CHECK_INT(book.errors, 2);
    CHECK_CLEAN(&alloc);
}

TEST(wrap_check_finds_what_is_left_at_close)
{
    log_book book;
    air_list *list;
    air_device *other;
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    REQUIRE_OK(air_driver_ref.open(&(air_options){.driver = "ref"},
                                   &base_libc_alloc, &other));
    CHECK_OK(air_driver_check.list_make(dev, NULL, 0, &list));
    air_driver_check.close(dev);
    CHECK_INT(book.errors, 1);
    air_driver_ref.list_free(other, list);
    air_driver_ref.close(other);
}

TEST(wrap_check_refuses_broken_regions)
{
    const air_rg_node nodes[2] = {
        {.op = AIR_RG_LOAD, .buf = 3, .a = -1, .b = -1, .c = -1},
        {.op = AIR_RG_STORE, .buf = 0, .a = 1, .b = -1, .c = -1},
    };
    const air_rg_buf bufs[1] = {{.slot = 0, .dtype = AIR_F32}};
    const air_rg_phase phases[1] = {{AIR_PHASE_ROW, 0, 2}};
    air_region region = {.walk = AIR_WALK_MAP,
                         .rank = 1,
                         .nnodes = 2,
                         .nbufs = 1,
                         .nphases = 1,
                         .dims = {4},
                         .nodes = nodes,
                         .bufs = bufs,
                         .phases = phases};
    const air_kernel *kernel;
    log_book book;
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    CHECK_FAILS(air_driver_check.kernel_make(dev, &region, NULL, &kernel),
                ARGUMENT);
    CHECK(kernel == NULL);
    region.nnodes = 1;
    region.rank = 0;
    CHECK_FAILS(air_driver_check.kernel_make(dev, &region, NULL, &kernel),
                ARGUMENT);
    CHECK_INT(book.errors, 2);
    air_driver_check.close(dev);
}

TEST(null_driver_refuses_with_a_reason)
{
    const air_kernel *kernel = NULL;
    air_region region = {.rank = 1};
    air_device *dev;
    void *ptr;
    REQUIRE_OK(air_driver_null.open(&(air_options){.driver = "null"},
                                    &base_libc_alloc, &dev));
    CHECK_FAILS(air_driver_null.kernel_make(dev, &region, NULL, &kernel),
                UNSUPPORTED);
    CHECK_OK(air_driver_null.kernel_find(dev, "mm", NULL, &kernel));
    CHECK(kernel == NULL);
    CHECK_OK(air_driver_null.alloc(dev, 1000, &ptr));
    CHECK_INT((uintptr_t)ptr % 64, 0);
    air_driver_null.free(dev, ptr, 1000);
    air_driver_null.close(dev);
}

/* ---- graphs -------------------------------------------------------------- */

static const char *const twice = "graph f(%x: f32[4]) {\n"
                                 "  %1: f32[4] = add.Tensor(%x, %x)\n"
                                 "  return %1\n"
                                 "}\n";

static void
run_twice(capture_case *t, float value, air_call_class how)
{
    static float data[2][4];
    float *x = data[how == AIR_CALL_CAPTURED]; /* a replay is patched */
    air_value in[] = {TENSOR(x, 4)}, out;
    for (int i = 0; i < 4; i++)
        x[i] = value;
    if (capture_case_run(t, 1, in, 1, &out, how)) {
        CHECK_NEAR(((float *)out.data)[3], 2 * value, 0);
        air_value_release(&out);
    }
}

TEST(wrap_forwards_graphs)
{
    static const char *const names[] = {"fault:ref", "trace:ref", "check:ref"};
    for (size_t i = 0; i < 3; i++) {
        capture_case t;
        wrap_around(capture_double_driver());
        if (capture_case_open(&t, names[i], twice, NULL)) {
            run_twice(&t, 1, AIR_CALL_CAPTURED);
            run_twice(&t, 3, AIR_CALL_REPLAYED);
            CHECK_INT(capture_double.ends, 1);
            CHECK_INT(capture_double.launches, 2);
            CHECK_INT(capture_double.patches, 1);
            CHECK_INT(capture_double.lists, 0);
        }
        capture_case_close(&t);
        CHECK_INT(capture_double.alive, 0);
        wrap_around(NULL);
    }
}

TEST(wrap_without_graphs_inside)
{
    capture_case t;
    if (capture_case_open(&t, "check:ref", twice, NULL)) {
        float x[4] = {1, 2, 3, 4};
        air_value in[] = {TENSOR(x, 4)}, out;
        air_capture_stats stats;
        CHECK_OK(air_capture_run(t.capture, &t.call, NULL, 1, in, 1, &out));
        CHECK_NEAR(((float *)out.data)[3], 8, 0);
        air_value_release(&out);
        run_twice(&t, 3, AIR_CALL_SKIPPED);
        air_capture_get_stats(t.capture, &stats);
        CHECK_INT(stats.graphs, 1);
    }
    capture_case_close(&t);
}

/* Each call of a capture and of a replay fails once; then all is well. */
TEST(wrap_fault_in_graphs)
{
    capture_case t;
    long failed = 0;
    wrap_around(capture_double_driver());
    for (long at = 1; at <= 30; at++) {
        float x[4] = {2, 2, 2, 2}, y[4] = {5, 5, 5, 5};
        air_value out;
        wrap_fault_set(0);
        if (!capture_case_open(&t, "fault:ref", twice, NULL))
            break;
        wrap_fault_set(at);
        for (int i = 0; i < 2; i++) {
            air_value in[] = {TENSOR(i ? y : x, 4)};
            if (air_capture_run(t.capture, &t.call, NULL, 1, in, 1, &out) ==
                AIR_OK)
                air_value_release(&out);
            else
                failed++;
        }
        wrap_fault_set(0);
        CHECK_OK(air_capture_run(t.capture, &t.call, NULL, 1,
                                 (air_value[]){TENSOR(y, 4)}, 1, &out));
        CHECK_NEAR(((float *)out.data)[0], 10, 0);
        air_value_release(&out);
        capture_case_close(&t);
        CHECK_INT(capture_double.alive, 0);
    }
    wrap_around(NULL);
    CHECK(failed >= 5); /* begin, list_run, end, launch, patch */
}

TEST(wrap_check_finds_broken_lives_of_graphs)
{
    log_book book;
    air_device_graph *graph, *none;
    void *slots[1] = {NULL};
    wrap_around(capture_double_driver());
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    const air_driver *d = &air_driver_check;
    CHECK_FAILS(d->capture_end(dev, &none), STATE);
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    CHECK_FAILS(d->capture_begin(dev, AIR_CAPTURE_GLOBAL), STATE);
    CHECK_OK(d->capture_end(dev, &graph));
    CHECK_FAILS(d->graph_patch(dev, graph, NULL), ARGUMENT);
    CHECK_OK(d->graph_patch(dev, graph, slots));
    CHECK_OK(d->graph_launch(dev, graph));
    CHECK_INT(book.errors, 3);
    d->graph_free(dev, graph);
    d->graph_free(dev, graph); /* not alive: not freed again */
    CHECK_FAILS(d->graph_launch(dev, graph), STATE);
    CHECK_FAILS(d->graph_patch(dev, graph, slots), STATE);
    CHECK_INT(book.errors, 6);
    CHECK_INT(capture_double.alive, 0);
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(d->capture_end(dev, &graph));
    d->close(dev);
    CHECK_INT(book.errors, 7);
    capture_double_driver()->graph_free(NULL, graph);
    wrap_around(NULL);
}

TEST(wrap_trace_writes_graphs)
{
    log_book book;
    air_device_graph *graph;
    void *slots[1] = {NULL};
    wrap_around(capture_double_driver());
    air_device *dev = open_wrapped("trace:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    const air_driver *d = &air_driver_trace;
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(d->capture_end(dev, &graph));
    CHECK_OK(d->graph_patch(dev, graph, slots));
    CHECK_OK(d->graph_launch(dev, graph));
    d->graph_free(dev, graph);
    d->close(dev);
    book.text[book.len] = '\0';
    CHECK_STR(book.text, "open ref\n"
                         "capture_begin -> ok\n"
                         "capture_end -> graph 1\n"
                         "graph_patch graph 1 -> ok\n"
                         "graph_launch graph 1 -> ok\n"
                         "graph_free graph 1\n"
                         "close\n");
    wrap_around(NULL);
}

/* ---- what the application does meanwhile --------------------------------- */

TEST(wrap_check_finds_broken_lives_of_what_is_lent)
{
    log_book book;
    air_device_graph *graph;
    air_list *list;
    void *stream, *slots[1] = {NULL};
    wrap_around(capture_double_driver());
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    const air_driver *d = &air_driver_check;
    CHECK_OK(d->list_make(dev, NULL, 0, &list));
    CHECK_FAILS(d->foreign_begin(dev, &stream), STATE);
    CHECK(stream == NULL);
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    CHECK_FAILS(d->foreign_end(dev, true), STATE);
    CHECK_OK(d->foreign_begin(dev, &stream));
    CHECK(stream != NULL);
    CHECK_FAILS(d->foreign_begin(dev, &stream), STATE);
    CHECK_FAILS(d->list_run(dev, list, slots), STATE);
    CHECK_FAILS(d->capture_end(dev, &graph), STATE);
    CHECK_INT(book.errors, 5);
    CHECK_OK(d->foreign_end(dev, true));
    CHECK_OK(d->capture_end(dev, &graph));
    CHECK_INT(capture_double.foreign, 1);
    d->graph_free(dev, graph);
    d->list_free(dev, list);
    d->close(dev);
    CHECK_INT(book.errors, 5);
    wrap_around(NULL);
}

TEST(wrap_trace_writes_what_is_lent)
{
    log_book book;
    air_device_graph *graph;
    void *stream;
    wrap_around(capture_double_driver());
    air_device *dev = open_wrapped("trace:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    const air_driver *d = &air_driver_trace;
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    for (int keep = 0; keep < 2; keep++) {
        CHECK_OK(d->foreign_begin(dev, &stream));
        CHECK_OK(d->foreign_end(dev, keep));
    }
    CHECK_OK(d->capture_end(dev, &graph));
    d->graph_free(dev, graph);
    d->close(dev);
    book.text[book.len] = '\0';
    CHECK_STR(book.text, "open ref\n"
                         "capture_begin -> ok\n"
                         "foreign_begin -> ok\n"
                         "foreign_end, not kept -> ok\n"
                         "foreign_begin -> ok\n"
                         "foreign_end -> ok\n"
                         "capture_end -> graph 1\n"
                         "graph_free graph 1\n"
                         "close\n");
    wrap_around(NULL);
}

/* A failure in the wrapper ends what is lent inside, and keeps none of it. */
TEST(wrap_fault_ends_what_is_lent)
{
    log_book book;
    air_device_graph *graph;
    void *stream;
    wrap_around(capture_double_driver());
    air_device *dev = open_wrapped("fault:check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    const air_driver *d = &air_driver_fault;
    wrap_fault_set(3);
    CHECK_OK(d->capture_begin(dev, AIR_CAPTURE_GLOBAL));
    CHECK_OK(d->foreign_begin(dev, &stream));
    CHECK_FAILS(d->foreign_end(dev, true), DRIVER);
    CHECK_OK(d->foreign_begin(dev, &stream));
    CHECK_OK(d->foreign_end(dev, true));
    CHECK_OK(d->capture_end(dev, &graph));
    CHECK_INT(capture_double.foreign, 1);
    wrap_fault_set(0);
    d->graph_free(dev, graph);
    d->close(dev);
    CHECK_INT(book.errors, 0);
    wrap_around(NULL);
}

TEST(wrap_lends_nothing_where_the_driver_inside_does_not)
{
    log_book book;
    void *stream;
    air_device *dev = open_wrapped("fault:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    CHECK_FAILS(air_driver_fault.foreign_begin(dev, &stream), UNSUPPORTED);
    CHECK(stream == NULL);
    CHECK_FAILS(air_driver_fault.foreign_end(dev, true), STATE);
    air_driver_fault.close(dev);
}

/* ---- memory of the device, for the application ---- */

TEST(wrap_memory_for_the_application)
{
    static const char *const drivers[] = {"ref", "fault:check:cpu"};
    for (size_t i = 0; i < 2; i++) {
        const air_options o = {.driver = drivers[i], .threads = 1};
        const float given[3] = {1, 2, 3};
        float back[3] = {0};
        air_context *ctx;
        void *data;
        REQUIRE_OK(air_context_create(&o, &ctx));
        CHECK_FAILS(air_memory_alloc(NULL, 8, &data), ARGUMENT);
        CHECK_FAILS(air_memory_alloc(ctx, 8, NULL), ARGUMENT);
        CHECK_FAILS(air_memory_copy(ctx, NULL, given, 8), ARGUMENT);
        CHECK_OK(air_memory_copy(ctx, NULL, NULL, 0));
        REQUIRE_OK(air_memory_alloc(ctx, sizeof given, &data));
        CHECK_OK(air_memory_copy(ctx, data, given, sizeof given));
        CHECK_OK(air_memory_copy(ctx, back, data, sizeof back));
        CHECK_NEAR(back[2], 3, 0);
        air_memory_free(ctx, data, sizeof given);
        air_memory_free(ctx, NULL, 0);
        REQUIRE_OK(air_memory_alloc(ctx, 0, &data));
        CHECK(data);
        air_memory_free(ctx, data, 0);
        if (i == 1) {
            wrap_fault_set(1);
            CHECK_FAILS(air_memory_alloc(ctx, 8, &data), MEMORY);
            CHECK(!data);
            wrap_fault_set(0);
        }
        air_context_destroy(ctx);
    }
}
