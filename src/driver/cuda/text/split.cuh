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
        const bool likely =
            D::ahead(p, (s64)(rank + SPLITS * warp) * D::KEYS, lane);
        await();
        if (p.query_fast() && p.key_fast())
            look<true>(p, rank, likely, mine);
        else
            look<false>(p, rank, likely, mine);
        __syncthreads();
        for (int n = warp; n < QUERIES; n += WARPS)
            leave(mine + n * CELL, cells + (rank * QUERIES + n) * CELL, lane);
        if (is_last(ticket, (u32 *)shared))
            finish(p, cells, mine, (u32 *)shared);
        __syncthreads();
    }

    // What each warp finds in its keys.
    template <bool FAST, class P>
    static FN void
    look(const P &p, int rank, bool likely, float *mine)
    {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int g = lane >> 2, t = lane & 3;
        float acc[D::SLOTS][8][4] = {}, top = -infinity(), all = 0;
        const s64 start = (s64)(rank + SPLITS * warp) * D::KEYS;
        typename D::places at;
        D::aim(at, p, start, g, t);
        D::template walk<FAST>(p, start, (s64)SPLITS * WARPS * D::KEYS, g, t,
                               likely, at, acc, top, all);
        D::leave(mine + warp * QUERIES * CELL, g, t, acc, top, all);
    }

    // All rows at once; those that have seen nothing once more, one by one.
    template <class P>
    static FN void
    finish(const P &p, const float *cells, float *mine, u32 *told)
    {
        for (int i = threadIdx.x; i < QUERIES * WIDTH; i += 32 * WARPS) {
            const int n = i / WIDTH;
            if (!element(p, cells + n * CELL, n, i % WIDTH))
                told[1] = 1;
        }
        __syncthreads();
        const bool some = told[1] != 0;
        __syncthreads();
        if (some)
            for (int n = 0; n < QUERIES; n++)
                finish_row(p, cells + n * CELL, mine, n);
    }

    // That has seen nothing.
    template <class P>
    static FN void
    finish_row(const P &p, const float *cell, float *mine, int n)
    {
        float high = -infinity();
        for (int r = 0; r < SPLITS; r++)
            high = fmaxf(high, peek(cell + r * QUERIES * CELL + WIDTH));
        if (D::is_settled(high))
            return;
        D::again(p, mine);
        for (int e = threadIdx.x; e < WIDTH; e += 32 * WARPS)
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
        __syncthreads();
        if (threadIdx.x == 0) {
            const u32 before = take_number(ticket);
            if (before == SPLITS - 1)
                *ticket = 0;
            told[0] = before == SPLITS - 1;
            told[1] = 0;
        }
        __syncthreads();
        return told[0] != 0;
    }

    // What was written before it is visible to whom has a later one.
    static FN u32
    take_number(u32 *p)
    {
        u32 n;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(n)
                     : "l"(p)
                     : "memory");
        return n;
    }

    // Element e of row n. False: the row has seen nothing.
    template <class P>
    static FN bool
    element(const P &p, const float *cell, int n, int e)
    {
        float m[SPLITS], s[SPLITS], v[SPLITS], high = -infinity();
        float total = 0, x = 0;
#pragma unroll
        for (int r = 0; r < SPLITS; r++) {
            const float *c = cell + r * QUERIES * CELL;
            m[r] = peek(c + WIDTH);
            s[r] = peek(c + WIDTH + 1);
            v[r] = peek(c + e);
        }
#pragma unroll
        for (int r = 0; r < SPLITS; r++)
            high = fmaxf(high, m[r]);
#pragma unroll
        for (int r = 0; r < SPLITS; r++) {
            const float f = D::decay(m[r], high);
            total += f * s[r];
            x += f * v[r];
        }
        if (!D::is_settled(high))
            return false;
        put(p.out(n) + e, total == 0 ? 0.f : x / total);
        if (e == 0 && p.sum(n))
            *p.sum(n) = total == 0 ? 0.f : high + __logf(total);
        return true;
    }
};
