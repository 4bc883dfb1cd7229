/* fold.c: pass fold: a `full` is a number wherever a number will do. */
#include <math.h>
#include <string.h>

#include "pass/build.h"

/* ---- values of a dtype --------------------------------------------------- */

/* v as the dtype holds it; false: integers out of range. */
static bool
round_to(air_dtype dtype, double v, double *out)
{
    switch (dtype) {
    case AIR_F64: *out = v; return true;
    case AIR_F32: *out = (double)(float)v; return true;
    case AIR_BF16:
    case AIR_F16:
        *out = ir_half(dtype, v);
        return isfinite(*out) || !isfinite(v);
    case AIR_BOOL: *out = v != 0.0; return true;
    default:
        *out = trunc(v);
        return v >= (dtype == AIR_U8 ? 0.0 : -128.0) && v <= 127.0;
    }
}

static air_attr
number_of(pass_build *b, air_dtype dtype, double v)
{
    if (dtype == AIR_BOOL)
        return at_bool(v != 0.0);
    return ir_is_float(dtype) ? at_float(v) : at_int(b, (int64_t)v);
}

/* The number that every element of r is. */
static bool
full_value(const ir_graph *g, air_ref r, double *out)
{
    const ir_node *n = pass_made_by(g, r, "full");
    double v;

    return n && pass_number(g, &n->attrs[1], &v) &&
           round_to((air_dtype)ir_val(g, r)->dtype, v, out);
}

/* ---- rewrites ------------------------------------------------------------ */

static air_status
forward_number(pass_context *ctx, uint32_t node, double v)
{
    air_ref out = node_out(ctx->g, node, 0);
    air_dtype dtype = (air_dtype)ir_val(ctx->g, out)->dtype;
    pass_build b = build_at(ctx, node);

    if (!pass_allow(ctx))
        return AIR_OK;
    air_attr value = number_of(&b, dtype, v);
    return build_forward(
        &b, node, 0,
        B_OP(&b, "full",
             at_dims(ir_val(ctx->g, out)->rank, ir_val(ctx->g, out)->dims),
             value, at_dtype(dtype)));
}

/* A view or a cast of a full. */
static air_status
fold_moved(pass_context *ctx, uint32_t node)
{
    air_ref x = node_in(ctx->g, node, 0);
    air_dtype dtype =
        (air_dtype)ir_val(ctx->g, node_out(ctx->g, node, 0))->dtype;
    double v;

    if (ir_node_at(ctx->g, node)->nouts != 1 || x.id == AIR_NO_REF.id ||
        !full_value(ctx->g, x, &v) || !round_to(dtype, v, &v))
        return AIR_OK;
    return forward_number(ctx, node, v);
}

/* Is there a tensor operand other than i with its dtype, which then decides
 * the dtype and, with the rest, the sizes of the result without it? */
static bool
is_spare(const ir_graph *g, const ir_node *n, int i)
{
    const uint8_t dtype = ir_val(g, n->attrs[i].value)->dtype;
    const air_ref out = n->outs[0];

    for (int k = 0; k < n->nattrs; k++)
        if (k != i && n->attrs[k].kind == AIR_ATTR_VALUE &&
            ir_val(g, n->attrs[k].value)->dtype == dtype &&
            pass_same_dims(g, n->attrs[k].value, out))
            return true;
    return false;
}

/* Operands of a pointwise node that are a full become its number. */
static air_status
fold_operands(pass_context *ctx, uint32_t node)
{
    ir_node *n = ir_node_at(ctx->g, node);
    const ir_op_info *info = ir_info(n);
    pass_build b = build_at(ctx, node);

    for (int i = 0; i < n->nattrs; i++) {
        double v;
        if (info->params[i].kind != IR_PARAM_TENSOR ||
            n->attrs[i].kind != AIR_ATTR_VALUE ||
            !full_value(ctx->g, n->attrs[i].value, &v) ||
            !is_spare(ctx->g, n, i) || !pass_allow(ctx))
            continue;
        uint8_t dtype = ir_val(ctx->g, n->attrs[i].value)->dtype;
        air_attr value = number_of(&b, (air_dtype)dtype, v);
        AIR_TRY(b.status);
        n->attrs[i] = value;
    }
    return AIR_OK;
}

/* Arithmetic of two numbers, computed as the dtype's lane would. */
static bool
compute(const char *op, air_dtype dtype, double x, double y, double *out)
{
    if (dtype != AIR_F32 && dtype != AIR_F64)
        return false;
    if (strcmp(op, "add.Tensor") == 0)
        *out = x + y;
    else if (strcmp(op, "sub.Tensor") == 0)
        *out = x - y;
    else if (strcmp(op, "mul.Tensor") == 0)
        *out = x * y;
    else if (strcmp(op, "div.Tensor") == 0)
        *out = x / y;
    else
        return false;
    return round_to(dtype, *out, out);
}

static bool
operand_value(const ir_graph *g, const air_attr *attr, air_dtype dtype,
              double *out)
{
    if (attr->kind == AIR_ATTR_VALUE)
        return full_value(g, attr->value, out) &&
               ir_val(g, attr->value)->dtype == dtype;
    return pass_number(g, attr, out) && round_to(dtype, *out, out);
}

static air_status
fold_arithmetic(pass_context *ctx, uint32_t node)
{
    ir_graph *g = ctx->g;
    const ir_node *n = ir_node_at(g, node);
    air_dtype dtype = (air_dtype)ir_val(g, n->outs[0])->dtype;
    double x, y, v, alpha = 1.0;

    if (n->nattrs < 2 || !operand_value(g, &n->attrs[0], dtype, &x) ||
        !operand_value(g, &n->attrs[1], dtype, &y))
        return AIR_OK;
    if (n->nattrs > 2 && !pass_number(g, &n->attrs[2], &alpha))
        return AIR_OK;
    if (alpha != 1.0 || !compute(ir_info(n)->name, dtype, x, y, &v))
        return AIR_OK;
    return forward_number(ctx, node, v);
}

/* The same bits, other numbers. */
static bool
renames(const ir_graph *g, const ir_node *n)
{
    return ir_val(g, n->attrs[0].value)->dtype != ir_val(g, n->outs[0])->dtype;
}

static air_status
visit(pass_context *ctx, uint32_t node, void *arg)
{
    const ir_node *n = ir_node_at(ctx->g, node);

    (void)arg;
    if (n->op == AIR_OP_HOST || n->inplace)
        return AIR_OK;
    const ir_op_info *info = ir_info(n);
    if (info->cls == IR_CLASS_VIEW && renames(ctx->g, n))
        return AIR_OK;
    if (info->cls == IR_CLASS_VIEW || strcmp(info->name, "_to_copy") == 0)
        return fold_moved(ctx, node);
    if (info->cls != IR_CLASS_POINTWISE)
        return AIR_OK;
    AIR_TRY(fold_operands(ctx, node));
    return fold_arithmetic(ctx, node);
}

air_status
pass_fold(pass_context *ctx)
{
    AIR_TRY(pass_walk(ctx, visit, NULL));
    return pass_sweep(ctx);
}
