/* py.h: what the files of the extension share.
 *
 * The extension uses CPython's limited API (3.11 or 3.13: meson.build) and
 * links neither libtorch nor libgomp: torch tensors are reached through the
 * DLPack exchange table that torch publishes on its Tensor type, and a few C
 * functions of torch's shim are looked up in the libraries already loaded
 * (see py_torch.c).
 */
#ifndef NATIVE_PY_H
#define NATIVE_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "air.h"

/* ---- vector calls ---- */

/* In the stable ABI since 3.12, with these values; exported since 3.9. */
#define HAVE_VECTORCALL  (1UL << 11)
#define ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
typedef PyObject *(*py_vectorcall)(PyObject *self, PyObject *const *args,
                                   size_t nargs, PyObject *names);
#if Py_LIMITED_API + 0 < 0x030C0000
PyAPI_FUNC(PyObject *)
    PyObject_Vectorcall(PyObject *callable, PyObject *const *args, size_t nargs,
                        PyObject *names);
PyAPI_FUNC(PyObject *)
    PyVectorcall_Call(PyObject *callable, PyObject *args, PyObject *keywords);
#endif

/* ---- weak references ---- */

/* A new reference to what ref refers to; NULL, without an error: it is gone. */
static inline PyObject *
py_weak_get(PyObject *ref)
{
#if Py_LIMITED_API + 0 >= 0x030D0000 /* the other one is gone in 3.15 */
    PyObject *found = NULL;
    if (PyWeakref_GetRef(ref, &found) < 0)
        PyErr_Clear();
    return found;
#else
    PyObject *found = PyWeakref_GetObject(ref);
    return found && found != Py_None ? Py_NewRef(found) : NULL;
#endif
}

/* Does ref refer to o? NULL: to what is gone. */
static inline bool
py_weak_is(PyObject *ref, const PyObject *o)
{
    PyObject *found = py_weak_get(ref);
    const bool same = found == o;
    Py_XDECREF(found);
    return same;
}

/* ---- DLPack, as its specification lays it out ---- */

typedef struct {
    int32_t type, id;
} dl_device;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;
typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    struct {
        uint32_t major, minor;
    } version;
    void *ctx;
    void (*deleter)(struct dl_managed *);
    uint64_t flags;
    dl_tensor t;
} dl_managed;
typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *prev;
    void *allocate;
    int (*from_object)(void *object, dl_managed **out);
    int (*to_object)(dl_managed *stolen, void **out);
    int (*view)(void *object, dl_tensor *out); /* no ownership */
    void *stream;
} dl_exchange;
_Static_assert(sizeof(dl_tensor) == 48, "DLPack layout");
_Static_assert(sizeof(dl_managed) == 80, "DLPack layout");
_Static_assert(sizeof(dl_exchange) == 56, "DLPack layout");

/* ---- dtypes ---- */

/* A torch dtype and how the engine carries it. A dtype the engine has no
 * arithmetic for travels as one of the same size (exact == false). */
typedef struct {
    const char *name;    /* torch's */
    int32_t scalar_type; /* torch's c10::ScalarType */
    air_dtype dtype;
    uint8_t dl_code, dl_bits;
    bool exact;
} py_dtype;

/* Device types of DLPack and of torch's C shim. */
enum {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_EXT = 12,
    SHIM_CPU = 0,
    SHIM_CUDA = 1,
    SHIM_PRIVATEUSE1 = 20
};
/* Where tensors are: in host memory, as the device npu in host memory, or on
 * GPU i: PLACE_CUDA + i. Programs of the host take both of its places. */
enum { PLACE_HOST = 0, PLACE_NPU = 1, PLACE_CUDA = 2, MAX_GPUS = 16 };

/* ---- torch (py_torch.c) ---- */

typedef struct {
    dl_exchange *dl;
    PyTypeObject *tensor, *parameter;
    PyObject *as_strided;
    bool handles;  /* at::Tensor follows the object's header: checked */
    bool host_npu; /* PrivateUse1 is our device over host memory: py_npu.c */
    int32_t (*get_data_ptr)(void *tensor, void **out);
    int32_t (*get_sizes)(void *tensor, int64_t **out);
    int32_t (*get_strides)(void *tensor, int64_t **out);
    int32_t (*get_dim)(void *tensor, int64_t *out);
    int32_t (*get_dtype)(void *tensor, int32_t *out);
    int32_t (*get_device)(void *tensor, int32_t *out);
    int32_t (*get_device_index)(void *tensor, int32_t *out);
    int32_t (*get_storage_size)(void *tensor, int64_t *out);
    int32_t (*get_storage_offset)(void *tensor, int64_t *out);
} py_torch;
extern py_torch torch_api;

/* Finds everything above; -1 with a Python error. lib: path of libtorch_cpu */
int py_torch_init(const char *lib);
const py_dtype *py_dtype_row(size_t i); /* NULL: past the end */
/* By its name, a str; -1 with a Python error where it is not carried. */
int py_dtype_read(PyObject *name, const py_dtype **out);
/* What errors call a value: "x (input 3)", or "input 3" without a name. */
typedef struct {
    const char *what;
    PyObject *names; /* tuple, by index: str or None; NULL: none has one */
} py_label;
/* Raises `error`: the label of the value, a space, the text. Returns -1. */
int py_refuse(PyObject *error, const py_label *label, Py_ssize_t index,
              const char *format, ...);
/* Describes a tensor of a place without taking a reference: dims and strides
 * point into it. -1 with a Python error. */
int py_tensor_read(PyObject *object, const py_label *label, Py_ssize_t index,
                   int place, air_value *out, const py_dtype **out_dtype);
/* A tensor over *value that gives the engine's block back when it dies; takes
 * over value->block also when it fails. A value without block is borrowed. */
PyObject *py_tensor_wrap(const air_value *value, const py_dtype *dtype,
                         int place);
/* The same data, dims and strides, which both have? */
bool py_same_layout(const air_value *a, const air_value *b);
/* The part of `base` (described by base_value) that *value describes. */
PyObject *py_tensor_alias(PyObject *base, const air_value *base_value,
                          const air_value *value);
/* Bytes from the first element to the end of the last one; 0: no elements. */
size_t py_value_extent(const air_value *value);
/* Does a value lie in the memory of another? Then a tensor of it, no view of
 * the other's, whose writes count as the other's: autograd notices a write of
 * what it has saved. */
bool py_value_within(const air_value *base, const air_value *value);
PyObject *py_tensor_within(PyObject *base, const air_value *base_value,
                           const air_value *value);

/* ---- torch's threads and BLAS (py_library.c) ---- */

void py_library_init(const char *torch_lib, const char *gomp_lib);
/* NULL where the process has no libgomp. */
air_parallel py_library_parallel(void);
/* name: of air_library, copied. */
const air_library *py_library_gemm(const char *name);
/* torch.get_num_threads() of this thread; 0: unknown. */
int py_library_threads(void);

/* ---- torch's default generator (py_random.c) ---- */

int py_random_init(PyObject *module);
/* Finds the generator; -1 with a Python error. */
int py_random_start(PyObject *torch);
/* What the engine draws from. */
const air_generator *py_random_generator(void);
/* As air_gpu.draw. */
bool py_random_draw(int gpu, uint64_t count, uint64_t *seed, uint64_t *offset);
/* This thread's run is over, or calls torch: torch gets back what the run has
 * drawn from. -1 with a Python error. */
int py_random_end(void);

/* ---- module (py_module.c) ---- */

/* The context of the process; NULL with a Python error. */
air_context *py_context(void);
/* Of a place: a GPU has its own. */
air_context *py_context_at(int place);
/* The options that contexts of the process are made with. */
const air_options *py_options(void);
/* Keeps the context's threads equal to torch's. */
void py_context_sync(void);
/* This thread's eager operators are being recorded. */
extern _Thread_local int py_recording;
void py_raise_text(air_status code, const char *text);
/* -1 with an exception raised unless the status is AIR_OK. */
int py_check(air_status code);
/* The exception of a status; borrowed. */
PyObject *py_error_type(air_status code);
/* Is the pending exception the one of this status? */
bool py_error_is(air_status code);
/* Clears it, if there is one. Ctrl-C is not lost: it is raised at the next
 * line of Python in the main thread. */
void py_error_drop(void);

/* ---- device npu (py_npu.c) ---- */

int py_npu_init(PyObject *module);
/* Adds to the memory that tensors of the device hold; any thread. */
void py_npu_count(long long bytes);

/* ---- types ---- */

/* Makes a type and names it in the module; *out (which may be NULL) keeps it.
 * -1 with a Python error. */
int py_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out);

extern PyTypeObject *py_graph_type, *py_program_type;
int py_graph_init(PyObject *module);
int py_program_init(PyObject *module);
int py_direct_init(PyObject *module);
int py_trained_init(PyObject *module);
int py_dispatch_init(PyObject *module);
const air_graph *py_graph_get(PyObject *graph);
int py_graph_place(PyObject *graph);
/* A call with n arguments. skip, which may be NULL, says of each output
 * whether None will do. What comes back is the caller's own tuple, or whatever
 * torch gave that ran the graph instead. */
PyObject *py_program_call(PyObject *program, PyObject *const *args,
                          Py_ssize_t n, const bool *skip);
Py_ssize_t py_program_outputs(PyObject *program);
PyObject *py_list(PyObject *const *items, Py_ssize_t n);

/* ---- parameters that stay (py_known.c) ---- */

enum { PY_LAYOUT_NUMBERS = 14 };
/* A parameter or constant as the last call had it. */
typedef struct {
    const PyObject *seen; /* NULL: none; only compared, as is impl */
    const char *impl;
    air_value value; /* its dims and strides are the tensor's own */
    int64_t storage; /* bytes */
    size_t bytes;    /* of its elements */
    bool is_static;  /* others are read at each call */
    bool is_frozen;  /* `p.data = other` need not be seen */
    PyObject *ref;   /* frozen: a weak reference to it */
    PyObject *kept;  /* frozen: a tensor over its memory */
    int64_t numbers[PY_LAYOUT_NUMBERS];
} py_known;
/* Finds out how tensors lie. */
void py_known_init(PyObject *torch);
/* For each input of the graph; NULL with a Python error. sources: by input,
 * the argument it is, negative for constants. */
py_known *py_known_make(const air_graph *g, size_t nin,
                        const Py_ssize_t *sources, bool frozen);
void py_known_free(py_known *known, size_t nin);
/* Fills *out where the tensor is what it was; else it has to be read. */
bool py_known_read(const py_known *k, PyObject *o, air_value *out);
/* What reading it has found. */
void py_known_keep(py_known *k, PyObject *o, const air_value *v, size_t bytes);

/* ---- contents of frozen arguments (py_frozen.c) ---- */

typedef struct py_frozen py_frozen;
/* *out is NULL where the graph has none; -1 with a Python error. */
int py_frozen_make(const air_graph *g, size_t nin, const Py_ssize_t *sources,
                   py_frozen **out);
void py_frozen_free(py_frozen *f);
/* air_host.frozen of a call: another one where contents have changed. */
uint64_t py_frozen_look(py_frozen *f, PyObject *const *args);

/* ---- captures (py_capture.c) ---- */

/* A static argument as the last call had it; `seen` is only compared. */
typedef struct {
    Py_ssize_t arg;
    size_t input;
    const PyObject *seen;
    void *data;
} py_static;
/* Where static arguments lie. A call keeps the one that it began with, while
 * another thread binds others. */
typedef struct {
    const air_binding *engine;
    size_t users; /* calls, and the capture whose latest it is */
} py_binding;
typedef struct {
    int place; /* of its tensors */
    air_capture *capture;
    const air_program *program;
    air_graph_pool *pool;
    py_binding *binding;
    py_static *statics;
    size_t *dynamic; /* inputs that every call reads */
    size_t nstatics, ndynamic, static_bytes;
    bool frozen, trace;
    PyObject *listener;
    PyObject *held;    /* graph -> first arguments; NULL: not needed */
    PyObject *results; /* graph -> weak references; NULL: not needed */
    PyObject *kept;    /* memory of frozen arguments */
} py_capture;
int py_capture_init(PyObject *module);
/* *out may be half open after a failure: close it. */
int py_capture_open(PyObject *options, air_program *program, const air_graph *g,
                    int place, size_t nin, const Py_ssize_t *sources,
                    py_capture **out);
void py_capture_close(py_capture *c);
/* Are the static arguments those of the binding? */
bool py_capture_is_bound(const py_capture *c, PyObject *const *args);
/* bytes: of static inputs. */
int py_capture_bind(py_capture *c, PyObject *const *args, size_t nin,
                    const air_value *inputs, size_t bytes);
/* One user less; NULL: nothing. */
void py_capture_unbind(const py_capture *c, py_binding *binding);
/* After a run: keeps what the capture uses for good. */
int py_capture_hold(const py_capture *c, const air_capture_call *call,
                    PyObject *const *args, Py_ssize_t n);
int py_capture_made(const py_capture *c, const air_capture_call *call,
                    PyObject *made);
/* Tells the listener what the call was. */
int py_capture_tell(const py_capture *c, const air_capture_call *call);
/* Argument i, or the first call's where that is the input for good. */
PyObject *py_capture_argument(const py_capture *c, uint64_t graph,
                              PyObject *const *args, Py_ssize_t i);
/* The tensor that was this output last time and still lies there, or NULL. */
PyObject *py_capture_result(const py_capture *c, uint64_t graph,
                            Py_ssize_t index, const air_value *v);
PyObject *py_capture_stats(const py_capture *c);
/* Limits of cores of this thread's stream. */
void py_core_limits(int32_t *cube, int32_t *vector);
/* The pool that captures of a place share; a new reference. */
air_graph_pool *py_default_pool(int place);

/* ---- GPUs (py_cuda.c) ---- */

/* The context of a GPU; NULL with a Python error. */
air_context *py_cuda_context(int index);
PyObject *py_cuda_start(PyObject *self, PyObject *args);
PyObject *py_cuda_check(PyObject *self, PyObject *index);
/* Does the application capture this thread's stream of the GPU? */
bool py_cuda_is_captured(int index);
/* Lets the thread do what a capture forbids by default, making memory and
 * handles of libraries; gives what py_cuda_restore takes. */
int py_cuda_relax(void);
void py_cuda_restore(int mode);
/* A reference that lives as long as the graph which is captured there, and all
 * that is instantiated from it; where CUDA cannot tell, for ever. */
void py_cuda_keep(int index, PyObject *object);

/* ---- tables of the Ascend IR (py_ge.c) ---- */

PyObject *py_ge_dtypes(PyObject *self, PyObject *unused);
PyObject *py_ge_formats(PyObject *self, PyObject *unused);
PyObject *py_ge_prototypes(PyObject *self, PyObject *unused);
PyObject *py_ge_rows(PyObject *self, PyObject *unused);

/* ---- formulas (py_expression.c) ---- */

PyObject *py_parse_expression(PyObject *self, PyObject *args);

/* ---- HOST nodes (py_host.c) ---- */

typedef struct {
    PyObject *call; /* (args, tensors) -> tuple of tensors */
    char *name;
    size_t nin, nout;
    const py_dtype **dtypes; /* nin, then nout */
    int place;               /* inputs are shown as tensors of it */
    char *unrecorded; /* why a GPU's graph cannot have it; NULL: it may */
} py_host;
typedef struct {
    const py_host *hosts;
    size_t nhosts;
    PyObject *args;  /* of this call: where sizes come from */
    int place;       /* of the program */
    PyObject *watch; /* is shown each step (py_watch.c); NULL: nobody */
    PyObject *type, *value, *trace; /* exception of a callback */
} py_host_run;
/* Fills *out from (call, name, in dtypes, out dtypes[, place, unrecorded]); -1
 * with an error. */
int py_host_read(PyObject *spec, py_host *out);
void py_host_free(py_host *host);
air_host py_host_make(py_host_run *run);

/* ---- ranges of a profiler (py_profile.c) ---- */

/* profile_ranges(type): type(name) is a context manager; None: nobody
 * profiles. */
PyObject *py_profile_ranges(PyObject *self, PyObject *type);
/* A range that begins now; NULL where nobody profiles. The GIL is held. */
PyObject *py_range_open(const char *name);
/* Ends it. An exception that is set stays set. */
void py_range_close(PyObject *range);

/* ---- watched runs (py_watch.c) ---- */

/* air_host.see of a py_host_run. */
air_status py_watch_see(void *user, const air_seen *seen);

#endif
