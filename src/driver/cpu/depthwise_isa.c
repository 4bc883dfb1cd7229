/* depthwise_isa.c: a window that slides over one plane, compiled once per
 * instruction set. */
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

#define AT_ONCE 8 /* vectors of the result: hides the latency of a sum */

/* Vectors of the result lie anywhere: of rows that are short, or of one. */
typedef struct {
    const float *p[AT_ONCE];
    int64_t y[AT_ONCE]; /* index of the first element */
    int64_t n[AT_ONCE]; /* elements left of its row */
    int count;
} vectors;

static void
put_some(void *y, int64_t i, int dtype, vf v, int64_t n)
{
    float t[VL];
    store(t, v);
    for (int64_t k = 0; k < n; k++)
        put(y, i + k, dtype, t[k]);
}

/* y has `size` elements. What a whole vector writes behind its row, the next
 * row writes again. */
static void
flush(vectors *s, void *y, int dtype, int64_t size, const int64_t *at,
      const float *w, int64_t taps, float start)
{
    vf acc[AT_ONCE];
    for (int i = s->count; i < AT_ONCE; i++)
        s->p[i] = s->p[0];
    UNROLL for (int i = 0; i < AT_ONCE; i++) acc[i] = set(start);
    for (int64_t t = 0; t < taps; t++) {
        vf f = set(w[t]);
        int64_t from = at[t];
        UNROLL for (int i = 0; i < AT_ONCE; i++) acc[i] =
            fma_(load(s->p[i] + from), f, acc[i]);
    }
    UNROLL for (int i = 0; i < AT_ONCE; i++)
    {
        if (i < s->count && s->y[i] + VL <= size)
            vput(y, s->y[i], dtype, acc[i]);
        else if (i < s->count)
            put_some(y, s->y[i], dtype, acc[i], s->n[i]);
    }
    s->count = 0;
}

void
ISA_NAME(correlate)(void *y, int dtype, int64_t rows, int64_t n, const float *p,
                    int64_t step, const int64_t *at, const float *w,
                    int64_t taps, float start)
{
    vectors s = {.count = 0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i += VL) {
            s.p[s.count] = p + r * step + i;
            s.y[s.count] = r * n + i;
            s.n[s.count++] = n - i < VL ? n - i : VL;
            if (s.count == AT_ONCE)
                flush(&s, y, dtype, rows * n, at, w, taps, start);
        }
    if (s.count > 0)
        flush(&s, y, dtype, rows * n, at, w, taps, start);
}
