// decode.cuh: softmax(q k^T * scale + mask) v for few queries and many keys.
//
// A cluster of 8 blocks serves one key head and up to QUERIES rows of the heads
// that share it: each key and value is read once for all of them. The warps of
// the cluster take blocks of keys in turn; a block that the mask hides from all
// queries costs its mask only, so a cache costs what of it is in use. Running
// maxima and sums meet in shared memory, then across the cluster.
//
// A lane holds 8 neighbouring elements of a key: LANES lanes a key, GROUP keys
// a load, BLOCK keys in flight.
//
// P: constants of the call,
//     typedef T; float scale(); bool causal(); s64 keys();
//     const T *query(int n), *key(s64 j), *value(s64 j); T *out(int n)
//     s64 row(int n): of the query, for causal;  float *sum(int n) or null
//     float mask(int n, s64 j): what is added to a score, -inf: hidden
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

template <class T>
FN void
unpack8(uint4 v, float (&x)[8])
{
    unpack(v.x, x[0], x[1], T());
    unpack(v.y, x[2], x[3], T());
    unpack(v.z, x[4], x[5], T());
    unpack(v.w, x[6], x[7], T());
}

template <class T, int WIDTH, int QUERIES>
struct decode {
    static const int WARPS = 8;
    static const int LANES = WIDTH / 8, GROUP = 32 / LANES;
    static const int LOADS = LANES > 16 ? 4 : 8, BLOCK = GROUP * LOADS;
    static const int CELL = WIDTH + 2; // accumulator, maximum, sum
    static const int ROWS = (QUERIES + CLUSTER - 1) / CLUSTER; // of a block

    // exp of differences of maxima where both may be -inf.
    static FN float
    decay(float from, float to)
    {
        return from == to ? 1.f : __expf(from - to);
    }

    template <class P>
    static FN void
    run(const P &p)
    {
        __shared__ float cells[WARPS * QUERIES * CELL];
        __shared__ float theirs[CLUSTER * ROWS * CELL];
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int part = lane % LANES * 8, mine = lane / LANES;
        const u32 rank = cluster_rank();
        float q[QUERIES][8], acc[QUERIES][8], top[QUERIES], all[QUERIES];

        cluster_arrive(); // that all blocks of it have begun
        release();
        ahead(p, rank, mine, part);
        await();
#pragma unroll
        for (int n = 0; n < QUERIES; n++) {
            const T *from = p.query(n) + part;
            top[n] = -infinity();
            all[n] = 0;
#pragma unroll
            for (int e = 0; e < 8; e++) {
                q[n][e] = get(from[e]);
                acc[n][e] = 0;
            }
        }
        const s64 step = (s64)CLUSTER * WARPS * BLOCK;
        const s64 start = (s64)(rank + CLUSTER * warp) * BLOCK;
#pragma unroll 1
        for (s64 j0 = start; j0 < p.keys(); j0 += step)
            block(p, j0 + mine, part, q, acc, top, all);
        meet(p, cells, theirs, rank, acc, top, all);
    }

    // Asks L2 for the keys that will be read, by a mask that may be of an
    // earlier run: it is a hint only.
    template <class P>
    static FN void
    ahead(const P &p, u32 rank, int mine, int part)
    {
        const s64 j0 = (s64)(rank + CLUSTER * (threadIdx.x >> 5)) * BLOCK + mine;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const s64 at = j0 + i * GROUP;
            if (at < p.keys() && part % 64 == 0 && p.hint(at)) {
                asm volatile("prefetch.global.L2 [%0];" ::"l"(p.key(at) + part));
                asm volatile("prefetch.global.L2 [%0];" ::"l"(p.value(at) + part));
            }
        }
    }

    // Keys j, j + GROUP ...: of this lane's group.
    template <class P>
    static FN void
    block(const P &p, s64 j, int part, const float (&q)[QUERIES][8],
          float (&acc)[QUERIES][8], float (&top)[QUERIES],
          float (&all)[QUERIES])
    {
        float s[QUERIES][LOADS];
        bool seen = false;
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const s64 at = j + i * GROUP;
#pragma unroll
            for (int n = 0; n < QUERIES; n++) {
                s[n][i] = -infinity();
                if (at < p.keys() && !(p.causal() && at > p.row(n)))
                    s[n][i] = p.mask(n, at);
                seen |= s[n][i] != -infinity();
            }
        }
        if (!__any_sync(~0u, seen))
            return;
        uint4 k[LOADS], v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const s64 at = j + i * GROUP;
            const s64 in = at < p.keys() ? at : p.keys() - 1;
            const T *kp = p.key(in) + part, *vp = p.value(in) + part;
            k[i] = p.key_fast() ? stream(kp) : stream_halves(kp);
            v[i] = p.key_fast() ? stream(vp) : stream_halves(vp);
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            float x[8];
            unpack8<T>(k[i], x);
#pragma unroll
            for (int n = 0; n < QUERIES; n++) {
                float d = 0;
#pragma unroll
                for (int e = 0; e < 8; e++)
                    d = fmaf(q[n][e], x[e], d);
                d = sum<LANES>(d);
                // A hidden key stays hidden, whatever it holds.
                if (s[n][i] != -infinity())
                    s[n][i] += d * p.scale();
            }
        }
#pragma unroll
        for (int n = 0; n < QUERIES; n++) {
            float high = top[n];
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                high = fmaxf(high, s[n][i]);
#pragma unroll
            for (int d = LANES; d < 32; d *= 2)
                high = fmaxf(high, __shfl_xor_sync(~0u, high, d));
            const float f = decay(top[n], high);
            top[n] = high;
            all[n] *= f;
#pragma unroll
            for (int e = 0; e < 8; e++)
                acc[n][e] *= f;
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                s[n][i] = s[n][i] == -infinity() ? 0.f : __expf(s[n][i] - high);
                all[n] += s[n][i];
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            float x[8];
            unpack8<T>(v[i], x);
#pragma unroll
            for (int n = 0; n < QUERIES; n++)
#pragma unroll
                for (int e = 0; e < 8; e++)
                    // 0 * NaN of a row that nobody wrote yet
                    acc[n][e] = s[n][i] == 0.f ? acc[n][e]
                                               : fmaf(s[n][i], x[e], acc[n][e]);
        }
    }

    // One row of the result from the warps of all blocks.
    template <class P>
    static FN void
    meet(const P &p, float *cells, float *theirs, u32 rank, float (&acc)[QUERIES][8],
         float (&top)[QUERIES], float (&all)[QUERIES])
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
        for (int n = 0; n < QUERIES; n++) {
            float *c = cells + (warp * QUERIES + n) * CELL;
#pragma unroll
            for (int d = LANES; d < 32; d *= 2) {
                all[n] += __shfl_xor_sync(~0u, all[n], d);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    acc[n][e] += __shfl_xor_sync(~0u, acc[n][e], d);
            }
            if (lane < LANES)
#pragma unroll
                for (int e = 0; e < 8; e++)
                    c[lane * 8 + e] = acc[n][e];
            if (lane == 0) {
                c[WIDTH] = top[n];
                c[WIDTH + 1] = all[n];
            }
        }
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
        for (int n = rank; n < QUERIES; n += CLUSTER)
            for (int e = threadIdx.x; e < WIDTH; e += 32 * WARPS)
                finish(p, theirs + n / CLUSTER * CELL, n, e);
    }

    template <class P>
    static FN void
    finish(const P &p, const float *cell, int n, int e)
    {
        float m[CLUSTER], high = -infinity(), total = 0, x = 0;
#pragma unroll
        for (int r = 0; r < CLUSTER; r++) {
            m[r] = cell[r * ROWS * CELL + WIDTH];
            high = fmaxf(high, m[r]);
        }
#pragma unroll
        for (int r = 0; r < CLUSTER; r++) {
            const float f = decay(m[r], high);
            total += f * cell[r * ROWS * CELL + WIDTH + 1];
            x += f * cell[r * ROWS * CELL + e];
        }
        // A query that sees nothing gives 0, as in ATen.
        put(p.out(n) + e, total == 0 ? 0.f : x / total);
        if (e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
    }
};
