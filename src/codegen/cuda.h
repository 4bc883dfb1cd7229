/* cuda.h: CUDA C of a region (internal to src/codegen).
 *
 * Text depends on the structure of a region: operations, dtypes, which strides
 * are 0 or 1, how many elements a thread has. Sizes and strides are arguments,
 * so that one compiled text serves the sizes of a class. */
#ifndef CODEGEN_CUDA_H
#define CODEGEN_CUDA_H

#include "air_driver.h"
#include "base/memory.h"

/* Device functions that every printed kernel needs before it. C++17. */
extern const char cuda_prelude[];

/* isa: "sm_90a", "sm_90a:132:232448" with the number of multiprocessors
 * and the bytes of shared memory of a block. UNSUPPORTED:
 * *out_reason says why, no message is recorded. */
air_status cuda_region(const air_alloc *alloc, const air_region *region,
                       const char *isa, air_code *out, const char **out_reason);

#endif
