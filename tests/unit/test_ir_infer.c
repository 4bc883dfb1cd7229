/* test_ir_infer.c: dtypes and sizes of results. tests/python/test_infer.py
 * compares them with torch; here is what that cannot reach. */
#include "ir_case.h"

typedef struct {
    const char *header, *op, *want;
} inference;

static void
check_all(const inference *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strstr(ir_case_infer(rows[i].header, rows[i].op), rows[i].want))
            test_fail(__FILE__, __LINE__, "%s: %s, not %s", rows[i].op,
                      ir_case_infer(rows[i].header, rows[i].op), rows[i].want);
}
#define CHECK_ALL(rows) check_all(rows, sizeof rows / sizeof *(rows))

TEST(infer_promotion)
{
    static const inference rows[] = {
        {"%a: i32[2], %b: i8[2]", "add.Tensor(%a, %b)", "i32[2]"},
        {"%a: u8[2], %b: i8[2]", "add.Tensor(%a, %b)", "i16[2]"},
        {"%a: bf16[2], %b: f16[2]", "add.Tensor(%a, %b)", "f32[2]"},
        {"%a: bf16[2], %b: f64[]", "add.Tensor(%a, %b)", "bf16[2]"},
        {"%a: i8[2], %b: f64[]", "add.Tensor(%a, %b)", "f64[2]"},
        {"%a: i8[2], %b: i64[]", "add.Tensor(%a, %b)", "i8[2]"},
        {"%a: bool[2], %b: i64[]", "add.Tensor(%a, %b)", "i64[2]"},
        {"%a: i8[2]", "add.Tensor(%a, 1)", "i8[2]"},
        {"%a: i8[2]", "add.Tensor(%a, 1.0)", "f32[2]"},
        {"%a: bool[2]", "add.Tensor(%a, 1)", "i64[2]"},
        {"%a: f16[]", "mul.Tensor(%a, 2.5)", "f16[]"},
        {"%a: i64[2]", "div.Tensor(%a, 2)", "f32[2]"},
        {"%a: i64[2]", "div.Tensor_mode(%a, 2, rounding_mode=\"floor\")",
         "i64[2]"},
        {"%a: i64[2]", "div.Tensor_mode(%a, 2)", "f32[2]"},
        {"%a: i64[2], %b: f16[2]", "lt.Tensor(%a, %b)", "bool[2]"},
        {"%c: bool[2], %b: f16[2]", "where.ScalarSelf(%c, b=1.0, c=%b)",
         "f16[2]"},
        {"%a: i32[2]", "masked_fill.Scalar(%a, %a, value=1.5)", "i32[2]"},
        {"%a: i32[2]", "clamp(%a, min=0.5)", "f32[2]"},
        {"%a: u8[2]", "sum(%a)", "i64[]"},
        {"%a: bf16[2]", "sum(%a, dtype=f64)", "f64[]"},
        {"%a: u8[2]", "any(%a)", "u8[]"},
        {"%a: f32[2]", "all(%a)", "bool[]"},
        {"%a: i32[2]", "mean(%a)", "dtype"},
        {"%a: i32[2]", "exp(%a)", "f32[2]"},
        {"", "full(size=[2], fill_value=1)", "i64[2]"},
        {"", "full(size=[2], fill_value=true)", "bool[2]"},
        {"", "zeros(size=[2])", "f32[2]"},
        {"%a: u8[2]", "zeros_like(%a)", "u8[2]"},
        {"", "arange(5)", "i64[5]"},
        {"", "arange.start_step(5, 0, -2)", "i64[3]"},
        {"", "arange.start_step(0.0, 1.0, 0.3)", "f32[4]"},
    };
    CHECK_ALL(rows);
}

TEST(infer_dtypes_that_must_agree)
{
    static const inference rows[] = {
        {"%a: f64[2, 3], %b: f32[3, 2]", "mm(%a, %b)", "a is f64, b is f32"},
        {"%a: bf16[2], %b: f32[2, 3], %c: f32[3, 2]", "addmm(%a, %b, %c)",
         "a is bf16, b is f32"},
        {"%a: f32[2, 3, 4, 4], %w: bf16[1, 3, 2, 2]",
         "convolution(%a, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)",
         "weight is bf16"},
        {"%a: bf16[2, 3], %w: f32[3]",
         "rms_norm(%a, normalized_shape=[3], weight=%w)", "bf16[2, 3]"},
        {"%a: f32[2, 3], %w: bf16[3]",
         "rms_norm(%a, normalized_shape=[3], weight=%w)", "weight is bf16"},
        {"%a: f32[2, 3], %b: f64[2, 3]", "heaviside(%a, %b)", "b is f64"},
        {"%a: f32[4], %i: bool[4]", "index_fill.int_Scalar(%a, 0, %i, 1.0)",
         "index is bool"},
        {"%a: f32[4], %i: i32[4]", "gather(%a, 0, %i)", "f32[4]"},
        {"%q: bf16[1, 2, 4], %m: bool[2, 2]",
         "scaled_dot_product_attention(%q, %q, %q, %m)", "bf16[1, 2, 4]"},
    };
    CHECK_ALL(rows);
}

TEST(infer_symbolic_sizes)
{
    static const inference rows[] = {
        {"%a: f32[s, 4], %b: f32[4]", "add.Tensor(%a, %b)", "f32[s, 4]"},
        {"%a: f32[s, 4], %b: f32[s, 1]", "add.Tensor(%a, %b)", "f32[s, 4]"},
        {"%a: f32[s, 4], %b: f32[t, 4]", "add.Tensor(%a, %b)", "f32[s, 4]"},
        {"%a: f32[s], %b: f32[4]", "add.Tensor(%a, %b)", "f32[4]"},
        {"%a: f32[s, 12]", "view(%a, size=[-1, 4])", "f32[3*s, 4]"},
        {"%a: f32[s, 12]", "view(%a, size=[s, -1, 2])", "f32[s, 6, 2]"},
        {"%a: f32[s, t]", "view(%a, size=[s*t])", "f32[s*t]"},
        {"%a: f32[s, 12]", "slice.Tensor(%a, dim=1, start=-5)", "f32[s, 5]"},
        {"%a: f32[s]", "slice.Tensor(%a, start=1)", "f32[s - 1]"},
        {"%a: f32[s]", "slice.Tensor(%a, end=9223372036854775807)", "f32[s]"},
        {"%a: f32[s]", "slice.Tensor(%a, step=2)", "f32[(s + 1)//2]"},
        {"%a: f32[s, 3], %b: f32[t, 3]", "cat([%a, %b])", "f32[s + t, 3]"},
        {"%a: f32[s, 8], t: int", "constant_pad_nd(%a, pad=[1, -2, 0, t])",
         "f32[s + t, 7]"},
        {"%a: f32[s, 8]", "unfold(%a, dim=1, size=4, step=2)", "f32[s, 3, 4]"},
        {"%a: f32[2, s, 4]", "sum.dim_IntList(%a, dim=[-1], keepdim=true)",
         "f32[2, s, 1]"},
        {"%a: f32[s, 12, t, 5]", "pixel_shuffle(%a, upscale_factor=2)",
         "f32[s, 3, 2*t, 10]"},
        {"%a: f32[s, 3, 4, 6]", "pixel_unshuffle(%a, downscale_factor=2)",
         "f32[s, 12, 2, 3]"},
        {"%a: f32[7, 4, 4]", "pixel_shuffle(%a, upscale_factor=2)",
         "no multiple"},
        {"%a: f32[s, 3, t]", "rot90(%a, dims=[1, 2])", "f32[s, t, 3]"},
        {"%a: f32[s, 3, t]", "rot90(%a, dims=[1, 1])", "different"},
        {"%a: f32[s, 3]", "diag_embed(%a, offset=-1)", "f32[s, 4, 4]"},
        {"%a: f32[s, 3, 8, 8]",
         "im2col(%a, kernel_size=[3, 3], dilation=[1, 1], padding=[1, 1], "
         "stride=[1, 1])",
         "f32[s, 27, 64]"},
        {"%a: f32[s, 27, 64]",
         "col2im(%a, output_size=[8, 8], kernel_size=[3, 3], dilation=[1, 1], "
         "padding=[1, 1], stride=[1, 1])",
         "f32[s, 3, 8, 8]"},
        {"%a: f32[2, s, 5], %b: f32[1, 7, 5]", "_cdist_forward(%a, %b, p=2.0)",
         "f32[2, s, 7]"},
        {"%a: f32[4, s], %m: bool[4], %v: f32[]", "index_put(%a, [%m], %v)",
         "f32[4, s]"},
        {"%a: f32[4, s], %m: bool[4], %v: f32[3, s]", "index_put(%a, [%m], %v)",
         "unsupported"},
        {"%a: f32[s, 3, 8, 8], %w: f32[6, 3, 3, 3]",
         "convolution(%a, %w, stride=[2, 2], padding=[1, 1], dilation=[1, 1],"
         " transposed=false, output_padding=[0, 0], groups=1)",
         "f32[s, 6, 4, 4]"},
        {"%a: f32[s, 4], %i: i64[t, 2]", "index.Tensor(%a, [%i])",
         "f32[t, 2, 4]"},
        {"%a: f32[3, s, 4], %i: i64[7]", "index.Tensor(%a, [%i, none, %i])",
         "f32[7, s]"},
    };
    CHECK_ALL(rows);
}

TEST(infer_refusals)
{
    static const inference rows[] = {
        {"%a: f32[2], %b: f32[3]", "add.Tensor(%a, %b)", "shape"},
        {"%a: f32[2, 3], %b: f32[2, 3]", "mm(%a, %b)", "shape"},
        {"%a: f32[2]", "mm(%a, %a)", "must have 2 dims"},
        {"%a: f32[6]", "view(%a, size=[4])", "shape"},
        {"%a: f32[6]", "view(%a, size=[-1, -1])", "only one size"},
        {"%a: f32[6]", "permute(%a, dims=[1])", "out of range"},
        {"%a: f32[2, 2]", "permute(%a, dims=[0, 0])", "twice"},
        {"%a: f32[6]", "select.int(%a, dim=0, index=6)", "out of range"},
        {"%a: f32[6]", "sum.dim_IntList(%a, dim=[0, -1])", "twice"},
        {"%a: f32[6]", "expand(%a, size=[4])", "shape"},
        {"%a: f32[6]", "gelu(%a, approximate=1)", "must be a string"},
        {"%a: f32[6]", "mm(%a)", "b is missing"},
        {"%a: f32[6], %i: bool[6]", "index.Tensor(%a, [%i])", "unsupported"},
        {"%a: f32[2], %b: i32[2]", "cat([%a, %b])", "unsupported"},
        {"%a: f32[1, 1, 2, 2]",
         "max_pool2d_with_indices(%a, kernel_size=[9, 9])", "results"},
        {"%a: f32[1, 2, 2]", "avg_pool2d(%a, kernel_size=[9, 9])",
         "larger than the input"},
        {"%a: f32[1, 1, 5], %w: f32[1, 1, 2]",
         "convolution(%a, %w, none, [1152921504606846976], [0], [1], false, "
         "[0], 1)",
         "kernel, stride or padding"},
        {"%a: f32[2]", "view.dtype(%a, dtype=f64)", "unsupported"},
        {"%a: f32[3, 2]", "view_as_complex(%a)", "i64[3]"},
        {"%a: f32[3, 4]", "view_as_complex(%a)", "shape"},
        {"%a: f32[]", "view_as_complex(%a)", "no dims"},
        {"%a: f64[3, 2]", "view_as_complex(%a)", "a is f64"},
        {"%a: i64[3]", "view_as_real(%a)", "f32[3, 2]"},
        {"%a: f32[3]", "view_as_real(%a)", "not complex"},
        {"%a: i64[1, 1, 1, 1, 1, 1, 1, 1]", "view_as_real(%a)", "unsupported"},
        {"%a: i64[3, 1], %b: f32[4]", "air::complex_mul(%a, %b)", "i64[3, 4]"},
        {"%a: i64[3], %b: i64[4]", "air::complex_mul(%a, %b)", "shape"},
        {"%a: i64[3], %b: bf16[3]", "air::complex_mul(%a, %b)", "b is bf16"},
        {"%a: i64[3], %b: i64[3]", "air::complex_eq(%a, %b)", "bool[3]"},
        {"%a: i64[3]", "air::complex_abs(%a)", "f32[3]"},
        {"%a: i64[3, 4]", "air::complex_sum(%a, dim=[1])", "i64[3]"},
        {"%a: i64[3], %b: f32[3]", "complex(%a, %b)", "a is i64"},
        {"%a: f32[2], %b: f32[3]", "copy_(%a, %b)", "shape"},
        {"%a: f32[2, 8], %b: f32[3, 8, 4], %o: i32[2]",
         "_grouped_mm(%a, %b, %o)", "shape"},
        {"%a: f32[2, 8], %b: f32[3, 7, 4], %o: i32[3]",
         "_grouped_mm(%a, %b, %o)", "shape"},
        {"%a: f32[2, 8], %b: f32[3, 8, 4]", "_grouped_mm(%a, %b)",
         "and no bias"},
        {"%a: f32[2, 8], %b: f32[3, 8, 4], %o: f32[3]",
         "_grouped_mm(%a, %b, %o)", "offs is f32"},
        {"%a: f32[2, 8], %w: i8[3, 8]",
         "air::quantised_mm(%a, %w, none, none, none, 2)", "must be 8 or 4"},
        {"%a: f32[2, 8], %w: i8[3, 4]",
         "air::quantised_mm(%a, %w, none, none, none, 4)", "must be u8"},
        {"%a: i32[2, 8], %w: i8[3, 8]",
         "air::quantised_mm(%a, %w, none, none, none, 8)", "must hold floats"},
        {"%a: f32[2, 8], %w: u8[3, 8]",
         "air::quantised_mm(%a, %w, none, none, none, 4)", "shape"},
        {"%a: f32[2, 8], %w: i8[3, 8], %s: f32[3, 3]",
         "air::quantised_mm(%a, %w, %s, none, none, 8)", "do not divide"},
        {"%a: f32[2, 8], %w: i8[3, 8], %s: f32[3, 2], %z: f32[3, 1]",
         "air::quantised_mm(%a, %w, %s, %z, none, 8)", "shape"},
        {"%a: f32[2, 8], %w: i8[3, 8], %b: f32[4]",
         "air::quantised_mm(%a, %w, none, none, %b, 8)", "shape"},
        {"%a: f32[2, 8], %w: i8[3, 8], %s: bf16[3]",
         "_weight_int8pack_mm(%a, %w, %s)", "dtype of a"},
        {"%g: f32[4, 7], %i: i64[11], %n: i64[3]",
         "_embedding_bag_dense_backward(%g, %i, %i, %n, %n, 9, false, 1, none)",
         "shape"},
        {"%g: f32[4, 7], %i: i64[11], %n: i64[4]",
         "_embedding_bag_dense_backward(%g, %i, %i, %n, %n, 9, false, 2, none)",
         "maximum_indices must have 2 dims"},
        {"%g: f32[4, 7], %i: i64[11], %n: i64[4]",
         "_embedding_bag_dense_backward(%g, %i, %i, %n, %n, 9, false, 3, none)",
         "mode must be"},
        {"%a: f32[2, 3, 0, 7], %g: f32[2, 4, 20, 2]",
         "grid_sampler_2d(%a, %g, 0, 0, false)", "without an element"},
    };
    CHECK_ALL(rows);
}

TEST(infer_refusals_of_several_results)
{
    static const inference rows[] = {
        {"%a: f32[9, 7], %i: i64[11], %o: i64[4], %w: f32[]",
         "_embedding_bag(%a, %i, %o, false, 0, false, %w)",
         "per_sample_weights must have 1 dims"},
        {"%a: f32[9, 7], %i: i64[11], %o: i64[0]",
         "_embedding_bag(%a, %i, %o, false, 0, false, none, true)",
         "needs an offset"},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_graph *g;
        snprintf(text, sizeof text,
                 "graph f(%s) {\n%%r, %%s, %%t, %%u = %s\nreturn %%r\n}\n",
                 rows[i].header, rows[i].op);
        CHECK_FAILS(ir_parse(&base_libc_alloc, text, strlen(text), &g), SHAPE);
        CHECK(strstr(air_last_error()->message, rows[i].want) != NULL);
    }
}

/* Sizes taken for equal are checked when they are known. */
TEST(infer_remembers_equal_sizes)
{
    ir_graph *g =
        ir_case_body("%a: f32[s], %b: f32[4]", "%r = add.Tensor(%a, %b)");
    int64_t values[64], s = 4;
    REQUIRE(g && g->dims.count <= 64);
    CHECK_OK(ir_dim_eval_all(g, &s, values));
    s = 3;
    CHECK_FAILS(ir_dim_eval_all(g, &s, values), SHAPE);
    ir_graph_free(g);
}

TEST(infer_compute_dtype)
{
    ir_graph *g = ir_case_body(
        "%i: i32[2], %h: bf16[2]",
        "%c = lt.Tensor(%i, %h)\n%l = logical_and(%i, %h)\n"
        "%n = isnan(%h)\n%t = _to_copy(%h, dtype=i64)\n%d = div.Tensor(%i, 2)"
        "\n%f = full(size=[2], fill_value=3, dtype=bf16)");
    REQUIRE(g);
    const char *names[] = {"c", "l", "n", "t", "d", "f"};
    air_dtype want[] = {AIR_BF16, AIR_BOOL, AIR_BF16,
                        AIR_BF16, AIR_F32,  AIR_BF16};
    for (int i = 0; i < 6; i++) {
        const ir_value *v = ir_case_value(g, names[i]);
        CHECK_INT(ir_compute_dtype(g, ir_node_at(g, v->node)), want[i]);
    }
    ir_graph_free(g);
}

/* The type of result `which` of an op with the results %r, %s, %t. */
typedef struct {
    const char *header, *results, *op, *which, *want;
} results;

TEST(infer_several_results)
{
    static const results rows[] = {
        {"%q: bf16[b, 8, t, 16], %k: bf16[b, 2, u, 16]", "%r, %s",
         "_scaled_dot_product_flash_attention_for_cpu(%q, %k, %k)", "r",
         "bf16[b, 8, t, 16]"},
        {"%q: bf16[b, 8, t, 16], %k: bf16[b, 2, u, 16]", "%r, %s",
         "_scaled_dot_product_flash_attention_for_cpu(%q, %k, %k)", "s",
         "f32[b, 8, t]"},
        {"%q: f16[b, 8, t, 16], %k: f16[b, 2, u, 16]", "%r, %s",
         "air::attention(%q, %k, %k, none, 0.0, false, enable_gqa=true)", "s",
         "f32[b, 8, t, 1]"},
        {"%q: f32[b, 8, t, 16], %k: f32[b, 2, u, 16], %l: f32[b, 8, t]",
         "%r, %s, %t",
         "_scaled_dot_product_flash_attention_for_cpu_backward(%q, %q, %k, "
         "%k, %q, %l, 0.0, true)",
         "t", "f32[b, 2, u, 16]"},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_graph *g;
        snprintf(text, sizeof text, "graph f(%s) {\n%s = %s\nreturn %%r\n}\n",
                 rows[i].header, rows[i].results, rows[i].op);
        CHECK_OK(ir_parse(&base_libc_alloc, text, strlen(text), &g));
        CHECK_STR(ir_case_type(g, rows[i].which), rows[i].want);
        ir_graph_free(g);
    }
}

TEST(infer_picks)
{
    static const inference rows[] = {
        {"%a: f32[3,4]", "median(%a)", "f32[]"},
        {"%s: f32[9], %a: f32[3,4]", "searchsorted.Tensor(%s, %a)",
         "i64[3, 4]"},
        {"%s: f32[3,9], %a: f32[3,4]",
         "searchsorted.Tensor(%s, %a, out_int32=true)", "i32[3, 4]"},
        {"%s: f32[2,9], %a: f32[3,4]", "searchsorted.Tensor(%s, %a)", "sizes"},
        {"%s: f32[2,2,9], %a: f32[3,4]", "searchsorted.Tensor(%s, %a)",
         "3 dims for values of 2"},
        {"%s: f32[9], %a: f64[4]", "searchsorted.Tensor(%s, %a)", "is f64"},
        {"%s: f32[9], %a: f32[4], %o: i64[8]",
         "searchsorted.Tensor(%s, %a, sorter=%o)", "sizes"},
        {"%a: f32[9]", "bucketize.Scalar(2.0, %a)", "i64[]"},
        {"%a: f32[9]", "histc(%a, 0)", "above 0"},
        {"%a: i32[9]", "histc(%a, 4)", "integers"},
        {"%a: f32[3], %m: bool[2,1], %s: f32[9]", "masked_scatter(%a, %m, %s)",
         "f32[2, 3]"},
        {"%a: f32[3], %m: u8[3], %s: f32[9]", "masked_scatter(%a, %m, %s)",
         "must be bool"},
        {"%a: f32[3,4], %i: i64[2,2]", "take(%a, %i)", "f32[2, 2]"},
        {"%a: f32[3,4], %i: i64[2,2], %s: f32[3]", "put(%a, %i, %s)", "sizes"},
        {"%g: f32[3,2,4]",
         "unfold_backward(%g, size=[7,2], dim=0, window=4,"
         " step=0)",
         "step"},
        {"%a: f32[2,3], %b: f32[2,3]", "linalg_cross(%a, %b, dim=0)",
         "needs 3"},
        {"%a: f32[2,2], %x: f32[5,2,3], %y: f32[5,4,2]", "addbmm(%a, %x, %y)",
         "sizes"},
        {"%g: f32[2,3,4], %a: f32[2,9,9], %i: i64[2,3,5]",
         "adaptive_max_pool2d_backward(%g, %a, %i)", "sizes"},
    };
    CHECK_ALL(rows);
}
