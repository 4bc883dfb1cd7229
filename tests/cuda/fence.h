/* fence.h: memory for the GPU that is none, which ends where a page does and
 * behind which is none: a kernel that reads or writes past it ends the process,
 * as it may on a GPU. It begins as bytes of 0xff, NaN where a float is. */
#ifndef CUDA_FENCE_H
#define CUDA_FENCE_H

#include "air.h"

/* What driver cuda allocates is such memory from now on. */
void fence_lend(air_gpu *gpu);

/* A copy, from a multiple of 16 on, or (odd) from none but of `element`, its
 * elements' size. NULL: there is no memory. */
void *fence_copy(const void *from, size_t bytes, size_t element, bool odd);
void fence_drop(void *copy, size_t bytes);

/* From `end` to where the page ends nobody has written. */
bool fence_is_whole(const void *end);

#endif
