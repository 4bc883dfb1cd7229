/* replay.c: one call of a capture: pointers into slots, data into the inputs
 * that are static, then the steps. */
#include "exec/capture.h"

air_status
capture_all_inputs(const air_capture *c, const air_binding *binding,
                   const air_value *inputs, base_arena *scratch,
                   air_value **out)
{
    const size_t n = c->p->g->inputs.count;

    AIR_TRY(BASE_ARENA_ARRAY(scratch, n + 1, out));
    for (size_t i = 0; i < n; i++)
        (*out)[i] = c->is_static[i] ? binding->values[i] : inputs[i];
    return AIR_OK;
}

/* ---- copies of inputs ---- */

static size_t
span(const air_value *v, const int64_t *strides)
{
    int64_t last = 0;

    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] == 0)
            return 0;
        last += (v->dims[i] - 1) * strides[i];
    }
    return (size_t)(last + 1) * air_dtype_bytes(v->dtype);
}

static bool
overlap(const void *a, const void *b, size_t bytes)
{
    return (const char *)a < (const char *)b + bytes &&
           (const char *)b < (const char *)a + bytes;
}

/* The value into memory of the same layout, which it may overlap. */
static air_status
copy_into_first(air_capture *c, const air_value *v, const int64_t *strides,
                void *dst)
{
    const size_t bytes = span(v, strides);
    exec_copy s = {c->p->ctx, v->rank, v->dims,
                   strides,   strides, (int64_t)air_dtype_bytes(v->dtype)};
    const void *src = v->data;
    exec_block *stage = NULL;
    air_status status = AIR_OK;

    if (overlap(dst, src, bytes)) {
        AIR_TRY(exec_graph_pool_get(c->pool, bytes, true, &stage));
        status = exec_copy_strided(&s, stage->data, src);
        src = stage->data;
    }
    if (status == AIR_OK)
        status = exec_copy_strided(&s, dst, src);
    exec_block_release(stage);
    return status;
}

static air_status
copy_input(air_capture *c, const capture_input *in, const air_value *v,
           char *room)
{
    int64_t dense[AIR_MAX_RANK];
    const int64_t *strides = v->strides ? v->strides : dense;
    exec_copy s = {c->p->ctx, v->rank, v->dims,
                   dense,     strides, (int64_t)air_dtype_bytes(v->dtype)};

    exec_dense_strides(v->rank, v->dims, dense);
    atomic_fetch_add_explicit(&c->copied,
                              (uint64_t)(exec_numel(v->rank, v->dims) * s.size),
                              memory_order_relaxed);
    if (in->how == INPUT_FIRST)
        return copy_into_first(c, v, strides, in->data);
    return exec_copy_strided(&s, room, v->data);
}

/* ---- slots ---- */

static char *
room_of(const exec_run *run, const capture_input *in)
{
    return in->block ? in->block->data : run->arena + in->offset;
}

/* A graph reads it where it was: from now on in a room, which stays. */
static air_status
leave_place(air_capture *c, capture_record *r, exec_run *run, capture_input *in)
{
    AIR_TRY(exec_graph_pool_get(c->pool, in->bytes, false, &in->block));
    in->how = INPUT_COPIED;
    return capture_graphs_again(c, r, run);
}

static air_status
fill_input(air_capture *c, capture_record *r, exec_run *run, capture_input *in,
           const air_value *v)
{
    if (in->pinned && in->how == INPUT_PATCHED && r->captured &&
        in->data != v->data)
        AIR_TRY(leave_place(c, r, run, in));
    switch (in->how) {
    case INPUT_PATCHED: run->slots[in->slot] = v->data; break;
    case INPUT_COPIED:
        run->slots[in->slot] = room_of(run, in);
        return copy_input(c, in, v, room_of(run, in));
    case INPUT_FIRST:
        if (v->data != in->data)
            return copy_input(c, in, v, NULL);
        break;
    }
    return AIR_OK;
}

static air_status
fill_inputs(air_capture *c, capture_record *r, exec_run *run,
            const air_value *inputs)
{
    for (size_t i = 0; i < r->ninputs; i++)
        AIR_TRY(
            fill_input(c, r, run, &r->inputs[i], &inputs[r->inputs[i].input]));
    return AIR_OK;
}

/* Memory that a recording brings along is not looked for before: others would
 * lie elsewhere in the next call, which HOST nodes in the graph would miss. */
static bool
takes_memory(const exec_run *run, const capture_block *b)
{
    return !b->data && !run->area && !(b->left_by && !b->left_by->why[0]);
}

static void
drop_block(exec_run *run, const capture_block *b)
{
    exec_block_release(run->results[b->slot]);
    run->results[b->slot] = NULL;
    run->slots[b->slot] = NULL;
}

static air_status
fill_block(air_capture *c, exec_run *run, const capture_block *b)
{
    exec_block **block = &run->results[b->slot];

    if (takes_memory(run, b)) {
        if (!*block)
            AIR_TRY(exec_graph_pool_get(c->pool, b->bytes, false, block));
        run->slots[b->slot] = (*block)->data;
        return AIR_OK;
    }
    if (b->data) {
        run->slots[b->slot] = b->data;
        *block = b->copied ? NULL : b->block;
    } else if (run->area) {
        run->slots[b->slot] = (char *)run->area->data + b->offset;
        *block = run->area;
    }
    if (*block)
        exec_block_retain(*block);
    return AIR_OK;
}

air_status
capture_fill_block(air_capture *c, exec_run *run, const capture_block *b)
{
    drop_block(run, b);
    return fill_block(c, run, b);
}

/* Results lie where they were, if that is free, whatever else has taken and
 * given back memory since: HOST nodes in graphs read them there. */
air_status
capture_fill_blocks(air_capture *c, const capture_record *r, exec_run *run)
{
    for (size_t i = 0; i < r->nblocks; i++)
        drop_block(run, &r->blocks[i]);
    for (size_t i = 0; i < r->nblocks && r->joins; i++) {
        const capture_block *b = &r->blocks[i];
        if (b->last && takes_memory(run, b))
            exec_graph_pool_get_at(c->pool, b->bytes, b->last,
                                   &run->results[b->slot]);
    }
    for (size_t i = 0; i < r->nblocks; i++) {
        capture_block *b = &r->blocks[i];
        AIR_TRY(fill_block(c, run, b));
        if (r->joins) /* else several threads may run it */
            b->last = takes_memory(run, b) ? run->slots[b->slot] : NULL;
    }
    return AIR_OK;
}

static air_status
fill_arena(air_capture *c, const capture_record *r, capture_frame *f)
{
    exec_run *run = &f->run;

    run->arena = r->own_arena ? r->own_arena->data : NULL;
    if (!r->own_arena && r->arena_bytes > 0) {
        AIR_TRY(exec_graph_pool_get(c->pool, r->arena_bytes, true, &f->arena));
        run->arena = f->arena->data;
    }
    run->slots[r->spec->arena_slot] = run->arena;
    for (size_t i = 0; i < r->nhosts; i++)
        run->slots[r->hosts[i].slot] = r->hosts[i].data
                                           ? r->hosts[i].data
                                           : run->arena + r->hosts[i].offset;
    return AIR_OK;
}

/* ---- the call ---- */

static air_status
run_filled(air_capture *c, capture_record *r, exec_run *run, air_value *outs)
{
    if (r->graphs && !atomic_load(&r->plain))
        AIR_TRY(capture_graphs_make(c, r, run));
    run->graphs = r->captured ? r->graphs : NULL;
    run->launched = r->launched;
    run->joined = r->joined;
    run->stays = r->stays;
    AIR_TRY(exec_run_segments(run));
    AIR_TRY(exec_run_own_results(run));
    exec_run_hand_out(run, outs);
    return AIR_OK;
}

air_status
capture_replay(air_capture *c, capture_record *r, capture_frame *f,
               const air_host *host, const air_value *inputs, air_value *outs)
{
    air_status status;

    f->run.host = host;
    if (r->serial)
        pthread_mutex_lock(&r->mutex);
    status = fill_arena(c, r, f);
    if (status == AIR_OK)
        status = capture_graphs_leave(c, r, &f->run);
    if (status == AIR_OK)
        status = capture_fill_blocks(c, r, &f->run);
    if (status == AIR_OK)
        status = fill_inputs(c, r, &f->run, inputs);
    if (status == AIR_OK)
        status = exec_numbers_fill(&f->run, inputs);
    if (status == AIR_OK)
        status = run_filled(c, r, &f->run, outs);
    exec_run_end(&f->run);
    exec_block_release(f->arena);
    exec_block_release(f->run.area);
    f->arena = f->run.area = NULL;
    if (r->serial)
        pthread_mutex_unlock(&r->mutex);
    return status;
}
