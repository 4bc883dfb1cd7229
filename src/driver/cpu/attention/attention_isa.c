/* attention_isa.c: softmax over keys that come block by block, and integer
 * caches as numbers, compiled once per instruction set. */
#include "driver/cpu/attention/attend_panel.h"
#include "driver/cpu/product/gemm_isa.h"

#include <math.h>

void
ISA_NAME(attend_scale)(float *p, float by, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        store(p + i, load(p + i) * set(by));
    for (; i < n; i++)
        p[i] *= by;
}

void
ISA_NAME(attend_hidden)(float *dst, const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = p[i] != 0 ? 0 : -INFINITY;
}

void
ISA_NAME(attend_hide)(float *dst, const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = p[i] != 0 ? -INFINITY : dst[i];
}

/* ---- panels: lanes are queries ------------------------------------------- */

/* s = e^(s - ref); the sum of it */
INLINE vf
panel_weights(float *s, int64_t keys, vf ref)
{
    vf t[2] = {{0}, {0}};
    int64_t j = 0;
    for (; j + 2 <= keys; j += 2)
        UNROLL for (int i = 0; i < 2; i++)
        {
            float *at = s + (j + i) * LANES;
            vf p = exp_least(load(at) - ref);
            store(at, p);
            t[i] += p;
        }
    for (; j < keys; j++) {
        vf p = exp_least(load(s + j * LANES) - ref);
        store(s + j * LANES, p);
        t[0] += p;
    }
    return t[0] + t[1];
}

/* Lanes [h, h + VL) of a panel, at h of what is given. */
INLINE void
panel_half(float *s, const float *mask, bool each, int64_t keys, int64_t last,
           float *top, float *sum_, float *out, int64_t width)
{
    vf old = load(top);
    vf m = find_tops(s, mask, each, keys, last, false, 1, old);
    vf ref = finite_top(m);
    vf scale = exp_least(old - ref);
    vf t = panel_weights(s, keys, ref);
    store(top, m);
    store(sum_, fma_(load(sum_), scale, t));
    for (int64_t d = 0; d < width; d++)
        store(out + d * LANES, load(out + d * LANES) * scale);
}

void
ISA_NAME(softmax_panel)(float *s, const float *mask, bool even, int64_t keys,
                        int64_t last, float *top, float *sum_, float *out,
                        int64_t width)
{
    for (int64_t h = 0; h < LANES; h += VL) {
        const int64_t seen = last >= keys ? keys : last + h;
        panel_half(s + h, mask == NULL || even ? mask : mask + h, !even,
                   min64(keys, seen + VL), seen, top + h, sum_ + h, out + h,
                   width);
    }
}

/* VL lanes from l on; elements [d, d + VL) of each. */
INLINE void
put_block(const int D, char *y, int64_t yl, const float *panel, vf scale,
          int64_t n)
{
    vf r[VL];
    UNROLL for (int i = 0; i < VL; i++) r[i] = load(panel + i * LANES) * scale;
    transpose(r);
    UNROLL for (int i = 0; i < VL; i++) if (i < n) vput(y + i * yl, 0, D, r[i]);
}

INLINE void
put_lanes(const int D, char *y, int64_t yl, const float *panel,
          const float *scale, int64_t n, int64_t width)
{
    const int64_t size = D == AIR_F32 ? 4 : 2;
    for (int64_t l = 0; l < n; l += VL, y += VL * yl) {
        int64_t d = 0, count = n - l < VL ? n - l : VL;
        for (; d + VL <= width; d += VL)
            put_block(D, y + d * size, yl, panel + d * LANES + l,
                      load(scale + l), count);
        for (; d < width; d++)
            for (int64_t i = 0; i < count; i++)
                put(y + i * yl, d, D, panel[d * LANES + l + i] * scale[l + i]);
    }
}

void
ISA_NAME(attend_put_panel)(void *y, int64_t yl, int dtype, const float *panel,
                           const float *scale, int64_t n, int64_t width)
{
    if (dtype == AIR_F32)
        put_lanes(AIR_F32, y, yl * 4, panel, scale, n, width);
    else if (dtype == AIR_BF16)
        put_lanes(AIR_BF16, y, yl * 2, panel, scale, n, width);
    else
        put_lanes(AIR_F16, y, yl * 2, panel, scale, n, width);
}

/* ---- rows: one query ----------------------------------------------------- */

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
        vf p = exp_least(load(s + j) - ref);
        store(s + j, p);
        t += p;
    }
    if (j < keys) {
        vf rest = set(-INFINITY);
        size_t bytes = (size_t)(keys - j) * sizeof *s;
        memcpy(&rest, s + j, bytes);
        rest = exp_least(rest - ref);
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
    vf scale = exp_least(set(*top - ref));
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
