/* conv_planes.h: the gradient of a convolution's weights from planes of the
 * image that are padded once: no columns are made. */
#ifndef CPU_CONV_PLANES_H
#define CPU_CONV_PLANES_H

#include "driver/cpu/conv/conv_columns.h"

/* What planes and panels hold, and who multiplies them. */
typedef struct {
    int64_t size, unit;  /* bytes of an element; panels have room for multiples
                            of unit */
    int64_t depth, rows; /* products read multiples of these */
    int dtype;
    void (*begin)(void), (*end)(void); /* around products of a thread */
    /* dst[i] = p[i * stride], as elements */
    void (*copy)(const gemm_ops *ops, void *dst, const void *p, int64_t stride,
                 int dtype, int64_t n);
    /* panel of ops->lanes lanes from n of them: rows of k adjacent elements */
    void (*pack)(const gemm_ops *ops, void *panel, const gemm_view *rows,
                 int64_t n, int64_t k);
    /* acc[row][lane] += rows, `ld` elements apart, times panel */
    void (*multiply)(const gemm_ops *ops, float *acc, int64_t n,
                     const void *rows, int64_t ld, const void *panel,
                     int64_t k);
} planes_unit;

extern const planes_unit cpu_planes_floats;

/* Are there enough channels, and is most of a plane no padding? */
bool cpu_planes_take(const conv_geometry *g);
/* (a, small, size, stride, padding, dilation, groups) */
void cpu_planes_run(const air_call *call, const conv_geometry *g,
                    const air_task *task, const gemm_ops *ops,
                    const planes_unit *unit);
/* dtype: of the operands. */
size_t cpu_planes_workspace(const conv_geometry *g, int dtype, int threads,
                            const planes_unit *unit);

#endif
