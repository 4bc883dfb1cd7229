// common.cuh: element types, warp and cluster primitives of every family.
//
// NVRTC has no headers here: bfloat16 and half are 16 bits and PTX.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef long long s64;

#define FN __device__ __forceinline__

// What is called, as it would be too long where it is needed. Not in a part of a kernel
// (super.cuh): there a call has registers of its own, and what is in others is spilled.
#ifdef SUPER_PART
#define CALLED FN
#else
#define CALLED __device__ __noinline__
#endif

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

FN float
get(float x)
{
    return x;
}

FN double
get(double x)
{
    return x;
}

FN float
get(bf16 x)
{
    return __uint_as_float((u32)x.bits << 16);
}

FN float
get(f16 x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

FN void
put(float *p, float x)
{
    *p = x;
}

FN void
put(double *p, double x)
{
    *p = x;
}

FN void
put(bf16 *p, float x)
{
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}

FN void
put(f16 *p, float x)
{
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}

// Two numbers of a word, the first in its low half.
FN void
unpack(u32 w, float &a, float &b, bf16)
{
    a = __uint_as_float(w << 16);
    b = __uint_as_float(w & 0xffff0000u);
}

FN void
unpack(u32 w, float &a, float &b, f16)
{
    asm("{.reg .f16 x, y; mov.b32 {x, y}, %2; cvt.f32.f16 %0, x; "
        "cvt.f32.f16 %1, y;}"
        : "=f"(a), "=f"(b)
        : "r"(w));
}

FN u32
pack(float a, float b, bf16)
{
    u32 w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
    return w;
}

FN u32
pack(float a, float b, f16)
{
    u32 w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
    return w;
}

// c[16, 8] += a[16, 16] b[16, 8], as mma.m16n8k16 keeps them.
FN void
multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

FN void
multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, f16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

FN bool
aligned(const void *p)
{
    return ((u64)p & 15) == 0;
}

// 16 bytes that are read once: they shall not push others out of L1.
FN uint4
stream(const void *p)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// The same from any address of 2-byte elements.
FN uint4
stream_halves(const void *p)
{
    const u16 *q = (const u16 *)p;
#ifdef SUPER_PART
    // Short, as it is written out where it may be needed.
    uint4 r = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        r.x = r.x >> 16 | r.y << 16;
        r.y = r.y >> 16 | r.z << 16;
        r.z = r.z >> 16 | r.w << 16;
        r.w = r.w >> 16 | (u32)q[i] << 16;
    }
    return r;
#else
    uint4 v;
    v.x = q[0] | (u32)q[1] << 16;
    v.y = q[2] | (u32)q[3] << 16;
    v.z = q[4] | (u32)q[5] << 16;
    v.w = q[6] | (u32)q[7] << 16;
    return v;
#endif
}

// Either of 2-byte elements, aligned where FAST says so. Each phase of a persistent
// kernel is one text, which looks: two would be twice what is compiled, and what
// the cache of instructions has to hold.
#ifdef LOOKS_ALIGNED
static CALLED uint4
halves_of(const void *p)
{
    return stream_halves(p);
}

template <bool FAST>
FN uint4
take16(const void *p)
{
    return aligned(p) ? *(const uint4 *)p : halves_of(p);
}
#else
template <bool FAST>
FN uint4
take16(const void *p)
{
    return FAST ? *(const uint4 *)p : stream_halves(p);
}
#endif

// 16 bytes to shared memory, which are there after arrived<LATER>() when at
// most LATER groups were closed behind theirs.
FN void
copy_async(void *to, const void *from)
{
    const u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(at), "l"(from)
                 : "memory");
}

FN void
close_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LATER>
FN void
arrived()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}

// 8 neighbours; 0 where there are none.
template <class T>
FN void
move8(T *to, const T *from, bool there)
{
    constexpr int EACH = sizeof(T) == 1 ? 8 : 16 / sizeof(T);
    struct __align__(EACH * sizeof(T)) piece {
        T v[EACH];
    };
    if (((u64)to | (u64)from) % sizeof(piece) == 0) {
#pragma unroll
        for (int i = 0; i < 8; i += EACH)
            *(piece *)(to + i) = there ? *(const piece *)(from + i) : piece{};
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 8; i++)
        to[i] = there ? from[i] : T(0);
}

// What lies in memory now, past L1.
template <class T>
FN T
peek(const T *p)
{
    return *(const volatile T *)p;
}

// The kernels before this one are complete and what they wrote is visible.
// Before it a kernel may read only what no kernel of the program writes.
FN void
await()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What each block computes one of them stores. Does this thread, what it has of it?
FN bool
stores_shared()
{
    return blockIdx.x == 0;
}

// The next kernel may begin; it does not wait at its start only where it is
// launched that way.
FN void
release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// cuda_fault of the driver: the first index out of range.
struct fault {
    s64 index, size;
    int raised;
};

FN void
raise(fault *f, s64 index, s64 size)
{
    if (atomicCAS(&f->raised, 0, 2) != 0)
        return;
    f->index = index;
    f->size = size;
    __threadfence_system();
    *(volatile int *)&f->raised = 1;
}

// False: out of range, raised.
FN bool
inside(s64 index, s64 size, fault *f)
{
    const bool ok = index >= 0 && index < size;
    if (!ok)
        raise(f, index, size);
    return ok;
}

// A negative index counts from the end; false: out of range, raised.
FN bool
wrap(s64 &index, s64 size, fault *f)
{
    if (index < -size || index >= size) {
        raise(f, index, size);
        return false;
    }
    index += index < 0 ? size : 0;
    return true;
}

FN float
infinity()
{
    return __uint_as_float(0x7f800000u);
}

// 1 / sqrt(x), to two ulps.
FN float
inverse_root(float x)
{
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What is added to a score at most where the key is meant to be hidden.
static const float FAR = -30000.f;

// Is a key meant to be seen? Of a mask that may be stale.
FN bool
is_seen(const bf16 *p)
{
    return get(bf16{peek(&p->bits)}) > FAR;
}

FN bool
is_seen(const f16 *p)
{
    return get(f16{peek(&p->bits)}) > FAR;
}

template <class T>
FN bool
is_seen(const T *p)
{
    return peek(p) > (T)FAR;
}

template <int LANES>
FN float
sum(float x)
{
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}
