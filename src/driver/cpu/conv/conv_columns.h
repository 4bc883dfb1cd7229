/* conv_columns.h: the geometry of a convolution, and its image as columns.
 *
 * The same set of products makes a convolution and all its gradients:
 *     small[co, p] * big[ci, p * stride - pad + tap * dilation] * w[co, ci,
 * tap] `small` is the output of a plain convolution, `big` its input; the other
 * way round for a transposed one. */
#ifndef CPU_CONV_COLUMNS_H
#define CPU_CONV_COLUMNS_H

#include "driver/cpu/product/gemm_core.h"

#define CONV_AXES 3

typedef struct {
    int64_t in[CONV_AXES], out[CONV_AXES]; /* sizes of big, small */
    int64_t kernel[CONV_AXES];
    int64_t stride[CONV_AXES], pad[CONV_AXES], dilation[CONV_AXES];
    int64_t batch, groups, c_in, c_out; /* channels of a group: big, small */
    int64_t in_pixels, out_pixels, taps;
} conv_geometry;

/* lists: stride, padding, dilation, of one entry for all axes or one each. */
conv_geometry cpu_conv_geometry(const air_tensor *big, const air_tensor *small,
                                const air_tensor *weight, const air_arg *lists,
                                int64_t groups);
/* Of a call of cpu_convolution. */
conv_geometry cpu_conv_forward(const air_call *call);

/* Is the image its own column matrix? */
bool cpu_conv_is_pointwise(const conv_geometry *g);

/* The big tensor of one group of one image. */
typedef struct {
    const conv_geometry *g;
    const gemm_ops *ops;
    const void *x;
    int dtype;
} conv_image;

#define CONV_PLACES_MAX GEMM_KB /* places whose segments are found at once */

/* Adjacent places of `small`, in one row: the first is number `lane` of those
 * that were asked for. */
typedef struct {
    int64_t lane, count, at[CONV_AXES];
} conv_run;

/* Positions [*b, *e) of n places from o on whose pixel is inside; *at: of the
 * first. */
void cpu_conv_inside(const conv_geometry *g, int axis, int64_t o, int64_t n,
                     int64_t tap, int64_t *b, int64_t *e, int64_t *at);
/* Places [l0, l0 + nl) as runs, nl at most; returns how many. */
int cpu_conv_runs(const conv_geometry *g, int64_t l0, int64_t nl,
                  conv_run *out);
/* What of n runs meets pixels at a tap: n segments at most; returns how many.
 */
int cpu_conv_meet(const conv_geometry *g, const conv_run *runs, int n,
                  int64_t tap, conv_segment *out);
/* Segments of places [l0, l0 + nl), nl <= CONV_PLACES_MAX; returns how many. */
int cpu_conv_segments(const conv_geometry *g, int64_t l0, int64_t nl,
                      int64_t tap, conv_segment *out);
/* gemm_job.pack: arg is a conv_image, k counts [channel][tap]. */
void cpu_conv_pack_columns(const void *arg, float *panel, int64_t l0,
                           int64_t nl, int64_t k0, int64_t k1);

#endif
