/* kernels_arg.c: where the largest or smallest element is. The first of equals
 * wins, and the first NaN wins over everything. */
#include "driver/ref/kernels.h"
#include "driver/ref/walk.h"

static bool
beats(int dtype, const char *x, const char *best, bool max)
{
    if (ref_is_float(dtype)) {
        double a = ref_get(dtype, x), b = ref_get(dtype, best);
        return !isnan(b) && (isnan(a) || (max ? a > b : a < b));
    }
    int64_t a = ref_get_int(dtype, x), b = ref_get_int(dtype, best);
    return max ? a > b : a < b;
}

/* The same on dense f32. */
static int64_t
best_of_floats(const char *row, int64_t n, bool max)
{
    int64_t at = 0;
    float best, x;
    memcpy(&best, row, sizeof best);
    for (int64_t i = 1; i < n && !isnan(best); i++) {
        memcpy(&x, row + i * (int64_t)sizeof x, sizeof x);
        if ((max ? x > best : x < best) || isnan(x)) {
            best = x;
            at = i;
        }
    }
    return at;
}

static int64_t
best_of_row(const ref_tensor *self, int axis, const char *row, bool max)
{
    int64_t best = 0, stride = ref_stride(self, axis);
    if (self->dtype == AIR_F32 && stride == (int64_t)sizeof(float))
        return best_of_floats(row, self->dims[axis], max);
    for (int64_t i = 1; i < ref_dim(self, axis); i++)
        if (beats(self->dtype, row + i * stride, row + best * stride, max))
            best = i;
    return best;
}

/* The result without the axis, whether it was kept or not. */
static ref_tensor
without_axis(ref_tensor out, const ref_tensor *self, int axis)
{
    return out.rank == self->rank ? ref_drop(out, axis) : out;
}

/* values may be absent. */
static void
along_axis(ref_tensor self, int axis, ref_tensor values, ref_tensor index,
           bool max, const air_task *task)
{
    ref_tensor from = ref_drop(self, axis);
    ref_tensor at = without_axis(index, &self, axis);
    ref_tensor to =
        values.data == NULL ? at : without_axis(values, &self, axis);
    const ref_tensor *all[] = {&from, &at, &to};
    int64_t begin, end;
    air_split(ref_numel(&from), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t i = begin; i < end; i++, ref_walk_next(&w)) {
        int64_t best = best_of_row(&self, axis, w.p[0], max);
        ref_put_int(index.dtype, w.p[1], best);
        if (values.data != NULL)
            ref_copy(w.p[2], w.p[0] + best * ref_stride(&self, axis),
                     ref_bytes(self.dtype));
    }
}

/* Over all elements, in row-major order. */
static void
over_all(const ref_tensor *self, const ref_tensor *index, bool max)
{
    const ref_tensor *one[] = {self};
    ref_walk w = ref_walk_begin(1, one, 0);
    const char *best = w.p[0];
    int64_t where = 0, n = ref_numel(self);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&w))
        if (beats(self->dtype, w.p[0], best, max)) {
            best = w.p[0];
            where = i;
        }
    ref_put_int(index->dtype, index->data, where);
}

static void
arg_best(const air_call *call, const air_task *task, bool max)
{
    ref_tensor self = ref_arg(call, 0, task), out = ref_out(call, 0, task);
    if (call->args[1].kind != AIR_ARG_NONE)
        along_axis(self, ref_axis(ref_int(call, 1, 0), self.rank),
                   (ref_tensor){.data = NULL}, out, max, task);
    else if (task->id == 0)
        over_all(&self, &out, max);
}

/* argmax(self, dim, keepdim) */
void
ref_argmax(const air_call *call, const air_task *task)
{
    arg_best(call, task, true);
}

/* argmin(self, dim, keepdim) */
void
ref_argmin(const air_call *call, const air_task *task)
{
    arg_best(call, task, false);
}

static void
dim_best(const air_call *call, const air_task *task, bool max)
{
    ref_tensor self = ref_arg(call, 0, task);
    along_axis(self, ref_axis(ref_int(call, 1, 0), self.rank),
               ref_out(call, 0, task), ref_out(call, 1, task), max, task);
}

/* max.dim(self, dim, keepdim) */
void
ref_max_dim(const air_call *call, const air_task *task)
{
    dim_best(call, task, true);
}

/* min.dim(self, dim, keepdim) */
void
ref_min_dim(const air_call *call, const air_task *task)
{
    dim_best(call, task, false);
}
