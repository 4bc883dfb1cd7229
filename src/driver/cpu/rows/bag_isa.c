/* bag_isa.c: sums and averages of embedding_bag, compiled once per instruction
 * set. Bags are added up some columns at a time, which stay in registers. */
#include "driver/cpu/rows/bag_isa.h"

#include "driver/cpu/product/float_rows.h"
#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_ops.h"
#include "driver/ref/bag.h"

#define JOIN_(a, b)      cpu_##a##_##b
#define JOIN(a, b)       JOIN_(a, b)
#define ISA_KERNEL(name) JOIN(name, TILE_ISA)

enum { COLUMNS = 64, CHUNK = 32, LINE = 64, FETCHED = 4 * LINE, AHEAD = 32 };

/* Rows that count among some indices of a bag. */
typedef struct {
    int64_t count;
    const char *row[CHUNK];
    float factor[CHUNK];
} chunk;

static inline int64_t
index_at(const ref_tensor *t, int64_t i)
{
    int64_t at;

    if (t->dtype != AIR_I64)
        return ref_bag_int(t, i);
    memcpy(&at, t->data + i * t->strides[0], sizeof at);
    return at;
}

/* Rows of a large table are not in the cache: beginnings of those that come
 * after, in this bag or the next ones, are fetched. */
static inline void
fetch(const ref_bags *b, int64_t i, int64_t bytes)
{
    const int64_t at = i < b->index.dims[0] ? index_at(&b->index, i) : -1;

    if ((uint64_t)at >= (uint64_t)b->table.dims[0])
        return;
    for (int64_t k = 0; k < bytes; k += LINE)
        __builtin_prefetch(b->table.data + at * b->table.strides[0] + k);
}

static void
find_rows(const ref_bags *b, int64_t begin, int64_t end, const air_task *task,
          chunk *c)
{
    const int64_t rows = b->table.dims[0];
    int64_t bytes = b->table.dims[1] * rows_bytes(b->table.dtype);

    bytes = bytes < FETCHED ? bytes : FETCHED;
    c->count = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = index_at(&b->index, i);
        fetch(b, i + AHEAD, bytes);
        if (at == b->padding)
            continue;
        if ((uint64_t)at >= (uint64_t)rows) {
            air_raise(task, at, rows);
            continue;
        }
        c->factor[c->count] = (float)ref_bag_factor(b, i);
        c->row[c->count++] = b->table.data + at * b->table.strides[0];
    }
}

/* ---- sums of rows -------------------------------------------------------- */

typedef float lanes __attribute__((vector_size(TILE_VECTOR)));
typedef uint32_t words __attribute__((vector_size(TILE_VECTOR)));
typedef uint16_t halves __attribute__((vector_size(TILE_VECTOR / 2)));
enum { LANES = TILE_VECTOR / sizeof(float), WIDE = 4 * LANES };

static inline void
read_lanes(lanes *out, const char *row, int dtype, int64_t at)
{
    halves h;

    if (dtype == AIR_F32) {
        memcpy(out, row + at * 4, sizeof *out);
        return;
    }
    memcpy(&h, row + at * 2, sizeof h);
    *out = (lanes)(__builtin_convertvector(h, words) << 16);
}

/* sums[0 .. WIDE - 1] += all rows' elements from `col`; dtype is a constant of
 * each call: f32 or bf16. */
static inline void
add_wide(const chunk *c, int64_t col, int dtype, float *sums)
{
    lanes sum[4], x0, x1, x2, x3;

    memcpy(sum, sums, sizeof sum);
    lanes s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3];
    for (int64_t i = 0; i < c->count; i++) {
        const float factor = c->factor[i];
        read_lanes(&x0, c->row[i], dtype, col);
        read_lanes(&x1, c->row[i], dtype, col + LANES);
        read_lanes(&x2, c->row[i], dtype, col + 2 * LANES);
        read_lanes(&x3, c->row[i], dtype, col + 3 * LANES);
        s0 += factor * x0;
        s1 += factor * x1;
        s2 += factor * x2;
        s3 += factor * x3;
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
    memcpy(sums, sum, sizeof sum);
}

/* The same for LANES columns. */
static inline void
add_lanes(const chunk *c, int64_t col, int dtype, float *sums)
{
    lanes sum, x;

    memcpy(&sum, sums, sizeof sum);
    for (int64_t i = 0; i < c->count; i++) {
        read_lanes(&x, c->row[i], dtype, col);
        sum += c->factor[i] * x;
    }
    memcpy(sums, &sum, sizeof sum);
}

/* For any dtype and n <= 64 columns. */
static void
add_rest(const chunk *c, int64_t col, int64_t n, int dtype, float *sums)
{
    float wide[COLUMNS];

    for (int64_t i = 0; i < c->count; i++) {
        rows_widen(wide, c->row[i] + col * rows_bytes(dtype), dtype, n);
        for (int64_t k = 0; k < n; k++)
            sums[k] += c->factor[i] * wide[k];
    }
}

static inline int64_t
add_whole(const chunk *c, int64_t cols, int dtype, float *sums)
{
    int64_t col = 0;

    for (; col + WIDE <= cols; col += WIDE)
        add_wide(c, col, dtype, sums + col);
    for (; col + LANES <= cols; col += LANES)
        add_lanes(c, col, dtype, sums + col);
    return col;
}

static void
add_chunk(const ref_bags *b, const chunk *c, float *sums)
{
    const int dtype = b->table.dtype;
    const int64_t cols = b->table.dims[1];
    int64_t col = 0;

    if (dtype == AIR_F32)
        col = add_whole(c, cols, AIR_F32, sums);
    else if (dtype == AIR_BF16)
        col = add_whole(c, cols, AIR_BF16, sums);
    for (int64_t n; col < cols; col += n) {
        n = cols - col < COLUMNS ? cols - col : COLUMNS;
        add_rest(c, col, n, dtype, sums + col);
    }
}

static void
sum_bag(const ref_bags *b, int64_t bag, char *out, const air_task *task)
{
    const int64_t cols = b->table.dims[1];
    int64_t begin, end, count = 0;
    float *sums = task->scratch;
    chunk c;

    ref_bag_range(b, bag, task, &begin, &end);
    memset(sums, 0, (size_t)cols * sizeof *sums);
    for (; begin < end; begin += CHUNK) {
        find_rows(b, begin, end - begin < CHUNK ? end : begin + CHUNK, task,
                  &c);
        add_chunk(b, &c, sums);
        count += c.count;
    }
    if (b->mode == REF_BAG_MEAN && count > 1)
        for (int64_t k = 0; k < cols; k++)
            sums[k] /= (float)count;
    rows_narrow(out, sums, b->table.dtype, cols);
}

void
ISA_KERNEL(embedding_bag)(const air_call *call, const air_task *task)
{
    const ref_bags b = ref_bags_open(call, task);
    char *out = air_data(&call->outs[0], task);
    const int64_t bytes = b.table.dims[1] * rows_bytes(b.table.dtype);
    int64_t first, stop;

    ref_bag_note(call, task, &b);
    air_split(b.bags, task, &first, &stop);
    for (int64_t bag = first; bag < stop; bag++)
        sum_bag(&b, bag, out + bag * bytes, task);
}

bool
ISA_KERNEL(embedding_bag_on)(const air_call *call, const char *isa)
{
    const air_tensor *table = call->args[0].t;

    return JOIN(on, TILE_ISA)(call, isa) && /* first: others may not run here */
           rows_take(table->dtype) && table->strides[1] == 1 &&
           table->dims[1] <= (int64_t)(AIR_SCRATCH / sizeof(float)) &&
           cpu_is_dense(&call->outs[0]) && ref_int(call, 4, 0) != REF_BAG_MAX;
}
