/* shape.h: the shape functions that rows of ops.def name, and what they are
 * written with. A function sets dims (and dtypes other than the rule's) of
 * in->outs; its arguments have the kinds of the schema (infer.c saw to it). */
#ifndef IR_SHAPE_H
#define IR_SHAPE_H

#include "ir/graph.h"

air_status shape_broadcast(ir_infer *in);
air_status shape_reduce(ir_infer *in);
#define POINTWISE(...)
#define REDUCE(...)
#define CREATE(ID, RULE, FLAGS, SHAPE, ...) \
    air_status shape_##SHAPE(ir_infer *in);
#define VIEW(ID, KIND, ...)          air_status shape_##KIND(ir_infer *in);
#define COMPOSITE(ID, SHAPE, ...)    air_status shape_##SHAPE(ir_infer *in);
#define CALL(ID, KERNEL, SHAPE, ...) air_status shape_##SHAPE(ir_infer *in);
#define EFFECT(ID, SHAPE, ...)       air_status shape_##SHAPE(ir_infer *in);
#include "ir/ops.def"
#include "ir/ops_undef.h"

/* The argument of a parameter that the row's schema has. */
const air_attr *shape_arg(const ir_infer *in, const char *name);
/* Its tensor; the row says it is one. */
const ir_value *shape_tensor(const ir_infer *in, const char *name);
bool shape_flag(const ir_infer *in, const char *name);
/* Constant integers; UNSUPPORTED for size expressions. */
air_status shape_int(const ir_infer *in, const char *name, int64_t *out);
air_status shape_ints(const ir_infer *in, const char *name, int count,
                      int64_t *out);
air_status shape_axis(const ir_infer *in, const char *name, int rank, int *out);
air_status shape_rank(const ir_infer *in, const char *name, int rank);
/* Takes two sizes for equal. */
air_status shape_same(const ir_infer *in, air_dim a, air_dim b);
/* outs[i] gets these sizes. */
air_status shape_set(const ir_infer *in, size_t i, int rank,
                     const air_dim *dims);
air_status shape_set_like(const ir_infer *in, size_t i, const char *name);
/* *out = a op constant */
air_status shape_math(const ir_infer *in, ir_dim_op op, air_dim a, int64_t k,
                      air_dim *out);
air_status shape_scalar_out(const ir_infer *in, size_t i); /* no dims */

#endif
