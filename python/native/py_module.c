/* py_module.c: the module torchair._native: start-up, the context of the
 * process, exceptions, and what does not belong to a graph or program. */
#include "py.h"

#include <string.h>

/* ---- exceptions: one per status ---- */

static PyObject *errors[AIR_STATUS_COUNT];

static PyObject *
builtin_of(air_status code)
{
    switch (code) {
    case AIR_ERROR_ARGUMENT:
    case AIR_ERROR_SHAPE:
    case AIR_ERROR_SYNTAX: return PyExc_ValueError;
    case AIR_ERROR_DTYPE: return PyExc_TypeError;
    case AIR_ERROR_INDEX: return PyExc_IndexError;
    case AIR_ERROR_UNSUPPORTED: return PyExc_NotImplementedError;
    case AIR_ERROR_MEMORY: return PyExc_MemoryError;
    default: return NULL;
    }
}

/* AirShapeError for "shape". */
static PyObject *
make_error(air_status code, PyObject *base)
{
    char name[64] = "torchair.Air";
    const char *text = air_status_text(code);
    size_t n = strlen(name);
    for (size_t i = 0; text[i] && n < sizeof name - 7; i++)
        name[n++] = text[i];
    memcpy(name + n, "Error", 6);
    name[12] = (char)(name[12] - 'a' + 'A');
    PyObject *extra = builtin_of(code);
    PyObject *bases =
        extra ? PyTuple_Pack(2, base, extra) : PyTuple_Pack(1, base);
    PyObject *error = bases ? PyErr_NewException(name, bases, NULL) : NULL;
    Py_XDECREF(bases);
    return error;
}

static int
errors_init(PyObject *module)
{
    errors[AIR_OK] =
        PyErr_NewException("torchair.AirError", PyExc_RuntimeError, NULL);
    if (!errors[AIR_OK] ||
        PyModule_AddObjectRef(module, "AirError", errors[AIR_OK]))
        return -1;
    for (int i = AIR_OK + 1; i < AIR_STATUS_COUNT; i++) {
        PyObject *e = errors[i] = make_error((air_status)i, errors[AIR_OK]);
        PyObject *name = e ? PyObject_GetAttrString(e, "__name__") : NULL;
        PyObject *utf8 = name ? PyUnicode_AsUTF8String(name) : NULL;
        int failed =
            !utf8 || PyModule_AddObjectRef(module, PyBytes_AsString(utf8), e);
        Py_XDECREF(utf8);
        Py_XDECREF(name);
        if (failed)
            return -1;
    }
    return 0;
}

/* Raises the exception of a status with the text of air_last_error. */
static void
raise_last(air_status code)
{
    const air_error *e = air_last_error();
    bool known = code > AIR_OK && code < AIR_STATUS_COUNT;
    const char *text = e && e->code == code && *e->message
                           ? e->message
                           : air_status_text(code);
    PyErr_SetString(known ? errors[code] : PyExc_SystemError, text);
}

void
py_raise_text(air_status code, const char *text)
{
    PyErr_SetString(errors[code], text);
}

int
py_check(air_status code)
{
    if (code == AIR_OK)
        return 0;
    raise_last(code);
    return -1;
}

PyObject *
py_error_type(air_status code)
{
    return errors[code];
}

void
py_error_drop(void)
{
    const bool interrupt =
        PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupt)
        PyErr_SetInterrupt();
}

bool
py_error_is(air_status code)
{
    return PyErr_Occurred() && PyErr_ExceptionMatches(errors[code]);
}

/* ---- types ---- */

int
py_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    PyObject *type = PyType_FromSpec(spec);
    int failed = !type || PyModule_AddObjectRef(
                              module, strrchr(spec->name, '.') + 1, type);
    if (out && !failed)
        *out = (PyTypeObject *)type;
    else
        Py_XDECREF(type);
    return failed ? -1 : 0;
}

/* ---- context ---- */

static struct {
    air_context *ctx;
    air_options options;
    char driver[32], isa[32], choices[4096]; /* PATH_MAX */
    PyObject *log; /* called with a level and a line */
    int threads;   /* last told to the context */
    /* by place, of captures that have none of their own */
    air_graph_pool *pools[PLACE_CUDA + MAX_GPUS];
} state;

air_context *
py_context(void)
{
    if (state.ctx)
        return state.ctx;
    if (!torch_api.dl) {
        PyErr_SetString(PyExc_RuntimeError, "torchair._native.start() first");
        return NULL;
    }
    if (py_check(air_context_create(&state.options, &state.ctx)))
        return NULL;
    return state.ctx;
}

air_context *
py_context_at(int place)
{
    return place >= PLACE_CUDA ? py_cuda_context(place - PLACE_CUDA)
                               : py_context();
}

const air_options *
py_options(void)
{
    return &state.options;
}

void
py_context_sync(void)
{
    int threads = py_library_threads();
    if (threads <= 0 || threads == state.threads || !state.ctx)
        return;
    state.threads = threads;
    air_context_set_threads(state.ctx, threads);
}

air_graph_pool *
py_default_pool(int place)
{
    const int64_t *id;
    air_graph_pool_stats stats;
    air_graph_pool *pool;
    air_context *ctx = py_context_at(place);
    air_graph_pool **own = &state.pools[place];
    if (!ctx || (!*own && py_check(air_graph_pool_create(ctx, own))))
        return NULL;
    air_graph_pool_get_stats(*own, &stats);
    id = stats.id;
    return py_check(air_graph_pool_find(ctx, id, &pool)) ? NULL : pool;
}

/* ---- limits of cores ---- */

static _Thread_local struct {
    int32_t cube, vector;
} cores;

void
py_core_limits(int32_t *cube, int32_t *vector)
{
    *cube = cores.cube;
    *vector = cores.vector;
}

static PyObject *
native_set_core_limit(PyObject *self, PyObject *args)
{
    int cube, vector;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &cube, &vector))
        return NULL;
    cores.cube = cube;
    cores.vector = vector;
    Py_RETURN_NONE;
}

/* ---- start ---- */

/* Warnings and errors; they come when a run is over, from its thread. */
static void
log_line(void *user, air_log_level level, const char *line)
{
    (void)user;
    if (level > AIR_LOG_WARNING || !state.log)
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *got = PyObject_CallFunction(state.log, "is", (int)level, line);
    if (!got)
        PyErr_WriteUnraisable(state.log);
    Py_XDECREF(got);
    PyGILState_Release(gil);
}

/* start(torch_lib, gomp_lib, driver, isa, no_emitter, verify, step_seconds,
 * log, choices, library) */
static PyObject *
native_start(PyObject *self, PyObject *args)
{
    const char *torch_lib, *gomp_lib, *driver, *isa;
    const char *choices = NULL, *library = "library";
    int no_emitter, verify;
    double step_seconds = 0;
    PyObject *log = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "sszzpp|dOzs", &torch_lib, &gomp_lib, &driver,
                          &isa, &no_emitter, &verify, &step_seconds, &log,
                          &choices, &library))
        return NULL;
    if (state.ctx) {
        PyErr_SetString(PyExc_RuntimeError, "the engine runs already");
        return NULL;
    }
    if (py_torch_init(torch_lib))
        return NULL;
    py_library_init(torch_lib, gomp_lib);
    strncpy(state.driver, driver ? driver : "", sizeof state.driver - 1);
    strncpy(state.isa, isa ? isa : "", sizeof state.isa - 1);
    strncpy(state.choices, choices ? choices : "", sizeof state.choices - 1);
    state.threads = py_library_threads();
    Py_XINCREF(log);
    state.log = log;
    state.options = (air_options){
        .driver = driver ? state.driver : NULL,
        .isa = isa ? state.isa : NULL,
        .threads = state.threads,
        .parallel = py_library_parallel(),
        .library = py_library_gemm(library),
        .choices = choices ? state.choices : NULL,
        .generator = py_random_generator(),
        .log = log_line,
        .step_seconds = step_seconds,
        .no_emitter = no_emitter != 0,
        .verify = verify != 0,
    };
    return PyBool_FromLong(torch_api.handles);
}

/* ---- tables ---- */

static PyObject *
native_dtypes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyDict_New();
    const py_dtype *d;
    for (size_t i = 0; out && (d = py_dtype_row(i)); i++) {
        PyObject *row =
            Py_BuildValue("iO", (int)d->dtype, d->exact ? Py_True : Py_False);
        if (!row || PyDict_SetItemString(out, d->name, row))
            Py_CLEAR(out);
        Py_XDECREF(row);
    }
    return out;
}

static PyObject *
native_ops(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const char *name;
    for (size_t i = 0; out && (name = air_op_name(i)); i++) {
        PyObject *s = PyUnicode_FromString(name);
        if (!s || PyList_Append(out, s))
            Py_CLEAR(out);
        Py_XDECREF(s);
    }
    return out;
}

static PyObject *
native_describe(PyObject *self, PyObject *args)
{
    const char *op, *schema, *cls, *ge;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &op))
        return NULL;
    if (!air_op_known(op))
        Py_RETURN_NONE;
    if (py_check(air_op_describe(op, &schema, &cls, &ge)))
        return NULL;
    return Py_BuildValue("sss", schema, cls, ge);
}

static PyObject *
list_rows(const char *(*get)(size_t i, const char **out_help))
{
    PyObject *out = PyList_New(0);
    const char *name, *help;
    for (size_t i = 0; out && (name = get(i, &help)); i++) {
        PyObject *row = Py_BuildValue("ss", name, help);
        if (!row || PyList_Append(out, row))
            Py_CLEAR(out);
        Py_XDECREF(row);
    }
    return out;
}

static PyObject *
native_passes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return list_rows(air_pass_name);
}

static PyObject *
native_without(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return list_rows(air_without_name);
}

static PyObject *
native_call_classes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const char *doc;
    for (int i = 0; out && i < AIR_CALL_COUNT; i++) {
        const char *text = air_call_text((air_call_class)i, &doc);
        PyObject *row = Py_BuildValue("ss", text, doc);
        if (!row || PyList_Append(out, row))
            Py_CLEAR(out);
        Py_XDECREF(row);
    }
    return out;
}

static PyObject *
native_pool(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    air_pool_stats s = {0};
    if (state.ctx)
        air_context_get_pool_stats(state.ctx, &s);
    return Py_BuildValue("{sK,sK,sK}", "live_blocks",
                         (unsigned long long)s.live_blocks, "live_bytes",
                         (unsigned long long)s.live_bytes, "kept_bytes",
                         (unsigned long long)s.kept_bytes);
}

static PyObject *
native_limits(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    air_limits limits;
    if (!state.ctx || air_context_get_limits(state.ctx, &limits) != AIR_OK)
        Py_RETURN_NONE;
    return Py_BuildValue("{sd,sd,sd,si}", "read", limits.read, "flops",
                         limits.flops, "pair_flops", limits.pair_flops,
                         "threads", limits.threads);
}

static PyObject *
native_trim(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (state.ctx)
        air_context_trim(state.ctx);
    Py_RETURN_NONE;
}

_Thread_local int py_recording;

static PyObject *
native_recording(PyObject *self, PyObject *on)
{
    int found = PyObject_IsTrue(on);
    (void)self;
    if (found < 0)
        return NULL;
    py_recording += found ? 1 : -1;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", native_start, METH_VARARGS,
     "start(torch_lib, gomp_lib, driver, isa, no_emitter, verify, "
     "step_seconds, log(level, line))"},
    {"cuda_start", py_cuda_start, METH_VARARGS,
     "cuda_start(torch_lib, torch_cuda_lib, folders, cache, overlap, "
     "persistent, checks, patience)"},
    {"cuda_check", py_cuda_check, METH_O,
     "cuda_check(index): raises where the engine cannot use the GPU"},
    {"dtypes", native_dtypes, METH_NOARGS,
     "torch dtype name -> (engine dtype, has arithmetic)"},
    {"ops", native_ops, METH_NOARGS, "names of the op table"},
    {"describe", native_describe, METH_VARARGS,
     "describe(op) -> (schema, class, Ascend IR type) or None"},
    {"passes", native_passes, METH_NOARGS, "(name, help) of each pass"},
    {"parse_expression", py_parse_expression, METH_VARARGS,
     "parse_expression(text, [(name, number)], results) -> (steps, results)"},
    {"ge_dtypes", py_ge_dtypes, METH_NOARGS,
     "dtypes of the Ascend IR: [(name, number, number in files, torch's)]"},
    {"ge_formats", py_ge_formats, METH_NOARGS, "its formats"},
    {"ge_prototypes", py_ge_prototypes, METH_NOARGS, "its operator types"},
    {"ge_rows", py_ge_rows, METH_NOARGS,
     "[(op, type, when, arguments)]: see src/ir/ge.def"},
    {"without", native_without, METH_NOARGS,
     "(name, help) of each bit of Program's `without`"},
    {"call_classes", native_call_classes, METH_NOARGS,
     "(word, help) of what a call of a capture can be"},
    {"pool_stats", native_pool, METH_NOARGS, "the pool of result blocks"},
    {"limits", native_limits, METH_NOARGS,
     "bytes and flops a second of all threads, measured once; None: unknown"},
    {"set_core_limit", native_set_core_limit, METH_VARARGS,
     "set_core_limit(cube, vector): of this thread's stream; 0: none"},
    {"trim", native_trim, METH_NOARGS, "gives kept memory back"},
    {"profile_ranges", py_profile_ranges, METH_O,
     "profile_ranges(type): type(name) is a range of torch.profiler; None: "
     "nobody profiles"},
    {"recording", native_recording, METH_O,
     "recording(begin): programs this thread calls are run by torch"},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "torchair._native",
                                        .m_doc =
                                            "The graph engine of torchair.",
                                        .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *m = PyModule_Create(&definition);
    if (!m)
        return NULL;
    if (errors_init(m) || py_graph_init(m) || py_program_init(m) ||
        py_capture_init(m) || py_direct_init(m) || py_trained_init(m) ||
        py_dispatch_init(m) || py_npu_init(m) || py_random_init(m) ||
        PyModule_AddStringConstant(m, "version", AIR_VERSION))
        Py_CLEAR(m);
    return m;
}
