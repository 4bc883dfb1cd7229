/* graph_pool.c: see graph_pool.h. */
#include "exec/graph_pool.h"

#include <assert.h>

/* Small chunks have segments of their own: they would cut large ones up. */
#define SMALL_CHUNK   ((size_t)8 << 10)
#define SMALL_SEGMENT ((size_t)64 << 10)
/* What is more than needed goes back after this many blocks came back: a step
 * that repeats finds its segments again. */
#define KEEP_TICKS 4096
/* Free lists: a power of two each. */
#define BINS 64

typedef struct segment {
    struct segment *next;
    struct chunk *first;
    char *data;
    size_t size;
    uint64_t tick; /* when it was last used */
    bool small;
} segment;

typedef struct chunk {
    exec_block block; /* first: a block is its chunk */
    segment *segment;
    struct chunk *left, *right; /* neighbours in the segment */
    struct chunk *next, *prev;  /* in the free list; next: spare headers */
    uint64_t generation;
    bool free, scratch;
} chunk;

struct air_graph_pool {
    exec_pool *base;
    air_graph_pool *next; /* of the base's list */
    int64_t id[2];
    long refs; /* the list's mutex */
    pthread_mutex_t mutex;
    bool closed; /* refs is 0; goes with the last live block */
    segment *segments;
    struct {
        chunk *bins[BINS];
        uint64_t used; /* bit: the bin has one */
    } free[2];         /* large, small */
    chunk *spare;
    uint64_t live_blocks, live_bytes, scratch_bytes, mapped_bytes;
    uint64_t largest_bytes, captures, generation, tick;
};

/* ---- chunks ---- */

static air_status
new_chunk(air_graph_pool *pool, chunk **out)
{
    chunk *c = pool->spare;
    void *memory;

    if (!c) {
        AIR_TRY(base_new(exec_pool_alloc(pool->base), sizeof *c, &memory));
        c = memory;
    } else {
        pool->spare = c->next;
    }
    *out = c;
    return AIR_OK;
}

static void
spare_chunk(air_graph_pool *pool, chunk *c)
{
    c->next = pool->spare;
    pool->spare = c;
}

static int
bin_of(size_t size)
{
    return 63 - __builtin_clzll(size);
}

static void
link_free(air_graph_pool *pool, chunk *c)
{
    const int bin = bin_of(c->block.size);
    chunk **head = &pool->free[c->segment->small].bins[bin];

    c->free = true;
    c->prev = NULL;
    c->next = *head;
    if (*head)
        (*head)->prev = c;
    *head = c;
    pool->free[c->segment->small].used |= (uint64_t)1 << bin;
}

static void
unlink_free(air_graph_pool *pool, chunk *c)
{
    const int bin = bin_of(c->block.size);
    chunk **head = &pool->free[c->segment->small].bins[bin];

    c->free = false;
    if (c->prev)
        c->prev->next = c->next;
    else
        *head = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (!*head)
        pool->free[c->segment->small].used &= ~((uint64_t)1 << bin);
}

/* b, the right neighbour of a, becomes part of it; neither is in a list. */
static void
absorb(air_graph_pool *pool, chunk *a, chunk *b)
{
    a->block.size += b->block.size;
    a->right = b->right;
    if (a->right)
        a->right->left = a;
    spare_chunk(pool, b);
}

/* The chunk and its free neighbours become one free chunk. */
static void
release_chunk(air_graph_pool *pool, chunk *c)
{
    chunk *right = c->right, *left = c->left;

    if (right && right->free) {
        unlink_free(pool, right);
        absorb(pool, c, right);
    }
    if (left && left->free) {
        unlink_free(pool, left);
        absorb(pool, left, c);
        c = left;
    }
    link_free(pool, c);
}

/* Cuts a chunk that is not in a list; what is left over becomes free. Without
 * memory for its header the chunk stays whole. */
static void
cut_chunk(air_graph_pool *pool, chunk *c, size_t size)
{
    chunk *rest = NULL;

    if (c->block.size == size || new_chunk(pool, &rest) != AIR_OK)
        return;
    rest->segment = c->segment;
    rest->left = c;
    rest->right = c->right;
    if (rest->right)
        rest->right->left = rest;
    c->right = rest;
    rest->block = (exec_block){.data = (char *)c->block.data + size,
                               .size = c->block.size - size};
    c->block.size = size;
    link_free(pool, rest);
}

static chunk *
best_of(chunk *list, size_t size)
{
    chunk *best = NULL;

    for (chunk *c = list; c; c = c->next)
        if (c->block.size >= size &&
            (!best || c->block.size < best->block.size))
            best = c;
    return best;
}

static chunk *
best_fit(const air_graph_pool *pool, size_t size, bool small)
{
    uint64_t bins = pool->free[small].used >> bin_of(size) << bin_of(size);
    chunk *best = NULL;

    for (; bins && !best; bins &= bins - 1)
        best = best_of(pool->free[small].bins[__builtin_ctzll(bins)], size);
    return best;
}

/* ---- segments ---- */

static bool
is_unused(const segment *s)
{
    return s->first->free && !s->first->right;
}

static void
free_segment(air_graph_pool *pool, segment *s)
{
    segment **at = &pool->segments;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    unlink_free(pool, s->first);
    spare_chunk(pool, s->first);
    pool->mapped_bytes -= s->size;
    exec_pool_unmap(pool->base, s->data, s->size);
    base_free(exec_pool_alloc(pool->base), s, sizeof *s);
}

/* Frees unused segments, the oldest first, while more than `most` is mapped;
 * only those not used since `before`. */
static void
free_unused(air_graph_pool *pool, uint64_t most, uint64_t before)
{
    while (pool->mapped_bytes > most) {
        segment *oldest = NULL;
        for (segment *s = pool->segments; s; s = s->next)
            if (is_unused(s) && s->tick < before &&
                (!oldest || s->tick < oldest->tick))
                oldest = s;
        if (!oldest)
            return;
        free_segment(pool, oldest);
    }
}

/* Bytes that may be mapped: the largest capture beside what is held. */
static uint64_t
bound(const air_graph_pool *pool)
{
    return pool->largest_bytes + pool->live_bytes - pool->scratch_bytes;
}

static air_status
map_segment(air_graph_pool *pool, segment *s, chunk **out)
{
    chunk *c = NULL;
    void *data;
    air_status status;

    AIR_TRY(new_chunk(pool, &c));
    status = exec_pool_map(pool->base, s->size, &data);
    if (status != AIR_OK) {
        spare_chunk(pool, c);
        return base_trace(status, __func__, __LINE__);
    }
    s->data = data;
    s->first = c;
    s->next = pool->segments;
    pool->segments = s;
    pool->mapped_bytes += s->size;
    *c = (chunk){.segment = s, .block = {.data = data, .size = s->size}};
    *out = c;
    return AIR_OK;
}

/* No free chunk is large enough. Unused segments make room for one that is;
 * without a capture to go by, all of them. */
static air_status
add_segment(air_graph_pool *pool, size_t size, bool small, chunk **out)
{
    const air_alloc *alloc = exec_pool_alloc(pool->base);
    const uint64_t limit = bound(pool);
    segment *s;
    void *memory;
    air_status status;

    if (small)
        size = SMALL_SEGMENT;
    free_unused(pool, limit > size ? limit - size : 0, UINT64_MAX);
    AIR_TRY(base_new(alloc, sizeof *s, &memory));
    s = memory;
    s->small = small;
    s->size = size;
    status = map_segment(pool, s, out);
    if (status != AIR_OK)
        base_free(alloc, s, sizeof *s);
    return status;
}

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
    segment *segments = pool->segments, *s;

    unlink_pool(pool);
    for (s = segments; s; s = s->next) {
        assert(is_unused(s));
        spare_chunk(pool, s->first);
    }
    while (pool->spare) {
        chunk *c = pool->spare;
        pool->spare = c->next;
        base_free(&alloc, c, sizeof *c);
    }
    pthread_mutex_destroy(&pool->mutex);
    base_free(&alloc, pool, sizeof *pool);
    while ((s = segments)) { /* the last one may close the device */
        void *data = s->data;
        size_t size = s->size;
        segments = s->next;
        base_free(&alloc, s, sizeof *s);
        exec_pool_unmap(base, data, size);
    }
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
    pool->id[1] = id ? id[1] : ++list->ids;
    pthread_mutex_init(&pool->mutex, NULL);
    pool->next = list->first;
    list->first = pool;
    if (pool->id[1] > list->ids)
        list->ids = pool->id[1];
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
    chunk *c = (chunk *)(void *)block;
    air_graph_pool *pool = block->pool;
    segment *s = c->segment;
    bool last;

    pthread_mutex_lock(&pool->mutex);
    pool->live_blocks--;
    pool->live_bytes -= block->size;
    if (c->scratch)
        pool->scratch_bytes -= block->size;
    s->tick = ++pool->tick;
    release_chunk(pool, c);
    if (!pool->closed && pool->tick % 64 == 0 && pool->tick > KEEP_TICKS)
        free_unused(pool, bound(pool), pool->tick - KEEP_TICKS);
    last = pool->closed && pool->live_blocks == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (last)
        destroy(pool);
}

air_status
exec_graph_pool_get(air_graph_pool *pool, size_t size, bool scratch,
                    exec_block **out)
{
    const bool small = size <= SMALL_CHUNK;
    air_status status = AIR_OK;
    chunk *c;

    *out = NULL;
    AIR_REQUIRE(size <= SIZE_MAX - EXEC_ALIGN, AIR_ERROR_MEMORY,
                "%zu bytes are more than there can be", size);
    size = size ? exec_round_up(size) : EXEC_ALIGN;
    pthread_mutex_lock(&pool->mutex);
    c = best_fit(pool, size, small);
    if (c)
        unlink_free(pool, c);
    else
        status = add_segment(pool, size, small, &c);
    if (status == AIR_OK) {
        cut_chunk(pool, c, size);
        c->generation = pool->generation;
        c->scratch = scratch;
        if (scratch)
            pool->scratch_bytes += c->block.size;
        c->block.put = put_block;
        c->block.pool = pool;
        atomic_init(&c->block.refs, 1);
        pool->live_blocks++;
        pool->live_bytes += c->block.size;
        *out = &c->block;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
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
        free_unused(pool, 0, UINT64_MAX);
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
    free_unused(pool, 0, UINT64_MAX);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- figures ---- */

static uint64_t
count_stale(const air_graph_pool *pool)
{
    uint64_t count = 0;

    for (const segment *s = pool->segments; s; s = s->next)
        for (const chunk *c = s->first; c; c = c->right)
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
