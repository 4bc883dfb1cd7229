/* test_ends.c: when units run that only results need. */
#include <stdio.h>

#include "exec/exec.h"
#include "test.h"

typedef struct {
    const char *nodes, *results, *want; /* want: operators in order */
} ends_case;

static const ends_case cases[] = {
    /* as soon as nobody else reads what they do */
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %b: f32[512, 1024] = exp(%a)\n"
     "  %c: f32[512, 1024] = cumsum(%b, dim=0)\n"
     "  %d: f32[512, 1024] = cumsum(%c, dim=0)\n"
     "  %r: bf16[512, 1024] = _to_copy(%a, dtype=bf16)\n",
     "%d, %r", "neg exp _to_copy cumsum cumsum"},
    /* through views, with what is behind them */
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %b: f32[512, 1024] = exp(%a)\n"
     "  %c: f32[512, 1024] = cumsum(%b, dim=0)\n"
     "  %v: f32[1024, 512] = t(%a)\n"
     "  %r: bf16[1024, 512] = _to_copy(%v, dtype=bf16)\n"
     "  %s: bf16[1024, 512] = sin(%r)\n",
     "%c, %s", "neg t exp _to_copy sin cumsum"},
    /* in memory that something was written into */
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %b: f32[512, 1024] = index_add(%a, 0, %i, %x) inplace\n"
     "  %c: f32[512, 1024] = cumsum(%b, dim=0)\n"
     "  %d: f32[512, 1024] = cumsum(%c, dim=0)\n"
     "  %r: f32[512, 1024] = exp(%b)\n",
     "%d, %r", "neg index_add cumsum exp cumsum"},
    /* not between a product and what may become part of it */
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %p: f32[512, 512] = mm(%a, %w)\n"
     "  %y: f32[512, 512] = relu(%p)\n"
     "  %c: f32[512, 512] = cumsum(%y, dim=0)\n"
     "  %r: bf16[512, 1024] = _to_copy(%a, dtype=bf16)\n",
     "%c, %r", "neg mm relu _to_copy cumsum"},
    /* something else needs them; they free nothing: an input, a result, a
     * small value */
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %c: f32[512, 1024] = cumsum(%a, dim=0)\n"
     "  %r: f32[512, 1024] = exp(%a)\n"
     "  %d: f32[512, 1024] = cumsum(%r, dim=0)\n",
     "%c, %d", "neg cumsum exp cumsum"},
    {"  %a: f32[512, 1024] = neg(%x)\n"
     "  %c: f32[512, 1024] = cumsum(%x, dim=0)\n"
     "  %d: f32[512, 1024] = cumsum(%c, dim=0)\n"
     "  %r: f32[512, 1024] = exp(%x)\n"
     "  %s: f32[512, 1024] = exp(%a)\n",
     "%a, %d, %r, %s", "neg cumsum cumsum exp exp"},
    {"  %a: f32[512] = neg(%u)\n"
     "  %c: f32[512] = cumsum(%a, dim=0)\n"
     "  %d: f32[512] = cumsum(%c, dim=0)\n"
     "  %r: bf16[512] = _to_copy(%a, dtype=bf16)\n",
     "%d, %r", "neg cumsum cumsum _to_copy"},
};

static void
check_order(const ends_case *c)
{
    const air_compile_options options = {.order = AIR_ORDER_WRITTEN};
    char text[2000], found[200] = "";
    base_arena arena, scratch;
    exec_order order;
    ir_graph *g;

    (void)snprintf(text, sizeof text,
                   "graph f(%%x: f32[512, 1024], %%w: f32[1024, 512], "
                   "%%u: f32[512], %%i: i64[512]) {\n%s  return %s\n}\n",
                   c->nodes, c->results);
    REQUIRE_OK(ir_parse(&base_libc_alloc, text, strlen(text), &g));
    base_arena_init(&arena, &base_libc_alloc);
    base_arena_init(&scratch, &base_libc_alloc);
    const bool made =
        CHECK_OK(exec_order_make(g, &options, false, &arena, &scratch, &order));
    for (size_t i = 0; made && i < order.count; i++) {
        const ir_node *n = ir_node_at(g, order.units[i].nodes[0]);
        strcat(found, i > 0 ? " " : "");
        strcat(found, ir_info(n)->name);
    }
    CHECK_STR(found, c->want);
    base_arena_deinit(&arena);
    base_arena_deinit(&scratch);
    ir_graph_free(g);
}

TEST(ends_run_where_they_free_memory)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_order(&cases[i]);
}
