// emulate.hpp: enough of CUDA for printed kernels to run on the host, as plain
// C++. The threads of a block, or of a cluster, are fibers, which change places
// at barriers only.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <tuple>
#include <utility>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
// Of a block; where blocks run at once, each is a thread of the host.
#ifndef EMU_LOCAL
#define EMU_LOCAL static
#define __shared__ static
#endif

enum { EMU_THREADS = 4096, EMU_STACK = 64 * 1024 };
struct emu_index { unsigned x; };
EMU_LOCAL emu_index threadIdx, blockIdx, gridDim, blockDim;

struct emu_barrier { int arrived, generation; };
EMU_LOCAL emu_barrier emu_block, emu_warps[EMU_THREADS / 32], emu_cluster;
EMU_LOCAL unsigned emu_self, emu_count; // this fiber, fibers
EMU_LOCAL ucontext_t emu_main, emu_fibers[EMU_THREADS];
EMU_LOCAL bool emu_done[EMU_THREADS];
EMU_LOCAL char *emu_stacks;
EMU_LOCAL void (*emu_body)(void *);
EMU_LOCAL void *emu_user;

static void emu_yield() { swapcontext(&emu_fibers[emu_self], &emu_main); }

static void emu_wait(emu_barrier *b, int members)
{
    int now = b->generation;
    if (++b->arrived == members) {
        b->arrived = 0;
        b->generation++;
        return;
    }
    while (b->generation == now)
        emu_yield();
}

static inline void __syncthreads() { emu_wait(&emu_block, (int)blockDim.x); }
static inline void __syncwarp() { emu_wait(&emu_warps[emu_self / 32], 32); }
static inline void emu_meet() { emu_wait(&emu_cluster, (int)emu_count); }

// Lanes of a warp: those of the mask only.
static inline void emu_sync_lanes(unsigned mask)
{
    EMU_LOCAL emu_barrier some[EMU_THREADS / 32];
    emu_wait(&some[emu_self / 32], __builtin_popcount(mask));
}

template <class T> static T __shfl_sync(unsigned mask, T v, int lane)
{
    EMU_LOCAL T values[EMU_THREADS];
    values[emu_self] = v;
    emu_sync_lanes(mask);
    T other = values[emu_self / 32 * 32 + (unsigned)lane];
    emu_sync_lanes(mask);
    return other;
}
template <class T> static T __shfl_xor_sync(unsigned mask, T v, int w)
{ return __shfl_sync(mask, v, (int)(emu_self % 32) ^ w); }

template <class To, class From> static To emu_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned u) { return emu_bits<float>(u); }
static inline unsigned __float_as_uint(float f) { return emu_bits<unsigned>(f); }
static inline double __longlong_as_double(long long i) { return emu_bits<double>(i); }
static inline unsigned __umulhi(unsigned a, unsigned b)
{ return (unsigned)((unsigned long long)a * b >> 32); }

static void emu_start()
{
    emu_body(emu_user);
    emu_done[emu_self] = true;
}

static void emu_make_fiber(unsigned i)
{
    emu_done[i] = false;
    getcontext(&emu_fibers[i]);
    emu_fibers[i].uc_stack.ss_sp = emu_stacks + (size_t)i * EMU_STACK;
    emu_fibers[i].uc_stack.ss_size = EMU_STACK;
    emu_fibers[i].uc_link = &emu_main;
    makecontext(&emu_fibers[i], emu_start, 0);
}

// Blocks [first, first + cluster).
static void emu_run_fibers(unsigned first, unsigned cluster)
{
    unsigned left = emu_count = blockDim.x * cluster;
    if (emu_stacks == NULL)
        emu_stacks = (char *)malloc((size_t)EMU_THREADS * EMU_STACK);
    for (unsigned i = 0; i < emu_count; i++)
        emu_make_fiber(i);
    while (left > 0) {
        left = 0;
        for (unsigned i = 0; i < emu_count; i++) {
            emu_self = i;
            threadIdx.x = i % blockDim.x;
            blockIdx.x = first + i / blockDim.x;
            if (!emu_done[i])
                swapcontext(&emu_main, &emu_fibers[i]);
            left += !emu_done[i];
        }
    }
}

template <class... P, size_t... I>
static void emu_call(void (*f)(P...), void **args, std::index_sequence<I...>)
{
    f(*(P *)args[I]...);
}

// All blocks, one after another or `cluster` at once; fibers: for kernels with
// barriers.
template <class... P>
static void emu_launch(void (*f)(P...), unsigned grid, unsigned block,
                       bool fibers, unsigned cluster, void **args)
{
    std::pair<void (*)(P...), void **> call(f, args);
    emu_user = &call;
    emu_body = [](void *user) {
        auto *c = (decltype(call) *)user;
        emu_call(c->first, c->second, std::index_sequence_for<P...>());
    };
    gridDim.x = grid;
    blockDim.x = block;
    for (unsigned b = 0; b < grid; b += cluster) {
        blockIdx.x = b;
        if (fibers) {
            emu_run_fibers(b, cluster);
            continue;
        }
        for (unsigned i = 0; i < block; i++) {
            threadIdx.x = i;
            emu_body(emu_user);
        }
    }
}
