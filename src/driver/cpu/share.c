#include "driver/cpu/share.h"

#define QUAD        4     /* rows of equal parts: a multiple */
#define STREAMS     24    /* of a piece: a multiple of most tiles' streams */
#define PIECE_BYTES 24576 /* at least: to take one costs 0.1 us */

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

cpu_share
cpu_share_make(int64_t n, int64_t row_bytes, int id, int count, int64_t *taken)
{
    cpu_share s = {.n = n, .id = id, .count = count, .taken = taken};
    int64_t streams = STREAMS * (row_bytes > 0 ? row_bytes : 1);
    s.unit = STREAMS * ((PIECE_BYTES + streams - 1) / streams);
    if (taken != NULL && count > 1 && n >= 4 * s.unit * count)
        s.own = n / (2 * count) / 8 * 8;
    return s;
}

static bool
equal_part(const cpu_share *s, int64_t *begin, int64_t *end)
{
    int64_t quads = (s->n + QUAD - 1) / QUAD;
    *begin = least(s->n, quads * s->id / s->count * QUAD);
    *end = least(s->n, quads * (s->id + 1) / s->count * QUAD);
    return *begin < *end;
}

/* A piece of the rows behind all threads' own: 1 / (2 count) of what is left.
 */
static bool
take(const cpu_share *s, int64_t *begin, int64_t *end)
{
    const int64_t rest = s->n - s->own * s->count;
    int64_t at = __atomic_load_n(s->taken, __ATOMIC_RELAXED), next, part;
    do {
        if (at >= rest)
            return false;
        int64_t pieces = (rest - at) / (2 * s->count * s->unit);
        part = at / s->own;
        part = part < s->count ? part : s->count - 1;
        next = at + s->unit * (pieces > 0 ? pieces : 1);
        next = least(next, part + 1 < s->count ? (part + 1) * s->own : rest);
    } while (!__atomic_compare_exchange_n(s->taken, &at, next, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    *begin = (part + 1) * s->own + at;
    *end = *begin + next - at;
    return true;
}

bool
cpu_share_next(cpu_share *s, int64_t *begin, int64_t *end)
{
    const bool first = !s->began;
    s->began = true;
    if (s->own == 0)
        return first && equal_part(s, begin, end);
    if (!first)
        return take(s, begin, end);
    *begin = 2 * s->own * s->id;
    *end = *begin + s->own;
    return true;
}
