/* inspect.c: what a graph takes and gives, for callers that did not build it
 * themselves. */
#include <stdio.h>
#include <string.h>

#include "ir/ir.h"

bool
air_graph_get_symbol(const air_graph *g, size_t i, air_symbol *out)
{
    if (!g || !out || i >= g->symbols.count)
        return false;
    const ir_symbol *s = &g->symbols.data[i];
    *out = (air_symbol){s->name, s->min, s->max, s->hint};
    return true;
}

bool
air_graph_get_input(const air_graph *g, size_t i, air_input *out)
{
    if (!g || !out || i >= g->inputs.count)
        return false;
    const ir_input *input = &g->inputs.data[i];
    *out = (air_input){.name = input->name, .is_int = input->is_int};
    if (input->is_int) {
        out->type.dims[0] = input->dim;
        return true;
    }
    const ir_value *v = ir_val(g, input->value);
    out->flags = v->flags;
    out->type.dtype = (air_dtype)v->dtype;
    out->type.rank = v->rank;
    if (v->rank > 0)
        memcpy(out->type.dims, v->dims, v->rank * sizeof *v->dims);
    return true;
}

size_t
air_graph_count_results(const air_graph *g)
{
    return g ? g->results.count : 0;
}

static air_status
no_symbol(const air_graph *g, const char *name)
{
    char names[160] = "none";
    size_t used = 0;

    for (size_t i = 0; i < g->symbols.count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 i ? " " : "", g->symbols.data[i].name);
    AIR_FAIL(AIR_ERROR_ARGUMENT, "graph %s has no symbol %s; it has %s",
             g->name, name, names);
}

air_status
air_graph_set_hint(air_graph *g, const char *name, int64_t hint)
{
    AIR_REQUIRE(g && name, AIR_ERROR_ARGUMENT, "g and name must not be NULL");
    for (size_t i = 0; i < g->symbols.count; i++) {
        ir_symbol *s = &g->symbols.data[i];
        if (strcmp(s->name, name) != 0)
            continue;
        AIR_REQUIRE(hint >= s->min && hint <= s->max, AIR_ERROR_ARGUMENT,
                    "symbol %s: %lld is not in [%lld, %lld]", name,
                    (long long)hint, (long long)s->min, (long long)s->max);
        s->hint = hint;
        return AIR_OK;
    }
    return no_symbol(g, name);
}
