/* py_dispatch.c: torchair._native.Dispatcher: from the arguments of a compiled
 * function straight to what Dynamo made for them.
 *
 * Dynamo's own way takes 10 us of Python a call. The dispatcher holds, for one
 * function, the guard trees that Dynamo built and the functions they lead to;
 * it binds the arguments as the interpreter would, asks each tree, and calls
 * the function of the first that holds, or the graph in it by its recipe. In
 * every other case it calls `slow`, Dynamo's own wrapper, then lets `refresh`
 * look for new entries. Nothing here knows torch: dispatch.py says what to ask.
 */
#include "py.h"

#include <string.h>
#include <structmember.h>

/* What the generated function does, where that is just a call of the graph
 * (bytecode.py): which parameters it takes, which outputs become the result. */
typedef enum { GIVE_ITEM, GIVE_TUPLE, GIVE_LIST } give;
typedef struct {
    PyObject *names; /* tuple: parameters, in the graph's order */
    give shape;
    PyObject *items; /* tuple of (index, object): an output; -1: the object */
} recipe;

typedef struct {
    PyObject *check; /* locals -> bool */
    PyObject *owner; /* its `cache_entry` is None once Dynamo dropped it */
    PyObject *call;
    recipe how; /* names NULL: none, `call` takes the caller's arguments */
} entry;

/* The way of a call, and why it was the slow one; counted. */
#define WHYS(X)                                                           \
    X(HIT, "dispatched")                                                  \
    X(BARE, "of these, without the function that Dynamo generated")       \
    X(EMPTY, "nothing compiled that can be called directly")              \
    X(GUARDS, "no guards hold: sizes, types or globals are others")       \
    X(STATE, "Dynamo is at work, a stance is set, or a trace is running") \
    X(HOOKS, "the module has hooks or another forward")                   \
    X(BIND, "the arguments do not fit the function's parameters")
typedef enum {
#define X(id, text) WHY_##id,
    WHYS(X)
#undef X
        WHY_COUNT
} why;
static const char *const why_texts[] = {
#define X(id, text) text,
    WHYS(X)
#undef X
};

/* The parameters of a code object, in the order of its locals. */
typedef struct {
    PyObject *names;           /* tuple: positional, keyword only, *a, **k */
    Py_ssize_t npos, nkeyword; /* how many of each */
    bool var_args, var_keywords;
    PyObject *defaults;         /* tuple, of the last positional ones */
    PyObject *keyword_defaults; /* dict */
    PyObject *free_names, *cells;
} signature;

typedef struct {
    PyObject_HEAD py_vectorcall call;
    PyObject *slow, *refresh;
    PyObject *self;    /* bound first argument, or NULL */
    PyObject *hooks;   /* tuple of dicts that must be empty, or NULL */
    PyObject *module;  /* the module's __dict__ when hooks matter, or NULL */
    PyObject *busy;    /* () -> None while nobody traces */
    PyObject *tracing; /* () -> None while torch.jit traces nothing */
    PyObject *scope, *stance; /* scope["_stance"] must be this one */
    signature sig;
    entry *entries;
    Py_ssize_t nentries;
    unsigned long long counts[WHY_COUNT];
    unsigned in_vain; /* looks for entries in a row that found nothing new */
    PyObject *weakrefs;
} dispatcher;

static PyObject *name_stance, *name_cache_entry, *name_cell, *name_forward,
    *name_compiled_call, *name_in_module;
static PyObject *hook_names[4];

/* ---- may the short way be taken at all? ---- */

static bool
is_none_now(PyObject *ask)
{
    PyObject *got = PyObject_CallNoArgs(ask);
    bool none = got == Py_None;
    if (!got)
        py_error_drop();
    Py_XDECREF(got);
    return none;
}

static bool
state_is_plain(const dispatcher *d)
{
    return PyDict_GetItemWithError(d->scope, name_stance) == d->stance &&
           is_none_now(d->busy) && is_none_now(d->tracing);
}

/* Does calling a module come to nothing but its forward? As
 * torch.nn.Module.__call__ decides it. */
static bool
hooks_are_empty(const dispatcher *d, PyObject *vars)
{
    for (Py_ssize_t i = 0, n = PyTuple_Size(d->hooks); i < n; i++)
        if (PyObject_Size(PyTuple_GetItem(d->hooks, i)) != 0)
            return false;
    for (size_t i = 0; i < sizeof hook_names / sizeof *hook_names; i++) {
        PyObject *own = PyDict_GetItemWithError(vars, hook_names[i]);
        if (!own || PyObject_Size(own) != 0)
            return false;
    }
    PyObject *other = PyDict_GetItemWithError(vars, name_compiled_call);
    return !other || other == Py_None;
}

static bool
module_is_plain(const dispatcher *d)
{
    return !d->module || (hooks_are_empty(d, d->module) &&
                          !PyDict_GetItemWithError(d->module, name_forward));
}

/* ---- binding ---- */

static Py_ssize_t
find_name(const signature *s, PyObject *name)
{
    Py_ssize_t n = s->npos + s->nkeyword;
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyTuple_GetItem(s->names, i) == name)
            return i;
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyUnicode_Compare(PyTuple_GetItem(s->names, i), name) == 0)
            return i;
    return -1;
}

static bool
set_local(const signature *s, PyObject *locals, Py_ssize_t i, PyObject *value)
{
    return PyDict_SetItem(locals, PyTuple_GetItem(s->names, i), value) == 0;
}

/* Positional arguments; what is left of them goes into *args. */
static bool
bind_positional(const dispatcher *d, PyObject *locals, PyObject *const *args,
                Py_ssize_t nargs)
{
    const signature *s = &d->sig;
    Py_ssize_t shift = d->self != NULL, total = nargs + shift;
    Py_ssize_t named = total < s->npos ? total : s->npos;
    if (total > s->npos && !s->var_args)
        return false;
    for (Py_ssize_t i = 0; i < named; i++)
        if (!set_local(s, locals, i, i < shift ? d->self : args[i - shift]))
            return false;
    if (!s->var_args)
        return true;
    PyObject *rest = PyTuple_New(total - named);
    for (Py_ssize_t i = named; rest && i < total; i++)
        PyTuple_SetItem(rest, i - named,
                        Py_NewRef(i < shift ? d->self : args[i - shift]));
    bool ok = rest && set_local(s, locals, s->npos + s->nkeyword, rest);
    Py_XDECREF(rest);
    return ok;
}

static bool
bind_keywords(const dispatcher *d, PyObject *locals, PyObject *const *values,
              PyObject *names)
{
    const signature *s = &d->sig;
    PyObject *rest = s->var_keywords ? PyDict_New() : NULL;
    bool ok = rest || !s->var_keywords;
    for (Py_ssize_t i = 0, n = names ? PyTuple_Size(names) : 0; ok && i < n;
         i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        Py_ssize_t at = find_name(s, name);
        if (at >= 0) /* not twice */
            ok = !PyDict_GetItemWithError(locals, name) &&
                 set_local(s, locals, at, values[i]);
        else
            ok = rest && PyDict_SetItem(rest, name, values[i]) == 0;
    }
    if (ok && rest)
        ok = set_local(s, locals, s->npos + s->nkeyword + s->var_args, rest);
    Py_XDECREF(rest);
    return ok;
}

static bool
bind_defaults(const dispatcher *d, PyObject *locals)
{
    const signature *s = &d->sig;
    Py_ssize_t ndefaults = PyTuple_Size(s->defaults);
    for (Py_ssize_t i = 0; i < s->npos + s->nkeyword; i++) {
        PyObject *name = PyTuple_GetItem(s->names, i), *value;
        if (PyDict_GetItemWithError(locals, name))
            continue;
        if (i >= s->npos)
            value = PyDict_GetItemWithError(s->keyword_defaults, name);
        else if (i >= s->npos - ndefaults)
            value = PyTuple_GetItem(s->defaults, i - (s->npos - ndefaults));
        else
            value = NULL;
        if (!value || PyDict_SetItem(locals, name, value))
            return false;
    }
    return true;
}

static bool
bind_cells(const signature *s, PyObject *locals)
{
    for (Py_ssize_t i = 0, n = PyTuple_Size(s->free_names); i < n; i++) {
        PyObject *value =
            PyObject_GetAttr(PyTuple_GetItem(s->cells, i), name_cell);
        int failed =
            !value ||
            PyDict_SetItem(locals, PyTuple_GetItem(s->free_names, i), value);
        Py_XDECREF(value);
        if (failed)
            return false;
    }
    return true;
}

/* The locals the function would begin with; NULL where it could not. */
static PyObject *
bind(const dispatcher *d, PyObject *const *args, Py_ssize_t nargs,
     PyObject *names)
{
    PyObject *locals = PyDict_New();
    Py_ssize_t given = nargs + (d->self != NULL);
    bool plain = !names && given == d->sig.npos && d->sig.nkeyword == 0;
    if (locals && bind_positional(d, locals, args, nargs) &&
        ((plain && !d->sig.var_keywords) ||
         (bind_keywords(d, locals, args + nargs, names) &&
          bind_defaults(d, locals))) &&
        bind_cells(&d->sig, locals))
        return locals;
    py_error_drop();
    Py_XDECREF(locals);
    return NULL;
}

/* ---- entries ---- */

static void
entry_clear(entry *e)
{
    Py_CLEAR(e->check);
    Py_CLEAR(e->owner);
    Py_CLEAR(e->call);
    Py_CLEAR(e->how.names);
    Py_CLEAR(e->how.items);
}

/* Calls can change the entries: they hold what they use. */
static entry
entry_take(const entry *e)
{
    entry out = *e;
    Py_INCREF(out.check);
    Py_INCREF(out.owner);
    Py_INCREF(out.call);
    Py_XINCREF(out.how.names);
    Py_XINCREF(out.how.items);
    return out;
}

/* What may run Python code comes last: it can enter the dispatcher again. */
static void
entries_clear(dispatcher *d)
{
    entry *old = d->entries;
    Py_ssize_t n = d->nentries;
    d->entries = NULL;
    d->nentries = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        entry_clear(&old[i]);
    PyMem_Free(old);
}

/* Objects die after their guards were made; Dynamo then drops the entry, and
 * a tree that is asked nevertheless could mistake a new object for them. */
static bool
is_alive(const entry *e)
{
    PyObject *cache = PyObject_GetAttr(e->owner, name_cache_entry);
    bool alive = cache && cache != Py_None;
    if (!cache)
        py_error_drop();
    Py_XDECREF(cache);
    return alive;
}

static bool
guards_hold(const entry *e, PyObject *locals)
{
    PyObject *yes = PyObject_Vectorcall(e->check, &locals, 1, NULL);
    bool hit = yes == Py_True;
    if (!yes)
        py_error_drop(); /* a guard that raises does not hold */
    Py_XDECREF(yes);
    return hit;
}

/* *out: what answers for these locals, with references of its own. */
static bool
find_entry(dispatcher *d, PyObject *locals, entry *out)
{
    for (Py_ssize_t i = 0; i < d->nentries; i++) {
        if (!is_alive(&d->entries[i])) {
            entries_clear(d);
            return false;
        }
        *out = entry_take(&d->entries[i]);
        if (guards_hold(out, locals))
            return true;
        entry_clear(out);
    }
    return false;
}

/* ---- the call ---- */

/* A frame that a graph break has cut in two never gets an entry, and to look
 * takes as long as a third of such a call. */
static bool
looks_again(dispatcher *d)
{
    enum { OFTEN = 8, SELDOM = 16 };
    return d->in_vain++ < OFTEN || d->in_vain % SELDOM == 0;
}

static PyObject *
call_slow(dispatcher *d, PyObject *const *args, size_t nargsf, PyObject *names,
          why reason)
{
    d->counts[reason]++;
    PyObject *out = PyObject_Vectorcall(d->slow, args, nargsf, names);
    if (!out || (reason != WHY_EMPTY && reason != WHY_GUARDS) ||
        !looks_again(d))
        return out;
    PyObject *done = PyObject_CallFunctionObjArgs(d->refresh, d, NULL);
    if (!done)
        Py_CLEAR(out);
    Py_XDECREF(done);
    return out;
}

/* call(self?, *args): the caller's vector serves where it may be changed. */
static PyObject *
call_bound(const dispatcher *d, PyObject *call, PyObject *const *args,
           size_t nargsf, PyObject *names)
{
    if (!d->self)
        return PyObject_Vectorcall(call, args, nargsf, names);
    Py_ssize_t n = (Py_ssize_t)(nargsf & ~ARGUMENTS_OFFSET);
    Py_ssize_t total = n + (names ? PyTuple_Size(names) : 0);
    PyObject *few[8], **all = few;
    if (total + 1 > 8 &&
        !(all = PyMem_Malloc((size_t)(total + 1) * sizeof(PyObject *))))
        return PyErr_NoMemory();
    all[0] = d->self;
    for (Py_ssize_t i = 0; i < total; i++)
        all[i + 1] = args[i];
    PyObject *out = PyObject_Vectorcall(call, all, (size_t)n + 1, names);
    if (all != few)
        PyMem_Free(all);
    return out;
}

/* ---- by recipe ---- */

static PyObject *
borrow_item(PyObject *items, PyObject *made)
{
    PyObject *index = PyTuple_GetItem(items, 0);
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i < 0)
        return PyTuple_GetItem(items, 1);
    return PyTuple_Check(made) ? PyTuple_GetItem(made, i)
                               : PyList_GetItem(made, i);
}

static PyObject *
give_items(const recipe *how, PyObject *made)
{
    const Py_ssize_t n = PyTuple_Size(how->items);
    const bool in_list = how->shape == GIVE_LIST;
    PyObject *out = in_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyObject *item = borrow_item(PyTuple_GetItem(how->items, i), made);
        if (!item || (in_list ? PyList_SetItem(out, i, Py_NewRef(item))
                              : PyTuple_SetItem(out, i, Py_NewRef(item))))
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *
give_result(const recipe *how, PyObject *made)
{
    if (how->shape != GIVE_ITEM)
        return give_items(how, made);
    PyObject *item = borrow_item(PyTuple_GetItem(how->items, 0), made);
    return item ? Py_NewRef(item) : NULL;
}

enum { FEW = 16 };

static PyObject *
call_by_recipe(const entry *e, PyObject *locals)
{
    const Py_ssize_t n = PyTuple_Size(e->how.names);
    PyObject *few[FEW], **all = few;
    if (n > FEW && !(all = PyMem_Malloc((size_t)n * sizeof(PyObject *))))
        return PyErr_NoMemory();
    bool bound = true;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(e->how.names, i);
        all[i] = PyDict_GetItemWithError(locals, name);
        bound = bound && all[i];
    }
    PyObject *made =
        bound ? PyObject_Vectorcall(e->call, all, (size_t)n, NULL) : NULL;
    PyObject *out = made ? give_result(&e->how, made) : NULL;
    if (!bound)
        PyErr_SetString(PyExc_SystemError, "a recipe names no parameter");
    Py_XDECREF(made);
    if (all != few)
        PyMem_Free(all);
    return out;
}

/* ---- all of it ---- */

typedef struct {
    PyObject *locals;
    entry found;
} match;

/* WHY_HIT: *out is what answers; else why nothing does. */
static why
find_match(dispatcher *d, PyObject *const *args, Py_ssize_t nargs,
           PyObject *names, match *out)
{
    if (!state_is_plain(d))
        return WHY_STATE;
    if (d->nentries == 0)
        return WHY_EMPTY;
    if (!module_is_plain(d))
        return WHY_HOOKS;
    out->locals = bind(d, args, nargs, names);
    if (!out->locals)
        return WHY_BIND;
    if (find_entry(d, out->locals, &out->found))
        return WHY_HIT;
    Py_DECREF(out->locals);
    return WHY_GUARDS;
}

static PyObject *
call_match(dispatcher *d, match *m, PyObject *const *args, size_t nargsf,
           PyObject *names)
{
    d->counts[WHY_HIT]++;
    d->counts[WHY_BARE] += m->found.how.names != NULL;
    PyObject *out = m->found.how.names
                        ? call_by_recipe(&m->found, m->locals)
                        : call_bound(d, m->found.call, args, nargsf, names);
    entry_clear(&m->found);
    Py_DECREF(m->locals);
    return out;
}

static PyObject *
dispatcher_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                      PyObject *names)
{
    dispatcher *d = (dispatcher *)self;
    const Py_ssize_t n = (Py_ssize_t)(nargsf & ~ARGUMENTS_OFFSET);
    match m;
    why reason = find_match(d, args, n, names, &m);
    return reason == WHY_HIT ? call_match(d, &m, args, nargsf, names)
                             : call_slow(d, args, nargsf, names, reason);
}

/* call_module(vars, *args, **kwargs): what the module of torch.compile, whose
 * __dict__ is vars, gives where calling it comes to its forward and the short
 * way can be taken; else NotImplemented. torch says in a flag that it is in
 * such a call. */
static PyObject *
dispatcher_call_module(PyObject *self, PyObject *const *args, Py_ssize_t n,
                       PyObject *names)
{
    dispatcher *d = (dispatcher *)self;
    match m;
    if (n < 1 || !PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "call_module(vars, *args, **kwargs)");
        return NULL;
    }
    if (!hooks_are_empty(d, args[0]) ||
        find_match(d, args + 1, n - 1, names, &m) != WHY_HIT)
        return Py_NewRef(Py_NotImplemented);
    PyObject *was = PyDict_GetItemWithError(d->scope, name_in_module);
    Py_XINCREF(was);
    if (was && PyDict_SetItem(d->scope, name_in_module, Py_True))
        py_error_drop();
    PyObject *out = call_match(d, &m, args + 1, (size_t)(n - 1), names);
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (was && PyDict_SetItem(d->scope, name_in_module, was))
        py_error_drop();
    PyErr_Restore(type, value, trace);
    Py_XDECREF(was);
    return out;
}

static PyObject *
dispatcher_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    return PyVectorcall_Call(self, args, keywords);
}

/* ---- making one ---- */

static int
read_signature(PyObject *spec, signature *s)
{
    int var_args, var_keywords;
    if (!PyArg_ParseTuple(spec, "O!nnppO!O!O!O!", &PyTuple_Type, &s->names,
                          &s->npos, &s->nkeyword, &var_args, &var_keywords,
                          &PyTuple_Type, &s->defaults, &PyDict_Type,
                          &s->keyword_defaults, &PyTuple_Type, &s->free_names,
                          &PyTuple_Type, &s->cells))
        return -1;
    s->var_args = var_args != 0;
    s->var_keywords = var_keywords != 0;
    Py_INCREF(s->names);
    Py_INCREF(s->defaults);
    Py_INCREF(s->keyword_defaults);
    Py_INCREF(s->free_names);
    Py_INCREF(s->cells);
    if (PyTuple_Size(s->names) !=
            s->npos + s->nkeyword + s->var_args + s->var_keywords ||
        PyTuple_Size(s->free_names) != PyTuple_Size(s->cells)) {
        PyErr_SetString(PyExc_ValueError, "signature: names do not fit counts");
        return -1;
    }
    return 0;
}

static PyObject *
or_null(PyObject *o)
{
    return o == Py_None ? NULL : Py_NewRef(o);
}

static PyObject *
dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"slow",   "refresh", "signature", "bound", "hooks",
                            "module", "busy",    "tracing",   "scope", NULL};
    PyObject *slow, *refresh, *spec, *self, *hooks, *module, *busy, *tracing;
    PyObject *scope;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO!OO!OOOO!", words,
                                     &slow, &refresh, &PyTuple_Type, &spec,
                                     &self, &PyTuple_Type, &hooks, &module,
                                     &busy, &tracing, &PyDict_Type, &scope))
        return NULL;
    PyObject *stance = PyDict_GetItemWithError(scope, name_stance);
    if (!stance) {
        PyErr_SetString(PyExc_ValueError, "scope has no _stance");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    dispatcher *d = (dispatcher *)alloc(type, 0);
    if (!d)
        return NULL;
    d->call = dispatcher_vectorcall;
    d->slow = Py_NewRef(slow);
    d->refresh = Py_NewRef(refresh);
    d->self = or_null(self);
    d->hooks = Py_NewRef(hooks);
    d->module = or_null(module);
    d->busy = Py_NewRef(busy);
    d->tracing = Py_NewRef(tracing);
    d->scope = Py_NewRef(scope);
    d->stance = Py_NewRef(stance);
    if (read_signature(spec, &d->sig)) {
        Py_DECREF((PyObject *)d);
        return NULL;
    }
    return (PyObject *)d;
}

static int
dispatcher_traverse(PyObject *self, visitproc visit, void *arg)
{
    dispatcher *d = (dispatcher *)self;
    PyObject *held[] = {(PyObject *)Py_TYPE(self),
                        d->slow,
                        d->refresh,
                        d->self,
                        d->hooks,
                        d->module,
                        d->sig.defaults,
                        d->sig.keyword_defaults,
                        d->sig.cells};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_VISIT(held[i]);
    for (Py_ssize_t i = 0; i < d->nentries; i++) {
        Py_VISIT(d->entries[i].check);
        Py_VISIT(d->entries[i].owner);
        Py_VISIT(d->entries[i].call);
    }
    return 0;
}

static int
dispatcher_clear(PyObject *self)
{
    dispatcher *d = (dispatcher *)self;
    PyObject **held[] = {
        &d->slow,           &d->refresh,      &d->self,
        &d->hooks,          &d->module,       &d->busy,
        &d->tracing,        &d->scope,        &d->stance,
        &d->sig.names,      &d->sig.defaults, &d->sig.keyword_defaults,
        &d->sig.free_names, &d->sig.cells};
    entries_clear(d);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        Py_CLEAR(*held[i]);
    return 0;
}

static void
dispatcher_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((dispatcher *)self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    dispatcher_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- methods ---- */

/* how: None or (names, shape, items). */
static int
read_recipe(PyObject *how, recipe *out)
{
    static const char *const shapes[] = {"item", "tuple", "list"};
    const char *shape;
    int k = 0;
    if (how == Py_None)
        return 0;
    if (!PyArg_ParseTuple(how, "O!sO!", &PyTuple_Type, &out->names, &shape,
                          &PyTuple_Type, &out->items)) {
        *out = (recipe){0};
        return -1;
    }
    Py_INCREF(out->names);
    Py_INCREF(out->items);
    while (k < 3 && strcmp(shapes[k], shape))
        k++;
    out->shape = (give)k;
    if (k < 3)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a shape is item, tuple or list");
    return -1;
}

static int
read_entry(PyObject *row, entry *out)
{
    PyObject *how;
    if (!PyTuple_Check(row)) {
        PyErr_SetString(PyExc_TypeError,
                        "an entry is (check, owner, call, recipe)");
        return -1;
    }
    if (!PyArg_ParseTuple(row, "OOOO", &out->check, &out->owner, &out->call,
                          &how)) {
        *out = (entry){0};
        return -1;
    }
    Py_INCREF(out->check);
    Py_INCREF(out->owner);
    Py_INCREF(out->call);
    return read_recipe(how, &out->how);
}

/* entries: tuple of (check, owner, call, recipe), first asked first. */
static PyObject *
dispatcher_set(PyObject *self, PyObject *entries)
{
    dispatcher *d = (dispatcher *)self;
    if (!PyTuple_Check(entries)) {
        PyErr_SetString(PyExc_TypeError, "entries must be a tuple");
        return NULL;
    }
    Py_ssize_t n = PyTuple_Size(entries);
    entry *made = PyMem_Calloc((size_t)n + 1, sizeof *made);
    if (!made)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        if (read_entry(PyTuple_GetItem(entries, i), &made[i])) {
            for (Py_ssize_t k = 0; k <= i; k++)
                entry_clear(&made[k]);
            PyMem_Free(made);
            return NULL;
        }
    }
    entries_clear(d);
    d->entries = made;
    d->nentries = n;
    d->in_vain = 0;
    Py_RETURN_NONE;
}

static PyObject *
dispatcher_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    const dispatcher *d = (const dispatcher *)self;
    PyObject *out = PyDict_New();
    for (int i = 0; out && i < WHY_COUNT; i++) {
        PyObject *count = PyLong_FromUnsignedLongLong(d->counts[i]);
        if (!count || PyDict_SetItemString(out, why_texts[i], count))
            Py_CLEAR(out);
        Py_XDECREF(count);
    }
    return out;
}

static PyMethodDef methods[] = {
    {"set_entries", dispatcher_set, METH_O,
     "set_entries(tuple of (check, owner, call, recipe))"},
    {"stats", dispatcher_stats, METH_NOARGS, "calls by the way they took"},
    {"call_module", (PyCFunction)(void (*)(void))dispatcher_call_module,
     METH_FASTCALL | METH_KEYWORDS,
     "call_module(vars, *args, **kwargs): the result or NotImplemented"},
    {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET,
                                 offsetof(dispatcher, call), READONLY, NULL},
                                {"__weaklistoffset__", T_PYSSIZET,
                                 offsetof(dispatcher, weakrefs), READONLY,
                                 NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_doc, "Guards in front of compiled code; see dispatch.py."},
    {Py_tp_new, dispatcher_new},
    {Py_tp_call, dispatcher_call},
    {Py_tp_traverse, dispatcher_traverse},
    {Py_tp_clear, dispatcher_clear},
    {Py_tp_dealloc, dispatcher_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL}};
static PyType_Spec spec = {.name = "torchair._native.Dispatcher",
                           .basicsize = sizeof(dispatcher),
                           .flags = Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL |
                                    Py_TPFLAGS_HAVE_GC |
                                    Py_TPFLAGS_IMMUTABLETYPE,
                           .slots = slots};

int
py_dispatch_init(PyObject *module)
{
    static const struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_stance, "_stance"},
                 {&name_cache_entry, "cache_entry"},
                 {&name_cell, "cell_contents"},
                 {&name_forward, "forward"},
                 {&name_compiled_call, "_compiled_call_impl"},
                 {&name_in_module, "_in_optimized_module"},
                 {&hook_names[0], "_forward_hooks"},
                 {&hook_names[1], "_forward_pre_hooks"},
                 {&hook_names[2], "_backward_hooks"},
                 {&hook_names[3], "_backward_pre_hooks"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].name = PyUnicode_InternFromString(names[i].text)))
            return -1;
    return py_type_add(module, &spec, NULL);
}
