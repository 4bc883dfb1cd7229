/* golden.c: what PyTorch eager computed, on every driver and instruction set.
 * `golden FOLDER` replays FOLDER's .txt files, which tools/gen_golden.py
 * describes and writes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "air.h"
#include "driver/ref/element.h"

enum { INPUTS = 4, LINE = 1 << 14 };

/* f32 bodies round a few times where eager's kernels may round otherwise; a
 * wrong formula is further off than this. */
static const double relative = 4e-6, absolute = 1e-6;

typedef struct {
    char op[96];
    char *graph;
    air_value inputs[INPUTS];
    size_t ninputs;
    unsigned char *want;
    size_t want_bytes;
} golden_case;

typedef struct {
    const char *name;
    air_options options;
    air_context *context;
} target;

static target targets[] = {
    {"ref", {.driver = "ref"}, NULL},
    {"scalar", {.driver = "cpu", .isa = "scalar", .threads = 1}, NULL},
    {"avx2 tiles",
     {.driver = "cpu", .isa = "avx2", .threads = 1, .no_emitter = true},
     NULL},
    {"avx2", {.driver = "cpu", .isa = "avx2", .threads = 1}, NULL},
    {"avx512 tiles",
     {.driver = "cpu", .isa = "avx512", .threads = 1, .no_emitter = true},
     NULL},
    {"avx512", {.driver = "cpu", .isa = "avx512", .threads = 1}, NULL},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static long passed, failed;

/* ---- reading ---- */

static unsigned char *
parse_hex(const char *text, size_t *out_bytes)
{
    size_t n = strspn(text, "0123456789abcdef") / 2;
    unsigned char *bytes = malloc(n + 1);
    for (size_t i = 0; bytes != NULL && i < n; i++) {
        unsigned v = 0;
        if (sscanf(text + 2 * i, "%2x", &v) == 1)
            bytes[i] = (unsigned char)v;
    }
    *out_bytes = n;
    return bytes;
}

/* Up to the empty line; false at the end of the file. */
static bool
read_case(FILE *in, char *line, golden_case *c)
{
    size_t bytes;
    *c = (golden_case){0};
    while (fgets(line, LINE, in) != NULL && line[0] != '\n') {
        line[strcspn(line, "\n")] = '\0';
        if (c->op[0] == '\0')
            (void)snprintf(c->op, sizeof c->op, "%.90s", line);
        else if (strncmp(line, "graph ", 6) == 0)
            c->graph = strdup(line);
        else if (strncmp(line, "in ", 3) == 0 && c->ninputs < INPUTS)
            c->inputs[c->ninputs++].data = parse_hex(line + 3, &bytes);
        else if (strncmp(line, "out ", 4) == 0)
            c->want = parse_hex(line + 4, &c->want_bytes);
    }
    return c->graph != NULL && c->want != NULL;
}

static void
free_case(golden_case *c)
{
    for (size_t i = 0; i < c->ninputs; i++)
        free(c->inputs[i].data);
    free(c->graph);
    free(c->want);
}

/* ---- running ---- */

static bool
near(air_dtype dtype, const void *got, const void *want)
{
    if (!ref_is_float((int)dtype))
        return ref_get_int((int)dtype, got) == ref_get_int((int)dtype, want);
    double a = ref_get((int)dtype, got), b = ref_get((int)dtype, want);
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b))
        return (isnan(a) && isnan(b)) || a == b;
    if (b == 0 && a == 0)
        return signbit(a) == signbit(b);
    return fabs(a - b) <= absolute + relative * fabs(b);
}

static bool
same(const golden_case *c, const air_value *out, char *why, size_t room)
{
    size_t size = ref_bytes((int)out->dtype), count = 1;
    for (int i = 0; i < out->rank; i++)
        count *= (size_t)out->dims[i];
    if (count * size != c->want_bytes) {
        (void)snprintf(why, room, "%zu bytes, %zu expected", count * size,
                       c->want_bytes);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const char *got = (const char *)out->data + i * size;
        const unsigned char *want = c->want + i * size;
        if (near(out->dtype, got, want))
            continue;
        (void)snprintf(why, room, "element %zu: %.9g, eager has %.9g", i,
                       ref_get((int)out->dtype, got),
                       ref_get((int)out->dtype, want));
        return false;
    }
    return true;
}

/* The inputs' dtypes and sizes are those of the graph. */
static air_status
describe_inputs(const air_graph *g, golden_case *c,
                int64_t (*sizes)[AIR_MAX_RANK])
{
    air_input input;
    for (size_t i = 0; i < c->ninputs; i++) {
        if (!air_graph_get_input(g, i, &input))
            return AIR_ERROR_ARGUMENT;
        for (int k = 0; k < input.type.rank; k++) {
            air_status status =
                air_dim_hint(g, input.type.dims[k], &sizes[i][k]);
            if (status != AIR_OK)
                return status;
        }
        c->inputs[i] =
            air_value_tensor(c->inputs[i].data, (air_dtype)input.type.dtype,
                             input.type.rank, sizes[i]);
    }
    return AIR_OK;
}

static void
run_case(const target *t, golden_case *c)
{
    int64_t sizes[INPUTS][AIR_MAX_RANK];
    air_graph *graph = NULL;
    air_program *program = NULL;
    air_value out = {0};
    char why[160] = "";
    air_status status =
        air_graph_parse(t->context, c->graph, strlen(c->graph), &graph);
    if (status == AIR_OK)
        status = describe_inputs(graph, c, sizes);
    if (status == AIR_OK)
        status = air_program_create(t->context, graph, NULL, &program);
    if (status == AIR_OK)
        status = air_program_run(program, NULL, c->ninputs, c->inputs, 1, &out);
    if (status != AIR_OK)
        (void)snprintf(why, sizeof why, "%.150s", air_last_error()->message);
    if (status == AIR_OK && same(c, &out, why, sizeof why)) {
        passed++;
    } else {
        failed++;
        printf("%s on %s: %s\n    %s\n", c->op, t->name, why, c->graph);
    }
    air_value_release(&out);
    air_program_destroy(program);
    air_graph_destroy(graph);
}

static void
run_file(const char *folder, const char *name)
{
    static char line[LINE];
    char path[1024];
    golden_case c;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        printf("%s: cannot be read\n", path);
        failed++;
        return;
    }
    while (read_case(in, line, &c)) {
        for (int i = 0; i < TARGETS; i++)
            if (targets[i].context != NULL)
                run_case(&targets[i], &c);
        free_case(&c);
    }
    free_case(&c);
    (void)fclose(in);
}

int
main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: golden FOLDER\n");
        return 2;
    }
    for (int i = 0; i < TARGETS; i++) {
        air_status status =
            air_context_create(&targets[i].options, &targets[i].context);
        if (status != AIR_OK) /* an instruction set that is not here */
            printf("without %s: %s\n", targets[i].name,
                   air_last_error()->message);
    }
    run_file(argv[1], "pointwise.txt");
    run_file(argv[1], "reduce.txt");
    for (int i = 0; i < TARGETS; i++)
        air_context_destroy(targets[i].context);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
