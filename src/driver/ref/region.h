/* region.h: regions element by element in double: the oracle. */
#ifndef REF_REGION_H
#define REF_REGION_H

#include "base/memory.h"

typedef struct ref_region ref_region;

/* The region must outlive it. */
air_status ref_region_make(const air_alloc *alloc, const air_region *region,
                           ref_region **out);
void ref_region_free(ref_region *r);
/* One at a time. */
void ref_region_run(ref_region *r, const air_task *task);

#endif
