/* shape_norm.c: shapes of softmax, normalisations and losses, with gradients.
 * Gradients that the output mask leaves out have a type all the same. */
#include <string.h>

#include "ir/shape.h"

/* half_to_float is for devices that softmax halves into floats. */
air_status
shape_softmax(ir_infer *in)
{
    int axis;

    AIR_TRY(shape_axis(in, "dim", shape_tensor(in, "a")->rank, &axis));
    if (shape_flag(in, "half_to_float"))
        in->outs[0].dtype = AIR_F32;
    return shape_like(in);
}

/* Result i: as `name` where that is given, else sizes dims. */
static air_status
set_like_or(const ir_infer *in, size_t i, const char *name, int rank,
            const air_dim *dims)
{
    const air_attr *a = shape_arg(in, name);

    if (a->kind != AIR_ATTR_VALUE)
        return shape_set(in, i, rank, dims);
    in->outs[i].dtype = (air_dtype)ir_val(in->g, a->value)->dtype;
    return shape_set_like(in, i, name);
}

/* ---- over the last axes -------------------------------------------------- */

/* How many axes are kept: those before normalized_shape. */
static air_status
outer_axes(const ir_infer *in, int *out)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *inner = shape_arg(in, "normalized_shape");

    AIR_REQUIRE(inner->count >= 1 && inner->count <= v->rank, AIR_ERROR_SHAPE,
                "%s: normalized_shape has %zu dims, the input %d",
                in->info->name, inner->count, v->rank);
    *out = v->rank - (int)inner->count;
    for (int i = *out; i < v->rank; i++)
        AIR_TRY(shape_same(in, v->dims[i], inner->dims[i - *out]));
    return AIR_OK;
}

/* The input's sizes with 1 for the normalised axes. */
static air_status
set_statistics(const ir_infer *in, size_t i, int outer)
{
    const ir_value *v = shape_tensor(in, "a");

    AIR_TRY(shape_set(in, i, v->rank, v->dims));
    for (int k = outer; k < v->rank; k++)
        AIR_TRY(ir_dim_const(in->g, 1, &in->outs[i].dims[k]));
    return AIR_OK;
}

air_status
shape_layer_norm(ir_infer *in)
{
    int outer;

    AIR_TRY(outer_axes(in, &outer));
    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(set_statistics(in, 1, outer));
    return set_statistics(in, 2, outer);
}

air_status
shape_layer_norm_backward(ir_infer *in)
{
    const air_attr *inner = shape_arg(in, "normalized_shape");
    int outer;

    AIR_TRY(outer_axes(in, &outer));
    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(set_like_or(in, 1, "weight", (int)inner->count, inner->dims));
    return set_like_or(in, 2, "bias", (int)inner->count, inner->dims);
}

air_status
shape_rms_norm(ir_infer *in)
{
    int outer;

    AIR_TRY(outer_axes(in, &outer));
    AIR_TRY(shape_set_like(in, 0, "a"));
    if (in->outs[1].dtype == AIR_BF16 || in->outs[1].dtype == AIR_F16)
        in->outs[1].dtype = AIR_F32; /* layer norm's stay half */
    return set_statistics(in, 1, outer);
}

air_status
shape_rms_norm_backward(ir_infer *in)
{
    const air_attr *inner = shape_arg(in, "normalized_shape");
    int outer;

    AIR_TRY(outer_axes(in, &outer));
    AIR_TRY(shape_set_like(in, 0, "a"));
    return set_like_or(in, 1, "weight", (int)inner->count, inner->dims);
}

/* ---- per group, per channel ---------------------------------------------- */

air_status
shape_group_norm(ir_infer *in)
{
    air_dim dims[2] = {shape_arg(in, "n")->dim, shape_arg(in, "group")->dim};
    const ir_value *v = shape_tensor(in, "a");
    int64_t group;

    AIR_TRY(shape_int(in, "group", &group));
    AIR_REQUIRE(v->rank >= 2 && group > 0, AIR_ERROR_SHAPE,
                "%s: needs two dims and a group", in->info->name);
    AIR_TRY(shape_same(in, v->dims[0], dims[0]));
    AIR_TRY(shape_same(in, v->dims[1], shape_arg(in, "c")->dim));
    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(shape_set(in, 1, 2, dims));
    return shape_set(in, 2, 2, dims);
}

air_status
shape_group_norm_backward(ir_infer *in)
{
    const air_dim *c = &shape_arg(in, "c")->dim;

    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(set_like_or(in, 1, "weight", 1, c));
    in->outs[2].dtype = in->outs[1].dtype;
    return shape_set(in, 2, 1, c);
}

static bool
is_training(const ir_infer *in)
{
    return ir_param_find(in->info, "training") >= 0 &&
           shape_flag(in, "training");
}

/* Statistics have the dtype of the parameters where that is another. */
static air_dtype
statistics_dtype(const ir_infer *in)
{
    const air_attr *w = shape_arg(in, "weight");
    return w->kind == AIR_ATTR_VALUE ? (air_dtype)ir_val(in->g, w->value)->dtype
                                     : in->outs[0].dtype;
}

/* Without training the saved statistics are empty. */
air_status
shape_batch_norm(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim c;

    AIR_REQUIRE(v->rank >= 2, AIR_ERROR_SHAPE, "%s: needs two dims",
                in->info->name);
    c = v->dims[1];
    if (!is_training(in))
        AIR_TRY(ir_dim_const(in->g, 0, &c));
    AIR_TRY(shape_set_like(in, 0, "a"));
    for (size_t i = 1; i <= 2; i++) {
        in->outs[i].dtype = statistics_dtype(in);
        AIR_TRY(shape_set(in, i, 1, &c));
    }
    if (in->nouts == 5) {
        AIR_TRY(set_like_or(in, 3, "running_mean", 1, &v->dims[1]));
        return set_like_or(in, 4, "running_var", 1, &v->dims[1]);
    }
    return AIR_OK;
}

air_status
shape_batch_norm_backward(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");

    AIR_REQUIRE(v->rank >= 2, AIR_ERROR_SHAPE, "%s: needs two dims",
                in->info->name);
    AIR_TRY(shape_set_like(in, 0, "a"));
    for (size_t i = 1; i <= 2; i++) {
        in->outs[i].dtype = statistics_dtype(in);
        AIR_TRY(shape_set(in, i, 1, &v->dims[1]));
    }
    return AIR_OK;
}

/* ---- losses -------------------------------------------------------------- */

/* reduction 0: an element each; 1, 2 (mean, sum): one number */
air_status
shape_loss(ir_infer *in)
{
    int64_t reduction;

    AIR_TRY(shape_int(in, "reduction", &reduction));
    AIR_TRY(shape_broadcast(in));
    return reduction == 0 ? AIR_OK : shape_scalar_out(in, 0);
}

air_status
shape_nll_loss(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t reduction;

    AIR_TRY(shape_int(in, "reduction", &reduction));
    AIR_REQUIRE(v->rank >= 1, AIR_ERROR_SHAPE, "%s: needs a class axis",
                in->info->name);
    AIR_TRY(shape_scalar_out(in, 0));
    AIR_TRY(shape_scalar_out(in, 1));
    return reduction == 0 && v->rank > 1 ? shape_set_like(in, 0, "labels")
                                         : AIR_OK;
}

/* Half of axis `dim`. */
air_status
shape_glu(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim half, whole;
    int axis;

    AIR_REQUIRE(v->rank > 0, AIR_ERROR_SHAPE, "glu of a 0-dim tensor");
    AIR_TRY(shape_axis(in, "dim", v->rank, &axis));
    AIR_TRY(shape_math(in, IR_DIM_DIV, v->dims[axis], 2, &half));
    AIR_TRY(shape_math(in, IR_DIM_MUL, half, 2, &whole));
    AIR_TRY(shape_same(in, whole, v->dims[axis]));
    AIR_TRY(shape_set_like(in, 0, "a"));
    in->outs[0].dims[axis] = half;
    return AIR_OK;
}
