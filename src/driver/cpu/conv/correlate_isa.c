/* correlate_isa.c: windows that slide over planes, and their gradient,
 * compiled once per instruction set. */
#include "driver/cpu/product/gemm_isa.h"
#include "driver/cpu/product/gemm_vec.h"
#include "driver/cpu/region/step_floats.h"

#include "driver/cpu/conv/correlate_run.h"

#if VL == 16
void correlate_avx2(const gemm_windows *s, const float *p, const float *w,
                    const float *start, int64_t outs, void *y);
#endif

/* Rows that half a vector holds: these CPUs do twice as many halves. */
void
ISA_NAME(correlate)(const gemm_windows *s, const float *p, const float *w,
                    const float *start, int64_t outs, void *y)
{
#if VL == 16
    if (s->n <= VL / 2) {
        correlate_avx2(s, p, w, start, outs, y);
        return;
    }
#endif
    slide_all(s, p, w, start, outs, y);
}

/* ---- the gradient of the windows' weights -------------------------------- */

#define TAPS  9  /* sums at once */
#define CHAIN 64 /* vectors in a row; then in double */

static void
add_sums(double *sums, vf *acc, int taps)
{
    for (int t = 0; t < taps; t++) {
        sums[t] += (double)sum(acc[t]);
        acc[t] = (vf){0};
    }
}

/* Lanes i < n. */
INLINE vi
kept_lanes(int64_t n)
{
    vi lanes;
    UNROLL for (int i = 0; i < VL; i++) lanes[i] = i < n ? -1 : 0;
    return lanes;
}

/* What lies behind a row of y is zero, what lies behind one of p anything. */
INLINE void
weigh(const gemm_windows *s, const float *p, const float *y, int64_t first,
      double *sums, int taps)
{
    const int64_t *at = s->at + first, whole = s->n / VL * VL;
    const vi rest = kept_lanes(s->n - whole);
    vf acc[TAPS] = {{0}};
    int done = 0;
    for (int64_t r = 0; r < s->rows; r++, p += s->step, y += s->ld) {
        for (int64_t i = 0; i < whole; i += VL) {
            vf f = load(y + i);
            UNROLL for (int t = 0; t < taps; t++) acc[t] =
                fma_(f, load(p + at[t] + i), acc[t]);
            if (++done % CHAIN == 0)
                add_sums(sums + first, acc, taps);
        }
        if (whole == s->n)
            continue;
        vf f = load(y + whole);
        UNROLL for (int t = 0; t < taps; t++) acc[t] =
            fma_(f, (vf)((vi)load(p + at[t] + whole) & rest), acc[t]);
        if (++done % CHAIN == 0)
            add_sums(sums + first, acc, taps);
    }
    add_sums(sums + first, acc, taps);
}

void
ISA_NAME(correlate_weights)(const gemm_windows *s, const float *p,
                            const float *y, double *sums)
{
    int64_t t = 0;
    for (; t + TAPS <= s->taps; t += TAPS)
        weigh(s, p, y, t, sums, TAPS);
    for (; t + 4 <= s->taps; t += 4)
        weigh(s, p, y, t, sums, 4);
    for (; t < s->taps; t++)
        weigh(s, p, y, t, sums, 1);
}
