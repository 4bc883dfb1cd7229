/* fault.c: makes one call fail, so that tests see what its caller does. */
#include <string.h>

#include "driver/driver.h"
#include "driver/wrap/wrap.h"

struct air_device {
    wrap_inner in;
};

static long calls, fail_at;

void
wrap_fault_set(long at)
{
    __atomic_store_n(&calls, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&fail_at, at, __ATOMIC_SEQ_CST);
}

long
wrap_fault_calls(void)
{
    return __atomic_load_n(&calls, __ATOMIC_SEQ_CST);
}

static air_status
trip(air_status code, const char *entry)
{
    long now = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    AIR_REQUIRE(now != __atomic_load_n(&fail_at, __ATOMIC_SEQ_CST), code,
                "driver fault: %s, call %ld, fails on purpose", entry, now);
    return AIR_OK;
}

static air_status
fault_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "open"));
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    air_device *dev = ptr;
    air_status status = wrap_open(options, alloc, &dev->in);
    if (status != AIR_OK) {
        base_free(alloc, dev, sizeof *dev);
        return status;
    }
    *out = dev;
    return AIR_OK;
}

static void
fault_close(air_device *dev)
{
    air_alloc alloc = dev->in.alloc;
    dev->in.driver->close(dev->in.device);
    base_free(&alloc, dev, sizeof *dev);
}

static void
fault_target(const air_device *dev, air_target *out)
{
    dev->in.driver->target(dev->in.device, out);
}

static void
fault_set_threads(air_device *dev, int threads)
{
    if (dev->in.driver->set_threads != NULL)
        dev->in.driver->set_threads(dev->in.device, threads);
}

static air_status
fault_alloc(air_device *dev, size_t size, void **out)
{
    *out = NULL;
    AIR_TRY(trip(AIR_ERROR_MEMORY, "alloc"));
    return dev->in.driver->alloc(dev->in.device, size, out);
}

static void
fault_free(air_device *dev, void *ptr, size_t size)
{
    dev->in.driver->free(dev->in.device, ptr, size);
}

static air_status
fault_copy(air_device *dev, void *dst, const void *src, size_t size)
{
    AIR_TRY(trip(AIR_ERROR_DRIVER, "copy"));
    if (dev->in.driver->copy != NULL)
        return dev->in.driver->copy(dev->in.device, dst, src, size);
    memcpy(dst, src, size);
    return AIR_OK;
}

static air_status
fault_kernel_find(air_device *dev, const char *name, const air_call *call,
                  const air_kernel **out)
{
    *out = NULL;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "kernel_find"));
    return dev->in.driver->kernel_find(dev->in.device, name, call, out);
}

static air_status
fault_kernel_make(air_device *dev, const air_region *region,
                  const air_code *code, const air_kernel **out)
{
    *out = NULL;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "kernel_make"));
    return dev->in.driver->kernel_make(dev->in.device, region, code, out);
}

static bool
fault_is_plain(const air_device *dev, const char *name, const air_call *call)
{
    return wrap_is_plain(&dev->in, name, call);
}

static air_status
fault_kernel_join(air_device *dev, const air_kernel *first,
                  const air_call *call, const air_region *region,
                  const air_code *code, int buf, bool keep,
                  const air_kernel **out)
{
    const air_driver *driver = dev->in.driver;
    *out = NULL;
    if (driver->kernel_join == NULL)
        return AIR_OK;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "kernel_join"));
    return driver->kernel_join(dev->in.device, first, call, region, code, buf,
                               keep, out);
}

static void
fault_kernel_free(air_device *dev, const air_kernel *kernel)
{
    dev->in.driver->kernel_free(dev->in.device, kernel);
}

static size_t
fault_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    return dev->in.driver->workspace(dev->in.device, kernel, call);
}

static air_status
fault_list_make(air_device *dev, const air_step *steps, size_t count,
                air_list **out)
{
    *out = NULL;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "list_make"));
    return dev->in.driver->list_make(dev->in.device, steps, count, out);
}

static air_status
fault_list_run(air_device *dev, air_list *list, void *const *slots)
{
    AIR_TRY(trip(AIR_ERROR_DRIVER, "list_run"));
    return dev->in.driver->list_run(dev->in.device, list, slots);
}

static void
fault_list_free(air_device *dev, air_list *list)
{
    dev->in.driver->list_free(dev->in.device, list);
}

static air_status
fault_capture_begin(air_device *dev, air_capture_error_mode mode)
{
    AIR_TRY(trip(AIR_ERROR_DRIVER, "capture_begin"));
    return wrap_capture_begin(&dev->in, mode);
}

/* The capture inside ends in any case. */
static air_status
fault_capture_end(air_device *dev, air_device_graph **out)
{
    const air_driver *driver = dev->in.driver;
    air_status failed = trip(AIR_ERROR_DRIVER, "capture_end");
    *out = NULL;
    AIR_TRY(driver->capture_end(dev->in.device, out));
    if (failed != AIR_OK) {
        driver->graph_free(dev->in.device, *out);
        *out = NULL;
    }
    return failed;
}

static air_status
fault_graph_launch(air_device *dev, air_device_graph *graph)
{
    AIR_TRY(trip(AIR_ERROR_DRIVER, "graph_launch"));
    return dev->in.driver->graph_launch(dev->in.device, graph);
}

static air_status
fault_graph_patch(air_device *dev, air_device_graph *graph, void *const *slots)
{
    AIR_TRY(trip(AIR_ERROR_DRIVER, "graph_patch"));
    return dev->in.driver->graph_patch(dev->in.device, graph, slots);
}

static void
fault_graph_free(air_device *dev, air_device_graph *graph)
{
    dev->in.driver->graph_free(dev->in.device, graph);
}

static air_status
fault_foreign_begin(air_device *dev, void **out_stream)
{
    *out_stream = NULL;
    AIR_TRY(trip(AIR_ERROR_DRIVER, "foreign_begin"));
    return wrap_foreign_begin(&dev->in, out_stream);
}

/* Inside it ends in any case, and nothing is kept. */
static air_status
fault_foreign_end(air_device *dev, bool keep)
{
    const air_status failed = trip(AIR_ERROR_DRIVER, "foreign_end");
    const air_status ended = wrap_foreign_end(&dev->in, keep && !failed);
    return failed != AIR_OK ? failed : ended;
}

static const char *
fault_list_note(const air_device *dev, const air_list *list)
{
    return wrap_list_note(&dev->in, list);
}

const air_driver air_driver_fault = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .target = fault_target,
    .set_threads = fault_set_threads,
    .alloc = fault_alloc,
    .free = fault_free,
    .copy = fault_copy,
    .kernel_find = fault_kernel_find,
    .kernel_make = fault_kernel_make,
    .is_plain = fault_is_plain,
    .kernel_join = fault_kernel_join,
    .kernel_free = fault_kernel_free,
    .workspace = fault_workspace,
    .list_make = fault_list_make,
    .list_run = fault_list_run,
    .list_free = fault_list_free,
    .list_note = fault_list_note,
    .capture_begin = fault_capture_begin,
    .capture_end = fault_capture_end,
    .graph_launch = fault_graph_launch,
    .graph_patch = fault_graph_patch,
    .graph_free = fault_graph_free,
    .foreign_begin = fault_foreign_begin,
    .foreign_end = fault_foreign_end,
};
