/* py_graph.c: the graph builder: air.h's functions with Python arguments.
 * Size expressions and values are plain integers (their ids). */
#include "py.h"

#include <string.h>

typedef struct {
    PyObject_HEAD air_graph *graph;
    int place; /* of its tensors */
} py_graph;

PyTypeObject *py_graph_type;

const air_graph *
py_graph_get(PyObject *o)
{
    if (Py_TYPE(o) == py_graph_type)
        return ((py_graph *)o)->graph;
    PyErr_SetString(PyExc_TypeError, "a torchair._native.Graph is expected");
    return NULL;
}

int
py_graph_place(PyObject *graph)
{
    return ((py_graph *)graph)->place;
}

static air_graph *
graph_of(PyObject *self)
{
    return ((py_graph *)self)->graph;
}

static PyObject *
wrap_graph(PyTypeObject *type, air_graph *graph, int place)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    py_graph *self = (py_graph *)alloc(type, 0);
    if (self)
        *self = (py_graph){self->ob_base, graph, place};
    else
        air_graph_destroy(graph);
    return (PyObject *)self;
}

static PyObject *
graph_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"name", "place", NULL};
    const char *name = "graph";
    int place = PLACE_HOST;
    air_context *ctx;
    air_graph *graph;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|si", names, &name,
                                     &place))
        return NULL;
    ctx = py_context_at(place);
    if (!ctx || py_check(air_graph_create(ctx, name, &graph)))
        return NULL;
    return wrap_graph(type, graph, place);
}

static PyObject *
graph_parse(PyObject *type, PyObject *args)
{
    const char *text;
    Py_ssize_t length;
    int place = PLACE_HOST;
    if (!PyArg_ParseTuple(args, "s#|i", &text, &length, &place))
        return NULL;
    air_context *ctx = py_context_at(place);
    air_graph *graph = NULL;
    if (!ctx || py_check(air_graph_parse(ctx, text, (size_t)length, &graph)))
        return NULL;
    return wrap_graph((PyTypeObject *)type, graph, place);
}

static void
graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (graph_of(self))
        air_graph_destroy(graph_of(self));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- sizes ---- */

static PyObject *
dim_or_error(air_status status, air_dim dim)
{
    return py_check(status) ? NULL : PyLong_FromUnsignedLong(dim.id);
}

static PyObject *
graph_dim(PyObject *self, PyObject *arg)
{
    long long value = PyLong_AsLongLong(arg);
    air_dim dim = {0};
    if (value == -1 && PyErr_Occurred())
        return NULL;
    air_status status = air_dim_const(graph_of(self), value, &dim);
    return dim_or_error(status, dim);
}

static PyObject *
graph_symbol(PyObject *self, PyObject *args)
{
    const char *name;
    long long min, max, hint;
    air_dim dim = {0};
    if (!PyArg_ParseTuple(args, "sLLL", &name, &min, &max, &hint))
        return NULL;
    air_status status =
        air_dim_symbol(graph_of(self), name, min, max, hint, &dim);
    return dim_or_error(status, dim);
}

static PyObject *
graph_dim_op(PyObject *self, PyObject *args)
{
    const char *op;
    air_dim a, b, dim = {0};
    if (!PyArg_ParseTuple(args, "sII", &op, &a.id, &b.id))
        return NULL;
    air_status status = air_dim_make(graph_of(self), op, a, b, &dim);
    return dim_or_error(status, dim);
}

static PyObject *
graph_hint(PyObject *self, PyObject *arg)
{
    air_dim dim = {(uint32_t)PyLong_AsUnsignedLong(arg)};
    int64_t value;
    if (PyErr_Occurred() || py_check(air_dim_hint(graph_of(self), dim, &value)))
        return NULL;
    return PyLong_FromLongLong(value);
}

/* ---- lists ---- */

/* Item i of a list or tuple, borrowed. */
static PyObject *
item_of(PyObject *sequence, Py_ssize_t i)
{
    return PyList_Check(sequence) ? PyList_GetItem(sequence, i)
                                  : PyTuple_GetItem(sequence, i);
}

static Py_ssize_t
length_of(PyObject *sequence)
{
    if (PyList_Check(sequence))
        return PyList_Size(sequence);
    if (PyTuple_Check(sequence))
        return PyTuple_Size(sequence);
    PyErr_SetString(PyExc_TypeError, "a list or tuple is expected");
    return -1;
}

/* The ids in a list; free with PyMem_Free. NULL with an error. */
static uint32_t *
read_ids(PyObject *list, size_t *out_count)
{
    Py_ssize_t n = length_of(list);
    if (n < 0)
        return NULL;
    uint32_t *ids = PyMem_Malloc(((size_t)n + 1) * sizeof *ids);
    if (!ids) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = item_of(list, i);
        ids[i] = o == Py_None ? UINT32_MAX : (uint32_t)PyLong_AsUnsignedLong(o);
    }
    *out_count = (size_t)n;
    if (!PyErr_Occurred())
        return ids;
    PyMem_Free(ids);
    return NULL;
}
_Static_assert(sizeof(air_dim) == sizeof(uint32_t), "ids are plain numbers");
_Static_assert(sizeof(air_ref) == sizeof(uint32_t), "ids are plain numbers");

/* ---- inputs ---- */

static PyObject *
graph_input(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *dims;
    int dtype;
    unsigned flags = 0;
    size_t rank;
    air_ref out = {0};
    if (!PyArg_ParseTuple(args, "siO|I", &name, &dtype, &dims, &flags))
        return NULL;
    uint32_t *ids = read_ids(dims, &rank);
    if (!ids)
        return NULL;
    air_status status =
        air_graph_add_input(graph_of(self), name, (air_dtype)dtype, (int)rank,
                            (const air_dim *)ids, flags, &out);
    PyMem_Free(ids);
    return py_check(status) ? NULL : PyLong_FromUnsignedLong(out.id);
}

static PyObject *
graph_int_input(PyObject *self, PyObject *args)
{
    const char *name;
    air_dim dim;
    if (!PyArg_ParseTuple(args, "sI", &name, &dim.id) ||
        py_check(air_graph_add_int_input(graph_of(self), name, dim)))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- nodes ---- */

static int
read_floats(PyObject *list, air_attr *out)
{
    Py_ssize_t n = length_of(list);
    double *items =
        n < 0 ? NULL : PyMem_Malloc(((size_t)n + 1) * sizeof *items);
    if (!items)
        return n < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < n; i++)
        items[i] = PyFloat_AsDouble(item_of(list, i));
    out->floats = items;
    out->count = (size_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

static int
read_bools(PyObject *list, air_attr *out)
{
    Py_ssize_t n = length_of(list);
    bool *items = n < 0 ? NULL : PyMem_Malloc((size_t)n + 1);
    if (!items)
        return n < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < n; i++)
        items[i] = PyObject_IsTrue(item_of(list, i)) == 1;
    out->bools = items;
    out->count = (size_t)n;
    return 0;
}

static int
read_str(PyObject *str, air_attr *out)
{
    PyObject *utf8 = PyUnicode_AsUTF8String(str);
    if (!utf8)
        return -1;
    size_t size = (size_t)PyBytes_Size(utf8) + 1;
    char *copy = PyMem_Malloc(size);
    if (copy)
        memcpy(copy, PyBytes_AsString(utf8), size);
    Py_DECREF(utf8);
    out->str = copy;
    return copy ? 0 : (PyErr_NoMemory(), -1);
}

static int
read_attr(PyObject *kind, PyObject *o, air_attr *out)
{
    out->kind = (air_attr_kind)PyLong_AsLong(kind);
    switch (out->kind) {
    case AIR_ATTR_NONE: break;
    case AIR_ATTR_VALUE:
        out->value.id = (uint32_t)PyLong_AsUnsignedLong(o);
        break;
    case AIR_ATTR_INT: out->dim.id = (uint32_t)PyLong_AsUnsignedLong(o); break;
    case AIR_ATTR_VALUES:
    case AIR_ATTR_INTS:
        out->values = (const air_ref *)read_ids(o, &out->count);
        break;
    case AIR_ATTR_FLOAT: out->f = PyFloat_AsDouble(o); break;
    case AIR_ATTR_FLOATS: return read_floats(o, out);
    case AIR_ATTR_BOOL: out->b = PyObject_IsTrue(o) == 1; break;
    case AIR_ATTR_BOOLS: return read_bools(o, out);
    case AIR_ATTR_DTYPE: out->dtype = (air_dtype)PyLong_AsLong(o); break;
    case AIR_ATTR_STR: return read_str(o, out);
    default: PyErr_SetString(PyExc_ValueError, "unknown kind of attribute");
    }
    return PyErr_Occurred() ? -1 : 0;
}

static void
free_attr(air_attr *a)
{
    const void *list = NULL;
    switch (a->kind) {
    case AIR_ATTR_VALUES:
    case AIR_ATTR_INTS: list = a->values; break;
    case AIR_ATTR_FLOATS: list = a->floats; break;
    case AIR_ATTR_BOOLS: list = a->bools; break;
    case AIR_ATTR_STR: list = a->str; break;
    default: break;
    }
    void *memory;
    memcpy(&memory, &list, sizeof memory);
    PyMem_Free(memory);
}

static PyObject *
ref_tuple(size_t n, const air_ref *refs)
{
    PyObject *t = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; t && i < n; i++) {
        PyObject *id = PyLong_FromUnsignedLong(refs[i].id);
        if (!id || PyTuple_SetItem(t, (Py_ssize_t)i, id))
            Py_CLEAR(t);
    }
    return t;
}

enum { MAX_ATTRS = 40, MAX_RESULTS = 64 };

/* node(op, (kind, value, kind, value, ...), location, nresults) */
static PyObject *
graph_node(PyObject *self, PyObject *args)
{
    const char *op, *location;
    PyObject *pairs;
    Py_ssize_t nouts;
    air_attr attrs[MAX_ATTRS];
    air_ref outs[MAX_RESULTS];
    if (!PyArg_ParseTuple(args, "sOzn", &op, &pairs, &location, &nouts))
        return NULL;
    Py_ssize_t n = length_of(pairs) / 2, i = 0;
    if (n > MAX_ATTRS || nouts > MAX_RESULTS || nouts < 0)
        PyErr_SetString(PyExc_ValueError, "too many arguments or results");
    else
        for (; i < n && !PyErr_Occurred(); i++) {
            memset(&attrs[i], 0, sizeof attrs[i]);
            read_attr(item_of(pairs, 2 * i), item_of(pairs, 2 * i + 1),
                      &attrs[i]);
        }
    air_status status = AIR_OK;
    if (!PyErr_Occurred())
        status = air_graph_add_node(graph_of(self), op, (size_t)n, attrs,
                                    location, (size_t)nouts, outs);
    while (i-- > 0)
        free_attr(&attrs[i]);
    if (PyErr_Occurred() || py_check(status))
        return NULL;
    return ref_tuple((size_t)nouts, outs);
}

static int
read_type(PyObject *o, air_type *out)
{
    PyObject *dims;
    int dtype;
    size_t rank;
    if (!PyArg_ParseTuple(o, "iO", &dtype, &dims))
        return -1;
    uint32_t *ids = read_ids(dims, &rank);
    if (!ids)
        return -1;
    out->dtype = (air_dtype)dtype;
    out->rank = (int)rank;
    if (rank <= AIR_MAX_RANK)
        memcpy(out->dims, ids, rank * sizeof *ids);
    else
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
    PyMem_Free(ids);
    return PyErr_Occurred() ? -1 : 0;
}

/* host(op, id, reason, inputs, location, [(dtype, dims), ...], kind, reads) */
static PyObject *
graph_host(PyObject *self, PyObject *args)
{
    const char *op, *reason, *location;
    PyObject *inputs, *types, *numbers;
    unsigned id;
    int kind;
    size_t nin = 0, nreads = 0;
    if (!PyArg_ParseTuple(args, "sIsOzOiO", &op, &id, &reason, &inputs,
                          &location, &types, &kind, &numbers))
        return NULL;
    Py_ssize_t n = length_of(types), i = 0;
    uint32_t *refs = n < 0 ? NULL : read_ids(inputs, &nin);
    uint32_t *reads = refs ? read_ids(numbers, &nreads) : NULL;
    if (!reads) {
        PyMem_Free(refs);
        return NULL;
    }
    air_type *outs = PyMem_Calloc((size_t)n + 1, sizeof *outs);
    air_ref *made = PyMem_Calloc((size_t)n + 1, sizeof *made);
    PyObject *result = NULL;
    if (!outs || !made)
        PyErr_NoMemory();
    else
        while (i < n && !read_type(item_of(types, i), &outs[i]))
            i++;
    if (!PyErr_Occurred() &&
        !py_check(air_graph_add_host(graph_of(self), (air_host_kind)kind, op,
                                     id, reason, nin, (const air_ref *)refs,
                                     location, (size_t)n, outs, made)) &&
        !py_check(air_graph_host_reads(graph_of(self), nreads,
                                       (const air_dim *)reads)))
        result = ref_tuple((size_t)n, made);
    PyMem_Free(made);
    PyMem_Free(outs);
    PyMem_Free(reads);
    PyMem_Free(refs);
    return result;
}

/* type(ref) -> (dtype, dims) */
static PyObject *
graph_type(PyObject *self, PyObject *arg)
{
    air_ref ref = {(uint32_t)PyLong_AsUnsignedLong(arg)};
    air_type type;
    if (PyErr_Occurred() ||
        py_check(air_graph_get_type(graph_of(self), ref, &type)))
        return NULL;
    PyObject *dims = ref_tuple((size_t)type.rank, (air_ref *)type.dims);
    return dims ? Py_BuildValue("iN", (int)type.dtype, dims) : NULL;
}

/* ---- results, text ---- */

/* results(refs, [strides or None, ...]) */
static PyObject *
graph_results(PyObject *self, PyObject *args)
{
    PyObject *refs, *strides;
    size_t n = 0, rank, i = 0;
    if (!PyArg_ParseTuple(args, "OO", &refs, &strides))
        return NULL;
    uint32_t *ids = read_ids(refs, &n);
    if (!ids)
        return NULL;
    uint32_t **lists = PyMem_Calloc(n + 1, sizeof *lists);
    if (!lists)
        PyErr_NoMemory();
    else if (length_of(strides) != (Py_ssize_t)n)
        PyErr_SetString(PyExc_ValueError, "one stride list per result");
    for (; lists && i < n && !PyErr_Occurred(); i++) {
        PyObject *o = item_of(strides, (Py_ssize_t)i);
        if (o != Py_None)
            lists[i] = read_ids(o, &rank);
    }
    air_status status = AIR_OK;
    if (!PyErr_Occurred())
        status = air_graph_set_results(graph_of(self), n, (const air_ref *)ids,
                                       (const air_dim *const *)lists);
    while (i-- > 0)
        PyMem_Free(lists[i]);
    PyMem_Free((void *)lists);
    PyMem_Free(ids);
    if (PyErr_Occurred() || py_check(status))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
graph_text(PyObject *self, PyObject *unused)
{
    (void)unused;
    char *text;
    if (py_check(air_graph_print(graph_of(self), &text)))
        return NULL;
    PyObject *out = PyUnicode_FromString(text);
    air_text_free(graph_of(self), text);
    return out;
}

static PyObject *
graph_ge_text(PyObject *self, PyObject *args)
{
    int form;
    char *text;
    if (!PyArg_ParseTuple(args, "i", &form) ||
        py_check(air_graph_print_ge(graph_of(self), (air_ge_form)form, &text)))
        return NULL;
    PyObject *out = PyUnicode_FromString(text);
    air_text_free(graph_of(self), text);
    return out;
}

/* (key, text or None, truth) of each; texts are those of the tuples. */
static air_note *
read_notes(PyObject *tuples, size_t *count)
{
    Py_ssize_t n = length_of(tuples);
    air_note *notes = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *notes);
    if (!notes && !PyErr_Occurred())
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        int truth = 0;
        if (PyArg_ParseTuple(item_of(tuples, i), "szp", &notes[i].key,
                             &notes[i].text, &truth))
            notes[i].truth = truth != 0;
    }
    *count = (size_t)n;
    return notes;
}

static PyObject *
graph_scope(PyObject *self, PyObject *args)
{
    air_scope scope = {0};
    int joined, untimed;
    PyObject *tuples;
    if (!PyArg_ParseTuple(args, "iiippO!", &scope.contractions, &scope.others,
                          &scope.lane, &joined, &untimed, &PyTuple_Type,
                          &tuples))
        return NULL;
    scope.joined = joined != 0;
    scope.untimed = untimed != 0;
    air_note *notes = read_notes(tuples, &scope.nnotes);
    scope.notes = notes;
    bool failed = PyErr_Occurred() ||
                  py_check(air_graph_set_scope(graph_of(self), &scope));
    PyMem_Free(notes);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
graph_tag(PyObject *self, PyObject *args)
{
    const char *tag, *origin;
    air_ref ref;
    if (!PyArg_ParseTuple(args, "Isz", &ref.id, &tag, &origin) ||
        py_check(air_graph_add_tag(graph_of(self), ref, tag, origin)))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"parse", graph_parse, METH_VARARGS | METH_CLASS,
     "parse(text, place=0): a graph from its text form"},
    {"text", graph_text, METH_NOARGS, "the text form"},
    {"ge_text", graph_ge_text, METH_VARARGS,
     "ge_text(form): as Ascend IR; 0: txt, 1: pbtxt, 2: py, "
     "3: onnx"},
    {"dim", graph_dim, METH_O, "a constant size"},
    {"symbol", graph_symbol, METH_VARARGS, "symbol(name, min, max, hint)"},
    {"dim_op", graph_dim_op, METH_VARARGS, "dim_op(op, a, b)"},
    {"hint", graph_hint, METH_O, "hint(dim): its value as traced"},
    {"input", graph_input, METH_VARARGS, "input(name, dtype, dims, flags)"},
    {"int_input", graph_int_input, METH_VARARGS, "int_input(name, dim)"},
    {"node", graph_node, METH_VARARGS, "node(op, attrs, location, nouts)"},
    {"scope", graph_scope, METH_VARARGS,
     "scope(contractions, others, lane, joined, untimed, notes): of nodes to "
     "come; notes: (key, text or None, truth) of each"},
    {"host", graph_host, METH_VARARGS,
     "host(op, id, reason, inputs, location, types, kind=0)"},
    {"tag", graph_tag, METH_VARARGS,
     "tag(ref, name, origin): what watchers see; origin: as its file is "
     "called, or None"},
    {"type", graph_type, METH_O, "type(ref) -> (dtype, dims)"},
    {"results", graph_results, METH_VARARGS, "results(refs, strides)"},
    {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "A graph under construction."},
                              {Py_tp_new, graph_new},
                              {Py_tp_dealloc, graph_dealloc},
                              {Py_tp_methods, methods},
                              {0, NULL}};
static PyType_Spec spec = {.name = "torchair._native.Graph",
                           .basicsize = sizeof(py_graph),
                           .flags =
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                           .slots = slots};

int
py_graph_init(PyObject *module)
{
    return py_type_add(module, &spec, &py_graph_type);
}
