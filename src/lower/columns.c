/* columns.c: sums over the rows of a region that folds its rows.
 *
 * A sum has a row of SUMS. The row phase in which its operand is at hand adds
 * to it; the last phase, COLUMN, stores what it holds after all rows. */
#include "lower/build.h"

static air_dtype
lane_dtype(air_lane lane)
{
    switch (lane) {
    case AIR_LANE_F32: return AIR_F32;
    case AIR_LANE_F64: return AIR_F64;
    case AIR_LANE_I64: return AIR_I64;
    default: return AIR_BOOL;
    }
}

int
lower_scratch(lower_build *b, const lower_member *m, air_rg_place place)
{
    const ir_value *v = ir_val(b->env->g, m->ref);
    air_lane lane = ir_lane_of((air_dtype)v->dtype);
    air_rg_buf buf = {.slot = -1,
                      .scratch = (uint8_t)place,
                      .dtype = (uint8_t)lane_dtype(lane)};

    if (b->nbufs >= AIR_RG_MAX_BUFS)
        return -1;
    b->bufs[b->nbufs] = buf;
    b->buf_value[b->nbufs] = AIR_NO_REF;
    b->buf_node[b->nbufs] = -1;
    return b->nbufs++;
}

air_status
lower_sum(lower_build *b, const ir_node *n, lower_member *m)
{
    const ir_value *v = ir_val(b->env->g, m->ref);
    air_lane lane = ir_lane_of((air_dtype)v->dtype);
    int operand, sum, unused;

    m->scratch = lower_scratch(b, m, AIR_RG_SUMS);
    AIR_REQUIRE(m->scratch >= 0, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d buffers", AIR_RG_MAX_BUFS);
    AIR_TRY(lower_operand(b, n->attrs[0].value, lane, false, &operand));
    AIR_TRY(lower_load(b, m->scratch, lane, &sum));
    air_rg_node add = {.op = AIR_RG_ADD,
                       .lane = (uint8_t)lane,
                       .a = (int16_t)sum,
                       .b = (int16_t)operand,
                       .c = -1};
    AIR_TRY(lower_put(b, add, &sum));
    air_rg_node store = {.op = AIR_RG_STORE,
                         .lane = (uint8_t)lane,
                         .buf = (int16_t)m->scratch,
                         .a = (int16_t)sum,
                         .b = -1,
                         .c = -1};
    return lower_put(b, store, &unused);
}

air_status
lower_column_phase(lower_build *b, int begin)
{
    lower_begin_phase(b);
    for (size_t i = 0; i < b->nmembers; i++) {
        lower_member *m = &b->members[i];
        const ir_value *v = ir_val(b->env->g, m->ref);
        int node;
        if (m->kind != GROUP_COLUMN)
            continue;
        AIR_TRY(
            lower_load(b, m->scratch, ir_lane_of((air_dtype)v->dtype), &node));
        AIR_TRY(lower_round(b, (air_dtype)v->dtype, &node));
        AIR_TRY(lower_store(b, m, node));
    }
    return lower_end_phase(b, AIR_PHASE_COLUMN, begin);
}
