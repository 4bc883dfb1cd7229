/* embed.c: the engine in a C program. Parses a graph, compiles it once, and
 * runs it on two sizes of the symbol s0.
 *
 *     cc embed.c -lair -o embed && ./embed
 */
#include <air.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    "graph layer(%x: f32[s0, 4], %w: f32[4, 3], %b: f32[3]) {\n"
    "  %1: f32[s0, 3] = mm(%x, %w)\n"
    "  %2: f32[s0, 3] = add.Tensor(%1, %b)\n"
    "  %3: f32[s0, 3] = relu(%2)\n"
    "  return %3\n"
    "}\n";

static float weight[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};
static float bias[3] = {0, -5, 100};

static air_status
run(air_program *program, int64_t rows, float *x)
{
    air_value in[] = {
        air_value_tensor(x, AIR_F32, 2, (int64_t[]){rows, 4}),
        air_value_tensor(weight, AIR_F32, 2, (int64_t[]){4, 3}),
        air_value_tensor(bias, AIR_F32, 1, (int64_t[]){3}),
    };
    air_value out;
    air_status status = air_program_run(program, NULL, 3, in, 1, &out);
    if (status != AIR_OK)
        return status;
    const float *y = out.data;
    for (int64_t i = 0; i < out.dims[0]; i++)
        printf("%g %g %g\n", (double)y[3 * i], (double)y[3 * i + 1],
               (double)y[3 * i + 2]);
    air_value_release(&out);
    return AIR_OK;
}

int
main(void)
{
    air_context *context = NULL;
    air_graph *graph = NULL;
    air_program *program = NULL;
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int failed = air_context_create(NULL, &context) ||
                 air_graph_parse(context, text, strlen(text), &graph) ||
                 air_program_create(context, graph, NULL, &program) ||
                 run(program, 2, x) || run(program, 1, x);
    if (failed)
        fprintf(stderr, "embed: %s\n", air_last_error()->message);
    air_program_destroy(program);
    air_graph_destroy(graph);
    air_context_destroy(context);
    return failed;
}
