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
// ROWS  const T *row(tile, i): row i < R of a tile of w, K elements; null: none
// FAST  flag<true> where all rows are 16-byte aligned
// AHEAD void ahead(FAST): loads that need not wait either
// STAGE void stage(FAST, T *x): fills x[M][PITCH] with zeros behind K, by all threads
// WANT  H want(tile, i, m): what `out` reads
// OUT   void out(tile, i, m, sum, H): takes y of row i of the tile
//
// Tiles of a block are neighbours: it reads memory of its own, page by page, where
// otherwise all blocks would come to a new page at the same time.
struct tile_share {
    int first, count;
};

FN tile_share
tiles_of(int tiles, u32 blocks)
{
    const u32 first = (u32)tiles * blockIdx.x / blocks;
    const u32 end = (u32)tiles * (blockIdx.x + 1) / blocks;
    return tile_share{(int)first, (int)(end - first)};
}

template <bool B>
struct flag {
    static const bool value = B;
};

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

    template <bool FAST>
    static FN uint4
    load(const T *p, int k)
    {
        if (K % UNIT != 0 && k >= K)
            return make_uint4(0, 0, 0, 0);
        return FAST ? stream(p) : stream_halves(p);
    }

    // Row of the tile of pair j, half h, for this lane.
    static FN int
    row_of(int j, int h, int g)
    {
        return j % PARTS * (16 / S) + h * (8 / S) + g / S;
    }

    // What a lane reads of a tile: rows of both halves of each pair.
    struct rows {
        const T *a[PARTS], *b[PARTS];
    };

    template <class ROWS>
    static FN void
    aim(rows &to, const ROWS &row, int tile, int g, int k0)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            to.a[i] = row(tile, row_of(i, 0, g)) + k0;
            to.b[i] = row(tile, row_of(i, 1, g)) + k0;
        }
    }

    // To the next piece.
    static FN void
    advance(rows &to)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            to.a[i] += DEPTH / PARTS * UNIT;
            to.b[i] += DEPTH / PARTS * UNIT;
        }
    }

    // The text for rows that are not aligned is another one: what runs should
    // stay in the cache of instructions.
    template <class ROWS, class AHEAD, class STAGE, class WANT, class OUT>
    static FN void
    run(int tiles, bool fast, ROWS row, AHEAD ahead, STAGE stage, WANT want,
        OUT out)
    {
        if (fast)
            walk<true>(tiles, row, ahead, stage, want, out);
        else
            walk<false>(tiles, row, ahead, stage, want, out);
    }

    template <bool FAST, class ROWS, class AHEAD, class STAGE, class WANT, class OUT>
    static FN void
    walk(int tiles, const ROWS &row, const AHEAD &ahead, const STAGE &stage,
         const WANT &want, const OUT &out)
    {
        extern __shared__ __align__(16) char shared[];
        T *x = (T *)shared;
        float *sums = (float *)(shared + X_BYTES);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        const int first = UNITS * warp / WARPS;
        const int count = UNITS % WARPS == 0
                              ? LOADS
                              : (UNITS * (warp + 1) / WARPS - first) * PARTS;
        const int k0 = first * UNIT + lane % (4 * S) * 8;
        uint4 a[DEPTH], b[DEPTH];
        const tile_share mine = tiles_of(tiles, gridDim.x);
        const int end = mine.first + mine.count;
        int tile = mine.first;
        rows from;

        release();
        ahead(flag<FAST>());
        aim(from, row, tile, g, k0);
#pragma unroll
        for (int j = 0; j < DEPTH; j++)
            if (j < count) {
                const int on = j / PARTS * UNIT;
                a[j] = load<FAST>(from.a[j % PARTS] + on, k0 + on);
                b[j] = load<FAST>(from.b[j % PARTS] + on, k0 + on);
            }
        await();
        stage(flag<FAST>(), x);
        __syncthreads();

        for (int turn = 0; tile < end; turn ^= 1) {
            float c[PARTS][COLS][4] = {};
            const int next = tile + 1;
#pragma unroll 1
            for (int piece = 0; piece < PIECES; piece++) {
                const int at = piece * DEPTH;
                const bool last = piece == PIECES - 1;
                const bool more = !last || next < end;
                const int then = last ? 0 : at + DEPTH;
                if (!last)
                    advance(from);
                else if (more)
                    aim(from, row, next, g, k0);
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
                        const int on = j / PARTS * UNIT;
                        const int k = k0 + then / PARTS * UNIT + on;
                        a[j] = load<FAST>(from.a[j % PARTS] + on, k);
                        b[j] = load<FAST>(from.b[j % PARTS] + on, k);
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
                const int i = threadIdx.x / M, m = threadIdx.x % M;
                const auto held = want(tile, i, m);
                float y = 0;
#pragma unroll
                for (int w = 0; w < WARPS * S; w++)
                    y += sums[turn * SUMS + w * R * M + threadIdx.x];
                out(tile, i, m, y, held);
            }
            tile = next;
        }
    }
};

// 8 neighbours of any type; those of 2 bytes stay words in registers.
template <class T, bool = sizeof(T) == 2>
struct eight {
    T v[8];
    FN T operator[](int i) const { return v[i]; }
};

template <class T>
struct eight<T, true> {
    uint4 v;
    FN T
    operator[](int i) const
    {
        const u32 w = i < 2 ? v.x : i < 4 ? v.y : i < 6 ? v.z : v.w;
        return (T)(i % 2 == 0 ? w & 0xffff : w >> 16);
    }
};

// Of a row of K numbers what is this thread's: 8 neighbours, J times.
template <int K, bool FAST, int J, class T>
FN void
take_row(eight<T> (&to)[J], const T *from)
{
#pragma unroll
    for (int j = 0; j < J; j++) {
        const int k = (j * 256 + threadIdx.x) * 8;
        if (k >= K)
            continue;
        if constexpr (sizeof(T) == 2)
            to[j].v = FAST ? *(const uint4 *)(from + k) : stream_halves(from + k);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                to[j].v[i] = from[k + i];
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
template <class G, bool FAST, class T, int M, int K, int STRIDE>
FN void
stage_rows(T *to, const T *from)
{
    for (int i = threadIdx.x * 8; i < M * G::ROW; i += G::THREADS * 8) {
        const int m = i / G::ROW, k = i % G::ROW;
        const T *p = from + m * (s64)STRIDE + k;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (k < K)
            v = FAST ? *(const uint4 *)p : stream_halves(p);
        *(uint4 *)(to + m * G::PITCH + k) = v;
    }
}
