/* depend.c: which step waits for which, where a program has lanes. Steps wait
 * for those before them in their lane, for whoever shares memory with them
 * where one of both writes, and as their units do; HOST steps for all. The
 * memory plan keeps memory apart that two lanes may use at once, and a device
 * may run side by side what does not wait for each other.
 *
 * Sets of steps are rows of bits, and hold with a step all that it waits for.
 */
#include <string.h>

#include "exec/exec.h"

/* Longer programs run in order: sets grow as squares. */
#define MOST_STEPS 4096

typedef struct {
    exec_maker *m;
    size_t step;     /* the one at hand */
    uint64_t *row;   /* its set */
    uint64_t *reads; /* by storage: those since the last write, and before */
    uint64_t *writes;
    uint64_t *units; /* by unit: what has run when it is done */
    uint64_t *lanes; /* by lane: the same */
    uint64_t *all;   /* when the last HOST step is done */
    size_t nlanes;
} finder;

static uint64_t *
row_of(const finder *f, uint64_t *rows, size_t index)
{
    return rows + index * f->m->words;
}

static void
add_all(const finder *f, uint64_t *to, const uint64_t *from)
{
    for (size_t w = 0; w < f->m->words; w++)
        to[w] |= from[w];
}

/* The step at hand, and with it its set. */
static void
add_step(const finder *f, uint64_t *to)
{
    add_all(f, to, f->row);
    to[f->step / 64] |= (uint64_t)1 << f->step % 64;
}

/* ---- places of a step ---- */

static void
each_tensor(const air_tensor *tensors, int count, bool written,
            exec_place_fn fn, void *arg)
{
    air_tensor *own;

    memcpy(&own, &tensors, sizeof own); /* the spec's own, not yet shared */
    for (int i = 0; i < count; i++)
        if (own[i].dtype != AIR_DTYPE_NONE && own[i].slot >= 0)
            fn(arg, &own[i].slot, &own[i].offset, written);
}

static void
each_of_call(const exec_step *step, exec_place_fn fn, void *arg)
{
    const air_call *call = &step->step.call;

    for (int i = 0; i < call->nargs; i++) {
        const air_arg *a = &call->args[i];
        if (a->kind == AIR_ARG_TENSOR)
            each_tensor(a->t, 1, false, fn, arg);
        else if (a->kind == AIR_ARG_TENSORS)
            each_tensor(a->t, a->count, false, fn, arg);
    }
    each_tensor(call->outs, call->nouts, true, fn, arg);
}

bool
exec_stores(const air_region *r, int buf)
{
    for (int i = 0; i < r->nnodes; i++)
        if (r->nodes[i].op == AIR_RG_STORE && r->nodes[i].buf == buf)
            return true;
    return false;
}

void
exec_each_place(const exec_step *step, exec_place_fn fn, void *arg)
{
    switch (step->kind) {
    case EXEC_STEP_REGION:
        for (int b = 0; b < step->region.region->nbufs; b++)
            if (step->region.bufs[b].slot >= 0)
                fn(arg, &step->region.bufs[b].slot,
                   &step->region.bufs[b].offset,
                   exec_stores(step->region.region, b));
        break;
    case EXEC_STEP_CALL: each_of_call(step, fn, arg); break;
    case EXEC_STEP_HOST:
        for (size_t i = 0; i < step->nin; i++)
            fn(arg, &step->in_storage[i], &step->in_offset[i], true);
        for (size_t i = 0; i < step->nout; i++)
            fn(arg, &step->out_storage[i], &(int64_t){0}, true);
        break;
    }
}

/* ---- sets ---- */

/* Writers of the parts of a cat do not wait for each other. */
static void
wait_for_memory(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    finder *f = arg;
    const size_t s = (size_t)*slot;

    (void)offset;
    if (!written || !f->m->s->storages.data[s].parts)
        add_all(f, f->row, row_of(f, f->writes, s));
    if (written)
        add_all(f, f->row, row_of(f, f->reads, s));
}

static void
use_memory(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    finder *f = arg;

    (void)offset;
    add_step(f, row_of(f, written ? f->writes : f->reads, (size_t)*slot));
}

static void
wait_for_all(finder *f)
{
    for (size_t i = 0; i < f->step; i++)
        f->row[i / 64] |= (uint64_t)1 << i % 64;
}

/* unit: UINT32_MAX for the copies of results, which have none. */
static void
find_step(finder *f, uint32_t unit)
{
    const exec_step *step = &f->m->s->steps.data[f->step];
    uint64_t *lane = row_of(f, f->lanes, (size_t)step->step.lane);

    f->row = row_of(f, f->m->before, f->step);
    add_all(f, f->row, f->all);
    if (step->kind == EXEC_STEP_HOST) {
        wait_for_all(f);
        add_step(f, f->all);
    }
    add_all(f, f->row, lane);
    if (unit != UINT32_MAX)
        add_all(f, f->row, row_of(f, f->units, unit));
    exec_each_place(step, wait_for_memory, f);
    exec_each_place(step, use_memory, f);
    add_step(f, lane);
    if (unit != UINT32_MAX)
        add_step(f, row_of(f, f->units, unit));
}

/* Units without steps, views, pass on what they wait for. */
static void
find_all(finder *f)
{
    const exec_order *order = &f->m->p->order;
    const exec_spec *s = f->m->s;
    size_t edge = 0;

    for (uint32_t u = 0; u < order->count; u++) {
        for (; edge < order->nedges && order->edges[edge].to == u; edge++)
            add_all(f, row_of(f, f->units, u),
                    row_of(f, f->units, order->edges[edge].from));
        while (f->step < s->steps.count &&
               s->steps.data[f->step].unit == &order->units[u]) {
            find_step(f, u);
            f->step++;
        }
    }
    for (; f->step < s->steps.count; f->step++)
        find_step(f, UINT32_MAX);
}

/* ---- what steps of a list wait for ---- */

/* The latest step of the set that is in [begin, end) and not covered. */
static bool
latest(const uint64_t *set, const uint64_t *covered, size_t begin, size_t *end)
{
    while (*end > begin) {
        const size_t i = --*end;
        if ((set[i / 64] & ~covered[i / 64]) >> i % 64 & 1)
            return true;
    }
    return false;
}

/* Without those that others wait for: list begins at step `begin`. */
static air_status
name_waits(const finder *f, size_t step, size_t begin, uint64_t *covered)
{
    const uint64_t *set = row_of(f, f->m->before, step);
    air_step *out = &f->m->s->steps.data[step].step;
    uint32_t *after;
    size_t end = step, count = 0;

    AIR_TRY(BASE_ARENA_ARRAY(&f->m->s->arena, step - begin + 1, &after));
    memset(covered, 0, f->m->words * sizeof *covered);
    while (latest(set, covered, begin, &end)) {
        after[count++] = (uint32_t)(end - begin);
        add_all(f, covered, row_of(f, f->m->before, end));
    }
    out->after = after;
    out->nafter = (uint32_t)count;
    return AIR_OK;
}

static air_status
name_all(const finder *f)
{
    const exec_spec *s = f->m->s;
    uint64_t *covered;
    size_t begin = 0;

    AIR_TRY(BASE_ARENA_ARRAY(f->m->scratch, f->m->words, &covered));
    for (size_t i = 0; i < s->steps.count; i++) {
        if (s->steps.data[i].kind == EXEC_STEP_HOST)
            begin = i + 1;
        else
            AIR_TRY(name_waits(f, i, begin, covered));
    }
    return AIR_OK;
}

static air_status
new_rows(finder *f, size_t count, uint64_t **out)
{
    return BASE_ARENA_ARRAY(f->m->scratch, count * f->m->words, out);
}

static air_status
make_rows(finder *f)
{
    exec_maker *m = f->m;

    for (size_t i = 0; i < m->s->steps.count; i++)
        if ((size_t)m->s->steps.data[i].step.lane >= f->nlanes)
            f->nlanes = (size_t)m->s->steps.data[i].step.lane + 1;
    m->words = (m->s->steps.count + 63) / 64;
    AIR_TRY(new_rows(f, m->s->steps.count, &m->before));
    AIR_TRY(new_rows(f, m->s->storages.count, &f->reads));
    AIR_TRY(new_rows(f, m->s->storages.count, &f->writes));
    AIR_TRY(new_rows(f, m->p->order.count, &f->units));
    AIR_TRY(new_rows(f, f->nlanes, &f->lanes));
    return new_rows(f, 1, &f->all);
}

air_status
exec_depend(exec_maker *m)
{
    finder f = {.m = m, .nlanes = 1};

    if (!m->p->order.lanes || m->s->steps.count == 0 ||
        m->s->steps.count > MOST_STEPS)
        return AIR_OK;
    AIR_TRY(make_rows(&f));
    find_all(&f);
    return name_all(&f);
}
