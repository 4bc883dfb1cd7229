/* py_direct.c: torchair._native.Direct: a program with what AOTAutograd's
 * runtime wrapper of an inference graph adds to it, and nothing of its Python.
 *
 *   before  tensors that the graph itself holds go before the arguments; the
 *           version counters of inputs that the graph writes; a look at the
 *           arguments, where one is asked for (weights.py)
 *   after   outputs that are inputs, or views of them made anew; the sizes of
 *           outputs that Dynamo is to take for dynamic
 *
 * direct.py says which graphs are of that kind.
 */
#include "py.h"

#include <structmember.h>

typedef struct {
    Py_ssize_t input; /* the output is this input, or a view of it; -1: as is */
    PyObject *views;  /* how it is made; NULL: the input itself */
    bool detach;
    PyObject *dims; /* set of dynamic dimensions, or NULL */
} direct_out;

typedef struct {
    PyObject_HEAD py_vectorcall call;
    PyObject *program;
    PyObject *count;   /* (tensors) -> None: counts a write of each */
    PyObject *view;    /* (base, views) -> tensor */
    PyObject *mark;    /* (tensor, dims) -> None */
    PyObject *look;    /* (*args) -> None, or NULL */
    PyObject *held;    /* list of the first arguments, or NULL */
    Py_ssize_t *wrote; /* arguments that the graph writes */
    Py_ssize_t nwrote, nouts, most; /* most: the largest argument named */
    direct_out *outs;
    bool *skip; /* by output: the program need not make it */
    PyObject *weakrefs;
} direct;

/* ---- the call ---- */

static int
count_writes(const direct *d, PyObject *const *args)
{
    PyObject *tensors = d->nwrote ? PyTuple_New(d->nwrote) : NULL;
    if (!d->nwrote)
        return 0;
    for (Py_ssize_t i = 0; tensors && i < d->nwrote; i++)
        if (PyTuple_SetItem(tensors, i, Py_NewRef(args[d->wrote[i]])))
            Py_CLEAR(tensors);
    PyObject *done =
        tensors ? PyObject_CallFunctionObjArgs(d->count, tensors, NULL) : NULL;
    Py_XDECREF(tensors);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int
look_at(const direct *d, PyObject *const *args, Py_ssize_t n)
{
    PyObject *all = d->look ? PyTuple_New(n) : NULL;
    if (!d->look)
        return 0;
    for (Py_ssize_t i = 0; all && i < n; i++)
        if (PyTuple_SetItem(all, i, Py_NewRef(args[i])))
            Py_CLEAR(all);
    PyObject *done = all ? PyObject_CallObject(d->look, all) : NULL;
    Py_XDECREF(all);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *
view_of(const direct *d, const direct_out *o, PyObject *base)
{
    if (!o->views)
        return Py_NewRef(base);
    PyObject *view =
        PyObject_CallFunctionObjArgs(d->view, base, o->views, NULL);
    if (!view || !o->detach)
        return view;
    PyObject *detached = PyObject_CallMethod(view, "detach", NULL);
    Py_DECREF(view);
    return detached;
}

/* made[i] as the caller sees it. made: a list that nobody else has, or the
 * program's tuple. */
static int
finish_output(const direct *d, PyObject *const *args, PyObject *made,
              bool in_list, Py_ssize_t i)
{
    const direct_out *o = &d->outs[i];
    if (o->input >= 0) {
        PyObject *seen = view_of(d, o, args[o->input]);
        if (!seen || (in_list ? PyList_SetItem(made, i, seen)
                              : PyTuple_SetItem(made, i, seen)))
            return -1;
    }
    if (!o->dims)
        return 0;
    PyObject *out =
        in_list ? PyList_GetItem(made, i) : PyTuple_GetItem(made, i);
    PyObject *done =
        out ? PyObject_CallFunctionObjArgs(d->mark, out, o->dims, NULL) : NULL;
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Steals made. What torch ran instead of the engine may be a list. */
static PyObject *
finish(const direct *d, PyObject *const *args, PyObject *made)
{
    const bool in_list = made && !PyTuple_Check(made);
    if (in_list) {
        PyObject *list = PySequence_List(made);
        Py_DECREF(made);
        made = list;
    }
    if (made && (in_list ? PyList_Size(made) : PyTuple_Size(made)) != d->nouts)
        PyErr_SetString(PyExc_SystemError, "a graph lost an output");
    for (Py_ssize_t i = 0; made && i < d->nouts; i++)
        if (PyErr_Occurred() || finish_output(d, args, made, in_list, i))
            Py_CLEAR(made);
    return made;
}

static PyObject *
call_with(const direct *d, PyObject *const *args, Py_ssize_t n)
{
    if (n <= d->most) {
        PyErr_SetString(PyExc_TypeError, "arguments are missing or named");
        return NULL;
    }
    if (look_at(d, args, n) || count_writes(d, args))
        return NULL;
    PyObject *made = py_program_call(d->program, args, n, d->skip);
    return d->outs ? finish(d, args, made) : made;
}

/* Held tensors, then args. Torch empties the list when an optimizer whose step
 * the graph is goes: what is left of it is too few arguments. */
static PyObject *
call_behind_held(const direct *d, PyObject *const *args, Py_ssize_t n)
{
    const Py_ssize_t held = PyList_Size(d->held);
    PyObject **all = PyMem_Calloc((size_t)(held + n) + 1, sizeof(PyObject *));
    if (!all)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < held; i++)
        all[i] = Py_NewRef(PyList_GetItem(d->held, i));
    for (Py_ssize_t i = 0; i < n; i++)
        all[held + i] = args[i];
    PyObject *made = call_with(d, all, held + n);
    for (Py_ssize_t i = 0; i < held; i++)
        Py_DECREF(all[i]);
    PyMem_Free(all);
    return made;
}

static PyObject *
direct_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                  PyObject *names)
{
    const direct *d = (const direct *)self;
    const Py_ssize_t n = (Py_ssize_t)(nargsf & ~ARGUMENTS_OFFSET);
    if (names && PyTuple_Size(names)) {
        PyErr_SetString(PyExc_TypeError, "arguments are missing or named");
        return NULL;
    }
    return d->held ? call_behind_held(d, args, n) : call_with(d, args, n);
}

static PyObject *
direct_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    return PyVectorcall_Call(self, args, keywords);
}

/* ---- making one ---- */

static int
read_index(direct *d, PyObject *o, Py_ssize_t *out)
{
    *out = PyLong_AsSsize_t(o);
    if (PyErr_Occurred())
        return -1;
    if (*out > d->most)
        d->most = *out;
    return 0;
}

static int
read_wrote(direct *d, PyObject *wrote)
{
    Py_ssize_t n = PyTuple_Size(wrote);
    d->most = -1;
    d->wrote = PyMem_Calloc((size_t)n + 1, sizeof *d->wrote);
    if (!d->wrote) {
        PyErr_NoMemory();
        return -1;
    }
    for (; d->nwrote < n; d->nwrote++)
        if (read_index(d, PyTuple_GetItem(wrote, d->nwrote),
                       &d->wrote[d->nwrote]))
            return -1;
    return 0;
}

static PyObject *
or_null(PyObject *o)
{
    return o == Py_None ? NULL : Py_NewRef(o);
}

/* An entry is (input, views or None, detach, dims or None); input -1: the
 * output is what the program makes. */
static int
read_out(direct *d, PyObject *spec, Py_ssize_t i)
{
    PyObject *input, *views, *dims;
    int detach;
    direct_out *o = &d->outs[i];
    if (!PyArg_ParseTuple(spec, "OOpO", &input, &views, &detach, &dims))
        return -1;
    o->views = or_null(views);
    o->dims = or_null(dims);
    o->detach = detach != 0;
    if (read_index(d, input, &o->input))
        return -1;
    d->skip[i] = o->input >= 0;
    return 0;
}

/* None: every output is as the program makes it. */
static int
read_outs(direct *d, PyObject *outs)
{
    if (outs == Py_None)
        return 0;
    const Py_ssize_t n = PyTuple_Check(outs) ? PyTuple_Size(outs) : -1;
    if (n < 0 || n != py_program_outputs(d->program)) {
        PyErr_SetString(PyExc_ValueError,
                        "outs must be None or a tuple with an entry for each "
                        "output of the program");
        return -1;
    }
    d->outs = PyMem_Calloc((size_t)n + 1, sizeof *d->outs);
    d->skip = PyMem_Calloc((size_t)n + 1, sizeof *d->skip);
    if (!d->outs || !d->skip) {
        PyErr_NoMemory();
        return -1;
    }
    for (; d->nouts < n; d->nouts++)
        if (read_out(d, PyTuple_GetItem(outs, d->nouts), d->nouts))
            return -1;
    return 0;
}

static PyObject *
direct_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"program", "wrote", "outs", "count", "view",
                            "mark",    "look",  "held", NULL};
    PyObject *program, *wrote, *outs, *count, *view, *mark, *look = Py_None;
    PyObject *held = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!OOOO|OO!", words,
                                     py_program_type, &program, &PyTuple_Type,
                                     &wrote, &outs, &count, &view, &mark, &look,
                                     &PyList_Type, &held))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    direct *d = (direct *)alloc(type, 0);
    if (!d)
        return NULL;
    d->call = direct_vectorcall;
    d->program = Py_NewRef(program);
    d->count = Py_NewRef(count);
    d->view = Py_NewRef(view);
    d->mark = Py_NewRef(mark);
    d->look = or_null(look);
    d->held = held && PyList_Size(held) ? Py_NewRef(held) : NULL;
    if (read_wrote(d, wrote) || read_outs(d, outs)) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    return (PyObject *)d;
}

static void
direct_dealloc(PyObject *self)
{
    direct *d = (direct *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (d->weakrefs)
        PyObject_ClearWeakRefs(self);
    for (Py_ssize_t i = 0; d->outs && i <= d->nouts; i++) {
        Py_XDECREF(d->outs[i].views); /* a last one that failed counts too */
        Py_XDECREF(d->outs[i].dims);
    }
    Py_XDECREF(d->program);
    Py_XDECREF(d->count);
    Py_XDECREF(d->view);
    Py_XDECREF(d->mark);
    Py_XDECREF(d->look);
    Py_XDECREF(d->held);
    PyMem_Free(d->wrote);
    PyMem_Free(d->outs);
    PyMem_Free(d->skip);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(direct, call), READONLY,
     NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(direct, weakrefs), READONLY,
     NULL},
    {"program", T_OBJECT, offsetof(direct, program), READONLY, "what it calls"},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_doc, "A program as Dynamo calls it; see direct.py."},
    {Py_tp_new, direct_new},
    {Py_tp_call, direct_call},
    {Py_tp_dealloc, direct_dealloc},
    {Py_tp_members, members},
    {0, NULL}};
static PyType_Spec spec = {.name = "torchair._native.Direct",
                           .basicsize = sizeof(direct),
                           .flags = Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL |
                                    Py_TPFLAGS_IMMUTABLETYPE,
                           .slots = slots};

int
py_direct_init(PyObject *module)
{
    return py_type_add(module, &spec, NULL);
}
