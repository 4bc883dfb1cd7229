/* test_text.c: growing strings, the string map, the hash. */
#include "base/text.h"

#include "test.h"

TEST(text_grows)
{
    test_alloc t;
    test_alloc_init(&t);
    base_text text;
    base_text_init(&text, &t.alloc);
    for (int i = 0; i < 100; i++)
        base_text_add(&text, "%d,", i);
    CHECK_INT(text.status, AIR_OK);
    CHECK_INT(text.len, 290);
    CHECK_INT(strlen(text.data), 290);
    CHECK(strncmp(text.data, "0,1,2,3,", 8) == 0);
    base_text_deinit(&text);
    CHECK(text.data == NULL);
    CHECK_CLEAN(&t);
}

TEST(text_long_pieces)
{
    char piece[1000];
    memset(piece, 'y', sizeof piece);
    piece[sizeof piece - 1] = '\0';
    base_text text;
    base_text_init(&text, &base_libc_alloc);
    base_text_add(&text, "<%s>", piece);
    CHECK_INT(text.len, 1001);
    CHECK(text.data[0] == '<' && text.data[1000] == '>');
    base_text_put(&text, "abc", 2);
    CHECK_STR(text.data + 1001, "ab");
    base_text_deinit(&text);
}

TEST(text_first_failure_sticks)
{
    test_alloc t;
    test_alloc_init(&t);
    base_text text;
    base_text_init(&text, &t.alloc);
    base_text_add(&text, "kept");
    t.fail_at = t.calls + 1;
    for (int i = 0; i < 10; i++)
        base_text_add(&text, "a piece of text ");
    CHECK_INT(text.status, AIR_ERROR_MEMORY);
    CHECK_INT(t.calls, t.fail_at);
    CHECK_STR(text.data, "kept");
    base_text_deinit(&text);
    CHECK_CLEAN(&t);
}

static air_status
fill_map(const air_alloc *alloc, void *user)
{
    base_arena arena;
    base_map map;
    air_status status = AIR_OK;
    char key[32];
    int count = *(int *)user;
    base_arena_init(&arena, alloc);
    base_map_init(&map, &arena, alloc);
    for (int i = 0; status == AIR_OK && i < count; i++) {
        int len = snprintf(key, sizeof key, "key %d", i);
        status = base_map_put(&map, key, (size_t)len, (uint32_t)(i * 3));
    }
    for (int i = 0; status == AIR_OK && i < count; i++) {
        uint32_t value = 0;
        int len = snprintf(key, sizeof key, "key %d", i);
        CHECK(base_map_find(&map, key, (size_t)len, &value));
        CHECK_INT(value, i * 3);
    }
    uint32_t value;
    if (status == AIR_OK)
        CHECK(!base_map_find(&map, "key", 3, &value));
    base_map_deinit(&map);
    base_arena_deinit(&arena);
    return status;
}

TEST(map_finds_what_was_put)
{
    CHECK_OK(fill_map(&base_libc_alloc, &(int){5000}));
}

TEST(map_oom)
{
    TEST_OOM(fill_map, &(int){100});
}

TEST(map_replaces)
{
    base_arena arena;
    base_map map;
    uint32_t value = 0;
    base_arena_init(&arena, &base_libc_alloc);
    base_map_init(&map, &arena, &base_libc_alloc);
    CHECK(!base_map_find(&map, "a", 1, &value));
    CHECK_OK(base_map_put(&map, "abc", 1, 1));
    CHECK_OK(base_map_put(&map, "a", 1, 2));
    CHECK_OK(base_map_put(&map, "", 0, 3));
    CHECK_INT(map.count, 2);
    CHECK(base_map_find(&map, "a", 1, &value) && value == 2);
    CHECK(base_map_find(&map, "", 0, &value) && value == 3);
    CHECK(!base_map_find(&map, "abc", 3, &value));
    base_map_deinit(&map);
    base_arena_deinit(&arena);
}

TEST(hash_depends_on_every_byte)
{
    char data[64] = {0};
    for (size_t len = 1; len <= sizeof data; len++) {
        uint64_t h = base_hash(data, len, 0);
        CHECK(h != base_hash(data, len - 1, 0));
        CHECK(h != base_hash(data, len, 1));
        data[len - 1] = 1;
        CHECK(h != base_hash(data, len, 0));
        data[len - 1] = 0;
        CHECK(h == base_hash(data, len, 0));
    }
}
