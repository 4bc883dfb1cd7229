/* Pages of machine code. */
#include "driver/cpu/region/exec_memory.h"

#include "test.h"

TEST(exec_memory_runs_a_copy)
{
#if defined(__x86_64__)
    uint8_t code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
    exec_memory m;
    int (*call)(void);
    REQUIRE(exec_memory_make(code, sizeof code, &m));
    memset(code, 0xcc, sizeof code);
    memcpy(&call, &m.base, sizeof call);
    CHECK_INT(call(), 42);
    exec_memory_free(&m);
    CHECK(m.base == NULL);
    exec_memory_free(&m);
#else
    test_skip("not x86");
#endif
}

TEST(exec_memory_refuses_nothing)
{
    exec_memory m;
    CHECK(!exec_memory_make("", 0, &m));
    CHECK(m.base == NULL && m.size == 0);
}
