/* kernels_move.c: ops that put elements somewhere else, none computed. */
#include "driver/ref/kernels.h"
#include "driver/ref/move.h"
#include "driver/ref/walk.h"

static int64_t
clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* slice_scatter(self, src, dim, start, end, step) */
void
ref_slice_scatter(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 1, task);
    int axis = ref_axis(ref_int(call, 2, 0), out.rank);
    int64_t size = out.dims[axis], step = ref_int(call, 5, 1);
    int64_t begin = ref_int(call, 3, 0);
    begin = clamp(begin < 0 ? begin + size : begin, 0, size);
    ref_tensor dst = ref_slice(out, axis, begin, src.dims[axis], step);
    ref_start(&out, &self, task);
    ref_move(&dst, &src, task);
}

/* select_scatter(self, src, dim, index) */
void
ref_select_scatter(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 1, task);
    int axis = ref_axis(ref_int(call, 2, 0), out.rank);
    int64_t index = ref_int(call, 3, 0);
    ref_start(&out, &self, task);
    if (!ref_wrap(&index, out.dims[axis], task))
        return;
    ref_tensor dst = ref_drop(ref_slice(out, axis, index, 1, 1), axis);
    ref_move(&dst, &src, task);
}

/* diagonal_scatter(self, src, offset, dim1, dim2): the diagonal is src's last
 * axis. */
void
ref_diagonal_scatter(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 1, task), dst = out;
    int64_t offset = ref_int(call, 2, 0);
    int a = ref_axis(ref_int(call, 3, 0), out.rank);
    int b = ref_axis(ref_int(call, 4, 1), out.rank);
    int64_t step = out.strides[a] + out.strides[b];
    dst.data += offset > 0 ? offset * out.strides[b] : -offset * out.strides[a];
    dst = ref_drop(dst, a > b ? a : b);
    dst = ref_drop(dst, a > b ? b : a);
    dst.dims[dst.rank] = src.dims[src.rank - 1];
    dst.strides[dst.rank++] = step;
    ref_start(&out, &self, task);
    ref_move(&dst, &src, task);
}

/* as_strided_scatter(self, src, size, stride, storage_offset): the memory of
 * `out` is taken to begin where its storage begins. */
void
ref_as_strided_scatter(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    ref_tensor src = ref_arg(call, 1, task), dst = src;
    int64_t bytes = (int64_t)ref_bytes(out.dtype);
    dst.dtype = out.dtype;
    dst.data = out.data + ref_int(call, 4, 0) * bytes;
    for (int i = 0; i < src.rank; i++)
        dst.strides[i] = ref_ints(call, 3, i, 0) * bytes;
    ref_start(&out, &self, task);
    ref_move(&dst, &src, task);
}

/* flip(self, dims) */
void
ref_flip(const air_call *call, const air_task *task)
{
    ref_tensor out = ref_out(call, 0, task), src = ref_arg(call, 0, task);
    for (int i = 0; i < ref_count(call, 1) && out.rank > 0; i++) {
        int axis = ref_axis(call->args[1].ints[i], out.rank);
        if (src.dims[axis] > 0)
            src = ref_slice(src, axis, src.dims[axis] - 1, src.dims[axis], -1);
    }
    ref_move(&out, &src, task);
}

/* constant_pad_nd(self, pad, value): pad is (before, after) from the last axis
 * on; negative crops. The borders are filled axis by axis. */
void
ref_constant_pad_nd(const air_call *call, const air_task *task)
{
    ref_tensor dst = ref_out(call, 0, task), src = ref_arg(call, 0, task);
    double value = ref_float(call, 2, 0);
    for (int k = 0; k < ref_count(call, 1) / 2; k++) {
        int axis = dst.rank - 1 - k;
        int64_t before = call->args[1].ints[2 * k];
        int64_t after = call->args[1].ints[2 * k + 1];
        int64_t size = dst.dims[axis];
        int64_t low = clamp(before, 0, size);
        int64_t high = clamp(size - (after > 0 ? after : 0), low, size);
        ref_tensor edge = ref_slice(dst, axis, 0, low, 1);
        ref_fill(&edge, value, task);
        edge = ref_slice(dst, axis, high, size - high, 1);
        ref_fill(&edge, value, task);
        dst = ref_slice(dst, axis, low, high - low, 1);
        src = ref_slice(src, axis, before < 0 ? -before : 0, high - low, 1);
    }
    ref_move(&dst, &src, task);
}

/* Which element of an axis of n lies at position i outside of it. */
static int64_t
mirror(int64_t i, int64_t n, bool reflect)
{
    if (!reflect)
        return clamp(i, 0, n - 1);
    i = i < 0 ? -i : i;
    return i >= n ? 2 * (n - 1) - i : i;
}

typedef struct {
    ref_tensor out, src;
    int64_t before[AIR_MAX_RANK]; /* elements in front of those of src */
    bool padded[AIR_MAX_RANK], reflect;
} pad_axes;

/* Axis `axis` becomes the last one. */
static void
turn_tensor(ref_tensor *t, int axis)
{
    const int64_t dim = t->dims[axis], stride = t->strides[axis];
    for (int i = axis; i < t->rank - 1; i++) {
        t->dims[i] = t->dims[i + 1];
        t->strides[i] = t->strides[i + 1];
    }
    t->dims[t->rank - 1] = dim;
    t->strides[t->rank - 1] = stride;
}

/* Rows are those of elements side by side in the result, whichever axis it is
 * (channels, where they are last). */
static void
open_axes(const air_call *call, const air_task *task, bool reflect, pad_axes *p)
{
    *p = (pad_axes){.out = ref_out(call, 0, task),
                    .src = ref_arg(call, 0, task),
                    .reflect = reflect};
    const int64_t bytes = (int64_t)ref_bytes(p->out.dtype);
    const int last = p->out.rank - 1;
    int axis = last;
    while (axis > 0 &&
           (p->out.dims[axis] == 1 || p->out.strides[axis] != bytes))
        axis--;
    if (p->out.dims[axis] == 1 || ref_count(call, 1) / 2 > last - axis)
        axis = last;
    for (int k = 0; k < ref_count(call, 1) / 2; k++) {
        const int at = last - k - (last - k > axis);
        p->padded[at] = true;
        p->before[at] = call->args[1].ints[2 * k];
    }
    turn_tensor(&p->out, axis);
    turn_tensor(&p->src, axis);
}

/* Where element `at` of an axis of the result lies, and where it comes from. */
static void
padded_at(const pad_axes *p, int axis, int64_t at, int64_t *to, int64_t *from)
{
    *to += at * p->out.strides[axis];
    if (p->padded[axis])
        at = mirror(at - p->before[axis], p->src.dims[axis], p->reflect);
    *from += at * p->src.strides[axis];
}

/* The same of a plane of the two last axes, by an index of the others. */
static void
padded_plane(const pad_axes *p, int64_t plane, int64_t *to, int64_t *from)
{
    *to = *from = 0;
    for (int axis = p->out.rank - 3; axis >= 0; axis--) {
        int64_t at = plane % p->out.dims[axis];
        plane /= p->out.dims[axis];
        padded_at(p, axis, at, to, from);
    }
}

#define EDGE(T)                     \
    for (int64_t i = 0; i < n; i++) \
    memcpy(to + i * to_step, from + i * from_step, sizeof(T))
/* The few elements beside a row. */
static void
edge(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
     size_t bytes)
{
    switch (bytes) {
    case 1: EDGE(uint8_t); break;
    case 2: EDGE(uint16_t); break;
    case 4: EDGE(uint32_t); break;
    default: EDGE(uint64_t); break;
    }
}
#undef EDGE

/* What a dense row of the result is made of, in elements: `low` and `high` at
 * its edges, which step through the source from `left` and `right` on, and
 * `kept` from `first` on. */
typedef struct {
    int64_t low, kept, high, first, left, right, step;
} padding;

/* A call of memcpy takes longer than to move a few vectors. */
static inline void
keep_dense(char *to, const char *from, int64_t n)
{
    char v[REF_VECTOR];
    if (n < REF_VECTOR || n > 8 * REF_VECTOR) {
        memcpy(to, from, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i += REF_VECTOR) {
        const int64_t at = i + REF_VECTOR <= n ? i : n - REF_VECTOR;
        memcpy(v, from + at, sizeof v);
        memcpy(to + at, v, sizeof v);
    }
}

#define PAD_ROW(T)                                                           \
    static void pad_row_##T(char *row, const char *source, const padding *p) \
    {                                                                        \
        T *to = (void *)row;                                                 \
        const T *from = (const void *)source;                                \
        T *end = to + p->low + p->kept;                                      \
        for (int64_t i = 0; i < p->low; i++)                                 \
            to[i] = from[p->left + i * p->step];                             \
        keep_dense((char *)(to + p->low), (const char *)(from + p->first),   \
                   p->kept *(int64_t)sizeof(T));                             \
        for (int64_t i = 0; i < p->high; i++)                                \
            end[i] = from[p->right + i * p->step];                           \
    }
PAD_ROW(uint8_t)
PAD_ROW(uint16_t)
PAD_ROW(uint32_t)
PAD_ROW(uint64_t)
#undef PAD_ROW

static void
pad_row(char *to, const char *from, const padding *p, size_t bytes)
{
    switch (bytes) {
    case 1: pad_row_uint8_t(to, from, p); break;
    case 2: pad_row_uint16_t(to, from, p); break;
    case 4: pad_row_uint32_t(to, from, p); break;
    default: pad_row_uint64_t(to, from, p); break;
    }
}

static void
pad_edges(const air_call *call, const air_task *task, bool reflect)
{
    pad_axes p;
    open_axes(call, task, reflect, &p);
    const ref_tensor out = p.out, src = p.src;
    const int last = out.rank - 1;
    const int64_t cols = out.dims[last], size = src.dims[last];
    const int64_t height = last > 0 ? out.dims[last - 1] : 1;
    const int64_t before = p.before[last];
    const size_t bytes = ref_bytes(out.dtype);
    const int64_t low = clamp(before, 0, cols);
    const int64_t high = clamp(before + size, low, cols);
    const int64_t step = out.strides[last], from_step = src.strides[last];
    const bool dense = step == (int64_t)bytes && from_step == (int64_t)bytes;
    const int64_t left = mirror(-before, size, reflect);
    const int64_t right = mirror(high - before, size, reflect);
    ref_tensor rows = ref_drop(out, last);
    ref_tensor to = ref_slice(out, last, low, high - low, 1);
    ref_tensor from = ref_slice(src, last, low - before, high - low, 1);
    to.strides[0] = to.strides[last];
    from.strides[0] = from.strides[last];
    to.dims[0] = from.dims[0] = high - low;
    to.rank = from.rank = 1;
    ref_box inside = ref_box_make(&to, &from);
    const padding parts = {low,  high - low, cols - high,     low - before,
                           left, right,      reflect ? -1 : 0};
    int64_t begin, end, plane_to = 0, plane_from = 0;
    air_split(ref_numel(&rows), task, &begin, &end);
    int64_t y = begin % height - 1; /* dividing takes as long as a short row */
    for (int64_t r = begin; r < end && cols > 0; r++) {
        y = y + 1 < height ? y + 1 : 0;
        if (r == begin || y == 0)
            padded_plane(&p, r / height, &plane_to, &plane_from);
        int64_t d = plane_to, s = plane_from;
        if (last > 0)
            padded_at(&p, last - 1, y, &d, &s);
        if (dense) {
            pad_row(out.data + d, src.data + s, &parts, bytes);
            continue;
        }
        ref_box_move_alone(&inside, to.data + d, from.data + s);
        edge(out.data + d, step, src.data + s + left * from_step,
             reflect ? -from_step : 0, low, bytes);
        edge(out.data + d + high * step, step, src.data + s + right * from_step,
             reflect ? -from_step : 0, cols - high, bytes);
    }
}

/* reflection_padNd(self, padding) */
void
ref_reflection_pad(const air_call *call, const air_task *task)
{
    pad_edges(call, task, true);
}

/* replication_padNd(self, padding) */
void
ref_replication_pad(const air_call *call, const air_task *task)
{
    pad_edges(call, task, false);
}

/* One row: its elements from `begin` to `end`, zeros next to them. */
static void
keep_part(const ref_tensor *to, const ref_tensor *from, int64_t begin,
          int64_t end)
{
    const int64_t bytes = (int64_t)ref_bytes(to->dtype), n = to->dims[0];
    const air_task alone = {.count = 1};
    if (to->strides[0] == bytes && from->strides[0] == bytes) {
        memset(to->data, 0, (size_t)(begin * bytes));
        memcpy(to->data + begin * bytes, from->data + begin * bytes,
               (size_t)((end - begin) * bytes));
        memset(to->data + end * bytes, 0, (size_t)((n - end) * bytes));
        return;
    }
    ref_tensor low = ref_slice(*to, 0, 0, begin, 1);
    ref_tensor kept = ref_slice(*to, 0, begin, end - begin, 1);
    ref_tensor high = ref_slice(*to, 0, end, n - end, 1);
    ref_tensor src = ref_slice(*from, 0, begin, end - begin, 1);
    ref_fill(&low, 0, &alone);
    ref_move(&kept, &src, &alone);
    ref_fill(&high, 0, &alone);
}

/* Keeps the columns of each row on one side of the diagonal. */
static void
triangle(const air_call *call, const air_task *task, bool upper)
{
    ref_tensor out = ref_out(call, 0, task), src = ref_arg(call, 0, task);
    int64_t diagonal = ref_int(call, 1, 0), begin, end;
    int last = out.rank - 1;
    int64_t cols = out.dims[last], rows = out.dims[last - 1];
    ref_tensor to_rows = ref_drop(out, last), from_rows = ref_drop(src, last);
    ref_tensor to = {.dtype = out.dtype, .rank = 1, .dims = {cols}}, from = to;
    to.strides[0] = out.strides[last];
    from.strides[0] = src.strides[last];
    air_split(ref_numel(&to_rows), task, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        int64_t cut = clamp(r % rows + diagonal + !upper, 0, cols);
        to.data = out.data + ref_offset(&to_rows, r);
        from.data = src.data + ref_offset(&from_rows, r);
        keep_part(&to, &from, upper ? cut : 0, upper ? cols : cut);
    }
}

/* tril(self, diagonal) */
void
ref_tril(const air_call *call, const air_task *task)
{
    triangle(call, task, false);
}

/* triu(self, diagonal) */
void
ref_triu(const air_call *call, const air_task *task)
{
    triangle(call, task, true);
}
