/* fuse.h: neighbouring steps of a list as one launch: products of one vector
 * with several weights, the region that makes the vector before them, regions
 * that take their results behind them.
 *
 * What steps hand to each other inside a group stays on the chip, rounded as it
 * was; it is written where a later step of the list reads it, or none of them
 * overwrites it. As blocks of a launch wait for nothing, a group may write
 * nothing that it reads. */
#ifndef CUDA_FUSE_H
#define CUDA_FUSE_H

#include "driver/cuda/device.h"

enum { FUSE_STEPS = 12, FUSE_SPANS = 32, FUSE_WEIGHTS = 4 };

/* Bytes [begin, end) of a slot. */
typedef struct {
    int32_t slot, step; /* step: of the group, that writes them */
    int64_t begin, end;
} fuse_span;

/* Tiles of the launch that belong together: a product as it is (region < 0),
 * or what a region wants of one or two products. */
typedef struct {
    int region;        /* step of the group, -1 */
    int weight;        /* region < 0 */
    int loads;         /* of results for one iteration: 1, 2 */
    int buf[2], of[2]; /* region's buffer, weight it is a result of */
    int64_t count;     /* iterations */
} fuse_part;

typedef struct {
    const air_step *steps;
    int count;    /* steps of it */
    int before;   /* 1: step 0 is the region that makes the vector */
    int nweights; /* products follow */
    int nparts;
    fuse_part parts[FUSE_WEIGHTS];
    bool covered[FUSE_WEIGHTS]; /* a region takes the results of the weight */
    int64_t k;
    int dtype;
    int nwrites; /* that somebody reads after the group */
    fuse_span writes[FUSE_SPANS];
} fuse_group;

/* The longest group that begins at step `first`; count < 2: none. */
void cuda_fuse_find(const air_step *steps, size_t count, size_t first,
                    fuse_group *out);
/* Its text and launch. */
air_status cuda_fuse_print(const fuse_group *g, const cuda_props *props,
                           cuda_source *out);

/* ---- shared by the two files ---- */

static inline const air_call *
fuse_call(const fuse_group *g, int step)
{
    return &g->steps[step].call;
}

static inline const air_region *
fuse_region(const fuse_group *g, int step)
{
    return g->steps[step].kernel->region;
}

/* The product with weight w. */
static inline const air_call *
fuse_product(const fuse_group *g, int w)
{
    return fuse_call(g, g->before + w);
}

/* Is what a step of the group writes there still wanted? */
bool fuse_is_written(const fuse_group *g, int step, int32_t slot,
                     int64_t offset);

#endif
