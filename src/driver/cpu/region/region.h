/* region.h: running an air_region on the CPU, by machine code where there is
 * some for a phase and by tile loops where not. */
#ifndef CPU_REGION_H
#define CPU_REGION_H

#include "air_driver.h"

typedef struct cpu_region cpu_region;

/* Checks the region and plans its memory. `code` may be NULL and is copied;
 * where no executable memory can be had the tile loops do the work. The region
 * must outlive the result. */
air_status cpu_region_make(const air_alloc *alloc, const air_region *region,
                           const air_code *code, const char *isa,
                           cpu_region **out);
/* For lines of a product, which come one by one. */
air_status cpu_region_make_joined(const air_alloc *alloc,
                                  const air_region *region,
                                  const air_code *code, const char *isa,
                                  cpu_region **out);
void cpu_region_free(cpu_region *r);

/* An air_kernel_fn and an air_workspace_fn; call->extra is the cpu_region. */
void cpu_region_run(const air_call *call, const air_task *task);
size_t cpu_region_workspace(const air_call *call, int threads);
/* Of a thread that ran it, or lines of it: what went past the caches is there
 * for the others, too. */
void cpu_region_fence(const cpu_region *r);

/* Phases that run as machine code, of all phases. */
int cpu_region_native(const cpu_region *r);

#endif
