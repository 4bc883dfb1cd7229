// attend.cuh: softmax(q k^T * scale + mask) v for blocks of 32 queries: keys
// and values pass through shared memory 32 at a time, as float; a warp has 4
// queries, a lane one key of the scores and WIDTH / 32 elements of the results.
// The accessors of P are those of decode.cuh.
template <class T, int WIDTH>
struct attend {
    static const int KEYS = 32, ROWS = 4, QUERIES = 8 * ROWS;
    static const int PARTS = (WIDTH + 31) / 32;
    static const int PITCH = WIDTH + 1;
    static const int BYTES = (QUERIES * WIDTH + 2 * KEYS * PITCH) * 4;

    template <class P>
    static FN void
    run(const P &p, int queries)
    {
        extern __shared__ __align__(16) float room[];
        float *q = room, *k = q + QUERIES * WIDTH, *v = k + KEYS * PITCH;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int mine = warp * ROWS;
        float acc[ROWS][PARTS] = {}, top[ROWS], all[ROWS];

        release();
        await();
        for (int i = threadIdx.x; i < QUERIES * WIDTH; i += 256)
            q[i] = i / WIDTH < queries ? get(p.query(i / WIDTH)[i % WIDTH]) : 0.f;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            top[r] = -infinity();
            all[r] = 0;
        }
        for (s64 j0 = 0; j0 < p.keys(); j0 += KEYS) {
            __syncthreads();
            for (int i = threadIdx.x; i < KEYS * WIDTH; i += 256) {
                const s64 j = j0 + i / WIDTH;
                const int at = i / WIDTH * PITCH + i % WIDTH;
                k[at] = j < p.keys() ? get(p.key(j)[i % WIDTH]) : 0.f;
                v[at] = j < p.keys() ? get(p.value(j)[i % WIDTH]) : 0.f;
            }
            __syncthreads();
            block(p, queries, j0 + lane, mine, q, k + lane * PITCH, v, acc, top,
                  all);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int n = mine + r;
            if (n >= queries)
                continue;
#pragma unroll
            for (int i = 0; i < PARTS; i++)
                if (i * 32 + lane < WIDTH) // no key seen: 0, as in ATen
                    put(p.out(n) + i * 32 + lane,
                        all[r] == 0 ? 0.f : acc[r][i] / all[r]);
            if (lane == 0 && p.sum(n))
                *p.sum(n) = all[r] == 0 ? 0.f : top[r] + logf(all[r]);
        }
    }

    // This lane's key j, its row of k.
    template <class P>
    static FN void
    block(const P &p, int queries, s64 j, int mine, const float *q,
          const float *k, const float *v, float (&acc)[ROWS][PARTS],
          float (&top)[ROWS], float (&all)[ROWS])
    {
        const int lane = threadIdx.x & 31;
        float s[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            s[r] = 0;
#pragma unroll 8
        for (int e = 0; e < WIDTH; e++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                s[r] = __fmaf_rn(q[(mine + r) * WIDTH + e], k[e], s[r]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int n = mine + r;
            float m = -infinity();
            if (j < p.keys() && n < queries && !(p.causal() && j > p.row(n)))
                m = p.mask(n, j);
            s[r] = m == -infinity() ? m : __fmaf_rn(s[r], p.scale(), m);
            float high = s[r];
#pragma unroll
            for (int d = 16; d > 0; d /= 2)
                high = fmaxf(high, __shfl_xor_sync(~0u, high, d));
            high = fmaxf(high, top[r]);
            const float f = top[r] == high ? 1.f : expf(top[r] - high);
            top[r] = high;
            s[r] = s[r] == -infinity() ? 0.f : expf(s[r] - high);
            all[r] = all[r] * f + sum<32>(s[r]);
#pragma unroll
            for (int i = 0; i < PARTS; i++)
                acc[r][i] *= f;
        }
#pragma unroll 4
        for (int l = 0; l < KEYS; l++)
#pragma unroll
            for (int i = 0; i < PARTS; i++) {
                const float x = v[l * PITCH + (i * 32 + lane) % WIDTH];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float w = __shfl_sync(~0u, s[r], l);
                    // 0 * NaN of a row that nobody wrote yet
                    acc[r][i] =
                        w == 0.f ? acc[r][i] : __fmaf_rn(w, x, acc[r][i]);
                }
            }
    }
};
