/* exec_memory.h: pages that hold machine code. Never writable and executable
 * at once. */
#ifndef CPU_EXEC_MEMORY_H
#define CPU_EXEC_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    void *base; /* NULL: none */
    size_t size;
} exec_memory;

/* A copy of `bytes` that can be called; false where the system refuses. */
bool exec_memory_make(const void *bytes, size_t size, exec_memory *out);
void exec_memory_free(exec_memory *m);

#endif
