#include "driver/driver.h"

#include <string.h>

static const air_driver *const rows[] = {
#define DRIVER(name, doc) &air_driver_##name,
#include "driver/drivers.def"
#undef DRIVER
};

const air_driver *
driver_find(const char *name)
{
    size_t len = strcspn(name, ":"); /* behind it stands what is wrapped */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i]->name) == len &&
            memcmp(rows[i]->name, name, len) == 0)
            return rows[i];
    return NULL;
}
