/* shape.c: helpers, and the shapes of pointwise ops, reductions and creation.
 * The other functions are in shape_view.c and shape_call.c. */
#include "ir/shape.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- arguments ----------------------------------------------------------- */

const air_attr *
shape_arg(const ir_infer *in, const char *name)
{
    int i = ir_param_find(in->info, name);
    assert(i >= 0);
    return &in->attrs[i];
}

const ir_value *
shape_tensor(const ir_infer *in, const char *name)
{
    const air_attr *a = shape_arg(in, name);
    assert(a->kind == AIR_ATTR_VALUE);
    return ir_val(in->g, a->value);
}

bool
shape_flag(const ir_infer *in, const char *name)
{
    const air_attr *a = shape_arg(in, name);
    return a->kind == AIR_ATTR_BOOL && a->b;
}

static air_status
const_of(const ir_infer *in, const char *name, air_dim d, int64_t *out)
{
    AIR_REQUIRE(ir_dim_is_const(in->g, d, out), AIR_ERROR_UNSUPPORTED,
                "%s: argument %s must be a constant", in->info->name, name);
    return AIR_OK;
}

air_status
shape_int(const ir_infer *in, const char *name, int64_t *out)
{
    return const_of(in, name, shape_arg(in, name)->dim, out);
}

air_status
shape_ints(const ir_infer *in, const char *name, int count, int64_t *out)
{
    const air_attr *a = shape_arg(in, name);
    bool one = a->count == 1; /* [3] stands for [3, 3] */

    AIR_REQUIRE(one || a->count == (size_t)count, AIR_ERROR_ARGUMENT,
                "%s: argument %s must have %d items, not %zu", in->info->name,
                name, count, a->count);
    for (int i = 0; i < count; i++)
        AIR_TRY(const_of(in, name, a->dims[one ? 0 : i], &out[i]));
    return AIR_OK;
}

air_status
ir_axis(const ir_graph *g, const air_attr *attr, int rank, const char *name,
        int *out)
{
    int64_t v, n = rank > 0 ? rank : 1; /* dim 0 of a 0-dim tensor is allowed */

    AIR_REQUIRE(attr->kind == AIR_ATTR_INT && ir_dim_is_const(g, attr->dim, &v),
                AIR_ERROR_ARGUMENT, "%s must be a constant integer", name);
    AIR_REQUIRE(v >= -n && v < n, AIR_ERROR_ARGUMENT,
                "%s %lld is out of range for %d dims", name, (long long)v,
                rank);
    *out = (int)(v < 0 ? v + n : v);
    return AIR_OK;
}

air_status
ir_permute_order(const ir_graph *g, const ir_node *n, int *order)
{
    const int rank = ir_val(g, n->outs[0])->rank;

    for (int i = 0; i < rank; i++) {
        const air_attr axis = {.kind = AIR_ATTR_INT,
                               .dim = n->attrs[1].dims[i]};
        AIR_TRY(ir_axis(g, &axis, rank, "dims", &order[i]));
    }
    return AIR_OK;
}

air_status
shape_axis(const ir_infer *in, const char *name, int rank, int *out)
{
    return ir_axis(in->g, shape_arg(in, name), rank, name, out);
}

air_status
shape_rank(const ir_infer *in, const char *name, int rank)
{
    int have = shape_tensor(in, name)->rank;
    AIR_REQUIRE(have == rank, AIR_ERROR_SHAPE,
                "%s: argument %s must have %d dims, not %d", in->info->name,
                name, rank, have);
    return AIR_OK;
}

air_status
shape_same(const ir_infer *in, air_dim a, air_dim b)
{
    air_dim d;
    return ir_dim_unify(in->g, in->info->name, a, b, &d);
}

air_status
shape_math(const ir_infer *in, ir_dim_op op, air_dim a, int64_t k, air_dim *out)
{
    air_dim c;
    AIR_TRY(ir_dim_const(in->g, k, &c));
    return ir_dim_make(in->g, op, a, c, out);
}

/* ---- results ------------------------------------------------------------- */

air_status
shape_set(const ir_infer *in, size_t i, int rank, const air_dim *dims)
{
    AIR_REQUIRE(rank <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s: tensors of more than %d dims are not supported",
                in->info->name, AIR_MAX_RANK);
    for (int k = 0; k < rank; k++)
        AIR_REQUIRE(in->g->dims.data[dims[k].id].max >= 0, AIR_ERROR_SHAPE,
                    "%s: a size would be negative", in->info->name);
    in->outs[i].rank = rank;
    if (rank > 0 && in->outs[i].dims != dims)
        memmove(in->outs[i].dims, dims, (size_t)rank * sizeof *dims);
    return AIR_OK;
}

air_status
shape_set_like(const ir_infer *in, size_t i, const char *name)
{
    const ir_value *v = shape_tensor(in, name);
    return shape_set(in, i, v->rank, v->dims);
}

air_status
shape_scalar_out(const ir_infer *in, size_t i)
{
    in->outs[i].rank = 0;
    return AIR_OK;
}

/* All results as parameter `a`. */
air_status
shape_like(ir_infer *in)
{
    for (size_t k = 0; k < in->nouts; k++)
        AIR_TRY(shape_set_like(in, k, "a"));
    return AIR_OK;
}

/* ---- broadcasting -------------------------------------------------------- */

static air_status
broadcast_dim(ir_graph *g, air_dim a, air_dim b, air_dim *out)
{
    int64_t v;

    if (ir_dim_is_const(g, a, &v) && v == 1)
        *out = b;
    else if (ir_dim_is_const(g, b, &v) && v == 1)
        *out = a;
    else
        return ir_dim_unify(g, "broadcast", a, b, out);
    return AIR_OK;
}

air_status
ir_broadcast(ir_graph *g, int ra, const air_dim *a, int rb, const air_dim *b,
             int *out_rank, air_dim *out)
{
    air_dim dims[AIR_MAX_RANK];
    int rank = ra > rb ? ra : rb;

    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - ra), ib = i - (rank - rb);
        if (ia < 0)
            dims[i] = b[ib];
        else if (ib < 0)
            dims[i] = a[ia];
        else
            AIR_TRY(broadcast_dim(g, a[ia], b[ib], &dims[i]));
    }
    *out_rank = rank;
    memcpy(out, dims, (size_t)rank * sizeof *dims);
    return AIR_OK;
}

air_status
shape_broadcast(ir_infer *in)
{
    air_type *t = &in->outs[0];

    t->rank = 0;
    for (int i = 0; i < in->info->nparams; i++) {
        if (in->attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        const ir_value *v = ir_val(in->g, in->attrs[i].value);
        AIR_TRY(ir_broadcast(in->g, t->rank, t->dims, v->rank, v->dims,
                             &t->rank, t->dims));
    }
    return AIR_OK;
}

/* ---- reductions ---------------------------------------------------------- */

/* Which axes `dim` names: none and [] mean all of them. */
static air_status
reduced_axes(const ir_infer *in, int rank, bool *reduced)
{
    int i = ir_param_find(in->info, "dim"), axis = 0;
    const air_attr *a = i >= 0 ? &in->attrs[i] : NULL;
    bool all = !a || a->kind == AIR_ATTR_NONE ||
               (a->kind == AIR_ATTR_INTS && a->count == 0);
    size_t count = a && a->kind == AIR_ATTR_INTS ? a->count : 1;

    for (int k = 0; k < rank; k++)
        reduced[k] = all;
    for (size_t k = 0; k < count && !all; k++) {
        air_attr one = *a;
        if (a->kind == AIR_ATTR_INTS)
            one = (air_attr){.kind = AIR_ATTR_INT, .dim = a->dims[k]};
        AIR_TRY(ir_axis(in->g, &one, rank, "dim", &axis));
        if (rank == 0)
            continue;
        AIR_REQUIRE(!reduced[axis], AIR_ERROR_ARGUMENT,
                    "%s: dim %d appears twice", in->info->name, axis);
        reduced[axis] = true;
    }
    return AIR_OK;
}

air_status
shape_reduce(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    bool reduced[AIR_MAX_RANK];
    bool keep =
        ir_param_find(in->info, "keepdim") >= 0 && shape_flag(in, "keepdim");
    air_dim dims[AIR_MAX_RANK], one;
    int rank = 0;

    AIR_TRY(ir_dim_const(in->g, 1, &one));
    AIR_TRY(reduced_axes(in, v->rank, reduced));
    for (int i = 0; i < v->rank; i++) {
        if (!reduced[i])
            dims[rank++] = v->dims[i];
        else if (keep)
            dims[rank++] = one;
    }
    for (size_t i = 0; i < in->nouts; i++)
        AIR_TRY(shape_set(in, i, rank, dims));
    return AIR_OK;
}

/* values, indices */
air_status
shape_reduce_index(ir_infer *in)
{
    in->outs[1].dtype = AIR_I64;
    return shape_reduce(in);
}

/* ---- creation ------------------------------------------------------------ */

/* The parameter `size`; a number's own dtype where none is given. */
air_status
shape_full(ir_infer *in)
{
    const air_attr *size = shape_arg(in, "size");
    int value = ir_param_find(in->info, "fill_value");
    int like = ir_param_find(in->info, "a");

    if (value >= 0 && like < 0 &&
        shape_arg(in, "dtype")->kind != AIR_ATTR_DTYPE) {
        air_attr_kind kind = in->attrs[value].kind;
        in->outs[0].dtype = kind == AIR_ATTR_BOOL  ? AIR_BOOL
                            : kind == AIR_ATTR_INT ? AIR_I64
                                                   : AIR_F32;
    }
    AIR_REQUIRE(size->count <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s: more than %d dims", in->info->name, AIR_MAX_RANK);
    return shape_set(in, 0, (int)size->count, size->dims);
}

air_status
shape_scalar(ir_infer *in)
{
    return shape_scalar_out(in, 0);
}

/* eye: n, or n and m */
air_status
shape_eye(ir_infer *in)
{
    int m = ir_param_find(in->info, "m");
    air_dim dims[2];

    dims[0] = dims[1] = shape_arg(in, "n")->dim;
    if (m >= 0)
        dims[1] = in->attrs[m].dim;
    return shape_set(in, 0, 2, dims);
}

/* One dim: `steps` */
air_status
shape_steps(ir_infer *in)
{
    AIR_REQUIRE(ir_is_float(in->outs[0].dtype), AIR_ERROR_UNSUPPORTED,
                "%s: only of floats", in->info->name);
    return shape_set(in, 0, 1, &shape_arg(in, "steps")->dim);
}

static bool
as_double(const ir_infer *in, const air_attr *a, double *out)
{
    int64_t v;

    if (a->kind == AIR_ATTR_FLOAT) {
        *out = a->f;
        return true;
    }
    if (a->kind == AIR_ATTR_INT && ir_dim_is_const(in->g, a->dim, &v)) {
        *out = (double)v;
        return true;
    }
    return false;
}

static air_status
arange_floats(const ir_infer *in, const air_attr *start, const air_attr *end,
              const air_attr *step, air_dim *out)
{
    double a = 0.0, b, s = 1.0;

    AIR_REQUIRE(
        (!start || as_double(in, start, &a)) && as_double(in, end, &b) &&
            (!step || as_double(in, step, &s)),
        AIR_ERROR_UNSUPPORTED,
        "%s: floats and size expressions cannot be mixed", in->info->name);
    double n = ceil((b - a) / s);
    AIR_REQUIRE(isfinite(n) && n >= 0 && n < 0x1p62, AIR_ERROR_ARGUMENT,
                "%s: the bounds do not fit the step", in->info->name);
    return ir_dim_const(in->g, (int64_t)n, out);
}

/* (end - start + step - 1) // step */
static air_status
arange_ints(const ir_infer *in, const air_attr *start, const air_attr *end,
            const air_attr *step, air_dim *out)
{
    air_dim n = end->dim;
    int64_t s = 1, v;

    AIR_REQUIRE(!step || ir_dim_is_const(in->g, step->dim, &s),
                AIR_ERROR_UNSUPPORTED, "%s: step must be a constant",
                in->info->name);
    AIR_REQUIRE(s != 0 && s != INT64_MIN, AIR_ERROR_ARGUMENT,
                "%s: step is zero", in->info->name);
    if (start)
        AIR_TRY(ir_dim_make(in->g, IR_DIM_SUB, n, start->dim, &n));
    if (s < 0)
        AIR_TRY(shape_math(in, IR_DIM_MUL, n, -1, &n));
    s = s < 0 ? -s : s;
    AIR_TRY(shape_math(in, IR_DIM_ADD, n, s - 1, &n));
    AIR_TRY(shape_math(in, IR_DIM_DIV, n, s, out));
    AIR_REQUIRE(!ir_dim_is_const(in->g, *out, &v) || v >= 0, AIR_ERROR_ARGUMENT,
                "%s: the bounds do not fit the step", in->info->name);
    return AIR_OK;
}

air_status
shape_arange(ir_infer *in)
{
    int s = ir_param_find(in->info, "start");
    int p = ir_param_find(in->info, "step");
    const air_attr *start = s >= 0 ? &in->attrs[s] : NULL;
    const air_attr *step = p >= 0 ? &in->attrs[p] : NULL;
    const air_attr *end = shape_arg(in, "end");
    bool ints = end->kind == AIR_ATTR_INT &&
                (!start || start->kind == AIR_ATTR_INT) &&
                (!step || step->kind == AIR_ATTR_INT);
    air_dim n;

    if (shape_arg(in, "dtype")->kind != AIR_ATTR_DTYPE)
        in->outs[0].dtype = ints ? AIR_I64 : AIR_F32;
    if (ints)
        AIR_TRY(arange_ints(in, start, end, step, &n));
    else
        AIR_TRY(arange_floats(in, start, end, step, &n));
    return shape_set(in, 0, 1, &n);
}
