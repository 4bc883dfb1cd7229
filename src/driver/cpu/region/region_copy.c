/* region_copy.c: regions that only move elements, and blocks of elements that
 * other regions want dense: rows by memcpy, transposed blocks through
 * registers. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

enum {
    TURN = 16,        /* rows of a transposed block: a cache line of f32 */
    TURN_NARROW = 64, /* where all columns of a row are a few lines */
    TURN_SHORT = 512, /* where it has a few elements */
    NARROW = 1024,    /* bytes of such a row */
    SPAN = 1024,      /* columns of it */
    SHORT = 16,       /* elements of a row that is moved with its neighbours */
    ROW_SPAN = 65536, /* elements of a row, or of several short ones */
};

/* Strides are in elements. The inner loop runs along the second axis. */
#define MOVE_TURNED(T)                                                        \
    static void rest_##T(char *to, int64_t to_row, const char *from,          \
                         int64_t from_col, int64_t rows, int64_t cols)        \
    {                                                                         \
        for (int64_t i = 0; i < rows; i++) {                                  \
            T *d = (T *)(void *)to + i * to_row;                              \
            const T *s = (const T *)(const void *)from + i;                   \
            for (int64_t j = 0; j < cols; j++)                                \
                d[j] = s[j * from_col];                                       \
        }                                                                     \
    }                                                                         \
    /* from_row is 1, to_col is 1: four columns at a time */                  \
    static void turn_##T(char *to, int64_t to_row, const char *from,          \
                         int64_t from_col, int64_t rows, int64_t cols)        \
    {                                                                         \
        const int64_t whole = cols & ~INT64_C(3);                             \
        for (int64_t j = 0; j < whole; j += 4) {                              \
            T *d = (T *)(void *)to + j;                                       \
            const T *s = (const T *)(const void *)from + j * from_col;        \
            for (int64_t i = 0; i < rows; i++, d += to_row, s++) {            \
                d[0] = s[0];                                                  \
                d[1] = s[from_col];                                           \
                d[2] = s[2 * from_col];                                       \
                d[3] = s[3 * from_col];                                       \
            }                                                                 \
        }                                                                     \
        rest_##T(                                                             \
            (char *)((T *)(void *)to + whole), to_row,                        \
            (const char *)((const T *)(const void *)from + whole * from_col), \
            from_col, rows, cols - whole);                                    \
    }
MOVE_TURNED(uint8_t)
MOVE_TURNED(uint16_t)
MOVE_TURNED(uint32_t)
MOVE_TURNED(uint64_t)

typedef uint32_t quad __attribute__((vector_size(16)));

static quad
quad_load(const uint32_t *p)
{
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static void
quad_store(uint32_t *p, quad q)
{
    memcpy(p, &q, sizeof q);
}

/* Four rows of four columns, of 32 bits. */
static void
turn_quad(uint32_t *to, int64_t to_row, const uint32_t *from, int64_t from_col)
{
    quad a = quad_load(from), b = quad_load(from + from_col);
    quad c = quad_load(from + 2 * from_col);
    quad d = quad_load(from + 3 * from_col);
    quad ab0 = __builtin_shuffle(a, b, (quad){0, 4, 1, 5});
    quad ab1 = __builtin_shuffle(a, b, (quad){2, 6, 3, 7});
    quad cd0 = __builtin_shuffle(c, d, (quad){0, 4, 1, 5});
    quad cd1 = __builtin_shuffle(c, d, (quad){2, 6, 3, 7});
    quad_store(to, __builtin_shuffle(ab0, cd0, (quad){0, 1, 4, 5}));
    quad_store(to + to_row, __builtin_shuffle(ab0, cd0, (quad){2, 3, 6, 7}));
    quad_store(to + 2 * to_row,
               __builtin_shuffle(ab1, cd1, (quad){0, 1, 4, 5}));
    quad_store(to + 3 * to_row,
               __builtin_shuffle(ab1, cd1, (quad){2, 3, 6, 7}));
}

typedef uint16_t octet __attribute__((vector_size(16)));

/* Eight rows of eight columns, of 16 bits. Interleaving a vector with that
 * four after it rotates the bits of (vector, place) by one: three times swap
 * the two. */
static void
turn_octet(uint16_t *to, int64_t to_row, const uint16_t *from, int64_t from_col)
{
    octet v[8], w[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        memcpy(&v[k], from + k * from_col, sizeof v[k]);
#pragma GCC unroll 3
    for (int step = 0; step < 3; step++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            w[2 * k] = __builtin_shuffle(v[k], v[k + 4],
                                         (octet){0, 8, 1, 9, 2, 10, 3, 11});
            w[2 * k + 1] = __builtin_shuffle(
                v[k], v[k + 4], (octet){4, 12, 5, 13, 6, 14, 7, 15});
        }
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++)
            v[k] = w[k];
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        memcpy(to + k * to_row, &v[k], sizeof v[k]);
}

/* Blocks of N x N elements, then the rows and the columns that are left. */
#define MOVE_BLOCKS(T, N, block)                                          \
    static void blocks_##T(char *to, int64_t to_row, const char *from,    \
                           int64_t from_col, int64_t rows, int64_t cols)  \
    {                                                                     \
        const int64_t high = rows & ~(int64_t)(N - 1);                    \
        const int64_t whole = cols & ~(int64_t)(N - 1);                   \
        T *d = (void *)to;                                                \
        const T *s = (const void *)from;                                  \
        for (int64_t j = 0; j < whole; j += N)                            \
            for (int64_t i = 0; i < high; i += N)                         \
                block(d + i * to_row + j, to_row, s + i + j * from_col,   \
                      from_col);                                          \
        turn_##T((char *)(d + high * to_row), to_row,                     \
                 (const char *)(s + high), from_col, rows - high, whole); \
        turn_##T((char *)(d + whole), to_row,                             \
                 (const char *)(s + whole * from_col), from_col, rows,    \
                 cols - whole);                                           \
    }
MOVE_BLOCKS(uint16_t, 8, turn_octet)
MOVE_BLOCKS(uint32_t, 4, turn_quad)

static void
move_turned(char *to, int64_t to_row, const char *from, int64_t from_col,
            size_t bytes, int64_t rows, int64_t cols)
{
    switch (bytes) {
    case 1: turn_uint8_t(to, to_row, from, from_col, rows, cols); break;
    case 2: blocks_uint16_t(to, to_row, from, from_col, rows, cols); break;
    case 4: blocks_uint32_t(to, to_row, from, from_col, rows, cols); break;
    default: turn_uint64_t(to, to_row, from, from_col, rows, cols); break;
    }
}

/* Rows of a block: what is read lies along them, so the more the better, as
 * long as the lines that are written stay in the cache. */
static int64_t
turn_rows(int64_t cols, int64_t bytes)
{
    return cols < SHORT             ? TURN_SHORT
           : cols * bytes <= NARROW ? TURN_NARROW
                                    : TURN;
}

/* Rows that are short runs; of a few bytes, without a call for each. */
#define RUNS(n)                                           \
    case n:                                               \
        for (int64_t i = 0; i < rows; i++)                \
            memcpy(to + i * to_step, from + i * step, n); \
        break;
static void
move_runs(char *to, int64_t to_step, const char *from, int64_t step,
          size_t bytes, int64_t rows)
{
    switch (bytes) {
        RUNS(4)
        RUNS(8)
        RUNS(12)
        RUNS(16)
        RUNS(20)
        RUNS(24)
        RUNS(32)
        RUNS(40)
        RUNS(48)
        RUNS(64)
    default:
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * to_step, from + i * step, bytes);
    }
}
#undef RUNS

/* Each element of a column `cols` times, one after the other, in vectors that
 * reach into the rows behind, which are written later; the last rows end where
 * they do. */
#define EACH(T)                                                            \
    typedef T each_##T##s __attribute__((vector_size(16)));                \
    static void each_##T(T *to, const T *from, int64_t step, int64_t rows, \
                         int64_t cols)                                     \
    {                                                                      \
        enum { N = 16 / sizeof(T) };                                       \
        const int64_t vectors = (cols + N - 1) / N;                        \
        const int64_t last = rows - (vectors * N + cols - 1) / cols;       \
        for (int64_t i = 0; i <= last; i++) {                              \
            const each_##T##s all = from[i * step] - (each_##T##s){0};     \
            for (int64_t v = 0; v < vectors; v++)                          \
                memcpy(to + i * cols + v * N, &all, sizeof all);           \
        }                                                                  \
        for (int64_t i = last < 0 ? 0 : last + 1; i < rows; i++)           \
            for (int64_t j = 0; j < cols; j++)                             \
                to[i * cols + j] = from[i * step];                         \
    }
EACH(uint8_t)
EACH(uint16_t)
EACH(uint32_t)
EACH(uint64_t)
#undef EACH

static void
repeat_each(void *to, const void *from, int64_t step, size_t bytes,
            int64_t rows, int64_t cols)
{
    switch (bytes) {
    case 1: each_uint8_t(to, from, step, rows, cols); break;
    case 2: each_uint16_t(to, from, step, rows, cols); break;
    case 4: each_uint32_t(to, from, step, rows, cols); break;
    default: each_uint64_t(to, from, step, rows, cols); break;
    }
}

void
region_move(const tile_set *set, char *to, int64_t to_row, int64_t to_col,
            const char *from, int64_t from_row, int64_t from_col, size_t bytes,
            int64_t rows, int64_t cols)
{
    const int64_t size = (int64_t)bytes;
    if (to_col == 1 && from_col == 1) {
        move_runs(to, to_row * size, from, from_row * size,
                  (size_t)cols * bytes, rows);
    } else if (to_col == 1 && from_row == 1 && from_col != 0) {
        const int64_t high = turn_rows(cols, size);
        for (int64_t i = 0; i < rows; i += high)
            move_turned(to + i * to_row * size, to_row, from + i * size,
                        from_col, bytes, rows - i < high ? rows - i : high,
                        cols);
    } else if (to_row == 1 && from_col == 1) {
        const int64_t high = turn_rows(rows, size);
        for (int64_t j = 0; j < cols; j += high)
            move_turned(to + j * to_col * size, to_col, from + j * size,
                        from_row, bytes, cols - j < high ? cols - j : high,
                        rows);
    } else if (to_col == 1 && from_col == 0 && to_row == cols && cols > 0 &&
               cols <= SHORT) {
        repeat_each(to, from, from_row, bytes, rows, cols);
    } else if (cols < SHORT && cols < rows) {
        for (int64_t j = 0; j < cols; j++)
            (*set->moves)[bytes](to + j * to_col * size, to_row,
                                 from + j * from_col * size, from_row, rows);
    } else {
        for (int64_t i = 0; i < rows; i++)
            (*set->moves)[bytes](to + i * to_row * size, to_col,
                                 from + i * from_row * size, from_col, cols);
    }
}

/* ---- whole regions ---- */

bool
region_is_copy(const air_region *rg)
{
    const air_rg_node *load = &rg->nodes[0], *store = &rg->nodes[1];
    if (rg->walk != AIR_WALK_MAP || rg->nnodes != 2 ||
        load->op != AIR_RG_LOAD || store->op != AIR_RG_STORE ||
        load->buf == store->buf)
        return false;
    const air_rg_buf *from = &rg->bufs[load->buf], *to = &rg->bufs[store->buf];
    return from->dtype == to->dtype && !from->scratch && !to->scratch;
}

/* A region as blocks of its last two axes. */
typedef struct {
    const cpu_region *r;
    int from, to; /* buffers */
    int64_t rows, cols, from_row, to_row, from_col, to_col;
    int64_t high, wide; /* of a block */
} block_plan;

static block_plan
plan_blocks(const cpu_region *r)
{
    block_plan b = {.r = r,
                    .from = r->rg->nodes[0].buf,
                    .to = r->rg->nodes[1].buf,
                    .rows = r->rank > 1 ? r->dims[r->rank - 2] : 1,
                    .cols = r->cols};
    b.from_col = r->strides[b.from][r->rank - 1];
    b.to_col = r->strides[b.to][r->rank - 1];
    b.from_row = r->rank > 1 ? r->strides[b.from][r->rank - 2] : 0;
    b.to_row = r->rank > 1 ? r->strides[b.to][r->rank - 2] : 0;
    bool dense = b.from_col == 1 && b.to_col == 1;
    b.wide = dense ? ROW_SPAN : SPAN;
    b.high = dense && b.cols > 0 ? 1 + ROW_SPAN / 16 / b.cols
                                 : turn_rows(b.cols, (int64_t)r->bytes[b.to]);
    return b;
}

static void
copy_block(region_run *run, const block_plan *b, int64_t outer, int64_t row,
           int64_t col)
{
    const int64_t size = (int64_t)b->r->bytes[b->to];
    region_run_seek(run, b->r->rank - 1, outer * b->rows + row);
    region_move(b->r->set, run->base[b->to] + col * b->to_col * size, b->to_row,
                b->to_col, run->base[b->from] + col * b->from_col * size,
                b->from_row, b->from_col, (size_t)size,
                b->rows - row < b->high ? b->rows - row : b->high,
                b->cols - col < b->wide ? b->cols - col : b->wide);
}

/* Threads split the blocks. */
void
region_copy(region_run *run)
{
    const block_plan b = plan_blocks(run->r);
    const int64_t down = (b.rows + b.high - 1) / b.high;
    const int64_t across = (b.cols + b.wide - 1) / b.wide;
    int64_t begin, end;
    if (b.rows == 0 || b.cols == 0)
        return;
    air_split(run->r->rows / b.rows * down * across, run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++)
        copy_block(run, &b, unit / (down * across),
                   unit / across % down * b.high, unit % across * b.wide);
}
