/* library.c: matrix products by the BLAS of the application (air_library).
 *
 * The rule here holds where nothing is measured (choice.h). A library call ends
 * the parallel region, so it has to pay. Few rows never go
 * there: the engine's dot kernels read weights at the speed of memory. For f32
 * it is MKL. Where both sides lie in rows, as x and weights of layers do, the
 * engine is its equal on weights in the cache, faster on those that come from
 * memory, and regions join its products: BERT-base takes 0.86 of the time with
 * it on a Xeon. On others (Zen 4) MKL is 5 to 30 % slower anyhow. Of columns,
 * as gradients have them, it is 10 to 25 % faster with AVX-512 on the CPUs of
 * its maker; with AVX2 the engine is its equal. f64 has
 * no kernels of its own but a plain loop. bf16 goes to oneDNN where the CPU has
 * AVX-512 but the engine no kernel for its bf16 instructions. */
#include "driver/cpu/product/library.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_call.h"

#include <string.h>

#define SMALL_F64 ((double)(16 * 16 * 16)) /* multiply-adds */
#define SMALL     ((double)(1 << 20))      /* of the other types */

typedef struct {
    bool turned;
    int64_t ld;
} layout;

/* rows along rs: is one of the strides 1? */
static bool
find_layout(const gemm_view *v, int64_t rows, int64_t depth, layout *out)
{
    bool straight = v->ks == 1 && v->rs >= depth;
    bool turned = v->rs == 1 && v->ks >= rows;
    *out = straight ? (layout){false, v->rs} : (layout){true, v->ks};
    return straight || turned;
}

static bool
can_call(const gemm_job *job)
{
    layout a, b;
    return job->k > 0 && job->nx > 0 && job->nw > 0 && job->yr == 1 &&
           job->yl >= job->nw && find_layout(&job->x, job->nx, job->k, &a) &&
           find_layout(&job->w, job->nw, job->k, &b) &&
           (job->s == NULL || job->s_dtype == job->y_dtype);
}

static double
work_of(const gemm_job *job)
{
    return (double)job->nx * (double)job->nw * (double)job->k;
}

bool
cpu_library_can(const air_call *call)
{
    gemm_product p = cpu_gemm_product(call, NULL);
    const gemm_job *job = &p.job;
    return (job->x.dtype == AIR_F32 || job->x.dtype == AIR_BF16) &&
           job->w.dtype == job->x.dtype && job->y_dtype == job->x.dtype &&
           can_call(job) && p.batch > 0 && work_of(job) >= SMALL &&
           job->nx > GEMV_MAX && job->nw > GEMV_MAX;
}

bool
cpu_library_wants(const air_call *call, const char *isa)
{
    gemm_product p = cpu_gemm_product(call, NULL);
    const gemm_job *job = &p.job;
    if (job->x.dtype == AIR_F64)
        return can_call(job) && work_of(job) >= SMALL_F64;
    bool rows = job->x.ks == 1 && job->w.ks == 1;
    bool faster = job->x.dtype == AIR_BF16 || (cpu_isa_is_intel() && !rows);
    return faster && strcmp(cpu_isa_base(isa), "avx512") == 0 &&
           cpu_library_can(call);
}

/* Row l of y = s, which broadcasts. */
static void
copy_row(const gemm_job *job, int64_t l)
{
    size_t size = (size_t)cpu_gemm_size_of(job->y_dtype);
    char *y = (char *)job->y + (size_t)(l * job->yl) * size;
    const char *s = (const char *)job->s + l * job->sl * (int64_t)size;
    if (job->sr == 1) {
        memcpy(y, s, (size_t)job->nw * size);
        return;
    }
    for (int64_t r = 0; r < job->nw; r++)
        memcpy(y + (size_t)r * size, s + r * job->sr * (int64_t)size, size);
}

void
cpu_library_begin(const air_call *call, const air_task *task)
{
    gemm_product p = cpu_gemm_product(call, task);
    int64_t b, e, rows = p.job.nx;
    if (p.job.s == NULL)
        return; /* beta is 0 */
    air_split(p.batch * rows, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        gemm_job job = cpu_gemm_job_at(&p, i / rows);
        copy_row(&job, i % rows);
    }
}

static bool
call_one(const air_library *lib, const gemm_job *job)
{
    layout a, b;
    find_layout(&job->x, job->nx, job->k, &a);
    find_layout(&job->w, job->nw, job->k, &b);
    return lib->gemm(lib->user, (air_dtype)job->x.dtype, a.turned, !b.turned,
                     job->nx, job->nw, job->k, job->alpha64, job->x.p, a.ld,
                     job->w.p, b.ld, job->s != NULL ? job->beta64 : 0, job->y,
                     job->yl) == 0;
}

bool
cpu_library_call(const air_library *library, const air_call *call,
                 void *const *slots, void *workspace)
{
    (void)workspace;
    air_task task = {.count = 1, .slots = slots};
    gemm_product p = cpu_gemm_product(call, &task);
    for (int64_t i = 0; i < p.batch; i++) {
        gemm_job job = cpu_gemm_job_at(&p, i);
        if (!call_one(library, &job))
            return false;
    }
    return true;
}

#define ON_ISA(isa_)                                                     \
    bool cpu_library_on_##isa_(const air_call *call, const char *isa)    \
    {                                                                    \
        return cpu_on_##isa_(call, isa) && cpu_library_wants(call, isa); \
    }                                                                    \
    bool cpu_library_can_##isa_(const air_call *call, const char *isa)   \
    {                                                                    \
        return cpu_on_##isa_(call, isa) && cpu_library_can(call);        \
    }
ON_ISA(scalar)
#if defined(__x86_64__)
ON_ISA(avx2)
ON_ISA(avx512)
#endif
