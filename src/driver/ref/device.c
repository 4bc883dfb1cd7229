/* device.c: the oracle. One thread, every step in order, regions element by
 * element in double, calls by the plain kernels. */
#include "air_driver.h"
#include "base/thread.h"
#include "driver/block.h"
#include "driver/driver.h"
#include "driver/fault.h"
#include "driver/ref/kernels.h"
#include "driver/ref/region.h"

#include <string.h>

struct air_device {
    air_alloc alloc;
    pthread_mutex_t mutex; /* one list at a time */
    const air_generator *generator;
    air_philox philox;
    char scratch[AIR_SCRATCH];
};

struct air_kernel {
    const char *name;
    ref_kernel *run;
    ref_workspace *workspace;
    ref_region *region; /* then the rest is NULL */
};

struct air_list {
    const air_step *steps;
    size_t count;
};

#define PLAIN(name, run)               {name, run, NULL, NULL},
#define PLAIN_WS(name, run, workspace) {name, run, workspace, NULL},
static const air_kernel rows[] = {
#include "driver/ref/kernels.def"
};
#undef PLAIN
#undef PLAIN_WS

static air_status
ref_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    *out = ptr;
    (*out)->alloc = *alloc;
    (*out)->generator = options->generator;
    (*out)->philox = (air_philox){.seed = options->seed};
    pthread_mutex_init(&(*out)->mutex, NULL);
    return AIR_OK;
}

static void
ref_close(air_device *dev)
{
    air_alloc alloc = dev->alloc;
    pthread_mutex_destroy(&dev->mutex);
    base_free(&alloc, dev, sizeof *dev);
}

static void
ref_target(const air_device *dev, air_target *out)
{
    (void)dev;
    *out = (air_target){.name = "ref",
                        .threads = 1,
                        .cache_bytes = (int64_t)1 << 20,
                        .alignment = 64,
                        .isa = "scalar",
                        .regions = true,
                        .sums = true};
}

static air_status
ref_alloc(air_device *dev, size_t size, void **out)
{
    return driver_block_new(&dev->alloc, size, out);
}

static void
ref_free(air_device *dev, void *ptr, size_t size)
{
    driver_block_free(&dev->alloc, ptr, size);
}

static air_status
ref_kernel_find(air_device *dev, const char *name, const air_call *call,
                const air_kernel **out)
{
    (void)dev, (void)call;
    *out = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            *out = &rows[i];
    return AIR_OK;
}

static air_status
ref_kernel_make(air_device *dev, const air_region *region, const air_code *code,
                const air_kernel **out)
{
    void *ptr;
    (void)code;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof(air_kernel), &ptr));
    air_kernel *kernel = ptr;
    air_status status = ref_region_make(&dev->alloc, region, &kernel->region);
    if (status != AIR_OK) {
        base_free(&dev->alloc, kernel, sizeof *kernel);
        return status;
    }
    *out = kernel;
    return AIR_OK;
}

static void
ref_kernel_free(air_device *dev, const air_kernel *kernel)
{
    union {
        const air_kernel *from;
        void *to;
    } cast = {kernel};
    if (kernel == NULL || kernel->region == NULL)
        return; /* a row of the table */
    ref_region_free(kernel->region);
    base_free(&dev->alloc, cast.to, sizeof *kernel);
}

static size_t
ref_workspace_size(air_device *dev, const air_kernel *kernel,
                   const air_call *call)
{
    (void)dev;
    return kernel->workspace != NULL ? kernel->workspace(call, 1) : 0;
}

static air_status
ref_list_make(air_device *dev, const air_step *steps, size_t count,
              air_list **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof(air_list), &ptr));
    *out = ptr;
    **out = (air_list){steps, count};
    return AIR_OK;
}

static void
no_barrier(const air_task *task)
{
    (void)task;
}

static air_status
step_run(air_device *dev, const air_step *step, void *const *slots)
{
    air_fault fault = {.raised = false};
    air_task task = {.count = 1,
                     .slots = slots,
                     .scratch = dev->scratch,
                     .barrier = no_barrier,
                     .fault = &fault,
                     .generator = dev->generator,
                     .philox = &dev->philox};
    if (step->workspace > 0)
        task.workspace =
            (char *)slots[step->workspace_slot] + step->workspace_offset;
    if (step->kernel->region != NULL)
        ref_region_run(step->kernel->region, &task);
    else
        step->kernel->run(&step->call, &task);
    return fault.raised ? driver_fail(&fault, step->label) : AIR_OK;
}

/* The first step with a fault ends the run. */
static air_status
ref_list_run(air_device *dev, air_list *list, void *const *slots)
{
    air_status status = AIR_OK;
    pthread_mutex_lock(&dev->mutex);
    for (size_t i = 0; i < list->count && status == AIR_OK; i++)
        status = step_run(dev, &list->steps[i], slots);
    pthread_mutex_unlock(&dev->mutex);
    return status;
}

static void
ref_list_free(air_device *dev, air_list *list)
{
    base_free(&dev->alloc, list, sizeof *list);
}

const air_driver air_driver_ref = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .target = ref_target,
    .alloc = ref_alloc,
    .free = ref_free,
    .kernel_find = ref_kernel_find,
    .kernel_make = ref_kernel_make,
    .kernel_free = ref_kernel_free,
    .workspace = ref_workspace_size,
    .list_make = ref_list_make,
    .list_run = ref_list_run,
    .list_free = ref_list_free,
};
