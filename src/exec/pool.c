/* pool.c: blocks of device memory that come back. Kept blocks are mapped
 * already: fresh ones cost a page fault per 4 KiB. Bins are four to a power of
 * two; within a bin the latest block given back goes out first (it is warm). */
#include <assert.h>

#include "exec/exec.h"

#define BINS      160
#define MIN_SHIFT 8
/* A kept block is freed after this many blocks came back unused by it. A GPU's
 * memory is scarcer, and whoever gives it keeps blocks as well. */
#define KEEP_TICKS       4096
#define KEEP_TICKS_APART 512
/* From this size on what is lent goes back at once, but for arenas: of those
 * one large enough for all that run one after another stays, where it is. */
#define LARGE ((size_t)1 << 20)

struct exec_pool {
    air_alloc alloc;
    const air_driver *driver;
    air_device *device;
    pthread_mutex_t mutex;
    exec_block *bins[BINS];
    uint64_t keep; /* ticks */
    uint64_t tick, live_blocks, live_bytes, kept_bytes, mapped;
    bool closed;
    exec_graph_list graphs;
};

/* Sizes 2^s * {4, 5, 6, 7} / 4. */
static int
bin_of(size_t size, size_t *out_size)
{
    int shift = MIN_SHIFT;

    while (((size_t)2 << shift) <= size - (size > 0))
        shift++;
    for (size_t q = 4; q <= 8; q++) {
        size_t bytes = ((size_t)1 << shift) / 4 * q;
        if (bytes >= size) {
            *out_size = bytes;
            return (shift - MIN_SHIFT) * 4 + (int)(q - 4);
        }
    }
    *out_size = size;
    return BINS - 1;
}

air_status
exec_pool_create(const air_alloc *alloc, const air_driver *driver,
                 air_device *device, bool apart, exec_pool **out)
{
    exec_pool *pool;

    *out = NULL;
    AIR_TRY(base_new(alloc, sizeof *pool, (void **)&pool));
    pool->alloc = *alloc;
    pool->driver = driver;
    pool->device = device;
    pool->keep = apart ? KEEP_TICKS_APART : KEEP_TICKS;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_mutex_init(&pool->graphs.mutex, NULL);
    *out = pool;
    return AIR_OK;
}

static void
free_block(exec_pool *pool, exec_block *block)
{
    pool->driver->free(pool->device, block->data, block->size);
    base_free(&pool->alloc, block, sizeof *block);
}

/* With the mutex held: frees kept blocks of at least `size` bytes that were
 * not used since `before`. */
static void
free_kept(exec_pool *pool, uint64_t before, size_t size)
{
    for (int b = 0; b < BINS; b++) {
        exec_block **at = &pool->bins[b];
        while (*at) {
            exec_block *block = *at;
            if (block->tick >= before || block->size < size) {
                at = &block->next;
                continue;
            }
            *at = block->next;
            pool->kept_bytes -= block->size;
            free_block(pool, block);
        }
    }
}

static void
free_older(exec_pool *pool, uint64_t before)
{
    free_kept(pool, before, 0);
}

static void
destroy(exec_pool *pool)
{
    air_alloc alloc = pool->alloc;

    pool->driver->close(pool->device);
    pthread_mutex_destroy(&pool->mutex);
    pthread_mutex_destroy(&pool->graphs.mutex);
    base_free(&alloc, pool, sizeof *pool);
}

static bool
is_empty(const exec_pool *pool)
{
    return pool->live_blocks == 0 && pool->mapped == 0;
}

void
exec_pool_release(exec_pool *pool)
{
    bool last;

    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    free_older(pool, UINT64_MAX);
    pool->closed = true;
    last = is_empty(pool);
    pthread_mutex_unlock(&pool->mutex);
    if (last)
        destroy(pool);
}

/* With the mutex held. Lent arenas have their exact size, less than the bin's.
 */
static exec_block *
take_kept(exec_pool *pool, int bin, size_t size, bool loose)
{
    int end = loose ? BINS : bin + 2 < BINS ? bin + 2 : BINS;

    for (int b = bin; b < end; b++) {
        exec_block **at = &pool->bins[b];
        while (*at && (*at)->size < size)
            at = &(*at)->next;
        exec_block *block = *at;
        if (!block)
            continue;
        *at = block->next;
        pool->kept_bytes -= block->size;
        return block;
    }
    return NULL;
}

static void
take_back(exec_block *block, bool keep)
{
    exec_pool *pool = block->pool;
    bool last;

    pthread_mutex_lock(&pool->mutex);
    pool->live_blocks--;
    pool->live_bytes -= block->size;
    if (pool->closed || !keep) {
        free_block(pool, block);
    } else {
        block->tick = ++pool->tick;
        block->next = pool->bins[block->bin];
        pool->bins[block->bin] = block;
        pool->kept_bytes += block->size;
        if (pool->tick % pool->keep == 0)
            free_older(pool, pool->tick - pool->keep);
    }
    last = pool->closed && is_empty(pool);
    pthread_mutex_unlock(&pool->mutex);
    if (last)
        destroy(pool);
}

static void
put_block(exec_block *block)
{
    take_back(block, !block->once);
}

void
exec_block_discard(exec_block *block)
{
    take_back(block, false);
}

static air_status
new_block(exec_pool *pool, size_t bytes, int bin, exec_block **out)
{
    exec_block *block;
    air_status status;

    AIR_TRY(base_new(&pool->alloc, sizeof *block, (void **)&block));
    status = pool->driver->alloc(pool->device, bytes, &block->data);
    if (status != AIR_OK) {
        base_free(&pool->alloc, block, sizeof *block);
        return base_trace(status, __func__, __LINE__);
    }
    block->put = put_block;
    block->pool = pool;
    block->size = bytes;
    block->bin = bin;
    *out = block;
    return AIR_OK;
}

/* With the mutex held. */
static air_status
find_memory(exec_pool *pool, size_t bytes, int bin, exec_block **out)
{
    air_status status;

    if (pool->tick > pool->keep)
        free_older(pool, pool->tick - pool->keep);
    status = new_block(pool, bytes, bin, out);
    if (status == AIR_ERROR_MEMORY || status == AIR_ERROR_DRIVER) {
        free_older(pool, UINT64_MAX);
        status = new_block(pool, bytes, bin, out);
    }
    return status;
}

static void
give_out(exec_pool *pool, exec_block *block)
{
    pool->live_blocks++;
    pool->live_bytes += block->size;
    atomic_store(&block->refs, 1);
    block->next = NULL;
}

static bool
is_lent(const exec_pool *pool, size_t size)
{
    return size >= LARGE && pool->driver->is_lent &&
           pool->driver->is_lent(pool->device);
}

air_status
exec_pool_get(exec_pool *pool, size_t size, bool loose, exec_block **out)
{
    size_t bytes;
    int bin = bin_of(size, &bytes);
    air_status status = AIR_OK;
    exec_block *block;

    *out = NULL;
    const bool lent = is_lent(pool, size);
    if (lent && !loose)
        return exec_pool_new(pool, size, out);
    pthread_mutex_lock(&pool->mutex);
    block = take_kept(pool, bin, size, loose);
    if (!block && lent)
        free_kept(pool, UINT64_MAX, LARGE); /* smaller arenas */
    if (!block)
        status = find_memory(pool, lent ? size : bytes, bin, &block);
    if (status == AIR_OK) {
        give_out(pool, block);
        *out = block;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

air_status
exec_pool_new(exec_pool *pool, size_t size, exec_block **out)
{
    exec_block *block;
    air_status status;

    *out = NULL;
    pthread_mutex_lock(&pool->mutex);
    status = find_memory(pool, size > 0 ? size : 1, 0, &block);
    if (status == AIR_OK) {
        block->once = true;
        give_out(pool, block);
        *out = block;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

void
exec_block_retain(exec_block *block)
{
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
}

bool
exec_block_is_held(const exec_block *block)
{
    return atomic_load_explicit(&block->refs, memory_order_acquire) > 1;
}

void
exec_block_release(exec_block *block)
{
    if (block &&
        atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1)
        block->put(block);
}

void
exec_pool_stats(exec_pool *pool, air_pool_stats *out)
{
    pthread_mutex_lock(&pool->mutex);
    out->live_blocks = pool->live_blocks;
    out->live_bytes = pool->live_bytes;
    out->kept_bytes = pool->kept_bytes;
    pthread_mutex_unlock(&pool->mutex);
}

void
exec_pool_trim(exec_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    free_older(pool, UINT64_MAX);
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- for graph pools ---- */

air_status
exec_pool_map(exec_pool *pool, size_t size, void **out)
{
    air_status status;

    pthread_mutex_lock(&pool->mutex);
    status = pool->driver->alloc(pool->device, size, out);
    if (status == AIR_ERROR_MEMORY || status == AIR_ERROR_DRIVER) {
        free_older(pool, UINT64_MAX);
        status = pool->driver->alloc(pool->device, size, out);
    }
    pool->mapped += status == AIR_OK;
    pthread_mutex_unlock(&pool->mutex);
    return status == AIR_OK ? status : base_trace(status, __func__, __LINE__);
}

void
exec_pool_unmap(exec_pool *pool, void *data, size_t size)
{
    bool last;

    pthread_mutex_lock(&pool->mutex);
    pool->driver->free(pool->device, data, size);
    pool->mapped--;
    last = pool->closed && is_empty(pool);
    pthread_mutex_unlock(&pool->mutex);
    if (last)
        destroy(pool);
}

uint64_t
exec_pool_keeps(const exec_pool *pool)
{
    return pool->keep;
}

const air_alloc *
exec_pool_alloc(const exec_pool *pool)
{
    return &pool->alloc;
}

exec_graph_list *
exec_pool_graphs(exec_pool *pool)
{
    return &pool->graphs;
}
