/* fuzz_npy.c: NumPy's file format. What is taken for an array can be read to
 * its last element and written again. */
#include <string.h>

#include "air_npy.h"
#include "air_values.h"
#include "fuzz.h"

const char *const fuzz_words[] = {
    "{'descr': ", "'<f4'",         "'|V2'", "'<i8'", "'fortran_order': ",
    "True",       "False",         ", ",    "}",     "'shape': ",
    "(3, 4)",     "(0,)",          "()",    "(",     "9223372036854775807",
    "4294967296", "\x93NUMPY\x01", "\xff",  NULL,
};

static void
write_again(const npy_array *array)
{
    air_value value = {.data = (void *)(uintptr_t)array->data,
                       .dtype = array->dtype,
                       .rank = array->rank,
                       .dims = array->dims,
                       .strides = array->strides};
    FILE *out = fopen("/dev/null", "wb");
    FUZZ_REQUIRE(out && npy_write(out, &value));
    fclose(out);
}

int
fuzz_one(const uint8_t *data, size_t size)
{
    npy_array array;
    const char *wrong = npy_parse(data, size, &array);
    if (wrong) {
        FUZZ_REQUIRE(wrong[0] != '\0');
        return 0;
    }
    FUZZ_REQUIRE(air_dtype_bytes(array.dtype) > 0);
    FUZZ_REQUIRE((const uint8_t *)array.data + array.bytes <= data + size);
    if (array.bytes > 0 && array.bytes < 4096)
        write_again(&array);
    return 0;
}
