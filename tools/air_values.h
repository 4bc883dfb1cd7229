/* air_values.h: made-up inputs, and what is to be said of results. */
#ifndef AIR_VALUES_H
#define AIR_VALUES_H

#include <stdio.h>

#include "air.h"

typedef struct {
    size_t count;
    air_value *values; /* data, dims and strides owned */
    const char **names;
} air_values;

/* Inputs of the sizes that the hints of the graph give: floats are multiples
 * of 1/128 in [-1, 1], exact in every dtype; ints 0 .. 3. The same seed gives
 * the same numbers on every machine. */
air_status values_make(const air_graph *graph, uint64_t seed, air_values *out);
const char *values_problem(void); /* why not, as text */
void values_free(air_values *values);

/* Element number i in row-major order. */
double value_get(const air_value *value, int64_t i);
int64_t value_count(const air_value *value);
/* Where it lies, in elements from data. */
int64_t value_offset(const air_value *value, int64_t i);
/* "f32[2, 3]  sum 1.25  1 2 3 ..." */
void value_print(FILE *out, const char *name, const air_value *value);

typedef struct {
    double largest; /* |got - want| / (1 + |want|) */
    int64_t at;     /* the first element that is wrong, -1: none */
    double got, want;
} value_difference;
/* Compares with what a dtype allows: 1e-5 for f32, 1e-2 for bf16 ... */
value_difference value_compare(const air_value *got, const air_value *want);

#endif
