// wide.cuh: y[m, n] = sum over k of x[m, k] w[n, k] of many rows of x, with w as
// integers of 8 or 4 bits (words.cuh), on the matrix units.
//
// A block has 128 rows of w and TM rows of x. Both come to shared memory, STEP
// numbers of each row at a time, several stages ahead. Integers become numbers of T
// in registers, 64 rows of w for each half of the block, and are multiplied with all
// rows of x there. PARTS blocks, a cluster, share the sums over k of one tile of y.
//
// CHUNKS: as the order in which a sum over k is taken is free, a lane has 16
// neighbours of its rows of w, a chunk, which it loads at once; x lies in shared
// memory in that order, by copies of 4 bytes, which many rows of x are too many for.
// Else x lies there as in memory, and a lane loads of w two numbers at a time.
//
// SUMS: integers are multiplied as they are, factors are of the sums of a group,
// in float; else they are of the integers, and w is rounded to T. Where each row
// has one scale and nothing is added, `out` applies it.
//
// EARLY: the next kernel may begin at once, else when the sums are there.
template <class T, int TM, int STEP, int K, int PARTS, int STAGES, class W, bool CHUNKS,
          bool SUMS, bool EARLY, bool ASYNC>
struct wide {
    typedef typename W::pointer pointer;
    typedef group<ASYNC> G;
    static const int TN = 128, THREADS = 256;
    static const int COLS = ASYNC || TM < 64 ? TM : 64, BLOCKS = TM / COLS;
    static const int BITS = W::BIT_COUNT, GROUP = W::GROUP_SIZE;
    static const bool GROUPED = W::SPLIT > 0;
    static const int PART = 64; // numbers of a step that are multiplied together
    // Groups of a lane's numbers of a part.
    static const int PIECES = CHUNKS || GROUP == K || GROUP % 64 == 0 ? 1
                              : GROUP % 32 == 0                       ? 2
                                                                      : 4;
    static const int SLICES = 4 / PIECES; // products of a group
    static const int X_PART = TM * 128, X_BYTES = STEP / PART * X_PART;
    static const int ROW = STEP * BITS / 8, LINE4 = PART * BITS / 8;
    static const int PITCH = CHUNKS ? ROW : ROW + 16;
    static const int SLOTS = CHUNKS ? (ROW < 128 ? ROW : 128) / LINE4 : 1;
    static const int STAGE = X_BYTES + TN * PITCH;
    static const int AHEAD = STAGES - 2; // two are read
    static const int STEPS = (K + STEP - 1) / STEP;
    static const int FAR = 512; // numbers: how early L2 is asked for factors
    static const int LINE = TN + 4;
    static_assert(STAGE % 1024 == 0, "a tile of x begins at such a place");
    static_assert(STAGES * STAGE >= TM * LINE * 4, "results fit");
    static_assert(!(CHUNKS && SUMS), "a chunk is of all products of a part");

    struct factors {
        typename W::factors of[PIECES][2];
    };

    // Where byte `at` of a row of w lies, so that what lanes read together shares no
    // bank: 16 bytes behind the row before, or chunks of four lanes exchanged.
    static FN int
    place_w(int row, int at)
    {
        const int by = ROW % 128 == 0 ? row : row / 2;
        return X_BYTES + row * PITCH + (at ^ by % SLOTS * LINE4);
    }

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

    // Two numbers of x.
    template <bool FAST>
    static FN void
    put4(char *to, const u8 *from, bool in)
    {
        if (!in)
            *(u32 *)to = 0;
        else if constexpr (FAST)
            copy_async_word(to, from);
        else
            *(u32 *)to = ((const u16 *)from)[0] | (u32)((const u16 *)from)[1] << 16;
    }

    // What a thread copies of a step, and where it comes to lie in a stage: of w
    // pieces of 16 bytes, of x those of 4 or 16.
    static const int W_EACH = ROW / 16, W_ROWS = THREADS / W_EACH;
    static const int X_SIZE = CHUNKS ? 4 : 16, X_EACH = STEP * 2 / X_SIZE;
    static const int X_ROWS = THREADS / X_EACH;
    static const int WS = TN / W_ROWS, XS = (TM + X_ROWS - 1) / X_ROWS;
    // Of chunks there are so many copies of x that where they come from is
    // computed, else those of the next step are kept.
    static const int KEPT = CHUNKS ? 1 : XS;
    struct sources {
        const u8 *x[KEPT], *w[WS];
        int x_to, w_to;
    };

    // Where piece i of a row of x lies. Two numbers of a chunk, the lane's in two
    // instructions' halves of k, are word i / 8 of one of 8 pieces of 16 bytes.
    static FN int
    place_x(int m, int i)
    {
        if constexpr (CHUNKS)
            return i / 32 * X_PART + spread(m, i % 8) + i % 32 / 8 * 4;
        return i / 8 * X_PART + spread(m, i % 8);
    }

    template <class ROWS, class LINES>
    static FN sources
    find(const ROWS &row, const LINES &x, int k0)
    {
        const int i = threadIdx.x, m = i / X_EACH, n = i / W_EACH;
        sources s;
#pragma unroll
        for (int j = 0; j < KEPT; j++)
            s.x[j] = (const u8 *)(x((m + j * X_ROWS) % TM) + k0) +
                     i % X_EACH * X_SIZE;
#pragma unroll
        for (int j = 0; j < WS; j++)
            s.w[j] = row(n + j * W_ROWS).w + i % W_EACH * 16 + k0 / 8 * BITS;
        s.x_to = place_x(m, i % X_EACH);
        s.w_to = place_w(n, i % W_EACH * 16);
        return s;
    }

    template <bool FAST>
    static FN void
    fetch_w(char *stage, sources &s, int k0)
    {
        const int k = k0 + threadIdx.x % W_EACH * (128 / BITS);
        const bool in = K % STEP == 0 || k < K;
#pragma unroll
        for (int j = 0; j < WS; j++) {
            put16<FAST, true>(stage + s.w_to + j * W_ROWS * PITCH, s.w[j], in);
            s.w[j] += ROW;
        }
    }

    template <bool FAST, class LINES>
    static FN void
    fetch_x(char *stage, sources &s, const LINES &x, int k0)
    {
        const int m = threadIdx.x / X_EACH;
        const int k = k0 + threadIdx.x % X_EACH * (X_SIZE / 2);
        const bool in = K % STEP == 0 || k < K;
        if (TM % X_ROWS != 0 && m >= TM)
            return;
#pragma unroll
        for (int j = 0; j < XS; j++) {
            char *const to = stage + j * X_ROWS * 128 +
                             (s.x_to ^ j * X_ROWS % 8 * 16); // as `spread` does
            if constexpr (CHUNKS) {
                put4<FAST>(to, (const u8 *)(x(m + j * X_ROWS) + k), in);
            } else {
                put16<FAST, false>(to, s.x[j], in);
                s.x[j] += STEP * 2;
            }
        }
    }

    // Of the two rows of w that a lane's numbers are of.
    static FN void
    look(factors &to, const pointer (&rows)[2], int k0)
    {
        if constexpr (GROUPED)
#pragma unroll
            for (int i = 0; i < 2 * PIECES; i++) {
                const int k = k0 + i / 2 * (PART / PIECES) +
                              (CHUNKS ? threadIdx.x % 4 * (PART / 4) : 0);
                const int at = (K % STEP == 0 || k < K ? k : K - 1) / GROUP;
                to.of[i / 2][i % 2] = W::factors_of(rows[i % 2], at);
            }
    }

    // L2 asks memory for them, a sector at a time.
    static FN void
    look_far(const pointer (&rows)[2], int k0)
    {
        const int k = k0 + FAR, t = threadIdx.x & 3, at = k / GROUP;
        if (GROUPED && t < 2 && k < K && at % 8 < PIECES && k % GROUP < PART)
            W::ask_factors(t == 0 ? rows[0].scale : rows[1].scale,
                           t == 0 ? rows[0].zero : rows[1].zero, at);
    }

    // The integers of a part that a lane multiplies, as they lie: waiting for all of
    // them at once takes as long as for some. w: the part, of the lane's first row.
    struct integers {
        u32 of[CHUNKS ? 2 : 4][CHUNKS ? BITS / 2 : 4];
    };

    static FN void
    take(integers &to, const u8 *w)
    {
        const int t = threadIdx.x & 3;
        if constexpr (CHUNKS)
#pragma unroll
            for (int r = 0; r < 2; r++)
                W::chunk(to.of[r], w + r * 8 * PITCH + t * (2 * BITS));
        else
#pragma unroll
            for (int i = 0; i < 16; i++)
                to.of[i / 4][i % 4] =
                    W::two(w + i % 2 * 8 * PITCH + t * (BITS / 4) +
                           (i / 4 * 2 + i / 2 % 2) * BITS);
    }

    // Those of slice j as numbers: of rows 0 and 1, of both halves of k.
    static FN void
    make(u32 (&a)[4], const integers &from, int j, const factors &f)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (CHUNKS)
                a[i] = W::pair(from.of[i % 2], 2 * j + i / 2);
            else
                a[i] = W::widen(from.of[j][i]);
            if constexpr (GROUPED && !SUMS)
                a[i] = W::of(a[i], f.of[j / SLICES][i % 2]);
        }
    }

    // A part whose sums are those of the result.
    static FN void
    add(float (&c)[BLOCKS][COLS / 8][4], const char *x, const u8 *w,
        const factors &f)
    {
        integers from;
        u32 a[4][4];
        take(from, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            G::template wait<3>();
            make(a[j], from, j, f);
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
        integers from;
        u32 a[4][4];
        take(from, w);
#pragma unroll
        for (int q = 0; q <= PIECES; q++) {
            if (q < PIECES) {
#pragma unroll
                for (int j = q * SLICES; j < (q + 1) * SLICES; j++)
                    make(a[j], from, j, f);
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
        const u8 *const room_w = (const u8 *)room;
        float c[BLOCKS][COLS / 8][4] = {};
        sources from = find(row, xs, first * STEP);
        factors now, next;

        if constexpr (EARLY)
            release();
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++)
            if (first + i < end)
                fetch_w<FAST>(room + i * STAGE, from, (first + i) * STEP);
        await();
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++) {
            if (first + i < end)
                fetch_x<FAST>(room + i * STAGE, from, xs, (first + i) * STEP);
            close_group();
        }
        look(next, rows, first * STEP);
        // What else writes them makes the compiler wait for each product.
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            G::hold(c[b]);
        int at = 0, to = AHEAD;
#pragma unroll 1
        for (int i = first; i < end; i++) {
            arrived<AHEAD - 1>();
            if constexpr (ASYNC)
                publish();
            __syncthreads();
            if (i + AHEAD < end) {
                const int k = (i + AHEAD) * STEP;
                fetch_w<FAST>(room + to * STAGE, from, k);
                fetch_x<FAST>(room + to * STAGE, from, xs, k);
            }
            close_group();
#pragma unroll
            for (int k = i * STEP; k < i * STEP + STEP; k += PART) {
                const int p = (k - i * STEP) / PART;
                now = next;
                if (k + PART < end * STEP)
                    look(next, rows, k + PART);
                look_far(rows, k);
                const char *const x = room + at * STAGE + p * X_PART;
                const u8 *const w =
                    room_w + at * STAGE + place_w(mine, p * LINE4);
                if constexpr (GROUPED && SUMS)
                    add_sums(c[0], x, w, now);
                else
                    add(c, x, w, now);
            }
            at = at + 1 < STAGES ? at + 1 : 0;
            to = to + 1 < STAGES ? to + 1 : 0;
        }
        if constexpr (!EARLY)
            release();
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
