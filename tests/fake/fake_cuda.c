#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static fake_state state = {.gpus = 1, .major = 9, .error = 999};

EXPORT fake_state *fake_cuda_state(void);
fake_state *
fake_cuda_state(void)
{
    return &state;
}

/* Every function comes through here. */
static int
step(void)
{
    const long call = __atomic_add_fetch(&state.calls, 1, __ATOMIC_RELAXED);
    const bool gone = state.gone_at > 0 && call >= state.gone_at;
    return gone || call == state.fail_at ? state.error : 0;
}

/* What the driver refuses in a thread that has no context. */
enum { INVALID_CONTEXT = 201, INVALID_VALUE = 1, PLAIN_SHARED = 48 << 10 };
static _Thread_local void *current;

#define TRY                         \
    do {                            \
        const int failed_ = step(); \
        if (failed_ != 0)           \
            return failed_;         \
    } while (0)
#define TRY_IN_CONTEXT              \
    do {                            \
        TRY;                        \
        if (!current)               \
            return INVALID_CONTEXT; \
    } while (0)
/* name(parameters) that may fail, then what it does. */
#define FAKE(name, ...)           \
    EXPORT int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

static int
new_object(void **out, size_t size)
{
    TRY;
    *out = calloc(1, size);
    __atomic_add_fetch(&state.live, 1, __ATOMIC_RELAXED);
    return 0;
}

static int
drop_object(void *object)
{
    (void)step();
    __atomic_sub_fetch(&state.live, 1, __ATOMIC_RELAXED);
    free(object);
    return 0;
}

/* ---- the device ---- */

FAKE(cuInit, unsigned flags)
{
    (void)flags;
    TRY;
    return 0;
}
FAKE(cuDeviceGetCount, int *out)
{
    TRY;
    *out = state.gpus;
    return 0;
}
FAKE(cuDeviceGet, int *out, int i)
{
    TRY;
    *out = i;
    return 0;
}
FAKE(cuGetErrorName, int e, const char **out)
{
    *out = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
}
FAKE(cuGetErrorString, int e, const char **out)
{
    *out = e == 2 ? "out of memory" : "a failure on purpose";
    return 0;
}
FAKE(cuDeviceGetAttribute, int *out, int which, int device)
{
    (void)device;
    TRY;
    *out = which == 75   ? state.major
           : which == 76 ? 0
           : which == 16 ? (state.processors > 0 ? state.processors : 132)
           : which == 97 ? 227 << 10
                         : 65536;
    return 0;
}

static void *primary;
FAKE(cuDevicePrimaryCtxRetain, void **out, int device)
{
    (void)device;
    const int failed = new_object(&primary, 1);
    *out = primary;
    return failed;
}
FAKE(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    return drop_object(primary);
}
FAKE(cuCtxGetCurrent, void **out)
{
    TRY;
    *out = current;
    return 0;
}
FAKE(cuCtxPushCurrent_v2, void *c)
{
    TRY;
    current = c;
    return 0;
}
FAKE(cuCtxPopCurrent_v2, void **out)
{
    (void)step();
    *out = current;
    current = NULL;
    return 0;
}

/* ---- memory, streams ---- */

FAKE(cuMemAlloc_v2, uint64_t *out, size_t size)
{
    void *ptr = NULL;
    const int failed = new_object(&ptr, size);
    *out = (uint64_t)(uintptr_t)ptr;
    return failed;
}
FAKE(cuMemFree_v2, uint64_t ptr)
{
    return drop_object((void *)(uintptr_t)ptr);
}
FAKE(cuMemHostAlloc, void **out, size_t size, unsigned flags)
{
    (void)flags;
    return new_object(out, size);
}
FAKE(cuMemFreeHost, void *ptr)
{
    return drop_object(ptr);
}
FAKE(cuMemcpyAsync, uint64_t dst, uint64_t src, size_t size, void *stream)
{
    (void)stream;
    TRY;
    memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, size);
    return 0;
}
FAKE(cuPointerGetAttribute, void *out, int which, uint64_t ptr)
{
    (void)out, (void)which, (void)ptr;
    return 1; /* none of its memory */
}
FAKE(cuStreamSynchronize, void *stream)
{
    (void)stream;
    TRY;
    state.waited++;
    return 0;
}
FAKE(cuStreamIsCapturing, void *stream, int *out)
{
    (void)stream;
    TRY;
    *out = state.captured;
    return 0;
}
FAKE(cuStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    TRY;
    state.waits++;
    return 0;
}
FAKE(cuEventCreate, void **out, unsigned flags)
{
    (void)flags;
    return new_object(out, 1);
}
FAKE(cuEventDestroy_v2, void *event)
{
    return drop_object(event);
}
FAKE(cuEventRecord, void *event, void *stream)
{
    (void)event, (void)stream;
    TRY;
    return 0;
}

/* ---- what graphs are ---- */

typedef struct {
    const struct code *function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    void *kernel, *context;
} node_params;
enum { ROOM = 4096, MOST_PARAMS = 1024 };
typedef struct {
    fake_launch launch;
    const struct code *function;
    bool together;
    char room[ROOM];    /* its parameters, where a machine runs it */
    bool inner;         /* a graph of its own: nothing is noted */
    bool linked, early; /* an edge leads to it; a programmatic one */
} node;
typedef struct {
    node nodes[FAKE_LAUNCHES];
    long count;
} graph;

static graph *captured;
static void
note_captured(fake_launch launch)
{
    node *n = &captured->nodes[captured->count++];
    *n = (node){.launch = launch};
}

/* ---- code and launches: a text says how many parameters its functions have:
 * "params N" ---- */

typedef struct code {
    long params;
    unsigned most_shared;
    void *entry; /* of the machine; NULL: it computes nothing */
} code;
typedef struct {
    code functions[FAKE_ENTRIES];
    void *library;
} module;
enum { NOT_FOUND = 500, BAD_IMAGE = 200 };

static int
load_library(module *m, const char *text)
{
    const fake_machine *machine = state.machine;
    m->library = machine ? machine->load(text) : NULL;
    for (int i = 0; m->library && i < FAKE_ENTRIES; i++)
        m->functions[i].entry = machine->entry(m->library, i);
    return machine && !m->library ? BAD_IMAGE : 0;
}

FAKE(cuModuleLoadData, void **out, const void *image)
{
    const char *found = strstr(image, "params ");
    const int failed = new_object(out, sizeof(module));
    if (failed != 0)
        return failed;
    module *m = *out;
    for (int i = 0; i < FAKE_ENTRIES; i++)
        m->functions[i] =
            (code){found ? strtol(found + 7, NULL, 10) : 0, PLAIN_SHARED, NULL};
    return load_library(m, image);
}
FAKE(cuModuleUnload, module *m)
{
    if (m->library)
        state.machine->unload(m->library);
    return drop_object(m);
}
FAKE(cuModuleGetFunction, void **out, module *m, const char *name)
{
    const long i = strncmp(name, "air_", 4) == 0 ? strtol(name + 4, NULL, 10)
                                                 : FAKE_ENTRIES;
    TRY;
    if (i >= FAKE_ENTRIES || (m->library && !m->functions[i].entry))
        return NOT_FOUND;
    *out = &m->functions[i];
    return 0;
}

static void
compute(const code *function, const fake_launch *launch, bool together,
        void **params)
{
    fake_shape shape = {.shared = launch->shared, .together = together};
    memcpy(shape.grid, launch->grid, sizeof shape.grid);
    memcpy(shape.block, launch->block, sizeof shape.block);
    if (function->entry)
        state.machine->run(function->entry, &shape, params);
}

/* Of a node: its parameters one after another, each from a multiple of 16. */
static int
keep_params(node *n, void **params)
{
    size_t sizes[MOST_PARAMS], at = 0;
    if (!n->function->entry)
        return 0;
    const int count = state.machine->sizes(n->function->entry, sizes);
    for (int i = 0; i < count; at += (sizes[i++] + 15) / 16 * 16) {
        if (at + sizes[i] > ROOM)
            return INVALID_VALUE;
        memcpy(n->room + at, params[i], sizes[i]);
    }
    return 0;
}

static void
compute_node(node *n)
{
    size_t sizes[MOST_PARAMS], at = 0;
    void *params[MOST_PARAMS];
    if (!n->function || !n->function->entry)
        return;
    const int count = state.machine->sizes(n->function->entry, sizes);
    for (int i = 0; i < count; at += (sizes[i++] + 15) / 16 * 16)
        params[i] = n->room + at;
    compute(n->function, &n->launch, n->together, params);
}
FAKE(cuFuncSetAttribute, code *function, int which, int value)
{
    (void)which;
    TRY_IN_CONTEXT;
    function->most_shared = (unsigned)value;
    return 0;
}

static void
note(fake_launch launch, const code *function, void **params)
{
    for (long i = 0; i < function->params && i < FAKE_PARAMS; i++)
        memcpy(&launch.params[i], params[i], sizeof launch.params[i]);
    state.launch[state.launches++ % FAKE_LAUNCHES] = launch;
}

static int
launch(const code *function, fake_launch l, bool together, void **params)
{
    TRY_IN_CONTEXT;
    if (l.shared > function->most_shared || l.grid[1] > 65535 ||
        l.grid[2] > 65535)
        return INVALID_VALUE;
    if (captured) {
        note_captured((fake_launch){.grid = {l.grid[0], l.grid[1], l.grid[2]}});
        return 0;
    }
    state.together += together;
    note(l, function, params);
    compute(function, &l, together, params);
    return 0;
}

FAKE(cuLaunchKernel, const code *function, unsigned gx, unsigned gy,
     unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
     void *stream, void **params, void **extra)
{
    (void)extra;
    return launch(function,
                  (fake_launch){.grid = {gx, gy, gz},
                                .block = {bx, by, bz},
                                .shared = shared,
                                .stream = stream},
                  false, params);
}

FAKE(cuLaunchCooperativeKernel, const code *function, unsigned gx, unsigned gy,
     unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
     void *stream, void **params)
{
    return launch(function,
                  (fake_launch){.grid = {gx, gy, gz},
                                .block = {bx, by, bz},
                                .shared = shared,
                                .stream = stream},
                  true, params);
}
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *out,
     const code *function, int threads, size_t shared)
{
    (void)function, (void)threads, (void)shared;
    TRY_IN_CONTEXT;
    *out = !state.crowded;
    return 0;
}
FAKE(cuMemsetD8_v2, uint64_t ptr, unsigned char value, size_t size)
{
    TRY_IN_CONTEXT;
    memset((void *)(uintptr_t)ptr, value, size);
    return 0;
}

/* ---- graphs ---- */

static graph *built; /* the last one that got a node of a kernel */
FAKE(cuGraphKernelNodeSetAttribute, void *at, int attribute, const void *value)
{
    int together;
    TRY_IN_CONTEXT;
    memcpy(&together, value, sizeof together);
    if (attribute != 2 || together != 1)
        return 0;
    state.together++;
    built->nodes[(uintptr_t)at - 1].together = true;
    return 0;
}

static int
fill(node *n, const node_params *p)
{
    n->function = p->function;
    n->launch = (fake_launch){.shared = p->shared};
    memcpy(n->launch.grid, p->grid, sizeof p->grid);
    memcpy(n->launch.block, p->block, sizeof p->block);
    for (long i = 0; i < p->function->params && i < FAKE_PARAMS; i++)
        memcpy(&n->launch.params[i], p->params[i], 8);
    return keep_params(n, p->params);
}

static bool
is_behind_last(const graph *g, void *const *after, size_t nafter)
{
    return nafter == 0 ||
           (nafter == 1 && (long)(uintptr_t)after[0] == g->count);
}

FAKE(cuGraphCreate, void **out, unsigned flags)
{
    (void)flags;
    return new_object(out, sizeof(graph));
}
FAKE(cuGraphDestroy, void *g)
{
    return drop_object(g);
}
FAKE(cuGraphAddKernelNode_v2, void **out, graph *g, void *const *after,
     size_t nafter, const node_params *p)
{
    TRY_IN_CONTEXT;
    if (!is_behind_last(g, after, nafter) || g->count == FAKE_LAUNCHES)
        return INVALID_VALUE;
    const int failed = fill(&g->nodes[g->count], p);
    g->nodes[g->count].linked = nafter > 0;
    *out = (void *)(uintptr_t)++g->count;
    built = g;
    return failed;
}
FAKE(cuGraphAddChildGraphNode, void **out, graph *g, void *const *after,
     size_t nafter, const graph *child)
{
    TRY_IN_CONTEXT;
    if (!child || !is_behind_last(g, after, nafter))
        return INVALID_VALUE;
    g->nodes[g->count] = (node){.inner = true, .linked = nafter > 0};
    *out = (void *)(uintptr_t)++g->count;
    return 0;
}
FAKE(cuGraphExecChildGraphNodeSetParams, const graph *exec, void *at,
     const graph *child)
{
    TRY_IN_CONTEXT;
    if (state.others || !child || !exec->nodes[(uintptr_t)at - 1].inner)
        return INVALID_VALUE;
    state.updates++;
    return 0;
}
/* from_port, to_port, type */
FAKE(cuGraphAddDependencies_v2, graph *g, void *const *from, void *const *to,
     const unsigned char *edge, size_t count)
{
    TRY_IN_CONTEXT;
    node *n = &g->nodes[g->count - 1];
    if (count != 1 || (long)(uintptr_t)from[0] != g->count - 1 ||
        (long)(uintptr_t)to[0] != g->count || n->linked || edge[0] != 1 ||
        edge[1] != 0 || edge[2] != 1)
        return INVALID_VALUE;
    n->linked = n->early = true;
    return 0;
}
FAKE(cuGraphInstantiateWithFlags, void **out, const graph *g,
     unsigned long long flags)
{
    (void)flags;
    state.early = 0;
    state.instantiated++;
    for (long i = 0; i < g->count; i++) {
        if (i > 0 && !g->nodes[i].linked)
            return INVALID_VALUE; /* a chain is what is expected */
        state.early += g->nodes[i].early;
    }
    const int failed = new_object(out, sizeof *g);
    if (failed == 0)
        memcpy(*out, g, sizeof *g);
    return failed;
}
FAKE(cuGraphExecDestroy, void *exec)
{
    return drop_object(exec);
}
FAKE(cuGraphExecKernelNodeSetParams_v2, graph *exec, void *at,
     const node_params *p)
{
    TRY_IN_CONTEXT;
    if (exec->nodes[(uintptr_t)at - 1].inner)
        return INVALID_VALUE;
    state.nodes_set++;
    return fill(&exec->nodes[(uintptr_t)at - 1], p);
}
FAKE(cuGraphLaunch, graph *exec, void *stream)
{
    TRY_IN_CONTEXT;
    for (long i = 0; i < exec->count; i++) {
        if (exec->nodes[i].inner)
            continue;
        state.launch[state.launches % FAKE_LAUNCHES] = exec->nodes[i].launch;
        state.launch[state.launches++ % FAKE_LAUNCHES].stream = stream;
        compute_node(&exec->nodes[i]);
    }
    return 0;
}

/* ---- the compiler: code is the text ---- */

FAKE(nvrtcVersion, int *major, int *minor)
{
    TRY;
    *major = 13;
    *minor = 0;
    return 0;
}
FAKE(nvrtcCreateProgram, void **out, const char *text, const char *name,
     int nheaders, const char *const *headers, const char *const *names)
{
    (void)name, (void)nheaders, (void)headers, (void)names;
    const int failed = new_object(out, strlen(text) + 1);
    if (failed == 0)
        memcpy(*out, text, strlen(text) + 1);
    return failed;
}
FAKE(nvrtcCompileProgram, const char *text, int n, const char *const *options)
{
    size_t used = 0;
    TRY;
    if (state.compiling)
        state.compiling(state.user);
    for (int i = 0; i < n && used < sizeof state.options; i++)
        used +=
            (size_t)snprintf(state.options + used, sizeof state.options - used,
                             "%s ", options[i]);
    (void)snprintf(state.text, sizeof state.text, "%.500s", text);
    __atomic_add_fetch(&state.compiled, 1, __ATOMIC_RELAXED);
    return strstr(text, "syntax error") ? 6 : 0;
}
FAKE(nvrtcGetProgramLogSize, void *program, size_t *out)
{
    (void)program;
    TRY;
    *out = 32;
    return 0;
}
FAKE(nvrtcGetProgramLog, void *program, char *out)
{
    (void)program;
    TRY;
    strcpy(out, "air.cu(3): error: so it is\nmore");
    return 0;
}
FAKE(nvrtcGetCUBINSize, const char *program, size_t *out)
{
    TRY;
    *out = strlen(program) + 1;
    return 0;
}
FAKE(nvrtcGetCUBIN, const char *program, char *out)
{
    TRY;
    strcpy(out, program);
    return 0;
}
FAKE(nvrtcDestroyProgram, void **program)
{
    return drop_object(*program);
}

/* ---- streams that are captured: one at a time ---- */

FAKE(cuStreamCreate, void **out, unsigned flags)
{
    (void)flags;
    return new_object(out, 1);
}
FAKE(cuStreamDestroy_v2, void *stream)
{
    return drop_object(stream);
}
FAKE(cuStreamBeginCapture_v2, void *stream, int mode)
{
    void *made = NULL;
    (void)stream, (void)mode;
    const int failed = new_object(&made, sizeof(graph));
    captured = made;
    return failed;
}
FAKE(cuStreamEndCapture, void *stream, void **out)
{
    (void)stream;
    const int failed = step();
    *out = failed == 0 ? captured : NULL;
    if (failed != 0 && captured)
        (void)drop_object(captured);
    captured = NULL;
    return failed;
}
/* ---- products: noted by the library that does them ---- */

FAKE(cublasLtCreate, void **out)
{
    return new_object(out, 1);
}
FAKE(cublasLtDestroy, void *object)
{
    return drop_object(object);
}
FAKE(cublasLtMatmulDescCreate, void **out, int compute, int scale)
{
    (void)compute, (void)scale;
    return new_object(out, 1);
}
FAKE(cublasLtMatmulDescDestroy, void *object)
{
    return drop_object(object);
}
FAKE(cublasLtMatmulDescSetAttribute, void *desc, int which, const void *value,
     size_t size)
{
    (void)desc;
    TRY;
    if (which == 3 || which == 4)
        memcpy(&state.transposed[which - 3], value, sizeof(int));
    if (which == 8)
        memcpy(&state.bias, value, size);
    return 0;
}
FAKE(cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows,
     uint64_t columns, int64_t ld)
{
    const int64_t made[4] = {type, (int64_t)rows, (int64_t)columns, ld};
    const int failed = new_object(out, sizeof made);
    if (failed == 0)
        memcpy(*out, made, sizeof made);
    return failed;
}
FAKE(cublasLtMatrixLayoutDestroy, void *object)
{
    return drop_object(object);
}
FAKE(cublasLtMatrixLayoutSetAttribute, void *layout, int which,
     const void *value, size_t size)
{
    (void)layout, (void)which, (void)value, (void)size;
    TRY;
    return 0;
}
FAKE(cublasLtMatmulPreferenceCreate, void **out)
{
    return new_object(out, 1);
}
FAKE(cublasLtMatmulPreferenceDestroy, void *object)
{
    return drop_object(object);
}
FAKE(cublasLtMatmulPreferenceSetAttribute, void *object, int which,
     const void *value, size_t size)
{
    (void)object, (void)which, (void)size;
    TRY;
    if (which == 5)
        memcpy(&state.alignment, value, sizeof state.alignment);
    return 0;
}
FAKE(cublasLtMatmulAlgoGetHeuristic, void *blas, void *desc, void *a, void *b,
     void *c, void *d, void *preference, int most, void *out, int *found)
{
    (void)blas, (void)desc, (void)a, (void)b, (void)c, (void)d;
    (void)preference, (void)most;
    TRY;
    memset(out, 0, 96);
    memcpy(out, &state.alignment, sizeof state.alignment);
    *found = 1;
    return 0;
}
FAKE(cublasLtMatmul, void *blas, void *desc, const void *alpha, const void *a,
     const int64_t *la, const void *b, const int64_t *lb, const void *beta,
     const void *c, const int64_t *lc, void *d, const int64_t *ld,
     const void *algorithm, void *workspace, size_t bytes, void *stream)
{
    fake_launch made = {.stream = stream,
                        .params = {(uintptr_t)a, (uintptr_t)b, (uintptr_t)c,
                                   (uintptr_t)d, (uintptr_t)workspace, bytes}};
    (void)blas, (void)desc, (void)lc, (void)ld;
    TRY;
    memcpy(&made.shared, algorithm, sizeof made.shared);
    memcpy(&state.alpha, alpha, sizeof state.alpha);
    memcpy(&state.beta, beta, sizeof state.beta);
    for (int i = 0; i < 3; i++) {
        state.sizes[0][i] = la[i + 1];
        state.sizes[1][i] = lb[i + 1];
    }
    state.launch[state.launches++ % FAKE_LAUNCHES] = made;
    return 0;
}
