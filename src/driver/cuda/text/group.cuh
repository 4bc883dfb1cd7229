// group.cuh: products of 64 rows of numbers in registers with rows of x in shared
// memory, by four warps together: c[64, COLS] += a[64, 16] x[COLS, 16]. Lanes hold
// a and c as mma.m16n8k16 does, a warp 16 rows. x: 128 bytes of a row, 8 pieces of
// 16 bytes, of which piece i of row m lies at place i ^ m % 8, from a multiple of
// 1024 bytes on; a product takes two pieces of each row. `multiply_group` stands in
// wgmma.py.
FN int
spread(int m, int piece)
{
    return m * 128 + (piece ^ (m & 7)) * 16;
}

// The descriptor of such a tile: 1024 bytes from 8 rows to the next.
FN u64
describe(const void *x)
{
    const u32 at = (u32)__cvta_generic_to_shared(x);
    return 1ull << 62 | 64ull << 32 | 1ull << 16 | (at & 0x3ffffu) >> 4;
}

// What was written to shared memory by this thread is there for the matrix units.
FN void
publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ASYNC: instructions of compute capability 9.0, which go on while the warps do
// other things. What they read and write is theirs until `wait` says so.
template <bool ASYNC>
struct group {
    // Behind the last access to registers of the next products.
    static FN void
    open()
    {
        if constexpr (ASYNC)
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    }

    static FN void
    close()
    {
        if constexpr (ASYNC)
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }

    // All products but those of the LATER groups closed last are done.
    template <int LATER>
    static FN void
    wait()
    {
        if constexpr (ASYNC)
            asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER)
                         : "memory");
    }

    template <int N>
    static FN void
    hold(float (&c)[N][4])
    {
        if constexpr (ASYNC)
#pragma unroll
            for (int i = 0; i < 4 * N; i++)
                asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
    }

    // Pieces 2 * at, 2 * at + 1 of the rows. D: 0: c is not read.
    template <int D, class T, int N>
    static FN void
    multiply(float (&c)[N][4], const u32 (&a)[4], const char *x, int at, T)
    {
        if constexpr (ASYNC) {
            multiply_group<D>(c, a, describe(x) + 2 * at, T());
            return;
        }
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            u32 b[4];
            load_matrices(b, x + spread(i * 16 + lane / 16 * 8 + lane % 8,
                                        2 * at + lane / 8 % 2));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float(&to)[4] = c[2 * i + h];
                if (D == 0)
                    to[0] = to[1] = to[2] = to[3] = 0;
                call::multiply(to, a[0], a[1], a[2], a[3], b[2 * h],
                               b[2 * h + 1], T());
            }
        }
    }
};
