/* shape_random.c: shapes of random operators, and what their parameters may
 * be: what kernels could not draw is refused here. */
#include "ir/shape.h"

static bool
find_float(const ir_infer *in, const char *name, double *out)
{
    if (ir_param_find(in->info, name) < 0)
        return false;
    const air_attr *a = shape_arg(in, name);
    *out = a->kind == AIR_ATTR_FLOAT ? a->f : 0.0;
    return true;
}

static air_status
check_parameters(const ir_infer *in)
{
    const char *op = in->info->name;
    double p, std, from, to;

    if (find_float(in, "p", &p))
        AIR_REQUIRE(p >= 0.0 && p <= 1.0, AIR_ERROR_ARGUMENT,
                    "%s: p is %g, not a probability", op, p);
    else
        AIR_REQUIRE(ir_is_float((air_dtype)in->outs[0].dtype),
                    AIR_ERROR_UNSUPPORTED, "%s: draws floats only", op);
    if (find_float(in, "std", &std))
        AIR_REQUIRE(std >= 0.0, AIR_ERROR_ARGUMENT,
                    "%s: std is %g, it must not be negative", op, std);
    if (find_float(in, "from", &from) && find_float(in, "to", &to))
        AIR_REQUIRE(from <= to, AIR_ERROR_ARGUMENT,
                    "%s: from is %g, which is above to, %g", op, from, to);
    return AIR_OK;
}

air_status
shape_random(ir_infer *in)
{
    AIR_TRY(check_parameters(in));
    return shape_full(in);
}

/* Of probabilities, one for each element. */
air_status
shape_bernoulli(ir_infer *in)
{
    AIR_TRY(check_parameters(in));
    return shape_like(in);
}

/* The largest integer up to which a dtype has them all. */
static int64_t
last_integer(air_dtype dtype)
{
    switch (dtype) {
    case AIR_BOOL: return 1;
    case AIR_I8: return INT8_MAX;
    case AIR_U8: return UINT8_MAX;
    case AIR_I16: return INT16_MAX;
    case AIR_I32: return INT32_MAX;
    case AIR_BF16: return 1 << 8;
    case AIR_F16: return 1 << 11;
    case AIR_F32: return 1 << 24;
    case AIR_F64: return (int64_t)1 << 53;
    default: return INT64_MAX;
    }
}

static int64_t
first_integer(air_dtype dtype)
{
    if (dtype == AIR_BOOL || dtype == AIR_U8)
        return 0;
    return ir_is_float(dtype) ? -last_integer(dtype) : -last_integer(dtype) - 1;
}

/* low <= result < high: both are known now and fit the dtype. */
air_status
shape_randint(ir_infer *in)
{
    const air_dtype dtype = (air_dtype)in->outs[0].dtype;
    const char *op = in->info->name;
    int64_t low = 0, high;

    if (ir_param_find(in->info, "low") >= 0)
        AIR_TRY(shape_int(in, "low", &low));
    AIR_TRY(shape_int(in, "high", &high));
    AIR_REQUIRE(low < high, AIR_ERROR_ARGUMENT,
                "%s: low is %lld, high %lld: no integer between", op,
                (long long)low, (long long)high);
    AIR_REQUIRE(low >= first_integer(dtype) && high - 1 <= last_integer(dtype),
                AIR_ERROR_UNSUPPORTED,
                "%s: %s does not have all integers between low and high", op,
                air_dtype_text(dtype));
    return shape_full(in);
}

/* 0 .. n - 1 */
air_status
shape_randperm(ir_infer *in)
{
    const air_dtype dtype = (air_dtype)in->outs[0].dtype;
    const air_dim n = shape_arg(in, "n")->dim;
    int64_t count = 0;

    AIR_REQUIRE(!ir_dim_is_const(in->g, n, &count) || count >= 0,
                AIR_ERROR_ARGUMENT, "%s: n is %lld, it must not be negative",
                in->info->name, (long long)count);
    AIR_REQUIRE(dtype == AIR_I64 || dtype == AIR_I32 ||
                    (count > 0 && count - 1 <= last_integer(dtype)),
                AIR_ERROR_UNSUPPORTED, "%s: %s does not have all integers to n",
                in->info->name, air_dtype_text(dtype));
    return shape_set(in, 0, 1, &n);
}
