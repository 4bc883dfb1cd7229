/* specialise.c: a program for one class of inputs: the values of all size
 * expressions, the steps of every unit, the results, the plan, the kernels. */
#include <assert.h>
#include <string.h>

#include "exec/exec.h"

/* ---- the key: integers, sizes and strides of the inputs ---- */

static size_t
key_length(const ir_graph *g)
{
    size_t len = 0;

    for (size_t i = 0; i < g->inputs.count; i++)
        len += g->inputs.data[i].is_int
                   ? 1
                   : 2u * ir_val(g, g->inputs.data[i].value)->rank;
    return len;
}

air_status
exec_key_prepare(air_program *p)
{
    const ir_graph *g = p->g;
    size_t at = 0;

    p->key_len = key_length(g) + 1; /* and the limits of cores */
    AIR_TRY(BASE_ARENA_ARRAY(&p->arena, p->key_len, &p->sizes));
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_input *in = &g->inputs.data[i];
        const ir_value *v = in->is_int ? NULL : ir_val(g, in->value);
        for (int k = 0; v && k < v->rank; k++)
            if (g->dims.data[v->dims[k].id].op != IR_DIM_CONST)
                p->sizes[p->nsizes++] = (uint32_t)at + (uint32_t)k;
        if (in->is_int && !in->loose)
            p->sizes[p->nsizes++] = (uint32_t)at;
        at += v ? 2u * v->rank : 1;
    }
    p->sizes[p->nsizes++] = (uint32_t)at;
    return AIR_OK;
}

air_status
exec_key_input(const ir_graph *g, size_t i, const air_value *a, int64_t **key)
{
    const ir_input *in = &g->inputs.data[i];
    const ir_value *v;

    AIR_REQUIRE(a->is_int == in->is_int, AIR_ERROR_ARGUMENT,
                EXEC_INPUT_FMT " must be %s", EXEC_INPUT_ARGS(g, i),
                in->is_int ? "an integer" : "a tensor");
    if (in->is_int) {
        *(*key)++ = in->loose ? 0 : a->i;
        return AIR_OK;
    }
    v = ir_val(g, in->value);
    AIR_REQUIRE(a->dtype == (air_dtype)v->dtype, AIR_ERROR_DTYPE,
                EXEC_INPUT_FMT " is %s, the graph wants %s",
                EXEC_INPUT_ARGS(g, i), air_dtype_text(a->dtype),
                air_dtype_text((air_dtype)v->dtype));
    AIR_REQUIRE(a->rank == v->rank, AIR_ERROR_SHAPE,
                EXEC_INPUT_FMT " has %d dims, the graph wants %d",
                EXEC_INPUT_ARGS(g, i), a->rank, v->rank);
    /* a few numbers, at each call: memcpy would take longer to enter */
    for (int k = 0; k < a->rank; k++)
        (*key)[k] = a->dims[k];
    for (int k = 0; a->strides && k < a->rank; k++)
        (*key)[a->rank + k] = a->strides[k];
    if (!a->strides)
        exec_dense_strides(a->rank, a->dims, *key + a->rank);
    *key += 2 * a->rank;
    return AIR_OK;
}

/* Writes the key; checks what no size can make right. */
static air_status
write_key(const ir_graph *g, const air_value *inputs, int64_t *key)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        AIR_TRY(exec_key_input(g, i, &inputs[i], &key));
    return AIR_OK;
}

/* ---- sizes ---- */

/* Of an input, so that 64 bits hold its bytes. */
#define MOST_ELEMENTS (INT64_MAX / 16)

air_status
exec_check_sizes(const ir_graph *g, size_t i, const air_value *v,
                 int64_t *out_count)
{
    int64_t count = 1;

    AIR_REQUIRE(v->rank >= 0 && v->rank <= AIR_MAX_RANK, AIR_ERROR_SHAPE,
                EXEC_INPUT_FMT " has %d dims, at most %d are supported",
                EXEC_INPUT_ARGS(g, i), v->rank, AIR_MAX_RANK);
    AIR_REQUIRE(v->rank == 0 || v->dims, AIR_ERROR_ARGUMENT,
                EXEC_INPUT_FMT ": dims is NULL", EXEC_INPUT_ARGS(g, i));
    for (int k = 0; k < v->rank; k++) {
        AIR_REQUIRE(v->dims[k] >= 0, AIR_ERROR_SHAPE,
                    EXEC_INPUT_FMT ": dim %d is negative",
                    EXEC_INPUT_ARGS(g, i), k);
        AIR_REQUIRE(base_mul_i64(count, v->dims[k], &count) &&
                        count <= MOST_ELEMENTS,
                    AIR_ERROR_SHAPE, EXEC_INPUT_FMT " has too many elements",
                    EXEC_INPUT_ARGS(g, i));
    }
    *out_count = count;
    return AIR_OK;
}

static air_status
check_all_sizes(const ir_graph *g, const air_value *inputs)
{
    int64_t count;

    for (size_t i = 0; i < g->inputs.count; i++)
        if (!inputs[i].is_int)
            AIR_TRY(exec_check_sizes(g, i, &inputs[i], &count));
    return AIR_OK;
}

air_status
exec_check_symbol(const ir_graph *g, size_t i, const ir_symbol *s,
                  int64_t value)
{
    AIR_REQUIRE(value >= s->min && value <= s->max, AIR_ERROR_SHAPE,
                EXEC_INPUT_FMT " has %s = %lld, outside [%lld, %lld]",
                EXEC_INPUT_ARGS(g, i), s->name, (long long)value,
                (long long)s->min, (long long)s->max);
    return AIR_OK;
}

static air_status
bind_symbol(const ir_graph *g, size_t i, air_dim dim, int64_t value,
            int64_t *symbols, bool *known)
{
    const ir_dim_node *d = &g->dims.data[dim.id];

    if (d->op != IR_DIM_SYMBOL)
        return AIR_OK;
    AIR_TRY(exec_check_symbol(g, i, &g->symbols.data[d->a], value));
    if (!known[d->a]) {
        known[d->a] = true;
        symbols[d->a] = value;
    }
    return AIR_OK;
}

static air_status
bind_symbols(const ir_graph *g, const air_value *inputs, int64_t *symbols,
             bool *known)
{
    for (int ints = 1; ints >= 0; ints--) {
        for (size_t i = 0; i < g->inputs.count; i++) {
            const ir_input *in = &g->inputs.data[i];
            if (in->is_int != (ints == 1))
                continue;
            if (in->is_int) {
                AIR_TRY(
                    bind_symbol(g, i, in->dim, inputs[i].i, symbols, known));
                continue;
            }
            const ir_value *v = ir_val(g, in->value);
            for (int k = 0; k < v->rank; k++)
                AIR_TRY(bind_symbol(g, i, v->dims[k], inputs[i].dims[k],
                                    symbols, known));
        }
    }
    return AIR_OK;
}

static air_status
check_sizes(const ir_graph *g, const air_value *inputs, const int64_t *dims)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_input *in = &g->inputs.data[i];
        if (in->is_int)
            continue;
        const ir_value *v = ir_val(g, in->value);
        for (int k = 0; k < v->rank; k++)
            AIR_REQUIRE(
                inputs[i].dims[k] == dims[v->dims[k].id], AIR_ERROR_SHAPE,
                EXEC_INPUT_FMT " has size %lld in dim %d, the graph wants %lld",
                EXEC_INPUT_ARGS(g, i), (long long)inputs[i].dims[k], k,
                (long long)dims[v->dims[k].id]);
    }
    return AIR_OK;
}

static bool
is_empty(const ir_value *v, const int64_t *dims)
{
    for (int k = 0; k < v->rank; k++)
        if (dims[v->dims[k].id] == 0)
            return true;
    return false;
}

/* Nothing has no greatest element. */
static air_status
check_filled(const ir_graph *g, const int64_t *dims)
{
    IR_FOR_EACH(g, id)
    {
        const ir_node *n = ir_node_at(g, id);
        if (ir_info(n)->flags & IR_FILLED)
            AIR_REQUIRE(is_empty(ir_val(g, n->outs[0]), dims) ||
                            !is_empty(ir_val(g, n->attrs[0].value), dims),
                        AIR_ERROR_UNSUPPORTED, "graph %s: %s of nothing",
                        g->name, ir_info(n)->name);
    }
    return AIR_OK;
}

static air_status
find_sizes(exec_maker *m, const air_value *inputs)
{
    const ir_graph *g = m->g;
    int64_t *symbols;
    bool *known;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, g->symbols.count + 1, &symbols));
    m->s->symbols = symbols;
    AIR_TRY(BASE_ARENA_ARRAY(m->scratch, g->symbols.count + 1, &known));
    AIR_TRY(bind_symbols(g, inputs, symbols, known));
    for (size_t i = 0; i < g->symbols.count; i++)
        AIR_REQUIRE(known[i], AIR_ERROR_ARGUMENT,
                    "no input of graph %s tells the value of %s", g->name,
                    g->symbols.data[i].name);
    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, g->dims.count + 1, &m->s->dims));
    AIR_TRY(ir_dim_eval_all(g, symbols, m->s->dims));
    AIR_TRY(check_sizes(g, inputs, m->s->dims));
    return check_filled(g, m->s->dims);
}

/* ---- inputs and results ---- */

static air_status
place_inputs(exec_maker *m, const air_value *inputs)
{
    for (size_t i = 0; i < m->g->inputs.count; i++) {
        const ir_input *in = &m->g->inputs.data[i];
        const air_value *a = &inputs[i];
        lower_place place = {0};
        if (in->is_int)
            continue;
        AIR_TRY(exec_add_storage(m, EXEC_INPUT,
                                 exec_numel(a->rank, a->dims) *
                                     (int64_t)air_dtype_bytes(a->dtype),
                                 &place.slot));
        m->s->storages.data[place.slot].input = (int32_t)i;
        place.layout.rank = a->rank;
        if (a->rank > 0)
            memcpy(place.layout.dims, a->dims,
                   (size_t)a->rank * sizeof *a->dims);
        if (a->strides && a->rank > 0)
            memcpy(place.layout.strides, a->strides,
                   (size_t)a->rank * sizeof *a->strides);
        else
            exec_dense_strides(a->rank, a->dims, place.layout.strides);
        exec_set_place(m, in->value, &place);
    }
    return AIR_OK;
}

/* Does the layout have the strides that the caller asked for? Strides of axes
 * of size 1 do not matter. */
static bool
has_strides(const exec_maker *m, const ir_result *r, const ir_layout *l)
{
    int64_t want[AIR_MAX_RANK];

    if (exec_numel(l->rank, l->dims) == 0)
        return true;
    exec_dense_strides(l->rank, l->dims, want);
    for (int i = 0; i < l->rank; i++) {
        if (r->strides)
            want[i] = m->s->dims[r->strides[i].id];
        if (l->dims[i] != 1 && l->strides[i] != want[i])
            return false;
    }
    return true;
}

/* Elements of an expanded axis share memory: one of them is copied. */
static air_status
copy_result(exec_maker *m, const ir_result *r, lower_place *place)
{
    const ir_value *v = ir_val(m->g, r->value);
    lower_place src = *place, dst;

    if (r->strides)
        AIR_TRY(exec_strided_place(m, v, r->strides, place));
    else
        AIR_TRY(exec_new_place(m, v, place));
    dst = *place;
    for (int i = 0; i < dst.layout.rank; i++)
        if (dst.layout.strides[i] == 0 && dst.layout.dims[i] > 1)
            src.layout.dims[i] = dst.layout.dims[i] = 1;
    return exec_add_copy(m, &src, (air_dtype)v->dtype, &dst,
                         (air_dtype)v->dtype,
                         "a result lies elsewhere or wants other strides");
}

static air_status
make_results(exec_maker *m)
{
    const ir_graph *g = m->g;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, g->results.count, &m->s->results));
    m->unit = NULL;
    for (size_t i = 0; i < g->results.count; i++) {
        const ir_result *r = &g->results.data[i];
        const ir_value *v = ir_val(g, r->value);
        lower_place place = m->places[r->value.id];
        exec_where where = m->s->storages.data[place.slot].where;
        if (m->s->storages.data[place.slot].begun ||
            (where != EXEC_INPUT && !has_strides(m, r, &place.layout)))
            AIR_TRY(copy_result(m, r, &place));
        where = m->s->storages.data[place.slot].where;
        if (where != EXEC_INPUT && where != EXEC_LEFT)
            m->s->storages.data[place.slot].where =
                where == EXEC_HOST ? EXEC_LEFT : EXEC_BLOCK;
        m->s->results[i] =
            (exec_result){.storage = place.slot,
                          .offset = place.offset + place.layout.offset *
                                                       (int64_t)air_dtype_bytes(
                                                           (air_dtype)v->dtype),
                          .dtype = (air_dtype)v->dtype,
                          .layout = place.layout};
    }
    return AIR_OK;
}

/* ---- the whole ---- */

static air_status
make_steps(exec_maker *m, const air_value *inputs)
{
    const exec_order *order = &m->p->order;

    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, m->g->values.count, &m->places));
    AIR_TRY(BASE_ARENA_ARRAY(&m->s->arena, m->g->values.count, &m->placed));
    m->s->places = m->places;
    m->s->placed = m->placed;
    AIR_TRY(place_inputs(m, inputs));
    AIR_TRY(exec_numbers_place(m));
    for (size_t i = 0; i < order->count; i++) {
        AIR_TRY(exec_make_unit(m, &order->units[i]));
        if (i + 1 == order->once)
            m->s->once = m->s->steps.count;
    }
    return make_results(m);
}

/* Where no scope has said it, a run's own limits are those of its steps. */
static void
limit_steps(exec_maker *m)
{
    const exec_cores cores = m->cores;
    const int32_t others = cores.vector ? cores.vector : cores.cube;

    for (size_t i = 0; i < m->s->steps.count; i++) {
        exec_step *step = &m->s->steps.data[i];
        const bool contracts = step->kind == EXEC_STEP_CALL && step->node &&
                               (ir_info(step->node)->flags & IR_CONTRACT);
        if (step->step.threads == 0)
            step->step.threads = contracts ? cores.cube : others;
    }
}

static int64_t
pack_cores(exec_cores cores)
{
    return ((int64_t)cores.cube << 32) + cores.vector;
}

static air_status
make_spec(air_program *p, exec_cores cores, const air_value *inputs,
          const int64_t *key, base_arena *scratch, exec_spec *s)
{
    exec_maker m = {
        .p = p, .g = p->g, .s = s, .scratch = scratch, .cores = cores};
    void *copy;

    AIR_TRY(base_arena_copy(&s->arena, key, p->key_len * sizeof *key, &copy));
    s->key = copy;
    AIR_TRY(find_sizes(&m, inputs));
    base_arena_init(&m.lowering, &p->ctx->alloc);
    air_status status = make_steps(&m, inputs);
    base_arena_deinit(&m.lowering);
    AIR_TRY(status);
    limit_steps(&m);
    AIR_TRY(exec_depend(&m));
    AIR_TRY(exec_plan(&m));
    return exec_make_kernels(&m);
}

static air_status
add_spec(air_program *p, exec_cores cores, const air_value *inputs,
         const int64_t *key, uint64_t hash, exec_spec **out)
{
    const double start = base_now();
    base_arena scratch;
    exec_spec *s;
    air_status status;

    AIR_TRY(check_all_sizes(p->g, inputs));
    AIR_TRY(base_new(&p->ctx->alloc, sizeof *s, (void **)&s));
    base_arena_init(&s->arena, &p->ctx->alloc);
    base_arena_init(&scratch, &p->ctx->alloc);
    atomic_init(&s->refs, 1);
    s->hash = hash;
    status = make_spec(p, cores, inputs, key, &scratch, s);
    base_arena_deinit(&scratch);
    s->seconds = base_now() - start;
    if (status == AIR_OK)
        status = exec_specs_add(p, s);
    if (status != AIR_OK) {
        exec_spec_free(p, s);
        return base_trace(status, __func__, __LINE__);
    }
    *out = s;
    return AIR_OK;
}

static air_status
find_or_add(air_program *p, exec_cores cores, const air_value *inputs,
            const int64_t *key, exec_spec **out)
{
    const uint64_t hash = exec_specs_hash(p, key);
    air_status status = AIR_OK;

    if ((*out = exec_specs_find(p, key, hash)))
        return AIR_OK;
    pthread_mutex_lock(&p->mutex);
    *out = exec_specs_find(p, key, hash);
    if (!*out)
        status = add_spec(p, cores, inputs, key, hash, out);
    pthread_mutex_unlock(&p->mutex);
    return status;
}

static air_status
find_only(air_program *p, exec_cores cores, const air_value *inputs,
          const int64_t *key, exec_spec **out)
{
    (void)cores, (void)inputs;
    *out = exec_specs_find(p, key, exec_specs_hash(p, key));
    AIR_REQUIRE(*out, AIR_ERROR_STATE, "graph %s has not run with these sizes",
                p->g->name);
    return AIR_OK;
}

typedef air_status (*find_fn)(air_program *p, exec_cores cores,
                              const air_value *inputs, const int64_t *key,
                              exec_spec **out);

static air_status
with_key(air_program *p, exec_cores cores, const air_value *inputs,
         find_fn find, exec_spec **out)
{
    int64_t local[512], *key = local;
    size_t bytes = p->key_len * sizeof *key;
    air_status status;

    *out = NULL;
    if (p->key_len > 512)
        AIR_TRY(base_new(&p->ctx->alloc, bytes, (void **)&key));
    key[p->key_len - 1] = pack_cores(cores);
    status = write_key(p->g, inputs, key);
    if (status == AIR_OK)
        status = find(p, cores, inputs, key, out);
    if (key != local)
        base_free(&p->ctx->alloc, key, bytes);
    return status;
}

air_status
exec_spec_get(air_program *p, exec_cores cores, const air_value *inputs,
              exec_spec **out)
{
    return with_key(p, cores, inputs, find_or_add, out);
}

air_status
exec_spec_known(air_program *p, exec_cores cores, const air_value *inputs,
                exec_spec **out)
{
    return with_key(p, cores, inputs, find_only, out);
}

void
exec_spec_free(const air_program *p, exec_spec *s)
{
    const air_driver *driver = p->ctx->driver;
    air_device *device = p->ctx->device;

    exec_watch_free(p, s);
    exec_block_release(s->kept);
    for (size_t i = 0; i < s->recorded.count; i++)
        exec_block_release(s->recorded.data[i]);
    BASE_VEC_FREE(&p->ctx->alloc, &s->recorded);
    for (size_t i = 0; i < s->nsegments; i++)
        if (s->segments[i].list)
            driver->list_free(device, s->segments[i].list);
    for (size_t i = 0; i < s->steps.count; i++) {
        const exec_step *step = &s->steps.data[i];
        if (step->step.kernel)
            driver->kernel_free(device, step->step.kernel);
        if (step->joined)
            driver->kernel_free(device, step->joined);
    }
    BASE_VEC_FREE(p->g->alloc, &s->steps);
    BASE_VEC_FREE(p->g->alloc, &s->storages);
    base_arena_deinit(&s->arena);
    base_free(&p->ctx->alloc, s, sizeof *s);
}
