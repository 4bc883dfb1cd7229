/* words_pairs_isa.c: rows of numbers of 8 or 4 bits as a panel of pairs of
 * bf16. Words of 16 rows change places, so that a lane holds a row's: then its
 * numbers leave one pair after the other, and a group's scale is a vector. */
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/gemm_vec.h"

#define PANEL 32 /* rows: two vectors */

/* Number i of each word. */
INLINE vf
number(const int bits, __m512i v, const unsigned i)
{
    const vf table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    if (bits == 4)
        return (vf)_mm512_permutexvar_ps(_mm512_srli_epi32(v, 4 * i),
                                         (__m512)table);
    return (vf)_mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * i), 24));
}

/* What 16 rows of a panel are made of: 32-bit words, a factor for each group
 * and row. */
typedef struct {
    const uint8_t *q;
    const pairs_words *from;
    int64_t rows, lane;
} source;

INLINE vf
scaled(const source *s, vf x, int64_t g)
{
    const int64_t at = g * PANEL + s->lane;
    if (s->from->scale != NULL)
        x *= load(s->from->scale + at);
    return s->from->zero != NULL ? x + load(s->from->zero + at) : x;
}

/* Rounded to bf16, as the lower and the upper half of each lane. */
INLINE __m512i
pair(vf low, vf high)
{
    typedef short words __attribute__((vector_size(64)));
    const words turn = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(
        (__m512i)turn, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}

/* dst[i * PANEL] = pair k + i, i < n, at most what 64 bytes of a row hold. */
INLINE void
put_pairs(const int bits, float *dst, const source *s, int64_t k, int64_t n)
{
    const int each = 16 / bits; /* pairs of a word */
    const __mmask64 some = UINT64_MAX >> (64 - n * bits / 4);
    vf words[VL];
    UNROLL for (int i = 0; i < VL; i++)
    {
        const uint8_t *p = s->q + i * s->from->row + k * bits / 4;
        words[i] = (vf)(i < s->rows ? _mm512_maskz_loadu_epi8(some, p)
                                    : _mm512_setzero_si512());
        __builtin_prefetch(p + PANEL * s->from->row);
    }
    transpose(words);
    int64_t g = 2 * k / s->from->group, left = (g + 1) * s->from->group / 2 - k;
    g -= s->from->first;
    for (int64_t i = 0; i < n; i += each)
        for (unsigned j = 0; j < (unsigned)each && i + j < n; j++, left--) {
            const __m512i v = (__m512i)words[i / each];
            if (left == 0)
                g++, left = s->from->group / 2;
            const vf low = scaled(s, number(bits, v, 2 * j), g);
            const vf high = scaled(s, number(bits, v, 2 * j + 1), g);
            _mm512_storeu_si512(dst + (i + j) * PANEL, pair(low, high));
        }
}

INLINE void
put_all(const int bits, float *dst, const source *s, int64_t k0, int64_t k1)
{
    const int64_t step = 256 / bits;
    for (int64_t k = k0; k < k1; k += step)
        put_pairs(bits, dst + (k - k0) * PANEL, s, k, min64(step, k1 - k));
}

void
cpu_pairs_words(float *panel, const pairs_words *from, int64_t n, int64_t k0,
                int64_t k1)
{
    for (int64_t lane = 0; lane < PANEL; lane += VL) {
        source s = {from->q + lane * from->row, from, n - lane, lane};
        if (from->bits == 4)
            put_all(4, panel + lane, &s, k0, k1);
        else
            put_all(8, panel + lane, &s, k0, k1);
    }
}
