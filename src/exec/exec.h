/* exec.h: programs: a graph after its passes, specialised for sizes it meets,
 * run on a driver.
 *
 *   compile      once a graph: passes, order of units (program.c, order.c)
 *   specialise   once a class of inputs (sizes and strides): places of values,
 *                steps, memory plan, kernels (specialise.c, step.c, plan.c)
 *   run          pointers into slots, lists and HOST nodes in turn (run.c);
 *                allocates nothing but blocks of the pool (pool.c)
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include <stdatomic.h>

#include "air_driver.h"
#include "base/memory.h"
#include "base/thread.h"
#include "lower/lower.h"
#include "pass/pass.h"

/* ---- pool: blocks of device memory that come back ---- */

typedef struct exec_pool exec_pool;
typedef struct exec_block {
    void (*put)(struct exec_block *block); /* takes it back: refs is 0 */
    void *pool;                            /* of `put` */
    struct exec_block *next;
    void *data;
    size_t size;   /* usable bytes */
    uint64_t tick; /* when it was given back */
    atomic_int refs;
    int bin;
    bool once; /* is not kept for another */
} exec_block;

/* apart: as air_target has it. */
air_status exec_pool_create(const air_alloc *alloc, const air_driver *driver,
                            air_device *device, bool apart, exec_pool **out);
/* Frees what is kept; the pool itself, and the device, go with the last block
 * that is still out. */
void exec_pool_release(exec_pool *pool);
/* A block that was none before and goes back to the device behind. */
air_status exec_pool_new(exec_pool *pool, size_t size, exec_block **out);
/* A block of at least size bytes with one reference. loose: any larger kept
 * block will do (arenas), otherwise at most a quarter is wasted. */
air_status exec_pool_get(exec_pool *pool, size_t size, bool loose,
                         exec_block **out);
void exec_block_retain(exec_block *block);
bool exec_block_is_held(const exec_block *block); /* by others, too */
void exec_block_release(exec_block *block); /* any thread; NULL: nothing */
/* Of a pool's block with one reference: its memory goes back to the device. */
void exec_block_discard(exec_block *block);
void exec_pool_stats(exec_pool *pool, air_pool_stats *out);
void exec_pool_trim(exec_pool *pool);
/* Memory beside the bins, for graph pools; keeps the device open. */
air_status exec_pool_map(exec_pool *pool, size_t size, void **out);
void exec_pool_unmap(exec_pool *pool, void *data, size_t size);
/* Of how many blocks that come back a kept one may be none. */
uint64_t exec_pool_keeps(const exec_pool *pool);
const air_alloc *exec_pool_alloc(const exec_pool *pool);
/* The graph pools on top of this pool. */
typedef struct {
    pthread_mutex_t mutex;
    air_graph_pool *first;
} exec_graph_list;
exec_graph_list *exec_pool_graphs(exec_pool *pool);

/* ---- context ---- */

struct air_context {
    air_alloc alloc;
    const air_driver *driver;
    air_device *device;
    air_target target;
    air_limits limits; /* threads 0: not measured yet */
    exec_pool *pool;
    bool no_emitter, verify;
    void (*log)(void *user, air_log_level level, const char *line);
    void *log_user;
};

/* ---- memory ---- */

/* Offsets of whatever shares a block are multiples of it: a line of a cache,
 * the longest vector. */
#define EXEC_ALIGN 64

static inline size_t
exec_round_up(size_t bytes)
{
    return (bytes + EXEC_ALIGN - 1) / EXEC_ALIGN * EXEC_ALIGN;
}

/* ---- order of units ---- */

/* What runs as one: a fused group, or one node. */
typedef struct {
    const uint32_t *nodes;
    size_t count;
    bool fused;
} exec_unit;

typedef struct {
    uint32_t from, to; /* units by their place; from < to */
} exec_edge;

typedef struct {
    exec_unit *units;
    size_t count;
    size_t once;      /* the first ones, which run at the first run only */
    exec_edge *edges; /* sorted by `to`; lanes only */
    size_t nedges;
    bool lanes;       /* some node is not in the main one */
    bool *stored;     /* by value: must be in memory */
    uint32_t *cat;    /* by value: CAT node whose result it is written into, or
                         IR_NO_NODE */
    uint32_t *turned; /* by value: PERMUTE node as whose result it is to lie
                         dense, or IR_NO_NODE */
    uint32_t *root;   /* by value: the value whose memory it may lie in */
    bool *written;    /* by value: a node writes into its memory */
} exec_order;

/* Units before they are sorted, numbered by their first nodes. */
typedef struct {
    const exec_unit *data;
    size_t count;
    const uint32_t *of;   /* by node: its unit */
    const uint32_t *root; /* exec_order.root */
} exec_units;

/* options: `without` and `order` are looked at. early: small units that wait
 * for nothing come first, side by side, those that nothing waits for last. */
air_status exec_order_make(const ir_graph *g,
                           const air_compile_options *options, bool early,
                           base_arena *arena, base_arena *scratch,
                           exec_order *out);

/* What waits for what: pairs of units, one and one that runs after it. */
typedef struct {
    uint32_t *edges; /* [2 * i], [2 * i + 1]: the earlier and the later one */
    size_t count;
} exec_edges;
#define EXEC_CYCLE_FMT "the fusion groups of graph %s wait for each other"
/* Edges of each unit as chains, lowest edge first. end 0: by the unit that runs
 * first; 1: by the one that waits. */
#define EXEC_NO_EDGE UINT32_MAX
typedef struct {
    const exec_edges *edges;
    uint32_t *start; /* by unit: its first edge, or EXEC_NO_EDGE */
    uint32_t *next;  /* by edge */
} exec_chains;
air_status exec_chains_make(base_arena *scratch, size_t nunits,
                            const exec_edges *edges, int end, exec_chains *out);
/* written.c: out[0..units->count) in the order of the graph. early: as
 * exec_order_make. STATE, naming the graph, where units wait for each other. */
air_status exec_sort_written(const ir_graph *g, const exec_units *units,
                             const exec_edges *edges, bool early,
                             base_arena *scratch, uint32_t *out);
/* sort.c: out[0..nunits) in order BFS, DFS or RDFS; STATE, naming the graph,
 * where units wait for each other. */
air_status exec_sort(air_order order, const char *name, size_t nunits,
                     const exec_edges *edges, base_arena *scratch,
                     uint32_t *out);

/* ---- specialisations ---- */

typedef enum {
    EXEC_ARENA,  /* planned offset in the arena of a run */
    EXEC_INPUT,  /* the caller's tensor */
    EXEC_BLOCK,  /* a pool block that becomes (part of) a result */
    EXEC_KEPT,   /* planned offset in what the first run computed and is kept */
    EXEC_NUMBER, /* an integer of the call, in the frame of a run */
    EXEC_HOST,   /* what a HOST node left; room in the arena otherwise */
    EXEC_LEFT    /* the same, (part of) a result; a block otherwise */
} exec_where;

typedef struct {
    exec_where where;
    int32_t slot;   /* final slot, after planning */
    int32_t input;  /* EXEC_INPUT */
    int64_t offset; /* bytes in the arena or what is kept, after planning */
    int64_t bytes;
    int32_t first, last; /* steps that use it */
    bool parts;          /* of a cat: its writers write different elements */
    bool begun;          /* EXEC_HOST: on its way until a WAIT */
} exec_storage;

typedef enum { EXEC_STEP_REGION, EXEC_STEP_CALL, EXEC_STEP_HOST } exec_kind;

typedef struct {
    exec_kind kind;
    const ir_node *node; /* the (first) node, NULL for copies */
    const exec_unit *unit;
    const char *label, *reason; /* reason: copies and HOST nodes say why */
    lower_region region;
    air_step step; /* REGION, CALL */
    /* join.c. REGION: 1 + the buffer that the step before gives, which may take
     * it along, and its storage; it did; steps that both may run beside. CALL:
     * the kernel of both. */
    int join;
    int32_t from;
    bool taken;
    uint32_t join_beside;
    const air_kernel *joined;
    const char *joined_label;
    bool code;           /* REGION: machine code was made */
    const char *no_code; /* why not */
    /* HOST: storages and layouts */
    size_t nin, nout;
    int32_t *in_storage, *out_storage;
    air_value *in, *out;
    int64_t *in_offset;
} exec_step;

/* A run of steps for the driver, or one HOST step. */
typedef struct {
    size_t begin, end;
    air_list *list; /* NULL: HOST */
} exec_segment;

typedef struct {
    int32_t storage;
    int64_t offset; /* bytes */
    air_dtype dtype;
    ir_layout layout;
} exec_result;

typedef struct exec_spec {
    struct exec_spec *next, *chain; /* older; of the same bucket */
    const int64_t *key;
    uint64_t hash, used; /* used: tick of the last call that asked for it */
    atomic_int refs;     /* of the table, runs and captures */
    atomic_bool lent;    /* a caller reads layouts of results in it, or what
                          * the application recorded reads its memory */
    atomic_bool ran;
    base_arena arena;
    int64_t *dims, *symbols;
    BASE_VEC(exec_storage) storages;
    BASE_VEC(exec_step) steps;
    air_step *list_steps; /* REGION and CALL steps, in order, joined */
    exec_segment *segments;
    size_t nsegments;
    exec_result *results;
    const lower_place *places; /* by value; slot: a storage */
    const bool *placed;
    int32_t first_number;     /* storage of the program's first one */
    struct exec_watch *watch; /* once a run was watched: watch.c */
    int32_t nslots, arena_slot, kept_slot;
    size_t arena_bytes, code_bytes;
    /* Steps and segments of the first run, which come first; what they leave
     * for those behind them; of which contents (air_host.frozen). Under the
     * program's mutex. */
    size_t once, once_segments, kept_bytes;
    exec_block *kept;
    uint64_t kept_stamp;
    BASE_VEC(exec_block *) recorded; /* what recorded runs read of it */
    uint32_t nhosts, ncopies, nregions, ncalls;
    double seconds; /* that it took to make */
} exec_spec;

/* specs.c: those of a program, found by a hash of the sizes. Beyond a limit
 * the one that was used the longest time ago goes. */
typedef struct exec_specs exec_specs;
air_status exec_specs_create(const air_alloc *alloc, uint64_t limit,
                             exec_specs **out);
/* Nobody has a specialisation any more. */
void exec_specs_destroy(air_program *p);
uint64_t exec_specs_hash(const air_program *p, const int64_t *key);
/* With a reference; NULL: there is none. */
exec_spec *exec_specs_find(const air_program *p, const int64_t *key,
                           uint64_t hash);
exec_spec *exec_specs_newest(const air_program *p);
/* The table takes a reference of its own. */
air_status exec_specs_add(air_program *p, exec_spec *s);
void exec_specs_stats(const air_program *p, air_program_stats *out);
/* Any thread; NULL: nothing. The last one frees it. */
void exec_spec_release(const air_program *p, exec_spec *s);

/* Limits of a run: air_host. */
typedef struct {
    int32_t cube, vector;
} exec_cores;

struct air_program {
    air_context *ctx;
    ir_graph *g;
    air_compile_options options;
    base_arena arena;
    BASE_VEC(pass_record) passes; /* that ran */
    exec_order order;
    size_t key_len;
    double compile_s;
    uint32_t *sizes; /* nsizes places in the key that tell sizes apart */
    size_t nsizes;
    uint32_t *numbers; /* size expressions that no size depends on */
    size_t nnumbers;
    pthread_mutex_t mutex; /* who makes specs, or what is kept by one */
    exec_specs *specs;
    _Atomic uint64_t runs;
};

air_status exec_program_create(air_context *ctx, const ir_graph *g,
                               const air_compile_options *options,
                               air_program **out);
void exec_program_destroy(air_program *p);
/* Any thread, while others run the program. */
void exec_program_stats(const air_program *p, air_program_stats *out);
/* Counts are checked, outs are cleared. */
air_status exec_program_run(air_program *p, const air_host *host,
                            const air_value *inputs, air_value *outs);
/* Checks the counts and clears outs, which may be NULL. */
air_status exec_check_counts(const air_program *p, size_t nin, size_t nout,
                             air_value *outs);
/* How messages name input i: "%x (input 1 of graph f)". */
#define EXEC_INPUT_FMT "%s%s (input %zu of graph %s)"
#define EXEC_INPUT_ARGS(g, i)                                        \
    (g)->inputs.data[i].is_int ? "" : "%", (g)->inputs.data[i].name, \
        (size_t)(i), (g)->name
/* Writes what input i adds to a key, checking dtype and rank; *key moves on. */
air_status exec_key_input(const ir_graph *g, size_t i, const air_value *a,
                          int64_t **key);

/* Memory that a HOST node left: of which storage, and the last step that reads
 * it. */
typedef struct {
    void *of;
    int32_t storage, last;
} exec_token;

/* One run. Whoever makes it fills slots: arena, inputs, blocks, and room in
 * the arena for what HOST nodes leave. */
typedef struct {
    air_program *p;
    exec_spec *s;
    const air_host *host;
    bool recorded; /* air_host */
    char *arena;
    void **slots;
    exec_block **results; /* by slot: its block; NULL, EXEC_LEFT: what lies
                             there stays, the result is a copy */
    exec_block *area;     /* not NULL: results lie in it, where they do */
    exec_block *kept;     /* as this run reads it; NULL: nothing is kept */
    exec_token *tokens;
    size_t ntokens;
    air_value *values; /* of one HOST call */
    int64_t *symbols;  /* of this run */
    lower_number *numbers;
    /* by segment; NULL: lists are run. The slots that each graph knows. */
    air_device_graph **graphs;
    void **launched;
    const bool *joined; /* in the graph of a segment before it; or NULL */
    /* By slot: a recorded HOST node reads it where it was; or NULL. */
    const bool *stays;
} exec_run;
/* Slots, results, tokens, values and numbers in memory of exec_frame_bytes. */
size_t exec_frame_bytes(const air_program *p, const exec_spec *s);
void exec_frame_place(exec_run *r, void *memory);
air_status exec_run_segments(exec_run *r);
air_status exec_run_host(exec_run *r, const exec_step *step);
/* Has the host record the step (air_host.record); slots of its results and
 * their tokens, of which r has room, are those of the recording. UNSUPPORTED:
 * not recorded, `why` says why. */
air_status exec_record_host(exec_run *r, const exec_step *step, void *stream,
                            void **memory, char *why);
/* Gives back what HOST nodes left and no step from `next` on reads. */
void exec_let_go(exec_run *r, int32_t next);
/* exec_pool_get for the run; what the application records has its own. */
air_status exec_run_block(const exec_run *r, size_t bytes, bool loose,
                          exec_block **out);
/* results.c: copies of what stays; then outs, which may not fail. */
air_status exec_run_own_results(exec_run *r);
void exec_run_hand_out(exec_run *r, air_value *outs);
/* Memory that a HOST node of the run left, as a block with one reference: its
 * token is done with the last one, and where this fails. */
air_status exec_left_make(const exec_run *r, void *token, void *data,
                          exec_block **out);
void *exec_left_token(const exec_block *block); /* NULL: another block */
/* recorded.c: r->s, with a reference, for a run that the application records;
 * STATE, see air_host. */
air_status exec_find_recorded(exec_run *r, exec_cores cores,
                              const air_value *inputs);
/* Gives tokens and blocks back. */
void exec_run_end(exec_run *r);
/* SHAPE: input i says that the symbol is out of its range. */
air_status exec_check_symbol(const ir_graph *g, size_t i, const ir_symbol *s,
                             int64_t value);
/* Checks the sizes of an input that is a tensor; *out_count: its elements. */
air_status exec_check_sizes(const ir_graph *g, size_t i, const air_value *v,
                            int64_t *out_count);
/* The specialisation for these inputs, whose sizes it checks when they are
 * new; makes it when there is none. The caller gets a reference. */
air_status exec_spec_get(air_program *p, exec_cores cores,
                         const air_value *inputs, exec_spec **out);
/* STATE where there is none. */
air_status exec_spec_known(air_program *p, exec_cores cores,
                           const air_value *inputs, exec_spec **out);
void exec_spec_free(const air_program *p, exec_spec *s);
/* How long the key of a specialisation is; which of its numbers vary. */
air_status exec_key_prepare(air_program *p);

/* copy.c: elements of a tensor into other memory, which they do not overlap:
 * by the device where it copies, one call for each run of dense axes. */
typedef struct {
    const air_context *ctx;
    int rank;
    const int64_t *dims, *to, *from; /* to, from: strides in elements */
    int64_t size;                    /* bytes of an element */
} exec_copy;
air_status exec_copy_strided(const exec_copy *c, void *dst, const void *src);

/* ---- making one (specialise.c and friends) ---- */

typedef struct {
    air_program *p;
    const ir_graph *g;
    exec_spec *s;
    lower_place *places; /* by value; slot = storage index until planned */
    bool *placed;
    base_arena *scratch;
    base_arena lowering; /* of one region */
    const exec_unit *unit;
    exec_cores cores;
    /* by step: bits of the steps before it, `words` of them; NULL: all are */
    uint64_t *before;
    size_t words;
    int32_t joining;  /* the step that join.c is at */
    int32_t *numbers; /* by size expression, lower_env.numbers; or NULL */
} exec_maker;

/* numbers.c: integers of a call that are only computed with. Those of the
 * graph, after its passes; storages of one specialisation; what they are in a
 * run, SHAPE: an integer is out of its range. */
air_status exec_numbers_find(air_program *p);
air_status exec_numbers_place(exec_maker *m);
air_status exec_numbers_fill(exec_run *r, const air_value *inputs);

/* place.c: where values lie. */
void exec_dense_strides(int rank, const int64_t *dims, int64_t *strides);
/* strides NULL: dense row-major. Axes of size 1 may have any. */
bool exec_is_dense(int rank, const int64_t *dims, const int64_t *strides);
/* Is the operand one that a kernel of images takes with channels last, and has
 * it them there? */
bool exec_is_image(const exec_maker *m, const ir_node *n, int operand);
int64_t exec_numel(int rank, const int64_t *dims);
air_status exec_add_storage(exec_maker *m, exec_where where, int64_t bytes,
                            int32_t *out);
/* Dense row-major place of a type in a new storage. */
air_status exec_new_place(exec_maker *m, const ir_value *v, lower_place *out);
/* The same with strides, rank of them, whose gaps are part of the storage. */
air_status exec_strided_place(exec_maker *m, const ir_value *v,
                              const air_dim *strides, lower_place *out);
void exec_set_place(exec_maker *m, air_ref ref, const lower_place *place);
/* The place of a result of n, unless it has one: an operand's that n writes in
 * place, a part of a cat, or its own. */
air_status exec_place_result(exec_maker *m, const ir_node *n, air_ref ref);
/* What operand v of a cat is a view of, with an axis of size 1 along which it
 * is put beside the others; else v. */
air_ref exec_cat_source(const ir_graph *g, const ir_node *cat, air_ref v);
/* Where operand number `which` of a cat lies in its result. */
air_status exec_cat_place(exec_maker *m, uint32_t cat, size_t which,
                          lower_place *out);
/* step.c: the steps of one unit. */
air_status exec_make_unit(exec_maker *m, const exec_unit *unit);
/* Adds the unit's node and its line to a failure's message. */
air_status exec_blame(const ir_graph *g, const exec_unit *unit,
                      air_status status);
/* A step that copies src to dst and converts; reason: why, in `explain`. */
air_status exec_add_copy(exec_maker *m, const lower_place *src,
                         air_dtype src_dtype, const lower_place *dst,
                         air_dtype dst_dtype, const char *reason);
/* call.c: a CALL node's arguments. */
air_status exec_make_call(exec_maker *m, const ir_node *n, exec_step *step);
/* depend.c: which step waits for which. */
air_status exec_depend(exec_maker *m);
/* Calls fn for each place that a step uses: its slot (the index of a storage
 * until planned), its offset, and whether it is written. */
typedef void (*exec_place_fn)(void *arg, int32_t *slot, int64_t *offset,
                              bool written);
void exec_each_place(const exec_step *step, exec_place_fn fn, void *arg);
/* Does the region write the buffer? */
bool exec_stores(const air_region *r, int buf);
/* plan.c: offsets of the arena; slots and offsets written into the steps. */
air_status exec_plan(exec_maker *m);
/* beside.c: air_step.beside of all steps, by plan.c; workspaces of a program
 * without lanes from offset 0 on, and the bytes that they take. */
air_status exec_find_beside(exec_maker *m);
size_t exec_place_beside(exec_spec *s);
/* join.c: exec_step.join of all steps, before the plan; the kernel of steps i
 * and i + 1, if there is one; step i in a list. */
void exec_find_joins(exec_maker *m);
air_status exec_join(exec_maker *m, size_t i, const air_code *code);
air_step exec_list_step(const exec_spec *s, size_t i);
/* Has it an offset in the arena of a run? */
static inline bool
exec_in_arena(const exec_storage *t)
{
    return t->where == EXEC_ARENA || t->where == EXEC_HOST;
}
/* Where a storage begins behind the pointer in its slot. */
static inline int64_t
exec_slot_offset(const exec_storage *t)
{
    return t->where == EXEC_ARENA || t->where == EXEC_KEPT ? t->offset : 0;
}
/* kernels.c: code, kernels, workspaces and lists of a planned spec. */
air_status exec_make_kernels(exec_maker *m);

/* watch.c: exec_run_segments, step by step, as air_host.see asks. */
air_status exec_watch_segments(exec_run *r);
/* Frees what it keeps. */
void exec_watch_free(const air_program *p, exec_spec *s);
/* The storages of the latest specialisation and what lies in them. */
void exec_print_memory(const air_program *p, const exec_spec *s,
                       base_text *out);

/* explain.c */
air_status exec_print(const air_program *p, air_text_kind kind, base_text *out);

#endif
