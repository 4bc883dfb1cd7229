/* cuda_write.h: what the printers of cuda_*.c share: the plan of a region, the
 * text and the arguments that grow with it. */
#ifndef CODEGEN_CUDA_WRITE_H
#define CODEGEN_CUDA_WRITE_H

#include "base/text.h"
#include "codegen/cuda.h"

enum {
    CUDA_MAX_VALUES = 256, /* arguments of 8 bytes */
    CUDA_MAX_BLOCK = 1024, /* threads */
    CUDA_MAX_CLUSTER = 8,  /* blocks, on any GPU that has clusters */
    CUDA_FOLD_BLOCK = 256,
    CUDA_TILE = 64, /* a side of the squares that turned buffers go through */
    CUDA_TILE_BLOCK = 256,
    CUDA_TILE_PITCH = CUDA_TILE + 1 /* words of a column in other banks */
};

/* Where a buffer of scratch, or one that several phases read, is kept. */
typedef enum {
    CUDA_MEMORY,    /* read and written where it lies */
    CUDA_REGISTERS, /* a thread's elements, all iterations */
    CUDA_SHARED,    /* scratch: the block's row */
    CUDA_TURNED,    /* MAP: a square in shared memory, dense along `turn` */
    CUDA_WORKSPACE  /* scratch: rows behind the partial results */
} cuda_home;

typedef struct {
    uint8_t bytes;
    int64_t inner;  /* stride along the vector axis */
    uint16_t outer; /* bit i: a stride other than 0 along axis i */
    uint8_t home;   /* cuda_home */
    bool moved;     /* V elements may move at once: inner stride 1 */
    size_t at;      /* SHARED, WORKSPACE: bytes */
    size_t sums_at; /* SUMS: what blocks leave, in the workspace */
} cuda_buf;

typedef struct {
    const air_region *rg;
    int sms;
    int64_t most_shared; /* bytes a block may take for rows */
    bool clusters;       /* blocks may meet: capability 9.0 */
    /* the iteration space */
    int vector;                    /* axis */
    int turn;                      /* MAP: axis of TURNED buffers; -1: none */
    int naxes, axes[AIR_MAX_RANK]; /* kept axes of more than one index */
    int64_t rows, cols, folded;    /* product of them; vector; OUTER's other */
    bool wide;                     /* offsets need 64 bits */
    /* shape */
    int V;      /* neighbouring elements of a thread */
    int U;      /* MAP: vectors of a thread at once */
    int G;      /* INNER: threads of a row; OUTER: columns (in V) of a block */
    int C;      /* INNER: blocks of a row that meet in shared memory, G = C T */
    int T;      /* threads of a block */
    int iter;   /* INNER, OUTER: vectors of a thread at once */
    bool exact; /* every thread has all of its elements */
    bool loop;  /* INNER: and then the next ones: nothing stays in registers */
    int64_t
        parts; /* INNER, OUTER: blocks a row (column) is shared by, 1: one */
    int64_t grid;
    cuda_buf bufs[AIR_RG_MAX_BUFS];
    uint8_t lane[AIR_RG_MAX_SCALARS];
    bool moment[AIR_RG_MAX_SCALARS]; /* folded as one: air_moment */
    int8_t made[AIR_RG_MAX_SCALARS]; /* phase that makes it */
    size_t scalar_at[AIR_RG_MAX_SCALARS], part_at[AIR_RG_MAX_SCALARS];
    size_t workspace, shared;
    /* what is printed */
    base_text text;
    int64_t values[CUDA_MAX_VALUES];
    int nvalues;
    int nlaunches;
    air_launch launches[AIR_CODE_LAUNCHES];
    const char *reason; /* why there is no code */
} cuda_writer;

/* Chooses the shape. False: w->reason. */
bool cuda_plan(cuda_writer *w);
int64_t cuda_round_up(int64_t n, int64_t to);
bool cuda_is_sum(const cuda_writer *w, int buf); /* place SUMS */
bool cuda_has_sums(const cuda_writer *w);

/* cuda_body.c: expressions, phases. */

/* A new argument: gives its number. Equal ones are not one: the text must not
 * depend on which sizes are equal. */
int cuda_value(cuda_writer *w, int64_t value);
/* "(I)a.v[3]" of a size; I is the kernel's index type. */
void cuda_put_value(cuda_writer *w, int64_t value);
const char *cuda_dtype(int dtype);    /* "f32" */
const char *cuda_lane_type(int lane); /* "float" */
/* "SUM" .. of the REDUCE into this scalar; NULL: the phase has none. */
const char *cuda_reduction(const cuda_writer *w, int phase, int scalar);
/* What it is folded in: of MOMENT four numbers, else the lane's type. */
const char *cuda_fold_type(const cuda_writer *w, int scalar);

/* How the elements of a phase are reached. Names end in `suffix` where several
 * vectors are alive at once. */
typedef struct {
    const char *suffix; /* "[u]" or "" */
    char offset;        /* of buffer 3 is o3, or m3 */
    bool each;          /* scalars have a value per element: s3[k] */
} cuda_access;

/* Loads of a ROW phase; early: those into registers h3[j], else the others. */
void cuda_put_loads(cuda_writer *w, int phase, bool early,
                    const cuda_access *at);
/* Its nodes, for k < V, and its stores. */
void cuda_put_elements(cuda_writer *w, int phase, const cuda_access *at);
/* A SCALAR phase of INNER, by all threads of a row. */
void cuda_put_scalar_phase(cuda_writer *w, int phase);

/* Does a phase have nodes of this kind (on buffer or scalar `buf`, -1: any)? */
bool cuda_has(const cuda_writer *w, int phase, unsigned op, int buf);

/* cuda_walk.c: what kernels begin with. Text is in the kernel that was begun
 * last; names are those of the comment in cuda_body.c. */
void cuda_begin_kernel(cuda_writer *w, int block);
void cuda_put_size(cuda_writer *w, const char *name, int64_t value);
void cuda_put_quotient(cuda_writer *w, const char *name, int64_t d);
void cuda_put_indices(cuda_writer *w, const char *suffix);
void cuda_put_offsets(cuda_writer *w, const char *suffix);
void cuda_put_shared(cuda_writer *w);
void cuda_launch(cuda_writer *w, int64_t grid, int block, size_t shared);
/* What a thread folds in a phase begins: t2[k]. */
void cuda_put_sums(cuda_writer *w, int phase);
/* Behind all elements of a thread. */
void cuda_put_closed(cuda_writer *w, int phase);
/* Are there loads into registers, before the others? */
bool cuda_loads_early(const cuda_writer *w, int phase);
/* Arrays of what a phase loads early, when they live for one pass. */
void cuda_put_pass_arrays(cuda_writer *w, int phase);

/* All kernels of a walk: cuda_walk.c, cuda_tile.c, cuda_rows.c,
 * cuda_columns.c. */
void cuda_put_map(cuda_writer *w);
void cuda_put_tiles(cuda_writer *w);
void cuda_put_inner(cuda_writer *w);
void cuda_put_inner_parts(cuda_writer *w); /* several blocks a row */
void cuda_put_outer(cuda_writer *w);
/* INNER with SUMS: folds what the blocks have left, runs the last phase. */
void cuda_put_column_phase(cuda_writer *w);

#endif
