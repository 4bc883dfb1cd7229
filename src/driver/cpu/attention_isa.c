/* attention_isa.c: softmax over keys that come block by block, and integer
 * caches as numbers, compiled once per instruction set.
 *
 * A row whose keys were all masked so far has top -inf; its reference is 0
 * then, so that masked scores become weights of 0 and not NaN. */
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

#include <math.h>

INLINE vf
finite_top(vf top)
{
    vi none = top == set(-INFINITY);
    return (vf)((vi)top & ~none);
}

/* Lanes [at, at + VL) of a panel. */
INLINE void
panel_half(float *s, const float *mask, int64_t keys, float *top, float *sum_,
           float *out, int64_t width)
{
    vf old = load(top), m = old, t = (vf){0};
    for (int64_t j = 0; j < keys; j++) {
        vf v = load(s + j * LANES);
        if (mask != NULL) {
            v += load(mask + j * LANES);
            store(s + j * LANES, v);
        }
        m = max_(m, v);
    }
    vf ref = finite_top(m);
    vf scale = exp_(old - ref);
    for (int64_t j = 0; j < keys; j++) {
        vf p = exp_(load(s + j * LANES) - ref);
        store(s + j * LANES, p);
        t += p;
    }
    store(top, m);
    store(sum_, fma_(load(sum_), scale, t));
    for (int64_t d = 0; d < width; d++)
        store(out + d * LANES, load(out + d * LANES) * scale);
}

void
ISA_NAME(softmax_panel)(float *s, const float *mask, int64_t keys, float *top,
                        float *sum_, float *out, int64_t width)
{
    for (int64_t h = 0; h < LANES; h += VL)
        panel_half(s + h, mask == NULL ? NULL : mask + h, keys, top + h,
                   sum_ + h, out + h, width);
}

static float
row_top(float *s, const float *mask, int64_t keys, float top)
{
    int64_t j = 0;
    vf m = set(top);
    for (; j + VL <= keys; j += VL) {
        vf v = load(s + j);
        if (mask != NULL) {
            v += load(mask + j);
            store(s + j, v);
        }
        m = max_(m, v);
    }
    for (; j < keys; j++) {
        if (mask != NULL)
            s[j] += mask[j];
        top = top > s[j] ? top : s[j];
    }
    for (int i = 0; i < VL; i++)
        top = top > m[i] ? top : m[i];
    return top;
}

/* s = e^(s - ref); the sum of it */
static float
row_weights(float *s, int64_t keys, float ref)
{
    int64_t j = 0;
    vf t = {0};
    for (; j + VL <= keys; j += VL) {
        vf p = exp_(load(s + j) - ref);
        store(s + j, p);
        t += p;
    }
    if (j < keys) {
        vf rest = set(-INFINITY);
        size_t bytes = (size_t)(keys - j) * sizeof *s;
        memcpy(&rest, s + j, bytes);
        rest = exp_(rest - ref);
        memcpy(s + j, &rest, bytes);
        t += rest;
    }
    return sum(t);
}

void
ISA_NAME(softmax_row)(float *s, const float *mask, int64_t keys, float *top,
                      float *sum_, float *out, int64_t ld, int64_t width)
{
    float m = row_top(s, mask, keys, *top);
    float ref = m == -INFINITY ? 0 : m;
    vf scale = exp_(set(*top - ref));
    *sum_ = *sum_ * scale[0] + row_weights(s, keys, ref);
    *top = m;
    for (int64_t d = 0; d < width; d += LANES, out += ld * LANES) {
        store(out, load(out) * scale);
        store(out + VL, load(out + VL) * scale);
    }
}

/* ---- integer caches ------------------------------------------------------ */

INLINE vf
bytes(const int8_t *p)
{
#if defined(__AVX512F__)
    __m128i v;
    memcpy(&v, p, VL);
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
#elif defined(__AVX2__)
    int64_t v;
    memcpy(&v, p, VL);
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(v)));
#else
    vf v;
    for (int i = 0; i < VL; i++)
        v[i] = p[i];
    return v;
#endif
}

INLINE void
unquant_bytes(const int step, float *dst, const int8_t *x, const float *scale,
              const float *offset, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf o = step != 0 ? load(offset + i) : set(*offset);
        vf s = step != 0 ? load(scale + i) : set(*scale);
        store(dst + i, (bytes(x + i) + o) * s);
    }
    for (; i < n; i++)
        dst[i] = ((float)x[i] + offset[i * step]) * scale[i * step];
}

void
ISA_NAME(unquant)(float *dst, const void *x, int bits, const float *scale,
                  const float *offset, int step, int64_t n)
{
    const int8_t *p = x;
    int8_t part[64];
    if (bits == 8 && step != 0)
        unquant_bytes(1, dst, p, scale, offset, n);
    else if (bits == 8)
        unquant_bytes(0, dst, p, scale, offset, n);
    for (int64_t i = 0; bits == 4 && i < n; i += 64) {
        int64_t m = n - i < 64 ? n - i : 64;
        for (int64_t k = 0; k < (m + 1) / 2; k++) {
            int8_t low = (int8_t)((uint8_t)p[i / 2 + k] << 4);
            part[2 * k] = low >> 4;
            part[2 * k + 1] = p[i / 2 + k] >> 4;
        }
        ISA_NAME(unquant)
        (dst + i, part, 8, scale + i * step, offset + i * step, step, m);
    }
}
