// split.cuh: decode.cuh without clusters: SPLITS parts of the keys of a key
// head go to as many blocks, which leave what they found in memory; the one
// that is done last puts the parts together. The tickets are 0 before and after.
template <class T, int WIDTH, int QUERIES, int SPLITS>
struct split {
    typedef decode<T, WIDTH, QUERIES, 2> D;
    static const int WARPS = D::WARPS, CELL = D::CELL;

    // cells: SPLITS * QUERIES * CELL floats of this head's queries.
    template <class P>
    static FN void
    run(const P &p, int rank, float *cells, u32 *ticket)
    {
        extern __shared__ __align__(16) char shared[];
        float *mine = (float *)shared;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (p.query_fast() && p.key_fast())
            look<true>(p, rank, mine);
        else
            look<false>(p, rank, mine);
        __syncthreads();
        for (int n = warp; n < QUERIES; n += WARPS)
            leave(mine + n * CELL, cells + (rank * QUERIES + n) * CELL, lane);
        if (is_last(ticket, (u32 *)shared))
            for (int n = 0; n < QUERIES; n++)
                finish_row(p, cells + n * CELL, mine, n);
        __syncthreads();
    }

    // What each warp finds in its keys.
    template <bool FAST, class P>
    static FN void
    look(const P &p, int rank, float *mine)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        float acc[D::SLOTS][8][4] = {}, top = -infinity(), all = 0;
        const s64 start = (s64)(rank + SPLITS * warp) * D::KEYS;
        typename D::places at;
        D::aim(at, p, start, g, t);
        D::template walk<FAST>(p, start, (s64)SPLITS * WARPS * D::KEYS, g, t,
                               false, at, acc, top, all);
        D::leave(mine + warp * QUERIES * CELL, g, t, acc, top, all);
    }

    template <class P>
    static FN void
    finish_row(const P &p, const float *cell, float *mine, int n)
    {
        float high = -infinity();
#pragma unroll
        for (int r = 0; r < SPLITS; r++)
            high = fmaxf(high, peek(cell + r * QUERIES * CELL + WIDTH));
        const bool some = D::is_settled(high);
        if (!some)
            D::again(p, mine);
        for (int e = threadIdx.x; e < WIDTH; e += 32 * WARPS)
            if (some)
                finish(p, cell, n, e);
            else
                D::finish(p, mine + n * CELL, QUERIES, n, e);
    }

    // A row of the block, from its warps.
    static FN void
    leave(const float *from, float *to, int lane)
    {
        float high = -infinity(), total = 0, x[(WIDTH + 31) / 32] = {};
        for (int w = 0; w < WARPS; w++)
            high = fmaxf(high, from[w * QUERIES * CELL + WIDTH]);
        for (int w = 0; w < WARPS; w++) {
            const float *c = from + w * QUERIES * CELL;
            const float f = D::decay(c[WIDTH], high);
            total += f * c[WIDTH + 1];
#pragma unroll
            for (int i = 0; i < (WIDTH + 31) / 32; i++)
                x[i] += f * c[(i * 32 + lane) % WIDTH];
        }
#pragma unroll
        for (int i = 0; i < (WIDTH + 31) / 32; i++)
            if (i * 32 + lane < WIDTH)
                to[i * 32 + lane] = x[i];
        if (lane == 0) {
            to[WIDTH] = high;
            to[WIDTH + 1] = total;
        }
    }

    // Are all parts there? They are visible then.
    static FN bool
    is_last(u32 *ticket, u32 *told)
    {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            const u32 before = atomicAdd(ticket, 1u);
            if (before == SPLITS - 1)
                *ticket = 0;
            *told = before == SPLITS - 1;
            __threadfence();
        }
        __syncthreads();
        return *told != 0;
    }

    template <class P>
    static FN void
    finish(const P &p, const float *cell, int n, int e)
    {
        float m[SPLITS], high = -infinity(), total = 0, x = 0;
#pragma unroll
        for (int r = 0; r < SPLITS; r++) {
            m[r] = peek(cell + r * QUERIES * CELL + WIDTH);
            high = fmaxf(high, m[r]);
        }
#pragma unroll
        for (int r = 0; r < SPLITS; r++) {
            const float f = D::decay(m[r], high);
            total += f * peek(cell + r * QUERIES * CELL + WIDTH + 1);
            x += f * peek(cell + r * QUERIES * CELL + e);
        }
        put(p.out(n) + e, total == 0 ? 0.f : x / total);
        if (e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
    }
};
