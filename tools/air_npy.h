/* air_npy.h: arrays in NumPy's file format, versions 1 to 3
 * (numpy.lib.format in NumPy's manual). */
#ifndef AIR_NPY_H
#define AIR_NPY_H

#include <stdio.h>

#include "air.h"

typedef struct {
    air_dtype dtype;
    int rank;
    int64_t dims[AIR_MAX_RANK], strides[AIR_MAX_RANK]; /* in elements */
    const void *data; /* inside the file's bytes, of any alignment */
    size_t bytes;
} npy_array;

/* What the bytes of a file hold; NULL, or what is wrong with them. bf16 is
 * '|V2', the two bytes of each element, as NumPy writes what it does not know.
 */
const char *npy_parse(const void *bytes, size_t len, npy_array *out);

/* Writes a tensor dense, in row-major order, or an integer as an i64 of rank 0.
 * False: errno says why. */
bool npy_write(FILE *out, const air_value *value);

#endif
