/* text.c: a growing string. The first failure sticks, so that a printer may
 * add pieces unchecked and look at the status once. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
base_text_init(base_text *t, const air_alloc *alloc)
{
    *t = (base_text){.alloc = alloc, .status = AIR_OK};
}

void
base_text_deinit(base_text *t)
{
    base_free(t->alloc, t->data, t->cap);
    base_text_init(t, t->alloc);
}

/* Room for len more characters and the NUL. */
static bool
reserve(base_text *t, size_t len)
{
    size_t want;
    if (t->status != AIR_OK)
        return false;
    if (!base_add_size(t->len, len, &want) || !base_add_size(want, 1, &want)) {
        t->status = AIR_ERROR_MEMORY;
        return false;
    }
    void *data = t->data;
    t->status = base_vec_reserve(t->alloc, &data, &t->cap, want, 1);
    t->data = data;
    return t->status == AIR_OK;
}

void
base_text_put(base_text *t, const char *s, size_t len)
{
    if (!reserve(t, len))
        return;
    if (len > 0)
        memcpy(t->data + t->len, s, len);
    t->len += len;
    t->data[t->len] = '\0';
}

void
base_text_add(base_text *t, const char *fmt, ...)
{
    char small[256];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(small, sizeof small, fmt, args);
    if (len >= 0 && (size_t)len < sizeof small) {
        base_text_put(t, small, (size_t)len);
    } else if (len >= 0 && reserve(t, (size_t)len)) {
        vsnprintf(t->data + t->len, (size_t)len + 1, fmt, again);
        t->len += (size_t)len;
    }
    va_end(again);
    va_end(args);
}
