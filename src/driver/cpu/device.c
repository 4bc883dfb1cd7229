#include "driver/cpu/cpu.h"
#include "driver/cpu/product/choice.h"
#include "driver/cpu/region/region_join.h"
#include "driver/driver.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static int
threads_wanted(const air_options *options)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->threads > 0)
        return options->threads;
    return online > 0 && online < INT_MAX ? (int)online : 1;
}

/* The application's threads, or a pool of our own. */
static air_status
open_threads(air_device *dev, const air_options *options)
{
    dev->threads = threads_wanted(options);
    dev->max_threads = INT_MAX;
    dev->parallel = options->parallel;
    dev->parallel_user = options->parallel_user;
    if (dev->parallel != NULL)
        return AIR_OK;
    AIR_TRY(base_pool_create(&dev->alloc, dev->threads, &dev->pool));
    dev->parallel = base_pool_run;
    dev->parallel_user = dev->pool;
    dev->max_threads = base_pool_threads(dev->pool);
    dev->threads = dev->max_threads;
    return AIR_OK;
}

static void
cpu_close(air_device *dev)
{
    air_alloc alloc = dev->alloc;
    cpu_runs_free(dev);
    cpu_choices_destroy(dev->choices);
    if (dev->pool != NULL)
        base_pool_destroy(dev->pool);
    pthread_mutex_destroy(&dev->mutex);
    base_free(&alloc, dev, sizeof *dev);
}

static air_status
open_choices(air_device *dev, const air_options *options)
{
    char machine[CPU_CHOICE_MACHINE];
    if (options->choices == NULL || !dev->has_library)
        return AIR_OK;
    cpu_choice_machine(dev, machine, sizeof machine);
    return cpu_choices_create(&dev->alloc, options->choices, machine,
                              &dev->choices);
}

static air_status
cpu_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    const char *isa;
    *out = NULL;
    AIR_REQUIRE(options->threads >= 0, AIR_ERROR_ARGUMENT,
                "options.threads is %d: it must not be negative",
                options->threads);
    AIR_TRY(cpu_isa_find(options->isa, &isa));
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    air_device *dev = ptr;
    dev->alloc = *alloc;
    dev->isa = isa;
    dev->now = base_now;
    dev->work_now = base_work_now;
    dev->generator = options->generator;
    dev->philox = (air_philox){.seed = options->seed};
    dev->step_seconds = options->step_seconds;
    dev->on_step = options->on_step;
    dev->on_step_user = options->on_step_user;
    dev->log = options->log;
    dev->log_user = options->log_user;
    if (options->library != NULL) {
        dev->library = *options->library;
        dev->has_library = true;
    }
    pthread_mutex_init(&dev->mutex, NULL);
    air_status status = open_threads(dev, options);
    dev->cache_bytes = cpu_isa_cache(dev->threads);
    if (status == AIR_OK)
        status = cpu_runs_fill(dev, 0, 0);
    if (status == AIR_OK)
        status = open_choices(dev, options);
    if (status != AIR_OK) {
        cpu_close(dev);
        return status;
    }
    *out = dev;
    return AIR_OK;
}

static void
cpu_target(const air_device *dev, air_target *out)
{
    *out = (air_target){
        .name = "cpu",
        .threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED),
        .cache_bytes = dev->cache_bytes,
        .alignment = 64,
        .isa = cpu_isa_base(dev->isa),
        .regions = true,
        .sums = true,
    };
}

static void
cpu_set_threads(air_device *dev, int threads)
{
    if (threads < 1)
        threads = 1;
    if (threads > dev->max_threads)
        threads = dev->max_threads;
    __atomic_store_n(&dev->threads, threads, __ATOMIC_RELAXED);
}

static air_status
cpu_alloc(air_device *dev, size_t size, void **out)
{
    return driver_block_new(&dev->alloc, size, out);
}

static void
cpu_free(air_device *dev, void *ptr, size_t size)
{
    driver_block_free(&dev->alloc, ptr, size);
}

static air_status
cpu_find(air_device *dev, const char *name, const air_call *call,
         const air_kernel **out)
{
    *out = cpu_kernel_find(name, call, dev->isa, cpu_choose(dev, name, call));
    return AIR_OK;
}

static bool
cpu_is_plain(const air_device *dev, const char *name, const air_call *call)
{
    return cpu_kernel_is_plain(name, call, dev->isa);
}

static air_status
cpu_make(air_device *dev, const air_region *region, const air_code *code,
         const air_kernel **out)
{
    void *ptr;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, sizeof(air_kernel), &ptr));
    air_kernel *kernel = ptr;
    air_status status = cpu_region_make(
        &dev->alloc, region, code, cpu_isa_base(dev->isa), &kernel->region);
    if (status != AIR_OK) {
        base_free(&dev->alloc, kernel, sizeof *kernel);
        return status;
    }
    *out = kernel;
    return AIR_OK;
}

static void
cpu_kernel_free(air_device *dev, const air_kernel *kernel)
{
    if (kernel == NULL || kernel->region == NULL)
        return; /* a row of the table */
    cpu_region_free(kernel->region);
    union {
        const air_kernel *from;
        void *to;
    } cast = {kernel};
    if (kernel->join != NULL)
        cpu_join_free(dev, cast.to);
    else
        base_free(&dev->alloc, cast.to, sizeof *kernel);
}

static size_t
cpu_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    int threads = __atomic_load_n(&dev->threads, __ATOMIC_RELAXED);
    air_call of = *call;
    if (kernel->run == NULL)
        return cpu_region_workspace(&(air_call){.extra = kernel->region},
                                    threads);
    if (kernel->join != NULL)
        of.extra = kernel->join;
    return kernel->workspace != NULL ? kernel->workspace(&of, threads) : 0;
}

const air_driver air_driver_cpu = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .target = cpu_target,
    .set_threads = cpu_set_threads,
    .limits = cpu_limits,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .kernel_find = cpu_find,
    .kernel_make = cpu_make,
    .is_plain = cpu_is_plain,
    .kernel_join = cpu_join_make,
    .kernel_free = cpu_kernel_free,
    .workspace = cpu_workspace,
    .list_make = cpu_list_make,
    .list_run = cpu_list_run,
    .list_free = cpu_list_free,
    .list_note = cpu_list_note,
};
