/* cross.c: what phases of a persistent kernel give each other as words that
 * show by themselves that they are new (text/cross.cuh). A phase that needs
 * nothing else of those since the last wait for all memory waits for their
 * count only. */
#include "driver/cuda/kern_call.h"
#include "driver/cuda/super.h"
#include "driver/cuda/touch.h"

enum { SUPER_SHORT = 3 /* stages of the ring */ };

typedef struct {
    super_run *run;
    const air_step *steps;
    size_t count; /* steps of the list */
} crossing;

static const cuda_launch *
launch_of(const super_phase *p)
{
    return &p->source->launches[p->source->shapes ? 0 : p->launch];
}

static bool
lies_in(const cuda_param *p, const cuda_span *s)
{
    return p->kind == CUDA_PARAM_POINTER && p->slot == s->slot &&
           p->value >= s->begin && p->value < s->end;
}

/* ---- what can cross ------------------------------------------------------ */

/* Is all that the phase has of the span in words, as its text can have it? 8
 * neighbours are read at once. */
static bool
takes_words(const super_phase *p, const cuda_span *s)
{
    const cuda_launch *l = launch_of(p);
    int found = 0;
    for (int k = 0; k < l->nparams; k++) {
        if (!lies_in(&l->params[k], s))
            continue;
        if (!(l->crossing >> k & 1) ||
            (l->params[k].value - s->begin) % 16 != 0)
            return false;
        found++;
    }
    return found > 0 && !p->source->shapes && p->source->nlaunches == 1;
}

/* The phase that the step is of; NULL: it is of none of this kernel. */
static super_phase *
phase_of(const crossing *c, size_t step)
{
    for (size_t i = 0; i < c->run->count; i++)
        if (c->run->phases[i].step <= step && step < c->run->phases[i].end)
            return &c->run->phases[i];
    return NULL;
}

/* Can the reads of the step take words, as far as they are of the span? */
static bool
reads_words(const crossing *c, size_t step, const cuda_remains *left,
            const cuda_span *s)
{
    const super_phase *p = phase_of(c, step);
    cuda_touch t;
    for (int i = 0; cuda_touch_at(&c->steps[step], i, &t); i++)
        if (t.read && cuda_remains_meet(left, &t.span) &&
            (!p || t.span.begin < s->begin || t.span.end > s->end ||
             !takes_words(p, s)))
            return false;
    return true;
}

static bool
cut_by(const air_step *step, cuda_remains *left)
{
    cuda_touch t;
    for (int i = 0; cuda_touch_at(step, i, &t); i++)
        if (t.write && cuda_remains_meet(left, &t.span) &&
            (!t.dense || !cuda_remains_cut(left, &t.span)))
            return false;
    return true;
}

/* What phase `p` writes there in its step: do only phases that can take words
 * read it, until it is overwritten? */
static bool
is_kept_inside(const crossing *c, const super_phase *p, size_t step,
               const cuda_span *s)
{
    cuda_remains left = {.count = 1, .piece = {*s}};
    for (size_t i = step + 1; i < c->count; i++) {
        if (i >= p->end && !reads_words(c, i, &left, s))
            return false;
        if (!cut_by(&c->steps[i], &left))
            return false;
        if (left.count == 0)
            return i >= p->end;
    }
    return cuda_is_scrap(c->steps, s);
}

/* ---- who reads it -------------------------------------------------------- */

/* Of what a phase writes there, and is_kept_inside holds of. */
typedef struct {
    const crossing *c;
    size_t step, end; /* the next one; of the phase */
    cuda_remains left;
} readers;

static readers
readers_of(const crossing *c, const super_phase *p, size_t step,
           const cuda_span *s)
{
    return (readers){c, step + 1, p->end, {.count = 1, .piece = {*s}}};
}

/* The phase of the next step that reads it, maybe that of the last one again;
 * NULL: there is none. */
static super_phase *
next_reader(readers *r)
{
    cuda_touch t;
    while (r->step < r->c->count && r->left.count > 0) {
        const size_t i = r->step++;
        const air_step *step = &r->c->steps[i];
        bool reads = false;
        for (int k = 0; i >= r->end && cuda_touch_at(step, k, &t); k++)
            reads |= t.read && cuda_remains_meet(&r->left, &t.span);
        (void)cut_by(step, &r->left);
        if (reads)
            return phase_of(r->c, i);
    }
    return NULL;
}

/* ---- parts of attention -------------------------------------------------- */

/* Can all that the phase has of the span be parts? */
static bool
can_be_parts(const super_phase *p, const cuda_span *s)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++)
        if (lies_in(&l->params[k], s) &&
            (!(l->parts >> k & 1) || l->params[k].value != s->begin))
            return false;
    return p->parted == 0;
}

/* What phase p writes there in its step, if those that read it put parts
 * together. */
static super_parts
parts_of(const crossing *c, const super_phase *p, size_t step,
         const cuda_span *s)
{
    const super_parts none = {0, 0, 0};
    const cuda_launch *l = launch_of(p);
    readers all = readers_of(c, p, step, s);
    if (l->nparts == 0 || !can_be_parts(p, s))
        return none;
    for (super_phase *by; (by = next_reader(&all)) != NULL;)
        if (!can_be_parts(by, s))
            return none;
    return (super_parts){l->nparts, (s->end - s->begin) / 2, l->width};
}

/* Bytes of numbers as words, or of parts and what their rows weigh. */
static size_t
bytes_of(const cuda_span *s, const super_parts *parts)
{
    size_t n = (size_t)(s->end - s->begin) * (size_t)(1 + parts->count);
    if (parts->count > 0)
        n += (size_t)(parts->numbers / parts->width * parts->count * 8);
    return (n + 127) / 128 * 128;
}

/* ---- where it then is ---------------------------------------------------- */

static void
set_words(super_phase *p, const cuda_span *s, int64_t at,
          const super_parts *parts)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++) {
        if (!lies_in(&l->params[k], s))
            continue;
        p->words[k] = at + l->params[k].value - s->begin;
        p->parted |= (parts->count > 0 ? 1U : 0) << k;
    }
    if (parts->count > 0)
        p->parts = *parts;
}

/* Those that read it. */
static void
set_readers(const crossing *c, const super_phase *p, size_t step,
            const cuda_span *s, int64_t at, const super_parts *parts)
{
    readers all = readers_of(c, p, step, s);
    for (super_phase *by; (by = next_reader(&all)) != NULL;)
        set_words(by, s, at, parts);
}

static bool
has_words(const super_phase *p, const cuda_span *s)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++)
        if (p->words[k] != 0 && lies_in(&l->params[k], s))
            return true;
    return false;
}

/* Does the text write nothing there? */
static bool
is_idle(const super_phase *p, const cuda_span *s)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++)
        if (lies_in(&l->params[k], s) && !(l->idle >> k & 1))
            return false;
    return true;
}

static void
cross_writes(const crossing *c, super_phase *p)
{
    cuda_touch t;
    for (size_t s = p->step; s < p->end; s++)
        for (int i = 0; cuda_touch_at(&c->steps[s], i, &t); i++) {
            if (!t.write || !t.dense || has_words(p, &t.span) ||
                is_idle(p, &t.span) || !takes_words(p, &t.span) ||
                !is_kept_inside(c, p, s, &t.span))
                continue;
            const super_parts parts = parts_of(c, p, s, &t.span);
            const int64_t at = (int64_t)c->run->end;
            c->run->end += bytes_of(&t.span, &parts);
            set_words(p, &t.span, at, &parts);
            set_readers(c, p, s, &t.span, at, &parts);
        }
}

/* ---- rows of a cache ----------------------------------------------------- */

/* The copy in place to one row; NULL: the step is none. */
static const air_call *
as_row(const air_step *step)
{
    const air_kernel *kernel = step->kernel;
    const air_call *c = &step->call;
    return kernel->provider && kernel->provider->print == kern_index_copy &&
                   kern_same_place(c->args[0].t, &c->outs[0])
               ? c
               : NULL;
}

/* The only step of the run that writes into the cache, if only phase p reads
 * what it writes; SIZE_MAX: there is none. */
static size_t
find_row(const crossing *c, size_t p, const cuda_span *cache, size_t *phase)
{
    const super_run *run = c->run;
    size_t found = SIZE_MAX;
    cuda_touch t;
    for (size_t i = 0; i < run->count; i++)
        for (size_t s = run->phases[i].step; s < run->phases[i].end; s++)
            for (int k = 0; cuda_touch_at(&c->steps[s], k, &t); k++) {
                if (!cuda_overlap(&t.span, cache))
                    continue;
                if (t.write && found == SIZE_MAX && i < p) {
                    found = s;
                    *phase = i;
                } else if (t.write || (i != p && !as_row(&c->steps[s]))) {
                    return SIZE_MAX;
                }
            }
    return found;
}

/* Does the call write a row of the tensor as its reader sees it? */
static bool
is_row_of(const air_call *c, const air_tensor *t)
{
    const air_tensor *y = &c->outs[0];
    if (!kern_same_place(y, t) || y->rank != t->rank ||
        kern_axis(kern_int(c, 1, 0), y->rank) != y->rank - 2 ||
        kern_numel(c->args[2].t) != 1)
        return false;
    for (int i = 0; i < t->rank; i++)
        if (y->dims[i] != t->dims[i] || y->strides[i] != t->strides[i])
            return false;
    return true;
}

static int
param_of(const super_phase *p, const air_tensor *t)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++)
        if (l->rows >> k & 1 && l->params[k].slot == t->slot &&
            l->params[k].value == t->offset)
            return k;
    return -1;
}

static int
extra_params(const super_phase *p)
{
    int n = launch_of(p)->nparams;
    for (int k = 0; k < launch_of(p)->nparams; k++)
        n += p->rows[k] != 0;
    return n;
}

/* Keys and values that attention reads: both have their new row from one phase.
 */
static void
cross_rows(const crossing *c, size_t i)
{
    super_phase *p = &c->run->phases[i];
    const air_call *call = &c->steps[p->step].call, *rows[2];
    size_t on[2] = {SIZE_MAX, SIZE_MAX};
    int to[2], from[2];
    if (launch_of(p)->rows == 0 || c->steps[p->step].kernel->region ||
        c->steps[p->step].kernel->provider->print != kern_decode)
        return;
    for (int k = 0; k < 2; k++) {
        const air_tensor *t = call->args[1 + k].t;
        const cuda_span cache = cuda_span_of(t);
        const size_t s = find_row(c, i, &cache, &on[k]);
        rows[k] = s == SIZE_MAX ? NULL : as_row(&c->steps[s]);
        if (!rows[k] || !is_row_of(rows[k], t))
            return;
        to[k] = param_of(p, t);
        from[k] = param_of(&c->run->phases[on[k]], t);
        if (to[k] < 0 || from[k] < 0)
            return;
    }
    super_phase *giver = &c->run->phases[on[0]];
    const air_tensor *t = call->args[1].t;
    const int r = t->rank;
    if (on[0] != on[1] || giver->plane != 0 ||
        extra_params(giver) + 2 > CUDA_MAX_PARAMS ||
        !kern_same_place(rows[0]->args[2].t, rows[1]->args[2].t))
        return;
    p->rows_of = on[0] + 1;
    p->width = giver->width = t->dims[r - 1];
    p->plane = giver->plane = t->dims[r - 2] * t->dims[r - 1];
    for (int k = 0; k < 2; k++) {
        const int64_t heads = kern_numel(call->args[1 + k].t) / p->plane;
        p->rows[to[k]] = giver->rows[from[k]] = (int64_t)c->run->end;
        c->run->end += (size_t)(heads * (p->width + 8) * 2 + 127) / 128 * 128;
    }
}

/* ---- how phases wait ----------------------------------------------------- */

/* Must memory that one of the phases wrote be visible to the other, or not be
 * written before it was, or was read? */
static bool
needs_memory(const cuda_touch *a, const super_phase *p, const cuda_touch *b,
             const super_phase *on)
{
    return (a->write || b->write) && cuda_overlap(&a->span, &b->span) &&
           !has_words(p, &a->span) && !has_words(on, &b->span) &&
           !(a->write && is_idle(p, &a->span)) && !is_idle(on, &b->span);
}

/* Is it what attention has as words of that phase? */
static bool
is_row(const crossing *c, const super_phase *p, const cuda_touch *a,
       const super_phase *on)
{
    return p->rows_of > 0 && on == &c->run->phases[p->rows_of - 1] &&
           (a->index == 1 || a->index == 2);
}

static bool
depends(const crossing *c, const super_phase *p, const super_phase *on)
{
    cuda_touch a, b;
    for (size_t s = p->step; s < p->end; s++)
        for (int i = 0; cuda_touch_at(&c->steps[s], i, &a); i++)
            for (size_t t = on->step; t < on->end; t++)
                for (int k = 0; cuda_touch_at(&c->steps[t], k, &b); k++)
                    if (!is_row(c, p, &a, on) && needs_memory(&a, p, &b, on))
                        return true;
    return false;
}

/* Has each block little of the weights, or none? They are in the ring before
 * the phase begins. */
static bool
is_short(const air_device *dev, const super_phase *p)
{
    const cuda_launch *l = launch_of(p);
    int64_t bytes = 0;
    for (int i = 0; i < l->nearly; i++)
        bytes += l->early[i].end - l->early[i].begin;
    return !p->alone && !p->source->shapes &&
           bytes <= SUPER_SHORT * SUPER_RING_BYTES * dev->props.processors;
}

/* A short phase leaves time for the weights of later ones. */
static void
set_calm(const air_device *dev, const crossing *c)
{
    for (size_t i = 0; i < c->run->count; i++) {
        super_phase *p = &c->run->phases[i];
        p->calm = p->waits == SUPER_COUNT && is_short(dev, p);
    }
}

static void
set_waits(const crossing *c)
{
    super_run *run = c->run;
    size_t since = 0; /* the last wait for all memory */
    for (size_t i = 0; i < run->count; i++) {
        super_phase *p = &run->phases[i];
        bool memory = false;
        for (size_t k = since; k < i && !memory; k++)
            memory = !(p->alone && p->alone == run->phases[k].alone) &&
                     depends(c, p, &run->phases[k]);
        if (memory)
            p->waits = SUPER_MEMORY;
        else if (p->waits != SUPER_GOES)
            p->waits = SUPER_COUNT;
        since = memory ? i : since;
    }
}

void
cuda_super_cross(const air_device *dev, super_run *run, const air_step *steps,
                 size_t count)
{
    const crossing c = {run, steps, count};
    run->end = run->scratch;
    for (size_t i = 0; i < run->count; i++) {
        run->phases[i].scratch = run->end;
        run->end += (run->phases[i].source->scratch + 127) / 128 * 128;
    }
    run->words = run->end;
    run->bytes = 0;
    if (dev->checks)
        return;
    for (size_t i = 0; i < run->count; i++)
        cross_writes(&c, &run->phases[i]);
    for (size_t i = 0; i < run->count; i++)
        cross_rows(&c, i);
    run->bytes = run->end - run->words;
    run->end += run->bytes;
    set_waits(&c);
    set_calm(dev, &c);
}
