/* kernels_pool.c: pooling over the last two axes and its gradients. Threads
 * share the planes (batch and channels); in a plane everything goes in order,
 * so that gradients of overlapping windows add up the same way each time. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* Two axes, height and width. */
typedef struct {
    int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
} window;

/* One plane of a tensor. */
static char *
plane(const ref_tensor *t, int64_t index)
{
    ref_tensor outer = *t;
    outer.rank -= 2;
    return t->data + ref_offset(&outer, index);
}

static char *
pixel(const ref_tensor *t, char *base, int64_t y, int64_t x)
{
    return base + y * t->strides[t->rank - 2] + x * t->strides[t->rank - 1];
}

static int64_t
planes(const ref_tensor *t)
{
    ref_tensor outer = *t;
    outer.rank -= 2;
    return ref_numel(&outer);
}

/* Arguments at, at + 1, ...: kernel_size, stride, padding. */
static window
window_make(const air_call *call, int at, const ref_tensor *in,
            const ref_tensor *out)
{
    window w;
    for (int k = 0; k < 2; k++) {
        w.in[k] = in->dims[in->rank - 2 + k];
        w.out[k] = out->dims[out->rank - 2 + k];
        w.kernel[k] = ref_ints(call, at, k, 1);
        w.stride[k] = ref_ints(call, at + 1, k, w.kernel[k]);
        w.pad[k] = ref_ints(call, at + 2, k, 0);
        w.dilation[k] = 1;
    }
    return w;
}

/* ---- max_pool2d_with_indices --------------------------------------------- */

static int64_t
max_of_window(const window *w, const ref_tensor *in, char *base, int64_t oy,
              int64_t ox)
{
    int64_t best = -1, top = oy * w->stride[0] - w->pad[0];
    int64_t left = ox * w->stride[1] - w->pad[1];
    double high = -(double)INFINITY;
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
            int64_t y = top + ky * w->dilation[0];
            int64_t x = left + kx * w->dilation[1];
            if (y < 0 || y >= w->in[0] || x < 0 || x >= w->in[1])
                continue;
            double v = ref_get(in->dtype, pixel(in, base, y, x));
            if (best < 0 || v > high || isnan(v)) {
                high = v;
                best = y * w->in[1] + x;
            }
        }
    return best < 0 ? 0 : best;
}

/* max_pool2d_with_indices(self, kernel_size, stride, padding, dilation,
 * ceil_mode): indices count in the input plane */
void
ref_max_pool2d(const air_call *call, const air_task *task)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    ref_tensor index = ref_out(call, 1, task);
    window w = window_make(call, 1, &in, &out);
    int64_t begin, end;
    for (int k = 0; k < 2; k++)
        w.dilation[k] = ref_ints(call, 4, k, 1);
    air_split(planes(&in), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = plane(&in, p), *dst = plane(&out, p);
        char *at = plane(&index, p);
        for (int64_t y = 0; y < w.out[0]; y++)
            for (int64_t x = 0; x < w.out[1]; x++) {
                int64_t best = max_of_window(&w, &in, src, y, x);
                ref_copy(pixel(&out, dst, y, x),
                         pixel(&in, src, best / w.in[1], best % w.in[1]),
                         ref_bytes(in.dtype));
                ref_put_int(index.dtype, pixel(&index, at, y, x), best);
            }
    }
}

/* max_pool2d_with_indices_backward(grad, self, kernel_size, stride, padding,
 * dilation, ceil_mode, indices) */
void
ref_max_pool2d_backward(const air_call *call, const air_task *task)
{
    ref_tensor grad = ref_arg(call, 0, task), index = ref_arg(call, 7, task);
    ref_tensor out = ref_out(call, 0, task);
    int64_t height = grad.dims[grad.rank - 2], width = grad.dims[grad.rank - 1];
    int64_t cols = out.dims[out.rank - 1], begin, end;
    ref_fill(&out, 0, task);
    task->barrier(task);
    air_split(planes(&grad), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = plane(&grad, p), *dst = plane(&out, p);
        char *at = plane(&index, p);
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++) {
                int64_t i = ref_get_int(index.dtype, pixel(&index, at, y, x));
                if (ref_wrap(&i, out.dims[out.rank - 2] * cols, task))
                    ref_add(out.dtype, pixel(&out, dst, i / cols, i % cols),
                            pixel(&grad, src, y, x));
            }
    }
}

/* ---- average pooling ----------------------------------------------------- */

/* What a window covers of the input, and what its sum is divided by. */
typedef struct {
    int64_t begin[2], end[2];
    double divisor;
} cover;

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* count_pad: the padding counts; divisor: not 0: instead of the count. */
static cover
cover_make(const window *w, const int64_t *at, bool count_pad, int64_t divisor)
{
    cover c;
    int64_t padded = 1, covered = 1;
    for (int k = 0; k < 2; k++) {
        int64_t begin = at[k] * w->stride[k] - w->pad[k];
        int64_t end = least(begin + w->kernel[k], w->in[k] + w->pad[k]);
        padded *= end - begin;
        c.begin[k] = begin < 0 ? 0 : begin;
        c.end[k] = least(end, w->in[k]);
        covered *= c.end[k] > c.begin[k] ? c.end[k] - c.begin[k] : 0;
    }
    c.divisor = (double)(divisor != 0 ? divisor : count_pad ? padded : covered);
    return c;
}

/* The window of _adaptive_avg_pool2d: floor and ceil of even shares. */
static cover
cover_adaptive(const window *w, const int64_t *at)
{
    cover c = {.divisor = 1};
    for (int k = 0; k < 2; k++) {
        c.begin[k] = at[k] * w->in[k] / w->out[k];
        c.end[k] = ((at[k] + 1) * w->in[k] + w->out[k] - 1) / w->out[k];
        c.divisor *= (double)(c.end[k] - c.begin[k]);
    }
    return c;
}

/* How the windows of a call are made: adaptive, or by arguments from `at`. */
typedef struct {
    window w;
    bool adaptive, count_pad;
    int64_t divisor;
} average;

static average
average_make(const air_call *call, int at, const ref_tensor *in,
             const ref_tensor *out)
{
    return (average){.w = window_make(call, at, in, out),
                     .count_pad = ref_int(call, at + 4, 1) != 0,
                     .divisor = ref_int(call, at + 5, 0)};
}

static cover
cover_at(const average *a, int64_t y, int64_t x)
{
    int64_t at[2] = {y, x};
    return a->adaptive ? cover_adaptive(&a->w, at)
                       : cover_make(&a->w, at, a->count_pad, a->divisor);
}

static double
sum_of(const cover *c, const ref_tensor *in, char *base)
{
    double sum = 0;
    for (int64_t y = c->begin[0]; y < c->end[0]; y++)
        for (int64_t x = c->begin[1]; x < c->end[1]; x++)
            sum += ref_get(in->dtype, pixel(in, base, y, x));
    return sum;
}

static void
average_forward(const average *a, const ref_tensor *in, const ref_tensor *out,
                const air_task *task)
{
    int64_t begin, end;
    air_split(planes(in), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = plane(in, p), *dst = plane(out, p);
        for (int64_t y = 0; y < a->w.out[0]; y++)
            for (int64_t x = 0; x < a->w.out[1]; x++) {
                cover c = cover_at(a, y, x);
                double mean = sum_of(&c, in, src) / c.divisor;
                bool empty = c.end[0] <= c.begin[0] || c.end[1] <= c.begin[1];
                ref_put(out->dtype, pixel(out, dst, y, x), empty ? 0 : mean);
            }
    }
}

/* out: the gradient of the input. */
static void
average_backward(const average *a, const ref_tensor *grad,
                 const ref_tensor *out, const air_task *task)
{
    int64_t begin, end;
    ref_fill(out, 0, task);
    task->barrier(task);
    air_split(planes(grad), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = plane(grad, p), *dst = plane(out, p);
        for (int64_t y = 0; y < a->w.out[0]; y++)
            for (int64_t x = 0; x < a->w.out[1]; x++) {
                cover c = cover_at(a, y, x);
                char share[8];
                ref_put(out->dtype, share,
                        ref_get(grad->dtype, pixel(grad, src, y, x)) /
                            c.divisor);
                for (int64_t i = c.begin[0]; i < c.end[0]; i++)
                    for (int64_t j = c.begin[1]; j < c.end[1]; j++)
                        ref_add(out->dtype, pixel(out, dst, i, j), share);
            }
    }
}

/* avg_pool2d(self, kernel_size, stride, padding, ceil_mode,
 * count_include_pad, divisor_override) */
void
ref_avg_pool2d(const air_call *call, const air_task *task)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    average a = average_make(call, 1, &in, &out);
    average_forward(&a, &in, &out, task);
}

/* avg_pool2d_backward(grad, self, kernel_size, ...) */
void
ref_avg_pool2d_backward(const air_call *call, const air_task *task)
{
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    average a = average_make(call, 2, &out, &grad);
    average_backward(&a, &grad, &out, task);
}

/* _adaptive_avg_pool2d(self, output_size) */
void
ref_adaptive_avg_pool2d(const air_call *call, const air_task *task)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    average a = {.w = window_make(call, call->nargs, &in, &out),
                 .adaptive = true};
    average_forward(&a, &in, &out, task);
}

/* _adaptive_avg_pool2d_backward(grad, self) */
void
ref_adaptive_avg_pool2d_backward(const air_call *call, const air_task *task)
{
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    average a = {.w = window_make(call, call->nargs, &out, &grad),
                 .adaptive = true};
    average_backward(&a, &grad, &out, task);
}
