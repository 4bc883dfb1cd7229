/* copy.c: tensors that are moved outside of steps: inputs of captures, results
 * of HOST nodes. */
#include <string.h>

#include "exec/exec.h"

static air_status
copy_bytes(const air_context *ctx, void *dst, const void *src, size_t size)
{
    if (size == 0)
        return AIR_OK;
    if (ctx->driver->copy)
        return ctx->driver->copy(ctx->device, dst, src, size);
    memcpy(dst, src, size);
    return AIR_OK;
}

/* Axes from `dense` on are dense on both sides and copied at once. */
static air_status
copy_axis(const exec_copy *s, int axis, int dense, char *dst, const char *src)
{
    if (axis == dense)
        return copy_bytes(
            s->ctx, dst, src,
            (size_t)(exec_numel(s->rank - axis, s->dims + axis) * s->size));
    for (int64_t i = 0; i < s->dims[axis]; i++)
        AIR_TRY(copy_axis(s, axis + 1, dense, dst + i * s->to[axis] * s->size,
                          src + i * s->from[axis] * s->size));
    return AIR_OK;
}

air_status
exec_copy_strided(const exec_copy *s, void *dst, const void *src)
{
    int dense = s->rank;

    while (dense > 0 &&
           exec_is_dense(s->rank - dense + 1, s->dims + dense - 1,
                         s->to + dense - 1) &&
           exec_is_dense(s->rank - dense + 1, s->dims + dense - 1,
                         s->from + dense - 1))
        dense--;
    return copy_axis(s, 0, dense, dst, src);
}
