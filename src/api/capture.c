/* capture.c: captures and the memory they share. */
#include "exec/capture.h"

#include "api/check.h"

/* ---- graph pools ---- */

air_status
air_graph_pool_create(air_context *ctx, air_graph_pool **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    return exec_graph_pool_create(ctx->pool, NULL, out);
}

air_status
air_graph_pool_find(air_context *ctx, const int64_t id[2], air_graph_pool **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(ctx);
    REQUIRE_PTR(id);
    AIR_REQUIRE((id[0] > 0 && id[1] == 0) || (id[0] == 0 && id[1] > 0),
                AIR_ERROR_ARGUMENT,
                "(%lld, %lld) is no graph pool: one of the numbers is 0, the "
                "other positive",
                (long long)id[0], (long long)id[1]);
    return exec_graph_pool_find(ctx->pool, id, out);
}

void
air_graph_pool_release(air_graph_pool *pool)
{
    exec_graph_pool_release(pool);
}

void
air_graph_pool_mark_step(air_graph_pool *pool)
{
    if (pool)
        exec_graph_pool_mark_step(pool);
}

void
air_graph_pool_trim(air_graph_pool *pool)
{
    if (pool)
        exec_graph_pool_trim(pool);
}

void
air_graph_pool_get_stats(air_graph_pool *pool, air_graph_pool_stats *out)
{
    *out = (air_graph_pool_stats){0};
    if (pool)
        exec_graph_pool_stats(pool, out);
}

/* ---- captures ---- */

static const struct {
    const char *text, *doc;
} calls[] = {
#define CALL(id, text, doc) {text, doc},
#include "air_calls.def"
#undef CALL
};

const char *
air_call_text(air_call_class how, const char **out_doc)
{
    const bool known = how >= 0 && how < AIR_CALL_COUNT;

    if (out_doc)
        *out_doc = known ? calls[how].doc : NULL;
    return known ? calls[how].text : NULL;
}

static bool
is_choice(air_choice choice)
{
    return choice >= AIR_CHOICE_DEFAULT && choice <= AIR_CHOICE_OFF;
}

static air_status
check_options(const air_capture_options *o)
{
    AIR_REQUIRE(is_choice(o->clone_input) && is_choice(o->clone_output),
                AIR_ERROR_ARGUMENT,
                "clone_input and clone_output are values of air_choice");
    AIR_REQUIRE(o->error_mode >= AIR_CAPTURE_GLOBAL &&
                    o->error_mode <= AIR_CAPTURE_RELAXED,
                AIR_ERROR_ARGUMENT, "error_mode %d is unknown",
                (int)o->error_mode);
    return AIR_OK;
}

air_status
air_capture_create(air_program *program, const air_capture_options *options,
                   air_capture **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(program);
    if (options)
        AIR_TRY(check_options(options));
    return exec_capture_create(program, options, out);
}

void
air_capture_destroy(air_capture *capture)
{
    if (capture)
        exec_capture_destroy(capture);
}

void
air_capture_reset(air_capture *capture)
{
    if (capture)
        exec_capture_reset(capture);
}

static air_status
check_inputs(const air_capture *c, bool statics, bool dynamics, size_t nin,
             const air_value *inputs)
{
    AIR_REQUIRE(nin == c->p->g->inputs.count, AIR_ERROR_ARGUMENT,
                "graph %s takes %zu inputs, %zu were given", c->p->g->name,
                c->p->g->inputs.count, nin);
    AIR_REQUIRE(nin == 0 || inputs, AIR_ERROR_ARGUMENT,
                "inputs must not be NULL");
    for (size_t i = 0; dynamics && i < c->ndynamic; i++)
        AIR_TRY(api_check_input(c->p, c->dynamic[i], &inputs[c->dynamic[i]]));
    for (size_t i = 0; statics && i < nin; i++)
        if (c->is_static[i])
            AIR_TRY(api_check_input(c->p, i, &inputs[i]));
    return AIR_OK;
}

air_status
air_capture_bind(air_capture *capture, size_t nin, const air_value *inputs,
                 const air_binding **out)
{
    REQUIRE_PTR(out);
    *out = NULL;
    REQUIRE_PTR(capture);
    AIR_TRY(check_inputs(capture, true, false, nin, inputs));
    return exec_capture_bind(capture, inputs, out);
}

void
air_capture_unbind(air_capture *capture, const air_binding *binding)
{
    if (capture && binding)
        exec_capture_unbind(capture, binding);
}

air_status
air_capture_run(air_capture *capture, air_capture_call *call,
                const air_host *host, size_t nin, const air_value *inputs,
                size_t nout, air_value *outs)
{
    REQUIRE_PTR(capture);
    REQUIRE_PTR(call);
    AIR_REQUIRE(nout == 0 || outs, AIR_ERROR_ARGUMENT, "outs must not be NULL");
    AIR_TRY(check_inputs(capture, !call->binding, true, nin, inputs));
    return exec_capture_run(capture, call, host, nin, inputs, nout, outs);
}

void
air_capture_get_stats(air_capture *capture, air_capture_stats *out)
{
    *out = (air_capture_stats){0};
    if (capture)
        exec_capture_stats(capture, out);
}

air_status
air_capture_print_hosts(air_capture *capture, char **out_text)
{
    base_text text;

    REQUIRE_PTR(out_text);
    *out_text = NULL;
    REQUIRE_PTR(capture);
    base_text_init(&text, &capture->p->ctx->alloc);
    pthread_mutex_lock(&capture->mutex);
    capture_graphs_print(capture, &text);
    pthread_mutex_unlock(&capture->mutex);
    return api_take_text(&text, text.status, out_text);
}
