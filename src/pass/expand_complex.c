/* expand_complex.c: complex numbers as two real ones, each computed for itself.
 *
 * z = view_as_complex(cat([unsqueeze(re, -1), unsqueeze(im, -1)], -1)) is how a
 * result is written. Who reads z takes re and im from there, so a chain of
 * operators has no pairs in between and is one group. The formulas are those of
 * ATen's vectors, rounding by rounding. */
#include "pass/expand.h"

#include <math.h>
#include <string.h>

typedef struct {
    air_ref re, im;
} parts;

/* ---- taking apart -------------------------------------------------------- */

static bool
is_last(const ir_graph *g, const air_attr *dim, int rank)
{
    int axis;

    return ir_axis(g, dim, rank, "dim", &axis) == AIR_OK && axis == rank - 1;
}

/* The operand to which the value adds a last axis. */
static bool
read_column(const ir_graph *g, air_ref x, air_ref *out)
{
    const ir_node *n = pass_made_by(g, x, "unsqueeze");

    if (!n || !is_last(g, &n->attrs[1], ir_val(g, x)->rank))
        return false;
    *out = n->attrs[0].value;
    return true;
}

/* x: pairs along its last axis. */
static bool
read_pairs(const ir_graph *g, air_ref x, parts *out)
{
    const ir_node *cat = pass_made_by(g, x, "cat");

    return cat && cat->attrs[0].count == 2 &&
           is_last(g, &cat->attrs[1], ir_val(g, x)->rank) &&
           read_column(g, cat->attrs[0].values[0], &out->re) &&
           read_column(g, cat->attrs[0].values[1], &out->im);
}

/* Views that do to both parts what they do to pairs. */
static const ir_node *
moved_by(const ir_graph *g, air_ref z)
{
    const ir_node *n = pass_producer(g, z);

    if (!n || n->op == AIR_OP_NONE || n->op == AIR_OP_HOST ||
        ir_info(n)->cls != IR_CLASS_VIEW)
        return NULL;
    switch ((ir_view)ir_info(n)->view) {
    case IR_VIEW_view:
    case IR_VIEW_permute:
    case IR_VIEW_t:
    case IR_VIEW_transpose:
    case IR_VIEW_unsqueeze:
    case IR_VIEW_squeeze:
    case IR_VIEW_expand:
    case IR_VIEW_slice:
    case IR_VIEW_select: return n;
    default: return NULL;
    }
}

static air_ref
move(pass_build *b, const ir_node *n, air_ref x)
{
    air_attr *attrs;

    if (b->status == AIR_OK)
        b->status = BASE_ARENA_ARRAY(b->ctx->scratch, n->nattrs, &attrs);
    if (b->status != AIR_OK)
        return AIR_NO_REF;
    memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
    attrs[0].value = x;
    return b_op(b, ir_info(n)->name, n->nattrs, attrs);
}

/* The parts that z was made of; false: it was not made here. */
static bool
known_parts(pass_build *b, air_ref z, parts *out)
{
    const ir_node *n = pass_made_by(b->g, z, "view_as_complex");

    if (n)
        return read_pairs(b->g, n->attrs[0].value, out);
    n = moved_by(b->g, z);
    if (!n || !known_parts(b, n->attrs[0].value, out))
        return false;
    const ir_node by = *n; /* adding nodes moves them */
    out->re = move(b, &by, out->re);
    out->im = move(b, &by, out->im);
    return true;
}

static air_ref
select_part(pass_build *b, air_ref x, int which)
{
    return B_OP(b, "select.int", at_value(x), at_int(b, -1), at_int(b, which));
}

static parts
read_parts(pass_build *b, air_ref z)
{
    parts p = {AIR_NO_REF, AIR_NO_REF};

    if (b->status != AIR_OK)
        return p;
    if (ir_val(b->g, z)->dtype == AIR_F32)
        return (parts){z, b_fullf(b, 0, NULL, 0.0, AIR_F32)};
    if (known_parts(b, z, &p))
        return p;
    const ir_node *n = pass_made_by(b->g, z, "view_as_complex");
    const air_ref x = n ? n->attrs[0].value : b_1(b, "view_as_real", z);
    return (parts){select_part(b, x, 0), select_part(b, x, 1)};
}

/* An element of pairs: of what they were made of. */
air_status
expand_pair_select(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    const air_ref x = node_in(g, node, 0);
    const ir_node *n = pass_made_by(g, x, "view_as_real");
    pass_build b = build_at(ctx, node);
    int64_t index;
    parts p;

    if (!is_last(g, node_attr(g, node, 1), ir_val(g, x)->rank) ||
        !pass_int(g, node_attr(g, node, 2), &index))
        return AIR_OK;
    if (n ? !known_parts(&b, n->attrs[0].value, &p) : !read_pairs(g, x, &p))
        return AIR_OK;
    return build_forward(&b, node, 0, index % 2 == 0 ? p.re : p.im);
}

/* ---- putting together ---------------------------------------------------- */

/* Of the sizes of `like`, with an axis of one behind. */
static air_ref
column(pass_build *b, air_ref x, air_ref like)
{
    const ir_value out = *ir_val(b->g, like);

    if (b->status == AIR_OK && !pass_same_dims(b->g, x, like))
        x = b_expand(b, x, out.rank, out.dims);
    return b_unsqueeze(b, x, -1);
}

/* The node becomes the pairs of its sizes. */
static air_status
forward_parts(pass_build *b, uint32_t node, air_ref re, air_ref im)
{
    const air_ref out = node_out(b->g, node, 0);
    const air_ref first = column(b, re, out);
    const air_ref columns[2] = {first, column(b, im, out)};
    const air_ref x = B_OP(b, "cat", at_values(b, 2, columns), at_int(b, -1));

    return build_forward(b, node, 0, b_1(b, "view_as_complex", x));
}

/* ---- operators ----------------------------------------------------------- */

/* The node, and what its operands are made of. */
typedef struct {
    pass_build b;
    parts x, y;
} operands;

static operands
operands_at(pass_context *ctx, uint32_t node)
{
    operands o = {.b = build_at(ctx, node)};

    o.x = read_parts(&o.b, node_in(ctx->g, node, 0));
    if (ir_node_at(ctx->g, node)->nattrs == 2)
        o.y = read_parts(&o.b, node_in(ctx->g, node, 1));
    return o;
}

air_status
expand_complex(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);

    return forward_parts(&b, node, node_in(ctx->g, node, 0),
                         node_in(ctx->g, node, 1));
}

/* (abs, angle) */
air_status
expand_polar(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const air_ref r = node_in(ctx->g, node, 0), at = node_in(ctx->g, node, 1);

    const air_ref re = b_mul(&b, r, b_1(&b, "cos", at));
    const air_ref im = b_mul(&b, r, b_1(&b, "sin", at));

    return forward_parts(&b, node, re, im);
}

typedef air_ref binary(pass_build *b, air_ref x, air_ref y);

/* Part by part. */
static air_status
expand_each(pass_context *ctx, uint32_t node, binary *op)
{
    operands o = operands_at(ctx, node);
    const air_ref re = op(&o.b, o.x.re, o.y.re);

    return forward_parts(&o.b, node, re, op(&o.b, o.x.im, o.y.im));
}

air_status
expand_complex_add(pass_context *ctx, uint32_t node)
{
    return expand_each(ctx, node, b_add);
}

air_status
expand_complex_sub(pass_context *ctx, uint32_t node)
{
    return expand_each(ctx, node, b_sub);
}

air_status
expand_complex_mul(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);
    pass_build *b = &o.b;
    const parts x = o.x, y = o.y;
    const air_ref ac = b_mul(b, x.re, y.re), bd = b_mul(b, x.im, y.im);
    const air_ref ad = b_mul(b, x.re, y.im), bc = b_mul(b, x.im, y.re);
    const air_ref re = b_sub(b, ac, bd);

    return forward_parts(b, node, re, b_add(b, ad, bc));
}

/* Smith's: by the ratio of the divisor's parts, so that no square overflows; of
 * zero as a real number is. */
air_status
expand_complex_div(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);
    pass_build *b = &o.b;
    const parts x = o.x, y = o.y;
    const air_ref size = b_1(b, "abs", y.re);
    const air_ref wide = b_2(b, "ge.Tensor", size, b_1(b, "abs", y.im));
    const air_ref big = b_where(b, wide, y.re, y.im);
    const air_ref small = b_where(b, wide, y.im, y.re);
    const air_ref ratio = b_div(b, small, big);
    const air_ref scale = b_1(b, "reciprocal", b_fma(b, small, ratio, big));
    const air_ref first = b_where(b, wide, x.re, x.im);
    const air_ref second = b_where(b, wide, x.im, x.re);
    const air_ref zero = b_2f(b, "eq.Tensor", big, 0.0);
    air_ref re = b_fma(b, second, ratio, first);
    air_ref im = b_fma(b, b_1(b, "neg", first), ratio, second);

    im = b_where(b, wide, im, b_1(b, "neg", im));
    re = b_mul(b, re, scale);
    re = b_where(b, zero, b_mulf(b, x.re, INFINITY), re);
    im = b_mul(b, im, scale);
    im = b_where(b, zero, b_mulf(b, x.im, INFINITY), im);
    return forward_parts(b, node, re, im);
}

static air_status
compare(pass_context *ctx, uint32_t node, const char *each, const char *both)
{
    operands o = operands_at(ctx, node);
    const air_ref re = b_2(&o.b, each, o.x.re, o.y.re);
    const air_ref im = b_2(&o.b, each, o.x.im, o.y.im);

    return build_forward(&o.b, node, 0, b_2(&o.b, both, re, im));
}

air_status
expand_complex_eq(pass_context *ctx, uint32_t node)
{
    return compare(ctx, node, "eq.Tensor", "logical_and");
}

air_status
expand_complex_ne(pass_context *ctx, uint32_t node)
{
    return compare(ctx, node, "ne.Tensor", "logical_or");
}

air_status
expand_complex_where(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const air_ref mask = node_in(ctx->g, node, 0);
    const parts x = read_parts(&b, node_in(ctx->g, node, 1));
    const parts y = read_parts(&b, node_in(ctx->g, node, 2));

    const air_ref re = b_where(&b, mask, x.re, y.re);
    return forward_parts(&b, node, re, b_where(&b, mask, x.im, y.im));
}

air_status
expand_complex_neg(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);
    const air_ref re = b_1(&o.b, "neg", o.x.re);

    return forward_parts(&o.b, node, re, b_1(&o.b, "neg", o.x.im));
}

air_status
expand_complex_conj(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);

    return forward_parts(&o.b, node, o.x.re, b_1(&o.b, "neg", o.x.im));
}

air_status
expand_complex_exp(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);
    const air_ref e = b_exp(&o.b, o.x.re);
    const air_ref re = b_mul(&o.b, e, b_1(&o.b, "cos", o.x.im));
    const air_ref im = b_mul(&o.b, e, b_1(&o.b, "sin", o.x.im));

    return forward_parts(&o.b, node, re, im);
}

/* z / |z|, and 0 of 0 */
air_status
expand_complex_sgn(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);
    pass_build *b = &o.b;
    const air_ref length = b_2(b, "hypot", o.x.re, o.x.im);
    const air_ref some = b_2f(b, "ne.Tensor", length, 0.0);
    const air_ref re = b_wheref(b, some, b_div(b, o.x.re, length), 0.0);
    const air_ref im = b_wheref(b, some, b_div(b, o.x.im, length), 0.0);

    return forward_parts(b, node, re, im);
}

air_status
expand_complex_real(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);

    return build_forward(&o.b, node, 0, o.x.re);
}

air_status
expand_complex_abs(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);

    return build_forward(&o.b, node, 0, b_2(&o.b, "hypot", o.x.re, o.x.im));
}

air_status
expand_complex_angle(pass_context *ctx, uint32_t node)
{
    operands o = operands_at(ctx, node);

    return build_forward(&o.b, node, 0, b_2(&o.b, "atan2", o.x.im, o.x.re));
}

/* ---- reductions: (a, dim, keepdim) --------------------------------------- */

typedef air_ref fold(pass_build *b, air_ref x, int n, const int *axes,
                     bool keep);

static air_status
reduce(pass_context *ctx, uint32_t node, fold *of)
{
    ir_graph *g = ctx->g;
    pass_build b = build_at(ctx, node);
    const air_ref z = node_in(g, node, 0);
    const bool keep = node_flag(g, node, 2);
    const int rank = ir_val(g, z)->rank;
    int n, axes[AIR_MAX_RANK];

    AIR_TRY(node_axes(g, node, 1, rank, &n, axes));
    const parts p = read_parts(&b, z);
    const air_ref re = of(&b, p.re, n, axes, keep);
    return forward_parts(&b, node, re, of(&b, p.im, n, axes, keep));
}

air_status
expand_complex_sum(pass_context *ctx, uint32_t node)
{
    return reduce(ctx, node, b_sum);
}

air_status
expand_complex_mean(pass_context *ctx, uint32_t node)
{
    return reduce(ctx, node, expand_mean_over);
}
