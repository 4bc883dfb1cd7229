/* graph.c: the graph's storage: values, nodes, their order and their uses. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/graph.h"

#define MAX_RESULTS 64 /* of one node: split into more goes to HOST */

/* ---- life ---------------------------------------------------------------- */

/* The integers that defaults of schemas use are interned first and in the
 * same order in every graph, so that a default can name them by id. */
static air_status
graph_begin(ir_graph *g, const char *name)
{
    air_dim d;

    AIR_TRY(base_arena_str(&g->arena, name, strlen(name), &g->name));
    for (size_t i = 0; i < ops_default_count(); i++) {
        AIR_TRY(ir_dim_const(g, ops_default_int(i), &d));
        assert(d.id == i);
    }
    return AIR_OK;
}

air_status
ir_graph_init(const air_alloc *alloc, const char *name, ir_graph **out)
{
    ir_graph *g;
    air_status status;

    *out = NULL;
    AIR_TRY(ir_ops_init());
    AIR_TRY(base_new(alloc, sizeof *g, (void **)&g));
    g->alloc = alloc;
    g->first = g->last = IR_NO_NODE;
    g->next_name = 1;
    base_arena_init(&g->arena, alloc);
    base_map_init(&g->names, &g->arena, alloc);
    base_map_init(&g->symbol_map, &g->arena, alloc);
    base_map_init(&g->dim_map, &g->arena, alloc);
    status = graph_begin(g, name);
    if (status != AIR_OK) {
        ir_graph_free(g);
        return base_trace(status, __func__, __LINE__);
    }
    *out = g;
    return AIR_OK;
}

void
ir_graph_free(ir_graph *g)
{
    if (!g)
        return;
    BASE_VEC_FREE(g->alloc, &g->values);
    BASE_VEC_FREE(g->alloc, &g->nodes);
    BASE_VEC_FREE(g->alloc, &g->dims);
    BASE_VEC_FREE(g->alloc, &g->symbols);
    BASE_VEC_FREE(g->alloc, &g->equals);
    BASE_VEC_FREE(g->alloc, &g->inputs);
    BASE_VEC_FREE(g->alloc, &g->results);
    BASE_VEC_FREE(g->alloc, &g->tags);
    BASE_VEC_FREE(g->alloc, &g->notes);
    base_map_deinit(&g->names);
    base_map_deinit(&g->symbol_map);
    base_map_deinit(&g->dim_map);
    base_arena_deinit(&g->arena);
    base_free(g->alloc, g, sizeof *g);
}

/* ---- values -------------------------------------------------------------- */

/* An addition that failed may have left a name behind: check both ways. */
bool
graph_find_value(const ir_graph *g, const char *name, size_t len, air_ref *out)
{
    uint32_t id;

    if (!base_map_find(&g->names, name, len, &id) || id >= g->values.count)
        return false;
    out->id = id;
    return strlen(g->values.data[id].name) == len &&
           memcmp(g->values.data[id].name, name, len) == 0;
}

static air_status
name_value(ir_graph *g, uint32_t id, const char *name, size_t len,
           const char **out)
{
    AIR_TRY(base_arena_str(&g->arena, name, len, out));
    return base_map_put(&g->names, name, len, id);
}

/* The next free number. */
static air_status
number_value(ir_graph *g, uint32_t id, const char **out)
{
    char text[16];
    air_ref r;
    size_t len;

    do {
        len = (size_t)snprintf(text, sizeof text, "%" PRIu32, g->next_name++);
    } while (graph_find_value(g, text, len, &r));
    return name_value(g, id, text, len, out);
}

air_status
graph_rename(ir_graph *g, air_ref v, const char *name, size_t len)
{
    air_ref other;

    AIR_REQUIRE(!graph_find_value(g, name, len, &other) || other.id == v.id,
                AIR_ERROR_ARGUMENT, "the name %%%.*s is used twice", (int)len,
                name);
    return name_value(g, v.id, name, len, &ir_val(g, v)->name);
}

static air_status
fill_value(ir_graph *g, air_dtype dtype, int rank, const air_dim *dims,
           ir_value *out)
{
    void *copy;

    assert(rank >= 0 && rank <= AIR_MAX_RANK);
    AIR_TRY(
        base_arena_copy(&g->arena, dims, (size_t)rank * sizeof *dims, &copy));
    out->dtype = (uint8_t)dtype;
    out->rank = (uint8_t)rank;
    out->dims = copy;
    return AIR_OK;
}

/* ---- inputs and results -------------------------------------------------- */

air_status
ir_add_input(ir_graph *g, const char *name, air_dtype dtype, int rank,
             const air_dim *dims, unsigned flags, air_ref *out)
{
    uint32_t id = (uint32_t)g->values.count;
    ir_value v = {.flags = (uint8_t)flags,
                  .node = IR_NO_NODE,
                  .input = (int32_t)g->inputs.count};
    air_ref have;

    *out = AIR_NO_REF;
    AIR_REQUIRE(!graph_find_value(g, name, strlen(name), &have),
                AIR_ERROR_ARGUMENT, "two inputs are named %s", name);
    AIR_TRY(fill_value(g, dtype, rank, dims, &v));
    AIR_TRY(BASE_RESERVE(g->alloc, &g->values, g->values.count + 1));
    AIR_TRY(BASE_RESERVE(g->alloc, &g->inputs, g->inputs.count + 1));
    AIR_TRY(name_value(g, id, name, strlen(name), &v.name));
    g->values.data[g->values.count++] = v;
    g->inputs.data[g->inputs.count++] =
        (ir_input){.value = {id}, .name = v.name};
    out->id = id;
    return AIR_OK;
}

air_status
ir_add_int_input(ir_graph *g, const char *name, air_dim symbol)
{
    ir_input in = {.is_int = true, .value = AIR_NO_REF, .dim = symbol};

    AIR_REQUIRE(g->dims.data[symbol.id].op == IR_DIM_SYMBOL, AIR_ERROR_ARGUMENT,
                "integer input %s is not a symbol", name);
    AIR_TRY(base_arena_str(&g->arena, name, strlen(name), &in.name));
    return BASE_PUSH(g->alloc, &g->inputs, in);
}

air_status
ir_set_results(ir_graph *g, size_t n, const air_ref *values,
               const air_dim *const *strides)
{
    ir_result *list;

    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, n, &list));
    for (size_t i = 0; i < n; i++) {
        size_t rank = ir_val(g, values[i])->rank;
        list[i].value = values[i];
        if (strides && strides[i]) {
            void *copy;
            AIR_TRY(base_arena_copy(&g->arena, strides[i],
                                    rank * sizeof **strides, &copy));
            list[i].strides = copy;
        }
    }
    AIR_TRY(BASE_RESERVE(g->alloc, &g->results, n));
    if (n)
        memcpy(g->results.data, list, n * sizeof *list);
    g->results.count = n;
    return AIR_OK;
}

/* ---- nodes --------------------------------------------------------------- */

static void
link_node(ir_graph *g, uint32_t id, uint32_t before)
{
    ir_node *n = ir_node_at(g, id);

    n->next = before;
    n->prev = before == IR_NO_NODE ? g->last : ir_node_at(g, before)->prev;
    if (n->prev == IR_NO_NODE)
        g->first = id;
    else
        ir_node_at(g, n->prev)->next = id;
    if (before == IR_NO_NODE)
        g->last = id;
    else
        ir_node_at(g, before)->prev = id;
}

static void
unlink_node(ir_graph *g, uint32_t id)
{
    const ir_node *n = ir_node_at(g, id);

    if (n->prev == IR_NO_NODE)
        g->first = n->next;
    else
        ir_node_at(g, n->prev)->next = n->next;
    if (n->next == IR_NO_NODE)
        g->last = n->prev;
    else
        ir_node_at(g, n->next)->prev = n->prev;
}

/* Adds the node and its results: everything that can fail first. */
static air_status
commit_node(ir_graph *g, ir_node *n, size_t nouts, const air_type *types,
            uint32_t before, air_ref *outs)
{
    uint32_t id = (uint32_t)g->nodes.count;
    uint32_t first = (uint32_t)g->values.count;
    ir_value *values;
    air_ref *refs;

    AIR_TRY(BASE_RESERVE(g->alloc, &g->nodes, id + 1));
    AIR_TRY(BASE_RESERVE(g->alloc, &g->values, first + nouts));
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, nouts, &refs));
    values = g->values.data + first; /* reserved, not counted yet */
    for (uint32_t i = 0; i < nouts; i++) {
        values[i] = (ir_value){.input = -1, .node = id, .result = (uint8_t)i};
        AIR_TRY(fill_value(g, types[i].dtype, types[i].rank, types[i].dims,
                           &values[i]));
        AIR_TRY(number_value(g, first + i, &values[i].name));
        refs[i].id = first + i;
    }
    n->nouts = (uint8_t)nouts;
    n->outs = refs;
    n->group = -1;
    g->values.count += nouts;
    g->nodes.data[g->nodes.count++] = *n;
    link_node(g, id, before);
    if (nouts)
        memcpy(outs, refs, nouts * sizeof *outs);
    return AIR_OK;
}

static air_status
copy_loc(ir_graph *g, const char *loc, ir_node *n)
{
    n->loc = NULL;
    return loc ? base_arena_str(&g->arena, loc, strlen(loc), &n->loc) : AIR_OK;
}

air_status
ir_result_count(ir_graph *g, ir_op op, size_t nattrs, const air_attr *attrs,
                size_t *out)
{
    const ir_op_info *info = ir_op_get(op);
    air_attr *full;

    *out = info->nrets;
    if (!info->list_result)
        return AIR_OK;
    AIR_TRY(infer_normalise(g, info, nattrs, attrs, &full));
    AIR_TRY(shape_list_count(g, info, full, out));
    AIR_REQUIRE(*out <= MAX_RESULTS, AIR_ERROR_UNSUPPORTED,
                "%s: more than %d results", info->name, MAX_RESULTS);
    return AIR_OK;
}

air_status
ir_add_node(ir_graph *g, ir_op op, size_t nattrs, const air_attr *attrs,
            uint32_t before, const char *loc, air_ref *outs)
{
    const ir_op_info *info = ir_op_get(op);
    ir_node n = {.op = (uint16_t)op,
                 .nattrs = info->nparams,
                 .scope = g->scope[!(info->flags & IR_CONTRACT)]};
    air_type types[MAX_RESULTS];
    size_t nouts;

    assert(op > AIR_OP_HOST && op < AIR_OP_COUNT);
    AIR_TRY(ir_result_count(g, op, nattrs, attrs, &nouts));
    AIR_TRY(infer_normalise(g, info, nattrs, attrs, &n.attrs));
    AIR_TRY(ir_infer_types(g, info, n.attrs, nouts, types));
    AIR_TRY(copy_loc(g, loc, &n));
    return commit_node(g, &n, nouts, types, before, outs);
}

const char *
ir_host_word(air_host_kind kind)
{
    static const char *const words[] = {[AIR_HOST_CALL] = "host",
                                        [AIR_HOST_START] = "start",
                                        [AIR_HOST_WAIT] = "wait"};
    return words[kind];
}

air_status
ir_add_host(ir_graph *g, air_host_kind kind, const char *op, uint32_t id,
            const char *reason, size_t nin, const air_ref *in, const char *loc,
            size_t nouts, const air_type *types, air_ref *outs)
{
    ir_node n = {.op = AIR_OP_HOST, .nattrs = 2, .host = (uint8_t)kind};
    air_ref *refs;

    n.host_id = id;
    AIR_REQUIRE(kind != AIR_HOST_WAIT || (nin == 1 && nouts == 1),
                AIR_ERROR_ARGUMENT, "%s: a wait takes one value and gives it",
                op);
    AIR_REQUIRE(kind != AIR_HOST_WAIT ||
                    ir_is_type(ir_val(g, in[0]), types[0].dtype, types[0].rank,
                               types[0].dims),
                AIR_ERROR_ARGUMENT,
                "%s: a wait gives what it takes, of the same type", op);
    AIR_REQUIRE(nouts <= MAX_RESULTS, AIR_ERROR_UNSUPPORTED,
                "%s: more than %d results", op, MAX_RESULTS);
    for (size_t i = 0; i < nouts; i++)
        AIR_REQUIRE(types[i].rank >= 0 && types[i].rank <= AIR_MAX_RANK,
                    AIR_ERROR_UNSUPPORTED, "%s: more than %d dims", op,
                    AIR_MAX_RANK);
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, nin, &refs));
    if (nin)
        memcpy(refs, in, nin * sizeof *in);
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, n.nattrs, &n.attrs));
    n.attrs[0] = (air_attr){.kind = AIR_ATTR_VALUES, .count = nin};
    n.attrs[0].values = refs;
    n.attrs[1] = (air_attr){.kind = AIR_ATTR_INTS};
    AIR_TRY(base_arena_str(&g->arena, op, strlen(op), &n.host_op));
    AIR_TRY(base_arena_str(&g->arena, reason, strlen(reason), &n.reason));
    AIR_TRY(copy_loc(g, loc, &n));
    return commit_node(g, &n, nouts, types, IR_NO_NODE, outs);
}

air_status
ir_host_reads(ir_graph *g, size_t count, const air_dim *dims)
{
    const uint32_t last = (uint32_t)g->nodes.count;
    air_dim *copy;

    AIR_REQUIRE(last > 0 && ir_node_at(g, last - 1)->op == AIR_OP_HOST,
                AIR_ERROR_STATE, "the node added last is no HOST node");
    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, count, &copy));
    if (count)
        memcpy(copy, dims, count * sizeof *dims);
    ir_node_at(g, last - 1)->attrs[1].count = count;
    ir_node_at(g, last - 1)->attrs[1].dims = copy;
    return AIR_OK;
}

/* ---- uses ---------------------------------------------------------------- */

void
ir_each_operand(ir_graph *g, ir_node *n, void (*fn)(void *arg, air_ref *ref),
                void *arg)
{
    (void)g;
    for (size_t i = 0; i < n->nattrs; i++) {
        air_attr *a = &n->attrs[i];
        if (a->kind == AIR_ATTR_VALUE) {
            fn(arg, &a->value);
        } else if (a->kind == AIR_ATTR_VALUES) {
            /* The list is the graph's own copy (infer_normalise). */
            air_ref *list = (air_ref *)(uintptr_t)a->values;
            for (size_t k = 0; k < a->count; k++)
                if (list[k].id != AIR_NO_REF.id)
                    fn(arg, &list[k]);
        }
    }
}

typedef struct {
    uint32_t from, to;
} replacement;

static void
replace_ref(void *arg, air_ref *ref)
{
    const replacement *r = arg;
    if (ref->id == r->from)
        ref->id = r->to;
}

static air_status
copy_text(ir_graph *g, const char *text, const char **out)
{
    *out = NULL;
    return text ? base_arena_str(&g->arena, text, strlen(text), out) : AIR_OK;
}

air_status
ir_add_tag(ir_graph *g, air_ref value, const char *text, const char *origin)
{
    ir_tag tag = {.value = value};

    AIR_TRY(copy_text(g, text, &tag.text));
    AIR_TRY(copy_text(g, origin, &tag.origin));
    return BASE_PUSH(g->alloc, &g->tags, tag);
}

static bool
is_note(const air_note *a, const air_note *b)
{
    if (strcmp(a->key, b->key) != 0 || !a->text != !b->text)
        return false;
    return a->text ? strcmp(a->text, b->text) == 0 : a->truth == b->truth;
}

static bool
is_notes(const ir_notes *known, size_t count, const air_note *notes)
{
    size_t i = 0;

    while (i < count && known->count == count &&
           is_note(&known->list[i], &notes[i]))
        i++;
    return i == count && known->count == count;
}

static air_status
add_notes(ir_graph *g, size_t count, const air_note *notes)
{
    ir_notes made = {.count = count};
    air_note *list;

    AIR_TRY(BASE_ARENA_ARRAY(&g->arena, count, &list));
    for (size_t i = 0; i < count; i++) {
        list[i].truth = notes[i].truth;
        AIR_TRY(copy_text(g, notes[i].key, &list[i].key));
        AIR_TRY(copy_text(g, notes[i].text, &list[i].text));
    }
    made.list = list;
    return BASE_PUSH(g->alloc, &g->notes, made);
}

air_status
ir_find_notes(ir_graph *g, size_t count, const air_note *notes, uint16_t *out)
{
    size_t i = 0;

    *out = 0;
    if (!count)
        return AIR_OK;
    while (i < g->notes.count && !is_notes(&g->notes.data[i], count, notes))
        i++;
    AIR_REQUIRE(i < UINT16_MAX, AIR_ERROR_ARGUMENT,
                "a graph has at most %d different lists of notes", UINT16_MAX);
    if (i == g->notes.count)
        AIR_TRY(add_notes(g, count, notes));
    *out = (uint16_t)(i + 1);
    return AIR_OK;
}

void
ir_replace_uses(ir_graph *g, air_ref from, air_ref to)
{
    replacement r = {from.id, to.id};

    IR_FOR_EACH(g, id)
    ir_each_operand(g, ir_node_at(g, id), replace_ref, &r);
    for (size_t i = 0; i < g->results.count; i++)
        replace_ref(&r, &g->results.data[i].value);
    for (size_t i = 0; i < g->tags.count; i++)
        replace_ref(&r, &g->tags.data[i].value);
}

void
ir_remove_node(ir_graph *g, uint32_t id)
{
    ir_node *n = ir_node_at(g, id);

    assert(n->op != AIR_OP_NONE);
    unlink_node(g, id);
    for (size_t i = 0; i < n->nouts; i++)
        ir_val(g, n->outs[i])->node = IR_NO_NODE;
    n->op = AIR_OP_NONE;
    n->nattrs = 0;
}

/* ---- clone --------------------------------------------------------------- */

static air_status
clone_str(ir_graph *to, const char *s, const char **out)
{
    *out = NULL;
    return s ? base_arena_str(&to->arena, s, strlen(s), out) : AIR_OK;
}

/* Deep copies of lists and strings; plain values as they are. */
air_status
graph_copy_attr(ir_graph *to, const air_attr *a, air_attr *out)
{
    size_t size = 0;
    void *list;

    *out = *a;
    switch (a->kind) {
    case AIR_ATTR_STR: return clone_str(to, a->str, &out->str);
    case AIR_ATTR_VALUES: size = sizeof *a->values; break;
    case AIR_ATTR_INTS: size = sizeof *a->dims; break;
    case AIR_ATTR_FLOATS: size = sizeof *a->floats; break;
    case AIR_ATTR_BOOLS: size = sizeof *a->bools; break;
    case AIR_ATTR_NONE:
    case AIR_ATTR_VALUE:
    case AIR_ATTR_INT:
    case AIR_ATTR_FLOAT:
    case AIR_ATTR_BOOL:
    case AIR_ATTR_DTYPE: return AIR_OK;
    }
    AIR_TRY(base_arena_copy(&to->arena, a->values, a->count * size, &list));
    out->values = list;
    return AIR_OK;
}

static air_status
clone_node(ir_graph *to, const ir_node *from, ir_node *out)
{
    *out = *from;
    AIR_TRY(BASE_ARENA_ARRAY(&to->arena, from->nattrs, &out->attrs));
    for (size_t i = 0; i < from->nattrs; i++)
        AIR_TRY(graph_copy_attr(to, &from->attrs[i], &out->attrs[i]));
    AIR_TRY(base_arena_copy(&to->arena, from->outs,
                            from->nouts * sizeof *from->outs,
                            (void **)&out->outs));
    AIR_TRY(clone_str(to, from->loc, &out->loc));
    AIR_TRY(clone_str(to, from->host_op, &out->host_op));
    return clone_str(to, from->reason, &out->reason);
}

static air_status
clone_values(ir_graph *to, const ir_graph *from)
{
    AIR_TRY(BASE_RESERVE(to->alloc, &to->values, from->values.count));
    for (size_t i = 0; i < from->values.count; i++) {
        const ir_value *v = &from->values.data[i];
        ir_value copy = *v;
        AIR_TRY(
            name_value(to, (uint32_t)i, v->name, strlen(v->name), &copy.name));
        AIR_TRY(fill_value(to, (air_dtype)v->dtype, v->rank, v->dims, &copy));
        to->values.data[to->values.count++] = copy;
    }
    return AIR_OK;
}

/* Symbols first: they are what the expressions of the other graph refer to.
 * Ids stay equal because expressions are made in the order of their ids. */
static air_status
clone_dims(ir_graph *to, const ir_graph *from)
{
    air_dim d;

    for (size_t i = to->dims.count; i < from->dims.count; i++) {
        const ir_dim_node *n = &from->dims.data[i];
        if (n->op == IR_DIM_CONST) {
            AIR_TRY(ir_dim_const(to, n->value, &d));
        } else if (n->op == IR_DIM_SYMBOL) {
            const ir_symbol *s = &from->symbols.data[n->a];
            AIR_TRY(ir_dim_symbol(to, s->name, s->min, s->max, s->hint, &d));
        } else {
            AIR_TRY(dim_node(to, (ir_dim_op)n->op, (air_dim){n->a},
                             (air_dim){n->b}, n->atom, &d));
        }
        assert(d.id == i);
    }
    return AIR_OK;
}

static air_status
clone_tags(ir_graph *to, const ir_graph *from)
{
    for (size_t i = 0; i < from->tags.count; i++) {
        const ir_tag *tag = &from->tags.data[i];
        AIR_TRY(ir_add_tag(to, tag->value, tag->text, tag->origin));
    }
    return AIR_OK;
}

static air_status
clone_notes(ir_graph *to, const ir_graph *from)
{
    for (size_t i = 0; i < from->notes.count; i++)
        AIR_TRY(
            add_notes(to, from->notes.data[i].count, from->notes.data[i].list));
    return AIR_OK;
}

static air_status
clone_rest(ir_graph *to, const ir_graph *from)
{
    AIR_TRY(BASE_RESERVE(to->alloc, &to->nodes, from->nodes.count));
    for (size_t i = 0; i < from->nodes.count; i++) {
        AIR_TRY(clone_node(to, &from->nodes.data[i], &to->nodes.data[i]));
        to->nodes.count++;
    }
    AIR_TRY(BASE_RESERVE(to->alloc, &to->inputs, from->inputs.count));
    for (size_t i = 0; i < from->inputs.count; i++) {
        ir_input in = from->inputs.data[i];
        AIR_TRY(clone_str(to, in.name, &in.name));
        to->inputs.data[to->inputs.count++] = in;
    }
    AIR_TRY(BASE_RESERVE(to->alloc, &to->results, from->results.count));
    for (size_t i = 0; i < from->results.count; i++) {
        ir_result r = from->results.data[i];
        size_t rank = ir_val(from, r.value)->rank;
        void *strides = NULL;
        if (r.strides)
            AIR_TRY(base_arena_copy(&to->arena, r.strides,
                                    rank * sizeof *r.strides, &strides));
        r.strides = strides;
        to->results.data[to->results.count++] = r;
    }
    AIR_TRY(BASE_RESERVE(to->alloc, &to->equals, from->equals.count));
    for (size_t i = 0; i < from->equals.count; i++)
        to->equals.data[to->equals.count++] = from->equals.data[i];
    AIR_TRY(clone_tags(to, from));
    AIR_TRY(clone_notes(to, from));
    to->first = from->first;
    to->last = from->last;
    to->ngroups = from->ngroups;
    to->next_name = from->next_name;
    return AIR_OK;
}

static air_status
clone_into(ir_graph *to, const ir_graph *from)
{
    AIR_TRY(clone_dims(to, from));
    AIR_TRY(clone_values(to, from));
    return clone_rest(to, from);
}

air_status
ir_graph_clone(const ir_graph *from, ir_graph **out)
{
    air_status status;

    AIR_TRY(ir_graph_init(from->alloc, from->name, out));
    status = clone_into(*out, from);
    if (status != AIR_OK) {
        ir_graph_free(*out);
        *out = NULL;
        return base_trace(status, __func__, __LINE__);
    }
    return AIR_OK;
}
