#include "driver/ref/region.h"

#include "driver/ref/element.h"
#include "driver/ref/eval.h"

struct ref_region {
    const air_alloc *alloc;
    const air_region *rg;
    size_t size;     /* of this block */
    int64_t cols;    /* of the last axis */
    ref_value *rows; /* scratch buffers: one row each, unrounded */
    /* of the run under way */
    void *const *slots;
    const air_task *task;
    int64_t at[AIR_MAX_RANK];
    ref_value scalars[AIR_RG_MAX_SCALARS];
    ref_value values[AIR_RG_MAX_NODES];
};

air_status
ref_region_make(const air_alloc *alloc, const air_region *region,
                ref_region **out)
{
    int64_t cols = region->dims[region->rank - 1];
    size_t size, rows;
    void *ptr;
    *out = NULL;
    AIR_REQUIRE(base_mul_size((size_t)cols, AIR_RG_MAX_BUFS, &rows) &&
                    base_mul_size(rows, sizeof(ref_value), &rows) &&
                    base_add_size(rows, sizeof(ref_region), &size),
                AIR_ERROR_MEMORY, "a row of %lld elements", (long long)cols);
    bool any = false;
    for (int i = 0; i < region->nbufs; i++)
        any |= region->bufs[i].scratch != 0;
    size = any ? size : sizeof(ref_region);
    AIR_TRY(base_new(alloc, size, &ptr));
    ref_region *r = ptr;
    r->alloc = alloc;
    r->rg = region;
    r->size = size;
    r->cols = cols;
    r->rows = (void *)(r + 1);
    *out = r;
    return AIR_OK;
}

void
ref_region_free(ref_region *r)
{
    if (r != NULL)
        base_free(r->alloc, r, r->size);
}

/* ---- one node ------------------------------------------------------------ */

static bool
lane_is_float(unsigned lane)
{
    return lane == AIR_LANE_F32 || lane == AIR_LANE_F64;
}

static ref_value *
scratch_element(ref_region *r, int buf)
{
    return &r->rows[buf * r->cols + r->at[r->rg->rank - 1]];
}

static char *
element(ref_region *r, int buf)
{
    const air_rg_buf *b = &r->rg->bufs[buf];
    int64_t offset = 0;
    for (int i = 0; i < r->rg->rank; i++)
        offset += r->at[i] * b->strides[i];
    return (char *)r->slots[b->slot] + b->offset +
           offset * (int64_t)ref_bytes(b->dtype);
}

static ref_value
load(ref_region *r, const air_rg_node *n)
{
    int dtype = r->rg->bufs[n->buf].dtype;
    ref_value v;
    if (r->rg->bufs[n->buf].scratch)
        return *scratch_element(r, n->buf);
    const char *p = element(r, n->buf);
    if (lane_is_float(n->lane))
        v.f = ref_get(dtype, p);
    else if (ref_is_float(dtype))
        v.i = n->lane == AIR_LANE_B ? ref_get(dtype, p) != 0.0
                                    : ref_to_int(ref_get(dtype, p));
    else
        v.i = n->lane == AIR_LANE_B ? ref_get_int(dtype, p) != 0
                                    : ref_get_int(dtype, p);
    return v;
}

static void
store(ref_region *r, const air_rg_node *n, ref_value v)
{
    int dtype = r->rg->bufs[n->buf].dtype;
    if (r->rg->bufs[n->buf].scratch)
        *scratch_element(r, n->buf) = v;
    else if (lane_is_float(n->lane))
        ref_put(dtype, element(r, n->buf), v.f);
    else
        ref_put_int(dtype, element(r, n->buf), v.i);
}

static ref_value
reduce_start(const air_rg_node *n)
{
    bool f = lane_is_float(n->lane);
    ref_value v = {.i = 0};
    switch ((air_reduce)n->reduce) {
    case AIR_REDUCE_SUM:
    case AIR_REDUCE_MOMENT: /* none comes here: air_target.moments */
    case AIR_REDUCE_ANY: break;
    case AIR_REDUCE_PROD:
    case AIR_REDUCE_ALL:
        if (f)
            v.f = 1;
        else
            v.i = 1;
        break;
    case AIR_REDUCE_MAX:
    case AIR_REDUCE_MIN: {
        bool max = n->reduce == AIR_REDUCE_MAX;
        if (f)
            v.f = max ? -(double)INFINITY : (double)INFINITY;
        else
            v.i = max ? INT64_MIN : INT64_MAX;
        break;
    }
    }
    return v;
}

static double
fold_float(unsigned reduce, double acc, double x)
{
    switch (reduce) {
    case AIR_REDUCE_SUM: return acc + x;
    case AIR_REDUCE_PROD: return acc * x;
    case AIR_REDUCE_MAX: return x > acc || isnan(x) ? x : acc;
    default: return x < acc || isnan(x) ? x : acc;
    }
}

static int64_t
fold_int(unsigned reduce, int64_t acc, int64_t x)
{
    switch (reduce) {
    case AIR_REDUCE_SUM: (void)__builtin_add_overflow(acc, x, &acc); break;
    case AIR_REDUCE_PROD: (void)__builtin_mul_overflow(acc, x, &acc); break;
    case AIR_REDUCE_MAX: acc = x > acc ? x : acc; break;
    case AIR_REDUCE_MIN: acc = x < acc ? x : acc; break;
    case AIR_REDUCE_ANY: acc |= x != 0; break;
    default: acc &= x != 0; break;
    }
    return acc;
}

static void
fold(ref_region *r, const air_rg_node *n, ref_value x)
{
    ref_value *acc = &r->scalars[n->buf];
    if (lane_is_float(n->lane))
        acc->f = fold_float(n->reduce, acc->f, x.f);
    else
        acc->i = fold_int(n->reduce, acc->i, x.i);
}

static ref_value
operand(const ref_region *r, int node)
{
    return node < 0 ? (ref_value){.i = 0} : r->values[node];
}

static void
constant(ref_region *r, int i)
{
    const air_rg_node *n = &r->rg->nodes[i];
    if (lane_is_float(n->lane))
        r->values[i].f = n->k;
    else
        r->values[i].i = n->i;
}

static void
node_run(ref_region *r, int i)
{
    const air_rg_node *n = &r->rg->nodes[i];
    const air_rg_node *nodes = r->rg->nodes;
    ref_value a = operand(r, n->a);
    switch (n->op) {
    case AIR_RG_CONST: break;
    case AIR_RG_LOAD: r->values[i] = load(r, n); break;
    case AIR_RG_STORE: store(r, n, a); break;
    case AIR_RG_REDUCE: fold(r, n, a); break;
    case AIR_RG_SCALAR: r->values[i] = r->scalars[n->buf]; break;
    case AIR_RG_SET: r->scalars[n->buf] = a; break;
    case AIR_RG_INDEX: r->values[i].i = r->at[n->buf]; break;
    default:
        if ((n->op == AIR_RG_IDIV || n->op == AIR_RG_IMOD) &&
            operand(r, n->b).i == 0)
            air_raise_division(r->task);
        r->values[i] =
            ref_eval(n->op, (air_lane)n->lane,
                     (air_lane)(n->a < 0 ? n->lane : nodes[n->a].lane), a,
                     operand(r, n->b), operand(r, n->c));
    }
}

/* ---- the walks ----------------------------------------------------------- */

static void
phase_run(ref_region *r, int phase)
{
    const air_rg_phase *p = &r->rg->phases[phase];
    for (int i = p->begin; i < p->end; i++)
        node_run(r, i);
}

static void
reductions_start(ref_region *r, int phase)
{
    const air_rg_phase *p = &r->rg->phases[phase];
    for (int i = p->begin; i < p->end; i++)
        if (r->rg->nodes[i].op == AIR_RG_REDUCE)
            r->scalars[r->rg->nodes[i].buf] = reduce_start(&r->rg->nodes[i]);
}

/* A phase for every index of `axis` (-1: once, at index 0 of the last). */
static void
phase_along(ref_region *r, int phase, int axis)
{
    int64_t n = axis < 0 ? 1 : r->rg->dims[axis];
    for (int64_t i = 0; i < n; i++) {
        if (axis >= 0)
            r->at[axis] = i;
        phase_run(r, phase);
    }
    if (axis >= 0)
        r->at[axis] = 0;
}

/* All phases at one index of the kept axes. */
static void
index_run(ref_region *r)
{
    const air_region *rg = r->rg;
    int axis = rg->walk == AIR_WALK_MAP     ? -1
               : rg->walk == AIR_WALK_INNER ? rg->rank - 1
                                            : rg->rank - 2;
    for (int p = 0; p < rg->nphases; p++) {
        if (rg->phases[p].kind == AIR_PHASE_COLUMN)
            continue;
        bool along = rg->walk == AIR_WALK_INNER
                         ? rg->phases[p].kind == AIR_PHASE_ROW
                         : rg->walk == AIR_WALK_OUTER && p == 0;
        reductions_start(r, p);
        phase_along(r, p, along ? axis : -1);
    }
}

/* Is this axis walked inside of index_run? */
static bool
is_folded(const air_region *rg, int axis)
{
    return (rg->walk == AIR_WALK_INNER && axis == rg->rank - 1) ||
           (rg->walk == AIR_WALK_OUTER && axis == rg->rank - 2);
}

static bool
next_index(ref_region *r)
{
    for (int i = r->rg->rank - 1; i >= 0; i--) {
        if (is_folded(r->rg, i))
            continue;
        if (++r->at[i] < r->rg->dims[i])
            return true;
        r->at[i] = 0;
    }
    return false;
}

/* Rows of SUMS start at zero. */
static void
sums_start(ref_region *r)
{
    for (int b = 0; b < r->rg->nbufs; b++)
        if (r->rg->bufs[b].scratch == AIR_RG_SUMS)
            memset(&r->rows[b * r->cols], 0, (size_t)r->cols * sizeof *r->rows);
}

static void
columns_run(ref_region *r)
{
    const air_region *rg = r->rg;
    int last = rg->nphases - 1;
    memset(r->at, 0, sizeof r->at);
    if (rg->phases[last].kind == AIR_PHASE_COLUMN)
        phase_along(r, last, rg->rank - 1);
}

void
ref_region_run(ref_region *r, const air_task *task)
{
    bool any = true;
    r->slots = task->slots;
    r->task = task;
    memset(r->at, 0, sizeof r->at);
    sums_start(r);
    for (int i = 0; i < r->rg->rank; i++)
        if (r->rg->dims[i] == 0 && !is_folded(r->rg, i))
            any = false;
    for (int i = 0; i < r->rg->nnodes; i++)
        if (r->rg->nodes[i].op == AIR_RG_CONST)
            constant(r, i);
    while (any) {
        index_run(r);
        any = next_index(r);
    }
    columns_run(r);
}
