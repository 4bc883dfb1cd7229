/* written.c: units in the order of the graph (AIR_ORDER_WRITTEN), but for small
 * ones that come early or late and waits that come late; by Kahn's algorithm.
 */
#include "exec/ends.h"

/* So much may be started and not waited for: results of collectives take
 * memory. */
#define MAX_IN_FLIGHT 16
#define SMALL         4096 /* elements */

typedef struct {
    const ir_graph *g;
    const exec_unit *units; /* numbered by their first node */
    size_t nunits;
    exec_chains after;
    uint32_t *waits; /* by unit: for how many others */
    bool *ready;
    size_t low;     /* no unit before it is ready */
    size_t early;   /* no small one before it is; nunits: none is looked for */
    bool *late;     /* by unit: only such units wait for it; NULL: none is */
    uint32_t *held; /* late ones that could run */
    size_t nheld;
    int in_flight;
    exec_ends ends;
    size_t last; /* that ran; nunits: none has */
} walker;

static bool
is_host(const walker *w, size_t u, air_host_kind kind)
{
    const ir_node *n = ir_node_at(w->g, w->units[u].nodes[0]);

    return n->op == AIR_OP_HOST && n->host == kind;
}

/* The ready unit that stands first in the graph, but a WAIT only where there is
 * nothing else: what does not need a collective runs beside it. nunits: none is
 * ready. */
static size_t
next_written(const walker *w)
{
    size_t wait = w->nunits, u = w->low;

    for (; u < w->nunits; u++) {
        if (!w->ready[u])
            continue;
        if (!is_host(w, u, AIR_HOST_WAIT))
            break;
        if (wait == w->nunits)
            wait = u;
    }
    if (u == w->nunits || (wait < w->nunits && w->in_flight >= MAX_IN_FLIGHT &&
                           is_host(w, u, AIR_HOST_START)))
        return wait;
    return u;
}

/* ---- small units that wait for nothing ---- */

/* Pointwise, of few elements. */
static bool
is_little(const ir_graph *g, const ir_node *n)
{
    int64_t count;

    return n->op != AIR_OP_HOST && n->nouts == 1 &&
           ir_info(n)->cls == IR_CLASS_POINTWISE &&
           pass_count_of(g, n->outs[0], &count) && count <= SMALL;
}

/* written: it may write what it reads. */
static bool
is_small(const ir_graph *g, const exec_unit *u, bool written)
{
    for (size_t i = 0; i < u->count; i++) {
        const ir_node *n = ir_node_at(g, u->nodes[i]);
        if ((n->inplace && !written) || !is_little(g, n))
            return false;
    }
    return u->count > 0;
}

/* ---- small units that nothing waits for ---- */

/* Loops, no call and no view: what stands behind a product may become part of
 * it. */
static bool
is_loops(const walker *w, size_t u)
{
    const ir_node *n = ir_node_at(w->g, w->units[u].nodes[0]);
    if (n->op == AIR_OP_HOST)
        return false;
    const ir_class cls = (ir_class)ir_info(n)->cls;
    return cls == IR_CLASS_POINTWISE || cls == IR_CLASS_REDUCE;
}

/* Units are numbered by what stands first in them; one that waits for one of a
 * higher number is left where it is. */
static void
find_behind(const walker *w, size_t u, bool *early, bool *behind_call)
{
    const exec_chains *c = &w->after;

    for (uint32_t i = c->start[u]; i != EXEC_NO_EDGE; i = c->next[i]) {
        const uint32_t later = c->edges->edges[2 * i + 1];
        early[later] = early[later] && early[u];
        behind_call[later] = behind_call[later] || !is_loops(w, u);
    }
}

static bool
only_late_wait(const walker *w, size_t u)
{
    const exec_chains *c = &w->after;
    bool only = true;

    for (uint32_t i = c->start[u]; i != EXEC_NO_EDGE; i = c->next[i]) {
        const uint32_t later = c->edges->edges[2 * i + 1];
        only = only && later > u && w->late[later];
    }
    return only;
}

/* What only results and other such units need (running statistics) runs last,
 * side by side, if it could not run first. */
static air_status
find_late(walker *w, base_arena *scratch)
{
    bool *early, *behind_call;

    AIR_TRY(BASE_ARENA_ARRAY(scratch, w->nunits, &early));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, w->nunits, &behind_call));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, w->nunits, &w->late));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, w->nunits, &w->held));
    for (size_t u = 0; u < w->nunits; u++)
        early[u] = is_small(w->g, &w->units[u], false);
    for (size_t u = 0; u < w->nunits; u++)
        find_behind(w, u, early, behind_call);
    for (size_t u = w->nunits; u-- > 0;)
        w->late[u] = !early[u] && !behind_call[u] &&
                     is_small(w->g, &w->units[u], true) && only_late_wait(w, u);
    return AIR_OK;
}

static void
set_ready(walker *w, uint32_t u)
{
    if (w->late && w->late[u]) {
        w->held[w->nheld++] = u;
        return;
    }
    w->ready[u] = true;
    exec_ends_ready(&w->ends, u);
    if (u < w->low)
        w->low = u;
}

static void
release_late(walker *w)
{
    w->late = NULL;
    for (size_t i = 0; i < w->nheld; i++)
        set_ready(w, w->held[i]);
}

/* ---- the next one ---- */

/* What stands behind a product may become part of it. */
static bool
goes_with_last(const walker *w, size_t u)
{
    const exec_chains *c = &w->after;
    bool waited = false;

    if (w->last == w->nunits || u == w->nunits || is_loops(w, w->last) ||
        !is_loops(w, u))
        return false;
    for (uint32_t i = c->start[w->last]; i != EXEC_NO_EDGE; i = c->next[i])
        waited = waited || c->edges->edges[2 * i + 1] == u;
    return waited;
}

/* What only inputs are needed for (scales of norms) runs first: such units
 * then stand side by side. They keep their memory for longer, and are small. */
static size_t
next_unit(walker *w)
{
    while (w->early < w->nunits &&
           !(w->ready[w->early] && is_small(w->g, &w->units[w->early], false)))
        w->early++;
    if (w->early < w->nunits)
        return w->early++;
    const size_t written = next_written(w);
    const uint32_t end =
        goes_with_last(w, written) ? EXEC_NO_END : exec_ends_next(&w->ends);
    return end == EXEC_NO_END ? written : end;
}

/* ---- the walk ---- */

static void
run_unit(walker *w, size_t u)
{
    const exec_chains *c = &w->after;

    w->ready[u] = false;
    w->last = u;
    exec_ends_ran(&w->ends, (uint32_t)u);
    w->in_flight += is_host(w, u, AIR_HOST_START);
    w->in_flight -= is_host(w, u, AIR_HOST_WAIT);
    for (uint32_t i = c->start[u]; i != EXEC_NO_EDGE; i = c->next[i]) {
        const uint32_t later = c->edges->edges[2 * i + 1];
        if (--w->waits[later] == 0)
            set_ready(w, later);
    }
    while (w->low < w->nunits && !w->ready[w->low] && w->waits[w->low] == 0)
        w->low++;
}

air_status
exec_sort_written(const ir_graph *g, const exec_units *units,
                  const exec_edges *edges, bool early, base_arena *scratch,
                  uint32_t *out)
{
    const size_t nunits = units->count;
    walker w = {.g = g,
                .units = units->data,
                .nunits = nunits,
                .early = early ? 0 : nunits,
                .last = nunits};

    AIR_TRY(exec_chains_make(scratch, nunits, edges, 0, &w.after));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, nunits, &w.waits));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, nunits, &w.ready));
    for (size_t i = 0; i < edges->count; i++)
        w.waits[edges->edges[2 * i + 1]]++;
    AIR_TRY(exec_ends_make(g, units, &w.after, scratch, &w.ends));
    if (early)
        AIR_TRY(find_late(&w, scratch));
    for (uint32_t u = 0; u < nunits; u++)
        if (w.waits[u] == 0)
            set_ready(&w, u);
    for (size_t done = 0; done < nunits; done++) {
        size_t u = next_unit(&w);
        if (u == nunits && w.late) {
            release_late(&w);
            u = next_unit(&w);
        }
        AIR_REQUIRE(u < nunits, AIR_ERROR_STATE, EXEC_CYCLE_FMT, g->name);
        run_unit(&w, u);
        out[done] = (uint32_t)u;
    }
    return AIR_OK;
}
