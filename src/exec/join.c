/* join.c: a product and the region behind it become one step of a list, where
 * the driver has a kernel of both: the region runs on pieces of the product
 * while they are in the cache. A product that stays in a cache anyway is read
 * again as fast, and its region runs faster in one go. The steps themselves
 * stay, for runs that are watched. */
#include <string.h>

#include "exec/exec.h"

/* Bytes of a product: from here on it pays, measured with 32 MB of cache. Of a
 * convolution, whose lines of pixels are longer than its tiles, sooner. */
#define LARGE  ((int64_t)8 << 20)
#define PIXELS ((int64_t)32 << 10)

/* ---- which ---- */

static int64_t
least_bytes(const ir_node *n)
{
    return n->op == AIR_OP_CONVOLUTION ? PIXELS : LARGE;
}

static bool
is_product(const exec_step *step)
{
    const air_tensor *t = step->step.call.outs;

    return step->kind == EXEC_STEP_CALL && step->node &&
           (ir_info(step->node)->flags & IR_CONTRACT) && !step->node->inplace &&
           exec_is_dense(t->rank, t->dims, t->strides) &&
           exec_numel(t->rank, t->dims) >=
               least_bytes(step->node) /
                   (int64_t)air_dtype_bytes((air_dtype)t->dtype);
}

/* Is element e of the buffer element e of the tensor, for all of it? */
static bool
is_whole(const lower_region *l, int buf, const air_tensor *t)
{
    const air_region *r = l->region;
    const air_rg_buf *b = &l->bufs[buf];

    return b->dtype == t->dtype && b->offset == t->offset &&
           exec_numel(r->rank, r->dims) == exec_numel(t->rank, t->dims) &&
           exec_is_dense(r->rank, r->dims, b->strides) && !exec_stores(r, buf);
}

/* 1 + the buffer that is the product; 0: there is none, or several. */
static int
find_buffer(const exec_step *product, const exec_step *step)
{
    const air_tensor *t = &product->step.call.outs[0];
    int found = 0;

    for (int b = 0; b < step->region.region->nbufs; b++) {
        if (step->region.bufs[b].slot != t->slot)
            continue;
        if (found || !is_whole(&step->region, b, t))
            return 0;
        found = b + 1;
    }
    return found;
}

static void
live_on(void *arg, int32_t *slot, int64_t *offset, bool written)
{
    exec_maker *m = arg;
    exec_storage *s = &m->s->storages.data[*slot];

    (void)offset, (void)written;
    if (s->last == m->joining)
        s->last++;
}

/* Slots are storages. What a product reads lives as long as the region behind
 * it, whose results must not lie there. */
void
exec_find_joins(exec_maker *m)
{
    exec_spec *s = m->s;

    if (m->before || !m->p->ctx->driver->kernel_join ||
        (m->p->options.without & AIR_WITHOUT_JOIN))
        return;
    for (size_t i = 0; i + 1 < s->steps.count; i++) {
        exec_step *step = &s->steps.data[i], *next = step + 1;
        if (!is_product(step) || next->kind != EXEC_STEP_REGION ||
            next->reason || next->region.region->walk != AIR_WALK_MAP ||
            next->step.joined != step->step.joined ||
            next->step.untimed != step->step.untimed)
            continue;
        next->join = find_buffer(step, next);
        m->joining = (int32_t)i;
        if (!next->join)
            continue;
        next->region.region->stream = 0; /* pieces of lines go to the cache */
        exec_each_place(step, live_on, m);
    }
}

/* ---- making ---- */

/* Does nobody but the region read the product? */
static bool
is_between(const exec_maker *m, size_t i)
{
    const exec_storage *s = &m->s->storages.data[m->s->steps.data[i + 1].from];

    return s->where == EXEC_ARENA && s->first == (int32_t)i &&
           s->last == (int32_t)i + 1;
}

static air_status
join_label(exec_maker *m, exec_step *step, const exec_step *next)
{
    base_text text;
    air_status status;

    base_text_init(&text, m->g->alloc);
    base_text_add(&text, "%s+%s", step->label, next->label);
    status = text.status;
    if (status == AIR_OK)
        status = base_arena_str(&m->s->arena, text.data, text.len,
                                &step->joined_label);
    base_text_deinit(&text);
    return status;
}

/* Step i and the one behind it, whose code is given; no failure: they stay two.
 */
air_status
exec_join(exec_maker *m, size_t i, const air_code *code)
{
    air_context *ctx = m->p->ctx;
    exec_step *step = &m->s->steps.data[i], *next = step + 1;
    size_t bytes;

    if (next->step.threads != step->step.threads)
        return AIR_OK;
    AIR_TRY(ctx->driver->kernel_join(
        ctx->device, step->step.kernel, &step->step.call, next->region.region,
        code, next->join - 1, !is_between(m, i), &step->joined));
    if (!step->joined)
        return AIR_OK;
    next->taken = true;
    bytes = ctx->driver->workspace(ctx->device, step->joined, &step->step.call);
    if (bytes > step->step.workspace)
        step->step.workspace = bytes;
    return join_label(m, step, next);
}

/* ---- lists ---- */

/* The step of a list that step i is: steps before it that are part of others
 * do not count. */
air_step
exec_list_step(const exec_spec *s, size_t i)
{
    const exec_step *step = &s->steps.data[i];
    air_step made = step->step;
    uint32_t beside = made.beside;

    if (step->joined && step[1].join_beside < beside)
        beside = step[1].join_beside;
    made.beside = 0;
    for (uint32_t k = 1; k <= beside; k++)
        made.beside += !step[-(int)k].taken;
    if (step->joined) {
        made.kernel = step->joined;
        made.cost += step[1].step.cost;
        made.label = step->joined_label;
    }
    return made;
}
