/* region_spread.c: MAP regions whose rows are short, as many rows as one.
 *
 * Coordinates of points, corners of boxes, channels of colours are rows of a
 * few elements, and what is broadcast along one of the axes keeps them apart.
 * Such a buffer is written out densely, a block of rows at a time, so that
 * code runs along the block; buffers that lie dense are used in place. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

enum { BLOCK = 2048, LEAST = 256, CACHE = 32768, TILE_ROW = 64 };

/* ---- planning ---- */

static bool
is_one_value(const cpu_region *r, int b)
{
    for (int a = 0; a < r->rank; a++)
        if (r->dims[a] > 1 && r->strides[b][a] != 0)
            return false;
    return true;
}

/* Rows along the last axis of them. */
static int64_t
line_of(const cpu_region *r)
{
    return r->dims[r->rank - 2];
}

/* The same in each block? Those are whole lines, or lines of blocks. */
static bool
is_pattern(const cpu_region *r, int b)
{
    const int last = line_of(r) <= r->block ? r->rank - 2 : r->rank - 1;
    for (int a = 0; a < last; a++)
        if (r->strides[b][a] != 0)
            return false;
    return true;
}

/* Code says whether it is for this; tile loops call a function for each node
 * and row, so that they gain from longer rows, too. */
static bool
may_spread(const cpu_region *r, bool choose)
{
    const air_region *rg = r->rg;
    bool good = rg->walk == AIR_WALK_MAP && r->rank > 1 && !r->copies &&
                r->cols > 0 &&
                (rg->spread ? r->cols <= BLOCK : choose && r->cols <= TILE_ROW);
    for (int i = 0; i < rg->nnodes; i++)
        good = good && rg->nodes[i].op != AIR_RG_INDEX;
    return good;
}

void
region_plan_spread(cpu_region *r, bool choose)
{
    const air_region *rg = r->rg;
    int64_t count = r->cols, elements = BLOCK;
    size_t bytes = 0;
    r->spread = may_spread(r, choose);
    if (!r->spread)
        return;
    r->flat = r->rank - 1;
    while (r->flat > 0 && count < BLOCK)
        count *= r->dims[--r->flat];
    for (int b = 0; b < rg->nbufs; b++) {
        if (is_one_value(r, b) || region_is_run(r, b, r->flat))
            continue;
        r->apart |= UINT32_C(1) << b;
        bytes += r->bytes[b];
    }
    while (elements > LEAST && bytes * (size_t)elements > CACHE)
        elements /= 2;
    r->block = elements < r->cols ? 1 : elements / r->cols;
    if (line_of(r) > 0 && line_of(r) <= r->block)
        r->block -= r->block % line_of(r);
    else
        r->block -= r->block > 16 ? r->block % 16 : 0;
}

int64_t
region_inner_stride(const cpu_region *r, int b)
{
    return !r->spread ? r->strides[b][r->rank - 1] : is_one_value(r, b) ? 0 : 1;
}

/* ---- running ---- */

/* Bytes from the first line of a block to the one at `index`, which becomes
 * the next one. */
static int64_t
next_line(const cpu_region *r, int b, int64_t *index)
{
    int64_t at = 0;
    for (int a = 0; a < r->rank - 2; a++)
        at += index[a] * r->strides[b][a];
    for (int a = r->rank - 3; a >= 0 && ++index[a] == r->dims[a]; a--)
        index[a] = 0;
    return at * (int64_t)r->bytes[b];
}

/* One row of two floats, or a larger number, again and again. */
static void
repeat_words(char *to, int64_t rows)
{
    uint64_t word;
    memcpy(&word, to, sizeof word);
    for (int64_t i = 1; i < rows; i++)
        memcpy(to + i * (int64_t)sizeof word, &word, sizeof word);
}

/* One row again and again, in pieces that grow. */
static void
repeat(char *to, int64_t bytes, int64_t rows)
{
    if (bytes == sizeof(uint64_t)) {
        repeat_words(to, rows);
        return;
    }
    for (int64_t done = 1, n; done < rows; done += n) {
        n = done < rows - done ? done : rows - done;
        memcpy(to + done * bytes, to, (size_t)(n * bytes));
    }
}

typedef struct {
    int64_t index[AIR_MAX_RANK]; /* of the first row, over the axes of rows */
    int64_t rows;
} row_block;

/* Rows that lie alike in memory, between `p` and a dense block; both parts of
 * pairs. */
static void
move_line(const region_run *run, int b, char *p, int64_t at, int64_t rows,
          bool out)
{
    const cpu_region *r = run->r;
    const int64_t cols = r->cols, down = r->strides[b][r->rank - 2];
    const int64_t right = r->strides[b][r->rank - 1];
    const int64_t bytes = (int64_t)r->bytes[b];
    char *dense = run->mem + r->stage[b] + at * cols * bytes;
    if (r->pairs >> b & 1) {
        char *mate = run->mem + r->stage[r->mate[b]] + at * cols * bytes;
        region_move_pairs(r->set, p, down, (char *[2]){dense, mate}, cols,
                          r->bytes[b], rows, cols, out);
    } else if (rows == 1 && right == 1 && !out) {
        memcpy(dense, p, (size_t)(cols * bytes));
    } else if (out) {
        region_move(r->set, p, down, right, dense, cols, 1, r->bytes[b], rows,
                    cols);
    } else {
        region_move(r->set, dense, cols, 1, p, down, right, r->bytes[b], rows,
                    cols);
    }
}

/* The first row of a dense block becomes all of them. */
static void
repeat_line(const region_run *run, int b, int64_t at, int64_t rows)
{
    const cpu_region *r = run->r;
    const int64_t row = r->cols * (int64_t)r->bytes[b];
    repeat(run->mem + r->stage[b] + at * row, row, rows);
    if (r->pairs >> b & 1)
        repeat(run->mem + r->stage[r->mate[b]] + at * row, row, rows);
}

/* Do all rows of a block lie as those of one line? */
static bool
is_one_line(const cpu_region *r, int b)
{
    bool one = r->strides[b][r->rank - 2] != 0;
    for (int a = r->flat; a < r->rank - 2; a++)
        one = one && r->strides[b][a] == r->strides[b][a + 1] * r->dims[a + 1];
    return one;
}

/* Rows of buffer b to (or from) a dense block, line by line. */
static void
move_rows(const region_run *run, int b, const row_block *k, bool out)
{
    const cpu_region *r = run->r;
    const int64_t line = line_of(r), down = r->strides[b][r->rank - 2];
    const bool whole = is_one_line(r, b);
    const air_rg_buf *buf = &r->rg->bufs[b];
    int64_t index[AIR_MAX_RANK], from = k->index[r->rank - 2];
    char *base = (char *)run->task->slots[buf->slot] + buf->offset;
    memcpy(index, k->index, sizeof index);
    for (int64_t at = 0, n; at < k->rows; at += n, from = 0) {
        char *p =
            base + next_line(r, b, index) + from * down * (int64_t)r->bytes[b];
        n = whole || k->rows - at < line - from ? k->rows - at : line - from;
        move_line(run, b, p, at, !out && down == 0 ? 1 : n, out);
        if (!out && down == 0)
            repeat_line(run, b, at, n);
    }
}

/* Those of a set without the second parts of pairs, which go with the first. */
static uint32_t
moved(const cpu_region *r, uint32_t bufs)
{
    for (uint32_t left = bufs & r->pairs; left; left &= left - 1)
        bufs &= ~(UINT32_C(1) << r->mate[__builtin_ctz(left)]);
    return bufs;
}

static void
run_block(region_run *run, int64_t row, int64_t n, bool first)
{
    const cpu_region *r = run->r;
    const region_phase *phase = &r->phases[0];
    row_block k = {.rows = n};
    region_run_seek(run, r->rank - 1, row);
    memcpy(k.index, run->index, sizeof k.index);
    for (uint32_t left = r->apart; left; left &= left - 1)
        run->base[__builtin_ctz(left)] =
            run->mem + r->stage[__builtin_ctz(left)];
    for (uint32_t left = moved(r, r->apart & phase->loads); left;
         left &= left - 1)
        if (first || !is_pattern(r, __builtin_ctz(left)))
            move_rows(run, __builtin_ctz(left), &k, false);
    region_run_span(run, 0, 0, n * r->cols);
    for (uint32_t left = moved(r, r->apart & phase->stores); left;
         left &= left - 1)
        move_rows(run, __builtin_ctz(left), &k, true);
}

/* Threads split the blocks. */
void
region_spread(region_run *run)
{
    const cpu_region *r = run->r;
    int64_t rows = 1, begin, end, most = 0;
    for (int a = r->flat; a < r->rank - 1; a++)
        rows *= r->dims[a];
    if (rows == 0 || r->rows == 0)
        return;
    const int64_t down = (rows + r->block - 1) / r->block;
    air_split(r->rows / rows * down, run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t at = unit % down * r->block;
        const int64_t n = rows - at < r->block ? rows - at : r->block;
        run_block(run, unit / down * rows + at, n, n > most);
        most = n > most ? n : most;
    }
}
