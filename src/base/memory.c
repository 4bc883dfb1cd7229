/* memory.c: blocks, arenas, growing arrays and checked sizes. */
#include "base/memory.h"

#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

struct base_arena_block {
    base_arena_block *next;
    size_t size; /* of the whole allocation */
};

bool
base_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool
base_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool
base_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool
base_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static air_status
out_of_memory(size_t size)
{
    AIR_FAIL(AIR_ERROR_MEMORY, "cannot allocate %zu bytes", size);
}

air_status
base_new(const air_alloc *a, size_t size, void **out_ptr)
{
    *out_ptr = NULL;
    if (size == 0)
        return AIR_OK;
    void *ptr = a->resize(a->user, NULL, 0, size);
    if (!ptr)
        return out_of_memory(size);
    assert((uintptr_t)ptr % ALIGNMENT == 0);
    memset(ptr, 0, size);
    *out_ptr = ptr;
    return AIR_OK;
}

void
base_free(const air_alloc *a, void *ptr, size_t size)
{
    if (ptr)
        a->resize(a->user, ptr, size, 0);
}

/* ---- arena ---- */

static size_t
header_size(void)
{
    return (sizeof(base_arena_block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void
base_arena_init(base_arena *arena, const air_alloc *alloc)
{
    *arena = (base_arena){.alloc = alloc};
}

static void
free_blocks(base_arena *arena, base_arena_block *from)
{
    while (from) {
        base_arena_block *next = from->next;
        base_free(arena->alloc, from, from->size);
        from = next;
    }
}

void
base_arena_deinit(base_arena *arena)
{
    free_blocks(arena, arena->head);
    base_arena_init(arena, arena->alloc);
}

void
base_arena_reset(base_arena *arena)
{
    base_arena_block *first = arena->head;
    if (!first)
        return;
    while (first->next) {
        base_arena_block *next = first->next;
        base_free(arena->alloc, first, first->size);
        first = next;
    }
    arena->head = first;
    arena->used = header_size();
    arena->cap = first->size;
    arena->total = 0;
}

/* Blocks double, so that a large graph needs few of them. */
static air_status
arena_grow(base_arena *arena, size_t need)
{
    size_t size = arena->head ? arena->cap * 2 : FIRST_BLOCK;
    if (size > LARGEST_STEP)
        size = LARGEST_STEP;
    size_t least;
    if (!base_add_size(need, header_size(), &least))
        return out_of_memory(need);
    if (size < least)
        size = least;
    void *ptr = arena->alloc->resize(arena->alloc->user, NULL, 0, size);
    if (!ptr)
        return out_of_memory(size);
    base_arena_block *block = ptr;
    *block = (base_arena_block){.next = arena->head, .size = size};
    arena->head = block;
    arena->used = header_size();
    arena->cap = size;
    return AIR_OK;
}

air_status
base_arena_new(base_arena *arena, size_t size, void **out_ptr)
{
    *out_ptr = NULL;
    size_t padded;
    if (!base_add_size(size, ALIGNMENT - 1, &padded))
        return out_of_memory(size);
    padded = padded / ALIGNMENT * ALIGNMENT;
    if (padded == 0)
        padded = ALIGNMENT;
    if (!arena->head || arena->cap - arena->used < padded)
        AIR_TRY(arena_grow(arena, padded));
    void *ptr = (char *)arena->head + arena->used;
    arena->used += padded;
    arena->total += padded;
    *out_ptr = memset(ptr, 0, padded);
    return AIR_OK;
}

air_status
base_arena_copy(base_arena *arena, const void *src, size_t size, void **out_ptr)
{
    AIR_TRY(base_arena_new(arena, size, out_ptr));
    if (size > 0)
        memcpy(*out_ptr, src, size);
    return AIR_OK;
}

air_status
base_arena_str(base_arena *arena, const char *s, size_t len,
               const char **out_str)
{
    void *ptr;
    size_t size;
    *out_str = NULL;
    if (!base_add_size(len, 1, &size))
        return out_of_memory(len);
    AIR_TRY(base_arena_new(arena, size, &ptr));
    if (len > 0)
        memcpy(ptr, s, len);
    *out_str = ptr;
    return AIR_OK;
}

air_status
base_arena_array(base_arena *arena, size_t count, size_t size, void **out_ptr)
{
    size_t bytes;
    *out_ptr = NULL;
    if (!base_mul_size(count, size, &bytes))
        AIR_FAIL(AIR_ERROR_MEMORY, "%zu elements of %zu bytes overflow", count,
                 size);
    AIR_TRY(base_arena_new(arena, bytes, out_ptr));
    return AIR_OK;
}

/* ---- vec ---- */

air_status
base_vec_reserve(const air_alloc *a, void **data, size_t *cap, size_t want,
                 size_t size)
{
    if (want <= *cap)
        return AIR_OK;
    size_t count = *cap < 4 ? 8 : *cap * 2;
    if (count < want)
        count = want;
    size_t bytes;
    if (!base_mul_size(count, size, &bytes))
        AIR_FAIL(AIR_ERROR_MEMORY, "%zu elements of %zu bytes overflow", count,
                 size);
    void *ptr = a->resize(a->user, *data, *cap * size, bytes);
    if (!ptr)
        return out_of_memory(bytes);
    *data = ptr;
    *cap = count;
    return AIR_OK;
}
