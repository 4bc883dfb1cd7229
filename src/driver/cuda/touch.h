/* touch.h: what memory a step reads and writes. Slots are apart: what may be
 * one memory has one slot. */
#ifndef CUDA_TOUCH_H
#define CUDA_TOUCH_H

#include "driver/cuda/device.h"

typedef struct {
    cuda_span span;
    bool read, write;
    bool dense; /* all bytes of the span */
    int index;  /* buffer of a region, argument of a call */
} cuda_touch;

/* Touch `i` of the step; false: there are no more. */
bool cuda_touch_at(const air_step *step, int i, cuda_touch *out);
/* Does one of the steps write into the span? */
bool cuda_is_written(const air_step *steps, size_t count,
                     const cuda_span *span);
bool cuda_overlap(const cuda_span *a, const cuda_span *b);

/* Does a node of the region do that with the buffer? */
bool cuda_region_uses(const air_region *rg, unsigned op, int buf);
bool cuda_region_stores(const air_region *rg, int buf);
int64_t cuda_region_elements(const air_region *rg);

#endif
