/* py_profile.c: ranges in torch.profiler's traces, while somebody profiles. */
#include "py.h"

static PyObject *range_type; /* NULL: nobody profiles */

PyObject *
py_profile_ranges(PyObject *self, PyObject *type)
{
    (void)self;
    PyObject *old = range_type;
    range_type = type == Py_None ? NULL : Py_NewRef(type);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* What goes wrong with a range is nothing to a program's caller. */
static PyObject *
quiet(PyObject *got)
{
    if (!got)
        py_error_drop();
    return got;
}

PyObject *
py_range_open(const char *name)
{
    if (!range_type)
        return NULL;
    PyObject *range = quiet(PyObject_CallFunction(range_type, "s", name));
    PyObject *got =
        range ? quiet(PyObject_CallMethod(range, "__enter__", NULL)) : NULL;
    if (!got)
        Py_CLEAR(range);
    Py_XDECREF(got);
    return range;
}

void
py_range_close(PyObject *range)
{
    PyObject *type, *value, *trace;
    if (!range)
        return;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(quiet(PyObject_CallMethod(range, "__exit__", "OOO", Py_None,
                                         Py_None, Py_None)));
    Py_DECREF(range);
    PyErr_Restore(type, value, trace);
}
