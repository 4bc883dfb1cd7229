/* build.c: nodes of a rewrite, and reading the node that is rewritten. */
#include "pass/build.h"

#include <string.h>

pass_build
build_at(pass_context *ctx, uint32_t node)
{
    return (pass_build){.ctx = ctx,
                        .g = ctx->g,
                        .before = node,
                        .loc = ir_node_at(ctx->g, node)->loc,
                        .scope = ir_node_at(ctx->g, node)->scope};
}

air_status
build_forward(pass_build *b, uint32_t node, int index, air_ref to)
{
    air_ref from = node_out(b->g, node, index);

    to = b_cast(b, to, ir_val(b->g, from)->dtype);
    AIR_TRY(b->status);
    AIR_REQUIRE(pass_same_dims(b->g, from, to), AIR_ERROR_SHAPE,
                "result %d of %s changes its sizes in pass expand", index,
                ir_info(ir_node_at(b->g, node))->name);
    return pass_forward(b->ctx, from, to);
}

/* ---- attributes ---------------------------------------------------------- */

air_dim
b_dim(pass_build *b, int64_t v)
{
    air_dim d = {0};

    if (b->status == AIR_OK)
        b->status = ir_dim_const(b->g, v, &d);
    return d;
}

air_dim
b_dim2(pass_build *b, ir_dim_op op, air_dim x, air_dim y)
{
    air_dim d = {0};

    if (b->status == AIR_OK)
        b->status = ir_dim_make(b->g, op, x, y, &d);
    return d;
}

air_dim
b_count(pass_build *b, air_ref x, int n, const int *axes)
{
    air_dim d = b_dim(b, 1);

    for (int i = 0; i < n && b->status == AIR_OK; i++)
        d = b_dim2(b, IR_DIM_MUL, d, ir_val(b->g, x)->dims[axes[i]]);
    return d;
}

air_attr
at_int(pass_build *b, int64_t v)
{
    return at_dim(b_dim(b, v));
}

air_attr
at_ints(pass_build *b, size_t n, const int *v)
{
    air_dim *dims = NULL;

    if (b->status == AIR_OK)
        b->status = BASE_ARENA_ARRAY(b->ctx->scratch, n, &dims);
    for (size_t i = 0; i < n && b->status == AIR_OK; i++)
        dims[i] = b_dim(b, v[i]);
    return at_dims(n, dims);
}

air_attr
at_values(pass_build *b, size_t n, const air_ref *v)
{
    (void)b;
    return (air_attr){.kind = AIR_ATTR_VALUES, .count = n, .values = v};
}

/* ---- nodes --------------------------------------------------------------- */

static air_status
add_node(pass_build *b, const char *name, size_t n, const air_attr *attrs,
         size_t nouts, air_ref *outs)
{
    ir_op op = ir_op_find(name, strlen(name));

    AIR_REQUIRE(op != AIR_OP_NONE, AIR_ERROR_UNSUPPORTED,
                "a pass needs op '%s', which has no row", name);
    AIR_REQUIRE(ir_op_get(op)->nrets == nouts, AIR_ERROR_UNSUPPORTED,
                "op '%s' has %d results", name, (int)ir_op_get(op)->nrets);
    AIR_TRY(ir_add_node(b->g, op, n, attrs, b->before, b->loc, outs));
    ir_node_at(b->g, (uint32_t)b->g->nodes.count - 1)->scope = b->scope;
    return AIR_OK;
}

void
b_node(pass_build *b, const char *op, size_t n, const air_attr *attrs,
       size_t nouts, air_ref *outs)
{
    for (size_t i = 0; i < nouts; i++)
        outs[i] = AIR_NO_REF;
    if (b->status == AIR_OK)
        b->status = add_node(b, op, n, attrs, nouts, outs);
}

air_ref
b_op(pass_build *b, const char *op, size_t n, const air_attr *attrs)
{
    air_ref out;

    b_node(b, op, n, attrs, 1, &out);
    return out;
}

air_ref
b_1(pass_build *b, const char *op, air_ref x)
{
    return B_OP(b, op, at_value(x));
}

air_ref
b_2(pass_build *b, const char *op, air_ref x, air_ref y)
{
    return B_OP(b, op, at_value(x), at_value(y));
}

air_ref
b_2f(pass_build *b, const char *op, air_ref x, double y)
{
    return B_OP(b, op, at_value(x), at_float(y));
}

air_ref
b_add(pass_build *b, air_ref x, air_ref y)
{
    return b_2(b, "add.Tensor", x, y);
}

air_ref
b_sub(pass_build *b, air_ref x, air_ref y)
{
    return b_2(b, "sub.Tensor", x, y);
}

air_ref
b_mul(pass_build *b, air_ref x, air_ref y)
{
    return b_2(b, "mul.Tensor", x, y);
}

air_ref
b_div(pass_build *b, air_ref x, air_ref y)
{
    return b_2(b, "div.Tensor", x, y);
}

air_ref
b_fma(pass_build *b, air_ref x, air_ref y, air_ref z)
{
    return B_OP(b, "prims::fma", at_value(x), at_value(y), at_value(z));
}

air_ref
b_addf(pass_build *b, air_ref x, double y)
{
    return b_2f(b, "add.Tensor", x, y);
}

air_ref
b_mulf(pass_build *b, air_ref x, double y)
{
    return b_2f(b, "mul.Tensor", x, y);
}

air_ref
b_rsubf(pass_build *b, double x, air_ref y)
{
    return B_OP(b, "sub.Tensor", at_float(x), at_value(y));
}

air_ref
b_divd(pass_build *b, air_ref x, air_dim d)
{
    return B_OP(b, "div.Tensor", at_value(x), at_dim(d));
}

air_ref
b_muld(pass_build *b, air_ref x, air_dim d)
{
    return B_OP(b, "mul.Tensor", at_value(x), at_dim(d));
}

air_ref
b_exp(pass_build *b, air_ref x)
{
    return b_1(b, "exp", x);
}

air_ref
b_sqrt(pass_build *b, air_ref x)
{
    return b_1(b, "sqrt", x);
}

air_ref
b_where(pass_build *b, air_ref cond, air_ref x, air_ref y)
{
    return B_OP(b, "where.self", at_value(cond), at_value(x), at_value(y));
}

air_ref
b_wheref(pass_build *b, air_ref cond, air_ref x, double y)
{
    return B_OP(b, "where.self", at_value(cond), at_value(x), at_float(y));
}

air_ref
b_cast(pass_build *b, air_ref x, air_dtype dtype)
{
    if (b->status != AIR_OK || ir_val(b->g, x)->dtype == dtype)
        return x;
    return B_OP(b, "_to_copy", at_value(x), at_dtype(dtype));
}

air_ref
b_wide(pass_build *b, air_ref x)
{
    if (b->status != AIR_OK)
        return x;
    uint8_t dtype = ir_val(b->g, x)->dtype;
    return dtype == AIR_BF16 || dtype == AIR_F16 ? b_cast(b, x, AIR_F32) : x;
}

air_ref
b_fullf(pass_build *b, int rank, const air_dim *dims, double v, air_dtype dtype)
{
    return B_OP(b, "full", at_dims((size_t)rank, dims), at_float(v),
                at_dtype(dtype));
}

static air_ref
reduce(pass_build *b, const char *op, air_ref x, int n, const int *axes,
       bool keep)
{
    if (n == 0)
        return x;
    return B_OP(b, op, at_value(x), at_ints(b, (size_t)n, axes), at_bool(keep));
}

air_ref
b_sum(pass_build *b, air_ref x, int n, const int *axes, bool keep)
{
    return reduce(b, "sum.dim_IntList", x, n, axes, keep);
}

air_ref
b_amax(pass_build *b, air_ref x, int n, const int *axes, bool keep)
{
    return reduce(b, "amax", x, n, axes, keep);
}

air_ref
b_amin(pass_build *b, air_ref x, int n, const int *axes, bool keep)
{
    return reduce(b, "amin", x, n, axes, keep);
}

air_ref
b_view(pass_build *b, air_ref x, int rank, const air_dim *dims)
{
    return B_OP(b, "view", at_value(x), at_dims((size_t)rank, dims));
}

air_ref
b_expand(pass_build *b, air_ref x, int rank, const air_dim *dims)
{
    return B_OP(b, "expand", at_value(x), at_dims((size_t)rank, dims));
}

air_ref
b_permute(pass_build *b, air_ref x, int rank, const int *order)
{
    return B_OP(b, "permute", at_value(x), at_ints(b, (size_t)rank, order));
}

air_ref
b_unsqueeze(pass_build *b, air_ref x, int axis)
{
    return B_OP(b, "unsqueeze", at_value(x), at_int(b, axis));
}

air_ref
b_slice(pass_build *b, air_ref x, int axis, air_dim start, air_dim end)
{
    return B_OP(b, "slice.Tensor", at_value(x), at_int(b, axis), at_dim(start),
                at_dim(end));
}

air_ref
b_every_other(pass_build *b, air_ref x, int64_t first)
{
    const int64_t size = pass_size_at(b->g, x, 1);

    return size <= 1 ? x
                     : B_OP(b, "slice.Tensor", at_value(x), at_int(b, -1),
                            at_int(b, first), at_int(b, size), at_int(b, 2));
}

air_ref
b_along(pass_build *b, air_ref x, int rank, int axis)
{
    air_dim dims[AIR_MAX_RANK], one = b_dim(b, 1);

    if (b->status != AIR_OK)
        return AIR_NO_REF;
    for (int i = 0; i < rank; i++)
        dims[i] = i == axis ? ir_val(b->g, x)->dims[0] : one;
    return b_view(b, x, rank, dims);
}

/* ---- reading ------------------------------------------------------------- */

air_ref
node_in(const ir_graph *g, uint32_t node, int i)
{
    const air_attr *attr = node_attr(g, node, i);
    return attr->kind == AIR_ATTR_VALUE ? attr->value : AIR_NO_REF;
}

bool
node_flag(const ir_graph *g, uint32_t node, int i)
{
    const air_attr *attr = node_attr(g, node, i);
    return attr->kind == AIR_ATTR_BOOL && attr->b;
}

air_status
node_number(const ir_graph *g, uint32_t node, int i, double *out)
{
    const ir_op_info *info = ir_info(ir_node_at(g, node));

    AIR_REQUIRE(pass_number(g, node_attr(g, node, i), out),
                AIR_ERROR_UNSUPPORTED, "%s: '%s' must be a constant number",
                info->name, info->params[i].name);
    return AIR_OK;
}

air_status
node_int(const ir_graph *g, uint32_t node, int i, int64_t *out)
{
    const ir_op_info *info = ir_info(ir_node_at(g, node));

    AIR_REQUIRE(pass_int(g, node_attr(g, node, i), out), AIR_ERROR_UNSUPPORTED,
                "%s: '%s' must be a constant", info->name,
                info->params[i].name);
    return AIR_OK;
}

static air_status
mark_axes(const ir_graph *g, uint32_t node, int i, int rank, bool *in)
{
    const ir_op_info *info = ir_info(ir_node_at(g, node));
    const air_attr *attr = node_attr(g, node, i);
    size_t n = attr->kind == AIR_ATTR_INT ? 1 : attr->count;

    for (size_t k = 0; k < n; k++) {
        air_attr one =
            attr->kind == AIR_ATTR_INT ? *attr : at_dim(attr->dims[k]);
        int axis;
        AIR_TRY(ir_axis(g, &one, rank, info->params[i].name, &axis));
        in[axis] = true;
    }
    return AIR_OK;
}

air_status
node_axes(const ir_graph *g, uint32_t node, int i, int rank, int *out_n,
          int *out_axes)
{
    const air_attr *attr = node_attr(g, node, i);
    bool in[AIR_MAX_RANK + 1] = {false};
    bool all = attr->kind == AIR_ATTR_NONE ||
               (attr->kind == AIR_ATTR_INTS && attr->count == 0);

    *out_n = 0;
    if (!all && rank > 0)
        AIR_TRY(mark_axes(g, node, i, rank, in));
    for (int axis = 0; axis < rank; axis++)
        if (all || in[axis])
            out_axes[(*out_n)++] = axis;
    return AIR_OK;
}
