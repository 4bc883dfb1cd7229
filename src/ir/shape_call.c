/* shape_call.c: shapes of ops with a kernel of their own. */
#include <assert.h>
#include <string.h>

#include "ir/shape.h"

/* ---- matrix products ----------------------------------------------------- */

static air_status
set_mm(ir_infer *in, const char *a, const char *b)
{
    const ir_value *x = shape_tensor(in, a), *y = shape_tensor(in, b);

    AIR_TRY(shape_rank(in, a, 2));
    AIR_TRY(shape_rank(in, b, 2));
    AIR_TRY(shape_same(in, x->dims[1], y->dims[0]));
    return shape_set(in, 0, 2, (air_dim[]){x->dims[0], y->dims[1]});
}

air_status
shape_mm(ir_infer *in)
{
    return set_mm(in, "a", "b");
}

/* ---- effects ------------------------------------------------------------- */

air_status
shape_copy_(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *s = shape_tensor(in, "src");
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_REQUIRE(s->rank <= v->rank, AIR_ERROR_SHAPE,
                "copy_: the source has more dims than the destination");
    AIR_TRY(ir_broadcast(in->g, v->rank, v->dims, s->rank, s->dims, &rank,
                         dims));
    for (int i = 0; i < rank; i++)
        AIR_TRY(shape_same(in, dims[i], v->dims[i]));
    return shape_set(in, 0, v->rank, v->dims);
}
