/* arg_isa.c: where the largest or smallest element is, compiled once per
 * instruction set. A row goes by blocks: only the first with the best element
 * is looked through. Columns go side by side, and so do short rows, turned. The
 * first of equals wins, and the first NaN over everything. */
#include "driver/cpu/rows/arg_isa.h"

#include <math.h>

#include "driver/cpu/product/float_rows.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_ops.h"
#include "driver/ref/args.h"

#define JOIN_(a, b)      cpu_##a##_##b
#define JOIN(a, b)       JOIN_(a, b)
#define ARG_KERNEL(name) JOIN(name, TILE_ISA)

enum { BLOCK = 256, LANES = TILE_VECTOR / sizeof(float) };

typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(LANES * sizeof(int32_t))));

/* The largest of a block of n >= LANES elements; NaN where there is one.
 * sign: -1 for the smallest, negated. */
static float
best_in_block(const float *x, int64_t n, float sign)
{
    floats best, v;
    masks odd = {0};
    memcpy(&best, x, sizeof best);
    best *= sign;
    for (int64_t i = 0; i < n; i += LANES) {
        memcpy(&v, x + (i + LANES <= n ? i : n - LANES), sizeof v);
        v *= sign;
        masks more = v > best;
        best = (floats)((more & (masks)v) | (~more & (masks)best));
        odd |= v != v;
    }
    float out = best[0];
    for (int k = 0; k < LANES; k++) {
        if (odd[k])
            return NAN;
        out = best[k] > out ? best[k] : out;
    }
    return out;
}

/* The same of any n > 0. */
static float
best_of(const float *x, int64_t n, float sign)
{
    if (n >= LANES)
        return best_in_block(x, n, sign);
    float best = x[0] * sign;
    for (int64_t i = 1; i < n; i++) {
        float v = x[i] * sign;
        best = v > best || v != v ? v : best;
        if (isnan(best))
            break;
    }
    return best;
}

static const float *
block_of(const char *row, int dtype, int64_t at, int64_t n, float *wide)
{
    if (dtype == AIR_F32)
        return (const float *)(const void *)row + at;
    rows_widen(wide, row + at * rows_bytes(dtype), dtype, n);
    return wide;
}

static int64_t
best_of_row(const char *row, int dtype, int64_t n, float sign)
{
    float wide[BLOCK], best = -INFINITY;
    int64_t block = 0, count = n < BLOCK ? n : BLOCK;
    for (int64_t i = 0; i < n && !isnan(best); i += BLOCK) {
        count = n - i < BLOCK ? n - i : BLOCK;
        float most = best_of(block_of(row, dtype, i, count, wide), count, sign);
        if (most > best || isnan(most)) {
            best = most;
            block = i;
        }
    }
    count = n - block < BLOCK ? n - block : BLOCK;
    const float *x = block_of(row, dtype, block, count, wide);
    for (int64_t i = 0; i < count; i++)
        if (isnan(best) ? isnan(x[i]) : x[i] * sign == best)
            return block + i;
    return block;
}

/* ---- rows of other dtypes ---- */

/* The best of a block, as the largest: `op` is > or <. Of NaNs, `odd`. */
#define BLOCK_OF(name, T, I, op)                                            \
    static T name(const T *x, int64_t n, bool *odd)                         \
    {                                                                       \
        enum { COUNT = TILE_VECTOR / sizeof(T) };                           \
        typedef T values __attribute__((vector_size(TILE_VECTOR)));         \
        typedef I flags __attribute__((vector_size(TILE_VECTOR)));          \
        T out = x[0];                                                       \
        if (n >= COUNT) {                                                   \
            values best, v;                                                 \
            flags other = {0};                                              \
            memcpy(&best, x, sizeof best);                                  \
            for (int64_t i = 0; i < n; i += COUNT) {                        \
                memcpy(&v, x + (i + COUNT <= n ? i : n - COUNT), sizeof v); \
                flags more = (flags)(v op best);                            \
                best = (values)((more & (flags)v) | (~more & (flags)best)); \
                other |= (flags)(v != v);                                   \
            }                                                               \
            out = best[0];                                                  \
            for (int k = 0; k < COUNT; k++) {                               \
                *odd |= other[k] != 0;                                      \
                out = best[k] op out ? best[k] : out;                       \
            }                                                               \
        } else {                                                            \
            for (int64_t i = 0; i < n; i++) {                               \
                *odd |= x[i] != x[i];                                       \
                out = x[i] op out ? x[i] : out;                             \
            }                                                               \
        }                                                                   \
        return out;                                                         \
    }

#define ROW_OF(name, T, I, op)                                                 \
    BLOCK_OF(block_##name, T, I, op)                                           \
    static int64_t row_##name(const char *row, int64_t n)                      \
    {                                                                          \
        const T *x = (const void *)row;                                        \
        T best = x[0];                                                         \
        int64_t block = 0;                                                     \
        bool odd = false;                                                      \
        for (int64_t i = 0; i < n && !odd; i += BLOCK) {                       \
            T most = block_##name(x + i, n - i < BLOCK ? n - i : BLOCK, &odd); \
            if (most op best || odd) {                                         \
                best = most;                                                   \
                block = i;                                                     \
            }                                                                  \
        }                                                                      \
        while (block < n && (odd ? x[block] == x[block] : x[block] != best))   \
            block++;                                                           \
        return block;                                                          \
    }

/* The same of up to COLUMNS neighbouring columns, row after row. */
#define COLUMNS_OF(name, T, op)                                      \
    static void columns_##name(const T *x, int64_t n, int64_t step,  \
                               int64_t width, int32_t *at)           \
    {                                                                \
        T best[COLUMNS];                                             \
        memcpy(best, x, (size_t)width * sizeof *x);                  \
        for (int64_t k = 1; k < n; k++) {                            \
            x += step;                                               \
            for (int64_t j = 0; j < width; j++) {                    \
                bool more = (x[j] op best[j]) |                      \
                            ((x[j] != x[j]) & (best[j] == best[j])); \
                best[j] = more ? x[j] : best[j];                     \
                at[j] = more ? (int32_t)k : at[j];                   \
            }                                                        \
        }                                                            \
    }

enum { COLUMNS = 64 };

#define EACH_DTYPE(_)        \
    _(F64, double, int64_t)  \
    _(I8, int8_t, int8_t)    \
    _(U8, uint8_t, int8_t)   \
    _(BOOL, uint8_t, int8_t) \
    _(I16, int16_t, int16_t) \
    _(I32, int32_t, int32_t) \
    _(I64, int64_t, int64_t)
#define DEFINE(id, T, I)        \
    ROW_OF(most_##id, T, I, >)  \
    ROW_OF(least_##id, T, I, <) \
    COLUMNS_OF(most_##id, T, >) \
    COLUMNS_OF(least_##id, T, <)
EACH_DTYPE(DEFINE)
COLUMNS_OF(most_F32, float, >)
COLUMNS_OF(least_F32, float, <)

/* bf16, f16: rows as rows of float. */
static void
columns_of_halves(const char *x, int dtype, int64_t n, int64_t step,
                  int64_t width, int32_t *at, bool most)
{
    float wide[BLOCK];
    float best[COLUMNS];
    rows_widen(best, x, dtype, width);
    for (int64_t k = 1; k < n; k++) {
        rows_widen(wide, x + k * step * rows_bytes(dtype), dtype, width);
        for (int64_t j = 0; j < width; j++) {
            bool more = (most ? wide[j] > best[j] : wide[j] < best[j]) |
                        ((wide[j] != wide[j]) & (best[j] == best[j]));
            best[j] = more ? wide[j] : best[j];
            at[j] = more ? (int32_t)k : at[j];
        }
    }
}

static int64_t
place_in_row(const char *row, int dtype, int64_t n, bool most)
{
    switch (dtype) {
#define CASE(id, ...) \
    case AIR_##id: return most ? row_most_##id(row, n) : row_least_##id(row, n);
        EACH_DTYPE(CASE)
#undef CASE
    default: return best_of_row(row, dtype, n, most ? 1 : -1);
    }
}

/* step: elements from row to row; at: zeros, then the rows of the best. */
static void
places_in_columns(const char *x, int dtype, int64_t n, int64_t step,
                  int64_t width, int32_t *at, bool most)
{
    const void *p = x;
    switch (dtype) {
#define CASE(id, ...)                                  \
    case AIR_##id:                                     \
        if (most)                                      \
            columns_most_##id(p, n, step, width, at);  \
        else                                           \
            columns_least_##id(p, n, step, width, at); \
        break;
        EACH_DTYPE(CASE)
        CASE(F32, float, int32_t)
#undef CASE
    default: columns_of_halves(x, dtype, n, step, width, at, most);
    }
}

/* Dense tensors, along any axis or over all elements. */
static bool
takes(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    if (!JOIN(on, TILE_ISA)(call, isa)) /* first: the rest may not run here */
        return false;
    if (!cpu_is_dense(a) || a->rank == 0)
        return false;
    for (int i = 0; i < call->nouts; i++)
        if (!cpu_is_dense(&call->outs[i]))
            return false;
    const air_arg *dim = &call->args[1];
    return dim->kind == AIR_ARG_NONE ||
           a->dims[ref_axis(dim->i, a->rank)] <= INT32_MAX;
}

bool
ARG_KERNEL(arg_on)(const air_call *call, const char *isa)
{
    return takes(call, isa);
}

typedef struct {
    const char *data;
    int dtype;
    int64_t bytes;
    int64_t outer, n, inner; /* before the axis, along it, behind it */
    int64_t *index;          /* results */
    char *values;            /* NULL, or the elements themselves */
    bool most;
} places;

static void
keep(const places *p, int64_t at, const char *from, int64_t index)
{
    p->index[at] = index;
    if (p->values != NULL)
        memcpy(p->values + at * p->bytes, from + index * p->inner * p->bytes,
               (size_t)p->bytes);
}

/* Element k of row r of `to` is element r of row k of `from`. */
#define TURN(bits)                                                      \
    static void turn_##bits(const void *from, int64_t n, int64_t count, \
                            void *to)                                   \
    {                                                                   \
        const uint##bits##_t *x = from;                                 \
        uint##bits##_t *y = to;                                         \
        for (int64_t k = 0; k < count; k++)                             \
            for (int64_t r = 0; r < n; r++)                             \
                y[r * COLUMNS + k] = x[k * n + r];                      \
    }
#define PICK(bits)                                                      \
    static void pick_##bits(const void *from, int64_t n, int64_t count, \
                            const int32_t *at, void *to)                \
    {                                                                   \
        const uint##bits##_t *x = from;                                 \
        uint##bits##_t *y = to;                                         \
        for (int64_t k = 0; k < count; k++)                             \
            y[k] = x[k * n + at[k]];                                    \
    }
#define EACH_WIDTH(_) _(8) _(16) _(32) _(64)
EACH_WIDTH(TURN)
EACH_WIDTH(PICK)

enum { SHORT = 32 }; /* elements of a row that is turned */

/* `count` short rows from row `first` on, as columns. */
static void
turned_rows(const places *p, int64_t first, int64_t count, void *turned)
{
    const char *rows = p->data + first * p->n * p->bytes;
    int32_t at[COLUMNS] = {0};

    switch (p->bytes) {
#define CASE(bits) \
    case bits / 8: turn_##bits(rows, p->n, count, turned); break;
        EACH_WIDTH(CASE)
#undef CASE
    default: break;
    }
    places_in_columns(turned, p->dtype, p->n, COLUMNS, count, at, p->most);
    for (int64_t k = 0; k < count; k++)
        p->index[first + k] = at[k];
    switch (p->values ? p->bytes : 0) {
#define CASE(bits)                                            \
    case bits / 8:                                            \
        pick_##bits(rows, p->n, count, at,                    \
                    p->values + first * (int64_t)(bits / 8)); \
        break;
        EACH_WIDTH(CASE)
#undef CASE
    default: break;
    }
}

static void
short_rows(const places *p, int64_t begin, int64_t end)
{
    int64_t turned[SHORT * COLUMNS] = {0};

    for (; begin < end; begin += COLUMNS)
        turned_rows(p, begin, end - begin < COLUMNS ? end - begin : COLUMNS,
                    turned);
}

static void
each_row(const places *p, const air_task *task)
{
    int64_t begin, end;
    air_split(p->outer, task, &begin, &end);
    if (p->n <= SHORT && end - begin > 4) {
        short_rows(p, begin, end);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        const char *row = p->data + r * p->n * p->bytes;
        keep(p, r, row, place_in_row(row, p->dtype, p->n, p->most));
    }
}

static void
each_column(const places *p, const air_task *task)
{
    const int64_t across = (p->inner + COLUMNS - 1) / COLUMNS;
    int64_t begin, end;
    air_split(p->outer * across, task, &begin, &end);
    for (int64_t u = begin; u < end; u++) {
        int64_t outer = u / across, col = u % across * COLUMNS;
        int64_t left = p->inner - col, width = left < COLUMNS ? left : COLUMNS;
        const char *x = p->data + (outer * p->n * p->inner + col) * p->bytes;
        int32_t at[COLUMNS] = {0};
        places_in_columns(x, p->dtype, p->n, p->inner, width, at, p->most);
        for (int64_t j = 0; j < width; j++)
            keep(p, outer * p->inner + col + j, x + j * p->bytes, at[j]);
    }
}

static void
each(const air_call *call, const air_task *task, int64_t *index, char *values,
     bool most)
{
    ref_tensor self = ref_arg(call, 0, task);
    places p = {.data = self.data,
                .dtype = self.dtype,
                .bytes = (int64_t)air_dtype_bytes((air_dtype)self.dtype),
                .outer = 1,
                .n = ref_numel(&self),
                .inner = 1,
                .index = index,
                .values = values,
                .most = most};
    if (call->args[1].kind != AIR_ARG_NONE) {
        int axis = ref_axis(call->args[1].i, self.rank);
        for (int i = 0; i < self.rank; i++)
            *(i < axis ? &p.outer : &p.inner) *= i == axis ? 1 : self.dims[i];
        p.n = self.dims[axis];
    }
    if (p.n == 0 || p.outer == 0 || p.inner == 0)
        return;
    if (p.inner == 1)
        each_row(&p, task);
    else
        each_column(&p, task);
}

static void
places_only(const air_call *call, const air_task *task, bool most)
{
    each(call, task, (int64_t *)(void *)ref_out(call, 0, task).data, NULL,
         most);
}

static void
both(const air_call *call, const air_task *task, bool most)
{
    each(call, task, (int64_t *)(void *)ref_out(call, 1, task).data,
         ref_out(call, 0, task).data, most);
}

/* (self, dim, keepdim) */
void
ARG_KERNEL(argmax)(const air_call *call, const air_task *task)
{
    places_only(call, task, true);
}

void
ARG_KERNEL(argmin)(const air_call *call, const air_task *task)
{
    places_only(call, task, false);
}

void
ARG_KERNEL(max_dim)(const air_call *call, const air_task *task)
{
    both(call, task, true);
}

void
ARG_KERNEL(min_dim)(const air_call *call, const air_task *task)
{
    both(call, task, false);
}
