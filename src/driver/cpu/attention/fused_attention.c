/* fused_attention.c: air::fused_attention of floating-point queries.
 *
 * One problem (attend.h) is a batch and a key head: rows are the batch's
 * queries of all heads that share it, keys are gathered from prefix, blocks or
 * one piece of memory, and read in place where that is one piece of floats, or
 * of bf16 in pairs.
 * Integer queries are left to the plain kernel. */
#include "driver/cpu/attention/attend.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/product/gemm.h"
#include "driver/ref/fused.h"

#include <math.h>
#include <string.h>

#define AHEAD 12 /* rows that are fetched before they are read */

/* (x + offset) * scale of a cache's integers: of each element of a row, the
 * same for all keys, or one for each key. */
typedef struct {
    float *scale, *offset;
    bool by_key;
} unit;

typedef struct {
    const fused *f;
    fused_batch b;
    int64_t kv;
    unit units[2]; /* of keys, of values */
} problem;

static int64_t
head_of(const problem *p, int64_t r)
{
    return p->kv * p->f->share + r / p->b.rows;
}

static int64_t
spacing(const ref_tensor *t, int axis)
{
    return t->strides[axis] / (int64_t)ref_bytes(t->dtype);
}

/* ---- rows ---------------------------------------------------------------- */

static void
get_unit(const problem *p, fused_part part, int64_t j, unit *u)
{
    const fused_cache *c = &p->f->parts[part];
    int64_t n = u->by_key ? 1 : c->width;
    for (int64_t e = 0; e < n; e++) {
        u->scale[e] = (float)fused_factor(p->f, &p->b, &c->scale, p->kv, j, e);
        u->offset[e] =
            c->offset.data == NULL
                ? 0
                : (float)fused_factor(p->f, &p->b, &c->offset, p->kv, j, e);
    }
}

static void
get_integers(const attend *a, fused_part part, int64_t j, const char *row,
             float *dst)
{
    const problem *p = a->front;
    const ref_tensor *t = fused_piece(p->f, &p->b, part, j);
    unit u = p->units[part];
    int bits = t->dtype == AIR_I8 ? 8 : 4, step = u.by_key ? 0 : 1;
    int64_t pieces = t->rank == 5 ? t->dims[3] : 1;
    int64_t n = p->f->parts[part].width / pieces;
    if (u.by_key)
        get_unit(p, part, j, &u);
    for (int64_t i = 0; i < pieces; i++)
        a->ops->unquant(dst + i * n, row + i * t->strides[3], bits,
                        u.scale + i * n * step, u.offset + i * n * step, step,
                        n);
}

static void
get_row(const attend *a, fused_part part, int64_t j, const char *row,
        float *dst)
{
    const problem *p = a->front;
    const ref_tensor *t = fused_piece(p->f, &p->b, part, j);
    if (!ref_is_float(t->dtype)) {
        get_integers(a, part, j, row, dst);
        return;
    }
    int64_t pieces = t->rank == 5 ? t->dims[3] : 1;
    int64_t n = p->f->parts[part].width / pieces;
    for (int64_t i = 0; i < pieces; i++)
        a->ops->widen(dst + i * n, row + i * t->strides[3],
                      spacing(t, t->rank - 1), t->dtype, n);
}

/* Do rows lie as the dot products take them? */
static bool
is_plain(const ref_tensor *t)
{
    return gemm_is_float(t->dtype) && t->rank == 4 &&
           (spacing(t, 3) == 1 || t->dims[3] == 1);
}

/* The tensor that key j of a part is in, its row, and how many of n keys from
 * there on lie behind it. */
static const ref_tensor *
piece_at(const problem *p, fused_part part, int64_t j, int64_t n,
         const char **row, int64_t *count)
{
    int64_t run;
    *row = fused_row(p->f, &p->b, part, p->kv, j, &run);
    *count = min64(run, n);
    return fused_piece(p->f, &p->b, part, j);
}

/* A row is a few lines of memory, and the next one is elsewhere: the hardware
 * does not find it by itself. */
static void
fetch(const char *row, const ref_tensor *t)
{
    int64_t bytes = t->dims[3] * t->strides[3];
    for (int64_t at = 0; t->rank == 4 && at < bytes; at += 64)
        __builtin_prefetch(row + at);
}

/* Rows [j, j + n) of a part at dst, `room` apart. */
static void
copy_rows(const attend *a, fused_part part, int64_t j, int64_t n, int64_t room,
          float *dst)
{
    const char *row;
    int64_t done;
    for (int64_t i = 0; i < n; i += done) {
        const ref_tensor *t =
            piece_at(a->front, part, j + i, n - i, &row, &done);
        for (int64_t k = 0; k < done; k++) {
            fetch(row + (k + AHEAD) * t->strides[2], t);
            get_row(a, part, j + i + k, row + k * t->strides[2],
                    dst + (i + k) * room);
        }
    }
}

/* Rows [j, j + n) where they are, if that will do; NULL. */
static const float *
rows_in_place(const attend *a, fused_part part, int64_t j, int64_t n,
              int64_t *out_rs)
{
    const char *row;
    int64_t count;
    const ref_tensor *t = piece_at(a->front, part, j, n, &row, &count);
    *out_rs = spacing(t, 2);
    if (t->dtype != AIR_F32 || !is_plain(t) || count < n)
        return NULL;
    return (const float *)(const void *)row;
}

/* Elements of a row of bf16, in pieces or one. */
static void
get_halves(const ref_tensor *t, const char *row, uint16_t *dst)
{
    int64_t pieces = t->rank == 5 ? t->dims[3] : 1;
    size_t bytes = (size_t)t->dims[t->rank - 1] * sizeof *dst;
    for (int64_t i = 0; i < pieces; i++)
        memcpy((char *)dst + (size_t)i * bytes, row + i * t->strides[3], bytes);
}

/* copy_rows of bf16 as they are, `room` elements apart. */
static void
copy_halves(const problem *p, fused_part part, int64_t j, int64_t n,
            int64_t room, uint16_t *dst)
{
    const char *row;
    int64_t done;
    for (int64_t i = 0; i < n; i += done) {
        const ref_tensor *t = piece_at(p, part, j + i, n - i, &row, &done);
        for (int64_t k = 0; k < done; k++, row += t->strides[2]) {
            fetch(row + AHEAD * t->strides[2], t);
            get_halves(t, row, dst + (i + k) * room);
        }
    }
}

/* ---- the source ---------------------------------------------------------- */

static void
queries(const attend *a, int64_t r0, int64_t n, float *dst)
{
    const problem *p = a->front;
    const ref_tensor *parts[] = {&p->f->query, &p->f->query_rope};
    for (int64_t r = r0; r < r0 + n; r++, dst += a->depth) {
        int64_t at = 0;
        for (int i = 0; i < 2 && at < a->depth; i++) {
            const ref_tensor *t = parts[i];
            a->ops->widen(dst + at,
                          fused_query(t, &p->b, head_of(p, r), r % p->b.rows),
                          spacing(t, 3), t->dtype, t->dims[3]);
            at += t->dims[3];
        }
        for (int64_t d = 0; d < a->depth && a->pairs == NULL; d++)
            dst[d] *= (float)p->f->scale;
    }
}

static const float *
keys(const attend *a, int64_t j, int64_t n, float *block, int64_t *out_rs)
{
    const problem *p = a->front;
    const float *here =
        p->f->rope > 0 ? NULL : rows_in_place(a, FUSED_KEY, j, n, out_rs);
    if (here != NULL)
        return here;
    copy_rows(a, FUSED_KEY, j, n, a->depth, block);
    if (p->f->rope > 0)
        copy_rows(a, FUSED_ROPE, j, n, a->depth, block + p->f->depth);
    *out_rs = a->depth;
    return block;
}

static const float *
values(const attend *a, int64_t j, int64_t n, int64_t room, float *block,
       int64_t *out_rs)
{
    const float *here =
        room == a->width ? rows_in_place(a, FUSED_VALUE, j, n, out_rs) : NULL;
    if (here != NULL)
        return here;
    copy_rows(a, FUSED_VALUE, j, n, room, block);
    *out_rs = room;
    return block;
}

static const float *
key_pairs(const attend *a, int64_t j, int64_t n, float *block, int64_t *out_rs)
{
    const problem *p = a->front;
    const char *row;
    int64_t count;
    const ref_tensor *t = piece_at(p, FUSED_KEY, j, n, &row, &count);
    uint16_t *dst = (uint16_t *)(void *)block;
    *out_rs = a->depth / 2;
    if (is_plain(t) && count == n && spacing(t, 2) == a->depth)
        return (const float *)(const void *)row;
    copy_halves(p, FUSED_KEY, j, n, a->depth, dst);
    if (p->f->rope > 0)
        copy_halves(p, FUSED_ROPE, j, n, a->depth, dst + p->f->depth);
    return block;
}

/* Pairs are made of one piece; several are put together at the end of dst,
 * which they fill half of, as what becomes of them does. */
static void
value_pairs(const attend *a, int64_t j, int64_t n, float *dst)
{
    const problem *p = a->front;
    uint16_t *rows = (uint16_t *)(void *)(dst + ATTEND_KEYS / 2 * a->width);
    const char *row;
    int64_t count;
    const ref_tensor *t = piece_at(p, FUSED_VALUE, j, n, &row, &count);
    if (is_plain(t) && count == n) {
        attend_value_pairs(a, row, spacing(t, 2), n, dst);
        return;
    }
    copy_halves(p, FUSED_VALUE, j, n, a->width, rows);
    attend_value_pairs(a, rows, a->width, n, dst);
}

static const void *
value_rows(const attend *a, int64_t j, int64_t *count, int64_t *out_rs,
           int *out_dtype)
{
    const char *row;
    const ref_tensor *t =
        piece_at(a->front, FUSED_VALUE, j, *count, &row, count);
    *out_rs = spacing(t, 2), *out_dtype = t->dtype;
    return is_plain(t) ? row : NULL;
}

/* Do all rows of a part lie as the dot products take them? */
static bool
are_plain(const problem *p, fused_part part)
{
    const fused_cache *c = &p->f->parts[part];
    return is_plain(&c->rows) && (p->b.prefix == 0 || is_plain(&c->prefix));
}

/* Dot products with one part of the keys, run by run where they lie. */
static void
dots(const attend *a, fused_part part, const float *q, int64_t j, int64_t n,
     float *s)
{
    const char *row;
    int64_t done;
    for (int64_t i = 0; i < n; i += done) {
        const ref_tensor *t =
            piece_at(a->front, part, j + i, n - i, &row, &done);
        attend_dots(a->ops, s + i, a->rows, q, a->depth, row, spacing(t, 2),
                    t->dtype, done, t->dims[3]);
    }
}

static void
scores(const attend *a, const float *q, int64_t j, int64_t n, float *s,
       float *block)
{
    const problem *p = a->front;
    int64_t rs;
    if (!are_plain(p, FUSED_KEY) ||
        (p->f->rope > 0 && !are_plain(p, FUSED_ROPE))) {
        const float *rows = keys(a, j, n, block, &rs);
        attend_dots(a->ops, s, a->rows, q, a->depth, rows, rs, AIR_F32, n,
                    a->depth);
        return;
    }
    dots(a, FUSED_KEY, q, j, n, s);
    if (p->f->rope == 0)
        return;
    dots(a, FUSED_ROPE, q + p->f->depth, j, n, block);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < n; i++)
            s[r * ATTEND_KEYS + i] += block[r * ATTEND_KEYS + i];
}

static bool
of_one_head(const problem *p, int64_t r0, int64_t n)
{
    return r0 / p->b.rows == (r0 + n - 1) / p->b.rows;
}

/* Queries of rows [r0, r0 + n): all where the rows are of several heads. */
static void
query_span(const problem *p, int64_t r0, int64_t n, int64_t *low, int64_t *high)
{
    bool one = of_one_head(p, r0, n);
    *low = one ? r0 % p->b.rows : 0;
    *high = one ? *low + n - 1 : p->b.rows - 1;
}

static unsigned
is_masked(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t nkeys)
{
    const problem *p = a->front;
    int64_t low, high;
    query_span(p, r0, n, &low, &high);
    if (p->f->mask.data != NULL || p->f->pse.data != NULL ||
        high - p->b.pre > j)
        return ATTEND_MASK;
    if (low + p->b.next >= j + nkeys - 1)
        return 0;
    return of_one_head(p, r0, n) ? ATTEND_EDGE : ATTEND_MASK;
}

static int64_t
last(const attend *a, int64_t r)
{
    const problem *p = a->front;
    return r % p->b.rows + p->b.next;
}

static void
range(const attend *a, int64_t r0, int64_t n, int64_t *first, int64_t *end)
{
    const problem *p = a->front;
    int64_t low, high, unused;
    query_span(p, r0, n, &low, &high);
    fused_range(&p->b, low, first, &unused);
    fused_range(&p->b, high, &unused, end);
}

/* tmp[i] = what is added to the score with key j + i */
static void
get_bias(const attend *a, int64_t head, int64_t i, int64_t j, int64_t n,
         float *tmp)
{
    const problem *p = a->front;
    const ref_tensor *t = &p->f->pse;
    int64_t step, count;
    const char *row = t->data == NULL
                          ? NULL
                          : fused_bias_row(t, &p->b, head, i, &step, &count);
    memset(tmp, 0, (size_t)n * sizeof *tmp);
    if (row != NULL && j < count)
        a->ops->widen(tmp, row + j * step, spacing(t, 3), t->dtype,
                      min64(n, count - j));
}

/* The mask of the last keys only, or one without axes. */
static void
hide_each(const attend *a, int64_t head, int64_t i, int64_t j, int64_t n,
          float *tmp)
{
    const problem *p = a->front;
    for (int64_t k = 0; k < n; k++)
        if (fused_hidden(p->f, &p->b, head, i, j + k))
            tmp[k] = -INFINITY;
}

static void
hide(const attend *a, int64_t head, int64_t i, int64_t j, int64_t n, float *tmp)
{
    const problem *p = a->front;
    const ref_tensor *t = &p->f->mask;
    int64_t step, count;
    if (t->data == NULL)
        return;
    if (t->rank != 4 || p->f->sparse == 9) {
        hide_each(a, head, i, j, n, tmp);
        return;
    }
    const char *row = fused_bias_row(t, &p->b, head, i, &step, &count);
    int64_t there = row == NULL ? 0 : min64(n, max64(count - j, 0));
    if (there > 0 && step == 1)
        a->ops->attend->hide(tmp, (const uint8_t *)row + j, there);
    for (int64_t k = step == 1 ? there : 0; k < n; k++)
        if (k >= there || row[(j + k) * step] != 0)
            tmp[k] = -INFINITY;
}

static void
mask(const attend *a, int64_t r, int64_t j, int64_t n, float *dst, int64_t ds,
     float *tmp)
{
    const problem *p = a->front;
    int64_t head = head_of(p, r), i = r % p->b.rows, first, end;
    get_bias(a, head, i, j, n, tmp);
    hide(a, head, i, j, n, tmp);
    fused_range(&p->b, i, &first, &end);
    for (int64_t k = 0; k < min64(n, first - j); k++)
        tmp[k] = -INFINITY;
    for (int64_t k = max64(end - j, 0); k < n; k++)
        tmp[k] = -INFINITY;
    for (int64_t k = 0; k < n && dst != tmp; k++)
        dst[k * ds] = tmp[k];
}

static void
put_sum(const fused *f, const fused_batch *b, int64_t head, int64_t i,
        float log_sum)
{
    memcpy(fused_query(&f->sums, b, head, i), &log_sum, sizeof log_sum);
}

/* Zeros and +inf where nothing is visible. */
static void
put_row(const fused *f, const fused_batch *b, const gemm_ops *ops, int64_t head,
        int64_t i, const float *row, float inverse, float log_sum)
{
    const ref_tensor *out = &f->out;
    ops->narrow(fused_query(out, b, head, i), spacing(out, 3), out->dtype, row,
                inverse, f->width);
    put_sum(f, b, head, i, log_sum);
}

static void
put(const attend *a, int64_t r, const float *row, float top, float sum)
{
    const problem *p = a->front;
    const ref_tensor *sink = &p->f->sink;
    int64_t head = head_of(p, r);
    float total = sum;
    if (sink->data != NULL)
        total += expf(
            (float)ref_get(sink->dtype, sink->data + head * sink->strides[0]) -
            top);
    put_row(p->f, &p->b, a->ops, head, r % p->b.rows, row,
            sum == 0 ? 0 : 1 / total, sum == 0 ? INFINITY : top + logf(total));
}

static bool
query_panel(const attend *a, int64_t r0, int64_t n, float *panel)
{
    const problem *p = a->front;
    const ref_tensor *t = &p->f->query;
    if (!of_one_head(p, r0, n) || p->f->rope > 0)
        return false;
    gemm_view v = {fused_query(t, &p->b, head_of(p, r0), r0 % p->b.rows),
                   spacing(t, 2), spacing(t, 3), t->dtype};
    return attend_query_panel(a, &v, n, (float)p->f->scale, panel);
}

static bool
mask_panel(const attend *a, int64_t r0, int64_t n, int64_t j, int64_t nkeys,
           float *dst, float *tmp)
{
    gemm_view rows = {tmp, ATTEND_KEYS, 1, AIR_F32};
    for (int64_t r = 0; r < n; r++)
        mask(a, r0 + r, j, nkeys, tmp + r * ATTEND_KEYS, 1,
             tmp + r * ATTEND_KEYS);
    attend_mask_panel(a, &rows, n, nkeys, dst);
    return true;
}

static bool
put_panel(const attend *a, int64_t r0, int64_t n, float *out, const float *top,
          const float *sum)
{
    const problem *p = a->front;
    const ref_tensor *t = &p->f->out;
    int64_t head = head_of(p, r0), row = r0 % p->b.rows;
    float scale[GEMM_LANES_MAX];
    if (!of_one_head(p, r0, n) || !is_plain(t) || p->f->sink.data != NULL)
        return false;
    for (int64_t l = 0; l < a->ops->lanes; l++)
        scale[l] = sum[l] == 0 ? 0 : 1 / sum[l];
    a->ops->attend->put_panel(fused_query(t, &p->b, head, row), spacing(t, 2),
                              t->dtype, out, scale, n, a->width);
    for (int64_t l = 0; l < n; l++)
        put_sum(p->f, &p->b, head, row + l,
                sum[l] == 0 ? INFINITY : top[l] + logf(sum[l]));
    return true;
}

static const attend_source source = {
    .queries = queries,
    .keys = keys,
    .values = values,
    .value_rows = value_rows,
    .scores = scores,
    .is_masked = is_masked,
    .last = last,
    .mask = mask,
    .range = range,
    .put = put,
    .key_pairs = key_pairs,
    .value_pairs = value_pairs,
    .query_panel = query_panel,
    .mask_panel = mask_panel,
    .put_panel = put_panel,
};

/* ---- the kernel ---------------------------------------------------------- */

/* Rows of the tensors that belong to no query of the batch. */
static void
clear_rows(const problem *p, const gemm_ops *ops, float *zeros)
{
    const fused_batch *b = &p->b;
    memset(zeros, 0, (size_t)p->f->width * sizeof *zeros);
    for (int64_t row = b->begin; row < b->end; row++) {
        int64_t i = row - b->first;
        for (int64_t h = 0; (i < 0 || i >= b->rows) && h < p->f->share; h++)
            put_row(p->f, b, ops, p->kv * p->f->share + h, i, zeros, 0,
                    INFINITY);
    }
}

/* Floats of a thread in front of attend's own: two units. */
static int64_t
unit_floats(int64_t depth, int64_t width)
{
    return round_up(2 * (depth + width), 16);
}

static void
make_units(problem *p, float *mem)
{
    for (int part = FUSED_KEY; part <= FUSED_VALUE; part++) {
        const fused_cache *c = &p->f->parts[part];
        unit *u = &p->units[part];
        *u = (unit){mem, mem + c->width, false};
        mem += 2 * c->width;
        if (c->scale.data == NULL)
            continue;
        u->by_key =
            c->scale.dims[2] > 1 || p->f->paged_scales || c->scale.dims[0] > 1;
        if (!u->by_key)
            get_unit(p, part, p->b.prefix, u);
    }
}

static int64_t
runs_of(const fused *f, const fused_batch *b, const gemm_ops *ops)
{
    int64_t rows = f->share * b->rows, at_once = attend_run_rows(ops);
    if (rows == 0 || attend_is_few(rows))
        return 1;
    return (rows + at_once - 1) / at_once;
}

static void
run_part(problem *p, int64_t run, const gemm_ops *ops,
         const attend_pairs *pairs, float *mem)
{
    const fused *f = p->f;
    int64_t depth = f->depth + f->rope, rows = f->share * p->b.rows;
    int64_t r0 = run * attend_run_rows(ops);
    attend a = {.from = &source,
                .front = p,
                .ops = ops,
                .rows = rows,
                .depth = depth,
                .width = f->width,
                .mem = mem + unit_floats(f->depth, f->width),
                .pairs = attend_is_few(rows) ? NULL : pairs,
                .scale = (float)f->scale};
    if (run == 0)
        clear_rows(p, ops, a.mem);
    if (rows == 0)
        return;
    make_units(p, mem);
    attend_run(&a, r0,
               attend_is_few(rows) ? rows
                                   : min64(rows, r0 + attend_run_rows(ops)));
}

static int64_t
thread_floats(const air_call *call)
{
    int64_t rows, depth, width;
    fused_sizes(call, &rows, &depth, &width);
    return unit_floats(depth, width) + attend_floats(rows, depth, width);
}

/* Items: batches, their key heads, and of these runs of rows. */
static void
run_all(const air_call *call, const air_task *task, const gemm_ops *ops,
        const attend_pairs *pairs)
{
    fused f = fused_read(call, task);
    float *mem = (float *)task->workspace + thread_floats(call) * task->id;
    int64_t total = 0, begin, end, at = 0;
    for (int64_t b = 0; b < f.batches; b++) {
        fused_batch batch = fused_batch_at(&f, b);
        total += f.kv_heads * runs_of(&f, &batch, ops);
    }
    air_split(total, task, &begin, &end);
    for (int64_t b = 0; b < f.batches && at < end; b++) {
        problem p = {.f = &f, .b = fused_batch_at(&f, b)};
        int64_t runs = runs_of(&f, &p.b, ops), items = runs * f.kv_heads;
        int64_t from = begin > at ? begin - at : 0;
        for (int64_t i = from; i < items && at + i < end; i++) {
            p.kv = i / runs;
            run_part(&p, i % runs, ops, pairs, mem);
        }
        at += items;
    }
}

size_t
cpu_fused_attention_workspace(const air_call *call, int threads)
{
    return (size_t)(thread_floats(call) * threads) * sizeof(float);
}

/* Integers come in rows, or pieces of rows, without gaps. */
static bool
is_taken(const air_arg *a)
{
    const air_tensor *t = a->t;
    return a->kind != AIR_ARG_TENSOR || t->dtype == AIR_DTYPE_NONE ||
           gemm_is_float(t->dtype) ||
           ((t->dtype == AIR_I8 || t->dtype == AIR_I32) &&
            t->strides[t->rank - 1] == 1);
}

static bool
accept(const air_call *call)
{
    const air_arg *a = call->args;
    return gemm_is_float(a[0].t->dtype) && is_taken(&a[1]) && is_taken(&a[2]) &&
           is_taken(&a[FUSED_KEY_PREFIX]) && is_taken(&a[FUSED_VALUE_PREFIX]);
}

static void
run(const air_call *call, const air_task *task, const gemm_ops *ops)
{
    run_all(call, task, ops, NULL);
}

GEMM_KERNELS(fused_attention)

#if defined(__x86_64__)
void
cpu_fused_attention_pairs(const air_call *call, const air_task *task)
{
    run_all(call, task, &cpu_gemm_avx512, &cpu_attend_pairs);
}

/* A tensor of bf16 whose elements lie side by side, or none? */
static bool
is_of_halves(const air_arg *a)
{
    const air_tensor *t = a->t;
    return a->kind != AIR_ARG_TENSOR || t->dtype == AIR_DTYPE_NONE ||
           (t->dtype == AIR_BF16 &&
            (t->dims[t->rank - 1] <= 1 || t->strides[t->rank - 1] == 1));
}

/* Many rows of queries, keys, values and results of bf16. */
bool
cpu_fused_attention_on_pairs(const air_call *call, const char *isa)
{
    int64_t rows, depth, width;
    static const int parts[] = {
        FUSED_QUERY,    FUSED_KEYS,       FUSED_VALUES,      FUSED_QUERY_ROPE,
        FUSED_KEY_ROPE, FUSED_KEY_PREFIX, FUSED_VALUE_PREFIX};
    if (!cpu_isa_has_fast_pairs(isa) || call->outs[0].dtype != AIR_BF16 ||
        !cpu_fused_attention_on_avx512(call, "avx512"))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!is_of_halves(&call->args[parts[i]]))
            return false;
    fused_sizes(call, &rows, &depth, &width);
    return depth % 2 == 0 && !attend_is_few(rows);
}
#endif
