/* grouped.c: grouped_mm as one product of matrices for each group of rows. How
 * many rows a group has is known when it runs, so each product is a call of
 * its own, which the kernel that suits its sizes takes. */
#include "driver/cpu/product/gemm.h"
#include "driver/groups.h"

#include <string.h>

/* ---- one product --------------------------------------------------------- */

typedef struct {
    air_tensor sides[2], out;
    air_arg args[2];
    air_call call;
} product;

static int64_t
size_of(const air_tensor *t)
{
    static const uint8_t sizes[AIR_DTYPE_COUNT] = {
#define DTYPE(id, text, bytes, ...) [AIR_##id] = bytes,
#include "air_dtypes.def"
#undef DTYPE
    };
    return sizes[t->dtype];
}

/* Places first .. first + n - 1 of an axis. */
static void
take(air_tensor *t, int axis, int64_t first, int64_t n)
{
    t->offset += first * t->strides[axis] * size_of(t);
    t->dims[axis] = n;
}

/* Matrix i of a stack. */
static void
pick(air_tensor *t, int64_t i)
{
    take(t, 0, i, 1);
    t->rank = 2;
    for (int axis = 0; axis < 2; axis++) {
        t->dims[axis] = t->dims[axis + 1];
        t->strides[axis] = t->strides[axis + 1];
    }
}

/* Group i, which has n places from `first` on: rows of a and of the result
 * where b is a stack, else the depth of both. */
static void
make(product *p, const air_call *call, int64_t i, int64_t first, int64_t n)
{
    p->sides[0] = *call->args[0].t;
    p->sides[1] = *call->args[1].t;
    p->out = call->outs[0];
    if (p->sides[1].rank == 3) {
        take(&p->sides[0], 0, first, n);
        take(&p->out, 0, first, n);
        pick(&p->sides[1], i);
    } else {
        take(&p->sides[0], 1, first, n);
        take(&p->sides[1], 0, first, n);
        pick(&p->out, i);
    }
    for (int side = 0; side < 2; side++)
        p->args[side] = (air_arg){.kind = AIR_ARG_TENSOR, .t = &p->sides[side]};
    p->call = (air_call){.nargs = 2, .nouts = 1, .args = p->args};
    p->call.outs = &p->out;
    p->call.by_rule = call->by_rule;
}

/* ---- its kernels --------------------------------------------------------- */

typedef struct {
    const char *isa;
    bool (*accept)(const air_call *call, const char *isa);
    void (*run)(const air_call *call, const air_task *task);
    size_t (*workspace)(const air_call *call, int threads);
} kernel;

#if defined(__x86_64__)
#define AMX                                                          \
    {                                                                \
        "amx", cpu_gemm_on_amx, cpu_gemm_amx, cpu_gemm_amx_workspace \
    }
#define PAIRS(isa)                                                       \
    {                                                                    \
        isa, cpu_gemm_on_pairs, cpu_gemm_pairs, cpu_gemm_pairs_workspace \
    }
#endif
#define FLOATS(isa)                                         \
    {                                                       \
#isa, cpu_on_scalar, cpu_mm_##isa, cpu_mm_workspace \
    }

/* The last one takes all. */
static const kernel *
choose(const kernel *kernels, const air_call *call)
{
    while (!kernels->accept(call, kernels->isa))
        kernels++;
    return kernels;
}

/* What groups share: rows, or the depth. */
static int64_t
places_of(const air_call *call)
{
    return call->args[0].t->dims[call->args[1].t->rank == 3 ? 0 : 1];
}

/* What any group may need. */
static size_t
workspace(const kernel *kernels, const air_call *call, int threads)
{
    size_t most = 0;
    for (int64_t n = 1; n <= places_of(call); n++) {
        product p;
        make(&p, call, 0, 0, n);
        size_t bytes = choose(kernels, &p.call)->workspace(&p.call, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void
run_one(const kernel *kernels, const air_call *call, const air_task *task,
        int64_t i, int64_t first, int64_t n)
{
    product p;
    make(&p, call, i, first, n);
    choose(kernels, &p.call)->run(&p.call, task);
    if (task->count > 1)
        task->barrier(task); /* the workspace is free again */
}

/* Rows of no group are 0: a product of no depth. */
static void
clear(const kernel *kernels, const air_call *call, const air_task *task,
      int64_t first, int64_t n)
{
    product p;
    make(&p, call, 0, first, n);
    take(&p.sides[0], 1, 0, 0);
    take(&p.sides[1], 0, 0, 0);
    choose(kernels, &p.call)->run(&p.call, task);
}

static void
run(const kernel *kernels, const air_call *call, const air_task *task)
{
    const air_tensor *offs = call->args[2].t;
    int64_t places = places_of(call), first = 0;
    bool stack = call->args[1].t->rank == 3;
    air_task each = *task;

    each.taken = NULL; /* it is 0 for one product only */
    for (int64_t i = 0; i < offs->dims[0]; i++) {
        int64_t end = driver_group_end(offs, task, i, first, places);
        if (end > first || !stack)
            run_one(kernels, call, &each, i, first, end - first);
        first = end;
    }
    if (stack && first < places)
        clear(kernels, call, &each, first, places - first);
}

#define GROUPED(isa, ...)                                                    \
    static const kernel isa##_kernels[] = {__VA_ARGS__};                     \
    void cpu_grouped_mm_##isa(const air_call *call, const air_task *task)    \
    {                                                                        \
        run(isa##_kernels, call, task);                                      \
    }                                                                        \
    size_t cpu_grouped_mm_##isa##_workspace(const air_call *call, int count) \
    {                                                                        \
        return workspace(isa##_kernels, call, count);                        \
    }                                                                        \
    bool cpu_grouped_mm_on_##isa(const air_call *call, const char *of)       \
    {                                                                        \
        (void)call;                                                          \
        return strcmp(of, #isa) == 0;                                        \
    }

#if defined(__x86_64__)
GROUPED(amx, AMX, PAIRS("amx"), FLOATS(avx512))
GROUPED(avx512_bf16, PAIRS("avx512_bf16"), FLOATS(avx512))
GROUPED(avx512, FLOATS(avx512))
GROUPED(avx2, FLOATS(avx2))
#endif
GROUPED(scalar, FLOATS(scalar))
