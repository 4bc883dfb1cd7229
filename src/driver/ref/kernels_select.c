/* kernels_select.c: ops with one 1-d index along one axis; embedding. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* Element i of an index tensor of any rank. */
static int64_t
index_at(const ref_tensor *index, int64_t i)
{
    if (index->rank == 1 && index->dtype == AIR_I64) {
        int64_t at;
        memcpy(&at, index->data + i * index->strides[0], sizeof at);
        return at;
    }
    return ref_get_int(index->dtype, index->data + ref_offset(index, i));
}

/* The slice of t at `at` of an axis; of a scalar, itself. */
static ref_tensor
slice_at(const ref_tensor *t, int axis, int64_t at)
{
    ref_tensor out = *t;
    out.data += at * ref_stride(t, axis);
    return ref_drop(out, axis);
}

/* index_select(self, dim, index) */
void
ref_index_select(const air_call *call, const air_task *task)
{
    const air_task alone = {.count = 1};
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    if (self.rank > 1 && axis == self.rank - 1) { /* single elements */
        ref_tensor wide = ref_expand(&index, &out);
        ref_gather_along(&out, &self, &wide, axis, task);
        return;
    }
    ref_tensor to = slice_at(&out, axis, 0), from = slice_at(&self, axis, 0);
    ref_box box = ref_box_make(&to, &from);
    int64_t begin, end;
    air_split(ref_numel(&index), task, &begin, &end);
    const int64_t size = ref_dim(&self, axis), step = ref_stride(&self, axis);
    const int64_t to_step = ref_stride(&out, axis);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = index_at(&index, i);
        to.data = out.data + i * to_step;
        if (ref_inside(at, size, task))
            ref_box_move_alone(&box, to.data, self.data + at * step);
        else
            ref_fill(&to, 0, &alone);
    }
}

/* index_copy(self, dim, index, source): large slices are shared by the
 * threads, many small ones dealt out by the place they go to. */
void
ref_index_copy(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task), src = ref_arg(call, 3, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    ref_tensor to = slice_at(&out, axis, 0), from = slice_at(&src, axis, 0);
    ref_box box = ref_box_make(&to, &from);
    bool shared = box.rank >= 0 && box.total >= task->count;
    ref_start(&out, &self, task);
    for (int64_t i = 0, n = ref_numel(&index); i < n; i++) {
        int64_t at = index_at(&index, i);
        if (!ref_inside(at, ref_dim(&out, axis), task))
            continue;
        char *dst = out.data + at * ref_stride(&out, axis);
        const char *p = src.data + i * ref_stride(&src, axis);
        if (shared)
            ref_box_move(&box, dst, p, task);
        else if (ref_owns(at, task))
            ref_box_move_alone(&box, dst, p);
    }
}

/* *dst += alpha * *src, rounded twice as two ops would. */
static void
add_scaled(int dtype, char *dst, const char *src, double alpha)
{
    char scaled[8];
    if (ref_is_float(dtype))
        ref_put(dtype, scaled, alpha * ref_get(dtype, src));
    else
        ref_put_int(dtype, scaled,
                    (int64_t)((uint64_t)ref_to_int(alpha) *
                              (uint64_t)ref_get_int(dtype, src)));
    ref_add(dtype, dst, scaled);
}

/* *dst += alpha * *src, element by element. */
static void
add_slice(const ref_tensor *dst, const ref_tensor *src, double alpha)
{
    const ref_tensor *both[] = {dst, src};
    ref_walk w = ref_walk_begin(2, both, 0);
    for (int64_t left = ref_numel(dst); left > 0; left--) {
        add_scaled(dst->dtype, w.p[0], w.p[1], alpha);
        ref_walk_next(&w);
    }
}

/* index_add(self, dim, index, source, *, alpha): each place belongs to one
 * thread, which adds in order. */
void
ref_index_add(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task), src = ref_arg(call, 3, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    double alpha = ref_float(call, 4, 1);
    ref_tensor to = slice_at(&out, axis, 0), from = slice_at(&src, axis, 0);
    ref_box box = ref_box_make(&to, &from);
    const int64_t size = ref_dim(&out, axis), step = ref_stride(&out, axis);
    const int64_t src_step = ref_stride(&src, axis);
    ref_start(&out, &self, task);
    for (int64_t i = 0, n = ref_numel(&index); i < n; i++) {
        int64_t at = index_at(&index, i);
        if (!ref_inside(at, size, task) || !ref_owns(at, task))
            continue;
        to.data = out.data + at * step;
        from.data = src.data + i * src_step;
        if (alpha == 1.0)
            ref_box_add_alone(&box, to.data, from.data);
        else
            add_slice(&to, &from, alpha);
    }
}

/* index_fill(self, dim, index, value): a number, or a tensor of one element */
void
ref_index_fill(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 2, task), value = ref_arg(call, 3, task);
    int axis = ref_axis(ref_int(call, 1, 0), self.rank);
    ref_start(&out, &self, task);
    for (int64_t i = 0, n = ref_numel(&index); i < n; i++) {
        int64_t at = index_at(&index, i);
        if (!ref_wrap(&at, ref_dim(&out, axis), task))
            continue;
        ref_tensor dst = slice_at(&out, axis, at);
        if (value.data == NULL) {
            ref_fill(&dst, ref_float(call, 3, 0), task);
            continue;
        }
        ref_tensor wide = ref_expand(&value, &dst);
        ref_move(&dst, &wide, task);
    }
}

/* embedding(weight, indices, ...): rows of weight */
void
ref_embedding(const air_call *call, const air_task *task)
{
    const air_task alone = {.count = 1};
    ref_tensor out = ref_out(call, 0, task), weight = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 1, task), rows = out, row = out;
    rows.rank--; /* the places that rows go to */
    row.rank = 1;
    row.dims[0] = out.dims[out.rank - 1];
    row.strides[0] = out.strides[out.rank - 1];
    ref_tensor from = slice_at(&weight, 0, 0);
    ref_box box = ref_box_make(&row, &from);
    int64_t begin, end;
    air_split(ref_numel(&index), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = index_at(&index, i);
        row.data = out.data + ref_offset(&rows, i);
        if (ref_inside(at, weight.dims[0], task))
            ref_box_move_alone(&box, row.data,
                               weight.data + at * weight.strides[0]);
        else
            ref_fill(&row, 0, &alone);
    }
}

static int64_t
count_index(const ref_tensor *index, int64_t at)
{
    int64_t count = 0;
    for (int64_t i = 0, n = ref_numel(index); i < n; i++)
        count += index_at(index, i) == at;
    return count;
}

/* embedding_dense_backward(grad, indices, num_weights, padding_idx,
 * scale_grad_by_freq): each row of the result belongs to one thread. */
void
ref_embedding_dense_backward(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), grad = ref_arg(call, 0, task);
    ref_tensor index = ref_arg(call, 1, task), rows = grad;
    int64_t padding = ref_int(call, 3, -1), cols = out.dims[1];
    bool by_count = ref_int(call, 4, 0) != 0;
    int64_t step = grad.strides[grad.rank - 1];
    rows.rank--;
    ref_fill(&out, 0, task);
    task->barrier(task);
    for (int64_t i = 0, n = ref_numel(&index); i < n; i++) {
        int64_t at = index_at(&index, i);
        if (at == padding || !ref_inside(at, out.dims[0], task) ||
            !ref_owns(at, task))
            continue;
        double scale = by_count ? 1.0 / (double)count_index(&index, at) : 1.0;
        char *dst = out.data + at * out.strides[0];
        const char *src = grad.data + ref_offset(&rows, i);
        if (!by_count)
            ref_add_row(out.dtype, dst, out.strides[1], src, step, cols);
        for (int64_t c = 0; by_count && c < cols; c++)
            add_scaled(out.dtype, dst + c * out.strides[1], src + c * step,
                       scale);
    }
}
