/* attention_half.c: attention in f32 of what was cast from half precision. */
#include "pass/attention.h"

#include <string.h>

/* What the value of a view, a copy, or a product with a number comes from. */
static const ir_node *
moved_by(const attention *m, air_ref r)
{
    static const char *const names[] = {
        "view", "permute", "expand", "clone", "mul.Tensor", "div.Tensor", NULL};
    const ir_node *n = attention_made_by(m->g, r, names);
    double number;

    if (n && ir_info(n)->cls == IR_CLASS_POINTWISE &&
        strcmp(ir_info(n)->name, "clone") != 0 &&
        (n->attrs[0].kind != AIR_ATTR_VALUE ||
         !pass_number(m->g, &n->attrs[1], &number) || number == 0.0))
        return NULL;
    return n;
}

/* The half precision that r, or what it was moved from, is a cast of. */
static air_dtype
half_of(const attention *m, air_ref r)
{
    for (const ir_node *n; (n = moved_by(m, r)) != NULL;)
        r = n->attrs[0].value;
    const ir_node *cast = pass_made_by(m->g, r, "_to_copy");
    if (!cast || pass_is_mutated(m->ctx, cast->attrs[0].value))
        return AIR_DTYPE_NONE;
    const air_dtype from = attention_dtype(m, cast->attrs[0].value);
    return from == AIR_BF16 || from == AIR_F16 ? from : AIR_DTYPE_NONE;
}

/* What n, a view or a copy, makes of x instead of its operand. */
static air_ref
moved_again(const attention *m, pass_build *b, const ir_node *n, air_ref x)
{
    const char *name = ir_info(n)->name;
    const ir_value *out = ir_val(m->g, n->outs[0]);
    int order[AIR_MAX_RANK], rank = out->rank;
    int64_t axis;

    if (strcmp(name, "clone") == 0)
        return b_1(b, "clone", x);
    if (strcmp(name, "view") == 0)
        return b_view(b, x, rank, out->dims);
    if (strcmp(name, "expand") == 0)
        return b_expand(b, x, rank, out->dims);
    for (int i = 0; i < rank; i++)
        order[i] = ir_dim_is_const(m->g, n->attrs[1].dims[i], &axis)
                       ? (int)((axis + rank) % rank)
                       : i;
    return b_permute(b, x, rank, order);
}

/* r, made of what it was cast from; numbers on the way go into the scale. */
air_ref
attention_narrow(attention *m, pass_build *b, air_ref r)
{
    const ir_node *n = moved_by(m, r);
    double factor;

    if (b->status != AIR_OK || attention_dtype(m, r) == m->half)
        return r;
    if (!n)
        return pass_made_by(m->g, r, "_to_copy")->attrs[0].value;
    const uint32_t at = ir_val(m->g, r)->node; /* nodes move as more are made */
    const air_ref x = attention_narrow(m, b, n->attrs[0].value);
    n = ir_node_at(m->g, at);
    if (b->status != AIR_OK || strcmp(ir_info(n)->name, "clone") == 0)
        return x;
    if (ir_info(n)->cls != IR_CLASS_POINTWISE)
        return moved_again(m, b, n, x);
    if (pass_number(m->g, &n->attrs[1], &factor))
        m->scale *= ir_info(n)->name[0] == 'm' ? factor : 1.0 / factor;
    return x;
}

/* AIR_NO_REF into the value that is looked for. */
static void
note_operand(void *arg, air_ref *operand)
{
    air_ref *wanted = arg;
    if (operand->id == wanted->id)
        *wanted = AIR_NO_REF;
}

/* The node that reads r, if there is one only. */
static const ir_node *
reader_of(const attention *m, air_ref r)
{
    const ir_node *found = NULL;

    if (!attention_used_once(m, r))
        return NULL;
    IR_FOR_EACH(m->g, id)
    {
        air_ref wanted = r;
        ir_each_operand(m->g, ir_node_at(m->g, id), note_operand, &wanted);
        if (wanted.id == AIR_NO_REF.id)
            found = ir_node_at(m->g, id);
    }
    return found;
}

/* The cast to `half` through which alone r is read, and y, which r is to
 * become, moved as r is; NULL: there is none. b NULL: only asks. */
const ir_node *
attention_rounding(const attention *m, air_ref r, air_dtype half, pass_build *b,
                   air_ref *y)
{
    static const char *const views[] = {"view", "permute", "clone", NULL};

    for (const ir_node *n; (n = reader_of(m, r)) != NULL; r = n->outs[0]) {
        if (n->op == AIR_OP_HOST)
            return NULL;
        if (strcmp(ir_info(n)->name, "_to_copy") == 0)
            return attention_dtype(m, n->outs[0]) == half ? n : NULL;
        if (!attention_made_by(m->g, n->outs[0], views))
            return NULL;
        if (!b)
            continue;
        const uint32_t at = ir_val(m->g, n->outs[0])->node;
        *y = moved_again(m, b, n, *y);
        n = ir_node_at(m->g, at);
        if (b->status != AIR_OK)
            return NULL;
    }
    return NULL;
}

static bool
keeps_weights(const attention *m)
{
    return m->ctx->target && m->ctx->target->fine_weights && m->nmasks > 0;
}

/* q and k of f32 are of the precision of v, or all three of another one. */
bool
attention_match_half(attention *m, air_ref out)
{
    const air_dtype v = attention_dtype(m, m->v);
    const air_dtype half = v == AIR_F32 ? half_of(m, m->v) : v;

    if (attention_dtype(m, m->q) != AIR_F32 || half == AIR_DTYPE_NONE ||
        half_of(m, m->q) != half || half_of(m, m->kt) != half)
        return false;
    if (v == AIR_F32 &&
        !(keeps_weights(m) && attention_rounding(m, out, half, NULL, NULL)))
        return false;
    m->half = half;
    return true;
}
