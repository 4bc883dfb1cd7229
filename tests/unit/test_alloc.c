/* test_alloc.c: allocators that count, fail and trap, and the OOM sweep. */
#include <stdlib.h>

#include "test.h"

enum { MAX_ROUNDS = 100000 };

/* An allocation or growth; false when it is to fail. */
static bool
admit(test_alloc *t)
{
    long call = __atomic_add_fetch(&t->calls, 1, __ATOMIC_RELAXED);
    if (t->trap)
        test_fail(__FILE__, __LINE__, "allocation while trapping");
    if (t->fail_at == 0)
        return true;
    bool fail = call == t->fail_at || (t->fail_all && call > t->fail_at);
    if (fail)
        t->failed = true;
    return !fail;
}

static void *
test_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    test_alloc *t = user;
    if (new_size == 0) {
        if (ptr) {
            __atomic_sub_fetch(&t->live, 1, __ATOMIC_RELAXED);
            __atomic_sub_fetch(&t->bytes, old_size, __ATOMIC_RELAXED);
        }
        free(ptr);
        return NULL;
    }
    if (!admit(t))
        return NULL;
    void *block = realloc(ptr, new_size);
    if (!block)
        abort();
    if (!ptr)
        __atomic_add_fetch(&t->live, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&t->bytes, new_size - (ptr ? old_size : 0),
                       __ATOMIC_RELAXED);
    /* New bytes are not zero: what relies on that must say so. */
    if (new_size > old_size || !ptr)
        memset((char *)block + (ptr ? old_size : 0), 0xa5,
               new_size - (ptr ? old_size : 0));
    return block;
}

void
test_alloc_init(test_alloc *t)
{
    *t = (test_alloc){.alloc = {test_resize, t}};
}

bool
test_alloc_clean(const char *file, int line, const test_alloc *t)
{
    if (t->live == 0 && t->bytes == 0)
        return true;
    return test_fail(file, line, "%ld blocks, %zu bytes not given back",
                     t->live, t->bytes);
}

/* One round; false when it went wrong. */
static bool
oom_round(const char *file, int line, test_oom_fn body, void *user, long fail,
          bool *out_done)
{
    test_alloc t;
    test_alloc_init(&t);
    t.fail_at = fail;
    air_status status = body(&t.alloc, user);
    *out_done = !t.failed;
    if (t.failed && status != AIR_ERROR_MEMORY && status != AIR_OK)
        return test_fail(file, line, "allocation %ld fails: %s, not memory",
                         fail, air_status_text(status));
    if (!t.failed && status != AIR_OK)
        return test_fail(file, line, "%s: %s", air_status_text(status),
                         air_last_error()->message);
    if (t.live != 0 || t.bytes != 0)
        return test_fail(file, line,
                         "allocation %ld fails: %ld blocks, %zu bytes lost",
                         fail, t.live, t.bytes);
    return true;
}

bool
test_oom(const char *file, int line, test_oom_fn body, void *user)
{
    bool done = false;
    for (long fail = 1; !done && fail < MAX_ROUNDS; fail++)
        if (!oom_round(file, line, body, user, fail, &done))
            return false;
    return done || test_fail(file, line, "the OOM sweep does not end");
}
