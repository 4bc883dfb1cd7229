/* kernels.c: code, kernels, workspaces and lists of a planned spec. */
#include <string.h>

#include "codegen/codegen.h"
#include "exec/exec.h"

static air_status
region_kernel(exec_maker *m, exec_step *step)
{
    air_context *ctx = m->p->ctx;
    air_code code;
    const air_code *use = NULL;
    air_status status;

    step->step.call = (air_call){.extra = NULL};
    if (ctx->no_emitter)
        step->no_code = "the emitter is switched off";
    else if (codegen_region(&ctx->alloc, step->region.region, ctx->target.isa,
                            &code, &step->no_code) == AIR_OK)
        use = &code;
    status = ctx->driver->kernel_make(ctx->device, step->region.region, use,
                                      &step->step.kernel);
    if (use) {
        step->code = code.size > 0;
        m->s->code_bytes += code.size;
        codegen_free(&ctx->alloc, &code);
    }
    m->s->nregions++;
    return status;
}

static air_status
call_kernel(exec_maker *m, exec_step *step)
{
    air_context *ctx = m->p->ctx;
    const ir_op_info *info = ir_info(step->node);

    AIR_TRY(ctx->driver->kernel_find(ctx->device, info->kernel,
                                     &step->step.call, &step->step.kernel));
    AIR_REQUIRE(step->step.kernel, AIR_ERROR_UNSUPPORTED,
                "driver %s has no kernel %s for these arguments (op %s, %s)",
                ctx->driver->name, info->kernel, info->name,
                step->node->loc ? step->node->loc : "no location");
    return AIR_OK;
}

static air_status
make_kernels(exec_maker *m)
{
    air_context *ctx = m->p->ctx;
    size_t most = 0;

    for (size_t i = 0; i < m->s->steps.count; i++) {
        exec_step *step = &m->s->steps.data[i];
        if (step->kind == EXEC_STEP_HOST)
            continue;
        if (step->kind == EXEC_STEP_REGION)
            AIR_TRY(region_kernel(m, step));
        else
            AIR_TRY(call_kernel(m, step));
        step->step.label = step->label;
        step->step.workspace = ctx->driver->workspace(
            ctx->device, step->step.kernel, &step->step.call);
        if (step->step.workspace > most)
            most = step->step.workspace;
    }
    /* Steps run one after another: one workspace behind the arena serves all.*/
    for (size_t i = 0; i < m->s->steps.count; i++) {
        exec_step *step = &m->s->steps.data[i];
        step->step.workspace_slot = m->s->arena_slot;
        step->step.workspace_offset = (int64_t)m->s->arena_bytes;
    }
    m->s->arena_bytes += most;
    return AIR_OK;
}

static size_t
count_segments(const exec_spec *s)
{
    size_t count = 0;

    for (size_t i = 0; i < s->steps.count; i++) {
        bool host = s->steps.data[i].kind == EXEC_STEP_HOST;
        if (i == 0 || host || s->steps.data[i - 1].kind == EXEC_STEP_HOST)
            count++;
    }
    return count;
}

static air_status
make_lists(exec_maker *m)
{
    exec_spec *s = m->s;
    air_context *ctx = m->p->ctx;
    const size_t segments = count_segments(s);
    size_t at = 0;

    AIR_TRY(BASE_ARENA_ARRAY(&s->arena, s->steps.count, &s->list_steps));
    AIR_TRY(BASE_ARENA_ARRAY(&s->arena, segments, &s->segments));
    for (size_t i = 0; i < s->steps.count; i++)
        s->list_steps[i] = s->steps.data[i].step;
    while (at < s->steps.count) {
        exec_segment *seg = &s->segments[s->nsegments];
        *seg = (exec_segment){.begin = at, .end = at + 1};
        if (s->steps.data[at].kind != EXEC_STEP_HOST) {
            while (seg->end < s->steps.count &&
                   s->steps.data[seg->end].kind != EXEC_STEP_HOST)
                seg->end++;
            AIR_TRY(ctx->driver->list_make(ctx->device, s->list_steps + at,
                                           seg->end - at, &seg->list));
        }
        s->nsegments++;
        at = seg->end;
    }
    return AIR_OK;
}

air_status
exec_make_kernels(exec_maker *m)
{
    AIR_TRY(make_kernels(m));
    return make_lists(m);
}
