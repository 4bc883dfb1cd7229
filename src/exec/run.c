/* run.c: one run: pointers into slots, then lists and HOST nodes in turn. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "exec/exec.h"

/* ---- the frame ---- */

static size_t
host_values(const exec_spec *s)
{
    size_t most = 0;

    for (size_t i = 0; s->nhosts > 0 && i < s->steps.count; i++) {
        const exec_step *step = &s->steps.data[i];
        if (step->kind == EXEC_STEP_HOST && step->nin + step->nout > most)
            most = step->nin + step->nout;
    }
    return most;
}

static size_t
host_results(const exec_spec *s)
{
    size_t count = 0;

    for (size_t i = 0; s->nhosts > 0 && i < s->steps.count; i++)
        if (s->steps.data[i].kind == EXEC_STEP_HOST)
            count += s->steps.data[i].nout;
    return count;
}

static size_t
value_bytes(const exec_spec *s)
{
    return exec_round_up(host_values(s) * sizeof(air_value));
}

static size_t
symbol_bytes(const air_program *p)
{
    return p->nnumbers > 0
               ? exec_round_up(p->g->symbols.count * sizeof(int64_t))
               : 0;
}

size_t
exec_frame_bytes(const air_program *p, const exec_spec *s)
{
    return 2 * exec_round_up((size_t)s->nslots * sizeof(void *)) +
           exec_round_up(host_results(s) * sizeof(exec_token)) +
           value_bytes(s) + symbol_bytes(p) +
           p->nnumbers * sizeof(lower_number);
}

void
exec_frame_place(exec_run *r, void *memory)
{
    const size_t slots = exec_round_up((size_t)r->s->nslots * sizeof(void *));
    const size_t tokens =
        exec_round_up(host_results(r->s) * sizeof(exec_token));
    char *base = memory;

    r->slots = (void **)(void *)base;
    r->results = (exec_block **)(void *)(base + slots);
    r->tokens = (exec_token *)(void *)(base + 2 * slots);
    r->values = (air_value *)(void *)(base + 2 * slots + tokens);
    base += 2 * slots + tokens + value_bytes(r->s);
    r->symbols = (int64_t *)(void *)base;
    r->numbers = (lower_number *)(void *)(base + symbol_bytes(r->p));
    memset(r->results, 0, (size_t)r->s->nslots * sizeof(void *));
}

air_status
exec_run_block(const exec_run *r, size_t bytes, bool loose, exec_block **out)
{
    exec_pool *pool = r->p->ctx->pool;

    return r->recorded ? exec_pool_new(pool, bytes, out)
                       : exec_pool_get(pool, bytes, loose, out);
}

static air_status
fill_slots(exec_run *r, const air_value *inputs)
{
    const exec_spec *s = r->s;

    r->slots[s->arena_slot] = r->arena;
    for (size_t i = 0; i < s->storages.count; i++) {
        const exec_storage *t = &s->storages.data[i];
        switch (t->where) {
        case EXEC_ARENA:
        case EXEC_KEPT:          /* exec_run_segments */
        case EXEC_NUMBER: break; /* exec_numbers_fill */
        case EXEC_INPUT: r->slots[t->slot] = inputs[t->input].data; break;
        case EXEC_HOST: r->slots[t->slot] = r->arena + t->offset; break;
        case EXEC_LEFT: r->slots[t->slot] = NULL; break; /* make_rooms */
        case EXEC_BLOCK:
            AIR_TRY(exec_run_block(r, (size_t)t->bytes, false,
                                   &r->results[t->slot]));
            r->slots[t->slot] = r->results[t->slot]->data;
            break;
        }
    }
    return exec_numbers_fill(r, inputs);
}

/* ---- HOST nodes ---- */

static void
keep_token(exec_run *r, const exec_step *step, size_t i, void *of)
{
    const int32_t storage = step->out_storage[i];

    if (of)
        r->tokens[r->ntokens++] =
            (exec_token){of, storage, r->s->storages.data[storage].last};
}

/* NULL: no HOST node left it. */
static void *
find_token(const exec_run *r, int32_t storage)
{
    const exec_storage *t = &r->s->storages.data[storage];

    if (t->where == EXEC_LEFT)
        return exec_left_token(r->results[t->slot]);
    for (size_t i = r->ntokens; i-- > 0;)
        if (r->tokens[i].storage == storage)
            return r->tokens[i].of;
    return NULL;
}

void
exec_let_go(exec_run *r, int32_t next)
{
    size_t left = 0;

    for (size_t i = 0; i < r->ntokens; i++)
        if (r->tokens[i].last >= next)
            r->tokens[left++] = r->tokens[i];
        else if (r->host && r->host->done)
            r->host->done(r->host->user, r->tokens[i].of);
    r->ntokens = left;
}

/* A graph of the device reads it in its room. */
static bool
stays(const exec_run *r, const exec_storage *t)
{
    return r->graphs && r->stays && r->stays[t->slot];
}

static char *
room_of(const exec_run *r, const exec_storage *t)
{
    return t->where == EXEC_LEFT ? r->slots[t->slot] : r->arena + t->offset;
}

/* Into the room; strides: of data. */
static air_status
copy_to_room(const exec_run *r, const exec_storage *t, const air_value *v,
             const int64_t *strides)
{
    int64_t dense[AIR_MAX_RANK];

    exec_dense_strides(v->rank, v->dims, dense);
    return exec_copy_strided(&(exec_copy){r->p->ctx, v->rank, v->dims, dense,
                                          strides ? strides : dense,
                                          (int64_t)air_dtype_bytes(v->dtype)},
                             room_of(r, t), v->data);
}

/* A result of the program becomes the memory that the HOST node left, unless
 * it is to lie where it does: in an area, or as a graph reads it there. */
static bool
is_handed_over(const exec_run *r, const exec_storage *t, const air_value *v)
{
    return t->where == EXEC_LEFT && v->block && !r->area && r->results[t->slot];
}

static air_status
hand_over(exec_run *r, const exec_storage *t, const air_value *v)
{
    exec_block *left;

    AIR_TRY(exec_left_make(r, v->block, v->data, &left));
    exec_block_release(r->results[t->slot]);
    r->results[t->slot] = left;
    r->slots[t->slot] = v->data;
    return AIR_OK;
}

/* What a HOST node left: its own memory is used in place when it is dense. A
 * view of one of its inputs is copied: the arena's memory is used again; and
 * what a graph of the device reads in its room, unless it is on its way still.
 * Where the host cannot touch it, HOST nodes give dense results. */
static air_status
take_host_result(exec_run *r, const exec_step *step, size_t i,
                 const air_value *v)
{
    const exec_storage *t = &r->s->storages.data[step->out_storage[i]];
    const bool begun = step->node->host == AIR_HOST_START;
    const char *arena = r->arena, *room = room_of(r, t);
    bool ours =
        (char *)v->data >= arena && (char *)v->data < arena + r->s->arena_bytes;
    bool dense = exec_is_dense(v->rank, v->dims, v->strides);

    if (v->data != room && dense && !ours && is_handed_over(r, t, v))
        return hand_over(r, t, v);
    keep_token(r, step, i, v->block);
    if (v->data == room)
        return AIR_OK;
    if (dense && !ours && t->where != EXEC_LEFT && (begun || !stays(r, t))) {
        r->slots[t->slot] = v->data;
        return AIR_OK;
    }
    AIR_REQUIRE(dense || !r->p->ctx->target.apart, AIR_ERROR_HOST,
                "a HOST node left a result that is not dense");
    return copy_to_room(r, t, v, v->strides);
}

/* The operand of a WAIT, which is here now. */
static air_status
take_waited(exec_run *r, const exec_step *step, const air_value *v)
{
    const exec_storage *t = &r->s->storages.data[step->in_storage[0]];
    char *room = (char *)r->arena + t->offset;

    if (t->where != EXEC_HOST || !stays(r, t) || r->slots[t->slot] == room)
        return AIR_OK;
    AIR_TRY(copy_to_room(r, t, v, NULL));
    r->slots[t->slot] = room;
    return AIR_OK;
}

/* For results that nothing else has a place for. */
static air_status
make_rooms(exec_run *r, const exec_step *step)
{
    for (size_t i = 0; i < step->nout; i++) {
        const exec_storage *t = &r->s->storages.data[step->out_storage[i]];
        exec_block **block = &r->results[t->slot];
        if (t->where != EXEC_LEFT || r->slots[t->slot])
            continue;
        AIR_TRY(exec_run_block(r, (size_t)t->bytes, false, block));
        r->slots[t->slot] = (*block)->data;
    }
    return AIR_OK;
}

static void
fill_values(const exec_run *r, const exec_step *step)
{
    const exec_spec *s = r->s;
    air_value *in = r->values, *out = r->values + step->nin;

    for (size_t i = 0; i < step->nin; i++) {
        const exec_storage *t = &s->storages.data[step->in_storage[i]];
        in[i] = step->in[i];
        in[i].data = (char *)r->slots[t->slot] + step->in_offset[i] +
                     exec_slot_offset(t);
    }
    for (size_t i = 0; i < step->nout; i++) {
        const exec_storage *t = &s->storages.data[step->out_storage[i]];
        out[i] = step->out[i];
        out[i].strides = NULL;
        out[i].data = room_of(r, t);
    }
}

air_status
exec_run_host(exec_run *r, const exec_step *step)
{
    air_value *in = r->values, *out = r->values + step->nin;
    air_status status;

    AIR_REQUIRE(r->host && r->host->call, AIR_ERROR_ARGUMENT,
                "graph %s has the HOST node %s (%s): air_program_run needs an "
                "air_host",
                r->p->g->name, step->node->host_op, step->node->reason);
    AIR_TRY(make_rooms(r, step));
    fill_values(r, step);
    for (size_t i = 0; i < step->nin && !r->p->ctx->target.apart; i++)
        in[i].block = find_token(r, step->in_storage[i]);
    status = r->host->call(r->host->user, step->node->host_id, step->nin, in,
                           step->nout, out);
    AIR_REQUIRE(status == AIR_OK, status, "HOST node %s failed (%s)",
                step->node->host_op,
                step->node->loc ? step->node->loc : "no location");
    for (size_t i = 0; i < step->nout; i++)
        if (status == AIR_OK)
            status = take_host_result(r, step, i, &out[i]);
        else
            keep_token(r, step, i, out[i].block);
    if (status == AIR_OK && step->node->host == AIR_HOST_WAIT)
        status = take_waited(r, step, &in[0]);
    return status;
}

static air_status
take_recorded(exec_run *r, const exec_step *step, size_t i, const air_value *v,
              char *why)
{
    const exec_storage *t = &r->s->storages.data[step->out_storage[i]];

    if (!exec_is_dense(v->rank, v->dims, v->strides)) {
        (void)snprintf(why, AIR_HOST_WHY, "a result is not dense");
        keep_token(r, step, i, v->block);
        return AIR_ERROR_UNSUPPORTED;
    }
    if (t->where == EXEC_LEFT && v->block)
        return hand_over(r, t, v);
    keep_token(r, step, i, v->block);
    r->slots[t->slot] = v->data;
    if (t->where == EXEC_LEFT) { /* nothing keeps it: a copy */
        exec_block_release(r->results[t->slot]);
        r->results[t->slot] = NULL;
    }
    return AIR_OK;
}

air_status
exec_record_host(exec_run *r, const exec_step *step, void *stream,
                 void **memory, char *why)
{
    air_value *in = r->values, *out = r->values + step->nin;
    air_status status = AIR_OK;

    fill_values(r, step);
    if (r->host->record(r->host->user, step->node->host_id, stream, memory,
                        step->nin, in, step->nout, out, why) != AIR_OK)
        return AIR_ERROR_UNSUPPORTED;
    for (size_t i = 0; i < step->nout; i++)
        if (status == AIR_OK)
            status = take_recorded(r, step, i, &out[i], why);
        else
            keep_token(r, step, i, out[i].block);
    return status;
}

/* ---- the run ---- */

static air_status
launch(const exec_run *r, size_t i)
{
    const size_t bytes = (size_t)r->s->nslots * sizeof(void *);
    void **known = r->launched + i * (size_t)r->s->nslots;
    air_context *ctx = r->p->ctx;

    /* what numbers are is in no slot */
    if (r->p->nnumbers > 0 || memcmp(known, r->slots, bytes) != 0) {
        AIR_TRY(ctx->driver->graph_patch(ctx->device, r->graphs[i], r->slots));
        memcpy(known, r->slots, bytes);
    }
    return ctx->driver->graph_launch(ctx->device, r->graphs[i]);
}

static air_status
run_segment(exec_run *r, size_t i)
{
    const exec_segment *seg = &r->s->segments[i];
    air_context *ctx = r->p->ctx;

    if (r->graphs && r->joined && r->joined[i])
        return AIR_OK;
    if (r->graphs && r->graphs[i])
        return launch(r, i);
    if (!seg->list)
        return exec_run_host(r, &r->s->steps.data[seg->begin]);
    return ctx->driver->list_run(ctx->device, seg->list, r->slots);
}

/* ---- what the first run computes ---- */

static air_status
new_kept(exec_run *r)
{
    AIR_TRY(exec_pool_get(r->p->ctx->pool, r->s->kept_bytes, false, &r->kept));
    r->slots[r->s->kept_slot] = r->kept->data;
    return AIR_OK;
}

/* The block of the spec, or a new one where the contents of the frozen inputs
 * are others: runs that read the old one go on doing so. */
static air_status
find_kept(exec_run *r, uint64_t stamp)
{
    exec_spec *s = r->s;

    if (s->kept && s->kept_stamp == stamp) {
        r->kept = s->kept;
        r->slots[s->kept_slot] = r->kept->data;
    } else {
        AIR_TRY(new_kept(r));
        for (size_t i = 0; i < s->once_segments; i++)
            AIR_TRY(run_segment(r, i));
        exec_block_release(s->kept);
        s->kept = r->kept;
        s->kept_stamp = stamp;
    }
    exec_block_retain(r->kept);
    return AIR_OK;
}

static air_status
take_kept(exec_run *r)
{
    air_status status;

    pthread_mutex_lock(&r->p->mutex);
    status = find_kept(r, r->host ? r->host->frozen : 0);
    pthread_mutex_unlock(&r->p->mutex);
    return status;
}

/* Behind a segment. Where memory is apart, kernels that read it may be on their
 * way still. */
static void
let_go_behind(exec_run *r, size_t i)
{
    if (r->ntokens > 0 && !r->p->ctx->target.apart)
        exec_let_go(r, (int32_t)r->s->segments[i].end);
}

air_status
exec_run_segments(exec_run *r)
{
    const bool watched = r->host && r->host->see;

    if (r->s->kept_bytes > 0) /* who watches sees the first run's steps too */
        AIR_TRY(watched ? new_kept(r) : take_kept(r));
    if (watched)
        return exec_watch_segments(r);
    for (size_t i = r->s->once_segments; i < r->s->nsegments; i++) {
        AIR_TRY(run_segment(r, i));
        let_go_behind(r, i);
    }
    atomic_store_explicit(&r->s->ran, true, memory_order_relaxed);
    return AIR_OK;
}

void
exec_run_end(exec_run *r)
{
    exec_let_go(r, INT32_MAX);
    exec_block_release(r->kept);
    r->kept = NULL;
    /* blocks have slots behind those of the inputs */
    for (int32_t i = 1 + (int32_t)r->p->g->inputs.count; i < r->s->nslots;
         i++) {
        exec_block_release(r->results[i]);
        r->results[i] = NULL;
    }
}

air_status
exec_check_counts(const air_program *p, size_t nin, size_t nout,
                  air_value *outs)
{
    for (size_t i = 0; outs && i < nout; i++)
        outs[i] = (air_value){.alias = -1};
    AIR_REQUIRE(nin == p->g->inputs.count, AIR_ERROR_ARGUMENT,
                "graph %s takes %zu inputs, %zu were given", p->g->name,
                p->g->inputs.count, nin);
    AIR_REQUIRE(nout == p->g->results.count, AIR_ERROR_ARGUMENT,
                "graph %s gives %zu results, room for %zu was given",
                p->g->name, p->g->results.count, nout);
    return AIR_OK;
}

/* The frame lies behind the arena, in the same block; where the host cannot
 * touch that, in memory of its own. */
static air_status
place_frame(exec_run *r, exec_block **out_block, void **out_own)
{
    const air_context *ctx = r->p->ctx;
    const size_t arena = exec_round_up(r->s->arena_bytes);
    const size_t frame = exec_frame_bytes(r->p, r->s);
    const bool apart = ctx->target.apart;

    *out_own = NULL;
    if (apart)
        AIR_TRY(base_new(&ctx->alloc, frame, out_own));
    air_status status =
        exec_run_block(r, apart ? arena : arena + frame, true, out_block);
    if (status != AIR_OK) {
        base_free(&ctx->alloc, *out_own, frame);
        return base_trace(status, __func__, __LINE__);
    }
    r->arena = (*out_block)->data;
    exec_frame_place(r, apart ? *out_own : r->arena + arena);
    return AIR_OK;
}

static air_status
run_spec(exec_run *r, const air_value *inputs, air_value *outs)
{
    const air_program *p = r->p;
    exec_block *block;
    void *own;
    air_status status;

    AIR_TRY(place_frame(r, &block, &own));
    status = fill_slots(r, inputs);
    if (status == AIR_OK)
        status = exec_run_segments(r);
    if (status == AIR_OK)
        status = exec_run_own_results(r);
    if (status == AIR_OK)
        exec_run_hand_out(r, outs);
    exec_run_end(r);
    if (p->options.give_back && p->g->symbols.count == 0)
        exec_block_discard(block);
    else
        exec_block_release(block);
    base_free(&p->ctx->alloc, own, exec_frame_bytes(p, r->s));
    return status;
}

air_status
exec_program_run(air_program *p, const air_host *host, const air_value *inputs,
                 air_value *outs)
{
    exec_run r = {.p = p, .host = host, .recorded = host && host->recorded};
    exec_cores cores = {0, 0};
    air_status status;

    if (host)
        cores = (exec_cores){host->cube_cores, host->vector_cores};
    AIR_TRY(r.recorded ? exec_find_recorded(&r, cores, inputs)
                       : exec_spec_get(p, cores, inputs, &r.s));
    status = run_spec(&r, inputs, outs);
    exec_spec_release(p, r.s);
    if (status == AIR_OK)
        atomic_fetch_add_explicit(&p->runs, 1, memory_order_relaxed);
    return status;
}
