/* pass.c: runs the rows of passes.def. */
#include "pass/pass.h"

#include <string.h>

#include "base/thread.h"

typedef struct {
    const char *name;
    pass_level level;
    pass_fn fn;
    const char *help;
} pass_row;

static const pass_row rows[] = {
#define PASS(name, level, fn, help) {name, PASS_##level, fn, help},
#include "pass/passes.def"
#undef PASS
};
enum { ROWS = sizeof rows / sizeof rows[0] };

AIR_API const char *
air_pass_name(size_t i, const char **out_help)
{
    if (out_help)
        *out_help = i < ROWS ? rows[i].help : NULL;
    return i < ROWS ? rows[i].name : NULL;
}

AIR_API const char *
air_without_name(size_t i, const char **out_help)
{
    static const char *const names[][2] = {
#define WITHOUT(id, name, doc) {name, doc},
#include "air_without.def"
#undef WITHOUT
    };

    if (out_help)
        *out_help = i < AIR_WITHOUT_COUNT ? names[i][1] : NULL;
    return i < AIR_WITHOUT_COUNT ? names[i][0] : NULL;
}

static bool
wanted(const air_compile_options *options, int row)
{
    if (rows[row].level == PASS_ALWAYS)
        return true;
    if (options->pass_limit > 0 && row >= options->pass_limit)
        return false;
    return rows[row].level == PASS_EXACT_OK || !options->exact;
}

static uint32_t
count_nodes(const ir_graph *g)
{
    uint32_t n = 0;
    IR_FOR_EACH(g, id)
    n++;
    return n;
}

typedef struct {
    pass_context ctx;
    bool verify;
    pass_dump_fn dump;
    void *user;
} runner;

static air_status
report(runner *r, const pass_record *record)
{
    if (r->dump)
        r->dump(r->user, record, r->ctx.g);
    if (r->ctx.options->dump_dir)
        return pass_dump_graph(r->ctx.options->dump_dir, record, r->ctx.g);
    return AIR_OK;
}

static air_status
run_row(runner *r, int row)
{
    pass_context *ctx = &r->ctx;
    pass_record record = {row + 1,    rows[row].name,
                          base_now(), count_nodes(ctx->g),
                          0,          ctx->rewrites};

    ctx->level = rows[row].level;
    ctx->forward = NULL;
    ctx->facts = NULL;
    ctx->nforward = ctx->forward_cap = 0;
    air_status status = rows[row].fn(ctx);
    base_arena_reset(ctx->scratch);
    AIR_TRY(status);
    if (r->verify)
        AIR_TRY(ir_verify(ctx->g));
    record.seconds = base_now() - record.seconds;
    record.after = count_nodes(ctx->g);
    record.rewrites = ctx->rewrites - record.rewrites;
    return report(r, &record);
}

static air_status
run_rows(runner *r)
{
    pass_record start = {.name = "input", .before = count_nodes(r->ctx.g)};

    start.after = start.before;
    AIR_TRY(report(r, &start));
    for (int i = 0; i < ROWS; i++)
        if (wanted(r->ctx.options, i))
            AIR_TRY(run_row(r, i));
    return AIR_OK;
}

static const air_compile_options default_options;

static runner
runner_make(ir_graph *g, const air_alloc *alloc,
            const air_compile_options *options, base_arena *scratch)
{
    base_arena_init(scratch, alloc);
    return (runner){.ctx = {.g = g,
                            .options = options ? options : &default_options,
                            .alloc = alloc,
                            .scratch = scratch}};
}

air_status
pass_run_all(ir_graph *g, const air_alloc *alloc,
             const air_compile_options *options, bool verify, pass_dump_fn dump,
             void *user)
{
    base_arena scratch;
    runner r = runner_make(g, alloc, options, &scratch);

    AIR_TRY(ir_ops_init());
    r.verify = verify;
    r.dump = dump;
    r.user = user;
    air_status status = run_rows(&r);
    base_arena_deinit(&scratch);
    return status;
}

air_status
pass_run_one(ir_graph *g, const air_alloc *alloc,
             const air_compile_options *options, const char *name)
{
    base_arena scratch;
    runner r = runner_make(g, alloc, options, &scratch);
    int row = 0;

    AIR_TRY(ir_ops_init());
    while (row < ROWS && strcmp(rows[row].name, name) != 0)
        row++;
    AIR_REQUIRE(row < ROWS, AIR_ERROR_ARGUMENT, "there is no pass '%s'", name);
    r.verify = true;
    air_status status = run_row(&r, row);
    base_arena_deinit(&scratch);
    return status;
}
