// split.cuh: decode.cuh without clusters: SPLITS parts of the keys of a key
// head go to as many blocks, at most one to a block. Each leaves what it found in
// memory, and puts all parts together of its share of the elements. Numbers there
// are words with the mark of the phase beside them (as in cross.cuh), so that
// blocks wait for what they read only.
//
// Where the phase needs no memory of others it asks for keys and mask at once, and
// then waits for words only: queries, and the row that was just written to the cache.
//
// Where its results cross in parts (parts.cuh), who takes them puts parts together.
template <class Y>
struct in_parts {
    static const bool value = false;
};

struct no_row {
    FN void
    ask(int, int)
    {
    }

    FN bool
    is_missing() const
    {
        return false;
    }

    template <class X>
    FN void
    patch(X &, s64, int, int) const
    {
    }

    FN void
    find()
    {
    }

    template <class T>
    FN const T *
    key_of(const T *p, s64) const
    {
        return p;
    }

    template <class T>
    FN const T *
    value_of(const T *p, s64) const
    {
        return p;
    }
};

template <class D, class T>
FN no_row
row_of(D, const T *, const T *, s64)
{
    return no_row();
}

// take_query of decode.cuh, with the row that was asked for.
template <class ROW, int N, class T>
FN void
take_query_and(ROW &row, uint4 (&q)[N], const T *from, int g, int t, bool there)
{
    super_turns turns;
    take_query<true>(q, from, there);
    while (turns.all_again(!row.is_missing()))
        row.ask(g, t);
}

template <bool FIRST, class A, class B>
struct either {
    typedef A type;
};

template <class A, class B>
struct either<false, A, B> {
    typedef B type;
};

template <class T, int WIDTH, int QUERIES, int SPLITS>
struct split {
    typedef decode<T, WIDTH, QUERIES, 2> D;
    static const int WARPS = D::WARPS, CELL = D::CELL;
    static const int LANES = SPLITS > 8   ? 16 // of an element: one for each part
                             : SPLITS > 4 ? 8
                             : SPLITS > 2 ? 4
                                          : SPLITS;
    static const int AT_ONCE = 32 * WARPS / LANES; // elements
    static_assert(SPLITS <= 16, "lanes for all parts");

    // cells: SPLITS * QUERIES * CELL words of this head's queries.
    template <class P>
    static FN void
    run(const P &p, int rank, u64 *cells)
    {
        extern __shared__ __align__(1024) char shared[];
        float *mine = (float *)shared;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        super_calm(true);
        if (threadIdx.x == 0)
            super_block.told = 0;
        const bool likely =
            ahead(p, (s64)(rank + SPLITS * warp) * D::KEYS, warp, lane);
        await_memory();
        look(p, rank, likely, mine);
        __syncthreads();
        if constexpr (in_parts<decltype(p.y)>::value) {
            for (int n = warp; n < QUERIES; n += WARPS)
                if (!give_part(mine + n * CELL, p.out(n), rank, lane))
                    super_block.told = 1;
            if (rank == 0)
                settle(p, mine);
        } else {
            for (int n = warp; n < QUERIES; n += WARPS)
                leave(mine + n * CELL, cells + (rank * QUERIES + n) * CELL, lane);
            finish(p, rank, cells, mine);
        }
    }

    // D::ahead. Layers have their mask in common, mostly: what was seen of it is as
    // good a hint, for which nobody waits.
    template <class P>
    static FN bool
    ahead(const P &p, s64 j, int warp, int lane)
    {
        static_assert(D::KEYS == 16, "a lane for a key and its value");
        const s64 at = j + lane % 16;
        u32 seen = super_block.hints[warp];
        if (super_block.hinted[warp] != p.hinted()) {
            seen = __ballot_sync(~0u, at < p.keys() && p.hint(at));
            __syncwarp();
            super_block.hinted[warp] = p.hinted();
            super_block.hints[warp] = seen;
        }
        if (super_block.now.of.waits == SUPER_MEMORY && seen >> lane & 1 &&
            at < p.keys())
            D::prefetch(lane < 16 ? p.key(at) : p.value(at));
        return seen != 0;
    }

    // Rows that are not aligned: few have them.
    template <class P>
    static CALLED typename D::pieces
    fetch_halves(P p, s64 j, int g, int t)
    {
        typename D::places at;
        typename D::pieces x;
        D::aim(at, p, j, g, t);
        D::template fetch<false>(x, at);
        return x;
    }

    template <class P>
    static FN void
    fetch(typename D::pieces &x, const P &p, s64 j, int g, int t)
    {
        if (p.key_fast()) {
            typename D::places at;
            D::aim(at, p, j, g, t);
            D::template fetch<true>(x, at);
        } else {
            x = fetch_halves(p, j, g, t);
        }
    }

    // Sums of a lane: of wide rows they lie in shared memory, as registers hold keys and
    // values; mostly a warp has one block of them.
    struct shared_sums {
        float *at; // of the lane's first element
        bool mine;
        float factor, held[2];

        FN shared_sums(float *own, int g, int t)
            : at(own + (g < QUERIES ? g : 0) * CELL + t * 16), mine(g < QUERIES)
        {
#pragma unroll
            for (int i = 0; i < D::SLOTS * 16; i += 2)
                if (mine && is_there(i))
                    *place(i) = float2{0, 0};
        }

        // Do the lane's elements i and i + 1 of 16 in a slot exist? Widths are multiples
        // of 32.
        FN bool
        is_there(int i) const
        {
            return i / 16 * 64 + 64 <= WIDTH || (int)threadIdx.x % 4 * 16 < WIDTH % 64;
        }

        FN float2 *
        place(int i) const
        {
            return (float2 *)(at + i / 16 * 64 + i % 16);
        }

        FN void
        scale(float f, bool)
        {
            factor = f;
        }

        FN void
        add(int c, int e, u32 high0, u32 low0, u32 high1, u32 low1, u32 v0, u32 v1)
        {
            float own[4] = {};
            multiply(own, high0, low0, high1, low1, v0, v1, T());
            own[0] += own[2];
            own[1] += own[3];
            if (e % 2 != 0)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (mine && is_there(c * 16)) {
                        float2 *to = place(c * 16 + i * 8 + e - 1);
                        const float2 was = *to;
                        *to = float2{was.x * factor + held[i], was.y * factor + own[i]};
                    }
            held[0] = own[0];
            held[1] = own[1];
        }

        FN void
        leave(float *, int, int) const
        {
        }
    };

    struct own_sums : D::sums {
        FN own_sums(float *, int, int) : D::sums{}
        {
        }

        FN void
        leave(float *own, int g, int t) const
        {
            D::leave_sums(own, g, t, *this);
        }
    };

    typedef typename either<(WIDTH > 64), shared_sums, own_sums>::type sums;

    // What each warp finds in its keys.
    template <class P>
    static FN void
    look(const P &p, int rank, bool likely, float *mine)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        float *own = mine + warp * QUERIES * CELL, top = -infinity(), all = 0;
        sums acc(own, g, t);
        s64 j = (s64)(rank + SPLITS * warp) * D::KEYS;
        const s64 step = (s64)SPLITS * WARPS * D::KEYS;
        typename D::pieces x;
        uint4 q[D::CHUNKS];
        auto row = row_of(D(), p.k, p.v, p.plane());
        if (likely)
            fetch(x, p, j, g, t);
        row.ask(g, t);
        // Whether keys are hidden is known before the queries are, two blocks of keys
        // ahead.
        typename D::added m = D::template look<false>(p, j, g, t);
        typename D::added next = D::template look<false>(p, j + step, g, t);
        take_query_and(row, q, p.query(g < QUERIES ? g : 0) + t * 8, g, t,
                       g < QUERIES);
#pragma unroll 1
        for (; j < p.keys(); j += step) {
            const bool some = likely || D::is_any(m);
            if (some && !likely)
                fetch(x, p, j, g, t);
            const typename D::added later =
                D::template look<false>(p, j + 2 * step, g, t);
            if (some) {
                row.patch(x, j, g, t);
                D::fold(p, x, q, m, acc, top, all);
            }
            likely = false;
            m = next;
            next = later;
        }
        acc.leave(own, g, t);
        D::leave_rest(own, g, t, top, all);
    }

    // All keys by the warps of this block, one after the other but for those that are
    // hidden: few rows have seen nothing, and what is as fast as `look` takes as long
    // to be compiled.
    template <class P>
    static CALLED void
    again(P p, float *cells)
    {
        static constexpr int PIECES = WIDTH / 32; // of a row, of a lane
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        auto row = row_of(D(), p.k, p.v, p.plane());
        row.find();
        __syncthreads();
#pragma unroll 1
        for (int n = 0; n < QUERIES; n++) {
            const auto query = p.query(n);
            float q[PIECES], acc[PIECES] = {}, top = -infinity(), all = 0;
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                const T v = query[i * 32 + lane];
                q[i] = get(v);
            }
#pragma unroll 1
            for (s64 first = warp * 32; first < p.keys(); first += WARPS * 32) {
                const s64 own = first + lane;
                const bool there = own < p.keys() && !(p.causal() && own > p.row(n));
                const float mask = there ? p.mask(n, own) : -infinity();
                u32 seen = __ballot_sync(~0u, mask != -infinity());
#pragma unroll 1
                for (; seen != 0; seen &= seen - 1) {
                    const int k = __ffs((int)seen) - 1;
                    const s64 j = first + k;
                    const T *key = row.key_of(p.key(j), j);
                    const T *value = row.value_of(p.value(j), j);
                    float score = 0, v[PIECES];
#pragma unroll
                    for (int i = 0; i < PIECES; i++) {
                        v[i] = at(value, i * 32 + lane);
                        score += q[i] * at(key, i * 32 + lane);
                    }
                    score = sum<32>(score) * p.scale() + __shfl_sync(~0u, mask, k);
                    const float high = fmaxf(top, score), f = D::decay(top, high);
                    const float weight =
                        score == -infinity() ? 0.f : __expf(score - high);
                    all = all * f + weight;
#pragma unroll
                    for (int i = 0; i < PIECES; i++)
                        acc[i] = acc[i] * f + weight * v[i];
                    top = high;
                }
            }
            float *c = cells + (warp * QUERIES + n) * CELL;
#pragma unroll
            for (int i = 0; i < PIECES; i++)
                c[i * 32 + lane] = acc[i];
            if (lane == 0) {
                c[WIDTH] = top;
                c[WIDTH + 1] = all;
            }
        }
        __syncthreads();
    }

    // Element e of a key or a value, of words too.
    static FN float
    at(const T *p, int e)
    {
        return get(T{peek(&p[e].bits)});
    }

    // This block's share of the elements. Rows that have seen nothing are computed
    // once more.
    template <class P>
    static FN void
    finish(const P &p, int rank, const u64 *cells, float *mine)
    {
        const int first = QUERIES * WIDTH * rank / SPLITS;
        const int end = QUERIES * WIDTH * (rank + 1) / SPLITS;
        bool good = true;
        for (int i = first; i < end; i += AT_ONCE)
            good &= element(p, cells, i + (int)threadIdx.x / LANES, end);
        if (!good)
            super_block.told = 1;
        __syncthreads();
        if (!super_block.told)
            return;
        again(p, mine);
        for (int all = first; all < end; all += 32 * WARPS) {
            const int i = all + threadIdx.x, n = (i < end ? i : end - 1) / WIDTH;
            if (!is_settled(cells, n) && i < end)
                D::finish(p, mine + n * CELL, QUERIES, n, i % WIDTH);
        }
    }

    // A row of the block as a part, from its warps. False: it has seen nothing here.
    template <class Y>
    static FN bool
    give_part(const float *from, const Y &to, int rank, int lane)
    {
        static constexpr int PAIRS = (WIDTH + 63) / 64; // of a lane
        const float2 *c = (const float2 *)from;
        float high = -infinity(), total = 0, x[PAIRS][2] = {};
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            high = fmaxf(high, from[w * QUERIES * CELL + WIDTH]);
#pragma unroll
        for (int w = 0; w < WARPS; w++, c += QUERIES * CELL / 2) {
            const float2 own = c[WIDTH / 2];
            const float f = __expf(own.x - D::base_of(high));
            total += f * own.y;
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                const float2 v = c[(i * 32 + lane) % (WIDTH / 2)];
                x[i][0] += f * v.x;
                x[i][1] += f * v.y;
            }
        }
        const float weight = total == 0 ? -infinity() : high + __logf(total);
        // The factor leaves the largest number between 2^14 and 2^15.
        u32 most = 30;
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
            const u32 e = __float_as_uint(x[i / 2][i % 2]) >> 23 & 255;
            most = e != 255 && e > most ? e : most;
        }
        most = __reduce_max_sync(~0u, most);
        const float by = __uint_as_float((268 - most) << 23);
        const float factor = __uint_as_float((most - 14) << 23);
        if (lane == 0)
            to.weigh(rank, weight, total == 0 ? 0.f : __fdividef(factor, total));
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            if (i * 64 + lane * 2 < WIDTH)
                show((u32 *)(to.numbers(rank) + i * 64 + lane * 2),
                     pack(x[i][0] * by, x[i][1] * by, f16()));
        return D::is_settled(weight);
    }

    // By the first block of a head: rows that have seen nothing here may have in
    // other parts. If not they are computed once more, with all keys.
    template <class P>
    static FN void
    settle(const P &p, float *mine)
    {
        __syncthreads();
        if (!super_block.told)
            return;
        __syncthreads();
        if (threadIdx.x == 0) {
            bool good = true;
            for (int n = 0; n < QUERIES; n++)
                good &= D::is_settled(p.out(n).highest());
            super_block.told = !good;
        }
        __syncthreads();
        if (!super_block.told)
            return;
        again(p, mine);
        for (int i = threadIdx.x; i < QUERIES * WIDTH; i += 32 * WARPS) {
            const int n = i / WIDTH;
            if (!D::is_settled(p.out(n).highest()))
                D::finish(p, mine + n * CELL, QUERIES, n, i % WIDTH);
        }
    }

    // A row of the block, from its warps: lane w has what warp w weighs.
    static FN void
    leave(const float *from, u64 *to, int lane)
    {
        const float *own = from + lane % WARPS * QUERIES * CELL + WIDTH;
        const float top = own[0], high = highest(top, WARPS);
        const float f = D::decay(top, high);
        const float total = sum<WARPS>(f * own[1]);
        float x[(WIDTH + 31) / 32] = {};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float *c = from + w * QUERIES * CELL;
            const float of = __shfl_sync(~0u, f, w);
#pragma unroll
            for (int i = 0; i < (WIDTH + 31) / 32; i++)
                x[i] += of * c[(i * 32 + lane) % WIDTH];
        }
#pragma unroll
        for (int i = 0; i < (WIDTH + 31) / 32; i++)
            if (i * 32 + lane < WIDTH)
                give(to + i * 32 + lane, x[i]);
        if (lane == 0) {
            give(to + WIDTH, high);
            give(to + WIDTH + 1, total);
        }
    }

    static FN void
    give(u64 *to, float x)
    {
        show(to, (u64)super_mark() << 32 | __float_as_uint(x));
    }

    // By all lanes: numbers of a part, as soon as they are there.
    template <int N>
    static FN void
    take(float (&to)[N], const u64 *const (&from)[N])
    {
        super_turns turns;
        bool good;
        do {
            u64 w[N];
#pragma unroll
            for (int i = 0; i < N; i++)
                w[i] = ::call::look(from[i]);
            good = true;
#pragma unroll
            for (int i = 0; i < N; i++) {
                good &= (u32)(w[i] >> 32) == super_mark();
                to[i] = __uint_as_float((u32)w[i]);
            }
        } while (turns.all_again(good));
    }

    // Element i of the head, by a lane for each part. False: its row has seen
    // nothing.
    template <class P>
    static FN bool
    element(const P &p, const u64 *cells, int i, int end)
    {
        const int at = i < end ? i : end - 1; // all lanes look, for some part
        const int r = threadIdx.x % LANES, n = at / WIDTH, e = at % WIDTH;
        const u64 *c = cells + ((r < SPLITS ? r : 0) * QUERIES + n) * CELL;
        const u64 *const from[3] = {c + WIDTH, c + WIDTH + 1, c + e};
        float x[3]; // maximum, sum, accumulator
        take(x, from);
        if (r >= SPLITS) {
            x[0] = -infinity();
            x[1] = x[2] = 0;
        }
        const float high = highest(x[0], LANES);
        const float f = D::decay(x[0], high);
        const float total = sum<LANES>(f * x[1]), y = sum<LANES>(f * x[2]);
        if (i >= end)
            return true;
        if (!D::is_settled(high))
            return false;
        if (r == 0)
            put(p.out(n) + e, total == 0 ? 0.f : y / total);
        if (r == 0 && e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
        return true;
    }

    static FN float
    highest(float x, int lanes)
    {
#pragma unroll
        for (int d = lanes / 2; d > 0; d /= 2)
            x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
        return x;
    }

    static FN bool
    is_settled(const u64 *cells, int n)
    {
        float high = -infinity();
        for (int r = 0; r < SPLITS; r++) {
            const u64 *const from[1] = {cells + (r * QUERIES + n) * CELL + WIDTH};
            float x[1];
            take(x, from);
            high = fmaxf(high, x[0]);
        }
        return D::is_settled(high);
    }
};
