/* shape_select.c: shapes of operators that pick elements by order, by mask or
 * by search. */
#include <string.h>

#include "ir/shape.h"

/* ---- order --------------------------------------------------------------- */

/* values, indices: `a` without the axis, or with it of size 1 */
air_status
shape_kthvalue(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t k, size;
    int axis;

    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_REQUIRE(!ir_dim_is_const(in->g, shape_arg(in, "k")->dim, &k) ||
                    v->rank == 0 ||
                    !ir_dim_is_const(in->g, v->dims[axis], &size) ||
                    (k > 0 && k <= size),
                AIR_ERROR_ARGUMENT, "kthvalue: k is out of range");
    return shape_reduce_index(in);
}

/* One number of at least one. */
air_status
shape_median(ir_infer *in)
{
    return shape_scalar_out(in, 0);
}

air_status
shape_histc(ir_infer *in)
{
    const air_attr *bins = shape_arg(in, "bins");
    int64_t n;

    AIR_TRY(shape_int(in, "bins", &n));
    AIR_REQUIRE(n > 0 && n < INT32_MAX, AIR_ERROR_ARGUMENT,
                "histc: bins must be above 0");
    AIR_REQUIRE(ir_is_float(in->outs[0].dtype), AIR_ERROR_UNSUPPORTED,
                "histc of integers");
    return shape_set(in, 0, 1, &bins->dim);
}

/* ---- search -------------------------------------------------------------- */

static air_status
set_found(ir_infer *in, int rank, const air_dim *dims)
{
    in->outs[0].dtype = shape_flag(in, "out_int32") ? AIR_I32 : AIR_I64;
    return shape_set(in, 0, rank, dims);
}

/* As the values `a`; the sequence is one for all, or one for each row. */
static air_status
set_search(ir_infer *in, const char *sequence)
{
    const ir_value *v = shape_tensor(in, "a"), *s = shape_tensor(in, sequence);

    AIR_REQUIRE(s->rank == 1 || s->rank == v->rank, AIR_ERROR_SHAPE,
                "%s: a sequence of %d dims for values of %d", in->info->name,
                s->rank, v->rank);
    for (int i = 0; s->rank > 1 && i < v->rank - 1; i++)
        AIR_TRY(shape_same(in, v->dims[i], s->dims[i]));
    return set_found(in, v->rank, v->dims);
}

air_status
shape_bucketize(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "boundaries", 1));
    return set_search(in, "boundaries");
}

static air_status
check_sorter(const ir_infer *in)
{
    const air_attr *sorter = shape_arg(in, "sorter");
    const ir_value *s = shape_tensor(in, "sorted_sequence");

    if (sorter->kind != AIR_ATTR_VALUE)
        return AIR_OK;
    const ir_value *v = ir_val(in->g, sorter->value);
    AIR_REQUIRE(v->dtype == AIR_I64 && v->rank == s->rank, AIR_ERROR_SHAPE,
                "searchsorted: the sorter must be i64 and of %d dims", s->rank);
    for (int i = 0; i < s->rank; i++)
        AIR_TRY(shape_same(in, v->dims[i], s->dims[i]));
    return AIR_OK;
}

air_status
shape_searchsorted(ir_infer *in)
{
    AIR_TRY(check_sorter(in));
    return set_search(in, "sorted_sequence");
}

/* A number in one sequence. */
air_status
shape_bucketize_number(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "boundaries", 1));
    return set_found(in, 0, NULL);
}

air_status
shape_searchsorted_number(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "sorted_sequence", 1));
    AIR_TRY(check_sorter(in));
    return set_found(in, 0, NULL);
}

/* ---- masks and places ---------------------------------------------------- */

air_status
shape_masked_scatter(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *m = shape_tensor(in, "mask");
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_REQUIRE(m->dtype == AIR_BOOL, AIR_ERROR_DTYPE,
                "masked_scatter: the mask must be bool");
    AIR_TRY(
        ir_broadcast(in->g, v->rank, v->dims, m->rank, m->dims, &rank, dims));
    return shape_set(in, 0, rank, dims);
}

static air_status
check_flat_index(const ir_infer *in)
{
    const air_dtype dtype = (air_dtype)shape_tensor(in, "index")->dtype;

    AIR_REQUIRE(dtype == AIR_I64, AIR_ERROR_DTYPE,
                "%s: the index must be i64, not %s", in->info->name,
                air_dtype_text(dtype));
    return AIR_OK;
}

air_status
shape_take(ir_infer *in)
{
    AIR_TRY(check_flat_index(in));
    return shape_set_like(in, 0, "index");
}

air_status
shape_put(ir_infer *in)
{
    const ir_value *i = shape_tensor(in, "index");
    const ir_value *s = shape_tensor(in, "source");
    air_dim n, m;

    AIR_TRY(check_flat_index(in));
    AIR_TRY(ir_dim_product(in->g, i->rank, i->dims, &n));
    AIR_TRY(ir_dim_product(in->g, s->rank, s->dims, &m));
    AIR_TRY(shape_same(in, n, m));
    return shape_set_like(in, 0, "a");
}

/* The gradient of unfold: as `size` says. */
air_status
shape_unfold_backward(ir_infer *in)
{
    const ir_value *g = shape_tensor(in, "grad");
    const air_attr *size = shape_arg(in, "size");
    int64_t window, step;
    int axis;

    AIR_REQUIRE(size->count > 0 && g->rank == (int)size->count + 1,
                AIR_ERROR_SHAPE, "unfold_backward: the gradient has %d dims",
                g->rank);
    AIR_TRY(shape_axis(in, "dim", g->rank - 1, &axis));
    AIR_TRY(shape_int(in, "window", &window));
    AIR_TRY(shape_int(in, "step", &step));
    AIR_REQUIRE(window > 0 && step > 0, AIR_ERROR_ARGUMENT,
                "unfold_backward: size or step");
    for (int i = 0; i < g->rank - 1; i++)
        if (i != axis)
            AIR_TRY(shape_same(in, g->dims[i], size->dims[i]));
    return shape_set(in, 0, (int)size->count, size->dims);
}

/* ---- products ------------------------------------------------------------ */

/* Three along the axis of both. */
air_status
shape_cross(ir_infer *in)
{
    const ir_value *x = shape_tensor(in, "a"), *y = shape_tensor(in, "b");
    air_dim dims[AIR_MAX_RANK];
    int64_t n;
    int rank, axis;

    AIR_REQUIRE(x->rank == y->rank, AIR_ERROR_SHAPE,
                "linalg_cross: %d and %d dims", x->rank, y->rank);
    AIR_TRY(
        ir_broadcast(in->g, x->rank, x->dims, y->rank, y->dims, &rank, dims));
    AIR_TRY(shape_axis(in, "dim", rank, &axis));
    AIR_REQUIRE(rank > 0 && ir_dim_is_const(in->g, dims[axis], &n) && n == 3,
                AIR_ERROR_SHAPE, "linalg_cross: needs 3 along dim");
    return shape_set(in, 0, rank, dims);
}

/* `b` and `c` are batches whose products are summed. */
air_status
shape_addbmm(ir_infer *in)
{
    const ir_value *a = shape_tensor(in, "a");
    const ir_value *x = shape_tensor(in, "b"), *y = shape_tensor(in, "c");
    air_dim dims[AIR_MAX_RANK], out[2];
    int rank;

    AIR_TRY(shape_rank(in, "b", 3));
    AIR_TRY(shape_rank(in, "c", 3));
    AIR_TRY(shape_same(in, x->dims[0], y->dims[0]));
    AIR_TRY(shape_same(in, x->dims[2], y->dims[1]));
    out[0] = x->dims[1];
    out[1] = y->dims[2];
    AIR_TRY(ir_broadcast(in->g, 2, out, a->rank, a->dims, &rank, dims));
    AIR_REQUIRE(rank == 2, AIR_ERROR_SHAPE,
                "addbmm: the addend has more dims than the product");
    for (int i = 0; i < 2; i++)
        AIR_TRY(shape_same(in, dims[i], out[i]));
    return shape_set(in, 0, 2, out);
}

air_status
shape_dist(ir_infer *in)
{
    const ir_value *x = shape_tensor(in, "a"), *y = shape_tensor(in, "b");
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_TRY(
        ir_broadcast(in->g, x->rank, x->dims, y->rank, y->dims, &rank, dims));
    return shape_scalar_out(in, 0);
}
