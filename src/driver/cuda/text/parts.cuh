// parts.cuh: what attention has found in parts of the keys, for the product that
// takes it: that one puts the parts together while it gathers its x, so that blocks of
// attention need not wait for each other.
//
// A part of a row is WIDTH numbers, halves with a factor in common, as bfloat16's range
// is not theirs, and what the row weighs: the logarithm of the sum of its exponentials.
// All are words as in cross.cuh, as none that is computed is all ones. A row that has
// seen nothing in any part is in words of T before them, and nowhere else.
//
// N     numbers of the tensor; element i of it is element i of each part
template <class T, int N, int WIDTH, int SPLITS>
struct parts {
    u16 *words;
    s64 at; // element

    FN parts(u16 *p, s64 i) : words(p), at(i) {}
    FN parts(const super_value &v)
        : words((u16 *)super_value{v.bits + super_block.words}), at(0)
    {
    }

    FN parts
    operator+(s64 i) const
    {
        return parts(words, at + i);
    }

    FN u16 *
    numbers(int part) const
    {
        return words + (1 + part) * N + at;
    }

    // What the row that begins here weighs, and its factor behind it.
    FN u64 *
    weight(int part) const
    {
        return (u64 *)(words + (1 + SPLITS) * N) + at / WIDTH * SPLITS + part;
    }

    FN void
    weigh(int part, float high, float factor) const
    {
        show(weight(part), (u64)__float_as_uint(factor) << 32 | __float_as_uint(high));
    }

    // By one thread: the highest of all parts.
    FN float
    highest() const
    {
        float high = -infinity();
#pragma unroll 1
        for (int i = 0; i < SPLITS; i++) {
            super_turns turns;
            u64 w;
            do
                w = look(weight(i));
            while (turns.again((u32)w != SUPER_ABSENT));
            high = fmaxf(high, __uint_as_float((u32)w));
        }
        return high;
    }
};

template <class T, int N, int WIDTH, int SPLITS>
struct in_parts<parts<T, N, WIDTH, SPLITS>> {
    static const bool value = true;
};

template <class T, int N, int WIDTH, int SPLITS>
FN bool
aligned(parts<T, N, WIDTH, SPLITS>)
{
    return true;
}

template <class T, int N, int WIDTH, int SPLITS>
FN void
put(parts<T, N, WIDTH, SPLITS> p, float x)
{
    put(cross<T>(p.words + p.at), x);
}

// By all lanes: 8 neighbours in all parts. SPLITS lanes that are neighbours have the
// same row, and look at what one part of it weighs each.
template <class T, int N, int WIDTH, int SPLITS>
struct parted_eight {
    typedef parts<T, N, WIDTH, SPLITS> P;
    static_assert(WIDTH / 8 % SPLITS == 0, "a lane of the row for each part");
    uint4 x[SPLITS];
    u64 w;

    FN void
    ask(const P &p)
    {
        w = look(p.weight(threadIdx.x % SPLITS));
#pragma unroll
        for (int i = 0; i < SPLITS; i++)
            x[i] = look4(p.numbers(i));
    }

    FN void
    take(const P &p)
    {
        super_turns turns;
        for (;;) {
            u32 missing = (u32)w == SUPER_ABSENT || (u32)(w >> 32) == SUPER_ABSENT;
#pragma unroll
            for (int i = 0; i < SPLITS; i++)
                missing |= absent(x[i]);
            if (!turns.all_again(missing == 0))
                return;
            ask(p);
        }
    }

    // Put together, as T.
    FN uint4
    all(const P &p)
    {
        const float own = __uint_as_float((u32)w);
        float high = own, to[8] = {};
#pragma unroll
        for (int d = SPLITS / 2; d > 0; d /= 2)
            high = fmaxf(high, __shfl_xor_sync(~0u, high, d));
        const bool settled = high > FAR / 2;
        const float weight = settled ? __expf(own - high) : 0.f;
        const float by = __fdividef(weight * __uint_as_float((u32)(w >> 32)),
                                    sum<SPLITS>(weight));
#pragma unroll
        for (int i = 0; i < SPLITS; i++)
            add(to, x[i], __shfl_sync(~0u, by, threadIdx.x % 32 / SPLITS * SPLITS + i));
        uint4 y = make_uint4(pack(to[0], to[1], T()), pack(to[2], to[3], T()),
                             pack(to[4], to[5], T()), pack(to[6], to[7], T()));
        if (__any_sync(~0u, !settled))
            whole(y, p, settled);
        return y;
    }

    static FN void
    add(float (&sum)[8], const uint4 &x, float by)
    {
        float a, b;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unpack(i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w, a, b, f16());
            sum[2 * i] += by * a;
            sum[2 * i + 1] += by * b;
        }
    }

    // Of rows that are not settled.
    static FN void
    whole(uint4 &y, const P &p, bool settled)
    {
        super_turns turns;
        uint4 v;
        do
            v = look4(p.words + p.at);
        while (turns.all_again(settled || absent(v) == 0));
        if (!settled)
            y = v;
    }
};

// stage_rows of skinny.cuh.
template <class G, bool FAST, class T, int M, int K, int STRIDE, int N, int WIDTH,
          int SPLITS>
FN void
stage_rows(T *to, parts<T, N, WIDTH, SPLITS> from)
{
#pragma unroll 1
    for (int all = 0; all < M * G::ROW; all += G::THREADS * 8) {
        const int e = all + threadIdx.x * 8, m = e / G::ROW, k = e % G::ROW;
        const bool there = e < M * G::ROW && k < K;
        const auto p = from + (there ? m * STRIDE + k : 0);
        parted_eight<T, N, WIDTH, SPLITS> v;
        v.ask(p);
        v.take(p);
        const uint4 x = v.all(p);
        if (e < M * G::ROW)
            *(uint4 *)(to + m * G::PITCH + G::place8(k)) =
                G::ordered(there ? x : make_uint4(0, 0, 0, 0));
    }
}
