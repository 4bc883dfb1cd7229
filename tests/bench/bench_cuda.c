/* bench_cuda.c: regions on a GPU beside a plain copy: `bench_cuda [GRAPH ...]`.
 * Bytes are those of inputs and results, once each; median of 7 times 20 runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "exec/exec.h"

enum { MOST = 8, RUNS = 20, TIMES = 7 };

static const struct {
    const char *name, *text;
} rows[] = {
    {"copy bf16", "graph f(%x: bf16[65536, 4096]) {\n"
                  " %1 = neg(%x)\n return %1\n}\n"},
    {"copy f32", "graph f(%x: f32[32768, 4096]) {\n"
                 " %1 = neg(%x)\n return %1\n}\n"},
    {"bias gelu half", "graph f(%x: bf16[65536, 4096], %b: bf16[4096]) {\n"
                       " %1 = add.Tensor(%x, %b)\n %2 = gelu(%1)\n"
                       " %3 = mul.Tensor(%2, 0.5)\n return %3\n}\n"},
    {"silu mul", "graph f(%x: bf16[32768, 4096], %y: bf16[32768, 4096]) {\n"
                 " %1 = silu(%x)\n %2 = mul.Tensor(%1, %y)\n return %2\n}\n"},
    {"to f32", "graph f(%x: bf16[65536, 4096]) {\n"
               " %1 = _to_copy(%x, dtype=f32)\n return %1\n}\n"},
    {"u8 to f32", "graph f(%x: u8[65536, 4096]) {\n"
                  " %1 = _to_copy(%x, dtype=f32)\n return %1\n}\n"},
    {"softmax 4096", "graph f(%x: bf16[65536, 4096]) {\n"
                     " %1 = _softmax(%x, dim=-1, half_to_float=false)\n"
                     " return %1\n}\n"},
    {"softmax 128", "graph f(%x: f32[1048576, 128]) {\n"
                    " %1 = _softmax(%x, dim=-1, half_to_float=false)\n"
                    " return %1\n}\n"},
    {"softmax 32768", "graph f(%x: f32[4096, 32768]) {\n"
                      " %1 = _softmax(%x, dim=-1, half_to_float=false)\n"
                      " return %1\n}\n"},
    {"softmax 100000", "graph f(%x: f32[1024, 100000]) {\n"
                       " %1 = _softmax(%x, dim=-1, half_to_float=false)\n"
                       " return %1\n}\n"},
    {"layer norm 1024", "graph f(%x: bf16[131072, 1024], %w: bf16[1024], "
                        "%b: bf16[1024]) {\n %y, %m, %v = "
                        "native_layer_norm(%x, [1024], %w, %b, 1e-5)\n"
                        " return %y\n}\n"},
    {"layer norm 8192", "graph f(%x: bf16[16384, 8192], %w: bf16[8192], "
                        "%b: bf16[8192]) {\n %y, %m, %v = "
                        "native_layer_norm(%x, [8192], %w, %b, 1e-5)\n"
                        " return %y\n}\n"},
    {"sum rows", "graph f(%x: f32[65536, 4096]) {\n"
                 " %1 = sum.dim_IntList(%x, dim=[1])\n return %1\n}\n"},
    {"sum short rows", "graph f(%x: f32[8388608, 32]) {\n"
                       " %1 = sum.dim_IntList(%x, dim=[1])\n return %1\n}\n"},
    {"sum all", "graph f(%x: f32[65536, 4096]) {\n"
                " %1 = sum(%x)\n return %1\n}\n"},
    {"sum columns", "graph f(%x: f32[65536, 4096]) {\n"
                    " %1 = sum.dim_IntList(%x, dim=[0])\n return %1\n}\n"},
    {"sum 768 columns", "graph f(%x: bf16[524288, 768]) {\n"
                        " %1 = sum.dim_IntList(%x, dim=[0])\n return %1\n}\n"},
    {"transpose", "graph f(%x: f32[16384, 8192]) {\n"
                  " %1 = permute(%x, dims=[1, 0])\n %2 = neg(%1)\n"
                  " %3 = clone(%2, memory_format=0)\n return %3\n}\n"},
    {"transpose bf16", "graph f(%x: bf16[16384, 8192]) {\n"
                       " %1 = permute(%x, dims=[1, 0])\n %2 = neg(%1)\n"
                       " %3 = clone(%2, memory_format=0)\n return %3\n}\n"},
    {"small", "graph f(%x: bf16[1, 2048], %y: bf16[1, 2048]) {\n"
              " %1 = add.Tensor(%x, %y)\n return %1\n}\n"},
    {"small norm", "graph f(%x: bf16[1, 2048], %w: bf16[2048], %b: bf16[2048])"
                   " {\n %y, %m, %v = native_layer_norm(%x, [2048], %w, %b, "
                   "1e-5)\n return %y\n}\n"},
};

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
    air_value inputs[MOST], outs[MOST];
    int64_t dims[MOST][AIR_MAX_RANK];
    size_t bytes[MOST], ninputs;
} bench;

static size_t
value_bytes(const air_value *v)
{
    size_t n = air_dtype_bytes(v->dtype);
    for (int i = 0; i < v->rank; i++)
        n *= (size_t)v->dims[i];
    return n;
}

/* Values of about 1 in any dtype. */
static void
fill(char *host, size_t bytes, air_dtype dtype)
{
    for (size_t i = 0; i < bytes; i++)
        host[i] = (char)(rand() & 127);
    for (size_t i = 1; i < bytes && dtype == AIR_BF16; i += 2)
        host[i] = (char)(0x3e + (rand() & 1) + (rand() & 1) * 128);
    for (size_t i = 3; i < bytes && dtype == AIR_F32; i += 4)
        host[i] = (char)(0x3e + (rand() & 1) + (rand() & 1) * 128);
}

/* A block of random bytes, again and again. */
static air_status
make_input(bench *b, size_t i, const char *host, size_t room)
{
    air_value *v = &b->inputs[i];
    const ir_value *from = ir_val(b->graph, b->graph->inputs.data[i].value);
    *v = (air_value){.dtype = (air_dtype)from->dtype, .rank = from->rank};
    for (int k = 0; k < v->rank; k++)
        if (!ir_dim_is_const(b->graph, from->dims[k], &b->dims[i][k]))
            return AIR_ERROR_ARGUMENT;
    v->dims = b->dims[i];
    b->bytes[i] = value_bytes(v);
    AIR_TRY(b->ctx->driver->alloc(b->ctx->device, b->bytes[i], &v->data));
    for (size_t at = 0; at < b->bytes[i]; at += room)
        AIR_TRY(b->ctx->driver->copy(b->ctx->device, (char *)v->data + at, host,
                                     b->bytes[i] - at < room ? b->bytes[i] - at
                                                             : room));
    return AIR_OK;
}

static air_status
run(bench *b, size_t *out_bytes)
{
    size_t bytes = 0;
    AIR_TRY(air_program_run(b->program, NULL, b->ninputs, b->inputs,
                            b->graph->results.count, b->outs));
    for (size_t i = 0; i < b->graph->results.count; i++) {
        bytes += value_bytes(&b->outs[i]);
        air_value_release(&b->outs[i]);
    }
    *out_bytes = bytes;
    return AIR_OK;
}

static air_status
wait(bench *b)
{
    char byte;
    return b->ctx->driver->copy(b->ctx->device, &byte, b->inputs[0].data, 1);
}

static int
compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static air_status
measure(bench *b, const char *name)
{
    double times[TIMES], begin = base_now();
    size_t bytes = 0, out_bytes;
    AIR_TRY(run(b, &out_bytes));
    AIR_TRY(wait(b));
    double compile = base_now() - begin;
    for (int t = 0; t < TIMES; t++) {
        begin = base_now();
        for (int i = 0; i < RUNS; i++)
            AIR_TRY(run(b, &out_bytes));
        AIR_TRY(wait(b));
        times[t] = (base_now() - begin) / RUNS;
    }
    for (size_t i = 0; i < b->ninputs; i++)
        bytes += b->bytes[i];
    bytes += out_bytes;
    qsort(times, TIMES, sizeof *times, compare_times);
    printf("%-18s %10.1f us %8.1f GB/s %8.1f MB   first %.0f ms\n", name,
           times[TIMES / 2] * 1e6, (double)bytes / times[TIMES / 2] * 1e-9,
           (double)bytes * 1e-6, compile * 1e3);
    return AIR_OK;
}

static air_status
bench_row(air_context *ctx, const char *name, const char *text)
{
    enum { ROOM = 16 * 1024 * 1024 + 6 };
    bench b = {.ctx = ctx};
    AIR_TRY(air_graph_parse(ctx, text, strlen(text), &b.graph));
    b.ninputs = b.graph->inputs.count;
    AIR_TRY(air_program_create(ctx, b.graph, NULL, &b.program));
    char *host = malloc(ROOM);
    air_status status = AIR_OK;
    for (size_t i = 0; i < b.ninputs && status == AIR_OK; i++) {
        fill(host, ROOM,
             (air_dtype)ir_val(b.graph, b.graph->inputs.data[i].value)->dtype);
        status = make_input(&b, i, host, ROOM);
    }
    free(host);
    if (status == AIR_OK)
        status = measure(&b, name);
    for (size_t i = 0; i < b.ninputs; i++)
        if (b.inputs[i].data)
            ctx->driver->free(ctx->device, b.inputs[i].data, b.bytes[i]);
    air_program_destroy(b.program);
    air_graph_destroy(b.graph);
    return status;
}

int
main(int argc, char **argv)
{
    air_context *ctx;
    int bad = air_context_create(&(air_options){.driver = "cuda"}, &ctx);
    for (size_t i = 0; !bad && i < sizeof rows / sizeof rows[0]; i++) {
        bool chosen = argc < 2;
        for (int k = 1; k < argc; k++)
            chosen |= strstr(rows[i].name, argv[k]) != NULL;
        if (chosen && bench_row(ctx, rows[i].name, rows[i].text) != AIR_OK)
            printf("%-18s %s\n", rows[i].name, air_last_error()->message);
    }
    if (bad)
        printf("%s\n", air_last_error()->message);
    else
        air_context_destroy(ctx);
    return bad;
}
