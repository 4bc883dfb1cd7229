/* library.h: when and how the application's BLAS does a matrix product. */
#ifndef CPU_LIBRARY_H
#define CPU_LIBRARY_H

#include "air.h"

/* Does it pay to leave this call (mm, bmm, addmm, baddbmm) to a library? */
bool cpu_library_wants(const air_call *call, const char *isa);
/* May it at all, and is it worth measuring? f32 and bf16. */
bool cpu_library_can(const air_call *call);
/* The same for rows of the kernel table. */
bool cpu_library_on_avx512(const air_call *call, const char *isa);
bool cpu_library_on_avx2(const air_call *call, const char *isa);
bool cpu_library_on_scalar(const air_call *call, const char *isa);
bool cpu_library_can_avx512(const air_call *call, const char *isa);
bool cpu_library_can_avx2(const air_call *call, const char *isa);
bool cpu_library_can_scalar(const air_call *call, const char *isa);
/* On all threads of a region, before cpu_library_call of addmm and baddbmm:
 * their tensor to add becomes the result. */
void cpu_library_begin(const air_call *call, const air_task *task);
/* On one thread, outside parallel regions. false: not done, results are
 * undefined and the engine's own kernel has to follow. */
bool cpu_library_call(const air_library *library, const air_call *call,
                      void *const *slots, void *workspace);
/* The same for quantised_mm: at first its weight goes into the workspace as
 * floats. */
bool cpu_quantised_mm_library(const air_call *call, const char *isa);
void cpu_quantised_mm_begin(const air_call *call, const air_task *task);
bool cpu_quantised_mm_call(const air_library *library, const air_call *call,
                           void *const *slots, void *workspace);

#endif
