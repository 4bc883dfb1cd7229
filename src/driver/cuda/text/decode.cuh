// decode.cuh: softmax(q k^T * scale + mask) v for few queries and many keys.
//
// A cluster of 8 blocks serves one key head and up to QUERIES rows of the heads
// that share it: each key and value is read once for all of them. The warps of
// the cluster take blocks of keys in turn; a block that the mask hides from all
// queries costs its mask only, so a cache costs what of it is in use. Running
// maxima and sums meet in shared memory, then across the cluster.
//
// Hidden is a key whose mask is -inf, or at most FAR (a mask of bools becomes
// -65504 or less in torch): what it weighs is 0 where another key is seen. Rows
// that have seen nothing higher than FAR / 2 are computed again, with all keys. A
// mask that is NaN hides nothing.
//
// Products are those of mma.m16n8k16, with queries in rows 0 to 7. A warp has
// TILES tiles of 8 keys at once. As the order of a sum is free, a lane loads 16
// neighbouring bytes of a key, or of a value, and takes them for the words that
// the instruction wants: elements 8 t + i of a chunk of 32 for a score; for a
// result column g of step j is element 8 g + j of a slot of 64. What a score
// weighs is two numbers of T, which have 16 bits of it, rows 0 to 7 and 8 to 15.
//
// P: constants of the call,
//     typedef T; float scale(); bool causal(); s64 keys();
//     const T *query(int n), *key(s64 j), *value(s64 j); T *out(int n)
//     s64 row(int n): of the query, for causal;  float *sum(int n) or null
//     float mask(int n, s64 j): what is added to a score
//     bool hint(s64 j): false: key j was hidden when last seen
//     bool query_fast(), key_fast(): rows are 16-byte aligned, of queries; of
//     keys and values
static const int CLUSTER = 8;

FN u32
cluster_rank()
{
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

// What was written before it is not for the others: barriers that are cost a
// fence of all memory.
FN void
cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

FN void
cluster_wait()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

FN u32
shared_place(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

// A barrier that `bytes` of the cluster's writes complete.
FN void
mail_expect(u64 *box, u32 bytes)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                     shared_place(box)),
                 "r"(1)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_place(box)),
                 "r"(bytes)
                 : "memory");
}

FN void
mail_wait(u64 *box)
{
    u32 done;
    do
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(shared_place(box)), "r"(0)
                     : "memory");
    while (!done);
}

// Writes a float into the shared memory of block `rank`, at the place of p in
// ours, for its box.
FN void
mail(float *p, u32 rank, float v, u64 *box)
{
    asm volatile("{.reg .u32 a, b; mapa.shared::cluster.u32 a, %0, %2;\n"
                 "mapa.shared::cluster.u32 b, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
                 ".b32 [a], %3, [b];}" ::"r"(shared_place(p)),
                 "r"(shared_place(box)), "r"(rank), "r"(__float_as_uint(v))
                 : "memory");
}

// Of words with two elements each: element `odd` of a and of b.
FN u32
pair_up(u32 a, u32 b, int odd)
{
    return __byte_perm(a, b, odd ? 0x7632 : 0x5410);
}

FN u32
word(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// 8 neighbours of each chunk; 0 where there is no query.
template <bool FAST, int N, class T>
FN void
take_query(uint4 (&q)[N], const T *from, bool there)
{
#pragma unroll
    for (int c = 0; c < N; c++)
        q[c] = there ? take16<FAST>(from + c * 32) : make_uint4(0, 0, 0, 0);
}

template <class T, int WIDTH, int QUERIES, int TILES>
struct decode {
    static const int WARPS = 8;
    static const int KEYS = 8 * TILES;
    static const int CHUNKS = WIDTH / 32;        // of a key, 4 lanes each
    static const int SLOTS = (WIDTH + 63) / 64;  // of a value, 8 lanes each
    static const int CELL = WIDTH + 2; // accumulator, maximum, sum
    static const int ROWS = (QUERIES + CLUSTER - 1) / CLUSTER; // of a block
    static const int PIECES = (WIDTH + 31) / 32;               // of a row

    // exp of differences of maxima where both may be -inf.
    static FN float
    decay(float from, float to)
    {
        return from == to ? 1.f : __expf(from - to);
    }

    // What weighs of maxima are: decay(x, base) = exp(x - base); 0 of -inf.
    static FN float
    base_of(float high)
    {
        return high == -infinity() ? 0.f : high;
    }

    // Is the highest score so far above hidden keys that those weigh nothing?
    static FN bool
    is_settled(float high)
    {
        return high > FAR / 2;
    }

    template <bool FAST>
    static FN uint4
    load(const T *p)
    {
        return FAST ? stream(p) : stream_halves(p);
    }

    // Of the result, in registers of a lane: of rows 0 to 7 and 8 to 15.
    struct sums {
        float of[SLOTS][8][4];

        FN void
        scale(float f, bool some)
        {
            if (__any_sync(~0u, some))
#pragma unroll
                for (int i = 0; i < SLOTS * 32; i++)
                    of[i / 32][i / 4 % 8][i % 4] *= f;
        }

        FN void
        add(int c, int e, u32 high0, u32 low0, u32 high1, u32 low1, u32 v0, u32 v1)
        {
            multiply(of[c][e], high0, low0, high1, low1, v0, v1, T());
        }
    };

    // What a lane reads of a block of keys.
    struct places {
        const T *k[TILES], *v[TILES][2];
    };

    template <class P>
    static FN void
    aim(places &to, const P &p, s64 j, int g, int t)
    {
        const s64 last = p.keys() - 1;
        if (is_even(p) && j > last)
            j = p.keys() - KEYS;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const s64 at = j + i * 8 + g;
            to.k[i] = p.key(is_even(p) || at < last ? at : last) + t * 8;
        }
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const s64 at = j + i / 2 * 8 + t * 2 + i % 2;
            to.v[i / 2][i % 2] =
                p.value(is_even(p) || at < last ? at : last) + g * 8 % WIDTH;
        }
    }

    // Do keys end where a block of them does? One is inside or not then.
    template <class P>
    static FN bool
    is_even(const P &p)
    {
        return p.keys() % KEYS == 0;
    }

    struct pieces {
        uint4 k[TILES][CHUNKS], v[TILES][2][SLOTS];
    };

    template <bool FAST>
    static FN void
    fetch(pieces &to, const places &from)
    {
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                to.k[i][c] = load<FAST>(from.k[i] + c * 32);
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
                to.v[i / 2][i % 2][c] =
                    load<FAST>(from.v[i / 2][i % 2] + c * 64);
    }

    // Scores of query g with keys j + 2 t and j + 2 t + 1 of each tile: what is
    // added to them.
    struct added {
        float of[TILES][2];
    };

    template <bool ALL, class P>
    static FN added
    look(const P &p, s64 j, int g, int t)
    {
        added m;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const s64 at = j + i / 2 * 8 + t * 2 + i % 2;
            const bool there = g < QUERIES && (is_even(p) ? j : at) < p.keys() &&
                               !(p.causal() && at > p.row(g));
            const float of = there ? p.mask(g, at) : -infinity();
            m.of[i / 2][i % 2] = ALL || !(of <= FAR) ? of : -infinity();
        }
        return m;
    }

    static FN bool
    is_any(const added &m)
    {
        bool seen = false;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            seen |= m.of[i / 2][i % 2] != -infinity();
        return __any_sync(~0u, seen);
    }

    // Rows that are not aligned have a text of their own, as has what is rare:
    // what runs should stay in the cache of instructions.
    template <class P>
    static FN void
    run(const P &p)
    {
        if (p.query_fast() && p.key_fast())
            go<true>(p);
        else
            go<false>(p);
    }

    template <bool FAST, class P>
    static FN void
    go(const P &p)
    {
        __shared__ __align__(8) float cells[WARPS * QUERIES * CELL];
        __shared__ float theirs[CLUSTER * ROWS * CELL];
        __shared__ u64 box;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        const u32 rank = cluster_rank();
        const s64 start = (s64)(rank + CLUSTER * warp) * KEYS;
        const s64 step = (s64)CLUSTER * WARPS * KEYS;
        const int rows = (QUERIES + CLUSTER - 1 - (int)rank) / CLUSTER;
        sums acc = {};
        float top = -infinity(), all = 0;
        places at;

        if (threadIdx.x == 0)
            mail_expect(&box, rows * CLUSTER * CELL * 4);
        cluster_arrive(); // that all blocks of it have begun
        release();
        aim(at, p, start, g, t);
        const bool likely = ahead(p, start, lane);
        await();
        walk<FAST>(p, start, step, g, t, likely, at, acc, top, all);
        leave(cells + warp * QUERIES * CELL, g, t, acc, top, all);
        __syncthreads();
        cluster_wait();
        meet(cells, theirs, rank, &box);
        if (rows > 0)
            mail_wait(&box);
        for (int n = rank; n < QUERIES; n += CLUSTER) {
            const float *cell = theirs + n / CLUSTER * CELL;
            const bool some = is_settled(highest(cell, CLUSTER, ROWS));
            if (!some)
                again(p, cells);
            const float *from = some ? cell : cells + n * CELL;
            for (int e = threadIdx.x; e < WIDTH; e += 32 * WARPS)
                finish(p, from, some ? ROWS : QUERIES, n, e);
        }
    }

    template <bool FAST, class P>
    static FN void
    take(const P &p, int g, int t, uint4 (&q)[CHUNKS])
    {
        take_query<FAST>(q, p.query(g < QUERIES ? g : 0) + t * 8, g < QUERIES);
    }

    // Blocks of keys that this warp takes, the first one at `at`; likely: it is
    // wanted.
    template <bool FAST, class P>
    static FN void
    walk(const P &p, s64 start, s64 step, int g, int t, bool likely, places &at,
         sums &acc, float &top, float &all)
    {
        pieces x;
        uint4 q[CHUNKS];
        if (likely)
            fetch<FAST>(x, at);
        take<FAST>(p, g, t, q);
        added m = look<false>(p, start, g, t);
#pragma unroll 1
        for (s64 j = start; j < p.keys(); j += step) {
            const bool some = likely || is_any(m);
            if (some && !likely)
                fetch<FAST>(x, at);
            const added next = look<false>(p, j + step, g, t);
            if (some)
                fold(p, x, q, m, acc, top, all);
            aim(at, p, j + step, g, t);
            likely = false;
            m = next;
        }
    }

    // All keys by the warps of this block.
    template <class P>
    static __device__ __noinline__ void
    again(P p, float *cells)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        uint4 q[CHUNKS];
        sums acc = {};
        float top = -infinity(), all = 0;
        take<false>(p, g, t, q);
#pragma unroll 1
        for (s64 j = warp * KEYS; j < p.keys(); j += WARPS * KEYS) {
            places at;
            pieces x;
            aim(at, p, j, g, t);
            fetch<false>(x, at);
            fold(p, x, q, look<true>(p, j, g, t), acc, top, all);
        }
        __syncthreads();
        leave(cells + warp * QUERIES * CELL, g, t, acc, top, all);
        __syncthreads();
    }

    // Asks L2 for the keys that will be read, by a mask that may be of an
    // earlier run: it is a hint only. True: there are some.
    template <class P>
    static FN bool
    ahead(const P &p, s64 j, int lane)
    {
        bool likely = false;
#pragma unroll
        for (int i = 0; i < KEYS; i += 16) {
            const s64 at = j + i + lane % 16;
            if (at >= p.keys() || !p.hint(at))
                continue;
            prefetch(lane < 16 ? p.key(at) : p.value(at));
            likely = true;
        }
        return __any_sync(~0u, likely);
    }

    static FN void
    prefetch(const T *from)
    {
#pragma unroll
        for (int e = 0; e < WIDTH; e += 64)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(from + e));
    }

    template <class P, class ACC>
    static FN void
    fold(const P &p, pieces &x, const uint4 (&q)[CHUNKS], const added &m,
         ACC &acc, float &top, float &all)
    {
        uint4(&k)[TILES][CHUNKS] = x.k;
        uint4(&v)[TILES][2][SLOTS] = x.v;
        float s[TILES][4] = {};
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                multiply(s[i], q[c].x, 0, q[c].y, 0, k[i][c].x, k[i][c].y, T());
                multiply(s[i], q[c].z, 0, q[c].w, 0, k[i][c].z, k[i][c].w, T());
            }
        float high = top;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            // A hidden key stays hidden, whatever it holds.
            const float added = m.of[i / 2][i % 2];
            float &score = s[i / 2][i % 2];
            score = added == -infinity() ? added : score * p.scale() + added;
            high = fmaxf(high, score);
        }
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
        high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
        const float f = decay(top, high);
        acc.scale(f, f != 1 && top != -infinity());
        top = high;
        all *= f;
        u32 hidden = 0; // a bit for each
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            float &score = s[i / 2][i % 2];
            hidden |= (score == -infinity()) << i;
            score = score == -infinity() ? 0.f : __expf(score - high);
            all += score;
        }
        if (__any_sync(~0u, hidden != 0 && threadIdx.x % 32 < 4 * QUERIES))
            clear(v, hidden);
#pragma unroll
        for (int i = 0; i < TILES; i += 2) {
            u32 high0, low0, high1, low1;
            split(s[i][0], s[i][1], high0, low0);
            split(s[i + 1][0], s[i + 1][1], high1, low1);
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
#pragma unroll
                for (int e = 0; e < 8; e++)
                    acc.add(c, e, high0, low0, high1, low1,
                            pair_up(word(v[i][0][c], e / 2),
                                    word(v[i][1][c], e / 2), e % 2),
                            pair_up(word(v[i + 1][0][c], e / 2),
                                    word(v[i + 1][1][c], e / 2), e % 2));
        }
    }

    // Values of keys that no query has seen, as 0 * NaN of a row that nobody wrote yet
    // is NaN.
    static FN void
    clear(uint4 (&v)[TILES][2][SLOTS], u32 hidden)
    {
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const u32 seen = __ballot_sync(~0u, !(hidden >> i & 1));
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
                if ((seen >> t & 0x11111111u) == 0)
                    v[i / 2][i % 2][c] = make_uint4(0, 0, 0, 0);
        }
    }

    // Two numbers as a word of T, and what is left of them as another.
    static FN void
    split(float a, float b, u32 &high, u32 &low)
    {
        float x, y;
        high = pack(a, b, T());
        unpack(high, x, y, T());
        low = pack(a - x, b - y, T());
    }

    // What the warp has of each query; cells are 8-byte aligned.
    static FN void
    leave(float *cells, int g, int t, const sums &acc, float top, float all)
    {
        leave_rest(cells, g, t, top, all);
        leave_sums(cells, g, t, acc);
    }

    static FN void
    leave_sums(float *cells, int g, int t, const sums &acc)
    {
        float *c = cells + g * CELL;
        if (g >= QUERIES)
            return;
#pragma unroll
        for (int i = 0; i < SLOTS * 16; i += 2) {
            const int e = i / 16 * 64 + t * 16 + i % 16;
            const float(&a)[4] = acc.of[i / 16][i % 8];
            const float(&b)[4] = acc.of[i / 16][i % 8 + 1];
            if (e < WIDTH)
                *(float2 *)(c + e) = i % 16 < 8 ? float2{a[0] + a[2], b[0] + b[2]}
                                                : float2{a[1] + a[3], b[1] + b[3]};
        }
    }

    static FN void
    leave_rest(float *cells, int g, int t, float top, float all)
    {
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (g < QUERIES && t == 0) {
            cells[g * CELL + WIDTH] = top;
            cells[g * CELL + WIDTH + 1] = all;
        }
    }

    // What this block has of each row goes to the block that finishes it, row n
    // to block n % CLUSTER.
    static FN void
    meet(const float *cells, float *theirs, u32 rank, u64 *box)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        for (int i = warp; i < QUERIES * PIECES; i += WARPS) {
            const int n = i % QUERIES, e = i / QUERIES * 32 + lane;
            const float *from = cells + n * CELL;
            float high = -infinity(), total = 0, x = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                high = fmaxf(high, from[w * QUERIES * CELL + WIDTH]);
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float *c = from + w * QUERIES * CELL;
                const float f = __expf(c[WIDTH] - base_of(high));
                total += f * c[WIDTH + 1];
                x += f * c[e % WIDTH];
            }
            float *to = theirs + (rank * ROWS + n / CLUSTER) * CELL;
            if (e < WIDTH)
                mail(to + e, n % CLUSTER, x, box);
            if (e == 0) {
                mail(to + WIDTH, n % CLUSTER, high, box);
                mail(to + WIDTH + 1, n % CLUSTER, total, box);
            }
        }
    }

    // Of `count` cells that lie `pitch` of them apart.
    static FN float
    highest(const float *cell, int count, int pitch)
    {
        float high = -infinity();
#pragma unroll
        for (int r = 0; r < count; r++)
            high = fmaxf(high, cell[r * pitch * CELL + WIDTH]);
        return high;
    }

    // Element e of row n from 8 cells: of the blocks, or of the warps.
    template <class P>
    static FN void
    finish(const P &p, const float *cell, int pitch, int n, int e)
    {
        static_assert(CLUSTER == WARPS, "as many cells either way");
        const float high = highest(cell, CLUSTER, pitch);
        float total = 0, x = 0;
#pragma unroll
        for (int r = 0; r < CLUSTER; r++) {
            const float *c = cell + r * pitch * CELL;
            const float f = __expf(c[WIDTH] - base_of(high));
            total += f * c[WIDTH + 1];
            x += f * c[e];
        }
        // A query that sees nothing gives 0, as in ATen.
        put(p.out(n) + e, total == 0 ? 0.f : x / total);
        if (e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
    }
};
