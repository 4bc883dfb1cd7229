/* winograd_isa.c: transforms of Winograd's F(2 x 2, 3 x 3), compiled once per
 * instruction set. Pixels come from planes split into even and odd columns,
 * where adjacent tiles see adjacent pixels. */
#include "driver/cpu/conv/winograd.h"
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

/* ---- some lanes of a vector ---------------------------------------------- */

/* Lanes [b, e); of a number below 0 or above VL those that there are. */
typedef struct {
    int64_t b, e;
#if VL == 16
    __mmask16 bits;
#elif VL == 8
    vi bits;
#endif
} some;

static some
lanes_from(int64_t b, int64_t e)
{
    some s = {.b = b < 0 ? 0 : b, .e = e > VL ? VL : e};
#if VL == 16
    s.bits = (__mmask16)(first_lanes(e) & ~first_lanes(b));
#elif VL == 8
    const vi at = LANE_NUMBERS;
    s.bits = (at >= (int32_t)s.b) & (at < (int32_t)s.e);
#endif
    return s;
}

/* 0 in other lanes; nothing of them is read. */
INLINE vf
load_some(const float *p, const some *s)
{
#if VL == 16
    return (vf)_mm512_maskz_loadu_ps(s->bits, p);
#elif VL == 8
    return (vf)_mm256_maskload_ps(p, (__m256i)s->bits);
#else
    vf v = {0};
    for (int64_t i = s->b; i < s->e; i++)
        v[i] = p[i];
    return v;
#endif
}

INLINE void
store_some(float *p, const some *s, vf v)
{
#if VL == 16
    _mm512_mask_storeu_ps(p, s->bits, (__m512)v);
#elif VL == 8
    _mm256_maskstore_ps(p, (__m256i)s->bits, (__m256)v);
#else
    for (int64_t i = s->b; i < s->e; i++)
        p[i] = v[i];
#endif
}

/* ---- pixels -------------------------------------------------------------- */

#if VL == 16
#define EVEN                                                      \
    {                                                             \
        0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 \
    }
#define LOW                                                    \
    {                                                          \
        0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23 \
    }
#elif VL == 8
#define EVEN                      \
    {                             \
        0, 2, 4, 6, 8, 10, 12, 14 \
    }
#define LOW                      \
    {                            \
        0, 8, 1, 9, 2, 10, 3, 11 \
    }
#else
#define EVEN       \
    {              \
        0, 2, 4, 6 \
    }
#define LOW        \
    {              \
        0, 4, 1, 5 \
    }
#endif

static void
split(float *even, float *odd, const float *p, int64_t n)
{
    const vi at = EVEN;
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf a = load(p + i), b = load(p + i + VL);
        store(even + i / 2, __builtin_shuffle(a, b, at));
        store(odd + i / 2, __builtin_shuffle(a, b, at + 1));
    }
    const some low = lanes_from(0, n - i), high = lanes_from(0, n - i - VL);
    const some evens = lanes_from(0, (n - i + 1) / 2);
    const some odds = lanes_from(0, (n - i) / 2);
    if (i == n)
        return;
    vf a = load_some(p + i, &low), b = load_some(p + i + VL, &high);
    store_some(even + i / 2, &evens, __builtin_shuffle(a, b, at));
    store_some(odd + i / 2, &odds, __builtin_shuffle(a, b, at + 1));
}

/* What a run gives to one vector: lane i's tile begins at first + i. */
typedef struct {
    int64_t first;
    some lanes;
} part;

/* Of lanes [l, l + VL). */
static int
find_parts(part *parts, const winograd_run *runs, int n, int64_t l)
{
    int count = 0;
    for (const winograd_run *r = runs; r < runs + n; r++) {
        int64_t b = r->lane - l, e = b + r->count;
        if (b < VL && e > 0)
            parts[count++] = (part){r->from - b, lanes_from(b, e)};
    }
    return count;
}

/* Of one part, two, or (3) as many as there are, which have no lane in common.
 */
INLINE vf
take(const float *p, const part *parts, const int n, int count)
{
    vu v = (vu)load_some(p + parts[0].first, &parts[0].lanes);
    if (n > 1)
        v |= (vu)load_some(p + parts[1].first, &parts[1].lanes);
    for (int i = 2; n > 2 && i < count; i++)
        v |= (vu)load_some(p + parts[i].first, &parts[i].lanes);
    return (vf)v;
}

/* b = B' a: of four rows or columns. */
INLINE void
turn_pixels(vf b[4], const vf a[4])
{
    b[0] = a[0] - a[2];
    b[1] = a[1] + a[2];
    b[2] = a[2] - a[1];
    b[3] = a[1] - a[3];
}

INLINE void
input_vector(float *v, int64_t step, const float *planes, int64_t plane,
             int64_t half, const part *all, int64_t channels, const int n,
             int count)
{
    const part two[2] = {all[0], all[n > 1]};
    const part *parts = n > 2 ? all : two;
    for (int64_t c = 0; c < channels; c++, v += LANES, planes += plane) {
        vf d[4][4];
        UNROLL for (int y = 0; y < 4; y++)
        {
            const float *p = planes + y * 2 * half;
            const vf a[4] = {take(p, parts, n, count),
                             take(p + half, parts, n, count),
                             take(p + 1, parts, n, count),
                             take(p + half + 1, parts, n, count)};
            turn_pixels(d[y], a);
        }
        UNROLL for (int x = 0; x < 4; x++)
        {
            const vf a[4] = {d[0][x], d[1][x], d[2][x], d[3][x]};
            vf b[4];
            turn_pixels(b, a);
            UNROLL for (int y = 0; y < 4; y++)
                store(v + (4 * y + x) * step, b[y]);
        }
    }
}

static void
input(float *v, int64_t step, const float *planes, int64_t plane, int64_t half,
      const winograd_run *runs, int n, int64_t channels)
{
    for (int64_t l = 0; l < LANES; l += VL) {
        part parts[VL];
        int count = find_parts(parts, runs, n, l);
        if (count == 1)
            input_vector(v + l, step, planes, plane, half, parts, channels, 1,
                         count);
        else if (count == 2)
            input_vector(v + l, step, planes, plane, half, parts, channels, 2,
                         count);
        else if (count > 2)
            input_vector(v + l, step, planes, plane, half, parts, channels, 3,
                         count);
    }
}

/* ---- weights ------------------------------------------------------------- */

#define TAPS 9

/* g[tap] of VL windows, one behind the other. */
INLINE void
load_windows(vf g[VL > TAPS ? VL : TAPS + VL], const float *w)
{
#if VL == 16
    UNROLL for (int i = 0; i < VL; i++) g[i] =
        (vf)_mm512_maskz_loadu_ps(0x1ff, w + i * TAPS);
    transpose(g);
#else
    for (int t = 0; t + VL <= TAPS; t += VL) {
        UNROLL for (int i = 0; i < VL; i++) g[t + i] = load(w + i * TAPS + t);
        transpose(g + t);
    }
    float last[VL];
    UNROLL for (int i = 0; i < VL; i++) last[i] = w[i * TAPS + TAPS - 1];
    g[TAPS - 1] = load(last);
#endif
}

/* b = G a: of three rows or columns. */
INLINE void
turn_weights(vf b[4], vf a0, vf a1, vf a2)
{
    const vf s = (a0 + a2) * 0.5f, h = a1 * 0.5f;
    b[0] = a0;
    b[1] = s + h;
    b[2] = s - h;
    b[3] = a2;
}

INLINE void
weights_vector(float *u, int64_t step, const float *w, const some *lanes)
{
    vf g[VL > TAPS ? VL : TAPS + VL], t[3][4];
    load_windows(g, w);
    UNROLL for (int x = 0; x < 3; x++)
        turn_weights(t[x], g[x], g[3 + x], g[6 + x]);
    UNROLL for (int y = 0; y < 4; y++)
    {
        vf b[4];
        turn_weights(b, t[0][y], t[1][y], t[2][y]);
        UNROLL for (int x = 0; x < 4; x++)
            store_some(u + (4 * y + x) * step, lanes, b[x]);
    }
}

static void
weights(float *u, int64_t step, const float *w, int64_t n)
{
    const some all = lanes_from(0, VL);
    int64_t k = 0;
    for (; k + VL <= n; k += VL)
        weights_vector(u + k, step, w + k * TAPS, &all);
    if (k < n) {
        const some rest = lanes_from(0, n - k);
        float last[VL * TAPS] = {0};
        memcpy(last, w + k * TAPS, (size_t)((n - k) * TAPS) * sizeof *w);
        weights_vector(u + k, step, last, &rest);
    }
}

/* ---- results ------------------------------------------------------------- */

/* What a vector of tiles gives to a run: two vectors of results. */
typedef struct {
    int64_t first;
    some low, high;
    bool both;
} target;

static int
find_targets(target *targets, const winograd_run *runs, int n, int64_t l)
{
    int count = 0;
    for (const winograd_run *r = runs; r < runs + n; r++) {
        int64_t b = 2 * (r->lane - l), e = b + r->columns;
        if (b < 2 * VL && e > 0)
            targets[count++] = (target){r->to - b, lanes_from(b, e),
                                        lanes_from(b - VL, e - VL), r->both};
    }
    return count;
}

INLINE void
put_results(float *y, int64_t below, const target *t, const vf low[2],
            const vf high[2])
{
    y += t->first;
    store_some(y, &t->low, low[0]);
    store_some(y + VL, &t->high, high[0]);
    if (t->both) {
        store_some(y + below, &t->low, low[1]);
        store_some(y + below + VL, &t->high, high[1]);
    }
}

/* Of a vector; what is not 0 in the sum is no number, or was infinite. */
INLINE vf
result_vector(const winograd_results *to, const float *acc, int64_t step,
              int64_t r, const target *targets, int count)
{
    const vi at = LOW;
    vf s[2][4], low[2], high[2], wrong = {0};
    UNROLL for (int x = 0; x < 4; x++)
    {
        const float *m = acc + x * step;
        const vf m1 = load(m + 4 * step), m2 = load(m + 8 * step);
        s[0][x] = load(m) + m1 + m2;
        s[1][x] = m1 - m2 - load(m + 12 * step);
    }
    const vf b = set(to->bias != NULL ? to->bias[r] : 0);
    UNROLL for (int i = 0; i < 2; i++)
    {
        vf even = s[i][0] + s[i][1] + s[i][2] + b;
        vf odd = s[i][1] - s[i][2] - s[i][3] + b;
        wrong += (even - even) + (odd - odd);
        low[i] = __builtin_shuffle(even, odd, at);
        high[i] = __builtin_shuffle(even, odd, at + VL / 2);
    }
    for (int j = 0; j < count; j++)
        put_results(to->y + r * to->row, to->below, &targets[j], low, high);
    return wrong;
}

static bool
results(const winograd_results *to, const float *acc, int64_t step,
        int64_t rows, const winograd_run *runs, int n)
{
    vf wrong = {0};
    for (int64_t l = 0; l < LANES; l += VL) {
        target targets[VL];
        int count = find_targets(targets, runs, n, l);
        for (int64_t r = 0; count > 0 && r < rows; r++)
            wrong +=
                result_vector(to, acc + l + r * LANES, step, r, targets, count);
    }
    return sum(wrong) == 0;
}

const winograd_ops ISA_NAME(cpu_winograd) = {split, input, weights, results};
