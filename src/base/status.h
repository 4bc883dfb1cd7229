/* status.h: how a function of the engine fails.
 *
 * Every fallible function returns air_status. The detail of the last failure
 * of a thread is a fixed-size thread-local record: it never allocates.
 *
 *   AIR_FAIL(code, fmt, ...)          record the message and return the code
 *   AIR_REQUIRE(cond, code, fmt, ...) the same unless cond: for what a caller
 *                                     or a file can get wrong
 *   AIR_TRY(call)                     return the status of a call that failed,
 *                                     adding a frame "function:line"
 * assert() is for what only the engine can get wrong.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "air.h"

#define AIR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

air_status base_fail(air_status code, const char *where, int line,
                     const char *fmt, ...) AIR_PRINTF(4, 5);
/* Adds a frame to the record; returns code. */
air_status base_trace(air_status code, const char *where, int line);
/* Adds " (...)" to the message of a failure, where there is room; returns
 * code. */
air_status base_explain(air_status code, const char *fmt, ...) AIR_PRINTF(2, 3);
void base_clear_error(void);

#define AIR_FAIL(code, ...) \
    return base_fail((code), __func__, __LINE__, __VA_ARGS__)
#define AIR_REQUIRE(cond, code, ...)     \
    do {                                 \
        if (!(cond))                     \
            AIR_FAIL(code, __VA_ARGS__); \
    } while (0)
#define AIR_TRY(call)                                       \
    do {                                                    \
        air_status status_ = (call);                        \
        if (status_ != AIR_OK)                              \
            return base_trace(status_, __func__, __LINE__); \
    } while (0)

#endif
