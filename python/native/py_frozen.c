/* py_frozen.c: have the contents of frozen arguments changed?
 *
 * A call sees it where the argument is another tensor, lies elsewhere, or was
 * written by an operator, which its version counts. What writes through
 * `.data`, NumPy or a pointer is not seen. */
#include "py.h"

/* An argument as the last call had it. */
typedef struct {
    Py_ssize_t arg;
    PyObject *ref; /* weak; NULL: no call yet */
    void *data;
    long long version; /* -1: it has none (inference tensors) */
} seen;

struct py_frozen {
    size_t count;
    uint64_t stamp;
    PyObject *version; /* the attribute's name */
    seen args[];
};

static bool
is_counted(const air_graph *g, size_t i, Py_ssize_t source)
{
    air_input input;
    return source >= 0 && air_graph_get_input(g, i, &input) && !input.is_int &&
           (input.flags & AIR_INPUT_FROZEN);
}

int
py_frozen_make(const air_graph *g, size_t nin, const Py_ssize_t *sources,
               py_frozen **out)
{
    size_t count = 0;
    for (size_t i = 0; i < nin; i++)
        count += is_counted(g, i, sources[i]);
    *out = NULL;
    if (count == 0)
        return 0;
    py_frozen *f = PyMem_Calloc(1, sizeof *f + count * sizeof *f->args);
    PyObject *name = PyUnicode_InternFromString("_version");
    if (!f || !name) {
        PyMem_Free(f);
        Py_XDECREF(name);
        return PyErr_NoMemory(), -1;
    }
    f->version = name;
    for (size_t i = 0; i < nin; i++)
        if (is_counted(g, i, sources[i]))
            f->args[f->count++].arg = sources[i];
    *out = f;
    return 0;
}

void
py_frozen_free(py_frozen *f)
{
    for (size_t i = 0; f && i < f->count; i++)
        Py_XDECREF(f->args[i].ref);
    Py_XDECREF(f ? f->version : NULL);
    PyMem_Free(f);
}

static long long
version_of(const py_frozen *f, PyObject *o)
{
    PyObject *number = PyObject_GetAttr(o, f->version);
    const long long version = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    py_error_drop();
    return version;
}

/* NULL: no plain tensor, which counts as changed. */
static void *
address_of(PyObject *o)
{
    const PyTypeObject *type = Py_TYPE(o);
    void *data = NULL;
    if (torch_api.handles &&
        (type == torch_api.tensor || type == torch_api.parameter) &&
        torch_api.get_data_ptr((char *)o + sizeof(PyObject), &data))
        data = NULL;
    return data;
}

/* Takes over what is there now; was it another? */
static bool
look(const py_frozen *f, seen *s, PyObject *o)
{
    void *data = address_of(o);
    const long long version = version_of(f, o);
    const bool same = s->ref && py_weak_is(s->ref, o) && data &&
                      data == s->data && version == s->version;
    if (same)
        return false;
    Py_XDECREF(s->ref);
    s->ref = PyWeakref_NewRef(o, NULL);
    py_error_drop();
    s->data = data;
    s->version = version;
    return true;
}

uint64_t
py_frozen_look(py_frozen *f, PyObject *const *args)
{
    bool changed = false;
    for (size_t i = 0; f && i < f->count; i++)
        changed |= look(f, &f->args[i], args[f->args[i].arg]);
    if (!f)
        return 0;
    return f->stamp += changed;
}
