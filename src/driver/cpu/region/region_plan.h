/* region_plan.h: what is known of a region before it runs. Private to the
 * region_*.c files. */
#ifndef CPU_REGION_PLAN_H
#define CPU_REGION_PLAN_H

#include "driver/cpu/region/exec_memory.h"
#include "driver/cpu/region/region.h"
#include "driver/cpu/region/tile_ops.h"

#define REGION_OUTER_ROWS   256 /* rows that a thread folds at once, OUTER */
#define REGION_OUTER_SUM    TILE_SUM_ROWS /* folded without a tree */
#define REGION_OUTER_LEVELS 3             /* of the pairwise fold of those */
#define REGION_BLOCK_ROWS   32 /* MAP with transposed buffers: a block of */
#define REGION_BLOCK_COLS   64 /* rows and columns is staged at once */
#define REGION_STAGE        (REGION_BLOCK_ROWS * REGION_BLOCK_COLS) /* elements */
#define REGION_STAGED                                                      \
    8192                     /* bytes of a row that are staged at once, of \
                                all buffers: they stay in the first cache */
#define REGION_SPAN     256  /* elements of it at least */
#define REGION_ACROSS   8192 /* elements of a block of short rows */
#define REGION_SUM_SETS 128  /* of SUMS, fewer where each would be for less */
#define REGION_SUM_ROWS 16   /* than these rows, more where it would be for */
#define REGION_SUM_MOST 256  /* more than these: what one sum is long */
#define REGION_LEVELS   48   /* of the pairwise fold: 2^48 chunks */
#define REGION_ALIGN    64
#define REGION_DIRECT   (UINT32_C(1) << 31) /* a tile is the buffer itself */

/* What a phase needs of its surroundings. */
typedef struct {
    air_phase_fn fn;                /* NULL: tile loops */
    uint32_t loads, stores;         /* sets of buffers */
    uint32_t staged_in, staged_out; /* of these, inner stride not 0 or 1 */
    uint16_t reduces;               /* set of scalars */
    int16_t span; /* elements that are staged at once, of a row */
    bool reads_scalars;
    bool rows;              /* fn takes several rows */
    bool folds;             /* tile loops: nothing but folds of direct loads */
    tile_rows_fn fold_rows; /* for all that the phase does, or NULL */
    tile_rows_fn fold_columns; /* OUTER: the same for rows that follow */
    bool narrow; /* only an extreme of integers as they lie in memory */
} region_phase;

struct cpu_region {
    const air_alloc *alloc;
    const air_region *rg;
    const tile_set *set;
    /* the iteration space with axes joined; the last one is the vector axis */
    int rank;
    int64_t dims[AIR_MAX_RANK];
    int64_t strides[AIR_RG_MAX_BUFS][AIR_MAX_RANK];
    int8_t axis_of[AIR_MAX_RANK]; /* of the region's axes; -1: one index */
    int64_t rows, cols; /* OUTER: rows of columns, the reduced axis apart */
    int64_t folded;     /* OUTER: length of the reduced axis */
    size_t bytes[AIR_RG_MAX_BUFS]; /* of an element */
    region_phase phases[AIR_RG_MAX_PHASES];
    air_phase_fn all; /* INNER: row phases of several rows, or NULL */
    uint8_t reduce[AIR_RG_MAX_SCALARS], lane[AIR_RG_MAX_SCALARS];
    air_scalar start[AIR_RG_MAX_SCALARS]; /* identities of the reductions */
    int nreduce;
    bool by_fours;     /* OUTER: rows are folded by AIR_RG_FEW_ROWS */
    bool copies;       /* region_is_copy */
    bool uses_tiles;   /* some phase has no machine code */
    bool column_split; /* INNER: threads may share a row */
    bool across;       /* INNER: in blocks of `block` short rows */
    bool spread;       /* MAP: in blocks of `block` short rows as one */
    int flat;          /* both: the first axis that blocks run along */
    uint32_t fixed;    /* across: turned buffers that are alike in all blocks */
    int64_t *places;   /* across: where the rows of a block lie in buffers that
                          are turned, from the first on, in elements; NULL:
                          all at the stride of the last axis of rows */
    uint32_t apart;    /* spread: buffers that are copied to be dense */
    uint32_t pairs;    /* buffers between whose elements lie those of `mate` */
    int8_t mate[AIR_RG_MAX_BUFS]; /* see region_pairs.c */
    int row_phases;               /* those before a COLUMN phase */
    int64_t sum_rows;             /* rows that one set of SUMS is for */
    size_t sum_bytes;             /* of a set; 0: none */
    int64_t block;
    bool blocked; /* MAP: some buffer lies along the last axis but one */
    int levels;   /* OUTER: of the pairwise fold */
    /* memory of a thread: offsets */
    int tile;                       /* elements */
    uint32_t *tiles;                /* per node; or REGION_DIRECT + buffer */
    size_t acc[AIR_RG_MAX_SCALARS]; /* OUTER: `levels` rows */
    size_t stage[AIR_RG_MAX_BUFS];  /* also where other threads' scalar
                                       stores go */
    size_t row[AIR_RG_MAX_BUFS];    /* scratch buffers; SUMS: in a set */
    size_t thread_bytes;
    exec_memory code;
};

/* Results kept per scalar while a reduction is folded, OUTER: bytes a row. */
static inline size_t
region_acc_row(const cpu_region *r)
{
    return (size_t)r->tile * 8;
}

static inline int64_t
region_chunks(const cpu_region *r)
{
    int64_t n = r->rg->walk == AIR_WALK_OUTER ? r->folded : r->cols;
    int64_t size =
        r->rg->walk == AIR_WALK_OUTER ? REGION_OUTER_ROWS : TILE_CHUNK;
    return (n + size - 1) / size;
}

/* INNER: elements of rows that are folded whole, at least: shorter ones are
 * turned in less time; not across, they are the chunks of a long row. */
static inline int64_t
region_whole_row(const cpu_region *r, size_t bytes)
{
    return r->across ? r->set->vector / (int64_t)bytes : TILE_CHUNK + 1;
}

/* OUTER: units of work, each a row of one column block. */
static inline int64_t
region_blocks(const cpu_region *r)
{
    return (r->cols + r->tile - 1) / r->tile;
}

/* INNER with SUMS: sets of them, whatever the number of threads. */
static inline int64_t
region_sum_sets(const cpu_region *r)
{
    return r->rows <= r->sum_rows ? 1
                                  : (r->rows + r->sum_rows - 1) / r->sum_rows;
}

/* Do threads share the reduced axis? Monotonic in `threads`. */
static inline bool
region_shares(const cpu_region *r, int threads)
{
    if (threads < 2 || region_chunks(r) < 2 || r->sum_bytes > 0)
        return false;
    if (r->rg->walk == AIR_WALK_OUTER)
        return r->rows * region_blocks(r) < 4 * (int64_t)threads;
    return r->rg->walk == AIR_WALK_INNER && r->column_split &&
           r->rows < threads;
}

/* across: partial results of a row that are not the identity. */
static inline int64_t
region_parts(const cpu_region *r)
{
    return r->cols < TILE_PARTS ? r->cols : TILE_PARTS;
}

/* across: are the elements of neighbouring rows next to each other, or one?
 * Other buffers are turned in blocks. */
static inline bool
region_is_direct(const cpu_region *r, int b)
{
    int64_t stride = r->strides[b][r->rank - 2], run = stride;
    bool even = stride == 0 || stride == 1;
    for (int a = r->rank - 2; a >= r->flat; run *= r->dims[a--])
        even = even && r->strides[b][a] == run;
    return even;
}

/* across: rows behind the first of the axes that they lie along. */
static inline int64_t
region_flat_rows(const cpu_region *r)
{
    int64_t rows = 1;
    for (int a = r->flat; a < r->rank - 1; a++)
        rows *= r->dims[a];
    return rows;
}

static inline size_t
region_own_bytes(const cpu_region *r, int threads)
{
    return r->thread_bytes > AIR_SCRATCH ? r->thread_bytes * (size_t)threads
                                         : 0;
}

/* Offset of the results of chunk `chunk` of reduction `k` (counted among the
 * region's) behind the threads' own memory. */
static inline size_t
region_partial(const cpu_region *r, int64_t unit, int64_t chunk, int k)
{
    size_t item = (size_t)((unit * region_chunks(r) + chunk) * r->nreduce + k);
    return item * (r->rg->walk == AIR_WALK_OUTER ? region_acc_row(r) : 8);
}

/* ---- a run (region_phase.c) ---- */

typedef struct {
    const cpu_region *r;
    const air_task *task;
    char *mem;
    char *sums;                     /* the set of SUMS that rows add to */
    char *base[AIR_RG_MAX_BUFS];    /* element 0 of the current row */
    int64_t inner[AIR_RG_MAX_BUFS]; /* stride of its elements */
    int64_t steps[AIR_RG_MAX_BUFS]; /* bytes to the next row */
    bool columns; /* each element has its own scalars, in acc */
    bool flat;    /* OUTER, in tiles: rows that are folded lie as one */
    int64_t line; /* not 0: a span is rows of so many columns */
    bool fours;   /* that are folded by AIR_RG_FEW_ROWS, above the level */
    int64_t index[AIR_MAX_RANK]; /* of the current row */
    air_scalar scalars[AIR_RG_MAX_SCALARS];
    void *acc[AIR_RG_MAX_SCALARS];
} region_run;

/* Machine code; a divisor of zero is the task's fault. */
void region_run_code(region_run *run, air_phase_fn fn, void *const *ptrs,
                     int64_t n, void *const *acc, int64_t rows);
void region_run_init(region_run *run, const cpu_region *r,
                     const air_task *task);
/* Sets the current row: index over the first `axes` axes. */
void region_run_seek(region_run *run, int axes, int64_t row);
void region_run_next(region_run *run, int axes);
/* Elements [begin, begin + n) of the current row. OUTER: acc[s] belongs to
 * element `begin`; other walks: to the first of a chunk. */
void region_run_span(region_run *run, int phase, int64_t begin, int64_t n);
/* Elements of a row that are staged at once, of a set of buffers. */
int16_t region_staged_span(const cpu_region *r, uint32_t staged);
/* As many calls of region_run_span, from the current row to those behind it on
 * the last axis but one; the phase has `rows`. */
void region_run_rows(region_run *run, int phase, int64_t begin, int64_t n,
                     int64_t rows);
/* MAP: `rows` rows from the current one, columns [begin, begin + n), at most a
 * block of both. */
void region_run_block(region_run *run, int64_t begin, int64_t n, int64_t rows);
/* Elements of `rows` x `cols` to another place; strides in elements. */
void region_move(const tile_set *set, char *to, int64_t to_row, int64_t to_col,
                 const char *from, int64_t from_row, int64_t from_col,
                 size_t bytes, int64_t rows, int64_t cols);
/* Of buffers that are in r->pairs and their mates: `rows` x `cols` pairs to (or
 * from) both parts; strides of rows in elements. */
void region_move_pairs(const tile_set *set, char *pairs, int64_t pairs_row,
                       char *parts[2], int64_t parts_row, size_t bytes,
                       int64_t rows, int64_t cols, bool out);
void region_plan_pairs(cpu_region *r);
/* One value is loaded and stored as it is. */
bool region_is_copy(const air_region *rg);
void region_copy(region_run *run);
/* INNER: blocks of short rows. */
void region_across(region_run *run);
/* From an element of the buffer to the next, as tiles and code find them. */
int64_t region_inner_stride(const cpu_region *r, int b);
/* MAP: blocks of short rows, each as one row. choose: also where the region
 * does not ask for it. */
void region_plan_spread(cpu_region *r, bool choose);
void region_spread(region_run *run);
/* Do the elements of the axes from `first` on lie behind each other? */
static inline bool
region_is_run(const cpu_region *r, int b, int first)
{
    int64_t run = 1;
    for (int a = r->rank - 1; a >= first; run *= r->dims[a--])
        if (r->dims[a] > 1 && r->strides[b][a] != run)
            return false;
    return true;
}
/* INNER: the phases of rows [begin, end). */
void region_rows(region_run *run, int64_t begin, int64_t end);
/* INNER with SUMS: rows, then columns. */
void region_columns(region_run *run);
static inline void
region_acc_init(const cpu_region *r, int scalar, void *acc, int64_t n)
{
    (*r->set->fills)[r->lane[scalar]](acc, &r->start[scalar], n);
}

#endif
