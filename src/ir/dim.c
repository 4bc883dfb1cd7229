/* dim.c: size expressions: interned, with ranges, simplified when made.
 *
 * Sums and products are kept in one normal form, a sum of products of atoms
 * (symbols, //, %, min, max) in a fixed order, so that equal polynomials are
 * one node. poly.c converts to and from it. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ir/dim.h"

/* Longer expressions are refused: nobody can read them, and printing shared
 * subexpressions could take exponential time. */
#define MAX_EXPR_SIZE 500u

/* ---- ranges -------------------------------------------------------------- */

static int64_t
clamp_add(int64_t a, int64_t b)
{
    int64_t r;
    if (a == INT64_MIN || b == INT64_MIN)
        return INT64_MIN;
    if (a == INT64_MAX || b == INT64_MAX)
        return INT64_MAX;
    return base_add_i64(a, b, &r) ? r : a > 0 ? INT64_MAX : INT64_MIN;
}

static int64_t
clamp_neg(int64_t a)
{
    return a == INT64_MIN ? INT64_MAX : a == INT64_MAX ? INT64_MIN : -a;
}

static int64_t
clamp_mul(int64_t a, int64_t b)
{
    int64_t r;
    if (a == 0 || b == 0)
        return 0;
    if (base_mul_i64(a, b, &r))
        return r;
    return (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
}

int64_t
dim_floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t
clamp_div(int64_t a, int64_t b)
{
    if (a == INT64_MIN || a == INT64_MAX)
        return a;
    return b == INT64_MAX ? (a < 0 ? -1 : 0) : dim_floor_div(a, b);
}

static int64_t
min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void
range_mul(const ir_dim_node *a, const ir_dim_node *b, ir_dim_node *n)
{
    int64_t p = clamp_mul(a->min, b->min), q = clamp_mul(a->min, b->max);
    int64_t r = clamp_mul(a->max, b->min), s = clamp_mul(a->max, b->max);
    n->min = min_i64(min_i64(p, q), min_i64(r, s));
    n->max = max_i64(max_i64(p, q), max_i64(r, s));
}

static void
range_div(const ir_dim_node *a, const ir_dim_node *b, ir_dim_node *n)
{
    if (b->min <= 0)
        return;
    n->min = clamp_div(a->min, a->min >= 0 ? b->max : b->min);
    n->max = clamp_div(a->max, a->max >= 0 ? b->min : b->max);
}

static void
range_mod(const ir_dim_node *a, const ir_dim_node *b, ir_dim_node *n)
{
    if (b->min <= 0)
        return;
    n->min = 0;
    n->max = b->max == INT64_MAX ? b->max : b->max - 1;
    if (a->min >= 0)
        n->max = min_i64(n->max, a->max);
}

static void
set_range(const ir_graph *g, ir_dim_node *n)
{
    const ir_dim_node *a = &g->dims.data[n->a], *b = &g->dims.data[n->b];

    n->min = INT64_MIN;
    n->max = INT64_MAX;
    switch ((ir_dim_op)n->op) {
    case IR_DIM_CONST:
    case IR_DIM_SYMBOL: assert(false); break;
    case IR_DIM_ADD:
        n->min = clamp_add(a->min, b->min);
        n->max = clamp_add(a->max, b->max);
        break;
    case IR_DIM_SUB:
        n->min = clamp_add(a->min, clamp_neg(b->max));
        n->max = clamp_add(a->max, clamp_neg(b->min));
        break;
    case IR_DIM_MUL: range_mul(a, b, n); break;
    case IR_DIM_DIV: range_div(a, b, n); break;
    case IR_DIM_MOD: range_mod(a, b, n); break;
    case IR_DIM_MIN:
        n->min = min_i64(a->min, b->min);
        n->max = min_i64(a->max, b->max);
        break;
    case IR_DIM_MAX:
        n->min = max_i64(a->min, b->min);
        n->max = max_i64(a->max, b->max);
        break;
    }
}

/* ---- interning ----------------------------------------------------------- */

typedef struct {
    uint64_t op, a, b;
    int64_t value;
} dim_key;

static air_status
intern(ir_graph *g, const ir_dim_node *n, air_dim *out)
{
    dim_key key = {n->op, n->a, n->b, n->value};
    uint32_t id;

    if (base_map_find(&g->dim_map, (const char *)&key, sizeof key, &id)) {
        out->id = id;
        return AIR_OK;
    }
    AIR_REQUIRE(n->size <= MAX_EXPR_SIZE, AIR_ERROR_UNSUPPORTED,
                "a size expression has more than %u terms", MAX_EXPR_SIZE);
    id = (uint32_t)g->dims.count;
    AIR_TRY(BASE_RESERVE(g->alloc, &g->dims, g->dims.count + 1));
    AIR_TRY(base_map_put(&g->dim_map, (const char *)&key, sizeof key, id));
    g->dims.data[g->dims.count++] = *n;
    out->id = id;
    return AIR_OK;
}

air_status
dim_node(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, bool atom,
         air_dim *out)
{
    ir_dim_node n = {.op = (uint8_t)op, .a = a.id, .b = b.id, .atom = atom};

    n.size = 1u + g->dims.data[a.id].size + g->dims.data[b.id].size;
    set_range(g, &n);
    return intern(g, &n, out);
}

air_status
ir_dim_const(ir_graph *g, int64_t v, air_dim *out)
{
    ir_dim_node n = {
        .op = IR_DIM_CONST, .value = v, .min = v, .max = v, .size = 1};
    return intern(g, &n, out);
}

air_status
ir_dim_symbol(ir_graph *g, const char *name, int64_t min, int64_t max,
              int64_t hint, air_dim *out)
{
    size_t len = strlen(name);
    uint32_t id;
    ir_symbol symbol = {.min = min, .max = max, .hint = hint};
    ir_dim_node n = {.op = IR_DIM_SYMBOL, .min = min, .max = max, .size = 1};

    /* An addition that failed may have left its name behind. */
    if (base_map_find(&g->symbol_map, name, len, &id) &&
        id < g->symbols.count && strcmp(g->symbols.data[id].name, name) == 0) {
        *out = g->symbols.data[id].dim;
        return AIR_OK;
    }
    AIR_REQUIRE(min <= max, AIR_ERROR_ARGUMENT,
                "symbol %s: the range [%" PRId64 ", %" PRId64 "] is empty",
                name, min, max);
    id = (uint32_t)g->symbols.count;
    n.a = id;
    AIR_TRY(base_arena_str(&g->arena, name, len, &symbol.name));
    AIR_TRY(BASE_RESERVE(g->alloc, &g->symbols, g->symbols.count + 1));
    AIR_TRY(base_map_put(&g->symbol_map, name, len, id));
    AIR_TRY(intern(g, &n, out));
    symbol.dim = *out;
    g->symbols.data[g->symbols.count++] = symbol;
    return AIR_OK;
}

bool
ir_dim_is_const(const ir_graph *g, air_dim d, int64_t *out)
{
    const ir_dim_node *n = &g->dims.data[d.id];
    if (n->op != IR_DIM_CONST)
        return false;
    *out = n->value;
    return true;
}

/* ---- making expressions -------------------------------------------------- */

/* a - floor_div(a, b) * b, of which the product may overflow. */
static int64_t
floor_mod(int64_t a, int64_t b)
{
    const int64_t rest = a % b;

    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* False: overflow or division by zero. */
static bool
fold(ir_dim_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case IR_DIM_ADD: return base_add_i64(a, b, out);
    case IR_DIM_SUB: return b != INT64_MIN && base_add_i64(a, -b, out);
    case IR_DIM_MUL: return base_mul_i64(a, b, out);
    case IR_DIM_DIV:
    case IR_DIM_MOD:
        if (b == 0 || (a == INT64_MIN && b == -1))
            return false;
        *out = op == IR_DIM_DIV ? dim_floor_div(a, b) : floor_mod(a, b);
        return true;
    case IR_DIM_MIN: *out = min_i64(a, b); return true;
    case IR_DIM_MAX: *out = max_i64(a, b); return true;
    case IR_DIM_CONST:
    case IR_DIM_SYMBOL: break;
    }
    return false;
}

static air_status
fail_fold(ir_dim_op op, int64_t a, int64_t b)
{
    if ((op == IR_DIM_DIV || op == IR_DIM_MOD) && b == 0)
        AIR_FAIL(AIR_ERROR_ARGUMENT, "a size expression divides by zero");
    AIR_FAIL(AIR_ERROR_ARGUMENT,
             "a size expression overflows 64 bits (%" PRId64 ", %" PRId64 ")",
             a, b);
}

static air_status
make_extremum(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, air_dim *out)
{
    air_dim diff;
    const ir_dim_node *d, *x = &g->dims.data[a.id], *y = &g->dims.data[b.id];

    /* a slice's end of INT64_MAX means all: no difference shows that */
    if (x->max <= y->min || y->max <= x->min) {
        *out = (x->max <= y->min) == (op == IR_DIM_MIN) ? a : b;
        return AIR_OK;
    }
    air_status status = dim_poly_make(g, IR_DIM_SUB, a, b, &diff);
    if (status == AIR_ERROR_MEMORY)
        return status;
    if (status == AIR_OK) {
        d = &g->dims.data[diff.id];
        if (d->min >= 0 || d->max <= 0) {
            *out = (d->min >= 0) == (op == IR_DIM_MAX) ? a : b;
            return AIR_OK;
        }
    }
    if (dim_compare(g, a, b) > 0)
        return dim_node(g, op, b, a, true, out);
    return dim_node(g, op, a, b, true, out);
}

air_status
ir_dim_make(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, air_dim *out)
{
    int64_t x, y, r;
    bool cx = ir_dim_is_const(g, a, &x), cy = ir_dim_is_const(g, b, &y);

    assert(op >= IR_DIM_ADD && op <= IR_DIM_MAX);
    if (cx && cy) {
        if (!fold(op, x, y, &r))
            return fail_fold(op, x, y);
        return ir_dim_const(g, r, out);
    }
    if (cy && y == 0 && (op == IR_DIM_DIV || op == IR_DIM_MOD))
        return fail_fold(op, 0, 0);
    if (op == IR_DIM_MIN || op == IR_DIM_MAX)
        return make_extremum(g, op, a, b, out);
    if (op == IR_DIM_DIV || op == IR_DIM_MOD)
        return dim_poly_divide(g, op, a, b, out);
    return dim_poly_make(g, op, a, b, out);
}

air_status
ir_dim_product(ir_graph *g, int rank, const air_dim *dims, air_dim *out)
{
    int64_t v, k = 1;
    air_dim acc = {0};
    bool symbolic = false;

    for (int i = 0; i < rank; i++) {
        if (ir_dim_is_const(g, dims[i], &v)) {
            if (!base_mul_i64(k, v, &k))
                return fail_fold(IR_DIM_MUL, k, v);
            continue;
        }
        if (symbolic)
            AIR_TRY(ir_dim_make(g, IR_DIM_MUL, acc, dims[i], &acc));
        else
            acc = dims[i];
        symbolic = true;
    }
    AIR_TRY(ir_dim_const(g, k, out));
    return symbolic ? ir_dim_make(g, IR_DIM_MUL, acc, *out, out) : AIR_OK;
}

/* ---- order: independent of when an expression was made ------------------- */

int
dim_compare(const ir_graph *g, air_dim x, air_dim y)
{
    const ir_dim_node *a = &g->dims.data[x.id], *b = &g->dims.data[y.id];
    int c;

    if (x.id == y.id)
        return 0;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    if (a->op == IR_DIM_SYMBOL)
        return strcmp(g->symbols.data[a->a].name, g->symbols.data[b->a].name);
    if (a->op == IR_DIM_CONST)
        return a->value < b->value ? -1 : 1;
    c = dim_compare(g, (air_dim){a->a}, (air_dim){b->a});
    return c ? c : dim_compare(g, (air_dim){a->b}, (air_dim){b->b});
}

/* ---- values -------------------------------------------------------------- */

static air_status
eval_node(const ir_graph *g, const ir_dim_node *n, const int64_t *symbols,
          int64_t a, int64_t b, int64_t *out)
{
    (void)g;
    if (n->op == IR_DIM_CONST)
        *out = n->value;
    else if (n->op == IR_DIM_SYMBOL)
        *out = symbols[n->a];
    else if (!fold((ir_dim_op)n->op, a, b, out))
        return fail_fold((ir_dim_op)n->op, a, b);
    return AIR_OK;
}

air_status
ir_dim_eval(const ir_graph *g, air_dim d, const int64_t *symbols, int64_t *out)
{
    const ir_dim_node *n = &g->dims.data[d.id];
    int64_t a = 0, b = 0;

    if (n->op > IR_DIM_SYMBOL) {
        AIR_TRY(ir_dim_eval(g, (air_dim){n->a}, symbols, &a));
        AIR_TRY(ir_dim_eval(g, (air_dim){n->b}, symbols, &b));
    }
    return eval_node(g, n, symbols, a, b, out);
}

air_status
ir_dim_eval_all(const ir_graph *g, const int64_t *symbols, int64_t *out)
{
    for (size_t i = 0; i < g->dims.count; i++) {
        const ir_dim_node *n = &g->dims.data[i];
        bool leaf = n->op <= IR_DIM_SYMBOL;
        AIR_TRY(eval_node(g, n, symbols, leaf ? 0 : out[n->a],
                          leaf ? 0 : out[n->b], &out[i]));
    }
    for (size_t i = 0; i < g->equals.count; i++) {
        const ir_equal *e = &g->equals.data[i];
        AIR_REQUIRE(out[e->a.id] == out[e->b.id], AIR_ERROR_SHAPE,
                    "%s: sizes %" PRId64 " and %" PRId64 " must be equal",
                    e->op, out[e->a.id], out[e->b.id]);
    }
    return AIR_OK;
}

static air_status
add_equal(ir_graph *g, const char *op, air_dim a, air_dim b)
{
    ir_equal e = {a, b, op};

    for (size_t i = 0; i < g->equals.count; i++)
        if (ir_dim_eq(g->equals.data[i].a, a) &&
            ir_dim_eq(g->equals.data[i].b, b))
            return AIR_OK;
    return BASE_PUSH(g->alloc, &g->equals, e);
}

static air_status
fail_unequal(const ir_graph *g, const char *op, air_dim a, air_dim b)
{
    const ir_dim_node *x = &g->dims.data[a.id], *y = &g->dims.data[b.id];

    if (x->op == IR_DIM_CONST && y->op == IR_DIM_CONST)
        AIR_FAIL(AIR_ERROR_SHAPE,
                 "%s: sizes %" PRId64 " and %" PRId64 " must be equal", op,
                 x->value, y->value);
    AIR_FAIL(AIR_ERROR_SHAPE, "%s: two sizes can never be equal", op);
}

air_status
ir_dim_unify(ir_graph *g, const char *op, air_dim a, air_dim b, air_dim *out)
{
    const ir_dim_node *x = &g->dims.data[a.id], *y = &g->dims.data[b.id];
    bool second = y->size < x->size || y->op < x->op;

    if (ir_dim_eq(a, b)) {
        *out = a;
        return AIR_OK;
    }
    if (x->max < y->min || y->max < x->min)
        return fail_unequal(g, op, a, b);
    AIR_TRY(add_equal(g, op, a, b));
    *out = second ? b : a;
    return AIR_OK;
}

/* ---- text ---------------------------------------------------------------- */

static const char *const op_text[] = {"",   "",  " + ", " - ", "*",
                                      "//", "%", "min", "max"};
static const int op_level[] = {9, 9, 1, 1, 2, 2, 2, 9, 9};

static void
print_level(const ir_graph *g, air_dim d, int level, base_text *out)
{
    const ir_dim_node *n = &g->dims.data[d.id];
    int own = op_level[n->op];

    if (n->op == IR_DIM_CONST) {
        base_text_add(out, "%" PRId64, n->value);
    } else if (n->op == IR_DIM_SYMBOL) {
        base_text_add(out, "%s", g->symbols.data[n->a].name);
    } else if (n->op >= IR_DIM_MIN) {
        base_text_add(out, "%s(", op_text[n->op]);
        print_level(g, (air_dim){n->a}, 0, out);
        base_text_add(out, ", ");
        print_level(g, (air_dim){n->b}, 0, out);
        base_text_add(out, ")");
    } else {
        base_text_add(out, "%s", own < level ? "(" : "");
        print_level(g, (air_dim){n->a}, own, out);
        base_text_add(out, "%s", op_text[n->op]);
        print_level(g, (air_dim){n->b}, own + 1, out);
        base_text_add(out, "%s", own < level ? ")" : "");
    }
}

void
ir_dim_print(const ir_graph *g, air_dim d, base_text *out)
{
    print_level(g, d, 0, out);
}
