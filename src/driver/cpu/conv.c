/* conv.c: convolution over 1 to 3 axes.
 *
 * A group of one image is a matrix product: weights [channels out, K] times
 * the image as columns [K, pixels], K = channels in x kernel taps. Pixels lie
 * in the lanes, so that columns are made panel by panel from the image and the
 * result needs no turning; a kernel of one tap reads the image as it lies. */
#include "driver/cpu/gemm.h"
#include "driver/cpu/gemm_core.h"

#include <string.h>

#define AXES     3
#define MAX_TAPS 128 /* of a kernel that runs tap by tap */

typedef struct {
    int64_t in[AXES], out[AXES], kernel[AXES];
    int64_t stride[AXES], pad[AXES], dilation[AXES];
    int64_t batch, groups, c_in, c_out; /* channels of a group */
    int64_t in_pixels, out_pixels, taps;
} geometry;

static int64_t
min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Entry of a list that may have one entry for all axes. */
static int64_t
entry(const air_arg *list, int i)
{
    return list->ints[list->count == 1 ? 0 : i];
}

static geometry
read_geometry(const air_call *call)
{
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    int n = x->rank - 2, first = AXES - n;
    geometry g = {.batch = x->dims[0],
                  .groups = call->args[8].i,
                  .in_pixels = 1,
                  .out_pixels = 1,
                  .taps = 1};
    g.c_in = w->dims[1];
    g.c_out = w->dims[0] / g.groups;
    for (int i = 0; i < AXES; i++) {
        bool real = i >= first;
        int d = i - first;
        g.in[i] = real ? x->dims[d + 2] : 1;
        g.out[i] = real ? call->outs[0].dims[d + 2] : 1;
        g.kernel[i] = real ? w->dims[d + 2] : 1;
        g.stride[i] = real ? entry(&call->args[3], d) : 1;
        g.pad[i] = real ? entry(&call->args[4], d) : 0;
        g.dilation[i] = real ? entry(&call->args[5], d) : 1;
        g.in_pixels *= g.in[i];
        g.out_pixels *= g.out[i];
        g.taps *= g.kernel[i];
    }
    return g;
}

/* ---- columns ------------------------------------------------------------- */

/* The image of one group, for the packing of its columns. */
typedef struct {
    const geometry *g;
    const gemm_ops *ops;
    const void *x;
    int dtype;
} image;

/* Adjacent lanes of one output row that see pixels of the image at one tap. */
typedef struct {
    int64_t lane, count, at; /* at: first pixel */
} segment;

/* Positions [*b, *e) of n outputs from o on whose input is inside. */
static void
inside(const geometry *g, int axis, int64_t o, int64_t n, int64_t tap,
       int64_t *b, int64_t *e, int64_t *at)
{
    int64_t s = g->stride[axis];
    int64_t first = o * s - g->pad[axis] + tap * g->dilation[axis];
    int64_t room = g->in[axis] - first; /* first + i * s < in */
    *b = first < 0 ? min64(n, (s - 1 - first) / s) : 0;
    *e = n; /* divisions are slow, and most windows lie inside */
    if (room <= (n - 1) * s)
        *e = max64(*b, room <= 0 ? 0 : (room + s - 1) / s);
    *at = first + *b * s;
}

/* Segments of pixels [l0, l0 + nl) at a tap (index of each axis). */
static int
find_segments(const geometry *g, int64_t l0, int64_t nl, const int64_t *tap,
              segment *out)
{
    int count = 0;
    int64_t width = g->out[2];
    for (int64_t l = 0; l < nl;) {
        int64_t row = (l0 + l) / width, o = (l0 + l) % width;
        int64_t n = min64(nl - l, width - o), b, e, x, y, z, yb, ye, zb, ze;
        inside(g, 2, o, n, tap[2], &b, &e, &x);
        inside(g, 1, row % g->out[1], 1, tap[1], &yb, &ye, &y);
        inside(g, 0, row / g->out[1], 1, tap[0], &zb, &ze, &z);
        if (e > b && ye > yb && ze > zb)
            out[count++] =
                (segment){l + b, e - b, (z * g->in[1] + y) * g->in[2] + x};
        l += n;
    }
    return count;
}

/* Rows k of a panel whose tap is `tap`: one per channel. */
static void
pack_tap(const image *im, float *panel, int64_t l0, int64_t nl, int64_t k0,
         int64_t k1, int64_t tap)
{
    const geometry *g = im->g;
    segment segments[GEMM_LANES_MAX];
    int64_t size = im->dtype == AIR_F32 ? 4 : 2, lanes = im->ops->lanes;
    int64_t at[AXES] = {tap / g->kernel[2] / g->kernel[1],
                        tap / g->kernel[2] % g->kernel[1], tap % g->kernel[2]};
    int count = find_segments(g, l0, nl, at, segments);
    int64_t c = k0 <= tap ? 0 : (k0 - tap + g->taps - 1) / g->taps;
    int64_t channels = (k1 - tap + g->taps - 1) / g->taps - c;
    float *row = panel + (c * g->taps + tap - k0) * lanes;
    for (int i = 0; i < count; i++) {
        const segment *s = &segments[i];
        im->ops->copies(row + s->lane, g->taps * lanes,
                        (const char *)im->x + (c * g->in_pixels + s->at) * size,
                        g->in_pixels, g->stride[2], im->dtype, s->count,
                        channels);
    }
}

static void
pack_columns(const void *arg, float *panel, int64_t l0, int64_t nl, int64_t k0,
             int64_t k1)
{
    const image *im = arg;
    memset(panel, 0, (size_t)((k1 - k0) * im->ops->lanes) * sizeof *panel);
    for (int64_t tap = 0; tap < im->g->taps; tap++)
        pack_tap(im, panel, l0, nl, k0, k1, tap);
}

/* ---- the product --------------------------------------------------------- */

/* Is the image its own column matrix? */
static bool
is_pointwise(const geometry *g)
{
    bool same = g->taps == 1;
    for (int i = 0; i < AXES; i++)
        same = same && g->stride[i] == 1 && g->pad[i] == 0;
    return same;
}

/* ---- one channel in: tap by tap ------------------------------------------ */

/* Depthwise layers: too little work per column to make columns. */
static bool
is_depthwise(const geometry *g)
{
    return g->c_in == 1 && g->c_out <= 4 && g->taps <= MAX_TAPS &&
           g->out[2] * (int64_t)sizeof(float) <= (int64_t)AIR_SCRATCH;
}

/* Outputs [b, e) of a row that see pixels at a tap, the first of them `at`. */
typedef struct {
    int64_t b, e, at;
} span;

/* acc (output row oy of plane oz) += its taps in input rows. */
static void
depthwise_row(const geometry *g, const gemm_ops *ops, float *acc, const char *x,
              int dtype, const float *w, const span *spans, int64_t oz,
              int64_t oy)
{
    int64_t size = dtype == AIR_F32 ? 4 : 2;
    for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
        int64_t z =
            oz * g->stride[0] - g->pad[0] + k / g->kernel[1] * g->dilation[0];
        int64_t y =
            oy * g->stride[1] - g->pad[1] + k % g->kernel[1] * g->dilation[1];
        if (z < 0 || z >= g->in[0] || y < 0 || y >= g->in[1])
            continue;
        const char *row = x + (z * g->in[1] + y) * g->in[2] * size;
        for (int64_t t = 0; t < g->kernel[2]; t++)
            ops->axpy(acc + spans[t].b, w[k * g->kernel[2] + t],
                      row + spans[t].at * size, g->stride[2], dtype,
                      spans[t].e - spans[t].b);
    }
}

static const void *
at_element(const void *p, int64_t i, int dtype)
{
    return (const char *)p + i * (dtype == AIR_F32 ? 4 : 2);
}

/* Group `i % groups` of image `i / groups`; task NULL: sizes only. */
static gemm_job
make_job(const air_call *call, const geometry *g, int64_t i,
         const air_task *task, image *im)
{
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    const air_tensor *y = &call->outs[0];
    const air_arg *bias = &call->args[2];
    int64_t k = g->c_in * g->taps, group = i % g->groups;
    gemm_job job = {.nx = g->out_pixels,
                    .nw = g->c_out,
                    .k = k,
                    .alpha = 1,
                    .beta = 1,
                    .yl = 1,
                    .yr = g->out_pixels,
                    .y_dtype = y->dtype,
                    .sr = 1};
    job.w = (gemm_view){NULL, k, 1, w->dtype};
    job.x = (gemm_view){NULL, 1, g->in_pixels, x->dtype};
    if (!is_pointwise(g))
        job.pack = pack_columns, job.pack_arg = im;
    if (task == NULL)
        return job;
    im->x = at_element(air_data(x, task), i * g->c_in * g->in_pixels, x->dtype);
    im->dtype = x->dtype;
    job.x.p = im->x;
    job.w.p = at_element(air_data(w, task), group * g->c_out * k, w->dtype);
    job.y = (char *)air_data(y, task) +
            i * g->c_out * g->out_pixels * (y->dtype == AIR_F32 ? 4 : 2);
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE) {
        job.s = at_element(air_data(bias->t, task), group * g->c_out,
                           bias->t->dtype);
        job.s_dtype = bias->t->dtype;
    }
    return job;
}

/* Panels of a thread that works alone. */
#define ALONE_BYTES ((size_t)4 << 20)

static bool
can_be_alone(const geometry *g, size_t bytes)
{
    return g->batch * g->groups > 1 && bytes <= ALONE_BYTES;
}

size_t
cpu_convolution_workspace(const air_call *call, int threads)
{
    geometry g = read_geometry(call);
    image im;
    if (is_depthwise(&g))
        return 0;
    gemm_job job = make_job(call, &g, 0, NULL, &im);
    size_t bytes = cpu_gemm_workspace(&job);
    return can_be_alone(&g, bytes) ? bytes * (size_t)threads : bytes;
}

/* Channel `c` of image `n`, c over all groups. */
static void
depthwise_channel(const air_call *call, const geometry *g, const gemm_ops *ops,
                  const air_task *task, int64_t n, int64_t c)
{
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    const air_tensor *y = &call->outs[0];
    const air_arg *bias = &call->args[2];
    int64_t rows = g->out[0] * g->out[1], width = g->out[2];
    int64_t channels = g->groups * g->c_out;
    float *acc = task->scratch, taps[MAX_TAPS], start = 0;
    span spans[MAX_TAPS];
    const char *xp =
        at_element(air_data(x, task),
                   (n * g->groups + c / g->c_out) * g->in_pixels, x->dtype);
    char *yp = (char *)air_data(y, task) + (n * channels + c) * g->out_pixels *
                                               (y->dtype == AIR_F32 ? 4 : 2);
    ops->widen(taps, at_element(air_data(w, task), c * g->taps, w->dtype), 1,
               w->dtype, g->taps);
    if (bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE)
        ops->widen(&start,
                   at_element(air_data(bias->t, task), c, bias->t->dtype), 1,
                   bias->t->dtype, 1);
    for (int64_t t = 0; t < g->kernel[2]; t++)
        inside(g, 2, 0, width, t, &spans[t].b, &spans[t].e, &spans[t].at);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < width; i++)
            acc[i] = start;
        depthwise_row(g, ops, acc, xp, x->dtype, taps, spans, r / g->out[1],
                      r % g->out[1]);
        ops->narrow(yp + r * width * (y->dtype == AIR_F32 ? 4 : 2), 1, y->dtype,
                    acc, 1, width);
    }
}

static void
depthwise_run(const air_call *call, const geometry *g, const gemm_ops *ops,
              const air_task *task)
{
    int64_t channels = g->groups * g->c_out, b, e;
    air_split(g->batch * channels, task, &b, &e);
    for (int64_t i = b; i < e; i++)
        depthwise_channel(call, g, ops, task, i / channels, i % channels);
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    geometry g = read_geometry(call);
    if (is_depthwise(&g)) {
        depthwise_run(call, &g, ops, task);
        return;
    }
    image im = {.g = &g, .ops = ops};
    gemm_job job = make_job(call, &g, 0, NULL, &im);
    size_t bytes = cpu_gemm_workspace(&job);
    int64_t items = g.batch * g.groups, b = 0, e = items;
    bool alone = can_be_alone(&g, bytes) &&
                 (items >= 2 * task->count || items % task->count == 0);
    gemm_team team = {task->id, task->count, task, task->workspace,
                      task->scratch};
    if (alone) {
        team = (gemm_team){
            0, 1, NULL,
            (float *)((char *)task->workspace + bytes * (size_t)task->id),
            task->scratch};
        air_split(items, task, &b, &e);
    }
    for (int64_t i = b; i < e; i++) {
        job = make_job(call, &g, i, task, &im);
        if (i > b && team.count > 1)
            task->barrier(task); /* the panels are free again */
        cpu_gemm_run(&job, ops, &team);
    }
}

static bool
is_dense(const air_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
        stride *= t->dims[i];
    }
    return true;
}

/* Transposed convolutions, operands with gaps or another order of axes, and
 * other dtypes are left to the plain kernel. */
static bool
accept(const air_call *call)
{
    const air_tensor *x = call->args[0].t;
    for (int i = 0; i < 3; i++)
        if (call->args[i].kind == AIR_ARG_TENSOR && !is_dense(call->args[i].t))
            return false;
    return gemm_is_float(x->dtype) && call->args[1].t->dtype == x->dtype &&
           x->rank >= 3 && x->rank <= 2 + AXES && call->args[6].i == 0 &&
           is_dense(&call->outs[0]);
}

#define ISA_KERNEL(table)                                                    \
    bool cpu_convolution_on_##table(const air_call *call, const char *isa)   \
    {                                                                        \
        return accept(call) && cpu_on_##table(call, isa);                    \
    }                                                                        \
    void cpu_convolution_##table(const air_call *call, const air_task *task) \
    {                                                                        \
        run(call, task, &cpu_gemm_##table);                                  \
    }
ISA_KERNEL(scalar)
#if defined(__x86_64__)
ISA_KERNEL(avx2)
ISA_KERNEL(avx512)
#endif
