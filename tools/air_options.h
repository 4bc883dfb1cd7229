/* air_options.h: the command line of `air`. */
#ifndef AIR_OPTIONS_H
#define AIR_OPTIONS_H

#include "air.h"

enum { EXIT_USAGE = 2, MAX_SETS = 32, MAX_INPUTS = 32, DEFAULT_SIZE = 4 };

typedef struct {
    const char *command, *file;
    air_options engine;
    air_gpu gpu;
    char kernels[4096]; /* folder of compiled ones */
    air_compile_options compile;
    double seconds;
    bool compare, steps, cuda, explain, as_read, stat, help, version;
    bool anywhere; /* weights may be in files of any folder */
    int ge;        /* air_ge_form, -1: not asked for */
    const char *after;
    const char *sets[MAX_SETS]; /* "s0=3" */
    int nsets;
    const char *arrays[MAX_INPUTS]; /* "x=FILE.npy" */
    int narrays;
    const char *output; /* folder of the results */
} options;

/* Prints "air: what: detail" (detail may be NULL); the exit code. */
int complain(const char *what, const char *detail);
/* The same for a command line that cannot be. */
int complain_usage(const char *what, const char *detail);
bool parse_int(const char *text, long long *out);
/* 0, or the exit code after a message. Texts are argv's. */
int parse_options(int argc, char **argv, options *o);

#endif
