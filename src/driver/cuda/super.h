/* super.h: runs of steps as one persistent kernel (text/super.cuh): its blocks,
 * all of them on the GPU at once, do what launch after launch would do.
 *
 * A phase is the text of a launch: what lies in one text of 256 threads that
 * shares its work among any number of blocks can be one. Equal texts are one
 * function; which runs with what parameters is a table. A phase waits for all
 * blocks where it depends on a phase since the last wait. Phases of little work
 * are one block's: between them nothing has to wait. Weights of products come
 * through a ring (text/ring.cuh), where shared memory has room for one. */
#ifndef CUDA_SUPER_H
#define CUDA_SUPER_H

#include "driver/cuda/device.h"

enum {
    SUPER_THREADS = 256,
    SUPER_ASKING = 128, /* beside them: one warp asks, three lend registers */
    SUPER_HEAD = 5,     /* parameters before those of phases */
    SUPER_STATE = 256,  /* bytes of scratch before that of phases */
    SUPER_ROWS = 2,     /* parameters of a phase for rows of a cache, at most */
    SUPER_PARAMS = 3900, /* of 8 bytes: 32 764 bytes are CUDA's limit */
    SUPER_STATIC = 2048, /* bytes of shared memory that texts declare */
    /* text/ring.cuh: bytes of a stage, stages */
    SUPER_RING_BYTES = 32768,
    SUPER_RING_LEAST = 2,
    SUPER_RING_MOST = 6
};

/* With the phase before it; for all phases before it and what they wrote; for
 * most blocks to have come so far, as words show that they are there. */
typedef enum { SUPER_GOES, SUPER_MEMORY, SUPER_COUNT } super_wait;

/* What attention hands on in parts (text/parts.cuh); 0: nothing. */
typedef struct {
    int64_t count, numbers, width; /* parts; of each, and of its rows */
} super_parts;

/* A launch of a step, or of several. */
typedef struct {
    const cuda_source *source;
    size_t step, end;
    int32_t launch;
    super_wait waits;
    uint32_t alone; /* the block that does all of it, from 1 on; 0: all do */
    bool calm;      /* weights that have time come one after the other */
    const void *prelude; /* of regions in the text; NULL: none */
    size_t scratch;      /* of the list's, where the source's begins */
    /* By parameter: where its words lie in the scratch; 0: numbers in memory */
    int64_t words[CUDA_MAX_PARAMS];
    /* Those of them that are parts. */
    uint32_t parted;
    super_parts parts;
    /* And those of the row of a cache that is written; 0: none. The parameter
     * is then two, the second one behind all others. */
    int64_t rows[CUDA_MAX_PARAMS];
    int64_t plane,
        width;      /* elements of a head of that cache, and of its rows */
    size_t rows_of; /* the phase that writes the rows that this one reads */
} super_phase;

typedef struct {
    super_phase *phases;
    size_t count;
    bool apart; /* phases need nothing of each other: a bundle, a block each */
    size_t scratch; /* of the list's, where that of phases begins */
    size_t words,
        bytes; /* those of one launch, and of the next one behind them */
    size_t end;
} super_run;

/* What became of a list. */
typedef struct {
    bool asked; /* for, by the application: not only where it pays */
    size_t kernels, phases; /* persistent ones; of them all */
    const char *why;        /* of the first step that is no phase; NULL: none */
    const char *label;      /* of that step */
} super_report;

/* May the step be a phase of one? */
bool cuda_super_wants(const air_device *dev, const air_step *step);
/* Does the application itself ask for it? */
bool cuda_super_is_asked(const air_device *dev, const air_step *step);
/* Joins runs of such steps: the source of the first step of each becomes that
 * of all of them; those of the others have no launches then. */
air_status cuda_super_join(const air_device *dev, const air_step *steps,
                           size_t count, cuda_source *sources,
                           super_report *out);

/* cross.c: which values blocks give each other as words (text/cross.cuh), and
 * how phases of the run then wait. */
void cuda_super_cross(const air_device *dev, super_run *run,
                      const air_step *steps, size_t count);

/* bundle.c: small steps side by side become the source of the first of them. */
air_status cuda_bundle_join(const air_device *dev, const air_step *steps,
                            size_t count, cuda_source *sources);

/* Text, parameters and launch of a run; *out: a source that has its text
 * initialised and is otherwise 0. */
air_status cuda_super_print(const air_device *dev, const super_run *run,
                            const air_step *steps, cuda_source *out);

/* Is there room for all blocks at once? UNSUPPORTED: no. In the device's
 * context. */
air_status cuda_super_fits(const air_device *dev, const air_launch *shape,
                           cu_function function);

#endif
