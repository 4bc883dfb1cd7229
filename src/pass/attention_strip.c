/* attention_strip.c: through what changes no element of an operand of
 * attention, or multiplies it by a number. */
#include "pass/attention.h"

#include <string.h>

const ir_node *
attention_made_by(const ir_graph *g, air_ref r, const char *const *names)
{
    const ir_node *n = pass_producer(g, r);

    if (!n || n->op == AIR_OP_HOST)
        return NULL;
    for (; *names; names++)
        if (strcmp(ir_info(n)->name, *names) == 0)
            return n;
    return NULL;
}

bool
attention_used_once(const attention *m, air_ref r)
{
    return r.id < m->nuses && m->uses[r.id] == 1;
}

/* Through what changes neither a value's elements nor their order: the casts
 * alone, or views and copies too. */
static air_ref
strip_names(const attention *m, air_ref r, const char *const *names)
{
    const ir_node *n;

    while (attention_used_once(m, r) &&
           (n = attention_made_by(m->g, r, names)) != NULL) {
        air_ref x = n->attrs[0].value;
        if (!ir_is_float((air_dtype)ir_val(m->g, x)->dtype))
            break;
        r = x;
    }
    return r;
}

air_ref
attention_strip(const attention *m, air_ref r)
{
    static const char *const names[] = {"view", "clone", "_to_copy", NULL};
    return strip_names(m, r, names);
}

air_ref
attention_strip_casts(const attention *m, air_ref r)
{
    static const char *const names[] = {"_to_copy", NULL};
    return strip_names(m, r, names);
}

bool
attention_number(const ir_graph *g, const air_attr *attr, double *out)
{
    if (attr->kind == AIR_ATTR_VALUE) {
        const ir_node *full = pass_made_by(g, attr->value, "full");
        if (!full)
            return false;
        attr = &full->attrs[1];
    }
    return pass_number(g, attr, out);
}

/* x * number or x / number: takes the number into the scale. */
air_ref
attention_strip_scale(attention *m, air_ref r)
{
    static const char *const names[] = {"mul.Tensor", "div.Tensor", NULL};
    const ir_node *n = attention_made_by(m->g, r, names);
    double factor;

    if (!n || !attention_used_once(m, r) ||
        n->attrs[0].kind != AIR_ATTR_VALUE ||
        !attention_number(m->g, &n->attrs[1], &factor) || factor == 0.0 ||
        !pass_same_dims(m->g, n->attrs[0].value, r))
        return r;
    m->scale *= ir_info(n)->name[0] == 'm' ? factor : 1.0 / factor;
    return n->attrs[0].value;
}

air_dtype
attention_dtype(const attention *m, air_ref r)
{
    return (air_dtype)ir_val(m->g, r)->dtype;
}
