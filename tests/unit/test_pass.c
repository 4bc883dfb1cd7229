/* The pipeline itself: rows, limits, records, dumps; the tables of rules. */
#include <stdlib.h>
#include <unistd.h>

#include "pass/pass.h"
#include "test.h"

static const char text[] = "graph f(%x: f32[4]) {\n"
                           "  %a = mul.Tensor(%x, 1.0)\n"
                           "  %b = clone(%a)\n"
                           "  %c = _softmax(%b, dim=0, half_to_float=false)\n"
                           "  return %c\n"
                           "}\n";

static ir_graph *
make_graph(void)
{
    ir_graph *g = NULL;

    CHECK_OK(ir_parse(&base_libc_alloc, text, sizeof text - 1, &g));
    return g;
}

typedef struct {
    int count;
    char last[32];
    size_t rewrites;
    bool sane;
} seen;

static void
see(void *user, const pass_record *record, const ir_graph *g)
{
    seen *s = user;

    s->sane = (s->count == 0) == (record->index == 0) &&
              record->seconds >= 0.0 && g != NULL;
    s->count++;
    s->rewrites += record->rewrites;
    snprintf(s->last, sizeof s->last, "%s", record->name);
}

static int
count_op(const ir_graph *g, const char *name)
{
    int n = 0;

    IR_FOR_EACH(g, id)
    n += strcmp(ir_info(ir_node_at(g, id))->name, name) == 0;
    return n;
}

TEST(pass_all_rows_run)
{
    seen s = {0};
    ir_graph *g = make_graph();

    REQUIRE(g);
    CHECK_OK(pass_run_all(g, &base_libc_alloc, NULL, NULL, true, see, &s));
    CHECK(s.sane);
    CHECK(s.count > 5);
    CHECK_INT(count_op(g, "clone") + count_op(g, "_softmax"), 0);
    CHECK_INT(count_op(g, "exp"), 1);
    ir_graph_free(g);
}

TEST(pass_limit_keeps_what_the_lowering_needs)
{
    air_compile_options options = {.pass_limit = 1};
    seen s = {0};
    ir_graph *g = make_graph();

    REQUIRE(g);
    /* row 1, canonicalise, runs; of the rest only those of level ALWAYS */
    CHECK_OK(pass_run_all(g, &base_libc_alloc, &options, NULL, true, see, &s));
    CHECK_INT(count_op(g, "clone"), 0);
    CHECK_INT(count_op(g, "_softmax"), 0);
    ir_graph_free(g);
}

/* One rewrite more a run: each leaves a graph, the last one is the whole. */
TEST(pass_rewrite_limit_counts)
{
    size_t all = 0;

    for (int limit = 1; limit < 100; limit++) {
        air_compile_options options = {.rewrite_limit = limit};
        seen s = {0};
        ir_graph *g = make_graph();
        REQUIRE(g);
        CHECK_OK(
            pass_run_all(g, &base_libc_alloc, &options, NULL, true, see, &s));
        ir_graph_free(g);
        CHECK(s.rewrites <= (size_t)limit);
        if (s.rewrites == all)
            break;
        all = s.rewrites;
    }
    CHECK(all >= 2 && all < 50);
}

TEST(pass_without_what_changes_nothing)
{
    air_compile_options options = {.without = AIR_WITHOUT_NOOP};
    seen s = {0};
    ir_graph *g = make_graph();

    REQUIRE(g);
    CHECK_OK(pass_run_all(g, &base_libc_alloc, &options, NULL, true, see, &s));
    CHECK(count_op(g, "clone") > 0);
    ir_graph_free(g);
}

TEST(pass_without_names)
{
    const char *help;
    size_t n = 0;

    for (; air_without_name(n, &help); n++)
        CHECK(help && strlen(help) > 10);
    CHECK(n > AIR_WITHOUT_COUNT && n < 32);
    CHECK_STR(air_without_name(AIR_WITHOUT_BIT_CAT, NULL), "cat");
    CHECK(help == NULL);
}

static size_t
bit_of(const char *name)
{
    const char *found;
    size_t bit = 0;

    while ((found = air_without_name(bit, NULL)) && strcmp(found, name) != 0)
        bit++;
    return bit;
}

/* Each switch of a pass switches that row off, and no other one. */
TEST(pass_without_a_pass)
{
    const size_t all = pass_row_count();

    for (size_t bit = AIR_WITHOUT_COUNT; air_without_name(bit, NULL); bit++) {
        air_compile_options options = {.without = 1u << bit};
        seen s = {0};
        ir_graph *g = make_graph();
        REQUIRE(g);
        CHECK_OK(
            pass_run_all(g, &base_libc_alloc, &options, NULL, true, see, &s));
        CHECK_INT(s.count, all); /* one is missing, the input is told too */
        ir_graph_free(g);
    }
    /* what the lowering needs has none; "inplace" is the part */
    CHECK(!air_without_name(bit_of("expand"), NULL));
    CHECK(bit_of("inplace") < AIR_WITHOUT_COUNT);
}

TEST(pass_without_cse)
{
    static const char twice[] = "graph f(%x: f32[4]) {\n"
                                "  %a = exp(%x)\n"
                                "  %b = exp(%x)\n"
                                "  %c = add.Tensor(%a, %b)\n"
                                "  return %c\n"
                                "}\n";

    for (int off = 0; off < 2; off++) {
        air_compile_options options = {.without =
                                           off ? 1u << bit_of("cse") : 0};
        ir_graph *g = NULL;
        REQUIRE(
            CHECK_OK(ir_parse(&base_libc_alloc, twice, sizeof twice - 1, &g)));
        CHECK_OK(pass_run_all(g, &base_libc_alloc, &options, NULL, true, NULL,
                              NULL));
        CHECK_INT(count_op(g, "exp"), off ? 2 : 1);
        ir_graph_free(g);
    }
}

static void
add_up(void *user, const pass_record *record, const ir_graph *g)
{
    size_t *sums = user;

    (void)g;
    sums[0] += record->matches;
    sums[1] += record->made;
    CHECK(record->made <= record->matches && record->rewrites <= record->made);
}

/* With a limit rewrites are found that are not made. */
TEST(pass_counts_what_it_found)
{
    size_t whole[2] = {0}, cut[2] = {0};
    air_compile_options options = {.rewrite_limit = 1};
    ir_graph *g = make_graph();

    REQUIRE(g);
    CHECK_OK(
        pass_run_all(g, &base_libc_alloc, NULL, NULL, true, add_up, whole));
    ir_graph_free(g);
    g = make_graph();
    REQUIRE(g);
    CHECK_OK(
        pass_run_all(g, &base_libc_alloc, &options, NULL, true, add_up, cut));
    ir_graph_free(g);
    CHECK(whole[0] == whole[1] && whole[0] > 2);
    CHECK(cut[0] > cut[1]);
}

TEST(pass_names_are_listed)
{
    const char *help;
    size_t n = 0;

    for (; air_pass_name(n, &help); n++)
        CHECK(help && strlen(help) > 10 && !strchr(help, '\n'));
    CHECK(n > 5);
    CHECK(help == NULL);
    CHECK_STR(air_pass_name(0, NULL), "canonicalise");
}

TEST(pass_one_by_name)
{
    ir_graph *g = make_graph();

    REQUIRE(g);
    CHECK_OK(pass_run_one(g, &base_libc_alloc, NULL, NULL, "expand"));
    CHECK_INT(count_op(g, "_softmax"), 0);
    CHECK_INT(count_op(g, "clone"), 1);
    CHECK_FAILS(pass_run_one(g, &base_libc_alloc, NULL, NULL, "nothing"),
                ARGUMENT);
    ir_graph_free(g);
}

TEST(pass_dumps_each_row)
{
    char dir[] = "/tmp/air-pass-XXXXXX", path[64], line[16] = "";
    ir_graph *g = make_graph();

    REQUIRE(g && mkdtemp(dir));
    air_compile_options options = {.dump_dir = dir};
    CHECK_OK(
        pass_run_all(g, &base_libc_alloc, &options, NULL, true, NULL, NULL));
    for (int i = 0; i == 0 || air_pass_name((size_t)i - 1, NULL); i++) {
        snprintf(path, sizeof path, "%s/%02d-%s.txt", dir, i,
                 i ? air_pass_name((size_t)i - 1, NULL) : "input");
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file) && line[0] == '#');
        if (file)
            fclose(file);
        unlink(path);
    }
    rmdir(dir);
    CHECK_FAILS(
        pass_run_all(g, &base_libc_alloc, &options, NULL, true, NULL, NULL),
        ARGUMENT);
    ir_graph_free(g);
}

/* ---- tables -------------------------------------------------------------- */

static const char *const expand_ops[] = {
#define EXPAND(op, fn) op,
#include "pass/expand.def"
#undef EXPAND
};

static const char *const canon_ops[] = {
#define RENAME(from, to) from, to,
#define CANON(op, fn)    op,
#include "pass/canon.def"
#undef RENAME
#undef CANON
};

static bool
is_expanded(const char *name)
{
    for (size_t i = 0; i < sizeof expand_ops / sizeof expand_ops[0]; i++)
        if (strcmp(expand_ops[i], name) == 0)
            return true;
    return false;
}

/* Nothing but a rule of expand can bring a composite op to the lowering. */
TEST(pass_every_composite_has_a_rule)
{
    REQUIRE_OK(ir_ops_init());
    for (int op = AIR_OP_HOST + 1; op < AIR_OP_COUNT; op++) {
        const ir_op_info *info = ir_op_get((ir_op)op);
        if (info->cls == IR_CLASS_COMPOSITE && !is_expanded(info->name))
            test_fail(__FILE__, __LINE__, "expand.def has no row for %s",
                      info->name);
    }
}

TEST(pass_rules_name_ops)
{
    REQUIRE_OK(ir_ops_init());
    for (size_t i = 0; i < sizeof expand_ops / sizeof expand_ops[0]; i++)
        if (ir_op_find(expand_ops[i], strlen(expand_ops[i])) == AIR_OP_NONE)
            test_fail(__FILE__, __LINE__, "expand.def: no op %s",
                      expand_ops[i]);
    for (size_t i = 0; i < sizeof canon_ops / sizeof canon_ops[0]; i++)
        if (ir_op_find(canon_ops[i], strlen(canon_ops[i])) == AIR_OP_NONE)
            test_fail(__FILE__, __LINE__, "canon.def: no op %s", canon_ops[i]);
}
