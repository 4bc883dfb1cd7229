/* replay_graph.c: the device's graphs of a capture. A graph holds the lists
 * between two HOST nodes that it cannot hold.
 *
 * A HOST node gets into a graph by being recorded (air_host.record): the work
 * that it gives to a stream becomes a part of the graph. It runs by itself
 * once before that: libraries choose and allocate at the first call. What it
 * reads has to stay where it is, so that such a capture has its arena for
 * itself and copies results of HOST nodes that run by themselves and inputs
 * that such a node reads, large ones since they were seen to move; where
 * another operand lies elsewhere (a result of the program: it does not where a
 * step repeats) all is recorded again, and after a few times close together
 * without that node.
 * Results of HOST nodes live in memory of the recording: while one is needed by
 * what comes behind, its token is kept; results of the program lie there, too,
 * unless callers were seen to hold them when they call again. */
#include <stdio.h>
#include <string.h>

#include "exec/capture.h"

#define MOST_MOVES 3
#define FORGOTTEN  16 /* calls without a move: earlier ones do not count */

/* ---- which HOST nodes ---- */

/* What capture_graphs_print reads, another thread. */
static void
tell(air_capture *c, capture_host *h, bool in_graph, const char *why)
{
    pthread_mutex_lock(&c->telling);
    h->in_graph = in_graph;
    if (why)
        (void)snprintf(h->why, sizeof h->why, "%.*s", AIR_HOST_WHY - 1, why);
    pthread_mutex_unlock(&c->telling);
}

static void
refuse(air_capture *c, capture_host *h, const char *why)
{
    tell(c, h, false, why);
}

static const exec_step *
host_of(const exec_spec *s, size_t segment)
{
    return s->segments[segment].list
               ? NULL
               : &s->steps.data[s->segments[segment].begin];
}

static const char *
reason_of(const air_host *host, const exec_step *step)
{
    const char *why = NULL;
    if (host->unrecorded)
        why = host->unrecorded(host->user, step->node->host_id);
    if (!why && step->node->host != AIR_HOST_CALL)
        why = "it begins or ends what runs beside the graph";
    return why;
}

static air_status
sort_hosts(air_capture *c, capture_record *r, const air_host *host)
{
    const exec_spec *s = r->spec;
    size_t count = 0, operands = 0;

    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, s->nsegments, &r->joins));
    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, s->nsegments, &r->joined));
    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, s->nslots, &r->stays));
    for (size_t i = 0; i < s->nsegments; i++) {
        const exec_step *step = host_of(s, i);
        const char *why = step ? reason_of(host, step) : NULL;
        if (why)
            refuse(c, &r->joins[i], why);
        operands += step ? step->nin : 0;
        count += step && !why;
    }
    r->done = host->done;
    if (count == 0)
        r->ran = true; /* nothing to wait for */
    return BASE_ARENA_ARRAY(&r->arena, operands + 1, &r->pins);
}

air_status
capture_graphs_prepare(air_capture *c, capture_record *r, const air_host *host)
{
    const air_driver *driver = c->p->ctx->driver;
    const size_t n = r->spec->nsegments;

    AIR_TRY(BASE_ARENA_ARRAY(&r->arena, n, &r->graphs));
    AIR_TRY(
        BASE_ARENA_ARRAY(&r->arena, n * (size_t)r->spec->nslots, &r->launched));
    if (r->spec->nhosts > 0 && driver->foreign_begin && host && host->record)
        AIR_TRY(sort_hosts(c, r, host));
    return AIR_OK;
}

/* ---- making graphs ---- */

static void
drop_graphs(air_capture *c, capture_record *r)
{
    for (size_t i = 0; i < r->spec->nsegments; i++)
        if (r->graphs[i])
            c->p->ctx->driver->graph_free(c->p->ctx->device, r->graphs[i]);
    memset(r->graphs, 0, r->spec->nsegments * sizeof(void *));
    for (size_t i = 0; r->joins && i < r->spec->nsegments; i++) {
        r->joined[i] = false;
        tell(c, &r->joins[i], false, NULL);
    }
    for (size_t i = 0; i < r->nhosts; i++)
        r->hosts[i].data = NULL;
    for (size_t i = 0; i < r->nblocks; i++) {
        exec_block_release(r->blocks[i].block);
        r->blocks[i].block = NULL;
        r->blocks[i].data = NULL;
    }
    if (r->memory && r->done)
        r->done(NULL, r->memory);
    r->memory = NULL;
    for (size_t i = 0; i < r->npins; i++)
        r->stays[r->pins[i].slot] = false;
    r->npins = 0;
    r->captured = false;
}

void
capture_graphs_free(air_capture *c, capture_record *r)
{
    if (r->graphs)
        drop_graphs(c, r);
}

/* One making of all graphs. */
typedef struct {
    air_capture *c;
    capture_record *r;
    exec_run *run;
    size_t open; /* the segment whose graph is being captured */
    bool is_open;
} graph_maker;

static air_status
open_graph(graph_maker *m, size_t i)
{
    const air_context *ctx = m->c->p->ctx;
    if (m->is_open) {
        if (m->r->joined)
            m->r->joined[i] = true;
        return AIR_OK;
    }
    AIR_TRY(ctx->driver->capture_begin(ctx->device, m->c->options.error_mode));
    m->open = i;
    m->is_open = true;
    return AIR_OK;
}

static air_status
close_graph(graph_maker *m, air_status status)
{
    const air_context *ctx = m->c->p->ctx;
    const size_t nslots = (size_t)m->r->spec->nslots;
    if (!m->is_open)
        return status;
    m->is_open = false;
    const air_status ended =
        ctx->driver->capture_end(ctx->device, &m->r->graphs[m->open]);
    memcpy(m->r->launched + m->open * nslots, m->run->slots,
           nslots * sizeof(void *));
    return status != AIR_OK ? status : ended;
}

static capture_block *
find_block(capture_block *blocks, size_t count, int32_t slot)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i].slot == slot)
            return &blocks[i];
    return NULL;
}

/* Where the graph leaves it at each replay. */
static void
note_result(const graph_maker *m, int32_t slot)
{
    capture_record *r = m->r;
    capture_block *host = find_block(r->hosts, r->nhosts, slot);
    capture_block *b = find_block(r->blocks, r->nblocks, slot);

    if (host)
        host->data = m->run->slots[slot];
    if (!b)
        return;
    b->data = m->run->slots[slot];
    b->block = m->run->results[slot];
    b->copied |= !b->block;
    if (b->copied)
        m->run->results[slot] = NULL;
    else
        exec_block_retain(b->block);
}

/* The result that a HOST node by itself leaves anew at each call, if operand k
 * is one; or NULL. */
static capture_block *
left_anew(const graph_maker *m, const exec_step *step, size_t k)
{
    const capture_record *r = m->r;
    const exec_storage *t = &r->spec->storages.data[step->in_storage[k]];
    capture_block *b = find_block(r->blocks, r->nblocks, t->slot);
    const bool anew = b && b->left_by && b->left_by->why[0] && !b->data;

    return anew && !m->run->area ? b : NULL;
}

/* It has a place where the graph finds it. Memory is taken before a device
 * captures. */
static air_status
fix_operands(const graph_maker *m, const exec_step *step)
{
    for (size_t k = 0; k < step->nin; k++) {
        capture_block *b = left_anew(m, step, k);
        if (!b)
            continue;
        AIR_TRY(exec_graph_pool_get(m->c->pool, b->bytes, false, &b->block));
        b->data = b->block->data;
        b->copied = true;
        AIR_TRY(capture_fill_block(m->c, m->run, b));
    }
    return AIR_OK;
}

static air_status
fix_all_operands(const graph_maker *m)
{
    for (size_t i = 0; m->r->joins && i < m->r->spec->nsegments; i++) {
        const exec_step *step = host_of(m->r->spec, i);
        if (step && !m->r->joins[i].why[0])
            AIR_TRY(fix_operands(m, step));
    }
    return AIR_OK;
}

/* Of a node that was to be recorded, and was not. */
static bool
reads_left_anew(const graph_maker *m, const exec_step *step)
{
    for (size_t k = 0; k < step->nin; k++)
        if (left_anew(m, step, k))
            return true;
    return false;
}

/* Its operands stay where they are; its results are where they will be. */
static void
settle(graph_maker *m, size_t i, const exec_step *step)
{
    capture_record *r = m->r;
    const exec_spec *s = r->spec;
    for (size_t k = 0; k < step->nin; k++) {
        const int32_t slot = s->storages.data[step->in_storage[k]].slot;
        r->pins[r->npins++] = (capture_pin){i, slot, m->run->slots[slot]};
        r->stays[slot] = true;
    }
    for (size_t k = 0; k < step->nout; k++)
        note_result(m, s->storages.data[step->out_storage[k]].slot);
    tell(m->c, &r->joins[i], true, NULL);
}

/* UNSUPPORTED: not recorded, and why is noted. */
static air_status
record_host(graph_maker *m, size_t i)
{
    const air_context *ctx = m->c->p->ctx;
    const exec_step *step = host_of(m->r->spec, i);
    char why[AIR_HOST_WHY] = "";
    void *stream;

    if (reads_left_anew(m, step)) {
        refuse(m->c, &m->r->joins[i], "it reads what another one leaves anew");
        return AIR_ERROR_UNSUPPORTED;
    }
    air_status begun = ctx->driver->foreign_begin(ctx->device, &stream);
    if (begun == AIR_ERROR_UNSUPPORTED)
        refuse(m->c, &m->r->joins[i], air_last_error()->message);
    AIR_TRY(begun);
    const air_status status =
        exec_record_host(m->run, step, stream, &m->r->memory, why);
    const air_status ended =
        ctx->driver->foreign_end(ctx->device, status == AIR_OK);
    if (status == AIR_OK && ended != AIR_OK)
        refuse(m->c, &m->r->joins[i], air_last_error()->message);
    else if (status != AIR_OK)
        refuse(m->c, &m->r->joins[i], why[0] ? why : "it cannot be recorded");
    if (status != AIR_OK || ended != AIR_OK)
        return AIR_ERROR_UNSUPPORTED;
    settle(m, i, step);
    return AIR_OK;
}

/* Slots of a HOST node that runs by itself: room in the arena, until it has;
 * of results any memory while the device captures what reads them, then none,
 * until it has. */
static void
unrecord(const graph_maker *m, size_t i)
{
    const exec_spec *s = m->r->spec;
    const exec_step *step = host_of(s, i);
    for (size_t k = 0; k < step->nout; k++) {
        const exec_storage *t = &s->storages.data[step->out_storage[k]];
        exec_block **result = &m->run->results[t->slot];
        if (t->where == EXEC_LEFT && m->run->area)
            continue;
        m->run->slots[t->slot] = m->run->arena + t->offset;
        exec_block_release(*result);
        *result = NULL;
    }
}

static void
take_no_place(const graph_maker *m)
{
    for (size_t i = 0; i < m->r->nblocks; i++) {
        const capture_block *b = &m->r->blocks[i];
        if (!b->data && !m->run->results[b->slot])
            m->run->slots[b->slot] = NULL;
    }
}

static air_status
take_host(graph_maker *m, size_t i)
{
    const bool joins = m->r->joins && !m->r->joins[i].why[0];
    if (joins) {
        const bool was_open = m->is_open;
        AIR_TRY(open_graph(m, i));
        const air_status status = record_host(m, i);
        if (status != AIR_ERROR_UNSUPPORTED)
            return status;
        m->r->joined[i] = false;
        unrecord(m, i);
        if (!was_open) { /* nothing is in it */
            AIR_TRY(close_graph(m, AIR_OK));
            m->c->p->ctx->driver->graph_free(m->c->p->ctx->device,
                                             m->r->graphs[i]);
            m->r->graphs[i] = NULL;
            return AIR_OK;
        }
    }
    return close_graph(m, AIR_OK);
}

static air_status
take_segments(graph_maker *m)
{
    const air_context *ctx = m->c->p->ctx;
    const exec_spec *s = m->r->spec;
    const bool apart = !m->r->joins;

    for (size_t i = 0; i < s->nsegments; i++) {
        const exec_segment *seg = &s->segments[i];
        if (!seg->list) {
            AIR_TRY(take_host(m, i));
        } else {
            AIR_TRY(open_graph(m, i));
            AIR_TRY(
                ctx->driver->list_run(ctx->device, seg->list, m->run->slots));
            if (apart)
                AIR_TRY(close_graph(m, AIR_OK));
        }
        exec_let_go(m->run, (int32_t)seg->end);
    }
    return AIR_OK;
}

/* Results of HOST nodes are where they are without graphs. */
air_status
capture_graphs_again(air_capture *c, capture_record *r, exec_run *run)
{
    drop_graphs(c, r);
    for (size_t i = 0; i < r->nhosts; i++)
        run->slots[r->hosts[i].slot] = run->arena + r->hosts[i].offset;
    return capture_fill_blocks(c, r, run);
}

air_status
capture_graphs_leave(air_capture *c, capture_record *r, exec_run *run)
{
    bool held = false;

    for (size_t i = 0; i < r->nblocks && !run->area; i++) {
        capture_block *b = &r->blocks[i];
        if (!b->block || b->copied || !exec_block_is_held(b->block))
            continue;
        held = true;
        b->copied = ++b->held >= MOST_MOVES;
    }
    return held ? capture_graphs_again(c, r, run) : AIR_OK;
}

static void
note_inputs(capture_record *r, const exec_run *run)
{
    for (size_t i = 0; i < r->ninputs; i++)
        if (r->inputs[i].pinned)
            r->inputs[i].data = run->slots[r->inputs[i].slot];
}

static air_status
make_graphs(air_capture *c, capture_record *r, exec_run *run)
{
    graph_maker m = {.c = c, .r = r, .run = run};
    air_status status = fix_all_operands(&m);
    if (status == AIR_OK)
        status = close_graph(&m, take_segments(&m));
    take_no_place(&m);
    exec_let_go(run, INT32_MAX);
    r->captured = status == AIR_OK;
    if (r->captured) {
        note_inputs(r, run);
        return AIR_OK;
    }
    AIR_TRY(capture_graphs_again(c, r, run));
    if (status != AIR_ERROR_UNSUPPORTED)
        return base_trace(status, __func__, __LINE__);
    atomic_store(&r->plain, true);
    return AIR_OK;
}

static void
forget_moves(capture_record *r)
{
    for (size_t i = 0; i < r->spec->nsegments; i++)
        r->joins[i].moves = 0;
}

/* Notes whose operands do. */
static bool
has_moved(air_capture *c, capture_record *r, void *const *slots)
{
    bool moved = false;
    for (size_t i = 0; i < r->npins; i++) {
        const capture_pin *pin = &r->pins[i];
        capture_host *h = &r->joins[pin->segment];
        if (slots[pin->slot] == pin->data)
            continue;
        moved = true;
        if (++h->moves >= MOST_MOVES)
            refuse(c, h, "an operand lies elsewhere at each call");
    }
    r->still = moved ? 0 : r->still + 1;
    if (!moved && r->still % FORGOTTEN == 0)
        forget_moves(r);
    return moved;
}

air_status
capture_graphs_make(air_capture *c, capture_record *r, exec_run *run)
{
    if (r->captured && r->npins > 0 && has_moved(c, r, run->slots))
        AIR_TRY(capture_graphs_again(c, r, run));
    if (r->captured)
        return AIR_OK;
    if (r->joins && !r->ran) {
        r->ran = true;
        return AIR_OK;
    }
    return make_graphs(c, r, run);
}

/* ---- for people ---- */

void
capture_graphs_print(air_capture *c, base_text *out)
{
    const capture_record *r = c->records;
    while (r && !(r->spec && r->joins))
        r = r->next;
    pthread_mutex_lock(&c->telling);
    for (size_t i = 0; r && i < r->spec->nsegments; i++) {
        const exec_step *step = host_of(r->spec, i);
        if (!step)
            continue;
        const capture_host *h = &r->joins[i];
        base_text_add(out, "%s: %s\n", step->label,
                      h->in_graph ? "in the graph"
                      : h->why[0] ? h->why
                                  : "it runs by itself once before it is");
    }
    pthread_mutex_unlock(&c->telling);
}
