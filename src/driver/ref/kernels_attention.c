/* kernels_attention.c: attention and its gradients in double, a row of
 * weights at a time: what the fast kernels are compared with.
 *
 * Tensors are [.., heads, rows, width]; fewer heads of keys and values serve
 * groups of query heads. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

typedef struct {
    ref_tensor query, key, value, mask;
    bool causal;
    double scale;
    int64_t group; /* query heads per key head */
} attention;

/* What one query head sees. */
typedef struct {
    const attention *of;
    ref_tensor q, k, v, mask; /* matrices */
} head;

/* at: positions of mask, is_causal and scale in the call. */
static attention
read_attention(const air_call *call, const air_task *task, int first,
               const int at[3])
{
    attention a = {.query = ref_arg(call, first, task),
                   .key = ref_arg(call, first + 1, task),
                   .value = ref_arg(call, first + 2, task),
                   .mask = ref_arg(call, at[0], task),
                   .causal = ref_int(call, at[1], 0) != 0,
                   .group = 1};
    int rank = a.query.rank;
    a.scale = ref_float(call, at[2], 1 / sqrt((double)a.query.dims[rank - 1]));
    if (rank > 2 && a.key.dims[rank - 3] > 0)
        a.group = a.query.dims[rank - 3] / a.key.dims[rank - 3];
    return a;
}

/* Matrix `index` of a stack of them. */
static ref_tensor
matrix(const ref_tensor *t, int64_t index)
{
    ref_tensor outer = *t, m = {.dtype = t->dtype, .rank = 2};
    outer.rank -= 2;
    m.data = t->data + ref_offset(&outer, index);
    for (int k = 0; k < 2; k++) {
        m.dims[k] = t->dims[t->rank - 2 + k];
        m.strides[k] = t->strides[t->rank - 2 + k];
    }
    return m;
}

static int64_t
count_of_matrices(const ref_tensor *t)
{
    ref_tensor outer = *t;
    outer.rank -= 2;
    return ref_numel(&outer);
}

static head
head_at(const attention *a, int64_t index)
{
    head h = {.of = a,
              .q = matrix(&a->query, index),
              .k = matrix(&a->key, index / a->group),
              .v = matrix(&a->value, index / a->group)};
    if (a->mask.data != NULL) {
        ref_tensor full = a->query;
        full.dims[full.rank - 1] = h.k.dims[0];
        ref_tensor wide = ref_expand(&a->mask, &full);
        for (int i = 0; i < full.rank; i++)
            wide.dims[i] = full.dims[i];
        h.mask = matrix(&wide, index);
    }
    return h;
}

static char *
entry(const ref_tensor *m, int64_t i, int64_t j)
{
    return m->data + i * m->strides[0] + j * m->strides[1];
}

static double
get(const ref_tensor *m, int64_t i, int64_t j)
{
    return ref_get(m->dtype, entry(m, i, j));
}

/* Row i of a times row j of b. */
static double
dot(const ref_tensor *a, int64_t i, const ref_tensor *b, int64_t j)
{
    double sum = 0;
    for (int64_t e = 0; e < a->dims[1]; e++)
        sum += get(a, i, e) * get(b, j, e);
    return sum;
}

/* A mask of bool keeps or drops, one of floats is added. */
static double
score(const head *h, int64_t i, int64_t j)
{
    if (h->of->causal && j > i)
        return -(double)INFINITY;
    double sum = dot(&h->q, i, &h->k, j) * h->of->scale;
    if (h->mask.data == NULL)
        return sum;
    double m = get(&h->mask, i, j);
    if (h->mask.dtype != AIR_BOOL)
        return sum + m;
    return m != 0 ? sum : -(double)INFINITY;
}

/* w = the weights of row i, which sum to 1, or to 0 where it sees no key.
 * The logarithm of the sum of e^score; 0 where it sees no key. */
static double
weigh(const head *h, int64_t i, double *w)
{
    int64_t keys = h->k.dims[0];
    double high = -(double)INFINITY, total = 0;
    for (int64_t j = 0; j < keys; j++) {
        w[j] = score(h, i, j);
        high = isnan(w[j]) || w[j] > high ? w[j] : high;
    }
    for (int64_t j = 0; j < keys; j++) {
        w[j] = isinf(high) && high < 0 ? 0 : exp(w[j] - high);
        total += w[j];
    }
    for (int64_t j = 0; j < keys; j++)
        w[j] = total == 0 ? 0 : w[j] / total;
    return total == 0 ? 0 : high + log(total);
}

static double *
thread_memory(const air_task *task, int64_t doubles)
{
    return (double *)task->workspace + doubles * task->id;
}

static int64_t
rows_of(const air_call *call, int arg)
{
    const air_tensor *t = call->args[arg].t;
    return t->dims[t->rank - 2];
}

/* ---- forward ------------------------------------------------------------- */

size_t
ref_sdpa_size(const air_call *call, int threads)
{
    return (size_t)(rows_of(call, 1) * threads) * sizeof(double);
}

static void
attend(const head *h, int64_t i, double *w, const ref_tensor *out,
       const ref_tensor *sums)
{
    double log_sum = weigh(h, i, w);
    for (int64_t e = 0; e < h->v.dims[1]; e++) {
        double sum = 0;
        for (int64_t j = 0; j < h->v.dims[0]; j++)
            sum += w[j] * get(&h->v, j, e);
        ref_put(out->dtype, entry(out, i, e), sum);
    }
    if (sums->data != NULL)
        ref_put(sums->dtype, entry(sums, i, 0), log_sum);
}

/* scaled_dot_product_attention(query, key, value, attn_mask, dropout_p,
 * is_causal, *, scale, enable_gqa) -> out, and for air::attention the
 * logarithms of the sums, [.., rows, 1]. A row that may look nowhere gives 0.
 */
void
ref_sdpa(const air_call *call, const air_task *task)
{
    attention a = read_attention(call, task, 0, (int[]){3, 5, 6});
    ref_tensor out = ref_out(call, 0, task), sums = ref_out(call, 1, task);
    int64_t rows = rows_of(call, 0), begin, end;
    double *w = thread_memory(task, rows_of(call, 1));
    air_split(count_of_matrices(&out) * rows, task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        head h = head_at(&a, i / rows);
        ref_tensor y = matrix(&out, i / rows), s = {.data = NULL};
        if (sums.data != NULL)
            s = matrix(&sums, i / rows);
        attend(&h, i % rows, w, &y, &s);
    }
}

/* ---- backward ------------------------------------------------------------ */

/* With p the weights, do the gradient of out, o the result:
 *     ds = p * (do . v - do . o)
 *     dq = scale * ds k,  dk = scale * ds^T q,  dv = p^T do */
typedef struct {
    attention a;
    ref_tensor grad, out, sums; /* sums: [.., heads, rows] */
    ref_tensor dq, dk, dv;
} gradients;

typedef struct {
    head h;
    ref_tensor grad, out;
    const char *sums; /* of the rows */
    int64_t sum_stride;
    int sum_dtype;
} head_gradients;

size_t
ref_sdpa_backward_size(const air_call *call, int threads)
{
    const air_tensor *k = call->args[2].t, *v = call->args[3].t;
    int64_t doubles = k->dims[k->rank - 1] + v->dims[v->rank - 1];
    return (size_t)(doubles * threads) * sizeof(double);
}

static head_gradients
head_gradients_at(const gradients *g, int64_t index)
{
    ref_tensor outer = g->sums;
    outer.rank--;
    return (head_gradients){
        .h = head_at(&g->a, index),
        .grad = matrix(&g->grad, index),
        .out = matrix(&g->out, index),
        .sums = g->sums.data + ref_offset(&outer, index),
        .sum_stride = g->sums.strides[g->sums.rank - 1],
        .sum_dtype = g->sums.dtype,
    };
}

static double
weight_of(const head_gradients *g, int64_t i, int64_t j)
{
    return exp(score(&g->h, i, j) -
               ref_get(g->sum_dtype, g->sums + i * g->sum_stride));
}

/* ds of row i and key j, whose weight is p. */
static double
slope(const head_gradients *g, int64_t i, int64_t j, double p)
{
    return p == 0 ? 0
                  : p * (dot(&g->grad, i, &g->h.v, j) -
                         dot(&g->grad, i, &g->out, i));
}

static void
add_row(double *sum, double factor, const ref_tensor *m, int64_t row)
{
    for (int64_t e = 0; e < m->dims[1]; e++)
        sum[e] += factor * get(m, row, e);
}

static void
put_row(const ref_tensor *m, int64_t row, const double *v, double scale)
{
    for (int64_t e = 0; e < m->dims[1]; e++)
        ref_put(m->dtype, entry(m, row, e), v[e] * scale);
}

static void
query_gradient(const gradients *g, int64_t index, int64_t i, double *sum)
{
    head_gradients h = head_gradients_at(g, index);
    ref_tensor dq = matrix(&g->dq, index);
    memset(sum, 0, (size_t)dq.dims[1] * sizeof *sum);
    for (int64_t j = 0; j < h.h.k.dims[0]; j++)
        add_row(sum, slope(&h, i, j, weight_of(&h, i, j)), &h.h.k, j);
    put_row(&dq, i, sum, g->a.scale);
}

/* Of key and value j of head `index` of those. */
static void
key_gradient(const gradients *g, int64_t index, int64_t j, double *sum)
{
    ref_tensor dk = matrix(&g->dk, index), dv = matrix(&g->dv, index);
    double *value_sum = sum + dk.dims[1];
    memset(sum, 0, (size_t)(dk.dims[1] + dv.dims[1]) * sizeof *sum);
    for (int64_t n = 0; n < g->a.group; n++) {
        head_gradients h = head_gradients_at(g, index * g->a.group + n);
        for (int64_t i = 0; i < h.h.q.dims[0]; i++) {
            double p = weight_of(&h, i, j);
            add_row(sum, slope(&h, i, j, p), &h.h.q, i);
            add_row(value_sum, p, &h.grad, i);
        }
    }
    put_row(&dk, j, sum, g->a.scale);
    put_row(&dv, j, value_sum, 1);
}

/* _scaled_dot_product_flash_attention_for_cpu_backward(grad, query, key,
 * value, out, logsumexp, dropout_p, is_causal, *, attn_mask, scale)
 * -> gradients of query, key, value */
void
ref_sdpa_backward(const air_call *call, const air_task *task)
{
    gradients g = {.a = read_attention(call, task, 1, (int[]){8, 7, 9}),
                   .grad = ref_arg(call, 0, task),
                   .out = ref_arg(call, 4, task),
                   .sums = ref_arg(call, 5, task),
                   .dq = ref_out(call, 0, task),
                   .dk = ref_out(call, 1, task),
                   .dv = ref_out(call, 2, task)};
    int64_t rows = rows_of(call, 1), keys = rows_of(call, 2), begin, end;
    double *sum = thread_memory(task, g.dk.dims[g.dk.rank - 1] +
                                          g.dv.dims[g.dv.rank - 1]);
    air_split(count_of_matrices(&g.dq) * rows, task, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        query_gradient(&g, i / rows, i % rows, sum);
    air_split(count_of_matrices(&g.dk) * keys, task, &begin, &end);
    for (int64_t j = begin; j < end; j++)
        key_gradient(&g, j / keys, j % keys, sum);
}
