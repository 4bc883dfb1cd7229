/* kernels_image.c: what several places of an image send to one: columns added
 * up, gradients of padding. Each result gathers its addends, in double. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

static double
get(const ref_tensor *t, int64_t offset)
{
    return ref_get(t->dtype, t->data + offset);
}

/* ---- col2im -------------------------------------------------------------- */

typedef struct {
    int64_t size, kernel, dilation, pad, stride, windows;
} axis_windows;

/* (input, output_size, kernel_size, dilation, padding, stride) */
static axis_windows
read_axis(const air_call *call, int i)
{
    axis_windows a = {.size = ref_ints(call, 1, i, 1),
                      .kernel = ref_ints(call, 2, i, 1),
                      .dilation = ref_ints(call, 3, i, 1),
                      .pad = ref_ints(call, 4, i, 0),
                      .stride = ref_ints(call, 5, i, 1)};
    int64_t reach = a.size + 2 * a.pad - a.dilation * (a.kernel - 1) - 1;
    a.windows = reach < 0 ? 0 : reach / a.stride + 1;
    return a;
}

/* What the windows of tap `tap` see of row `y` of one channel: the windows of
 * one row, whose values lie at `values`. */
static void
add_tap(const axis_windows *a, int64_t tap, int dtype, const char *values,
        int64_t step, double *sums)
{
    int64_t x = tap * a->dilation - a->pad, first = 0, end = a->windows;
    if (x < 0)
        first = (-x + a->stride - 1) / a->stride;
    if (x + (end - 1) * a->stride >= a->size)
        end = x >= a->size ? 0 : (a->size - 1 - x) / a->stride + 1;
    if (dtype == AIR_F32 && step == (int64_t)sizeof(float)) {
        const float *v = (const float *)(const void *)values;
        for (int64_t i = first; i < end; i++)
            sums[x + i * a->stride] += (double)v[i];
        return;
    }
    for (int64_t i = first; i < end; i++)
        sums[x + i * a->stride] += ref_get(dtype, values + i * step);
}

/* Sums of row y of the channel whose columns start at `columns`. */
static void
sum_row(const ref_tensor *in, const axis_windows *a, const char *columns,
        int64_t y, double *sums)
{
    int64_t taps = in->strides[in->rank - 2], step = in->strides[in->rank - 1];
    for (int64_t x = 0; x < a[1].size; x++)
        sums[x] = 0;
    for (int64_t i = 0; i < a[0].kernel; i++) {
        int64_t from = y + a[0].pad - i * a[0].dilation;
        int64_t row = from / a[0].stride;
        if (from < 0 || from % a[0].stride != 0 || row >= a[0].windows)
            continue;
        for (int64_t j = 0; j < a[1].kernel; j++)
            add_tap(&a[1], j, in->dtype,
                    columns + (i * a[1].kernel + j) * taps +
                        row * a[1].windows * step,
                    step, sums);
    }
}

size_t
ref_col2im_size(const air_call *call, int threads)
{
    return (size_t)ref_ints(call, 1, 1, 1) * sizeof(double) * (size_t)threads;
}

/* Threads share the rows of the image. */
void
ref_col2im(const air_call *call, const air_task *task)
{
    ref_tensor in = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    axis_windows a[2] = {read_axis(call, 0), read_axis(call, 1)};
    int64_t begin, end, taps = a[0].kernel * a[1].kernel;
    int64_t channels = out.dims[out.rank - 3], last = out.rank - 1;
    double *sums = (double *)task->workspace + a[1].size * task->id;
    ref_tensor rows = ref_drop(out, (int)last);
    air_split(a[1].size > 0 ? ref_numel(&rows) : 0, task, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        int64_t c = r / a[0].size;
        int64_t offset = c % channels * taps * in.strides[in.rank - 2];
        if (in.rank == 3)
            offset += c / channels * in.strides[0];
        sum_row(&in, a, in.data + offset, r % a[0].size, sums);
        char *to = out.data + ref_offset(&rows, r);
        for (int64_t x = 0; x < a[1].size; x++)
            ref_put(out.dtype, to + x * out.strides[last], sums[x]);
    }
}

/* ---- gradients of padding ------------------------------------------------ */

/* Where element `at` of n went along an axis padded by `before`, `after`:
 * [first, first + count) and, mirrored, two more places; -1: none. */
typedef struct {
    int64_t first, count, more[2];
} places;

static places
reflected(int64_t at, int64_t n, int64_t before, int64_t after)
{
    places p = {at + before, 1, {-1, -1}};
    int64_t right = 2 * (n - 1) - at;
    if (at > 0 && at <= before)
        p.more[0] = before - at;
    if (right >= n && right < n + after)
        p.more[1] = before + right;
    if (p.first < 0 || p.first >= n + before + after)
        p.count = 0; /* cut off by negative padding */
    return p;
}

static places
replicated(int64_t at, int64_t n, int64_t before, int64_t after)
{
    int64_t first = at == 0 ? 0 : at + before;
    int64_t end = at == n - 1 ? n + before + after : at + before + 1;
    first = first < 0 ? 0 : first;
    end = end > n + before + after ? n + before + after : end;
    return (places){first, end > first ? end - first : 0, {-1, -1}};
}

static int64_t
count_of(const places *p)
{
    return p->count + (p->more[0] >= 0) + (p->more[1] >= 0);
}

static int64_t
place_at(const places *p, int64_t i)
{
    if (i < p->count)
        return p->first + i;
    return i == p->count && p->more[0] >= 0 ? p->more[0] : p->more[1];
}

/* The sum of grad over the places of the last `n` axes. */
static double
sum_places(const ref_tensor *grad, const places *p, int n, int64_t offset)
{
    double sum = 0;
    if (n == 0)
        return get(grad, offset);
    for (int64_t i = 0, count = count_of(p); i < count; i++)
        sum +=
            sum_places(grad, p + 1, n - 1,
                       offset + place_at(p, i) * grad->strides[grad->rank - n]);
    return sum;
}

/* (grad, self, padding): pairs (before, after), the last axis first */
static void
pad_backward(const air_call *call, const air_task *task, bool reflect)
{
    ref_tensor grad = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    int n = ref_count(call, 2) / 2;
    const int64_t *pad = call->args[2].ints;
    int64_t begin, end;
    air_split(ref_numel(&out), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        places p[AIR_MAX_RANK];
        int64_t left = i, offset = 0;
        for (int axis = out.rank - 1; axis >= 0; axis--) {
            int64_t size = out.dims[axis], at = left % size;
            int k = out.rank - 1 - axis;
            left /= size;
            if (k >= n)
                offset += at * grad.strides[axis];
            else
                p[n - 1 - k] = (reflect ? reflected : replicated)(
                    at, size, pad[2 * k], pad[2 * k + 1]);
        }
        ref_put(out.dtype, out.data + ref_offset(&out, i),
                sum_places(&grad, p, n, offset));
    }
}

void
ref_reflection_pad_backward(const air_call *call, const air_task *task)
{
    pad_backward(call, task, true);
}

void
ref_replication_pad_backward(const air_call *call, const air_task *task)
{
    pad_backward(call, task, false);
}
