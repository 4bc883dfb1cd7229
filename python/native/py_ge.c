/* py_ge.c: the tables of the Ascend IR, as lists of tuples. */
#include "py.h"

/* Appends `row`, taking it over; false: an exception is set. */
static bool
append(PyObject *list, PyObject *row)
{
    bool good = row && PyList_Append(list, row) == 0;
    Py_XDECREF(row);
    return good;
}

PyObject *
py_ge_dtypes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const air_ge_dtype *d;
    for (size_t i = 0; out && (d = air_ge_dtype_at(i)); i++)
        if (!append(out, Py_BuildValue("siis", d->name, d->number,
                                       d->file_number, d->torch)))
            Py_CLEAR(out);
    return out;
}

PyObject *
py_ge_formats(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const air_ge_format *f;
    for (size_t i = 0; out && (f = air_ge_format_at(i)); i++)
        if (!append(out, Py_BuildValue("si", f->name, f->number)))
            Py_CLEAR(out);
    return out;
}

PyObject *
py_ge_prototypes(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const char *text;
    for (size_t i = 0; out && (text = air_ge_prototype(i)); i++)
        if (!append(out, PyUnicode_FromString(text)))
            Py_CLEAR(out);
    return out;
}

PyObject *
py_ge_rows(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *out = PyList_New(0);
    const char *op, *type, *when, *args;
    for (size_t i = 0; out && air_ge_row(i, &op, &type, &when, &args); i++)
        if (!append(out, Py_BuildValue("ssss", op, type, when, args)))
            Py_CLEAR(out);
    return out;
}
