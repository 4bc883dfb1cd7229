/* kernels_index.c: ops that read or write whole slices at indices. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

/* ---- index.Tensor, index_put --------------------------------------------- */

/* `self` as seen through its index tensors: a place for each element of their
 * common shape, and at each place a slice over the axes without index. */
typedef struct {
    int n;                          /* index tensors */
    ref_tensor index[AIR_MAX_RANK]; /* expanded to `places`, axes merged */
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

/* The expanded tensor with as few axes as say the same. */
static ref_tensor
merged(const ref_tensor *t)
{
    ref_tensor m = {.data = t->data, .dtype = t->dtype, .rank = 1};
    m.dims[0] = 1;
    for (int i = 0; i < t->rank; i++) {
        const int last = m.rank - 1;
        if (t->dims[i] == 1)
            continue;
        if (m.dims[last] == 1 ||
            m.strides[last] == t->strides[i] * t->dims[i]) {
            m.dims[last] *= t->dims[i];
            m.strides[last] = t->strides[i];
        } else {
            push_axis(&m, t, i);
        }
    }
    return m;
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
        t = ref_expand(&t, &p.places);
        p.index[p.n] = merged(&t);
        p.size[p.n] = self.dims[i];
        p.stride[p.n++] = self.strides[i];
    }
    return p;
}

/* ---- offsets of places --------------------------------------------------- */

/* An index tensor has few axes of its own among those of the places: it is
 * walked in runs, along which it is at even steps or stays where it is. */

#define OUT_OF_RANGE INT64_MIN
enum { BLOCK = 1024 }; /* places whose offsets are found together */

static inline void
add_offset(const index_plan *p, int k, int64_t at, const air_task *task,
           int64_t *offset)
{
    if (*offset == OUT_OF_RANGE || !ref_wrap(&at, p->size[k], task))
        *offset = OUT_OF_RANGE;
    else
        *offset += at * p->stride[k];
}

/* The same for n indices side by side, where all of these, and all before them,
 * are in range: vector code. False: nothing was added. */
static inline bool
add_all(const index_plan *p, int k, const char *src, int64_t n,
        int64_t *offsets)
{
    const uint64_t size = (uint64_t)p->size[k], stride = (uint64_t)p->stride[k];
    uint64_t wrong = 0, at;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&at, src + i * (int64_t)sizeof at, sizeof at);
        wrong |= at + size >= 2 * size;
    }
    for (int64_t i = 0; i < n && !wrong; i++) {
        memcpy(&at, src + i * (int64_t)sizeof at, sizeof at);
        at += (int64_t)at < 0 ? size : 0;
        offsets[i] = (int64_t)((uint64_t)offsets[i] + at * stride);
    }
    return !wrong;
}

/* One index for n places. */
static inline bool
add_same(const index_plan *p, int k, const char *src, int64_t n, bool whole,
         const air_task *task, int64_t *offsets)
{
    int64_t all = 0;
    add_offset(p, k, ref_get_int(p->index[k].dtype, src), task, &all);
    if (whole && all != OUT_OF_RANGE) {
        for (int64_t i = 0; i < n; i++)
            offsets[i] += all;
        return true;
    }
    for (int64_t i = 0; i < n; i++)
        offsets[i] = all == OUT_OF_RANGE || offsets[i] == OUT_OF_RANGE
                         ? OUT_OF_RANGE
                         : offsets[i] + all;
    return false;
}

/* The run of index tensor k at src. whole: all offsets so far are in range;
 * gives whether they are then. */
static inline bool
add_run(const index_plan *p, int k, const char *src, int64_t step, int64_t n,
        bool whole, const air_task *task, int64_t *offsets)
{
    const int dtype = p->index[k].dtype;
    if (step == 0)
        return add_same(p, k, src, n, whole, task, offsets);
    if (whole && dtype == AIR_I64 && step == (int64_t)sizeof(int64_t) &&
        add_all(p, k, src, n, offsets))
        return true;
    for (int64_t i = 0; i < n; i++) {
        add_offset(p, k, ref_get_int(dtype, src + i * step), task, &offsets[i]);
        whole = whole && offsets[i] != OUT_OF_RANGE;
    }
    return whole;
}

/* The next axis outwards of t; one of size 1 where there is none. */
static void
pop_axis(ref_tensor *t, int64_t *size, int64_t *stride)
{
    const bool any = t->rank > 0;
    t->rank -= any;
    *size = any ? t->dims[t->rank] : 1;
    *stride = any ? t->strides[t->rank] : 0;
}

/* Adds what index tensor k says of places [begin, begin + n). */
static bool
add_offsets(const index_plan *p, int k, int64_t begin, int64_t n, bool whole,
            const air_task *task, int64_t *offsets)
{
    ref_tensor outer = p->index[k];
    int64_t row, step, rows, jump, count;
    pop_axis(&outer, &row, &step);
    pop_axis(&outer, &rows, &jump);
    ref_walk w =
        ref_walk_begin(1, (const ref_tensor *[]){&outer}, begin / row / rows);
    int64_t r = begin / row % rows, at = begin % row;
    for (int64_t i = 0; i < n; i += count, at = 0) {
        count = n - i < row - at ? n - i : row - at;
        whole = add_run(p, k, w.p[0] + r * jump + at * step, step, count, whole,
                        task, offsets + i);
        if (++r == rows) {
            r = 0;
            ref_walk_next(&w);
        }
    }
    return whole;
}

/* Byte offsets in self of places [begin, begin + n); gives whether all of them
 * are in range. */
static bool
offsets_of(const index_plan *p, int64_t begin, int64_t n, const air_task *task,
           int64_t *offsets)
{
    bool whole = true;
    memset(offsets, 0, (size_t)n * sizeof *offsets);
    for (int k = 0; k < p->n; k++)
        whole = add_offsets(p, k, begin, n, whole, task, offsets);
    return whole;
}

static inline int64_t
block_size(int64_t begin, int64_t end)
{
    return end - begin < BLOCK ? end - begin : BLOCK;
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
ref_index_put_size(const air_call *call, int threads)
{
    (void)threads;
    ref_tensor shape = common_shape(call);
    return is_trailing(call) ? (size_t)ref_numel(&shape) * sizeof(int64_t) : 0;
}

size_t
ref_index_size(const air_call *call, int threads)
{
    const air_arg *list = &call->args[1];
    const bool rows = list->count > 0 && list->t[0].dtype == AIR_DTYPE_NONE;
    return rows ? ref_index_put_size(call, threads) : 0;
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

/* Offset in self of each place, by all threads. */
static const int64_t *
all_offsets(const index_plan *p, const air_task *task)
{
    int64_t *offsets = task->workspace, begin, end;
    air_split(ref_numel(&p->places), task, &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK)
        offsets_of(p, i, block_size(i, end), task, offsets + i);
    task->barrier(task);
    return offsets;
}

/* dst[i * step] = src[offsets[i]]; bytes is a constant of each call. */
static inline void
pick(char *dst, int64_t step, const char *src, const int64_t *offsets,
     int64_t n, bool whole, size_t bytes)
{
    if (whole) {
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * step, src + offsets[i], bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (offsets[i] == OUT_OF_RANGE)
            memset(dst + i * step, 0, bytes);
        else
            memcpy(dst + i * step, src + offsets[i], bytes);
}

/* whole: all offsets are in range. */
static void
pick_row(char *dst, int64_t step, const char *src, const int64_t *offsets,
         int64_t n, bool whole, size_t bytes)
{
    switch (bytes) {
    case 1: pick(dst, step, src, offsets, n, whole, 1); break;
    case 2: pick(dst, step, src, offsets, n, whole, 2); break;
    case 4: pick(dst, step, src, offsets, n, whole, 4); break;
    case 8: pick(dst, step, src, offsets, n, whole, 8); break;
    case 12: pick(dst, step, src, offsets, n, whole, 12); break;
    case 16: pick(dst, step, src, offsets, n, whole, 16); break;
    default: pick(dst, step, src, offsets, n, whole, bytes); break;
    }
}

/* All axes are indexed: each place is read once, so nothing is kept. */
static void
pick_places(const index_plan *p, int64_t step, const air_task *task)
{
    int64_t offsets[BLOCK], begin, end;
    air_split(ref_numel(&p->places), task, &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = block_size(i, end);
        const bool whole = offsets_of(p, i, n, task, offsets);
        pick_row(p->outside.data + i * step, step, p->inside.data, offsets, n,
                 whole, ref_bytes(p->inside.dtype));
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
                 offsets + at, count, false, ref_bytes(p->inside.dtype));
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

static void
take_slices(const index_plan *p, int64_t begin, int64_t n,
            const int64_t *offsets, bool whole)
{
    const air_task alone = {.count = 1};
    ref_box box = ref_box_make(&p->outside, &p->inside);
    int64_t step;
    if (box.run > 0 && place_step(&p->places, &step)) {
        pick_row(p->outside.data + begin * step, step, p->inside.data, offsets,
                 n, whole, box.run);
        return;
    }
    ref_walk w = ref_walk_begin(1, (const ref_tensor *[]){&p->places}, begin);
    for (int64_t i = 0; i < n; i++, ref_walk_next(&w)) {
        ref_tensor slice = p->outside;
        slice.data = w.p[0];
        if (offsets[i] != OUT_OF_RANGE)
            ref_box_move_alone(&box, slice.data, p->inside.data + offsets[i]);
        else
            ref_fill(&slice, 0, &alone);
    }
}

/* index.Tensor(self, indices) */
void
ref_index(const air_call *call, const air_task *task)
{
    index_plan p = index_plan_make(call, task, ref_arg(call, 0, task),
                                   ref_out(call, 0, task));
    int64_t step;
    if (is_trailing(call) && place_step(&p.places, &step)) {
        if (p.inside.rank > 0)
            pick_rows(&p, step, task);
        else
            pick_places(&p, step, task);
        return;
    }
    int64_t offsets[BLOCK], begin, end;
    air_split(ref_numel(&p.places), task, &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = block_size(i, end);
        const bool whole = offsets_of(&p, i, n, task, offsets);
        take_slices(&p, i, n, offsets, whole);
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

static void
put_slices(const index_plan *p, int64_t begin, int64_t n,
           const int64_t *offsets, bool accumulate, const air_task *task)
{
    const ref_box box = ref_box_make(&p->inside, &p->outside);
    ref_walk w = ref_walk_begin(1, (const ref_tensor *[]){&p->places}, begin);
    int64_t step;
    const bool even = place_step(&p->places, &step);
    for (int64_t i = 0; i < n; i++) {
        const char *src = even ? p->outside.data + (begin + i) * step : w.p[0];
        if (!even)
            ref_walk_next(&w);
        if (offsets[i] == OUT_OF_RANGE ||
            (task->count > 1 && !ref_owns(offsets[i], task)))
            continue;
        if (accumulate)
            ref_box_add_alone(&box, p->inside.data + offsets[i], src);
        else
            ref_box_move_alone(&box, p->inside.data + offsets[i], src);
    }
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
    int64_t offsets[BLOCK];
    for (int64_t i = 0, end = ref_numel(&p.places); i < end; i += BLOCK) {
        const int64_t n = block_size(i, end);
        offsets_of(&p, i, n, task, offsets);
        put_slices(&p, i, n, offsets, accumulate, task);
    }
}
