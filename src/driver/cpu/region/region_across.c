/* region_across.c: INNER regions with short rows, many rows at a time.
 *
 * A block of rows is turned: its columns lie one after another, so that code
 * which runs along a column computes one element of every row. Scalars of the
 * rows are columns too. Where axes of rows are short, a block lies along
 * several of them, and a table says where its rows are in a buffer. Partial
 * results are the columns of a row, element i going into number i % 64, and
 * they are folded by the tree of the kernel ABI; partial results that a short
 * row does not have are the identity, which the tree need not add. */
#include <string.h>

#include "driver/cpu/region/region_plan.h"

typedef struct {
    region_run *run;
    int64_t rows;
    char *home[AIR_RG_MAX_BUFS];   /* element 0 of the first row */
    char *at[AIR_RG_MAX_BUFS];     /* column 0 as code sees it */
    int64_t step[AIR_RG_MAX_BUFS]; /* bytes between columns */
    uint32_t turned;               /* buffers that hold what memory holds */
} row_block;

static int64_t
column_stride(const cpu_region *r, int b)
{
    return r->rg->bufs[b].scratch ? 1 : r->strides[b][r->rank - 1];
}

static void
open_block(row_block *k, region_run *run, int64_t row, int64_t rows)
{
    const cpu_region *r = run->r;
    *k = (row_block){.run = run, .rows = rows};
    region_run_seek(run, r->rank - 1, row);
    for (int b = 0; b < r->rg->nbufs; b++) {
        const bool scratch = r->rg->bufs[b].scratch;
        const int64_t bytes = (int64_t)r->bytes[b];
        k->home[b] = k->at[b] = run->base[b];
        run->inner[b] = 1;
        k->step[b] = column_stride(r, b) == 0 ? 0 : rows * bytes;
        if (!scratch && region_is_direct(r, b)) {
            run->inner[b] = r->strides[b][r->rank - 2];
            k->step[b] = column_stride(r, b) * bytes;
        } else if (!scratch) {
            k->at[b] = run->mem + r->stage[b];
        }
    }
}

/* ---- turning ---- */

static bool
is_turned(const cpu_region *r, int b)
{
    return !r->rg->bufs[b].scratch && !region_is_direct(r, b);
}

static int64_t
columns_of(const cpu_region *r, int b)
{
    return column_stride(r, b) == 0 ? 1 : r->cols;
}

/* Where the rows of a block lie in the buffer; NULL: at one stride. */
static const int64_t *
places_of(const cpu_region *r, int b)
{
    return r->places == NULL ? NULL : r->places + b * r->block;
}

/* A column of rows that lie apart, to one that is dense, or back. */
#define COLUMNS(T)                                                   \
    static void gather_##T(T *to, const T *from, const int64_t *at,  \
                           int64_t rows)                             \
    {                                                                \
        for (int64_t i = 0; i < rows; i++)                           \
            to[i] = from[at[i]];                                     \
    }                                                                \
    static void scatter_##T(T *to, const T *from, const int64_t *at, \
                            int64_t rows)                            \
    {                                                                \
        for (int64_t i = 0; i < rows; i++)                           \
            to[at[i]] = from[i];                                     \
    }
COLUMNS(uint8_t)
COLUMNS(uint16_t)
COLUMNS(uint32_t)
COLUMNS(uint64_t)
#undef COLUMNS

static void
turn_column(char *apart, char *dense, const int64_t *at, int64_t rows,
            size_t bytes, bool out)
{
    void *a = apart, *d = dense;
    switch (bytes) {
#define CASE(n, T)                                                      \
    case n:                                                             \
        out ? scatter_##T(a, d, at, rows) : gather_##T(d, a, at, rows); \
        break;
        CASE(1, uint8_t)
        CASE(2, uint16_t)
        CASE(4, uint32_t)
    default:
        out ? scatter_uint64_t(a, d, at, rows)
            : gather_uint64_t(d, a, at, rows);
#undef CASE
    }
}

/* The same of rows that lie N side by side, or are one number. */
#define LINES(T, N)                                                      \
    static void lines_##T##_##N(T *to, const T *from, const int64_t *at, \
                                int64_t rows, bool same)                 \
    {                                                                    \
        for (int64_t i = 0; i < rows && !same; i += N)                   \
            memcpy(to + i, from + at[i], N * sizeof(T));                 \
        for (int64_t i = 0; i < rows && same; i += N) {                  \
            const T value = from[at[i]];                                 \
            for (int j = 0; j < N; j++)                                  \
                to[i + j] = value;                                       \
        }                                                                \
    }
LINES(uint32_t, 2)
LINES(uint32_t, 3)
LINES(uint32_t, 4)
LINES(uint64_t, 2)
LINES(uint64_t, 3)
LINES(uint64_t, 4)
#undef LINES

/* False: they do not lie so. */
static bool
gather_lines(const cpu_region *r, int b, char *dense, const char *apart,
             const int64_t *at, int64_t rows)
{
    const int64_t line = r->dims[r->rank - 2],
                  step = r->strides[b][r->rank - 2];
    const void *from = apart;
    void *to = dense;
    if (step != 0 && step != 1)
        return false;
    switch (line * 16 + (int64_t)r->bytes[b]) {
#define CASE(T, N)                                      \
    case N * 16 + sizeof(T):                            \
        lines_##T##_##N(to, from, at, rows, step == 0); \
        return true;
        CASE(uint32_t, 2)
        CASE(uint32_t, 3)
        CASE(uint32_t, 4)
        CASE(uint64_t, 2)
        CASE(uint64_t, 3)
        CASE(uint64_t, 4)
#undef CASE
    default: return false;
    }
}

static void
turn(const row_block *k, int b, bool out)
{
    const cpu_region *r = k->run->r;
    const int64_t down = r->strides[b][r->rank - 2], cols = columns_of(r, b);
    const int64_t right = column_stride(r, b);
    const int64_t *places = places_of(r, b);
    const int64_t bytes = (int64_t)r->bytes[b];
    if (places == NULL && out)
        region_move(r->set, k->home[b], down, right, k->at[b], 1, k->rows,
                    r->bytes[b], k->rows, cols);
    else if (places == NULL)
        region_move(r->set, k->at[b], k->rows, 1, k->home[b], right, down,
                    r->bytes[b], cols, k->rows);
    for (int64_t c = 0; c < cols && places != NULL; c++) {
        char *apart = k->home[b] + c * right * bytes;
        char *dense = k->at[b] + c * k->rows * bytes;
        if (out || !gather_lines(r, b, dense, apart, places, k->rows))
            turn_column(apart, dense, places, k->rows, r->bytes[b], out);
    }
}

static void
turn_in(row_block *k, uint32_t bufs)
{
    const cpu_region *r = k->run->r;
    for (int b = 0; b < r->rg->nbufs; b++)
        if (bufs >> b & 1 && !(k->turned >> b & 1) && is_turned(r, b))
            turn(k, b, false);
    k->turned |= bufs;
}

static void
turn_out(row_block *k, uint32_t bufs)
{
    const cpu_region *r = k->run->r;
    for (int b = 0; b < r->rg->nbufs; b++)
        if (bufs >> b & 1 && is_turned(r, b))
            turn(k, b, true);
    k->turned |= bufs;
}

/* ---- phases ---- */

static char *
part(const row_block *k, int s, int64_t i)
{
    const cpu_region *r = k->run->r;
    return k->run->mem + r->acc[s] +
           (size_t)(i * k->rows) * tile_lane_size(r->lane[s]);
}

/* Columns that one call may take: all of them lie next to each other, each
 * with a partial result of its own. */
static int64_t
columns_at_once(const row_block *k, const region_phase *ph)
{
    const cpu_region *r = k->run->r;
    for (int b = 0; b < r->rg->nbufs; b++)
        if ((ph->loads | ph->stores) >> b & 1 &&
            (k->step[b] == 0 ||
             (!r->rg->bufs[b].scratch && region_is_direct(r, b))))
            return 1;
    return ph->reads_scalars ? 1 : ph->reduces ? TILE_PARTS : r->cols;
}

static void
run_columns(row_block *k, int p, int64_t cols)
{
    region_run *run = k->run;
    const cpu_region *r = run->r;
    const region_phase *ph = &r->phases[p];
    int64_t wide = columns_at_once(k, ph);
    for (int64_t col = 0; col < cols; col += wide) {
        int64_t n = cols - col < wide ? cols - col : wide;
        for (int b = 0; b < r->rg->nbufs; b++)
            run->base[b] = k->at[b] + col * k->step[b];
        for (int s = 0; s < r->rg->nscalars; s++)
            run->acc[s] =
                part(k, s, ph->reduces >> s & 1 ? col % TILE_PARTS : 0);
        region_run_span(run, p, 0, n * k->rows);
    }
}

static void
fold_parts(const row_block *k, int s)
{
    const cpu_region *r = k->run->r;
    int64_t left = region_parts(r);
    for (int64_t w = TILE_PARTS / 2; w > 0; w /= 2) {
        if (left <= w)
            continue;
        (*r->set->eachs)[r->reduce[s]][r->lane[s]](part(k, s, 0), part(k, s, w),
                                                   (left - w) * k->rows);
        left = w;
    }
}

/* Where rows are dense they need not be turned. */
static void
fold_rows(const row_block *k, int p)
{
    const cpu_region *r = k->run->r;
    const air_rg_node *load = &r->rg->nodes[r->rg->phases[p].begin];
    const int b = load->buf, s = load[1].buf;
    const int64_t *places = is_turned(r, b) ? places_of(r, b) : NULL;
    const int64_t line = places == NULL ? k->rows : r->dims[r->rank - 2];
    char *to = part(k, s, 0);
    for (int64_t i = 0, n; i < k->rows; i += n) {
        const int64_t at = places == NULL ? 0 : places[i];
        n = k->rows - i < line ? k->rows - i : line;
        r->phases[p].fold_rows(k->home[b] + at * (int64_t)r->bytes[b],
                               r->strides[b][r->rank - 2], n, r->cols,
                               to + (size_t)i * tile_lane_size(r->lane[s]));
    }
}

static void
run_phase(row_block *k, int p)
{
    const cpu_region *r = k->run->r;
    const region_phase *ph = &r->phases[p];
    bool once = r->rg->phases[p].kind == AIR_PHASE_SCALAR;
    if (ph->fold_rows != NULL) {
        fold_rows(k, p);
        return;
    }
    turn_in(k, ph->loads);
    for (int s = 0; s < r->rg->nscalars; s++)
        if (ph->reduces >> s & 1)
            region_acc_init(r, s, part(k, s, 0), region_parts(r) * k->rows);
    run_columns(k, p, once ? 1 : r->cols);
    for (int s = 0; s < r->rg->nscalars; s++)
        if (ph->reduces >> s & 1)
            fold_parts(k, s);
    turn_out(k, ph->stores);
}

/* Threads split the blocks. */
void
region_across(region_run *run)
{
    const cpu_region *r = run->r;
    const int64_t rows = region_flat_rows(r);
    const int64_t blocks = (rows + r->block - 1) / r->block;
    int64_t begin, end, held = 0; /* rows of the last block */
    if (r->rows == 0)
        return;
    air_split(r->rows / rows * blocks, run->task, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % blocks * r->block;
        row_block k;
        open_block(&k, run, unit / blocks * rows + first,
                   rows - first < r->block ? rows - first : r->block);
        k.turned = k.rows == held ? r->fixed : 0;
        held = k.rows;
        for (int p = 0; p < r->rg->nphases; p++)
            run_phase(&k, p);
    }
}
