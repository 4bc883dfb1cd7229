/* lanes.c: places the steps of a list on threads by simulating the run. Steps
 * are taken in order; each gets the group of threads that is free first. What
 * may run side by side shares the threads by its costs, unless one after
 * another on all of them is over sooner. */
#include "driver/cpu/lanes.h"

#include <string.h>

#define GRAIN 5000 /* ns a thread should have to do */
#define SYNC  300  /* until another thread sees that a step is done */
#define ENTER 3000 /* a parallel region */
#define CLOSE 50   /* fewer threads a step lose less: a 50th is no reason */
#define WORDS (CPU_LANES_MOST / 64)

typedef struct {
    const air_step *steps; /* the first of them */
    size_t first, count;   /* its number in the list, how many there are */
    int threads;
    uint64_t before[CPU_LANES_MOST][WORDS]; /* and all that those wait for */
    uint64_t beside[CPU_LANES_MOST][WORDS]; /* in no order with it */
    int64_t start[CPU_LANES_MOST], end[CPU_LANES_MOST]; /* ns */
    int64_t *free_at;                                   /* by thread */
    cpu_place *places;
} planner;

static bool
has(const uint64_t *set, size_t i)
{
    return set[i / 64] >> i % 64 & 1;
}

static void
add(uint64_t *set, size_t i)
{
    set[i / 64] |= (uint64_t)1 << i % 64;
}

static bool
meet(const uint64_t *a, const uint64_t *b)
{
    for (size_t w = 0; w < WORDS; w++)
        if (a[w] & b[w])
            return true;
    return false;
}

/* ---- what may run at the same time ---- */

static void
find_before(planner *p, size_t i)
{
    const air_step *step = &p->steps[i];

    for (uint32_t k = 0; k < step->nafter; k++) {
        if (step->after[k] < p->first)
            continue;
        const size_t from = step->after[k] - p->first;
        add(p->before[i], from);
        for (size_t w = 0; w < WORDS; w++)
            p->before[i][w] |= p->before[from][w];
    }
}

static void
find_beside(planner *p)
{
    for (size_t i = 0; i < p->count; i++) {
        find_before(p, i);
        for (size_t k = 0; k < i; k++) {
            if (has(p->before[i], k))
                continue;
            add(p->beside[i], k);
            add(p->beside[k], i);
        }
    }
}

/* ---- how many threads ---- */

/* As many as have enough to do. */
static int
width_alone(const planner *p, size_t i)
{
    const air_step *step = &p->steps[i];
    int most = p->threads;

    if (step->cost < CPU_SMALL)
        return 1;
    if (step->threads > 0 && step->threads < most)
        most = step->threads;
    return step->cost / GRAIN < most ? (int)(step->cost / GRAIN) : most;
}

/* Its chain's share, by cost, of what runs side by side. */
static int
width_shared(const planner *p, size_t i)
{
    const int alone = width_alone(p, i);
    double own = 0, others = 0;

    for (size_t k = 0; k < p->count; k++) {
        if (has(p->beside[i], k))
            others += (double)p->steps[k].cost;
        else if (k == i || meet(p->beside[i], p->beside[k]))
            own += (double)p->steps[k].cost;
    }
    if (others == 0 || alone == 1)
        return alone;
    const int share = (int)(p->threads * own / (own + others) + 0.5);
    return share < 1 ? 1 : share < alone ? share : alone;
}

/* ---- when and where ---- */

static int64_t
ready_at(const planner *p, size_t i, int first, int count)
{
    const air_step *step = &p->steps[i];
    int64_t at = 0;

    for (int t = first; t < first + count; t++)
        if (p->free_at[t] > at)
            at = p->free_at[t];
    for (uint32_t k = 0; k < step->nafter; k++) {
        if (step->after[k] < p->first)
            continue;
        const size_t from = step->after[k] - p->first;
        const cpu_place *place = &p->places[from];
        const bool same = place->first == first && place->count == count;
        const int64_t end = p->end[from] + (same ? 0 : SYNC);
        if (end > at)
            at = end;
    }
    return at;
}

static void
place_step(planner *p, size_t i, int count)
{
    int best = 0;
    int64_t at = INT64_MAX;

    for (int t = 0; t < p->threads; t += count) {
        const int first = t + count <= p->threads ? t : p->threads - count;
        const int64_t ready = ready_at(p, i, first, count);
        if (ready < at) {
            at = ready;
            best = first;
        }
    }
    p->places[i] = (cpu_place){.first = best, .count = count};
    p->start[i] = at;
    p->end[i] = at + p->steps[i].cost / count + (count > 1 ? SYNC : 0);
    for (int t = best; t < best + count; t++)
        p->free_at[t] = p->end[i];
}

/* Returns when it is over. */
static int64_t
simulate(planner *p, int (*width)(const planner *p, size_t i))
{
    int64_t end = 0;

    memset(p->free_at, 0, (size_t)p->threads * sizeof *p->free_at);
    for (size_t i = 0; i < p->count; i++) {
        place_step(p, i, width(p, i));
        if (p->end[i] > end)
            end = p->end[i];
    }
    return end;
}

/* ---- the span of the region ---- */

static bool
on_thread_0(const planner *p, size_t i)
{
    return p->places[i].first == 0 && p->places[i].count == 1;
}

static bool
ends_before_rest(const planner *p, size_t i)
{
    for (size_t k = i + 1; k < p->count; k++)
        if (p->start[k] < p->end[i])
            return false;
    return on_thread_0(p, i);
}

static bool
begins_after_rest(const planner *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->end[k] > p->start[i])
            return false;
    return on_thread_0(p, i);
}

static cpu_span
find_span(const planner *p, int64_t end)
{
    int64_t alone = 0;
    cpu_span span = {0, p->count};

    for (size_t i = 0; i < p->count; i++)
        alone += p->steps[i].cost;
    if (end + ENTER >= alone)
        return (cpu_span){p->count, p->count};
    while (span.begin < span.end && ends_before_rest(p, span.begin))
        span.begin++;
    while (span.end > span.begin && begins_after_rest(p, span.end - 1))
        span.end--;
    return span;
}

/* ---- what threads wait for ---- */

/* A thread sees what it has done itself. */
static bool
must_wait(const cpu_place *a, const cpu_place *b)
{
    return a->count > 1 || b->count > 1 || a->first != b->first;
}

static void
name_waits(const planner *p, cpu_span span, uint32_t *waits, size_t *nwaits)
{
    for (size_t i = span.begin; i < span.end; i++) {
        const air_step *step = &p->steps[i];
        cpu_place *place = &p->places[i];
        place->waits = waits + *nwaits;
        for (uint32_t k = 0; k < step->nafter; k++) {
            const uint32_t from = step->after[k];
            if (from < p->first + span.begin ||
                !must_wait(&p->places[from - p->first], place))
                continue;
            waits[(*nwaits)++] = from;
            place->nwaits++;
        }
    }
}

air_status
cpu_lanes_place(const air_alloc *alloc, const air_step *steps, size_t begin,
                size_t end, int threads, cpu_place *places, uint32_t *waits,
                size_t *nwaits, cpu_span *out)
{
    const size_t bytes = sizeof(planner) + (size_t)threads * sizeof(int64_t);
    void *ptr;

    AIR_TRY(base_new(alloc, bytes, &ptr));
    planner *p = ptr;
    p->steps = steps + begin;
    p->first = begin;
    p->count = end - begin;
    p->threads = threads;
    p->free_at = (int64_t *)(void *)(p + 1);
    p->places = places + begin;
    find_beside(p);
    const int64_t alone = simulate(p, width_alone);
    int64_t over = simulate(p, width_shared);
    if (over > alone + alone / CLOSE)
        over = simulate(p, width_alone);
    const cpu_span span = find_span(p, over);
    name_waits(p, span, waits, nwaits);
    *out = (cpu_span){begin + span.begin, begin + span.end};
    base_free(alloc, ptr, bytes);
    return AIR_OK;
}
