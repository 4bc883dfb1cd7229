/* order_isa.c: sort and topk of short rows, compiled once per instruction set.
 * LANES rows go side by side through Batcher's merge-exchange network. What is
 * exchanged has the element's place below its key, so that no two are equal
 * and the order is the stable one; beside it where the key has 64 bits. */
#include "driver/cpu/rows/order_isa.h"

#include <string.h>

#include "driver/cpu/product/gemm.h"
#include "driver/cpu/region/tile_float.h"
#include "driver/cpu/region/tile_ops.h"
#include "driver/ref/walk.h"

#define JOIN_(a, b)        cpu_##a##_##b
#define JOIN(a, b)         JOIN_(a, b)
#define ORDER_KERNEL(name) JOIN(name, TILE_ISA)

enum { LANES = 8, LONGEST = 256 };

/* ---- keys of 32 bits, ordered as ref_order_key's ---- */

static inline uint32_t
key_of_float(float x)
{
    uint32_t u;
    x += 0.0f; /* -0 becomes 0 */
    memcpy(&u, &x, sizeof u);
    u = u >> 31 ? ~u : u | UINT32_C(1) << 31;
    return x != x ? UINT32_MAX : u;
}

static inline uint32_t
key_of_int(int32_t x)
{
    return (uint32_t)x ^ UINT32_C(1) << 31;
}

#define READ(id, T, key_of)                                                \
    static void read_##id(int64_t *net, const char *const *rows,           \
                          int64_t stride, int64_t n, uint32_t flip)        \
    {                                                                      \
        for (int r = 0; r < LANES; r++)                                    \
            for (int64_t i = 0; i < n; i++) {                              \
                T x;                                                       \
                memcpy(&x, rows[r] + i * stride, sizeof x);                \
                uint64_t key = (uint32_t)key_of(x) ^ flip ^                \
                               UINT32_C(1) << 31; /* compared as signed */ \
                net[i * LANES + r] = (int64_t)(key << 32 | (uint64_t)i);   \
            }                                                              \
    }
#define OF_BF16(x) key_of_float(tile_of_bf16(x))
#define OF_F16(x)  key_of_float(tile_of_f16(x))
#define EACH_DTYPE(_)           \
    _(F32, float, key_of_float) \
    _(BF16, uint16_t, OF_BF16)  \
    _(F16, uint16_t, OF_F16)    \
    _(I32, int32_t, key_of_int) \
    _(I16, int16_t, key_of_int) \
    _(I8, int8_t, key_of_int)   \
    _(U8, uint8_t, key_of_int)  \
    _(BOOL, uint8_t, key_of_int)
EACH_DTYPE(READ)

/* ---- keys of 64 bits ---- */

static inline uint64_t
key_of_double(double x)
{
    uint64_t u;
    x += 0.0;
    memcpy(&u, &x, sizeof u);
    u = u >> 63 ? ~u : u | UINT64_C(1) << 63;
    return x != x ? UINT64_MAX : u;
}

static inline uint64_t
key_of_long(int64_t x)
{
    return (uint64_t)x ^ UINT64_C(1) << 63;
}

#define READ_WIDE(id, T, key_of)                                              \
    static void read_##id(int64_t *net, int64_t *places,                      \
                          const char *const *rows, int64_t stride, int64_t n, \
                          uint64_t flip)                                      \
    {                                                                         \
        for (int r = 0; r < LANES; r++)                                       \
            for (int64_t i = 0; i < n; i++) {                                 \
                T x;                                                          \
                memcpy(&x, rows[r] + i * stride, sizeof x);                   \
                net[i * LANES + r] =                                          \
                    (int64_t)(key_of(x) ^ flip ^ UINT64_C(1) << 63);          \
                places[i * LANES + r] = i;                                    \
            }                                                                 \
    }
#define EACH_WIDE(_)              \
    _(F64, double, key_of_double) \
    _(I64, int64_t, key_of_long)
EACH_WIDE(READ_WIDE)

static bool
is_wide(int dtype)
{
    return dtype == AIR_F64 || dtype == AIR_I64;
}

/* places: of keys of 64 bits */
static void
read_rows(int dtype, int64_t *net, int64_t *places, const char *const *rows,
          int64_t stride, int64_t n, bool descending)
{
    const uint64_t flip = descending ? UINT64_MAX : 0;
    switch (dtype) {
#define CASE(id, ...) \
    case AIR_##id: read_##id(net, rows, stride, n, (uint32_t)flip); break;
        EACH_DTYPE(CASE)
#undef CASE
#define CASE(id, ...) \
    case AIR_##id: read_##id(net, places, rows, stride, n, flip); break;
        EACH_WIDE(CASE)
#undef CASE
    default: break;
    }
}

/* ---- the network ---- */

static inline void
exchange(int64_t *restrict a, int64_t *restrict b)
{
    for (int r = 0; r < LANES; r++) {
        int64_t x = a[r], y = b[r];
        a[r] = x < y ? x : y;
        b[r] = x < y ? y : x;
    }
}

typedef int64_t lanes __attribute__((vector_size(TILE_VECTOR)));

/* Keys a and b, and their places, of LANES rows. */
static inline void
exchange_wide(int64_t *a, int64_t *b, int64_t *at, int64_t *bt)
{
    enum { COUNT = TILE_VECTOR / sizeof(int64_t) };
#pragma GCC unroll 4
    for (int r = 0; r < LANES; r += COUNT) {
        lanes x, y, xt, yt, v;
        memcpy(&x, a + r, sizeof x);
        memcpy(&y, b + r, sizeof y);
        memcpy(&xt, at + r, sizeof xt);
        memcpy(&yt, bt + r, sizeof yt);
        const lanes turn = (x > y) | ((x == y) & (xt > yt));
        v = (y & turn) | (x & ~turn);
        memcpy(a + r, &v, sizeof v);
        v = (x & turn) | (y & ~turn);
        memcpy(b + r, &v, sizeof v);
        v = (yt & turn) | (xt & ~turn);
        memcpy(at + r, &v, sizeof v);
        v = (xt & turn) | (yt & ~turn);
        memcpy(bt + r, &v, sizeof v);
    }
}

/* places NULL: below the keys */
static inline __attribute__((always_inline)) void
sort_lanes(int64_t *net, int64_t *places, int64_t n)
{
    for (int64_t p = 1; p < n; p *= 2)
        for (int64_t k = p; k >= 1; k /= 2)
            for (int64_t j = k % p; j + k < n; j += 2 * k)
                for (int64_t i = j; i < j + k && i + k < n; i++) {
                    const int64_t low = i * LANES, high = (i + k) * LANES;
                    if ((i ^ (i + k)) >= 2 * p)
                        continue; /* not in one run of 2 p */
                    if (places == NULL)
                        exchange(net + low, net + high);
                    else
                        exchange_wide(net + low, net + high, places + low,
                                      places + high);
                }
}

/* ---- rows ---- */

static bool
takes(const air_call *call, const char *isa, int axis_arg)
{
    const air_tensor *a = call->args[0].t;
    if (!JOIN(on, TILE_ISA)(call, isa) || a->rank == 0)
        return false; /* the first before all: the rest may not run here */
    int64_t n = a->dims[ref_axis(ref_int(call, axis_arg, -1), a->rank)];
    switch (a->dtype) {
#define CASE(id, ...) case AIR_##id:
        EACH_DTYPE(CASE)
        EACH_WIDE(CASE)
#undef CASE
        return n <= LONGEST;
    default: return false;
    }
}

static void
write_row(const int64_t *net, const ref_tensor *values, const ref_tensor *at,
          int axis, int64_t stride, char *const *p, int64_t count)
{
    const size_t bytes = ref_bytes(values->dtype);
    const int64_t step = ref_stride(values, axis), next = ref_stride(at, axis);
    for (int64_t i = 0; i < count; i++) {
        int64_t index = net[i * LANES] & UINT32_MAX;
        ref_copy(p[0] + i * step, p[1] + index * stride, bytes);
        memcpy(p[2] + i * next, &index, sizeof index);
    }
}

/* The first `count` of each row in order; count < 0: all of them. */
static void
order_rows(const air_call *call, const air_task *task, int axis_arg,
           bool descending, int64_t count)
{
    ref_tensor values = ref_out(call, 0, task), at = ref_out(call, 1, task);
    ref_tensor self = ref_arg(call, 0, task);
    const int axis = ref_axis(ref_int(call, axis_arg, -1), self.rank);
    const int64_t n = ref_dim(&self, axis), stride = ref_stride(&self, axis);
    ref_tensor to = ref_drop(values, axis), from = ref_drop(self, axis);
    ref_tensor index = ref_drop(at, axis);
    const ref_tensor *all[] = {&to, &from, &index};
    int64_t *net = task->scratch, *places = net + n * LANES, begin, end;
    const bool wide = is_wide(self.dtype);
    air_split(ref_numel(&to), task, &begin, &end);
    if (begin == end || n == 0)
        return;
    ref_walk w = ref_walk_begin(3, all, begin);
    for (int64_t row = begin; row < end; row += LANES) {
        char *p[LANES][3];
        const char *rows[LANES];
        int64_t here = end - row < LANES ? end - row : LANES;
        for (int64_t r = 0; r < LANES; r++) {
            memcpy(p[r], r < here ? w.p : p[0], sizeof p[r]);
            rows[r] = p[r][1];
            if (r < here)
                ref_walk_next(&w);
        }
        read_rows(self.dtype, net, places, rows, stride, n, descending);
        if (wide)
            sort_lanes(net, places, n);
        else
            sort_lanes(net, NULL, n);
        for (int64_t r = 0; r < here; r++)
            write_row((wide ? places : net) + r, &values, &at, axis, stride,
                      p[r], count < 0 ? n : count);
    }
}

bool
ORDER_KERNEL(sort_on)(const air_call *call, const char *isa)
{
    return takes(call, isa, 1);
}

bool
ORDER_KERNEL(sort_stable_on)(const air_call *call, const char *isa)
{
    return takes(call, isa, 2);
}

bool
ORDER_KERNEL(topk_on)(const air_call *call, const char *isa)
{
    return takes(call, isa, 2);
}

/* (self, dim, descending) */
void
ORDER_KERNEL(sort)(const air_call *call, const air_task *task)
{
    order_rows(call, task, 1, ref_int(call, 2, 0) != 0, -1);
}

/* (self, stable, dim, descending) */
void
ORDER_KERNEL(sort_stable)(const air_call *call, const air_task *task)
{
    order_rows(call, task, 2, ref_int(call, 3, 0) != 0, -1);
}

/* (self, k, dim, largest, sorted) */
void
ORDER_KERNEL(topk)(const air_call *call, const air_task *task)
{
    order_rows(call, task, 2, ref_int(call, 3, 1) != 0, ref_int(call, 1, 1));
}
