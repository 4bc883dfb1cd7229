/* recorded.c: runs that the application records on the device, to repeat them:
 * they are only what is given to the device, and what they read stays. */
#include "exec/exec.h"

static bool
draws(const ir_graph *g)
{
    IR_FOR_EACH(g, id)
    if (ir_info(&g->nodes.data[id])->flags & IR_RANDOM)
        return true;
    return false;
}

/* With the program's mutex held: what this run is to read of the first one's
 * stays as long as the specialisation. */
static air_status
hold_kept(const exec_run *r)
{
    exec_spec *s = r->s;
    const uint64_t stamp = r->host->frozen;

    if (s->kept_bytes == 0)
        return AIR_OK;
    AIR_REQUIRE(s->kept && s->kept_stamp == stamp, AIR_ERROR_STATE,
                "graph %s has not run with these frozen inputs", r->p->g->name);
    AIR_TRY(
        BASE_RESERVE(&r->p->ctx->alloc, &s->recorded, s->recorded.count + 1));
    exec_block_retain(s->kept);
    s->recorded.data[s->recorded.count++] = s->kept;
    return AIR_OK;
}

static air_status
prepare_recorded(const exec_run *r)
{
    air_status status;

    AIR_REQUIRE(atomic_load(&r->s->ran), AIR_ERROR_STATE,
                "graph %s has not run with these sizes", r->p->g->name);
    AIR_REQUIRE(!r->host->see, AIR_ERROR_STATE, "runs of graph %s are watched",
                r->p->g->name);
    pthread_mutex_lock(&r->p->mutex);
    status = hold_kept(r);
    pthread_mutex_unlock(&r->p->mutex);
    if (status == AIR_OK)
        atomic_store(&r->s->lent, true); /* a limit does not drop it */
    return status;
}

air_status
exec_find_recorded(exec_run *r, exec_cores cores, const air_value *inputs)
{
    air_status status;

    AIR_REQUIRE(!draws(r->p->g), AIR_ERROR_STATE, "graph %s draws",
                r->p->g->name);
    AIR_TRY(exec_spec_known(r->p, cores, inputs, &r->s));
    status = prepare_recorded(r);
    if (status != AIR_OK)
        exec_spec_release(r->p, r->s);
    return status;
}
