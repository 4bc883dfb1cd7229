/* dtype.c: what the dtype table says about names and sizes. */
#include <string.h>

#include "air.h"

static const struct {
    const char *text;
    size_t bytes;
} dtypes[AIR_DTYPE_COUNT] = {
#define DTYPE(id, text, bytes, ...) [AIR_##id] = {text, bytes},
#include "air_dtypes.def"
#undef DTYPE
};

const char *
air_dtype_text(air_dtype dtype)
{
    if (dtype == AIR_DTYPE_NONE || (unsigned)dtype >= AIR_DTYPE_COUNT)
        return "none";
    return dtypes[dtype].text;
}

air_dtype
air_dtype_find(const char *text)
{
    for (int i = AIR_DTYPE_NONE + 1; i < AIR_DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].text, text) == 0)
            return (air_dtype)i;
    return AIR_DTYPE_NONE;
}

size_t
air_dtype_bytes(air_dtype dtype)
{
    return (unsigned)dtype < AIR_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}
