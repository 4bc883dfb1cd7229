/* capture.c: the rules: which capture a call takes, and whether it is made,
 * made again or refused. */
#include "exec/capture.h"

#include <string.h>

#define DEFAULT_LIMIT 64
#define SMALL_KEY     512

/* ---- records ---- */

static void
push_record(air_capture *c, capture_record *r)
{
    r->next = c->records;
    c->records = r;
    c->nrecords++;
}

static void
unlink_record(air_capture *c, capture_record *r)
{
    capture_record **at = &c->records;

    while (*at && *at != r)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = r->next;
    r->next = NULL;
    c->nrecords--;
}

static bool
is_last(capture_record *r)
{
    return atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1;
}

/* Records without a reference, chained by next. The application is told with
 * no lock held: what it does may wait for a thread that wants one. */
static void
bury(air_capture *c, capture_record *dead)
{
    for (capture_record *r = dead; r && c->options.dropped; r = r->next)
        if (r->graph)
            c->options.dropped(c->options.user, r->graph);
    pthread_mutex_lock(&c->mutex);
    while (dead) {
        capture_record *next = dead->next;
        capture_record_free(c, dead);
        dead = next;
    }
    pthread_mutex_unlock(&c->mutex);
}

/* With the mutex held: takes it from the list; *dead gets it if it is free. */
static void
remove_record(air_capture *c, capture_record *r, capture_record **dead)
{
    unlink_record(c, r);
    if (is_last(r)) {
        r->next = *dead;
        *dead = r;
    }
}

static void
remove_all(air_capture *c, capture_record **dead)
{
    while (c->records)
        remove_record(c, c->records, dead);
}

/* ---- create, destroy ---- */

static air_status
open_capture(air_capture *c)
{
    AIR_TRY(capture_sort_inputs(c));
    if (!c->pool)
        return exec_graph_pool_create(c->p->ctx->pool, NULL, &c->pool);
    exec_graph_pool_retain(c->pool);
    return AIR_OK;
}

air_status
exec_capture_create(air_program *p, const air_capture_options *options,
                    air_capture **out)
{
    air_capture *c;
    void *memory;
    air_status status;

    *out = NULL;
    AIR_TRY(base_new(&p->ctx->alloc, sizeof *c, &memory));
    c = memory;
    c->p = p;
    if (options)
        c->options = *options;
    if (c->options.limit == 0)
        c->options.limit = DEFAULT_LIMIT;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_mutex_init(&c->telling, NULL);
    base_arena_init(&c->arena, &p->ctx->alloc);
    c->pool = c->options.pool;
    status = open_capture(c);
    if (status != AIR_OK) {
        c->pool = NULL;
        exec_capture_destroy(c);
        return base_trace(status, __func__, __LINE__);
    }
    *out = c;
    return AIR_OK;
}

void
exec_capture_reset(air_capture *c)
{
    capture_record *dead = NULL;

    pthread_mutex_lock(&c->mutex);
    remove_all(c, &dead);
    capture_area_drop(c, c->area);
    c->area = NULL;
    pthread_mutex_unlock(&c->mutex);
    bury(c, dead);
}

void
exec_capture_destroy(air_capture *c)
{
    const air_alloc alloc = c->p->ctx->alloc;

    exec_capture_reset(c);
    capture_free_bindings(c);
    exec_graph_pool_release(c->pool);
    base_arena_deinit(&c->arena);
    pthread_mutex_destroy(&c->telling);
    pthread_mutex_destroy(&c->mutex);
    base_free(&alloc, c, sizeof *c);
}

/* ---- rules ---- */

typedef struct {
    air_capture *c;
    air_capture_call *call;
    const air_binding *binding;
    const air_value *inputs;
    const int64_t *key;
    uint64_t hash;
    const air_host *host;
    capture_record *record, *dead;
    capture_frame *frame;
} capture_lookup;

static capture_record *
find_record(const capture_lookup *l)
{
    const size_t bytes = l->c->key_len * sizeof *l->key;
    capture_record *r = l->c->records;

    while (r && (r->hash != l->hash || r->binding != l->binding ||
                 memcmp(r->key, l->key, bytes) != 0))
        r = r->next;
    return r;
}

static bool
has_moved(const capture_record *r, const air_value *inputs)
{
    for (size_t i = 0; i < r->ninputs; i++)
        if (r->inputs[i].written &&
            r->inputs[i].data != inputs[r->inputs[i].input].data)
            return true;
    return false;
}

/* What a call with a known key is, in the order of the rules. */
static air_call_class
judge(const capture_lookup *l, const capture_record *r)
{
    if (!r->spec)
        return r->warmups < l->c->options.warmups ? AIR_CALL_WARMUP
                                                  : AIR_CALL_CAPTURED;
    if (l->c->options.force_recapture)
        return AIR_CALL_FORCED;
    if (has_moved(r, l->inputs))
        return AIR_CALL_MUTATED;
    if (r->cube_cores != l->call->cube_cores ||
        r->vector_cores != l->call->vector_cores)
        return AIR_CALL_CORES;
    return r->plain ? AIR_CALL_SKIPPED : AIR_CALL_REPLAYED;
}

static bool
is_full(const air_capture *c)
{
    return c->nrecords >= c->options.limit;
}

/* The record that was used the longest time ago goes. */
static void
make_room(capture_lookup *l)
{
    capture_record *oldest = l->c->records;

    if (!is_full(l->c))
        return;
    for (capture_record *r = oldest; r; r = r->next)
        if (r->used < oldest->used)
            oldest = r;
    remove_record(l->c, oldest, &l->dead);
    l->c->dropped++;
}

static air_call_class
judge_new(const capture_lookup *l)
{
    if (is_full(l->c))
        return AIR_CALL_BEYOND;
    return l->c->options.warmups > 0 ? AIR_CALL_WARMUP : AIR_CALL_CAPTURED;
}

static bool
is_capture(air_call_class how)
{
    return how == AIR_CALL_CAPTURED || how == AIR_CALL_FORCED ||
           how == AIR_CALL_MUTATED || how == AIR_CALL_CORES;
}

/* A record for this call in the place of `old`, which stays if that fails. */
static air_status
replace_record(capture_lookup *l, capture_record *old)
{
    air_capture *c = l->c;
    capture_record *r;
    air_status status;

    AIR_TRY(capture_record_make(c, l->binding, l->key, l->hash, &r));
    status = is_capture(l->call->how)
                 ? capture_record_bind(c, r, l->call, l->host, l->inputs)
                 : AIR_OK;
    if (status != AIR_OK) {
        capture_record_free(c, r);
        return base_trace(status, __func__, __LINE__);
    }
    if (old)
        remove_record(c, old, &l->dead);
    push_record(c, r);
    l->record = r;
    return AIR_OK;
}

static air_status
decide(capture_lookup *l)
{
    capture_record *old = find_record(l);

    l->record = old;
    l->call->how = old ? judge(l, old) : judge_new(l);
    switch (l->call->how) {
    case AIR_CALL_REPLAYED:
    case AIR_CALL_SKIPPED: return AIR_OK;
    case AIR_CALL_BEYOND:
    case AIR_CALL_WARMUP:
        if (!old) {
            make_room(l);
            AIR_TRY(replace_record(l, NULL));
        }
        l->record->warmups++;
        return AIR_OK;
    default: return replace_record(l, old);
    }
}

/* With the mutex held: a capture that cannot run is forgotten. */
static void
forget(capture_lookup *l, const capture_record *r)
{
    capture_record *found = l->c->records;

    while (found && found != r)
        found = found->next;
    if (found && is_capture(l->call->how))
        remove_record(l->c, found, &l->dead);
}

static air_status
begin_locked(capture_lookup *l)
{
    air_capture *c = l->c;
    air_status status;

    AIR_TRY(decide(l));
    l->record->used = ++c->ticks;
    if (l->call->how == AIR_CALL_BEYOND || l->call->how == AIR_CALL_WARMUP)
        return AIR_OK;
    status = capture_frame_take(c, l->record, &l->frame);
    if (status != AIR_OK) {
        forget(l, l->record);
        return base_trace(status, __func__, __LINE__);
    }
    l->call->graph = l->record->graph;
    atomic_fetch_add_explicit(&l->record->refs, 1, memory_order_relaxed);
    return AIR_OK;
}

static air_status
begin(capture_lookup *l)
{
    air_status status;

    pthread_mutex_lock(&l->c->mutex);
    status = begin_locked(l);
    pthread_mutex_unlock(&l->c->mutex);
    return status;
}

static void
end(capture_lookup *l, air_status status)
{
    capture_record *r = l->record;
    air_capture *c = l->c;

    if (l->frame) {
        pthread_mutex_lock(&c->mutex);
        l->frame->next = r->frames;
        r->frames = l->frame;
        if (status != AIR_OK)
            forget(l, r);
        if (is_last(r)) {
            r->next = l->dead;
            l->dead = r;
        }
        pthread_mutex_unlock(&c->mutex);
    }
    if (l->dead)
        bury(c, l->dead);
    if (status == AIR_OK)
        atomic_fetch_add_explicit(&c->calls[l->call->how], 1,
                                  memory_order_relaxed);
}

/* ---- the call ---- */

static air_status
warm_up(capture_lookup *l, air_value *outs)
{
    base_arena scratch;
    air_value *all;
    air_status status;

    base_arena_init(&scratch, &l->c->p->ctx->alloc);
    status = capture_all_inputs(l->c, l->binding, l->inputs, &scratch, &all);
    if (status == AIR_OK)
        status = exec_program_run(l->c->p, l->host, all, outs);
    base_arena_deinit(&scratch);
    return status;
}

static air_status
replay(capture_lookup *l, air_value *outs)
{
    AIR_TRY(
        capture_replay(l->c, l->record, l->frame, l->host, l->inputs, outs));
    if (l->call->how == AIR_CALL_CAPTURED && atomic_load(&l->record->plain))
        l->call->how = AIR_CALL_SKIPPED;
    atomic_fetch_add_explicit(&l->c->p->runs, 1, memory_order_relaxed);
    return AIR_OK;
}

static air_status
run_keyed(capture_lookup *l, air_value *outs)
{
    air_status status = begin(l);

    if (status == AIR_OK && l->frame)
        status = replay(l, outs);
    else if (status == AIR_OK)
        status = warm_up(l, outs);
    end(l, status);
    return status;
}

static air_status
run_bound(capture_lookup *l, air_value *outs)
{
    const air_alloc *alloc = &l->c->p->ctx->alloc;
    const size_t bytes = l->c->key_len * sizeof(int64_t);
    int64_t small[SMALL_KEY], *key = small;
    air_status status;

    if (l->c->key_len > SMALL_KEY)
        AIR_TRY(base_new(alloc, bytes, (void **)&key));
    status = capture_write_key(l->c, l->inputs, key, &l->hash);
    l->key = key;
    if (status == AIR_OK)
        status = run_keyed(l, outs);
    if (key != small)
        base_free(alloc, key, bytes);
    return status;
}

air_status
exec_capture_run(air_capture *c, air_capture_call *call, const air_host *host,
                 size_t nin, const air_value *inputs, size_t nout,
                 air_value *outs)
{
    capture_lookup l = {.c = c, .call = call, .inputs = inputs, .host = host};
    air_status status;

    call->graph = 0;
    AIR_TRY(exec_check_counts(c->p, nin, nout, outs));
    l.binding = call->binding;
    if (!call->binding)
        AIR_TRY(exec_capture_bind(c, inputs, &l.binding));
    status = run_bound(&l, outs);
    if (!call->binding)
        exec_capture_unbind(c, l.binding);
    return status;
}

void
exec_capture_stats(air_capture *c, air_capture_stats *out)
{
    *out = (air_capture_stats){0};
    for (int i = 0; i < AIR_CALL_COUNT; i++)
        out->calls[i] = atomic_load(&c->calls[i]);
    out->copied_bytes = atomic_load(&c->copied);
    pthread_mutex_lock(&c->mutex);
    for (const capture_record *r = c->records; r; r = r->next)
        out->graphs += r->spec != NULL;
    out->dropped = c->dropped;
    pthread_mutex_unlock(&c->mutex);
}
