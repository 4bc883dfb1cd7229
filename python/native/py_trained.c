/* py_trained.c: torchair._native.Forward and Backward: what autograd calls of a
 * training graph in place of AOTAutograd's Python.
 *
 *   Forward   called with the node and the graph's arguments: runs the first
 *             program, hands the node what it is to keep for the second one,
 *             gives back what the caller sees
 *   Backward  called with the node and gradients: gives the second program what
 *             the node kept and the gradients that it reads, each as the graph
 *             was traced for it
 *
 * trained.py says which graphs are of that kind, and makes them.
 */
#include "py.h"

#include <structmember.h>

static PyTypeObject *tensor_type;
static PyObject *is_view, *is_contiguous, *detach, *method_type, *no_objects;

/* What both types begin with. */
typedef struct {
    PyObject_HEAD py_vectorcall call;
    PyObject *run; /* a program, or what is called with a list */
} head;

/* The truth of what a call gave, which may be NULL; -1 with a Python error. */
static int
is_true(PyObject *asked)
{
    const int found = asked ? PyObject_IsTrue(asked) : -1;
    Py_XDECREF(asked);
    return found;
}

static PyObject *
call_one(PyObject *function, PyObject *argument)
{
    PyObject *args[2] = {NULL, argument};
    return PyObject_Vectorcall(function, args + 1, 1 | ARGUMENTS_OFFSET, NULL);
}

/* Steals made, which may be NULL. */
static PyObject *
as_tuple(PyObject *made)
{
    if (!made || PyTuple_Check(made))
        return made;
    PyObject *tuple = PySequence_Tuple(made);
    Py_DECREF(made);
    return tuple;
}

/* ---- forward ---- */

typedef struct {
    head head;
    Py_ssize_t returns, symbols; /* results that are shown; sizes at the end */
    Py_ssize_t *constant;        /* results without a gradient */
    Py_ssize_t nconstant;
} forward;

/* x itself, or what is no view of a tensor that autograd knows. */
static PyObject *
own(PyObject *x)
{
    if (!PyObject_TypeCheck(x, tensor_type))
        return Py_NewRef(x);
    const int view = is_true(call_one(is_view, x));
    return view < 0 ? NULL : view ? call_one(detach, x) : Py_NewRef(x);
}

/* own() of made[from] to made[to - 1]. */
static PyObject *
own_all(PyObject *made, Py_ssize_t from, Py_ssize_t to)
{
    PyObject *all = PyTuple_New(to - from);
    for (Py_ssize_t i = from; all && i < to; i++) {
        PyObject *x = own(PyTuple_GetItem(made, i));
        if (!x || PyTuple_SetItem(all, i - from, x))
            Py_CLEAR(all);
    }
    return all;
}

static PyObject *
run(PyObject *program, PyObject *const *args, Py_ssize_t n)
{
    if (Py_TYPE(program) == py_program_type)
        return as_tuple(py_program_call(program, args, n, NULL));
    PyObject *list = py_list(args, n);
    PyObject *made = list ? call_one(program, list) : NULL;
    Py_XDECREF(list);
    return as_tuple(made);
}

/* Steals value; -1 with a Python error. */
static int
give(PyObject *node, const char *name, PyObject *value)
{
    const int failed = !value || PyObject_SetAttrString(node, name, value);
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

static int
name_constant(const forward *f, PyObject *node, PyObject *shown)
{
    PyObject *list = f->nconstant ? PyList_New(0) : NULL;
    if (!f->nconstant)
        return 0;
    for (Py_ssize_t i = 0; list && i < f->nconstant; i++) {
        PyObject *x = PyTuple_GetItem(shown, f->constant[i]);
        if (!x ||
            (PyObject_TypeCheck(x, tensor_type) && PyList_Append(list, x)))
            Py_CLEAR(list);
    }
    PyObject *all = list ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    return give(node, "non_differentiable", all);
}

/* Names as torch.autograd.function and AOTAutograd's own node have them. */
static int
keep(const forward *f, PyObject *node, PyObject *made)
{
    const Py_ssize_t n = PyTuple_Size(made), sizes = n - f->symbols;
    if (sizes < f->returns) {
        PyErr_SetString(PyExc_SystemError, "a graph lost an output");
        return -1;
    }
    return give(node, "to_save", own_all(made, f->returns, sizes)) ||
                   give(node, "symints", PyTuple_GetSlice(made, sizes, n)) ||
                   give(node, "opaque_objects", Py_NewRef(no_objects)) ||
                   give(node, "_tensors_no_vc_check", Py_NewRef(no_objects)) ||
                   give(node, "_materialize_non_diff_grads",
                        Py_NewRef(Py_False))
               ? -1
               : 0;
}

static PyObject *
forward_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                   PyObject *names)
{
    const forward *f = (const forward *)self;
    const Py_ssize_t n = (Py_ssize_t)(nargsf & ~ARGUMENTS_OFFSET);
    if (n < 1 || (names && PyTuple_Size(names))) {
        PyErr_SetString(PyExc_TypeError, "arguments are missing or named");
        return NULL;
    }
    PyObject *made = run(f->head.run, args + 1, n - 1);
    PyObject *shown = NULL;
    if (made && !keep(f, args[0], made))
        shown = own_all(made, 0, f->returns);
    if (shown && name_constant(f, args[0], shown))
        Py_CLEAR(shown);
    Py_XDECREF(made);
    return shown;
}

static PyObject *
forward_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"run", "returns", "symbols", "constant", NULL};
    PyObject *program, *constant;
    Py_ssize_t returns, symbols;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OnnO!", words, &program,
                                     &returns, &symbols, &PyTuple_Type,
                                     &constant))
        return NULL;
    if (returns < 0 || symbols < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "returns and symbols must not be negative");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    forward *f = (forward *)alloc(type, 0);
    if (!f)
        return NULL;
    const Py_ssize_t n = PyTuple_Size(constant);
    f->head.call = forward_vectorcall;
    f->head.run = Py_NewRef(program);
    f->returns = returns;
    f->symbols = symbols;
    f->constant = PyMem_Calloc((size_t)n + 1, sizeof *f->constant);
    if (!f->constant)
        PyErr_NoMemory();
    for (; f->constant && f->nconstant < n; f->nconstant++) {
        const Py_ssize_t i =
            PyLong_AsSsize_t(PyTuple_GetItem(constant, f->nconstant));
        if (!PyErr_Occurred() && (i < 0 || i >= returns))
            PyErr_SetString(PyExc_IndexError,
                            "constant names a result that is not shown");
        if (PyErr_Occurred())
            break;
        f->constant[f->nconstant] = i;
    }
    if (PyErr_Occurred())
        Py_CLEAR(f);
    return (PyObject *)f;
}

static int
forward_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((head *)self)->run);
    return 0;
}

static int
forward_clear(PyObject *self)
{
    Py_CLEAR(((head *)self)->run);
    return 0;
}

static void
forward_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    forward_clear(self);
    PyMem_Free(((forward *)self)->constant);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- backward ---- */

typedef struct {
    Py_ssize_t grad;  /* which gradient it is */
    PyObject *layout; /* how it has to lie */
    int dense;        /* that is contiguous */
} tangent;

typedef struct {
    head head;
    PyObject *asks;    /* tuple of () -> bool: is a call an unusual one? */
    PyObject *torchs;  /* (node, *gradients): what takes unusual ones */
    PyObject *lay_out; /* (gradient, layout) -> tensor */
    bool boxed;        /* gradients come as one list, to be emptied */
    tangent *tangents;
    Py_ssize_t ntangents;
} backward;

/* A gradient of a subclass, or somebody asks for gradients of gradients. */
static int
is_unusual(const backward *b, PyObject *grads)
{
    const Py_ssize_t nasks = PyTuple_Size(b->asks), n = PyTuple_Size(grads);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *grad = PyTuple_GetItem(grads, i);
        if (grad != Py_None && Py_TYPE(grad) != tensor_type)
            return 1;
    }
    for (Py_ssize_t i = 0; i < nasks; i++) {
        const int found =
            is_true(PyObject_CallNoArgs(PyTuple_GetItem(b->asks, i)));
        if (found)
            return found;
    }
    return 0;
}

/* A new reference. */
static PyObject *
laid_out(const backward *b, const tangent *t, PyObject *grad)
{
    if (grad == Py_None)
        return Py_NewRef(grad);
    const int there = t->dense ? is_true(call_one(is_contiguous, grad)) : 0;
    if (there)
        return there < 0 ? NULL : Py_NewRef(grad);
    return PyObject_CallFunctionObjArgs(b->lay_out, grad, t->layout, NULL);
}

/* Appends what the node has by this name, a sequence. */
static int
append_all(PyObject *list, PyObject *node, const char *name)
{
    PyObject *all = PyObject_GetAttrString(node, name);
    const Py_ssize_t n = PyList_Size(list);
    const int failed = !all || PyList_SetSlice(list, n, n, all);
    Py_XDECREF(all);
    return failed ? -1 : 0;
}

/* Arguments of the program; NULL with a Python error. */
static PyObject *
arguments(const backward *b, PyObject *node, PyObject *grads)
{
    PyObject *list = PyList_New(0);
    if (list && (append_all(list, node, "symints") ||
                 append_all(list, node, "saved_tensors")))
        Py_CLEAR(list);
    for (Py_ssize_t i = 0; list && i < b->ntangents; i++) {
        const tangent *t = &b->tangents[i];
        PyObject *grad = PyTuple_GetItem(grads, t->grad);
        PyObject *x = grad ? laid_out(b, t, grad) : NULL;
        if (!x || PyList_Append(list, x))
            Py_CLEAR(list);
        Py_XDECREF(x);
    }
    return list;
}

/* Takes the reference to grads. What is let go here is free before the program
 * needs memory. */
static PyObject *
run_backward(const backward *b, PyObject *node, PyObject *boxed,
             PyObject *grads)
{
    PyObject *list = arguments(b, node, grads);
    Py_DECREF(grads);
    if (list && boxed && PyList_SetSlice(boxed, 0, PyList_Size(boxed), NULL))
        Py_CLEAR(list);
    PyObject *cleared =
        list ? PyObject_CallMethod(node, "maybe_clear_saved_tensors", NULL)
             : NULL;
    PyObject *made = cleared ? call_one(b->head.run, list) : NULL;
    Py_XDECREF(cleared);
    Py_XDECREF(list);
    return as_tuple(made);
}

static PyObject *
backward_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                    PyObject *names)
{
    const backward *b = (const backward *)self;
    const Py_ssize_t n = (Py_ssize_t)(nargsf & ~ARGUMENTS_OFFSET);
    if (n < 1 || (names && PyTuple_Size(names)) ||
        (b->boxed && (n != 2 || !PyList_Check(args[1])))) {
        PyErr_SetString(PyExc_TypeError, "arguments are missing or named");
        return NULL;
    }
    PyObject *grads =
        b->boxed ? PyList_AsTuple(args[1]) : as_tuple(py_list(args + 1, n - 1));
    const int unusual = grads ? is_unusual(b, grads) : -1;
    if (!unusual)
        return run_backward(b, args[0], b->boxed ? args[1] : NULL, grads);
    Py_XDECREF(grads);
    return unusual < 0 ? NULL
                       : PyObject_Vectorcall(b->torchs, args, (size_t)n, NULL);
}

/* Found in a class it is a method. */
static PyObject *
backward_get(PyObject *self, PyObject *owner, PyObject *type)
{
    (void)type;
    return owner && owner != Py_None
               ? PyObject_CallFunctionObjArgs(method_type, self, owner, NULL)
               : Py_NewRef(self);
}

/* An entry is (gradient, layout, is it contiguous). */
static int
read_tangents(backward *b, PyObject *specs)
{
    const Py_ssize_t n = PyTuple_Size(specs);
    b->tangents = PyMem_Calloc((size_t)n + 1, sizeof *b->tangents);
    if (!b->tangents) {
        PyErr_NoMemory();
        return -1;
    }
    for (; b->ntangents < n; b->ntangents++) {
        tangent *t = &b->tangents[b->ntangents];
        PyObject *layout;
        if (!PyArg_ParseTuple(PyTuple_GetItem(specs, b->ntangents), "nOp",
                              &t->grad, &layout, &t->dense))
            return -1;
        t->layout = Py_NewRef(layout);
    }
    return 0;
}

static PyObject *
backward_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"run",     "asks",  "torchs", "tangents",
                            "lay_out", "boxed", NULL};
    PyObject *program, *asks, *torchs, *tangents, *lay_out;
    int boxed;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "OO!OO!Op", words, &program, &PyTuple_Type, &asks,
            &torchs, &PyTuple_Type, &tangents, &lay_out, &boxed))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    backward *b = (backward *)alloc(type, 0);
    if (!b)
        return NULL;
    b->head.call = backward_vectorcall;
    b->head.run = Py_NewRef(program);
    b->asks = Py_NewRef(asks);
    b->torchs = Py_NewRef(torchs);
    b->lay_out = Py_NewRef(lay_out);
    b->boxed = boxed != 0;
    if (read_tangents(b, tangents))
        Py_CLEAR(b);
    return (PyObject *)b;
}

static int
backward_traverse(PyObject *self, visitproc visit, void *arg)
{
    const backward *b = (const backward *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(b->head.run);
    Py_VISIT(b->asks);
    Py_VISIT(b->torchs);
    Py_VISIT(b->lay_out);
    for (Py_ssize_t i = 0; i < b->ntangents; i++)
        Py_VISIT(b->tangents[i].layout);
    return 0;
}

static int
backward_clear(PyObject *self)
{
    backward *b = (backward *)self;
    Py_CLEAR(b->head.run);
    Py_CLEAR(b->asks);
    Py_CLEAR(b->torchs);
    Py_CLEAR(b->lay_out);
    for (Py_ssize_t i = 0; i < b->ntangents; i++)
        Py_CLEAR(b->tangents[i].layout);
    return 0;
}

static void
backward_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    backward_clear(self);
    PyMem_Free(((backward *)self)->tangents);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- the types ---- */

static PyObject *
call_tuple(PyObject *self, PyObject *args, PyObject *keywords)
{
    return PyVectorcall_Call(self, args, keywords);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(head, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot forward_slots[] = {
    {Py_tp_doc, "What autograd calls to run a graph; see trained.py."},
    {Py_tp_new, forward_new},
    {Py_tp_call, call_tuple},
    {Py_tp_traverse, forward_traverse},
    {Py_tp_clear, forward_clear},
    {Py_tp_dealloc, forward_dealloc},
    {Py_tp_members, members},
    {0, NULL}};
static PyType_Slot backward_slots[] = {
    {Py_tp_doc, "What autograd calls for gradients; see trained.py."},
    {Py_tp_new, backward_new},
    {Py_tp_call, call_tuple},
    {Py_tp_descr_get, backward_get},
    {Py_tp_traverse, backward_traverse},
    {Py_tp_clear, backward_clear},
    {Py_tp_dealloc, backward_dealloc},
    {Py_tp_members, members},
    {0, NULL}};
enum {
    FLAGS = Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
            Py_TPFLAGS_IMMUTABLETYPE
};
static PyType_Spec specs[] = {{.name = "torchair._native.Forward",
                               .basicsize = sizeof(forward),
                               .flags = FLAGS,
                               .slots = forward_slots},
                              {.name = "torchair._native.Backward",
                               .basicsize = sizeof(backward),
                               .flags = FLAGS,
                               .slots = backward_slots}};

/* Functions of Tensor that take it as their argument. */
static int
find_functions(PyObject *torch)
{
    PyObject *tensor = PyObject_GetAttrString(torch, "Tensor");
    PyObject *types = PyImport_ImportModule("types");
    if (tensor && types) {
        tensor_type = (PyTypeObject *)Py_NewRef(tensor);
        is_view = PyObject_GetAttrString(tensor, "_is_view");
        is_contiguous = PyObject_GetAttrString(tensor, "is_contiguous");
        detach = PyObject_GetAttrString(tensor, "detach");
        method_type = PyObject_GetAttrString(types, "MethodType");
        no_objects = PyTuple_New(0);
    }
    Py_XDECREF(tensor);
    Py_XDECREF(types);
    return is_view && is_contiguous && detach && method_type && no_objects ? 0
                                                                           : -1;
}

int
py_trained_init(PyObject *module)
{
    PyObject *torch = PyImport_ImportModule("torch");
    const int failed = !torch || find_functions(torch) ||
                       py_type_add(module, &specs[0], NULL) ||
                       py_type_add(module, &specs[1], NULL);
    Py_XDECREF(torch);
    return failed ? -1 : 0;
}
