/* gemm.c: how a matrix product is cut up: which side lies in the lanes, which
 * thread does what, and the blocks that keep panels in the caches. */
#include "driver/cpu/product/gemm_ask.h"
#include "driver/cpu/product/gemm_core.h"
#include "driver/cpu/product/gemm_few.h"
#include "driver/cpu/product/gemm_plan.h"
#include "driver/cpu/product/gemm_split.h"

#include <string.h>

#define CHUNK_BYTES   ((int64_t)16 << 20)  /* of panels at most, if K allows */
#define CACHE_BYTES   ((int64_t)768 << 10) /* of panels in a core's cache */
#define PANEL_BYTES   ((int64_t)512 << 10) /* of these, beside w that streams */
#define STRIP_LANES   128 /* packed at once by a thread for itself */
#define ROWS_OF_PANEL 128 /* of w, that a panel is made for in pieces */
#define LINE_PANELS   4   /* of lines for who takes them */
#define W_TILE        (16 * GEMM_WB) /* rows of one tile */
#define MANY_ROWS     14             /* of a tile */
#define SHARED        64 /* floats: steps that far apart share sets of the cache */

/* ---- panels and threads -------------------------------------------------- */

/* Lanes whose panels are made at once. */
static int64_t
chunk_lanes(const gemm_job *job)
{
    int64_t most = CHUNK_BYTES / (4 * (job->k > 0 ? job->k : 1));
    most = most / GEMM_NB * GEMM_NB;
    return min64(round_up(job->nx, GEMM_LANES_MAX), most > 0 ? most : GEMM_NB);
}

static void
team_barrier(const gemm_team *team)
{
    if (team->count > 1)
        team->task->barrier(team->task);
}

/* ---- blocks -------------------------------------------------------------- */

/* A run of memory that will be packed next. */
typedef struct {
    const char *p, *end;
    int64_t step; /* bytes that a step of k asks for */
} coming;

/* Panels of lanes [l0, ...) of y, and what one thread needs to use them. */
typedef struct {
    const gemm_job *job;
    const gemm_ops *ops;
    float *panels;
    int64_t l0;
    float *acc, *wblock, *rest; /* rest: [lane][k] of the last lanes */
    coming *next;               /* NULL: nothing, or nobody knows */
} work;

/* Of `count` lanes from l on, those that are no part of a vector. */
static int64_t
rest_of(const gemm_job *job, int64_t l, int64_t count)
{
    return l + count == job->nx ? gemm_rest_lanes(job) : 0;
}

static int64_t
k_parts(const gemm_job *job)
{
    int64_t most = job->longest > 0 ? job->longest : GEMM_KB;
    return (job->k + most - 1) / most;
}

static void
pack_at(const work *w, float *dst, int64_t l, int64_t nl, int64_t k0,
        int64_t k1)
{
    if (w->job->pack != NULL)
        w->job->pack(w->job->pack_arg, dst, l, nl, k0, k1);
    else
        w->ops->pack_x(dst, &w->job->x, l, nl, k0, k1);
}

/* Where steps of k share sets of the nearest cache, a block of GEMM_KB does not
 * stay there: it comes from the second one, in time for tiles of many rows. */
static bool
comes_in_time(const gemm_ops *ops, int64_t ks)
{
    return ops->rows >= MANY_ROWS || ks % SHARED != 0;
}

/* Is the panel from lane l on read where x lies? */
static bool
lies(const work *w, int64_t l)
{
    return gemm_x_in_place(w->job) && l + w->ops->lanes <= w->job->nx &&
           comes_in_time(w->ops, w->job->x.ks);
}

/* A panel from some k on: floats from one step to the next. */
typedef struct {
    const float *p;
    int64_t step;
} panel_view;

/* packed: where it is if it does not lie in x */
static panel_view
panel_at(const work *w, int64_t l, int64_t k0, const float *packed)
{
    const gemm_view *x = &w->job->x;
    if (!lies(w, l))
        return (panel_view){packed, w->ops->lanes};
    return (panel_view){(const float *)x->p + l + k0 * x->ks, x->ks};
}

static void
pack_panel(const work *w, int64_t panel, int64_t k0, int64_t k1)
{
    int64_t lanes = w->ops->lanes, l = w->l0 + panel * lanes;
    if (lies(w, l))
        return;
    pack_at(w, w->panels + (panel * w->job->k + k0) * lanes, l,
            min64(lanes, w->job->nx - l), k0, k1);
}

#define TOGETHER 16 /* steps of k that panels are packed side by side */

/* Adjacent lanes of x that are packed next: each step of k is on a page of its
 * own, which the hardware's prefetcher does not look at. */
static void
ask_for_lanes(const work *w, int64_t panel, int64_t k0, int64_t k1)
{
    const gemm_view *v = &w->job->x;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2, lanes = w->ops->lanes;
    int64_t l = w->l0 + panel * lanes, n = min64(lanes, w->job->nx - l);
    const char *p = (const char *)v->p + l * size;
    for (int64_t k = k0; k < min64(k1, w->job->k); k++)
        for (int64_t i = 0; i < n * size; i += 64)
            __builtin_prefetch(p + k * v->ks * size + i);
}

/* Panels [b, e). Where lanes are adjacent in memory, a row of x is read across
 * panels before the next one: panel by panel every line is on another page. */
static void
pack_panels(const work *w, int64_t b, int64_t e, int64_t k0, int64_t k1)
{
    bool across = w->job->pack == NULL && w->job->x.rs == 1;
    int64_t step = across ? TOGETHER : k1 - k0;
    for (int64_t k = k0; k < k1; k += step)
        for (int64_t i = b; i < e; i++) {
            if (across && !lies(w, w->l0 + i * w->ops->lanes))
                ask_for_lanes(w, i, k + step, k + 2 * step);
            pack_panel(w, i, k, min64(k + step, k1));
        }
}

/* Is w? */
static bool
w_lies(const gemm_job *job, const gemm_ops *ops)
{
    const gemm_view *v = &job->w;
    return gemm_w_in_place(v) && (v->ks == 1 || comes_in_time(ops, v->ks));
}

/* A few rows of w, [r, r + nr), and where k is. */
typedef struct {
    int64_t r, nr, k0, k1;
} piece;

/* w as the kernel takes it: where it lies, or copied. */
static const float *
place_w(const work *w, const piece *at, int64_t *rs, int64_t *ks)
{
    const gemm_view *v = &w->job->w;
    *rs = v->rs, *ks = v->ks;
    if (w_lies(w->job, w->ops))
        return (const float *)v->p + at->r * *rs + at->k0 * *ks;
    w->ops->pack_w(w->wblock, v, at->r, at->r + at->nr, at->k0, at->k1, rs, ks);
    return w->wblock;
}

static gemm_ahead
nothing_ahead(const work *w)
{
    return gemm_ahead_of(w->panels, 0);
}

/* The share of a tile of `steps` of k. */
static gemm_ahead
take_share(const work *w, int64_t steps)
{
    const gemm_ahead share = gemm_ahead_of(w->next->p, w->next->step);
    if (w->next->p >= w->next->end)
        return nothing_ahead(w);
    w->next->p += steps * w->next->step;
    return share;
}

/* What of w comes after tile t of the piece, for panel i of n: each asks for
 * its share, since the CPU waits for no more than a few lines at a time. Long
 * rows: the tile behind it; one run of memory follows the other, and each step
 * of k asks for its share. Columns: the next steps of k, a line of each. */
static gemm_ahead
find_rows(const work *w, const piece *at, int64_t t, int64_t i, int64_t n)
{
    const gemm_view *v = &w->job->w;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2, k = w->job->k;
    const bool wraps = at->k1 + (at->k1 - at->k0) > k;
    int64_t r = at->r, step = v->ks * size, next = at->k1 * step + t * 64;
    if (v->ks == 1 && at->nr <= w->ops->rows && v->rs == k) {
        r += at->nr;
        step = (at->nr * size + n - 1) / n;
        next = at->k0 * at->nr * size + i * step * (at->k1 - at->k0);
    } else if (v->ks == 1 || i > 0) {
        return nothing_ahead(w); /* no run of memory; all asked for */
    } else if (wraps) {
        r += at->nr;
        next = t * 64;
    }
    if (r + at->nr > w->job->nw)
        return nothing_ahead(w);
    return gemm_ahead_of((const char *)v->p + r * v->rs * size + next, step);
}

/* The same, and what will be packed, which every other panel asks for. */
static gemm_ahead
find_ahead(const work *w, const piece *at, int64_t t, int64_t i, int64_t n)
{
    if (w->next == NULL)
        return find_rows(w, at, t, i, n);
    if (i % 2 != 0)
        return take_share(w, at->k1 - at->k0);
    return find_rows(w, at, t, i / 2, (n + 1) / 2);
}

/* Rows of w where they lie, or copied: of a tile. */
typedef struct {
    const float *p;
    int64_t rs, ks, nr;
} tile_rows;

/* acc's last lanes of a panel, from lane `lane` on (+)= the dot products. */
static void
add_rest(const work *w, float *acc, int64_t lane, int64_t count,
         const tile_rows *rows, const piece *at)
{
    float t[REST_MAX * GEMV_NB];
    w->ops->dots_near(t, count, w->rest + at->k0, w->job->k, rows->nr, rows->p,
                      rows->rs, at->k1 - at->k0);
    for (int64_t r = 0; r < rows->nr; r++)
        for (int64_t i = 0; i < count; i++) {
            float *a = acc + r * w->ops->lanes + lane + i;
            *a = (at->k0 == 0 ? 0 : *a) + t[i * GEMV_NB + r];
        }
}

/* acc (+)= `count` lanes from l on of a panel times the rows. */
static void
multiply_panel(const work *w, float *acc, int64_t l, int64_t count,
               const tile_rows *rows, const piece *at, const gemm_ahead *ahead)
{
    int64_t lanes = w->ops->lanes, rest = rest_of(w->job, l, count);
    const panel_view panel = panel_at(
        w, l, at->k0, w->panels + (l - w->l0) * w->job->k + at->k0 * lanes);
    if (count > rest)
        w->ops->tile(acc, rows->nr, panel.p, panel.step, count - rest, rows->p,
                     rows->rs, rows->ks, at->k1 - at->k0, at->k0 == 0, ahead);
    if (rest > 0)
        add_rest(w, acc, count - rest, rest, rows, at);
}

/* acc (+)= panels of lanes [l, l + nl) times the piece; acc holds panels of
 * acc_rows rows. */
static void
multiply(const work *w, float *acc, int64_t acc_rows, int64_t l, int64_t nl,
         const piece *at)
{
    int64_t lanes = w->ops->lanes, most = w->ops->rows, rs, ks;
    int64_t tiles = (at->nr + most - 1) / most;
    int64_t panels = (nl + lanes - 1) / lanes;
    const float *src = place_w(w, at, &rs, &ks);
    for (int64_t t = 0; t < tiles; t++) { /* even sizes: no thin last one */
        int64_t b = at->nr * t / tiles, e = at->nr * (t + 1) / tiles;
        const tile_rows rows = {src + b * rs, rs, ks, e - b};
        for (int64_t i = 0; i < nl; i += lanes) {
            const int64_t count = min64(lanes, nl - i);
            if (at->k0 == 0)
                cpu_gemm_ask_ends(w->job, l + i, count, at->r + b, rows.nr);
            const gemm_ahead ahead = find_ahead(w, at, t, i / lanes, panels);
            multiply_panel(w, acc + i * acc_rows + b * lanes, l + i, count,
                           &rows, at, &ahead);
        }
    }
}

/* The same of all of k, panel by panel: sums stay in the nearest cache. For w
 * in place, rows of one tile, and lines along lanes. */
static void
multiply_whole(const work *w, float *acc, int64_t l, int64_t nl, int64_t r,
               int64_t nr)
{
    int64_t lanes = w->ops->lanes, k = w->job->k, parts = k_parts(w->job);
    int64_t panels = (nl + lanes - 1) / lanes;
    for (int64_t i = 0; i < nl; i += lanes) {
        cpu_gemm_ask_lines(w->job, l + i, r, nr);
        for (int64_t p = 0; p < parts; p++) {
            piece at = {r, nr, k * p / parts, k * (p + 1) / parts};
            tile_rows rows = {.nr = nr};
            rows.p = place_w(w, &at, &rows.rs, &rows.ks);
            const gemm_ahead ahead = find_ahead(w, &at, 0, i / lanes, panels);
            multiply_panel(w, acc + i * nr, l + i, min64(lanes, nl - i), &rows,
                           &at, &ahead);
        }
    }
}

static void
multiply_parts(const work *w, float *acc, int64_t acc_rows, int64_t l,
               int64_t nl, int64_t r, int64_t nr)
{
    int64_t k = w->job->k, parts = k_parts(w->job);
    for (int64_t i = 0; i < parts; i++) {
        piece at = {r, nr, k * i / parts, k * (i + 1) / parts};
        multiply(w, acc, acc_rows, l, nl, &at);
    }
}

/* Few long rows meet all lanes before the next ones do: so w comes from memory
 * as one stream, and the panels from the cache. Columns are read side by side,
 * but for short ones, which stay in the cache. Lines along lanes leave as soon
 * as their sums are done. */
static void
block_run(const work *w, int64_t l, int64_t nl, int64_t r, int64_t nr)
{
    int64_t k = w->job->k, most = w->ops->rows;
    int64_t lanes = round_up(nl, w->ops->lanes);
    bool in_place = w_lies(w->job, w->ops);
    bool straight = w->job->yl == 1;
    bool brief = in_place && k_parts(w->job) == 1;
    bool stream = w->job->w.ks == 1 || (brief && straight);
    bool soon = stream && straight;
    int64_t pieces = stream ? (nr + most - 1) / most : 1;
    if (k == 0)
        memset(w->acc, 0, (size_t)(lanes * nr) * sizeof *w->acc);
    for (int64_t t = 0; t < pieces; t++) {
        int64_t b = nr * t / pieces, e = nr * (t + 1) / pieces;
        if (soon && in_place)
            multiply_whole(w, w->acc, l, nl, r + b, e - b);
        else if (soon)
            multiply_parts(w, w->acc, e - b, l, nl, r + b, e - b);
        else
            multiply_parts(w, w->acc + b * w->ops->lanes, nr, l, nl, r + b,
                           e - b);
        if (soon)
            w->ops->finish(w->job, w->acc, e - b, l, nl, r + b, e - b);
    }
    if (!soon)
        w->ops->finish(w->job, w->acc, nr, l, nl, r, nr);
}

/* Where part i of n rows begins: rows of y leave in whole lines of the cache.
 */
static int64_t
part_begin(int64_t n, int64_t i, int64_t parts)
{
    return min64(n, round_up(n * i / parts, PLAN_LANES));
}

/* Panels that are made here stay in the cache next to w, which then is read
 * once for each block of lanes; else w is read once. */
static int64_t
block_lanes(const gemm_job *job)
{
    int64_t unit = GEMM_LANES_MAX, most = PANEL_BYTES / 4 / (job->k + 1);
    if (job->pack == NULL)
        return GEMM_NB;
    return min64(GEMM_NB, most < 2 * unit ? 2 * unit : most / unit * unit);
}

/* Lanes whose panels a thread makes at once for itself alone. Few: the next
 * ones come from memory meanwhile, and deep ones stay in the cache. */
static int64_t
strip_lanes(const gemm_job *job)
{
    return job->pack == NULL ? STRIP_LANES : block_lanes(job);
}

/* The last lanes of the panels, lane by lane. */
static void
turn_rest(const work *w, int64_t l0, int64_t l1)
{
    int64_t rest = rest_of(w->job, l0, l1 - l0), lanes = w->ops->lanes;
    int64_t k = w->job->k, first = l1 - rest - w->l0;
    const float *panel = w->panels + first / lanes * lanes * k + first % lanes;
    for (int64_t l = 0; l < rest; l++)
        for (int64_t i = 0; i < k; i++)
            w->rest[l * k + i] = panel[i * lanes + l];
}

/* Of a block: whole tiles and whole vectors. */
static int64_t
block_rows(const gemm_ops *ops)
{
    int64_t whole = ops->rows;
    while (whole % PLAN_LANES != 0)
        whole += ops->rows;
    return GEMM_MB / whole * whole;
}

/* ---- deep products: panels that are more than the cache ------------------ */

/* Rows [r, r + nr) and parts [p0, p1) of the depth. */
typedef struct {
    int64_t r, nr, p0, p1;
} deep_piece;

static int64_t
part_of_depth(const gemm_job *job, int64_t part)
{
    return job->k * part / k_parts(job);
}

/* Of the rows that come next, what one of `calls` tiles asks for in `steps` of
 * k: each row is as many runs of memory as there are calls for it. */
static gemm_ahead
share_of(const work *w, const deep_piece *next, int64_t call, int64_t calls,
         int64_t steps)
{
    const gemm_view *v = &w->job->w;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2;
    const int64_t runs = next->nr > 0 ? calls / next->nr : 0;
    if (call >= runs * next->nr)
        return nothing_ahead(w);
    const int64_t begin = part_of_depth(w->job, next->p0);
    const int64_t end = part_of_depth(w->job, next->p1);
    const int64_t bytes = (end - begin) * size / runs;
    const int64_t at = (next->r + call / runs) * v->rs + begin;
    return gemm_ahead_of((const char *)v->p + at * size + call % runs * bytes,
                         (bytes + steps - 1) / steps);
}

/* acc (+)= panels of lanes [l, l + nl) times rows of one tile. */
static void
multiply_deep(const work *w, float *acc, int64_t acc_rows, int64_t l,
              int64_t nl, const deep_piece *of, const deep_piece *next)
{
    const int64_t lanes = w->ops->lanes, panels = (nl + lanes - 1) / lanes;
    const int64_t calls = panels * (of->p1 - of->p0);
    int64_t call = 0;
    for (int64_t p = of->p0; p < of->p1; p++) {
        const piece at = {of->r, of->nr, part_of_depth(w->job, p),
                          part_of_depth(w->job, p + 1)};
        tile_rows rows = {.nr = at.nr};
        rows.p = place_w(w, &at, &rows.rs, &rows.ks);
        for (int64_t i = 0; i < nl; i += lanes, call++) {
            const gemm_ahead ahead =
                share_of(w, next, call, calls, at.k1 - at.k0);
            multiply_panel(w, acc + i * acc_rows, l + i, min64(lanes, nl - i),
                           &rows, &at, &ahead);
        }
    }
}

/* Turn i of a block: tile after tile, then the next parts of the depth. */
static deep_piece
deep_turn(const work *w, int64_t i, int64_t chunks, int64_t r, int64_t nr)
{
    const int64_t tiles = (nr + w->ops->rows - 1) / w->ops->rows;
    const int64_t t = i % tiles, c = i / tiles, parts = k_parts(w->job);
    const int64_t b = nr * t / tiles, e = nr * (t + 1) / tiles;
    return (deep_piece){r + b, c < chunks ? e - b : 0, parts * c / chunks,
                        parts * (c + 1) / chunks};
}

/* What of the panels stays in the cache meets all rows before more does. */
static void
block_deep(const work *w, int64_t l, int64_t nl, int64_t r, int64_t nr)
{
    const int64_t lanes = round_up(nl, w->ops->lanes);
    const int64_t bytes = lanes * w->job->k * 4;
    const int64_t chunks =
        min64(k_parts(w->job), (bytes + CACHE_BYTES - 1) / CACHE_BYTES);
    deep_piece now = deep_turn(w, 0, chunks, r, nr);
    for (int64_t i = 1; now.nr > 0; i++) {
        const deep_piece next = deep_turn(w, i, chunks, r, nr);
        multiply_deep(w, w->acc + (now.r - r) * w->ops->lanes, nr, l, nl, &now,
                      &next);
        now = next;
    }
    for (int64_t b = 0; b < nr; b += GEMM_MB)
        w->ops->finish(w->job, w->acc + b * w->ops->lanes, nr, l, nl, r + b,
                       min64(GEMM_MB, nr - b));
}

static bool
is_deep(const gemm_job *job, int64_t lanes)
{
    return job->w.ks == 1 && lanes * job->k * 4 > CACHE_BYTES;
}

/* Lanes [l0, l1) of the panels, as many of the rows [r0, r1) at once as there
 * is room for their sums. */
static void
deep_run(const work *w, int64_t l0, int64_t l1, int64_t r0, int64_t r1)
{
    const int64_t nb = block_lanes(w->job), whole = block_rows(w->ops);
    const int64_t floats =
        ALL_FLOATS - W_TILE - (gemm_rest_lanes(w->job) > 0 ? REST_FLOATS : 0);
    work mine = *w;
    mine.wblock = w->acc + floats;
    for (int64_t l = l0; l < l1; l += nb) {
        const int64_t nl = min64(l1 - l, nb);
        const int64_t mb = floats / round_up(nl, w->ops->lanes) / whole * whole;
        for (int64_t r = r0; r < r1; r += mb)
            block_deep(&mine, l, nl, r, min64(r1 - r, mb));
    }
}

/* ---- blocks and threads -------------------------------------------------- */

/* Lanes [l0, l1) of the panels, rows [r0, r1). */
static void
blocks_run(const work *w, int64_t l0, int64_t l1, int64_t r0, int64_t r1)
{
    turn_rest(w, l0, l1);
    int64_t mb = block_rows(w->ops), nb = block_lanes(w->job);
    int64_t outer = w->job->pack != NULL ? nb : l1;
    if (is_deep(w->job, min64(l1 - l0, nb))) {
        deep_run(w, l0, l1, r0, r1);
        return;
    }
    for (int64_t from = l0; from < l1; from += outer)
        for (int64_t r = r0; r < r1; r += mb) {
            int64_t to = min64(l1, from + outer);
            for (int64_t l = from; l < to; l += nb)
                block_run(w, l, min64(to - l, nb), r, min64(r1 - r, mb));
        }
}

/* Threads share the panels and split the rows. */
static void
chunk_by_rows(const work *w, int64_t lanes, const gemm_team *team)
{
    int64_t parts = k_parts(w->job), k = w->job->k, nw = w->job->nw;
    int64_t panels = (lanes + w->ops->lanes - 1) / w->ops->lanes;
    int64_t items = panels * parts;
    int64_t b = items * team->id / team->count;
    int64_t e = items * (team->id + 1) / team->count;
    for (int64_t i = b, next; i < e; i = next) {
        int64_t part = i / panels, p = i % panels;
        next = min64(e, (part + 1) * panels);
        pack_panels(w, p, p + next - i, k * part / parts,
                    k * (part + 1) / parts);
    }
    team_barrier(team);
    b = part_begin(nw, team->id, team->count);
    e = part_begin(nw, team->id + 1, team->count);
    blocks_run(w, w->l0, w->l0 + lanes, b, e);
}

/* Panels [b, e) of a chunk, made here, times rows [r0, r1). */
static void
strip_run(const work *w, int64_t lanes, int64_t b, int64_t e, int64_t r0,
          int64_t r1)
{
    const int64_t unit = w->ops->lanes;
    work mine = *w;
    mine.l0 = w->l0 + b * unit;
    pack_panels(&mine, 0, e - b, 0, w->job->k);
    blocks_run(&mine, mine.l0, min64(w->l0 + e * unit, w->l0 + lanes), r0, r1);
}

/* Rows of x behind each other in memory that panels [b, e) are made of, while
 * `rows` of w meet as many panels: of these every other one asks. */
static coming
coming_of(const work *w, int64_t lanes, int64_t b, int64_t e, int64_t rows)
{
    const gemm_view *v = &w->job->x;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2, unit = w->ops->lanes;
    const int64_t l0 = b * unit, l1 = min64(e * unit, lanes);
    const int64_t steps = max64(1, rows / w->ops->rows * (e - b) / 2) * v->rs;
    const char *p = (const char *)v->p + (w->l0 + l0) * v->rs * size;
    const int64_t bytes = (l1 - l0) * v->rs * size;
    if (l0 >= l1 || v->ks != 1 || v->rs != w->job->k || w->job->pack != NULL)
        return (coming){0};
    return (coming){p, p + bytes, min64(64, (bytes + steps - 1) / steps)};
}

/* Every thread has panels of its own, a few at a time and again and again in
 * the same place, while what the next ones are made of comes from memory. A
 * panel between two threads is made by both, for some of the rows each. */
static void
chunk_by_lanes(const work *w, int64_t lanes, const gemm_team *team)
{
    const int64_t nw = w->job->nw, unit = w->ops->lanes;
    const gemm_sheet sheet = {lanes, rest_of(w->job, w->l0, lanes), nw,
                              (int)unit, w->ops->rows};
    gemm_place at = gemm_place_of(&sheet, team->id, team->count);
    const gemm_place end = gemm_place_of(&sheet, team->id + 1, team->count);
    const int64_t ends = end.panel + (end.row > 0);
    const int64_t most = strip_lanes(w->job) / unit;
    work mine = *w;
    mine.panels = w->panels + (at.panel + team->id) * unit * w->job->k;
    while (at.panel < end.panel) {
        const bool whole = at.row == 0;
        const int64_t to = min64(at.panel + (whole ? most : 1), end.panel);
        coming next =
            coming_of(w, lanes, to, min64(to + most, ends), nw - at.row);
        mine.next = next.p != NULL ? &next : NULL;
        strip_run(&mine, lanes, at.panel, to, at.row, nw);
        at = (gemm_place){to, 0};
    }
    mine.next = NULL;
    if (at.row < end.row)
        strip_run(&mine, lanes, at.panel, at.panel + 1, at.row, end.row);
}

/* The lines of adjacent lanes that are packed next: one of each step for a tile
 * or, where there are tiles enough, of half of the steps, since the CPU waits
 * for no more than a few lines at a time. */
static gemm_ahead
next_panel(const work *w, int64_t l, const piece *at, int64_t t, int64_t tiles)
{
    const gemm_job *job = w->job;
    const gemm_view *v = &job->x;
    const int64_t size = v->dtype == AIR_F32 ? 4 : 2, lanes = w->ops->lanes;
    const int64_t lines = lanes * size / 64, step = v->ks * size;
    const int64_t halves = tiles >= 2 * lines ? 2 : 1, kc = at->k1 - at->k0;
    int64_t k = at->k1;
    if (v->rs != 1 || job->pack != NULL || t >= halves * lines)
        return nothing_ahead(w);
    if (k == job->k)
        k = 0, l += lanes;
    if (l + lanes > job->nx || k + kc > job->k)
        return nothing_ahead(w);
    const char *p = (const char *)v->p + l * size + t / halves * 64;
    p += (k + t % halves * (kc / 2)) * step;
    return halves == 1 ? gemm_ahead_of(p, step) : (gemm_ahead){p, step / 2, 0};
}

/* Few rows use a panel up while a block of its depth is in the nearest cache:
 * it is made there, again and again in the same place. */
static void
panel_run(const work *w, float *acc, int64_t l, int64_t nl)
{
    const gemm_job *job = w->job;
    int64_t most = w->ops->rows, tiles = (job->nw + most - 1) / most;
    int64_t k = job->k, parts = k_parts(job), rs, ks;
    for (int64_t p = 0; p < parts; p++) {
        piece at = {0, job->nw, k * p / parts, k * (p + 1) / parts};
        const float *src = place_w(w, &at, &rs, &ks);
        const panel_view panel = panel_at(w, l, at.k0, w->panels);
        if (!lies(w, l))
            pack_at(w, w->panels, l, nl, at.k0, at.k1);
        for (int64_t t = 0; t < tiles; t++) {
            int64_t b = job->nw * t / tiles, e = job->nw * (t + 1) / tiles;
            const gemm_ahead ahead = next_panel(w, l, &at, t, tiles);
            if (p + 1 == parts)
                cpu_gemm_ask_lines(job, l, b, e - b);
            w->ops->tile(acc + b * w->ops->lanes, e - b, panel.p, panel.step,
                         nl, src + b * rs, rs, ks, at.k1 - at.k0, p == 0,
                         &ahead);
        }
    }
}

static bool
takes_panels(const gemm_job *job, const gemm_ops *ops)
{
    return job->nw <= ROWS_OF_PANEL && job->k > 0 && job->yl == 1 &&
           w_lies(job, ops) && gemm_rest_lanes(job) == 0;
}

/* Threads split the panels. Who takes lines is called for those of a few. */
static void
panels_run(const work *w, const gemm_team *team)
{
    const gemm_job *job = w->job;
    const int64_t unit = w->ops->lanes, units = (job->nx + unit - 1) / unit;
    const int64_t e = units * (team->id + 1) / team->count * unit;
    const int64_t some = job->lines != NULL ? LINE_PANELS * unit : unit;
    work mine = *w;
    mine.panels = w->wblock;
    for (int64_t l = units * team->id / team->count * unit; l < e; l += some) {
        const int64_t n = min64(some, min64(e, job->nx) - l);
        for (int64_t i = 0; i < n; i += unit)
            panel_run(&mine, w->acc + i * job->nw, l + i, min64(unit, n - i));
        w->ops->finish(job, w->acc, job->nw, l, n, 0, job->nw);
    }
}

static void
blocked_run(const gemm_job *job, const gemm_ops *ops, const gemm_team *team)
{
    work w = {.job = job,
              .ops = ops,
              .panels = team->panels,
              .acc = team->scratch,
              .wblock = team->scratch + ACC_FLOATS,
              .rest = team->scratch + ACC_FLOATS + W_FLOATS};
    int64_t chunk = chunk_lanes(job);
    bool by_rows = gemm_splits_rows(job, team->count);
    if (!by_rows && takes_panels(job, ops)) {
        panels_run(&w, team);
        return;
    }
    for (; w.l0 < job->nx; w.l0 += chunk) {
        int64_t lanes = min64(chunk, job->nx - w.l0);
        if (w.l0 > 0)
            team_barrier(team); /* the panels of before are in use */
        if (by_rows)
            chunk_by_rows(&w, lanes, team);
        else
            chunk_by_lanes(&w, lanes, team);
    }
}

/* ---- entry points -------------------------------------------------------- */

void
cpu_gemm_run(const gemm_job *job, const gemm_ops *ops, const gemm_team *team)
{
    gemm_job t = cpu_gemm_turned(job);
    if (job->nx == 0 || job->nw == 0)
        return;
    if (cpu_gemm_is_thin(job)) {
        cpu_gemm_thin(job, ops, team);
    } else if (cpu_gemm_is_dots(job)) {
        cpu_gemm_dots(job, ops, team);
    } else if (cpu_gemm_is_dots(&t)) {
        cpu_gemm_dots(&t, ops, team);
    } else if (cpu_gemm_is_stream(job)) {
        cpu_gemm_streams(job, ops, team);
    } else if (cpu_gemm_is_stream(&t)) {
        cpu_gemm_streams(&t, ops, team);
    } else {
        t = gemm_plan(job);
        blocked_run(&t, ops, team);
    }
}

size_t
cpu_gemm_workspace(const gemm_job *job, int threads)
{
    gemm_job t = cpu_gemm_turned(job);
    int64_t floats;
    if (job->nx == 0 || job->nw == 0)
        return 0;
    if (cpu_gemm_is_thin(job)) {
        floats = 0;
    } else if (cpu_gemm_is_dots(job)) {
        floats = cpu_gemm_dots_in_place(job) ? 0 : job->nx * job->k;
    } else if (cpu_gemm_is_dots(&t)) {
        floats = cpu_gemm_dots_in_place(&t) ? 0 : t.nx * t.k;
    } else if (cpu_gemm_is_stream(job) || cpu_gemm_is_stream(&t)) {
        floats = 0;
    } else {
        t = gemm_plan(job);
        floats = gemm_panel_lanes(chunk_lanes(&t), threads) * t.k;
    }
    return (size_t)round_up(floats * 4, 64);
}
