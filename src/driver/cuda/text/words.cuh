// words.cuh: rows of w as integers of 8 or 4 bits, for skinny.cuh: w[n, k] is
// q[n, k] * scale[n, k / GROUP] + zero[n, k / GROUP]. q is exact in bfloat16 and
// half, and is multiplied as it is: factors are of the sums, in float.
//
// A lane loads 16 bytes, 16 or 32 numbers that lie side by side, and becomes
// their words by masks, so that they come in an order of their own. As sums run
// over what 4 lanes have, groups that are smaller take columns of the
// instruction that would else be empty: x stands there for the lanes of one group
// only, and each lane gets the sum of what it has loaded itself.
//
// Q and Z: types of scale and zero, absent<1>, absent<0> where there are none.
template <int V>
struct absent {};

template <int V>
FN float
get(absent<V>)
{
    return V;
}

template <class T>
struct is_given {
    static const bool value = true;
};
template <int V>
struct is_given<absent<V>> {
    static const bool value = false;
};

template <class A, class B>
struct is_same {
    static const bool value = false;
};
template <class A>
struct is_same<A, A> {
    static const bool value = true;
};

template <class Q, class Z>
struct words_row {
    const u8 *w;
    const Q *scale;
    const Z *zero;
};

// By the type that x has: 1, 1; small integers behind a large one, that one less.
template <class T, int BITS>
struct magic;
template <int BITS>
struct magic<bf16, BITS> {
    static const u32 ONES = 0x3f803f80u, BASE = 0x43004300u; // 128
    static const u32 LESS = 0xc308c308u; // -128 - 8, of 4 bits
};
template <int BITS>
struct magic<f16, BITS> {
    static const u32 ONES = 0x3c003c00u, BASE = 0x64006400u; // 1024
    static const u32 LESS = BITS == 4 ? 0xe408e408u : 0xe480e480u; // - 8, - 128
};

// a * b + c of both halves, rounded once.
FN u32
fma2(u32 a, u32 b, u32 c, bf16)
{
    u32 y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

FN u32
fma2(u32 a, u32 b, u32 c, f16)
{
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

FN u32
add2(u32 a, u32 b, bf16)
{
    return fma2(a, 0x3f803f80u, b, bf16());
}

FN u32
add2(u32 a, u32 b, f16)
{
    return fma2(a, 0x3c003c00u, b, f16());
}

// (a & mask) | bits, in one instruction.
FN u32
mask_or(u32 a, u32 mask, u32 bits)
{
    u32 y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(a), "r"(mask), "r"(bits));
    return y;
}

// The bytes 0 and 2 as numbers with a sign. bfloat16 holds 7 bits behind 128:
// the eighth is taken from it.
FN u32
widen8(u32 w, bf16)
{
    return add2(mask_or(w, 0x007f007fu, 0x43004300u),
                mask_or(w, 0x00800080u, 0xc300c300u), bf16());
}

FN u32
widen8(u32 w, f16)
{
    typedef magic<f16, 8> M;
    return add2((w & 0x00ff00ffu) ^ (M::BASE | 0x00800080u), M::LESS, f16());
}

// The lowest 4 bits of both halves, less 8.
template <class T>
FN u32
widen4(u32 w, T)
{
    typedef magic<T, 4> M;
    return add2(mask_or(w, 0x000f000fu, M::BASE), M::LESS, T());
}

template <class T, int BITS, int K, int GROUP, class Q, class Z>
struct words {
    typedef words_row<Q, Z> pointer;
    static const int EACH = 128 / BITS;
    static const bool ZERO = is_given<Z>::value;
    static const int SPLIT = GROUP == K && !ZERO ? 0
                             : GROUP == K || GROUP % (4 * EACH) == 0 ? 1
                             : GROUP % (2 * EACH) == 0               ? 2
                                                                     : 4;
    static const u32 ONES = magic<T, BITS>::ONES;
    static const int BIT_COUNT = BITS, GROUP_SIZE = GROUP;

    struct loaded {
        uint4 w;
        Q scale;
        Z zero;
    };

    template <bool FAST>
    static FN loaded
    load(const pointer &p, int k)
    {
        loaded v;
        v.w = FAST ? stream(p.w) : stream_bytes(p.w);
        if constexpr (SPLIT > 0 && is_given<Q>::value)
            v.scale = p.scale[k / GROUP];
        if constexpr (ZERO)
            v.zero = p.zero[k / GROUP];
        return v;
    }

    // From any address.
    static FN uint4
    stream_bytes(const u8 *p)
    {
        u32 w[4] = {};
#pragma unroll
        for (int i = 0; i < 16; i++)
            w[i / 4] |= (u32)p[i] << i % 4 * 8;
        return make_uint4(w[0], w[1], w[2], w[3]);
    }

    // Its numbers meet zeros of x. Where the 4 lanes that share sums have loads of one
    // group, and some of them lie behind its end, those want its factors, too.
    static FN loaded
    nothing(const pointer &p)
    {
        loaded v = {};
        if constexpr (ZERO && GROUP == K && K % (4 * EACH) != 0) {
            if constexpr (is_given<Q>::value)
                v.scale = p.scale[0];
            v.zero = p.zero[0];
        }
        return v;
    }

    static FN uint4
    part(const loaded &v, int e)
    {
        if constexpr (BITS == 8) {
            const u32 a = e == 0 ? v.w.x : v.w.z, b = e == 0 ? v.w.y : v.w.w;
            return make_uint4(widen8(a, T()), widen8(a >> 8, T()),
                              widen8(b, T()), widen8(b >> 8, T()));
        }
        const u32 w = e == 0 ? v.w.x : e == 1 ? v.w.y : e == 2 ? v.w.z : v.w.w;
        return make_uint4(widen4(w, T()), widen4(w >> 4, T()),
                          widen4(w >> 8, T()), widen4(w >> 12, T()));
    }

    // Two neighbours at p, the first of them of an even k, as they lie.
    static FN u32
    two(const u8 *p)
    {
        return BITS == 8 ? *(const u16 *)p : *p;
    }

    static FN u32
    widen(u32 two)
    {
        if constexpr (BITS == 8)
            return widen8(__byte_perm(two, 0, 0x4140), T());
        return widen4(two * 0x1001u, T());
    }

    // 16 neighbours, as they lie.
    static FN void
    chunk(u32 (&to)[BITS / 2], const u8 *p)
    {
        if constexpr (BITS == 8) {
            const uint4 v = *(const uint4 *)p;
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        } else {
            const uint2 v = *(const uint2 *)p;
            to[0] = v.x, to[1] = v.y;
        }
    }

    // Two of them, 2 i and 2 i + 1, as numbers.
    static FN u32
    pair(const u32 (&raw)[BITS / 2], int i)
    {
        const u32 low = i % 2 == 0 ? 0x4140 : 0x4342;
        if constexpr (BITS == 8)
            return widen8(__byte_perm(raw[i / 2], 0, low), T());
        // The 4 bits of each number as a byte, 4 in their order.
        const u32 w = raw[i / 4];
        const u32 four = __byte_perm(w & 0x0f0f0f0fu, w >> 4 & 0x0f0f0f0fu,
                                     i % 4 < 2 ? 0x5140 : 0x7362);
        return add2(__byte_perm(four, magic<T, 4>::BASE >> 8 & 255, low),
                    magic<T, 4>::LESS, T());
    }

    // Of a group, as they lie: what converts them waits for them.
    struct factors {
        Q scale;
        Z zero;
    };

    // Factors of T in both halves.
    static FN u32
    both(T f)
    {
        return f.bits * 0x10001u;
    }

    // What two integers stand for, rounded to T once.
    static FN u32
    of(u32 two, const factors &f)
    {
        if constexpr (is_same<Q, T>::value && (!ZERO || is_same<Z, T>::value)) {
            if constexpr (ZERO)
                return fma2(two, both(f.scale), both(f.zero), T());
            else
                return fma2(two, both(f.scale), 0x80008000u /* -0 */, T());
        }
        const float scale = (float)get(f.scale), zero = (float)get(f.zero);
        float a, b;
        unpack(two, a, b, T());
        a *= scale, b *= scale;
        return ZERO ? pack(a + zero, b + zero, T()) : pack(a, b, T());
    }

    static FN factors
    factors_of(const pointer &p, int at)
    {
        factors f = {};
        if constexpr (is_given<Q>::value)
            f.scale = p.scale[at];
        if constexpr (ZERO)
            f.zero = p.zero[at];
        return f;
    }

    // L2 asks memory for them.
    static FN void
    ask_factors(const Q *scale, const Z *zero, int at)
    {
        if constexpr (is_given<Q>::value)
            ask(scale + at);
        if constexpr (ZERO)
            ask(zero + at);
    }

    static FN void
    ask(const void *p)
    {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
    }

    static FN int
    order(int i)
    {
        return BITS == 8 ? i / 4 * 4 + i % 2 * 2 + i / 2 % 2 : i % 4 * 2 + i / 4;
    }

    static FN uint4
    ordered(const uint4 &v)
    {
        if constexpr (BITS == 8)
            return make_uint4(
                __byte_perm(v.x, v.y, 0x5410), __byte_perm(v.x, v.y, 0x7632),
                __byte_perm(v.z, v.w, 0x5410), __byte_perm(v.z, v.w, 0x7632));
        return make_uint4(
            __byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
            __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
    }

    static FN pointer
    at(pointer p, int by)
    {
        p.w += by * BITS / 8;
        return p;
    }

    static FN float
    add(float c, const loaded &v, float sum, float ones)
    {
        c += get(v.scale) * sum;
        return ZERO ? c + get(v.zero) * ones : c;
    }

    static FN float
    factor(const pointer &p)
    {
        if constexpr (SPLIT == 0 && is_given<Q>::value)
            return get(p.scale[0]);
        return 1;
    }
};
