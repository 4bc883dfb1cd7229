/* group_region.c: one group becomes one region.
 *
 * Members are FULL (a value per point of the space) or rows (a value per row
 * of a reduction). A member's level is the number of reductions that must be
 * done before it. For each level the region has a scalar phase (row values of
 * that level) and a row phase (stores and reductions of that level). A full
 * value that later phases need again is recomputed, or kept in a row of
 * scratch where that is dear. */
#include <assert.h>
#include <string.h>

#include "lower/build.h"

/* Nodes of work after which reading a row of scratch is cheaper. */
#define KEEP_COST 8

/* Rows that are only summed: elements at most, rows at least. */
#define PLAIN_ROW  1024
#define PLAIN_ROWS 16

static int
node_cost(const air_rg_node *n)
{
    switch (n->op) {
    case AIR_RG_CONST: return 0;
    case AIR_RG_DIV:
    case AIR_RG_SQRT: return 5;
#define PRIM(id, ...)
#define COMP(id, ...) case AIR_RG_##id:
#define FUNC(id, ...) case AIR_RG_##id:
#include "air_prims.def"
#undef PRIM
#undef COMP
#undef FUNC
        return 15;
    default: return 1;
    }
}

/* Work of one op's body per element, loads of its operands included. */
static int
body_cost(const lower_build *b, const ir_node *n)
{
    air_lane lane = ir_lane_of(ir_compute_dtype(b->env->g, n));
    air_rg_node nodes[AIR_RG_MAX_NODES];
    ir_record rec = {.nodes = nodes};
    int cost = 0;

    ir_record_node(&rec, n, lane);
    for (int i = n->nattrs; i < rec.count; i++)
        cost += node_cost(&nodes[i]);
    return cost;
}

/* ---- members ---- */

static int
operand_level(const lower_build *b, const ir_node *n)
{
    int level = 0;

    for (int i = 0; i < n->nattrs; i++) {
        if (n->attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        int32_t m = b->member_of[n->attrs[i].value.id];
        if (m >= 0 && b->members[m].level > level)
            level = b->members[m].level;
    }
    return level;
}

/* What node n, of this level, reads is needed until then. Gives what
 * computing its full operands again would cost. */
static int
mark_reads(lower_build *b, const ir_node *n, int level)
{
    int cost = 0;

    for (int i = 0; i < n->nattrs; i++) {
        if (n->attrs[i].kind != AIR_ATTR_VALUE)
            continue;
        int32_t m = b->member_of[n->attrs[i].value.id];
        cost++;
        if (m < 0)
            continue;
        if (b->members[m].last < level)
            b->members[m].last = level;
        if (b->members[m].kind == GROUP_FULL)
            cost += b->members[m].cost;
    }
    return cost;
}

/* Rows are written in place after everything that may read what was there: in
 * the last phase. (What full values replace no phase but theirs reads.) */
static void
delay_writes(lower_build *b)
{
    int top = 0;

    for (size_t i = 0; i < b->nmembers; i++)
        top = b->members[i].level > top ? b->members[i].level : top;
    for (size_t i = 0; i < b->nmembers; i++)
        if (b->members[i].inplace && b->members[i].kind != GROUP_FULL)
            b->members[i].level = top;
}

static air_status
add_members(lower_build *b)
{
    const ir_graph *g = b->env->g;
    base_arena *scratch = b->env->scratch;

    AIR_TRY(BASE_ARENA_ARRAY(scratch, b->nnodes, &b->members));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count, &b->member_of));
    memset(b->member_of, 0xff, g->values.count * sizeof *b->member_of);
    for (size_t i = 0; i < b->nnodes; i++) {
        const ir_node *n = ir_node_at(g, b->nodes[i]);
        bool reduce = ir_info(n)->cls == IR_CLASS_REDUCE;
        lower_member m = {
            .ref = n->outs[0], .slot = -1, .scratch = -1, .node = -1};
        m.inplace = n->inplace;
        m.kind = group_is_column(g, &b->domain, n)
                     ? GROUP_COLUMN
                     : group_kind_of(g, &b->domain, n->outs[0]);
        m.level = operand_level(b, n);
        if (!reduce)
            m.cost = body_cost(b, n);
        m.cost += mark_reads(b, n, m.level);
        if (reduce && m.kind != GROUP_COLUMN)
            m.level++;
        m.last = m.level;
        assert(m.kind != GROUP_OTHER);
        b->member_of[n->outs[0].id] = (int32_t)b->nmembers;
        b->members[b->nmembers++] = m;
    }
    delay_writes(b);
    return AIR_OK;
}

static air_status
find_domain(lower_build *b)
{
    const ir_graph *g = b->env->g;

    AIR_REQUIRE(group_domain_of(g, ir_node_at(g, b->nodes[0]), &b->domain),
                AIR_ERROR_STATE, "a group starts with a node no loop computes");
    for (size_t i = 1; i < b->nnodes; i++) {
        group_domain other, joined;
        const ir_node *n = ir_node_at(g, b->nodes[i]);
        if (group_domain_of(g, n, &other) &&
            group_domain_join(g, &b->domain, &other, &joined))
            b->domain = joined;
    }
    for (int i = 0; i < b->domain.rank; i++)
        b->sizes[i] = b->env->dims[b->domain.dims[i].id];
    return AIR_OK;
}

/* ---- phases ---- */

void
lower_begin_phase(lower_build *b)
{
    b->rec.nodes += b->rec.count;
    b->rec.count = 0;
    for (size_t i = 0; i < b->nmembers; i++)
        b->members[i].node = -1;
    for (int i = 0; i < b->nbufs; i++)
        b->buf_node[i] = -1;
}

/* What no effect needs: operands that a body does not read. */
static void
drop_dead(ir_record *rec)
{
    int16_t place[AIR_RG_MAX_NODES] = {0};
    int count = 0;

    for (int i = rec->count; i-- > 0;) {
        const air_rg_node *n = &rec->nodes[i];
        const int16_t operands[3] = {n->a, n->b, n->c};
        bool effect = n->op == AIR_RG_STORE || n->op == AIR_RG_REDUCE ||
                      n->op == AIR_RG_SET;
        for (int k = 0; k < 3 && (effect || place[i]); k++)
            if (operands[k] >= 0)
                place[operands[k]] = 1;
        place[i] |= effect;
    }
    for (int i = 0; i < rec->count; i++) {
        air_rg_node n = rec->nodes[i];
        if (!place[i])
            continue;
        n.a = (int16_t)(n.a < 0 ? -1 : place[n.a]);
        n.b = (int16_t)(n.b < 0 ? -1 : place[n.b]);
        n.c = (int16_t)(n.c < 0 ? -1 : place[n.c]);
        place[i] = (int16_t)count;
        rec->nodes[count++] = n;
    }
    rec->count = count;
}

air_status
lower_end_phase(lower_build *b, air_phase_kind kind, int begin)
{
    drop_dead(&b->rec);
    if (b->rec.count == 0)
        return AIR_OK;
    AIR_REQUIRE(b->nphases < AIR_RG_MAX_PHASES &&
                    begin + b->rec.count <= AIR_RG_MAX_NODES,
                AIR_ERROR_UNSUPPORTED, "a fused region is too large");
    for (int i = 0; i < b->rec.count; i++) {
        air_rg_node *n = &b->rec.nodes[i];
        n->a = (int16_t)(n->a < 0 ? -1 : n->a + begin);
        n->b = (int16_t)(n->b < 0 ? -1 : n->b + begin);
        n->c = (int16_t)(n->c < 0 ? -1 : n->c + begin);
    }
    b->phases[b->nphases++] =
        (air_rg_phase){.kind = (uint8_t)kind,
                       .begin = (int16_t)begin,
                       .end = (int16_t)(begin + b->rec.count)};
    return AIR_OK;
}

static air_status
set_scalar(lower_build *b, lower_member *m, int node)
{
    air_rg_node set = {.op = AIR_RG_SET, .a = (int16_t)node, .b = -1, .c = -1};
    int unused;

    AIR_REQUIRE(b->nscalars < AIR_RG_MAX_SCALARS, AIR_ERROR_UNSUPPORTED,
                "a fused region has more than %d row scalars",
                AIR_RG_MAX_SCALARS);
    m->slot = b->nscalars++;
    set.lane = (uint8_t)ir_lane_of((air_dtype)ir_val(b->env->g, m->ref)->dtype);
    set.buf = (int16_t)m->slot;
    return lower_put(b, set, &unused);
}

/* All values first: one may be made of what another replaces. */
static air_status
store_inplace(lower_build *b, int level, bool full)
{
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < b->nmembers; i++) {
            lower_member *m = &b->members[i];
            int node;
            if (!m->inplace || m->level != level ||
                (m->kind == GROUP_FULL) != full)
                continue;
            AIR_TRY(lower_member_node(b, m, !full, &node));
            if (round == 1)
                AIR_TRY(lower_store(b, m, node));
        }
    return AIR_OK;
}

/* Row values of one level: computed once per row, stored when wanted outside,
 * kept as scalars for the row phases. The OUTER walk has no phase before its
 * reductions: what is stored then waits for the one after them. */
static air_status
scalar_phase(lower_build *b, int level, int begin)
{
    const bool outer = b->walk == AIR_WALK_OUTER;

    lower_begin_phase(b);
    for (size_t i = 0; i < b->nmembers && (!outer || level > 0); i++) {
        lower_member *m = &b->members[i];
        int node;
        if (m->kind == GROUP_FULL || m->kind == GROUP_COLUMN || m->inplace ||
            (outer ? m->level > level : m->level != level))
            continue;
        bool reduced = m->slot >= 0;
        if ((reduced || outer) && !b->env->stored[m->ref.id])
            continue;
        AIR_TRY(lower_member_node(b, m, true, &node));
        if (b->env->stored[m->ref.id])
            AIR_TRY(lower_store(b, m, node));
        if (!reduced && b->walk == AIR_WALK_INNER)
            AIR_TRY(set_scalar(b, m, node));
    }
    AIR_TRY(store_inplace(b, level, false));
    return lower_end_phase(b, outer ? AIR_PHASE_ROW : AIR_PHASE_SCALAR, begin);
}

/* Keeps a full value in a row of scratch for the phases after this one. */
static air_status
keep_in_scratch(lower_build *b, lower_member *m, int node)
{
    air_dtype dtype = (air_dtype)ir_val(b->env->g, m->ref)->dtype;
    air_lane lane = ir_lane_of(dtype);
    air_rg_node store = {.op = AIR_RG_STORE,
                         .lane = (uint8_t)lane,
                         .a = (int16_t)node,
                         .b = -1,
                         .c = -1};
    int unused;

    if (b->env->stored[m->ref.id] && dtype == AIR_F32) {
        m->scratch = m->stored; /* read the result back */
        return AIR_OK;
    }
    m->scratch = lower_scratch(b, m, AIR_RG_ROW);
    store.buf = (int16_t)m->scratch;
    return m->scratch < 0 ? AIR_OK /* recomputed instead */
                          : lower_put(b, store, &unused);
}

static air_status
row_phase(lower_build *b, int level, int begin)
{
    const ir_graph *g = b->env->g;

    lower_begin_phase(b);
    for (size_t i = 0; i < b->nmembers; i++) {
        lower_member *m = &b->members[i];
        const ir_node *n = ir_node_at(g, b->nodes[i]);
        int node;
        if (m->kind == GROUP_COLUMN) {
            if (m->level == level)
                AIR_TRY(lower_sum(b, n, m));
            continue;
        }
        if (ir_info(n)->cls == IR_CLASS_REDUCE) {
            if (m->level == level + 1)
                AIR_TRY(lower_reduce(b, n, m));
            continue;
        }
        if (m->kind != GROUP_FULL || m->inplace || m->level != level)
            continue;
        if (b->env->stored[m->ref.id]) {
            AIR_TRY(lower_member_node(b, m, false, &node));
            AIR_TRY(lower_store(b, m, node));
        }
        if (m->last > level && m->cost >= KEEP_COST &&
            b->walk == AIR_WALK_INNER) {
            AIR_TRY(lower_member_node(b, m, false, &node));
            AIR_TRY(keep_in_scratch(b, m, node));
        }
    }
    AIR_TRY(store_inplace(b, level, true));
    return lower_end_phase(b, AIR_PHASE_ROW, begin);
}

static air_status
add_phases(lower_build *b)
{
    int top = 0, begin = 0;

    for (size_t i = 0; i < b->nmembers; i++)
        top = b->members[i].level > top ? b->members[i].level : top;
    AIR_REQUIRE(b->walk != AIR_WALK_OUTER || top <= 1, AIR_ERROR_UNSUPPORTED,
                "a group folds outer axes twice");
    for (int level = 0; level <= top; level++) {
        if (b->walk != AIR_WALK_MAP) {
            AIR_TRY(scalar_phase(b, level, begin));
            begin += b->rec.count;
        }
        AIR_TRY(row_phase(b, level, begin));
        begin += b->rec.count;
    }
    return lower_column_phase(b, begin);
}

/* ---- the region ---- */

static void
axis_roles(const lower_build *b, lower_role *roles)
{
    for (int i = 0; i < b->domain.rank; i++)
        roles[i] = b->domain.reduced[i] ? LOWER_REDUCED : LOWER_OUTER;
    if (b->walk == AIR_WALK_OUTER && b->vector >= 0)
        roles[b->vector] = LOWER_VECTOR;
}

static bool
names_buffer(const air_rg_node *n)
{
    return n->op == AIR_RG_LOAD || n->op == AIR_RG_STORE;
}

/* Buffers of loads that were dropped go too. */
static void
drop_buffers(lower_build *b, air_rg_node *nodes, int count)
{
    int16_t place[AIR_RG_MAX_BUFS] = {0};
    int kept = 0;

    for (int i = 0; i < count; i++)
        if (names_buffer(&nodes[i]))
            place[nodes[i].buf] = 1;
    for (int i = 0; i < b->nbufs; i++) {
        if (!place[i])
            continue;
        place[i] = (int16_t)kept;
        b->bufs[kept] = b->bufs[i];
        b->buf_value[kept++] = b->buf_value[i];
    }
    b->nbufs = kept;
    for (int i = 0; i < count; i++)
        if (names_buffer(&nodes[i]))
            nodes[i].buf = place[nodes[i].buf];
}

static bool
uses_index(const ir_record *rec)
{
    for (int i = 0; i < rec->count; i++)
        if (rec->nodes[i].op == AIR_RG_INDEX)
            return true;
    return false;
}

/* Rows of which but sums are wanted, whose order is that of one row. */
static bool
has_but_sums(const lower_build *b, const air_rg_node *nodes)
{
    for (int i = 0; i < b->phases[0].end; i++)
        if (nodes[i].op == AIR_RG_REDUCE && nodes[i].reduce != AIR_REDUCE_SUM)
            return false;
    return b->nphases == 2;
}

/* Rows that are walked many at a time. Dense ones take less time one by one
 * from 32 elements on, if they are but summed from 12 on; those of narrow
 * dtypes, which are converted, from 64 on. */
static bool
has_short_rows(const lower_build *b, const air_rg_node *nodes, int rank,
               const int64_t *dims)
{
    int64_t most = has_but_sums(b, nodes) ? 11 : 31, rows = 1;

    for (int i = 0; i < rank - 1; i++)
        rows *= dims[i];
    if (rank < 2 || !lower_is_short(dims[rank - 1], rows))
        return false;
    for (int i = 0; i < b->nbufs; i++) {
        const air_rg_buf *buf = &b->bufs[i];
        const int64_t stride = buf->strides[rank - 1];
        if (!buf->scratch && stride != 0 && stride != 1)
            return true;
        if (!buf->scratch && buf->dtype != AIR_F32 &&
            air_dtype_bytes((air_dtype)buf->dtype) < 8)
            most = 63;
    }
    return dims[rank - 1] <= most;
}

enum {
    SPREAD_ROW = 16,
    SPREAD_PAIRS = 128,
    SPREAD_WALKED = 3,
    SPREAD_ROWS = 16,
    VECTOR = 64 /* bytes of AVX-512's; those of AVX2 have half of them */
};

/* Is the other part of a pair there, too? */
static bool
has_mate(const lower_build *b, int rank, const air_rg_buf *one)
{
    const int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)one->dtype);

    for (int i = 0; i < b->nbufs; i++) {
        const air_rg_buf *other = &b->bufs[i];
        const int64_t apart = other->offset - one->offset;
        if (other->slot == one->slot && other->dtype == one->dtype &&
            (apart == bytes || apart == -bytes) &&
            memcmp(other->strides, one->strides,
                   (size_t)rank * sizeof *one->strides) == 0)
            return true;
    }
    return false;
}

static bool
is_stored(const air_rg_node *nodes, int count, int buf)
{
    for (int i = 0; i < count; i++)
        if (nodes[i].op == AIR_RG_STORE && nodes[i].buf == buf)
            return true;
    return false;
}

/* Up to which length rows are spread: longer where parts of pairs are taken
 * apart anyway before code runs, shorter where code walks them as they lie. */
static int64_t
most_spread(const lower_build *b, const air_rg_node *nodes, int count, int rank)
{
    bool pairs = false, walked = b->env->pairs;

    for (int i = 0; i < b->nbufs; i++) {
        const air_rg_buf *buf = &b->bufs[i];
        if (buf->scratch || buf->strides[rank - 1] != 2)
            continue;
        pairs = true;
        walked = walked && (buf->dtype == AIR_F32 || buf->dtype == AIR_BF16) &&
                 (has_mate(b, rank, buf) ||
                  (buf->dtype == AIR_F32 && !is_stored(nodes, count, i)));
    }
    if (!pairs)
        return SPREAD_ROW;
    return walked ? SPREAD_WALKED : b->env->pairs ? SPREAD_ROW : SPREAD_PAIRS;
}

/* Rows of whole vectors: code takes each where it lies, in less time than to
 * copy what does not lie dense; what has gaps is copied anyway. */
static bool
fills_vectors(const lower_build *b, int rank, int64_t cols)
{
    int64_t width = 0;

    for (int i = 0; i < b->nbufs; i++) {
        const int64_t size =
            (int64_t)air_dtype_bytes((air_dtype)b->bufs[i].dtype);
        if (!b->bufs[i].scratch && b->bufs[i].strides[rank - 1] > 1)
            return false;
        width = size > width ? size : width;
    }
    return width * cols >= VECTOR && width * cols % (VECTOR / 2) == 0;
}

/* Rows of a few elements that no buffer's strides let be one. What only moves
 * elements is not for code. */
static bool
is_spread(const lower_build *b, const air_rg_node *nodes, int count, int rank,
          const int64_t *dims)
{
    int64_t rows = 1;

    for (int i = 0; i < rank - 1; i++)
        rows *= dims[i];
    return b->walk == AIR_WALK_MAP && rank > 1 && count > 2 &&
           dims[rank - 1] <= most_spread(b, nodes, count, rank) &&
           !fills_vectors(b, rank, dims[rank - 1]) && rows >= SPREAD_ROWS;
}

static bool
has_sums(const lower_build *b)
{
    for (int i = 0; i < b->nbufs; i++)
        if (b->bufs[i].scratch == AIR_RG_SUMS)
            return true;
    return false;
}

/* Folded by what keeps partial results in registers: as wide in memory as the
 * lane, or integers, whose order is free. */
static bool
is_plain(const air_rg_buf *buf, const air_rg_node *fold)
{
    static const uint8_t lane_of[AIR_DTYPE_COUNT] = {
        [AIR_F32] = AIR_LANE_F32 + 1,
        [AIR_F64] = AIR_LANE_F64 + 1,
        [AIR_I64] = AIR_LANE_I64 + 1};
    bool sum = fold->reduce == AIR_REDUCE_SUM;
    bool product =
        fold->reduce == AIR_REDUCE_PROD && fold->lane != AIR_LANE_I64;
    bool narrow = buf->dtype == AIR_I8 || buf->dtype == AIR_U8 ||
                  buf->dtype == AIR_I16 || buf->dtype == AIR_I32;
    if (narrow && fold->lane == AIR_LANE_I64)
        return sum || fold->reduce == AIR_REDUCE_MAX ||
               fold->reduce == AIR_REDUCE_MIN;
    return (sum || product) && lane_of[buf->dtype] == fold->lane + 1;
}

/* Many rows of which such a fold is all that is wanted: what is done with
 * it is done for many at a time. */
static bool
has_plain_sums(const lower_build *b, const air_rg_node *nodes, int rank,
               const int64_t *dims)
{
    const air_rg_node *load = nodes, *fold = nodes + 1;

    return rank > 1 && dims[rank - 1] <= PLAIN_ROW &&
           dims[rank - 2] >= PLAIN_ROWS && b->nphases == 2 &&
           b->phases[0].end == 2 && b->phases[1].kind == AIR_PHASE_SCALAR &&
           load->op == AIR_RG_LOAD && fold->op == AIR_RG_REDUCE &&
           is_plain(&b->bufs[load->buf], fold) &&
           b->bufs[load->buf].strides[rank - 1] == 1;
}

/* The buffer of the first store. A region without one would do nothing. */
static int
first_stored(const air_rg_node *nodes, int count)
{
    int at = 0;

    while (at < count - 1 && nodes[at].op != AIR_RG_STORE)
        at++;
    return nodes[at].op == AIR_RG_STORE ? nodes[at].buf : 0;
}

/* Is all that the region leaves rounded to bf16? */
static bool
leaves_bf16(const lower_build *b, const air_rg_node *nodes, int count)
{
    for (int i = 0; i < count; i++)
        if (nodes[i].op == AIR_RG_REDUCE ||
            (nodes[i].op == AIR_RG_STORE &&
             b->bufs[nodes[i].buf].dtype != AIR_BF16))
            return false;
    return true;
}

/* Fewer steps for what has 8 bits in the end. */
static void
shorten(const lower_build *b, air_rg_node *nodes, int count)
{
    const bool some = !b->env->exact && leaves_bf16(b, nodes, count);

    for (int i = 0; some && i < count; i++)
        if (nodes[i].op == AIR_RG_NDTR && nodes[i].lane == AIR_LANE_F32)
            nodes[i].op = AIR_RG_NDTRH;
}

/* ---- operands that are read again and again ---- */

/* The domain axis that vectors will run along, -1: none. */
static int
vector_axis(const lower_build *b, const air_rg_buf *stored)
{
    int axis = b->domain.rank - 1;

    if (b->walk == AIR_WALK_OUTER)
        return b->vector;
    while (axis >= 0 && (b->sizes[axis] == 1 || (b->walk == AIR_WALK_MAP &&
                                                 stored->strides[axis] != 1)))
        axis--;
    return axis;
}

/* The axis of the value that is domain axis `axis`, -1: none. Only values whose
 * axes are the last ones of the domain. */
static int
own_axis(const lower_build *b, const air_rg_buf *buf, const ir_layout *l,
         int axis)
{
    const int lead = b->domain.rank - l->rank;

    for (int i = l->rank - 1; i >= 0; i--)
        if (l->dims[i] != 1 &&
            (lead + i < 0 || buf->strides[lead + i] != l->strides[i]))
            return -1;
    return axis < lead || l->dims[axis - lead] == 1 ? -1 : axis - lead;
}

/* Are elements of buffer i, which vectors have to gather, read so often that
 * a dense copy of them costs less? Lanes of a GPU find them in a cache. */
static bool
is_read_again(const lower_build *b, int i, int axis)
{
    const air_rg_buf *buf = &b->bufs[i];
    int64_t all = 1, own = 1;

    for (int k = 0; k < b->domain.rank; k++) {
        all *= b->sizes[k];
        own *= buf->strides[k] != 0 ? b->sizes[k] : 1;
    }
    return buf->strides[axis] != 0 && buf->strides[axis] != 1 &&
           all >= LOWER_READ_ELEMENTS && all >= LOWER_READ_AGAIN * own;
}

static lower_wish
find_read_again(const lower_build *b, const air_rg_node *nodes, int count)
{
    const int axis = vector_axis(b, &b->bufs[first_stored(nodes, count)]);
    lower_wish w = {.ref = AIR_NO_REF, .last = -1};

    for (int i = 0; !b->env->columns && axis >= 0 && i < b->nbufs; i++) {
        const air_ref ref = b->buf_value[i];
        if (b->bufs[i].scratch || is_stored(nodes, count, i) ||
            !is_read_again(b, i, axis))
            continue;
        w.last = own_axis(b, &b->bufs[i], &b->env->places[ref.id].layout, axis);
        w.ref = w.last < 0 ? AIR_NO_REF : ref;
        if (w.last >= 0)
            break;
    }
    return w;
}

static air_status
finish(lower_build *b, const air_rg_node *nodes, int count, bool keep,
       lower_region *out_region, lower_wish *out_dense)
{
    base_arena *arena = b->env->arena;
    lower_role roles[AIR_MAX_RANK];
    air_region *r;
    void *copy;
    int rank, bad;

    *out_dense = find_read_again(b, nodes, count);
    if (out_dense->ref.id != AIR_NO_REF.id)
        return AIR_OK;
    axis_roles(b, roles);
    if (b->walk == AIR_WALK_MAP && !keep)
        lower_sort_axes(b->domain.rank, b->sizes, b->nbufs, b->bufs,
                        first_stored(nodes, count));
    AIR_TRY(base_arena_new(arena, sizeof *r, (void **)&r));
    if (!lower_axes(b->domain.rank, roles, b->sizes, keep, b->nbufs, b->bufs,
                    &rank, r->dims, &bad)) {
        out_dense->ref = b->buf_value[bad];
        return AIR_OK;
    }
    for (int i = 0; i < b->nbufs; i++)
        if (b->bufs[i].scratch) /* a row: along the vector axis */
            b->bufs[i].strides[rank - 1] = 1;
    r->walk = (uint8_t)b->walk;
    r->rank = (uint8_t)rank;
    r->across = !keep && b->walk == AIR_WALK_INNER && !has_sums(b) &&
                (has_short_rows(b, nodes, rank, r->dims) ||
                 has_plain_sums(b, nodes, rank, r->dims));
    r->spread = !keep && is_spread(b, nodes, count, rank, r->dims);
    r->nnodes = (int16_t)count;
    r->nbufs = (int16_t)b->nbufs;
    r->nscalars = (int16_t)b->nscalars;
    r->nphases = (int16_t)b->nphases;
    AIR_TRY(
        base_arena_copy(arena, nodes, (size_t)count * sizeof *nodes, &copy));
    r->nodes = copy;
    AIR_TRY(base_arena_copy(arena, b->bufs, (size_t)b->nbufs * sizeof *b->bufs,
                            &copy));
    r->bufs = out_region->bufs = copy;
    AIR_TRY(base_arena_copy(arena, b->phases,
                            (size_t)b->nphases * sizeof *b->phases, &copy));
    r->phases = copy;
    out_region->region = r;
    return AIR_OK;
}

air_status
lower_group(const lower_env *env, const uint32_t *nodes, size_t count,
            lower_region *out_region, lower_wish *out_dense)
{
    lower_build *b;
    air_rg_node *all;
    int total = 0;

    *out_region = (lower_region){0};
    *out_dense = (lower_wish){.ref = AIR_NO_REF, .last = -1};
    AIR_TRY(base_arena_new(env->scratch, sizeof *b, (void **)&b));
    AIR_TRY(BASE_ARENA_ARRAY(env->scratch, 2 * AIR_RG_MAX_NODES, &all));
    b->env = env;
    b->nodes = nodes;
    b->nnodes = count;
    b->rec = (ir_record){.nodes = all, .lane = AIR_LANE_F32};
    AIR_TRY(find_domain(b));
    AIR_TRY(add_members(b));
    lower_choose_walk(b, &out_dense->ref);
    if (out_dense->ref.id != AIR_NO_REF.id)
        return AIR_OK;
    AIR_TRY(add_phases(b));
    if (b->nphases > 0)
        total = b->phases[b->nphases - 1].end;
    b->rec.nodes = all;
    b->rec.count = total;
    drop_buffers(b, all, total);
    shorten(b, all, total);
    return finish(b, all, total, uses_index(&b->rec), out_region, out_dense);
}
