/* conv.c: convolution over 1 to 3 axes.
 *
 * A group of one image is a matrix product: weights [channels out, K] times
 * the image as columns [K, pixels], K = channels in x kernel taps. Pixels lie
 * in the lanes, so that columns are made panel by panel from the image and the
 * result needs no turning; a kernel of one tap reads the image as it lies. Of
 * f32 there are other ways: conv_direct.h, conv_winograd.h, conv_windows.h. */
#include "driver/cpu/conv/conv.h"
#include "driver/cpu/conv/conv_direct.h"
#include "driver/cpu/conv/conv_windows.h"
#include "driver/cpu/conv/conv_winograd.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/region/region_join.h"

#define AXES CONV_AXES

typedef conv_geometry geometry;
typedef conv_image image;

static const void *
at_element(const void *p, int64_t i, int dtype)
{
    return (const char *)p + i * (dtype == AIR_F32 ? 4 : 2);
}

/* Steps of k summed in one go: the error of a sum grows with its length, and
 * torch's convolutions (oneDNN) sum fewer than GEMM_KB where the window has
 * several taps, fewest where it has few. Measured, RMS error against float64:
 * 512 channels of 3 taps 1.33 x torch's with GEMM_KB, 1.00 x so. */
static int64_t
longest_sum(const geometry *g)
{
    return g->taps == 1 ? GEMM_KB : g->taps < 9 ? 64 : 128;
}

/* Half the depth, the channels' rows of weights being rows of pairs. */
static void
make_pairs(gemm_job *job)
{
    job->pairs = true;
    job->k /= 2;
    job->longest = 0; /* rounding to bf16 is far above the error of a sum */
    job->w.rs /= 2;
    job->w.dtype = AIR_F32;
#if defined(__x86_64__)
    if (job->pack != NULL)
        job->pack = cpu_conv_pack_pairs;
#endif
}

gemm_job
cpu_conv_job(const air_call *call, const geometry *g, int64_t i,
             const air_task *task)
{
    const air_tensor *x = call->args[0].t, *w = call->args[1].t;
    const air_tensor *y = &call->outs[0];
    const air_arg *bias = &call->args[2];
    int64_t k = g->c_in * g->taps, group = i % g->groups;
    gemm_job job = {.nx = g->out_pixels,
                    .nw = g->c_out,
                    .k = k,
                    .longest = longest_sum(g),
                    .alpha = 1,
                    .beta = 1,
                    .yl = 1,
                    .yr = g->out_pixels,
                    .y_dtype = y->dtype,
                    .sr = 1};
    job.w = (gemm_view){NULL, k, 1, w->dtype};
    job.x = (gemm_view){NULL, 1, g->in_pixels, x->dtype};
    const bool biased =
        bias->kind == AIR_ARG_TENSOR && bias->t->dtype != AIR_DTYPE_NONE;
    if (biased) {
        job.s = task == NULL ? ""
                             : at_element(air_data(bias->t, task),
                                          group * g->c_out, bias->t->dtype);
        job.s_dtype = bias->t->dtype;
    }
    if (task == NULL) /* it takes the kernel that it will take */
        return job;
    job.x.p =
        at_element(air_data(x, task), i * g->c_in * g->in_pixels, x->dtype);
    job.w.p = at_element(air_data(w, task), group * g->c_out * k, w->dtype);
    job.y = (char *)air_data(y, task) +
            i * g->c_out * g->out_pixels * (y->dtype == AIR_F32 ? 4 : 2);
    return job;
}

/* The same with columns that are made of the image. */
static gemm_job
make_job(const air_call *call, const geometry *g, int64_t i,
         const air_task *task, image *im, bool pairs)
{
    gemm_job job = cpu_conv_job(call, g, i, task);
    im->x = job.x.p;
    im->dtype = job.x.dtype;
    if (!cpu_conv_is_pointwise(g))
        job.pack = cpu_conv_pack_columns, job.pack_arg = im;
    if (pairs)
        make_pairs(&job);
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
cpu_conv_workspace(const air_call *call, const geometry *g, int threads,
                   bool pairs)
{
    image im;
    gemm_job job = make_job(call, g, 0, NULL, &im, pairs);
    size_t alone = cpu_gemm_workspace(&job, 1);
    return can_be_alone(g, alone) ? alone * (size_t)threads
                                  : cpu_gemm_workspace(&job, threads);
}

size_t
cpu_convolution_workspace(const air_call *call, int threads)
{
    geometry g = cpu_conv_forward(call);
    size_t bytes = cpu_conv_is_direct(&g) ? 0
                   : cpu_conv_is_winograd(call, &g)
                       ? cpu_conv_winograd_workspace(call, &g, threads)
                   : cpu_conv_is_windows(call, &g, false)
                       ? cpu_conv_windows_workspace(call, &g, false, threads)
                       : cpu_conv_workspace(call, &g, threads, false);
    return cpu_join_workspace(call->extra, bytes, threads);
}

void
cpu_conv_run(const air_call *call, const geometry *g, const air_task *task,
             const gemm_ops *ops, bool pairs)
{
    image im = {.g = g, .ops = ops};
    cpu_join_run join;
    const gemm_lines *lines = cpu_join_begin(
        &join, call, task, cpu_conv_workspace(call, g, task->count, pairs));
    gemm_job job = make_job(call, g, 0, NULL, &im, pairs);
    size_t bytes = cpu_gemm_workspace(&job, 1);
    int64_t items = g->batch * g->groups, b = 0, e = items;
    bool alone = can_be_alone(g, bytes) &&
                 (items >= 2 * task->count || items % task->count == 0);
    gemm_team team = {task->id,        task->count,   task,
                      task->workspace, task->scratch, NULL};
    if (alone) {
        team = (gemm_team){
            0,
            1,
            NULL,
            (float *)((char *)task->workspace + bytes * (size_t)task->id),
            task->scratch,
            NULL};
        air_split(items, task, &b, &e);
    }
    for (int64_t i = b; i < e; i++) {
        job = make_job(call, g, i, task, &im, pairs);
        job.lines = lines;
        job.at = i * g->c_out * g->out_pixels;
        if (i > b && team.count > 1)
            task->barrier(task); /* the panels are free again */
        cpu_gemm_run(&job, ops, &team);
    }
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    geometry g = cpu_conv_forward(call);
    if (cpu_conv_is_direct(&g))
        cpu_conv_direct(call, &g, ops, task);
    else if (cpu_conv_is_winograd(call, &g))
        cpu_conv_winograd(call, &g, ops, task);
    else if (cpu_conv_is_windows(call, &g, false))
        cpu_conv_windows(call, &g, false, ops, task);
    else
        cpu_conv_run(call, &g, task, ops, false);
}

/* Operands with gaps or another order of axes, and other dtypes are left to
 * the plain kernel. Transposed ones are another op (pass/expand_conv.c). */
bool
cpu_conv_takes(const air_call *call)
{
    const air_tensor *x = call->args[0].t;
    for (int i = 0; i < 3; i++)
        if (call->args[i].kind == AIR_ARG_TENSOR &&
            !cpu_is_dense(call->args[i].t))
            return false;
    return gemm_is_float(x->dtype) && call->args[1].t->dtype == x->dtype &&
           x->rank >= 3 && x->rank <= 2 + AXES && call->args[6].i == 0 &&
           cpu_is_dense(&call->outs[0]);
}

static bool
accept(const air_call *call)
{
    return cpu_conv_takes(call);
}

bool
cpu_convolution_joins(const air_call *call)
{
    (void)call;
    return true;
}

GEMM_KERNELS(convolution)
