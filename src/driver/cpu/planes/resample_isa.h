/* resample_isa.h: upsampling of dense floats, kernels of resample_isa.c by
 * instruction set; the rest is left to the plain kernels. */
#ifndef CPU_RESAMPLE_ISA_H
#define CPU_RESAMPLE_ISA_H

#include "air_kernel.h"

#define RESAMPLE_ONE(isa, name)                                          \
    void cpu_##name##_##isa(const air_call *call, const air_task *task); \
    size_t cpu_##name##_size_##isa(const air_call *call, int threads);
#define RESAMPLE_ON(isa, name)         \
    RESAMPLE_ONE(isa, name)            \
    RESAMPLE_ONE(isa, f64_##name)      \
    RESAMPLE_ONE(isa, name##_backward) \
    RESAMPLE_ONE(isa, f64_##name##_backward)
bool cpu_resample_on_scalar(const air_call *call, const char *isa);
bool cpu_f64_resample_on_scalar(const air_call *call, const char *isa);
#if defined(__x86_64__)
bool cpu_resample_on_avx2(const air_call *call, const char *isa);
bool cpu_f64_resample_on_avx2(const air_call *call, const char *isa);
bool cpu_resample_on_avx512(const air_call *call, const char *isa);
bool cpu_f64_resample_on_avx512(const air_call *call, const char *isa);
#define RESAMPLE(name, ...)   \
    RESAMPLE_ON(scalar, name) \
    RESAMPLE_ON(avx2, name)   \
    RESAMPLE_ON(avx512, name)
#else
#define RESAMPLE(name, ...) RESAMPLE_ON(scalar, name)
#endif
#include "driver/ref/resample.def"
#undef RESAMPLE
#undef RESAMPLE_ON
#undef RESAMPLE_ONE

#endif
