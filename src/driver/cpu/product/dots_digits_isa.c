/* dots_digits_isa.c: dot products of few rows of half precision with many rows
 * of numbers of 4 bits, or of 8 in groups, with VPDPBUSD. Lanes lie along k. (8
 * bits with one scale a row are floats as fast as they are read: gemv_isa.c.)
 *
 * Where VDPBF16PS takes two cycles (Intel), making floats of the numbers costs
 * more than reading them. So x becomes integers instead, once: the eight (of
 * bytes four) numbers that meet in a lane get one exponent, 2^e <= the largest
 * of them < 2^(e + 1), and each is round(x * 2^(DEPTH - e)), three digits of 8
 * bits with a sign. That is x itself where it is not 2^-11 and less of the
 * largest, and else off by half of 2^(e - DEPTH): what a float's sum loses,
 * too. A number of w less its offset, as VPDPBUSD wants it, is multiplied with
 * one digit after the other, highest first; what the offset adds is taken off.
 *
 * A block of x is what one vector of w meets: digits as [digit][part][lane],
 * `offset`, an integer for each lane, and its unit, a float. A part is what a
 * byte of w gives: of nibbles the lower and the upper half. */
#include "driver/cpu/product/dots_rows.h"
#include "driver/cpu/product/gemm_digits.h"

#define ROWS_AT_ONCE 8 /* of x */

INLINE int
parts_of(const int form)
{
    return form == NIBBLES ? 2 : 1;
}

/* Sums of a lane: 15 * 8 or 255 * 4 times 2^(DEPTH + 1) are below 2^31. */
INLINE int
depth_of(const int form)
{
    return form == NIBBLES ? 21 : 19;
}

/* ---- x as digits --------------------------------------------------------- */

#define LEAST 47 /* exponents below are taken for this one: 2^-80 */

/* Numbers 4 * VL of a block as bytes of one digit. */
INLINE void
put_digit(char *to, const int parts, const vi *v)
{
    const int each = 4; /* bytes of a lane */
    for (int p = 0; p < parts; p++) {
        vi word = {0};
        UNROLL for (int i = 0; i < each; i++) word |= (v[i * parts + p] & 255)
                                                      << (8 * i);
        store((float *)(void *)(to + 64 * p), (vf)word);
    }
}

/* The exponents of lanes, biased; all ones where one is not finite. */
INLINE vi
exponents(const int per, const vf *x)
{
    __m512i most = _mm512_set1_epi32(LEAST << 23);
    for (int j = 0; j < per; j++)
        most = _mm512_max_epi32(
            most,
            _mm512_and_si512((__m512i)x[j], _mm512_set1_epi32(INT32_MAX)));
    return (vi)_mm512_srli_epi32(most, 23);
}

/* x: 16 * per numbers, those of a lane side by side. */
INLINE void
make_block(char *to, const int form, const float *x)
{
    const int parts = parts_of(form), per = 4 * parts, depth = depth_of(form);
    const vi lanes = LANE_NUMBERS;
    vf f[8];
    vi v[8], sum = {0};
    UNROLL for (int j = 0; j < per; j++) f[j] =
        (vf)_mm512_i32gather_ps((__m512i)(lanes * per), x + j, 4);
    const vi e = exponents(per, f);
    const vf up = (vf)((depth + 254 - e) << 23);
    vf unit = (vf)((e - depth) << 23);
    unit = (vf)_mm512_mask_mov_ps(
        (__m512)unit,
        _mm512_cmpeq_epi32_mask((__m512i)e, _mm512_set1_epi32(255)),
        _mm512_set1_ps(__builtin_nanf("")));
    UNROLL for (int j = 0; j < per; j++)
    {
        v[j] = (vi)_mm512_cvtps_epi32((__m512)(f[j] * up));
        sum += v[j];
    }
    for (int d = DIGITS - 1; d >= 0; d--) { /* the lowest, which is last */
        put_digit(to + 64 * parts * d, parts, v);
        for (int j = 0; j < per; j++)
            v[j] = (v[j] + 128) >> 8;
    }
    to += 64 * DIGITS * parts;
    store((float *)(void *)to, (vf)(sum * (form == NIBBLES ? -8 : -128)));
    store((float *)(void *)(to + 64), unit);
}

void
cpu_digits_make(void *dst, const float *x, int bits, int64_t n)
{
    const int form = bits == 4 ? NIBBLES : GROUPED_BYTES;
    const int64_t size = cpu_digits_of_block(bits);
    char *to = dst;
    for (int64_t k = 0; k < n; k += size, to += cpu_digits_block(bits)) {
        float last[128] = {0};
        const float *p = x + k;
        if (n - k < size) {
            memcpy(last, p, (size_t)(n - k) * sizeof *p);
            p = last;
        }
        if (form == NIBBLES)
            make_block(to, NIBBLES, p);
        else
            make_block(to, GROUPED_BYTES, p);
    }
}

/* ---- dot products -------------------------------------------------------- */

/* c + the product of one digit of x. */
INLINE __m512i
add_digit(const int parts, __m512i c, const __m512i *w, const char *x)
{
    UNROLL for (int p = 0; p < parts; p++) c =
        _mm512_dpbusd_epi32(c, w[p], _mm512_loadu_si512(x + 64 * p));
    return c;
}

/* The sum of each lane of a vector of w times its block of x. */
INLINE vf
lane_sums(const int form, const __m512i *w, const char *x)
{
    const int parts = parts_of(form), digit = 64 * parts;
    __m512i c = add_digit(parts, _mm512_setzero_si512(), w, x);
    c = add_digit(parts, _mm512_slli_epi32(c, 8), w, x + digit);
    x += 2 * digit;
    /* beside the others, which wait for each other */
    __m512i low = _mm512_loadu_si512(x + digit);
    low = add_digit(parts, low, w, x);
    c = _mm512_add_epi32(_mm512_slli_epi32(c, 8), low);
    return (vf)_mm512_cvtepi32_ps(c) *
           load((const float *)(const void *)(x + digit + 64));
}

/* total[m][r] += over a vector of w. */
INLINE void
digits_step(const int M, const int R, const int form, const int scales,
            vf total[][STREAMS], const dot_rows *d, int64_t k, const bool all,
            __mmask64 some)
{
    const int bits = bits_of(form);
    const char *x =
        d->x + k / cpu_digits_of_block(bits) * cpu_digits_block(bits);
    const int64_t g = k / d->group;
    UNROLL for (int r = 0; r < R; r++)
    {
        const __m512i half = _mm512_set1_epi8(15);
        __m512i v = get_row(d, form, r, k, all, some), w[2];
        if (form == NIBBLES) {
            w[0] = _mm512_and_si512(v, half);
            w[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), half);
        } else {
            w[0] = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
        }
        vf s = lane_scales(d, form, scales, r, g);
        if (!all)
            s = leave_out(s, some);
        UNROLL for (int m = 0; m < M; m++) total[m][r] =
            fma_(lane_sums(form, w, x + m * d->xs), s, total[m][r]);
    }
}

/* t[m * GEMV_NB + at[r]] of M rows of x and R rows of w. */
INLINE void
digits_tile(const int M, const int R, const int form, const int scales,
            float *t, const dot_rows *d, const int64_t *at)
{
    const int64_t step = cpu_digits_of_block(bits_of(form));
    const int64_t even = d->k1 / step * step;
    vf total[ROWS_AT_ONCE][STREAMS];
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
        total[m][r] = (vf){0};
    for (int64_t k = 0; k < even; k += step)
        digits_step(M, R, form, scales, total, d, k, true, 0);
    if (even < d->k1)
        digits_step(M, R, form, scales, total, d, even, false,
                    ((__mmask64)1 << (d->k1 - even) * bits_of(form) / 8) - 1);
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
        t[m * GEMV_NB + at[r]] = _mm512_reduce_add_ps((__m512)total[m][r]);
}

/* Rows of w of a tile for each number of rows of x. */
#define TILES(X, form) \
    X(1, 8, form)      \
    X(2, 8, form)      \
    X(3, 5, form)      \
    X(4, 4, form) X(5, 3, form) X(6, 3, form) X(7, 2, form) X(8, 2, form)
#define ALL_TILES(X) TILES(X, GROUPED_BYTES) TILES(X, NIBBLES)
#define DOT(M, R, form)                                       \
    static void dot_##form##_##M(float *t, const dot_rows *d, \
                                 const int64_t *at)           \
    {                                                         \
        if (d->scales == BF16_SCALES)                         \
            digits_tile(M, R, form, BF16_SCALES, t, d, at);   \
        else if (d->scales == ONE_SCALE)                      \
            digits_tile(M, R, form, ONE_SCALE, t, d, at);     \
        else                                                  \
            digits_tile(M, R, form, ANY_SCALES, t, d, at);    \
    }
ALL_TILES(DOT)
static const struct {
    int streams;
    dot_tile_run *run;
} tiles[NIBBLES + 1][ROWS_AT_ONCE + 1] = {
#define DOT_ROW(M, R, form) [form][M] = {R, dot_##form##_##M},
    ALL_TILES(DOT_ROW)
#undef DOT_ROW
};

void
cpu_digits_dots(float *t, int64_t nm, const void *x, int64_t xs, int64_t nn,
                int bits, const gemm_words *from)
{
    float s[STREAMS][GEMM_GROUPS_MAX + VL];
    const int64_t parts = (nm + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    const int64_t rows = (nm + parts - 1) / parts;
    const int form = form_of(bits, from);
    dot_rows d = rows_of(bits, from, s);
    d.xs = xs;
    for (int64_t m = 0; m < nm; m += rows) {
        const int64_t some = min64(rows, nm - m);
        d.x = (const char *)x + m * xs;
        dot_streams(t + m * GEMV_NB, &d, tiles[form][some].run,
                    tiles[form][some].streams, nn, (const char *)from->q,
                    from->row, from, 0);
    }
}
