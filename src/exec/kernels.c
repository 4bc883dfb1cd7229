/* kernels.c: code, kernels, workspaces and lists of a planned spec. */
#include <string.h>

#include "codegen/codegen.h"
#include "exec/exec.h"

/* Code that was made, and the first region that it is of. */
typedef struct {
    const air_region *region;
    air_code code; /* size 0: none */
    const char *reason;
} region_code;
typedef BASE_VEC(region_code) region_codes;

static air_status
find_code(const air_context *ctx, const air_region *region, region_codes *codes,
          const region_code **out)
{
    region_code made = {.region = region};

    /* a driver that takes text sees by itself what is the same */
    for (size_t i = 0; !ctx->target.source && i < codes->count; i++) {
        *out = &codes->data[i];
        if (codegen_same(region, (*out)->region))
            return AIR_OK;
    }
    AIR_TRY(BASE_RESERVE(&ctx->alloc, codes, codes->count + 1));
    air_status status = AIR_OK;
    if (ctx->no_emitter)
        made.reason = "the emitter is switched off";
    else
        status = codegen_region(&ctx->alloc, region, ctx->target.isa,
                                &made.code, &made.reason);
    if (status == AIR_ERROR_MEMORY && ctx->target.source)
        return status;
    if (status != AIR_OK)
        made.code = (air_code){0}; /* tile loops do it */
    *out = &codes->data[codes->count];
    codes->data[codes->count++] = made;
    return AIR_OK;
}

static air_status
region_kernel(exec_maker *m, exec_step *step, region_codes *codes)
{
    air_context *ctx = m->p->ctx;
    const region_code *found = NULL;

    AIR_TRY(find_code(ctx, step->region.region, codes, &found));
    step->step.call = (air_call){.extra = NULL};
    step->no_code = found->reason;
    step->code = found->code.size > 0;
    m->s->code_bytes += found->code.size;
    m->s->nregions++;
    AIR_REQUIRE(step->code || !ctx->target.source, AIR_ERROR_UNSUPPORTED,
                "driver %s runs no region without code: %s", ctx->driver->name,
                found->reason ? found->reason : "none could be made");
    return ctx->driver->kernel_make(ctx->device, step->region.region,
                                    step->code ? &found->code : NULL,
                                    &step->step.kernel);
}

static void
free_codes(const air_context *ctx, region_codes *codes)
{
    for (size_t i = 0; i < codes->count; i++)
        if (codes->data[i].code.size > 0)
            codegen_free(&ctx->alloc, &codes->data[i].code);
    BASE_VEC_FREE(&ctx->alloc, codes);
}

static air_status
call_kernel(exec_maker *m, exec_step *step)
{
    air_context *ctx = m->p->ctx;
    const ir_op_info *info = ir_info(step->node);
    step->step.call.by_rule = m->p->options.without & AIR_WITHOUT_MEASURE;
    step->step.call.tf32 = m->p->options.tf32;

    AIR_TRY(ctx->driver->kernel_find(ctx->device, info->kernel,
                                     &step->step.call, &step->step.kernel));
    AIR_REQUIRE(step->step.kernel, AIR_ERROR_UNSUPPORTED,
                "driver %s has no kernel %s for these arguments of %s",
                ctx->driver->name, info->kernel, info->name);
    return AIR_OK;
}

static air_status
make_kernels(exec_maker *m, region_codes *codes)
{
    air_context *ctx = m->p->ctx;

    for (size_t i = 0; i < m->s->steps.count; i++) {
        exec_step *step = &m->s->steps.data[i];
        if (step->kind == EXEC_STEP_HOST)
            continue;
        air_status status = step->kind == EXEC_STEP_REGION
                                ? region_kernel(m, step, codes)
                                : call_kernel(m, step);
        if (status != AIR_OK)
            return step->unit ? exec_blame(m->g, step->unit, status) : status;
        step->step.label = step->label;
        step->step.workspace = ctx->driver->workspace(
            ctx->device, step->step.kernel, &step->step.call);
    }
    return AIR_OK;
}

/* Where the segment that begins at `at` ends: a HOST step alone, or all steps
 * up to the next one, or to those that every run has; but one of them where
 * there are fewer than a list of a graph with symbols is to have. */
static size_t
segment_end(const exec_maker *m, size_t at)
{
    const exec_spec *s = m->s;
    const int64_t least = m->p->options.list_min;
    size_t end = at;

    while (end < s->steps.count && s->steps.data[end].kind != EXEC_STEP_HOST &&
           (end == at || end != s->once))
        end++;
    if (end == at)
        return at + 1;
    if (m->g->symbols.count > 0 && (least < 0 || (size_t)least > end - at))
        return at + 1;
    return end;
}

static air_status
join_steps(exec_maker *m, region_codes *codes)
{
    for (size_t i = 0; i + 1 < m->s->steps.count; i++) {
        const exec_step *next = &m->s->steps.data[i + 1];
        const region_code *found;
        if (!next->join || segment_end(m, i) == i + 1)
            continue;
        AIR_TRY(find_code(m->p->ctx, next->region.region, codes, &found));
        AIR_TRY(exec_join(m, i, next->code ? &found->code : NULL));
    }
    return AIR_OK;
}

/* Steps of a lane run one after another: one workspace serves all of it. */
static size_t
place_lane(exec_spec *s, int32_t lane)
{
    size_t most = 0;

    for (size_t i = 0; i < s->steps.count; i++) {
        air_step *step = &s->steps.data[i].step;
        if (step->lane == lane && step->workspace > most)
            most = step->workspace;
    }
    return most;
}

/* Workspaces [from 0 on] of a lane, or of all steps, lie behind the arena. */
static void
move_workspaces(exec_spec *s, bool lanes, int32_t lane, size_t bytes)
{
    for (size_t i = 0; i < s->steps.count; i++) {
        air_step *step = &s->steps.data[i].step;
        if (lanes && step->lane != lane)
            continue;
        step->workspace_slot = s->arena_slot;
        step->workspace_offset += (int64_t)s->arena_bytes;
    }
    s->arena_bytes += exec_round_up(bytes);
}

static void
place_workspaces(exec_maker *m)
{
    int32_t last = 0;

    if (!m->before) {
        move_workspaces(m->s, false, 0, exec_place_beside(m->s));
        return;
    }
    for (size_t i = 0; i < m->s->steps.count; i++)
        if (m->s->steps.data[i].step.lane > last)
            last = m->s->steps.data[i].step.lane;
    for (int32_t lane = 0; lane <= last; lane++)
        move_workspaces(m->s, true, lane, place_lane(m->s, lane));
}

static size_t
count_segments(const exec_maker *m)
{
    size_t count = 0;

    for (size_t at = 0; at < m->s->steps.count; at = segment_end(m, at))
        count++;
    return count;
}

static air_status
make_lists(exec_maker *m)
{
    exec_spec *s = m->s;
    air_context *ctx = m->p->ctx;
    const size_t segments = count_segments(m);
    size_t at = 0, count = 0;

    AIR_TRY(BASE_ARENA_ARRAY(&s->arena, s->steps.count, &s->list_steps));
    AIR_TRY(BASE_ARENA_ARRAY(&s->arena, segments, &s->segments));
    while (at < s->steps.count) {
        exec_segment *seg = &s->segments[s->nsegments];
        *seg = (exec_segment){.begin = at, .end = segment_end(m, at)};
        air_step *steps = s->list_steps + count;
        for (size_t i = at; i < seg->end; i++)
            if (!s->steps.data[i].taken)
                s->list_steps[count++] = exec_list_step(s, i);
        /* behind the last list nobody reads the arena */
        const bool last = seg->end == s->steps.count;
        for (air_step *e = steps; last && e < s->list_steps + count; e++)
            e->scrap = (uint32_t)(s->arena_slot + 1);
        if (seg->end - at == 1) {
            steps->after = NULL; /* there is nobody to wait for */
            steps->nafter = 0;
        }
        if (s->steps.data[at].kind != EXEC_STEP_HOST)
            AIR_TRY(ctx->driver->list_make(
                ctx->device, steps, (size_t)(s->list_steps + count - steps),
                &seg->list));
        s->nsegments++;
        at = seg->end;
        if (at == s->once)
            s->once_segments = s->nsegments;
    }
    return AIR_OK;
}

air_status
exec_make_kernels(exec_maker *m)
{
    region_codes codes = {0};
    air_status status = make_kernels(m, &codes);

    if (status == AIR_OK)
        status = join_steps(m, &codes);
    free_codes(m->p->ctx, &codes);
    AIR_TRY(status);
    place_workspaces(m);
    return make_lists(m);
}
