/* walk.c: how a group with reductions goes through memory.
 *
 * The walk is INNER where the last axis is reduced and OUTER where it is kept,
 * unless the operands lie the other way round: folding along an axis whose
 * elements are far apart fetches a line of cache for each of them. */
#include "lower/build.h"

enum {
    SHORT_ROW = 64, /* elements */
    MANY_ROWS = 16,
    FEW_COLUMNS = 16, /* too few for vectors along them */
    TURNED_ROW = 256
};

/* What the operands of full size ask for, in bytes of an element. */
typedef struct {
    int inner, outer;
    int vector;      /* axis along which the first of `outer` is dense */
    air_ref against; /* that operand */
    int64_t apart;   /* elements that vectors of columns would gather */
} votes;

bool
lower_is_short(int64_t row, int64_t rows)
{
    return row <= SHORT_ROW && rows >= MANY_ROWS;
}

/* The axis along which a value of full size is dense; -1: none, or it is
 * broadcast. */
static int
dense_axis(const lower_build *b, air_ref ref)
{
    int64_t strides[AIR_MAX_RANK];
    int at = -1;

    lower_spread(b, ref, GROUP_FULL, strides);
    for (int i = 0; i < b->domain.rank; i++) {
        if (b->sizes[i] == 1)
            continue;
        if (strides[i] == 0)
            return -1;
        if (strides[i] == 1)
            at = i;
    }
    return at;
}

/* The elements of a value that lie apart along the last axis that is kept. */
static int64_t
count_apart(const lower_build *b, air_ref ref)
{
    const ir_layout *l = &b->env->places[ref.id].layout;
    int64_t strides[AIR_MAX_RANK], n = 1;

    lower_spread(b, ref, GROUP_FULL, strides);
    for (int i = 0; i < l->rank; i++)
        n *= l->dims[i];
    return b->vector < 0 || strides[b->vector] == 0 || strides[b->vector] == 1
               ? 0
               : n;
}

static void
vote(const lower_build *b, air_ref ref, votes *v)
{
    air_dtype dtype = (air_dtype)ir_val(b->env->g, ref)->dtype;
    int axis = dense_axis(b, ref), bytes = (int)air_dtype_bytes(dtype);

    v->apart += count_apart(b, ref);
    if (axis < 0)
        return;
    if (b->domain.reduced[axis]) {
        v->inner += bytes;
        return;
    }
    if (v->outer == 0) {
        v->vector = axis;
        v->against = ref;
    }
    v->outer += bytes;
}

static votes
count_votes(const lower_build *b)
{
    const ir_graph *g = b->env->g;
    votes v = {.vector = -1, .against = AIR_NO_REF};

    for (size_t i = 0; i < b->nnodes; i++) {
        const ir_node *n = ir_node_at(g, b->nodes[i]);
        const lower_member *m = &b->members[i];
        if (m->kind == GROUP_FULL && b->env->stored[m->ref.id])
            vote(b, m->ref, &v);
        if (ir_info(n)->cls != IR_CLASS_REDUCE && lower_is_squeezed(b, n))
            continue;
        for (int k = 0; k < n->nattrs; k++) {
            const air_attr *a = &n->attrs[k];
            if (a->kind == AIR_ATTR_VALUE && b->member_of[a->value.id] < 0 &&
                !lower_is_constant(b, a->value))
                vote(b, a->value, &v);
        }
    }
    return v;
}

/* The walk by the order of the axes alone. */
static void
usual_walk(lower_build *b)
{
    int last = b->domain.rank - 1;

    b->vector = -1;
    b->walk = AIR_WALK_MAP;
    if (b->domain.nreduced == 0)
        return;
    while (last > 0 && b->sizes[last] == 1 && !b->domain.reduced[last])
        last--;
    b->walk = b->domain.reduced[last] ? AIR_WALK_INNER : AIR_WALK_OUTER;
    for (int i = 0; i < b->domain.rank; i++)
        if (!b->domain.reduced[i] && b->sizes[i] != 1)
            b->vector = i;
}

static void
count_rows(const lower_build *b, int64_t *row, int64_t *rows)
{
    *row = *rows = 1;
    for (int i = 0; i < b->domain.rank; i++)
        *(b->domain.reduced[i] ? row : rows) *= b->sizes[i];
}

/* No element reads a fold's result (the elements are gone by then), so that
 * there is one level of folds; and no sums over rows, which want rows. */
static bool
can_turn(const lower_build *b)
{
    for (size_t i = 0; i < b->nmembers; i++) {
        const lower_member *m = &b->members[i];
        if (m->kind == GROUP_COLUMN || (m->level > 0 && m->kind == GROUP_FULL))
            return false;
    }
    return true;
}

static bool
is_operand(const lower_build *b, air_ref ref)
{
    return ref.id != AIR_NO_REF.id && b->member_of[ref.id] < 0;
}

/* What follows the last reduced axis is too little for vectors along it. */
static bool
has_few_columns(const lower_build *b)
{
    int64_t columns = 1;

    for (int i = b->domain.rank - 1; i >= 0; i--) {
        if (b->domain.reduced[i] && b->sizes[i] != 1)
            return columns < FEW_COLUMNS;
        columns *= b->sizes[i];
    }
    return false;
}

/* Rows of some elements, made of operands that are much smaller (distances of
 * all points of two sets): these can be copied to lie as columns want them,
 * whose folds need no last steps within a vector. */
static bool
is_made_of_little(const lower_build *b, const votes *v, int64_t row,
                  int64_t rows)
{
    return v->inner == 0 && v->outer == 0 && b->vector >= 0 &&
           b->sizes[b->vector] >= FEW_COLUMNS && row <= TURNED_ROW &&
           row * rows >= LOWER_READ_ELEMENTS &&
           row * rows / LOWER_READ_AGAIN >= v->apart && !b->env->columns &&
           can_turn(b);
}

void
lower_choose_walk(lower_build *b, air_ref *out_dense)
{
    int64_t row, rows;
    votes v;

    usual_walk(b);
    if (b->walk == AIR_WALK_MAP)
        return;
    count_rows(b, &row, &rows);
    v = count_votes(b);
    if (b->walk == AIR_WALK_OUTER) {
        if (row > SHORT_ROW
                ? v.inner > v.outer
                : rows >= MANY_ROWS && !b->env->columns && has_few_columns(b))
            b->walk = AIR_WALK_INNER;
        return;
    }
    if (is_made_of_little(b, &v, row, rows))
        b->walk = AIR_WALK_OUTER;
    if (v.outer == 0 || b->sizes[v.vector] < FEW_COLUMNS)
        return;
    if (v.outer > v.inner && can_turn(b)) {
        b->walk = AIR_WALK_OUTER;
        b->vector = v.vector;
    } else if (is_operand(b, v.against) && !lower_is_short(row, rows)) {
        *out_dense = v.against;
    }
}
