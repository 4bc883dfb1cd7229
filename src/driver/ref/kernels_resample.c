/* kernels_resample.c: upsampling and its gradients, element by element. Threads
 * share the planes (batch and channels). */
#include "driver/ref/kernels.h"
#include "driver/ref/resample.h"

enum { AXES = REF_RESAMPLE_AXES };

/* What makes each element of one resized axis. */
typedef struct {
    int64_t most;
    int64_t *count, *index;
    double *weight;
} taps;

typedef struct {
    ref_resample axis[AXES];
    taps taps[AXES];
    double *sums;       /* backward: the gradient of a plane */
    ref_tensor in, out; /* forward's, or their gradients */
    int64_t planes;
    int64_t in_step[AXES], out_step[AXES]; /* bytes */
} resampling;

static size_t
table_size(const ref_resample *axis)
{
    return (size_t)axis->out * (1 + 2 * (size_t)ref_resample_most(axis));
}

static size_t
plane_size(const ref_resample *axis)
{
    return (size_t)(axis[0].in * axis[1].in * axis[2].in);
}

static size_t
workspace(const air_call *call, int threads, ref_filter filter, bool backward)
{
    ref_resample axis[AXES];
    size_t words = 0;

    ref_resample_open(call, filter, backward, axis);
    for (int k = 0; k < AXES; k++)
        words += table_size(&axis[k]);
    if (backward)
        words += plane_size(axis);
    return words * sizeof(double) * (size_t)threads;
}

static int64_t *
make_taps(resampling *s, int k, int64_t *memory)
{
    const ref_resample *axis = &s->axis[k];
    taps *t = &s->taps[k];

    t->most = ref_resample_most(axis);
    t->count = memory;
    t->index = t->count + axis->out;
    t->weight = (double *)(void *)(t->index + axis->out * t->most);
    for (int64_t i = 0; i < axis->out; i++)
        t->count[i] = ref_resample_taps(axis, i, t->index + i * t->most,
                                        t->weight + i * t->most);
    return (int64_t *)(void *)(t->weight + axis->out * t->most);
}

static void
make_steps(const ref_tensor *t, int64_t *step)
{
    const int first = AXES - (t->rank - 2);
    for (int k = 0; k < AXES; k++)
        step[k] = k < first ? 0 : t->strides[k - first + 2];
}

static resampling
begin_resampling(const air_call *call, const air_task *task, ref_filter filter,
                 bool backward)
{
    resampling s;
    int64_t *memory =
        (int64_t *)task->workspace + workspace(call, 1, filter, backward) /
                                         sizeof(double) * (size_t)task->id;

    ref_resample_open(call, filter, backward, s.axis);
    for (int k = 0; k < AXES; k++)
        memory = make_taps(&s, k, memory);
    s.sums = (double *)(void *)memory;
    s.in = backward ? ref_out(call, 0, task) : ref_arg(call, 0, task);
    s.out = backward ? ref_arg(call, 0, task) : ref_out(call, 0, task);
    s.planes = s.in.dims[0] * s.in.dims[1];
    make_steps(&s.in, s.in_step);
    make_steps(&s.out, s.out_step);
    return s;
}

static char *
plane_of(const ref_tensor *t, int64_t p)
{
    return t->data + p / t->dims[1] * t->strides[0] +
           p % t->dims[1] * t->strides[1];
}

static int64_t
step_to(const int64_t *step, int64_t z, int64_t y, int64_t x)
{
    return z * step[0] + y * step[1] + x * step[2];
}

/* One element of the resized plane, and the taps that it has. */
typedef void (*visit)(const resampling *s, char *in, char *out,
                      const int64_t *at);

static void
each_element(const resampling *s, int64_t p, visit fn)
{
    char *in = plane_of(&s->in, p), *out = plane_of(&s->out, p);
    int64_t at[AXES];

    for (at[0] = 0; at[0] < s->axis[0].out; at[0]++)
        for (at[1] = 0; at[1] < s->axis[1].out; at[1]++)
            for (at[2] = 0; at[2] < s->axis[2].out; at[2]++)
                fn(s, in, out + step_to(s->out_step, at[0], at[1], at[2]), at);
}

static void
gather_element(const resampling *s, char *in, char *out, const int64_t *at)
{
    const taps *z = &s->taps[0], *y = &s->taps[1], *x = &s->taps[2];
    const int64_t zs = at[0] * z->most, ys = at[1] * y->most;
    const int64_t xs = at[2] * x->most;
    double sum = 0;

    for (int64_t i = zs; i < zs + z->count[at[0]]; i++)
        for (int64_t j = ys; j < ys + y->count[at[1]]; j++)
            for (int64_t k = xs; k < xs + x->count[at[2]]; k++)
                sum += z->weight[i] * y->weight[j] * x->weight[k] *
                       ref_get(s->in.dtype,
                               in + step_to(s->in_step, z->index[i],
                                            y->index[j], x->index[k]));
    ref_put(s->out.dtype, out, sum);
}

static void
spread_element(const resampling *s, char *in, char *out, const int64_t *at)
{
    const taps *z = &s->taps[0], *y = &s->taps[1], *x = &s->taps[2];
    const int64_t zs = at[0] * z->most, ys = at[1] * y->most;
    const int64_t xs = at[2] * x->most;
    const double grad = ref_get(s->out.dtype, out);

    (void)in;
    for (int64_t i = zs; i < zs + z->count[at[0]]; i++)
        for (int64_t j = ys; j < ys + y->count[at[1]]; j++)
            for (int64_t k = xs; k < xs + x->count[at[2]]; k++)
                s->sums[(z->index[i] * s->axis[1].in + y->index[j]) *
                            s->axis[2].in +
                        x->index[k]] +=
                    z->weight[i] * y->weight[j] * x->weight[k] * grad;
}

static void
store_sums(const resampling *s, int64_t p)
{
    const double *from = s->sums;
    char *in = plane_of(&s->in, p);

    for (int64_t z = 0; z < s->axis[0].in; z++)
        for (int64_t y = 0; y < s->axis[1].in; y++)
            for (int64_t x = 0; x < s->axis[2].in; x++)
                ref_put(s->in.dtype, in + step_to(s->in_step, z, y, x),
                        *from++);
}

static void
forward(const air_call *call, const air_task *task, ref_filter filter)
{
    resampling s = begin_resampling(call, task, filter, false);
    int64_t begin, end;

    air_split(s.planes, task, &begin, &end);
    for (int64_t p = begin; p < end; p++)
        each_element(&s, p, gather_element);
}

static void
backward(const air_call *call, const air_task *task, ref_filter filter)
{
    resampling s = begin_resampling(call, task, filter, true);
    int64_t begin, end;

    air_split(s.planes, task, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        memset(s.sums, 0, plane_size(s.axis) * sizeof *s.sums);
        each_element(&s, p, spread_element);
        store_sums(&s, p);
    }
}

#define RESAMPLE(name, filter)                                             \
    void ref_##name(const air_call *call, const air_task *task)            \
    {                                                                      \
        forward(call, task, filter);                                       \
    }                                                                      \
    size_t ref_##name##_size(const air_call *call, int threads)            \
    {                                                                      \
        return workspace(call, threads, filter, false);                    \
    }                                                                      \
    void ref_##name##_backward(const air_call *call, const air_task *task) \
    {                                                                      \
        backward(call, task, filter);                                      \
    }                                                                      \
    size_t ref_##name##_backward_size(const air_call *call, int threads)   \
    {                                                                      \
        return workspace(call, threads, filter, true);                     \
    }
#include "driver/ref/resample.def"
#undef RESAMPLE
