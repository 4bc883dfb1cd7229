/* attention_backward.h: the inner loops of attention's gradient, compiled once
 * per instruction set, and the rows of the kernel table. */
#ifndef CPU_ATTENTION_BACKWARD_H
#define CPU_ATTENTION_BACKWARD_H

#include "air_kernel.h"

typedef struct {
    /* One panel of queries and a block of keys, both [key][lane]:
     *     s:  scores, becomes the weights p = e^(s + mask - sums)
     *     dp: gradient of p, becomes that of s: p * (dp - dots)
     * mask may be NULL; lane l sees keys up to last + l; sums and dots: one for
     * each lane. A weight of 0 has gradient 0 whatever dp is. What no lane of
     * a vector sees is neither read nor written. */
    void (*weights)(float *s, float *dp, const float *mask, int64_t keys,
                    int64_t last, const float *sums, const float *dots);
    /* dots[r] = a[r * as + d] * b[r * bs + d] summed over d < width, r < n */
    void (*dots)(float *dots, const float *a, int64_t as, const void *b,
                 int64_t bs, int dtype, int64_t n, int64_t width);
} backward_ops;

extern const backward_ops cpu_attention_backward_scalar;
#if defined(__x86_64__)
extern const backward_ops cpu_attention_backward_avx2;
extern const backward_ops cpu_attention_backward_avx512;
#endif

bool cpu_sdpa_backward_on_scalar(const air_call *call, const char *isa);
bool cpu_sdpa_backward_on_avx2(const air_call *call, const char *isa);
bool cpu_sdpa_backward_on_avx512(const air_call *call, const char *isa);
void cpu_sdpa_backward_scalar(const air_call *call, const air_task *task);
void cpu_sdpa_backward_avx2(const air_call *call, const air_task *task);
void cpu_sdpa_backward_avx512(const air_call *call, const air_task *task);
size_t cpu_sdpa_backward_workspace(const air_call *call, int threads);

#endif
