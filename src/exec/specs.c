/* specs.c: the specialisations of a program: found by a hash of the sizes,
 * counted by who uses them, and dropped beyond a limit. */
#include <string.h>

#include "exec/exec.h"

#define FIRST_BUCKETS 16 /* a power of two, as every later number is */

struct exec_specs {
    pthread_mutex_t mutex; /* held for a look-up, never while one is made */
    uint64_t limit, count, dropped, ticks;
    double seconds;    /* that all took, dropped ones too */
    exec_spec *newest; /* chained by next */
    exec_spec *apart;  /* dropped, but lent: freed with the program */
    exec_spec **buckets;
    size_t nbuckets;
};

/* ---- the table ---- */

uint64_t
exec_specs_hash(const air_program *p, const int64_t *key)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < p->nsizes; i++) {
        hash = (hash ^ (uint64_t)key[p->sizes[i]]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static exec_spec **
bucket(const exec_specs *t, uint64_t hash)
{
    return &t->buckets[hash & (t->nbuckets - 1)];
}

static void
link_chain(exec_specs *t, exec_spec *s)
{
    exec_spec **at = bucket(t, s->hash);

    s->chain = *at;
    *at = s;
}

static void
unlink_chain(exec_specs *t, exec_spec *s)
{
    exec_spec **at = bucket(t, s->hash);

    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
}

static void
unlink_next(exec_specs *t, exec_spec *s)
{
    exec_spec **at = &t->newest;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
}

static air_status
grow(exec_specs *t, const air_alloc *alloc)
{
    const size_t old = t->nbuckets;
    void *memory;

    if (t->count < old)
        return AIR_OK;
    AIR_TRY(base_new(alloc, 2 * old * sizeof(exec_spec *), &memory));
    base_free(alloc, t->buckets, old * sizeof(exec_spec *));
    t->buckets = memory;
    t->nbuckets = 2 * old;
    for (exec_spec *s = t->newest; s; s = s->next)
        link_chain(t, s);
    return AIR_OK;
}

/* ---- create, destroy ---- */

air_status
exec_specs_create(const air_alloc *alloc, uint64_t limit, exec_specs **out)
{
    exec_specs *t;
    void *memory;
    air_status status;

    AIR_TRY(base_new(alloc, sizeof *t, &memory));
    t = memory;
    status = base_new(alloc, FIRST_BUCKETS * sizeof(exec_spec *), &memory);
    if (status != AIR_OK) {
        base_free(alloc, t, sizeof *t);
        return status;
    }
    t->buckets = memory;
    t->nbuckets = FIRST_BUCKETS;
    t->limit = limit;
    pthread_mutex_init(&t->mutex, NULL);
    *out = t;
    return AIR_OK;
}

static void
free_all(const air_program *p, exec_spec *s)
{
    while (s) {
        exec_spec *next = s->next;
        exec_spec_free(p, s);
        s = next;
    }
}

void
exec_specs_destroy(air_program *p)
{
    const air_alloc *alloc = &p->ctx->alloc;
    exec_specs *t = p->specs;

    if (!t)
        return;
    free_all(p, t->newest);
    free_all(p, t->apart);
    pthread_mutex_destroy(&t->mutex);
    base_free(alloc, t->buckets, t->nbuckets * sizeof(exec_spec *));
    base_free(alloc, t, sizeof *t);
    p->specs = NULL;
}

/* ---- look-up ---- */

static exec_spec *
retain(exec_spec *s)
{
    if (s)
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

exec_spec *
exec_specs_find(const air_program *p, const int64_t *key, uint64_t hash)
{
    const size_t bytes = p->key_len * sizeof *key;
    exec_specs *t = p->specs;
    exec_spec *s;

    pthread_mutex_lock(&t->mutex);
    s = *bucket(t, hash);
    while (s && memcmp(s->key, key, bytes) != 0)
        s = s->chain;
    if (retain(s))
        s->used = ++t->ticks;
    pthread_mutex_unlock(&t->mutex);
    return s;
}

exec_spec *
exec_specs_newest(const air_program *p)
{
    exec_specs *t = p->specs;
    exec_spec *s;

    pthread_mutex_lock(&t->mutex);
    s = retain(t->newest);
    pthread_mutex_unlock(&t->mutex);
    return s;
}

void
exec_specs_stats(const air_program *p, air_program_stats *out)
{
    exec_specs *t = p->specs;

    pthread_mutex_lock(&t->mutex);
    out->specialisations = t->count;
    out->specialise_s = t->seconds;
    out->dropped = t->dropped;
    pthread_mutex_unlock(&t->mutex);
}

/* ---- what goes ---- */

/* The one that was used the longest time ago, of those that may go: taken out.
 * NULL: there is room, or none may. */
static exec_spec *
take_oldest(exec_specs *t)
{
    exec_spec *oldest = NULL;

    if (t->limit == 0 || t->count < t->limit)
        return NULL;
    for (exec_spec *s = t->newest; s; s = s->next)
        if (!atomic_load(&s->lent) && (!oldest || s->used < oldest->used))
            oldest = s;
    if (!oldest)
        return NULL;
    unlink_chain(t, oldest);
    unlink_next(t, oldest);
    t->count--;
    t->dropped++;
    return oldest;
}

air_status
exec_specs_add(air_program *p, exec_spec *s)
{
    exec_specs *t = p->specs;
    exec_spec *gone = NULL;
    air_status status;

    pthread_mutex_lock(&t->mutex);
    status = grow(t, &p->ctx->alloc);
    if (status == AIR_OK) {
        gone = take_oldest(t);
        s->used = ++t->ticks;
        s->next = t->newest;
        t->newest = retain(s);
        link_chain(t, s);
        t->count++;
        t->seconds += s->seconds;
    }
    pthread_mutex_unlock(&t->mutex);
    exec_spec_release(p, gone);
    return status;
}

void
exec_spec_release(const air_program *p, exec_spec *s)
{
    exec_specs *t = p->specs;

    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (!atomic_load(&s->lent)) {
        exec_spec_free(p, s);
        return;
    }
    pthread_mutex_lock(&t->mutex);
    s->next = t->apart;
    t->apart = s;
    pthread_mutex_unlock(&t->mutex);
}
