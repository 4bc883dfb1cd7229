/* ends.c: what only results need (what a forward keeps for its backward, in
 * another type or order) stands at the end of a graph as AOTAutograd writes it,
 * and large values that nothing else reads by then would stay in memory. */
#include "exec/ends.h"

#define LARGE ((int64_t)1 << 20) /* bytes */

/* What runs only once is left where it is, as HOST nodes are. */
static ir_class
class_of(const exec_ends *e, uint32_t unit)
{
    const ir_node *n = ir_node_at(e->g, e->units.data[unit].nodes[0]);

    return n->op == AIR_OP_HOST || n->once ? IR_CLASS_HOST
                                           : (ir_class)ir_info(n)->cls;
}

static bool
may_be_end(const exec_ends *e, uint32_t unit)
{
    const ir_class cls = class_of(e, unit);

    return cls == IR_CLASS_POINTWISE || cls == IR_CLASS_REDUCE ||
           cls == IR_CLASS_VIEW;
}

/* Units that wait have higher numbers, nearly all. */
static void
find_ends(exec_ends *e, const exec_chains *after)
{
    for (size_t u = e->units.count; u-- > 0;) {
        bool end = may_be_end(e, (uint32_t)u);
        for (uint32_t i = after->start[u]; end && i != EXEC_NO_EDGE;
             i = after->next[i])
            end = e->is_end[after->edges->edges[2 * i + 1]];
        e->is_end[u] = end;
    }
}

static bool
is_large(const ir_graph *g, air_ref r)
{
    const air_dtype dtype = (air_dtype)ir_val(g, r)->dtype;
    int64_t n;

    return !pass_count_of(g, r, &n) ||
           !base_mul_i64(n, (int64_t)air_dtype_bytes(dtype), &n) || n >= LARGE;
}

/* Memory that a result or an input lies in is there for all of the run. */
static void
find_large(exec_ends *e)
{
    const ir_graph *g = e->g;

    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        for (int i = 0; i < n->nouts; i++) {
            const uint32_t v = n->outs[i].id;
            e->goes[v] = e->units.root[v] == v && is_large(g, n->outs[i]);
        }
    }
    for (size_t i = 0; i < g->results.count; i++)
        e->goes[e->units.root[g->results.data[i].value.id]] = false;
}

typedef struct {
    exec_ends *e;
    uint32_t unit;
    int by;     /* that is added to what is left to be read */
    bool large; /* it reads something large */
    bool frees; /* and is the last that does */
} reader;

static void
count_read(void *arg, air_ref *ref)
{
    reader *r = arg;
    const uint32_t root = r->e->units.root[ref->id];
    const uint32_t node = ir_val(r->e->g, (air_ref){root})->node;

    if (node == IR_NO_NODE || r->e->units.of[node] == r->unit)
        return;
    r->e->left[root] = (uint32_t)((int64_t)r->e->left[root] + r->by);
    r->large = r->large || r->e->goes[root];
    r->frees = r->frees || (r->e->left[root] == 0 && r->e->goes[root]);
}

/* Views read nothing. */
static reader
count_reads(exec_ends *e, uint32_t unit, int by)
{
    reader r = {.e = e, .unit = unit, .by = by};

    for (size_t i = 0; i < e->units.data[unit].count; i++) {
        ir_node *n = ir_node_at(e->g, e->units.data[unit].nodes[i]);
        if (n->op == AIR_OP_HOST || ir_info(n)->cls != IR_CLASS_VIEW)
            ir_each_operand(NULL, n, count_read, &r);
    }
    return r;
}

air_status
exec_ends_make(const ir_graph *g, const exec_units *units,
               const exec_chains *after, base_arena *scratch, exec_ends *out)
{
    *out = (exec_ends){.g = g, .units = *units};
    AIR_TRY(BASE_ARENA_ARRAY(scratch, units->count + 1, &out->is_end));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, units->count + 1, &out->ready));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count + 1, &out->left));
    AIR_TRY(BASE_ARENA_ARRAY(scratch, g->values.count + 1, &out->goes));
    find_ends(out, after);
    find_large(out);
    for (uint32_t u = 0; u < units->count; u++)
        (void)count_reads(out, u, 1);
    return AIR_OK;
}

void
exec_ends_ready(exec_ends *e, uint32_t unit)
{
    if (e->is_end[unit] &&
        (class_of(e, unit) == IR_CLASS_VIEW || count_reads(e, unit, 0).large))
        e->ready[e->nready++] = unit;
}

void
exec_ends_ran(exec_ends *e, uint32_t unit)
{
    (void)count_reads(e, unit, -1);
    for (size_t i = 0; e->is_end[unit] && i < e->nready; i++)
        if (e->ready[i] == unit)
            e->ready[i] = e->ready[--e->nready];
}

uint32_t
exec_ends_next(exec_ends *e)
{
    for (size_t i = 0; i < e->nready; i++) {
        const uint32_t unit = e->ready[i];
        const bool frees = count_reads(e, unit, -1).frees;
        (void)count_reads(e, unit, 1);
        if (frees || class_of(e, unit) == IR_CLASS_VIEW)
            return unit;
    }
    return EXEC_NO_END;
}
