// gemm.cuh: y[m, n] = sum over k of x[m, k] w[n, k], of any sizes and strides.
//
// Blocks of 256 threads take tiles of TM x TN; the next piece along k is on its
// way to registers while the one in shared memory is used. Operands are
//     const T *p; s64 row, k: strides; s64 rows; bool fast: 16-byte pieces
// and out(m, n, sum) takes a result.
template <class T>
struct operand {
    const T *p;
    s64 row, k, rows;
    bool fast;
};

FN float
madd(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

FN double
madd(double a, double b, double c)
{
    return __fma_rn(a, b, c);
}

// float and double, on the ordinary units; operands may be of another type.
template <class T, int TM, int TN, bool X_ALONG_K, bool W_ALONG_K>
struct plain_gemm {
    static const int PIECE = 16, PM = TM / 16, PN = TN / 16;
    static const int NX = TM * PIECE / 256, NW = TN * PIECE / 256;

    template <int TILE, bool ALONG_K, int COUNT, class F>
    static FN void
    fetch(const operand<F> &o, s64 row0, s64 k0, s64 K, T (&to)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int e = threadIdx.x + i * 256;
            const s64 row = row0 + (ALONG_K ? e / PIECE : e % TILE);
            const s64 k = k0 + (ALONG_K ? e % PIECE : e / TILE);
            to[i] = row < o.rows && k < K ? T(get(o.p[row * o.row + k * o.k])) : T(0);
        }
    }

    template <int TILE, bool ALONG_K, int COUNT>
    static FN void
    place(T (*to)[TILE + 4], const T (&from)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int e = threadIdx.x + i * 256;
            to[ALONG_K ? e % PIECE : e / TILE][ALONG_K ? e / PIECE : e % TILE] =
                from[i];
        }
    }

    template <class X, class OUT>
    static FN void
    run(const operand<X> &x, const operand<T> &w, s64 K, OUT out)
    {
        __shared__ __align__(16) T xs[2][PIECE][TM + 4];
        __shared__ __align__(16) T ws[2][PIECE][TN + 4];
        const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
        const s64 m0 = (s64)blockIdx.x * TM, n0 = (s64)blockIdx.y * TN;
        T c[PM][PN] = {}, rx[NX], rw[NW];

        release();
        await();
        fetch<TM, X_ALONG_K>(x, m0, 0, K, rx);
        fetch<TN, W_ALONG_K>(w, n0, 0, K, rw);
        place<TM, X_ALONG_K>(xs[0], rx);
        place<TN, W_ALONG_K>(ws[0], rw);
        __syncthreads();
        int at = 0;
        for (s64 k0 = 0; k0 < K; k0 += PIECE, at ^= 1) {
            const bool more = k0 + PIECE < K;
            if (more) {
                fetch<TM, X_ALONG_K>(x, m0, k0 + PIECE, K, rx);
                fetch<TN, W_ALONG_K>(w, n0, k0 + PIECE, K, rw);
            }
#pragma unroll
            for (int k = 0; k < PIECE; k++) {
                T a[PM], b[PN];
#pragma unroll
                for (int i = 0; i < PM; i++)
                    a[i] = xs[at][k][ty * PM + i];
#pragma unroll
                for (int j = 0; j < PN; j++)
                    b[j] = ws[at][k][tx * PN + j];
#pragma unroll
                for (int i = 0; i < PM; i++)
#pragma unroll
                    for (int j = 0; j < PN; j++)
                        c[i][j] = madd(a[i], b[j], c[i][j]);
            }
            if (more) {
                place<TM, X_ALONG_K>(xs[at ^ 1], rx);
                place<TN, W_ALONG_K>(ws[at ^ 1], rw);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < PM; i++)
#pragma unroll
            for (int j = 0; j < PN; j++) {
                const s64 m = m0 + ty * PM + i, n = n0 + tx * PN + j;
                if (m < x.rows && n < w.rows)
                    out(m, n, c[i][j]);
            }
    }
};

// bfloat16 and half, on the matrix units; 2 x 4 warps share a tile.
template <class T, int TM, int TN, bool X_ALONG_K, bool W_ALONG_K>
struct matrix_gemm {
    static const int PIECE = 32, PITCH = PIECE + 8; // no two rows share a bank
    static const int MS = TM / 32, NS = TN / 64;    // 16 x 16 parts of a warp
    static const int NX = TM * PIECE / 8 / 256, NW = TN * PIECE / 8 / 256;

    // 8 neighbours: along k, or along the rows.
    template <int TILE, bool ALONG_K, int COUNT>
    static FN void
    fetch(const operand<T> &o, s64 row0, s64 k0, s64 K, uint4 (&to)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int e = threadIdx.x + i * 256;
            const s64 row = row0 + (ALONG_K ? e / 4 : e % (TILE / 8) * 8);
            const s64 k = k0 + (ALONG_K ? e % 4 * 8 : e / (TILE / 8));
            const bool whole = ALONG_K ? row < o.rows && k + 8 <= K
                                       : row + 8 <= o.rows && k < K;
            const T *p = o.p + row * o.row + k * o.k;
            if (whole && o.fast) {
                to[i] = *(const uint4 *)p;
                continue;
            }
            u32 w[4] = {};
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const bool in = ALONG_K ? row < o.rows && k + j < K
                                        : row + j < o.rows && k < K;
                if (in)
                    w[j / 2] |= (u32)p[j * (ALONG_K ? o.k : o.row)].bits
                                << j % 2 * 16;
            }
            to[i] = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }

    template <int TILE, bool ALONG_K, int COUNT>
    static FN void
    place(T (*to)[PITCH], const uint4 (&from)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int e = threadIdx.x + i * 256;
            if (ALONG_K) {
                *(uint4 *)&to[e / 4][e % 4 * 8] = from[i];
                continue;
            }
            const u32 w[4] = {from[i].x, from[i].y, from[i].z, from[i].w};
            const int row = e % (TILE / 8) * 8, k = e / (TILE / 8);
#pragma unroll
            for (int j = 0; j < 8; j++)
                to[row + j][k].bits = (u16)(w[j / 2] >> j % 2 * 16);
        }
    }

    template <class OUT>
    static FN void
    run(const operand<T> &x, const operand<T> &w, s64 K, OUT out)
    {
        __shared__ __align__(16) T xs[2][TM][PITCH];
        __shared__ __align__(16) T ws[2][TN][PITCH];
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int wm = warp / 4 * (TM / 2), wn = warp % 4 * (TN / 4);
        const s64 m0 = (s64)blockIdx.x * TM, n0 = (s64)blockIdx.y * TN;
        float c[MS][2 * NS][4] = {};
        uint4 rx[NX], rw[NW];

        release();
        await();
        fetch<TM, X_ALONG_K>(x, m0, 0, K, rx);
        fetch<TN, W_ALONG_K>(w, n0, 0, K, rw);
        place<TM, X_ALONG_K>(xs[0], rx);
        place<TN, W_ALONG_K>(ws[0], rw);
        __syncthreads();
        int at = 0;
        for (s64 k0 = 0; k0 < K; k0 += PIECE, at ^= 1) {
            const bool more = k0 + PIECE < K;
            if (more) {
                fetch<TM, X_ALONG_K>(x, m0, k0 + PIECE, K, rx);
                fetch<TN, W_ALONG_K>(w, n0, k0 + PIECE, K, rw);
            }
#pragma unroll
            for (int k = 0; k < PIECE; k += 16) {
                u32 a[MS][4], b[NS][4];
#pragma unroll
                for (int i = 0; i < MS; i++)
                    load_matrices(a[i], &xs[at][wm + i * 16 + lane % 16]
                                           [k + lane / 16 * 8]);
#pragma unroll
                for (int j = 0; j < NS; j++)
                    load_matrices(
                        b[j], &ws[at][wn + j * 16 + lane / 16 * 8 + lane % 8]
                                 [k + lane / 8 % 2 * 8]);
#pragma unroll
                for (int i = 0; i < MS; i++)
#pragma unroll
                    for (int j = 0; j < 2 * NS; j++)
                        multiply(c[i][j], a[i][0], a[i][1], a[i][2], a[i][3],
                                 b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1],
                                 T());
            }
            if (more) {
                place<TM, X_ALONG_K>(xs[at ^ 1], rx);
                place<TN, W_ALONG_K>(ws[at ^ 1], rw);
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < MS; i++)
#pragma unroll
            for (int j = 0; j < 2 * NS; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const s64 m = m0 + wm + i * 16 + lane / 4 + e / 2 * 8;
                    const s64 n = n0 + wn + j * 8 + lane % 4 * 2 + e % 2;
                    if (m < x.rows && n < w.rows)
                        out(m, n, c[i][j][e]);
                }
    }
};
