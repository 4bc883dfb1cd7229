/* infer.c: arguments of a node in the form its schema asks for, and the dtypes
 * of its results by ATen's rules. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/graph.h"

/* ---- arguments ----------------------------------------------------------- */

static const char *const kind_text[] = {
    "a tensor", "a list of tensors", "an integer",    "a list of integers",
    "a number", "a list of numbers", "true or false", "a list of booleans",
    "a number", "a dtype",           "a string",      "ignored"};

static air_status
fail_kind(const ir_op_info *info, const ir_param *p)
{
    AIR_FAIL(AIR_ERROR_ARGUMENT, "%s: argument %s must be %s", info->name,
             p->name, kind_text[p->kind]);
}

static bool
is_number(const air_attr *a)
{
    return a->kind == AIR_ATTR_INT || a->kind == AIR_ATTR_FLOAT ||
           a->kind == AIR_ATTR_BOOL;
}

static bool
is_list(const air_attr *a)
{
    return a->kind == AIR_ATTR_INTS || a->kind == AIR_ATTR_FLOATS ||
           a->kind == AIR_ATTR_BOOLS || a->kind == AIR_ATTR_VALUES;
}

static air_status
check_value(const ir_graph *g, const ir_op_info *info, const ir_param *p,
            air_ref r, bool optional)
{
    AIR_REQUIRE(r.id < g->values.count || (optional && r.id == AIR_NO_REF.id),
                AIR_ERROR_ARGUMENT, "%s: argument %s is no value of the graph",
                info->name, p->name);
    return AIR_OK;
}

/* int -> float, and nothing else */
static air_status
to_float(const ir_graph *g, const ir_op_info *info, const ir_param *p,
         const air_attr *in, air_attr *out)
{
    int64_t v;

    *out = *in;
    if (in->kind == AIR_ATTR_FLOAT)
        return AIR_OK;
    if (in->kind != AIR_ATTR_INT || !ir_dim_is_const(g, in->dim, &v))
        return fail_kind(info, p);
    *out = (air_attr){.kind = AIR_ATTR_FLOAT, .f = (double)v};
    return AIR_OK;
}

static air_status
to_floats(ir_graph *g, const ir_op_info *info, const ir_param *p,
          const air_attr *in, air_attr *out)
{
    double *list;
    int64_t v;

    if (in->kind == AIR_ATTR_FLOATS)
        return graph_copy_attr(g, in, out);
    if (in->kind != AIR_ATTR_INTS && !(is_list(in) && in->count == 0))
        return fail_kind(info, p);
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, in->count, &list));
    for (size_t i = 0; i < in->count; i++) {
        if (!ir_dim_is_const(g, in->dims[i], &v))
            return fail_kind(info, p);
        list[i] = (double)v;
    }
    *out =
        (air_attr){.kind = AIR_ATTR_FLOATS, .count = in->count, .floats = list};
    return AIR_OK;
}

/* A lone int stands for a list; an empty list has no kind of its own. */
static air_status
to_ints(ir_graph *g, const ir_op_info *info, const ir_param *p,
        const air_attr *in, air_attr *out)
{
    size_t n = p->size ? p->size : 1;
    air_dim *list;

    if (in->kind == AIR_ATTR_INTS)
        return graph_copy_attr(g, in, out);
    *out = (air_attr){.kind = AIR_ATTR_INTS};
    if (is_list(in) && in->count == 0)
        return AIR_OK;
    if (in->kind != AIR_ATTR_INT)
        return fail_kind(info, p);
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, n, &list));
    for (size_t i = 0; i < n; i++)
        list[i] = in->dim;
    out->count = n;
    out->dims = list;
    return AIR_OK;
}

static air_status
to_values(ir_graph *g, const ir_op_info *info, const ir_param *p,
          const air_attr *in, air_attr *out)
{
    *out = (air_attr){.kind = AIR_ATTR_VALUES};
    if (is_list(in) && in->count == 0)
        return AIR_OK;
    if (in->kind != AIR_ATTR_VALUES)
        return fail_kind(info, p);
    for (size_t i = 0; i < in->count; i++)
        AIR_TRY(check_value(g, info, p, in->values[i], p->optional));
    return graph_copy_attr(g, in, out);
}

static air_status
to_tensor(const ir_graph *g, const ir_op_info *info, const ir_param *p,
          const air_attr *in, air_attr *out)
{
    *out = *in;
    if (in->kind == AIR_ATTR_VALUE)
        return check_value(g, info, p, in->value, false);
    if (is_number(in) && info->cls == IR_CLASS_POINTWISE)
        return AIR_OK;
    return fail_kind(info, p);
}

static air_status
to_bool(const ir_graph *g, const ir_op_info *info, const ir_param *p,
        const air_attr *in, air_attr *out)
{
    int64_t v;

    *out = *in;
    if (in->kind == AIR_ATTR_BOOL)
        return AIR_OK;
    if (in->kind != AIR_ATTR_INT || !ir_dim_is_const(g, in->dim, &v))
        return fail_kind(info, p);
    *out = (air_attr){.kind = AIR_ATTR_BOOL, .b = v != 0};
    return AIR_OK;
}

static air_status
convert_attr(ir_graph *g, const ir_op_info *info, const ir_param *p,
             const air_attr *in, air_attr *out)
{
    bool ok = false;

    switch ((ir_param_kind)p->kind) {
    case IR_PARAM_TENSOR: return to_tensor(g, info, p, in, out);
    case IR_PARAM_TENSORS: return to_values(g, info, p, in, out);
    case IR_PARAM_INTS: return to_ints(g, info, p, in, out);
    case IR_PARAM_FLOAT: return to_float(g, info, p, in, out);
    case IR_PARAM_FLOATS: return to_floats(g, info, p, in, out);
    case IR_PARAM_BOOL: return to_bool(g, info, p, in, out);
    case IR_PARAM_INT: ok = in->kind == AIR_ATTR_INT; break;
    case IR_PARAM_BOOLS: ok = in->kind == AIR_ATTR_BOOLS; break;
    case IR_PARAM_SCALAR: ok = is_number(in); break;
    case IR_PARAM_DTYPE:
        ok = in->kind == AIR_ATTR_DTYPE && in->dtype > AIR_DTYPE_NONE &&
             in->dtype < AIR_DTYPE_COUNT;
        break;
    case IR_PARAM_STR: ok = in->kind == AIR_ATTR_STR; break;
    case IR_PARAM_IGNORED: break;
    }
    return ok ? graph_copy_attr(g, in, out) : fail_kind(info, p);
}

/* nan_to_num: infinities become the largest numbers of the dtype. */
static void
fill_limits(const ir_graph *g, const ir_op_info *info, air_attr *attrs)
{
    static const double limits[AIR_DTYPE_COUNT] = {[AIR_F32] = FLT_MAX,
                                                   [AIR_F64] = DBL_MAX,
                                                   [AIR_F16] = 65504.0,
                                                   [AIR_BF16] = 0x1.fep127};
    int high = ir_param_find(info, "posinf");
    int low = ir_param_find(info, "neginf");

    if (high < 0 || attrs[0].kind != AIR_ATTR_VALUE)
        return;
    double limit = limits[ir_val(g, attrs[0].value)->dtype];
    if (attrs[high].kind == AIR_ATTR_NONE)
        attrs[high] = (air_attr){.kind = AIR_ATTR_FLOAT, .f = limit};
    if (attrs[low].kind == AIR_ATTR_NONE)
        attrs[low] = (air_attr){.kind = AIR_ATTR_FLOAT, .f = -limit};
}

air_status
infer_normalise(ir_graph *g, const ir_op_info *info, size_t nattrs,
                const air_attr *attrs, air_attr **out)
{
    AIR_REQUIRE(nattrs <= info->nparams, AIR_ERROR_ARGUMENT,
                "%s takes %d arguments, not %zu", info->name, info->nparams,
                nattrs);
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, info->nparams, out));
    for (size_t i = 0; i < info->nparams; i++) {
        const ir_param *p = &info->params[i];
        if (p->kind == IR_PARAM_IGNORED)
            continue;
        if (i < nattrs && attrs[i].kind != AIR_ATTR_NONE)
            AIR_TRY(convert_attr(g, info, p, &attrs[i], &(*out)[i]));
        else if (p->has_default)
            (*out)[i] = p->def;
        else
            AIR_REQUIRE(p->optional, AIR_ERROR_ARGUMENT,
                        "%s: argument %s is missing", info->name, p->name);
    }
    fill_limits(g, info, *out);
    return AIR_OK;
}

/* ---- promotion ----------------------------------------------------------- */

double
ir_half(air_dtype half, double v)
{
    const int digits = half == AIR_BF16 ? 8 : 11;
    const int least = half == AIR_BF16 ? -133 : -24; /* exponent of a bit */
    const double most = half == AIR_BF16 ? 0x1.fep127 : 65504;
    int e;

    v = (double)(float)v;
    if (v == 0 || !isfinite(v))
        return v;
    (void)frexp(v, &e);
    const int last = e - digits < least ? least : e - digits;
    const double y = ldexp(rint(ldexp(v, -last)), last);
    return fabs(y) <= most ? y : copysign((double)INFINITY, v);
}

static air_dtype
promote_floats(air_dtype a, air_dtype b)
{
    if (a == AIR_F64 || b == AIR_F64)
        return AIR_F64;
    return AIR_F32; /* bf16 with f16 too */
}

air_dtype
ir_promote(air_dtype a, air_dtype b)
{
    if (a == b || b == AIR_DTYPE_NONE)
        return a;
    if (a == AIR_DTYPE_NONE)
        return b;
    if (ir_is_float(a) && ir_is_float(b))
        return promote_floats(a, b);
    if (ir_is_float(a) || b == AIR_BOOL)
        return a;
    if (ir_is_float(b) || a == AIR_BOOL)
        return b;
    if ((a == AIR_U8 && b == AIR_I8) || (a == AIR_I8 && b == AIR_U8))
        return AIR_I16;
    return a > b ? a : b; /* I8 U8 I16 I32 I64 */
}

/* ATen's three categories: tensors with dims win over tensors without, these
 * over Python numbers, as long as the kind (bool, integer, float) is no lower.
 */
typedef struct {
    air_dtype dim, zero, number;
} operand_dtypes;

static air_dtype
combine(air_dtype higher, air_dtype lower)
{
    if (ir_is_float(higher))
        return higher;
    if (higher == AIR_BOOL || ir_is_float(lower))
        return ir_promote(higher, lower);
    return higher != AIR_DTYPE_NONE ? higher : lower;
}

static void
add_operand(const ir_graph *g, const air_attr *a, operand_dtypes *d)
{
    if (a->kind == AIR_ATTR_VALUE) {
        const ir_value *v = ir_val(g, a->value);
        air_dtype *to = v->rank > 0 ? &d->dim : &d->zero;
        *to = ir_promote(*to, (air_dtype)v->dtype);
    } else if (a->kind == AIR_ATTR_FLOAT) {
        d->number = ir_promote(d->number, AIR_F32);
    } else if (a->kind == AIR_ATTR_INT) {
        d->number = ir_promote(d->number, AIR_I64);
    } else if (a->kind == AIR_ATTR_BOOL) {
        d->number = ir_promote(d->number, AIR_BOOL);
    }
}

/* Numbers that are operands are named a, b, c, min, max in the op table;
 * others (alpha, value, eps ...) do not take part. */
static bool
takes_part(const ir_param *p)
{
    if (p->kind == IR_PARAM_TENSOR)
        return true;
    return p->kind == IR_PARAM_SCALAR &&
           ((p->name[0] <= 'c' && p->name[1] == '\0') ||
            strcmp(p->name, "min") == 0 || strcmp(p->name, "max") == 0);
}

static air_dtype
promoted(const ir_graph *g, const ir_op_info *info, const air_attr *attrs,
         int from)
{
    operand_dtypes d = {AIR_DTYPE_NONE, AIR_DTYPE_NONE, AIR_DTYPE_NONE};

    for (int i = from; i < info->nparams; i++) {
        if (takes_part(&info->params[i]))
            add_operand(g, &attrs[i], &d);
        if (info->params[i].kind == IR_PARAM_TENSORS)
            for (size_t k = 0; k < attrs[i].count; k++)
                if (attrs[i].values[k].id != AIR_NO_REF.id)
                    add_operand(g,
                                &(air_attr){.kind = AIR_ATTR_VALUE,
                                            .value = attrs[i].values[k]},
                                &d);
    }
    return combine(d.dim, combine(d.zero, d.number));
}

static air_dtype
first_dtype(const ir_graph *g, const ir_op_info *info, const air_attr *attrs)
{
    for (int i = 0; i < info->nparams; i++)
        if (attrs[i].kind == AIR_ATTR_VALUE)
            return (air_dtype)ir_val(g, attrs[i].value)->dtype;
    /* Only numbers: they are the operands. */
    return promoted(g, info, attrs, 0);
}

static air_dtype
dtype_attr(const ir_op_info *info, const air_attr *attrs)
{
    int i = ir_param_find(info, "dtype");
    return i >= 0 && attrs[i].kind == AIR_ATTR_DTYPE ? attrs[i].dtype
                                                     : AIR_DTYPE_NONE;
}

static bool
has_arg(const ir_op_info *info, const air_attr *attrs, const char *name)
{
    int i = ir_param_find(info, name);
    return i >= 0 && attrs[i].kind != AIR_ATTR_NONE;
}

static air_dtype
or_default(air_dtype d, air_dtype otherwise)
{
    return d != AIR_DTYPE_NONE ? d : otherwise;
}

static air_dtype
result_dtype(const ir_graph *g, const ir_op_info *info, const air_attr *attrs)
{
    air_dtype first = first_dtype(g, info, attrs);
    air_dtype given = dtype_attr(info, attrs), d;

    switch ((ir_dtype_rule)info->dtype) {
    case IR_DT_PROMOTE: return promoted(g, info, attrs, 0);
    case IR_DT_FLOAT:
        d = promoted(g, info, attrs, 0);
        return ir_is_float(d) ? d : AIR_F32;
    case IR_DT_ROUNDED:
        d = promoted(g, info, attrs, 0);
        return ir_is_float(d) || has_arg(info, attrs, "rounding_mode")
                   ? d
                   : AIR_F32;
    case IR_DT_SELECT: return promoted(g, info, attrs, 1);
    case IR_DT_SAME: return first;
    case IR_DT_MEAN: return or_default(given, first);
    case IR_DT_ATTR: return or_default(given, or_default(first, AIR_F32));
    case IR_DT_WIDEN:
        return or_default(given, ir_is_float(first) ? first : AIR_I64);
    case IR_DT_TRUTH: /* any, all of u8 give u8 */
        return info->cls == IR_CLASS_REDUCE && first == AIR_U8 ? AIR_U8
                                                               : AIR_BOOL;
    case IR_DT_COMPARE:
    case IR_DT_BOOL: return AIR_BOOL;
    case IR_DT_I64: return AIR_I64;
    case IR_DT_SHAPE: return AIR_DTYPE_NONE;
    }
    return AIR_DTYPE_NONE;
}

air_dtype
ir_compute_dtype(const ir_graph *g, const ir_node *n)
{
    const ir_op_info *info = ir_info(n);
    air_dtype result = (air_dtype)ir_val(g, n->outs[0])->dtype;
    air_dtype first = first_dtype(g, info, n->attrs);

    switch ((ir_dtype_rule)info->dtype) {
    case IR_DT_COMPARE: return promoted(g, info, n->attrs, 0);
    case IR_DT_TRUTH: return AIR_BOOL;
    case IR_DT_SAME:
    case IR_DT_BOOL: return first;
    case IR_DT_ATTR: return info->cls == IR_CLASS_POINTWISE ? first : result;
    case IR_DT_PROMOTE:
    case IR_DT_FLOAT:
    case IR_DT_ROUNDED:
    case IR_DT_SELECT:
    case IR_DT_MEAN:
    case IR_DT_WIDEN:
    case IR_DT_I64:
    case IR_DT_SHAPE: break;
    }
    return result;
}

bool
ir_promotes(const ir_op_info *info, int param)
{
    switch ((ir_dtype_rule)info->dtype) {
    case IR_DT_PROMOTE:
    case IR_DT_FLOAT:
    case IR_DT_ROUNDED:
    case IR_DT_COMPARE: return true;
    case IR_DT_SELECT: return param > 0;
    default: return false;
    }
}

/* ---- results ------------------------------------------------------------- */

air_status
ir_infer_types(ir_graph *g, const ir_op_info *info, const air_attr *attrs,
               size_t nouts, air_type *outs)
{
    ir_infer in = {g, info, attrs, nouts, outs};
    air_dtype dtype = result_dtype(g, info, attrs);

    for (size_t i = 0; i < nouts; i++)
        outs[i] = (air_type){.dtype = dtype};
    AIR_TRY(ir_check_agreement(g, info, attrs));
    AIR_TRY(info->shape(&in));
    AIR_REQUIRE(info->dtype != IR_DT_MEAN || ir_is_float(outs[0].dtype),
                AIR_ERROR_DTYPE, "%s: needs a floating point dtype, not %s",
                info->name, air_dtype_text(outs[0].dtype));
    for (size_t i = 0; i < nouts; i++)
        AIR_REQUIRE(outs[i].dtype != AIR_DTYPE_NONE, AIR_ERROR_DTYPE,
                    "%s: no dtype follows from the arguments", info->name);
    return AIR_OK;
}
