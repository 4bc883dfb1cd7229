/* dots_rows.h: rows of numbers of 8 or 4 bits and their scales, as dot products
 * of few rows of x read them with AVX-512 (dots_pairs_isa.c,
 * dots_digits_isa.c). A vector of a row has one scale, or one for each of
 * several groups of its lanes. */
#ifndef CPU_DOTS_ROWS_H
#define CPU_DOTS_ROWS_H

#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_vec.h"

#define PREFETCH 512 /* bytes ahead of the loads of w */
#define STREAMS  8   /* at most */
#define SCALES   8   /* of a vector, at most: one load */
#define LOAD     32  /* bytes of that, of f32 */

/* How rows of w lie: numbers of a vector, x in their order; GROUPED: one scale
 * for each group, else one for all of a row. */
enum { PAIRS, BYTES, GROUPED_BYTES, NIBBLES };

/* Scales of a vector: found out each time, or known for one row of x, where
 * that is most of what is not the product. */
enum { ANY_SCALES, ONE_SCALE, BF16_SCALES };

typedef short table __attribute__((vector_size(64)));

typedef struct {
    const char *x;
    int64_t xs, k0, k1; /* bytes from row to row; numbers at hand */
    bool more;          /* to be added to what t has */
    const char *w[STREAMS];
    const char *s[STREAMS];              /* scales */
    float (*room)[GEMM_GROUPS_MAX + VL]; /* for some of them */
    int scale_dtype;                     /* bf16 or f32 */
    int scales;                          /* what is known of them */
    int64_t group;
    vi lane_group;    /* of lane i, in a vector that has several groups */
    table lane_scale; /* the same of its upper half */
} dot_rows;

INLINE int
bits_of(const int form)
{
    return form == PAIRS ? 16 : form == NIBBLES ? 4 : 8;
}

/* The scales of the lanes of a vector. Of several, SCALES come at once, and
 * each goes where it belongs; of bf16 to the upper half. */
INLINE vf
lane_scales(const dot_rows *d, const int form, const int scales, int r,
            int64_t g)
{
    const __mmask32 upper = 0xaaaaaaaa;
    const bool any = scales == ANY_SCALES;
    if (any ? d->group >= 512 / bits_of(form) : scales == ONE_SCALE)
        return set(get(d->s[r], g, AIR_F32));
    if (any ? d->scale_dtype == AIR_BF16 : scales == BF16_SCALES)
        return (vf)_mm512_maskz_permutexvar_epi16(
            upper, (__m512i)d->lane_scale,
            _mm512_broadcast_i32x4(_mm_loadu_si128(
                (const __m128i *)(const void *)(d->s[r] + 2 * g))));
    return (vf)_mm512_permutexvar_ps(
        (__m512i)d->lane_group, _mm512_broadcast_f32x8(_mm256_loadu_ps(
                                    (const float *)(const void *)d->s[r] + g)));
}

/* Behind a row's scales are the next row's, or anything: those of lanes that
 * have no byte of `some` are 0. */
INLINE vf
leave_out(vf s, __mmask64 some)
{
    const __m512i bytes = _mm512_movm_epi8(some);
    return (vf)_mm512_maskz_mov_ps(_mm512_test_epi32_mask(bytes, bytes),
                                   (__m512)s);
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

/* Where the scales of row n are, from k0 to k1: those that may be read where
 * they lie are not copied, but where the `behind` rows behind it are too short
 * for the load that begins in this one. The next row's are asked for: runs this
 * short, one for each stream, no CPU fetches by itself. */
INLINE const char *
open_scales(const dot_rows *d, float *room, const gemm_words *from, int64_t n,
            int64_t behind)
{
    const int64_t size = from->scale_dtype == AIR_F32 ? 4 : 2;
    const bool last = behind * from->groups * size < LOAD;
    const char *p = (const char *)from->scale + n * from->groups * size;
    int64_t g = d->k0 / d->group;
    int64_t end = min64((d->k1 - 1) / d->group + 1, from->groups);
    for (int64_t i = g; from->scale != NULL && i < end; i += 64 / size)
        __builtin_prefetch(p + (i + from->groups) * size);
    if (from->scale != NULL && from->scale_dtype == d->scale_dtype) {
        if (!last)
            return p;
        memcpy((char *)room + g * size, p + g * size,
               (size_t)((end - g) * size));
        return (const char *)room;
    }
    for (; from->scale != NULL && g + VL <= end; g += VL)
        store(room + g, vget(p, g, from->scale_dtype));
    for (; g < end; g++)
        room[g] = from->scale == NULL ? 1 : get(p, g, from->scale_dtype);
    return (const char *)room;
}

/* M rows of x with the rows of w at hand: t[m * GEMV_NB + at[r]]. */
typedef void dot_tile_run(float *t, const dot_rows *d, const int64_t *at);

/* All of a block of nn rows of w: row i of every stream; one that is out of
 * rows does the last one again, for nothing. Row 0's result is t[m * GEMV_NB +
 * to]; from NULL: rows without scales. */
INLINE void
dot_streams(float *t, dot_rows *d, dot_tile_run *run, int64_t streams,
            int64_t nn, const char *w, int64_t row, const gemm_words *from,
            int64_t to)
{
    int64_t each = (nn + streams - 1) / streams, at[STREAMS];
    for (int64_t i = 0; i < each; i++) {
        for (int64_t r = 0; r < streams; r++) {
            int64_t n = min64(i + r * each, nn - 1);
            at[r] = i + r * each < nn ? to + n : GEMV_NB - 1;
            d->w[r] = w + n * row;
            if (from != NULL)
                d->s[r] = open_scales(d, d->room[r], from, n, nn - 1 - n);
        }
        run(t, d, at);
    }
}

INLINE int
form_of(int bits, const gemm_words *from)
{
    return bits == 4 ? NIBBLES : from->groups == 1 ? BYTES : GROUPED_BYTES;
}

/* Of all k; x is to be set. room: for scales of STREAMS rows. */
INLINE dot_rows
rows_of(int bits, const gemm_words *from, float (*room)[GEMM_GROUPS_MAX + VL])
{
    dot_rows d = {.k1 = from->row * 8 / bits,
                  .room = room,
                  .scale_dtype = AIR_F32,
                  .group = from->group > 0 ? from->group : 1};
    if (from->scale != NULL && from->scale_dtype == AIR_BF16 &&
        d.group < 512 / bits)
        d.scale_dtype = AIR_BF16;
    d.scales = d.scale_dtype == AIR_BF16 ? BF16_SCALES
               : d.group >= 512 / bits   ? ONE_SCALE
                                         : ANY_SCALES;
    for (int i = 0; i < VL; i++) {
        d.lane_group[i] = (int32_t)min64(i * 32 / bits / d.group, SCALES - 1);
        d.lane_scale[2 * i + 1] = (short)d.lane_group[i];
    }
    return d;
}

#endif
