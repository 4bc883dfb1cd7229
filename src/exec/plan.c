/* plan.c: the memory plan: every storage of the arena gets an offset such that
 * storages alive at the same time do not overlap; then slots and offsets are
 * written into the steps. Largest first, each at the lowest free offset. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

#define ALIGN 64

static int64_t
round_up(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

typedef struct {
    int64_t bytes;
    int32_t storage;
} by_size;

static int
compare_size(const void *a, const void *b)
{
    const by_size *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->storage - y->storage;
}

static bool
planned_in_arena(const exec_storage *s)
{
    return s->where == EXEC_ARENA || s->where == EXEC_HOST;
}

static bool
alive_together(const exec_storage *a, const exec_storage *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Lowest offset free of the placed storages that live beside `s`; taken is
 * sorted by offset. */
static int64_t
find_offset(const exec_spec *spec, const int32_t *taken, size_t count,
            const exec_storage *s)
{
    int64_t at = 0;

    for (size_t i = 0; i < count; i++) {
        const exec_storage *t = &spec->storages.data[taken[i]];
        if (!alive_together(s, t))
            continue;
        if (at + s->bytes <= t->offset)
            return at;
        if (t->offset + t->bytes > at)
            at = round_up(t->offset + t->bytes);
    }
    return at;
}

static void
insert_by_offset(const exec_spec *spec, int32_t *taken, size_t count,
                 int32_t storage)
{
    int64_t offset = spec->storages.data[storage].offset;
    size_t at = count;

    while (at > 0 && spec->storages.data[taken[at - 1]].offset > offset) {
        taken[at] = taken[at - 1];
        at--;
    }
    taken[at] = storage;
}

static air_status
plan_arena(exec_maker *m)
{
    exec_spec *s = m->s;
    by_size *order;
    int32_t *taken;
    size_t count = 0, placed = 0;
    int64_t end = 0;

    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, s->storages.count, &order));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, s->storages.count + 1, &taken));
    for (size_t i = 0; i < s->storages.count; i++) {
        exec_storage *t = &s->storages.data[i];
        if (planned_in_arena(t) && t->first <= t->last)
            order[count++] = (by_size){t->bytes, (int32_t)i};
    }
    qsort(order, count, sizeof *order, compare_size);
    for (size_t i = 0; i < count; i++) {
        exec_storage *t = &s->storages.data[order[i].storage];
        t->offset = find_offset(s, taken, placed, t);
        insert_by_offset(s, taken, placed++, order[i].storage);
        if (t->offset + t->bytes > end)
            end = t->offset + t->bytes;
    }
    s->arena_bytes = (size_t)round_up(end);
    return AIR_OK;
}

/* Slots: the arena, then inputs, then blocks and HOST results. */
static void
assign_slots(exec_spec *s, size_t ninputs)
{
    int32_t next = 1 + (int32_t)ninputs;

    s->arena_slot = 0;
    for (size_t i = 0; i < s->storages.count; i++) {
        exec_storage *t = &s->storages.data[i];
        if (t->where == EXEC_INPUT)
            t->slot = 1 + t->input;
        else if (t->where == EXEC_ARENA)
            t->slot = s->arena_slot;
        else
            t->slot = next++;
    }
    s->nslots = next;
}

static void
patch_place(const exec_spec *s, int32_t *slot, int64_t *offset)
{
    const exec_storage *t;

    if (*slot < 0)
        return;
    t = &s->storages.data[*slot];
    *slot = t->slot;
    if (t->where == EXEC_ARENA)
        *offset += t->offset;
}

static void
patch_tensor(const exec_spec *s, const air_tensor *tensor)
{
    air_tensor *own;

    memcpy(&own, &tensor, sizeof own); /* the spec's own, not yet shared */
    if (own->dtype != AIR_DTYPE_NONE)
        patch_place(s, &own->slot, &own->offset);
}

static void
patch_call(const exec_spec *s, const air_call *call)
{
    for (int i = 0; i < call->nargs; i++) {
        const air_arg *a = &call->args[i];
        int count = a->kind == AIR_ARG_TENSOR    ? 1
                    : a->kind == AIR_ARG_TENSORS ? a->count
                                                 : 0;
        for (int k = 0; k < count; k++)
            patch_tensor(s, &a->t[k]);
    }
    for (int i = 0; i < call->nouts; i++)
        patch_tensor(s, &call->outs[i]);
}

air_status
exec_plan(exec_maker *m)
{
    exec_spec *s = m->s;

    AIR_TRY(plan_arena(m));
    assign_slots(s, m->g->inputs.count);
    for (size_t i = 0; i < s->steps.count; i++) {
        exec_step *step = &s->steps.data[i];
        if (step->kind == EXEC_STEP_REGION)
            for (int b = 0; b < step->region.region->nbufs; b++)
                patch_place(s, &step->region.bufs[b].slot,
                            &step->region.bufs[b].offset);
        else if (step->kind == EXEC_STEP_CALL)
            patch_call(s, &step->step.call);
    }
    return AIR_OK;
}
