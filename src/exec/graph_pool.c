/* graph_pool.c: see graph_pool.h. */
#include "exec/graph_pool.h"

#include "exec/graph_segment.h"

#define TRIM_TICKS 64 /* how often what is more than needed is looked for */

/* Highest id so far. Of all contexts: a handle is made before it is known which
 * device it is for, and must not be another pool's there. */
static atomic_int_fast64_t last_id;

/* ---- the pool ---- */

static void
unlink_pool(air_graph_pool *pool)
{
    exec_graph_list *list = exec_pool_graphs(pool->base);
    air_graph_pool **at = &list->first;

    pthread_mutex_lock(&list->mutex);
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    pthread_mutex_unlock(&list->mutex);
}

static void
destroy(air_graph_pool *pool)
{
    exec_pool *base = pool->base;
    const air_alloc alloc = *exec_pool_alloc(base);
    graph_segment *segments;

    unlink_pool(pool);
    segments = graph_segments_forget(pool);
    pthread_mutex_destroy(&pool->mutex);
    base_free(&alloc, pool, sizeof *pool);
    graph_segments_unmap(base, segments);
}

void
exec_graph_pool_retain(air_graph_pool *pool)
{
    exec_graph_list *list = exec_pool_graphs(pool->base);

    pthread_mutex_lock(&list->mutex);
    pool->refs++;
    pthread_mutex_unlock(&list->mutex);
}

void
exec_graph_pool_release(air_graph_pool *pool)
{
    exec_graph_list *list;
    bool last;

    if (!pool)
        return;
    list = exec_pool_graphs(pool->base);
    pthread_mutex_lock(&list->mutex);
    pthread_mutex_lock(&pool->mutex);
    pool->closed = --pool->refs == 0;
    last = pool->closed && pool->live_blocks == 0;
    pthread_mutex_unlock(&pool->mutex);
    pthread_mutex_unlock(&list->mutex);
    if (last)
        destroy(pool);
}

static int64_t
new_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

static void
note_id(int64_t id)
{
    int_fast64_t last = atomic_load(&last_id);

    while (last < id && !atomic_compare_exchange_weak(&last_id, &last, id))
        continue;
}

/* With the list's mutex held. */
static air_status
create_locked(exec_pool *base, const int64_t *id, air_graph_pool **out)
{
    exec_graph_list *list = exec_pool_graphs(base);
    air_graph_pool *pool;
    void *memory;

    AIR_TRY(base_new(exec_pool_alloc(base), sizeof *pool, &memory));
    pool = memory;
    pool->base = base;
    pool->refs = 1;
    pool->id[0] = id ? id[0] : 0;
    pool->id[1] = id ? id[1] : new_id();
    pthread_mutex_init(&pool->mutex, NULL);
    pool->next = list->first;
    list->first = pool;
    note_id(pool->id[1]);
    *out = pool;
    return AIR_OK;
}

air_status
exec_graph_pool_create(exec_pool *base, const int64_t *id, air_graph_pool **out)
{
    exec_graph_list *list = exec_pool_graphs(base);
    air_status status;

    *out = NULL;
    pthread_mutex_lock(&list->mutex);
    status = create_locked(base, id, out);
    pthread_mutex_unlock(&list->mutex);
    return status;
}

air_status
exec_graph_pool_find(exec_pool *base, const int64_t *id, air_graph_pool **out)
{
    exec_graph_list *list = exec_pool_graphs(base);
    air_status status = AIR_OK;
    air_graph_pool *pool;

    *out = NULL;
    pthread_mutex_lock(&list->mutex);
    pool = list->first;
    while (pool &&
           (pool->refs == 0 || pool->id[0] != id[0] || pool->id[1] != id[1]))
        pool = pool->next;
    if (pool) {
        pool->refs++;
        *out = pool;
    } else {
        status = create_locked(base, id, out);
    }
    pthread_mutex_unlock(&list->mutex);
    return status;
}

/* ---- blocks ---- */

static void
put_block(exec_block *block)
{
    graph_chunk *c = (graph_chunk *)(void *)block;
    air_graph_pool *pool = block->pool;
    graph_segment *s = c->segment;
    /* a step that repeats finds its segments again */
    const uint64_t keep = exec_pool_keeps(pool->base);
    bool last;

    pthread_mutex_lock(&pool->mutex);
    pool->live_blocks--;
    pool->live_bytes -= block->size;
    if (c->scratch)
        pool->scratch_bytes -= block->size;
    s->tick = ++pool->tick;
    graph_chunk_put(pool, c);
    if (!pool->closed && pool->tick % TRIM_TICKS == 0 && pool->tick > keep)
        graph_segments_trim(pool, graph_segments_bound(pool),
                            pool->tick - keep);
    last = pool->closed && pool->live_blocks == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (last)
        destroy(pool);
}

static size_t
chunk_size(size_t size)
{
    return size ? exec_round_up(size) : EXEC_ALIGN;
}

static exec_block *
give_out(air_graph_pool *pool, graph_chunk *c, bool scratch)
{
    c->generation = pool->generation;
    c->scratch = scratch;
    if (scratch)
        pool->scratch_bytes += c->block.size;
    c->block.put = put_block;
    c->block.pool = pool;
    atomic_init(&c->block.refs, 1);
    pool->live_blocks++;
    pool->live_bytes += c->block.size;
    return &c->block;
}

air_status
exec_graph_pool_get(air_graph_pool *pool, size_t size, bool scratch,
                    exec_block **out)
{
    graph_chunk *c;
    air_status status;

    *out = NULL;
    AIR_REQUIRE(size <= SIZE_MAX - EXEC_ALIGN, AIR_ERROR_MEMORY,
                "%zu bytes are more than there can be", size);
    pthread_mutex_lock(&pool->mutex);
    status = graph_chunk_take(pool, chunk_size(size), &c);
    if (status == AIR_OK)
        *out = give_out(pool, c, scratch);
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

void
exec_graph_pool_get_at(air_graph_pool *pool, size_t size, const void *data,
                       exec_block **out)
{
    graph_chunk *c;

    *out = NULL;
    pthread_mutex_lock(&pool->mutex);
    c = graph_chunk_take_at(pool, data, chunk_size(size));
    if (c)
        *out = give_out(pool, c, false);
    pthread_mutex_unlock(&pool->mutex);
}

void
exec_graph_pool_expect(air_graph_pool *pool, size_t bytes, int captures)
{
    pthread_mutex_lock(&pool->mutex);
    if (bytes > pool->largest_bytes)
        pool->largest_bytes = bytes;
    pool->captures += (uint64_t)(int64_t)captures;
    if (pool->captures == 0) {
        pool->largest_bytes = 0;
        graph_segments_trim(pool, 0, UINT64_MAX);
    }
    pthread_mutex_unlock(&pool->mutex);
}

void
exec_graph_pool_mark_step(air_graph_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->generation++;
    pthread_mutex_unlock(&pool->mutex);
}

void
exec_graph_pool_trim(air_graph_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    graph_segments_trim(pool, 0, UINT64_MAX);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- figures ---- */

static uint64_t
count_stale(const air_graph_pool *pool)
{
    uint64_t count = 0;

    for (const graph_segment *s = pool->segments; s; s = s->next)
        for (const graph_chunk *c = s->first; c; c = c->right)
            count += !c->free && c->generation != pool->generation;
    return count;
}

void
exec_graph_pool_stats(air_graph_pool *pool, air_graph_pool_stats *out)
{
    pthread_mutex_lock(&pool->mutex);
    *out = (air_graph_pool_stats){.id = {pool->id[0], pool->id[1]},
                                  .live_blocks = pool->live_blocks,
                                  .live_bytes = pool->live_bytes,
                                  .stale_blocks = count_stale(pool),
                                  .mapped_bytes = pool->mapped_bytes,
                                  .largest_bytes = pool->largest_bytes,
                                  .captures = pool->captures,
                                  .generation = pool->generation};
    pthread_mutex_unlock(&pool->mutex);
}

void
exec_graph_pools_add(exec_pool *base, air_pool_stats *out)
{
    exec_graph_list *list = exec_pool_graphs(base);
    air_graph_pool_stats s;

    pthread_mutex_lock(&list->mutex);
    for (air_graph_pool *p = list->first; p; p = p->next) {
        exec_graph_pool_stats(p, &s);
        out->live_blocks += s.live_blocks;
        out->live_bytes += s.live_bytes;
        out->kept_bytes += s.mapped_bytes - s.live_bytes;
    }
    pthread_mutex_unlock(&list->mutex);
}

void
exec_graph_pools_trim(exec_pool *base)
{
    exec_graph_list *list = exec_pool_graphs(base);

    pthread_mutex_lock(&list->mutex);
    for (air_graph_pool *p = list->first; p; p = p->next)
        exec_graph_pool_trim(p);
    pthread_mutex_unlock(&list->mutex);
}
