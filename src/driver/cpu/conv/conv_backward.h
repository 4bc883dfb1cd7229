/* conv_backward.h: transposed convolution and the gradient of weights, for the
 * kernel table. */
#ifndef CPU_CONV_BACKWARD_H
#define CPU_CONV_BACKWARD_H

#include "air_kernel.h"

#define CONV_KERNEL(name)                                                 \
    bool cpu_##name##_on_scalar(const air_call *call, const char *isa);   \
    bool cpu_##name##_on_avx2(const air_call *call, const char *isa);     \
    bool cpu_##name##_on_avx512(const air_call *call, const char *isa);   \
    void cpu_##name##_scalar(const air_call *call, const air_task *task); \
    void cpu_##name##_avx2(const air_call *call, const air_task *task);   \
    void cpu_##name##_avx512(const air_call *call, const air_task *task); \
    size_t cpu_##name##_workspace(const air_call *call, int threads);
CONV_KERNEL(convolution_transposed)
CONV_KERNEL(convolution_weight)
#undef CONV_KERNEL

/* conv_transposed.c, of bf16 */
bool cpu_convolution_transposed_on_pairs(const air_call *call, const char *isa);
void cpu_convolution_transposed_pairs(const air_call *call,
                                      const air_task *task);
size_t cpu_convolution_transposed_pairs_workspace(const air_call *call,
                                                  int threads);
bool cpu_convolution_transposed_on_amx(const air_call *call, const char *isa);
void cpu_convolution_transposed_amx(const air_call *call, const air_task *task);
size_t cpu_convolution_transposed_amx_workspace(const air_call *call,
                                                int threads);
/* conv_weight_amx.c: of bf16 */
bool cpu_convolution_weight_on_amx(const air_call *call, const char *isa);
void cpu_convolution_weight_amx(const air_call *call, const air_task *task);
size_t cpu_convolution_weight_amx_workspace(const air_call *call, int threads);

#endif
