/* best_isa.c: the few best of a row, compiled once per instruction set. The
 * best so far are kept in order; what does not beat the last of them, nearly
 * all of a long row, is passed over a block at a time. */
#include "driver/cpu/rows/best_isa.h"

#include <string.h>

#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_float.h"
#include "driver/ref/walk.h"

#define JOIN_(a, b)       cpu_##a##_##b
#define JOIN(a, b)        JOIN_(a, b)
#define BEST_KERNEL(name) JOIN(name, TILE_ISA)

enum {
    MOST = 64,     /* elements kept: one that enters moves those behind it */
    SHORTEST = 32, /* rows below are sorted side by side (order_isa.c) */
    BLOCK = 32,
};

/* ---- keys: the best is the largest ---- */

static inline int32_t
key_of_float(float x)
{
    int32_t i;
    x += 0.0f; /* -0 becomes 0 */
    memcpy(&i, &x, sizeof i);
    i = i < 0 ? i ^ INT32_MAX : i;
    return x != x ? INT32_MAX : i;
}

static inline int64_t
key_of_double(double x)
{
    int64_t i;
    x += 0.0;
    memcpy(&i, &x, sizeof i);
    i = i < 0 ? i ^ INT64_MAX : i;
    return x != x ? INT64_MAX : i;
}

#define OF_BF16(x)  key_of_float(tile_of_bf16(x))
#define OF_F16(x)   key_of_float(tile_of_f16(x))
#define AS_IT_IS(x) (x)
/* id, C type, lane of keys, how to get one */
#define EACH_DTYPE(_)                      \
    _(F32, float, int32_t, key_of_float)   \
    _(BF16, uint16_t, int32_t, OF_BF16)    \
    _(F16, uint16_t, int32_t, OF_F16)      \
    _(F64, double, int64_t, key_of_double) \
    _(I64, int64_t, int64_t, AS_IT_IS)     \
    _(I32, int32_t, int32_t, AS_IT_IS)     \
    _(I16, int16_t, int32_t, AS_IT_IS)     \
    _(I8, int8_t, int32_t, AS_IT_IS)       \
    _(U8, uint8_t, int32_t, AS_IT_IS)

/* ---- one row ---- */

/* The best so far, the best first; of equals the one that came first. */
#define KEEP(K)                                                        \
    typedef struct {                                                   \
        K key[MOST];                                                   \
        int64_t at[MOST], count, most;                                 \
    } best_##K;                                                        \
    static void enter_##K(best_##K *b, K key, int64_t at)              \
    {                                                                  \
        int64_t i = b->count < b->most ? b->count++ : b->most - 1;     \
        for (; i > 0 && b->key[i - 1] < key; i--) {                    \
            b->key[i] = b->key[i - 1];                                 \
            b->at[i] = b->at[i - 1];                                   \
        }                                                              \
        b->key[i] = key;                                               \
        b->at[i] = at;                                                 \
    }                                                                  \
    static void enter_block_##K(best_##K *b, const K *keys, int64_t n, \
                                int64_t at)                            \
    {                                                                  \
        for (int64_t i = 0; i < n; i++)                                \
            if (b->count < b->most || keys[i] > b->key[b->most - 1])   \
                enter_##K(b, keys[i], at + i);                         \
    }                                                                  \
    static bool any_enters_##K(const best_##K *b, const K *keys)       \
    {                                                                  \
        const K last = b->key[b->most - 1];                            \
        K any = 0;                                                     \
        for (int i = 0; i < BLOCK; i++)                                \
            any |= keys[i] > last;                                     \
        return any != 0;                                               \
    }
KEEP(int32_t)
KEEP(int64_t)

#define ROW(id, T, K, key_of)                                              \
    static inline void keys_##id(K *keys, const char *row, int64_t stride, \
                                 int64_t n, K flip)                        \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) {                                  \
            T x;                                                           \
            memcpy(&x, row + i * stride, sizeof x);                        \
            keys[i] = (K)key_of(x) ^ flip;                                 \
        }                                                                  \
    }                                                                      \
    static void row_##id(int64_t *at, int64_t most, const char *row,       \
                         int64_t stride, int64_t n, K flip)                \
    {                                                                      \
        best_##K b = {.most = most};                                       \
        K keys[BLOCK];                                                     \
        int64_t i = 0;                                                     \
        for (; i + BLOCK <= n; i += BLOCK, row += BLOCK * stride) {        \
            if (stride == (int64_t)sizeof(T))                              \
                keys_##id(keys, row, sizeof(T), BLOCK, flip);              \
            else                                                           \
                keys_##id(keys, row, stride, BLOCK, flip);                 \
            if (b.count < most || any_enters_##K(&b, keys))                \
                enter_block_##K(&b, keys, BLOCK, i);                       \
        }                                                                  \
        keys_##id(keys, row, stride, n - i, flip);                         \
        enter_block_##K(&b, keys, n - i, i);                               \
        memcpy(at, b.at, (size_t)most * sizeof *at);                       \
    }
EACH_DTYPE(ROW)

/* Places of the `most` best. */
static void
best_of_row(int dtype, int64_t *at, int64_t most, const char *row,
            int64_t stride, int64_t n, bool largest)
{
    switch (dtype) {
#define CASE(id, T, K, key_of) \
    case AIR_##id: row_##id(at, most, row, stride, n, largest ? 0 : -1); break;
        EACH_DTYPE(CASE)
#undef CASE
    default: break;
    }
}

/* ---- all rows: (self, k, dim, largest, sorted) ---- */

bool
BEST_KERNEL(best_topk_on)(const air_call *call, const char *isa)
{
    const air_tensor *a = call->args[0].t;
    if (!JOIN(on, TILE_ISA)(call, isa) || a->rank == 0)
        return false; /* the first before all: the rest may not run here */
    const int64_t n = a->dims[ref_axis(ref_int(call, 2, -1), a->rank)];
    const int64_t k = ref_int(call, 1, 1);
    switch (a->dtype) {
#define CASE(id, ...) case AIR_##id:
        EACH_DTYPE(CASE)
#undef CASE
        return n >= SHORTEST && k > 0 && k <= n && k <= MOST;
    default: return false;
    }
}

void
BEST_KERNEL(best_topk)(const air_call *call, const air_task *task)
{
    ref_tensor values = ref_out(call, 0, task), at = ref_out(call, 1, task);
    ref_tensor self = ref_arg(call, 0, task);
    const int axis = ref_axis(ref_int(call, 2, -1), self.rank);
    const int64_t n = ref_dim(&self, axis), stride = ref_stride(&self, axis);
    const int64_t step = ref_stride(&values, axis),
                  next = ref_stride(&at, axis);
    const int64_t k = ref_int(call, 1, 1);
    const bool largest = ref_int(call, 3, 1) != 0;
    ref_tensor to = ref_drop(values, axis), from = ref_drop(self, axis);
    ref_tensor index = ref_drop(at, axis);
    const ref_tensor *all[] = {&to, &from, &index};
    int64_t best[MOST], begin, end;
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t row = begin; row < end; row++, ref_walk_next(&w)) {
        best_of_row(self.dtype, best, k, w.p[1], stride, n, largest);
        for (int64_t i = 0; i < k; i++) {
            ref_copy(w.p[0] + i * step, w.p[1] + best[i] * stride,
                     ref_bytes(self.dtype));
            memcpy(w.p[2] + i * next, &best[i], sizeof best[i]);
        }
    }
}
