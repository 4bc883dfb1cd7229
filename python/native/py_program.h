/* py_program.h: what a program of Python is made of. */
#ifndef PY_PROGRAM_H
#define PY_PROGRAM_H

#include "py.h"

/* An argument the graph does not use is not even looked at. */
typedef enum {
    ARG_SKIP,
    ARG_TENSOR,
    ARG_INT,
    ARG_SCALAR, /* of a program on a GPU: a CPU tensor without dims */
    ARG_LAZY    /* lazily conjugated or negated: of what it stands for */
} arg_kind;

typedef enum {
    OUT_RESULT, /* result `index` of the program */
    OUT_ARG,    /* argument `index` itself */
    OUT_SAME,   /* the object that output `index` is */
    OUT_CONST,  /* `object` */
    OUT_CALL    /* object(args): sizes */
} out_kind;
typedef struct {
    out_kind kind;
    Py_ssize_t index;
    const py_dtype *dtype;
    int place;
    Py_ssize_t like; /* an output made before it that it may lie in; -1 */
    PyObject *object;
} out_spec;

typedef struct {
    PyObject_HEAD py_vectorcall call;
    air_program *program;
    int place;               /* of its tensors */
    py_label label;          /* of arguments */
    PyObject *consts;        /* tuple of tensors: the last inputs */
    uint8_t *args;           /* arg_kind */
    const py_dtype **dtypes; /* of tensor arguments */
    out_spec *outs;
    py_host *hosts;
    Py_ssize_t nargs, nouts;
    size_t nin, nresults, nhosts;
    Py_ssize_t *sources; /* by input: its argument; constant i: -1 - i */
    py_known *known;     /* by input: as the last call had it */
    py_frozen *frozen;   /* NULL: contents of all inputs may change */
    py_capture *capture; /* NULL: every call is a plain run */
    PyObject *fallback;  /* (list, reason): what the engine cannot run, or
                            (reason None) must not */
    char records;        /* as T_BOOL: the application may, on a GPU */
    PyObject *watch;     /* see py_watch.c; NULL: runs are not watched */
    PyObject *weakrefs;
} py_program;

/* The descriptions of arguments, outputs and HOST nodes, in tuples. The graph
 * names its inputs. */
int py_program_read(py_program *p, PyObject *graph, PyObject *args,
                    PyObject *outs, PyObject *hosts);

/* The list `shapes`, one for each argument, as inputs without memory. room: 2 *
 * AIR_MAX_RANK numbers for each input. */
int py_program_shapes(const py_program *p, PyObject *shapes, air_value *in,
                      int64_t *room);

/* Methods `text` (kind: an integer, air_text_kind) and `stats` (a dict). */
PyObject *py_program_text(PyObject *program, PyObject *kind);
PyObject *py_program_stats(PyObject *program, PyObject *unused);

#endif
