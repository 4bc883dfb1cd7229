/* cross.c: what phases of a persistent kernel give each other as words that
 * show by themselves that they are new (text/cross.cuh). A phase that needs
 * nothing else of those since the last wait for all memory waits for their
 * count only. */
#include "driver/cuda/super.h"
#include "driver/cuda/touch.h"

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
        if (!(l->crossing >> k & 1) || (l->params[k].value - s->begin) % 8 != 0)
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

/* ---- where it then is ---------------------------------------------------- */

static void
set_words(super_phase *p, const cuda_span *s, int64_t at)
{
    const cuda_launch *l = launch_of(p);
    for (int k = 0; k < l->nparams; k++)
        if (lies_in(&l->params[k], s))
            p->words[k] = at + 2 * (l->params[k].value - s->begin);
}

/* Those that read it. */
static void
set_readers(const crossing *c, const super_phase *p, size_t step,
            const cuda_span *s, int64_t at)
{
    cuda_remains left = {.count = 1, .piece = {*s}};
    cuda_touch t;
    for (size_t i = step + 1; i < c->count && left.count > 0; i++) {
        for (int k = 0; i >= p->end && cuda_touch_at(&c->steps[i], k, &t); k++)
            if (t.read && cuda_remains_meet(&left, &t.span))
                set_words(phase_of(c, i), s, at);
        (void)cut_by(&c->steps[i], &left);
    }
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
            const int64_t at = (int64_t)c->run->end;
            c->run->end +=
                (size_t)((t.span.end - t.span.begin) * 2 + 127) / 128 * 128;
            set_words(p, &t.span, at);
            set_readers(c, p, s, &t.span, at);
        }
}

/* ---- how phases wait ----------------------------------------------------- */

/* Must memory that one of the phases wrote be visible to the other, or not be
 * written before it was? */
static bool
needs_memory(const cuda_touch *a, const super_phase *p, const cuda_touch *b,
             const super_phase *on)
{
    return b->write && cuda_overlap(&a->span, &b->span) &&
           !has_words(p, &a->span) && !has_words(on, &b->span) &&
           !(a->write && is_idle(p, &a->span)) && !is_idle(on, &b->span);
}

static bool
depends(const crossing *c, const super_phase *p, const super_phase *on)
{
    cuda_touch a, b;
    for (size_t s = p->step; s < p->end; s++)
        for (int i = 0; cuda_touch_at(&c->steps[s], i, &a); i++)
            for (size_t t = on->step; t < on->end; t++)
                for (int k = 0; cuda_touch_at(&c->steps[t], k, &b); k++)
                    if (needs_memory(&a, p, &b, on))
                        return true;
    return false;
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
            memory = !(p->alone && run->phases[k].alone) &&
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
    size_t most = 0;
    for (size_t i = 0; i < run->count; i++)
        if (run->phases[i].source->scratch > most)
            most = run->phases[i].source->scratch;
    run->end = run->scratch + (most + 127) / 128 * 128;
    if (dev->checks)
        return;
    for (size_t i = 0; i < run->count; i++)
        cross_writes(&c, &run->phases[i]);
    set_waits(&c);
}
