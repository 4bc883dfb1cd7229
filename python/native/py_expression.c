/* py_expression.c: formulas of users, parsed by the engine. */
#include "py.h"

/* (kind, index or number) */
static PyObject *
term_tuple(const air_term *t)
{
    if (t->kind == AIR_TERM_INT)
        return Py_BuildValue("iL", (int)t->kind, (long long)t->i);
    if (t->kind == AIR_TERM_FLOAT)
        return Py_BuildValue("id", (int)t->kind, t->f);
    return Py_BuildValue("in", (int)t->kind, (Py_ssize_t)t->index);
}

/* (op, (term, ...)) */
static PyObject *
step_tuple(const air_operation *s)
{
    PyObject *args = PyTuple_New((Py_ssize_t)s->nargs);
    for (size_t i = 0; args && i < s->nargs; i++) {
        PyObject *term = term_tuple(&s->args[i]);
        if (!term)
            Py_CLEAR(args);
        else
            PyTuple_SetItem(args, (Py_ssize_t)i, term);
    }
    return args ? Py_BuildValue("sN", s->op, args) : NULL;
}

/* Appends `item`, taking it over; false: an exception is set. */
static bool
append(PyObject *list, PyObject *item)
{
    bool good = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return good;
}

static PyObject *
expression_lists(const air_expression *e)
{
    PyObject *steps = PyList_New(0), *results = PyList_New(0);
    const air_operation *s;
    const air_term *t;
    bool good = steps && results;
    for (size_t i = 0; good && (s = air_expression_operation(e, i)); i++)
        good = append(steps, step_tuple(s));
    for (size_t i = 0; good && (t = air_expression_result(e, i)); i++)
        good = append(results, term_tuple(t));
    if (good)
        return Py_BuildValue("NN", steps, results);
    Py_XDECREF(steps);
    Py_XDECREF(results);
    return NULL;
}

enum { MAX_FORMALS = 64 };

/* parse_expression(text, [(name, is a number)], results) */
PyObject *
py_parse_expression(PyObject *self, PyObject *args)
{
    const char *text;
    Py_ssize_t len, nresults;
    PyObject *list;
    air_formal formals[MAX_FORMALS];
    air_context *ctx = py_context();
    air_expression *e;

    (void)self;
    if (!ctx || !PyArg_ParseTuple(args, "s#O!n", &text, &len, &PyList_Type,
                                  &list, &nresults))
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    if (n > MAX_FORMALS)
        return PyErr_Format(PyExc_ValueError, "more than %d parameters",
                            MAX_FORMALS);
    for (Py_ssize_t i = 0; i < n; i++) {
        int number;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sp", &formals[i].name,
                              &number))
            return NULL;
        formals[i].number = number != 0;
    }
    if (py_check(air_expression_parse(ctx, text, (size_t)len, (size_t)n,
                                      formals, (size_t)nresults, &e)))
        return NULL;
    PyObject *out = expression_lists(e);
    air_expression_destroy(e);
    return out;
}
