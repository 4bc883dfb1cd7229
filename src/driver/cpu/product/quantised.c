/* quantised.c: air::quantised_mm(a, weight, scale, zero, bias, bits, rounded):
 *
 *     y(m, n) = sum over k of a(m, k) * w(n, k)  +  bias(n)
 *     w(n, k) = q(n, k) * scale(n, k / group)  +  zero(n, k / group)
 *
 * where q is an i8, or a nibble of a u8, the lower one first, less 8. Few rows
 * of a read the weights once, as they lie; for more, panels are made of them, a
 * block at a time, and the matrix product does the rest: of floats, or of pairs
 * of bf16 where w may be rounded to that (gemm_pairs.c). */
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_digits.h"
#include "driver/cpu/product/gemm_pairs.h"
#include "driver/cpu/product/library.h"
#include "driver/cpu/share.h"

#include <string.h>

#define FEW      16  /* rows of a that the dot kernels take */
#define DOT_ROWS 120 /* of w at once: a multiple of every tile's streams */

typedef struct {
    gemm_job job; /* x: the weight, whose rows lie in the lanes; w: a */
    const gemm_ops *ops;
    const char *q;
    const air_tensor *scale, *zero; /* NULL: 1, 0 */
    const void *scale_data, *zero_data;
    int64_t groups, group; /* of a row, numbers of a group */
    int bits;
    bool rounded; /* w may be rounded to the dtype of a */
    bool pairs;   /* by VDPBF16PS */
    bool digits;  /* by VPDPBUSD, of few rows */
} product;

static const air_tensor *
optional(const air_call *call, int i)
{
    bool given = call->args[i].kind == AIR_ARG_TENSOR &&
                 call->args[i].t->dtype != AIR_DTYPE_NONE;
    return given ? call->args[i].t : NULL;
}

static const void *
data_of(const air_tensor *t, const air_task *task)
{
    return t == NULL || task == NULL ? NULL : air_data(t, task);
}

static void
set_bias(gemm_job *job, const air_tensor *bias, const air_task *task)
{
    if (bias == NULL)
        return;
    job->s = task == NULL ? "" : air_data(bias, task);
    job->s_dtype = bias->dtype;
    job->sl = 1;
    job->beta = 1;
}

/* task NULL: sizes only, no pointers. */
static product
make(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    const air_tensor *a = call->args[0].t, *w = call->args[1].t;
    const air_tensor *y = &call->outs[0];
    product p = {.ops = ops, .bits = (int)call->args[5].i};
    p.pairs = ops != NULL && ops->dots_pairs != NULL;
    p.digits = ops != NULL && ops->dots_digits != NULL;
    p.rounded = call->args[6].i != 0;
    p.scale = optional(call, 2), p.zero = optional(call, 3);
    p.scale_data = data_of(p.scale, task);
    p.zero_data = data_of(p.zero, task);
    p.q = data_of(w, task);
    p.job = (gemm_job){.nx = w->dims[0],
                       .nw = a->dims[0],
                       .k = a->dims[1],
                       .w = {data_of(a, task), a->dims[1], 1, a->dtype},
                       .y = task == NULL ? NULL : air_data(y, task),
                       .yl = 1,
                       .yr = w->dims[0],
                       .y_dtype = y->dtype,
                       .alpha = 1};
    set_bias(&p.job, optional(call, 4), task);
    const air_tensor *some = p.scale != NULL ? p.scale : p.zero;
    p.groups = some == NULL ? 1 : some->dims[1];
    p.group = p.groups == 0 ? 0 : p.job.k / p.groups;
    return p;
}

/* Bytes of n numbers. */
static int64_t
packed(const product *p, int64_t n)
{
    return n * p->bits / 8;
}

/* f(row, g) of scale or zero. */
static float
factor(const product *p, const air_tensor *t, const void *data, int64_t row,
       int64_t g, float otherwise)
{
    const int64_t at = row * p->groups + g;
    float f = otherwise;
    if (t == NULL)
        return f;
    if (t->dtype == AIR_F32)
        return ((const float *)data)[at];
    p->ops->widen(&f, (const uint16_t *)data + at, 1, t->dtype, 1);
    return f;
}

/* dst[i] = f(row, first + i) of scale or zero; `otherwise` where absent. */
static void
factors(const product *p, const air_tensor *t, const void *data, float *dst,
        int64_t row, int64_t first, int64_t n, float otherwise)
{
    if (t == NULL) {
        for (int64_t i = 0; i < n; i++)
            dst[i] = otherwise;
        return;
    }
    int64_t at = row * p->groups + first;
    p->ops->widen(dst, (const char *)data + at * cpu_gemm_size_of(t->dtype), 1,
                  t->dtype, n);
}

/* row[i] = w(n, k + i) */
static void
unpack(const product *p, float *row, int64_t n, int64_t k, int64_t count)
{
    const char *q = p->q + packed(p, n * p->job.k);
    for (int64_t i = 0, next; i < count; i = next) {
        int64_t g = (k + i) / p->group;
        next = min64(count, (g + 1) * p->group - k);
        float s = factor(p, p->scale, p->scale_data, n, g, 1);
        float z = factor(p, p->zero, p->zero_data, n, g, 0);
        p->ops->integers(row + i, q, p->bits, k + i, next - i, s, z);
    }
}

/* ---- few rows ------------------------------------------------------------ */

static bool
few(const product *p)
{
    if (p->job.nw > FEW)
        return false;
    if (p->pairs || p->digits)
        return true;
    return p->bits == 8 || (p->groups <= GEMM_GROUPS_MAX && p->group % 8 == 0 &&
                            (p->group % 128 == 0 || 128 % p->group == 0));
}

/* Rows of a in the order of the dot kernel, as floats, pairs or digits, and
 * where there are zeros its sums by group. */
typedef struct {
    float *x, *sums;
} prepared;

/* Floats of a row of a; rows of pairs lie in no common set of the cache. */
static int64_t
row_floats(const product *p)
{
    if (p->digits)
        return cpu_digits_bytes(p->bits, p->job.k) / (int64_t)sizeof(float);
    return p->pairs ? (round_up(p->job.k, 128) + 64) / 2 : p->job.k;
}

static int64_t
prepared_floats(const product *p)
{
    int64_t sums = p->zero == NULL ? 0 : p->groups;
    return round_up(p->job.nw * (row_floats(p) + sums), 16);
}

/* Each thread makes one row for itself, where that is quick: no barrier. */
static bool
each_alone(const product *p)
{
    return (p->pairs || p->digits) && p->job.nw == 1;
}

static size_t
few_bytes(const product *p, int threads)
{
    const int64_t rows = each_alone(p) ? threads : 1;
    return (size_t)(prepared_floats(p) * rows) * sizeof(float);
}

static prepared
place(const product *p, const air_task *task)
{
    float *x = task->workspace;
    if (each_alone(p))
        x += task->id * prepared_floats(p);
    return (prepared){x, x + p->job.nw * row_floats(p)};
}

#define SOME 1024 /* numbers of a made floats at once */

static void
sum_groups(const product *p, const prepared *to, const char *a, int64_t m)
{
    float x[SOME];
    for (int64_t g = 0; g < p->groups; g++) {
        double sum = 0;
        for (int64_t i = 0, n; i < p->group; i += n) {
            int64_t at = g * p->group + i;
            n = min64(p->group - i, SOME);
            p->ops->widen(x, a + at * cpu_gemm_size_of(p->job.w.dtype), 1,
                          p->job.w.dtype, n);
            for (int64_t k = 0; k < n; k++)
                sum += (double)x[k];
        }
        to->sums[m * p->groups + g] = (float)sum;
    }
}

static void
make_digits(const product *p, char *dst, const char *src, float *scratch,
            int64_t part)
{
    for (int64_t k = 0; k < p->job.k; k += part) {
        int64_t n = min64(part, p->job.k - k);
        p->ops->widen(scratch, src + k * cpu_gemm_size_of(p->job.w.dtype), 1,
                      p->job.w.dtype, n);
        p->ops->digits(dst + cpu_digits_bytes(p->bits, k), scratch, p->bits, n);
    }
}

static void
prepare_row(const product *p, float *dst, const char *src, float *scratch)
{
    const int dtype = p->job.w.dtype;
    int64_t part = (int64_t)(AIR_SCRATCH / sizeof *scratch) / 128 * 128;
    if (p->digits) {
        make_digits(p, (char *)dst, src, scratch, part);
        return;
    }
    if (p->pairs) {
        p->ops->order_pairs((uint16_t *)(void *)dst,
                            (const uint16_t *)(const void *)src, p->bits,
                            p->job.k);
        return;
    }
    p->ops->widen(dst, src, 1, dtype, p->job.k);
    for (int64_t k = 0; p->bits == 4 && k < p->job.k; k += part) {
        int64_t n = min64(part, p->job.k - k);
        memcpy(scratch, dst + k, (size_t)n * sizeof *scratch);
        p->ops->order_words(dst + k, scratch, n);
    }
}

/* Threads share the rows of a. */
static void
prepare(const product *p, const prepared *to, const air_task *task)
{
    const gemm_view *a = &p->job.w;
    const bool alone = each_alone(p);
    int64_t begin = 0, end = p->job.nw, size = cpu_gemm_size_of(a->dtype);
    if (!alone)
        air_split(p->job.nw, task, &begin, &end);
    for (int64_t m = begin; m < end; m++) {
        const char *src = (const char *)a->p + m * a->rs * size;
        prepare_row(p, to->x + m * row_floats(p), src, task->scratch);
        if (p->zero != NULL)
            sum_groups(p, to, src, m);
    }
    if (!alone && task->count > 1)
        task->barrier(task);
}

/* t[m * GEMV_NB + r] of weight rows [r0, r0 + n), all of one scale each. */
static void
dots_whole(const product *p, const prepared *from, float *t, int64_t r0,
           int64_t n)
{
    float s[DOT_ROWS];
    p->ops->dots(t, p->job.nw, from->x, p->job.k, n, p->q + r0 * p->job.k,
                 p->job.k, AIR_I8, p->job.k);
    factors(p, p->scale, p->scale_data, s, 0, r0, n, 1);
    for (int64_t m = 0; m < p->job.nw; m++)
        for (int64_t r = 0; r < n; r++)
            t[m * GEMV_NB + r] *= s[r];
}

static void
dots_grouped(const product *p, const prepared *from, float *t, float *part,
             int64_t r0, int64_t n)
{
    float s[DOT_ROWS];
    for (int64_t m = 0; m < p->job.nw; m++)
        memset(t + m * GEMV_NB, 0, (size_t)n * sizeof *t);
    for (int64_t g = 0; g < p->groups; g++) {
        int64_t k = g * p->group;
        p->ops->dots(part, p->job.nw, from->x + k, p->job.k, n,
                     p->q + r0 * p->job.k + k, p->job.k, AIR_I8, p->group);
        for (int64_t r = 0; r < n; r++)
            factors(p, p->scale, p->scale_data, s + r, r0 + r, g, 1, 1);
        for (int64_t m = 0; m < p->job.nw; m++)
            for (int64_t r = 0; r < n; r++)
                t[m * GEMV_NB + r] += part[m * GEMV_NB + r] * s[r];
    }
}

static void
add_zeros(const product *p, const prepared *from, float *t, int64_t r0,
          int64_t n)
{
    float z[GEMM_GROUPS_MAX];
    for (int64_t r = 0; r < n; r++)
        for (int64_t g = 0; g < p->groups; g += GEMM_GROUPS_MAX) {
            int64_t some = min64(GEMM_GROUPS_MAX, p->groups - g);
            factors(p, p->zero, p->zero_data, z, r0 + r, g, some, 0);
            for (int64_t m = 0; m < p->job.nw; m++) {
                const float *sums = from->sums + m * p->groups + g;
                double sum = 0;
                for (int64_t i = 0; i < some; i++)
                    sum += (double)z[i] * (double)sums[i];
                t[m * GEMV_NB + r] += (float)sum;
            }
        }
}

/* Digits have no infinity: what is NaN is summed again as the formula says. */
static void
mend(const product *p, float *t, int64_t r0, int64_t n)
{
    const gemm_view *a = &p->job.w;
    const int64_t size = cpu_gemm_size_of(a->dtype);
    product plain = *p;
    float x[SOME], w[SOME];
    plain.zero = NULL;
    for (int64_t i = 0; i < p->job.nw * n; i++) {
        const int64_t m = i / n, r = i % n;
        float *to = &t[m * GEMV_NB + r];
        double sum = 0;
        if (*to == *to)
            continue;
        for (int64_t k = 0, count; k < p->job.k; k += count) {
            count = min64(SOME, p->job.k - k);
            unpack(&plain, w, r0 + r, k, count);
            p->ops->widen(x, (const char *)a->p + (m * a->rs + k) * size, 1,
                          a->dtype, count);
            for (int64_t c = 0; c < count; c++)
                sum += (double)x[c] * (double)w[c];
        }
        *to = (float)sum;
    }
}

static void
dots(const product *p, const prepared *from, float *t, int64_t r0, int64_t n)
{
    gemm_words w = {.q = (const uint8_t *)p->q + packed(p, r0 * p->job.k),
                    .row = packed(p, p->job.k),
                    .group = p->group,
                    .groups = p->groups,
                    .scale_dtype = p->scale == NULL ? 0 : p->scale->dtype,
                    .rounded = p->rounded};
    if (p->scale != NULL)
        w.scale = (const char *)p->scale_data +
                  r0 * p->groups * cpu_gemm_size_of(p->scale->dtype);
    if (p->digits) {
        p->ops->dots_digits(t, p->job.nw, from->x,
                            row_floats(p) * (int64_t)sizeof(float), n, p->bits,
                            &w);
        mend(p, t, r0, n);
    } else if (p->pairs)
        p->ops->dots_pairs(t, p->job.nw, (const uint16_t *)(void *)from->x,
                           row_floats(p) * 2, n, p->bits, &w);
    else if (p->bits == 8 && p->groups == 1)
        dots_whole(p, from, t, r0, n);
    else if (p->bits == 8)
        dots_grouped(p, from, t, t + FEW * GEMV_NB, r0, n);
    else
        p->ops->dots_words(t, p->job.nw, from->x, p->job.k, n, &w);
    if (p->zero != NULL)
        add_zeros(p, from, t, r0, n);
}

/* The product turned: lanes are rows of y, as finish_rows has them. */
static gemm_job
by_rows(const gemm_job *job)
{
    gemm_job t = *job;
    t.nx = job->nw, t.nw = job->nx;
    t.yl = job->yr, t.yr = job->yl;
    t.sl = job->sr, t.sr = job->sl;
    return t;
}

static void
run_few(const product *p, const air_task *task)
{
    prepared x = place(p, task);
    gemm_job job = by_rows(&p->job);
    float *t = task->scratch;
    int64_t b, e;
    cpu_share share = cpu_share_make(job.nw, packed(p, job.k), task->id,
                                     task->count, task->taken);
    prepare(p, &x, task);
    while (cpu_share_next(&share, &b, &e))
        for (int64_t r = b; r < e; r += DOT_ROWS) {
            int64_t n = min64(e - r, DOT_ROWS);
            dots(p, &x, t, r, n);
            p->ops->finish_rows(&job, t, GEMV_NB, r, n);
        }
}

/* ---- many rows ----------------------------------------------------------- */

#define DEPTH 96 /* of k turned at once */

static void
pack(const void *arg, float *panel, int64_t l0, int64_t nl, int64_t k0,
     int64_t k1)
{
    const product *p = arg;
    float rows[GEMM_LANES_MAX * DEPTH];
    gemm_view v = {rows, DEPTH, 1, AIR_F32};
    for (int64_t k = k0; k < k1; k += DEPTH) {
        int64_t n = min64(DEPTH, k1 - k);
        for (int64_t l = 0; l < nl; l++)
            unpack(p, rows + l * DEPTH, l0 + l, k, n);
        p->ops->pack_x(panel + (k - k0) * p->ops->lanes, &v, 0, nl, 0, n);
    }
}

#define PAIRS       512 /* made at once */
#define LEAST_GROUP 32
#define GROUPS      (2 * PAIRS / LEAST_GROUP + 1)

/* dst[g - g0][lane] = f(l0 + lane, g); NULL: there is no factor. */
static const float *
turn_factors(const product *p, const air_tensor *t, const void *data,
             float *dst, int64_t l0, int64_t nl, int64_t g0, int64_t g1)
{
    float rows[GEMM_LANES_MAX * GROUPS];
    gemm_view v = {rows, GROUPS, 1, AIR_F32};
    if (t == NULL)
        return NULL;
    for (int64_t l = 0; l < nl; l++)
        factors(p, t, data, rows + l * GROUPS, l0 + l, g0, g1 - g0, 0);
    p->ops->pack_x(dst, &v, 0, nl, 0, g1 - g0);
    return dst;
}

/* The same of pairs, k0 and k1 too. */
static void
pack_pairs(const void *arg, float *panel, int64_t l0, int64_t nl, int64_t k0,
           int64_t k1)
{
    const product *p = arg;
    float scale[GROUPS * GEMM_LANES_MAX], zero[GROUPS * GEMM_LANES_MAX];
    pairs_words w = {.q = (const uint8_t *)p->q + packed(p, l0 * p->job.k),
                     .row = packed(p, p->job.k),
                     .bits = p->bits,
                     .group = p->group};
    for (int64_t k = k0, e; k < k1; k = e) {
        e = min64(k + PAIRS, k1);
        w.first = 2 * k / p->group;
        int64_t last = (2 * e - 1) / p->group + 1;
        w.scale = turn_factors(p, p->scale, p->scale_data, scale, l0, nl,
                               w.first, last);
        w.zero =
            turn_factors(p, p->zero, p->zero_data, zero, l0, nl, w.first, last);
        p->ops->words_pairs(panel + (k - k0) * p->ops->lanes, &w, nl, k, e);
    }
}

/* What the matrix product does. */
static gemm_job
many_job(const product *p)
{
    gemm_job job = p->job;
    job.pack = p->pairs ? pack_pairs : pack;
    job.pack_arg = p;
    if (p->pairs) {
        job.k /= 2;
        job.w.rs /= 2;
        job.w.dtype = AIR_F32;
        job.pairs = true;
    }
    return job;
}

/* ---- by a library -------------------------------------------------------- */

/* The weight in the dtype of a, for a library with instructions that the
 * engine's product does not use. Larger ones would not be worth the memory. */
#define WHOLE_BYTES ((int64_t)64 << 20)

static int64_t
whole_bytes(const product *p)
{
    return p->job.nx * p->job.k * cpu_gemm_size_of(p->job.w.dtype);
}

static bool
may_be_bf16(const product *p)
{
    bool exact = p->scale == NULL && p->zero == NULL;
    return p->job.w.dtype == AIR_BF16 && (p->rounded || exact);
}

static bool
library_fits(const product *p)
{
    return (p->job.w.dtype == AIR_F32 || may_be_bf16(p)) && p->job.nw > FEW &&
           p->job.nx > GEMV_MAX && p->job.k > 0 &&
           whole_bytes(p) <= WHOLE_BYTES;
}

/* ---- entry points -------------------------------------------------------- */

size_t
cpu_quantised_mm_workspace(const air_call *call, int threads)
{
    product p = make(call, NULL, NULL);
    if (few(&p))
        return few_bytes(&p, threads);
    gemm_job job = many_job(&p);
    size_t panels = cpu_gemm_workspace(&job, threads);
    size_t whole = library_fits(&p) ? (size_t)whole_bytes(&p) : 0;
    return panels > whole ? panels : whole;
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    product p = make(call, task, ops);
    if (p.job.nx == 0 || p.job.nw == 0)
        return;
    if (few(&p)) {
        run_few(&p, task);
        return;
    }
    gemm_job job = many_job(&p);
    gemm_team team = {task->id,        task->count,   task,
                      task->workspace, task->scratch, NULL};
    cpu_gemm_run(&job, ops, &team);
}

static bool
factors_fit(const air_tensor *t)
{
    return t == NULL || gemm_is_float(t->dtype);
}

static bool
accept(const air_call *call)
{
    return gemm_is_float(call->args[0].t->dtype) &&
           call->outs[0].dtype == call->args[0].t->dtype &&
           factors_fit(optional(call, 2)) && factors_fit(optional(call, 3)) &&
           factors_fit(optional(call, 4));
}

GEMM_KERNELS(quantised_mm)

#if defined(__x86_64__)
static bool
panels_take(const product *p)
{
    return p->job.k > 0 && p->job.k % 2 == 0 &&
           (p->groups == 1 || (p->group >= LEAST_GROUP && p->group % 2 == 0));
}

bool
cpu_quantised_mm_on_pairs(const air_call *call, const char *isa)
{
    product p = make(call, NULL, NULL);
    if (!cpu_isa_has_fast_pairs(isa) || !accept(call) ||
        p.job.w.dtype != AIR_BF16)
        return false;
    if (p.job.nw > FEW)
        return may_be_bf16(&p) && panels_take(&p);
    return cpu_pairs_take(p.bits, p.group, p.groups);
}

bool
cpu_quantised_mm_on_digits(const air_call *call, const char *isa)
{
    product p = make(call, NULL, NULL);
    return cpu_isa_has_bytes(isa) && accept(call) && p.job.nw <= FEW &&
           p.job.w.dtype != AIR_F32 && (p.bits == 4 || p.groups > 1) &&
           cpu_pairs_take(p.bits, p.group, p.groups);
}

size_t
cpu_quantised_mm_digits_workspace(const air_call *call, int threads)
{
    product p = make(call, NULL, NULL);
    p.digits = true;
    return few_bytes(&p, threads);
}

void
cpu_quantised_mm_digits(const air_call *call, const air_task *task)
{
    gemm_ops ops = cpu_gemm_avx512;
    ops.digits = cpu_digits_make;
    ops.dots_digits = cpu_digits_dots;
    run(call, task, &ops);
}

size_t
cpu_quantised_mm_pairs_workspace(const air_call *call, int threads)
{
    product p = make(call, NULL, NULL);
    p.pairs = true;
    if (!few(&p)) {
        gemm_job job = many_job(&p);
        return cpu_gemm_workspace(&job, threads);
    }
    return few_bytes(&p, threads);
}

void
cpu_quantised_mm_pairs(const air_call *call, const air_task *task)
{
    gemm_ops ops = cpu_pairs_ops();
    ops.order_pairs = cpu_pairs_order;
    ops.dots_pairs = cpu_pairs_dots_words;
    ops.words_pairs = cpu_pairs_words;
    run(call, task, &ops);
}

bool
cpu_quantised_mm_library(const air_call *call, const char *isa)
{
    if (!cpu_quantised_mm_on_avx512(call, isa))
        return false;
    product p = make(call, NULL, NULL);
    return library_fits(&p);
}

/* On all threads: rows of the weight, rows of y that are the bias. */
static void
begin(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    product p = make(call, task, ops);
    const gemm_job *job = &p.job;
    float *row = task->scratch;
    int64_t b, e, size = cpu_gemm_size_of(job->y_dtype);
    int64_t part = (int64_t)(AIR_SCRATCH / sizeof *row);
    air_split(job->nx, task, &b, &e);
    for (int64_t n = b; n < e; n++)
        for (int64_t k = 0; k < job->k; k += part) {
            int64_t count = min64(part, job->k - k);
            unpack(&p, row, n, k, count);
            ops->narrow((char *)task->workspace + (n * job->k + k) * size, 1,
                        job->y_dtype, row, 1, count);
        }
    if (job->s == NULL)
        return;
    air_split(job->nw, task, &b, &e);
    for (int64_t n = 0; n < job->nx; n += part) {
        int64_t count = min64(part, job->nx - n);
        ops->widen(row,
                   (const char *)job->s + n * cpu_gemm_size_of(job->s_dtype), 1,
                   job->s_dtype, count);
        for (int64_t m = b; m < e; m++)
            ops->narrow((char *)job->y + (m * job->nx + n) * size, 1,
                        job->y_dtype, row, 1, count);
    }
}

void
cpu_quantised_mm_begin(const air_call *call, const air_task *task)
{
    begin(call, task, &cpu_gemm_avx512);
}

bool
cpu_quantised_mm_call(const air_library *library, const air_call *call,
                      void *const *slots, void *workspace)
{
    air_task task = {.count = 1, .slots = slots};
    product p = make(call, &task, NULL);
    const gemm_job *job = &p.job;
    return library->gemm(library->user, (air_dtype)job->y_dtype, false, true,
                         job->nw, job->nx, job->k, 1, job->w.p, job->k,
                         workspace, job->k, job->s != NULL, job->y,
                         job->nx) == 0;
}
#endif
