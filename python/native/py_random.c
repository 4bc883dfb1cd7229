/* py_random.c: the engine draws from torch's default generator.
 *
 * torch shows the state of a generator as a tensor of bytes, and takes one.
 * Both are atomic, so other threads that draw meanwhile see a whole state,
 * this one's or an earlier one. A run fetches the state when it first draws
 * and gives it back when it is over or calls torch.
 *
 * The state of a GPU's generator is a seed and an offset, and how much a run
 * adds to that is known before it is given to the stream. */
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

/* ---- of a GPU ---- */

/* The number that a method of a generator gives. */
static int
ask(PyObject *of, const char *method, uint64_t *out)
{
    PyObject *got = PyObject_CallMethod(of, method, NULL);
    *out = got ? PyLong_AsUnsignedLongLong(got) : 0;
    Py_XDECREF(got);
    return PyErr_Occurred() ? -1 : 0;
}

/* Of torch.cuda.default_generators[gpu], which torch makes when it starts CUDA:
 * another generator of the same state. To set the offset of the default one
 * would make cuDNN's dropout of recurrent layers begin anew. */
static PyObject *
generator_of(int gpu)
{
    PyObject *cuda = PyImport_ImportModule("torch.cuda");
    PyObject *all =
        cuda ? PyObject_GetAttrString(cuda, "default_generators") : NULL;
    PyObject *found = all ? PySequence_GetItem(all, gpu) : NULL;
    PyObject *same =
        found ? PyObject_CallMethod(found, "graphsafe_get_state", NULL) : NULL;
    Py_XDECREF(found);
    Py_XDECREF(all);
    Py_XDECREF(cuda);
    return same;
}

static int
advance(int gpu, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    PyObject *of = generator_of(gpu), *done = NULL;
    if (of && !ask(of, "initial_seed", seed) && !ask(of, "get_offset", offset))
        done = PyObject_CallMethod(of, "set_offset", "K",
                                   (unsigned long long)(*offset + count));
    Py_XDECREF(of);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* The error waits for the end of the run. */
bool
py_random_draw(int gpu, uint64_t count, uint64_t *seed, uint64_t *offset)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    const int failed = advance(gpu, count, seed, offset);
    if (failed && session.type)
        PyErr_Clear();
    else if (failed)
        PyErr_Fetch(&session.type, &session.value, &session.trace);
    PyGILState_Release(gil);
    return !failed;
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
