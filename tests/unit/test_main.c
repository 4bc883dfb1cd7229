/* test_main.c: runs the registered tests and says what failed where. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "test.h"

#define SLOW 5.0 /* s: tests that take as long are shown with their time */

static test_case *first;
static long failures; /* of the running test */
static const char *skipped;

void
test_add(test_case *test)
{
    test_case **at = &first;
    while (*at && (strcmp((*at)->file, test->file) < 0 ||
                   (strcmp((*at)->file, test->file) == 0 &&
                    strcmp((*at)->name, test->name) < 0)))
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

bool
test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    flockfile(stdout);
    printf("%s:%d: ", file, line);
    vprintf(fmt, args);
    putchar('\n');
    funlockfile(stdout);
    va_end(args);
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    return false;
}

bool
test_int(const char *file, int line, const char *text, long long got,
         long long want)
{
    if (got == want)
        return true;
    return test_fail(file, line, "%s is %lld, not %lld", text, got, want);
}

bool
test_str(const char *file, int line, const char *text, const char *got,
         const char *want)
{
    if (got && want && strcmp(got, want) == 0)
        return true;
    if (!got && !want)
        return true;
    return test_fail(file, line, "%s is\n%s\nnot\n%s", text, got ? got : "NULL",
                     want ? want : "NULL");
}

bool
test_near(const char *file, int line, const char *text, double got, double want,
          double tolerance)
{
    if (fabs(got - want) <= tolerance || (isnan(got) && isnan(want)))
        return true;
    if (isinf(got) && isinf(want) && (got > 0) == (want > 0))
        return true;
    return test_fail(file, line, "%s is %.17g, not %.17g +- %g", text, got,
                     want, tolerance);
}

bool
test_status(const char *file, int line, const char *text, air_status got,
            air_status want)
{
    if (got == want)
        return true;
    const air_error *error = air_last_error();
    return test_fail(file, line, "%s gives %s, not %s: %s (%s)", text,
                     air_status_text(got), air_status_text(want),
                     got == AIR_OK ? "" : error->message,
                     got == AIR_OK ? "" : error->trace);
}

void
test_skip(const char *why)
{
    skipped = why;
}

static bool
selected(const test_case *test, int argc, char **argv)
{
    const char *slash = strrchr(test->file, '/');
    const char *file = slash ? slash + 1 : test->file;
    for (int i = 1; i < argc; i++)
        if (strstr(test->name, argv[i]) || strstr(file, argv[i]))
            return true;
    return argc <= 1;
}

static void
list_tests(void)
{
    for (const test_case *t = first; t; t = t->next)
        printf("%s %s\n", t->file, t->name);
}

int
main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "-l") == 0) {
        list_tests();
        return 0;
    }
    long passed = 0, failed = 0, left_out = 0, part = 0, parts = 1, at = 0;
    if (argc == 3 && strcmp(argv[1], "-s") == 0) {
        if (sscanf(argv[2], "%ld/%ld", &part, &parts) != 2 || parts < 1) {
            fprintf(stderr, "unit: -s %s: give I/N, such as 0/2\n", argv[2]);
            return 2;
        }
        argc = 1;
    }
    for (const test_case *t = first; t; t = t->next) {
        if (at++ % parts != part || !selected(t, argc, argv))
            continue;
        failures = 0;
        skipped = NULL;
        const double begin = base_now();
        t->fn();
        const double took = base_now() - begin;
        if (took >= SLOW)
            printf("   %s: %.1f s\n", t->name, took);
        if (failures > 0) {
            printf("FAILED %s (%s)\n", t->name, t->file);
            failed++;
        } else if (skipped) {
            printf("skipped %s: %s\n", t->name, skipped);
            left_out++;
        } else {
            passed++;
        }
    }
    if (left_out > 0)
        printf("%ld skipped\n", left_out);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0 || passed + left_out == 0;
}
