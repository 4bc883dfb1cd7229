#include "driver/cuda/symbols.h"
#include "fake_step.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fake_state state = {.gpus = 1, .major = 9, .error = 999};

fake_state *
fake_cuda_state(void)
{
    return &state;
}

int
fake_step(void)
{
    const long call = __atomic_add_fetch(&state.calls, 1, __ATOMIC_RELAXED);
    const bool gone = state.gone_at > 0 && call >= state.gone_at;
    return gone || call == state.fail_at ? state.error : 0;
}

int
fake_new(void **out, size_t size)
{
    FAKE_TRY;
    *out = calloc(1, size);
    __atomic_add_fetch(&state.live, 1, __ATOMIC_RELAXED);
    return 0;
}

int
fake_drop(void *object)
{
    (void)fake_step();
    __atomic_sub_fetch(&state.live, 1, __ATOMIC_RELAXED);
    free(object);
    return 0;
}

/* What the driver refuses in a thread that has no context. */
enum { INVALID_CONTEXT = 201, INVALID_VALUE = 1, PLAIN_SHARED = 48 << 10 };
static _Thread_local void *current;

#define TRY_IN_CONTEXT              \
    do {                            \
        FAKE_TRY;                   \
        if (!current)               \
            return INVALID_CONTEXT; \
    } while (0)

/* ---- what the application captures: by default no thread may do what might
 * have to wait for it; a call that does is refused and ends the capture ---- */

enum { RELAXED = 2, NOT_CAPTURED = 900, OTHERS_EVENT = 905 };
static _Thread_local int capture_mode;

static bool
is_captured(const void *stream)
{
    return state.captured || (state.capturing && state.capturing == stream);
}

static int
end_capture(int code)
{
    state.broken++;
    return code;
}

#define TRY_SAFE                                                            \
    do {                                                                    \
        if ((state.captured || state.capturing) && capture_mode != RELAXED) \
            return end_capture(NOT_CAPTURED);                               \
    } while (0)

FAKE(cuThreadExchangeStreamCaptureMode, int *mode)
{
    const int was = capture_mode;
    FAKE_TRY;
    capture_mode = *mode;
    *mode = was;
    return 0;
}

/* ---- the device ---- */

FAKE(cuInit, unsigned flags)
{
    (void)flags;
    FAKE_TRY;
    return 0;
}
FAKE(cuDeviceGetCount, int *out)
{
    FAKE_TRY;
    *out = state.gpus;
    return 0;
}
FAKE(cuDeviceGet, int *out, int i)
{
    FAKE_TRY;
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
    FAKE_TRY;
    *out = which == 75   ? state.major
           : which == 76 ? 0
           : which == 16 ? (state.processors > 0 ? state.processors : 132)
           : which == 39 ? 2048
           : which == 97 ? 227 << 10
                         : 65536;
    return 0;
}

static void *primary;
FAKE(cuDevicePrimaryCtxRetain, void **out, int device)
{
    (void)device;
    const int failed = fake_new(&primary, 1);
    *out = primary;
    return failed;
}
FAKE(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    return fake_drop(primary);
}
FAKE(cuCtxGetCurrent, void **out)
{
    FAKE_TRY;
    *out = current;
    return 0;
}
FAKE(cuCtxPushCurrent_v2, void *c)
{
    FAKE_TRY;
    current = c;
    return 0;
}
FAKE(cuCtxPopCurrent_v2, void **out)
{
    (void)fake_step();
    *out = current;
    current = NULL;
    return 0;
}

/* ---- memory, streams ---- */

FAKE(cuMemAlloc_v2, uint64_t *out, size_t size)
{
    TRY_SAFE;
    void *ptr = NULL;
    const int failed = fake_new(&ptr, size);
    *out = (uint64_t)(uintptr_t)ptr;
    return failed;
}
FAKE(cuMemFree_v2, uint64_t ptr)
{
    return fake_drop((void *)(uintptr_t)ptr);
}
FAKE(cuMemHostAlloc, void **out, size_t size, unsigned flags)
{
    (void)flags;
    return fake_new(out, size);
}
FAKE(cuMemFreeHost, void *ptr)
{
    return fake_drop(ptr);
}
FAKE(cuMemcpyAsync, uint64_t dst, uint64_t src, size_t size, void *stream)
{
    (void)stream;
    FAKE_TRY;
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
    TRY_SAFE;
    if (is_captured(stream))
        return end_capture(NOT_CAPTURED);
    FAKE_TRY;
    state.waited++;
    return 0;
}
FAKE(cuStreamIsCapturing, void *stream, int *out)
{
    FAKE_TRY;
    *out = is_captured(stream);
    return 0;
}
FAKE(cuStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    (void)event, (void)flags;
    if (is_captured(stream))
        return end_capture(OTHERS_EVENT);
    FAKE_TRY;
    state.waits++;
    return 0;
}
FAKE(cuEventCreate, void **out, unsigned flags)
{
    (void)flags;
    return fake_new(out, 1);
}
FAKE(cuEventDestroy_v2, void *event)
{
    return fake_drop(event);
}
FAKE(cuEventRecord, void *event, void *stream)
{
    (void)event;
    FAKE_TRY;
    state.followed += stream == state.watched;
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
    fake_work_fn work;  /* of another library, in place of a function */
    char room[ROOM];    /* parameters, where a machine runs it; of `work` */
    bool inner;         /* a graph of its own: nothing is noted */
    bool linked, early; /* an edge leads to it; a programmatic one */
} node;
typedef struct {
    node nodes[FAKE_LAUNCHES];
    long count;
} graph;

static graph *captured;
static void *captured_on; /* its stream */
static node *
note_captured(fake_launch launch)
{
    node *n = &captured->nodes[captured->count++];
    *n = (node){.launch = launch};
    return n;
}

/* ---- code and launches: a text says how many parameters its functions have:
 * "params N", or the heads of its entries; one without a head has those of the
 * first ---- */

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

static long
count_params(const char *text, int entry)
{
    char head[24];
    (void)snprintf(head, sizeof head, "\nENTRY(%d)(", entry);
    const char *said = strstr(text, "params ");
    const char *at = strstr(text, head);
    long n = at ? 1 : 0;
    if (!at && entry > 0)
        return count_params(text, 0);
    if (said)
        return strtol(said + 7, NULL, 10);
    for (at = at ? at + strlen(head) : ")"; *at && *at != ')'; at++)
        n += *at == ',';
    return n;
}

FAKE(cuModuleLoadData, void **out, const void *image)
{
    TRY_SAFE;
    const int failed = fake_new(out, sizeof(module));
    if (failed != 0)
        return failed;
    module *m = *out;
    for (int i = 0; i < FAKE_ENTRIES; i++)
        m->functions[i] = (code){count_params(image, i), PLAIN_SHARED, NULL};
    return load_library(m, image);
}
FAKE(cuModuleUnload, module *m)
{
    if (m->library)
        state.machine->unload(m->library);
    return fake_drop(m);
}
FAKE(cuModuleGetFunction, void **out, module *m, const char *name)
{
    const long i = strncmp(name, "air_", 4) == 0 ? strtol(name + 4, NULL, 10)
                                                 : FAKE_ENTRIES;
    FAKE_TRY;
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
    if (n->work)
        n->work(n->room);
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
        (void)note_captured(
            (fake_launch){.grid = {l.grid[0], l.grid[1], l.grid[2]}});
        return 0;
    }
    state.together += together;
    note(l, function, params);
    compute(function, &l, together, params);
    return 0;
}

/* What a library does on a stream. */
FAKE(fake_cuda_enqueue, void *stream, fake_work_fn work, const void *data,
     size_t size)
{
    TRY_IN_CONTEXT;
    if (size > ROOM)
        return INVALID_VALUE;
    if (captured && stream == captured_on) {
        node *n = note_captured((fake_launch){.stream = stream});
        n->work = work;
        memcpy(n->room, data, size);
        return 0;
    }
    state.launch[state.launches++ % FAKE_LAUNCHES] =
        (fake_launch){.stream = stream};
    work(data);
    return 0;
}

/* CUDA_MEMCPY2D of device memory, from the begin of both. */
typedef struct {
    uint64_t src, dst;
    size_t src_pitch, dst_pitch, width, height;
} plane;

static void
copy_plane(const void *data)
{
    const plane *p = data;
    for (size_t i = 0; i < p->height; i++)
        memcpy((char *)(uintptr_t)p->dst + i * p->dst_pitch,
               (const char *)(uintptr_t)p->src + i * p->src_pitch, p->width);
}

FAKE(cuMemcpy2DAsync_v2, const cu_copy_2d *what, void *stream)
{
    const plane p = {what->src,       what->dst,   what->src_pitch,
                     what->dst_pitch, what->width, what->height};
    const bool device = what->src_type == CU_MEMORY_DEVICE &&
                        what->dst_type == CU_MEMORY_DEVICE;
    if (!device || p.width > p.src_pitch || p.width > p.dst_pitch)
        return INVALID_VALUE;
    return fake_cuda_enqueue(stream, copy_plane, &p, sizeof p);
}

typedef struct {
    uint64_t at;
    size_t pitch, width, height;
    unsigned short value;
} filled;

static void
fill_plane(const void *data)
{
    const filled *f = data;
    for (size_t i = 0; i < f->height; i++)
        for (size_t j = 0; j < f->width; j++)
            memcpy((char *)(uintptr_t)f->at + i * f->pitch +
                       j * sizeof f->value,
                   &f->value, sizeof f->value);
}

FAKE(cuMemsetD2D16Async, uint64_t at, size_t pitch, unsigned short value,
     size_t width, size_t height, void *stream)
{
    const filled f = {at, pitch, width, height, value};
    if (width * sizeof value > pitch)
        return INVALID_VALUE;
    return fake_cuda_enqueue(stream, fill_plane, &f, sizeof f);
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
/* cuda.h: CUlaunchConfig with at most one attribute of one number. */
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct {
        int id, pad, value;
    } * attribute;
    unsigned count;
} launch_config;
enum { PROGRAMMATIC = 6 };
FAKE(cuLaunchKernelEx, const launch_config *how, const code *function,
     void **params, void **extra)
{
    fake_launch l = {.shared = how->shared, .stream = how->stream};
    (void)extra;
    if (how->count != 1 || how->attribute->id != PROGRAMMATIC ||
        how->attribute->value != 1)
        return INVALID_VALUE;
    memcpy(l.grid, how->grid, sizeof l.grid);
    memcpy(l.block, how->block, sizeof l.block);
    state.launched_early++;
    return launch(function, l, false, params);
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
    TRY_SAFE;
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
    return fake_new(out, sizeof(graph));
}
FAKE(cuGraphDestroy, void *g)
{
    return fake_drop(g);
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
/* A library puts one thing on a stream that is captured, or is not there. */
static int
fill_inner(node *n, const graph *child)
{
    if (!child || child->count > 1)
        return INVALID_VALUE;
    n->work = child->nodes[0].work;
    memcpy(n->room, child->nodes[0].room, ROOM);
    return 0;
}

FAKE(cuGraphAddChildGraphNode, void **out, graph *g, void *const *after,
     size_t nafter, const graph *child)
{
    TRY_IN_CONTEXT;
    if (!is_behind_last(g, after, nafter) || g->count == FAKE_LAUNCHES)
        return INVALID_VALUE;
    node *n = &g->nodes[g->count];
    *n = (node){.inner = true, .linked = nafter > 0};
    *out = (void *)(uintptr_t)++g->count;
    return fill_inner(n, child);
}
FAKE(cuGraphExecChildGraphNodeSetParams, graph *exec, void *at,
     const graph *child)
{
    TRY_IN_CONTEXT;
    node *n = &exec->nodes[(uintptr_t)at - 1];
    if (state.others || !n->inner)
        return INVALID_VALUE;
    state.updates++;
    return fill_inner(n, child);
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
    const int failed = fake_new(out, sizeof *g);
    if (failed == 0)
        memcpy(*out, g, sizeof *g);
    return failed;
}
FAKE(cuGraphExecDestroy, void *exec)
{
    return fake_drop(exec);
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
        if (exec->nodes[i].inner && !exec->nodes[i].work)
            continue;
        state.launch[state.launches % FAKE_LAUNCHES] = exec->nodes[i].launch;
        state.launch[state.launches++ % FAKE_LAUNCHES].stream = stream;
        state.together += exec->nodes[i].together;
        compute_node(&exec->nodes[i]);
    }
    return 0;
}

/* ---- the compiler: code is the text ---- */

FAKE(nvrtcVersion, int *major, int *minor)
{
    FAKE_TRY;
    *major = 13;
    *minor = 0;
    return 0;
}
FAKE(nvrtcCreateProgram, void **out, const char *text, const char *name,
     int nheaders, const char *const *headers, const char *const *names)
{
    (void)name, (void)nheaders, (void)headers, (void)names;
    const int failed = fake_new(out, strlen(text) + 1);
    if (failed == 0)
        memcpy(*out, text, strlen(text) + 1);
    return failed;
}
FAKE(nvrtcCompileProgram, const char *text, int n, const char *const *options)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    size_t used = 0;
    FAKE_TRY;
    if (state.compiling)
        state.compiling(state.user);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n && used < sizeof state.options; i++)
        used +=
            (size_t)snprintf(state.options + used, sizeof state.options - used,
                             "%s ", options[i]);
    (void)snprintf(state.text, sizeof state.text, "%.500s", text);
    pthread_mutex_unlock(&mutex);
    __atomic_add_fetch(&state.compiled, 1, __ATOMIC_RELAXED);
    return strstr(text, "syntax error") ? 6 : 0;
}
static const char compile_log[] = "air.cu(1): warning: of no weight\n  a line\n"
                                  "air.cu(3): error: so it is\nmore";
FAKE(nvrtcGetProgramLogSize, void *program, size_t *out)
{
    (void)program;
    FAKE_TRY;
    *out = sizeof compile_log;
    return 0;
}
FAKE(nvrtcGetProgramLog, void *program, char *out)
{
    (void)program;
    FAKE_TRY;
    memcpy(out, compile_log, sizeof compile_log);
    return 0;
}
FAKE(nvrtcGetCUBINSize, const char *program, size_t *out)
{
    FAKE_TRY;
    *out = strlen(program) + 1;
    return 0;
}
FAKE(nvrtcGetCUBIN, const char *program, char *out)
{
    FAKE_TRY;
    strcpy(out, program);
    return 0;
}
FAKE(nvrtcDestroyProgram, void **program)
{
    return fake_drop(*program);
}

/* ---- streams that are captured: one at a time ---- */

FAKE(cuStreamCreate, void **out, unsigned flags)
{
    (void)flags;
    return fake_new(out, 1);
}
FAKE(cuStreamDestroy_v2, void *stream)
{
    return fake_drop(stream);
}
FAKE(cuStreamBeginCapture_v2, void *stream, int mode)
{
    void *made = NULL;
    (void)mode;
    const int failed = fake_new(&made, sizeof(graph));
    captured = made;
    captured_on = stream;
    return failed;
}
FAKE(cuStreamEndCapture, void *stream, void **out)
{
    (void)stream;
    const int failed = fake_step();
    *out = failed == 0 ? captured : NULL;
    if (failed != 0 && captured)
        (void)fake_drop(captured);
    captured = NULL;
    return failed;
}
