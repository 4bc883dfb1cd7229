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

static const char *const parts[][2] = {
#define WITHOUT(id, name, doc) {name, doc},
#include "air_without.def"
#undef WITHOUT
};

/* Can the row be switched off by its name? A part of that name stands for all
 * that its row does. */
static bool
has_switch(int row)
{
    for (size_t i = 0; i < AIR_WITHOUT_COUNT; i++)
        if (strcmp(rows[row].name, parts[i][0]) == 0)
            return false;
    return rows[row].level != PASS_ALWAYS;
}

/* The row that bit i of `without` switches off, ROWS for none: rows with a
 * switch have the bits after those of the parts. */
static int
switched_row(size_t bit)
{
    size_t next = AIR_WITHOUT_COUNT;

    for (int row = 0; row < ROWS; row++)
        if (has_switch(row) && next++ == bit)
            return row;
    return ROWS;
}

AIR_API const char *
air_without_name(size_t i, const char **out_help)
{
    const bool part = i < AIR_WITHOUT_COUNT;
    const int row = part ? ROWS : switched_row(i);
    const char *help = part ? parts[i][1] : row < ROWS ? rows[row].help : NULL;

    if (out_help)
        *out_help = help;
    return part ? parts[i][0] : row < ROWS ? rows[row].name : NULL;
}

static bool
switched_off(const air_compile_options *options, int row)
{
    for (size_t bit = AIR_WITHOUT_COUNT; options->without >> bit; bit++)
        if ((options->without >> bit & 1) && switched_row(bit) == row)
            return true;
    return false;
}

size_t
pass_row_count(void)
{
    return ROWS;
}

static bool
wanted(const air_compile_options *options, int row)
{
    if (rows[row].level == PASS_ALWAYS)
        return true;
    if ((options->pass_limit > 0 && row >= options->pass_limit) ||
        switched_off(options, row))
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
    pass_record record = {.index = row + 1,
                          .name = rows[row].name,
                          .seconds = base_now(),
                          .before = count_nodes(ctx->g),
                          .matches = ctx->matches,
                          .rewrites = ctx->rewrites};

    ctx->level = rows[row].level;
    ctx->forward = NULL;
    ctx->facts = NULL;
    ctx->uses = NULL;
    ctx->nforward = ctx->forward_cap = 0;
    air_status status = rows[row].fn(ctx);
    base_arena_reset(ctx->scratch);
    AIR_TRY(status);
    if (r->verify)
        AIR_TRY(ir_verify(ctx->g));
    record.seconds = base_now() - record.seconds;
    record.after = count_nodes(ctx->g);
    record.matches = ctx->matches - record.matches;
    record.rewrites = ctx->rewrites - record.rewrites;
    record.made = ctx->level == PASS_ALWAYS ? record.matches : record.rewrites;
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
             const air_compile_options *options, const air_target *target,
             bool verify, pass_dump_fn dump, void *user)
{
    base_arena scratch;
    runner r = runner_make(g, alloc, options, &scratch);

    AIR_TRY(ir_ops_init());
    r.ctx.target = target;
    r.verify = verify;
    r.dump = dump;
    r.user = user;
    air_status status = run_rows(&r);
    base_arena_deinit(&scratch);
    return status;
}

air_status
pass_run_one(ir_graph *g, const air_alloc *alloc,
             const air_compile_options *options, const air_target *target,
             const char *name)
{
    base_arena scratch;
    runner r = runner_make(g, alloc, options, &scratch);
    int row = 0;

    AIR_TRY(ir_ops_init());
    while (row < ROWS && strcmp(rows[row].name, name) != 0)
        row++;
    AIR_REQUIRE(row < ROWS, AIR_ERROR_ARGUMENT, "there is no pass '%s'", name);
    r.ctx.target = target;
    r.verify = true;
    air_status status = run_row(&r, row);
    base_arena_deinit(&scratch);
    return status;
}
