/* attention.c: scaled_dot_product_attention.
 *
 * The query heads that share one key/value head are taken together: their
 * queries are the rows of one problem, and keys and values are read once, in
 * place in the layout of the cache. Keys come in blocks; the softmax is
 * corrected from block to block.
 *   few rows   lanes lie along the width: dot products with the keys, then
 *              weights are broadcast over value rows (a token at a time)
 *   many rows  lanes are queries: both products are the matrix kernel, whose
 *              result panel (the weights) is its next input panel
 * A row without any visible key gives 0, as torch's safe softmax does. */
#include "driver/cpu/gemm.h"
#include "driver/cpu/gemm_core.h"

#include <math.h>
#include <string.h>

#define KEYS   GEMV_NB /* of a block */
#define PANELS 4       /* of queries that share a block of keys */

typedef struct {
    const air_tensor *q, *k, *v, *mask, *out; /* mask may be NULL */
    const air_tensor *sums; /* [.., rows, 1]; NULL: not wanted */
    const air_task *task;
    const gemm_ops *ops;
    int64_t rows, keys, depth, width; /* rows: queries of one head */
    int64_t heads, kv_heads, share;   /* share: query heads of a kv head */
    int64_t outer;                    /* product of the dims before heads */
    bool causal;
    float scale;
} sdpa;

static int64_t
dim(const air_tensor *t, int from_end)
{
    return t->rank >= from_end ? t->dims[t->rank - from_end] : 1;
}

/* 0 for dims that are broadcast. */
static int64_t
stride(const air_tensor *t, int from_end)
{
    return dim(t, from_end) > 1 ? t->strides[t->rank - from_end] : 0;
}

static int64_t
size_of(int dtype)
{
    return dtype == AIR_F32 ? 4 : dtype == AIR_BOOL ? 1 : 2;
}

/* Is the last dim adjacent in memory? */
static bool
is_straight(const air_tensor *t)
{
    return dim(t, 1) == 1 || stride(t, 1) == 1;
}

static sdpa
read_call(const air_call *call, const air_task *task)
{
    const air_arg *a = call->args;
    sdpa s = {.q = a[0].t, .k = a[1].t, .v = a[2].t, .out = &call->outs[0]};
    if (a[3].kind == AIR_ARG_TENSOR && a[3].t->dtype != AIR_DTYPE_NONE)
        s.mask = a[3].t;
    if (call->nouts > 1)
        s.sums = &call->outs[1];
    s.task = task;
    s.causal = a[5].kind == AIR_ARG_INT && a[5].i != 0;
    s.rows = dim(s.q, 2), s.depth = dim(s.q, 1);
    s.keys = dim(s.k, 2), s.width = dim(s.v, 1);
    s.heads = dim(s.q, 3);
    int64_t kh = dim(s.k, 3), vh = dim(s.v, 3);
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
        at += outer % n * stride(t, from);
        outer /= n;
    }
    return at;
}

static char *
address(const sdpa *s, const air_tensor *t, int64_t outer, int64_t head,
        int64_t row)
{
    int64_t at =
        outer_offset(s, t, outer) + head * stride(t, 3) + row * stride(t, 2);
    return (char *)air_data(t, s->task) + at * size_of(t->dtype);
}

/* The problem of one key/value head; row r is query r % rows of head
 * r / rows of its group. */
typedef struct {
    const sdpa *s;
    int64_t outer, kv;
    const char *k, *v;
    int64_t nrows;
    float *mem; /* of this thread */
} group;

static group
make_group(const sdpa *s, int64_t i, float *mem)
{
    group g = {.s = s,
               .outer = i / s->kv_heads,
               .kv = i % s->kv_heads,
               .nrows = s->share * s->rows,
               .mem = mem};
    /* a kv head for several when the other tensor has more of them */
    int64_t kh = dim(s->k, 3), vh = dim(s->v, 3);
    g.k = address(s, s->k, g.outer, g.kv * kh / s->kv_heads, 0);
    g.v = address(s, s->v, g.outer, g.kv * vh / s->kv_heads, 0);
    return g;
}

static char *
row_address(const group *g, const air_tensor *t, int64_t r)
{
    const sdpa *s = g->s;
    return address(s, t, g->outer, g->kv * s->share + r / s->rows, r % s->rows);
}

/* ---- pieces -------------------------------------------------------------- */

/* Queries [r0, r0 + n), scaled: dst[r][depth] */
static void
get_queries(const group *g, int64_t r0, int64_t n, float *dst)
{
    const sdpa *s = g->s;
    for (int64_t r = 0; r < n; r++, dst += s->depth) {
        s->ops->widen(dst, row_address(g, s->q, r0 + r), stride(s->q, 1),
                      s->q->dtype, s->depth);
        for (int64_t d = 0; d < s->depth; d++)
            dst[d] *= s->scale;
    }
}

/* Rows [j, j + n) of keys or values as floats, in place or copied to block. */
static const float *
get_rows(const group *g, const air_tensor *t, const char *base, int64_t j,
         int64_t n, int64_t width, int64_t room, float *block, int64_t *out_rs)
{
    const sdpa *s = g->s;
    const char *p = base + j * stride(t, 2) * size_of(t->dtype);
    if (t->dtype == AIR_F32 && is_straight(t) && room == width) {
        *out_rs = stride(t, 2);
        return (const float *)(const void *)p;
    }
    for (int64_t i = 0; i < n; i++)
        s->ops->widen(block + i * room,
                      p + i * stride(t, 2) * size_of(t->dtype), stride(t, 1),
                      t->dtype, width);
    *out_rs = room;
    return block;
}

/* dst[i * ds] = what is added to the scores of row r with keys [j, j + n). */
static void
get_mask_row(const group *g, int64_t r, int64_t j, int64_t n, float *dst,
             int64_t ds, float *tmp)
{
    const sdpa *s = g->s;
    const air_tensor *t = s->mask;
    int64_t last = s->causal ? r % s->rows : INT64_MAX;
    if (t != NULL) {
        const char *p =
            row_address(g, t, r) + j * stride(t, 1) * size_of(t->dtype);
        if (t->dtype == AIR_BOOL)
            for (int64_t i = 0; i < n; i++)
                tmp[i] = p[i * stride(t, 1)] != 0 ? 0 : -INFINITY;
        else
            s->ops->widen(tmp, p, stride(t, 1), t->dtype, n);
    }
    for (int64_t i = 0; i < n; i++)
        dst[i * ds] = j + i > last ? -INFINITY : t != NULL ? tmp[i] : 0;
}

/* The logarithm of the sum of e^score of row r, for the gradient; 0 for a row
 * without any visible key, as in ATen. */
static void
put_sum(const group *g, int64_t r, float top, float sum)
{
    const air_tensor *t = g->s->sums;
    if (t != NULL)
        *(float *)(void *)row_address(g, t, r) = sum == 0 ? 0 : top + logf(sum);
}

/* Keys that any of the rows [r0, r0 + n) may see. */
static int64_t
visible(const group *g, int64_t r0, int64_t n)
{
    const sdpa *s = g->s;
    if (!s->causal)
        return s->keys;
    int64_t first = r0 % s->rows, last = first + n - 1;
    return min64(s->keys, last >= s->rows ? s->rows : last + 1);
}

/* ---- few rows: lanes along the width ------------------------------------- */

typedef struct {
    float *q, *s, *mask, *tmp, *top, *sum, *out, *block;
} row_mem;

static int64_t
row_layout(const sdpa *s, float *mem, row_mem *m)
{
    int64_t width = round_up(s->width, GEMM_LANES_MAX), at = 0;
    float **parts[] = {&m->q,   &m->s,   &m->mask, &m->tmp,
                       &m->top, &m->sum, &m->out,  &m->block};
    int64_t sizes[] = {GEMV_MAX * s->depth,
                       GEMV_MAX * KEYS,
                       KEYS,
                       KEYS,
                       GEMV_MAX,
                       GEMV_MAX,
                       GEMV_MAX * width,
                       KEYS * (width > s->depth ? width : s->depth)};
    for (int i = 0; i < 8; i++) {
        *parts[i] = mem == NULL ? NULL : mem + at;
        at += round_up(sizes[i], 16);
    }
    return at;
}

static void
rows_scores(const group *g, const row_mem *m, int64_t j, int64_t n)
{
    const sdpa *s = g->s;
    const char *p = g->k + j * stride(s->k, 2) * size_of(s->k->dtype);
    if (is_straight(s->k)) {
        s->ops->dots(m->s, g->nrows, m->q, s->depth, n, p, stride(s->k, 2),
                     s->k->dtype, s->depth);
        return;
    }
    int64_t rs;
    const float *k =
        get_rows(g, s->k, g->k, j, n, s->depth, s->depth, m->block, &rs);
    s->ops->dots(m->s, g->nrows, m->q, s->depth, n, k, rs, AIR_F32, s->depth);
}

static void
rows_block(const group *g, const row_mem *m, int64_t j, int64_t n)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes, width = round_up(s->width, lanes), rs;
    bool masked = s->mask != NULL || s->causal;
    rows_scores(g, m, j, n);
    for (int64_t r = 0; r < g->nrows; r++) {
        if (masked)
            get_mask_row(g, r, j, n, m->mask, 1, m->tmp);
        s->ops->softmax_row(m->s + r * KEYS, masked ? m->mask : NULL, n,
                            &m->top[r], &m->sum[r], m->out + r * lanes,
                            g->nrows, width);
    }
    const float *v =
        get_rows(g, s->v, g->v, j, n, s->width, width, m->block, &rs);
    for (int64_t d = 0; d < width; d += lanes)
        s->ops->block(m->out + d * g->nrows, g->nrows, v + d, rs, m->s, KEYS, 1,
                      n, false);
}

static void
rows_run(const group *g)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes, width = round_up(s->width, lanes);
    int64_t keys = visible(g, 0, g->nrows);
    row_mem m;
    row_layout(s, g->mem, &m);
    get_queries(g, 0, g->nrows, m.q);
    memset(m.out, 0, (size_t)(g->nrows * width) * sizeof *m.out);
    memset(m.block, 0, (size_t)(KEYS * width) * sizeof *m.block);
    for (int64_t r = 0; r < g->nrows; r++)
        m.top[r] = -INFINITY, m.sum[r] = 0;
    for (int64_t j = 0; j < keys; j += KEYS)
        rows_block(g, &m, j, min64(KEYS, keys - j));
    for (int64_t r = 0; r < g->nrows; r++) {
        float inv = m.sum[r] == 0 ? 0 : 1 / m.sum[r];
        put_sum(g, r, m.top[r], m.sum[r]);
        char *p = row_address(g, s->out, r);
        int64_t ys = s->out->rank > 0 ? stride(s->out, 1) : 1;
        for (int64_t d = 0; d < s->width; d += lanes)
            s->ops->narrow(p + d * ys * size_of(s->out->dtype), ys,
                           s->out->dtype, m.out + d * g->nrows + r * lanes, inv,
                           min64(lanes, s->width - d));
    }
}

/* ---- many rows: lanes are queries ---------------------------------------- */

typedef struct {
    float *q, *s, *mask, *tmp, *top, *sum, *out, *k, *v, *turn;
} panel_mem;

static int64_t
panel_layout(const sdpa *s, float *mem, panel_mem *m)
{
    enum { L = GEMM_LANES_MAX };
    int64_t wide = s->width > s->depth ? s->width : s->depth, at = 0;
    float **parts[] = {&m->q,   &m->s,   &m->mask, &m->tmp, &m->top,
                       &m->sum, &m->out, &m->k,    &m->v,   &m->turn};
    int64_t sizes[] = {PANELS * L * s->depth,
                       L * KEYS,
                       L * KEYS,
                       KEYS,
                       PANELS * L,
                       PANELS * L,
                       PANELS * L * s->width,
                       KEYS * s->depth,
                       KEYS * s->width,
                       L * wide};
    for (int i = 0; i < 10; i++) {
        *parts[i] = mem == NULL ? NULL : mem + at;
        at += round_up(sizes[i], 16);
    }
    return at;
}

static bool
panel_masked(const group *g, int64_t r0, int64_t j, int64_t n)
{
    const sdpa *s = g->s;
    bool inside =
        r0 % s->rows >= j + n - 1 && r0 % s->rows + s->ops->lanes <= s->rows;
    return s->mask != NULL || (s->causal && !inside);
}

/* Scores, softmax and values of panel p, rows [r0, r0 + nr), for one block of
 * keys. */
static void
panel_block(const group *g, const panel_mem *m, int64_t p, int64_t r0,
            int64_t nr, int64_t j, int64_t n, const float *k, int64_t krs,
            const float *v, int64_t vrs)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes;
    bool masked = panel_masked(g, r0, j, n);
    float *out = m->out + p * lanes * s->width;
    if (masked) {
        memset(m->mask, 0, (size_t)(n * lanes) * sizeof *m->mask);
        for (int64_t r = 0; r < nr; r++)
            get_mask_row(g, r0 + r, j, n, m->mask + r, lanes, m->tmp);
    }
    s->ops->block(m->s, n, m->q + p * lanes * s->depth, lanes, k, krs, 1,
                  s->depth, true);
    s->ops->softmax_panel(m->s, masked ? m->mask : NULL, n, m->top + p * lanes,
                          m->sum + p * lanes, out, s->width);
    s->ops->block(out, s->width, m->s, lanes, v, 1, vrs, n, false);
}

static void
panel_begin(const group *g, const panel_mem *m, int64_t p, int64_t r0,
            int64_t nr)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes;
    gemm_view rows = {m->turn, s->depth, 1, AIR_F32};
    get_queries(g, r0, nr, m->turn);
    s->ops->pack_x(m->q + p * lanes * s->depth, &rows, 0, nr, 0, s->depth);
    memset(m->out + p * lanes * s->width, 0,
           (size_t)(lanes * s->width) * sizeof *m->out);
    for (int64_t i = p * lanes; i < (p + 1) * lanes; i++)
        m->top[i] = -INFINITY, m->sum[i] = 0;
}

static void
panel_end(const group *g, const panel_mem *m, int64_t p, int64_t r0, int64_t nr)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes;
    const float *out = m->out + p * lanes * s->width;
    for (int64_t r = 0; r < nr; r++) {
        float sum = m->sum[p * lanes + r], inv = sum == 0 ? 0 : 1 / sum;
        put_sum(g, r0 + r, m->top[p * lanes + r], sum);
        for (int64_t d = 0; d < s->width; d++)
            m->turn[d] = out[d * lanes + r];
        s->ops->narrow(row_address(g, s->out, r0 + r), stride(s->out, 1),
                       s->out->dtype, m->turn, inv, s->width);
    }
}

/* Rows [r0, r1), PANELS panels at most. */
static void
panels_run(const group *g, int64_t r0, int64_t r1)
{
    const sdpa *s = g->s;
    int64_t lanes = s->ops->lanes, keys = visible(g, r0, r1 - r0);
    int64_t krs, vrs;
    panel_mem m;
    panel_layout(s, g->mem, &m);
    for (int64_t r = r0; r < r1; r += lanes)
        panel_begin(g, &m, (r - r0) / lanes, r, min64(lanes, r1 - r));
    for (int64_t j = 0; j < keys; j += KEYS) {
        int64_t n = min64(KEYS, keys - j);
        const float *k =
            get_rows(g, s->k, g->k, j, n, s->depth, s->depth, m.k, &krs);
        const float *v =
            get_rows(g, s->v, g->v, j, n, s->width, s->width, m.v, &vrs);
        for (int64_t r = r0; r < r1; r += lanes) {
            int64_t nr = min64(lanes, r1 - r);
            if (j < visible(g, r, nr))
                panel_block(g, &m, (r - r0) / lanes, r, nr, j, n, k, krs, v,
                            vrs);
        }
    }
    for (int64_t r = r0; r < r1; r += lanes)
        panel_end(g, &m, (r - r0) / lanes, r, min64(lanes, r1 - r));
}

/* ---- the kernel ---------------------------------------------------------- */

static int64_t
thread_floats(const sdpa *s)
{
    row_mem r;
    panel_mem p;
    return s->share * s->rows <= GEMV_MAX ? row_layout(s, NULL, &r)
                                          : panel_layout(s, NULL, &p);
}

/* Items: groups, each cut into runs of PANELS panels. */
static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    sdpa s = read_call(call, task);
    s.ops = ops;
    int64_t nrows = s.share * s.rows, run_rows = PANELS * ops->lanes, b, e;
    bool few = nrows <= GEMV_MAX;
    int64_t runs = few ? 1 : (nrows + run_rows - 1) / run_rows;
    float *mem = (float *)task->workspace + thread_floats(&s) * task->id;
    if (nrows == 0 || s.width == 0)
        return;
    air_split(s.outer * s.kv_heads * runs, task, &b, &e);
    for (int64_t i = b; i < e; i++) {
        group g = make_group(&s, i / runs, mem);
        int64_t r = i % runs * run_rows;
        if (few)
            rows_run(&g);
        else
            panels_run(&g, r, min64(nrows, r + run_rows));
    }
}

size_t
cpu_sdpa_workspace(const air_call *call, int threads)
{
    sdpa s = read_call(call, NULL);
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
