/* kernels_pool.c: pooling over the last two or three axes and its gradients.
 * Threads share the volumes (batch and channels); in a volume everything goes
 * in order, so that gradients of overlapping windows add up the same way each
 * time. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

enum { AXES = 3 }; /* depth, height, width; fewer: the first are of size 1 */

/* A tensor as volumes: its last axes, and the ones before. */
typedef struct {
    ref_tensor outer;
    int dtype;
    int64_t dims[AXES], strides[AXES];
} volumes;

static volumes
volumes_of(const ref_tensor *t, int axes)
{
    volumes v = {.outer = *t, .dtype = t->dtype};
    v.outer.rank -= axes;
    for (int k = 0; k < AXES; k++) {
        int axis = t->rank - AXES + k;
        bool given = k >= AXES - axes;
        v.dims[k] = given ? t->dims[axis] : 1;
        v.strides[k] = given ? t->strides[axis] : 0;
    }
    return v;
}

/* [N, H, W, C] as [N, C, H, W], if it is so. */
static ref_tensor
usual(ref_tensor t, bool last)
{
    const int64_t channels = t.dims[3], step = t.strides[3];

    for (int i = 3; i > 1 && last; i--) {
        t.dims[i] = t.dims[i - 1];
        t.strides[i] = t.strides[i - 1];
    }
    if (last) {
        t.dims[1] = channels;
        t.strides[1] = step;
    }
    return t;
}

static int64_t
count_of(const volumes *v)
{
    return v->dims[0] * v->dims[1] * v->dims[2];
}

static char *
volume(const volumes *v, int64_t index)
{
    return v->outer.data + ref_offset(&v->outer, index);
}

/* at[]: of element `i` of a volume, in row-major order. */
static void
place_of(const volumes *v, int64_t i, int64_t *at)
{
    at[2] = i % v->dims[2];
    at[1] = i / v->dims[2] % v->dims[1];
    at[0] = i / v->dims[2] / v->dims[1];
}

static char *
element(const volumes *v, char *base, const int64_t *at)
{
    return base + at[0] * v->strides[0] + at[1] * v->strides[1] +
           at[2] * v->strides[2];
}

static char *
element_at(const volumes *v, char *base, int64_t i)
{
    int64_t at[AXES];
    place_of(v, i, at);
    return element(v, base, at);
}

/* ---- windows ------------------------------------------------------------- */

typedef struct {
    int64_t in[AXES], out[AXES];
    int64_t kernel[AXES], stride[AXES], pad[AXES], dilation[AXES];
    bool adaptive; /* even shares, from floor to ceil */
    bool count_pad;
    int64_t divisor; /* of means; 0: the count of places */
} windows;

/* Arguments at, at + 1, ...: kernel_size, stride, padding. */
static windows
windows_make(const air_call *call, int at, int axes, const volumes *in,
             const volumes *out)
{
    windows w = {.count_pad = true};
    for (int k = 0; k < AXES; k++) {
        int entry = k - (AXES - axes);
        bool given = entry >= 0;
        w.in[k] = in->dims[k];
        w.out[k] = out->dims[k];
        w.kernel[k] = given ? ref_ints(call, at, entry, 1) : 1;
        w.stride[k] = given ? ref_ints(call, at + 1, entry, w.kernel[k]) : 1;
        w.pad[k] = given ? ref_ints(call, at + 2, entry, 0) : 0;
        w.dilation[k] = 1;
    }
    return w;
}

static windows
windows_adaptive(const volumes *in, const volumes *out)
{
    windows w = {.adaptive = true};
    memcpy(w.in, in->dims, sizeof w.in);
    memcpy(w.out, out->dims, sizeof w.out);
    return w;
}

/* What a window covers of the input, and what its sum is divided by. */
typedef struct {
    int64_t begin[AXES], end[AXES], step[AXES];
    double divisor;
} cover;

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void
cover_share(const windows *w, int k, int64_t at, cover *c)
{
    c->begin[k] = at * w->in[k] / w->out[k];
    c->end[k] = ((at + 1) * w->in[k] + w->out[k] - 1) / w->out[k];
    c->step[k] = 1;
    c->divisor *= (double)(c->end[k] - c->begin[k]);
}

static void
cover_axis(const windows *w, int k, int64_t at, cover *c)
{
    int64_t begin = at * w->stride[k] - w->pad[k], step = w->dilation[k];
    int64_t end = begin + (w->kernel[k] - 1) * step + 1;
    int64_t padded = least(end, w->in[k] + w->pad[k]) - begin;
    if (begin < 0)
        begin += (-begin + step - 1) / step * step;
    c->begin[k] = begin;
    c->end[k] = least(end, w->in[k]);
    c->step[k] = step;
    int64_t covered = c->end[k] > begin ? c->end[k] - begin : 0;
    c->divisor *= (double)(w->count_pad ? padded : covered);
}

static cover
cover_at(const windows *w, const volumes *out, int64_t i)
{
    cover c = {.divisor = 1};
    int64_t at[AXES];
    place_of(out, i, at);
    for (int k = 0; k < AXES; k++)
        (w->adaptive ? cover_share : cover_axis)(w, k, at[k], &c);
    if (w->divisor != 0)
        c.divisor = (double)w->divisor;
    return c;
}

/* The first place of a window, false: it has none. */
static bool
first_place(const cover *c, int64_t *at)
{
    memcpy(at, c->begin, sizeof c->begin);
    return c->begin[0] < c->end[0] && c->begin[1] < c->end[1] &&
           c->begin[2] < c->end[2];
}

static bool
next_place(const cover *c, int64_t *at)
{
    for (int k = AXES - 1; k >= 0; k--) {
        at[k] += c->step[k];
        if (at[k] < c->end[k])
            return true;
        at[k] = c->begin[k];
    }
    return false;
}

/* ---- the largest --------------------------------------------------------- */

/* NaN does, too; of integers all bits count. */
static bool
exceeds(int dtype, const char *x, const char *best)
{
    double v;
    if (!ref_is_float(dtype))
        return ref_get_int(dtype, x) > ref_get_int(dtype, best);
    v = ref_get(dtype, x);
    return v > ref_get(dtype, best) || isnan(v);
}

static int64_t
index_of(const volumes *v, const int64_t *at)
{
    return (at[0] * v->dims[1] + at[1]) * v->dims[2] + at[2];
}

/* Where the largest of a window is, counted in the volume, and itself. Dilated
 * windows may have no place in the input: NULL, and the first of those that
 * they have behind the padding, as ATen says it. */
static int64_t
largest(const cover *c, const volumes *in, char *base, const char **out)
{
    int64_t best = index_of(in, c->begin), at[AXES];
    bool more = first_place(c, at);
    for (*out = NULL; more; more = next_place(c, at)) {
        const char *x = element(in, base, at);
        if (*out == NULL || exceeds(in->dtype, x, *out)) {
            *out = x;
            best = index_of(in, at);
        }
    }
    return best;
}

static void
put_least(int dtype, char *dst)
{
    const int bits = 8 * (int)ref_bytes(dtype);
    if (ref_is_float(dtype))
        ref_put(dtype, dst, -(double)INFINITY);
    else
        ref_put_int(dtype, dst, dtype == AIR_U8 ? 0 : INT64_MIN >> (64 - bits));
}

/* index: the places; NULL: nobody asks. */
static void
max_forward(const windows *w, const volumes *in, const volumes *out,
            const volumes *index, const air_task *task)
{
    int64_t begin, end;
    air_split(count_of(in) > 0 ? ref_numel(&in->outer) : 0, task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = volume(in, p), *dst = volume(out, p);
        char *where = index == NULL ? NULL : volume(index, p);
        for (int64_t i = 0; i < count_of(out); i++) {
            cover c = cover_at(w, out, i);
            const char *most;
            int64_t best = largest(&c, in, src, &most);
            if (most == NULL)
                put_least(in->dtype, element_at(out, dst, i));
            else
                ref_copy(element_at(out, dst, i), most, ref_bytes(in->dtype));
            if (index != NULL)
                ref_put_int(index->dtype, element_at(index, where, i), best);
        }
    }
}

typedef enum { PLAIN_WINDOWS, ADAPTIVE, CHANNELS_LAST } pool_kind;

/* (self, kernel_size, stride, padding, dilation, ceil_mode), or (self,
 * output_size) where adaptive: indices count in the volume */
static void
max_pool(const air_call *call, const air_task *task, int axes, pool_kind kind)
{
    const bool last = kind == CHANNELS_LAST, adaptive = kind == ADAPTIVE;
    const bool places = call->nouts > 1;
    ref_tensor a = usual(ref_arg(call, 0, task), last);
    ref_tensor b = usual(ref_out(call, 0, task), last);
    ref_tensor c = usual(ref_out(call, places, task), last);
    volumes in = volumes_of(&a, axes), out = volumes_of(&b, axes);
    volumes index = volumes_of(&c, axes);
    windows w = adaptive ? windows_adaptive(&in, &out)
                         : windows_make(call, 1, axes, &in, &out);
    for (int k = AXES - axes; k < AXES && !adaptive; k++)
        w.dilation[k] = ref_ints(call, 4, k - (AXES - axes), 1);
    max_forward(&w, &in, &out, places ? &index : NULL, task);
}

void
ref_max_pool2d(const air_call *call, const air_task *task)
{
    max_pool(call, task, 2, PLAIN_WINDOWS);
}

void
ref_max_pool3d(const air_call *call, const air_task *task)
{
    max_pool(call, task, 3, PLAIN_WINDOWS);
}

void
ref_adaptive_max_pool2d(const air_call *call, const air_task *task)
{
    max_pool(call, task, 2, ADAPTIVE);
}

void
ref_adaptive_max_pool3d(const air_call *call, const air_task *task)
{
    max_pool(call, task, 3, ADAPTIVE);
}

void
ref_max_pool_last(const air_call *call, const air_task *task)
{
    max_pool(call, task, 2, CHANNELS_LAST);
}

typedef enum { ADDED, PUT, ADDED_LAST } scatter_kind;

/* Elements of argument 0 go to the places that argument `at` names, where they
 * add up or, PUT, the last one stays. ADDED_LAST: [N, H, W, C]. */
static void
scatter_places(const air_call *call, const air_task *task, int axes, int at,
               scatter_kind kind)
{
    const bool last = kind == ADDED_LAST;
    ref_tensor a = usual(ref_arg(call, 0, task), last);
    ref_tensor b = usual(ref_arg(call, at, task), last);
    ref_tensor c = usual(ref_out(call, 0, task), last);
    volumes grad = volumes_of(&a, axes), index = volumes_of(&b, axes);
    volumes out = volumes_of(&c, axes);
    int64_t begin, end;
    ref_fill(&c, 0, task);
    task->barrier(task);
    air_split(ref_numel(&grad.outer), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = volume(&grad, p), *dst = volume(&out, p);
        char *where = volume(&index, p);
        for (int64_t i = 0; i < count_of(&grad); i++) {
            int64_t to = ref_get_int(index.dtype, element_at(&index, where, i));
            if (!ref_wrap(&to, count_of(&out), task))
                continue;
            char *from = element_at(&grad, src, i);
            if (kind == PUT)
                ref_copy(element_at(&out, dst, to), from, ref_bytes(c.dtype));
            else
                ref_add(c.dtype, element_at(&out, dst, to), from);
        }
    }
}

/* (grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices) */
void
ref_max_pool2d_backward(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 2, 7, ADDED);
}

void
ref_max_pool_last_backward(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 2, 7, ADDED_LAST);
}

void
ref_max_pool3d_backward(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 3, 7, ADDED);
}

/* (grad, self, indices) */
void
ref_adaptive_max_pool2d_backward(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 2, 2, ADDED);
}

void
ref_adaptive_max_pool3d_backward(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 3, 2, ADDED);
}

/* (self, indices, output_size, ...) */
void
ref_max_unpool2d(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 2, 1, PUT);
}

void
ref_max_unpool3d(const air_call *call, const air_task *task)
{
    scatter_places(call, task, 3, 1, PUT);
}

/* ---- means --------------------------------------------------------------- */

static void
mean_forward(const windows *w, const volumes *in, const volumes *out,
             const air_task *task)
{
    int64_t begin, end, at[AXES];
    air_split(ref_numel(&in->outer), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = volume(in, p), *dst = volume(out, p);
        for (int64_t i = 0; i < count_of(out); i++) {
            cover c = cover_at(w, out, i);
            double sum = 0;
            bool some = first_place(&c, at);
            for (bool more = some; more; more = next_place(&c, at))
                sum += ref_get(in->dtype, element(in, src, at));
            ref_put(out->dtype, element_at(out, dst, i),
                    some ? sum / c.divisor : 0);
        }
    }
}

/* out: the gradient of the input. */
static void
mean_backward(const windows *w, const volumes *grad, const volumes *out,
              const air_task *task)
{
    int64_t begin, end, at[AXES];
    air_split(ref_numel(&grad->outer), task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        char *src = volume(grad, p), *dst = volume(out, p), share[8];
        for (int64_t i = 0; i < count_of(grad); i++) {
            cover c = cover_at(w, grad, i);
            double g = ref_get(grad->dtype, element_at(grad, src, i));
            ref_put(out->dtype, share, g / c.divisor);
            bool more = first_place(&c, at);
            for (; more; more = next_place(&c, at))
                ref_add(out->dtype, element(out, dst, at), share);
        }
    }
}

/* (self, kernel_size, stride, padding, ceil_mode, count_include_pad,
 * divisor_override), or (self, output_size) where adaptive */
static void
mean_pool(const air_call *call, const air_task *task, int axes, bool adaptive)
{
    ref_tensor a = ref_arg(call, 0, task), b = ref_out(call, 0, task);
    volumes in = volumes_of(&a, axes), out = volumes_of(&b, axes);
    windows w = adaptive ? windows_adaptive(&in, &out)
                         : windows_make(call, 1, axes, &in, &out);
    if (!adaptive) {
        w.count_pad = ref_int(call, 5, 1) != 0;
        w.divisor = ref_int(call, 6, 0);
    }
    mean_forward(&w, &in, &out, task);
}

/* (grad, self, kernel_size, ...), or (grad, self) where adaptive */
static void
mean_pool_backward(const air_call *call, const air_task *task, int axes,
                   bool adaptive)
{
    ref_tensor a = ref_arg(call, 0, task), b = ref_out(call, 0, task);
    volumes grad = volumes_of(&a, axes), out = volumes_of(&b, axes);
    windows w = adaptive ? windows_adaptive(&out, &grad)
                         : windows_make(call, 2, axes, &out, &grad);
    if (!adaptive) {
        w.count_pad = ref_int(call, 6, 1) != 0;
        w.divisor = ref_int(call, 7, 0);
    }
    ref_fill(&b, 0, task);
    task->barrier(task);
    mean_backward(&w, &grad, &out, task);
}

void
ref_avg_pool2d(const air_call *call, const air_task *task)
{
    mean_pool(call, task, 2, false);
}

void
ref_avg_pool3d(const air_call *call, const air_task *task)
{
    mean_pool(call, task, 3, false);
}

void
ref_adaptive_avg_pool2d(const air_call *call, const air_task *task)
{
    mean_pool(call, task, 2, true);
}

void
ref_adaptive_avg_pool3d(const air_call *call, const air_task *task)
{
    mean_pool(call, task, 3, true);
}

void
ref_avg_pool2d_backward(const air_call *call, const air_task *task)
{
    mean_pool_backward(call, task, 2, false);
}

void
ref_avg_pool3d_backward(const air_call *call, const air_task *task)
{
    mean_pool_backward(call, task, 3, false);
}

void
ref_adaptive_avg_pool2d_backward(const air_call *call, const air_task *task)
{
    mean_pool_backward(call, task, 2, true);
}

void
ref_adaptive_avg_pool3d_backward(const air_call *call, const air_task *task)
{
    mean_pool_backward(call, task, 3, true);
}
