/* region_plan.c: checks a region, joins its axes, plans a thread's memory. */
#include "driver/cpu/region/region_plan.h"
#include "base/prims.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const uint8_t dtype_bytes[AIR_DTYPE_COUNT] = {
    0,
#define DTYPE(id, text, bytes, ...) bytes,
#include "air_dtypes.def"
#undef DTYPE
};

/* ---- checks ---- */

static bool
has_value(unsigned op)
{
    return op != AIR_RG_STORE && op != AIR_RG_REDUCE && op != AIR_RG_SET;
}

/* The lane by which tile loops are found, -1 where operands do not fit. */
static int
loop_lane(const air_region *rg, const air_rg_node *n)
{
    const air_rg_node *a = &rg->nodes[n->a];
    const air_rg_node *b = base_prim_arity(n->op) > 1 ? &rg->nodes[n->b] : a;
    if (tile_is_compare(n->op))
        return n->lane == AIR_LANE_B && a->lane == b->lane ? a->lane : -1;
    if (n->op == AIR_RG_SEL)
        return a->lane == AIR_LANE_B && b->lane == n->lane &&
                       rg->nodes[n->c].lane == n->lane
                   ? n->lane
                   : -1;
    if (a->lane != n->lane || b->lane != n->lane ||
        (base_prim_arity(n->op) > 2 && rg->nodes[n->c].lane != n->lane))
        return -1;
    return n->lane;
}

static air_status
check_operands(const air_region *rg, int at)
{
    const air_rg_node *n = &rg->nodes[at];
    const int16_t operands[3] = {n->a, n->b, n->c};
    for (int i = 0; i < base_prim_arity(n->op); i++)
        AIR_REQUIRE(operands[i] >= 0 && operands[i] < at &&
                        has_value(rg->nodes[operands[i]].op),
                    AIR_ERROR_ARGUMENT, "region node %d: operand %d is %d", at,
                    i, operands[i]);
    return AIR_OK;
}

static air_status
check_computing(const air_region *rg, const tile_set *set, int at)
{
    const air_rg_node *n = &rg->nodes[at];
    if (n->op == AIR_RG_CVT)
        return AIR_OK;
    int lane = loop_lane(rg, n);
    AIR_REQUIRE(lane >= 0 && (*set->ops)[n->op][lane] != NULL, AIR_ERROR_DTYPE,
                "region node %d: operation %d has no lane %d", at, n->op,
                n->lane);
    return AIR_OK;
}

static air_status
check_node(const air_region *rg, const tile_set *set, int at)
{
    const air_rg_node *n = &rg->nodes[at];
    AIR_REQUIRE(n->op < AIR_RG_OP_COUNT && n->lane < TILE_LANES,
                AIR_ERROR_ARGUMENT, "region node %d: operation %d", at, n->op);
    AIR_TRY(check_operands(rg, at));
    int limit = -1;
    switch (n->op) {
    case AIR_RG_CONST: return AIR_OK;
    case AIR_RG_LOAD:
    case AIR_RG_STORE: limit = rg->nbufs; break;
    case AIR_RG_INDEX: limit = rg->rank; break;
    case AIR_RG_REDUCE:
        AIR_REQUIRE(rg->walk != AIR_WALK_MAP && n->reduce < TILE_REDUCES &&
                        (*set->folds)[n->reduce][n->lane] != NULL,
                    AIR_ERROR_DTYPE, "region node %d: reduction %d of lane %d",
                    at, n->reduce, n->lane);
        limit = rg->nscalars;
        break;
    case AIR_RG_SCALAR:
    case AIR_RG_SET: limit = rg->nscalars; break;
    default: return check_computing(rg, set, at);
    }
    AIR_REQUIRE(n->buf >= 0 && n->buf < limit, AIR_ERROR_ARGUMENT,
                "region node %d: index %d of %d", at, n->buf, limit);
    return AIR_OK;
}

/* Rows of SUMS have a COLUMN phase behind those of the rows, and only they. */
static air_status
check_sums(const air_region *rg)
{
    const int last = rg->nphases - 1;
    bool sums = false;
    for (int b = 0; b < rg->nbufs; b++) {
        if (rg->bufs[b].scratch != AIR_RG_SUMS)
            continue;
        sums = true;
        AIR_REQUIRE(
            rg->walk == AIR_WALK_INNER &&
                (rg->bufs[b].dtype == AIR_F32 || rg->bufs[b].dtype == AIR_F64),
            AIR_ERROR_ARGUMENT, "region buffer %d: sums of dtype %d", b,
            rg->bufs[b].dtype);
    }
    for (int p = 0; p <= last; p++)
        AIR_REQUIRE((rg->phases[p].kind == AIR_PHASE_COLUMN) ==
                        (sums && p == last),
                    AIR_ERROR_ARGUMENT, "region phase %d of kind %d", p,
                    rg->phases[p].kind);
    return AIR_OK;
}

static air_status
check_region(const air_region *rg, const tile_set *set)
{
    AIR_REQUIRE(rg->rank >= 1 && rg->rank <= AIR_MAX_RANK &&
                    rg->walk <= AIR_WALK_OUTER &&
                    (rg->walk != AIR_WALK_OUTER || rg->rank >= 2),
                AIR_ERROR_ARGUMENT, "region of rank %d, walk %d", rg->rank,
                rg->walk);
    AIR_REQUIRE(rg->nnodes >= 0 && rg->nnodes <= AIR_RG_MAX_NODES &&
                    rg->nbufs >= 0 && rg->nbufs <= AIR_RG_MAX_BUFS &&
                    rg->nscalars >= 0 && rg->nscalars <= AIR_RG_MAX_SCALARS &&
                    rg->nphases >= 1 && rg->nphases <= AIR_RG_MAX_PHASES,
                AIR_ERROR_ARGUMENT, "region with %d nodes, %d buffers",
                rg->nnodes, rg->nbufs);
    AIR_REQUIRE(rg->walk == AIR_WALK_INNER ||
                    rg->nphases == (rg->walk == AIR_WALK_MAP ? 1 : 2),
                AIR_ERROR_ARGUMENT, "region with %d phases", rg->nphases);
    for (int b = 0; b < rg->nbufs; b++)
        AIR_REQUIRE(rg->bufs[b].dtype > AIR_DTYPE_NONE &&
                        rg->bufs[b].dtype < AIR_DTYPE_COUNT,
                    AIR_ERROR_DTYPE, "region buffer %d: dtype %d", b,
                    rg->bufs[b].dtype);
    for (int i = 0; i < rg->nnodes; i++)
        AIR_TRY(check_node(rg, set, i));
    return check_sums(rg);
}

/* ---- axes ---- */

static bool
uses_index(const air_region *rg, int axis)
{
    for (int i = 0; i < rg->nnodes; i++)
        if (rg->nodes[i].op == AIR_RG_INDEX && rg->nodes[i].buf == axis)
            return true;
    return false;
}

/* Can the region's axis `inner` continue the last axis of the plan? */
static bool
joins(const cpu_region *r, int inner)
{
    for (int b = 0; b < r->rg->nbufs; b++)
        if (!r->rg->bufs[b].scratch &&
            r->strides[b][r->rank - 1] !=
                r->rg->bufs[b].strides[inner] * r->rg->dims[inner])
            return false;
    return true;
}

static void
push_axis(cpu_region *r, int axis, bool join)
{
    if (join)
        r->dims[r->rank - 1] *= r->rg->dims[axis];
    else
        r->dims[r->rank++] = r->rg->dims[axis];
    for (int b = 0; b < r->rg->nbufs; b++)
        r->strides[b][r->rank - 1] = r->rg->bufs[b].strides[axis];
    r->axis_of[axis] = (int8_t)(r->rank - 1);
}

/* Joins neighbours that every buffer walks as one axis; drops axes of one
 * index. The vector axis (and the reduced one) stay what they are. */
static void
plan_axes(cpu_region *r)
{
    const air_region *rg = r->rg;
    int vector = air_region_axis(rg);
    int fixed = rg->walk == AIR_WALK_MAP     ? rg->rank
                : rg->walk == AIR_WALK_INNER ? rg->rank - 1
                                             : rg->rank - 2;
    bool open = false; /* may the next axis join the last one? */
    for (int a = 0; a < rg->rank; a++) {
        r->axis_of[a] = -1;
        if (a != vector && a < fixed && rg->dims[a] == 1)
            continue;
        if (a > vector)
            continue;
        bool free_axis = a < fixed && !uses_index(rg, a);
        push_axis(r, a, open && free_axis && joins(r, a));
        open = free_axis;
    }
    int kept = rg->walk == AIR_WALK_OUTER ? 2 : 1;
    r->cols = r->dims[r->rank - 1];
    r->folded = kept == 2 ? r->dims[r->rank - 2] : 0;
    r->rows = 1;
    for (int a = 0; a < r->rank - kept; a++)
        r->rows *= r->dims[a];
}

/* Values that belong to a row have one place in it. */
static bool
has_row_values(const cpu_region *r, const air_rg_phase *phase)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if ((n->op == AIR_RG_LOAD || n->op == AIR_RG_STORE) &&
            r->strides[n->buf][r->rank - 1] != 0)
            return false;
    }
    return true;
}

/* Axes of one index are none of the plan's. */
static int
flat_axis(const cpu_region *r)
{
    int axis = air_region_flat(r->rg);
    while (r->axis_of[axis] < 0)
        axis++;
    return r->axis_of[axis] < r->rank - 2 ? r->axis_of[axis] : r->rank - 2;
}

static void
plan_across(cpu_region *r)
{
    const air_region *rg = r->rg;
    r->across = rg->across && rg->walk == AIR_WALK_INNER && r->rank > 1 &&
                r->cols > 0 && r->row_phases == rg->nphases &&
                r->cols <= TILE_CHUNK;
    for (int a = 0; a < rg->rank; a++)
        r->across = r->across && !uses_index(rg, a);
    for (int p = 0; p < rg->nphases && r->across; p++)
        if (rg->phases[p].kind == AIR_PHASE_SCALAR)
            r->across = has_row_values(r, &rg->phases[p]);
    if (!r->across)
        return;
    /* an odd number of lines: neighbouring columns in different sets */
    int64_t lines = (REGION_ACROSS / 16 / r->cols - 1) | 1, inner;
    r->block = 16 * (lines < 1 ? 1 : lines > 15 ? 15 : lines);
    r->flat = flat_axis(r);
    /* blocks begin where the axes behind that do */
    inner = region_flat_rows(r) / (r->dims[r->flat] > 0 ? r->dims[r->flat] : 1);
    if (inner > 1)
        r->block = inner > r->block ? inner : r->block - r->block % inner;
}

static size_t
places_bytes(const cpu_region *r)
{
    return (size_t)(r->rg->nbufs * r->block) * sizeof *r->places;
}

/* Row i of a block, counted along all of its axes. */
static int64_t
place_of(const cpu_region *r, int b, int64_t i)
{
    int64_t at = 0;
    for (int a = r->rank - 2; a > r->flat; i /= r->dims[a--])
        at += i % r->dims[a] * r->strides[b][a];
    return at + i * r->strides[b][r->flat];
}

static air_status
plan_places(cpu_region *r)
{
    if (!r->across || r->flat == r->rank - 2 || r->rows == 0)
        return AIR_OK;
    AIR_TRY(base_new(r->alloc, places_bytes(r), (void **)&r->places));
    for (int b = 0; b < r->rg->nbufs; b++) {
        bool alike = !r->rg->bufs[b].scratch;
        for (int a = 0; a <= r->flat; a++)
            alike = alike && r->strides[b][a] == 0;
        r->fixed |= (uint32_t)alike << b;
        for (int64_t i = 0; i < r->block; i++)
            r->places[b * r->block + i] = place_of(r, b, i);
    }
    return AIR_OK;
}

/* ---- phases ---- */

static void
plan_reduction(cpu_region *r, const air_rg_node *n)
{
    static const double of_float[TILE_REDUCES] = {0, 1, -HUGE_VAL, HUGE_VAL};
    static const int64_t of_int[TILE_REDUCES] = {0,         1, INT64_MIN,
                                                 INT64_MAX, 0, 1};
    air_scalar start = {.i = of_int[n->reduce]};
    if (n->lane == AIR_LANE_F32)
        start.f = (float)of_float[n->reduce];
    if (n->lane == AIR_LANE_F64)
        start.d = of_float[n->reduce];
    if (n->lane == AIR_LANE_B)
        start.b = n->reduce == AIR_REDUCE_ALL;
    r->reduce[n->buf] = n->reduce;
    r->by_fours |= n->lane == AIR_LANE_F32 && (n->reduce == AIR_REDUCE_SUM ||
                                               n->reduce == AIR_REDUCE_PROD);
    r->lane[n->buf] = n->lane;
    r->start[n->buf] = start;
    r->nreduce++;
}

static bool is_tile(const cpu_region *r, const air_rg_node *n);
static bool is_narrow(const cpu_region *r, const air_rg_phase *phase, int node);

/* A vector of columns at least, and so few that a call of code for them takes
 * longer than to fold them. */
static bool
is_few_columns(const cpu_region *r, const air_rg_node *load)
{
    const int64_t bytes = r->cols * (int64_t)tile_lane_size(load->lane);
    return r->rg->walk == AIR_WALK_OUTER && is_tile(r, load) &&
           bytes >= r->set->vector &&
           bytes <= (int64_t)TILE_FEW_VECTORS * r->set->vector;
}

/* Of a phase that only folds a buffer whose rows lie dense. */
static void
find_fold(const cpu_region *r, const air_rg_phase *phase, region_phase *out)
{
    const air_rg_node *load = &r->rg->nodes[phase->begin], *fold = load + 1;
    if (phase->kind != AIR_PHASE_ROW || phase->end - phase->begin != 2 ||
        load->op != AIR_RG_LOAD || fold->op != AIR_RG_REDUCE)
        return;
    const tile_narrow *narrow = NULL;
    if (is_narrow(r, phase, phase->begin))
        narrow = &(*r->set->narrow)[fold->reduce][r->rg->bufs[load->buf].dtype];
    if (r->rg->walk == AIR_WALK_OUTER && narrow != NULL)
        out->fold_columns = narrow->columns;
    else if (is_few_columns(r, load))
        out->fold_columns = (*r->set->columns)[fold->reduce][fold->lane];
    out->narrow = narrow != NULL && narrow->columns != NULL;
    if (r->across && narrow != NULL)
        out->fold_rows = narrow->rows;
    else if (is_tile(r, load) && r->rg->walk == AIR_WALK_INNER &&
             r->cols >= region_whole_row(r, tile_lane_size(load->lane)))
        out->fold_rows = (*r->set->rows)[fold->reduce][fold->lane];
}

static void
plan_phase(cpu_region *r, int p)
{
    const air_rg_phase *phase = &r->rg->phases[p];
    region_phase *out = &r->phases[p];
    find_fold(r, phase, out);
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        uint32_t bit = n->buf >= 0 ? UINT32_C(1) << n->buf : 0;
        if (n->op == AIR_RG_LOAD)
            out->loads |= bit;
        if (n->op == AIR_RG_STORE)
            out->stores |= bit;
        if (n->op == AIR_RG_SCALAR)
            out->reads_scalars = true;
        if (n->op == AIR_RG_SET)
            r->lane[n->buf] = n->lane;
        if (n->op == AIR_RG_REDUCE) {
            out->reduces |= (uint16_t)bit;
            plan_reduction(r, n);
        }
    }
    if (r->across || r->spread)
        return;
    uint32_t strided = 0;
    for (int b = 0; b < r->rg->nbufs; b++)
        if (!r->rg->bufs[b].scratch && phase->kind != AIR_PHASE_SCALAR &&
            (r->strides[b][r->rank - 1] < 0 || r->strides[b][r->rank - 1] > 1))
            strided |= UINT32_C(1) << b;
    for (int b = 0; b < r->rg->nbufs && r->rg->walk == AIR_WALK_MAP; b++)
        if (strided >> b & 1 && r->rank > 1 && r->strides[b][r->rank - 2] &&
            llabs(r->strides[b][r->rank - 2]) <
                llabs(r->strides[b][r->rank - 1]))
            r->blocked = true;
    out->staged_in = out->loads & strided;
    out->staged_out = out->stores & strided;
    if (phase->kind == AIR_PHASE_SCALAR && out->loads)
        r->column_split = false;
}

/* ---- a thread's memory ---- */

typedef struct {
    int count[3], peak[3]; /* tiles of 1, 4, 8 bytes an element */
    uint16_t freed[3][AIR_RG_MAX_NODES];
    int nfreed[3];
    int16_t last[AIR_RG_MAX_NODES]; /* last user */
    uint16_t slot[AIR_RG_MAX_NODES];
    bool live[AIR_RG_MAX_NODES];
} tile_plan;

static int
size_class(unsigned lane)
{
    static const uint8_t cls[TILE_LANES] = {1, 2, 2, 0};
    return cls[lane];
}

static void
take_tile(tile_plan *t, int node, unsigned lane)
{
    int c = size_class(lane);
    if (t->nfreed[c] > 0)
        t->slot[node] = t->freed[c][--t->nfreed[c]];
    else
        t->slot[node] = (uint16_t)t->count[c]++;
    t->live[node] = true;
}

static void
drop_tile(tile_plan *t, int node, unsigned lane)
{
    int c = size_class(lane);
    if (t->live[node])
        t->freed[c][t->nfreed[c]++] = t->slot[node];
    t->live[node] = false;
}

/* Linear scan; constants keep their tile. An operand's tile is given back only
 * after the result has one, so that loops never overlap. */
static void
plan_tiles(const air_region *rg, tile_plan *t)
{
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        const int16_t operands[3] = {n->a, n->b, n->c};
        t->last[i] = (int16_t)i;
        for (int k = 0; k < base_prim_arity(n->op); k++)
            t->last[operands[k]] = (int16_t)i;
        if (n->op == AIR_RG_CONST)
            take_tile(t, i, n->lane);
    }
    for (int i = 0; i < rg->nnodes; i++) {
        const air_rg_node *n = &rg->nodes[i];
        const int16_t operands[3] = {n->a, n->b, n->c};
        if (n->op == AIR_RG_CONST)
            continue;
        if (has_value(n->op))
            take_tile(t, i, n->lane);
        for (int k = 0; k < base_prim_arity(n->op); k++)
            if (t->last[operands[k]] == i &&
                rg->nodes[operands[k]].op != AIR_RG_CONST)
                drop_tile(t, operands[k], rg->nodes[operands[k]].lane);
        if (has_value(n->op) && t->last[i] == i)
            drop_tile(t, i, n->lane);
    }
}

static size_t
take_bytes(cpu_region *r, size_t bytes)
{
    size_t at = r->thread_bytes;
    r->thread_bytes += (bytes + REGION_ALIGN - 1) & ~(size_t)(REGION_ALIGN - 1);
    return at;
}

static void
place_tiles(cpu_region *r, const tile_plan *t)
{
    size_t per_element =
        (size_t)(t->count[0] + 4 * t->count[1] + 8 * t->count[2]);
    r->tile = TILE_MAX;
    while (r->tile > TILE_PARTS && per_element * (size_t)r->tile > 65536)
        r->tile /= 2;
    size_t n = (size_t)r->tile;
    size_t at[3];
    at[2] = take_bytes(r, n * 8 * (size_t)t->count[2]);
    at[1] = take_bytes(r, n * 4 * (size_t)t->count[1]);
    at[0] = take_bytes(r, n * (size_t)t->count[0]);
    for (int i = 0; i < r->rg->nnodes; i++) {
        int c = size_class(r->rg->nodes[i].lane);
        r->tiles[i] = (uint32_t)(at[c] + n * t->slot[i] *
                                             (c == 0   ? 1
                                              : c == 1 ? 4
                                                       : 8));
    }
}

/* Are elements of the buffer what a tile of the lane holds? */
static bool
is_tile(const cpu_region *r, const air_rg_node *n)
{
    const air_rg_buf *b = &r->rg->bufs[n->buf];
    return b->scratch == AIR_RG_MEMORY && region_inner_stride(r, n->buf) == 1 &&
           ((n->lane == AIR_LANE_F32 && b->dtype == AIR_F32) ||
            (n->lane == AIR_LANE_F64 && b->dtype == AIR_F64) ||
            (n->lane == AIR_LANE_I64 && b->dtype == AIR_I64));
}

/* Does the phase read (write) what may be the place of buffer `buf`, but in
 * node `but`? */
static bool
touches(const cpu_region *r, const air_rg_phase *phase, int op, int buf,
        int but)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if (n->op == op && i != but && !r->rg->bufs[n->buf].scratch &&
            r->rg->bufs[n->buf].slot == r->rg->bufs[buf].slot)
            return true;
    }
    return false;
}

static int
count_uses(const air_region *rg, const air_rg_phase *phase, int node)
{
    int count = 0;
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        count += (n->a == node) + (n->b == node) + (n->c == node);
    }
    return count;
}

/* An integer that is narrower in memory and only folded? */
static bool
is_narrow(const cpu_region *r, const air_rg_phase *phase, int node)
{
    const air_rg_node *n = &r->rg->nodes[node];
    const air_rg_buf *b = &r->rg->bufs[n->buf];
    int folds = 0;
    if (n->op != AIR_RG_LOAD || n->lane != AIR_LANE_I64 ||
        b->scratch != AIR_RG_MEMORY || r->strides[n->buf][r->rank - 1] != 1)
        return false;
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *use = &r->rg->nodes[i];
        if (use->op == AIR_RG_REDUCE && use->a == node &&
            (*r->set->narrow)[use->reduce][b->dtype].fold != NULL)
            folds++;
    }
    return folds > 0 && folds == count_uses(r->rg, phase, node);
}

/* Loads are not copied where nothing is written over them, and a result is
 * computed where it is stored. */
static void
plan_direct(cpu_region *r, const air_rg_phase *phase)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if ((n->op != AIR_RG_LOAD && n->op != AIR_RG_STORE) ||
            !(is_tile(r, n) || is_narrow(r, phase, i)))
            continue;
        const uint32_t place = REGION_DIRECT | (uint32_t)n->buf;
        if (n->op == AIR_RG_LOAD) {
            if (!touches(r, phase, AIR_RG_STORE, n->buf, -1))
                r->tiles[i] = place;
        } else if (r->rg->nodes[n->a].op >= AIR_RG_INDEX + 1 &&
                   count_uses(r->rg, phase, n->a) == 1 &&
                   !touches(r, phase, AIR_RG_LOAD, n->buf, -1) &&
                   !touches(r, phase, AIR_RG_STORE, n->buf, i)) {
            r->tiles[n->a] = place;
        }
    }
}

static bool
only_folds(const cpu_region *r, const air_rg_phase *phase)
{
    for (int i = phase->begin; i < phase->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if (n->op != AIR_RG_REDUCE &&
            !(n->op == AIR_RG_LOAD && r->tiles[i] & REGION_DIRECT))
            return false;
    }
    return true;
}

/* Blocks column by column: of scratch, and of buffers that are turned. */
static void
place_blocks(cpu_region *r)
{
    uint16_t reduces = 0;
    for (int p = 0; p < r->rg->nphases; p++)
        reduces |= r->phases[p].reduces;
    for (int b = 0; b < r->rg->nbufs; b++) {
        size_t bytes = (size_t)(r->cols * r->block) * r->bytes[b];
        if (r->rg->bufs[b].scratch)
            r->row[b] = take_bytes(r, bytes);
        else if (!region_is_direct(r, b))
            r->stage[b] = take_bytes(r, bytes);
    }
    for (int s = 0; s < r->rg->nscalars; s++) {
        int64_t parts = reduces >> s & 1 ? region_parts(r) : 1;
        r->acc[s] = take_bytes(r, (size_t)(parts * r->block) *
                                      tile_lane_size(r->lane[s]));
    }
}

static void
place_buffers(cpu_region *r)
{
    const int64_t count = r->spread ? r->block * r->cols : REGION_STAGE;
    uint32_t staged = r->apart;
    for (int p = 0; p < r->rg->nphases; p++) {
        staged |= r->phases[p].staged_in | r->phases[p].staged_out;
        if (r->rg->phases[p].kind == AIR_PHASE_SCALAR)
            staged |= r->phases[p].stores;
    }
    for (int b = 0; b < r->rg->nbufs; b++) {
        if (r->rg->bufs[b].scratch == AIR_RG_ROW)
            r->row[b] = take_bytes(r, (size_t)r->cols * r->bytes[b]);
        if (staged >> b & 1)
            r->stage[b] = take_bytes(r, (size_t)count * r->bytes[b]);
    }
    r->levels = 3 + REGION_OUTER_LEVELS;
    for (int64_t n = region_chunks(r); n > 0; n >>= 1)
        r->levels++;
    for (int s = 0; s < r->rg->nscalars; s++)
        r->acc[s] = take_bytes(r, r->rg->walk == AIR_WALK_OUTER
                                      ? region_acc_row(r) * (size_t)r->levels
                                      : TILE_PARTS * 8);
}

/* A set holds a row of each buffer of SUMS. */
static void
place_sums(cpu_region *r)
{
    for (int b = 0; b < r->rg->nbufs; b++) {
        if (r->rg->bufs[b].scratch != AIR_RG_SUMS)
            continue;
        r->row[b] = r->sum_bytes;
        r->sum_bytes += ((size_t)r->cols * r->bytes[b] + REGION_ALIGN - 1) &
                        ~(size_t)(REGION_ALIGN - 1);
    }
    r->sum_rows = (r->rows + REGION_SUM_SETS - 1) / REGION_SUM_SETS;
    if (r->sum_rows < REGION_SUM_ROWS)
        r->sum_rows = REGION_SUM_ROWS;
    if (r->sum_rows > REGION_SUM_MOST)
        r->sum_rows = REGION_SUM_MOST;
}

static air_status
plan_memory(cpu_region *r)
{
    tile_plan *t;
    AIR_TRY(base_new(r->alloc, sizeof *t, (void **)&t));
    plan_tiles(r->rg, t);
    place_tiles(r, t);
    base_free(r->alloc, t, sizeof *t);
    for (int p = 0; p < r->rg->nphases && !r->across; p++)
        if (r->rg->phases[p].kind == AIR_PHASE_ROW) {
            plan_direct(r, &r->rg->phases[p]);
            r->phases[p].folds = only_folds(r, &r->rg->phases[p]);
        }
    if (r->across)
        place_blocks(r);
    else
        place_buffers(r);
    place_sums(r);
    return AIR_OK;
}

/* ---- make, free ---- */

static air_phase_fn
code_at(const cpu_region *r, int32_t offset)
{
    void *at = (char *)r->code.base + offset;
    air_phase_fn fn;
    memcpy(&fn, &at, sizeof fn);
    return fn;
}

static void
load_code(cpu_region *r, const air_code *code)
{
    if (code == NULL || r->across != r->rg->across ||
        (r->rg->spread && !r->spread && r->rank > 1) ||
        !exec_memory_make(code->bytes, code->size, &r->code))
        return;
    uint32_t staged = 0;
    int32_t all = code->all;
    for (int p = 0; p < r->rg->nphases; p++) {
        r->phases[p].staged_in &= ~code->pairs;
        r->phases[p].staged_out &= ~code->pairs;
        uint32_t here = r->phases[p].staged_in | r->phases[p].staged_out;
        if (code->offset[p] < 0 || r->phases[p].narrow) {
            all = 0;
            continue;
        }
        r->phases[p].fn = code_at(r, code->offset[p]);
        r->phases[p].rows = (code->rows >> p & 1) && !here;
        r->phases[p].span = region_staged_span(r, here);
        staged |= here;
    }
    if (all > 0 && !staged && r->cols <= TILE_CHUNK)
        r->all = code_at(r, all);
}

static size_t
tiles_bytes(const cpu_region *r)
{
    return (size_t)r->rg->nnodes * sizeof *r->tiles;
}

static air_status
make(const air_alloc *alloc, const air_region *region, const air_code *code,
     const char *isa, bool alone, cpu_region **out)
{
    const bool has_code = code != NULL && code->offset[0] >= 0;
    *out = NULL;
    const tile_set *set = tile_set_find(isa);
    AIR_TRY(check_region(region, set));
    cpu_region *r;
    AIR_TRY(base_new(alloc, sizeof *r, (void **)&r));
    r->alloc = alloc;
    r->rg = region;
    r->set = set;
    r->column_split = true;
    r->row_phases = region->nphases;
    if (region->phases[region->nphases - 1].kind == AIR_PHASE_COLUMN)
        r->row_phases--;
    r->copies = region_is_copy(region);
    for (int b = 0; b < region->nbufs; b++)
        r->bytes[b] = dtype_bytes[region->bufs[b].dtype];
    plan_axes(r);
    plan_across(r);
    region_plan_spread(r, alone && !has_code);
    for (int p = 0; p < region->nphases; p++)
        plan_phase(r, p);
    region_plan_pairs(r);
    air_status status = base_new(alloc, tiles_bytes(r), (void **)&r->tiles);
    if (status == AIR_OK)
        status = plan_places(r);
    if (status == AIR_OK)
        status = plan_memory(r);
    if (status != AIR_OK) {
        cpu_region_free(r);
        return status;
    }
    load_code(r, code);
    r->uses_tiles = cpu_region_native(r) < region->nphases;
    *out = r;
    return AIR_OK;
}

air_status
cpu_region_make(const air_alloc *alloc, const air_region *region,
                const air_code *code, const char *isa, cpu_region **out)
{
    return make(alloc, region, code, isa, true, out);
}

air_status
cpu_region_make_joined(const air_alloc *alloc, const air_region *region,
                       const air_code *code, const char *isa, cpu_region **out)
{
    return make(alloc, region, code, isa, false, out);
}

void
cpu_region_free(cpu_region *r)
{
    if (r == NULL)
        return;
    exec_memory_free(&r->code);
    base_free(r->alloc, r->tiles, tiles_bytes(r));
    base_free(r->alloc, r->places, places_bytes(r));
    base_free(r->alloc, r, sizeof *r);
}

int
cpu_region_native(const cpu_region *r)
{
    int count = 0;
    for (int p = 0; p < r->rg->nphases; p++)
        count += r->phases[p].fn != NULL;
    return count;
}

size_t
cpu_region_workspace(const air_call *call, int threads)
{
    const cpu_region *r = call->extra;
    size_t bytes = region_own_bytes(r, threads);
    if (r->sum_bytes > 0)
        return bytes + (size_t)region_sum_sets(r) * r->sum_bytes;
    if (!region_shares(r, threads))
        return bytes;
    /* INNER uses two units in turn, so that one barrier a phase is enough */
    int64_t units =
        r->rg->walk == AIR_WALK_OUTER ? r->rows * region_blocks(r) : 2;
    return bytes + region_partial(r, units, 0, 0);
}
