/* kernels_index.c: ops that read or write whole slices at indices. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* ---- index.Tensor, index_put --------------------------------------------- */

/* `self` as seen through its index tensors: a place for each element of their
 * common shape, and at each place a slice over the axes without index. */
typedef struct {
    int n;                                            /* index tensors */
    ref_tensor index[AIR_MAX_RANK];                   /* expanded to `places` */
    int64_t size[AIR_MAX_RANK], stride[AIR_MAX_RANK]; /* of self's axis */
    ref_tensor places;          /* the indexed axes of the outside tensor */
    ref_tensor outside, inside; /* slices there and in self */
} index_plan;

/* Sizes of the index tensors, broadcast. */
static ref_tensor
common_shape(const air_call *call)
{
    const air_arg *list = &call->args[1];
    ref_tensor shape = {.rank = 0};
    for (int i = 0; i < list->count; i++)
        if (list->t[i].dtype != AIR_DTYPE_NONE && list->t[i].rank > shape.rank)
            shape.rank = list->t[i].rank;
    for (int k = 0; k < shape.rank; k++)
        shape.dims[k] = 1;
    for (int i = 0; i < list->count; i++) {
        const air_tensor *t = &list->t[i];
        for (int k = 0; t->dtype != AIR_DTYPE_NONE && k < t->rank; k++)
            if (t->dims[k] != 1)
                shape.dims[shape.rank - t->rank + k] = t->dims[k];
    }
    return shape;
}

/* Where the common shape lies in the outside tensor: at the first indexed axis
 * when they are neighbours, else in front. */
static int
place_axis(const air_call *call)
{
    int first = -1, last = -1, n = 0;
    for (int i = 0; i < call->args[1].count; i++) {
        if (call->args[1].t[i].dtype == AIR_DTYPE_NONE)
            continue;
        first = first < 0 ? i : first;
        last = i;
        n++;
    }
    return last - first + 1 == n ? first : 0;
}

static void
push_axis(ref_tensor *t, const ref_tensor *from, int axis)
{
    t->dims[t->rank] = from->dims[axis];
    t->strides[t->rank++] = from->strides[axis];
}

/* outside: the result of index, or the values of index_put, of that shape. */
static index_plan
index_plan_make(const air_call *call, const air_task *task, ref_tensor self,
                ref_tensor outside)
{
    int count = call->args[1].count;
    ref_tensor shape = common_shape(call);
    int at = place_axis(call);
    index_plan p = {.n = 0};
    p.places = p.outside =
        (ref_tensor){.data = outside.data, .dtype = outside.dtype};
    p.inside = (ref_tensor){.data = self.data, .dtype = self.dtype};
    for (int i = 0; i < outside.rank; i++)
        push_axis(i >= at && i < at + shape.rank ? &p.places : &p.outside,
                  &outside, i);
    for (int i = 0; i < self.rank; i++) {
        ref_tensor t = {.dtype = AIR_DTYPE_NONE};
        if (i < count)
            t = ref_open(&call->args[1].t[i], task);
        if (t.dtype == AIR_DTYPE_NONE) {
            push_axis(&p.inside, &self, i);
            continue;
        }
        p.index[p.n] = ref_expand(&t, &p.places);
        p.size[p.n] = self.dims[i];
        p.stride[p.n++] = self.strides[i];
    }
    return p;
}

/* Byte offset in self of place `i`; false: out of range. */
static bool
index_offset(const index_plan *p, int64_t i, const air_task *task, int64_t *out)
{
    *out = 0;
    for (int k = 0; k < p->n; k++) {
        const ref_tensor *t = &p->index[k];
        int64_t at = ref_get_int(t->dtype, t->data + ref_offset(t, i));
        if (!ref_wrap(&at, p->size[k], task))
            return false;
        *out += at * p->stride[k];
    }
    return true;
}

/* ---- the last axes are indexed ------------------------------------------- */

/* Slices are single elements then, far from each other (pixels of an image at
 * [:, :, y, x], or x[i, j]): it is done row by row of places, whose offsets are
 * found once. */

static bool
is_trailing(const air_call *call)
{
    const air_arg *list = &call->args[1];
    int first = 0;
    while (first < list->count && list->t[first].dtype == AIR_DTYPE_NONE)
        first++;
    for (int i = first; i < list->count; i++)
        if (list->t[i].dtype == AIR_DTYPE_NONE)
            return false;
    return list->count == call->args[0].t->rank;
}

size_t
ref_index_size(const air_call *call, int threads)
{
    (void)threads;
    ref_tensor shape = common_shape(call);
    return is_trailing(call) ? (size_t)ref_numel(&shape) * sizeof(int64_t) : 0;
}

/* Bytes between neighbouring places; false: not the same everywhere. */
static bool
place_step(const ref_tensor *places, int64_t *out)
{
    int last = places->rank - 1;
    *out = places->rank > 0 ? places->strides[last] : 0;
    for (int i = 0; i < last; i++)
        if (places->strides[i] != places->strides[i + 1] * places->dims[i + 1])
            return false;
    return true;
}

#define OUT_OF_RANGE (-1)

/* Adds what index tensor k says of places [begin, end). */
static void
add_offsets(const index_plan *p, int k, int64_t begin, int64_t end,
            const air_task *task, int64_t *offsets)
{
    const ref_tensor *t = &p->index[k];
    int64_t step;
    const bool even = t->dtype == AIR_I64 && place_step(t, &step);
    for (int64_t i = begin; i < end; i++) {
        int64_t at;
        if (even)
            memcpy(&at, t->data + i * step, sizeof at);
        else
            at = ref_get_int(t->dtype, t->data + ref_offset(t, i));
        if (offsets[i] == OUT_OF_RANGE || !ref_wrap(&at, p->size[k], task))
            offsets[i] = OUT_OF_RANGE;
        else
            offsets[i] += at * p->stride[k];
    }
}

/* Offset in self of each place, by all threads. */
static const int64_t *
all_offsets(const index_plan *p, const air_task *task)
{
    int64_t *offsets = task->workspace, begin, end;
    air_split(ref_numel(&p->places), task, &begin, &end);
    if (begin < end)
        memset(offsets + begin, 0, (size_t)(end - begin) * sizeof *offsets);
    for (int k = 0; k < p->n; k++)
        add_offsets(p, k, begin, end, task, offsets);
    task->barrier(task);
    return offsets;
}

/* dst[i * step] = src[offsets[i]]; bytes is a constant of each call. */
static inline void
pick(char *dst, int64_t step, const char *src, const int64_t *offsets,
     int64_t n, size_t bytes)
{
    for (int64_t i = 0; i < n; i++)
        if (offsets[i] == OUT_OF_RANGE)
            memset(dst + i * step, 0, bytes);
        else
            memcpy(dst + i * step, src + offsets[i], bytes);
}

static void
pick_row(char *dst, int64_t step, const char *src, const int64_t *offsets,
         int64_t n, size_t bytes)
{
    switch (bytes) {
    case 1: pick(dst, step, src, offsets, n, 1); break;
    case 2: pick(dst, step, src, offsets, n, 2); break;
    case 4: pick(dst, step, src, offsets, n, 4); break;
    default: pick(dst, step, src, offsets, n, 8); break;
    }
}

/* Elements of the result are shared out: parts of rows. */
static void
pick_rows(const index_plan *p, int64_t step, const air_task *task)
{
    const int64_t *offsets = all_offsets(p, task);
    int64_t n = ref_numel(&p->places), begin, end;
    air_split(ref_numel(&p->outside) * n, task, &begin, &end);
    while (begin < end) {
        int64_t row = begin / n, at = begin % n;
        int64_t count = end - begin < n - at ? end - begin : n - at;
        pick_row(p->outside.data + ref_offset(&p->outside, row) + at * step,
                 step, p->inside.data + ref_offset(&p->inside, row),
                 offsets + at, count, ref_bytes(p->inside.dtype));
        begin += count;
    }
}

/* Each row belongs to one thread, which takes the values in order. */
static void
put_rows(const index_plan *p, int64_t step, bool accumulate,
         const air_task *task)
{
    const int64_t *offsets = all_offsets(p, task);
    int64_t n = ref_numel(&p->places), begin, end;
    size_t bytes = ref_bytes(p->inside.dtype);
    air_split(ref_numel(&p->outside), task, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const char *src = p->outside.data + ref_offset(&p->outside, row);
        char *dst = p->inside.data + ref_offset(&p->inside, row);
        for (int64_t i = 0; i < n; i++) {
            if (offsets[i] == OUT_OF_RANGE)
                continue;
            if (accumulate)
                ref_add(p->inside.dtype, dst + offsets[i], src + i * step);
            else
                ref_copy(dst + offsets[i], src + i * step, bytes);
        }
    }
}

/* All axes are indexed: each place belongs to one thread. */
static void
put_places(const index_plan *p, int64_t step, bool accumulate,
           const air_task *task)
{
    const int64_t *offsets = all_offsets(p, task);
    const int64_t n = ref_numel(&p->places);
    const size_t bytes = ref_bytes(p->inside.dtype);
    const char *src = p->outside.data;
    for (int64_t i = 0; i < n; i++) {
        char *dst = p->inside.data + offsets[i];
        if (offsets[i] == OUT_OF_RANGE ||
            (task->count > 1 && !ref_owns(offsets[i], task)))
            continue;
        if (accumulate)
            ref_add(p->inside.dtype, dst, src + i * step);
        else
            ref_copy(dst, src + i * step, bytes);
    }
}

/* ---- any axes ------------------------------------------------------------ */

/* index.Tensor(self, indices) */
void
ref_index(const air_call *call, const air_task *task)
{
    index_plan p = index_plan_make(call, task, ref_arg(call, 0, task),
                                   ref_out(call, 0, task));
    int64_t step;
    if (is_trailing(call) && place_step(&p.places, &step)) {
        pick_rows(&p, step, task);
        return;
    }
    ref_box box = ref_box_make(&p.outside, &p.inside);
    int64_t begin, end, offset;
    air_split(ref_numel(&p.places), task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        ref_tensor slice = p.outside;
        slice.data += ref_offset(&p.places, i);
        const air_task alone = {.count = 1};
        if (index_offset(&p, i, task, &offset))
            ref_box_move_alone(&box, slice.data, p.inside.data + offset);
        else
            ref_fill(&slice, 0, &alone);
    }
}

/* The shape of index(self, indices). */
static ref_tensor
outside_shape(const air_call *call, const ref_tensor *self)
{
    ref_tensor places = common_shape(call), shape = {.rank = 0};
    int at = place_axis(call);
    for (int i = 0; i < self->rank; i++) {
        for (int k = 0; i == at && k < places.rank; k++)
            push_axis(&shape, &places, k);
        if (i >= call->args[1].count ||
            call->args[1].t[i].dtype == AIR_DTYPE_NONE)
            push_axis(&shape, self, i);
    }
    return shape;
}

/* index_put(self, indices, values, accumulate): each place in self belongs to
 * one thread, which takes the values in order. */
void
ref_index_put(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor values = ref_arg(call, 2, task);
    ref_tensor shape = outside_shape(call, &self);
    bool accumulate = ref_int(call, 3, 0) != 0;
    values = ref_expand(&values, &shape);
    index_plan p = index_plan_make(call, task, out, values);
    int64_t step;
    ref_start(&out, &self, task);
    if (is_trailing(call) && place_step(&p.places, &step)) {
        if (p.inside.rank > 0)
            put_rows(&p, step, accumulate, task);
        else
            put_places(&p, step, accumulate, task);
        return;
    }
    ref_box box = ref_box_make(&p.inside, &p.outside);
    for (int64_t i = 0, n = ref_numel(&p.places), offset; i < n; i++) {
        if (!index_offset(&p, i, task, &offset) || !ref_owns(offset, task))
            continue;
        const char *src = p.outside.data + ref_offset(&p.places, i);
        char *dst = p.inside.data + offset;
        if (accumulate)
            ref_box_add(&box, dst, src);
        else
            ref_box_move_alone(&box, dst, src);
    }
}
