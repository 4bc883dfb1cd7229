/* py_program_told.c: what a program tells of itself: texts and counters. */
#include "py_program.h"

PyObject *
py_program_text(PyObject *self, PyObject *arg)
{
    const py_program *p = (const py_program *)self;
    long kind = PyLong_AsLong(arg);
    char *text;
    if (kind == -1 && PyErr_Occurred())
        return NULL;
    if (kind < AIR_TEXT_GRAPH || kind >= AIR_TEXT_COUNT) {
        PyErr_SetString(PyExc_ValueError, "kind is 0 to 7: see air_text_kind");
        return NULL;
    }
    if (py_check(air_program_print(p->program, (air_text_kind)kind, &text)))
        return NULL;
    PyObject *out = PyUnicode_FromString(text);
    air_program_text_free(p->program, text);
    return out;
}

PyObject *
py_program_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    const py_program *p = (const py_program *)self;
    air_program_stats s;
    air_program_get_stats(p->program, &s);
    PyObject *out = Py_BuildValue(
        "{sd,sd,sK,sK,sK,sI,sI,sI,sI,sI,sK,sK,sK}", "compile_s", s.compile_s,
        "specialise_s", s.specialise_s, "runs", (unsigned long long)s.runs,
        "specialisations", (unsigned long long)s.specialisations, "dropped",
        (unsigned long long)s.dropped, "nodes", s.nodes, "regions", s.regions,
        "calls", s.calls, "copies", s.copies, "hosts", s.hosts, "arena_bytes",
        (unsigned long long)s.arena_bytes, "code_bytes",
        (unsigned long long)s.code_bytes, "kept_bytes",
        (unsigned long long)s.kept_bytes);
    PyObject *capture =
        p->capture ? py_capture_stats(p->capture) : Py_NewRef(Py_None);
    if (!out || !capture || PyDict_SetItemString(out, "capture", capture))
        Py_CLEAR(out);
    Py_XDECREF(capture);
    return out;
}
