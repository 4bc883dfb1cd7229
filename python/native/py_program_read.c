/* py_program_read.c: how Python describes a program: its arguments, outputs and
 * HOST nodes, and the sizes it is prepared for. */
#include "py_program.h"

#include <string.h>

/* An entry is None (skipped), "int", a dtype's name, or that in a tuple: of a
 * scalar that has to be moved, or with another entry, of a lazy tensor. */
static int
read_arg_specs(py_program *p, PyObject *specs)
{
    p->nargs = PyTuple_Size(specs);
    p->args = PyMem_Calloc((size_t)p->nargs + 1, 1);
    p->dtypes = PyMem_Calloc((size_t)p->nargs + 1, sizeof *p->dtypes);
    if (!p->args || !p->dtypes) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < p->nargs; i++) {
        PyObject *s = PyTuple_GetItem(specs, i);
        if (s == Py_None)
            continue;
        p->nin++;
        p->args[i] = ARG_INT;
        const Py_ssize_t special = PyTuple_Check(s) ? PyTuple_Size(s) : 0;
        if (special && !(s = PyTuple_GetItem(s, 0)))
            return -1;
        if (PyUnicode_Check(s) &&
            PyUnicode_CompareWithASCIIString(s, "int") == 0)
            continue;
        p->args[i] = special > 1 ? ARG_LAZY : special ? ARG_SCALAR : ARG_TENSOR;
        if (py_dtype_read(s, &p->dtypes[i]))
            return -1;
    }
    p->nin += (size_t)PyTuple_Size(p->consts);
    return 0;
}

/* An entry is ("result", index, dtype name, place[, like]), ("arg" | "same",
 * index) or ("const" | "call", object). */
static int
read_out_spec(const py_program *p, PyObject *spec, out_spec *out)
{
    static const char *const kinds[] = {"result", "arg", "same", "const",
                                        "call"};
    PyObject *object, *dtype = NULL;
    const char *kind;
    int k = 0;
    out->like = -1;
    if (!PyArg_ParseTuple(spec, "sO|Oin", &kind, &object, &dtype, &out->place,
                          &out->like))
        return -1;
    while (k < 5 && strcmp(kinds[k], kind))
        k++;
    out->kind = (out_kind)k;
    if (k == OUT_CONST || k == OUT_CALL) {
        out->object = Py_NewRef(object);
        return 0;
    }
    out->index = PyLong_AsSsize_t(object);
    if (PyErr_Occurred())
        return -1;
    Py_ssize_t limit = k == OUT_ARG    ? p->nargs
                       : k == OUT_SAME ? out - p->outs
                                       : (Py_ssize_t)p->nresults;
    if (k > OUT_CALL || out->index < 0 || out->index >= limit ||
        (k == OUT_RESULT && !dtype)) {
        PyErr_SetString(PyExc_ValueError, "bad output description");
        return -1;
    }
    return k == OUT_RESULT ? py_dtype_read(dtype, &out->dtype) : 0;
}

/* An output that others lie in is a result that needs no other one. */
static int
check_likes(const py_program *p)
{
    for (Py_ssize_t i = 0; i < p->nouts; i++) {
        const Py_ssize_t like = p->outs[i].like;
        if (like < 0)
            continue;
        if (like >= p->nouts || p->outs[like].kind != OUT_RESULT ||
            p->outs[like].like >= 0) {
            PyErr_SetString(PyExc_ValueError, "bad output description");
            return -1;
        }
    }
    return 0;
}

static int
read_out_specs(py_program *p, PyObject *specs)
{
    p->outs = PyMem_Calloc((size_t)PyTuple_Size(specs) + 1, sizeof *p->outs);
    if (!p->outs) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0, n = PyTuple_Size(specs); i < n; i++) {
        p->nouts = i + 1;
        if (read_out_spec(p, PyTuple_GetItem(specs, i), &p->outs[i]))
            return -1;
    }
    return check_likes(p);
}

static int
find_sources(py_program *p)
{
    size_t k = 0;
    p->sources = PyMem_Calloc(p->nin + 1, sizeof *p->sources);
    if (!p->sources) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < p->nargs; i++)
        if (p->args[i] != ARG_SKIP)
            p->sources[k++] = i;
    for (Py_ssize_t i = 0; k < p->nin; i++)
        p->sources[k++] = -1 - i;
    return 0;
}

/* Arguments are called as the inputs of the graph that they are. */
static int
name_args(py_program *p, PyObject *graph)
{
    const air_graph *g = py_graph_get(graph);
    p->label = (py_label){.what = "input", .names = PyTuple_New(p->nargs)};
    for (Py_ssize_t i = 0, k = 0; p->label.names && i < p->nargs; i++) {
        air_input input;
        bool named = g && p->args[i] != ARG_SKIP &&
                     air_graph_get_input(g, (size_t)k++, &input);
        PyObject *name =
            named ? PyUnicode_FromString(input.name) : Py_NewRef(Py_None);
        if (!name || PyTuple_SetItem(p->label.names, i, name))
            Py_CLEAR(p->label.names);
    }
    return p->label.names && g ? 0 : -1;
}

static int
read_hosts(py_program *p, PyObject *specs)
{
    p->hosts = PyMem_Calloc((size_t)PyTuple_Size(specs) + 1, sizeof *p->hosts);
    if (!p->hosts) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0, n = PyTuple_Size(specs); i < n; i++) {
        if (py_host_read(PyTuple_GetItem(specs, i), &p->hosts[i]))
            return -1;
        p->nhosts++;
    }
    return 0;
}

int
py_program_read(py_program *p, PyObject *graph, PyObject *args, PyObject *outs,
                PyObject *hosts)
{
    return read_arg_specs(p, args) || name_args(p, graph) || find_sources(p) ||
           read_out_specs(p, outs) || read_hosts(p, hosts);
}

/* ---- made ahead ---- */

enum { MAX_RANK = AIR_MAX_RANK };

/* (dims, strides) of a tensor, or an integer. room: dims, then strides. */
static int
read_shape(PyObject *shape, air_dtype dtype, int64_t *room, air_value *out)
{
    *out = (air_value){.is_int = true, .alias = -1};
    if (!PyTuple_Check(shape)) {
        out->i = PyLong_AsLongLong(shape);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *dims, *strides;
    if (!PyArg_ParseTuple(shape, "O!O!", &PyTuple_Type, &dims, &PyTuple_Type,
                          &strides))
        return -1;
    const Py_ssize_t rank = PyTuple_Size(dims);
    if (rank > MAX_RANK || PyTuple_Size(strides) != rank) {
        PyErr_SetString(PyExc_ValueError, "a shape has other strides");
        return -1;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        room[i] = PyLong_AsLongLong(PyTuple_GetItem(dims, i));
        room[MAX_RANK + i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
    }
    *out = (air_value){.dtype = dtype,
                       .rank = (int)rank,
                       .dims = room,
                       .strides = room + MAX_RANK,
                       .alias = -1};
    return PyErr_Occurred() ? -1 : 0;
}

int
py_program_shapes(const py_program *p, PyObject *shapes, air_value *in,
                  int64_t *room)
{
    for (size_t k = 0; k < p->nin; k++) {
        const Py_ssize_t source = p->sources[k];
        const py_dtype *dtype;
        int64_t *own = room + k * 2 * MAX_RANK;
        PyObject *shape = source >= 0 ? PyList_GetItem(shapes, source) : NULL;
        if (source >= 0
                ? !shape ||
                      read_shape(shape,
                                 p->dtypes[source] ? p->dtypes[source]->dtype
                                                   : AIR_DTYPE_NONE,
                                 own, &in[k])
                : py_tensor_read(PyTuple_GetItem(p->consts, -1 - source),
                                 &p->label, 0, p->place, &in[k], &dtype))
            return -1;
    }
    return 0;
}
