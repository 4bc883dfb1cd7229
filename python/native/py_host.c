/* py_host.c: HOST nodes: the engine calls back, Python computes.
 *
 * Inputs are tensors over the engine's memory without a copy, valid during the
 * call only, or what an earlier node left, as it is. A result stays where torch
 * put it: the engine reads that memory until it calls `done`.
 */
#include "py.h"

#include <stdio.h>
#include <string.h>

static int
read_dtypes(PyObject *names, const py_dtype **out)
{
    for (Py_ssize_t i = 0, n = PyTuple_Size(names); i < n; i++)
        if (py_dtype_read(PyTuple_GetItem(names, i), &out[i]))
            return -1;
    return 0;
}

static char *
copy_text(const char *text)
{
    char *copy = PyMem_Malloc(strlen(text) + 1);
    if (copy)
        memcpy(copy, text, strlen(text) + 1);
    return copy;
}

int
py_host_read(PyObject *spec, py_host *out)
{
    PyObject *call, *in, *outs;
    const char *name, *why = "not on a GPU";
    memset(out, 0, sizeof *out);
    if (!PyArg_ParseTuple(spec, "OsO!O!|is", &call, &name, &PyTuple_Type, &in,
                          &PyTuple_Type, &outs, &out->place, &why))
        return -1;
    out->nin = (size_t)PyTuple_Size(in);
    out->nout = (size_t)PyTuple_Size(outs);
    out->dtypes = PyMem_Calloc(out->nin + out->nout + 1, sizeof *out->dtypes);
    out->name = copy_text(name);
    out->unrecorded = *why ? copy_text(why) : NULL;
    if (!out->dtypes || !out->name || (*why && !out->unrecorded)) {
        py_host_free(out);
        PyErr_NoMemory();
        return -1;
    }
    if (read_dtypes(in, out->dtypes) ||
        read_dtypes(outs, out->dtypes + out->nin)) {
        py_host_free(out);
        return -1;
    }
    out->call = Py_NewRef(call);
    return 0;
}

void
py_host_free(py_host *host)
{
    Py_CLEAR(host->call);
    PyMem_Free((void *)host->dtypes);
    PyMem_Free(host->name);
    PyMem_Free(host->unrecorded);
    memset(host, 0, sizeof *host);
}

static bool
overlaps(const air_value *v, size_t nin, const air_value *inputs)
{
    const char *begin = v->data, *end = begin + py_value_extent(v);
    for (size_t i = 0; i < nin; i++) {
        const char *other = inputs[i].data;
        if (begin < other + py_value_extent(&inputs[i]) && other < end)
            return true;
    }
    return false;
}

static bool
same_dims(const air_value *got, const air_value *want)
{
    size_t bytes = (size_t)want->rank * sizeof *want->dims;
    return got->rank == want->rank && got->dtype == want->dtype &&
           (!bytes || !memcmp(got->dims, want->dims, bytes));
}

/* The tensor that an earlier node left, where the input is all of it; to make
 * another one over its memory takes as long as a small operator. Borrowed;
 * NULL: it is none. */
static PyObject *
find_left(const py_host *h, const air_value *input, const py_dtype *want)
{
    static const py_label label = {.what = "input"};
    PyObject *left = input->block;
    const py_dtype *dtype;
    air_value got;
    if (!left || Py_TYPE(left) != torch_api.tensor)
        return NULL;
    if (py_tensor_read(left, &label, 0, h->place, &got, &dtype)) {
        py_error_drop();
        return NULL;
    }
    return dtype == want && py_same_layout(&got, input) ? left : NULL;
}

static PyObject *
wrap_inputs(const py_host *h, size_t nin, const air_value *inputs)
{
    PyObject *tensors = PyTuple_New((Py_ssize_t)nin);
    for (size_t i = 0; tensors && i < nin; i++) {
        air_value borrowed = inputs[i];
        borrowed.block = NULL;
        PyObject *left = find_left(h, &inputs[i], h->dtypes[i]);
        PyObject *t = left ? Py_NewRef(left)
                           : py_tensor_wrap(&borrowed, h->dtypes[i], h->place);
        if (!t || PyTuple_SetItem(tensors, (Py_ssize_t)i, t))
            Py_CLEAR(tensors);
    }
    return tensors;
}

/* Sets the exception for a result that is not what the graph says. */
static void
refuse_result(const py_host *h, PyObject *item, size_t i, const air_value *want)
{
    PyObject *dims = PyList_New(0);
    for (int k = 0; dims && k < want->rank; k++) {
        PyObject *dim = PyLong_FromLongLong(want->dims[k]);
        if (!dim || PyList_Append(dims, dim))
            Py_CLEAR(dims);
        Py_XDECREF(dim);
    }
    PyObject *dtype = PyObject_GetAttrString(item, "dtype");
    PyObject *shape = PyObject_GetAttrString(item, "shape");
    PyObject *got = shape ? PySequence_List(shape) : NULL;
    if (dims && dtype && got)
        PyErr_Format(PyExc_RuntimeError,
                     "%s: result %zu is %S%S, its Meta function says "
                     "torch.%s%S. The graph was compiled for another dtype "
                     "or shape: correct the Meta function",
                     h->name, i, dtype, got, h->dtypes[h->nin + i]->name, dims);
    Py_XDECREF(dims);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    Py_XDECREF(got);
}

/* Hands one result to the engine. A result that lies in an input's memory
 * would die with it, so it is copied first. */
static int
take_result(const py_host *h, PyObject *item, size_t nin,
            const air_value *inputs, size_t i, air_value *out)
{
    static const py_label label = {.what = "result"};
    const py_dtype *dtype;
    air_value got;
    PyObject *owner = Py_NewRef(item);
    if (py_tensor_read(owner, &label, (Py_ssize_t)i, h->place, &got, &dtype))
        goto fail;
    if (dtype != h->dtypes[h->nin + i] || !same_dims(&got, out)) {
        refuse_result(h, item, i, out);
        goto fail;
    }
    if (overlaps(&got, nin, inputs)) {
        Py_DECREF(owner);
        owner = PyObject_CallMethod(item, "clone", NULL);
        if (!owner || py_tensor_read(owner, &label, (Py_ssize_t)i, h->place,
                                     &got, &dtype))
            goto fail;
    }
    out->data = got.data;
    out->strides = got.strides;
    out->block = owner;
    return 0;
fail:
    Py_XDECREF(owner);
    return -1;
}

/* A graph of the device that has the call in it. */
typedef struct {
    PyObject *module; /* torchair.recorded */
    PyObject *memory;
    void *stream;
} recording;

/* recorded: NULL, or the call is not to be done but recorded. */
static PyObject *
ask(const py_host_run *run, const py_host *h, PyObject *tensors,
    const recording *recorded)
{
    if (!recorded)
        return PyObject_CallFunctionObjArgs(h->call, run->args, tensors, NULL);
    return PyObject_CallMethod(
        recorded->module, "record", "OOOKO", h->call, run->args, tensors,
        (unsigned long long)(uintptr_t)recorded->stream, recorded->memory);
}

static int
compute(const py_host_run *run, const py_host *h, const recording *recorded,
        size_t nin, const air_value *inputs, size_t nout, air_value *outs)
{
    PyObject *tensors = wrap_inputs(h, nin, inputs);
    PyObject *result = NULL;
    int failed = 1;
    size_t done = 0;
    if (tensors)
        result = ask(run, h, tensors, recorded);
    Py_XDECREF(tensors);
    if (!result)
        return -1;
    if (!PyTuple_Check(result) || PyTuple_Size(result) != (Py_ssize_t)nout)
        PyErr_Format(PyExc_RuntimeError, "%s: %zu results expected", h->name,
                     nout);
    else
        for (failed = 0; done < nout && !failed; done += !failed)
            failed = take_result(h, PyTuple_GetItem(result, (Py_ssize_t)done),
                                 nin, inputs, done, &outs[done]);
    for (size_t i = 0; failed && i < done; i++) {
        Py_DECREF((PyObject *)outs[i].block);
        outs[i].block = NULL;
    }
    Py_DECREF(result);
    return failed ? -1 : 0;
}

static air_status
host_call(void *user, uint32_t id, size_t nin, const air_value *inputs,
          size_t nout, air_value *outs)
{
    py_host_run *run = user;
    const py_host *h = id < run->nhosts ? &run->hosts[id] : NULL;
    if (!h || h->nin != nin || h->nout != nout)
        return AIR_ERROR_HOST;
    PyGILState_STATE gil = PyGILState_Ensure();
    int failed =
        py_random_end() || compute(run, h, NULL, nin, inputs, nout, outs);
    if (failed)
        PyErr_Fetch(&run->type, &run->value, &run->trace);
    PyGILState_Release(gil);
    return failed ? AIR_ERROR_HOST : AIR_OK;
}

static const char *
host_unrecorded(void *user, uint32_t id)
{
    const py_host_run *run = user;
    return id < run->nhosts ? run->hosts[id].unrecorded : "unknown";
}

/* The first line of the exception, which is gone then. */
static void
tell_why(char *why)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    const char *said = bytes ? PyBytes_AsString(bytes) : "it failed";
    const size_t length = said ? strcspn(said, "\n") : 0;
    (void)snprintf(why, AIR_HOST_WHY, "%.*s", (int)length, said ? said : "");
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    PyErr_Restore(type, value, trace);
    py_error_drop();
}

static int
record_call(const py_host_run *run, const py_host *h, void *stream,
            void **memory, size_t nin, const air_value *inputs, size_t nout,
            air_value *outs)
{
    PyObject *module = PyImport_ImportModule("torchair.recorded");
    int failed = 1;
    if (module && !*memory)
        *memory =
            PyObject_CallMethod(module, "Memory", "i", h->place - PLACE_CUDA);
    if (module && *memory) {
        const recording recorded = {module, *memory, stream};
        failed = compute(run, h, &recorded, nin, inputs, nout, outs);
    }
    Py_XDECREF(module);
    return failed;
}

static air_status
host_record(void *user, uint32_t id, void *stream, void **memory, size_t nin,
            const air_value *inputs, size_t nout, air_value *outs, char *why)
{
    py_host_run *run = user;
    const py_host *h = id < run->nhosts ? &run->hosts[id] : NULL;
    if (!h || h->nin != nin || h->nout != nout)
        return AIR_ERROR_HOST;
    PyGILState_STATE gil = PyGILState_Ensure();
    const int failed =
        record_call(run, h, stream, memory, nin, inputs, nout, outs);
    if (failed)
        tell_why(why);
    PyGILState_Release(gil);
    return failed ? AIR_ERROR_HOST : AIR_OK;
}

static void
host_done(void *user, void *token)
{
    (void)user;
    if (!token || !Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)token);
    PyGILState_Release(gil);
}

air_host
py_host_make(py_host_run *run)
{
    air_host host = {.user = run,
                     .call = host_call,
                     .done = host_done,
                     .unrecorded = host_unrecorded,
                     .record = host_record,
                     .see = run->watch ? py_watch_see : NULL};
    py_core_limits(&host.cube_cores, &host.vector_cores);
    return host;
}
