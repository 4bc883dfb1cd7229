/* attention_heads.c: operands of attention as [batch, heads, rows, width]. */
#include "pass/attention.h"

/* [B, H] in front of an operand's last two sizes. */
air_ref
attention_four(const attention *m, pass_build *b, air_ref r)
{
    air_dim one = b_dim(b, 1);

    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const ir_value *s = ir_val(b->g, m->scores), *v = ir_val(b->g, r);
    const air_dim dims[4] = {s->dims[0], s->rank == 4 ? s->dims[1] : one,
                             v->dims[v->rank - 2], v->dims[v->rank - 1]};
    return b_view(b, r, 4, dims);
}

/* Numbers multiplied into an operand of the product. */
static air_ref
unscaled(attention *m, air_ref r)
{
    air_ref x = r;

    for (air_ref before = AIR_NO_REF; before.id != x.id;) {
        before = x;
        x = attention_strip(m, x);
        air_ref inner = attention_strip_scale(m, x);
        if (inner.id != x.id &&
            ir_val(m->g, inner)->dtype != ir_val(m->g, r)->dtype)
            break;
        x = inner;
    }
    return x;
}

/* Are both stacks of matrices of the same sizes? */
static bool
same_matrices(const ir_graph *g, air_ref x, air_ref y)
{
    const ir_value *p = ir_val(g, x), *q = ir_val(g, y);

    return (p->rank == 3 || p->rank == 4) && q->rank >= 3 &&
           ir_dim_eq(p->dims[p->rank - 1], q->dims[q->rank - 1]) &&
           ir_dim_eq(p->dims[p->rank - 2], q->dims[q->rank - 2]);
}

/* Operand r of a product as [B, H, x, y], or [B, H, y, x] for swapped, without
 * the numbers multiplied into it. */
air_ref
attention_operand(attention *m, pass_build *b, air_ref r, bool swapped)
{
    const double scale = m->scale;
    air_ref x = unscaled(m, r);
    int rank = ir_val(m->g, x)->rank, order[AIR_MAX_RANK];

    if (ir_val(m->g, x)->dtype != ir_val(m->g, r)->dtype ||
        !same_matrices(m->g, x, r)) {
        m->scale = scale; /* a cast or other sizes on the way: as it is */
        x = r;
        rank = ir_val(m->g, x)->rank;
    }
    for (int i = 0; i < rank; i++)
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return attention_four(m, b, swapped ? b_permute(b, x, rank, order) : x);
}

/* The heads before each was repeated: [B, Hkv, S, D], the operand of
 * view(expand(view(x), [B, Hkv, G, S, D])); AIR_NO_REF: not repeated. */
static air_ref
before_repeat(attention *m, pass_build *b, air_ref r)
{
    const ir_node *n = pass_made_by(m->g, attention_strip(m, r), "expand");
    int64_t one;

    if (!n)
        return AIR_NO_REF;
    air_ref x = n->attrs[0].value;
    const ir_value *from = ir_val(m->g, x), *to = ir_val(m->g, n->outs[0]);
    const ir_value *scores = ir_val(m->g, m->scores), *in = ir_val(m->g, r);
    if (from->rank != 5 || to->rank != 5 || scores->rank != 4 ||
        !ir_dim_eq(from->dims[0], scores->dims[0]) ||
        !ir_dim_eq(from->dims[3], in->dims[in->rank - 2]) ||
        !ir_dim_eq(from->dims[4], in->dims[in->rank - 1]) ||
        !ir_dim_is_const(m->g, from->dims[2], &one) || one != 1)
        return AIR_NO_REF;
    for (int i = 0; i < 5; i++)
        if (i != 2 && !ir_dim_eq(from->dims[i], to->dims[i]))
            return AIR_NO_REF;
    const air_dim dims[4] = {from->dims[0], from->dims[1], from->dims[3],
                             from->dims[4]};
    return b_view(b, x, 4, dims);
}

/* Does a permute exchange the last two of four axes? */
static bool
swaps_last(const ir_graph *g, const ir_node *n)
{
    static const int64_t want[4] = {0, 1, 3, 2};
    int64_t axis;

    if (n->attrs[1].count != 4)
        return false;
    for (int i = 0; i < 4; i++)
        if (!ir_dim_is_const(g, n->attrs[1].dims[i], &axis) ||
            (axis + 4) % 4 != want[i])
            return false;
    return true;
}

/* k and v of fewer heads, where both were repeated. */
bool
attention_find_groups(attention *m, pass_build *b, air_ref *out_k,
                      air_ref *out_v)
{
    const double scale = m->scale;
    const ir_node *n = pass_made_by(m->g, unscaled(m, m->kt), "permute");

    if (n && swaps_last(m->g, n)) {
        *out_v = before_repeat(m, b, m->v);
        *out_k = out_v->id == AIR_NO_REF.id
                     ? AIR_NO_REF
                     : before_repeat(m, b, n->attrs[0].value);
        if (out_k->id != AIR_NO_REF.id)
            return true;
    }
    m->scale = scale;
    return false;
}
