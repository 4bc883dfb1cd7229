/* shape_quantised.c: shapes of products with weights of 8 and 4 bits. */
#include "ir/shape.h"

static bool
is_given(const ir_infer *in, const char *name)
{
    return shape_arg(in, name)->kind == AIR_ATTR_VALUE;
}

static air_status
check_weight(const ir_infer *in, int64_t bits)
{
    const ir_value *a = shape_tensor(in, "a"), *w = shape_tensor(in, "weight");
    air_dim numbers;

    AIR_REQUIRE(bits == 8 || bits == 4, AIR_ERROR_ARGUMENT,
                "%s: bits must be 8 or 4, got %lld", in->info->name,
                (long long)bits);
    AIR_TRY(shape_rank(in, "a", 2));
    AIR_TRY(shape_rank(in, "weight", 2));
    AIR_REQUIRE(ir_is_float((air_dtype)a->dtype), AIR_ERROR_DTYPE,
                "%s: a must hold floats, got %s", in->info->name,
                air_dtype_text((air_dtype)a->dtype));
    AIR_REQUIRE(w->dtype == (bits == 8 ? AIR_I8 : AIR_U8), AIR_ERROR_DTYPE,
                "%s: weight of %lld bits must be %s, got %s", in->info->name,
                (long long)bits, bits == 8 ? "i8" : "u8",
                air_dtype_text((air_dtype)w->dtype));
    AIR_TRY(shape_math(in, IR_DIM_MUL, w->dims[1], 8 / bits, &numbers));
    return shape_same(in, a->dims[1], numbers);
}

/* [rows of the weight, groups], where groups divide what a row has. */
static air_status
check_factor(const ir_infer *in, const char *name)
{
    int64_t groups, depth;

    if (!is_given(in, name))
        return AIR_OK;
    const ir_value *t = shape_tensor(in, name);
    AIR_TRY(shape_rank(in, name, 2));
    AIR_REQUIRE(ir_is_float((air_dtype)t->dtype), AIR_ERROR_DTYPE,
                "%s: %s must hold floats, got %s", in->info->name, name,
                air_dtype_text((air_dtype)t->dtype));
    AIR_TRY(shape_same(in, t->dims[0], shape_tensor(in, "weight")->dims[0]));
    AIR_REQUIRE(
        ir_dim_is_const(in->g, t->dims[1], &groups) &&
            ir_dim_is_const(in->g, shape_tensor(in, "a")->dims[1], &depth),
        AIR_ERROR_UNSUPPORTED, "%s: the sizes of %s are not constant",
        in->info->name, name);
    AIR_REQUIRE(groups > 0 && depth % groups == 0, AIR_ERROR_SHAPE,
                "%s: %s has %lld groups, which do not divide rows of %lld",
                in->info->name, name, (long long)groups, (long long)depth);
    return AIR_OK;
}

static air_status
check_bias(const ir_infer *in)
{
    if (!is_given(in, "bias"))
        return AIR_OK;
    const ir_value *bias = shape_tensor(in, "bias");
    AIR_TRY(shape_rank(in, "bias", 1));
    AIR_REQUIRE(ir_is_float((air_dtype)bias->dtype), AIR_ERROR_DTYPE,
                "%s: bias must hold floats, got %s", in->info->name,
                air_dtype_text((air_dtype)bias->dtype));
    return shape_same(in, bias->dims[0], shape_tensor(in, "weight")->dims[0]);
}

/* [rows of a, rows of the weight] in the dtype of a. */
static air_status
set_result(const ir_infer *in)
{
    const ir_value *a = shape_tensor(in, "a");

    in->outs[0].dtype = (air_dtype)a->dtype;
    return shape_set(
        in, 0, 2, (air_dim[]){a->dims[0], shape_tensor(in, "weight")->dims[0]});
}

/* a [m, k], weight i8 [n, k] or u8 [n, k / 2], scale and zero [n, groups], of
 * one number of groups, bias [n]. */
air_status
shape_quantised_mm(ir_infer *in)
{
    int64_t bits;

    AIR_TRY(shape_int(in, "bits", &bits));
    AIR_TRY(check_weight(in, bits));
    AIR_TRY(check_factor(in, "scale"));
    AIR_TRY(check_factor(in, "zero"));
    if (is_given(in, "scale") && is_given(in, "zero"))
        AIR_TRY(shape_same(in, shape_tensor(in, "scale")->dims[1],
                           shape_tensor(in, "zero")->dims[1]));
    AIR_TRY(check_bias(in));
    return set_result(in);
}

/* a [m, k], weight i8 [n, k], scale [n] of the dtype of a. */
air_status
shape_int8pack_mm(ir_infer *in)
{
    const ir_value *scale = shape_tensor(in, "scale");

    AIR_TRY(check_weight(in, 8));
    AIR_TRY(shape_rank(in, "scale", 1));
    AIR_REQUIRE(scale->dtype == shape_tensor(in, "a")->dtype, AIR_ERROR_DTYPE,
                "%s: scale must be of the dtype of a", in->info->name);
    AIR_TRY(
        shape_same(in, scale->dims[0], shape_tensor(in, "weight")->dims[0]));
    return set_result(in);
}

/* ---- as if quantised ----------------------------------------------------- */

enum { MOST_LEVELS = 1 << 24 }; /* that f32 counts */

static air_status
check_levels(ir_infer *in)
{
    const ir_value *a = shape_tensor(in, "a");
    int64_t least, most;

    AIR_REQUIRE(ir_is_float((air_dtype)a->dtype), AIR_ERROR_DTYPE,
                "%s: floats are needed", in->info->name);
    AIR_TRY(shape_int(in, "quant_min", &least));
    AIR_TRY(shape_int(in, "quant_max", &most));
    AIR_REQUIRE(least <= most && least >= -MOST_LEVELS && most <= MOST_LEVELS,
                AIR_ERROR_UNSUPPORTED, "%s: integers beyond 24 bits",
                in->info->name);
    AIR_TRY(shape_like(in));
    in->outs[1].dtype = AIR_BOOL;
    return AIR_OK;
}

static air_status
check_one(ir_infer *in, const char *name)
{
    const air_attr *attr = shape_arg(in, name);
    const ir_value *v;
    int64_t size;

    if (attr->kind != AIR_ATTR_VALUE)
        return AIR_OK;
    v = ir_val(in->g, attr->value);
    for (int i = 0; i < v->rank; i++)
        AIR_REQUIRE(ir_dim_is_const(in->g, v->dims[i], &size) && size == 1,
                    AIR_ERROR_UNSUPPORTED, "%s: %s is not one number",
                    in->info->name, name);
    return AIR_OK;
}

air_status
shape_fake_quantize(ir_infer *in)
{
    AIR_TRY(check_one(in, "qscale"));
    AIR_TRY(check_one(in, "qzero"));
    if (ir_param_find(in->info, "enabled") >= 0)
        AIR_TRY(check_one(in, "enabled"));
    return check_levels(in);
}

air_status
shape_fake_quantize_channels(ir_infer *in)
{
    const ir_value *a = shape_tensor(in, "a");
    int axis;

    AIR_TRY(shape_axis(in, "axis", a->rank, &axis));
    AIR_REQUIRE(a->rank > 0, AIR_ERROR_SHAPE, "%s: a has no axis",
                in->info->name);
    AIR_TRY(shape_rank(in, "qscale", 1));
    AIR_TRY(shape_rank(in, "qzero", 1));
    AIR_TRY(shape_same(in, shape_tensor(in, "qscale")->dims[0], a->dims[axis]));
    AIR_TRY(shape_same(in, shape_tensor(in, "qzero")->dims[0], a->dims[axis]));
    return check_levels(in);
}
