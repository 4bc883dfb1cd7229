/* correlate_rows_isa.c: a window of one channel that slides over its plane,
 * lanes along rows, compiled once per instruction set. Some rows of results
 * lie in registers, and what several of them see is loaded once: a load that
 * begins anywhere takes the CPU as long as two multiply-adds. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"

enum { MANY = 7, SOME = 4 }; /* rows of results at once */

#if VL == 16
void correlate_rows_avx2(const gemm_slide *s, const float *p, const float *w,
                         float start, void *y);
#endif

/* Compilers would rather load again for each use. */
INLINE vf
load_once(const float *p)
{
    vf v = load(p);
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#elif defined(__x86_64__)
    __asm__("" : "+x"(v));
#endif
    return v;
}

/* Sums of `rows` results += `taps` rows of the window; line r of the plane is
 * seen by result r / stride and those before it. */
INLINE void
add_band(const gemm_slide *s, vf *sums, const float *p, int64_t line,
         const float *w, const int rows, const int taps, const int stride)
{
    for (int64_t x = 0; x < s->kernel[1]; x++) {
        const float *from = p + s->across[x];
        vf f[3];
        UNROLL for (int k = 0; k < taps; k++) f[k] =
            set(w[k * s->kernel[1] + x]);
        UNROLL for (int r = 0; r < (rows - 1) * stride + taps; r++)
        {
            vf v = load_once(from + r * line);
            UNROLL for (int k = 0; k < taps; k++) if (r >= k &&
                                                      (r - k) % stride == 0 &&
                                                      (r - k) / stride < rows)
                sums[(r - k) / stride] = fma_(v, f[k], sums[(r - k) / stride]);
        }
    }
}

INLINE void
put_vector(void *y, int64_t at, int dtype, vf v, int64_t n)
{
    if (n >= VL) {
        vput(y, at, dtype, v);
        return;
    }
#if VL == 16
    if (dtype == AIR_F32) {
        _mm512_mask_storeu_ps((float *)y + at, first_lanes(n), (__m512)v);
        return;
    }
    __m256i halves;
    vput(&halves, 0, dtype, v);
    _mm256_mask_storeu_epi16((uint16_t *)y + at, first_lanes(n), halves);
#else
    for (int64_t i = 0; i < n; i++)
        put(y, at + i, dtype, v[i]);
#endif
}

/* Results (row, i) and what is below and beside it. */
INLINE void
sum_rows(const gemm_slide *s, const float *p, const float *w, float start,
         void *y, int64_t row, int64_t i, const int rows)
{
    const int64_t width = s->kernel[1], high = s->kernel[0], step = s->step;
    const int64_t share = step == s->down ? 1 : step == 2 * s->down ? 2 : 0;
    vf sums[MANY];
    int64_t k = 0;
    UNROLL for (int r = 0; r < rows; r++) sums[r] = set(start);
    p += row * step + i;
    for (; share == 1 && k + 3 <= high; k += 3, p += 3 * s->down)
        add_band(s, sums, p, s->down, w + k * width, rows, 3, 1);
    for (; share == 2 && k + 3 <= high; k += 3, p += 3 * s->down)
        add_band(s, sums, p, s->down, w + k * width, rows, 3, 2);
    for (; share == 1 && k + 2 <= high; k += 2, p += 2 * s->down)
        add_band(s, sums, p, s->down, w + k * width, rows, 2, 1);
    for (; k < high; k++, p += s->down)
        add_band(s, sums, p, step, w + k * width, rows, 1, 1);
    UNROLL for (int r = 0; r < rows; r++)
        put_vector(y, (row + r) * s->n + i, s->dtype, sums[r], s->n - i);
}

/* The last rows, and the last lanes, are taken again where they do not fill
 * what is taken at once. */
INLINE void
slide(const gemm_slide *s, const float *p, const float *w, float start, void *y,
      const int rows)
{
    for (int64_t r = 0; r < s->rows; r += rows)
        for (int64_t i = 0; i < s->n; i += VL) {
            int64_t row = r + rows <= s->rows ? r : s->rows - rows;
            int64_t at = i + VL <= s->n || s->n < VL ? i : s->n - VL;
            sum_rows(s, p, w, start, y, row, at, rows);
        }
}

/* Rows that are computed, some of them again. */
static int64_t
taken(int64_t rows, int64_t at_once)
{
    return (rows + at_once - 1) / at_once * at_once;
}

/* gemm_ops.correlate_rows */
void
ISA_NAME(correlate_rows)(const gemm_slide *s, const float *p, const float *w,
                         float start, void *y)
{
#if VL == 16
    if (s->n <= VL / 2) {
        correlate_rows_avx2(s, p, w, start, y);
        return;
    }
#endif
    if (s->rows >= MANY && taken(s->rows, MANY) <= taken(s->rows, SOME))
        slide(s, p, w, start, y, MANY);
    else if (s->rows >= SOME)
        slide(s, p, w, start, y, SOME);
    else
        slide(s, p, w, start, y, 1);
}
