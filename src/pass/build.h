/* build.h: writing the nodes of a rewrite as expressions.
 *
 *     pass_build b = build_at(ctx, node);
 *     air_ref e = b_exp(&b, b_sub(&b, x, b_amax(&b, x, 1, &dim)));
 *     return build_forward(&b, node, 0, e);
 *
 * Nodes go in front of `node` and carry its source location and limit. The
 * first failure sticks: later calls do nothing and give AIR_NO_REF. What was
 * added by then is dead code in a valid graph.
 */
#ifndef PASS_BUILD_H
#define PASS_BUILD_H

#include "pass/pass.h"

typedef struct {
    pass_context *ctx;
    ir_graph *g;
    uint32_t before;
    const char *loc;
    ir_scope scope;
    air_status status;
} pass_build;

pass_build build_at(pass_context *ctx, uint32_t node);
/* Result `index` of `node` is replaced by `to`, cast to that result's dtype;
 * checks that the sizes agree. */
air_status build_forward(pass_build *b, uint32_t node, int index, air_ref to);

/* ---- attributes ---------------------------------------------------------- */

static inline air_attr
at_value(air_ref r)
{
    if (r.id == AIR_NO_REF.id)
        return (air_attr){.kind = AIR_ATTR_NONE};
    return (air_attr){.kind = AIR_ATTR_VALUE, .value = r};
}
static inline air_attr
at_dim(air_dim d)
{
    return (air_attr){.kind = AIR_ATTR_INT, .dim = d};
}
static inline air_attr
at_float(double f)
{
    return (air_attr){.kind = AIR_ATTR_FLOAT, .f = f};
}
static inline air_attr
at_bool(bool v)
{
    return (air_attr){.kind = AIR_ATTR_BOOL, .b = v};
}
static inline air_attr
at_dtype(air_dtype d)
{
    return (air_attr){.kind = AIR_ATTR_DTYPE, .dtype = d};
}
static inline air_attr
at_dims(size_t n, const air_dim *dims)
{
    return (air_attr){.kind = AIR_ATTR_INTS, .count = n, .dims = dims};
}
air_attr at_int(pass_build *b, int64_t v);
air_attr at_ints(pass_build *b, size_t n, const int *v);
air_attr at_values(pass_build *b, size_t n, const air_ref *v);

/* ---- nodes --------------------------------------------------------------- */

/* op: a name of the op table; it must be a row (UNSUPPORTED otherwise). */
void b_node(pass_build *b, const char *op, size_t n, const air_attr *attrs,
            size_t nouts, air_ref *outs);
air_ref b_op(pass_build *b, const char *op, size_t n, const air_attr *attrs);
#define B_OP(b, op, ...)                                             \
    b_op((b), (op),                                                  \
         sizeof((const air_attr[]){__VA_ARGS__}) / sizeof(air_attr), \
         (const air_attr[]){__VA_ARGS__})

air_ref b_1(pass_build *b, const char *op, air_ref x);
air_ref b_2(pass_build *b, const char *op, air_ref x, air_ref y);
air_ref b_2f(pass_build *b, const char *op, air_ref x, double y);
air_ref b_add(pass_build *b, air_ref x, air_ref y);
air_ref b_sub(pass_build *b, air_ref x, air_ref y);
air_ref b_mul(pass_build *b, air_ref x, air_ref y);
air_ref b_div(pass_build *b, air_ref x, air_ref y);
/* x * y + z, rounded once */
air_ref b_fma(pass_build *b, air_ref x, air_ref y, air_ref z);
air_ref b_addf(pass_build *b, air_ref x, double y);
air_ref b_mulf(pass_build *b, air_ref x, double y);
air_ref b_rsubf(pass_build *b, double x, air_ref y); /* x - y */
/* x over a size expression, true division. */
air_ref b_divd(pass_build *b, air_ref x, air_dim d);
air_ref b_muld(pass_build *b, air_ref x, air_dim d);
air_ref b_exp(pass_build *b, air_ref x);
air_ref b_sqrt(pass_build *b, air_ref x);
air_ref b_where(pass_build *b, air_ref cond, air_ref x, air_ref y);
/* where(cond, x, y) with a number. */
air_ref b_wheref(pass_build *b, air_ref cond, air_ref x, double y);
air_ref b_cast(pass_build *b, air_ref x, air_dtype dtype);
/* bf16 and f16 to f32, what ATen computes them in; others unchanged. */
air_ref b_wide(pass_build *b, air_ref x);
air_ref b_fullf(pass_build *b, int rank, const air_dim *dims, double v,
                air_dtype dtype);

/* Over n axes, which stay as size 1 where keep is set; no axes: x itself. */
air_ref b_sum(pass_build *b, air_ref x, int n, const int *axes, bool keep);
air_ref b_amax(pass_build *b, air_ref x, int n, const int *axes, bool keep);
air_ref b_amin(pass_build *b, air_ref x, int n, const int *axes, bool keep);

air_ref b_view(pass_build *b, air_ref x, int rank, const air_dim *dims);
air_ref b_expand(pass_build *b, air_ref x, int rank, const air_dim *dims);
air_ref b_permute(pass_build *b, air_ref x, int rank, const int *order);
air_ref b_unsqueeze(pass_build *b, air_ref x, int axis);
/* x[start : end] along an axis. */
air_ref b_slice(pass_build *b, air_ref x, int axis, air_dim start, air_dim end);
/* Of the last axis, from element `first` on; x where that is of one. */
air_ref b_every_other(pass_build *b, air_ref x, int64_t first);
/* A vector as a tensor of `rank` whose axis `axis` it is, others of size 1. */
air_ref b_along(pass_build *b, air_ref x, int rank, int axis);

air_dim b_dim(pass_build *b, int64_t v);
air_dim b_dim2(pass_build *b, ir_dim_op op, air_dim x, air_dim y);
/* The product of the sizes of the axes. */
air_dim b_count(pass_build *b, air_ref x, int n, const int *axes);

/* ---- reading the node that is rewritten ---------------------------------- */

static inline const air_attr *
node_attr(const ir_graph *g, uint32_t node, int i)
{
    return &ir_node_at(g, node)->attrs[i];
}
/* AIR_NO_REF when absent. */
air_ref node_in(const ir_graph *g, uint32_t node, int i);
static inline air_ref
node_out(const ir_graph *g, uint32_t node, int i)
{
    return ir_node_at(g, node)->outs[i];
}
bool node_flag(const ir_graph *g, uint32_t node, int i);
/* A number known now; UNSUPPORTED when it is a size expression. */
air_status node_number(const ir_graph *g, uint32_t node, int i, double *out);
air_status node_int(const ir_graph *g, uint32_t node, int i, int64_t *out);
/* Axes of a list attribute, normalised and sorted; absent or empty: all. */
air_status node_axes(const ir_graph *g, uint32_t node, int i, int rank,
                     int *out_n, int *out_axes);

#endif
