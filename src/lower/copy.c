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

/* load, maybe convert, store; gives how many there are then. */
static int
copy_nodes(const lower_move *move, int buf, air_rg_node *nodes, int count)
{
    const air_lane from = ir_lane_of(move->src_dtype);
    const air_lane to = ir_lane_of(move->dst_dtype);
    nodes[count++] = copy_node(AIR_RG_LOAD, from, buf, -1);
    if (from != to) {
        nodes[count] = copy_node(AIR_RG_CVT, to, 0, count - 1);
        count++;
    }
    nodes[count] = copy_node(AIR_RG_STORE, to, buf + 1, count - 1);
    return count + 1;
}

air_status
lower_copy(base_arena *arena, const lower_move *moves, int count,
           lower_region *out_region)
{
    air_rg_node nodes[3 * LOWER_MOVES];
    air_rg_buf bufs[2 * LOWER_MOVES];
    lower_role roles[AIR_MAX_RANK] = {LOWER_OUTER};
    const ir_layout *layout = &moves[0].dst.layout;
    int64_t sizes[AIR_MAX_RANK];
    air_region *r;
    void *copy;
    int nnodes = 0, out_rank, bad;

    *out_region = (lower_region){0};
    for (int i = 0; i < count; i++) {
        const lower_move *m = &moves[i];
        copy_buf(&m->src, m->src_dtype, &m->dst, &bufs[2 * i]);
        copy_buf(&m->dst, m->dst_dtype, &m->dst, &bufs[2 * i + 1]);
        nnodes = copy_nodes(m, 2 * i, nodes, nnodes);
    }
    memcpy(sizes, layout->dims, sizeof sizes);
    lower_sort_axes(layout->rank, sizes, 2 * count, bufs, 1);
    AIR_TRY(base_arena_new(arena, sizeof *r, (void **)&r));
    lower_axes(layout->rank, roles, sizes, false, 2 * count, bufs, &out_rank,
               r->dims, &bad);
    r->walk = AIR_WALK_MAP;
    r->rank = (uint8_t)out_rank;
    r->nnodes = (int16_t)nnodes;
    r->nbufs = (int16_t)(2 * count);
    r->nphases = 1;
    AIR_TRY(
        base_arena_copy(arena, nodes, (size_t)nnodes * sizeof *nodes, &copy));
    r->nodes = copy;
    AIR_TRY(
        base_arena_copy(arena, bufs, (size_t)r->nbufs * sizeof *bufs, &copy));
    r->bufs = out_region->bufs = copy;
    const air_rg_phase phase = {
        .kind = AIR_PHASE_ROW, .begin = 0, .end = r->nnodes};
    AIR_TRY(base_arena_copy(arena, &phase, sizeof phase, &copy));
    r->phases = copy;
    out_region->region = r;
    return AIR_OK;
}
