/* kernels_contract.c: matrix products, one element at a time in double: what
 * fast kernels are compared with. */
#include "driver/groups.h"
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"

/* The last two dims of t, at data. */
static ref_tensor
last_dims(const ref_tensor *t, char *data)
{
    ref_tensor m = {.data = data, .dtype = t->dtype, .rank = 2};
    for (int k = 0; k < 2; k++) {
        m.dims[k] = t->dims[t->rank - 2 + k];
        m.strides[k] = t->strides[t->rank - 2 + k];
    }
    return m;
}

/* One matrix of a batch; broadcast over the batch. */
static ref_tensor
matrix(const ref_tensor *t, const ref_tensor *out, int64_t batch)
{
    ref_tensor wide = *t, outer = *out;
    outer.rank -= 2;
    wide.rank -= 2;
    ref_tensor spread = ref_expand(&wide, &outer);
    return last_dims(t, t->data + ref_offset(&spread, batch));
}

static const char *
entry(const ref_tensor *m, int64_t i, int64_t j)
{
    return m->data + i * m->strides[0] + j * m->strides[1];
}

/* The sum over places begin .. end - 1 of the depth. */
static double
part(const ref_tensor *a, const ref_tensor *b, int64_t i, int64_t j,
     int64_t begin, int64_t end)
{
    double sum = 0;
    for (int64_t k = begin; k < end; k++)
        sum += ref_get(a->dtype, entry(a, i, k)) *
               ref_get(b->dtype, entry(b, k, j));
    return sum;
}

static double
dot(const ref_tensor *a, const ref_tensor *b, int64_t i, int64_t j)
{
    return part(a, b, i, j, 0, a->dims[1]);
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

/* ---- groups of rows ------------------------------------------------------ */

/* Which group a row is in, and none: -1. */
static int64_t
group_of(const air_tensor *offs, const air_task *task, int64_t row,
         int64_t rows)
{
    int64_t end = 0;
    for (int64_t i = 0; i < offs->dims[0]; i++) {
        end = driver_group_end(offs, task, i, end, rows);
        if (row < end)
            return i;
    }
    return -1;
}

/* out[r, q] of a [m, k], b [groups, k, n]: groups of rows */
static double
grouped_row(const ref_tensor *a, const ref_tensor *b, int64_t group, int64_t r,
            int64_t q)
{
    ref_tensor m = last_dims(b, b->data + group * b->strides[0]);
    return dot(a, &m, r, q);
}

/* out[group, r, q] of a [m, k], b [k, n]: groups of the depth */
static double
grouped_depth(const ref_tensor *a, const ref_tensor *b, const air_tensor *offs,
              const air_task *task, int64_t group, int64_t r, int64_t q)
{
    int64_t begin = 0, end = 0;
    for (int64_t i = 0; i <= group; i++) {
        begin = end;
        end = driver_group_end(offs, task, i, begin, a->dims[1]);
    }
    return part(a, b, r, q, begin, end);
}

/* _grouped_mm(a, b, offs, bias, out_dtype): of floats, the last two absent */
void
ref_grouped_mm(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), a = ref_arg(call, 0, task);
    ref_tensor b = ref_arg(call, 1, task);
    const air_tensor *offs = call->args[2].t;
    int64_t begin, end, rows = a.dims[0];
    air_split(ref_numel(&out), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = out.dims[out.rank - 1], q = i % n, r = i / n % rows;
        double v = 0;
        if (b.rank == 2) {
            v = grouped_depth(&a, &b, offs, task, i / n / rows, r, q);
        } else {
            int64_t group = group_of(offs, task, r, rows);
            v = group < 0 ? 0 : grouped_row(&a, &b, group, r, q);
        }
        ref_put(out.dtype, out.data + ref_offset(&out, i), v);
    }
}

/* ---- weights of few bits ------------------------------------------------- */

/* The number at (n, k): an i8, or a nibble of a u8 less 8, the lower first. */
static double
stored(const ref_tensor *w, int64_t bits, int64_t n, int64_t k)
{
    int64_t at = bits == 8 ? k : k / 2;
    int64_t q = ref_get_int(w->dtype, entry(w, n, at));
    return (double)(bits == 8 ? q : (q >> k % 2 * 4 & 15) - 8);
}

/* Of the group of (n, k), or `otherwise`. */
static double
factor(const ref_tensor *t, int64_t n, int64_t k, int64_t depth,
       double otherwise)
{
    if (t->data == NULL)
        return otherwise;
    return ref_get(t->dtype, entry(t, n, k / (depth / t->dims[1])));
}

/* quantised_mm(a, weight, scale, zero, bias, bits, rounded): nothing is. */
void
ref_quantised_mm(const air_call *call, const air_task *task)
{
    ref_tensor y = ref_out(call, 0, task), a = ref_arg(call, 0, task);
    ref_tensor w = ref_arg(call, 1, task), scale = ref_arg(call, 2, task);
    ref_tensor zero = ref_arg(call, 3, task), bias = ref_arg(call, 4, task);
    int64_t bits = ref_int(call, 5, 8), begin, end, depth = a.dims[1];
    air_split(ref_numel(&y), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t m = i / y.dims[1], n = i % y.dims[1];
        double sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum += ref_get(a.dtype, entry(&a, m, k)) *
                   (stored(&w, bits, n, k) * factor(&scale, n, k, depth, 1) +
                    factor(&zero, n, k, depth, 0));
        if (bias.data != NULL)
            sum += ref_get(bias.dtype, bias.data + n * bias.strides[0]);
        ref_put(y.dtype, y.data + ref_offset(&y, i), sum);
    }
}
