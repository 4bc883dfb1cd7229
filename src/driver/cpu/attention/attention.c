/* attention.c: scaled_dot_product_attention.
 *
 * The query heads that share one key/value head are taken together: their
 * queries are the rows of one problem (attend.h), and keys and values are read
 * once, in place in the layout of the cache.
 * A row without any visible key gives 0, as torch's safe softmax does. */
#include "driver/cpu/attention/attention.h"
#include "driver/cpu/attention/attend.h"
#include "driver/cpu/product/gemm.h"

#include <math.h>
#include <string.h>

#define AHEAD 8 /* rows that are fetched before they are copied */

static int64_t
size_of(int dtype)
{
    return dtype == AIR_F32 ? 4 : dtype == AIR_BOOL ? 1 : 2;
}

sdpa
sdpa_read(const air_call *call, const air_task *task)
{
    const air_arg *a = call->args;
    sdpa s = {.q = a[0].t, .k = a[1].t, .v = a[2].t, .out = &call->outs[0]};
    if (a[3].kind == AIR_ARG_TENSOR && a[3].t->dtype != AIR_DTYPE_NONE)
        s.mask = a[3].t;
    if (call->nouts > 1)
        s.sums = &call->outs[1];
    s.task = task;
    s.causal = a[5].kind == AIR_ARG_INT && a[5].i != 0;
    s.rows = sdpa_dim(s.q, 2), s.depth = sdpa_dim(s.q, 1);
    s.keys = sdpa_dim(s.k, 2), s.width = sdpa_dim(s.v, 1);
    s.heads = sdpa_dim(s.q, 3);
    int64_t kh = sdpa_dim(s.k, 3), vh = sdpa_dim(s.v, 3);
    s.kv_heads = kh > vh ? kh : vh;
    if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
        s.kv_heads = s.heads;
    s.share = s.heads > 0 ? s.heads / s.kv_heads : 1;
    s.outer = 1;
    for (int i = 0; i < s.q->rank - 3; i++)
        s.outer *= s.out->dims[i];
    s.scale = a[6].kind == AIR_ARG_FLOAT ? (float)a[6].f
              : a[6].kind == AIR_ARG_INT ? (float)a[6].i
                                         : (float)(1 / sqrt((double)s.depth));
    return s;
}

/* ---- addresses ----------------------------------------------------------- */

/* Element offset of number `outer` of the dims before the heads. */
static int64_t
outer_offset(const sdpa *s, const air_tensor *t, int64_t outer)
{
    int64_t at = 0;
    for (int from = 4; from <= s->out->rank; from++) {
        int64_t n = s->out->dims[s->out->rank - from];
        at += outer % n * sdpa_stride(t, from);
        outer /= n;
    }
    return at;
}

static char *
address(const sdpa *s, const air_tensor *t, int64_t outer, int64_t head,
        int64_t row)
{
    int64_t at = outer_offset(s, t, outer) + head * sdpa_stride(t, 3) +
                 row * sdpa_stride(t, 2);
    return (char *)air_data(t, s->task) + at * size_of(t->dtype);
}

sdpa_group
sdpa_group_of(const sdpa *s, int64_t i)
{
    sdpa_group g = {.s = s, .outer = i / s->kv_heads, .kv = i % s->kv_heads};
    /* a kv head for several when the other tensor has more of them */
    int64_t kh = sdpa_dim(s->k, 3), vh = sdpa_dim(s->v, 3);
    g.k = address(s, s->k, g.outer, g.kv * kh / s->kv_heads, 0);
    g.v = address(s, s->v, g.outer, g.kv * vh / s->kv_heads, 0);
    return g;
}

char *
sdpa_row(const sdpa_group *g, const air_tensor *t, int64_t r)
{
    const sdpa *s = g->s;
    return address(s, t, g->outer, g->kv * s->share + r / s->rows, r % s->rows);
}

/* ---- pieces -------------------------------------------------------------- */

/* Queries [r0, r0 + n), scaled: dst[r][depth] */
static void
queries(const attend *a, int64_t r0, int64_t n, float *dst)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    for (int64_t r = 0; r < n; r++, dst += s->depth) {
        a->ops->widen(dst, sdpa_row(g, s->q, r0 + r), sdpa_stride(s->q, 1),
                      s->q->dtype, s->depth);
        for (int64_t d = 0; d < s->depth && a->pairs == NULL; d++)
            dst[d] *= s->scale;
    }
}

/* Rows [j, j + n) of keys or values as floats, in place or copied to block. */
static const float *
get_rows(const attend *a, const air_tensor *t, const char *base, int64_t j,
         int64_t n, int64_t width, int64_t room, float *block, int64_t *out_rs)
{
    const char *p = base + j * sdpa_stride(t, 2) * size_of(t->dtype);
    /* Panels read blocks again and again: without gaps they share no sets of
     * the cache. */
    bool once = attend_is_few(a->rows) || sdpa_stride(t, 2) == width;
    if (t->dtype == AIR_F32 && sdpa_is_straight(t) && room == width && once) {
        *out_rs = sdpa_stride(t, 2);
        return (const float *)(const void *)p;
    }
    const int64_t step = sdpa_stride(t, 2) * size_of(t->dtype);
    const int64_t bytes = width * size_of(t->dtype);
    for (int64_t i = 0; i < n; i++, p += step) {
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(p + AHEAD * step + at);
        a->ops->widen(block + i * room, p, sdpa_stride(t, 1), t->dtype, width);
    }
    *out_rs = room;
    return block;
}

static const float *
keys(const attend *a, int64_t j, int64_t n, float *block, int64_t *out_rs)
{
    const sdpa_group *g = a->front;
    return get_rows(a, g->s->k, g->k, j, n, a->depth, a->depth, block, out_rs);
}

/* As pairs, which move as floats do. Gaps: as in get_rows. */
static const float *
key_pairs(const attend *a, int64_t j, int64_t n, float *block, int64_t *out_rs)
{
    const sdpa_group *g = a->front;
    const int64_t step = sdpa_stride(g->s->k, 2), depth = a->depth;
    const char *p = g->k + j * step * 2;
    *out_rs = depth / 2;
    if (step == depth)
        return (const float *)(const void *)p;
    for (int64_t i = 0; i < n; i++, p += step * 2) {
        for (int64_t at = 0; at < depth * 2; at += 64)
            __builtin_prefetch(p + AHEAD * step * 2 + at);
        memcpy(block + i * depth / 2, p, (size_t)depth * 2);
    }
    return block;
}

static void
value_pairs(const attend *a, int64_t j, int64_t n, float *dst)
{
    const sdpa_group *g = a->front;
    const int64_t step = sdpa_stride(g->s->v, 2);
    attend_value_pairs(a, g->v + j * step * 2, step, n, dst);
}

static const void *
value_rows(const attend *a, int64_t j, int64_t *count, int64_t *out_rs,
           int *out_dtype)
{
    (void)count; /* all of them */
    const sdpa_group *g = a->front;
    const air_tensor *t = g->s->v;
    *out_rs = sdpa_stride(t, 2);
    *out_dtype = t->dtype;
    return sdpa_is_straight(t) ? g->v + j * *out_rs * size_of(t->dtype) : NULL;
}

static const float *
values(const attend *a, int64_t j, int64_t n, int64_t room, float *block,
       int64_t *out_rs)
{
    const sdpa_group *g = a->front;
    return get_rows(a, g->s->v, g->v, j, n, a->width, room, block, out_rs);
}

/* dst[i * ds] = what is added to the scores of row r with keys [j, j + n). */
static void
mask_row(const attend *a, int64_t r, int64_t j, int64_t n, float *dst,
         int64_t ds, float *tmp)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    const air_tensor *t = s->mask;
    int64_t last = s->causal ? r % s->rows : INT64_MAX;
    if (t != NULL) {
        const char *p =
            sdpa_row(g, t, r) + j * sdpa_stride(t, 1) * size_of(t->dtype);
        if (t->dtype == AIR_BOOL)
            for (int64_t i = 0; i < n; i++)
                tmp[i] = p[i * sdpa_stride(t, 1)] != 0 ? 0 : -INFINITY;
        else
            a->ops->widen(tmp, p, sdpa_stride(t, 1), t->dtype, n);
    }
    for (int64_t i = 0; i < n; i++)
        dst[i * ds] = j + i > last ? -INFINITY : t != NULL ? tmp[i] : 0;
}

void
sdpa_put_sum(const sdpa_group *g, int64_t r, float top, float sum)
{
    const air_tensor *t = g->s->sums;
    if (t != NULL)
        *(float *)(void *)sdpa_row(g, t, r) = sum == 0 ? 0 : top + logf(sum);
}

static void
put(const attend *a, int64_t r, const float *row, float top, float sum)
{
    const sdpa_group *g = a->front;
    const air_tensor *out = g->s->out;
    sdpa_put_sum(g, r, top, sum);
    a->ops->narrow(sdpa_row(g, out, r), out->rank > 0 ? sdpa_stride(out, 1) : 1,
                   out->dtype, row, sum == 0 ? 0 : 1 / sum, a->width);
}

/* ---- panels -------------------------------------------------------------- */

static bool
of_one_head(const sdpa *s, int64_t r, int64_t n)
{
    return r / s->rows == (r + n - 1) / s->rows;
}

static bool
query_panel(const attend *a, int64_t r0, int64_t n, float *panel)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    gemm_view v = {sdpa_row(g, s->q, r0), sdpa_stride(s->q, 2),
                   sdpa_stride(s->q, 1), s->q->dtype};
    return of_one_head(s, r0, n) &&
           attend_query_panel(a, &v, n, s->scale, panel);
}

/* One row of what a mask adds to scores. */
static void
mask_line(const attend *a, const char *p, int64_t stride, int dtype, int64_t n,
          float *dst)
{
    if (dtype != AIR_BOOL)
        a->ops->widen(dst, p, stride, dtype, n);
    else if (stride == 1)
        a->ops->attend->hidden(dst, (const uint8_t *)p, n);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = p[i * stride] != 0 ? 0 : -INFINITY;
}

static bool
mask_panel(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t keys_,
           float *dst, float *tmp)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    const air_tensor *t = s->mask;
    if (!of_one_head(s, r0, n))
        return false;
    int64_t rs = sdpa_stride(t, 2), ks = sdpa_stride(t, 1);
    const char *p = sdpa_row(g, t, r0) + j * ks * size_of(t->dtype);
    gemm_view v = {p, rs, ks, t->dtype};
    if (t->dtype == AIR_BOOL) {
        for (int64_t l = 0; l < n; l++)
            mask_line(a, p + l * rs, ks, AIR_BOOL, keys_,
                      tmp + l * ATTEND_KEYS);
        v = (gemm_view){tmp, ATTEND_KEYS, 1, AIR_F32};
    }
    attend_mask_panel(a, &v, n, keys_, dst);
    return true;
}

/* Without the causal rule, which is not the same for two rows. */
static bool
mask_even(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t keys_,
          float *dst)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    const air_tensor *t = s->mask;
    bool one = of_one_head(s, r0, n);
    if (t == NULL || sdpa_stride(t, 2) != 0 ||
        (!one && (s->causal || sdpa_stride(t, 3) != 0)) ||
        (s->causal && attend_is_few(a->rows)))
        return false;
    mask_line(a, sdpa_row(g, t, r0) + j * sdpa_stride(t, 1) * size_of(t->dtype),
              sdpa_stride(t, 1), t->dtype, keys_, dst);
    return true;
}

static bool
put_panel(const attend *a, int64_t r0, int64_t n, float *out, const float *top,
          const float *sum)
{
    const sdpa_group *g = a->front;
    const air_tensor *t = g->s->out;
    int64_t lanes = a->ops->lanes;
    float scale[GEMM_LANES_MAX];
    if (!of_one_head(g->s, r0, n) || !sdpa_is_straight(t))
        return false;
    for (int64_t l = 0; l < lanes; l++)
        scale[l] = sum[l] == 0 ? 0 : 1 / sum[l];
    a->ops->attend->put_panel(sdpa_row(g, t, r0), sdpa_stride(t, 2), t->dtype,
                              out, scale, n, a->width);
    for (int64_t l = 0; g->s->sums != NULL && l < n; l++)
        sdpa_put_sum(g, r0 + l, top[l], sum[l]);
    return true;
}

static void
range(const attend *a, int64_t r0, int64_t n, int64_t *first, int64_t *end)
{
    const sdpa *s = ((const sdpa_group *)a->front)->s;
    int64_t at = r0 % s->rows, last = at + n - 1;
    *first = 0;
    *end = !s->causal ? s->keys
                      : min64(s->keys, last >= s->rows ? s->rows : last + 1);
}

static void
scores(const attend *a, const float *q, int64_t j, int64_t n, float *t,
       float *block)
{
    const sdpa_group *g = a->front;
    const air_tensor *k = g->s->k;
    const char *p = g->k + j * sdpa_stride(k, 2) * size_of(k->dtype);
    int64_t rs = sdpa_stride(k, 2);
    if (sdpa_is_straight(k)) {
        attend_dots(a->ops, t, a->rows, q, a->depth, p, rs, k->dtype, n,
                    a->depth);
        return;
    }
    const float *rows = keys(a, j, n, block, &rs);
    attend_dots(a->ops, t, a->rows, q, a->depth, rows, rs, AIR_F32, n,
                a->depth);
}

/* Causal: not where the last key is one that the first row sees, and the rows
 * are of one head. */
static unsigned
is_masked(const attend *a, int64_t r0, int64_t rows, int64_t j, int64_t n)
{
    const sdpa *s = ((const sdpa_group *)a->front)->s;
    bool one = of_one_head(s, r0, rows);
    unsigned mask = s->mask != NULL ? ATTEND_MASK : 0;
    if (!s->causal || (one && r0 % s->rows >= j + n - 1))
        return mask;
    return mask | (one ? ATTEND_EDGE : ATTEND_MASK);
}

static int64_t
last(const attend *a, int64_t r)
{
    return r % ((const sdpa_group *)a->front)->s->rows;
}

/* ---- the kernel ---------------------------------------------------------- */

static int64_t
thread_floats(const sdpa *s)
{
    return attend_floats(s->share * s->rows, s->depth, s->width);
}

static const attend_source source = {
    .queries = queries,
    .keys = keys,
    .values = values,
    .value_rows = value_rows,
    .key_pairs = key_pairs,
    .value_pairs = value_pairs,
    .scores = scores,
    .is_masked = is_masked,
    .last = last,
    .mask = mask_row,
    .range = range,
    .put = put,
    .query_panel = query_panel,
    .mask_panel = mask_panel,
    .mask_even = mask_even,
    .put_panel = put_panel,
};

bool
sdpa_is_of_halves(const air_call *call)
{
    sdpa s = sdpa_read(call, NULL);
    return s.q->dtype == AIR_BF16 && s.v->dtype == AIR_BF16 &&
           s.out->dtype == AIR_BF16 && !attend_is_few(s.share * s.rows) &&
           sdpa_is_straight(s.q) && sdpa_is_straight(s.k) &&
           sdpa_is_straight(s.v);
}

/* Items: groups, each cut into runs of rows. */
void
sdpa_run(const air_call *call, const air_task *task, const gemm_ops *ops,
         const attend_pairs *pairs)
{
    sdpa s = sdpa_read(call, task);
    int64_t nrows = s.share * s.rows, run_rows = attend_run_rows(ops), b, e;
    int64_t runs = attend_is_few(nrows) ? 1 : (nrows + run_rows - 1) / run_rows;
    float *mem = (float *)task->workspace + thread_floats(&s) * task->id;
    if (nrows == 0 || s.width == 0)
        return;
    air_split(s.outer * s.kv_heads * runs, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        sdpa_group g = sdpa_group_of(&s, i / runs);
        attend a = {&source, &g,  ops,   nrows,  s.depth,
                    s.width, mem, pairs, s.scale};
        int64_t r = i % runs * run_rows;
        attend_run(&a, r, min64(nrows, r + run_rows));
    }
}

size_t
cpu_sdpa_workspace(const air_call *call, int threads)
{
    sdpa s = sdpa_read(call, NULL);
    return (size_t)(thread_floats(&s) * threads) * sizeof(float);
}

static bool
accept(const air_call *call)
{
    const air_tensor *q = call->args[0].t, *k = call->args[1].t;
    const air_arg *mask = &call->args[3];
    if (!gemm_is_float(q->dtype) || k->dtype != q->dtype || q->rank < 2)
        return false;
    return mask->kind != AIR_ARG_TENSOR || mask->t->dtype == AIR_DTYPE_NONE ||
           mask->t->dtype == AIR_BOOL || gemm_is_float(mask->t->dtype);
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    sdpa_run(call, task, ops, NULL);
}

/* f64 is left to the plain kernel. */
GEMM_KERNELS(sdpa)
