/* cuda.h: what the files of the cuda device share.
 *
 * A *kernel* of this device is a list of launches. What is launched is CUDA C
 * text, or a call of a library. Text comes from two places: regions are printed
 * by the codegen layer (air_code), CALL kernels by rows of kernels.def.
 *
 * NVRTC compiles each text by itself, behind its prelude and a line that says
 * what ENTRY(i) is: air_i, and behind it what it computes.
 *
 * Equal texts are one kernel, so that what differs between the layers of a
 * model (slots, offsets) belongs into parameters, what is equal (sizes,
 * strides, dtypes) may be constants of the text. Its cubin is kept by content,
 * the name with it: in the process, and in a folder. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "air_driver.h"
#include "base/memory.h"
#include "base/text.h"

/* griddepcontrol of the texts */
enum { CUDA_OVERLAP_CAPABILITY = 90 };

/* What a kernel may know of the GPU. */
typedef struct {
    int capability; /* 90: compute capability 9.0 */
    int processors; /* SMs */
    int threads;    /* that an SM has at once */
    int64_t l2_bytes;
    size_t shared_bytes; /* most dynamic shared memory of a block */
    size_t registers;    /* of an SM */
    bool blas;           /* cuBLASLt is there */
    bool draws;          /* the application lends a generator */
    char isa[16];        /* NVRTC's: "sm_90a" */
} cuda_props;

/* A parameter of a launch, 8 bytes: a pointer or a number. */
typedef enum {
    CUDA_PARAM_POINTER,   /* slots[slot] + value */
    CUDA_PARAM_NUMBER,    /* the 8 bytes there, of the host */
    CUDA_PARAM_INT,       /* value: int64_t */
    CUDA_PARAM_WORKSPACE, /* the step's workspace + value */
    CUDA_PARAM_FAULT,     /* cuda_fault *, see below */
    CUDA_PARAM_SCRATCH,   /* the list's scratch + value */
    CUDA_PARAM_SEED,      /* of the generator, at each run */
    CUDA_PARAM_OFFSET,    /* its offset before the launch */
    CUDA_PARAM_VALUES     /* the struct of a region's sizes and strides */
} cuda_param_kind;
typedef struct {
    int32_t kind, slot;
    int64_t value;
} cuda_param;

enum { CUDA_MAX_PARAMS = 32, CUDA_MAX_LAUNCHES = 4, CUDA_MAX_EARLY = 16 };

/* Bytes [begin, end) of a slot. */
typedef struct {
    int32_t slot;
    int64_t begin, end;
} cuda_span;
cuda_span cuda_span_of(const air_tensor *t);

/* `entry` of the text is launched on the stream, after the one before. */
typedef struct {
    air_launch shape;
    int32_t entry; /* i of ENTRY(i) */
    int32_t nparams, nearly;
    int64_t draws; /* numbers that each thread takes from the generator */
    bool product;  /* no entry: pointers of cuda_product_run */
    /* Bits of parameters: those through which a phase of a persistent kernel
     * can give or take words (text/cross.cuh), and those that the text does not
     * write though its steps do. */
    uint32_t crossing, idle;
    /* Those of caches of which one row that a launch writes can be words. */
    uint32_t rows;
    /* Those that can be parts of attention (text/parts.cuh). Who gives them:
     * how many, elements of a row. */
    uint32_t parts;
    int32_t nparts;
    int64_t width;
    cuda_param params[CUDA_MAX_PARAMS];
    /* What it reads before it waits for the launches before it (`await` of the
     * texts; each text has one). */
    cuda_span early[CUDA_MAX_EARLY];
} cuda_launch;

typedef struct {
    base_text text;
    const char *prelude; /* static; NULL: none */
    int32_t nlaunches;
    cuda_launch launches[CUDA_MAX_LAUNCHES];
    /* A region: ENTRY(i) is launched in shapes[i], all of them with the
     * parameters of launches[0]. NULL: not one. */
    const air_launch *shapes;
    bool product;       /* one of the launches is a library's */
    const void *values; /* of CUDA_PARAM_VALUES */
    size_t nvalues;     /* of 8 bytes */
    size_t scratch;     /* bytes of the list's own memory, 0 before and after */
    /* A persistent kernel: one launch, whose parameters are the fields of one
     * struct. NULL: those of `launches`. */
    cuda_param *many;    /* nmany; owned */
    size_t nmany, rmany; /* parameters, room */
    bool together;       /* all blocks must be on the GPU at once */
    /* The text can be compiled in as many parts and the kernel's own, with
     * SUPER_PART as part i's number, which is 0 for the kernel. 0: it cannot */
    uint32_t parts;
} cuda_source;

/* What a kernel found wrong in the data: an index out of range. It lies in
 * memory that host and device see; a kernel that finds one skips the element
 * (a read gives 0), sets `raised` to 2 if it was 0, writes index and size and
 * then sets `raised` to 1. The next run of the device that sees a 1 returns
 * INDEX. A persistent kernel that gives up waiting does the same with a 3,
 * its phase and the arrivals: DRIVER. */
enum { CUDA_FAULT_INDEX = 1, CUDA_FAULT_STUCK = 3 };
typedef struct {
    int64_t index, size;
    int32_t raised;
} cuda_fault;

/* ---- CALL kernels: kernels.def, kernels.c ---- */

/* Does this provider compute the call (dtypes, sizes, strides)? */
typedef bool (*cuda_accept_fn)(const air_call *call, const cuda_props *props);
/* Writes text and launches; places are those of call->args, call->outs. */
typedef air_status (*cuda_print_fn)(const air_call *call,
                                    const cuda_props *props, cuda_source *out);
/* Bytes of workspace, known before places are. */
typedef size_t (*cuda_workspace_fn)(const air_call *call,
                                    const cuda_props *props);

typedef struct {
    const char *name; /* the op table's kernel column */
    cuda_accept_fn accept;
    cuda_print_fn print;
    cuda_workspace_fn workspace; /* NULL: none */
} cuda_provider;

/* The first row of the name that accepts the call. NULL: none; then the
 * application's own operator computes it, where it lends one. */
const cuda_provider *cuda_provider_find(const char *name, const air_call *call,
                                        const cuda_props *props);

/* Adds a pointer parameter: where the tensor lies, for cuda_launch. */
void cuda_add_tensor(cuda_launch *launch, const air_tensor *t);
void cuda_add_int(cuda_launch *launch, int64_t value);
void cuda_add_workspace(cuda_launch *launch, int64_t offset);
/* The launch reads it before it waits. */
void cuda_add_early(cuda_launch *launch, const air_tensor *t);
void cuda_add_early_span(cuda_launch *launch, cuda_span span);

#endif
