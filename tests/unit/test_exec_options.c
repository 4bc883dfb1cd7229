/* test_exec_options.c: options of a compilation that change steps, lists and
 * memory, not results. */
#include <stdlib.h>

#include "air.h"
#include "test.h"

typedef struct {
    air_context *ctx;
    air_graph *graph;
    air_program *program;
} fixture;

static const char *const fixed = "graph f(%x: f32[64, 64], %y: f32[64, 64]) {\n"
                                 "  %a: f32[64, 64] = mm(%x, %y)\n"
                                 "  %b: f32[64, 64] = mm(%y, %x)\n"
                                 "  %c: f32[64, 64] = mm(%a, %x)\n"
                                 "  %d: f32[64, 64] = mm(%b, %y)\n"
                                 "  %e: f32[64, 64] = add.Tensor(%c, %d)\n"
                                 "  %f: f32[64, 64] = view(%e, size=[64, 64])\n"
                                 "  return %f\n"
                                 "}\n";
static const char *const sized = "graph f(%x: f32[s0, s0], %y: f32[s0, s0]) {\n"
                                 "  %a: f32[s0, s0] = mm(%x, %y)\n"
                                 "  %b: f32[s0, s0] = mm(%y, %x)\n"
                                 "  %c: f32[s0, s0] = add.Tensor(%a, %b)\n"
                                 "  return %c\n"
                                 "}\n";

static bool
setup(fixture *f, const char *text, const air_compile_options *options)
{
    memset(f, 0, sizeof *f);
    return CHECK_OK(air_context_create(NULL, &f->ctx)) &&
           CHECK_OK(air_graph_parse(f->ctx, text, strlen(text), &f->graph)) &&
           CHECK_OK(air_program_create(f->ctx, f->graph, options, &f->program));
}

static void
teardown(fixture *f)
{
    air_program_destroy(f->program);
    air_graph_destroy(f->graph);
    air_context_destroy(f->ctx);
}

/* Runs it on 64 x 64 numbers; the sum of the result. */
static double
run_with(fixture *f, const air_host *host)
{
    static const int64_t dims[] = {64, 64};
    static float x[4096], y[4096];
    double sum = 0;
    air_value out;

    for (int i = 0; i < 4096; i++) {
        x[i] = (float)(i % 7) - 3;
        y[i] = (float)(i % 5) - 1;
    }
    const air_value in[] = {air_value_tensor(x, AIR_F32, 2, dims),
                            air_value_tensor(y, AIR_F32, 2, dims)};
    if (!CHECK_OK(air_program_run(f->program, host, 2, in, 1, &out)))
        return 0;
    for (int i = 0; i < 4096; i++)
        sum += (double)((float *)out.data)[i] * (i % 11);
    air_value_release(&out);
    return sum;
}

static double
run(fixture *f)
{
    return run_with(f, NULL);
}

/* The text of a program, to be freed. */
static char *
print(fixture *f, air_text_kind kind)
{
    char *text = NULL, *copy = NULL;

    if (CHECK_OK(air_program_print(f->program, kind, &text))) {
        copy = malloc(strlen(text) + 1);
        if (copy)
            strcpy(copy, text);
    }
    air_program_text_free(f->program, text);
    return copy;
}

static void
check_text(fixture *f, air_text_kind kind, const char *part, bool there)
{
    char *text = print(f, kind);

    if (CHECK(text))
        CHECK((strstr(text, part) != NULL) == there);
    free(text);
}

TEST(options_order_changes_steps_not_results)
{
    char *text[AIR_ORDER_COUNT] = {NULL};
    double want = 0;

    for (int order = 0; order < AIR_ORDER_COUNT; order++) {
        const air_compile_options options = {.order = (air_order)order};
        fixture f;
        if (setup(&f, fixed, &options)) {
            double got = run(&f);
            want = order == 0 ? got : want;
            CHECK_NEAR(got, want, 0);
            text[order] = print(&f, AIR_TEXT_STEPS);
        }
        teardown(&f);
    }
    if (CHECK(text[AIR_ORDER_WRITTEN] && text[AIR_ORDER_DFS]))
        CHECK(strcmp(text[AIR_ORDER_WRITTEN], text[AIR_ORDER_DFS]) != 0);
    for (int order = 0; order < AIR_ORDER_COUNT; order++)
        free(text[order]);
}

TEST(options_fewer_steps_than_a_list_has)
{
    static const struct {
        const char *text;
        int64_t least;
        const char *lists;
    } rows[] = {
        {sized, 0, "lists: 3\n"},     {sized, 3, "lists: 3\n"},
        {sized, 4, "lists: 1 1 1\n"}, {sized, -1, "lists: 1 1 1\n"},
        {fixed, -1, "lists: 5\n"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const air_compile_options options = {.list_min = rows[i].least};
        fixture f;
        if (setup(&f, rows[i].text, &options)) {
            run(&f);
            check_text(&f, AIR_TEXT_EXPLAIN, rows[i].lists, true);
        }
        teardown(&f);
    }
}

TEST(options_memory_goes_back)
{
    for (int back = 0; back < 2; back++) {
        const air_compile_options options = {.give_back = back == 1};
        air_program_stats stats;
        air_pool_stats pool = {0};
        fixture f;
        if (setup(&f, fixed, &options)) {
            run(&f);
            air_program_get_stats(f.program, &stats);
            air_context_get_pool_stats(f.ctx, &pool);
            CHECK(stats.arena_bytes > 16384);
            CHECK_INT(pool.live_blocks, 0);
            CHECK((pool.kept_bytes < stats.arena_bytes) == (back == 1));
        }
        teardown(&f);
    }
}

TEST(options_views_are_kept)
{
    for (int off = 0; off < 2; off++) {
        const air_compile_options options = {.without =
                                                 off ? AIR_WITHOUT_VIEW : 0};
        fixture f;
        if (setup(&f, fixed, &options))
            check_text(&f, AIR_TEXT_GRAPH, "view(", off == 1);
        teardown(&f);
    }
}

TEST(options_passes_are_counted)
{
    fixture f;

    if (setup(&f, fixed, NULL)) {
        check_text(&f, AIR_TEXT_PASSES, "canonicalise 2 2 6 5 ", true);
        check_text(&f, AIR_TEXT_PASSES, "\ngroup ", true);
    }
    teardown(&f);
}

TEST(options_wrong_ones_are_refused)
{
    static const air_compile_options wrong[] = {
        {.order = AIR_ORDER_COUNT}, {.list_min = -2},
        {.without = 1u << 31},      {.pass_limit = -1},
        {.rewrite_limit = -1},
    };
    air_program *program;
    fixture f;

    if (setup(&f, fixed, NULL))
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            CHECK_FAILS(air_program_create(f.ctx, f.graph, &wrong[i], &program),
                        ARGUMENT);
    teardown(&f);
}

/* Runs it on n x n numbers; room: for the layout of the result, or NULL. */
static void
run_sized(fixture *f, int64_t n, int64_t *room)
{
    const int64_t dims[] = {n, n};
    static float x[4096];
    const air_value in[] = {air_value_tensor(x, AIR_F32, 2, dims),
                            air_value_tensor(x, AIR_F32, 2, dims)};
    air_value out;

    if (!CHECK_OK(air_program_run(f->program, &(air_host){.layouts = room}, 2,
                                  in, 1, &out)))
        return;
    CHECK_INT(out.dims[0], n);
    CHECK_INT(out.strides[0], n);
    air_value_release(&out);
}

static void
check_specs(const fixture *f, uint64_t kept, uint64_t dropped)
{
    air_program_stats stats;

    air_program_get_stats(f->program, &stats);
    CHECK_INT(stats.specialisations, kept);
    CHECK_INT(stats.dropped, dropped);
}

TEST(options_specialisations_have_a_limit)
{
    const air_compile_options options = {.spec_limit = 3};
    int64_t room[2 * AIR_MAX_RANK];
    fixture f;

    if (setup(&f, sized, &options)) {
        for (int64_t n = 1; n <= 3; n++)
            run_sized(&f, n, room);
        check_specs(&f, 3, 0);
        run_sized(&f, 1, room);
        run_sized(&f, 4, room); /* in the place of 2 */
        check_specs(&f, 3, 1);
        run_sized(&f, 1, room);
        run_sized(&f, 3, room);
        check_specs(&f, 3, 1);
        run_sized(&f, 2, room); /* in the place of 4 */
        check_specs(&f, 3, 2);
        check_text(&f, AIR_TEXT_EXPLAIN, "spec_limit: 3", true);
        check_text(&f, AIR_TEXT_EXPLAIN, "dropped: 2", true);
    }
    teardown(&f);
}

TEST(options_all_specialisations_are_kept_without_a_limit)
{
    int64_t room[2 * AIR_MAX_RANK];
    fixture f;

    if (setup(&f, sized, NULL)) {
        for (int64_t n = 1; n <= 60; n++)
            run_sized(&f, n, room);
        check_specs(&f, 60, 0);
        for (int64_t n = 1; n <= 60; n++) /* through buckets that grew */
            run_sized(&f, n, room);
        check_specs(&f, 60, 0);
    }
    teardown(&f);
}

/* Results whose layouts lie in the specialisation keep it. */
TEST(options_lent_layouts_outlive_the_limit)
{
    const air_compile_options options = {.spec_limit = 2};
    static float x[16];
    const int64_t dims[] = {4, 4};
    const air_value in[] = {air_value_tensor(x, AIR_F32, 2, dims),
                            air_value_tensor(x, AIR_F32, 2, dims)};
    int64_t room[2 * AIR_MAX_RANK];
    air_value out;
    fixture f;

    if (setup(&f, sized, &options) &&
        CHECK_OK(air_program_run(f.program, NULL, 2, in, 1, &out))) {
        for (int64_t n = 5; n <= 9; n++)
            run_sized(&f, n, room);
        check_specs(&f, 2, 4);
        CHECK_INT(out.dims[0], 4);
        air_value_release(&out);
    }
    teardown(&f);
}

/* Limits of one run: products and what else there is, each with its own. */
TEST(options_cores_of_a_run)
{
    air_program_stats stats;
    fixture f;

    if (setup(&f, fixed, NULL)) {
        run_with(&f, &(air_host){.cube_cores = 2, .vector_cores = 1});
        check_text(&f, AIR_TEXT_STEPS, "threads: at most 1", true);
        check_text(&f, AIR_TEXT_STEPS, "threads: at most 2", true);
        run_with(&f, &(air_host){.cube_cores = 2, .vector_cores = 3});
        check_text(&f, AIR_TEXT_STEPS, "threads: at most 1", false);
        run_with(&f, &(air_host){.cube_cores = 4, .vector_cores = 3});
        check_text(&f, AIR_TEXT_STEPS, "threads: at most 2", false);
        air_program_get_stats(f.program, &stats);
        CHECK_INT(stats.specialisations, 3);
    }
    teardown(&f);
}
