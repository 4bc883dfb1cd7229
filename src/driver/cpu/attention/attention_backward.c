/* attention_backward.c: gradients of attention from its result and the
 * logarithms of its sums; scores are computed again, block by block, so that
 * no matrix of rows x keys exists.
 *
 * One problem is a key/value head with the query heads that share it. Its
 * queries, results' gradients and both turned into panels are made once.
 * Keys come in blocks; for each, panels of queries (in the lanes) give
 *     s = q k^T, dp = do v^T             both [key][lane]
 *     p = e^(s - sums), ds = p (dp - do . o)
 *     dq += ds k                         lanes stay queries
 *     dv += p^T do, dk += ds^T q         lanes are the width
 * all of which are the matrix kernel. Problems are shared among threads. */
#include "driver/cpu/attention/attention_backward.h"
#include "driver/cpu/attention/attend_isa.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/product/gemm_core.h"

#include <math.h>
#include <string.h>

#define KEYS 128 /* of a block */

/* A stack of matrices [outer, heads, rows, width] as memory. */
typedef struct {
    char *p;
    int dtype;
    int64_t size, step[4]; /* bytes of an element; elements */
} stack;

typedef struct {
    stack q, k, v, mask, out, grad, dq, dk, dv, sums;
    const gemm_ops *ops;
    const backward_ops *own;
    int64_t batch, kv_heads, share; /* share: query heads of a kv head */
    int64_t rows, keys, depth, width;
    bool causal;
    float scale;
} sdpa;

/* What one thread computes with. Panels are [panel][..][lane]; rows of q_rows
 * and grad_rows are padded to whole vectors of lanes. */
typedef struct {
    float *q, *grad, *dq;      /* panels: depth, width, depth */
    float *q_rows, *grad_rows; /* [row][depth], [row][width] */
    float *sums, *dots;        /* [panel][lane] */
    float *out;                /* rows of a panel of results: [row][width] */
    float *k, *v, *s, *dp, *mask, *lines, *dk, *dv, *line;
} memory;

/* The axes of t are those before the last `behind` of the four; what it has not
 * or has of size 1 is broadcast. */
static stack
open_stack(const air_tensor *t, int behind, const air_task *task)
{
    int first = 4 - behind - t->rank;
    stack s = {.dtype = t->dtype,
               .size = t->dtype == AIR_F32    ? 4
                       : t->dtype == AIR_BOOL ? 1
                                              : 2};
    if (task != NULL)
        s.p = air_data(t, task);
    for (int i = 0; i < t->rank; i++)
        s.step[first + i] = t->dims[i] > 1 ? t->strides[i] : 0;
    return s;
}

static sdpa
read_call(const air_call *call, const air_task *task)
{
    const air_arg *a = call->args;
    const air_tensor *q = a[1].t, *k = a[2].t, *v = a[3].t;
    sdpa s = {.q = open_stack(q, 0, task),
              .k = open_stack(k, 0, task),
              .v = open_stack(v, 0, task),
              .out = open_stack(a[4].t, 0, task),
              .grad = open_stack(a[0].t, 0, task),
              .sums = open_stack(a[5].t, 1, task),
              .dq = open_stack(&call->outs[0], 0, task),
              .dk = open_stack(&call->outs[1], 0, task),
              .dv = open_stack(&call->outs[2], 0, task),
              .batch = q->dims[0],
              .kv_heads = k->dims[1],
              .rows = q->dims[2],
              .keys = k->dims[2],
              .depth = q->dims[3],
              .width = v->dims[3],
              .causal = a[7].i != 0};
    s.share = s.kv_heads > 0 ? q->dims[1] / s.kv_heads : 0;
    if (a[8].kind == AIR_ARG_TENSOR && a[8].t->dtype != AIR_DTYPE_NONE)
        s.mask = open_stack(a[8].t, 0, task);
    s.scale = a[9].kind == AIR_ARG_FLOAT ? (float)a[9].f
              : a[9].kind == AIR_ARG_INT ? (float)a[9].i
                                         : (float)(1 / sqrt((double)s.depth));
    return s;
}

static char *
at(const stack *t, int64_t b, int64_t head, int64_t row)
{
    return t->p +
           (b * t->step[0] + head * t->step[1] + row * t->step[2]) * t->size;
}

static int64_t
layout(const sdpa *s, int64_t lanes, float *mem, memory *m)
{
    int64_t rows = s->share * round_up(s->rows, lanes), total = 0;
    int64_t depth = round_up(s->depth, lanes),
            width = round_up(s->width, lanes);
    float **parts[] = {&m->q,    &m->grad, &m->dq,   &m->q_rows, &m->grad_rows,
                       &m->sums, &m->dots, &m->out,  &m->k,      &m->v,
                       &m->s,    &m->dp,   &m->mask, &m->lines,  &m->dk,
                       &m->dv,   &m->line};
    int64_t sizes[] = {rows * s->depth,
                       rows * s->width,
                       rows * s->depth,
                       rows * depth,
                       rows * width,
                       rows,
                       rows,
                       lanes * width,
                       KEYS * s->depth,
                       KEYS * s->width,
                       KEYS * lanes,
                       KEYS * lanes,
                       KEYS * lanes,
                       KEYS * lanes,
                       KEYS * depth,
                       KEYS * width,
                       depth + width};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *parts[i] = mem == NULL ? NULL : mem + total;
        total += round_up(sizes[i], 16);
    }
    return total;
}

/* ---- once for a problem -------------------------------------------------- */

typedef struct {
    const sdpa *s;
    const memory *m;
    int64_t b, kv; /* which problem */
} problem;

/* Rows of a head as floats, zeros behind them. */
static void
copy_rows(const problem *p, const stack *t, int64_t head, float *dst,
          int64_t width)
{
    const sdpa *s = p->s;
    const int64_t room = round_up(width, s->ops->lanes);
    if (room > width)
        memset(dst, 0, (size_t)(s->rows * room) * sizeof *dst);
    s->ops->copies(dst, room, at(t, p->b, head, 0), t->step[2], t->step[3],
                   t->dtype, width, s->rows);
}

/* Of a head: its rows, which are r and more of the problem, and their sums. */
static void
begin_head(const problem *p, int64_t head, int64_t r)
{
    const sdpa *s = p->s;
    const memory *m = p->m;
    const int64_t depth = round_up(s->depth, s->ops->lanes);
    const int64_t width = round_up(s->width, s->ops->lanes);
    copy_rows(p, &s->q, head, m->q_rows + r * depth, s->depth);
    s->ops->attend->scale(m->q_rows + r * depth, s->scale, s->rows * depth);
    copy_rows(p, &s->grad, head, m->grad_rows + r * width, s->width);
    for (int64_t i = 0; i < s->rows; i++)
        memcpy(&m->sums[r + i], at(&s->sums, p->b, head, i), sizeof *m->sums);
}

/* The dot products of do and o of rows [i, i + n) of a head. */
static void
begin_dots(const problem *p, int64_t head, int64_t i, int64_t n, int64_t r)
{
    const sdpa *s = p->s;
    const memory *m = p->m;
    const stack *t = &s->out;
    const int64_t width = round_up(s->width, s->ops->lanes);
    const float *grad = m->grad_rows + r * width;
    const char *out = at(t, p->b, head, i);
    if (t->step[3] == 1) {
        s->own->dots(m->dots + r, grad, width, out, t->step[2], t->dtype, n,
                     s->width);
        return;
    }
    s->ops->copies(m->out, width, out, t->step[2], t->step[3], t->dtype,
                   s->width, n);
    s->own->dots(m->dots + r, grad, width, m->out, width, AIR_F32, n, s->width);
}

/* Lanes behind the last row of a head: their weights become 0. */
static void
begin_padding(const problem *p, int64_t r, int64_t end)
{
    const sdpa *s = p->s;
    int64_t depth = round_up(s->depth, s->ops->lanes);
    int64_t width = round_up(s->width, s->ops->lanes), n = end - r;
    memset(p->m->q_rows + r * depth, 0, (size_t)(n * depth) * sizeof(float));
    memset(p->m->grad_rows + r * width, 0, (size_t)(n * width) * sizeof(float));
    for (; r < end; r++)
        p->m->dots[r] = 0, p->m->sums[r] = INFINITY;
}

static void
begin_panel(const problem *p, int64_t r)
{
    const sdpa *s = p->s;
    int64_t depth = round_up(s->depth, s->ops->lanes);
    int64_t width = round_up(s->width, s->ops->lanes), lanes = s->ops->lanes;
    gemm_view q = {p->m->q_rows + r * depth, depth, 1, AIR_F32};
    gemm_view grad = {p->m->grad_rows + r * width, width, 1, AIR_F32};
    s->ops->pack_x(p->m->q + r * s->depth, &q, 0, lanes, 0, s->depth);
    s->ops->pack_x(p->m->grad + r * s->width, &grad, 0, lanes, 0, s->width);
    memset(p->m->dq + r * s->depth, 0,
           (size_t)(lanes * s->depth) * sizeof(float));
}

static void
begin_problem(const problem *p)
{
    const sdpa *s = p->s;
    int64_t lanes = s->ops->lanes, padded = round_up(s->rows, lanes);
    for (int64_t h = 0; h < s->share; h++) {
        begin_head(p, p->kv * s->share + h, h * padded);
        for (int64_t i = 0; i < s->rows; i += lanes)
            begin_dots(p, p->kv * s->share + h, i, min64(lanes, s->rows - i),
                       h * padded + i);
        begin_padding(p, h * padded + s->rows, (h + 1) * padded);
        for (int64_t r = h * padded; r < (h + 1) * padded; r += lanes)
            begin_panel(p, r);
    }
}

/* Rows [i, i + n) of a head from a panel of dq. */
static void
end_panel(const problem *p, int64_t head, int64_t i, int64_t n, const float *dq)
{
    const sdpa *s = p->s;
    int64_t lanes = s->ops->lanes;
    float scale[GEMM_LANES_MAX];
    char *to = at(&s->dq, p->b, head, i);
    for (int64_t l = 0; l < lanes; l++)
        scale[l] = s->scale;
    if (s->dq.step[3] == 1) {
        s->ops->attend->put_panel(to, s->dq.step[2], s->dq.dtype, dq, scale, n,
                                  s->depth);
        return;
    }
    for (int64_t l = 0; l < n; l++, to += s->dq.step[2] * s->dq.size) {
        for (int64_t d = 0; d < s->depth; d++)
            p->m->line[d] = dq[d * lanes + l];
        s->ops->narrow(to, s->dq.step[3], s->dq.dtype, p->m->line, s->scale,
                       s->depth);
    }
}

static void
end_problem(const problem *p)
{
    const sdpa *s = p->s;
    int64_t lanes = s->ops->lanes, padded = round_up(s->rows, lanes);
    for (int64_t h = 0; h < s->share; h++)
        for (int64_t i = 0; i < s->rows; i += lanes)
            end_panel(p, p->kv * s->share + h, i, min64(lanes, s->rows - i),
                      p->m->dq + (h * padded + i) * s->depth);
}

/* ---- a block of keys ----------------------------------------------------- */

typedef struct {
    int64_t j, n; /* keys [j, j + n) */
    const float *k, *v;
    int64_t krs, vrs;
} key_block;

/* Rows of keys or values as floats, in place or copied: panels read them again
 * and again, and without gaps they share no sets of the cache. */
static const float *
get_rows(const problem *p, const stack *t, int64_t j, int64_t n, int64_t width,
         float *block, int64_t *out_rs)
{
    const char *first = at(t, p->b, p->kv, j);
    *out_rs = t->step[2];
    if (t->dtype == AIR_F32 && (t->step[3] == 1 || width == 1) &&
        t->step[2] == width)
        return (const float *)(const void *)first;
    *out_rs = width;
    p->s->ops->copies(block, width, first, t->step[2], t->step[3], t->dtype,
                      width, n);
    return block;
}

/* mask[key][lane]: what the mask adds to the scores of rows [i, i + nr). */
static void
get_mask(const problem *p, int64_t head, int64_t i, int64_t nr, int64_t j,
         int64_t n)
{
    const sdpa *s = p->s;
    const stack *t = &s->mask;
    gemm_view rows = {at(t, p->b, head, i) + j * t->step[3] * t->size,
                      t->step[2], t->step[3], t->dtype};
    float *lines = p->m->lines;
    if (t->dtype == AIR_BOOL) {
        for (int64_t r = 0; r < nr; r++) {
            const char *from = (const char *)rows.p + r * t->step[2];
            for (int64_t e = 0; e < n; e++)
                lines[r * KEYS + e] = from[e * t->step[3]] != 0 ? 0 : -INFINITY;
        }
        rows = (gemm_view){lines, KEYS, 1, AIR_F32};
    }
    s->ops->pack_x(p->m->mask, &rows, 0, nr, 0, n);
}

/* How many of n keys the first half of a panel sees, whose first row sees keys
 * up to `last`. */
static int64_t
keys_of_half(const sdpa *s, int64_t n, int64_t last)
{
    return s->causal ? min64(n, last + s->ops->lanes / 2) : n;
}

/* to[key][lane] = rows * panel, of n keys, of which the first half of the lanes
 * needs those before `both` */
static void
score(const sdpa *s, float *to, const float *panel, const float *rows,
      int64_t rs, int64_t depth, int64_t n, int64_t both)
{
    const int64_t lanes = s->ops->lanes, half = lanes / 2;
    s->ops->block(to, both, panel, lanes, rows, rs, 1, depth, true);
    s->ops->half_block(to + both * lanes + half, n - both, panel + half, lanes,
                       rows + both * rs, rs, 1, depth, true);
}

/* sum[d][lane] += rows^T w, w and the keys as above */
static void
add_keys(const sdpa *s, float *sum, const float *w, const float *rows,
         int64_t rs, int64_t depth, int64_t n, int64_t both)
{
    const int64_t lanes = s->ops->lanes, half = lanes / 2;
    s->ops->block(sum, depth, w, lanes, rows, 1, rs, both, false);
    if (n > both)
        s->ops->half_block(sum + half, depth, w + both * lanes + half, lanes,
                           rows + both * rs, 1, rs, n - both, false);
}

/* sum[chunk][key][lane] += w^T rows, w: [key][lane of a panel], of which only
 * those from `first` on count */
static void
add_rows(const sdpa *s, float *sum, const float *w, const float *rows,
         int64_t width, int64_t n, int64_t first)
{
    int64_t lanes = s->ops->lanes, room = round_up(width, lanes);
    for (int64_t d = 0; d < room; d += lanes)
        s->ops->block(sum + d * KEYS, n, rows + first * room + d, room,
                      w + first, lanes, 1, lanes - first, false);
}

/* The same of n keys as above. */
static void
add_both(const sdpa *s, float *sum, const float *w, const float *rows,
         int64_t width, int64_t n, int64_t both)
{
    const int64_t lanes = s->ops->lanes;
    add_rows(s, sum, w, rows, width, both, 0);
    add_rows(s, sum + both * lanes, w + both * lanes, rows, width, n - both,
             lanes / 2);
}

/* Rows [i, i + lanes) of a head, row r of the problem's memory. */
static void
panel(const problem *p, const key_block *k, int64_t head, int64_t i, int64_t r)
{
    const sdpa *s = p->s;
    const memory *m = p->m;
    int64_t lanes = s->ops->lanes, nr = min64(lanes, s->rows - i);
    int64_t last = s->causal ? i - k->j : KEYS;
    int64_t n = min64(k->n, last + nr); /* keys that some row sees */
    bool masked = s->mask.dtype != AIR_DTYPE_NONE;
    if (n <= 0)
        return;
    if (masked)
        get_mask(p, head, i, nr, k->j, n);
    const int64_t both = keys_of_half(s, n, last);
    score(s, m->s, m->q + r * s->depth, k->k, k->krs, s->depth, n, both);
    score(s, m->dp, m->grad + r * s->width, k->v, k->vrs, s->width, n, both);
    s->own->weights(m->s, m->dp, masked ? m->mask : NULL, n, last, m->sums + r,
                    m->dots + r);
    add_keys(s, m->dq + r * s->depth, m->dp, k->k, k->krs, s->depth, n, both);
    add_both(s, m->dv, m->s, m->grad_rows + r * round_up(s->width, lanes),
             s->width, n, both);
    add_both(s, m->dk, m->dp, m->q_rows + r * round_up(s->depth, lanes),
             s->depth, n, both);
}

/* Keys [j, j + n) of the result from sum[chunk][key][lane]. */
static void
put_rows(const problem *p, const stack *t, int64_t j, int64_t n,
         const float *sum, int64_t width)
{
    const gemm_ops *ops = p->s->ops;
    const bool floats = t->dtype == AIR_F32 && t->step[3] == 1;
    for (int64_t d = 0; floats && d < width; d += ops->lanes)
        ops->copies((float *)(void *)at(t, p->b, p->kv, j) + d, t->step[2],
                    sum + d * KEYS, ops->lanes, 1, AIR_F32,
                    min64(ops->lanes, width - d), n);
    for (int64_t e = 0; !floats && e < n; e++) {
        char *row = at(t, p->b, p->kv, j + e);
        for (int64_t d = 0; d < width; d += ops->lanes)
            ops->narrow(row + d * t->step[3] * t->size, t->step[3], t->dtype,
                        sum + d * KEYS + e * ops->lanes, 1,
                        min64(ops->lanes, width - d));
    }
}

/* sum[chunk][key][lane] = 0 */
static void
clear(float *sum, int64_t n, int64_t width, int64_t lanes)
{
    for (int64_t d = 0; d < width; d += lanes)
        memset(sum + d * KEYS, 0, (size_t)(n * lanes) * sizeof *sum);
}

static void
block_of_keys(const problem *p, int64_t j)
{
    const sdpa *s = p->s;
    const memory *m = p->m;
    int64_t lanes = s->ops->lanes, padded = round_up(s->rows, lanes);
    key_block k = {.j = j, .n = min64(KEYS, s->keys - j)};
    k.k = get_rows(p, &s->k, j, k.n, s->depth, m->k, &k.krs);
    k.v = get_rows(p, &s->v, j, k.n, s->width, m->v, &k.vrs);
    clear(m->dk, k.n, s->depth, lanes);
    clear(m->dv, k.n, s->width, lanes);
    for (int64_t h = 0; h < s->share; h++)
        for (int64_t i = 0; i < s->rows; i += lanes)
            panel(p, &k, p->kv * s->share + h, i, h * padded + i);
    put_rows(p, &s->dk, j, k.n, m->dk, s->depth);
    put_rows(p, &s->dv, j, k.n, m->dv, s->width);
}

/* ---- the kernel ---------------------------------------------------------- */

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops,
    const backward_ops *own)
{
    sdpa s = read_call(call, task);
    memory m;
    int64_t begin, end;
    s.ops = ops;
    s.own = own;
    int64_t floats = layout(&s, GEMM_LANES_MAX, NULL, &m);
    (void)layout(&s, ops->lanes, (float *)task->workspace + floats * task->id,
                 &m);
    air_split(s.batch * s.kv_heads, task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        problem p = {&s, &m, i / s.kv_heads, i % s.kv_heads};
        begin_problem(&p);
        for (int64_t j = 0; j < s.keys; j += KEYS)
            block_of_keys(&p, j);
        end_problem(&p);
    }
}

size_t
cpu_sdpa_backward_workspace(const air_call *call, int threads)
{
    sdpa s = read_call(call, NULL);
    memory m;
    return (size_t)(layout(&s, GEMM_LANES_MAX, NULL, &m) * threads) *
           sizeof(float);
}

/* f64 is left to the plain kernel. */
static bool
accept(const air_call *call)
{
    const air_tensor *q = call->args[1].t, *k = call->args[2].t;
    const air_tensor *v = call->args[3].t;
    const air_arg *mask = &call->args[8];
    for (int i = 0; i < 5; i++)
        if (!gemm_is_float(call->args[i].t->dtype))
            return false;
    if (k->dims[1] != v->dims[1] || k->dims[1] == 0 ||
        q->dims[1] % k->dims[1] != 0)
        return false;
    return mask->kind != AIR_ARG_TENSOR || mask->t->dtype == AIR_DTYPE_NONE ||
           mask->t->dtype == AIR_BOOL || gemm_is_float(mask->t->dtype);
}

#define ISA_KERNEL(table)                                                      \
    bool cpu_sdpa_backward_on_##table(const air_call *call, const char *isa)   \
    {                                                                          \
        return accept(call) && cpu_on_##table(call, isa);                      \
    }                                                                          \
    void cpu_sdpa_backward_##table(const air_call *call, const air_task *task) \
    {                                                                          \
        run(call, task, &cpu_gemm_##table, &cpu_attention_backward_##table);   \
    }
ISA_KERNEL(scalar)
#if defined(__x86_64__)
ISA_KERNEL(avx2)
ISA_KERNEL(avx512)
#endif
