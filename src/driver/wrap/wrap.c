#include "driver/wrap/wrap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "driver/driver.h"

static const air_driver *around;

void
wrap_around(const air_driver *driver)
{
    around = driver;
}

air_status
wrap_open(const air_options *options, const air_alloc *alloc, wrap_inner *out)
{
    air_options inner = *options;
    const char *colon =
        options->driver != NULL ? strchr(options->driver, ':') : NULL;
    *out = (wrap_inner){
        .alloc = *alloc, .log = options->log, .log_user = options->log_user};
    inner.driver = colon != NULL ? colon + 1 : "cpu";
    out->driver = around != NULL ? around : driver_find(inner.driver);
    AIR_REQUIRE(out->driver != NULL, AIR_ERROR_ARGUMENT,
                "there is no driver \"%s\" to wrap", inner.driver);
    return out->driver->open(&inner, alloc, &out->device);
}

air_status
wrap_capture_begin(const wrap_inner *in, air_capture_error_mode mode)
{
    AIR_REQUIRE(in->driver->capture_begin != NULL, AIR_ERROR_UNSUPPORTED,
                "driver %s has no graphs", in->driver->name);
    return in->driver->capture_begin(in->device, mode);
}

air_status
wrap_foreign_begin(const wrap_inner *in, void **out_stream)
{
    *out_stream = NULL;
    AIR_REQUIRE(in->driver->foreign_begin != NULL, AIR_ERROR_UNSUPPORTED,
                "driver %s records nothing of the application",
                in->driver->name);
    return in->driver->foreign_begin(in->device, out_stream);
}

air_status
wrap_foreign_end(const wrap_inner *in, bool keep)
{
    AIR_REQUIRE(in->driver->foreign_end != NULL, AIR_ERROR_STATE,
                "driver %s has nothing of the application to end",
                in->driver->name);
    return in->driver->foreign_end(in->device, keep);
}

const char *
wrap_list_note(const wrap_inner *in, const air_list *list)
{
    return in->driver->list_note ? in->driver->list_note(in->device, list)
                                 : NULL;
}

bool
wrap_is_plain(const wrap_inner *in, const char *name, const air_call *call)
{
    return in->driver->is_plain && in->driver->is_plain(in->device, name, call);
}

void
wrap_log(const wrap_inner *in, air_log_level level, const char *fmt, ...)
{
    char line[256];
    va_list args;
    if (in->log == NULL)
        return;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    in->log(in->log_user, level, line);
}
