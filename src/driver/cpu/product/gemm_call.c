/* gemm_call.c: mm, bmm, addmm and baddbmm as kernels. */
#include "driver/cpu/product/gemm_call.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_plain.h"
#include "driver/cpu/region/region_join.h"
#include "driver/dense.h"

#include <string.h>

int64_t
cpu_gemm_size_of(int dtype)
{
    static const uint8_t sizes[AIR_DTYPE_COUNT] = {
#define DTYPE(id, text, bytes, ...) [AIR_##id] = bytes,
#include "air_dtypes.def"
#undef DTYPE
    };
    return sizes[dtype];
}

static double
number(const air_arg *arg)
{
    return arg->kind == AIR_ARG_FLOAT ? arg->f
           : arg->kind == AIR_ARG_INT ? (double)arg->i
                                      : 1;
}

/* ---- from tensors to views ----------------------------------------------- */

static const void *
data_of(const air_tensor *t, const air_task *task)
{
    return task == NULL ? NULL : air_data(t, task);
}

/* Strides of dims of one element mean nothing: take what is fast. */
static gemm_view
view(const air_tensor *t, const air_task *task, int row, int depth)
{
    gemm_view v = {.p = data_of(t, task), .dtype = t->dtype, .rs = 1, .ks = 1};
    bool rows = t->dims[row] > 1, deep = t->dims[depth] > 1;
    if (deep)
        v.ks = t->strides[depth];
    else if (rows && t->strides[row] == 1)
        v.ks = t->dims[row];
    if (rows)
        v.rs = t->strides[row];
    else if (deep && v.ks == 1)
        v.rs = t->dims[depth];
    return v;
}

static void
set_out(gemm_product *p, const air_tensor *out, const air_task *task, int row,
        int col)
{
    p->job.y = task == NULL ? NULL : air_data(out, task);
    p->job.y_dtype = out->dtype;
    p->job.yl = out->strides[row];
    p->job.yr = out->dims[col] > 1 ? out->strides[col] : 1;
    p->job.alpha = 1, p->job.alpha64 = 1;
}

/* self of addmm and its like broadcasts: dims are counted from the right.
 * beta 0: self is not read, as in ATen. */
static void
set_self(gemm_product *p, const air_call *call, const air_task *task)
{
    const air_tensor *s = call->args[0].t;
    int64_t strides[3] = {0, 0, 0};
    p->job.beta64 = number(&call->args[3]);
    p->job.alpha64 = number(&call->args[4]);
    p->job.beta = (float)p->job.beta64;
    p->job.alpha = (float)p->job.alpha64;
    if (p->job.alpha64 == 0)
        p->job.k = 0; /* the factors are not read, as in BLAS */
    if (p->job.beta64 == 0)
        return;
    for (int i = 0; i < s->rank; i++)
        if (s->dims[i] > 1)
            strides[3 - s->rank + i] = s->strides[i];
    p->job.s = task == NULL ? "" : data_of(s, task);
    p->job.s_dtype = s->dtype;
    p->s_step = strides[0];
    p->job.sl = strides[1];
    p->job.sr = strides[2];
}

/* a [.., m, k] times b [.., k, n], of rank 2 or 3. */
static gemm_product
make_matrices(const air_tensor *a, const air_tensor *b, const air_tensor *out,
              const air_task *task)
{
    int r = a->rank - 2, c = a->rank - 1;
    gemm_product p = {.batch = 1};
    p.job.nx = a->dims[r];
    p.job.nw = b->dims[c];
    p.job.k = a->dims[c];
    p.job.x = view(a, task, r, c);
    p.job.w = view(b, task, c, r);
    set_out(&p, out, task, r, c);
    if (a->rank == 3) {
        p.batch = a->dims[0];
        p.x_step = a->strides[0];
        p.w_step = b->strides[0];
        p.y_step = out->strides[0];
    }
    return p;
}

static gemm_product
make_mm(const air_call *call, const air_task *task)
{
    return make_matrices(call->args[0].t, call->args[1].t, &call->outs[0],
                         task);
}

static gemm_product
make_addmm(const air_call *call, const air_task *task)
{
    gemm_product p =
        make_matrices(call->args[1].t, call->args[2].t, &call->outs[0], task);
    set_self(&p, call, task);
    return p;
}

gemm_product
cpu_gemm_product(const air_call *call, const air_task *task)
{
    return call->nargs == 2 ? make_mm(call, task) : make_addmm(call, task);
}

/* ---- running ------------------------------------------------------------- */

gemm_job
cpu_gemm_job_at(const gemm_product *p, int64_t i)
{
    gemm_job job = p->job;
    job.x.p =
        (const char *)job.x.p + i * p->x_step * cpu_gemm_size_of(job.x.dtype);
    job.w.p =
        (const char *)job.w.p + i * p->w_step * cpu_gemm_size_of(job.w.dtype);
    job.y = (char *)job.y + i * p->y_step * cpu_gemm_size_of(job.y_dtype);
    job.at = i * p->y_step;
    if (job.s != NULL)
        job.s =
            (const char *)job.s + i * p->s_step * cpu_gemm_size_of(job.s_dtype);
    return job;
}

/* Panels of a thread that works alone. */
#define ALONE_BYTES ((size_t)1 << 20)

static bool
can_be_alone(const gemm_product *p, size_t bytes)
{
    return p->batch > 1 && bytes <= ALONE_BYTES;
}

size_t
cpu_gemm_product_workspace(const gemm_product *p, int threads)
{
    if (!gemm_is_float(p->job.x.dtype) || p->batch == 0)
        return 0;
    size_t bytes = cpu_gemm_workspace(&p->job, 1);
    return can_be_alone(p, bytes) ? bytes * (size_t)threads
                                  : cpu_gemm_workspace(&p->job, threads);
}

/* Whole products to each thread. */
static void
run_alone(const gemm_product *p, const gemm_ops *ops, const air_task *task,
          size_t bytes)
{
    gemm_team team = {
        0,
        1,
        NULL,
        (float *)((char *)task->workspace + bytes * (size_t)task->id),
        task->scratch,
        NULL};
    int64_t b, e;
    air_split(p->batch, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        gemm_job job = cpu_gemm_job_at(p, i);
        cpu_gemm_run(&job, ops, &team);
    }
}

/* A vector and a matrix whose rows the sums lie along. */
static bool
is_vector(const gemm_job *job)
{
    enum { DEPTH = 16, MATRIX = 4096 };
    const gemm_view *v = job->nx == 1 ? &job->x : &job->w;
    const gemm_view *m = job->nx == 1 ? &job->w : &job->x;

    return (job->nx == 1 || job->nw == 1) && job->k >= DEPTH && v->ks == 1 &&
           m->rs == 1 && m->ks != 1 && job->nx * job->nw * job->k <= MATRIX;
}

/* Products for which it takes longer to plan and to pack than to compute: all
 * three matrices small, one of few numbers and little depth, or a vector. */
static bool
is_small(const gemm_product *p)
{
    enum { DEPTH = 8, FACTOR = 48, MATRIX = 256, BATCH = 4 };
    const gemm_job *job = &p->job;
    const int64_t x = job->nx * job->k, w = job->nw * job->k;
    const int dtype = job->y_dtype;
    const bool plain = dtype == AIR_F32 || dtype == AIR_F64;

    return plain && job->x.dtype == dtype && job->w.dtype == dtype &&
           (job->s == NULL || job->s_dtype == dtype) && job->lines == NULL &&
           p->batch >= BATCH &&
           (is_vector(job) ||
            (job->k <= DEPTH && (x <= FACTOR || w <= FACTOR)) ||
            (x <= MATRIX && w <= MATRIX && job->nx * job->nw <= MATRIX));
}

void
cpu_gemm_product_run(const gemm_product *p, const gemm_ops *ops,
                     const air_task *task)
{
    if (is_small(p)) {
        int64_t b, e;
        air_split(p->batch, task, &b, &e);
        ops->small(p, b, e);
        return;
    }
    if (!gemm_is_float(p->job.x.dtype)) {
        for (int64_t i = 0; i < p->batch; i++) {
            gemm_job job = cpu_gemm_job_at(p, i);
            cpu_gemm_plain(&job, task);
        }
        return;
    }
    size_t bytes = p->batch > 0 ? cpu_gemm_workspace(&p->job, 1) : 0;
    bool even = p->batch >= 2 * task->count || p->batch % task->count == 0;
    if (can_be_alone(p, bytes) && even) {
        run_alone(p, ops, task, bytes);
        return;
    }
    gemm_team team = {task->id,      task->count,
                      task,          task->workspace,
                      task->scratch, p->batch == 1 ? task->taken : NULL};
    for (int64_t i = 0; i < p->batch; i++) {
        gemm_job job = cpu_gemm_job_at(p, i);
        if (i > 0 && task->count > 1)
            task->barrier(task); /* the panels are free again */
        cpu_gemm_run(&job, ops, &team);
    }
}

bool
cpu_on_avx512(const air_call *call, const char *isa)
{
    (void)call;
    return strcmp(cpu_isa_base(isa), "avx512") == 0;
}

bool
cpu_on_avx2(const air_call *call, const char *isa)
{
    (void)call;
    return strcmp(isa, "avx2") == 0;
}

bool
cpu_on_scalar(const air_call *call, const char *isa)
{
    (void)call, (void)isa;
    return true;
}

bool
cpu_is_dense(const air_tensor *t)
{
    return driver_is_dense(t);
}

bool
cpu_gemm_joins(const air_call *call)
{
    return gemm_is_float(call->outs[0].dtype);
}

#define ISA_KERNEL(name, table)                                              \
    void cpu_##name##_##table(const air_call *call, const air_task *task)    \
    {                                                                        \
        cpu_join_run join;                                                   \
        gemm_product p = cpu_gemm_product(call, task);                       \
        p.job.lines = cpu_join_begin(                                        \
            &join, call, task, cpu_gemm_product_workspace(&p, task->count)); \
        cpu_gemm_product_run(&p, &cpu_gemm_##table, task);                   \
    }
#if defined(__x86_64__)
#define KERNELS(name)        \
    ISA_KERNEL(name, avx512) \
    ISA_KERNEL(name, avx2)   \
    ISA_KERNEL(name, scalar) \
    WORKSPACE(name)
#else
#define KERNELS(name)        \
    ISA_KERNEL(name, scalar) \
    WORKSPACE(name)
#endif
#define WORKSPACE(name)                                                     \
    size_t cpu_##name##_workspace(const air_call *call, int threads)        \
    {                                                                       \
        gemm_product p = cpu_gemm_product(call, NULL);                      \
        return cpu_join_workspace(                                          \
            call->extra, cpu_gemm_product_workspace(&p, threads), threads); \
    }

KERNELS(mm)
KERNELS(bmm)
KERNELS(addmm)
KERNELS(baddbmm)
