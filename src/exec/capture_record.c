/* capture_record.c: one capture: where everything of a specialisation lies,
 * and which pointers a replay has to set. */
#include <string.h>

#include "exec/capture.h"

/* Bytes of an input that is copied because a HOST node in a graph reads it; of
 * fewer a copy costs less than to find out whether they move. */
#define MOST_COPIED ((size_t)64 << 20)
#define FEW         ((size_t)1 << 20)

air_status
capture_record_make(air_capture *c, const air_binding *binding,
                    const int64_t *key, uint64_t hash, capture_record **out)
{
    const air_alloc *alloc = &c->p->ctx->alloc;
    capture_record *r;
    void *memory, *copy;
    air_status status;

    AIR_TRY(base_new(alloc, sizeof *r, &memory));
    r = memory;
    atomic_init(&r->refs, 1);
    base_arena_init(&r->arena, alloc);
    pthread_mutex_init(&r->mutex, NULL);
    r->binding = binding;
    capture_binding_keep(c, binding);
    r->hash = hash;
    status =
        base_arena_copy(&r->arena, key, c->key_len * sizeof *key + 1, &copy);
    if (status != AIR_OK) {
        capture_record_free(c, r);
        return status;
    }
    r->key = copy;
    *out = r;
    return AIR_OK;
}

static void
free_frames(air_capture *c, capture_record *r)
{
    while (r->frames) {
        capture_frame *f = r->frames;
        r->frames = f->next;
        base_free(&c->p->ctx->alloc, f,
                  sizeof *f + exec_frame_bytes(c->p, r->spec));
    }
}

void
capture_record_free(air_capture *c, capture_record *r)
{
    air_context *ctx = c->p->ctx;

    capture_graphs_free(c, r);
    capture_binding_drop(c, r->binding);
    free_frames(c, r);
    for (size_t i = 0; i < r->ninputs; i++)
        exec_block_release(r->inputs[i].block);
    exec_spec_release(c->p, r->spec);
    exec_block_release(r->own_arena);
    capture_area_drop(c, r->area);
    if (r->graph)
        exec_graph_pool_expect(c->pool, 0, -1);
    base_arena_deinit(&r->arena);
    pthread_mutex_destroy(&r->mutex);
    base_free(&ctx->alloc, r, sizeof *r);
}

/* ---- areas of static results ---- */

static air_status
make_area(air_capture *c, size_t bytes, capture_area **out)
{
    capture_area *area;
    void *memory;
    air_status status;

    *out = NULL;
    AIR_TRY(base_new(&c->p->ctx->alloc, sizeof *area, &memory));
    area = memory;
    area->users = 1;
    status = exec_graph_pool_get(c->pool, bytes, false, &area->block);
    if (status != AIR_OK) {
        base_free(&c->p->ctx->alloc, area, sizeof *area);
        return status;
    }
    *out = area;
    return AIR_OK;
}

void
capture_area_drop(air_capture *c, capture_area *area)
{
    if (!area || --area->users > 0)
        return;
    exec_block_release(area->block);
    base_free(&c->p->ctx->alloc, area, sizeof *area);
}

static void
move_area(air_capture *c, capture_record *r)
{
    capture_area_drop(c, r->area);
    r->area = c->area;
    c->area->users++;
}

/* Records leave areas that are too small as soon as nobody holds a result in
 * them. */
static void
share_area(air_capture *c)
{
    if (!c->area)
        return;
    for (capture_record *o = c->records; o; o = o->next)
        if (o->area && o->area != c->area &&
            !exec_block_is_held(o->area->block))
            move_area(c, o);
}

/* A result area that is large enough; captures share it, or have their own. */
static air_status
take_area(air_capture *c, capture_record *r)
{
    capture_area *area;

    if (c->options.clone_output != AIR_CHOICE_OFF || r->area_bytes == 0)
        return AIR_OK;
    if (c->options.keep_apart)
        return make_area(c, r->area_bytes, &r->area);
    if (!c->area || c->area->block->size < r->area_bytes) {
        AIR_TRY(make_area(c, r->area_bytes, &area));
        capture_area_drop(c, c->area);
        c->area = area;
    }
    move_area(c, r);
    return AIR_OK;
}

/* ---- places ---- */

static bool
is_written(const air_capture *c, uint32_t input)
{
    const air_program *p = c->p;

    return p->order.written[p->g->inputs.data[input].value.id];
}

static bool
holds_result(const air_capture *c, uint32_t input)
{
    const air_program *p = c->p;
    const uint32_t value = p->g->inputs.data[input].value.id;

    for (size_t i = 0; i < p->g->results.count; i++)
        if (p->order.root[p->g->results.data[i].value.id] == value)
            return true;
    return false;
}

static capture_how
how_of(const air_capture *c, uint32_t input)
{
    const air_choice clone = c->options.clone_input;

    if (clone == AIR_CHOICE_DEFAULT || is_written(c, input))
        return INPUT_PATCHED;
    if (clone == AIR_CHOICE_OFF || holds_result(c, input))
        return INPUT_FIRST;
    return INPUT_COPIED;
}

/* A HOST node in a graph, or a WAIT, reads it. */
static bool
host_reads(const capture_record *r, const exec_storage *t, bool waits)
{
    const exec_spec *s = r->spec;

    for (size_t i = 0; i < s->nsegments; i++) {
        const exec_step *step = &s->steps.data[s->segments[i].begin];
        if (s->segments[i].list || (waits ? step->node->host != AIR_HOST_WAIT
                                          : r->joins[i].why[0] != '\0'))
            continue;
        for (size_t k = 0; k < step->nin; k++)
            if (&s->storages.data[step->in_storage[k]] == t)
                return true;
    }
    return false;
}

/* A HOST node in a graph reads it, which wants it where it was; as large as a
 * copy costs less than calling that node. What is on its way to here when the
 * call begins cannot be copied then. */
static bool
is_pinned(const air_capture *c, const capture_record *r, const exec_storage *t,
          const air_value *v)
{
    if (!r->joins || (size_t)t->bytes > MOST_COPIED ||
        is_written(c, (uint32_t)t->input) ||
        holds_result(c, (uint32_t)t->input) ||
        !exec_is_dense(v->rank, v->dims, v->strides))
        return false;
    return host_reads(r, t, false) && !host_reads(r, t, true);
}

static void
place_input(air_capture *c, capture_record *r, const exec_storage *t,
            const air_value *v)
{
    capture_input *in = &r->inputs[r->ninputs++];
    const capture_how how = how_of(c, (uint32_t)t->input);
    const bool pinned = how == INPUT_PATCHED && is_pinned(c, r, t, v);

    *in = (capture_input){.input = (uint32_t)t->input,
                          .slot = t->slot,
                          .how = how,
                          .written = is_written(c, (uint32_t)t->input),
                          .pinned = pinned,
                          .data = v->data,
                          .bytes = (size_t)t->bytes,
                          .offset = r->arena_bytes};
    if (pinned && in->bytes < FEW)
        in->how = INPUT_COPIED;
    if (in->how == INPUT_COPIED)
        r->arena_bytes += exec_round_up(in->bytes);
}

/* The HOST node that leaves it, where such may be in a graph. */
static const capture_host *
left_by(const capture_record *r, const exec_storage *t)
{
    const exec_spec *s = r->spec;

    for (size_t i = 0; r->joins && i < s->nsegments; i++) {
        const exec_step *step = &s->steps.data[s->segments[i].begin];
        for (size_t k = 0; !s->segments[i].list && k < step->nout; k++)
            if (&s->storages.data[step->out_storage[k]] == t)
                return &r->joins[i];
    }
    return NULL;
}

static void
place_storage(air_capture *c, capture_record *r, const exec_storage *t,
              const air_value *inputs)
{
    switch (t->where) {
    case EXEC_ARENA:
    case EXEC_KEPT:          /* exec_run_segments */
    case EXEC_NUMBER: break; /* exec_numbers_fill */
    case EXEC_INPUT:
        r->slots[t->slot] = inputs[t->input].data;
        if (!c->is_static[t->input])
            place_input(c, r, t, &inputs[t->input]);
        break;
    case EXEC_HOST:
        r->hosts[r->nhosts++] =
            (capture_block){.slot = t->slot, .offset = (size_t)t->offset};
        break;
    case EXEC_BLOCK:
    case EXEC_LEFT:
        r->blocks[r->nblocks++] = (capture_block){.slot = t->slot,
                                                  .left_by = left_by(r, t),
                                                  .bytes = (size_t)t->bytes,
                                                  .offset = r->area_bytes};
        r->area_bytes += exec_round_up((size_t)t->bytes);
        break;
    }
}

static air_status
place_all(air_capture *c, capture_record *r, const air_value *inputs)
{
    const size_t n = r->spec->storages.count + 1;

    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, r->spec->nslots, &r->slots));
    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, n, &r->inputs));
    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, n, &r->blocks));
    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, n, &r->hosts));
    r->arena_bytes = exec_round_up(r->spec->arena_bytes);
    for (size_t i = 0; i < r->spec->storages.count; i++)
        place_storage(c, r, &r->spec->storages.data[i], inputs);
    r->need_bytes = r->arena_bytes + r->area_bytes;
    return AIR_OK;
}

/* Inputs that are copied are dense in the capture. */
static void
make_dense(const air_capture *c, air_value *inputs)
{
    for (size_t i = 0; i < c->ndynamic; i++) {
        air_value *v = &inputs[c->dynamic[i]];
        if (!v->is_int && how_of(c, c->dynamic[i]) == INPUT_COPIED)
            v->strides = NULL;
    }
}

static air_status
find_spec(air_capture *c, capture_record *r, const air_capture_call *call,
          const air_host *host, const air_value *inputs)
{
    base_arena scratch;
    air_value *all;
    air_status status;

    base_arena_init(&scratch, &c->p->ctx->alloc);
    status = capture_all_inputs(c, r->binding, inputs, &scratch, &all);
    if (status == AIR_OK) {
        make_dense(c, all);
        status = exec_spec_get(
            c->p, (exec_cores){call->cube_cores, call->vector_cores}, all,
            &r->spec);
    }
    if (status == AIR_OK && c->p->ctx->driver->capture_begin)
        status = capture_graphs_prepare(c, r, host);
    if (status == AIR_OK)
        status = place_all(c, r, all);
    base_arena_deinit(&scratch);
    return status;
}

static bool
takes_turns(const capture_record *r)
{
    bool first = false;

    for (size_t i = 0; i < r->ninputs; i++)
        first |= r->inputs[i].how == INPUT_FIRST;
    return first || r->graphs || r->own_arena || r->area;
}

air_status
capture_record_bind(air_capture *c, capture_record *r,
                    const air_capture_call *call, const air_host *host,
                    const air_value *inputs)
{
    AIR_TRY(find_spec(c, r, call, host, inputs));
    if (r->arena_bytes > 0 &&
        ((r->joins && !r->ran) || (c->options.keep_apart && !c->options.pool)))
        AIR_TRY(
            exec_graph_pool_get(c->pool, r->arena_bytes, false, &r->own_arena));
    AIR_TRY(take_area(c, r));
    r->serial = takes_turns(r);
    r->cube_cores = call->cube_cores;
    r->vector_cores = call->vector_cores;
    r->graph = ++c->graphs;
    exec_graph_pool_expect(c->pool, r->need_bytes, 1);
    return AIR_OK;
}

static air_status
new_frame(air_capture *c, capture_record *r, capture_frame **out)
{
    capture_frame *f;
    void *memory;

    AIR_TRY(base_new(&c->p->ctx->alloc,
                     sizeof *f + exec_frame_bytes(c->p, r->spec), &memory));
    f = memory;
    f->run = (exec_run){.p = c->p, .s = r->spec};
    exec_frame_place(&f->run, f + 1);
    memcpy(f->run.slots, r->slots, (size_t)r->spec->nslots * sizeof *r->slots);
    *out = f;
    return AIR_OK;
}

air_status
capture_frame_take(air_capture *c, capture_record *r, capture_frame **out)
{
    capture_frame *f = r->frames;

    if (!f)
        AIR_TRY(new_frame(c, r, &f));
    else
        r->frames = f->next;
    share_area(c);
    f->run.area = r->area ? r->area->block : NULL;
    if (f->run.area)
        exec_block_retain(f->run.area);
    *out = f;
    return AIR_OK;
}
