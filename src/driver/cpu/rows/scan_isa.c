/* scan_isa.c: running sums, products and extremes of dense tensors, compiled
 * once per instruction set. Columns go side by side, rows of sums a few at a
 * time: each addition waits for the one before it. As the plain kernels do,
 * sums of f32 are kept in double, those of 16-bit floats in float, and integers
 * wrap: the same bits. */
#include "driver/cpu/rows/scan_isa.h"

#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_float.h"
#include "driver/ref/args.h"

#define JOIN_(a, b)       cpu_##a##_##b
#define JOIN(a, b)        JOIN_(a, b)
#define SCAN_KERNEL(name) JOIN(name, TILE_ISA)

enum { COLUMNS = 64, ROWS = 4, BLOCK = 16 };

/* n rows of `width` columns, `step` elements from row to row. */
#define SCAN(name, T, O, A, of, to, op, first)                             \
    static void name(const T *restrict x, O *restrict y, int64_t n,        \
                     int64_t step, int64_t width)                          \
    {                                                                      \
        A acc[COLUMNS];                                                    \
        for (int64_t j = 0; j < COLUMNS; j++)                              \
            acc[j] = first;                                                \
        for (int64_t k = 0; k < n; k++, x += step, y += step)              \
            for (int64_t j = 0; j < width; j++) {                          \
                acc[j] = acc[j] op(A) of(x[j]);                            \
                y[j] = (O)to(acc[j]);                                      \
            }                                                              \
    }                                                                      \
    static void name##_row(const T *restrict x, O *restrict y, int64_t n)  \
    {                                                                      \
        A acc = first;                                                     \
        for (int64_t k = 0; k < n; k++) {                                  \
            acc = acc op(A) of(x[k]);                                      \
            y[k] = (O)to(acc);                                             \
        }                                                                  \
    }                                                                      \
    static void name##_rows(const T *restrict x, O *restrict y, int64_t n) \
    {                                                                      \
        const T *x1 = x + n, *x2 = x1 + n, *x3 = x2 + n;                   \
        O *y1 = y + n, *y2 = y1 + n, *y3 = y2 + n;                         \
        A a0 = first, a1 = first, a2 = first, a3 = first;                  \
        for (int64_t k = 0; k < n; k++) {                                  \
            a0 = a0 op(A) of(x[k]);                                        \
            a1 = a1 op(A) of(x1[k]);                                       \
            a2 = a2 op(A) of(x2[k]);                                       \
            a3 = a3 op(A) of(x3[k]);                                       \
            y[k] = (O)to(a0);                                              \
            y1[k] = (O)to(a1);                                             \
            y2[k] = (O)to(a2);                                             \
            y3[k] = (O)to(a3);                                             \
        }                                                                  \
    }
#define SAME(x) (x)
/* from, its type, result, its type, type of the sums, conversions */
#define EACH_PAIR(_)                                                     \
    _(F32, float, F32, float, double, SAME, SAME)                        \
    _(F64, double, F64, double, double, SAME, SAME)                      \
    _(BF16, uint16_t, BF16, uint16_t, float, tile_of_bf16, tile_to_bf16) \
    _(F16, uint16_t, F16, uint16_t, float, tile_of_f16, tile_to_f16)     \
    _(I64, uint64_t, I64, uint64_t, uint64_t, SAME, SAME)                \
    _(I32, int32_t, I64, uint64_t, uint64_t, (int64_t), SAME)            \
    _(I16, int16_t, I64, uint64_t, uint64_t, (int64_t), SAME)            \
    _(I8, int8_t, I64, uint64_t, uint64_t, (int64_t), SAME)              \
    _(U8, uint8_t, I64, uint64_t, uint64_t, SAME, SAME)                  \
    _(BOOL, uint8_t, I64, uint64_t, uint64_t, SAME, SAME)
#define DEFINE(from, T, out, O, A, of, to)  \
    SCAN(sum_##from, T, O, A, of, to, +, 0) \
    SCAN(product_##from, T, O, A, of, to, *, 1)
EACH_PAIR(DEFINE)

typedef struct {
    const void *x;
    void *y;
    int dtype;
    int64_t n, step, width;
} piece;

static void
scan_columns(const piece *p, bool product)
{
    switch (p->dtype) {
#define CASE(from, ...)                                          \
    case AIR_##from:                                             \
        if (product)                                             \
            product_##from(p->x, p->y, p->n, p->step, p->width); \
        else                                                     \
            sum_##from(p->x, p->y, p->n, p->step, p->width);     \
        break;
        EACH_PAIR(CASE)
#undef CASE
    default: break;
    }
}

/* `width` rows, one behind the other: ROWS or fewer. */
static void
scan_rows(const piece *p, bool product)
{
    const int64_t n = p->n;
    switch (p->dtype) {
#define ALONG(name)                            \
    if (p->width == ROWS)                      \
        name##_rows(x, y, n);                  \
    else                                       \
        for (int64_t r = 0; r < p->width; r++) \
            name##_row(x + r * n, y + r * n, n);
#define CASE(from, T, out, O, ...) \
    case AIR_##from: {             \
        const T *x = p->x;         \
        O *y = p->y;               \
        if (product) {             \
            ALONG(product_##from)  \
        } else {                   \
            ALONG(sum_##from)      \
        }                          \
        break;                     \
    }
        EACH_PAIR(CASE)
#undef CASE
#undef ALONG
    default: break;
    }
}

static bool
is_pair(int from, int out)
{
#define PAIR(a, T, b, ...)                 \
    if (from == AIR_##a && out == AIR_##b) \
        return true;
    EACH_PAIR(PAIR)
#undef PAIR
    return false;
}

bool
SCAN_KERNEL(scan_on)(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    return JOIN(on, TILE_ISA)(call, isa) && /* first: others may not run here */
           a->rank > 0 && is_pair(a->dtype, call->outs[0].dtype) &&
           cpu_is_dense(a) && cpu_is_dense(&call->outs[0]);
}

/* The sizes before the axis, along it and behind it. */
typedef struct {
    int64_t outer, n, inner;
} sizes;

static sizes
sizes_of(const ref_tensor *t, int axis)
{
    sizes s = {1, t->dims[axis], 1};
    for (int i = 0; i < t->rank; i++)
        *(i < axis ? &s.outer : &s.inner) *= i == axis ? 1 : t->dims[i];
    return s;
}

static void
scan(const air_call *call, const air_task *task, bool product)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    const sizes s = sizes_of(&self, ref_axis(ref_int(call, 1, 0), self.rank));
    const bool rows = s.inner == 1;
    const int64_t lines = rows ? s.outer : s.inner;
    const int64_t wide = rows ? ROWS : COLUMNS;
    const int64_t across = (lines + wide - 1) / wide;
    int64_t begin, end;
    air_split(rows ? across : s.outer * across, task, &begin, &end);
    for (int64_t u = begin; u < end; u++) {
        const int64_t line = u % across * wide, left = lines - line;
        const int64_t at =
            rows ? line * s.n : u / across * s.n * s.inner + line;
        const piece p = {self.data + at * (int64_t)ref_bytes(self.dtype),
                         out.data + at * (int64_t)ref_bytes(out.dtype),
                         self.dtype,
                         s.n,
                         s.inner,
                         left < wide ? left : wide};
        (rows ? scan_rows : scan_columns)(&p, product);
    }
}

/* (self, dim, dtype) */
void
SCAN_KERNEL(cumsum)(const air_call *call, const air_task *task)
{
    scan(call, task, false);
}

void
SCAN_KERNEL(cumprod)(const air_call *call, const air_task *task)
{
    scan(call, task, true);
}

/* ---- extremes ------------------------------------------------------------ */

/* Later equal values take over, and NaN, which stays until the next. */
#define TAKES(x, op, best) (((x)op(best)) | ((x) != (x)))
/* A row goes by blocks: most have nothing that takes over. */
#define BEST(name, T, of, op)                                                  \
    static void name##_part(const T *restrict x, T *restrict y,                \
                            int64_t *restrict at, int64_t begin, int64_t end,  \
                            T *best, int64_t *where)                           \
    {                                                                          \
        for (int64_t k = begin; k < end; k++) {                                \
            if (TAKES(of(x[k]), op, of(*best))) {                              \
                *best = x[k];                                                  \
                *where = k;                                                    \
            }                                                                  \
            y[k] = *best;                                                      \
            at[k] = *where;                                                    \
        }                                                                      \
    }                                                                          \
    static void name##_row(const T *restrict x, T *restrict y,                 \
                           int64_t *restrict at, int64_t n)                    \
    {                                                                          \
        T best = x[0];                                                         \
        int64_t where = 0, k = 0;                                              \
        for (; k + BLOCK <= n; k += BLOCK) {                                   \
            int any = 0;                                                       \
            for (int j = 0; j < BLOCK; j++)                                    \
                any |= TAKES(of(x[k + j]), op, of(best));                      \
            if (any) {                                                         \
                name##_part(x, y, at, k, k + BLOCK, &best, &where);            \
                continue;                                                      \
            }                                                                  \
            for (int j = 0; j < BLOCK; j++) {                                  \
                y[k + j] = best;                                               \
                at[k + j] = where;                                             \
            }                                                                  \
        }                                                                      \
        name##_part(x, y, at, k, n, &best, &where);                            \
    }                                                                          \
    static void name(const T *restrict x, T *restrict y, int64_t *restrict at, \
                     int64_t n, int64_t step, int64_t width)                   \
    {                                                                          \
        T best[COLUMNS];                                                       \
        int64_t where[COLUMNS] = {0};                                          \
        memcpy(best, x, (size_t)width * sizeof *best);                         \
        for (int64_t k = 0; k < n; k++, x += step, y += step, at += step)      \
            for (int64_t j = 0; j < width; j++) {                              \
                const bool take = TAKES(of(x[j]), op, of(best[j]));            \
                best[j] = take ? x[j] : best[j];                               \
                where[j] = take ? k : where[j];                                \
                y[j] = best[j];                                                \
                at[j] = where[j];                                              \
            }                                                                  \
    }
#define EACH_DTYPE(_)               \
    _(F32, float, SAME)             \
    _(F64, double, SAME)            \
    _(BF16, uint16_t, tile_of_bf16) \
    _(F16, uint16_t, tile_of_f16)   \
    _(I64, int64_t, SAME)           \
    _(I32, int32_t, SAME)           \
    _(I16, int16_t, SAME)           \
    _(I8, int8_t, SAME)             \
    _(U8, uint8_t, SAME)            \
    _(BOOL, uint8_t, SAME)
#define DEFINE_BEST(id, T, of)     \
    BEST(greatest_##id, T, of, >=) \
    BEST(smallest_##id, T, of, <=)
EACH_DTYPE(DEFINE_BEST)

static void
best_piece(const piece *p, int64_t *at, bool most)
{
    switch (p->dtype) {
#define ALONG(name)                       \
    if (p->step == 1)                     \
        name##_row(p->x, p->y, at, p->n); \
    else                                  \
        name(p->x, p->y, at, p->n, p->step, p->width);
#define CASE(id, ...)            \
    case AIR_##id:               \
        if (most) {              \
            ALONG(greatest_##id) \
        } else {                 \
            ALONG(smallest_##id) \
        }                        \
        break;
        EACH_DTYPE(CASE)
#undef CASE
#undef ALONG
    default: break;
    }
}

static void
scan_best(const air_call *call, const air_task *task, bool most)
{
    ref_tensor out = ref_out(call, 0, task), self = ref_arg(call, 0, task);
    int64_t *index = (int64_t *)(void *)ref_out(call, 1, task).data;
    const sizes s = sizes_of(&self, ref_axis(ref_int(call, 1, 0), self.rank));
    const int64_t across = (s.inner + COLUMNS - 1) / COLUMNS;
    const int64_t bytes = (int64_t)ref_bytes(self.dtype);
    int64_t begin, end;
    if (s.n == 0)
        return;
    air_split(s.outer * across, task, &begin, &end);
    for (int64_t u = begin; u < end; u++) {
        const int64_t col = u % across * COLUMNS, left = s.inner - col;
        const int64_t at = u / across * s.n * s.inner + col;
        const piece p = {self.data + at * bytes,
                         out.data + at * bytes,
                         self.dtype,
                         s.n,
                         s.inner,
                         left < COLUMNS ? left : COLUMNS};
        best_piece(&p, index + at, most);
    }
}

/* Dense tensors of the dtypes above. */
bool
SCAN_KERNEL(scan_best_on)(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    if (!JOIN(on, TILE_ISA)(call, isa)) /* first: others may not run here */
        return false;
    bool known = false;
#define KNOWN(id, ...) known |= a->dtype == AIR_##id;
    EACH_DTYPE(KNOWN)
#undef KNOWN
    return known && a->rank > 0 && cpu_is_dense(a) &&
           cpu_is_dense(&call->outs[0]) && cpu_is_dense(&call->outs[1]) &&
           call->outs[1].dtype == AIR_I64;
}

/* (self, dim) */
void
SCAN_KERNEL(cummax)(const air_call *call, const air_task *task)
{
    scan_best(call, task, true);
}

void
SCAN_KERNEL(cummin)(const air_call *call, const air_task *task)
{
    scan_best(call, task, false);
}
