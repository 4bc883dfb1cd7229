/* py_known.c: parameters that are as the last call had them.
 *
 * To read a tensor takes eight calls of torch's shim and checks of its device
 * and storage. That it is what it was takes two, for its memory, and a look at
 * its layout: the numbers that the shim's sizes point into, a part of torch's
 * TensorImpl. How they lie is checked against the shim, once at the start
 * (py_known_init) and for each tensor that is kept; where they lie otherwise,
 * every call reads every tensor.
 */
#include "py.h"

#include <string.h>

/* The numbers, from the rank on: sizes, strides, offset, count of elements,
 * dtype and device. More than five dims lie elsewhere. */
enum { RANK = -1, STRIDES = 5, OFFSET = 10, COUNT = 11, DTYPE = 12 };
enum { MAX_DIMS = STRIDES, IMPL_BYTES = 256 };
_Static_assert(PY_LAYOUT_NUMBERS == DTYPE - RANK + 1, "the numbers");

static bool layout_is_known;

static void *
handle_of(PyObject *o)
{
    return (char *)o + sizeof(PyObject);
}

static const char *
impl_of(PyObject *o)
{
    const char *impl;
    memcpy(&impl, handle_of(o), sizeof impl);
    return impl;
}

/* Do the numbers lie in the object, as expected? */
static bool
lies_as_expected(PyObject *o, const int64_t *dims, const int64_t *strides,
                 int64_t rank)
{
    const char *impl = impl_of(o), *at = (const char *)dims;
    int64_t offset, count = 1;
    if (rank > MAX_DIMS || at <= impl ||
        at + (DTYPE + 1) * sizeof *dims > impl + IMPL_BYTES ||
        strides != dims + STRIDES || dims[RANK] != rank ||
        torch_api.get_storage_offset(handle_of(o), &offset))
        return false;
    for (int64_t i = 0; i < rank; i++)
        count *= dims[i];
    return dims[OFFSET] == offset && dims[COUNT] == count;
}

/* ---- at the start ---- */

/* The dtype of such a tensor, the first 16 bits of its number; behind it are
 * bits that nobody sets. 0: it lies otherwise. */
static uint16_t
dtype_number(PyObject *torch, int rank, const char *dtype)
{
    PyObject *base =
        PyObject_CallMethod(torch, "empty", "iiiii", 2, 3, 1, 2, 4);
    PyObject *flat =
        base ? PyObject_CallMethod(base, "flatten", "ii", 0, 5 - rank) : NULL;
    PyObject *at = flat ? PyObject_GetAttrString(torch, dtype) : NULL;
    PyObject *part = at ? PyObject_CallMethod(flat, "to", "O", at) : NULL;
    PyObject *t =
        part ? PyObject_CallMethod(part, "narrow", "iii", 0, 1, 1) : NULL;
    int64_t *dims, *strides, found;
    uint16_t number = 0;
    if (t && !torch_api.get_sizes(handle_of(t), &dims) &&
        !torch_api.get_strides(handle_of(t), &strides) &&
        !torch_api.get_dim(handle_of(t), &found) && found == rank &&
        lies_as_expected(t, dims, strides, found))
        memcpy(&number, &dims[DTYPE], sizeof number);
    Py_XDECREF(t);
    Py_XDECREF(part);
    Py_XDECREF(at);
    Py_XDECREF(flat);
    Py_XDECREF(base);
    PyErr_Clear();
    return number;
}

void
py_known_init(PyObject *torch)
{
    if (!torch_api.handles)
        return;
    const uint16_t number = dtype_number(torch, 5, "float32");
    layout_is_known = number != 0 &&
                      number == dtype_number(torch, 2, "float32") &&
                      number != dtype_number(torch, 2, "int32") &&
                      number != dtype_number(torch, 2, "float64");
}

py_known *
py_known_make(const air_graph *g, size_t nin, const Py_ssize_t *sources,
              bool frozen)
{
    py_known *known = PyMem_Calloc(nin + 1, sizeof *known);
    air_input input;
    for (size_t i = 0; known && i < nin && air_graph_get_input(g, i, &input);
         i++)
        known[i].is_static =
            !input.is_int &&
            (sources[i] < 0 || (input.flags & AIR_INPUT_PARAM) != 0);
    for (size_t i = 0; known && i < nin; i++)
        known[i].is_frozen = frozen && known[i].is_static && sources[i] >= 0;
    if (!known)
        PyErr_NoMemory();
    return known;
}

void
py_known_free(py_known *known, size_t nin)
{
    for (size_t i = 0; known && i < nin; i++) {
        Py_XDECREF(known[i].ref);
        Py_XDECREF(known[i].kept);
    }
    PyMem_Free(known);
}

/* ---- at a call ---- */

static bool
is_plain(PyObject *o)
{
    const PyTypeObject *type = Py_TYPE(o);
    return type == torch_api.tensor || type == torch_api.parameter;
}

/* Without a branch for each number, which would take longer. */
static bool
same_numbers(const int64_t *a, const int64_t *b)
{
    int64_t differ = 0;
    for (int i = 0; i < PY_LAYOUT_NUMBERS; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

/* Nothing else is looked at: its memory is kept, wherever it lies now. */
static bool
is_frozen(const py_known *k, PyObject *o)
{
    return o == k->seen && py_weak_is(k->ref, o);
}

bool
py_known_read(const py_known *k, PyObject *o, air_value *out)
{
    void *data = NULL;
    int64_t storage = 0;
    if (k->kept && is_frozen(k, o)) {
        *out = k->value;
        return true;
    }
    if (k->is_frozen || o != k->seen || !is_plain(o) || impl_of(o) != k->impl ||
        !same_numbers(k->value.dims + RANK, k->numbers) ||
        torch_api.get_data_ptr(handle_of(o), &data) || data != k->value.data ||
        torch_api.get_storage_size(handle_of(o), &storage) ||
        storage != k->storage)
        return false;
    *out = k->value;
    return true;
}

/* To the first one as long as it lives: a call in another thread may use it
 * meanwhile. Where modules share a program, those of the others are read. */
static void
freeze(py_known *k, PyObject *o)
{
    Py_XDECREF(k->ref);
    Py_XDECREF(k->kept);
    k->ref = PyWeakref_NewRef(o, NULL);
    k->kept = PyObject_CallMethod(o, "detach", NULL);
    int64_t *dims = NULL, *strides = NULL;
    if (k->ref && k->kept && is_plain(k->kept) &&
        !torch_api.get_sizes(handle_of(k->kept), &dims) &&
        !torch_api.get_strides(handle_of(k->kept), &strides)) {
        k->value.dims = dims;
        k->value.strides = strides;
        return;
    }
    PyErr_Clear();
    Py_CLEAR(k->ref);
    Py_CLEAR(k->kept);
}

void
py_known_keep(py_known *k, PyObject *o, const air_value *v, size_t bytes)
{
    if (!k->is_static || (k->kept && !py_weak_is(k->ref, NULL)))
        return;
    k->seen = NULL;
    /* tensors without elements have no address to tell them by */
    if (!layout_is_known || !is_plain(o) || !v->data ||
        !lies_as_expected(o, v->dims, v->strides, v->rank) ||
        torch_api.get_storage_size(handle_of(o), &k->storage))
        return;
    memcpy(k->numbers, v->dims + RANK, sizeof k->numbers);
    k->value = *v;
    k->bytes = bytes;
    k->impl = impl_of(o);
    k->seen = o;
    if (k->is_frozen)
        freeze(k, o);
}
