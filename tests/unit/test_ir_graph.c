/* test_ir_graph.c: building, changing and cloning graphs. */
#include "ir_case.h"

static const char *const chain = "graph f(%x: f32[4], %y: f32[4]) {\n"
                                 "  %a: f32[4] = add.Tensor(%x, %y)\n"
                                 "  %b: f32[4] = relu(%a)\n"
                                 "  %c: f32[4] = mul.Tensor(%b, %a)\n"
                                 "  return %c, %b strides [1]\n"
                                 "}\n";

static air_ref
ref_of(const ir_graph *g, const char *name)
{
    return (air_ref){(uint32_t)(ir_case_value(g, name) - g->values.data)};
}

static uint32_t
node_of(const ir_graph *g, const char *name)
{
    return ir_case_value(g, name)->node;
}

static void
check_text(const ir_graph *g, const char *want)
{
    base_text text = ir_case_print(g);
    CHECK_STR(text.data, want);
    base_text_deinit(&text);
}

TEST(graph_a_host_node_says_what_it_reads)
{
    ir_graph *g = ir_case_graph("graph f(n: int, %x: f32[4]) {\n"
                                "  %a: f32[4] = host \"a::b\" 1 \"why\" (%x)\n"
                                "  return %a\n"
                                "}\n");
    REQUIRE(g);
    const air_dim n = g->inputs.data[0].dim;
    CHECK(air_graph_host_reads(g, 1, NULL) == AIR_ERROR_ARGUMENT);
    CHECK(air_graph_host_reads(g, 1, &(air_dim){1000}) == AIR_ERROR_ARGUMENT);
    CHECK_OK(air_graph_host_reads(g, 1, &n));
    CHECK_OK(ir_verify(g));
    check_text(g, "graph f(n: int, %x: f32[4]) {\n"
                  "  %a: f32[4] = host \"a::b\" 1 \"why\" (%x) reads [n]\n"
                  "  return %a\n"
                  "}\n");
    ir_graph_free(g);
    g = ir_case_graph(chain);
    REQUIRE(g);
    CHECK(air_graph_host_reads(g, 0, NULL) == AIR_ERROR_STATE);
    ir_graph_free(g);
}

TEST(graph_replace_and_remove)
{
    ir_graph *g = ir_case_graph(chain);
    REQUIRE(g);
    ir_replace_uses(g, ref_of(g, "b"), ref_of(g, "a"));
    ir_remove_node(g, node_of(g, "b"));
    CHECK_OK(ir_verify(g));
    check_text(g, "graph f(%x: f32[4], %y: f32[4]) {\n"
                  "  %a: f32[4] = add.Tensor(%x, %y)\n"
                  "  %c: f32[4] = mul.Tensor(%a, %a)\n"
                  "  return %c, %a strides [1]\n"
                  "}\n");
    ir_graph_free(g);
}

TEST(graph_order)
{
    ir_graph *g = ir_case_graph(chain);
    air_attr x = {.kind = AIR_ATTR_VALUE};
    air_ref r;
    REQUIRE(g);
    x.value = ref_of(g, "y");
    CHECK_OK(
        ir_add_node(g, ir_op_find("neg", 3), 1, &x, g->first, "m.py:1", &r));
    CHECK_STR(ir_val(g, r)->name, "4"); /* the fourth result */
    CHECK_INT(g->first, ir_val(g, r)->node);
    CHECK_OK(ir_verify(g));
    x.value = ref_of(g, "b");
    CHECK_OK(
        ir_add_node(g, ir_op_find("neg", 3), 1, &x, g->first, "m.py:2", &r));
    CHECK_FAILS(ir_verify(g), SYNTAX); /* it reads %b too early */
    ir_graph_free(g);
}

TEST(graph_failed_node_changes_nothing)
{
    ir_graph *g = ir_case_graph(chain);
    air_attr x[3] = {{.kind = AIR_ATTR_VALUE}, {.kind = AIR_ATTR_BOOLS}};
    air_ref r;
    REQUIRE(g);
    size_t nodes = g->nodes.count, values = g->values.count;
    CHECK_FAILS(ir_add_node(g, ir_op_find("mm", 2), 2, x, IR_NO_NODE, NULL, &r),
                ARGUMENT);
    x[1] = x[0];
    CHECK_FAILS(ir_add_node(g, ir_op_find("mm", 2), 2, x, IR_NO_NODE, NULL, &r),
                SHAPE);
    x[0].value.id = 1000;
    CHECK_FAILS(
        ir_add_node(g, ir_op_find("relu", 4), 1, x, IR_NO_NODE, NULL, &r),
        ARGUMENT);
    CHECK_FAILS(
        ir_add_node(g, ir_op_find("relu", 4), 3, x, IR_NO_NODE, NULL, &r),
        ARGUMENT);
    CHECK_INT(g->nodes.count, nodes);
    CHECK_INT(g->values.count, values);
    check_text(g, chain);
    ir_graph_free(g);
}

TEST(graph_clone_is_independent)
{
    ir_graph *g = ir_case_graph(chain), *copy;
    REQUIRE(g);
    REQUIRE_OK(ir_graph_clone(g, &copy));
    ir_replace_uses(g, ref_of(g, "b"), ref_of(g, "x"));
    ir_remove_node(g, node_of(g, "b"));
    ir_graph_free(g);
    check_text(copy, chain);
    CHECK_OK(ir_verify(copy));
    ir_graph_free(copy);
}

TEST(graph_lone_ints_and_empty_lists)
{
    ir_graph *g = ir_case_body("%x: f32[4, 4]", "");
    air_attr a[3] = {{.kind = AIR_ATTR_VALUE},
                     {.kind = AIR_ATTR_INT},
                     {.kind = AIR_ATTR_BOOL, .b = true}};
    air_ref r;
    REQUIRE(g);
    CHECK_OK(ir_dim_const(g, 1, &a[1].dim));
    CHECK_OK(ir_add_node(g, ir_op_find("amax", 4), 3, a, IR_NO_NODE, NULL, &r));
    CHECK_STR(ir_case_type(g, "1"), "f32[4, 1]");
    a[1] = (air_attr){.kind = AIR_ATTR_FLOATS};
    CHECK_OK(ir_add_node(g, ir_op_find("amax", 4), 2, a, IR_NO_NODE, NULL, &r));
    CHECK_STR(ir_case_type(g, "2"), "f32[]");
    ir_graph_free(g);
}

TEST(graph_split_counts_results)
{
    ir_graph *g = ir_case_body("%x: f32[7, 4]", "");
    air_attr a[2] = {{.kind = AIR_ATTR_VALUE}, {.kind = AIR_ATTR_INT}};
    air_ref r[4];
    size_t count;
    REQUIRE(g);
    CHECK_OK(ir_dim_const(g, 2, &a[1].dim));
    CHECK_OK(ir_result_count(g, ir_op_find("split.Tensor", 12), 2, a, &count));
    REQUIRE(count == 4);
    CHECK_OK(ir_add_node(g, ir_op_find("split.Tensor", 12), 2, a, IR_NO_NODE,
                         NULL, r));
    CHECK_STR(ir_case_type(g, "4"), "f32[1, 4]");
    CHECK_OK(ir_verify(g));
    ir_graph_free(g);
}

TEST(verify_sees_damage)
{
    ir_graph *g = ir_case_graph(chain);
    REQUIRE(g);
    ir_val(g, ref_of(g, "b"))->dtype = AIR_I32;
    CHECK_FAILS(ir_verify(g), SYNTAX);
    ir_val(g, ref_of(g, "b"))->dtype = AIR_F32;
    CHECK_OK(ir_verify(g));
    g->results.data[0].value.id = 99;
    CHECK_FAILS(ir_verify(g), SYNTAX);
    g->results.data[0].value = ref_of(g, "c");
    ir_node_at(g, g->first)->next = g->last;
    CHECK_FAILS(ir_verify(g), SYNTAX);
    ir_graph_free(g);
}
