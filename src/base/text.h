/* text.h: a growing string (for printing) and a string -> uint32 map. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/memory.h"

typedef struct {
    const air_alloc *alloc;
    char *data; /* NUL-terminated; NULL while empty */
    size_t len, cap;
    air_status status; /* the first failure; later calls do nothing */
} base_text;

void base_text_init(base_text *t, const air_alloc *alloc);
void base_text_deinit(base_text *t);
void base_text_add(base_text *t, const char *fmt, ...) AIR_PRINTF(2, 3);
void base_text_put(base_text *t, const char *s, size_t len);

/* Open addressing; keys are copied into the map's arena. */
typedef struct {
    const char *key;
    uint32_t len, hash, value;
} base_map_slot;
typedef struct {
    base_arena *arena;
    const air_alloc *alloc;
    base_map_slot *slots;
    size_t count, cap;
} base_map;

void base_map_init(base_map *m, base_arena *arena, const air_alloc *alloc);
void base_map_deinit(base_map *m);
air_status base_map_put(base_map *m, const char *key, size_t len,
                        uint32_t value); /* replaces */
bool base_map_find(const base_map *m, const char *key, size_t len,
                   uint32_t *out_value);
uint64_t base_hash(const void *data, size_t len, uint64_t seed);

#endif
