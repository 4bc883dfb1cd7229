// cross.cuh: numbers that blocks of a persistent kernel give each other without
// a fence.
//
// A number of 16 bits is a word with the launch's own tag below it, written once a
// launch. Who reads it looks again until the tag is there: what a word holds is new
// or visibly old, whatever order memory has. So neither who writes has to wait until
// the words have arrived, nor does who reads lose what L1 has. All blocks are counted
// before, so that few look too early.

FN u16
bits_of(u16 v)
{
    return v;
}

FN u16
bits_of(bf16 v)
{
    return v.bits;
}

FN u16
bits_of(f16 v)
{
    return v.bits;
}

FN u16
of_bits(u16 b, u16)
{
    return b;
}

FN bf16
of_bits(u16 b, bf16)
{
    return bf16{b};
}

FN f16
of_bits(u16 b, f16)
{
    return f16{b};
}

template <class T>
struct cross_place;

// A pointer to T, whose numbers are words.
template <class T>
struct cross {
    u32 *words;

    FN cross(u32 *p) : words(p) {}
    FN cross(const super_value &v) : words(v) {}

    FN cross
    operator+(s64 i) const
    {
        return cross(words + i);
    }

    FN cross_place<T>
    operator[](s64 i) const
    {
        return cross_place<T>{words + i};
    }
};

// An element of it.
template <class T>
struct cross_place {
    u32 *word;

    FN operator T() const
    {
        const u32 tag = super_tag();
        super_turns turns;
        u32 w;
        do
            w = look(word);
        while (turns.again(((w ^ tag) & 0xffff) == 0));
        return of_bits((u16)(w >> 16), T());
    }

    FN void
    operator=(T v) const
    {
        show(word, (u32)bits_of(v) << 16 | super_tag());
    }
};

template <class T>
FN bool
aligned(cross<T>)
{
    return true;
}

template <class T>
FN void
put(cross<T> p, float x)
{
    T v;
    put(&v, x);
    p[0] = v;
}

// The words of 8 neighbours.
struct cross_eight {
    uint4 a, b;

    FN void
    ask(const u32 *p)
    {
        a = look4(p);
        b = look4(p + 4);
    }

    // Bits in its low half: some are old.
    FN u32
    old(u32 tag) const
    {
        return (a.x ^ tag) | (a.y ^ tag) | (a.z ^ tag) | (a.w ^ tag) |
               (b.x ^ tag) | (b.y ^ tag) | (b.z ^ tag) | (b.w ^ tag);
    }

    FN uint4
    numbers() const
    {
        return make_uint4(
            __byte_perm(a.x, a.y, 0x7632), __byte_perm(a.z, a.w, 0x7632),
            __byte_perm(b.x, b.y, 0x7632), __byte_perm(b.z, b.w, 0x7632));
    }
};

// N times 8 neighbours, number i from at(i) on, as far as they are `there`. All are
// asked for before the first is looked at.
template <int N, class AT, class THERE>
FN void
ask_eights(cross_eight (&w)[N], const u32 *from, AT at, THERE there)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (there(i))
            w[i].ask(from + at(i));
}

// Of what was asked for so: new numbers, 0 where there are none.
template <int N, class AT, class THERE>
FN void
end_eights(uint4 (&to)[N], cross_eight (&w)[N], const u32 *from, AT at,
           THERE there)
{
    const u32 tag = super_tag();
    super_turns turns;
    for (;;) {
        u32 old = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (there(i))
                old |= w[i].old(tag);
        if (!turns.again((old & 0xffff) == 0))
            break;
        ask_eights(w, from, at, there);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = there(i) ? w[i].numbers() : make_uint4(0, 0, 0, 0);
}

template <int N, class AT, class THERE>
FN void
take_eights(uint4 (&to)[N], const u32 *from, AT at, THERE there)
{
    cross_eight w[N];
    ask_eights(w, from, at, there);
    end_eights(to, w, from, at, there);
}

// take_rows of skinny.cuh.
template <int J>
struct cross_row {
    cross_eight w[J];
};

FN int
cross_place_of(int j)
{
    return (j * 256 + (int)threadIdx.x) * 8;
}

template <int K, bool FAST, int J, class T>
FN cross_row<J>
ask_row(eight<T> (&)[J], cross<T> from)
{
    cross_row<J> row;
    ask_eights(row.w, from.words, cross_place_of,
               [](int j) { return cross_place_of(j) < K; });
    return row;
}

template <int K, bool FAST, int J, class T>
FN void
end_row(eight<T> (&to)[J], cross<T> from, cross_row<J> row)
{
    uint4 v[J];
    end_eights(v, row.w, from.words, cross_place_of,
               [](int j) { return cross_place_of(j) < K; });
#pragma unroll
    for (int j = 0; j < J; j++)
        to[j].v = v[j];
}

// stage_rows of skinny.cuh, 4 times 8 neighbours at once.
template <class G, bool FAST, class T, int M, int K, int STRIDE>
FN void
stage_rows(T *to, cross<T> from)
{
    constexpr int STEP = G::THREADS * 8, N = M * G::ROW > STEP ? 4 : 1;
#pragma unroll 1
    for (int first = threadIdx.x * 8; first < M * G::ROW; first += N * STEP) {
        uint4 v[N];
        take_eights(
            v, from.words,
            [&](int i) {
                const int e = first + i * STEP;
                return e / G::ROW * STRIDE + e % G::ROW;
            },
            [&](int i) {
                const int e = first + i * STEP;
                return e < M * G::ROW && e % G::ROW < K;
            });
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int e = first + i * STEP;
            if (e < M * G::ROW)
                *(uint4 *)(to + e / G::ROW * G::PITCH +
                           G::place8(e % G::ROW)) = G::ordered(v[i]);
        }
    }
}

// take_query of decode.cuh. All lanes ask: where some did not, registers were spilled
// in the whole kernel.
template <bool FAST, int N, class T>
FN void
take_query(uint4 (&q)[N], cross<T> from, bool there)
{
    take_eights(
        q, from.words, [](int c) { return c * 32; }, [](int) { return true; });
#pragma unroll
    for (int c = 0; c < N; c++)
        if (!there)
            q[c] = make_uint4(0, 0, 0, 0);
}
