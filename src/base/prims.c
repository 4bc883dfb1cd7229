#include "base/prims.h"

static const char *const names[AIR_RG_OP_COUNT] = {
    [AIR_RG_CONST] = "const",   [AIR_RG_LOAD] = "load",
    [AIR_RG_STORE] = "store",   [AIR_RG_REDUCE] = "reduce",
    [AIR_RG_SCALAR] = "scalar", [AIR_RG_SET] = "set",
    [AIR_RG_INDEX] = "index",
#define PRIM(id, ...) [AIR_RG_##id] = #id,
#define COMP          PRIM
#define FUNC          PRIM
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
};
static const uint8_t arity[AIR_RG_OP_COUNT] = {
    [AIR_RG_STORE] = 1,
    [AIR_RG_REDUCE] = 1,
    [AIR_RG_SET] = 1,
#define PRIM(id, n, ...) [AIR_RG_##id] = n,
#define COMP             PRIM
#define FUNC             PRIM
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
};
static const char *const reductions[] = {
    [AIR_REDUCE_SUM] = "SUM",       [AIR_REDUCE_PROD] = "PROD",
    [AIR_REDUCE_MAX] = "MAX",       [AIR_REDUCE_MIN] = "MIN",
    [AIR_REDUCE_ANY] = "ANY",       [AIR_REDUCE_ALL] = "ALL",
    [AIR_REDUCE_MOMENT] = "MOMENT",
};

const char *
base_prim_name(unsigned op)
{
    return names[op];
}

int
base_prim_arity(unsigned op)
{
    return arity[op];
}

const char *
base_reduction_name(unsigned reduce)
{
    return reductions[reduce];
}
