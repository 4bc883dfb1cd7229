/* program.c: compile: a copy of the graph, its passes, the order of units. */
#include "exec/exec.h"

/* There is room for all (compile). */
static void
keep_record(void *user, const pass_record *record, const ir_graph *g)
{
    air_program *p = user;

    (void)g;
    if (record->index > 0)
        p->passes.data[p->passes.count++] = *record;
}

static air_status
compile(air_program *p, const ir_graph *g)
{
    base_arena scratch;
    air_status status;

    AIR_TRY(ir_graph_clone(g, &p->g));
    AIR_TRY(BASE_RESERVE(&p->ctx->alloc, &p->passes, pass_row_count()));
    AIR_TRY(pass_run_all(p->g, &p->ctx->alloc, &p->options, &p->ctx->target,
                         p->ctx->verify, keep_record, p));
    AIR_TRY(exec_numbers_find(p));
    AIR_TRY(exec_key_prepare(p));
    base_arena_init(&scratch, &p->ctx->alloc);
    /* a region joins the product right before it */
    const bool early =
        p->ctx->target.bundles || p->ctx->driver->kernel_join != NULL;
    status = exec_order_make(p->g, &p->options, early, &p->arena, &scratch,
                             &p->order);
    base_arena_deinit(&scratch);
    return status;
}

air_status
exec_program_create(air_context *ctx, const ir_graph *g,
                    const air_compile_options *options, air_program **out)
{
    const double start = base_now();
    air_program *p;
    air_status status;

    *out = NULL;
    AIR_TRY(base_new(&ctx->alloc, sizeof *p, (void **)&p));
    p->ctx = ctx;
    if (options)
        p->options = *options;
    if (!ctx->target.sums)
        p->options.without |= AIR_WITHOUT_SUMS;
    base_arena_init(&p->arena, &ctx->alloc);
    pthread_mutex_init(&p->mutex, NULL);
    status = exec_specs_create(&ctx->alloc, p->options.spec_limit, &p->specs);
    if (status == AIR_OK)
        status = compile(p, g);
    if (status != AIR_OK) {
        exec_program_destroy(p);
        return base_trace(status, __func__, __LINE__);
    }
    p->options.dump_dir = NULL; /* the caller's string */
    p->compile_s = base_now() - start;
    *out = p;
    return AIR_OK;
}

void
exec_program_stats(const air_program *p, air_program_stats *out)
{
    exec_spec *newest;

    *out = (air_program_stats){.compile_s = p->compile_s,
                               .runs = atomic_load(&p->runs)};
    IR_FOR_EACH(p->g, id)
    out->nodes++;
    exec_specs_stats(p, out);
    if (!(newest = exec_specs_newest(p)))
        return;
    out->regions = newest->nregions - newest->ncopies;
    out->calls = newest->ncalls;
    out->copies = newest->ncopies;
    out->hosts = newest->nhosts;
    out->arena_bytes = newest->arena_bytes;
    out->code_bytes = newest->code_bytes;
    out->kept_bytes = newest->kept_bytes;
    exec_spec_release(p, newest);
}

void
exec_program_destroy(air_program *p)
{
    air_alloc alloc;

    if (!p)
        return;
    alloc = p->ctx->alloc;
    exec_specs_destroy(p);
    ir_graph_free(p->g);
    BASE_VEC_FREE(&alloc, &p->passes);
    base_arena_deinit(&p->arena);
    pthread_mutex_destroy(&p->mutex);
    base_free(&alloc, p, sizeof *p);
}
