/* py_cuda.c: GPUs: a context each, on torch's current stream and with memory of
 * torch's caching allocator.
 *
 * torch's C shim makes tensors of bytes; the engine gets their memory, and the
 * handles wait in a table until it is given back. Any thread, without the GIL.
 */
#include "py.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct held {
    struct held *next;
    void *data, *tensor;
} held;

enum { BUCKETS = 256, SCALAR_BYTE = 0 };

static struct {
    int32_t (*empty)(int64_t rank, const int64_t *dims, const int64_t *strides,
                     int32_t dtype, int32_t device, int32_t index, void **out);
    int32_t (*data)(void *tensor, void **out);
    int32_t (*drop)(void *tensor);
    int32_t (*stream)(int32_t index, void **out);
    bool found; /* all of them */
    /* libcuda's */
    int (*capturing)(void *stream, int *out);
    int (*exchange)(int *mode);
    int (*capture_info)(void *stream, int *out, uint64_t *id, void **graph,
                        const void *const **last, size_t *nlast);
    int (*object)(void **out, void *user, void (*drop)(void *user),
                  unsigned count, unsigned flags);
    int (*retain)(void *graph, void *object, unsigned count, unsigned flags);
    char *folders, *cache;
    bool no_overlap, checks;
    air_persistent persistent;
    int64_t patience; /* ms */
    air_context *contexts[MAX_GPUS];
    air_gpu gpus[MAX_GPUS];
    pthread_mutex_t opening; /* of a context, without the GIL */
    pthread_mutex_t mutex;   /* of the table */
    held *table[BUCKETS];
} gpu = {.opening = PTHREAD_MUTEX_INITIALIZER,
         .mutex = PTHREAD_MUTEX_INITIALIZER};

static held **
bucket_of(const void *data)
{
    return &gpu.table[((uintptr_t)data >> 9) % BUCKETS];
}

static int32_t
index_of(const void *user)
{
    return ((const air_gpu *)user)->index;
}

static void *
torch_stream(void *user)
{
    void *stream = NULL;
    return gpu.stream(index_of(user), &stream) ? NULL : stream;
}

static void *
torch_alloc(void *user, size_t size)
{
    const int64_t dims[] = {size > 0 ? (int64_t)size : 1}, strides[] = {1};
    held *h = malloc(sizeof *h);
    if (!h)
        return NULL;
    if (gpu.empty(1, dims, strides, SCALAR_BYTE, SHIM_CUDA, index_of(user),
                  &h->tensor)) {
        free(h);
        return NULL;
    }
    if (gpu.data(h->tensor, &h->data)) {
        (void)gpu.drop(h->tensor);
        free(h);
        return NULL;
    }
    pthread_mutex_lock(&gpu.mutex);
    held **at = bucket_of(h->data);
    h->next = *at;
    *at = h;
    pthread_mutex_unlock(&gpu.mutex);
    return h->data;
}

static void
torch_free(void *user, void *ptr, size_t size)
{
    (void)user, (void)size;
    pthread_mutex_lock(&gpu.mutex);
    held **at = bucket_of(ptr);
    while (*at && (*at)->data != ptr)
        at = &(*at)->next;
    held *h = *at;
    if (h)
        *at = h->next;
    pthread_mutex_unlock(&gpu.mutex);
    if (h)
        (void)gpu.drop(h->tensor);
    free(h);
}

static bool
torch_draw(void *user, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    return py_random_draw(index_of(user), count, seed, offset);
}

/* ---- start ---- */

static bool
find_functions(const char *torch_lib, const char *cuda_lib)
{
    void *torch = dlopen(torch_lib, RTLD_NOLOAD | RTLD_LAZY);
    void *cuda = dlopen(cuda_lib, RTLD_NOLOAD | RTLD_LAZY);
    struct {
        void *lib;
        const char *name;
        void *slot;
    } rows[] = {
        {torch, "aoti_torch_empty_strided", &gpu.empty},
        {torch, "aoti_torch_get_data_ptr", &gpu.data},
        {torch, "aoti_torch_delete_tensor_object", &gpu.drop},
        {cuda, "aoti_torch_get_current_cuda_stream", &gpu.stream},
    };
    bool all = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *found = rows[i].lib ? dlsym(rows[i].lib, rows[i].name) : NULL;
        memcpy(rows[i].slot, &found, sizeof found);
        all = all && found;
    }
    return all;
}

/* Of the driver that torch has loaded, or will. */
static void
find_capturing(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
    const struct {
        const char *name;
        void *slot;
    } rows[] = {
        {"cuStreamIsCapturing", &gpu.capturing},
        {"cuThreadExchangeStreamCaptureMode", &gpu.exchange},
        {"cuStreamGetCaptureInfo_v2", &gpu.capture_info},
        {"cuUserObjectCreate", &gpu.object},
        {"cuGraphRetainUserObject", &gpu.retain},
    };
    for (size_t i = 0; lib && i < sizeof rows / sizeof *rows; i++) {
        void *found = dlsym(lib, rows[i].name);
        memcpy(rows[i].slot, &found, sizeof found);
    }
}

static char *
copy_text(const char *text)
{
    char *copy = text ? malloc(strlen(text) + 1) : NULL;
    if (copy)
        memcpy(copy, text, strlen(text) + 1);
    return copy;
}

/* cuda_start(torch_lib, torch_cuda_lib, folders, cache or None, overlap,
 * persistent, checks, patience): before the first context. Contexts that there
 * are stay as they are. */
PyObject *
py_cuda_start(PyObject *self, PyObject *args)
{
    const char *torch_lib, *cuda_lib, *folders, *cache;
    (void)self;
    int overlap, persistent, checks;
    long long patience;
    if (!PyArg_ParseTuple(args, "ssszpipL", &torch_lib, &cuda_lib, &folders,
                          &cache, &overlap, &persistent, &checks, &patience))
        return NULL;
    gpu.no_overlap = !overlap;
    gpu.persistent = (air_persistent)persistent;
    gpu.checks = checks;
    gpu.patience = patience;
    gpu.found = find_functions(torch_lib, cuda_lib);
    find_capturing();
    free(gpu.folders);
    free(gpu.cache);
    gpu.folders = copy_text(folders);
    gpu.cache = copy_text(cache);
    return PyBool_FromLong(gpu.found);
}

/* Without the GIL: of several threads that come here the first opens it. */
static air_status
open_once(int index, air_options options)
{
    air_gpu *own = &gpu.gpus[index];
    air_status status = AIR_OK;
    pthread_mutex_lock(&gpu.opening);
    if (!__atomic_load_n(&gpu.contexts[index], __ATOMIC_ACQUIRE)) {
        air_context *made = NULL;
        *own = (air_gpu){.index = index,
                         .libraries = gpu.folders,
                         .cache = gpu.cache,
                         .user = own,
                         .stream = torch_stream,
                         .alloc = torch_alloc,
                         .free = torch_free,
                         .draw = torch_draw,
                         .no_overlap = gpu.no_overlap,
                         .persistent = gpu.persistent,
                         .persistent_checks = gpu.checks,
                         .persistent_ms = gpu.patience};
        options.gpu = own;
        status = air_context_create(&options, &made);
        __atomic_store_n(&gpu.contexts[index], made, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&gpu.opening);
    return status;
}

static air_context *
open_context(int index)
{
    air_options options = *py_options();
    options.driver = "cuda";
    options.isa = NULL;
    PyThreadState *state = PyEval_SaveThread();
    const air_status status = open_once(index, options);
    PyEval_RestoreThread(state);
    return py_check(status) ? NULL : gpu.contexts[index];
}

air_context *
py_cuda_context(int index)
{
    if (index < 0 || index >= MAX_GPUS) {
        PyErr_Format(PyExc_ValueError, "GPU %d: 0 to %d are served", index,
                     MAX_GPUS - 1);
        return NULL;
    }
    air_context *made = __atomic_load_n(&gpu.contexts[index], __ATOMIC_ACQUIRE);
    if (made)
        return made;
    if (!gpu.found) {
        py_raise_text(AIR_ERROR_DEVICE,
                      "this build of torch has no CUDA, or not the functions "
                      "of its C shim that the engine needs");
        return NULL;
    }
    return open_context(index);
}

/* ---- what the application captures ---- */

enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */

bool
py_cuda_is_captured(int index)
{
    void *stream = NULL;
    int captured = 0;
    return gpu.capturing && gpu.stream(index, &stream) == 0 &&
           gpu.capturing(stream, &captured) == 0 && captured != 0;
}

int
py_cuda_relax(void)
{
    int mode = RELAXED;
    return gpu.exchange && gpu.exchange(&mode) == 0 ? mode : RELAXED;
}

void
py_cuda_restore(int mode)
{
    if (gpu.exchange)
        (void)gpu.exchange(&mode);
}

/* What graphs that are gone kept. CUDA says so on a thread of its own, where
 * neither its functions nor Python's may be called, but Py_AddPendingCall. */
typedef struct kept {
    struct kept *next;
    PyObject *object;
} kept;

static kept *dropped;

static int
forget_dropped(void *unused)
{
    kept *at = __atomic_exchange_n(&dropped, NULL, __ATOMIC_ACQUIRE);
    (void)unused;
    while (at) {
        kept *next = at->next;
        Py_DECREF(at->object);
        free(at);
        at = next;
    }
    return 0;
}

/* Where Python's list of calls is full, the next one that fits takes all. */
static void
drop_kept(void *user)
{
    kept *k = user;
    k->next = __atomic_load_n(&dropped, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&dropped, &k->next, k, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    if (Py_IsInitialized())
        (void)Py_AddPendingCall(forget_dropped, NULL);
}

/* The graph that the stream is captured into; NULL where CUDA does not say. */
static void *
graph_of_capture(int index)
{
    void *stream = NULL, *graph = NULL;
    const void *const *last;
    uint64_t id;
    int status;
    size_t n;
    if (!gpu.capture_info || !gpu.object || !gpu.retain ||
        gpu.stream(index, &stream) != 0 ||
        gpu.capture_info(stream, &status, &id, &graph, &last, &n) != 0)
        return NULL;
    return graph;
}

void
py_cuda_keep(int index, PyObject *object)
{
    enum { UNSYNCHRONISED = 1, MOVE = 1 }; /* the only flags there are */
    void *made, *graph = graph_of_capture(index);
    kept *k = graph ? malloc(sizeof *k) : NULL;

    Py_INCREF(object);
    if (!k)
        return;
    k->object = object;
    if (gpu.object(&made, k, drop_kept, 1, UNSYNCHRONISED) != 0)
        free(k);
    else
        (void)gpu.retain(graph, made, 1, MOVE);
}

PyObject *
py_cuda_check(PyObject *self, PyObject *index)
{
    const long i = PyLong_AsLong(index);
    (void)self;
    if ((i == -1 && PyErr_Occurred()) || !py_cuda_context((int)i))
        return NULL;
    Py_RETURN_NONE;
}
