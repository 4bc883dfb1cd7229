/* block.h: device memory of drivers that compute in main memory. */
#ifndef DRIVER_BLOCK_H
#define DRIVER_BLOCK_H

#include "base/memory.h"

/* 64-aligned, contents undefined; from 4 MiB on a mapping of huge pages. */
air_status driver_block_new(const air_alloc *alloc, size_t size, void **out);
void driver_block_free(const air_alloc *alloc, void *ptr, size_t size);

#endif
