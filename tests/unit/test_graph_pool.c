/* test_graph_pool.c: segments and chunks. */
#include "driver/driver.h"
#include "exec/exec.h"
#include "exec/graph_pool.h"

#include "test.h"

typedef struct {
    air_context *ctx;
    air_graph_pool *pool;
} fixture;

static bool
setup(fixture *f, const air_alloc *alloc)
{
    const air_options o = {.driver = "ref", .threads = 1, .alloc = alloc};

    *f = (fixture){0};
    return CHECK_OK(air_context_create(&o, &f->ctx)) &&
           CHECK_OK(air_graph_pool_create(f->ctx, &f->pool));
}

static void
teardown(fixture *f)
{
    air_graph_pool_release(f->pool);
    air_context_destroy(f->ctx);
}

static air_graph_pool_stats
stats_of(const fixture *f)
{
    air_graph_pool_stats stats;

    air_graph_pool_get_stats(f->pool, &stats);
    return stats;
}

enum { KB = 1024 };

TEST(graph_pool_cuts_and_joins)
{
    exec_block *a, *b, *c, *all;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    REQUIRE_OK(exec_graph_pool_get(f.pool, 300 * KB, false, &all));
    exec_graph_pool_expect(f.pool, 300 * KB, 1);
    exec_block_release(all);
    CHECK_INT(stats_of(&f).mapped_bytes, 300 * KB);
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, false, &a));
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB - 63, false, &b));
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, false, &c));
    CHECK_INT(stats_of(&f).mapped_bytes, 300 * KB);
    CHECK_INT(stats_of(&f).live_bytes, 300 * KB);
    CHECK((char *)b->data == (char *)a->data + 100 * KB);
    exec_block_release(a);
    exec_block_release(c);
    exec_block_release(b); /* joins both sides */
    REQUIRE_OK(exec_graph_pool_get(f.pool, 300 * KB, false, &all));
    CHECK_INT(stats_of(&f).mapped_bytes, 300 * KB);
    exec_block_release(all);
    CHECK_INT(stats_of(&f).live_blocks, 0);
done:
    teardown(&f);
}

TEST(graph_pool_takes_the_closest_fit)
{
    exec_block *large, *small, *got;
    void *place;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    exec_graph_pool_expect(f.pool, 600 * KB, 1);
    REQUIRE_OK(exec_graph_pool_get(f.pool, 400 * KB, false, &large));
    REQUIRE_OK(exec_graph_pool_get(f.pool, 200 * KB, false, &small));
    place = small->data;
    exec_block_release(small);
    exec_block_release(large);
    REQUIRE_OK(exec_graph_pool_get(f.pool, 150 * KB, false, &got));
    CHECK(got->data == place);
    exec_block_release(got);
done:
    teardown(&f);
}

/* Small chunks do not hold large segments. */
TEST(graph_pool_small_chunks_lie_apart)
{
    exec_block *large, *small;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    REQUIRE_OK(exec_graph_pool_get(f.pool, 400 * KB, false, &large));
    exec_block_release(large);
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100, false, &small));
    CHECK_INT(stats_of(&f).live_bytes, 128);
    exec_graph_pool_trim(f.pool);
    CHECK_INT(stats_of(&f).mapped_bytes, 64 * KB);
    exec_block_release(small);
done:
    teardown(&f);
}

/* What is not needed beside the largest capture goes back, but not at once: a
 * step that repeats finds it again. */
TEST(graph_pool_gives_back_a_peak)
{
    exec_block *held[10], *block;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    exec_graph_pool_expect(f.pool, 200 * KB, 1);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 10; i++)
            REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, false, &held[i]));
        for (int i = 0; i < 10; i++)
            exec_block_release(held[i]);
        CHECK_INT(stats_of(&f).mapped_bytes, 1000 * KB);
    }
    for (int i = 0; i < 10000; i++) {
        REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, true, &block));
        exec_block_release(block);
    }
    CHECK_INT(stats_of(&f).mapped_bytes, 200 * KB);
done:
    teardown(&f);
}

/* n blocks of 8 KB, one at a time. */
static void
get_and_put(exec_pool *pool, air_graph_pool *graph, int n)
{
    exec_block *block;

    for (int i = 0; i < n; i++) {
        REQUIRE_OK(exec_pool_get(pool, 8 * KB, false, &block));
        exec_block_release(block);
        REQUIRE_OK(exec_graph_pool_get(graph, 16 * KB, false, &block));
        exec_block_release(block);
    }
}

/* Four results that were held at once, then one at a time. */
static void
let_go_of_a_peak(bool apart, uint64_t *kept, uint64_t *mapped)
{
    const air_options options = {.threads = 1};
    const air_driver *driver = driver_find("ref");
    air_device *device = NULL;
    exec_pool *pool = NULL;
    air_graph_pool *graph = NULL;
    air_graph_pool_stats graph_stats;
    air_pool_stats stats;
    exec_block *blocks[8];

    REQUIRE_OK(driver->open(&options, &base_libc_alloc, &device));
    REQUIRE_OK(
        exec_pool_create(&base_libc_alloc, driver, device, apart, &pool));
    REQUIRE_OK(exec_graph_pool_create(pool, NULL, &graph));
    exec_graph_pool_expect(graph, 16 * KB, 1);
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(exec_pool_get(pool, 8 * KB, false, &blocks[i]));
        REQUIRE_OK(exec_graph_pool_get(graph, 16 * KB, false, &blocks[4 + i]));
    }
    for (int i = 0; i < 8; i++)
        exec_block_release(blocks[i]);
    get_and_put(pool, graph, 1100);
    exec_pool_stats(pool, &stats);
    exec_graph_pool_stats(graph, &graph_stats);
    *kept = stats.kept_bytes;
    *mapped = graph_stats.mapped_bytes;
    exec_graph_pool_release(graph);
    exec_pool_release(pool);
}

static bool
lends(air_device *dev)
{
    (void)dev;
    return true;
}

/* Bytes that are kept when a block of so many is let go. */
static uint64_t
kept_after(exec_pool *pool, size_t size, bool arena, void **out_data)
{
    exec_block *block = NULL;
    air_pool_stats stats = {0};

    if (!CHECK_OK(exec_pool_get(pool, size, arena, &block)))
        return 0;
    if (out_data)
        *out_data = block->data;
    exec_block_release(block);
    exec_pool_stats(pool, &stats);
    return stats.kept_bytes;
}

/* Programs that run one after another share one arena of the largest's size;
 * large results are the application's allocator's to keep, small ones ours. */
TEST(pools_of_lent_memory_keep_one_arena)
{
    const air_options options = {.threads = 1};
    air_driver driver = *driver_find("ref");
    air_device *device = NULL;
    exec_pool *pool = NULL;
    void *first = NULL, *again = NULL;
    const size_t small = 3000 * KB, large = 5000 * KB;

    driver.is_lent = lends;
    REQUIRE_OK(driver.open(&options, &base_libc_alloc, &device));
    REQUIRE_OK(
        exec_pool_create(&base_libc_alloc, &driver, device, true, &pool));
    CHECK_INT(kept_after(pool, small, true, NULL), small);
    CHECK_INT(kept_after(pool, large, true, &first), large);
    CHECK_INT(kept_after(pool, small, true, NULL), large);
    CHECK_INT(kept_after(pool, large, true, &again), large);
    CHECK(first == again);
    CHECK_INT(kept_after(pool, large, false, NULL), large);
    CHECK_INT(kept_after(pool, small, false, NULL), large);
    CHECK_INT(kept_after(pool, 8 * KB, false, NULL), large + 8 * KB);
    CHECK_INT(kept_after(pool, large + 1, true, NULL), large + 1 + 8 * KB);
    exec_pool_release(pool);
}

TEST(pools_of_a_gpu_give_back_soon)
{
    uint64_t kept = 0, mapped = 0;

    let_go_of_a_peak(false, &kept, &mapped);
    CHECK_INT(kept, 4 * 8 * KB);
    CHECK_INT(mapped, 4 * 16 * KB);
    let_go_of_a_peak(true, &kept, &mapped);
    CHECK_INT(kept, 8 * KB);
    CHECK_INT(mapped, 16 * KB);
}

/* Unused segments go first when a larger one is needed. */
TEST(graph_pool_grows_by_replacing)
{
    exec_block *block;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    for (size_t kb = 100; kb <= 1000; kb += 100) {
        exec_graph_pool_expect(f.pool, kb * KB, 1);
        REQUIRE_OK(exec_graph_pool_get(f.pool, kb * KB, true, &block));
        exec_block_release(block);
        CHECK_INT(stats_of(&f).mapped_bytes, kb * KB);
    }
done:
    teardown(&f);
}

/* Blocks outlive the pool, and both outlive the context's owner. */
TEST(graph_pool_goes_with_its_last_block)
{
    test_alloc a;
    exec_block *block;
    air_pool_stats all;
    fixture f;

    test_alloc_init(&a);
    if (!setup(&f, &a.alloc))
        return;
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, false, &block));
    air_graph_pool_release(f.pool);
    air_context_get_pool_stats(f.ctx, &all);
    CHECK_INT(all.live_blocks, 1);
    air_context_destroy(f.ctx);
    memset(block->data, 1, 100 * KB);
    exec_block_release(block);
    CHECK_CLEAN(&a);
}

/* Only a block of it is left: its id makes another one. */
TEST(graph_pool_that_ended_is_not_found)
{
    test_alloc a;
    exec_block *block;
    air_graph_pool *next = NULL;
    air_graph_pool_stats ended;
    fixture f;

    test_alloc_init(&a);
    if (!setup(&f, &a.alloc))
        return;
    REQUIRE_OK(exec_graph_pool_get(f.pool, 100 * KB, false, &block));
    ended = stats_of(&f);
    air_graph_pool_release(f.pool);
    REQUIRE_OK(air_graph_pool_find(f.ctx, ended.id, &next));
    CHECK(next != f.pool);
    exec_block_release(block);
    REQUIRE_OK(exec_graph_pool_get(next, KB, false, &block));
    exec_block_release(block);
    air_graph_pool_release(next);
    air_context_destroy(f.ctx);
    CHECK_CLEAN(&a);
}

TEST(graph_pool_ids)
{
    const int64_t made[2] = {7, 0}, nonsense[2] = {1, 2};
    air_graph_pool *a = NULL, *b = NULL, *c = NULL;
    fixture f;

    if (!setup(&f, NULL))
        goto done;
    CHECK_INT(stats_of(&f).id[0], 0);
    CHECK(stats_of(&f).id[1] > 0);
    CHECK_OK(air_graph_pool_find(f.ctx, made, &a));
    CHECK_OK(air_graph_pool_find(f.ctx, made, &b));
    CHECK(a == b && a != f.pool);
    air_graph_pool_release(a);
    air_graph_pool_release(b); /* gone: the id makes a new one */
    CHECK_OK(air_graph_pool_find(f.ctx, made, &c));
    CHECK_FAILS(air_graph_pool_find(f.ctx, nonsense, &a), ARGUMENT);
done:
    air_graph_pool_release(c);
    teardown(&f);
}

/* A handle of one context is no pool of another one. */
TEST(graph_pool_ids_are_of_the_process)
{
    const int64_t high[2] = {0, 1000000};
    air_graph_pool *found = NULL, *next = NULL;
    air_graph_pool_stats stats;
    fixture f = {NULL}, g = {NULL};

    if (setup(&f, NULL) && setup(&g, NULL)) {
        CHECK(stats_of(&g).id[1] > stats_of(&f).id[1]);
        CHECK_OK(air_graph_pool_find(f.ctx, high, &found));
        CHECK_OK(air_graph_pool_create(g.ctx, &next));
        air_graph_pool_get_stats(next, &stats);
        CHECK(stats.id[1] > high[1]);
    }
    air_graph_pool_release(found);
    air_graph_pool_release(next);
    teardown(&f);
    teardown(&g);
}

static air_status
oom_body(const air_alloc *alloc, void *user)
{
    const air_options o = {.driver = "ref", .threads = 1, .alloc = alloc};
    air_context *ctx = NULL;
    air_graph_pool *pool = NULL;
    exec_block *blocks[4] = {0};
    air_status status = air_context_create(&o, &ctx);

    (void)user;
    if (status == AIR_OK)
        status = air_graph_pool_create(ctx, &pool);
    for (int i = 0; i < 4 && status == AIR_OK; i++)
        status = exec_graph_pool_get(pool, i % 2 ? 100 : 100 * KB, false,
                                     &blocks[i]);
    for (int i = 0; i < 4; i++)
        exec_block_release(blocks[i]);
    air_graph_pool_release(pool);
    air_context_destroy(ctx);
    return status;
}

TEST(graph_pool_out_of_memory)
{
    TEST_OOM(oom_body, NULL);
}
