/* expand_body.c: composed functions of a region (EXP, TANH ...) become
 * primitives, for code generators that only know those. */
#include <assert.h>

#include "ir/record_macros.h"

#define COMP1(id, a) expand_##id(rec, (a))
#define PRIM(...)
#define FUNC(...)
#define COMP(id, arity, exact, ...)               \
    static int expand_##id(ir_record *rec, int a) \
    {                                             \
        __VA_ARGS__                               \
    }
#include "air_prims.def"
#undef COMP

static int
expand_comp(ir_record *r, air_rg_op op, int a)
{
    switch (op) {
#define COMP(id, ...) \
    case AIR_RG_##id: \
        return expand_##id(r, a);
#include "air_prims.def"
#undef COMP
    default: return -1;
    }
}

static bool
is_comp(unsigned op)
{
    switch (op) {
#define COMP(id, ...) case AIR_RG_##id:
#include "air_prims.def"
#undef COMP
        return true;
    default: return false;
    }
}

static int16_t
moved(const int16_t *map, int16_t old)
{
    return old < 0 ? old : map[old];
}

/* F64 has no expansion: its COMP nodes stay, as functions of the tile loops. */
void
ir_record_expand(const air_rg_node *src, int count, ir_record *dst,
                 int16_t *map)
{
    for (int i = 0; i < count && !dst->full; i++) {
        air_rg_node n = src[i];
        n.a = moved(map, n.a);
        n.b = moved(map, n.b);
        n.c = moved(map, n.c);
        if (is_comp(n.op) && n.lane == AIR_LANE_F32) {
            dst->lane = AIR_LANE_F32;
            map[i] = (int16_t)expand_comp(dst, (air_rg_op)n.op, n.a);
        } else {
            map[i] = (int16_t)ir_record_put(dst, n);
        }
    }
}
