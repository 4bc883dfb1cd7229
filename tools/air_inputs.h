/* air_inputs.h: what a user gives for the inputs of a graph. */
#ifndef AIR_INPUTS_H
#define AIR_INPUTS_H

#include "air_file.h"
#include "air_npy.h"
#include "air_values.h"

typedef struct {
    char *data;
    size_t len;
} file_text;

/* The whole file, "-": standard input. False: errno says why. */
bool file_read(const char *path, file_text *out);

typedef struct {
    size_t index; /* of the graph's inputs */
    file_text file;
    npy_array array;
    char wrong[96]; /* a message that needs numbers */
} input_array;

/* "x=FILE": the array for input x of the graph. Symbols that are sizes of x
 * take the array's. NULL, or what is wrong. */
const char *input_open(const char *given, air_graph *graph, input_array *out);
/* A weight of a program that was read from `path`. NULL, or what is wrong. */
const char *weight_open(const air_file *file, const air_file_weight *weight,
                        const char *path, const air_graph *graph,
                        input_array *out);
/* Puts the array in the place of the made-up value. */
air_status input_apply(const input_array *input, air_values *values);
void input_close(input_array *input);

#endif
