/* kernels_grid.c: grid_sampler and its gradients, element by element, in
 * double. Threads share elements of the grid, and planes of the gradient. */
#include "driver/ref/grid.h"
#include "driver/ref/kernels.h"
#include "driver/ref/walk.h"

enum { AXES = REF_GRID_AXES, TAPS = REF_GRID_TAPS * REF_GRID_TAPS };

typedef struct {
    ref_grid g;
    ref_tensor a, grid;
    int64_t channels, places; /* elements of the grid in one image */
    ref_tensor where;         /* grid[n] without coordinates */
} sampling;

/* All that makes one element: offsets in a plane (-1: outside) in bytes of `a`,
 * and along each axis. */
typedef struct {
    ref_grid_taps axis[AXES];
    int count;
    int64_t offset[TAPS];
    double weight[TAPS];
} sample;

static sampling
begin_sampling(const air_call *call, const air_task *task, bool backward)
{
    sampling s = {.g = ref_grid_open(call, backward),
                  .a = ref_arg(call, backward, task),
                  .grid = ref_arg(call, backward + 1, task)};

    s.channels = s.a.dims[1];
    s.where = ref_drop(ref_drop(s.grid, s.grid.rank - 1), 0);
    s.places = ref_numel(&s.where);
    return s;
}

/* The tensor without its first two axes. */
static ref_tensor
plane(ref_tensor t)
{
    return ref_drop(ref_drop(t, 0), 0);
}

static char *
plane_of(const ref_tensor *t, int64_t n, int64_t c)
{
    return t->data + n * t->strides[0] + c * t->strides[1];
}

/* The product of one more axis: all taps so far with each of its own. */
static void
cross(sample *p, const ref_grid_taps *axis, int64_t stride)
{
    sample old = *p;

    p->count = 0;
    for (int i = 0; i < old.count; i++)
        for (int k = 0; k < axis->count; k++) {
            bool inside = old.offset[i] >= 0 && axis->index[k] >= 0;
            p->offset[p->count] =
                inside ? old.offset[i] + axis->index[k] * stride : -1;
            p->weight[p->count++] = old.weight[i] * axis->weight[k];
        }
}

/* `strides`: of the tensor whose planes are sampled. */
static sample
find_sample(const sampling *s, int64_t n, int64_t place, const int64_t *strides)
{
    sample p = {.count = 1, .weight = {1}};
    const int last = s->grid.rank - 1;
    const char *at =
        s->grid.data + n * s->grid.strides[0] + ref_offset(&s->where, place);

    for (int k = 0; k < s->g.axes; k++) {
        double x = ref_get(s->grid.dtype,
                           at + (s->g.axes - 1 - k) * s->grid.strides[last]);
        ref_grid_find(&s->g, s->a.dims[k + 2], x, &p.axis[k]);
        cross(&p, &p.axis[k], strides[k + 2]);
    }
    return p;
}

/* grid_sampler(a, grid, interpolation_mode, padding_mode, align_corners) */
void
ref_grid_sampler(const air_call *call, const air_task *task)
{
    const sampling s = begin_sampling(call, task, false);
    ref_tensor out = ref_out(call, 0, task), shape = plane(out);
    int64_t begin, end;

    air_split(s.grid.dims[0] * s.places, task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / s.places, place = i % s.places;
        const sample p = find_sample(&s, n, place, s.a.strides);
        for (int64_t c = 0; c < s.channels; c++) {
            const char *src = plane_of(&s.a, n, c);
            double sum = 0;
            for (int k = 0; k < p.count; k++)
                sum +=
                    p.weight[k] * (p.offset[k] < 0
                                       ? 0
                                       : ref_get(s.a.dtype, src + p.offset[k]));
            ref_put(out.dtype, plane_of(&out, n, c) + ref_offset(&shape, place),
                    sum);
        }
    }
}

/* ---- gradients ----------------------------------------------------------- */

/* The gradient of `a`: planes of it belong to one thread, which goes over the
 * grid in order. */
static void
spread(const sampling *s, const ref_tensor *grad, const ref_tensor *out,
       const air_task *task)
{
    const ref_tensor from = plane(*grad), to = plane(*out);
    int64_t begin, end;

    air_split(out->dims[0] * s->channels, task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / s->channels, c = i % s->channels;
        const char *src = plane_of(grad, n, c);
        char *dst = plane_of(out, n, c);
        for (int64_t k = 0, size = ref_numel(&to); k < size; k++)
            ref_put(out->dtype, dst + ref_offset(&to, k), 0);
        for (int64_t place = 0; place < s->places; place++) {
            const sample p = find_sample(s, n, place, out->strides);
            double g = ref_get(grad->dtype, src + ref_offset(&from, place));
            for (int k = 0; k < p.count; k++) {
                char *at = dst + p.offset[k];
                if (p.offset[k] >= 0)
                    ref_put(out->dtype, at,
                            ref_get(out->dtype, at) + p.weight[k] * g);
            }
        }
    }
}

/* The derivative of tap k by the coordinate of one axis. */
static double
tap_slope(const sample *p, int axes, int axis, int k)
{
    double slope = 1;

    for (int a = axes - 1; a >= 0; a--) {
        const ref_grid_taps *t = &p->axis[a];
        slope *= a == axis ? t->slope[k % t->count] : t->weight[k % t->count];
        k /= t->count;
    }
    return slope;
}

/* The gradient of the grid at one place. */
static void
place_gradient(const sampling *s, const ref_tensor *grad, const ref_tensor *out,
               int64_t n, int64_t place)
{
    const sample p = find_sample(s, n, place, s->a.strides);
    const ref_tensor from = plane(*grad);
    const ref_tensor where = ref_drop(ref_drop(*out, out->rank - 1), 0);
    const int axes = s->g.axes;
    double sums[AXES] = {0};

    for (int k = 0; k < p.count; k++) {
        double sum = 0;
        for (int64_t c = 0; p.offset[k] >= 0 && c < s->channels; c++)
            sum += ref_get(grad->dtype,
                           plane_of(grad, n, c) + ref_offset(&from, place)) *
                   ref_get(s->a.dtype, plane_of(&s->a, n, c) + p.offset[k]);
        for (int a = 0; a < axes; a++)
            sums[a] += tap_slope(&p, axes, a, k) * sum;
    }
    for (int a = 0; a < axes; a++)
        ref_put(out->dtype,
                out->data + n * out->strides[0] + ref_offset(&where, place) +
                    (axes - 1 - a) * out->strides[out->rank - 1],
                sums[a]);
}

/* grid_sampler_backward(grad, a, grid, interpolation_mode, padding_mode,
 * align_corners, output_mask): of `a` where the mask says so, and of the grid
 */
void
ref_grid_sampler_backward(const air_call *call, const air_task *task)
{
    const sampling s = begin_sampling(call, task, true);
    ref_tensor grad = ref_arg(call, 0, task);
    ref_tensor out = ref_out(call, 0, task), by_grid = ref_out(call, 1, task);
    int64_t begin, end;

    if (ref_ints(call, 6, 0, 1) != 0)
        spread(&s, &grad, &out, task);
    air_split(s.grid.dims[0] * s.places, task, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        place_gradient(&s, &grad, &by_grid, i / s.places, i % s.places);
}
