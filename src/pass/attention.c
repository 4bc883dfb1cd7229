/* attention.c: pass attention: softmax(scale * q k^T + mask) v, as SDPA is
 * decomposed or as models write it, becomes one kernel. What it reads:
 *
 *   %s = bmm(q, kt)          kt: k with its last two axes exchanged
 *   [mul, div by a number]   on q, kt or %s
 *   [add a mask | where(mask, %s, -inf) | masked_fill(%s, mask, -inf)] ..
 *   %p = _softmax(%s, -1)
 *   %o = bmm(%p, v)
 *
 * with views, casts between half precision and f32, and copies in between.
 * Every value inside has one use: what training keeps for backward stays.
 * Several masks, as a bias by position and what is hidden, become one, which
 * layers that share them share (pass cse); see sum_pays.
 *
 * Models that compute scores in f32 cast q and k, or all three, from half
 * precision. The kernel takes what they were cast from: its products are summed
 * in f32 all the same. So it does where the weights are rounded to it anyway;
 * where all three are f32, on a device that keeps weights finer, if the result
 * is only read through a cast.
 */
#include <math.h>
#include <string.h>

#include "pass/build.h"

enum { MOST_MASKS = 4 };

typedef enum {
    MASK_ADDED,
    MASK_KEEP, /* bool mask: true stays */
    MASK_DROP  /* bool mask: true goes */
} mask_how;

typedef struct {
    air_ref by;
    mask_how how;
} mask_step;

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    const uint32_t *uses; /* by value, of the first nuses */
    size_t nuses;
    air_ref q, kt, v;            /* what the two bmm read */
    mask_step masks[MOST_MASKS]; /* the last one applied comes first */
    int nmasks;
    bool safe;      /* a row that sees nothing gives 0, not NaN */
    air_ref scores; /* operand of softmax: tells [B, H, L, S] */
    double scale;
    bool grouped;   /* k and v have fewer heads than q */
    air_dtype half; /* q, k and v are taken as, not as f32; NONE: as they are */
} match;

static const ir_node *
made_by_one_of(const ir_graph *g, air_ref r, const char *const *names)
{
    const ir_node *n = pass_producer(g, r);

    if (!n || n->op == AIR_OP_HOST)
        return NULL;
    for (; *names; names++)
        if (strcmp(ir_info(n)->name, *names) == 0)
            return n;
    return NULL;
}

static bool
used_once(const match *m, air_ref r)
{
    return r.id < m->nuses && m->uses[r.id] == 1;
}

/* Through what changes neither a value's elements nor their order: the casts
 * alone, or views and copies too. */
static air_ref
strip_names(const match *m, air_ref r, const char *const *names)
{
    const ir_node *n;

    while (used_once(m, r) && (n = made_by_one_of(m->g, r, names)) != NULL) {
        air_ref x = n->attrs[0].value;
        if (!ir_is_float((air_dtype)ir_val(m->g, x)->dtype))
            break;
        r = x;
    }
    return r;
}

static air_ref
strip(const match *m, air_ref r)
{
    static const char *const names[] = {"view", "clone", "_to_copy", NULL};
    return strip_names(m, r, names);
}

static air_ref
strip_casts(const match *m, air_ref r)
{
    static const char *const names[] = {"_to_copy", NULL};
    return strip_names(m, r, names);
}

/* x * number or x / number: takes the number into the scale. */
static air_ref
strip_scale(match *m, air_ref r)
{
    static const char *const names[] = {"mul.Tensor", "div.Tensor", NULL};
    const ir_node *n = made_by_one_of(m->g, r, names);
    double factor;

    if (!n || !used_once(m, r) || n->attrs[0].kind != AIR_ATTR_VALUE ||
        !pass_number(m->g, &n->attrs[1], &factor) || factor == 0.0)
        return r;
    m->scale *= ir_info(n)->name[0] == 'm' ? factor : 1.0 / factor;
    return n->attrs[0].value;
}

/* As a number or as a tensor of it, which torch.where makes. */
static bool
is_minus_inf(const ir_graph *g, const air_attr *attr)
{
    double v;

    if (attr->kind == AIR_ATTR_VALUE) {
        const ir_node *full = pass_made_by(g, attr->value, "full");
        if (!full)
            return false;
        attr = &full->attrs[1];
    }
    return pass_number(g, attr, &v) && isinf(v) && v < 0;
}

static bool
is_one(const ir_graph *g, const air_attr *attr)
{
    double v;
    return pass_number(g, attr, &v) && v == 1.0;
}

/* Takes a mask off: the scores without it; AIR_NO_REF: there is none. */
static air_ref
strip_mask(const match *m, air_ref r, mask_step *out)
{
    const ir_node *n = pass_made_by(m->g, r, "add.Tensor");

    if (n && n->attrs[0].kind == AIR_ATTR_VALUE &&
        n->attrs[1].kind == AIR_ATTR_VALUE && is_one(m->g, &n->attrs[2]) &&
        pass_same_dims(m->g, n->attrs[0].value, r) &&
        ir_val(m->g, n->attrs[1].value)->rank > 0) {
        *out = (mask_step){n->attrs[1].value, MASK_ADDED};
        return n->attrs[0].value;
    }
    n = pass_made_by(m->g, r, "where.self");
    if (n && n->attrs[0].kind == AIR_ATTR_VALUE &&
        n->attrs[1].kind == AIR_ATTR_VALUE &&
        is_minus_inf(m->g, &n->attrs[2]) &&
        pass_same_dims(m->g, n->attrs[1].value, r)) {
        *out = (mask_step){n->attrs[0].value, MASK_KEEP};
        return n->attrs[1].value;
    }
    n = pass_made_by(m->g, r, "masked_fill.Tensor");
    if (n && is_minus_inf(m->g, &n->attrs[2])) {
        *out = (mask_step){n->attrs[1].value, MASK_DROP};
        return n->attrs[0].value;
    }
    return AIR_NO_REF;
}

static air_ref
strip_masks(match *m, air_ref r)
{
    while (m->nmasks < MOST_MASKS && used_once(m, r)) {
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
static bool
sum_pays(const match *m)
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

/* ---- matching ------------------------------------------------------------ */

static bool
match_softmax(match *m, air_ref p)
{
    static const char *const names[] = {"_softmax", "_safe_softmax", NULL};
    const ir_node *n = made_by_one_of(m->g, p, names);
    int64_t axis;

    if (!n || !used_once(m, p) || !pass_int(m->g, &n->attrs[1], &axis))
        return false;
    m->scores = n->attrs[0].value;
    m->safe = strcmp(ir_info(n)->name, names[1]) == 0;
    int rank = ir_val(m->g, m->scores)->rank;
    return (rank == 3 || rank == 4) && (axis == -1 || axis == rank - 1);
}

static bool
match_scores(match *m)
{
    air_ref s = strip_masks(m, strip_casts(m, m->scores));
    const ir_node *n;

    for (air_ref before = AIR_NO_REF; before.id != s.id;) {
        before = s;
        s = strip_scale(m, strip(m, s));
    }
    n = pass_made_by(m->g, s, "bmm");
    if (!n || !used_once(m, s))
        return false;
    m->q = n->attrs[0].value;
    m->kt = n->attrs[1].value;
    return true;
}

/* ---- operands of half precision ------------------------------------------ */

static air_dtype
dtype_of(const match *m, air_ref r)
{
    return (air_dtype)ir_val(m->g, r)->dtype;
}

/* What the value of a view, a copy, or a product with a number comes from. */
static const ir_node *
moved_by(const match *m, air_ref r)
{
    static const char *const names[] = {
        "view", "permute", "expand", "clone", "mul.Tensor", "div.Tensor", NULL};
    const ir_node *n = made_by_one_of(m->g, r, names);
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
half_of(const match *m, air_ref r)
{
    for (const ir_node *n; (n = moved_by(m, r)) != NULL;)
        r = n->attrs[0].value;
    const ir_node *cast = pass_made_by(m->g, r, "_to_copy");
    if (!cast || pass_is_mutated(m->ctx, cast->attrs[0].value))
        return AIR_DTYPE_NONE;
    const air_dtype from = dtype_of(m, cast->attrs[0].value);
    return from == AIR_BF16 || from == AIR_F16 ? from : AIR_DTYPE_NONE;
}

/* What n, a view or a copy, makes of x instead of its operand. */
static air_ref
moved_again(const match *m, pass_build *b, const ir_node *n, air_ref x)
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
static air_ref
narrow(match *m, pass_build *b, air_ref r)
{
    const ir_node *n = moved_by(m, r);
    double factor;

    if (b->status != AIR_OK || dtype_of(m, r) == m->half)
        return r;
    if (!n)
        return pass_made_by(m->g, r, "_to_copy")->attrs[0].value;
    const uint32_t at = ir_val(m->g, r)->node; /* nodes move as more are made */
    const air_ref x = narrow(m, b, n->attrs[0].value);
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
reader_of(const match *m, air_ref r)
{
    const ir_node *found = NULL;

    if (!used_once(m, r))
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
static const ir_node *
rounding_of(const match *m, air_ref r, air_dtype half, pass_build *b,
            air_ref *y)
{
    static const char *const views[] = {"view", "permute", "clone", NULL};

    for (const ir_node *n; (n = reader_of(m, r)) != NULL; r = n->outs[0]) {
        if (n->op == AIR_OP_HOST)
            return NULL;
        if (strcmp(ir_info(n)->name, "_to_copy") == 0)
            return dtype_of(m, n->outs[0]) == half ? n : NULL;
        if (!made_by_one_of(m->g, n->outs[0], views))
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
keeps_weights(const match *m)
{
    return m->ctx->target && m->ctx->target->fine_weights && m->nmasks > 0;
}

/* q and k of f32 are of the precision of v, or all three of another one. */
static bool
match_half(match *m, air_ref out)
{
    const air_dtype v = dtype_of(m, m->v);
    const air_dtype half = v == AIR_F32 ? half_of(m, m->v) : v;

    if (dtype_of(m, m->q) != AIR_F32 || half == AIR_DTYPE_NONE ||
        half_of(m, m->q) != half || half_of(m, m->kt) != half)
        return false;
    if (v == AIR_F32 &&
        !(keeps_weights(m) && rounding_of(m, out, half, NULL, NULL)))
        return false;
    m->half = half;
    return true;
}

static bool
match_attention(match *m, uint32_t node)
{
    const ir_node *n = ir_node_at(m->g, node);
    air_ref p = n->attrs[0].value;

    m->v = n->attrs[1].value;
    m->half = AIR_DTYPE_NONE;
    m->nmasks = 0;
    m->scale = 1.0;
    /* after softmax: a cast, an expand to the same sizes, a view */
    p = strip(m, p);
    return ir_val(m->g, p)->rank >= 3 && match_softmax(m, p) &&
           match_scores(m) && sum_pays(m) &&
           (match_half(m, n->outs[0]) ||
            dtype_of(m, m->q) == dtype_of(m, m->v));
}

/* ---- writing ------------------------------------------------------------- */

/* [B, H] in front of an operand's last two sizes. */
static air_ref
four(const match *m, pass_build *b, air_ref r)
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
unscaled(match *m, air_ref r)
{
    air_ref x = r;

    for (air_ref before = AIR_NO_REF; before.id != x.id;) {
        before = x;
        x = strip(m, x);
        air_ref inner = strip_scale(m, x);
        if (inner.id != x.id &&
            ir_val(m->g, inner)->dtype != ir_val(m->g, r)->dtype)
            break;
        x = inner;
    }
    return x;
}

static air_ref
view_as(pass_build *b, air_ref x, air_ref like)
{
    if (b->status != AIR_OK || pass_same_dims(b->g, x, like))
        return x;
    return b_view(b, x, ir_val(b->g, like)->rank, ir_val(b->g, like)->dims);
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
static air_ref
operand(match *m, pass_build *b, air_ref r, bool swapped)
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
    return four(m, b, swapped ? b_permute(b, x, rank, order) : x);
}

/* The heads before each was repeated: [B, Hkv, S, D], the operand of
 * view(expand(view(x), [B, Hkv, G, S, D])); AIR_NO_REF: not repeated. */
static air_ref
before_repeat(match *m, pass_build *b, air_ref r)
{
    const ir_node *n = pass_made_by(m->g, strip(m, r), "expand");
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
static bool
find_groups(match *m, pass_build *b, air_ref *out_k, air_ref *out_v)
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
    return b_wheref(b, keep, sum, -(double)INFINITY);
}

/* All masks as one that is added. A sum is in f32 at least: in f16 the least
 * number and a bias would be -inf. */
static air_ref
sum_of_masks(const match *m, pass_build *b)
{
    const air_dtype q = dtype_of(m, m->q);
    const bool widen = m->nmasks > 1 && (q == AIR_BF16 || q == AIR_F16);
    air_ref sum = AIR_NO_REF;

    for (int i = m->nmasks; i-- > 0;)
        sum = mask_onto(b, sum, m->masks[i], widen ? AIR_F32 : q);
    return sum;
}

/* _softmax gives NaN for a row that sees nothing and the kernel 0: adding NaN
 * to the row makes them equal. Of one mask for all layers, one is left by cse.
 */
static air_ref
nan_where_nothing(pass_build *b, air_ref mask)
{
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    const int last = ir_val(b->g, mask)->rank - 1;
    air_ref none = b_2f(b, "eq.Tensor", b_amax(b, mask, 1, &last, true),
                        -(double)INFINITY);
    return B_OP(b, "where.self", at_value(none), at_float((double)NAN),
                at_value(mask));
}

static air_ref
mask_of(const match *m, pass_build *b)
{
    const mask_step first = m->masks[0];
    air_ref mask;

    if (m->nmasks == 0)
        return AIR_NO_REF;
    if (m->nmasks == 1 && m->safe && first.how != MASK_ADDED)
        mask =
            first.how == MASK_KEEP ? first.by : b_1(b, "logical_not", first.by);
    else
        mask = sum_of_masks(m, b);
    if (!m->safe)
        mask = nan_where_nothing(b, mask);
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    int rank = ir_val(b->g, mask)->rank;
    if (rank == 3) /* [N, L, S] of rank 3, [H, L, S] of rank 4 */
        return b_unsqueeze(b, mask, ir_val(b->g, m->scores)->rank == 3);
    return rank == 1 ? b_unsqueeze(b, mask, 0) : mask;
}

static air_status
write_attention(match *m, uint32_t node)
{
    pass_build b = build_at(m->ctx, node);
    air_ref k, v, q = operand(m, &b, m->q, false);
    m->grouped = find_groups(m, &b, &k, &v);
    if (!m->grouped) {
        k = operand(m, &b, m->kt, true);
        v = four(m, &b, m->v);
    }
    if (b.status == AIR_OK && m->half != AIR_DTYPE_NONE) {
        q = narrow(m, &b, q);
        k = narrow(m, &b, k);
        v = narrow(m, &b, v);
    }
    air_ref o =
        B_OP(&b, "scaled_dot_product_attention", at_value(q), at_value(k),
             at_value(v), at_value(mask_of(m, &b)), at_float(0.0),
             at_bool(false), at_float(m->scale), at_bool(m->grouped));
    AIR_TRY(b.status);
    air_ref out = node_out(b.g, node, 0);
    air_ref y = view_as(&b, o, out);
    if (dtype_of(m, out) == (air_dtype)ir_val(b.g, o)->dtype)
        return build_forward(&b, node, 0, y);
    const ir_node *cast = rounding_of(m, out, m->half, &b, &y);
    AIR_TRY(b.status);
    AIR_TRY(build_forward(&b, ir_val(b.g, cast->outs[0])->node, 0, y));
    /* Dead, but told: the walk comes to this node again. */
    return build_forward(&b, node, 0, view_as(&b, o, out));
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    match m = *(const match *)arg;
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
    match m = {.ctx = ctx, .g = ctx->g, .nuses = ctx->g->values.count};
    uint32_t *uses;

    if (ir_op_find(name, sizeof name - 1) == AIR_OP_NONE)
        return AIR_OK;
    AIR_TRY(pass_count_uses(ctx, &uses));
    m.uses = uses;
    AIR_TRY(pass_facts_make(ctx));
    AIR_TRY(pass_walk(ctx, visit, &m));
    return pass_sweep(ctx);
}
