/* air_kernel.h: the ABI between the engine and code that computes.
 *
 * A *kernel* is a C function that computes one step of a program on all
 * threads of a parallel region: every thread calls it with the same call and
 * its own task, and the kernel divides the work by task->id / task->count.
 * The engine puts a barrier after each step; a kernel that needs one inside
 * uses task->barrier. Kernels never fail, allocate or keep state: whatever can
 * be wrong was refused when the program was made.
 *
 * A *region* is the loop IR: a nest over one iteration space that fuses
 * pointwise operations and reductions. It is data, so that one region can be
 * interpreted tile by tile (driver/cpu/region/tile_*.c), turned into machine
 * code (codegen/x86_*.c) or printed as source for another device.
 *
 * This header includes nothing of the engine: code generated for a program
 * and out-of-tree drivers need only this file and air_driver.h.
 */
#ifndef AIR_KERNEL_H
#define AIR_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AIR_MAX_RANK 8 /* tensors of more dims run as HOST nodes */

typedef enum {
    AIR_DTYPE_NONE = 0,
#define DTYPE(id, ...) AIR_##id,
#include "air_dtypes.def"
#undef DTYPE
    AIR_DTYPE_COUNT
} air_dtype;

/* ---- tensors and arguments of a kernel call ------------------------------ */

/* Where a tensor lies: slots[slot] + offset. Slots are the pointer table of
 * one run: inputs, parameters, outputs, the arena. Strides are in elements. */
typedef struct {
    int32_t slot;
    uint8_t dtype; /* air_dtype; AIR_DTYPE_NONE: an absent optional tensor */
    uint8_t rank;
    int64_t offset; /* bytes */
    int64_t dims[AIR_MAX_RANK];
    int64_t strides[AIR_MAX_RANK];
} air_tensor;

typedef enum {
    AIR_ARG_NONE = 0,
    AIR_ARG_TENSOR,  /* t[0] */
    AIR_ARG_TENSORS, /* t[0 .. count-1]; an absent one has no dtype */
    AIR_ARG_INT,     /* i; bool, dtype (air_dtype) and enum values too */
    AIR_ARG_FLOAT,   /* f */
    AIR_ARG_INTS,    /* ints[0 .. count-1] */
    AIR_ARG_FLOATS,  /* floats[0 .. count-1] */
    AIR_ARG_STR      /* str, NUL-terminated */
} air_arg_kind;

typedef struct {
    uint8_t kind; /* air_arg_kind */
    int32_t count;
    union {
        const air_tensor *t;
        int64_t i;
        double f;
        const int64_t *ints;
        const double *floats;
        const char *str;
    };
} air_arg;

/* One call: the arguments in the order of the op's schema, then the results. */
typedef struct {
    int32_t nargs, nouts;
    const air_arg *args;
    const air_tensor *outs;
    const void *extra; /* what the kernel's plan function made, or the region */
    bool by_rule; /* who runs it is the same at every run and machine of a kind:
                     nothing that was measured counts */
    bool tf32;    /* a product of f32 may take its operands as TF32 */
} air_call;

/* What a kernel found wrong in the data, first come: an index out of range, or
 * a value that `wrong` describes. An element with a wrong index is skipped
 * (reads give 0), and the run fails when it is over. */
typedef struct {
    int64_t index, size; /* allowed: -size <= index < size */
    const char *wrong;   /* "a probability outside [0, 1]"; NULL: the index */
    double value;        /* of `wrong` */
    bool raised;
} air_fault;

/* ---- random numbers ------------------------------------------------------ */

/* The state of a Mersenne Twister (mt19937) that draws as ATen's on the CPU:
 * words, and the second of a pair of normals that has not been given out. */
typedef struct {
    uint32_t words[624];
    int32_t next; /* of words to give out; 624: make new ones first */
    bool has_normal;
    double normal;
} air_mt19937;

/* The application's generator. One seed gives other numbers on CPUs where the
 * application's own code rounds in other places: `fused` says that it fuses
 * products and sums, `short_log` that normals of float32 come from polynomials
 * instead of the C library's logf, cosf, sinf, `closed` that a uniform number
 * may round to its upper bound, which PyTorch before 2.13 leaves. */
typedef struct {
    void *user;
    /* The state, for the run that the calling thread is in; it is kept until
     * the run is over or a HOST node is called. NULL: the results of the
     * operator are undefined, and the application knows. */
    air_mt19937 *(*take)(void *user);
    bool fused, short_log, closed;
} air_generator;

/* The generator of a device whose application has none: Philox 4x32, 10
 * rounds. Word i is a function of the seed and i. */
typedef struct {
    uint64_t seed;
    uint64_t drawn; /* words given out; atomic */
} air_philox;

/* One thread's view of a run. */
typedef struct air_task {
    int32_t id, count;  /* this thread, threads in the region */
    void *const *slots; /* pointer table of this run */
    void *workspace;    /* shared by the threads, as planned */
    void *scratch;      /* this thread's own, AIR_SCRATCH bytes */
    void (*barrier)(const struct air_task *); /* all threads must arrive */
    void *pool;                               /* of the barrier */
    air_fault *fault;               /* this thread's own; may be NULL */
    const air_generator *generator; /* NULL: philox */
    air_philox *philox;             /* may be NULL: seed 0, from its start */
    int64_t *taken; /* a number of the step's threads, 0 when it begins, for
                       what they take as they get to it; NULL: none */
} air_task;

#define AIR_SCRATCH ((size_t)256 * 1024)

typedef void (*air_kernel_fn)(const air_call *call, const air_task *task);
/* Bytes of shared workspace that a call needs with `threads` threads. */
typedef size_t (*air_workspace_fn)(const air_call *call, int threads);

static inline void *
air_data(const air_tensor *t, const air_task *task)
{
    return (char *)task->slots[t->slot] + t->offset;
}

static inline void
air_raise(const air_task *task, int64_t index, int64_t size)
{
    if (task->fault != NULL && !task->fault->raised)
        *task->fault = (air_fault){index, size, NULL, 0, true};
}

/* wrong: text that stays. */
static inline void
air_raise_value(const air_task *task, const char *wrong, double value)
{
    if (task->fault != NULL && !task->fault->raised)
        *task->fault = (air_fault){0, 0, wrong, value, true};
}

/* Of integers; the quotient and the rest are 0. */
static inline void
air_raise_division(const air_task *task)
{
    air_raise_value(task, "ZeroDivisionError: an integer divisor", 0);
}

/* The half-open range of n items that this thread does. */
static inline void
air_split(int64_t n, const air_task *task, int64_t *begin, int64_t *end)
{
    *begin = n * task->id / task->count;
    *end = n * (task->id + 1) / task->count;
}

/* ---- regions: the loop IR ------------------------------------------------ */

/* Lane types of region values. bf16, f16 compute in F32 and round where a node
 * says so; all integers compute in I64 and wrap when stored; B is a truth
 * value (stored to bool as 0 or 1). */
typedef enum { AIR_LANE_F32, AIR_LANE_F64, AIR_LANE_I64, AIR_LANE_B } air_lane;

/* Operations of region nodes: structure first, then air_prims.def. */
typedef enum {
    AIR_RG_CONST,  /* k (F32, F64) or i (I64, B) */
    AIR_RG_LOAD,   /* element of bufs[buf] at the current index, as lane type */
    AIR_RG_STORE,  /* a -> bufs[buf] */
    AIR_RG_REDUCE, /* a folded along the reduced axis into scalar `buf` */
    AIR_RG_SCALAR, /* result of reduction or scalar phase `buf` for this row */
    AIR_RG_SET,    /* a -> scalar `buf` (in scalar phases only) */
    AIR_RG_INDEX,  /* I64: index along iteration axis `buf` */
#define PRIM(id, ...) AIR_RG_##id,
#define COMP(id, ...) AIR_RG_##id,
#define FUNC(id, ...) AIR_RG_##id,
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
    AIR_RG_OP_COUNT
} air_rg_op;

typedef enum {
    AIR_REDUCE_SUM,
    AIR_REDUCE_PROD,
    AIR_REDUCE_MAX, /* NaN wins, as in ATen */
    AIR_REDUCE_MIN,
    AIR_REDUCE_ANY, /* B */
    AIR_REDUCE_ALL,
    AIR_REDUCE_MOMENT /* F32: squares of what it is off the mean, added up;
                         of air_target.moments only */
} air_reduce;

typedef struct {
    uint16_t op;     /* air_rg_op */
    uint8_t lane;    /* air_lane of the result (of `a` for STORE, REDUCE) */
    uint8_t reduce;  /* air_reduce, for REDUCE */
    int16_t buf;     /* buffer, scalar or axis index */
    int16_t a, b, c; /* operand nodes of the same region, -1: none */
    union {
        double k;
        int64_t i;
    };
} air_rg_node;

/* Where a buffer lies. ROW: a row of the thread's scratch, kept between phases.
 * SUMS: one row for the whole region, an element per index of the last axis; it
 * starts at zero, row phases add to its elements (LOAD, ADD, STORE), and the
 * COLUMN phase reads the sums over all rows. F32 and F64 only. */
typedef enum { AIR_RG_MEMORY, AIR_RG_ROW, AIR_RG_SUMS } air_rg_place;

/* A buffer: strides are in elements, one per iteration axis, 0 where it is
 * broadcast. Any inner stride is allowed. */
typedef struct {
    int32_t slot;
    uint8_t dtype;
    uint8_t scratch; /* air_rg_place; MEMORY: at slots[slot] */
    uint8_t number;  /* one element that a run gives, of 8 readable bytes of the
                        host: a device apart from it takes them by value */
    int64_t offset;  /* bytes, from slots[slot] */
    int64_t strides[AIR_MAX_RANK];
} air_rg_buf;

typedef enum {
    AIR_PHASE_ROW,    /* for every element of the innermost axis */
    AIR_PHASE_SCALAR, /* once per row: nodes over scalars only */
    AIR_PHASE_COLUMN  /* the last one of INNER with SUMS: for every element of
                         the innermost axis, once, after all rows */
} air_phase_kind;

typedef struct {
    uint8_t kind;       /* air_phase_kind */
    int16_t begin, end; /* nodes [begin, end) */
} air_rg_phase;

/* How the iteration space is walked.
 *  MAP    no reduction: axes 0..rank-1, the last one is the vector axis.
 *  INNER  reductions fold the last axis; phases run in order for each row
 *         (index over axes 0..rank-2); SCALAR, SET values live for one row.
 *         A STORE in a SCALAR phase writes one element per row.
 *  OUTER  reductions fold axis rank-2 and keep the last one: for each index of
 *         axes 0..rank-3, column block and row r, phase 0 runs and its REDUCE
 *         nodes accumulate per column; then phase 1 runs once per column and
 *         reads them with SCALAR (whose values are per column here).
 * Summation order is fixed (see docs/kernel-abi.md), so results do not depend
 * on ISA, tile size or thread count. */
typedef enum { AIR_WALK_MAP, AIR_WALK_INNER, AIR_WALK_OUTER } air_walk;

#define AIR_RG_FEW_ROWS    4 /* OUTER: rows that are folded by themselves */
#define AIR_RG_MAX_NODES   512
#define AIR_RG_MAX_BUFS    24
#define AIR_RG_MAX_SCALARS 12
#define AIR_RG_MAX_PHASES  12

typedef struct {
    uint8_t walk;   /* air_walk */
    uint8_t rank;   /* axes of the iteration space, 1 .. AIR_MAX_RANK */
    uint8_t stream; /* 1: working set larger than the cache (NT stores pay;
                       who runs the code fences them) */
    uint8_t across; /* 1: INNER, code runs across rows: short or only summed */
    uint8_t spread; /* 1: MAP, rows are short: code runs along many as one row,
                       buffers that lie otherwise are written out so */
    int16_t nnodes, nbufs, nscalars, nphases;
    int64_t dims[AIR_MAX_RANK];
    const air_rg_node *nodes;
    const air_rg_buf *bufs;
    const air_rg_phase *phases;
} air_region;

/* The axis whose elements a phase runs over: the last one, or for MAP the last
 * one that has more than one index. */
static inline int
air_region_axis(const air_region *rg)
{
    int axis = rg->rank - 1;
    if (rg->walk == AIR_WALK_MAP)
        while (axis > 0 && rg->dims[axis] == 1)
            axis--;
    return axis;
}

/* across: the first of the axes that the rows of a block lie along, the last
 * ones of them that make so many rows. */
#define AIR_RG_ACROSS_ROWS 128
static inline int
air_region_flat(const air_region *rg)
{
    int axis = rg->rank - 2;
    int64_t rows = rg->dims[axis];
    while (axis > 0 && rows < AIR_RG_ACROSS_ROWS)
        rows *= rg->dims[--axis];
    return axis;
}

/* A row scalar: the member is that of the lane. */
typedef union {
    float f;
    double d;
    int64_t i;
    uint8_t b;
} air_scalar;

/* Machine code of one phase: n consecutive elements of a row (INNER, MAP), or
 * of a column block at one row (OUTER). ptrs[b] points at the first element of
 * buffer b; scalars[s] holds the row scalars (SET writes them; OUTER: unused).
 * acc[s] of a reduction is read and written: 64 partial results, element i of
 * the call belonging to number i % 64 (OUTER: a row of n). In the last phase
 * of OUTER acc[s] is the row that SCALAR nodes read. Scalars are of
 * F32 lanes; inner strides are 0 or 1, or 2 of air_code.pairs (others are
 * staged).
 * Regions that run `across` rows: the elements of a call belong to different
 * rows, and element i finds its row's scalar s in acc[s][i]: REDUCE folds into
 * it, SET writes it, SCALAR reads it.
 * Regions that are `spread`: the elements of a call are those of many rows, of
 * buffers whose strides are all 0 one element.
 * Phases in air_code.rows do so for `rows` >= 1 rows, one after the other for
 * each element; steps[b]: bytes from a row of buffer b to the next. Others
 * ignore both.
 * Not 0: the divisor of an IDIV or IMOD was 0. */
typedef int (*air_phase_fn)(void *const *ptrs, int64_t n, air_scalar *scalars,
                            void *const *acc, int64_t rows,
                            const int64_t *steps);

#endif
