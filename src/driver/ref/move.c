#include "driver/ref/move.h"
#include "driver/ref/walk.h"

#define CHUNK 4096 /* elements that a thread moves at a time */
#define TILE  16   /* of a transposition: a cache line of each side */
#define PIECE 16   /* elements that stay together, at most */

/* ---- boxes --------------------------------------------------------------- */

static int64_t
magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

static void
axis_set(ref_box *b, int at, int64_t dim, int64_t ds, int64_t ss)
{
    b->dims[at] = dim;
    b->ds[at] = ds;
    b->ss[at] = ss;
}

static void
axis_shift(ref_box *b, int to, int from)
{
    axis_set(b, to, b->dims[from], b->ds[from], b->ss[from]);
}

static void
axis_add(ref_box *b, int64_t dim, int64_t ds, int64_t ss)
{
    int at = b->rank++;
    for (; at > 0 && magnitude(b->ds[at - 1]) < magnitude(ds); at--)
        axis_shift(b, at, at - 1);
    axis_set(b, at, dim, ds, ss);
}

static void
axes_merge(ref_box *b)
{
    int n = 0;
    for (int i = 1; i < b->rank; i++) {
        bool merge = b->ds[n] == b->ds[i] * b->dims[i] &&
                     b->ss[n] == b->ss[i] * b->dims[i];
        int64_t dim = merge ? b->dims[n] * b->dims[i] : b->dims[i];
        n += !merge;
        axis_set(b, n, dim, b->ds[i], b->ss[i]);
    }
    b->rank = n + 1;
}

/* An axis before `inner` along which what is read lies `bytes` apart comes next
 * to it: reading goes along another axis than writing. */
static bool
axis_to(ref_box *b, int inner, int64_t bytes)
{
    int at = inner - 1;
    if (inner < 1 || magnitude(b->ss[inner]) <= bytes)
        return false;
    while (at >= 0 && magnitude(b->ss[at]) != bytes)
        at--;
    if (at < 0)
        return false;
    int64_t dim = b->dims[at], ds = b->ds[at], ss = b->ss[at];
    for (; at < inner - 1; at++)
        axis_shift(b, at, at + 1);
    axis_set(b, at, dim, ds, ss);
    return true;
}

/* A few elements that stay together are turned around as one would be: windows
 * of weights whose channels change places. */
static bool
pieces_turn(ref_box *b)
{
    int last = b->rank - 1;
    int64_t size = b->dims[last] * b->bytes;
    return b->dims[last] <= PIECE && b->ds[last] == b->bytes &&
           magnitude(b->ss[last]) == b->bytes && b->dst_dtype == b->src_dtype &&
           axis_to(b, last - 1, size);
}

/* Two axes are walked in tiles where reading and writing go along different
 * ones. */
static void
units_make(ref_box *b)
{
    int last = b->rank - 1;
    bool turned = axis_to(b, last, b->bytes);
    bool pieces = !turned && pieces_turn(b);
    b->total = 1;
    for (int i = 0; i < b->rank; i++) {
        int64_t rows = CHUNK / b->dims[last];
        b->unit[i] = pieces         ? (i == last       ? PIECE
                                       : i >= last - 2 ? TILE
                                                       : 1)
                     : i < last - 1 ? 1
                     : turned       ? TILE
                     : i == last    ? CHUNK
                     : rows > 1     ? rows
                                    : 1;
        b->count[i] = (b->dims[i] + b->unit[i] - 1) / b->unit[i];
        b->total *= b->count[i];
    }
}

ref_box
ref_box_make(const ref_tensor *dst, const ref_tensor *src)
{
    ref_box b = {.bytes = (int)ref_bytes(dst->dtype),
                 .dst_dtype = dst->dtype,
                 .src_dtype = src->dtype};
    for (int i = 0; i < dst->rank; i++) {
        if (dst->dims[i] == 0) {
            b.rank = -1;
            return b;
        }
        if (dst->dims[i] != 1)
            axis_add(&b, dst->dims[i], dst->strides[i], src->strides[i]);
    }
    if (b.rank == 0)
        axis_add(&b, 1, b.bytes, b.bytes);
    axes_merge(&b);
    units_make(&b);
    if (b.rank == 1 && dst->dtype == src->dtype &&
        (b.dims[0] == 1 || (b.ds[0] == b.bytes && b.ss[0] == b.bytes)))
        b.run = (size_t)(b.dims[0] * b.bytes);
    return b;
}

/* ---- one row ------------------------------------------------------------- */

#define ROW(T)                                                              \
    static void row_##T(char *dst, int64_t ds, const char *src, int64_t ss, \
                        int64_t n)                                          \
    {                                                                       \
        T v;                                                                \
        memcpy(&v, src, sizeof v);                                          \
        if (ss == 0 && ds == sizeof v) {                                    \
            for (int64_t i = 0; i < n; i++)                                 \
                memcpy(dst + i * (int64_t)sizeof v, &v, sizeof v);          \
            return;                                                         \
        }                                                                   \
        for (int64_t i = 0; i < n; i++) {                                   \
            memcpy(&v, src + i * ss, sizeof v);                             \
            memcpy(dst + i * ds, &v, sizeof v);                             \
        }                                                                   \
    }
ROW(uint8_t)
ROW(uint16_t)
ROW(uint32_t)
ROW(uint64_t)

/* src: the first element read, the others lie before it. */
#define MIRROR(T)                                                             \
    static void mirror_##T(T *restrict dst, const T *restrict src, int64_t n) \
    {                                                                         \
        for (int64_t i = 0; i < n; i++)                                       \
            dst[i] = src[-i];                                                 \
    }
MIRROR(uint8_t)
MIRROR(uint16_t)
MIRROR(uint32_t)
MIRROR(uint64_t)

static void
row_mirror(const ref_box *b, char *dst, const char *src, int64_t n)
{
    switch (b->bytes) {
    case 1: mirror_uint8_t((void *)dst, (const void *)src, n); break;
    case 2: mirror_uint16_t((void *)dst, (const void *)src, n); break;
    case 4: mirror_uint32_t((void *)dst, (const void *)src, n); break;
    default: mirror_uint64_t((void *)dst, (const void *)src, n); break;
    }
}

static void
row_convert(const ref_box *b, char *dst, int64_t ds, const char *src,
            int64_t ss, int64_t n)
{
    if (b->dst_dtype == AIR_F32 && ss == 2 && ds == 4 &&
        ref_widen(b->src_dtype, (void *)dst, src, n))
        return;
    if (b->src_dtype == AIR_F32 && ss == 4 && ds == 2 &&
        ref_narrow(b->dst_dtype, dst, (const void *)src, n))
        return;
    for (int64_t i = 0; i < n; i++)
        ref_convert(b->dst_dtype, dst + i * ds, b->src_dtype, src + i * ss);
}

static void
row_move(const ref_box *b, char *dst, const char *src, int64_t n)
{
    int64_t ds = b->ds[b->rank - 1], ss = b->ss[b->rank - 1];
    if (b->dst_dtype != b->src_dtype)
        row_convert(b, dst, ds, src, ss, n);
    else if (ds == b->bytes && ss == b->bytes)
        memcpy(dst, src, (size_t)(n * b->bytes));
    else if (ds == b->bytes && ss == -b->bytes)
        row_mirror(b, dst, src, n);
    else if (b->bytes == 1)
        row_uint8_t(dst, ds, src, ss, n);
    else if (b->bytes == 2)
        row_uint16_t(dst, ds, src, ss, n);
    else if (b->bytes == 4)
        row_uint32_t(dst, ds, src, ss, n);
    else
        row_uint64_t(dst, ds, src, ss, n);
}

/* Rows of few elements that lie side by side. */
#define ROWS(T)                                                                \
    static void rows_##T(char *dst, int64_t dr, const char *src, int64_t sr,   \
                         int64_t rows, int64_t ss, int64_t n)                  \
    {                                                                          \
        for (int64_t r = 0; r < rows; r++, dst += dr, src += sr)               \
            for (int64_t i = 0; i < n; i++)                                    \
                memcpy(dst + i * (int64_t)sizeof(T), src + i * ss, sizeof(T)); \
    }
ROWS(uint16_t)
ROWS(uint32_t)

static void
rows_move(const ref_box *b, char *dst, const char *src, int64_t rows, int64_t n)
{
    int last = b->rank - 1;
    int64_t ds = last > 0 ? b->ds[last - 1] : 0;
    int64_t ss = last > 0 ? b->ss[last - 1] : 0, step = b->ss[last];
    bool few =
        n <= PIECE && b->ds[last] == b->bytes && b->dst_dtype == b->src_dtype;
    if (few && b->bytes == 2)
        rows_uint16_t(dst, ds, src, ss, rows, step, n);
    else if (few && b->bytes == 4)
        rows_uint32_t(dst, ds, src, ss, rows, step, n);
    else
        for (int64_t r = 0; r < rows; r++)
            row_move(b, dst + r * ds, src + r * ss, n);
}

/* ---- all rows ------------------------------------------------------------ */

static int64_t
unit_size(const ref_box *b, const int64_t *at, int axis)
{
    int64_t left = b->dims[axis] - at[axis] * b->unit[axis];
    return left < b->unit[axis] ? left : b->unit[axis];
}

/* at[]: the unit's place, in units. */
static void
unit_move(const ref_box *b, char *dst, const char *src, const int64_t *at)
{
    int last = b->rank - 1;
    for (int i = 0; i < b->rank; i++) {
        dst += at[i] * b->unit[i] * b->ds[i];
        src += at[i] * b->unit[i] * b->ss[i];
    }
    int64_t n = unit_size(b, at, last);
    int64_t rows = last > 0 ? unit_size(b, at, last - 1) : 1;
    int64_t planes = last > 1 ? unit_size(b, at, last - 2) : 1;
    for (int64_t i = 0; i < planes; i++)
        rows_move(b, dst + i * (last > 1 ? b->ds[last - 2] : 0),
                  src + i * (last > 1 ? b->ss[last - 2] : 0), rows, n);
}

static void
units_move(const ref_box *b, char *dst, const char *src, int64_t begin,
           int64_t end)
{
    int64_t at[AIR_MAX_RANK] = {0}, u = begin;
    for (int i = b->rank - 1; i >= 0 && u > 0; i--) {
        at[i] = u % b->count[i];
        u /= b->count[i];
    }
    for (u = begin; u < end; u++) {
        unit_move(b, dst, src, at);
        for (int i = b->rank - 1; i >= 0 && ++at[i] == b->count[i]; i--)
            at[i] = 0;
    }
}

void
ref_box_move(const ref_box *b, char *dst, const char *src, const air_task *task)
{
    int64_t begin, end;
    if (b->rank < 0)
        return;
    air_split(b->total, task, &begin, &end);
    units_move(b, dst, src, begin, end);
}

void
ref_box_move_parts(const ref_box *b, char *dst, const char *src)
{
    if (b->rank == 1)
        row_move(b, dst, src, b->dims[0]);
    else if (b->rank >= 0)
        units_move(b, dst, src, 0, b->total);
}

/* ---- whole tensors ------------------------------------------------------- */

static void
add_rows(const ref_box *b, char *dst, const char *src)
{
    const int last = b->rank - 1;
    ref_tensor to = {.rank = last}, from = {.rank = last};
    to.data = dst;
    memcpy(to.dims, b->dims, sizeof to.dims);
    memcpy(to.strides, b->ds, sizeof to.strides);
    memcpy(from.strides, b->ss, sizeof from.strides);
    from.data = (char *)(uintptr_t)src; /* only read */
    ref_walk w = ref_walk_begin(2, (const ref_tensor *[]){&to, &from}, 0);
    for (int64_t n = ref_numel(&to); n > 0; n--, ref_walk_next(&w))
        ref_add_row(b->dst_dtype, w.p[0], b->ds[last], w.p[1], b->ss[last],
                    b->dims[last]);
}

void
ref_box_add(const ref_box *b, char *dst, const char *src)
{
    if (b->rank == 1)
        ref_add_row(b->dst_dtype, dst, b->ds[0], src, b->ss[0], b->dims[0]);
    else if (b->rank > 1)
        add_rows(b, dst, src);
}

void
ref_move(const ref_tensor *dst, const ref_tensor *src, const air_task *task)
{
    ref_box b = ref_box_make(dst, src);
    ref_box_move(&b, dst->data, src->data, task);
}

void
ref_fill(const ref_tensor *dst, double value, const air_task *task)
{
    int64_t bits = 0;
    ref_put(dst->dtype, &bits, value);
    ref_tensor src = *dst;
    src.data = (char *)&bits;
    memset(src.strides, 0, sizeof src.strides);
    ref_move(dst, &src, task);
}

ref_tensor
ref_expand(const ref_tensor *src, const ref_tensor *dst)
{
    ref_tensor out = *dst;
    int shift = dst->rank - src->rank;
    out.data = src->data;
    out.dtype = src->dtype;
    for (int i = 0; i < dst->rank; i++) {
        bool spread = i < shift || src->dims[i - shift] == 1;
        out.strides[i] = spread ? 0 : src->strides[i - shift];
    }
    return out;
}

ref_tensor
ref_slice(ref_tensor t, int axis, int64_t begin, int64_t count, int64_t step)
{
    t.data += begin * t.strides[axis];
    t.dims[axis] = count;
    t.strides[axis] *= step;
    return t;
}

void
ref_start(const ref_tensor *out, const ref_tensor *self, const air_task *task)
{
    if (ref_same(out, self))
        return;
    ref_move(out, self, task);
    task->barrier(task);
}
