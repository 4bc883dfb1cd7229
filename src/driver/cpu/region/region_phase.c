/* region_phase.c: one phase on a span of a row. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

static int64_t
row_stride(const cpu_region *r, int b)
{
    return r->rank < 2 ? 0 : r->strides[b][r->rank - 2];
}

/* Are rows of the folded axis one run in all that phase 0 reads and writes, and
 * is there no code for it? Tiles may take some at once then. */
static bool
lies_flat(const cpu_region *r)
{
    const air_rg_phase *p = &r->rg->phases[0];
    if (r->rg->walk != AIR_WALK_OUTER || r->phases[0].fn != NULL ||
        r->cols * AIR_RG_FEW_ROWS >
            (r->tile < TILE_CHUNK ? r->tile : TILE_CHUNK))
        return false;
    for (int i = p->begin; i < p->end; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if (n->op == AIR_RG_INDEX || n->op == AIR_RG_SCALAR ||
            n->op == AIR_RG_SET)
            return false;
        if ((n->op == AIR_RG_LOAD || n->op == AIR_RG_STORE) &&
            (r->rg->bufs[n->buf].scratch ||
             region_inner_stride(r, n->buf) != 1 ||
             row_stride(r, n->buf) != r->cols))
            return false;
    }
    return true;
}

void
region_run_init(region_run *run, const cpu_region *r, const air_task *task)
{
    memset(run, 0, sizeof *run);
    run->r = r;
    run->task = task;
    run->mem =
        r->thread_bytes > AIR_SCRATCH
            ? (char *)task->workspace + r->thread_bytes * (size_t)task->id
            : task->scratch;
    for (int s = 0; s < r->rg->nscalars; s++)
        run->acc[s] = run->mem + r->acc[s];
    run->flat = lies_flat(r);
    run->columns = r->across || r->rg->walk == AIR_WALK_OUTER;
    for (int b = 0; b < r->rg->nbufs; b++) {
        const bool scratch = r->rg->bufs[b].scratch;
        run->inner[b] = scratch ? 1 : region_inner_stride(r, b);
        run->steps[b] = scratch ? 0 : row_stride(r, b) * (int64_t)r->bytes[b];
    }
    for (int i = 0; r->uses_tiles && i < r->rg->nnodes; i++) {
        const air_rg_node *n = &r->rg->nodes[i];
        if (n->op != AIR_RG_CONST)
            continue;
        air_scalar v = {.i = n->i};
        if (n->lane == AIR_LANE_F32)
            v.f = (float)n->k;
        if (n->lane == AIR_LANE_B)
            v.b = n->i != 0;
        (*r->set->fills)[n->lane](run->mem + r->tiles[i], &v, r->tile);
    }
}

static void
place_row(region_run *run, int axes)
{
    const cpu_region *r = run->r;
    for (int b = 0; b < r->rg->nbufs; b++) {
        const air_rg_buf *buf = &r->rg->bufs[b];
        int64_t at = 0;
        if (buf->scratch) {
            run->base[b] =
                (buf->scratch == AIR_RG_SUMS ? run->sums : run->mem) +
                r->row[b];
            continue;
        }
        for (int a = 0; a < axes; a++)
            at += run->index[a] * r->strides[b][a];
        run->base[b] = (char *)run->task->slots[buf->slot] + buf->offset +
                       at * (int64_t)r->bytes[b];
    }
}

void
region_run_seek(region_run *run, int axes, int64_t row)
{
    for (int a = axes - 1; a >= 0; a--) {
        run->index[a] = row % run->r->dims[a];
        row /= run->r->dims[a];
    }
    place_row(run, axes);
}

void
region_run_next(region_run *run, int axes)
{
    const cpu_region *r = run->r;
    int a = axes - 1;
    if (a < 0)
        return;
    if (++run->index[a] == r->dims[a]) {
        while (a > 0 && run->index[a] == r->dims[a]) {
            run->index[a] = 0;
            run->index[--a]++;
        }
        if (run->index[a] < r->dims[a])
            place_row(run, axes);
        return;
    }
    for (int b = 0; b < r->rg->nbufs; b++)
        if (!r->rg->bufs[b].scratch)
            run->base[b] += r->strides[b][a] * (int64_t)r->bytes[b];
}

static void *
element(const region_run *run, int b, int64_t i)
{
    return run->base[b] + i * run->inner[b] * (int64_t)run->r->bytes[b];
}

/* ---- tile loops ---- */

/* The value of a node: a tile, or the buffer from element `begin` on. */
static char *
tile_of(const region_run *run, int node, int64_t begin)
{
    uint32_t at = run->r->tiles[node];
    return at & REGION_DIRECT ? element(run, (int)(at & ~REGION_DIRECT), begin)
                              : run->mem + at;
}

/* Rows of a span, `bytes` apart, in the order in which they would be folded one
 * by one. */
static void
fold_lines(region_run *run, const air_rg_node *n, tile_reduce_fn each,
           const char *a, int64_t rows, size_t bytes)
{
    const cpu_region *r = run->r;
    char *acc = run->acc[n->buf], *few = acc + region_acc_row(r);
    for (int64_t i = 0; i < rows; i++, a += bytes) {
        if (run->fours && i % AIR_RG_FEW_ROWS == 0)
            region_acc_init(r, n->buf, few, run->line);
        each(run->fours ? few : acc, a, run->line);
        if (run->fours &&
            (i % AIR_RG_FEW_ROWS == AIR_RG_FEW_ROWS - 1 || i == rows - 1))
            (*r->set->eachs)[n->reduce][n->lane](acc, few, run->line);
    }
}

static void
tile_reduce(region_run *run, const air_rg_node *n, const void *a, int64_t at,
            int64_t count)
{
    const cpu_region *r = run->r;
    const air_rg_node *from = &r->rg->nodes[n->a];
    tile_narrow fn = {(*r->set->folds)[n->reduce][n->lane],
                      (*r->set->eachs)[n->reduce][n->lane], NULL, NULL};
    char *acc = run->acc[n->buf];
    const bool direct =
        from->op == AIR_RG_LOAD && r->tiles[n->a] & REGION_DIRECT;
    if (direct && r->rg->bufs[from->buf].dtype != AIR_I64 &&
        n->lane == AIR_LANE_I64)
        fn = (*r->set->narrow)[n->reduce][r->rg->bufs[from->buf].dtype];
    const size_t bytes = direct ? r->bytes[from->buf] : tile_lane_size(n->lane);
    if (run->line > 0) {
        fold_lines(run, n, fn.each, a, count / run->line,
                   (size_t)run->line * bytes);
        return;
    }
    if (run->columns)
        fn.each(acc + (size_t)at * tile_lane_size(n->lane), a, count);
    else
        fn.fold(acc, a, count);
}

static void
tile_scalar(region_run *run, const air_rg_node *n, void *d, int64_t at,
            int64_t count)
{
    size_t size = tile_lane_size(n->lane);
    if (run->columns)
        memcpy(d, (char *)run->acc[n->buf] + (size_t)at * size,
               (size_t)count * size);
    else
        (*run->r->set->fills)[n->lane](d, &run->scalars[n->buf], count);
}

static void
tile_index(region_run *run, const air_rg_node *n, int64_t *d, int64_t begin,
           int64_t count)
{
    int axis = run->r->axis_of[n->buf];
    bool vector = axis == run->r->rank - 1;
    int64_t at = axis < 0 ? 0 : vector ? begin : run->index[axis];
    for (int64_t i = 0; i < count; i++)
        d[i] = at + (vector ? i : 0);
}

static void
tile_set_scalar(region_run *run, const air_rg_node *n, const void *a,
                int64_t at, int64_t count)
{
    size_t size = tile_lane_size(n->lane);
    if (run->columns)
        memcpy((char *)run->acc[n->buf] + (size_t)at * size, a,
               (size_t)count * size);
    else
        memcpy(&run->scalars[n->buf], a, size);
}

static void
tile_compute(const region_run *run, const air_rg_node *n, void *d,
             int64_t begin, int64_t count)
{
    const cpu_region *r = run->r;
    const char *a = tile_of(run, n->a, begin);
    const char *b = n->b < 0 ? a : tile_of(run, n->b, begin);
    const char *c = n->c < 0 ? a : tile_of(run, n->c, begin);
    unsigned lane = n->lane, from = r->rg->nodes[n->a].lane;
    if (n->op == AIR_RG_CVT)
        (*r->set->cvts)[lane][from](d, a, count);
    else
        (*r->set->ops)[n->op][tile_is_compare(n->op) ? from : lane](d, a, b, c,
                                                                    count);
}

/* A zero among the divisors. */
static void
tile_divisors(const region_run *run, const int64_t *b, int64_t count)
{
    int zero = 0;
    for (int64_t i = 0; i < count; i++)
        zero |= b[i] == 0;
    if (zero)
        air_raise_division(run->task);
}

/* Elements [begin, begin + count) of the row; `at`: begin counted from the
 * element that acc belongs to. */
static void
tile_phase(region_run *run, int phase, int64_t begin, int64_t at, int64_t count)
{
    const cpu_region *r = run->r;
    const air_region *rg = r->rg;
    for (int i = rg->phases[phase].begin; i < rg->phases[phase].end; i++) {
        const air_rg_node *n = &rg->nodes[i];
        void *d = tile_of(run, i, begin);
        void *a = n->a < 0 ? NULL : tile_of(run, n->a, begin);
        switch (n->op) {
        case AIR_RG_CONST: break;
        case AIR_RG_LOAD:
            if (d != element(run, n->buf, begin))
                (*r->set->loads)[n->lane][rg->bufs[n->buf].dtype](
                    d, element(run, n->buf, begin), run->inner[n->buf], count);
            break;
        case AIR_RG_STORE:
            if (a != element(run, n->buf, begin))
                (*r->set->stores)[n->lane][rg->bufs[n->buf].dtype](
                    element(run, n->buf, begin), run->inner[n->buf], a, count);
            break;
        case AIR_RG_REDUCE: tile_reduce(run, n, a, at, count); break;
        case AIR_RG_SCALAR: tile_scalar(run, n, d, at, count); break;
        case AIR_RG_SET: tile_set_scalar(run, n, a, at, count); break;
        case AIR_RG_INDEX: tile_index(run, n, d, begin, count); break;
        case AIR_RG_IDIV:
        case AIR_RG_IMOD:
            tile_divisors(run, (int64_t *)tile_of(run, n->b, begin), count);
            tile_compute(run, n, d, begin, count);
            break;
        default: tile_compute(run, n, d, begin, count);
        }
    }
}

/* ---- machine code ---- */

/* Parts of pairs: those that are left are moved one by one. */
static uint32_t
stage_pairs(const region_run *run, uint32_t bufs, int64_t begin, int64_t n,
            int64_t rows, bool out)
{
    const cpu_region *r = run->r;
    for (uint32_t left = bufs & r->pairs; left; left &= left - 1) {
        const int b = __builtin_ctz(left), c = r->mate[b];
        char *parts[2] = {run->mem + r->stage[b], run->mem + r->stage[c]};
        region_move_pairs(r->set, element(run, b, begin), row_stride(r, b),
                          parts, REGION_BLOCK_COLS, r->bytes[b], rows, n, out);
        bufs &= ~(UINT32_C(1) << b | UINT32_C(1) << c);
    }
    return bufs;
}

static void
stage_in(const region_run *run, uint32_t bufs, int64_t begin, int64_t n,
         int64_t rows)
{
    const cpu_region *r = run->r;
    bufs = stage_pairs(run, bufs, begin, n, rows, false);
    for (int b = 0; b < r->rg->nbufs; b++)
        if (bufs >> b & 1)
            region_move(r->set, run->mem + r->stage[b], REGION_BLOCK_COLS, 1,
                        element(run, b, begin), row_stride(r, b), run->inner[b],
                        r->bytes[b], rows, n);
}

static void
stage_out(const region_run *run, uint32_t bufs, int64_t begin, int64_t n,
          int64_t rows)
{
    const cpu_region *r = run->r;
    bufs = stage_pairs(run, bufs, begin, n, rows, true);
    for (int b = 0; b < r->rg->nbufs; b++)
        if (bufs >> b & 1)
            region_move(r->set, element(run, b, begin), row_stride(r, b),
                        run->inner[b], run->mem + r->stage[b],
                        REGION_BLOCK_COLS, 1, r->bytes[b], rows, n);
}

void
region_run_code(region_run *run, air_phase_fn fn, void *const *ptrs, int64_t n,
                void *const *acc, int64_t rows)
{
    if (fn(ptrs, n, run->scalars, acc, rows, run->steps) != 0)
        air_raise_division(run->task);
}

static void
code_ptrs(const region_run *run, uint32_t staged, int64_t begin, void **ptrs)
{
    for (int b = 0; b < run->r->rg->nbufs; b++)
        ptrs[b] = staged >> b & 1 ? run->mem + run->r->stage[b]
                                  : element(run, b, begin);
}

int16_t
region_staged_span(const cpu_region *r, uint32_t staged)
{
    int64_t span = REGION_STAGE, bytes = 0;
    for (; staged; staged &= staged - 1)
        bytes += (int64_t)r->bytes[__builtin_ctz(staged)];
    while (span > REGION_SPAN && span * bytes > REGION_STAGED)
        span /= 2;
    return (int16_t)span;
}

/* n <= span: buffers that machine code cannot walk go through a dense
 * copy. */
static void
code_staged(region_run *run, int phase, int64_t begin, int64_t n,
            void *const *acc)
{
    const cpu_region *r = run->r;
    const region_phase *ph = &r->phases[phase];
    void *ptrs[AIR_RG_MAX_BUFS];
    code_ptrs(run, ph->staged_in | ph->staged_out, begin, ptrs);
    stage_in(run, ph->staged_in, begin, n, 1);
    region_run_code(run, ph->fn, ptrs, n, acc, 1);
    stage_out(run, ph->staged_out, begin, n, 1);
}

static void
code_acc(const region_run *run, int64_t at, void **acc)
{
    const cpu_region *r = run->r;
    for (int s = 0; s < r->rg->nscalars; s++)
        acc[s] = (char *)run->acc[s] +
                 (run->columns ? (size_t)at * tile_lane_size(r->lane[s]) : 0);
}

void
region_run_span(region_run *run, int phase, int64_t begin, int64_t n)
{
    const cpu_region *r = run->r;
    const region_phase *ph = &r->phases[phase];
    bool staged = (ph->staged_in | ph->staged_out) != 0;
    if (ph->fn != NULL && !staged && begin == 0) {
        region_run_code(run, ph->fn, (void *const *)run->base, n, run->acc, 1);
        return;
    }
    if (ph->fn != NULL && !staged) {
        void *ptrs[AIR_RG_MAX_BUFS];
        code_ptrs(run, 0, begin, ptrs);
        region_run_code(run, ph->fn, ptrs, n, run->acc, 1);
        return;
    }
    int64_t step = ph->fn != NULL ? ph->span
                   : ph->narrow   ? n
                   : ph->folds    ? TILE_CHUNK
                                  : r->tile;
    for (int64_t at = 0; at < n; at += step) {
        int64_t count = n - at < step ? n - at : step;
        if (ph->fn != NULL) {
            void *acc[AIR_RG_MAX_SCALARS];
            code_acc(run, at, acc);
            code_staged(run, phase, begin + at, count, acc);
        } else {
            tile_phase(run, phase, begin + at, at, count);
        }
    }
}

void
region_run_rows(region_run *run, int phase, int64_t begin, int64_t n,
                int64_t rows)
{
    void *ptrs[AIR_RG_MAX_BUFS];
    code_ptrs(run, 0, begin, ptrs);
    region_run_code(run, run->r->phases[phase].fn, ptrs, n, run->acc, rows);
}

/* The next row of a block: staged buffers are rows of the block. */
static void
next_ptrs(const cpu_region *r, uint32_t staged, void **ptrs)
{
    for (int b = 0; b < r->rg->nbufs; b++) {
        int64_t step = staged >> b & 1 ? REGION_BLOCK_COLS : row_stride(r, b);
        ptrs[b] = (char *)ptrs[b] + step * (int64_t)r->bytes[b];
    }
}

static void
code_block(region_run *run, int64_t begin, int64_t n, int64_t rows)
{
    const cpu_region *r = run->r;
    const region_phase *ph = &r->phases[0];
    void *ptrs[AIR_RG_MAX_BUFS];
    uint32_t staged = ph->staged_in | ph->staged_out;
    code_ptrs(run, staged, begin, ptrs);
    stage_in(run, ph->staged_in, begin, n, rows);
    for (int64_t i = 0; i < rows; i++) {
        region_run_code(run, ph->fn, ptrs, n, run->acc, 1);
        next_ptrs(r, staged, ptrs);
    }
    stage_out(run, ph->staged_out, begin, n, rows);
}

void
region_run_block(region_run *run, int64_t begin, int64_t n, int64_t rows)
{
    if (run->r->phases[0].fn != NULL) {
        code_block(run, begin, n, rows);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        region_run_span(run, 0, begin, n);
        if (i + 1 < rows)
            region_run_next(run, run->r->rank - 1);
    }
}
