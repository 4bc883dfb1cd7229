/* conv_spread.h: transposed convolution from planes of its image that are
 * padded once: nothing is added up in memory. */
#ifndef CPU_CONV_SPREAD_H
#define CPU_CONV_SPREAD_H

#include "driver/cpu/conv/conv_columns.h"

/* Some taps of one block of results. */
typedef struct {
    int64_t n, lanes;          /* rows; lanes that count */
    int64_t depth, plane, row; /* channels; elements from one to the next, of
                                  planes; from row to row of weights */
    int64_t count;             /* taps */
    const void **planes, **weights; /* [count]: where the first channel's place
                                       0 and row 0 lie */
} spread_taps;

/* What planes hold, and who multiplies them. */
typedef struct {
    int64_t size, unit; /* bytes of an element; depths are multiples of unit */
    int64_t pairs;      /* channels whose elements lie side by side */
    int64_t run;        /* elements that `turn` takes at most */
    void (*begin)(void), (*end)(void); /* around products of a thread */
    /* elements of `pairs` channels, `step` apart, n of each; have: of them
     * that are there */
    void (*plane)(const gemm_ops *ops, void *dst, const void *p, int64_t step,
                  int64_t have, int dtype, int64_t n);
    /* dst[i][ops->lanes] = element i of channels, `step` apart; i < n <= run */
    void (*turn)(const gemm_ops *ops, void *dst, const void *p, int64_t step,
                 int dtype, int64_t channels, int64_t n);
    /* n results: even, odd, even ... NULL: by ops */
    void (*put2)(void *dst, const float *even, const float *odd, float bias,
                 int64_t n);
    /* acc[row][lane] = sum over taps of rows of weights times planes */
    void (*multiply)(const gemm_ops *ops, float *acc, const spread_taps *taps);
} spread_unit;

extern const spread_unit cpu_spread_floats;
#if defined(__x86_64__)
extern const spread_unit
    cpu_spread_pairs;                    /* conv_spread_pairs_isa.c: of bf16 */
extern const spread_unit cpu_spread_amx; /* conv_spread_amx_isa.c */
/* What both have: rows of weights are of 32 channels. */
void cpu_spread_plane_pairs(const gemm_ops *ops, void *dst, const void *p,
                            int64_t step, int64_t have, int dtype, int64_t n);
void cpu_spread_turn_pairs(const gemm_ops *ops, void *dst, const void *p,
                           int64_t step, int dtype, int64_t channels,
                           int64_t n);
void cpu_spread_put2_pairs(void *dst, const float *even, const float *odd,
                           float bias, int64_t n);
#endif

/* Are there enough channels, and is most of a plane no padding? */
bool cpu_spread_takes(const conv_geometry *g, int dtype);
/* (a, weight, bias, size, stride, padding, dilation, groups) */
void cpu_spread_run(const air_call *call, const conv_geometry *g,
                    const air_task *task, const gemm_ops *ops,
                    const spread_unit *unit);
size_t cpu_spread_workspace(const conv_geometry *g, int threads,
                            const spread_unit *unit);

#endif
