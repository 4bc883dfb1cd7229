/* pass.h: the pipeline. A pass turns a graph into an equal, better graph; the
 * rows of passes.def are run in order by pass_run_all.
 *
 * Most passes walk the nodes in execution order and *forward* values: "every
 * later use of `from` is a use of `to`". A use always comes after its
 * definition, so one walk applies all forwards (pass_walk). Nodes that lost
 * their uses stay until pass_sweep.
 */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "air_driver.h"
#include "ir/ir.h"

typedef enum {
    PASS_ALWAYS,   /* the lowering needs it: no limit switches it off */
    PASS_EXACT_OK, /* keeps each op's result as eager computes it */
    PASS_FAST      /* may round differently: max-autotune only */
} pass_level;

/* Where removing a copy would show to the caller (pass_facts_make). */
typedef struct {
    bool *escapes; /* by value: a result of the graph, or viewed by one */
    bool *mutated; /* by value: memory that an EFFECT writes */
    bool *shown;   /* by value: as_strided reads how its memory lies */
    /* Values known: later ones, which none of these was forwarded to, neither
     * escape nor change. */
    size_t count;
} pass_facts;

typedef struct {
    ir_graph *g;
    const air_compile_options *options;
    const air_target *target; /* NULL: a device that promises nothing */
    const air_alloc *alloc;
    base_arena *scratch; /* reset after each pass */
    pass_level level;    /* of the running row */
    size_t rewrites;     /* by all rows so far: what rewrite_limit counts */
    size_t matches;      /* the same, with those that it did not allow */
    pass_facts *facts;   /* where the pass made them */
    uint32_t *uses;      /* by value, before the pass: where it counted them */
    air_ref *forward;    /* forward[value]; the same value: none */
    size_t nforward, forward_cap;
} pass_context;

typedef air_status (*pass_fn)(pass_context *ctx);

typedef struct {
    int index; /* 0: the graph as it came; n: after row n */
    const char *name;
    double seconds;
    uint32_t before, after; /* nodes */
    size_t matches;         /* rewrites that this row found */
    size_t made;            /* that it was allowed */
    size_t rewrites;        /* that count for rewrite_limit */
} pass_record;
/* Told after each row (and once before the first). May be NULL. */
typedef void (*pass_dump_fn)(void *user, const pass_record *record,
                             const ir_graph *g);

/* Runs the rows that options ask for (NULL: all of max-autotune's), for a
 * device (NULL: one that promises nothing). verify: ir_verify after each row.
 * With options->dump_dir, writes NN-name.txt there. On failure the graph is
 * valid, but partly rewritten. */
air_status pass_run_all(ir_graph *g, const air_alloc *alloc,
                        const air_compile_options *options,
                        const air_target *target, bool verify,
                        pass_dump_fn dump, void *user);
/* Rows of passes.def: no more records than these and one are told. */
size_t pass_row_count(void);
/* One row by name, as pass_run_all would run it (tests, the command line);
 * ARGUMENT when there is no such row. */
air_status pass_run_one(ir_graph *g, const air_alloc *alloc,
                        const air_compile_options *options,
                        const air_target *target, const char *name);
/* options->dump_dir/NN-name.txt (dump.c). */
air_status pass_dump_graph(const char *dir, const pass_record *record,
                           const ir_graph *g);

#define PASS(name, level, fn, help) air_status fn(pass_context *ctx);
#include "pass/passes.def"
#undef PASS

/* ---- for the passes (rewrite.c) ------------------------------------------ */

/* Asked before each rewrite: false once rewrite_limit is used up. */
bool pass_allow(pass_context *ctx);
static inline bool
pass_exact(const pass_context *ctx)
{
    return ctx->options->exact;
}

/* Is this one of what the program is made without? */
static inline bool
pass_without(const pass_context *ctx, unsigned what)
{
    return (ctx->options->without & what) != 0;
}

/* Visits every node in order, its operands forwarded. A visit may insert nodes
 * before the one it visits: those are visited too. */
typedef air_status (*pass_visit)(pass_context *ctx, uint32_t node, void *arg);
air_status pass_walk(pass_context *ctx, pass_visit visit, void *arg);
/* Within pass_walk: later uses of `from` become uses of `to`. */
air_status pass_forward(pass_context *ctx, air_ref from, air_ref to);

/* Removes nodes without uses: all but EFFECT, HOST and RANDOM ones. */
air_status pass_sweep(pass_context *ctx);
/* out[value]: how often it is an operand or a result. In scratch. */
air_status pass_count_uses(pass_context *ctx, uint32_t **out);
/* Position of each node in execution order, by node id. In scratch. */
air_status pass_positions(pass_context *ctx, uint32_t **out);

/* The producer of a value, NULL for graph inputs and AIR_NO_REF. */
ir_node *pass_producer(const ir_graph *g, air_ref r);
/* The same where it is node `op` ("permute"), else NULL. */
ir_node *pass_made_by(const ir_graph *g, air_ref r, const char *op);
/* The same, if it is read once, and nobody writes there or sees how it lies.
 * known: values that there were when uses and facts were found. */
ir_node *pass_made_once(const pass_context *ctx, size_t known, air_ref r,
                        const char *op);
/* The value whose memory r is, through VIEW nodes and in-place results. */
air_ref pass_root(const ir_graph *g, air_ref r);
bool pass_same_dims(const ir_graph *g, air_ref a, air_ref b);
/* The value of an INT attribute that is a constant. */
bool pass_int(const ir_graph *g, const air_attr *attr, int64_t *out);
/* The value of a number: FLOAT, BOOL or constant INT. */
bool pass_number(const ir_graph *g, const air_attr *attr, double *out);
/* Does the device walk every other element of such a value as well as all?
 * (x86_pairs.c) */
bool pass_walks_pairs(const pass_context *ctx, air_ref r);
/* Size of the axis, counted from the end, from 1; 0: none, or not known. */
int64_t pass_size_at(const ir_graph *g, air_ref r, int axis);
/* Is it a pointwise node with one result? NULL: no. */
bool pass_is_pointwise(const ir_node *n);
/* All sizes multiplied; false unless all are constants. */
bool pass_count_of(const ir_graph *g, air_ref r, int64_t *out);

/* Facts about the graph as it is now into ctx->facts, in scratch. */
air_status pass_facts_make(pass_context *ctx);
bool pass_is_mutated(const pass_context *ctx, air_ref r);
bool pass_is_shown(const pass_context *ctx, air_ref r);
/* May `copy`, a fresh copy of `src`, be replaced by `src` itself? */
bool pass_may_share(pass_context *ctx, air_ref copy, air_ref src);

/* ---- rules: op name -> function ------------------------------------------ */

typedef air_status (*pass_rule_fn)(pass_context *ctx, uint32_t node);
typedef struct {
    const char *op;
    pass_rule_fn fn;
} pass_rule;
/* out[op]: the rule's function or NULL; AIR_OP_COUNT of them, in scratch.
 * A unit test checks that every name is a row of the op table. */
air_status pass_rules_index(pass_context *ctx, size_t n, const pass_rule *rules,
                            pass_rule_fn **out);

#endif
