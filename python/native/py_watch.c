/* py_watch.c: steps of a run shown to a Python function (Program.watch). The
 * tensors it is given are views of the engine's memory, which the next step
 * may overwrite: it copies what it wants to keep. */
#include "py.h"

static const py_dtype *
dtype_of(air_dtype dtype)
{
    const py_dtype *row;
    for (size_t i = 0; (row = py_dtype_row(i)); i++)
        if (row->dtype == dtype && row->exact)
            return row;
    return NULL;
}

static PyObject *
make_tags(const air_seen_value *v)
{
    PyObject *tags = PyTuple_New((Py_ssize_t)v->ntags);
    for (size_t i = 0; tags && i < v->ntags; i++) {
        PyObject *tag = PyUnicode_FromString(v->tags[i]);
        if (!tag || PyTuple_SetItem(tags, (Py_ssize_t)i, tag))
            Py_CLEAR(tags);
    }
    return tags;
}

/* (name, op, location, tags, tensor) */
static PyObject *
make_value(const py_host_run *run, const air_seen_value *v)
{
    air_value borrowed = v->value;
    const py_dtype *dtype = dtype_of(borrowed.dtype);
    if (!dtype) {
        PyErr_Format(PyExc_TypeError, "value %s has a dtype torch lacks",
                     v->name);
        return NULL;
    }
    PyObject *tags = make_tags(v);
    PyObject *tensor =
        tags ? py_tensor_wrap(&borrowed, dtype, run->place) : NULL;
    if (!tensor) {
        Py_XDECREF(tags);
        return NULL;
    }
    return Py_BuildValue("szzNN", v->name, v->op, v->location, tags, tensor);
}

static PyObject *
make_values(const py_host_run *run, const air_seen *seen)
{
    PyObject *values = PyTuple_New((Py_ssize_t)seen->count);
    for (size_t i = 0; values && i < seen->count; i++) {
        PyObject *value = make_value(run, &seen->values[i]);
        if (!value || PyTuple_SetItem(values, (Py_ssize_t)i, value))
            Py_CLEAR(values);
    }
    return values;
}

static int
tell(const py_host_run *run, const air_seen *seen)
{
    PyObject *values = make_values(run, seen);
    if (!values)
        return -1;
    PyObject *got = PyObject_CallFunction(
        run->watch, "nssOOdN", (Py_ssize_t)seen->index, seen->kind, seen->label,
        seen->done ? Py_True : Py_False, seen->once ? Py_True : Py_False,
        seen->seconds, values);
    Py_XDECREF(got);
    return got ? 0 : -1;
}

air_status
py_watch_see(void *user, const air_seen *seen)
{
    py_host_run *run = user;
    PyGILState_STATE gil = PyGILState_Ensure();
    int failed = py_random_end() || tell(run, seen);
    if (failed)
        PyErr_Fetch(&run->type, &run->value, &run->trace);
    PyGILState_Release(gil);
    return failed ? AIR_ERROR_HOST : AIR_OK;
}
