/* args.h: arguments of a call, by position in the op's schema, and walking
 * over tensors. Strides here are in bytes. */
#ifndef REF_ARGS_H
#define REF_ARGS_H

#include "driver/ref/element.h"

/* A tensor with its address; dtype AIR_DTYPE_NONE: absent. */
typedef struct {
    char *data;
    int dtype, rank;
    int64_t dims[AIR_MAX_RANK], strides[AIR_MAX_RANK];
} ref_tensor;

static inline ref_tensor
ref_open(const air_tensor *t, const air_task *task)
{
    ref_tensor out = {.dtype = t->dtype, .rank = t->rank};
    if (t->dtype == AIR_DTYPE_NONE)
        return out;
    out.data = (char *)task->slots[t->slot] + t->offset;
    for (int i = 0; i < t->rank; i++) {
        out.dims[i] = t->dims[i];
        out.strides[i] = t->strides[i] * (int64_t)ref_bytes(t->dtype);
    }
    return out;
}

static inline ref_tensor
ref_arg(const air_call *call, int i, const air_task *task)
{
    if (i >= call->nargs || call->args[i].kind != AIR_ARG_TENSOR)
        return (ref_tensor){.data = NULL};
    return ref_open(call->args[i].t, task);
}

static inline ref_tensor
ref_out(const air_call *call, int i, const air_task *task)
{
    if (i >= call->nouts)
        return (ref_tensor){.data = NULL};
    return ref_open(&call->outs[i], task);
}

static inline int64_t
ref_int(const air_call *call, int i, int64_t otherwise)
{
    if (i >= call->nargs || call->args[i].kind == AIR_ARG_NONE)
        return otherwise;
    if (call->args[i].kind == AIR_ARG_FLOAT)
        return ref_to_int(call->args[i].f);
    return call->args[i].i;
}

static inline double
ref_float(const air_call *call, int i, double otherwise)
{
    if (i >= call->nargs || call->args[i].kind == AIR_ARG_NONE)
        return otherwise;
    if (call->args[i].kind == AIR_ARG_FLOAT)
        return call->args[i].f;
    return (double)call->args[i].i;
}

static inline const char *
ref_str(const air_call *call, int i, const char *otherwise)
{
    if (i >= call->nargs || call->args[i].kind != AIR_ARG_STR)
        return otherwise;
    return call->args[i].str;
}

/* Entry k of a list; a list of one entry stands for all. */
static inline int64_t
ref_ints(const air_call *call, int i, int k, int64_t otherwise)
{
    if (i >= call->nargs || call->args[i].kind != AIR_ARG_INTS ||
        call->args[i].count == 0)
        return otherwise;
    int count = call->args[i].count;
    return call->args[i].ints[k < count ? k : count - 1];
}

static inline int
ref_count(const air_call *call, int i)
{
    return i < call->nargs && (call->args[i].kind == AIR_ARG_INTS ||
                               call->args[i].kind == AIR_ARG_TENSORS)
               ? call->args[i].count
               : 0;
}

/* The argument as an axis: negative counts from the end. */
static inline int
ref_axis(int64_t axis, int rank)
{
    return (int)(axis < 0 ? axis + rank : axis);
}

static inline int64_t
ref_numel(const ref_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

/* Byte offset of element `index` in row-major order. */
static inline int64_t
ref_offset(const ref_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        offset += index % t->dims[i] * t->strides[i];
        index /= t->dims[i];
    }
    return offset;
}

/* The tensor without axis `axis` (of no effect on a scalar). */
static inline ref_tensor
ref_drop(ref_tensor t, int axis)
{
    if (t.rank == 0)
        return t;
    for (int i = axis; i + 1 < t.rank; i++) {
        t.dims[i] = t.dims[i + 1];
        t.strides[i] = t.strides[i + 1];
    }
    t.rank--;
    return t;
}

/* Size and stride of an axis; a scalar has one axis of size 1. */
static inline int64_t
ref_dim(const ref_tensor *t, int axis)
{
    return t->rank == 0 ? 1 : t->dims[axis];
}

static inline int64_t
ref_stride(const ref_tensor *t, int axis)
{
    return t->rank == 0 ? 0 : t->strides[axis];
}

/* False: out of range, raised. */
static inline bool
ref_inside(int64_t index, int64_t size, const air_task *task)
{
    const bool inside = index >= 0 && index < size;
    if (!inside)
        air_raise(task, index, size);
    return inside;
}

/* Of the operators whose negative indices count from the end: indexing,
 * index_fill, select_scatter. False: out of range, raised. */
static inline bool
ref_wrap(int64_t *index, int64_t size, const air_task *task)
{
    if (*index < -size || *index >= size) {
        air_raise(task, *index, size);
        return false;
    }
    *index += *index < 0 ? size : 0;
    return true;
}

/* Do two tensors of a call lie at the same place? */
static inline bool
ref_same(const ref_tensor *a, const ref_tensor *b)
{
    return a->data == b->data;
}

#endif
