/* copy.c: copies and conversions as regions; text of a region. */
#include <string.h>

#include "lower/lower.h"

static void
copy_buf(const lower_place *place, air_dtype dtype, const lower_place *dst,
         air_rg_buf *out)
{
    const ir_layout *in = &place->layout;
    int lead = dst->layout.rank - in->rank;

    memset(out, 0, sizeof *out);
    out->slot = place->slot;
    out->dtype = (uint8_t)dtype;
    out->offset = place->offset + in->offset * (int64_t)air_dtype_bytes(dtype);
    for (int i = 0; i < in->rank; i++)
        out->strides[i + lead] =
            in->dims[i] == 1 && dst->layout.dims[i + lead] != 1
                ? 0
                : in->strides[i];
}

/* a: the node it takes; -1: none. */
static air_rg_node
copy_node(air_rg_op op, air_lane lane, int buf, int a)
{
    return (air_rg_node){.op = (uint16_t)op,
                         .lane = (uint8_t)lane,
                         .buf = (int16_t)buf,
                         .a = (int16_t)a,
                         .b = -1,
                         .c = -1};
}

air_status
lower_copy(base_arena *arena, const lower_place *src, air_dtype src_dtype,
           const lower_place *dst, air_dtype dst_dtype,
           lower_region *out_region)
{
    const air_lane from = ir_lane_of(src_dtype), to = ir_lane_of(dst_dtype);
    const int count = from == to ? 2 : 3; /* load, convert, store */
    const air_rg_node nodes[3] = {
        copy_node(AIR_RG_LOAD, from, 0, -1),
        count == 2 ? copy_node(AIR_RG_STORE, to, 1, 0)
                   : copy_node(AIR_RG_CVT, to, 0, 0),
        copy_node(AIR_RG_STORE, to, 1, 1),
    };
    const air_rg_phase phase = {
        .kind = AIR_PHASE_ROW, .begin = 0, .end = (int16_t)count};
    lower_role roles[AIR_MAX_RANK] = {LOWER_OUTER};
    air_rg_buf bufs[2];
    int64_t sizes[AIR_MAX_RANK];
    air_region *r;
    void *copy;
    int rank = dst->layout.rank, out_rank, bad;

    *out_region = (lower_region){0};
    copy_buf(src, src_dtype, dst, &bufs[0]);
    copy_buf(dst, dst_dtype, dst, &bufs[1]);
    memcpy(sizes, dst->layout.dims, sizeof sizes);
    lower_sort_axes(rank, sizes, 2, bufs, 1);
    AIR_TRY(base_arena_new(arena, sizeof *r, (void **)&r));
    lower_axes(rank, roles, sizes, false, 2, bufs, &out_rank, r->dims, &bad);
    r->walk = AIR_WALK_MAP;
    r->rank = (uint8_t)out_rank;
    r->nnodes = (int16_t)count;
    r->nbufs = 2;
    r->nphases = 1;
    AIR_TRY(
        base_arena_copy(arena, nodes, (size_t)count * sizeof *nodes, &copy));
    r->nodes = copy;
    AIR_TRY(base_arena_copy(arena, bufs, sizeof bufs, &copy));
    r->bufs = out_region->bufs = copy;
    AIR_TRY(base_arena_copy(arena, &phase, sizeof phase, &copy));
    r->phases = copy;
    out_region->region = r;
    return AIR_OK;
}
