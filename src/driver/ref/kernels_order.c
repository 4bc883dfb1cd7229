/* kernels_order.c: the k-th of a row, medians, the most frequent element. */
#include "driver/ref/kernels.h"
#include "driver/ref/order.h"
#include "driver/ref/walk.h"

static bool
comes_before(const ref_pair *a, const ref_pair *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

static void
swap(ref_pair *a, ref_pair *b)
{
    ref_pair p = *a;
    *a = *b;
    *b = p;
}

/* The middle one of three in the middle. */
static ref_pair
pivot_of(ref_pair *p, int64_t low, int64_t high)
{
    int64_t mid = low + (high - low) / 2;
    if (comes_before(&p[mid], &p[low]))
        swap(&p[mid], &p[low]);
    if (comes_before(&p[high], &p[low]))
        swap(&p[high], &p[low]);
    if (comes_before(&p[high], &p[mid]))
        swap(&p[high], &p[mid]);
    return p[mid];
}

/* The pair that sorting would bring to place k: of equal keys the one with the
 * lower index first. Pairs change places. */
static ref_pair
nth_pair(ref_pair *p, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        ref_pair pivot = pivot_of(p, low, high);
        int64_t i = low, j = high;
        while (i <= j) {
            for (; comes_before(&p[i], &pivot); i++)
                ;
            for (; comes_before(&pivot, &p[j]); j--)
                ;
            if (i <= j)
                swap(&p[i++], &p[j--]);
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return p[k];
}

/* ---- medians ------------------------------------------------------------- */

typedef enum { KTH, MEDIAN, NANMEDIAN, MODE } pick_how;

/* NaN is the last key: the first one of a row, or how many there are not. */
static int64_t
count_numbers(const ref_pair *p, int64_t n, int64_t *first_nan)
{
    int64_t numbers = 0;
    *first_nan = -1;
    for (int64_t i = 0; i < n; i++) {
        bool nan = p[i].key == REF_KEY_NAN;
        numbers += !nan;
        if (nan && *first_nan < 0)
            *first_nan = p[i].index;
    }
    return numbers;
}

/* Of two middle ones the lower. A NaN is the median of its row, but where they
 * are left out and there are others. */
static int64_t
median_of(ref_pair *p, int64_t n, bool floats, bool skip_nan)
{
    int64_t nan = -1, numbers = floats ? count_numbers(p, n, &nan) : n;
    if (nan >= 0 && (!skip_nan || numbers == 0))
        return nan;
    return nth_pair(p, n, (numbers - 1) / 2).index;
}

/* The smallest of the most frequent; its last place. */
static int64_t
mode_of(const ref_pair *sorted, int64_t n)
{
    int64_t best = 0, most = 0, run = 0;
    for (int64_t i = 0; i < n; i++) {
        run = i > 0 && sorted[i].key == sorted[i - 1].key ? run + 1 : 1;
        if (run > most) {
            most = run;
            best = i;
        }
    }
    return sorted[best].index;
}

static int64_t
pick(pick_how how, ref_pair *p, int64_t n, bool floats, int64_t k)
{
    switch (how) {
    case KTH: return nth_pair(p, n, k - 1).index;
    case MODE: return mode_of(ref_order_sort(p, p + n, n), n);
    default: return median_of(p, n, floats, how == NANMEDIAN);
    }
}

/* ---- along an axis ------------------------------------------------------- */

static size_t
row_bytes(const air_call *call, int axis_arg)
{
    const air_tensor *self = call->args[0].t;
    int axis = ref_axis(ref_int(call, axis_arg, -1), self->rank);
    int64_t n = self->rank == 0 ? 1 : self->dims[axis];
    return (size_t)n * 2 * sizeof(ref_pair);
}

/* The result without the axis, whether it was kept or not. */
static ref_tensor
without_axis(ref_tensor out, const ref_tensor *self, int axis)
{
    return out.rank == self->rank ? ref_drop(out, axis) : out;
}

static void
pick_along(const air_call *call, const air_task *task, pick_how how,
           int axis_arg, int64_t k)
{
    ref_tensor values = ref_out(call, 0, task), at = ref_out(call, 1, task);
    ref_tensor self = ref_arg(call, 0, task);
    int axis = ref_axis(ref_int(call, axis_arg, -1), self.rank);
    ref_tensor from = ref_drop(self, axis);
    ref_tensor to = without_axis(values, &self, axis);
    ref_tensor index = without_axis(at, &self, axis);
    const ref_tensor *all[] = {&from, &to, &index};
    int64_t n = ref_dim(&self, axis), stride = ref_stride(&self, axis);
    int64_t begin, end;
    ref_pair *pairs = (void *)((char *)task->workspace +
                               (size_t)task->id * row_bytes(call, axis_arg));
    air_split(ref_numel(&from), task, &begin, &end);
    if (begin == end)
        return;
    if (k < 1 || k > n) {
        air_raise(task, k, n);
        return;
    }
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t row = begin; row < end; row++, ref_walk_next(&w)) {
        ref_order_read(pairs, self.dtype, w.p[0], stride, n, false);
        int64_t found = pick(how, pairs, n, ref_is_float(self.dtype), k);
        ref_copy(w.p[1], w.p[0] + found * stride, ref_bytes(self.dtype));
        ref_put_int(at.dtype, w.p[2], found);
    }
}

size_t
ref_kthvalue_size(const air_call *call, int threads)
{
    return row_bytes(call, 2) * (size_t)threads;
}

/* kthvalue(self, k, dim, keepdim) */
void
ref_kthvalue(const air_call *call, const air_task *task)
{
    pick_along(call, task, KTH, 2, ref_int(call, 1, 1));
}

size_t
ref_pick_size(const air_call *call, int threads)
{
    return row_bytes(call, 1) * (size_t)threads;
}

/* median.dim(self, dim, keepdim) */
void
ref_median_dim(const air_call *call, const air_task *task)
{
    pick_along(call, task, MEDIAN, 1, 1);
}

/* nanmedian.dim(self, dim, keepdim) */
void
ref_nanmedian_dim(const air_call *call, const air_task *task)
{
    pick_along(call, task, NANMEDIAN, 1, 1);
}

/* mode(self, dim, keepdim) */
void
ref_mode(const air_call *call, const air_task *task)
{
    pick_along(call, task, MODE, 1, 1);
}

/* ---- of all elements ----------------------------------------------------- */

size_t
ref_median_size(const air_call *call, int threads)
{
    const air_tensor *self = call->args[0].t;
    size_t n = 1;
    (void)threads;
    for (int i = 0; i < self->rank; i++)
        n *= (size_t)self->dims[i];
    return n * sizeof(ref_pair);
}

static void
median_of_all(const air_call *call, const air_task *task, bool skip_nan)
{
    ref_tensor self = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    ref_pair *pairs = task->workspace;
    int64_t n = ref_numel(&self), begin, end;
    const ref_tensor *one[] = {&self};
    air_split(n, task, &begin, &end);
    if (begin < end) {
        ref_walk w = ref_walk_begin(1, one, begin);
        for (int64_t i = begin; i < end; i++, ref_walk_next(&w))
            pairs[i] = (ref_pair){ref_order_key(self.dtype, w.p[0]), i};
    }
    task->barrier(task);
    if (task->id != 0)
        return;
    if (n == 0) {
        ref_put(out.dtype, out.data, ref_is_float(out.dtype) ? NAN : 0);
        return;
    }
    int64_t found = median_of(pairs, n, ref_is_float(self.dtype), skip_nan);
    ref_copy(out.data, self.data + ref_offset(&self, found),
             ref_bytes(self.dtype));
}

/* median(self) */
void
ref_median(const air_call *call, const air_task *task)
{
    median_of_all(call, task, false);
}

/* nanmedian(self) */
void
ref_nanmedian(const air_call *call, const air_task *task)
{
    median_of_all(call, task, true);
}
