/* test_status.c: the failure record, and the status and dtype tables. */
#include "test.h"

static air_status
inner(int x)
{
    AIR_REQUIRE(x < 10, AIR_ERROR_SHAPE, "x is %d, at most 9 is allowed", x);
    return AIR_OK;
}

static air_status
outer(int x)
{
    AIR_TRY(inner(x));
    return AIR_OK;
}

TEST(status_record)
{
    base_clear_error();
    CHECK_OK(outer(3));
    CHECK_INT(air_last_error()->code, AIR_OK);
    CHECK_FAILS(outer(12), SHAPE);
    const air_error *error = air_last_error();
    CHECK_INT(error->code, AIR_ERROR_SHAPE);
    CHECK_STR(error->message, "x is 12, at most 9 is allowed");
    CHECK(strncmp(error->trace, "inner:", 6) == 0);
    CHECK(strstr(error->trace, " < outer:") != NULL);
    base_clear_error();
    CHECK_INT(error->code, AIR_OK);
    CHECK_STR(error->message, "");
}

TEST(status_message_may_quote_the_last_one)
{
    base_fail(AIR_ERROR_DTYPE, "f", 1, "first");
    base_fail(AIR_ERROR_SHAPE, "g", 2, "again: %s", air_last_error()->message);
    CHECK_STR(air_last_error()->message, "again: first");
    CHECK_STR(air_last_error()->trace, "g:2");
}

TEST(status_of_a_callback_gets_a_message)
{
    base_clear_error();
    CHECK_INT(base_trace(AIR_ERROR_HOST, "f", 7), AIR_ERROR_HOST);
    CHECK_STR(air_last_error()->message, "host");
    CHECK_STR(air_last_error()->trace, "f:7");
}

TEST(status_long_messages_are_cut)
{
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    base_fail(AIR_ERROR_ARGUMENT, "f", 1, "%s", text);
    CHECK_INT(strlen(air_last_error()->message), 511);
    for (int i = 0; i < 200; i++)
        base_trace(AIR_ERROR_ARGUMENT, "some_function", i);
    const char *trace = air_last_error()->trace;
    CHECK(strlen(trace) < 256);
    const char *last = strrchr(trace, ' ');
    CHECK(last && strncmp(last + 1, "some_function:", 14) == 0);
}

TEST(status_texts)
{
    CHECK_STR(air_status_text(AIR_OK), "ok");
    CHECK_STR(air_status_text(AIR_ERROR_STATE), "state");
    CHECK_STR(air_status_text(AIR_STATUS_COUNT), "unknown");
}

TEST(dtype_table)
{
    for (int i = AIR_DTYPE_NONE + 1; i < AIR_DTYPE_COUNT; i++) {
        air_dtype dtype = (air_dtype)i;
        CHECK_INT(air_dtype_find(air_dtype_text(dtype)), dtype);
        CHECK(air_dtype_bytes(dtype) >= 1 && air_dtype_bytes(dtype) <= 8);
    }
    CHECK_INT(air_dtype_bytes(AIR_BF16), 2);
    CHECK_INT(air_dtype_bytes(AIR_DTYPE_NONE), 0);
    CHECK_INT(air_dtype_bytes(AIR_DTYPE_COUNT), 0);
    CHECK_INT(air_dtype_find("c64"), AIR_DTYPE_NONE);
    CHECK_INT(air_dtype_find(""), AIR_DTYPE_NONE);
    CHECK_STR(air_dtype_text(AIR_DTYPE_NONE), "none");
    CHECK_STR(air_dtype_text(AIR_DTYPE_COUNT), "none");
}
