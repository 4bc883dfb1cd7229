#include "driver/cpu/ahead.h"
#include "driver/dense.h"

#define LEAST_BYTES ((int64_t)64 << 10)  /* of an operand, a thread */
#define MOST_BYTES  ((int64_t)128 << 10) /* that stay in its cache */
#define WINDOW      8                    /* steps that are looked at */
#define SOME        512                  /* bytes */

static int64_t
tensor_bytes(const air_tensor *t)
{
    int64_t bytes = (int64_t)air_dtype_bytes((air_dtype)t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= t->dims[i];
    return bytes;
}

/* Dense in some order of its dims: a transposed weight is. */
static bool
is_full(const air_tensor *t)
{
    int64_t last = 1, count = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->strides[i] < 0)
            return false;
        last += (t->dims[i] - 1) * t->strides[i];
        count *= t->dims[i];
    }
    return last == count;
}

cpu_ahead
cpu_ahead_of(const air_step *step)
{
    cpu_ahead found = {0};
    const air_call *call = &step->call;
    if (call->args == NULL || step->kernel->run == NULL)
        return found;
    for (int i = 0; i < call->nargs; i++) {
        const air_tensor *t = call->args[i].t;
        if (call->args[i].kind != AIR_ARG_TENSOR ||
            t->dtype == AIR_DTYPE_NONE || !is_full(t))
            continue;
        const int64_t bytes = tensor_bytes(t);
        if (bytes > found.bytes)
            found = (cpu_ahead){t->slot, t->offset, bytes};
    }
    return found;
}

void
cpu_fetch_set(cpu_fetch *f, const cpu_ahead *steps, size_t i, size_t end,
              void *const *slots, int id, int count)
{
    size_t most = i + WINDOW < end ? i + WINDOW : end;
    while (i < most && steps[i].bytes < LEAST_BYTES * count)
        i++;
    if (i == most || f->step == i + 1)
        return;
    const int64_t part = steps[i].bytes / count;
    f->p = (const char *)slots[steps[i].slot] + steps[i].offset + part * id;
    f->end = f->p + (part < MOST_BYTES ? part : MOST_BYTES);
    f->step = i + 1;
}

bool
cpu_fetch_some(void *arg)
{
    cpu_fetch *f = arg;
    for (int i = 0; i < SOME && f->p < f->end; i += 64, f->p += 64)
        __builtin_prefetch(f->p, 0, 2); /* to the second cache */
    return f->p < f->end;
}
