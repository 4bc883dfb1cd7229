/* test.h: unit tests that register themselves.
 *
 *     TEST(arena_grows)
 *     {
 *         CHECK(x == 3);                 condition
 *         CHECK_OK(base_new(...));       status, shows the message
 *         CHECK_FAILS(call, SHAPE);      AIR_STATUS_SHAPE expected
 *         CHECK_INT(a, b);  CHECK_STR(a, b);  CHECK_NEAR(a, b, tolerance);
 *     }
 *
 * A failed check prints file:line and the test goes on; REQUIRE leaves the
 * test. One program holds all tests: `unit [substring ...]`, `unit -l`;
 * `unit -s I/N` runs every N-th one from the I-th on.
 */
#ifndef TEST_H
#define TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct test_case {
    const char *name, *file;
    void (*fn)(void);
    struct test_case *next;
} test_case;

void test_add(test_case *test);
/* Counts a failure of the running test; returns false. */
bool test_fail(const char *file, int line, const char *fmt, ...)
    AIR_PRINTF(3, 4);
bool test_int(const char *file, int line, const char *text, long long got,
              long long want);
bool test_str(const char *file, int line, const char *text, const char *got,
              const char *want);
bool test_near(const char *file, int line, const char *text, double got,
               double want, double tolerance);
bool test_status(const char *file, int line, const char *text, air_status got,
                 air_status want);
/* Leaves the running test as "skipped" (say why): for a missing CPU feature. */
void test_skip(const char *why);

#define TEST(id)                                                            \
    static void test_##id(void);                                            \
    __attribute__((constructor)) static void test_register_##id(void)       \
    {                                                                       \
        static test_case test_case_##id = {#id, __FILE__, test_##id, NULL}; \
        test_add(&test_case_##id);                                          \
    }                                                                       \
    static void test_##id(void)

#define CHECK(cond) ((cond) ? true : test_fail(__FILE__, __LINE__, "%s", #cond))
#define CHECK_INT(got, want) \
    test_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define CHECK_STR(got, want) test_str(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_NEAR(got, want, tolerance)                               \
    test_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), \
              (double)(tolerance))
#define CHECK_OK(call) test_status(__FILE__, __LINE__, #call, (call), AIR_OK)
#define CHECK_FAILS(call, id) \
    test_status(__FILE__, __LINE__, #call, (call), AIR_STATUS_##id)
#define REQUIRE(cond)     \
    do {                  \
        if (!CHECK(cond)) \
            return;       \
    } while (0)
#define REQUIRE_OK(call)     \
    do {                     \
        if (!CHECK_OK(call)) \
            return;          \
    } while (0)

/* ---- allocators ---- */

/* Counts what is out; fails allocation number fail_at (1: the next one; 0:
 * none) and, with fail_all, every one after it; trap makes any allocation a
 * failure of the test. Thread-safe. */
typedef struct {
    air_alloc alloc; /* first: hand out &t.alloc */
    long calls;      /* allocations and growths so far */
    long live;       /* blocks out */
    size_t bytes;    /* bytes out */
    long fail_at;
    bool fail_all, trap, failed;
} test_alloc;
void test_alloc_init(test_alloc *t);
/* Everything was given back? Counts a failure if not. */
bool test_alloc_clean(const char *file, int line, const test_alloc *t);
#define CHECK_CLEAN(t) test_alloc_clean(__FILE__, __LINE__, (t))

/* Runs body(alloc, user) with allocation 1, 2, 3 ... failing until it
 * succeeds. Each failing round must return AIR_ERROR_MEMORY (or succeed, for
 * code that can do without the block) and leak nothing. */
typedef air_status (*test_oom_fn)(const air_alloc *alloc, void *user);
bool test_oom(const char *file, int line, test_oom_fn body, void *user);
#define TEST_OOM(body, user) test_oom(__FILE__, __LINE__, (body), (user))

#endif
