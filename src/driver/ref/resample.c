/* resample.c: the arithmetic of upsampling along one axis. */
#include "driver/ref/resample.h"

#include <math.h>

/* A result of f32 arithmetic, or of f64. */
static double
rounded(const ref_resample *r, double x)
{
    return r->wide ? x : (double)(float)x;
}

static double
scale_of(const ref_resample *r, double given)
{
    if (r->align)
        return r->out > 1
                   ? rounded(r, (double)(r->in - 1) / (double)(r->out - 1))
                   : 0;
    return rounded(r, given > 0 ? 1 / given : (double)r->in / (double)r->out);
}

static ref_resample
axis_of(ref_filter filter, bool align, bool wide, int64_t in, int64_t out,
        double given)
{
    ref_resample r = {filter, align, wide, in, out, 0};
    if (filter <= REF_NEAREST_EXACT)
        r.wide = false;
    r.scale = scale_of(&r, given);
    return r;
}

void
ref_resample_open(const air_call *call, ref_filter filter, bool backward,
                  ref_resample axes[REF_RESAMPLE_AXES])
{
    const air_tensor *t = call->args[0].t, *result = &call->outs[0];
    const air_tensor *in = backward ? result : t, *out = backward ? t : result;
    const bool wide = t->dtype == AIR_F64;
    const int first = REF_RESAMPLE_AXES - (t->rank - 2);
    int at = backward ? 3 : 2;
    bool align = false;

    if (filter >= REF_LINEAR)
        align = ref_int(call, at++, 0) != 0;
    for (int k = 0; k < REF_RESAMPLE_AXES; k++) {
        int axis = k - first;
        axes[k] = axis < 0 ? axis_of(REF_NEAREST, false, wide, 1, 1, 0)
                           : axis_of(filter, align, wide, in->dims[axis + 2],
                                     out->dims[axis + 2],
                                     ref_float(call, at + axis, 0));
    }
}

/* ---- filters ------------------------------------------------------------- */

#define SHARP  (-0.75) /* cubic */
#define SMOOTH (-0.5)  /* cubic, wide */

/* Convolution by cubes: within 1 of the centre, and from 1 to 2. */
static double
cube_near(double x, double a)
{
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

static double
cube_far(double x, double a)
{
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static double
filter_at(ref_filter filter, double x)
{
    x = fabs(x);
    if (filter == REF_LINEAR_WIDE)
        return x < 1 ? 1 - x : 0;
    return x < 1 ? cube_near(x, SMOOTH) : x < 2 ? cube_far(x, SMOOTH) : 0;
}

/* Elements on either side of the centre. */
static double
reach_of(const ref_resample *r)
{
    double reach = r->filter == REF_LINEAR_WIDE ? 1 : 2;
    return r->scale >= 1 ? rounded(r, reach * r->scale) : reach;
}

int64_t
ref_resample_most(const ref_resample *r)
{
    switch (r->filter) {
    case REF_NEAREST:
    case REF_NEAREST_EXACT: return 1;
    case REF_LINEAR: return r->in == r->out ? 1 : 2;
    case REF_CUBIC: return 4;
    default: {
        double most = ceil(reach_of(r)) * 2 + 1;
        return most < (double)r->in ? (int64_t)most : r->in;
    }
    }
}

/* ---- elements ------------------------------------------------------------ */

static int64_t
clamped(int64_t i, int64_t size)
{
    return i < 0 ? 0 : i < size ? i : size - 1;
}

static int64_t
nearest(const ref_resample *r, int64_t at)
{
    double i = (double)at;
    if (r->filter == REF_NEAREST_EXACT)
        i = rounded(r, rounded(r, i + 0.5) * r->scale);
    else if (r->in == r->out)
        return at;
    else if (r->out == 2 * r->in)
        return at / 2;
    else
        i = rounded(r, i * r->scale);
    return clamped((int64_t)floor(i), r->in);
}

/* Where element `at` lies among those of the input. */
static double
source_of(const ref_resample *r, int64_t at)
{
    double i = (double)at, x;
    if (r->align)
        return rounded(r, r->scale * i);
    x = rounded(r, rounded(r, r->scale * rounded(r, i + 0.5)) - 0.5);
    return x < 0 && r->filter == REF_LINEAR ? 0 : x;
}

static double
fraction(const ref_resample *r, double x, int64_t whole)
{
    double f = rounded(r, x - (double)whole);
    return f < 0 ? 0 : f > 1 ? 1 : f;
}

static int64_t
linear_taps(const ref_resample *r, int64_t at, int64_t *index, double *weight)
{
    double x = source_of(r, at);
    int64_t i = clamped((int64_t)x, r->in);
    weight[1] = fraction(r, x, i);
    weight[0] = rounded(r, 1 - weight[1]);
    index[0] = i;
    index[1] = clamped(i + 1, r->in);
    return 2;
}

static int64_t
cubic_taps(const ref_resample *r, int64_t at, int64_t *index, double *weight)
{
    double x = source_of(r, at), t;
    int64_t i = (int64_t)floor(x);
    i = i < r->in ? i : r->in - 1;
    t = fraction(r, x, i);
    weight[0] = cube_far(t + 1, SHARP);
    weight[1] = cube_near(t, SHARP);
    weight[2] = cube_near(1 - t, SHARP);
    weight[3] = cube_far(2 - t, SHARP);
    for (int k = 0; k < 4; k++)
        index[k] = clamped(i - 1 + k, r->in);
    return 4;
}

static int64_t
wide_taps(const ref_resample *r, int64_t at, int64_t *index, double *weight)
{
    double centre = rounded(r, r->scale * rounded(r, (double)at + 0.5));
    double reach = reach_of(r), sum = 0;
    double step = r->scale >= 1 ? rounded(r, 1 / r->scale) : 1;
    int64_t begin = (int64_t)rounded(r, rounded(r, centre - reach) + 0.5);
    int64_t end = (int64_t)rounded(r, rounded(r, centre + reach) + 0.5);
    int64_t most = ref_resample_most(r), count = 0;

    begin = begin < 0 ? 0 : begin;
    end = end < r->in ? end : r->in;
    for (int64_t i = begin; i < end && count < most; i++, count++) {
        index[count] = i;
        weight[count] = filter_at(r->filter, ((double)i - centre + 0.5) * step);
        sum += weight[count];
    }
    for (int64_t k = 0; k < count && sum != 0; k++)
        weight[k] = weight[k] / sum;
    return count;
}

int64_t
ref_resample_taps(const ref_resample *r, int64_t at, int64_t *index,
                  double *weight)
{
    if (r->in == 0)
        return 0;
    switch (r->filter) {
    case REF_LINEAR:
        if (r->in != r->out)
            return linear_taps(r, at, index, weight);
        index[0] = at;
        break;
    case REF_CUBIC: return cubic_taps(r, at, index, weight);
    case REF_LINEAR_WIDE:
    case REF_CUBIC_WIDE: return wide_taps(r, at, index, weight);
    default: index[0] = nearest(r, at); break;
    }
    weight[0] = 1;
    return 1;
}
