/* capture_key.c: what calls of a capture are told apart by: static inputs by
 * their addresses and layouts (a binding), the others by integers, sizes and
 * strides (the key). The tuples themselves are compared; a hash of the key
 * only tells most of them apart sooner. */
#include <string.h>

#include "exec/capture.h"

static size_t
key_length(const ir_graph *g, size_t i)
{
    const ir_input *in = &g->inputs.data[i];

    return in->is_int ? 1 : 2u * ir_val(g, in->value)->rank;
}

air_status
capture_sort_inputs(air_capture *c)
{
    const ir_graph *g = c->p->g;

    AIR_TRY(BASE_ARENA_ARRAY(&c->arena, g->inputs.count + 1, &c->dynamic));
    AIR_TRY(BASE_ARENA_ARRAY(&c->arena, g->inputs.count + 1, &c->is_static));
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_input *in = &g->inputs.data[i];
        c->is_static[i] =
            !in->is_int && (ir_val(g, in->value)->flags & AIR_INPUT_PARAM) != 0;
        if (c->is_static[i]) {
            c->layout_len += key_length(g, i);
        } else {
            c->dynamic[c->ndynamic++] = (uint32_t)i;
            c->key_len += key_length(g, i);
        }
    }
    return AIR_OK;
}

air_status
capture_write_key(const air_capture *c, const air_value *inputs, int64_t *key,
                  uint64_t *out_hash)
{
    int64_t *at = key;
    uint64_t hash = 0;

    for (size_t i = 0; i < c->ndynamic; i++)
        AIR_TRY(exec_key_input(c->p->g, c->dynamic[i], &inputs[c->dynamic[i]],
                               &at));
    for (size_t i = 0; i < c->key_len; i++)
        hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
    *out_hash = hash;
    return AIR_OK;
}

/* ---- bindings ---- */

static air_status
fill_binding(const air_capture *c, const air_value *inputs, air_binding *b)
{
    const ir_graph *g = c->p->g;
    int64_t *layout;

    AIR_TRY(BASE_ARENA_ARRAY(&b->arena, c->layout_len + 1, &layout));
    AIR_TRY(BASE_ARENA_ARRAY(&b->arena, g->inputs.count + 1, &b->values));
    for (size_t i = 0; i < g->inputs.count; i++) {
        const int64_t *from = layout;
        if (!c->is_static[i])
            continue;
        AIR_TRY(exec_key_input(g, i, &inputs[i], &layout));
        b->values[i] = inputs[i];
        b->values[i].dims = from;
        b->values[i].strides = from + inputs[i].rank;
    }
    return AIR_OK;
}

static void
free_binding(air_capture *c, air_binding *b)
{
    base_arena_deinit(&b->arena);
    base_free(&c->p->ctx->alloc, b, sizeof *b);
}

static bool
is_like(const air_value *v, const air_value *bound)
{
    const size_t bytes = (size_t)bound->rank * sizeof *v->dims;

    if (v->is_int || v->data != bound->data || v->dtype != bound->dtype ||
        v->rank != bound->rank)
        return false;
    return bytes == 0 ||
           (memcmp(v->dims, bound->dims, bytes) == 0 &&
            (v->strides ? memcmp(v->strides, bound->strides, bytes) == 0
                        : exec_is_dense(v->rank, v->dims, bound->strides)));
}

static bool
is_bound(const air_capture *c, const air_binding *b, const air_value *inputs)
{
    for (size_t i = 0; i < c->p->g->inputs.count; i++)
        if (c->is_static[i] && !is_like(&inputs[i], &b->values[i]))
            return false;
    return true;
}

static air_status
add_binding(air_capture *c, const air_value *inputs, const air_binding **out)
{
    const air_alloc *alloc = &c->p->ctx->alloc;
    air_binding *b;
    void *memory;
    air_status status;

    AIR_TRY(base_new(alloc, sizeof *b, &memory));
    b = memory;
    base_arena_init(&b->arena, alloc);
    status = fill_binding(c, inputs, b);
    if (status != AIR_OK) {
        free_binding(c, b);
        return base_trace(status, __func__, __LINE__);
    }
    b->users = c->options.frozen_parameter ? 2 : 1; /* frozen: for good */
    b->next = c->bindings;
    c->bindings = b;
    *out = b;
    return AIR_OK;
}

static air_binding *
find_binding(const air_capture *c, const air_value *inputs)
{
    air_binding *b = c->bindings;

    while (b && !c->options.frozen_parameter && !is_bound(c, b, inputs))
        b = b->next;
    return b;
}

air_status
exec_capture_bind(air_capture *c, const air_value *inputs,
                  const air_binding **out)
{
    air_binding *b;
    air_status status = AIR_OK;

    *out = NULL;
    pthread_mutex_lock(&c->mutex);
    b = find_binding(c, inputs);
    if (b)
        b->users++;
    *out = b;
    if (!b)
        status = add_binding(c, inputs, out);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

static air_binding **
place_of(air_capture *c, const air_binding *binding)
{
    air_binding **at = &c->bindings;

    while (*at != binding)
        at = &(*at)->next;
    return at;
}

void
capture_binding_keep(air_capture *c, const air_binding *binding)
{
    (*place_of(c, binding))->users++;
}

void
capture_binding_drop(air_capture *c, const air_binding *binding)
{
    air_binding **at = place_of(c, binding), *b = *at;

    if (--b->users > 0)
        return;
    *at = b->next;
    free_binding(c, b);
}

void
exec_capture_unbind(air_capture *c, const air_binding *binding)
{
    pthread_mutex_lock(&c->mutex);
    capture_binding_drop(c, binding);
    pthread_mutex_unlock(&c->mutex);
}

void
capture_free_bindings(air_capture *c)
{
    while (c->bindings) {
        air_binding *b = c->bindings;
        c->bindings = b->next;
        free_binding(c, b);
    }
}
