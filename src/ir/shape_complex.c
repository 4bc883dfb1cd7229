/* shape_complex.c: shapes of operators on complex numbers. An i64 holds a pair
 * of f32; what is f32 stands for numbers without an imaginary part. */
#include <string.h>

#include "ir/shape.h"

/* The pairs have an axis of their own where they are taken apart. */
static air_status
check_rank(const ir_infer *in, int rank)
{
    AIR_REQUIRE(rank < AIR_MAX_RANK, AIR_ERROR_UNSUPPORTED,
                "%s: complex numbers of more than %d dims", in->info->name,
                AIR_MAX_RANK - 1);
    return AIR_OK;
}

/* pairs: i64 too. */
static air_status
check_operands(const ir_infer *in, bool pairs)
{
    for (int i = 0; i < in->info->nparams; i++) {
        if (in->attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        const ir_value *v = ir_val(in->g, in->attrs[i].value);
        const bool mask = strcmp(in->info->params[i].name, "mask") == 0;
        const bool able =
            mask ? v->dtype == AIR_BOOL
                 : v->dtype == AIR_F32 || (pairs && v->dtype == AIR_I64);
        AIR_REQUIRE(able, AIR_ERROR_DTYPE, "%s: %s is %s", in->info->name,
                    in->info->params[i].name,
                    air_dtype_text((air_dtype)v->dtype));
        AIR_TRY(check_rank(in, v->rank));
    }
    return AIR_OK;
}

air_status
shape_complex(ir_infer *in)
{
    AIR_TRY(check_operands(in, true));
    return shape_broadcast(in);
}

air_status
shape_complex_parts(ir_infer *in)
{
    AIR_TRY(check_operands(in, false));
    return shape_broadcast(in);
}

air_status
shape_complex_reduce(ir_infer *in)
{
    AIR_TRY(check_operands(in, true));
    return shape_reduce(in);
}

air_status
shape_pairs(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim dims[AIR_MAX_RANK];

    AIR_REQUIRE(v->dtype == AIR_I64, AIR_ERROR_DTYPE,
                "view_as_real: a is %s, not complex",
                air_dtype_text((air_dtype)v->dtype));
    AIR_TRY(check_rank(in, v->rank));
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    AIR_TRY(ir_dim_const(in->g, 2, &dims[v->rank]));
    in->outs[0].dtype = AIR_F32;
    return shape_set(in, 0, v->rank + 1, dims);
}

air_status
shape_paired(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    air_dim two;

    AIR_REQUIRE(v->dtype == AIR_F32, AIR_ERROR_DTYPE,
                "view_as_complex: a is %s, not f32",
                air_dtype_text((air_dtype)v->dtype));
    AIR_REQUIRE(v->rank > 0, AIR_ERROR_SHAPE, "view_as_complex: a has no dims");
    AIR_TRY(ir_dim_const(in->g, 2, &two));
    AIR_TRY(shape_same(in, v->dims[v->rank - 1], two));
    in->outs[0].dtype = AIR_I64;
    return shape_set(in, 0, v->rank - 1, v->dims);
}
