/* program.c: programs and what they give. */
#include "api/check.h"

static air_status
check_options(const air_compile_options *o)
{
    AIR_REQUIRE(o->pass_limit >= 0 && o->rewrite_limit >= 0, AIR_ERROR_ARGUMENT,
                "pass_limit and rewrite_limit are 0 or positive");
    for (size_t bit = 0; bit < 8 * sizeof o->without; bit++)
        AIR_REQUIRE(!(o->without >> bit & 1) || air_without_name(bit, NULL),
                    AIR_ERROR_ARGUMENT, "without has unknown bits: %#x",
                    o->without);
    AIR_REQUIRE(o->order >= 0 && o->order < AIR_ORDER_COUNT, AIR_ERROR_ARGUMENT,
                "order is not a value of air_order: %d", (int)o->order);
    AIR_REQUIRE(o->list_min >= -1, AIR_ERROR_ARGUMENT,
                "list_min is -1 or more, not %lld", (long long)o->list_min);
    return AIR_OK;
}

air_status
air_program_create(air_context *ctx, const air_graph *graph,
                   const air_compile_options *options, air_program **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    REQUIRE_PTR(graph);
    if (options)
        AIR_TRY(check_options(options));
    return exec_program_create(ctx, graph, options, out);
}

void
air_program_destroy(air_program *program)
{
    exec_program_destroy(program);
}

air_status
api_check_input(const air_program *p, size_t i, const air_value *v)
{
    int64_t count;

    if (v->is_int)
        return AIR_OK;
    AIR_TRY(exec_check_sizes(p->g, i, v, &count));
    AIR_REQUIRE(v->data || count == 0, AIR_ERROR_ARGUMENT,
                EXEC_INPUT_FMT " has no memory", EXEC_INPUT_ARGS(p->g, i));
    return AIR_OK;
}

/* What may be read: exec_spec_get checks sizes, the first time it sees them. */
static air_status
check_readable(const air_program *p, size_t i, const air_value *v)
{
    const bool ranked = v->rank > 0 && v->rank <= AIR_MAX_RANK && v->dims;

    if (v->is_int || (v->data && (ranked || v->rank == 0)))
        return AIR_OK;
    return api_check_input(p, i, v);
}

air_status
air_program_run(air_program *program, const air_host *host, size_t nin,
                const air_value *inputs, size_t nout, air_value *outs)
{
    REQUIRE_PTR(program);
    AIR_REQUIRE(nin == 0 || inputs, AIR_ERROR_ARGUMENT,
                "inputs must not be NULL");
    AIR_REQUIRE(nout == 0 || outs, AIR_ERROR_ARGUMENT, "outs must not be NULL");
    AIR_TRY(exec_check_counts(program, nin, nout, outs));
    for (size_t i = 0; i < nin; i++)
        AIR_TRY(check_readable(program, i, &inputs[i]));
    return exec_program_run(program, host, inputs, outs);
}

air_status
air_program_prepare(air_program *program, size_t nin, const air_value *inputs)
{
    int64_t count;
    exec_spec *spec;

    REQUIRE_PTR(program);
    AIR_REQUIRE(nin == 0 || inputs, AIR_ERROR_ARGUMENT,
                "inputs must not be NULL");
    AIR_TRY(exec_check_counts(program, nin, program->g->results.count, NULL));
    for (size_t i = 0; i < nin; i++)
        if (!inputs[i].is_int)
            AIR_TRY(exec_check_sizes(program->g, i, &inputs[i], &count));
    AIR_TRY(exec_spec_get(program, (exec_cores){0, 0}, inputs, &spec));
    exec_spec_release(program, spec);
    return AIR_OK;
}

void
air_value_release(air_value *value)
{
    if (!value || value->alias >= 0)
        return;
    exec_block_release(value->block);
    *value = (air_value){.alias = -1};
}

void
air_program_get_stats(const air_program *program, air_program_stats *out)
{
    *out = (air_program_stats){0};
    if (program)
        exec_program_stats(program, out);
}
