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
    char wrong[320]; /* a message that needs numbers or names */
} input_array;

/* Which option has said the size of a symbol: "--set", "s0=3". */
typedef struct {
    const char *symbol, *option, *given;
} size_source;

typedef struct {
    size_source *all;
    size_t count, room;
} size_sources;

/* One more, if the graph has the symbol. False: out of memory. */
bool sources_add(size_sources *sources, const air_graph *graph,
                 const char *symbol, const char *option, const char *given);
void sources_free(size_sources *sources);
/* "x=FILE": the array for input x of the graph. Symbols that are sizes of x
 * take the array's, but for those that an option has said. NULL, or what is
 * wrong. */
const char *input_open(const char *given, air_graph *graph,
                       size_sources *sources, input_array *out);
/* A weight of a program that was read from `path`; anywhere: its file may be
 * in another folder than the program's. NULL, or what is wrong. */
const char *weight_open(const air_file *file, const air_file_weight *weight,
                        const char *path, bool anywhere, const air_graph *graph,
                        input_array *out);
/* Puts the array in the place of the made-up value. */
air_status input_apply(const input_array *input, air_values *values);
void input_close(input_array *input);

#endif
