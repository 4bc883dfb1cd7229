// wide.cuh: y[m, n] = sum over k of x[m, k] w[n, k] of many rows of x, with w as
// integers of 8 or 4 bits (words.cuh), on the matrix units.
//
// A block has 128 rows of w and TM rows of x. Both come to shared memory as they
// lie, 64 numbers of each row at a time, several stages ahead. Integers become
// numbers of T in registers, 64 rows of w for each half of the block, and are
// multiplied with all rows of x there. PARTS blocks, a cluster, share the sums
// over k of one tile of y.
//
// SUMS: integers are multiplied as they are, factors are of the sums of a group,
// in float; else they are of the integers, and w is rounded to T. Where each row
// has one scale and nothing is added, `out` applies it.
template <class T, int TM, int K, int PARTS, int STAGES, class W, bool SUMS,
          bool ASYNC>
struct wide {
    typedef typename W::pointer pointer;
    typedef group<ASYNC> G;
    static const int TN = 128, STEP = 64, THREADS = 256;
    static const int COLS = TM < 64 ? TM : 64, BLOCKS = TM / COLS;
    static const int BITS = W::BIT_COUNT, GROUP = W::GROUP_SIZE;
    static const bool GROUPED = W::SPLIT > 0;
    // Groups of a step, at least one.
    static const int PIECES = GROUP == K || GROUP % 64 == 0 ? 1
                              : GROUP % 32 == 0             ? 2
                                                            : 4;
    static const int SLICES = 4 / PIECES; // products of a group
    static const int X_BYTES = TM * 128;
    static const int ROW = STEP * BITS / 8;
    static const int PITCH = ROW + 16; // no two rows share a bank
    static const int STAGE = X_BYTES + TN * PITCH;
    static const int AHEAD = STAGES - 2; // two are read
    static const int STEPS = (K + STEP - 1) / STEP;
    static const int FAR = 512; // numbers: how early L2 is asked for factors
    static const int LINE = TN + 4;
    static_assert(STAGE % 1024 == 0, "a tile of x begins at such a place");
    static_assert(STAGES * STAGE >= TM * LINE * 4, "results fit");

    struct factors {
        typename W::factors of[PIECES][2];
    };

    // AGAIN: the next steps read what lies behind it.
    template <bool FAST, bool AGAIN>
    static FN void
    put16(char *to, const void *from, bool in)
    {
        if (!in)
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
        else if constexpr (FAST && AGAIN)
            copy_async_line(to, from);
        else if constexpr (FAST)
            copy_async(to, from);
        else
            *(uint4 *)to = W::stream_bytes((const u8 *)from);
    }

    // The pieces of 16 bytes that a thread copies next, and where they come to lie
    // in a stage. Its rows are so far apart that all are spread alike.
    static const int EACH = ROW / 16; // of a row of w
    static const int XS = (TM * 8 + THREADS - 1) / THREADS;
    static const int WS = TN * EACH / THREADS;
    struct sources {
        const T *x[XS];
        const u8 *w[WS];
        int x_to, w_to;
    };

    template <class ROWS, class LINES>
    static FN sources
    find(const ROWS &row, const LINES &x, int k0)
    {
        const u32 i = threadIdx.x;
        sources s;
#pragma unroll
        for (int j = 0; j < XS; j++)
            s.x[j] = x(TM < 32 ? i / 8 % TM : i / 8 + j * (THREADS / 8)) +
                     i % 8 * 8 + k0;
#pragma unroll
        for (int j = 0; j < WS; j++)
            s.w[j] = row(i / EACH + j * (THREADS / EACH)).w + i % EACH * 16 +
                     k0 / 8 * BITS;
        s.x_to = spread(i / 8, i % 8);
        s.w_to = X_BYTES + i / EACH * PITCH + i % EACH * 16;
        return s;
    }

    template <bool FAST>
    static FN void
    fetch_w(char *stage, sources &s, int k0)
    {
        const int k = k0 + threadIdx.x % EACH * (128 / BITS);
        const bool in = K % STEP == 0 || k < K;
#pragma unroll
        for (int j = 0; j < WS; j++) {
            put16<FAST, true>(stage + s.w_to + j * (THREADS / EACH) * PITCH,
                              s.w[j], in);
            s.w[j] += ROW;
        }
    }

    template <bool FAST>
    static FN void
    fetch_x(char *stage, sources &s, int k0)
    {
        const bool in = K % STEP == 0 || k0 + (int)threadIdx.x % 8 * 8 < K;
        if (TM < 32 && threadIdx.x >= TM * 8)
            return;
#pragma unroll
        for (int j = 0; j < XS; j++) {
            put16<FAST, false>(stage + s.x_to + j * (THREADS / 8) * 128, s.x[j],
                               in);
            s.x[j] += STEP;
        }
    }

    // Of the two rows of w that a lane's numbers are of.
    static FN void
    look(factors &to, const pointer (&rows)[2], int k0)
    {
        if constexpr (GROUPED)
#pragma unroll
            for (int i = 0; i < 2 * PIECES; i++) {
                const int k = k0 + i / 2 * (STEP / PIECES);
                const int at = (K % STEP == 0 || k < K ? k : K - 1) / GROUP;
                to.of[i / 2][i % 2] = W::factors_of(rows[i % 2], at);
            }
    }

    // L2 asks memory for them, a sector at a time.
    static FN void
    look_far(const pointer (&rows)[2], int k0)
    {
        const int k = k0 + FAR, t = threadIdx.x & 3, at = k / GROUP;
        if (GROUPED && t < 2 && k < K && at % 8 < PIECES && k % GROUP < STEP)
            W::ask_factors(t == 0 ? rows[0].scale : rows[1].scale,
                           t == 0 ? rows[0].zero : rows[1].zero, at);
    }

    // The integers of a step that a lane multiplies, as they lie: waiting for all
    // of them at once takes as long as for some.
    static FN void
    take(u32 (&raw)[4][4], const u8 *w)
    {
#pragma unroll
        for (int i = 0; i < 16; i++)
            raw[i / 4][i % 4] =
                W::two(w + i % 2 * 8 * PITCH + (i / 4 * 2 + i / 2 % 2) * BITS);
    }

    // Those of slice j as numbers.
    static FN void
    make(u32 (&a)[4], const u32 (&raw)[4], int j, const factors &f)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = W::widen(raw[i]);
            if constexpr (GROUPED && !SUMS)
                a[i] = W::of(a[i], f.of[j / SLICES][i % 2]);
        }
    }

    // A step whose sums are those of the result.
    static FN void
    add(float (&c)[BLOCKS][COLS / 8][4], const char *x, const u8 *w,
        const factors &f)
    {
        u32 raw[4][4], a[4][4];
        take(raw, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            G::template wait<3>();
            make(a[j], raw[j], j, f);
            G::open();
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                G::template multiply<1>(c[b], a[j], x + b * COLS * 128, j, T());
            G::close();
        }
    }

    static FN void
    weigh(float (&c)[COLS / 8][4], const float (&sum)[COLS / 8][4],
          float of_a, float of_b)
    {
#pragma unroll
        for (int i = 0; i < COLS / 2; i++)
            c[i / 4][i % 4] = __fmaf_rn(i / 2 % 2 ? of_b : of_a,
                                        sum[i / 4][i % 4], c[i / 4][i % 4]);
    }

    // One where sums of groups are weighed.
    static FN void
    add_sums(float (&c)[COLS / 8][4], const char *x, const u8 *w,
             const factors &f)
    {
        const u32 ones[4] = {W::ONES, W::ONES, W::ONES, W::ONES};
        float sum[2][COLS / 8][4], of_x[2][COLS / 8][4];
        u32 raw[4][4], a[4][4];
        take(raw, w);
#pragma unroll
        for (int q = 0; q <= PIECES; q++) {
            if (q < PIECES) {
#pragma unroll
                for (int j = q * SLICES; j < (q + 1) * SLICES; j++)
                    make(a[j], raw[j], j, f);
                G::open();
#pragma unroll
                for (int j = q * SLICES; j < (q + 1) * SLICES; j++) {
                    if (j == q * SLICES)
                        G::template multiply<0>(sum[q % 2], a[j], x, j, T());
                    else
                        G::template multiply<1>(sum[q % 2], a[j], x, j, T());
                    if constexpr (!W::ZERO)
                        continue;
                    if (j == q * SLICES)
                        G::template multiply<0>(of_x[q % 2], ones, x, j, T());
                    else
                        G::template multiply<1>(of_x[q % 2], ones, x, j, T());
                }
                G::close();
            }
            if (q == 0)
                continue;
            if (q < PIECES)
                G::template wait<1>();
            else
                G::template wait<0>();
            G::hold(sum[(q - 1) % 2]);
            weigh(c, sum[(q - 1) % 2], (float)get(f.of[q - 1][0].scale),
                  (float)get(f.of[q - 1][1].scale));
            if constexpr (W::ZERO) {
                G::hold(of_x[(q - 1) % 2]);
                weigh(c, of_x[(q - 1) % 2], (float)get(f.of[q - 1][0].zero),
                      (float)get(f.of[q - 1][1].zero));
            }
        }
    }

    // ROWS   W::pointer row(n): of the tile, n < TN
    // XS     const T *x(m): of the tile, m < TM
    // FAST   whether all of these are 16-byte aligned
    // OUT    void out(m, n, sum)
    template <class ROWS, class XS, class OUT>
    static FN void
    run(bool fast, const ROWS &row, const XS &xs, const OUT &out)
    {
        if (fast)
            walk<true>(row, xs, out);
        else
            walk<false>(row, xs, out);
    }

    template <bool FAST, class ROWS, class XS, class OUT>
    static FN void
    walk(const ROWS &row, const XS &xs, const OUT &out)
    {
        extern __shared__ __align__(1024) char room[];
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int mine = warp * 16 + lane / 4;
        const int part = blockIdx.x % PARTS;
        const int first = STEPS * part / PARTS;
        const int end = STEPS * (part + 1) / PARTS;
        const pointer rows[2] = {row(mine), row(mine + 8)};
        const u8 *const w0 = (const u8 *)room + X_BYTES + mine * PITCH +
                             lane % 4 * (BITS / 4);
        float c[BLOCKS][COLS / 8][4] = {};
        sources from = find(row, xs, first * STEP);
        factors now, next;

        release();
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++)
            if (first + i < end)
                fetch_w<FAST>(room + i * STAGE, from, (first + i) * STEP);
        await();
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++) {
            if (first + i < end)
                fetch_x<FAST>(room + i * STAGE, from, (first + i) * STEP);
            close_group();
        }
        look(next, rows, first * STEP);
        int at = 0, to = AHEAD;
#pragma unroll 1
        for (int i = first; i < end; i++) {
            now = next;
            arrived<AHEAD - 1>();
            if constexpr (ASYNC)
                publish();
            __syncthreads();
            if (i + AHEAD < end) {
                fetch_w<FAST>(room + to * STAGE, from, (i + AHEAD) * STEP);
                fetch_x<FAST>(room + to * STAGE, from, (i + AHEAD) * STEP);
            }
            close_group();
            if (i + 1 < end)
                look(next, rows, (i + 1) * STEP);
            look_far(rows, i * STEP);
            if constexpr (GROUPED && SUMS)
                add_sums(c[0], room + at * STAGE, w0 + at * STAGE, now);
            else
                add(c, room + at * STAGE, w0 + at * STAGE, now);
            at = at + 1 < STAGES ? at + 1 : 0;
            to = to + 1 < STAGES ? to + 1 : 0;
        }
        G::template wait<0>();
        arrived<0>();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            G::hold(c[b]);
        __syncthreads();
        give((float *)room, c, mine, part, out);
    }

    // The place of p in the shared memory of block `rank` of the cluster.
    static FN const float *
    elsewhere(const float *p, int rank)
    {
        const float *there;
        asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
        return there;
    }

    static FN void
    meet()
    {
        if constexpr (PARTS == 1) {
            __syncthreads();
        } else {
            asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
            asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        }
    }

    // Sums lie in shared memory; each block of the cluster puts some rows together.
    template <class OUT>
    static FN void
    give(float *room, const float (&c)[BLOCKS][COLS / 8][4], int mine, int part,
         const OUT &out)
    {
        const int t = threadIdx.x & 3;
#pragma unroll
        for (int i = 0; i < TM / 2; i++) {
            const int b = i / (COLS / 2), j = i % (COLS / 2) / 4, e = i % 4;
            room[(b * COLS + j * 8 + t * 2 + e % 2) * LINE + mine + e / 2 * 8] =
                c[b][j][e];
        }
        meet();
        const int end = TM * (part + 1) / PARTS * TN;
        for (int i = TM * part / PARTS * TN + threadIdx.x; i < end; i += THREADS) {
            const float *const p = room + i / TN * LINE + i % TN;
            float y = *p;
            if constexpr (PARTS > 1) {
                y = 0;
#pragma unroll
                for (int r = 0; r < PARTS; r++)
                    y += *elsewhere(p, r);
            }
            out(i / TN, i % TN, y);
        }
        if constexpr (PARTS > 1)
            meet();
    }
};
