/* canon_scatter.c: a sum of zeros that one part each was written to.
 *
 * That is the gradient of a tensor whose parts a[0], a[1], ... are used, as
 * steps of a loop use them: where each is written, they side by side. */
#include "pass/canon.h"

#include <string.h>

/* So many terms at most. A chain of n sums is looked at n times. */
enum { TERMS = 1024 };

typedef struct {
    air_ref src;
    int64_t index;
} part;

typedef struct {
    air_ref out;
    part term[TERMS]; /* from the last one of the sum to the first */
    size_t count;
    int64_t parts; /* along the axis */
    int axis;
} sum_of_parts;

static bool
is_zeros(const ir_graph *g, air_ref r)
{
    const ir_node *made = pass_made_by(g, r, "full");
    return made != NULL && made->attrs[1].kind == AIR_ATTR_FLOAT &&
           made->attrs[1].f == 0.0;
}

/* A term that is neither broadcast nor cast. */
static bool
is_alike(const ir_graph *g, air_ref r, const sum_of_parts *s)
{
    return pass_same_dims(g, r, s->out) &&
           ir_val(g, r)->dtype == ir_val(g, s->out)->dtype;
}

/* (zeros, src, dim, index): all along one axis. */
static bool
add_part(const ir_graph *g, air_ref r, sum_of_parts *s)
{
    const ir_node *made = pass_made_by(g, r, "select_scatter");
    int64_t axis, index, parts;

    if (made == NULL || s->count == TERMS || !is_alike(g, r, s) ||
        !is_zeros(g, made->attrs[0].value) ||
        !pass_int(g, &made->attrs[2], &axis) ||
        !pass_int(g, &made->attrs[3], &index))
        return false;
    axis += axis < 0 ? ir_val(g, r)->rank : 0;
    const air_attr size = at_dim(ir_val(g, r)->dims[axis]);
    if (!pass_int(g, &size, &parts))
        return false;
    index += index < 0 ? parts : 0;
    if (index < 0 || index >= parts || (s->count > 0 && axis != s->axis))
        return false;
    s->axis = (int)axis;
    s->parts = parts;
    s->term[s->count++] = (part){made->attrs[1].value, index};
    return true;
}

static bool
is_plain_sum(const ir_graph *g, const ir_node *sum)
{
    double alpha;

    return sum->attrs[0].kind == AIR_ATTR_VALUE &&
           sum->attrs[1].kind == AIR_ATTR_VALUE &&
           pass_number(g, &sum->attrs[2], &alpha) && alpha == 1.0;
}

/* A sum that has become parts side by side, to which more is added. */
static bool
add_side_by_side(const ir_graph *g, air_ref r, sum_of_parts *s)
{
    const ir_node *all = pass_made_by(g, r, "cat");
    int64_t axis;

    if (all == NULL || !is_alike(g, r, s) ||
        !pass_int(g, &all->attrs[1], &axis) || axis != s->axis ||
        (int64_t)all->attrs[0].count != s->parts ||
        s->count + all->attrs[0].count > TERMS)
        return false;
    for (int64_t i = s->parts; i-- > 0;) {
        const ir_node *made = pass_made_by(g, all->attrs[0].values[i], "view");
        if (made == NULL ||
            !pass_same_dims(g, made->attrs[0].value, s->term[0].src))
            return false;
        s->term[s->count++] = (part){made->attrs[0].value, i};
    }
    return true;
}

/* All terms of a chain of sums, as gradients are added up: of two operands one
 * is a part, the other the rest. */
static bool
add_terms(const ir_graph *g, sum_of_parts *s)
{
    air_ref rest = s->out;

    while (!add_part(g, rest, s)) {
        const ir_node *sum = pass_made_by(g, rest, "add.Tensor");

        if (sum == NULL)
            return s->count > 0 && add_side_by_side(g, rest, s);
        if (!is_plain_sum(g, sum) || !is_alike(g, rest, s))
            return false;
        const bool last = add_part(g, sum->attrs[1].value, s);
        if (!last && !add_part(g, sum->attrs[0].value, s))
            return false;
        rest = sum->attrs[last ? 0 : 1].value;
    }
    return true;
}

static int64_t
count_parts(const sum_of_parts *s)
{
    bool found[TERMS] = {false};
    int64_t count = 0;

    for (size_t i = 0; i < s->count; i++) {
        count += !found[s->term[i].index];
        found[s->term[i].index] = true;
    }
    return count;
}

typedef struct {
    air_ref value;
    bool read;
} reads;

static void
see_operand(void *arg, air_ref *ref)
{
    reads *r = arg;
    r->read |= ref->id == r->value.id;
}

/* Is one more part added to the sum? Of what reads it, the first says so. */
static bool
goes_on(ir_graph *g, uint32_t node, air_ref out)
{
    for (uint32_t id = ir_node_at(g, node)->next; id != IR_NO_NODE;
         id = ir_node_at(g, id)->next) {
        ir_node *n = ir_node_at(g, id);
        reads r = {out, false};

        ir_each_operand(g, n, see_operand, &r);
        if (!r.read)
            continue;
        if (strcmp(ir_info(n)->name, "add.Tensor") != 0 || !is_plain_sum(g, n))
            return false;
        const bool first = n->attrs[0].value.id == out.id;
        return pass_made_by(g, n->attrs[first].value, "select_scatter") != NULL;
    }
    return false;
}

/* Parts are read later then: nothing may have been written there. */
static bool
are_written(const pass_context *ctx, const sum_of_parts *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (pass_is_mutated(ctx, s->term[i].src))
            return true;
    return false;
}

/* All parts, or, where the sum ends, enough that what is nothing is not much
 * more to write than they. */
static bool
pays(ir_graph *g, uint32_t node, air_ref out, const sum_of_parts *s)
{
    const int64_t found = s->parts <= TERMS ? count_parts(s) : 0;

    return s->parts <= TERMS &&
           (found == s->parts ||
            (found >= 4 && 2 * found >= s->parts && !goes_on(g, node, out)));
}

/* The parts by index, each with its axis; those with several terms are added
 * up in the order of the sum, those with none are zeros. */
static void
join_terms(pass_build *b, const sum_of_parts *s, air_ref *by_index)
{
    for (int64_t i = 0; i < s->parts; i++)
        by_index[i] = AIR_NO_REF;
    for (size_t i = s->count; i-- > 0;) {
        air_ref *p = &by_index[s->term[i].index], src = s->term[i].src;
        *p = p->id == AIR_NO_REF.id ? src : b_add(b, *p, src);
    }
    const air_ref like = s->term[0].src;
    air_ref nothing = AIR_NO_REF;
    for (int64_t i = 0; i < s->parts; i++) {
        const bool none = by_index[i].id == AIR_NO_REF.id;
        if (none && nothing.id == AIR_NO_REF.id)
            nothing =
                b_fullf(b, ir_val(b->g, like)->rank, ir_val(b->g, like)->dims,
                        0, (air_dtype)ir_val(b->g, like)->dtype);
        by_index[i] = b_unsqueeze(b, none ? nothing : by_index[i], s->axis);
    }
}

/* ---- every other element ------------------------------------------------- */

/* (zeros, src, dim, start, end, step): every other element of a last axis of
 * even size. */
static bool
read_turn(const ir_graph *g, air_ref r, part *out)
{
    const ir_node *made = pass_made_by(g, r, "slice_scatter");
    const int rank = ir_val(g, r)->rank;
    int64_t step, size, half;
    int axis;

    if (made == NULL || !is_zeros(g, made->attrs[0].value) ||
        ir_axis(g, &made->attrs[2], rank, "dim", &axis) != AIR_OK ||
        axis != rank - 1 || !pass_int(g, &made->attrs[5], &step) || step != 2)
        return false;
    out->src = made->attrs[1].value;
    out->index = 0;
    return (made->attrs[3].kind == AIR_ATTR_NONE ||
            pass_int(g, &made->attrs[3], &out->index)) &&
           (out->index == 0 || out->index == 1) &&
           ir_dim_is_const(g, ir_val(g, r)->dims[axis], &size) &&
           ir_dim_is_const(g, ir_val(g, out->src)->dims[axis], &half) &&
           2 * half == size &&
           ir_val(g, out->src)->dtype == ir_val(g, r)->dtype;
}

/* The sum of both: the gradient of what is read as x[..., ::2] and x[..., 1::2]
 * is these in turns. */
static bool
read_turns(const pass_context *ctx, const ir_node *sum, air_ref *turn)
{
    const ir_graph *g = ctx->g;
    part p[2];

    if (strcmp(ir_info(sum)->name, "add.Tensor") != 0 ||
        !is_plain_sum(g, sum) || ir_val(g, sum->outs[0])->rank == AIR_MAX_RANK)
        return false;
    for (int k = 0; k < 2; k++) {
        const air_ref r = sum->attrs[k].value;
        if (!pass_same_dims(g, r, sum->outs[0]) || !read_turn(g, r, &p[k]) ||
            pass_is_mutated(ctx, p[k].src))
            return false;
        turn[p[k].index] = p[k].src;
    }
    return p[0].index != p[1].index &&
           ir_val(g, turn[0])->dtype == ir_val(g, turn[1])->dtype;
}

static air_status
canon_turns(pass_context *ctx, uint32_t node, bool zero, bool *done)
{
    air_ref turn[2];

    *done = read_turns(ctx, ir_node_at(ctx->g, node), turn) && pass_allow(ctx);
    if (!*done)
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int k = 0; k < 2; k++)
        turn[k] = b_unsqueeze(&b, turn[k], -1);
    air_ref all = B_OP(&b, "cat", at_values(&b, 2, turn), at_int(&b, -1));
    AIR_TRY(b.status);
    const ir_value out = *ir_val(ctx->g, node_out(ctx->g, node, 0));
    all = b_view(&b, all, out.rank, out.dims);
    return build_forward(&b, node, 0, zero ? b_addf(&b, all, 0.0) : all);
}

/* -0.0 + 0.0 is 0.0, which counts in exact mode. */
air_status
canon_sum_of_parts(pass_context *ctx, uint32_t node, bool *done)
{
    const air_ref out = node_out(ctx->g, node, 0);
    const air_dtype dtype = (air_dtype)ir_val(ctx->g, out)->dtype;
    const bool zero = pass_exact(ctx) && ir_is_float(dtype);
    air_ref by_index[TERMS];
    sum_of_parts s;

    AIR_TRY(canon_turns(ctx, node, zero, done));
    if (*done)
        return AIR_OK;
    s.out = out;
    s.count = 0;
    *done = add_terms(ctx->g, &s) && pays(ctx->g, node, out, &s) &&
            !are_written(ctx, &s) && pass_allow(ctx);
    if (!*done)
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    join_terms(&b, &s, by_index);
    AIR_TRY(b.status);
    air_ref all = B_OP(&b, "cat", at_values(&b, (size_t)s.parts, by_index),
                       at_int(&b, s.axis));
    return build_forward(&b, node, 0, zero ? b_addf(&b, all, 0.0) : all);
}
