/* canon_copy.c: copies and casts that change nothing. */
#include "pass/canon.h"

air_status
canon_copy_of(pass_context *ctx, uint32_t node)
{
    air_ref x = node_in(ctx->g, node, 0);

    return x.id == AIR_NO_REF.id ? canon_number(ctx, node)
                                 : canon_drop(ctx, node, x);
}

/* Significant bits of a dtype's values; integers: of their magnitude. */
static int
digits(air_dtype d)
{
    switch (d) {
    case AIR_F64: return 53;
    case AIR_F32: return 24;
    case AIR_F16: return 11;
    case AIR_BF16: return 8;
    case AIR_BOOL: return 1;
    case AIR_I8: return 7;
    case AIR_U8: return 8;
    case AIR_I16: return 15;
    case AIR_I32: return 31;
    default: return 63;
    }
}

/* Has every value of `from` its equal in `to`? */
static bool
embeds(air_dtype from, air_dtype to)
{
    if (from == to || from == AIR_BOOL)
        return true;
    if (to == AIR_BOOL || (ir_is_float(from) && !ir_is_float(to)))
        return false;
    if (from == AIR_BF16 || to == AIR_BF16) /* its exponents fit f32, f64 */
        return from == AIR_BF16 && (to == AIR_F32 || to == AIR_F64);
    if (to == AIR_U8)
        return false;
    return digits(from) <= digits(to) && from != AIR_I64;
}

/* A cast of a cast that lost nothing is one cast. Integers that go on to an
 * integer or bool by way of a float stay: floats wrap in another way. */
static bool
can_skip(air_dtype first, air_dtype middle, air_dtype last)
{
    if (!embeds(first, middle))
        return false;
    return ir_is_float(first) || !ir_is_float(middle) || ir_is_float(last);
}

air_status
canon_cast(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref x = node_in(g, node, 0), out = node_out(g, node, 0);
    air_dtype to = (air_dtype)ir_val(g, out)->dtype;

    if (x.id == AIR_NO_REF.id)
        return canon_number(ctx, node);
    const ir_node *inner = pass_made_by(g, x, "_to_copy");
    if (!inner)
        return canon_drop(ctx, node, x);
    air_ref first = inner->attrs[0].value;
    if (!can_skip((air_dtype)ir_val(g, first)->dtype,
                  (air_dtype)ir_val(g, x)->dtype, to) ||
        pass_is_mutated(ctx, first))
        return canon_drop(ctx, node, x);
    if (ir_val(g, first)->dtype == to)
        return canon_drop(ctx, node, first);
    if (!pass_allow(ctx))
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    return build_forward(&b, node, 0, b_cast(&b, first, to));
}

/* copy(a, src): src with a's dtype and sizes. */
air_status
canon_copy(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref src = node_in(g, node, 1), out = node_out(g, node, 0);
    pass_build b = build_at(ctx, node);

    if (src.id == AIR_NO_REF.id || !pass_allow(ctx))
        return AIR_OK;
    air_ref y = b_cast(&b, src, (air_dtype)ir_val(g, out)->dtype);
    AIR_TRY(b.status);
    if (!pass_same_dims(g, y, out))
        y = b_expand(&b, y, ir_val(g, out)->rank, ir_val(g, out)->dims);
    AIR_TRY(b.status);
    if (!pass_may_share(ctx, out, y))
        y = b_1(&b, "clone", y);
    return build_forward(&b, node, 0, y);
}

air_status
canon_cat(pass_context *ctx, uint32_t node)
{
    const air_attr *in = node_attr(ctx->g, node, 0);
    return in->count == 1 ? canon_drop(ctx, node, in->values[0]) : AIR_OK;
}

/* (a, src, dim, start, end, step): all of a is replaced. */
air_status
canon_slice_scatter(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    air_ref src = node_in(g, node, 1);
    int64_t step;

    if (!pass_int(g, node_attr(g, node, 5), &step) || step != 1)
        return AIR_OK;
    return canon_drop(ctx, node, src);
}
