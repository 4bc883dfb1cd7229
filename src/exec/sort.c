/* sort.c: units in the order that the options ask for. Every order keeps what
 * must run before what; they differ in which of the units that could run comes
 * first, and so in how much memory is in use at once. */
#include <string.h>

#include "exec/exec.h"

typedef struct {
    size_t nunits, done;
    exec_chains after; /* of each unit: what waits for it */
    uint32_t *waits;   /* by unit: for how many others */
    uint32_t *line;    /* units that could run: a queue or a stack */
    size_t first, count;
    uint32_t *out;
} sorter;

air_status
exec_chains_make(base_arena *scratch, size_t nunits, const exec_edges *edges,
                 int end, exec_chains *out)
{
    out->edges = edges;
    AIR_TRY(BASE_ARENA_ARRAY(scratch, nunits + 1, &out->start));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, edges->count + 1, &out->next));
    memset(out->start, 0xff, (nunits + 1) * sizeof *out->start);
    for (size_t i = edges->count; i > 0; i--) {
        uint32_t *start = &out->start[edges->edges[2 * (i - 1) + (size_t)end]];
        out->next[i - 1] = *start;
        *start = (uint32_t)i - 1;
    }
    return AIR_OK;
}

static air_status
sorter_make(size_t nunits, const exec_edges *edges, base_arena *scratch,
            uint32_t *out, sorter *s)
{
    *s = (sorter){.nunits = nunits, .out = out};
    AIR_TRY(exec_chains_make(scratch, nunits, edges, 0, &s->after));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, nunits + 1, &s->waits));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, nunits + edges->count + 1, &s->line));
    for (size_t i = 0; i < edges->count; i++)
        s->waits[edges->edges[2 * i + 1]]++;
    return AIR_OK;
}

/* The unit has run: calls found(s, unit) for each that can run now. */
static void
run_unit(sorter *s, uint32_t unit, void (*found)(sorter *s, uint32_t unit))
{
    s->out[s->done++] = unit;
    for (uint32_t i = s->after.start[unit]; i != EXEC_NO_EDGE;
         i = s->after.next[i]) {
        const uint32_t later = s->after.edges->edges[2 * i + 1];
        if (--s->waits[later] == 0)
            found(s, later);
    }
}

/* ---- a queue, a stack ---- */

static void
push(sorter *s, uint32_t unit)
{
    s->line[s->count++] = unit;
}

static void
sort_breadth(sorter *s)
{
    for (uint32_t u = 0; u < s->nunits; u++)
        if (s->waits[u] == 0)
            push(s, u);
    while (s->first < s->count)
        run_unit(s, s->line[s->first++], push);
}

/* What was pushed since `bottom` comes off in the order it went on. */
static void
reverse(sorter *s, size_t bottom)
{
    for (size_t i = bottom, k = s->count; i + 1 < k; i++) {
        const uint32_t kept = s->line[i];
        s->line[i] = s->line[--k];
        s->line[k] = kept;
    }
}

static void
sort_depth(sorter *s)
{
    for (uint32_t u = 0; u < s->nunits; u++)
        if (s->waits[u] == 0)
            push(s, u);
    reverse(s, 0);
    while (s->count > 0) {
        const size_t bottom = --s->count;
        run_unit(s, s->line[bottom], push);
        reverse(s, bottom);
    }
}

/* ---- from the ends: before each unit what it needs ---- */

/* A unit is on the line until it has run: below it what needs it. */
static void
need(sorter *s, const exec_chains *before, bool *ran, uint32_t unit)
{
    push(s, unit);
    while (s->count > 0) {
        const uint32_t u = s->line[s->count - 1];
        uint32_t *edge = &before->start[u]; /* those not yet looked at */
        if (ran[u] || *edge == EXEC_NO_EDGE) {
            if (!ran[u])
                s->out[s->done++] = u;
            ran[u] = true;
            s->count--;
            continue;
        }
        const uint32_t earlier = before->edges->edges[2 * *edge];
        *edge = before->next[*edge];
        if (!ran[earlier])
            push(s, earlier);
    }
}

static air_status
sort_needed(sorter *s, base_arena *scratch)
{
    exec_chains before;
    bool *ran;

    AIR_TRY(exec_chains_make(scratch, s->nunits, s->after.edges, 1, &before));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, s->nunits + 1, &ran));
    for (uint32_t u = 0; u < s->nunits; u++)
        if (s->after.start[u] == EXEC_NO_EDGE)
            need(s, &before, ran, u);
    return AIR_OK;
}

/* Are all there, each after what it waits for? */
static bool
is_sorted(sorter *s)
{
    const exec_edges *e = s->after.edges;

    for (size_t i = 0; i < s->done; i++)
        s->line[s->out[i]] = (uint32_t)i;
    for (size_t i = 0; s->done == s->nunits && i < e->count; i++)
        if (s->line[e->edges[2 * i]] >= s->line[e->edges[2 * i + 1]])
            return false;
    return s->done == s->nunits;
}

air_status
exec_sort(air_order order, const char *name, size_t nunits,
          const exec_edges *edges, base_arena *scratch, uint32_t *out)
{
    sorter s;

    AIR_TRY(sorter_make(nunits, edges, scratch, out, &s));
    if (order == AIR_ORDER_BFS)
        sort_breadth(&s);
    else if (order == AIR_ORDER_DFS)
        sort_depth(&s);
    else
        AIR_TRY(sort_needed(&s, scratch));
    AIR_REQUIRE(is_sorted(&s), AIR_ERROR_STATE, EXEC_CYCLE_FMT, name);
    return AIR_OK;
}
