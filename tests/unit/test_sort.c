/* test_sort.c: the orders of units on graphs drawn by hand and at random. */
#include "exec/exec.h"
#include "test.h"

/* 0 and 1 feed 2 and 3; 4 needs both, 5 only 1. */
static uint32_t drawn[] = {0, 2, 0, 3, 1, 3, 1, 5, 2, 4, 3, 4};

static bool
sort(air_order order, size_t n, const uint32_t *pairs, size_t npairs,
     uint32_t *out)
{
    uint32_t copy[256];
    exec_edges edges = {copy, npairs};
    base_arena scratch;

    if (npairs > 0)
        memcpy(copy, pairs, 2 * npairs * sizeof *copy);
    base_arena_init(&scratch, &base_libc_alloc);
    air_status status = exec_sort(order, "f", n, &edges, &scratch, out);
    base_arena_deinit(&scratch);
    return status == AIR_OK;
}

TEST(sort_orders)
{
    static const struct {
        air_order order;
        uint32_t want[6];
    } rows[] = {
        {AIR_ORDER_BFS, {0, 1, 2, 3, 5, 4}},
        {AIR_ORDER_DFS, {0, 2, 1, 3, 4, 5}},
        {AIR_ORDER_RDFS, {0, 2, 1, 3, 4, 5}},
    };
    uint32_t out[6];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REQUIRE(sort(rows[i].order, 6, drawn, 6, out));
        for (int k = 0; k < 6; k++)
            CHECK_INT(out[k], rows[i].want[k]);
    }
}

/* Two results: by depth all of the first input comes first, from the ends what
 * the first result needs. */
TEST(sort_depth_and_need_differ)
{
    static const uint32_t pairs[] = {0, 2, 1, 2, 0, 3, 0, 4};
    static const uint32_t depth[] = {0, 3, 4, 1, 2}, need[] = {0, 1, 2, 3, 4};
    uint32_t out[5];

    REQUIRE(sort(AIR_ORDER_DFS, 5, pairs, 4, out));
    for (int k = 0; k < 5; k++)
        CHECK_INT(out[k], depth[k]);
    REQUIRE(sort(AIR_ORDER_RDFS, 5, pairs, 4, out));
    for (int k = 0; k < 5; k++)
        CHECK_INT(out[k], need[k]);
}

TEST(sort_nothing_and_circles)
{
    static const uint32_t circle[] = {0, 1, 1, 2, 2, 1, 2, 3};
    uint32_t out[4];

    for (int order = AIR_ORDER_BFS; order < AIR_ORDER_COUNT; order++) {
        CHECK(sort((air_order)order, 0, NULL, 0, out));
        CHECK(!sort((air_order)order, 4, circle, 4, out));
    }
}

static void
check_sorted(size_t n, const uint32_t *pairs, size_t npairs,
             const uint32_t *out)
{
    uint32_t at[40];
    uint64_t seen = 0;

    for (size_t i = 0; i < n; i++) {
        at[out[i]] = (uint32_t)i;
        seen |= (uint64_t)1 << out[i];
    }
    CHECK(seen == ((uint64_t)1 << n) - 1);
    for (size_t i = 0; i < npairs; i++)
        CHECK(at[pairs[2 * i]] < at[pairs[2 * i + 1]]);
}

/* Edges lead from lower to higher numbers after a shuffle of the names. */
TEST(sort_at_random)
{
    uint64_t state = 7;

    for (int round = 0; round < 200; round++) {
        uint32_t pairs[160], out[40];
        const size_t n = 2 + (size_t)round % 38, count = 80;
        for (size_t i = 0; i < count; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t a = (uint32_t)(state >> 33) % (uint32_t)n;
            uint32_t b = (uint32_t)(state >> 45) % (uint32_t)n;
            if (a == b)
                b = (b + 1) % (uint32_t)n;
            const bool up = (a * 7 + 3) % 41 < (b * 7 + 3) % 41;
            pairs[2 * i] = up ? a : b;
            pairs[2 * i + 1] = up ? b : a;
        }
        for (int order = AIR_ORDER_BFS; order < AIR_ORDER_COUNT; order++)
            if (CHECK(sort((air_order)order, n, pairs, count, out)))
                check_sorted(n, pairs, count, out);
    }
}
