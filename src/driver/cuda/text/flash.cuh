// flash.cuh: softmax(q k^T * scale + mask) v on the matrix units, of bfloat16
// and half. A warp has 16 queries; keys and values pass through shared memory
// 64 at a time, the next ones on their way while these are used. Scores stay
// in registers: as mma.m16n8k16 leaves two tiles of them, it takes them as one
// operand. What a score weighs is two numbers of T, which have 16 bits of it.
// Where there are few queries, SPLITS groups of warps have the same ones and
// take a tile of keys each in turn; their sums are put together at the end.
// The accessors of P are those of decode.cuh.
template <class T, int WIDTH, int WARPS, int SPLITS>
struct flash {
    static const int KEYS = 64, THREADS = 32 * WARPS; // of a group
    static const int PITCH = WIDTH + 8; // no two rows share a bank
    static const int STEPS = WIDTH / 16, PIECES = WIDTH / 8;
    static const int STAGE = 2 * KEYS * PITCH; // elements
    static const int LEFT = 4 * PIECES + 4;    // numbers of a lane

    // Keys j0 .. j0 + KEYS, then their values; rows that there are not are 0.
    template <class P>
    static FN void
    fetch(const P &p, s64 j0, bool fast, T *to)
    {
#pragma unroll 4
        for (int i = threadIdx.x % THREADS; i < KEYS * PIECES; i += THREADS) {
            const int row = i / PIECES, e = i % PIECES * 8;
            const s64 j = j0 + row;
            T *k = to + row * PITCH + e, *v = k + KEYS * PITCH;
            if (j >= p.keys()) {
                *(uint4 *)k = make_uint4(0, 0, 0, 0);
                *(uint4 *)v = make_uint4(0, 0, 0, 0);
            } else if (fast) {
                copy_async(k, p.key(j) + e);
                copy_async(v, p.value(j) + e);
            } else {
                *(uint4 *)k = stream_halves(p.key(j) + e);
                *(uint4 *)v = stream_halves(p.value(j) + e);
            }
        }
        close_group();
    }

    static FN u32
    pair(const T *x)
    {
        return x[0].bits | (u32)x[1].bits << 16;
    }

    // Keys that a block has to see: with `causal` none behind its last query,
    // if all are of one head.
    template <class P>
    static FN s64
    seen(const P &p, int queries)
    {
        const s64 last = p.row(queries - 1) + 1;
        const bool few = p.causal() && p.head(0) == p.head(queries - 1);
        return few && last < p.keys() ? last : p.keys();
    }

    // Scores of KEYS keys, and what their highest ones are.
    template <class P>
    static FN void
    scores(const P &p, const T *k, s64 j0, const u32 (&q)[STEPS][4],
           const int (&mine)[2], float (&s)[KEYS / 8][4], float (&high)[2])
    {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = 0;
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                u32 b[4];
                load_matrices(b, k + (j * 16 + lane / 16 * 8 + lane % 8) * PITCH +
                                     i * 16 + lane / 8 % 2 * 8);
                multiply(s[2 * j], q[i][0], q[i][1], q[i][2], q[i][3], b[0],
                         b[1], T());
                multiply(s[2 * j + 1], q[i][0], q[i][1], q[i][2], q[i][3], b[2],
                         b[3], T());
            }
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int n = mine[e / 2];
                const s64 key = j0 + j * 8 + lane % 4 * 2 + e % 2;
                float m = -infinity();
                if (key < p.keys() && !(p.causal() && key > p.row(n)))
                    m = p.mask(n, key);
                s[j][e] = m == -infinity() ? m
                                           : __fmaf_rn(s[j][e], p.scale(), m);
                high[e / 2] = fmaxf(high[e / 2], s[j][e]);
            }
    }

    // acc += softmax's numerators * values.
    static FN void
    weigh(const T *v, float (&s)[KEYS / 8][4], float (&acc)[PIECES][4])
    {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) {
            u32 a[4], low[4];
#pragma unroll
            for (int h = 0; h < 4; h++) {
                const float x = s[2 * i + h / 2][h % 2 * 2];
                const float y = s[2 * i + h / 2][h % 2 * 2 + 1];
                float fx, fy;
                a[h] = pack(x, y, T());
                unpack(a[h], fx, fy, T());
                low[h] = pack(x - fx, y - fy, T());
            }
#pragma unroll
            for (int c = 0; c < STEPS; c++) {
                u32 b[4];
                load_turned(b, v + (i * 16 + lane % 16) * PITCH + c * 16 +
                                   lane / 16 * 8);
                multiply(acc[2 * c], a[0], a[1], a[2], a[3], b[0], b[1], T());
                multiply(acc[2 * c], low[0], low[1], low[2], low[3], b[0], b[1],
                         T());
                multiply(acc[2 * c + 1], a[0], a[1], a[2], a[3], b[2], b[3],
                         T());
                multiply(acc[2 * c + 1], low[0], low[1], low[2], low[3], b[2],
                         b[3], T());
            }
        }
    }

    // The sums with KEYS keys more.
    template <class P>
    static FN void
    take(const P &p, const T *stage, s64 j0, const u32 (&q)[STEPS][4],
         const int (&mine)[2], float (&top)[2], float (&all)[2],
         float (&acc)[PIECES][4])
    {
        const float LOG2E = 1.44269504f;
        float s[KEYS / 8][4], high[2] = {top[0], top[1]};
        scores(p, stage, j0, q, mine, s, high);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 1));
            high[r] = fmaxf(high[r], __shfl_xor_sync(~0u, high[r], 2));
            const float base = high[r] == -infinity() ? 0.f : high[r];
            const float f = exp2f((top[r] - base) * LOG2E);
            top[r] = high[r];
            all[r] *= f;
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
                acc[c][2 * r] *= f;
                acc[c][2 * r + 1] *= f;
            }
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++) {
                    s[j][e] = exp2f((s[j][e] - base) * LOG2E);
                    all[r] += s[j][e];
                }
        }
        weigh(stage + KEYS * PITCH, s, acc);
    }

    template <class P>
    static FN void
    run(const P &p, int queries)
    {
        extern __shared__ __align__(16) u16 room[];
        const int group = threadIdx.x / THREADS;
        T *const own = (T *)room + group * 2 * STAGE;
        T *stage[2] = {own, own + STAGE};
        const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 % WARPS;
        const int first = warp * 16 + lane / 4;
        const int mine[2] = {first, first + 8};
        float acc[PIECES][4] = {}, top[2] = {-infinity(), -infinity()};
        float all[2] = {};
        u32 q[STEPS][4];

        release();
        await();
        const bool fast = p.key_fast();
        const s64 end = seen(p, queries);
        fetch(p, group * KEYS, fast, stage[0]);
#pragma unroll
        for (int i = 0; i < STEPS; i++)
#pragma unroll
            for (int h = 0; h < 4; h++)
                q[i][h] = pair(p.query(mine[h % 2]) + i * 16 + h / 2 * 8 +
                               lane % 4 * 2);
        int at = 0;
        for (s64 r0 = 0; r0 < end; r0 += SPLITS * KEYS, at ^= 1) {
            const s64 j0 = r0 + group * KEYS, next = j0 + SPLITS * KEYS;
            if (next < end)
                fetch(p, next, fast, stage[at ^ 1]);
            else
                close_group();
            arrived<1>();
            __syncthreads();
            if (j0 < end) // of the last keys not every group has some
                take(p, stage[at], j0, q, mine, top, all, acc);
            __syncthreads(); // the stage is filled again
        }
        if (SPLITS > 1 && !gather((float *)room, acc, top, all))
            return;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            all[r] += __shfl_xor_sync(~0u, all[r], 1);
            all[r] += __shfl_xor_sync(~0u, all[r], 2);
            leave(p, queries, mine[r], r, acc, top[r], all[r]);
        }
    }

    // What all groups have, in the first one; the others: false.
    static FN bool
    gather(float *room, float (&acc)[PIECES][4], float (&top)[2],
           float (&all)[2])
    {
        const float LOG2E = 1.44269504f;
        const int group = threadIdx.x / THREADS, lane = threadIdx.x % THREADS;
        float *mine = room + (group - 1) * LEFT * THREADS + lane;
        if (group > 0) {
#pragma unroll
            for (int i = 0; i < 4 * PIECES; i++)
                mine[i * THREADS] = acc[i / 4][i % 4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                mine[(4 * PIECES + r) * THREADS] = top[r];
                mine[(4 * PIECES + 2 + r) * THREADS] = all[r];
            }
        }
        __syncthreads();
        if (group > 0)
            return false;
#pragma unroll
        for (int g = 1; g < SPLITS; g++) {
            const float *theirs = room + (g - 1) * LEFT * THREADS + lane;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float other = theirs[(4 * PIECES + r) * THREADS];
                const float high = fmaxf(top[r], other);
                const float base = high == -infinity() ? 0.f : high;
                const float f = exp2f((top[r] - base) * LOG2E);
                const float h = exp2f((other - base) * LOG2E);
                top[r] = high;
                all[r] = all[r] * f +
                         theirs[(4 * PIECES + 2 + r) * THREADS] * h;
#pragma unroll
                for (int i = 0; i < 2 * PIECES; i++) {
                    const int k = i / 2 * 4 + 2 * r + i % 2;
                    float &mine = acc[i / 2][2 * r + i % 2];
                    mine = mine * f + theirs[k * THREADS] * h;
                }
            }
        }
        return true;
    }

    // Row r of what the lane has.
    template <class P>
    static FN void
    leave(const P &p, int queries, int n, int r, const float (&acc)[PIECES][4],
          float top, float all)
    {
        const int lane = threadIdx.x & 31;
        if (n >= queries)
            return;
        const float f = all == 0 ? 0.f : 1 / all; // no key seen: 0, as in ATen
        T *y = p.out(n) + lane % 4 * 2;
        const bool whole = ((u64)y & 3) == 0;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            const float a = acc[c][2 * r] * f, b = acc[c][2 * r + 1] * f;
            if (whole) {
                *(u32 *)(y + c * 8) = pack(a, b, T());
            } else {
                put(y + c * 8, a);
                put(y + c * 8 + 1, b);
            }
        }
        if (lane % 4 == 0 && p.sum(n))
            *p.sum(n) = all == 0 ? 0.f : top + logf(all);
    }
};
