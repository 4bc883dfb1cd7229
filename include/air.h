/* air.h: the graph engine for applications.
 *
 *     #include <air.h>
 *
 *     const char *text = "graph f(%x: f32[s0, 4], %b: f32[4]) {\n"
 *                        "  %1: f32[s0, 4] = add.Tensor(%x, %b)\n"
 *                        "  %2: f32[s0, 4] = relu(%1)\n"
 *                        "  return %2\n"
 *                        "}\n";
 *     air_context *ctx;   air_graph *graph;   air_program *program;
 *     float x[8] = {...}, b[4] = {...};
 *     air_value in[] = {air_value_tensor(x, AIR_F32, 2, (int64_t[]){2, 4}),
 *                       air_value_tensor(b, AIR_F32, 1, (int64_t[]){4})};
 *     air_value out[1];
 *
 *     air_context_create(NULL, &ctx);
 *     air_graph_parse(ctx, text, strlen(text), &graph);
 *     air_program_create(ctx, graph, NULL, &program);
 *     if (air_program_run(program, NULL, 2, in, 1, out) != AIR_OK)
 *         puts(air_last_error()->message);
 *     ... out[0].data, out[0].dims ...
 *     air_value_release(&out[0]);
 *     air_program_destroy(program);
 *     air_graph_destroy(graph);
 *     air_context_destroy(ctx);
 *
 * Conventions. A function that can fail returns air_status and leaves the
 * detail in air_last_error() of the calling thread. create and make give the
 * caller ownership, get borrows, find may give NULL. Every out-pointer is NULL
 * after a failure, and a failed call changes nothing. Sizes are elements and
 * strides are elements unless a name says bytes. The library never exits,
 * aborts, prints or reads the environment. Different objects may be used by
 * different threads at once; one program may be run by several threads at
 * once; building a graph is for one thread at a time.
 */
#ifndef AIR_H
#define AIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "air_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AIR_VERSION "0.1.0"
#define AIR_API     __attribute__((visibility("default")))
#define AIR_CHECK   __attribute__((warn_unused_result))

/* ---- status -------------------------------------------------------------- */

typedef enum {
#define STATUS(id, text, doc) AIR_STATUS_##id,
#include "air_status.def"
#undef STATUS
    AIR_STATUS_COUNT
} air_status;
#define AIR_OK                AIR_STATUS_OK
#define AIR_ERROR_ARGUMENT    AIR_STATUS_ARGUMENT
#define AIR_ERROR_SHAPE       AIR_STATUS_SHAPE
#define AIR_ERROR_DTYPE       AIR_STATUS_DTYPE
#define AIR_ERROR_DEVICE      AIR_STATUS_DEVICE
#define AIR_ERROR_SYNTAX      AIR_STATUS_SYNTAX
#define AIR_ERROR_UNSUPPORTED AIR_STATUS_UNSUPPORTED
#define AIR_ERROR_MEMORY      AIR_STATUS_MEMORY
#define AIR_ERROR_DRIVER      AIR_STATUS_DRIVER
#define AIR_ERROR_HOST        AIR_STATUS_HOST
#define AIR_ERROR_STATE       AIR_STATUS_STATE
#define AIR_ERROR_INDEX       AIR_STATUS_INDEX

typedef struct {
    air_status code;
    char message[512]; /* what is wrong and what to do, one line */
    char trace[256];   /* "function:line < function:line ..." */
} air_error;

AIR_API const air_error *air_last_error(void); /* of this thread */
AIR_API const char *air_status_text(air_status code);
AIR_API const char *air_dtype_text(air_dtype dtype); /* "f32" */
AIR_API air_dtype air_dtype_find(const char *text);  /* NONE: unknown */
AIR_API size_t air_dtype_bytes(air_dtype dtype);

/* ---- context ------------------------------------------------------------- */

/* All memory of the engine but device memory. resize(user, ptr, old, new):
 * ptr NULL allocates, new 0 frees, otherwise resizes; NULL: out of memory.
 * Blocks are aligned to 16 bytes. Any thread, several at once. */
typedef struct {
    void *(*resize)(void *user, void *ptr, size_t old_size, size_t new_size);
    void *user;
} air_alloc;

/* Runs fn(arg, id, count) for id 0 .. count-1 concurrently, all of them at the
 * same time, the caller being id 0; count <= threads is what it could get.
 * Several threads may ask at once. NULL: the engine's own pool. */
typedef void (*air_parallel)(void *user, int threads,
                             void (*fn)(void *arg, int id, int count),
                             void *arg);

/* C = alpha * op(A) op(B) + beta * C, row-major, of a library in the process
 * (torch's BLAS). dtype is F32, F64 or BF16; returns 0, or 1 for "not this
 * one", and then the engine computes it itself. Called outside parallel
 * regions; it may use all threads. */
typedef struct {
    void *user;
    int (*gemm)(void *user, air_dtype dtype, bool trans_a, bool trans_b,
                int64_t m, int64_t n, int64_t k, double alpha, const void *a,
                int64_t lda, const void *b, int64_t ldb, double beta, void *c,
                int64_t ldc);
    const char *name; /* with its version: measurements hold for it */
} air_library;

/* Which runs of steps with few rows are one kernel that stays on a GPU. */
typedef enum {
    AIR_PERSISTENT_PAYS, /* where that is faster, of nodes whose air_scope is
                            joined and of programs that are not `exact` */
    AIR_PERSISTENT_NONE,
    AIR_PERSISTENT_ALL
} air_persistent;

/* A GPU for driver "cuda", and what a framework in the process lends of it. */
typedef struct {
    int index;             /* of the GPU, from 0 */
    const char *libraries; /* folders to look for NVIDIA's libraries in, with
                              ":" between, before the loader does; NULL: none */
    const char *cache;     /* folder of compiled kernels; NULL: none */
    void *user;
    /* The calling thread's current CUstream; what it gives to the device and
     * reads from it is in its order. A stream that was given once is waited
     * for later: it lives as long as the context. NULL: the default stream. */
    void *(*stream)(void *user);
    /* Memory of the GPU; alloc gives NULL where there is none left. Any
     * thread. NULL: the device's own. */
    void *(*alloc)(void *user, size_t size);
    void (*free)(void *user, void *ptr, size_t size);
    /* Kernels begin when the one before is over, even where they might prepare
     * themselves earlier. */
    bool no_overlap;
    /* Blocks of a persistent kernel that wait longer than persistent_ms (0: for
     * ever) give up, and a later run says so; with persistent_checks every step
     * of one waits for the one before it. */
    air_persistent persistent;
    bool persistent_checks;
    int64_t persistent_ms;
    /* Random operators draw from the application's generator of this GPU, a
     * Philox4x32-10 as torch's: *seed, and *offset, how many numbers each
     * thread of a launch has had so far, a multiple of 4; from now on it is
     * `count` more. Called for each run that draws, before it is given to the
     * stream. false: the run fails. NULL: the device has no random operators.
     */
    bool (*draw)(void *user, uint64_t count, uint64_t *seed, uint64_t *offset);
} air_gpu;

typedef enum {
    AIR_LOG_ERROR,
    AIR_LOG_WARNING,
    AIR_LOG_INFO,
    AIR_LOG_DEBUG
} air_log_level;

typedef struct {
    const char *label;   /* of the step */
    int lane;            /* of its nodes; 0: the main one */
    int thread, threads; /* the first that runs it, and how many do */
    bool begins;         /* or ends */
} air_step_event;

typedef struct {
    const char *driver; /* "cpu" (default), "cuda", "ref", "null" */
    /* NULL: the fastest here; "amx" "avx512_bf16" "avx512" "avx2" "scalar" */
    const char *isa;
    int threads;            /* 0: one per CPU; fixed when parallel is given */
    const air_alloc *alloc; /* NULL: the C library's */
    air_parallel parallel;  /* NULL: own pool */
    void *parallel_user;
    const air_library *library; /* NULL: own kernels only */
    /* A file in which the device keeps which products are faster by `library`,
     * measured when a program first has one of their class; it is made where
     * there is none, and belongs to nobody else. NULL: by a rule, nothing is
     * measured. */
    const char *choices;
    /* Random operators draw from it. NULL: the device's own Philox generator,
     * started from `seed`. It must outlive the context. */
    const air_generator *generator;
    uint64_t seed;
    const air_gpu *gpu; /* driver "cuda"; NULL: GPU 0, nothing lent */
    void (*log)(void *user, air_log_level level, const char *line);
    void *log_user;
    /* A step that takes longer is reported to `log` as an error when the run
     * is over; 0: none. Nothing is stopped. */
    double step_seconds;
    /* A step begins or ends. Called by the first of its threads; several may
     * call at once. NULL: nothing. */
    void (*on_step)(void *user, const air_step_event *event);
    void *on_step_user;
    bool no_emitter; /* regions by tile loops only */
    bool verify;     /* run the verifier after each pass */
} air_options;

typedef struct air_context air_context;
AIR_API AIR_CHECK air_status air_context_create(const air_options *options,
                                                air_context **out);
/* Objects made from the context must be gone; blocks may still be out. */
AIR_API void air_context_destroy(air_context *ctx);
/* Of runs that begin later; threads < 1 change nothing. */
AIR_API void air_context_set_threads(air_context *ctx, int threads);

/* ---- graphs -------------------------------------------------------------- */

typedef struct air_graph air_graph;
/* A size expression of one graph: a constant, a symbol, or + - * // % min max
 * of others. Equal expressions have equal ids. */
typedef struct {
    uint32_t id;
} air_dim;
/* An SSA value of one graph. */
typedef struct {
    uint32_t id;
} air_ref;
#define AIR_NO_REF ((air_ref){UINT32_MAX})

AIR_API AIR_CHECK air_status air_graph_create(air_context *ctx,
                                              const char *name,
                                              air_graph **out);
AIR_API void air_graph_destroy(air_graph *graph);

/* SYNTAX errors name line and column. The text form: docs/text-form.md. */
AIR_API AIR_CHECK air_status air_graph_parse(air_context *ctx, const char *text,
                                             size_t len, air_graph **out);
/* *out_text is NUL-terminated; free it with air_text_free. */
AIR_API AIR_CHECK air_status air_graph_print(const air_graph *graph,
                                             char **out_text);
AIR_API void air_text_free(const air_graph *graph, char *text);

/* The graph in terms of the Ascend IR: TXT is protobuf text (GraphDef), PBTXT
 * what TensorBoard and Netron read, PY the calls that build it, ONNX the text
 * of an ONNX model whose operators are of the domain "ge". Ops without a
 * type there are named after ATen's; HOST nodes have `_host_op`. */
typedef enum { AIR_GE_TXT, AIR_GE_PBTXT, AIR_GE_PY, AIR_GE_ONNX } air_ge_form;
AIR_API AIR_CHECK air_status air_graph_print_ge(const air_graph *graph,
                                                air_ge_form form,
                                                char **out_text);

AIR_API AIR_CHECK air_status air_dim_const(air_graph *g, int64_t value,
                                           air_dim *out);
/* min <= symbol <= max; the hint is a likely value, 0: none. The same name
 * gives the same symbol. */
AIR_API AIR_CHECK air_status air_dim_symbol(air_graph *g, const char *name,
                                            int64_t min, int64_t max,
                                            int64_t hint, air_dim *out);
/* op: one of "+" "-" "*" "//" "%" "min" "max" (// and % as in Python). */
AIR_API AIR_CHECK air_status air_dim_make(air_graph *g, const char *op,
                                          air_dim a, air_dim b, air_dim *out);
/* Its value where every symbol has its hint. */
AIR_API AIR_CHECK air_status air_dim_hint(const air_graph *g, air_dim d,
                                          int64_t *out);

enum {
    AIR_INPUT_PARAM = 1, /* same tensor at every call, most likely */
    /* Contents do not change, or air_host.frozen says so: what is made of such
     * inputs alone is computed at the first run and kept. */
    AIR_INPUT_FROZEN = 2
};
/* A tensor input. Strides are read at run time. */
AIR_API AIR_CHECK air_status air_graph_add_input(air_graph *g, const char *name,
                                                 air_dtype dtype, int rank,
                                                 const air_dim *dims,
                                                 unsigned flags, air_ref *out);
/* An integer input: the value of `symbol`. */
AIR_API AIR_CHECK air_status air_graph_add_int_input(air_graph *g,
                                                     const char *name,
                                                     air_dim symbol);

/* One argument of a node, by position in the op's schema. A Tensor parameter
 * also takes INT (a size expression), FLOAT or BOOL: a Python number, which
 * promotes dtypes as in ATen. */
typedef enum {
    AIR_ATTR_NONE = 0, /* None, or the schema's default where it has one */
    AIR_ATTR_VALUE,
    AIR_ATTR_VALUES, /* AIR_NO_REF: None */
    AIR_ATTR_INT,
    AIR_ATTR_INTS,
    AIR_ATTR_FLOAT,
    AIR_ATTR_FLOATS,
    AIR_ATTR_BOOL,
    AIR_ATTR_BOOLS,
    AIR_ATTR_DTYPE,
    AIR_ATTR_STR
} air_attr_kind;
typedef struct {
    air_attr_kind kind;
    size_t count; /* of lists */
    union {
        air_ref value;
        const air_ref *values;
        air_dim dim;         /* INT */
        const air_dim *dims; /* INTS */
        double f;
        const double *floats;
        bool b;
        const bool *bools;
        air_dtype dtype;
        const char *str;
    };
} air_attr;

/* What a node gives; for ops the engine infers it, for HOST nodes it is told.*/
typedef struct {
    air_dtype dtype;
    int rank;
    air_dim dims[AIR_MAX_RANK];
} air_type;

/* op: a row of the op table ("add.Tensor"). location: "file.py:41", may be
 * NULL. out_refs takes one ref per result of the schema. */
AIR_API AIR_CHECK air_status air_graph_add_node(
    air_graph *g, const char *op, size_t nattrs, const air_attr *attrs,
    const char *location, size_t nouts, air_ref *out_refs);
/* What the application writes on a node: an attribute of it in the Ascend IR.
 * text: NULL for a truth value. */
typedef struct {
    const char *key, *text;
    bool truth;
} air_note;
/* Where nodes run; results do not depend on it. HOST nodes are the
 * application's: they come after all nodes before them, and before all after.
 */
typedef struct {
    int contractions, others; /* threads at most, of products, convolutions and
                                 attention, and of the rest; 0: any number */
    int lane;     /* nodes of one lane run in order, those of two may run at the
                     same time; 0: the main one */
    bool joined;  /* in one parallel region: nothing that leaves it is used */
    bool untimed; /* no limit of time (air_options.step_seconds) */
    size_t nnotes; /* seen in `air_graph_print_ge` only */
    const air_note *notes;
} air_scope;
/* Of the nodes added from here on, and of what passes make of them; NULL: all
 * zero. ARGUMENT: a number outside 0 .. 65535, or more lists of notes. */
AIR_API AIR_CHECK air_status air_graph_set_scope(air_graph *g,
                                                 const air_scope *scope);
/* What the application does in a HOST node. START begins something, such as a
 * collective, and returns: it has read its inputs, and WAIT nodes alone may
 * read its results. WAIT takes one value, returns when it is complete, and
 * gives it back: its result is that memory, the call has no outs. Everything
 * that does not need it runs before a WAIT; all other HOST nodes keep the order
 * they were added in. */
typedef enum { AIR_HOST_CALL, AIR_HOST_START, AIR_HOST_WAIT } air_host_kind;

/* A HOST node: the application computes it (air_host, id). reason says why, for
 * START and WAIT what. */
AIR_API AIR_CHECK air_status
air_graph_add_host(air_graph *g, air_host_kind kind, const char *op,
                   uint32_t id, const char *reason, size_t ninputs,
                   const air_ref *inputs, const char *location, size_t nouts,
                   const air_type *types, air_ref *out_refs);
/* Integers of a call that the HOST node added last is told, by itself and not
 * by its operands. A device that records HOST nodes (air_host.recorded) does so
 * again for others of these; other integers that no size depends on may
 * change. STATE: the last node is no HOST node. */
AIR_API AIR_CHECK air_status air_graph_host_reads(air_graph *g, size_t count,
                                                  const air_dim *dims);
/* What the application calls a value. The tag stays with it through all
 * passes; a value may have several. air_host.see and AIR_TEXT_MEMORY show it.
 * origin: attribute _fx_tensor_name of the first one's value in the Ascend IR,
 * by which values of two runs are compared; may be NULL. */
AIR_API AIR_CHECK air_status air_graph_add_tag(air_graph *g, air_ref value,
                                               const char *tag,
                                               const char *origin);
AIR_API AIR_CHECK air_status air_graph_get_type(const air_graph *g, air_ref v,
                                                air_type *out);
/* Results in order. strides: per result an array of size expressions, or NULL
 * for "dense row-major". */
AIR_API AIR_CHECK air_status
air_graph_set_results(air_graph *g, size_t count, const air_ref *results,
                      const air_dim *const *strides);

/* What a graph asks for: symbols and inputs one by one, false at the end. */
typedef struct {
    const char *name;
    int64_t min, max, hint;
} air_symbol;
typedef struct {
    const char *name;
    bool is_int; /* the value of type.dims[0], a symbol */
    unsigned flags;
    air_type type;
} air_input;
AIR_API bool air_graph_get_symbol(const air_graph *g, size_t i,
                                  air_symbol *out);
AIR_API bool air_graph_get_input(const air_graph *g, size_t i, air_input *out);
AIR_API size_t air_graph_count_results(const air_graph *g);
/* Another likely value of a symbol the graph has; see air_dim_hint. */
AIR_API AIR_CHECK air_status air_graph_set_hint(air_graph *g, const char *name,
                                                int64_t hint);

/* Does the op table have a row for this ATen overload? "add.Tensor" */
AIR_API bool air_op_known(const char *op);
/* Row i of the op table: its name, NULL at the end. */
AIR_API const char *air_op_name(size_t i);
/* The row's schema, lowering class and Ascend IR type. */
AIR_API AIR_CHECK air_status air_op_describe(const char *op,
                                             const char **out_schema,
                                             const char **out_class,
                                             const char **out_ge);

/* The Ascend IR's tables, row by row; NULL or false at the end. A dtype has two
 * numbers: that of attributes and C interfaces, and that of tensor descriptors
 * in files. dtype: AIR_DTYPE_NONE where the engine has none; torch: "" where
 * torch has none. */
typedef struct {
    const char *name; /* "DT_FLOAT" */
    int number, file_number;
    air_dtype dtype;
    const char *torch; /* "float32" */
} air_ge_dtype;
typedef struct {
    const char *name; /* "FORMAT_ND" */
    int number;
} air_ge_format;
AIR_API const air_ge_dtype *air_ge_dtype_at(size_t i);
AIR_API const air_ge_dtype *air_ge_dtype_of(air_dtype dtype);
AIR_API const air_ge_format *air_ge_format_at(size_t i);
/* "Cast(x; dst_type:Int!) -> y" */
AIR_API const char *air_ge_prototype(size_t i);
/* How an op is written as a node of `type`; see src/ir/ge.def. */
AIR_API bool air_ge_row(size_t i, const char **out_op, const char **out_type,
                        const char **out_when, const char **out_args);

/* ---- formulas of users ----------------------------------------------------
 */

/* `a * sigmoid(b) + 1` as operators of the op table, in order. Statements are
 * separated by ";", `name = ...` names a value; the results are what the last
 * statements give. docs/custom-operators.md has the grammar. */
typedef enum {
    AIR_TERM_TENSOR,      /* parameter `index` */
    AIR_TERM_STEP,        /* the result of step `index` */
    AIR_TERM_NUMBER,      /* parameter `index`, a number */
    AIR_TERM_NUMBER_STEP, /* a step that computes a number */
    AIR_TERM_INT,
    AIR_TERM_FLOAT
} air_term_kind;
typedef struct {
    air_term_kind kind;
    size_t index;
    int64_t i;
    double f;
} air_term;
enum { AIR_OPERATION_ARGS = 3 };
typedef struct {
    const char *op; /* "mul.Tensor"; of numbers "+", "-", "*", "/" or "neg" */
    size_t nargs;
    air_term args[AIR_OPERATION_ARGS];
    bool number;
} air_operation;
typedef struct {
    const char *name;
    bool number; /* not a tensor */
} air_formal;
typedef struct air_expression air_expression;
/* SYNTAX, "line:column: ...", for a body that is wrong. */
AIR_API AIR_CHECK air_status air_expression_parse(
    air_context *ctx, const char *text, size_t len, size_t nparams,
    const air_formal *params, size_t nresults, air_expression **out);
AIR_API void air_expression_destroy(air_expression *expression);
/* Step i, NULL at the end; where the results are. */
AIR_API const air_operation *
air_expression_operation(const air_expression *expression, size_t i);
AIR_API const air_term *air_expression_result(const air_expression *expression,
                                              size_t i);

/* ---- programs ------------------------------------------------------------ */

typedef struct air_program air_program;

/* Bits of air_compile_options.without; air_without_name has more. */
typedef enum {
#define WITHOUT(id, name, doc) AIR_WITHOUT_BIT_##id,
#include "air_without.def"
#undef WITHOUT
    AIR_WITHOUT_COUNT
} air_without_bit;
enum {
#define WITHOUT(id, name, doc) AIR_WITHOUT_##id = 1 << AIR_WITHOUT_BIT_##id,
#include "air_without.def"
#undef WITHOUT
    AIR_WITHOUT_NOTHING = 0
};

/* The order of steps. All keep what depends on what, so results are equal;
 * how much memory is used at once is not. */
typedef enum {
    AIR_ORDER_WRITTEN, /* as the graph has them */
    AIR_ORDER_BFS,     /* what became possible first */
    AIR_ORDER_DFS,     /* what the last step made possible */
    AIR_ORDER_RDFS,    /* for each last step, what it needs */
    AIR_ORDER_COUNT
} air_order;

typedef struct {
    bool exact;           /* round where eager rounds (reduce-overhead) */
    int pass_limit;       /* 0: all passes; n: the first n rows (bisecting) */
    int rewrite_limit;    /* 0: all rewrites */
    const char *dump_dir; /* NN-pass.txt after each pass; NULL: none */
    unsigned without;     /* AIR_WITHOUT_..., bits of air_without_name */
    air_order order;
    /* Of a graph with symbols: steps that run as one list, at least; fewer run
     * one by one. 0 and 1: any number, -1: all run one by one. */
    int64_t list_min;
    bool give_back;      /* of a graph without symbols: memory of intermediate
                            results goes back to the system after each run */
    bool tf32;           /* products of f32 may take their operands as TF32, 10
                            bits of mantissa, where a device multiplies those */
    uint64_t spec_limit; /* specialisations (classes of sizes and strides) that
                            are kept; one more, and the one that was used the
                            longest time ago goes when no run is in it and
                            no capture has it. 0: any number */
} air_compile_options;

/* The graph is copied. */
AIR_API AIR_CHECK air_status
air_program_create(air_context *ctx, const air_graph *graph,
                   const air_compile_options *options, air_program **out);
AIR_API void air_program_destroy(air_program *program);

/* A tensor or an integer that goes in or comes out. Inputs are borrowed for the
 * call. For results `block` is the engine's memory, given back by
 * air_value_release (any thread, also when the program is gone), or NULL where
 * the result is input number `alias` itself (data, dims and strides say which
 * part). */
typedef struct {
    bool is_int;
    int64_t i;
    void *data;
    air_dtype dtype;
    int rank;
    const int64_t *dims;    /* inputs: the caller's; results: in
                               air_host.layouts, or the program's, as long as
                               that is */
    const int64_t *strides; /* NULL: dense row-major */
    void *block;
    int alias; /* results: input that owns the memory, -1: the block */
} air_value;
AIR_API void air_value_release(air_value *value);
static inline air_value
air_value_tensor(void *data, air_dtype dtype, int rank, const int64_t *dims)
{
    return (air_value){
        .data = data, .dtype = dtype, .rank = rank, .dims = dims, .alias = -1};
}

/* A value that a watched run shows. */
typedef struct {
    const char *name; /* in the graph after its passes */
    const char *op;   /* of its node; NULL: an input */
    const char *location;
    size_t ntags;
    const char *const *tags; /* see air_graph_add_tag */
    air_value value;         /* valid until the call returns */
} air_seen_value;

/* What runs as one: a fused region, one kernel, a HOST node, or a view (which
 * takes no time). It is shown twice: before it runs, with what it reads, and
 * after it, with what it has computed. Values that live in registers only are
 * not shown; AIR_WITHOUT_REGISTERS leaves tagged ones in memory. */
typedef struct {
    size_t index;      /* in the order of the run */
    const char *kind;  /* "region", "call", "host" or "view" */
    const char *label; /* "region": the operators in it; others: the operator */
    bool done;
    bool once;      /* runs that are not watched do it at the first run only */
    double seconds; /* it took, once done */
    size_t count;
    const air_seen_value *values;
} air_seen;

/* Computes HOST nodes. inputs and outs are as the graph says; the function
 * writes the results into outs[i].data (dense row-major), or replaces data and
 * strides by memory of its own that stays valid until `done` is called with
 * the token it leaves in outs[i].block: no step of the run needs it then, or
 * the run has ended and nobody holds a result that lies there (`user` is NULL
 * then, and the thread any). inputs[i].block is such a token where the tensor
 * lies in what it stands for, or NULL.
 *
 * see: NULL, or is shown every step of the run, which then runs step by step;
 * results do not depend on it. A status other than AIR_OK ends the run.
 *
 * record: NULL, or gives what a call would do to `stream`, which the device
 * records, so that a capture has it in its graph: each replay then does it
 * again, with inputs where they are now and results where outs say, dense. A
 * result's memory is nobody else's until `done` of its token, and from then on
 * that of later records with the same *memory: NULL at first, a token that is
 * done when the graph is gone. (`user` of these `done` may be NULL.) Other
 * statuses than AIR_OK: it cannot be recorded, and every run calls it; `why`,
 * of AIR_HOST_WHY bytes, gets the reason. unrecorded: why it is not even tried;
 * NULL: it is. */
enum { AIR_HOST_WHY = 160 };
typedef struct {
    void *user;
    air_status (*call)(void *user, uint32_t id, size_t nin,
                       const air_value *inputs, size_t nout, air_value *outs);
    void (*done)(void *user, void *token);
    const char *(*unrecorded)(void *user, uint32_t id);
    air_status (*record)(void *user, uint32_t id, void *stream, void **memory,
                         size_t nin, const air_value *inputs, size_t nout,
                         air_value *outs, char *why);
    air_status (*see)(void *user, const air_seen *seen);
    /* Threads at most of this run, 0: any number: of products, convolutions
     * and attention, and of the rest; limits of the caller's stream. A node
     * that has a limit (air_scope) keeps to its own. A program is specialised
     * for them. */
    int32_t cube_cores, vector_cores;
    /* Tells contents of the frozen inputs apart: where it is another than the
     * run before had, what was made of them is computed again. Runs in several
     * threads may have different ones. No air_host: 0. */
    uint64_t frozen;
    /* The application records what the run gives to the device, to repeat it:
     * its memory is no other run's, and goes back to the device. STATE, before
     * anything is done, where a run is more than what it gives to the device:
     * one that draws, or the first one of these sizes, or of these contents of
     * frozen inputs. What it reads stays as long as the program. */
    bool recorded;
    /* Room for dims and strides of results, AIR_MAX_RANK numbers each, result
     * by result; NULL: they lie in the specialisation, which spec_limit then
     * does not drop. */
    int64_t *layouts;
} air_host;

/* Makes what a run with such inputs needs (their data are not looked at), so
 * that the first one does not. UNSUPPORTED: the driver has no kernel for a
 * node, which the message names. */
AIR_API AIR_CHECK air_status air_program_prepare(air_program *program,
                                                 size_t nin,
                                                 const air_value *inputs);

/* Wrong count, dtype, rank or size of an input: ARGUMENT, DTYPE or SHAPE,
 * naming the input; nothing has been written then. Inputs the graph mutates
 * are written in place. */
AIR_API AIR_CHECK air_status air_program_run(air_program *program,
                                             const air_host *host, size_t nin,
                                             const air_value *inputs,
                                             size_t nout, air_value *outs);

typedef enum {
    AIR_TEXT_GRAPH,   /* after all passes, with groups */
    AIR_TEXT_STEPS,   /* command list of the latest specialisation */
    AIR_TEXT_EXPLAIN, /* regions, HOST nodes, copies, memory: "key: value" */
    AIR_TEXT_MEMORY,  /* places of the latest specialisation, a line each:
                         where, offset, bytes, first step, last step, values as
                         name=tag,tag */
    AIR_TEXT_GE_TXT,  /* GRAPH as Ascend IR: see air_ge_form */
    AIR_TEXT_GE_PBTXT,
    AIR_TEXT_GE_PY,
    AIR_TEXT_GE_ONNX,
    AIR_TEXT_PASSES, /* a line of each pass that ran: name, rewrites it
                        found, rewrites it made, nodes before and after, ms */
    AIR_TEXT_CUDA,   /* regions of the latest specialisation as CUDA C */
    AIR_TEXT_COUNT
} air_text_kind;
/* *out_text is NUL-terminated; free it with air_program_text_free. STATE: no
 * run has made what the text is about. */
AIR_API AIR_CHECK air_status air_program_print(const air_program *program,
                                               air_text_kind kind,
                                               char **out_text);
AIR_API void air_program_text_free(const air_program *program, char *text);

typedef struct {
    double compile_s, specialise_s; /* seconds: passes; all specialisations */
    uint64_t runs, specialisations; /* that there are now */
    uint64_t dropped;               /* specialisations: spec_limit */
    uint32_t nodes, regions, calls, copies, hosts; /* of the latest one */
    uint64_t arena_bytes, code_bytes;
    uint64_t kept_bytes; /* what the first run computed */
} air_program_stats;
AIR_API void air_program_get_stats(const air_program *program,
                                   air_program_stats *out);

/* ---- captures ------------------------------------------------------------ */

/* Capture and replay of a program. The first call with a key (sizes, strides,
 * integers, addresses of static inputs) captures: it binds places, pointers
 * and the device's own graph where it has one. Later calls replay: they patch
 * the pointers that changed, and run.
 *
 *     air_capture *capture;
 *     air_capture_call call = {0};
 *
 *     air_capture_create(program, NULL, &capture);
 *     for (int i = 0; i < 100; i++) {
 *         air_capture_run(capture, &call, NULL, 2, in, 1, out);
 *         ... call.how: AIR_CALL_CAPTURED, then AIR_CALL_REPLAYED
 *         air_value_release(&out[0]);
 *     }
 *     air_capture_destroy(capture);
 *
 * Static inputs are those with AIR_INPUT_PARAM. Who has many of them binds
 * them once, and again when one has moved:
 *
 *     air_capture_bind(capture, 2, in, &call.binding);
 *
 * A capture may be called by several threads at once. */

typedef enum {
#define CALL(id, text, doc) AIR_CALL_##id,
#include "air_calls.def"
#undef CALL
    AIR_CALL_COUNT
} air_call_class;
AIR_API const char *air_call_text(air_call_class how, const char **out_doc);

/* Memory that captures share: what is free of it is used by the next run,
 * whosever it is; what a result lies in is not free while somebody holds it.
 * Counted references; an id is a pair of integers, one of them 0. */
typedef struct air_graph_pool air_graph_pool;
AIR_API AIR_CHECK air_status air_graph_pool_create(air_context *ctx,
                                                   air_graph_pool **out);
/* The pool with this id, another reference; a new one where there is none. */
AIR_API AIR_CHECK air_status air_graph_pool_find(air_context *ctx,
                                                 const int64_t id[2],
                                                 air_graph_pool **out);
AIR_API void air_graph_pool_release(air_graph_pool *pool);
/* A new generation begins: results of the one before are stale from now on
 * (counted, never overwritten while somebody holds them). */
AIR_API void air_graph_pool_mark_step(air_graph_pool *pool);
/* Gives free memory back to the device. */
AIR_API void air_graph_pool_trim(air_graph_pool *pool);
typedef struct {
    int64_t id[2];
    uint64_t live_blocks, live_bytes; /* results and static buffers */
    uint64_t stale_blocks;            /* live ones of earlier generations */
    uint64_t mapped_bytes;            /* taken from the device */
    uint64_t largest_bytes;           /* what its largest capture needs */
    uint64_t captures;                /* alive */
    uint64_t generation;
} air_graph_pool_stats;
AIR_API void air_graph_pool_get_stats(air_graph_pool *pool,
                                      air_graph_pool_stats *out);

typedef enum { AIR_CHOICE_DEFAULT, AIR_CHOICE_ON, AIR_CHOICE_OFF } air_choice;

typedef enum {
    AIR_CAPTURE_GLOBAL, /* unsafe calls of any thread fail while capturing */
    AIR_CAPTURE_THREAD_LOCAL,
    AIR_CAPTURE_RELAXED
} air_capture_error_mode;

typedef struct {
    /* Keys; 0: 64. One more takes the place of the one used the longest time
     * ago; it runs without a capture, its next call captures. */
    uint64_t limit;
    /* Default: pointers are patched, nothing is copied. ON: inputs are copied
     * into buffers of the capture. OFF: the first call's tensors are the
     * inputs for good, later data are copied into them; so are, with ON or
     * OFF, inputs that a result lies in. The caller keeps them until
     * `dropped`. Static inputs and inputs that are written are never copied. */
    air_choice clone_input;
    /* Default and ON: results are memory of their own. OFF: the same memory at
     * every call of a key, overwritten by the next. */
    air_choice clone_output;
    bool frozen_parameter; /* static inputs: the first ones, for good */
    bool force_recapture;  /* capture at every call */
    bool keep_apart;       /* captures share no scratch memory */
    uint32_t warmups;      /* calls of a key that run before its capture */
    air_capture_error_mode error_mode;
    air_graph_pool *pool; /* NULL: one of its own */
    /* Capture number `graph` is gone, and with it the use of the inputs of the
     * call that made it. Any thread; NULL: nobody needs to know. */
    void (*dropped)(void *user, uint64_t graph);
    void *user;
} air_capture_options;

typedef struct air_capture air_capture;
/* The program must outlive it. */
AIR_API AIR_CHECK air_status
air_capture_create(air_program *program, const air_capture_options *options,
                   air_capture **out);
AIR_API void air_capture_destroy(air_capture *capture);
/* Drops every capture; the next call of a key captures it again. */
AIR_API void air_capture_reset(air_capture *capture);

/* Addresses and layouts of static inputs; equal ones are one binding. It lives
 * until it was given back as often as it was bound and no key has it, at the
 * longest as long as the capture. Of `inputs` only the static ones are read. */
typedef struct air_binding air_binding;
AIR_API AIR_CHECK air_status air_capture_bind(air_capture *capture, size_t nin,
                                              const air_value *inputs,
                                              const air_binding **out);
/* Gives a binding back; not while a call with it runs. NULL: nothing. */
AIR_API void air_capture_unbind(air_capture *capture,
                                const air_binding *binding);

typedef struct {
    /* in; not NULL: static entries of `inputs` are not looked at */
    const air_binding *binding;
    int32_t cube_cores, vector_cores; /* limits of the stream; 0: none */
    /* out */
    air_call_class how;
    uint64_t graph; /* which capture ran: 1, 2, ...; 0: none */
} air_capture_call;
/* As air_program_run. A capture that fails leaves nothing behind. */
AIR_API AIR_CHECK air_status air_capture_run(air_capture *capture,
                                             air_capture_call *call,
                                             const air_host *host, size_t nin,
                                             const air_value *inputs,
                                             size_t nout, air_value *outs);

typedef struct {
    uint64_t calls[AIR_CALL_COUNT];
    uint64_t graphs;       /* captured now */
    uint64_t copied_bytes; /* of inputs */
    uint64_t dropped;      /* keys that made room at the limit */
} air_capture_stats;
AIR_API void air_capture_get_stats(air_capture *capture,
                                   air_capture_stats *out);
/* HOST nodes of the latest capture that was replayed, a line each: "operator:
 * in the graph", or "operator: why it is not". Freed with
 * air_program_text_free; "" where the device has no graphs. */
AIR_API AIR_CHECK air_status air_capture_print_hosts(air_capture *capture,
                                                     char **out_text);

typedef struct {
    uint64_t live_blocks, live_bytes; /* results somebody holds */
    uint64_t kept_bytes;              /* free blocks kept mapped */
} air_pool_stats;
/* What the device can do, of all its threads together. */
typedef struct {
    double read;       /* bytes a second from memory */
    double flops;      /* multiplications and additions of f32 a second */
    double pair_flops; /* those of pairs of bf16 into f32, of vectors or (AMX)
                          of tiles; 0: bf16 is computed as f32 */
    int threads;
} air_limits;
/* Measured when it is first asked for, in about a tenth of a second: the best
 * 16 MB of four passes over 128, and of passes of multiply-adds in registers.
 * Not while another thread asks. UNSUPPORTED where the device does not say. */
AIR_API air_status air_context_get_limits(air_context *ctx, air_limits *out);
AIR_API void air_context_get_pool_stats(const air_context *ctx,
                                        air_pool_stats *out);
/* Gives kept blocks back to the system. */
AIR_API void air_context_trim(air_context *ctx);

/* Memory of the context's device, for inputs of runs; where it is a GPU's, the
 * host cannot touch it, nor results. A copy goes from or to memory of the host
 * or of the device, comes after the runs so far, and is done on return where
 * one side is the host's. `size` of a free is that of its alloc. */
AIR_API AIR_CHECK air_status air_memory_alloc(air_context *ctx, size_t size,
                                              void **out);
AIR_API void air_memory_free(air_context *ctx, void *data, size_t size);
AIR_API AIR_CHECK air_status air_memory_copy(air_context *ctx, void *dst,
                                             const void *src, size_t size);

/* Bit i of `without`: its name and one line for the manual; NULL: end. */
AIR_API const char *air_without_name(size_t i, const char **out_help);
/* Row i of the pass table: name and one line for the manual; NULL: end. */
AIR_API const char *air_pass_name(size_t i, const char **out_help);

#ifdef __cplusplus
}
#endif
#endif
