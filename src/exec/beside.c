/* beside.c: which steps need not wait for those right before them: products of
 * one operand, rotations of queries and of keys. A driver that runs a list in
 * one parallel region leaves out the barrier between them. */
#include <string.h>

#include "exec/exec.h"

#define WINDOW    8                 /* steps before one that are looked at */
#define MOST_WORK ((size_t)1 << 20) /* bytes of workspaces side by side */

typedef struct {
    int32_t storage;
    bool written;
} use;

typedef struct {
    const exec_spec *s;
    use *uses;
    size_t count, room;
} use_list;

static void
add_use(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    use_list *l = arg;

    (void)offset;
    if (l->uses)
        l->uses[l->count] = (use){*slot, written};
    l->count++;
}

/* May be memory of the caller, of which nothing is known. */
static bool
is_foreign(const exec_storage *s)
{
    return s->where == EXEC_INPUT || s->where == EXEC_HOST ||
           s->where == EXEC_LEFT;
}

static bool
overlap(const exec_spec *s, int32_t a, int32_t b)
{
    const exec_storage *x = &s->storages.data[a], *y = &s->storages.data[b];

    if (a == b || (is_foreign(x) && is_foreign(y)))
        return true;
    return exec_in_arena(x) && exec_in_arena(y) &&
           x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* but: a storage that does not count */
static bool
disturb(const use_list *l, const size_t *start, size_t a, size_t b, int32_t but)
{
    for (size_t i = start[a]; i < start[a + 1]; i++)
        for (size_t k = start[b]; k < start[b + 1]; k++)
            if ((l->uses[i].written || l->uses[k].written) &&
                (l->uses[i].storage != but || l->uses[k].storage != but) &&
                overlap(l->s, l->uses[i].storage, l->uses[k].storage))
                return true;
    return false;
}

/* Steps right before `end` that step `step` does not disturb. */
static uint32_t
count_beside(const use_list *l, const size_t *start, size_t step, size_t end)
{
    const exec_step *steps = l->s->steps.data;
    uint32_t count = 0;

    while (count < WINDOW && count < end &&
           (step < l->s->once || end - count > l->s->once) &&
           steps[end - count - 1].kind != EXEC_STEP_HOST &&
           !disturb(l, start, step, end - count - 1, -1))
        count++;
    return count;
}

/* A region that the step before it may take along: its results lie apart from
 * what that reads, and what both wait for. */
static void
check_join(const use_list *l, const size_t *start, size_t i)
{
    exec_step *step = &l->s->steps.data[i];

    step->from = step->region.bufs[step->join - 1].slot;
    if (disturb(l, start, i, i - 1, step->from)) {
        step->join = 0;
        return;
    }
    step->join_beside = count_beside(l, start, i, i - 1);
}

/* Slots are still storages, which have their offsets. */
air_status
exec_find_beside(exec_maker *m)
{
    exec_spec *s = m->s;
    use_list l = {.s = s};
    size_t *start;

    if (m->before)
        return AIR_OK; /* the steps say what they wait for */
    for (size_t i = 0; i < s->steps.count; i++)
        exec_each_place(&s->steps.data[i], add_use, &l);
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, l.count + 1, &l.uses));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, s->steps.count + 1, &start));
    l.count = 0;
    for (size_t i = 0; i < s->steps.count; i++) {
        exec_each_place(&s->steps.data[i], add_use, &l);
        start[i + 1] = l.count;
    }
    for (size_t i = 0; i < s->steps.count; i++) {
        if (s->steps.data[i].kind != EXEC_STEP_HOST)
            s->steps.data[i].step.beside = count_beside(&l, start, i, i);
        if (s->steps.data[i].join)
            check_join(&l, start, i);
    }
    return AIR_OK;
}

/* ---- workspaces ---- */

/* The end of the first of the `beside` steps before a step whose workspace
 * overlaps [at, at + bytes); 0: none does. */
static size_t
first_end(const exec_step *step, size_t at, size_t bytes)
{
    for (uint32_t k = 1; k <= step->step.beside; k++) {
        const air_step *other = &step[-(int)k].step;
        const size_t begin = (size_t)other->workspace_offset;
        if (at < begin + other->workspace && begin < at + bytes)
            return exec_round_up(begin + other->workspace);
    }
    return 0;
}

/* Offsets from 0 on, where no step's workspace is that of one beside it.
 * Large ones are shared: a barrier is nothing next to such a step. */
size_t
exec_place_beside(exec_spec *s)
{
    size_t most = 0;

    for (size_t i = 0; i < s->steps.count; i++) {
        exec_step *step = &s->steps.data[i];
        size_t at = 0, end, sum = step->step.workspace;
        for (uint32_t k = 1; k <= step->step.beside; k++) {
            sum += step[-(int)k].step.workspace;
            if (sum > MOST_WORK)
                step->step.beside = k - 1;
        }
        while (step->step.workspace > 0 &&
               (end = first_end(step, at, step->step.workspace)) > 0)
            at = end;
        step->step.workspace_offset = (int64_t)at;
        if (at + step->step.workspace > most)
            most = at + step->step.workspace;
    }
    return most;
}
