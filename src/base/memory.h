/* memory.h: the only way to memory. Three lifetimes: an arena (freed whole),
 * a vec (grows), and single blocks. Every out-pointer is NULL on failure, and
 * a failed call leaves its arguments as they were. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/status.h"

/* The C library's allocator. */
extern const air_alloc base_libc_alloc;

/* *out_ptr: `size` zeroed bytes, 16-aligned; NULL for size 0. */
air_status base_new(const air_alloc *a, size_t size, void **out_ptr);
void base_free(const air_alloc *a, void *ptr, size_t size);

/* ---- arena: bump allocation, freed whole ---- */
typedef struct base_arena_block base_arena_block;
typedef struct {
    const air_alloc *alloc;
    base_arena_block *head;
    size_t used, cap; /* of head */
    size_t total;     /* bytes handed out, for reports */
} base_arena;

void base_arena_init(base_arena *arena, const air_alloc *alloc);
void base_arena_deinit(base_arena *arena);
/* Zeroed, 16-aligned, valid until reset or deinit. */
air_status base_arena_new(base_arena *arena, size_t size, void **out_ptr);
/* Frees everything but the first block. */
void base_arena_reset(base_arena *arena);
air_status base_arena_copy(base_arena *arena, const void *src, size_t size,
                           void **out_ptr);
/* A NUL-terminated copy of s[0..len). */
air_status base_arena_str(base_arena *arena, const char *s, size_t len,
                          const char **out_str);

#define BASE_ARENA_ARRAY(arena, count, out) \
    base_arena_array((arena), (size_t)(count), sizeof **(out), (void **)(out))
air_status base_arena_array(base_arena *arena, size_t count, size_t size,
                            void **out_ptr); /* checks count * size */

/* ---- vec: a growing array of T ----
 * typedef BASE_VEC(int) ints;  ints v = {0};
 * AIR_TRY(BASE_PUSH(alloc, &v, 3));  v.data[i], v.count;  BASE_VEC_FREE */
#define BASE_VEC(T)        \
    struct {               \
        T *data;           \
        size_t count, cap; \
    }
#define BASE_PUSH(alloc, v, item)                                              \
    (base_vec_reserve((alloc), (void **)&(v)->data, &(v)->cap, (v)->count + 1, \
                      sizeof *(v)->data) == AIR_OK                             \
         ? ((v)->data[(v)->count++] = (item), AIR_OK)                          \
         : AIR_ERROR_MEMORY)
#define BASE_RESERVE(alloc, v, n)                                          \
    base_vec_reserve((alloc), (void **)&(v)->data, &(v)->cap, (size_t)(n), \
                     sizeof *(v)->data)
#define BASE_VEC_FREE(alloc, v)                                   \
    (base_free((alloc), (v)->data, (v)->cap * sizeof *(v)->data), \
     (v)->data = NULL, (v)->count = (v)->cap = 0)
air_status base_vec_reserve(const air_alloc *a, void **data, size_t *cap,
                            size_t want, size_t size);

/* ---- checked arithmetic: false on overflow ---- */
bool base_mul_size(size_t a, size_t b, size_t *out);
bool base_add_size(size_t a, size_t b, size_t *out);
bool base_mul_i64(int64_t a, int64_t b, int64_t *out);
bool base_add_i64(int64_t a, int64_t b, int64_t *out);

#endif
