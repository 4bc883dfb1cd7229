/* fuse_text.h: what the files share that print a group of steps. */
#ifndef CUDA_FUSE_TEXT_H
#define CUDA_FUSE_TEXT_H

#include <inttypes.h>

#include "driver/cuda/fuse.h"
#include "driver/cuda/kern_call.h"

enum { FUSE_THREADS = 256 };

typedef struct {
    const fuse_group *g;
    base_text head, body; /* parameters; the rest */
    cuda_launch *launch;
    int tile;              /* rows of one */
    int step;              /* being printed */
    bool behind;           /* what is printed is of `scale` */
    int first[FUSE_STEPS]; /* pointer of its first buffer or tensor */
    int scale[FUSE_STEPS]; /* of a weight of integers; -1: it has none */
} fuse_printer;

/* ---- nodes of regions: fuse_node.c ---- */

const char *fuse_dtype(int dtype);           /* "BF16" */
const char *fuse_lane(const air_rg_node *n); /* "f32", "b" */
const char *fuse_type(const air_rg_node *n); /* "float", "bool" */
/* A call of the node's primitive. */
void fuse_put_call(fuse_printer *p, const air_region *rg, const air_rg_node *n);
void fuse_put_operand(fuse_printer *p, const air_region *rg, int node);
/* ` + ...`: where the buffer's element of the index c0, c1, ... lies; of a row
 * the one at k. */
void fuse_put_offset(fuse_printer *p, const air_region *rg, int buf, bool row);
/* `p3[0 + ...]` */
void fuse_put_element(fuse_printer *p, const air_region *rg, int buf, bool row);
/* What a store writes, and the end of the statement. */
void fuse_put_value(fuse_printer *p, const air_region *rg,
                    const air_rg_node *n);

/* ---- the vector: fuse_row.c, fuse_late.c ---- */

/* Is the buffer of its region what the products take? */
bool fuse_is_vector(const fuse_group *g, const air_rg_buf *b);
/* The node of the region that is a factor of all of it, of a sum over it, which
 * may be one of results; -1: there is none. */
int fuse_factor(const fuse_group *g);

/* `ahead`, `stage` and maybe `scale` of text/skinny.cuh. */
void fuse_put_stage(fuse_printer *p);
/* `, scale`, where `stage` may leave a factor to it. */
void fuse_put_scale(fuse_printer *p);
/* ` && ...`: is what they read aligned? */
void fuse_put_aligned(fuse_printer *p);

#endif
