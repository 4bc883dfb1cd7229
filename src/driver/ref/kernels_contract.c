/* kernels_contract.c: matrix products and attention, one element at a time in
 * double: what fast kernels are compared with. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

/* One matrix of a batch; broadcast over the batch. */
static ref_tensor
matrix(const ref_tensor *t, const ref_tensor *out, int64_t batch)
{
    ref_tensor wide = *t, outer = *out;
    outer.rank -= 2;
    wide.rank -= 2;
    ref_tensor spread = ref_expand(&wide, &outer);
    ref_tensor m = {.dtype = t->dtype, .rank = 2};
    m.data = t->data + ref_offset(&spread, batch);
    for (int k = 0; k < 2; k++) {
        m.dims[k] = t->dims[t->rank - 2 + k];
        m.strides[k] = t->strides[t->rank - 2 + k];
    }
    return m;
}

static const char *
entry(const ref_tensor *m, int64_t i, int64_t j)
{
    return m->data + i * m->strides[0] + j * m->strides[1];
}

static double
dot(const ref_tensor *a, const ref_tensor *b, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < a->dims[1]; k++)
        sum += ref_get(a->dtype, entry(a, i, k)) *
               ref_get(b->dtype, entry(b, k, j));
    return sum;
}

static int64_t
dot_int(const ref_tensor *a, const ref_tensor *b, int64_t i, int64_t j)
{
    uint64_t sum = 0;
    for (int64_t k = 0; k < a->dims[1]; k++)
        sum += (uint64_t)ref_get_int(a->dtype, entry(a, i, k)) *
               (uint64_t)ref_get_int(b->dtype, entry(b, k, j));
    return (int64_t)sum;
}

/* out = alpha * a b + beta * c; c absent: no term. beta 0: c is not read. */
static void
product(const ref_tensor *out, const ref_tensor *c, const ref_tensor *a,
        const ref_tensor *b, double beta, double alpha, const air_task *task)
{
    int64_t rows = out->dims[out->rank - 2], cols = out->dims[out->rank - 1];
    int64_t begin, end;
    ref_tensor added = *out;
    bool add = c->data != NULL && beta != 0;
    if (add)
        added = ref_expand(c, out);
    air_split(ref_numel(out), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t batch = i / (rows * cols), r = i / cols % rows, q = i % cols;
        ref_tensor x = matrix(a, out, batch), y = matrix(b, out, batch);
        char *dst = out->data + ref_offset(out, i);
        const char *plus = added.data + ref_offset(&added, i);
        if (ref_is_float(out->dtype)) {
            double v = alpha * dot(&x, &y, r, q);
            ref_put(out->dtype, dst,
                    add ? v + beta * ref_get(added.dtype, plus) : v);
        } else {
            uint64_t v =
                (uint64_t)ref_to_int(alpha) * (uint64_t)dot_int(&x, &y, r, q);
            uint64_t w = (uint64_t)ref_to_int(beta);
            if (add)
                v += w * (uint64_t)ref_get_int(added.dtype, plus);
            ref_put_int(out->dtype, dst, (int64_t)v);
        }
    }
}

/* mm(a, b), bmm(a, b) */
void
ref_mm(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), none = {.data = NULL};
    ref_tensor a = ref_arg(call, 0, task), b = ref_arg(call, 1, task);
    product(&out, &none, &a, &b, 0, 1, task);
}

/* addmm, baddbmm(self, a, b, *, beta, alpha) */
void
ref_addmm(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), c = ref_arg(call, 0, task);
    ref_tensor a = ref_arg(call, 1, task), b = ref_arg(call, 2, task);
    product(&out, &c, &a, &b, ref_float(call, 3, 1), ref_float(call, 4, 1),
            task);
}

/* ---- attention ----------------------------------------------------------- */

typedef struct {
    ref_tensor query, key, value, mask, out;
    bool causal;
    double scale;
    int64_t group; /* query heads per key head */
} attention;

/* A mask of bool keeps or drops, one of floats is added. */
static double
score(const attention *a, const ref_tensor *q, const ref_tensor *k,
      const ref_tensor *mask, int64_t i, int64_t j)
{
    double sum = 0;
    if (a->causal && j > i)
        return -(double)INFINITY;
    for (int64_t e = 0; e < q->dims[1]; e++)
        sum += ref_get(q->dtype, entry(q, i, e)) *
               ref_get(k->dtype, entry(k, j, e));
    sum *= a->scale;
    if (mask->data == NULL)
        return sum;
    double m = ref_get(mask->dtype, entry(mask, i, j));
    if (mask->dtype == AIR_BOOL)
        return m != 0 ? sum : -(double)INFINITY;
    return sum + m;
}

static void
attend(const attention *a, int64_t batch, int64_t i)
{
    int64_t heads = a->out.rank > 2 ? a->out.dims[a->out.rank - 3] : 1;
    ref_tensor kv = a->out; /* the batch with the heads of the keys */
    int64_t kv_heads = heads / a->group;
    if (kv.rank > 2)
        kv.dims[kv.rank - 3] = kv_heads;
    int64_t kv_batch = batch / heads * kv_heads + batch % heads / a->group;
    ref_tensor q = matrix(&a->query, &a->out, batch), m = {.data = NULL};
    ref_tensor k = matrix(&a->key, &kv, kv_batch);
    ref_tensor v = matrix(&a->value, &kv, kv_batch);
    ref_tensor out = matrix(&a->out, &a->out, batch);
    double high = -(double)INFINITY, total = 0;
    if (a->mask.data != NULL) {
        ref_tensor full = a->out;
        full.dims[full.rank - 1] = k.dims[0];
        ref_tensor wide = ref_expand(&a->mask, &full);
        m = matrix(&wide, &full, batch);
    }
    for (int64_t j = 0; j < k.dims[0]; j++)
        high = fmax(high, score(a, &q, &k, &m, i, j));
    for (int64_t j = 0; j < k.dims[0]; j++)
        total += high > -(double)INFINITY
                     ? exp(score(a, &q, &k, &m, i, j) - high)
                     : 0;
    for (int64_t e = 0; e < v.dims[1]; e++) {
        double sum = 0;
        for (int64_t j = 0; j < k.dims[0] && total > 0; j++)
            sum += exp(score(a, &q, &k, &m, i, j) - high) *
                   ref_get(v.dtype, entry(&v, j, e));
        ref_put(out.dtype, out.data + i * out.strides[0] + e * out.strides[1],
                total > 0 ? sum / total : 0);
    }
}

/* scaled_dot_product_attention(query, key, value, attn_mask, dropout_p,
 * is_causal, *, scale, enable_gqa). A row that may look nowhere gives 0. */
void
ref_sdpa(const air_call *call, const air_task *task)
{
    attention a = {.query = ref_arg(call, 0, task),
                   .key = ref_arg(call, 1, task),
                   .value = ref_arg(call, 2, task),
                   .mask = ref_arg(call, 3, task),
                   .out = ref_out(call, 0, task),
                   .causal = ref_int(call, 5, 0) != 0};
    int rank = a.query.rank;
    int64_t rows = a.query.dims[rank - 2], begin, end;
    double width = (double)a.query.dims[rank - 1];
    a.scale = ref_float(call, 6, 1 / sqrt(width));
    a.group = rank > 2 && a.key.dims[rank - 3] > 0
                  ? a.query.dims[rank - 3] / a.key.dims[rank - 3]
                  : 1;
    ref_tensor outer = a.out;
    outer.rank--;
    air_split(ref_numel(&outer), task, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        attend(&a, i / rows, i % rows);
}
