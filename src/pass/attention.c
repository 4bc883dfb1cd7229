/* attention.c: pass attention: softmax(scale * q k^T + mask) v, as SDPA is
 * decomposed or as models write it, becomes one kernel. What it reads:
 *
 *   %s = bmm(q, kt)          kt: k with its last two axes exchanged
 *   [mul, div by a number]   on q, kt or %s
 *   [add a mask | where(mask, %s, low) | masked_fill(%s, mask, low)] ..
 *   %p = _softmax(%s, -1)
 *   %o = bmm(%p, v)
 *
 * with views, casts between half precision and f32, and copies in between.
 * Every value inside has one use: what training keeps for backward stays.
 * Several masks, as a bias by position and what is hidden, become one, which
 * layers that share them share (pass cse); see attention_sum_pays. `low` is
 * -inf or a number of -1e4 at most (attention_mask.c).
 *
 * Models that compute scores in f32 cast q and k, or all three, from half
 * precision. The kernel takes what they were cast from: its products are summed
 * in f32 all the same. So it does where the weights are rounded to it anyway;
 * where all three are f32, on a device that keeps weights finer, if the result
 * is only read through a cast.
 */
#include "pass/attention.h"

#include <string.h>

static bool
match_softmax(attention *m, air_ref p)
{
    static const char *const names[] = {"_softmax", "_safe_softmax", NULL};
    const ir_node *n = attention_made_by(m->g, p, names);
    int64_t axis;

    if (!n || !attention_used_once(m, p) ||
        !pass_int(m->g, &n->attrs[1], &axis))
        return false;
    m->scores = n->attrs[0].value;
    m->safe = strcmp(ir_info(n)->name, names[1]) == 0;
    int rank = ir_val(m->g, m->scores)->rank;
    return (rank == 3 || rank == 4) && (axis == -1 || axis == rank - 1);
}

static bool
match_scores(attention *m)
{
    air_ref s = attention_strip_masks(m, attention_strip_casts(m, m->scores));
    const ir_node *n;

    for (air_ref before = AIR_NO_REF; before.id != s.id;) {
        before = s;
        s = attention_strip_scale(m, attention_strip(m, s));
    }
    n = pass_made_by(m->g, s, "bmm");
    if (!n || !attention_used_once(m, s))
        return false;
    m->q = n->attrs[0].value;
    m->kt = n->attrs[1].value;
    return true;
}

static bool
match_attention(attention *m, uint32_t node)
{
    const ir_node *n = ir_node_at(m->g, node);
    air_ref p = n->attrs[0].value;

    m->v = n->attrs[1].value;
    m->half = AIR_DTYPE_NONE;
    m->nmasks = 0;
    m->scale = 1.0;
    /* after softmax: a cast, an expand to the same sizes, a view */
    p = attention_strip(m, p);
    return ir_val(m->g, p)->rank >= 3 && match_softmax(m, p) &&
           match_scores(m) && attention_sum_pays(m) &&
           (attention_match_half(m, n->outs[0]) ||
            attention_dtype(m, m->q) == attention_dtype(m, m->v));
}

static air_ref
view_as(pass_build *b, air_ref x, air_ref like)
{
    if (b->status != AIR_OK || pass_same_dims(b->g, x, like))
        return x;
    return b_view(b, x, ir_val(b->g, like)->rank, ir_val(b->g, like)->dims);
}

static air_status
write_attention(attention *m, uint32_t node)
{
    pass_build b = build_at(m->ctx, node);
    air_ref k, v, q = attention_operand(m, &b, m->q, false);
    m->grouped = attention_find_groups(m, &b, &k, &v);
    if (!m->grouped) {
        k = attention_operand(m, &b, m->kt, true);
        v = attention_four(m, &b, m->v);
    }
    if (b.status == AIR_OK && m->half != AIR_DTYPE_NONE) {
        q = attention_narrow(m, &b, q);
        k = attention_narrow(m, &b, k);
        v = attention_narrow(m, &b, v);
    }
    air_ref o =
        B_OP(&b, "scaled_dot_product_attention", at_value(q), at_value(k),
             at_value(v), at_value(attention_mask(m, &b)), at_float(0.0),
             at_bool(false), at_float(m->scale), at_bool(m->grouped));
    AIR_TRY(b.status);
    air_ref out = node_out(b.g, node, 0);
    air_ref y = view_as(&b, o, out);
    if (attention_dtype(m, out) == (air_dtype)ir_val(b.g, o)->dtype)
        return build_forward(&b, node, 0, y);
    const ir_node *cast = attention_rounding(m, out, m->half, &b, &y);
    AIR_TRY(b.status);
    AIR_TRY(build_forward(&b, ir_val(b.g, cast->outs[0])->node, 0, y));
    /* Dead, but told: the walk comes to this node again. */
    return build_forward(&b, node, 0, view_as(&b, o, out));
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    attention m = *(const attention *)arg;
    const ir_node *n = ir_node_at(ctx->g, node);

    if (n->op == AIR_OP_HOST || strcmp(ir_info(n)->name, "bmm") != 0 ||
        !match_attention(&m, node) || !pass_allow(ctx))
        return AIR_OK;
    return write_attention(&m, node);
}

air_status
pass_attention(pass_context *ctx)
{
    static const char name[] = "scaled_dot_product_attention";
    attention m = {.ctx = ctx, .g = ctx->g, .nuses = ctx->g->values.count};
    uint32_t *uses;

    if (ir_op_find(name, sizeof name - 1) == AIR_OP_NONE)
        return AIR_OK;
    AIR_TRY(pass_count_uses(ctx, &uses));
    m.uses = uses;
    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, visit, &m));
    return pass_sweep(ctx);
}
