/* capture_case.h: a graph, its program and a capture of it, for tests; and a
 * device that captures (around "ref"), which counts what it is asked for. */
#ifndef CAPTURE_CASE_H
#define CAPTURE_CASE_H

#include "air.h"
#include "test.h"

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_capture *capture;
    air_capture_call call;
} capture_case;

/* driver: a driver's name, or "double". */
bool capture_case_open(capture_case *t, const char *driver, const char *text,
                       const air_capture_options *options);
void capture_case_close(capture_case *t);
/* Another capture of the same program; the first one is gone. */
bool capture_case_again(capture_case *t, const air_capture_options *options);
/* Runs; true if it was `how` and gave a result, which the caller releases. */
bool capture_case_run(capture_case *t, size_t nin, const air_value *inputs,
                      size_t nout, air_value *outs, air_call_class how);

/* What the double was asked for since capture_double_reset. */
typedef struct {
    int begins, ends, launches, patches, lists; /* lists: run plainly */
    int foreign;  /* times that the application was recorded, and kept */
    int alive;    /* graphs */
    int fail_end; /* end number n fails: 1 is the next */
    int fail_at;  /* call number n of any kind fails */
    bool unsupported;
} capture_double_calls;
extern capture_double_calls capture_double;
/* The context, made with driver "ref", gets the double. */
void capture_double_install(air_context *ctx);
const struct air_driver *capture_double_driver(void);
/* What the application gives to a stream of the double: run(in, out) over n
 * numbers, at each launch of the graph that has it. */
typedef struct {
    void (*run)(const float *in, float *out, int64_t n);
    const float *in;
    float *out;
    int64_t n;
} capture_double_work;
void capture_double_give(void *stream, capture_double_work work);

#define TENSOR(data, ...)                                                \
    air_value_tensor((data), AIR_F32,                                    \
                     sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                     (const int64_t[]){__VA_ARGS__})

#endif
