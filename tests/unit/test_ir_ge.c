/* test_ir_ge.c: the Ascend IR's tables and a graph in its terms. */
#include "ir/ge.h"
#include "ir_case.h"

/* ---- tables ---- */

/* Number, number in files: every entry, from the specification. */
TEST(ge_dtypes_have_their_two_numbers)
{
    static const struct {
        const char *name;
        int number, file;
    } want[] = {
        {"DT_FLOAT", 0, 1},
        {"DT_FLOAT16", 1, 2},
        {"DT_INT8", 2, 3},
        {"DT_INT32", 3, 7},
        {"DT_UINT8", 4, 4},
        {"DT_INT16", 6, 5},
        {"DT_UINT16", 7, 6},
        {"DT_UINT32", 8, 9},
        {"DT_INT64", 9, 8},
        {"DT_UINT64", 10, 10},
        {"DT_DOUBLE", 11, 12},
        {"DT_BOOL", 12, 11},
        {"DT_STRING", 13, 13},
        {"DT_DUAL_SUB_INT8", 14, 14},
        {"DT_DUAL_SUB_UINT8", 15, 15},
        {"DT_COMPLEX64", 16, 16},
        {"DT_COMPLEX128", 17, 17},
        {"DT_QINT8", 18, 18},
        {"DT_QINT16", 19, 19},
        {"DT_QINT32", 20, 20},
        {"DT_QUINT8", 21, 21},
        {"DT_QUINT16", 22, 22},
        {"DT_RESOURCE", 23, 23},
        {"DT_STRING_REF", 24, 24},
        {"DT_DUAL", 25, 25},
        {"DT_VARIANT", 26, 26},
        {"DT_BF16", 27, 27},
        {"DT_UNDEFINED", 28, 0},
        {"DT_INT4", 29, 28},
        {"DT_UINT1", 30, 29},
        {"DT_INT2", 31, 30},
        {"DT_UINT2", 32, 31},
        {"DT_COMPLEX32", 33, 32},
        {"DT_HIFLOAT8", 34, 33},
        {"DT_FLOAT8_E5M2", 35, 34},
        {"DT_FLOAT8_E4M3FN", 36, 35},
        {"DT_FLOAT8_E8M0", 37, 36},
        {"DT_FLOAT6_E3M2", 38, 37},
        {"DT_FLOAT6_E2M3", 39, 38},
        {"DT_FLOAT4_E2M1", 40, 39},
        {"DT_FLOAT4_E1M2", 41, 40},
    };
    size_t n = sizeof want / sizeof *want;

    for (size_t i = 0; i < n; i++) {
        const air_ge_dtype *d = air_ge_dtype_at(i);
        REQUIRE(d);
        CHECK_STR(d->name, want[i].name);
        CHECK_INT(d->number, want[i].number);
        CHECK_INT(d->file_number, want[i].file);
    }
    CHECK(air_ge_dtype_at(n) == NULL);
    for (int d = AIR_DTYPE_NONE + 1; d < AIR_DTYPE_COUNT; d++)
        CHECK(air_ge_dtype_of((air_dtype)d) != NULL);
}

TEST(ge_formats)
{
    CHECK_STR(air_ge_format_at(0)->name, "FORMAT_UNDEFINED");
    CHECK_INT(air_ge_format_at(0)->number, -1);
    CHECK_INT(air_ge_format_at(9)->number, 29);
    CHECK_STR(air_ge_format_at(9)->name, "FORMAT_FRACTAL_NZ");
    CHECK(air_ge_format_at(19) == NULL);
}

static bool
is_field(const ge_field *f, const char *name, size_t len)
{
    return (size_t)f->name_len == len && memcmp(f->name, name, len) == 0;
}

static bool
has_field(const char *prototype, const char *name, size_t len)
{
    ge_field f;

    for (int s = GE_INPUTS; s <= GE_OUTPUTS; s++)
        for (size_t i = 0; ge_field_at(prototype, (ge_section)s, i, &f); i++)
            if (is_field(&f, name, len))
                return true;
    return false;
}

TEST(ge_prototypes_are_read)
{
    const char *conv = ge_prototype("Conv2D");
    ge_field f;

    REQUIRE(conv);
    CHECK(ge_field_at(conv, GE_INPUTS, 0, &f) && is_field(&f, "x", 1));
    CHECK(!f.optional && !f.list);
    CHECK(ge_field_at(conv, GE_INPUTS, 3, &f) && is_field(&f, "offset_w", 8));
    CHECK(f.optional);
    CHECK(!ge_field_at(conv, GE_INPUTS, 4, &f));
    CHECK(ge_field_at(conv, GE_ATTRS, 0, &f) && f.required && f.list);
    CHECK(ge_field_at(conv, GE_ATTRS, 2, &f));
    CHECK(is_field(&f, "dilations", 9) && f.list && !f.required);
    CHECK_INT(f.def_len, (int)strlen("{1, 1, 1, 1}"));
    CHECK(ge_field_at(conv, GE_OUTPUTS, 0, &f) && is_field(&f, "y", 1));
    CHECK(!ge_field_at(conv, GE_OUTPUTS, 1, &f));
    CHECK(ge_field_at(ge_prototype("Unpack"), GE_OUTPUTS, 0, &f) && f.list);
    CHECK(ge_field_at(ge_prototype("Const"), GE_ATTRS, 0, &f) && f.required);
    CHECK(!ge_field_at(ge_prototype("Const"), GE_INPUTS, 0, &f));
    CHECK(!ge_field_at(ge_prototype("NetOutput"), GE_OUTPUTS, 0, &f));
    CHECK(ge_prototype("Conv") == NULL);
}

/* Of every row: the op, the type, and every name it writes exist; the last row
 * of an op has no condition and says what the op table says, but for one that
 * is for what a pass wrote. */
TEST(ge_rows_name_what_exists)
{
    const char *op, *type, *when, *args, *next, *none[3];

    for (size_t i = 0; air_ge_row(i, &op, &type, &when, &args); i++) {
        ir_op id = ir_op_find(op, strlen(op));
        const char *prototype = ge_prototype(type);
        if (id == AIR_OP_NONE || !prototype) {
            test_fail(__FILE__, __LINE__, "row %s of %s", type, op);
            continue;
        }
        const ir_op_info *info = ir_op_get(id);
        if (!air_ge_row(i + 1, &next, &none[0], &none[1], &none[2]) ||
            (strcmp(next, op) != 0 && strcmp(when, "inplace") != 0)) {
            CHECK_STR(when, "");
            CHECK_STR(type, info->ge);
        }
        while (*args) {
            size_t len = strcspn(args, " "), name = strcspn(args, "=");
            char source[64];
            snprintf(source, sizeof source, "%.*s", (int)(len - name - 1),
                     args + name + 1);
            if (!has_field(prototype, args, name) ||
                (strspn(source, "%@\"[-0123456789") == 0 &&
                 strcmp(source, "true") != 0 && strcmp(source, "false") != 0 &&
                 ir_param_find(info, source) < 0))
                test_fail(__FILE__, __LINE__, "%s: %s", op, args);
            args += len + (args[len] == ' ');
        }
    }
}

/* ---- a graph ---- */

static void
check_text(const char *header, const char *body, const char *want)
{
    ir_graph *g = ir_case_body(header, body);
    base_text text;

    REQUIRE(g);
    base_text_init(&text, g->alloc);
    CHECK_OK(ge_print(g, AIR_GE_PY, &text));
    if (!text.data || !strstr(text.data, want))
        test_fail(__FILE__, __LINE__, "no\n%sin\n%s", want,
                  text.data ? text.data : "");
    base_text_deinit(&text);
    ir_graph_free(g);
}

TEST(ge_arguments_become_constants)
{
    check_text("%x: f32[2, 3]", "%r = sum.dim_IntList(%x, dim=[1])",
               "Const_0 = ge.Const([1], dtype=9, node_name=\"Const\")"
               "  # i64[1]\n"
               "ReduceSum_0 = ge.ReduceSum(x_0, Const_0, keep_dims=False, "
               "_aten=\"sum.dim_IntList\", node_name=\"ReduceSum\")"
               "  # f32[2]\n");
}

TEST(ge_the_type_depends_on_arguments)
{
    check_text("%x: f32[2]", "%r = add.Tensor(%x, %x)", "ge.Add(x_0, x_0");
    check_text("%x: f32[2]", "%r = add.Tensor(%x, %x, alpha=2)",
               "ge.AxpyV2(x_0, x_0, Const_0");
    check_text("%x: bool[2]", "%r = bitwise_and.Tensor(%x, %x)",
               "ge.LogicalAnd(x_0, x_0");
    check_text("%x: f32[2]",
               "%r = div.Tensor_mode(%x, %x, "
               "rounding_mode=\"floor\")",
               "ge.FloorDiv(x_0, x_0");
    check_text("%x: f32[2]", "%r = mul.Tensor(%x, 2.5)",
               "ge.Muls(x_0, value=2.5");
}

TEST(ge_operands_get_one_dtype)
{
    check_text("%x: bf16[2], %y: f32[2]", "%r = add.Tensor(%x, %y)",
               "Cast_0 = ge.Cast(x_0, dst_type=0, node_name=\"Cast\")"
               "  # f32[2]\n"
               "Add_0 = ge.Add(Cast_0, y_0");
    check_text("%x: bf16[2], %y: f32[2]", "%r = lt.Tensor(%x, %y)",
               "ge.Less(Cast_0, y_0");
}

TEST(ge_symbolic_sizes_are_read_from_tensors)
{
    check_text("%x: f32[4, s0]", "%r = reshape(%x, size=[s0 * 4])",
               "Shape_0 = ge.Shape(x_0, node_name=\"Shape\")  # i64[2]\n"
               "Const_1_0 = ge.Const(1, dtype=9, node_name=\"Const_1\")"
               "  # i64[]\n"
               "Gather_0 = ge.Gather(Shape_0, Const_1_0, ");
    check_text("n: int = s0, %x: f32[4]", "%r = expand(%x, size=[s0, 4])",
               "Pack_0 = ge.Pack(n_0, Const_0, N=2");
}

TEST(ge_results_are_in_the_order_of_the_type)
{
    check_text("%x: f32[2, 3]", "%r, %i = max.dim(%x, dim=1)",
               "ArgMaxWithValue_0, ArgMaxWithValue_1 = ge.ArgMaxWithValue("
               "x_0, dimension=1, keep_dims=False");
    check_text("%x: f32[2, 3]", "%v, %i = max.dim(%x, dim=1)\n%r = neg(%v)",
               "ge.Neg(ArgMaxWithValue_1");
}

TEST(ge_computed_arguments)
{
    check_text("%x: f32[2, 3, 4]", "%r = transpose.int(%x, dim0=0, dim1=-1)",
               "ge.Const([2, 1, 0], dtype=9");
    check_text("%x: f32[5]", "%a, %b, %r = split.Tensor(%x, split_size=2)",
               "ge.Const([2, 2, 1], dtype=9");
    check_text("%x: f32[5]", "%r = mse_loss(%x, %x, reduction=2)",
               "reduction=\"sum\"");
    check_text("%x: f32[2, 3], %i: i64[2]", "%r = index.Tensor(%x, [none, %i])",
               "ge.IndexByTensor(x_0, None, i_0, indices_mask=[0, 1]");
    check_text("%x: f32[2, 3]", "%r = fill.Scalar(%x, value=7)",
               "ge.Const([2, 3], dtype=9");
}

/* What the type cannot say is kept, and what has no type has ATen's name. */
TEST(ge_nothing_is_lost)
{
    check_text("%x: f32[2]", "%r = sub.Tensor(%x, %x, alpha=3)",
               "ge.Sub(x_0, x_0, _alpha=3, ");
    check_text("%x: f32[2]", "%r = frac(%x)", "ge.Frac(x_0, _aten=\"frac\"");
    check_text("%x: f32[2]",
               "%r: f32[2] = host \"npu::my_op.default\" 0 \"why\" (%x)",
               "ge.MyOp(x_0, _host_op=\"npu::my_op.default\", "
               "_reason=\"why\"");
}

/* Of the program: attributes of scopes, the name a value is compared by. */
TEST(ge_notes_and_origins)
{
    static const air_note notes[] = {{"_user_stream_label", "s1", false},
                                     {"_op_exec_never_timeout", NULL, true}};
    static const char *const want[][4] = {
        {"key: \"_user_stream_label\"\n    value { s: \"s1\" }",
         "key: \"_op_exec_never_timeout\"\n    value { b: true }",
         "key: \"_fx_tensor_name\"\n      value { s: \"n-abs.OUTPUT.0\" }",
         "input: \"x:0\"\n  input: \"Abs:-1\"\n"},
        {"key: \"_user_stream_label\"\n    value { s: \"s1\" }",
         "key: \"_op_exec_never_timeout\"\n    value { s: \"True\" }",
         "key: \"[o]y._fx_tensor_name\"\n    value { s: \"n-abs.OUTPUT.0\" }",
         "input: \"x:0\"\n  input: \"^Abs\"\n"},
        {"ge.Abs(x_0, _aten=\"abs\", _user_stream_label=\"s1\", "
         "_op_exec_never_timeout=True, ",
         "ge.Identity(x_0, ", "", ""}};
    ir_graph *g = ir_case_body("%x: f32[2]", "%1 = abs(%x)\n"
                                             "%2 = air::after(%x, %1)\n"
                                             "%r = neg(%2)");
    ir_graph *copy = NULL;
    uint16_t first, again;
    base_text text;

    REQUIRE(g);
    CHECK_OK(ir_find_notes(g, 1, &notes[1], &first));
    CHECK_OK(ir_find_notes(g, 2, notes, &first));
    CHECK_OK(ir_find_notes(g, 2, notes, &again));
    CHECK_INT(first, 2);
    CHECK_INT(again, 2);
    ir_node_at(g, g->first)->scope.notes = first;
    CHECK_OK(
        ir_add_tag(g, ir_node_at(g, g->first)->outs[0], "n", "n-abs.OUTPUT.0"));
    CHECK_OK(ir_graph_clone(g, &copy));
    for (int form = 0; form < 3; form++) {
        base_text_init(&text, g->alloc);
        CHECK_OK(ge_print(copy, (air_ge_form)form, &text));
        for (int i = 0; i < 4; i++)
            CHECK(text.data && strstr(text.data, want[form][i]));
        base_text_deinit(&text);
    }
    ir_graph_free(copy);
    ir_graph_free(g);
}

TEST(ge_as_the_text_of_an_onnx_model)
{
    static const char *const want[] = {
        "graph {\n  name: \"f\"\n  node {\n    output: \"x:0\"\n",
        "    input: \"x:0\"\n    input: \"Const:0\"\n"
        "    output: \"ReduceSum:0\"\n    name: \"ReduceSum\"\n"
        "    op_type: \"ReduceSum\"\n    domain: \"ge\"\n"
        "    attribute { name: \"keep_dims\" i: 0 type: INT }\n",
        "attribute { name: \"value\" ints: 0 ints: 2 type: INTS }\n",
        "name: \"Muls\"\n    op_type: \"Muls\"\n    domain: \"ge\"\n"
        "    attribute { name: \"value\" f: 2.5 type: FLOAT }\n",
        "    output: \"OnesLike:0\"\n",
        "name: \"x:0\" type { tensor_type { elem_type: 16 shape { dim { "
        "dim_value: -1 } dim { dim_value: 3 } dim { dim_value: 2 } } } } }\n",
        "name: \"ReduceSum:0\" type { tensor_type { elem_type: 16 shape { dim "
        "{ dim_value: 3 } } } } }\n",
    };
    ir_graph *g = ir_case_body("%x: bf16[s0, 3, 2]",
                               "%1 = sum.dim_IntList(%x, dim=[0, 2])\n"
                               "%2 = ones_like(%1)\n"
                               "%r = mul.Tensor(%1, 2.5)");
    base_text text;

    REQUIRE(g);
    base_text_init(&text, g->alloc);
    CHECK_OK(ge_print(g, AIR_GE_ONNX, &text));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!text.data || !strstr(text.data, want[i]))
            test_fail(__FILE__, __LINE__, "no\n%sin\n%s", want[i],
                      text.data ? text.data : "");
    base_text_deinit(&text);
    ir_graph_free(g);
}

static air_status
note_and_clone(const air_alloc *alloc, void *user)
{
    static const air_note notes[] = {{"key", "text", false}};
    const char *source = user;
    ir_graph *g = NULL, *copy = NULL;
    uint16_t found = 0;
    air_status status = ir_parse(alloc, source, strlen(source), &g);

    if (status == AIR_OK)
        status = ir_find_notes(g, 1, notes, &found);
    if (status == AIR_OK)
        status = ir_graph_clone(g, &copy);
    ir_graph_free(copy);
    ir_graph_free(g);
    return status;
}

TEST(ge_notes_out_of_memory)
{
    static char source[] = "graph f(%x: f32[2]) {\n  return %x\n}\n";
    TEST_OOM(note_and_clone, source);
}

/* After the passes, which write into what copy_ wrote to: through a view, and
 * as a copy of what others read too. */
TEST(ge_inputs_that_passes_write_to)
{
    static const char *const body = "%1 = add.Tensor(%c, 1)\n"
                                    "%2 = copy(%c, %1) inplace\n"
                                    "%3 = slice.Tensor(%d, start=0, end=1)\n"
                                    "%r = add.Tensor(%3, %1) inplace";

    check_text("%c: f32[1, 3], %d: f32[2, 3], %e: f32[3]", body,
               "c_0 = ge.RefData(index=0, ");
    check_text("%c: f32[1, 3], %d: f32[2, 3], %e: f32[3]", body,
               "d_0 = ge.RefData(index=1, ");
    check_text("%c: f32[1, 3], %d: f32[2, 3], %e: f32[3]", body,
               "e_0 = ge.Data(index=2, ");
    check_text("%c: f32[1, 3], %d: f32[2, 3], %e: f32[3]", body,
               "Assign_0 = ge.Assign(c_0, Add_0, ");
}

TEST(ge_forms_of_the_text)
{
    static const char *const want[] = {
        "op {\n  name: \"c\"\n  type: \"RefData\"\n",
        "node {\n  name: \"Assign\"\n  op: \"Assign\"\n"
        "  input: \"c:0\"\n  input: \"AxpyV2:0\"\n",
        "Assign_0 = ge.Assign(c_0, AxpyV2_0, "};
    ir_graph *g = ir_case_body("%x: bf16[s0, 3], %c: f32[s0, 3]",
                               "%1 = add.Tensor(%x, %c, alpha=2)\n"
                               "%r = copy_(%c, %1)");
    base_text text;

    REQUIRE(g);
    for (int form = 0; form < 3; form++) {
        base_text_init(&text, g->alloc);
        CHECK_OK(ge_print(g, (air_ge_form)form, &text));
        CHECK(text.data && strstr(text.data, want[form]));
        base_text_deinit(&text);
    }
    ir_graph_free(g);
}

static air_status
print_all(const air_alloc *alloc, void *user)
{
    ir_graph *g = NULL;
    base_text text;
    const char *source = user;
    air_status status = ir_parse(alloc, source, strlen(source), &g);

    base_text_init(&text, alloc);
    if (status == AIR_OK)
        status = ge_print(g, AIR_GE_TXT, &text);
    if (status == AIR_OK)
        CHECK(text.len > 500);
    base_text_deinit(&text);
    ir_graph_free(g);
    return status;
}

TEST(ge_out_of_memory)
{
    static char source[] =
        "graph f(%x: bf16[s0, 3], %c: f32[s0, 3]) {\n"
        "  %1: f32[s0, 3] = add.Tensor(%x, %c, alpha=2)\n"
        "  %2: f32[s0, 3, 1] = reshape(%1, size=[s0, 3, 1])\n"
        "  return %2\n}\n";
    TEST_OOM(print_all, source);
}
