/* attention_mask.c: masks of attention: taken off its scores, and written as
 * one that is added. */
#include "pass/attention.h"

#include <math.h>

/* A number that hides scores it replaces. One that is finite does so if a row
 * has a score that is not far below it: what is hidden then weighs 0. Where all
 * is hidden the scores are equal, which a term keeps only if it is much larger
 * than they and than what is added behind it. */
static const double FINITE_HIDES = -1e4, LOWEST = -0x1p100;

static bool
read_fill(const attention *m, const air_attr *attr, mask_step *out)
{
    double v;

    if (!attention_number(m->g, attr, &v) || !(v <= FINITE_HIDES))
        return false;
    out->fill = isinf(v) ? v : LOWEST;
    for (int i = 0; i < m->nmasks; i++)
        if (m->masks[i].how == MASK_ADDED && v > LOWEST)
            return false;
    return true;
}

static bool
is_one(const ir_graph *g, const air_attr *attr)
{
    double v;
    return pass_number(g, attr, &v) && v == 1.0;
}

/* Takes a mask off: the scores without it; AIR_NO_REF: there is none. */
static air_ref
strip_mask(const attention *m, air_ref r, mask_step *out)
{
    const ir_node *n = pass_made_by(m->g, r, "add.Tensor");

    if (n && n->attrs[0].kind == AIR_ATTR_VALUE &&
        n->attrs[1].kind == AIR_ATTR_VALUE && is_one(m->g, &n->attrs[2]) &&
        pass_same_dims(m->g, n->attrs[0].value, r) &&
        ir_val(m->g, n->attrs[1].value)->rank > 0) {
        *out = (mask_step){n->attrs[1].value, MASK_ADDED, 0};
        return n->attrs[0].value;
    }
    n = pass_made_by(m->g, r, "where.self");
    if (n && n->attrs[0].kind == AIR_ATTR_VALUE &&
        n->attrs[1].kind == AIR_ATTR_VALUE &&
        pass_same_dims(m->g, n->attrs[1].value, r) &&
        read_fill(m, &n->attrs[2], out)) {
        out->by = n->attrs[0].value, out->how = MASK_KEEP;
        return n->attrs[1].value;
    }
    n = pass_made_by(m->g, r, "masked_fill.Tensor");
    if (n && read_fill(m, &n->attrs[2], out)) {
        out->by = n->attrs[1].value, out->how = MASK_DROP;
        return n->attrs[0].value;
    }
    return AIR_NO_REF;
}

air_ref
attention_strip_masks(attention *m, air_ref r)
{
    while (m->nmasks < ATTENTION_MASKS && attention_used_once(m, r)) {
        const air_ref x = strip_mask(m, r, &m->masks[m->nmasks]);
        if (x.id == AIR_NO_REF.id)
            break;
        m->nmasks++;
        r = x;
    }
    return r;
}

static bool
is_single(const ir_graph *g, const ir_value *v, int from_end)
{
    int64_t n;
    return from_end > v->rank ||
           (ir_dim_is_const(g, v->dims[v->rank - from_end], &n) && n == 1);
}

/* Does one mask of several pay? Its sum costs about what softmax does over as
 * many numbers: not where it is as large as the scores and of use once. A row
 * of queries gains by the kernel more than that. */
bool
attention_sum_pays(const attention *m)
{
    const ir_value *scores = ir_val(m->g, m->scores);
    bool shared = true, smaller = false;

    for (int i = 0; i < m->nmasks; i++) {
        const air_ref by = m->masks[i].by;
        shared = shared && by.id < m->nuses && m->uses[by.id] > 1;
    }
    for (int axis = 1; axis <= scores->rank; axis++) {
        bool single = true;
        for (int i = 0; i < m->nmasks; i++)
            single =
                single && is_single(m->g, ir_val(m->g, m->masks[i].by), axis);
        smaller = smaller || (single && !is_single(m->g, scores, axis));
    }
    return m->nmasks < 2 || shared || smaller || is_single(m->g, scores, 2);
}

/* A mask, in numbers that are added, onto the sum of those before it. */
static air_ref
mask_onto(pass_build *b, air_ref sum, mask_step step, air_dtype dtype)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    if (step.how == MASK_ADDED) {
        const air_ref x = b_cast(b, step.by, dtype);
        return sum.id == AIR_NO_REF.id ? x : b_add(b, sum, x);
    }
    const air_ref keep =
        step.how == MASK_KEEP ? step.by : b_1(b, "logical_not", step.by);
    if (sum.id == AIR_NO_REF.id) {
        const ir_value *v = ir_val(b->g, step.by);
        sum = b_fullf(b, v->rank, v->dims, 0.0, dtype);
    }
    return b_wheref(b, keep, sum, step.fill);
}

static bool
is_finite_fill(const mask_step *step)
{
    return step->how != MASK_ADDED && !isinf(step->fill);
}

/* All masks as one that is added. A sum is in f32 at least: in f16 the least
 * number and a bias would be -inf. */
static air_ref
sum_of_masks(const attention *m, pass_build *b)
{
    const air_dtype q = attention_dtype(m, m->q);
    bool widen = m->nmasks > 1 && (q == AIR_BF16 || q == AIR_F16);
    air_ref sum = AIR_NO_REF;

    for (int i = 0; i < m->nmasks; i++) /* LOWEST is no number of f16 */
        widen = widen || (q == AIR_F16 && is_finite_fill(&m->masks[i]));
    for (int i = m->nmasks; i-- > 0;)
        sum = mask_onto(b, sum, m->masks[i], widen ? AIR_F32 : q);
    return sum;
}

/* Is a mask added, or one whose number is finite (or not) put in? */
static bool
has_step(const attention *m, mask_how how, bool finite)
{
    for (int i = 0; i < m->nmasks; i++) {
        const mask_step *step = &m->masks[i];
        if (how == MASK_ADDED
                ? step->how == how
                : step->how != MASK_ADDED && is_finite_fill(step) == finite)
            return true;
    }
    return false;
}

/* The least finite number hides too, where the row has larger ones: as -inf,
 * whose keys the kernel need not read. */
static air_ref
least_as_nothing(pass_build *b, air_ref mask, air_ref top)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const double least = ir_val(b->g, mask)->dtype == AIR_F16 ? -65504 : LOWEST;
    const air_ref floor_ =
        B_OP(b, "where.self", at_value(b_2f(b, "gt.Tensor", top, least / 2)),
             at_float(least), at_float(-(double)INFINITY));
    return B_OP(b, "masked_fill.Tensor", at_value(mask),
                at_value(b_2(b, "le.Tensor", mask, floor_)),
                at_float(-(double)INFINITY));
}

/* _softmax gives NaN for a row that sees nothing and the kernel 0: adding NaN
 * to the row makes them equal. */
static air_ref
nan_where_nothing(pass_build *b, air_ref mask, air_ref top)
{
    return B_OP(b, "where.self",
                at_value(b_2f(b, "eq.Tensor", top, -(double)INFINITY)),
                at_float((double)NAN), at_value(mask));
}

/* A mask by the largest number of each of its rows. Of one mask for all layers,
 * one is left by cse. */
static air_ref
by_rows(const attention *m, pass_build *b, air_ref mask)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const bool added = has_step(m, MASK_ADDED, true);
    const int last = ir_val(b->g, mask)->rank - 1;
    const air_ref top = b_amax(b, mask, 1, &last, true);

    if (added || has_step(m, MASK_DROP, true))
        mask = least_as_nothing(b, mask, top);
    if (added || has_step(m, MASK_DROP, false))
        mask = nan_where_nothing(b, mask, top);
    return mask;
}

air_ref
attention_mask(const attention *m, pass_build *b)
{
    const mask_step first = m->masks[0];
    air_ref mask;

    if (m->nmasks == 0)
        return AIR_NO_REF;
    if (m->nmasks == 1 && m->safe && first.how != MASK_ADDED &&
        !is_finite_fill(&first))
        mask =
            first.how == MASK_KEEP ? first.by : b_1(b, "logical_not", first.by);
    else
        mask = sum_of_masks(m, b);
    if (!m->safe)
        mask = by_rows(m, b, mask);
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    int rank = ir_val(b->g, mask)->rank;
    if (rank == 3) /* [N, L, S] of rank 3, [H, L, S] of rank 4 */
        return b_unsqueeze(b, mask, ir_val(b->g, m->scores)->rank == 3);
    return rank == 1 ? b_unsqueeze(b, mask, 0) : mask;
}
