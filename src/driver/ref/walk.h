/* walk.h: elements of up to four tensors of the same sizes, side by side. */
#ifndef REF_WALK_H
#define REF_WALK_H

#include "driver/ref/args.h"

#define REF_WALK_MAX 4

typedef struct {
    int rank, n;
    int64_t dims[AIR_MAX_RANK], at[AIR_MAX_RANK];
    int64_t strides[REF_WALK_MAX][AIR_MAX_RANK];
    char *p[REF_WALK_MAX]; /* the current element of each */
} ref_walk;

/* Over the sizes of t[0], in row-major order, from element `start`. */
static inline ref_walk
ref_walk_begin(int n, const ref_tensor *const *t, int64_t start)
{
    ref_walk w = {.rank = t[0]->rank, .n = n};
    for (int k = 0; k < n; k++)
        w.p[k] = t[k]->data;
    for (int i = w.rank - 1; i >= 0; i--) {
        w.dims[i] = t[0]->dims[i];
        w.at[i] = w.dims[i] > 0 ? start % w.dims[i] : 0;
        start = w.dims[i] > 0 ? start / w.dims[i] : 0;
        for (int k = 0; k < n; k++) {
            w.strides[k][i] = t[k]->strides[i];
            w.p[k] += w.at[i] * t[k]->strides[i];
        }
    }
    return w;
}

static inline void
ref_walk_next(ref_walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        if (++w->at[i] < w->dims[i]) {
            for (int k = 0; k < w->n; k++)
                w->p[k] += w->strides[k][i];
            return;
        }
        w->at[i] = 0;
        for (int k = 0; k < w->n; k++)
            w->p[k] -= (w->dims[i] - 1) * w->strides[k][i];
    }
}

/* *dst = *dst + *src in their dtype. */
static inline void
ref_add(int dtype, char *dst, const char *src)
{
    if (dtype == AIR_F32) {
        float a, b;
        memcpy(&a, dst, sizeof a);
        memcpy(&b, src, sizeof b);
        a += b;
        memcpy(dst, &a, sizeof a);
    } else if (ref_is_float(dtype)) {
        ref_put(dtype, dst, ref_get(dtype, dst) + ref_get(dtype, src));
    } else {
        int64_t sum = 0;
        (void)__builtin_add_overflow(ref_get_int(dtype, dst),
                                     ref_get_int(dtype, src), &sum);
        ref_put_int(dtype, dst, sum);
    }
}

/* Bytes of a vector of the instruction set that this is compiled for. */
#if defined __AVX512F__
#define REF_VECTOR 64
#elif defined __AVX2__
#define REF_VECTOR 32
#else
#define REF_VECTOR 16
#endif

/* dst[i] += src[i] side by side, a vector at a time. */
#define REF_ADD_DENSE(name, T)                                                 \
    typedef T name##_lanes __attribute__((vector_size(REF_VECTOR)));           \
    static inline void name(char *dst, const char *src, int64_t n)             \
    {                                                                          \
        const int64_t bytes = (int64_t)sizeof(T), lanes = REF_VECTOR / bytes;  \
        for (; n >= lanes; n -= lanes, dst += REF_VECTOR, src += REF_VECTOR) { \
            name##_lanes a, b;                                                 \
            memcpy(&a, dst, sizeof a);                                         \
            memcpy(&b, src, sizeof b);                                         \
            a += b;                                                            \
            memcpy(dst, &a, sizeof a);                                         \
        }                                                                      \
        for (; n > 0; n--, dst += bytes, src += bytes) {                       \
            T a, b;                                                            \
            memcpy(&a, dst, sizeof a);                                         \
            memcpy(&b, src, sizeof b);                                         \
            a += b;                                                            \
            memcpy(dst, &a, sizeof a);                                         \
        }                                                                      \
    }
REF_ADD_DENSE(ref_add_dense_f32, float)
REF_ADD_DENSE(ref_add_dense_f64, double)
REF_ADD_DENSE(ref_add_dense_i32, uint32_t)
REF_ADD_DENSE(ref_add_dense_i64, uint64_t)
#undef REF_ADD_DENSE

#define REF_ADD_HALVES(name, of, to)                               \
    static inline void name(char *dst, const char *src, int64_t n) \
    {                                                              \
        for (int64_t i = 0; i < n; i++) {                          \
            uint16_t a, b;                                         \
            memcpy(&a, dst + i * 2, sizeof a);                     \
            memcpy(&b, src + i * 2, sizeof b);                     \
            a = to(of(a) + of(b));                                 \
            memcpy(dst + i * 2, &a, sizeof a);                     \
        }                                                          \
    }
REF_ADD_HALVES(ref_add_tail_bf16, ref_of_bf16, ref_to_bf16)
REF_ADD_HALVES(ref_add_dense_f16, ref_of_f16, ref_to_f16)
#undef REF_ADD_HALVES

typedef uint32_t ref_words __attribute__((vector_size(REF_VECTOR)));
typedef float ref_floats __attribute__((vector_size(REF_VECTOR)));
enum { REF_LANES = REF_VECTOR / 2 };

/* Sums of the bf16 in the upper halves of words, left there; as ref_to_bf16. */
static inline ref_words
ref_add_bf16s(ref_words a, ref_words b)
{
    ref_floats f = (ref_floats)a + (ref_floats)b;
    ref_words u = (ref_words)f, nan = (ref_words)(f != f);
    u = u + 0x7fff + (u >> 16 & 1);
    return (u & ~nan & 0xffff0000) | (nan & 0x7fc00000);
}

/* Every second bf16 is the upper half of a word as it lies. */
static inline void
ref_add_dense_bf16(char *dst, const char *src, int64_t n)
{
    int64_t i = 0;
    for (; i + REF_LANES <= n; i += REF_LANES) {
        ref_words a, b;
        memcpy(&a, dst + i * 2, sizeof a);
        memcpy(&b, src + i * 2, sizeof b);
        ref_words low = ref_add_bf16s(a << 16, b << 16) >> 16;
        a = low | ref_add_bf16s(a & 0xffff0000, b & 0xffff0000);
        memcpy(dst + i * 2, &a, sizeof a);
    }
    ref_add_tail_bf16(dst + i * 2, src + i * 2, n - i);
}

/* dst[i] = dst[i] + src[i] in their dtype; steps in bytes. */
static inline void
ref_add_row(int dtype, char *dst, int64_t ds, const char *src, int64_t ss,
            int64_t n)
{
    const int64_t bytes = (int64_t)ref_bytes(dtype);
    const bool dense = ds == bytes && ss == bytes;
    if (dense && dtype == AIR_F32)
        ref_add_dense_f32(dst, src, n);
    else if (dense && dtype == AIR_BF16)
        ref_add_dense_bf16(dst, src, n);
    else if (dense && dtype == AIR_F16)
        ref_add_dense_f16(dst, src, n);
    else if (dense && dtype == AIR_F64)
        ref_add_dense_f64(dst, src, n);
    else if (dense && dtype == AIR_I64)
        ref_add_dense_i64(dst, src, n);
    else if (dense && dtype == AIR_I32)
        ref_add_dense_i32(dst, src, n);
    else
        for (int64_t i = 0; i < n; i++)
            ref_add(dtype, dst + i * ds, src + i * ss);
}

/* Which thread writes to memory at this offset, where several writes to one
 * place must keep their order. */
static inline bool
ref_owns(int64_t offset, const air_task *task)
{
    uint64_t mixed = (uint64_t)offset * 0x9e3779b97f4a7c15u;
    return (mixed >> 32) * (uint64_t)task->count >> 32 == (uint64_t)task->id;
}

#endif
