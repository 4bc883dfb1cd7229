/* ir.h: the graph: SSA values with dtype and symbolic sizes, nodes of the op
 * table, and what passes need to change them.
 *
 * Memory: everything of a graph lives in its arena and dies with it. Ids are
 * dense and never reused: a removed node keeps its slot with op AIR_OP_NONE.
 * Node order is execution order (node ids are not: see ir_first, ir_next).
 */
#ifndef IR_IR_H
#define IR_IR_H

#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* ---- op table (ops.def, parsed once: ir_ops_init) ------------------------ */

typedef enum {
    AIR_OP_NONE,
    AIR_OP_HOST,
#define POINTWISE(id, ...) AIR_OP_##id,
#define CREATE(id, ...)    AIR_OP_##id,
#define REDUCE(id, ...)    AIR_OP_##id,
#define VIEW(id, ...)      AIR_OP_##id,
#define COMPOSITE(id, ...) AIR_OP_##id,
#define CALL(id, ...)      AIR_OP_##id,
#define EFFECT(id, ...)    AIR_OP_##id,
#include "ir/ops.def"
#include "ir/ops_undef.h"
    AIR_OP_COUNT
} ir_op;

typedef enum {
    IR_CLASS_NONE,
    IR_CLASS_HOST,
    IR_CLASS_POINTWISE, /* fused; body recorded into a region */
    IR_CLASS_CREATE,    /* as POINTWISE, no tensor operand */
    IR_CLASS_REDUCE,    /* fused */
    IR_CLASS_VIEW,      /* other strides on the operand's memory */
    IR_CLASS_COMPOSITE, /* rewritten by pass `expand`, never lowered */
    IR_CLASS_CALL,      /* one kernel of the driver, found by name */
    IR_CLASS_EFFECT     /* kept in order, never removed */
} ir_class;

/* The kinds of a schema's parameters. */
typedef enum {
    IR_PARAM_TENSOR,  /* Tensor, Tensor?; takes numbers too in pointwise ops */
    IR_PARAM_TENSORS, /* Tensor[], Tensor?[] */
    IR_PARAM_INT,     /* int, SymInt */
    IR_PARAM_INTS,    /* int[], SymInt[]; int[1]: a lone int is a list */
    IR_PARAM_FLOAT,
    IR_PARAM_FLOATS,
    IR_PARAM_BOOL,
    IR_PARAM_BOOLS,
    IR_PARAM_SCALAR, /* Scalar: INT, FLOAT or BOOL attr */
    IR_PARAM_DTYPE,
    IR_PARAM_STR,
    IR_PARAM_IGNORED /* Layout, Device, MemoryFormat, Generator, pin_memory */
} ir_param_kind;

typedef struct {
    const char *name;
    uint8_t kind;  /* ir_param_kind */
    bool optional; /* `?` */
    bool mutated;  /* (a!) */
    bool has_default;
    uint8_t size; /* int[2]: 2; a lone int is repeated; 0: any */
    air_attr def; /* the default; NONE for None */
} ir_param;

/* How dtypes of operands give compute and result dtypes. */
typedef enum {
    IR_DT_PROMOTE, /* ATen's result_type of the tensor operands and numbers */
    IR_DT_FLOAT,   /* PROMOTE, integers and bool become f32 */
    IR_DT_COMPARE, /* compute in PROMOTE, result bool */
    IR_DT_TRUTH,   /* operands become truth values, result bool */
    IR_DT_SELECT,  /* first operand bool, PROMOTE of the others */
    IR_DT_SAME,    /* first tensor operand's */
    IR_DT_ATTR,  /* parameter `dtype`, where None: as the rule of the op says */
    IR_DT_WIDEN, /* integers and bool -> i64 (sum, prod, cumsum), else SAME;
                    parameter `dtype` wins */
    IR_DT_MEAN,  /* SAME; parameter `dtype` wins; integers are an error */
    IR_DT_BOOL,  /* result bool whatever comes in, compute in SAME */
    IR_DT_I64,   /* result i64 */
    IR_DT_SHAPE, /* the shape function sets it */
    IR_DT_ROUNDED /* FLOAT where `rounding_mode` is None, else PROMOTE */
} ir_dtype_rule;

enum {                    /* flags of a row */
       IR_COMM = 1,       /* first two operands may be exchanged */
       IR_RANDOM = 2,     /* depends on a generator: not pure */
       IR_DATA_SHAPE = 4, /* result sizes depend on data: HOST */
       IR_INPLACE = 8, /* may write into the memory of operand 0 (scatter...) */
       IR_STRIDED = 16, /* CALL: kernel takes operands of any strides */
       IR_CONTRACT = 32,
       IR_INDEX = 64,
       IR_SCAN = 128,    /* kind of CALL, for docs */
       IR_NUMERIC = 256, /* rounding may differ between implementations */
       IR_AGREE = 512,   /* does not promote: see agree.c */
       IR_PUTS = 1024,   /* CALL: kernel writes a result of any strides */
       IR_FILLED = 2048, /* a result of nothing is refused when it is run */
       IR_IMAGE = 4096,  /* CALL: where operand 0 has its channels last, kernel
                            takes it so, and leaves the result so */
       IR_ORDER = 8192,  /* CALL: images are [N, H, W, C], like those of HOST
                            nodes that ask for it: what is around computes in
                            that order */
       IR_JUMPS = 16384  /* POINTWISE: operands are rounded to the common dtype
                            first, as the result is not continuous */
};

struct ir_graph;
struct ir_node;
struct ir_infer;
/* Sets dtypes and dims of every result from the operands; SHAPE or ARGUMENT
 * errors name the parameter. */
typedef air_status (*ir_shape_fn)(struct ir_infer *in);

typedef struct {
    const char *name;   /* "add.Tensor", "relu": ATen's, without "aten::";
                           other namespaces whole ("air::restride") */
    const char *schema; /* as in the table */
    const char *ge;     /* Ascend IR type, "" where none */
    uint8_t cls;        /* ir_class */
    uint8_t dtype;      /* ir_dtype_rule */
    uint16_t flags;
    uint8_t nparams, nrets;
    bool list_result; /* `-> Tensor[]`: see ir_result_count; nrets is 0 */
    uint8_t reduce;   /* air_reduce, REDUCE rows */
    ir_shape_fn shape;
    const char *kernel;     /* CALL rows: name for the driver */
    int view;               /* ir_view, VIEW rows */
    const ir_param *params; /* nparams */
} ir_op_info;

/* Parses the schemas once per process; thread-safe. */
air_status ir_ops_init(void);
const ir_op_info *ir_op_get(ir_op op);
/* AIR_OP_NONE where there is no row. */
ir_op ir_op_find(const char *name, size_t len);
/* Index of the parameter, -1 where there is none. */
int ir_param_find(const ir_op_info *info, const char *name);

typedef enum { /* rows of VIEW: ir_op_info.view */
               IR_VIEW_view,
               IR_VIEW_permute,
               IR_VIEW_t,
               IR_VIEW_transpose,
               IR_VIEW_unsqueeze,
               IR_VIEW_squeeze,
               IR_VIEW_expand,
               IR_VIEW_slice,
               IR_VIEW_select,
               IR_VIEW_as_strided,
               IR_VIEW_alias,
               IR_VIEW_unfold,
               IR_VIEW_diagonal,
               IR_VIEW_retype,
               IR_VIEW_pairs,
               IR_VIEW_paired
} ir_view;

/* ---- graph --------------------------------------------------------------- */

typedef struct {
    uint32_t id;
} ir_id; /* a node */
#define IR_NO_NODE UINT32_MAX

typedef struct {
    const char *name; /* without %: never NULL */
    uint8_t dtype;    /* air_dtype */
    uint8_t rank;
    uint8_t flags;  /* AIR_INPUT_*, inputs only */
    int32_t input;  /* index of the graph input, -1: a node's result */
    uint32_t node;  /* producer, IR_NO_NODE for inputs */
    uint8_t result; /* which result of it */
    const air_dim *dims;
} ir_value;

/* What the program says of where a node runs; no result depends on it. */
typedef struct {
    uint16_t threads; /* that may run it, at most; 0: any number */
    uint16_t lane;    /* nodes of one lane run in order; 0: the main one */
    uint16_t notes;   /* 1 + index of ir_graph.notes; 0: none */
    bool joined;      /* stays in one parallel region with its neighbours */
    bool untimed;     /* no time limit */
} ir_scope;

typedef struct {
    size_t count;
    const air_note *list;
} ir_notes;

typedef struct ir_node {
    uint16_t op; /* ir_op; AIR_OP_NONE: removed */
    uint8_t nouts;
    bool inplace; /* writes into the memory of operand 0 */
    bool once;    /* made of frozen inputs alone: computed at the first run */
    ir_scope scope;
    uint16_t nattrs;     /* = nparams of the row; HOST: one VALUES attr */
    int32_t group;       /* fused region it belongs to, -1: none */
    uint32_t prev, next; /* execution order */
    air_attr *attrs;
    air_ref *outs;
    const char *loc; /* "file.py:41", may be NULL */
    /* HOST only */
    uint8_t host; /* air_host_kind */
    const char *host_op, *reason;
    uint32_t host_id;
} ir_node;

typedef enum {
    IR_DIM_CONST,
    IR_DIM_SYMBOL,
    IR_DIM_ADD,
    IR_DIM_SUB,
    IR_DIM_MUL,
    IR_DIM_DIV,
    IR_DIM_MOD,
    IR_DIM_MIN,
    IR_DIM_MAX
} ir_dim_op;
typedef struct {
    uint8_t op;
    uint32_t a, b;    /* operands; SYMBOL: a = index of the symbol */
    int64_t value;    /* CONST */
    int64_t min, max; /* range */
    uint32_t size;    /* nodes of the expression written out */
    bool atom;        /* not taken apart when simplifying */
} ir_dim_node;
typedef struct {
    const char *name;
    int64_t min, max, hint;
    air_dim dim;
} ir_symbol;

/* Sizes that inference took for equal: ir_dim_eval_all checks them. */
typedef struct {
    air_dim a, b;
    const char *op; /* the op that needs it, for the message */
} ir_equal;

typedef struct {
    bool is_int;
    bool loose;    /* ints: no size depends on it (exec/numbers.c) */
    air_ref value; /* tensors */
    air_dim dim;   /* ints: a symbol */
    const char *name;
} ir_input;

typedef struct {
    air_ref value;
    const air_dim *strides; /* rank of them, NULL: dense row-major */
} ir_result;

/* What the application calls a value. A tag goes along when a pass replaces
 * its value, and means nothing once the value's node is removed. */
typedef struct {
    const char *text, *origin; /* see air_graph_add_tag */
    air_ref value;
} ir_tag;

typedef struct air_graph {
    base_arena arena;
    const air_alloc *alloc;
    const char *name;
    BASE_VEC(ir_value) values;
    BASE_VEC(ir_node) nodes;
    BASE_VEC(ir_dim_node) dims;
    BASE_VEC(ir_symbol) symbols;
    BASE_VEC(ir_equal) equals;
    BASE_VEC(ir_input) inputs;
    BASE_VEC(ir_result) results;
    BASE_VEC(ir_tag) tags;
    BASE_VEC(ir_notes) notes; /* of scopes: each list once */
    base_map names;           /* value name -> id */
    base_map symbol_map;
    base_map dim_map;     /* interning */
    uint32_t first, last; /* node order */
    int32_t ngroups;
    uint32_t next_name; /* of results: %1, %2 ... */
    ir_scope scope[2];  /* of nodes to come: contractions, others */
} ir_graph;

air_status ir_graph_init(const air_alloc *alloc, const char *name,
                         ir_graph **out);
void ir_graph_free(ir_graph *g);
air_status ir_graph_clone(const ir_graph *g, ir_graph **out);

static inline ir_value *
ir_val(const ir_graph *g, air_ref r)
{
    return &g->values.data[r.id];
}
static inline ir_node *
ir_node_at(const ir_graph *g, uint32_t id)
{
    return &g->nodes.data[id];
}
static inline const ir_op_info *
ir_info(const ir_node *n)
{
    return ir_op_get((ir_op)n->op);
}
#define IR_FOR_EACH(g, id)                           \
    for (uint32_t id = (g)->first; id != IR_NO_NODE; \
         id = (g)->nodes.data[id].next)

/* How many results the node would have: nrets of the row, or for Tensor[] (
 * split, unbind) what the sizes say. */
air_status ir_result_count(ir_graph *g, ir_op op, size_t nattrs,
                           const air_attr *attrs, size_t *out);
/* Appends (before == IR_NO_NODE) or inserts a node and infers its results.
 * nattrs may be fewer than the schema has: the rest take their defaults. The
 * node is not added when inference fails. */
air_status ir_add_node(ir_graph *g, ir_op op, size_t nattrs,
                       const air_attr *attrs, uint32_t before, const char *loc,
                       air_ref *outs /* ir_result_count of them */);
air_status ir_add_host(ir_graph *g, air_host_kind kind, const char *op,
                       uint32_t id, const char *reason, size_t nin,
                       const air_ref *in, const char *loc, size_t nouts,
                       const air_type *types, air_ref *outs);
/* Integers that the HOST node added last is told. */
air_status ir_host_reads(ir_graph *g, size_t count, const air_dim *dims);
/* "host", "start", "wait": as text form and reports call the kinds. */
const char *ir_host_word(air_host_kind kind);
static inline bool
ir_is_host(const ir_node *n, air_host_kind kind)
{
    return n->op == AIR_OP_HOST && n->host == kind;
}
static inline bool
ir_is_type(const ir_value *v, air_dtype dtype, int rank, const air_dim *dims)
{
    return v->dtype == dtype && v->rank == rank &&
           memcmp(v->dims, dims, v->rank * sizeof *v->dims) == 0;
}
air_status ir_add_input(ir_graph *g, const char *name, air_dtype dtype,
                        int rank, const air_dim *dims, unsigned flags,
                        air_ref *out);
air_status ir_add_int_input(ir_graph *g, const char *name, air_dim symbol);
air_status ir_set_results(ir_graph *g, size_t n, const air_ref *values,
                          const air_dim *const *strides);
air_status ir_add_tag(ir_graph *g, air_ref value, const char *text,
                      const char *origin);
/* The `notes` of a scope with these. */
air_status ir_find_notes(ir_graph *g, size_t count, const air_note *notes,
                         uint16_t *out);
/* Every use of `from` (operands, results and tags) becomes `to`. */
void ir_replace_uses(ir_graph *g, air_ref from, air_ref to);
/* Its results must be unused. */
void ir_remove_node(ir_graph *g, uint32_t id);
/* Calls fn for each operand reference, which it may change. */
void ir_each_operand(ir_graph *g, ir_node *n,
                     void (*fn)(void *arg, air_ref *ref), void *arg);

/* ---- sizes --------------------------------------------------------------- */

air_status ir_dim_const(ir_graph *g, int64_t v, air_dim *out);
air_status ir_dim_symbol(ir_graph *g, const char *name, int64_t min,
                         int64_t max, int64_t hint, air_dim *out);
air_status ir_dim_make(ir_graph *g, ir_dim_op op, air_dim a, air_dim b,
                       air_dim *out); /* simplifies, interns */
bool ir_dim_is_const(const ir_graph *g, air_dim d, int64_t *out);
static inline bool
ir_dim_eq(air_dim a, air_dim b)
{
    return a.id == b.id;
}
/* symbols[i] = value of symbol i. ARGUMENT: division by zero, overflow. */
air_status ir_dim_eval(const ir_graph *g, air_dim d, const int64_t *symbols,
                       int64_t *out);
/* All expressions at once: out has g->dims.count entries. SHAPE: sizes that
 * inference took for equal are not. */
air_status ir_dim_eval_all(const ir_graph *g, const int64_t *symbols,
                           int64_t *out);
air_status ir_dim_product(ir_graph *g, int rank, const air_dim *dims,
                          air_dim *out);
/* Takes a and b for equal: SHAPE when they cannot be; where it depends on
 * symbols ir_dim_eval_all checks it. *out is the simpler one. */
air_status ir_dim_unify(ir_graph *g, const char *op, air_dim a, air_dim b,
                        air_dim *out);
void ir_dim_print(const ir_graph *g, air_dim d, base_text *out);

/* ---- inference (infer.c, shape.c) ---------------------------------------- */

typedef struct ir_infer {
    ir_graph *g;
    const ir_op_info *info;
    const air_attr *attrs; /* nparams, defaults filled in */
    size_t nouts;
    air_type *outs; /* nouts; dtype preset by the dtype rule */
} ir_infer;
/* attrs: nparams, normalised as ir_add_node leaves them. */
air_status ir_infer_types(ir_graph *g, const ir_op_info *info,
                          const air_attr *attrs, size_t nouts, air_type *outs);
/* DTYPE where tensors that must be of one dtype are not (agree.c). */
air_status ir_check_agreement(const ir_graph *g, const ir_op_info *info,
                              const air_attr *attrs);
/* The dtype a pointwise op computes in (before rounding to the result's). */
air_dtype ir_compute_dtype(const ir_graph *g, const ir_node *n);
/* Does ATen convert this argument to the dtype the operator computes in? */
bool ir_promotes(const ir_op_info *info, int param);
/* v as a bf16 or f16 holds it, by way of f32 as ATen converts, ties to even;
 * infinite where it is too large. */
double ir_half(air_dtype half, double v);
/* ATen promotion of two dtypes of equal category rank. */
air_dtype ir_promote(air_dtype a, air_dtype b);
air_status ir_broadcast(ir_graph *g, int ra, const air_dim *a, int rb,
                        const air_dim *b, int *out_rank, air_dim *out);
/* Normalised `dim` argument of a tensor of this rank: 0 <= *out < rank. */
air_status ir_axis(const ir_graph *g, const air_attr *attr, int rank,
                   const char *name, int *out);
/* Of a permutation: axis i of the result is axis order[i] of the operand. */
air_status ir_permute_order(const ir_graph *g, const ir_node *n, int *order);
static inline bool
ir_is_float(air_dtype d)
{
    return d >= AIR_F32 && d <= AIR_F16;
}

/* ---- dependencies (dependencies.c) --------------------------------------- */

/* Node `from` runs before node `to`. */
typedef struct {
    uint32_t from, to;
} ir_edge;
typedef BASE_VEC(ir_edge) ir_edges;
/* All of them that do not follow from others: values before their readers, a
 * write after what touched the memory before, HOST nodes, effects and random
 * numbers one after another. The caller frees *out (g->alloc). */
air_status ir_dependencies(const ir_graph *g, base_arena *scratch,
                           ir_edges *out);

/* ---- views (view.c): strides once sizes are known ------------------------ */

typedef struct {
    int rank;
    int64_t dims[AIR_MAX_RANK], strides[AIR_MAX_RANK];
    int64_t offset; /* elements */
} ir_layout;
/* The layout of a VIEW node's result on its operand's. *out_copy: no strides
 * can express it (a reshape of gaps): the operand must be copied first. dims:
 * evaluated sizes of all expressions (ir_dim_eval_all). */
air_status ir_view_layout(const ir_graph *g, const ir_node *n,
                          const int64_t *dims, const ir_layout *in,
                          ir_layout *out, bool *out_copy);

/* ---- recording bodies (record.c) ----------------------------------------- */

/* A growing list of region nodes with common subexpressions shared. */
typedef struct {
    air_rg_node *nodes; /* room for AIR_RG_MAX_NODES */
    int count;
    air_lane lane; /* of constants made by K() */
    bool full;     /* ran out of room: the result is unusable */
    int begin;     /* nodes before it are of another phase: not shared */
} ir_record;
int ir_record_put(ir_record *r, air_rg_node node);
int ir_record_const(ir_record *r, air_lane lane, double value);
int ir_record_cvt(ir_record *r, int a, air_lane lane);
/* Records the body of a POINTWISE or CREATE op. operands[i]: region node of
 * parameter i, already in `lane` (numbers as constants), -1 where it is absent
 * or no number (strings); an operand may also stay in lane B where the body
 * wants a truth value (masks). Gives the node of the result (lane B for
 * compares), -1 when full. */
int ir_record_body(ir_record *r, ir_op op, air_lane lane, const air_attr *attrs,
                   const int *operands);
/* The same with a load, of buffer i, for operand i: what one element of the
 * node's result takes. */
void ir_record_node(ir_record *r, const ir_node *n, air_lane lane);
/* Rewrites COMP nodes into PRIMs (for the emitter). dst must have room. */
void ir_record_expand(const air_rg_node *src, int count, ir_record *dst,
                      int16_t *map);
air_lane ir_lane_of(air_dtype dtype);

/* ---- text, verifier ------------------------------------------------------ */

air_status ir_print(const ir_graph *g, base_text *out);
air_status ir_parse(const air_alloc *alloc, const char *text, size_t len,
                    ir_graph **out);
/* Every invariant above; SYNTAX with the node's text on the first broken one.*/
air_status ir_verify(const ir_graph *g);

#endif
