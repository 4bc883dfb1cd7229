/* quantised_isa.c: numbers of 4 and 8 bits as floats, and dot products with
 * rows of 4-bit numbers, compiled once per instruction set.
 *
 * A vector of words holds eight numbers per lane, and shifting it brings one of
 * each to the front: no number is moved across lanes. In return x lies in the
 * order of what comes out: of each 8 * VL numbers first those at 0, 8, 16 ..,
 * then those at 1, 9, 17 .. (order_words). */
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

#define WORDS    (8 * VL) /* numbers of a vector of words */
#define PREFETCH 512      /* bytes ahead of the loads of q */
#define DOT_MAX  6        /* rows of x at once */

#if defined(__AVX512F__)
/* The number of the lowest four bits of each lane. */
INLINE vf
number(vi v)
{
    const vf table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return (vf)_mm512_permutexvar_ps((__m512i)v, (__m512)table);
}
#define NUMBER(v, j) number((vi)((vu)(v) >> (4 * (j))))
#define PREPARED(v)  (v)
#else
/* Less 8: the sign bit of the four turned. */
#define PREPARED(v)  ((v) ^ (int32_t)0x88888888)
#define NUMBER(v, j) __builtin_convertvector(((v) << (28 - 4 * (j))) >> 28, vf)
#endif

INLINE float
number_at(const uint8_t *q, int64_t k)
{
    return (float)((q[k / 2] >> k % 2 * 4 & 15) - 8);
}

void
ISA_NAME(order_words)(float *dst, const float *x, int64_t n)
{
    int64_t even = n / WORDS * WORDS;
    for (int64_t b = 0; b < even; b += WORDS)
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < VL; i++)
                dst[b + j * VL + i] = x[b + i * 8 + j];
    memcpy(dst + even, x + even, (size_t)(n - even) * sizeof *dst);
}

/* 2 VL numbers of VL bytes. */
INLINE void
widen_nibbles(const uint8_t *p, vf *first, vf *second)
{
#if defined(__AVX512F__)
    vi b = (vi)_mm512_cvtepu8_epi32(
        _mm_loadu_si128((const __m128i *)(const void *)p));
    vf low = number(b), high = number(b >> 4);
#else
#if defined(__AVX2__)
    vi b = (vi)_mm256_cvtepu8_epi32(
        _mm_loadl_epi64((const __m128i *)(const void *)p));
#else
    vi b;
    for (int i = 0; i < VL; i++)
        b[i] = p[i];
#endif
    vf low = __builtin_convertvector((b & 15) - 8, vf);
    vf high = __builtin_convertvector((b >> 4) - 8, vf);
#endif
    const vi at = LANE_NUMBERS, turn = (at >> 1) + (at & 1) * VL;
    *first = __builtin_shuffle(low, high, turn);
    *second = __builtin_shuffle(low, high, turn + VL / 2);
}

static void
bytes(float *dst, const int8_t *q, int64_t n, float scale, float zero)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        store(dst + i, fma_(vget8(q + i), set(scale), set(zero)));
    for (; i < n; i++)
        dst[i] = (float)q[i] * scale + zero;
}

static void
nibbles(float *dst, const uint8_t *q, int64_t k, int64_t n, float scale,
        float zero)
{
    int64_t i = k % 2 < n ? k % 2 : n;
    if (i > 0)
        dst[0] = number_at(q, k) * scale + zero;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf a, b;
        widen_nibbles(q + (k + i) / 2, &a, &b);
        store(dst + i, fma_(a, set(scale), set(zero)));
        store(dst + i + VL, fma_(b, set(scale), set(zero)));
    }
    for (; i < n; i++)
        dst[i] = number_at(q, k + i) * scale + zero;
}

void
ISA_NAME(integers)(float *dst, const void *q, int bits, int64_t k, int64_t n,
                   float scale, float zero)
{
    if (bits == 8)
        bytes(dst, (const int8_t *)q + k, n, scale, zero);
    else
        nibbles(dst, q, k, n, scale, zero);
}

/* ---- dot products -------------------------------------------------------- */

typedef double vd __attribute__((vector_size(4 * VL)));
typedef float vf_half __attribute__((vector_size(2 * VL)));

/* Across lanes in doubles: in floats it would cost as much accuracy as the
 * whole way along k. */
INLINE double
sum_lanes(vf v)
{
    vf_half half[2];
    double t[VL / 2];
    memcpy(half, &v, sizeof v);
    vd d = __builtin_convertvector(half[0], vd) +
           __builtin_convertvector(half[1], vd);
    memcpy(t, &d, sizeof t);
    UNROLL for (int n = VL / 4; n > 0; n /= 2)
        UNROLL for (int i = 0; i < n; i++) t[i] += t[i + n];
    return t[0];
}

/* Scales of rows as floats; a vector may be loaded behind the last one. */
typedef float scales[8][GEMM_GROUPS_MAX + VL];

typedef struct {
    const float *x; /* in the order of words */
    int64_t xs, k;
    const uint8_t *q[8];
    scales *s;
    int64_t group;
    vi lane_group; /* of lane i, in a vector of words that has several */
} words_tile;

/* The scale of each lane of the words from k on. */
INLINE vf
lane_scales(const words_tile *w, int r, int64_t k)
{
    const float *s = (*w->s)[r] + k / w->group;
    if (w->group >= WORDS)
        return set(*s);
    return __builtin_shuffle(load(s), w->lane_group);
}

INLINE double
tail(const words_tile *w, int m, int r, int64_t k)
{
    double sum = 0;
    for (; k < w->k; k++)
        sum += (double)w->x[m * w->xs + k] * (double)number_at(w->q[r], k) *
               (double)(*w->s)[r][k / w->group];
    return sum;
}

/* t[m * GEMV_NB + at[r]], M rows of x, R rows of q. */
INLINE void
dot_tile(const int M, const int R, float *t, const words_tile *w,
         const int64_t *at)
{
    vf total[DOT_MAX][8];
    int64_t even = w->k / WORDS * WORDS;
    UNROLL for (int m = 0; m < M; m++) UNROLL for (int r = 0; r < R; r++)
        total[m][r] = (vf){0};
    for (int64_t k = 0; k < even; k += WORDS) {
        const float *x = w->x + k;
        UNROLL for (int r = 0; r < R; r++)
        {
            vf c[DOT_MAX];
            vi v;
            memcpy(&v, w->q[r] + k / 2, sizeof v);
            __builtin_prefetch(w->q[r] + k / 2 + PREFETCH);
            v = PREPARED(v);
            UNROLL for (int m = 0; m < M; m++) c[m] = (vf){0};
            UNROLL for (int j = 0; j < 8; j++)
            {
                vf b = NUMBER(v, j);
                UNROLL for (int m = 0; m < M; m++) c[m] =
                    fma_(load(x + m * w->xs + j * VL), b, c[m]);
            }
            vf s = lane_scales(w, r, k);
            UNROLL for (int m = 0; m < M; m++) total[m][r] =
                fma_(c[m], s, total[m][r]);
        }
    }
    for (int m = 0; m < M; m++)
        for (int r = 0; r < R; r++)
            t[m * GEMV_NB + at[r]] =
                (float)(sum_lanes(total[m][r]) + tail(w, m, r, even));
}

/* Rows of q of a tile for each number of rows of x. */
#if VL == 16
#define TILES(X) X(1, 8) X(2, 8) X(3, 6) X(4, 5) X(5, 4) X(6, 3)
#else
#define TILES(X) X(1, 6) X(2, 4) X(3, 3) X(4, 2) X(5, 2) X(6, 1)
#endif
#define DOT(M, R)                                                         \
    static void dot_##M(float *t, const words_tile *w, const int64_t *at) \
    {                                                                     \
        dot_tile(M, R, t, w, at);                                         \
    }
TILES(DOT)
static const struct {
    int streams;
    void (*run)(float *t, const words_tile *w, const int64_t *at);
} tiles[DOT_MAX + 1] = {
#define DOT_ROW(M, R) [M] = {R, dot_##M},
    TILES(DOT_ROW)
#undef DOT_ROW
};

/* Row i of every stream (gemv_isa.c); those that are out of rows do the last
 * one again. */
static void
open_rows(words_tile *w, const gemm_words *from, int64_t i, int streams,
          int64_t each, int64_t nn, int64_t *at)
{
    int64_t size = from->scale_dtype == AIR_F32 ? 4 : 2;
    for (int r = 0; r < streams; r++) {
        float *s = (*w->s)[r];
        at[r] = i + r * each < nn ? i + r * each : nn - 1;
        w->q[r] = from->q + at[r] * from->row;
        const char *p = (const char *)from->scale + at[r] * from->groups * size;
        int64_t g = 0;
        for (; from->scale != NULL && g + VL <= from->groups; g += VL)
            store(s + g, vget(p, g, from->scale_dtype));
        for (; g < from->groups; g++)
            s[g] = from->scale == NULL ? 1 : get(p, g, from->scale_dtype);
    }
}

void
ISA_NAME(dots_words)(float *t, int64_t nm, const float *x, int64_t xs,
                     int64_t nn, const gemm_words *from)
{
    scales s;
    int64_t parts = (nm + DOT_MAX - 1) / DOT_MAX, at[8];
    int64_t rows = (nm + parts - 1) / parts;
    int streams = tiles[rows].streams;
    int64_t each = (nn + streams - 1) / streams;
    words_tile w = {.xs = xs, .k = from->row * 2, .s = &s};
    w.group = from->group > 0 ? from->group : 1;
    memset(s, 0, sizeof s);
    for (int i = 0; i < VL; i++)
        w.lane_group[i] = (int32_t)(i * 8 / w.group);
    for (int64_t i = 0; i < each; i++) {
        open_rows(&w, from, i, streams, each, nn, at);
        for (int64_t m = 0; m < nm; m += rows) {
            int64_t b = m + rows <= nm ? m : nm - rows;
            w.x = x + b * xs;
            tiles[rows].run(t + b * GEMV_NB, &w, at);
        }
    }
}
