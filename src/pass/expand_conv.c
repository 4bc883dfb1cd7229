/* expand_conv.c: transposed convolutions and gradients of convolutions.
 *
 * With `small` the output of a plain convolution and `big` its input, the
 * gradient of the input is the transposed convolution of the gradient, and the
 * other way round. One of stride 1 is a plain convolution with turned weights;
 * others, and the gradient of the weights, are kernels. */
#include "pass/expand.h"

/* Attributes that all these ops have. */
typedef struct {
    air_attr stride, pad, dilation, groups;
    int rank; /* of the tensors */
} window;

/* at: the attribute of the stride; padding and dilation follow. */
static window
read_window(const ir_graph *g, uint32_t node, int at, int groups)
{
    return (window){
        .stride = *node_attr(g, node, at),
        .pad = *node_attr(g, node, at + 1),
        .dilation = *node_attr(g, node, at + 2),
        .groups = *node_attr(g, node, groups),
        .rank = ir_val(g, node_in(g, node, 1))->rank,
    };
}

/* Entry i of a list, if it is known now. */
static bool
entry(const ir_graph *g, const air_attr *list, int i, int64_t *out)
{
    return list->count > 0 &&
           ir_dim_is_const(g, list->dims[list->count == 1 ? 0 : i], out);
}

/* The padding of the plain convolution that is the transposed one along an
 * axis; false: there is none. */
static bool
plain_padding(pass_build *b, const window *w, int axis, air_dim kernel,
              air_dim small, air_dim big, int64_t *out)
{
    int64_t stride, pad, dilation, k;

    if (!entry(b->g, &w->stride, axis, &stride) || stride != 1 ||
        !entry(b->g, &w->pad, axis, &pad) ||
        !entry(b->g, &w->dilation, axis, &dilation) ||
        !ir_dim_is_const(b->g, kernel, &k))
        return false;
    *out = dilation * (k - 1) - pad;
    air_dim grown = b_dim2(b, IR_DIM_ADD, small, b_dim(b, *out - pad));
    return *out >= 0 && b->status == AIR_OK && ir_dim_eq(grown, big);
}

/* [g * co, ci, taps] as [g * ci, co, taps], taps reversed. */
static air_ref
turned_weight(pass_build *b, air_ref weight, air_dim groups)
{
    const ir_value v = *ir_val(b->g, weight);
    int order[AIR_MAX_RANK], taps[AIR_MAX_RANK];
    air_dim dims[AIR_MAX_RANK];
    air_dim each = b_dim2(b, IR_DIM_DIV, v.dims[0], groups);

    dims[0] = groups;
    dims[1] = each;
    for (int i = 1; i < v.rank; i++)
        dims[i + 1] = v.dims[i];
    for (int i = 0; i <= v.rank; i++)
        order[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    for (int i = 2; i < v.rank; i++)
        taps[i - 2] = i + 1;
    air_ref x = b_view(b, weight, v.rank + 1, dims);
    x = b_permute(b, x, v.rank + 1, order);
    x = B_OP(b, "flip", at_value(x), at_ints(b, (size_t)v.rank - 2, taps));
    dims[0] = b_dim2(b, IR_DIM_MUL, groups, v.dims[1]);
    dims[1] = each;
    for (int i = 2; i < v.rank; i++)
        dims[i] = v.dims[i];
    return b_view(b, x, v.rank, dims);
}

static air_ref
plain(pass_build *b, const window *w, air_ref x, air_ref weight, air_attr bias,
      air_attr pad)
{
    const air_attr zero = at_ints(b, 1, (int[]){0});

    return B_OP(b, "convolution", at_value(x), at_value(weight), bias,
                w->stride, pad, w->dilation, at_bool(false), zero, w->groups);
}

/* The transposed convolution of x, of `size`. */
static air_ref
transposed(pass_build *b, const window *w, air_ref x, air_ref weight,
           air_attr bias, const air_dim *size)
{
    const ir_value kernel = *ir_val(b->g, weight), small = *ir_val(b->g, x);
    int pads[AIR_MAX_RANK];
    bool is_plain = true;

    for (int i = 0; i < w->rank - 2 && is_plain; i++) {
        int64_t pad = 0;
        is_plain = plain_padding(b, w, i, kernel.dims[i + 2], small.dims[i + 2],
                                 size[i + 2], &pad) &&
                   pad < INT32_MAX;
        pads[i] = (int)pad;
    }
    if (is_plain)
        return plain(b, w, x, turned_weight(b, weight, w->groups.dim), bias,
                     at_ints(b, (size_t)w->rank - 2, pads));
    return B_OP(b, "air::convolution_transposed", at_value(x), at_value(weight),
                bias, at_dims((size_t)w->rank, size), w->stride, w->pad,
                w->dilation, w->groups);
}

/* (input, weight, bias?, stride, padding, dilation, transposed,
 * output_padding, groups) */
air_status
expand_convolution(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const window w = read_window(ctx->g, node, 3, 8);
    const ir_value out = *ir_val(ctx->g, node_out(ctx->g, node, 0));

    if (!node_flag(ctx->g, node, 6))
        return AIR_OK;
    return build_forward(&b, node, 0,
                         transposed(&b, &w, node_in(ctx->g, node, 0),
                                    node_in(ctx->g, node, 1),
                                    *node_attr(ctx->g, node, 2), out.dims));
}

/* ---- gradients ----------------------------------------------------------- */

/* Output padding of a stride or more is room for further windows, which no
 * element of the input made. */
static air_ref
of_input(pass_build *b, air_ref x, const ir_value *input)
{
    for (int i = 2; i < input->rank && b->status == AIR_OK; i++)
        if (!ir_dim_eq(ir_val(b->g, x)->dims[i], input->dims[i]))
            x = b_slice(b, x, i, b_dim(b, 0), input->dims[i]);
    return x;
}

static air_ref
input_gradient(pass_build *b, uint32_t node, const window *w)
{
    const air_attr none = {.kind = AIR_ATTR_NONE};
    air_ref grad = node_in(b->g, node, 0), weight = node_in(b->g, node, 2);
    const ir_value input = *ir_val(b->g, node_in(b->g, node, 1));

    if (node_flag(b->g, node, 7))
        return of_input(b, plain(b, w, grad, weight, none, w->pad), &input);
    return transposed(b, w, grad, weight, none, input.dims);
}

static air_ref
weight_gradient(pass_build *b, uint32_t node, const window *w)
{
    bool turned = node_flag(b->g, node, 7);
    air_ref grad = node_in(b->g, node, 0), input = node_in(b->g, node, 1);
    const ir_value weight = *ir_val(b->g, node_in(b->g, node, 2));

    return B_OP(b, "air::convolution_weight", at_value(turned ? grad : input),
                at_value(turned ? input : grad),
                at_dims((size_t)w->rank, weight.dims), w->stride, w->pad,
                w->dilation, w->groups);
}

static air_ref
bias_gradient(pass_build *b, uint32_t node, int rank)
{
    int axes[AIR_MAX_RANK], n = 0;

    for (int i = 0; i < rank; i++)
        if (i != 1)
            axes[n++] = i;
    return b_sum(b, b_wide(b, node_in(b->g, node, 0)), n, axes, false);
}

/* (grad, input, weight, bias_sizes?, stride, padding, dilation, transposed,
 * output_padding, groups, mask[3]) */
air_status
expand_convolution_backward(pass_context *ctx, uint32_t node)
{
    pass_build b = build_at(ctx, node);
    const window w = read_window(ctx->g, node, 4, 9);
    const air_attr mask = *node_attr(ctx->g, node, 10);

    if (mask.bools[0])
        AIR_TRY(build_forward(&b, node, 0, input_gradient(&b, node, &w)));
    if (mask.bools[1])
        AIR_TRY(build_forward(&b, node, 1, weight_gradient(&b, node, &w)));
    if (mask.bools[2])
        AIR_TRY(build_forward(&b, node, 2, bias_gradient(&b, node, w.rank)));
    return b.status;
}
