/* fault.h: the failure of a run in whose data a kernel found a fault. */
#ifndef DRIVER_FAULT_H
#define DRIVER_FAULT_H

#include "air.h"
#include "air_kernel.h"

/* INDEX for an index, else ARGUMENT. label: of the step, may be NULL. */
air_status driver_fail(const air_fault *fault, const char *label);

#endif
