/* kernels_conv.c: convolution of up to three spatial axes, its transpose and
 * its gradients, one element at a time in double. All four are sums over the
 * same set of products
 *     small[n, co, p] * big[n, ci, p * stride - pad + k * dilation] * w[co, ci,
 * k] where `small` is the output of a plain convolution (the input of a
 * transposed one). */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

#define SPATIAL 3

typedef struct {
    ref_tensor big, small, weight;
    int axes;
    int64_t stride[SPATIAL], pad[SPATIAL], dilation[SPATIAL], groups;
} conv;

/* at: the positions of stride (padding and dilation follow) and groups. */
static conv
conv_make(const air_call *call, const int at[2], ref_tensor big,
          ref_tensor small, ref_tensor weight)
{
    conv c = {.big = big,
              .small = small,
              .weight = weight,
              .axes = weight.rank - 2,
              .groups = ref_int(call, at[1], 1)};
    for (int k = 0; k < c.axes; k++) {
        c.stride[k] = ref_ints(call, at[0], k, 1);
        c.pad[k] = ref_ints(call, at[0] + 1, k, 0);
        c.dilation[k] = ref_ints(call, at[0] + 2, k, 1);
    }
    return c;
}

/* Byte offset of [a, b, place...]. */
static int64_t
offset_of(const ref_tensor *t, int64_t a, int64_t b, const int64_t *place)
{
    int64_t offset = a * t->strides[0] + b * t->strides[1];
    for (int k = 2; k < t->rank; k++)
        offset += place[k - 2] * t->strides[k];
    return offset;
}

static double
value_of(const ref_tensor *t, int64_t a, int64_t b, const int64_t *place)
{
    return ref_get(t->dtype, t->data + offset_of(t, a, b, place));
}

/* The next place in a box of `axes` sizes; false after the last. */
static bool
next_place(int axes, const int64_t *sizes, int64_t *place)
{
    for (int k = axes - 1; k >= 0; k--) {
        if (++place[k] < sizes[k])
            return true;
        place[k] = 0;
    }
    return false;
}

/* Where small[p] and tap k meet in big; false: outside. */
static bool
meet(const conv *c, const int64_t *p, const int64_t *k, int64_t *big)
{
    for (int i = 0; i < c->axes; i++) {
        big[i] = p[i] * c->stride[i] - c->pad[i] + k[i] * c->dilation[i];
        if (big[i] < 0 || big[i] >= c->big.dims[2 + i])
            return false;
    }
    return true;
}

/* Where big[q] and tap k meet in small; false: outside, or between strides. */
static bool
meet_back(const conv *c, const int64_t *q, const int64_t *k, int64_t *small)
{
    for (int i = 0; i < c->axes; i++) {
        int64_t at = q[i] + c->pad[i] - k[i] * c->dilation[i];
        if (at < 0 || at % c->stride[i] != 0 ||
            at / c->stride[i] >= c->small.dims[2 + i])
            return false;
        small[i] = at / c->stride[i];
    }
    return true;
}

/* The sum for small[n, co, p]: over input channels of the group and taps. */
static double
sum_small(const conv *c, int64_t n, int64_t co, const int64_t *p)
{
    int64_t per = c->weight.dims[1];
    int64_t group = co / (c->weight.dims[0] / c->groups);
    int64_t k[SPATIAL] = {0}, q[SPATIAL];
    double sum = 0;
    do {
        if (!meet(c, p, k, q))
            continue;
        for (int64_t ci = 0; ci < per; ci++)
            sum += value_of(&c->big, n, group * per + ci, q) *
                   value_of(&c->weight, co, ci, k);
    } while (next_place(c->axes, c->weight.dims + 2, k));
    return sum;
}

/* The sum for big[n, ci, q]: over output channels of the group and taps. */
static double
sum_big(const conv *c, int64_t n, int64_t ci, const int64_t *q)
{
    int64_t per = c->weight.dims[0] / c->groups;
    int64_t group = ci / c->weight.dims[1], in = ci % c->weight.dims[1];
    int64_t k[SPATIAL] = {0}, p[SPATIAL];
    double sum = 0;
    do {
        if (!meet_back(c, q, k, p))
            continue;
        for (int64_t co = group * per; co < (group + 1) * per; co++)
            sum +=
                value_of(&c->small, n, co, p) * value_of(&c->weight, co, in, k);
    } while (next_place(c->axes, c->weight.dims + 2, k));
    return sum;
}

/* The sum for w[co, ci, k]: over the batch and places. */
static double
sum_weight(const conv *c, int64_t co, int64_t in, const int64_t *k)
{
    int64_t group = co / (c->weight.dims[0] / c->groups);
    int64_t ci = group * c->weight.dims[1] + in;
    int64_t p[SPATIAL] = {0}, q[SPATIAL];
    double sum = 0;
    if (ref_numel(&c->small) == 0)
        return 0;
    for (int64_t n = 0; n < c->small.dims[0]; n++)
        do {
            if (meet(c, p, k, q))
                sum +=
                    value_of(&c->small, n, co, p) * value_of(&c->big, n, ci, q);
        } while (next_place(c->axes, c->small.dims + 2, p));
    return sum;
}

/* Index of element i over the axes from 2 on; *a, *b: the first two. */
static void
place_of(const ref_tensor *t, int64_t i, int64_t *a, int64_t *b, int64_t *place)
{
    for (int k = t->rank - 1; k >= 2; k--) {
        place[k - 2] = i % t->dims[k];
        i /= t->dims[k];
    }
    *b = i % t->dims[1];
    *a = i / t->dims[1];
}

typedef double sum_fn(const conv *c, int64_t a, int64_t b,
                      const int64_t *place);

/* out[...] = the sum for it + bias[b]. */
static void
each_element(const conv *c, const ref_tensor *out, const ref_tensor *bias,
             sum_fn *sum, const air_task *task)
{
    int64_t begin, end, a, b, place[AIR_MAX_RANK];
    air_split(ref_numel(out), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        place_of(out, i, &a, &b, place);
        double v = sum(c, a, b, place);
        if (bias != NULL && bias->data != NULL)
            v += ref_get(bias->dtype, bias->data + b * bias->strides[0]);
        ref_put(out->dtype, out->data + offset_of(out, a, b, place), v);
    }
}

/* convolution(input, weight, bias, stride, padding, dilation, transposed,
 * output_padding, groups), not transposed */
void
ref_convolution(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), bias = ref_arg(call, 2, task);
    conv c = conv_make(call, (int[]){3, 8}, ref_arg(call, 0, task), out,
                       ref_arg(call, 1, task));
    each_element(&c, &out, &bias, sum_small, task);
}

/* air::convolution_transposed(input, weight, bias, size, stride, padding,
 * dilation, groups) */
void
ref_convolution_transposed(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), bias = ref_arg(call, 2, task);
    conv c = conv_make(call, (int[]){4, 7}, out, ref_arg(call, 0, task),
                       ref_arg(call, 1, task));
    each_element(&c, &out, &bias, sum_big, task);
}

/* air::convolution_weight(big, small, size, stride, padding, dilation,
 * groups) */
void
ref_convolution_weight(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task);
    conv c = conv_make(call, (int[]){3, 6}, ref_arg(call, 0, task),
                       ref_arg(call, 1, task), out);
    each_element(&c, &out, NULL, sum_weight, task);
}
