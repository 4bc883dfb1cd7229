/* The wrappers: fault, trace, check. */
#include <string.h>

#include "driver/driver.h"
#include "driver/wrap/wrap.h"
#include "test.h"

/* ---- a log that keeps its lines ------------------------------------------ */

typedef struct {
    char text[4096];
    size_t len;
    int errors;
} log_book;

static void
log_line(void *user, air_log_level level, const char *line)
{
    log_book *book = user;
    size_t len = strlen(line);
    book->errors += level == AIR_LOG_ERROR;
    if (book->len + len + 2 > sizeof book->text)
        return;
    memcpy(book->text + book->len, line, len);
    book->len += len;
    book->text[book->len++] = '\n';
}

static air_device *
open_wrapped(const char *name, log_book *book, const air_alloc *alloc)
{
    air_device *dev = NULL;
    const air_driver *driver = driver_find(name);
    air_options options = {.driver = name, .log = log_line, .log_user = book};
    *book = (log_book){.len = 0};
    if (CHECK(driver != NULL))
        CHECK_OK(driver->open(&options, alloc, &dev));
    return dev;
}

TEST(wrap_refuses_an_unknown_driver)
{
    air_options options = {.driver = "trace:warp"};
    air_device *dev;
    CHECK_FAILS(air_driver_trace.open(&options, &base_libc_alloc, &dev),
                ARGUMENT);
    CHECK(dev == NULL);
}

TEST(wrap_fault_fails_the_chosen_call)
{
    log_book book;
    void *ptr;
    air_device *dev = open_wrapped("fault:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    wrap_fault_set(2);
    CHECK_OK(air_driver_fault.alloc(dev, 100, &ptr));
    air_driver_fault.free(dev, ptr, 100);
    CHECK_FAILS(air_driver_fault.alloc(dev, 100, &ptr), MEMORY);
    CHECK(ptr == NULL);
    CHECK_OK(air_driver_fault.alloc(dev, 100, &ptr));
    air_driver_fault.free(dev, ptr, 100);
    CHECK_INT(wrap_fault_calls(), 3);
    wrap_fault_set(0);
    air_driver_fault.close(dev);
}

TEST(wrap_trace_writes_each_call)
{
    log_book book;
    test_alloc alloc;
    void *ptr;
    air_list *list;
    test_alloc_init(&alloc);
    air_device *dev = open_wrapped("trace:ref", &book, &alloc.alloc);
    REQUIRE(dev != NULL);
    CHECK_OK(air_driver_trace.alloc(dev, 64, &ptr));
    CHECK_OK(air_driver_trace.list_make(dev, NULL, 0, &list));
    CHECK_OK(air_driver_trace.list_run(dev, list, &ptr));
    air_driver_trace.list_free(dev, list);
    air_driver_trace.free(dev, ptr, 64);
    air_driver_trace.close(dev);
    book.text[book.len] = '\0';
    CHECK_STR(book.text, "open ref\n"
                         "alloc 64 -> block 1\n"
                         "list_make 0 steps -> list 2\n"
                         "list_run list 2 -> ok\n"
                         "list_free list 2\n"
                         "free block 1, 64\n"
                         "close\n");
    CHECK_CLEAN(&alloc);
}

TEST(wrap_check_finds_broken_lifetimes)
{
    log_book book;
    test_alloc alloc;
    void *ptr;
    air_list *list;
    test_alloc_init(&alloc);
    air_device *dev = open_wrapped("check:ref", &book, &alloc.alloc);
    REQUIRE(dev != NULL);
    CHECK_OK(air_driver_check.alloc(dev, 64, &ptr));
    air_driver_check.free(dev, &book, 64); /* not a block: not freed */
    CHECK_INT(book.errors, 1);
    air_driver_check.free(dev, ptr, 64);
    CHECK_OK(air_driver_check.list_make(dev, NULL, 0, &list));
    air_driver_check.list_free(dev, list);
    CHECK_FAILS(air_driver_check.list_run(dev, list, &ptr), STATE);
    CHECK_INT(book.errors, 2);
    air_driver_check.close(dev);
    CHECK_INT(book.errors, 2);
    CHECK_CLEAN(&alloc);
}

TEST(wrap_check_finds_what_is_left_at_close)
{
    log_book book;
    air_list *list;
    air_device *other;
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    REQUIRE_OK(air_driver_ref.open(&(air_options){.driver = "ref"},
                                   &base_libc_alloc, &other));
    CHECK_OK(air_driver_check.list_make(dev, NULL, 0, &list));
    air_driver_check.close(dev);
    CHECK_INT(book.errors, 1);
    air_driver_ref.list_free(other, list);
    air_driver_ref.close(other);
}

TEST(wrap_check_refuses_broken_regions)
{
    const air_rg_node nodes[2] = {
        {.op = AIR_RG_LOAD, .buf = 3, .a = -1, .b = -1, .c = -1},
        {.op = AIR_RG_STORE, .buf = 0, .a = 1, .b = -1, .c = -1},
    };
    const air_rg_buf bufs[1] = {{.slot = 0, .dtype = AIR_F32}};
    const air_rg_phase phases[1] = {{AIR_PHASE_ROW, 0, 2}};
    air_region region = {.walk = AIR_WALK_MAP,
                         .rank = 1,
                         .nnodes = 2,
                         .nbufs = 1,
                         .nphases = 1,
                         .dims = {4},
                         .nodes = nodes,
                         .bufs = bufs,
                         .phases = phases};
    const air_kernel *kernel;
    log_book book;
    air_device *dev = open_wrapped("check:ref", &book, &base_libc_alloc);
    REQUIRE(dev != NULL);
    CHECK_FAILS(air_driver_check.kernel_make(dev, &region, NULL, &kernel),
                ARGUMENT);
    CHECK(kernel == NULL);
    region.nnodes = 1;
    region.rank = 0;
    CHECK_FAILS(air_driver_check.kernel_make(dev, &region, NULL, &kernel),
                ARGUMENT);
    CHECK_INT(book.errors, 2);
    air_driver_check.close(dev);
}

TEST(null_driver_refuses_with_a_reason)
{
    const air_kernel *kernel = NULL;
    air_region region = {.rank = 1};
    air_device *dev;
    void *ptr;
    REQUIRE_OK(air_driver_null.open(&(air_options){.driver = "null"},
                                    &base_libc_alloc, &dev));
    CHECK_FAILS(air_driver_null.kernel_make(dev, &region, NULL, &kernel),
                UNSUPPORTED);
    CHECK_OK(air_driver_null.kernel_find(dev, "mm", NULL, &kernel));
    CHECK(kernel == NULL);
    CHECK_OK(air_driver_null.alloc(dev, 1000, &ptr));
    CHECK_INT((uintptr_t)ptr % 64, 0);
    air_driver_null.free(dev, ptr, 1000);
    air_driver_null.close(dev);
}
