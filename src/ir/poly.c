/* poly.c: the normal form of size expressions: a sum of terms, each a constant
 * times a product of atoms. Terms go by falling degree, then by their atoms;
 * the constant is last. What grows beyond the fixed room stays as it was made
 * (an atom), which costs simplification and never correctness. */
#include <string.h>

#include "ir/dim.h"

#define MAX_TERMS 12
#define MAX_ATOMS 8

typedef struct {
    int64_t coef;
    int natoms;
    uint32_t atoms[MAX_ATOMS]; /* in dim_compare order */
} term;

typedef struct {
    int count;
    term terms[MAX_TERMS];
} poly;

static int
compare_terms(const ir_graph *g, const term *a, const term *b)
{
    if (a->natoms != b->natoms)
        return a->natoms > b->natoms ? -1 : 1;
    for (int i = 0; i < a->natoms; i++) {
        int c = dim_compare(g, (air_dim){a->atoms[i]}, (air_dim){b->atoms[i]});
        if (c)
            return c;
    }
    return 0;
}

/* Adds t to p, keeping the order. False: no room, or overflow. */
static bool
add_term(const ir_graph *g, poly *p, const term *t)
{
    int at = 0, c = 1;

    if (t->coef == 0)
        return true;
    while (at < p->count && (c = compare_terms(g, &p->terms[at], t)) < 0)
        at++;
    if (at < p->count && c == 0) {
        term *have = &p->terms[at];
        if (!base_add_i64(have->coef, t->coef, &have->coef))
            return false;
        if (have->coef == 0) {
            p->count--;
            memmove(have, have + 1, (size_t)(p->count - at) * sizeof *have);
        }
        return true;
    }
    if (p->count == MAX_TERMS)
        return false;
    memmove(&p->terms[at + 1], &p->terms[at],
            (size_t)(p->count - at) * sizeof *t);
    p->terms[at] = *t;
    p->count++;
    return true;
}

static bool
mul_terms(const ir_graph *g, const term *a, const term *b, term *out)
{
    int i = 0, j = 0;

    if (!base_mul_i64(a->coef, b->coef, &out->coef) ||
        a->natoms + b->natoms > MAX_ATOMS)
        return false;
    out->natoms = 0;
    while (i < a->natoms || j < b->natoms) {
        bool left = j == b->natoms ||
                    (i < a->natoms && dim_compare(g, (air_dim){a->atoms[i]},
                                                  (air_dim){b->atoms[j]}) <= 0);
        out->atoms[out->natoms++] = left ? a->atoms[i++] : b->atoms[j++];
    }
    return true;
}

static bool
mul_polys(const ir_graph *g, const poly *a, const poly *b, poly *out)
{
    out->count = 0;
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++) {
            term t;
            if (!mul_terms(g, &a->terms[i], &b->terms[j], &t) ||
                !add_term(g, out, &t))
                return false;
        }
    return true;
}

static bool
add_polys(const ir_graph *g, poly *a, const poly *b, int64_t sign)
{
    for (int i = 0; i < b->count; i++) {
        term t = b->terms[i];
        if (!base_mul_i64(t.coef, sign, &t.coef) || !add_term(g, a, &t))
            return false;
    }
    return true;
}

static bool to_poly(const ir_graph *g, air_dim d, poly *out);

static bool
combine(const ir_graph *g, ir_dim_op op, air_dim a, air_dim b, poly *out)
{
    poly x, y;

    if (!to_poly(g, a, &x) || !to_poly(g, b, &y))
        return false;
    if (op == IR_DIM_MUL)
        return mul_polys(g, &x, &y, out);
    *out = x;
    return add_polys(g, out, &y, op == IR_DIM_SUB ? -1 : 1);
}

static bool
to_poly(const ir_graph *g, air_dim d, poly *out)
{
    const ir_dim_node *n = &g->dims.data[d.id];

    out->count = 0;
    if (n->op == IR_DIM_CONST)
        return add_term(g, out, &(term){.coef = n->value});
    if (!n->atom && n->op >= IR_DIM_ADD && n->op <= IR_DIM_MUL)
        return combine(g, (ir_dim_op)n->op, (air_dim){n->a}, (air_dim){n->b},
                       out);
    return add_term(g, out, &(term){.coef = 1, .natoms = 1, .atoms = {d.id}});
}

/* coef * atom * atom ... */
static air_status
from_term(ir_graph *g, const term *t, int64_t coef, air_dim *out)
{
    int i = 0;

    if (coef == 1 && t->natoms > 0)
        out->id = t->atoms[i++];
    else
        AIR_TRY(ir_dim_const(g, coef, out));
    for (; i < t->natoms; i++)
        AIR_TRY(
            dim_node(g, IR_DIM_MUL, *out, (air_dim){t->atoms[i]}, false, out));
    return AIR_OK;
}

/* The first term with a positive coefficient leads, so that sums read well. */
static int
leading_term(const poly *p)
{
    for (int i = 0; i < p->count; i++)
        if (p->terms[i].coef > 0)
            return i;
    return 0;
}

static air_status
from_poly(ir_graph *g, const poly *p, air_dim *out)
{
    int lead = leading_term(p);
    air_dim sum, t;

    if (p->count == 0)
        return ir_dim_const(g, 0, out);
    AIR_TRY(from_term(g, &p->terms[lead], p->terms[lead].coef, &sum));
    for (int i = 0; i < p->count; i++) {
        int64_t coef = p->terms[i].coef;
        bool minus = coef < 0 && coef != INT64_MIN;
        if (i == lead)
            continue;
        AIR_TRY(from_term(g, &p->terms[i], minus ? -coef : coef, &t));
        AIR_TRY(
            dim_node(g, minus ? IR_DIM_SUB : IR_DIM_ADD, sum, t, false, &sum));
    }
    *out = sum;
    return AIR_OK;
}

air_status
dim_poly_make(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, air_dim *out)
{
    poly p;

    if (!combine(g, op, a, b, &p))
        return dim_node(g, op, a, b, true, out);
    return from_poly(g, &p, out);
}

/* ---- // and % ------------------------------------------------------------ */

/* a = quotient * d + rest, both single terms. A constant above 0 divides every
 * coefficient, rounding down; other divisors divide exactly or not at all. */
static void
divide_term(const term *a, const term *d, term *quotient, term *rest)
{
    int j = 0;

    *quotient = *rest = *a;
    if (d->natoms == 0 && d->coef > 0) {
        quotient->coef = dim_floor_div(a->coef, d->coef);
        rest->coef = a->coef - quotient->coef * d->coef;
        return;
    }
    quotient->coef = a->coef / d->coef;
    quotient->natoms = 0;
    for (int i = 0; i < a->natoms; i++) {
        if (j < d->natoms && a->atoms[i] == d->atoms[j])
            j++;
        else
            quotient->atoms[quotient->natoms++] = a->atoms[i];
    }
    if (j == d->natoms && a->coef % d->coef == 0)
        rest->coef = 0;
    else
        quotient->coef = 0;
}

/* p = quotient * d + rest */
static bool
divide_poly(const ir_graph *g, const poly *p, const term *d, poly *quotient,
            poly *rest)
{
    quotient->count = rest->count = 0;
    for (int i = 0; i < p->count; i++) {
        term q, r;
        if (p->terms[i].coef == INT64_MIN)
            return false;
        divide_term(&p->terms[i], d, &q, &r);
        if (!add_term(g, quotient, &q) || !add_term(g, rest, &r))
            return false;
    }
    return true;
}

/* Is 0 <= rest < d for all values of the symbols? */
static bool
is_remainder(ir_graph *g, air_dim rest, air_dim d)
{
    const ir_dim_node *r = &g->dims.data[rest.id], *n = &g->dims.data[d.id];
    return r->min >= 0 && r->max < n->min;
}

/* (x // a) // b is x // (a * b) for constants above 0. */
static air_status
make_div(ir_graph *g, air_dim a, air_dim b, air_dim *out)
{
    const ir_dim_node *n = &g->dims.data[a.id];
    int64_t x, y, xy;

    if (n->op == IR_DIM_DIV && ir_dim_is_const(g, b, &y) && y > 0 &&
        ir_dim_is_const(g, (air_dim){n->b}, &x) && x > 0 &&
        base_mul_i64(x, y, &xy)) {
        air_dim inner = {n->a};
        AIR_TRY(ir_dim_const(g, xy, &b));
        return dim_poly_divide(g, IR_DIM_DIV, inner, b, out);
    }
    return dim_node(g, IR_DIM_DIV, a, b, true, out);
}

/* One equation for both: rest is what d does not divide exactly, so
 * a // d = quotient + rest // d and a % d = rest % d. */
static air_status
divide_parts(ir_graph *g, ir_dim_op op, const poly *quotient, const poly *rest,
             air_dim d, air_dim *out)
{
    air_dim q, r;

    AIR_TRY(from_poly(g, quotient, &q));
    AIR_TRY(from_poly(g, rest, &r));
    if (is_remainder(g, r, d)) {
        *out = op == IR_DIM_DIV ? q : r;
        return AIR_OK;
    }
    if (op == IR_DIM_MOD)
        return dim_node(g, IR_DIM_MOD, r, d, true, out);
    AIR_TRY(make_div(g, r, d, &r));
    return ir_dim_make(g, IR_DIM_ADD, q, r, out);
}

/* A symbolic divisor might be zero, which must stay an error of evaluation;
 * taking it out is right only where its range says it cannot be. */
air_status
dim_poly_divide(ir_graph *g, ir_dim_op op, air_dim a, air_dim b, air_dim *out)
{
    const ir_dim_node *n = &g->dims.data[b.id];
    bool nonzero = n->min > 0 || n->max < 0;
    poly p, d, quotient, rest;

    if (nonzero && to_poly(g, a, &p) && to_poly(g, b, &d) && d.count == 1 &&
        divide_poly(g, &p, &d.terms[0], &quotient, &rest))
        return divide_parts(g, op, &quotient, &rest, b, out);
    return dim_node(g, op, a, b, true, out);
}
