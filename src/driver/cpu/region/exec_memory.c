#include "driver/cpu/region/exec_memory.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool
exec_memory_make(const void *bytes, size_t size, exec_memory *out)
{
    *out = (exec_memory){0};
    long page = sysconf(_SC_PAGESIZE);
    size_t mask = (size_t)(page > 0 ? page : 4096) - 1;
    if (size == 0 || size > SIZE_MAX - mask)
        return false;
    size_t mapped = (size + mask) & ~mask;
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return false;
    memcpy(base, bytes, size);
    if (mprotect(base, mapped, PROT_READ | PROT_EXEC) != 0) {
        munmap(base, mapped);
        return false;
    }
    *out = (exec_memory){base, mapped};
    return true;
}

void
exec_memory_free(exec_memory *m)
{
    if (m->base != NULL)
        munmap(m->base, m->size);
    *m = (exec_memory){0};
}
