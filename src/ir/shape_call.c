/* shape_call.c: shapes of matrix products, attention, convolution, pooling. */
#include <assert.h>
#include <string.h>

#include "ir/shape.h"

/* ---- matrix products ----------------------------------------------------- */

/* Result 0 is x y of 2 dims, or of 3 with the first as batch. */
static air_status
set_product(ir_infer *in, const char *a, const char *b, int rank)
{
    const ir_value *x = shape_tensor(in, a), *y = shape_tensor(in, b);
    air_dim dims[3];

    AIR_TRY(shape_rank(in, a, rank));
    AIR_TRY(shape_rank(in, b, rank));
    AIR_TRY(shape_same(in, x->dims[rank - 1], y->dims[rank - 2]));
    if (rank == 3)
        AIR_TRY(shape_same(in, x->dims[0], y->dims[0]));
    memcpy(dims, x->dims, (size_t)(rank - 1) * sizeof *dims);
    dims[rank - 1] = y->dims[rank - 1];
    return shape_set(in, 0, rank, dims);
}

air_status
shape_mm(ir_infer *in)
{
    return set_product(in, "a", "b", 2);
}

air_status
shape_bmm(ir_infer *in)
{
    return set_product(in, "a", "b", 3);
}

/* Groups of rows of a [m, k] times b [groups, k, n], or groups of the depth of
 * a [m, k] and b [k, n], which give [groups, m, n]. */
air_status
shape_grouped_mm(ir_infer *in)
{
    const ir_value *a = shape_tensor(in, "a"), *b = shape_tensor(in, "b");
    const ir_value *offs;

    AIR_REQUIRE(
        shape_arg(in, "offs")->kind == AIR_ATTR_VALUE &&
            shape_arg(in, "bias")->kind != AIR_ATTR_VALUE && a->rank == 2 &&
            (b->rank == 2 || b->rank == 3) && ir_is_float((air_dtype)a->dtype),
        AIR_ERROR_UNSUPPORTED,
        "%s: other than floats of 2 dims, groups and no bias", in->info->name);
    offs = shape_tensor(in, "offs");
    AIR_TRY(shape_rank(in, "offs", 1));
    AIR_TRY(shape_same(in, a->dims[1], b->dims[b->rank - 2]));
    if (b->rank == 2)
        return shape_set(in, 0, 3,
                         (air_dim[]){offs->dims[0], a->dims[0], b->dims[1]});
    AIR_TRY(shape_same(in, b->dims[0], offs->dims[0]));
    return shape_set(in, 0, 2, (air_dim[]){a->dims[0], b->dims[2]});
}

/* The addend `a` broadcasts to the result, never the other way round. */
static air_status
check_addend(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_type *t = &in->outs[0];
    air_dim dims[AIR_MAX_RANK];
    int rank;

    AIR_TRY(
        ir_broadcast(in->g, t->rank, t->dims, v->rank, v->dims, &rank, dims));
    AIR_REQUIRE(rank == t->rank, AIR_ERROR_SHAPE,
                "%s: the addend has more dims than the product",
                in->info->name);
    for (int i = 0; i < rank; i++)
        AIR_TRY(shape_same(in, dims[i], t->dims[i]));
    return AIR_OK;
}

air_status
shape_addmm(ir_infer *in)
{
    AIR_TRY(set_product(in, "b", "c", 2));
    return check_addend(in);
}

air_status
shape_baddbmm(ir_infer *in)
{
    AIR_TRY(set_product(in, "b", "c", 3));
    return check_addend(in);
}

static air_status
set_mv(ir_infer *in, const char *a, const char *b)
{
    const ir_value *x = shape_tensor(in, a), *y = shape_tensor(in, b);

    AIR_TRY(shape_rank(in, a, 2));
    AIR_TRY(shape_rank(in, b, 1));
    AIR_TRY(shape_same(in, x->dims[1], y->dims[0]));
    return shape_set(in, 0, 1, x->dims);
}

air_status
shape_mv(ir_infer *in)
{
    return set_mv(in, "a", "b");
}

air_status
shape_addmv(ir_infer *in)
{
    AIR_TRY(set_mv(in, "b", "c"));
    return check_addend(in);
}

air_status
shape_addr(ir_infer *in)
{
    const ir_value *x = shape_tensor(in, "b"), *y = shape_tensor(in, "c");

    AIR_TRY(shape_rank(in, "b", 1));
    AIR_TRY(shape_rank(in, "c", 1));
    AIR_TRY(shape_set(in, 0, 2, (air_dim[]){x->dims[0], y->dims[0]}));
    return check_addend(in);
}

air_status
shape_dot(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "a", 1));
    AIR_TRY(shape_rank(in, "b", 1));
    AIR_TRY(shape_same(in, shape_tensor(in, "a")->dims[0],
                       shape_tensor(in, "b")->dims[0]));
    return shape_scalar_out(in, 0);
}

/* ---- attention ----------------------------------------------------------- */

/* [.., heads, rows, width] of query; key and value: [.., heads, others, _] */
air_status
shape_sdpa(ir_infer *in)
{
    const ir_value *q = shape_tensor(in, "a"), *k = shape_tensor(in, "key");
    const ir_value *v = shape_tensor(in, "value");
    const air_attr *dropout = shape_arg(in, "dropout_p");
    int r = q->rank;
    air_dim dims[AIR_MAX_RANK];

    AIR_REQUIRE(r >= 2 && k->rank == r && v->rank == r, AIR_ERROR_SHAPE,
                "%s: query, key and value must have the same number of dims",
                in->info->name);
    AIR_REQUIRE(dropout->f == 0.0, AIR_ERROR_UNSUPPORTED, "%s: no dropout here",
                in->info->name);
    AIR_TRY(shape_same(in, q->dims[r - 1], k->dims[r - 1]));
    AIR_TRY(shape_same(in, k->dims[r - 2], v->dims[r - 2]));
    memcpy(dims, q->dims, (size_t)r * sizeof *dims);
    dims[r - 1] = v->dims[r - 1];
    return shape_set(in, 0, r, dims);
}

/* Statistics of halves are floats. */
static void
set_sums_dtype(ir_infer *in)
{
    in->outs[1].dtype = in->outs[0].dtype == AIR_F64 ? AIR_F64 : AIR_F32;
}

air_status
shape_attention(ir_infer *in)
{
    air_dim dims[AIR_MAX_RANK];

    AIR_TRY(shape_sdpa(in));
    memcpy(dims, in->outs[0].dims, (size_t)in->outs[0].rank * sizeof *dims);
    AIR_TRY(ir_dim_const(in->g, 1, &dims[in->outs[0].rank - 1]));
    set_sums_dtype(in);
    return shape_set(in, 1, in->outs[0].rank, dims);
}

air_status
shape_flash_attention(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "a", 4));
    AIR_TRY(shape_sdpa(in));
    set_sums_dtype(in);
    return shape_set(in, 1, 3, in->outs[0].dims);
}

air_status
shape_flash_attention_backward(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "a", 4));
    AIR_TRY(shape_sdpa(in));
    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(shape_set_like(in, 1, "key"));
    return shape_set_like(in, 2, "value");
}

/* ---- attention over a cache of any form ---------------------------------- */

static bool
is_given(const ir_infer *in, const char *name)
{
    return shape_arg(in, name)->kind == AIR_ATTR_VALUE;
}

/* An absent one is of any rank and dtype. */
static air_status
check_optional(const ir_infer *in, const char *name, int rank, bool integer)
{
    if (!is_given(in, name))
        return AIR_OK;
    const ir_value *v = shape_tensor(in, name);
    AIR_REQUIRE(v->rank == rank, AIR_ERROR_SHAPE, "%s: %s needs %d dims",
                in->info->name, name, rank);
    AIR_REQUIRE(ir_is_float((air_dtype)v->dtype) != integer, AIR_ERROR_DTYPE,
                "%s: %s must hold %s", in->info->name, name,
                integer ? "integers" : "floats");
    return AIR_OK;
}

static air_status
check_fused_operands(const ir_infer *in)
{
    static const struct {
        const char *name;
        int8_t rank;
        bool integer;
    } rules[] = {
        {"pse", 4, false},          {"query_lens", 1, true},
        {"key_lens", 1, true},      {"prefix_lens", 1, true},
        {"block_table", 2, true},   {"query_scale", 3, false},
        {"key_scale", 4, false},    {"key_offset", 4, false},
        {"value_scale", 4, false},  {"value_offset", 4, false},
        {"weight_scale", 1, false}, {"query_padding", 1, true},
        {"key_padding", 1, true},   {"sink", 1, false},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        AIR_TRY(
            check_optional(in, rules[i].name, rules[i].rank, rules[i].integer));
    if (!is_given(in, "mask"))
        return AIR_OK;
    const ir_value *mask = shape_tensor(in, "mask");
    AIR_REQUIRE(air_dtype_bytes((air_dtype)mask->dtype) == 1 &&
                    (mask->rank == 4 || mask->rank == 1),
                AIR_ERROR_DTYPE, "%s: mask must be bool, i8 or u8 of 4 dims",
                in->info->name);
    return AIR_OK;
}

/* The first tensor of a pair has the rank of the second, and as many heads;
 * where `all` is set as many batches and rows as well. */
static air_status
check_pair(const ir_infer *in, const char *name, const char *of, bool all)
{
    if (!is_given(in, name))
        return AIR_OK;
    AIR_REQUIRE(is_given(in, of), AIR_ERROR_ARGUMENT, "%s: %s needs %s",
                in->info->name, name, of);
    const ir_value *v = shape_tensor(in, name), *w = shape_tensor(in, of);
    AIR_REQUIRE(v->rank == w->rank && (v->rank == 4 || v->rank == 5),
                AIR_ERROR_SHAPE, "%s: %s needs as many dims as %s",
                in->info->name, name, of);
    for (int i = all ? 0 : 1; i < (all ? 3 : 2); i++)
        AIR_TRY(shape_same(in, v->dims[i], w->dims[i]));
    return AIR_OK;
}

/* Integers of a cache are numbers by their scale only. */
static air_status
check_fused_dtypes(const ir_infer *in)
{
    air_dtype q = (air_dtype)shape_tensor(in, "a")->dtype;
    air_dtype k = (air_dtype)shape_tensor(in, "key")->dtype;
    bool scaled = is_given(in, "key_scale") && is_given(in, "value_scale");

    AIR_REQUIRE(shape_tensor(in, "value")->dtype == k, AIR_ERROR_DTYPE,
                "%s: key and value must be of one dtype", in->info->name);
    AIR_REQUIRE(ir_is_float(q)
                    ? k == q || ((k == AIR_I8 || k == AIR_I32) && scaled)
                    : q == AIR_I8 && k == AIR_I8 && is_given(in, "query_scale"),
                AIR_ERROR_DTYPE,
                "%s: a must be floats, key the same or i8 or i32 with scales; "
                "or both i8, with query_scale",
                in->info->name);
    AIR_REQUIRE(ir_is_float(shape_arg(in, "dtype")->dtype), AIR_ERROR_DTYPE,
                "%s: dtype must be one of floats", in->info->name);
    return AIR_OK;
}

/* The width of a row of 4-bit numbers, 8 to an i32, or in pieces. */
static air_status
row_width(const ir_infer *in, const ir_value *v, air_dim *out)
{
    if (v->rank == 5)
        return ir_dim_make(in->g, IR_DIM_MUL, v->dims[3], v->dims[4], out);
    return shape_math(in, IR_DIM_MUL, v->dims[3], v->dtype == AIR_I32 ? 8 : 1,
                      out);
}

/* a [batch, heads, rows, width] or, packed, [1, heads, all rows, width]; keys
 * and values [batch, heads, tokens, width], or a cache of blocks, [blocks,
 * heads, tokens of a block, width] or [.., width / piece, piece]. output: dims
 * of a in `order`. logsumexp: [batch, heads, rows, 1], packed [1, rows, heads,
 * 1]. */
air_status
shape_fused_attention(ir_infer *in)
{
    const ir_value *q = shape_tensor(in, "a"), *v = shape_tensor(in, "value");
    int64_t order[4];
    air_dim full[4], dims[4], one;

    AIR_TRY(shape_rank(in, "a", 4));
    AIR_TRY(check_fused_dtypes(in));
    AIR_TRY(check_pair(in, "value", "key", true));
    AIR_TRY(check_pair(in, "query_rope", "a", true));
    AIR_TRY(check_pair(in, "key_rope", "key", true));
    AIR_TRY(check_pair(in, "key_prefix", "key", false));
    AIR_TRY(check_pair(in, "value_prefix", "key_prefix", true));
    AIR_TRY(check_fused_operands(in));
    AIR_TRY(shape_ints(in, "order", 4, order));
    memcpy(full, q->dims, sizeof full);
    AIR_TRY(row_width(in, v, &full[3]));
    for (int i = 0; i < 4; i++) {
        AIR_REQUIRE(order[i] >= 0 && order[i] < 4, AIR_ERROR_ARGUMENT,
                    "%s: order names the axes 0 .. 3", in->info->name);
        dims[i] = full[order[i]];
    }
    AIR_TRY(ir_dim_const(in->g, 1, &one));
    bool packed = shape_flag(in, "packed");
    in->outs[0].dtype = shape_arg(in, "dtype")->dtype;
    in->outs[1].dtype = AIR_F32;
    AIR_TRY(shape_set(in, 0, 4, dims));
    return shape_set(
        in, 1, 4,
        (air_dim[]){full[0], full[packed ? 2 : 1], full[packed ? 1 : 2], one});
}

/* ---- windows ------------------------------------------------------------- */

typedef struct {
    int64_t kernel, stride, pad, dilation;
    bool ceil;
} window;

/* (size + 2 pad - dilation (kernel - 1) - 1) // stride + 1. Rounding up counts
 * a window only when it starts inside the input or its left padding. */
static air_status
window_count(const ir_infer *in, const window *w, air_dim size, air_dim *out)
{
    int64_t reach, n, v;

    AIR_REQUIRE(
        w->kernel > 0 && w->stride > 0 && w->dilation > 0 && w->pad >= 0 &&
            w->kernel < INT32_MAX && w->dilation < INT32_MAX &&
            w->pad < INT32_MAX && w->stride < INT32_MAX,
        AIR_ERROR_ARGUMENT, "%s: kernel, stride or padding", in->info->name);
    reach = 2 * w->pad - w->dilation * (w->kernel - 1) - 1;
    if (!w->ceil) {
        AIR_TRY(shape_math(in, IR_DIM_ADD, size, reach, out));
        AIR_TRY(shape_math(in, IR_DIM_DIV, *out, w->stride, out));
        AIR_TRY(shape_math(in, IR_DIM_ADD, *out, 1, out));
        AIR_REQUIRE(in->g->dims.data[out->id].max > 0, AIR_ERROR_SHAPE,
                    "%s: the window is larger than the input", in->info->name);
        return AIR_OK;
    }
    AIR_REQUIRE(ir_dim_is_const(in->g, size, &v), AIR_ERROR_UNSUPPORTED,
                "%s: ceil_mode needs constant sizes", in->info->name);
    AIR_REQUIRE(v < INT32_MAX && v + reach >= 0, AIR_ERROR_SHAPE,
                "%s: the window is larger than the input", in->info->name);
    n = (v + reach + w->stride - 1) / w->stride + 1;
    if ((n - 1) * w->stride >= v + w->pad)
        n--;
    return ir_dim_const(in->g, n, out);
}

/* [.., channels, depth, height, width]: the last `axes` are pooled. */
static air_status
check_pooled(const ir_infer *in, int axes)
{
    const int rank = shape_tensor(in, "a")->rank;

    AIR_REQUIRE(rank == axes + 1 || rank == axes + 2, AIR_ERROR_SHAPE,
                "%s: needs %d or %d dims, not %d", in->info->name, axes + 1,
                axes + 2, rank);
    return AIR_OK;
}

/* at: the first axis that is pooled. */
static air_status
set_pooled_at(ir_infer *in, int at, int axes, bool has_dilation)
{
    const ir_value *v = shape_tensor(in, "a");
    int64_t kernel[3], stride[3], pad[3], dilation[3] = {1, 1, 1};
    air_dim dims[AIR_MAX_RANK];

    AIR_TRY(shape_ints(in, "kernel_size", axes, kernel));
    if (shape_arg(in, "stride")->count == 0)
        memcpy(stride, kernel, sizeof stride);
    else
        AIR_TRY(shape_ints(in, "stride", axes, stride));
    AIR_TRY(shape_ints(in, "padding", axes, pad));
    if (has_dilation)
        AIR_TRY(shape_ints(in, "dilation", axes, dilation));
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    for (int i = 0; i < axes; i++) {
        air_dim *d = &dims[at + i];
        window w = {kernel[i], stride[i], pad[i], dilation[i],
                    shape_flag(in, "ceil_mode")};
        AIR_TRY(window_count(in, &w, *d, d));
    }
    return shape_set(in, 0, v->rank, dims);
}

static air_status
set_pooled(ir_infer *in, int axes, bool has_dilation)
{
    AIR_TRY(check_pooled(in, axes));
    return set_pooled_at(in, shape_tensor(in, "a")->rank - axes, axes,
                         has_dilation);
}

/* Result 1: where result 0 was found. */
static air_status
add_places(ir_infer *in)
{
    in->outs[1] = in->outs[0];
    in->outs[1].dtype = AIR_I64;
    return AIR_OK;
}

air_status
shape_max_pool2d(ir_infer *in)
{
    AIR_TRY(set_pooled(in, 2, true));
    return add_places(in);
}

air_status
shape_max_pool3d(ir_infer *in)
{
    AIR_TRY(set_pooled(in, 3, true));
    return add_places(in);
}

air_status
shape_largest_pool2d(ir_infer *in)
{
    return set_pooled(in, 2, true);
}

air_status
shape_largest_pool3d(ir_infer *in)
{
    return set_pooled(in, 3, true);
}

air_status
shape_largest_pool_last(ir_infer *in)
{
    AIR_TRY(shape_rank(in, "a", 4));
    return set_pooled_at(in, 1, 2, true);
}

air_status
shape_max_pool_last(ir_infer *in)
{
    AIR_TRY(shape_largest_pool_last(in));
    return add_places(in);
}

air_status
shape_avg_pool2d(ir_infer *in)
{
    return set_pooled(in, 2, false);
}

air_status
shape_avg_pool3d(ir_infer *in)
{
    return set_pooled(in, 3, false);
}

/* The last axes get the sizes of `output_size`. */
static air_status
set_resized(ir_infer *in, int axes)
{
    const ir_value *v = shape_tensor(in, "a");
    const air_attr *size = shape_arg(in, "output_size");
    air_dim dims[AIR_MAX_RANK];

    AIR_TRY(check_pooled(in, axes));
    AIR_REQUIRE((int)size->count == axes, AIR_ERROR_SHAPE, "%s: needs %d sizes",
                in->info->name, axes);
    memcpy(dims, v->dims, v->rank * sizeof *dims);
    memcpy(dims + v->rank - axes, size->dims, (size_t)axes * sizeof *dims);
    return shape_set(in, 0, v->rank, dims);
}

air_status
shape_adaptive_pool2d(ir_infer *in)
{
    return set_resized(in, 2);
}

air_status
shape_adaptive_pool3d(ir_infer *in)
{
    return set_resized(in, 3);
}

air_status
shape_adaptive_max_pool2d(ir_infer *in)
{
    AIR_TRY(set_resized(in, 2));
    return add_places(in);
}

air_status
shape_adaptive_max_pool3d(ir_infer *in)
{
    AIR_TRY(set_resized(in, 3));
    return add_places(in);
}

static air_status
check_places(const ir_infer *in, const ir_value *of)
{
    const ir_value *v = shape_tensor(in, "indices");

    AIR_REQUIRE(v->rank == of->rank && v->dtype == AIR_I64, AIR_ERROR_SHAPE,
                "%s: indices must be i64 and of %d dims", in->info->name,
                of->rank);
    for (int i = 0; i < v->rank; i++)
        AIR_TRY(shape_same(in, v->dims[i], of->dims[i]));
    return AIR_OK;
}

air_status
shape_max_unpool2d(ir_infer *in)
{
    AIR_TRY(check_places(in, shape_tensor(in, "a")));
    return set_resized(in, 2);
}

air_status
shape_max_unpool3d(ir_infer *in)
{
    AIR_TRY(check_places(in, shape_tensor(in, "a")));
    return set_resized(in, 3);
}

/* (grad, a, ..): as `a`, of which grad has the first sizes. */
static air_status
set_pool_gradient(ir_infer *in, int axes)
{
    const ir_value *v = shape_tensor(in, "a"), *grad = shape_tensor(in, "grad");

    AIR_TRY(check_pooled(in, axes));
    AIR_TRY(shape_rank(in, "grad", v->rank));
    for (int i = 0; i < v->rank - axes; i++)
        AIR_TRY(shape_same(in, v->dims[i], grad->dims[i]));
    return shape_set_like(in, 0, "a");
}

air_status
shape_pool2d_backward(ir_infer *in)
{
    return set_pool_gradient(in, 2);
}

air_status
shape_pool3d_backward(ir_infer *in)
{
    return set_pool_gradient(in, 3);
}

air_status
shape_max_pool2d_backward(ir_infer *in)
{
    AIR_TRY(check_places(in, shape_tensor(in, "grad")));
    return set_pool_gradient(in, 2);
}

air_status
shape_max_pool3d_backward(ir_infer *in)
{
    AIR_TRY(check_places(in, shape_tensor(in, "grad")));
    return set_pool_gradient(in, 3);
}

air_status
shape_max_pool_last_backward(ir_infer *in)
{
    const ir_value *v = shape_tensor(in, "a"), *grad = shape_tensor(in, "grad");

    AIR_TRY(shape_rank(in, "a", 4));
    AIR_TRY(check_places(in, grad));
    AIR_TRY(shape_rank(in, "grad", 4));
    AIR_TRY(shape_same(in, v->dims[0], grad->dims[0]));
    AIR_TRY(shape_same(in, v->dims[3], grad->dims[3]));
    return shape_set_like(in, 0, "a");
}

/* ---- convolution --------------------------------------------------------- */

/* (size - 1) stride - 2 pad + dilation (kernel - 1) + extra + 1 */
static air_status
transposed_size(const ir_infer *in, const window *w, int64_t extra,
                air_dim size, air_dim *out)
{
    AIR_REQUIRE(w->kernel < INT32_MAX && w->dilation < INT32_MAX &&
                    w->stride < INT32_MAX && w->pad < INT32_MAX,
                AIR_ERROR_ARGUMENT, "%s: kernel, stride or padding",
                in->info->name);
    AIR_TRY(shape_math(in, IR_DIM_MUL, size, w->stride, out));
    return shape_math(in, IR_DIM_ADD, *out,
                      w->dilation * (w->kernel - 1) + 1 + extra - w->stride -
                          2 * w->pad,
                      out);
}

typedef struct {
    int n; /* spatial axes */
    int64_t stride[AIR_MAX_RANK], pad[AIR_MAX_RANK], dilation[AIR_MAX_RANK];
    int64_t extra[AIR_MAX_RANK], groups;
    bool transposed;
} conv;

static air_status
read_conv(const ir_infer *in, conv *c)
{
    const ir_value *x = shape_tensor(in, "a"), *w = shape_tensor(in, "weight");

    c->n = x->rank - 2;
    AIR_REQUIRE(c->n >= 1 && w->rank == x->rank, AIR_ERROR_SHAPE,
                "%s: input and weight must both have 3 to 5 dims",
                in->info->name);
    AIR_TRY(shape_ints(in, "stride", c->n, c->stride));
    AIR_TRY(shape_ints(in, "padding", c->n, c->pad));
    AIR_TRY(shape_ints(in, "dilation", c->n, c->dilation));
    AIR_TRY(shape_ints(in, "output_padding", c->n, c->extra));
    AIR_TRY(shape_int(in, "groups", &c->groups));
    AIR_REQUIRE(c->groups > 0, AIR_ERROR_ARGUMENT, "%s: groups",
                in->info->name);
    c->transposed = shape_flag(in, "transposed");
    return AIR_OK;
}

static air_status
conv_channels(const ir_infer *in, const conv *c, air_dim *out)
{
    const ir_value *x = shape_tensor(in, "a"), *w = shape_tensor(in, "weight");
    air_dim depth;

    if (c->transposed) {
        AIR_TRY(shape_same(in, x->dims[1], w->dims[0]));
        return shape_math(in, IR_DIM_MUL, w->dims[1], c->groups, out);
    }
    AIR_TRY(shape_math(in, IR_DIM_MUL, w->dims[1], c->groups, &depth));
    AIR_TRY(shape_same(in, x->dims[1], depth));
    *out = w->dims[0];
    return AIR_OK;
}

air_status
shape_convolution(ir_infer *in)
{
    const ir_value *x = shape_tensor(in, "a"), *w = shape_tensor(in, "weight");
    air_dim dims[AIR_MAX_RANK];
    conv c;

    AIR_TRY(read_conv(in, &c));
    dims[0] = x->dims[0];
    AIR_TRY(conv_channels(in, &c, &dims[1]));
    for (int i = 0; i < c.n; i++) {
        window k = {0, c.stride[i], c.pad[i], c.dilation[i], false};
        AIR_REQUIRE(ir_dim_is_const(in->g, w->dims[i + 2], &k.kernel),
                    AIR_ERROR_UNSUPPORTED,
                    "%s: the kernel size must be constant", in->info->name);
        if (c.transposed)
            AIR_TRY(transposed_size(in, &k, c.extra[i], x->dims[i + 2],
                                    &dims[i + 2]));
        else
            AIR_TRY(window_count(in, &k, x->dims[i + 2], &dims[i + 2]));
    }
    return shape_set(in, 0, x->rank, dims);
}

air_status
shape_convolution_backward(ir_infer *in)
{
    conv c;
    air_dim channels;

    AIR_TRY(read_conv(in, &c));
    AIR_TRY(conv_channels(in, &c, &channels));
    AIR_TRY(shape_set_like(in, 0, "a"));
    AIR_TRY(shape_set_like(in, 1, "weight"));
    return shape_set(in, 2, 1, &channels);
}
