/* fuse_node.c: nodes of regions as text of a group: calls of the functions in
 * the prelude that the codegen layer gives with each region. Node 7 is n7,
 * scalar 2 is s2, what a thread folded of it t2. */
#include <math.h>

#include "base/prims.h"
#include "driver/cuda/fuse_text.h"

static const char *const dtype_names[AIR_DTYPE_COUNT] = {
#define DTYPE(id, ...) [AIR_##id] = #id,
#include "air_dtypes.def"
#undef DTYPE
};

const char *
fuse_dtype(int dtype)
{
    return dtype_names[dtype];
}

const char *
fuse_lane(const air_rg_node *n)
{
    return n->lane == AIR_LANE_B ? "b" : "f32";
}

const char *
fuse_type(const air_rg_node *n)
{
    return n->lane == AIR_LANE_B ? "bool" : "float";
}

void
fuse_put_operand(fuse_printer *p, const air_region *rg, int node)
{
    const air_rg_node *n = &rg->nodes[node];
    if (n->op != AIR_RG_CONST)
        base_text_add(&p->body, "n%d", node);
    else if (n->lane == AIR_LANE_B)
        base_text_add(&p->body, n->i != 0 ? "true" : "false");
    else if (isfinite(n->k))
        base_text_add(&p->body, "%af", (double)(float)n->k);
    else
        base_text_add(&p->body, "__uint_as_float(0x%xu)",
                      isnan(n->k) ? 0x7fc00000U
                      : n->k > 0  ? 0x7f800000U
                                  : 0xff800000U);
}

static bool
is_compare(unsigned op)
{
    return op == AIR_RG_LT || op == AIR_RG_LE || op == AIR_RG_EQ ||
           op == AIR_RG_NE;
}

void
fuse_put_call(fuse_printer *p, const air_region *rg, const air_rg_node *n)
{
    const int16_t operands[3] = {n->a, n->b, n->c};
    const air_rg_node *lane = is_compare(n->op) ? &rg->nodes[n->a] : n;
    base_text_add(&p->body, "%s::%s(", fuse_lane(lane),
                  n->op == AIR_RG_CVT ? "of" : base_prim_name(n->op));
    for (int i = 0; i < base_prim_arity(n->op); i++) {
        base_text_add(&p->body, i > 0 ? ", " : "");
        fuse_put_operand(p, rg, operands[i]);
    }
    base_text_add(&p->body, ")");
}

/* Does the buffer reach further than 32 bits count? */
static bool
is_far(const air_region *rg, const air_rg_buf *b)
{
    int64_t reach = 0;
    for (int a = 0; a < rg->rank; a++)
        reach += (rg->dims[a] - 1) * b->strides[a];
    return reach > INT32_MAX;
}

/* ` + index * stride`, the index k or c of an axis, which are ints. */
static void
put_step(fuse_printer *p, int axis, int64_t stride, bool far)
{
    if (axis < 0)
        base_text_add(&p->body, " + k * %" PRId64, stride);
    else
        base_text_add(&p->body, " + c%d * %" PRId64, axis, stride);
    base_text_add(&p->body, far ? "ll" : "");
}

/* ` + ...` of the buffer at the index c0, c1, ...; a row: at k. */
void
fuse_put_offset(fuse_printer *p, const air_region *rg, int buf, bool row)
{
    const air_rg_buf *b = &rg->bufs[buf];
    const int last = rg->rank - 1;
    for (int a = 0; a < rg->rank; a++)
        if (rg->dims[a] > 1 && b->strides[a] != 0 && (!row || a == last))
            put_step(p, row ? -1 : a, b->strides[a], is_far(rg, b));
}

void
fuse_put_element(fuse_printer *p, const air_region *rg, int buf, bool row)
{
    base_text_add(&p->body, "p%d[0", p->first[p->step] + buf);
    fuse_put_offset(p, rg, buf, row);
    base_text_add(&p->body, "]");
}

/* A store, given how the element is written and when. */
void
fuse_put_value(fuse_printer *p, const air_region *rg, const air_rg_node *n)
{
    const int dtype = rg->bufs[n->buf].dtype;
    base_text_add(&p->body, "air_to_%s(%s::of(", fuse_dtype(dtype),
                  dtype == AIR_BOOL ? "b" : "f32");
    fuse_put_operand(p, rg, n->a);
    base_text_add(&p->body, "));\n");
}
