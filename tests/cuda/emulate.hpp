// emulate.hpp: enough of CUDA for the texts of driver cuda to run on the host, as
// plain C++, and what their PTX does (emulate_ptx.hpp).
//
// The threads of a block are fibers. A warp goes as far as it can before the next
// one does, and so do its threads, every time in another order: what a missing
// barrier leaves to luck comes out wrong. Blocks of a cluster, or that are there at once,
// are threads of the host; other blocks run one after another. Shared memory is
// thread_local, and begins as bytes of 0xff.
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <type_traits>
#include <utility>

#define __CUDACC__
#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __constant__ static const
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local

enum { EMU_THREADS = 1024, EMU_WARPS = EMU_THREADS / 32, EMU_STACK = 128 * 1024, EMU_COPIES = 128, EMU_LATE = 4096 };
enum { EMU_PATIENCE = 20 }; // seconds without any thread that may go on

struct emu_index { unsigned x, y, z; };
struct emu_shape { unsigned grid[3], block[3], shared, there; };

// Counted round by round: who waits goes on when `round` is another one.
struct emu_barrier { int arrived, round; };

struct emu_copy { void *to; const void *from; int group; unsigned bytes; };
struct emu_fiber {
    void *stack;      // where it goes on
    const int *round; // it waits for another one than `seen`; NULL: it runs
    int seen, cluster_round, groups, ncopies;
    emu_copy copies[EMU_COPIES];
    bool done;
};

// A store that others see when the block comes to it.
struct emu_store { void *to; uint64_t bits; unsigned size; };

// What blocks that are there at once share.
struct emu_group {
    emu_barrier all;
    int members;    // threads
    void **memory;  // thread_local memory of each block
    char **dynamic; // and what else it has of shared memory
    unsigned first;
    unsigned haste; // of the clock
};

struct emu_block {
    emu_group *group;
    emu_barrier all, some, numbered[16], turn, warps[EMU_WARPS], lanes[EMU_WARPS][32];
    unsigned self, count, rank;
    bool waits; // some thread does, for other memory
    uint32_t luck;
    char *stacks, *dynamic;
    size_t dynamic_size;
    void *main; // stack of who runs the fibers
    int nlate;
    emu_fiber fibers[EMU_THREADS];
    void *user;
    emu_store late[EMU_LATE];
    // Of a warp: words that its lanes show each other.
    uint64_t words[EMU_THREADS][8];
};

static thread_local emu_block *emu;
static thread_local emu_index threadIdx, blockIdx, gridDim, blockDim;

static void emu_stop(const char *why)
{
    fprintf(stderr, "emulated kernel: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, why);
    abort();
}

static unsigned emu_luck(unsigned n)
{
    emu->luck = emu->luck * 1664525u + 1013904223u;
    return (emu->luck >> 8) % n;
}

// ---- fibers

// x86-64: what a call keeps goes to the stack, whose end is left in *from.
__attribute__((naked, noipa)) static void emu_switch(void **from, void *to)
{
    asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

static void emu_wait_round(const int *round, int seen)
{
    emu_fiber *f = &emu->fibers[emu->self];
    const char *low = emu->stacks + (size_t)emu->self * EMU_STACK;
    f->round = round;
    f->seen = seen;
    if ((const char *)&low < low + EMU_STACK / 4)
        emu_stop("its stack is too small: EMU_STACK");
    emu_switch(&f->stack, emu->main);
}

static int emu_arrive(emu_barrier *b, int members)
{
    const int now = __atomic_load_n(&b->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == members) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELEASE);
        __atomic_add_fetch(&b->round, 1, __ATOMIC_ACQ_REL);
    }
    return now;
}

static void emu_wait(emu_barrier *b, int members)
{
    const int now = emu_arrive(b, members);
    if (__atomic_load_n(&b->round, __ATOMIC_ACQUIRE) == now)
        emu_wait_round(&b->round, now);
}

// ---- relaxed stores: they arrive with a fence, when there is no more room for them, or
// by and by while their block looks at memory

static void emu_settle(int count)
{
    for (int i = 0; i < count; i++)
        if (emu->late[i].size == 8)
            __atomic_store_n((uint64_t *)emu->late[i].to, emu->late[i].bits, __ATOMIC_RELAXED);
        else if (emu->late[i].size == 2)
            __atomic_store_n((uint16_t *)emu->late[i].to, (uint16_t)emu->late[i].bits, __ATOMIC_RELAXED);
        else
            __atomic_store_n((uint32_t *)emu->late[i].to, (uint32_t)emu->late[i].bits, __ATOMIC_RELAXED);
    emu->nlate -= count;
    memmove((void *)emu->late, (void *)(emu->late + count), (size_t)emu->nlate * sizeof *emu->late);
}

static void emu_settle() { emu_settle(emu->nlate); }

static void emu_store_late(void *to, uint64_t bits, unsigned size)
{
    if (emu->nlate == EMU_LATE)
        emu_settle();
    emu->late[emu->nlate++] = {to, bits, size};
}

// Who waits for other memory lets all the others go on first, those of other blocks too:
// the host's thread gives way once for all that wait (emu_give_way).
static void emu_yield()
{
    emu->waits = true;
    emu_wait_round(&emu->turn.round, __atomic_load_n(&emu->turn.round, __ATOMIC_ACQUIRE));
}

static bool emu_may_go(const emu_fiber *f)
{
    return !f->done && (!f->round || __atomic_load_n(f->round, __ATOMIC_ACQUIRE) != f->seen);
}

static void emu_enter(unsigned i)
{
    emu->self = i;
    threadIdx = {i, 0, 0};
    emu->fibers[i].round = NULL;
    emu_switch(&emu->main, emu->fibers[i].stack);
}

static void emu_shuffle(unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; i > 1; i--)
        std::swap(order[i - 1], order[emu_luck(i)]);
}

static void emu_check_stuck(int &since, bool any)
{
    timespec t;
    if (any)
        since = 0;
    if (any)
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    since = since ? since : (int)t.tv_sec + 1;
    if (emu->group->members == (int)emu->count || t.tv_sec - since > EMU_PATIENCE)
        emu_stop("no thread can go on: a barrier that some do not come to");
    sched_yield();
}

// Every thread of a warp that may go on, once. False: there is none.
static bool emu_run_warp(unsigned first)
{
    const unsigned left = emu->count - first, n = left < 32 ? left : 32;
    unsigned order[32];
    bool any = false;
    emu_shuffle(order, n);
    for (unsigned i = 0; i < n; i++)
        if (emu_may_go(&emu->fibers[first + order[i]])) {
            any = true;
            emu_enter(first + order[i]);
        }
    return any;
}

static bool emu_is_done()
{
    for (unsigned i = 0; i < emu->count; i++)
        if (!emu->fibers[i].done)
            return false;
    return true;
}

static void emu_give_way()
{
    if (emu->waits && emu->group->members > (int)emu->count)
        sched_yield();
    emu->waits = false;
    emu->turn.round++;
}

// One warp goes as far as it can before the next one does.
static void emu_run_fibers()
{
    const unsigned warps = (emu->count + 31) / 32;
    unsigned order[EMU_WARPS];
    for (int since = 0; !emu_is_done();) {
        bool any = false;
        emu_shuffle(order, warps);
        for (unsigned i = 0; i < warps; i++)
            while (emu_run_warp(order[i] * 32))
                any = true;
        emu_give_way();
        emu_check_stuck(since, any || emu_is_done());
    }
}

// ---- blocks

// This module's thread_local memory, of this thread.
static int emu_find_memory(dl_phdr_info *info, size_t, void *out)
{
    void **found = (void **)out;
    char *at = (char *)info->dlpi_tls_data;
    for (int i = 0; at && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && (char *)&emu >= at &&
            (char *)&emu < at + info->dlpi_phdr[i].p_memsz) {
            found[0] = at;
            found[1] = (void *)info->dlpi_phdr[i].p_memsz;
            return 1;
        }
    return 0;
}

// Shared memory that the launch asks for, at the end of a page: behind it is none.
static char *emu_make_dynamic(size_t bytes, size_t *out_size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t size = (bytes + page - 1) / page * page;
    char *at = (char *)mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + size, page, PROT_NONE);
    memset(at, 0xff, size);
    *out_size = size + page;
    return at;
}

template <class F> struct emu_job {
    F f;
    const emu_shape *shape;
    emu_group *group;
    unsigned index;
    void **args;
};

template <class... P, size_t... I>
static void emu_call(void (*f)(P...), void **args, std::index_sequence<I...>)
{
    f(*(P *)args[I]...);
}
template <class... P> static void emu_call(void (*f)(P...), void **args)
{
    emu_call(f, args, std::index_sequence_for<P...>());
}

template <class F> static void emu_start()
{
    auto *job = (emu_job<F> *)emu->user;
    emu_call(job->f, job->args);
    emu->fibers[emu->self].done = true;
    emu_switch(&emu->fibers[emu->self].stack, emu->main);
}

template <class F> static void emu_make_fibers()
{
    for (unsigned i = 0; i < emu->count; i++) {
        emu_fiber *f = &emu->fibers[i];
        f->stack = emu->stacks + (size_t)(i + 1) * EMU_STACK - 8 * sizeof(void *);
        ((void (**)())f->stack)[6] = emu_start<F>;
    }
}

// Of the block before in this thread, where there was one.
static emu_block *emu_new_block()
{
    emu_block *b = emu;
    char *stacks = b ? b->stacks : (char *)mmap(NULL, (size_t)EMU_THREADS * EMU_STACK, PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *memory[2] = {NULL, NULL};
    b = b ? b : (emu_block *)malloc(sizeof *b);
    dl_iterate_phdr(emu_find_memory, memory);
    memset(memory[0], 0xff, (size_t)memory[1]);
    memset((void *)b, 0, offsetof(emu_block, fibers));
    b->stacks = stacks;
    emu = b;
    return b;
}

static void emu_drop_block()
{
    if (emu)
        munmap(emu->stacks, (size_t)EMU_THREADS * EMU_STACK);
    free(emu);
    emu = NULL;
}

template <class F> static void emu_run_block(emu_job<F> *job)
{
    const emu_shape *s = job->shape;
    const unsigned n = job->group->first + job->index;
    size_t mapped;
    char *dynamic = emu_make_dynamic(s->shared, &mapped);
    emu_block *b = emu_new_block();
    gridDim = {s->grid[0], s->grid[1], s->grid[2]};
    blockDim = {s->block[0], s->block[1], s->block[2]};
    blockIdx = {n % s->grid[0], n / s->grid[0] % s->grid[1], n / s->grid[0] / s->grid[1]};
    b->count = s->block[0];
    b->rank = job->index;
    b->luck = n * 2654435761u + 1;
    b->group = job->group;
    b->dynamic = dynamic + (mapped - (size_t)sysconf(_SC_PAGESIZE) - (s->shared + 15) / 16 * 16);
    b->dynamic_size = s->shared;
    b->user = job;
    for (unsigned i = 0; i < b->count; i++)
        memset((void *)&b->fibers[i], 0, sizeof b->fibers[i]);
    job->group->memory[job->index] = (void *)&emu;
    job->group->dynamic[job->index] = b->dynamic;
    emu_make_fibers<F>();
    emu_run_fibers();
    emu_settle();
    munmap(dynamic, mapped);
}

// In a thread of its own.
template <class F> static void *emu_run_thread(void *user)
{
    emu_run_block((emu_job<F> *)user);
    emu_drop_block();
    return NULL;
}

// Blocks [first, first + count) at once.
template <class F> static void emu_run_group(F f, const emu_shape *s, unsigned first, unsigned count, void **args)
{
    emu_group group = {{0, 0}, (int)(count * s->block[0]), new void *[count], new char *[count], first,
                       // who waits for blocks that are not there does so in vain
                       s->there > 0 && s->there < s->grid[0] ? 32u : 1u};
    auto *jobs = new emu_job<F>[count];
    auto *threads = new pthread_t[count];
    for (unsigned i = 0; i < count; i++)
        jobs[i] = {f, s, &group, i, args};
    if (count == 1)
        emu_run_block(&jobs[0]);
    for (unsigned i = 0; count > 1 && i < count; i++)
        pthread_create(&threads[i], NULL, emu_run_thread<F>, &jobs[i]);
    for (unsigned i = 0; count > 1 && i < count; i++)
        pthread_join(threads[i], NULL);
    delete[] group.memory;
    delete[] group.dynamic;
    delete[] jobs;
    delete[] threads;
}

// shape.there: how many blocks are there at once, the others come when they have
// gone; 0: as many as a cluster has. Then the last ones come first, as they may.
template <class F> static void emu_launch(F f, unsigned cluster, const emu_shape *s, void **args)
{
    const unsigned all = s->grid[0] * s->grid[1] * s->grid[2];
    if (s->block[0] > EMU_THREADS || s->block[1] * s->block[2] != 1)
        abort();
    if (s->there > 0)
        emu_run_group(f, s, 0, s->there, args);
    if (s->there > 0 && s->there < all)
        emu_run_group(f, s, s->there, all - s->there, args);
    for (unsigned b = all; s->there == 0 && b > 0; b -= cluster)
        emu_run_group(f, s, b - cluster, cluster, args);
    emu_drop_block();
}

// Bytes of each parameter; how many there are.
template <class... P> static int emu_sizes(void (*)(P...), size_t *out)
{
    const size_t sizes[] = {sizeof(P)...};
    memcpy(out, sizes, sizeof sizes);
    return (int)sizeof...(P);
}

#include "emulate_ptx.hpp"
