/* bag.h: the calls of embedding_bag: rows of a table, picked by indices, that
 * each bag of indices adds up (or averages, or takes the largest of). */
#ifndef REF_BAG_H
#define REF_BAG_H

#include "driver/ref/args.h"

enum { REF_BAG_SUM, REF_BAG_MEAN, REF_BAG_MAX };

/* (a, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
 * include_last_offset, padding_idx) */
typedef struct {
    ref_tensor table, index, start, factor; /* factor: no data, all 1 */
    int mode;
    int64_t bags, padding; /* padding: an index that does not count */
} ref_bags;

/* Argument i of the call, the index that does not count; below 0: none. */
static inline int64_t
ref_bag_padding(const air_call *call, int i)
{
    const int64_t at = ref_int(call, i, -1);

    return at < 0 ? INT64_MIN : at;
}

static inline int64_t
ref_bag_int(const ref_tensor *t, int64_t i)
{
    return ref_get_int(t->dtype, t->data + i * t->strides[0]);
}

static inline ref_bags
ref_bags_open(const air_call *call, const air_task *task)
{
    return (ref_bags){.table = ref_arg(call, 0, task),
                      .index = ref_arg(call, 1, task),
                      .start = ref_arg(call, 2, task),
                      .factor = ref_arg(call, 6, task),
                      .mode = (int)ref_int(call, 4, 0),
                      .bags = call->outs[0].dims[0],
                      .padding = ref_bag_padding(call, 8)};
}

/* Indices [*begin, *end) are those of a bag; offsets outside of the indices,
 * those that go down, and a first one that is not 0 are raised. */
static inline void
ref_bag_range(const ref_bags *b, int64_t bag, const air_task *task,
              int64_t *begin, int64_t *end)
{
    const int64_t n = b->index.dims[0];

    *begin = ref_bag_int(&b->start, bag);
    *end = bag + 1 < b->start.dims[0] ? ref_bag_int(&b->start, bag + 1) : n;
    if (!ref_inside(*begin, bag == 0 ? 1 : n + 1, task) ||
        !ref_inside(*end, n + 1, task) ||
        !ref_inside(*end - *begin, n + 1, task))
        *begin = *end = 0;
}

/* The row of index i; -1: it does not count, or was raised. */
static inline int64_t
ref_bag_row(const ref_bags *b, int64_t i, const air_task *task)
{
    int64_t at = ref_bag_int(&b->index, i);

    if (at == b->padding || !ref_inside(at, b->table.dims[0], task))
        return -1;
    return at;
}

static inline double
ref_bag_factor(const ref_bags *b, int64_t i)
{
    return b->factor.data == NULL
               ? 1
               : ref_get(b->factor.dtype,
                         b->factor.data + i * b->factor.strides[0]);
}

/* Results 1 to 3: the bag of each index, how many count in each bag where
 * gradients want it, and of the largest elements, their rows (by the caller) or
 * the sizes again. */
void ref_bag_note(const air_call *call, const air_task *task,
                  const ref_bags *b);

#endif
