/* test_ir_view.c: layouts of views against what the ops mean. Each case names
 * the element of a [2, 3, 4] tensor (element i is number i) that the view's
 * elements must be, in order. */
#include "ir_case.h"

static int64_t
element(const ir_layout *l, int64_t index)
{
    int64_t at = l->offset;
    for (int i = l->rank - 1; i >= 0; i--) {
        at += index % l->dims[i] * l->strides[i];
        index /= l->dims[i];
    }
    return at;
}

static ir_layout
dense(const ir_graph *g, const ir_value *v, const int64_t *dims)
{
    ir_layout l = {.rank = v->rank};
    int64_t stride = 1;
    (void)g;
    for (int i = v->rank - 1; i >= 0; i--) {
        l.dims[i] = dims[v->dims[i].id];
        l.strides[i] = stride;
        stride *= l.dims[i];
    }
    return l;
}

/* Lays out each node on the one before; false: a copy is needed. */
static bool
lay_out(const ir_graph *g, const int64_t *dims, ir_layout *l)
{
    bool copy = false;

    *l = dense(g, ir_val(g, g->inputs.data[0].value), dims);
    IR_FOR_EACH(g, id)
    {
        ir_layout next;
        if (!CHECK_OK(
                ir_view_layout(g, ir_node_at(g, id), dims, l, &next, &copy)) ||
            copy)
            return false;
        *l = next;
    }
    return true;
}

static void
check_view(const char *body, int count, const int *want)
{
    ir_graph *g = ir_case_body("%x: f32[s, 3, 4]", body);
    int64_t s = 2, dims[64];
    ir_layout l;

    REQUIRE(g && g->dims.count <= 64);
    REQUIRE_OK(ir_dim_eval_all(g, &s, dims));
    if (CHECK(lay_out(g, dims, &l)))
        for (int i = 0; i < count; i++)
            if (element(&l, i) != want[i])
                test_fail(__FILE__, __LINE__, "%s: element %d is %d, not %d",
                          body, i, (int)element(&l, i), want[i]);
    ir_graph_free(g);
}
#define CHECK_VIEW(body, ...)                                  \
    check_view(body, sizeof(int[]){__VA_ARGS__} / sizeof(int), \
               (int[]){__VA_ARGS__})

TEST(view_layouts)
{
    CHECK_VIEW("%v = permute(%x, dims=[2, 0, -2])", 0, 4, 8, 12, 16, 20, 1);
    CHECK_VIEW("%v = transpose.int(%x, dim0=-1, dim1=0)", 0, 12, 4, 16, 8);
    CHECK_VIEW("%v = select.int(%x, dim=1, index=-1)", 8, 9, 10, 11, 20);
    CHECK_VIEW("%v = slice.Tensor(%x, dim=2, start=1, end=-1)", 1, 2, 5, 6);
    CHECK_VIEW("%v = slice.Tensor(%x, dim=2, step=3)", 0, 3, 4, 7);
    CHECK_VIEW("%v = unsqueeze(%x, dim=-1)", 0, 1, 2, 3);
    CHECK_VIEW("%v = view(%x, size=[6, -1])", 0, 1, 2, 3, 4);
    CHECK_VIEW("%v = diagonal(%x, offset=1, dim1=1, dim2=2)", 1, 6, 11, 13);
    CHECK_VIEW("%v = diagonal(%x, offset=-1, dim1=1, dim2=2)", 4, 9, 16);
    CHECK_VIEW("%v = unfold(%x, dim=2, size=2, step=2)", 0, 1, 2, 3, 4, 5);
    CHECK_VIEW("%v = as_strided(%x, size=[2, 2], stride=[1, 5], "
               "storage_offset=3)",
               3, 8, 4, 9);
    CHECK_VIEW("%v = view.dtype(%x, dtype=i32)", 0, 1, 2);
}

/* Elements of i64 are counted in pairs. */
TEST(view_of_pairs)
{
    CHECK_VIEW("%a = view(%x, size=[s, 3, 2, 2])\n%v = view_as_complex(%a)", 0,
               1, 2, 3, 4);
    CHECK_VIEW("%a = view(%x, size=[s, 3, 2, 2])\n"
               "%b = view_as_complex(%a)\n"
               "%c = select.int(%b, dim=2, index=1)\n%v = view_as_real(%c)",
               2, 3, 6, 7, 10, 11, 14, 15);
    CHECK_VIEW("%a = slice.Tensor(%x, dim=2, start=2)\n"
               "%v = view_as_complex(%a)",
               1, 3, 5, 7);
}

TEST(view_chains)
{
    CHECK_VIEW("%a = select.int(%x, dim=2, index=1)\n"
               "%b = unsqueeze(%a, dim=0)\n%c = expand(%b, size=[2, -1, 3])",
               1, 5, 9, 13, 17, 21, 1, 5);
    CHECK_VIEW("%a = slice.Tensor(%x, dim=1, start=1, end=2)\n"
               "%b = squeeze.dim(%a, dim=1)\n%c = t(%b)",
               4, 16, 5, 17);
    CHECK_VIEW("%a = permute(%x, dims=[1, 0, 2])\n"
               "%b = view(%a, size=[3, 2, 2, 2])",
               0, 1, 2, 3, 12, 13);
    CHECK_VIEW("%a = slice.Tensor(%x, dim=1, start=1)\n"
               "%b = view(%a, size=[s, 8])",
               4, 5, 6, 7, 8, 9, 10, 11, 16);
}

static void
check_needs_copy(const char *body)
{
    ir_graph *g = ir_case_body("%x: f32[2, 3, 4]", body);
    int64_t dims[64];
    ir_layout l;
    REQUIRE(g && g->dims.count <= 64);
    REQUIRE_OK(ir_dim_eval_all(g, NULL, dims));
    CHECK(!lay_out(g, dims, &l));
    ir_graph_free(g);
}

TEST(view_that_needs_a_copy)
{
    check_needs_copy("%a = permute(%x, dims=[1, 0, 2])\n"
                     "%b = view(%a, size=[6, 4])");
}

/* Pairs that begin at an odd element, and those whose parts are apart. */
TEST(view_of_pairs_that_needs_a_copy)
{
    check_needs_copy("%a = slice.Tensor(%x, dim=2, start=1, end=3)\n"
                     "%v = view_as_complex(%a)");
    check_needs_copy("%a = slice.Tensor(%x, dim=2, step=2)\n"
                     "%v = view_as_complex(%a)");
}

/* torch gives an empty tensor any strides; ours must not fail. */
TEST(view_of_nothing)
{
    ir_graph *g = ir_case_body("%x: f32[0, 3]", "%b = view(%x, size=[3, 0])");
    int64_t dims[64];
    ir_layout l;
    REQUIRE(g && g->dims.count <= 64);
    REQUIRE_OK(ir_dim_eval_all(g, NULL, dims));
    CHECK(lay_out(g, dims, &l));
    ir_graph_free(g);
}

TEST(view_index_known_only_at_run_time)
{
    ir_graph *g = ir_case_body("%x: f32[3], n: int",
                               "%b = select.int(%x, dim=0, index=n)");
    int64_t n = 3, dims[64];
    ir_layout in, out;
    bool copy;
    REQUIRE(g && g->dims.count <= 64);
    REQUIRE_OK(ir_dim_eval_all(g, &n, dims));
    in = dense(g, ir_val(g, g->inputs.data[0].value), dims);
    CHECK_FAILS(
        ir_view_layout(g, ir_node_at(g, g->first), dims, &in, &out, &copy),
        ARGUMENT);
    ir_graph_free(g);
}
