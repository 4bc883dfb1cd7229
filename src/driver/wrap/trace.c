/* trace.c: every call to a driver as a line of text, sent to options.log as
 * AIR_LOG_DEBUG. Objects are called by the order they came in (block 1, list
 * 2), never by address, so that two traces can be compared. */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "driver/driver.h"
#include "driver/wrap/wrap.h"

typedef struct {
    void (*call)(void *user, const air_step_event *event);
    void *user;
} step_listener;

typedef struct {
    const void *ptr;
    long number;
} named;

struct air_device {
    wrap_inner in;
    pthread_mutex_t mutex;
    step_listener listener; /* of the application */
    BASE_VEC(named) names;
    long last;
};

/* ---- names --------------------------------------------------------------- */

/* Number of the object, a new one where it has none; 0: NULL, or no memory. */
static long
number_of(air_device *dev, const void *ptr)
{
    long number = 0;
    if (ptr == NULL)
        return 0;
    pthread_mutex_lock(&dev->mutex);
    for (size_t i = 0; i < dev->names.count; i++)
        if (dev->names.data[i].ptr == ptr)
            number = dev->names.data[i].number;
    if (number == 0) {
        named n = {ptr, dev->last + 1};
        if (BASE_PUSH(&dev->in.alloc, &dev->names, n) == AIR_OK)
            number = ++dev->last;
    }
    pthread_mutex_unlock(&dev->mutex);
    return number;
}

static void
forget(air_device *dev, const void *ptr)
{
    pthread_mutex_lock(&dev->mutex);
    for (size_t i = 0; i < dev->names.count; i++)
        if (dev->names.data[i].ptr == ptr)
            dev->names.data[i--] = dev->names.data[--dev->names.count];
    pthread_mutex_unlock(&dev->mutex);
}

#define TRACE(dev, ...) wrap_log(&(dev)->in, AIR_LOG_DEBUG, __VA_ARGS__)

/* ---- steps ---- */

/* Threads take turns in the log. */
static void
trace_step(void *user, const air_step_event *e)
{
    air_device *dev = user;
    pthread_mutex_lock(&dev->mutex);
    TRACE(dev, "  %s %s, lane %d, %d threads from %d",
          e->begins ? "begin" : "end", e->label != NULL ? e->label : "step",
          e->lane, e->threads, e->thread);
    pthread_mutex_unlock(&dev->mutex);
    if (dev->listener.call != NULL)
        dev->listener.call(dev->listener.user, e);
}

static void
trace_list_step(air_device *dev, const air_step *step)
{
    char after[96] = "";
    size_t at = 0;
    for (uint32_t i = step->nafter; i-- > 0 && at < sizeof after - 12;)
        at += (size_t)snprintf(after + at, sizeof after - at, " %u",
                               step->after[i]);
    TRACE(dev, "  %s by kernel %ld%s%s",
          step->label != NULL ? step->label : "step",
          number_of(dev, step->kernel), step->after != NULL ? ", after" : "",
          step->after != NULL && step->nafter == 0 ? " nothing" : after);
}

/* ---- entries ------------------------------------------------------------- */

static air_status
trace_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    air_device *dev = ptr;
    air_options inner = *options;
    dev->listener = (step_listener){options->on_step, options->on_step_user};
    inner.on_step = trace_step;
    inner.on_step_user = dev;
    air_status status = wrap_open(&inner, alloc, &dev->in);
    if (status != AIR_OK) {
        base_free(alloc, dev, sizeof *dev);
        return status;
    }
    pthread_mutex_init(&dev->mutex, NULL);
    TRACE(dev, "open %s", dev->in.driver->name);
    *out = dev;
    return AIR_OK;
}

static void
trace_close(air_device *dev)
{
    air_alloc alloc = dev->in.alloc;
    TRACE(dev, "close");
    dev->in.driver->close(dev->in.device);
    pthread_mutex_destroy(&dev->mutex);
    BASE_VEC_FREE(&alloc, &dev->names);
    base_free(&alloc, dev, sizeof *dev);
}

static void
trace_target(const air_device *dev, air_target *out)
{
    dev->in.driver->target(dev->in.device, out);
}

static void
trace_set_threads(air_device *dev, int threads)
{
    TRACE(dev, "set_threads %d", threads);
    if (dev->in.driver->set_threads != NULL)
        dev->in.driver->set_threads(dev->in.device, threads);
}

static air_status
trace_alloc(air_device *dev, size_t size, void **out)
{
    air_status status = dev->in.driver->alloc(dev->in.device, size, out);
    TRACE(dev, "alloc %zu -> block %ld", size, number_of(dev, *out));
    return status;
}

static void
trace_free(air_device *dev, void *ptr, size_t size)
{
    TRACE(dev, "free block %ld, %zu", number_of(dev, ptr), size);
    forget(dev, ptr);
    dev->in.driver->free(dev->in.device, ptr, size);
}

static air_status
trace_copy(air_device *dev, void *dst, const void *src, size_t size)
{
    TRACE(dev, "copy %zu", size);
    if (dev->in.driver->copy != NULL)
        return dev->in.driver->copy(dev->in.device, dst, src, size);
    memcpy(dst, src, size);
    return AIR_OK;
}

static air_status
trace_kernel_find(air_device *dev, const char *name, const air_call *call,
                  const air_kernel **out)
{
    air_status status =
        dev->in.driver->kernel_find(dev->in.device, name, call, out);
    TRACE(dev, "kernel_find %s -> kernel %ld", name, number_of(dev, *out));
    return status;
}

static air_status
trace_kernel_make(air_device *dev, const air_region *region,
                  const air_code *code, const air_kernel **out)
{
    air_status status =
        dev->in.driver->kernel_make(dev->in.device, region, code, out);
    TRACE(dev, "kernel_make region of %d nodes%s -> kernel %ld", region->nnodes,
          code != NULL ? " with code" : "", number_of(dev, *out));
    return status;
}

static bool
trace_is_plain(const air_device *dev, const char *name, const air_call *call)
{
    return wrap_is_plain(&dev->in, name, call);
}

static air_status
trace_kernel_join(air_device *dev, const air_kernel *first,
                  const air_call *call, const air_region *region,
                  const air_code *code, int buf, bool keep,
                  const air_kernel **out)
{
    const air_driver *driver = dev->in.driver;
    *out = NULL;
    if (driver->kernel_join == NULL)
        return AIR_OK;
    air_status status = driver->kernel_join(dev->in.device, first, call, region,
                                            code, buf, keep, out);
    TRACE(dev, "kernel_join of kernel %ld -> kernel %ld", number_of(dev, first),
          number_of(dev, *out));
    return status;
}

static void
trace_kernel_free(air_device *dev, const air_kernel *kernel)
{
    TRACE(dev, "kernel_free kernel %ld", number_of(dev, kernel));
    forget(dev, kernel);
    dev->in.driver->kernel_free(dev->in.device, kernel);
}

static size_t
trace_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    size_t size = dev->in.driver->workspace(dev->in.device, kernel, call);
    TRACE(dev, "workspace kernel %ld -> %zu", number_of(dev, kernel), size);
    return size;
}

static air_status
trace_list_make(air_device *dev, const air_step *steps, size_t count,
                air_list **out)
{
    air_status status =
        dev->in.driver->list_make(dev->in.device, steps, count, out);
    TRACE(dev, "list_make %zu steps -> list %ld", count, number_of(dev, *out));
    for (size_t i = 0; i < count; i++)
        trace_list_step(dev, &steps[i]);
    return status;
}

static air_status
trace_list_run(air_device *dev, air_list *list, void *const *slots)
{
    air_status status = dev->in.driver->list_run(dev->in.device, list, slots);
    TRACE(dev, "list_run list %ld -> %s", number_of(dev, list),
          air_status_text(status));
    return status;
}

static void
trace_list_free(air_device *dev, air_list *list)
{
    TRACE(dev, "list_free list %ld", number_of(dev, list));
    forget(dev, list);
    dev->in.driver->list_free(dev->in.device, list);
}

static air_status
trace_capture_begin(air_device *dev, air_capture_error_mode mode)
{
    air_status status = wrap_capture_begin(&dev->in, mode);
    TRACE(dev, "capture_begin -> %s", air_status_text(status));
    return status;
}

static air_status
trace_capture_end(air_device *dev, air_device_graph **out)
{
    *out = NULL;
    air_status status = dev->in.driver->capture_end(dev->in.device, out);
    TRACE(dev, "capture_end -> graph %ld", number_of(dev, *out));
    return status;
}

static air_status
trace_graph_launch(air_device *dev, air_device_graph *graph)
{
    air_status status = dev->in.driver->graph_launch(dev->in.device, graph);
    TRACE(dev, "graph_launch graph %ld -> %s", number_of(dev, graph),
          air_status_text(status));
    return status;
}

static air_status
trace_graph_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    air_status status =
        dev->in.driver->graph_patch(dev->in.device, graph, slots);
    TRACE(dev, "graph_patch graph %ld -> %s", number_of(dev, graph),
          air_status_text(status));
    return status;
}

static void
trace_graph_free(air_device *dev, air_device_graph *graph)
{
    TRACE(dev, "graph_free graph %ld", number_of(dev, graph));
    forget(dev, graph);
    dev->in.driver->graph_free(dev->in.device, graph);
}

static air_status
trace_foreign_begin(air_device *dev, void **out_stream)
{
    const air_status status = wrap_foreign_begin(&dev->in, out_stream);
    TRACE(dev, "foreign_begin -> %s", air_status_text(status));
    return status;
}

static air_status
trace_foreign_end(air_device *dev, bool keep)
{
    const air_status status = wrap_foreign_end(&dev->in, keep);
    TRACE(dev, "foreign_end%s -> %s", keep ? "" : ", not kept",
          air_status_text(status));
    return status;
}

static const char *
trace_list_note(const air_device *dev, const air_list *list)
{
    return wrap_list_note(&dev->in, list);
}

const air_driver air_driver_trace = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "trace",
    .open = trace_open,
    .close = trace_close,
    .target = trace_target,
    .set_threads = trace_set_threads,
    .alloc = trace_alloc,
    .free = trace_free,
    .copy = trace_copy,
    .kernel_find = trace_kernel_find,
    .kernel_make = trace_kernel_make,
    .is_plain = trace_is_plain,
    .kernel_join = trace_kernel_join,
    .kernel_free = trace_kernel_free,
    .workspace = trace_workspace,
    .list_make = trace_list_make,
    .list_run = trace_list_run,
    .list_free = trace_list_free,
    .list_note = trace_list_note,
    .capture_begin = trace_capture_begin,
    .capture_end = trace_capture_end,
    .graph_launch = trace_graph_launch,
    .graph_patch = trace_graph_patch,
    .graph_free = trace_graph_free,
    .foreign_begin = trace_foreign_begin,
    .foreign_end = trace_foreign_end,
};
