// draw.cuh: random numbers, which element gets which as torch's kernels have it.
//
// Philox4x32-10 (Salmon and others, 2011) gives four words for a key, the seed,
// and a counter: a thread of the launch is its upper half, what the generator
// has given out so far, in lots of four, its lower half. So the blocks of the
// launch decide what is drawn.

struct lot {
    u32 w[4];
};

FN lot
philox(u64 key, u64 low, u64 high)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    lot c = {{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
#pragma unroll
    for (int i = 0; i < 10; i++) {
        const u64 a = 0xd2511f53ull * c.w[0], b = 0xcd9e8d57ull * c.w[2];
        c = {{(u32)(b >> 32) ^ c.w[1] ^ k0, (u32)b, (u32)(a >> 32) ^ c.w[3] ^ k1, (u32)a}};
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

// ---- numbers of a lot ----

// Of (0, 1]; a word is rounded before.
FN float
unit(u32 w)
{
    return __fmaf_rn((float)w, 0x1p-32f, 0x1p-33f);
}

FN double
unit(u32 w0, u32 w1)
{
    return (double)((u64)w0 ^ (u64)w1 << 21) * 0x1p-53 + 0x1p-54;
}

FN void
units(const lot &l, float (&out)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = unit(l.w[i]);
}

FN void
units(const lot &l, double (&out)[2])
{
    out[0] = unit(l.w[0], l.w[1]);
    out[1] = unit(l.w[2], l.w[3]);
}

// A pair of normals (Box and Muller), by the sines of the hardware.
FN void
pair(u32 w0, u32 w1, float &a, float &b)
{
    const float turn = 0x1p-32f * 6.2831855f;
    const float v = __fmaf_rn((float)w1, turn, turn / 2);
    const float s = sqrtf(-2.f * logf(unit(w0)));
    a = __sinf(v) * s;
    b = __cosf(v) * s;
}

FN void
normals(const lot &l, float (&out)[4])
{
    pair(l.w[0], l.w[1], out[0], out[1]);
    pair(l.w[2], l.w[3], out[2], out[3]);
}

FN void
normals(const lot &l, double (&out)[2])
{
    const u64 turn = (u64)l.w[2] ^ (u64)l.w[3] << 21;
    const double s = sqrt(-2. * log(unit(l.w[0], l.w[1])));
    double a, b;
    sincospi((double)turn * 0x1p-52 + 0x1p-53, &a, &b);
    out[0] = a * s;
    out[1] = b * s;
}

// ---- what is stored ----

template <class T>
struct math {
    typedef float type;
    enum { LOT = 4 };
};
template <>
struct math<double> {
    typedef double type;
    enum { LOT = 2 };
};

FN float
mul_add(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

FN double
mul_add(double a, double b, double c)
{
    return __fma_rn(a, b, c);
}

template <class T>
FN T
rounded(typename math<T>::type x)
{
    T y;
    put(&y, x);
    return y;
}

// Of [from, to): what is rounded to `to` is `from`.
template <class T>
struct uniform {
    typedef typename math<T>::type number;
    enum { LOT = math<T>::LOT };
    T from, to;
    number range;

    FN uniform(double from, double to)
        : from(rounded<T>((number)from)), to(rounded<T>((number)to))
    {
        range = get(rounded<T>(get(this->to) - get(this->from)));
    }
    FN void take(const lot &l, T (&out)[LOT]) const
    {
        number u[LOT];
        units(l, u);
#pragma unroll
        for (int i = 0; i < LOT; i++) {
            out[i] = rounded<T>(mul_add(u[i], range, get(from)));
            if (get(out[i]) == get(to))
                out[i] = from;
        }
    }
};

template <class T>
struct normal {
    typedef typename math<T>::type number;
    enum { LOT = math<T>::LOT };
    number mean, std;

    FN normal(double mean, double std) : mean((number)mean), std((number)std) {}
    FN void take(const lot &l, T (&out)[LOT]) const
    {
        number u[LOT];
        normals(l, u);
#pragma unroll
        for (int i = 0; i < LOT; i++)
            out[i] = rounded<T>(mul_add(u[i], std, mean));
    }
};

// The number one or zero, of any type.
FN void
put_bit(bf16 *p, bool x)
{
    p->bits = x ? 0x3f80 : 0;
}

FN void
put_bit(f16 *p, bool x)
{
    p->bits = x ? 0x3c00 : 0;
}

template <class T>
FN void
put_bit(T *p, bool x)
{
    *p = (T)x;
}

// U: what is drawn, and compared as N.
template <class T, class U, class N>
struct bernoulli {
    enum { LOT = math<U>::LOT };
    N p;

    FN bernoulli(double p) : p((N)p) {}
    FN void take(const lot &l, T (&out)[LOT]) const
    {
        U u[LOT];
        units(l, u);
#pragma unroll
        for (int i = 0; i < LOT; i++)
            put_bit(&out[i], (N)u[i] < p);
    }
};

// Of [low, low + range): the remainder of a word, of two for wide ranges.
template <class T, int WORDS>
struct integers {
    enum { LOT = 4 / WORDS };
    u64 range;
    s64 low;

    FN integers(s64 low, u64 range) : range(range), low(low) {}
    FN void take(const lot &l, T (&out)[LOT]) const
    {
#pragma unroll
        for (int i = 0; i < LOT; i++) {
            const u64 w = WORDS == 1 ? l.w[i] : (u64)l.w[i * WORDS] << 32 | l.w[i * WORDS + WORDS - 1];
            store(&out[i], (s64)(WORDS == 1 ? (u32)w % (u32)range : w % range) + low);
        }
    }
    template <class P>
    FN static void store(P *p, s64 x)
    {
        *p = (P)x;
    }
    FN static void store(bf16 *p, s64 x)
    {
        put(p, (float)x);
    }
    FN static void store(f16 *p, s64 x)
    {
        put(p, (float)x);
    }
};

// ---- which element gets which ----

// The numbers of a lot are a round of all threads apart.
template <class T, class D>
FN void
draw(T *y, u64 seed, u64 offset, s64 total, const D &of)
{
    const s64 round = gridDim.x * 256ll, thread = blockIdx.x * 256ll + threadIdx.x;
    u64 next = offset / 4;
    release();
    await();
    for (s64 i = thread; i < total; i += round * D::LOT) {
        T out[D::LOT];
        of.take(philox(seed, next++, thread), out);
#pragma unroll
        for (int k = 0; k < D::LOT; k++)
            if (i + k * round < total)
                y[i + k * round] = out[k];
    }
}

// A thread draws for WIDE elements side by side, from a lot that is its own
// also where it takes but two numbers of it. `total` is a multiple of WIDE.
template <int WIDE, class T, class D>
FN void
draw_wide(T *y, u64 seed, u64 offset, s64 total, const D &of)
{
    static_assert(D::LOT == 4, "lots of four");
    const s64 round = gridDim.x * 256ll, thread = blockIdx.x * 256ll + threadIdx.x;
    u64 next = offset / 4;
    release();
    await();
    for (s64 i = thread * WIDE; i < total; i += round * WIDE)
#pragma unroll
        for (int first = 0; first < WIDE; first += 4) {
            T out[4];
            of.take(philox(seed, next++, thread), out);
#pragma unroll
            for (int k = 0; k < (WIDE < 4 ? WIDE : 4); k++)
                y[i + first + k] = out[k];
        }
}
