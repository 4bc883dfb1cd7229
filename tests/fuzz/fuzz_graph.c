/* fuzz_graph.c: random graphs, cpu with all passes against ref with the fewest,
 * so that a wrong pass or lowering is seen. The bytes choose operators and
 * operands; a choice that does not fit is skipped. Only operators that do not
 * amplify rounding are used, so that one tolerance serves. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "air.h"
#include "air_values.h"
#include "fuzz.h"

const char *const fuzz_words[] = {NULL};

enum { MAX_VALUES = 24, INPUTS = 4, RESULTS = 3 };

typedef struct {
    const uint8_t *data;
    size_t left;
} bytes;

typedef struct {
    air_graph *g;
    air_ref values[MAX_VALUES];
    size_t count;
} builder;

static unsigned
next_byte(bytes *b)
{
    if (b->left == 0)
        return 0;
    b->left--;
    return *b->data++;
}

static air_attr
attr_value(air_ref ref)
{
    return (air_attr){.kind = AIR_ATTR_VALUE, .value = ref};
}

static air_attr
attr_int(air_graph *g, int64_t n)
{
    air_attr attr = {.kind = AIR_ATTR_INT};
    FUZZ_REQUIRE(air_dim_const(g, n, &attr.dim) == AIR_OK);
    return attr;
}

static air_ref
choose(const builder *b, bytes *in)
{
    return b->values[next_byte(in) % b->count];
}

static void
add(builder *b, const char *op, size_t nattrs, const air_attr *attrs)
{
    if (b->count < MAX_VALUES &&
        air_graph_add_node(b->g, op, nattrs, attrs, NULL, 1,
                           &b->values[b->count]) == AIR_OK)
        b->count++;
}

/* ---- one kind of node each ---- */

static void
add_unary(builder *b, bytes *in)
{
    static const char *const ops[] = {"relu", "neg",     "abs",
                                      "tanh", "sigmoid", "atan"};
    unsigned op = next_byte(in) % (sizeof ops / sizeof *ops);
    air_attr attr = attr_value(choose(b, in));
    add(b, ops[op], 1, &attr);
}

static void
add_binary(builder *b, bytes *in)
{
    static const char *const ops[] = {"add.Tensor", "sub.Tensor", "mul.Tensor",
                                      "maximum", "minimum"};
    unsigned op = next_byte(in) % (sizeof ops / sizeof *ops);
    air_attr attrs[] = {attr_value(choose(b, in)), attr_value(choose(b, in))};
    add(b, ops[op], 2, attrs);
}

static void
add_reduce(builder *b, bytes *in)
{
    static const char *const ops[] = {"sum.dim_IntList", "mean.dim", "amax",
                                      "amin"};
    unsigned op = next_byte(in) % (sizeof ops / sizeof *ops);
    air_attr axis = attr_int(b->g, (int64_t)(next_byte(in) % 4) - 2);
    air_attr attrs[] = {
        attr_value(choose(b, in)),
        {.kind = AIR_ATTR_INTS, .count = 1, .dims = &axis.dim},
        {.kind = AIR_ATTR_BOOL, .b = next_byte(in) % 2 != 0},
    };
    add(b, ops[op], 3, attrs);
}

static void
add_softmax(builder *b, bytes *in)
{
    air_attr attrs[] = {
        attr_value(choose(b, in)),
        attr_int(b->g, (int64_t)(next_byte(in) % 2) - 1),
        {.kind = AIR_ATTR_BOOL, .b = false},
    };
    add(b, "_softmax", 3, attrs);
}

static void
add_product(builder *b, bytes *in)
{
    air_attr attrs[] = {attr_value(choose(b, in)), attr_value(choose(b, in))};
    add(b, "mm", 2, attrs);
}

static void
add_view(builder *b, bytes *in)
{
    unsigned kind = next_byte(in) % 3;
    air_attr value = attr_value(choose(b, in));
    air_attr slice[] = {value, attr_int(b->g, 1), attr_int(b->g, 1),
                        attr_int(b->g, 5), attr_int(b->g, 2)};
    air_attr axis[] = {value, attr_int(b->g, next_byte(in) % 3)};
    if (kind == 0)
        add(b, "t", 1, &value);
    else if (kind == 1)
        add(b, "slice.Tensor", 5, slice);
    else
        add(b, "unsqueeze", 2, axis);
}

static void
add_cat(builder *b, bytes *in)
{
    air_ref refs[2] = {choose(b, in), choose(b, in)};
    air_attr attrs[] = {
        {.kind = AIR_ATTR_VALUES, .count = 2, .values = refs},
        attr_int(b->g, next_byte(in) % 2),
    };
    add(b, "cat", 2, attrs);
}

/* Constants, of rank 0 to 2. */
static void
add_full(builder *b, bytes *in)
{
    air_dim dims[2];
    unsigned rank = next_byte(in) % 3, n = next_byte(in);
    for (unsigned i = 0; i < rank; i++)
        dims[i] = attr_int(b->g, n % 2 == 0 ? 1 : 1 + n % 70).dim;
    air_attr attrs[] = {
        {.kind = AIR_ATTR_INTS, .count = rank, .dims = dims},
        {.kind = AIR_ATTR_FLOAT, .f = 0.25 * (n % 16)},
        {.kind = AIR_ATTR_DTYPE, .dtype = AIR_F32},
    };
    add(b, "full", 3, attrs);
}

/* ---- the graph ---- */

/* Inputs [s0, n], [n], [s0, 1] and [n, n]. */
static void
add_inputs(builder *b, int64_t rows, int64_t columns)
{
    static const char *const names[INPUTS] = {"x", "b", "c", "w"};
    air_dim s, n, one;
    FUZZ_REQUIRE(air_dim_symbol(b->g, "s0", 1, 100, rows, &s) == AIR_OK);
    FUZZ_REQUIRE(air_dim_const(b->g, columns, &n) == AIR_OK);
    FUZZ_REQUIRE(air_dim_const(b->g, 1, &one) == AIR_OK);
    const air_dim dims[INPUTS][2] = {{s, n}, {n}, {s, one}, {n, n}};
    const int ranks[INPUTS] = {2, 1, 2, 2};
    for (int i = 0; i < INPUTS; i++) {
        air_status status =
            air_graph_add_input(b->g, names[i], AIR_F32, ranks[i], dims[i], 0,
                                &b->values[b->count++]);
        FUZZ_REQUIRE(status == AIR_OK);
    }
}

static size_t
build(builder *b, bytes *in)
{
    static void (*const kinds[])(builder * b, bytes * in) = {
        add_unary, add_binary,  add_binary,  add_reduce, add_view,
        add_cat,   add_softmax, add_product, add_full};
    int64_t rows = 1 + next_byte(in) % 40, columns = 1 + next_byte(in) % 70;
    add_inputs(b, rows, columns);
    while (in->left > 0 && b->count < MAX_VALUES)
        kinds[next_byte(in) % (sizeof kinds / sizeof *kinds)](b, in);
    size_t nodes = b->count - INPUTS;
    size_t results = nodes < RESULTS ? nodes : RESULTS;
    if (results > 0)
        FUZZ_REQUIRE(air_graph_set_results(b->g, results,
                                           &b->values[b->count - results],
                                           NULL) == AIR_OK);
    return results;
}

static void
require_ok(air_status status, const builder *b)
{
    char *text;
    if (status == AIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", air_last_error()->message,
            air_last_error()->trace);
    if (air_graph_print(b->g, &text) == AIR_OK)
        fputs(text, stderr);
    fuzz_wrong(__FILE__, __LINE__, air_status_text(status));
}

/* False for sizes that inference had to take for equal, but are not. */
static bool
run(air_context *ctx, const builder *b, const air_compile_options *options,
    size_t count, air_value *outs, air_program **out_program,
    air_values *inputs)
{
    require_ok(values_make(b->g, 7, inputs), b);
    air_status status = air_program_create(ctx, b->g, options, out_program);
    if (status == AIR_ERROR_SHAPE)
        return false;
    require_ok(status, b);
    status = air_program_run(*out_program, NULL, inputs->count, inputs->values,
                             count, outs);
    if (status != AIR_ERROR_SHAPE)
        require_ok(status, b);
    return status == AIR_OK;
}

static void
compare(const builder *g, const air_value *got, const air_value *want)
{
    int64_t count = value_count(want);
    double scale = 1;
    FUZZ_REQUIRE(value_count(got) == count);
    for (int64_t i = 0; i < count; i++)
        scale = fmax(scale, fabs(value_get(want, i)));
    for (int64_t i = 0; i < count; i++) {
        double a = value_get(got, i), b = value_get(want, i);
        bool same = isnan(a) == isnan(b) &&
                    (isnan(b) || isinf(scale) || fabs(a - b) <= 1e-3 * scale);
        if (same)
            continue;
        char *text;
        fprintf(stderr, "element %lld: cpu %.9g, ref %.9g\n", (long long)i, a,
                b);
        if (air_graph_print(g->g, &text) == AIR_OK)
            fputs(text, stderr);
        FUZZ_REQUIRE(same);
    }
}

/* Builds the same graph in two contexts and compares what they compute. */
int
fuzz_one(const uint8_t *data, size_t size)
{
    static const char *const drivers[2] = {"cpu", "ref"};
    air_context *ctx[2];
    builder b[2] = {0};
    air_program *programs[2] = {0};
    air_values inputs[2] = {0};
    air_value outs[2][RESULTS] = {0};
    bool ran[2] = {false, false};
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
        air_options options = {.driver = drivers[i],
                               .threads = 1 + (int)(size % 2),
                               .verify = true};
        bytes in = {data, size};
        FUZZ_REQUIRE(air_context_create(&options, &ctx[i]) == AIR_OK);
        FUZZ_REQUIRE(air_graph_create(ctx[i], "f", &b[i].g) == AIR_OK);
        count = build(&b[i], &in);
        air_compile_options compile = {.exact = size % 3 == 0,
                                       .pass_limit = i == 0 ? 0 : 1};
        if (count > 0)
            ran[i] = run(ctx[i], &b[i], &compile, count, outs[i], &programs[i],
                         &inputs[i]);
    }
    FUZZ_REQUIRE(ran[0] == ran[1]);
    for (size_t i = 0; ran[0] && i < count; i++)
        compare(&b[0], &outs[0][i], &outs[1][i]);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < count; k++)
            air_value_release(&outs[i][k]);
        values_free(&inputs[i]);
        air_program_destroy(programs[i]);
        air_graph_destroy(b[i].g);
        air_context_destroy(ctx[i]);
    }
    return 0;
}
