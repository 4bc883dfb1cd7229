/* attend_pairs_isa.c: attention of bf16 for many rows with VDPBF16PS: panels
 * whose rows are pairs, of the depth or of keys. */
#include "driver/cpu/attention/attend_panel.h"
#include "driver/cpu/attention/attention.h"
#include "driver/cpu/product/gemm_pairs.h"

#define LOG2_E 1.44269504088896340736f

/* Lane i: a[i] and b[i], rounded; subnormal numbers become 0. */
INLINE void
store_pairs(float *dst, vf a, vf b)
{
    const __m512i order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
        6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
    _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(order, both));
}

static void
join(float *panel, int64_t rows)
{
    float *dst = panel;
    for (int64_t i = 0; i < rows; i += 2, dst += LANES, panel += 2 * LANES)
        for (int64_t l = 0; l < LANES; l += VL)
            store_pairs(dst + l, load(panel + l), load(panel + LANES + l));
}

/* s = e^(s - ref), and rows j, j + 1 of it pairs in row j / 2; the sum of it */
INLINE vf
pair_weights(float *s, int64_t keys, vf ref)
{
    const vf unit = set(LOG2_E);
    vf t[2] = {{0}, {0}};
    for (int64_t j = 0; j < keys; j += 2) {
        const float *at = s + j * LANES;
        vf a = exp2_((load(at) - ref) * unit), b = {0};
        if (j + 1 < keys)
            b = exp2_((load(at + LANES) - ref) * unit);
        store_pairs(s + j / 2 * LANES, a, b);
        t[0] += a;
        t[1] += b;
    }
    return t[0] + t[1];
}

static void
softmax(float *s, const float *mask, bool even, int64_t keys, int64_t last,
        float by, float *top, float *sum_, float *out, int64_t width)
{
    for (int64_t h = 0; h < LANES; h += VL) {
        vf old = load(top + h);
        vf m = find_tops(s + h, mask == NULL || even ? mask : mask + h, !even,
                         keys, last > INT64_MAX - LANES ? last : last + h, true,
                         by, old);
        vf ref = finite_top(m), scale = exp2_((old - ref) * set(LOG2_E));
        vf t = pair_weights(s + h, keys, ref);
        store(top + h, m);
        store(sum_ + h, fma_(load(sum_ + h), scale, t));
        for (int64_t d = 0; d < width; d++)
            store(out + d * LANES + h, load(out + d * LANES + h) * scale);
    }
}

const attend_pairs cpu_attend_pairs = {
    .block = cpu_pairs_block,
    .pack = cpu_pairs_pack,
    .join = join,
    .softmax = softmax,
};
