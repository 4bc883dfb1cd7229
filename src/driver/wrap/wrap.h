/* wrap.h: drivers around another driver, chosen by name: "fault:cpu",
 * "trace:check:ref"; without a colon they wrap "cpu". */
#ifndef WRAP_WRAP_H
#define WRAP_WRAP_H

#include "air_driver.h"
#include "base/memory.h"

/* The driver inside, and what a wrapper keeps of the options. */
typedef struct {
    const air_driver *driver;
    air_device *device;
    air_alloc alloc;
    void (*log)(void *user, air_log_level level, const char *line);
    void *log_user;
} wrap_inner;

/* Opens the driver that is named behind the colon. */
air_status wrap_open(const air_options *options, const air_alloc *alloc,
                     wrap_inner *out);
/* Begins a capture of the driver inside; UNSUPPORTED where it has no graphs,
 * which a wrapper's table cannot say. */
air_status wrap_capture_begin(const wrap_inner *in,
                              air_capture_error_mode mode);
/* What the application does in a capture of the driver inside; UNSUPPORTED
 * where it cannot take that. */
air_status wrap_foreign_begin(const wrap_inner *in, void **out_stream);
air_status wrap_foreign_end(const wrap_inner *in, bool keep);
/* Wrappers opened from now on are around this driver, opened by the name
 * behind the colon; NULL: the driver of that name. For tests. */
void wrap_around(const air_driver *driver);
/* What the driver inside says of a list; NULL: nothing. */
const char *wrap_list_note(const wrap_inner *in, const air_list *list);
/* Whether the driver inside has but a plain kernel for the call. */
bool wrap_is_plain(const wrap_inner *in, const char *name,
                   const air_call *call);
void wrap_log(const wrap_inner *in, air_log_level level, const char *fmt, ...)
    AIR_PRINTF(3, 4);

/* Driver "fault": call number `at` from now on (1: the next one) to a function
 * that can fail does fail, in the whole process; 0: none. Memory functions
 * fail with MEMORY, others with DRIVER. */
void wrap_fault_set(long at);
/* Calls since then. */
long wrap_fault_calls(void);

#endif
