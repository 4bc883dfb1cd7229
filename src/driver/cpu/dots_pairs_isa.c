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
 * Rows are read as streams, as in gemv_isa.c. Sums are floats. */
#include "driver/cpu/gemm_pairs.h"
#include "driver/cpu/gemm_vec.h"

#define PREFETCH    512        /* bytes ahead of the loads of w */
#define STREAMS     8          /* at most */
#define DOT_MAX     12         /* rows of x at once */
#define PIECE_BYTES (16 << 10) /* of x in the first cache */

/* How rows of w lie: numbers of a vector, x in their order; GROUPED: one scale
 * for each group, else one for all of a row. */
enum { PAIRS, BYTES, GROUPED_BYTES, NIBBLES };

typedef struct {
    const char *x;
    int64_t xs, k0, k1; /* bytes from row to row; numbers at hand */
    const char *w[STREAMS];
    float (*s)[GEMM_GROUPS_MAX + VL]; /* scales; a vector may be loaded behind
                                         the last one */
    int64_t group;
    vi lane_group; /* of lane i, in a vector that has several groups */
} dot_rows;

INLINE int
bits_of(const int form)
{
    return form == PAIRS ? 16 : form == NIBBLES ? 4 : 8;
}

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

typedef short table __attribute__((vector_size(64)));
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

/* Bytes `first` and first + 2 of each lane. */
INLINE __m512i
two_bytes(__m512i v, const unsigned first)
{
    __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * first), 24);
    __m512i high = _mm512_srai_epi32(_mm512_slli_epi32(v, 8 - 8 * first), 24);
    __m512i a = (__m512i)_mm512_cvtepi32_ps(low);
    __m512i b = (__m512i)_mm512_cvtepi32_ps(high);
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b); /* exact: 8 bits */
}

/* Bytes in two pieces cost M products more than whole ones. */
INLINE bool
whole_bytes(const int form, const int M)
{
    return form != NIBBLES && M >= 4;
}

/* Piece j of each word of v, for M rows of x. */
INLINE __m512i
piece(const int form, const int M, __m512i v, const int j)
{
    if (form == NIBBLES)
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 4 * j),
                                        (__m512i)stored_plus_8);
    if (whole_bytes(form, M))
        return two_bytes(v, (unsigned)j);
    if (j % 2 == 0)
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 4 * j),
                                        (__m512i)low_of_byte);
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(v, 4 * j - 1),
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

INLINE vf
lane_scales(const dot_rows *d, const int form, int r, int64_t g)
{
    const float *s = d->s[r] + g;
    if (d->group >= 512 / bits_of(form))
        return set(*s);
    return __builtin_shuffle(load(s), d->lane_group);
}

/* A vector of row r of w from number k on; those that `some` leaves out are 0.
 */
INLINE __m512i
get_row(const dot_rows *d, const int form, int r, int64_t k, const bool all,
        __mmask64 some)
{
    const char *w = d->w[r] + k * bits_of(form) / 8;
    __builtin_prefetch(w + PREFETCH);
    return all ? _mm512_loadu_si512(w) : _mm512_maskz_loadu_epi8(some, w);
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
words_step(const int M, const int R, const int form, vf total[][STREAMS],
           const dot_rows *d, int64_t k, const bool all, __mmask64 some)
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
        vf s = form == BYTES ? set(1) : lane_scales(d, form, r, g);
        UNROLL for (int m = 0; m < M; m++) total[m][r] =
            form == BYTES ? c[m] : fma_(c[m], s, total[m][r]);
    }
}

INLINE void
dot_step(const int M, const int R, const int form, vf total[][STREAMS],
         const dot_rows *d, int64_t k, const bool all, __mmask64 some)
{
    if (form == PAIRS)
        pairs_step(M, R, total, d, k, all, some);
    else
        words_step(M, R, form, total, d, k, all, some);
}

/* t[m * GEMV_NB + at[r]] (+)= over k in [k0, k1): M rows of x, R rows of w. */
INLINE void
dot_tile(const int M, const int R, const int form, float *t, const dot_rows *d,
         const int64_t *at)
{
    const int64_t step = 512 / bits_of(form);
    const int64_t even = d->k0 + (d->k1 - d->k0) / step * step;
    vf total[DOT_MAX][STREAMS];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
        total[m][r] = (vf){0};
    for (int64_t k = d->k0; k < even; k += step)
        dot_step(M, R, form, total, d, k, true, 0);
    if (even < d->k1) {
        int64_t bytes = (d->k1 - even) * bits_of(form) / 8;
        dot_step(M, R, form, total, d, even, false,
                 ((__mmask64)1 << bytes) - 1);
    }
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
    {
        float s = _mm512_reduce_add_ps((__m512)total[m][r]);
        float *to = &t[m * GEMV_NB + at[r]];
        s = form == BYTES ? s * d->s[r][0] : s;
        *to = d->k0 == 0 ? s : *to + s;
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

#define DOT(M, R, form)                                       \
    static void dot_##form##_##M(float *t, const dot_rows *d, \
                                 const int64_t *at)           \
    {                                                         \
        dot_tile(M, R, form, t, d, at);                       \
    }
ALL_TILES(DOT)
static const struct {
    int streams;
    void (*run)(float *t, const dot_rows *d, const int64_t *at);
} tiles[NIBBLES + 1][DOT_MAX + 1] = {
#define DOT_ROW(M, R, form) [form][M] = {R, dot_##form##_##M},
    ALL_TILES(DOT_ROW)
#undef DOT_ROW
};

/* The scales that row n needs from k0 to k1, as floats; and the next row's are
 * asked for: runs this short, one for each stream, no CPU fetches by itself. */
static void
open_scales(const dot_rows *d, float *s, const gemm_words *from, int64_t n)
{
    const int64_t size = from->scale_dtype == AIR_F32 ? 4 : 2;
    const char *p = (const char *)from->scale + n * from->groups * size;
    int64_t g = d->k0 / d->group;
    int64_t end = min64((d->k1 - 1) / d->group + 1, from->groups);
    for (int64_t i = g; from->scale != NULL && i < end; i += 64 / size)
        __builtin_prefetch(p + (i + from->groups) * size);
    for (; from->scale != NULL && g + VL <= end; g += VL)
        store(s + g, vget(p, g, from->scale_dtype));
    for (; g < end; g++)
        s[g] = from->scale == NULL ? 1 : get(p, g, from->scale_dtype);
    store(s + end, (vf){0});
}

/* All of a block of nn rows of w with one tile's rows of x: row i of every
 * stream; one that is out of rows does the last one again, for nothing. */
static void
dot_block(float *t, dot_rows *d, const int form, int64_t rows, int64_t nn,
          const char *w, int64_t row, const gemm_words *from)
{
    int64_t streams = tiles[form][rows].streams, at[STREAMS];
    int64_t each = (nn + streams - 1) / streams;
    for (int64_t i = 0; i < each; i++) {
        for (int64_t r = 0; r < streams; r++) {
            int64_t n = min64(i + r * each, nn - 1);
            at[r] = i + r * each < nn ? n : GEMV_NB - 1;
            d->w[r] = w + n * row;
            if (form != PAIRS)
                open_scales(d, d->s[r], from, n);
        }
        tiles[form][rows].run(t, d, at);
    }
}

/* Pieces of x that stay in the first cache meet the block of w, which comes
 * from memory to the second with the first of them. */
static void
dot_pieces(float *t, int64_t nm, dot_rows *d, const int form, int64_t nn,
           const char *w, int64_t row, const gemm_words *from)
{
    const char *x = d->x;
    const int64_t most = form == PAIRS ? DOT_MAX : 8, k = d->k1;
    const int64_t parts = (nm + most - 1) / most;
    const int64_t rows = (nm + parts - 1) / parts;
    const int64_t piece = PIECE_BYTES / 2 / rows / 128 * 128;
    do {
        d->k1 = min64(k, d->k0 + piece);
        for (int64_t m = 0; m < nm; m += rows) {
            d->x = x + m * d->xs;
            dot_block(t + m * GEMV_NB, d, form, min64(rows, nm - m), nn, w, row,
                      from);
        }
        d->k0 = d->k1;
    } while (d->k0 < k);
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
    const int64_t step = 512 / bits, lane = step / VL;
    return groups == 1 || (groups <= GEMM_GROUPS_MAX && group % lane == 0 &&
                           (group % step == 0 || step % group == 0));
}

void
cpu_pairs_dots_words(float *t, int64_t nm, const uint16_t *x, int64_t xs,
                     int64_t nn, int bits, const gemm_words *from)
{
    float s[STREAMS][GEMM_GROUPS_MAX + VL];
    const int form = bits == 4           ? NIBBLES
                     : from->groups == 1 ? BYTES
                                         : GROUPED_BYTES;
    dot_rows d = {.x = (const char *)x,
                  .xs = xs * 2,
                  .k1 = from->row * 8 / bits,
                  .s = s,
                  .group = from->group > 0 ? from->group : 1};
    for (int i = 0; i < VL; i++)
        d.lane_group[i] = (int32_t)min64(i * 32 / bits / d.group, VL - 1);
    dot_pieces(t, nm, &d, form, nn, (const char *)from->q, from->row, from);
}
