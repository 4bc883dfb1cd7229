/* test_ir_ops.c: the op table. */
#include "ir_case.h"

static const ir_op_info *
row(const char *name)
{
    ir_op op = ir_op_find(name, strlen(name));
    CHECK(op != AIR_OP_NONE);
    return ir_op_get(op);
}

TEST(ops_every_row_is_found_by_its_name)
{
    REQUIRE_OK(ir_ops_init());
    CHECK_INT(AIR_OP_COUNT > 232, true);
    for (int op = AIR_OP_HOST + 1; op < AIR_OP_COUNT; op++) {
        const ir_op_info *info = ir_op_get((ir_op)op);
        CHECK_INT(ir_op_find(info->name, strlen(info->name)), op);
        CHECK(info->shape != NULL && info->nparams <= 64);
        CHECK(info->cls != IR_CLASS_CALL || info->kernel != NULL);
        CHECK((info->cls == IR_CLASS_VIEW) == (info->view >= 0));
    }
    CHECK_INT(ir_op_find("nonzero", 7), AIR_OP_NONE);
    CHECK_INT(ir_op_find("", 0), AIR_OP_NONE);
}

TEST(ops_defaults)
{
    const ir_op_info *add = row("add.Tensor"), *gelu = row("gelu");
    const ir_op_info *pool = row("max_pool2d_with_indices");

    CHECK_INT(add->nparams, 3);
    CHECK_STR(add->params[2].name, "alpha");
    CHECK_INT(add->params[2].def.kind, AIR_ATTR_INT);
    CHECK_STR(gelu->params[1].def.str, "none");
    CHECK_INT(pool->nrets, 2);
    CHECK_INT(pool->params[3].def.count, 2); /* padding=0: two of them */
    CHECK_INT(pool->params[2].def.count, 0);
    CHECK(!pool->params[1].has_default);
    CHECK_INT(row("_to_copy")->params[6].kind, IR_PARAM_IGNORED);
    CHECK(row("split.Tensor")->list_result);
    CHECK(row("copy_")->params[0].mutated);
    CHECK(row("convolution")->params[2].optional);
    CHECK_INT(row("index.Tensor")->params[1].kind, IR_PARAM_TENSORS);
    CHECK_INT(ir_param_find(add, "b"), 1);
    CHECK_INT(ir_param_find(add, "other"), -1);
}

TEST(ops_defaults_name_constants_of_any_graph)
{
    ir_graph *g = ir_case_body("%x: f32[1, 1, 8, 8]",
                               "%v, %i = max_pool2d_with_indices(%x, "
                               "kernel_size=[2, 2])");
    int64_t v;
    REQUIRE(g);
    const air_attr *dilation = &ir_node_at(g, g->first)->attrs[4];
    CHECK_INT(dilation->count, 2);
    CHECK(ir_dim_is_const(g, dilation->dims[1], &v));
    CHECK_INT(v, 1);
    CHECK_STR(ir_case_type(g, "i"), "i64[1, 1, 4, 4]");
    ir_graph_free(g);
}
