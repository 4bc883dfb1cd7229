/* test_ir_record.c: what bodies record, what is shared and simplified. */
#include <math.h>

#include "ir_case.h"

static air_rg_node nodes[AIR_RG_MAX_NODES];

static int
load(ir_record *r, int buf, air_lane lane)
{
    return ir_record_put(r, (air_rg_node){.op = AIR_RG_LOAD,
                                          .lane = lane,
                                          .buf = (int16_t)buf,
                                          .a = -1,
                                          .b = -1,
                                          .c = -1});
}

/* Records an op whose parameters are all loads, but numbers given here. */
static int
record(ir_record *r, const char *name, air_lane lane, const double *numbers)
{
    ir_op op = ir_op_find(name, strlen(name));
    const ir_op_info *info = ir_op_get(op);
    air_attr attrs[16] = {{AIR_ATTR_NONE}};
    int operands[16], n = 0;

    CHECK(op != AIR_OP_NONE);
    for (int i = 0; i < info->nparams; i++) {
        attrs[i] = info->params[i].def;
        operands[i] = -1;
        if (info->params[i].kind == IR_PARAM_TENSOR)
            operands[i] = load(r, i, lane);
        else if (info->params[i].kind == IR_PARAM_SCALAR)
            operands[i] = ir_record_const(r, lane, numbers[n++]);
    }
    return ir_record_body(r, op, lane, attrs, operands);
}

TEST(record_shares_and_folds)
{
    ir_record r = {.nodes = nodes};
    int a = load(&r, 0, AIR_LANE_F32);
    CHECK_INT(load(&r, 0, AIR_LANE_F32), a);
    int zero = ir_record_const(&r, AIR_LANE_F32, 0.0);
    CHECK(ir_record_const(&r, AIR_LANE_F32, -0.0) != zero);
    CHECK_NEAR(nodes[ir_record_const(&r, AIR_LANE_F32, 0.1)].k, 0.1f, 0.0);
    int truth = ir_record_cvt(&r, a, AIR_LANE_B);
    int back = ir_record_cvt(&r, truth, AIR_LANE_F32);
    CHECK_INT(ir_record_cvt(&r, back, AIR_LANE_B), truth);
    r.begin = r.count; /* the next phase shares nothing */
    CHECK(load(&r, 0, AIR_LANE_F32) != a);
}

TEST(record_add_with_alpha)
{
    ir_record r = {.nodes = nodes};
    double one = 1.0, two = 2.0;
    CHECK_INT(nodes[record(&r, "add.Tensor", AIR_LANE_F32, &one)].op,
              AIR_RG_ADD);
    CHECK_INT(nodes[record(&r, "add.Tensor", AIR_LANE_F32, &two)].op,
              AIR_RG_FMA);
    CHECK_INT(nodes[record(&r, "add.Tensor", AIR_LANE_I64, &two)].op,
              AIR_RG_ADD); /* of a product: integers have no FMA */
    CHECK_INT(nodes[record(&r, "add.Tensor", AIR_LANE_B, &one)].op, AIR_RG_OR);
}

TEST(record_divisions_by_powers_of_two)
{
    ir_record r = {.nodes = nodes};
    double eight = 8.0, three = 3.0, tiny = 0x1p-127;
    int n = record(&r, "div.Scalar", AIR_LANE_F32, &eight);
    CHECK_INT(nodes[n].op, AIR_RG_MUL);
    CHECK_INT(nodes[record(&r, "div.Scalar", AIR_LANE_F32, &three)].op,
              AIR_RG_DIV);
    CHECK_INT(nodes[record(&r, "div.Scalar", AIR_LANE_F32, &tiny)].op,
              AIR_RG_MUL); /* 2^127 is normal */
    tiny = 0x1p-128;
    CHECK_INT(nodes[record(&r, "div.Scalar", AIR_LANE_F32, &tiny)].op,
              AIR_RG_DIV); /* 2^128 is not */
}

/* Operands come before what uses them, lanes fit, nothing is left over. */
static void
check_nodes(const ir_record *r, int begin, int result, const char *name)
{
    bool used[AIR_RG_MAX_NODES] = {false};

    used[result] = true;
    for (int i = r->count - 1; i >= begin; i--) {
        const air_rg_node *n = &r->nodes[i];
        const int operands[] = {n->a, n->b, n->c};
        for (int k = 0; k < 3; k++) {
            if (operands[k] < 0)
                continue;
            if (operands[k] >= i)
                test_fail(__FILE__, __LINE__, "%s: node %d", name, i);
            used[operands[k]] = true;
        }
        if (!used[i])
            test_fail(__FILE__, __LINE__, "%s: node %d is unused", name, i);
    }
}

TEST(record_every_body_in_every_lane)
{
    static const double numbers[] = {0.5, 2.0, 3.0};
    for (int op = AIR_OP_HOST + 1; op < AIR_OP_COUNT; op++) {
        const ir_op_info *info = ir_op_get((ir_op)op);
        if (info->cls != IR_CLASS_POINTWISE && info->cls != IR_CLASS_CREATE)
            continue;
        for (int lane = AIR_LANE_F32; lane <= AIR_LANE_B; lane++) {
            ir_record r = {.nodes = nodes};
            air_attr attrs[16] = {{AIR_ATTR_NONE}};
            int operands[16], n = 0;
            for (int i = 0; i < info->nparams; i++) {
                attrs[i] = info->params[i].def;
                operands[i] = -1;
                if (info->params[i].kind == IR_PARAM_TENSOR)
                    operands[i] = load(&r, i, (air_lane)lane);
                else if (info->params[i].kind != IR_PARAM_STR &&
                         info->params[i].kind != IR_PARAM_IGNORED)
                    operands[i] =
                        ir_record_const(&r, (air_lane)lane, numbers[n++ % 3]);
            }
            int begin = r.count;
            int result =
                ir_record_body(&r, (ir_op)op, (air_lane)lane, attrs, operands);
            if (!CHECK(result >= 0 && !r.full))
                continue;
            check_nodes(&r, begin, result, info->name);
        }
    }
}

TEST(record_full_is_noticed)
{
    ir_record r = {.nodes = nodes};
    int last = load(&r, 0, AIR_LANE_F32);
    for (int i = 0; i < AIR_RG_MAX_NODES + 5; i++)
        load(&r, i, AIR_LANE_F32);
    CHECK(r.full);
    CHECK_INT(r.count, AIR_RG_MAX_NODES);
    CHECK_INT(
        ir_record_body(&r, ir_op_find("gelu", 4), AIR_LANE_F32,
                       (air_attr[]){{AIR_ATTR_NONE},
                                    {.kind = AIR_ATTR_STR, .str = "tanh"}},
                       (int[]){last, -1}),
        -1);
}

/* exp(x) of a region that knows only primitives, computed here. */
static double
evaluate(const air_rg_node *list, int i, double x)
{
    const air_rg_node *n = &list[i];
    double a = n->a < 0 ? 0 : evaluate(list, n->a, x);
    double b = n->b < 0 ? 0 : evaluate(list, n->b, x);
    double c = n->c < 0 ? 0 : evaluate(list, n->c, x);

    switch (n->op) {
    case AIR_RG_CONST: return n->k;
    case AIR_RG_LOAD: return x;
    case AIR_RG_ADD: return (double)((float)a + (float)b);
    case AIR_RG_MUL: return (double)((float)a * (float)b);
    case AIR_RG_FMA: return (double)fmaf((float)a, (float)b, (float)c);
    case AIR_RG_MAX: return a > b ? a : b;
    case AIR_RG_MIN: return a < b ? a : b;
    case AIR_RG_LE: return a <= b;
    case AIR_RG_SEL: return a > 0 ? b : c;
    case AIR_RG_RINT: return rint(a);
    case AIR_RG_SCALEF: return (double)ldexpf((float)a, (int)b);
    default: test_fail(__FILE__, __LINE__, "op %d", n->op); return 0;
    }
}

TEST(record_expands_composed_functions)
{
    static air_rg_node out[AIR_RG_MAX_NODES];
    ir_record r = {.nodes = nodes}, e = {.nodes = out};
    int16_t map[AIR_RG_MAX_NODES];
    int n = record(&r, "exp", AIR_LANE_F32, NULL);
    CHECK_INT(nodes[n].op, AIR_RG_EXP);
    ir_record_expand(nodes, r.count, &e, map);
    for (int i = 0; i < e.count; i++)
        CHECK(out[i].op != AIR_RG_EXP);
    for (double x = -20.0; x < 20.0; x += 0.37)
        CHECK_NEAR(evaluate(out, map[n], (double)(float)x) /
                       exp((double)(float)x),
                   1.0, 1.2e-7);

    ir_record d = {.nodes = nodes};
    e.count = 0;
    n = record(&d, "exp", AIR_LANE_F64, NULL);
    ir_record_expand(nodes, d.count, &e, map);
    CHECK_INT(out[map[n]].op, AIR_RG_EXP); /* libm's */
}
