// unpack.cuh: y[n, k] = q[n, k] * scale[n, k / GROUP] + zero[n, k / GROUP] of
// integers of 8 or 4 bits; rows lie dense. scale, zero null: 1, 0.
template <int BITS>
FN int
number_of(u32 word, int i)
{
    return BITS == 8 ? (s8)(word >> i * 8) : (int)(word >> i * 4 & 15) - 8;
}

// Bytes that lie side by side, as words.
template <int COUNT>
FN void
take_bytes(u32 (&to)[(COUNT + 3) / 4], const u8 *from)
{
    if (COUNT % 4 == 0 && ((u64)from & 3) == 0) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++)
            to[i] = ((const u32 *)from)[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i / 4] = (i % 4 ? to[i / 4] : 0) | (u32)from[i] << i % 4 * 8;
}

template <class F, int COUNT>
FN void
give_row(F *to, const F (&from)[COUNT])
{
    if constexpr (COUNT * sizeof(F) % 16 == 0)
#pragma unroll
        for (int i = 0; i < (int)(COUNT * sizeof(F) / 16); i++)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    else
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            to[i] = from[i];
}

// y: 16-byte aligned. K: even where there are 4 bits.
template <class F, int BITS, int K, int GROUP, class Q, class Z>
FN void
unpack_rows(F *y, const u8 *q, const Q *scale, const Z *zero, s64 total)
{
    const int EACH = K % 8 == 0 ? 8 : 2 - K % 2, BYTES = EACH * BITS / 8;
    typedef decltype(get(F())) R;
    release();
    await();
    for (s64 i = (blockIdx.x * 256ll + threadIdx.x) * EACH; i < total;
         i += gridDim.x * 256ll * EACH) {
        const s64 n = i / K;
        const int k = (int)(i - n * K);
        __align__(16) F to[EACH];
        u32 word[(BYTES + 3) / 4];
        take_bytes<BYTES>(word, q + i * BITS / 8);
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const s64 at = n * (K / GROUP) + (k + e) / GROUP;
            R v = (R)number_of<BITS>(word[e * BITS / 32], e % (32 / BITS));
            if (scale)
                v *= (R)get(scale[at]);
            if (zero)
                v += (R)get(zero[at]);
            put(to + e, v);
        }
        give_row(y + i, to);
    }
}
