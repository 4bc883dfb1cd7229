/* test_ir_dim.c: size expressions: simplification, ranges, values. */
#include "ir_case.h"

typedef struct {
    ir_graph *g;
    air_dim a, b, s; /* symbols: a, b at least 1; s in [2, 8] */
} dims;

static bool
make_dims(dims *d)
{
    return CHECK_OK(ir_graph_init(&base_libc_alloc, "f", &d->g)) &&
           CHECK_OK(ir_dim_symbol(d->g, "a", 1, INT64_MAX, 0, &d->a)) &&
           CHECK_OK(ir_dim_symbol(d->g, "b", 1, INT64_MAX, 0, &d->b)) &&
           CHECK_OK(ir_dim_symbol(d->g, "s", 2, 8, 4, &d->s));
}

static air_dim
constant(dims *d, int64_t v)
{
    air_dim out = {0};
    CHECK_OK(ir_dim_const(d->g, v, &out));
    return out;
}

static air_dim
op(dims *d, ir_dim_op o, air_dim a, air_dim b)
{
    air_dim out = {0};
    CHECK_OK(ir_dim_make(d->g, o, a, b, &out));
    return out;
}

static bool
shows(const dims *d, air_dim x, const char *want)
{
    base_text text;
    bool same;

    base_text_init(&text, &base_libc_alloc);
    ir_dim_print(d->g, x, &text);
    same = CHECK_STR(text.data, want);
    base_text_deinit(&text);
    return same;
}

#define ADD IR_DIM_ADD
#define SUB IR_DIM_SUB
#define MUL IR_DIM_MUL
#define DIV IR_DIM_DIV
#define MOD IR_DIM_MOD

TEST(dim_constants_fold)
{
    dims d;
    REQUIRE(make_dims(&d));
    shows(&d, op(&d, DIV, constant(&d, -7), constant(&d, 2)), "-4");
    shows(&d, op(&d, MOD, constant(&d, -7), constant(&d, 2)), "1");
    shows(&d, op(&d, MOD, constant(&d, 7), constant(&d, -4)), "-1");
    shows(&d, op(&d, MOD, constant(&d, INT64_MIN), constant(&d, 3)), "1");
    shows(&d, op(&d, IR_DIM_MAX, constant(&d, 3), constant(&d, 5)), "5");
    air_dim out;
    CHECK_FAILS(ir_dim_make(d.g, DIV, d.a, constant(&d, 0), &out), ARGUMENT);
    CHECK_FAILS(
        ir_dim_make(d.g, MUL, constant(&d, INT64_MAX), constant(&d, 2), &out),
        ARGUMENT);
    ir_graph_free(d.g);
}

TEST(dim_equal_polynomials_are_one)
{
    dims d;
    REQUIRE(make_dims(&d));
    air_dim zero = constant(&d, 0), one = constant(&d, 1);
    air_dim two = constant(&d, 2), four = constant(&d, 4);

    CHECK(ir_dim_eq(op(&d, ADD, d.a, zero), d.a));
    CHECK(ir_dim_eq(op(&d, MUL, one, d.a), d.a));
    CHECK(ir_dim_eq(op(&d, ADD, d.a, d.a), op(&d, MUL, two, d.a)));
    CHECK(ir_dim_eq(op(&d, MUL, d.a, d.b), op(&d, MUL, d.b, d.a)));
    CHECK(ir_dim_eq(op(&d, SUB, d.a, d.a), zero));
    CHECK(ir_dim_eq(op(&d, DIV, op(&d, MUL, d.a, d.b), d.b), d.a));
    CHECK(ir_dim_eq(op(&d, DIV, op(&d, MUL, d.a, four), four), d.a));
    /* (a + 2) (b - 2) = ab - 2a + 2b - 4 */
    air_dim product = op(&d, MUL, op(&d, ADD, d.a, two), op(&d, SUB, d.b, two));
    air_dim sum = op(&d, MUL, d.a, d.b);
    sum = op(&d, SUB, sum, four);
    sum = op(&d, ADD, sum, op(&d, MUL, d.b, two));
    sum = op(&d, SUB, sum, op(&d, MUL, d.a, two));
    CHECK(ir_dim_eq(product, sum));
    shows(&d, product, "a*b - 2*a + 2*b - 4");
    ir_graph_free(d.g);
}

TEST(dim_division_takes_out_what_divides)
{
    dims d;
    REQUIRE(make_dims(&d));
    air_dim four = constant(&d, 4), a4 = op(&d, MUL, d.a, four);

    shows(&d, op(&d, DIV, op(&d, ADD, a4, constant(&d, 3)), four), "a");
    shows(&d, op(&d, DIV, op(&d, ADD, a4, constant(&d, 9)), four), "a + 2");
    shows(&d, op(&d, MOD, op(&d, ADD, a4, constant(&d, 3)), four), "3");
    shows(&d, op(&d, MOD, op(&d, ADD, a4, d.b), four), "b%4");
    shows(&d, op(&d, DIV, op(&d, ADD, a4, d.b), four), "a + b//4");
    shows(&d, op(&d, DIV, op(&d, ADD, d.b, constant(&d, 9)), four),
          "(b + 1)//4 + 2");
    shows(&d, op(&d, DIV, op(&d, DIV, d.a, four), constant(&d, 3)), "a//12");
    shows(&d, op(&d, MOD, d.s, constant(&d, 16)), "s");
    shows(&d, op(&d, DIV, d.s, constant(&d, 16)), "0");
    ir_graph_free(d.g);
}

TEST(dim_divisor_that_may_be_zero_stays)
{
    dims d;
    air_dim z, out;
    int64_t symbols[4] = {3, 3, 3, 0}, v;
    REQUIRE(make_dims(&d));
    REQUIRE_OK(ir_dim_symbol(d.g, "z", 0, 9, 0, &z));
    out = op(&d, DIV, op(&d, MUL, d.a, z), z);
    CHECK(!ir_dim_eq(out, d.a));
    CHECK_FAILS(ir_dim_eval(d.g, out, symbols, &v), ARGUMENT);
    symbols[3] = 2;
    CHECK_OK(ir_dim_eval(d.g, out, symbols, &v));
    CHECK_INT(v, 3);
    ir_graph_free(d.g);
}

TEST(dim_min_max_by_range)
{
    dims d;
    REQUIRE(make_dims(&d));
    shows(&d, op(&d, IR_DIM_MIN, d.s, constant(&d, 8)), "s");
    shows(&d, op(&d, IR_DIM_MAX, d.s, constant(&d, 2)), "s");
    shows(&d, op(&d, IR_DIM_MAX, d.s, constant(&d, 3)), "max(3, s)");
    air_dim more = op(&d, ADD, d.a, constant(&d, 1));
    CHECK(ir_dim_eq(op(&d, IR_DIM_MIN, d.a, more), d.a));
    CHECK(
        ir_dim_eq(op(&d, IR_DIM_MIN, d.a, d.b), op(&d, IR_DIM_MIN, d.b, d.a)));
    ir_graph_free(d.g);
}

/* Simplified or not, the value is what Python says. */
TEST(dim_values)
{
    dims d;
    REQUIRE(make_dims(&d));
    air_dim sum = op(&d, ADD, op(&d, MUL, d.a, constant(&d, 6)), d.b);
    air_dim q = op(&d, DIV, sum, constant(&d, 4));
    air_dim r = op(&d, MOD, sum, constant(&d, 4));
    for (int64_t a = 1; a < 9; a++)
        for (int64_t b = 1; b < 9; b++) {
            int64_t symbols[3] = {a, b, 2}, v;
            CHECK_OK(ir_dim_eval(d.g, q, symbols, &v));
            CHECK_INT(v, (6 * a + b) / 4);
            CHECK_OK(ir_dim_eval(d.g, r, symbols, &v));
            CHECK_INT(v, (6 * a + b) % 4);
        }
    ir_graph_free(d.g);
}

TEST(dim_eval_all_checks_equal_sizes)
{
    dims d;
    air_dim out;
    int64_t symbols[3] = {5, 5, 2}, values[64];
    REQUIRE(make_dims(&d));
    CHECK_OK(ir_dim_unify(d.g, "mm", d.a, d.b, &out));
    REQUIRE(d.g->dims.count <= 64);
    CHECK_OK(ir_dim_eval_all(d.g, symbols, values));
    CHECK_INT(values[d.a.id], 5);
    symbols[1] = 6;
    CHECK_FAILS(ir_dim_eval_all(d.g, symbols, values), SHAPE);
    CHECK_FAILS(ir_dim_unify(d.g, "mm", d.s, constant(&d, 9), &out), SHAPE);
    ir_graph_free(d.g);
}

/* Expressions that outgrow the normal form still have the right value, and
 * those nobody could read are refused. */
TEST(dim_large_expressions)
{
    dims d;
    air_dim x, sum;
    int64_t symbols[40] = {1, 1, 2}, v;
    char name[16];
    air_status status = AIR_OK;

    REQUIRE(make_dims(&d));
    sum = d.a;
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "t%d", i);
        REQUIRE_OK(ir_dim_symbol(d.g, name, 0, INT64_MAX, 0, &x));
        symbols[3 + i] = i;
        sum = op(&d, ADD, sum, x);
    }
    CHECK_OK(ir_dim_eval(d.g, sum, symbols, &v));
    CHECK_INT(v, 1 + 29 * 30 / 2);
    for (int i = 0; i < 20 && status == AIR_OK; i++) {
        status = ir_dim_make(d.g, MOD, sum, d.s, &x);
        if (status == AIR_OK)
            status = ir_dim_make(d.g, MUL, sum, x, &sum);
    }
    CHECK_INT(status, AIR_ERROR_UNSUPPORTED);
    ir_graph_free(d.g);
}
