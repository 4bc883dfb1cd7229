/* gemm_isa.c: the loops of the matrix product, compiled once per instruction
 * set (-DGEMM_ISA=avx2). Lanes are rows of x; w is broadcast. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_vec.h"
#include "driver/cpu/region/step_floats.h"

#ifdef NARROW
INLINE vn
narrow_broadcast(const float *w)
{
    return *w - (vn){0};
}

INLINE vn
narrow_product(vn c, vn x, vn w)
{
    return (vn)_mm256_fmadd_ps((__m256)x, (__m256)w, (__m256)c);
}
#endif

#include "driver/cpu/product/gemm_finish.h"
#include "driver/cpu/product/gemm_tile.h"

/* ---- packing ------------------------------------------------------------- */

/* dst[k][ld]: lanes are adjacent in memory. */
INLINE void
pack_adjacent(float *dst, int64_t ld, const void *p, int64_t ks, int dtype,
              int64_t n, int64_t kc)
{
    for (int64_t k = 0; k < kc; k++) {
        int64_t l = 0;
        for (; l + VL <= n; l += VL)
            store(dst + k * ld + l, vget(p, k * ks + l, dtype));
        if (l < n && n >= VL) { /* again, a little of what was there */
            store(dst + k * ld + n - VL, vget(p, k * ks + n - VL, dtype));
            continue;
        }
#if VL == 16
        if (l < n)
            _mm512_mask_storeu_ps(
                dst + k * ld + l, first_lanes(n - l),
                (__m512)vget_first(p, k * ks + l, dtype, n - l));
#else
        for (; l < n; l++)
            dst[k * ld + l] = get(p, k * ks + l, dtype);
#endif
    }
}

/* dst[k][ld]: k is adjacent in memory, VL lanes at a time. Full panels ask for
 * the rows of the next one: the pieces of rows are too short for the hardware
 * to find out. */
INLINE void
pack_squares(float *dst, int64_t ld, const void *p, int64_t rs, int dtype,
             int64_t n, int64_t kc, const bool full)
{
    const int64_t size = dtype_size(dtype), step = rs * size;
    const int64_t ahead = full ? LANES * step : 0;
    for (int64_t k = 0; k + VL <= kc; k += VL) {
        const char *row = (const char *)p + k * size;
        vf r[VL];
        UNROLL for (int i = 0; i < VL; i++)
        {
            r[i] = full || i < n ? vget(row, 0, dtype) : (vf){0};
            __builtin_prefetch(row + ahead, 0, 2);
            row += full || i < n ? step : 0;
        }
        transpose(r);
        UNROLL for (int i = 0; i < VL; i++) store(dst + (k + i) * ld, r[i]);
    }
}

INLINE void
pack_turned(float *dst, int64_t ld, const void *p, int64_t rs, int dtype,
            int64_t n, int64_t kc)
{
    if (n >= VL)
        pack_squares(dst, ld, p, rs, dtype, VL, kc, true);
    else
        pack_squares(dst, ld, p, rs, dtype, n, kc, false);
    for (int64_t k = kc / VL * VL; k < kc; k++)
        for (int64_t i = 0; i < VL; i++)
            dst[k * ld + i] = i < n ? get(p, i * rs + k, dtype) : 0;
}

static void
pack_any(float *dst, int64_t ld, const gemm_view *v, const void *p, int64_t n,
         int64_t kc)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t l = 0; l < n; l++)
            dst[k * ld + l] = get(p, l * v->rs + k * v->ks, v->dtype);
}

static const void *
view_at(const gemm_view *v, int64_t r, int64_t k)
{
    return (const char *)v->p + (r * v->rs + k * v->ks) * dtype_size(v->dtype);
}

static void
pack_x(float *panel, const gemm_view *x, int64_t l0, int64_t nl, int64_t k0,
       int64_t k1)
{
    int64_t kc = k1 - k0;
    const void *p = view_at(x, l0, k0);
    if (x->ks == 1) {
        for (int64_t l = 0; l < LANES; l += VL) {
            const void *q = l < nl ? view_at(x, l0 + l, k0) : p;
            BY_DTYPE(x->dtype,
                     pack_turned(panel + l, LANES, q, x->rs, D, nl - l, kc));
        }
        return;
    }
    if (nl < LANES)
        memset(panel, 0, (size_t)(kc * LANES) * sizeof *panel);
    if (x->rs == 1)
        BY_DTYPE(x->dtype, pack_adjacent(panel, LANES, p, x->ks, D, nl, kc))
    else
        pack_any(panel, LANES, x, p, nl, kc);
}

static void
pack_w(float *block_, const gemm_view *w, int64_t r0, int64_t r1, int64_t k0,
       int64_t k1, int64_t *out_rs, int64_t *out_ks)
{
    const void *p = view_at(w, r0, k0);
    bool rows = w->ks == 1;
    *out_rs = rows ? GEMM_WB : 1;
    *out_ks = rows ? 1 : GEMM_MB;
    if (rows)
        BY_DTYPE(w->dtype,
                 pack_adjacent(block_, GEMM_WB, p, w->rs, D, k1 - k0, r1 - r0))
    else if (w->rs == 1)
        BY_DTYPE(w->dtype,
                 pack_adjacent(block_, GEMM_MB, p, w->ks, D, r1 - r0, k1 - k0))
    else
        pack_any(block_, GEMM_MB, w, p, r1 - r0, k1 - k0);
}

/* A few one by one: who loads them would wait for a store by a mask to reach
 * the cache. */
static void
widen(float *dst, const void *p, int64_t stride, int dtype, int64_t n)
{
    if (stride == 1 && n >= VL)
        BY_DTYPE(dtype, pack_adjacent(dst, n, p, n, D, n, 1))
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = get(p, i * stride, dtype);
}

/* As many of dst[i] = p[2 * i], bf16, as are vectors; the number behind the
 * last one is not there to be read. */
static int64_t
even_halves(float *dst, const uint16_t *p, int64_t n)
{
    int64_t i = 0, last = n - 1 - VL; /* the last vector: again a few */
    for (; i < n - 1 && last >= 0; i += VL) {
        vu v;
        i = min64(i, last);
        memcpy(&v, p + 2 * i, sizeof v);
        store(dst + i, (vf)(v << 16));
    }
    return i;
}

/* The same of floats, and of fewer than a vector, where that can be said. */
INLINE int64_t
even_floats(float *dst, const float *p, int64_t n)
{
    int64_t i = 0;
    for (; i < n && n >= VL; i += VL) {
        i = min64(i, n - VL);
        store(dst + i, load_even(p + 2 * i));
    }
#if VL == 16
    if (i < n) {
        vf v = load_even_masked(p, first_lanes(2 * n - 1),
                                first_lanes(2 * n - 1 - VL));
        _mm512_mask_storeu_ps(dst, first_lanes(n), (__m512)v);
        i = n;
    }
#endif
    return i;
}

static void
copies(float *dst, int64_t ld, const void *p, int64_t step, int64_t stride,
       int dtype, int64_t n, int64_t count)
{
    if (stride == 1) {
        BY_DTYPE(dtype, pack_adjacent(dst, ld, p, step, D, n, count))
        return;
    }
    for (int64_t c = 0; c < count; c++) {
        int64_t i = 0;
        if (stride == 2 && dtype == AIR_F32)
            i = even_floats(dst + c * ld, (const float *)p + c * step, n);
        if (stride == 2 && dtype == AIR_BF16)
            i = even_halves(dst + c * ld, (const uint16_t *)p + c * step, n);
        for (; i < n; i++)
            dst[c * ld + i] = get(p, c * step + i * stride, dtype);
    }
}

static void
add(float *dst, const float *src, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        store(dst + i, load(dst + i) + load(src + i));
    for (; i < n; i++)
        dst[i] += src[i];
}

static void
narrow(void *p, int64_t stride, int dtype, const float *src, float scale,
       int64_t n)
{
    int64_t i = 0;
    for (; stride == 1 && i + VL <= n; i += VL)
        vput(p, i, dtype, load(src + i) * set(scale));
    for (; i < n; i++)
        put(p, i * stride, dtype, src[i] * scale);
}

/* gemm_ops.dots_near */
INLINE float
sum_lanes(vf v)
{
#if VL == 16
    return _mm512_reduce_add_ps((__m512)v);
#else
    return sum(v);
#endif
}

INLINE void
near_rows(const int rows, float *t, const float *x, const float *w, int64_t rs,
          int64_t k)
{
    vf c[4] = {{0}};
    int64_t i = 0;
    for (; i + VL <= k; i += VL) {
        vf b = load(x + i);
        UNROLL for (int r = 0; r < rows; r++) c[r] =
            fma_(load(w + r * rs + i), b, c[r]);
    }
#if VL == 16
    const __mmask16 mask = first_lanes(k - i);
    vf b = (vf)_mm512_maskz_loadu_ps(mask, x + i);
    UNROLL for (int r = 0; r < rows; r++) c[r] =
        fma_((vf)_mm512_maskz_loadu_ps(mask, w + r * rs + i), b, c[r]);
    i = k;
#endif
    UNROLL for (int r = 0; r < rows; r++)
    {
        t[r] = sum_lanes(c[r]);
        for (int64_t j = i; j < k; j++)
            t[r] += x[j] * w[r * rs + j];
    }
}

static void
dots_near(float *t, int64_t nm, const float *x, int64_t xs, int64_t nn,
          const float *w, int64_t rs, int64_t k)
{
    for (int64_t m = 0; m < nm; m++, t += GEMV_NB, x += xs) {
        int64_t n = 0;
        for (; n + 4 <= nn; n += 4)
            near_rows(4, t + n, x, w + n * rs, rs, k);
        for (; n < nn; n++)
            near_rows(1, t + n, x, w + n * rs, rs, k);
    }
}

/* gemm_ops.half_block */
static void
half_block(float *acc, int64_t nr, const float *panel, int64_t xs,
           const float *w, int64_t rs, int64_t ks, int64_t kc, bool first)
{
    block_by(halves, acc, nr, panel, xs, w, rs, ks, kc, first);
}

const gemm_ops ISA_NAME(cpu_gemm) = {
    .isa = ISA_TEXT,
    .lanes = LANES,
    .rows = ROWS_MAX,
    .pack_x = pack_x,
    .pack_w = pack_w,
    .block = block,
    .half_block = half_block,
    .tile = tile_rows,
    .finish = finish,
    .finish_rows = finish_rows,
    .widen = widen,
    .dots = ISA_NAME(gemv_dots),
    .dots_near = dots_near,
    .stream = ISA_NAME(gemv_stream),
    .copies = copies,
    .columns = ISA_NAME(columns),
    .shifted = ISA_NAME(shifted),
    .add = add,
    .correlate = ISA_NAME(correlate),
    .correlate_weights = ISA_NAME(correlate_weights),
    .correlate_rows = ISA_NAME(correlate_rows),
    .depthwise = ISA_NAME(depthwise),
    .narrow = narrow,
    .unquant = ISA_NAME(unquant),
    .integers = ISA_NAME(integers),
    .order_words = ISA_NAME(order_words),
    .dots_words = ISA_NAME(dots_words),
    .thin = ISA_NAME(thin),
    .thin_deep = ISA_NAME(thin_deep),
    .small = ISA_NAME(small_products),
    .attend = &ISA_NAME(cpu_attend),
    .winograd = &ISA_NAME(cpu_winograd),
};
