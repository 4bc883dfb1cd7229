/* py_npu.c: the device `npu` over host memory.
 *
 * torch knows the device as PrivateUse1; package torch_npu registers its name
 * and its operators. Memory is ordinary host memory, so a tensor of the device
 * is one view of it and a CPU tensor another: alias() makes either from the
 * other without a copy. Operators come here through torch's boxed fallback:
 * arguments become CPU tensors on the same memory, torch's CPU kernel runs,
 * results become tensors of the device.
 */
#include "py.h"

#include <stdatomic.h>
#include <string.h>

/* In the stable ABI since 3.13, exported since 3.4. */
extern void *PyMem_RawMalloc(size_t size);
extern void PyMem_RawFree(void *ptr);

static struct {
    PyObject *cpu;       /* torch.device("cpu") */
    PyObject *fresh;     /* fresh(t): a CPU tensor with t's layout, no data */
    PyObject *adopt;     /* adopt(t, cpu): t becomes what cpu has become */
    PyObject *lazy_bits; /* lazy_bits(t, alias): alias with t's conj, neg */
    PyObject *retry;     /* retry(op, args, kwargs): out= that has to grow */
    PyObject *number;    /* number(op, args, kwargs): a number for a tensor */
    PyObject *op;        /* "_op" */
} npu;

/* ---- memory in use ---- */

static struct {
    atomic_llong live, peak, blocks, total;
} memory;

void
py_npu_count(long long bytes)
{
    long long live = atomic_fetch_add(&memory.live, bytes) + bytes;
    long long peak = atomic_load(&memory.peak);
    while (live > peak &&
           !atomic_compare_exchange_weak(&memory.peak, &peak, live))
        continue;
    atomic_fetch_add(&memory.blocks, bytes < 0 ? -1 : 1);
    if (bytes > 0)
        atomic_fetch_add(&memory.total, bytes);
}

static PyObject *
npu_memory(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("{sL,sL,sL,sL}", "live", atomic_load(&memory.live),
                         "peak", atomic_load(&memory.peak), "blocks",
                         atomic_load(&memory.blocks), "total",
                         atomic_load(&memory.total));
}

static PyObject *
npu_memory_reset(PyObject *self, PyObject *accumulated)
{
    (void)self;
    if (accumulated == Py_True)
        atomic_store(&memory.total, atomic_load(&memory.live));
    else
        atomic_store(&memory.peak, atomic_load(&memory.live));
    Py_RETURN_NONE;
}

/* ---- the same memory on another device ---- */

typedef struct {
    dl_managed m;
    dl_managed *source; /* keeps the memory alive */
    long long bytes;    /* counted while alive; 0: a CPU view */
} view;

/* Any thread, mostly without the GIL. */
static void
view_delete(dl_managed *m)
{
    view *v = m->ctx;
    if (v->source->deleter)
        v->source->deleter(v->source);
    if (v->bytes)
        py_npu_count(-v->bytes);
    PyMem_RawFree(v);
}

static long long
span_bytes(const dl_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return 0;
        last += (t->shape[i] - 1) * t->strides[i];
    }
    return (last + 1) * ((t->dtype.bits + 7) / 8);
}

static PyObject *
alias(PyObject *tensor, int32_t device)
{
    dl_managed *source;
    void *out = NULL;
    if (torch_api.dl->from_object(tensor, &source))
        return NULL;
    view *v = PyMem_RawMalloc(sizeof *v);
    if (!v) {
        source->deleter(source);
        return PyErr_NoMemory();
    }
    *v = (view){.m = *source, .source = source};
    v->m.ctx = v;
    v->m.deleter = view_delete;
    v->m.t.device = (dl_device){device, 0};
    if (device == DL_EXT && (v->bytes = span_bytes(&v->m.t)))
        py_npu_count(v->bytes);
    return torch_api.dl->to_object(&v->m, &out) ? NULL : out;
}

static PyObject *
npu_alias(PyObject *self, PyObject *args)
{
    PyObject *tensor;
    int to_npu;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!p", torch_api.tensor, &tensor, &to_npu))
        return NULL;
    return alias(tensor, to_npu ? DL_EXT : DL_CPU);
}

/* ---- arguments: npu -> cpu ---- */

typedef struct {
    struct {
        PyObject *own, *cpu; /* borrowed; owned */
    } * pairs;
    size_t count, room;
} call;

static int
grow(call *c)
{
    size_t room = c->room ? 2 * c->room : 8;
    void *pairs = PyMem_Realloc(c->pairs, room * sizeof *c->pairs);
    if (!pairs) {
        PyErr_NoMemory();
        return -1;
    }
    c->pairs = pairs;
    c->room = room;
    return 0;
}

static bool
has_lazy_bits(PyObject *tensor)
{
    bool found = false;
    static const char *const names[] = {"is_conj", "is_neg"};
    for (int i = 0; i < 2 && !found; i++) {
        PyObject *is = PyObject_CallMethod(tensor, names[i], NULL);
        found = is == Py_True;
        Py_XDECREF(is);
    }
    return found;
}

/* A new reference to a CPU tensor on the memory of `own`. An empty one gets
 * memory of its own: an operator may want to resize it. */
static PyObject *
to_cpu(PyObject *own, const dl_tensor *t)
{
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0)
            return PyObject_CallFunctionObjArgs(npu.fresh, own, NULL);
    PyObject *cpu = alias(own, DL_CPU);
    if (cpu && has_lazy_bits(own)) {
        PyObject *with =
            PyObject_CallFunctionObjArgs(npu.lazy_bits, own, cpu, NULL);
        Py_DECREF(cpu);
        cpu = with;
    }
    return cpu;
}

static PyObject *
tensor_argument(call *c, PyObject *own)
{
    dl_tensor t;
    if (torch_api.dl->view(own, &t)) {
        PyErr_Clear();
        return Py_NewRef(own);
    }
    if (t.device.type != DL_EXT)
        return Py_NewRef(own);
    for (size_t i = 0; i < c->count; i++)
        if (c->pairs[i].own == own)
            return Py_NewRef(c->pairs[i].cpu);
    if (c->count == c->room && grow(c))
        return NULL;
    PyObject *cpu = to_cpu(own, &t);
    if (!cpu)
        return NULL;
    c->pairs[c->count].own = own;
    c->pairs[c->count++].cpu = cpu;
    return Py_NewRef(cpu);
}

static PyObject *argument(call *c, PyObject *x);

static PyObject *
list_argument(call *c, PyObject *x)
{
    Py_ssize_t n = PySequence_Size(x);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *item = PySequence_GetItem(x, i);
        PyObject *mapped = item ? argument(c, item) : NULL;
        Py_XDECREF(item);
        if (!mapped || PyList_SetItem(list, i, mapped))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *
argument(call *c, PyObject *x)
{
    if (PyObject_TypeCheck(x, torch_api.tensor))
        return tensor_argument(c, x);
    if (PyList_Check(x) || PyTuple_Check(x))
        return list_argument(c, x);
    if (Py_TYPE(x) == Py_TYPE(npu.cpu))
        return Py_NewRef(npu.cpu);
    return Py_NewRef(x);
}

static PyObject *
tuple_arguments(call *c, PyObject *args)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *out = PyTuple_New(n - 1);
    for (Py_ssize_t i = 1; out && i < n; i++) {
        PyObject *mapped = argument(c, PyTuple_GetItem(args, i));
        if (!mapped || PyTuple_SetItem(out, i - 1, mapped))
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *
dict_arguments(call *c, PyObject *kwargs)
{
    PyObject *out = PyDict_New(), *key, *value;
    Py_ssize_t at = 0;
    while (out && kwargs && PyDict_Next(kwargs, &at, &key, &value)) {
        PyObject *mapped = argument(c, value);
        if (!mapped || PyDict_SetItem(out, key, mapped))
            Py_CLEAR(out);
        Py_XDECREF(mapped);
    }
    return out;
}

/* ---- results: cpu -> npu ---- */

static PyObject *
tensor_result(PyObject *x)
{
    dl_tensor t;
    if (!torch_api.dl->view(x, &t))
        return t.device.type == DL_CPU ? alias(x, DL_EXT) : Py_NewRef(x);
    PyErr_SetString(PyExc_NotImplementedError,
                    "device npu has strided tensors only, and this operator "
                    "gives another layout: move its operands with .cpu()");
    return NULL;
}

static PyObject *
result(const call *c, PyObject *x)
{
    if (PyObject_TypeCheck(x, torch_api.tensor)) {
        for (size_t i = 0; i < c->count; i++)
            if (c->pairs[i].cpu == x)
                return Py_NewRef(c->pairs[i].own);
        return tensor_result(x);
    }
    bool is_list = PyList_Check(x);
    if (!is_list && !PyTuple_Check(x))
        return Py_NewRef(x);
    Py_ssize_t n = PySequence_Size(x);
    PyObject *out = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *item = is_list ? PyList_GetItem(x, i) : PyTuple_GetItem(x, i);
        PyObject *mapped = result(c, item);
        if (!mapped || (is_list ? PyList_SetItem(out, i, mapped)
                                : PyTuple_SetItem(out, i, mapped)))
            Py_CLEAR(out);
    }
    return out;
}

static bool
same_view(PyObject *a, PyObject *b)
{
    dl_tensor x, y;
    if (torch_api.dl->view(a, &x) || torch_api.dl->view(b, &y)) {
        PyErr_Clear();
        return true;
    }
    size_t bytes = (size_t)x.ndim * sizeof *x.shape;
    bool same = x.ndim == y.ndim && !memcmp(x.shape, y.shape, bytes) &&
                !memcmp(x.strides, y.strides, bytes);
    for (int i = 0; same && i < x.ndim; i++)
        if (x.shape[i] == 0) /* the fresh tensor of an empty argument */
            return true;
    return same && x.data == y.data;
}

/* An operator may have resized an argument (out=, resize_). */
static int
take_over_resized(const call *c)
{
    for (size_t i = 0; i < c->count; i++) {
        if (same_view(c->pairs[i].own, c->pairs[i].cpu))
            continue;
        PyObject *done = PyObject_CallFunctionObjArgs(
            npu.adopt, c->pairs[i].own, c->pairs[i].cpu, NULL);
        if (!done)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

/* ---- the fallback ---- */

static PyObject *
run_kernel(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *kernel = PyObject_GetAttr(op, npu.op);
    PyObject *found = kernel ? PyObject_Call(kernel, args, kwargs) : NULL;
    Py_XDECREF(kernel);
    return found;
}

/* What an error of torch's says that can be helped, both before anything is
 * written: memory that another tensor owns cannot grow, and torch hands
 * numbers to Python where an operator takes a tensor. */
static PyObject *
find_help(PyObject *error)
{
    PyObject *text = error ? PyObject_Str(error) : NULL;
    PyObject *utf8 = text ? PyUnicode_AsUTF8String(text) : NULL;
    const char *says = utf8 ? PyBytes_AsString(utf8) : "";
    PyObject *help = NULL;
    if (strstr(says, "not resizable"))
        help = npu.retry;
    else if (strstr(says, "Expected a value of type 'Tensor"))
        help = npu.number;
    Py_XDECREF(utf8);
    Py_XDECREF(text);
    return help;
}

static PyObject *
call_helped(PyObject *op, PyObject *args, PyObject *kwargs)
{
    PyObject *type, *value, *trace, *found = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *help = find_help(value);
    if (!help) {
        PyErr_Restore(type, value, trace);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    if (rest)
        found = PyObject_CallFunctionObjArgs(help, op, rest,
                                             kwargs ? kwargs : Py_None, NULL);
    Py_XDECREF(rest);
    return found;
}

/* npu_call(op, *args, **kwargs): op by torch's CPU kernel, on the same memory
 */
static PyObject *
npu_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    call c = {0};
    PyObject *found = NULL, *out = NULL;
    (void)self;
    if (PyTuple_Size(args) < 1) {
        PyErr_SetString(PyExc_TypeError, "npu_call(op, *args, **kwargs)");
        return NULL;
    }
    PyObject *op = PyTuple_GetItem(args, 0);
    PyObject *cpu_args = tuple_arguments(&c, args);
    PyObject *cpu_kwargs = cpu_args ? dict_arguments(&c, kwargs) : NULL;
    bool called = cpu_kwargs != NULL;
    if (called)
        found = run_kernel(op, cpu_args, cpu_kwargs);
    if (found && !take_over_resized(&c))
        out = result(&c, found);
    else if (called && !found)
        out = call_helped(op, args, kwargs);
    Py_XDECREF(found);
    Py_XDECREF(cpu_kwargs);
    Py_XDECREF(cpu_args);
    for (size_t i = 0; i < c.count; i++)
        Py_DECREF(c.pairs[i].cpu);
    PyMem_Free(c.pairs);
    return out;
}

/* ---- module ---- */

/* npu_enable(cpu_device, fresh, adopt, lazy_bits, retry, number): from now on
 * tensors of PrivateUse1 are known to have host memory. */
static PyObject *
npu_enable(PyObject *self, PyObject *args)
{
    PyObject *cpu, *fresh, *adopt, *lazy_bits, *retry, *number;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOOO", &cpu, &fresh, &adopt, &lazy_bits,
                          &retry, &number))
        return NULL;
    if (!torch_api.dl) {
        PyErr_SetString(PyExc_RuntimeError, "torchair._native.start() first");
        return NULL;
    }
    npu.cpu = Py_NewRef(cpu);
    npu.fresh = Py_NewRef(fresh);
    npu.adopt = Py_NewRef(adopt);
    npu.lazy_bits = Py_NewRef(lazy_bits);
    npu.retry = Py_NewRef(retry);
    npu.number = Py_NewRef(number);
    npu.op = PyUnicode_InternFromString("_op");
    torch_api.host_npu = true;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"npu_enable", npu_enable, METH_VARARGS,
     "npu_enable(cpu_device, fresh, adopt, lazy_bits, retry, number)"},
    {"npu_alias", npu_alias, METH_VARARGS,
     "npu_alias(tensor, to_npu): the same memory on the other device"},
    {"npu_call", (PyCFunction)(void (*)(void))npu_call,
     METH_VARARGS | METH_KEYWORDS,
     "npu_call(op, *args, **kwargs): op by torch's CPU kernel"},
    {"npu_memory", npu_memory, METH_NOARGS,
     "bytes and blocks that tensors of the device hold"},
    {"npu_memory_reset", npu_memory_reset, METH_O,
     "npu_memory_reset(accumulated): True: total = live, else peak = live"},
    {NULL, NULL, 0, NULL}};

int
py_npu_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
