/* quantised.c: pass quantised: a product with a weight that is made from
 * integers becomes one node that reads those. What it reads, from the product
 * towards the integers:
 *
 *   mm(a, wt), addmm(bias, a, wt)    wt: w with its axes exchanged
 *   %w = %s + shift                  [optional]
 *   %s = %n * scale                  [optional]
 *   %n = %q - point                  [optional] a number or a tensor
 *   %q                               i8, or stack([%p & 15, %p >> 4], -1), u8
 *
 * with casts and views in between. shift, scale and point have one element for
 * a row or for each group of a row. */
#include <string.h>

#include "pass/build.h"

typedef enum { TOP, SHIFTED, SCALED, POINTED } depth;

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    int64_t rows, columns, groups; /* groups 0: no factor yet */
    depth at;
    air_ref q, shift, scale, point;
    double number; /* what is subtracted where point is none */
    int bits;
    bool turned;
} match;

/* ---- reading ------------------------------------------------------------- */

static bool
sizes(const ir_graph *g, air_ref r, int64_t *out)
{
    const ir_value *v = ir_val(g, r);

    for (int i = 0; i < v->rank; i++)
        if (!ir_dim_is_const(g, v->dims[i], &out[i]))
            return false;
    return true;
}

/* One element for a row of the weight or each group of it, beside x. */
static bool
is_factor(const match *m, air_ref x, air_ref f, int64_t *out_groups)
{
    const ir_value *v = ir_val(m->g, x), *w = ir_val(m->g, f);
    int64_t of[AIR_MAX_RANK], in[AIR_MAX_RANK];

    if (v->rank < 2 || v->rank != w->rank || !sizes(m->g, x, of) ||
        !sizes(m->g, f, in) || of[0] != m->rows || in[v->rank - 1] != 1)
        return false;
    *out_groups = 1;
    for (int i = 0; i < v->rank - 1; i++) {
        if (in[i] != of[i])
            return false;
        *out_groups *= i > 0 ? of[i] : 1;
    }
    return m->groups == 0 || m->groups == *out_groups;
}

/* n combines x with a factor: takes that. */
static bool
take_factor(match *m, const ir_node *n, bool commutes, air_ref *out)
{
    int64_t groups;

    for (int i = 0; i <= (int)commutes; i++) {
        air_ref x = n->attrs[i].value, f = n->attrs[1 - i].value;
        if (!is_factor(m, x, f, &groups))
            continue;
        m->groups = groups;
        *out = f;
        m->q = x;
        return true;
    }
    return false;
}

static bool
holds_floats(const match *m)
{
    return ir_is_float((air_dtype)ir_val(m->g, m->q)->dtype);
}

static bool
is_one(const match *m, const air_attr *attr)
{
    double v;
    return pass_number(m->g, attr, &v) && v == 1.0;
}

static bool
of_tensors(const ir_node *n)
{
    return n->attrs[0].kind == AIR_ATTR_VALUE &&
           n->attrs[1].kind == AIR_ATTR_VALUE;
}

static bool
take_shift(match *m, const ir_node *n)
{
    if (m->at >= SHIFTED || !holds_floats(m) || !of_tensors(n) ||
        !is_one(m, &n->attrs[2]) || !take_factor(m, n, true, &m->shift))
        return false;
    m->at = SHIFTED;
    return true;
}

static bool
take_scale(match *m, const ir_node *n)
{
    if (m->at >= SCALED || !holds_floats(m) || !of_tensors(n) ||
        !take_factor(m, n, true, &m->scale))
        return false;
    m->at = SCALED;
    return true;
}

/* A difference of u8 would wrap. */
static bool
take_point(match *m, const ir_node *n)
{
    if (m->at >= POINTED || ir_val(m->g, m->q)->dtype == AIR_U8 ||
        !is_one(m, &n->attrs[2]) || n->attrs[0].kind != AIR_ATTR_VALUE)
        return false;
    m->at = POINTED;
    if (n->attrs[1].kind == AIR_ATTR_VALUE)
        return take_factor(m, n, false, &m->point);
    m->q = n->attrs[0].value;
    return pass_number(m->g, &n->attrs[1], &m->number);
}

/* Integers stay what they are in any dtype that has a sign. */
static bool
take_cast(match *m, const ir_node *n)
{
    if (!holds_floats(m) && (ir_val(m->g, m->q)->dtype == AIR_U8 ||
                             ir_val(m->g, m->q)->dtype == AIR_BOOL))
        return false;
    m->q = n->attrs[0].value;
    return true;
}

static bool
take_view(match *m, const ir_node *n)
{
    m->q = n->attrs[0].value;
    return true;
}

static bool
take_permute(match *m, const ir_node *n)
{
    int64_t first;

    if (m->turned || ir_val(m->g, m->q)->rank != 2 || m->at != TOP ||
        n->attrs[1].count != 2 ||
        !ir_dim_is_const(m->g, n->attrs[1].dims[0], &first) || first == 0)
        return false;
    m->turned = true;
    m->q = n->attrs[0].value;
    return true;
}

static const struct {
    const char *op;
    bool (*take)(match *m, const ir_node *n);
    bool turned; /* w lies the other way round before */
} steps[] = {
    {"permute", take_permute, false}, {"_to_copy", take_cast, false},
    {"view", take_view, true},        {"add.Tensor", take_shift, true},
    {"mul.Tensor", take_scale, true}, {"sub.Tensor", take_point, true},
};

/* One step towards the integers; false: there is none. */
static bool
step(match *m)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const ir_node *n = pass_made_by(m->g, m->q, steps[i].op);
        if (n)
            return (m->turned || !steps[i].turned) && steps[i].take(m, n);
    }
    return false;
}

static bool
is_number(const match *m, const air_attr *attr, double want)
{
    double v;
    return pass_number(m->g, attr, &v) && v == want;
}

/* The bytes whose nibbles r is: p & 15, p >> 4, or that & 15. */
static bool
nibble_of(const match *m, air_ref r, bool high, air_ref *out)
{
    const ir_node *n = pass_made_by(m->g, r, "bitwise_and.Tensor");

    *out = r;
    if (n && n->attrs[0].kind == AIR_ATTR_VALUE &&
        is_number(m, &n->attrs[1], 15))
        *out = n->attrs[0].value;
    else if (!high)
        return false;
    if (!high)
        return true;
    n = pass_made_by(m->g, *out, "bitwise_right_shift.Tensor_Scalar");
    if (!n || n->attrs[0].kind != AIR_ATTR_VALUE ||
        !is_number(m, &n->attrs[1], 4))
        return false;
    *out = n->attrs[0].value;
    return true;
}

static bool
match_nibbles(match *m)
{
    const ir_node *n = pass_made_by(m->g, m->q, "stack");
    air_ref low, high;
    int64_t axis, size[AIR_MAX_RANK];

    if (!n || n->attrs[0].count != 2 || !pass_int(m->g, &n->attrs[1], &axis) ||
        !nibble_of(m, n->attrs[0].values[0], false, &low) ||
        !nibble_of(m, n->attrs[0].values[1], true, &high) || low.id != high.id)
        return false;
    const ir_value *v = ir_val(m->g, low);
    m->q = low;
    m->bits = 4;
    return (axis == -1 || axis == v->rank) && v->dtype == AIR_U8 &&
           v->rank == 2 && sizes(m->g, low, size) && size[0] == m->rows &&
           2 * size[1] == m->columns;
}

/* Integers that do not lie in rows would be copied at each run. */
static bool
match_bytes(match *m)
{
    m->bits = 8;
    return ir_val(m->g, m->q)->dtype == AIR_I8 &&
           !pass_made_by(m->g, m->q, "permute");
}

static bool
match_weight(match *m, air_ref wt)
{
    int64_t size[AIR_MAX_RANK];

    if (!sizes(m->g, wt, size))
        return false;
    m->rows = size[1];
    m->columns = size[0];
    m->q = wt;
    m->shift = m->scale = m->point = AIR_NO_REF;
    while (step(m))
        ;
    return m->turned && m->columns > 0 && (match_nibbles(m) || match_bytes(m));
}

static bool
takes(air_dtype d)
{
    return d == AIR_F32 || d == AIR_BF16 || d == AIR_F16;
}

/* ---- writing ------------------------------------------------------------- */

/* [rows, groups]; integers as f32. */
static air_ref
factor(match *m, pass_build *b, air_ref f)
{
    const air_dim dims[2] = {b_dim(b, m->rows), b_dim(b, m->groups)};

    if (b->status != AIR_OK || f.id == AIR_NO_REF.id)
        return AIR_NO_REF;
    const bool ready = takes((air_dtype)ir_val(b->g, f)->dtype);
    f = b_view(b, f, 2, dims);
    return ready ? f : b_cast(b, f, AIR_F32);
}

static air_ref
wide(pass_build *b, air_ref r)
{
    return r.id == AIR_NO_REF.id ? r : b_wide(b, r);
}

/* What stands for the stored 0 is (middle - point) * scale + shift. */
static air_ref
zero_of(match *m, pass_build *b, air_ref scale)
{
    const double middle = m->bits == 4 ? 8 : 0;
    air_ref shift = factor(m, b, m->shift), zero = AIR_NO_REF;

    if (middle == m->number && m->point.id == AIR_NO_REF.id)
        return shift;
    scale = wide(b, scale);
    if (m->point.id != AIR_NO_REF.id)
        zero = b_rsubf(b, middle, wide(b, factor(m, b, m->point)));
    else if (scale.id != AIR_NO_REF.id)
        zero = b_mulf(b, scale, middle - m->number);
    else {
        const air_dim dims[2] = {b_dim(b, m->rows), b_dim(b, m->groups)};
        zero = b_fullf(b, 2, dims, middle - m->number, AIR_F32);
    }
    if (m->point.id != AIR_NO_REF.id && scale.id != AIR_NO_REF.id)
        zero = b_mul(b, zero, scale);
    return shift.id == AIR_NO_REF.id ? zero : b_add(b, zero, wide(b, shift));
}

static air_status
write_product(match *m, uint32_t node, air_ref a, air_ref bias)
{
    pass_build b = build_at(m->ctx, node);
    const air_dim dims[2] = {b_dim(&b, m->rows),
                             b_dim(&b, m->columns * m->bits / 8)};

    m->groups = m->groups == 0 ? 1 : m->groups;
    air_ref scale = factor(m, &b, m->scale);
    air_ref q = b_view(&b, m->q, 2, dims);
    air_ref y = B_OP(&b, "air::quantised_mm", at_value(a), at_value(q),
                     at_value(scale), at_value(zero_of(m, &b, scale)),
                     at_value(bias), at_int(&b, m->bits), at_bool(true));
    AIR_TRY(b.status);
    return build_forward(&b, node, 0, y);
}

/* The operands of mm and of addmm with a bias for each row of the weight. */
static bool
match_product(const match *m, const ir_node *n, air_ref *a, air_ref *wt,
              air_ref *bias)
{
    const char *name = ir_info(n)->name;
    const int first = strcmp(name, "addmm") == 0;

    if (!first && strcmp(name, "mm") != 0)
        return false;
    *a = n->attrs[first].value;
    *wt = n->attrs[first + 1].value;
    *bias = first ? n->attrs[0].value : AIR_NO_REF;
    return takes((air_dtype)ir_val(m->g, *a)->dtype) &&
           (!first || (ir_val(m->g, *bias)->rank == 1 &&
                       ir_dim_eq(ir_val(m->g, *bias)->dims[0],
                                 ir_val(m->g, *wt)->dims[1]) &&
                       is_one(m, &n->attrs[3]) && is_one(m, &n->attrs[4])));
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    match m = {.ctx = ctx, .g = ctx->g};
    const ir_node *n = ir_node_at(ctx->g, node);
    air_ref a, wt, bias;

    (void)arg;
    if (n->op == AIR_OP_HOST || !match_product(&m, n, &a, &wt, &bias) ||
        !match_weight(&m, wt) || !pass_allow(ctx))
        return AIR_OK;
    return write_product(&m, node, a, bias);
}

air_status
pass_quantised(pass_context *ctx)
{
    AIR_TRY(pass_walk(ctx, visit, NULL));
    return pass_sweep(ctx);
}
