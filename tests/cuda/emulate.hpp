// emulate.hpp: enough of CUDA for printed kernels to run on the host, as plain
// C++. A block's threads are fibers, which change places at barriers only.
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
#define __shared__ static

enum { EMU_THREADS = 1024, EMU_STACK = 64 * 1024 };
struct emu_index { unsigned x; };
static emu_index threadIdx, blockIdx, gridDim, blockDim;

struct emu_barrier { int arrived, generation; };
static emu_barrier emu_block, emu_warps[EMU_THREADS / 32];
static ucontext_t emu_main, emu_fibers[EMU_THREADS];
static bool emu_done[EMU_THREADS];
static char *emu_stacks;
static void (*emu_body)(void *);
static void *emu_user;

static void emu_yield() { swapcontext(&emu_fibers[threadIdx.x], &emu_main); }

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
static inline void __syncwarp() { emu_wait(&emu_warps[threadIdx.x / 32], 32); }

template <class T> static T __shfl_xor_sync(unsigned, T v, int w)
{
    static T values[EMU_THREADS];
    values[threadIdx.x] = v;
    __syncwarp();
    T other = values[threadIdx.x ^ (unsigned)w];
    __syncwarp();
    return other;
}

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
    emu_done[threadIdx.x] = true;
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

static void emu_run_fibers()
{
    unsigned left = blockDim.x;
    if (emu_stacks == NULL)
        emu_stacks = (char *)malloc((size_t)EMU_THREADS * EMU_STACK);
    for (unsigned i = 0; i < blockDim.x; i++)
        emu_make_fiber(i);
    while (left > 0) {
        left = 0;
        for (unsigned i = 0; i < blockDim.x; i++) {
            threadIdx.x = i;
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

// All blocks, one after another; fibers: for kernels with barriers.
template <class... P>
static void emu_launch(void (*f)(P...), unsigned grid, unsigned block,
                       bool fibers, void **args)
{
    std::pair<void (*)(P...), void **> call(f, args);
    emu_user = &call;
    emu_body = [](void *user) {
        auto *c = (decltype(call) *)user;
        emu_call(c->first, c->second, std::index_sequence_for<P...>());
    };
    gridDim.x = grid;
    blockDim.x = block;
    for (unsigned b = 0; b < grid; b++) {
        blockIdx.x = b;
        if (fibers) {
            emu_run_fibers();
            continue;
        }
        for (unsigned i = 0; i < block; i++) {
            threadIdx.x = i;
            emu_body(emu_user);
        }
    }
}
