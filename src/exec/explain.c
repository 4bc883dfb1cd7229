/* explain.c: what a program is and does, as text. */
#include <string.h>

#include "codegen/codegen.h"
#include "exec/exec.h"
#include "ir/ge.h"

static void
print_locations(const air_program *p, const exec_unit *unit, base_text *out)
{
    const char *last = "";

    base_text_add(out, "  at:");
    for (size_t i = 0; i < unit->count; i++) {
        const char *loc = ir_node_at(p->g, unit->nodes[i])->loc;
        if (!loc || strcmp(loc, last) == 0)
            continue;
        base_text_add(out, " %s", loc);
        last = loc;
    }
    base_text_add(out, "\n");
}

static void
print_dims(const air_tensor *t, base_text *out)
{
    base_text_add(out, " %s[", air_dtype_text((air_dtype)t->dtype));
    for (int i = 0; i < t->rank; i++)
        base_text_add(out, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
    base_text_add(out, "]");
}

static void
print_call(const exec_step *step, base_text *out)
{
    for (int i = 0; i < step->step.call.nargs; i++)
        if (step->step.call.args[i].kind == AIR_ARG_TENSOR)
            print_dims(step->step.call.args[i].t, out);
    base_text_add(out, " ->");
    for (int i = 0; i < step->step.call.nouts; i++)
        print_dims(&step->step.call.outs[i], out);
    base_text_add(out, "\n");
}

static void
print_scope(const ir_graph *g, const exec_step *step, base_text *out)
{
    const air_step *s = &step->step;

    if (step->unit && ir_node_at(g, step->unit->nodes[0])->once)
        base_text_add(out, "  at the first run\n");
    if (step->kind == EXEC_STEP_HOST)
        return;
    if (s->threads > 0)
        base_text_add(out, "  threads: at most %d\n", (int)s->threads);
    if (s->joined || s->untimed)
        base_text_add(out, "  scope:%s%s\n", s->joined ? " joined" : "",
                      s->untimed ? " untimed" : "");
    if (step->taken)
        base_text_add(out, "  on pieces of the step before it\n");
    if (s->beside > 0)
        base_text_add(out, "  beside: %u before it\n", s->beside);
    if (!s->after)
        return;
    base_text_add(out, "  lane: %d, after", (int)s->lane);
    for (uint32_t i = s->nafter; i-- > 0;)
        base_text_add(out, " %u", s->after[i]);
    base_text_add(out, "%s\n", s->nafter ? "" : " nothing");
}

static void
print_steps(const ir_graph *g, const exec_spec *s, base_text *out)
{
    for (size_t i = 0; i < s->steps.count; i++) {
        const exec_step *step = &s->steps.data[i];
        base_text_add(out, "%zu: ", i);
        switch (step->kind) {
        case EXEC_STEP_REGION:
            base_text_add(out, "region %s\n", step->label);
            lower_print(step->region.region, out);
            break;
        case EXEC_STEP_CALL:
            base_text_add(out, "call %s", step->label);
            print_call(step, out);
            break;
        case EXEC_STEP_HOST:
            base_text_add(out, "%s %s: %s\n",
                          ir_host_word((air_host_kind)step->node->host),
                          step->label, step->reason);
            break;
        }
        print_scope(g, step, out);
    }
}

/* Kernels as a GPU would get them, whatever device the program is on. */
static air_status
print_cuda(const air_program *p, const exec_spec *s, base_text *out)
{
    for (size_t i = 0; i < s->steps.count; i++) {
        const exec_step *step = &s->steps.data[i];
        air_code code;
        const char *reason;
        if (step->kind != EXEC_STEP_REGION)
            continue;
        air_status status = codegen_region(&p->ctx->alloc, step->region.region,
                                           "sm_90a", &code, &reason);
        base_text_add(out, "// %zu: %s\n", i, step->label);
        if (status == AIR_ERROR_UNSUPPORTED) {
            base_text_add(out, "// none: %s\n", reason);
            continue;
        }
        AIR_TRY(status);
        for (int k = 0; k < code.nlaunches; k++)
            base_text_add(out, "// entry %d: %u x %u threads, %u shared\n", k,
                          code.launches[k].grid[0], code.launches[k].block[0],
                          code.launches[k].shared);
        base_text_add(out, "// workspace %zu, arguments %zu bytes\n%s",
                      code.workspace, code.value_bytes,
                      (const char *)code.bytes);
        codegen_free(&p->ctx->alloc, &code);
    }
    return AIR_OK;
}

static void
explain_step(const air_program *p, const exec_step *step, base_text *out)
{
    switch (step->kind) {
    case EXEC_STEP_REGION:
        if (step->reason) {
            base_text_add(out, "copy: %s\n", step->reason);
            break;
        }
        base_text_add(out, "region: %s\n", step->label);
        if (!step->code)
            base_text_add(out, "  tile loops: %s\n",
                          step->no_code ? step->no_code : "no emitter");
        print_locations(p, step->unit, out);
        break;
    case EXEC_STEP_CALL:
        base_text_add(out, "call: %s", step->label);
        print_call(step, out);
        break;
    case EXEC_STEP_HOST:
        base_text_add(out, "%s: %s: %s\n",
                      ir_host_word((air_host_kind)step->node->host),
                      step->label, step->reason);
        break;
    }
    print_scope(p->g, step, out);
}

/* How many steps each list of the device has. */
static void
print_lists(const exec_spec *s, base_text *out)
{
    base_text_add(out, "lists:");
    for (size_t i = 0; i < s->nsegments; i++)
        if (s->segments[i].list)
            base_text_add(out, " %zu",
                          s->segments[i].end - s->segments[i].begin);
    base_text_add(out, "\n");
}

/* What the device says of them. */
static void
print_notes(const air_program *p, const exec_spec *s, base_text *out)
{
    const air_driver *driver = p->ctx->driver;
    for (size_t i = 0; driver->list_note && i < s->nsegments; i++) {
        const air_list *list = s->segments[i].list;
        const char *note =
            list ? driver->list_note(p->ctx->device, list) : NULL;
        if (note)
            base_text_add(out, "list: %s\n", note);
    }
}

static void
print_specs(const air_program *p, const air_program_stats *stats,
            base_text *out)
{
    base_text_add(out, "specialisations: %llu\n",
                  (unsigned long long)stats->specialisations);
    if (p->options.spec_limit > 0)
        base_text_add(out, "spec_limit: %llu\n",
                      (unsigned long long)p->options.spec_limit);
    if (stats->dropped > 0)
        base_text_add(out, "dropped: %llu\n",
                      (unsigned long long)stats->dropped);
}

static void
explain(const air_program *p, const exec_spec *s, base_text *out)
{
    air_program_stats stats;

    exec_program_stats(p, &stats);
    base_text_add(out, "graph: %s\n", p->g->name);
    base_text_add(out, "compile_ms: %.3f\n", stats.compile_s * 1e3);
    base_text_add(out, "specialise_ms: %.3f\n", stats.specialise_s * 1e3);
    print_specs(p, &stats, out);
    if (!s)
        return;
    base_text_add(out, "steps: %zu\narena_bytes: %zu\ncode_bytes: %zu\n",
                  s->steps.count, s->arena_bytes, s->code_bytes);
    if (s->kept_bytes > 0)
        base_text_add(out, "kept_bytes: %zu\n", s->kept_bytes);
    print_lists(s, out);
    print_notes(p, s, out);
    for (size_t i = 0; i < s->steps.count; i++)
        explain_step(p, &s->steps.data[i], out);
}

static void
print_passes(const air_program *p, base_text *out)
{
    for (size_t i = 0; i < p->passes.count; i++) {
        const pass_record *r = &p->passes.data[i];
        base_text_add(out, "%s %zu %zu %u %u %.3f\n", r->name, r->matches,
                      r->made, (unsigned)r->before, (unsigned)r->after,
                      r->seconds * 1e3);
    }
}

static air_status
print(const air_program *p, const exec_spec *s, air_text_kind kind,
      base_text *out)
{
    switch (kind) {
    case AIR_TEXT_GRAPH: return ir_print(p->g, out);
    case AIR_TEXT_STEPS:
        AIR_REQUIRE(s, AIR_ERROR_STATE,
                    "graph %s has not run yet: it has no steps", p->g->name);
        print_steps(p->g, s, out);
        break;
    case AIR_TEXT_EXPLAIN: explain(p, s, out); break;
    case AIR_TEXT_MEMORY:
        AIR_REQUIRE(s, AIR_ERROR_STATE,
                    "graph %s has not run yet: it has no memory plan",
                    p->g->name);
        exec_print_memory(p, s, out);
        break;
    case AIR_TEXT_GE_TXT:
    case AIR_TEXT_GE_PBTXT:
    case AIR_TEXT_GE_PY:
    case AIR_TEXT_GE_ONNX:
        return ge_print(p->g, (air_ge_form)(kind - AIR_TEXT_GE_TXT), out);
    case AIR_TEXT_PASSES: print_passes(p, out); break;
    case AIR_TEXT_CUDA:
        AIR_REQUIRE(s, AIR_ERROR_STATE,
                    "graph %s has not run yet: it has no regions", p->g->name);
        AIR_TRY(print_cuda(p, s, out));
        break;
    default: AIR_FAIL(AIR_ERROR_ARGUMENT, "unknown text kind %d", (int)kind);
    }
    return out->status;
}

air_status
exec_print(const air_program *p, air_text_kind kind, base_text *out)
{
    exec_spec *s = exec_specs_newest(p);
    air_status status = print(p, s, kind, out);

    exec_spec_release(p, s);
    return status;
}
