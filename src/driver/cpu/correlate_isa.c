/* correlate_isa.c: windows that slide over planes, compiled once per
 * instruction set. */
#include "driver/cpu/gemm_isa.h"
#include "driver/cpu/gemm_vec.h"

/* Sums at once, which hide each other's latency: of one result, or of four
 * that read the same. */
#define ALONE  8
#define GROUP  4
#define SHARED (VL == 16 ? 4 : 2)

/* Vectors of a result lie anywhere: of rows that are short, or of one. */
typedef struct {
    const float *p[ALONE];
    int64_t y[ALONE]; /* index of the first element */
    int64_t n[ALONE]; /* elements left of its row */
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

/* What a whole vector writes behind its row, the next row writes again. */
INLINE void
put_one(const gemm_windows *s, const vectors *v, int i, int64_t o, vf acc,
        void *y)
{
    int64_t size = s->rows * s->n, at = o * s->ld + v->y[i];
    if (i < v->count && v->y[i] + VL <= size)
        vput(y, at, s->dtype, acc);
    else if (i < v->count)
        put_some(y, at, s->dtype, acc, v->n[i]);
}

INLINE void
flush(const gemm_windows *s, vectors *v, const float *w, const float *start,
      void *y, int outs, int vecs)
{
    vf acc[GROUP][ALONE];
    for (int i = v->count; i < vecs; i++)
        v->p[i] = v->p[0];
    UNROLL for (int o = 0; o < outs; o++) UNROLL for (int i = 0; i < vecs; i++)
        acc[o][i] = set(start[o]);
    for (int64_t t = 0; t < s->taps; t++) {
        int64_t from = s->at[t];
        vf x[ALONE];
        UNROLL for (int i = 0; i < vecs; i++) x[i] = load(v->p[i] + from);
        UNROLL for (int o = 0; o < outs; o++)
        {
            vf f = set(w[o * s->taps + t]);
            UNROLL for (int i = 0; i < vecs; i++) acc[o][i] =
                fma_(x[i], f, acc[o][i]);
        }
    }
    UNROLL for (int o = 0; o < outs; o++) UNROLL for (int i = 0; i < vecs; i++)
        put_one(s, v, i, o, acc[o][i], y);
    v->count = 0;
}

INLINE void
run(const gemm_windows *s, const float *p, const float *w, const float *start,
    void *y, int outs, int vecs)
{
    vectors v = {.count = 0};
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < s->n; i += VL) {
            v.p[v.count] = p + r * s->step + i;
            v.y[v.count] = r * s->n + i;
            v.n[v.count++] = s->n - i < VL ? s->n - i : VL;
            if (v.count == vecs)
                flush(s, &v, w, start, y, outs, vecs);
        }
    if (v.count > 0)
        flush(s, &v, w, start, y, outs, vecs);
}

#if VL == 16
void correlate_avx2(const gemm_windows *s, const float *p, const float *w,
                    const float *start, int64_t outs, void *y);
#endif

/* Rows that half a vector holds: these CPUs do twice as many halves. */
void
ISA_NAME(correlate)(const gemm_windows *s, const float *p, const float *w,
                    const float *start, int64_t outs, void *y)
{
    int64_t o = 0, size = s->dtype == AIR_F32 ? 4 : 2;
#if VL == 16
    if (s->n <= VL / 2) {
        correlate_avx2(s, p, w, start, outs, y);
        return;
    }
#endif
    for (; o + GROUP <= outs; o += GROUP)
        run(s, p, w + o * s->taps, start + o, (char *)y + o * s->ld * size,
            GROUP, SHARED);
    for (; o < outs; o++)
        run(s, p, w + o * s->taps, start + o, (char *)y + o * s->ld * size, 1,
            ALONE);
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
