/* py_torch.c: torch tensors from C.
 *
 * Two ways to read a tensor: the exchange table's view function (always
 * there, 47 ns), and torch's C shim on the at::Tensor that follows the
 * object's header (18 ns, measured without the look at its storage). The second
 * rests on the layout of a Python tensor, so it is used only after a check
 * against `_cdata`.
 */
#include "py.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

py_torch torch_api;

static const py_dtype dtypes[] = {
    {"float32", 6, AIR_F32, 2, 32, true},
    {"float64", 7, AIR_F64, 2, 64, true},
    {"bfloat16", 15, AIR_BF16, 4, 16, true},
    {"float16", 5, AIR_F16, 2, 16, true},
    {"int8", 1, AIR_I8, 0, 8, true},
    {"uint8", 0, AIR_U8, 1, 8, true},
    {"int16", 2, AIR_I16, 0, 16, true},
    {"int32", 3, AIR_I32, 0, 32, true},
    {"int64", 4, AIR_I64, 0, 64, true},
    {"bool", 11, AIR_BOOL, 6, 8, true},
    {"uint16", 27, AIR_I16, 1, 16, false},
    {"uint32", 28, AIR_I32, 1, 32, false},
    {"uint64", 29, AIR_I64, 1, 64, false},
    {"complex32", 8, AIR_I32, 5, 32, false},
    {"complex64", 9, AIR_I64, 5, 64, false},
    {"float8_e5m2", 23, AIR_U8, 12, 8, false},
    {"float8_e4m3fn", 24, AIR_U8, 10, 8, false},
    {"float8_e5m2fnuz", 25, AIR_U8, 13, 8, false},
    {"float8_e4m3fnuz", 26, AIR_U8, 11, 8, false},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const py_dtype *
py_dtype_row(size_t i)
{
    return i < DTYPES ? &dtypes[i] : NULL;
}

int
py_dtype_read(PyObject *name, const py_dtype **out)
{
    for (size_t i = 0; PyUnicode_Check(name) && i < DTYPES; i++) {
        *out = &dtypes[i];
        if (PyUnicode_CompareWithASCIIString(name, dtypes[i].name) == 0)
            return 0;
    }
    PyErr_Format(PyExc_TypeError, "unknown dtype %R", name);
    return -1;
}

static const py_dtype *
find_scalar_type(int32_t type)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].scalar_type == type)
            return &dtypes[i];
    return NULL;
}

static const py_dtype *
find_dl(dl_dtype d)
{
    for (size_t i = 0; i < DTYPES; i++)
        if (dtypes[i].dl_code == d.code && dtypes[i].dl_bits == d.bits &&
            d.lanes == 1)
            return &dtypes[i];
    return NULL;
}

/* ---- start ---- */

static void
find_shim(const char *lib)
{
    void *h = dlopen(lib, RTLD_NOLOAD | RTLD_LAZY);
    struct {
        const char *name;
        void *slot;
    } rows[] = {
        {"aoti_torch_get_data_ptr", &torch_api.get_data_ptr},
        {"aoti_torch_get_sizes", &torch_api.get_sizes},
        {"aoti_torch_get_strides", &torch_api.get_strides},
        {"aoti_torch_get_dim", &torch_api.get_dim},
        {"aoti_torch_get_dtype", &torch_api.get_dtype},
        {"aoti_torch_get_device_type", &torch_api.get_device},
        {"aoti_torch_get_device_index", &torch_api.get_device_index},
        {"aoti_torch_get_storage_size", &torch_api.get_storage_size},
        {"aoti_torch_get_storage_offset", &torch_api.get_storage_offset},
    };
    torch_api.handles = h != NULL;
    for (size_t i = 0; h && i < sizeof rows / sizeof *rows; i++) {
        void *found = dlsym(h, rows[i].name);
        memcpy(rows[i].slot, &found, sizeof found);
        torch_api.handles = torch_api.handles && found;
    }
}

/* Does the at::Tensor lie where the fast path expects it? */
static bool
probe_handle(PyObject *torch)
{
    PyObject *t = PyObject_CallMethod(torch, "empty", "i", 1);
    PyObject *cdata = t ? PyObject_GetAttrString(t, "_cdata") : NULL;
    void *want = cdata ? PyLong_AsVoidPtr(cdata) : NULL;
    void *found = NULL;
    if (t)
        memcpy(&found, (char *)t + sizeof(PyObject), sizeof found);
    Py_XDECREF(cdata);
    Py_XDECREF(t);
    py_error_drop();
    return want && want == found;
}

static int
find_exchange(void)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)torch_api.tensor,
                                               "__dlpack_c_exchange_api__");
    if (!capsule)
        return -1;
    torch_api.dl = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    if (torch_api.dl && torch_api.dl->version.major != 1)
        PyErr_SetString(PyExc_ImportError,
                        "torchair needs version 1 of torch's DLPack exchange "
                        "table: use torch 2.11 to 2.13");
    return PyErr_Occurred() ? -1 : 0;
}

int
py_torch_init(const char *lib)
{
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *nn = torch ? PyImport_ImportModule("torch.nn") : NULL;
    if (nn) {
        torch_api.tensor =
            (PyTypeObject *)PyObject_GetAttrString(torch, "Tensor");
        torch_api.parameter =
            (PyTypeObject *)PyObject_GetAttrString(nn, "Parameter");
        torch_api.as_strided = PyObject_GetAttrString(torch, "as_strided");
    }
    if (!PyErr_Occurred() && !find_exchange() && !py_random_start(torch)) {
        find_shim(lib);
        torch_api.handles = torch_api.handles && probe_handle(torch);
        py_known_init(torch);
    }
    Py_XDECREF(nn);
    Py_XDECREF(torch);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- reading ---- */

static PyObject *
label_text(const py_label *label, Py_ssize_t index)
{
    PyObject *name = NULL;
    if (label->names && index < PyTuple_Size(label->names))
        name = PyTuple_GetItem(label->names, index);
    if (!name || name == Py_None)
        return PyUnicode_FromFormat("%s %zd", label->what, index);
    return PyUnicode_FromFormat("%U (%s %zd)", name, label->what, index);
}

int
py_refuse(PyObject *error, const py_label *label, Py_ssize_t index,
          const char *format, ...)
{
    va_list rest;
    if (PyErr_Occurred())
        return -1;
    PyObject *who = label_text(label, index);
    va_start(rest, format);
    PyObject *why = PyUnicode_FromFormatV(format, rest);
    va_end(rest);
    if (who && why)
        PyErr_Format(error, "%U %U", who, why);
    Py_XDECREF(who);
    Py_XDECREF(why);
    return -1;
}

static int
refuse_type(PyObject *o, const py_label *label, Py_ssize_t index)
{
    PyObject *type = PyType_GetName(Py_TYPE(o));
    if (type)
        py_refuse(PyExc_TypeError, label, index, "is not a tensor but %U",
                  type);
    Py_XDECREF(type);
    return -1;
}

static int
refuse_device(PyObject *o, const py_label *label, Py_ssize_t index, int place)
{
    PyObject *device = PyObject_GetAttrString(o, "device");
    if (device && place >= PLACE_CUDA)
        py_refuse(PyExc_ValueError, label, index,
                  "is on device %S, the graph was compiled for cuda:%d: move "
                  "it there",
                  device, place - PLACE_CUDA);
    else if (device)
        py_refuse(PyExc_ValueError, label, index,
                  "is on device %S, not in host memory: move it with .cpu()",
                  device);
    Py_XDECREF(device);
    return -1;
}

static int
refuse_dtype(PyObject *o, const py_label *label, Py_ssize_t index)
{
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    if (dtype)
        py_refuse(PyExc_TypeError, label, index,
                  "has dtype %S, which the engine does not know", dtype);
    Py_XDECREF(dtype);
    return -1;
}

/* torch says why. */
static int
refuse_view(const py_label *label, Py_ssize_t index)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : PyUnicode_FromString("");
    if (text)
        py_refuse(PyExc_ValueError, label, index, "cannot be read: %U", text);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

/* Does it stand for many tensors, as in autograd.grad(is_grads_batched=True)?
 * Its elements are in another tensor. */
static bool
is_batched(PyObject *o)
{
    PyObject *module = PyImport_ImportModule("torch._C._functorch");
    PyObject *found =
        module ? PyObject_CallMethod(module, "is_legacy_batchedtensor", "O", o)
               : NULL;
    const bool batched = found == Py_True;
    if (!found)
        py_error_drop(); /* no such tensors in this torch */
    Py_XDECREF(found);
    Py_XDECREF(module);
    return batched;
}

/* No memory, or less than the sizes say: freed, or of a layout that keeps its
 * elements elsewhere, which torch may run. */
static int
refuse_memory(PyObject *o, const py_label *label, Py_ssize_t index)
{
    py_error_drop();
    if (is_batched(o)) {
        py_refuse(py_error_type(AIR_ERROR_UNSUPPORTED), label, index,
                  "is a batch of tensors, which the engine does not read");
        return -1;
    }
    PyObject *layout = PyObject_GetAttrString(o, "layout");
    PyObject *text = layout ? PyObject_Str(layout) : NULL;
    if (text && PyUnicode_CompareWithASCIIString(text, "torch.strided"))
        py_refuse(py_error_type(AIR_ERROR_UNSUPPORTED), label, index,
                  "has layout %U, which the engine does not read", text);
    else if (text)
        py_refuse(PyExc_ValueError, label, index,
                  "has less memory than its size needs: its storage was freed "
                  "or made smaller");
    Py_XDECREF(text);
    Py_XDECREF(layout);
    return -1;
}

/* Does the storage hold every element? Sizes and strides say nothing of a
 * storage that was resized: untyped_storage().resize_(0) keeps them. */
static bool
storage_holds(void *h, const air_value *v)
{
    int64_t bytes = 0, last = 0;
    if (torch_api.get_storage_size(h, &bytes) ||
        torch_api.get_storage_offset(h, &last))
        return false;
    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] == 0)
            return true;
        last += (v->dims[i] - 1) * v->strides[i];
    }
    return (last + 1) * (int64_t)air_dtype_bytes(v->dtype) <= bytes;
}

/* Is a tensor of this device in the place? */
static bool
is_at(bool cuda, bool host, int32_t index, int place)
{
    return place >= PLACE_CUDA ? cuda && index == place - PLACE_CUDA : host;
}

static bool
handle_is_at(void *h, int place)
{
    int32_t device = 0, index = 0;
    if (torch_api.get_device(h, &device) ||
        (device == SHIM_CUDA && torch_api.get_device_index(h, &index)))
        return false;
    return is_at(device == SHIM_CUDA,
                 device == SHIM_CPU ||
                     (device == SHIM_PRIVATEUSE1 && torch_api.host_npu),
                 index, place);
}

static int
read_handle(PyObject *o, const py_label *label, Py_ssize_t index, int place,
            air_value *out, const py_dtype **out_dtype)
{
    void *h = (char *)o + sizeof(PyObject), *data = NULL;
    int64_t rank = 0, *dims = NULL, *strides = NULL;
    int32_t type = 0;
    if (!handle_is_at(h, place))
        return refuse_device(o, label, index, place);
    if (torch_api.get_dim(h, &rank) || torch_api.get_sizes(h, &dims) ||
        torch_api.get_strides(h, &strides) || torch_api.get_dtype(h, &type) ||
        torch_api.get_data_ptr(h, &data))
        return refuse_memory(o, label, index);
    const py_dtype *d = find_scalar_type(type);
    if (!d)
        return refuse_dtype(o, label, index);
    *out = (air_value){.data = data,
                       .dtype = d->dtype,
                       .rank = (int)rank,
                       .dims = dims,
                       .strides = strides,
                       .alias = -1};
    *out_dtype = d;
    return storage_holds(h, out) ? 0 : refuse_memory(o, label, index);
}

static bool
is_empty(const dl_tensor *t)
{
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0)
            return true;
    return false;
}

static int
read_view(PyObject *o, const py_label *label, Py_ssize_t index, int place,
          air_value *out, const py_dtype **out_dtype)
{
    dl_tensor t;
    if (!PyObject_TypeCheck(o, torch_api.tensor))
        return refuse_type(o, label, index);
    if (torch_api.dl->view(o, &t))
        return refuse_view(label, index);
    if (!is_at(t.device.type == DL_CUDA,
               t.device.type == DL_CPU ||
                   (t.device.type == DL_EXT && torch_api.host_npu),
               t.device.id, place))
        return refuse_device(o, label, index, place);
    const py_dtype *d = find_dl(t.dtype);
    if (!d)
        return refuse_dtype(o, label, index);
    *out = (air_value){.data = (char *)t.data + t.byte_offset,
                       .dtype = d->dtype,
                       .rank = t.ndim,
                       .dims = t.shape,
                       .strides = t.strides,
                       .alias = -1};
    *out_dtype = d;
    return t.data || is_empty(&t) ? 0 : refuse_memory(o, label, index);
}

int
py_tensor_read(PyObject *o, const py_label *label, Py_ssize_t index, int place,
               air_value *out, const py_dtype **out_dtype)
{
    PyTypeObject *type = Py_TYPE(o);
    if (torch_api.handles &&
        (type == torch_api.tensor || type == torch_api.parameter))
        return read_handle(o, label, index, place, out, out_dtype);
    return read_view(o, label, index, place, out, out_dtype);
}

/* ---- making ---- */

/* In the stable ABI since 3.13, exported since 3.4. */
extern void *PyMem_RawMalloc(size_t size);
extern void PyMem_RawFree(void *ptr);

typedef struct {
    dl_managed m;
    air_value value;
    int64_t dims[AIR_MAX_RANK], strides[AIR_MAX_RANK];
    long long npu_bytes; /* counted as memory of the device */
} block;

/* Runs in any thread, mostly without the GIL: nothing of Python's but the raw
 * allocator may be used. */
static void
block_delete(dl_managed *m)
{
    block *b = m->ctx;
    if (b->value.block)
        air_value_release(&b->value);
    if (b->npu_bytes)
        py_npu_count(-b->npu_bytes);
    PyMem_RawFree(b);
}

static void
fill_layout(block *b, const air_value *v)
{
    int64_t dense = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        b->dims[i] = v->dims[i];
        b->strides[i] = v->strides ? v->strides[i] : dense;
        dense *= v->dims[i];
    }
}

static long long
dense_bytes(const air_value *v)
{
    long long n = (long long)air_dtype_bytes(v->dtype);
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

static dl_device
device_at(int place)
{
    if (place >= PLACE_CUDA)
        return (dl_device){DL_CUDA, place - PLACE_CUDA};
    return (dl_device){place == PLACE_NPU ? DL_EXT : DL_CPU, 0};
}

PyObject *
py_tensor_wrap(const air_value *value, const py_dtype *dtype, int place)
{
    block *b = PyMem_RawMalloc(sizeof *b);
    void *out = NULL;
    if (!b) {
        air_value lost = *value;
        if (lost.block)
            air_value_release(&lost);
        return PyErr_NoMemory();
    }
    b->value = *value;
    fill_layout(b, value);
    b->npu_bytes = place == PLACE_NPU && value->block ? dense_bytes(value) : 0;
    if (b->npu_bytes)
        py_npu_count(b->npu_bytes);
    b->m = (dl_managed){.version = {1, 1},
                        .ctx = b,
                        .deleter = block_delete,
                        .t = {.data = value->data,
                              .device = device_at(place),
                              .ndim = value->rank,
                              .dtype = {dtype->dl_code, dtype->dl_bits, 1},
                              .shape = b->dims,
                              .strides = b->strides}};
    return torch_api.dl->to_object(&b->m, &out) ? NULL : out;
}

bool
py_same_layout(const air_value *a, const air_value *b)
{
    if (a->data != b->data || a->rank != b->rank || !a->strides || !b->strides)
        return false;
    size_t bytes = (size_t)a->rank * sizeof *a->dims;
    return !memcmp(a->dims, b->dims, bytes) &&
           !memcmp(a->strides, b->strides, bytes);
}

static PyObject *
int_tuple(int count, const int64_t *items)
{
    PyObject *t = PyTuple_New(count);
    for (int i = 0; t && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(items[i]);
        if (!item || PyTuple_SetItem(t, i, item))
            Py_CLEAR(t);
    }
    return t;
}

PyObject *
py_tensor_alias(PyObject *base, const air_value *base_value,
                const air_value *value)
{
    if (py_same_layout(value, base_value))
        return Py_NewRef(base);
    block layout;
    fill_layout(&layout, value);
    PyObject *at = PyObject_CallMethod(base, "storage_offset", NULL);
    PyObject *dims = int_tuple(value->rank, layout.dims);
    PyObject *strides = int_tuple(value->rank, layout.strides);
    PyObject *out = NULL;
    if (at && dims && strides) {
        ptrdiff_t bytes = (char *)value->data - (const char *)base_value->data;
        long long offset = PyLong_AsLongLong(at) +
                           bytes / (ptrdiff_t)air_dtype_bytes(value->dtype);
        out = PyObject_CallFunction(torch_api.as_strided, "OOOL", base, dims,
                                    strides, offset);
    }
    Py_XDECREF(at);
    Py_XDECREF(dims);
    Py_XDECREF(strides);
    return out;
}

size_t
py_value_extent(const air_value *v)
{
    int64_t last = 0, dense = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->dims[i] == 0)
            return 0;
        last += (v->dims[i] - 1) * (v->strides ? v->strides[i] : dense);
        dense *= v->dims[i];
    }
    return ((size_t)last + 1) * air_dtype_bytes(v->dtype);
}

bool
py_value_within(const air_value *base, const air_value *v)
{
    if (v->is_int || base->is_int || !v->data || !base->data)
        return false;
    const uintptr_t at = (uintptr_t)v->data, from = (uintptr_t)base->data;
    const size_t bytes = py_value_extent(v);
    return base->dtype == v->dtype && bytes > 0 && at >= from &&
           at - from + bytes <= py_value_extent(base);
}

PyObject *
py_tensor_within(PyObject *base, const air_value *base_value,
                 const air_value *value)
{
    PyObject *view = py_tensor_alias(base, base_value, value);
    PyObject *alone = view ? PyObject_CallMethod(view, "detach", NULL) : NULL;
    Py_XDECREF(view);
    return alone;
}
