/* fuse.h: neighbouring steps of a list as one launch: products of one vector,
 * or of up to 16 rows, with several weights, the region that makes the vector
 * before them (not of several rows: each block would make all of them), regions
 * that take their results behind them, copies of those to an index of a cache.
 *
 * What steps hand to each other inside a group stays on the chip, rounded as it
 * was; it is written where a later step of the list reads it, or none of them
 * overwrites it. As blocks of a launch wait for nothing, a group may write
 * nothing that it reads. */
#ifndef CUDA_FUSE_H
#define CUDA_FUSE_H

#include "driver/cuda/device.h"
#include "driver/cuda/kern.h"

enum { FUSE_STEPS = 12, FUSE_SPANS = 32, FUSE_WEIGHTS = 4, FUSE_COPIES = 4 };

typedef struct {
    cuda_span span;
    int step; /* of the group, that writes it */
} fuse_write;

/* Tiles of the launch that belong together: a product as it is (region < 0),
 * or what a region wants of one or two products. */
typedef struct {
    int region;        /* step of the group, -1 */
    int weight;        /* region < 0 */
    int loads;         /* of results for one iteration: 1, 2 */
    int buf[2], of[2]; /* region's buffer, weight it is a result of */
    int64_t count;     /* iterations, of one row of x */
} fuse_part;

/* An index_copy in place: what step `from` makes goes to an index as well. */
typedef struct {
    int step, from;
} fuse_copy;

typedef struct {
    const air_step *steps;
    size_t older; /* steps of the list before it */
    int count;    /* steps of it */
    int before;   /* 1: step 0 is the region that makes the vector */
    int nweights; /* products follow */
    int nparts;
    fuse_part parts[FUSE_WEIGHTS];
    bool covered[FUSE_WEIGHTS]; /* a region takes the results of the weight */
    int ncopies;
    fuse_copy copies[FUSE_COPIES];
    int64_t k, m; /* of x [m, k] */
    int dtype;
    int nwrites; /* that somebody reads after the group */
    fuse_write writes[FUSE_SPANS];
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

/* Elements from a row of x to the next one; of one row 0. */
static inline int64_t
fuse_x_row(const fuse_group *g)
{
    return kern_stride(fuse_product(g, 0)->args[0].t, 0);
}

/* Are its weights integers? Then all are stored alike. */
static inline bool
fuse_is_words(const fuse_group *g)
{
    return fuse_product(g, 0)->nargs == KERN_WORDS_ARGS;
}

/* The copy that the step is; NULL: none. */
const fuse_copy *fuse_copy_of(const fuse_group *g, int step);
/* What a copy takes, and where it goes. */
static inline const air_tensor *
fuse_copied(const fuse_group *g, const fuse_copy *c)
{
    return fuse_call(g, c->step)->args[3].t;
}

/* Does the buffer of a region lie in the tensor that is copied? */
bool fuse_is_copied(const air_rg_buf *b, const air_tensor *src);

/* Is what a step of the group writes there still wanted? */
bool fuse_is_written(const fuse_group *g, int step, int32_t slot,
                     int64_t offset);

#endif
