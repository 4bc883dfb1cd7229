/* shape_index.c: shapes of indexing, of ops that rearrange, of effects. */
#include <assert.h>
#include <string.h>

#include "ir/shape.h"

/* ---- order --------------------------------------------------------------- */

/* values, indices: both as `a` */
air_status
shape_like_index(ir_infer *in)
{
    int axis;

    in->outs[1].dtype = AIR_I64;
    AIR_TRY(shape_axis(in, "dim", shape_tensor(in, "a")->rank, &axis));
    return shape_like(in);
}

air_status
shape_topk(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t k, size;
    int axis;

    AIR_TRY(shape_like_index(in));
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    if (v->rank == 0)
        return AIR_OK;
    AIR_REQUIRE(!ir_dim_is_const(in->g, shape_arg(in, "k")->dim, &k) ||
                    !ir_dim_is_const(in->g, v->dims[axis], &size) ||
                    (k >= 0 && k <= size),
                AIR_ERROR_ARGUMENT, "topk: k is out of range");
    for (size_t i = 0; i < 2; i++)
        in->outs[i].dims[axis] = shape_arg(in, "k")->dim;
    return AIR_OK;
}

/* ---- index --------------------------------------------------------------- */

typedef struct {
    int rank, first, last, count; /* indexed axes of the tensor */
    air_dim dims[AIR_MAX_RANK];   /* of all indices, broadcast */
    bool used[AIR_MAX_RANK];
} index_plan;

static bool
is_index_dtype(unsigned dtype)
{
    return dtype == AIR_I64 || dtype == AIR_I32;
}

static air_status
read_indices(const ir_infer *in, index_plan *p)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *list = shape_arg(in, "indices");

    memset(p, 0, sizeof *p);
    p->first = -1;
    AIR_REQUIRE(list->count <= v->rank, AIR_ERROR_SHAPE,
                "%s: more indices than dims", in->info->name);
    for (int i = 0; i < (int)list->count; i++) {
        if (list->values[i].id == AIR_NO_REF.id)
            continue;
        const ir_value *index = ir_val(in->g, list->values[i]);
        AIR_REQUIRE(is_index_dtype(index->dtype), AIR_ERROR_UNSUPPORTED,
                    "%s: indices of dtype %s", in->info->name,
                    air_dtype_text((air_dtype)index->dtype));
        AIR_TRY(ir_broadcast(in->g, p->rank, p->dims, index->rank, index->dims,
                             &p->rank, p->dims));
        p->first = p->first < 0 ? i : p->first;
        p->last = i;
        p->used[i] = true;
        p->count++;
    }
    AIR_REQUIRE(p->count > 0, AIR_ERROR_ARGUMENT, "%s: no index",
                in->info->name);
    return AIR_OK;
}

/* The indices' sizes stand where neighbouring indexed axes stood, else first.
 */
static air_status
set_indexed(const ir_infer *in, const index_plan *p, int *out_rank,
            air_dim *dims)
{
    const ir_value *v = shape_tensor(in, "a");
    int at = p->last - p->first + 1 == p->count ? p->first : 0, rank = 0;
    int total = v->rank - p->count + p->rank;

    AIR_REQUIRE(total <= AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s: more than %d dims", in->info->name, AIR_MAX_RANK);
    for (int i = 0; i <= v->rank; i++) {
        if (rank == at) {
            memcpy(dims + rank, p->dims, (size_t)p->rank * sizeof *dims);
            rank += p->rank;
            at = -1;
        }
        if (i < v->rank && !p->used[i])
            dims[rank++] = v->dims[i];
    }
    assert(rank == total);
    *out_rank = rank;
    return AIR_OK;
}

air_status
shape_index(ir_infer *in)
{
    air_dim dims[AIR_MAX_RANK];
    index_plan p;
    int rank;

    AIR_TRY(read_indices(in, &p));
    AIR_TRY(set_indexed(in, &p, &rank, dims));
    return shape_set(in, 0, rank, dims);
}

/* a[mask] = number needs no index (pass/expand_small.c); how many elements
 * other masks pick depends on data. */
static air_status
is_masked_fill(const ir_infer *in, bool *out)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *list = shape_arg(in, "indices");

    *out = list->count == 1 && list->values[0].id != AIR_NO_REF.id &&
           shape_tensor(in, "values")->rank == 0 &&
           !shape_flag(in, "accumulate");
    if (!*out)
        return AIR_OK;
    const ir_value *mask = ir_val(in->g, list->values[0]);
    *out = mask->dtype == AIR_BOOL && mask->rank <= v->rank;
    for (int i = 0; *out && i < mask->rank; i++)
        AIR_TRY(shape_same(in, mask->dims[i], v->dims[i]));
    return AIR_OK;
}

air_status
shape_index_put(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "values");
    air_dim dims[AIR_MAX_RANK];
    index_plan p;
    bool filled;
    int rank;

    AIR_TRY(is_masked_fill(in, &filled));
    if (filled)
        return shape_set_like(in, 0, "a");
    AIR_TRY(read_indices(in, &p));
    AIR_TRY(set_indexed(in, &p, &rank, dims));
    AIR_REQUIRE(v->rank <= rank, AIR_ERROR_SHAPE,
                "%s: the values have too many dims", in->info->name);
    AIR_TRY(ir_broadcast(in->g, rank, dims, v->rank, v->dims, &rank, dims));
    return shape_set_like(in, 0, "a");
}

/* ---- one index along `dim` ----------------------------------------------- */

static air_status
check_index(const ir_infer *in, const char *name)
{
    unsigned dtype = shape_tensor(in, name)->dtype;
    AIR_REQUIRE(is_index_dtype(dtype), AIR_ERROR_UNSUPPORTED,
                "%s: indices of dtype %s", in->info->name,
                air_dtype_text((air_dtype)dtype));
    return AIR_OK;
}

static air_status
index_length(const ir_infer *in, air_dim *out)
{
    const ir_value *index = shape_tensor(in, "index");

    AIR_TRY(check_index(in, "index"));
    AIR_REQUIRE(index->rank <= 1, AIR_ERROR_SHAPE,
                "%s: the index must have one dim", in->info->name);
    if (index->rank == 0)
        return ir_dim_const(in->g, 1, out);
    *out = index->dims[0];
    return AIR_OK;
}

air_status
shape_index_select(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim n;
    int axis;

    AIR_TRY(index_length(in, &n));
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_TRY(shape_set_like(in, 0, "a"));
    if (v->rank > 0)
        in->outs[0].dims[axis] = n;
    return AIR_OK;
}

/* index_copy, index_add: `source` has the index's length along dim */
air_status
shape_index_source(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const ir_value *s = shape_tensor(in, "source");
    air_dim n;
    int axis;

    AIR_TRY(index_length(in, &n));
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_REQUIRE(s->rank == v->rank, AIR_ERROR_SHAPE,
                "%s: the source must have %d dims, not %d", in->info->name,
                v->rank, s->rank);
    for (int i = 0; i < v->rank; i++)
        AIR_TRY(shape_same(in, s->dims[i], i == axis ? n : v->dims[i]));
    return shape_set_like(in, 0, "a");
}

air_status
shape_embedding(ir_infer *in)
{
    const ir_value *w = shape_tensor(in, "a");
    const ir_value *index = shape_tensor(in, "indices");
    air_dim dims[AIR_MAX_RANK + 1];

    AIR_TRY(check_index(in, "indices"));
    AIR_TRY(shape_rank(in, "a", 2));
    memcpy(dims, index->dims, index->rank * sizeof *dims);
    dims[index->rank] = w->dims[1];
    return shape_set(in, 0, index->rank + 1, dims);
}

air_status
shape_embedding_backward(ir_infer *in)
{
    const ir_value *grad = shape_tensor(in, "grad");

    AIR_TRY(check_index(in, "indices"));
    AIR_REQUIRE(grad->rank > 0, AIR_ERROR_SHAPE, "%s: needs a gradient",
                in->info->name);
    return shape_set(in, 0, 2,
                     (air_dim[]){shape_arg(in, "num_weights")->dim,
                                 grad->dims[grad->rank - 1]});
}

/* ---- embedding_bag ------------------------------------------------------- */

/* Does the operator say which bag each index belongs to? ATen leaves that out
 * where one of its kernels needs no such list. */
static air_status
lists_bags(const ir_infer *in, bool *out)
{
    const unsigned dtype = shape_tensor(in, "a")->dtype;
    int64_t mode, padding;

    AIR_TRY(shape_int(in, "mode", &mode));
    AIR_TRY(shape_int(in, "padding_idx", &padding));
    AIR_REQUIRE(mode >= 0 && mode <= 2, AIR_ERROR_ARGUMENT,
                "%s: mode must be 0, 1 or 2", in->info->name);
    *out = mode != 0 || padding >= 0 || (dtype != AIR_F32 && dtype != AIR_F16);
    return AIR_OK;
}

/* Sums of a table's rows; the bag of each index, sizes of bags (`sizes` of
 * them), and where the largest elements were. */
static air_status
set_bags(ir_infer *in, air_dim bags, air_dim sizes)
{
    const ir_value *table = shape_tensor(in, "a");
    const unsigned dtype = shape_tensor(in, "offsets")->dtype;
    air_dim listed = shape_tensor(in, "indices")->dims[0];
    int64_t mode;
    bool lists = false;

    AIR_TRY(shape_int(in, "mode", &mode));
    AIR_TRY(lists_bags(in, &lists));
    if (!lists)
        AIR_TRY(ir_dim_const(in->g, 0, &listed));
    for (int i = 1; i < 4; i++)
        in->outs[i].dtype = (air_dtype)dtype;
    AIR_TRY(shape_set(in, 0, 2, (air_dim[]){bags, table->dims[1]}));
    AIR_TRY(shape_set(in, 1, 1, &listed));
    AIR_TRY(shape_set(in, 2, 1, &sizes));
    return shape_set(in, 3, mode == 2 ? 2 : 1,
                     (air_dim[]){bags, table->dims[1]});
}

/* One for each index, or none. */
static air_status
check_factors(const ir_infer *in)
{
    const air_attr *factor = shape_arg(in, "per_sample_weights");

    if (factor->kind != AIR_ATTR_VALUE)
        return AIR_OK;
    AIR_TRY(shape_rank(in, "per_sample_weights", 1));
    return shape_same(in, ir_val(in->g, factor->value)->dims[0],
                      shape_tensor(in, "indices")->dims[0]);
}

static air_status
check_bags(const ir_infer *in, air_dim *bags)
{
    AIR_TRY(check_index(in, "indices"));
    AIR_TRY(check_index(in, "offsets"));
    AIR_TRY(shape_rank(in, "a", 2));
    AIR_TRY(shape_rank(in, "indices", 1));
    AIR_TRY(shape_rank(in, "offsets", 1));
    AIR_REQUIRE(!shape_flag(in, "sparse"), AIR_ERROR_UNSUPPORTED,
                "%s: sparse gradients", in->info->name);
    AIR_TRY(check_factors(in));
    *bags = shape_tensor(in, "offsets")->dims[0];
    if (!shape_flag(in, "include_last_offset"))
        return AIR_OK;
    AIR_REQUIRE(in->g->dims.data[bags->id].max > 0, AIR_ERROR_SHAPE,
                "%s: include_last_offset needs an offset", in->info->name);
    return shape_math(in, IR_DIM_SUB, *bags, 1, bags);
}

air_status
shape_embedding_bag(ir_infer *in)
{
    air_dim bags;

    AIR_TRY(check_bags(in, &bags));
    return set_bags(in, bags, bags);
}

air_status
shape_embedding_bag_only(ir_infer *in)
{
    air_dim bags;

    AIR_TRY(check_bags(in, &bags));
    return set_bags(in, bags, shape_tensor(in, "offsets")->dims[0]);
}

/* What the mode reads: the bag of each index, sizes of bags, rows of the
 * largest. */
static air_status
check_bag_notes(const ir_infer *in, int64_t mode)
{
    const ir_value *grad = shape_tensor(in, "grad");
    const ir_value *most = shape_tensor(in, "maximum_indices");

    AIR_TRY(shape_rank(in, "offset2bag", 1));
    AIR_TRY(shape_rank(in, "bag_size", 1));
    if (mode != 2)
        AIR_TRY(shape_same(in, shape_tensor(in, "offset2bag")->dims[0],
                           shape_tensor(in, "indices")->dims[0]));
    if (mode != 0)
        AIR_TRY(shape_same(in, shape_tensor(in, "bag_size")->dims[0],
                           grad->dims[0]));
    if (mode != 2)
        return AIR_OK;
    AIR_TRY(shape_rank(in, "maximum_indices", 2));
    AIR_TRY(shape_same(in, most->dims[0], grad->dims[0]));
    return shape_same(in, most->dims[1], grad->dims[1]);
}

air_status
shape_embedding_bag_backward(ir_infer *in)
{
    const ir_value *grad = shape_tensor(in, "grad");
    int64_t mode;

    AIR_TRY(shape_int(in, "mode", &mode));
    AIR_TRY(check_index(in, "indices"));
    AIR_TRY(check_index(in, "offset2bag"));
    AIR_TRY(shape_rank(in, "grad", 2));
    AIR_TRY(shape_rank(in, "indices", 1));
    AIR_REQUIRE(mode >= 0 && mode <= 2, AIR_ERROR_ARGUMENT,
                "%s: mode must be 0, 1 or 2", in->info->name);
    AIR_TRY(check_factors(in));
    AIR_TRY(check_bag_notes(in, mode));
    return shape_set(
        in, 0, 2,
        (air_dim[]){shape_arg(in, "num_weights")->dim, grad->dims[1]});
}

/* One element for each index. */
air_status
shape_embedding_bag_factors(ir_infer *in)
{
    AIR_TRY(check_index(in, "indices"));
    AIR_TRY(check_index(in, "offsets"));
    AIR_TRY(check_index(in, "offset2bag"));
    AIR_TRY(shape_rank(in, "grad", 2));
    AIR_TRY(shape_rank(in, "a", 2));
    AIR_TRY(shape_rank(in, "indices", 1));
    AIR_TRY(shape_rank(in, "offsets", 1));
    AIR_TRY(shape_rank(in, "offset2bag", 1));
    AIR_TRY(shape_same(in, shape_tensor(in, "grad")->dims[1],
                       shape_tensor(in, "a")->dims[1]));
    return shape_set(in, 0, 1, shape_tensor(in, "indices")->dims);
}

static air_status
check_element_index(const ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const ir_value *index = shape_tensor(in, "index");
    int axis;

    AIR_TRY(check_index(in, "index"));
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_REQUIRE(index->rank == v->rank || index->rank == 0 || v->rank == 0,
                AIR_ERROR_SHAPE, "%s: the index must have %d dims, not %d",
                in->info->name, v->rank, index->rank);
    for (int i = 0; i < v->rank && index->rank > 0; i++)
        AIR_REQUIRE(i == axis || in->g->dims.data[index->dims[i].id].min <=
                                     in->g->dims.data[v->dims[i].id].max,
                    AIR_ERROR_SHAPE, "%s: the index is larger at dim %d",
                    in->info->name, i);
    return AIR_OK;
}

air_status
shape_gather(ir_infer *in)
{
    AIR_TRY(check_element_index(in));
    return shape_set_like(in, 0, "index");
}

air_status
shape_scatter(ir_infer *in)
{
    int src = ir_param_find(in->info, "src");

    AIR_TRY(check_element_index(in));
    AIR_REQUIRE(src < 0 || ir_val(in->g, in->attrs[src].value)->rank ==
                               shape_tensor(in, "index")->rank,
                AIR_ERROR_SHAPE, "%s: index and src have other dims",
                in->info->name);
    AIR_REQUIRE(src < 0 || ir_val(in->g, in->attrs[src].value)->dtype ==
                               in->outs[0].dtype,
                AIR_ERROR_DTYPE, "%s: src has another dtype", in->info->name);
    return shape_set_like(in, 0, "a");
}

/* ---- several tensors ----------------------------------------------------- */

static air_status
check_list(const ir_infer *in, const air_attr *list)
{
    AIR_REQUIRE(list->count > 0, AIR_ERROR_ARGUMENT, "%s of no tensors",
                in->info->name);
    for (size_t i = 0; i < list->count; i++)
        AIR_REQUIRE(ir_val(in->g, list->values[i])->dtype == in->outs[0].dtype,
                    AIR_ERROR_UNSUPPORTED, "%s of several dtypes",
                    in->info->name);
    return AIR_OK;
}

/* ATen lets an empty tensor of one dim stand among tensors of any dims. */
static bool
is_skipped(const ir_infer *in, const ir_value *v, int rank)
{
    int64_t n;
    return v->rank == 1 && rank != 1 &&
           ir_dim_is_const(in->g, v->dims[0], &n) && n == 0;
}

static const ir_value *
cat_model(const ir_infer *in, const air_attr *list)
{
    const ir_value *v = ir_val(in->g, list->values[0]);

    for (size_t i = 1; i < list->count && is_skipped(in, v, 0); i++)
        v = ir_val(in->g, list->values[i]);
    return v;
}

air_status
shape_cat(ir_infer *in)
{
    const air_attr *list = shape_arg(in, "tensors");
    const ir_value *model;
    air_dim total;
    int axis;

    AIR_TRY(check_list(in, list));
    model = cat_model(in, list);
    AIR_REQUIRE(model->rank > 0, AIR_ERROR_SHAPE, "cat of 0-dim tensors");
    AIR_TRY(shape_axis(in, "dim", model->rank, &axis));
    AIR_TRY(ir_dim_const(in->g, 0, &total));
    for (size_t i = 0; i < list->count; i++) {
        const ir_value *v = ir_val(in->g, list->values[i]);
        if (is_skipped(in, v, model->rank))
            continue;
        AIR_REQUIRE(v->rank == model->rank, AIR_ERROR_SHAPE,
                    "cat of tensors of %d and %d dims", model->rank, v->rank);
        for (int k = 0; k < v->rank; k++)
            if (k != axis)
                AIR_TRY(shape_same(in, v->dims[k], model->dims[k]));
        AIR_TRY(ir_dim_make(in->g, IR_DIM_ADD, total, v->dims[axis], &total));
    }
    AIR_TRY(shape_set(in, 0, model->rank, model->dims));
    in->outs[0].dims[axis] = total;
    return AIR_OK;
}

air_status
shape_stack(ir_infer *in)
{
    const air_attr *list = shape_arg(in, "tensors");
    const ir_value *first;
    air_dim dims[AIR_MAX_RANK + 1];
    int axis;

    AIR_TRY(check_list(in, list));
    first = ir_val(in->g, list->values[0]);
    AIR_TRY(shape_axis(in, "dim", first->rank + 1, &axis));
    for (size_t i = 1; i < list->count; i++) {
        const ir_value *v = ir_val(in->g, list->values[i]);
        AIR_REQUIRE(v->rank == first->rank, AIR_ERROR_SHAPE,
                    "stack of tensors of %d and %d dims", first->rank, v->rank);
        for (int k = 0; k < v->rank; k++)
            AIR_TRY(shape_same(in, v->dims[k], first->dims[k]));
    }
    memcpy(dims, first->dims, (size_t)axis * sizeof *dims);
    memcpy(dims + axis + 1, first->dims + axis,
           (size_t)(first->rank - axis) * sizeof *dims);
    AIR_TRY(ir_dim_const(in->g, (int64_t)list->count, &dims[axis]));
    return shape_set(in, 0, first->rank + 1, dims);
}

/* ---- parts --------------------------------------------------------------- */

/* src must have exactly these sizes; the result is as `a`. */
static air_status
set_part(ir_infer *in, int rank, const air_dim *dims)
{
    const ir_value *s = shape_tensor(in, "src");

    AIR_REQUIRE(s->rank == rank, AIR_ERROR_SHAPE,
                "%s: src must have %d dims, not %d", in->info->name, rank,
                s->rank);
    for (int i = 0; i < rank; i++)
        AIR_TRY(shape_same(in, s->dims[i], dims[i]));
    AIR_REQUIRE(s->dtype == in->outs[0].dtype, AIR_ERROR_UNSUPPORTED,
                "%s: src has another dtype", in->info->name);
    return shape_set_like(in, 0, "a");
}

/* The view's shape function finds the sizes of the part. */
static air_status
set_view_part(ir_infer *in, ir_shape_fn view)
{
    air_type part = {.dtype = in->outs[0].dtype};
    ir_infer of_view = *in;

    of_view.outs = &part;
    AIR_TRY(view(&of_view));
    return set_part(in, part.rank, part.dims);
}

air_status
shape_slice_scatter(ir_infer *in)
{
    return set_view_part(in, shape_slice);
}

air_status
shape_select_scatter(ir_infer *in)
{
    return set_view_part(in, shape_select);
}

air_status
shape_diagonal_scatter(ir_infer *in)
{
    return set_view_part(in, shape_diagonal);
}

air_status
shape_as_strided_scatter(ir_infer *in)
{
    return set_view_part(in, shape_as_strided);
}

/* ---- growing ------------------------------------------------------------- */

/* `pad`: pairs (before, after), the last axis first */
air_status
shape_pad(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *pad = shape_arg(in, "pad");
    air_dim dims[AIR_MAX_RANK];

    AIR_REQUIRE(pad->count % 2 == 0 && pad->count <= 2u * v->rank,
                AIR_ERROR_ARGUMENT, "%s: %zu amounts for %d dims",
                in->info->name, pad->count, v->rank);
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    for (size_t i = 0; i < pad->count; i++) {
        air_dim *d = &dims[v->rank - 1 - (int)(i / 2)];
        AIR_TRY(ir_dim_make(in->g, IR_DIM_ADD, *d, pad->dims[i], d));
    }
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_repeat(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *times = shape_arg(in, "repeats");
    int lead = (int)times->count - v->rank;
    air_dim dims[AIR_MAX_RANK];

    AIR_REQUIRE(lead >= 0 && times->count <= AIR_MAX_RANK, AIR_ERROR_SHAPE,
                "repeat: %zu numbers for a tensor of %d dims", times->count,
                v->rank);
    for (int i = 0; i < (int)times->count; i++) {
        dims[i] = times->dims[i];
        if (i >= lead)
            AIR_TRY(ir_dim_make(in->g, IR_DIM_MUL, v->dims[i - lead],
                                times->dims[i], &dims[i]));
    }
    return shape_set(in, 0, (int)times->count, dims);
}

/* ---- memory -------------------------------------------------------------- */

/* A copy with the given strides, which must not overlap. */
air_status
shape_restride(ir_infer *in)
{
    AIR_REQUIRE(shape_arg(in, "stride")->count == shape_tensor(in, "a")->rank,
                AIR_ERROR_ARGUMENT, "%s: one stride per dim is needed",
                in->info->name);
    return shape_set_like(in, 0, "a");
}

air_status
shape_copy_(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *s = shape_tensor(in, "src");
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_REQUIRE(s->rank <= v->rank, AIR_ERROR_SHAPE,
                "copy_: the source has more dims than the destination");
    AIR_TRY(
        ir_broadcast(in->g, v->rank, v->dims, s->rank, s->dims, &rank, dims));
    for (int i = 0; i < rank; i++)
        AIR_TRY(shape_same(in, dims[i], v->dims[i]));
    return shape_set(in, 0, v->rank, v->dims);
}
