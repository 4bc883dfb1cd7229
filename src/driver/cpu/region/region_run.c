/* region_run.c: the walks of a region and how threads share them. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

/* ---- MAP ---- */

/* The rows of the last axis but one that code takes at once, of `left` elements
 * from column `col` of the current row on. */
static int64_t
map_rows(const region_run *run, int64_t col, int64_t left)
{
    const cpu_region *r = run->r;
    if (r->all == NULL || col != 0 || r->rank < 2)
        return 0;
    const int64_t line = r->dims[r->rank - 2] - run->index[r->rank - 2];
    return left / r->cols < line ? left / r->cols : line;
}

/* Behind `rows` rows of a line, of which code has not moved the bases: where
 * the line ends, the next one is found without dividing. */
static void
pass_rows(region_run *run, int64_t rows, int64_t begin)
{
    const cpu_region *r = run->r;
    const int axis = r->rank - 2;
    if (run->index[axis] == 0 && rows == r->dims[axis])
        region_run_next(run, axis);
    else
        region_run_seek(run, axis + 1, begin / r->cols);
}

/* Threads split the elements at multiples of 64. */
static void
run_map(region_run *run)
{
    const cpu_region *r = run->r;
    int axes = r->rank - 1;
    int64_t total = r->rows * r->cols, begin, end;
    if (total == 0)
        return;
    air_split((total + 63) / 64, run->task, &begin, &end);
    begin *= 64;
    end = end * 64 < total ? end * 64 : total;
    if (begin >= end)
        return;
    int64_t col = begin % r->cols;
    region_run_seek(run, axes, begin / r->cols);
    while (begin < end) {
        const int64_t rows = map_rows(run, col, end - begin);
        if (rows > 1) {
            region_run_code(run, r->all, (void *const *)run->base, r->cols,
                            run->acc, rows);
            begin += rows * r->cols;
            if (begin < end)
                pass_rows(run, rows, begin);
            continue;
        }
        int64_t n = r->cols - col < end - begin ? r->cols - col : end - begin;
        region_run_span(run, 0, col, n);
        begin += n;
        col = 0;
        if (begin < end)
            region_run_next(run, axes);
    }
}

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t
at_most(int64_t a, int64_t limit)
{
    return a < limit ? a : limit;
}

/* Threads split the blocks of rows and columns. */
static void
run_map_blocked(region_run *run)
{
    const cpu_region *r = run->r;
    int64_t rows = r->dims[r->rank - 2], begin, end;
    int64_t across = ceil_div(r->cols, REGION_BLOCK_COLS);
    int64_t down = ceil_div(rows, REGION_BLOCK_ROWS);
    if (rows == 0)
        return;
    air_split(r->rows / rows * down * across, run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t outer = unit / (down * across);
        int64_t row = unit / across % down * REGION_BLOCK_ROWS;
        int64_t col = unit % across * REGION_BLOCK_COLS;
        region_run_seek(run, r->rank - 1, outer * rows + row);
        region_run_block(run, col, at_most(r->cols - col, REGION_BLOCK_COLS),
                         at_most(rows - row, REGION_BLOCK_ROWS));
    }
}

/* ---- folding chunks ---- */

/* Values are folded pairwise, in the order of a binary counter: chunk i is
 * merged with the entries of as many levels as i has trailing one bits. */
static int
merges(int64_t chunk)
{
    return __builtin_ctzll(~(unsigned long long)chunk);
}

typedef struct {
    int depth;
    air_scalar level[REGION_LEVELS];
} scalar_fold;

static void
fold_pair(const cpu_region *r, int s, air_scalar *a, const air_scalar *b)
{
    (*r->set->eachs)[r->reduce[s]][r->lane[s]](a, b, 1);
}

static void
fold_push(const cpu_region *r, int s, scalar_fold *f, int64_t chunk,
          air_scalar value)
{
    f->level[f->depth++] = value;
    for (int k = merges(chunk); k > 0; k--) {
        f->depth--;
        fold_pair(r, s, &f->level[f->depth - 1], &f->level[f->depth]);
    }
}

static air_scalar
fold_end(const cpu_region *r, int s, scalar_fold *f)
{
    while (f->depth > 1) {
        f->depth--;
        fold_pair(r, s, &f->level[f->depth - 1], &f->level[f->depth]);
    }
    return f->level[0];
}

/* ---- INNER ---- */

/* Partial results start at the identity; fold_parts leaves them so. */
static void
open_parts(region_run *run)
{
    const cpu_region *r = run->r;
    for (int p = 0; p < r->rg->nphases; p++)
        for (unsigned left = r->phases[p].reduces; left; left &= left - 1) {
            int s = __builtin_ctz(left);
            region_acc_init(r, s, run->acc[s], TILE_PARTS);
        }
}

/* Straight to where the value is read: in the lane's width, as it is read. */
static void
fold_parts(const region_run *run, int s, air_scalar *value)
{
    const cpu_region *r = run->r;
    (*r->set->trees)[r->reduce[s]][r->lane[s]](run->acc[s], &r->start[s],
                                               value);
}

/* Whole chunks of a phase that does nothing but fold are rows of a block; gives
 * how many there were. */
static int64_t
fold_chunks(const region_run *run, int phase, scalar_fold *folds)
{
    enum { BLOCK = 16 };
    const cpu_region *r = run->r;
    const air_rg_node *load = &r->rg->nodes[r->rg->phases[phase].begin];
    const size_t size = tile_lane_size(load->lane);
    const int s = load[1].buf;
    const int64_t whole =
        r->phases[phase].fold_rows == NULL ? 0 : r->cols / TILE_CHUNK;
    char values[BLOCK * sizeof(air_scalar)];
    for (int64_t k = 0, n; k < whole; k += n) {
        n = at_most(whole - k, BLOCK);
        r->phases[phase].fold_rows(run->base[load->buf] +
                                       k * TILE_CHUNK * (int64_t)size,
                                   TILE_CHUNK, n, TILE_CHUNK, values);
        for (int64_t i = 0; i < n; i++) {
            air_scalar v = {.i = 0};
            memcpy(&v, values + (size_t)i * size, size);
            fold_push(r, s, &folds[s], k + i, v);
        }
    }
    return whole;
}

/* A reducing phase over a row of several chunks. */
static void
run_chunks(region_run *run, int phase)
{
    const cpu_region *r = run->r;
    scalar_fold folds[AIR_RG_MAX_SCALARS];
    for (int s = 0; s < r->rg->nscalars; s++)
        folds[s].depth = 0;
    for (int64_t k = fold_chunks(run, phase, folds); k < region_chunks(r);
         k++) {
        int64_t at = k * TILE_CHUNK;
        region_run_span(run, phase, at, at_most(r->cols - at, TILE_CHUNK));
        for (unsigned left = r->phases[phase].reduces; left; left &= left - 1) {
            int s = __builtin_ctz(left);
            air_scalar v = {.i = 0};
            fold_parts(run, s, &v);
            fold_push(r, s, &folds[s], k, v);
        }
    }
    for (unsigned left = r->phases[phase].reduces; left; left &= left - 1) {
        int s = __builtin_ctz(left);
        run->scalars[s] = fold_end(r, s, &folds[s]);
    }
}

static void
run_row_phase(region_run *run, int phase)
{
    const cpu_region *r = run->r;
    unsigned reduces = r->phases[phase].reduces;
    if (reduces && r->cols > TILE_CHUNK && !r->phases[phase].narrow) {
        run_chunks(run, phase);
        return;
    }
    bool one = r->rg->phases[phase].kind == AIR_PHASE_SCALAR;
    region_run_span(run, phase, 0, one ? 1 : r->cols);
    for (; reduces; reduces &= reduces - 1) {
        int s = __builtin_ctz(reduces);
        fold_parts(run, s, &run->scalars[s]);
    }
}

/* One call for the rows that lie along the last axis of them. */
static void
call_rows(region_run *run, int64_t begin, int64_t end)
{
    const cpu_region *r = run->r;
    const int64_t line = r->rank < 2 ? 1 : r->dims[r->rank - 2];
    int64_t n = at_most(end - begin, line - begin % line);
    region_run_seek(run, r->rank - 1, begin);
    while (begin < end) {
        region_run_code(run, r->all, (void *const *)run->base, r->cols,
                        run->acc, n);
        begin += n;
        if (begin < end)
            pass_rows(run, n, begin * r->cols);
        n = at_most(end - begin, line);
    }
}

void
region_rows(region_run *run, int64_t begin, int64_t end)
{
    const cpu_region *r = run->r;
    if (begin >= end)
        return;
    open_parts(run);
    if (r->all != NULL) {
        call_rows(run, begin, end);
        return;
    }
    region_run_seek(run, r->rank - 1, begin);
    for (int64_t row = begin; row < end; row++) {
        for (int p = 0; p < r->row_phases; p++)
            run_row_phase(run, p);
        if (row + 1 < end)
            region_run_next(run, r->rank - 1);
    }
}

static void
run_rows(region_run *run)
{
    int64_t begin, end;
    air_split(run->r->rows, run->task, &begin, &end);
    region_rows(run, begin, end);
}

/* ---- INNER, threads sharing each row ---- */

static char *
partials(const region_run *run, int64_t unit, int64_t chunk, int k)
{
    const cpu_region *r = run->r;
    return (char *)run->task->workspace +
           region_own_bytes(r, run->task->count) +
           region_partial(r, unit, chunk, k);
}

/* This thread's chunks; then every thread folds all of them. */
static void
share_reduction(region_run *run, int phase, int unit)
{
    const cpu_region *r = run->r;
    int64_t begin, end;
    air_split(region_chunks(r), run->task, &begin, &end);
    for (int64_t c = begin; c < end; c++) {
        int64_t at = c * TILE_CHUNK;
        region_run_span(run, phase, at, at_most(r->cols - at, TILE_CHUNK));
        for (int s = 0, k = 0; s < r->rg->nscalars; s++) {
            if (!(r->phases[phase].reduces >> s & 1))
                continue;
            air_scalar v = {.i = 0};
            fold_parts(run, s, &v);
            memcpy(partials(run, unit, c, k++), &v, sizeof v);
        }
    }
    run->task->barrier(run->task);
    for (int s = 0, k = 0; s < r->rg->nscalars; s++) {
        if (!(r->phases[phase].reduces >> s & 1))
            continue;
        scalar_fold fold = {.depth = 0};
        for (int64_t c = 0; c < region_chunks(r); c++) {
            air_scalar v;
            memcpy(&v, partials(run, unit, c, k), sizeof v);
            fold_push(r, s, &fold, c, v);
        }
        run->scalars[s] = fold_end(r, s, &fold);
        k++;
    }
}

/* Every thread computes the scalars, thread 0 stores. */
static void
share_scalars(region_run *run, int phase)
{
    char *base[AIR_RG_MAX_BUFS];
    memcpy(base, run->base, sizeof base);
    if (run->task->id != 0)
        for (int b = 0; b < run->r->rg->nbufs; b++)
            if (run->r->phases[phase].stores >> b & 1)
                run->base[b] = run->mem + run->r->stage[b];
    region_run_span(run, phase, 0, 1);
    memcpy(run->base, base, sizeof base);
}

static void
share_columns(region_run *run, int phase)
{
    const cpu_region *r = run->r;
    int64_t begin, end;
    air_split(region_chunks(r), run->task, &begin, &end);
    begin *= TILE_CHUNK;
    end = end * TILE_CHUNK < r->cols ? end * TILE_CHUNK : r->cols;
    if (begin < end)
        region_run_span(run, phase, begin, end - begin);
}

/* Partial results alternate between two places, so that the barrier of the
 * next reduction protects those of this one. */
static void
run_shared_rows(region_run *run)
{
    const cpu_region *r = run->r;
    int unit = 0;
    open_parts(run);
    region_run_seek(run, r->rank - 1, 0);
    for (int64_t row = 0; row < r->rows; row++) {
        for (int p = 0; p < r->rg->nphases; p++) {
            if (r->rg->phases[p].kind == AIR_PHASE_SCALAR)
                share_scalars(run, p);
            else if (r->phases[p].reduces)
                share_reduction(run, p, unit ^= 1);
            else
                share_columns(run, p);
        }
        if (row + 1 < r->rows)
            region_run_next(run, r->rank - 1);
    }
}

/* ---- OUTER ---- */

/* acc[s] of the walk is a stack of rows, one per level of the fold. */
static void
outer_level(region_run *run, int level)
{
    const cpu_region *r = run->r;
    for (int s = 0; s < r->rg->nscalars; s++)
        run->acc[s] = run->mem + r->acc[s] + (size_t)level * region_acc_row(r);
}

static void
outer_merge(region_run *run, int *depth, int count, int64_t n)
{
    const cpu_region *r = run->r;
    for (; count > 0; count--) {
        --*depth;
        outer_level(run, *depth - 1);
        for (int s = 0; s < r->rg->nscalars; s++)
            if (r->phases[0].reduces >> s & 1)
                (*r->set->eachs)[r->reduce[s]][r->lane[s]](
                    run->acc[s], (char *)run->acc[s] + region_acc_row(r), n);
    }
}

static void
outer_init(region_run *run, int64_t n)
{
    const cpu_region *r = run->r;
    for (int s = 0; s < r->rg->nscalars; s++)
        if (r->phases[0].reduces >> s & 1)
            region_acc_init(r, s, run->acc[s], n);
}

/* The next `rows` of the reduced axis, one after the other. */
static void
outer_few(region_run *run, int64_t rows, int64_t col, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        if (i > 0)
            region_run_next(run, run->r->rank - 1);
        region_run_span(run, 0, col, n);
    }
}

/* Rows [begin, end) of the reduced axis that lie as one, some at once. */
static void
outer_flat(region_run *run, int64_t row, int64_t begin, int64_t end)
{
    const cpu_region *r = run->r;
    const int64_t fit = at_most(r->tile, TILE_CHUNK) / r->cols;
    const int64_t most = fit / AIR_RG_FEW_ROWS * AIR_RG_FEW_ROWS;
    run->fours = r->by_fours && end - begin > AIR_RG_FEW_ROWS;
    run->line = r->cols;
    for (int64_t i = begin; i < end; i += most) {
        region_run_seek(run, r->rank - 1, row * r->folded + i);
        region_run_span(run, 0, 0, at_most(end - i, most) * r->cols);
    }
    run->line = 0;
}

/* `rows` of the reduced axis from row `begin` on, nothing but folded. */
static void
outer_fold(region_run *run, int64_t row, int64_t begin, int64_t rows,
           int64_t col, int64_t n)
{
    const cpu_region *r = run->r;
    const air_rg_node *load = &r->rg->nodes[r->rg->phases[0].begin];
    const int b = load->buf;
    region_run_seek(run, r->rank - 1, row * r->folded + begin);
    r->phases[0].fold_columns(run->base[b] + col * (int64_t)r->bytes[b],
                              r->strides[b][r->rank - 2], rows, n,
                              run->acc[load[1].buf]);
}

/* Rows [begin, end) of the reduced axis into the acc rows of `level`, which is
 * current; a few at a time, in those above it. */
static void
outer_rows(region_run *run, int level, int64_t row, int64_t begin, int64_t end,
           int64_t col, int64_t n)
{
    const cpu_region *r = run->r;
    outer_init(run, n);
    if (begin >= end)
        return;
    region_run_seek(run, r->rank - 1, row * r->folded + begin);
    if (r->phases[0].rows) {
        region_run_rows(run, 0, col, n, end - begin);
        return;
    }
    if (run->flat) {
        outer_flat(run, row, begin, end);
        return;
    }
    if (end - begin <= AIR_RG_FEW_ROWS || !r->by_fours) {
        outer_few(run, end - begin, col, n);
        return;
    }
    for (int64_t i = begin; i < end; i += AIR_RG_FEW_ROWS) {
        int depth = level + 2;
        if (i > begin)
            region_run_next(run, r->rank - 1);
        outer_level(run, level + 1);
        outer_init(run, n);
        outer_few(run, at_most(end - i, AIR_RG_FEW_ROWS), col, n);
        outer_merge(run, &depth, 1, n);
    }
}

/* The rows of one chunk into the acc rows of `level`, which is current
 * afterwards; those above it are used. */
static void
outer_chunk(region_run *run, int level, int64_t row, int64_t chunk, int64_t col,
            int64_t n)
{
    const int64_t folded = run->r->folded;
    int64_t begin = chunk * REGION_OUTER_ROWS;
    int depth = level;
    if (run->r->phases[0].fold_columns != NULL && begin < folded) {
        outer_level(run, level);
        outer_fold(run, row, begin, at_most(folded - begin, REGION_OUTER_ROWS),
                   col, n);
        return;
    }
    for (int64_t k = 0; k < REGION_OUTER_ROWS / REGION_OUTER_SUM; k++) {
        int64_t end = begin + REGION_OUTER_SUM;
        outer_level(run, depth);
        outer_rows(run, depth++, row, begin, at_most(folded, end), col, n);
        outer_merge(run, &depth, merges(k), n);
        begin = end;
        if (begin >= folded)
            break;
    }
    outer_merge(run, &depth, depth - level - 1, n);
    outer_level(run, level);
}

static void
outer_block(const cpu_region *r, int64_t unit, int64_t *row, int64_t *col,
            int64_t *n)
{
    *row = unit / region_blocks(r);
    *col = unit % region_blocks(r) * r->tile;
    *n = r->cols - *col < r->tile ? r->cols - *col : r->tile;
}

static void
outer_finish(region_run *run, int64_t row, int64_t col, int64_t n)
{
    outer_level(run, 0);
    memset(run->index, 0, sizeof run->index);
    region_run_seek(run, run->r->rank - 2, row);
    region_run_span(run, 1, col, n);
}

/* The order of extremes of integers is free: all rows at once. */
static bool
is_free(const cpu_region *r)
{
    return r->phases[0].narrow && r->phases[0].fold_columns != NULL;
}

static void
outer_free(region_run *run, int64_t row, int64_t col, int64_t n)
{
    const cpu_region *r = run->r;
    outer_level(run, 0);
    if (r->folded == 0) {
        outer_init(run, n);
        return;
    }
    outer_fold(run, row, 0, r->folded, col, n);
}

static void
outer_unit(region_run *run, int64_t row, int64_t col, int64_t n)
{
    int depth = 0;
    for (int64_t k = 0; k == 0 || k < region_chunks(run->r); k++) {
        outer_chunk(run, depth++, row, k, col, n);
        outer_merge(run, &depth, merges(k), n);
    }
    outer_merge(run, &depth, depth - 1, n);
}

static void
run_columns(region_run *run)
{
    const cpu_region *r = run->r;
    const bool in_order = !is_free(r);
    int64_t begin, end, row, col, n;
    air_split(r->rows * region_blocks(r), run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        outer_block(r, unit, &row, &col, &n);
        if (in_order)
            outer_unit(run, row, col, n);
        else
            outer_free(run, row, col, n);
        outer_finish(run, row, col, n);
    }
}

/* ---- OUTER, threads sharing the reduced axis ---- */

static void
outer_copy(region_run *run, int64_t unit, int64_t chunk, int64_t n, bool save)
{
    const cpu_region *r = run->r;
    for (int s = 0, k = 0; s < r->rg->nscalars; s++) {
        if (!(r->phases[0].reduces >> s & 1))
            continue;
        size_t bytes = (size_t)n * tile_lane_size(r->lane[s]);
        char *p = partials(run, unit, chunk, k++);
        memcpy(save ? p : run->acc[s], save ? run->acc[s] : p, bytes);
    }
}

static void
run_shared_columns(region_run *run)
{
    const cpu_region *r = run->r;
    int64_t units = r->rows * region_blocks(r), chunks = region_chunks(r);
    int64_t begin, end, row, col, n;
    air_split(units * chunks, run->task, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        outer_block(r, i / chunks, &row, &col, &n);
        outer_chunk(run, 0, row, i % chunks, col, n);
        outer_copy(run, i / chunks, i % chunks, n, true);
    }
    run->task->barrier(run->task);
    air_split(units, run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int depth = 0;
        outer_block(r, unit, &row, &col, &n);
        for (int64_t k = 0; k < chunks; k++) {
            outer_level(run, depth++);
            outer_copy(run, unit, k, n, false);
            outer_merge(run, &depth, merges(k), n);
        }
        outer_merge(run, &depth, depth - 1, n);
        outer_finish(run, row, col, n);
    }
}

/* ---- entry ---- */

void
cpu_region_run(const air_call *call, const air_task *task)
{
    const cpu_region *r = call->extra;
    bool shares = region_shares(r, task->count);
    region_run run;
    region_run_init(&run, r, task);
    switch (r->rg->walk) {
    case AIR_WALK_MAP:
        if (r->copies)
            region_copy(&run);
        else if (r->spread)
            region_spread(&run);
        else if (r->blocked)
            run_map_blocked(&run);
        else
            run_map(&run);
        break;
    case AIR_WALK_INNER:
        if (r->across)
            region_across(&run);
        else if (r->sum_bytes > 0)
            region_columns(&run);
        else if (shares)
            run_shared_rows(&run);
        else
            run_rows(&run);
        break;
    default:
        if (shares)
            run_shared_columns(&run);
        else
            run_columns(&run);
    }
}

void
cpu_region_fence(const cpu_region *r)
{
#if defined(__x86_64__)
    if (r->rg->stream)
        __builtin_ia32_sfence();
#else
    (void)r;
#endif
}
