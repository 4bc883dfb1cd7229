/* canon_scatter.c: a sum of zeros that one part each was written to.
 *
 * That is the gradient of a tensor whose parts a[0], a[1], ... are used: where
 * each is written once, they side by side. */
#include "pass/canon.h"

enum { PARTS = 16 };

typedef struct {
    air_ref part[PARTS];
    int64_t parts, found;
    int axis;
} sum_of_parts;

static bool
is_zeros(const ir_graph *g, air_ref r)
{
    const ir_node *made = pass_made_by(g, r, "full");
    return made != NULL && made->attrs[1].kind == AIR_ATTR_FLOAT &&
           made->attrs[1].f == 0.0;
}

/* The axis of (zeros, src, dim, index), and which part of it src is. */
static bool
read_part(const ir_graph *g, const ir_node *made, int64_t *axis, int64_t *index,
          int64_t *parts)
{
    const ir_value *out = ir_val(g, made->outs[0]);

    if (!is_zeros(g, made->attrs[0].value) ||
        !pass_int(g, &made->attrs[2], axis) ||
        !pass_int(g, &made->attrs[3], index))
        return false;
    *axis += *axis < 0 ? out->rank : 0;
    const air_attr size = at_dim(out->dims[*axis]);
    if (!pass_int(g, &size, parts))
        return false;
    *index += *index < 0 ? *parts : 0;
    return *index >= 0 && *index < *parts && *parts <= PARTS;
}

static bool
add_part(const ir_graph *g, const ir_node *made, sum_of_parts *s)
{
    int64_t axis, index, parts;

    if (!read_part(g, made, &axis, &index, &parts))
        return false;
    if (s->found == 0) {
        s->axis = (int)axis;
        s->parts = parts;
    }
    if (axis != s->axis || s->part[index].id != AIR_NO_REF.id)
        return false;
    s->part[index] = made->attrs[1].value;
    s->found++;
    return true;
}

static bool
is_plain_sum(const ir_graph *g, const ir_node *sum)
{
    double alpha;

    return sum->attrs[0].kind == AIR_ATTR_VALUE &&
           sum->attrs[1].kind == AIR_ATTR_VALUE &&
           pass_number(g, &sum->attrs[2], &alpha) && alpha == 1.0;
}

/* All terms of a sum; each sum is one, so that depth is at most PARTS. */
static bool
add_terms(const ir_graph *g, air_ref r, air_ref like, sum_of_parts *s,
          int depth)
{
    const ir_node *sum = pass_made_by(g, r, "add.Tensor");
    const ir_node *part = pass_made_by(g, r, "select_scatter");

    if (depth > PARTS || !pass_same_dims(g, r, like) ||
        ir_val(g, r)->dtype != ir_val(g, like)->dtype)
        return false;
    if (part != NULL)
        return add_part(g, part, s);
    return sum != NULL && is_plain_sum(g, sum) &&
           add_terms(g, sum->attrs[0].value, like, s, depth + 1) &&
           add_terms(g, sum->attrs[1].value, like, s, depth + 1);
}

/* -0.0 + 0.0 is 0.0, which counts in exact mode. */
air_status
canon_sum_of_parts(pass_context *ctx, uint32_t node, bool *done)
{
    const air_ref out = node_out(ctx->g, node, 0);
    const air_dtype dtype = (air_dtype)ir_val(ctx->g, out)->dtype;
    const bool zero = pass_exact(ctx) && ir_is_float(dtype);
    sum_of_parts s = {.found = 0};

    for (int i = 0; i < PARTS; i++)
        s.part[i] = AIR_NO_REF;
    *done = add_terms(ctx->g, out, out, &s, 0) && s.found == s.parts &&
            pass_allow(ctx);
    if (!*done)
        return AIR_OK;
    pass_build b = build_at(ctx, node);
    for (int64_t i = 0; i < s.parts; i++)
        s.part[i] = b_unsqueeze(&b, s.part[i], s.axis);
    air_ref all = B_OP(&b, "cat", at_values(&b, (size_t)s.parts, s.part),
                       at_int(&b, s.axis));
    return build_forward(&b, node, 0, zero ? b_addf(&b, all, 0.0) : all);
}
