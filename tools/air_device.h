/* air_device.h: inputs and results of a run in memory of the device. */
#ifndef AIR_DEVICE_H
#define AIR_DEVICE_H

#include "air_values.h"

typedef struct {
    size_t *bytes; /* by input; 0: none */
} air_device_inputs;

/* Moves the inputs' data to the device: the host's is gone, so that there is
 * never more than one of them in both. */
air_status device_take(air_context *ctx, air_values *inputs,
                       air_device_inputs *out);
void device_drop(air_context *ctx, air_values *inputs, air_device_inputs *in);
/* A result with its data in the host's memory; its sizes are the result's, and
 * live as long. Its data is the caller's: free. */
air_status device_fetch(air_context *ctx, const air_value *result,
                        air_value *out);
/* Until the device is done with the run that left the result. */
air_status device_wait(air_context *ctx, const air_value *result);

#endif
