/* CUDA C of regions: what is shared, what is refused, failing memory. What the
 * text computes is for tests/cuda. */
#include <string.h>

#include "codegen/codegen.h"
#include "region_case.h"
#include "test.h"

/* Softmax of rows x cols. */
static void
softmax(region_case *c, int64_t rows, int64_t cols)
{
    case_init(c, AIR_WALK_INNER, 2, (int64_t[]){rows, cols}, 1);
    int x = case_dense(c, AIR_F32, 0, false);
    int kept = case_scratch(c, AIR_F32);
    int y = case_dense(c, AIR_F32, 0, false);
    case_phase(c, AIR_PHASE_ROW);
    int most = case_reduce(c, AIR_REDUCE_MAX, case_load(c, AIR_LANE_F32, x));
    case_phase(c, AIR_PHASE_ROW);
    int d = case_op(c, AIR_RG_SUB, AIR_LANE_F32, case_load(c, AIR_LANE_F32, x),
                    case_scalar(c, AIR_LANE_F32, most), -1);
    int e = case_op(c, AIR_RG_EXP, AIR_LANE_F32, d, -1, -1);
    case_store(c, kept, e);
    int sum = case_reduce(c, AIR_REDUCE_SUM, e);
    case_phase(c, AIR_PHASE_ROW);
    int q =
        case_op(c, AIR_RG_DIV, AIR_LANE_F32, case_load(c, AIR_LANE_F32, kept),
                case_scalar(c, AIR_LANE_F32, sum), -1);
    case_store(c, y, q);
}

static bool
make(const region_case *c, const char *isa, air_code *out)
{
    const char *reason;
    return CHECK_OK(
        codegen_region(&base_libc_alloc, &c->rg, isa, out, &reason));
}

static bool
same_text(const region_case *a, const region_case *b)
{
    air_code x, y;
    if (!make(a, "sm_90a", &x))
        return false;
    bool same = make(b, "sm_90a", &y) &&
                strcmp((const char *)x.bytes, (const char *)y.bytes) == 0;
    codegen_free(&base_libc_alloc, &x);
    codegen_free(&base_libc_alloc, &y);
    return same;
}

TEST(cuda_text_serves_the_sizes_of_a_class)
{
    region_case a, b, c;
    softmax(&a, 300, 1000);
    softmax(&b, 500, 900);
    softmax(&c, 300, 20);
    CHECK(same_text(&a, &b));
    CHECK(!same_text(&a, &c));
    case_free(&a);
    case_free(&b);
    case_free(&c);
}

TEST(cuda_grid_follows_the_device)
{
    region_case c;
    air_code small, large;
    softmax(&c, 20000, 100);
    if (make(&c, "sm_90a:2", &small)) {
        CHECK_INT(small.launches[0].grid[0], 32);
        codegen_free(&base_libc_alloc, &small);
    }
    if (make(&c, "sm_90a:132", &large)) {
        CHECK_INT(large.nlaunches, 1);
        CHECK_INT(large.launches[0].grid[0], 2112);
        CHECK_INT(large.value_bytes % 8, 0);
        codegen_free(&base_libc_alloc, &large);
    }
    case_free(&c);
}

TEST(cuda_rows_lie_where_a_block_has_room)
{
    region_case c;
    air_code code;
    softmax(&c, 300, 34000);
    if (make(&c, "sm_80:108:166912", &code)) {
        CHECK_INT(code.launches[0].shared, 34000 * sizeof(float));
        codegen_free(&base_libc_alloc, &code);
    }
    if (make(&c, "sm_89:132:101376", &code)) {
        CHECK_INT(code.launches[0].shared, 0);
        CHECK(code.workspace > 0);
        codegen_free(&base_libc_alloc, &code);
    }
    case_free(&c);
}

TEST(cuda_rows_longer_than_a_block_take_a_cluster)
{
    region_case c;
    air_code code;
    softmax(&c, 300, 34000);
    if (make(&c, "sm_90a:132:232448", &code)) {
        CHECK_INT(code.nlaunches, 1);
        CHECK_INT(code.launches[0].shared, 0);
        CHECK_INT(code.launches[0].grid[0], 300 * 4);
        CHECK(strstr((const char *)code.bytes, "__cluster_dims__(4"));
        codegen_free(&base_libc_alloc, &code);
    }
    case_free(&c);
}

TEST(cuda_long_rows_take_several_launches)
{
    region_case c;
    air_code code;
    softmax(&c, 2, 500000);
    if (make(&c, "sm_90a:132", &code)) {
        CHECK_INT(code.nlaunches, 5);
        CHECK(code.workspace > 2 * 500000 * sizeof(float));
        CHECK(code.launches[0].grid[0] > 132);
        codegen_free(&base_libc_alloc, &code);
    }
    case_free(&c);
}

TEST(cuda_nothing_to_do_is_no_launch)
{
    region_case c;
    air_code code;
    softmax(&c, 0, 8);
    if (make(&c, "sm_90a", &code)) {
        CHECK_INT(code.nlaunches, 0);
        codegen_free(&base_libc_alloc, &code);
    }
    case_free(&c);
}

TEST(cuda_refuses_nodes_of_another_phase)
{
    region_case c;
    air_code code;
    const char *reason;
    softmax(&c, 4, 8);
    c.nodes[c.rg.phases[1].begin].a = 0;
    c.nodes[c.rg.phases[1].begin].op = AIR_RG_NEG;
    CHECK(codegen_region(&base_libc_alloc, &c.rg, "sm_90a", &code, &reason) ==
          AIR_ERROR_UNSUPPORTED);
    CHECK(reason != NULL && strstr(reason, "phase") != NULL);
    CHECK(code.bytes == NULL);
    case_free(&c);
}

static air_status
print(const air_alloc *alloc, void *user)
{
    const region_case *c = user;
    air_code code;
    const char *reason;
    AIR_TRY(codegen_region(alloc, &c->rg, "sm_90a", &code, &reason));
    codegen_free(alloc, &code);
    return AIR_OK;
}

TEST(cuda_text_out_of_memory)
{
    region_case c;
    softmax(&c, 2, 500000);
    TEST_OOM(print, &c);
    case_free(&c);
}
