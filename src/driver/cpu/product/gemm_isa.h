/* gemm_isa.h: names of what is compiled once per instruction set:
 * ISA_NAME(cpu_gemm) is cpu_gemm_avx2 with -DGEMM_ISA=avx2. */
#ifndef CPU_GEMM_ISA_H
#define CPU_GEMM_ISA_H

#include "driver/cpu/product/gemm_core.h"

#include <stdint.h>

#define ISA_JOIN_(a, b) a##_##b
#define ISA_JOIN(a, b)  ISA_JOIN_(a, b)
#define ISA_NAME(name)  ISA_JOIN(name, GEMM_ISA)
#define ISA_STR_(a)     #a
#define ISA_STR(a)      ISA_STR_(a)
#define ISA_TEXT        ISA_STR(GEMM_ISA)

/* gemv_isa.c */
void ISA_NAME(gemv_dots)(float *t, int64_t nm, const float *x, int64_t xs,
                         int64_t nn, const void *w, int64_t rs, int dtype,
                         int64_t k);
void ISA_NAME(gemv_stream)(float *acc, int64_t nw, const void *x, int64_t xs,
                           int dtype, int64_t panels, const float *w,
                           int64_t kc, bool first, int64_t ahead);

/* thin_isa.c */
void ISA_NAME(thin)(const gemm_job *job, int64_t b, int64_t e);
void ISA_NAME(thin_deep)(const gemm_job *job, int64_t b, int64_t e);

/* small_isa.c */
void ISA_NAME(small_products)(const gemm_product *b, int64_t begin,
                              int64_t end);

/* limits_isa.c */
float ISA_NAME(limits_read)(const float *p, int64_t n);
float ISA_NAME(limits_compute)(int64_t rounds, float x, double *flops);

/* quantised_isa.c */
void ISA_NAME(integers)(float *dst, const void *q, int bits, int64_t k,
                        int64_t n, float scale, float zero);
void ISA_NAME(order_words)(float *dst, const float *x, int64_t n);
void ISA_NAME(dots_words)(float *t, int64_t nm, const float *x, int64_t xs,
                          int64_t nn, const gemm_words *from);

/* columns_isa.c */
void ISA_NAME(columns)(float *dst, int64_t ld, const void *p, int64_t step,
                       int64_t stride, int dtype, const conv_segment *s, int n,
                       int64_t count);
void ISA_NAME(shifted)(float *dst, const float *p, const int32_t *at,
                       int64_t kc, const conv_segment *s, int n);

/* correlate_isa.c */
void ISA_NAME(correlate)(const gemm_windows *s, const float *p, const float *w,
                         const float *start, int64_t outs, void *y);
void ISA_NAME(correlate_weights)(const gemm_windows *s, const float *p,
                                 const float *y, double *sums);

/* correlate_rows_isa.c */
void ISA_NAME(correlate_rows)(const gemm_slide *s, const float *p,
                              const float *w, float start, void *y);

/* depthwise_isa.c */
void ISA_NAME(depthwise)(const gemm_planes *s, const void *x, const void *w,
                         const void *bias, void *y, int64_t channels,
                         float *scratch);

/* attention_isa.c */
void ISA_NAME(unquant)(float *dst, const void *x, int bits, const float *scale,
                       const float *offset, int step, int64_t n);
void ISA_NAME(attend_scale)(float *p, float by, int64_t n);
void ISA_NAME(attend_hidden)(float *dst, const uint8_t *p, int64_t n);
void ISA_NAME(attend_hide)(float *dst, const uint8_t *p, int64_t n);
void ISA_NAME(softmax_panel)(float *s, const float *mask, bool even,
                             int64_t keys, int64_t last, float *top, float *sum,
                             float *out, int64_t width);
void ISA_NAME(softmax_row)(float *s, const float *mask, int64_t keys,
                           float *top, float *sum, float *out, int64_t ld,
                           int64_t width);
void ISA_NAME(attend_put_panel)(void *y, int64_t yl, int dtype,
                                const float *panel, const float *scale,
                                int64_t n, int64_t width);

/* attend_isa.c */
extern const attend_ops ISA_NAME(cpu_attend);

/* winograd_isa.c */
extern const winograd_ops ISA_NAME(cpu_winograd);

#endif
