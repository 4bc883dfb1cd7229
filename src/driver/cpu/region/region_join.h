/* region_join.h: a region that runs on the pieces of a kernel's result. */
#ifndef CPU_REGION_JOIN_H
#define CPU_REGION_JOIN_H

#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/region/region_plan.h"

/* air_call.extra of a kernel whose row in the table is KERNEL_JOIN. */
typedef struct {
    const cpu_region *region;
    int buf;   /* of the region: the kernel's result */
    bool keep; /* the result is stored, too */
} cpu_join;

/* Of one thread of a run. `lines` is what the kernel's jobs get. */
typedef struct {
    gemm_lines lines;
    region_run run;
    air_task task;
    int64_t row; /* that `run` is at; -1: none */
    int buf;
} cpu_join_run;

/* air_driver.kernel_join */
air_status cpu_join_make(air_device *dev, const air_kernel *first,
                         const air_call *call, const air_region *region,
                         const air_code *code, int buf, bool keep,
                         const air_kernel **out);
void cpu_join_free(air_device *dev, air_kernel *kernel);
/* Bytes behind a workspace of `first` bytes, with it. extra may be NULL. */
size_t cpu_join_workspace(const void *extra, size_t first, int threads);
/* The lines of this thread; the workspace has `first` bytes of the kernel
 * itself. NULL: call->extra is. */
const gemm_lines *cpu_join_begin(cpu_join_run *j, const air_call *call,
                                 const air_task *task, size_t first);

#endif
