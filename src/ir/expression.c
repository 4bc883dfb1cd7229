/* expression.c: formulas of users, by recursive descent:
 *
 *     body    = statement { ";" statement } [ ";" ]
 *     statement = [ name "=" ] choice
 *     choice  = or [ "?" choice ":" choice ]
 *     or      = and { "||" and }          and = compare { "&&" compare }
 *     compare = sum [ ( < <= > >= == != ) sum ]
 *     sum     = product { ( + - ) product }
 *     product = unary { ( * / ) unary }   unary = ( - ! ) unary | primary
 *     primary = number | name | function "(" choice { "," choice } ")"
 *             | "(" choice ")"
 *
 * Each operation is an ATen overload of the op table: dtypes and sizes are
 * then what ATen's rules make of them. Numbers stay numbers as long as they
 * meet no tensor. */
#include "ir/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 512, MAX_NAMES = 64, MAX_DEPTH = 100 };

typedef struct {
    const char *s;
    size_t len;
    air_term term;
} binding;

typedef struct {
    const char *text, *p, *end;
    air_expression *out;
    binding names[MAX_NAMES];
    size_t nnames;
    int depth;
} parser;

/* ---- operators and functions --------------------------------------------- */

/* The overloads of an operation on two tensors, a tensor and a number, a
 * number and a tensor; swap: the last one takes the tensor first. "" : there
 * is none. number: what two numbers give. */
typedef struct {
    const char *text, *tensors, *right, *left, *number;
    bool swap;
} binary;

static const binary binaries[] = {
    {"+", "add.Tensor", "add.Scalar", "add.Scalar", "+", true},
    {"-", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "-", true},
    {"*", "mul.Tensor", "mul.Scalar", "mul.Scalar", "*", true},
    {"/", "div.Tensor", "div.Scalar", "", "/", false},
    {"<", "lt.Tensor", "lt.Scalar", "gt.Scalar", "", true},
    {"<=", "le.Tensor", "le.Scalar", "ge.Scalar", "", true},
    {">", "gt.Tensor", "gt.Scalar", "lt.Scalar", "", true},
    {">=", "ge.Tensor", "ge.Scalar", "le.Scalar", "", true},
    {"==", "eq.Tensor", "eq.Scalar", "eq.Scalar", "", true},
    {"!=", "ne.Tensor", "ne.Scalar", "ne.Scalar", "", true},
    {"&&", "logical_and", "", "", "", false},
    {"||", "logical_or", "", "", "", false},
    {"min", "minimum", "clamp_max", "clamp_max", "", true},
    {"max", "maximum", "clamp_min", "clamp_min", "", true},
    {"pow", "pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", "", false},
    {"mod", "remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor",
     "", false},
    {"fmod", "fmod.Tensor", "fmod.Scalar", "", "", false},
    {"atan2", "atan2", "", "", "", false},
    {"hypot", "hypot", "", "", "", false},
    {"copysign", "copysign.Tensor", "copysign.Scalar", "", "", false},
};

static const struct {
    const char *name, *op;
} unaries[] = {
    {"abs", "abs"},       {"acos", "acos"},   {"acosh", "acosh"},
    {"asin", "asin"},     {"asinh", "asinh"}, {"atan", "atan"},
    {"atanh", "atanh"},   {"ceil", "ceil"},   {"cos", "cos"},
    {"cosh", "cosh"},     {"erf", "erf"},     {"erfc", "erfc"},
    {"exp", "exp"},       {"exp2", "exp2"},   {"expm1", "expm1"},
    {"floor", "floor"},   {"gelu", "gelu"},   {"isnan", "isnan"},
    {"lgamma", "lgamma"}, {"log", "log"},     {"log10", "log10"},
    {"log1p", "log1p"},   {"log2", "log2"},   {"relu", "relu"},
    {"round", "round"},   {"rsqrt", "rsqrt"}, {"sigmoid", "sigmoid"},
    {"sign", "sign"},     {"silu", "silu"},   {"sin", "sin"},
    {"sinh", "sinh"},     {"sqrt", "sqrt"},   {"square", "square"},
    {"tan", "tan"},       {"tanh", "tanh"},   {"trunc", "trunc"},
};

/* f(x, axis): the axis stays, with one element. */
static const struct {
    const char *name, *op;
} reductions[] = {
    {"sum", "sum.dim_IntList"},
    {"mean", "mean.dim"},
    {"amax", "amax"},
    {"amin", "amin"},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool
is_text(const char *s, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(s, text, len) == 0;
}

/* ---- errors -------------------------------------------------------------- */

#define FAIL_AT(ps, at, ...)                                            \
    do {                                                                \
        char what_[200];                                                \
        int line_, column_;                                             \
        snprintf(what_, sizeof what_, __VA_ARGS__);                     \
        locate((ps), (at), &line_, &column_);                           \
        AIR_FAIL(AIR_ERROR_SYNTAX, "%d:%d: %s", line_, column_, what_); \
    } while (0)

static void
locate(const parser *ps, const char *at, int *line, int *column)
{
    const char *start = ps->text;

    *line = 1;
    for (const char *p = ps->text; p < at; p++)
        if (*p == '\n') {
            ++*line;
            start = p + 1;
        }
    *column = (int)(at - start) + 1;
}

/* ---- characters ---------------------------------------------------------- */

static void
skip_space(parser *ps)
{
    while (ps->p < ps->end && isspace((unsigned char)*ps->p))
        ps->p++;
}

static bool
take(parser *ps, const char *token)
{
    size_t len = strlen(token);

    skip_space(ps);
    if ((size_t)(ps->end - ps->p) < len || memcmp(ps->p, token, len) != 0)
        return false;
    ps->p += len;
    return true;
}

static size_t
name_length(const char *p, const char *end)
{
    size_t n = 0;

    if (p < end && isdigit((unsigned char)*p))
        return 0;
    while (p + n < end && (isalnum((unsigned char)p[n]) || p[n] == '_'))
        n++;
    return n;
}

static air_status
expect(parser *ps, const char *token)
{
    if (take(ps, token))
        return AIR_OK;
    if (ps->p == ps->end)
        FAIL_AT(ps, ps->p, "the body ends where \"%s\" is due", token);
    FAIL_AT(ps, ps->p, "\"%s\" is due here", token);
}

/* ---- steps --------------------------------------------------------------- */

static bool
is_number(const air_term *t)
{
    return t->kind != AIR_TERM_TENSOR && t->kind != AIR_TERM_STEP;
}

static air_status
put(parser *ps, const char *at, const char *op, int n, const air_term *args,
    bool number, air_term *out)
{
    air_operation step = {.op = op, .nargs = (size_t)n, .number = number};

    if (ps->out->steps.count == MAX_STEPS)
        FAIL_AT(ps, at, "more than %d operations", MAX_STEPS);
    for (int i = 0; i < n; i++)
        step.args[i] = args[i];
    *out = (air_term){.kind = number ? AIR_TERM_NUMBER_STEP : AIR_TERM_STEP,
                      .index = ps->out->steps.count};
    return BASE_PUSH(ps->out->alloc, &ps->out->steps, step);
}

static double
value_of(const air_term *t)
{
    return t->kind == AIR_TERM_INT ? (double)t->i : t->f;
}

/* Of two literals, what they give at once; false: not literals, or no number.
 */
static bool
fold(char op, const air_term *a, const air_term *b, air_term *out)
{
    const double x = value_of(a), y = value_of(b);
    double f;
    bool both_int = a->kind == AIR_TERM_INT && b->kind == AIR_TERM_INT;

    if ((a->kind != AIR_TERM_INT && a->kind != AIR_TERM_FLOAT) ||
        (b->kind != AIR_TERM_INT && b->kind != AIR_TERM_FLOAT))
        return false;
    f = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
    *out = (air_term){.kind = AIR_TERM_FLOAT, .f = f};
    if (both_int && op != '/' && fabs(f) < 0x1p53)
        *out = (air_term){.kind = AIR_TERM_INT, .i = (int64_t)f};
    return true;
}

static air_status
put_binary(parser *ps, const char *at, const binary *b, air_term x, air_term y,
           air_term *out)
{
    const bool left = is_number(&x), right = is_number(&y);
    const char *op = left && right ? b->number
                     : left        ? b->left
                     : right       ? b->right
                                   : b->tensors;
    air_term args[2] = {x, y};

    if (left && right && *op && fold(*op, &x, &y, out))
        return AIR_OK;
    if (left && !right && strcmp(b->text, "/") == 0) { /* as torch's 2 / x */
        AIR_TRY(put(ps, at, "reciprocal", 1, &y, false, &args[0]));
        args[1] = x;
        return put(ps, at, "mul.Scalar", 2, args, false, out);
    }
    if (!*op)
        FAIL_AT(ps, at, "\"%s\" takes tensors, not %s", b->text,
                left && right ? "two numbers" : "a number here");
    if (left && !right && b->swap)
        args[0] = y, args[1] = x;
    return put(ps, at, op, 2, args, left && right, out);
}

static const binary *
find_binary(const char *text, size_t len)
{
    for (size_t i = 0; i < COUNT(binaries); i++)
        if (is_text(text, len, binaries[i].text))
            return &binaries[i];
    return NULL;
}

/* ---- grammar ------------------------------------------------------------- */

static air_status parse_choice(parser *ps, air_term *out);

static air_status
parse_number(parser *ps, air_term *out)
{
    char text[64];
    size_t n = 0;
    char *end;
    const char *at = ps->p;

    while (at + n < ps->end && n + 1 < sizeof text &&
           (isalnum((unsigned char)at[n]) || at[n] == '.' ||
            ((at[n] == '+' || at[n] == '-') && n &&
             (at[n - 1] == 'e' || at[n - 1] == 'E'))))
        n++;
    memcpy(text, at, n);
    text[n] = '\0';
    bool integer = strspn(text, "0123456789") == n && n < 19;
    *out = (air_term){.kind = AIR_TERM_FLOAT, .f = strtod(text, &end)};
    if (integer)
        *out = (air_term){.kind = AIR_TERM_INT, .i = strtoll(text, &end, 10)};
    if (*end == 'f' && !integer)
        end++;
    if (*end || n == 0 || strpbrk(text, "xXpPnN"))
        FAIL_AT(ps, at, "\"%s\" is no number", text);
    ps->p += n;
    return AIR_OK;
}

static air_status
parse_arguments(parser *ps, air_term *args, int *count)
{
    *count = 0;
    AIR_TRY(expect(ps, "("));
    do {
        skip_space(ps);
        if (*count == AIR_OPERATION_ARGS)
            FAIL_AT(ps, ps->p, "no function takes so many arguments");
        AIR_TRY(parse_choice(ps, &args[(*count)++]));
    } while (take(ps, ","));
    return expect(ps, ")");
}

static air_status
put_select(parser *ps, const char *at, const air_term *a, air_term *out)
{
    static const char *const ops[] = {"where.self", "where.ScalarSelf",
                                      "where.ScalarOther", "where.Scalar"};

    if (is_number(&a[0]))
        FAIL_AT(ps, at, "the condition is a number; compare a tensor");
    return put(ps, at, ops[is_number(&a[1]) + 2 * is_number(&a[2])], 3, a,
               false, out);
}

static air_status
put_reduction(parser *ps, const char *at, const char *op, const air_term *a,
              air_term *out)
{
    air_term args[3] = {a[0], a[1], {.kind = AIR_TERM_INT, .i = 1}};

    if (is_number(&a[0]) || a[1].kind != AIR_TERM_INT)
        FAIL_AT(ps, at, "a reduction takes a tensor and an axis: sum(x, -1)");
    return put(ps, at, op, 3, args, false, out);
}

static air_status
put_unary(parser *ps, const char *at, const char *op, const air_term *a,
          air_term *out)
{
    if (is_number(a))
        FAIL_AT(ps, at, "%s of a number: write its value", op);
    return put(ps, at, op, 1, a, false, out);
}

static air_status
parse_call(parser *ps, const char *name, size_t len, air_term *out)
{
    air_term a[AIR_OPERATION_ARGS];
    const binary *b = find_binary(name, len);
    int n;

    AIR_TRY(parse_arguments(ps, a, &n));
    if (isalpha((unsigned char)*name) && b && n == 2)
        return put_binary(ps, name, b, a[0], a[1], out);
    for (size_t i = 0; i < COUNT(unaries); i++)
        if (n == 1 && is_text(name, len, unaries[i].name))
            return put_unary(ps, name, unaries[i].op, a, out);
    for (size_t i = 0; i < COUNT(reductions); i++)
        if (n == 2 && is_text(name, len, reductions[i].name))
            return put_reduction(ps, name, reductions[i].op, a, out);
    if (is_text(name, len, "where") && n == 3)
        return put_select(ps, name, a, out);
    FAIL_AT(ps, name, "there is no function %.*s of %d argument%s",
            (int)(len < 40 ? len : 40), name, n, n == 1 ? "" : "s");
}

static air_status
parse_name(parser *ps, air_term *out)
{
    const char *name = ps->p;
    size_t len = name_length(name, ps->end);

    ps->p += len;
    skip_space(ps);
    if (ps->p < ps->end && *ps->p == '(')
        return parse_call(ps, name, len, out);
    for (size_t i = ps->nnames; i-- > 0;)
        if (ps->names[i].len == len && memcmp(ps->names[i].s, name, len) == 0) {
            *out = ps->names[i].term;
            return AIR_OK;
        }
    FAIL_AT(ps, name, "%.*s is no parameter and has not been assigned",
            (int)(len < 40 ? len : 40), name);
}

static air_status
parse_primary(parser *ps, air_term *out)
{
    skip_space(ps);
    if (ps->p == ps->end)
        FAIL_AT(ps, ps->p, "the body ends where a value is due");
    if (take(ps, "(")) {
        AIR_TRY(parse_choice(ps, out));
        return expect(ps, ")");
    }
    if (isdigit((unsigned char)*ps->p) || *ps->p == '.')
        return parse_number(ps, out);
    if (name_length(ps->p, ps->end) > 0)
        return parse_name(ps, out);
    if (isprint((unsigned char)*ps->p))
        FAIL_AT(ps, ps->p, "a value is due, not '%c'", *ps->p);
    FAIL_AT(ps, ps->p, "a value is due, not byte 0x%02x",
            (unsigned char)*ps->p);
}

static air_status
parse_minus(parser *ps, const char *at, air_term *out)
{
    if (out->kind == AIR_TERM_INT)
        out->i = -out->i;
    else if (out->kind == AIR_TERM_FLOAT)
        out->f = -out->f;
    else if (is_number(out))
        return put(ps, at, "neg", 1,
                   &(air_term){.kind = out->kind, .index = out->index}, true,
                   out);
    else
        return put(ps, at, "neg", 1,
                   &(air_term){.kind = out->kind, .index = out->index}, false,
                   out);
    return AIR_OK;
}

static air_status
parse_unary(parser *ps, air_term *out)
{
    const char *at;
    air_status status;

    skip_space(ps);
    at = ps->p;
    if (ps->depth == MAX_DEPTH)
        FAIL_AT(ps, at, "nested deeper than %d", MAX_DEPTH);
    ps->depth++;
    if (take(ps, "-")) {
        status = parse_unary(ps, out);
        if (status == AIR_OK)
            status = parse_minus(ps, at, out);
    } else if (ps->p < ps->end && *ps->p == '!' &&
               !(ps->p + 1 < ps->end && ps->p[1] == '=')) {
        ps->p++;
        air_term a;
        status = parse_unary(ps, &a);
        if (status == AIR_OK)
            status = put_unary(ps, at, "logical_not", &a, out);
    } else {
        status = parse_primary(ps, out);
    }
    ps->depth--;
    return status;
}

/* The operators of each level, longer ones first. */
static const char *const levels[][7] = {
    {"||", NULL},
    {"&&", NULL},
    {"<=", ">=", "==", "!=", "<", ">", NULL},
    {"+", "-", NULL},
    {"*", "/", NULL}};

static const char *
take_operator(parser *ps, size_t level, const char **at)
{
    skip_space(ps);
    *at = ps->p;
    for (size_t i = 0; levels[level][i]; i++)
        if (take(ps, levels[level][i]))
            return levels[level][i];
    return NULL;
}

static air_status
parse_level(parser *ps, size_t level, air_term *out)
{
    const char *at, *op;
    air_term right;

    if (level == COUNT(levels))
        return parse_unary(ps, out);
    AIR_TRY(parse_level(ps, level + 1, out));
    while ((op = take_operator(ps, level, &at)) != NULL) {
        AIR_TRY(parse_level(ps, level + 1, &right));
        AIR_TRY(
            put_binary(ps, at, find_binary(op, strlen(op)), *out, right, out));
    }
    return AIR_OK;
}

static air_status
parse_choice(parser *ps, air_term *out)
{
    air_term a[3];
    const char *at;

    if (ps->depth == MAX_DEPTH)
        FAIL_AT(ps, ps->p, "nested deeper than %d", MAX_DEPTH);
    ps->depth++;
    AIR_TRY(parse_level(ps, 0, &a[0]));
    skip_space(ps);
    at = ps->p;
    *out = a[0];
    if (take(ps, "?")) {
        AIR_TRY(parse_choice(ps, &a[1]));
        AIR_TRY(expect(ps, ":"));
        AIR_TRY(parse_choice(ps, &a[2]));
        AIR_TRY(put_select(ps, at, a, out));
    }
    ps->depth--;
    return AIR_OK;
}

/* `name =`, not `==`. */
static bool
take_assignment(parser *ps, binding *out)
{
    const char *p;

    skip_space(ps);
    *out = (binding){.s = ps->p, .len = name_length(ps->p, ps->end)};
    p = ps->p + out->len;
    while (p < ps->end && isspace((unsigned char)*p))
        p++;
    if (out->len == 0 || p == ps->end || *p != '=' ||
        (p + 1 < ps->end && p[1] == '='))
        return false;
    ps->p = p + 1;
    return true;
}

static air_status
parse_statement(parser *ps, air_term *out)
{
    binding b;
    bool assigns = take_assignment(ps, &b);

    AIR_TRY(parse_choice(ps, out));
    if (!assigns)
        return AIR_OK;
    if (ps->nnames == MAX_NAMES)
        FAIL_AT(ps, b.s, "more than %d names", MAX_NAMES);
    b.term = *out;
    ps->names[ps->nnames++] = b;
    return AIR_OK;
}

/* The results are what the last statements give. */
static air_status
parse_body(parser *ps, size_t nresults)
{
    air_expression *e = ps->out;
    air_term t;
    const char *at;

    do {
        skip_space(ps);
        at = ps->p;
        if (ps->p == ps->end && e->results.count > 0)
            break; /* a last ";" */
        AIR_TRY(parse_statement(ps, &t));
        AIR_TRY(BASE_PUSH(e->alloc, &e->results, t));
    } while (take(ps, ";"));
    if (ps->p != ps->end)
        FAIL_AT(ps, ps->p, "an operator or \";\" is due here");
    if (e->results.count < nresults)
        FAIL_AT(ps, ps->p, "the schema has %zu results, the body %zu", nresults,
                e->results.count);
    size_t first = e->results.count - nresults;
    memmove(e->results.data, e->results.data + first,
            nresults * sizeof *e->results.data);
    e->results.count = nresults;
    for (size_t i = 0; i < nresults; i++)
        if (is_number(&e->results.data[i]))
            FAIL_AT(ps, at, "result %zu is a number, not a tensor", i);
    return AIR_OK;
}

air_status
ir_expression_parse(const air_alloc *alloc, const char *text, size_t len,
                    size_t nparams, const air_formal *params, size_t nresults,
                    air_expression **out)
{
    parser ps = {.text = text, .p = text, .end = text + len};
    air_status status;

    *out = NULL;
    AIR_REQUIRE(nparams <= MAX_NAMES / 2, AIR_ERROR_UNSUPPORTED,
                "%zu parameters; a body takes at most %d", nparams,
                MAX_NAMES / 2);
    for (size_t i = 0; i < nparams; i++)
        ps.names[ps.nnames++] = (binding){
            params[i].name,
            strlen(params[i].name),
            {.kind = params[i].number ? AIR_TERM_NUMBER : AIR_TERM_TENSOR,
             .index = i}};
    AIR_TRY(base_new(alloc, sizeof *ps.out, (void **)&ps.out));
    ps.out->alloc = alloc;
    status = parse_body(&ps, nresults);
    if (status != AIR_OK) {
        ir_expression_free(ps.out);
        return base_trace(status, __func__, __LINE__);
    }
    *out = ps.out;
    return AIR_OK;
}

void
ir_expression_free(air_expression *e)
{
    BASE_VEC_FREE(e->alloc, &e->steps);
    BASE_VEC_FREE(e->alloc, &e->results);
    base_free(e->alloc, e, sizeof *e);
}
