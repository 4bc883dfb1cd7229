/* copy.c: tensors that are moved outside of steps: inputs of captures, results
 * of HOST nodes. */
#include <string.h>

#include "exec/exec.h"

/* ---- by the device ---- */

/* Axes from `dense` on are dense on both sides and copied at once. */
static air_status
copy_axis(const exec_copy *s, int axis, int dense, char *dst, const char *src)
{
    if (axis == dense) {
        const int64_t count = exec_numel(s->rank - axis, s->dims + axis);
        return count == 0 ? AIR_OK
                          : s->ctx->driver->copy(s->ctx->device, dst, src,
                                                 (size_t)(count * s->size));
    }
    for (int64_t i = 0; i < s->dims[axis]; i++)
        AIR_TRY(copy_axis(s, axis + 1, dense, dst + i * s->to[axis] * s->size,
                          src + i * s->from[axis] * s->size));
    return AIR_OK;
}

static air_status
copy_device(const exec_copy *s, char *dst, const char *src)
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

/* ---- by the host ---- */

enum { BLOCK = 32 }; /* lines of both sides that stay in the cache */

typedef struct {
    int64_t n, to, from; /* strides in bytes */
} copied_axis;

typedef struct {
    int rank;
    copied_axis
        axes[AIR_MAX_RANK + 1]; /* by falling `to`, joined where dense */
    int64_t size;
} copied;

#define EACH(type)                          \
    for (int64_t i = 0; i < n; i++)         \
    *(type *)(void *)(dst + i * line->to) = \
        *(const type *)(const void *)(src + i * line->from)

static void
copy_line(const copied_axis *line, int64_t n, int64_t size, char *dst,
          const char *src)
{
    if (line->to == size && line->from == size) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    switch (size) {
    case 1: EACH(uint8_t); break;
    case 2: EACH(uint16_t); break;
    case 4: EACH(uint32_t); break;
    case 8: EACH(uint64_t); break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * line->to, src + i * line->from, (size_t)size);
    }
}

static int64_t
at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

/* Lines of the result; where those of the source run across them, by blocks. */
static void
copy_plane(const copied_axis *down, const copied_axis *line, int64_t size,
           char *dst, const char *src)
{
    const int64_t step = down->from < line->from ? BLOCK : line->n;

    for (int64_t row = 0; row < down->n; row += BLOCK)
        for (int64_t col = 0; col < line->n; col += step)
            for (int64_t i = row; i < at_most(down->n, row + BLOCK); i++)
                copy_line(line, at_most(line->n - col, step), size,
                          dst + i * down->to + col * line->to,
                          src + i * down->from + col * line->from);
}

/* `down`: the axis that goes with the last one. */
static void
copy_rest(const copied *c, int axis, int down, char *dst, const char *src)
{
    const copied_axis *a = &c->axes[axis];

    if (axis == c->rank - 1) {
        copy_plane(&c->axes[down], a, c->size, dst, src);
        return;
    }
    for (int64_t i = 0; i < (axis == down ? 1 : a->n); i++)
        copy_rest(c, axis + 1, down, dst + i * a->to, src + i * a->from);
}

static void
add_axis(copied *c, copied_axis a)
{
    int at = c->rank++;

    for (; at > 0 && c->axes[at - 1].to < a.to; at--)
        c->axes[at] = c->axes[at - 1];
    c->axes[at] = a;
}

static void
join_axes(copied *c)
{
    int kept = 1;

    for (int i = 1; i < c->rank; i++) {
        copied_axis *last = &c->axes[kept - 1];
        const copied_axis *a = &c->axes[i];
        if (last->to == a->n * a->to && last->from == a->n * a->from)
            *last = (copied_axis){last->n * a->n, a->to, a->from};
        else
            c->axes[kept++] = *a;
    }
    c->rank = kept;
}

static void
copy_host(const exec_copy *s, char *dst, const char *src)
{
    /* one index at least, so that there is always a plane */
    copied c = {
        .rank = 1, .axes = {{1, INT64_MAX, INT64_MAX}}, .size = s->size};
    int down = 0;

    for (int i = 0; i < s->rank; i++) {
        if (s->dims[i] == 0)
            return;
        if (s->dims[i] > 1)
            add_axis(&c, (copied_axis){s->dims[i], s->to[i] * s->size,
                                       s->from[i] * s->size});
    }
    if (c.rank == 1)
        add_axis(&c, (copied_axis){1, s->size, s->size});
    join_axes(&c);
    for (int i = 0; i < c.rank - 1; i++)
        if (c.axes[i].from <= c.axes[down].from)
            down = i;
    if (c.axes[down].from >= c.axes[c.rank - 1].from)
        down = c.rank - 2; /* in the order of the result */
    copy_rest(&c, 0, down, dst, src);
}

air_status
exec_copy_strided(const exec_copy *s, void *dst, const void *src)
{
    if (s->ctx->driver->copy != NULL)
        return copy_device(s, dst, src);
    copy_host(s, dst, src);
    return AIR_OK;
}
