/* attention.c: scaled_dot_product_attention.
 *
 * The query heads that share one key/value head are taken together: their
 * queries are the rows of one problem (attend.h), and keys and values are read
 * once, in place in the layout of the cache.
 * A row without any visible key gives 0, as torch's safe softmax does. */
#include "driver/cpu/attention.h"
#include "driver/cpu/attend.h"
#include "driver/cpu/gemm.h"

#include <math.h>
#include <string.h>

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
        for (int64_t d = 0; d < s->depth; d++)
            dst[d] *= s->scale;
    }
}

/* Rows [j, j + n) of keys or values as floats, in place or copied to block. */
static const float *
get_rows(const attend *a, const air_tensor *t, const char *base, int64_t j,
         int64_t n, int64_t width, int64_t room, float *block, int64_t *out_rs)
{
    const char *p = base + j * sdpa_stride(t, 2) * size_of(t->dtype);
    if (t->dtype == AIR_F32 && sdpa_is_straight(t) && room == width) {
        *out_rs = sdpa_stride(t, 2);
        return (const float *)(const void *)p;
    }
    for (int64_t i = 0; i < n; i++)
        a->ops->widen(block + i * room,
                      p + i * sdpa_stride(t, 2) * size_of(t->dtype),
                      sdpa_stride(t, 1), t->dtype, width);
    *out_rs = room;
    return block;
}

static const float *
keys(const attend *a, int64_t j, int64_t n, float *block, int64_t *out_rs)
{
    const sdpa_group *g = a->front;
    return get_rows(a, g->s->k, g->k, j, n, a->depth, a->depth, block, out_rs);
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
    if (!of_one_head(s, r0, n))
        return false;
    a->ops->pack_x(panel, &v, 0, n, 0, s->depth);
    for (int64_t i = 0; i < s->depth * a->ops->lanes; i++)
        panel[i] *= s->scale;
    return true;
}

/* What the mask adds, without the causal rule. */
static void
added(const attend *a, const gemm_view *v, int64_t n, int64_t keys_, float *dst)
{
    int64_t lanes = a->ops->lanes;
    float row[ATTEND_KEYS];
    if (v->dtype == AIR_BOOL) {
        const char *p = v->p;
        for (int64_t i = 0; i < keys_; i++)
            for (int64_t l = 0; l < n; l++)
                dst[i * lanes + l] =
                    p[l * v->rs + i * v->ks] != 0 ? 0 : -INFINITY;
    } else if (v->rs == 0) { /* the same for all queries */
        a->ops->widen(row, v->p, v->ks, v->dtype, keys_);
        for (int64_t i = 0; i < keys_; i++)
            for (int64_t l = 0; l < lanes; l++)
                dst[i * lanes + l] = row[i];
    } else {
        a->ops->pack_x(dst, v, 0, n, 0, keys_);
    }
}

static bool
mask_panel(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t keys_,
           float *dst)
{
    const sdpa_group *g = a->front;
    const sdpa *s = g->s;
    const air_tensor *t = s->mask;
    int64_t lanes = a->ops->lanes, first = r0 % s->rows;
    if (!of_one_head(s, r0, n))
        return false;
    if (t == NULL || t->dtype == AIR_BOOL)
        memset(dst, 0, (size_t)(keys_ * lanes) * sizeof *dst);
    if (t != NULL) {
        gemm_view v = {sdpa_row(g, t, r0) +
                           j * sdpa_stride(t, 1) * size_of(t->dtype),
                       sdpa_stride(t, 2), sdpa_stride(t, 1), t->dtype};
        added(a, &v, n, keys_, dst);
    }
    for (int64_t i = 0; s->causal && i < keys_; i++)
        for (int64_t l = 0; l < n && first + l < j + i; l++)
            dst[i * lanes + l] = -INFINITY;
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
    gemm_job job = {.y = sdpa_row(g, t, r0),
                    .yl = sdpa_stride(t, 2),
                    .yr = sdpa_stride(t, 1),
                    .y_dtype = t->dtype,
                    .alpha = 1};
    if (!of_one_head(g->s, r0, n))
        return false;
    for (int64_t l = 0; l < lanes; l++)
        scale[l] = sum[l] == 0 ? 0 : 1 / sum[l];
    for (int64_t d = 0; d < a->width; d++)
        for (int64_t l = 0; l < lanes; l++)
            out[d * lanes + l] *= scale[l];
    for (int64_t d = 0; d < a->width; d += GEMM_MB)
        a->ops->finish(&job, out + d * lanes, a->width, 0, n, d,
                       min64(GEMM_MB, a->width - d));
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
    if (sdpa_is_straight(k)) {
        a->ops->dots(t, a->rows, q, a->depth, n, p, sdpa_stride(k, 2), k->dtype,
                     a->depth);
        return;
    }
    int64_t rs;
    const float *rows = keys(a, j, n, block, &rs);
    a->ops->dots(t, a->rows, q, a->depth, n, rows, rs, AIR_F32, a->depth);
}

/* Causal: not where the last key is one that the first row sees, and the rows
 * are of one head. */
static bool
is_masked(const attend *a, int64_t r0, int64_t rows, int64_t j, int64_t n)
{
    const sdpa *s = ((const sdpa_group *)a->front)->s;
    bool inside = r0 % s->rows >= j + n - 1 && r0 % s->rows + rows <= s->rows;
    return s->mask != NULL || (s->causal && !inside);
}

/* ---- the kernel ---------------------------------------------------------- */

static int64_t
thread_floats(const sdpa *s)
{
    return attend_floats(s->share * s->rows, s->depth, s->width);
}

static const attend_source source = {queries,     keys,       values,   scores,
                                     is_masked,   mask_row,   range,    put,
                                     query_panel, mask_panel, put_panel};

/* Items: groups, each cut into runs of rows. */
static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
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
        attend a = {&source, &g, ops, nrows, s.depth, s.width, mem};
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

/* f64 is left to the plain kernel. */
GEMM_KERNELS(sdpa)
