#include "air_device.h"

#include <stdlib.h>

/* From the first element to the last. */
static size_t
span(const air_value *v)
{
    int64_t count = value_count(v);
    return count == 0 ? 0
                      : (size_t)(value_offset(v, count - 1) + 1) *
                            air_dtype_bytes(v->dtype);
}

static air_status
move(air_context *ctx, air_value *v, size_t *out_bytes)
{
    void *room;
    const size_t bytes = span(v);
    air_status status = air_memory_alloc(ctx, bytes, &room);
    if (status != AIR_OK)
        return status;
    status = air_memory_copy(ctx, room, v->data, bytes);
    free(v->data);
    v->data = room;
    *out_bytes = bytes ? bytes : 1;
    return status;
}

air_status
device_take(air_context *ctx, air_values *inputs, air_device_inputs *out)
{
    air_status status = AIR_OK;
    out->bytes = calloc(inputs->count + 1, sizeof *out->bytes);
    if (!out->bytes)
        return AIR_ERROR_MEMORY;
    for (size_t i = 0; status == AIR_OK && i < inputs->count; i++)
        if (!inputs->values[i].is_int)
            status = move(ctx, &inputs->values[i], &out->bytes[i]);
    return status;
}

void
device_drop(air_context *ctx, air_values *inputs, air_device_inputs *in)
{
    for (size_t i = 0; in->bytes && i < inputs->count; i++)
        if (in->bytes[i] > 0) {
            air_memory_free(ctx, inputs->values[i].data, in->bytes[i]);
            inputs->values[i].data = NULL;
        }
    free(in->bytes);
    *in = (air_device_inputs){0};
}

air_status
device_fetch(air_context *ctx, const air_value *result, air_value *out)
{
    const size_t bytes = result->is_int ? 0 : span(result);
    *out = *result;
    out->block = NULL;
    out->data = NULL;
    if (result->is_int)
        return AIR_OK;
    out->data = malloc(bytes ? bytes : 1);
    if (!out->data)
        return AIR_ERROR_MEMORY;
    return air_memory_copy(ctx, out->data, result->data, bytes);
}

air_status
device_wait(air_context *ctx, const air_value *result)
{
    char byte;
    if (result->is_int || value_count(result) == 0)
        return AIR_OK;
    return air_memory_copy(ctx, &byte, result->data, 1);
}
