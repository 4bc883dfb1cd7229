/* results.c: what a run gives: blocks, memory that HOST nodes left, copies of
 * what has to stay where it is. */
#include <string.h>

#include "exec/exec.h"

/* ---- what a HOST node left ---- */

typedef struct {
    exec_block block;
    air_alloc alloc;
    void *token;
    void (*done)(void *user, void *token);
} left_block;

static void
put_left(exec_block *block)
{
    left_block *left = (left_block *)block;
    air_alloc alloc = left->alloc;

    if (left->done)
        left->done(NULL, left->token);
    base_free(&alloc, left, sizeof *left);
}

air_status
exec_left_make(const exec_run *r, void *token, void *data, exec_block **out)
{
    const air_alloc *alloc = &r->p->ctx->alloc;
    left_block *left;
    void *memory;
    air_status status = base_new(alloc, sizeof *left, &memory);

    *out = NULL;
    if (status != AIR_OK) {
        if (r->host->done)
            r->host->done(NULL, token);
        return base_trace(status, __func__, __LINE__);
    }
    left = memory;
    *left = (left_block){.block = {.put = put_left, .data = data},
                         .alloc = *alloc,
                         .token = token,
                         .done = r->host->done};
    atomic_init(&left->block.refs, 1);
    *out = &left->block;
    return AIR_OK;
}

void *
exec_left_token(const exec_block *block)
{
    return block && block->put == put_left ? ((const left_block *)block)->token
                                           : NULL;
}

/* ---- copies ---- */

static air_status
copy_left(exec_run *r, const exec_storage *t)
{
    exec_block **block = &r->results[t->slot];
    const int64_t one = 1;

    AIR_TRY(exec_run_block(r, (size_t)t->bytes, false, block));
    AIR_TRY(
        exec_copy_strided(&(exec_copy){r->p->ctx, 1, &t->bytes, &one, &one, 1},
                          (*block)->data, r->slots[t->slot]));
    r->slots[t->slot] = (*block)->data;
    return AIR_OK;
}

air_status
exec_run_own_results(exec_run *r)
{
    for (size_t i = 0; i < r->p->g->results.count; i++) {
        const exec_storage *t = &r->s->storages.data[r->s->results[i].storage];
        if (t->where == EXEC_LEFT && !r->results[t->slot])
            AIR_TRY(copy_left(r, t));
    }
    return AIR_OK;
}

/* ---- to the caller ---- */

/* Into the caller's room, which outlives the specialisation. */
static void
copy_layout(const ir_layout *l, int64_t *room, air_value *out)
{
    for (int k = 0; k < l->rank; k++) {
        room[k] = l->dims[k];
        room[AIR_MAX_RANK + k] = l->strides[k];
    }
    out->dims = room;
    out->strides = room + AIR_MAX_RANK;
}

void
exec_run_hand_out(exec_run *r, air_value *outs)
{
    int64_t *room = r->host ? r->host->layouts : NULL;
    exec_spec *s = r->s;

    if (!room)
        atomic_store_explicit(&s->lent, true, memory_order_relaxed);

    for (size_t i = 0; i < r->p->g->results.count; i++) {
        const exec_result *res = &s->results[i];
        const exec_storage *t = &s->storages.data[res->storage];
        outs[i] = (air_value){.dtype = res->dtype,
                              .rank = res->layout.rank,
                              .dims = res->layout.dims,
                              .strides = res->layout.strides,
                              .data = (char *)r->slots[t->slot] + res->offset,
                              .block = r->results[t->slot],
                              .alias = -1};
        if (room)
            copy_layout(&res->layout, room + i * 2 * AIR_MAX_RANK, &outs[i]);
        if (t->where == EXEC_INPUT)
            outs[i].alias = t->input;
        else
            exec_block_retain(r->results[t->slot]);
    }
}
