/* test_ir_expression.c: formulas of users. */
#include "ir/expression.h"
#include "ir_case.h"

static const air_formal formals[] = {
    {"a", false}, {"b", false}, {"s", true}, {"n", true}};

static void
print_term(const air_term *t, base_text *out)
{
    switch (t->kind) {
    case AIR_TERM_TENSOR:
    case AIR_TERM_NUMBER:
        base_text_add(out, "%s", formals[t->index].name);
        break;
    case AIR_TERM_STEP:
    case AIR_TERM_NUMBER_STEP: base_text_add(out, "%%%zu", t->index); break;
    case AIR_TERM_INT: base_text_add(out, "%lld", (long long)t->i); break;
    case AIR_TERM_FLOAT: base_text_add(out, "%gf", t->f); break;
    }
}

/* "mul.Tensor(a, b) add.Scalar(%0, 1) -> %1", or the message. */
static void
check_results(const char *text, size_t nresults, const char *want)
{
    air_expression *e;
    base_text out;

    base_text_init(&out, &base_libc_alloc);
    if (ir_expression_parse(&base_libc_alloc, text, strlen(text), 4, formals,
                            nresults, &e) != AIR_OK) {
        CHECK_STR(air_last_error()->message, want);
        CHECK(e == NULL);
        return;
    }
    for (size_t i = 0; i < e->steps.count; i++) {
        const air_operation *s = &e->steps.data[i];
        base_text_add(&out, "%s(", s->op);
        for (size_t k = 0; k < s->nargs; k++) {
            base_text_add(&out, "%s", k ? ", " : "");
            print_term(&s->args[k], &out);
        }
        base_text_add(&out, ") ");
    }
    base_text_add(&out, "->");
    for (size_t i = 0; i < e->results.count; i++) {
        base_text_add(&out, " ");
        print_term(&e->results.data[i], &out);
    }
    CHECK_STR(out.data, want);
    base_text_deinit(&out);
    ir_expression_free(e);
}

static void
check(const char *text, const char *want)
{
    check_results(text, 1, want);
}

TEST(expression_precedence)
{
    check("a + b * a", "mul.Tensor(b, a) add.Tensor(a, %0) -> %1");
    check("(a + b) * a", "add.Tensor(a, b) mul.Tensor(%0, a) -> %1");
    check("a - b - a", "sub.Tensor(a, b) sub.Tensor(%0, a) -> %1");
    check("-a * b", "neg(a) mul.Tensor(%0, b) -> %1");
    check("a < b && b < a || !(a == b)",
          "lt.Tensor(a, b) lt.Tensor(b, a) logical_and(%0, %1) "
          "eq.Tensor(a, b) logical_not(%3) logical_or(%2, %4) -> %5");
    check("a < b ? a : b ? a : 1", "lt.Tensor(a, b) where.ScalarOther(b, a, 1) "
                                   "where.self(%0, a, %1) -> %2");
}

TEST(expression_numbers)
{
    check("2 * a", "mul.Scalar(a, 2) -> %0");
    check("2 - a", "rsub.Scalar(a, 2) -> %0");
    check("1 / a", "reciprocal(a) mul.Scalar(%0, 1) -> %1");
    check("0 < a", "gt.Scalar(a, 0) -> %0");
    check("a * (1 + 2 * 3)", "mul.Scalar(a, 7) -> %0");
    check("a * (1 / 2)", "mul.Scalar(a, 0.5f) -> %0");
    check("a * -1.5e1f", "mul.Scalar(a, -15f) -> %0");
    check("a * (1 - s)", "-(1, s) mul.Scalar(a, %0) -> %1");
    check("max(a, 0)", "clamp_min(a, 0) -> %0");
    check("pow(2, a)", "pow.Scalar(2, a) -> %0");
    check("a", "-> a");
}

TEST(expression_functions_and_names)
{
    check("a * sigmoid(b) + 1",
          "sigmoid(b) mul.Tensor(a, %0) add.Scalar(%1, 1) -> %2");
    check("m = mean(a, -1); a - m",
          "mean.dim(a, -1, 1) sub.Tensor(a, %0) -> %1");
    check("a = a + b; a = a * b; a;",
          "add.Tensor(a, b) mul.Tensor(%0, b) -> %1");
    check("where(a < 0, s, a)", "lt.Scalar(a, 0) where.ScalarSelf(%0, s, a) "
                                "-> %1");
    check_results("x = a + b; a - b", 2,
                  "add.Tensor(a, b) sub.Tensor(a, b) -> %0 %1");
}

/* Line and column of what is wrong, counted from 1. */
TEST(expression_errors_say_where)
{
    check("a * sigmoyd(b)", "1:5: there is no function sigmoyd of 1 argument");
    check("a +\n  c", "2:3: c is no parameter and has not been assigned");
    check("a + ", "1:5: the body ends where a value is due");
    check("(a + b", "1:7: the body ends where \")\" is due");
    check("a b", "1:3: an operator or \";\" is due here");
    check("a + 1x", "1:5: \"1x\" is no number");
    check("a @ b", "1:3: an operator or \";\" is due here");
    check("a + \x01", "1:5: a value is due, not byte 0x01");
    check("min(a)", "1:1: there is no function min of 1 argument");
    check("1 + 2", "1:1: result 0 is a number, not a tensor");
    check("1 < 2", "1:3: \"<\" takes tensors, not two numbers");
    check("a && 1", "1:3: \"&&\" takes tensors, not a number here");
    check("exp(s)", "1:1: exp of a number: write its value");
    check("sum(a, b)",
          "1:1: a reduction takes a tensor and an axis: sum(x, -1)");
    check("1 ? a : b", "1:3: the condition is a number; compare a tensor");
    check("", "1:1: the body ends where a value is due");
    check_results("a", 2, "1:2: the schema has 2 results, the body 1");
}

TEST(expression_depth_is_limited)
{
    char text[4096];

    memset(text, '(', sizeof text);
    text[sizeof text - 1] = '\0';
    check(text, "1:51: nested deeper than 100");
    memset(text, '-', sizeof text - 1);
    check(text, "1:100: nested deeper than 100");
}

static air_status
parse_it(const air_alloc *alloc, void *user)
{
    air_expression *e;
    const char *text = user;
    air_status status =
        ir_expression_parse(alloc, text, strlen(text), 4, formals, 1, &e);

    if (status == AIR_OK)
        ir_expression_free(e);
    else
        CHECK(e == NULL);
    return status;
}

TEST(expression_out_of_memory)
{
    static char text[] = "m = a * sigmoid(b) + 1; a < m ? m : sum(a, -1)";
    TEST_OOM(parse_it, text);
}
