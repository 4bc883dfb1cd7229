#include "kernel_case.h"

#include "base/thread.h"
#include "driver/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define GUARD      64 /* bytes in front and behind */
#define GUARD_BYTE 0xA5

static size_t
size_of(int dtype)
{
    return air_dtype_bytes((air_dtype)dtype);
}

void *
kcase_new(size_t size)
{
    void *ptr;
    if (base_new(&base_libc_alloc, size, &ptr) != AIR_OK)
        abort();
    return ptr;
}

void
kcase_free(void *ptr, size_t size)
{
    base_free(&base_libc_alloc, ptr, size);
}

void
kcase_begin(kernel_case *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->seed = seed * 2654435761u + 1;
}

void
kcase_end(kernel_case *c)
{
    for (int i = 0; i <= CASE_TENSORS; i++)
        base_free(&base_libc_alloc, c->slots[i], c->sizes[i]);
    memset(c, 0, sizeof *c);
}

double
kcase_random(kernel_case *c)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(c->seed >> 11) / 0x1p52 - 1;
}

/* ---- elements ------------------------------------------------------------ */

static double
half_get(uint16_t h, int dtype)
{
    const uint32_t word = (uint32_t)h << 16; /* bf16 is half of an f32 */
    const int e = h >> 10 & 31, m = h & 1023;
    float f;
    double v;
    memcpy(&f, &word, sizeof f);
    if (dtype == AIR_BF16)
        return (double)f;
    if (e == 31)
        v = m != 0 ? (double)NAN : (double)INFINITY;
    else
        v = e == 0 ? m * 0x1p-24 : (1024 + m) * 0x1p-25 * (1u << e);
    return h >> 15 ? -v : v;
}

/* Truncates: tests need some value of the type, not a rounded one. */
static uint16_t
half_put(double v, int dtype)
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (dtype == AIR_BF16)
        return (uint16_t)(u >> 16);
    uint32_t sign = u >> 16 & 0x8000;
    int e = (int)(u >> 23 & 0xff) - 112;
    if (e >= 31)
        return (uint16_t)(sign | 0x7c00 | (v != v ? 0x200 : 0));
    return (uint16_t)(e <= 0 ? sign
                             : sign | (uint32_t)e << 10 | (u >> 13 & 0x3ff));
}

static char *
data_of(const kernel_case *c, int tensor)
{
    const air_tensor *t = &c->t[tensor];
    return (char *)c->slots[t->slot] + t->offset;
}

#define TYPES(X)        \
    X(AIR_F32, float)   \
    X(AIR_F64, double)  \
    X(AIR_I8, int8_t)   \
    X(AIR_U8, uint8_t)  \
    X(AIR_I16, int16_t) \
    X(AIR_I32, int32_t) \
    X(AIR_I64, int64_t) \
    X(AIR_BOOL, uint8_t)

double
kcase_worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}

double
kcase_get(const kernel_case *c, int tensor, int64_t i)
{
    const void *p = data_of(c, tensor);
    switch (c->t[tensor].dtype) {
#define CASE(id, type) \
    case id: return (double)((const type *)p)[i];
        TYPES(CASE)
#undef CASE
    default: return half_get(((const uint16_t *)p)[i], c->t[tensor].dtype);
    }
}

void
kcase_put(kernel_case *c, int tensor, int64_t i, double v)
{
    void *p = data_of(c, tensor);
    switch (c->t[tensor].dtype) {
#define CASE(id, type) \
    case id: ((type *)p)[i] = (type)v; break;
        TYPES(CASE)
#undef CASE
    default: ((uint16_t *)p)[i] = half_put(v, c->t[tensor].dtype); break;
    }
}

int64_t
kcase_at(const kernel_case *c, int tensor, const int64_t *index)
{
    const air_tensor *t = &c->t[tensor];
    int64_t at = 0;
    for (int i = 0; i < t->rank; i++)
        at += index[i] * t->strides[i];
    return at;
}

/* ---- tensors ------------------------------------------------------------- */

int
kcase_tensor(kernel_case *c, int dtype, int rank, const int64_t *dims,
             const int *perm, int64_t pad, int64_t shift)
{
    int id = c->count++;
    air_tensor *t = &c->t[id];
    int64_t n = 1;
    if (id >= CASE_TENSORS)
        abort();
    t->slot = id;
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    for (int i = rank - 1; i >= 0; i--) {
        int d = perm == NULL ? i : perm[i];
        t->dims[d] = dims[d];
        t->strides[d] = n;
        n *= dims[d];
        if (i == rank - 1)
            n += pad;
    }
    size_t bytes = (size_t)(n + shift) * size_of(dtype);
    t->offset = GUARD + shift * (int64_t)size_of(dtype);
    c->sizes[id] = bytes + (size_t)2 * GUARD;
    c->slots[id] = kcase_new(c->sizes[id]);
    memset(c->slots[id], GUARD_BYTE, c->sizes[id]);
    bool small = c->integral || (dtype != AIR_F32 && dtype != AIR_F64 &&
                                 dtype != AIR_BF16 && dtype != AIR_F16);
    for (int64_t i = 0; i < n; i++) {
        double v = kcase_random(c);
        kcase_put(c, id, i, small ? fabs(trunc(v * 4)) : v);
    }
    return id;
}

void
kcase_expand(kernel_case *c, int tensor, int dim, int64_t size)
{
    c->t[tensor].dims[dim] = size;
    c->t[tensor].strides[dim] = 0;
}

air_arg
kcase_arg(const kernel_case *c, int tensor)
{
    return (air_arg){.kind = AIR_ARG_TENSOR, .count = 1, .t = &c->t[tensor]};
}

/* ---- runs ---------------------------------------------------------------- */

typedef struct {
    kernel_case *c;
    air_kernel_fn run;
    const air_call *call;
    base_barrier barrier;
} job;

static void
wait_all(const air_task *task)
{
    base_barrier_wait(task->pool);
}

static void
worker(void *arg, int id, int count)
{
    job *j = arg;
    air_fault fault = {.raised = false};
    void *scratch = kcase_new(AIR_SCRATCH);
    air_task task = {
        .id = id,
        .count = count,
        .slots = j->c->slots,
        .workspace = j->c->slots[CASE_TENSORS],
        .scratch = scratch,
        .barrier = wait_all,
        .pool = &j->barrier,
        .fault = &fault,
    };
    j->run(j->call, &task);
    kcase_free(scratch, AIR_SCRATCH);
}

static bool
guards_stand(const kernel_case *c, int slot)
{
    const unsigned char *p = c->slots[slot];
    for (size_t i = 0; i < GUARD; i++)
        if (p[i] != GUARD_BYTE || p[c->sizes[slot] - 1 - i] != GUARD_BYTE)
            return false;
    return true;
}

/* The workspace is guarded behind, and full of that byte. */
static void
set_workspace(kernel_case *c, size_t bytes, int filler)
{
    base_free(&base_libc_alloc, c->slots[CASE_TENSORS], c->sizes[CASE_TENSORS]);
    c->sizes[CASE_TENSORS] = bytes + GUARD;
    c->slots[CASE_TENSORS] = kcase_new(bytes + GUARD);
    memset(c->slots[CASE_TENSORS], filler, bytes);
    memset((char *)c->slots[CASE_TENSORS] + bytes, GUARD_BYTE, GUARD);
}

void
kcase_run(kernel_case *c, air_kernel_fn run, air_workspace_fn workspace,
          const air_call *call, int threads)
{
    static base_pool *pool;
    job j = {.c = c, .run = run, .call = call};
    size_t bytes = workspace != NULL ? workspace(call, threads) : 0;
    if (pool == NULL && base_pool_create(&base_libc_alloc, 4, &pool) != AIR_OK)
        abort();
    /* Memory that nothing was written to: NaN, which zeros do not hide, or
     * large numbers, where a kernel finds windows with NaN a second time. */
    set_workspace(c, bytes, threads % 2 ? 0xff : 0x5f);
    base_barrier_init(&j.barrier, threads);
    base_pool_run(pool, threads, worker, &j);
    for (int i = 0; i < c->count; i++)
        CHECK(guards_stand(c, i));
    const unsigned char *end =
        (const unsigned char *)c->slots[CASE_TENSORS] + bytes;
    bool stands = true;
    for (size_t i = 0; i < GUARD; i++)
        stands = stands && end[i] == GUARD_BYTE;
    CHECK(stands); /* else the kernel left its workspace */
}

bool
kcase_has_isa(const char *isa)
{
    const char *found;
    return cpu_isa_find(isa, &found) == AIR_OK && strcmp(found, isa) == 0;
}
