#include "driver/block.h"

#include <stdint.h>
#include <sys/mman.h>

/* From here on a block gets its own mapping on huge pages: it saves a page
 * fault per 4 KB and most misses of the address cache. */
#define BIG       ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)
#define ALIGN     ((size_t)64)

static size_t
big_size(size_t size)
{
    return (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Maps one huge page too many and gives back what lies outside. */
static air_status
big_new(size_t size, void **out)
{
    size_t want = big_size(size) + HUGE_PAGE;
    AIR_REQUIRE(want > size, AIR_ERROR_MEMORY, "a block of %zu bytes", size);
    char *raw = mmap(NULL, want, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    AIR_REQUIRE(raw != MAP_FAILED, AIR_ERROR_MEMORY,
                "cannot map %zu bytes of memory", size);
    size_t ahead = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    char *ptr = raw + ahead;
    if (ahead > 0)
        munmap(raw, ahead);
    munmap(ptr + big_size(size), HUGE_PAGE - ahead);
    (void)madvise(ptr, big_size(size), MADV_HUGEPAGE); /* a wish only */
    *out = ptr;
    return AIR_OK;
}

/* The allocator's block lies before the aligned one, its address in the word
 * in front of it. */
static air_status
small_new(const air_alloc *alloc, size_t size, void **out)
{
    char *raw = alloc->resize(alloc->user, NULL, 0, size + ALIGN);
    AIR_REQUIRE(raw != NULL, AIR_ERROR_MEMORY, "out of memory: %zu bytes",
                size);
    char *ptr = raw + (ALIGN - (uintptr_t)raw % ALIGN);
    ((void **)(void *)ptr)[-1] = raw;
    *out = ptr;
    return AIR_OK;
}

air_status
driver_block_new(const air_alloc *alloc, size_t size, void **out)
{
    *out = NULL;
    return size >= BIG ? big_new(size, out) : small_new(alloc, size, out);
}

void
driver_block_free(const air_alloc *alloc, void *ptr, size_t size)
{
    if (ptr == NULL)
        return;
    if (size >= BIG)
        munmap(ptr, big_size(size));
    else
        alloc->resize(alloc->user, ((void **)ptr)[-1], size + ALIGN, 0);
}
