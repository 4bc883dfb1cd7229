/* resample.h: which elements of an axis make an element of the resized axis,
 * and by which weights: upsampling operators do so along each axis. Indices
 * and fractions round as ATen's CPU kernels round them (f32 but for f64
 * tensors), so that the same elements are picked. */
#ifndef REF_RESAMPLE_H
#define REF_RESAMPLE_H

#include "driver/ref/args.h"

typedef enum {
    REF_NEAREST,
    REF_NEAREST_EXACT, /* the nearest centre */
    REF_LINEAR,
    REF_CUBIC,
    REF_LINEAR_WIDE, /* as wide as what becomes one element: "antialias" */
    REF_CUBIC_WIDE
} ref_filter;

enum { REF_RESAMPLE_AXES = 3 }; /* depth, height, width; fewer: size 1 */

typedef struct {
    ref_filter filter;
    bool align; /* the ends of both axes meet */
    bool wide;  /* computes in f64 */
    int64_t in, out;
    double scale; /* elements of `in` per element of `out` */
} ref_resample;

/* The axes of a call: (tensor, output_size[, input_size][, align_corners],
 * scales ...); input_size, where `backward`. */
void ref_resample_open(const air_call *call, ref_filter filter, bool backward,
                       ref_resample axes[REF_RESAMPLE_AXES]);
/* The most elements that make one. */
int64_t ref_resample_most(const ref_resample *r);
/* index[], weight[]: what makes element `at`; gives their count, 0 where the
 * axis is empty. */
int64_t ref_resample_taps(const ref_resample *r, int64_t at, int64_t *index,
                          double *weight);

#endif
