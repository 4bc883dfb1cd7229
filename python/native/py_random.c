/* py_random.c: the engine draws from torch's default generator.
 *
 * torch shows the state of a generator as a tensor of bytes, and takes one.
 * Both are atomic, so other threads that draw meanwhile see a whole state,
 * this one's or an earlier one. A run fetches the state when it first draws
 * and gives it back when it is over or calls torch. */
#include "py.h"

#include <string.h>

enum { WORDS = 624 };

/* As ATen lays the bytes out. */
typedef struct {
    uint64_t seed;
    int32_t left, seeded; /* left: words not given out, and one */
    uint64_t next, words[WORDS];
    double x, normal, rho;
    int32_t has_normal;
    float single;
    bool has_single;
} torch_state;
_Static_assert(sizeof(torch_state) == 5056, "a state of torch");

/* What this thread's run has of the generator. */
static _Thread_local struct {
    PyObject *tensor; /* the state's bytes; NULL: not fetched */
    torch_state *state;
    air_mt19937 drawn;
    PyObject *type, *value, *trace; /* why it could not be fetched */
} session;

static PyObject *default_generator;

static int
fetch(void)
{
    static const py_label label = {.what = "state of torch's generator"};
    const py_dtype *dtype;
    air_value v;
    session.tensor = PyObject_CallMethod(default_generator, "get_state", NULL);
    if (!session.tensor ||
        py_tensor_read(session.tensor, &label, 0, PLACE_HOST, &v, &dtype))
        return -1;
    if (v.rank != 1 || v.dims[0] != (int64_t)sizeof(torch_state) ||
        v.dtype != AIR_U8) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the state of torch's generator has another form");
        return -1;
    }
    session.state = v.data;
    return 0;
}

static void
unpack(const torch_state *s, air_mt19937 *out)
{
    for (int i = 0; i < WORDS; i++)
        out->words[i] = (uint32_t)s->words[i];
    out->next = WORDS - (s->left - 1);
    out->has_normal = s->has_normal != 0;
    out->normal = s->normal;
}

static void
pack(const air_mt19937 *m, torch_state *out)
{
    for (int i = 0; i < WORDS; i++)
        out->words[i] = m->words[i];
    out->left = WORDS - m->next + 1;
    out->next = (uint64_t)m->next;
    out->has_normal = m->has_normal;
    out->normal = m->has_normal ? m->normal : 0;
}

static air_mt19937 *
take(void *user)
{
    (void)user;
    if (session.tensor)
        return &session.drawn;
    if (session.type)
        return NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    int failed = fetch();
    if (failed) {
        Py_CLEAR(session.tensor);
        PyErr_Fetch(&session.type, &session.value, &session.trace);
    } else {
        unpack(session.state, &session.drawn);
    }
    PyGILState_Release(gil);
    return failed ? NULL : &session.drawn;
}

static air_generator generator = {.take = take};

const air_generator *
py_random_generator(void)
{
    return &generator;
}

int
py_random_end(void)
{
    if (session.type) {
        PyErr_Restore(session.type, session.value, session.trace);
        session.type = session.value = session.trace = NULL;
        return -1;
    }
    if (!session.tensor)
        return 0;
    pack(&session.drawn, session.state);
    PyObject *done = PyObject_CallMethod(default_generator, "set_state", "O",
                                         session.tensor);
    Py_CLEAR(session.tensor);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *
random_rounding(PyObject *self, PyObject *args)
{
    int fused, short_log, closed;
    (void)self;
    if (!PyArg_ParseTuple(args, "ppp", &fused, &short_log, &closed))
        return NULL;
    generator.fused = fused != 0;
    generator.short_log = short_log != 0;
    generator.closed = closed != 0;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"random_rounding", random_rounding, METH_VARARGS,
     "random_rounding(fused, short_log, closed): how torch's own code rounds"},
    {NULL, NULL, 0, NULL}};

int
py_random_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}

int
py_random_start(PyObject *torch)
{
    Py_CLEAR(default_generator);
    default_generator = PyObject_GetAttrString(torch, "default_generator");
    return default_generator ? 0 : -1;
}
