#include "driver/driver.h"

#include <string.h>

static const struct {
    const air_driver *driver;
    const char *doc;
} rows[] = {
#define DRIVER(name, doc) {&air_driver_##name, doc},
#include "driver/drivers.def"
#undef DRIVER
};

const air_driver *
driver_at(size_t i, const char **out_doc)
{
    if (i >= sizeof rows / sizeof rows[0])
        return NULL;
    *out_doc = rows[i].doc;
    return rows[i].driver;
}

const air_driver *
driver_find(const char *name)
{
    size_t len = strcspn(name, ":"); /* behind it stands what is wrapped */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].driver->name) == len &&
            memcmp(rows[i].driver->name, name, len) == 0)
            return rows[i].driver;
    return NULL;
}
