/* plan.c: the memory plan: every storage of the arena gets an offset such that
 * storages alive at the same time do not overlap; then slots and offsets are
 * written into the steps. Largest first, each at the lowest free offset. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

/* Bytes of what lingers (air_target) at most. */
#define SMALL (1 << 18)

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

/* ---- lives ---- */

/* Where steps are ordered, a storage lives from its first to its last step.
 * With lanes only sets say who is over when another one begins. */
typedef struct {
    const exec_spec *s;
    const exec_maker *m;
    size_t step;     /* being looked at */
    uint64_t *users; /* by storage: steps that use it */
    uint64_t *over;  /* by storage: steps before every one of them */
} lives;

static void
add_use(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    lives *l = arg;
    const size_t words = l->m->words;
    uint64_t *users = l->users + (size_t)*slot * words;
    uint64_t *over = l->over + (size_t)*slot * words;
    const uint64_t *before = l->m->before + l->step * words;

    (void)offset, (void)written;
    users[l->step / 64] |= (uint64_t)1 << l->step % 64;
    for (size_t w = 0; w < words; w++)
        over[w] &= before[w];
}

static air_status
find_lives(exec_maker *m, lives *l)
{
    const size_t rows = m->s->storages.count * m->words;

    *l = (lives){.s = m->s, .m = m};
    if (!m->before)
        return AIR_OK;
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, rows + 1, &l->users));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, rows + 1, &l->over));
    memset(l->over, 0xff, rows * sizeof *l->over);
    for (; l->step < m->s->steps.count; l->step++)
        exec_each_place(&m->s->steps.data[l->step], add_use, l);
    return AIR_OK;
}

static bool
is_over(const lives *l, int32_t a, int32_t b)
{
    const size_t words = l->m->words;
    const uint64_t *users = l->users + (size_t)a * words;
    const uint64_t *over = l->over + (size_t)b * words;

    for (size_t w = 0; w < words; w++)
        if (users[w] & ~over[w])
            return false;
    return true;
}

/* The last step at which nobody else may have the memory. */
static int32_t
last_of(const lives *l, const exec_storage *s)
{
    return s->bytes <= SMALL ? s->last + l->m->p->ctx->target.linger : s->last;
}

static bool
alive_together(const lives *l, int32_t a, int32_t b)
{
    const exec_storage *x = &l->s->storages.data[a];
    const exec_storage *y = &l->s->storages.data[b];

    if (l->users)
        return !is_over(l, a, b) && !is_over(l, b, a);
    return x->first <= last_of(l, y) && y->first <= last_of(l, x);
}

/* ---- offsets ---- */

/* Lowest offset free of the placed storages that live beside `s`; taken is
 * sorted by offset. */
static int64_t
find_offset(const lives *l, const int32_t *taken, size_t count, int32_t storage)
{
    const exec_storage *s = &l->s->storages.data[storage];
    int64_t at = 0;

    for (size_t i = 0; i < count; i++) {
        const exec_storage *t = &l->s->storages.data[taken[i]];
        if (!alive_together(l, storage, taken[i]))
            continue;
        if (at + s->bytes <= t->offset)
            return at;
        if (t->offset + t->bytes > at)
            at = (int64_t)exec_round_up((size_t)(t->offset + t->bytes));
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
    lives l;
    by_size *order;
    int32_t *taken;
    size_t count = 0, placed = 0;
    int64_t end = 0;

    AIR_TRY(find_lives(m, &l));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, s->storages.count, &order));
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, s->storages.count + 1, &taken));
    for (size_t i = 0; i < s->storages.count; i++) {
        exec_storage *t = &s->storages.data[i];
        if (exec_in_arena(t) && t->first <= t->last)
            order[count++] = (by_size){t->bytes, (int32_t)i};
    }
    qsort(order, count, sizeof *order, compare_size);
    for (size_t i = 0; i < count; i++) {
        exec_storage *t = &s->storages.data[order[i].storage];
        t->offset = find_offset(&l, taken, placed, order[i].storage);
        insert_by_offset(s, taken, placed++, order[i].storage);
        if (t->offset + t->bytes > end)
            end = t->offset + t->bytes;
    }
    s->arena_bytes = exec_round_up((size_t)end);
    return AIR_OK;
}

/* What the steps of the first run leave for others lies one behind the other.
 */
static void
plan_kept(exec_spec *s)
{
    const int32_t once = (int32_t)s->once;
    int64_t end = 0;

    for (size_t i = 0; i < s->storages.count; i++) {
        exec_storage *t = &s->storages.data[i];
        if (t->where != EXEC_ARENA || t->first >= once || t->last < once)
            continue;
        t->where = EXEC_KEPT;
        t->offset = end;
        end = (int64_t)exec_round_up((size_t)(end + t->bytes));
    }
    s->kept_bytes = (size_t)end;
}

/* Slots: the arena, then inputs, then blocks, HOST results, what is kept. */
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
        else if (t->where != EXEC_KEPT)
            t->slot = next++;
    }
    s->kept_slot = next++;
    for (size_t i = 0; i < s->storages.count; i++)
        if (s->storages.data[i].where == EXEC_KEPT)
            s->storages.data[i].slot = s->kept_slot;
    s->nslots = next;
}

static void
patch_place(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    const exec_spec *s = arg;
    const exec_storage *t = &s->storages.data[*slot];

    (void)written;
    *slot = t->slot;
    *offset += exec_slot_offset(t);
}

air_status
exec_plan(exec_maker *m)
{
    exec_spec *s = m->s;

    plan_kept(s);
    exec_find_joins(m);
    AIR_TRY(plan_arena(m));
    AIR_TRY(exec_find_beside(m));
    assign_slots(s, m->g->inputs.count);
    /* HOST steps keep storages: what is left there may move. */
    for (size_t i = 0; i < s->steps.count; i++)
        if (s->steps.data[i].kind != EXEC_STEP_HOST)
            exec_each_place(&s->steps.data[i], patch_place, s);
    return AIR_OK;
}
