/* graph_segment.c: see graph_segment.h. */
#include "exec/graph_segment.h"

#include <assert.h>

/* Small chunks have segments of their own: they would cut large ones up. */
#define SMALL_CHUNK   ((size_t)8 << 10)
#define SMALL_SEGMENT ((size_t)64 << 10)
/* ---- chunks ---- */

static air_status
new_chunk(air_graph_pool *pool, graph_chunk **out)
{
    graph_chunk *c = pool->spare;
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
spare_chunk(air_graph_pool *pool, graph_chunk *c)
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
link_free(air_graph_pool *pool, graph_chunk *c)
{
    const int bin = bin_of(c->block.size);
    graph_chunk **head = &pool->free[c->segment->small].bins[bin];

    c->free = true;
    c->prev = NULL;
    c->next = *head;
    if (*head)
        (*head)->prev = c;
    *head = c;
    pool->free[c->segment->small].used |= (uint64_t)1 << bin;
}

static void
unlink_free(air_graph_pool *pool, graph_chunk *c)
{
    const int bin = bin_of(c->block.size);
    graph_chunk **head = &pool->free[c->segment->small].bins[bin];

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
absorb(air_graph_pool *pool, graph_chunk *a, graph_chunk *b)
{
    a->block.size += b->block.size;
    a->right = b->right;
    if (a->right)
        a->right->left = a;
    spare_chunk(pool, b);
}

void
graph_chunk_put(air_graph_pool *pool, graph_chunk *c)
{
    graph_chunk *right = c->right, *left = c->left;

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
cut_chunk(air_graph_pool *pool, graph_chunk *c, size_t size)
{
    graph_chunk *rest = NULL;

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

static bool
fits_better(const graph_chunk *c, const graph_chunk *best)
{
    return c->block.size != best->block.size
               ? c->block.size < best->block.size
               : (uintptr_t)c->block.data < (uintptr_t)best->block.data;
}

/* Of equal ones the same one whatever came back last: a step that repeats gets
 * the memory that it had, which HOST nodes in graphs need. */
static graph_chunk *
best_of(graph_chunk *list, size_t size)
{
    graph_chunk *best = NULL;

    for (graph_chunk *c = list; c; c = c->next)
        if (c->block.size >= size && (!best || fits_better(c, best)))
            best = c;
    return best;
}

static graph_chunk *
best_fit(const air_graph_pool *pool, size_t size, bool small)
{
    uint64_t bins = pool->free[small].used >> bin_of(size) << bin_of(size);
    graph_chunk *best = NULL;

    for (; bins && !best; bins &= bins - 1)
        best = best_of(pool->free[small].bins[__builtin_ctzll(bins)], size);
    return best;
}

/* ---- segments ---- */

static bool
is_unused(const graph_segment *s)
{
    return s->first->free && !s->first->right;
}

static void
free_segment(air_graph_pool *pool, graph_segment *s)
{
    graph_segment **at = &pool->segments;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    unlink_free(pool, s->first);
    spare_chunk(pool, s->first);
    pool->mapped_bytes -= s->size;
    exec_pool_unmap(pool->base, s->data, s->size);
    base_free(exec_pool_alloc(pool->base), s, sizeof *s);
}

void
graph_segments_trim(air_graph_pool *pool, uint64_t most, uint64_t before)
{
    while (pool->mapped_bytes > most) {
        graph_segment *oldest = NULL;
        for (graph_segment *s = pool->segments; s; s = s->next)
            if (is_unused(s) && s->tick < before &&
                (!oldest || s->tick < oldest->tick))
                oldest = s;
        if (!oldest)
            return;
        free_segment(pool, oldest);
    }
}

uint64_t
graph_segments_bound(const air_graph_pool *pool)
{
    return pool->largest_bytes + pool->live_bytes - pool->scratch_bytes;
}

static air_status
map_segment(air_graph_pool *pool, graph_segment *s, graph_chunk **out)
{
    graph_chunk *c = NULL;
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
    *c = (graph_chunk){.segment = s, .block = {.data = data, .size = s->size}};
    *out = c;
    return AIR_OK;
}

/* No free chunk is large enough. Unused segments make room for one that is;
 * without a capture to go by, all of them. */
static air_status
add_segment(air_graph_pool *pool, size_t size, bool small, graph_chunk **out)
{
    const air_alloc *alloc = exec_pool_alloc(pool->base);
    const uint64_t limit = graph_segments_bound(pool);
    graph_segment *s;
    void *memory;
    air_status status;

    if (small)
        size = SMALL_SEGMENT;
    graph_segments_trim(pool, limit > size ? limit - size : 0, UINT64_MAX);
    AIR_TRY(base_new(alloc, sizeof *s, &memory));
    s = memory;
    s->small = small;
    s->size = size;
    status = map_segment(pool, s, out);
    if (status != AIR_OK)
        base_free(alloc, s, sizeof *s);
    return status;
}

air_status
graph_chunk_take(air_graph_pool *pool, size_t size, graph_chunk **out)
{
    const bool small = size <= SMALL_CHUNK;

    *out = best_fit(pool, size, small);
    if (*out)
        unlink_free(pool, *out);
    else
        AIR_TRY(add_segment(pool, size, small, out));
    cut_chunk(pool, *out, size);
    return AIR_OK;
}

/* The chunk with the bytes at `data`, if they are free. */
static graph_chunk *
free_at(const air_graph_pool *pool, const char *data, size_t size)
{
    graph_chunk *c = best_fit(pool, size, size <= SMALL_CHUNK);
    const graph_segment *s = pool->segments;

    if (c && c->block.data == data) /* of a step that repeats it mostly is */
        return c;
    while (s && !(data >= s->data && data + size <= s->data + s->size))
        s = s->next;
    c = s ? s->first : NULL;
    while (c && (char *)c->block.data + c->block.size <= data)
        c = c->right;
    return c && c->free && data + size <= (char *)c->block.data + c->block.size
               ? c
               : NULL;
}

graph_chunk *
graph_chunk_take_at(air_graph_pool *pool, const char *data, size_t size)
{
    graph_chunk *c = free_at(pool, data, size);
    const size_t before = c ? (size_t)(data - (char *)c->block.data) : 0;

    if (!c)
        return NULL;
    unlink_free(pool, c);
    if (before > 0) {
        cut_chunk(pool, c, before);
        link_free(pool, c);
        if (c->block.size != before)
            return NULL;
        c = c->right;
        unlink_free(pool, c);
    }
    cut_chunk(pool, c, size);
    return c;
}

/* ---- the end ---- */

graph_segment *
graph_segments_forget(air_graph_pool *pool)
{
    const air_alloc *alloc = exec_pool_alloc(pool->base);

    for (graph_segment *s = pool->segments; s; s = s->next) {
        assert(is_unused(s));
        spare_chunk(pool, s->first);
    }
    while (pool->spare) {
        graph_chunk *c = pool->spare;
        pool->spare = c->next;
        base_free(alloc, c, sizeof *c);
    }
    return pool->segments;
}

void
graph_segments_unmap(exec_pool *base, graph_segment *segments)
{
    const air_alloc alloc = *exec_pool_alloc(base);

    while (segments) { /* the last one may close the device */
        graph_segment *s = segments;
        void *data = s->data;
        const size_t size = s->size;
        segments = s->next;
        base_free(&alloc, s, sizeof *s);
        exec_pool_unmap(base, data, size);
    }
}
