/* fuse.c: which neighbouring steps can be one launch. */
#include "driver/cuda/fuse.h"

#include <string.h>

#include "driver/cuda/kern_call.h"
#include "driver/cuda/touch.h"
#include "driver/dense.h"

/* ---- regions ------------------------------------------------------------- */

static bool
is_plain_lane(const air_rg_node *n)
{
    return n->lane == AIR_LANE_F32 || n->lane == AIR_LANE_B;
}

static bool
is_plain_buf(const air_rg_buf *b)
{
    return !b->scratch && !b->number &&
           (b->dtype == AIR_F32 || b->dtype == AIR_BF16 ||
            b->dtype == AIR_F16 || b->dtype == AIR_BOOL);
}

/* Numbers that are float while they are computed; nothing is read that is
 * written. */
static bool
is_plain(const air_region *rg)
{
    for (int i = 0; i < rg->nnodes; i++)
        if (!is_plain_lane(&rg->nodes[i]) || rg->nodes[i].op == AIR_RG_INDEX ||
            (rg->nodes[i].op == AIR_RG_REDUCE &&
             rg->nodes[i].reduce == AIR_REDUCE_MOMENT))
            return false;
    for (int i = 0; i < rg->nbufs; i++)
        if (!is_plain_buf(&rg->bufs[i]) ||
            (cuda_region_stores(rg, i) && cuda_region_uses(rg, AIR_RG_LOAD, i)))
            return false;
    return true;
}

const fuse_copy *
fuse_copy_of(const fuse_group *g, int step)
{
    for (int i = 0; i < g->ncopies; i++)
        if (g->copies[i].step == step)
            return &g->copies[i];
    return NULL;
}

/* Is a read of a step of the group served by an earlier step of it? */
static bool
is_handed_over(const fuse_group *g, int step, int index)
{
    if (step < g->before)
        return false;
    if (step < g->before + g->nweights)
        return g->before > 0 && index == 0;
    if (fuse_copy_of(g, step)) /* of a cache nothing is read */
        return index == 0 || index == 3;
    for (int i = 0; i < g->nparts; i++) {
        const fuse_part *p = &g->parts[i];
        if (p->region == step)
            return index == p->buf[0] || (p->loads == 2 && index == p->buf[1]);
    }
    return false;
}

/* ---- what becomes of a write --------------------------------------------- */

typedef enum { FATE_LIVE, FATE_DEAD, FATE_BROKEN } fate;

static bool
step_reads(const fuse_group *g, const air_step *step, int inside,
           const cuda_remains *r)
{
    cuda_touch t;
    for (int i = 0; cuda_touch_at(step, i, &t); i++)
        if (t.read && cuda_remains_meet(r, &t.span) &&
            (inside < 0 || !is_handed_over(g, inside, t.index)))
            return true;
    return false;
}

static bool
step_cuts(const air_step *step, cuda_remains *r)
{
    cuda_touch t;
    for (int i = 0; cuda_touch_at(step, i, &t); i++)
        if (t.write && t.dense && !cuda_remains_cut(r, &t.span))
            return false;
    return true;
}

/* Of what `writer` of the group writes; `count` steps are left from its first
 * one on. Behind a list all is wanted but what it says. */
static fate
fate_of(const fuse_group *g, size_t count, int writer, const cuda_span *span)
{
    cuda_remains r = {.count = 1, .piece = {*span}};
    for (size_t i = (size_t)writer + 1; i < count; i++) {
        const int inside = i < (size_t)g->count ? (int)i : -1;
        if (step_reads(g, &g->steps[i], inside, &r))
            return inside >= 0 ? FATE_BROKEN : FATE_LIVE;
        if (!step_cuts(&g->steps[i], &r))
            return FATE_LIVE;
        if (r.count == 0)
            return FATE_DEAD;
    }
    return cuda_is_scrap(g->steps, span) ? FATE_DEAD : FATE_LIVE;
}

static bool
find_writes(fuse_group *g, size_t count)
{
    cuda_touch t;
    g->nwrites = 0;
    for (int s = 0; s < g->count; s++)
        for (int i = 0; cuda_touch_at(&g->steps[s], i, &t); i++) {
            const fate f = t.write ? fate_of(g, count, s, &t.span) : FATE_DEAD;
            if (f == FATE_BROKEN ||
                (f == FATE_LIVE && g->nwrites == FUSE_SPANS))
                return false;
            if (f == FATE_LIVE)
                g->writes[g->nwrites++] = (fuse_write){t.span, s};
        }
    return true;
}

/* Blocks come in any order: no write may meet a read, or another write. */
static bool
is_free_of_races(const fuse_group *g)
{
    cuda_touch t;
    for (int w = 0; w < g->nwrites; w++) {
        for (int v = 0; v < w; v++)
            if (g->writes[v].step != g->writes[w].step &&
                cuda_overlap(&g->writes[v].span, &g->writes[w].span))
                return false;
        for (int s = 0; s < g->count; s++)
            for (int i = 0; cuda_touch_at(&g->steps[s], i, &t); i++)
                if (t.read && cuda_overlap(&t.span, &g->writes[w].span) &&
                    !is_handed_over(g, s, t.index))
                    return false;
    }
    return true;
}

bool
fuse_is_written(const fuse_group *g, int step, int32_t slot, int64_t offset)
{
    for (int i = 0; i < g->nwrites; i++) {
        const fuse_write *w = &g->writes[i];
        if (w->step == step && w->span.slot == slot &&
            w->span.begin <= offset && offset < w->span.end)
            return true;
    }
    return false;
}

/* ---- the vector ---------------------------------------------------------- */

/* A row of numbers that one block can make: rows in front of it would be other
 * vectors. */
static bool
is_row(const air_region *rg, int64_t k)
{
    return rg->walk == AIR_WALK_INNER && rg->dims[rg->rank - 1] == k &&
           cuda_region_elements(rg) == k && is_plain(rg);
}

static bool
makes(const air_region *rg, const air_tensor *x)
{
    for (int i = 0; i < rg->nbufs; i++) {
        const air_rg_buf *b = &rg->bufs[i];
        if (cuda_region_stores(rg, i) && b->slot == x->slot &&
            b->offset == x->offset && b->dtype == x->dtype &&
            b->strides[rg->rank - 1] == 1)
            return true;
    }
    return false;
}

/* ---- products ------------------------------------------------------------ */

/* Rows of w next to each other in k, nothing added. */
static bool
is_product(const cuda_provider *row, const air_call *call)
{
    if (row->print == kern_skinny)
        return call->nargs == 2;
    if (row->print != kern_words)
        return false;
    const kern_words_call c = kern_words_read(call);
    return !c.zero && !c.bias;
}

enum { MOST_ROWS = 1 << 22 /* of a weight: 32 bits count those of a group */ };

/* Results next to each other, row after row. */
static bool
is_dense(const air_tensor *y)
{
    return y->strides[1] == 1 &&
           (y->dims[0] == 1 || y->strides[0] == y->dims[1]);
}

/* Of several rows only where the weights are floats. */
static const air_call *
as_product(const air_step *step)
{
    const air_kernel *kernel = step->kernel;
    const air_call *c = &step->call;
    if (!kernel->provider || !is_product(kernel->provider, c) ||
        c->args[0].t->rank != 2 ||
        (c->args[0].t->dims[0] != 1 && kernel->provider->print != kern_skinny))
        return NULL;
    const int64_t rows = c->outs[0].dims[1];
    return is_dense(&c->outs[0]) && rows > 1 && rows <= MOST_ROWS ? c : NULL;
}

static bool
is_stored_alike(const air_call *a, const air_call *b)
{
    if (a->nargs != b->nargs || a->nargs != KERN_WORDS_ARGS)
        return a->nargs == b->nargs;
    const kern_words_call x = kern_words_read(a), y = kern_words_read(b);
    return x.bits == y.bits && x.group == y.group && !x.scale == !y.scale &&
           (!x.scale || x.scale->dtype == y.scale->dtype);
}

static bool
has_same_vector(const air_call *a, const air_call *b)
{
    const air_tensor *x = a->args[0].t, *y = b->args[0].t;
    return kern_same_place(x, y) && x->dtype == y->dtype &&
           x->dims[0] == y->dims[0] && x->dims[1] == y->dims[1] &&
           kern_stride(x, 0) == kern_stride(y, 0);
}

static bool
add_product(fuse_group *g, const air_call *c)
{
    if (g->nweights == FUSE_WEIGHTS ||
        (g->nweights > 0 && (!has_same_vector(fuse_product(g, 0), c) ||
                             !is_stored_alike(fuse_product(g, 0), c))))
        return false;
    g->nweights++;
    g->count++;
    return true;
}

/* ---- regions behind them ------------------------------------------------- */

/* Has no step of the group overwritten what `step` wrote there? */
static bool
is_intact(const fuse_group *g, int step, const cuda_span *span)
{
    return !cuda_is_written(g->steps + step + 1, (size_t)(g->count - step - 1),
                            span);
}

/* The weight whose results the buffer lies in; -1: memory. */
static int
weight_of(const fuse_group *g, const air_rg_buf *b)
{
    for (int w = 0; w < g->nweights; w++) {
        const air_tensor *y = &fuse_product(g, w)->outs[0];
        const cuda_span span = cuda_span_of(y);
        if (b->slot == y->slot && b->offset >= span.begin &&
            b->offset < span.end && is_intact(g, g->before + w, &span))
            return b->dtype == y->dtype ? w : -1;
    }
    return -1;
}

enum { MOST_RESULTS = 32768 };

/* Where the buffer has what iteration i of the region takes. */
static int64_t
place_of(const air_region *rg, const air_rg_buf *b, int64_t i)
{
    int64_t at = 0;
    for (int a = rg->rank - 1; a >= 0; a--) {
        at += i % rg->dims[a] * b->strides[a];
        i /= rg->dims[a];
    }
    return at;
}

/* Marks the results that the first `total` iterations take through the buffer;
 * false: one is taken twice. */
static bool
mark(const air_region *rg, const air_rg_buf *b, int64_t first, int64_t n,
     int64_t total, uint8_t *taken)
{
    for (int64_t i = 0; i < total; i++) {
        const int64_t at = first + place_of(rg, b, i);
        if (at < 0 || at >= n || (taken[at / 8] >> at % 8 & 1))
            return false;
        taken[at / 8] |= (uint8_t)(1 << at % 8);
    }
    return true;
}

/* Are iterations m parts, one behind the other, that differ by a step along
 * whole axes or along a part of one? */
static bool
is_apart(const air_region *rg, int64_t m)
{
    for (int a = 0; a < rg->rank && m > 1; a++) {
        if (rg->dims[a] >= m)
            return rg->dims[a] % m == 0;
        if (m % rg->dims[a] != 0)
            return false;
        m /= rg->dims[a];
    }
    return m == 1;
}

/* Does part i of them take row i of results, `row` apart? */
static bool
is_by_rows(const air_region *rg, const air_rg_buf *b, int64_t m, int64_t row)
{
    const int64_t each = cuda_region_elements(rg) / m;
    for (int64_t i = 1; i < m; i++)
        if (place_of(rg, b, i * each) != i * row)
            return false;
    return true;
}

/* Does the part take each result of the weight once? */
static bool
is_covered(const fuse_group *g, const air_region *rg, const fuse_part *p,
           int weight)
{
    uint8_t taken[MOST_RESULTS / 8] = {0};
    const air_tensor *y = &fuse_product(g, weight)->outs[0];
    int64_t count = 0;
    if (y->dims[1] > MOST_RESULTS)
        return false;
    for (int i = 0; i < p->loads; i++) {
        const air_rg_buf *b = &rg->bufs[p->buf[i]];
        if (p->of[i] != weight)
            continue;
        const int64_t first =
            (b->offset - y->offset) / (int64_t)kern_bytes(y->dtype);
        if (!is_by_rows(rg, b, g->m, y->dims[1]) ||
            !mark(rg, b, first, y->dims[1], p->count, taken))
            return false;
        count += p->count;
    }
    return count == y->dims[1];
}

static bool
find_part(const fuse_group *g, const air_region *rg, fuse_part *out)
{
    *out = (fuse_part){.region = g->count,
                       .count = cuda_region_elements(rg) / g->m};
    if (!is_apart(rg, g->m))
        return false;
    for (int i = 0; i < rg->nbufs; i++) {
        const int w =
            cuda_region_stores(rg, i) ? -1 : weight_of(g, &rg->bufs[i]);
        if (w < 0)
            continue;
        if (out->loads == 2 || g->covered[w])
            return false;
        out->buf[out->loads] = i;
        out->of[out->loads++] = w;
    }
    for (int i = 0; i < out->loads; i++)
        if (!is_covered(g, rg, out, out->of[i]))
            return false;
    return out->loads > 0;
}

static bool
add_region(fuse_group *g, const air_region *rg)
{
    fuse_part part;
    if (rg->walk != AIR_WALK_MAP || rg->nphases != 1 || !is_plain(rg) ||
        g->nparts == FUSE_WEIGHTS || !find_part(g, rg, &part))
        return false;
    for (int i = 0; i < part.loads; i++)
        g->covered[part.of[i]] = true;
    g->parts[g->nparts++] = part;
    g->count++;
    return true;
}

/* ---- copies behind them ---------------------------------------------------
 */

/* index_copy in place: only what is at the index is written. */
static const air_call *
as_copy(const air_step *step)
{
    const air_kernel *kernel = step->kernel;
    const air_call *c = &step->call;
    if (!kernel->provider || kernel->provider->print != kern_index_copy ||
        !kern_same_place(c->args[0].t, &c->outs[0]) ||
        !driver_is_dense(c->args[3].t) || kern_numel(c->args[3].t) < 1 ||
        kern_numel(c->args[3].t) > MOST_RESULTS)
        return NULL;
    return c;
}

bool
fuse_is_copied(const air_rg_buf *b, const air_tensor *src)
{
    const cuda_span span = cuda_span_of(src);
    return b->slot == src->slot && b->dtype == src->dtype &&
           b->offset >= span.begin && b->offset < span.end;
}

/* Does the region write each number of the tensor once? */
static bool
fills(const air_region *rg, const air_tensor *src)
{
    uint8_t taken[MOST_RESULTS / 8] = {0};
    int64_t count = 0;
    for (int i = 0; i < rg->nbufs; i++) {
        const air_rg_buf *b = &rg->bufs[i];
        if (!cuda_region_stores(rg, i) || !fuse_is_copied(b, src))
            continue;
        const int64_t first =
            (b->offset - src->offset) / (int64_t)kern_bytes(src->dtype);
        const int64_t all = cuda_region_elements(rg);
        if (!mark(rg, b, first, kern_numel(src), all, taken))
            return false;
        count += all;
    }
    return count == kern_numel(src);
}

static bool
gives(const fuse_group *g, int step, const air_tensor *src)
{
    const air_region *rg = fuse_region(g, step);
    if (rg)
        return step >= g->before && fills(rg, src);
    if (step >= g->before + g->nweights)
        return false;
    const air_tensor *y = &fuse_call(g, step)->outs[0];
    return kern_same_place(y, src) && y->dtype == src->dtype &&
           kern_numel(y) == kern_numel(src);
}

static bool
add_copy(fuse_group *g, const air_call *c)
{
    const air_tensor *src = c->args[3].t;
    const cuda_span span = cuda_span_of(src);
    if (g->ncopies == FUSE_COPIES)
        return false;
    for (int s = g->count - 1; s >= 0; s--) {
        if (!gives(g, s, src) || !is_intact(g, s, &span))
            continue;
        g->copies[g->ncopies++] = (fuse_copy){g->count, s};
        g->count++;
        return true;
    }
    return false;
}

/* ---- the group ----------------------------------------------------------- */

/* Of the launch: a product or a copy has two of its own, a weight of integers
 * its scales. A count that is too high costs a launch: what then seems not to
 * fit behind a product is one. */
static int
pointers(const fuse_group *g)
{
    int n = 2;
    for (int s = 0; s < g->count; s++)
        n += fuse_region(g, s) ? fuse_region(g, s)->nbufs : 2;
    return fuse_is_words(g) ? n + g->nweights : n;
}

static bool
add_step(fuse_group *g, const air_step *step)
{
    const air_call *c = as_product(step);
    const air_region *rg = step->kernel->region;
    if (c && g->nparts == 0 && g->ncopies == 0)
        return add_product(g, c);
    if (g->nweights == 0)
        return false;
    c = rg ? NULL : as_copy(step);
    return c ? add_copy(g, c) : rg && add_region(g, rg);
}

static bool
begin(fuse_group *g, const air_step *steps, size_t count)
{
    const air_call *c = as_product(&steps[0]);
    const air_region *rg = steps[0].kernel->region;
    *g = (fuse_group){.steps = steps};
    if (!c && (!rg || count < 2))
        return false;
    if (!c)
        c = as_product(&steps[1]);
    if (!c)
        return false;
    g->m = c->args[0].t->dims[0];
    g->k = c->args[0].t->dims[1];
    g->dtype = c->args[0].t->dtype;
    if (!rg)
        return true;
    if (!is_row(rg, g->k) || !makes(rg, c->args[0].t))
        return false;
    g->before = g->count = 1;
    return true;
}

/* Products whose results no region takes are parts of their own. */
static void
add_rest(fuse_group *g)
{
    for (int w = 0; w < g->nweights; w++)
        if (!g->covered[w])
            g->parts[g->nparts++] =
                (fuse_part){.region = -1,
                            .weight = w,
                            .loads = 1,
                            .count = fuse_product(g, w)->outs[0].dims[1]};
}

/* Group of the first `most` steps at best. */
static void
grow(const air_step *steps, size_t count, int most, fuse_group *out)
{
    if (!begin(out, steps, count))
        return;
    while (out->count < most && (size_t)out->count < count &&
           add_step(out, &steps[out->count]))
        ;
    add_rest(out);
    if (out->nweights == 0)
        out->count = 0;
}

void
cuda_fuse_find(const air_step *steps, size_t count, size_t first,
               fuse_group *out)
{
    int most = FUSE_STEPS;
    do {
        grow(steps + first, count - first, most, out);
        out->older = first;
        most = out->count - 1;
    } while (out->count > 1 &&
             (pointers(out) > CUDA_MAX_PARAMS ||
              !find_writes(out, count - first) || !is_free_of_races(out)));
}
