// cross.cuh: numbers that blocks of a persistent kernel give each other without
// a fence.
//
// Each number of 16 bits has memory of its own that is written once a launch and holds
// all ones before (super.cuh clears it for the next launch), a NaN that no text
// computes: one that is copied becomes another NaN. Who reads a word looks again until
// it is there, whatever order memory has. So neither who writes has to wait until
// words have arrived, nor does who reads lose what L1 has. Most blocks are counted
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
    u16 *words;

    FN cross(u16 *p) : words(p) {}
    FN cross(const super_value &v)
        : words((u16 *)super_value{v.bits + super_block.words})
    {
    }

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
    u16 *word;

    FN operator T() const
    {
        super_turns turns;
        u16 w;
        do
            w = look(word);
        while (turns.again(w != 0xffff));
        return of_bits(w, T());
    }

    FN void
    operator=(T v) const
    {
        const u16 w = bits_of(v);
        show(word, w == 0xffff ? (u16)0x7fff : w);
    }
};

template <class T>
FN bool
aligned(cross<T>)
{
    return true;
}

// put8 of skinny.cuh; words of 8 neighbours lie at a multiple of 16 bytes.
template <class T>
FN void
put8(cross<T> to, const T (&x)[8])
{
    u64 w[2] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const u16 v = bits_of(x[i]);
        w[i / 4] |= (u64)(v == 0xffff ? (u16)0x7fff : v) << i % 4 * 16;
    }
    show((u64 *)to.words, w[0]);
    show((u64 *)to.words + 1, w[1]);
}

// move8 of common.cuh, to words of 8 neighbours as there.
FN void
move8(cross<u16> to, const u16 *from, bool there)
{
    const uint4 v = there ? take16<true>(from) : make_uint4(0, 0, 0, 0);
    const u32 words[4] = {v.x, v.y, v.z, v.w};
    u16 x[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = (u16)(words[i / 2] >> i % 2 * 16);
    put8(to, x);
}

template <class T>
FN void
put(cross<T> p, float x)
{
    T v;
    put(&v, x);
    p[0] = v;
}

// Its highest bit, and that of its low half, where a half is all ones; others than
// these two tell nothing.
FN u32
absent(u32 w)
{
    return (0xfffefffeu - w) & w;
}

FN u32
absent(const uint4 &w)
{
    return (absent(w.x) | absent(w.y) | absent(w.z) | absent(w.w)) & 0x80008000u;
}

// A cache of heads with PLANE numbers each, in rows of WIDTH, and the row that a phase
// of this kernel writes: that one is in words, too, behind each head's its index, so
// that nobody waits for memory that has it.
template <class T, int PLANE, int WIDTH>
struct fresh {
    T *memory;
    u16 *words;

    FN fresh(const super_value &m, const super_value &w)
        : memory(m), words((u16 *)super_value{w.bits + super_block.words})
    {
    }

    FN T *
    operator+(s64 i) const
    {
        return memory + i;
    }

    FN u16 *
    row(s64 head) const
    {
        return words + head * (WIDTH + 8);
    }
};

static const u32 FRESH_NONE = 0xfffffffeu; // an index out of range

template <class T, int PLANE, int WIDTH>
FN bool
aligned(fresh<T, PLANE, WIDTH> p)
{
    return aligned(p.memory);
}

template <class T, int PLANE, int WIDTH, class V>
FN void
put_row(fresh<T, PLANE, WIDTH> p, bool inside, s64 i, s64 j, s64 pitch, V v)
{
    u16 *row = p.row(i / PLANE);
    const cross_place<T> word = {row + i % WIDTH};
    word = v;
    if (i % WIDTH == 0)
        show((u32 *)(row + WIDTH), inside ? (u32)j : FRESH_NONE);
    if (inside)
        p.memory[i + j * pitch] = v;
}

// Of split.cuh: what a lane takes of that row, as a key and as a value.
template <class D, int WIDTH>
struct fresh_row {
    const u16 *key, *value;
    uint4 k[D::CHUNKS], v[D::SLOTS];
    u32 j;

    FN void
    ask(int g, int t)
    {
#pragma unroll
        for (int c = 0; c < D::CHUNKS; c++)
            k[c] = look4(key + t * 8 + c * 32);
#pragma unroll
        for (int c = 0; c < D::SLOTS; c++)
            v[c] = look4(value + g * 8 % WIDTH + c * 64);
        j = ::call::look((const u32 *)(key + WIDTH));
    }

    FN bool
    is_missing() const
    {
        u32 missing = j == SUPER_ABSENT;
#pragma unroll
        for (int c = 0; c < D::CHUNKS; c++)
            missing |= absent(k[c]);
#pragma unroll
        for (int c = 0; c < D::SLOTS; c++)
            missing |= absent(v[c]);
        return missing != 0;
    }

    // In the keys from `first` on, as they were.
    template <class X>
    FN void
    patch(X &x, s64 first, int g, int t) const
    {
        const s64 at = (s64)j - first;
        if (at < 0 || at >= D::KEYS)
            return;
#pragma unroll
        for (int i = 0; i < D::KEYS / 8; i++)
#pragma unroll
            for (int c = 0; c < D::CHUNKS; c++)
                if (at == i * 8 + g)
                    x.k[i][c] = k[c];
#pragma unroll
        for (int i = 0; i < D::KEYS / 4; i++)
#pragma unroll
            for (int c = 0; c < D::SLOTS; c++)
                if (at == i / 2 * 8 + t * 2 + i % 2)
                    x.v[i / 2][i % 2][c] = v[c];
    }

    // When it was seen to be there: which one it is, and where key and value i are.
    FN void
    find()
    {
        j = ::call::look((const u32 *)(key + WIDTH));
    }

    template <class T>
    FN const T *
    key_of(const T *p, s64 i) const
    {
        return i == j ? (const T *)key : p;
    }

    template <class T>
    FN const T *
    value_of(const T *p, s64 i) const
    {
        return i == j ? (const T *)value : p;
    }
};

template <class D, class T, int PLANE, int WIDTH>
FN fresh_row<D, WIDTH>
row_of(D, const fresh<T, PLANE, WIDTH> &k, const fresh<T, PLANE, WIDTH> &v, s64 head)
{
    fresh_row<D, WIDTH> row;
    row.key = k.row(head);
    row.value = v.row(head);
    return row;
}

// By all lanes: N times 8 neighbours, number i from at(i) on; those that are not
// `there` are the first ones: where some lanes do not ask, ptxas spills registers in
// the whole kernel.
template <int N, class AT, class THERE>
FN void
ask_eights(uint4 (&w)[N], const u16 *from, AT at, THERE there)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        w[i] = look4(from + (there(i) ? at(i) : 0));
}

// What was asked for so, when it is there; 0 for what is not wanted.
template <int N, class AT, class THERE>
FN void
end_eights(uint4 (&w)[N], const u16 *from, AT at, THERE there)
{
    super_turns turns;
    for (;;) {
        u32 missing = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            missing |= absent(w[i]);
        if (!turns.all_again(missing == 0))
            break;
        ask_eights(w, from, at, there);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!there(i))
            w[i] = make_uint4(0, 0, 0, 0);
}

template <int N, class AT, class THERE>
FN void
take_eights(uint4 (&to)[N], const u16 *from, AT at, THERE there)
{
    ask_eights(to, from, at, there);
    end_eights(to, from, at, there);
}

// take_rows of skinny.cuh.
template <int J>
struct cross_row {
    uint4 w[J];
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
    end_eights(row.w, from.words, cross_place_of,
               [](int j) { return cross_place_of(j) < K; });
#pragma unroll
    for (int j = 0; j < J; j++)
        to[j].v = row.w[j];
}

// stage_rows of skinny.cuh, 4 times 8 neighbours at once.
template <class G, bool FAST, class T, int M, int K, int STRIDE>
FN void
stage_rows(T *to, cross<T> from)
{
    constexpr int STEP = G::THREADS * 8, N = M * G::ROW > STEP ? 4 : 1;
#pragma unroll 1
    for (int all = 0; all < M * G::ROW; all += N * STEP) {
        const int first = all + threadIdx.x * 8;
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

// take_query_and of split.cuh: both are looked for at once, as one phase writes them.
// All lanes ask: where some did not, registers were spilled in the whole kernel.
template <class ROW, int N, class T>
FN void
take_query_and(ROW &row, uint4 (&q)[N], cross<T> from, int g, int t, bool there)
{
    const auto at = [](int c) { return c * 32; };
    const auto all = [](int) { return true; };
    super_turns turns;
    ask_eights(q, from.words, at, all);
    for (;;) {
        u32 missing = row.is_missing();
#pragma unroll
        for (int c = 0; c < N; c++)
            missing |= absent(q[c]);
        if (!turns.all_again(missing == 0))
            break;
        row.ask(g, t);
        ask_eights(q, from.words, at, all);
    }
#pragma unroll
    for (int c = 0; c < N; c++)
        if (!there)
            q[c] = make_uint4(0, 0, 0, 0);
}
