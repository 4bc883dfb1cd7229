/* Tables of primitives: no row without a name. */
#include "test.h"

#include "base/prims.h"

TEST(prims_have_names)
{
    for (unsigned op = 0; op < AIR_RG_OP_COUNT; op++)
        CHECK(base_prim_name(op) != NULL);
    CHECK_STR(base_prim_name(AIR_RG_ADD), "ADD");
    CHECK_STR(base_prim_name(AIR_RG_LOAD), "load");
    CHECK_STR(base_reduction_name(AIR_REDUCE_MIN), "MIN");
    CHECK_STR(base_reduction_name(AIR_REDUCE_ALL), "ALL");
}

TEST(prims_have_operands)
{
    CHECK_INT(base_prim_arity(AIR_RG_LOAD), 0);
    CHECK_INT(base_prim_arity(AIR_RG_STORE), 1);
    CHECK_INT(base_prim_arity(AIR_RG_SQRT), 1);
    CHECK_INT(base_prim_arity(AIR_RG_ADD), 2);
    CHECK_INT(base_prim_arity(AIR_RG_SEL), 3);
}
