/* map.c: string -> uint32, open addressing with linear probing. */
#include <string.h>

#include "base/text.h"

/* A multiply-xor mix of eight bytes at a time; not for adversaries who may
 * choose the seed, but every input bit reaches every output bit. */
static uint64_t
mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

uint64_t
base_hash(const void *data, size_t len, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = mix(seed ^ (uint64_t)len ^ 0x9e3779b97f4a7c15u);
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = mix(h ^ word);
    }
    uint64_t tail = 0;
    if (len > 0)
        memcpy(&tail, p, len);
    return mix(h ^ tail);
}

void
base_map_init(base_map *m, base_arena *arena, const air_alloc *alloc)
{
    *m = (base_map){.arena = arena, .alloc = alloc};
}

void
base_map_deinit(base_map *m)
{
    base_free(m->alloc, m->slots, m->cap * sizeof *m->slots);
    base_map_init(m, m->arena, m->alloc);
}

/* The slot of the key, or the empty one where it belongs; cap > count. */
static base_map_slot *
probe(base_map_slot *slots, size_t cap, const char *key, size_t len,
      uint32_t hash)
{
    for (size_t i = hash;; i++) {
        base_map_slot *slot = &slots[i & (cap - 1)];
        if (!slot->key)
            return slot;
        if (slot->hash == hash && slot->len == len &&
            memcmp(slot->key, key, len) == 0)
            return slot;
    }
}

static air_status
grow(base_map *m)
{
    size_t cap = m->cap ? m->cap * 2 : 16;
    void *ptr;
    AIR_TRY(base_new(m->alloc, cap * sizeof *m->slots, &ptr));
    base_map_slot *slots = ptr;
    for (size_t i = 0; i < m->cap; i++) {
        const base_map_slot *old = &m->slots[i];
        if (old->key)
            *probe(slots, cap, old->key, old->len, old->hash) = *old;
    }
    base_free(m->alloc, m->slots, m->cap * sizeof *m->slots);
    m->slots = slots;
    m->cap = cap;
    return AIR_OK;
}

air_status
base_map_put(base_map *m, const char *key, size_t len, uint32_t value)
{
    AIR_REQUIRE(len <= UINT32_MAX, AIR_ERROR_ARGUMENT, "a key of %zu bytes",
                len);
    if (m->count * 4 >= m->cap * 3)
        AIR_TRY(grow(m));
    uint32_t hash = (uint32_t)base_hash(key, len, 0);
    base_map_slot *slot = probe(m->slots, m->cap, key, len, hash);
    if (!slot->key) {
        const char *copy;
        AIR_TRY(base_arena_str(m->arena, key, len, &copy));
        *slot = (base_map_slot){copy, (uint32_t)len, hash, 0};
        m->count++;
    }
    slot->value = value;
    return AIR_OK;
}

bool
base_map_find(const base_map *m, const char *key, size_t len,
              uint32_t *out_value)
{
    if (m->count == 0)
        return false;
    uint32_t hash = (uint32_t)base_hash(key, len, 0);
    const base_map_slot *slot = probe(m->slots, m->cap, key, len, hash);
    if (!slot->key)
        return false;
    *out_value = slot->value;
    return true;
}
