/* grid.h: which elements of an axis make an element of grid_sampler, and by
 * which weights. Coordinates round as ATen's CPU kernels round them (f32 but
 * for f64 tensors), so that the same elements are picked. */
#ifndef REF_GRID_H
#define REF_GRID_H

#include "driver/ref/args.h"

/* Values of interpolation_mode and padding_mode. */
enum { REF_GRID_LINEAR, REF_GRID_NEAREST, REF_GRID_CUBIC };
enum { REF_GRID_ZEROS, REF_GRID_BORDER, REF_GRID_REFLECT };

enum { REF_GRID_AXES = 3, REF_GRID_TAPS = 4 };

/* Arguments of (a, grid, interpolation_mode, padding_mode, align_corners); the
 * gradient's have the gradient in front. */
typedef struct {
    int mode, padding, axes;
    bool align, wide; /* wide: computes in f64 */
} ref_grid;

/* What makes an element along one axis. An index of -1 lies outside and reads
 * as 0; slope: the weight's derivative by the grid's coordinate. */
typedef struct {
    int count;
    int64_t index[REF_GRID_TAPS];
    double weight[REF_GRID_TAPS], slope[REF_GRID_TAPS];
} ref_grid_taps;

ref_grid ref_grid_open(const air_call *call, bool backward);
/* Taps along an axis of one element: 1, 2 or 4. */
int ref_grid_count(const ref_grid *g);
/* x: what the grid says of an axis of this size. */
void ref_grid_find(const ref_grid *g, int64_t size, double x,
                   ref_grid_taps *out);

#endif
