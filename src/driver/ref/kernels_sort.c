/* kernels_sort.c: sort and topk. A stable radix sort of a row's pairs is a
 * stable sort of the row. */
#include "driver/ref/kernels.h"
#include "driver/ref/order.h"
#include "driver/ref/walk.h"

typedef ref_pair pair;

#define FEW 32 /* sorted by insertion */

uint64_t
ref_order_key(int dtype, const char *p)
{
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t u;
    double x;
    if (!ref_is_float(dtype))
        return (uint64_t)ref_get_int(dtype, p) ^ sign;
    x = ref_get(dtype, p);
    if (isnan(x))
        return REF_KEY_NAN;
    x += 0.0; /* -0 becomes 0 */
    memcpy(&u, &x, sizeof u);
    return (u & sign) != 0 ? ~u : u | sign;
}

void
ref_order_read(pair *pairs, int dtype, const char *src, int64_t stride,
               int64_t n, bool descending)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = ref_order_key(dtype, src + i * stride);
        pairs[i] = (pair){descending ? ~key : key, i};
    }
}

static void
sort_few(pair *pairs, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        pair p = pairs[i];
        int64_t k = i;
        for (; k > 0 && pairs[k - 1].key > p.key; k--)
            pairs[k] = pairs[k - 1];
        pairs[k] = p;
    }
}

/* One pass by byte `shift`; false: all the same, nothing moved. */
static bool
radix_pass(pair *to, const pair *from, int64_t n, int shift)
{
    int64_t count[256] = {0}, at = 0;
    for (int64_t i = 0; i < n; i++)
        count[from[i].key >> shift & 255]++;
    if (count[from[0].key >> shift & 255] == n)
        return false;
    for (int d = 0; d < 256; d++) {
        int64_t c = count[d];
        count[d] = at;
        at += c;
    }
    for (int64_t i = 0; i < n; i++)
        to[count[from[i].key >> shift & 255]++] = from[i];
    return true;
}

pair *
ref_order_sort(pair *pairs, pair *spare, int64_t n)
{
    if (n <= FEW) {
        sort_few(pairs, n);
        return pairs;
    }
    for (int shift = 0; shift < 64; shift += 8)
        if (radix_pass(spare, pairs, n, shift)) {
            pair *swap = pairs;
            pairs = spare;
            spare = swap;
        }
    return pairs;
}

/* Of a max-heap by (key, index): the worst of the chosen is on top. */
static bool
is_worse(const pair *a, const pair *b)
{
    return a->key > b->key || (a->key == b->key && a->index > b->index);
}

static void
sift(pair *heap, int64_t n, int64_t at)
{
    pair p = heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_worse(&heap[child + 1], &heap[child]))
            child++;
        if (!is_worse(&heap[child], &p))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = p;
}

/* The k least pairs come first, in any order. */
static void
choose(pair *pairs, int64_t n, int64_t k)
{
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sift(pairs, k, i);
    for (int64_t i = k; i < n; i++)
        if (is_worse(&pairs[0], &pairs[i])) {
            pairs[0] = pairs[i];
            sift(pairs, k, 0);
        }
}

/* Chosen pairs come by index again, so that equal keys keep their order. */
static void
sort_chosen(pair *pairs, pair *spare, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        spare[i] = (pair){(uint64_t)pairs[i].index, (int64_t)pairs[i].key};
    const pair *by = ref_order_sort(spare, spare + k, k);
    for (int64_t i = 0; i < k; i++)
        pairs[i] = (pair){(uint64_t)by[i].index, (int64_t)by[i].key};
}

static size_t
row_bytes(const air_call *call, int axis_arg)
{
    const air_tensor *self = call->args[0].t;
    int axis = ref_axis(ref_int(call, axis_arg, -1), self->rank);
    int64_t n = self->rank == 0 ? 1 : self->dims[axis];
    return (size_t)n * 3 * sizeof(pair);
}

/* The first k of each row in order; k < 0: all of them. */
static void
sort_rows(const air_call *call, const air_task *task, int axis_arg,
          bool descending, int64_t k)
{
    ref_tensor values = ref_out(call, 0, task), at = ref_out(call, 1, task);
    ref_tensor self = ref_arg(call, 0, task);
    int axis = ref_axis(ref_int(call, axis_arg, -1), self.rank);
    int64_t n = ref_dim(&self, axis), begin, end;
    size_t bytes = ref_bytes(self.dtype);
    pair *pairs = (void *)((char *)task->workspace +
                           (size_t)task->id * row_bytes(call, axis_arg));
    ref_tensor to = ref_drop(values, axis), from = ref_drop(self, axis);
    ref_tensor index = ref_drop(at, axis);
    const ref_tensor *all[] = {&to, &from, &index};
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t row = begin; row < end; row++, ref_walk_next(&w)) {
        const pair *sorted = pairs;
        int64_t count = k < 0 ? n : k;
        ref_order_read(pairs, self.dtype, w.p[1], ref_stride(&self, axis), n,
                       descending);
        if (count < n && count > 0) {
            choose(pairs, n, count);
            sort_chosen(pairs, pairs + n, count);
        }
        sorted = ref_order_sort(pairs, pairs + n, count);
        for (int64_t i = 0; i < count; i++) {
            const char *src =
                w.p[1] + sorted[i].index * ref_stride(&self, axis);
            ref_copy(w.p[0] + i * ref_stride(&values, axis), src, bytes);
            ref_put_int(at.dtype, w.p[2] + i * ref_stride(&at, axis),
                        sorted[i].index);
        }
    }
}

size_t
ref_sort_size(const air_call *call, int threads)
{
    return row_bytes(call, 1) * (size_t)threads;
}

/* sort(self, dim, descending): stable, as sort.stable */
void
ref_sort(const air_call *call, const air_task *task)
{
    sort_rows(call, task, 1, ref_int(call, 2, 0) != 0, -1);
}

size_t
ref_sort_stable_size(const air_call *call, int threads)
{
    return row_bytes(call, 2) * (size_t)threads;
}

/* sort.stable(self, *, stable, dim, descending) */
void
ref_sort_stable(const air_call *call, const air_task *task)
{
    sort_rows(call, task, 2, ref_int(call, 3, 0) != 0, -1);
}

size_t
ref_topk_size(const air_call *call, int threads)
{
    return row_bytes(call, 2) * (size_t)threads;
}

/* topk(self, k, dim, largest, sorted): always sorted; among equals the first */
void
ref_topk(const air_call *call, const air_task *task)
{
    sort_rows(call, task, 2, ref_int(call, 3, 1) != 0, ref_int(call, 1, 1));
}
