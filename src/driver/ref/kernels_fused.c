/* kernels_fused.c: attention over caches of any form, in double, a row of
 * weights at a time. Rows without a visible key, and rows that belong to no
 * batch, are 0 and the logarithm of their sum is +inf. */
#include "driver/ref/fused.h"
#include "driver/ref/kernels.h"

/* One query row. */
typedef struct {
    const fused *f;
    const fused_batch *b;
    int64_t head, kv, i;
    double *w; /* weights */
} query_row;

static double
element(const query_row *r, fused_part part, const char *p, int64_t j,
        int64_t e)
{
    const fused_cache *c = &r->f->parts[part];
    double x = fused_stored(fused_piece(r->f, r->b, part, j), p, e);
    if (c->offset.data != NULL)
        x += fused_factor(r->f, r->b, &c->offset, r->kv, j, e);
    if (c->scale.data != NULL)
        x *= fused_factor(r->f, r->b, &c->scale, r->kv, j, e);
    return x;
}

static double
dot(const query_row *r, const ref_tensor *q, fused_part part, int64_t j)
{
    const char *x = fused_query(q, r->b, r->head, r->i);
    const char *k = fused_row(r->f, r->b, part, r->kv, j, NULL);
    double sum = 0;
    for (int64_t e = 0; e < q->dims[3]; e++)
        sum += ref_get(q->dtype, x + e * q->strides[3]) *
               element(r, part, k, j, e);
    return sum;
}

static double
score(const query_row *r, int64_t j)
{
    const fused *f = r->f;
    if (fused_hidden(f, r->b, r->head, r->i, j))
        return -(double)INFINITY;
    double sum = dot(r, &f->query, FUSED_KEY, j) *
                 fused_query_factor(f, r->b, r->head, r->i);
    if (f->rope > 0)
        sum += dot(r, &f->query_rope, FUSED_ROPE, j);
    return sum * f->scale + fused_bias(f, r->b, r->head, r->i, j);
}

/* The weights of keys [first, end); the logarithm of the sum of e^score. */
static double
weigh(const query_row *r, int64_t first, int64_t end)
{
    const ref_tensor *sink = &r->f->sink;
    double high = -(double)INFINITY, total = 0;
    for (int64_t j = first; j < end; j++) {
        r->w[j] = score(r, j);
        high = isnan(r->w[j]) || r->w[j] > high ? r->w[j] : high;
    }
    bool none = isinf(high) && high < 0;
    for (int64_t j = first; j < end; j++) {
        r->w[j] = none ? 0 : exp(r->w[j] - high);
        total += r->w[j];
    }
    if (none)
        return (double)INFINITY;
    if (sink->data != NULL)
        total +=
            exp(ref_get(sink->dtype, sink->data + r->head * sink->strides[0]) -
                high);
    for (int64_t j = first; j < end; j++)
        r->w[j] /= total;
    return high + log(total);
}

/* Weights as 8-bit integers, where the call asks for it. */
static void
round_weights(const query_row *r, int64_t first, int64_t end)
{
    const ref_tensor *t = &r->f->weight_scale;
    if (t->data == NULL)
        return;
    double scale = ref_get(t->dtype, t->data);
    for (int64_t j = first; j < end; j++)
        r->w[j] = fmin(fmax(rint(r->w[j] * scale), -128), 127);
}

static void
attend(const query_row *r)
{
    const fused *f = r->f;
    char *y = fused_query(&f->out, r->b, r->head, r->i);
    int64_t first, end;
    fused_range(r->b, r->i, &first, &end);
    double log_sum = weigh(r, first, end);
    round_weights(r, first, end);
    for (int64_t e = 0; e < f->width; e++) {
        double sum = 0;
        for (int64_t j = first; j < end; j++)
            if (r->w[j] != 0)
                sum += r->w[j] *
                       element(r, FUSED_VALUE,
                               fused_row(f, r->b, FUSED_VALUE, r->kv, j, NULL),
                               j, e);
        ref_put(f->out.dtype, y + e * f->out.strides[3], sum);
    }
    ref_put(f->sums.dtype, fused_query(&f->sums, r->b, r->head, r->i), log_sum);
}

static void
clear(const query_row *r)
{
    const fused *f = r->f;
    char *y = fused_query(&f->out, r->b, r->head, r->i);
    for (int64_t e = 0; e < f->width; e++)
        ref_put(f->out.dtype, y + e * f->out.strides[3], 0);
    ref_put(f->sums.dtype, fused_query(&f->sums, r->b, r->head, r->i),
            (double)INFINITY);
}

size_t
ref_fused_attention_size(const air_call *call, int threads)
{
    return (size_t)(fused_most_keys(call) * threads) * sizeof(double);
}

/* Items are heads of a batch. */
void
ref_fused_attention(const air_call *call, const air_task *task)
{
    fused f = fused_read(call, task);
    size_t part = ref_fused_attention_size(call, 1) / sizeof(double);
    int64_t begin, end;
    air_split(f.batches * f.heads, task, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        fused_batch b = fused_batch_at(&f, n / f.heads);
        query_row r = {.f = &f, .b = &b, .head = n % f.heads};
        r.kv = r.head / f.share;
        r.w = (double *)task->workspace + part * (size_t)task->id;
        for (int64_t row = b.begin; row < b.end; row++) {
            r.i = row - b.first;
            if (r.i >= 0 && r.i < b.rows)
                attend(&r);
            else
                clear(&r);
        }
    }
}
