/* test_memory.c: blocks, arenas, growing arrays, checked sizes. */
#include "test.h"

typedef BASE_VEC(int) int_vec;

static bool
all_zero(const void *ptr, size_t size)
{
    const unsigned char *p = ptr;
    for (size_t i = 0; i < size; i++)
        if (p[i] != 0)
            return false;
    return true;
}

TEST(memory_blocks_are_zeroed)
{
    test_alloc t;
    test_alloc_init(&t);
    void *ptr;
    REQUIRE_OK(base_new(&t.alloc, 1000, &ptr));
    CHECK(all_zero(ptr, 1000));
    CHECK_INT(t.live, 1);
    CHECK_INT(t.bytes, 1000);
    base_free(&t.alloc, ptr, 1000);
    CHECK_CLEAN(&t);
}

TEST(memory_no_bytes_is_null)
{
    test_alloc t;
    test_alloc_init(&t);
    void *ptr = &t;
    CHECK_OK(base_new(&t.alloc, 0, &ptr));
    CHECK(ptr == NULL);
    base_free(&t.alloc, NULL, 0);
    CHECK_INT(t.calls, 0);
}

TEST(memory_failure_leaves_null)
{
    test_alloc t;
    test_alloc_init(&t);
    t.fail_at = 1;
    void *ptr = &t;
    CHECK_FAILS(base_new(&t.alloc, 64, &ptr), MEMORY);
    CHECK(ptr == NULL);
    CHECK_STR(air_last_error()->message, "cannot allocate 64 bytes");
}

TEST(memory_arena_aligns_and_zeroes)
{
    test_alloc t;
    test_alloc_init(&t);
    base_arena arena;
    base_arena_init(&arena, &t.alloc);
    for (size_t size = 0; size < 3000; size += 7) {
        void *ptr;
        REQUIRE_OK(base_arena_new(&arena, size, &ptr));
        CHECK((uintptr_t)ptr % 16 == 0);
        CHECK(all_zero(ptr, size));
        if (size > 0)
            memset(ptr, 0xff, size);
    }
    base_arena_deinit(&arena);
    CHECK_CLEAN(&t);
}

TEST(memory_arena_takes_large_blocks)
{
    test_alloc t;
    test_alloc_init(&t);
    base_arena arena;
    base_arena_init(&arena, &t.alloc);
    void *small, *large, *after;
    REQUIRE_OK(base_arena_new(&arena, 8, &small));
    REQUIRE_OK(base_arena_new(&arena, (size_t)5 << 20, &large));
    REQUIRE_OK(base_arena_new(&arena, 8, &after));
    CHECK(all_zero(large, (size_t)5 << 20));
    CHECK(after != small);
    base_arena_deinit(&arena);
    CHECK_CLEAN(&t);
}

TEST(memory_arena_reset_keeps_the_first_block)
{
    test_alloc t;
    test_alloc_init(&t);
    base_arena arena;
    base_arena_init(&arena, &t.alloc);
    base_arena_reset(&arena); /* an unused arena has nothing to reset */
    void *first, *ptr;
    REQUIRE_OK(base_arena_new(&arena, 100, &first));
    memset(first, 0xff, 100);
    for (int i = 0; i < 100; i++)
        REQUIRE_OK(base_arena_new(&arena, 1000, &ptr));
    CHECK(t.live > 1);
    base_arena_reset(&arena);
    CHECK_INT(t.live, 1);
    CHECK_INT(arena.total, 0);
    REQUIRE_OK(base_arena_new(&arena, 100, &ptr));
    CHECK(ptr == first);
    CHECK(all_zero(ptr, 100));
    base_arena_deinit(&arena);
    CHECK_CLEAN(&t);
}

TEST(memory_arena_copies)
{
    base_arena arena;
    base_arena_init(&arena, &base_libc_alloc);
    void *copy;
    const char *str;
    int64_t *array;
    REQUIRE_OK(base_arena_copy(&arena, "abc", 4, &copy));
    CHECK_STR(copy, "abc");
    REQUIRE_OK(base_arena_str(&arena, "abcdef", 2, &str));
    CHECK_STR(str, "ab");
    REQUIRE_OK(base_arena_str(&arena, NULL, 0, &str));
    CHECK_STR(str, "");
    REQUIRE_OK(BASE_ARENA_ARRAY(&arena, 10, &array));
    CHECK(all_zero(array, 80));
    base_arena_deinit(&arena);
}

TEST(memory_arena_refuses_overflow)
{
    base_arena arena;
    base_arena_init(&arena, &base_libc_alloc);
    int64_t *array;
    void *ptr;
    const char *str;
    CHECK_FAILS(BASE_ARENA_ARRAY(&arena, SIZE_MAX / 4, &array), MEMORY);
    CHECK(array == NULL);
    CHECK_FAILS(base_arena_new(&arena, SIZE_MAX, &ptr), MEMORY);
    CHECK(ptr == NULL);
    CHECK_FAILS(base_arena_new(&arena, SIZE_MAX - 20, &ptr), MEMORY);
    CHECK_FAILS(base_arena_str(&arena, "x", SIZE_MAX, &str), MEMORY);
    CHECK(str == NULL);
    base_arena_deinit(&arena);
}

TEST(memory_vec_grows)
{
    test_alloc t;
    test_alloc_init(&t);
    int_vec v = {0};
    for (int i = 0; i < 1000; i++)
        REQUIRE_OK(BASE_PUSH(&t.alloc, &v, i * i));
    CHECK_INT(v.count, 1000);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(v.data[i], i * i);
    CHECK(t.calls < 12); /* it doubles */
    BASE_VEC_FREE(&t.alloc, &v);
    CHECK(v.data == NULL && v.count == 0);
    CHECK_CLEAN(&t);
}

TEST(memory_vec_survives_failure)
{
    test_alloc t;
    test_alloc_init(&t);
    int_vec v = {0};
    for (int i = 0; i < 8; i++)
        REQUIRE_OK(BASE_PUSH(&t.alloc, &v, i));
    t.fail_at = t.calls + 1;
    CHECK_FAILS(BASE_PUSH(&t.alloc, &v, 8), MEMORY);
    CHECK_INT(v.count, 8);
    CHECK_INT(v.data[7], 7);
    CHECK_FAILS(BASE_RESERVE(&t.alloc, &v, SIZE_MAX / 2), MEMORY);
    BASE_VEC_FREE(&t.alloc, &v);
    CHECK_CLEAN(&t);
}

TEST(memory_checked_sizes)
{
    size_t s;
    int64_t i;
    CHECK(base_mul_size(3, 5, &s) && s == 15);
    CHECK(!base_mul_size(SIZE_MAX, 2, &s));
    CHECK(base_add_size(SIZE_MAX - 1, 1, &s) && s == SIZE_MAX);
    CHECK(!base_add_size(SIZE_MAX, 1, &s));
    CHECK(base_mul_i64(-4, 5, &i) && i == -20);
    CHECK(!base_mul_i64(INT64_MIN, -1, &i));
    CHECK(base_add_i64(INT64_MAX, -1, &i) && i == INT64_MAX - 1);
    CHECK(!base_add_i64(INT64_MIN, -1, &i));
}

static air_status
arena_and_vec(const air_alloc *alloc, void *user)
{
    (void)user;
    base_arena arena;
    int_vec v = {0};
    air_status status = AIR_OK;
    base_arena_init(&arena, alloc);
    for (int i = 0; status == AIR_OK && i < 200; i++) {
        void *ptr;
        status = base_arena_new(&arena, 333, &ptr);
        if (status == AIR_OK)
            status = BASE_PUSH(alloc, &v, i);
    }
    BASE_VEC_FREE(alloc, &v);
    base_arena_deinit(&arena);
    return status;
}

TEST(memory_oom)
{
    TEST_OOM(arena_and_vec, NULL);
}
