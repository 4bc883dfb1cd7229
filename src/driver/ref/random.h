/* random.h: what random operators draw, word by word as ATen's CPU kernels do,
 * so that one state of mt19937 gives the same results. Compiled once per
 * instruction set; the words come from mt19937 or Philox.
 *
 * A float of [0, 1) takes 24 bits of a word, a double 53 bits of two. */
#ifndef REF_RANDOM_H
#define REF_RANDOM_H

#include "driver/ref/args.h"

#define MT_WORDS 624
#define MT_SHIFT 397
#define CHUNK    1024 /* elements drawn at a time */
#define LOT      16   /* normals that are made together: 8 pairs */

/* Where the words of one operator come from. */
typedef struct {
    air_mt19937 *mt; /* NULL: Philox */
    uint64_t seed, next;
    bool fused, short_log, closed, has_normal;
    double normal; /* where mt is NULL */
} random_source;

/* ---- words --------------------------------------------------------------- */

static inline uint32_t
mt_twist(uint32_t high, uint32_t low)
{
    uint32_t odd = (uint32_t) - (int32_t)(low & 1);
    return ((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1 ^
           (odd & 0x9908b0dfu);
}

static inline void
mt_renew(uint32_t *w)
{
    int i = 0;
    for (; i < MT_WORDS - MT_SHIFT; i++)
        w[i] = w[i + MT_SHIFT] ^ mt_twist(w[i], w[i + 1]);
    for (; i < MT_WORDS - 1; i++)
        w[i] = w[i + MT_SHIFT - MT_WORDS] ^ mt_twist(w[i], w[i + 1]);
    w[i] = w[MT_SHIFT - 1] ^ mt_twist(w[i], w[0]);
}

static inline uint32_t
mt_temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static inline void
mt_words(air_mt19937 *mt, uint32_t *out, int64_t n)
{
    while (n > 0) {
        if (mt->next >= MT_WORDS) {
            mt_renew(mt->words);
            mt->next = 0;
        }
        const uint32_t *from = mt->words + mt->next;
        int64_t here = MT_WORDS - mt->next;
        here = here < n ? here : n;
        for (int64_t i = 0; i < here; i++)
            out[i] = mt_temper(from[i]);
        mt->next += (int32_t)here;
        out += here;
        n -= here;
    }
}

/* Words 4 * block .. 4 * block + 3. */
static inline void
philox_block(uint64_t seed, uint64_t block, uint32_t *out)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0];
        uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key[0];
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key[1];
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    memcpy(out, c, sizeof c);
}

static inline void
philox_words(random_source *s, uint32_t *out, int64_t n)
{
    uint32_t block[4];
    for (int64_t i = 0; i < n; i++, s->next++) {
        if (i == 0 || s->next % 4 == 0)
            philox_block(s->seed, s->next / 4, block);
        out[i] = block[s->next % 4];
    }
}

static inline void
random_words(random_source *s, uint32_t *out, int64_t n)
{
    if (s->mt != NULL)
        mt_words(s->mt, out, n);
    else
        philox_words(s, out, n);
}

/* The source of a call that draws at most so many words; argument `seed`, if
 * the operator has one and it was given, names a Philox generator at its
 * start. false: nothing to draw for this thread. One thread draws: the words
 * are a sequence. */
static inline bool
random_open(const air_call *call, int seed, int64_t words, const air_task *task,
            random_source *out)
{
    const air_generator *g = task->generator;
    bool given = seed >= 0 && seed < call->nargs &&
                 call->args[seed].kind != AIR_ARG_NONE;
    *out = (random_source){.fused = true, .short_log = true};
    if (task->id != 0 || words == 0)
        return false;
    if (given) {
        out->seed = (uint64_t)ref_int(call, seed, 0);
    } else if (g != NULL) {
        out->fused = g->fused;
        out->short_log = g->short_log;
        out->closed = g->closed;
        out->mt = g->take(g->user);
        return out->mt != NULL;
    } else if (task->philox != NULL) {
        out->seed = task->philox->seed;
        out->next =
            __atomic_fetch_add(&task->philox->drawn,
                               (uint64_t)(words + 3) / 4 * 4, __ATOMIC_RELAXED);
    }
    return true;
}

/* ---- numbers of [0, 1) --------------------------------------------------- */

static inline float
random_float(uint32_t word)
{
    return (float)(int32_t)(word & 0xffffff) * 0x1p-24f;
}

static inline uint64_t
random_bits(const uint32_t *pair)
{
    return (uint64_t)pair[0] << 32 | pair[1];
}

static inline double
random_double(const uint32_t *pair)
{
    return (double)(int64_t)(random_bits(pair) & 0x1fffffffffffff) * 0x1p-53;
}

static inline void
random_floats(random_source *s, float *out, int64_t n)
{
    uint32_t words[CHUNK];
    random_words(s, words, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = random_float(words[i]);
}

static inline void
random_doubles(random_source *s, double *out, int64_t n)
{
    uint32_t words[2 * CHUNK];
    random_words(s, words, 2 * n);
    for (int64_t i = 0; i < n; i++)
        out[i] = random_double(words + 2 * i);
}

/* a * b + c as the application's code rounds it */
static inline float
mul_add(const random_source *s, float a, float b, float c)
{
    return s->fused ? fmaf(a, b, c) : a * b + c;
}

static inline double
mul_add_double(const random_source *s, double a, double b, double c)
{
    return s->fused ? fma(a, b, c) : a * b + c;
}

/* n numbers into a dense tensor, from element `at`. */
static inline void
put_floats(const ref_tensor *out, int64_t at, const float *from, int64_t n)
{
    int64_t bytes = (int64_t)ref_bytes(out->dtype);
    char *to = out->data + at * bytes;
    if (out->dtype == AIR_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++)
            ref_put_float(out->dtype, to + i * bytes, (double)from[i]);
}

/* ---- uniform ------------------------------------------------------------- */

/* from <= result < to: what rounding makes `to` becomes `from`, where the
 * application does so. */
static inline void
put_uniform(const random_source *s, const ref_tensor *out, int64_t at, float *u,
            int64_t n, double from, double to)
{
    if (s->closed) {
        put_floats(out, at, u, n);
        return;
    }
    int dtype = out->dtype;
    int64_t bytes = (int64_t)ref_bytes(dtype);
    char limit[8];
    ref_put_float(dtype, limit, to);
    for (int64_t i = 0; i < n; i++)
        u[i] = u[i] >= (float)to ? (float)from : u[i];
    put_floats(out, at, u, n);
    if (dtype == AIR_F32)
        return;
    for (char *p = out->data + at * bytes, *end = p + n * bytes; p < end;
         p += bytes)
        if (ref_get(dtype, p) >= ref_get(dtype, limit))
            ref_put_float(dtype, p, from);
}

static inline void
uniform_floats(random_source *s, const ref_tensor *out, double from, double to)
{
    float range = (float)to - (float)from, base = (float)from, u[CHUNK];
    for (int64_t at = 0, n = ref_numel(out); at < n; at += CHUNK) {
        int64_t here = n - at < CHUNK ? n - at : CHUNK;
        random_floats(s, u, here);
        for (int64_t i = 0; i < here; i++)
            u[i] = mul_add(s, u[i], range, base);
        put_uniform(s, out, at, u, here, from, to);
    }
}

static inline void
uniform_doubles(random_source *s, const ref_tensor *out, double from, double to)
{
    double *p = (double *)(void *)out->data;
    for (int64_t at = 0, n = ref_numel(out); at < n; at += CHUNK) {
        int64_t here = n - at < CHUNK ? n - at : CHUNK;
        random_doubles(s, p + at, here);
        for (int64_t i = at; i < at + here; i++) {
            p[i] = mul_add_double(s, p[i], to - from, from);
            p[i] = p[i] >= to && !s->closed ? from : p[i];
        }
    }
}

static inline void
random_uniform(const air_call *call, int seed, double from, double to,
               const air_task *task)
{
    random_source s;
    ref_tensor out = ref_out(call, 0, task);
    if (!random_open(call, seed, 2 * ref_numel(&out), task, &s))
        return;
    if (out.dtype == AIR_F64)
        uniform_doubles(&s, &out, from, to);
    else
        uniform_floats(&s, &out, from, to);
}

/* ---- normal -------------------------------------------------------------- */

/* log of a positive number: x = m 2^e with m in [sqrt(1/2), sqrt(2)), then a
 * polynomial in m - 1 (Cephes). */
static inline float
short_log(float x)
{
    uint32_t bits = ref_to_bits(x);
    float e = (float)((int32_t)(bits >> 23) - 126), y;
    float m = ref_from_bits((bits & 0x807fffffu) | 0x3f000000u);
    bool low = m < 0.707106781186547524f;
    float add = low ? m : 0.0f;
    m = m - 1.0f;
    e = e - (low ? 1.0f : 0.0f);
    m = m + add;
    float z = m * m;
    y = fmaf(7.0376836292e-2f, m, -1.1514610310e-1f);
    y = fmaf(y, m, 1.1676998740e-1f);
    y = fmaf(y, m, -1.2420140846e-1f);
    y = fmaf(y, m, 1.4249322787e-1f);
    y = fmaf(y, m, -1.6668057665e-1f);
    y = fmaf(y, m, 2.0000714765e-1f);
    y = fmaf(y, m, -2.4999993993e-1f);
    y = fmaf(y, m, 3.3333331174e-1f) * m;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, m + y);
}

/* sin of r in [-pi/4, pi/4], and cos of it, with z = r r (Cephes). */
static inline float
short_sin(float r, float z)
{
    float s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    return fmaf(fmaf(s, z, -1.6666654611e-1f) * z, r, r);
}

static inline float
short_cos(float z)
{
    float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f) * z;
    return fmaf(c, z, -(z * 0.5f)) + 1.0f;
}

/* x >= 0 is j pi / 4 + r with j even, which says how cos and sin change places
 * and signs. */
static inline void
short_cos_sin(float x, float *out_cos, float *out_sin)
{
    int32_t j = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    float y = (float)j, r = fmaf(y, -0.78515625f, x);
    r = fmaf(y, -2.4187564849853515625e-4f, r);
    r = fmaf(y, -3.77489497744594108e-8f, r);
    float z = r * r, c = short_cos(z), s = short_sin(r, z);
    uint32_t flip_sin = (uint32_t)(j & 4) << 29;
    uint32_t flip_cos = (uint32_t)(~(j - 2) & 4) << 29;
    bool swap = (j & 2) != 0;
    *out_sin = ref_from_bits(ref_to_bits(swap ? c : s) ^ flip_sin);
    *out_cos = ref_from_bits(ref_to_bits(swap ? s : c) ^ flip_cos);
}

#define TWO_PI 6.283185307179586476925286766559
#define PAIRS  (LOT / 2)

/* n numbers of [0, 1) -> n normals: in each lot of 16 the first 8 are paired
 * with the others. Lots are gathered, so that the loop is a long one. */
static inline void
short_lots(float *u, int64_t n, float mean, float std)
{
    float a[CHUNK / 2], b[CHUNK / 2];
    for (int64_t i = 0; i < n / LOT; i++) {
        memcpy(a + i * PAIRS, u + i * LOT, PAIRS * sizeof *a);
        memcpy(b + i * PAIRS, u + i * LOT + PAIRS, PAIRS * sizeof *b);
    }
    for (int64_t i = 0; i < n / 2; i++) {
        float c, s, r = sqrtf(-2.0f * short_log(1.0f - a[i]));
        short_cos_sin((float)TWO_PI * b[i], &c, &s);
        a[i] = fmaf(r * c, std, mean);
        b[i] = fmaf(r * s, std, mean);
    }
    for (int64_t i = 0; i < n / LOT; i++) {
        memcpy(u + i * LOT, a + i * PAIRS, PAIRS * sizeof *a);
        memcpy(u + i * LOT + PAIRS, b + i * PAIRS, PAIRS * sizeof *b);
    }
}

/* One lot, by the C library's functions. */
static inline void
lot_floats(const random_source *s, float *u, float mean, float std)
{
    for (int i = 0; i < PAIRS; i++) {
        float r = sqrtf(-2.0f * logf(1.0f - u[i]));
        float angle = (float)(TWO_PI * (double)u[i + PAIRS]);
        u[i] = mul_add(s, r * cosf(angle), std, mean);
        u[i + PAIRS] = mul_add(s, r * sinf(angle), std, mean);
    }
}

static inline void
lot_doubles(const random_source *s, double *u, double mean, double std)
{
    for (int i = 0; i < PAIRS; i++) {
        double r = sqrt(-2 * log(1 - u[i])), angle = TWO_PI * u[i + PAIRS];
        u[i] = mul_add_double(s, r * cos(angle), std, mean);
        u[i + PAIRS] = mul_add_double(s, r * sin(angle), std, mean);
    }
}

/* n: a multiple of LOT, at most CHUNK. */
static inline void
normal_lots(random_source *s, const ref_tensor *out, int64_t at, int64_t n,
            double mean, double std)
{
    float u[CHUNK];
    double *p = (double *)(void *)out->data + at;
    if (out->dtype == AIR_F64) {
        random_doubles(s, p, n);
        for (int64_t i = 0; i < n; i += LOT)
            lot_doubles(s, p + i, mean, std);
        return;
    }
    random_floats(s, u, n);
    if (s->short_log)
        short_lots(u, n, (float)mean, (float)std);
    for (int64_t i = 0; i < n && !s->short_log; i += LOT)
        lot_floats(s, u + i, (float)mean, (float)std);
    put_floats(out, at, u, n);
}

/* The last 16 elements of a tensor are a lot anyway. What was drawn for those
 * of them that the lots before do not cover is thrown away; halves, which are
 * not drawn in place, do without. */
static inline void
normal_skip(random_source *s, int dtype, int64_t n)
{
    uint32_t words[2 * LOT];
    random_words(s, words, dtype == AIR_F64 ? 2 * n : n);
}

static inline void
normal_by_lots(random_source *s, const ref_tensor *out, double mean, double std)
{
    int64_t n = ref_numel(out), whole = n - n % LOT;
    for (int64_t at = 0; at < whole; at += CHUNK)
        normal_lots(s, out, at, whole - at < CHUNK ? whole - at : CHUNK, mean,
                    std);
    if (whole == n)
        return;
    if (out->dtype == AIR_F32 || out->dtype == AIR_F64)
        normal_skip(s, out->dtype, n - whole);
    normal_lots(s, out, n - LOT, LOT, mean, std);
}

/* One by one: of each pair the second is kept for the next. */
static inline double
normal_next(random_source *s, double mean, double std)
{
    bool *has = s->mt != NULL ? &s->mt->has_normal : &s->has_normal;
    double *kept = s->mt != NULL ? &s->mt->normal : &s->normal, v = *kept;
    if (!*has) {
        double u[2];
        random_doubles(s, u, 2);
        double r = sqrt(-2 * log1p(-u[1])), angle = TWO_PI * u[0];
        *kept = r * sin(angle);
        v = r * cos(angle);
    }
    *has = !*has;
    return mul_add_double(s, v, std, mean);
}

static inline void
random_normal(const air_call *call, int seed, double mean, double std,
              bool one_by_one, const air_task *task)
{
    random_source s;
    ref_tensor out = ref_out(call, 0, task);
    int64_t n = ref_numel(&out), bytes = (int64_t)ref_bytes(out.dtype);
    if (!random_open(call, seed, n == 0 ? 0 : 2 * (n + 2 * LOT), task, &s))
        return;
    if (n >= LOT && !one_by_one) {
        normal_by_lots(&s, &out, mean, std);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ref_put_float(out.dtype, out.data + i * bytes,
                      normal_next(&s, mean, std));
}

/* ---- bernoulli ----------------------------------------------------------- */

/* 1 where a double of [0, 1) is below p. */
static inline void
random_bernoulli(const air_call *call, int seed, double p, const air_task *task)
{
    random_source s;
    ref_tensor out = ref_out(call, 0, task);
    int64_t bytes = (int64_t)ref_bytes(out.dtype);
    int64_t below = (int64_t)ceil(p * 0x1p53); /* of 2^53 values */
    uint32_t words[2 * CHUNK];
    uint8_t hit[CHUNK];
    if (!random_open(call, seed, 2 * ref_numel(&out), task, &s))
        return;
    for (int64_t at = 0, n = ref_numel(&out); at < n; at += CHUNK) {
        int64_t here = n - at < CHUNK ? n - at : CHUNK;
        char *to = out.data + at * bytes;
        random_words(&s, words, 2 * here);
        for (int64_t i = 0; i < here; i++)
            hit[i] = (int64_t)(random_bits(words + 2 * i) & 0x1fffffffffffff) <
                     below;
        if (bytes == 1)
            memcpy(to, hit, (size_t)here);
        else
            for (int64_t i = 0; i < here; i++)
                ref_put_int(out.dtype, to + i * bytes, hit[i]);
    }
}

/* ---- integers ------------------------------------------------------------ */

#define WIDE_RANGE ((uint64_t)1 << 28) /* from here on two words each */
#define WIDE_COUNT (UINT32_MAX / 20)   /* of a permutation */

/* n numbers: number i below `range`, less i where it shrinks. */
static inline void
random_below(random_source *s, uint64_t range, bool shrinks, bool wide,
             uint64_t *out, int64_t n)
{
    uint32_t w[2 * CHUNK];
    random_words(s, w, wide ? 2 * n : n);
    for (int64_t i = 0; i < n; i++) {
        uint64_t below = range - (shrinks ? (uint64_t)i : 0);
        out[i] = wide ? random_bits(w + 2 * i) % below : w[i] % (uint32_t)below;
    }
}

/* low <= result < high, which the sizes' inference made sure of */
static inline void
random_integers(const air_call *call, int seed, int64_t low, int64_t high,
                const air_task *task)
{
    random_source s;
    uint64_t v[CHUNK], range = (uint64_t)high - (uint64_t)low;
    ref_tensor out = ref_out(call, 0, task);
    int64_t bytes = (int64_t)ref_bytes(out.dtype);
    if (!random_open(call, seed, 2 * ref_numel(&out), task, &s))
        return;
    for (int64_t at = 0, n = ref_numel(&out); at < n; at += CHUNK) {
        int64_t here = n - at < CHUNK ? n - at : CHUNK;
        random_below(&s, range, false, range >= WIDE_RANGE, v, here);
        for (int64_t i = 0; i < here; i++)
            ref_put_int(out.dtype, out.data + (at + i) * bytes,
                        (int64_t)((uint64_t)low + v[i]));
    }
}

static inline void
random_swap(char *a, char *b, size_t bytes)
{
    char kept[8];
    ref_copy(kept, a, bytes);
    ref_copy(a, b, bytes);
    ref_copy(b, kept, bytes);
}

#endif
