/* py_capture.c: captures of a program as Python sees them: options, the static
 * arguments of the last call, what static buffers keep alive, graph pools. */
#include "py.h"

#include <string.h>
#include <structmember.h>

/* ---- graph pools ---- */

typedef struct {
    PyObject_HEAD air_graph_pool *pool;
} py_graph_pool;

static PyTypeObject *pool_type;

/* A pair of integers, one of them 0, the other positive. */
static int
read_id(PyObject *id, int64_t pair[2])
{
    bool good = PyTuple_Check(id) && PyTuple_Size(id) == 2;
    for (int i = 0; good && i < 2; i++) {
        pair[i] = PyLong_AsLongLong(PyTuple_GetItem(id, i));
        good = !PyErr_Occurred() && pair[i] >= 0;
    }
    if (good && (pair[0] == 0) != (pair[1] == 0))
        return 0;
    PyErr_Format(PyExc_TypeError,
                 "Invalid graph pool handle type: %R; take one of "
                 "graph_pool_handle() or pool()",
                 id);
    return -1;
}

static air_graph_pool *
find_pool(PyObject *id, int place)
{
    air_context *ctx = py_context_at(place);
    air_graph_pool *pool;
    int64_t pair[2];
    if (!ctx)
        return NULL;
    if (id == Py_None)
        return py_check(air_graph_pool_create(ctx, &pool)) ? NULL : pool;
    if (read_id(id, pair) || py_check(air_graph_pool_find(ctx, pair, &pool)))
        return NULL;
    return pool;
}

static PyObject *
pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"id", "gpu", NULL};
    PyObject *id = Py_None;
    int gpu = -1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|Oi", names, &id, &gpu))
        return NULL;
    air_graph_pool *pool =
        find_pool(id, gpu < 0 ? PLACE_HOST : PLACE_CUDA + gpu);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    py_graph_pool *p = pool ? (py_graph_pool *)alloc(type, 0) : NULL;
    if (p)
        p->pool = pool;
    else
        air_graph_pool_release(pool);
    return (PyObject *)p;
}

static void
pool_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    air_graph_pool_release(((py_graph_pool *)self)->pool);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
pool_id(PyObject *self, void *unused)
{
    (void)unused;
    air_graph_pool_stats s;
    air_graph_pool_get_stats(((py_graph_pool *)self)->pool, &s);
    return Py_BuildValue("LL", (long long)s.id[0], (long long)s.id[1]);
}

static PyObject *
describe_pool(air_graph_pool *pool)
{
    air_graph_pool_stats s;
    air_graph_pool_get_stats(pool, &s);
    return Py_BuildValue("{s(LL),sK,sK,sK,sK,sK,sK,sK}", "id",
                         (long long)s.id[0], (long long)s.id[1], "live_blocks",
                         (unsigned long long)s.live_blocks, "live_bytes",
                         (unsigned long long)s.live_bytes, "stale_blocks",
                         (unsigned long long)s.stale_blocks, "mapped_bytes",
                         (unsigned long long)s.mapped_bytes, "largest_bytes",
                         (unsigned long long)s.largest_bytes, "captures",
                         (unsigned long long)s.captures, "generation",
                         (unsigned long long)s.generation);
}

static PyObject *
pool_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    return describe_pool(((py_graph_pool *)self)->pool);
}

static PyObject *
pool_mark_step(PyObject *self, PyObject *unused)
{
    (void)unused;
    air_graph_pool_mark_step(((py_graph_pool *)self)->pool);
    Py_RETURN_NONE;
}

static PyObject *
pool_trim(PyObject *self, PyObject *unused)
{
    (void)unused;
    air_graph_pool_trim(((py_graph_pool *)self)->pool);
    Py_RETURN_NONE;
}

static PyMethodDef pool_methods[] = {
    {"stats", pool_stats, METH_NOARGS, "memory, captures, generation"},
    {"mark_step", pool_mark_step, METH_NOARGS, "a new generation begins"},
    {"trim", pool_trim, METH_NOARGS, "gives free memory back"},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef pool_getset[] = {
    {"id", pool_id, NULL, "a pair of integers", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "Memory that captures share: GraphPool(id=None, gpu=-1)."},
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_getset},
    {0, NULL}};
static PyType_Spec pool_spec = {.name = "torchair._native.GraphPool",
                                .basicsize = sizeof(py_graph_pool),
                                .flags = Py_TPFLAGS_DEFAULT |
                                         Py_TPFLAGS_IMMUTABLETYPE,
                                .slots = pool_slots};

/* ---- options ---- */

/* None, True or False. */
static int
read_choice(PyObject *options, const char *name, air_choice *out)
{
    PyObject *o = PyObject_GetAttrString(options, name);
    if (!o)
        return -1;
    *out = o == Py_None    ? AIR_CHOICE_DEFAULT
           : o == Py_True  ? AIR_CHOICE_ON
           : o == Py_False ? AIR_CHOICE_OFF
                           : (air_choice)-1;
    Py_DECREF(o);
    if (*out != (air_choice)-1)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s must be None, True or False", name);
    return -1;
}

static int
read_flag(PyObject *options, const char *name, bool *out)
{
    PyObject *o = PyObject_GetAttrString(options, name);
    int truth = o ? PyObject_IsTrue(o) : -1;
    Py_XDECREF(o);
    *out = truth > 0;
    return truth < 0 ? -1 : 0;
}

static int
read_count(PyObject *options, const char *name, uint64_t *out)
{
    PyObject *o = PyObject_GetAttrString(options, name);
    *out = o ? PyLong_AsUnsignedLongLong(o) : 0;
    Py_XDECREF(o);
    return PyErr_Occurred() ? -1 : 0;
}

static int
read_error_mode(PyObject *options, air_capture_error_mode *out)
{
    static const char *const names[] = {"global", "thread_local", "relaxed"};
    PyObject *o = PyObject_GetAttrString(options, "error_mode");
    int found = -1;
    for (int i = 0; o && i < 3; i++)
        if (PyUnicode_Check(o) &&
            PyUnicode_CompareWithASCIIString(o, names[i]) == 0)
            found = i;
    if (o && found < 0)
        PyErr_Format(PyExc_ValueError,
                     "error_mode is %R; allowed are global, thread_local and "
                     "relaxed",
                     o);
    Py_XDECREF(o);
    *out = (air_capture_error_mode)found;
    return found < 0 ? -1 : 0;
}

/* The user's pool; else the one of the process, unless captures are to be
 * apart. */
static int
read_pool(PyObject *options, py_capture *c, air_capture_options *out)
{
    PyObject *id = PyObject_GetAttrString(options, "pool");
    air_context *ctx = py_context_at(c->place);
    if (id && id != Py_None)
        c->pool = find_pool(id, c->place);
    else if (id && ctx && !out->keep_apart)
        c->pool = py_default_pool(c->place);
    Py_XDECREF(id);
    out->pool = c->pool;
    return PyErr_Occurred() ? -1 : 0;
}

static int
read_listener(PyObject *options, py_capture *c)
{
    c->listener = PyObject_GetAttrString(options, "listener");
    if (c->listener == Py_None)
        Py_CLEAR(c->listener);
    return PyErr_Occurred() || read_flag(options, "trace", &c->trace) ? -1 : 0;
}

static int
read_options(PyObject *options, py_capture *c, air_capture_options *out)
{
    bool reuse;
    uint64_t warmups;
    if (read_count(options, "limit", &out->limit) ||
        read_choice(options, "clone_input", &out->clone_input) ||
        read_choice(options, "clone_output", &out->clone_output) ||
        read_flag(options, "frozen_parameter", &out->frozen_parameter) ||
        read_flag(options, "force_recapture", &out->force_recapture) ||
        read_flag(options, "reuse_memory", &reuse) ||
        read_count(options, "warmups", &warmups) ||
        read_error_mode(options, &out->error_mode) || read_listener(options, c))
        return -1;
    out->keep_apart = !reuse;
    out->warmups = (uint32_t)warmups;
    return read_pool(options, c, out);
}

/* ---- what static buffers keep alive ---- */

/* The inputs of the call that made a capture live as long as it does. */
static void
forget_graph(void *user, uint64_t graph)
{
    py_capture *c = user;
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(graph);
    if (key && c->held && PyDict_Contains(c->held, key) == 1)
        PyDict_DelItem(c->held, key);
    if (key && c->results && PyDict_Contains(c->results, key) == 1)
        PyDict_DelItem(c->results, key);
    Py_XDECREF(key);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

static PyObject *
find_graph(PyObject *dict, uint64_t graph)
{
    PyObject *key = PyLong_FromUnsignedLongLong(graph);
    PyObject *found = key ? PyDict_GetItemWithError(dict, key) : NULL;
    Py_XDECREF(key);
    return found;
}

static int
keep_graph(PyObject *dict, uint64_t graph, PyObject *stolen)
{
    PyObject *key = stolen ? PyLong_FromUnsignedLongLong(graph) : NULL;
    int failed = !key || PyDict_SetItem(dict, key, stolen);
    Py_XDECREF(key);
    Py_XDECREF(stolen);
    return failed ? -1 : 0;
}

static bool
is_new(air_call_class how)
{
    return how == AIR_CALL_CAPTURED || how == AIR_CALL_FORCED ||
           how == AIR_CALL_MUTATED || how == AIR_CALL_CORES;
}

/* The first call's argument. */
PyObject *
py_capture_argument(const py_capture *c, uint64_t graph, PyObject *const *args,
                    Py_ssize_t i)
{
    PyObject *held = c->held ? find_graph(c->held, graph) : NULL;
    PyObject *first = held ? PyTuple_GetItem(held, i) : NULL;
    return first ? first : args[i];
}

/* ---- results that are the same tensors at every call ---- */

PyObject *
py_capture_result(const py_capture *c, uint64_t graph, Py_ssize_t index,
                  const air_value *v)
{
    static const py_label label = {.what = "result"};
    PyObject *found = c->results ? find_graph(c->results, graph) : NULL;
    PyObject *ref = found ? PyTuple_GetItem(found, index) : NULL;
    PyObject *tensor = ref && ref != Py_None ? py_weak_get(ref) : NULL;
    const py_dtype *dtype;
    air_value was;
    if (!tensor ||
        py_tensor_read(tensor, &label, index, c->place, &was, &dtype) ||
        was.data != v->data) {
        PyErr_Clear();
        Py_CLEAR(tensor);
    }
    return tensor;
}

static PyObject *
weak_tuple(PyObject *made)
{
    Py_ssize_t n = PyTuple_Size(made);
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *o = PyTuple_GetItem(made, i);
        PyObject *ref = PyObject_TypeCheck(o, torch_api.tensor)
                            ? PyWeakref_NewRef(o, NULL)
                            : Py_NewRef(Py_None);
        if (!ref || PyTuple_SetItem(out, i, ref))
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *
copy_args(PyObject *const *args, Py_ssize_t n)
{
    PyObject *out = PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++)
        if (PyTuple_SetItem(out, i, Py_NewRef(args[i])))
            Py_CLEAR(out);
    return out;
}

int
py_capture_hold(const py_capture *c, const air_capture_call *call,
                PyObject *const *args, Py_ssize_t n)
{
    if (!c->held || !is_new(call->how))
        return 0;
    return keep_graph(c->held, call->graph, copy_args(args, n));
}

int
py_capture_made(const py_capture *c, const air_capture_call *call,
                PyObject *made)
{
    if (!c->results || !call->graph)
        return 0;
    return keep_graph(c->results, call->graph, weak_tuple(made));
}

int
py_capture_tell(const py_capture *c, const air_capture_call *call)
{
    if (!c->listener || (call->how == AIR_CALL_REPLAYED && !c->trace))
        return 0;
    PyObject *told =
        PyObject_CallFunction(c->listener, "sK", air_call_text(call->how, NULL),
                              (unsigned long long)call->graph);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

/* ---- static arguments ---- */

static bool
is_same(const py_static *s, PyObject *o)
{
    const PyTypeObject *type = Py_TYPE(o);
    void *data;
    return o == s->seen &&
           (type == torch_api.tensor || type == torch_api.parameter) &&
           torch_api.get_data_ptr((char *)o + sizeof(PyObject), &data) == 0 &&
           data == s->data;
}

bool
py_capture_is_bound(const py_capture *c, PyObject *const *args)
{
    if (!c->binding || (!torch_api.handles && c->nstatics > 0))
        return false;
    for (size_t i = 0; !c->frozen && i < c->nstatics; i++)
        if (!is_same(&c->statics[i], args[c->statics[i].arg]))
            return false;
    return true;
}

/* A frozen tensor may go, its memory may not. */
static int
keep_frozen(py_capture *c, PyObject *const *args)
{
    c->kept = PyTuple_New((Py_ssize_t)c->nstatics);
    for (size_t i = 0; c->kept && i < c->nstatics; i++) {
        PyObject *o =
            PyObject_CallMethod(args[c->statics[i].arg], "detach", NULL);
        if (!o || PyTuple_SetItem(c->kept, (Py_ssize_t)i, o))
            Py_CLEAR(c->kept);
    }
    return c->kept ? 0 : -1;
}

void
py_capture_unbind(const py_capture *c, py_binding *binding)
{
    if (!binding || --binding->users > 0)
        return;
    air_capture_unbind(c->capture, binding->engine);
    PyMem_Free(binding);
}

int
py_capture_bind(py_capture *c, PyObject *const *args, size_t nin,
                const air_value *inputs, size_t bytes)
{
    py_binding *made = PyMem_Calloc(1, sizeof *made);
    if (!made) {
        PyErr_NoMemory();
        return -1;
    }
    if (py_check(air_capture_bind(c->capture, nin, inputs, &made->engine))) {
        PyMem_Free(made);
        return -1;
    }
    made->users = 1;
    py_capture_unbind(c, c->binding);
    c->binding = made;
    c->static_bytes = bytes;
    for (size_t i = 0; i < c->nstatics; i++) {
        py_static *s = &c->statics[i];
        s->seen = args[s->arg];
        s->data = inputs[s->input].data;
    }
    return c->frozen && !c->kept ? keep_frozen(c, args) : 0;
}

/* sources: by input, the argument it is, negative for constants. */
static int
find_statics(py_capture *c, const air_graph *g, size_t nin,
             const Py_ssize_t *sources)
{
    air_input input;
    c->statics = PyMem_Calloc(nin + 1, sizeof *c->statics);
    c->dynamic = PyMem_Calloc(nin + 1, sizeof *c->dynamic);
    if (!c->statics || !c->dynamic) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < nin && air_graph_get_input(g, i, &input); i++) {
        bool is_static = !input.is_int && (input.flags & AIR_INPUT_PARAM);
        if (!is_static)
            c->dynamic[c->ndynamic++] = i;
        else if (sources[i] >= 0)
            c->statics[c->nstatics++] =
                (py_static){.arg = sources[i], .input = i};
    }
    return 0;
}

/* ---- life ---- */

int
py_capture_open(PyObject *options, air_program *program, const air_graph *g,
                int place, size_t nin, const Py_ssize_t *sources,
                py_capture **out)
{
    air_capture_options o = {.dropped = forget_graph};
    py_capture *c = PyMem_Calloc(1, sizeof *c);
    if (!c) {
        PyErr_NoMemory();
        return -1;
    }
    *out = c;
    c->place = place;
    c->program = program;
    o.user = c;
    if (read_options(options, c, &o) || find_statics(c, g, nin, sources))
        return -1;
    c->frozen = o.frozen_parameter;
    if (o.clone_input != AIR_CHOICE_DEFAULT && !(c->held = PyDict_New()))
        return -1;
    if (o.clone_output == AIR_CHOICE_OFF && !(c->results = PyDict_New()))
        return -1;
    return py_check(air_capture_create(program, &o, &c->capture));
}

void
py_capture_close(py_capture *c)
{
    if (!c)
        return;
    py_capture_unbind(c, c->binding);
    air_capture_destroy(c->capture);
    air_graph_pool_release(c->pool);
    Py_XDECREF(c->listener);
    Py_XDECREF(c->held);
    Py_XDECREF(c->results);
    Py_XDECREF(c->kept);
    PyMem_Free(c->statics);
    PyMem_Free(c->dynamic);
    PyMem_Free(c);
}

/* Lines of air_capture_print_hosts. */
static PyObject *
hosts_of(const py_capture *c)
{
    char *text;
    if (py_check(air_capture_print_hosts(c->capture, &text)))
        return NULL;
    PyObject *found = PyUnicode_FromString(text);
    air_program_text_free(c->program, text);
    PyObject *lines =
        found ? PyObject_CallMethod(found, "splitlines", NULL) : NULL;
    Py_XDECREF(found);
    return lines;
}

PyObject *
py_capture_stats(const py_capture *c)
{
    air_capture_stats s;
    air_capture_get_stats(c->capture, &s);
    PyObject *out =
        Py_BuildValue("{sK,sK,sK}", "graphs", (unsigned long long)s.graphs,
                      "copied_bytes", (unsigned long long)s.copied_bytes,
                      "dropped", (unsigned long long)s.dropped);
    PyObject *pool =
        out && c->pool ? describe_pool(c->pool) : Py_NewRef(Py_None);
    if (!pool || !out || PyDict_SetItemString(out, "pool", pool))
        Py_CLEAR(out);
    Py_XDECREF(pool);
    PyObject *hosts = out ? hosts_of(c) : NULL;
    if (!hosts || !out || PyDict_SetItemString(out, "hosts", hosts))
        Py_CLEAR(out);
    Py_XDECREF(hosts);
    for (int i = 0; out && i < AIR_CALL_COUNT; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(s.calls[i]);
        if (!n || PyDict_SetItemString(
                      out, air_call_text((air_call_class)i, NULL), n))
            Py_CLEAR(out);
        Py_XDECREF(n);
    }
    return out;
}

int
py_capture_init(PyObject *module)
{
    return py_type_add(module, &pool_spec, &pool_type);
}
