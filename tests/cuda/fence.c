#include "fence.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNED = 16 };

static uintptr_t
page(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t
round_up(uintptr_t n)
{
    return (n + page() - 1) / page() * page();
}

/* `gap`: bytes behind it up to where there is no memory. */
static char *
make(size_t bytes, size_t gap)
{
    const size_t whole = round_up(bytes + gap);
    char *pages = mmap(NULL, whole + page(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + whole, page(), PROT_NONE) != 0)
        return NULL;
    memset(pages, 0xff, whole);
    return pages + whole - gap - bytes;
}

static size_t
gap_of(size_t bytes)
{
    return (ALIGNED - bytes % ALIGNED) % ALIGNED;
}

void *
fence_copy(const void *from, size_t bytes, size_t element, bool odd)
{
    const size_t odd_gap = bytes % ALIGNED == 0 ? element : 0;
    char *copy = make(bytes, odd ? odd_gap : gap_of(bytes));
    if (copy && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

void
fence_drop(void *copy, size_t bytes)
{
    const uintptr_t at = (uintptr_t)copy, end = round_up(at + bytes);
    const size_t before = at % page();
    if (copy)
        (void)munmap((char *)copy - before, end - at + before + page());
}

bool
fence_is_whole(const void *end)
{
    const unsigned char *at = end;
    size_t left = round_up((uintptr_t)end) - (uintptr_t)end;
    while (left > 0 && *at == 0xff)
        at++, left--;
    return left == 0;
}

static void *
lend(void *user, size_t size)
{
    (void)user;
    return make(size, gap_of(size));
}

static void
take_back(void *user, void *ptr, size_t size)
{
    (void)user;
    fence_drop(ptr, size);
}

void
fence_lend(air_gpu *gpu)
{
    gpu->alloc = lend;
    gpu->free = take_back;
}
