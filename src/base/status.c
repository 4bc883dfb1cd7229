/* status.c: the failure record of a thread. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local air_error last_error;

static const char *const texts[AIR_STATUS_COUNT] = {
#define STATUS(id, text, doc) text,
#include "air_status.def"
#undef STATUS
};

const char *
air_status_text(air_status code)
{
    return (unsigned)code < AIR_STATUS_COUNT ? texts[code] : "unknown";
}

const air_error *
air_last_error(void)
{
    return &last_error;
}

void
base_clear_error(void)
{
    last_error = (air_error){.code = AIR_OK};
}

/* Appends "function:line"; a frame that does not fit whole is left out. */
static void
add_frame(const char *where, int line)
{
    size_t used = strlen(last_error.trace);
    size_t room = sizeof last_error.trace - used;
    int wrote = snprintf(last_error.trace + used, room, "%s%s:%d",
                         used ? " < " : "", where, line);
    if (wrote < 0 || (size_t)wrote >= room)
        last_error.trace[used] = '\0';
}

/* The message is formatted aside, so that it may quote the last one. */
air_status
base_fail(air_status code, const char *where, int line, const char *fmt, ...)
{
    char message[sizeof last_error.message];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(message, sizeof message, fmt, args) < 0)
        message[0] = '\0';
    va_end(args);
    last_error.code = code;
    memcpy(last_error.message, message, sizeof message);
    last_error.trace[0] = '\0';
    add_frame(where, line);
    return code;
}

air_status
base_explain(air_status code, const char *fmt, ...)
{
    const size_t used = strlen(last_error.message);
    const size_t room = sizeof last_error.message - used;
    char text[sizeof last_error.message];
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(text, sizeof text, fmt, args) < 0)
        text[0] = '\0';
    va_end(args);
    if (last_error.code != code || strlen(text) + 4 > room)
        return code;
    snprintf(last_error.message + used, room, " (%s)", text);
    return code;
}

air_status
base_trace(air_status code, const char *where, int line)
{
    if (last_error.code != code) { /* a callback's own status */
        last_error = (air_error){.code = code};
        snprintf(last_error.message, sizeof last_error.message, "%s",
                 air_status_text(code));
    }
    add_frame(where, line);
    return code;
}
