/* shape_view.c: shapes of views, and of the ops that give a list of views. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ir/shape.h"

/* One size may be -1: what is left over. */
static air_status
resolve_size(ir_infer *in, const ir_value *v, const air_attr *size,
             air_dim *dims)
{
    air_dim total, known;
    int64_t k;
    int hole = -1;

    AIR_REQUIRE(size->count <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s: more than %d dims", in->info->name, AIR_MAX_RANK);
    AIR_TRY(ir_dim_const(in->g, 1, &known));
    for (int i = 0; i < (int)size->count; i++) {
        dims[i] = size->dims[i];
        if (!ir_dim_is_const(in->g, dims[i], &k) || k != -1)
            continue;
        AIR_REQUIRE(hole < 0, AIR_ERROR_ARGUMENT, "%s: only one size may be -1",
                    in->info->name);
        hole = i;
        dims[i] = known;
    }
    AIR_TRY(ir_dim_product(in->g, v->rank, v->dims, &total));
    AIR_TRY(ir_dim_product(in->g, (int)size->count, dims, &known));
    if (hole < 0)
        return shape_same(in, total, known);
    AIR_REQUIRE(!ir_dim_is_const(in->g, known, &k) || k != 0,
                AIR_ERROR_ARGUMENT, "%s: size -1 is ambiguous here",
                in->info->name);
    AIR_TRY(ir_dim_make(in->g, IR_DIM_DIV, total, known, &dims[hole]));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MUL, dims[hole], known, &known));
    return shape_same(in, total, known);
}

air_status
shape_view(ir_infer *in)
{
    const air_attr *size = shape_arg(in, "size");
    air_dim dims[AIR_MAX_RANK];

    AIR_TRY(resolve_size(in, shape_tensor(in, "a"), size, dims));
    return shape_set(in, 0, (int)size->count, dims);
}

air_status
shape_permute(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *order = shape_arg(in, "dims");
    bool used[AIR_MAX_RANK] = {false};
    air_dim dims[AIR_MAX_RANK];
    int axis;

    AIR_REQUIRE(order->count == v->rank, AIR_ERROR_ARGUMENT,
                "permute: %zu dims for a tensor of %d", order->count, v->rank);
    for (int i = 0; i < v->rank; i++) {
        air_attr a = {.kind = AIR_ATTR_INT, .dim = order->dims[i]};
        AIR_TRY(ir_axis(in->g, &a, v->rank, "dims", &axis));
        AIR_REQUIRE(!used[axis], AIR_ERROR_ARGUMENT,
                    "permute: dim %d appears twice", axis);
        used[axis] = true;
        dims[i] = v->dims[axis];
    }
    return shape_set(in, 0, v->rank, dims);
}

static air_status
set_swapped(ir_infer *in, const ir_value *v, int i, int k)
{
    air_dim dims[AIR_MAX_RANK];

    memcpy(dims, v->dims, v->rank * sizeof *dims);
    if (v->rank > 0) {
        dims[i] = v->dims[k];
        dims[k] = v->dims[i];
    }
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_t(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    AIR_REQUIRE(v->rank <= 2, AIR_ERROR_SHAPE, "t: more than 2 dims");
    return set_swapped(in, v, 0, v->rank == 2 ? 1 : 0);
}

air_status
shape_transpose(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int i, k;

    AIR_TRY(shape_axis(in, "dim0", v->rank, &i));
    AIR_TRY(shape_axis(in, "dim1", v->rank, &k));
    return set_swapped(in, v, i, k);
}

static air_status
set_inserted(ir_infer *in, const ir_value *v, int at, air_dim d)
{
    air_dim dims[AIR_MAX_RANK + 1];

    memcpy(dims, v->dims, (size_t)at * sizeof *dims);
    dims[at] = d;
    memcpy(dims + at + 1, v->dims + at, (size_t)(v->rank - at) * sizeof *dims);
    return shape_set(in, 0, v->rank + 1, dims);
}

static air_status
set_removed(ir_infer *in, size_t out, const ir_value *v, int at)
{
    air_dim dims[AIR_MAX_RANK];

    memcpy(dims, v->dims, (size_t)at * sizeof *dims);
    memcpy(dims + at, v->dims + at + 1,
           (size_t)(v->rank - at - 1) * sizeof *dims);
    return shape_set(in, out, v->rank - 1, dims);
}

air_status
shape_unsqueeze(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim one;
    int axis;

    AIR_TRY(shape_axis(in, "dim", v->rank + 1, &axis));
    AIR_TRY(ir_dim_const(in->g, 1, &one));
    return set_inserted(in, v, axis, one);
}

/* Axes of size 1 among `dim`: none, an int, or a list. */
air_status
shape_squeeze(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int p = ir_param_find(in->info, "dim"), axis, rank = 0;
    bool named[AIR_MAX_RANK];
    air_dim dims[AIR_MAX_RANK];
    int64_t k;

    memset(named, p < 0, sizeof named);
    for (size_t i = 0;
         p >= 0 &&
         i < (in->attrs[p].kind == AIR_ATTR_INTS ? in->attrs[p].count : 1);
         i++) {
        air_attr a = in->attrs[p];
        if (a.kind == AIR_ATTR_INTS)
            a = (air_attr){.kind = AIR_ATTR_INT, .dim = a.dims[i]};
        AIR_TRY(ir_axis(in->g, &a, v->rank, "dim", &axis));
        named[axis] = true;
    }
    for (int i = 0; i < v->rank; i++)
        if (!named[i] || !ir_dim_is_const(in->g, v->dims[i], &k) || k != 1)
            dims[rank++] = v->dims[i];
    return shape_set(in, 0, rank, dims);
}

air_status
shape_expand(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *size = shape_arg(in, "size");
    int lead = (int)size->count - v->rank;
    air_dim dims[AIR_MAX_RANK];
    int64_t k;

    AIR_REQUIRE(lead >= 0 && size->count <= AIR_MAX_RANK, AIR_ERROR_SHAPE,
                "expand: %zu sizes for a tensor of %d dims", size->count,
                v->rank);
    for (int i = 0; i < (int)size->count; i++) {
        dims[i] = size->dims[i];
        bool kept = ir_dim_is_const(in->g, dims[i], &k) && k == -1;
        AIR_REQUIRE(!kept || i >= lead, AIR_ERROR_ARGUMENT,
                    "expand: size -1 of a new dim");
        if (kept)
            dims[i] = v->dims[i - lead];
        else if (i >= lead &&
                 (!ir_dim_is_const(in->g, v->dims[i - lead], &k) || k != 1))
            AIR_TRY(shape_same(in, v->dims[i - lead], dims[i]));
    }
    return shape_set(in, 0, (int)size->count, dims);
}

/* d counts from the end where it is negative; its sign may be open. */
static air_status
from_end(ir_infer *in, air_dim d, air_dim size, air_dim *out)
{
    const ir_dim_node *e = &in->g->dims.data[d.id];
    air_dim zero, one, by = size;

    *out = d;
    if (e->min >= 0)
        return AIR_OK;
    if (e->max >= 0) { /* size x max(min(-d, 1), 0) */
        AIR_TRY(ir_dim_const(in->g, 0, &zero));
        AIR_TRY(ir_dim_const(in->g, 1, &one));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_SUB, zero, d, &by));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_MIN, by, one, &by));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_MAX, by, zero, &by));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_MUL, by, size, &by));
    }
    return ir_dim_make(in->g, IR_DIM_ADD, d, by, out);
}

/* A slice bound as Python takes it: from the end when negative, then clamped
 * to [0, size]. */
static air_status
slice_bound(ir_infer *in, const air_attr *a, air_dim size, air_dim otherwise,
            air_dim *out)
{
    air_dim zero;

    *out = otherwise;
    if (a->kind != AIR_ATTR_INT)
        return AIR_OK;
    AIR_TRY(from_end(in, a->dim, size, out));
    AIR_TRY(ir_dim_const(in->g, 0, &zero));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MAX, *out, zero, out));
    return ir_dim_make(in->g, IR_DIM_MIN, *out, size, out);
}

static air_status
slice_size(ir_infer *in, air_dim size, air_dim *out)
{
    air_dim zero, start, end;
    int64_t step;

    AIR_TRY(shape_int(in, "step", &step));
    AIR_REQUIRE(step > 0, AIR_ERROR_ARGUMENT, "slice: step must be positive");
    AIR_TRY(ir_dim_const(in->g, 0, &zero));
    AIR_TRY(slice_bound(in, shape_arg(in, "start"), size, zero, &start));
    AIR_TRY(slice_bound(in, shape_arg(in, "end"), size, size, &end));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_SUB, end, start, out));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MAX, *out, zero, out));
    AIR_TRY(shape_math(in, IR_DIM_ADD, *out, step - 1, out));
    return shape_math(in, IR_DIM_DIV, *out, step, out);
}

air_status
shape_slice(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim dims[AIR_MAX_RANK];
    int axis;

    AIR_REQUIRE(v->rank > 0, AIR_ERROR_SHAPE, "slice of a 0-dim tensor");
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    AIR_TRY(slice_size(in, v->dims[axis], &dims[axis]));
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_select(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t index, size;
    int axis;

    AIR_REQUIRE(v->rank > 0, AIR_ERROR_SHAPE, "select of a 0-dim tensor");
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_REQUIRE(
        !ir_dim_is_const(in->g, v->dims[axis], &size) ||
            !ir_dim_is_const(in->g, shape_arg(in, "index")->dim, &index) ||
            (index >= -size && index < size),
        AIR_ERROR_ARGUMENT, "select: index is out of range");
    return set_removed(in, 0, v, axis);
}

air_status
shape_as_strided(ir_infer *in)
{
    const air_attr *size = shape_arg(in, "size");

    AIR_REQUIRE(size->count == shape_arg(in, "stride")->count &&
                    size->count <= AIR_MAX_RANK,
                AIR_ERROR_ARGUMENT, "%s: sizes and strides do not fit",
                in->info->name);
    return shape_set(in, 0, (int)size->count, size->dims);
}

air_status
shape_alias(ir_infer *in)
{
    return shape_set_like(in, 0, "a");
}

air_status
shape_unfold(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t size, step;
    air_dim dims[AIR_MAX_RANK + 1];
    int axis;

    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_TRY(shape_int(in, "size", &size));
    AIR_TRY(shape_int(in, "step", &step));
    AIR_REQUIRE(size >= 0 && step > 0 && v->rank > 0, AIR_ERROR_ARGUMENT,
                "unfold: size and step must be positive");
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    AIR_TRY(shape_math(in, IR_DIM_SUB, dims[axis], size, &dims[axis]));
    AIR_TRY(shape_math(in, IR_DIM_DIV, dims[axis], step, &dims[axis]));
    AIR_TRY(shape_math(in, IR_DIM_ADD, dims[axis], 1, &dims[axis]));
    dims[v->rank] = shape_arg(in, "size")->dim;
    return shape_set(in, 0, v->rank + 1, dims);
}

air_status
shape_diagonal(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim dims[AIR_MAX_RANK], m, n, zero;
    int64_t offset;
    int i, k, rank = 0;

    AIR_TRY(shape_axis(in, "dim1", v->rank, &i));
    AIR_TRY(shape_axis(in, "dim2", v->rank, &k));
    AIR_REQUIRE(i != k && v->rank >= 2, AIR_ERROR_ARGUMENT,
                "diagonal: needs two different dims");
    AIR_TRY(shape_int(in, "offset", &offset));
    AIR_REQUIRE(offset != INT64_MIN, AIR_ERROR_ARGUMENT, "diagonal: offset");
    AIR_TRY(
        shape_math(in, IR_DIM_ADD, v->dims[i], offset < 0 ? offset : 0, &m));
    AIR_TRY(
        shape_math(in, IR_DIM_SUB, v->dims[k], offset > 0 ? offset : 0, &n));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MIN, m, n, &m));
    AIR_TRY(ir_dim_const(in->g, 0, &zero));
    AIR_TRY(ir_dim_make(in->g, IR_DIM_MAX, m, zero, &m));
    for (int d = 0; d < v->rank; d++)
        if (d != i && d != k)
            dims[rank++] = v->dims[d];
    dims[rank++] = m;
    return shape_set(in, 0, rank, dims);
}

/* view.dtype between dtypes of one size */
air_status
shape_retype(ir_infer *in)
{
    air_dtype to = shape_arg(in, "dtype")->dtype;

    AIR_REQUIRE(air_dtype_bytes(to) == air_dtype_bytes(in->outs[0].dtype),
                AIR_ERROR_UNSUPPORTED,
                "view.dtype: only between dtypes of one size");
    in->outs[0].dtype = to;
    return shape_set_like(in, 0, "a");
}

/* ---- Tensor[] ------------------------------------------------------------ */

static air_status
list_axis(const ir_infer *in, int *axis, int64_t *size)
{
    const ir_value *v = shape_tensor(in, "a");

    AIR_TRY(shape_axis(in, "dim", v->rank, axis));
    AIR_REQUIRE(v->rank > 0 && ir_dim_is_const(in->g, v->dims[*axis], size),
                AIR_ERROR_UNSUPPORTED,
                "%s: the number of results depends on a symbol",
                in->info->name);
    AIR_REQUIRE(*size >= 0, AIR_ERROR_SHAPE, "%s: an axis of %" PRId64,
                in->info->name, *size);
    return AIR_OK;
}

static air_status
split_step(const ir_infer *in, int64_t size, int64_t *out)
{
    AIR_TRY(shape_int(in, "split_size", out));
    AIR_REQUIRE(*out > 0 || (*out == 0 && size == 0), AIR_ERROR_ARGUMENT,
                "split: split_size must be positive");
    return AIR_OK;
}

air_status
shape_list_count(ir_graph *g, const ir_op_info *info, const air_attr *attrs,
                 size_t *out)
{
    ir_infer in = {g, info, attrs, 0, NULL};
    int sizes = ir_param_find(info, "split_sizes"), axis;
    int64_t size, step = 1;

    if (sizes >= 0) {
        *out = attrs[sizes].count;
        return AIR_OK;
    }
    AIR_TRY(list_axis(&in, &axis, &size));
    if (ir_param_find(info, "split_size") >= 0)
        AIR_TRY(split_step(&in, size, &step));
    *out = step ? (size_t)((size - 1) / step + 1) : 1;
    if (size == 0)
        *out = ir_param_find(info, "split_size") >= 0;
    return AIR_OK;
}

air_status
shape_unbind(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t size;
    int axis;

    AIR_TRY(list_axis(in, &axis, &size));
    for (size_t i = 0; i < in->nouts; i++)
        AIR_TRY(set_removed(in, i, v, axis));
    return AIR_OK;
}

static air_status
set_part(ir_infer *in, size_t i, const ir_value *v, int axis, air_dim size)
{
    AIR_TRY(shape_set(in, i, v->rank, v->dims));
    in->outs[i].dims[axis] = size;
    return AIR_OK;
}

air_status
shape_split(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t size, step;
    int axis;

    AIR_TRY(list_axis(in, &axis, &size));
    AIR_TRY(split_step(in, size, &step));
    for (size_t i = 0; i < in->nouts; i++) {
        int64_t left = size - (int64_t)i * step;
        air_dim part;
        AIR_TRY(ir_dim_const(in->g, left < step ? left : step, &part));
        AIR_TRY(set_part(in, i, v, axis, part));
    }
    return AIR_OK;
}

air_status
shape_split_sizes(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *sizes = shape_arg(in, "split_sizes");
    air_dim total;
    int axis;

    AIR_REQUIRE(v->rank > 0, AIR_ERROR_SHAPE, "split of a 0-dim tensor");
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_TRY(ir_dim_const(in->g, 0, &total));
    for (size_t i = 0; i < in->nouts; i++) {
        AIR_TRY(set_part(in, i, v, axis, sizes->dims[i]));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_ADD, total, sizes->dims[i], &total));
    }
    return shape_same(in, total, v->dims[axis]);
}
