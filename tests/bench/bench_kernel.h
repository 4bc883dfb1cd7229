/* bench_kernel.h: kernels of the cpu device, called on one thread and timed in
 * CPU time (so that a shared machine disturbs less). For one file of a program,
 * beside kernel_case.c. */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include "base/thread.h"
#include "kernel_case.h"

#define ALIGN 64

typedef size_t size_fn(const air_call *call, int threads);

/* kernel_case.c reports to the harness, which is not here. */
bool
test_fail(const char *file, int line, const char *fmt, ...)
{
    printf("%s:%d: %s\n", file, line, fmt);
    return false;
}

static void
no_barrier(const air_task *task)
{
    (void)task;
}

/* As applications and the engine allocate: tiles that straddle lines of the
 * cache take twice as long. */
static void *
aligned(void *p)
{
    return (char *)p + (-(uintptr_t)p & (ALIGN - 1));
}

/* The same of a tensor that was made with ALIGN elements to spare. */
static void
align(kernel_case *c, int tensor)
{
    uintptr_t p = (uintptr_t)c->slots[tensor] + (uintptr_t)c->t[tensor].offset;
    c->t[tensor].offset -= (int64_t)(p & (ALIGN - 1));
}

/* The case's last slot is a workspace for the call. */
static void
give_workspace(kernel_case *c, size_fn *size, const air_call *call)
{
    c->sizes[CASE_TENSORS] = size(call, 1) + ALIGN;
    c->slots[CASE_TENSORS] = kcase_new(c->sizes[CASE_TENSORS]);
}

/* One thread on the tensors of a case; scratch: AIR_SCRATCH + ALIGN bytes. */
static air_task
task_of(const kernel_case *c, void *scratch, air_fault *fault)
{
    return (air_task){.count = 1,
                      .slots = c->slots,
                      .scratch = aligned(scratch),
                      .workspace = aligned(c->slots[CASE_TENSORS]),
                      .barrier = no_barrier,
                      .fault = fault};
}

#endif
