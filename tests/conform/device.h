/* device.h: values in memory that the host cannot touch. */
#ifndef CONFORM_DEVICE_H
#define CONFORM_DEVICE_H

#include "exec/exec.h"

/* All bytes that a value of the host reaches, and their place on the device. */
typedef struct {
    char *host;
    void *device;
    size_t bytes;
} device_loan;

/* *out: `v`, with a copy of its memory on the device where the context has
 * memory of its own, else v itself. */
air_status device_lend(air_context *ctx, const air_value *v, device_loan *loan,
                       air_value *out);
/* Copies back and frees. */
air_status device_return(air_context *ctx, device_loan *loan);
/* A copy on the host of a result. Without memory of its
 * own: v itself. free(out->block). */
air_status device_read(air_context *ctx, const air_value *v, air_value *out,
                       int64_t *strides);

#endif
