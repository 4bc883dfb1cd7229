/* driver.h: the drivers of this build (drivers.def). */
#ifndef DRIVER_DRIVER_H
#define DRIVER_DRIVER_H

#include "air_driver.h"

#define DRIVER(name, doc) extern const air_driver air_driver_##name;
#include "driver/drivers.def"
#undef DRIVER

/* By name ("cpu", "fault:cpu"); NULL: none of that name. */
const air_driver *driver_find(const char *name);

#endif
