#include "driver/ref/kernels.h"
#include "driver/cpu/cpu.h"
#include "driver/cpu/providers.h"

#include <string.h>

#define KERNEL(name, run, workspace) \
    {name, run, workspace, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
#define KERNEL_IF(name, accept, run, workspace) \
    {name, run, workspace, accept, NULL, NULL, NULL, NULL, NULL, NULL},
#define KERNEL_JOIN(name, accept, joins, run, workspace) \
    {name, run, workspace, accept, NULL, NULL, NULL, joins, NULL, NULL},
#define KERNEL_LIB(name, accept, can, begin, library, run, workspace) \
    {name, run, workspace, accept, can, library, begin, NULL, NULL, NULL},

static const air_kernel rows[] = {
#include "driver/cpu/kernels.def"
};

static const air_kernel plain_rows[] = {
#define PLAIN(name, run)               KERNEL(name, run, NULL)
#define PLAIN_WS(name, run, workspace) KERNEL(name, run, workspace)
#include "driver/ref/kernels.def"
};

#undef KERNEL
#undef KERNEL_IF
#undef KERNEL_JOIN
#undef KERNEL_LIB
#undef PLAIN
#undef PLAIN_WS

static bool
row_takes(const air_kernel *row, const air_call *call, const char *isa,
          cpu_use use)
{
    if (use == CPU_LIBRARY)
        return row->can != NULL && row->can(call, isa);
    if (use == CPU_OWN && row->library != NULL)
        return false;
    return row->accept == NULL || row->accept(call, isa);
}

static const air_kernel *
find_in(const air_kernel *table, size_t count, const char *name,
        const air_call *call, const char *isa, cpu_use use)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0 &&
            row_takes(&table[i], call, isa, use))
            return &table[i];
    return NULL;
}

const air_kernel *
cpu_kernel_find(const char *name, const air_call *call, const char *isa,
                cpu_use use)
{
    const air_kernel *own =
        find_in(rows, sizeof rows / sizeof rows[0], name, call, isa, use);
    const size_t count = sizeof plain_rows / sizeof plain_rows[0];

    return own ? own : find_in(plain_rows, count, name, call, isa, use);
}

bool
cpu_kernel_is_plain(const char *name, const air_call *call, const char *isa)
{
    return !find_in(rows, sizeof rows / sizeof rows[0], name, call, isa,
                    CPU_BY_RULE);
}
