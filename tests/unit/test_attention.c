/* scaled_dot_product_attention against a softmax in double. */
#include "kernel_case.h"

#include "driver/cpu/attention/attention_amx.h"
#include "driver/cpu/product/gemm.h"

#include <math.h>

static const kcase_kernel sets[] = {
#if defined(__x86_64__)
    {"amx", cpu_sdpa_amx, cpu_sdpa_amx_workspace, cpu_sdpa_on_amx},
    {"avx512_bf16", cpu_sdpa_pairs, cpu_sdpa_workspace, cpu_sdpa_on_pairs},
    {"avx512", cpu_sdpa_avx512, cpu_sdpa_workspace, NULL},
    {"avx2", cpu_sdpa_avx2, cpu_sdpa_workspace, NULL},
#endif
    {"scalar", cpu_sdpa_scalar, cpu_sdpa_workspace, NULL},
};
#define EACH_SET(s) KCASE_EACH(kcase_kernel, s, sets)

/* AMX and pairs take bf16 and many rows only. */
static bool
is_of_halves(const kcase_kernel *set)
{
    return strcmp(set->isa, "amx") == 0 || strcmp(set->isa, "avx512_bf16") == 0;
}

enum { NO_MASK, FLOAT_MASK, BOOL_MASK, PADDING_MASK };

typedef struct {
    int64_t batch, heads, kv_heads, rows, keys, depth, width;
    int dtype, mask;
    bool causal, cache; /* cache: [batch, rows, heads, width] in memory */
    double scale;       /* 0: None */
    int threads;
} sdpa_case;

typedef struct {
    kernel_case c;
    int q, k, v, mask, out;
} tensors;

static void
make_tensors(tensors *t, const sdpa_case *p)
{
    const int *perm = p->cache ? (int[]){0, 2, 1, 3} : NULL;
    int64_t b = p->batch;
    kcase_begin(&t->c, (uint64_t)(p->rows * 7 + p->keys));
    t->q =
        kcase_tensor(&t->c, p->dtype, 4,
                     (int64_t[]){b, p->heads, p->rows, p->depth}, perm, 0, 0);
    t->k = kcase_tensor(&t->c, p->dtype, 4,
                        (int64_t[]){b, p->kv_heads, p->keys, p->depth}, perm, 0,
                        1);
    t->v = kcase_tensor(&t->c, p->dtype, 4,
                        (int64_t[]){b, p->kv_heads, p->keys, p->width}, perm, 0,
                        0);
    t->out =
        kcase_tensor(&t->c, p->dtype, 4,
                     (int64_t[]){b, p->heads, p->rows, p->width}, NULL, 0, 0);
    t->mask = -1;
    if (p->mask == NO_MASK)
        return;
    int64_t rows = p->mask == PADDING_MASK ? 1 : p->rows;
    t->mask = kcase_tensor(
        &t->c, p->mask == FLOAT_MASK ? p->dtype : AIR_BOOL, 4,
        (int64_t[]){p->mask == FLOAT_MASK ? 1 : b, 1, rows, p->keys}, NULL, 0,
        0);
}

static double
mask_at(const tensors *t, const int64_t *index)
{
    const air_tensor *m = &t->c.t[t->mask];
    int64_t at = 0;
    for (int i = 0; i < 4; i++)
        at += m->dims[i] > 1 ? index[i] * m->strides[i] : 0;
    double v = kcase_get(&t->c, t->mask, at);
    return m->dtype == AIR_BOOL ? (v != 0 ? 0 : -(double)INFINITY) : v;
}

/* Row of weights, which sum to 1, or all 0. */
static void
weights(const tensors *t, const sdpa_case *p, const int64_t *at, double *w)
{
    const kernel_case *c = &t->c;
    int64_t kv = at[1] / (p->heads / p->kv_heads);
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->depth);
    double top = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        double s = 0;
        for (int64_t d = 0; d < p->depth; d++)
            s += kcase_get(
                     c, t->q,
                     kcase_at(c, t->q, (int64_t[]){at[0], at[1], at[2], d})) *
                 kcase_get(c, t->k,
                           kcase_at(c, t->k, (int64_t[]){at[0], kv, j, d}));
        s *= scale;
        if (t->mask >= 0)
            s += mask_at(t, (int64_t[]){at[0], at[1], at[2], j});
        w[j] = p->causal && j > at[2] ? -(double)INFINITY : s;
        top = fmax(top, w[j]);
    }
    for (int64_t j = 0; j < p->keys; j++)
        sum += w[j] = isinf(top) ? 0 : exp(w[j] - top);
    for (int64_t j = 0; j < p->keys; j++)
        w[j] = sum == 0 ? 0 : w[j] / sum;
}

static double
row_error(const tensors *t, const sdpa_case *p, const int64_t *at,
          const double *w)
{
    const kernel_case *c = &t->c;
    int64_t kv = at[1] / (p->heads / p->kv_heads);
    double worst = 0;
    for (int64_t d = 0; d < p->width; d++) {
        double want = 0;
        for (int64_t j = 0; j < p->keys; j++)
            want += w[j] *
                    kcase_get(c, t->v,
                              kcase_at(c, t->v, (int64_t[]){at[0], kv, j, d}));
        double got =
            kcase_get(c, t->out,
                      kcase_at(c, t->out, (int64_t[]){at[0], at[1], at[2], d}));
        double err = fabs(got - want);
        worst = kcase_worse(worst, err);
    }
    return worst;
}

/* The operands of scaled_dot_product_attention. */
static void
make_args(air_arg args[8], tensors *t, const sdpa_case *p)
{
    const air_arg none = {.kind = AIR_ARG_NONE};

    args[0] = kcase_arg(&t->c, t->q);
    args[1] = kcase_arg(&t->c, t->k);
    args[2] = kcase_arg(&t->c, t->v);
    args[3] = t->mask >= 0 ? kcase_arg(&t->c, t->mask) : none;
    args[4] = kcase_float(0);
    args[5] = kcase_int(p->causal);
    args[6] = p->scale != 0 ? kcase_float(p->scale) : none;
    args[7] = kcase_int(p->heads != p->kv_heads);
}

static void
check(const kcase_kernel *set, const sdpa_case *p)
{
    tensors t;
    double worst = 0, w[512];
    make_tensors(&t, p);
    air_arg args[8];
    make_args(args, &t, p);
    air_call call = {8, 1, args, &t.c.t[t.out], NULL};
    if (!KCASE_TAKES(set, &call)) {
        kcase_end(&t.c);
        return;
    }
    kcase_run(&t.c, set->run, set->workspace, &call, p->threads);
    for (int64_t i = 0; i < p->batch * p->heads * p->rows; i++) {
        int64_t at[] = {i / p->rows / p->heads, i / p->rows % p->heads,
                        i % p->rows};
        weights(&t, p, at, w);
        double err = row_error(&t, p, at, w);
        worst = kcase_worse(worst, err);
    }
    double limit = p->dtype == AIR_BF16  ? 8e-3
                   : p->dtype == AIR_F16 ? 1e-3
                                         : 2e-6;
    if (!CHECK(worst <= limit))
        printf("  %s heads %d/%d rows %d keys %d depth %d width %d mask %d%s: "
               "%g\n",
               set->isa, (int)p->heads, (int)p->kv_heads, (int)p->rows,
               (int)p->keys, (int)p->depth, (int)p->width, p->mask,
               p->causal ? " causal" : "", worst);
    kcase_end(&t.c);
}

/* Every mask, dtype and layout for the sizes in sdpa_case's order. */
static void
check_all(const kcase_kernel *set, const int64_t *sizes)
{
    sdpa_case p = {.batch = sizes[0],
                   .heads = sizes[1],
                   .kv_heads = sizes[2],
                   .rows = sizes[3],
                   .keys = sizes[4],
                   .depth = sizes[5],
                   .width = sizes[6]};
    for (int mask = NO_MASK; mask <= PADDING_MASK; mask++)
        for (int dtype = AIR_F32; dtype <= AIR_F16; dtype++) {
            if (dtype == AIR_F64)
                continue;
            p.mask = mask;
            p.dtype = dtype;
            p.cache = mask % 2 == 1;
            p.causal = (mask + dtype) % 2 == 0;
            p.threads = 1 + (mask + dtype) % 3;
            p.scale = mask == BOOL_MASK ? 0.3 : 0;
            check(set, &p);
        }
}

TEST(sdpa_few_rows)
{
    EACH_SET(s)
    {
        check_all(s, (int64_t[]){2, 4, 4, 1, 37, 16, 16});
        check_all(s, (int64_t[]){1, 8, 2, 1, 300, 24, 40});
        check_all(s, (int64_t[]){1, 4, 1, 3, 130, 7, 9});
        check_all(s, (int64_t[]){1, 2, 2, 5, 1, 64, 64});
        /* heads that share a cache, whole vectors of the width */
        check_all(s, (int64_t[]){1, 4, 2, 1, 300, 64, 48});
        check_all(s, (int64_t[]){2, 6, 2, 1, 70, 32, 80});
        check_all(s, (int64_t[]){1, 8, 2, 1, 133, 48, 32});
        check_all(s, (int64_t[]){1, 10, 2, 1, 19, 16, 16});
        check_all(s, (int64_t[]){1, 4, 1, 3, 41, 32, 64});
    }
}

TEST(sdpa_many_rows)
{
    EACH_SET(s)
    {
        check_all(s, (int64_t[]){1, 2, 2, 40, 40, 16, 16});
        check_all(s, (int64_t[]){2, 3, 1, 13, 129, 8, 24});
        check_all(s, (int64_t[]){1, 1, 1, 150, 270, 33, 17});
        check_all(s, (int64_t[]){1, 2, 2, 100, 260, 64, 64});
        check_all(s, (int64_t[]){1, 4, 2, 200, 130, 16, 48});
        if (strcmp(s->isa, "amx") == 0) /* its blocks are the largest */
            check_all(s, (int64_t[]){1, 1, 1, 280, 500, 64, 40});
    }
}

/* Rows that see no key give 0; a NaN query gives NaN in its row only. */
TEST(sdpa_masked_rows_and_nan)
{
    EACH_SET(s)
    for (int64_t rows = 2; rows <= 20; rows += 18) {
        tensors t;
        sdpa_case p = {1,       1,         1,     rows,  9, 8, 8,
                       AIR_F32, BOOL_MASK, false, false, 0, 2};
        if (is_of_halves(s))
            p.dtype = AIR_BF16;
        make_tensors(&t, &p);
        for (int64_t i = 0; i < rows * 9; i++)
            kcase_put(&t.c, t.mask, i, i >= 9);
        kcase_put(&t.c, t.q, (rows - 1) * 8, (double)NAN);
        air_arg args[8];
        make_args(args, &t, &p);
        air_call call = {8, 1, args, &t.c.t[t.out], NULL};
        if (KCASE_TAKES(s, &call))
            kcase_run(&t.c, s->run, s->workspace, &call, 2);
        for (int64_t i = 0; KCASE_TAKES(s, &call) && i < rows * 8; i++) {
            double got = kcase_get(&t.c, t.out, i);
            if (i < 8)
                CHECK(got == 0);
            else
                CHECK(isnan(got) == (i / 8 == rows - 1));
        }
        kcase_end(&t.c);
    }
}

/* What is behind the last key that a mask shows may be anything: a cache is
 * not filled yet. */
TEST(sdpa_hidden_keys_are_not_read)
{
    EACH_SET(s)
    for (int64_t rows = 1; rows <= 20; rows += 19) {
        const int64_t keys = 300, depth = 32, end = 133;
        tensors t;
        sdpa_case p = {1,     2,     1,       rows,         keys,
                       depth, depth, AIR_F32, PADDING_MASK, false,
                       false, 0,     2};
        if (strcmp(s->isa, "amx") == 0)
            continue; /* it multiplies all keys */
        if (is_of_halves(s))
            p.dtype = AIR_BF16;
        make_tensors(&t, &p);
        for (int64_t i = 0; i < keys; i++)
            kcase_put(&t.c, t.mask, i, i < end);
        for (int64_t i = end * depth; i < keys * depth; i++) {
            kcase_put(&t.c, t.k, i, (double)NAN);
            kcase_put(&t.c, t.v, i, (double)NAN);
        }
        air_arg args[8];
        make_args(args, &t, &p);
        air_call call = {8, 1, args, &t.c.t[t.out], NULL};
        if (KCASE_TAKES(s, &call))
            kcase_run(&t.c, s->run, s->workspace, &call, 2);
        for (int64_t i = 0; KCASE_TAKES(s, &call) && i < 2 * rows * depth; i++)
            CHECK(isfinite(kcase_get(&t.c, t.out, i)));
        kcase_end(&t.c);
    }
}

/* A mask of the least finite number, as models write it, is no -inf: a row that
 * has nothing else sees all keys alike. */
TEST(sdpa_least_finite_mask)
{
    EACH_SET(s)
    for (int64_t rows = 2; rows <= 20; rows += 18) {
        const int64_t keys = 37, width = 16;
        tensors t;
        sdpa_case p = {1,        1,          1,     rows,  keys, width, width,
                       AIR_BF16, FLOAT_MASK, false, false, 0,    2};
        make_tensors(&t, &p);
        for (int64_t i = 0; i < keys; i++)
            kcase_put(&t.c, t.mask, i, -3.38e38);
        air_arg args[8];
        make_args(args, &t, &p);
        air_call call = {8, 1, args, &t.c.t[t.out], NULL};
        if (KCASE_TAKES(s, &call))
            kcase_run(&t.c, s->run, s->workspace, &call, 2);
        for (int64_t d = 0; KCASE_TAKES(s, &call) && d < width; d++) {
            double mean = 0;
            for (int64_t j = 0; j < keys; j++)
                mean += kcase_get(&t.c, t.v, j * width + d) / (double)keys;
            CHECK(fabs(kcase_get(&t.c, t.out, d) - mean) < 8e-3);
        }
        kcase_end(&t.c);
    }
}

#if defined(__x86_64__)
TEST(sdpa_least_finite_mask_in_units_of_amx)
{
    const float mask[18] = {-3.38e38f, 1, -INFINITY, [16] = -3.38e38f,
                            -INFINITY};
    float got[18];
    if (!kcase_has_isa("avx512"))
        return;
    amx_mask(got, mask, 1, AIR_F32, 18);
    CHECK(isfinite(got[0]) && isfinite(got[16]));
    CHECK(isinf(got[2]) && isinf(got[17]));
    CHECK(fabsf(got[1] - AMX_LOG2_E) < 1e-6f && got[3] == 0);
}
#endif
