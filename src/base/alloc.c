/* alloc.c: the only file of the engine that names the C library's allocator. */
#include <stdlib.h>

#include "base/memory.h"

static void *
libc_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)old_size;
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

const air_alloc base_libc_alloc = {libc_resize, NULL};
