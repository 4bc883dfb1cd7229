/* null.c: the smallest driver there can be. It has memory and no kernels, so
 * every program that computes something is refused with a reason. Copy it to
 * begin a new device; docs/adding-a-device.md goes on from here. */
#include "air_driver.h"
#include "base/memory.h"
#include "driver/driver.h"

#include <stdint.h>

struct air_device {
    air_alloc alloc;
};

struct air_list {
    size_t count; /* a real device keeps its queue of launches here */
};

static air_status
null_open(const air_options *options, const air_alloc *alloc, air_device **out)
{
    void *ptr;
    (void)options;
    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof(air_device), &ptr));
    *out = ptr;
    (*out)->alloc = *alloc;
    return AIR_OK;
}

static void
null_close(air_device *dev)
{
    air_alloc alloc = dev->alloc;
    base_free(&alloc, dev, sizeof *dev);
}

static void
null_target(const air_device *dev, air_target *out)
{
    (void)dev;
    *out = (air_target){
        .name = "null", .threads = 1, .alignment = 64, .isa = "scalar"};
}

/* Blocks are 64-aligned; the word before one holds what base_new gave. */
static air_status
null_alloc(air_device *dev, size_t size, void **out)
{
    void *raw;
    *out = NULL;
    AIR_TRY(base_new(&dev->alloc, size + 64, &raw));
    char *ptr = (char *)raw + (64 - (uintptr_t)raw % 64);
    ((void **)(void *)ptr)[-1] = raw;
    *out = ptr;
    return AIR_OK;
}

static void
null_free(air_device *dev, void *ptr, size_t size)
{
    if (ptr != NULL)
        base_free(&dev->alloc, ((void **)ptr)[-1], size + 64);
}

/* No kernel of that name: not an error. */
static air_status
null_kernel_find(air_device *dev, const char *name, const air_call *call,
                 const air_kernel **out)
{
    (void)dev, (void)name, (void)call;
    *out = NULL;
    return AIR_OK;
}

static air_status
null_kernel_make(air_device *dev, const air_region *region,
                 const air_code *code, const air_kernel **out)
{
    (void)dev, (void)region, (void)code;
    *out = NULL;
    AIR_FAIL(AIR_ERROR_UNSUPPORTED,
             "driver null computes nothing; use driver cpu or ref");
}

static void
null_kernel_free(air_device *dev, const air_kernel *kernel)
{
    (void)dev, (void)kernel;
}

static size_t
null_workspace(air_device *dev, const air_kernel *kernel, const air_call *call)
{
    (void)dev, (void)kernel, (void)call;
    return 0;
}

/* There are no kernels, so that lists are empty. */
static air_status
null_list_make(air_device *dev, const air_step *steps, size_t count,
               air_list **out)
{
    void *ptr;
    (void)steps;
    *out = NULL;
    AIR_REQUIRE(count == 0, AIR_ERROR_UNSUPPORTED,
                "driver null runs no steps, %zu were given", count);
    AIR_TRY(base_new(&dev->alloc, sizeof(air_list), &ptr));
    *out = ptr;
    return AIR_OK;
}

static air_status
null_list_run(air_device *dev, air_list *list, void *const *slots)
{
    (void)dev, (void)list, (void)slots;
    return AIR_OK;
}

static void
null_list_free(air_device *dev, air_list *list)
{
    base_free(&dev->alloc, list, sizeof *list);
}

const air_driver air_driver_null = {
    .abi = AIR_DRIVER_ABI,
    .size = sizeof(air_driver),
    .name = "null",
    .open = null_open,
    .close = null_close,
    .target = null_target,
    .alloc = null_alloc,
    .free = null_free,
    .kernel_find = null_kernel_find,
    .kernel_make = null_kernel_make,
    .kernel_free = null_kernel_free,
    .workspace = null_workspace,
    .list_make = null_list_make,
    .list_run = null_list_run,
    .list_free = null_list_free,
};
