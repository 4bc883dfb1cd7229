#include "device.h"

#include <stdlib.h>
#include <string.h>

/* The bytes from the first to the last element. */
static char *
span(const air_value *v, size_t *out_bytes)
{
    int64_t low = 0, high = 0, dense = 1;
    const int64_t size = (int64_t)air_dtype_bytes(v->dtype);
    *out_bytes = 0;
    for (int i = v->rank - 1; i >= 0; i--) {
        int64_t stride = v->strides != NULL ? v->strides[i] : dense;
        int64_t reach = (v->dims[i] - 1) * stride;
        if (v->dims[i] == 0)
            return v->data;
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
        dense *= v->dims[i];
    }
    *out_bytes = (size_t)((high - low + 1) * size);
    return (char *)v->data + low * size;
}

air_status
device_lend(air_context *ctx, const air_value *v, device_loan *loan,
            air_value *out)
{
    *out = *v;
    *loan = (device_loan){0};
    if (!ctx->target.apart)
        return AIR_OK;
    loan->host = span(v, &loan->bytes);
    AIR_TRY(ctx->driver->alloc(ctx->device, loan->bytes, &loan->device));
    out->data = (char *)loan->device + ((char *)v->data - loan->host);
    if (loan->bytes == 0)
        return AIR_OK;
    return ctx->driver->copy(ctx->device, loan->device, loan->host,
                             loan->bytes);
}

air_status
device_return(air_context *ctx, device_loan *loan)
{
    air_status status = AIR_OK;
    if (loan->device == NULL)
        return AIR_OK;
    if (loan->bytes > 0)
        status = ctx->driver->copy(ctx->device, loan->host, loan->device,
                                   loan->bytes);
    ctx->driver->free(ctx->device, loan->device, loan->bytes);
    loan->device = NULL;
    return status;
}

air_status
device_read(air_context *ctx, const air_value *v, air_value *out,
            int64_t *strides)
{
    size_t bytes;
    *out = *v;
    out->block = NULL;
    if (!ctx->target.apart)
        return AIR_OK;
    char *low = span(v, &bytes);
    char *host = calloc(bytes + 1, 1);
    out->block = host;
    out->data = host + ((char *)v->data - low);
    if (v->strides != NULL) {
        memcpy(strides, v->strides, (size_t)v->rank * sizeof *strides);
        out->strides = strides;
    }
    return bytes > 0 ? ctx->driver->copy(ctx->device, host, low, bytes)
                     : AIR_OK;
}
