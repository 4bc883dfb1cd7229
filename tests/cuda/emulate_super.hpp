// emulate_super.hpp: persistent kernels on the host: a block is a thread, its
// threads are fibers. common.cuh and grid.cuh, which are PTX, have twins here.
#define EMU_LOCAL static thread_local
#define __shared__ thread_local
#include "emulate.hpp"

#include <sched.h>
#include <time.h>

#include <thread>
#include <vector>

#define __constant__ static const
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define CALL_COMMON
#define CALL_GRID
#define FN inline

struct uint4 { unsigned x, y, z, w; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{ return {x, y, z, w}; }
template <class T> static T atomicAdd(T *p, T v)
{ return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
static inline int atomicCAS(int *p, int from, int to)
{
    __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return from;
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __threadfence(); }
#define __cvta_generic_to_shared(p) 0
#define __expf expf
#define __logf logf
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static inline int __any_sync(unsigned, int v)
{
    for (int w = 16; w > 0; w /= 2)
        v |= __shfl_xor_sync(~0u, v, w);
    return v;
}
static inline unsigned __ballot_sync(unsigned, int v)
{
    unsigned seen = v ? 1u << threadIdx.x % 32 : 0;
    for (int w = 16; w > 0; w /= 2)
        seen |= __shfl_xor_sync(~0u, seen, w);
    return seen;
}

namespace call {
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef long long s64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct fault { s64 index, size; int raised; };
__align__(16) thread_local char shared[64 << 10];

FN float get(float x) { return x; }
FN float get(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
static const float FAR = -30000.f; // of common.cuh
FN float infinity() { return INFINITY; }
FN void put(float *p, float x) { *p = x; }
FN void put(bf16 *p, float x)
{
    u32 u = __float_as_uint(x);
    p->bits = (u16)(x != x ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}
FN void unpack(u32 w, float &a, float &b, bf16)
{
    a = __uint_as_float(w << 16);
    b = __uint_as_float(w & 0xffff0000u);
}
FN u32 pack(float a, float b, bf16)
{
    bf16 low, high;
    put(&low, a);
    put(&high, b);
    return low.bits | (u32)high.bits << 16;
}

// c[16, 8] += a[16, 16] b[16, 8]: each lane shows what it holds.
FN void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, bf16)
{
    static thread_local u32 held[EMU_THREADS / 32][32][6];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 (&all)[32][6] = held[threadIdx.x / 32];
    const u32 mine[6] = {a0, a1, a2, a3, b0, b1};
    memcpy(all[lane], mine, sizeof mine);
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8, col = t * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            const u32 a = all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            const u32 b = all[col * 4 + k % 8 / 2][4 + k / 8];
            float a2v[2], b2v[2];
            unpack(a, a2v[0], a2v[1], bf16());
            unpack(b, b2v[0], b2v[1], bf16());
            c[i] += a2v[k % 2] * b2v[k % 2];
        }
    }
    __syncwarp();
}
FN bool aligned(const void *p) { return ((u64)p & 15) == 0; }
FN uint4 stream(const void *p) { uint4 v; memcpy(&v, p, sizeof v); return v; }
FN uint4 stream_halves(const void *p) { return stream(p); }
template <class T> FN T peek(const T *p) { return *(const volatile T *)p; }
FN bool wrap(s64 &index, s64 size, fault *f)
{
    index += index < 0 ? size : 0;
    f->raised |= index < 0 || index >= size;
    return index >= 0 && index < size;
}
FN bool inside(s64 index, s64 size, fault *f) { return index >= 0 && wrap(index, size, f); }
FN bool is_seen(const bf16 *p) { return p->bits != 0xff80; }
template <class T> FN bool is_seen(const T *) { return true; }
template <int LANES> FN float sum(float x)
{
    for (int d = LANES / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

FN void count_up(u32 *p) { __atomic_fetch_add(p, 1, __ATOMIC_RELEASE); }
FN u32 counted(const u32 *p) { sched_yield(); return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
FN u64 nanoseconds()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}
template <int THREADS> FN void sync_some()
{
    static thread_local emu_barrier barrier;
    emu_wait(&barrier, THREADS);
}
} // namespace call

// Blocks [first, end) of `grid` at once.
template <class A>
static void emu_blocks(void (*f)(A), unsigned grid, unsigned first, unsigned end, unsigned block, void **args)
{
    std::vector<std::thread> blocks;
    for (unsigned b = first; b < end; b++)
        blocks.emplace_back([=] {
            std::pair<void (*)(A), void **> call(f, args);
            emu_user = &call;
            emu_body = [](void *user) {
                auto *c = (decltype(call) *)user;
                c->first(*(A *)c->second[0]);
            };
            gridDim.x = grid;
            blockDim.x = block;
            emu_run_fibers(b, 1);
            free(emu_stacks);
        });
    for (auto &b : blocks)
        b.join();
}

// `there` of them; the others come when these have gone.
template <class A>
static void emu_together(void (*f)(A), unsigned grid, unsigned there, unsigned block, void **args)
{
    emu_blocks(f, grid, 0, there, block, args);
    emu_blocks(f, grid, there, grid, block, args);
}
