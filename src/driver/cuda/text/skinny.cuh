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
// W     how w is stored: floats<T>, or words of words.cuh, which say how many elements
//       a lane loads at once, what they are when they are multiplied, and by what
//       their products are. Rows of x lie in the order in which they give them.
// ROWS  W::pointer row(tile, i): row i < R of a tile of w, K elements
// FAST  flag<true> where all rows are 16-byte aligned
// AHEAD void ahead(FAST): loads that need not wait either
// STAGE void stage(FAST, T *x): fills x[M][PITCH] with zeros behind K, by all threads
// WANT  H want(tile, i, m): what `out` reads
// OUT   void out(tile, i, m, sum, H): takes y of row i of the tile
// SCALE float scale(sum): where LATE is true, a factor of all results of one row of x, of
//       the sum over the block of what `stage` gives each thread
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

struct unscaled {};

// Elements of x, as they lie.
template <class T>
struct floats {
    typedef const T *pointer;
    typedef uint4 loaded;
    static const int EACH = 8; // of one load
    // Groups of elements with a factor of their own in what 4 neighbouring lanes
    // load; 0: there are no factors but those of rows.
    static const int SPLIT = 0;
    static const bool ZERO = false;
    static const u32 ONES = 0;

    template <bool FAST>
    static FN uint4
    load(pointer p, int)
    {
        return FAST ? stream(p) : stream_halves(p);
    }

    // In place of what lies behind K.
    static FN uint4
    nothing(pointer)
    {
        return make_uint4(0, 0, 0, 0);
    }

    // The elements of it, 8 neighbours of x's order.
    static FN uint4
    part(const uint4 &v, int)
    {
        return v;
    }

    static FN pointer
    at(pointer p, int by)
    {
        return p + by;
    }

    // Of the sums of a row.
    static FN float
    factor(pointer)
    {
        return 1;
    }

    // Where element i of 8 neighbours lies in x, and all of them.
    static FN int
    order(int i)
    {
        return i;
    }

    static FN uint4
    ordered(const uint4 &v)
    {
        return v;
    }
};

template <class T, int M, int K, int R, int S, int D, class W = floats<T>>
struct skinny {
    typedef typename W::pointer pointer;
    typedef typename W::loaded loaded;
    static const int WARPS = 8, THREADS = 32 * WARPS;
    static const int EACH = W::EACH, EIGHTS = EACH / 8;
    static const int UNIT = 4 * S * EACH; // elements along k of one load of a warp
    static const bool GROUPED = W::SPLIT > 0;
    // Columns of x that a lane's sums are of: one, or its group's only.
    static const int SPLIT = GROUPED ? W::SPLIT : 1, LANES = 4 / SPLIT;
    static const int UNITS = (K + UNIT - 1) / UNIT;
    static const int SHARE = (UNITS + WARPS - 1) / WARPS; // of a warp, at most
    static const int PARTS = S * R / 16; // pairs of loads for the rows of a tile
    static const int LOADS = SHARE * PARTS;
    static const int DEPTH = LOADS < D ? LOADS : D / PARTS * PARTS; // in flight
    static const int PIECES = (LOADS + DEPTH - 1) / DEPTH;
    static const int COLS = (M * S * SPLIT + 7) / 8; // instructions for the rows of x
    static const int ROW = UNIT * UNITS;
    // Rows of x begin 64 bytes apart modulo 128: no two lanes share a bank.
    static const int PITCH = M == 1 || ROW % 64 == 32 ? ROW : ROW + 32;
    static const int X_BYTES = M * PITCH * 2;
    static const int SUMS = WARPS * S * R * M; // floats, twice
    static const int BYTES = X_BYTES + 2 * SUMS * 4;
    static const bool LATE = false; // `stage` has all factors in x

    template <bool FAST>
    static FN loaded
    load(pointer p, int k)
    {
        if (K % UNIT != 0 && k >= K)
            return W::nothing(p);
        return W::template load<FAST>(p, k);
    }

    // Where 8 neighbours of x from k on lie: what lanes read at once side by side.
    static FN int
    place8(int k)
    {
        if constexpr (EIGHTS == 1)
            return k;
        return k / UNIT * UNIT + k % EACH / 8 * (32 * S) + k % UNIT / EACH * 8;
    }

    static FN int
    order(int i)
    {
        return W::order(i);
    }

    static FN uint4
    ordered(const uint4 &v)
    {
        return W::ordered(v);
    }

    static FN int
    place(int k)
    {
        return place8(k / 8 * 8) + W::order(k % 8);
    }

    // Row of the tile of pair j, half h, for this lane.
    static FN int
    row_of(int j, int h, int g)
    {
        return j % PARTS * (16 / S) + h * (8 / S) + g / S;
    }

    // What a lane reads of a tile: rows of both halves of each pair.
    struct rows {
        pointer a[PARTS], b[PARTS];
    };

    template <class ROWS>
    static FN void
    aim(rows &to, const ROWS &row, int tile, int g, int k0)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            to.a[i] = W::at(row(tile, row_of(i, 0, g)), k0);
            to.b[i] = W::at(row(tile, row_of(i, 1, g)), k0);
        }
    }

    // To the next piece.
    static FN void
    advance(rows &to)
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            to.a[i] = W::at(to.a[i], DEPTH / PARTS * UNIT);
            to.b[i] = W::at(to.b[i], DEPTH / PARTS * UNIT);
        }
    }

    template <bool FAST>
    static FN loaded
    fetch(pointer p, int on, int k)
    {
        return load<FAST>(W::at(p, on), k);
    }

    // Products of a pair of loads with the rows of x from `x` on.
    // Sums of groups are kept by whom the group is of: c[0], c[1] of a and of b.
    static FN void
    take(float (&c)[COLS][4], const loaded &a, const loaded &b, const T *x,
         int g, int t)
    {
        uint4 wa[EIGHTS], wb[EIGHTS];
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
            wa[e] = W::part(a, e);
            wb[e] = W::part(b, e);
        }
#pragma unroll
        for (int col = 0; col < COLS; col++) {
            const int u = (col * 8 + g) / S;
            const int row = SPLIT == 1 ? u : u / 4 * LANES + u % LANES;
            const int m = row < M ? row : M - 1;
            const bool mine = SPLIT == 1 || u % 4 / LANES == t / LANES;
            float sum[4] = {}, ones[4] = {};
            float (&to)[4] = choose(c[col], sum);
#pragma unroll
            for (int e = 0; e < EIGHTS; e++) {
                uint4 v = make_uint4(0, 0, 0, 0);
                if (mine)
                    v = *(const uint4 *)(x + m * PITCH + e * (32 * S));
                multiply(to, wa[e].x, wb[e].x, wa[e].y, wb[e].y, v.x, v.y, T());
                multiply(to, wa[e].z, wb[e].z, wa[e].w, wb[e].w, v.z, v.w, T());
                if constexpr (GROUPED && W::ZERO) {
                    const u32 one = W::ONES;
                    multiply(ones, one, one, one, one, v.x, v.y, T());
                    multiply(ones, one, one, one, one, v.z, v.w, T());
                }
            }
            if constexpr (GROUPED) {
                const int i = g % S;
                c[col][0] = W::add(c[col][0], a, pick(sum, 0, i), pick(ones, 0, i));
                c[col][1] = W::add(c[col][1], b, pick(sum, 2, i), pick(ones, 2, i));
            }
        }
    }

    static FN float (&choose(float (&c)[4], float (&sum)[4]))[4]
    {
        if constexpr (GROUPED)
            return sum;
        else
            return c;
    }

    static FN float
    pick(const float (&c)[4], int first, int i)
    {
        return i == 0 ? c[first] : c[first + 1];
    }

    // This warp's sums of a tile to s[m][row].
    static FN void
    give_groups(float *s, const float (&c)[PARTS][COLS][4], int g, int t)
    {
        static_assert(S == 2, "a column of each lane for each part");
#pragma unroll
        for (int j = 0; j < PARTS; j++)
#pragma unroll
            for (int col = 0; col < COLS; col++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float y = c[j][col][i];
#pragma unroll
                    for (int d = LANES; d < 4; d *= 2)
                        y += __shfl_xor_sync(~0u, y, d);
                    const int m = col * LANES + t;
                    if (t < LANES && m < M)
                        s[m * R + row_of(j, i, g)] = y;
                }
    }

    // The text for rows that are not aligned is another one: what runs should
    // stay in the cache of instructions.
    template <class ROWS, class AHEAD, class STAGE, class WANT, class OUT,
              class SCALE = unscaled>
    static FN void
    run(int tiles, bool fast, ROWS row, AHEAD ahead, STAGE stage, WANT want,
        OUT out, SCALE = SCALE())
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
        const int k0 = first * UNIT + lane % (4 * S) * EACH;
        const int x0 = first * UNIT + lane % (4 * S) * 8;
        loaded a[DEPTH], b[DEPTH];
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
                a[j] = fetch<FAST>(from.a[j % PARTS], on, k0 + on);
                b[j] = fetch<FAST>(from.b[j % PARTS], on, k0 + on);
            }
        await();
        stage(flag<FAST>(), x);
        __syncthreads();

        for (int turn = 0; tile < end; turn ^= 1) {
            float c[PARTS][COLS][4] = {};
            const int next = tile + 1;
            const float factor = threadIdx.x < R * M
                                     ? W::factor(row(tile, threadIdx.x % R))
                                     : 1;
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
                    // What is not in a function here ptxas mixes with the loads
                    // in the order that was timed; from a function it does not.
                    if (at + j < count) {
                        const T *v0 = x + x0 + (at + j) / PARTS * UNIT;
                        if constexpr (GROUPED || EIGHTS > 1)
                            take(c[j % PARTS], a[j], b[j], v0, g, t);
                        else
#pragma unroll
                            for (int col = 0; col < COLS; col++) {
                                int m = (col * 8 + g) / S;
                                m = m < M ? m : M - 1;
                                const uint4 v = *(const uint4 *)(v0 + m * PITCH);
                                const uint4 wa = W::part(a[j], 0);
                                const uint4 wb = W::part(b[j], 0);
                                multiply(c[j % PARTS][col], wa.x, wb.x, wa.y,
                                         wb.y, v.x, v.y, T());
                                multiply(c[j % PARTS][col], wa.z, wb.z, wa.w,
                                         wb.w, v.z, v.w, T());
                            }
                    }
                    if (more && then + j < count) {
                        const int on = j / PARTS * UNIT;
                        const int k = k0 + then / PARTS * UNIT + on;
                        a[j] = fetch<FAST>(from.a[j % PARTS], on, k);
                        b[j] = fetch<FAST>(from.b[j % PARTS], on, k);
                    }
                }
            }
            float *s = sums + turn * SUMS + (warp * S + g % S) * R * M;
            if constexpr (GROUPED)
                give_groups(s, c, g, t);
            else
#pragma unroll
                for (int j = 0; j < PARTS; j++)
#pragma unroll
                    for (int col = 0; col < COLS; col++)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const int n = col * 8 + t * 2 + (i & 1);
                            if (n % S == g % S && n / S < M)
                                s[n / S * R + row_of(j, i >> 1, g)] = c[j][col][i];
                        }
            __syncthreads();
            if (threadIdx.x < R * M) {
                const int i = threadIdx.x % R, m = threadIdx.x / R;
                const auto held = want(tile, i, m);
                float y = 0;
#pragma unroll
                for (int w = 0; w < WARPS * S; w++)
                    y += sums[turn * SUMS + w * R * M + threadIdx.x];
                out(tile, i, m, y * factor, held);
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

// Of a row of K numbers what is this thread's: 8 neighbours, J times. Behind K it reads the
// first ones: with a condition in the loop the array stays in local memory.
template <int K, bool FAST, int J, class T>
FN bool
ask_row(eight<T> (&to)[J], const T *from)
{
#pragma unroll
    for (int j = 0; j < J; j++) {
        const int own = (j * 256 + threadIdx.x) * 8;
        const int k = K % 2048 == 0 || own < K ? own : 0;
        if constexpr (sizeof(T) == 2)
            to[j].v = take16<FAST>(from + k);
        else
#pragma unroll
            for (int i = 0; i < 8; i++)
                to[j].v[i] = from[k + i];
    }
    return true;
}

template <int K, bool FAST, int J, class T>
FN void
end_row(eight<T> (&)[J], const T *, bool)
{
}

// Rows r0, p0, r1, p1, ...: all are asked for, then those are looked at that may be
// old.
template <int K, bool FAST>
FN void
take_rows()
{
}

template <int K, bool FAST, int J, class T, class P, class... REST>
FN void
take_rows(eight<T> (&to)[J], P from, REST &...rest)
{
    const auto asked = ask_row<K, FAST>(to, from);
    take_rows<K, FAST>(rest...);
    end_row<K, FAST>(to, from, asked);
}

// 8 neighbours of a row of x from k on.
template <class G, class T>
FN void
give8(T *to, int k, const u16 (&x)[8])
{
    u16 w[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[G::order(i)] = x[i];
    *(uint4 *)(to + G::place8(k)) =
        make_uint4(w[0] | (u32)w[1] << 16, w[2] | (u32)w[3] << 16,
                   w[4] | (u32)w[5] << 16, w[6] | (u32)w[7] << 16);
}

// 8 neighbours of a row.
template <class T>
FN void
put8(T *to, const T (&x)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i] = x[i];
}

// Row j of a cache, `pitch` elements apart, is v at i; not where it is out of range.
template <class T, class V>
FN void
put_row(T *p, bool inside, s64 i, s64 j, s64 pitch, V v)
{
    if (inside)
        p[i + j * pitch] = v;
}

// stage: rows of x, STRIDE elements apart. All copies of several rows are on their way at
// once, behind weights: one after the other they would take longer than the weights.
template <class G, bool FAST, class T, int M, int K, int STRIDE>
FN void
stage_rows(T *to, const T *from)
{
#ifdef LOOKS_ALIGNED
    constexpr bool COPIES = false;
#else
    constexpr bool COPIES = FAST && M > 1 && G::EIGHTS == 1;
#endif
    for (int i = threadIdx.x * 8; i < M * G::ROW; i += G::THREADS * 8) {
        const int m = i / G::ROW, k = i % G::ROW;
        const T *p = from + m * (s64)STRIDE + k;
        T *at = to + m * G::PITCH + G::place8(k);
        if (COPIES && k < K) {
            copy_async(at, p);
            continue;
        }
        uint4 v = make_uint4(0, 0, 0, 0);
        if (k < K)
            v = take16<FAST>(p);
        *(uint4 *)at = G::ordered(v);
    }
    if (COPIES) {
        close_group();
        arrived<0>();
    }
}
