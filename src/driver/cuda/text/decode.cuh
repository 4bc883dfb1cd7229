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
//     bool key_fast(): rows of keys and values are 16-byte aligned
static const int CLUSTER = 8;

FN u32
cluster_rank()
{
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

FN void
cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}

FN void
cluster_wait()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// Writes a float into the shared memory of block `rank`, at the place of p in
// ours.
FN void
cluster_write(float *p, u32 rank, float v)
{
    u32 at = (u32)__cvta_generic_to_shared(p);
    asm volatile("{.reg .u32 a; mapa.shared::cluster.u32 a, %0, %1;\n"
                 "st.shared::cluster.f32 [a], %2;}" ::"r"(at),
                 "r"(rank), "f"(v)
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

template <class T, int WIDTH, int QUERIES, int TILES>
struct decode {
    static const int WARPS = 8;
    static const int KEYS = 8 * TILES;
    static const int CHUNKS = WIDTH / 32;        // of a key, 4 lanes each
    static const int SLOTS = (WIDTH + 63) / 64;  // of a value, 8 lanes each
    static const int CELL = WIDTH + 2; // accumulator, maximum, sum
    static const int ROWS = (QUERIES + CLUSTER - 1) / CLUSTER; // of a block

    // exp of differences of maxima where both may be -inf.
    static FN float
    decay(float from, float to)
    {
        return from == to ? 1.f : __expf(from - to);
    }

    // Is the highest score so far above hidden keys that those weigh nothing?
    static FN bool
    is_settled(float high)
    {
        return high > FAR / 2;
    }

    static FN uint4
    load(const T *p, bool fast)
    {
        return fast ? stream(p) : stream_halves(p);
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
            const bool there = g < QUERIES && at < p.keys() &&
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

    template <class P>
    static FN void
    run(const P &p)
    {
        __shared__ float cells[WARPS * QUERIES * CELL];
        __shared__ float theirs[CLUSTER * ROWS * CELL];
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        const u32 rank = cluster_rank();
        const s64 start = (s64)(rank + CLUSTER * warp) * KEYS;
        const s64 step = (s64)CLUSTER * WARPS * KEYS;
        uint4 q[CHUNKS];
        float acc[SLOTS][8][4] = {}, top = -infinity(), all = 0;

        cluster_arrive(); // that all blocks of it have begun
        release();
        const bool likely = ahead(p, start, lane);
        await();
        take(p, g, t, q);
        walk(p, start, step, g, t, likely, q, acc, top, all);
        leave(cells + warp * QUERIES * CELL, g, t, acc, top, all);
        meet(cells, theirs, rank);
        for (int n = rank; n < QUERIES; n += CLUSTER) {
            const float *cell = theirs + n / CLUSTER * CELL;
            const bool some = is_settled(highest(cell, CLUSTER, ROWS));
            if (!some)
                again(p, g, t, q, cells);
            const float *from = some ? cell : cells + n * CELL;
            for (int e = threadIdx.x; e < WIDTH; e += 32 * WARPS)
                finish(p, from, some ? ROWS : QUERIES, n, e);
        }
    }

    template <class P>
    static FN void
    take(const P &p, int g, int t, uint4 (&q)[CHUNKS])
    {
        const T *from = p.query(g < QUERIES ? g : 0) + t * 8;
        const bool fast = aligned(from);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            q[c] = g >= QUERIES ? make_uint4(0, 0, 0, 0)
                   : fast ? *(const uint4 *)(from + c * 32)
                          : stream_halves(from + c * 32);
    }

    // Blocks of keys that this warp takes; likely: the first is wanted.
    template <class P>
    static FN void
    walk(const P &p, s64 start, s64 step, int g, int t, bool likely,
         const uint4 (&q)[CHUNKS], float (&acc)[SLOTS][8][4], float &top,
         float &all)
    {
        added m = look<false>(p, start, g, t);
#pragma unroll 1
        for (s64 j = start; j < p.keys(); j += step) {
            const added next = look<false>(p, j + step, g, t);
            if (likely || is_any(m))
                block(p, j, g, t, q, m, acc, top, all);
            likely = false;
            m = next;
        }
    }

    // All keys by the warps of this block.
    template <class P>
    static FN void
    again(const P &p, int g, int t, const uint4 (&q)[CHUNKS], float *cells)
    {
        const int warp = threadIdx.x >> 5;
        float acc[SLOTS][8][4] = {}, top = -infinity(), all = 0;
#pragma unroll 1
        for (s64 j = warp * KEYS; j < p.keys(); j += WARPS * KEYS)
            block(p, j, g, t, q, look<true>(p, j, g, t), acc, top, all);
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
            const T *from = lane < 16 ? p.key(at) : p.value(at);
#pragma unroll
            for (int e = 0; e < WIDTH; e += 64)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(from + e));
            likely = true;
        }
        return __any_sync(~0u, likely);
    }

    template <class P>
    static FN void
    block(const P &p, s64 j, int g, int t, const uint4 (&q)[CHUNKS],
          const added &m, float (&acc)[SLOTS][8][4], float &top, float &all)
    {
        uint4 k[TILES][CHUNKS], v[TILES][2][SLOTS];
        float s[TILES][4] = {};
        const bool fast = p.key_fast();
        const s64 last = p.keys() - 1;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const s64 at = j + i * 8 + g;
            const T *from = p.key(at < last ? at : last) + t * 8;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                k[i][c] = load(from + c * 32, fast);
        }
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const s64 at = j + i / 2 * 8 + t * 2 + i % 2;
            const T *from = p.value(at < last ? at : last) + g * 8 % WIDTH;
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
                v[i / 2][i % 2][c] = load(from + c * 64, fast);
        }
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
        top = high;
        all *= f;
#pragma unroll
        for (int i = 0; i < SLOTS * 32; i++)
            acc[i / 32][i / 4 % 8][i % 4] *= f;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            float &score = s[i / 2][i % 2];
            const bool seen = score != -infinity();
            score = seen ? __expf(score - high) : 0.f;
            all += score;
            // 0 * NaN of a row that nobody wrote yet
            const u32 some = __ballot_sync(~0u, seen) >> t & 0x11111111u;
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
                if (some == 0)
                    v[i / 2][i % 2][c] = make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < TILES; i += 2) {
            u32 high0, low0, high1, low1;
            split(s[i][0], s[i][1], high0, low0);
            split(s[i + 1][0], s[i + 1][1], high1, low1);
#pragma unroll
            for (int c = 0; c < SLOTS; c++)
#pragma unroll
                for (int e = 0; e < 8; e++)
                    multiply(acc[c][e], high0, low0, high1, low1,
                             pair_up(word(v[i][0][c], e / 2),
                                     word(v[i][1][c], e / 2), e % 2),
                             pair_up(word(v[i + 1][0][c], e / 2),
                                     word(v[i + 1][1][c], e / 2), e % 2),
                             T());
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

    // What the warp has of each query.
    static FN void
    leave(float *cells, int g, int t, const float (&acc)[SLOTS][8][4], float top,
          float all)
    {
        float *c = cells + g * CELL;
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (g >= QUERIES)
            return;
#pragma unroll
        for (int i = 0; i < SLOTS * 16; i++) {
            const int e = i / 16 * 64 + t * 16 + i % 16;
            const float(&a)[4] = acc[i / 16][i % 8];
            if (e < WIDTH)
                c[e] = i % 16 < 8 ? a[0] + a[2] : a[1] + a[3];
        }
        if (t == 0) {
            c[WIDTH] = top;
            c[WIDTH + 1] = all;
        }
    }

    // What this block has of each row goes to the block that finishes it.
    static FN void
    meet(const float *cells, float *theirs, u32 rank)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        __syncthreads();
        cluster_wait();
        for (int n = warp; n < QUERIES; n += WARPS) {
            float high = -infinity(), total = 0, x[(WIDTH + 31) / 32] = {};
            for (int w = 0; w < WARPS; w++)
                high = fmaxf(high, cells[(w * QUERIES + n) * CELL + WIDTH]);
            for (int w = 0; w < WARPS; w++) {
                const float *c = cells + (w * QUERIES + n) * CELL;
                const float f = decay(c[WIDTH], high);
                total += f * c[WIDTH + 1];
#pragma unroll
                for (int i = 0; i < (WIDTH + 31) / 32; i++)
                    x[i] += f * c[(i * 32 + lane) % WIDTH];
            }
            // Row n is finished by block n % CLUSTER.
            float *c = theirs + (rank * ROWS + n / CLUSTER) * CELL;
#pragma unroll
            for (int i = 0; i < (WIDTH + 31) / 32; i++)
                if (i * 32 + lane < WIDTH)
                    cluster_write(c + i * 32 + lane, n % CLUSTER, x[i]);
            if (lane == 0) {
                cluster_write(c + WIDTH, n % CLUSTER, high);
                cluster_write(c + WIDTH + 1, n % CLUSTER, total);
            }
        }
        cluster_arrive();
        cluster_wait();
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
            const float f = decay(c[WIDTH], high);
            total += f * c[WIDTH + 1];
            x += f * c[e];
        }
        // A query that sees nothing gives 0, as in ATen.
        put(p.out(n) + e, total == 0 ? 0.f : x / total);
        if (e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
    }
};
