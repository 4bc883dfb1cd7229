/* attention_amx_isa.c: between the products of attention_amx.c. */
#include "driver/cpu/attention/attention_amx.h"
#include "driver/cpu/product/gemm_vec.h"

#include <float.h>
#include <math.h>

void
amx_copy_row(uint16_t *dst, const uint16_t *p, int64_t k)
{
    for (int64_t d = 0; d < k; d += AMX_DEPTH, dst += AMX_ROWS * AMX_DEPTH) {
        int64_t n = p == NULL ? 0 : k - d;
        __mmask32 mask =
            n >= AMX_DEPTH ? UINT32_MAX : (__mmask32)((UINT64_C(1) << n) - 1);
        _mm512_storeu_si512(
            dst, _mm512_maskz_loadu_epi16(mask, p == NULL ? dst : p + d));
    }
}

/* In units of ln 2; the least finite number stays one: a row that only has such
 * keys sees all of them. */
INLINE vf
mask_units(vf v)
{
    const __m512 least = _mm512_set1_ps(-FLT_MAX);
    __mmask16 finite = _mm512_cmp_ps_mask((__m512)v, least, _CMP_GE_OQ);
    __m512 y = (__m512)(v * AMX_LOG2_E);
    return (vf)_mm512_mask_max_ps(y, finite, y, least);
}

void
amx_mask(float *dst, const void *p, int64_t stride, int dtype, int64_t n)
{
    const uint8_t *b = p;
    int64_t i = 0;
    if (dtype == AIR_BOOL) {
        const __m512 hidden = _mm512_set1_ps(-INFINITY);
        for (; stride == 1 && i + 16 <= n; i += 16) {
            __m128i v = _mm_loadu_si128((const void *)(b + i));
            __mmask16 no = _mm_cmpeq_epi8_mask(v, _mm_setzero_si128());
            _mm512_storeu_ps(dst + i, _mm512_maskz_mov_ps(no, hidden));
        }
        for (; i < n; i++)
            dst[i] = b[i * stride] != 0 ? 0 : -INFINITY;
        return;
    }
    for (; stride == 1 && i + VL <= n; i += VL)
        store(dst + i, mask_units(vget(p, i, dtype)));
    for (; i < n; i++)
        dst[i] = mask_units(set(get(p, i * stride, dtype)))[0];
}

/* Scores [i, i + 16), -inf behind n. */
INLINE vf
score(const float *s, const float *mask, vf scale, int64_t i, int64_t n)
{
    vf v = load(s + i / 32 * AMX_ROWS * AMX_COLS + i % 32) * scale;
    if (mask != NULL)
        v += (vf)_mm512_maskz_loadu_ps(first_lanes(n - i), mask + i);
    return (vf)_mm512_mask_mov_ps((__m512)set(-INFINITY), first_lanes(n - i),
                                  (__m512)v);
}

float
amx_softmax_row(uint16_t *p, const float *s, const float *mask, float scale,
                int64_t n, int64_t room, float *top, float *sum)
{
    vf unit = set(scale), most = set(-INFINITY), total = {0};
    for (int64_t i = 0; i < n; i += 16)
        most =
            (vf)_mm512_max_ps((__m512)most, (__m512)score(s, mask, unit, i, n));
    float old = *top, now = _mm512_reduce_max_ps((__m512)most);
    now = now > old ? now : old;
    vf ref = set(now == -INFINITY ? 0 : now);
    int64_t i = 0;
    for (; i < n; i += 32) {
        vf a = exp2_(score(s, mask, unit, i, n) - ref);
        vf b = exp2_(score(s, mask, unit, i + 16, n) - ref);
        total += a + b;
        _mm512_storeu_si512(p + i,
                            (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
    }
    for (; i < room; i += 32)
        _mm512_storeu_si512(p + i, _mm512_setzero_si512());
    float factor = old == -INFINITY ? 0 : exp2_(set(old) - ref)[0];
    *sum = *sum * factor + _mm512_reduce_add_ps((__m512)total);
    *top = now;
    return factor;
}

void
amx_add_rows(float *out, int64_t ld, const float *acc, const float *factor,
             int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, out += ld, acc += AMX_COLS) {
        vf low = load(acc), high = load(acc + 16), f = set(factor[r]);
        if (factor[r] < 0 || factor[r] > 0) {
            low = fma_(load(out), f, low);
            high = fma_(load(out + 16), f, high);
        }
        store(out, low);
        store(out + 16, high);
    }
}
