/* lower.h: groups of a graph, at known sizes, become regions (the loop IR).
 *
 * The lowering is a pure function of the graph, the evaluated sizes and the
 * places of the values that come in and go out; it sees no device. */
#ifndef LOWER_LOWER_H
#define LOWER_LOWER_H

#include "ir/ir.h"

/* Where a value lies: slots[slot] + offset bytes, with a layout in elements. */
typedef struct {
    int32_t slot;
    int64_t offset;
    ir_layout layout;
} lower_place;

/* An integer that another run has another value of, as lanes load it: 8 bytes
 * can be read at each. */
typedef struct {
    float f;
    uint8_t b; /* i != 0 */
    double d;
    int64_t i;
} lower_number;

typedef struct {
    const ir_graph *g;
    const int64_t *dims;       /* every size expression, evaluated */
    const int32_t *numbers;    /* by size expression: 1 + the slot of its
                                  lower_number, 0: it is a constant; or NULL */
    const lower_place *places; /* by value id */
    const bool *stored;        /* by value id: a member that must be stored */
    bool exact;                /* round each op's result to its dtype */
    bool columns;              /* few of them are walked as well as many */
    bool pairs;                /* so are buffers of stride 2 (x86_pairs.c) */
    base_arena *arena;         /* of the result */
    base_arena *scratch;       /* reset by the caller */
} lower_env;

/* A region and its buffers, whose slots and offsets the memory plan rewrites
 * before a driver sees the region. */
typedef struct {
    air_region *region;
    air_rg_buf *bufs; /* region->bufs */
} lower_region;

/* An operand whose strides fit no region: to be copied to dense memory. */
typedef struct {
    air_ref ref; /* AIR_NO_REF: none */
    int last;    /* the axis of which elements are side by side then, -1: as
                    they are written */
} lower_wish;

/* Nodes in execution order, all of one group (or one fusable node).
 * *out_dense: what is wished for before lower_group is called again
 * (out_region->region is NULL then). */
air_status lower_group(const lower_env *env, const uint32_t *nodes,
                       size_t count, lower_region *out_region,
                       lower_wish *out_dense);

/* dst[...] = src[...] converted, over dst's sizes; src broadcasts. */
typedef struct {
    lower_place src, dst;
    air_dtype src_dtype, dst_dtype;
} lower_move;
#define LOWER_MOVES 2
/* Up to LOWER_MOVES of them in one region, whose dst are of the same sizes and
 * strides and do not overlap any src. */
air_status lower_copy(base_arena *arena, const lower_move *moves, int count,
                      lower_region *out_region);

/* The axes of a region: roles decide order and which may be merged. */
typedef enum { LOWER_OUTER, LOWER_REDUCED, LOWER_VECTOR } lower_role;

/* Orders axes, drops those of size 1 and merges neighbours of one role where
 * every buffer allows it. axes: role and size of each domain axis; bufs:
 * strides per domain axis, rewritten. False: reduced axes that do not merge;
 * *out_bad is the first buffer in the way. */
bool lower_axes(int rank, const lower_role *roles, const int64_t *sizes,
                bool keep, int nbufs, air_rg_buf *bufs, int *out_rank,
                int64_t *out_dims, int *out_bad);

/* Puts axes in the order of the strides of buffer `by`, largest first, so that
 * what is written runs through memory whatever the layout. */
void lower_sort_axes(int rank, int64_t *sizes, int nbufs, air_rg_buf *bufs,
                     int by);

/* Text of a region, for dumps: one node a line. */
void lower_print(const air_region *region, base_text *out);

#endif
