/* link.c: parts of one kernel, compiled each by itself, become one. */
#include <stdio.h>
#include <string.h>

#include "driver/cuda/device.h"

enum { LOG = 512 };

/* An option is a pointer or a number in the place of one. */
static air_status
begin(const air_device *dev, char *log, cu_link *out)
{
    int options[] = {CU_LINK_ERRORS, CU_LINK_ERROR_BYTES};
    void *values[2] = {log, NULL};
    const size_t room = LOG;
    memcpy(&values[1], &room, sizeof room);
    log[0] = '\0';
    return cuda_check(dev, dev->cu.link_new(2, options, values, out),
                      "nothing can be linked");
}

static air_status
add_all(const air_device *dev, cu_link link, const cuda_part *parts,
        size_t count)
{
    char name[32];
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "part %zu", i);
        CUDA_TRY(dev, "a part of a kernel cannot be linked",
                 dev->cu.link_add(link, CU_LINK_CUBIN, parts[i].code,
                                  parts[i].size, name, 0, NULL, NULL));
    }
    return AIR_OK;
}

/* What it gives is the linker's own. */
static air_status
finish(const air_device *dev, cu_link link, cuda_part *out)
{
    void *code, *copy;
    size_t size;
    CUDA_TRY(dev, "parts of a kernel do not fit together",
             dev->cu.link_complete(link, &code, &size));
    AIR_TRY(base_new(&dev->alloc, size, &copy));
    memcpy(copy, code, size);
    *out = (cuda_part){copy, size};
    return AIR_OK;
}

air_status
cuda_link(const air_device *dev, const cuda_part *parts, size_t count,
          cuda_part *out)
{
    char log[LOG];
    cu_link link = NULL;
    *out = (cuda_part){NULL, 0};
    AIR_TRY(begin(dev, log, &link));
    air_status status = add_all(dev, link, parts, count);
    if (status == AIR_OK)
        status = finish(dev, link, out);
    if (status != AIR_OK && log[0])
        status = base_fail(status, __func__, __LINE__,
                           "parts of a kernel are not linked: %.*s",
                           (int)strcspn(log, "\n"), log);
    (void)dev->cu.link_free(link);
    return status;
}
