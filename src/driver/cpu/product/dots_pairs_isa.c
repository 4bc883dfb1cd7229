/* dots_pairs_isa.c: dot products of few rows of bf16 with many rows of bf16, or
 * of numbers of 8 or 4 bits, with VDPBF16PS. Lanes lie along k.
 *
 * Integers become bf16 by a table that a vector of words looks up in itself: a
 * shift brings a piece of each word to its low five bits, and no number moves
 * across words. Four bits are one piece. Eight are two, whose tables have exact
 * numbers that add up: multiples of 16 by bits 3 to 7, the rest, -8 to 7, by
 * bits 0 to 3; for several rows of x they are converted instead. In return x
 * lies in the order of what comes out: of each vector of words the first number
 * of all words, then the second of all (order).
 *
 * Rows are read as streams, as in gemv_isa.c. Sums are floats. With many rows
 * of x integers become pairs once, a block of rows at a time, in the second
 * cache; those of a group scaled, where they may be rounded. */
#include "driver/cpu/product/dots_rows.h"
#include "driver/cpu/product/gemm_pairs.h"

#define DOT_MAX     12         /* rows of x at once */
#define WORDS_MAX   8          /* with integers */
#define WHOLE       4          /* from so many on bytes are one piece */
#define PIECE_BYTES (16 << 10) /* of x in the first cache */

/* c + a vector of x times w, for each of M rows of x. A vector of few rows is
 * in a register for all rows of w; of more it is read by the instruction: kept,
 * they would push sums out of the registers. */
INLINE vf
product(const int M, vf c, const char *x, __m512i w)
{
    typedef vi unaligned __attribute__((aligned(1), may_alias));
    if (M <= 2)
        return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_loadu_si512(x),
                                    (__m512bh)w);
    __asm__("vdpbf16ps %2, %1, %0"
            : "+v"(c)
            : "v"(w), "m"(*(const unaligned *)(const void *)x));
    return c;
}

/* ---- integers as bf16 ---- */

/* Of x = -8, -7 .. 7 times 1, -8 to 8 times 16: exact. */
#define B(x)                                                 \
    (short)((x) == 0  ? 0                                    \
            : (x) < 0 ? (0x8000 - 0x10000) | MAGNITUDE(-(x)) \
                      : MAGNITUDE(x))
#define MAGNITUDE(x)                     \
    ((x) >= 128  ? 0x4300                \
     : (x) >= 64 ? 0x4280 + ((x)-64) * 2 \
     : (x) >= 32 ? 0x4200 + ((x)-32) * 4 \
     : (x) >= 16 ? 0x4180 + ((x)-16) * 8 \
     : (x) >= 8  ? 0x4100 + ((x)-8) * 16 \
     : (x) >= 4  ? 0x4080 + ((x)-4) * 32 \
     : (x) >= 2  ? 0x4000 + ((x)-2) * 64 \
                 : 0x3f80)

#define TWICE(...)               \
    {                            \
        __VA_ARGS__, __VA_ARGS__ \
    }

/* The fifth bit belongs to the number behind it. */
static const table stored_plus_8 =
    TWICE(B(-8), B(-7), B(-6), B(-5), B(-4), B(-3), B(-2), B(-1), B(0), B(1),
          B(2), B(3), B(4), B(5), B(6), B(7));
static const table low_of_byte =
    TWICE(B(0), B(1), B(2), B(3), B(4), B(5), B(6), B(7), B(-8), B(-7), B(-6),
          B(-5), B(-4), B(-3), B(-2), B(-1));
static const table high_of_byte = {
    B(0),    B(16),   B(16),   B(32),  B(32),  B(48),  B(48),  B(64),
    B(64),   B(80),   B(80),   B(96),  B(96),  B(112), B(112), B(128),
    B(-128), B(-112), B(-112), B(-96), B(-96), B(-80), B(-80), B(-64),
    B(-64),  B(-48),  B(-48),  B(-32), B(-32), B(-16), B(-16), B(0)};

/* The low byte of each lane of v as a float: at bits 0 to 7 of 2^23, or at bits
 * 8 to 15 of 2^15, it counts as it is. */
INLINE __m512i
low_byte(__m512i v, const unsigned at)
{
    const int32_t magic = at == 0 ? 0x4b000000 : 0x47000000;
    const float middle = (at == 0 ? 8388608.0f : 32768.0f) + 128;
    __m512i u = _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(0xff << at),
                                          _mm512_set1_epi32(magic | 0x80 << at),
                                          0x6a); /* (v & b) ^ c */
    return (__m512i)((vf)u - set(middle));
}

/* Bytes `first` and first + 2 of each lane. */
INLINE __m512i
two_bytes(__m512i v, const unsigned first)
{
    __m512i a = low_byte(v, 8 * first);
    __m512i b = low_byte(_mm512_srli_epi32(v, 8 + 8 * first), 8);
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b); /* exact: 8 bits */
}

/* Bytes in two pieces cost M products more than whole ones. */
INLINE bool
whole_bytes(const int form, const int M)
{
    return form != NIBBLES && M >= WHOLE;
}

/* Piece j of each word of v, for M rows of x. */
INLINE __m512i
piece(const int form, const int M, __m512i v, const int j)
{
    /* an int to some compilers, unsigned to others */
    const uint8_t bit = (uint8_t)(4 * j);
    if (form == NIBBLES)
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, bit),
                                        (__m512i)stored_plus_8);
    if (whole_bytes(form, M))
        return two_bytes(v, (unsigned)j);
    if (j % 2 == 0)
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, bit),
                                        (__m512i)low_of_byte);
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, (uint8_t)(bit - 1)),
                                    (__m512i)high_of_byte);
}

/* The vector of x in order that piece j is multiplied with. */
INLINE int
of_piece(const int form, const int M, const int j)
{
    return form == NIBBLES || whole_bytes(form, M) ? j : j / 2;
}

/* ---- x in the order of pieces ---- */

/* Numbers `at` and those `step` further of 32 x of p, one after the other. */
INLINE void
put_every(uint16_t *dst, const uint16_t *p, const int step, const unsigned at)
{
    for (int i = 0; i < 32; i += 32 / step) {
        __m512i v = _mm512_loadu_si512(p + i * step);
        if (step == 2)
            _mm256_storeu_si256(
                (__m256i *)(void *)(dst + i),
                _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16 * at)));
        else
            _mm_storeu_si128(
                (__m128i *)(void *)(dst + i),
                _mm512_cvtepi64_epi16(_mm512_srli_epi64(v, 16 * at)));
    }
}

void
cpu_pairs_order(uint16_t *dst, const uint16_t *x, int bits, int64_t n)
{
    const int step = 16 / bits, size = 32 * step;
    for (int64_t k = 0; k < n; k += size, dst += size) {
        uint16_t last[128] = {0};
        const uint16_t *p = x + k;
        if (n - k < size) {
            memcpy(last, p, (size_t)(n - k) * sizeof *p);
            p = last;
        }
        for (int j = 0; j < step; j++)
            if (step == 2)
                put_every(dst + 32 * j, p, 2, (unsigned)j);
            else
                put_every(dst + 32 * j, p, 4, (unsigned)j);
    }
}

/* ---- dot products ---- */

/* Of a row that has one. */
INLINE float
row_scale(const dot_rows *d, int r)
{
    return get(d->s[r], 0, d->scale_dtype);
}

/* total[m][r] += over a vector of w, which are pairs themselves. */
INLINE void
pairs_step(const int M, const int R, vf total[][STREAMS], const dot_rows *d,
           int64_t k, const bool all, __mmask64 some)
{
    const char *x = d->x + 2 * k;
    __m512i w[STREAMS];
    UNROLL for (int r = 0; r < R; r++) w[r] =
        get_row(d, PAIRS, r, k, all, some);
    UNROLL for (int m = 0; m < M; m++)
    {
        const char *p = x + m * d->xs;
        __m512i v =
            all ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8(some, p);
        UNROLL for (int r = 0; r < R; r++) total[m][r] = (vf)_mm512_dpbf16_ps(
            (__m512)total[m][r], (__m512bh)v, (__m512bh)w[r]);
    }
}

/* The same of integers. */
INLINE void
words_step(const int M, const int R, const int form, const int scales,
           vf total[][STREAMS], const dot_rows *d, int64_t k, const bool all,
           __mmask64 some)
{
    const char *x = d->x + 2 * k;
    const int64_t g = form == BYTES ? 0 : k / d->group;
    const int pieces = whole_bytes(form, M) ? 2 : 4;
    UNROLL for (int r = 0; r < R; r++)
    {
        vf c[DOT_MAX];
        __m512i v = get_row(d, form, r, k, all, some);
        UNROLL for (int m = 0; m < M; m++) c[m] =
            form == BYTES ? total[m][r] : (vf){0};
        UNROLL for (int j = 0; j < pieces; j++)
        {
            const int at = 64 * of_piece(form, M, j);
            __m512i b = piece(form, M, v, j);
            UNROLL for (int m = 0; m < M; m++) c[m] =
                product(M, c[m], x + m * d->xs + at, b);
        }
        vf s = form == BYTES ? set(1) : lane_scales(d, form, scales, r, g);
        if (!all)
            s = leave_out(s, some);
        UNROLL for (int m = 0; m < M; m++) total[m][r] =
            form == BYTES ? c[m] : fma_(c[m], s, total[m][r]);
    }
}

INLINE void
dot_step(const int M, const int R, const int form, const int scales,
         vf total[][STREAMS], const dot_rows *d, int64_t k, const bool all,
         __mmask64 some)
{
    if (form == PAIRS)
        pairs_step(M, R, total, d, k, all, some);
    else
        words_step(M, R, form, scales, total, d, k, all, some);
}

/* t[m * GEMV_NB + at[r]] (+)= over k in [k0, k1): M rows of x, R rows of w. */
INLINE void
dot_tile(const int M, const int R, const int form, const int scales, float *t,
         const dot_rows *d, const int64_t *at)
{
    const int64_t step = 512 / bits_of(form);
    const int64_t even = d->k0 + (d->k1 - d->k0) / step * step;
    vf total[DOT_MAX][STREAMS];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
        total[m][r] = (vf){0};
    for (int64_t k = d->k0; k < even; k += step)
        dot_step(M, R, form, scales, total, d, k, true, 0);
    if (even < d->k1) {
        int64_t bytes = (d->k1 - even) * bits_of(form) / 8;
        dot_step(M, R, form, scales, total, d, even, false,
                 ((__mmask64)1 << bytes) - 1);
    }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
    {
        float s = _mm512_reduce_add_ps((__m512)total[m][r]);
        float *to = &t[m * GEMV_NB + at[r]];
        s = form == BYTES ? s * row_scale(d, r) : s;
        *to = d->more ? *to + s : s;
    }
}

/* Rows of w of a tile for each number of rows of x: their sums, and what is
 * multiplied, stay in registers. */
#define PAIR_TILES(X) \
    X(1, 8, PAIRS)    \
    X(2, 8, PAIRS)    \
    X(3, 8, PAIRS)    \
    X(4, 6, PAIRS)    \
    X(5, 5, PAIRS)    \
    X(6, 4, PAIRS)    \
    X(7, 4, PAIRS)    \
    X(8, 3, PAIRS)    \
    X(9, 3, PAIRS) X(10, 2, PAIRS) X(11, 2, PAIRS) X(12, 2, PAIRS)
#define TILES(X, form) \
    X(1, 8, form)      \
    X(2, 8, form)      \
    X(3, 6, form)      \
    X(4, 5, form) X(5, 4, form) X(6, 3, form) X(7, 2, form) X(8, 2, form)
#define ALL_TILES(X) \
    PAIR_TILES(X) TILES(X, BYTES) TILES(X, GROUPED_BYTES) TILES(X, NIBBLES)

INLINE void
dot_scaled(const int M, const int R, const int form, float *t,
           const dot_rows *d, const int64_t *at)
{
    const bool known = M == 1 && (form == NIBBLES || form == GROUPED_BYTES);
    if (known && d->scales == BF16_SCALES)
        dot_tile(M, R, form, BF16_SCALES, t, d, at);
    else if (known && d->scales == ONE_SCALE)
        dot_tile(M, R, form, ONE_SCALE, t, d, at);
    else
        dot_tile(M, R, form, ANY_SCALES, t, d, at);
}

#define DOT(M, R, form)                                       \
    static void dot_##form##_##M(float *t, const dot_rows *d, \
                                 const int64_t *at)           \
    {                                                         \
        dot_scaled(M, R, form, t, d, at);                     \
    }
ALL_TILES(DOT)
static const struct {
    int streams;
    dot_tile_run *run;
} tiles[NIBBLES + 1][DOT_MAX + 1] = {
#define DOT_ROW(M, R, form) [form][M] = {R, dot_##form##_##M},
    ALL_TILES(DOT_ROW)
#undef DOT_ROW
};

/* A block of nn rows of w with one tile's rows of x. from: NULL for PAIRS. */
static void
dot_block(float *t, dot_rows *d, const int form, int64_t rows, int64_t nn,
          const char *w, int64_t row, const gemm_words *from, int64_t to)
{
    dot_streams(t, d, tiles[form][rows].run, tiles[form][rows].streams, nn, w,
                row, from, to);
}

/* Rows of x that a tile takes at once, and numbers of them that stay in the
 * first cache. */
typedef struct {
    int64_t rows, piece;
} shape;

static shape
shape_of(int64_t nm, int64_t most)
{
    const int64_t parts = (nm + most - 1) / most;
    const int64_t rows = (nm + parts - 1) / parts;
    return (shape){rows, PIECE_BYTES / 2 / rows / 128 * 128};
}

/* Pieces of x that stay in the first cache meet the block of w, which comes
 * from memory to the second with the first of them. */
static void
dot_pieces(float *t, int64_t nm, dot_rows *d, const int form, int64_t nn,
           const char *w, int64_t row, const gemm_words *from)
{
    const char *x = d->x;
    const int64_t k = d->k1;
    const shape s = shape_of(nm, form == PAIRS ? DOT_MAX : WORDS_MAX);
    do {
        d->k1 = min64(k, d->k0 + s.piece);
        for (int64_t m = 0; m < nm; m += s.rows) {
            d->x = x + m * d->xs;
            dot_block(t + m * GEMV_NB, d, form, min64(s.rows, nm - m), nn, w,
                      row, from, 0);
        }
        d->k0 = d->k1;
        d->more = true;
    } while (d->k0 < k);
}

/* ---- many rows of x ---- */

#define BLOCK      24   /* rows of w at once */
#define BLOCK_LINE 2368 /* bytes of one: the longest piece, and some */

/* Scaled and rounded to bf16. */
INLINE __m512i
scaled(__m512i v, vf s)
{
    const table turn = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    vf low = (vf)_mm512_slli_epi32(v, 16) * s;
    vf high = (vf)_mm512_and_si512(v, _mm512_set1_epi32(-65536)) * s;
    return _mm512_permutexvar_epi16(
        (__m512i)turn, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}

/* The numbers k0 to k1 of a row as they are multiplied, zeros behind them. */
INLINE void
unpack_row(const int form, char *to, const dot_rows *d, int64_t ahead)
{
    const int64_t step = 512 / bits_of(form);
    const int pieces = form == NIBBLES ? 4 : 2;
    for (int64_t k = d->k0; k < d->k1; k += step) {
        const int64_t bytes = (d->k1 - k) * bits_of(form) / 8;
        const bool all = bytes >= 64;
        const __mmask64 some =
            all ? ~(__mmask64)0 : ((__mmask64)1 << bytes) - 1;
        const char *w = d->w[0] + k * bits_of(form) / 8;
        __m512i v = _mm512_maskz_loadu_epi8(some, w);
        __builtin_prefetch(w + ahead, 0, 2);
        vf s = form == BYTES
                   ? set(1)
                   : lane_scales(d, form, ANY_SCALES, 0, k / d->group);
        s = leave_out(s, some);
        UNROLL for (int j = 0; j < pieces; j++, to += 64)
        {
            __m512i b = piece(form, DOT_MAX, v, j);
            _mm512_storeu_si512(to, form == BYTES ? b : scaled(b, s));
        }
    }
}

/* nn rows from row `first` on. */
static void
unpack_block(const int form, char *to, dot_rows *d, int64_t nn, int64_t first,
             const gemm_words *from)
{
    const int64_t row = from->row;
    for (int64_t n = 0; n < nn; n++, to += BLOCK_LINE) {
        d->w[0] = (const char *)from->q + (first + n) * row;
        d->s[0] = open_scales(d, d->room[0], from, first + n, nn - 1 - n);
        if (form == NIBBLES)
            unpack_row(NIBBLES, to, d, BLOCK * row);
        else if (form == BYTES)
            unpack_row(BYTES, to, d, BLOCK * row);
        else
            unpack_row(GROUPED_BYTES, to, d, BLOCK * row);
    }
}

/* t of rows that have one scale each. */
static void
scale_rows(float *t, int64_t nm, int64_t nn, const gemm_words *from)
{
    float s[GEMV_NB];
    if (from->scale == NULL)
        return;
    for (int64_t n = 0; n < nn; n++)
        s[n] = get(from->scale, n, from->scale_dtype);
    for (int64_t m = 0; m < nm; m++)
        for (int64_t n = 0; n < nn; n++)
            t[m * GEMV_NB + n] *= s[n];
}

/* nn <= BLOCK rows of w, from row `to` on. */
static void
dot_unpacked(float *t, int64_t nm, dot_rows d, const int form, int64_t nn,
             const gemm_words *from, int64_t to)
{
    _Alignas(64) char block[BLOCK * BLOCK_LINE];
    const int64_t step = 512 / bits_of(form), k = d.k1;
    const shape s = shape_of(nm, DOT_MAX);
    const int64_t most = min64(s.piece, BLOCK_LINE / 2 / 128 * 128);
    dot_rows p = {.xs = d.xs};
    for (; d.k0 < k; d.k0 = d.k1) {
        d.k1 = min64(k, d.k0 + most);
        unpack_block(form, block, &d, nn, to, from);
        p.k1 = (d.k1 - d.k0 + step - 1) / step * step;
        p.more = d.k0 > 0;
        for (int64_t m = 0; m < nm; m += s.rows) {
            p.x = d.x + m * d.xs + 2 * d.k0;
            dot_block(t + m * GEMV_NB, &p, PAIRS, min64(s.rows, nm - m), nn,
                      block, BLOCK_LINE, NULL, to);
        }
    }
}

static void
dot_blocks(float *t, int64_t nm, const dot_rows *d, const int form, int64_t nn,
           const gemm_words *from)
{
    for (int64_t n = 0; n < nn; n += BLOCK)
        dot_unpacked(t, nm, *d, form, min64(BLOCK, nn - n), from, n);
    if (form == BYTES)
        scale_rows(t, nm, nn, from);
}

/* The pieces of a byte may be infinite, and differ in sign, where their sum is
 * infinite or not at all so: what became NaN is made again of whole bytes. */
static void
mend(float *t, int64_t nm, const dot_rows *d, const int form, int64_t nn,
     const gemm_words *from)
{
    float again[WHOLE * GEMV_NB];
    int nans = 0;
    for (int64_t m = 0; m < nm; m++)
        for (int64_t n = 0; n < nn; n++)
            nans |= t[m * GEMV_NB + n] != t[m * GEMV_NB + n];
    if (!nans)
        return;
    dot_blocks(again, nm, d, form, nn, from);
    for (int64_t m = 0; m < nm; m++)
        for (int64_t n = m * GEMV_NB; n < m * GEMV_NB + nn; n++)
            t[n] = t[n] != t[n] ? again[n] : t[n];
}

void
cpu_pairs_dots(float *t, int64_t nm, const float *x, int64_t xs, int64_t nn,
               const void *w, int64_t rs, int dtype, int64_t k)
{
    dot_rows d = {.x = (const char *)x, .xs = xs * 4, .k1 = k * 2};
    (void)dtype;
    dot_pieces(t, nm, &d, PAIRS, nn, w, rs * 4, NULL);
}

bool
cpu_pairs_take(int bits, int64_t group, int64_t groups)
{
    const int64_t step = 512 / bits;
    return groups == 1 || (groups <= GEMM_GROUPS_MAX && group > 0 &&
                           (group % step == 0 ||
                            (step % group == 0 && step / group <= SCALES)));
}

void
cpu_pairs_dots_words(float *t, int64_t nm, const uint16_t *x, int64_t xs,
                     int64_t nn, int bits, const gemm_words *from)
{
    float s[STREAMS][GEMM_GROUPS_MAX + VL];
    const int form = form_of(bits, from);
    dot_rows d = rows_of(bits, from, s);
    d.x = (const char *)x, d.xs = xs * 2;
    const dot_rows all = d;
    const int64_t few = form == NIBBLES ? DOT_MAX : WORDS_MAX;
    if (nm > few && (form == BYTES || from->rounded)) {
        dot_blocks(t, nm, &d, form, nn, from);
        return;
    }
    dot_pieces(t, nm, &d, form, nn, (const char *)from->q, from->row, from);
    if (form != NIBBLES && nm < WHOLE)
        mend(t, nm, &all, form, nn, from);
}
