/* kernels_bag.c: embedding_bag and its gradients. Threads share the bags, the
 * rows of the gradient, and columns. */
#include "driver/ref/bag.h"
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

static void
put_index(const ref_tensor *t, int64_t i, int64_t value)
{
    ref_put_int(t->dtype, t->data + i * t->strides[0], value);
}

void
ref_bag_note(const air_call *call, const air_task *task, const ref_bags *b)
{
    ref_tensor bag_of = ref_out(call, 1, task), sizes = ref_out(call, 2, task);
    ref_tensor most = ref_out(call, 3, task);
    const int64_t last = sizes.dims[0] - b->bags; /* of no bag: one or none */
    int64_t first, stop, begin, end;

    air_split(b->bags, task, &first, &stop);
    for (int64_t bag = first; bag < stop; bag++) {
        int64_t count = 0;
        if (b->mode != REF_BAG_SUM || bag_of.dims[0] > 0)
            ref_bag_range(b, bag, task, &begin, &end);
        else
            begin = end = 0; /* nothing to note */
        for (int64_t i = begin; i < end; i++)
            count += ref_bag_int(&b->index, i) != b->padding;
        /* Indices of no bag, which only wrong offsets leave, get the nearest.
         */
        begin = bag == 0 ? 0 : begin;
        end = bag + 1 == b->bags ? bag_of.dims[0] : end;
        for (int64_t i = begin; i < end && i < bag_of.dims[0]; i++)
            put_index(&bag_of, i, bag);
        count = b->mode == REF_BAG_SUM ? 0 : count;
        put_index(&sizes, bag, count);
        if (b->mode != REF_BAG_MAX)
            put_index(&most, bag, count);
    }
    for (int64_t i = b->bags; task->id == 0 && i < b->bags + last; i++) {
        put_index(&sizes, i, 0);
        if (b->mode != REF_BAG_MAX && i < most.dims[0])
            put_index(&most, i, 0);
    }
}

/* ---- forward ------------------------------------------------------------- */

static double
element(const ref_tensor *t, int64_t row, int64_t col)
{
    return ref_get(t->dtype,
                   t->data + row * t->strides[0] + col * t->strides[1]);
}

/* One element of a bag's sum or average. */
static double
sum_column(const ref_bags *b, int64_t begin, int64_t end, int64_t col,
           const air_task *task)
{
    int64_t count = 0;
    double sum = 0;

    for (int64_t i = begin; i < end; i++) {
        int64_t row = ref_bag_row(b, i, task);
        if (row < 0)
            continue;
        sum += ref_bag_factor(b, i) * element(&b->table, row, col);
        count++;
    }
    return b->mode == REF_BAG_MEAN && count > 0 ? sum / (double)count : sum;
}

/* The first of the largest, and its row; 0 and 0 of an empty bag. */
static double
most_column(const ref_bags *b, int64_t begin, int64_t end, int64_t col,
            const air_task *task, int64_t *best)
{
    double most = 0;
    bool empty = true;

    *best = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = ref_bag_row(b, i, task);
        double v = row < 0 ? 0 : element(&b->table, row, col);
        if (row < 0 || !(empty || v > most))
            continue;
        empty = false;
        most = v;
        *best = row;
    }
    return most;
}

void
ref_embedding_bag(const air_call *call, const air_task *task)
{
    const ref_bags b = ref_bags_open(call, task);
    ref_tensor out = ref_out(call, 0, task), most = ref_out(call, 3, task);
    int64_t first, stop, begin, end, best;

    ref_bag_note(call, task, &b);
    air_split(b.bags, task, &first, &stop);
    for (int64_t bag = first; bag < stop; bag++) {
        ref_bag_range(&b, bag, task, &begin, &end);
        for (int64_t col = 0; col < out.dims[1]; col++) {
            char *dst = out.data + bag * out.strides[0] + col * out.strides[1];
            if (b.mode != REF_BAG_MAX) {
                ref_put(out.dtype, dst, sum_column(&b, begin, end, col, task));
                continue;
            }
            ref_put(out.dtype, dst,
                    most_column(&b, begin, end, col, task, &best));
            ref_put_int(most.dtype,
                        most.data + bag * most.strides[0] +
                            col * most.strides[1],
                        best);
        }
    }
}

/* ---- gradient of the table ----------------------------------------------- */

size_t
ref_embedding_bag_backward_size(const air_call *call, int threads)
{
    (void)threads;
    return ref_int(call, 6, 0) != 0
               ? (size_t)call->outs[0].dims[0] * sizeof(int32_t)
               : 0;
}

/* How often each row is picked, counted by its thread; NULL: nobody asks. */
static const int32_t *
count_rows(const air_call *call, const air_task *task, const ref_tensor *index,
           int64_t rows)
{
    int32_t *count = task->workspace;

    if (ref_int(call, 6, 0) == 0)
        return NULL;
    if (task->id == 0) {
        memset(count, 0, (size_t)rows * sizeof *count);
        for (int64_t i = 0; i < index->dims[0]; i++) {
            int64_t at = ref_bag_int(index, i);
            if (at >= 0 && at < rows)
                count[at]++;
        }
    }
    task->barrier(task);
    return count;
}

static void
add_times(int dtype, char *dst, int64_t ds, const char *src, int64_t ss,
          int64_t n, double factor)
{
    if (factor == 1) {
        ref_add_row(dtype, dst, ds, src, ss, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        ref_put(dtype, dst + i * ds,
                ref_get(dtype, dst + i * ds) +
                    factor * ref_get(dtype, src + i * ss));
}

/* (grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
 * scale_grad_by_freq, mode, per_sample_weights, padding_idx) */
static void
add_bags(const air_call *call, const air_task *task, const ref_tensor *out,
         const ref_tensor *grad)
{
    ref_tensor index = ref_arg(call, 1, task), bag_of = ref_arg(call, 2, task);
    ref_tensor sizes = ref_arg(call, 3, task), factor = ref_arg(call, 8, task);
    const bool mean = ref_int(call, 7, 0) == REF_BAG_MEAN;
    const int64_t padding = ref_bag_padding(call, 9), rows = out->dims[0];
    const int32_t *count = count_rows(call, task, &index, rows);

    for (int64_t i = 0; i < index.dims[0]; i++) {
        int64_t at = ref_bag_int(&index, i), bag = ref_bag_int(&bag_of, i);
        double times = 1;
        if (at == padding || !ref_inside(at, rows, task) ||
            !ref_inside(bag, grad->dims[0], task) || !ref_owns(at, task))
            continue;
        if (factor.data != NULL)
            times = ref_get(factor.dtype, factor.data + i * factor.strides[0]);
        if (count != NULL)
            times /= count[at];
        if (mean)
            times /= (double)ref_bag_int(&sizes, bag);
        add_times(out->dtype, out->data + at * out->strides[0], out->strides[1],
                  grad->data + bag * grad->strides[0], grad->strides[1],
                  out->dims[1], times);
    }
}

/* Of the largest: each element of the gradient goes where it came from. */
static void
add_most(const air_call *call, const air_task *task, const ref_tensor *out,
         const ref_tensor *grad)
{
    ref_tensor sizes = ref_arg(call, 3, task), most = ref_arg(call, 4, task);
    int64_t begin, end;

    air_split(out->dims[1], task, &begin, &end);
    for (int64_t bag = 0; bag < grad->dims[0]; bag++)
        for (int64_t col = begin; col < end; col++) {
            int64_t at =
                ref_get_int(most.dtype, most.data + bag * most.strides[0] +
                                            col * most.strides[1]);
            if (ref_bag_int(&sizes, bag) == 0 ||
                !ref_inside(at, out->dims[0], task))
                continue;
            ref_add(out->dtype,
                    out->data + at * out->strides[0] + col * out->strides[1],
                    grad->data + bag * grad->strides[0] +
                        col * grad->strides[1]);
        }
}

void
ref_embedding_bag_backward(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), grad = ref_arg(call, 0, task);

    ref_fill(&out, 0, task);
    task->barrier(task);
    if (ref_int(call, 7, 0) == REF_BAG_MAX)
        add_most(call, task, &out, &grad);
    else
        add_bags(call, task, &out, &grad);
}

/* ---- gradient of the factors --------------------------------------------- */

/* The bag of index i; without a list of them (result 1), by its offsets. */
static int64_t
bag_at(const ref_tensor *bag_of, const ref_tensor *start, int64_t i)
{
    int64_t low = 0, high = start->dims[0];

    if (i < bag_of->dims[0])
        return ref_bag_int(bag_of, i);
    while (low < high) { /* the last bag that starts at i or before */
        int64_t middle = low + (high - low) / 2;
        if (ref_bag_int(start, middle) <= i)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

/* (grad, a, indices, offsets, offset2bag, mode, padding_idx) */
void
ref_embedding_bag_factors(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), grad = ref_arg(call, 0, task);
    ref_tensor table = ref_arg(call, 1, task), index = ref_arg(call, 2, task);
    ref_tensor start = ref_arg(call, 3, task), bag_of = ref_arg(call, 4, task);
    const int64_t padding = ref_bag_padding(call, 6);
    int64_t begin, end;

    air_split(index.dims[0], task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = ref_bag_int(&index, i), bag = bag_at(&bag_of, &start, i);
        double sum = 0;
        if (at != padding && ref_inside(at, table.dims[0], task) &&
            ref_inside(bag, grad.dims[0], task))
            for (int64_t col = 0; col < table.dims[1]; col++)
                sum += element(&grad, bag, col) * element(&table, at, col);
        ref_put(out.dtype, out.data + i * out.strides[0], sum);
    }
}
