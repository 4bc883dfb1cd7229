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
/* Does nobody read it behind the list that the step is of? */
static inline bool
cuda_is_scrap(const air_step *step, const cuda_span *span)
{
    return step->scrap == (uint32_t)span->slot + 1;
}
bool cuda_overlap(const cuda_span *a, const cuda_span *b);

/* What is left of a span that others write into. */
enum { CUDA_PIECES = 8 };
typedef struct {
    int count;
    cuda_span piece[CUDA_PIECES];
} cuda_remains;

bool cuda_remains_meet(const cuda_remains *r, const cuda_span *s);
/* False: it would be in too many pieces. */
bool cuda_remains_cut(cuda_remains *r, const cuda_span *s);

/* Does a node of the region do that with the buffer? */
bool cuda_region_uses(const air_region *rg, unsigned op, int buf);
bool cuda_region_stores(const air_region *rg, int buf);
int64_t cuda_region_elements(const air_region *rg);

#endif
