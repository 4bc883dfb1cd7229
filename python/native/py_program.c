/* py_program.c: a compiled graph as a Python callable.
 *
 * AOTAutograd calls it with one list ("boxed"), which it empties so that
 * inputs die as early as they can; positional arguments work as well. The
 * program is described by Python once, in terms of the callable's arguments
 * and results, of which the engine sees only tensors and integers.
 */
#include "py_program.h"

#include <stdio.h>
#include <string.h>
#include <structmember.h>

PyTypeObject *py_program_type;

/* ---- inputs ---- */

typedef struct {
    const py_program *p;
    PyObject *const *args;
    PyObject *list;   /* of them; NULL: nothing has asked for it */
    PyObject *moved;  /* list of tensors that others stand in for; or NULL */
    const bool *skip; /* by output: not made; NULL: all are */
    air_value *in;
    int64_t *layouts; /* room of results: air_host */
    size_t bytes;     /* of all inputs, roughly */
    bool recorded;    /* by the application, on a GPU: air_host */
    py_binding *binding;
    air_capture_call call;
} call_inputs;

PyObject *
py_list(PyObject *const *items, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++)
        if (PyList_SetItem(list, i, Py_NewRef(items[i])))
            Py_CLEAR(list);
    return list;
}

/* Borrowed. Sizes of outputs, HOST nodes and torch want a list. */
static PyObject *
args_list(call_inputs *c)
{
    if (!c->list)
        c->list = py_list(c->args, c->p->nargs);
    return c->list;
}

static int
read_int(const py_program *p, PyObject *o, Py_ssize_t index, air_value *out)
{
    int64_t i = PyLong_AsLongLong(o);
    if (i == -1 && PyErr_Occurred()) {
        bool large = PyErr_ExceptionMatches(PyExc_OverflowError);
        PyErr_Clear();
        return py_refuse(large ? PyExc_OverflowError : PyExc_TypeError,
                         &p->label, index,
                         large ? "is %R: integers have 64 bits"
                               : "is %R, an integer is expected",
                         o);
    }
    *out = (air_value){.is_int = true, .i = i, .alias = -1};
    return 0;
}

static size_t
value_bytes(const air_value *v)
{
    int64_t n = (int64_t)air_dtype_bytes(v->dtype);
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return (size_t)n;
}

/* The tensor lives as long as the call then; NULL stays. Steals, borrowed. */
static PyObject *
keep_moved(call_inputs *c, PyObject *o)
{
    if (o && !c->moved)
        c->moved = PyList_New(0);
    int failed = !o || !c->moved || PyList_Append(c->moved, o);
    Py_XDECREF(o);
    return failed ? NULL : o;
}

/* The scalar on the GPU. */
static PyObject *
move_scalar(call_inputs *c, PyObject *o)
{
    char device[24];
    snprintf(device, sizeof device, "cuda:%d", c->p->place - PLACE_CUDA);
    return keep_moved(c, PyObject_CallMethod(o, "to", "s", device));
}

/* The numbers that a lazy tensor stands for. */
static PyObject *
resolve(call_inputs *c, PyObject *o)
{
    PyObject *half = PyObject_CallMethod(o, "resolve_conj", NULL);
    PyObject *all =
        half ? PyObject_CallMethod(half, "resolve_neg", NULL) : NULL;
    Py_XDECREF(half);
    return keep_moved(c, all);
}

/* What the program reads: the argument, or what stands in for it. */
static PyObject *
stand_in(call_inputs *c, PyObject *o, Py_ssize_t i)
{
    const arg_kind kind = (arg_kind)c->p->args[i];
    return kind == ARG_SCALAR ? move_scalar(c, o)
           : kind == ARG_LAZY ? resolve(c, o)
                              : o;
}

static int
read_arg(call_inputs *c, PyObject *o, Py_ssize_t i, py_known *known,
         air_value *out)
{
    const py_dtype *dtype, *want = c->p->dtypes[i];
    if (c->p->args[i] == ARG_INT)
        return read_int(c->p, o, i, out);
    if (!(o = stand_in(c, o, i)))
        return -1;
    if (py_tensor_read(o, &c->p->label, i, c->p->place, out, &dtype))
        return -1;
    if (dtype != want)
        return py_refuse(PyExc_TypeError, &c->p->label, i,
                         "is %s, %s is expected: convert it with "
                         ".to(torch.%s)",
                         dtype->name, want->name, want->name);
    const size_t bytes = value_bytes(out);
    c->bytes += bytes;
    py_known_keep(known, o, out, bytes);
    return 0;
}

static int
read_input(call_inputs *c, size_t k)
{
    static const py_label label = {.what = "constant"};
    const py_program *p = c->p;
    const py_dtype *dtype;
    py_known *known = &p->known[k];
    const Py_ssize_t i = p->sources[k];
    PyObject *o = i >= 0 ? c->args[i] : PyTuple_GetItem(p->consts, -1 - i);
    if (py_known_read(known, o, &c->in[k]))
        c->bytes += known->bytes;
    else if (i >= 0)
        return read_arg(c, o, i, known, &c->in[k]);
    else if (py_tensor_read(o, &label, -1 - i, p->place, &c->in[k], &dtype))
        return -1;
    else
        py_known_keep(known, o, &c->in[k], 0);
    return 0;
}

static int
read_args(call_inputs *c)
{
    for (size_t k = 0; k < c->p->nin; k++)
        if (read_input(c, k))
            return -1;
    return 0;
}

/* Static arguments that have not moved are not read. */
static int
read_dynamic(call_inputs *c)
{
    py_capture *capture = c->p->capture;
    if (py_capture_is_bound(capture, c->args)) {
        c->bytes = capture->static_bytes;
        for (size_t i = 0; i < capture->ndynamic; i++)
            if (read_input(c, capture->dynamic[i]))
                return -1;
    } else if (read_args(c) ||
               py_capture_bind(capture, c->args, c->p->nin, c->in, c->bytes)) {
        return -1;
    }
    c->binding = capture->binding;
    c->binding->users++;
    c->call.binding = c->binding->engine;
    py_core_limits(&c->call.cube_cores, &c->call.vector_cores);
    return 0;
}

/* ---- outputs ---- */

static PyObject *
result_base(const call_inputs *c, Py_ssize_t source)
{
    if (source < 0)
        return PyTuple_GetItem(c->p->consts, -1 - source);
    if (!c->p->capture)
        return c->args[source];
    return py_capture_argument(c->p->capture, c->call.graph, c->args, source);
}

static PyObject *
wrap_block(const call_inputs *c, air_value *v, const out_spec *o)
{
    const py_capture *capture = c->p->capture;
    PyObject *same =
        capture && capture->results
            ? py_capture_result(capture, c->call.graph, o - c->p->outs, v)
            : NULL;
    air_value taken = *v;
    if (same) /* results of a call are released by make_outputs */
        return same;
    v->block = NULL;
    return py_tensor_wrap(&taken, o->dtype, o->place);
}

static PyObject *
wrap_result(const call_inputs *c, air_value *v, const out_spec *o)
{
    const py_dtype *dtype;
    air_value base_value;
    if (v->is_int)
        return PyLong_FromLongLong(v->i);
    if (v->block || (v->alias < 0 && !v->data)) /* NULL: no elements */
        return wrap_block(c, v, o);
    if (v->alias < 0 || (size_t)v->alias >= c->p->nin) {
        PyErr_SetString(PyExc_SystemError, "a result without memory");
        return NULL;
    }
    const Py_ssize_t source = c->p->sources[v->alias];
    PyObject *base = result_base(c, source);
    if (py_tensor_read(base, &c->p->label, source, c->p->place, &base_value,
                       &dtype))
        return NULL;
    return py_tensor_alias(base, &base_value, v);
}

/* The result; of the memory of another output, where it lies in that. */
static PyObject *
make_result(call_inputs *c, air_value *results, PyObject *made,
            const out_spec *o)
{
    air_value *v = &results[o->index];
    const bool alone = o->like < 0 || (c->skip && c->skip[o->like]);
    const air_value *base = alone ? NULL : &results[c->p->outs[o->like].index];
    if (!base || !py_value_within(base, v))
        return wrap_result(c, v, o);
    return py_tensor_within(PyTuple_GetItem(made, o->like), base, v);
}

static PyObject *
make_output(call_inputs *c, air_value *results, PyObject *made, Py_ssize_t i)
{
    const out_spec *o = &c->p->outs[i];
    if (c->skip && c->skip[i])
        return Py_NewRef(Py_None);
    switch (o->kind) {
    case OUT_RESULT: return make_result(c, results, made, o);
    case OUT_ARG: return Py_NewRef(c->args[o->index]);
    case OUT_SAME: return Py_NewRef(PyTuple_GetItem(made, o->index));
    case OUT_CONST: return Py_NewRef(o->object);
    case OUT_CALL: break;
    }
    PyObject *list = args_list(c);
    return list ? PyObject_CallFunctionObjArgs(o->object, list, NULL) : NULL;
}

/* Of the outputs those that need no other one, or (late) the rest. */
static int
fill_outputs(call_inputs *c, air_value *results, PyObject *made, bool late)
{
    const py_program *p = c->p;
    for (Py_ssize_t i = 0; i < p->nouts; i++) {
        const out_spec *spec = &p->outs[i];
        if ((spec->like >= 0 || spec->kind == OUT_SAME) != late)
            continue;
        PyObject *o = make_output(c, results, made, i);
        if (!o || PyTuple_SetItem(made, i, o))
            return -1;
    }
    return 0;
}

static PyObject *
make_outputs(call_inputs *c, air_value *results)
{
    const py_program *p = c->p;
    PyObject *made = PyTuple_New(p->nouts);
    if (made && (fill_outputs(c, results, made, false) ||
                 fill_outputs(c, results, made, true)))
        Py_CLEAR(made);
    for (size_t i = 0; i < p->nresults; i++)
        if (results[i].block)
            air_value_release(&results[i]);
    if (made && p->capture && py_capture_made(p->capture, &c->call, made))
        Py_CLEAR(made);
    return made;
}

/* ---- the call ---- */

/* Short runs keep the GIL: giving it up costs more than they do. HOST nodes
 * need it, and another thread might hold it and wait for this one. */
enum { KEEP_GIL_BYTES = 1 << 17 };

static air_status
run_engine(call_inputs *c, const air_host *host, air_value *results)
{
    const py_program *p = c->p;
    if (p->capture && !c->recorded)
        return air_capture_run(p->capture->capture, &c->call, host, p->nin,
                               c->in, p->nresults, results);
    return air_program_run(p->program, host, p->nin, c->in, p->nresults,
                           results);
}

/* run: zeroed; the exception of a HOST node is in it then. */
static air_status
run_program(call_inputs *c, air_value *results, py_host_run *run)
{
    const py_program *p = c->p;
    *run = (py_host_run){.hosts = p->hosts,
                         .nhosts = p->nhosts,
                         .args = c->list,
                         .place = p->place,
                         .watch = p->watch};
    air_host host = py_host_make(run);
    host.layouts = c->layouts;
    host.frozen = py_frozen_look(p->frozen, c->args);
    host.recorded = c->recorded;
    py_context_sync();
    if (c->bytes < KEEP_GIL_BYTES && !p->nhosts)
        return run_engine(c, &host, results);
    PyThreadState *state = PyEval_SaveThread();
    air_status status = run_engine(c, &host, results);
    PyEval_RestoreThread(state);
    return status;
}

/* After a run of a capture: what it keeps, and what it was. */
static int
settle(const call_inputs *c)
{
    const py_capture *capture = c->p->capture;
    const int failed =
        py_capture_hold(capture, &c->call, c->args, c->p->nargs) ||
        py_capture_tell(capture, &c->call);
    return failed ? -1 : 0;
}

static PyObject *
call_arrays(call_inputs *c, air_value *results)
{
    py_host_run run = {0};
    const bool captured = c->p->capture && !c->recorded;
    if ((c->p->nhosts && !args_list(c)) ||
        (captured ? read_dynamic(c) : read_args(c)))
        return NULL;
    PyObject *range = py_range_open("ExecuteGraph");
    air_status status = run_program(c, results, &run);
    py_range_close(range);
    const bool drawn = !py_random_end();
    if (run.type) {
        PyErr_Clear();
        PyErr_Restore(run.type, run.value, run.trace);
        return NULL;
    }
    if (status != AIR_OK && drawn) {
        PyErr_Clear();
        return py_check(status), NULL;
    }
    if (status != AIR_OK)
        return NULL;
    if (!drawn || (captured && settle(c))) {
        for (size_t i = 0; i < c->p->nresults; i++)
            air_value_release(&results[i]);
        return NULL;
    }
    return make_outputs(c, results);
}

enum { SMALL = 24, MANY = 192 }; /* results, inputs that fit on the stack */
enum { LAYOUT = 2 * AIR_MAX_RANK };

static PyObject *
call_args(call_inputs *c)
{
    const py_program *p = c->p;
    air_value small_in[MANY], small_results[SMALL];
    int64_t small_layouts[SMALL * LAYOUT];
    if (p->nin <= MANY && p->nresults <= SMALL) {
        memset(small_results, 0, p->nresults * sizeof *small_results);
        c->in = small_in;
        c->layouts = small_layouts;
        return call_arrays(c, small_results);
    }
    c->in = PyMem_Malloc(p->nin * sizeof *c->in + 1);
    air_value *results = PyMem_Calloc(p->nresults + 1, sizeof *results);
    c->layouts = PyMem_Malloc(p->nresults * LAYOUT * sizeof *c->layouts + 1);
    PyObject *made = NULL;
    if (c->in && results && c->layouts)
        made = call_arrays(c, results);
    else
        PyErr_NoMemory();
    PyMem_Free(c->layouts);
    PyMem_Free(results);
    PyMem_Free(c->in);
    return made;
}

static PyObject *
call_and_forget(call_inputs *c)
{
    PyObject *made = call_args(c);
    Py_CLEAR(c->moved);
    py_capture_unbind(c->p->capture, c->binding);
    return made;
}

/* What the engine finds out only when it sees real sizes, such as a kernel
 * that is missing, and (STATE) what an application's graph cannot record.
 * Nothing has been written then, so torch may do it all. ARGUMENT and SHAPE
 * are the caller's: inputs that do not fit the graph. */
static bool
may_fall_back(const py_program *p)
{
    static const air_status codes[] = {AIR_ERROR_UNSUPPORTED, AIR_ERROR_DTYPE,
                                       AIR_ERROR_STATE};
    if (p->fallback == Py_None)
        return false;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (py_error_is(codes[i]))
            return true;
    return false;
}

static PyObject *
call_fallback(call_inputs *c)
{
    PyObject *type, *value, *trace, *made = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *reason = value ? PyObject_Str(value) : NULL;
    if (reason && args_list(c))
        made =
            PyObject_CallFunctionObjArgs(c->p->fallback, c->list, reason, NULL);
    Py_XDECREF(reason);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return made;
}

static PyObject *
call_operators(call_inputs *c)
{
    return args_list(c) ? PyObject_CallFunctionObjArgs(c->p->fallback, c->list,
                                                       Py_None, NULL)
                        : NULL;
}

static bool
moves_tensors(const py_program *p)
{
    for (Py_ssize_t i = 0; i < p->nargs; i++)
        if (p->args[i] == ARG_SCALAR || p->args[i] == ARG_LAZY)
            return true;
    return false;
}

static PyObject *
record_or_refuse(call_inputs *c)
{
    const py_program *p = c->p;
    if (!p->records || moves_tensors(p)) {
        py_raise_text(AIR_ERROR_STATE, "it has what only the host can do");
        return NULL;
    }
    c->recorded = true;
    PyObject *made = call_and_forget(c);
    if (made) /* its code and constants are in the application's hands */
        py_cuda_keep(p->place - PLACE_CUDA, (PyObject *)(uintptr_t)p);
    return made;
}

/* The application records the stream, to repeat what it gets now. What is more
 * than that (numbers drawn, a first run) is torch's, whose operators know. They
 * may need handles of libraries that nothing has made so far. */
static PyObject *
call_recorded(call_inputs *c)
{
    const int mode = py_cuda_relax();
    PyObject *made = record_or_refuse(c);
    if (!made && may_fall_back(c->p)) {
        PyErr_Clear();
        made = call_operators(c);
    }
    py_cuda_restore(mode);
    return made;
}

static PyObject *
call_inputs_run(call_inputs *c)
{
    const py_program *p = c->p;
    if (py_recording && p->fallback != Py_None)
        return call_operators(c); /* torchair.npu captures eager code */
    if (p->place >= PLACE_CUDA && py_cuda_is_captured(p->place - PLACE_CUDA))
        return call_recorded(c);
    PyObject *range = py_range_open("npu_fx_compiler inference");
    PyObject *made = call_and_forget(c);
    if (!made && may_fall_back(p))
        made = call_fallback(c);
    py_range_close(range);
    return made;
}

static int
check_count(const py_program *p, Py_ssize_t n)
{
    if (n == p->nargs)
        return 0;
    if (n < p->nargs)
        return py_refuse(PyExc_TypeError, &p->label, n,
                         "is missing: %zd inputs expected, got %zd", p->nargs,
                         n);
    PyErr_Format(PyExc_TypeError, "%zd inputs expected, got %zd", p->nargs, n);
    return -1;
}

static PyObject *
call_list(const py_program *p, PyObject *list)
{
    PyObject *small[MANY], **args = small;
    if (check_count(p, PyList_Size(list)))
        return NULL;
    if (p->nargs > MANY)
        args = PyMem_Malloc((size_t)p->nargs * sizeof *args);
    if (!args)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < p->nargs; i++)
        args[i] = PyList_GetItem(list, i);
    call_inputs c = {.p = p, .args = args, .list = list};
    PyObject *made = call_inputs_run(&c);
    if (made && PyList_SetSlice(list, 0, PyList_Size(list), NULL))
        Py_CLEAR(made);
    if (args != small)
        PyMem_Free(args);
    return made;
}

PyObject *
py_program_call(PyObject *program, PyObject *const *args, Py_ssize_t n,
                const bool *skip)
{
    const py_program *p = (const py_program *)program;
    if (check_count(p, n))
        return NULL;
    call_inputs c = {.p = p, .args = args, .skip = skip};
    PyObject *made = call_inputs_run(&c);
    Py_XDECREF(c.list);
    return made;
}

Py_ssize_t
py_program_outputs(PyObject *program)
{
    return ((const py_program *)program)->nouts;
}

static PyObject *
program_vectorcall(PyObject *self, PyObject *const *args, size_t nargs,
                   PyObject *names)
{
    const py_program *p = (const py_program *)self;
    size_t n = nargs & ~ARGUMENTS_OFFSET;
    if (names && PyTuple_Size(names)) {
        PyErr_SetString(PyExc_TypeError, "a program takes no keywords");
        return NULL;
    }
    if (n == 1 && PyList_Check(args[0]))
        return call_list(p, args[0]);
    return py_program_call(self, args, (Py_ssize_t)n, NULL);
}

static PyObject *
program_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    const py_program *p = (const py_program *)self;
    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "a program takes no keywords");
        return NULL;
    }
    if (PyTuple_Size(args) == 1 && PyList_Check(PyTuple_GetItem(args, 0)))
        return call_list(p, PyTuple_GetItem(args, 0));
    PyObject *list = PySequence_List(args);
    PyObject *made = list ? call_list(p, list) : NULL;
    Py_XDECREF(list);
    return made;
}

/* ---- construction ---- */

static int
compile(py_program *p, PyObject *graph, const air_compile_options *options)
{
    const air_graph *g = py_graph_get(graph);
    air_context *ctx = g ? py_context_at(p->place) : NULL;
    if (!g || !ctx)
        return -1;
    PyThreadState *state = PyEval_SaveThread();
    air_status status = air_program_create(ctx, g, options, &p->program);
    PyEval_RestoreThread(state);
    return py_check(status);
}

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "graph",     "args",     "consts",     "results",    "outs",
        "hosts",     "fallback", "exact",      "pass_limit", "rewrite_limit",
        "dump_dir",  "without",  "capture",    "order",      "list_min",
        "give_back", "frozen",   "spec_limit", "tf32",       NULL};
    PyObject *graph, *arg_specs, *consts, *outs, *hosts, *fallback = Py_None;
    PyObject *capture = Py_None;
    air_compile_options options = {0};
    int exact = 0, order = 0, give_back = 0, frozen = 0, tf32 = 0;
    long long list_min = 0;
    unsigned long long spec_limit = 0;
    Py_ssize_t nresults;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "OO!O!nO!O!|OpiizIOiLppKp", names, &graph,
            &PyTuple_Type, &arg_specs, &PyTuple_Type, &consts, &nresults,
            &PyTuple_Type, &outs, &PyTuple_Type, &hosts, &fallback, &exact,
            &options.pass_limit, &options.rewrite_limit, &options.dump_dir,
            &options.without, &capture, &order, &list_min, &give_back, &frozen,
            &spec_limit, &tf32))
        return NULL;
    if (nresults < 0) {
        PyErr_SetString(PyExc_ValueError, "results must not be negative");
        return NULL;
    }
    options.exact = exact != 0;
    options.order = (air_order)order;
    options.list_min = list_min;
    options.give_back = give_back != 0;
    options.spec_limit = spec_limit;
    options.tf32 = tf32 != 0;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    py_program *p = (py_program *)alloc(type, 0);
    if (!p)
        return NULL;
    p->call = program_vectorcall;
    p->consts = Py_NewRef(consts);
    p->fallback = Py_NewRef(fallback);
    p->nresults = (size_t)nresults;
    p->place =
        Py_TYPE(graph) == py_graph_type ? py_graph_place(graph) : PLACE_HOST;
    if (py_program_read(p, graph, arg_specs, outs, hosts) ||
        compile(p, graph, &options) ||
        !(p->known =
              py_known_make(py_graph_get(graph), p->nin, p->sources, frozen)) ||
        py_frozen_make(py_graph_get(graph), p->nin, p->sources, &p->frozen) ||
        (capture != Py_None &&
         py_capture_open(capture, p->program, py_graph_get(graph), p->place,
                         p->nin, p->sources, &p->capture))) {
        Py_DECREF((PyObject *)p);
        return NULL;
    }
    return (PyObject *)p;
}

static void
program_dealloc(PyObject *self)
{
    py_program *p = (py_program *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (p->weakrefs)
        PyObject_ClearWeakRefs(self);
    py_capture_close(p->capture);
    if (p->program)
        air_program_destroy(p->program);
    for (size_t i = 0; i < p->nhosts; i++)
        py_host_free(&p->hosts[i]);
    for (Py_ssize_t i = 0; i < p->nouts; i++)
        Py_XDECREF(p->outs[i].object);
    Py_XDECREF(p->label.names);
    Py_XDECREF(p->consts);
    Py_XDECREF(p->fallback);
    Py_XDECREF(p->watch);
    py_known_free(p->known, p->nin);
    py_frozen_free(p->frozen);
    PyMem_Free(p->sources);
    PyMem_Free(p->hosts);
    PyMem_Free(p->outs);
    PyMem_Free((void *)p->dtypes);
    PyMem_Free(p->args);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- attributes ---- */

static PyObject *
get_boxed(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    Py_RETURN_TRUE;
}

/* ---- made ahead ---- */

static PyObject *
program_prepare(PyObject *self, PyObject *shapes)
{
    const py_program *p = (const py_program *)self;
    air_value *in = PyMem_Calloc(p->nin + 1, sizeof *in);
    int64_t *room = PyMem_Calloc(p->nin + 1, 2 * AIR_MAX_RANK * sizeof *room);
    int failed = -1;
    if (!in || !room)
        PyErr_NoMemory();
    else if (!PyList_Check(shapes) || PyList_Size(shapes) != p->nargs)
        PyErr_SetString(PyExc_ValueError, "a shape for each argument");
    else if (!py_program_shapes(p, shapes, in, room)) {
        PyThreadState *state = PyEval_SaveThread();
        air_status status = air_program_prepare(p->program, p->nin, in);
        PyEval_RestoreThread(state);
        failed = py_check(status);
    }
    PyMem_Free(in);
    PyMem_Free(room);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
get_watch(PyObject *self, void *unused)
{
    (void)unused;
    PyObject *watch = ((py_program *)self)->watch;
    return Py_NewRef(watch ? watch : Py_None);
}

static int
set_watch(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    py_program *p = (py_program *)self;
    PyObject *old = p->watch;
    p->watch = value && value != Py_None ? Py_NewRef(value) : NULL;
    Py_XDECREF(old);
    return 0;
}

static PyMethodDef methods[] = {
    {"text", py_program_text, METH_O,
     "text(kind): 0 graph after passes, 1 steps, 2 explanation, 3 memory, "
     "4 to 6 the graph as Ascend IR, 7 passes"},
    {"stats", py_program_stats, METH_NOARGS, "counters of the program"},
    {"prepare", program_prepare, METH_O,
     "prepare(shapes): makes what a run needs; a list with (dims, strides) or "
     "an integer for each argument"},
    {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(py_program, call), READONLY,
     NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(py_program, weakrefs), READONLY,
     NULL},
    {"records", T_BOOL, offsetof(py_program, records), 0,
     "the application may record its HOST nodes"},
    {NULL, 0, 0, 0, NULL}};
static PyGetSetDef getset[] = {
    {"_boxed_call", get_boxed, NULL, "AOTAutograd may pass one list", NULL},
    {"watch", get_watch, set_watch,
     "watch(index, kind, label, done, seconds, values) is shown every step of "
     "the runs to come, before and after it; None: nobody is",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_doc, "A compiled graph: call it with one list, or positionally."},
    {Py_tp_new, program_new},
    {Py_tp_call, program_call},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getset},
    {0, NULL}};
static PyType_Spec spec = {.name = "torchair._native.Program",
                           .basicsize = sizeof(py_program),
                           .flags = Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL |
                                    Py_TPFLAGS_IMMUTABLETYPE,
                           .slots = slots};

int
py_program_init(PyObject *module)
{
    return py_type_add(module, &spec, &py_program_type);
}
