// skinny.cuh: y[m, n] = sum over k of x[m, k] w[n, k] for m < M <= 16 rows of
// bfloat16 or half, at the rate at which w is read.
//
// A block owns tiles of R rows of w, 8, 16 or 24; its warps share k. A lane loads 16 bytes,
// 8 neighbours in k, and 4 S lanes load neighbours of one row, so that whole
// lines are read. As the order in which a sum over k is taken is free, these
// are the words that mma.m16n8k16 wants from the lane, twice, when x is read in
// the same order: row g of the instruction is part g % S of row g / S of w, and
// column n of x is part n % S of row n / S of x. Of the products of all parts
// with all parts those of equal parts count.
//
// Loads of the next piece are issued as soon as a register is free, the first
// ones before the kernel waits for the one that makes x.
//
// ROWS  const T *row(tile, i): row i < R of a tile of w, K elements
// AHEAD void ahead(): loads that need not wait either
// STAGE void stage(T *x): fills x[M][PITCH] with zeros behind K, by all threads
// OUT   void out(tile, i, m, sum): takes y of row i of the tile
template <class T, int M, int K, int R, int S, int D>
struct skinny {
    static const int WARPS = 8, THREADS = 32 * WARPS;
    static const int UNIT = 32 * S; // elements along k of one load of a warp
    static const int UNITS = (K + UNIT - 1) / UNIT;
    static const int SHARE = (UNITS + WARPS - 1) / WARPS; // of a warp, at most
    static const int PARTS = S * R / 16; // pairs of loads for the rows of a tile
    static const int LOADS = SHARE * PARTS;
    static const int DEPTH = LOADS < D ? LOADS : D / PARTS * PARTS; // in flight
    static const int PIECES = (LOADS + DEPTH - 1) / DEPTH;
    static const int COLS = (M * S + 7) / 8; // instructions for the rows of x
    static const int ROW = UNIT * UNITS;
    // Rows of x begin 64 bytes apart modulo 128: no two lanes share a bank.
    static const int PITCH = M == 1 || ROW % 64 == 32 ? ROW : ROW + 32;
    static const int X_BYTES = M * PITCH * 2;
    static const int SUMS = WARPS * S * R * M; // floats, twice
    static const int BYTES = X_BYTES + 2 * SUMS * 4;

    static FN uint4
    load(const T *row, int k, bool fast)
    {
        if (K % UNIT != 0 && k >= K)
            return make_uint4(0, 0, 0, 0);
        return fast ? stream(row + k) : stream_halves(row + k);
    }

    // Row of the tile of pair j, half h, for this lane.
    static FN int
    row_of(int j, int h, int g)
    {
        return j % PARTS * (16 / S) + h * (8 / S) + g / S;
    }

    template <class ROWS, class AHEAD, class STAGE, class OUT>
    static FN void
    run(int tiles, bool fast, ROWS row, AHEAD ahead, STAGE stage, OUT out)
    {
        extern __shared__ __align__(16) char shared[];
        T *x = (T *)shared;
        float *sums = (float *)(shared + X_BYTES);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        const int first = UNITS * warp / WARPS;
        const int count = (UNITS * (warp + 1) / WARPS - first) * PARTS;
        const int k0 = first * UNIT + lane % (4 * S) * 8;
        uint4 a[DEPTH], b[DEPTH];
        int tile = blockIdx.x;

        release();
        ahead();
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (j < count) {
                a[j] = load(row(tile, row_of(j, 0, g)), k0 + j / PARTS * UNIT, fast);
                b[j] = load(row(tile, row_of(j, 1, g)), k0 + j / PARTS * UNIT, fast);
            }
        await();
        stage(x);
        __syncthreads();

        for (int turn = 0; tile < tiles; turn ^= 1) {
            float c[PARTS][COLS][4] = {};
            const int next = tile + gridDim.x;
#pragma unroll 1
            for (int piece = 0; piece < PIECES; piece++) {
                const int at = piece * DEPTH;
                const bool last = piece == PIECES - 1;
                const bool more = !last || next < tiles;
                const int from = last ? next : tile;
                const int then = last ? 0 : at + DEPTH;
#pragma unroll
                for (int j = 0; j < DEPTH; j++) {
                    if (at + j < count) {
                        const T *v0 = x + k0 + (at + j) / PARTS * UNIT;
#pragma unroll
                        for (int col = 0; col < COLS; col++) {
                            int m = (col * 8 + g) / S;
                            m = m < M ? m : M - 1;
                            const uint4 v = *(const uint4 *)(v0 + m * PITCH);
                            multiply(c[j % PARTS][col], a[j].x, b[j].x, a[j].y,
                                     b[j].y, v.x, v.y, T());
                            multiply(c[j % PARTS][col], a[j].z, b[j].z, a[j].w,
                                     b[j].w, v.z, v.w, T());
                        }
                    }
                    if (more && then + j < count) {
                        const int k = k0 + (then + j) / PARTS * UNIT;
                        a[j] = load(row(from, row_of(j, 0, g)), k, fast);
                        b[j] = load(row(from, row_of(j, 1, g)), k, fast);
                    }
                }
            }
            float *s = sums + turn * SUMS + (warp * S + g % S) * R * M;
#pragma unroll
            for (int j = 0; j < PARTS; j++)
#pragma unroll
                for (int col = 0; col < COLS; col++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int n = col * 8 + t * 2 + (i & 1);
                        if (n % S == g % S && n / S < M)
                            s[row_of(j, i >> 1, g) * M + n / S] = c[j][col][i];
                    }
            __syncthreads();
            if (threadIdx.x < R * M) {
                float y = 0;
#pragma unroll
                for (int w = 0; w < WARPS * S; w++)
                    y += sums[turn * SUMS + w * R * M + threadIdx.x];
                out(tile, threadIdx.x / M, threadIdx.x % M, y);
            }
            tile = next;
        }
    }
};

// 8 neighbours of any type.
template <class T>
FN void
take8(T (&to)[8], const T *from, bool fast)
{
    if constexpr (sizeof(T) == 2) {
        const uint4 v = fast ? *(const uint4 *)from : stream_halves(from);
        const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[2 * i] = (T)(w[i] & 0xffff);
            to[2 * i + 1] = (T)(w[i] >> 16);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = from[i];
    }
}

// Of a row of K numbers what is this thread's: 8 neighbours, J times.
template <int K, int J, class T>
FN void
take_row(T (&to)[J][8], const T *from)
{
    const bool fast = aligned(from);
#pragma unroll
    for (int j = 0; j < J; j++) {
        const int k = (j * 256 + threadIdx.x) * 8;
        if (k < K)
            take8(to[j], from + k, fast);
    }
}

template <class T>
FN void
give8(T *to, const u16 (&x)[8])
{
    *(uint4 *)to = make_uint4(x[0] | (u32)x[1] << 16, x[2] | (u32)x[3] << 16,
                              x[4] | (u32)x[5] << 16, x[6] | (u32)x[7] << 16);
}

// stage: rows of x, STRIDE elements apart.
template <class G, class T, int M, int K, int STRIDE>
FN void
stage_rows(T *to, const T *from)
{
    const bool fast = STRIDE % 8 == 0 && aligned(from);
    for (int i = threadIdx.x * 8; i < M * G::ROW; i += G::THREADS * 8) {
        const int m = i / G::ROW, k = i % G::ROW;
        const T *p = from + m * (s64)STRIDE + k;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (k < K)
            v = fast ? *(const uint4 *)p : stream_halves(p);
        *(uint4 *)(to + m * G::PITCH + k) = v;
    }
}
